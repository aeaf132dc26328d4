//! The counters of one thread, shown whole to any other: a snapshot that is never torn.
//!
//! # What it is
//!
//! A sequence lock with two buffers, which Linux calls a *latch* (`seqcount_latch_t`, after
//! Desnoyers): the writer fills the buffer that readers are not sent to, then sends readers there
//! by raising the version. A reader copies the buffer of the version it saw, and keeps the copy if
//! the version is still the same. With one buffer (the plain sequence lock) readers would spin as
//! long as the writer is preempted in mid-write; with two, a writer may stop anywhere for any time,
//! and readers still get the last finished snapshot.
//!
//! # Callers
//!
//! Each worker publishes its counters once a round, with what it has queued and handed off
//! (decision D19). Control and application threads read them; sums that must be conserved are
//! checked on one such snapshot, where they agree, and never on live counters, where they do not.
//!
//! # Invariant
//!
//! Version `v` is in buffer `v % 2`. A word of version `v + 2`, which overwrites it, is written
//! only after version `v + 1` was announced. So a copy begun at version `v`, with version `v` still
//! standing at its end, holds words of `v` only.
//!
//! # Orderings, and why
//!
//! The words are relaxed atomics, as reader and writer do meet in one buffer; a reader that
//! copied nonsense notices it afterwards, but an unordered access to plain memory would already
//! be undefined. The rest follows Boehm, *Can Seqlocks Get Along with Programming Language
//! Memory Models?* (MSPC 2012):
//!
//! * The version is stored **release** behind the words and loaded **acquire** before them: a
//!   reader that sees version `v` sees at least its words.
//! * The writer's **release fence** stands between the store of version `v + 1` and the words of
//!   `v + 2`, the reader's **acquire fence** between its words and its second look: a reader that
//!   has copied even one word of `v + 2` sees at least `v + 1` then, and drops the copy. (A release
//!   *store* of `v + 1` does not do it: it keeps what is before it from sinking, not what is behind
//!   from rising.)
//! * The second look is **relaxed**: the fence before it is its order. The writer never loads the
//!   version, as it has its own copy.
//!
//! # Progress and cost
//!
//! `publish` is wait-free: `N + 1` stores, on x86 plain ones. `try_read` is wait-free; `read` is
//! lock-free: each failure means that one more snapshot was published meanwhile. Readers write
//! nothing, so they take no line away from the writer, which only loses the exclusive state of
//! the lines they copy.

use core::fmt;

use crate::{
    CachePadded,
    shim::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
            fence,
        },
        hint,
    },
};

/// A cell of `N` words that shows `initial` as version 0, as its writer and a first reader.
///
/// Allocates here and never again: two buffers of `N` words, each on lines of its own. Never
/// panics.
///
/// ```
/// let (mut writer, reader) = floodwall_sync::snapshot::cell([0, 0]);
/// writer.publish(&[3, 4]);
/// let seen = reader.read();
/// assert_eq!((seen.version, seen.words), (1, [3, 4]));
/// ```
#[must_use]
pub fn cell<const N: usize>(initial: [u64; N]) -> (SnapshotWriter<N>, SnapshotReader<N>) {
    let cell = Arc::new(SnapshotCell {
        version: CachePadded::new(AtomicU64::new(0)),
        buffers: [initial, initial].map(|words| CachePadded::new(words.map(AtomicU64::new))),
    });
    (SnapshotWriter { cell: Arc::clone(&cell), version: 0 }, SnapshotReader { cell })
}

/// What the writer and its readers share.
struct SnapshotCell<const N: usize> {
    /// The newest finished version.
    version: CachePadded<AtomicU64>,
    /// The words of the even and of the odd version.
    buffers: [CachePadded<[AtomicU64; N]>; 2],
}

impl<const N: usize> SnapshotCell<N> {
    /// The buffer of `version`.
    #[inline]
    fn buffer(&self, version: u64) -> &[AtomicU64; N] {
        let [even, odd] = &self.buffers;
        if version.is_multiple_of(2) { even } else { odd }
    }
}

/// The end that publishes: there is one.
pub struct SnapshotWriter<const N: usize> {
    cell: Arc<SnapshotCell<N>>,
    version: u64,
}

impl<const N: usize> SnapshotWriter<N> {
    /// Shows `words` to every reader from now on, all of them at once. Wait-free, `N + 1` stores;
    /// never panics.
    pub fn publish(&mut self, words: &[u64; N]) {
        self.publish_front(words);
    }

    /// The same where those behind `words` never change: they stay as they are, and cost nothing.
    /// (Of words that did change, readers would see every other version.)
    pub fn publish_front(&mut self, words: &[u64]) {
        let version = self.version.wrapping_add(1);
        fence(Release);
        for (shown, word) in self.cell.buffer(version).iter().zip(words) {
            shown.store(*word, Relaxed);
        }
        self.cell.version.store(version, Release);
        self.version = version;
    }

    /// One more reader. Never panics.
    #[must_use]
    pub fn reader(&self) -> SnapshotReader<N> {
        SnapshotReader { cell: Arc::clone(&self.cell) }
    }
}

/// An end that reads: as many as are wanted, on any thread.
///
/// It outlives its writer, and then shows the last snapshot for ever.
#[derive(Clone)]
pub struct SnapshotReader<const N: usize> {
    cell: Arc<SnapshotCell<N>>,
}

impl<const N: usize> SnapshotReader<N> {
    /// The newest snapshot. Copies `N` words, again for each one that is published meanwhile, so
    /// never waits for a writer that stands still; never panics.
    #[must_use]
    pub fn read(&self) -> Snapshot<N> {
        loop {
            if let Some(snapshot) = self.try_read() {
                return snapshot;
            }
            hint::spin_loop();
        }
    }

    /// The newest snapshot, or `None` if another was published meanwhile. Wait-free, copies `N`
    /// words; never panics.
    #[must_use]
    pub fn try_read(&self) -> Option<Snapshot<N>> {
        let version = self.cell.version.load(Acquire);
        let words = self.cell.buffer(version).each_ref().map(|word| word.load(Relaxed));
        fence(Acquire);
        (self.cell.version.load(Relaxed) == version).then_some(Snapshot { version, words })
    }
}

/// Words that one thread published together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot<const N: usize> {
    /// How many snapshots were published before this one; 0 is the initial.
    pub version: u64,
    /// The words as they were published.
    pub words: [u64; N],
}

impl<const N: usize> fmt::Debug for SnapshotWriter<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotWriter").field("version", &self.version).finish_non_exhaustive()
    }
}

impl<const N: usize> fmt::Debug for SnapshotReader<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotReader").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
