//! The walk of IPv4: the root of 16 bits, then lines with 16-bit slots.
//!
//! Called by `lpm.rs`. Nearly all prefixes end by bit 24, so the way there has no branch, and the
//! rest is a cold one: prefixes of 25 to 32 bits, values that do not fit a slot, and with `CHECK`
//! what can expire. Of a burst each loop makes one access of memory for every key, so that those
//! of all keys are under way together.

use core::hint::cold_path;
use core::net::Ipv4Addr;

use floodwall_base::Instant;
use floodwall_sync::shim::atomic::Ordering::{Acquire, Relaxed};

use super::root::{self, LineRoot};
use super::slots::{ESCAPE, INHERIT, MARK, Narrow, narrow_slot};
use super::table::{Arrays, LpmFamily, Table, ask_for, or, word_at};
use super::word::{LineWords as _, SlotWord};
use super::{ENTRY, VALUE_MAX};

/// Keys in flight at a time: enough to hide a memory access behind the others, few enough for
/// their state to stay in the first cache level.
const LANES: usize = 64;

impl LpmFamily for Ipv4Addr {
    type Root = LineRoot;
    type Slots = Narrow;
    const LINES_FROM: u8 = 16;
    const INHERITS: bool = false;

    #[inline]
    fn lookup<const CHECK: bool>(table: &Table<Self>, addr: Self) -> (u32, bool) {
        let bits = addr.to_bits();
        let (word, slot) = first_slot(&table.arrays(), bits);
        if slot < MARK {
            return (or(u32::from(slot), table.default.load(Relaxed)), true);
        }
        (marked::<CHECK>(table, bits, word, slot), false)
    }

    /// As few instructions as can be: what a processor has under way at a time is counted in them,
    /// and each look-up waits for memory. What cannot expire is the answer at any time.
    #[inline(always)]
    fn lookup_at(arrays: &Arrays<'_, Self>, addr: Self, now: Instant) -> u32 {
        let bits = addr.to_bits();
        let (word, slot) = first_slot(arrays, bits);
        if slot >= MARK {
            cold_path();
            return marked_at(arrays.table, bits, word, slot, now);
        }
        or(u32::from(slot), arrays.table.default.load(Relaxed))
    }

    fn lookup_burst<const CHECK: bool>(table: &Table<Self>, addrs: &[Self], found: &mut [u32]) {
        for (addrs, found) in addrs.chunks(LANES).zip(found.chunks_mut(LANES)) {
            // With as many as there are lanes, the loops have a length that the compiler knows.
            match (addrs.as_array::<LANES>(), found.as_mut_array::<LANES>()) {
                (Some(addrs), Some(found)) => table.run(|| burst::<CHECK>(table, addrs, found)),
                _ => table.run(|| burst::<CHECK>(table, addrs, found)),
            }
        }
    }
}

/// The word and the slot of the third byte.
#[inline(always)]
fn first_slot(arrays: &Arrays<'_, Ipv4Addr>, bits: u32) -> (SlotWord, u16) {
    let line = root::line(arrays.root, (bits >> 16) as u16);
    let word = word_at(arrays.lines, line, bits >> 8);
    (word, narrow_slot(arrays.slots, word.slot_by(bits >> 8, arrays.bits)))
}

/// The same at `now`; asked again, as what can expire may have been put in meanwhile.
#[inline(never)]
fn marked_at(table: &Table<Ipv4Addr>, bits: u32, word: SlotWord, slot: u16, now: Instant) -> u32 {
    if !table.may_have_ended(now) {
        let found = marked::<false>(table, bits, word, slot);
        if !table.may_have_ended(now) {
            return found;
        }
    }
    marked::<true>(table, bits, word, slot)
}

/// What a slot stands for that is not its value and no more. By the word that led to the slot: in
/// one that was published since, the position may have another.
#[inline(always)]
fn marked<const CHECK: bool>(table: &Table<Ipv4Addr>, bits: u32, word: SlotWord, slot: u16) -> u32 {
    match slot {
        MARK..ESCAPE if CHECK => ENTRY | table.slots.entry(word.base(), word.slot(bits >> 8)),
        ..ESCAPE => u32::from(slot & (MARK - 1)),
        _ => walk::<CHECK>(table, bits),
    }
}

#[inline(always)]
const fn is_unusual<const CHECK: bool>(slot: u16) -> bool {
    if CHECK { slot >= MARK } else { slot >= ESCAPE }
}

#[inline(always)]
fn burst<const CHECK: bool>(table: &Table<Ipv4Addr>, addrs: &[Ipv4Addr], found: &mut [u32]) {
    let Arrays { root, lines, slots, .. } = table.arrays();
    let mut at = [0_u32; LANES];
    let mut base = [0_u32; LANES];
    for (addr, at) in addrs.iter().zip(&mut at) {
        let bits = addr.to_bits();
        let line = root::line(root, (bits >> 16) as u16);
        // The finished index: half-done arithmetic would be done for several keys at once and
        // taken apart again.
        *at = line * 8 + (bits >> 13 & 7);
        ask_for(lines, line as usize);
    }
    for ((addr, at), base) in addrs.iter().zip(&mut at).zip(&mut base) {
        let line = lines.get(*at as usize / 8);
        let word = line.map_or(SlotWord::EMPTY, |line| line.word(*at as usize % 8));
        let slot = word.slot(addr.to_bits() >> 8);
        *at = slot as u32;
        ask_for(slots, slot);
        if CHECK {
            *base = word.base() as u32;
        }
    }
    let default = table.default.load(Relaxed);
    let mut unusual = 0_u64;
    for ((at, found), lane) in at.iter().zip(found.iter_mut()).zip(0..) {
        let slot = narrow_slot(slots, *at as usize);
        *found = or(u32::from(slot & (MARK - 1)), default);
        unusual |= u64::from(is_unusual::<CHECK>(slot)) << (lane & 63);
    }
    while unusual != 0 {
        let lane = unusual.trailing_zeros() as usize;
        unusual &= unusual - 1;
        let (Some(addr), Some(found)) = (addrs.get(lane), found.get_mut(lane)) else { break };
        let (Some(at), Some(base)) = (at.get(lane).copied(), base.get(lane).copied()) else {
            break;
        };
        let at = at as usize;
        *found = match narrow_slot(slots, at) {
            MARK..ESCAPE => ENTRY | table.slots.entry(base as usize, at),
            _ => walk::<CHECK>(table, addr.to_bits()),
        };
    }
}

/// The whole walk of one key.
#[cold]
#[inline(never)]
fn walk<const CHECK: bool>(table: &Table<Ipv4Addr>, bits: u32) -> u32 {
    let mut line = table.root.line((bits >> 16) as u16);
    let above = table.inherited.get(line as usize).map_or(0, |value| value.load(Acquire));
    let mut best = or(above & VALUE_MAX, table.default.load(Relaxed));
    for position in [bits >> 8 & 255, bits & 255] {
        let word = table.word_at(line, position);
        let at = word.slot(position);
        let slot = table.slots.slot(at);
        let (value, child) = match slot {
            INHERIT => break,
            ESCAPE.. => table.slots.escape(word.base(), slot),
            MARK.. if CHECK => (ENTRY | table.slots.entry(word.base(), at), 0),
            _ => (u32::from(slot & (MARK - 1)), 0),
        };
        best = or(value, best);
        if child == 0 {
            break;
        }
        line = child;
    }
    best
}
