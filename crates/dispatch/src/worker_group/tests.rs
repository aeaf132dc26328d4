//! Worker groups over memory wires: several real threads, an engine that echoes, forwards and
//! panics.
#![expect(clippy::disallowed_methods, reason = "the far ends of the wires are a thread of theirs")]

use std::thread;
use std::time::Duration;

use floodwall_base::{IfIndex, Instant, Units};
use floodwall_device::{Device, Medium, MemoryWire, WireConfig, pair_of};
use floodwall_packet::{Burst, Handoff, HandoffList, PacketBuf, PacketList, Pool, Round, Triage};

use super::*;

/// Patience of the tests with another thread: none of them asserts how long something took.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn wait_until(mut happened: impl FnMut() -> bool) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    while !happened() {
        assert!(clock.now() < end, "it never happened");
        thread::yield_now();
    }
}

/// Sends back what arrives, by the interface on which it came. What it does besides is in the
/// destination port.
pub(super) struct Echo {
    id: WorkerId,
    seen: u64,
    adopted: u64,
    /// Packets that it keeps until it is dropped.
    kept: Vec<PacketBuf>,
    /// The engine's number, and then how often its memory was touched.
    touched: [u64; 2],
}

/// The engine panics.
const PANIC: u16 = 666;
/// The engine keeps the packet, and panics.
const KEEP_AND_PANIC: u16 = 667;
/// The packet goes out by an interface that only the first worker has.
const ELSEWHERE: u16 = 9;

impl Echo {
    fn take(&mut self, packet: PacketBuf, round: &mut Round<'_>) {
        let dst_port =
            packet.first().get(22..24).map_or(0, |p| u16::from(p[0]) << 8 | u16::from(p[1]));
        let mut packet = packet;
        match dst_port {
            PANIC => panic!("an unexpected frame"),
            KEEP_AND_PANIC => {
                self.kept.push(packet);
                panic!("another one");
            }
            ELSEWHERE => packet.set_iface(IfIndex(2)),
            _ => {}
        }
        round.departing.push_back(packet);
    }
}

impl Engine for Echo {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let count = round.arrived.len();
        for packet in std::mem::take(round.arrived).drain() {
            self.seen += 1;
            self.take(packet, round);
        }
        Units(count as u32)
    }

    fn work(&mut self, _: &mut Round<'_>) -> Units {
        Units(0)
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        assert!(round.arrived.is_empty(), "adopted work comes before new input");
        let count = handed.len();
        for Handoff { to, packet, .. } in handed.drain() {
            assert_eq!(to, self.id);
            self.adopted += 1;
            self.take(packet, round);
        }
        Units(count as u32)
    }

    fn touch_memory(&mut self) -> usize {
        assert_eq!(self.seen + self.adopted, 0, "before the first packet");
        self.touched[1] += 1;
        0
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

impl Publish for Echo {
    fn words(&self, out: &mut [u64]) {
        out[0] = self.seen;
        out[1] = self.adopted;
        out[2..4].copy_from_slice(&self.touched);
    }
}

fn wire() -> (MemoryWire, MemoryWire) {
    pair_of(WireConfig { capacity: 1024, medium: Medium::Ip, ..WireConfig::default() })
}

/// A worker group of `workers` unpinned workers with a wire each, and the far ends of the wires.
fn group<E: Engine + Publish + 'static>(
    workers: usize,
    on_panic: OnPanic,
    make: impl Fn(&mut Setting<'_>) -> Result<E, String> + Send + Sync + 'static,
) -> (WorkerGroup<E>, Stop, Steering, Vec<MemoryWire>) {
    let (near, far): (Vec<_>, Vec<_>) = (0..workers).map(|_| wire()).unzip();
    let slot = |near| WorkerSlot { core: None, ports: vec![Port::new(IfIndex(1), Box::new(near))] };
    let config = WorkerGroupConfig::new(near.into_iter().map(slot).collect()).unwrap();
    // Priority under pressure is covered by the gate's own tests.
    let worker = WorkerConfig { gate: None, ..config.worker };
    let config = WorkerGroupConfig { on_panic, worker, ..config };
    let (stop, steering) = (Stop::new().unwrap(), config.steering);
    let group = WorkerGroup::start(config, &stop, make).unwrap();
    (group, stop, steering, far)
}

pub(super) fn echo(setting: &mut Setting<'_>) -> Result<Echo, String> {
    let touched = [setting.restarts, 0];
    Ok(Echo { id: setting.worker, seen: 0, adopted: 0, kept: Vec::new(), touched })
}

/// A UDP packet of 28 bytes from that port to the echo port.
fn udp(port: u16) -> [u8; 28] {
    udp_to(7, port)
}

fn udp_to(to: u16, port: u16) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[0] = 0x45;
    bytes[3] = 28;
    bytes[8] = 64;
    bytes[9] = 17;
    bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[20..22].copy_from_slice(&port.to_be_bytes());
    bytes[22..24].copy_from_slice(&to.to_be_bytes());
    bytes[25] = 8;
    bytes
}

/// The far ends of a worker group's wires, driven by the test's own thread.
struct Outside {
    pool: Pool,
    wires: Vec<MemoryWire>,
    bells: Vec<Bell>,
    burst: Burst,
}

impl Outside {
    fn of<E>(group: &WorkerGroup<E>, wires: Vec<MemoryWire>) -> Self
    where
        E: Engine + Publish + 'static,
    {
        let bells = group.seats().iter().map(|seat| seat.bell.clone()).collect();
        Self { pool: Pool::new(&PoolConfig::default()).unwrap(), wires, bells, burst: Burst::new() }
    }

    /// Sends to that worker's device; returns how many it took.
    fn send<'a>(&mut self, worker: usize, packets: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut list = PacketList::new();
        packets.filter_map(|bytes| self.pool.packet_from(bytes)).for_each(|p| list.push_back(p));
        let sent = self.wires[worker].transmit(&mut list).unwrap();
        self.bells[worker].ring();
        sent
    }

    /// Takes all that came back by that worker's device.
    fn receive(&mut self, worker: usize) -> usize {
        let taken = self.wires[worker].receive(&self.pool, &mut self.burst).unwrap();
        self.burst.drain().for_each(drop);
        taken
    }
}

#[test]
fn a_frame_that_arrives_elsewhere_is_handed_to_its_owner_and_answered_by_it() {
    let (group, stop, steering, far) = group(3, OnPanic::EndGroup, echo);
    let mut outside = Outside::of(&group, far);
    let packets: Vec<_> = (5000..5300).map(udp).collect();
    let owner = |packet: &[u8; 28]| floodwall_wire::steer::packet(&steering, packet).0;
    let mut owned = [0; 3];
    packets.iter().for_each(|packet| owned[usize::from(owner(packet))] += 1);
    // All of them arrive at worker 1.
    assert_eq!(outside.send(1, packets.iter().map(<[u8; 28]>::as_slice)), 300);
    let mut back = [0; 3];
    wait_until(|| {
        (0..3).for_each(|worker| back[worker] += outside.receive(worker));
        back.iter().sum::<usize>() == 300
    });
    assert_eq!(back, owned, "each by the queue of its owner");
    stop.trigger();
    let ended = group.join().unwrap();
    assert!(ended.is_conserved() && ended.in_rings == 0, "{ended:?}");
    assert_eq!(ended.sum(WorkerCounter::RxForeign), (owned[0] + owned[2]) as u64);
    assert_eq!(ended.sum(WorkerCounter::Adopted), (owned[0] + owned[2]) as u64);
}

#[test]
fn an_idle_group_sleeps_and_nothing_wakes_it() {
    let (mut near, _far): (Vec<_>, Vec<_>) = (0..4).map(|_| wire()).unzip();
    let slot = |near| WorkerSlot { core: None, ports: vec![Port::new(IfIndex(1), Box::new(near))] };
    let mut config = WorkerGroupConfig::new(near.drain(..).map(slot).collect()).unwrap();
    config.worker.look_every = Duration::from_secs(3600);
    let stop = Stop::new().unwrap();
    let group = WorkerGroup::start(config, &stop, echo).unwrap();
    let reader = group.reader();
    let all = |fact| reader.read().iter().map(|p| p.facts.of(fact)).collect::<Vec<_>>();
    wait_until(|| all(WorkerCounter::Sleeps) == [1; 4]);
    thread::sleep(Duration::from_millis(200));
    assert_eq!((all(WorkerCounter::Sleeps), all(WorkerCounter::Rounds)), (vec![1; 4], vec![1; 4]));
    assert_eq!(reader.domain().stats(Clock::new().now()).online, 0, "asleep is offline");
    stop.trigger();
    group.join().unwrap();
}

#[test]
fn under_a_flood_every_snapshot_is_conserved_and_at_rest_the_whole_group_is() {
    let (group, stop, _, far) = group(4, OnPanic::EndGroup, echo);
    let reader = group.reader();
    let mut outside = Outside::of(&group, far);
    let (mut sent, mut back, mut round) = (0_u64, 0_u64, 0_u16);
    // The workers churn, the wires fill, the snapshots are read in between.
    while sent < 200_000 {
        for worker in 0..4 {
            round = round.wrapping_add(97);
            let packets: Vec<_> = (0..64).map(|n| udp(round.wrapping_add(n * 1021))).collect();
            sent += outside.send(worker, packets.iter().map(<[u8; 28]>::as_slice)) as u64;
            back += outside.receive(worker) as u64;
        }
        for seen in reader.read() {
            let facts = &seen.facts;
            assert!(facts.are_conserved(), "{facts:?}");
            let own = facts.of(WorkerCounter::RxPackets) - facts.of(WorkerCounter::RxForeign);
            assert_eq!((seen.words[0], seen.words[1]), (own, facts.of(WorkerCounter::Adopted)));
        }
    }
    let sum = |fact| reader.read().iter().map(|p| p.facts.of(fact)).sum::<u64>();
    wait_until(|| {
        (0..4).for_each(|worker| back += outside.receive(worker) as u64);
        sum(WorkerCounter::RxPackets) == sent
            && sum(WorkerCounter::TxPackets) == back
            && sum(WorkerCounter::Backlog) == 0
    });
    stop.trigger();
    let ended = group.join().unwrap();
    // What left after the last look; then the wires are cut.
    for far in &mut outside.wires {
        while let Ok(taken @ 1..) = far.receive(&outside.pool, &mut outside.burst) {
            outside.burst.drain().for_each(drop);
            back += taken as u64;
        }
    }
    assert!(ended.is_conserved(), "{ended:?}");
    let lost: u64 = ended.workers.iter().map(|e| e.facts.lost() + e.facts.lost_in_handoff()).sum();
    // While the worker group ends, no test takes packets from the wires: what then has no room
    // waits.
    let waiting = ended.sum(WorkerCounter::Backlog);
    assert_eq!(sent, back + lost + ended.in_rings + waiting);
    // How many of them a busy machine lets through the rings is its affair; where they belong is
    // not.
    assert!(
        ended.sum(WorkerCounter::RxForeign) > sent / 2,
        "three of four packets arrive elsewhere"
    );
    let lost: u64 = ended.workers.iter().map(|e| e.facts.lost_in_handoff()).sum();
    let adopted = ended.sum(WorkerCounter::Adopted);
    assert_eq!(
        adopted + lost + ended.in_rings,
        ended.sum(WorkerCounter::RxForeign),
        "to the packet"
    );
    assert!(adopted > 0, "and some are taken over");
}

#[test]
fn a_packet_leaves_by_the_worker_that_has_its_device() {
    let (other, mut other_far) = wire();
    let (near, far): (Vec<_>, Vec<_>) = (0..2).map(|_| wire()).unzip();
    let port = |iface, near| Port::new(IfIndex(iface), Box::new(near) as Box<dyn Device>);
    let mut slots: Vec<_> = near
        .into_iter()
        .map(|near| WorkerSlot { core: None, ports: vec![port(1, near)] })
        .collect();
    slots[0].ports.push(port(2, other));
    let config = WorkerGroupConfig::new(slots).unwrap();
    let (stop, steering) = (Stop::new().unwrap(), config.steering);
    let group = WorkerGroup::start(config, &stop, echo).unwrap();
    let mut outside = Outside::of(&group, far);
    let of_one = |packet: &[u8; 28]| floodwall_wire::steer::packet(&steering, packet).0 == 1;
    let packets: Vec<_> =
        (5000..6000).map(|port| udp_to(ELSEWHERE, port)).filter(of_one).take(100).collect();
    assert_eq!(outside.send(1, packets.iter().map(<[u8; 28]>::as_slice)), 100);
    let mut back = 0;
    wait_until(|| {
        back += other_far.receive(&outside.pool, &mut outside.burst).unwrap();
        outside.burst.drain().for_each(drop);
        back == 100
    });
    stop.trigger();
    let ended = group.join().unwrap();
    assert!(ended.is_conserved(), "{ended:?}");
    assert_eq!(ended.workers[1].facts.of(WorkerCounter::HandedDepartures), 100);
    assert_eq!(ended.workers[0].facts.of(WorkerCounter::AdoptedDepartures), 100);
    assert_eq!(ended.workers[0].facts.of(WorkerCounter::SentPackets), 0, "it only carries them");
}

/// A packet to `to` that belongs to `worker`.
pub(super) fn owned_by(steering: &Steering, worker: u16, to: u16) -> [u8; 28] {
    let of = |packet: &[u8; 28]| floodwall_wire::steer::packet(steering, packet).0 == worker;
    (1024..).map(|port| udp_to(to, port)).find(of).unwrap()
}

#[test]
fn a_shard_that_panics_is_made_again_alone_and_its_packets_are_home() {
    let (tell, told) = mpsc::channel();
    let (tell, told) = (floodwall_sync::lock::Mutex::new(tell), told);
    let (group, stop, steering, far) = group(2, OnPanic::Isolate, move |setting| {
        let word = (setting.worker.0, setting.restarts, setting.pool.available());
        tell.lock().unwrap().send(word).unwrap();
        echo(setting)
    });
    let mut outside = Outside::of(&group, far);
    let firsts: Vec<_> = told.try_iter().collect();
    assert_eq!(firsts.iter().map(|(w, r, _)| (*w, *r)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
    for restart in 1..=2 {
        // Kept by the engine; a frame of the far side's pool, which comes home there.
        let before = outside.pool.available();
        let bad = owned_by(&steering, 1, KEEP_AND_PANIC);
        // What was sent before it, in the same call, leaves and is counted.
        let good = owned_by(&steering, 1, 7);
        assert_eq!(outside.send(1, [good.as_slice(), bad.as_slice()].into_iter()), 2);
        let (worker, restarts, available) = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!((worker, restarts, available), (1, restart, firsts[1].2));
        wait_until(|| outside.receive(1) == 1);
        wait_until(|| outside.pool.available() == before);
    }
    for worker in 0..2 {
        let good = owned_by(&steering, worker, 7);
        outside.send(usize::from(worker), [good.as_slice()].into_iter());
        wait_until(|| outside.receive(usize::from(worker)) == 1);
    }
    stop.trigger();
    let ended = group.join().unwrap();
    let of = |worker: usize, fact| ended.workers[worker].facts.of(fact);
    assert_eq!((of(0, WorkerCounter::Panics), of(1, WorkerCounter::Panics)), (0, 2));
    assert_eq!((of(0, WorkerCounter::Restarts), of(1, WorkerCounter::Restarts)), (0, 2));
    assert!(ended.workers.iter().all(|ended| ended.facts.are_conserved()));
}

#[test]
fn each_engine_that_a_group_makes_touches_its_memory_once() {
    let (group, stop, steering, far) = group(2, OnPanic::Isolate, echo);
    let mut outside = Outside::of(&group, far);
    let reader = group.reader();
    let touched = |worker: usize| reader.read()[worker].words[2..4].to_vec();
    wait_until(|| (0..2).all(|worker| touched(worker) == [0, 1]));
    let bad = owned_by(&steering, 1, PANIC);
    outside.send(1, [bad.as_slice()].into_iter());
    wait_until(|| touched(1) == [1, 1]);
    assert_eq!(touched(0), [0, 1]);
    stop.trigger();
    assert!(group.join().unwrap().is_conserved());
}

#[test]
fn a_packet_that_panics_again_and_again_does_not_spin_its_shard() {
    let (group, stop, steering, far) = group(2, OnPanic::Isolate, echo);
    let mut outside = Outside::of(&group, far);
    let reader = group.reader();
    let of = |fact| reader.read()[1].facts.of(fact);
    let bad = owned_by(&steering, 1, PANIC);
    // One at a time: each makes the engine panic once, until it stays down.
    for n in 1..=panics::RESTARTS_MAX as u64 + 1 {
        outside.send(1, [bad.as_slice()].into_iter());
        wait_until(|| of(WorkerCounter::Panics) == n);
    }
    for n in 1..=20 {
        // By the other worker's device, too: packets handed to a shard that is down are dropped
        // there.
        outside.send(n % 2, [bad.as_slice()].into_iter());
        wait_until(|| of(WorkerCounter::DropsShardDown) == n as u64);
    }
    assert_eq!(of(WorkerCounter::Restarts), panics::RESTARTS_MAX as u64);
    assert_eq!(of(WorkerCounter::Panics), panics::RESTARTS_MAX as u64 + 1);
    let asked = group.seats()[1].control.ask(PATIENCE, |_| ());
    assert_eq!(asked, Err(crate::ControlError::Ended), "no engine is left to answer");
    assert!(group.seats()[0].control.ask(PATIENCE, |_| ()).is_ok(), "the other one goes on");
    stop.trigger();
    assert!(group.join().unwrap().is_conserved());
}

#[test]
fn without_isolation_a_panic_ends_the_group_with_what_to_report() {
    let (group, stop, steering, far) = group(3, OnPanic::EndGroup, echo);
    let mut outside = Outside::of(&group, far);
    let bad = owned_by(&steering, 2, PANIC);
    outside.send(2, [bad.as_slice()].into_iter());
    let error = group.join().unwrap_err();
    let WorkerGroupError::Worker { worker: WorkerId(2), error: WorkerError::Panicked(report) } =
        &error
    else {
        panic!("{error}");
    };
    assert!(stop.is_triggered(), "the others were notified");
    assert!(report.place.contains("worker_group/tests.rs:"), "{report}");
    assert!(report.engine.ends_with("Echo"), "{report}");
    let text = error.to_string();
    for part in ["worker 2", "an unexpected frame", env!("CARGO_PKG_VERSION"), "report"] {
        assert!(text.contains(part), "{text}");
    }
}

/// Run by itself in a process of its own: see below.
#[test]
#[ignore = "ends the process"]
fn a_panic_that_ends_the_process() {
    let (group, _, steering, far) = group(2, OnPanic::EndProcess, echo);
    let mut outside = Outside::of(&group, far);
    let bad = owned_by(&steering, 1, PANIC);
    outside.send(1, [bad.as_slice()].into_iter());
    let _ = group.join();
    println!("still there");
}

#[test]
fn by_default_a_panic_ends_the_process_and_says_what_to_report() {
    assert_eq!(OnPanic::default(), OnPanic::EndProcess);
    let name = "worker_group::tests::a_panic_that_ends_the_process";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name, "--nocapture"])
        .output()
        .unwrap();
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(!output.status.success() && !String::from_utf8_lossy(&out).contains("still there"));
    assert!(err.contains("floodwall: worker 1 panicked at"), "{err}");
    assert!(err.contains("please report this line"), "{err}");
}

#[test]
fn what_sleeps_does_not_hold_up_reclamation_and_what_is_published_is_seen_by_all() {
    use floodwall_sync::qsbr::{Limbo, LimboCaps};
    use floodwall_sync::{RcuCell, Retired};

    /// The control shard publishes what arrives, the others answer with what they see.
    struct Shared {
        id: WorkerId,
        cell: Arc<RcuCell<u8>>,
        limbo: Option<Limbo<Retired<u8>>>,
    }
    impl Engine for Shared {
        fn round(&mut self, round: &mut Round<'_>) -> Units {
            for packet in std::mem::take(round.arrived).drain() {
                let Some(limbo) = &mut self.limbo else {
                    let seen = *self.cell.load(round.peers.as_ref().unwrap().view);
                    let mut answer = round.pool.packet_from(&[seen]).unwrap();
                    answer.set_iface(packet.iface());
                    round.departing.push_back(answer);
                    continue;
                };
                let new = packet.first()[packet.len() - 1];
                assert_eq!(self.id, WorkerId::CONTROL);
                assert!(self.cell.replace(Box::new(new), 1, limbo, round.now).is_ok());
            }
            Units(1)
        }
        fn work(&mut self, round: &mut Round<'_>) -> Units {
            let limbo = self.limbo.as_mut().unwrap();
            limbo.reclaim(|| round.now, drop);
            Units(1)
        }
        fn deadline(&self) -> Option<Instant> {
            let waits = self.limbo.as_ref().is_some_and(|limbo| limbo.stats().items > 0);
            waits.then_some(Instant::ORIGIN)
        }
        fn classify(&self, _: &Burst, _: &mut [Triage]) {}
    }
    impl Publish for Shared {
        fn words(&self, out: &mut [u64]) {
            let stats = self.limbo.as_ref().map(Limbo::stats);
            out[0] = stats.map_or(0, |stats| stats.freed);
        }
    }

    let (near, far): (Vec<_>, Vec<_>) = (0..2).map(|_| wire()).unzip();
    let slot = |near| WorkerSlot { core: None, ports: vec![Port::new(IfIndex(1), Box::new(near))] };
    let mut config = WorkerGroupConfig::new(near.into_iter().map(slot).collect()).unwrap();
    config.worker.look_every = Duration::from_secs(3600);
    config.on_panic = OnPanic::EndGroup;
    let (stop, steering) = (Stop::new().unwrap(), config.steering);
    let cell = Arc::new(RcuCell::new(&config.domain, Box::new(0)));
    let group = WorkerGroup::start(config, &stop, move |setting| {
        let caps = LimboCaps { items: 8, bytes: 8 };
        let limbo = (setting.worker == WorkerId::CONTROL).then(|| setting.domain.limbo(caps));
        Ok(Shared { id: setting.worker, cell: Arc::clone(&cell), limbo })
    })
    .unwrap();
    let reader = group.reader();
    let mut outside = Outside::of(&group, far);
    let ask = owned_by(&steering, 1, 7);
    for value in 1..=20 {
        let mut tell = owned_by(&steering, 0, 7);
        tell[27] = value;
        outside.send(0, [tell.as_slice()].into_iter());
        // The other one sleeps all the while, and yet the old value is freed.
        wait_until(|| reader.read()[0].words[0] == u64::from(value));
        outside.send(1, [ask.as_slice()].into_iter());
        wait_until(|| outside.wires[1].receive(&outside.pool, &mut outside.burst).unwrap() == 1);
        let seen: Vec<_> = outside.burst.drain().map(|packet| packet.first()[0]).collect();
        assert_eq!(seen, [value]);
    }
    stop.trigger();
    group.join().unwrap();
}

#[test]
fn cores_that_are_not_there_or_given_twice_are_refused_in_words() {
    let start = |cores: &[usize]| {
        let slots = cores.iter().map(|core| WorkerSlot { core: Some(*core), ports: Vec::new() });
        let config = WorkerGroupConfig::new(slots.collect()).unwrap();
        let stop = Stop::new().unwrap();
        WorkerGroup::start(config, &stop, echo).map(drop).unwrap_err().to_string()
    };
    assert!(start(&[]).contains("one at least"));
    assert!(start(&[0; WORKERS_MAX + 1]).contains("64 at most"));
    assert!(start(&[3, 5, 3]).contains("core 3 is given to two workers"));
    assert!(
        start(&[1 << 20]).contains("core 1048576 is not among those that this process may use")
    );
}

#[test]
fn a_shard_that_cannot_be_made_ends_the_start_and_the_others() {
    let made = Arc::new(AtomicUsize::new(0));
    let config = WorkerGroupConfig::new((0..3).map(|_| WorkerSlot::default()).collect()).unwrap();
    let (stop, counted) = (Stop::new().unwrap(), Arc::clone(&made));
    let started = WorkerGroup::start(config, &stop, move |setting| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if setting.worker.0 == 1 { Err("no second one".to_owned()) } else { echo(setting) }
    });
    assert_eq!(started.map(drop).unwrap_err().to_string(), "worker 1: no second one");
    assert!(stop.is_triggered());
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 2, "the third was never tried");
}
