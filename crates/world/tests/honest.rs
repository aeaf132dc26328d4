//! The honest client against a tiny echo service that must resolve it first, in both families.
//!
//! Run by `cargo test`. Here and not beside the generator, because imports go down the shelves.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use floodwall_base::{IfIndex, Instant, MacAddr, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, Pool, PoolConfig, Round, Triage};
use floodwall_pktgen::{
    Blast, Honest, HonestConfig, HonestStats, Pace, Peer, Plan, PlanError, Stamp, StationConfig,
    StationMedium, Template,
};
use floodwall_world::{
    CostTable, LaneConfig, LinkConfig, LinkId, NodeConfig, NodeId, RunEnd, Side, UnitMix, World,
};

const SERVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 0, 5]);
const ONE: IfIndex = IfIndex(1);

/// Two stations that know each other's address only, and an echo between them: packets that the
/// inner station (a [`Blast`] without streams) does not use are sent back. No packet is answered
/// before the client's link address was resolved.
struct Echo {
    station: Blast,
    held: Vec<PacketBuf>,
}

impl Echo {
    fn new(client: &str) -> Self {
        let addrs = ["10.0.0.1", "fd00::1"].map(|a| a.parse().expect("an address")).to_vec();
        let peer = Peer::Addr(client.parse().expect("an address"));
        let station = StationConfig { mac: SERVER, addrs, peer, ..StationConfig::default() };
        let plan = Plan { station, streams: Vec::new() };
        Self { station: Blast::new(plan).expect("a plan"), held: Vec::new() }
    }

    /// Sends back what waits, once the client is resolved.
    fn answer(&mut self, round: &mut Round<'_>) {
        if !self.station.is_finished() {
            return;
        }
        for mut packet in self.held.drain(..) {
            turn_round(packet.first_mut().expect("its own frame"));
            packet.set_iface(ONE);
            round.departing.push_back(packet);
        }
    }
}

/// Swaps link and network addresses, and ports: no checksum changes.
fn turn_round(frame: &mut [u8]) {
    let v4 = frame[12..14] == [8, 0];
    let (addrs, len, ports) = if v4 { (26, 4, 34) } else { (22, 16, 54) };
    let fragment = !v4 && frame[20] == 44;
    let later = match (v4, fragment) {
        (true, _) => u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff != 0,
        (_, true) => u16::from_be_bytes([frame[56], frame[57]]) >> 3 != 0,
        _ => false,
    };
    // Where a later fragment has no ports, nothing is exchanged.
    let ports = (if fragment { ports + 8 } else { ports }, if later { 0 } else { 2 });
    for (at, len) in [(0, 6), (addrs, len), ports] {
        let (first, second) = frame[at..at + 2 * len].split_at_mut(len);
        first.swap_with_slice(second);
    }
}

fn is_udp(frame: &[u8]) -> bool {
    (frame[12..14] == [8, 0] && frame[23] == 17)
        || (frame[12..14] == [0x86, 0xdd] && (frame[20] == 17 || frame[20] == 44))
}

impl Engine for Echo {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let all: Vec<PacketBuf> = round.arrived.drain().collect();
        let spent = Units(all.len() as u32);
        for packet in all {
            if is_udp(packet.first()) {
                self.held.push(packet);
            } else {
                round.arrived.push(packet).expect("fewer than came");
            }
        }
        self.station.round(round);
        self.answer(round);
        spent
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        self.station.work(round)
    }

    fn deadline(&self) -> Option<Instant> {
        self.station.deadline()
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

/// A client of the service that sends `count` queries, a hundred a second.
fn client(v4: bool, count: u64) -> HonestConfig {
    let (addrs, server) = if v4 { ("10.0.0.5", "10.0.0.1:7") } else { ("fd00::5", "[fd00::1]:7") };
    let server: SocketAddr = server.parse().expect("an endpoint");
    let station = StationConfig {
        mac: CLIENT,
        addrs: vec![addrs.parse().expect("an address")],
        peer: Peer::Addr(server.ip()),
        ..StationConfig::default()
    };
    HonestConfig { station, servers: vec![server], count: Some(count), ..HonestConfig::default() }
}

struct Scene {
    world: World,
    honest: NodeId,
    echo: NodeId,
    link: LinkId,
}

impl Scene {
    fn new(config: HonestConfig, link: LinkConfig, echo: NodeConfig) -> Self {
        let mut world = World::new(11);
        let pool = || Pool::new(&PoolConfig::default()).expect("memory");
        let addr = config.station.addrs[0].addr().to_string();
        let honest = Honest::new(config).expect("a configuration");
        let honest = world.add_node_with("honest", honest, pool(), NodeConfig::free());
        let echo = world.add_node_with("echo", Echo::new(&addr), pool(), echo);
        let link = world.connect((honest, ONE), (echo, ONE), link).expect("free interfaces");
        Self { world, honest, echo, link }
    }

    /// Lets time pass and checks the client's books on the way.
    fn run(&mut self, length: Duration) -> HonestStats {
        for _ in 0..100 {
            self.world.run_for(length / 100);
            let s = self.honest().stats();
            assert_eq!(s.intended, s.answered + s.lost + s.waiting, "{s:?}");
        }
        self.honest().stats()
    }

    fn honest(&self) -> &Honest {
        self.world.node_ref(self.honest).expect("a client")
    }
}

#[test]
fn questions_and_answers_in_fragments_are_judged_whole_in_both_families() {
    for v4 in [true, false] {
        let config = HonestConfig { payload: 4000, fragment_bytes: Some(1400), ..client(v4, 100) };
        let link = way(LaneConfig::default());
        let mut scene = Scene::new(config.clone(), link, NodeConfig::free());
        let stats = scene.run(Duration::from_secs(3));
        assert_eq!((stats.sent, stats.answered, stats.wrong, stats.damaged), (100, 100, 0, 0));
        assert_eq!(scene.honest().returned().fragments, 300);
        // Every lost piece costs its answer; no answer with a hole is taken for one.
        let link = way(LaneConfig { loss: 0.1, duplicate: 0.1, ..LaneConfig::default() });
        let mut scene = Scene::new(config.clone(), link, NodeConfig::free());
        let stats = scene.run(Duration::from_secs(3));
        assert!((10..80).contains(&stats.answered), "{stats:?}");
        let link = way(LaneConfig { corrupt: 0.2, ..LaneConfig::default() });
        let mut scene = Scene::new(config, link, NodeConfig::free());
        let stats = scene.run(Duration::from_secs(3));
        assert!(stats.damaged > 5 && stats.answered < 70, "{stats:?}");
    }
    let odd = HonestConfig { fragment_bytes: Some(9), ..client(true, 1) };
    assert_eq!(Honest::new(odd).err(), Some(PlanError::FragmentBytes));
}

fn way(lane: LaneConfig) -> LinkConfig {
    LinkConfig::both(LaneConfig { delay: Duration::from_millis(1), ..lane })
}

#[test]
fn both_ends_resolve_each_other_and_every_question_is_answered_in_both_families() {
    for v4 in [true, false] {
        let link = way(LaneConfig::default());
        let mut scene = Scene::new(client(v4, 200), link, NodeConfig::free());
        let stats = scene.run(Duration::from_secs(3));
        let all = HonestStats { intended: 200, sent: 200, answered: 200, ..HonestStats::default() };
        assert_eq!(stats, all);
        assert!(scene.honest().is_finished());
        let latency = scene.honest().latency();
        assert_eq!(latency.count(), 200);
        // One round trip; the first question had to wait until the server's own request had come,
        // by which the client learned where it is.
        assert_eq!(latency.min(), Some(Duration::from_millis(2)));
        assert_eq!(latency.max(), Some(Duration::from_millis(3)));
        let echo: &Echo = scene.world.node_ref(scene.echo).unwrap();
        assert_eq!(echo.station.returned().neighbor, 2, "the client resolved, and answered");
        assert_eq!(scene.honest().returned().neighbor, 2);
    }
}

#[test]
fn latency_counts_from_the_intended_moment_when_the_server_is_slow() {
    // A question costs 20 ms and there is one each 10 ms, so the last waits for half a second at
    // least; more, as answers leave when all that arrived together has been handled.
    let unit = UnitMix { headers: 1, ..CostTable::FREE.unit };
    let header = floodwall_world::Picos::from_nanos(20_000_000);
    let costs = CostTable { header, unit, ..CostTable::FREE };
    let config = HonestConfig { timeout: Duration::from_secs(9), ..client(true, 50) };
    let slow = NodeConfig { costs, ..NodeConfig::default() };
    let mut scene = Scene::new(config, LinkConfig::default(), slow);
    let stats = scene.run(Duration::from_secs(5));
    assert_eq!((stats.answered, stats.lost), (50, 0));
    let most = scene.honest().latency().max().unwrap();
    assert!(most > Duration::from_millis(500) && most < Duration::from_millis(800), "{most:?}");
}

#[test]
fn what_is_lost_doubled_damaged_or_late_is_told_apart() {
    for v4 in [true, false] {
        let run = |lane: LaneConfig| {
            let config = HonestConfig { timeout: Duration::from_millis(100), ..client(v4, 1000) };
            // The first second is perfect, so that both ends are resolved.
            let mut scene = Scene::new(config, way(LaneConfig::default()), NodeConfig::free());
            let before = scene.run(Duration::from_secs(1));
            assert_eq!(before.answered + before.waiting, 101);
            let lane = LaneConfig { delay: Duration::from_millis(1), ..lane };
            scene.world.set_lane(scene.link, Side::B, lane).unwrap();
            scene.run(Duration::from_secs(10))
        };
        let lost = run(LaneConfig { loss: 0.3, ..LaneConfig::default() });
        assert_eq!(lost.answered + lost.lost, 1000);
        assert!((200..340).contains(&lost.lost), "{lost:?}");
        let twice = run(LaneConfig { duplicate: 1.0, ..LaneConfig::default() });
        assert_eq!((twice.answered, twice.lost), (1000, 0));
        assert!((899..=900).contains(&twice.duplicates), "{twice:?}");
        let bad = run(LaneConfig { corrupt: 1.0, ..LaneConfig::default() });
        assert_eq!(bad.answered + bad.lost, 1000);
        assert!(bad.damaged > 400 && bad.answered < 350, "{bad:?}");
        let reorder_delay = Duration::from_millis(200);
        let late = run(LaneConfig { reorder: 0.5, reorder_delay, ..LaneConfig::default() });
        assert!(late.late > 350 && late.late == late.lost, "{late:?}");
    }
}

#[test]
fn an_unsolicited_answer_is_wrong_from_any_sender() {
    for v4 in [true, false] {
        let link = way(LaneConfig::default());
        let mut scene = Scene::new(client(v4, 10), link, NodeConfig::free());
        assert_eq!(scene.run(Duration::from_secs(1)).answered, 10);
        let [server, other, ours] = if v4 {
            ["10.0.0.1", "10.0.0.2", "10.0.0.5"]
        } else {
            ["fd00::1", "fd00::2", "fd00::5"]
        }
        .map(|addr| addr.parse::<IpAddr>().unwrap());
        // Question 3 was meant to leave at 30 ms, from port 40,003.
        let right = (server, 7, 40_003, 0, 3, 30_000_000);
        let cases = [
            (right, 0),
            ((other, 7, 40_003, 0, 3, 30_000_000), 1),
            ((server, 8, 40_003, 0, 3, 30_000_000), 1),
            ((server, 7, 40_004, 0, 3, 30_000_000), 1),
            ((server, 7, 40_003, 1, 3, 30_000_000), 1),
            ((server, 7, 40_003, 0, 3, 30_000_001), 1),
            ((server, 7, 40_010, 0, 10, 100_000_000), 1),
        ];
        for ((from, src_port, dst_port, stream, seq, at), wrong) in cases {
            let macs = (SERVER, CLIENT);
            let medium = StationMedium::Ethernet;
            let mut answer = Template::udp(medium, macs, (from, ours), 64, 64).unwrap();
            answer.set_src_port(src_port);
            answer.set_dst_port(dst_port);
            let intended = Instant::from_nanos(at);
            answer.set_payload(0, &Stamp { stream, seq, intended }.to_bytes());
            let before = scene.honest().stats();
            scene.world.visit(scene.honest, |honest: &mut Honest, round| {
                let packet = round.pool.packet_from(answer.frame()).unwrap();
                round.arrived.push(packet).unwrap();
                honest.round(round);
            });
            let after = scene.honest().stats();
            assert_eq!(after.wrong - before.wrong, wrong, "{from} {src_port} {dst_port} {seq}");
            assert_eq!(after.duplicates - before.duplicates, 1 - wrong);
            assert_eq!(after.answered, 10);
        }
    }
}

#[test]
fn a_solicitation_that_crossed_a_router_or_is_damaged_is_not_answered() {
    let mut world = World::new(1);
    let pool = || Pool::new(&PoolConfig::default()).unwrap();
    let asker = world.add_node("asker", Echo::new("fd00::5"), pool());
    let owner = world.add_node("owner", Honest::new(client(false, 0)).unwrap(), pool());
    let mut answers = |change: fn(&mut [u8])| {
        let mut frame = world
            .visit(asker, |echo: &mut Echo, round| {
                // A new one sends a query at once.
                *echo = Echo::new("fd00::5");
                echo.work(round);
                round.departing.pop_front().unwrap().first().to_vec()
            })
            .unwrap();
        change(&mut frame);
        world
            .visit(owner, |honest: &mut Honest, round| {
                round.arrived.push(round.pool.packet_from(&frame).unwrap()).unwrap();
                honest.round(round);
                let answers = round.departing.len();
                drop(round.departing.take());
                answers
            })
            .unwrap()
    };
    assert_eq!(answers(|_| ()), 1);
    assert_eq!(answers(|frame| frame[21] = 254), 0, "hop limit");
    assert_eq!(answers(|frame| frame[57] ^= 1), 0, "checksum");
}

#[test]
fn a_client_without_server_gives_up_each_question_in_its_time() {
    let mut world = World::new(1);
    let honest = Honest::new(client(true, 100)).unwrap();
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let honest = world.add_node("alone", honest, pool);
    assert_eq!(world.run_until_idle(Duration::from_secs(60)), RunEnd::Limit, "it queries for ever");
    let stats = world.node_ref::<Honest>(honest).unwrap().stats();
    assert_eq!((stats.intended, stats.sent, stats.lost, stats.waiting), (100, 0, 100, 0));
}

#[test]
fn impossible_clients_are_refused() {
    let error = |config| Honest::new(config).err();
    assert_eq!(error(HonestConfig::default()), Some(PlanError::NoAddress));
    let other = HonestConfig { servers: vec!["[fd00::1]:7".parse().unwrap()], ..client(true, 1) };
    assert_eq!(error(other), Some(PlanError::NoAddress));
    let short = HonestConfig { payload: 23, ..client(true, 1) };
    assert_eq!(error(short), Some(PlanError::StampTooLong { have: 23 }));
    let eager = HonestConfig { pace: Pace::per_second(10_000_000), ..client(true, 1) };
    assert_eq!(error(eager), Some(PlanError::TooManyOpen(5_000_002)));
    let mut unknown = client(true, 1);
    unknown.station.peer = Peer::Addr("fd00::1".parse::<IpAddr>().unwrap());
    assert_eq!(error(unknown), Some(PlanError::PeerFamily));
}
