//! One value per core, or per memory node, each on cache lines of its own.
//!
//! A worker keeps what only it writes (counters, caches, the near end of a ring) in its own
//! entry, and others may look at all entries: a sum over cores instead of one word that all
//! cores fight for. McKenney's *Is Parallel Programming Hard* (ch. 5) calls this the
//! statistical counter; the kernels call it per-CPU data.
//!
//! Pools have a region per node, and a UDP socket has a receive queue per node, so that packets
//! are handed over within a node as far as possible. The entries themselves are in one allocation,
//! on the node that its maker ran on: where the place of the memory matters, as for a region of
//! packets, `T` is the owner of memory that was asked for there.
//!
//! The number of places is fixed at construction: nothing is allocated later, and an entry never
//! moves, so a worker may look its entry up once and keep the reference. The kind of place is part
//! of the type, so that a core's number and a node's cannot be mistaken for each other.
//!
//! Nothing here is atomic or unsafe. What two threads may do with an entry is decided by `T`
//! itself (`T: Sync` to look at another place's entry).

use core::fmt;
use core::marker::PhantomData;

use floodwall_base::{CoreId, NumaNode};

use crate::CachePadded;

/// What values are kept for: a core or a memory node.
pub trait LocalIndex: Copy {
    /// The place with this number.
    fn numbered(number: u16) -> Self;
    /// The place's number.
    fn number(self) -> usize;
}

impl LocalIndex for CoreId {
    fn numbered(number: u16) -> Self {
        Self(number)
    }
    fn number(self) -> usize {
        usize::from(self.0)
    }
}

impl LocalIndex for NumaNode {
    /// Nodes beyond 255 do not exist; their number would be cut.
    fn numbered(number: u16) -> Self {
        Self(number as u8)
    }
    fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// One `T` per place, numbered from 0 without gaps: `Per<CoreId, T>`, `Per<NumaNode, T>`.
pub struct Per<P, T> {
    values: Box<[CachePadded<T>]>,
    _place: PhantomData<fn(P)>,
}

impl<P: LocalIndex, T> Per<P, T> {
    /// Makes the values for `count` places, in order of their number.
    ///
    /// Allocates once, `count` times the padded size. Never panics unless `make` does.
    #[must_use]
    pub fn new(count: u16, mut make: impl FnMut(P) -> T) -> Self {
        let values = (0..count).map(|number| CachePadded::new(make(P::numbered(number))));
        Self { values: values.collect(), _place: PhantomData }
    }

    /// The value of `place`, or `None` if there is no such place. Never panics.
    #[must_use]
    pub fn get(&self, place: P) -> Option<&T> {
        self.values.get(place.number()).map(|padded| &**padded)
    }

    /// The value of `place`, to be changed, or `None` if there is none. Never panics.
    #[must_use]
    pub fn get_mut(&mut self, place: P) -> Option<&mut T> {
        self.values.get_mut(place.number()).map(|padded| &mut **padded)
    }

    /// How many places there are. Never panics.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.values.len()
    }

    /// All values in order of place, as for a sum. Touches a line per place. Never panics.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.values.iter().map(|padded| &**padded)
    }

    /// All values in order of place, to be changed. Never panics.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.values.iter_mut().map(|padded| &mut **padded)
    }

    /// Gives the values away, one per place in order: each worker takes its own. Never panics.
    pub fn into_values(self) -> impl ExactSizeIterator<Item = T> {
        self.values.into_iter().map(CachePadded::into_inner)
    }
}

impl<P: LocalIndex, T: fmt::Debug> fmt::Debug for Per<P, T> {
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
        let mut values = Per::new(3, |core: CoreId| u32::from(core.0) * 10);
        assert_eq!(values.get(CoreId(2)), Some(&20));
        assert_eq!(values.get(CoreId(3)), None);
        *values.get_mut(CoreId(0)).expect("core 0") += 1;
        values.iter_mut().for_each(|value| *value += 1);
        assert_eq!(format!("{values:?}"), "[2, 11, 21]");
        assert_eq!(values.count(), 3);
        assert_eq!(values.into_values().collect::<Vec<_>>(), [2, 11, 21]);
    }

    #[test]
    fn values_of_two_cores_never_share_a_line() {
        let values = Per::new(4, |_: NumaNode| 0_u8);
        let addrs: Vec<usize> = values.iter().map(|v| core::ptr::from_ref(v).addr()).collect();
        assert!(addrs.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    }

    #[test]
    fn sum_over_cores_equals_what_the_workers_counted() {
        let counters = Per::new(3, |_: CoreId| AtomicU64::new(0));
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
