//! The neighbours that the control shard has published, as followers read them: without a write.
//!
//! A set-associative table: a keyed hash selects the set, of at most [`SET_WAYS`] neighbours, which
//! lies in one piece behind one pointer. The control shard replaces whole sets ([`NeighborWriter`])
//! and keeps the old ones for their grace period; their memory is reused, so that nothing is
//! allocated after the start. Invariants: a set was accurate when the writer last had no deferred
//! update, and while it has one a status flag disables look-ups of followers (`WITHHELD`); a
//! neighbour is in one set at most.
//!
//! # Under flood
//! Reachable from any station that is, or pretends to be, a neighbour, through the cache of
//! `floodwall_ip::neighbor` and its bounds alone. Bound: four places for each neighbour that the
//! cache may hold, and [`limits::NEIGHBOR_SETS_WAITING`] sets that wait, all taken at the start.
//! Where a set is full the neighbour is not published: packets to it go by the control shard. Worst
//! work per look-up: one keyed hash, [`SET_WAYS`] comparisons.

use core::mem;

use floodwall_base::{Address, HashKey, IfIndex, Instant, MacAddr, limits};
use floodwall_ip::{NeighborCache, Usable};
use floodwall_sync::qsbr::{Domain, DomainView, Limbo, LimboCaps};
use floodwall_sync::{RcuCell, Retired};

/// Neighbours of one set.
pub(super) const SET_WAYS: usize = 8;
/// Places for each neighbour that the cache may hold: sets overflow once in thousands then.
const PLACES_EACH: usize = 4;
/// Passes over what waits, at most, in one round.
const RECLAIM_PASSES: usize = 16;

/// One published neighbour. Each publication has a stamp of its own; 0 marks a free way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PublishedNeighbor<A> {
    stamp: u32,
    usable: Usable<A>,
}

/// One set of the table: at most [`SET_WAYS`] neighbours, replaced as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeighborSet<A>([PublishedNeighbor<A>; SET_WAYS]);

impl<A: Address> NeighborSet<A> {
    const fn empty() -> Self {
        let usable = Usable {
            addr: A::UNSPECIFIED,
            iface: IfIndex::LOOPBACK,
            link_addr: MacAddr::ZERO,
            watch_from: Instant::FAR,
        };
        Self([PublishedNeighbor { stamp: 0, usable }; SET_WAYS])
    }

    fn way_of(&self, iface: IfIndex, addr: A) -> Option<usize> {
        let is_it = |e: &PublishedNeighbor<A>| {
            e.stamp != 0 && e.usable.addr == addr && e.usable.iface == iface
        };
        self.0.iter().position(is_it)
    }

    fn free_way(&self) -> Option<usize> {
        self.0.iter().position(|e| e.stamp == 0)
    }
}

/// What a follower finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FoundNeighbor {
    pub(super) link_addr: MacAddr,
    pub(super) watch_from: Instant,
    /// Which way of which set, as one number below [`NeighborSets::ways`].
    pub(super) way: usize,
    pub(super) stamp: u32,
}

/// The table that all read.
pub(crate) struct NeighborSets<A: Address> {
    sets: Box<[RcuCell<NeighborSet<A>>]>,
    key: HashKey,
}

impl<A: Address> NeighborSets<A> {
    /// An empty table for a cache of so many neighbours.
    pub(super) fn new(domain: &Domain, neighbors: usize, key: HashKey) -> Self {
        let sets = (neighbors.saturating_mul(PLACES_EACH) / SET_WAYS).next_power_of_two();
        let cell = |_| RcuCell::new(domain, Box::new(NeighborSet::empty()));
        Self { sets: (0..sets).map(cell).collect(), key }
    }

    /// How many ways all sets have together.
    pub(super) const fn ways(&self) -> usize {
        self.sets.len() * SET_WAYS
    }

    #[inline]
    fn set_of(&self, iface: IfIndex, addr: A) -> usize {
        self.key.addr(addr.to_ip(), u32::from(iface.0)) as usize & (self.sets.len() - 1)
    }

    /// A neighbour, if it is published. Writes nothing.
    #[inline]
    pub(super) fn lookup(
        &self,
        view: DomainView<'_>,
        iface: IfIndex,
        addr: A,
    ) -> Option<FoundNeighbor> {
        let at = self.set_of(iface, addr);
        let set = self.sets.get(at)?.load(view);
        let way = set.way_of(iface, addr)?;
        let PublishedNeighbor { stamp, usable } = set.0.get(way)?;
        let Usable { link_addr, watch_from, .. } = *usable;
        Some(FoundNeighbor { link_addr, watch_from, way: at * SET_WAYS + way, stamp: *stamp })
    }
}

/// The control shard's end: what it has published for each place of its cache.
pub(super) struct NeighborWriter<A: Address> {
    /// By place of the cache.
    placed: Vec<Option<Usable<A>>>,
    /// What the sets hold, to be changed and copied: only the writer may look without a view.
    mirror: Box<[NeighborSet<A>]>,
    limbo: Limbo<Retired<NeighborSet<A>>>,
    spare: Vec<Box<NeighborSet<A>>>,
    stamp: u32,
    /// Neighbours published, and taken back.
    pub(super) published: u64,
    /// Changes put off for want of room.
    pub(super) refused: u64,
}

impl<A: Address> NeighborWriter<A> {
    pub(super) fn new(domain: &Domain, sets: &NeighborSets<A>) -> Self {
        let items = limits::NEIGHBOR_SETS_WAITING;
        let bytes = items * mem::size_of::<NeighborSet<A>>();
        Self {
            placed: Vec::new(),
            mirror: vec![NeighborSet::empty(); sets.sets.len()].into(),
            limbo: domain.limbo(LimboCaps { items, bytes }),
            spare: (0..=items).map(|_| Box::new(NeighborSet::empty())).collect(),
            stamp: 0,
            published: 0,
            refused: 0,
        }
    }

    /// Follows `cache` from now on. Allocates.
    pub(super) fn follow(&mut self, cache: &mut NeighborCache<A>) {
        cache.note_changes();
        self.placed = vec![None; cache.places()];
    }

    /// Publishes what has changed, up to `budget` neighbours. False where something is put off.
    pub(super) fn publish(
        &mut self,
        sets: &NeighborSets<A>,
        cache: &mut NeighborCache<A>,
        budget: usize,
        now: Instant,
    ) -> bool {
        for _ in 0..budget {
            let Some(place) = cache.take_change() else { return true };
            if !self.follow_place(sets, place, cache.usable_at(place), now) {
                self.refused += 1;
                cache.put_change_back(place);
                return false;
            }
        }
        !cache.has_changes()
    }

    /// Frees what no reader can see any more.
    pub(super) fn reclaim(&mut self, now: Instant) {
        let Self { limbo, spare, .. } = self;
        for _ in 0..RECLAIM_PASSES {
            if limbo.reclaim(|| now, |set| spare.push(set.into_box())) == 0 {
                return;
            }
        }
    }

    /// Whether something waits for readers.
    pub(super) fn waits(&self) -> bool {
        self.limbo.oldest(Instant::ORIGIN).is_some()
    }

    /// Brings what is published of one place up to date. False where there is no room to.
    fn follow_place(
        &mut self,
        sets: &NeighborSets<A>,
        place: u32,
        now_is: Option<Usable<A>>,
        now: Instant,
    ) -> bool {
        let was = self.placed.get(place as usize).copied().flatten();
        if let (Some(was), Some(is)) = (was, now_is)
            && same_use(&was, &is, now)
        {
            return true;
        }
        let moved = match (was, now_is) {
            (Some(was), Some(is)) => (was.addr, was.iface) != (is.addr, is.iface),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if let Some(was) = was.filter(|_| moved) {
            if !self.write(sets, was.iface, was.addr, None, now) {
                return false;
            }
            self.note(place, None);
        }
        let Some(is) = now_is else { return true };
        if !self.write(sets, is.iface, is.addr, Some(is), now) {
            return false;
        }
        self.note(place, Some(is));
        true
    }

    fn note(&mut self, place: u32, usable: Option<Usable<A>>) {
        if let Some(placed) = self.placed.get_mut(place as usize) {
            *placed = usable;
        }
    }

    /// Replaces a set by one in which a neighbour is another, new, or gone.
    fn write(
        &mut self,
        sets: &NeighborSets<A>,
        iface: IfIndex,
        addr: A,
        usable: Option<Usable<A>>,
        now: Instant,
    ) -> bool {
        let at = sets.set_of(iface, addr);
        let (Some(cell), Some(mirror)) = (sets.sets.get(at), self.mirror.get_mut(at)) else {
            return true;
        };
        let known = mirror.way_of(iface, addr);
        // Where the set is full, packets to the newcomer go by the control shard.
        let Some(way) = known.or_else(|| mirror.free_way().filter(|_| usable.is_some())) else {
            return true;
        };
        let mut changed = *mirror;
        let stamp = self.stamp.wrapping_add(1).max(1);
        if let Some(entry) = changed.0.get_mut(way) {
            match usable {
                Some(usable) => *entry = PublishedNeighbor { stamp, usable },
                None => entry.stamp = 0,
            }
        }
        let Some(mut set) = self.spare.pop() else { return false };
        *set = changed;
        match cell.replace(set, mem::size_of::<NeighborSet<A>>(), &mut self.limbo, now) {
            Ok(()) => {
                self.stamp = stamp;
                *mirror = changed;
                self.published += 1;
                true
            }
            Err((set, _)) => {
                self.spare.push(set);
                false
            }
        }
    }
}

/// Whether followers would use both in the same way from now on.
fn same_use<A: Address>(was: &Usable<A>, is: &Usable<A>, now: Instant) -> bool {
    let watched = was.watch_from <= now && is.watch_from <= now;
    let same_watch = was.watch_from == is.watch_from || watched;
    (was.addr, was.iface, was.link_addr) == (is.addr, is.iface, is.link_addr) && same_watch
}
