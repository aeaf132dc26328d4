//! What a limbo has seen, written by its one writer and shown to any thread.
//!
//! Called by `limbo.rs` at every change, and by reports ([`LimboStats`]) while the writer works.
//! Invariant: each figure is whole and was true at some moment; figures of one reading may be of
//! moments a few instructions apart, so a sum over them is not a balance sheet. Nothing is
//! allocated after construction and nothing is ordered by these words: they are the standard
//! library's atomics under loom, too.
//!
//! Grace periods are counted in buckets with edges that grow by a quarter at most: four to each
//! power of two, as in Gil Tene's *HdrHistogram*, so that a percentile is exact to 25 % at any
//! size, from a round's microseconds to a stuck worker's hours.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use core::time::Duration;

use floodwall_base::Instant;

use super::LimboCaps;

/// Buckets to each power of two: 2^2.
const SUB_BITS: u32 = 2;
/// Every duration of 64 bits of nanoseconds has a bucket.
const BUCKETS: usize = ((64 - SUB_BITS + 1) << SUB_BITS) as usize;

/// What a limbo, or all limbos of a domain together, have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimboStats {
    /// Objects that wait.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
    /// The most objects that ever waited; of several limbos, the sum of each one's most.
    pub items_max: usize,
    /// The most bytes that ever waited; of several limbos, the sum of each one's most.
    pub bytes_max: usize,
    /// How much may wait.
    pub caps: LimboCaps,
    /// Objects that were freed.
    pub freed: u64,
    /// Changes that were refused at the cap.
    pub refused: u64,
    /// Passes that found so much waiting that slow workers were requested to pause.
    pub chased: u64,
    /// From retiring to freeing, of the object freed last.
    pub grace_last: Duration,
    /// The longest of these.
    pub grace_max: Duration,
    /// No more than one in a hundred was longer; known to 25 %, never below the true one.
    pub grace_p99: Duration,
    /// No more than one in a thousand was longer; likewise.
    pub grace_p999: Duration,
}

/// One limbo's figures.
pub(super) struct LimboGauge {
    class: &'static str,
    caps: LimboCaps,
    items: AtomicU64,
    bytes: AtomicU64,
    items_max: AtomicU64,
    bytes_max: AtomicU64,
    freed: AtomicU64,
    refused: AtomicU64,
    chased: AtomicU64,
    /// When the last object was freed: selects the limbo with the domain's `grace_last`.
    freed_at: AtomicU64,
    grace_last: AtomicU64,
    grace_max: AtomicU64,
    graces: [AtomicU64; BUCKETS],
}

/// Adds to a word that only this thread writes.
fn add(word: &AtomicU64, more: u64) -> u64 {
    let sum = word.load(Relaxed).wrapping_add(more);
    word.store(sum, Relaxed);
    sum
}

fn raise(word: &AtomicU64, to: u64) {
    if to > word.load(Relaxed) {
        word.store(to, Relaxed);
    }
}

/// The bucket of a duration: exact below four nanoseconds, then four to a power of two.
const fn bucket_of(nanos: u64) -> usize {
    if nanos < 1 << SUB_BITS {
        return nanos as usize;
    }
    let shift = 63 - nanos.leading_zeros() - SUB_BITS;
    (((shift + 1) << SUB_BITS) as u64 + (nanos >> shift) - (1 << SUB_BITS)) as usize
}

/// The longest duration of a bucket.
const fn edge_of(bucket: usize) -> u64 {
    let (row, sub) = ((bucket >> SUB_BITS) as u32, bucket as u64 & ((1 << SUB_BITS) - 1));
    if row == 0 {
        return sub;
    }
    let shift = row - 1;
    (((1 << SUB_BITS) + sub) << shift) + ((1 << shift) - 1)
}

impl LimboGauge {
    pub(super) fn new(class: &'static str, caps: LimboCaps) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            class,
            caps,
            items: zero(),
            bytes: zero(),
            items_max: zero(),
            bytes_max: zero(),
            freed: zero(),
            refused: zero(),
            chased: zero(),
            freed_at: zero(),
            grace_last: zero(),
            grace_max: zero(),
            graces: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    pub(super) const fn class(&self) -> &'static str {
        self.class
    }

    pub(super) fn items(&self) -> usize {
        self.items.load(Relaxed) as usize
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) as usize
    }

    /// One more object waits.
    pub(super) fn retired(&self, bytes: usize) {
        raise(&self.items_max, add(&self.items, 1));
        raise(&self.bytes_max, add(&self.bytes, bytes as u64));
    }

    /// One was freed.
    pub(super) fn freed(&self, bytes: usize, grace: Duration, now: Instant) {
        let nanos = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        add(&self.items, 1_u64.wrapping_neg());
        add(&self.bytes, (bytes as u64).wrapping_neg());
        add(&self.freed, 1);
        self.grace_last.store(nanos, Relaxed);
        raise(&self.grace_max, nanos);
        if let Some(bucket) = self.graces.get(bucket_of(nanos)) {
            add(bucket, 1);
        }
        // A reader of this time sees the grace period that it belongs to, or a later one.
        self.freed_at.store(now.as_nanos(), Release);
    }

    pub(super) fn refused(&self) {
        add(&self.refused, 1);
    }

    pub(super) fn chased(&self) {
        add(&self.chased, 1);
    }

    /// Nothing waits any more, and it was not counted.
    pub(super) fn emptied(&self) {
        self.items.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    pub(super) fn stats(&self) -> LimboStats {
        let mut sum = GaugeSum::default();
        sum.add(self);
        sum.stats()
    }
}

/// The figures of several limbos, being added up.
pub(super) struct GaugeSum {
    stats: LimboStats,
    freed_at: u64,
    graces: [u64; BUCKETS],
}

impl Default for GaugeSum {
    fn default() -> Self {
        Self { stats: LimboStats::default(), freed_at: 0, graces: [0; BUCKETS] }
    }
}

impl GaugeSum {
    pub(super) fn add(&mut self, gauge: &LimboGauge) {
        let stats = &mut self.stats;
        let freed_at = gauge.freed_at.load(Acquire);
        if freed_at >= self.freed_at {
            self.freed_at = freed_at;
            stats.grace_last = Duration::from_nanos(gauge.grace_last.load(Relaxed));
        }
        let of = |word: &AtomicU64| word.load(Relaxed) as usize;
        stats.items += of(&gauge.items);
        stats.bytes += of(&gauge.bytes);
        stats.items_max += of(&gauge.items_max);
        stats.bytes_max += of(&gauge.bytes_max);
        stats.caps.items = stats.caps.items.saturating_add(gauge.caps.items);
        stats.caps.bytes = stats.caps.bytes.saturating_add(gauge.caps.bytes);
        stats.freed += gauge.freed.load(Relaxed);
        stats.refused += gauge.refused.load(Relaxed);
        stats.chased += gauge.chased.load(Relaxed);
        let grace_max = Duration::from_nanos(gauge.grace_max.load(Relaxed));
        stats.grace_max = stats.grace_max.max(grace_max);
        for (sum, bucket) in self.graces.iter_mut().zip(&gauge.graces) {
            *sum += bucket.load(Relaxed);
        }
    }

    pub(super) fn stats(&self) -> LimboStats {
        LimboStats {
            grace_p99: self.all_but_one_in(100),
            grace_p999: self.all_but_one_in(1000),
            ..self.stats
        }
    }

    /// The least bucket's edge that all but one in `parts` keep, and never beyond the longest.
    fn all_but_one_in(&self, parts: u64) -> Duration {
        let all: u64 = self.graces.iter().sum();
        let mut beyond = all;
        for (bucket, count) in self.graces.iter().enumerate() {
            beyond -= count;
            if all > 0 && beyond <= all / parts {
                return Duration::from_nanos(edge_of(bucket)).min(self.stats.grace_max);
            }
        }
        Duration::ZERO
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CAPS: LimboCaps = LimboCaps { items: 9, bytes: 90 };

    #[test]
    fn every_duration_has_a_bucket_with_an_edge_a_quarter_above_it_at_most() {
        let mut tried: Vec<u64> = (0..10_000).collect();
        tried.extend((0..64).flat_map(|bit| [1 << bit, (1_u64 << bit) - 1, 3_u64 << bit]));
        tried.extend([u64::MAX, u64::MAX - 1]);
        for nanos in tried {
            let (bucket, edge) = (bucket_of(nanos), edge_of(bucket_of(nanos)));
            assert!(bucket < BUCKETS, "{nanos}");
            assert!(edge >= nanos && edge - nanos <= nanos / 4, "{nanos}: up to {edge}");
            assert_eq!(bucket_of(edge), bucket, "{nanos}");
        }
    }

    #[test]
    fn percentiles_of_a_thousand_grace_periods_are_those_of_the_sorted_list() {
        let gauge = LimboGauge::new("test", CAPS);
        for nanos in 1..=1000 {
            gauge.retired(0);
            gauge.freed(0, Duration::from_nanos(nanos * 100), Instant::from_nanos(nanos));
        }
        let stats = gauge.stats();
        let within = |found: Duration, true_one: u128| {
            let found = found.as_nanos();
            assert!(found >= true_one && found * 4 <= true_one * 5, "{found} for {true_one}");
        };
        within(stats.grace_p99, 99_000);
        within(stats.grace_p999, 99_900);
        assert_eq!((stats.grace_last, stats.grace_max), (stats.grace_max, stats.grace_p999));
        assert_eq!((stats.freed, stats.items, stats.items_max), (1000, 0, 1));
    }

    #[test]
    fn one_slow_grace_period_in_ten_thousand_shows_in_the_longest_alone() {
        let gauge = LimboGauge::new("test", CAPS);
        for n in 0..10_000 {
            let grace = if n == 17 { 1_000_000 } else { 1000 };
            gauge.freed(0, Duration::from_nanos(grace), Instant::from_nanos(n));
        }
        let stats = gauge.stats();
        assert!(stats.grace_p999 < Duration::from_nanos(1280), "{stats:?}");
        assert_eq!(stats.grace_max, Duration::from_millis(1));
    }

    #[test]
    fn several_limbos_add_up_and_the_last_grace_period_is_the_latest_ones() {
        let (one, other) = (LimboGauge::new("one", CAPS), LimboGauge::new("other", CAPS));
        one.retired(3);
        one.retired(4);
        other.retired(5);
        one.freed(3, Duration::from_nanos(40), Instant::from_nanos(50));
        other.freed(5, Duration::from_nanos(7), Instant::from_nanos(60));
        one.refused();
        let mut sum = GaugeSum::default();
        sum.add(&other);
        sum.add(&one);
        let stats = sum.stats();
        assert_eq!((stats.items, stats.bytes, stats.freed, stats.refused), (1, 4, 2, 1));
        assert_eq!((stats.items_max, stats.bytes_max), (3, 12));
        assert_eq!(stats.caps, LimboCaps { items: 18, bytes: 180 });
        assert_eq!(stats.grace_last, Duration::from_nanos(7));
        assert_eq!(stats.grace_max, Duration::from_nanos(40));
    }
}
