//! The writer of a longest-prefix-match table.
//!
//! Called by the control side, never between a packet's arrival and departure. Order of every
//! change: room is made sure of; what is new is written; one store shows it; what it replaces
//! waits for its grace period. The work is in `links.rs` (which node leads to which), `paint.rs`
//! (what readers see of a node) and `push.rs` (what nodes inherit). Bounds: a change stores at most
//! 256 entries of a direct block (a prefix below 8 bits of several, one a step) or repaints at most
//! eight words of a line, links or unlinks one chain of at most fifteen nodes, and in IPv6 goes
//! through the lines below it, in steps.

use std::sync::Arc;

use floodwall_base::{Instant, Prefix};
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps, LimboStats, Paced, Policy};
use floodwall_sync::shim::atomic::Ordering::Release;

use super::blocks::{self, Blocks};
use super::capacity::{LpmCapacity, LpmMemory, UpdateError};
use super::layout::{DIRECT, DYNAMIC_FROM, TOP, second};
use super::node::{NodeArena, TrieNodeId, heap_index};
use super::push::OwedSubtree;
use super::root::Root;
use super::shared::SharedSlots;
use super::slots::{EXPIRES, Slots, shown};
use super::table::{Direct, LpmFamily, Table};
use super::word::{Line, WORDS};
use super::{ENTRY, Lpm, VALUE_MAX};

/// Objects that one change retires at most: eight blocks of a node, and a chain of nodes with a
/// line and a block each.
const RETIRED_MAX: usize = 48;
/// Slots that one change takes at most: eight full words, and a chain of nodes.
const SLOTS_MAX: usize = WORDS * blocks::SIZE_MAX + 256;
/// Nodes that one change makes at most.
const CHAIN_MAX: usize = 16;

/// What a prefix leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteTarget {
    /// The number that look-ups find.
    pub value: u32,
    /// Of a route that expires, the caller's record of it, and when the first of its lifetimes
    /// ends: from then on look-ups find `ENTRY | entry` instead, and the caller resolves it.
    pub expires: Option<(u32, Instant)>,
}

impl RouteTarget {
    /// A number that stays.
    #[must_use]
    pub const fn forever(value: u32) -> Self {
        Self { value, expires: None }
    }

    /// A number until a moment, and from then on the value of the caller's record.
    #[must_use]
    pub const fn until(value: u32, entry: u32, until: Instant) -> Self {
        Self { value, expires: Some((entry, until)) }
    }
}

/// What waits for its grace period.
#[derive(Debug)]
pub(super) enum RemovedRoute {
    Block(u32, u16),
    Line(u32),
    Direct(u32),
}

/// The writer's side of a longest-prefix-match table: nodes, blocks, and what waits for a grace
/// period.
pub struct LpmWriter<A: LpmFamily, P: Policy = Paced> {
    pub(super) table: Arc<Table<A>>,
    /// What `::/0` or `0.0.0.0/0` leads to.
    default: u32,
    pub(super) directs: NodeArena,
    pub(super) lines: NodeArena,
    pub(super) blocks: Blocks,
    pub(super) shared: SharedSlots,
    /// The flat lines, by what they inherit.
    pub(super) flat: SharedSlots,
    /// The value while an entry is valid, by entry.
    pub(super) living: Vec<u32>,
    pub(super) limbo: Limbo<RemovedRoute, P>,
    pub(super) owed: Option<OwedSubtree<A>>,
    prefixes: usize,
    /// Whether words are left unpainted until all prefixes are there.
    pub(super) loading: bool,
    /// Words that were looked at for what they show.
    pub(super) words: u64,
}

impl<A: LpmFamily> LpmWriter<A> {
    /// An empty table for the readers of `domain`, with all its memory.
    #[must_use]
    pub fn new(domain: &Domain, capacity: LpmCapacity) -> Self {
        Self::with_domain(domain, capacity)
    }
}

impl<A: LpmFamily, P: Policy> LpmWriter<A, P> {
    /// As [`LpmWriter::new`], for a domain with a policy of its own.
    #[must_use]
    pub fn with_domain(domain: &Domain<P>, capacity: LpmCapacity) -> Self {
        let fixed = DYNAMIC_FROM as usize;
        let lines = capacity.lines.max(1);
        let caps = LimboCaps { items: capacity.retired, bytes: usize::MAX };
        Self {
            table: Arc::new(Table::new(lines, capacity.slots, capacity.directs)),
            default: 0,
            directs: NodeArena::new(fixed + capacity.directs, fixed),
            lines: NodeArena::new(lines, 1),
            blocks: Blocks::new(capacity.slots, 1),
            shared: SharedSlots::default(),
            flat: SharedSlots::default(),
            living: Vec::new(),
            limbo: domain.limbo(caps),
            owed: None,
            prefixes: 0,
            loading: false,
            words: 0,
        }
    }

    /// A readers' end.
    #[must_use]
    pub fn reader(&self) -> Lpm<A> {
        Lpm { table: Arc::clone(&self.table) }
    }

    /// How many prefixes lead somewhere.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.prefixes
    }

    /// Whether no prefix does.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.prefixes == 0
    }

    /// How many words, of 32 positions each, changes have repainted: the work of the writer, on any
    /// machine. At most eight of the prefix's own node and of each node that is made, one where a
    /// chain begins, and of [`LpmWriter::step`] eight for sixteen units.
    #[must_use]
    pub const fn words(&self) -> u64 {
        self.words
    }

    /// What waited and was freed.
    #[must_use]
    pub fn limbo(&self) -> LimboStats {
        self.limbo.stats()
    }

    /// Lets `prefix` lead to `value` for ever; returns what it led to before.
    ///
    /// # Errors
    /// See [`UpdateError`]; the table is unchanged then.
    pub fn insert(
        &mut self,
        prefix: Prefix<A>,
        value: u32,
        now: Instant,
    ) -> Result<Option<u32>, UpdateError> {
        self.replace(prefix, Some(RouteTarget::forever(value)), now)
    }

    /// Lets `prefix` lead nowhere; returns what it led to.
    ///
    /// # Errors
    /// See [`UpdateError`]; the table is unchanged then.
    pub fn remove(&mut self, prefix: Prefix<A>, now: Instant) -> Result<Option<u32>, UpdateError> {
        self.replace(prefix, None, now)
    }

    /// Lets `prefix` lead to something else, or nowhere; returns what it led to: a value, or
    /// [`ENTRY`] and the entry's number. Complete when it returns.
    ///
    /// # Errors
    /// See [`UpdateError`]; the table is unchanged then.
    pub fn replace(
        &mut self,
        prefix: Prefix<A>,
        target: Option<RouteTarget>,
        now: Instant,
    ) -> Result<Option<u32>, UpdateError> {
        let before = self.begin(prefix, target, now)?;
        self.finish(now);
        Ok(before)
    }

    /// As [`LpmWriter::replace`], but nodes below do not inherit yet: that is for
    /// [`LpmWriter::step`]. What `prefix` led to before may be found, and must stay good, until
    /// that returns [`Done`](super::PushProgress::Done). Completes first what the last change left.
    ///
    /// # Errors
    /// See [`UpdateError`]; the table is unchanged then.
    pub fn begin(
        &mut self,
        prefix: Prefix<A>,
        target: Option<RouteTarget>,
        now: Instant,
    ) -> Result<Option<u32>, UpdateError> {
        self.finish(now);
        if let Some(refused) = target.and_then(refused) {
            return Err(UpdateError::Value(refused));
        }
        self.make_room(now)?;
        let before = match target {
            Some(target) => self.set(prefix, target, now)?,
            None => self.unset(prefix, now)?,
        };
        Ok(before.map(shown))
    }

    /// Nothing that can expire ends before `at`: the caller has taken out or prolonged what did.
    /// Until then, from the first end on, look-ups find entries instead of values, which is right
    /// but slow. A moment that is too late makes them find what has ended.
    pub fn none_ends_before(&mut self, at: Instant) {
        self.table.set_soonest(at);
    }

    /// Something ends at `at`: for a caller that shortens a lifetime of what is in the table.
    pub fn ends_at(&mut self, at: Instant) {
        self.table.lower_soonest(at);
    }

    /// The longest match of `addr`, ended or not: a value, or [`ENTRY`] and the number of the
    /// entry. The writer needs no view, as it alone reuses memory.
    #[must_use]
    #[inline]
    pub fn lookup(&self, addr: A) -> u32 {
        A::lookup::<true>(&self.table, addr).0
    }

    /// As [`Lpm::lookup`], for the writer itself.
    #[must_use]
    #[inline]
    pub fn lookup_at(&self, addr: A, now: Instant) -> u32 {
        self.table.lookup(addr, now)
    }

    /// As [`Lpm::lookup_burst`], for the writer itself.
    #[inline]
    pub fn lookup_burst(&self, addrs: &[A], now: Instant, found: &mut [u32]) {
        self.table.lookup_burst(addrs, now, found);
    }

    /// What exactly this prefix leads to: as [`LpmWriter::replace`] returns it.
    #[must_use]
    pub fn exact(&self, prefix: Prefix<A>) -> Option<u32> {
        let value = match prefix.len() {
            0 => Some(self.default).filter(|value| *value != 0),
            _ => self.node(self.find(prefix).ok()?)?.heap.value(heap_index(prefix)),
        };
        value.map(shown)
    }

    /// Fills an empty table, faster than by inserting: each word is painted once. Readers see the
    /// table fill.
    ///
    /// # Errors
    /// As [`LpmWriter::insert`]: with those before it in the table.
    pub fn load(
        &mut self,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
        now: Instant,
    ) -> Result<(), UpdateError> {
        self.begin_load(false);
        let loaded = prefixes.into_iter().try_for_each(|(p, v)| self.insert(p, v, now).map(drop));
        self.end_load(now)?;
        loaded
    }

    /// What follows is the load of a table that is empty, or that no reader has: until
    /// [`LpmWriter::end_load`] look-ups find little of it.
    pub(crate) const fn begin_load(&mut self, is_unseen: bool) {
        self.loading = is_unseen || self.is_empty();
    }

    /// Shows what was loaded.
    pub(crate) fn end_load(&mut self, now: Instant) -> Result<(), UpdateError> {
        self.finish(now);
        if core::mem::take(&mut self.loading) {
            for line in self.lines.numbers() {
                self.make_room(now)?;
                self.paint_all(TrieNodeId::Line(line), now)?;
            }
        }
        Ok(())
    }

    /// What it takes.
    #[must_use]
    pub fn memory(&self) -> LpmMemory {
        let root = self.second_blocks();
        let inherited = if A::Root::PUSHES { size_of::<u32>() } else { 0 };
        let bytes = |directs: usize, lines: usize, slots: usize| {
            root * DIRECT * A::Root::BYTES
                + directs * size_of::<Direct>()
                + lines * (size_of::<Line>() + inherited)
                + slots * A::Slots::BYTES
        };
        let (directs, directs_ever) = self.directs.used();
        let (lines, lines_ever) = self.lines.used();
        LpmMemory {
            lookup: bytes(directs, lines, self.blocks.used()),
            lookup_high_water: bytes(directs_ever, lines_ever, self.blocks.high_water()),
            writer: self.lines.bytes() + self.directs.bytes() + 4 * self.living.capacity(),
        }
    }

    /// How many direct blocks of the second byte have an entry: the others were never touched.
    fn second_blocks(&self) -> usize {
        let Some(top) = self.directs.get(TOP) else { return 0 };
        let used = |byte: &u8| {
            let own = self.directs.get(second(*byte));
            top.heap.longest(*byte).is_some() || own.is_some_and(|node| !node.is_empty())
        };
        (0..=u8::MAX).filter(used).count()
    }

    fn set(
        &mut self,
        prefix: Prefix<A>,
        target: RouteTarget,
        now: Instant,
    ) -> Result<Option<u32>, UpdateError> {
        let (value, all) = self.admit(target);
        let before = if prefix.len() == 0 {
            self.table.default.store(shown(value), Release);
            Some(core::mem::replace(&mut self.default, value)).filter(|before| *before != 0)
        } else {
            match self.find(prefix) {
                Ok(id) => {
                    let heap = self.node_mut(id).map(|node| &mut node.heap);
                    let before = heap.and_then(|heap| heap.insert(heap_index(prefix), value));
                    self.show(id, prefix, all, now)?;
                    before
                }
                Err(above) => {
                    self.build(prefix, value, above, now)?;
                    None
                }
            }
        };
        self.prefixes += usize::from(before.is_none());
        Ok(before)
    }

    fn unset(&mut self, prefix: Prefix<A>, now: Instant) -> Result<Option<u32>, UpdateError> {
        let before = if prefix.len() == 0 {
            self.table.default.store(0, Release);
            Some(core::mem::take(&mut self.default)).filter(|before| *before != 0)
        } else {
            self.unset_below(prefix, now)?
        };
        self.prefixes -= usize::from(before.is_some());
        Ok(before)
    }

    fn unset_below(&mut self, prefix: Prefix<A>, now: Instant) -> Result<Option<u32>, UpdateError> {
        let Ok(id) = self.find(prefix) else { return Ok(None) };
        let Some(node) = self.node_mut(id) else { return Ok(None) };
        let before = node.heap.remove(heap_index(prefix));
        let emptied = node.is_empty() && !id.is_fixed();
        match before {
            Some(_) if emptied => self.unlink(prefix, now)?,
            Some(_) => self.show(id, prefix, false, now)?,
            None => {}
        }
        Ok(before)
    }

    /// The writer's number for a target, and whether another value may have had the same.
    fn admit(&mut self, target: RouteTarget) -> (u32, bool) {
        let Some((entry, until)) = target.expires else { return (target.value, false) };
        self.table.lower_soonest(until);
        let at = entry as usize;
        if self.living.len() <= at {
            self.living.resize(at + 1, 0);
        }
        let before = self.living.get_mut(at).map(|v| core::mem::replace(v, target.value));
        (EXPIRES | entry, before != Some(target.value))
    }

    /// Frees what may be freed, and makes sure of the room that any one change may need.
    fn make_room(&mut self, now: Instant) -> Result<(), UpdateError> {
        let Self { limbo, blocks, lines, directs, .. } = self;
        limbo.reclaim(
            || now,
            |gone| match gone {
                RemovedRoute::Block(start, size) => blocks.give(start, usize::from(size)),
                RemovedRoute::Line(line) => lines.give(line),
                RemovedRoute::Direct(block) => directs.give(block),
            },
        );
        if self.limbo.room() < RETIRED_MAX {
            return Err(UpdateError::Pending);
        }
        if self.lines.room() < CHAIN_MAX || !self.blocks.has_room(SLOTS_MAX) {
            return Err(UpdateError::Full);
        }
        Ok(())
    }
}

/// The number for which a target is refused.
fn refused(target: RouteTarget) -> Option<u32> {
    let (entry, max) = match target.expires {
        None => (0, VALUE_MAX),
        Some((entry, _)) => (entry, ENTRY - 1),
    };
    let value = Some(target.value).filter(|value| *value == 0 || *value > max);
    value.or(Some(entry).filter(|entry| *entry >= ENTRY))
}

impl<A: LpmFamily, P: Policy> core::fmt::Debug for LpmWriter<A, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LpmWriter").field("prefixes", &self.prefixes).finish_non_exhaustive()
    }
}
