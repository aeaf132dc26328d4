//! `floodwall explain` on incidents that are staged on a running instance, not on counters: what it
//! says first is right in each, and at rest it claims nothing.
//!
//! Needs root, for a network namespace, the TAP and raw sockets; reports that it was skipped
//! elsewhere. Everything is sent from the kernel's side of the TAP, within the namespace, bounded
//! in packets and time.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Instance, may};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
/// Bytes of a large datagram and its header; the link carries it whole.
const LARGE: u16 = 8008;
/// Slow readers at most.
const READERS: usize = 6000;
/// The flag for more fragments.
const MORE: u16 = 0x2000;

/// The Internet checksum of these pieces, each of even length but the last.
fn checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for pair in pieces.concat().chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv4 packet to the host; the kernel fills in length and header checksum.
fn ip(source: Ipv4Addr, protocol: u8, (id, fragment): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0];
    packet.extend(id.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend([source.octets(), HOST.octets()].concat());
    packet.extend(payload);
    packet
}

/// A TCP or UDP header with its checksum, or with a wrong one.
fn upper(source: Ipv4Addr, protocol: u8, mut header: Vec<u8>, at: usize, wrong: bool) -> Vec<u8> {
    let pseudo = [source.octets(), HOST.octets(), [0, protocol, 0, header.len() as u8]].concat();
    let sum = checksum(&[&pseudo, &header]) ^ u16::from(wrong);
    header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    header
}

fn tcp(source: Ipv4Addr, (from, to): (u16, u16), flags: u8, n: u32) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
    header.extend(n.wrapping_mul(2_654_435_761).to_be_bytes());
    header.extend([0, 0, 0, 1, 0x50, flags, 0x40, 0, 0, 0, 0, 0]);
    ip(source, TCP, (0, 0), &upper(source, TCP, header, 16, false))
}

fn udp(source: Ipv4Addr, to: u16, wrong: bool) -> Vec<u8> {
    let mut header = [4000_u16.to_be_bytes(), to.to_be_bytes(), 12_u16.to_be_bytes()].concat();
    header.extend([0, 0, b'w', b'h', b'a', b't']);
    ip(source, UDP, (0, 0), &upper(source, UDP, header, 6, wrong))
}

fn raw() -> OwnedFd {
    socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap()
}

/// The n-th forged source of 198.18.0.0/15, which a route leads to.
fn forged(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xc612_0000 | (n.wrapping_mul(40_503) & 0x0001_ffff))
}

/// Runs `send` so often a millisecond while the instance is asked; returns what `explain` says.
fn staged(
    running: &Instance,
    per_milli: u32,
    settle: Duration,
    send: impl Fn(u32) + Send + 'static,
) -> Value {
    staged_by(running, settle, at_pace(per_milli, send))
}

/// Calls `send` so often a millisecond.
fn at_pace(per_milli: u32, send: impl Fn(u32) + Send + 'static) -> impl FnMut() + Send + 'static {
    let mut n = 0;
    let mut next = move || {
        send(n);
        n += 1;
    };
    move || {
        (0..per_milli).for_each(|_| next());
        // 0 is one every 20 ms.
        if per_milli == 0 {
            next();
            std::thread::sleep(Duration::from_millis(19));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Does `step` again and again, in the instance's namespace, while it is asked.
fn staged_by(running: &Instance, settle: Duration, step: impl FnMut() + Send + 'static) -> Value {
    staged_while(running, settle, step, || ()).0
}

/// The same; `look` is called after that, while it still goes on.
fn staged_while<T>(
    running: &Instance,
    settle: Duration,
    mut step: impl FnMut() + Send + 'static,
    look: impl FnOnce() -> T,
) -> (Value, T) {
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    let sender = running.within(move || {
        let begun = Instant::now();
        while !over.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
            step();
        }
    });
    std::thread::sleep(settle);
    // On a busy machine what is sent may come too slowly to be an incident; no other thing may be
    // said meanwhile.
    let mut said = Value::Null;
    for _ in 0..5 {
        said = running.json(&["explain", "--seconds", "2", "--json"]);
        if said["findings"].as_array().is_some_and(|all| !all.is_empty()) {
            break;
        }
    }
    let seen = look();
    done.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    (said, seen)
}

/// Waits until nothing is claimed any more.
fn quiet(running: &Instance) {
    for _ in 0..20 {
        let said = running.json(&["explain", "--seconds", "1", "--json"]);
        if said["verdict"] == "fine: nothing is wrong" {
            return;
        }
    }
    panic!("it still claims: {}", running.json(&["explain", "--seconds", "1", "--json"]));
}

/// A sender of one packet a call over a raw socket that is opened in the namespace.
fn sends(make: impl Fn(u32) -> Vec<u8> + Send + 'static) -> impl Fn(u32) + Send + 'static {
    let socket = std::sync::OnceLock::new();
    move |n| {
        let to = SocketAddrV4::new(HOST, 0);
        // A full queue of the TAP is the flood's own affair.
        let _ = sendto(socket.get_or_init(raw), &make(n), SendFlags::empty(), &to);
    }
}

/// A sender of datagrams from the namespace's own address to a closed port.
fn closed(own: &'static str, to: &'static str) -> impl Fn(u32) + Send + 'static {
    let socket = std::sync::OnceLock::new();
    move |_| {
        let socket = socket.get_or_init(|| UdpSocket::bind(own).unwrap());
        let _ = socket.send_to(b"closed", to);
    }
}

/// A source within one IPv4 /24, with a datagram for the echo service of which few fill its queue.
fn large(n: u32) -> Vec<u8> {
    let source = Ipv4Addr::from(0xc612_0000 | (n & 0xff));
    let mut header = [4000_u16.to_be_bytes(), 7001_u16.to_be_bytes()].concat();
    // Without a checksum, which IPv4 permits.
    header.extend(LARGE.to_be_bytes());
    header.extend([0, 0]);
    header.resize(LARGE.into(), b'w');
    ip(source, UDP, (0, 0), &header)
}

/// Clients that ask for much and read nothing, more and more of them.
fn readers() -> impl FnMut() + Send + 'static {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let mut held = Vec::new();
    move || {
        if held.len() < READERS
            && let Ok(mut stream) = TcpStream::connect((HOST, 80))
        {
            stream.write_all(b"GET /bytes/1000000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            held.push(stream);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// An instance on which incidents are staged.
struct Stage {
    running: Instance,
    wrong: Vec<String>,
}

impl Stage {
    /// `None` where this machine cannot.
    fn new(name: &str) -> Option<Self> {
        if !may() {
            return None;
        }
        let running = Instance::start_with_peer(
            name,
            &[
                "--mtu=9000",
                "--route=198.18.0.0/15 via 10.0.0.1",
                "--service=udp-echo:7001",
                "--service=http:80",
            ],
        );
        running.beside("ip link set fw0 mtu 9000");
        quiet(&running);
        Some(Self { running, wrong: Vec::new() })
    }

    /// What is said first must be this, and have evidence.
    fn judge(&mut self, said: &Value, kind: &str, name: &str) -> bool {
        let first = &said["findings"][0];
        let evidence = first["evidence"].as_array().is_some_and(|all| !all.is_empty());
        let right = first["kind"] == kind && first["name"] == name && evidence;
        if !right {
            self.wrong.push(format!("{kind}: {name}: {said}"));
        }
        quiet(&self.running);
        right
    }

    /// An attack of so many packets a millisecond is named. A worker for which that is too much
    /// sheds packets before it knows what they are, and says so: then fewer come.
    fn attack<S: Fn(u32) + Send + 'static>(
        &mut self,
        (per_milli, settle): (u32, Duration),
        make: impl Fn() -> S,
        name: &str,
    ) {
        let wrong = self.wrong.len();
        for slower in [1, 4, 16] {
            let said = staged(&self.running, (per_milli / slower).max(1), settle, make());
            if self.judge(&said, "attack", name) {
                return self.wrong.truncate(wrong);
            }
            if said["findings"][0]["name"] != "packet flood" {
                return;
            }
        }
    }

    fn end(self) {
        assert!(self.wrong.is_empty(), "{} wrong: {:#?}", self.wrong.len(), self.wrong);
    }
}

/// How long an incident lasts before it is asked for.
const SHORT: Duration = Duration::from_millis(500);

#[test]
fn staged_floods_of_tcp_and_of_closed_ports_are_named() {
    let Some(mut stage) = Stage::new("incidents") else { return };
    let from = |n: u32| 1024 + (n % 60_000) as u16;
    let syns = || sends(move |n| tcp(forged(n), (from(n), 80), 0x02, n));
    stage.attack((40, Duration::from_secs(3)), syns, "SYN flood");
    let acks = || sends(move |n| tcp(forged(n), (from(n), 81), 0x10, n));
    stage.attack((8, SHORT), acks, "flood of TCP segments without a connection");
    for to in ["10.0.0.2:9", "[fd00::2]:9"] {
        let own = if to.starts_with('[') { "[fd00::1]:0" } else { "10.0.0.1:0" };
        stage.attack((8, SHORT), || closed(own, to), "flood of closed ports");
    }
    stage.end();
}

#[test]
fn staged_floods_of_other_packets_are_named() {
    let Some(mut stage) = Stage::new("incidents-other") else { return };
    let pieces = || sends(|n| ip(forged(n), UDP, (n as u16, MORE), &[0; 64]));
    stage.attack((20, SHORT), pieces, "fragment flood");
    let echo = |n: u32| {
        let mut echo = vec![8, 0, 0, 0, 0, 1];
        echo.extend((n as u16).to_be_bytes());
        let sum = checksum(&[&echo]);
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        ip(PEER, ICMP, (0, 0), &echo)
    };
    stage.attack((40, SHORT), || sends(echo), "ICMP flood");
    let broken = || sends(|n| udp(forged(n), 7001, true));
    stage.attack((8, SHORT), broken, "flood of malformed packets");
    stage.attack((100, SHORT), || sends(large), "UDP flood");
    stage.end();
}

#[test]
fn staged_faults_of_the_path_and_limits_are_named() {
    let Some(mut stage) = Stage::new("incidents-path") else { return };
    let said = staged_by(&stage.running, Duration::from_secs(3), readers());
    stage.judge(&said, "too-small", "connections for want of memory");
    // The echo's answers are for stations that do not exist: many, then few.
    let link = |n: u32| Ipv4Addr::new(10, 0, 0, 10 + (n % 200) as u8);
    let to_none = || sends(move |n| udp(link(n), 7001, false));
    stage.attack((8, SHORT), to_none, "neighbour table flood");
    let said = staged(&stage.running, 0, Duration::from_secs(6), to_none());
    stage.judge(&said, "path", "neighbours");
    stage.end();
}

#[test]
fn staged_faults_of_routes_and_links_are_named() {
    let Some(mut stage) = Stage::new("incidents-routes") else { return };
    let nowhere = sends(|n| udp(Ipv4Addr::from(0xcb00_7100 | (n & 0xff)), 7001, false));
    let said = staged(&stage.running, 0, SHORT, nowhere);
    stage.judge(&said, "path", "routes");
    assert!(stage.running.ask(&["link", "set", "fw0", "down"]).status.success());
    let said = staged(&stage.running, 0, SHORT, closed("10.0.0.1:0", "10.0.0.2:7001"));
    assert!(stage.running.ask(&["link", "set", "fw0", "up"]).status.success());
    stage.judge(&said, "path", "link down");
    stage.end();
}

/// What `top` shows once SYNs are answered at the interface.
fn looked_at(socket: &std::path::Path) -> Value {
    let mut top = Value::Null;
    for _ in 0..20 {
        let mut command = std::process::Command::new(crate::support::BIN);
        command.args(["top", "-n", "1", "--json", "--socket"]).arg(socket);
        top = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let answered = top["services"][0]["answered_at_interface"].as_f64();
        if answered.is_some_and(|rate| rate > 200.0) {
            break;
        }
    }
    top
}

/// Our interface and the kernel's end of the same link, with addresses of both families.
const VETH_PAIR: &str = "ip link add ours type veth peer name theirs && ip link set ours up && \
                         ip link set theirs up && ip addr add 10.0.0.1/24 dev theirs && \
                         ip addr add fd00::1/64 dev theirs nodad";

#[test]
fn a_flood_that_the_program_at_an_interface_answers_is_explained_and_logged() {
    if !may() {
        return;
    }
    let args = [
        "--device=packet:ours",
        "--address=10.0.0.2/24",
        "--address=fd00::2/64",
        "--first-line=cookies",
        "--route=198.18.0.0/15 via 10.0.0.1",
        "--service=http:80",
        "--workers=1",
    ];
    let running = Instance::start_after("interface", VETH_PAIR, &args, &[]);
    if !running.said().contains("SYNs are answered there") {
        return eprintln!("skipped: no program at the interface: {}", running.said());
    }
    let syns = sends(|n| tcp(forged(n), (1024 + (n % 60_000) as u16, 80), 0x02, n));
    let (said, top) = staged_while(&running, Duration::from_secs(3), at_pace(20, syns), || {
        looked_at(&running.socket())
    });
    assert_eq!(top["interfaces"][0]["first_line"], "attached", "{top}");
    let http = &top["services"][0];
    assert!(http["answered_at_interface"].as_f64().unwrap() > 200.0, "{top}");
    let first = &said["findings"][0];
    assert_eq!((&first["kind"], &first["name"]), (&"attack".into(), &"SYN flood".into()), "{said}");
    assert_eq!(first["place"], "[::]:80", "{said}");
    let evidence = first["evidence"].to_string();
    assert!(evidence.contains("rx_syns_answered") && evidence.contains("for [::]:80 "), "{said}");
    assert!(evidence.contains(" sampled at the interface)"), "{said}");
    running.wait_said("flood begins: SYN flood at [::]:80, ");
    let state = |parts: &Value, part: &str| {
        let found = parts.as_array().unwrap().iter().find(|one| one["part"] == part).unwrap();
        (found["state"].as_str().unwrap().to_owned(), found["reason"].as_str().map(str::to_owned))
    };
    let line = &said["first_line"]["ours"];
    assert_eq!(state(line, "cookies"), ("awake".to_owned(), None), "{said}");
    let (missing, reason) = state(line, "redirect");
    assert!(missing == "missing" && reason.is_some_and(|why| why.contains("xdp:")), "{said}");
    running.wait_said("first line: cookies asleep, live-flows asleep, fair-credit asleep; no ");
    let stat = running.json(&["stat", "--json"]);
    let parts = &stat["devices"][0]["first_line_parts"];
    assert_eq!(state(parts, "redirect"), ("missing".to_owned(), state(line, "redirect").1));
    let shown = String::from_utf8(running.ask(&["stat"]).stdout).unwrap();
    assert!(shown.contains("    first line: cookies "), "{shown}");
    assert!(shown.contains("no redirect (a `packet:` interface"), "{shown}");
    quiet(&running);
}

/// The gateway's entry is not permanent, and no packet of ours is for it.
#[test]
fn a_gateway_is_known_before_a_flood_and_is_found_again_in_the_middle_of_one() {
    if !may() {
        return;
    }
    let args = [
        "--device=packet:ours",
        "--address=10.0.0.2/24",
        "--address=fd00::2/64",
        "--gateway=10.0.0.1",
        "--gateway=fd00::1",
        "--service=http:80",
        "--workers=1",
    ];
    let running = Instance::start_after("gateway", VETH_PAIR, &args, &[]);
    let known = |limit: Duration| {
        let begun = Instant::now();
        loop {
            let stat = running.json(&["stat", "--json"]);
            let all = stat["neighbours"].as_array().unwrap();
            let is_known =
                |addr: &str| all.iter().any(|one| one["dst"] == addr && one["lladdr"].is_string());
            if ["10.0.0.1", "fd00::1"].into_iter().all(is_known) {
                return;
            }
            assert!(begun.elapsed() < limit, "{}", stat["neighbours"]);
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    known(Duration::from_secs(60));
    // Datagrams of forged sources on the link, so that answers to them need no gateway.
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    let sender = running.within(move || {
        let send = sends(|n| udp(Ipv4Addr::new(10, 0, 0, 10 + (n % 200) as u8), 7001, false));
        let mut n = 0;
        while !over.load(Ordering::Relaxed) {
            send(n);
            n = n.wrapping_add(1);
        }
    });
    for _ in 0..3 {
        assert!(running.ask(&["neigh", "flush", "dev", "ours", "nud", "all"]).status.success());
        known(Duration::from_secs(60));
    }
    done.store(true, Ordering::Relaxed);
    sender.join().unwrap();
}
