//! What the runs of a word lead to: a value, or a node further down.
//!
//! Called by both sides of `lpm.rs`. Two forms, as the tables of the two families differ: nearly
//! all runs of IPv4 are values, and a slot of 16 bits with an escape for the rest is half the
//! memory; of IPv6 a seventh are nodes, and a slot has 32 bits. A block of slots is written once,
//! before the word that leads to it is published, and not touched again until its grace period is
//! over.

use floodwall_sync::shim::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

/// A run of equal positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The longest match that ends in this node or, where a child is, what it falls back to; 0 for
    /// none.
    pub(super) value: u32,
    /// The line of the node further down; 0 for none.
    pub(super) child: u32,
}

/// An array of slots, in blocks.
pub trait Slots: Send + Sync + Sized + 'static {
    /// `capacity` slots; those that nobody has written lead nowhere.
    fn new(capacity: usize) -> Self;
    /// Whether the value needs one slot and nothing else.
    fn is_plain(value: u32) -> bool;
    /// Slots of a block with these runs.
    fn size(runs: &[Run]) -> usize;
    /// Writes a block; returns the index of its first run.
    fn write(&self, start: u32, runs: &[Run]) -> u32;
    /// Bytes of a slot.
    const BYTES: usize;
}

/// From here on a 16-bit slot names an escape.
pub(super) const ESCAPE: u16 = 0x8000;
/// 16-bit slots of an escape, which stands before its block: child and value.
const ESCAPE_SLOTS: usize = 4;

/// Slots of 16 bits: values below 2^15 as they are, all else by an escape.
#[derive(Debug)]
pub struct Narrow(Box<[AtomicU16]>);

impl Narrow {
    #[inline(always)]
    pub(super) fn slot(&self, at: usize) -> u16 {
        self.0.get(at).map_or(0, |slot| slot.load(Relaxed))
    }

    /// What an escape stands for, in the block that begins at `base`.
    #[cold]
    pub(super) fn escape(&self, base: usize, slot: u16) -> Run {
        let at = base.saturating_sub(ESCAPE_SLOTS * (usize::from(slot - ESCAPE) + 1));
        let long = |at| u32::from(self.slot(at)) | u32::from(self.slot(at + 1)) << 16;
        Run { child: long(at), value: long(at + 2) }
    }

    fn store(&self, at: usize, value: u16) {
        if let Some(slot) = self.0.get(at) {
            slot.store(value, Relaxed);
        }
    }
}

impl Slots for Narrow {
    const BYTES: usize = 2;

    fn new(capacity: usize) -> Self {
        Self((0..capacity).map(|_| AtomicU16::new(0)).collect())
    }

    fn is_plain(value: u32) -> bool {
        value < u32::from(ESCAPE)
    }

    fn size(runs: &[Run]) -> usize {
        let escapes = runs.iter().filter(|run| run.child != 0 || !Self::is_plain(run.value));
        runs.len() + ESCAPE_SLOTS * escapes.count()
    }

    fn write(&self, start: u32, runs: &[Run]) -> u32 {
        let base = start as usize + Self::size(runs) - runs.len();
        let mut escapes = 0;
        for (n, run) in runs.iter().enumerate() {
            if run.child == 0 && Self::is_plain(run.value) {
                self.store(base + n, run.value as u16);
                continue;
            }
            self.store(base + n, ESCAPE + escapes as u16);
            escapes += 1;
            let at = base - ESCAPE_SLOTS * escapes;
            for (n, long) in [run.child, run.value].into_iter().enumerate() {
                self.store(at + 2 * n, long as u16);
                self.store(at + 2 * n + 1, (long >> 16) as u16);
            }
        }
        base as u32
    }
}

/// A 32-bit slot with this bit names a child's line.
pub(super) const CHILD: u32 = 1 << 31;

/// Slots of 32 bits. What a child falls back to stands with the child's line.
#[derive(Debug)]
pub struct Wide(Box<[AtomicU32]>);

impl Wide {
    #[inline(always)]
    pub(super) fn slot(&self, at: usize) -> u32 {
        self.0.get(at).map_or(0, |slot| slot.load(Relaxed))
    }
}

impl Slots for Wide {
    const BYTES: usize = 4;

    fn new(capacity: usize) -> Self {
        Self((0..capacity).map(|_| AtomicU32::new(0)).collect())
    }

    fn is_plain(_: u32) -> bool {
        true
    }

    fn size(runs: &[Run]) -> usize {
        runs.len()
    }

    fn write(&self, start: u32, runs: &[Run]) -> u32 {
        for (n, run) in runs.iter().enumerate() {
            let slot = if run.child == 0 { run.value } else { CHILD | run.child };
            if let Some(place) = self.0.get(start as usize + n) {
                place.store(slot, Relaxed);
            }
        }
        start
    }
}
