//! How a table is divided into blocks: their numbers, and places in the root.
//!
//! Used by the readers' and the writer's files of a table; imports none of them.

/// Entries of a direct block: one for each value of its byte.
pub(super) const DIRECT: usize = 256;
/// The number of the node of the first byte; its matches stand in the blocks below. Number 0 is not
/// used.
pub(super) const TOP: u32 = 1;

/// Direct blocks of the second byte: one for each first byte, side by side, so that the first 16
/// bits of an address are the index of its entry. Under loom, where each entry is an object, only
/// those from [`FIRST`] on.
pub(super) const SECOND: u32 = if cfg!(loom) { 4 } else { 256 };
/// The first byte that has such a block.
pub(super) const FIRST: u8 = if cfg!(loom) { 8 } else { 0 };
/// The number of the first of them.
pub(super) const SECOND_FROM: u32 = TOP + 1;
/// The first number of the other direct blocks. Those below have fixed places and are never freed.
pub(super) const DYNAMIC_FROM: u32 = SECOND_FROM + SECOND;

/// The number of the direct block of the second byte, below this first byte.
pub(super) const fn second(byte: u8) -> u32 {
    SECOND_FROM + byte.wrapping_sub(FIRST) as u32 % SECOND
}

/// The first byte of a direct block of the second byte; none of any other.
pub(super) const fn first(block: u32) -> Option<u8> {
    match block {
        SECOND_FROM..DYNAMIC_FROM => Some((block - SECOND_FROM) as u8 + FIRST),
        _ => None,
    }
}

/// The index in the root of an entry of a direct block of the second byte; none of any other.
pub(super) fn root_index(block: u32, byte: u8) -> Option<usize> {
    first(block)?;
    Some((block - SECOND_FROM) as usize * DIRECT + usize::from(byte))
}

/// Low and high half of an entry: the child, and the longest match.
#[inline(always)]
pub(super) const fn halves(entry: u64) -> (u32, u32) {
    (entry as u32, (entry >> 32) as u32)
}
