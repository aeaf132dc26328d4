//! `standing`: what a worker that shares its core asks of the system, and what lacks without it.
//!
//! Called once by the worker, on its own thread, before its first turn. A sleep must end when it
//! is meant to (timer slack), and the worker must not be put aside for a whole tick while it has
//! something to do (nice): then its share is decided by its own sleeps, to a fraction of a
//! millisecond. The real-time class did no better in the measurements and can take a machine away
//! from its operator, so it is not asked for.

use core::num::NonZeroU64;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::set_current_timer_slack;

/// How far before others the worker is scheduled.
const NICE: i32 = -20;

/// Asks for what is needed.
///
/// # Errors
/// What is missing, what that costs, and how to get it, in words.
pub(crate) fn take() -> Result<(), String> {
    let slack = NonZeroU64::MIN;
    set_current_timer_slack(Some(slack)).map_err(|error| {
        format!(
            "the worker cannot have its sleeps end in time ({error}): gaps of the application may \
             be 50 us longer"
        )
    })?;
    // An operator who has chosen a nice value below the usual one has decided already.
    if getpriority_process(None).is_ok_and(|nice| nice < 0) {
        return Ok(());
    }
    setpriority_process(None, NICE).map_err(|error| {
        format!(
            "the worker may not be scheduled before the application ({error}): both get turns of \
             a tick, so the application keeps its share but sees gaps of several milliseconds, \
             answers come later, and the worker does not spin; to allow it, give the program \
             CAP_SYS_NICE or a limit of nice -20 (LimitNICE=-20 in a systemd unit, `nice` in \
             limits.conf)"
        )
    })
}
