//! Lines for what ends within the root: of IPv4, where an entry of the root is a line and no more.
//!
//! Part of [`LpmWriter`]: called by `paint.rs` and `push.rs`. Each line of the first level shows
//! what its entry's 16 bits match at every position that has nothing longer. An entry without a
//! node of its own leads to a *flat* line, which shows one value everywhere and belongs to all
//! such entries of that value; of no value there is line 0. Invariant: the count of a flat line is
//! that of the entries that lead to it, so there are at most as many as there are values among
//! prefixes of 16 bits and less.

use floodwall_base::Instant;
use floodwall_sync::qsbr::Policy;
use floodwall_sync::shim::atomic::Ordering::{Relaxed, Release};

use super::capacity::UpdateError;
use super::layout::{TOP, first, root_index, second};
use super::node::TrieNodeId;
use super::root::Root;
use super::slots::shown;
use super::table::LpmFamily;
use super::word::POSITIONS;
use super::writer::LpmWriter;

/// Of what a line inherits: it is a flat one.
const FLAT: u32 = 1 << 31;

/// Units of showing a word of entries, without what is pushed into lines.
const WORD: usize = 4;
/// Units of pushing a value into a line.
const PUSH: usize = 16;

impl<A: LpmFamily, P: Policy> LpmWriter<A, P> {
    /// The node below an entry of the root; 0 for none, and for a flat line.
    pub(super) fn below_root(&self, at: usize) -> u32 {
        let link = self.table.root.link(at);
        if self.is_flat(link) { 0 } else { link }
    }

    fn is_flat(&self, line: u32) -> bool {
        let inherited = self.table.inherited.get(line as usize);
        inherited.is_some_and(|value| value.load(Relaxed) & FLAT != 0)
    }

    /// What a line inherits, for look-ups that do not find it in its slots.
    pub(super) fn show_inherited(&self, line: u32, value: u32) {
        if let Some(place) = self.table.inherited.get(line as usize) {
            place.store(shown(value), Release);
        }
    }

    /// What the first 16 bits match of the entry at this position of a block of the second byte.
    pub(super) fn matched(&self, block: u32, position: u8) -> u32 {
        let own = self.directs.get(block).and_then(|node| node.heap.longest(position));
        own.or_else(|| self.matched_above(block)).unwrap_or(0)
    }

    /// What the first byte of a block of the second matches.
    fn matched_above(&self, block: u32) -> Option<u32> {
        self.directs.get(TOP)?.heap.longest(first(block)?)
    }

    /// Shows the entries `from` to `to`, both of one word of a block of the second byte, until
    /// `units` are used up. Returns the first that was not shown, and how many units are left.
    pub(super) fn paint_root(
        &mut self,
        (from, to): (u16, u16),
        units: usize,
        now: Instant,
    ) -> Result<(Option<u16>, usize), UpdateError> {
        let block = second((from >> 8) as u8);
        let q = usize::from(from & 255) / POSITIONS;
        let (mut painted, mut below) = ([0; POSITIONS], [0; POSITIONS]);
        let above = self.matched_above(block).unwrap_or(0);
        let Some(node) = self.directs.get(block) else { return Ok((None, units)) };
        node.heap.paint(q, &mut painted);
        for (at, number) in node.children_of(q).1 {
            below.get_mut(usize::from(at & 31)).into_iter().for_each(|place| *place = *number);
        }
        let mut left = units.saturating_sub(WORD);
        for entry in from..=to {
            let n = usize::from(entry) % POSITIONS;
            let value = painted.get(n).copied().filter(|value| *value != 0).unwrap_or(above);
            let child = below.get(n).copied().unwrap_or(0);
            let Some(at) = root_index(block, entry as u8) else { break };
            let pushed = self.show_entry(at, child, value, now)?;
            left = left.saturating_sub(pushed);
            if pushed != 0 && left == 0 && entry != to {
                return Ok((Some(entry + 1), 0));
            }
        }
        Ok((None, left))
    }

    /// Shows one entry of the root. Returns the units that it took, the word's apart.
    fn show_entry(
        &mut self,
        at: usize,
        child: u32,
        value: u32,
        now: Instant,
    ) -> Result<usize, UpdateError> {
        if !A::Root::PUSHES {
            self.table.root.store(at, child, shown(value));
            return Ok(0);
        }
        let old = self.table.root.link(at);
        let fallback = |line: u32| self.lines.get(line).map_or(0, |node| node.fallback);
        let was_flat = old == 0 || self.is_flat(old);
        let mut units = 0;
        let new = if child == 0 {
            if was_flat && fallback(old) == value {
                return Ok(0);
            }
            self.flat(value, now)?
        } else {
            if fallback(child) != value {
                self.inherit(child, value, now);
                units = PUSH;
            }
            child
        };
        self.table.root.store(at, new, 0);
        if was_flat && new != old {
            self.leave_flat(old, now);
        }
        Ok(units)
    }

    /// The flat line of a value, for one more entry.
    fn flat(&mut self, value: u32, now: Instant) -> Result<u32, UpdateError> {
        if value == 0 {
            return Ok(0);
        }
        if let Some(found) = self.flat.find(value) {
            found.words += 1;
            return Ok(found.at);
        }
        let line = self.new_line(value)?;
        if let Some(place) = self.table.inherited.get(line as usize) {
            place.store(FLAT | shown(value), Release);
        }
        self.flat.add(value, line);
        self.paint_all(TrieNodeId::Line(line), now)?;
        Ok(line)
    }

    /// One entry less leads to a flat line.
    fn leave_flat(&mut self, line: u32, now: Instant) {
        let Some(value) = self.lines.get(line).map(|node| node.fallback) else { return };
        if line != 0
            && let Some(gone) = self.flat.release(value)
        {
            self.bury(TrieNodeId::Line(gone), now);
        }
    }
}
