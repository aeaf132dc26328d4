//! The neighbour cache's memory: entries, eviction order (LRU), and timers.
//!
//! Called by `neighbor.rs` alone, which decides what an entry becomes. Invariants: an entry is in
//! the list of its state and history, or in the list of free ones; an interface's counts are those
//! of its entries; what is in no list of a share is never evicted; what is evicted holds no packet:
//! those of an unresolved neighbour are taken first. Evicting and making an entry cost constant
//! time.

use floodwall_base::limits::{REQUESTER_PREFIX_V4, REQUESTER_PREFIX_V6};
use floodwall_base::{
    Address, Family, HashKey, IfIndex, IndexLists, Instant, MacAddr, Prefix, TimerWheel,
};
use floodwall_packet::PacketList;

use super::NeighborConfig;
use super::changes::Changes;
use super::early::next_early;
use super::index::NeighborIndex;
use super::state::{NeighborState, Supplied};

/// One neighbour.
pub(super) struct NeighborEntry<A> {
    pub(super) addr: A,
    pub(super) iface: IfIndex,
    /// `None`: the entry is free.
    pub(super) state: Option<NeighborState>,
    pub(super) link_addr: MacAddr,
    pub(super) is_router: bool,
    /// It has answered us once.
    pub(super) proven: bool,
    /// Solicitations sent since it became incomplete or probed.
    pub(super) solicits: u8,
    /// The cell of the source prefix that made us resolve it.
    requester: u16,
    hash: u32,
    /// Early solicitations since the last one at the RFC's pace.
    pub(super) early: u8,
    /// Packets have gone to it since it was last solicited.
    pub(super) used: bool,
    /// It is a gateway of ours: it is resolved, and solicited early, without packets for it.
    pub(super) kept: bool,
    /// Reachable: how long. Solicited: when the next solicitation is due by the RFC. Failed: how
    /// long it is not solicited again.
    pub(super) until: Instant,
    /// Reachable: from when on a use has it probed.
    pub(super) watch_from: Instant,
    pub(super) pending: PacketList,
}

impl<A: Address> NeighborEntry<A> {
    const fn free() -> Self {
        Self {
            addr: A::UNSPECIFIED,
            iface: IfIndex::LOOPBACK,
            state: None,
            link_addr: MacAddr::ZERO,
            is_router: false,
            proven: false,
            solicits: 0,
            requester: 0,
            hash: 0,
            early: 0,
            used: false,
            kept: false,
            until: Instant::ORIGIN,
            watch_from: Instant::ORIGIN,
            pending: PacketList::new(),
        }
    }

    /// What a message supplies, against what is known.
    pub(super) fn supplied(&self, link_addr: Option<MacAddr>) -> Supplied {
        match link_addr {
            None => Supplied::Nothing,
            Some(new) if new == self.link_addr => Supplied::Same,
            Some(_) => Supplied::Different,
        }
    }

    /// Whether solicitations for it are under way.
    pub(super) const fn is_solicited(&self) -> bool {
        use NeighborState::{Incomplete, Probe, Unreachable};
        matches!(self.state, Some(Incomplete | Probe | Unreachable))
    }

    /// It has just been solicited, and is to be again at `until`; returns the time of the first
    /// early solicitation before that, where there is one.
    pub(super) fn solicited_until(&mut self, until: Instant, early: bool, now: Instant) -> Instant {
        (self.until, self.early, self.used) = (until, 0, false);
        if early { next_early(0, now, until) } else { until }
    }

    const fn standing(&self) -> NeighborStanding {
        let share = match self.state {
            Some(NeighborState::Failed) => Some(NeighborShare::Failed),
            Some(NeighborState::Incomplete) => Some(NeighborShare::Incomplete),
            Some(NeighborState::Stale | NeighborState::Delay | NeighborState::Probe)
                if !self.proven =>
            {
                Some(NeighborShare::Unverified)
            }
            Some(NeighborState::Stale | NeighborState::Unreachable) => Some(NeighborShare::Stale),
            _ => None,
        };
        NeighborStanding { state: self.state, share, requester: self.requester }
    }
}

/// Entries that may be evicted, in lists per interface: longest there first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NeighborShare {
    /// Did not answer.
    Failed = 0,
    /// Verified, and unused or unresponsive.
    Stale = 1,
    /// Never answered us.
    Unverified = 2,
    /// Being resolved.
    Incomplete = 3,
}

/// Lists of one interface.
const INTERFACE_LISTS: u32 = 4;
/// Cells of one interface, among which the source prefixes that make us resolve neighbours are
/// spread by a keyed hash.
const REQUESTER_CELLS: usize = 1024;
/// How many neighbours are compared at most to find one over its requester's share.
const COMPARED_MAX: usize = 8;

/// What an entry counts as.
#[derive(Clone, Copy)]
struct NeighborStanding {
    state: Option<NeighborState>,
    share: Option<NeighborShare>,
    requester: u16,
}

/// How many entries of each sort an interface has.
#[derive(Clone, Copy, Default)]
struct NeighborCounts {
    unresolved: usize,
    resolved: usize,
    unknown: usize,
}

impl NeighborCounts {
    const fn add(&mut self, standing: NeighborStanding, n: usize) {
        match standing.state {
            Some(state) if state.is_resolved() => self.resolved = self.resolved.wrapping_add(n),
            Some(_) => self.unresolved = self.unresolved.wrapping_add(n),
            None => {}
        }
        if matches!(standing.share, Some(NeighborShare::Unverified)) {
            self.unknown = self.unknown.wrapping_add(n);
        }
    }
}

/// The entries, their lists and their timers.
pub(super) struct NeighborTable<A> {
    pub(super) config: NeighborConfig,
    entries: Box<[NeighborEntry<A>]>,
    index: NeighborIndex,
    /// [`INTERFACE_LISTS`] lists of each interface, then the list of free entries.
    lists: IndexLists,
    counts: Box<[NeighborCounts]>,
    /// Unresolved neighbours of each requester: [`REQUESTER_CELLS`] of each interface.
    requested: Box<[u16]>,
    pub(super) wheel: TimerWheel,
    key: HashKey,
    /// Of the owner of a copy.
    pub(super) changes: Option<Changes>,
}

impl<A: Address> NeighborTable<A> {
    pub(super) fn new(config: NeighborConfig, key: HashKey, now: Instant) -> Self {
        let config = config.balanced();
        let capacity = config.interfaces.saturating_mul(config.entries);
        let free = config.interfaces as u32 * INTERFACE_LISTS;
        let mut lists = IndexLists::new(capacity, free as usize + 1);
        (0..lists.items()).for_each(|at| lists.push_back(free, at));
        Self {
            config,
            entries: (0..capacity).map(|_| NeighborEntry::free()).collect(),
            index: NeighborIndex::new(capacity),
            lists,
            counts: vec![NeighborCounts::default(); config.interfaces].into(),
            requested: vec![0; config.interfaces * REQUESTER_CELLS].into(),
            wheel: TimerWheel::new(capacity, now),
            key,
            changes: None,
        }
    }

    #[inline]
    pub(super) fn find(&self, iface: IfIndex, addr: A) -> Option<u32> {
        self.index.find(self.hash(iface, addr), |at| {
            self.entry(at).is_some_and(|e| e.addr == addr && e.iface == iface)
        })
    }

    #[inline]
    fn hash(&self, iface: IfIndex, addr: A) -> u32 {
        self.key.addr(addr.to_ip(), u32::from(iface.0)) as u32
    }

    #[inline]
    pub(super) fn entry(&self, at: u32) -> Option<&NeighborEntry<A>> {
        self.entries.get(at as usize)
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, at: u32) -> Option<&mut NeighborEntry<A>> {
        if let Some(changes) = &mut self.changes {
            changes.note(at);
        }
        self.entries.get_mut(at as usize)
    }

    /// Every entry in use, with its place.
    pub(super) fn iter(&self) -> impl Iterator<Item = &NeighborEntry<A>> {
        self.entries.iter().filter(|e| e.state.is_some())
    }

    /// The places in use.
    pub(super) fn occupied(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.capacity()).filter(|at| self.entry(*at).is_some_and(|e| e.state.is_some()))
    }

    /// How many places there are.
    pub(super) const fn capacity(&self) -> u32 {
        self.lists.items()
    }

    /// A place for a neighbour that is not known. It has no state yet: [`NeighborTable::set_state`]
    /// must follow. Room must have been made.
    pub(super) fn create(&mut self, iface: IfIndex, addr: A) -> Option<u32> {
        let hash = self.hash(iface, addr);
        let at = self.lists.first(self.free_list())?;
        if !self.index.insert(hash, at) {
            return None;
        }
        self.lists.unlink(at);
        let entry = self.entry_mut(at)?;
        *entry = NeighborEntry { addr, iface, hash, ..NeighborEntry::free() };
        Some(at)
    }

    /// Removes a neighbour. Its packets must have been taken.
    pub(super) fn discard(&mut self, at: u32) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        debug_assert!(entry.pending.is_empty());
        let (hash, iface, before) = (entry.hash, entry.iface, entry.standing());
        entry.state = None;
        self.count(iface, before, usize::MAX);
        self.index.remove(hash, at);
        self.wheel.cancel(at);
        self.lists.push_back(self.free_list(), at);
    }

    /// Puts a neighbour into a state, with its timer.
    pub(super) fn set_state(
        &mut self,
        at: u32,
        state: NeighborState,
        proven: bool,
        timer: Option<Instant>,
    ) {
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        let before = entry.standing();
        entry.state = Some(state);
        entry.proven = proven;
        let (iface, after) = (entry.iface, entry.standing());
        self.count(iface, before, usize::MAX);
        self.count(iface, after, 1);
        // An unverified neighbour keeps its place in the queue in every state.
        if before.share != after.share {
            match after.share {
                Some(share) => self.lists.push_back(list_of(iface, share), at),
                None => self.lists.unlink(at),
            }
        }
        match timer {
            Some(deadline) => self.wheel.insert(at, deadline),
            None => self.wheel.cancel(at),
        }
    }

    /// Makes room for another unresolved neighbour: the one that failed longest ago may go.
    pub(super) fn room_for_unresolved(&mut self, iface: IfIndex) -> bool {
        let Some(counts) = self.counts.get(usize::from(iface.0)) else {
            return false;
        };
        counts.unresolved < self.config.unresolved || self.evict(iface, NeighborShare::Failed)
    }

    /// The cell of the prefix that this source address is in, on an interface.
    pub(super) fn requester(&self, iface: IfIndex, source: A) -> u16 {
        let len = match A::FAMILY {
            Family::V4 => REQUESTER_PREFIX_V4,
            Family::V6 => REQUESTER_PREFIX_V6,
        };
        let prefix = Prefix::new(source, len).map_or(source, Prefix::addr);
        (self.hash(iface, prefix) as usize % REQUESTER_CELLS) as u16
    }

    /// From now on the neighbour counts as this requester's.
    pub(super) fn set_requester(&mut self, at: u32, requester: u16) {
        let Some(entry) = self.entry_mut(at) else { return };
        let (iface, before) = (entry.iface, entry.standing());
        entry.requester = requester;
        let after = entry.standing();
        self.count(iface, before, usize::MAX);
        self.count(iface, after, 1);
    }

    /// The neighbour to evict for a new one of this requester: it is being resolved for a requester
    /// that has at least two more of them than this one, or one more where the first solicitation
    /// was not answered in time. The [`COMPARED_MAX`] compared at most move to the list's end.
    pub(super) fn over_share(&mut self, iface: IfIndex, requester: u16) -> Option<u32> {
        let own = self.requested_by(iface, requester);
        let list = list_of(iface, NeighborShare::Incomplete);
        for _ in 0..COMPARED_MAX {
            let at = self.lists.first(list)?;
            let entry = self.entry(at)?;
            let others = self.requested_by(iface, entry.requester);
            let silent = entry.solicits > 1;
            if others > own + u16::from(!silent) {
                return Some(at);
            }
            self.lists.push_back(list, at);
        }
        None
    }

    fn requested_by(&self, iface: IfIndex, requester: u16) -> u16 {
        self.requested.get(cell_of(iface, requester)).copied().unwrap_or(0)
    }

    /// Makes room for another resolved neighbour: an unverified one is evicted, else the least
    /// recently used stale one.
    pub(super) fn room_for_resolved(&mut self, iface: IfIndex) -> bool {
        let Some(counts) = self.counts.get(usize::from(iface.0)) else {
            return false;
        };
        counts.resolved < self.config.resolved()
            || self.evict(iface, NeighborShare::Unverified)
            || self.evict(iface, NeighborShare::Stale)
    }

    /// Makes room for another unverified neighbour: at the limit, one of them is evicted.
    pub(super) fn room_for_unverified_packet(&mut self, iface: IfIndex) -> bool {
        let Some(counts) = self.counts.get(usize::from(iface.0)) else {
            return false;
        };
        if counts.unknown >= self.config.unknown && !self.evict(iface, NeighborShare::Unverified) {
            return false;
        }
        self.room_for_resolved(iface)
    }

    fn evict(&mut self, iface: IfIndex, share: NeighborShare) -> bool {
        let first = self.lists.first(list_of(iface, share));
        if let Some(at) = first {
            self.discard(at);
        }
        first.is_some()
    }

    fn count(&mut self, iface: IfIndex, standing: NeighborStanding, n: usize) {
        if let Some(counts) = self.counts.get_mut(usize::from(iface.0)) {
            counts.add(standing, n);
        }
        let is_unresolved = standing.state.is_some_and(|state| !state.is_resolved());
        let requested = self.requested.get_mut(cell_of(iface, standing.requester));
        if let Some(requested) = requested.filter(|_| is_unresolved) {
            *requested = requested.wrapping_add(n as u16);
        }
    }

    const fn free_list(&self) -> u32 {
        self.config.interfaces as u32 * INTERFACE_LISTS
    }
}

#[cfg(test)]
impl<A: Address> NeighborTable<A> {
    /// Asserts the invariants of this module.
    pub(super) fn assert_sound(&self) {
        let config = &self.config;
        let mut used = 0;
        for (iface, counts) in self.counts.iter().enumerate() {
            let iface = IfIndex(iface as u16);
            let mine = || self.iter().filter(|e| e.iface == iface);
            let resolved = mine().filter(|e| e.state.unwrap().is_resolved()).count();
            used += mine().count();
            assert_eq!((counts.resolved, counts.unresolved), (resolved, mine().count() - resolved));
            assert!(resolved <= config.resolved() && counts.unresolved <= config.unresolved);
            let requested = |cell: usize| {
                let of = |e: &&NeighborEntry<A>| usize::from(e.requester) == cell;
                mine().filter(|e| !e.state.unwrap().is_resolved()).filter(of).count()
            };
            let own = usize::from(iface.0) * REQUESTER_CELLS;
            let cells = &self.requested[own..own + REQUESTER_CELLS];
            if counts.unresolved > 0 {
                let sum: usize = cells.iter().map(|n| usize::from(*n)).sum();
                assert_eq!(sum, counts.unresolved);
                mine().for_each(|e| {
                    let cell = usize::from(e.requester);
                    assert_eq!(usize::from(cells[cell]), requested(cell));
                });
            }
            use NeighborShare::{Failed, Incomplete, Stale, Unverified};
            for share in [Failed, Stale, Unverified, Incomplete] {
                let listed: Vec<u32> = self.lists.iter(list_of(iface, share)).collect();
                let standing = mine().filter(|e| e.standing().share == Some(share)).count();
                assert_eq!(listed.len(), standing);
                for at in listed {
                    let entry = self.entry(at).unwrap();
                    assert!(entry.iface == iface && entry.standing().share == Some(share));
                    assert!(share == Incomplete || entry.pending.is_empty());
                }
            }
            let unknown = mine().filter(|e| e.standing().share == Some(NeighborShare::Unverified));
            assert_eq!(counts.unknown, unknown.count());
            assert!(counts.unknown <= config.unknown);
        }
        assert_eq!(self.lists.iter(self.free_list()).count() + used, self.entries.len());
        for (at, entry) in self.entries.iter().enumerate() {
            let untimed =
                matches!(entry.state, None | Some(NeighborState::Permanent | NeighborState::Stale));
            assert_eq!(self.wheel.is_set(at as u32), !untimed);
            if entry.state.is_some() {
                assert_eq!(self.find(entry.iface, entry.addr), Some(at as u32));
            }
        }
    }
}

/// Where an interface's count of a requester is.
const fn cell_of(iface: IfIndex, requester: u16) -> usize {
    iface.0 as usize * REQUESTER_CELLS + requester as usize
}

const fn list_of(iface: IfIndex, share: NeighborShare) -> u32 {
    iface.0 as u32 * INTERFACE_LISTS + share as u32
}
