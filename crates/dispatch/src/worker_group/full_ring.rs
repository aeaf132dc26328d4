//! Tests of a full hand-off ring between two workers, on one thread and turn by turn.

use floodwall_base::limits::HANDOFF_RING;
use floodwall_base::{IfIndex, WorkerId};
use floodwall_device::{Device, Medium, WireConfig, pair_of};
use floodwall_packet::{PacketList, Pool};

use super::tests::{Echo, echo, owned_by};
use super::*;
use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// Frames for the other worker.
const FRAMES: usize = 3000;

/// The first of two workers, with those frames in its device, and what the second has of its rings.
fn first_of_two() -> (Worker<Echo>, Exchange) {
    let (near, mut far) =
        pair_of(WireConfig { capacity: 4096, medium: Medium::Ip, ..WireConfig::default() });
    let ports = vec![Port::new(IfIndex(1), Box::new(near))];
    let slots = vec![WorkerSlot { core: None, ports }, WorkerSlot::default()];
    let config = WorkerGroupConfig::new(slots).unwrap();
    let bells: Vec<_> = (0..2).map(|_| Bell::new().unwrap()).collect();
    let shared = GroupShared {
        carriers: carriers(&config.slots).into(),
        common: common(&config.slots).into(),
        pressure: SharedPressure::default(),
        live: Arc::new(AtomicUsize::new(1)),
        ended: Arc::default(),
        bells: bells.into(),
        make: Arc::new(echo),
        region: Region::new(&PoolConfig { workers: 2, ..config.memory }).unwrap(),
        domain: config.domain.clone(),
        steering: config.steering,
        on_panic: config.on_panic,
        // Priority under pressure is covered by the gate's own tests.
        config: WorkerConfig { gate: None, ..config.worker },
        note: None,
        stop: Stop::new().unwrap(),
    };
    let mut all = exchanges(&shared.bells);
    let mut second = all.pop().unwrap();
    second.settle();
    let slot = config.slots.into_iter().next().unwrap();
    let first = stand(WorkerId(0), slot, all.pop().unwrap(), shared).unwrap();
    let frame = owned_by(&config.steering, 1, 7);
    let outside = Pool::new(&PoolConfig { frames: 4096, ..PoolConfig::default() }).unwrap();
    let mut frames = PacketList::new();
    (0..FRAMES).for_each(|_| frames.push_back(outside.packet_from(&frame).unwrap()));
    assert_eq!(far.transmit(&mut frames).unwrap(), FRAMES);
    (first, second)
}

#[test]
fn what_a_neighbour_has_no_room_for_stays_in_the_device() {
    let (mut first, mut second) = first_of_two();
    let now = Clock::new().now();
    let of = |worker: &Worker<Echo>, fact| worker.facts().of(fact) as usize;
    const TURNS: usize = 40;
    (0..TURNS).for_each(|_| {
        first.turn(now);
    });
    // The ring is full, and a few are taken in a turn.
    let taken = of(&first, WorkerCounter::RxForeign);
    assert!((HANDOFF_RING..HANDOFF_RING + 4 * TURNS).contains(&taken), "{taken}");
    // Once the other one takes them over all of them get through.
    let (mut departing, mut facts, mut adopted) = (PacketList::new(), WorkerCounters::default(), 0);
    for _ in 0..FRAMES {
        adopted += second.collect(64, &mut departing, &mut facts);
        second.handed.drain().for_each(drop);
        first.turn(now);
    }
    assert_eq!((adopted, first.facts().lost_in_handoff()), (FRAMES, 0));
}
