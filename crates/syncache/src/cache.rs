//! `Cache`: the bounded hash table of half-open connections: look-up, insertion, removal, and which
//! entries are due.
//!
//! Used by `syn_cache.rs`. Three arrays are allocated at construction: the row headers
//! (`bucket.rs`), the time at which each slot is due, and the entries. The first two are 64 KiB
//! together for the default 512 rows and stay in the processor's cache; the entries take one
//! megabyte, of which a SYN touches one line. Invariants: the entry of a slot in use has a hash
//! that maps to its row; the number of slots in use never exceeds the limit; a bit of `occupied` is
//! set exactly where a row has an entry. Not here: the meaning of an entry and the time of its
//! retransmission.
//!
//! # Under flood
//! Any host fills it with SYNs. Bound: `SYN_CACHE_ENTRIES`, in `SYN_CACHE_ROWS` rows of
//! `SYN_CACHE_WAYS` slots. Worst work of a SYN: one row's tags and one entry. When full, the oldest
//! entry of the row is evicted; its SYN-ACK stays valid as a cookie, so honest clients lose only
//! its retransmission. Counted as `row_overflow` and `cache_overflow`.

use floodwall_base::{Instant, limits::SYN_CACHE_WAYS as WAYS};
use floodwall_sync::prefetch;

use crate::bucket::CacheBucket;
use crate::entry::SynEntry;

/// A slot of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheSlot {
    row: u32,
    slot: u8,
}

/// A slot that was claimed for a new entry.
pub(crate) struct SlotClaim {
    pub(crate) place: CacheSlot,
    /// The entry that was evicted from it, if it was in use.
    pub(crate) evicted: Option<SynEntry>,
}

/// A time in ticks of 2^26 ns, a fifteenth of a second. It wraps after 73 minutes; no entry
/// exists for longer than 64 seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CacheTick(pub(crate) u16);

impl CacheTick {
    pub(crate) const SHIFT: u32 = 26;

    #[inline]
    pub(crate) const fn of(now: Instant) -> Self {
        Self((now.as_nanos() >> Self::SHIFT) as u16)
    }

    #[inline]
    pub(crate) const fn plus(self, ticks: u16) -> Self {
        Self(self.0.wrapping_add(ticks))
    }

    /// Ticks from `earlier` to this one; negative where `earlier` is in the future.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> i16 {
        self.0.wrapping_sub(earlier.0) as i16
    }
}

/// The bounded table of half-open connections: row headers, due times and entries.
pub(crate) struct Cache {
    heads: Box<[CacheBucket]>,
    dues: Box<[[CacheTick; WAYS]]>,
    entries: Box<[[SynEntry; WAYS]]>,
    occupied: Box<[u64]>,
    mask: u32,
    len: usize,
    limit: usize,
}

impl Cache {
    /// A cache of `rows` rows, rounded up to a power of two between 1 and 2^20, with at most
    /// `limit` entries. Allocates 2 KiB per row, and nothing afterwards.
    pub(crate) fn new(rows: usize, limit: usize) -> Self {
        let rows = rows.clamp(1, 1 << 20).next_power_of_two();
        Self {
            heads: vec![CacheBucket::default(); rows].into(),
            dues: vec![[CacheTick::default(); WAYS]; rows].into(),
            entries: vec![[SynEntry::default(); WAYS]; rows].into(),
            occupied: vec![0; rows.div_ceil(64)].into(),
            mask: rows as u32 - 1,
            len: 0,
            limit: limit.min(rows * WAYS),
        }
    }

    /// Number of half-open connections.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether the limit is reached.
    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// Memory of the cache in bytes.
    pub(crate) const fn memory(&self) -> usize {
        let row = size_of::<CacheBucket>()
            + size_of::<[CacheTick; WAYS]>()
            + size_of::<[SynEntry; WAYS]>();
        self.heads.len() * row + self.occupied.len() * 8
    }

    /// The entry with that hash which satisfies the predicate.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(&SynEntry) -> bool) -> Option<CacheSlot> {
        let row = hash as u32 & self.mask;
        if !self.is_occupied(row) {
            return None;
        }
        let slots = self.heads.get(row as usize)?.with_tag(CacheBucket::tag(hash));
        let mut places = slots.map(|slot| CacheSlot { row, slot });
        places.find(|place| self.entry(*place).is_some_and(&is_it))
    }

    #[inline]
    pub(crate) fn entry(&self, CacheSlot { row, slot }: CacheSlot) -> Option<&SynEntry> {
        self.entries.get(row as usize)?.get(usize::from(slot))
    }

    #[inline]
    pub(crate) fn entry_mut(
        &mut self,
        CacheSlot { row, slot }: CacheSlot,
    ) -> Option<&mut SynEntry> {
        self.entries.get_mut(row as usize)?.get_mut(usize::from(slot))
    }

    #[inline]
    pub(crate) fn due(&self, CacheSlot { row, slot }: CacheSlot) -> CacheTick {
        let row = self.dues.get(row as usize);
        row.and_then(|row| row.get(usize::from(slot))).copied().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn set_due(&mut self, CacheSlot { row, slot }: CacheSlot, due: CacheTick) {
        let row = self.dues.get_mut(row as usize);
        if let Some(at) = row.and_then(|row| row.get_mut(usize::from(slot))) {
            *at = due;
        }
    }

    /// Prefetches the header of the row of that hash, if the row has any entry.
    #[inline]
    pub(crate) fn expect_row(&self, hash: u64) {
        let row = hash as u32 & self.mask;
        if let Some(head) = self.heads.get(row as usize).filter(|_| self.is_occupied(row)) {
            prefetch(head);
        }
    }

    /// Whether a row has any entry. 64 bytes hold this for the default 512 rows; they stay in
    /// the L1 cache, where the headers do not.
    #[inline]
    fn is_occupied(&self, row: u32) -> bool {
        self.occupied.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 != 0)
    }

    /// Prefetches for writing the line of the slot that a new entry of that hash would use.
    #[inline]
    pub(crate) fn expect_claim(&self, hash: u64) {
        let row = (hash as u32 & self.mask) as usize;
        let slot = self.heads.get(row).and_then(|head| head.next_taken(self.is_full()));
        let entry = slot.and_then(|slot| self.entries.get(row)?.get(usize::from(slot)));
        if let Some(entry) = entry {
            prefetch(entry);
        }
    }

    /// Claims a slot for a new entry: a free one, or the oldest of its row. `None` where the
    /// cache is full and the row is empty, or where the capacity is 0.
    #[inline]
    pub(crate) fn claim(&mut self, hash: u64) -> Option<SlotClaim> {
        let row = hash as u32 & self.mask;
        let (tag, head) = (CacheBucket::tag(hash), self.heads.get_mut(row as usize)?);
        let free = if self.len < self.limit { head.take_free(tag) } else { None };
        if let Some(slot) = free {
            self.len += 1;
            self.mark(row, true);
            return Some(SlotClaim { place: CacheSlot { row, slot }, evicted: None });
        }
        let place = CacheSlot { row, slot: head.take_oldest(tag)? };
        Some(SlotClaim { place, evicted: self.entry(place).copied() })
    }

    /// Frees a slot.
    #[inline]
    pub(crate) fn give_back(&mut self, CacheSlot { row, slot }: CacheSlot) {
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

    /// The first row from `from` on that has an entry. Reads one word per 64 rows.
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
    pub(crate) fn due_in(&self, row: u32, now: CacheTick) -> Option<CacheSlot> {
        let head = self.heads.get(row as usize)?;
        let mut taken = head.taken().map(|slot| CacheSlot { row, slot });
        taken.find(|place| now.since(self.due(*place)) >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_the_source_takes_a_megabyte_and_holds_15_359() {
        let mut cache = Cache::new(512, 15_359);
        let per_row = size_of::<CacheBucket>()
            + size_of::<[CacheTick; WAYS]>()
            + size_of::<[SynEntry; WAYS]>();
        assert_eq!(per_row, 64 + 60 + 1920);
        let mut evicted = 0;
        // Every row in turn: the last claim in the last row finds the cache full.
        for n in 0..512 * 30 {
            evicted += usize::from(cache.claim(n).unwrap().evicted.is_some());
        }
        assert_eq!((cache.len(), evicted), (15_359, 1));
    }

    #[test]
    fn a_full_cache_gives_an_empty_row_nothing_and_a_cache_of_none_nothing() {
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
        assert_eq!(CacheTick(3).since(CacheTick(u16::MAX)), 4);
        assert_eq!(CacheTick(u16::MAX).plus(5), CacheTick(4));
    }
}
