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
