//! Longest-prefix match for a full Internet table: prefix to number, read without locks.
//!
//! # What it is
//!
//! A trie of 8-bit strides under a direct root for the upper 16 bits. A node is one cache line of
//! eight words; a word serves 32 of the node's 256 positions by a bitmap of runs and the index of
//! the first run's slot (`word.rs`), so a level costs two memory accesses and one popcount, and no
//! branch. The idea of runs and popcounts is that of Degermark, Brodnik, Carlsson and Pink (*Small
//! forwarding tables for fast routing lookups*, SIGCOMM 1997) and of Asai and Ohara's Poptrie
//! (SIGCOMM 2015); that each word owns its block of slots is ours, and makes each change of 32
//! positions one atomic store.
//!
//! ```text
//!            16 bits            8 bits               8 bits each
//! IPv4   root: line, value        |          line 16-24 -> line 24-32
//! IPv6   root: block, value   block: line, value  ->  line 24-32 -> 32-40 -> 40-48 -> ...
//! ```
//!
//! Matches are not pushed down into the nodes below. A walk that ends without one falls back: of
//! IPv4 to what stands beside the reference to the node and then to the root's value, of IPv6 to
//! the line's own fallback, the block's value and the root's. So a change of a short prefix costs
//! as many stores as it has entries on its own level, and never a walk through all nodes below.
//!
//! # Who calls it
//!
//! [`LpmWriter`]: one writer, the control shard. [`Lpm`]: any worker, under a
//! [`View`], a burst at a time. The numbers are indices of next hops; 0
//! stands for "no route", and nothing below [`VALUE_MAX`] has another meaning here.
//!
//! # Routes that expire
//!
//! A prefix leads to one or several `Path`s in order of preference, each with the moment at which
//! it ceases to be. The reader's own clock decides: `lookup(view, addr, now)` and
//! `lookup_burst(view, addrs, now, found)` give the first path that lives at `now`, and where none
//! of a prefix does, the next shorter prefix, as if the writer had already taken it out.
//!
//! ```text
//! writer.insert(prefix, value, now)              one path, for ever; returns the first value before
//! writer.insert_paths(prefix, &[Path], now)      up to PATHS_MAX, the best first; replaces all before
//! writer.prolong(prefix, value, until, now)      another moment: one store, no grace period
//! writer.remove(prefix, now)                     also what expired: only this gives its memory back
//! writer.none_ends_before(at)                    the caller's queue has collected all up to `at`
//! ```
//!
//! `none_ends_before` is what keeps look-ups fast: as long as nothing in the table has ended
//! (`now` is before the earliest moment), a burst compares one clock and reads no lifetime. An
//! insertion lowers that moment by itself; only the caller, who has the queue of what ends when,
//! can raise it.
//!
//! # Changes in steps
//!
//! `insert`, `insert_paths` and `remove` do at most a constant number of units of work and return
//! what the prefix led to before. Where more is owed (a short IPv6 prefix with many nodes below
//! it), `writer.step(units)` goes on and says `Progress::Done` or `Progress::More`; each look-up
//! meanwhile sees, for its address, the old answer or the new. The next change first finishes what
//! is owed by the last. A number that was replaced must stay good until `Done` and one grace
//! period more.
//!
//! # Invariants
//!
//! What the writer replaces is used again only after a grace period, so a walk that has begun
//! finds what it was sent to. Every look-up sees each change wholly or not at all; one that is held
//! up while several happen may see a later and miss an earlier one, and then answers with a prefix
//! that fits, though not at one moment the longest. Memory is taken at construction ([`Capacity`]);
//! a change that does not fit is refused and changes nothing.
//!
//! # Under flood
//!
//! Nothing that a stranger sends changes the table: router advertisements and redirects pass their
//! own caps first. Worst work of a look-up: two accesses of memory a level, as many levels as the
//! longest matching prefixes need (IPv4 2, IPv6 4 for all of today's Internet, 14 at most).

mod blocks;
mod heap;
mod slots;
mod table;
mod word;
mod writer;

use std::sync::Arc;

use floodwall_sync::qsbr::View;

use self::table::Table;
pub use self::{
    table::Family,
    writer::{Capacity, LpmWriter, Memory, UpdateError},
};

/// The largest number that a prefix can lead to.
pub const VALUE_MAX: u32 = (1 << 30) - 1;

/// The readers' end of a table. Clones read the same one.
pub struct Lpm<A: Family> {
    table: Arc<Table<A>>,
}

impl<A: Family> Lpm<A> {
    /// The number of the longest prefix that holds `addr`; 0 for none. About 5 ns of IPv4 and 20 ns
    /// of IPv6 in a full table.
    #[must_use]
    #[inline]
    pub fn lookup(&self, _view: View<'_>, addr: A) -> u32 {
        A::lookup(&self.table, addr)
    }

    /// The numbers for a burst of addresses: `found` is filled up to the shorter of both. Several
    /// times faster than one after the other where the table exceeds the cache.
    #[inline]
    pub fn lookup_burst(&self, _view: View<'_>, addrs: &[A], found: &mut [u32]) {
        A::lookup_burst(&self.table, addrs, found);
    }
}

impl<A: Family> Clone for Lpm<A> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<A: Family> core::fmt::Debug for Lpm<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lpm").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
