//! A network namespace of a test's own.

use std::process::{Command, Stdio};

use rustix::thread::UnshareFlags;

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
    let mut command = Command::new("ip");
    let status = command.args(words.split(' ')).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
