//! The writer's record of a node, and the place of a prefix among nodes.
//!
//! Called by the writer's files; readers never see it. Every node serves eight bits; those of the
//! first levels are direct blocks, the others lines. A prefix ends in the node of its last bit.

use floodwall_base::{Address, Prefix};
use floodwall_sync::prefetch;

use super::heap::{self, STRIDE, SlotHeap};
use super::layout::DYNAMIC_FROM;
use super::word::{POSITIONS, WORDS};

/// What readers see of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrieNodeId {
    /// A direct block.
    Direct(u32),
    /// A line.
    Line(u32),
}

impl TrieNodeId {
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Direct(number) | Self::Line(number) => number,
        }
    }

    /// Whether it has a fixed place, and so stays when it is empty.
    pub(super) const fn is_fixed(self) -> bool {
        matches!(self, Self::Direct(number) if number < DYNAMIC_FROM)
    }
}

/// What a word of a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldNode {
    /// One own value at all 32 positions: a slot that all such words share.
    Shared(u32),
    /// The same, of what the node inherits; of slot 0 there is no need to keep count.
    Inherited(u32),
    /// A block of its own: start and size.
    Block(u32, u16),
}

impl Default for HeldNode {
    fn default() -> Self {
        Self::Inherited(0)
    }
}

/// The writer's record of a node. Three cache lines, in an order in which most changes touch what
/// stands together.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct TrieNode {
    pub(super) heap: SlotHeap,
    /// The children, as position and number, by position.
    pub(super) children: Vec<(u8, u32)>,
    /// What it inherits from the lines above.
    pub(super) fallback: u32,
    pub(super) held: [HeldNode; WORDS],
}

const _: () = assert!(size_of::<TrieNode>() == 192);

impl TrieNode {
    /// Prefetches its three cache lines.
    #[inline]
    pub(super) fn ask_for(&self, position: u8) {
        prefetch(&self.heap);
        prefetch(&self.children);
        if let Some(held) = self.held.get(usize::from(position) / POSITIONS) {
            prefetch(held);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty() && self.children.is_empty()
    }

    /// The child below a position; 0 for nothing.
    pub(super) fn child(&self, position: u8) -> u32 {
        let found = self.children.binary_search_by_key(&position, |(at, _)| *at);
        found.ok().and_then(|n| self.children.get(n)).map_or(0, |(_, number)| *number)
    }

    pub(super) fn set_child(&mut self, position: u8, number: u32) {
        match (self.children.binary_search_by_key(&position, |(at, _)| *at), number) {
            (Ok(n), 0) => _ = self.children.remove(n),
            (Ok(n), number) => {
                if let Some(child) = self.children.get_mut(n) {
                    child.1 = number;
                }
            }
            (Err(_), 0) => {}
            (Err(n), number) => self.children.insert(n, (position, number)),
        }
    }

    /// The place in `children` of the first at `position` or behind it.
    pub(super) fn children_from(&self, position: u8) -> usize {
        self.children.partition_point(|(at, _)| *at < position)
    }

    /// The children below the 32 positions of a word, with their positions, in order.
    #[inline]
    pub(super) fn children_of(&self, q: usize) -> (u32, &[(u8, u32)]) {
        if self.children.is_empty() {
            return (0, &[]);
        }
        let first = q * POSITIONS;
        let here = self.children.get(self.children_from(first as u8)..).unwrap_or_default();
        let here_in = |(at, _): &&(u8, u32)| usize::from(*at) < first + POSITIONS;
        let count = here.iter().take_while(here_in).count();
        let here = here.get(..count).unwrap_or_default();
        (here.iter().fold(0, |mask, (at, _)| mask | 1 << (at & 31)), here)
    }

    /// Bytes of the writer's memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() - size_of::<SlotHeap>() + self.heap.bytes() + 8 * self.children.capacity()
    }
}

/// The nodes of one kind, by number.
#[derive(Debug)]
pub(super) struct NodeArena {
    all: Vec<TrieNode>,
    free: Vec<u32>,
    max: usize,
    reserved: usize,
}

impl NodeArena {
    /// At most `max`, of which the first `reserved` are never handed out.
    pub(super) fn new(max: usize, reserved: usize) -> Self {
        // One that is made later moves none of the others: that would be milliseconds in a call.
        let mut all = Vec::with_capacity(max.max(reserved));
        all.extend((0..reserved).map(|_| TrieNode::default()));
        Self { all, free: Vec::new(), max, reserved }
    }

    pub(super) fn get(&self, number: u32) -> Option<&TrieNode> {
        self.all.get(number as usize)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut TrieNode> {
        self.all.get_mut(number as usize)
    }

    /// How many more there may be.
    pub(super) fn room(&self) -> usize {
        self.free.len() + self.max.saturating_sub(self.all.len())
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        if self.all.len() >= self.max {
            return None;
        }
        self.all.push(TrieNode::default());
        Some(self.all.len() as u32 - 1)
    }

    /// Gives a number back that is not referenced any more.
    pub(super) fn give(&mut self, number: u32) {
        self.free.push(number);
    }

    /// How many are in use or wait for a grace period, and how many ever were.
    pub(super) fn used(&self) -> (usize, usize) {
        let ever = self.all.len() - self.reserved;
        (ever - self.free.len(), ever)
    }

    pub(super) fn numbers(&self) -> core::ops::Range<u32> {
        self.reserved as u32..self.all.len() as u32
    }

    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(TrieNode::bytes).sum()
    }
}

/// The first bit that the node serves in which a prefix ends.
pub(super) fn level<A: Address>(prefix: Prefix<A>) -> u8 {
    prefix.len().saturating_sub(1) / STRIDE * STRIDE
}

/// The byte of a prefix that a node of this level looks at.
pub(super) fn position<A: Address>(prefix: Prefix<A>, level: u8) -> u8 {
    (prefix.addr().to_bits_aligned() >> (120 - level)) as u8
}

/// Where it stands in the heap of its node.
pub(super) fn heap_index<A: Address>(prefix: Prefix<A>) -> usize {
    let level = level(prefix);
    heap::index(prefix.len() - level, position(prefix, level))
}

/// The first and the last position of its node that it covers.
pub(super) fn span<A: Address>(prefix: Prefix<A>) -> (u8, u8) {
    let level = level(prefix);
    let (first, bits) = (position(prefix, level), prefix.len() - level);
    (first, first | (255_u16 >> bits) as u8)
}

/// The words of its node that it covers, in part or whole.
pub(super) fn touched<A: Address>(prefix: Prefix<A>) -> core::ops::RangeInclusive<usize> {
    let (first, last) = span(prefix);
    usize::from(first) / POSITIONS..=usize::from(last) / POSITIONS
}
