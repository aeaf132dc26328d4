//! The bench on a TAP: the Linux kernel's own sockets are the honest clients.
//!
//! Everything happens in a network namespace that one thread of this process makes for itself, and
//! that has no name: the TAP, the clients' sockets and the flood's packet socket are all in it, and
//! it has no way out. When the thread ends, however it ends (a panic, a signal, an interrupt), the
//! system takes the namespace away with everything in it. Needs root, `/dev/net/tun` and `ip`.

use core::time::Duration;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use floodwall_base::Family;
use floodwall_device::{AfPacket, AfPacketConfig, Device, Tun, TunConfig, TunKind};
use floodwall_dispatch::Clock;

use crate::error::DrillError;
use crate::honest::{ANSWER_TIMEOUT, QuestionSource, SentQuestion};
use crate::namespace::{self, ip};
use crate::progress::DrillProgress;
use crate::report::Report;
use crate::run::{self, Schedule};
use crate::server::ServerConfig;
use crate::topology;
use crate::wire::{OutsideHosts, WireBench};

/// The TAP's name in its namespace.
const TAP_NAME: &str = "fwdrill0";
/// Packets that wait in the TAP for the host: the receive ring of this bench.
const TAP_QUEUE_LEN: &str = "20000";
/// Bytes of a question: a number, and something to carry.
const QUESTION_BYTES: usize = 64;
/// The longest that a client's thread waits for an answer before it looks at its schedule.
const CLIENT_WAIT: Duration = Duration::from_millis(1);

/// Runs a drill in a namespace of its own.
pub(crate) fn drill(
    server: &ServerConfig,
    schedule: Schedule,
    seed: u64,
    progress: &mut dyn DrillProgress,
) -> Result<Report, DrillError> {
    namespace::check(true, "run it as root (sudo), or without --tap, which needs nothing")?;
    // The kernel's half has one queue here.
    let server = &ServerConfig { workers: 1, ..server.clone() };
    std::thread::scope(|scope| {
        let inside = std::thread::Builder::new().name("drill-tap".to_owned());
        let run = move || {
            namespace::enter()?;
            let [tap, flood] = set_up()?;
            let clients: Box<dyn OutsideHosts> = Box::new(Kernel::default());
            let mut bench = WireBench::between(server, seed, flood, vec![tap], Some(clients))?;
            let mut report = run::run(&mut bench, schedule, seed, progress)?;
            report.notes.extend(ping());
            Ok(report)
        };
        let thread = inside.spawn_scoped(scope, run).map_err(|source| DrillError::System {
            action: "start the namespace's thread",
            source,
        })?;
        thread.join().unwrap_or_else(|_| {
            Err(DrillError::WorkerEnded("it panicked; see above, and report it".to_owned()))
        })
    })
}

/// The TAP for the host, and the packet socket for the flood.
fn set_up() -> Result<[Box<dyn Device>; 2], DrillError> {
    let config = TunConfig { kind: TunKind::Tap, vnet_header: false, ..TunConfig::default() };
    let mut queues = Tun::open(TAP_NAME, &config)?;
    let tap = queues.pop().ok_or(DrillError::Missing {
        what: "the TAP has no queue".to_owned(),
        remedy: "report it",
    })?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "set", TAP_NAME, "txqueuelen", TAP_QUEUE_LEN, "up"])?;
    for family in topology::FAMILIES {
        let (len, flags): (u8, &[&str]) =
            if family == Family::V4 { (16, &[]) } else { (64, &["nodad"]) };
        let addr = client_addr(family, 0);
        let words = ["addr", "add", &format!("{}/{len}", addr.ip()), "dev", TAP_NAME];
        ip(&[&words[..], flags].concat())?;
    }
    let flood = AfPacket::open(TAP_NAME, &AfPacketConfig::default())?;
    Ok([Box::new(tap), Box::new(flood)])
}

/// The kernel's address of a family.
fn client_addr(family: Family, port: u16) -> SocketAddr {
    let addr = topology::client_addrs(topology::TopologyHost::Near, family)
        .first()
        .map(|cidr| cidr.addr());
    SocketAddr::new(addr.unwrap_or(topology::server_addr(family)), port)
}

/// The output of the kernel's ping after the drill, one line a family; nothing without a `ping`.
fn ping() -> Vec<String> {
    let one = |family| {
        let addr = topology::server_addr(family).to_string();
        let words = ["-n", "-q", "-c", "5", "-i", "0.2", "-W", "1", &addr];
        let output = Command::new("ping").args(words).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find(|line| line.contains("transmitted"))?;
        Some(format!("the kernel's ping, {}: {line}", topology::family_name(family)))
    };
    topology::FAMILIES.into_iter().filter_map(one).collect()
}

/// The kernel's sockets as honest clients: one thread a family and stretch.
#[derive(Default)]
struct Kernel {
    threads: Vec<JoinHandle<Result<SentQuestion, io::Error>>>,
    asked: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl OutsideHosts for Kernel {
    fn begin(&mut self, asking: &QuestionSource) -> Result<(), DrillError> {
        self.asked.store(0, Ordering::Relaxed);
        self.answered.store(0, Ordering::Relaxed);
        for family in topology::FAMILIES {
            let client = TapClient {
                family,
                asking: *asking,
                asked: Arc::clone(&self.asked),
                answered: Arc::clone(&self.answered),
            };
            let thread = std::thread::Builder::new().name("drill-client".to_owned());
            let thread = thread
                .spawn(move || client.run())
                .map_err(|source| DrillError::System { action: "start a client", source })?;
            self.threads.push(thread);
        }
        Ok(())
    }

    fn tally(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }

    fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    fn end(&mut self) -> Result<[SentQuestion; 2], DrillError> {
        let mut all = <[SentQuestion; 2]>::default();
        for (slot, thread) in all.iter_mut().zip(self.threads.drain(..)) {
            let outcome = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            *slot = outcome.map_err(|source| DrillError::System {
                action: "ask through the kernel's sockets",
                source,
            })?;
        }
        Ok(all)
    }

    /// What the TAP had no room for, by the system's own count in this thread's namespace.
    fn ring_full(&self) -> u64 {
        let counts = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        let ours =
            counts.lines().find_map(|line| line.trim().strip_prefix(TAP_NAME)?.strip_prefix(':'));
        // Eight columns of receiving, then bytes, packets, errors, drops of sending.
        let drops = ours.and_then(|columns| columns.split_whitespace().nth(11));
        drops.and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

/// One family's client, through a socket of the kernel.
struct TapClient {
    family: Family,
    asking: QuestionSource,
    asked: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl TapClient {
    /// Sends on schedule; every answer counts from the moment at which its question was meant to
    /// leave.
    fn run(&self) -> Result<SentQuestion, io::Error> {
        let socket = UdpSocket::bind(client_addr(self.family, 0))?;
        socket.connect(topology::service(self.family))?;
        let (clock, count) = (Clock::new(), self.asking.count(topology::TopologyHost::Near));
        let gap = Duration::from_nanos(1_000_000_000 / self.asking.rate.max(1));
        let started = clock.now();
        let intended = |seq: u64| started + gap * u32::try_from(seq).unwrap_or(u32::MAX);
        let mut open = vec![true; usize::try_from(count).unwrap_or(0)];
        let mut all = SentQuestion::default();
        let end = intended(count) + ANSWER_TIMEOUT;
        loop {
            let now = clock.now();
            while all.asked < count && intended(all.asked) <= now {
                self.ask(&socket, all.asked);
                all.asked += 1;
                self.asked.fetch_add(1, Ordering::Relaxed);
            }
            if all.answered == count || now >= end {
                return Ok(all);
            }
            let next = if all.asked < count { intended(all.asked) } else { end };
            let patience = next.saturating_since(now).clamp(Duration::from_micros(1), CLIENT_WAIT);
            socket.set_read_timeout(Some(patience))?;
            let Some(seq) = answer(&socket) else { continue };
            let latency = clock.now().saturating_since(intended(seq));
            let place = usize::try_from(seq).ok().and_then(|at| open.get_mut(at));
            if let Some(open) = place.filter(|open| **open && latency < ANSWER_TIMEOUT) {
                *open = false;
                all.answered += 1;
                all.latency.record(latency);
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn ask(&self, socket: &UdpSocket, seq: u64) {
        let mut question = [0; QUESTION_BYTES];
        let (number, id) = (seq.to_be_bytes(), self.asking.id.to_be_bytes());
        let bytes = number.into_iter().chain(id);
        question.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        // What the kernel refuses to send is a question without an answer.
        let _ = socket.send(&question);
    }
}

/// The number of the question that is answered next; `None` where none is in time, or an ICMP
/// error came instead.
fn answer(socket: &UdpSocket) -> Option<u64> {
    let mut answer = [0; QUESTION_BYTES];
    let len = socket.recv(&mut answer).ok()?;
    answer.get(..len)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}
