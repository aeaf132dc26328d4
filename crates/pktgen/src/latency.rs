//! A histogram of latencies in fixed buckets that widen with the value.
//!
//! Filled by `honest.rs`, read by the evaluation. Each power of two is cut into 32 buckets, so a
//! quantile is at most 3.2 % above the truth; minimum, maximum and sum are exact. Invariant: no
//! memory but the array, for any values. Reading: Tene's HdrHistogram.

use core::time::Duration;

/// Buckets of one power of two.
const BUCKET_PARTS: u64 = 32;
const PART_BITS: u32 = BUCKET_PARTS.trailing_zeros();
/// Enough for all of `u64`.
const BUCKETS: usize = ((64 - PART_BITS + 1) as u64 * BUCKET_PARTS) as usize;

/// A log-linear latency histogram. About 15 KiB.
#[derive(Clone, PartialEq, Eq)]
pub struct Latency {
    buckets: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

/// The bucket of `nanos`: exact below 32, then 32 a power of two.
const fn bucket(nanos: u64) -> usize {
    if nanos < BUCKET_PARTS {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - PART_BITS;
    (BUCKET_PARTS * (shift as u64 + 1) + ((nanos >> shift) - BUCKET_PARTS)) as usize
}

/// The largest value of a bucket.
const fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < BUCKET_PARTS {
        return bucket;
    }
    let shift = (bucket / BUCKET_PARTS - 1) as u32;
    let first = (BUCKET_PARTS + bucket % BUCKET_PARTS) << shift;
    first + ((1 << shift) - 1)
}

impl Latency {
    /// Records one latency. Constant time.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.buckets.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.count += 1;
        self.sum += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// How many were recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The minimum; `None` where nothing was recorded.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.min))
    }

    /// The maximum; `None` where nothing was recorded.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.max))
    }

    /// The mean; `None` where nothing was recorded.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The value that a share `q` (0.0 to 1.0) of all latencies does not exceed, at most 3.2 % too
    /// high; `None` where nothing was recorded.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(Duration::from_nanos(bucket_end(at).min(self.max)));
            }
        }
        self.max()
    }

    /// How many latencies are above `limit`, to the resolution of a bucket: those of the limit's
    /// own bucket count as not above.
    #[must_use]
    pub fn above(&self, limit: Duration) -> u64 {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.buckets.iter().skip(bucket(nanos) + 1).sum()
    }

    /// Adds what another has recorded.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Clears everything, so that a new phase is measured by itself.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }
}

impl core::fmt::Debug for Latency {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (p50, p99) = (self.quantile(0.5), self.quantile(0.99));
        write!(
            f,
            "Latency({} recorded, p50 {p50:?}, p99 {p99:?}, max {:?})",
            self.count,
            self.max()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_are_narrow() {
        let mut random = floodwall_base::PublicRandom::new(1);
        for _ in 0..10_000 {
            let value = random.next_u64() >> random.below(64);
            let at = bucket(value);
            assert!(at < BUCKETS && bucket_end(at) >= value);
            assert!(at == 0 || bucket_end(at - 1) < value);
            assert!(bucket_end(at) - value <= value / 31, "{value}");
        }
        assert_eq!(bucket_end(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), None);
        (1..=1000).for_each(|n| latency.record(Duration::from_micros(n)));
        let p99 = latency.quantile(0.99).unwrap();
        assert!(p99 >= Duration::from_micros(990) && p99 < Duration::from_micros(1022), "{p99:?}");
        assert_eq!(latency.quantile(1.0), Some(Duration::from_millis(1)));
        assert_eq!(latency.mean(), Some(Duration::from_nanos(500_500)));
        assert_eq!(
            (latency.above(Duration::ZERO), latency.above(Duration::from_secs(1))),
            (1000, 0)
        );
        let mut twice = latency.clone();
        twice.merge(&latency);
        assert_eq!((twice.count(), twice.quantile(0.99)), (2000, Some(p99)));
        twice.clear();
        assert_eq!((twice.count(), twice.min()), (0, None));
    }
}
