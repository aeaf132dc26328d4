//! `Bucket`: the head of one row: which of its fixed slots are taken, by what, and in which order.
//!
//! Called by `cache.rs`. A cache line of its own, apart from the entries, so that a look at a row
//! touches no entry that it does not want. `order` is always a permutation of the slots: those from
//! `head` on, `len` of them, are taken, oldest first; the others are free. So the oldest is found
//! and reused in constant time, and nothing is ever a chain. Not here: what the slots hold.

use floodwall_base::limits::SYN_CACHE_WAYS as WAYS;

/// Words that the tags are, eight in each; the last two bytes are no slot's and stay 0.
const WORDS: usize = 4;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    /// Some bits of each slot's hash; 0 where it is free.
    tags: [[u8; 8]; WORDS],
    order: [u8; WAYS],
    head: u8,
    len: u8,
}

const _: () = assert!(size_of::<Bucket>() == 64 && WAYS <= WORDS * 8);

impl Default for Bucket {
    fn default() -> Self {
        let mut order = [0; WAYS];
        order.iter_mut().zip(0..).for_each(|(slot, n)| *slot = n);
        Self { tags: [[0; 8]; WORDS], order, head: 0, len: 0 }
    }
}

impl Bucket {
    /// How many slots are taken.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// The tag of a hash: never 0.
    #[inline]
    pub(crate) const fn tag(hash: u64) -> u8 {
        match (hash >> 56) as u8 {
            0 => 1,
            tag => tag,
        }
    }

    /// The taken slots with that tag.
    #[inline]
    pub(crate) fn with_tag(&self, tag: u8) -> impl Iterator<Item = u8> + use<> {
        bits(self.equal(tag))
    }

    /// The taken slots.
    #[inline]
    pub(crate) fn taken(&self) -> impl Iterator<Item = u8> + use<> {
        bits(!self.equal(0) & ((1 << WAYS) - 1))
    }

    /// A bit for each byte of the tags that is this one. Eight at a time, without a branch.
    #[inline]
    fn equal(&self, tag: u8) -> u32 {
        let wanted = u64::from_le_bytes([tag; 8]);
        let mut found = 0;
        for (n, eight) in self.tags.iter().enumerate() {
            found |= zero_bytes(u64::from_le_bytes(*eight) ^ wanted) << (8 * n);
        }
        found
    }

    /// The slot that was taken first.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u8> {
        (self.len > 0).then(|| self.at(0))
    }

    /// The slot that is taken next: a free one, or the oldest where none is to be taken. `None`
    /// where there is neither.
    #[inline]
    pub(crate) fn next_taken(&self, none_free: bool) -> Option<u8> {
        if none_free || self.len() == WAYS { self.oldest() } else { Some(self.at(self.len())) }
    }

    /// Takes a free slot; `None` where there is none.
    #[inline]
    pub(crate) fn take_free(&mut self, tag: u8) -> Option<u8> {
        if self.len() == WAYS {
            return None;
        }
        let slot = self.at(self.len());
        self.len += 1;
        self.set_tag(slot, tag);
        Some(slot)
    }

    /// Takes the slot of the oldest, which thereby becomes the newest.
    #[inline]
    pub(crate) fn take_oldest(&mut self, tag: u8) -> Option<u8> {
        let slot = self.oldest()?;
        if self.len() == WAYS {
            self.head = if self.head as usize + 1 == WAYS { 0 } else { self.head + 1 };
        } else {
            self.give_back(slot);
            return self.take_free(tag);
        }
        self.set_tag(slot, tag);
        Some(slot)
    }

    /// Frees a slot; nothing where it is free. Moves at most a row's order by one.
    #[inline]
    pub(crate) fn give_back(&mut self, slot: u8) {
        let len = self.len();
        let Some(place) = (0..len).find(|n| self.at(*n) == slot) else {
            return;
        };
        for n in place..len.saturating_sub(1) {
            let next = self.at(n + 1);
            self.put(n, next);
        }
        self.put(len - 1, slot);
        self.len -= 1;
        self.set_tag(slot, 0);
    }

    /// The slot at a place, counted from the oldest.
    #[inline]
    fn at(&self, n: usize) -> u8 {
        self.order.get(self.place(n)).copied().unwrap_or(0)
    }

    #[inline]
    fn put(&mut self, n: usize, slot: u8) {
        let place = self.place(n);
        if let Some(at) = self.order.get_mut(place) {
            *at = slot;
        }
    }

    #[inline]
    const fn place(&self, n: usize) -> usize {
        let place = self.head as usize + n;
        if place >= WAYS { place - WAYS } else { place }
    }

    #[inline]
    fn set_tag(&mut self, slot: u8, tag: u8) {
        if let Some(at) = self.tags.as_flattened_mut().get_mut(usize::from(slot)) {
            *at = tag;
        }
    }
}

/// A bit for each byte that is zero, the lowest byte's lowest.
#[inline]
const fn zero_bytes(word: u64) -> u32 {
    const LOW: u64 = u64::from_le_bytes([0x7f; 8]);
    // No sum of seven bits reaches the next byte, so that the top bits say it exactly.
    let tops = !(((word & LOW) + LOW) | word | LOW);
    // Each top bit, brought to the bottom of its byte, lands in the product's top byte.
    ((tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

/// The numbers of the bits that are set, lowest first.
#[inline]
fn bits(mut set: u32) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as u8)?;
        set &= set - 1;
        Some(lowest)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_is_one_cache_line_and_every_tag_says_taken() {
        assert_eq!(size_of::<Bucket>(), 64);
        assert!((0..=u8::MAX).all(|top| Bucket::tag(u64::from(top) << 56) != 0));
    }

    proptest! {
        #[test]
        fn bytes_that_are_zero_are_found_wherever_they_stand(
            bytes: [u8; 8], zero: [bool; 8],
        ) {
            let bytes: [u8; 8] =
                core::array::from_fn(|n| if zero[n] { 0 } else { bytes[n] });
            let wanted = (0..8).filter(|n| bytes[*n] == 0).fold(0, |set, n| set | 1 << n);
            prop_assert_eq!(zero_bytes(u64::from_le_bytes(bytes)), wanted);
        }

        #[test]
        fn a_row_keeps_the_order_of_a_queue(
            steps in proptest::collection::vec((0_u8..4, 0_u8..30, 1_u8..4), 0..300),
        ) {
            let (mut row, mut oracle) = (Bucket::default(), VecDeque::<(u8, u8)>::new());
            for (what, which, tag) in steps {
                match what {
                    0 => {
                        let slot = row.take_free(tag);
                        prop_assert_eq!(slot.is_some(), oracle.len() < WAYS);
                        oracle.extend(slot.map(|slot| (slot, tag)));
                    }
                    1 => {
                        let slot = row.take_oldest(tag);
                        let gone = oracle.pop_front();
                        prop_assert_eq!(slot, gone.map(|(slot, _)| slot));
                        oracle.extend(slot.map(|slot| (slot, tag)));
                    }
                    _ => {
                        row.give_back(which);
                        oracle.retain(|(slot, _)| *slot != which);
                    }
                }
                prop_assert_eq!(row.len(), oracle.len());
                prop_assert_eq!(row.oldest(), oracle.front().map(|(slot, _)| *slot));
                for tag in 1..4 {
                    let mut wanted: Vec<_> =
                        oracle.iter().filter(|e| e.1 == tag).map(|e| e.0).collect();
                    wanted.sort_unstable();
                    prop_assert_eq!(row.with_tag(tag).collect::<Vec<_>>(), wanted);
                }
                let mut slots: Vec<_> = oracle.iter().map(|(slot, _)| *slot).collect();
                slots.sort_unstable();
                let before = slots.len();
                slots.dedup();
                prop_assert_eq!(before, slots.len(), "no slot is given twice");
                prop_assert_eq!(row.taken().collect::<Vec<_>>(), slots);
            }
        }
    }
}
