//! Per-connection rate limit of challenge ACKs (RFC 5961 section 7).
//!
//! Used by a connection's input for every ACK that answers a segment which changes nothing:
//! challenges, and answers to segments outside of the window. Invariants: the state is per
//! connection, so that the answers of one flow reveal nothing about another flow (CVE-2016-5696);
//! count and length of a period are drawn at random each time, so that its edges cannot be found;
//! an ACK loop between two desynchronised ends is limited to this rate.
//!
//! # Under flood
//! Reachable by any host that forges a peer's address. Bound: `TCP_CHALLENGES_PER_SECOND` answers
//! per second and connection; work: one comparison, and one random number per period. Honest
//! traffic loses nothing: the next segment triggers another challenge ACK.

use core::time::Duration;

use floodwall_base::limits::TCP_CHALLENGES_PER_SECOND;
use floodwall_base::{Instant, SecretRandom};

use crate::coarse_time::CoarseTime;

/// Shortest period; the longest is twice that. A tick more, as a period may begin late in one.
const CHALLENGE_PERIOD: u32 = CoarseTime::ticks_of(Duration::from_millis(1000)) + 1;

/// The challenge-ACK budget of one connection: 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChallengeLimit {
    period_ends: CoarseTime,
    left: u32,
}

impl ChallengeLimit {
    /// A full budget.
    #[must_use]
    pub const fn new() -> Self {
        Self { period_ends: CoarseTime::ORIGIN, left: 0 }
    }

    /// Takes one challenge ACK from the budget; returns whether it may be sent.
    pub fn allow(&mut self, now: Instant, random: &mut SecretRandom) -> bool {
        let now = CoarseTime::of(now);
        if !self.period_ends.is_within(now, 2 * CHALLENGE_PERIOD) {
            // Rounded up, so that no period is shorter.
            let more = random.below(CHALLENGE_PERIOD.into()) as u32;
            self.period_ends = now.after(CHALLENGE_PERIOD + more);
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
        assert!(sent.len() > 100, "and the flow is still answered: {}", sent.len());
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
        // Flow A exhausts its budget; flow B gets as much as it does alone.
        let (mut a, mut b) = (ChallengeLimit::new(), ChallengeLimit::new());
        while a.allow(Instant::ORIGIN, &mut random) {}
        let got = (0..100).filter(|_| b.allow(Instant::ORIGIN, &mut random)).count();
        assert!(got >= (TCP_CHALLENGES_PER_SECOND / 2) as usize);
    }
}
