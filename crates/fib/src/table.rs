//! `RouteTable`: the prefixes of one table, each with the list of its routes.
//!
//! Called by [`crate::Fib`], the one writer. Of each prefix's list readers see one value: the next
//! hop of the best route, where that one is there for ever; else the lifetime of the best, behind
//! which stand the others and at last what covers the prefix (`lifetimes.rs`). Invariants: after
//! each call the index has exactly the prefixes with a usable route, each with the value of its
//! list; a value with a lifetime is *open* and has its cover: the value of the longest shorter
//! prefix that has one.
//!
//! What a change leaves below its prefix, lines of the trie and open prefixes, is *owed*: it is
//! done by [`RouteTable::go_on`] in steps. Until then each address has the answer before the change
//! or the one behind it, and what the prefix led to must stay good; no other change may begin.
//!
//! # Under flood
//! Reachable by routers of the link through the caps of [`crate::Fib`]. Worst work of a change: the
//! routes of one prefix; of the work below as much as the caller gives.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use floodwall_base::{Instant, Prefix, limits};
use floodwall_sync::qsbr::Domain;

use crate::error::RouteError;
use crate::heads::TableHeads;
use crate::hop_writer::HopWriter;
use crate::index::SmallIndex;
use crate::keyed::Keyed;
use crate::lifetimes::{ENTRY, Lifetimes};
use crate::lpm::{LpmCapacity, LpmFamily};
use crate::records::{NONE, RouteRecords};
use crate::route::TableId;

/// Lengths that a prefix may have.
const LENGTHS: usize = 129;
/// What an open prefix without cover has for the length of its cover.
const UNCOVERED: u8 = u8::MAX;

/// One prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHead {
    /// The best route.
    pub(crate) first: u32,
    pub(crate) len: u32,
    /// What readers see.
    pub(crate) value: u32,
    /// Of an open prefix, its last lifetime and how long its cover is.
    last: u32,
    cover_len: u8,
    dead: bool,
}

/// The writer's other parts, borrowed.
pub(crate) struct TableParts<'a, A: LpmFamily> {
    pub(crate) records: &'a mut RouteRecords<A>,
    pub(crate) lifetimes: &'a Lifetimes,
    pub(crate) hops: &'a HopWriter<A>,
    pub(crate) down: u64,
    pub(crate) now: Instant,
}

/// One routing table on the writer's side: the lists of routes by prefix, and the index.
pub(crate) struct RouteTable<A: LpmFamily> {
    pub(crate) id: TableId,
    pub(crate) index: SmallIndex<A>,
    heads: TableHeads<A>,
    /// Prefixes of each length.
    lengths: Box<[u32; LENGTHS]>,
    open: BTreeSet<Prefix<A>>,
    /// Those below a prefix that still have the cover that they had before it changed.
    uncovering: Option<UncoveredPrefixes<A>>,
    /// Lifetimes of the list that is being looked at.
    entries: Vec<u32>,
}

/// A prefix with a value that has changed, and the next open one that may be below it.
#[derive(Clone, Copy, Debug)]
struct UncoveredPrefixes<A: LpmFamily> {
    prefix: Prefix<A>,
    value: u32,
    next: Prefix<A>,
}

/// What an open prefix that learns its cover costs, in the trie's units.
const UNCOVER_UNITS: usize = 16;

impl<A: LpmFamily> RouteTable<A> {
    pub(crate) fn new(id: TableId, keyed: Keyed) -> Self {
        Self {
            id,
            index: SmallIndex::Listed(Vec::with_capacity(limits::ROUTES_LISTED_MAX)),
            heads: TableHeads::new(keyed),
            lengths: Box::new([0; LENGTHS]),
            open: BTreeSet::new(),
            uncovering: None,
            entries: Vec::new(),
        }
    }

    pub(crate) fn head(&self, prefix: Prefix<A>) -> Option<TableHead> {
        self.heads.get(&prefix).copied()
    }

    /// The routes of a prefix, best first, by number.
    pub(crate) fn routes<'a>(
        &self,
        prefix: Prefix<A>,
        records: &'a RouteRecords<A>,
    ) -> impl Iterator<Item = u32> + use<'a, A> {
        let mut at = self.heads.get(&prefix).map_or(NONE, |head| head.first);
        core::iter::from_fn(move || {
            let (here, record) = (at, records.at(at)?);
            at = record.next;
            Some(here)
        })
    }

    /// Makes room for one prefix more, of `prefixes` at most.
    pub(crate) fn make_room(
        &mut self,
        domain: &Domain,
        prefixes: usize,
        parts: &mut TableParts<'_, A>,
    ) -> Result<bool, RouteError> {
        if !self.index.is_outgrown() {
            return Ok(false);
        }
        self.grow(domain, prefixes, parts)?;
        Ok(true)
    }

    /// Becomes a trie, of any content; returns the list that it was.
    pub(crate) fn grow(
        &mut self,
        domain: &Domain,
        prefixes: usize,
        parts: &mut TableParts<'_, A>,
    ) -> Result<SmallIndex<A>, RouteError> {
        let capacity = LpmCapacity::for_prefixes(prefixes);
        let grown = self.index.grown(domain, capacity, parts.lifetimes, parts.now)?;
        let list = core::mem::replace(&mut self.index, grown);
        self.heads.spread(prefixes);
        // Nothing gets another value: what is open learns its cover.
        self.refresh_all(parts)?;
        Ok(list)
    }

    /// Becomes the list again that it was.
    pub(crate) fn shrink(
        &mut self,
        list: SmallIndex<A>,
        parts: &mut TableParts<'_, A>,
    ) -> Result<(), RouteError> {
        self.index = list;
        self.refresh_all(parts)
    }

    fn refresh_all(&mut self, parts: &mut TableParts<'_, A>) -> Result<(), RouteError> {
        let all: Vec<_> = self.heads.prefixes().collect();
        all.into_iter().try_for_each(|prefix| {
            self.refresh(prefix, parts)?;
            self.go_on(usize::MAX, parts);
            Ok(())
        })
    }

    /// Whether the last change has left something to be done.
    pub(crate) fn owes(&self) -> bool {
        self.uncovering.is_some() || self.index.owes()
    }

    /// Goes on with what the last change left: at most so many units, of about 20 ns each. Returns
    /// how many it took.
    pub(crate) fn go_on(&mut self, units: usize, parts: &TableParts<'_, A>) -> usize {
        let mut took = self.index.go_on(units, parts.now);
        while took < units && self.uncover_one(parts.lifetimes) {
            took += UNCOVER_UNITS;
        }
        took.min(units)
    }

    /// Links and shows the only route of a prefix: one that goes through `hop` for ever. False
    /// where the prefix has others, and nothing is done.
    ///
    /// # Errors
    /// The index has no room: nothing is changed.
    pub(crate) fn link_only(
        &mut self,
        at: u32,
        prefix: Prefix<A>,
        hop: u32,
        parts: &mut TableParts<'_, A>,
    ) -> Result<bool, RouteError> {
        let Entry::Vacant(vacant) = self.heads.entry(prefix) else { return Ok(false) };
        self.index.set(prefix, hop, false, parts.lifetimes, parts.now)?;
        let cover_len = UNCOVERED;
        vacant.insert(TableHead {
            first: at,
            len: 1,
            value: hop,
            last: NONE,
            cover_len,
            dead: false,
        });
        if let Some(n) = self.lengths.get_mut(usize::from(prefix.len())) {
            *n += 1;
        }
        self.uncover(prefix, hop);
        self.go_on(usize::MAX, parts);
        Ok(true)
    }

    /// Links a route behind those of its prefix that are as good.
    pub(crate) fn link(&mut self, at: u32, records: &mut RouteRecords<A>) {
        let Some(record) = records.at(at) else { return };
        let (prefix, rank) = (record.prefix, record.rank());
        let new =
            TableHead { first: NONE, len: 0, value: 0, last: NONE, cover_len: 0, dead: false };
        let head = self.heads.entry(prefix).or_insert(new);
        if head.len == 0
            && let Some(n) = self.lengths.get_mut(usize::from(prefix.len()))
        {
            *n += 1;
        }
        head.len += 1;
        let (mut before, mut next) = (NONE, head.first);
        while let Some(other) = records.at(next).filter(|other| other.rank() <= rank) {
            (before, next) = (next, other.next);
        }
        if let Some(record) = records.at_mut(at) {
            record.next = next;
        }
        match records.at_mut(before) {
            Some(before) => before.next = at,
            None => head.first = at,
        }
    }

    /// Puts a route in the place of another of its prefix.
    pub(crate) fn exchange(&mut self, old: u32, new: u32, records: &mut RouteRecords<A>) {
        let Some((prefix, next)) = records.at(old).map(|record| (record.prefix, record.next))
        else {
            return;
        };
        if let Some(record) = records.at_mut(new) {
            record.next = next;
        }
        self.lead_to(prefix, old, new, records);
    }

    /// Takes a route out of its list; its own link stays, so that [`RouteTable::relink`] can undo
    /// it.
    pub(crate) fn unlink(&mut self, at: u32, records: &mut RouteRecords<A>) {
        let Some(record) = records.at(at) else { return };
        let (prefix, next) = (record.prefix, record.next);
        self.lead_to(prefix, at, next, records);
        if let Some(head) = self.heads.get_mut(&prefix) {
            head.len -= 1;
        }
    }

    /// Undoes [`RouteTable::unlink`].
    pub(crate) fn relink(&mut self, at: u32, records: &mut RouteRecords<A>) {
        let Some(record) = records.at(at) else { return };
        let (prefix, next) = (record.prefix, record.next);
        self.lead_to(prefix, next, at, records);
        if let Some(head) = self.heads.get_mut(&prefix) {
            head.len += 1;
        }
    }

    /// Redirects every reference to `from` in a prefix's list to `to`.
    fn lead_to(&mut self, prefix: Prefix<A>, from: u32, to: u32, records: &mut RouteRecords<A>) {
        let Some(head) = self.heads.get_mut(&prefix) else { return };
        if head.first == from {
            head.first = to;
            return;
        }
        let mut at = head.first;
        while let Some(record) = records.at_mut(at) {
            if record.next == from {
                record.next = to;
                return;
            }
            at = record.next;
        }
    }

    /// Publishes the present list of a prefix, and forgets a prefix without routes. What is owed
    /// from before is completed; what this leaves is owed.
    ///
    /// # Errors
    /// The index has no room: readers see what they saw.
    pub(crate) fn refresh(
        &mut self,
        prefix: Prefix<A>,
        parts: &mut TableParts<'_, A>,
    ) -> Result<(), RouteError> {
        self.go_on(usize::MAX, parts);
        let Some(head) = self.head(prefix) else { return Ok(()) };
        let (tail, dead) = self.gather(head.first, parts);
        let is_open = tail == 0 && !self.entries.is_empty() && self.index.is_large();
        let (cover, cover_len) = if is_open { self.cover(prefix) } else { (tail, UNCOVERED) };
        let mut value = cover;
        for entry in self.entries.iter().rev() {
            parts.lifetimes.set_behind(*entry, value);
            value = ENTRY | entry;
        }
        if (value, dead) != (head.value, head.dead)
            || (!self.index.is_large() && head.first == NONE)
        {
            self.index.set(prefix, value, dead, parts.lifetimes, parts.now)?;
        }
        let last = self.entries.last().copied().unwrap_or(NONE);
        // Only what was not open takes memory: an end that is collected takes none.
        match (head.last != NONE, is_open) {
            (false, true) => _ = self.open.insert(prefix),
            (true, false) => _ = self.open.remove(&prefix),
            _ => {}
        }
        let last = if is_open { last } else { NONE };
        if head.first == NONE {
            self.heads.remove(&prefix);
            if let Some(n) = self.lengths.get_mut(usize::from(prefix.len())) {
                *n -= 1;
            }
        } else if let Some(head) = self.heads.get_mut(&prefix) {
            *head = TableHead { value, last, cover_len, dead, ..*head };
        }
        if value != head.value && self.index.is_large() {
            self.uncover(prefix, value);
        }
        Ok(())
    }

    /// Collects the lifetimes of a list up to the first route that is there for ever, and returns
    /// its next hop; and whether one was passed over because its link is down.
    fn gather(&mut self, first: u32, parts: &TableParts<'_, A>) -> (u32, bool) {
        self.entries.clear();
        let (mut at, mut dead) = (first, false);
        while let Some(record) = parts.records.at(at) {
            at = record.next;
            match record.lifetime {
                _ if !parts.hops.is_usable(record.hop, parts.down) => dead = true,
                NONE => return (record.hop, dead),
                entry => self.entries.push(entry),
            }
        }
        (0, dead)
    }

    /// The value of the next shorter prefix that has one, and its length.
    fn cover(&self, prefix: Prefix<A>) -> (u32, u8) {
        cover_of(&self.heads, &self.lengths, prefix)
    }

    /// Open prefixes below one that has changed are to get their cover anew.
    fn uncover(&mut self, prefix: Prefix<A>, value: u32) {
        let below = |open: &Prefix<A>| *open != prefix && prefix.contains(open.addr());
        if self.open.range(prefix..).take(2).any(below) {
            self.uncovering = Some(UncoveredPrefixes { prefix, value, next: prefix });
        }
    }

    /// The next of them; false where there is none.
    fn uncover_one(&mut self, lifetimes: &Lifetimes) -> bool {
        let Some(UncoveredPrefixes { prefix, value, next }) = self.uncovering else { return false };
        let mut behind = self.open.range(next..);
        let below = behind.next().copied().filter(|open| prefix.contains(open.addr()));
        let Some(open) = below else {
            self.uncovering = None;
            return false;
        };
        self.uncovering =
            behind.next().map(|next| UncoveredPrefixes { prefix, value, next: *next });
        let Some(head) = self.heads.get(&open).copied().filter(|_| open != prefix) else {
            return true;
        };
        let (covers, had) = (prefix.len(), head.cover_len);
        let cover = match value {
            0 if had == covers => cover_of(&self.heads, &self.lengths, open),
            0 => return true,
            value if had == UNCOVERED || had <= covers => (value, covers),
            _ => return true,
        };
        lifetimes.set_behind(head.last, cover.0);
        if let Some(head) = self.heads.get_mut(&open) {
            head.cover_len = cover.1;
        }
        true
    }

    /// Prefixes that may move in one call.
    #[cfg(test)]
    pub(crate) fn fullest_map(&self) -> usize {
        self.heads.fullest()
    }

    /// About what the writer takes for prefixes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.heads.bytes() + self.open.len() * size_of::<Prefix<A>>() * 2
    }
}

fn cover_of<A: LpmFamily>(
    heads: &TableHeads<A>,
    lengths: &[u32; LENGTHS],
    prefix: Prefix<A>,
) -> (u32, u8) {
    let shorter = (0..prefix.len()).rev();
    let used = shorter.filter(|len| lengths.get(usize::from(*len)).is_some_and(|n| *n > 0));
    let mut found = used.filter_map(|len| {
        let head = heads.get(&Prefix::new(prefix.addr(), len)?)?;
        (head.value != 0).then_some((head.value, len))
    });
    found.next().unwrap_or((0, UNCOVERED))
}
