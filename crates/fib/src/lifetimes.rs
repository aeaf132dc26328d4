//! `Lifetimes`: the routes that can expire, as readers see them: an array of atomics.
//!
//! Written by [`crate::Fib`], read for every look-up that meets one. An entry is a route's end, its
//! next hop, and what to try when it is over: the next best route of the same prefix, which may be
//! another entry, and behind the last of them the next shorter prefix. So an expired route uncovers
//! what is behind it by the reader's own clock (decision E21), whether or not it is collected.
//! Invariant: an entry is written before something leads to it, and given to another route only
//! after a grace period; what a reader meets half-way is a route that is or was there.

use floodwall_base::Instant;
use floodwall_sync::prefetch;
use floodwall_sync::shim::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

/// Bit of a value: it is the number of an entry, not of a next hop.
pub(crate) use crate::lpm::ENTRY;

/// The lifetimes of all routes that can end, by entry, as readers see them.
pub(crate) struct Lifetimes(Box<[LifetimeEntry]>);

struct LifetimeEntry {
    until: AtomicU64,
    /// Next hop in the low half, what is behind it in the high.
    target: AtomicU64,
}

impl Lifetimes {
    pub(crate) fn new(entries: usize) -> Self {
        let entry = || LifetimeEntry { until: AtomicU64::new(0), target: AtomicU64::new(0) };
        Self((0..entries).map(|_| entry()).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn write(&self, at: u32, until: Instant, hop: u32) {
        if let Some(entry) = self.0.get(at as usize) {
            entry.target.store(u64::from(hop), Release);
            entry.until.store(until.as_nanos(), Release);
        }
    }

    /// Moves a route's end: one store.
    pub(crate) fn prolong(&self, at: u32, until: Instant) {
        if let Some(entry) = self.0.get(at as usize) {
            entry.until.store(until.as_nanos(), Release);
        }
    }

    /// Sets what is behind a route.
    pub(crate) fn set_behind(&self, at: u32, behind: u32) {
        if let Some(entry) = self.0.get(at as usize) {
            let hop = entry.target.load(Acquire) as u32;
            entry.target.store(u64::from(hop) | u64::from(behind) << 32, Release);
        }
    }

    /// The next hop of an entry, valid or expired.
    pub(crate) fn hop(&self, at: u32) -> u32 {
        self.0.get(at as usize).map_or(0, |entry| entry.target.load(Acquire) as u32)
    }

    /// Prefetches an entry that will be read soon.
    #[inline]
    pub(crate) fn ask_for(&self, at: u32) {
        if let Some(entry) = self.0.get(at as usize) {
            prefetch(entry);
        }
    }

    pub(crate) fn until(&self, at: u32) -> Instant {
        Instant::from_nanos(self.0.get(at as usize).map_or(0, |e| e.until.load(Acquire)))
    }

    /// The next hop of an entry that is valid at `now`, if it is, and what is behind it.
    #[inline]
    pub(crate) fn look(&self, at: u32, now: Instant) -> (Option<u32>, u32) {
        let Some(entry) = self.0.get(at as usize) else { return (None, 0) };
        let lives = entry.until.load(Acquire) > now.as_nanos();
        let target = entry.target.load(Acquire);
        (lives.then_some(target as u32), (target >> 32) as u32)
    }
}
