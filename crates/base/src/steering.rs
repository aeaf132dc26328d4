//! Steering: which worker owns a flow (decision D16).
//!
//! Receive-side scaling (RSS): one symmetric keyed function, evaluated by the receiving worker
//! (over a frame's bytes) and by the stack (over its own flows, so that active opens choose ports
//! that hash to the opening worker). Symmetric: both directions of a flow have the same owner.
//! Keyed: a remote peer cannot aim all flows at one worker. Invariant: the result depends only on
//! key, number of workers and flow.

use core::net::{IpAddr, SocketAddr};

use crate::hash::HashKey;
use crate::ids::WorkerId;

/// The keyed hash that maps flows to workers (RSS), and the number of workers.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    key: HashKey,
    workers: u16,
}

impl Steering {
    /// Steering over so many workers, at least one.
    #[must_use]
    pub const fn new(key: HashKey, workers: u16) -> Self {
        Self { key, workers: if workers == 0 { 1 } else { workers } }
    }

    /// How many workers there are.
    #[must_use]
    pub const fn workers(&self) -> u16 {
        self.workers
    }

    /// The worker that owns the flow between two ends, in either direction.
    #[must_use]
    #[inline]
    pub fn flow(&self, one: SocketAddr, other: SocketAddr, protocol: u8) -> WorkerId {
        if self.workers == 1 {
            return WorkerId::CONTROL;
        }
        let end = |end: SocketAddr| (bits(end.ip()), end.port());
        self.of(end(one), end(other), u32::from(protocol))
    }

    /// The worker that owns traffic between two addresses without ports: echo requests, and (with
    /// their identification as `word`) fragments.
    #[must_use]
    #[inline]
    pub fn pair(&self, one: IpAddr, other: IpAddr, word: u32) -> WorkerId {
        if self.workers == 1 {
            return WorkerId::CONTROL;
        }
        self.of((bits(one), 0), (bits(other), 0), word)
    }

    fn of(&self, one: (u128, u16), other: (u128, u16), word: u32) -> WorkerId {
        let (low, high) = if one <= other { (one, other) } else { (other, one) };
        let mut bytes = [0; 40];
        let parts = [low.0, high.0].map(u128::to_ne_bytes);
        let ports = u64::from(low.1) << 48 | u64::from(high.1) << 32 | u64::from(word);
        bytes[..16].copy_from_slice(&parts[0]);
        bytes[16..32].copy_from_slice(&parts[1]);
        bytes[32..].copy_from_slice(&ports.to_ne_bytes());
        // The high half scaled to the number of workers: no division, only negligible bias.
        let high_half = self.key.bytes(&bytes) >> 32;
        WorkerId(((high_half * u64::from(self.workers)) >> 32) as u16)
    }
}

/// An address as one number; IPv4 as IPv4-mapped, so that a flow has one owner however written.
const fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn both_directions_of_a_flow_have_one_owner_in_either_family() {
        let steering = Steering::new(HashKey::new(1, 2), 4);
        for (a, b) in [("10.0.0.1:7", "10.0.0.2:4000"), ("[fd00::1]:7", "[fd00::2]:4000")] {
            let owner = steering.flow(end(a), end(b), 17);
            assert_eq!(owner, steering.flow(end(b), end(a), 17));
            assert!(owner.0 < 4);
        }
        let mapped = steering.flow(end("[::ffff:10.0.0.1]:7"), end("[::ffff:10.0.0.2]:4000"), 17);
        assert_eq!(mapped, steering.flow(end("10.0.0.1:7"), end("10.0.0.2:4000"), 17));
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(steering.pair(a, b, 5), steering.pair(b, a, 5));
    }

    #[test]
    fn flows_spread_evenly_and_another_key_spreads_them_otherwise() {
        let keys = [HashKey::new(1, 2), HashKey::new(3, 4)];
        let owners = keys.map(|key| {
            let steering = Steering::new(key, 3);
            let flows = (1000..4000).map(|port| SocketAddr::new([10, 0, 0, 2].into(), port));
            flows.map(|from| steering.flow(from, end("10.0.0.1:7"), 17).0).collect::<Vec<_>>()
        });
        for owners in &owners {
            for worker in 0..3 {
                let share = owners.iter().filter(|owner| **owner == worker).count();
                assert!((900..1100).contains(&share), "{worker}: {share} of 3000");
            }
        }
        assert_ne!(owners[0], owners[1]);
        let alone = Steering::new(keys[0], 0);
        assert_eq!(alone.flow(end("10.0.0.1:7"), end("10.0.0.2:9"), 17), WorkerId::CONTROL);
    }
}
