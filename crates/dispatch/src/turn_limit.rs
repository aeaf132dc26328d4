//! How much a turn may take on, as a value: less after parts of turns that took too long.
//!
//! Called by the worker with what the clock says between the parts of its turns. Units of work are
//! an estimate; where they are too low, or the core is slower than usual, the time decides.
//! Invariant: an eighth of the usual amount is always allowed, so that work goes on.

use std::time::Duration;

/// How long the packets of one turn may take, and its slice of timed work as well.
pub(crate) const TURN_MAX: Duration = Duration::from_micros(500);
/// The usual amount, and the least.
const WHOLE_TURN: u32 = 64;
const LEAST_TURN: u32 = WHOLE_TURN / 8;

/// The part of the usual amount that is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TurnLimit(u32);

impl Default for TurnLimit {
    fn default() -> Self {
        Self(WHOLE_TURN)
    }
}

impl TurnLimit {
    /// The part of `usual` that is allowed.
    #[inline]
    pub(crate) const fn part_of(self, usual: u32) -> u32 {
        usual * self.0 / WHOLE_TURN
    }

    /// A part of a turn took so long: half after one that took too long, an eighth more after one
    /// that took less than half of what it may.
    #[inline]
    pub(crate) fn note(&mut self, took: Duration) {
        if took > TURN_MAX {
            self.0 = (self.0 / 2).max(LEAST_TURN);
        } else if self.0 < WHOLE_TURN && took < TURN_MAX / 2 {
            self.0 += LEAST_TURN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_halve_what_follows_and_short_ones_restore_it() {
        let mut limit = TurnLimit::default();
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
}
