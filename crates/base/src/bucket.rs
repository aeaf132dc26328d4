//! `TokenBucket`: credit that refills with time, kept as one moment.
//!
//! Called by `ip` (ICMP answers that leave, advertisements that are read) and by `fib` (accepted
//! path MTUs and redirects). This is a token bucket in virtual-scheduling form (GCRA, ITU-T I.371):
//! the time at which the bucket is full again encodes the remaining tokens, so there is no refill
//! and no timer. Invariant: a burst never exceeds the configured depth, however long the idle time.
//! Not here: which peer a bucket belongs to, and what happens to a packet that finds it empty.

use crate::Instant;

/// What one thing costs on average and how much credit there is at most, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Price {
    mean: u64,
    most: u64,
}

impl Price {
    /// For so many a second, and so many at once; zero of either are none ever.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        if per_second == 0 || burst == 0 {
            return Self { mean: 1, most: 0 };
        }
        // At most a second each, and a nanosecond at least: a division that cannot be by zero.
        let mean = match 1_000_000_000 / per_second as u64 {
            0 => 1,
            mean => mean,
        };
        Self { mean, most: mean * burst as u64 }
    }
}

/// Credit, as the moment at which it will be complete. Full at first.
#[derive(Clone, Copy, Default, Debug)]
pub struct TokenBucket {
    full_at: u64,
}

impl TokenBucket {
    /// Whether one average price is covered.
    #[must_use]
    pub fn has(self, price: Price, now: Instant) -> bool {
        self.full_at.saturating_sub(now.as_nanos()).saturating_add(price.mean) <= price.most
    }

    /// Takes one average price where it is covered.
    pub fn take(&mut self, price: Price, now: Instant) -> bool {
        let covered = self.has(price, now);
        if covered {
            self.spend(price.mean, now);
        }
        covered
    }

    /// Spends none, one or two average prices, as chance has it.
    pub fn spend_by_chance(&mut self, price: Price, now: Instant, dice: u32) {
        self.spend(price.mean.saturating_mul((u64::from(dice) * 3) >> 32), now);
    }

    fn spend(&mut self, cost: u64, now: Instant) {
        self.full_at = self.full_at.max(now.as_nanos()).saturating_add(cost);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const NOW: Instant = Instant::from_nanos(5_000_000_000);

    /// How many are covered at a moment.
    fn taken(bucket: &mut TokenBucket, price: Price, now: Instant) -> usize {
        (0..1000).filter(|_| bucket.take(price, now)).count()
    }

    #[test]
    fn a_burst_is_covered_then_the_rate_and_never_more_than_a_burst_after_a_silence() {
        let (price, mut bucket) = (Price::new(2, 4), TokenBucket::default());
        assert_eq!(taken(&mut bucket, price, NOW), 4);
        assert_eq!(taken(&mut bucket, price, NOW + Duration::from_millis(499)), 0);
        assert_eq!(taken(&mut bucket, price, NOW + Duration::from_millis(500)), 1);
        assert_eq!(taken(&mut bucket, price, NOW + Duration::from_secs(86_400)), 4);
    }

    #[test]
    fn what_was_refused_costs_nothing_and_none_a_second_are_none_ever() {
        let (price, mut bucket) = (Price::new(1, 1), TokenBucket::default());
        assert_eq!(taken(&mut bucket, price, NOW), 1);
        assert_eq!(taken(&mut bucket, price, NOW + Duration::from_secs(1)), 1);
        for never in [Price::new(0, 9), Price::new(9, 0)] {
            assert!(!TokenBucket::default().has(never, NOW));
        }
    }
}
