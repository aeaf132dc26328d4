//! Timed work of the cache: retransmission and expiry.
//!
//! Used by `syn_cache.rs`. A clock hand visits the rows that have entries, once in
//! [`SWEEP_PERIOD`], and stops when its units are spent; it reads one line per row and only entries
//! that are due. The creation time of an entry follows from its due time and its number of
//! transmissions, so that readers detect an expired one by themselves. Invariant: every visit moves
//! an entry's due time ahead or removes it, so a sweep terminates.

use core::time::Duration;

use floodwall_base::{Instant, Units, limits};

use super::SynCache;
use crate::cache::{CacheSlot, CacheTick};
use crate::entry::{FRACTION, SynEntry};
use crate::half_open::SynAck;
use crate::moment::CookieMoment;

/// The period of the sweep: two ticks, an eighth of a second.
pub(super) const SWEEP_PERIOD: Duration = Duration::from_nanos(2 << CacheTick::SHIFT);

/// Ticks per second, rounded up: 1.007 seconds.
const TICKS_PER_SECOND: u16 = 15;

const _: () = assert!((TICKS_PER_SECOND as u64) << CacheTick::SHIFT >= 1_000_000_000);

/// When a new entry is due first.
#[inline]
pub(super) const fn first_due(now: Instant) -> CacheTick {
    CacheTick::of(now).plus(interval(0))
}

/// The age of an entry that is due for the first time: overestimated by up to one [`FRACTION`],
/// never underestimated.
pub(super) const fn age(due: CacheTick, born: u8, now: Instant) -> Duration {
    /// Nanoseconds after which the tick counter wraps.
    const ROUND: u64 = 1 << (CacheTick::SHIFT + u16::BITS);
    let tick = due.0.wrapping_sub(interval(0)) as u64;
    let birth = tick << CacheTick::SHIFT | (born as u64) << FRACTION;
    Duration::from_nanos(now.as_nanos().wrapping_sub(birth) % ROUND)
}

/// Ticks to the next retransmission, after this many: 1, 2, 4, 8 seconds.
#[inline]
const fn interval(retransmits: u8) -> u16 {
    TICKS_PER_SECOND << (if retransmits > 7 { 7 } else { retransmits })
}

/// Ticks from creation to the next due time, after this many retransmissions: 1, 3, 7, 15
/// seconds.
#[inline]
const fn until_due(retransmits: u8) -> u16 {
    (interval(retransmits) << 1) - TICKS_PER_SECOND
}

impl SynCache {
    /// Whether an entry is past its lifetime, regardless of timed work.
    #[inline]
    pub(super) fn is_over(&self, place: CacheSlot, entry: &SynEntry, now: Instant) -> bool {
        let due = self.cache.due(place);
        let late = CacheTick::of(now).since(due);
        let left = until_due(limits::SYN_ACK_RETRANSMITS) - until_due(entry.retransmits);
        late >= left as i16
    }

    pub(super) fn sweep(
        &mut self,
        at: CookieMoment,
        granted: Units,
        send: &mut impl FnMut(&SynAck),
    ) -> Units {
        let mut left = granted;
        if self.hand.is_none() && (self.cache.len() == 0 || at.now < self.next_sweep) {
            return Units::default();
        }
        let tick = CacheTick::of(at.now);
        let mut row = self.hand.unwrap_or(0);
        while !left.is_zero() {
            let Some(next) = self.cache.next_row(row) else {
                self.hand = None;
                self.next_sweep = at.now + SWEEP_PERIOD;
                return granted.minus(left);
            };
            row = next;
            left = left.minus(Units(1));
            while let Some(place) = self.cache.due_in(row, tick) {
                if left.is_zero() {
                    self.hand = Some(row);
                    return granted;
                }
                left = left.minus(Units(1));
                self.overdue(place, at, send);
            }
            row += 1;
        }
        self.hand = Some(row);
        granted
    }

    /// Processes one due entry: retransmits or removes it.
    fn overdue(&mut self, place: CacheSlot, at: CookieMoment, send: &mut impl FnMut(&SynAck)) {
        let Some(entry) = self.cache.entry(place).copied() else { return };
        let Some(listener) = self.listeners.of(entry.listener) else {
            self.remove(place);
            self.stats.aborted += 1;
            return;
        };
        if self.is_over(place, &entry, at.now) {
            self.remove(place);
            self.stats.stale += 1;
            return;
        }
        let (settings, crowded) = (listener.settings, listener.is_crowded(at.now));
        let (bucket, price) = &mut self.resend;
        let sends = !crowded && !entry.has_rival() && bucket.take(*price, at.now);
        *(if sends { &mut self.stats.retransmitted } else { &mut self.stats.withheld }) += 1;
        if let Some(entry) = self.cache.entry_mut(place) {
            entry.retransmits += 1;
        }
        // From its due time, not from now: late work extends no lifetime.
        let (now, next) =
            (CacheTick::of(at.now), self.cache.due(place).plus(interval(entry.retransmits + 1)));
        self.cache.set_due(place, if now.since(next) < 0 { next } else { now.plus(1) });
        if sends {
            let found = |_| self.found(&entry.flow()).clock(at.now);
            let clock = entry.agreed().timestamp.map_or(0, found);
            send(&entry.syn_ack(&settings, clock));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_exact_to_a_fraction_and_never_too_short_across_the_wrap_too() {
        let wrap = 1_u64 << (CacheTick::SHIFT + u16::BITS);
        for start in [0, 1, 999_999_999, wrap - 1_000_000, 5 * wrap + 12_345_678] {
            for took in [0, 1, 50_000, 80_000_000, 999_000_000] {
                let (made, now) = (Instant::from_nanos(start), Instant::from_nanos(start + took));
                let born = (made.as_nanos() >> FRACTION) as u8;
                let age = age(first_due(made), born, now).as_nanos() as u64;
                assert!((took..took + (1 << FRACTION)).contains(&age), "{start} {took}: {age}");
            }
        }
    }

    #[test]
    fn intervals_are_one_two_four_and_eight_seconds() {
        let seconds: Vec<_> = (0..4).map(|n| interval(n) / TICKS_PER_SECOND).collect();
        assert_eq!(seconds, [1, 2, 4, 8]);
        let sums: Vec<_> = (0..4).map(|n| until_due(n) / TICKS_PER_SECOND).collect();
        assert_eq!(sums, [1, 3, 7, 15]);
    }
}
