//! A connection through a guard, made for `--check`.
//!
//! A cable of two interfaces ([`HERE_INTERFACE`] in this network namespace, its end in one of a
//! thread's own) gets a guard of its own for a moment, and to each port one connection is made over
//! it: first without the guard, then with it. What the host's rules do to a connection of which
//! they have seen no SYN shows. Where a service listens at every address it is the one that is
//! connected to, and sees a connection that says nothing; else a listener of this process. Both
//! ends and their addresses are gone afterwards.

#![expect(clippy::disallowed_methods, reason = "the far end is a thread, which is waited for")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use floodwall_bpf::{Assembler, Register};
use floodwall_device::host_bpf::{HostLink, HostProgram, HostProgramKind, interface};
use floodwall_syncache::Secret;
use rustix::thread::UnshareFlags;

use crate::check::GuardFinding;
use crate::guard::{Guard, GuardConfig, Watch};

/// The cable's end in this namespace, and the other.
const HERE_INTERFACE: &str = "fwcheck0";
const THERE_INTERFACE: &str = "fwcheck1";
/// Their addresses: of a link, so that no route of the host's is touched.
const TRIAL_ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(169, 254, 254, 253), Ipv4Addr::new(169, 254, 254, 254)];
/// How long a connection is waited for.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Connects to each port; what came of it.
pub(crate) fn findings(ports: &[u16]) -> Vec<GuardFinding> {
    match Cable::lay() {
        Ok(cable) => cable.findings(ports),
        Err(why) => vec![GuardFinding::may(format!(
            "no connection was made through a guard: {why} (it takes root and the command `ip`)"
        ))],
    }
}

fn ip(words: &str) -> io::Result<()> {
    let mut command = Command::new("ip");
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match quiet.args(words.split_whitespace()).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("`ip {words}` failed"))),
    }
}

/// What the far end is asked for: a connection to a port, which is held until the next one.
type Call = (SocketAddr, Sender<io::Result<u16>>);

struct Cable {
    calls: Option<Sender<Call>>,
    far: Option<thread::JoinHandle<()>>,
}

impl Drop for Cable {
    fn drop(&mut self) {
        drop(self.calls.take());
        let _ = self.far.take().map(thread::JoinHandle::join);
        // Both ends go.
        let _ = ip(&format!("link delete {HERE_INTERFACE}"));
    }
}

/// A network namespace of this thread's own, with its loopback up.
#[cfg(test)]
pub(crate) fn enter_namespace() -> io::Result<()> {
    apart()?;
    ip("link set lo up")
}

/// A namespace of this thread's own.
fn apart() -> io::Result<i32> {
    #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    Ok(rustix::thread::gettid().as_raw_nonzero().get())
}

/// An answer by XDP arrives only where the end of a veth has a program.
fn pass() -> io::Result<HostLink> {
    let mut a = Assembler::new();
    a.set(Register::R0, 2).exit();
    let code = a.finish().map_err(io::Error::other)?;
    let program = HostProgram::load(&code, HostProgramKind::Xdp)?;
    HostLink::attach(&program, interface(THERE_INTERFACE)?.0, false)
}

impl Cable {
    fn lay() -> io::Result<Self> {
        let (ready, told) = channel();
        let (go, laid) = channel::<()>();
        let (calls, called) = channel::<Call>();
        let far = thread::spawn(move || {
            if ready.send(apart()).is_err() || laid.recv().is_err() {
                return;
            }
            let [_, addr] = TRIAL_ADDRESSES;
            let up = ip(&format!("address add {addr}/30 dev {THERE_INTERFACE}"))
                .and_then(|()| ip(&format!("link set {THERE_INTERFACE} up")))
                .and_then(|()| pass());
            let mut held = None;
            for (to, done) in called {
                drop(held.take());
                let made = match &up {
                    Ok(_) => TcpStream::connect_timeout(&to, CONNECT_PATIENCE),
                    Err(error) => Err(io::Error::other(error.to_string())),
                };
                let port = made.and_then(|stream| {
                    let port = stream.local_addr()?.port();
                    held = Some(stream);
                    Ok(port)
                });
                let _ = done.send(port);
            }
        });
        let cable = Self { calls: Some(calls), far: Some(far) };
        let gone = || io::Error::other("its thread has ended");
        let thread = told.recv().map_err(|_| gone())??;
        ip(&format!(
            "link add {HERE_INTERFACE} type veth peer name {THERE_INTERFACE} netns {thread}"
        ))?;
        let [addr, _] = TRIAL_ADDRESSES;
        ip(&format!("address add {addr}/30 dev {HERE_INTERFACE}"))?;
        ip(&format!("link set {HERE_INTERFACE} up"))?;
        go.send(()).map_err(|_| gone())?;
        Ok(cable)
    }

    /// Whether a connection to the port stands, at this end too.
    fn connects(&self, port: u16) -> bool {
        let (done, result) = channel();
        let [addr, _] = TRIAL_ADDRESSES;
        let call = ((addr, port).into(), done);
        let sent = self.calls.as_ref().is_some_and(|calls| calls.send(call).is_ok());
        let Some(Ok(Ok(from))) = sent.then(|| result.recv()) else { return false };
        (0..CONNECT_PATIENCE.as_millis() / 20).any(|_| {
            let stands = stands(port, from);
            if !stands {
                thread::sleep(Duration::from_millis(20));
            }
            stands
        })
    }

    fn findings(&self, ports: &[u16]) -> Vec<GuardFinding> {
        let [addr, _] = TRIAL_ADDRESSES;
        // Where a service listens at every address this is refused, and it is the one.
        let listeners: Vec<_> =
            ports.iter().map(|port| TcpListener::bind((addr, *port)).ok()).collect();
        let direct: Vec<_> = ports.iter().map(|port| self.connects(*port)).collect();
        let guard = match Guard::start(config(ports)) {
            Ok(guard) => guard,
            Err(error) => return vec![GuardFinding::breaks(error.to_string())],
        };
        let mut found = Vec::new();
        for (port, direct) in ports.iter().zip(direct) {
            found.push(match (direct, self.connects(*port)) {
                (_, true) => GuardFinding::well(format!(
                    "a connection to port {port} through a guard was made"
                )),
                (true, false) => GuardFinding::breaks(format!(
                    "a connection to port {port} is made without a guard and not through one: a \
                     rule drops connections without a SYN, or the listener takes no cookies \
                     (MPTCP); `nft list ruleset` and `iptables-save` show the rules"
                )),
                (false, false) => GuardFinding::may(format!(
                    "port {port} cannot be reached over a new interface, with and without a \
                     guard: a rule does not let it in, so this shows nothing"
                )),
            });
        }
        drop((guard, listeners));
        found
    }
}

fn config(ports: &[u16]) -> GuardConfig {
    GuardConfig {
        interface: HERE_INTERFACE.to_owned(),
        ports: ports.to_vec(),
        udp_ports: Vec::new(),
        udp_rate: 1,
        udp_unproven: 1,
        // The only client is this process.
        secret: Secret::from_words((u64::from(std::process::id()), 1)),
        clock: (1, 2),
        watch: Watch::Always,
        generic: false,
        pin: None,
        own_secret: true,
        ignore_rules: true,
        half_first: false,
    }
}

/// Whether the kernel has a connection between these ports, from that port of the far end.
fn stands(port: u16, from: u16) -> bool {
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].iter().any(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let mut end = || words.next().and_then(|word| word.rsplit_once(':')).map(|it| it.1);
            let ends = (end(), end());
            let wanted = [port, from].map(|port| format!("{port:04X}"));
            let [ours, theirs] = &wanted;
            // Established, or closed by the far end.
            ends == (Some(ours.as_str()), Some(theirs.as_str()))
                && matches!(words.next(), Some("01" | "08"))
        })
    })
}
