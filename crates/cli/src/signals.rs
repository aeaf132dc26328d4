//! SIGHUP and SIGUSR1: the file is read again, and a line of counts is logged.
//!
//! A thread of its own, started by `run`. SIGINT and SIGTERM are handled elsewhere. Invariant:
//! none of the signals that are caught here ends the process, even where a reload fails.

use std::thread;

use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use crate::address_space;

/// Calls `hangup` on SIGHUP and `status` on SIGUSR1, until the handle is closed. SIGUSR2 is
/// ignored.
///
/// # Errors
/// The signals cannot be caught, or the thread not started.
pub(crate) fn catch(
    mut hangup: impl FnMut() + Send + 'static,
    mut status: impl FnMut() + Send + 'static,
) -> Result<Handle, String> {
    let mut signals = Signals::new([SIGHUP, SIGUSR1, SIGUSR2])
        .map_err(|error| format!("cannot catch signals: {error}"))?;
    let handle = signals.handle();
    thread::Builder::new()
        .name("hangup".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => hangup(),
                    SIGUSR1 => status(),
                    _ => {}
                }
            }
        })
        .map_err(|error| address_space::no_thread("signals", &error))?;
    Ok(handle)
}
