//! `WaitingFrames`: how many of the frames in a receive ring are of unverified flows.
//!
//! Used by `af_xdp.rs`: the room of a turn for unverified frames depends on how many of these wait,
//! and not on the frames of established flows. The program counts what it admits and the ring keeps
//! the order, so the count at an earlier turn bounds what came since. Invariant: never less than
//! there are, but for frames on their way from the program to the ring.

/// Turns that are remembered: more than a ring takes to be emptied by bursts.
const TURNS_REMEMBERED: usize = 64;

/// The counts of the last turns.
#[derive(Debug)]
pub(crate) struct WaitingFrames {
    /// Frames that had come by then, and unverified ones that had been admitted.
    turns: [(u64, u64); TURNS_REMEMBERED],
    next: usize,
}

impl Default for WaitingFrames {
    fn default() -> Self {
        Self { turns: [(0, 0); TURNS_REMEMBERED], next: 0 }
    }
}

impl WaitingFrames {
    /// A turn in which `taken` frames have been taken out so far, so many wait, and `admitted`
    /// unverified ones have been admitted; how many of those that wait are unverified, at most.
    /// Costs a look at the remembered turns.
    pub(crate) fn turn(&mut self, taken: u64, waiting: usize, admitted: u64) -> usize {
        let came = taken + waiting as u64;
        let before = self.turns.iter().filter(|(came, _)| *came <= taken);
        // Nothing of what had come by that turn waits any more.
        let gone = before.map(|(_, admitted)| *admitted).max().unwrap_or(0);
        if let Some(turn) = self.turns.get_mut(self.next) {
            *turn = (came, admitted);
        }
        self.next = (self.next + 1) % TURNS_REMEMBERED;
        waiting.min(usize::try_from(admitted.saturating_sub(gone)).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_established_flows_do_not_count_as_unverified() {
        let mut frames = WaitingFrames::default();
        assert_eq!(frames.turn(0, 500, 0), 0, "none was admitted");
        assert_eq!(frames.turn(64, 500, 10), 10);
        // What had come by the first turn is gone: nothing of it was unverified.
        assert_eq!(frames.turn(500, 200, 30), 30);
        assert_eq!(frames.turn(564, 136, 30), 20, "those of the second turn are gone");
        assert_eq!(frames.turn(700, 0, 30), 0);
        assert_eq!(frames.turn(700, 3, 90), 3, "no more than wait");
    }

    #[test]
    fn turns_that_are_forgotten_make_the_count_no_smaller() {
        let mut frames = WaitingFrames::default();
        for turn in 0..200 {
            assert_eq!(frames.turn(turn, 400, turn + 400), 400, "all of them, {turn}");
        }
    }
}
