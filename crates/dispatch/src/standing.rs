//! `Standing`: system settings of a worker that shares its core, and the cost without them.
//!
//! Taken by the worker on its own thread, before its first turn, or when others come to its core. A
//! sleep must end in time (timer slack), and the worker must not be preempted for a whole tick
//! while it has work (nice): then its share is decided by its own sleeps, to a fraction of a
//! millisecond.
//! The real-time class did no better in the measurements and can lock up the machine, so it is not
//! used.

use core::num::NonZeroU64;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::set_current_timer_slack;

/// How far before others the worker is scheduled.
const WORKER_NICE: i32 = -20;

/// The calling thread's standing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// The nice value that was there before ours.
    before: Option<i32>,
}

impl Standing {
    /// Applies the settings.
    ///
    /// # Errors
    /// What is missing, what that costs, and how to get it, as text.
    pub(crate) fn take(&mut self) -> Result<(), String> {
        let slack = NonZeroU64::MIN;
        set_current_timer_slack(Some(slack)).map_err(|error| {
            format!(
                "the worker cannot have its sleeps end in time ({error}): gaps of the application \
                 may be 50 us longer"
            )
        })?;
        // A nice value below the default is the operator's choice and is kept.
        let before = getpriority_process(None).unwrap_or(0);
        if before < 0 {
            return Ok(());
        }
        setpriority_process(None, WORKER_NICE).map_err(|error| {
            format!(
                "the worker may not be scheduled before the application ({error}): both get turns \
                 of a tick, so the application keeps its share but sees gaps of several \
                 milliseconds, answers come later, and the worker does not spin; to allow it, give \
                 the program CAP_SYS_NICE or a limit of nice -20 (LimitNICE=-20 in a systemd unit, \
                 `nice` in limits.conf)"
            )
        })?;
        self.before = Some(before);
        Ok(())
    }

    /// The rank is as before.
    pub(crate) fn give_back(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = setpriority_process(None, before);
        }
    }
}
