//! Which entries have changed, for the owner of a copy of the cache.
//!
//! Called by `table.rs` at each change, and by the copy's keeper (the control shard of a host with
//! several workers), which takes places one by one. Invariants: a place is noted once however often
//! it changes, so that the list is never longer than the table; without a keeper nothing is noted
//! and nothing is allocated.

use std::collections::VecDeque;

use floodwall_base::{Address, IfIndex, Instant, MacAddr};

use super::{NeighborCache, NeighborState};

/// Places in the order of their first change since they were taken.
pub(super) struct Changes {
    noted: Box<[bool]>,
    order: VecDeque<u32>,
}

impl Changes {
    fn new(places: usize) -> Self {
        Self { noted: vec![false; places].into(), order: VecDeque::with_capacity(places) }
    }

    #[inline]
    pub(super) fn note(&mut self, at: u32) {
        if let Some(noted @ false) = self.noted.get_mut(at as usize) {
            *noted = true;
            self.order.push_back(at);
        }
    }

    fn take(&mut self) -> Option<u32> {
        let at = self.order.pop_front()?;
        if let Some(noted) = self.noted.get_mut(at as usize) {
            *noted = false;
        }
        Some(at)
    }
}

/// What a sender needs to know of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usable<A> {
    /// Its address.
    pub addr: A,
    /// On this interface.
    pub iface: IfIndex,
    /// Its link address.
    pub link_addr: MacAddr,
    /// From when on a use of the entry must be reported to the cache, to start a reachability
    /// probe; [`Instant::FAR`] where it need not be.
    pub watch_from: Instant,
}

impl<A: Address> NeighborCache<A> {
    /// Notes changes from now on; everything counts as changed. Allocates nine bytes an entry.
    pub fn note_changes(&mut self) {
        let mut changes = Changes::new(self.table.capacity() as usize);
        self.table.occupied().for_each(|at| changes.note(at));
        self.table.changes = Some(changes);
    }

    /// The index of an entry that may have changed since it was last taken.
    pub fn take_change(&mut self) -> Option<u32> {
        self.table.changes.as_mut()?.take()
    }

    /// Takes a place back that [`NeighborCache::take_change`] gave, to be given again.
    pub fn put_change_back(&mut self, place: u32) {
        if let Some(changes) = &mut self.table.changes {
            changes.note(place);
        }
    }

    /// Whether some place waits to be taken.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.table.changes.as_ref().is_some_and(|changes| !changes.order.is_empty())
    }

    /// How many places there are.
    #[must_use]
    pub const fn places(&self) -> usize {
        self.table.capacity() as usize
    }

    /// The neighbour at a place, where it may be sent to.
    #[must_use]
    pub fn usable_at(&self, place: u32) -> Option<Usable<A>> {
        let entry = self.table.entry(place)?;
        let watch_from = match entry.state? {
            NeighborState::Incomplete | NeighborState::Failed => return None,
            NeighborState::Stale => Instant::ORIGIN,
            NeighborState::Reachable => entry.watch_from,
            _ => Instant::FAR,
        };
        let (addr, iface, link_addr) = (entry.addr, entry.iface, entry.link_addr);
        Some(Usable { addr, iface, link_addr, watch_from })
    }
}
