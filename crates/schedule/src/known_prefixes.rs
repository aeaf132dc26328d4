//! `KnownPrefixes`: source prefixes of which established flows were seen lately, and how many new
//! flows' packets each of them is worth.
//!
//! Used by `gate.rs`. A prefix is an IPv4 /24 or an IPv6 /64, in one of [`PREFIX_CELLS`] cells. A
//! packet of an established flow earns its prefix a token, and [`TOKENS_MAX`] are kept; an
//! unverified packet from there takes one. So new flows of clients that talk already do not wait
//! behind a flood of sources at random, which is of no known prefix.
//!
//! # Under flood
//! Reachable by peers with established flows. Bound: the cells. Worst work per packet: a product
//! and a comparison. When two prefixes meet in a cell, the one there loses a token for each packet
//! of the other's established flows, and its place without tokens. The hash has no key: a peer with
//! established flows in a prefix that meets another's can keep that one unknown. Sources forged in
//! a known prefix take its tokens. In both cases its new flows are unverified as any other. No
//! packet is dropped for want of a token.

use floodwall_packet::PacketBuf;

use crate::waiting_line::source_of;

const PREFIX_CELLS: usize = 256;
const TOKENS_EARNED: u16 = 1;
const TOKENS_MAX: u16 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct PrefixCell {
    prefix: u64,
    tokens: u16,
}

/// Source prefixes with established flows, and their tokens.
#[derive(Debug)]
pub(crate) struct KnownPrefixes {
    cells: Box<[PrefixCell; PREFIX_CELLS]>,
}

impl Default for KnownPrefixes {
    fn default() -> Self {
        Self { cells: Box::new([PrefixCell::default(); PREFIX_CELLS]) }
    }
}

impl KnownPrefixes {
    /// This packet is of an established flow.
    pub(crate) fn earn(&mut self, packet: &PacketBuf) {
        let Some(prefix) = prefix_of(packet) else { return };
        let Some(cell) = self.cells.get_mut(cell_of(prefix)) else { return };
        if cell.prefix == prefix {
            cell.tokens = (cell.tokens + TOKENS_EARNED).min(TOKENS_MAX);
        } else if cell.tokens == 0 {
            *cell = PrefixCell { prefix, tokens: TOKENS_EARNED };
        } else {
            cell.tokens -= 1;
        }
    }

    /// Takes a token of this packet's prefix; false where it has none.
    pub(crate) fn spend(&mut self, packet: &PacketBuf) -> bool {
        let Some(prefix) = prefix_of(packet) else { return false };
        let cell = self.cells.get_mut(cell_of(prefix));
        cell.filter(|cell| cell.prefix == prefix && cell.tokens > 0)
            .map(|cell| cell.tokens -= 1)
            .is_some()
    }
}

/// The prefix of a packet's source. `None` of what is not IP.
fn prefix_of(packet: &PacketBuf) -> Option<u64> {
    const V4: u64 = 1 << 32;
    source_of(packet).map(|(is_v6, first)| match is_v6 {
        false => first >> 40 | V4,
        true => first,
    })
}

/// Fibonacci hashing (Knuth, volume 3, section 6.4).
const fn cell_of(prefix: u64) -> usize {
    (prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;

    /// A frame from a host of a prefix of this number.
    fn packet(pool: &Pool, v6: bool, prefix: u16) -> PacketBuf {
        let mut bytes = [0; 74];
        let [high, low] = prefix.to_be_bytes();
        if v6 {
            (bytes[12], bytes[13], bytes[14]) = (0x86, 0xdd, 0x60);
            bytes[22..30].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, high, low]);
        } else {
            (bytes[12], bytes[14]) = (8, 0x45);
            bytes[26..30].copy_from_slice(&[10, high, low, 1]);
        }
        pool.packet_from(&bytes).unwrap()
    }

    #[test]
    fn a_prefix_is_worth_what_its_established_flows_have_earned() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for v6 in [false, true] {
            let mut known = KnownPrefixes::default();
            let (ours, other) = (packet(&pool, v6, 7), packet(&pool, v6, 8));
            let worth =
                |known: &mut KnownPrefixes, of| (0..1000).filter(|_| known.spend(of)).count();
            assert_eq!(worth(&mut known, &ours), 0);
            (0..2).for_each(|_| known.earn(&ours));
            assert_eq!((worth(&mut known, &other), worth(&mut known, &ours)), (0, 2), "v6 {v6}");
            (0..1000).for_each(|_| known.earn(&ours));
            assert_eq!(worth(&mut known, &ours), usize::from(TOKENS_MAX), "v6 {v6}");
        }
    }

    #[test]
    fn where_two_prefixes_meet_the_one_that_talks_more_stays() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for v6 in [false, true] {
            let mut known = KnownPrefixes::default();
            let ours = packet(&pool, v6, 7);
            let cell = |of: &PacketBuf| cell_of(prefix_of(of).unwrap());
            let rival = (8..u16::MAX).map(|n| packet(&pool, v6, n));
            let rival = rival.into_iter().find(|it| cell(it) == cell(&ours)).unwrap();
            (0..10).for_each(|_| known.earn(&ours));
            for _ in 0..10 {
                known.earn(&rival);
                known.earn(&ours);
            }
            assert!(!known.spend(&rival) && known.spend(&ours), "v6 {v6}");
            (0..300).for_each(|_| known.earn(&rival));
            assert!(known.spend(&rival) && !known.spend(&ours), "v6 {v6}: it is silent");
        }
    }

    #[test]
    fn what_is_no_ip_has_no_prefix() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut known = KnownPrefixes::default();
        let packet = pool.packet_from(&[0; 60]).unwrap();
        known.earn(&packet);
        assert!(!known.spend(&packet));
    }
}
