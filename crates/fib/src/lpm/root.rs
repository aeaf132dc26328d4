//! The root of a table: the first 16 bits of an address are the index of its entry.
//!
//! Called by `ipv4.rs` and `ipv6.rs` for look-ups and by the writer for changes. Two forms. IPv4's
//! entries are the number of a line, 32 bits; what ends within the 16 bits is pushed into the
//! slots of that line, so a look-up has one shape and remembers nothing, and half of the memory
//! is the more that a cache holds. An entry with nothing below it leads to a line that all entries
//! of its value share (`flat.rs`). IPv6's entries are the number of a direct block and the longest
//! match, as an entry has thousands of lines below it. Not here: which memory the entries of one
//! first byte take, which is the system's until it is touched.

use floodwall_sync::shim::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use floodwall_sync::zeroed_box;

use super::layout::{DIRECT, FIRST, SECOND, halves};

/// Entries of a root.
const ENTRIES: usize = DIRECT * SECOND as usize;

/// The entries of the first 16 bits.
pub trait Root: Send + Sync + Sized + 'static {
    /// Bytes of an entry.
    const BYTES: usize;
    /// Whether what ends within the 16 bits stands in the lines below, and not in the entry.
    const PUSHES: bool;
    /// Its entries by their address.
    type Entries<'a>: Copy;
    /// All entries lead nowhere.
    fn new() -> Self;
    /// Its entries.
    fn entries(&self) -> Self::Entries<'_>;
    /// What an entry leads to, as the writer stored it.
    fn link(&self, at: usize) -> u32;
    /// Shows another entry to readers, where it is another. What it leads to must be complete.
    fn store(&self, at: usize, link: u32, value: u32);
}

/// The index of the entry for these 16 bits.
#[inline(always)]
fn index(first: u16) -> usize {
    usize::from(first.wrapping_sub((FIRST as u16) << 8)) % ENTRIES
}

/// Entries that are the number of a line.
#[derive(Debug)]
pub struct LineRoot(Box<LineEntries>);

impl LineRoot {
    /// The line for the first 16 bits.
    #[inline(always)]
    pub(super) fn line(&self, first: u16) -> u32 {
        line(&self.0, first)
    }
}

/// Entries that are the number of a line.
pub(super) type LineEntries = [AtomicU32; ENTRIES];

/// The line for the first 16 bits.
#[inline(always)]
pub(super) fn line(entries: &LineEntries, first: u16) -> u32 {
    entries.get(index(first)).map_or(0, |entry| entry.load(Acquire))
}

impl Root for LineRoot {
    const BYTES: usize = 4;
    const PUSHES: bool = true;
    type Entries<'a> = &'a LineEntries;

    #[inline(always)]
    fn entries(&self) -> &LineEntries {
        &self.0
    }

    fn new() -> Self {
        Self(zeroed_box())
    }

    fn link(&self, at: usize) -> u32 {
        self.0.get(at).map_or(0, |entry| entry.load(Relaxed))
    }

    fn store(&self, at: usize, link: u32, _value: u32) {
        if let Some(entry) = self.0.get(at).filter(|entry| entry.load(Relaxed) != link) {
            entry.store(link, Release);
        }
    }
}

/// Entries that are the number of a direct block, and the longest match of up to 16 bits.
#[derive(Debug)]
pub struct ValueRoot(Box<ValueEntries>);

/// Entries that are the number of a direct block, and the longest match.
pub(super) type ValueEntries = [AtomicU64; ENTRIES];

/// The block below the first 16 bits, and the longest match among them.
#[inline(always)]
pub(super) fn value(entries: &ValueEntries, first: u16) -> (u32, u32) {
    halves(entries.get(index(first)).map_or(0, |entry| entry.load(Acquire)))
}

impl Root for ValueRoot {
    const BYTES: usize = 8;
    const PUSHES: bool = false;
    type Entries<'a> = &'a ValueEntries;

    #[inline(always)]
    fn entries(&self) -> &ValueEntries {
        &self.0
    }

    fn new() -> Self {
        Self(zeroed_box())
    }

    fn link(&self, at: usize) -> u32 {
        self.0.get(at).map_or(0, |entry| halves(entry.load(Relaxed)).0)
    }

    fn store(&self, at: usize, link: u32, value: u32) {
        let new = u64::from(link) | u64::from(value) << 32;
        if let Some(entry) = self.0.get(at).filter(|entry| entry.load(Relaxed) != new) {
            entry.store(new, Release);
        }
    }
}
