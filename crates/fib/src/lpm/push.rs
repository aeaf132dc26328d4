//! What nodes inherit from those above, in steps of bounded work.
//!
//! Part of [`LpmWriter`]: called by `writer.rs`. What ends within the first byte stands in the
//! blocks of the second, 256 entries each, that it covers. A change of a prefix that has lines
//! below it reaches every line that has nothing of its own in between. That may be many: so the way
//! through them is kept, and goes on when called. At each moment a look-up finds, for its address,
//! what was there before or what will be there after.
//!
//! The prefix's own words are shown after all lines below; only where the new value can expire
//! they are shown first, as its entry stands there.

use floodwall_base::{Instant, Prefix};
use floodwall_sync::qsbr::Policy;

use super::capacity::UpdateError;
use super::heap::STRIDE;
use super::layout::DYNAMIC_FROM;
use super::node::{TrieNodeId, heap_index, span, touched};
use super::root::Root;
use super::slots::EXPIRES;
use super::table::LpmFamily;
use super::word::POSITIONS;
use super::writer::LpmWriter;

/// Levels of lines at most.
const DEPTH: usize = 16;

/// Whether a change is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PushProgress {
    /// Everything that readers see is as the writer has it.
    Done,
    /// Some addresses still find what was there before.
    More,
}

/// A change that is not complete.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a table has one, and a change allocates nothing")]
pub(super) enum OwedSubtree<A: LpmFamily> {
    /// Of the root: the entries from these first 16 bits to those.
    Root(u16, u16),
    /// Of lines.
    Lines(OwedPush<A>),
}

/// A change of which lines below do not know yet.
#[derive(Debug)]
pub(super) struct OwedPush<A: LpmFamily> {
    prefix: Prefix<A>,
    line: u32,
    /// The lines on the way down, each with the next of its children.
    way: [(u32, usize); DEPTH],
    depth: usize,
    /// Whether the prefix's own words are still to be shown.
    to_show: bool,
    /// Whether a value may be another though its number is the same.
    all: bool,
}

impl<A: LpmFamily, P: Policy> LpmWriter<A, P> {
    /// Shows a change of `prefix`, which ends in the node `id`. What is below is left pending.
    pub(super) fn show(
        &mut self,
        id: TrieNodeId,
        prefix: Prefix<A>,
        all: bool,
        now: Instant,
    ) -> Result<(), UpdateError> {
        match id {
            TrieNodeId::Direct(..DYNAMIC_FROM) => {
                let first = (prefix.addr().to_bits_aligned() >> 112) as u16;
                let last = first | u16::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
                self.owed = Some(OwedSubtree::Root(first, last));
                // At once what is no more than a block of entries, or one line.
                if first == last || (!A::Root::PUSHES && prefix.len() >= STRIDE) {
                    self.finish(now);
                }
                return Ok(());
            }
            TrieNodeId::Line(line) if A::INHERITS => {
                let below = self.begin_push(line, prefix, all);
                let to_show = below.as_ref().is_some_and(|owed| owed.to_show);
                self.owed = below.map(OwedSubtree::Lines);
                if to_show {
                    return Ok(());
                }
            }
            _ => {}
        }
        touched(prefix).try_for_each(|q| self.paint(id, q, now))
    }

    fn begin_push(&self, line: u32, prefix: Prefix<A>, all: bool) -> Option<OwedPush<A>> {
        let node = self.lines.get(line)?;
        let (first, last) = span(prefix);
        let from = node.children_from(first);
        node.children.get(from).filter(|(at, _)| *at <= last)?;
        let value = node.heap.covering(heap_index(prefix)).unwrap_or(node.fallback);
        let mut way = [(0, 0); DEPTH];
        if let Some(first) = way.first_mut() {
            *first = (line, from);
        }
        Some(OwedPush { prefix, line, way, depth: 1, to_show: value & EXPIRES == 0, all })
    }

    /// Goes on with the pending work: at most so many units, of about 20 ns each.
    pub fn step(&mut self, units: usize, now: Instant) -> PushProgress {
        self.step_counted(units, now);
        if self.owed.is_some() { PushProgress::More } else { PushProgress::Done }
    }

    /// Whether work is pending.
    pub(crate) const fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// As [`LpmWriter::step`]; returns how many units it took.
    pub(crate) fn step_counted(&mut self, units: usize, now: Instant) -> usize {
        let units = units.max(1);
        match self.owed.take() {
            None => 0,
            Some(OwedSubtree::Root(next, last)) => self.step_root(next, last, units, now),
            Some(OwedSubtree::Lines(owed)) => self.step_lines(owed, units, now),
        }
    }

    fn step_root(&mut self, mut next: u16, last: u16, units: usize, now: Instant) -> usize {
        // Eight words of entries into which nothing is pushed.
        const BLOCK: usize = 32;
        let mut left = units.max(BLOCK);
        loop {
            self.words += 1;
            let end = last.min(next | (POSITIONS - 1) as u16);
            // There is room for what it takes: it was made sure of before.
            let shown = self.paint_root((next, end), left, now);
            let (stopped, rest) = shown.unwrap_or((None, left));
            left = rest;
            next = match stopped {
                Some(from) => from,
                None if end == last => return units.saturating_sub(left),
                None => end + 1,
            };
            if left == 0 {
                self.owed = Some(OwedSubtree::Root(next, last));
                return units;
            }
        }
    }

    fn step_lines(&mut self, mut owed: OwedPush<A>, units: usize, now: Instant) -> usize {
        let mut left = units;
        while owed.depth > 0 {
            if left == 0 {
                self.owed = Some(OwedSubtree::Lines(owed));
                return units;
            }
            left = left.saturating_sub(self.push_one(&mut owed, now));
        }
        if owed.to_show {
            for q in touched(owed.prefix) {
                // There is room for it: it was made sure of before.
                let _ = self.paint(TrieNodeId::Line(owed.line), q, now);
            }
        }
        units - left
    }

    /// One child of the line that the way has come to. Returns the units that it took.
    fn push_one(&mut self, owed: &mut OwedPush<A>, now: Instant) -> usize {
        const LOOK: usize = 1;
        const CHANGE: usize = 16;
        let is_first = owed.depth == 1;
        let last = if is_first { span(owed.prefix).1 } else { u8::MAX };
        let Some((line, next)) = owed.way.get_mut(owed.depth - 1) else { return LOOK };
        let found = self.lines.get(*line).and_then(|node| {
            let (at, child) = node.children.get(*next).filter(|(at, _)| *at <= last)?;
            Some((node.heap.longest(*at), node.fallback, *child))
        });
        let Some((own, fallback, child)) = found else {
            owed.depth -= 1;
            return LOOK;
        };
        *next += 1;
        let value = own.unwrap_or(fallback);
        let known = self.lines.get(child).map_or(value, |node| node.fallback);
        if (own.is_some() && !is_first) || (known == value && !owed.all) {
            return LOOK;
        }
        self.inherit(child, value, now);
        if let Some(place) = owed.way.get_mut(owed.depth) {
            *place = (child, 0);
            owed.depth += 1;
        }
        CHANGE
    }

    /// Completes the pending work.
    pub(super) fn finish(&mut self, now: Instant) {
        while self.step(usize::MAX, now) == PushProgress::More {}
    }
}
