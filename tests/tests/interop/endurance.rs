//! An interface shared by AF_XDP for a long time: pings, datagrams, TCP in bulk and a session with
//! the kernel's own service, while floods come, the link falls and rises, and its MTU is another.
//!
//! In cycles of some seconds each. After each the link is idle, and every client must make
//! progress: that is "no stall". At the end every frame that the program at the interface saw is at
//! the worker or counted as lost, every packet is accounted for exactly once, all frames are back
//! in the pool (`running.rs`), and after a long run the process holds no more memory in its second
//! half than in its first. `FLOODWALL_DEEP=1` runs it for 20 minutes, or `FLOODWALL_SECONDS`; else
//! it is short.

#![expect(clippy::disallowed_methods, reason = "the kernel runs in real time")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodwall_base::{IfIndex, IpCidr, Randomness};
use floodwall_device::{DeviceStats, XdpMode};
use floodwall_pktgen::{AddrRange, Content, Pace, PortRange, Stream};
use floodwall_services::{ServiceKind, TcpService, UdpService};
use floodwall_stack::Application;
use floodwall_wire::tcp::TcpFlags;

use crate::bench::{CLOSED_PORT, ECHO_PORT};
use crate::command::{ip, run};
use crate::flooded_router::pump;
use crate::instance::resident;
use crate::link::{Ends, MAC, MTU, OTHER_END, ends};
use crate::namespace::{inside_alone, is_deep, pause, tell, until};
use crate::site::{ETH, Host};
use crate::tcp::ECHO;
use crate::xdp_site::{KEPT, SharedInterface};

/// The kernel's own service.
const SSH: u16 = 22;
const SHORT: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(20 * 60);
/// Packets a second of a flood, and how long one lasts.
const FLOOD: u64 = 200_000;
const FLOODED: Duration = Duration::from_millis(1000);
/// How long the link is down, or of another MTU.
const DISTURBED: Duration = Duration::from_millis(300);
/// Within this time everybody gets on again after the link was disturbed.
const PATIENCE: Duration = Duration::from_secs(20);
/// What everybody must get done in the calm part of a cycle.
const STEPS: u64 = 5;
/// Cycles that there are at least.
const CYCLES_MIN: u32 = 4;
/// KiB by which the second half may need more than the first, and cycles that it takes to say so:
/// before, the allocator is still making room for each of this test's threads.
const GROWTH: (u64, u32) = (1024, 200);
/// Cycles between two words about how it goes.
const NEWS: u32 = 25;

/// The users of the interface.
const USERS: [&str; 8] = [
    "ping IPv4",
    "ping IPv6",
    "datagrams IPv4",
    "datagrams IPv6",
    "TCP IPv4",
    "TCP IPv6",
    "kernel's session IPv4",
    "kernel's session IPv6",
];

/// What the users have done so far.
#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    steps: [AtomicU64; 8],
}

impl Progress {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn step(&self, user: usize) {
        self.steps[user].fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> [u64; 8] {
        std::array::from_fn(|user| self.steps[user].load(Ordering::Relaxed))
    }
}

/// Pings until the end; a step is an answer. No connection is made.
fn pings(to: IpAddr, user: usize, progress: &Progress) -> u32 {
    while progress.goes_on() {
        let words = format!("-n -c 10 -i 0.02 -w 1 {to}");
        let Some(said) = run("ping", &words, b"") else { break };
        let answers = said.text.lines().filter(|line| line.contains(" bytes from ")).count();
        progress.steps[user].fetch_add(answers as u64, Ordering::Relaxed);
    }
    0
}

/// Datagrams there and back until the end; a step is one that came back whole. No connection is
/// made.
fn datagrams(Ends { kernel, ours }: Ends, user: usize, progress: &Progress) -> u32 {
    let socket = UdpSocket::bind((kernel, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut number, mut room) = (0_u32, [0; 2048]);
    while progress.goes_on() {
        number += 1;
        let mut sent = vec![number as u8; 4 + number as usize % 1300];
        sent[..4].copy_from_slice(&number.to_be_bytes());
        // Refused while the link is down.
        if socket.send_to(&sent, (ours, ECHO_PORT)).is_err() {
            pause(Duration::from_millis(20));
            continue;
        }
        while let Ok((len, _)) = socket.recv_from(&mut room) {
            if room[..len] == sent {
                progress.step(user);
                break;
            }
        }
        pause(Duration::from_millis(1));
    }
    0
}

/// One piece there and back.
fn exchange(stream: &mut TcpStream, piece: &[u8], room: &mut [u8]) -> std::io::Result<()> {
    stream.write_all(piece)?;
    stream.read_exact(&mut room[..piece.len()])?;
    assert_eq!(&room[..piece.len()], piece, "TCP gave other bytes back");
    Ok(())
}

/// Pieces of TCP's bytes there and back until the end, over one connection for as long as it lives;
/// a step is a piece. Returns how often it had to connect.
fn bulk(to: SocketAddr, piece: usize, user: usize, progress: &Progress) -> u32 {
    let piece: Vec<u8> = (0..piece).map(|at| (at ^ at >> 8) as u8).collect();
    let (mut room, mut connects) = (vec![0; piece.len()], 0);
    while progress.goes_on() {
        let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_secs(2)) else {
            continue;
        };
        connects += 1;
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        while progress.goes_on() && exchange(&mut stream, &piece, &mut room).is_ok() {
            progress.step(user);
            pause(Duration::from_millis(2));
        }
    }
    connects
}

/// The kernel's service on the interface that it shares with us: it gives back what it reads.
fn serve() {
    for addr in KEPT {
        let addr: IpAddr = addr.parse().unwrap();
        let listener = TcpListener::bind((addr, SSH)).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let (mut stream, mut room) = (stream, [0; 4096]);
                    while let Ok(n @ 1..) = stream.read(&mut room) {
                        if stream.write_all(&room[..n]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }
}

/// All users, from the host's namespace.
struct Users {
    progress: Arc<Progress>,
    threads: Vec<JoinHandle<u32>>,
}

impl Users {
    fn start(host: &Host) -> Self {
        let progress = Arc::new(Progress::default());
        let mut threads = Vec::new();
        host.inside(|| {
            let mut start = |work: Box<dyn FnOnce(&Progress) -> u32 + Send>| {
                let progress = Arc::clone(&progress);
                threads.push(thread::spawn(move || work(&progress)));
            };
            for (family, both) in ends().into_iter().enumerate() {
                let (ours, kept) = (both.ours, KEPT[family].parse::<IpAddr>().unwrap());
                start(Box::new(move |p| pings(ours, family, p)));
                start(Box::new(move |p| datagrams(both, 2 + family, p)));
                start(Box::new(move |p| bulk((ours, ECHO).into(), 40_000, 4 + family, p)));
                start(Box::new(move |p| bulk((kept, SSH).into(), 64, 6 + family, p)));
            }
        });
        Self { progress, threads }
    }

    /// Whether all of them get on.
    fn get_on(&self) {
        let before = self.progress.all();
        let slowest = || {
            let now = self.progress.all();
            (0..USERS.len()).min_by_key(|user| now[*user] - before[*user]).unwrap()
        };
        let done = |user: usize| self.progress.all()[user] - before[user];
        let all = until(PATIENCE, || done(slowest()) >= STEPS);
        let user = slowest();
        assert!(all, "{} stands still: {} steps in {PATIENCE:?}", USERS[user], done(user));
    }

    /// Ends them; how often those of TCP had to connect.
    fn end(self) -> Vec<u32> {
        self.progress.stop.store(true, Ordering::Relaxed);
        let ended = self.threads.into_iter().map(|thread| thread.join().unwrap());
        ended.filter(|connects| *connects > 0).collect()
    }
}

/// The flood: datagrams to our echo service and to a closed port, SYNs, of one family.
fn streams(ours: IpAddr) -> Vec<Stream> {
    let length = if ours.is_ipv4() { 16 } else { 64 };
    let from: AddrRange = IpCidr::new(unknown(ours), length).unwrap().into();
    let to: AddrRange = IpCidr::new(ours, if ours.is_ipv4() { 32 } else { 128 }).unwrap().into();
    let flood = |content, port| Stream {
        dst_ports: PortRange::one(port),
        ..Stream::new(content, from, to, Pace::per_second(FLOOD / 4))
    };
    let syn = Content::Tcp(TcpFlags::SYN);
    vec![
        flood(Content::Udp, ECHO_PORT),
        flood(Content::Udp, CLOSED_PORT),
        flood(syn, ECHO),
        flood(Content::IcmpEcho, 0),
    ]
}

/// Addresses behind no router that we know: what answers them goes nowhere.
fn unknown(ours: IpAddr) -> IpAddr {
    (if ours.is_ipv4() { "198.18.0.0" } else { "2001:db8:1::" }).parse().unwrap()
}

/// A flood of one family; how many packets left.
fn flood(host: &Host, cycle: u32) -> u64 {
    let ours = ends()[cycle as usize % 2].ours;
    let end = Instant::now() + FLOODED;
    let peer = MAC.to_string();
    host.inside(|| pump(streams(ours), (ETH, &peer), |_| Instant::now() < end))
}

/// The link falls and rises at one end or the other, and so does its MTU.
fn disturb(shared: &SharedInterface, cycle: u32) {
    let near = |words: &str| assert!(ip(&format!("link set {OTHER_END} {words}")));
    let far = |words: &str| shared.host.inside(|| assert!(ip(&format!("link set {ETH} {words}"))));
    // As `floodwall run` does, which looks at the link.
    let carrier = |is_there: bool| {
        shared.running.ask(move |desk| {
            let mut random = Randomness::from_number(u64::from(desk.now.as_nanos() as u32));
            let (now, stack) = (desk.now, desk.engine.engine.stack_mut());
            stack.set_carrier(IfIndex(1), is_there, now, &mut random);
        });
    };
    let set: &dyn Fn(&str) = if cycle.is_multiple_of(2) { &near } else { &far };
    set("down");
    carrier(false);
    pause(DISTURBED);
    set("up");
    carrier(true);
    for mtu in [1400, MTU] {
        near(&format!("mtu {mtu}"));
        far(&format!("mtu {mtu}"));
        pause(DISTURBED);
    }
}

fn losses(stats: &[DeviceStats]) -> String {
    let mut all = DeviceStats::default();
    stats.iter().for_each(|queue| all.merge(queue));
    let named = all.named().into_iter().filter(|(_, count)| *count > 0);
    named.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_shared_interface_endures_floods_flaps_and_mixed_traffic() {
    inside_alone(|| {
        let seconds = std::env::var("FLOODWALL_SECONDS").ok().and_then(|it| it.parse().ok());
        let usual = if is_deep() { LONG } else { SHORT };
        let time = seconds.map_or(usual, Duration::from_secs);
        let services: Vec<Box<dyn Application>> = vec![
            Box::new(UdpService::new(ServiceKind::Echo, ECHO_PORT)),
            Box::new(TcpService::new(ServiceKind::Echo, ECHO)),
        ];
        let Some(shared) = SharedInterface::set_up(XdpMode::Native, 2, services) else { return };
        serve();
        let users = Users::start(&shared.host);
        let (start, mut cycles, mut flooded) = (Instant::now(), 0, 0);
        let mut memory = Vec::new();
        users.get_on();
        while start.elapsed() < time || cycles < CYCLES_MIN {
            flooded += flood(&shared.host, cycles);
            disturb(&shared, cycles);
            users.get_on();
            let law = shared.running.stats().conservation();
            assert!(law.holds(), "cycle {cycles}: {law:?}");
            cycles += 1;
            let held = resident(std::process::id());
            memory.push(held);
            if cycles.is_multiple_of(NEWS) {
                tell(&format!("{cycles} cycles, {held} KiB"));
            }
        }
        let steps = users.progress.all();
        let connects = users.end();
        assert!(until(PATIENCE, || shared.settle().1.is_exact()), "{:?}", shared.settle());
        let (stats, settled) = shared.settle();
        let (first, second) = memory.split_at(memory.len() / 2);
        let [first, second] = [first, second].map(|half| half.iter().max().copied().unwrap_or(0));
        tell(&format!(
            "{:.0?}, {cycles} cycles, {flooded} packets of floods; steps {:?}; connections \
             {connects:?}; frames {settled:?}; {}; KiB at most {first} in the first half, {second} \
             in the second",
            start.elapsed(),
            USERS.iter().zip(steps).collect::<Vec<_>>(),
            losses(&stats),
        ));
        // The kernel's sessions have never broken.
        assert!(connects.iter().skip(1).step_by(2).all(|n| *n == 1), "{connects:?}");
        let is_flat = second <= first + GROWTH.0 || cycles < GROWTH.1;
        assert!(is_flat, "{first} KiB became {second}");
        let end = shared.running.stop();
        end.outcome.expect("it was asked to end");
    });
}
