//! The walk of IPv6: the root of 16 bits, a direct block, then lines with 32-bit slots.
//!
//! Called by `lpm.rs`. What a node's empty positions inherit from the nodes above stands in its
//! own slots, so that the last slot of a walk is the answer, and only one that is empty up to bit
//! 24 leads to the result of the direct blocks.

use core::hint::cold_path;
use core::net::Ipv6Addr;

use floodwall_base::Instant;
use floodwall_sync::shim::atomic::Ordering::Relaxed;

use super::ENTRY;
use super::layout::halves;
use super::root::{self, ValueRoot};
use super::slots::{Wide, wide_slot};
use super::table::{Arrays, LpmFamily, Table, ask_for, entry, or, word_at};

/// Keys in flight at a time.
const LANES: usize = 32;

/// Levels that every key goes through, whether it needs them or not: leaving early costs more than
/// a walk through line 0. All but a few prefixes of the Internet end by bit 48.
const LEVELS: u32 = 3;

impl LpmFamily for Ipv6Addr {
    type Root = ValueRoot;
    type Slots = Wide;
    const LINES_FROM: u8 = 24;
    const INHERITS: bool = true;

    #[inline]
    fn lookup<const CHECK: bool>(table: &Table<Self>, addr: Self) -> (u32, bool) {
        (single::<CHECK>(&table.arrays(), addr), false)
    }

    /// As `single`, in a loop that holds the arrays' addresses in registers.
    #[inline(always)]
    fn lookup_at(arrays: &Arrays<'_, Self>, addr: Self, now: Instant) -> u32 {
        let table = arrays.table;
        if !table.may_have_ended(now) {
            let found = single::<false>(arrays, addr);
            // Asked again, as what can expire may have been put in meanwhile.
            if !table.may_have_ended(now) {
                return found;
            }
        }
        cold_path();
        checked(table, addr)
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

/// A look-up where something may have ended.
#[inline(never)]
fn checked(table: &Table<Ipv6Addr>, addr: Ipv6Addr) -> u32 {
    single::<true>(&table.arrays(), addr)
}

#[inline(always)]
fn single<const CHECK: bool>(arrays: &Arrays<'_, Ipv6Addr>, addr: Ipv6Addr) -> u32 {
    let upper = (addr.to_bits() >> 64) as u64;
    let (mut line, above) = direct(arrays, upper);
    // A branch of the space, not of the table.
    if line == 0 {
        return above;
    }
    let mut slot = 0;
    for level in 0..LEVELS {
        let position = (upper >> (32 - 8 * level)) as u32;
        let word = word_at(arrays.lines, line, position);
        let here = wide_slot(arrays.slots, word.slot_by(position, arrays.bits));
        line = Wide::line(here);
        slot |= Wide::leaf(here);
    }
    if line != 0 || (CHECK && Wide::can_expire(slot)) {
        return walk::<CHECK>(arrays.table, addr.to_bits());
    }
    or(Wide::value(slot), above)
}

/// The line below the direct blocks, and the longest match among them.
#[inline(always)]
fn direct(arrays: &Arrays<'_, Ipv6Addr>, upper: u64) -> (u32, u32) {
    let (block, above) = root::value(arrays.root, (upper >> 48) as u16);
    let (line, third) = entry(arrays.directs, block, (upper >> 40) as u8);
    (line, or(third, or(above, arrays.table.default.load(Relaxed))))
}

#[inline(always)]
fn burst<const CHECK: bool>(table: &Table<Ipv6Addr>, addrs: &[Ipv6Addr], found: &mut [u32]) {
    let arrays = table.arrays();
    let mut upper = [0_u64; LANES];
    let mut line = [0_u32; LANES];
    let mut slot = [0_u32; LANES];
    // With `CHECK`, the base and the index of the last slot that was no child's.
    let mut last = [0_u64; LANES];
    for (addr, upper) in addrs.iter().zip(&mut upper) {
        *upper = (addr.to_bits() >> 64) as u64;
    }
    let mut lines = 0;
    for ((upper, line), found) in upper.iter().zip(&mut line).zip(found.iter_mut()) {
        (*line, *found) = direct(&arrays, *upper);
        lines |= *line;
        ask_for(arrays.lines, *line as usize);
    }
    for level in 0..LEVELS {
        if lines == 0 {
            break;
        }
        lines = 0;
        let mut at = [0_u32; LANES];
        for (((upper, line), at), last) in upper.iter().zip(&line).zip(&mut at).zip(&mut last) {
            let position = (upper >> (32 - 8 * level)) as u32;
            let word = word_at(arrays.lines, *line, position);
            let slot = word.slot(position);
            *at = slot as u32;
            ask_for(arrays.slots, slot);
            if CHECK {
                let here = (word.base() as u64) << 32 | slot as u64;
                *last = if *line == 0 { *last } else { here };
            }
        }
        for ((at, line), slot) in at.iter().zip(&mut line).zip(&mut slot) {
            let here = wide_slot(arrays.slots, *at as usize);
            *line = Wide::line(here);
            *slot |= Wide::leaf(here);
            lines |= *line;
            ask_for(arrays.lines, *line as usize);
        }
    }
    let mut unusual = 0_u32;
    for (((line, slot), found), lane) in line.iter().zip(&slot).zip(found.iter_mut()).zip(0..) {
        *found = or(Wide::value(*slot), *found);
        let is_unusual = *line != 0 || (CHECK && Wide::can_expire(*slot));
        unusual |= u32::from(is_unusual) << (lane & 31);
    }
    while unusual != 0 {
        let lane = unusual.trailing_zeros() as usize;
        unusual &= unusual - 1;
        let (Some(addr), Some(found)) = (addrs.get(lane), found.get_mut(lane)) else { break };
        let (Some(line), Some(last)) = (line.get(lane), last.get(lane)) else { break };
        let (at, base) = halves(*last);
        let own = match *line {
            0 if CHECK => table.slots.entry(base as usize, at as usize),
            _ => None,
        };
        *found = match own {
            Some(entry) => ENTRY | entry,
            None => walk::<CHECK>(table, addr.to_bits()),
        };
    }
}

/// The whole walk of one key.
#[cold]
#[inline(never)]
fn walk<const CHECK: bool>(table: &Table<Ipv6Addr>, bits: u128) -> u32 {
    let (mut line, above) = direct(&table.arrays(), (bits >> 64) as u64);
    // The entry of what the slots further down inherit, if that can expire.
    let mut inherited = 0;
    for shift in (0..=96).rev().step_by(8) {
        let position = (bits >> shift) as u32 & 255;
        let word = table.word_at(line, position);
        let at = word.slot(position);
        let slot = table.slots.slot(at);
        let child = Wide::line(slot);
        if child != 0 {
            if CHECK && let Some(entry) = table.slots.entry(word.base(), at) {
                inherited = entry;
            }
            line = child;
            continue;
        }
        if CHECK && Wide::can_expire(slot) {
            return ENTRY | table.slots.entry(word.base(), at).unwrap_or(inherited);
        }
        return or(Wide::value(slot), above);
    }
    above
}
