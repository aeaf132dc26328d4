//! Slots that hold one value for many words: a word with 32 positions that all lead to one value
//! needs no block of its own.
//!
//! Called by `paint.rs`. Invariant: the count of a slot is that of the words that lead to it.

use std::collections::HashMap;

/// Slots below this are found by their value itself.
const LOW: usize = 1 << 16;

/// Where a value's slot is, and how many words lead to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotUse {
    pub(super) at: u32,
    pub(super) words: u32,
}

/// The slots in use by shared values, with reference counts.
#[derive(Debug, Default)]
pub(super) struct SharedSlots {
    low: Vec<SlotUse>,
    high: HashMap<u32, SlotUse>,
}

impl SharedSlots {
    /// The slot of a value that some word leads to.
    pub(super) fn find(&mut self, slot: u32) -> Option<&mut SlotUse> {
        let found = match slot as usize {
            low if low < LOW => self.low.get_mut(low),
            _ => self.high.get_mut(&slot),
        };
        found.filter(|found| found.words != 0)
    }

    /// The first word leads to a new slot.
    pub(super) fn add(&mut self, slot: u32, at: u32) {
        let new = SlotUse { at, words: 1 };
        let low = slot as usize;
        if low >= LOW {
            self.high.insert(slot, new);
            return;
        }
        if self.low.len() <= low {
            self.low.resize(low + 1, SlotUse::default());
        }
        if let Some(place) = self.low.get_mut(low) {
            *place = new;
        }
    }

    /// One word less leads there; the slot, if it was the last.
    pub(super) fn release(&mut self, slot: u32) -> Option<u32> {
        let found = self.find(slot)?;
        found.words -= 1;
        let (at, words) = (found.at, found.words);
        if words == 0 {
            self.high.remove(&slot);
        }
        (words == 0).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_when_its_last_word_is_gone() {
        for slot in [5, 1 << 20] {
            let mut shared = SharedSlots::default();
            assert!(shared.find(slot).is_none());
            shared.add(slot, 77);
            shared.find(slot).unwrap().words += 1;
            assert_eq!(shared.release(slot), None);
            assert_eq!(shared.release(slot), Some(77));
            assert!(shared.find(slot).is_none());
            assert_eq!(shared.release(slot), None);
        }
    }
}
