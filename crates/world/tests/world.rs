//! The world as its users see it: determinism, conservation, the price of work, full rings.
//!
//! Run by `cargo test`. Engines here are the smallest that show a behaviour.

use core::hash::Hasher;
use core::time::Duration;
use std::cell::RefCell;
use std::hash::DefaultHasher;
use std::rc::Rc;

use floodwall_base::{IfIndex, Instant, Units};
use floodwall_packet::{Burst, Engine, Pool, PoolConfig, Round, Triage};
use floodwall_world::{
    CostTable, LaneConfig, LinkConfig, LinkId, NodeConfig, NodeId, Picos, RunEnd, Side, TraceKind,
    UnitMix, World, WorldError,
};

/// Sends `left` packets, one each `every`, on interface 1; counts and hashes what comes back.
struct Source {
    at: Instant,
    every: Duration,
    left: u32,
    len: usize,
    back: u64,
}

impl Source {
    fn new(left: u32, every: Duration, len: usize) -> Self {
        Self { at: Instant::ORIGIN, every, left, len, back: 0 }
    }
}

impl Engine for Source {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let n = round.arrived.drain().count();
        self.back += n as u64;
        Units(n as u32)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = 0;
        while self.left > 0 && self.at <= round.now && spent < round.budget.0 {
            let mut bytes = vec![0; self.len];
            bytes.fill_with(|| round.random.secret.next_u64() as u8);
            if let Some(mut packet) = round.pool.packet_from(&bytes) {
                packet.set_iface(IfIndex(1));
                round.departing.push_back(packet);
            }
            (self.left, self.at, spent) = (self.left - 1, self.at + self.every, spent + 1);
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.at)
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

/// Sends everything back, one unit each.
struct Mirror;

impl Engine for Mirror {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let n = round.arrived.len();
        round.arrived.drain().for_each(|packet| round.departing.push_back(packet));
        Units(n as u32)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

/// Requests immediate calls, for ever, and does nothing.
struct Restless;

impl Engine for Restless {
    fn round(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(Instant::ORIGIN)
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

fn pool(frames: usize) -> Pool {
    Pool::new(&PoolConfig { frames, ..PoolConfig::default() }).expect("memory")
}

const ONE: IfIndex = IfIndex(1);

/// A source and a mirror with one link.
fn pair(seed: u64, source: Source, mirror: NodeConfig, link: LinkConfig) -> Pair {
    let mut world = World::new(seed);
    let source = world.add_node_with("source", source, pool(8192), NodeConfig::free());
    let mirror = world.add_node_with("mirror", Mirror, pool(8192), mirror);
    let link = world.connect((source, ONE), (mirror, ONE), link).expect("free");
    Pair { world, source, mirror, link }
}

struct Pair {
    world: World,
    source: NodeId,
    mirror: NodeId,
    link: LinkId,
}

/// A table by which one packet costs its receiver `nanos`, at any size.
fn costs(nanos: u64) -> CostTable {
    let unit = UnitMix { headers: 1, ..CostTable::FREE.unit };
    CostTable { header: Picos::from_nanos(nanos), unit, ..CostTable::FREE }
}

/// A link that does everything to frames that a link can do.
fn rough() -> LaneConfig {
    LaneConfig {
        delay: Duration::from_micros(300),
        jitter: Duration::from_micros(200),
        rate: Some(20_000_000),
        queue_bytes: 4_000,
        loss: 0.05,
        duplicate: 0.05,
        reorder: 0.05,
        reorder_delay: Duration::from_millis(2),
        corrupt: 0.05,
    }
}

/// Runs one rough world and hashes all that happens in it.
fn trace_of(seed: u64) -> u64 {
    let source = Source::new(2000, Duration::from_micros(7), 200);
    let mut pair = pair(seed, source, NodeConfig::default(), LinkConfig::both(rough()));
    let hash = Rc::new(RefCell::new(DefaultHasher::new()));
    let hook = Rc::clone(&hash);
    pair.world.set_trace(move |event| {
        let mut hash = hook.borrow_mut();
        hash.write_u64(event.at.as_nanos());
        hash.write(format!("{:?}{:?}{:?}", event.link, event.from, event.kind).as_bytes());
        hash.write(event.frame);
    });
    pair.world.run_for(Duration::from_millis(30));
    hash.borrow().finish()
}

#[test]
fn the_same_seed_gives_the_same_world_byte_for_byte() {
    assert_eq!(trace_of(1), trace_of(1));
    assert_ne!(trace_of(1), trace_of(2));
}

#[test]
fn stopping_the_clock_on_the_way_changes_nothing() {
    let run = |step: Duration| {
        let source = Source::new(500, Duration::from_micros(7), 200);
        let mut pair = pair(3, source, NodeConfig::default(), LinkConfig::both(rough()));
        while pair.world.now() < Instant::ORIGIN + Duration::from_millis(20) {
            pair.world.run_for(step);
        }
        (pair.world.stats(pair.link), pair.world.node_stats(pair.mirror))
    };
    assert_eq!(run(Duration::from_millis(20)), run(Duration::from_micros(10)));
}

#[test]
fn no_frame_vanishes_without_a_name() {
    let source = Source::new(3000, Duration::from_micros(5), 300);
    let slow = NodeConfig { costs: costs(40_000), ring: 32, ..NodeConfig::default() };
    let mut pair = pair(5, source, slow, LinkConfig::both(rough()));
    for _ in 0..100 {
        pair.world.run_for(Duration::from_micros(511));
        let stats = pair.world.stats(pair.link);
        assert!(stats.from_a.is_balanced() && stats.from_b.is_balanced(), "{stats:?}");
    }
    assert_eq!(pair.world.run_until_idle(Duration::from_secs(9)), RunEnd::Idle);
    let (there, back) = (pair.world.stats(pair.link).from_a, pair.world.stats(pair.link).from_b);
    assert_eq!((there.sent, there.in_flight, back.in_flight), (3000, 0, 0));
    let drops_between = [there.queue_full, there.lost, there.ring_full];
    let changes = [there.duplicated, there.reordered, there.corrupted];
    assert!(drops_between.iter().chain(&changes).all(|n| *n > 0), "{there:?}");
    assert_eq!(back.sent, there.delivered);
    let source = pair.world.node::<Source>(pair.source).unwrap();
    assert_eq!(source.back, back.delivered);
    for id in [pair.source, pair.mirror] {
        assert_eq!(pair.world.pool(id).unwrap().available().frames, 8192, "all frames are home");
    }
}

#[test]
fn doubling_the_cost_table_halves_the_throughput() {
    let answered = |costs: CostTable| {
        // A packet each microsecond is more than the mirror can look at.
        let source = Source::new(100_000, Duration::from_micros(1), 64);
        let mirror = NodeConfig { costs, ..NodeConfig::default() };
        let mut pair = pair(1, source, mirror, LinkConfig::default());
        pair.world.run_for(Duration::from_millis(100));
        (pair.world.stats(pair.link).from_b.delivered, pair.world.node_stats(pair.mirror))
    };
    let heavy = CostTable::ASSUMED.times(20);
    let ((once, stats), (twice, _)) = (answered(heavy), answered(heavy.times(2)));
    assert!(once > 10_000, "{once}");
    let ratio = once as f64 / twice as f64;
    assert!((1.95..2.05).contains(&ratio), "{once} and {twice}");
    assert!(stats.busy > Duration::from_millis(99), "an overloaded core is never idle");
    assert_eq!(answered(CostTable::FREE).0, 100_000);
}

#[test]
fn an_answer_leaves_when_its_work_has_been_paid_for() {
    let source = Source::new(1, Duration::ZERO, 64);
    let config = NodeConfig { costs: costs(700), ..NodeConfig::default() };
    let link = LinkConfig::both(LaneConfig::with_delay(Duration::from_nanos(50)));
    let mut pair = pair(1, source, config, link);
    let times = Rc::new(RefCell::new(Vec::new()));
    let hook = Rc::clone(&times);
    pair.world.set_trace(move |e| hook.borrow_mut().push((e.at.as_nanos(), e.from, e.kind)));
    assert_eq!(pair.world.run_until_idle(Duration::from_secs(1)), RunEnd::Idle);
    let want = [
        (0, Side::A, TraceKind::Sent),
        (50, Side::A, TraceKind::Delivered),
        (750, Side::B, TraceKind::Sent),
        (800, Side::B, TraceKind::Delivered),
    ];
    assert_eq!(*times.borrow(), want);
    assert_eq!(pair.world.node_stats(pair.mirror).turn_max, Duration::from_nanos(700));
}

#[test]
fn a_busy_node_fills_its_ring_and_the_lane_counts_what_it_loses() {
    let source = Source::new(64, Duration::ZERO, 64);
    let slow = NodeConfig { costs: costs(1_000_000), ring: 10, ..NodeConfig::default() };
    let mut pair = pair(1, source, slow, LinkConfig::default());
    pair.world.run_for(Duration::from_millis(1));
    let stats = pair.world.stats(pair.link).from_a;
    assert_eq!((stats.delivered, stats.ring_full), (10, 54));
    assert_eq!(pair.world.node_stats(pair.mirror).ring_peak, 10);
}

#[test]
fn an_empty_pool_costs_its_own_node_only() {
    let mut world = World::new(1);
    let source = Source::new(64, Duration::ZERO, 64);
    let source = world.add_node_with("source", source, pool(64), NodeConfig::free());
    let mirror = world.add_node("mirror", Mirror, pool(5));
    let link = world.connect((source, ONE), (mirror, ONE), LinkConfig::default()).unwrap();
    world.run_until_idle(Duration::from_secs(1));
    let stats = world.stats(link);
    assert_eq!((stats.from_a.delivered, stats.from_a.no_buffer), (5, 59));
    assert_eq!(world.node::<Source>(source).unwrap().back, 5);
    assert_eq!(world.pool(source).unwrap().available().frames, 64);
}

#[test]
fn a_packet_for_an_interface_without_a_link_is_counted() {
    let mut world = World::new(1);
    let source = Source::new(3, Duration::ZERO, 64);
    let source = world.add_node("source", source, pool(8));
    assert_eq!(world.run_until_idle(Duration::from_secs(1)), RunEnd::Idle);
    let stats = world.node_stats(source);
    assert_eq!((stats.packets_out, stats.unlinked), (3, 3));
}

#[test]
fn neither_a_restless_engine_nor_a_loop_of_mirrors_stops_the_clock() {
    let mut world = World::new(1);
    let restless = world.add_node_with("restless", Restless, pool(8), NodeConfig::free());
    let left = world.add_node_with("left", Mirror, pool(8), NodeConfig::free());
    let right = world.add_node_with("right", Mirror, pool(8), NodeConfig::free());
    let link = world.connect((left, ONE), (right, ONE), LinkConfig::default()).unwrap();
    let sent = world.visit(left, |_: &mut Mirror, round| {
        let mut packet = round.pool.packet_from(&[1; 60]).unwrap();
        packet.set_iface(ONE);
        round.departing.push_back(packet);
    });
    assert_eq!(sent, Some(()));
    assert_eq!(world.run_until_idle(Duration::from_micros(20)), RunEnd::Limit);
    assert_eq!(world.now(), Instant::from_nanos(20_000));
    // One call each microsecond, both ends included; one crossing each nanosecond.
    assert_eq!(world.node_stats(restless).fruitless, 21);
    assert_eq!(world.stats(link).from_a.delivered + world.stats(link).from_b.delivered, 20_000);
}

#[test]
fn every_node_and_every_lane_has_a_stream_of_its_own() {
    let mut world = World::new(9);
    let lane = LaneConfig { loss: 0.5, ..LaneConfig::default() };
    let ends = [0, 1].map(|_| {
        let source = Source::new(100, Duration::from_micros(1), 8);
        let source = world.add_node_with("source", source, pool(128), NodeConfig::free());
        let mirror = world.add_node_with("mirror", Mirror, pool(128), NodeConfig::free());
        (source, mirror)
    });
    let [first, _] = ends.map(|(source, mirror)| {
        world.connect((source, ONE), (mirror, ONE), LinkConfig::both(lane)).unwrap()
    });
    type Sequence<T> = Rc<RefCell<[Vec<T>; 2]>>;
    let (bytes, outcomes) = (Sequence::<Vec<u8>>::default(), Sequence::<bool>::default());
    let hooks = (Rc::clone(&bytes), Rc::clone(&outcomes));
    world.set_trace(move |event| {
        let at = usize::from(event.link != first);
        match event.kind {
            _ if event.from == Side::B => {}
            TraceKind::Sent => hooks.0.borrow_mut()[at].push(event.frame.to_vec()),
            kind => hooks.1.borrow_mut()[at].push(kind == TraceKind::Delivered),
        }
    });
    world.run_for(Duration::from_millis(1));
    let (bytes, outcomes) = (bytes.borrow(), outcomes.borrow());
    assert_eq!((bytes[0].len(), outcomes[1].len()), (100, 100));
    assert!(bytes[0] != bytes[1] && outcomes[0] != outcomes[1]);
}

#[test]
fn fractions_of_a_nanosecond_are_charged_in_the_end() {
    let unit = UnitMix { headers: 1, ..CostTable::FREE.unit };
    let costs = CostTable { header: Picos(500), unit, ..CostTable::FREE };
    let mirror = NodeConfig { costs, ..NodeConfig::default() };
    let source = Source::new(1000, Duration::from_micros(1), 64);
    let mut pair = pair(1, source, mirror, LinkConfig::default());
    pair.world.run_until_idle(Duration::from_secs(1));
    assert_eq!(pair.world.node_stats(pair.mirror).busy, Duration::from_nanos(500));
}

#[test]
fn links_are_laid_between_free_interfaces_only() {
    let mut world = World::new(1);
    let a = world.add_node("a", Mirror, pool(8));
    let b = world.add_node("b", Mirror, pool(8));
    let link = LinkConfig::default();
    assert_eq!(world.connect((a, IfIndex(0)), (b, ONE), link), Err(WorldError::Loopback));
    let far = IfIndex(64);
    assert_eq!(world.connect((a, ONE), (b, far), link), Err(WorldError::InterfaceBeyondLimit(far)));
    assert!(world.connect((a, ONE), (a, ONE), link).is_err());
    assert!(world.connect((a, ONE), (b, ONE), link).is_ok());
    let taken = WorldError::InterfaceTaken { node: b, iface: ONE };
    assert_eq!(world.connect((a, IfIndex(2)), (b, ONE), link), Err(taken));
    let bad = LinkConfig { from_b: LaneConfig { loss: 2.0, ..LaneConfig::default() }, ..link };
    let error = world.connect((a, IfIndex(2)), (b, IfIndex(2)), bad);
    assert_eq!(error, Err(WorldError::Probability("loss")));
    assert!(world.connect((a, IfIndex(2)), (b, IfIndex(2)), link).is_ok());
    assert!(world.node::<Source>(a).is_none(), "an engine is what it is");
}

#[test]
fn each_direction_has_its_own_settings_and_they_can_change() {
    let source = Source::new(10, Duration::from_millis(1), 64);
    let lost = LaneConfig { loss: 1.0, ..LaneConfig::default() };
    let link = LinkConfig { from_b: lost, ..LinkConfig::default() };
    let mut pair = pair(1, source, NodeConfig::free(), link);
    pair.world.run_for(Duration::from_micros(4500));
    assert_eq!(pair.world.stats(pair.link).from_b.lost, 5);
    pair.world.set_lane(pair.link, Side::B, LaneConfig::default()).unwrap();
    pair.world.run_for(Duration::from_millis(10));
    let stats = pair.world.stats(pair.link);
    assert_eq!((stats.from_a.delivered, stats.from_b.lost, stats.from_b.delivered), (10, 5, 5));
}

/// The first and the last fragment of a TCP segment, and a whole one, of both families.
fn fragments_and_a_whole_one() -> [([u8; 80], bool); 6] {
    let frame = |at: &[(usize, u8)]| {
        let mut frame = [0; 80];
        at.iter().for_each(|&(place, byte)| frame[place] = byte);
        frame
    };
    let v4 = |flags, offset| frame(&[(12, 8), (14, 0x45), (20, flags), (21, offset), (23, 6)]);
    let v6 = |next, offset, more| {
        let bytes = [(12, 0x86), (13, 0xdd), (14, 0x60), (20, next), (54, 6)];
        let mut frame = frame(&bytes);
        (frame[56], frame[57]) = (offset, more);
        frame
    };
    [
        (v4(0x20, 0), true),
        (v4(0, 9), true),
        (v4(0x40, 0), false),
        (v6(44, 0, 1), true),
        (v6(44, 9, 0), true),
        (v6(6, 0, 0), false),
    ]
}

/// A world in which the source sends this frame to the mirror, in chunks of so many bytes.
fn with_frame(frame: &[u8], chunk: usize, permitted: bool) -> Pair {
    let source = Source::new(0, Duration::from_secs(1), 60);
    let config = LinkConfig::both(LaneConfig::default());
    let mut pair = pair(1, source, NodeConfig::free(), config);
    if permitted {
        for node in [pair.source, pair.mirror] {
            pair.world.permit_tcp_fragments(node);
        }
    }
    pair.world.visit(pair.source, |_: &mut Source, round| {
        let mut packet = round.pool.packet_from_chunks(frame.chunks(chunk)).expect("memory");
        packet.set_iface(ONE);
        round.departing.push_back(packet);
    });
    pair.world.run_for(Duration::from_secs(1));
    pair
}

#[test]
fn a_fragment_of_a_tcp_segment_fails_the_world_in_every_build() {
    for (frame, is_fragment) in fragments_and_a_whole_one() {
        // Also where the headers are not in the first chunk.
        for chunk in [14, 34, 80] {
            let ran = std::panic::catch_unwind(|| with_frame(&frame, chunk, false));
            let said = ran.err().map(|said| *said.downcast::<String>().expect("words"));
            let expected = "source: a TCP segment leaves as an IP fragment";
            assert_eq!(said.as_deref(), is_fragment.then_some(expected), "{frame:?} {chunk}");
        }
    }
}

#[test]
fn a_node_may_be_permitted_to_send_fragments_of_tcp() {
    for (frame, _) in fragments_and_a_whole_one() {
        let mut pair = with_frame(&frame, 80, true);
        assert_eq!(pair.world.node::<Source>(pair.source).map(|source| source.back), Some(1));
    }
}
