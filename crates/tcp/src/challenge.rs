//! How many challenge ACKs one connection sends (RFC 5961 section 7).
//!
//! Called by a connection's input, for every ACK that answers a segment which changes nothing:
//! challenges, and answers to what lies outside of the window. Invariants: the state is the
//! connection's own, so that one flow's answers tell nothing of another's (CVE-2016-5696); count
//! and length of a period are drawn anew each time, so that its edges cannot be found; two
//! desynchronised ends end their war at this rate.
//!
//! # Under flood
//! Reachable by anyone who forges a peer's address. Bound: `TCP_CHALLENGES_PER_SECOND` answers a
//! second and connection; work: one comparison, a random number once a period. Honest traffic loses
//! nothing: a lost challenge is asked for again by the next segment.

use core::time::Duration;

use floodwall_base::limits::TCP_CHALLENGES_PER_SECOND;
use floodwall_base::{Instant, SecretRandom};

/// Shortest period; the longest is twice that.
const PERIOD: Duration = Duration::from_millis(1000);

/// See the file's head: 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChallengeLimit {
    period_ends: Instant,
    left: u32,
}

impl ChallengeLimit {
    /// Nothing sent yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { period_ends: Instant::ORIGIN, left: 0 }
    }

    /// Whether one more may be sent now; counts it.
    pub fn allow(&mut self, now: Instant, random: &mut SecretRandom) -> bool {
        if now >= self.period_ends {
            let nanos = PERIOD.as_nanos() as u64;
            self.period_ends = now + Duration::from_nanos(nanos + random.below(nanos));
            // Half to all of the bound.
            let half = TCP_CHALLENGES_PER_SECOND / 2;
            self.left = TCP_CHALLENGES_PER_SECOND - random.below(u64::from(half) + 1) as u32;
        }
        let allowed = self.left > 0;
        self.left -= u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use floodwall_base::Randomness;

    use super::*;

    #[test]
    fn a_flood_gets_no_more_than_the_bound_in_any_second() {
        let mut random = Randomness::from_number(5).secret;
        let mut limit = ChallengeLimit::new();
        let step = Duration::from_micros(500);
        let mut now = Instant::ORIGIN;
        let mut sent: Vec<Instant> = Vec::new();
        for _ in 0..200_000 {
            now += step;
            if limit.allow(now, &mut random) {
                sent.push(now);
            }
        }
        // Two periods may touch within one second.
        let bound = 2 * TCP_CHALLENGES_PER_SECOND as usize;
        assert!(sent.windows(bound + 1).all(|w| w[bound] - w[0] > Duration::from_secs(1)));
        assert!(sent.len() > 100, "and the flow is answered all the time: {}", sent.len());
    }

    #[test]
    fn counts_of_a_period_differ_and_say_nothing_of_another_connection() {
        let mut random = Randomness::from_number(6).secret;
        let counts: HashSet<usize> = (0..50)
            .map(|_| {
                let mut limit = ChallengeLimit::new();
                (0..100).filter(|_| limit.allow(Instant::ORIGIN, &mut random)).count()
            })
            .collect();
        assert!(counts.len() > 2, "{counts:?}");
        // Flow A spends all it has; what flow B gets is what it gets alone.
        let (mut a, mut b) = (ChallengeLimit::new(), ChallengeLimit::new());
        while a.allow(Instant::ORIGIN, &mut random) {}
        let got = (0..100).filter(|_| b.allow(Instant::ORIGIN, &mut random)).count();
        assert!(got >= (TCP_CHALLENGES_PER_SECOND / 2) as usize);
    }
}
