//! Which node leads to which: how a prefix's node is found, made, and taken away.
//!
//! Part of [`LpmWriter`]: called by `writer.rs`. A chain of new nodes is complete before one store
//! leads to it; nodes that have become empty are unlinked by one store, then retired.

use floodwall_base::{Instant, Prefix};
use floodwall_sync::qsbr::Policy;
use floodwall_sync::shim::atomic::Ordering::Relaxed;

use super::capacity::UpdateError;
use super::heap::STRIDE;
use super::layout::{TOP, halves, root_index, second};
use super::node::{TrieNode, TrieNodeId, heap_index, level, position};
use super::root::Root;
use super::table::{LpmFamily, ask_for};
use super::word::{LineWords as _, POSITIONS, SlotWord, WORDS};
use super::writer::LpmWriter;

/// Nodes from the top to the end of an address.
const CHAIN: usize = 16;

impl<A: LpmFamily, P: Policy> LpmWriter<A, P> {
    pub(super) fn node(&self, id: TrieNodeId) -> Option<&TrieNode> {
        match id {
            TrieNodeId::Direct(block) => self.directs.get(block),
            TrieNodeId::Line(line) => self.lines.get(line),
        }
    }

    pub(super) fn node_mut(&mut self, id: TrieNodeId) -> Option<&mut TrieNode> {
        match id {
            TrieNodeId::Direct(block) => self.directs.get_mut(block),
            TrieNodeId::Line(line) => self.lines.get_mut(line),
        }
    }

    const fn id(level: u8, number: u32) -> TrieNodeId {
        if level < A::LINES_FROM { TrieNodeId::Direct(number) } else { TrieNodeId::Line(number) }
    }

    /// The node in which `prefix` ends; else the lowest above it, and its level.
    pub(super) fn find(&self, prefix: Prefix<A>) -> Result<TrieNodeId, (TrieNodeId, u8)> {
        let (mut id, mut at) = (TrieNodeId::Direct(TOP), 0);
        while at < level(prefix) {
            match self.below(id, position(prefix, at)) {
                0 => return Err((id, at)),
                below => id = Self::id(at + STRIDE, below),
            }
            at += STRIDE;
            if let TrieNodeId::Line(line) = id {
                self.ask_for(line, position(prefix, at));
            }
        }
        Ok(id)
    }

    /// The child below a position of a node; 0 for nothing.
    fn below(&self, id: TrieNodeId, position: u8) -> u32 {
        match id {
            // Of direct blocks readers have it, and an access finds it.
            TrieNodeId::Direct(TOP) => second(position),
            TrieNodeId::Direct(block) => match root_index(block, position) {
                Some(at) => self.below_root(at),
                None => {
                    let cell = self.table.cell(block, usize::from(position));
                    halves(cell.map_or(0, |cell| cell.load(Relaxed))).0
                }
            },
            TrieNodeId::Line(line) => self.lines.get(line).map_or(0, |node| node.child(position)),
        }
    }

    /// Prefetches what a change of a line looks at.
    fn ask_for(&self, line: u32, position: u8) {
        ask_for(&self.table.lines, line as usize);
        if let Some(node) = self.lines.get(line) {
            node.ask_for(position);
        }
    }

    /// Makes the node for `prefix`, with `value` in it, and those between it and `above`.
    pub(super) fn build(
        &mut self,
        prefix: Prefix<A>,
        value: u32,
        (above, from): (TrieNodeId, u8),
        now: Instant,
    ) -> Result<(), UpdateError> {
        let last = level(prefix);
        let direct = |level: &u8| *level < A::LINES_FROM;
        let directs = (from + STRIDE..=last).step_by(usize::from(STRIDE)).filter(direct).count();
        if self.directs.room() < directs {
            return Err(UpdateError::Full);
        }
        let fallback = self.inherited_below(above, position(prefix, from));
        let mut below = self.new_node(last, fallback)?;
        if let Some(node) = self.node_mut(below) {
            node.heap.insert(heap_index(prefix), value);
        }
        self.paint_all(below, now)?;
        for level in (from + STRIDE..last).step_by(usize::from(STRIDE)).rev() {
            let up = self.new_node(level, fallback)?;
            if let Some(node) = self.node_mut(up) {
                node.set_child(position(prefix, level), below.number());
            }
            self.paint_all(up, now)?;
            below = up;
        }
        self.link(above, position(prefix, from), below.number(), now)
    }

    /// Lets a position of a node lead to a node below; to none with number 0.
    fn link(
        &mut self,
        id: TrieNodeId,
        at: u8,
        number: u32,
        now: Instant,
    ) -> Result<(), UpdateError> {
        if let Some(node) = self.node_mut(id) {
            node.set_child(at, number);
        }
        self.paint(id, usize::from(at) / POSITIONS, now)
    }

    /// Takes away the node in which `prefix` ended, which is empty, and those above that are empty
    /// without it.
    pub(super) fn unlink(&mut self, prefix: Prefix<A>, now: Instant) -> Result<(), UpdateError> {
        let mut chain = [(TrieNodeId::Direct(TOP), 0_u8); CHAIN];
        let mut len = 0_usize;
        let (mut id, mut at) = (TrieNodeId::Direct(TOP), 0);
        for place in &mut chain {
            *place = (id, position(prefix, at));
            if at == level(prefix) {
                break;
            }
            len += 1;
            let below = self.below(id, position(prefix, at));
            at += STRIDE;
            id = Self::id(at, below);
        }
        // The lowest node that stays: those with a fixed place always do.
        let mut stays = len;
        while let Some((up, at)) = stays.checked_sub(1).and_then(|up| chain.get(up)).copied() {
            stays -= 1;
            let Some(node) = self.node_mut(up) else { break };
            node.set_child(at, 0);
            if !node.is_empty() || up.is_fixed() {
                break;
            }
        }
        let Some((id, at)) = chain.get(stays).copied() else { return Ok(()) };
        self.paint(id, usize::from(at) / POSITIONS, now)?;
        for (gone, _) in chain.get(stays + 1..=len).unwrap_or_default() {
            self.bury(*gone, now);
        }
        Ok(())
    }

    fn new_node(&mut self, level: u8, fallback: u32) -> Result<TrieNodeId, UpdateError> {
        if level < A::LINES_FROM {
            return self.directs.take().map(TrieNodeId::Direct).ok_or(UpdateError::Full);
        }
        // What the root matches stands in the first level of lines, and not below.
        let fallback = if A::INHERITS || level == A::LINES_FROM { fallback } else { 0 };
        self.new_line(fallback).map(TrieNodeId::Line)
    }

    /// A line with nothing in it, which inherits `fallback`.
    pub(super) fn new_line(&mut self, fallback: u32) -> Result<u32, UpdateError> {
        let line = self.lines.take().ok_or(UpdateError::Full)?;
        if let Some(node) = self.lines.get_mut(line) {
            node.fallback = fallback;
        }
        self.show_inherited(line, fallback);
        if let Some(words) = self.table.lines.get(line as usize) {
            (0..WORDS).for_each(|q| words.publish(q, SlotWord::EMPTY));
        }
        Ok(line)
    }

    /// What a node inherits that is to hang at a position of `above`.
    fn inherited_below(&self, above: TrieNodeId, at: u8) -> u32 {
        match above {
            TrieNodeId::Line(line) if A::INHERITS => self
                .lines
                .get(line)
                .map_or(0, |node| node.heap.longest(at).unwrap_or(node.fallback)),
            TrieNodeId::Direct(block) if A::Root::PUSHES => self.matched(block, at),
            _ => 0,
        }
    }
}
