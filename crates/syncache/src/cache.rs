//! `Cache`: the bounded hash of half-open connections: find, claim, give back, and who is due.
//!
//! Called by `syn_cache.rs`. Three arrays taken at construction: the heads of the rows
//! (`bucket.rs`), when each slot is due, and the entries. The first two are 64 KiB together for the
//! 512 rows of the source and stay in a processor's own cache; of the entries, a megabyte, one line
//! is touched for each SYN. Invariants: a taken slot has an entry whose hash leads to its row; the
//! number of taken slots never exceeds the limit; a bit of `occupied` is set exactly where a row
//! has one. Not here: what an entry means, when it is sent again.
//!
//! # Under flood
//! Anyone fills it with SYNs. Bound: `SYN_CACHE_ENTRIES` of `SYN_CACHE_WAYS` in each of
//! `SYN_CACHE_ROWS`. Worst work of a SYN: one row's tags and one entry. The oldest of the row goes,
//! whose SYN-ACK stays good as a cookie: honest clients lose its retransmission. Counted as
//! `bucket_overflow` and `cache_overflow`.

use floodwall_base::{Instant, limits::SYN_CACHE_WAYS as WAYS};
use floodwall_sync::prefetch;

use crate::bucket::Bucket;
use crate::entry::Entry;

/// A slot of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    row: u32,
    slot: u8,
}

/// A slot that a newcomer has.
pub(crate) struct Claim {
    pub(crate) place: Place,
    /// Who had it before, if it was taken.
    pub(crate) evicted: Option<Entry>,
}

/// A moment in ticks of 2^26 ns, a fifteenth of a second; it wraps after 73 minutes, and no entry
/// lives for half a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tick(pub(crate) u16);

impl Tick {
    pub(crate) const SHIFT: u32 = 26;

    #[inline]
    pub(crate) const fn of(now: Instant) -> Self {
        Self((now.as_nanos() >> Self::SHIFT) as u16)
    }

    #[inline]
    pub(crate) const fn plus(self, ticks: u16) -> Self {
        Self(self.0.wrapping_add(ticks))
    }

    /// Ticks from `earlier` to here; negative where it lies ahead.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> i16 {
        self.0.wrapping_sub(earlier.0) as i16
    }
}

/// See the file's head.
pub(crate) struct Cache {
    heads: Box<[Bucket]>,
    dues: Box<[[Tick; WAYS]]>,
    entries: Box<[[Entry; WAYS]]>,
    occupied: Box<[u64]>,
    mask: u32,
    len: usize,
    limit: usize,
}

impl Cache {
    /// A cache of `rows` rows, rounded up to a power of two between 1 and 2^20, and of `limit`
    /// entries at most. Takes 2 KiB a row, and nothing ever after.
    pub(crate) fn new(rows: usize, limit: usize) -> Self {
        let rows = rows.clamp(1, 1 << 20).next_power_of_two();
        Self {
            heads: vec![Bucket::default(); rows].into(),
            dues: vec![[Tick::default(); WAYS]; rows].into(),
            entries: vec![[Entry::default(); WAYS]; rows].into(),
            occupied: vec![0; rows.div_ceil(64)].into(),
            mask: rows as u32 - 1,
            len: 0,
            limit: limit.min(rows * WAYS),
        }
    }

    /// How many are half open.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether the limit is reached.
    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// Bytes of it.
    pub(crate) const fn memory(&self) -> usize {
        let row = size_of::<Bucket>() + size_of::<[Tick; WAYS]>() + size_of::<[Entry; WAYS]>();
        self.heads.len() * row + self.occupied.len() * 8
    }

    /// The entry whose hash is `hash` and which is the one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(&Entry) -> bool) -> Option<Place> {
        let row = hash as u32 & self.mask;
        if !self.is_occupied(row) {
            return None;
        }
        let slots = self.heads.get(row as usize)?.with_tag(Bucket::tag(hash));
        let mut places = slots.map(|slot| Place { row, slot });
        places.find(|place| self.entry(*place).is_some_and(&is_it))
    }

    #[inline]
    pub(crate) fn entry(&self, Place { row, slot }: Place) -> Option<&Entry> {
        self.entries.get(row as usize)?.get(usize::from(slot))
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, Place { row, slot }: Place) -> Option<&mut Entry> {
        self.entries.get_mut(row as usize)?.get_mut(usize::from(slot))
    }

    #[inline]
    pub(crate) fn due(&self, Place { row, slot }: Place) -> Tick {
        let row = self.dues.get(row as usize);
        row.and_then(|row| row.get(usize::from(slot))).copied().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn set_due(&mut self, Place { row, slot }: Place, due: Tick) {
        let row = self.dues.get_mut(row as usize);
        if let Some(at) = row.and_then(|row| row.get_mut(usize::from(slot))) {
            *at = due;
        }
    }

    /// Says to the processor that the head of the row of that hash will be read soon, if it has
    /// anything to say.
    #[inline]
    pub(crate) fn expect_row(&self, hash: u64) {
        let row = hash as u32 & self.mask;
        if let Some(head) = self.heads.get(row as usize).filter(|_| self.is_occupied(row)) {
            prefetch(head);
        }
    }

    /// Whether a row has anything: 64 bytes say it for the 512 rows of the source, which stay in a
    /// processor's first cache where the heads do not.
    #[inline]
    fn is_occupied(&self, row: u32) -> bool {
        self.occupied.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 != 0)
    }

    /// Says to the processor that the line of the slot which a newcomer of that hash would have
    /// will be read and written soon.
    #[inline]
    pub(crate) fn expect_claim(&self, hash: u64) {
        let row = (hash as u32 & self.mask) as usize;
        let slot = self.heads.get(row).and_then(|head| head.next_taken(self.is_full()));
        let entry = slot.and_then(|slot| self.entries.get(row)?.get(usize::from(slot)));
        if let Some(entry) = entry {
            prefetch(entry);
        }
    }

    /// A slot for a newcomer: a free one, or the oldest's of its row. `None` where the cache is
    /// full and the row is empty, or where it may hold nothing.
    #[inline]
    pub(crate) fn claim(&mut self, hash: u64) -> Option<Claim> {
        let row = hash as u32 & self.mask;
        let (tag, head) = (Bucket::tag(hash), self.heads.get_mut(row as usize)?);
        let free = if self.len < self.limit { head.take_free(tag) } else { None };
        if let Some(slot) = free {
            self.len += 1;
            self.mark(row, true);
            return Some(Claim { place: Place { row, slot }, evicted: None });
        }
        let place = Place { row, slot: head.take_oldest(tag)? };
        Some(Claim { place, evicted: self.entry(place).copied() })
    }

    /// Frees a slot.
    #[inline]
    pub(crate) fn give_back(&mut self, Place { row, slot }: Place) {
        let Some(head) = self.heads.get_mut(row as usize) else { return };
        let before = head.len();
        head.give_back(slot);
        let after = head.len();
        self.len -= before - after;
        if after == 0 {
            self.mark(row, false);
        }
    }

    #[inline]
    fn mark(&mut self, row: u32, set: bool) {
        if let Some(word) = self.occupied.get_mut(row as usize / 64) {
            let bit = 1 << (row % 64);
            *word = if set { *word | bit } else { *word & !bit };
        }
    }

    /// The first row from `from` on that holds something. Looks at one word for 64 rows.
    pub(crate) fn next_row(&self, from: u32) -> Option<u32> {
        let first = from as usize / 64;
        for (n, word) in self.occupied.iter().enumerate().skip(first) {
            let seen = if n == first { u64::MAX << (from % 64) } else { u64::MAX };
            if word & seen != 0 {
                return Some(n as u32 * 64 + (word & seen).trailing_zeros());
            }
        }
        None
    }

    /// The first slot of a row that is due.
    pub(crate) fn due_in(&self, row: u32, now: Tick) -> Option<Place> {
        let head = self.heads.get(row as usize)?;
        let mut taken = head.taken().map(|slot| Place { row, slot });
        taken.find(|place| now.since(self.due(*place)) >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_the_source_takes_a_megabyte_and_holds_15_359() {
        let mut cache = Cache::new(512, 15_359);
        let per_row = size_of::<Bucket>() + size_of::<[Tick; WAYS]>() + size_of::<[Entry; WAYS]>();
        assert_eq!(per_row, 64 + 60 + 1920);
        let mut evicted = 0;
        // Every row in turn: the last claim of the last row finds the cache full.
        for n in 0..512 * 30 {
            evicted += usize::from(cache.claim(n).unwrap().evicted.is_some());
        }
        assert_eq!((cache.len(), evicted), (15_359, 1));
    }

    #[test]
    fn a_full_cache_gives_an_empty_row_nothing_and_a_cache_of_none_nobody() {
        let mut cache = Cache::new(2, 1);
        assert!(cache.claim(0).is_some() && cache.claim(1).is_none());
        assert!(cache.claim(2).unwrap().evicted.is_some(), "the row that has one evicts it");
        assert!(Cache::new(4, 0).claim(0).is_none());
    }

    #[test]
    fn rows_that_hold_something_are_found_and_no_others() {
        let mut cache = Cache::new(256, 7680);
        for row in [0, 63, 64, 200] {
            cache.claim(row).unwrap();
        }
        let all = core::iter::successors(cache.next_row(0), |r| cache.next_row(r + 1));
        assert_eq!(all.collect::<Vec<_>>(), [0, 63, 64, 200]);
    }

    #[test]
    fn ticks_wrap() {
        assert_eq!(Tick(3).since(Tick(u16::MAX)), 4);
        assert_eq!(Tick(u16::MAX).plus(5), Tick(4));
    }
}
