//! `WaitingLine`: unverified packets of one family that wait, in order, with what each source
//! prefix has of them.
//!
//! Used by `gate.rs`. A prefix is an IPv4 /24 or an IPv6 /48, hashed into one of [`PREFIX_CELLS`]
//! cells; what is not IP shares one. Invariant: each cell counts the waiting packets of its
//! prefixes.
//!
//! # Under flood
//! Any sender fills the line. Bound: given with each packet. Worst work per packet: nine hashes of
//! a source address. When full: of a prefix that has more than an eighth of the line, the oldest
//! packet gives way where it is among the eight at the front, to a packet of a prefix with less
//! than half as much; else the new packet is dropped. So real sources with much to send
//! (duplicates, replays, segments of connections that are gone) do not shut out newcomers of other
//! prefixes. A flood from forged sources is spread over all cells, and none of them has that much:
//! there newcomers lose as the flood does. The hash needs no key: a prefix met in its cell gains
//! nothing that forging its addresses does not.

use floodwall_packet::{PacketBuf, PacketList};

/// Cells that prefixes are hashed into.
const PREFIX_CELLS: usize = 256;
/// A prefix with more than this part of a full line gives way.
const HEAVY_DIVISOR: usize = 8;
/// Packets at the front among which one of a heavy prefix is looked for.
const OLDEST_LOOKED_AT: usize = 8;

/// A queue of waiting packets.
#[derive(Debug)]
pub(crate) struct WaitingLine {
    list: PacketList,
    cells: [u16; PREFIX_CELLS],
    /// The cell that had too many last.
    heavy: usize,
}

impl Default for WaitingLine {
    fn default() -> Self {
        Self { list: PacketList::new(), cells: [0; PREFIX_CELLS], heavy: 0 }
    }
}

impl WaitingLine {
    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    /// Appends a packet to a line of so many at most. `false` where a packet was dropped: this one,
    /// or the oldest.
    pub(crate) fn push(&mut self, packet: PacketBuf, most: usize) -> bool {
        let cell = cell_of(&packet);
        let is_full = self.len() >= most;
        if is_full && !self.gives_way(cell, most) {
            return false;
        }
        if let Some(count) = self.cells.get_mut(cell) {
            *count = count.saturating_add(1);
            if usize::from(*count) > most / HEAVY_DIVISOR {
                self.heavy = cell;
            }
        }
        self.list.push_back(packet);
        !is_full
    }

    /// Drops one of the oldest packets for one of that cell: the first of a prefix that has too
    /// many. What is before it stays.
    fn gives_way(&mut self, cell: usize, most: usize) -> bool {
        let count = |cell: usize| self.cells.get(cell).map_or(0, |count| usize::from(*count));
        let ours = count(cell);
        let is_heavy = |packet: &PacketBuf| {
            let its = count(cell_of(packet));
            its > most / HEAVY_DIVISOR && ours < its / 2
        };
        // A flood of many prefixes has none that is heavy.
        let has_heavy = count(self.heavy) > most / HEAVY_DIVISOR;
        let looks = if has_heavy { OLDEST_LOOKED_AT } else { 1 };
        let Some(at) = self.list.iter().take(looks).position(is_heavy) else { return false };
        let mut before = PacketList::new();
        for packet in (0..at).map_while(|_| self.list.pop_front()) {
            before.push_back(packet);
        }
        let has_gone = self.pop_front().is_some();
        before.append(&mut self.list);
        self.list = before;
        has_gone
    }

    /// The oldest packet.
    pub(crate) fn pop_front(&mut self) -> Option<PacketBuf> {
        let packet = self.list.pop_front()?;
        if let Some(count) = self.cells.get_mut(cell_of(&packet)) {
            *count = count.saturating_sub(1);
        }
        Some(packet)
    }

    /// All packets, in order.
    pub(crate) fn take(&mut self) -> PacketList {
        self.cells = [0; PREFIX_CELLS];
        self.list.take()
    }
}

/// The cell of a packet's source prefix.
fn cell_of(packet: &PacketBuf) -> usize {
    let prefix = source_of(packet).map_or(0, |(is_v6, first)| first >> if is_v6 { 16 } else { 40 });
    // Fibonacci hashing (Knuth, volume 3, section 6.4).
    (prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// Whether a packet is IPv6, and the first eight bytes of its source and what follows that; `None`
/// of what is not IP.
pub(crate) fn source_of(packet: &PacketBuf) -> Option<(bool, u64)> {
    let bytes = packet.first();
    // Behind an Ethernet header, or without one.
    let is_bare = matches!(bytes.first().map(|byte| byte >> 4), Some(4 | 6))
        && (word(bytes, 4).is_some_and(|len| len + 40 == packet.len())
            || word(bytes, 2) == Some(packet.len()));
    let network = if is_bare { 0 } else { 14 };
    let at = |offset: usize| bytes.get(network + offset..)?.first_chunk::<8>();
    let is_v6 = match bytes.get(network)? >> 4 {
        4 => false,
        6 => true,
        _ => return None,
    };
    at(if is_v6 { 8 } else { 12 }).map(|first| (is_v6, u64::from_be_bytes(*first)))
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.first_chunk().map(|word| usize::from(u16::from_be_bytes(*word)))
}

/// Of which family a packet is, at a glance. One without link header is known by its version and
/// by a length that is its own; a frame by its type field.
pub(crate) fn is_ipv6(packet: &PacketBuf) -> bool {
    let bytes = packet.first();
    match bytes.first().map(|byte| byte >> 4) {
        Some(6) if word(bytes, 4).is_some_and(|len| len + 40 == packet.len()) => true,
        Some(4) if word(bytes, 2) == Some(packet.len()) => false,
        _ => word(bytes, 12) == Some(0x86dd),
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;

    /// A frame from a host of a prefix of this number.
    fn packet(pool: &Pool, v6: bool, prefix: u16, host: u8) -> PacketBuf {
        let mut bytes = [0; 74];
        let [high, low] = prefix.to_be_bytes();
        if v6 {
            (bytes[12], bytes[13], bytes[14]) = (0x86, 0xdd, 0x60);
            bytes[22..28].copy_from_slice(&[0x20, 1, 0xd, 0xb8, high, low]);
            bytes[37] = host;
        } else {
            (bytes[12], bytes[14]) = (8, 0x45);
            bytes[26..30].copy_from_slice(&[10, high, low, host]);
        }
        pool.packet_from(&bytes).unwrap()
    }

    #[test]
    fn a_prefix_that_fills_the_line_gives_way_to_newcomers_of_others() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for v6 in [false, true] {
            let mut line = WaitingLine::default();
            for n in 0..200 {
                assert_eq!(line.push(packet(&pool, v6, 7, n as u8), 64), n < 64);
            }
            for n in 0..16_u16 {
                assert!(!line.push(packet(&pool, v6, 100 + n, 1), 64), "the oldest is dropped");
                assert!(!line.push(packet(&pool, v6, 7, 1), 64), "its own prefix is not preferred");
                assert_eq!(line.len(), 64);
            }
            let prefixes: Vec<PacketBuf> = core::iter::from_fn(|| line.pop_front()).collect();
            let own = cell_of(&packet(&pool, v6, 7, 0));
            let others = prefixes.iter().filter(|it| cell_of(it) != own).count();
            assert_eq!((others, prefixes.len()), (16, 64));
            assert!(line.cells.iter().all(|count| *count == 0));
        }
    }

    /// Newcomers come in groups: one of a group at the front must not shut out the next group.
    #[test]
    fn light_packets_at_the_front_keep_their_places_and_shut_no_newcomer_out() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for v6 in [false, true] {
            let mut line = WaitingLine::default();
            (0..5).for_each(|n| _ = line.push(packet(&pool, v6, 100 + n, 1), 64));
            (0..100).for_each(|n| _ = line.push(packet(&pool, v6, 7, n), 64));
            (0..5).for_each(|n| _ = line.push(packet(&pool, v6, 200 + n, 1), 64));
            let own = cell_of(&packet(&pool, v6, 7, 0));
            let order: Vec<_> = core::iter::from_fn(|| line.pop_front()).collect();
            let light: Vec<_> = order.iter().map(|it| cell_of(it) != own).collect();
            assert_eq!(light, [[true; 5].as_slice(), &[false; 54], &[true; 5]].concat());
            assert!(line.cells.iter().all(|count| *count == 0));
        }
    }

    #[test]
    fn a_flood_of_many_prefixes_displaces_nothing_that_waits() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for v6 in [false, true] {
            let mut line = WaitingLine::default();
            for n in 0..1000 {
                assert_eq!(line.push(packet(&pool, v6, n, 1), 64), n < 64);
            }
            let first = line.pop_front().unwrap();
            assert_eq!(cell_of(&first), cell_of(&packet(&pool, v6, 0, 1)));
            assert_eq!(line.take().len(), 63);
            assert!(line.cells.iter().all(|count| *count == 0));
        }
    }
}
