//! Longest-prefix match for a full Internet table: prefix to number, read without locks.
//!
//! # What it is
//!
//! A trie of 8-bit strides under a root of 65,536 entries, one for the first 16 bits of an address.
//! The nodes of the third byte of IPv6 are **direct blocks** of 256 entries of 64 bits: what is
//! below, and the longest match so far. The others are **lines**: one cache line of eight words; a
//! word serves 32 of the node's 256 positions by a bitmap of runs and the index of the last run's
//! slot (`word.rs`), so a level costs two memory accesses and one popcount, and no branch. The idea
//! of runs and popcounts is that of Degermark, Brodnik, Carlsson and Pink (*Small forwarding tables
//! for fast routing lookups*, SIGCOMM 1997) and of Asai and Ohara's Poptrie (SIGCOMM 2015); that
//! each word owns its block of slots is ours, and makes each change of 32 positions one atomic
//! store.
//!
//! ```text
//!         0-16 bits   16-24 bits   24-32 bits   32-40 bits ...
//! IPv4    root ->     line ->      line
//! IPv6    root ->     direct ->    line ->      line -> ...
//! ```
//!
//! The root's memory is the system's until it is touched, so a table takes 1 KiB (IPv6 2 KiB) for
//! each /8 that it uses. Its entries are lines in IPv4 (`root.rs`): what ends within the first 16
//! bits is pushed into the positions of the line that have nothing of their own, in steps. In IPv6
//! they are direct blocks and the longest match, and a walk remembers the last one of both.
//! Between lines of IPv6 matches are pushed down too, so that the last slot of a walk is the
//! answer (`push.rs`).
//!
//! # Callers
//!
//! [`LpmWriter`]: one writer, the control shard. [`Lpm`]: any worker, under a
//! [`DomainView`], a burst at a time. The numbers are indices of next hops; 0
//! stands for "no route", and nothing below [`VALUE_MAX`] has another meaning here.
//!
//! # Routes that expire
//!
//! A prefix leads to a [`RouteTarget`]: a value, or a value until a moment and the number of the
//! caller's record, its *entry*. While nothing in the table has ended, which is one comparison with
//! the burst's clock, look-ups find the value and read no lifetimes. From the earliest end on,
//! until the writer has collected and called [`none_ends_before`](LpmWriter::none_ends_before),
//! they find `ENTRY | entry` wherever the longest match can expire, and the caller's record
//! decides, by the same clock, whether that is valid and what it covers. Of prefixes that end in
//! direct blocks, and of IPv4 values that need an escape, they may find it at any time. So the
//! reader's clock decides, and the writer's diligence only how fast.
//!
//! # Changes in steps
//!
//! [`insert`](LpmWriter::insert), [`remove`](LpmWriter::remove) and
//! [`replace`](LpmWriter::replace) are complete when they return. A prefix below 8 bits stands in
//! several blocks, and a short IPv6 prefix may have many lines below it:
//! [`begin`](LpmWriter::begin) shows the change where that is constant work, and
//! [`step`](LpmWriter::step) goes on for as many units as it is given; each look-up meanwhile
//! finds, for its address, the old answer or the new.
//!
//! # Invariants
//!
//! What the writer replaces is used again only after a grace period, so a walk that has begun
//! finds what it was sent to. Every look-up sees each change wholly or not at all; one that is held
//! up while several happen may see a later and miss an earlier one, and then answers with a prefix
//! that fits, though not at one moment the longest. Memory is taken at construction
//! ([`LpmCapacity`]); a change that does not fit is refused and changes nothing.
//!
//! # Under flood
//!
//! No packet changes the table directly: router advertisements and redirects pass their own caps
//! first. Worst work of a look-up: two accesses of memory a level, as many levels as the longest
//! matching prefixes need (IPv4 2, IPv6 4 for all of today's Internet, 13 at most).

mod blocks;
mod capacity;
mod flat;
mod heap;
mod ipv4;
mod ipv6;
mod layout;
mod links;
mod node;
mod paint;
mod push;
mod root;
mod runs;
mod shared;
mod slots;
mod table;
mod word;
mod writer;

use std::sync::Arc;

use floodwall_base::Instant;
use floodwall_sync::qsbr::DomainView;

use self::table::{Arrays, Table};
pub use self::{
    capacity::{LpmCapacity, LpmMemory, UpdateError},
    push::PushProgress,
    table::LpmFamily,
    writer::{LpmWriter, RouteTarget},
};

/// The largest number that a prefix can lead to.
pub const VALUE_MAX: u32 = (1 << 30) - 1;

/// Bit of what is found: the rest is the number of an entry, not a value. See [`RouteTarget`].
pub const ENTRY: u32 = 1 << 29;

/// The readers' end of a table. Clones read the same one.
pub struct Lpm<A: LpmFamily> {
    table: Arc<Table<A>>,
}

impl<A: LpmFamily> Lpm<A> {
    /// The number of the longest prefix that holds `addr`, or its entry; 0 for none.
    #[must_use]
    #[inline]
    pub fn lookup(&self, _view: DomainView<'_>, addr: A, now: Instant) -> u32 {
        self.table.lookup(addr, now)
    }

    /// The same table for look-ups one after the other in a loop, which keeps the addresses of its
    /// arrays in registers: 1.4 to 1.8 times as fast as [`lookup`](Self::lookup) for IPv4.
    #[must_use]
    #[inline(always)]
    pub fn bind<'a>(&'a self, _view: DomainView<'a>) -> BoundLpm<'a, A> {
        BoundLpm { arrays: self.table.arrays() }
    }

    /// The numbers for a burst of addresses at `now`: `found` is filled up to the shorter of both.
    /// Several times faster than one after the other where the table exceeds the cache.
    #[inline]
    pub fn lookup_burst(
        &self,
        _view: DomainView<'_>,
        addrs: &[A],
        now: Instant,
        found: &mut [u32],
    ) {
        self.table.lookup_burst(addrs, now, found);
    }
}

/// A table bound to a view by [`Lpm::bind`].
pub struct BoundLpm<'a, A: LpmFamily> {
    arrays: Arrays<'a, A>,
}

impl<A: LpmFamily> BoundLpm<'_, A> {
    /// What [`Lpm::lookup`] finds.
    #[must_use]
    #[inline(always)]
    pub fn lookup(&self, addr: A, now: Instant) -> u32 {
        A::lookup_at(&self.arrays, addr, now)
    }
}

impl<A: LpmFamily> core::fmt::Debug for BoundLpm<'_, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BoundLpm").finish_non_exhaustive()
    }
}

impl<A: LpmFamily> Clone for Lpm<A> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<A: LpmFamily> core::fmt::Debug for Lpm<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lpm").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
