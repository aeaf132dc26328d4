//! `PlaceTimers`: when the timers of each place are to be looked at.
//!
//! Used by `connection_table.rs`, which sets a time for each connection with a timer. Most are
//! cancelled long before that: the one that was set last is kept apart, in no list, and enters the
//! timing wheel only when another is set. So a connection that ends before the next one needs a
//! timer costs the wheel nothing. Invariant: a place is in the wheel, or it is the newest, or it
//! has no time.
//!
//! # Under flood
//! Reachable by a proven peer, with one time per connection. Bound: the places, allocated at
//! construction. Work: an insertion into the wheel for each time that is set.

use floodwall_base::{Instant, TimerWheel, Units};

/// No place.
const NO_PLACE: u32 = u32::MAX;

/// The times of all places.
pub(crate) struct PlaceTimers {
    wheel: TimerWheel,
    /// The place of which the time was set last, and that time as the wheel would have it;
    /// [`Instant::FAR`] where there is none.
    newest: u32,
    newest_at: Instant,
    /// The earlier of the wheel's time and that: it is asked for each turn.
    first_at: Instant,
}

impl PlaceTimers {
    /// Times for the places below `places`, none set, from `now` on.
    pub(crate) fn new(places: usize, now: Instant) -> Self {
        let wheel = TimerWheel::new(places, now);
        let (newest_at, first_at) = (Instant::FAR, Instant::FAR);
        Self { wheel, newest: NO_PLACE, newest_at, first_at }
    }

    /// Sets the time of a place, which may have one: the new one counts.
    #[inline(never)]
    pub(crate) fn set(&mut self, place: u32, at: Instant) {
        if self.newest != place {
            self.release_newest();
            self.wheel.cancel(place);
            self.newest = place;
        }
        // Not before the granule ends in which it lies, as in the wheel.
        let granule = TimerWheel::GRANULARITY.as_nanos() as u64;
        let up = at.as_nanos().div_ceil(granule).saturating_mul(granule);
        self.newest_at = Instant::from_nanos(up);
        self.note_first();
    }

    /// Clears the time of a place, if it has one.
    #[inline]
    pub(crate) fn clear(&mut self, place: u32) {
        if self.newest == place {
            (self.newest, self.newest_at) = (NO_PLACE, Instant::FAR);
        } else {
            self.wheel.cancel(place);
        }
        self.note_first();
    }

    #[inline(always)]
    fn note_first(&mut self) {
        self.first_at = self.wheel.works_at().min(self.newest_at);
    }

    /// Puts the newest into the wheel, so that another one may take its place.
    #[inline]
    fn release_newest(&mut self) {
        if self.newest != NO_PLACE {
            self.wheel.insert(self.newest, self.newest_at);
            (self.newest, self.newest_at) = (NO_PLACE, Instant::FAR);
        }
    }

    /// Takes out one that is due, in order of time but for those within one granule; `None` where
    /// none is, or `units` are used up ([`TimerWheel::pop_due`]).
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Instant, units: &mut Units) -> Option<u32> {
        if self.newest_at <= now {
            self.release_newest();
        }
        let due = if now < self.wheel.works_at() { None } else { self.wheel.pop_due(now, units) };
        self.note_first();
        due
    }

    /// When [`PlaceTimers::pop_due`] has work at the earliest; [`Instant::FAR`] where none is set.
    #[inline]
    pub(crate) const fn deadline(&self) -> Instant {
        self.first_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn due(timers: &mut PlaceTimers, ms: u64) -> Vec<u32> {
        let mut units = Units(100);
        std::iter::from_fn(|| timers.pop_due(at(ms), &mut units)).collect()
    }

    #[test]
    fn one_that_is_cleared_before_the_next_is_set_costs_the_wheel_nothing() {
        let mut timers = PlaceTimers::new(4, at(0));
        timers.set(2, at(200));
        timers.set(2, at(100));
        assert!(timers.wheel.is_empty() && timers.deadline() >= at(100));
        assert!(timers.deadline() < at(102), "within a granule");
        timers.clear(2);
        assert!(timers.wheel.is_empty() && timers.deadline() == Instant::FAR);
        timers.set(1, at(50));
        timers.set(3, at(70));
        assert_eq!((timers.wheel.is_set(1), timers.wheel.is_set(3)), (true, false));
        timers.set(1, at(40));
        assert_eq!((timers.wheel.is_set(1), timers.wheel.is_set(3)), (false, true));
    }

    #[test]
    fn they_are_the_times_of_a_wheel_alone() {
        let mut random = floodwall_base::Randomness::from_number(7).secret;
        let mut wheel = TimerWheel::new(8, at(0));
        let mut timers = PlaceTimers::new(8, at(0));
        let mut now = 0;
        for step in 0..20_000 {
            let place = random.below(8) as u32;
            match random.below(4) {
                0 => {
                    timers.clear(place);
                    wheel.cancel(place);
                }
                1 | 2 => {
                    let ahead = at(now + random.below(3_000));
                    timers.set(place, ahead);
                    wheel.insert(place, ahead);
                }
                _ => {
                    now += random.below(40);
                    let mut units = Units(100);
                    let all = std::iter::from_fn(|| wheel.pop_due(at(now), &mut units));
                    let mut all: Vec<u32> = all.collect();
                    let mut found = due(&mut timers, now);
                    all.sort_unstable();
                    found.sort_unstable();
                    assert_eq!(found, all, "step {step} at {now} ms");
                }
            }
        }
    }
}
