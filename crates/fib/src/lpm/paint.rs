//! From the writer's record of a node to what readers see of it.
//!
//! Part of [`LpmWriter`]: called by `links.rs`, `push.rs` and `writer.rs`. Order of each word: the
//! block is written, one store shows it, what it replaces waits for its grace period.

use floodwall_base::Instant;
use floodwall_sync::qsbr::Policy;
use floodwall_sync::shim::atomic::Ordering::{Relaxed, Release};

use super::capacity::UpdateError;
use super::layout::first;
use super::node::{HeldNode, TrieNode, TrieNodeId};
use super::runs::{SlotRun, SlotRuns};
use super::slots::{Slots, shown};
use super::table::LpmFamily;
use super::word::{LineWords as _, POSITIONS, SlotWord, WORDS};
use super::writer::{LpmWriter, RemovedRoute};

impl<A: LpmFamily, P: Policy> LpmWriter<A, P> {
    /// Shows every word of a node anew.
    pub(super) fn paint_all(&mut self, id: TrieNodeId, now: Instant) -> Result<(), UpdateError> {
        (0..WORDS).try_for_each(|q| self.paint(id, q, now))
    }

    /// Shows one word of a node anew.
    pub(super) fn paint(
        &mut self,
        id: TrieNodeId,
        q: usize,
        now: Instant,
    ) -> Result<(), UpdateError> {
        self.words += 1;
        match id {
            TrieNodeId::Direct(block) => match first(block) {
                Some(byte) => {
                    let from = u16::from(byte) << 8 | (q * POSITIONS) as u16;
                    let to = from | (POSITIONS - 1) as u16;
                    _ = self.paint_root((from, to), usize::MAX, now)?;
                }
                None => self.paint_direct(block, q),
            },
            TrieNodeId::Line(_) if self.loading => {}
            TrieNodeId::Line(line) => self.paint_line(line, q, now)?,
        }
        Ok(())
    }

    /// Shows a word of a direct block of the third byte.
    fn paint_direct(&self, block: u32, q: usize) {
        let Some(node) = self.directs.get(block) else { return };
        let (mut painted, mut below) = ([0; POSITIONS], [0; POSITIONS]);
        node.heap.paint(q, &mut painted);
        for (at, number) in node.children_of(q).1 {
            below.get_mut(usize::from(at & 31)).into_iter().for_each(|place| *place = *number);
        }
        for (n, (value, child)) in painted.into_iter().zip(below).enumerate() {
            let entry = u64::from(child) | u64::from(shown(value)) << 32;
            if let Some(cell) = self.table.cell(block, q * POSITIONS + n)
                && cell.load(Relaxed) != entry
            {
                cell.store(entry, Release);
            }
        }
    }

    fn paint_line(&mut self, line: u32, q: usize, now: Instant) -> Result<(), UpdateError> {
        let Some(node) = self.lines.get(line) else { return Ok(()) };
        let old = node.held.get(q).copied().unwrap_or_default();
        let (word, held) = self.write(&SlotRuns::of(node, q))?;
        let Some(words) = self.table.lines.get(line as usize) else { return Ok(()) };
        if words.own(q) != word {
            words.publish(q, word);
        }
        if let Some(place) = self.lines.get_mut(line).and_then(|n| n.held.get_mut(q)) {
            *place = held;
        }
        self.let_go(old, now);
        Ok(())
    }

    /// A word for these runs.
    fn write(&mut self, runs: &SlotRuns) -> Result<(SlotWord, HeldNode), UpdateError> {
        if let [run] = *runs.as_slice()
            && let Some(slot) = A::Slots::plain(run, &self.living)
        {
            let at = self.share(slot)?;
            let held =
                if run.inherited { HeldNode::Inherited(slot) } else { HeldNode::Shared(slot) };
            return Ok((SlotWord::new(0, at), held));
        }
        let size = A::Slots::size(runs, &self.living);
        let start = self.blocks.take(size).ok_or(UpdateError::Full)?;
        let base = self.table.slots.write(start, size, runs, &self.living);
        Ok((SlotWord::new(runs.starts, base), HeldNode::Block(start, size as u16)))
    }

    /// Where one more word finds this slot.
    fn share(&mut self, slot: u32) -> Result<u32, UpdateError> {
        if slot == 0 {
            return Ok(0);
        }
        if let Some(found) = self.shared.find(slot) {
            found.words += 1;
            return Ok(found.at);
        }
        let at = self.blocks.take(1).ok_or(UpdateError::Full)?;
        self.table.slots.store(at as usize, slot);
        self.shared.add(slot, at);
        Ok(at)
    }

    /// What a word held is no longer led to by it.
    pub(super) fn let_go(&mut self, held: HeldNode, now: Instant) {
        match held {
            HeldNode::Block(start, size) => self.retire(RemovedRoute::Block(start, size), now),
            HeldNode::Shared(slot) | HeldNode::Inherited(slot) => {
                if let Some(at) = self.shared.release(slot) {
                    self.retire(RemovedRoute::Block(at, 1), now);
                }
            }
        }
    }

    /// A line inherits something else: its empty positions are stored over, one slot at a time.
    pub(super) fn inherit(&mut self, line: u32, value: u32, now: Instant) {
        let Some(node) = self.lines.get_mut(line) else { return };
        node.fallback = value;
        // Before the slots that send walks to it.
        self.show_inherited(line, value);
        if self.loading {
            return;
        }
        let heir = SlotRun { value, child: 0, inherited: true };
        let Some(slot) = A::Slots::plain(heir, &self.living) else { return };
        self.words += WORDS as u64;
        for q in 0..WORDS {
            let Some(node) = self.lines.get(line) else { return };
            match node.held.get(q).copied().unwrap_or_default() {
                // There is room for one slot: it was made sure of before.
                HeldNode::Inherited(_) => _ = self.paint_line(line, q, now),
                HeldNode::Shared(_) => {}
                HeldNode::Block(..) => {
                    let base = self.table.lines.get(line as usize).map_or(0, |l| l.own(q).base());
                    for (n, run) in SlotRuns::of(node, q).as_slice().iter().enumerate() {
                        if run.inherited && run.child == 0 {
                            self.table.slots.store(base + n, slot);
                        }
                    }
                }
            }
        }
    }

    fn retire(&mut self, gone: RemovedRoute, now: Instant) {
        // Room for all that a change retires was made sure of before.
        if let Ok(slot) = self.limbo.reserve(0) {
            slot.retire(gone, now);
        }
    }

    /// Retires a node that nothing leads to any more.
    pub(super) fn bury(&mut self, id: TrieNodeId, now: Instant) {
        match id {
            TrieNodeId::Direct(block) => {
                if let Some(node) = self.directs.get_mut(block) {
                    *node = TrieNode::default();
                }
                self.retire(RemovedRoute::Direct(block), now);
            }
            TrieNodeId::Line(line) => {
                let node = self.lines.get_mut(line).map(core::mem::take);
                for held in node.into_iter().flat_map(|node| node.held) {
                    self.let_go(held, now);
                }
                self.retire(RemovedRoute::Line(line), now);
            }
        }
    }
}
