//! A router of the kernel's and one of ours in the same place, during a flood to random
//! destinations behind it, or on its own link: which flows are still served.
//!
//! Each router stands in a namespace of its own between two hosts of the kernel's, on two virtual
//! cables. From the left host a thousand flows use an echo service on the right one; the flood
//! comes from the left host, too. Flood and client share the first core, router and what the kernel
//! does for it the second, so that neither has a core more than the other. Reported beside it: how
//! many packets a second each router passed on. Both hosts have the router's link address
//! permanently: what is tested is the router's neighbour cache, not theirs. Reading: RFC 6583. Not
//! here: a router without a flood (`router.rs`), devices that go away (`router_life.rs`).

mod losses;
mod redirects;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use floodwall_base::{Instant, IpCidr, Randomness, Units};
use floodwall_device::{AfPacket, AfPacketConfig, Device};
use floodwall_dispatch::{Clock, pin_to_core};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};
use floodwall_pktgen::{AddrRange, Blast, Content, Pace, Peer, Plan, StationConfig, Stream};
use serde_json::Value;

use self::losses::Losses;
use crate::binary::floodwall;
use crate::client::Echo;
use crate::command::{Process, ip, run, shown_by_ip};
use crate::instance::{Folder, assert_conserved};
use crate::namespace::{inside_alone, inside_then_alone, is_deep, pause, set, skip, tell, until};
use crate::site::{ETH, Host};
use crate::syn_flood::callers::{Calls, Lines, call};

const PATIENCE: Duration = Duration::from_secs(20);
/// The flows: each client socket sends requests to each port of the service.
const CLIENTS: usize = 50;
const PORTS: u16 = 20;
const FIRST_PORT: u16 = 7200;
/// Questions a second, and how long an answer may take (`baselines.md`, section 9).
const ASKED: u64 = 1000;
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Where flood and client run, and where the router does.
pub(crate) const OUTSIDE: usize = 0;
pub(crate) const INSIDE: usize = 1;
/// What is guaranteed at any rate at which the kernel loses a third.
const KEPT_MIN: f64 = 0.99;
const KERNEL_LOSES: f64 = 2.0 / 3.0;
/// Our link addresses: others than the host's, which it keeps (AF_XDP takes only what is ours).
const STATIONS: [&str; 2] = ["02:00:00:00:77:01", "02:00:00:00:77:02"];

/// New connections to another host than the flows' one, and how many of them a second.
const CALLS: u32 = 150;
const CALLS_RATE: u64 = 300;

/// Where newcomers connect to.
fn newcomers_to(four: bool) -> SocketAddr {
    SocketAddr::new(if four { "10.78.0.3" } else { "fd78::3" }.parse().unwrap(), 7)
}

fn give(addr: &str) {
    let words = match addr.contains(':') {
        true => format!("addr add {addr}/64 dev {ETH} nodad"),
        false => format!("addr add {addr}/16 dev {ETH}"),
    };
    assert!(ip(&words), "{words}");
}

/// The router under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Router {
    Kernel,
    /// `floodwall run` on devices of this word.
    Ours(&'static str),
}

impl Router {
    fn name(self) -> String {
        match self {
            Self::Kernel => "kernel".to_owned(),
            Self::Ours(device) => format!("floodwall ({device})"),
        }
    }
}

/// The destinations of the flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flood {
    /// To random destinations behind the right host.
    Routed,
    /// To random destinations of the right link, a /16 or a /64.
    OnLink,
}

impl Flood {
    const ALL: [Self; 2] = [Self::Routed, Self::OnLink];

    fn destinations(self, four: bool) -> &'static str {
        match (self, four) {
            (Self::Routed, true) => "10.80.0.0/12",
            (Self::Routed, false) => "fd80::/16",
            (Self::OnLink, true) => "10.78.0.0/16",
            (Self::OnLink, false) => "fd78::/64",
        }
    }
}

/// The sides of a family: the client, and the service.
fn ends(four: bool) -> [IpAddr; 2] {
    let ends = if four { ["10.77.1.2", "10.78.0.2"] } else { ["fd77:1::2", "fd78::2"] };
    ends.map(|end| end.parse().unwrap())
}

/// A router, its two hosts, and the flows and flood through it.
struct Stand {
    router: Router,
    /// The router's link addresses, left and right.
    stations: [String; 2],
    middle: Host,
    left: Host,
    right: Host,
    ours: Option<(Process, String, Folder)>,
    _service: Vec<Echo>,
    _lines: Lines,
}

impl Stand {
    /// Lays the cables and starts the router; `None`, and said so, where this machine cannot.
    fn new(router: Router) -> Option<Self> {
        let middle = Host::alone();
        let (left, right) = middle.inside(|| {
            for conf in ["all", "default"] {
                set(&format!("net/ipv6/conf/{conf}/accept_dad"), "0");
                if router != Router::Kernel {
                    set(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "1");
                }
            }
            assert!(ip("link set lo up"));
            let hosts = (Host::at("gl", "el", 1500), Host::at("gr", "er", 1500));
            assert!(ip("link set gl up") && ip("link set gr up"));
            hosts
        });
        let ours = match router {
            Router::Kernel => {
                middle.inside(forward_by_kernel);
                None
            }
            Router::Ours(device) => Some(middle.inside(|| start(device))?),
        };
        let stations = match router {
            Router::Kernel => middle.inside(|| ["gl", "gr"].map(station)),
            Router::Ours(_) => STATIONS.map(str::to_owned),
        };
        for ((n, host), station) in [(1, &left), (2, &right)].into_iter().zip(&stations) {
            host.inside(|| configure(n, station));
        }
        let service = right.inside(|| {
            let sockets = [true, false].into_iter().flat_map(|four| {
                let [_, service] = ends(four);
                (FIRST_PORT..FIRST_PORT + PORTS)
                    .map(move |port| UdpSocket::bind((service, port)).unwrap())
            });
            sockets.map(Echo::start).collect()
        });
        let lines = right.inside(|| {
            let at = [true, false].map(newcomers_to);
            at.iter().for_each(|at| give(&at.ip().to_string()));
            Lines::start(at)
        });
        let stand =
            Self { router, stations, middle, left, right, ours, _service: service, _lines: lines };
        let ready = || {
            [true, false].into_iter().all(|four| stand.left.is_answered(&ends(four)[1].to_string()))
        };
        assert!(until(PATIENCE, ready), "{router:?}: it forwards");
        Some(stand)
    }

    fn look(&self) -> Option<Value> {
        let (_, socket, _) = self.ours.as_ref()?;
        let words = format!("stat --json --socket {socket}");
        let said = run(floodwall()?.to_str()?, &words, b"")?;
        said.status.success().then(|| serde_json::from_str(&said.text).unwrap())
    }

    /// What was lost so far, and where.
    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        losses.look_at_softnet();
        losses = self.left.inside(|| with_look(losses, "left", &[ETH]));
        losses = self.right.inside(|| with_look(losses, "right", &[ETH]));
        losses = self.middle.inside(|| with_look(losses, "router", &["gl", "gr"]));
        if let Some(stat) = self.look() {
            losses.look_at_ours(&stat);
        }
        losses
    }

    /// A thousand flows for `length`, with a flood of so many packets a second beside; 0 for none.
    fn trial(&self, flood: Flood, four: bool, rate: u64, length: Duration) -> Trial {
        let ([peer, _], before) = (&self.stations, self.losses());
        let passed_before = self.right.received();
        thread::scope(|scope| {
            let flooder = (rate > 0).then(|| {
                scope.spawn(|| self.left.inside(|| send(flood, four, (rate, peer), length + LEAD)))
            });
            pause(LEAD);
            let calls = Calls { count: CALLS, rate: CALLS_RATE, to: Some(newcomers_to(four)) };
            let calling = scope.spawn(move || self.left.inside(|| call(&[calls])));
            let (asked, answered) = self.left.inside(|| ask(four, length));
            let came = calling.join().unwrap();
            let came = came.iter().flatten().filter(|took| **took <= ANSWER_WITHIN).count();
            let came = came as f64 / f64::from(CALLS);
            let sent = flooder.map_or(0, |flooder| flooder.join().unwrap());
            let lasted = (length + LEAD).as_secs_f64();
            let (offered, kept) = (sent as f64 / lasted, answered as f64 / asked.max(1) as f64);
            let passed = (self.right.received() - passed_before) as f64 / lasted;
            Trial { offered, passed, kept, came, lost: self.losses().since(&before) }
        })
    }

    /// Ends our router, which reports that every packet is accounted for exactly once.
    fn end(self) {
        if let Some(stat) = self.look() {
            assert_conserved(&stat);
        }
        if let Some((process, ..)) = self.ours {
            let said = process.end();
            assert_eq!(said.status.code(), Some(0), "{}", said.complaint);
            assert!(
                said.complaint.contains("every packet is accounted for exactly once"),
                "{}",
                said.complaint
            );
        }
    }
}

/// How long a flood lasts before questions begin.
const LEAD: Duration = Duration::from_millis(300);

fn with_look(mut losses: Losses, place: &str, interfaces: &[&str]) -> Losses {
    losses.look(place, interfaces);
    losses
}

/// What came out.
#[derive(Clone, Debug)]
struct Trial {
    /// Packets of the flood a second.
    offered: f64,
    /// What the right host got of everything, packets a second.
    passed: f64,
    /// The part of the questions that was answered, and of the newcomers' calls.
    kept: f64,
    came: f64,
    /// Where packets of either were lost.
    lost: Losses,
}

/// The link address of an interface of the calling thread's namespace.
pub(crate) fn station(name: &str) -> String {
    let shown = shown_by_ip(&format!("-o link show dev {name}"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether").skip(1);
    words.next().expect("an Ethernet interface").to_owned()
}

/// Lets the kernel forward in the calling thread's namespace, on the router's core.
fn forward_by_kernel() {
    for (name, addrs) in
        [("gl", ["10.77.1.1/24", "fd77:1::1/64"]), ("gr", ["10.78.0.1/16", "fd78::1/64"])]
    {
        for addr in addrs {
            assert!(ip(&format!("addr add {addr} dev {name}")), "{addr}");
        }
        steer(name, INSIDE);
    }
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        set(&format!("net/{switch}"), "1");
    }
    assert!(ip("route add 10.80.0.0/12 via 10.78.0.2") && ip("-6 route add fd80::/16 via fd78::2"));
}

/// Lets one core do what arrives there: else the sender's would.
pub(crate) fn steer(name: &str, core: usize) {
    let mask = 1_u32 << core;
    let script = format!(
        "mount --make-rprivate / && mount -t sysfs sysfs /sys && \
         echo {mask:x} > /sys/class/net/{name}/queues/rx-0/rps_cpus"
    );
    let said = std::process::Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    if !said.is_ok_and(|said| said.status.success()) {
        tell(&format!("{name} could not be steered to core {core}: the sender's works for it"));
    }
}

/// Starts ours in the calling thread's namespace.
fn start(device: &str) -> Option<(Process, String, Folder)> {
    let (binary, folder) = (floodwall()?.to_str()?, Folder::new());
    let (socket, file) = (folder.file("control"), folder.file("router.toml"));
    let cpu = if cores() > INSIDE { format!("cpu = {INSIDE}\n") } else { String::new() };
    let [l, r] = STATIONS;
    let text = format!(
        "{cpu}forwarding = true\n\
         [[interface]]\ndevice = \"{device}:gl\"\nmac = \"{l}\"\n\
         address = [\"10.77.1.1/24\", \"fd77:1::1/64\"]\n\
         [[interface]]\ndevice = \"{device}:gr\"\nmac = \"{r}\"\n\
         address = [\"10.78.0.1/16\", \"fd78::1/64\"]\n\
         route = [\"10.80.0.0/12 via 10.78.0.2\", \"fd80::/16 via fd78::2\"]\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut process =
        Process::start(binary, &format!("run --config {file} --socket {socket}"), b"")?;
    let words = format!("stat --json --socket {socket}");
    let answers = || run(binary, &words, b"").is_some_and(|said| said.status.success());
    assert!(until(PATIENCE, || answers() || process.has_ended()), "it never answers");
    if process.has_ended() {
        skip(&format!("the router does not start: {}", process.end().complaint));
        return None;
    }
    Some((process, socket, folder))
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The addresses of a host, and the router for good.
fn configure(n: u8, station: &str) {
    let (own, routers) = match n {
        1 => (["10.77.1.2/24", "fd77:1::2/64"], ["10.77.1.1", "fd77:1::1"]),
        _ => (["10.78.0.2/16", "fd78::2/64"], ["10.78.0.1", "fd78::1"]),
    };
    for (own, router) in own.into_iter().zip(routers) {
        let nodad = if own.contains(':') { "nodad" } else { "" };
        assert!(ip(&format!("addr add {own} dev {ETH} {nodad}")), "{own}");
        assert!(ip(&format!("neigh replace {router} lladdr {station} dev {ETH} nud permanent")));
        assert!(ip(&format!("route add default via {router}")));
    }
}

/// The flood, from the calling thread's namespace; how many packets left.
fn send(flood: Flood, four: bool, (rate, peer): (u64, &str), length: Duration) -> u64 {
    let [client, _] = ends(four);
    let from: AddrRange = IpCidr::new(client, if four { 32 } else { 128 }).unwrap().into();
    let to: AddrRange = flood.destinations(four).parse().unwrap();
    let stream = Stream::new(Content::Udp, from, to, Pace::per_second(rate));
    let end = Clock::new().now() + length;
    pump(vec![stream], (ETH, peer), |now| now < end)
}

/// Sends these streams to a station by an interface of the calling thread's namespace, from the
/// core outside, for as long as it may; how many packets left.
pub(crate) fn pump(
    streams: Vec<Stream>,
    (interface, peer): (&str, &str),
    goes_on: impl Fn(Instant) -> bool,
) -> u64 {
    let _ = pin_to_core(OUTSIDE);
    let station = StationConfig {
        mac: station(interface).parse().unwrap(),
        peer: Peer::Link(peer.parse().unwrap()),
        ..StationConfig::default()
    };
    let mut blast = Blast::new(Plan { station, streams }).unwrap();
    let mut device = AfPacket::open(interface, &AfPacketConfig::default()).unwrap();
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (clock, mut random) = (Clock::new(), Randomness::from_number(1));
    let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
    while goes_on(clock.now()) {
        // What comes back is the kernel's, too.
        while device.receive(&pool, &mut arrived).unwrap() > 0 {
            arrived.drain().for_each(drop);
        }
        if departing.is_empty() {
            let now = clock.now();
            let (random, budget) = (&mut random, Units(64));
            let (arrived, departing) = (&mut arrived, &mut departing);
            let round = Round { now, pool: &pool, random, arrived, departing, budget, peers: None };
            let mut round = round;
            blast.work(&mut round);
        }
        device.transmit(&mut departing).unwrap();
        let due = blast.deadline().map_or(Duration::ZERO, |due| due.saturating_since(clock.now()));
        if due > Duration::from_micros(100) {
            pause(due.min(Duration::from_millis(1)));
        }
    }
    device.stats().tx_packets
}

/// Questions in a thousand flows; how many, and how many were answered in time.
fn ask(four: bool, length: Duration) -> (u64, u64) {
    let _ = pin_to_core(OUTSIDE);
    let [client, service] = ends(four);
    let sockets: Vec<_> = (0..CLIENTS).map(|_| UdpSocket::bind((client, 0)).unwrap()).collect();
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    let count = length.as_millis() as u64 * ASKED / 1000;
    let clock = Clock::new();
    let (begun, mut asked) = (clock.now(), Vec::with_capacity(count as usize));
    let mut answered = vec![false; count as usize];
    let end = begun + length + ANSWER_WITHIN;
    while clock.now() < end {
        let due = ((clock.now() - begun).as_nanos() as u64 * ASKED / 1_000_000_000 + 1).min(count);
        while (asked.len() as u64) < due {
            let seq = asked.len();
            let port = FIRST_PORT + (seq / CLIENTS % usize::from(PORTS)) as u16;
            asked.push(clock.now());
            // What the kernel refuses to send is a question without an answer.
            let to = SocketAddr::new(service, port);
            let _ = sockets[seq % CLIENTS].send_to(&(seq as u64).to_be_bytes(), to);
        }
        for socket in &sockets {
            let mut room = [0; 16];
            while let Ok(8) = socket.recv(&mut room) {
                let seq = u64::from_be_bytes(room[..8].try_into().unwrap()) as usize;
                answered[seq] |= clock.now() - asked[seq] < ANSWER_WITHIN;
            }
        }
        pause(Duration::from_micros(500));
    }
    (count, answered.iter().filter(|answered| **answered).count() as u64)
}

/// Trials of one flood: the kernel's and ours, in turn; the middle ones.
fn compare(
    stands: &[Stand],
    flood: Flood,
    four: bool,
    rate: u64,
    (turns, length): (usize, Duration),
) -> Vec<Trial> {
    let mut trials: Vec<Vec<Trial>> = stands.iter().map(|_| Vec::new()).collect();
    for _ in 0..turns {
        for (stand, trials) in stands.iter().zip(&mut trials) {
            trials.push(stand.trial(flood, four, rate, length));
        }
    }
    let middle = |mut trials: Vec<Trial>| {
        trials.sort_by(|a, b| a.kept.total_cmp(&b.kept));
        trials.swap_remove(trials.len() / 2)
    };
    let middles: Vec<_> = trials.into_iter().map(middle).collect();
    let columns = stands.iter().zip(&middles).map(|(stand, trial)| {
        let Trial { offered, passed, kept, came, lost } = trial;
        let (router, kept, came) = (stand.router.name(), kept * 100.0, came * 100.0);
        format!(
            "{router} {kept:.1} % of {ASKED}/s, {came:.1} % of newcomers (flood {offered:.0}/s; \
             passed on {passed:.0}/s; lost: {})",
            lost.words()
        )
    });
    let family = if four { "IPv4" } else { "IPv6" };
    tell(&format!(
        "{flood:?}, {family}, planned {rate}/s: {}",
        columns.collect::<Vec<_>>().join("; ")
    ));
    middles
}

/// The kernel's router, and ours.
fn stands(devices: &'static [&'static str]) -> Option<Vec<Stand>> {
    let ours = devices.iter().map(|device| Router::Ours(device));
    [Router::Kernel].into_iter().chain(ours).map(Stand::new).collect()
}

/// What any machine sends and any build takes.
const SHORT_RATE: u64 = 10_000;

fn short(flood: Flood) {
    inside_then_alone(
        || stands(&["packet"]),
        move |stands| {
            for four in [true, false] {
                let length = Duration::from_millis(500);
                let trials = compare(&stands, flood, four, SHORT_RATE, (1, length));
                for (stand, ours) in stands.iter().zip(&trials).skip(1) {
                    let router = stand.router.name();
                    let (offered, kept) = (ours.offered, ours.kept);
                    assert!(offered > SHORT_RATE as f64 / 2.0, "{router}, {flood:?}: no flood");
                    assert!(kept >= KEPT_MIN, "{router}, {flood:?}: {kept:.3} answered");
                }
            }
            stands.into_iter().for_each(Stand::end);
        },
    );
}

#[test]
fn a_thousand_flows_pass_beside_random_destinations_behind_the_router() {
    short(Flood::Routed);
}

#[test]
fn a_thousand_flows_pass_beside_random_destinations_on_its_link() {
    short(Flood::OnLink);
}

/// Floods of growing rate, until the kernel in the same place answers less than two thirds: there
/// ours answers what is guaranteed. Long, and for an optimised build: `FLOODWALL_DEEP=1 cargo test
/// --release -p floodwall-tests --test interop -- where_the_kernel_loses_a_third --nocapture`.
#[test]
fn where_the_kernel_loses_a_third_of_a_thousand_flows_we_keep_them() {
    if !is_deep() {
        return skip("it lasts minutes; FLOODWALL_DEEP=1 runs it");
    }
    inside_alone(|| {
        let Some(stands) = stands(&["packet"]) else { return };
        let mut missed = Vec::new();
        for flood in Flood::ALL {
            for four in [true, false] {
                let length = Duration::from_secs(2);
                let of = |rate: &u64| (*rate, compare(&stands, flood, four, *rate, (3, length)));
                let loses = |(_, trials): &(u64, Vec<Trial>)| trials[0].kept <= KERNEL_LOSES;
                let Some((rate, trials)) = RATES.iter().map(of).find(loses) else {
                    tell(&format!("{flood:?}, IPv4 {four}: the kernel never lost a third"));
                    continue;
                };
                for (stand, ours) in stands.iter().zip(trials).skip(1) {
                    if ours.kept < KEPT_MIN {
                        let (router, kept) = (stand.router.name(), ours.kept);
                        missed
                            .push(format!("{router}, {flood:?}, IPv4 {four}, {rate}/s: {kept:.3}"));
                    }
                }
            }
        }
        stands.into_iter().for_each(Stand::end);
        assert!(missed.is_empty(), "{missed:#?}");
    });
}

/// At 400,000 packets a second and at the most that a core sends, the kernel's router and ours over
/// `xdp:`: established flows and newcomers. For an optimised build and a machine at rest:
/// `FLOODWALL_DEEP=1 cargo test --release -p floodwall-tests --test interop --
/// newcomers_pass_a_router --nocapture`.
#[test]
fn newcomers_pass_a_router_over_xdp_beside_random_destinations() {
    if !is_deep() {
        return skip("it is for a machine at rest; FLOODWALL_DEEP=1 runs it");
    }
    inside_alone(|| {
        let Some(stands) = stands(&["xdp"]) else { return };
        for stand in &stands {
            // Pairs that talk then pass at the interface.
            assert!(
                [&stand.left, &stand.right].into_iter().all(|h| h.inside(redirects::as_a_card))
            );
        }
        let mut missed = Vec::new();
        for flood in Flood::ALL {
            for four in [true, false] {
                for rate in [400_000, 10_000_000] {
                    let length = Duration::from_secs(1);
                    let trials = compare(&stands, flood, four, rate, (1, length));
                    let [kernel, ours] = [&trials[0], &trials[1]];
                    let least = |kernel: f64| if rate > 1_000_000 { kernel } else { KEPT_MIN };
                    if ours.kept < least(kernel.kept) || ours.came < least(kernel.came) {
                        missed.push(format!("{flood:?}, IPv4 {four}, {rate}/s: {ours:?}"));
                    }
                }
            }
        }
        stands.into_iter().for_each(Stand::end);
        assert!(missed.is_empty(), "{missed:#?}");
    });
}

/// Packets a second, planned.
const RATES: [u64; 6] = [100_000, 200_000, 400_000, 500_000, 600_000, 1_000_000];
