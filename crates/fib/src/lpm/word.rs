//! A word: 32 positions of a node, as the runs of equal entries among them.
//!
//! Called by both sides of `lpm.rs`. Low half: bit j (0 to 30) is set where position j + 1 begins a
//! run other than that of position j. High half: the index of the last run's slot. So the slot of
//! a position is a shift and a popcount away, and storing one word changes all 32 positions at
//! once. Bit 31 is always clear. Not here: what a slot holds (`slots.rs`).

use core::hint::cold_path;

use floodwall_sync::shim::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use floodwall_sync::{BitInstructions, CacheLine};

/// Words of a node: 8 bits of the address, 256 positions.
pub(super) const WORDS: usize = 8;
/// Positions of a word.
pub(super) const POSITIONS: usize = 32;

/// A node as readers see it: one cache line of words.
pub(super) type Line = CacheLine<[AtomicU64; WORDS]>;

/// What is done with a line.
pub(super) trait LineWords {
    /// The word for the positions with `q` as their upper three bits.
    fn word(&self, q: usize) -> SlotWord;
    /// Shows another word to readers; what it refers to must have been written before.
    fn publish(&self, q: usize, word: SlotWord);
    /// What the writer stored last.
    fn own(&self, q: usize) -> SlotWord;
}

impl LineWords for Line {
    #[inline(always)]
    fn word(&self, q: usize) -> SlotWord {
        // The mask is for the compiler: no index is beyond.
        SlotWord(self.0.get(q & (WORDS - 1)).map_or(0, |word| word.load(Acquire)))
    }

    #[inline(always)]
    fn publish(&self, q: usize, word: SlotWord) {
        if let Some(slot) = self.0.get(q) {
            slot.store(word.0, Release);
        }
    }

    #[inline(always)]
    fn own(&self, q: usize) -> SlotWord {
        SlotWord(self.0.get(q).map_or(0, |word| word.load(Relaxed)))
    }
}

/// A word of a line: the bitmap of runs of 32 positions, and the index of the last slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotWord(u64);

impl SlotWord {
    /// Nothing at any position: slot 0.
    pub(super) const EMPTY: Self = Self(0);

    /// Runs that begin where a bit of `starts` is set, and at position 0; the index of the first
    /// one's slot.
    pub(super) const fn new(starts: u32, base: u32) -> Self {
        let behind = starts >> 1;
        Self(behind as u64 | ((base + behind.count_ones()) as u64) << 32)
    }

    /// The index of the first run's slot.
    #[inline(always)]
    pub(super) const fn base(self) -> usize {
        self.slot(0)
    }

    /// The index of the slot of position `j` (taken modulo 32).
    #[inline(always)]
    pub(super) const fn slot(self, j: u32) -> usize {
        let behind = self.0 as u32 >> (j & 31);
        ((self.0 >> 32) as usize).wrapping_sub(behind.count_ones() as usize)
    }

    /// The same in code that is compiled for any processor, by the instruction of this one.
    #[inline(always)]
    pub(super) fn slot_by(self, j: u32, bits: Option<BitInstructions>) -> usize {
        let Some(bits) = bits else {
            cold_path();
            return self.slot(j);
        };
        ((self.0 >> 32) as usize).wrapping_sub(bits.ones_from(self.0 as u32, j) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_positions_slot_is_that_of_its_run() {
        let word = SlotWord::new(1 << 3 | 1 << 31, 100);
        let slots: Vec<usize> = (0..32).map(|j| word.slot(j)).collect();
        assert!(slots[..3].iter().all(|s| *s == 100));
        assert!(slots[3..31].iter().all(|s| *s == 101));
        assert_eq!(slots[31], 102);
        for bits in [None, BitInstructions::detect()] {
            assert!((0..32).all(|j| word.slot_by(j, bits) == slots[j as usize]));
        }
        assert_eq!(SlotWord::EMPTY.slot(17), 0);
    }
}
