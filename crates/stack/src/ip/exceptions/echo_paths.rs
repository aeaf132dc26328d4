//! `EchoPaths`: path MTUs that apply to our echo replies, and to nothing else.
//!
//! A reply goes to the source that its request claims, and the request chose its bytes: one packet
//! with a forged source lets an attacker quote the reply. So a message about a reply must not lower
//! the path MTU of connections (RFC 5927 section 7, RFC 8201 section 6), and yet large replies
//! behind a narrow link must arrive (RFC 8201 section 4): the two are kept apart. Written by
//! `exceptions.rs`, read by `echo.rs`, at the shard that answers: requests, replies and the errors
//! that quote them have one owner (decision D16).
//!
//! # Under flood
//! Reachable by any source. Bound: [`ECHO_PATHS_MAX`] entries, allocated at the start. Worst work
//! per message: one keyed hash, one entry. A newcomer evicts the entry in its place; the evicted
//! destination loses its next large reply, and the message about that restores it. What an attacker
//! gains: large replies to a destination leave in fragments of the family's floor, each within the
//! peer's share of replies. Counters: those of `exceptions.rs`.

use core::net::IpAddr;

use floodwall_base::limits::ECHO_PATHS_MAX;
use floodwall_base::{HashKey, Instant};
use floodwall_fib::exceptions::LIFETIME;

/// One destination, its path MTU, and the entry's expiry.
#[derive(Clone, Copy, Debug)]
struct EchoPathUpdate {
    dst_addr: IpAddr,
    mtu: u32,
    until: Instant,
}

/// Direct-mapped table of path MTUs for echo replies, by destination.
#[derive(Debug)]
pub(crate) struct EchoPaths {
    places: Box<[Option<EchoPathUpdate>]>,
    key: HashKey,
}

impl EchoPaths {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { places: vec![None; ECHO_PATHS_MAX].into(), key }
    }

    /// The path MTU for replies to `dst_addr`, where one is known.
    #[inline]
    pub(crate) fn mtu(&self, dst_addr: IpAddr, now: Instant) -> Option<u32> {
        let told = self.places.get(self.place_of(dst_addr)).copied().flatten()?;
        (told.dst_addr == dst_addr && now < told.until).then_some(told.mtu)
    }

    /// Sets the path MTU to `dst_addr`, for the next ten minutes.
    pub(crate) fn learn(&mut self, dst_addr: IpAddr, mtu: u32, now: Instant) {
        let place = self.place_of(dst_addr);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(EchoPathUpdate { dst_addr, mtu, until: now + LIFETIME });
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
