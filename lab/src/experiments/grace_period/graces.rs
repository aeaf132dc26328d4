//! What a run has seen of grace periods: each one, and what happened in each 4 ms.
//!
//! Filled by `simulated.rs` and `threads.rs`, read by `tables.rs`. The buckets are the source's own
//! way to look: Sarma counted softirqs and the longest grace period in about every 4 ms.

/// The source's bucket.
pub const BUCKET_NANOS: u64 = 4_000_000;

/// One bucket of about 4 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bucket {
    /// Rounds that ended in it, of all workers.
    pub rounds: u64,
    /// The longest grace period that ended in it, in nanoseconds; what still waits at its end
    /// counts with its age.
    pub grace_max: u64,
    /// Objects that waited at its end.
    pub waiting: u64,
}

/// Everything of one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Graces {
    /// Each grace period, in nanoseconds, in any order.
    pub each: Vec<u64>,
    /// Those of real threads in which the machine had taken a core away from neither.
    pub undisturbed: Vec<u64>,
    /// The buckets, in order of time.
    pub buckets: Vec<Bucket>,
    /// Objects that were unlinked.
    pub retired: u64,
    /// The most objects that waited at once.
    pub items_max: u64,
    /// The most bytes that waited at once.
    pub bytes_max: u64,
    /// Changes that were refused.
    pub refused: u64,
    /// Objects that a reader looked at after they had been freed.
    pub wrong_reads: u64,
}

impl Graces {
    /// The bucket of a time, made where it is missing.
    pub(super) fn bucket(&mut self, now: u64) -> Option<&mut Bucket> {
        let number = (now / BUCKET_NANOS) as usize;
        if self.buckets.len() <= number {
            self.buckets.resize(number + 1, Bucket::default());
        }
        self.buckets.get_mut(number)
    }

    /// One object was freed.
    pub(super) fn freed(&mut self, grace: u64, now: u64) {
        self.each.push(grace);
        if let Some(bucket) = self.bucket(now) {
            bucket.grace_max = bucket.grace_max.max(grace);
        }
    }

    /// Grace periods for the picture and the percentiles, in order of length.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.each.sort_unstable();
        self.undisturbed.sort_unstable();
        self
    }

    /// What this share of the grace periods, in thousandths, does not exceed. Sorted before.
    #[must_use]
    pub fn per_mille(&self, share: usize) -> u64 {
        per_mille(&self.each, share)
    }

    /// The same of the undisturbed ones.
    #[must_use]
    pub fn undisturbed_per_mille(&self, share: usize) -> u64 {
        per_mille(&self.undisturbed, share)
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.each.last().copied().unwrap_or_default()
    }
}

fn per_mille(sorted: &[u64], share: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    let at = (sorted.len() * share).div_ceil(1000).saturating_sub(1).min(last);
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut graces = Graces::default();
        (1..=1000).rev().for_each(|n| graces.freed(n, n * 10_000));
        let graces = graces.sorted();
        let found = [500, 990, 999, 1000].map(|share| graces.per_mille(share));
        assert_eq!((found, graces.max()), ([500, 990, 999, 1000], 1000));
        assert_eq!(graces.buckets.len(), 3);
        assert_eq!(graces.buckets[0].grace_max, 399);
        assert_eq!(Graces::default().sorted().per_mille(990), 0);
    }
}
