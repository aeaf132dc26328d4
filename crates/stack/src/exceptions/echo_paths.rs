//! `EchoPaths`: what paths are said to carry of our echo replies, and of nothing else.
//!
//! A reply goes to whoever its request names as source, and the request chose its bytes: who can
//! send one packet with a forged source can quote the reply. So a message about a reply must not
//! lower the path of anybody's connections (RFC 5927 section 7, RFC 8201 section 6), and yet large
//! replies behind a narrow link must arrive (RFC 8201 section 4): the two are kept apart.
//! Written by `exceptions.rs`, read by `echo.rs`, at the shard that answers: requests, replies and
//! what quotes them have one owner (decision D16).
//!
//! # Under flood
//! Reachable by anyone. Bound: [`ECHO_PATHS_MAX`] entries, allocated at the start. Worst work per
//! message: one keyed hash, one entry. A newcomer displaces whoever has its place; that one loses
//! its next large reply, and the message about that brings it back. What an attacker gains: large
//! replies to a destination leave in fragments of the family's floor, each within the asker's share
//! of replies. Counters: those of `exceptions.rs`.

use core::net::IpAddr;

use floodwall_base::limits::ECHO_PATHS_MAX;
use floodwall_base::{HashKey, Instant};
use floodwall_fib::exceptions::LIFETIME;

/// One destination, what its path carries, and until when.
#[derive(Clone, Copy, Debug)]
struct Told {
    dst_addr: IpAddr,
    mtu: u32,
    until: Instant,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct EchoPaths {
    places: Box<[Option<Told>]>,
    key: HashKey,
}

impl EchoPaths {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { places: vec![None; ECHO_PATHS_MAX].into(), key }
    }

    /// The most bytes of an IP packet that a reply to `dst_addr` may have, where somebody said so.
    #[inline]
    pub(crate) fn mtu(&self, dst_addr: IpAddr, now: Instant) -> Option<u32> {
        let told = self.places.get(self.place_of(dst_addr)).copied().flatten()?;
        (told.dst_addr == dst_addr && now < told.until).then_some(told.mtu)
    }

    /// The path to `dst_addr` carries `mtu` bytes, for the next ten minutes.
    pub(crate) fn learn(&mut self, dst_addr: IpAddr, mtu: u32, now: Instant) {
        let place = self.place_of(dst_addr);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(Told { dst_addr, mtu, until: now + LIFETIME });
        }
    }

    fn place_of(&self, dst_addr: IpAddr) -> usize {
        const { assert!(ECHO_PATHS_MAX.is_power_of_two()) };
        self.key.addr(dst_addr, 0) as usize & (ECHO_PATHS_MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_destination_is_known_until_its_time_or_another_in_its_place() {
        let mut paths = EchoPaths::new(HashKey::new(1, 2));
        let now = Instant::from_nanos(1);
        let (v4, v6) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]));
        for addr in [v4, v6] {
            assert_eq!(paths.mtu(addr, now), None);
            paths.learn(addr, 1300, now);
            assert_eq!(paths.mtu(addr, now), Some(1300));
            assert_eq!(paths.mtu(addr, now + (LIFETIME - Duration::from_nanos(1))), Some(1300));
            assert_eq!(paths.mtu(addr, now + LIFETIME), None);
        }
        for n in 0..100_000_u32 {
            paths.learn(IpAddr::from(n.to_be_bytes()), 552, now);
        }
        assert_eq!((paths.places.len(), paths.mtu(v4, now)), (ECHO_PATHS_MAX, None));
    }
}
