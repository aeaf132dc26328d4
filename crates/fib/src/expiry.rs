//! `Expiry`: which entries are to be collected, and when.
//!
//! Called by [`crate::Fib`] with the numbers of lifetimes; public for its bench. A timing wheel of
//! fourteen levels, each eight times as coarse as the one below (Varghese and Lauck, SOSP 1987;
//! that nothing moves from a coarse level to a finer one is Thomas Gleixner's idea in Linux 4.8). A
//! collection here only frees memory: readers check lifetimes by their own clock. So it may be
//! late, and an entry is in the coarsest list that delays it by an eighth of what it had left at
//! most, and never moves. That makes the work of a collection exactly what is due, and a look at
//! fourteen words.
//!
//! Invariant: an entry is in one list or in none; it is given out after its deadline, never before.
//!
//! # Under flood
//! A source of lifetimes adds an entry; bound: the lifetimes' (`expiring_max`). Worst work: to set
//! and to clear is constant, to collect one entry too; the caller limits the number at a time. When
//! full, the table refuses the route. A clock that jumps makes everything due at once; it is given
//! out as slowly as before.

use floodwall_base::{IndexLists, Instant};

/// Nanoseconds of a tick, as a power of two: about a millisecond.
const TICK_SHIFT: u32 = 20;
/// Each level is so many times as coarse as the one below, as a power of two.
const STEP_SHIFT: u32 = 3;
const LEVEL_SLOTS: u64 = 64;
/// Enough for the 44 bits that an instant has beyond a tick.
const LEVELS: usize = 14;
/// Maximum distance of an entry in slots, so that its list is not that of the present slot.
const REACH_SLOTS: u64 = LEVEL_SLOTS - 2;

/// A timing wheel of entries with deadlines, for collection only.
#[derive(Debug)]
pub struct Expiry {
    lists: IndexLists,
    /// The list that each entry is in.
    list_of: Box<[u16]>,
    occupied: [u64; LEVELS],
    /// Every list up to this tick is empty.
    done: u64,
    len: usize,
}

const NOWHERE: u16 = u16::MAX;

impl Expiry {
    /// For numbers below `entries`. Takes 10 bytes each.
    #[must_use]
    pub fn new(entries: usize, now: Instant) -> Self {
        Self {
            lists: IndexLists::new(entries, LEVELS * LEVEL_SLOTS as usize),
            list_of: vec![NOWHERE; entries].into(),
            occupied: [0; LEVELS],
            done: now.as_nanos() >> TICK_SHIFT,
            len: 0,
        }
    }

    /// How many are set.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(crate) fn is_set(&self, at: u32) -> bool {
        self.list_of.get(at as usize).is_some_and(|list| *list != NOWHERE)
    }

    /// Collects an entry after `until`; where it was set before, the new deadline counts.
    #[inline]
    pub fn insert(&mut self, at: u32, until: Instant, now: Instant) {
        self.cancel(at);
        self.advance(now.as_nanos() >> TICK_SHIFT);
        let tick = (until.as_nanos() >> TICK_SHIFT) + 1;
        let left = tick.saturating_sub(self.done).max(1);
        // The finest level with lists that reach that far.
        let level = (left / REACH_SLOTS).checked_ilog2().map_or(0, |n| n / STEP_SHIFT + 1);
        let level = (level as usize).min(LEVELS - 1);
        let shift = level as u32 * STEP_SHIFT;
        let now = self.done >> shift;
        let slot = tick.div_ceil(1 << shift).clamp(now + 1, now + LEVEL_SLOTS - 1);
        let list = level as u16 * LEVEL_SLOTS as u16 + (slot % LEVEL_SLOTS) as u16;
        let Some(of) = self.list_of.get_mut(at as usize) else { return };
        *of = list;
        self.lists.push_back(u32::from(list), at);
        if let Some(bits) = self.occupied.get_mut(level) {
            *bits |= 1 << (slot % LEVEL_SLOTS);
        }
        self.len += 1;
    }

    /// Follows the clock as far as nothing is due, so that what is left is seen from now.
    #[inline]
    fn advance(&mut self, now: u64) {
        if now > self.done {
            let upto = self.next().map_or(now, |(tick, _)| now.min(tick - 1));
            self.done = self.done.max(upto);
        }
    }

    /// Collects an entry no more.
    #[inline]
    pub fn cancel(&mut self, at: u32) {
        let Some(of) = self.list_of.get_mut(at as usize) else { return };
        let list = core::mem::replace(of, NOWHERE);
        if list == NOWHERE {
            return;
        }
        self.len -= 1;
        self.lists.unlink(at);
        self.clear_if_empty(list);
    }

    fn clear_if_empty(&mut self, list: u16) {
        if self.lists.is_empty(u32::from(list))
            && let Some(bits) = self.occupied.get_mut(usize::from(list) / LEVEL_SLOTS as usize)
        {
            *bits &= !(1 << (u64::from(list) % LEVEL_SLOTS));
        }
    }

    /// A moment before which nothing ends that is set, at most an eighth too early: what was set
    /// when it had ended already is not counted.
    #[must_use]
    pub fn ends_from(&self) -> Instant {
        let first_of = |(level, bits): (usize, &u64)| {
            let shift = level as u32 * STEP_SHIFT;
            let next = (self.done >> shift) + 1;
            let ahead = bits.rotate_right((next % LEVEL_SLOTS) as u32).trailing_zeros();
            (*bits != 0).then(|| (next + u64::from(ahead) - 1) << shift)
        };
        let first = self.occupied.iter().enumerate().filter_map(first_of).min();
        first.map_or(Instant::FAR, |tick| Instant::from_nanos(tick << TICK_SHIFT))
    }

    /// Takes out one entry that is due; `None` where none is.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos() >> TICK_SHIFT;
        match self.next() {
            Some((tick, list)) if tick <= now => {
                // All ticks before it are empty.
                self.done = self.done.max(tick - 1);
                let at = self.lists.pop_front(u32::from(list))?;
                if let Some(of) = self.list_of.get_mut(at as usize) {
                    *of = NOWHERE;
                }
                self.len -= 1;
                self.clear_if_empty(list);
                Some(at)
            }
            _ => {
                self.done = self.done.max(now);
                None
            }
        }
    }

    /// When [`Expiry::pop_due`] has something at the earliest.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let (tick, _) = self.next()?;
        Some(Instant::from_nanos(tick.saturating_mul(1 << TICK_SHIFT)))
    }

    /// The earliest list that holds anything, and its tick.
    #[inline]
    fn next(&self) -> Option<(u64, u16)> {
        if self.len == 0 {
            return None;
        }
        let first_of = |(level, bits): (usize, &u64)| {
            if *bits == 0 {
                return None;
            }
            let shift = level as u32 * STEP_SHIFT;
            let next = (self.done >> shift) + 1;
            let slot =
                next + u64::from(bits.rotate_right((next % LEVEL_SLOTS) as u32).trailing_zeros());
            let list = level as u16 * LEVEL_SLOTS as u16 + (slot % LEVEL_SLOTS) as u16;
            Some((slot << shift, list))
        };
        self.occupied.iter().enumerate().filter_map(first_of).min()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(duration: Duration) -> Instant {
        Instant::ORIGIN + duration
    }

    #[test]
    fn nothing_is_given_out_early_and_nothing_later_than_an_eighth() {
        let mut expiry = Expiry::new(4000, at(7 * SECOND));
        let start = at(7 * SECOND);
        let until = |n: u32| start + Duration::from_millis(u64::from(n) * u64::from(n) / 3);
        (0..4000).for_each(|n| expiry.insert(n, until(n), start));
        let (mut now, mut seen) = (start, 0);
        while !expiry.is_empty() {
            while let Some(n) = expiry.pop_due(now) {
                let late = now.saturating_since(until(n));
                assert!(until(n) < now, "{n} came early");
                let may = until(n).saturating_since(start) / 7 + Duration::from_millis(20);
                assert!(late <= may, "{n} came {late:?} late of {may:?}");
                seen += 1;
            }
            now = (now + Duration::from_millis(3)).max(expiry.deadline().unwrap_or(now));
        }
        assert_eq!(seen, 4000);
    }

    #[test]
    fn nothing_ends_before_the_moment_that_is_told() {
        let mut expiry = Expiry::new(500, at(SECOND));
        assert_eq!(expiry.ends_from(), Instant::FAR);
        for n in (0..500_u32).rev() {
            let until = at(SECOND) + Duration::from_micros(u64::from(n + 1) * 7919);
            expiry.insert(n, until, at(SECOND));
            let (from, left) = (expiry.ends_from(), until.saturating_since(at(SECOND)));
            assert!(from <= until, "{n}: {from:?}");
            let early = until.saturating_since(from);
            assert!(early <= left / 7 + Duration::from_millis(3), "{n}: {early:?} of {left:?}");
        }
    }

    #[test]
    fn every_moment_has_its_list_and_the_last_ones_too() {
        let mut expiry = Expiry::new(66, Instant::ORIGIN);
        for bit in 0..64 {
            expiry.insert(bit, Instant::from_nanos(1 << bit), Instant::ORIGIN);
        }
        expiry.insert(64, Instant::FAR, Instant::ORIGIN);
        let mut now = Instant::ORIGIN;
        for _ in 0..200 {
            while let Some(n) = expiry.pop_due(now) {
                assert!(n < 64 && Instant::from_nanos(1 << n) < now);
            }
            now = expiry.deadline().unwrap_or(now).max(now);
        }
        assert!(expiry.len() <= 1, "only what never ends may be left");
    }

    #[test]
    fn cancelled_entries_leave_nothing_behind() {
        let mut expiry = Expiry::new(1000, Instant::ORIGIN);
        for round in 0..3_u64 {
            let zero = Instant::ORIGIN;
            (0..1000)
                .for_each(|n| expiry.insert(n, at(SECOND * (n + 1) * (round as u32 + 1)), zero));
            (0..1000).for_each(|n| expiry.insert(n, at(SECOND * 2 * (n + 1)), zero));
            (0..1000).for_each(|n| expiry.cancel(n));
            assert_eq!((expiry.len(), expiry.deadline(), expiry.occupied), (0, None, [0; LEVELS]));
            assert_eq!(expiry.pop_due(Instant::FAR), None);
            expiry = Expiry::new(1000, at(SECOND * 100));
        }
    }

    #[test]
    fn a_clock_that_jumps_gives_out_everything_once() {
        let mut expiry = Expiry::new(1000, Instant::ORIGIN);
        (0..1000).for_each(|n| {
            expiry.insert(n, at(Duration::from_secs(u64::from(n) * 999)), at(Duration::ZERO))
        });
        let mut all: Vec<_> =
            core::iter::from_fn(|| expiry.pop_due(at(SECOND * 3_000_000))).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000));
        // And what is set now is not due at once.
        expiry.insert(3, at(SECOND * 3_000_001), at(SECOND * 3_000_000));
        assert_eq!(expiry.pop_due(at(SECOND * 3_000_000)), None);
    }
}
