//! Patching a checksum when a field changes, without summing the packet again.
//!
//! Called by the forwarder (time to live) and to rewrite ports or addresses. Invariant: a correct
//! checksum stays correct, and a wrong one stays wrong. Uses equation 3 of RFC 1624, `HC' = ~(~HC +
//! ~m + m')`: the older equation 2 of RFC 1141 could make a zero where there must be none.

/// The checksum after a 16-bit field at an even offset went from `old` to `new`.
#[inline]
#[must_use]
pub const fn update16(check: u16, old: u16, new: u16) -> u16 {
    !fold(!check as u32 + !old as u32 + new as u32)
}

/// The checksum after a 32-bit field at an even offset went from `old` to `new`.
#[inline]
#[must_use]
pub const fn update32(check: u16, old: u32, new: u32) -> u16 {
    let removed = (!old >> 16) + (!old & 0xffff);
    let added = (new >> 16) + (new & 0xffff);
    !fold(!check as u32 + removed + added)
}

const fn fold(value: u32) -> u16 {
    let value = (value & 0xffff) + (value >> 16);
    let value = (value & 0xffff) + (value >> 16);
    value as u16
}
