//! A network namespace of a test's own.

use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use rustix::thread::UnshareFlags;

/// Held for writing while a process starts: until it is another program, the new process has a copy
/// of every open descriptor, and what this process drops meanwhile stays open.
static STARTING: RwLock<()> = RwLock::new(());

/// Keeps processes from being started by `ip` until the guard is dropped: a socket of the kernel
/// that is dropped is closed at once.
#[allow(dead_code, reason = "not every test program asserts what a closed socket leaves behind")]
pub(crate) fn no_process_starts() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Moves this thread, and those that it starts from now on, to a new network namespace with its
/// loopback up; the namespace ends with them. An error says what is missing.
pub(crate) fn enter() -> Result<(), String> {
    #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
    rustix::thread::unshare(UnshareFlags::NEWNET)
        .map_err(|error| format!("no network namespace of its own ({error}); it takes root"))?;
    if ip("link set lo up") {
        return Ok(());
    }
    Err("the command `ip` is missing or fails".to_owned())
}

/// The command ip(8); true if it succeeded.
pub(crate) fn ip(words: &str) -> bool {
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new("ip");
    let status = command.args(words.split(' ')).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
