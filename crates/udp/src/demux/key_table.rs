//! An open-addressing table from keyed hashes to sockets; the keys themselves are stored elsewhere.
//!
//! Buckets of eight in one cache line: eight 16-bit tags, eight sockets, and an overflow count: how
//! many entries went past because the bucket was full (as in Meta's F14), so that there are no
//! tombstones and a probe ends at the first bucket without an overflow. In a separate array, 64
//! bits a bucket are a filter that excludes most keys that are not in it: for a million keys 2 MiB
//! on 512 pages, where the buckets are 16 MiB on 4,096, more than a TLB holds. Invariants: at most
//! one entry per key; an entry lies within [`PROBES_MAX`] buckets of its home; a bucket's marks are
//! those of its tags and of those that went past, or more.
//!
//! # Under flood
//! Only applications insert. A datagram looks at one bucket, rarely two, never more than
//! [`PROBES_MAX`]. At half load the chance that an insertion finds no room within them is below
//! 10^-12, and then the bind fails: nothing is evicted.

use floodwall_sync::{HugeArray, prefetch};

/// Buckets that one key may be looked for in.
const PROBES_MAX: usize = 16;
const BUCKET_SLOTS: usize = 8;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct KeyBucket {
    /// 0 is a free slot.
    tags: [u16; BUCKET_SLOTS],
    sockets: [u32; BUCKET_SLOTS],
    passed: u32,
}

const _: () = assert!(size_of::<KeyBucket>() == 64);
const EMPTY_BUCKET: KeyBucket =
    KeyBucket { tags: [0; BUCKET_SLOTS], sockets: [0; BUCKET_SLOTS], passed: 0 };

/// The hash table of a port with several sockets: from keyed hash to socket.
pub(crate) struct KeyTable {
    buckets: HugeArray<KeyBucket>,
    /// Of each bucket: two bits for each tag in it, and for those that went past.
    marks: HugeArray<u64>,
    mask: usize,
}

/// What a look at the first bucket of a key shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketPeek {
    /// A socket that the key may be of; `u32::MAX` for none.
    pub(crate) socket: u32,
    /// Whether it can be of no other.
    pub(crate) sure: bool,
}

/// No room within the probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableFull;

impl KeyTable {
    /// A table for `entries_max` entries at half load.
    pub(crate) fn new(entries_max: usize) -> Self {
        let buckets = (entries_max * 2).div_ceil(BUCKET_SLOTS).next_power_of_two();
        let (marks, mask) = (HugeArray::filled(0, buckets), buckets - 1);
        Self { buckets: HugeArray::filled(EMPTY_BUCKET, buckets), marks, mask }
    }

    /// The bits of a tag, out of those that do not choose the bucket.
    #[inline(always)]
    const fn mark(tag: u16) -> u64 {
        1 << (tag >> 4 & 63) | 1 << (tag >> 10)
    }

    /// An entry is in a bucket, or has gone past it.
    fn mark_entry(&mut self, at: usize, tag: u16) {
        if let Some(marks) = self.marks.get_mut(at) {
            *marks |= Self::mark(tag);
        }
    }

    /// Recomputes a bucket's marks after an entry has left. Overflows of a bucket cannot be
    /// distinguished: where it has any, its marks stay until none is left.
    fn mark_again(&mut self, at: usize) {
        if let (Some(bucket), Some(marks)) = (self.buckets.get(at), self.marks.get_mut(at))
            && bucket.passed == 0
        {
            let all = bucket.tags.iter().filter(|tag| **tag != 0);
            *marks = all.fold(0, |marks, tag| marks | Self::mark(*tag));
        }
    }

    /// Whether a key with this hash may be here. False positives are some 1.5 % at half load; there
    /// are no false negatives. One load from an array that is an eighth of the table.
    #[inline(always)]
    pub(crate) fn may_have(&self, hash: u32) -> bool {
        let mark = Self::mark(Self::tag(hash));
        let marks = self.marks.get(hash as usize & self.mask).copied().unwrap_or(0);
        marks & mark == mark
    }

    /// Prefetches what [`KeyTable::may_have`] looks at.
    #[inline(always)]
    pub(crate) fn prefetch_mark(&self, hash: u32) {
        if let Some(marks) = self.marks.get(hash as usize & self.mask) {
            prefetch(marks);
        }
    }

    #[inline(always)]
    const fn tag(hash: u32) -> u16 {
        let tag = (hash >> 16) as u16;
        if tag == 0 { 1 } else { tag }
    }

    /// The places of the buckets of a hash, in order.
    #[inline(always)]
    fn places(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let (mask, probes) = (self.mask, PROBES_MAX.min(self.buckets.len()));
        (0..probes).map(move |step| (hash as usize + step) & mask)
    }

    /// The socket of the key for which `is` returns true.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = Self::tag(hash);
        for at in self.places(hash) {
            let bucket = self.buckets.get(at)?;
            let mut hits = 0_u32;
            for (slot, theirs) in bucket.tags.iter().enumerate() {
                hits |= u32::from(*theirs == tag) << slot;
            }
            while hits != 0 {
                let socket = *bucket.sockets.get(hits.trailing_zeros() as usize)?;
                if is(socket) {
                    return Some(socket);
                }
                hits &= hits - 1;
            }
            if bucket.passed == 0 {
                return None;
            }
        }
        None
    }

    /// Prefetches the first bucket of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u32) {
        if let Some(bucket) = self.buckets.get(hash as usize & self.mask) {
            prefetch(bucket);
        }
    }

    /// One look at one bucket, and at no key: the part of [`KeyTable::find`] that waits for memory.
    #[inline(always)]
    pub(crate) fn peek(&self, hash: u32) -> BucketPeek {
        let Some(bucket) = self.buckets.get(hash as usize & self.mask) else {
            return BucketPeek { socket: u32::MAX, sure: true };
        };
        let tag = Self::tag(hash);
        let mut hits = 0_u32;
        for (slot, theirs) in bucket.tags.iter().enumerate() {
            hits |= u32::from(*theirs == tag) << slot;
        }
        let first = bucket.sockets.get(hits.trailing_zeros() as usize).copied();
        let sure = bucket.passed == 0 && hits.count_ones() <= 1;
        BucketPeek { socket: first.unwrap_or(u32::MAX), sure }
    }

    /// Adds an entry. The caller has made sure that its key is new.
    pub(crate) fn insert(&mut self, hash: u32, socket: u32) -> Result<(), TableFull> {
        let home = self.places(hash).find(|at| self.free_slot(*at).is_some()).ok_or(TableFull)?;
        for at in self.places(hash) {
            let slot = self.free_slot(at).filter(|_| at == home);
            let Some(bucket) = self.buckets.get_mut(at) else { continue };
            if let Some(slot) = slot {
                if let (Some(tag), Some(place)) =
                    (bucket.tags.get_mut(slot), bucket.sockets.get_mut(slot))
                {
                    (*tag, *place) = (Self::tag(hash), socket);
                }
                self.mark_entry(at, Self::tag(hash));
                break;
            }
            bucket.passed += 1;
            self.mark_entry(at, Self::tag(hash));
        }
        Ok(())
    }

    fn free_slot(&self, at: usize) -> Option<usize> {
        self.buckets.get(at)?.tags.iter().position(|tag| *tag == 0)
    }

    /// Lets another socket stand for the key of `old`.
    pub(crate) fn replace(&mut self, hash: u32, old: u32, new: u32) {
        let tag = Self::tag(hash);
        for at in self.places(hash) {
            let Some(bucket) = self.buckets.get_mut(at) else { return };
            for (theirs, socket) in bucket.tags.iter().zip(&mut bucket.sockets) {
                if *theirs == tag && *socket == old {
                    *socket = new;
                    return;
                }
            }
        }
        debug_assert!(false, "an entry to replace was not there");
    }

    /// Removes the entry of `old`.
    pub(crate) fn remove(&mut self, hash: u32, old: u32) {
        let tag = Self::tag(hash);
        let is = |(theirs, socket): (&u16, &u32)| *theirs == tag && *socket == old;
        let holds = |b: &KeyBucket| b.tags.iter().zip(&b.sockets).position(is);
        let home =
            self.places(hash).find(|at| self.buckets.get(*at).is_some_and(|b| holds(b).is_some()));
        debug_assert!(home.is_some(), "an entry to remove was not there");
        let Some(home) = home else { return };
        for at in self.places(hash) {
            let Some(bucket) = self.buckets.get_mut(at) else { return };
            if at == home {
                let slot = holds(bucket).and_then(|slot| bucket.tags.get_mut(slot));
                if let Some(tag) = slot {
                    *tag = 0;
                }
                self.mark_again(at);
                return;
            }
            bucket.passed = bucket.passed.saturating_sub(1);
            self.mark_again(at);
        }
    }

    /// How many entries there are: for tests.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> (usize, u64) {
        let used = self.buckets.iter().flat_map(|b| b.tags).filter(|tag| *tag != 0).count();
        (used, self.buckets.iter().map(|b| u64::from(b.passed)).sum())
    }
}

impl core::fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "KeyTable({} buckets)", self.buckets.len())
    }
}
