//! The server that is flooded: `floodwall run` as a process of its own, or a program at a listener
//! of the kernel's.
//!
//! Started by `trials.rs` in the namespace of the far end. All have one core for the kernel's half
//! and their own. The kernel's stack has cookies on, and its receive half in a thread on that core,
//! which is where it does best.

#![expect(clippy::disallowed_methods, reason = "this part runs real processes")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Once;

use floodwall_dispatch::{Stop, pin_to_core};
use rustix::event::epoll;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Deserialize;

use super::questions;
use super::trials::{CLIENTS, GATEWAYS, MAC_OURS, QUIET_PORT, SERVERS, SYN_PORT, UDP_PORT};
use crate::error::LabError;
use crate::experiments::namespace::{self, VETH_FAR};

/// What is flooded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Victim {
    /// `floodwall run --device xdp:`, as it is by default.
    Xdp,
    /// The same on `packet:`.
    Packet,
    /// And with its program in generic mode, as drivers without XDP have it.
    PacketGeneric,
    /// The kernel.
    Kernel,
    /// The kernel behind `floodwall guard`, asleep at first.
    Guard,
    /// The kernel behind SYNPROXY of nftables.
    Synproxy,
}

impl Victim {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Packet => "packet",
            Self::PacketGeneric => "packet-generic",
            Self::Kernel => "kernel",
            Self::Guard => "guard",
            Self::Synproxy => "synproxy",
        }
    }

    /// The device that ours is started with.
    fn device(self) -> String {
        match self {
            Self::PacketGeneric => format!("packet:{VETH_FAR},mode=generic"),
            _ => format!("{}:{VETH_FAR}", self.name()),
        }
    }

    /// Whether clients are answered by a listener of the kernel's.
    pub(super) const fn is_kernels(self) -> bool {
        matches!(self, Self::Kernel | Self::Guard | Self::Synproxy)
    }

    /// What it is compared with: the same listener, otherwise protected.
    pub(super) const fn is_rival(self) -> bool {
        matches!(self, Self::Kernel | Self::Synproxy)
    }
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

/// A child process, ended and waited for when this is dropped.
pub(super) struct Running(Child);

impl Running {
    /// Starts a program with these words.
    pub(super) fn start(program: &Path, words: &[String]) -> Result<Self, LabError> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).map_err(wrong)
    }

    /// Whether it still runs: a flood that has ended floods nothing.
    pub(super) fn goes_on(&mut self) -> Result<(), LabError> {
        match self.0.try_wait().map_err(wrong)? {
            Some(status) => Err(wrong(format!("a generator ended by itself ({status})"))),
            None => Ok(()),
        }
    }
}

/// Starts the generator, and says once why the kernel does not make its frames, where it does not.
pub(super) fn flood(program: &Path, words: &[String]) -> Result<Running, LabError> {
    static SAID: Once = Once::new();
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = command.spawn().map(Running).map_err(wrong)?;
    if let Some(said) = running.0.stderr.take() {
        // Ends with the generator.
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if line.contains("sent as usual") {
                    SAID.call_once(|| eprintln!("the flood is made in user space: {line}"));
                } else if line.starts_with("floodwall") {
                    eprintln!("a generator: {line}");
                }
            }
        });
    }
    Ok(running)
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        for _ in 0..300 {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(core::time::Duration::from_millis(10)),
                _ => return,
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts our server on `core`, to which the clients' link address, `near`, is known as it is to
/// the kernel.
pub(super) fn ours(
    program: &Path,
    victim: Victim,
    core: usize,
    near: &str,
) -> Result<Running, LabError> {
    let name = format!("floodwall-lab-{}.sock", std::process::id());
    let socket = std::env::temp_dir().join(name).display().to_string();
    let mut words = vec!["run".to_owned()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("--device", victim.device());
    add("--mac", MAC_OURS.to_owned());
    add("--cpu", core.to_string());
    add("--socket", socket.clone());
    for (server, gateway) in SERVERS.iter().zip(GATEWAYS) {
        add("--address", (*server).to_owned());
        add("--gateway", gateway.to_owned());
    }
    add("--service", format!("tcp-echo:{SYN_PORT}"));
    add("--service", format!("udp-echo:{UDP_PORT}"));
    add("--service", format!("udp-echo:{QUIET_PORT}"));
    let running = Running::start(program, &words)?;
    for client in CLIENTS {
        keep_neighbor(program, &socket, client.split('/').next().unwrap_or_default(), near)?;
    }
    for gateway in GATEWAYS {
        keep_neighbor(program, &socket, gateway, super::trials::MAC_FLOOD)?;
    }
    Ok(running)
}

/// Has our server keep a neighbour, as soon as it serves.
fn keep_neighbor(program: &Path, socket: &str, addr: &str, mac: &str) -> Result<(), LabError> {
    let words = ["neigh", "replace", addr, "lladdr", mac, "dev", VETH_FAR, "nud", "permanent"];
    for _ in 0..100 {
        let mut command = Command::new(program);
        command.args(words).args(["--socket", socket]).stdin(Stdio::null());
        if command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
        {
            return Ok(());
        }
        std::thread::sleep(core::time::Duration::from_millis(50));
    }
    Err(wrong(format!("our server takes no neighbour {addr}")))
}

/// Prepares the kernel at the far end: addresses, cookies, and its receive half in a thread on
/// `core`, where the near end's is too. The clients' link address, `near`, is known to it, as that
/// of a router is before a flood comes: else one lost solicitation costs the whole trial.
pub(super) fn prepare_kernel(core: usize, near: &str) -> Result<(), LabError> {
    for client in CLIENTS {
        let flag = if client.contains(':') { "-6" } else { "-4" };
        let addr = client.split('/').next().unwrap_or_default();
        let entry = format!("neigh add {addr} lladdr {near} dev {VETH_FAR} nud permanent");
        namespace::ip(&format!("{flag} {entry}")).map_err(wrong)?;
    }
    for (server, gateway) in SERVERS.iter().zip(GATEWAYS) {
        let six = server.contains(':');
        let (flag, nodad) = if six { ("-6", " nodad") } else { ("-4", "") };
        let lines = [
            format!("addr add {server} dev {VETH_FAR}{nodad}"),
            format!(
                "{flag} neigh add {gateway} lladdr {} dev {VETH_FAR} nud permanent",
                super::trials::MAC_FLOOD
            ),
            format!("{flag} route add default via {gateway} dev {VETH_FAR}"),
        ];
        lines.iter().try_for_each(|words| namespace::ip(words)).map_err(wrong)?;
    }
    std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "1").map_err(wrong)?;
    let _ = std::fs::write("/proc/sys/net/core/somaxconn", "4096");
    thread_half(VETH_FAR, core, 0)
}

/// Puts `floodwall guard` in front of the kernel's listener, with the receive half before programs
/// as `guard --check` recommends. Returns once it says that it is there.
pub(super) fn guarded(program: &Path) -> Result<Running, LabError> {
    let mut command = Command::new(program);
    command.args(["guard", VETH_FAR, "--port", &SYN_PORT.to_string()]);
    command.args(["--kernel-half", "napi-thread"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = command.spawn().map(Running).map_err(wrong)?;
    let mut line = String::new();
    if let Some(said) = running.0.stderr.as_mut() {
        // The few lines of its log that follow fit into the pipe.
        let _ = BufReader::new(said).read_line(&mut line);
    }
    match line.contains("guarded") {
        true => Ok(running),
        false => Err(wrong(format!("the guard does not stand: {}", line.trim()))),
    }
}

/// Puts SYNPROXY in front of the kernel's listener, as its manual has it.
pub(super) fn synproxied() -> Result<(), LabError> {
    // What it has proven goes to the listener by the loopback.
    namespace::ip("link set lo up").map_err(wrong)?;
    for (name, value) in [("nf_conntrack_tcp_loose", "0"), ("nf_conntrack_max", "1048576")] {
        // The number of entries is of the whole system, and not this namespace's to set.
        let _ = std::fs::write(format!("/proc/sys/net/netfilter/{name}"), value);
    }
    let rules = [
        "add table inet lab".to_owned(),
        "add chain inet lab early { type filter hook prerouting priority raw ; }".to_owned(),
        "add chain inet lab input { type filter hook input priority filter ; }".to_owned(),
        format!("add rule inet lab early tcp dport {SYN_PORT} tcp flags syn notrack"),
        format!(
            "add rule inet lab input tcp dport {SYN_PORT} ct state invalid,untracked synproxy mss \
             1460 wscale 7 timestamp sack-perm"
        ),
        "add rule inet lab input ct state invalid drop".to_owned(),
    ];
    rules.iter().try_for_each(|rule| namespace::run("nft", rule)).map_err(wrong)
}

/// Puts an interface's receive half into a thread on `core`, at a nice value.
pub(super) fn thread_half(name: &str, core: usize, nice: i32) -> Result<(), LabError> {
    namespace::run("ethtool", &format!("-K {name} gro on")).map_err(wrong)?;
    std::fs::write(format!("/sys/class/net/{name}/threaded"), "1").map_err(wrong)?;
    let mut set = CpuSet::new();
    set.set(core);
    for thread in half_threads(name)? {
        sched_setaffinity(Some(thread), &set).map_err(wrong)?;
        rustix::process::setpriority_process(Some(thread), nice).map_err(wrong)?;
    }
    Ok(())
}

/// Has the threads of an interface's receive half go before everything of the default class. At a
/// nice value alone they waited for 0.2 to 0.4 s of each second behind the clients, and a fifth to
/// two thirds of the answers found the veth's ring of 256 full.
pub(super) fn put_first(name: &str) -> Result<(), LabError> {
    for thread in half_threads(name)? {
        namespace::put_first(thread.as_raw_nonzero().get(), 1).map_err(wrong)?;
    }
    Ok(())
}

/// The kernel's threads that run an interface's receive half.
fn half_threads(name: &str) -> Result<Vec<Pid>, LabError> {
    let prefix = format!("napi/{name}");
    let entries = std::fs::read_dir("/proc").map_err(wrong)?.flatten();
    let threads = entries.filter_map(|entry| {
        let thread = entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw)?;
        let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        comm.starts_with(&prefix).then_some(thread)
    });
    Ok(threads.collect())
}

/// Serves a listener of the kernel's and sockets of datagrams on `core` until the stop: each line
/// goes back. What a wake-up costs does not depend on how many connections there are.
pub(super) fn serve(
    (listener, datagrams): (&TcpListener, &[UdpSocket]),
    stop: &Stop,
    core: usize,
) -> Result<(), LabError> {
    const STOP: u64 = 0;
    const LISTENER: u64 = 1;
    const DATAGRAMS: u64 = 2;
    pin_to_core(core).map_err(wrong)?;
    listener.set_nonblocking(true).map_err(wrong)?;
    let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wrong)?;
    let watch = |fd: BorrowedFd<'_>, number| {
        epoll::add(&all, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
    };
    watch(stop.as_fd(), STOP).map_err(wrong)?;
    watch(listener.as_fd(), LISTENER).map_err(wrong)?;
    for (number, socket) in (DATAGRAMS..).zip(datagrams) {
        watch(socket.as_fd(), number).map_err(wrong)?;
    }
    let (mut open, mut next) = (HashMap::new(), DATAGRAMS + datagrams.len() as u64);
    while !stop.is_triggered() {
        let mut events = Vec::with_capacity(64);
        let _ = epoll::wait(&all, rustix::buffer::spare_capacity(&mut events), None);
        for number in events.iter().map(|event: &epoll::Event| event.data.u64()) {
            let socket = number.checked_sub(DATAGRAMS).and_then(|at| datagrams.get(at as usize));
            if let Some(socket) = socket {
                questions::answer(socket);
            }
            if open.get_mut(&number).is_some_and(|stream| !answers(stream)) {
                open.remove(&number);
            }
            if number != LISTENER {
                continue;
            }
            while let Ok((stream, _)) = listener.accept() {
                let _ = stream.set_nonblocking(true);
                watch(stream.as_fd(), next).map_err(wrong)?;
                open.insert(next, stream);
                next += 1;
            }
        }
    }
    Ok(())
}

/// Sends back what has come; false at the end.
fn answers(stream: &mut TcpStream) -> bool {
    let mut line = [0; 512];
    match stream.read(&mut line) {
        Ok(0) => false,
        Ok(len) => stream.write(line.get(..len).unwrap_or_default()).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
