//! Initial sequence numbers (RFC 6528): a clock, and a secret offset for each pair of endpoints.
//!
//! Used by active opens, and for SYN-ACKs without a cookie. Invariant: the numbers of one pair of
//! endpoints rise with time, so that a new connection starts beyond the old one's segments (RFC
//! 9293 section 3.4.1); without the key, the numbers of one pair reveal nothing about another pair.

use floodwall_base::{FlowKey, HashKey, Instant, Seq};

use crate::timestamps::TimestampClock;

/// One step of the number: four microseconds (RFC 6528 section 3).
const STEP_NANOS: u64 = 4_000;

/// The ISN generator of a shard; all shards of a host share the key, so that a flow's numbers rise
/// on whichever shard it is opened.
#[derive(Clone, Copy, Debug)]
pub struct IsnSecret(HashKey);

impl IsnSecret {
    /// A generator with a key drawn from the host's secret randomness.
    #[must_use]
    pub const fn new(key: HashKey) -> Self {
        Self(key)
    }

    /// The first sequence number of a connection that is opened now: one hash.
    #[must_use]
    pub fn isn(&self, flow: &FlowKey, now: Instant) -> Seq {
        self.numbers(flow, now).0
    }

    /// The same, and the timestamp clock of the flow (RFC 7323 section 5.4), which shows the other
    /// half of the hash: neither reveals anything about the other.
    #[must_use]
    pub fn numbers(&self, flow: &FlowKey, now: Instant) -> (Seq, TimestampClock) {
        let hash = self.0.flow(flow);
        let isn = Seq((now.as_nanos() / STEP_NANOS) as u32) + hash as u32;
        (isn, TimestampClock::of_hash(hash))
    }

    /// The same, where an older connection of these endpoints may have segments left up to `beyond`
    /// (TIME-WAIT, RFC 6191): the result is later than that.
    #[must_use]
    pub fn isn_after(&self, flow: &FlowKey, now: Instant, beyond: Seq) -> Seq {
        Self::later(self.isn(flow, now), beyond)
    }

    /// This number, or one beyond the segments of an older connection.
    pub(crate) fn later(isn: Seq, beyond: Seq) -> Seq {
        /// Margin for segments of the older connection that are still in flight, as other stacks
        /// add.
        const LEAP: u32 = 65_535 + 2;
        if (beyond + LEAP).is_before(isn) { isn } else { beyond + LEAP }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::collections::HashSet;

    use floodwall_base::{Endpoint, IfIndex, Randomness};

    use super::*;

    fn flow(remote: &str, port: u16) -> FlowKey {
        FlowKey {
            local: Endpoint::new("192.0.2.1".parse().unwrap(), 80),
            remote: Endpoint::new(remote.parse().unwrap(), port),
            zone: IfIndex::default(),
            protocol: 6,
        }
    }

    #[test]
    fn numbers_of_one_pair_of_ends_rise_by_250000_a_second() {
        let secret = IsnSecret::new(Randomness::from_number(1).secret.hash_key());
        let now = Instant::from_nanos(u64::from(u32::MAX) * STEP_NANOS - 5_000);
        for remote in ["198.51.100.7", "2001:db8::7"] {
            let first = secret.isn(&flow(remote, 1000), now);
            let later = secret.isn(&flow(remote, 1000), now + Duration::from_secs(1));
            assert_eq!(later.since(first), 250_000, "also where the clock's part wraps");
        }
    }

    #[test]
    fn numbers_of_other_ends_and_of_other_keys_have_nothing_in_common() {
        let mut random = Randomness::from_number(2);
        let (a, b) = (random.secret.hash_key(), random.secret.hash_key());
        let all: HashSet<u32> = (0..5000)
            .flat_map(|port| {
                [(a, "192.0.2.9"), (b, "192.0.2.9"), (a, "2001:db8::9")].map(|x| (x, port))
            })
            .map(|((key, remote), port)| {
                IsnSecret::new(key).isn(&flow(remote, port), Instant::ORIGIN).0
            })
            .collect();
        assert!(all.len() > 14_990, "{}", all.len());
        // Neighbouring ports: the differences are spread over all 32 bits and share no divisor.
        let diffs = (0..4000).map(|p| {
            let isn = |p| IsnSecret::new(a).isn(&flow("192.0.2.9", p), Instant::ORIGIN);
            isn(p + 1).since(isn(p))
        });
        let (mut ones, mut divisor) = ([0_u32; 32], 0_u32);
        for diff in diffs {
            ones.iter_mut().enumerate().for_each(|(bit, n)| *n += diff >> bit & 1);
            divisor = gcd(divisor, diff);
        }
        assert_eq!(divisor, 1);
        assert!(ones.iter().all(|n| (1800..2200).contains(n)), "{ones:?}");
    }

    #[test]
    fn a_clock_shows_nothing_of_the_number_beside_it() {
        let secret = IsnSecret::new(HashKey::new(5, 6));
        let numbers = |port| secret.numbers(&flow("192.0.2.9", port), Instant::ORIGIN);
        let (mut ones, mut equal) = ([0_u32; 32], 0);
        for port in 0..4000 {
            let (isn, clock) = numbers(port);
            let beside = isn.0 ^ clock.value(Instant::ORIGIN);
            equal += u32::from(beside == 0);
            ones.iter_mut().enumerate().for_each(|(bit, n)| *n += beside >> bit & 1);
        }
        assert_eq!(equal, 0);
        assert!(ones.iter().all(|n| (1800..2200).contains(n)), "{ones:?}");
    }

    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }

    #[test]
    fn a_number_after_an_older_connection_lies_beyond_it() {
        let secret = IsnSecret::new(HashKey::new(3, 4));
        let key = flow("192.0.2.9", 5);
        let isn = secret.isn(&key, Instant::ORIGIN);
        for off in [0_u32, 1, 65_000, 65_537, 70_000, 1 << 20, 1 << 30] {
            for beyond in [isn + off, isn - off] {
                assert!((beyond + 65_536).is_before(secret.isn_after(
                    &key,
                    Instant::ORIGIN,
                    beyond
                )));
            }
        }
        assert_eq!(secret.isn_after(&key, Instant::ORIGIN, isn - 100_000), isn);
    }
}
