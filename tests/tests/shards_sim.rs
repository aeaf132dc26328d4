//! A host of four workers in a simulated world: questions, pings, fragments and floods of both
//! families from a link on which stations change their link addresses all the time, while addresses
//! and their routes come and go and programs open and close sockets.
//!
//! Every run replays byte for byte by its seed; the ledgers of all shards balance at every step; no
//! answer goes to a link address that its station has given up for longer than a grace period; at
//! the end all memory is home.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use floodwall_base::{
    Counter, DropReason, Family, HashKey, IfIndex, Instant, MacAddr, Randomness, Steering, Units,
    WorkerId,
};
use floodwall_packet::{Burst, Engine, Pool, PoolConfig, Region, Round, Triage};
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::remote::{Remote, RemoteConfig, RemoteShard, UdpHandle};
use floodwall_stack::{
    AddAddress, Application, Host, Seats, Stack, StackConfig, Stats, accounts_needed,
};
use floodwall_sync::qsbr::Domain;
use floodwall_tests::craft::{self, FAMILIES, HOST, addr, frame, mac};
use floodwall_tests::{Fault, bytes_of, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::ndp::NeighborAdvertisementFields;
use floodwall_wire::steer;
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, IpProtocol, NdpOption, arp};
use floodwall_world::{LaneConfig, LinkConfig, NodeConfig, NodeId, Remaking, World};

const WORKERS: u16 = 4;
const ECHO: u16 = 7000;
/// A datagram to this port makes its shard panic.
const FAULT: u16 = 7666;
/// A program on another thread listens here.
const REMOTE: u16 = 7100;
/// Stations of the link, by the last byte of their addresses.
const STATIONS: std::ops::Range<u8> = 10..60;
/// Between two frames of the link.
const EVERY: Duration = Duration::from_micros(15);
/// How long the link sends.
const LENGTH: Duration = Duration::from_millis(150);
/// By then every worker must have received a change: on the way there and back, in rings, one
/// snapshot's pace, a few rounds.
const GRACE: Duration = Duration::from_millis(4);

/// All stations of the link.
struct Link {
    next: Instant,
    until: Instant,
    /// The version of each station's link address, and since when.
    versions: BTreeMap<u8, (u16, Instant)>,
    asked: u64,
    answered: u64,
    pinged: u64,
    ponged: u64,
    wrong: u64,
}

fn link_addr(station: u8, version: u16) -> MacAddr {
    let [high, low] = version.to_be_bytes();
    MacAddr([2, 1, high, low, 0, station])
}

impl Link {
    fn new(from: Instant) -> Self {
        let versions = STATIONS.map(|station| (station, (0, Instant::ORIGIN))).collect();
        let (asked, answered, pinged, ponged, wrong) = (0, 0, 0, 0, 0);
        let until = from + LENGTH;
        Self { next: from, until, versions, asked, answered, pinged, ponged, wrong }
    }

    fn link_addr(&self, station: u8) -> MacAddr {
        link_addr(station, self.versions.get(&station).map_or(0, |v| v.0))
    }

    /// A station's announcement of its link address: as an answer, or unsolicited.
    fn says(&self, family: Family, station: u8, asked: bool) -> Vec<u8> {
        let link_addr = self.link_addr(station);
        if family == Family::V4 {
            let operation = if asked { ArpOperation::REPLY } else { ArpOperation::REQUEST };
            let packet = ArpPacket {
                operation,
                sender_link_addr: link_addr,
                sender_addr: craft::v4(station),
                target_link_addr: mac(HOST),
                target_addr: craft::v4(HOST),
            };
            let mut bytes = [0; arp::PACKET_LEN];
            packet.emit(&mut bytes);
            return frame(mac(HOST), link_addr, EtherType::ARP, &bytes);
        }
        let (from, to) = (craft::v6(station), craft::v6(HOST));
        let fields = NeighborAdvertisementFields {
            router: false,
            solicited: asked,
            override_entry: true,
            target_addr: from,
        };
        let (mut bytes, options) = ([0; 64], [NdpOption::TargetLinkAddr(link_addr)]);
        let len = fields.emit_into(&options, from, to, &mut bytes).expect("it fits");
        let packet = craft::ip(from.into(), to.into(), IpProtocol::ICMPV6, &bytes[..len]);
        frame(mac(HOST), link_addr, EtherType::IPV6, &packet)
    }

    /// The next frames of the link, by chance.
    fn frames(&mut self, now: Instant, random: &mut Randomness) -> Vec<Vec<u8>> {
        let public = &mut random.public;
        let family = FAMILIES[public.below(2) as usize];
        let station = STATIONS.start + public.below(STATIONS.len() as u64) as u8;
        let ether_type = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let link_addr = self.link_addr(station);
        let wrap = move |packet: &[u8]| frame(mac(HOST), link_addr, ether_type, packet);
        let port = 2000 + public.below(4000) as u16;
        let (from, to) = (addr(family, station), addr(family, HOST));
        let question = |len| {
            let ends = (SocketAddr::new(from, port), SocketAddr::new(to, ECHO));
            craft::udp(ends.0, ends.1, &vec![port as u8; len])
        };
        match public.below(100) {
            0..55 => {
                self.asked += 1;
                vec![wrap(&question(20))]
            }
            55..65 => {
                self.asked += 1;
                let id = public.next_u64() as u32;
                let whole = question(1200);
                craft::fragments(&whole, id, 600).iter().map(|f| wrap(f)).collect()
            }
            65..75 => {
                self.pinged += 1;
                vec![wrap(&craft::echo(from, to, b"alive?"))]
            }
            75..85 => {
                // From elsewhere, to a closed port.
                let far = match family {
                    Family::V4 => SocketAddr::from(([203, 0, 113, public.below(250) as u8], port)),
                    Family::V6 => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, port], port)),
                };
                vec![wrap(&craft::udp(far, SocketAddr::new(to, 9), b"flood"))]
            }
            85..97 => {
                let version = self.versions.entry(station).or_insert((0, now));
                *version = (version.0 + 1, now);
                FAMILIES.map(|family| self.says(family, station, false)).into()
            }
            _ => vec![wrap(&[public.next_u64() as u8; 33])],
        }
    }

    /// One frame of the host's.
    fn hears(&mut self, now: Instant, bytes: &[u8]) -> Option<Vec<u8>> {
        let to = MacAddr(*bytes.first_chunk()?);
        let (family, packet) = match bytes.get(12..14)? {
            [8, 6] => {
                let target = *bytes.get(14 + 24..14 + 28)?.last()?;
                let asks = bytes.get(14 + 6..14 + 8)? == [0, 1] && STATIONS.contains(&target);
                return asks.then(|| self.says(Family::V4, target, true));
            }
            [8, 0] => (Family::V4, bytes.get(14..)?),
            _ => (Family::V6, bytes.get(14..)?),
        };
        let (protocol, station, l4) = match family {
            Family::V4 => (*packet.get(9)?, *packet.get(19)?, 20),
            Family::V6 => (*packet.get(6)?, *packet.get(39)?, 40),
        };
        // A neighbour solicitation.
        if family == Family::V6 && protocol == 58 && packet.get(l4) == Some(&135) {
            let target = *packet.get(l4 + 23)?;
            return STATIONS.contains(&target).then(|| self.says(family, target, true));
        }
        if !STATIONS.contains(&station) || to.is_group() {
            return None;
        }
        let (version, since) = *self.versions.get(&station)?;
        let stale = to != link_addr(station, version) && now > since + GRACE;
        self.wrong += u64::from(stale);
        match protocol {
            17 => self.answered += 1,
            1 | 58 if [0, 129].contains(packet.get(l4)?) => self.ponged += 1,
            // Fragments of answers, which begin with the first.
            44 | 1 | 58 => {}
            _ => {}
        }
        None
    }

    fn send(round: &mut Round<'_>, bytes: &[u8]) {
        let mut packet = round.pool.packet_from(bytes).expect("the link has memory");
        packet.set_iface(IfIndex(1));
        round.departing.push_back(packet);
    }
}

impl Engine for Link {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let arrived: Vec<Vec<u8>> = round.arrived.drain().map(|p| bytes_of(&p)).collect();
        for bytes in &arrived {
            if let Some(answer) = self.hears(round.now, bytes) {
                Self::send(round, &answer);
            }
        }
        Units(0)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        while self.next <= round.now && self.next < self.until {
            self.next += EVERY;
            for bytes in self.frames(round.now, round.random) {
                Self::send(round, &bytes);
            }
        }
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        (self.next < self.until).then_some(self.next)
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

/// How a run ended.
#[derive(PartialEq, Debug)]
struct End {
    trace: u64,
    events: u64,
    stats: Vec<Stats>,
    asked: u64,
    answered: u64,
    pinged: u64,
    ponged: u64,
    wrong: u64,
    bound: u64,
    panics: Vec<u64>,
    /// What a program's socket, open from the beginning, got of each worker at the end.
    told: usize,
}

/// The host, its workers' memory, and programs' sockets on it.
struct Bench {
    world: World,
    workers: Vec<NodeId>,
    link: NodeId,
    remote: Remote,
    domain: Domain,
    steering: Steering,
}

/// One worker's shard and its programs, the first or one after a panic.
fn host(
    config: &StackConfig,
    seats: &Seats,
    worker: WorkerId,
    serving: Option<RemoteShard>,
    with: &mut Remaking<'_>,
) -> Host {
    let Remaking { now, pool, random } = with;
    let seat = seats.take(worker).expect("a place");
    let mut stack = Stack::seated(config, seat, random, *now).expect("a stack");
    serving.into_iter().for_each(|serving| stack.serve(serving));
    let echo = Box::new(UdpService::new(ServiceKind::Echo, ECHO));
    let programs: Vec<Box<dyn Application>> = vec![Box::new(Fault::new(FAULT)), echo];
    Host::with_stack(stack, programs, pool, random, *now).expect("programs that start")
}

impl Bench {
    fn new(seed: u64, config: &StackConfig) -> Self {
        let count = usize::from(WORKERS);
        let region = Region::new(&PoolConfig {
            workers: count,
            small: 2048 * count,
            frames: 2048 * count,
            references: 1024 * count,
            accounts: accounts_needed(config),
            ..PoolConfig::default()
        });
        let region = region.expect("memory");
        let (domain, mut random) = (Domain::new(WORKERS), Randomness::from_number(seed));
        let steering = Steering::new(HashKey::new(seed, 2), WORKERS);
        let remote = RemoteConfig {
            workers: count,
            nodes: count,
            sockets_max: 64,
            ..RemoteConfig::default()
        };
        let (remote, serving) = Remote::new(&remote).expect("memory");
        let seats = Seats::new(config, &domain, steering, &mut random.secret);
        let make = |(worker, serving)| {
            let pool = region.attach().expect("a home");
            let mut with = Remaking { now: Instant::ORIGIN, pool: &pool, random: &mut random };
            (host(config, &seats, WorkerId(worker), Some(serving), &mut with), pool)
        };
        let engines = (0..WORKERS).zip(serving).map(make).collect();
        let mut world = World::new(seed);
        let node = NodeConfig::default();
        let workers = world.add_workers("host", engines, &domain, steering, node).expect("a host");
        for (worker, id) in workers.iter().enumerate() {
            let (config, seats, worker) = (config.clone(), seats.clone(), WorkerId(worker as u16));
            world.set_remake(*id, move |with| host(&config, &seats, worker, None, with));
        }
        let pool = PoolConfig { small: 8192, frames: 8192, ..PoolConfig::default() };
        let pool = Pool::new(&pool).expect("memory");
        let from = Instant::ORIGIN + Duration::from_secs(3);
        let link = world.add_node_with("link", Link::new(from), pool, NodeConfig::free());
        let lane = LinkConfig::both(LaneConfig::with_delay(Duration::from_micros(50)));
        world.connect((workers[0], IfIndex(1)), (link, IfIndex(1)), lane).expect("two ends");
        Self { world, workers, link, remote, domain, steering }
    }

    fn stats(&self, worker: usize) -> Stats {
        let host = self.world.node_ref::<Host>(self.workers[worker]);
        host.expect("a host").stack().stats()
    }

    /// Each worker's ledgers, and what is between them.
    fn assert_conserved(&self) {
        let (mut handed, mut between) = (0_u64, 0);
        for (at, id) in self.workers.iter().enumerate() {
            let stats = self.stats(at);
            let law = stats.conservation();
            assert!(law.holds(), "worker {at}: {law:?}");
            let f = &stats.outcomes;
            handed = handed.wrapping_add(f.handed_in + f.handed_out);
            handed = handed.wrapping_sub(f.adopted_in + f.adopted_out);
            let lost = self.world.node_stats(*id).handoff_lost;
            between += self.world.handed_over(*id) as u64 + lost;
        }
        assert_eq!(handed, between);
    }

    /// The first fragment of a datagram of each family, which one worker is to put together.
    fn begin(&mut self, worker: u16, id: u32) {
        let steering = self.steering;
        let begun = self.world.visit::<Link, _>(self.link, |link, round| {
            for (family, ether_type) in FAMILIES.into_iter().zip([EtherType::IPV4, EtherType::IPV6])
            {
                let to = SocketAddr::new(addr(family, HOST), ECHO);
                let first = |station| {
                    let from = SocketAddr::new(addr(family, station), 20_000);
                    let whole = craft::udp(from, to, &[7; 1200]);
                    (station, craft::fragments(&whole, id, 600).swap_remove(0))
                };
                let is_his =
                    |(_, first): &(u8, Vec<u8>)| steer::packet(&steering, first).0 == worker;
                let (station, first) = STATIONS.map(first).find(is_his).expect("of 50 one");
                let bytes = frame(mac(HOST), link.link_addr(station), ether_type, &first);
                Link::send(round, &bytes);
            }
        });
        begun.expect("the link");
    }

    /// A station's datagrams to a port, all of a flow that one worker owns.
    fn tell(&mut self, worker: u16, port: u16, station: u8, count: usize) {
        let steering = self.steering;
        let told = self.world.visit::<Link, _>(self.link, |link, round| {
            for family in FAMILIES {
                let to = SocketAddr::new(addr(family, HOST), port);
                let question =
                    |from| craft::udp(SocketAddr::new(addr(family, station), from), to, b"told");
                let owner = |packet: &Vec<u8>| steer::packet(&steering, packet).0;
                let packet = (20_000..).map(question).find(|packet| owner(packet) == worker);
                let packet = packet.expect("a flow of each worker's");
                let v4 = family == Family::V4;
                let ether_type = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
                let bytes = frame(mac(HOST), link.link_addr(station), ether_type, &packet);
                (0..count).for_each(|_| Link::send(round, &bytes));
            }
        });
        told.expect("the link");
    }

    /// One change of addresses, and so of routes: every call, thousands a second.
    fn churn(&mut self, step: u32) {
        let now = self.world.now();
        self.world.visit::<Host, _>(self.workers[0], |host, round| {
            let stack = host.stack_mut();
            let text = match step % 4 {
                0 | 1 => format!("10.{}.0.1/16", 1 + step / 4 % 200),
                _ => format!("fd00:0:0:{}::1/64", 1 + step / 4 % 200),
            };
            let cidr: floodwall_base::IpCidr = text.parse().expect("an address");
            let (addr, iface) = (AddAddress::manual(cidr), IfIndex(1));
            if step.is_multiple_of(2) {
                stack.add_address(iface, addr, now, round.random).expect("room");
            } else {
                stack.remove_address(iface, cidr.addr(), now, round.random).expect("it is there");
            }
        });
    }
}

/// A request of a program that is answered when every worker has done its part.
fn poll<T>(asked: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    match pin!(asked).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn run(seed: u64) -> End {
    run_with(seed, &[])
}

/// As [`run`]; in some steps one of the workers panics.
fn run_with(seed: u64, panics: &[(u32, u16)]) -> End {
    let config = StackConfig { udp_shared_sockets_max: 64, ..ethernet_config(HOST) };
    let mut bench = Bench::new(seed, &config);
    let trace = Rc::new(RefCell::new((DefaultHasher::new(), 0_u64)));
    let hook = Rc::clone(&trace);
    bench.world.set_trace(move |event| {
        let (hash, events) = &mut *hook.borrow_mut();
        hash.write_u64(event.at.as_nanos());
        hash.write(format!("{:?}", event.kind).as_bytes());
        hash.write(event.frame);
        *events += 1;
    });
    let free = |bench: &Bench| -> Vec<_> {
        let all = bench.workers.iter().map(|id| bench.world.pool(*id).expect("a node").available());
        all.collect()
    };
    let before = free(&bench);
    bench.world.run_for(Duration::from_millis(2990));
    let (mut asked, mut open, mut bound) = (None, Vec::<UdpHandle>::new(), 0);
    let any = |port| SocketAddr::from(([0_u16; 8], port));
    let mut opens = bench.remote.bind_udp(any(REMOTE), SocketSettings::new(Family::V6));
    bench.world.run_for(Duration::from_millis(5));
    let listener = poll(&mut opens).expect("every shard has answered").expect("a socket");
    for step in 0..420 {
        bench.world.run_for(Duration::from_micros(400));
        for (_, worker) in panics.iter().filter(|(at, _)| *at == step) {
            bench.begin(*worker, step);
            bench.tell(*worker, ECHO, STATIONS.start, 20);
            bench.tell(*worker, FAULT, STATIONS.start, 1);
        }
        bench.churn(step);
        // A program: binds and closes, one after another.
        let answered = asked.as_mut().and_then(poll);
        if let Some(handle) = answered {
            bound += 1;
            open.push(std::io::Result::expect(handle, "a socket"));
            asked = None;
        }
        if asked.is_none() {
            let any = SocketAddr::from(([0; 4], 0));
            asked = Some(bench.remote.bind_udp(any, SocketSettings::new(Family::V4)));
        }
        if open.len() > 5 {
            open.remove(0);
        }
        bench.assert_conserved();
    }
    drop((asked, open));
    for worker in 0..WORKERS {
        bench.tell(worker, REMOTE, STATIONS.start, 1);
    }
    bench.world.run_for(Duration::from_millis(5));
    let told = std::iter::from_fn(|| listener.try_recv_from(&mut [0; 64]).ok()).count();
    drop(listener);
    // Probes of neighbours that are used no more end.
    bench.world.run_for(Duration::from_secs(9));
    bench.assert_conserved();
    assert_eq!(free(&bench), before, "memory is gone");
    let waits: u64 = bench.domain.stats(bench.world.now()).limbo.items as u64;
    assert_eq!(waits, 0, "everything that was replaced is free again");
    let stats = (0..usize::from(WORKERS)).map(|worker| bench.stats(worker)).collect();
    let (hash, events) = (trace.borrow().0.finish(), trace.borrow().1);
    let link = bench.world.node_ref::<Link>(bench.link).expect("the link");
    let Link { asked, answered, pinged, ponged, wrong, .. } = *link;
    let panics = bench.workers.iter().map(|id| bench.world.node_stats(*id).panics).collect();
    End { trace: hash, events, stats, asked, answered, pinged, ponged, wrong, bound, panics, told }
}

#[test]
fn four_shards_under_floods_and_churn_lose_nothing_and_send_nothing_astray() {
    let end = run(7);
    assert_eq!(end.wrong, 0, "no wrong next hop after the grace period");
    assert!(end.asked > 5000 && end.pinged > 700, "{} {}", end.asked, end.pinged);
    // Until a station is known three packets wait for it, and the others are dropped.
    let astray = end.stats.iter().map(|s| s.drops_out.total()).sum::<u64>();
    assert!(end.answered >= end.asked * 97 / 100, "{} of {}", end.answered, end.asked);
    assert!(end.ponged >= end.pinged * 97 / 100, "{} of {}", end.ponged, end.pinged);
    let sum = |counter| end.stats.iter().map(|s| s.counters.of(counter)).sum::<u64>();
    assert!(astray < 3000, "{astray}");
    assert!(sum(Counter::FloodwallSnapshots) > 100, "{}", sum(Counter::FloodwallSnapshots));
    assert!(sum(Counter::FloodwallSnapshotsTaken) > 300);
    assert!(sum(Counter::FloodwallNeighborsPublished) > 1000);
    assert_eq!(sum(Counter::FloodwallNeighborsRefused), 0);
    assert!(end.bound > 50, "{} sockets", end.bound);
    for (worker, stats) in end.stats.iter().enumerate() {
        let f = &stats.outcomes;
        assert!(f.delivered > 500, "worker {worker}: {f:?}");
        let handed = if worker == 0 { f.adopted_in + f.adopted_out } else { f.handed_out };
        assert!(handed > 20, "worker {worker}: {f:?}");
    }
    // Reassembled datagrams are handed to the owners of their flows, by the reassembling worker.
    assert!(end.stats.iter().map(|s| s.outcomes.handed_in).sum::<u64>() > 200);
}

#[test]
fn four_shards_replay_exactly_by_their_seed() {
    let [one, again, other] = [11, 11, 12].map(run);
    assert_eq!(one, again);
    assert_ne!(one.trace, other.trace);
    assert!(one.events > 20_000 && one.wrong + other.wrong == 0);
}

#[test]
fn a_shard_that_panics_again_and_again_costs_its_own_flows_only() {
    let panics: Vec<(u32, u16)> = (20..400).step_by(20).map(|step| (step, 2)).collect();
    let (calm, end) = (run(7), run_with(7, &panics));
    let count = end.panics[2];
    assert!(count >= panics.len() as u64 && end.panics == [0, 0, count, 0], "{:?}", end.panics);
    assert_eq!(end.wrong, 0, "no wrong next hop after the grace period");
    // What a dead shard held, and what its fresh tables do not know yet.
    assert!(end.answered >= calm.answered * 95 / 100, "{} of {}", end.answered, calm.answered);
    assert!(end.ponged >= calm.ponged * 97 / 100, "{} of {}", end.ponged, calm.ponged);
    // Programs' sockets come and go all the while, and the one that was open receives from all
    // workers.
    assert!(end.bound >= calm.bound * 9 / 10, "{} of {}", end.bound, calm.bound);
    assert_eq!((calm.told, end.told), (8, 8), "both families of each worker");
    let of = |worker: usize, counter| end.stats[worker].counters.of(counter);
    assert!(of(2, Counter::FloodwallPanicDatagrams) > 0, "what waited in sockets is counted");
    for (worker, stats) in end.stats.iter().enumerate() {
        let dropped_in = stats.drops_in.of(DropReason::ShardPanicked);
        let least = if worker == 2 { 2 * count } else { 0 };
        assert!(
            dropped_in >= least && (dropped_in == 0) == (worker != 2),
            "worker {worker}: {dropped_in}"
        );
        assert!(
            stats.outcomes.delivered > 500,
            "it counts on: worker {worker}: {:?}",
            stats.outcomes
        );
    }
    let snapshots = |worker| of(worker, Counter::FloodwallSnapshotsTaken);
    assert!(snapshots(2) * 10 > snapshots(1) * 9, "it follows the control shard again");
    assert_eq!(end, run_with(7, &panics), "and all that replays by its seed");
}
