//! A server's network namespace with a guarded veth, and a client's with its peer.
//!
//! The calling thread is the server's; the client is a thread that runs closures. The peer has an
//! XDP program that passes everything: without one a veth does not deliver what its other side
//! answers by XDP. Both namespaces go with their threads.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failing test may panic")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

mod flood;
pub mod frame;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use floodwall_bpf::{Assembler, Register};
use floodwall_device::host_bpf::{HostLink, HostProgram, HostProgramKind, interface};
use floodwall_guard::{Guard, GuardConfig, GuardError, Watch};
use floodwall_syncache::Secret;
use rustix::thread::UnshareFlags;

#[allow(unused_imports, reason = "each test file uses a part of it")]
pub use self::flood::Flood;

pub const SERVER: (&str, &str) = ("10.77.0.1", "fd77::1");
pub const CLIENT: (&str, &str) = ("10.77.0.2", "fd77::2");
/// The interface of the server.
pub const IFACE: &str = "gd0";
/// Its peer, the client's.
pub const PEER: &str = "gd1";

pub fn skip(why: &str) {
    eprintln!("SKIPPED {}: {why}", thread::current().name().unwrap_or("test"));
}

/// Held for writing while a process starts: until it is another program, the new process has a copy
/// of every open descriptor, and what this process drops meanwhile stays open.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a process.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Runs a process; what it says.
pub fn output(command: &mut Command) -> std::io::Result<Output> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(piped)?.wait_with_output()
}

/// Drops a listener or a guard while no process starts, so that the kernel's part of it is closed
/// then.
pub fn close<T>(what: T) {
    let _none_starts = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    drop(what);
}

/// Runs one `ip` command in the calling thread's namespace.
pub fn ip(words: &str) -> bool {
    let ended =
        spawn(Command::new("ip").args(words.split_whitespace())).and_then(|mut ip| ip.wait());
    ended.is_ok_and(|status| status.success())
}

/// Sets a sysctl of the calling thread's namespace.
pub fn sysctl(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
}

fn unshare() -> bool {
    #[expect(deprecated, reason = "what makes it unsafe is a flag about descriptors")]
    let own = rustix::thread::unshare(UnshareFlags::NEWNET);
    own.is_ok() && ip("link set lo up")
}

/// Puts a program that passes everything on an interface, as long as the link is kept.
pub fn passes(name: &str) -> std::io::Result<HostLink> {
    let mut a = Assembler::new();
    a.set(Register::R0, 2).exit();
    let pass = HostProgram::load(&a.finish().unwrap(), HostProgramKind::Xdp)?;
    HostLink::attach(&pass, interface(name)?.0, false)
}

type Job = Box<dyn FnOnce() + Send>;

/// Two namespaces with a cable, a guard and the servers and clients of a test.
pub struct Rig {
    client: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Rig {
    /// Enters a namespace of its own; `None`, with the reason printed, where that is not possible.
    pub fn new() -> Option<Self> {
        if !unshare() {
            skip("no network namespace of its own; it takes root and the command `ip`");
            return None;
        }
        let (ready, told) = channel();
        let (client, jobs) = channel::<Job>();
        let thread = thread::spawn(move || {
            let own = unshare();
            ready.send(own.then(|| rustix::thread::gettid().as_raw_nonzero().get())).unwrap();
            jobs.into_iter().for_each(|job| job());
        });
        let Some(tid) = told.recv().unwrap() else {
            skip("no second network namespace");
            return None;
        };
        assert!(ip(&format!("link add {IFACE} type veth peer name {PEER} netns {tid}")));
        for conf in ["all", "default", IFACE] {
            sysctl(&format!("ipv6/conf/{conf}/accept_dad"), "0");
        }
        up(IFACE, SERVER);
        let rig = Self { client: Some(client), thread: Some(thread) };
        rig.run(|| {
            for conf in ["all", "default", PEER] {
                sysctl(&format!("ipv6/conf/{conf}/accept_dad"), "0");
            }
            up(PEER, CLIENT);
        });
        let attached = rig.run(|| passes(PEER).map(core::mem::forget));
        if let Err(error) = attached {
            skip(&format!("no XDP program for the peer: {error}"));
            return None;
        }
        Some(rig)
    }

    /// Runs it in the client's namespace.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let job = Box::new(move || drop(done.send(job())));
        self.client.as_ref().unwrap().send(job).unwrap();
        result.recv().expect("the client has panicked")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.client.take());
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

fn up(name: &str, (four, six): (&str, &str)) {
    assert!(ip(&format!("address add {four}/24 dev {name}")));
    assert!(ip(&format!("address add {six}/64 dev {name} nodad")));
    assert!(ip(&format!("link set {name} up")));
}

pub fn secret(n: u8) -> Secret {
    let bytes: Vec<u8> = (0..32).map(|byte| byte ^ n).collect();
    Secret::from_bytes(&bytes).unwrap()
}

pub fn config(ports: &[u16], watch: Watch) -> GuardConfig {
    GuardConfig {
        interface: IFACE.to_owned(),
        ports: ports.to_vec(),
        udp_ports: Vec::new(),
        udp_rate: 1000,
        udp_unproven: 1000,
        secret: secret(1),
        clock: (3, 4),
        watch,
        generic: false,
        pin: None,
        own_secret: false,
        ignore_rules: false,
        half_first: false,
    }
}

/// Starts a guard; `None`, with the reason printed, where this kernel cannot.
pub fn start(config: GuardConfig) -> Option<Guard> {
    // A process that another test starts holds the descriptors of the last guard for a moment.
    let mut started = Guard::start(config.clone());
    for _ in 0..1000 {
        if !matches!(started, Err(GuardError::Busy(_))) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        started = Guard::start(config.clone());
    }
    match started {
        Ok(guard) => Some(guard),
        Err(
            error @ (GuardError::NoBtf(_) | GuardError::NoFunction(_) | GuardError::NoPrivilege(_)),
        ) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a port of the guard has counted under that name.
pub fn counted(guard: &Guard, name: &str) -> u64 {
    let status = guard.status().unwrap();
    status
        .ports
        .iter()
        .flat_map(|port| port.counts())
        .filter(|it| it.0 == name)
        .map(|it| it.1)
        .sum()
}

/// Echoes on that address of the calling thread's namespace, until the test's process ends.
pub fn echo(addr: SocketAddr) {
    let listener = TcpListener::bind(addr).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Connects, sends a line and takes it back.
pub fn connect_and_echo(addr: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    stream.write_all(b"one line\n")?;
    let mut bytes = [0; 9];
    stream.read_exact(&mut bytes)?;
    assert_eq!(&bytes, b"one line\n");
    Ok(())
}

pub fn server(v6: bool, port: u16) -> SocketAddr {
    let addr: IpAddr = if v6 { SERVER.1 } else { SERVER.0 }.parse().unwrap();
    SocketAddr::new(addr, port)
}

/// What `ss` says of connections that these words select, as far as a handshake decides it.
pub fn agreed(words: &str) -> Vec<String> {
    let out = output(Command::new("ss").args(["-tieHOn"]).args(words.split_whitespace())).unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let kept = ["ts", "sack", "ecn", "ecnseen"];
    let keys = ["wscale:", "mss:", "advmss:", "pmtu:"];
    let wanted = |word: &&str| kept.contains(word) || keys.iter().any(|key| word.starts_with(key));
    text.split_whitespace().filter(wanted).map(str::to_owned).collect()
}
