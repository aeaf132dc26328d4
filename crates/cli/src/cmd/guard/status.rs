//! What a guard tells on its socket, and `--status`, which asks.
//!
//! One JSON document for each connection, then its end. The socket is its owner's alone.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use floodwall_device::host_bpf::boot_nanos;
use floodwall_guard::{Guard, Status, pins};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::output;
use crate::socket::path::{SocketTaken, of_guard};

/// How long a side that does not read or write is waited for.
const CLIENT_PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of a document that are read at most.
const BYTES_MAX: u64 = 1 << 20;

/// The socket of a guard.
pub(super) struct StatusSocket(SocketTaken);

impl StatusSocket {
    /// Binds it.
    pub(super) fn take(interface: &str) -> Result<Self, String> {
        SocketTaken::take(&of_guard(interface)).map(Self).map_err(|error| error.to_string())
    }

    /// Answers what is asked for so long.
    pub(super) fn serve(&self, guard: &Guard, period: Duration, ended: &AtomicBool) {
        let until = boot_nanos() + period.as_nanos() as u64;
        loop {
            let left = Duration::from_nanos(until.saturating_sub(boot_nanos()));
            if left.is_zero() || ended.load(Ordering::Relaxed) {
                return;
            }
            match self.0.listener.accept() {
                Ok((stream, _)) => answer(stream, guard),
                Err(_) => wait(&self.0.listener, left),
            }
        }
    }
}

/// Waits for a connection, a signal, or the time.
fn wait(listener: &std::os::unix::net::UnixListener, left: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let left =
        Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    // An interrupt ends the wait, as it is meant to.
    let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&left));
}

/// A peer that does not read loses its answer.
fn answer(mut stream: UnixStream, guard: &Guard) {
    let Ok(status) = guard.status() else { return };
    let text = format!("{:#}\n", document(&status));
    let _ = stream
        .set_write_timeout(Some(CLIENT_PATIENCE))
        .and_then(|()| stream.write_all(text.as_bytes()));
}

fn document(status: &Status) -> Value {
    let ports = status.ports.iter().map(|port| {
        let counts: serde_json::Map<_, _> =
            port.counts().map(|(name, count)| (name.to_owned(), count.into())).collect();
        json!({
            "protocol": port.protocol,
            "port": port.port,
            "awake_seconds": port.awake.map(|since| since.as_secs_f64()),
            "counts": counts,
        })
    });
    let refused = status.refused.iter().map(|it| {
        json!({
            "prefix": format!("{}/{}", it.prefix.0, it.prefix.1),
            "protocol": it.port.0,
            "port": it.port.1,
            "reason": it.reason,
            "frames": it.frames,
            "seconds_ago": it.ago.as_secs_f64(),
        })
    });
    json!({
        "interface": status.interface,
        "paused": status.paused,
        "ports": ports.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
}

fn ask(path: PathBuf) -> std::io::Result<Value> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(CLIENT_PATIENCE * 4))?;
    let mut text = String::new();
    stream.take(BYTES_MAX).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(std::io::Error::other)
}

/// Asks the guard of an interface and shows what it says; or what is pinned in the folder says.
pub(super) fn show(interface: &str, folder: &Path, as_json: bool) -> Exit {
    // That of this user, and that of a service manager's guard.
    let managed = Path::new("/run/floodwall").join(format!("guard-{interface}/floodwall"));
    let said = ask(of_guard(interface))
        .or_else(|error| ask(managed.join(format!("{interface}.guard"))).map_err(|_| error));
    let pinned = || pins::status(folder, interface).map(|status| document(&status));
    match said.or_else(|error| pinned().map_err(|_| error)) {
        Ok(said) if as_json => output::print_document(&format!("{said:#}")),
        Ok(said) => output::print(&table(&said)),
        Err(error) => {
            let shown = output::shown(&interface);
            eprintln!("floodwall: {shown}: no guard is reached: {error}");
            Exit::Unreachable
        }
    }
}

/// For people: each port with its state, and what it has counted.
fn table(said: &Value) -> String {
    let mut text = String::new();
    if said["paused"] == true {
        text.push_str("paused: net.ipv4.tcp_syncookies is 0\n");
    }
    for port in said["ports"].as_array().into_iter().flatten() {
        let state = match port["awake_seconds"].as_f64() {
            Some(seconds) => format!("awake for {seconds:.0} s"),
            None if port["protocol"] == "udp" => "shared among prefixes".to_owned(),
            None => "asleep".to_owned(),
        };
        let protocol = output::shown(&port["protocol"].as_str().unwrap_or_default());
        text.push_str(&format!("{protocol} {}: {state}\n", port["port"]));
        for (name, count) in port["counts"].as_object().into_iter().flatten() {
            if count.as_u64().unwrap_or(0) != 0 {
                text.push_str(&format!("  {:<20} {count:>12}\n", output::shown(name)));
            }
        }
    }
    text.push_str(&loudest(said));
    text
}

/// The prefixes that were refused most.
fn loudest(said: &Value) -> String {
    let mut text = String::new();
    for it in said["refused"].as_array().into_iter().flatten() {
        if text.is_empty() {
            text.push_str("refused most, about so many frames:\n");
        }
        let words = ["prefix", "protocol", "reason"];
        let [prefix, protocol, reason] =
            words.map(|name| output::shown(&it[name].as_str().unwrap_or_default()));
        let (port, frames) = (&it["port"], &it["frames"]);
        text.push_str(&format!("  {prefix:<24} {protocol} {port:<5} {reason:<20} {frames:>12}\n"));
    }
    text
}
