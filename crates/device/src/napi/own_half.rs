//! `OwnHalf`: state of busy polling (NAPI within our calls): whether another poll is needed, and
//! whether the card may still hold frames.
//!
//! Queried by `af_xdp.rs`, and by `af_packet.rs` of a half that was taken from its thread, where
//! NAPI runs within the worker's calls. A poll ends by its time limit,
//! so one that delivered many frames has left more at the card. While this process polls, no other
//! context takes those frames: a worker that went to sleep then would re-enable the card's
//! interrupt in the middle of a flood, where NAPI runs before every thread and monopolizes the
//! core.

use floodwall_base::limits::BURST_MAX;

/// How often in a row a half that was taken from its thread is run for one burst, at most.
pub(crate) const RUNS_MAX: u32 = 3;
/// Frames of one run behind which there are more: it was over by its time.
const RUN_FRAMES: u64 = 24;
/// The same where every frame counts that was judged at the interface: at a microsecond and more
/// for an answer a run has fewer of them.
const BEHIND_JUDGED: u64 = 12;
/// Frames that wait when the worker arrives and count as load: NAPI ran outside our calls.
const LOAD_FRAMES: usize = BURST_MAX / 2;

/// State of our own NAPI polls: what the last poll saw and left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnHalf {
    /// The last call left frames in the ring.
    had_more: bool,
    /// The last poll emptied the card's ring.
    saw_all: bool,
    /// The last call ended with a run that did.
    left_behind: bool,
}

impl OwnHalf {
    /// Starts a call that finds `there` frames; `presses` is whether a credit for unverified flows
    /// is in force. Returns whether to poll: not where the frames that wait are all that there is.
    pub(crate) fn must_run(&mut self, there: usize, presses: bool) -> bool {
        let is_load = self.had_more || self.left_behind || there >= LOAD_FRAMES || presses;
        self.left_behind = false;
        there == 0 || is_load
    }

    /// Records a poll of so many frames, including those dropped for lack of credit. Returns
    /// whether it emptied the card's ring.
    pub(crate) fn ran(&mut self, frames: u64) -> bool {
        self.ran_behind(frames, RUN_FRAMES)
    }

    /// The same with all frames that were judged at the interface.
    pub(crate) fn ran_judged(&mut self, frames: u64) -> bool {
        self.ran_behind(frames, BEHIND_JUDGED)
    }

    fn ran_behind(&mut self, frames: u64, behind: u64) -> bool {
        self.saw_all = frames < behind;
        self.left_behind = !self.saw_all;
        self.saw_all
    }

    /// The call takes so many of the frames that are `there`.
    pub(crate) fn takes(&mut self, wanted: usize, there: usize) {
        self.had_more = there > wanted;
    }

    /// Whether the last poll emptied the card's ring.
    pub(crate) const fn saw_all(self) -> bool {
        self.saw_all
    }

    /// Whether frames wait at the card that only our own poll will take.
    pub(crate) const fn has_left_some(self) -> bool {
        self.left_behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_frames_do_not_wait_for_a_run_and_what_may_be_more_does() {
        let mut half = OwnHalf::default();
        assert!(half.must_run(0, false), "nothing is there: a poll is needed");
        assert!(!half.must_run(1, false));
        assert!(half.must_run(1, true), "unverified frames are dropped unseen");
        assert!(!half.must_run(LOAD_FRAMES - 1, false));
        assert!(half.must_run(LOAD_FRAMES, false), "the card runs it, and may not let go");
        half.takes(64, 65);
        assert!(half.must_run(1, false));
        half.takes(64, 64);
        assert!(!half.must_run(1, false));
    }

    #[test]
    fn a_run_that_was_over_by_its_time_leaves_something_to_the_next_call() {
        let mut half = OwnHalf::default();
        assert!(!half.has_left_some(), "before the first run nothing is known");
        assert!(!half.ran(RUN_FRAMES));
        assert!(half.has_left_some() && !half.saw_all());
        // The next call polls regardless of what is there, and finds the end.
        assert!(half.must_run(1, false));
        assert!(half.ran(RUN_FRAMES - 1));
        assert!(!half.has_left_some() && half.saw_all());
        assert!(!half.must_run(1, false));
    }
}
