//! `PlaceLedger`: which source prefix holds how many connection places, and which connection gives
//! its place up when they run out.
//!
//! Used by `table/room.rs`, once for all connections of a shard and once for listeners with limits
//! of their own. Invariants: exactly the connections that may be evicted are in the ledger; each is
//! in one of two lists of its share: without an owner, or in use. The lists are ordered by the time
//! at which the peer was last known to be active, which is noted only when a victim is looked for
//! (second chance, CLOCK): a segment costs nothing here. While not more than half of the places are
//! used, a shard's ledger only notes which wait to be entered, so that a short connection costs no
//! share; beyond that each newcomer has a few entered, and all are before places run out.
//!
//! # Under flood
//! Reachable by any peer that completes handshakes. Bound: one entry per place. Worst work for a
//! newcomer: a look at [`TCP_EVICT_LOOKS`] connections of each list of one share, and
//! [`ENTERED_EACH`] entered. Eviction: of the
//! prefix that holds most, first what no program owns any more, then what is idle for longest. A
//! prefix is not touched for one that holds as much, except for connections idle for
//! [`TCP_EVICT_OWN_IDLE`]. Honest traffic of other prefixes loses nothing.

use core::hint::cold_path;
use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::limits::{TCP_EVICT_LOOKS, TCP_EVICT_OWN_IDLE, TCP_UNOWNED_WEIGHT};
use floodwall_base::{HashKey, IndexLists, Instant};
use floodwall_fair::{ShareId, Shares};

/// How many that wait are entered for each newcomer, once more than half of the places are used:
/// all of them before a sixteenth is left.
pub(crate) const ENTERED_EACH: usize = 4;

/// Whether a connection counts in its share.
#[derive(Clone, Copy)]
enum PlaceStanding {
    /// Not yet: that of this peer.
    Waits(IpAddr),
    Entered(ShareId),
}

/// The ledger's entry of one place.
#[derive(Clone, Copy)]
struct Entry {
    standing: PlaceStanding,
    weight: u8,
    owned: bool,
    /// It must have been idle for so many milliseconds.
    idle_min: u32,
    /// When the peer was last known to be active.
    seen: Instant,
}

/// The newcomer for which room is made: the address of its peer, or none where a program opens a
/// connection itself.
pub(crate) type Newcomer = Option<IpAddr>;

/// The connections that may be evicted, by source prefix.
pub(crate) struct PlaceLedger {
    shares: Shares,
    entries: Vec<Option<Entry>>,
    entries_max: usize,
    /// Two lists for each share: in use, and without an owner; and one of those that wait.
    lists: IndexLists,
    /// Connections wait to be entered.
    is_lazy: bool,
    /// How much a connection without an owner weighs.
    unowned: u8,
}

const fn list_of(share: ShareId, owned: bool) -> u32 {
    share.index() * 2 + if owned { 0 } else { 1 }
}

impl PlaceLedger {
    /// A ledger of the places of a shard. Connections that no program owns weigh more.
    pub(crate) fn of_shard(places: usize, key: HashKey) -> Self {
        Self { is_lazy: true, ..Self::new(places, 1, TCP_UNOWNED_WEIGHT, key) }
    }

    /// A ledger of the places of each listener.
    pub(crate) fn of_listeners(places: usize, listeners: usize, key: HashKey) -> Self {
        Self::new(places, listeners, 1, key)
    }

    fn new(places: usize, groups: usize, unowned: u8, key: HashKey) -> Self {
        Self {
            shares: Shares::new(places, groups, key),
            entries: Vec::with_capacity(places),
            entries_max: places,
            lists: IndexLists::new(places, 2 * places + 1),
            is_lazy: false,
            unowned,
        }
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// Enters a connection of a peer that a program is about to own. It may be evicted once it has
    /// been idle for `idle_min`.
    pub(crate) fn enter(
        &mut self,
        index: u32,
        group: usize,
        (peer, idle_min): (IpAddr, Duration),
        now: Instant,
    ) {
        self.leave(index);
        let at = index as usize;
        if at >= self.entries_max {
            return;
        }
        if self.entries.len() <= at {
            self.entries.resize(at + 1, None);
        }
        if let Some(entry) = self.entries.get_mut(at) {
            let idle_min = u32::try_from(idle_min.as_millis()).unwrap_or(u32::MAX);
            let standing = PlaceStanding::Waits(peer);
            *entry = Some(Entry { standing, weight: 1, owned: true, idle_min, seen: now });
        }
        match self.is_lazy {
            true => self.lists.push_back(self.waiting(), index),
            false => self.count_in(index, group),
        }
    }

    /// The list of those that wait.
    const fn waiting(&self) -> u32 {
        2 * self.entries_max as u32
    }

    /// Enters up to `most` connections that wait, those that have waited for longest first.
    pub(crate) fn enter_waiting(&mut self, most: usize) {
        for _ in 0..most {
            let Some(index) = self.lists.first(self.waiting()) else { return };
            self.lists.unlink(index);
            self.count_in(index, 0);
        }
    }

    /// A connection counts in its share from now on.
    fn count_in(&mut self, index: u32, group: usize) {
        let Some(slot) = self.entries.get_mut(index as usize) else { return };
        let Some(Entry { standing: PlaceStanding::Waits(peer), weight, owned, .. }) = *slot else {
            return;
        };
        let Some(share) = self.shares.join(group, peer) else {
            *slot = None;
            return;
        };
        if let Some(entry) = slot {
            entry.standing = PlaceStanding::Entered(share);
        }
        self.shares.add(share, u64::from(weight));
        self.lists.push_back(list_of(share, owned), index);
    }

    /// A connection has ended, or is being evicted.
    pub(crate) fn leave(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        self.lists.unlink(index);
        if let PlaceStanding::Entered(share) = entry.standing {
            cold_path();
            self.shares.subtract(share, u64::from(entry.weight));
            self.shares.quit(share);
        }
    }

    /// No program owns a connection any more.
    pub(crate) fn disown(&mut self, index: u32) {
        let unowned = self.unowned;
        let Some(Some(entry)) = self.entries.get_mut(index as usize) else { return };
        if !core::mem::replace(&mut entry.owned, false) {
            return;
        }
        let before = core::mem::replace(&mut entry.weight, unowned);
        let PlaceStanding::Entered(share) = entry.standing else { return };
        self.shares.add(share, u64::from(unowned - before));
        self.lists.push_back(list_of(share, false), index);
    }

    /// The number of connections of a group, where unowned ones weigh no more than others.
    pub(crate) fn count(&self, group: usize) -> u64 {
        self.shares.total(group)
    }

    /// What the prefix of an address holds.
    pub(crate) fn held_by(&self, group: usize, peer: IpAddr) -> u64 {
        self.shares.held_by(group, peer)
    }

    /// Whether the prefix of a newcomer has its fair share of so many places already: the places
    /// divided by the prefixes that have some, and one more.
    pub(crate) fn has_its_share(&self, group: usize, peer: IpAddr, places: usize) -> bool {
        let held = self.shares.held_by(group, peer);
        held > 0 && held >= places as u64 / (self.shares.prefixes(group) as u64 + 1)
    }

    /// The connection to evict for a newcomer, if any; `look` returns when the peer of a connection
    /// was heard last.
    pub(crate) fn victim(
        &mut self,
        group: usize,
        newcomer: Newcomer,
        now: Instant,
        mut look: impl FnMut(u32) -> Option<Instant>,
    ) -> Option<u32> {
        let heaviest = self.shares.heaviest(group)?;
        let most = self.shares.prefix_weight(heaviest);
        let ours = newcomer.map_or(0, |peer| self.shares.held_by(group, peer));
        let is_ours = newcomer.is_some_and(|peer| self.shares.is_beside(group, heaviest, peer));
        let (share, idle_min) = match newcomer {
            // The heaviest is exact to an eighth: a newcomer's own prefix may hold more.
            Some(peer) if is_ours || ours >= most => {
                (self.shares.heaviest_beside(group, peer)?, TCP_EVICT_OWN_IDLE)
            }
            _ if most <= ours + 1 => (heaviest, TCP_EVICT_OWN_IDLE),
            _ => (heaviest, Duration::ZERO),
        };
        self.victim_of(share, idle_min, now, &mut look)
    }

    /// The connection to evict for another one of the same prefix.
    pub(crate) fn victim_beside(
        &mut self,
        group: usize,
        peer: IpAddr,
        now: Instant,
        mut look: impl FnMut(u32) -> Option<Instant>,
    ) -> Option<u32> {
        let share = self.shares.heaviest_beside(group, peer)?;
        self.victim_of(share, TCP_EVICT_OWN_IDLE, now, &mut look)
    }

    fn victim_of(
        &mut self,
        share: ShareId,
        idle_min: Duration,
        now: Instant,
        look: &mut impl FnMut(u32) -> Option<Instant>,
    ) -> Option<u32> {
        let mut idlest = |owned| self.idlest(list_of(share, owned), idle_min, now, look);
        idlest(false).or_else(|| idlest(true))
    }

    /// Of a list, the connection that has been idle for longest, at least for `idle_min`:
    /// approximately. Those that were active since they were looked at last go to the list's end.
    fn idlest(
        &mut self,
        list: u32,
        idle_min: Duration,
        now: Instant,
        look: &mut impl FnMut(u32) -> Option<Instant>,
    ) -> Option<u32> {
        let mut best: Option<(Instant, u32)> = None;
        for _ in 0..TCP_EVICT_LOOKS {
            let Some(index) = self.lists.first(list) else { break };
            let (Some(heard), Some(entry)) = (look(index), self.entry(index)) else {
                debug_assert!(false, "the ledger has a connection that is gone");
                self.lists.unlink(index);
                continue;
            };
            let own = Duration::from_millis(u64::from(entry.idle_min));
            let may = now.saturating_since(heard) >= idle_min.max(own);
            let seen = entry.seen;
            if heard <= seen && (may || own <= idle_min) {
                // Those behind it were active later.
                return if may { Some(index) } else { best.map(|(_, index)| index) };
            }
            if may && best.is_none_or(|(least, _)| heard < least) {
                best = Some((heard, index));
            }
            if let Some(Some(entry)) = self.entries.get_mut(index as usize) {
                entry.seen = entry.seen.max(heard);
            }
            self.lists.push_back(list, index);
        }
        best.map(|(_, index)| index)
    }
}

/// The ledger of a shard, and that of its listeners with limits of their own.
pub(crate) struct PlaceLedgers {
    pub(crate) all: PlaceLedger,
    /// Allocated for the first listener with limits.
    pub(crate) listeners: Option<Box<PlaceLedger>>,
    key: HashKey,
}

impl PlaceLedgers {
    pub(crate) fn new(places: usize, key: HashKey) -> Self {
        Self { all: PlaceLedger::of_shard(places, key), listeners: None, key }
    }

    /// There is a listener with limits from now on.
    pub(crate) fn limit_listeners(&mut self, places: usize, listeners: usize) {
        let new = || Box::new(PlaceLedger::of_listeners(places, listeners, self.key));
        self.listeners.get_or_insert_with(new);
    }

    /// A connection has ended, or is being evicted.
    #[inline]
    pub(crate) fn leave(&mut self, index: u32) {
        self.all.leave(index);
        if let Some(listeners) = &mut self.listeners {
            listeners.leave(index);
        }
    }
}

#[cfg(test)]
mod tests;
