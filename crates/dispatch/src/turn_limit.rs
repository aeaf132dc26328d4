//! How much a turn may take on, as a value: less after parts of turns that took too long.
//!
//! Called by the worker with what the clock says between the parts of its turns. Units of work are
//! an estimate; where they are too low, or the core is slower than usual, the time decides.
//! Invariant: something is always allowed, so that work goes on: an eighth of the usual amount of
//! packets, and a single unit of timed work, since a program's estimate of a unit may be wrong by
//! any factor.

use std::time::Duration;

use floodwall_base::Units;

/// How long the packets of one turn may take, and its slice of timed work as well.
pub(crate) const TURN_MAX: Duration = Duration::from_micros(500);
/// The usual amount, and what it is raised by.
const WHOLE_TURN: u32 = 64;
const TURN_STEP: u32 = WHOLE_TURN / 8;

/// The part of the usual amount that is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TurnLimit {
    part: u32,
    least: u32,
}

impl TurnLimit {
    /// Of packets: some of a burst are always taken.
    pub(crate) const fn of_packets() -> Self {
        Self { part: WHOLE_TURN, least: TURN_STEP }
    }

    /// Of timed work, that of applications included.
    pub(crate) const fn of_work() -> Self {
        Self { part: WHOLE_TURN, least: 0 }
    }

    /// The part of `usual` that is allowed, one at least.
    #[inline]
    pub(crate) const fn part_of(self, usual: u32) -> u32 {
        let part = usual * self.part / WHOLE_TURN;
        if part == 0 { 1 } else { part }
    }

    /// The units of a call: the usual ones, or the part of `slice` after turns that took too long,
    /// so that applications, which follow packets in the same call, are held to it as well.
    #[inline]
    pub(crate) const fn units(self, usual: Units, slice: u32) -> Units {
        if self.part == WHOLE_TURN { usual } else { Units(self.part_of(slice)) }
    }

    /// A part of a turn took so long: half after one that took too long, an eighth more after one
    /// that took less than half of what it may.
    #[inline]
    pub(crate) fn note(&mut self, took: Duration) {
        if took > TURN_MAX {
            self.part = (self.part / 2).max(self.least);
        } else if self.part < WHOLE_TURN && took < TURN_MAX / 2 {
            self.part = (self.part + TURN_STEP).min(WHOLE_TURN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_halve_what_follows_and_short_ones_restore_it() {
        let mut limit = TurnLimit::of_packets();
        let mut after = |micros| {
            limit.note(Duration::from_micros(micros));
            limit.part_of(64)
        };
        let few = [1, 500, 501, 501, 501, 900_000].map(&mut after);
        assert_eq!(few, [64, 64, 32, 16, 8, 8]);
        let more = [300, 249, 249, 249, 249, 249, 249, 249, 1].map(&mut after);
        assert_eq!(more, [8, 16, 24, 32, 40, 48, 56, 64, 64]);
        assert_eq!(limit.part_of(512), 512);
    }

    #[test]
    fn timed_work_is_halved_down_to_a_unit_and_comes_back() {
        let mut limit = TurnLimit::of_work();
        for _ in 0..10 {
            limit.note(2 * TURN_MAX);
        }
        assert_eq!((limit.part_of(64), limit.part_of(1)), (1, 1));
        for _ in 0..8 {
            limit.note(Duration::ZERO);
        }
        assert_eq!(limit.part_of(64), 64);
    }
}
