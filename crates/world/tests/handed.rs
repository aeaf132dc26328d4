//! A flood that arrives at another worker's queue, in virtual time: the parts of the application,
//! established and unverified flows of the worker that owns it.
//!
//! Run by `cargo test`. Two workers of one host echo; packets that are not IP are the first one's.
//! An established peer sends to its queue, a crowd to the other's. Handling a packet costs 2 us, a
//! look 40 ns.

use core::time::Duration;

use floodwall_base::limits::ROUND_MAX;
use floodwall_base::{HashKey, IfIndex, Instant, Steering, Units};
use floodwall_packet::{Burst, Engine, HandoffList, Pool, PoolConfig, Round, Triage};
use floodwall_schedule::{BalanceConfig, GateConfig, Share};
use floodwall_sync::qsbr::Domain;
use floodwall_testkit::by_byte;
use floodwall_world::{
    CostTable, LaneConfig, LinkConfig, NodeConfig, NodeId, NodeStats, Picos, SimulatedApplication,
    UnitMix, World,
};

/// Packets a second that half a core can handle here.
const CAPACITY: u64 = 235_000;
const RUN: Duration = Duration::from_millis(25);
const LOADS: [u64; 4] = [1, 2, 4, 10];

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
        while self.at <= round.now {
            let mut bytes = [0; 60];
            bytes[59] = self.class;
            if let Some(mut packet) = round.pool.packet_from(&bytes) {
                packet.set_iface(IfIndex(1));
                round.departing.push_back(packet);
            }
            (self.at, self.sent) = (self.at + self.every, self.sent + 1);
        }
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.at)
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

/// Echoes, whether it arrived here or was handed over; classifies by the last byte.
#[derive(Default)]
struct Server {
    handled: u64,
    adopted: u64,
}

impl Engine for Server {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let n = round.arrived.len();
        self.handled += n as u64;
        round.arrived.drain().for_each(|packet| round.departing.push_back(packet));
        Units(n as u32)
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        let n = handed.len();
        self.adopted += n as u64;
        handed.drain().for_each(|handoff| round.departing.push_back(handoff.packet));
        Units(n as u32)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        by_byte::classify(burst, classes);
    }
}

fn config() -> NodeConfig {
    let unit = UnitMix { headers: 1, ..CostTable::FREE.unit };
    NodeConfig {
        costs: CostTable { header: Picos::from_nanos(2000), unit, ..CostTable::ASSUMED },
        balance: Some(BalanceConfig { share: Share::HALF, ..BalanceConfig::default() }),
        gate: Some(GateConfig::default()),
        application: Some(SimulatedApplication::HUNGRY),
        ..NodeConfig::default()
    }
}

#[derive(PartialEq, Debug)]
struct Outcome {
    owner: NodeStats,
    established: (u64, u64),
    other: (u64, u64),
}

/// An established peer at 10,000 packets a second to the owner's queue, others of a class and rate
/// to the other worker's.
fn run(config: NodeConfig, class: u8, rate: u64) -> Outcome {
    run_by(config, class, rate, &[IfIndex(2)])
}

/// The same; frames of the interfaces given are put into the other worker's queue.
fn run_by(config: NodeConfig, class: u8, rate: u64, wrong: &[IfIndex]) -> Outcome {
    let pool = |frames| Pool::new(&PoolConfig { frames, ..PoolConfig::default() }).expect("memory");
    let mut world = World::new(5);
    let (domain, steering) = (Domain::new(2), Steering::new(HashKey::new(1, 2), 2));
    let engines = (0..2).map(|_| (Server::default(), pool(8192))).collect();
    let workers = world.add_workers("host", engines, &domain, steering, config).expect("a host");
    let mut add = |index: u16, class, rate| {
        let every = Duration::from_nanos(1_000_000_000 / rate);
        let at = Instant::from_nanos(u64::from(index) * 77);
        let client = Client { class, at, every, sent: 0, back: 0 };
        let client = world.add_node_with("client", client, pool(8192), NodeConfig::free());
        let way = LinkConfig::both(LaneConfig::with_delay(Duration::from_micros(10)));
        world.connect((client, IfIndex(1)), (workers[0], IfIndex(index)), way).expect("free");
        client
    };
    let clients = [add(1, b'f', 10_000), add(2, class, rate)];
    wrong.iter().for_each(|iface| world.set_queue(workers[1], *iface));
    world.run_for(RUN);
    let owner = world.node_stats(workers[0]);
    balances(&world, workers[0], &owner);
    let [established, other] = clients.map(|id| {
        let client = world.node_ref::<Client>(id).expect("a client");
        (client.back, client.sent)
    });
    Outcome { owner, established, other }
}

/// Packets taken from the other worker are handled, dropped and counted, or wait: once each.
fn balances(world: &World, owner: NodeId, stats: &NodeStats) {
    let server = world.node_ref::<Server>(owner).expect("the server");
    assert_eq!(stats.packets_in, server.handled, "what arrived here is counted apart");
    let outcomes = server.adopted + stats.refused + stats.crowded_out + stats.waiting as u64;
    // Established packets are classified only where their own queue is full.
    assert!(
        stats.adopted > 0 && stats.adopted == outcomes,
        "{stats:?}: {} adopted",
        server.adopted
    );
}

#[test]
fn a_flood_at_the_wrong_queue_starves_neither_established_flows_nor_the_application() {
    for class in [b's', b'r', b'f'] {
        for load in LOADS {
            let outcome = run(config(), class, load * CAPACITY);
            let application = outcome.owner.application_ran.as_secs_f64() / RUN.as_secs_f64();
            assert!(application >= 0.49, "{load}x: {application} {outcome:?}");
            assert!(outcome.owner.application_gap_max <= ROUND_MAX, "{load}x: {outcome:?}");
            let (back, sent) = outcome.established;
            assert!(back * 10 >= sent * 9, "{load}x: {outcome:?}");
            let (back, sent) = outcome.other;
            assert!(back > 0, "unverified flows are never shut out: {load}x {outcome:?}");
            assert!(class != b'f' || load > 1 || back * 10 > sent * 8, "{outcome:?}");
        }
    }
}

#[test]
fn unverified_and_refusable_packets_are_dropped_by_reason_at_the_owners_gate() {
    let gate = Some(GateConfig { waiting: 32, ..GateConfig::default() });
    let outcome = run(NodeConfig { gate, ..config() }, b's', 4 * CAPACITY);
    assert!(outcome.owner.crowded_out > 500 && outcome.owner.refused == 0, "{outcome:?}");
    let outcome = run(config(), b'r', 4 * CAPACITY);
    assert!(outcome.owner.refused > 500 && outcome.owner.crowded_out == 0, "{outcome:?}");
    let calm = run(config(), b's', CAPACITY / 8);
    assert_eq!((calm.owner.looked_at, calm.owner.crowded_out), (0, 0), "nothing without pressure");
    assert_eq!(calm, run(config(), b's', CAPACITY / 8), "and all that replays");
}

#[test]
fn established_flows_at_the_wrong_queue_go_first_too_and_without_the_gate_they_do_not() {
    let both = [IfIndex(1), IfIndex(2)];
    let served = |gate| {
        let outcome = run_by(NodeConfig { gate, ..config() }, b's', 3 * CAPACITY, &both);
        let (back, sent) = outcome.established;
        back as f64 / sent as f64
    };
    let (gated, open) = (served(Some(GateConfig::default())), served(None));
    assert!(gated >= 0.9, "{gated} {open}");
    assert!(open < 0.6, "the criterion fails: {open}");
}
