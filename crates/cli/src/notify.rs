//! What systemd is told of the service's state: ready, reloading, stopping, alive.
//!
//! The protocol of sd_notify(3): one datagram of `KEY=VALUE` lines to the socket that
//! `$NOTIFY_SOCKET` names, a path or, with `@` in front, an abstract name. Without the variable
//! nothing is sent. Invariant: a message is never waited for; one that cannot be sent is lost, and
//! nothing else depends on it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A handle to tell the service manager; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceManager {
    to: Option<SocketAddr>,
}

impl ServiceManager {
    /// The one that started this process, if any.
    pub(crate) fn of_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let to = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
            path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
        };
        Self { to: to.ok() }
    }

    fn send(&self, text: &str) {
        let Some(to) = &self.to else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to_addr(text.as_bytes(), to)
        });
        // Nothing depends on it.
        drop(sent);
    }

    /// It serves.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// It reads its configuration again; [`ServiceManager::ready`] follows. `monotonic` is the time
    /// of CLOCK_MONOTONIC.
    pub(crate) fn reloading(&self, monotonic: Duration) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic.as_micros()));
    }

    /// It ends in good order.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// It is alive.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// How often the service manager wants to hear that this process is alive: half of the time
    /// after which it ends it. `None` where it does not watch.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.to.as_ref()?;
        let said = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let for_us = said("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let micros = said("WATCHDOG_USEC").filter(|micros| *micros > 0 && for_us)?;
        Some(Duration::from_micros(micros / 2))
    }
}

/// A text without line ends and control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_one_datagram_in_systemds_words() {
        let path = std::env::temp_dir().join(format!("floodwall-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let receiver = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager { to: SocketAddr::from_pathname(&path).ok() };
        let heard = || {
            let mut text = [0; 256];
            let len = receiver.recv(&mut text).unwrap();
            String::from_utf8(text[..len].to_vec()).unwrap()
        };
        manager.ready("two\nlines");
        assert_eq!(heard(), "READY=1\nSTATUS=two lines");
        manager.reloading(Duration::from_millis(3));
        assert_eq!(heard(), "RELOADING=1\nMONOTONIC_USEC=3000");
        manager.stopping();
        assert_eq!(heard(), "STOPPING=1");
        manager.alive();
        assert_eq!(heard(), "WATCHDOG=1");
        std::fs::remove_file(&path).unwrap();
        // A manager that has gone, and none at all, change nothing.
        manager.alive();
        ServiceManager::default().alive();
    }
}
