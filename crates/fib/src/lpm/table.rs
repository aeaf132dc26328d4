//! What readers of a longest-prefix-match table see: arrays of atomics.
//!
//! Called by `ipv4.rs` and `ipv6.rs` for look-ups and by the writer for changes. The layout stands
//! in `lpm.rs`. Every index is bounded by its array; one that is out of bounds, which cannot be,
//! would lead to "no match" and not further.

use core::hint::cold_path;

use floodwall_base::{Address, Instant};
use floodwall_sync::shim::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use floodwall_sync::{BitInstructions, prefetch, zeroed};

use super::layout::{DIRECT, DYNAMIC_FROM, halves};
use super::root::Root;
use super::slots::Slots;
use super::word::{Line, LineWords as _, SlotWord};

/// A direct block: the child in the low half of an entry, the longest match in the high.
pub(super) type Direct = [AtomicU64; DIRECT];

/// A family that has a table.
pub trait LpmFamily: Address {
    /// Its root.
    type Root: Root;
    /// Its slots.
    type Slots: Slots;
    /// The first bit that lines serve: direct blocks serve those before.
    const LINES_FROM: u8;
    /// Whether a node's slots hold what its empty positions inherit from the nodes above.
    const INHERITS: bool;
    /// The value of the longest match, 0 for none, and whether it is one that cannot expire. With
    /// `CHECK`, the entry of one that can.
    fn lookup<const CHECK: bool>(table: &Table<Self>, addr: Self) -> (u32, bool);
    /// What a look-up at `now` finds.
    #[inline(always)]
    fn lookup_at(arrays: &Arrays<'_, Self>, addr: Self, now: Instant) -> u32 {
        let table = arrays.table;
        if !table.may_have_ended(now) {
            let (found, stays) = Self::lookup::<false>(table, addr);
            // Of what can expire asked again, as it may have been put in meanwhile.
            if stays || !table.may_have_ended(now) {
                return found;
            }
        }
        Self::lookup::<true>(table, addr).0
    }
    /// The values for a burst.
    fn lookup_burst<const CHECK: bool>(table: &Table<Self>, addrs: &[Self], found: &mut [u32]);
}

/// A table, and where its arrays are: an atomic access makes the compiler forget what it read of
/// the table before, but not what a loop holds in registers.
pub struct Arrays<'a, A: LpmFamily> {
    pub(super) table: &'a Table<A>,
    pub(super) root: <A::Root as Root>::Entries<'a>,
    pub(super) lines: &'a [Line],
    pub(super) directs: &'a [Direct],
    pub(super) slots: <A::Slots as Slots>::Array<'a>,
    pub(super) bits: Option<BitInstructions>,
}

/// The longest-prefix-match table as readers see it.
pub struct Table<A: LpmFamily> {
    /// The direct blocks of the second byte.
    pub(super) root: A::Root,
    /// Those of the third byte, from [`DYNAMIC_FROM`] on.
    directs: Box<[Direct]>,
    pub(super) lines: Box<[Line]>,
    /// What each line inherits of the root, for walks that do not find it in its slots; none where
    /// the root's entries have it.
    pub(super) inherited: Box<[AtomicU32]>,
    pub(super) slots: A::Slots,
    /// What everything falls back to.
    pub(super) default: AtomicU32,
    /// Nothing that can expire ends before.
    soonest: AtomicU64,
    bits: Option<BitInstructions>,
}

impl<A: LpmFamily> Table<A> {
    pub(super) fn new(lines: usize, slots: usize, directs: usize) -> Self {
        Self {
            root: A::Root::new(),
            directs: zeroed(directs),
            lines: zeroed(lines),
            inherited: zeroed(if A::Root::PUSHES { lines } else { 0 }),
            slots: A::Slots::new(slots),
            default: AtomicU32::new(0),
            soonest: AtomicU64::new(u64::MAX),
            bits: BitInstructions::detect(),
        }
    }

    /// Does `work` with what instructions this processor has for it.
    #[inline(always)]
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.bits {
            Some(bits) => bits.run(work),
            None => work(),
        }
    }

    /// An entry of a direct block of the third byte, for the writer.
    pub(super) fn cell(&self, block: u32, at: usize) -> Option<&AtomicU64> {
        self.directs.get(block.checked_sub(DYNAMIC_FROM)? as usize)?.get(at)
    }

    #[inline(always)]
    pub(super) fn word_at(&self, line: u32, position: u32) -> SlotWord {
        word_at(&self.lines, line, position)
    }

    /// The number of the longest match, or its entry where something may have ended at `now`.
    #[inline]
    pub(super) fn lookup(&self, addr: A, now: Instant) -> u32 {
        A::lookup_at(&self.arrays(), addr, now)
    }

    /// The table and its arrays.
    #[inline(always)]
    pub(super) fn arrays(&self) -> Arrays<'_, A> {
        Arrays {
            table: self,
            root: self.root.entries(),
            lines: &self.lines,
            directs: &self.directs,
            slots: self.slots.array(),
            bits: self.bits,
        }
    }

    /// The same for a burst.
    #[inline]
    pub(super) fn lookup_burst(&self, addrs: &[A], now: Instant, found: &mut [u32]) {
        if !self.may_have_ended(now) {
            A::lookup_burst::<false>(self, addrs, found);
            if !self.may_have_ended(now) {
                return;
            }
        }
        A::lookup_burst::<true>(self, addrs, found);
    }

    /// Whether something may have ended at `now`.
    #[inline(always)]
    pub(super) fn may_have_ended(&self, now: Instant) -> bool {
        self.soonest.load(Acquire) <= now.as_nanos()
    }

    pub(super) fn set_soonest(&self, at: Instant) {
        self.soonest.store(at.as_nanos(), Release);
    }

    /// Something ends at `at`: to be called before it is shown.
    pub(super) fn lower_soonest(&self, at: Instant) {
        if at.as_nanos() < self.soonest.load(Relaxed) {
            self.set_soonest(at);
        }
    }
}

/// Prefetches what stands at a place of an array and will be read soon.
#[inline(always)]
pub(super) fn ask_for<T>(array: &[T], at: usize) {
    if let Some(entry) = array.get(at) {
        prefetch(entry);
    }
}

/// The link and the value of an entry of a direct block of the third byte; none of block 0.
#[inline(always)]
pub(super) fn entry(directs: &[Direct], block: u32, byte: u8) -> (u32, u32) {
    let block = directs.get((block as usize).wrapping_sub(DYNAMIC_FROM as usize));
    let entry = block.and_then(|block| block.get(usize::from(byte)));
    halves(entry.map_or(0, |entry| entry.load(Acquire)))
}

/// The word of a line for the byte `position`.
#[inline(always)]
pub(super) fn word_at(lines: &[Line], line: u32, position: u32) -> SlotWord {
    let Some(line) = lines.get(line as usize) else {
        cold_path();
        return SlotWord::EMPTY;
    };
    line.word((position >> 5) as usize & 7)
}

/// The first that is not 0, without a branch: which one it is depends on the address.
#[inline(always)]
pub(super) fn or(value: u32, fallback: u32) -> u32 {
    core::hint::select_unpredictable(value == 0, fallback, value)
}
