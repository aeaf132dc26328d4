//! `SlotRuns`: what 32 positions of a line show, as runs of equal ones.
//!
//! Called by `paint.rs` for each word that changes, and by `slots.rs`, which finds room for them.
//! A child is a run by itself, and so is what was inherited, beside any neighbours. Cost: some 200
//! instructions; it is most of what a change takes.

use super::node::TrieNode;
use super::word::POSITIONS;

/// A run of equal positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotRun {
    /// The longest match that ends in this node; 0 for none. See [`super::slots::EXPIRES`].
    pub(super) value: u32,
    /// The line of the node further down; 0 for none.
    pub(super) child: u32,
    /// What stands here came from above.
    pub(super) inherited: bool,
}

/// The runs of one word.
#[derive(Debug)]
pub struct SlotRuns {
    all: [SlotRun; POSITIONS],
    len: usize,
    /// Where they begin, the first left out.
    pub(super) starts: u32,
    /// All values together: what none of them has as a bit is no bit of this.
    pub(super) values: u32,
    /// Whether one of them is a child.
    pub(super) has_child: bool,
}

impl SlotRuns {
    const NONE: Self = Self {
        all: [SlotRun { value: 0, child: 0, inherited: false }; POSITIONS],
        len: 0,
        starts: 0,
        values: 0,
        has_child: false,
    };

    /// Those of one word of a node.
    #[inline]
    pub(super) fn of(node: &TrieNode, q: usize) -> Self {
        let mut painted = [0; POSITIONS];
        node.heap.paint(q, &mut painted);
        let (below, children) = node.children_of(q);
        // What a child falls back to is its own affair: it ends the runs on both sides.
        let mut starts = below | below << 1;
        let pairs = painted.iter().zip(painted.iter().skip(1)).zip(1_u32..);
        for ((before, here), j) in pairs {
            starts |= u32::from(before != here) << (j & 31);
        }
        starts &= !1;
        let (mut runs, mut children) = (Self::NONE, children.iter());
        let mut rest = starts | 1;
        while rest != 0 {
            let j = rest.trailing_zeros();
            rest &= rest - 1;
            let child = match below >> j & 1 {
                0 => 0,
                _ => children.next().map_or(0, |(_, number)| *number),
            };
            let own = painted.get(j as usize).copied().unwrap_or(0);
            let inherited = own == 0 && child == 0;
            let value = if inherited { node.fallback } else { own };
            runs.push(SlotRun { value, child, inherited });
        }
        runs.starts = starts;
        runs
    }

    #[inline(always)]
    fn push(&mut self, run: SlotRun) {
        self.values |= run.value;
        self.has_child |= run.child != 0;
        if let Some(place) = self.all.get_mut(self.len) {
            *place = run;
            self.len += 1;
        }
    }

    #[inline(always)]
    pub(super) fn as_slice(&self) -> &[SlotRun] {
        self.all.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
impl From<&[SlotRun]> for SlotRuns {
    fn from(all: &[SlotRun]) -> Self {
        let mut runs = Self::NONE;
        all.iter().for_each(|run| runs.push(*run));
        runs
    }
}
