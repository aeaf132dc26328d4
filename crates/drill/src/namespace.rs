//! A network namespace without a name, for a drill or a self-test.
//!
//! One thread makes it for itself and for those that it starts. It has no way out, and when the
//! thread ends, however it ends (a panic, a signal, an interrupt), the system takes it away with
//! everything in it. Needs root and the command `ip`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::DrillError;

/// What is missing here to have one, and in it a TUN or TAP where `tun`, before anything is begun.
pub(crate) fn check(tun: bool, remedy: &'static str) -> Result<(), DrillError> {
    let missing = |what: &str, remedy| Err(DrillError::Missing { what: what.to_owned(), remedy });
    if !rustix::process::geteuid().is_root() {
        return missing(
            "it makes a network namespace with interfaces, and this is not root",
            remedy,
        );
    }
    if tun && !Path::new("/dev/net/tun").exists() {
        return missing(
            "/dev/net/tun is not there",
            "load the tun module, or give the container the device",
        );
    }
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !ip.is_ok_and(|status| status.success()) {
        return missing("the command `ip` is not there", "install iproute2");
    }
    Ok(())
}

/// Puts the calling thread, and those that it starts, into a network namespace without a name.
pub(crate) fn enter() -> Result<(), DrillError> {
    #[expect(deprecated, reason = "only its file-table flag can harm, and that one is not used")]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).map_err(|errno| {
        DrillError::Missing {
            what: format!("the system refuses a network namespace ({errno})"),
            remedy: "give the process CAP_SYS_ADMIN",
        }
    })
}

/// Runs `ip` in this thread's namespace.
pub(crate) fn ip(words: &[&str]) -> Result<(), DrillError> {
    let system = |source| DrillError::System { action: "run `ip`", source };
    let output = Command::new("ip").args(words).output().map_err(system)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(system(io::Error::other(format!("`ip {}` failed: {}", words.join(" "), said.trim()))))
}
