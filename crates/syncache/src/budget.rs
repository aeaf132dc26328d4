//! `CookieBudget`: limits how many unknown ACKs may cost a hash computation, and which are verified
//! first (decision E23).
//!
//! Used by `syn_cache.rs`. Two token buckets, each of half the rate: one for flows to which a
//! cookie was sent recently (expected flows), one for all others. Expected flows may draw on both.
//! A Bloom-like bit filter records expected flows; its bits expire after one to two cookie periods.
//! Invariant: no hash is computed unless a bucket covers it. Not here: the gate, which is the
//! listener's (`listener.rs`).
//!
//! # Under flood
//! Unsolicited ACKs spend the bucket of unexpected flows and no more. A flood of SYNs fills the
//! filter, so that every ACK counts as expected: then both buckets serve all ACKs, which at the
//! default rate is more ACKs than one core receives beside the SYNs.

#[cfg(test)]
use floodwall_base::Instant;
use floodwall_base::{Price, TokenBucket};

use crate::moment::{CookieEpoch, CookieMoment};

/// Size in words of one generation of the filter: 8 KiB.
const FILTER_WORDS: usize = 1024;

/// The verification budget: two token buckets and the filter of flows to which a cookie was
/// sent.
pub(crate) struct CookieBudget {
    price: Price,
    expected: TokenBucket,
    unknown: TokenBucket,
    filter: [Box<[u64; FILTER_WORDS]>; 2],
    epoch: CookieEpoch,
}

impl CookieBudget {
    /// A budget of this rate per second and this burst.
    pub(crate) fn new((per_second, burst): (u32, u32), at: CookieMoment) -> Self {
        let half = |n: u32| if n == 0 { 0 } else { (n / 2).max(1) };
        Self {
            price: Price::new(half(per_second), half(burst)),
            expected: TokenBucket::default(),
            unknown: TokenBucket::default(),
            filter: [Box::new([0; FILTER_WORDS]), Box::new([0; FILTER_WORDS])],
            epoch: at.epoch,
        }
    }

    /// Records that a cookie was sent to the flow of that hash.
    #[inline]
    pub(crate) fn prefetch(&mut self, hash: u64, epoch: CookieEpoch) {
        self.turn(epoch);
        let (word, bit) = place(hash);
        let [newer, _] = &mut self.filter;
        if let Some(word) = newer.get_mut(word) {
            *word |= bit;
        }
    }

    /// Whether the flow of that hash may cost a verification now; if so, takes a token.
    #[inline]
    pub(crate) fn take(&mut self, hash: u64, at: CookieMoment) -> bool {
        self.turn(at.epoch);
        self.is_expected(hash) && self.expected.take(self.price, at.now)
            || self.unknown.take(self.price, at.now)
    }

    /// Whether the bucket of unexpected flows has a token left.
    #[cfg(test)]
    pub(crate) fn has_for_unverified_packets(&self, now: Instant) -> bool {
        self.unknown.has(self.price, now)
    }

    /// Whether a cookie was sent to the flow of that hash recently, according to the filter
    /// (false positives are possible).
    #[inline]
    pub(crate) fn is_expected(&self, hash: u64) -> bool {
        let (word, bit) = place(hash);
        self.filter.iter().any(|half| half.get(word).is_some_and(|word| word & bit != 0))
    }

    #[inline]
    fn turn(&mut self, epoch: CookieEpoch) {
        if epoch != self.epoch {
            // After a silence of two periods nothing is recent.
            let both = epoch.0.wrapping_sub(self.epoch.0) != 1;
            self.epoch = epoch;
            let [newer, older] = &mut self.filter;
            core::mem::swap(newer, older);
            newer.fill(0);
            if both {
                older.fill(0);
            }
        }
    }
}

/// The filter word and the bit in it for a hash. The bits used are not those that select row
/// and tag.
#[inline]
const fn place(hash: u64) -> (usize, u64) {
    ((hash >> 38) as usize % FILTER_WORDS, 1 << (hash >> 32 & 63))
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(millis: u64) -> CookieMoment {
        CookieMoment::simulated(Instant::from_nanos(millis * 1_000_000))
    }

    #[test]
    fn unverified_packets_have_half_and_expected_ones_the_rest_too() {
        let mut budget = CookieBudget::new((1000, 20), at(0));
        let taken = |budget: &mut CookieBudget, hash: u64| {
            (0..100).filter(|_| budget.take(hash, at(0))).count()
        };
        budget.prefetch(1 << 32, at(0).epoch);
        assert_eq!(taken(&mut budget, 2 << 32), 10, "an unexpected flow");
        assert_eq!(taken(&mut budget, 1 << 32), 10, "the reserved half");
        assert!(!budget.take(1 << 32, at(0)) && budget.take(2 << 32, at(2)));
        assert!(!budget.has_for_unverified_packets(Instant::ORIGIN + Duration::from_millis(2)));
    }

    #[test]
    fn one_that_was_expected_is_forgotten_after_two_periods_and_not_before() {
        for (millis, known) in [(14_000, true), (29_000, true), (30_000, false), (900_000, false)] {
            let mut budget = CookieBudget::new((0, 0), at(0));
            budget.prefetch(5, at(0).epoch);
            if (15_000..60_000).contains(&millis) {
                budget.turn(at(15_000).epoch);
            }
            budget.turn(at(millis).epoch);
            assert_eq!(budget.is_expected(5), known, "{millis} ms");
        }
    }

    #[test]
    fn a_budget_of_nothing_verifies_nothing() {
        let mut budget = CookieBudget::new((0, 0), at(0));
        budget.prefetch(5, at(0).epoch);
        assert!(!budget.take(5, at(1000)));
    }
}
