//! A flooded core in virtual time: the parts of the application, established and unverified flows.
//!
//! Run by `cargo test`. One server echoes; an established peer and a crowd of unverified peers send
//! to it at fixed rates, on links of their own. Handling a packet costs 2 us here, a look 40 ns.

use core::time::Duration;

use floodwall_base::limits::ROUND_MAX;
use floodwall_base::{IfIndex, Instant, Units};
use floodwall_packet::{Burst, Engine, Pool, PoolConfig, Round, Triage};
use floodwall_schedule::{BalanceConfig, GateConfig, Share};
use floodwall_testkit::by_byte;
use floodwall_world::{
    CostTable, LaneConfig, LinkConfig, LinkId, NodeConfig, NodeId, NodeStats, Picos,
    SimulatedApplication, UnitMix, World,
};

/// Packets a second that half a core can handle here.
const CAPACITY: u64 = 235_000;
const RUN: Duration = Duration::from_millis(25);

/// Sends packets with `class` as the last byte, one each `every`.
struct Client {
    class: u8,
    at: Instant,
    every: Duration,
    sent: u64,
    back: u64,
}

impl Engine for Client {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        self.back += round.arrived.drain().count() as u64;
        Units(1)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = 0;
        while self.at <= round.now && spent < round.budget.0 {
            let mut bytes = [0; 60];
            bytes[59] = self.class;
            if let Some(mut packet) = round.pool.packet_from(&bytes) {
                packet.set_iface(IfIndex(1));
                round.departing.push_back(packet);
            }
            (self.at, self.sent, spent) = (self.at + self.every, self.sent + 1, spent + 1);
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.every.is_zero()).then_some(self.at)
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

/// Echoes; classifies by the last byte. With `stuck`, it has no receive capacity until then.
#[derive(Default)]
struct Server {
    handled: u64,
    stuck: Option<Instant>,
}

impl Engine for Server {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let n = round.arrived.len();
        self.handled += n as u64;
        round.arrived.drain().for_each(|packet| round.departing.push_back(packet));
        Units(n as u32)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn rx_capacity(&self, now: Instant) -> usize {
        if self.stuck.is_some_and(|until| now < until) { 0 } else { 64 }
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        by_byte::classify(burst, classes);
    }
}

fn costs() -> CostTable {
    let unit = UnitMix { headers: 1, ..CostTable::FREE.unit };
    CostTable { header: Picos::from_nanos(2000), unit, ..CostTable::ASSUMED }
}

fn config(share: Share) -> NodeConfig {
    NodeConfig {
        costs: costs(),
        balance: Some(BalanceConfig { share, ..BalanceConfig::default() }),
        gate: Some(GateConfig::default()),
        application: Some(SimulatedApplication::HUNGRY),
        ..NodeConfig::default()
    }
}

struct Scene {
    world: World,
    server: NodeId,
    clients: [NodeId; 2],
    links: [LinkId; 2],
}

impl Scene {
    /// An established peer at 10,000 packets a second, and others at `rate` of the class given.
    fn new(config: NodeConfig, class: u8, rate: u64) -> Self {
        let pool =
            |frames| Pool::new(&PoolConfig { frames, ..PoolConfig::default() }).expect("memory");
        let mut world = World::new(5);
        let server = world.add_node_with("server", Server::default(), pool(8192), config);
        let every =
            |rate: u64| Duration::from_nanos(1_000_000_000_u64.checked_div(rate).unwrap_or(0));
        let mut add = |index: u16, class, rate| {
            let at = Instant::from_nanos(u64::from(index) * 77);
            let client = Client { class, at, every: every(rate), sent: 0, back: 0 };
            let client = world.add_node_with("client", client, pool(8192), NodeConfig::free());
            let way = LinkConfig::both(LaneConfig::with_delay(Duration::from_micros(10)));
            let link =
                world.connect((client, IfIndex(1)), (server, IfIndex(index)), way).expect("free");
            (client, link)
        };
        let ((established, first), (other, second)) = (add(1, b'f', 10_000), add(2, class, rate));
        Self { world, server, clients: [established, other], links: [first, second] }
    }

    fn run(mut self) -> Outcome {
        self.world.run_for(RUN);
        let stats = self.world.node_stats(self.server);
        self.balances(stats);
        let [established, other] = self.clients.map(|id| {
            let client = self.world.node_ref::<Client>(id).expect("a client");
            (client.back, client.sent)
        });
        Outcome { stats, established, other }
    }

    /// Every packet that reached the device was handled, was dropped and counted, or waits.
    fn balances(&self, stats: NodeStats) {
        let handled = self.world.node_ref::<Server>(self.server).expect("the server").handled;
        assert_eq!(stats.packets_in, handled);
        let arrived: u64 = self.links.iter().map(|l| self.world.stats(*l).from_a.delivered).sum();
        let known = handled + stats.refused + stats.crowded_out + stats.waiting as u64;
        let ring = arrived - known;
        assert!(arrived >= known && ring <= 1024, "{arrived} arrived, {known} known");
    }
}

#[derive(Debug)]
struct Outcome {
    stats: NodeStats,
    established: (u64, u64),
    other: (u64, u64),
}

impl Outcome {
    fn application_share(&self) -> f64 {
        self.stats.application_ran.as_secs_f64() / RUN.as_secs_f64()
    }

    fn established_flows_served(&self) -> f64 {
        self.established.0 as f64 / self.established.1 as f64
    }
}

const LOADS: [u64; 6] = [0, 1, 2, 4, 7, 10];

#[test]
fn an_application_has_its_share_and_short_gaps_at_any_load_of_either_class() {
    for class in [b's', b'f', b'r'] {
        for load in LOADS {
            let outcome = Scene::new(config(Share::HALF), class, load * CAPACITY).run();
            assert!(outcome.application_share() >= 0.49, "{load}x: {outcome:?}");
            assert!(outcome.stats.application_gap_max <= ROUND_MAX, "{load}x: {outcome:?}");
            assert!(outcome.stats.run_max <= ROUND_MAX);
            let squeezed = outcome.stats.time_squeeze > 10;
            assert!(squeezed || load < 2 || class == b'r', "{load}x: {outcome:?}");
            assert!(!squeezed || load > 0, "{outcome:?}");
        }
    }
}

#[test]
fn with_a_share_of_nothing_the_application_is_starved() {
    let share =
        |load| Scene::new(config(Share::NONE), b'f', load * CAPACITY).run().application_share();
    assert!(share(0) > 0.9);
    assert!(share(4) < 0.05, "the criterion fails: {}", share(4));
    let outcome = Scene::new(config(Share::NONE), b'f', 4 * CAPACITY).run();
    assert!(outcome.stats.application_gap_max > 10 * ROUND_MAX, "{outcome:?}");
}

#[test]
fn an_application_that_is_never_scheduled_is_yielded_to() {
    // What the worker does without a balance: it never leaves the core by itself.
    let greedy = NodeConfig { balance: None, ..config(Share::HALF) };
    let outcome = Scene::new(greedy, b'f', 4 * CAPACITY).run();
    assert!(outcome.application_share() < 0.05 && outcome.stats.time_squeeze == 0);
    let outcome = Scene::new(config(Share::HALF), b'f', 4 * CAPACITY).run();
    assert!(outcome.stats.time_squeeze > 30, "{outcome:?}");
    assert!(outcome.application_share() >= 0.49);
}

#[test]
fn the_core_is_used_wholly_by_any_that_wants_it() {
    // The application needs a tenth: the worker has nine tenths, far beyond its half.
    let tenth =
        SimulatedApplication { job: Duration::from_micros(100), every: Duration::from_millis(1) };
    let idle = NodeConfig { application: Some(tenth), ..config(Share::HALF) };
    let outcome = Scene::new(idle, b'f', 10 * CAPACITY).run();
    assert!(outcome.stats.busy >= RUN * 85 / 100, "{outcome:?}");
    assert!(outcome.application_share() >= 0.095, "and it has its tenth: {outcome:?}");
    assert!(outcome.stats.application_gap_max <= ROUND_MAX);
    // Hardly any packets: the application has nearly everything.
    let outcome = Scene::new(config(Share::HALF), b'f', 100).run();
    assert!(outcome.application_share() >= 0.9, "{outcome:?}");
}

#[test]
fn unverified_packets_cannot_crowd_out_established_flows() {
    for load in LOADS {
        let outcome = Scene::new(config(Share::HALF), b's', load * CAPACITY).run();
        assert!(outcome.established_flows_served() >= 0.9, "{load}x: {outcome:?}");
        if load > 0 {
            let served = outcome.other.0 as f64 / RUN.as_secs_f64();
            let least = CAPACITY as f64 * if load < 4 { 0.8 } else { 0.25 };
            assert!(served >= least, "the rest goes to unverified flows: {load}x {outcome:?}");
        }
    }
}

#[test]
fn without_looking_ahead_or_without_a_gate_unverified_packets_crowd_established_flows_out() {
    let open = GateConfig { ahead: Share::NONE, ..GateConfig::default() };
    for gate in [Some(open), None] {
        let config = NodeConfig { gate, ..config(Share::HALF) };
        let outcome = Scene::new(config, b's', 10 * CAPACITY).run();
        assert!(outcome.established_flows_served() < 0.9, "the criterion fails: {outcome:?}");
    }
}

#[test]
fn refusable_packets_are_dropped_at_the_price_of_a_look_under_pressure_and_are_handled_otherwise() {
    let outcome = Scene::new(config(Share::HALF), b'r', CAPACITY / 4).run();
    assert_eq!((outcome.stats.refused, outcome.stats.looked_at), (0, 0));
    assert!(outcome.other.0 > 0, "they get their answer");
    let outcome = Scene::new(config(Share::HALF), b'r', 10 * CAPACITY).run();
    assert!(outcome.stats.refused > outcome.other.1 * 8 / 10, "{outcome:?}");
    assert!(outcome.established_flows_served() >= 0.9);
}

#[test]
fn excess_beyond_what_can_be_looked_at_is_dropped_in_the_ring_before_any_work() {
    // A hundred times what can be handled: twice what can be looked at.
    let mut scene = Scene::new(config(Share::HALF), b's', 50 * CAPACITY);
    // Long enough for some established packets: before the first, no room is reserved.
    scene.world.run_for(RUN);
    let stats = scene.world.node_stats(scene.server);
    let lanes: Vec<_> = scene.links.iter().map(|l| scene.world.stats(*l).from_a).collect();
    let in_ring: u64 = lanes.iter().map(|lane| lane.ring_full).sum();
    assert!(in_ring > stats.looked_at, "{lanes:?} {stats:?}");
    assert!(stats.packets_in < stats.looked_at / 4, "{stats:?}");
    assert!(stats.application_ran * 1000 >= RUN * 480, "{stats:?}");
}

#[test]
fn an_engine_without_rx_capacity_costs_nothing_and_takes_up_again() {
    let no_gate = NodeConfig { gate: None, ..config(Share::HALF) };
    let mut scene = Scene::new(no_gate, b's', CAPACITY / 2);
    let until = Instant::ORIGIN + Duration::from_millis(4);
    scene.world.node::<Server>(scene.server).expect("the server").stuck = Some(until);
    scene.world.run_for(Duration::from_millis(3));
    let stats = scene.world.node_stats(scene.server);
    assert_eq!((stats.packets_in, stats.looked_at, stats.units), (0, 0, 0), "no work invested");
    assert!(stats.ring_peak > 300, "arrivals wait, or are dropped, in the ring");
    scene.world.run_for(Duration::from_millis(4));
    assert!(scene.world.node_stats(scene.server).packets_in > 500);
}

#[test]
fn established_flows_are_served_while_the_unverified_packets_consumer_is_full() {
    let mut scene = Scene::new(config(Share::HALF), b's', 10 * CAPACITY);
    let mut so_far = |length| {
        scene.world.run_for(length);
        let established = scene.world.node_ref::<Client>(scene.clients[0]).expect("a client");
        let (back, sent) = (established.back, established.sent);
        let until = scene.world.now() + RUN / 2;
        scene.world.node::<Server>(scene.server).expect("the server").stuck = Some(until);
        (back, sent, scene.world.node_stats(scene.server).packets_in)
    };
    // Until established flows are known, there is no priority.
    let (back, sent, taken) = so_far(RUN / 5);
    let (more_back, more_sent, more_taken) = so_far(RUN / 2);
    let (back, sent) = (more_back - back, more_sent - sent);
    assert!(back * 10 >= sent * 9, "{back} of {sent}");
    assert!(more_taken - taken <= sent + 64, "and no other is: {taken} {more_taken}");
    scene.world.node::<Server>(scene.server).expect("the server").stuck = None;
    scene.world.run_for(RUN / 2);
    assert!(scene.world.node_stats(scene.server).packets_in > more_taken + 1000);
}

#[test]
fn a_shared_core_replays_exactly() {
    let run = || format!("{:?}", Scene::new(config(Share::HALF), b's', 7 * CAPACITY).run());
    assert_eq!(run(), run());
}
