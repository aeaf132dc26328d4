//! `TimerWheel`: deadlines of many entries, with constant work to set, clear and expire each.
//!
//! Called by every table with timed entries (neighbours, address detection, routes, connections).
//! A hierarchical timing wheel: eight levels of 64 lists, each level 64 times as coarse as the one
//! below, so that every moment that an [`Instant`] can hold has its list and nothing is "too far".
//! Entries are indices of the owner's array; all memory is taken at construction.
//!
//! Invariants: an entry of level L differs from the wheel's present time in digit L (base 64) and
//! in no higher one; an entry never expires before its deadline, nor later than one
//! [`TimerWheel::GRANULARITY`] after it, if the owner polls. Read first: Varghese and Lauck,
//! "Hashed and Hierarchical Timing Wheels" (SOSP 1987), scheme 7.
//!
//! # Under flood
//! Reachable by any peer that can make the owner set timers. Bound: the owner's number of entries.
//! Worst work: each call does as many units as it is granted, and an entry costs at most eight of
//! them over its whole life (one to leave each level). When a call's units run out the rest stays
//! due and [`TimerWheel::deadline`] reports it: a flood delays timers and loses none.

use core::time::Duration;

use crate::{IndexLists, Instant, Units};

/// Nanoseconds of a tick, as a power of two.
const TICK_SHIFT: u32 = 20;
/// Bits of time that one level resolves.
const LEVEL_BITS: u32 = 6;
/// Lists of one level.
const SLOTS: u32 = 1 << LEVEL_BITS;
/// Enough for the 44 bits that an instant has beyond a tick.
const LEVELS: usize = 8;
/// The last tick that an instant can name.
const TICK_MAX: u64 = u64::MAX >> TICK_SHIFT;
/// The list of entries that wait to be given out.
const DUE: u32 = LEVELS as u32 * SLOTS;
/// The list of entries that cascade: their slot of a coarse level was reached, and they go to a
/// finer one.
const CASCADE: u32 = DUE + 1;
/// What an entry that is not set has for a list.
const NOWHERE: u32 = u32::MAX;

const _: () = assert!(LEVELS as u32 * LEVEL_BITS + TICK_SHIFT >= u64::BITS);

/// Where and when one entry is.
#[derive(Clone, Copy, Debug)]
struct WheelEntry {
    tick: u64,
    list: u32,
}

/// A hierarchical timing wheel: deadlines of entries that are known by index.
#[derive(Clone, Debug)]
pub struct TimerWheel {
    entries: Box<[WheelEntry]>,
    lists: IndexLists,
    /// One bit for each list of each level that is not empty.
    occupied: [u64; LEVELS],
    /// The tick up to which all lists have been emptied.
    elapsed: u64,
    /// How many entries are set.
    len: usize,
    /// Cached result of [`TimerWheel::deadline`], which is read much more often than it changes.
    next: Instant,
}

impl TimerWheel {
    /// How much later than its deadline an entry may be given out: 2^20 ns, about a millisecond.
    pub const GRANULARITY: Duration = Duration::from_nanos(1 << TICK_SHIFT);

    /// A wheel for the indices below `capacity`, none set, that starts at `now`. Takes 24 bytes an
    /// index and 4 KiB.
    #[must_use]
    pub fn new(capacity: usize, now: Instant) -> Self {
        Self {
            entries: vec![WheelEntry { tick: 0, list: NOWHERE }; capacity].into(),
            lists: IndexLists::new(capacity, CASCADE as usize + 1),
            occupied: [0; LEVELS],
            elapsed: now.as_nanos() >> TICK_SHIFT,
            len: 0,
            next: Instant::FAR,
        }
    }

    /// How many entries are set.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none is set.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this entry is set.
    #[must_use]
    #[inline]
    pub fn is_set(&self, index: u32) -> bool {
        self.entries.get(index as usize).is_some_and(|e| e.list != NOWHERE)
    }

    /// Sets an entry, which may be set already: the new deadline counts. One in the past is due at
    /// once. An index beyond the capacity is our own mistake: an assertion in debug builds, nothing
    /// in others. Constant time.
    #[inline]
    pub fn insert(&mut self, index: u32, deadline: Instant) {
        self.take_out(index);
        debug_assert!((index as usize) < self.entries.len());
        if let Some(entry) = self.entries.get_mut(index as usize) {
            let up = deadline.as_nanos().div_ceil(1 << TICK_SHIFT);
            entry.tick = up.min(TICK_MAX);
            self.len += 1;
            self.place(index);
        }
        self.plan();
    }

    /// Clears an entry; nothing where it is not set. Constant time.
    #[inline]
    pub fn cancel(&mut self, index: u32) {
        if self.is_set(index) {
            self.take_out(index);
            self.plan();
        }
    }

    /// Takes an entry out of its list, if it is set.
    #[inline]
    fn take_out(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        if entry.list == NOWHERE {
            return;
        }
        let list = core::mem::replace(&mut entry.list, NOWHERE);
        self.len -= 1;
        self.lists.unlink(index);
        // The entry may have been moved on with its whole list: then that list is empty and its
        // bit already clear, or has been filled anew and keeps it.
        if self.lists.is_empty(list) {
            self.mark(list, false);
        }
    }

    /// Takes out one expired entry, in order of deadline but for those within one granule. Each
    /// entry that is given out, or moved to a finer level, costs one unit; `None` means that
    /// nothing more is due, or that `units` are used up. The owner may set the entry again at once.
    #[inline]
    pub fn pop_due(&mut self, now: Instant, units: &mut Units) -> Option<u32> {
        let popped = self.pop(now, units);
        self.plan();
        popped
    }

    #[inline]
    fn pop(&mut self, now: Instant, units: &mut Units) -> Option<u32> {
        let now = now.as_nanos() >> TICK_SHIFT;
        while !units.is_zero() {
            // First what moves on, so that an entry that is always set to "now" delays no other.
            if let Some(index) = self.lists.pop_front(CASCADE) {
                *units = units.minus(Units(1));
                self.place(index);
            } else if let Some(index) = self.lists.pop_front(DUE) {
                *units = units.minus(Units(1));
                if let Some(entry) = self.entries.get_mut(index as usize) {
                    entry.list = NOWHERE;
                }
                self.len -= 1;
                return Some(index);
            } else if !self.advance(now) {
                return None;
            }
        }
        None
    }

    /// Gives every due entry to `due`, with at most `units` of work; returns what was spent.
    pub fn expire(&mut self, now: Instant, units: Units, mut due: impl FnMut(u32)) -> Units {
        let mut left = units;
        while let Some(index) = self.pop_due(now, &mut left) {
            due(index);
        }
        units.minus(left)
    }

    /// When [`TimerWheel::pop_due`] has work at the earliest: never later than the first deadline
    /// rounded up to a granule; earlier where an entry must move to a finer level, at most seven
    /// times for each. `None` where nothing is set. Costs a load.
    #[must_use]
    #[inline]
    pub const fn deadline(&self) -> Option<Instant> {
        if self.next.as_nanos() == Instant::FAR.as_nanos() { None } else { Some(self.next) }
    }

    /// The same as a time; [`Instant::FAR`] where there is none.
    #[must_use]
    #[inline]
    pub const fn works_at(&self) -> Instant {
        self.next
    }

    /// Finds out when there is work next. Costs eight loads at most.
    #[inline]
    fn plan(&mut self) {
        let waits = || !self.lists.is_empty(DUE) || !self.lists.is_empty(CASCADE);
        let tick = match self.len {
            0 => None,
            _ if waits() => Some(self.elapsed),
            _ => self.following().map(|(tick, _)| tick),
        };
        self.next = tick.map_or(Instant::FAR, |tick| Instant::from_nanos(tick << TICK_SHIFT));
    }

    /// The first tick at which a list is reached, and that list.
    #[inline]
    fn following(&self) -> Option<(u64, u32)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let bits = self.occupied.get(level)?;
        let shift = level as u32 * LEVEL_BITS;
        let block = self.elapsed >> shift & !u64::from(SLOTS - 1);
        let slot = bits.trailing_zeros();
        Some(((block | u64::from(slot)) << shift, level as u32 * SLOTS + slot))
    }

    /// Goes to the next list that is reached by `now`, and empties it; false where there is none.
    #[inline]
    fn advance(&mut self, now: u64) -> bool {
        match self.following() {
            Some((tick, list)) if tick <= now => {
                self.elapsed = tick;
                self.mark(list, false);
                self.lists.append(list, if list < SLOTS { DUE } else { CASCADE });
                true
            }
            _ => {
                self.elapsed = self.elapsed.max(now);
                false
            }
        }
    }

    /// Links an entry into the list of its tick, as seen from `elapsed`.
    #[inline]
    fn place(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        let list = if entry.tick <= self.elapsed {
            DUE
        } else {
            let level = (entry.tick ^ self.elapsed).ilog2() / LEVEL_BITS;
            let slot = (entry.tick >> (level * LEVEL_BITS)) as u32 & (SLOTS - 1);
            level * SLOTS + slot
        };
        entry.list = list;
        self.lists.push_back(list, index);
        self.mark(list, true);
    }

    /// Notes whether a list of a level has entries.
    #[inline]
    fn mark(&mut self, list: u32, occupied: bool) {
        if let Some(bits) = self.occupied.get_mut((list / SLOTS) as usize) {
            let bit = 1 << (list % SLOTS);
            *bits = if occupied { *bits | bit } else { *bits & !bit };
        }
    }
}

#[cfg(test)]
#[path = "wheel/tests.rs"]
mod tests;
