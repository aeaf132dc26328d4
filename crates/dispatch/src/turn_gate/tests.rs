//! Overloaded workers: the order of service, and the share of the core that they leave.
#![expect(clippy::disallowed_methods, reason = "a worker under test has a thread of its own")]

use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::sync::mpsc;
use std::thread;

use floodwall_base::{DropReason, IfIndex, Randomness, Units};
use floodwall_device::{Device, DeviceError, DeviceInfo, DeviceStats, Medium};
use floodwall_packet::{PacketBuf, PacketList, Pool, PoolConfig, Round, Triage};
use floodwall_schedule::{BalanceConfig, GateConfig, Share};
use floodwall_testkit::by_byte;

use super::*;
use crate::clock::Clock;
use crate::port::{Port, fact_of};
use crate::publish::Publish;
use crate::stop::Stop;
use crate::worker::{Ended, Event, Worker};

/// A device with a ring that is never empty: of ten packets, one is of an established flow and
/// three are refusable.
struct Flood {
    info: DeviceInfo,
    given: u64,
    left: u64,
    ring: usize,
}

impl Flood {
    fn of(packets: u64) -> Self {
        let info = DeviceInfo {
            name: "flood".to_owned(),
            medium: Medium::Ip,
            mtu: 1500,
            mac: None,
            offload: false,
        };
        Self { info, given: 0, left: packets, ring: 0 }
    }
}

impl Device for Flood {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let before = burst.len();
        while burst.room() > 0 && self.left > 0 {
            let class = [b'f', b's', b's', b'r', b's', b's', b'r', b's', b's', b'r'];
            let packet = pool.packet_from(&[class[(self.given % 10) as usize]]).expect("memory");
            assert!(burst.push(packet).is_ok());
            (self.given, self.left) = (self.given + 1, self.left - 1);
        }
        Ok(burst.len() - before)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        Ok(packets.take().len())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pending(&self) -> bool {
        self.left > 0
    }

    fn ring(&self) -> usize {
        self.ring
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

/// Counts classes, and stops the worker after so many rounds.
struct Counter {
    seen: [u64; 3],
    rounds: u64,
    stop: Stop,
}

impl Engine for Counter {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        for packet in round.arrived.drain() {
            let class = b"fsr".iter().position(|class| packet.first() == [*class]);
            self.seen[class.expect("one of three")] += 1;
        }
        self.rounds = self.rounds.saturating_sub(1);
        if self.rounds == 0 {
            self.stop.trigger();
        }
        Units(1)
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

impl Publish for Counter {
    fn words(&self, out: &mut [u64]) {
        out[..3].copy_from_slice(&self.seen);
    }
}

/// Runs a worker on a flood of so many packets, or until its engine has had so many rounds.
fn run(packets: u64, rounds: u64, config: WorkerConfig) -> (Ended, [u64; 3]) {
    let worker = move || {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let stop = Stop::new().unwrap();
        let engine = Counter { seen: [0; 3], rounds, stop: stop.clone() };
        let ports = vec![Port::new(IfIndex(1), Box::new(Flood::of(packets)))];
        let random = Randomness::from_number(1);
        let mut worker = Worker::new(engine, pool, random, ports, config).unwrap();
        let ended = worker.run(&stop).unwrap();
        let seen = worker.engine().unwrap().seen;
        (ended, seen)
    };
    thread::spawn(worker).join().unwrap()
}

fn always() -> Option<GateConfig> {
    Some(GateConfig { patience: Duration::ZERO, ..GateConfig::default() })
}

#[test]
fn under_pressure_established_flows_are_served_and_every_other_packet_has_a_fate() {
    let config = WorkerConfig { gate: always(), ..WorkerConfig::default() };
    let (ended, [established, unknown, refusable]) = run(u64::MAX, 2000, config);
    let fact = |fact| ended.facts.of(fact);
    assert_eq!(refusable, 0);
    // One in ten of what was looked at, and all of them.
    assert_eq!(established, fact(WorkerCounter::TriageEstablished));
    assert!(established >= fact(WorkerCounter::TriageLooks) / 10 - 1);
    assert!(unknown < 2000 * 30, "{unknown}: looking ahead comes first");
    assert!(unknown > established, "{unknown}: and all that it leaves goes to unverified flows");
    let dropped =
        fact(fact_of(DropReason::TriageUnknown)) + fact(fact_of(DropReason::TriageRejectable));
    assert!(
        fact(WorkerCounter::DropsTriageUnknown) > 0
            && fact(WorkerCounter::DropsTriageRejectable) > 0
    );
    let known = established + unknown + dropped + fact(WorkerCounter::TriageWaiting);
    assert_eq!(fact(WorkerCounter::RxPackets), known, "{:?}", ended.facts);
}

#[test]
fn what_waits_is_served_when_the_flood_is_over() {
    let config = WorkerConfig { gate: always(), ..WorkerConfig::default() };
    let stop_after = u64::MAX;
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let stop = Stop::new().unwrap();
    let engine = Counter { seen: [0; 3], rounds: stop_after, stop };
    let ports = vec![Port::new(IfIndex(1), Box::new(Flood::of(300)))];
    let mut worker = Worker::new(engine, pool, Randomness::from_number(1), ports, config).unwrap();
    for turn in 1..=20 {
        worker.turn(Instant::from_nanos(turn));
    }
    assert_eq!(worker.engine().unwrap().seen, [30, 180, 0]);
}

/// Full polls that bring half of the ring, one that finds it so, and one more.
#[test]
fn a_burst_of_half_the_smallest_ring_is_no_pressure() {
    for (rings, pressed_at) in [([0, 1024], 2), ([4096, 1024], 9)] {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let engine = Counter { seen: [0; 3], rounds: u64::MAX, stop: Stop::new().unwrap() };
        let port = |(n, ring): (u16, usize)| {
            Port::new(IfIndex(n), Box::new(Flood { ring, ..Flood::of(u64::MAX) }))
        };
        let ports = (1..).zip(rings).map(port).collect();
        let (random, config) = (Randomness::from_number(1), WorkerConfig::default());
        let mut worker = Worker::new(engine, pool, random, ports, config).unwrap();
        let all_seen = |turn: &u64| {
            worker.turn(Instant::from_nanos(turn * 1000));
            worker.engine().unwrap().seen.iter().sum::<u64>() == turn * BURST_MAX as u64
        };
        assert_eq!((1..100).take_while(all_seen).count() + 1, pressed_at, "{rings:?}");
    }
}

#[test]
fn without_pressure_or_without_a_gate_everything_is_handled() {
    let never = GateConfig { patience: Duration::MAX, burst: usize::MAX, ..GateConfig::default() };
    for gate in [Some(never), None] {
        let config = WorkerConfig { gate, ..WorkerConfig::default() };
        let (ended, seen) = run(u64::MAX, 100, config);
        assert_eq!(seen.iter().sum::<u64>(), ended.facts.of(WorkerCounter::RxPackets));
        assert_eq!(ended.facts.of(WorkerCounter::TriageLooks), 0);
    }
}

#[test]
fn a_worker_that_shares_its_core_leaves_the_reserved_part_under_any_load() {
    for share in [500, 800] {
        let balance = BalanceConfig { share: Share::per_mille(share), ..BalanceConfig::default() };
        let config = WorkerConfig { balance: Some(balance), ..WorkerConfig::default() };
        let (ended, _) = run(u64::MAX, 20_000, config);
        let left = ended.facts.application_share().unwrap();
        // The last run has not been paid back when it ends.
        assert!(left + 50 >= u64::from(share), "{left} of {share}: {:?}", ended.facts);
        assert!(ended.facts.of(WorkerCounter::TimeSqueeze) > 0);
    }
    let (ended, _) = run(u64::MAX, 2000, WorkerConfig::default());
    assert_eq!(ended.facts.application_share(), None);
}

#[test]
fn a_turn_in_which_the_system_preempted_the_worker_is_not_paid_back() {
    let balance = BalanceConfig { share: Share::HALF, ..BalanceConfig::default() };
    let config = WorkerConfig { balance: Some(balance), ..WorkerConfig::default() };
    let at = |micros| Instant::ORIGIN + Duration::from_micros(micros);
    let preempted = Duration::from_micros(17_900);
    let until = TurnGate::new(&config, 0, false).ran(at(0), at(18_000), preempted);
    assert_eq!(until, None, "its 100 us are less than a period's budget");
    let until = TurnGate::new(&config, 0, false).ran(at(0), at(18_000), Duration::ZERO);
    assert_eq!(until, Some(at(36_000)));
}

#[test]
fn what_the_system_charges_a_worker_is_in_what_it_says_it_used() {
    let balance = BalanceConfig { share: Share::HALF, ..BalanceConfig::default() };
    let config = WorkerConfig { balance: Some(balance), ..WorkerConfig::default() };
    // Each of its own thread; what it takes to begin and to end is small beside 100,000 turns.
    let (said, charged) = thread::spawn(move || {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let stop = Stop::new().unwrap();
        let engine = Counter { seen: [0; 3], rounds: 100_000, stop: stop.clone() };
        let ports = vec![Port::new(IfIndex(1), Box::new(Flood::of(u64::MAX)))];
        let random = Randomness::from_number(1);
        let mut worker = Worker::new(engine, pool, random, ports, config).unwrap();
        let before = Clock::new().thread_time();
        let ended = worker.run(&stop).unwrap();
        (ended.facts, Clock::new().thread_time() - before)
    })
    .join()
    .unwrap();
    assert!(said.of(WorkerCounter::TimeSqueeze) > 0, "it rested");
    let ran = Duration::from_nanos(said.of(WorkerCounter::BalanceRanNanos));
    // Falling asleep and waking are a hundredth or two of it.
    assert!(ran + charged / 500 >= charged, "it used {charged:?} and reports {ran:?}");
}

#[test]
fn with_a_share_of_nothing_the_core_is_never_left_under_flood() {
    let balance = BalanceConfig { share: Share::NONE, ..BalanceConfig::default() };
    let config = WorkerConfig { balance: Some(balance), ..WorkerConfig::default() };
    let (ended, _) = run(u64::MAX, 5000, config);
    assert_eq!(ended.facts.application_share(), Some(0), "the criterion fails");
    assert_eq!(ended.facts.of(WorkerCounter::TimeSqueeze), 0);
}

#[test]
fn programs_that_say_they_are_idle_are_not_waited_for() {
    let applications = ApplicationShare::new();
    let config = WorkerConfig {
        balance: Some(BalanceConfig::default()),
        applications: Some(applications.clone()),
        ..WorkerConfig::default()
    };
    let (ended, _) = run(u64::MAX, 5000, config.clone());
    assert_eq!(ended.facts.of(WorkerCounter::TimeSqueeze), 0);
    let at_work = applications.at_work();
    let (ended, _) = run(u64::MAX, 5000, config);
    assert!(ended.facts.of(WorkerCounter::TimeSqueeze) > 0);
    drop(at_work);
    assert!(applications.are_idle());
}

#[test]
fn a_worker_says_what_it_lacks_for_sharing_and_goes_on() {
    let (events, told) = mpsc::sync_channel(4);
    let config = WorkerConfig {
        balance: Some(BalanceConfig::default()),
        events: Some(events),
        ..WorkerConfig::default()
    };
    let (ended, _) = run(u64::MAX, 100, config);
    assert!(ended.facts.of(WorkerCounter::BusyRounds) >= 100);
    match told.try_recv() {
        Ok(Event::SharesPoorly { words }) => assert!(words.contains("CAP_SYS_NICE"), "{words}"),
        Ok(event) => panic!("{event:?}"),
        Err(_) => eprintln!("nothing to show: this user has all privileges needed"),
    }
}

/// A flood on a device with a credit for unverified flows and reports of established ones.
struct Guarded {
    flood: Flood,
    credit: Option<usize>,
    lost: u64,
    /// Packets that come between two turns, and whether its ring overflows.
    comes: usize,
    overflows: bool,
    marked: Arc<AtomicUsize>,
    /// Whether there was ever a credit that can be used up.
    cut: Arc<AtomicUsize>,
}

impl Device for Guarded {
    fn info(&self) -> &DeviceInfo {
        &self.flood.info
    }

    fn admit(&mut self, _: Instant, credit: Option<usize>) {
        self.credit = credit;
        let is_cut = credit.is_some_and(|credit| credit < usize::MAX);
        self.cut.fetch_add(usize::from(is_cut), Ordering::Relaxed);
    }

    fn has_overflowed(&mut self) -> bool {
        core::mem::take(&mut self.overflows)
    }

    fn mark_established(&mut self, _: Instant, established: &PacketBuf) {
        assert_eq!(established.first(), b"f");
        self.marked.fetch_add(1, Ordering::Relaxed);
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let before = burst.len();
        for _ in 0..self.comes {
            if burst.room() == 0 {
                break;
            }
            let at = burst.len();
            burst.set_limit(at + 1);
            self.flood.receive(pool, burst)?;
            burst.set_limit(BURST_MAX);
            let is_established = burst.iter().nth(at).is_some_and(|packet| packet.first() == b"f");
            match &mut self.credit {
                Some(0) if !is_established => {
                    burst.sort_out(at, |_| None);
                    self.lost += 1;
                }
                Some(left) if !is_established => *left -= 1,
                _ => {}
            }
        }
        Ok(burst.len() - before)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        Ok(packets.take().len())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn pending(&self) -> bool {
        true
    }

    fn stats(&self) -> DeviceStats {
        let mut stats = DeviceStats::default();
        stats.rx_unverified = self.lost;
        stats
    }
}

/// Runs so many turns of a worker on a device that knows established flows, with so many arrivals
/// between two turns, and a ring that `overflows` in the first. Returns packets of established and
/// unverified flows that the engine got, flows reported to the device, turns in which its credit
/// was cut, and its losses.
fn run_guarded(
    turns: u64,
    gate: Option<GateConfig>,
    (comes, overflows): (usize, bool),
) -> ([u64; 2], usize, usize, u64) {
    let (marked, cut) = (Arc::default(), Arc::default());
    let device = Guarded {
        flood: Flood::of(u64::MAX),
        credit: None,
        lost: 0,
        comes,
        overflows,
        marked: Arc::clone(&marked),
        cut: Arc::clone(&cut),
    };
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let engine = Counter { seen: [0; 3], rounds: u64::MAX, stop: Stop::new().unwrap() };
    let config = WorkerConfig { gate, ..WorkerConfig::default() };
    let ports = vec![Port::new(IfIndex(1), Box::new(device))];
    let mut worker = Worker::new(engine, pool, Randomness::from_number(1), ports, config).unwrap();
    for turn in 0..turns {
        worker.turn(Instant::from_nanos(1 + turn * 20_000));
    }
    let [established, unknown, _] = worker.engine().unwrap().seen;
    let lost = worker.ports[0].report().stats.rx_unverified;
    ([established, unknown], marked.load(Ordering::Relaxed), cut.load(Ordering::Relaxed), lost)
}

#[test]
fn a_device_that_knows_established_flows_is_told_of_each_and_drops_the_rest_itself() {
    let ([established, unknown], marked, cut, lost) = run_guarded(1000, always(), (512, false));
    assert_eq!(marked as u64, established, "each established flow, and no other");
    assert_eq!(cut, 1000, "in every turn");
    assert!(lost > 0 && unknown > 0, "{lost} {unknown}");
    // One of ten packets is of an established flow: with indiscriminate loss, a tenth of what is
    // taken.
    assert!(established > 3 * (established + unknown) / 10, "{established} of {unknown} besides");
}

#[test]
fn without_a_gate_a_device_that_knows_established_flows_is_told_nothing() {
    let (_, marked, cut, lost) = run_guarded(100, None, (512, true));
    assert_eq!((marked, cut, lost), (0, 0, 0));
}

#[test]
fn a_ring_that_overflowed_makes_established_flows_known_though_polls_have_room() {
    let gate = Some(GateConfig::default());
    let ([established, _], marked, cut, _) = run_guarded(1000, gate, (10, false));
    assert!(established > 0);
    assert_eq!((marked, cut), (0, 0), "polls have room, and nothing is lost");
    let ([established, _], marked, cut, lost) = run_guarded(1000, gate, (10, true));
    assert_eq!(marked as u64, established, "they are known the next time");
    assert!(cut > 900 && lost == 0, "{cut} {lost}: what comes is less than the credit");
}
