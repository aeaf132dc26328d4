//! Threads with a name, for the command's own work beside the workers.

use std::thread::{self, JoinHandle};

use crate::address_space;

/// Starts a thread with a name.
///
/// # Errors
/// The system gives no further thread.
pub(crate) fn spawn_named<T: Send + 'static>(
    name: &str,
    what: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn(what).map_err(|error| address_space::no_thread(name, &error))
}

/// Runs a test in a network namespace of its own, or says why not.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "for tests")]
pub(crate) fn inside(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // Only this thread, and those that it starts, are in the new namespace.
        #[expect(deprecated, reason = "the one that takes its place is unsafe")]
        let own = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
        let up = || std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if own.is_err() || !up().is_ok_and(|status| status.success()) {
            return eprintln!("skipped: a namespace of its own needs root and ip(8)");
        }
        test();
    });
    thread.join().unwrap();
}
