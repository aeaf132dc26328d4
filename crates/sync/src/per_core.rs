//! One value per core, each on cache lines of its own.
//!
//! A worker keeps what only it writes (counters, caches, the near end of a ring) in its own
//! entry, and others may look at all entries: a sum over cores instead of one word that all
//! cores fight for. McKenney's *Is Parallel Programming Hard* (ch. 5) calls this the
//! statistical counter; the kernels call it per-CPU data.
//!
//! The number of cores is fixed at construction: nothing is allocated later, and an entry never
//! moves, so a worker may look its entry up once and keep the reference.
//!
//! Nothing here is atomic or unsafe. What two threads may do with an entry is decided by `T`
//! itself (`T: Sync` to look at another core's entry).

use core::fmt;

use floodwall_base::CoreId;

use crate::CachePadded;

/// One `T` per core, numbered from 0 without gaps.
pub struct PerCore<T> {
    values: Box<[CachePadded<T>]>,
}

impl<T> PerCore<T> {
    /// Makes the values for `cores` cores, in order of their number.
    ///
    /// Allocates once, `cores` times the padded size. Never panics unless `make` does.
    #[must_use]
    pub fn new(cores: u16, mut make: impl FnMut(CoreId) -> T) -> Self {
        Self { values: (0..cores).map(|core| CachePadded::new(make(CoreId(core)))).collect() }
    }

    /// The value of `core`, or `None` if there is no such core. Never panics.
    #[must_use]
    pub fn get(&self, core: CoreId) -> Option<&T> {
        self.values.get(usize::from(core.0)).map(|padded| &**padded)
    }

    /// The value of `core`, to be changed, or `None` if there is no such core. Never panics.
    #[must_use]
    pub fn get_mut(&mut self, core: CoreId) -> Option<&mut T> {
        self.values.get_mut(usize::from(core.0)).map(|padded| &mut **padded)
    }

    /// How many cores there are. Never panics.
    #[must_use]
    pub const fn cores(&self) -> usize {
        self.values.len()
    }

    /// All values in order of core, as for a sum. Touches a line per core. Never panics.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.values.iter().map(|padded| &**padded)
    }

    /// All values in order of core, to be changed. Never panics.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.values.iter_mut().map(|padded| &mut **padded)
    }

    /// Gives the values away, one per core in order: each worker takes its own. Never panics.
    pub fn into_values(self) -> impl ExactSizeIterator<Item = T> {
        self.values.into_iter().map(CachePadded::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn every_core_has_its_own_value_and_there_is_none_beyond() {
        let mut values = PerCore::new(3, |core| u32::from(core.0) * 10);
        assert_eq!(values.get(CoreId(2)), Some(&20));
        assert_eq!(values.get(CoreId(3)), None);
        *values.get_mut(CoreId(0)).expect("core 0") += 1;
        values.iter_mut().for_each(|value| *value += 1);
        assert_eq!(format!("{values:?}"), "[2, 11, 21]");
        assert_eq!(values.cores(), 3);
        assert_eq!(values.into_values().collect::<Vec<_>>(), [2, 11, 21]);
    }

    #[test]
    fn values_of_two_cores_never_share_a_line() {
        let values = PerCore::new(4, |_| 0_u8);
        let addrs: Vec<usize> = values.iter().map(|v| core::ptr::from_ref(v).addr()).collect();
        assert!(addrs.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    }

    #[test]
    fn sum_over_cores_equals_what_the_workers_counted() {
        let counters = PerCore::new(3, |_| AtomicU64::new(0));
        std::thread::scope(|scope| {
            let count =
                |counter: &AtomicU64| (0..1_000).for_each(|_| _ = counter.fetch_add(1, Relaxed));
            let workers = counters.iter().map(|counter| scope.spawn(move || count(counter)));
            let workers: Vec<_> = workers.collect();
            workers.into_iter().for_each(|thread| thread.join().expect("worker"));
        });
        assert_eq!(counters.iter().map(|counter| counter.load(Relaxed)).sum::<u64>(), 3_000);
    }
}
