//! `OwnHalf`: what our own runs of the kernel's half have told: whether another one is needed, and
//! whether the card still has something for us.
//!
//! Asked by `af_xdp.rs` where the kernel's half runs within the worker's calls. A run is over by
//! its time, so one that brought much has left something behind it. While the half is ours nobody
//! else takes that: a worker that went to sleep then would give the half back to the card in the
//! middle of a flood, where it runs as an interrupt before everybody and does not let go.

use floodwall_base::limits::BURST_MAX;

/// Frames of one run behind which there are more: it was over by its time.
const BEHIND: u64 = 24;
/// So many frames that wait when the worker comes are load: somebody else has run the half.
const LOAD: usize = BURST_MAX / 2;

/// See the file's head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnHalf {
    /// The last call left frames in the ring.
    had_more: bool,
    /// The last run left nothing behind it.
    saw_all: bool,
    /// The last call ended with a run that did.
    left_behind: bool,
}

impl OwnHalf {
    /// A call begins, with frames that are `there` already; `presses` is whether strangers have a
    /// credit. Whether the half must be run: not where the frames are all that there is.
    pub(crate) fn must_run(&mut self, there: usize, presses: bool) -> bool {
        let is_load = self.had_more || self.left_behind || there >= LOAD || presses;
        self.left_behind = false;
        there == 0 || is_load
    }

    /// A run has brought so many frames, those that died for want of credit included: whether it
    /// has seen all.
    pub(crate) fn ran(&mut self, frames: u64) -> bool {
        self.saw_all = frames < BEHIND;
        self.left_behind = !self.saw_all;
        self.saw_all
    }

    /// The call takes so many of the frames that are `there`.
    pub(crate) fn takes(&mut self, wanted: usize, there: usize) {
        self.had_more = there > wanted;
    }

    /// Whether the last run left nothing behind it.
    pub(crate) const fn saw_all(self) -> bool {
        self.saw_all
    }

    /// Whether something waits at the card that nobody but us will take.
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
        assert!(half.must_run(0, false), "nothing is there: somebody must look");
        assert!(!half.must_run(1, false));
        assert!(half.must_run(1, true), "strangers die unseen");
        assert!(!half.must_run(LOAD - 1, false));
        assert!(half.must_run(LOAD, false), "the card runs it, and may not let go");
        half.takes(64, 65);
        assert!(half.must_run(1, false));
        half.takes(64, 64);
        assert!(!half.must_run(1, false));
    }

    #[test]
    fn a_run_that_was_over_by_its_time_leaves_something_to_the_next_call() {
        let mut half = OwnHalf::default();
        assert!(!half.has_left_some(), "before the first run nothing is known");
        assert!(!half.ran(BEHIND));
        assert!(half.has_left_some() && !half.saw_all());
        // The next call runs it, whatever is there, and finds the end.
        assert!(half.must_run(1, false));
        assert!(half.ran(BEHIND - 1));
        assert!(!half.has_left_some() && half.saw_all());
        assert!(!half.must_run(1, false));
    }
}
