//! Quiescent only when idle: packet work reports no quiescent state, however long it goes on.
//!
//! Models: read-copy update of Linux 2.6.0 (`kernel/rcupdate.c`, 2003), where a processor was
//! quiescent in a context switch, in user mode and when idle, and packets that kept coming kept it
//! in softirq; with a bound of four, the patch `throttle-rcu` that Dipankar Sarma measured beside
//! it (linux-kernel, 29 March 2004), in which each RCU tasklet ran four callbacks.
//! Simplified: no timer tick, so idleness is noticed at once (in 2.6.0 up to a tick later); no user
//! mode, so only idleness ends a busy period; no tasklets: callbacks run at the end of a round.
//! Serves: every claim of the plan `grace-period` about growth with load and about four callbacks.

use core::time::Duration;

use floodwall_sync::qsbr::{Moment, Policy};

/// The reclamation policy under which a reader is quiescent only when its worker is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LazyQuiescence {
    /// Callbacks in one pass at most.
    pub callbacks_max: usize,
}

impl LazyQuiescence {
    /// Linux 2.6.0: all that may be freed is freed in one pass.
    pub const UNBOUNDED: Self = Self { callbacks_max: usize::MAX };
    /// The patch `throttle-rcu`.
    pub const THROTTLED: Self = Self { callbacks_max: 4 };
}

impl Policy for LazyQuiescence {
    fn announces(&self, moment: Moment) -> bool {
        moment == Moment::Idle
    }

    fn batch(&self, _pending: usize, _hurried: &mut bool) -> usize {
        self.callbacks_max
    }

    fn pass_max(&self) -> Duration {
        Duration::MAX
    }

    /// No notification: a busy processor found a waiting callback at its next idle moment.
    fn chases(&self, _pending: usize) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_and_slices_say_nothing_and_four_is_four() {
        for policy in [LazyQuiescence::UNBOUNDED, LazyQuiescence::THROTTLED] {
            assert!(!policy.announces(Moment::RoundEnd) && !policy.announces(Moment::SliceEnd));
            assert!(policy.announces(Moment::Idle) && !policy.chases(usize::MAX));
        }
        assert_eq!(LazyQuiescence::THROTTLED.batch(30_000, &mut false), 4);
        assert_eq!(LazyQuiescence::UNBOUNDED.batch(30_000, &mut false), usize::MAX);
    }
}
