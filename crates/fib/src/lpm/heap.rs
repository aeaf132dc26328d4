//! The prefixes that end in one node: the writer's own record of a stride.
//!
//! Called by `writer.rs`; readers never see it. A prefix of `depth` bits (1 to 8) within the stride
//! has the index 2^depth + its bits, as in a binary heap; the set of indices is a bitmap, and the
//! values are packed in the order of the indices. Invariant: one value for each bit that is set.

/// Bits of a stride.
pub(super) const STRIDE: u8 = 8;

/// The prefixes of one stride with their values. The set is one cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct SlotHeap {
    set: [u64; 8],
    /// How many bits are set before each word; of the last three words, since [`UPPER`].
    before: [u8; 8],
    values: Vec<u32>,
}

/// From this word on there may be more bits before a word than a byte counts.
const UPPER: usize = 4;

/// The heap's index of a prefix: its depth in the stride and its bits there.
#[inline]
pub(super) const fn index(depth: u8, bits: u8) -> usize {
    (1 << depth) | (bits >> (STRIDE - depth)) as usize
}

impl SlotHeap {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn is_set(&self, at: usize) -> bool {
        self.set.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// The number of values before that of `at`.
    #[inline]
    fn rank(&self, at: usize) -> usize {
        let (word, before) = (at / 64 % 8, |word: usize| self.before.get(word).copied());
        let lower = if word > UPPER { before(UPPER) } else { None };
        let part = self.set.get(word).map_or(0, |word| word & ((1 << (at % 64)) - 1));
        usize::from(lower.unwrap_or(0))
            + usize::from(before(word).unwrap_or(0))
            + part.count_ones() as usize
    }

    /// A bit of a word came (1) or went (-1): the counts of the words behind it follow.
    fn count(&mut self, word: usize, by: i8) {
        let end = if word < UPPER { UPPER + 1 } else { 8 };
        for before in self.before.get_mut(word + 1..end).unwrap_or_default() {
            *before = before.wrapping_add_signed(by);
        }
    }

    pub(super) fn value(&self, at: usize) -> Option<u32> {
        if self.is_set(at) { self.values.get(self.rank(at)).copied() } else { None }
    }

    /// The longest match of one position.
    pub(super) fn longest(&self, position: u8) -> Option<u32> {
        (1..=STRIDE).rev().find_map(|depth| self.value(index(depth, position)))
    }

    /// The value of a prefix or, where it has none, of the longest that holds it.
    pub(super) fn covering(&self, at: usize) -> Option<u32> {
        (0..=u32::from(STRIDE))
            .map(|up| at >> up)
            .take_while(|at| *at > 1)
            .find_map(|at| self.value(at))
    }

    /// Sets a value; returns the one before.
    pub(super) fn insert(&mut self, at: usize, value: u32) -> Option<u32> {
        let rank = self.rank(at);
        if self.is_set(at) {
            return self.values.get_mut(rank).map(|old| core::mem::replace(old, value));
        }
        if let Some(word) = self.set.get_mut(at / 64) {
            *word |= 1 << (at % 64);
            self.values.insert(rank, value);
            self.count(at / 64, 1);
        }
        None
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, at: usize) -> Option<u32> {
        if !self.is_set(at) {
            return None;
        }
        let rank = self.rank(at);
        if let Some(word) = self.set.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
        self.count(at / 64, -1);
        Some(self.values.remove(rank))
    }

    /// The longest match of each of the 32 positions with `q` as their upper three bits; 0 for
    /// none.
    pub(super) fn paint(&self, q: usize, painted: &mut [u32; 32]) {
        // At most three bits long: of all 32 alike, the longest counts.
        let whole = (1..=3).rev().find_map(|depth| self.value(1 << depth | q >> (3 - depth)));
        painted.fill(whole.unwrap_or(0));
        self.over::<16>(1 << 4 | q << 1, painted);
        self.over::<8>(1 << 5 | q << 2, painted);
        self.over::<4>(1 << 6 | q << 3, painted);
        self.over::<2>(1 << 7 | q << 4, painted);
        self.over::<1>(1 << 8 | q << 5, painted);
    }

    /// Paints the prefixes of one depth over those before: each `RUN` positions, the first at the
    /// index `first`.
    #[inline(always)]
    fn over<const RUN: usize>(&self, first: usize, painted: &mut [u32; 32]) {
        // Their count divides 64 and `first` is a multiple of it: they are in one word.
        let Some(word) = self.set.get(first / 64) else { return };
        let mut here = word >> (first % 64) & (u64::MAX >> (64 - 32 / RUN));
        if here == 0 {
            return;
        }
        let values = self.values.get(self.rank(first)..).unwrap_or_default();
        for value in values {
            let from = here.trailing_zeros() as usize * RUN;
            if let Some(positions) = painted.get_mut(from..from + RUN) {
                positions.fill(*value);
            }
            here &= here - 1;
            if here == 0 {
                return;
            }
        }
    }

    #[cfg(test)]
    /// Every prefix with its value: depth, bits in the upper end of a byte, value.
    fn iter(&self) -> impl Iterator<Item = (u8, u8, u32)> + '_ {
        let set = (2..512).filter(|at| self.is_set(*at));
        set.zip(&self.values).map(|(at, value)| {
            let depth = at.ilog2() as u8;
            (depth, (at << (STRIDE - depth)) as u8, *value)
        })
    }

    /// Bytes of the writer's memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + 4 * self.values.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn painting_equals_the_longest_match_of_each_position() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..200 {
            let (mut heap, mut list) = (SlotHeap::default(), Vec::new());
            for n in 1..next() % if round % 9 == 0 { 900 } else { 60 } {
                let depth = (next() % 8 + 1) as u8;
                let bits = (next() as u8) & (0xff_u16 << (8 - depth)) as u8;
                heap.insert(index(depth, bits), n as u32);
                list.retain(|(d, b, _)| (*d, *b) != (depth, bits));
                list.push((depth, bits, n as u32));
            }
            for _ in 0..next() % 10 {
                if let Some((depth, bits, value)) = list.pop() {
                    assert_eq!(heap.remove(index(depth, bits)), Some(value));
                }
            }
            for position in 0..256_usize {
                let fits = |(d, b, _): &&(u8, u8, u32)| position as u8 >> (8 - d) == b >> (8 - d);
                let best = list.iter().filter(fits).max_by_key(|(d, ..)| *d);
                let want = best.map_or(0, |(.., value)| *value);
                let mut painted = [7; 32];
                heap.paint(position / 32, &mut painted);
                assert_eq!(painted[position % 32], want);
                assert_eq!(heap.longest(position as u8).unwrap_or(0), want);
            }
            let mut all: Vec<_> = heap.iter().collect();
            all.sort_unstable();
            list.sort_unstable();
            assert_eq!(all, list);
        }
    }
}
