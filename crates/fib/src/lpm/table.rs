//! What readers of a longest-prefix-match table see: arrays of atomics, and the walk over them.
//!
//! Called by `lpm.rs` for look-ups and by `writer.rs` for changes. The layout stands in `lpm.rs`.
//! Every index is bounded by its array; one that is out of bounds, which cannot be, would lead to
//! "no match" and not further.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::Address;
use floodwall_sync::shim::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::slots::{CHILD, ESCAPE, Narrow, Slots, Wide};
use super::word::Line;

/// Entries of the root: one for each value of the upper 16 bits.
pub(super) const ROOT: usize = 1 << 16;
/// Entries of a direct block: one for each value of the next 8 bits.
pub(super) const DIRECT: usize = 256;

/// A reference from a root entry, as narrow as the family allows.
pub trait Link: Send + Sync + 'static {
    /// A reference to nothing.
    fn none() -> Self;
    /// What is referred to.
    fn load(&self) -> usize;
    /// Refers to something else, which has been written before.
    fn publish(&self, to: u32);
    /// The largest number that it can hold.
    const MAX: u32;
}

impl Link for AtomicU16 {
    const MAX: u32 = u16::MAX as u32;
    fn none() -> Self {
        Self::new(0)
    }
    #[inline(always)]
    fn load(&self) -> usize {
        usize::from(Self::load(self, Acquire))
    }
    fn publish(&self, to: u32) {
        self.store(to as u16, Release);
    }
}

impl Link for AtomicU32 {
    const MAX: u32 = u32::MAX;
    fn none() -> Self {
        Self::new(0)
    }
    #[inline(always)]
    fn load(&self) -> usize {
        Self::load(self, Acquire) as usize
    }
    fn publish(&self, to: u32) {
        self.store(to, Release);
    }
}

/// A family that has a table.
pub trait Family: Address {
    /// Its slots.
    type Slots: Slots;
    /// What its root refers to: lines, or direct blocks.
    type Link: Link;
    /// Whether direct blocks serve bits 16 to 24; then lines begin at bit 24, else at 16.
    const DIRECT: bool;
    /// The value of the longest match; 0 for none.
    fn lookup(table: &Table<Self>, addr: Self) -> u32;
    /// The values for a burst.
    fn lookup_burst(table: &Table<Self>, addrs: &[Self], found: &mut [u32]);
}

/// See the file's head.
pub struct Table<A: Family> {
    /// The line, or direct block, of each /16.
    pub(super) links: Box<[A::Link]>,
    /// The longest match of up to 16 bits of each /16.
    pub(super) values: Box<[AtomicU32]>,
    /// Blocks of [`DIRECT`] entries: line in the low half, longest match in the high.
    pub(super) directs: Box<[AtomicU64]>,
    pub(super) lines: Box<[Line]>,
    /// With wide slots, what each line falls back to within its /24.
    pub(super) fallbacks: Box<[AtomicU32]>,
    pub(super) slots: A::Slots,
    /// What everything falls back to.
    pub(super) default: AtomicU32,
}

impl<A: Family> Table<A> {
    pub(super) fn new(lines: usize, slots: usize, directs: usize) -> Self {
        let fallbacks = if A::DIRECT { lines } else { 0 };
        let zeros = |n: usize| (0..n).map(|_| AtomicU32::new(0)).collect();
        Self {
            links: (0..ROOT).map(|_| A::Link::none()).collect(),
            values: zeros(ROOT),
            directs: (0..directs * DIRECT).map(|_| AtomicU64::new(0)).collect(),
            lines: (0..lines).map(|_| Line::new()).collect(),
            fallbacks: zeros(fallbacks),
            slots: A::Slots::new(slots),
            default: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    fn link(&self, top: usize) -> usize {
        self.links.get(top).map_or(0, Link::load)
    }

    #[inline(always)]
    fn value(&self, top: usize) -> u32 {
        self.values.get(top).map_or(0, |value| value.load(Relaxed))
    }

    /// The index of the slot for the byte `position` of a node.
    #[inline(always)]
    fn slot_at(&self, line: usize, position: u32) -> usize {
        self.word_at(line, position).slot(position)
    }

    #[inline(always)]
    fn word_at(&self, line: usize, position: u32) -> super::word::Word {
        let q = (position >> 5) as usize & 7;
        self.lines.get(line).map_or(super::word::Word::EMPTY, |line| line.word(q))
    }

    #[inline(always)]
    fn or_default(&self, value: u32) -> u32 {
        if value == 0 { self.default.load(Relaxed) } else { value }
    }
}

/// Keys in flight at a time: enough to hide a memory access behind the others, few enough for
/// their state to stay in the first cache level.
const LANES: usize = 32;

impl Family for Ipv4Addr {
    type Slots = Narrow;
    type Link = AtomicU32;
    const DIRECT: bool = false;

    #[inline]
    fn lookup(table: &Table<Self>, addr: Self) -> u32 {
        let bits = addr.to_bits();
        let top = (bits >> 16) as usize;
        let at = table.slot_at(table.link(top), bits >> 8 & 255);
        let slot = table.slots.slot(at);
        let value = table.value(top);
        let found = if slot == 0 { value } else { u32::from(slot) };
        if slot >= ESCAPE || found == 0 {
            return unusual_v4(table, bits);
        }
        found
    }

    fn lookup_burst(table: &Table<Self>, addrs: &[Self], found: &mut [u32]) {
        for (addrs, found) in addrs.chunks(LANES).zip(found.chunks_mut(LANES)) {
            burst_v4(table, addrs, found);
        }
    }
}

/// One memory access a key in each loop, so that those of all keys are on their way together.
#[inline]
fn burst_v4(table: &Table<Ipv4Addr>, addrs: &[Ipv4Addr], found: &mut [u32]) {
    let mut at = [0_usize; LANES];
    for (addr, at) in addrs.iter().zip(&mut at) {
        let bits = addr.to_bits();
        *at = table.link((bits >> 16) as usize) * 8 + (bits >> 13 & 7) as usize;
    }
    for (addr, at) in addrs.iter().zip(&mut at) {
        let position = addr.to_bits() >> 8;
        *at = table.lines.get(*at / 8).map_or(0, |line| line.word(*at % 8).slot(position));
    }
    let mut repair = false;
    for ((addr, at), found) in addrs.iter().zip(&at).zip(found.iter_mut()) {
        let slot = table.slots.slot(*at);
        let value = table.value((addr.to_bits() >> 16) as usize);
        *found = if slot == 0 { value } else { u32::from(slot) };
        repair |= slot >= ESCAPE || *found == 0;
        // An escape is no value: mark it, as values may be as large.
        if slot >= ESCAPE {
            *found = 0;
        }
    }
    if repair {
        for (addr, found) in addrs.iter().zip(found).filter(|(_, found)| **found == 0) {
            *found = unusual_v4(table, addr.to_bits());
        }
    }
}

/// A route longer than /24, a value that does not fit a slot, or no match but the default.
#[cold]
#[inline(never)]
fn unusual_v4(table: &Table<Ipv4Addr>, bits: u32) -> u32 {
    let top = (bits >> 16) as usize;
    let mut best = table.value(top);
    let mut line = table.link(top);
    for position in [bits >> 8 & 255, bits & 255] {
        let word = table.word_at(line, position);
        let slot = table.slots.slot(word.slot(position));
        let run = match slot >= ESCAPE {
            true => table.slots.escape(word.base(), slot),
            false => super::slots::Run { value: u32::from(slot), child: 0 },
        };
        if run.value != 0 {
            best = run.value;
        }
        if run.child == 0 {
            break;
        }
        line = run.child as usize;
    }
    table.or_default(best)
}

/// Levels that every IPv6 key goes through, whether it needs them or not: leaving early costs
/// more than a walk through line 0.
const LEVELS_V6: usize = 3;

impl Family for Ipv6Addr {
    type Slots = Wide;
    type Link = AtomicU16;
    const DIRECT: bool = true;

    #[inline]
    fn lookup(table: &Table<Self>, addr: Self) -> u32 {
        let mut found = [0];
        burst_v6::<1>(table, &[addr], &mut found);
        found[0]
    }

    fn lookup_burst(table: &Table<Self>, addrs: &[Self], found: &mut [u32]) {
        for (addrs, found) in addrs.chunks(LANES).zip(found.chunks_mut(LANES)) {
            burst_v6::<LANES>(table, addrs, found);
        }
    }
}

#[inline(always)]
fn burst_v6<const N: usize>(table: &Table<Ipv6Addr>, addrs: &[Ipv6Addr], found: &mut [u32]) {
    let mut upper = [0_u64; N];
    let mut line = [0_u32; N];
    for (addr, upper) in addrs.iter().zip(&mut upper) {
        *upper = (addr.to_bits() >> 64) as u64;
    }
    for ((upper, line), found) in upper.iter().zip(&mut line).zip(found.iter_mut()) {
        let top = (upper >> 48) as usize;
        let at = table.link(top) * DIRECT + (upper >> 40 & 255) as usize;
        let entry = table.directs.get(at).map_or(0, |entry| entry.load(Acquire));
        *line = entry as u32;
        let value = (entry >> 32) as u32;
        *found = if value == 0 { table.value(top) } else { value };
    }
    let mut last = line;
    let mut slot = [0_u32; N];
    for level in 0..LEVELS_V6 {
        let shift = 32 - 8 * level as u32;
        // A whole burst above the lines is worth a branch, and so is a single key there: the
        // branch is one of the space, not of the table. Further down a single key goes on.
        if (N > 1 || level == 0) && line.iter().all(|line| *line == 0) {
            break;
        }
        let mut at = [0_usize; N];
        for ((upper, line), at) in upper.iter().zip(&line).zip(&mut at) {
            *at = table.slot_at(*line as usize, (upper >> shift) as u32 & 255);
        }
        for (((at, line), slot), last) in at.iter().zip(&mut line).zip(&mut slot).zip(&mut last) {
            let here = table.slots.slot(*at);
            let child = if here & CHILD != 0 { here & !CHILD } else { 0 };
            *last = if child != 0 { child } else { *last };
            *slot = if child != 0 { 0 } else { *slot | here };
            *line = child;
        }
    }
    for ((((addr, line), last), slot), found) in
        addrs.iter().zip(&line).zip(&last).zip(&slot).zip(found)
    {
        if *line != 0 {
            *found = deep_v6(table, addr.to_bits(), *line, *found);
            continue;
        }
        let value = match *slot {
            0 => table.fallbacks.get(*last as usize).map_or(0, |value| value.load(Relaxed)),
            value => value,
        };
        *found = table.or_default(if value == 0 { *found } else { value });
    }
}

/// The rest of a walk below /48.
#[cold]
#[inline(never)]
fn deep_v6(table: &Table<Ipv6Addr>, bits: u128, line: u32, direct: u32) -> u32 {
    let mut line = line;
    let mut shift = 72;
    loop {
        let slot = table.slots.slot(table.slot_at(line as usize, (bits >> shift) as u32 & 255));
        if slot & CHILD == 0 || shift == 0 {
            let value = match slot {
                0 => table.fallbacks.get(line as usize).map_or(0, |value| value.load(Relaxed)),
                value => value,
            };
            return table.or_default(if value == 0 { direct } else { value });
        }
        line = slot & !CHILD;
        shift -= 8;
    }
}
