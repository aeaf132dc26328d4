//! `CacheBucket`: the header of one row: which of its fixed slots are in use, their hash tags, and
//! their age order.
//!
//! Used by `cache.rs`. It is one cache line, separate from the entries, so that a look-up touches
//! only entries with a matching tag. `order` is always a permutation of the slots: the `len` slots
//! from `head` on are in use, oldest first; the others are free. The oldest slot is found and
//! reused in constant time, and there are no chains. Not here: the contents of the slots.

use floodwall_base::limits::SYN_CACHE_WAYS as WAYS;

/// Number of `u64` words that hold the tags, eight tags each; the last two bytes belong to no
/// slot and stay 0.
const TAG_WORDS: usize = 4;

/// The header of one row of the cache: hash tags, occupancy and age order of its slots.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct CacheBucket {
    /// Some bits of each slot's hash; 0 where it is free.
    tags: [[u8; 8]; TAG_WORDS],
    order: [u8; WAYS],
    head: u8,
    len: u8,
}

const _: () = assert!(size_of::<CacheBucket>() == 64 && WAYS <= TAG_WORDS * 8);

impl Default for CacheBucket {
    fn default() -> Self {
        let mut order = [0; WAYS];
        order.iter_mut().zip(0..).for_each(|(slot, n)| *slot = n);
        Self { tags: [[0; 8]; TAG_WORDS], order, head: 0, len: 0 }
    }
}

impl CacheBucket {
    /// Number of slots in use.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// The tag of a hash; never 0.
    #[inline]
    pub(crate) const fn tag(hash: u64) -> u8 {
        match (hash >> 56) as u8 {
            0 => 1,
            tag => tag,
        }
    }

    /// The slots in use that have that tag.
    #[inline]
    pub(crate) fn with_tag(&self, tag: u8) -> impl Iterator<Item = u8> + use<> {
        bits(self.equal(tag))
    }

    /// The slots in use.
    #[inline]
    pub(crate) fn taken(&self) -> impl Iterator<Item = u8> + use<> {
        bits(!self.equal(0) & ((1 << WAYS) - 1))
    }

    /// A bitmask of the tag bytes equal to this one. Eight tags at a time, of which mostly none is.
    #[inline]
    fn equal(&self, tag: u8) -> u32 {
        let wanted = u64::from_le_bytes([tag; 8]);
        let mut found = 0;
        for (n, eight) in self.tags.iter().enumerate() {
            let others = u64::from_le_bytes(*eight) ^ wanted;
            if has_zero_byte(others) {
                found |= zero_bytes(others) << (8 * n);
            }
        }
        found
    }

    /// The slot in use for the longest time.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u8> {
        (self.len > 0).then(|| self.at(0))
    }

    /// The slot that is used next: a free one, or the oldest where no free one may be used.
    /// `None` where there is neither.
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

    /// Reuses the slot of the oldest entry, which becomes the newest.
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

    /// Frees a slot; no effect where it is free already. Shifts the row's order by at most one
    /// place.
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

/// Whether any byte is zero.
#[inline]
const fn has_zero_byte(word: u64) -> bool {
    // A borrow reaches a byte only from one below that is zero.
    word.wrapping_sub(u64::from_le_bytes([1; 8])) & !word & u64::from_le_bytes([0x80; 8]) != 0
}

/// A bitmask of the bytes that are zero; bit 0 is the lowest byte.
#[inline]
const fn zero_bytes(word: u64) -> u32 {
    const LOW: u64 = u64::from_le_bytes([0x7f; 8]);
    // No sum of seven bits carries into the next byte, so the top bits are exact.
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
        assert_eq!(size_of::<CacheBucket>(), 64);
        assert!((0..=u8::MAX).all(|top| CacheBucket::tag(u64::from(top) << 56) != 0));
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
            let (mut row, mut oracle) = (CacheBucket::default(), VecDeque::<(u8, u8)>::new());
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
