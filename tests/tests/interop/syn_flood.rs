//! A listener of the kernel's and one of ours in the same place, flooded with SYNs of random
//! sources, while honest clients of the kernel's connect and exchange a line.
//!
//! Each server stands in a namespace of its own at one end of a virtual cable (`packet:`), or is at
//! the other side of a TAP; the clients are the kernel's of the namespace at the near end, which
//! also sends the flood. Flood and clients share the first core, server and what the kernel does
//! for it the second, so that neither has a core more than the other. Both sides know each other's
//! link addresses or learn them before, so that what is judged is the handshake. The clients' time
//! counts from the moment at which a call was due until its line has come back
//! (`syn_flood/callers.rs`). Reading: Lemon, BSDCon 2002; RFC 4987. Not here: what cookies keep and
//! files of keys (`cookies.rs`), floods in memory (`tests/handshakes`, crate `drill`).

pub(crate) mod callers;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use floodwall_pktgen::{Content, Pace, PortRange, SizeRange, Stream};
use floodwall_wire::tcp::TcpFlags;
use serde_json::Value;

use crate::binary::floodwall;
use crate::command::{Process, ip, run};
use crate::flooded_router::{INSIDE, OUTSIDE, cores, pump, station, steer};
use crate::instance::{Folder, arrived, assert_conserved, resident};
use crate::link::NAME;
use crate::namespace::{
    has_interface, inside, inside_alone, is_deep, pause, set, skip, tell, until,
};
use crate::site::{ETH, Host};
use callers::{Calls, Lines, call};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Where the lines are sent back.
pub(crate) const PORT: u16 = 7;
/// Ours; another link address than the cable's end has, which the kernel keeps.
const STATION: &str = "02:00:00:00:77:02";
/// What we may hold more after a flood than before, in KiB: tables that are there from the start
/// and were never touched, the SYN cache's megabyte among them.
const GROWTH_MAX: u64 = 24 * 1024;

/// The listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    /// The kernel, with cookies and a backlog of 1,024.
    Kernel,
    /// `floodwall run` on a packet socket at the cable's end.
    Packet,
    /// `floodwall run` on AF_XDP at the cable's end.
    Xdp,
    /// `floodwall run` on a TAP.
    Tap,
}

impl Server {
    const ALL: [Self; 3] = [Self::Kernel, Self::Packet, Self::Tap];

    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Packet => "floodwall (packet)",
            Self::Xdp => "floodwall (xdp)",
            Self::Tap => "floodwall (tap)",
        }
    }

    /// The clients' interface.
    pub(crate) const fn near(self) -> &'static str {
        if matches!(self, Self::Tap) { NAME } else { ETH }
    }
}

/// The server's address of a family.
pub(crate) fn service(four: bool) -> SocketAddr {
    let addr: IpAddr = if four { "10.77.0.2" } else { "fd77::2" }.parse().unwrap();
    SocketAddr::new(addr, PORT)
}

/// SYNs of random sources, so many a second.
fn syns(four: bool, rate: u64) -> Stream {
    let (from, to) =
        if four { ("198.18.0.0/15", "10.77.0.2") } else { ("2001:db8::/32", "fd77::2") };
    Stream {
        dst_ports: PortRange::one(PORT),
        payload: SizeRange::one(0),
        ..Stream::new(
            Content::Tcp(TcpFlags::SYN),
            from.parse().unwrap(),
            to.parse().unwrap(),
            Pace::per_second(rate),
        )
    }
}

/// A `floodwall run` of ours.
pub(crate) struct Ours {
    pub(crate) process: Process,
    socket: String,
    folder: Folder,
}

impl Ours {
    pub(crate) fn stat(&self) -> Value {
        let words = format!("stat --json --socket {}", self.socket);
        let said = run(floodwall().unwrap().to_str().unwrap(), &words, b"").unwrap();
        serde_json::from_str(&said.text).unwrap_or_else(|_| panic!("{}", said.complaint))
    }

    /// The longest of the first packets that a filter matches from now on, as it arrived;
    /// `meanwhile` is called until there are some.
    pub(crate) fn capture_one(&self, filter: &str, mut meanwhile: impl FnMut()) -> Vec<u8> {
        let file = self.folder.file("captured.pcapng");
        let words =
            format!("capture {filter} -c 12 --seconds 30 -w {file} --socket {}", self.socket);
        let mut capturing = Process::start(floodwall().unwrap().to_str().unwrap(), &words, b"");
        let ended = until(PATIENCE, || {
            meanwhile();
            capturing.as_mut().is_none_or(Process::has_ended)
        });
        assert!(ended, "no packet matches {filter}");
        let capture = floodwall_device::read_capture(&file).unwrap();
        let longest = capture.packets.iter().max_by_key(|packet| packet.bytes.len());
        longest.expect("a packet").bytes.clone()
    }

    /// What was counted of the listener.
    pub(crate) fn listener(&self, name: &str) -> u64 {
        self.stat()["listeners"][0][name].as_u64().unwrap_or_else(|| panic!("{name}"))
    }

    /// SYNs and all else that was lost before the stack saw it, for want of room.
    fn lost_on_the_way(&self) -> u64 {
        let stat = self.stat();
        let stats = &stat["devices"][0]["stats"];
        stats["rx_ring_full"].as_u64().unwrap() + stats["rx_no_buffer"].as_u64().unwrap()
    }
}

/// A server, its clients, and the flood between them.
pub(crate) struct Stand {
    pub(crate) kind: Server,
    /// The server's link address.
    pub(crate) station: String,
    pub(crate) clients: Host,
    pub(crate) server: Host,
    pub(crate) ours: Option<Ours>,
    _lines: Option<Lines>,
}

impl Stand {
    /// Lays the cable and starts the server, with these further flags if it is ours; `None`, and
    /// said so, where this machine cannot.
    pub(crate) fn new(kind: Server, flags: &str) -> Option<Self> {
        let server = Host::alone();
        let clients = if kind == Server::Tap {
            Host::alone()
        } else {
            server.inside(|| {
                prepare(kind == Server::Kernel);
                let clients = Host::at("sv", "cl", 1500);
                assert!(ip("link set sv up"));
                clients
            })
        };
        if kind == Server::Tap {
            clients.inside(|| prepare(true));
        }
        let place = if kind == Server::Tap { &clients } else { &server };
        let ours = match kind {
            Server::Kernel => None,
            _ => Some(place.inside(|| start(kind, flags))?),
        };
        clients.inside(|| {
            if kind == Server::Tap {
                assert!(until(PATIENCE, || has_interface(NAME)));
            }
            give_addresses(kind.near(), 1);
            assert!(ip(&format!("link set {} up", kind.near())));
        });
        let near = clients.inside(|| station(kind.near()));
        let (station, lines) = match kind {
            Server::Kernel => server.inside(|| (station("sv"), Some(listen(&near)))),
            _ => (STATION.to_owned(), None),
        };
        clients.inside(|| {
            know(kind.near(), ["10.77.0.2", "fd77::2"], &station);
            steer(kind.near(), OUTSIDE);
        });
        let stand = Self { kind, station, clients, server, ours, _lines: lines };
        let answered = |four| stand.clients.is_answered(&service(four).ip().to_string());
        assert!(until(PATIENCE, || answered(true) && answered(false)), "{kind:?}: it is there");
        Some(stand)
    }

    /// Calls while SYNs of these streams come, which begin before: until `lead` returns.
    pub(crate) fn trial(
        &self,
        streams: Vec<Stream>,
        lead: impl FnOnce(),
        calls: &[Calls],
    ) -> Trial {
        let goes_on = AtomicBool::new(true);
        let (before, lost_before) = self.seen();
        let clock = floodwall_dispatch::Clock::new();
        let begun = clock.now();
        thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let going = |_| goes_on.load(Ordering::Relaxed);
                self.clients.inside(|| pump(streams, (self.kind.near(), &self.station), going))
            });
            // A panic ends it, too.
            let end = EndOfFlood(&goes_on);
            lead();
            let took = self.clients.inside(|| call(calls));
            drop(end);
            let sent = flood.join().unwrap();
            let seconds = (clock.now() - begun).as_secs_f64();
            let (after, lost) = self.seen();
            Trial {
                offered: sent as f64 / seconds,
                taken: (after - before) as f64 / seconds,
                lost: (lost - lost_before) as f64 / seconds,
                took,
            }
        })
    }

    /// Packets a second that reach our stack when as many come as can be sent.
    fn capacity(&self, four: bool) -> f64 {
        let [.., most] = RATES;
        let few = Calls { count: 100, rate: 100, to: Some(service(four)) };
        let trial = self.trial(vec![syns(four, most)], || pause(HALF_A_SECOND), &[few]);
        tell(&format!("{}, IPv4 {four}, all that can be sent: {}", self.kind.name(), trial.row()));
        trial.taken
    }

    /// What of packets arrived at our stack so far, and was lost on the way to it.
    fn seen(&self) -> (u64, u64) {
        let Some(ours) = &self.ours else { return (0, 0) };
        let full = self.clients.inside(|| refused_by(self.kind.near()));
        (arrived(&ours.stat()), ours.lost_on_the_way() + full)
    }

    /// Ends ours, which reports that every packet is accounted for exactly once.
    pub(crate) fn end(self) -> String {
        let Some(ours) = self.ours else { return String::new() };
        assert_conserved(&ours.stat());
        let said = ours.process.end();
        assert_eq!(said.status.code(), Some(0), "{}", said.complaint);
        assert!(
            said.complaint.contains("every packet is accounted for exactly once"),
            "{}",
            said.complaint
        );
        said.complaint
    }
}

/// Packets that the kernel had for an interface of the calling thread's namespace and dropped: its
/// ring was full, or the ring of the other end of its cable.
fn refused_by(name: &str) -> u64 {
    const TRANSMIT_DROPPED: usize = 11;
    let all = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let of =
        |line: &str| line.trim_start().strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
    let counts = all.lines().find_map(of).unwrap_or_else(|| panic!("{name} is not in {all}"));
    counts.split_whitespace().nth(TRANSMIT_DROPPED).unwrap().parse().unwrap()
}

/// Ends a flood when it is dropped.
struct EndOfFlood<'a>(&'a AtomicBool);

impl Drop for EndOfFlood<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// What came out.
pub(crate) struct Trial {
    /// SYNs of the flood a second; of all packets, what our stack took and what was lost before it.
    offered: f64,
    taken: f64,
    lost: f64,
    /// How long each call took, shortest first; `None` where it never came off.
    took: Vec<Option<Duration>>,
}

impl Trial {
    pub(crate) fn within(&self, limit: Duration) -> f64 {
        let done = self.took.iter().flatten().filter(|took| **took <= limit).count();
        done as f64 / self.took.len().max(1) as f64
    }

    /// Whether rings in front of our stack dropped more than one packet in 500: they drop blindly.
    pub(crate) fn lost_before(&self) -> bool {
        self.lost * 500.0 > self.offered
    }

    /// The time within which 99 % came off.
    fn p99(&self) -> String {
        match self.took.get((self.took.len() * 99).div_ceil(100).saturating_sub(1)) {
            Some(Some(took)) => format!("{:.1} ms", took.as_secs_f64() * 1e3),
            _ => "never".to_owned(),
        }
    }

    pub(crate) fn row(&self) -> String {
        format!(
            "{:>7.0}/s offered, {:>7.0}/s taken, {:>7.0}/s lost before; {:>5.1} % in 500 ms, \
             {:>5.1} % in 3 s, p99 {}",
            self.offered,
            self.taken,
            self.lost,
            100.0 * self.within(HALF_A_SECOND),
            100.0 * self.within(THREE_SECONDS),
            self.p99()
        )
    }
}

pub(crate) const HALF_A_SECOND: Duration = Duration::from_millis(500);
pub(crate) const THREE_SECONDS: Duration = Duration::from_secs(3);

/// Switches of a namespace: no waiting for duplicates; the kernel's IPv6 only where it is needed.
fn prepare(six: bool) {
    for conf in ["all", "default"] {
        set(&format!("net/ipv6/conf/{conf}/accept_dad"), "0");
        set(&format!("net/ipv6/conf/{conf}/router_solicitations"), "0");
        if !six {
            set(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "1");
        }
    }
    assert!(ip("link set lo up"));
}

fn give_addresses(name: &str, number: u8) {
    for addr in [format!("10.77.0.{number}/24"), format!("fd77::{number}/64 nodad")] {
        let (addr, flag) = addr.split_once(' ').unwrap_or((&addr, ""));
        assert!(ip(&format!("addr add {addr} dev {name} {flag}")), "{addr}");
    }
}

fn know(name: &str, addrs: [&str; 2], station: &str) {
    for addr in addrs {
        assert!(ip(&format!("neigh replace {addr} lladdr {station} dev {name} nud permanent")));
    }
}

/// The kernel's server, in the calling thread's namespace: its addresses, the clients as its
/// default route, and the echo of lines.
fn listen(clients: &str) -> Lines {
    give_addresses("sv", 2);
    know("sv", ["10.77.0.1", "fd77::1"], clients);
    assert!(ip("route add default via 10.77.0.1") && ip("-6 route add default via fd77::1"));
    set("net/ipv4/tcp_syncookies", "1");
    steer("sv", INSIDE);
    Lines::start([true, false].map(service))
}

/// Starts ours in the calling thread's namespace.
pub(crate) fn start(kind: Server, flags: &str) -> Option<Ours> {
    let (binary, folder) = (floodwall()?.to_str()?, Folder::new());
    let socket = folder.file("control");
    let device = match kind {
        Server::Tap => format!("tap:{NAME}"),
        Server::Xdp => "xdp:sv".to_owned(),
        Server::Packet | Server::Kernel => "packet:sv".to_owned(),
    };
    let cpu =
        if cores() > INSIDE { format!("--cpu {INSIDE} --share-core=off") } else { String::new() };
    let words = format!(
        "run --device {device} --mac {STATION} --address 10.77.0.2/24 --address fd77::2/64 \
         --gateway 10.77.0.1 --gateway fd77::1 --service tcp-echo:{PORT} --socket {socket} {cpu} \
         {flags}"
    );
    let mut process = Process::start(binary, &words, b"")?;
    let words = format!("stat --json --socket {socket}");
    let answers = || run(binary, &words, b"").is_some_and(|said| said.status.success());
    assert!(until(PATIENCE, || answers() || process.has_ended()), "it never answers");
    if process.has_ended() {
        skip(&format!("the server does not start: {}", process.end().complaint));
        return None;
    }
    Some(Ours { process, socket, folder })
}

/// SYNs a second of each family in the short form: what any machine sends and any build takes, and
/// more together than the cache holds for a second (15,359), so that cookies have to do.
const SHORT_RATE: u64 = 12_000;
/// Calls of each family, and of them a second.
const SHORT_CALLS: Calls = Calls { count: 100, rate: 200, to: None };

/// How often a trial is repeated of which packets were lost before they came to our stack: what
/// becomes of those is not for it to decide.
const TRIES_MAX: usize = 4;

/// Both families are flooded until the listener answers by cookies; then honest clients call. The
/// trial, and how many came with a valid cookie.
fn by_cookies(stand: &Stand, ours: &Ours) -> (Trial, u64) {
    let [sent, valid] = ["cookies_sent", "cookies_valid"].map(|name| ours.listener(name));
    let by_cookie = || {
        assert!(until(PATIENCE, || ours.listener("cookies_sent") > sent + 2 * SHORT_RATE));
    };
    let calls = [true, false].map(|four| Calls { to: Some(service(four)), ..SHORT_CALLS });
    let streams = [true, false].map(|four| syns(four, SHORT_RATE)).to_vec();
    let trial = stand.trial(streams, by_cookie, &calls);
    tell(&trial.row());
    (trial, ours.listener("cookies_valid") - valid)
}

/// The short form: most clients are served, by cookies, and memory stays bounded.
fn short(kind: Server) {
    inside(move || {
        // By the stack's own cookies: the interface would answer at this rate.
        let flags = if matches!(kind, Server::Packet) { "--first-line off" } else { "" };
        let Some(stand) = Stand::new(kind, flags) else { return };
        let ours = stand.ours.as_ref().unwrap();
        let held = resident(ours.process.id());
        let is_served = |trial: &Trial| trial.within(THREE_SECONDS) >= 0.99;
        let (mut trial, mut valid) = by_cookies(&stand, ours);
        for _ in 1..TRIES_MAX {
            if is_served(&trial) || !trial.lost_before() {
                break;
            }
            (trial, valid) = by_cookies(&stand, ours);
        }
        assert!(is_served(&trial), "{}", trial.row());
        let called = u64::from(2 * SHORT_CALLS.count);
        assert!(valid >= called * 9 / 10, "{valid} of {called} were let in by their cookies");
        let (half_open, holds) = (ours.listener("half_open"), resident(ours.process.id()));
        assert!(half_open <= floodwall_base::limits::SYN_CACHE_ENTRIES as u64, "{half_open}");
        assert!(holds <= held + GROWTH_MAX, "{held} KiB before, {holds} KiB under flood");
        let _ = stand.end();
    });
}

#[test]
fn clients_of_the_kernel_connect_through_a_flood_of_syns_over_tap() {
    short(Server::Tap);
}

#[test]
fn clients_of_the_kernel_connect_through_a_flood_of_syns_over_a_packet_socket() {
    short(Server::Packet);
}

/// SYNs a second, planned; the last is as fast as they can be sent.
const RATES: [u64; 3] = [50_000, 200_000, 10_000_000];
const LEAD: Duration = Duration::from_millis(2500);
const TURNS: usize = 5;
/// The part of what our path takes below which the floors hold (decision F27).
const JUDGED: f64 = 0.8;

/// 2,000 clients at each rate, device and family, the kernel and ours in turn, the middle of five.
/// Below eight tenths of what the path to our stack takes at most, ours completes at least what the
/// kernel does; above, the result is only printed. Long, and for an optimised build:
/// `FLOODWALL_DEEP=1 cargo test --release -p floodwall-tests --test interop -- two_thousand_clients
/// --nocapture`.
#[test]
fn two_thousand_clients_beside_the_kernels_listener_at_every_rate() {
    if !is_deep() {
        return skip("it lasts minutes; FLOODWALL_DEEP=1 runs it");
    }
    inside_alone(|| {
        let stands: Option<Vec<_>> =
            Server::ALL.map(|kind| Stand::new(kind, "")).into_iter().collect();
        let Some(stands) = stands else { return };
        let mut missed = Vec::new();
        for four in [true, false] {
            let capacities: Vec<_> = stands.iter().map(|stand| stand.capacity(four)).collect();
            for rate in RATES {
                let middles = compare(&stands, four, rate);
                let kernel = &middles[0];
                for ((stand, ours), most) in stands.iter().zip(&middles).zip(&capacities).skip(1) {
                    let judged = ours.offered < JUDGED * most;
                    let short = [HALF_A_SECOND, THREE_SECONDS]
                        .into_iter()
                        .find(|limit| ours.within(*limit) < kernel.within(*limit));
                    let what =
                        format!("{}, IPv4 {four}, {rate}/s: {}", stand.kind.name(), ours.row());
                    match short {
                        Some(limit) if judged => missed.push(format!("{what} (in {limit:?})")),
                        Some(_) => tell(&format!("less than the kernel's, not judged: {what}")),
                        None => {}
                    }
                }
            }
        }
        stands.into_iter().for_each(|stand| drop(stand.end()));
        assert!(missed.is_empty(), "{missed:#?}");
    });
}

/// Trials at one rate, each stand's in turn; the middle ones by completion.
fn compare(stands: &[Stand], four: bool, rate: u64) -> Vec<Trial> {
    let mut trials: Vec<Vec<Trial>> = stands.iter().map(|_| Vec::new()).collect();
    for _ in 0..TURNS {
        for (stand, trials) in stands.iter().zip(&mut trials) {
            let calls = Calls { count: 2000, rate: 1000, to: Some(service(four)) };
            trials.push(stand.trial(vec![syns(four, rate)], || pause(LEAD), &[calls]));
        }
    }
    let middles = trials.into_iter().map(|mut trials| {
        trials.sort_by(|a, b| a.within(HALF_A_SECOND).total_cmp(&b.within(HALF_A_SECOND)));
        trials.swap_remove(TURNS / 2)
    });
    let middles: Vec<_> = middles.collect();
    for (stand, trial) in stands.iter().zip(&middles) {
        let family = if four { "IPv4" } else { "IPv6" };
        tell(&format!("{family}, planned {rate}/s, {:<18} {}", stand.kind.name(), trial.row()));
    }
    middles
}
