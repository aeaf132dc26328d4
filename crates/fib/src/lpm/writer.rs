//! The one who changes a longest-prefix-match table.
//!
//! Called by the control side, never between a packet's arrival and departure. Order of every
//! change: room is made sure of; what is new is written; one store shows it; what it replaces
//! waits for its grace period. Bounds: a change repaints at most eight words of one node, links or
//! unlinks at most one chain of nodes, and stores at most 2^(16 - length) entries of the root, or
//! the fallbacks of the nodes below it.

use std::collections::HashMap;
use std::sync::Arc;

use floodwall_base::{Address, Instant, Prefix};
use floodwall_sync::qsbr::{Caps, Domain, Limbo, LimboStats, Paced, Policy};
use floodwall_sync::shim::atomic::Ordering::{Relaxed, Release};
use thiserror::Error;

use super::blocks::Blocks;
use super::heap::{self, Heap, STRIDE};
use super::slots::{Run, Slots};
use super::table::{DIRECT, Family, Link, ROOT, Table};
use super::word::{Line, POSITIONS, WORDS, Word};
use super::{Lpm, VALUE_MAX};

/// Objects that one change retires at most: eight blocks of a node, and a chain of nodes with a
/// line and a block each.
const RETIRED_MAX: usize = 48;
/// Slots that one change takes at most: eight full words, and a chain of nodes.
const SLOTS_MAX: usize = WORDS * super::blocks::SIZE_MAX + 256;
/// Nodes that one change makes at most.
const CHAIN_MAX: usize = 16;

/// How large a table may become: its memory is taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Nodes, of 64 bytes.
    pub lines: usize,
    /// Slots, of 2 bytes (IPv4) or 4 bytes (IPv6).
    pub slots: usize,
    /// Blocks of 2 KiB, one for each /16 that is used; IPv6 only.
    pub directs: usize,
    /// Objects that wait for their grace period.
    pub retired: usize,
}

impl Capacity {
    /// Enough for `prefixes` of today's Internet, and for as many that share nothing where they
    /// are few. A table of other habits may be full earlier, and says so.
    #[must_use]
    pub const fn for_prefixes(prefixes: usize) -> Self {
        let spread = if prefixes < 4096 { prefixes } else { 4096 };
        Self {
            lines: 64 + prefixes / 2 + 8 * spread,
            slots: 4096 + 2 * prefixes + 16 * spread,
            directs: 2 + if spread < 512 { spread } else { 512 },
            retired: 4096,
        }
    }
}

/// Why a change was refused. The table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// There is no room for it.
    #[error("the routing table is full: its configured memory is used up")]
    Full,
    /// Too much waits for its grace period.
    #[error("too many changes wait for the workers to pause: try again later")]
    Pending,
    /// No route can have this number.
    #[error("{0} is not a next hop's number (1 to {VALUE_MAX})")]
    Value(u32),
}

/// What a table takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What look-ups read, without what is free.
    pub lookup: usize,
    /// The same with what was freed and waits to be used again.
    pub lookup_high_water: usize,
    /// What the writer keeps for itself.
    pub writer: usize,
}

/// What waits for its grace period.
#[derive(Debug)]
enum Gone {
    Block(u32, u16),
    Line(u32),
    Direct(u32),
}

/// What a word holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    /// Nothing at all 32 positions.
    #[default]
    Empty,
    /// One value at all of them: a slot that all such words share.
    Shared(u32),
    /// A block of its own: start and size.
    Block(u32, u16),
}

/// The writer's record of a node.
#[derive(Debug, Default)]
struct Node {
    heap: Heap,
    /// Position and line, by position.
    children: Vec<(u8, u32)>,
    held: [Held; WORDS],
    /// What look-ups fall back to that find nothing here: with wide slots alone.
    fallback: u32,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.heap.is_empty() && self.children.is_empty()
    }

    fn child(&self, position: u8) -> u32 {
        let found = self.children.binary_search_by_key(&position, |(at, _)| *at);
        found.ok().and_then(|n| self.children.get(n)).map_or(0, |(_, line)| *line)
    }

    fn set_child(&mut self, position: u8, line: u32) {
        match (self.children.binary_search_by_key(&position, |(at, _)| *at), line) {
            (Ok(n), 0) => _ = self.children.remove(n),
            (Ok(n), line) => {
                if let Some(child) = self.children.get_mut(n) {
                    child.1 = line;
                }
            }
            (Err(_), 0) => {}
            (Err(n), line) => self.children.insert(n, (position, line)),
        }
    }
}

/// Where a node hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    /// On the root.
    Root(usize),
    /// On a direct block, at a position.
    Direct(u32, u8),
    /// On a line, at a position.
    Line(u32, u8),
}

/// See the file's head.
pub struct LpmWriter<A: Family, P: Policy = Paced> {
    table: Arc<Table<A>>,
    /// Values of the prefixes of up to 16 bits, by 2^length + bits.
    short: Box<[u32]>,
    /// By line.
    nodes: Vec<Node>,
    free_lines: Vec<u32>,
    /// By direct block.
    directs: Vec<Node>,
    free_directs: Vec<u32>,
    blocks: Blocks,
    /// Slots that hold one value for many words: where, and for how many.
    shared: HashMap<u32, (u32, u32)>,
    limbo: Limbo<Gone, P>,
    prefixes: usize,
    /// Whether words are left unpainted until all prefixes are there.
    loading: bool,
}

/// The byte of an address at a level, in bits from its front.
fn position<A: Address>(prefix: Prefix<A>, level: u8) -> u8 {
    (prefix.addr().to_bits_aligned() >> (120 - level)) as u8
}

fn top<A: Address>(prefix: Prefix<A>) -> usize {
    (prefix.addr().to_bits_aligned() >> 112) as usize
}

impl<A: Family> LpmWriter<A> {
    /// An empty table for the readers of `domain`, with all its memory.
    #[must_use]
    pub fn new(domain: &Domain, capacity: Capacity) -> Self {
        Self::with_domain(domain, capacity)
    }
}

impl<A: Family, P: Policy> LpmWriter<A, P> {
    /// As [`LpmWriter::new`], for a domain with a policy of its own.
    #[must_use]
    pub fn with_domain(domain: &Domain<P>, capacity: Capacity) -> Self {
        let directs = if A::DIRECT { capacity.directs.min(A::Link::MAX as usize) } else { 0 };
        let caps = Caps { items: capacity.retired, bytes: usize::MAX };
        Self {
            table: Arc::new(Table::new(capacity.lines.max(1), capacity.slots, directs.max(1))),
            short: vec![0; 2 * ROOT].into(),
            nodes: vec![Node::default()],
            free_lines: Vec::new(),
            directs: vec![Node::default()],
            free_directs: Vec::new(),
            blocks: Blocks::new(capacity.slots, 1),
            shared: HashMap::new(),
            limbo: domain.limbo(caps),
            prefixes: 0,
            loading: false,
        }
    }

    /// What [`Lpm::lookup`] finds: the writer needs no view, as it alone reuses memory.
    #[must_use]
    #[inline]
    pub fn lookup(&self, addr: A) -> u32 {
        A::lookup(&self.table, addr)
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

    /// What waited and was freed.
    #[must_use]
    pub fn limbo(&self) -> LimboStats {
        self.limbo.stats()
    }

    /// Lets `prefix` lead to `value`; returns what it led to before.
    ///
    /// # Errors
    /// See [`UpdateError`]; the table is unchanged then.
    pub fn insert(
        &mut self,
        prefix: Prefix<A>,
        value: u32,
        now: Instant,
    ) -> Result<Option<u32>, UpdateError> {
        if value == 0 || value > VALUE_MAX {
            return Err(UpdateError::Value(value));
        }
        self.make_room(now)?;
        let before = match prefix.len() {
            0 => Some(self.table.default.swap(value, Relaxed)).filter(|v| *v != 0),
            1..=16 => self.set_short(prefix, value),
            17..=24 if A::DIRECT => self.insert_direct(prefix, value)?,
            _ => self.insert_deep(prefix, value, now)?,
        };
        self.prefixes += usize::from(before.is_none());
        Ok(before)
    }

    /// Lets `prefix` lead nowhere; returns what it led to.
    ///
    /// # Errors
    /// See [`UpdateError`]; the table is unchanged then.
    pub fn remove(&mut self, prefix: Prefix<A>, now: Instant) -> Result<Option<u32>, UpdateError> {
        self.make_room(now)?;
        let before = match prefix.len() {
            0 => Some(self.table.default.swap(0, Relaxed)).filter(|v| *v != 0),
            1..=16 => self.set_short(prefix, 0),
            17..=24 if A::DIRECT => self.remove_direct(prefix, now),
            _ => self.remove_deep(prefix, now),
        };
        self.prefixes -= usize::from(before.is_some());
        Ok(before)
    }

    /// What exactly this prefix leads to.
    #[must_use]
    pub fn exact(&self, prefix: Prefix<A>) -> Option<u32> {
        let nonzero = |value: u32| Some(value).filter(|v| *v != 0);
        match prefix.len() {
            0 => nonzero(self.table.default.load(Relaxed)),
            1..=16 => self.short.get(short_index(prefix)).copied().and_then(nonzero),
            17..=24 if A::DIRECT => {
                let block = self.table.links.get(top(prefix))?.load();
                self.directs.get(block)?.heap.value(heap_index(prefix))
            }
            _ => {
                let line = self.find(prefix).ok()?;
                self.nodes.get(line as usize)?.heap.value(heap_index(prefix))
            }
        }
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
        self.loading = self.is_empty();
        let loaded = prefixes.into_iter().try_for_each(|(p, v)| self.insert(p, v, now).map(drop));
        let painted = self.loading;
        self.loading = false;
        if painted {
            for line in 1..self.nodes.len() as u32 {
                for q in 0..WORDS {
                    self.make_room(now)?;
                    self.repaint(line, q, now)?;
                }
            }
        }
        loaded
    }

    /// What it takes.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let root = ROOT * (size_of::<A::Link>() + 4);
        let directs = (self.directs.len() - 1 - self.free_directs.len()) * DIRECT * 8;
        let line = size_of::<Line>() + if A::DIRECT { 4 } else { 0 };
        let lines = self.nodes.len() - self.free_lines.len();
        let slot = A::Slots::BYTES;
        let of_node = |node: &Node| {
            size_of::<Node>() - size_of::<Heap>() + node.heap.bytes() + 8 * node.children.capacity()
        };
        Memory {
            lookup: root + directs + lines * line + self.blocks.used() * slot,
            lookup_high_water: root
                + directs
                + self.nodes.len() * line
                + self.blocks.high_water() * slot,
            writer: 4 * self.short.len()
                + self.nodes.iter().chain(&self.directs).map(of_node).sum::<usize>(),
        }
    }

    /// Frees what may be freed, and makes sure of the room that any one change may need.
    fn make_room(&mut self, now: Instant) -> Result<(), UpdateError> {
        let Self { limbo, blocks, free_lines, free_directs, .. } = self;
        limbo.reclaim(
            || now,
            |gone| match gone {
                Gone::Block(start, size) => blocks.give(start, usize::from(size)),
                Gone::Line(line) => free_lines.push(line),
                Gone::Direct(block) => free_directs.push(block),
            },
        );
        if self.limbo.room() < RETIRED_MAX {
            return Err(UpdateError::Pending);
        }
        let lines = self.free_lines.len() + self.table.lines.len() - self.nodes.len();
        if lines < CHAIN_MAX || !self.blocks.has_room(SLOTS_MAX) {
            return Err(UpdateError::Full);
        }
        Ok(())
    }

    fn retire(&mut self, gone: Gone, now: Instant) {
        // Room for all that a change retires was made sure of before.
        if let Ok(slot) = self.limbo.reserve(0) {
            slot.retire(gone, now);
        }
    }

    // ----- the root -----

    /// A prefix of 1 to 16 bits: the entries of the root that no longer one covers.
    fn set_short(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let at = short_index(prefix);
        let before = core::mem::replace(self.short.get_mut(at)?, value);
        let cover = (1..=16).map(|n| at >> n).take_while(|up| *up > 1);
        let cover = cover.map(|up| self.short.get(up).copied().unwrap_or(0)).find(|v| *v != 0);
        let painted = if value == 0 { cover.unwrap_or(0) } else { value };
        // Depth first, without a stack: a complete binary tree in an array.
        let mut here = at;
        loop {
            let covered = here != at && self.short.get(here).is_some_and(|v| *v != 0);
            if !covered && here < ROOT {
                here *= 2;
                continue;
            }
            if !covered && let Some(entry) = self.table.values.get(here - ROOT) {
                entry.store(painted, Release);
            }
            while here != at && here % 2 == 1 {
                here /= 2;
            }
            if here == at {
                return Some(before).filter(|v| *v != 0);
            }
            here += 1;
        }
    }

    // ----- direct blocks -----

    /// The direct block of a /16, made where there is none.
    fn direct(&mut self, top: usize) -> Result<u32, UpdateError> {
        let link = self.table.links.get(top).ok_or(UpdateError::Full)?;
        let block = link.load() as u32;
        if block != 0 {
            return Ok(block);
        }
        let block = match self.free_directs.pop() {
            Some(block) => block,
            None if self.directs.len() * DIRECT < self.table.directs.len() => {
                self.directs.push(Node::default());
                self.directs.len() as u32 - 1
            }
            None => return Err(UpdateError::Full),
        };
        self.table.links.get(top).ok_or(UpdateError::Full)?.publish(block);
        Ok(block)
    }

    fn insert_direct(&mut self, prefix: Prefix<A>, value: u32) -> Result<Option<u32>, UpdateError> {
        let block = self.direct(top(prefix))?;
        let node = self.directs.get_mut(block as usize).ok_or(UpdateError::Full)?;
        let before = node.heap.insert(heap_index(prefix), value);
        self.paint_direct(block, prefix);
        Ok(before)
    }

    fn remove_direct(&mut self, prefix: Prefix<A>, now: Instant) -> Option<u32> {
        let block = self.table.links.get(top(prefix))?.load() as u32;
        let before = self.directs.get_mut(block as usize)?.heap.remove(heap_index(prefix))?;
        self.paint_direct(block, prefix);
        self.drop_empty_direct(block, top(prefix), now);
        Some(before)
    }

    /// Stores the entries of a direct block that `prefix` covers.
    fn paint_direct(&mut self, block: u32, prefix: Prefix<A>) {
        for q in touched(prefix) {
            let Some(node) = self.directs.get(block as usize) else { return };
            let painted = node.heap.paint(q);
            for (n, value) in painted.into_iter().enumerate() {
                let at = q * POSITIONS + n;
                let line = u64::from(node.child(at as u8));
                if let Some(entry) = self.table.directs.get(block as usize * DIRECT + at) {
                    entry.store(line | u64::from(value) << 32, Release);
                }
            }
        }
    }

    fn drop_empty_direct(&mut self, block: u32, top: usize, now: Instant) {
        if self.directs.get(block as usize).is_some_and(Node::is_empty) {
            if let Some(link) = self.table.links.get(top) {
                link.publish(0);
            }
            self.retire(Gone::Direct(block), now);
        }
    }

    // ----- lines -----

    /// Where the first line for `prefix` hangs, if it hangs anywhere.
    fn first(&self, prefix: Prefix<A>) -> Option<(Parent, u8)> {
        let top = top(prefix);
        if !A::DIRECT {
            return Some((Parent::Root(top), 16));
        }
        match self.table.links.get(top)?.load() as u32 {
            0 => None,
            block => Some((Parent::Direct(block, position(prefix, 16)), 24)),
        }
    }

    fn child(&self, parent: Parent) -> u32 {
        match parent {
            Parent::Root(top) => self.table.links.get(top).map_or(0, |link| link.load() as u32),
            Parent::Direct(block, at) => {
                self.directs.get(block as usize).map_or(0, |n| n.child(at))
            }
            Parent::Line(line, at) => self.nodes.get(line as usize).map_or(0, |n| n.child(at)),
        }
    }

    /// The line in which `prefix` ends; else the place that it would be reached by and its level.
    fn find(&self, prefix: Prefix<A>) -> Result<u32, Option<(Parent, u8)>> {
        let level = level(prefix);
        let (mut parent, mut at) = self.first(prefix).ok_or(None)?;
        loop {
            match self.child(parent) {
                0 => return Err(Some((parent, at))),
                line if at == level => return Ok(line),
                line => parent = Parent::Line(line, position(prefix, at)),
            }
            at += STRIDE;
        }
    }

    fn insert_deep(
        &mut self,
        prefix: Prefix<A>,
        value: u32,
        now: Instant,
    ) -> Result<Option<u32>, UpdateError> {
        let (parent, from) = match self.find(prefix) {
            Ok(line) => {
                let node = self.nodes.get_mut(line as usize).ok_or(UpdateError::Full)?;
                let before = node.heap.insert(heap_index(prefix), value);
                self.repaint_touched(line, prefix, now)?;
                return Ok(before);
            }
            Err(Some(missing)) => missing,
            Err(None) => (Parent::Direct(self.direct(top(prefix))?, position(prefix, 16)), 24),
        };
        // The chain is complete before anything leads to it.
        let fallback = self.fallback_below(parent);
        let mut level = level(prefix);
        let mut line = self.new_line(fallback)?;
        let node = self.nodes.get_mut(line as usize).ok_or(UpdateError::Full)?;
        node.heap.insert(heap_index(prefix), value);
        self.repaint_touched(line, prefix, now)?;
        while level > from {
            level -= STRIDE;
            let up = self.new_line(fallback)?;
            let at = position(prefix, level);
            if let Some(node) = self.nodes.get_mut(up as usize) {
                node.set_child(at, line);
            }
            self.repaint(up, usize::from(at) / POSITIONS, now)?;
            line = up;
        }
        self.set_child(parent, line, now)?;
        Ok(None)
    }

    fn remove_deep(&mut self, prefix: Prefix<A>, now: Instant) -> Option<u32> {
        let line = self.find(prefix).ok()?;
        let before = self.nodes.get_mut(line as usize)?.heap.remove(heap_index(prefix))?;
        if !self.nodes.get(line as usize)?.is_empty() {
            // It was painted before, with more in it: there is room.
            let _ = self.repaint_touched(line, prefix, now);
            return Some(before);
        }
        self.unlink(prefix, now);
        Some(before)
    }

    /// Takes away the node in which `prefix` ended, and those above that are empty without it.
    fn unlink(&mut self, prefix: Prefix<A>, now: Instant) {
        let Some((mut parent, mut at)) = self.first(prefix) else { return };
        let mut chain = [(parent, 0_u32); CHAIN_MAX];
        let mut len = 0;
        for step in &mut chain {
            let line = self.child(parent);
            *step = (parent, line);
            len += 1;
            if at == level(prefix) {
                break;
            }
            parent = Parent::Line(line, position(prefix, at));
            at += STRIDE;
        }
        for (parent, line) in chain.into_iter().take(len).rev() {
            let emptied = match parent {
                Parent::Line(up, at) => self.nodes.get_mut(up as usize).is_some_and(|node| {
                    node.set_child(at, 0);
                    node.is_empty()
                }),
                _ => false,
            };
            if !emptied {
                // What leads to the lowest node that stays must be repainted: that unlinks.
                let _ = self.set_child(parent, 0, now);
                self.bury(line, now);
                if let Parent::Direct(block, _) = parent {
                    self.drop_empty_direct(block, top(prefix), now);
                }
                return;
            }
            self.bury(line, now);
        }
    }

    /// Retires a node that nothing leads to any more.
    fn bury(&mut self, line: u32, now: Instant) {
        let held = match self.nodes.get_mut(line as usize) {
            Some(node) => core::mem::take(node).held,
            None => return,
        };
        for held in held {
            self.let_go(held, now);
        }
        self.retire(Gone::Line(line), now);
    }

    /// Lets a place lead to `line`, by one store.
    fn set_child(&mut self, parent: Parent, line: u32, now: Instant) -> Result<(), UpdateError> {
        match parent {
            Parent::Root(top) => {
                if let Some(link) = self.table.links.get(top) {
                    link.publish(line);
                }
            }
            Parent::Direct(block, at) => {
                let Some(node) = self.directs.get_mut(block as usize) else { return Ok(()) };
                node.set_child(at, line);
                let entry = self.table.directs.get(block as usize * DIRECT + usize::from(at));
                if let Some(entry) = entry {
                    let value = entry.load(Relaxed) >> 32;
                    entry.store(u64::from(line) | value << 32, Release);
                }
            }
            Parent::Line(up, at) => {
                if let Some(node) = self.nodes.get_mut(up as usize) {
                    node.set_child(at, line);
                }
                self.repaint(up, usize::from(at) / POSITIONS, now)?;
            }
        }
        Ok(())
    }

    fn new_line(&mut self, fallback: u32) -> Result<u32, UpdateError> {
        let line = match self.free_lines.pop() {
            Some(line) => line,
            None if self.nodes.len() < self.table.lines.len() => {
                self.nodes.push(Node::default());
                self.nodes.len() as u32 - 1
            }
            None => return Err(UpdateError::Full),
        };
        if let Some(words) = self.table.lines.get(line as usize) {
            (0..WORDS).for_each(|q| words.publish(q, Word::EMPTY));
        }
        self.store_fallback(line, fallback);
        Ok(line)
    }

    fn repaint_touched(
        &mut self,
        line: u32,
        prefix: Prefix<A>,
        now: Instant,
    ) -> Result<(), UpdateError> {
        touched(prefix).try_for_each(|q| self.repaint(line, q, now))
    }

    /// Writes one word anew, shows it, and lets the old one go.
    fn repaint(&mut self, line: u32, q: usize, now: Instant) -> Result<(), UpdateError> {
        if self.loading {
            return Ok(());
        }
        let Some(node) = self.nodes.get(line as usize) else { return Ok(()) };
        let (painted, old) = (node.heap.paint(q), node.held.get(q).copied().unwrap_or_default());
        let mut children = [0_u32; POSITIONS];
        let mut any = false;
        for (at, child) in &node.children {
            if usize::from(*at) / POSITIONS == q
                && let Some(slot) = children.get_mut(usize::from(*at) % POSITIONS)
            {
                (*slot, any) = (*child, true);
            }
        }
        if A::DIRECT && any {
            let fallback = node.fallback;
            for (child, value) in children.into_iter().zip(painted).filter(|(c, _)| *c != 0) {
                self.set_fallback(child, if value == 0 { fallback } else { value });
            }
        }
        let (runs, len, starts) = runs(&painted, &children);
        let runs = runs.get(..len).unwrap_or_default();
        let (word, held) = self.write(runs, starts)?;
        let Some(words) = self.table.lines.get(line as usize) else { return Ok(()) };
        if words.own(q) != word {
            words.publish(q, word);
        }
        if let Some(slot) = self.nodes.get_mut(line as usize).and_then(|n| n.held.get_mut(q)) {
            *slot = held;
        }
        self.let_go(old, now);
        Ok(())
    }

    /// A word for these runs.
    fn write(&mut self, runs: &[Run], starts: u32) -> Result<(Word, Held), UpdateError> {
        if let [Run { value, child: 0 }] = *runs
            && A::Slots::is_plain(value)
        {
            if value == 0 {
                return Ok((Word::EMPTY, Held::Empty));
            }
            if let Some((slot, users)) = self.shared.get_mut(&value) {
                *users += 1;
                return Ok((Word::new(0, *slot), Held::Shared(value)));
            }
            let slot = self.blocks.take(1).ok_or(UpdateError::Full)?;
            self.table.slots.write(slot, runs);
            self.shared.insert(value, (slot, 1));
            return Ok((Word::new(0, slot), Held::Shared(value)));
        }
        let size = A::Slots::size(runs);
        let start = self.blocks.take(size).ok_or(UpdateError::Full)?;
        let base = self.table.slots.write(start, runs);
        Ok((Word::new(starts, base), Held::Block(start, size as u16)))
    }

    /// What a word held is no longer led to by it.
    fn let_go(&mut self, held: Held, now: Instant) {
        match held {
            Held::Empty => {}
            Held::Block(start, size) => self.retire(Gone::Block(start, size), now),
            Held::Shared(value) => {
                let Some((slot, users)) = self.shared.get_mut(&value) else { return };
                *users -= 1;
                if *users == 0 {
                    let slot = *slot;
                    self.shared.remove(&value);
                    self.retire(Gone::Block(slot, 1), now);
                }
            }
        }
    }

    // ----- fallbacks, with wide slots -----

    /// What a node that is to hang at `parent` falls back to.
    fn fallback_below(&self, parent: Parent) -> u32 {
        let Parent::Line(line, at) = parent else { return 0 };
        if !A::DIRECT {
            return 0;
        }
        let Some(node) = self.nodes.get(line as usize) else { return 0 };
        let painted = node.heap.paint(usize::from(at) / POSITIONS);
        match painted.get(usize::from(at) % POSITIONS) {
            Some(value) if *value != 0 => *value,
            _ => node.fallback,
        }
    }

    fn store_fallback(&mut self, line: u32, value: u32) {
        if let Some(node) = self.nodes.get_mut(line as usize) {
            node.fallback = value;
        }
        if let Some(slot) = self.table.fallbacks.get(line as usize) {
            slot.store(value, Release);
        }
    }

    /// What a node falls back to has changed: and with it what those below do that have nothing
    /// of their own in between. As deep as the address is long, in strides.
    fn set_fallback(&mut self, line: u32, value: u32) {
        let Some(node) = self.nodes.get(line as usize) else { return };
        if node.fallback == value {
            return;
        }
        self.store_fallback(line, value);
        let mut n = 0;
        while let Some(node) = self.nodes.get(line as usize)
            && let Some((at, child)) = node.children.get(n).copied()
        {
            let painted = node.heap.paint(usize::from(at) / POSITIONS);
            if painted.get(usize::from(at) % POSITIONS) == Some(&0) {
                self.set_fallback(child, value);
            }
            n += 1;
        }
    }
}

impl<A: Family, P: Policy> core::fmt::Debug for LpmWriter<A, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LpmWriter").field("prefixes", &self.prefixes).finish_non_exhaustive()
    }
}

/// The level of the node in which a prefix ends.
fn level<A: Address>(prefix: Prefix<A>) -> u8 {
    prefix.len().saturating_sub(1) / STRIDE * STRIDE
}

fn heap_index<A: Address>(prefix: Prefix<A>) -> usize {
    let level = level(prefix);
    heap::index(prefix.len() - level, position(prefix, level))
}

fn short_index<A: Address>(prefix: Prefix<A>) -> usize {
    let len = u32::from(prefix.len());
    1 << len | (prefix.addr().to_bits_aligned() >> (128 - len)) as usize
}

/// The words of its node that a prefix covers, in part or whole.
fn touched<A: Address>(prefix: Prefix<A>) -> core::ops::Range<usize> {
    let level = level(prefix);
    let first = usize::from(position(prefix, level)) / POSITIONS;
    let words = WORDS >> (prefix.len() - level).min(3);
    first..first + words
}

/// The runs of 32 positions, how many there are, and where they begin. A child is a run by itself.
fn runs(painted: &[u32; POSITIONS], children: &[u32; POSITIONS]) -> ([Run; POSITIONS], usize, u32) {
    let mut runs = [Run { value: 0, child: 0 }; POSITIONS];
    let (mut len, mut starts, mut last) = (0_usize, 0_u32, None);
    for (j, (value, child)) in painted.iter().zip(children).enumerate() {
        let run = Run { value: *value, child: *child };
        if last == Some(run) && run.child == 0 {
            continue;
        }
        if j != 0 {
            starts |= 1 << j;
        }
        last = Some(run);
        if let Some(slot) = runs.get_mut(len) {
            *slot = run;
        }
        len += 1;
    }
    (runs, len, starts)
}
