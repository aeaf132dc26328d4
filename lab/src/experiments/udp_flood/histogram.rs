//! Times of one enqueue in the source's buckets, and finer for percentiles.
//!
//! Filled by the model and by real threads; read by `tables.rs`.

/// Upper ends of the source's buckets, in microseconds: \[0\], \[1\], \[2, 4) and so on.
const ENDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, u64::MAX];
/// Their names.
pub(super) const NAMES: [&str; 9] = [
    "[0]",
    "[1]",
    "[2, 4)",
    "[4, 8)",
    "[8, 16)",
    "[16, 32)",
    "[32, 64)",
    "[64, 128)",
    "[128, ...)",
];
/// Fine buckets: eight in every doubling.
const FINE: usize = 8 * 48;

/// A histogram of enqueue times: the source's buckets, and fine ones for percentiles.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    pub(super) source: [u64; 9],
    fine: Box<[u64; FINE]>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { source: [0; 9], fine: Box::new([0; FINE]), count: 0 }
    }
}

impl Histogram {
    /// Notes one time.
    pub(super) fn note(&mut self, nanos: u64) {
        let bucket = ENDS.iter().position(|end| nanos / 1000 < *end).unwrap_or(8);
        self.source[bucket] += 1;
        let nanos = nanos.max(8);
        let doubling = nanos.ilog2() as usize;
        let eighth = (nanos >> (doubling - 3)) as usize & 7;
        self.fine[(doubling * 8 + eighth).min(FINE - 1)] += 1;
        self.count += 1;
    }

    /// All that another one has.
    pub(super) fn merge(&mut self, other: &Self) {
        self.source.iter_mut().zip(&other.source).for_each(|(mine, more)| *mine += more);
        self.fine.iter_mut().zip(other.fine.iter()).for_each(|(mine, more)| *mine += more);
        self.count += other.count;
    }

    /// How many.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds that `share` of all did not exceed, to an eighth.
    pub(super) fn percentile(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.fine.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let (doubling, eighth) = (at / 8, at % 8);
                return (8 + eighth + 1) as f64 / 8.0 * 2_f64.powi(doubling as i32);
            }
        }
        0.0
    }

    /// The share, in hundredths, of those that took less than 2 us.
    pub(super) fn below_2us(&self) -> f64 {
        let [zero, one, ..] = self.source;
        100.0 * (zero + one) as f64 / self.count.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_sources_buckets_and_percentiles_are_close() {
        let mut all = Histogram::default();
        for nanos in [0, 999, 1000, 1999, 2000, 3999, 4000, 200_000] {
            all.note(nanos);
        }
        assert_eq!(all.source, [2, 2, 2, 1, 0, 0, 0, 0, 1]);
        assert_eq!(all.below_2us(), 50.0);
        let mut one = Histogram::default();
        (1..=1000).for_each(|nanos| one.note(nanos * 100));
        let median = one.percentile(0.5);
        assert!((50_000.0..58_000.0).contains(&median), "{median}");
    }
}
