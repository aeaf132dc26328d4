//! What the runs of a word lead to: a value, or a node further down.
//!
//! Called by both sides of `lpm.rs`. Two forms, as the tables of the two families differ: nearly
//! all runs of IPv4 are values, and a slot of 16 bits with an escape for the rest is half the
//! memory; of IPv6 a seventh are nodes, and a slot has 32 bits. A run that can expire shows the
//! value that it has until then; the number of its entry is before the block, where only look-ups
//! that met something expired read it: a mask marks the runs that have one. A block is written
//! once, before the word that leads to it is published, and not touched again until its grace
//! period is over; only what runs inherit from above is stored over in place, one slot at a time.

use core::hint::cold_path;

use floodwall_sync::shim::atomic::{
    AtomicU16, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use floodwall_sync::zeroed;

use super::ENTRY;
use super::runs::{SlotRun, SlotRuns};

/// In the writer's values: what follows is the number of an entry, not a value.
pub(super) const EXPIRES: u32 = 1 << 31;

/// What values look-ups get while an entry is valid, by entry.
pub(super) type Living = [u32];

/// What look-ups get that cannot be shown as a value.
pub(super) const fn shown(value: u32) -> u32 {
    if value & EXPIRES == 0 { value } else { ENTRY | value & !EXPIRES }
}

/// An array of slots, in blocks.
pub trait Slots: Send + Sync + Sized + 'static {
    /// Bytes of a slot.
    const BYTES: usize;
    /// All slots by their address.
    type Array<'a>: Copy;
    /// All slots.
    fn array(&self) -> Self::Array<'_>;
    /// `capacity` slots; those that were never written lead nowhere.
    fn new(capacity: usize) -> Self;
    /// The slot of this run, if it needs that one and nothing else.
    fn plain(run: SlotRun, living: &[u32]) -> Option<u32>;
    /// Slots of a block with these runs.
    fn size(runs: &SlotRuns, living: &[u32]) -> usize;
    /// Writes a block of that size; returns the index of its first run.
    fn write(&self, start: u32, size: usize, runs: &SlotRuns, living: &[u32]) -> u32;
    /// Stores one slot over.
    fn store(&self, at: usize, slot: u32);
}

/// From here on a 16-bit slot is an escape: the distance of its value before its block, in pairs of
/// slots.
pub(super) const ESCAPE: u16 = 1 << 15;
/// A 16-bit slot with this bit can expire.
pub(super) const MARK: u16 = 1 << 14;
/// What a position inherits that a 16-bit slot cannot hold, or that can expire: walks find it by
/// the line. No escape is as far from its block.
pub(super) const INHERIT: u16 = u16::MAX;
/// 16-bit slots of an escape: child and value.
const ESCAPE_SLOTS: usize = 4;
/// 16-bit slots of an entry's number.
const ENTRY_SLOTS: usize = 2;

/// How many of the runs up to number `n` have an entry.
#[inline(always)]
const fn rank(mask: u32, n: usize) -> usize {
    (mask & (2_u32 << (n & 31)).wrapping_sub(1)).count_ones() as usize
}

/// Entries, and the mask that they need.
const fn with_mask(entries: usize) -> usize {
    if entries == 0 { 0 } else { entries + 1 }
}

/// A slot of 16 bits. Out of bounds nothing matches; said by the value that a look-up tests for
/// anyway, so that its last choice, which no branch predicts, stays one without a branch.
#[inline(always)]
pub(super) fn narrow_slot(slots: &[AtomicU16], at: usize) -> u16 {
    let Some(slot) = slots.get(at) else {
        cold_path();
        return INHERIT;
    };
    slot.load(Acquire)
}

/// Slots of 16 bits: values below 2^14 as they are, all else by an escape.
#[derive(Debug)]
pub struct Narrow(Box<[AtomicU16]>);

impl Narrow {
    /// A slot: see [`narrow_slot`].
    #[inline(always)]
    pub(super) fn slot(&self, at: usize) -> u16 {
        narrow_slot(&self.0, at)
    }

    fn long(&self, at: usize) -> u32 {
        u32::from(self.slot(at)) | u32::from(self.slot(at + 1)) << 16
    }

    fn store_long(&self, at: usize, long: u32) {
        self.store(at, u32::from(long as u16));
        self.store(at + 1, long >> 16);
    }

    /// What an escape stands for, in the block that begins at `base`: value and child.
    #[cold]
    pub(super) fn escape(&self, base: usize, slot: u16) -> (u32, u32) {
        let at = base.saturating_sub(2 * usize::from(slot - ESCAPE));
        (self.long(at + 2), self.long(at))
    }

    /// The entry of the slot `at`, which can expire, in the block that begins at `base`.
    #[inline]
    pub(super) fn entry(&self, base: usize, at: usize) -> u32 {
        let rank = rank(self.long(base.saturating_sub(ENTRY_SLOTS)), at - base);
        self.long(base.saturating_sub(ENTRY_SLOTS * (1 + rank)))
    }

    /// Whether each slot is its run's value.
    #[inline(always)]
    fn is_simple(runs: &SlotRuns) -> bool {
        runs.values < u32::from(MARK) && !runs.has_child
    }

    fn shape(run: &SlotRun, living: &Living) -> u16 {
        if run.inherited {
            return u16::try_from(run.value).ok().filter(|v| *v < MARK).unwrap_or(INHERIT);
        }
        let entry = (run.value & !EXPIRES) as usize;
        let marked = run.value & EXPIRES != 0;
        let value = if marked { living.get(entry).copied().unwrap_or(0) } else { run.value };
        match u16::try_from(value) {
            Ok(value) if value < MARK && run.child == 0 && marked => MARK | value,
            Ok(value) if value < MARK && run.child == 0 => value,
            _ => ESCAPE,
        }
    }
}

impl Slots for Narrow {
    const BYTES: usize = 2;
    type Array<'a> = &'a [AtomicU16];

    #[inline(always)]
    fn array(&self) -> &[AtomicU16] {
        &self.0
    }

    fn new(capacity: usize) -> Self {
        Self(zeroed(capacity))
    }

    fn plain(run: SlotRun, living: &Living) -> Option<u32> {
        let slot = Self::shape(&run, living);
        Some(slot).filter(|slot| *slot < MARK || *slot == INHERIT).map(u32::from)
    }

    fn size(runs: &SlotRuns, living: &Living) -> usize {
        let all = runs.as_slice();
        if Self::is_simple(runs) {
            return all.len();
        }
        let shapes = || all.iter().map(|run| Self::shape(run, living));
        let escapes = shapes().filter(|slot| (ESCAPE..INHERIT).contains(slot)).count();
        let marks = shapes().filter(|slot| (MARK..ESCAPE).contains(slot)).count();
        all.len() + ESCAPE_SLOTS * escapes + ENTRY_SLOTS * with_mask(marks)
    }

    fn write(&self, start: u32, size: usize, runs: &SlotRuns, living: &Living) -> u32 {
        let all = runs.as_slice();
        if Self::is_simple(runs) {
            let places = self.0.get(start as usize..).unwrap_or_default();
            for (run, place) in all.iter().zip(places) {
                place.store(run.value as u16, Relaxed);
            }
            return start;
        }
        let base = start as usize + size - all.len();
        let (mut mask, mut entry, mut escape) = (0_u32, base - ENTRY_SLOTS.min(base), start);
        for (n, run) in all.iter().enumerate() {
            let mut slot = Self::shape(run, living);
            if slot >= ESCAPE && slot != INHERIT {
                slot |= ((base - escape as usize) / 2) as u16;
                self.store_long(escape as usize, run.child);
                self.store_long(escape as usize + 2, shown(run.value));
                escape += ESCAPE_SLOTS as u32;
            } else if slot >= MARK && slot != INHERIT {
                mask |= 1 << (n & 31);
                entry -= ENTRY_SLOTS;
                self.store_long(entry, run.value & !EXPIRES);
            }
            self.store(base + n, u32::from(slot));
        }
        if mask != 0 {
            self.store_long(base - ENTRY_SLOTS, mask);
        }
        base as u32
    }

    fn store(&self, at: usize, slot: u32) {
        if let Some(place) = self.0.get(at) {
            place.store(slot as u16, Release);
        }
    }
}

/// A 32-bit slot with this bit names a child's line.
pub(super) const CHILD: u32 = 1 << 31;
/// A child's slot with this bit has an entry; a value's slot with it can expire.
const MARKED: u32 = 1 << 30;
/// A value's slot that can expire and has this bit has its own entry: the others inherit it.
const OWN: u32 = 1 << 29;

/// Slots of 32 bits. What a child falls back to stands in its own slots.
#[derive(Debug)]
pub struct Wide(Box<[AtomicU32]>);

/// A slot of 32 bits; out of bounds nothing matches.
#[inline(always)]
pub(super) fn wide_slot(slots: &[AtomicU32], at: usize) -> u32 {
    slots.get(at).map_or(0, |slot| slot.load(Acquire))
}

impl Wide {
    #[inline(always)]
    pub(super) fn slot(&self, at: usize) -> u32 {
        wide_slot(&self.0, at)
    }

    /// The value of a slot that names no child.
    #[inline(always)]
    pub(super) const fn value(slot: u32) -> u32 {
        slot & (MARKED - 1) & !(slot >> 1 & OWN)
    }

    #[inline(always)]
    pub(super) const fn can_expire(slot: u32) -> bool {
        slot & (CHILD | MARKED) == MARKED
    }

    const fn has_entry(slot: u32) -> bool {
        slot & (CHILD | MARKED) == CHILD | MARKED || slot & (CHILD | MARKED | OWN) == MARKED | OWN
    }

    /// The line of a child's slot.
    #[inline(always)]
    pub(super) fn line(slot: u32) -> u32 {
        // All ones where it is a child's.
        let mask = (slot.cast_signed() >> 31).cast_unsigned();
        slot & mask & (MARKED - 1)
    }

    /// The slot, unless it is a child's.
    #[inline(always)]
    pub(super) fn leaf(slot: u32) -> u32 {
        slot & !(slot.cast_signed() >> 31).cast_unsigned()
    }

    /// The entry of the slot `at` in the block that begins at `base`, if it has its own.
    #[inline]
    pub(super) fn entry(&self, base: usize, at: usize) -> Option<u32> {
        if !Self::has_entry(self.slot(at)) {
            return None;
        }
        let rank = rank(self.slot(base.saturating_sub(1)), at - base);
        Some(self.slot(base.saturating_sub(1 + rank)))
    }

    fn shape(run: &SlotRun, living: &Living) -> u32 {
        let marked = run.value & EXPIRES != 0;
        if run.child != 0 {
            return CHILD | run.child | if marked { MARKED } else { 0 };
        }
        if !marked {
            return run.value;
        }
        let value = living.get((run.value & !EXPIRES) as usize).copied().unwrap_or(0);
        value | MARKED | if run.inherited { 0 } else { OWN }
    }
}

impl Slots for Wide {
    const BYTES: usize = 4;
    type Array<'a> = &'a [AtomicU32];

    #[inline(always)]
    fn array(&self) -> &[AtomicU32] {
        &self.0
    }

    fn new(capacity: usize) -> Self {
        Self(zeroed(capacity))
    }

    fn plain(run: SlotRun, living: &Living) -> Option<u32> {
        let slot = Self::shape(&run, living);
        Some(slot).filter(|slot| slot & CHILD == 0 && !Self::has_entry(*slot))
    }

    fn size(runs: &SlotRuns, living: &Living) -> usize {
        let all = runs.as_slice();
        if runs.values & EXPIRES == 0 {
            return all.len();
        }
        let entries = all.iter().filter(|run| Self::has_entry(Self::shape(run, living)));
        all.len() + with_mask(entries.count())
    }

    fn write(&self, start: u32, size: usize, runs: &SlotRuns, living: &Living) -> u32 {
        let all = runs.as_slice();
        if runs.values & EXPIRES == 0 {
            let places = self.0.get(start as usize..).unwrap_or_default();
            for (run, place) in all.iter().zip(places) {
                let slot = if run.child != 0 { CHILD | run.child } else { run.value };
                place.store(slot, Release);
            }
            return start;
        }
        let base = start as usize + size - all.len();
        let (mut mask, mut entry) = (0_u32, base - 1.min(base));
        for (n, run) in all.iter().enumerate() {
            let slot = Self::shape(run, living);
            self.store(base + n, slot);
            if Self::has_entry(slot) {
                mask |= 1 << (n & 31);
                entry -= 1;
                self.store(entry, run.value & !EXPIRES);
            }
        }
        if mask != 0 {
            self.store(base - 1, mask);
        }
        base as u32
    }

    fn store(&self, at: usize, slot: u32) {
        if let Some(place) = self.0.get(at) {
            place.store(slot, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where every run is its value or its child, slots are written by a shorter way.
    #[test]
    fn what_needs_no_entry_is_written_as_everything_else_is() {
        let runs = [run(3, 0, false), run(5, 0, true), run(7, 0, false)];
        let below = [run(3, 0, false), run(5, 9, false), run(1 << 20, 0, true)];
        let (narrow, wide) = (Narrow::new(50), Wide::new(50));
        let simple = SlotRuns::from(&runs[..]);
        assert_eq!((Narrow::size(&simple, LIVING), narrow.write(8, 3, &simple, LIVING)), (3, 8));
        assert_eq!([8, 9, 10].map(|at| narrow.slot(at)), [3, 5, 7]);
        let simple = SlotRuns::from(&below[..]);
        assert_eq!((Wide::size(&simple, LIVING), wide.write(8, 3, &simple, LIVING)), (3, 8));
        let shapes = below.map(|run| Wide::shape(&run, LIVING));
        assert_eq!([8, 9, 10].map(|at| wide.slot(at)), shapes);
        assert_eq!(Wide::line(wide.slot(9)), 9);
    }

    const LIVING: &[u32] = &[7, 8, 1 << 20];

    fn run(value: u32, child: u32, inherited: bool) -> SlotRun {
        SlotRun { value, child, inherited }
    }

    #[test]
    fn narrow_slots_keep_values_children_and_entries_apart() {
        let slots = Narrow::new(100);
        let runs = [
            run(3, 0, false),
            run(EXPIRES, 0, false),
            run(1 << 20, 9, false),
            run(EXPIRES | 1, 0, false),
            run(EXPIRES | 2, 0, false),
            run(EXPIRES | 1, 5, false),
        ];
        let runs = SlotRuns::from(&runs[..]);
        let size = Narrow::size(&runs, LIVING);
        assert_eq!(size, 6 + 3 * 4 + 2 * 2 + 2);
        let base = slots.write(10, size, &runs, LIVING) as usize;
        assert_eq!(slots.slot(base), 3);
        assert_eq!((slots.slot(base + 1), slots.entry(base, base + 1)), (MARK | 7, 0));
        assert_eq!(slots.escape(base, slots.slot(base + 2)), (1 << 20, 9));
        assert_eq!((slots.slot(base + 3), slots.entry(base, base + 3)), (MARK | 8, 1));
        assert_eq!(slots.escape(base, slots.slot(base + 4)), (ENTRY | 2, 0));
        assert_eq!(slots.escape(base, slots.slot(base + 5)), (ENTRY | 1, 5));
        assert_eq!(Narrow::plain(run(3, 0, false), LIVING), Some(3));
        assert_eq!(Narrow::plain(run(EXPIRES, 0, false), LIVING), None);
    }

    #[test]
    fn wide_slots_keep_values_children_and_entries_apart() {
        let slots = Wide::new(100);
        let runs = [
            run(ENTRY | 3, 0, false),
            run(EXPIRES, 0, false),
            run(0, 9, false),
            run(EXPIRES | 1, 0, true),
            run(EXPIRES | 2, 5, false),
            run(EXPIRES | 1, 0, false),
        ];
        let runs = SlotRuns::from(&runs[..]);
        let base = slots.write(10, Wide::size(&runs, LIVING), &runs, LIVING) as usize;
        let values: Vec<u32> = [0, 1, 3, 5].map(|n| Wide::value(slots.slot(base + n))).into();
        assert_eq!(values, [ENTRY | 3, 7, 8, 8]);
        let entries: Vec<_> = (0..6).map(|n| slots.entry(base, base + n)).collect();
        assert_eq!(entries, [None, Some(0), None, None, Some(2), Some(1)]);
        let lines: Vec<u32> = (0..6).map(|n| Wide::line(slots.slot(base + n))).collect();
        assert_eq!(lines, [0, 0, 9, 0, 5, 0]);
        let expire: Vec<bool> = (0..6).map(|n| Wide::can_expire(slots.slot(base + n))).collect();
        assert_eq!(expire, [false, true, false, true, false, true]);
    }
}
