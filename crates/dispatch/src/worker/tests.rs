//! The worker over devices made here: tests fill them, make them refuse and cut them.
#![expect(clippy::disallowed_methods, reason = "a worker under test has a thread of its own")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;

use floodwall_base::limits::WORK_UNITS;
use floodwall_base::{DropReason, IfIndex, Units};
use floodwall_device::{Device, DeviceInfo, DeviceStats, Medium};
use floodwall_packet::{PoolConfig, Round, Triage};
use floodwall_sync::lock::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::control::{COMMANDS_MAX, ControlQueue};
use crate::port::{BACKLOG_MAX, TX_ROOM, fact_of};

/// So often a slow device asks for time at most: for seconds.
const ASKS_MAX: usize = 50_000_000;
/// Patience of the tests with another thread: none of them asserts how long something took.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Inside {
    incoming: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    /// Packets that the device has room for.
    room: usize,
    gone: bool,
    /// Transmit calls so far.
    transmits: usize,
}

/// The far side of a device.
#[derive(Clone)]
struct Far {
    state: Arc<Mutex<Inside>>,
    called: Arc<OwnedFd>,
}

struct Fake {
    info: DeviceInfo,
    far: Far,
    stats: DeviceStats,
    has_descriptor: bool,
    lies: bool,
    waits_for_core: bool,
    /// One send takes all the time that there is.
    is_slow: bool,
    /// So do so many reads.
    slow_reads: Option<usize>,
}

fn fake(name: &str) -> (Fake, Far) {
    let called = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let state = Inside { room: usize::MAX, ..Inside::default() };
    let far = Far { state: Arc::new(Mutex::new(state)), called: Arc::new(called) };
    let info = DeviceInfo {
        name: name.to_owned(),
        medium: Medium::Ip,
        mtu: 1500,
        mac: None,
        offload: false,
    };
    let stats = DeviceStats::default();
    let device = Fake {
        info,
        far: far.clone(),
        stats,
        has_descriptor: true,
        lies: false,
        waits_for_core: false,
        is_slow: false,
        slow_reads: None,
    };
    (device, far)
}

impl Far {
    fn push(&self, bytes: &[u8]) {
        self.push_many(1, bytes);
    }

    fn push_many(&self, n: usize, bytes: &[u8]) {
        self.state.lock().unwrap().incoming.extend((0..n).map(|_| bytes.to_vec()));
        self.call();
    }

    fn call(&self) {
        rustix::io::write(&*self.called, &1_u64.to_ne_bytes()).unwrap();
    }

    fn cut(&self) {
        self.state.lock().unwrap().gone = true;
        self.call();
    }

    fn sent(&self) -> usize {
        self.state.lock().unwrap().sent.len()
    }

    fn wait_for_sent(&self, n: usize) {
        wait_until(|| self.sent() >= n);
    }
}

fn wait_until(mut happened: impl FnMut() -> bool) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    while !happened() {
        assert!(clock.now() < end, "it never happened");
        thread::yield_now();
    }
}

impl Device for Fake {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn receive_while(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        let Some(reads) = self.slow_reads else { return self.receive(pool, burst) };
        burst.set_limit((burst.len() + reads).min(BURST_MAX));
        let taken = self.receive(pool, burst);
        let has_more = !self.far.state.lock().unwrap().incoming.is_empty();
        let _ = has_more && (0..ASKS_MAX).any(|_| !goes_on());
        taken
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let mut state = self.far.state.lock().unwrap();
        if state.gone {
            return Err(DeviceError::Gone { device: self.info.name.clone() });
        }
        let mut count = 0;
        while burst.room() > 0
            && let Some(bytes) = state.incoming.pop_front()
        {
            if let Some(packet) = pool.packet_from(&bytes) {
                burst.push(packet).unwrap();
                count += 1;
            }
        }
        if state.incoming.is_empty() && !self.lies {
            let _ = rustix::io::read(&*self.far.called, &mut [0; 8]);
        }
        self.stats.rx_packets += count as u64;
        Ok(count)
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        let mut state = self.far.state.lock().unwrap();
        if state.gone {
            return Err(DeviceError::Gone { device: self.info.name.clone() });
        }
        state.transmits += 1;
        let mut count = 0;
        while state.room > 0
            && let Some(packet) = packets.pop_front()
        {
            state.room -= 1;
            state.sent.push(packet.first().to_vec());
            count += 1;
        }
        self.stats.tx_packets += count as u64;
        Ok(count)
    }

    fn transmit_while(
        &mut self,
        packets: &mut PacketList,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<usize, DeviceError> {
        if !self.is_slow {
            return self.transmit(packets);
        }
        let mut one = PacketList::new();
        packets.pop_front().into_iter().for_each(|packet| one.push_back(packet));
        let sent = self.transmit(&mut one);
        while goes_on() {}
        sent
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.has_descriptor.then(|| self.far.called.as_fd())
    }

    fn pending(&self) -> bool {
        !self.has_descriptor && !self.far.state.lock().unwrap().incoming.is_empty()
    }

    fn waits_for_core(&self) -> bool {
        self.waits_for_core
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

/// Sends back what arrives; the first byte is the interface to use, 0 for the same.
#[derive(Default)]
struct Echo {
    seen: Vec<(IfIndex, u8)>,
    works: u64,
    /// Left to be done as timed work, one unit each.
    owed: u64,
    copies: usize,
    deadline: Option<Instant>,
    /// The delay from the first query of its deadline, and the deadline.
    after: Option<Duration>,
    due: Cell<Option<Instant>>,
    /// Packets that it leaves in the devices.
    unwanted: usize,
    /// How long a unit of its timed work takes by the clock, however it is estimated.
    unit_takes: Duration,
    /// Units that it was granted for timed work, slice by slice.
    granted: Vec<u32>,
    /// Packets that may wait for devices, as it was told last.
    tx_room: Option<usize>,
    /// How often its memory was touched.
    touched: usize,
}

impl Engine for Echo {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let mut spent = 0;
        for mut packet in round.arrived.drain() {
            spent += 1;
            let [to, mark, ..] = *packet.first() else { continue };
            self.seen.push((packet.iface(), mark));
            if to != 0 {
                packet.set_iface(IfIndex(to.into()));
            }
            for _ in 0..self.copies {
                let mut copy = round.pool.packet_from(&[to, mark]).unwrap();
                copy.set_iface(packet.iface());
                round.departing.push_back(copy);
            }
            round.departing.push_back(packet);
        }
        Units(spent)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        assert!(round.arrived.is_empty(), "timed work gets no packets");
        self.works += 1;
        self.granted.push(round.budget.0);
        let done = self.owed.min(round.budget.0.into());
        if self.unit_takes > Duration::ZERO {
            let (clock, takes) = (Clock::new(), self.unit_takes * done as u32);
            let end = clock.now() + takes;
            while clock.now() < end {}
        }
        self.owed -= done;
        if self.owed == 0 {
            (self.deadline, self.after) = (None, None);
        }
        Units(done as u32)
    }

    fn deadline(&self) -> Option<Instant> {
        let Some(after) = self.after else { return self.deadline };
        let due = self.due.get().unwrap_or_else(|| Clock::new().now() + after);
        self.due.set(Some(due));
        Some(due)
    }

    fn touch_memory(&mut self) -> usize {
        self.touched += 1;
        self.touched
    }

    fn set_tx_room(&mut self, packets: usize) {
        self.tx_room = Some(packets);
    }

    fn rx_capacity(&self, _: Instant) -> usize {
        BURST_MAX.saturating_sub(self.unwanted)
    }

    fn classify(&self, _: &Burst, _: &mut [Triage]) {}
}

impl Publish for Echo {
    fn words(&self, out: &mut [u64]) {
        assert_eq!(out.len(), crate::WORDS_MAX);
        out[0] = self.seen.len() as u64;
    }
}

fn worker(engine: Echo, devices: Vec<Fake>, config: WorkerConfig) -> Worker<Echo> {
    let pool = Pool::new(&PoolConfig { frames: 2048, small: 2048, ..PoolConfig::default() });
    let port = |(i, device): (usize, Fake)| Port::new(IfIndex(i as u16 + 1), Box::new(device));
    let ports = devices.into_iter().enumerate().map(port).collect();
    Worker::new(engine, pool.unwrap(), Randomness::from_number(1), ports, config).unwrap()
}

fn simple(devices: Vec<Fake>) -> Worker<Echo> {
    worker(Echo::default(), devices, WorkerConfig::default())
}

/// What a test keeps of a worker that runs on a thread of its own.
struct Running {
    stop: Stop,
    control: Control<Echo>,
    reader: PublishedReader,
    thread: thread::JoinHandle<Result<Ended, WorkerError>>,
}

/// Starts a worker on a thread of its own, where its pool must be made.
fn start(make: impl FnOnce() -> Worker<Echo> + Send + 'static) -> Running {
    let stop = Stop::new().unwrap();
    let (tell, told) = mpsc::channel();
    let stopped = stop.clone();
    let thread = thread::spawn(move || {
        let mut worker = make();
        tell.send((worker.control(), worker.reader())).unwrap();
        worker.run(&stopped)
    });
    let (control, reader) = told.recv().unwrap();
    Running { stop, control, reader, thread }
}

impl Running {
    fn end(self) -> Result<Ended, WorkerError> {
        self.stop.trigger();
        self.thread.join().unwrap()
    }
}

#[test]
fn timed_work_with_a_wrong_estimate_ends_its_turn_by_the_clock() {
    let (a, _far) = fake("a");
    let running = start(move || {
        let engine = Echo {
            owed: 300,
            deadline: Some(Instant::ORIGIN),
            // A half of the longest turn: a whole slice of these is 16 ms.
            unit_takes: Duration::from_micros(250),
            ..Echo::default()
        };
        worker(engine, vec![a], WorkerConfig::default())
    });
    let mut granted_so_far = Vec::new();
    wait_until(|| {
        let (owed, all) = running
            .control
            .ask(PATIENCE, |desk| (desk.engine.owed, desk.engine.granted.clone()))
            .expect("it answers");
        granted_so_far = all;
        owed == 0
    });
    // The first piece took too long, and so did half of it; a busy machine makes no piece shorter.
    let units: Vec<u32> = granted_so_far;
    assert_eq!(units[..5], [16, 8, 4, 2, 1], "{units:?}");
    assert!(units[5..].iter().all(|units| *units == 1), "{units:?}");
    assert!(running.end().is_ok());
}

#[test]
fn packets_go_through_the_engine_and_leave_by_the_interface_they_name() {
    let ((a, far_a), (b, far_b)) = (fake("a"), fake("b"));
    let mut worker = simple(vec![a, b]);
    far_a.push(&[0, 1]);
    far_a.push(&[2, 2]);
    far_b.push(&[1, 3]);
    assert_eq!(worker.turn(Instant::ORIGIN), 3);
    let seen = [(IfIndex(1), 1), (IfIndex(1), 2), (IfIndex(2), 3)];
    assert_eq!(worker.engine().unwrap().seen, seen);
    assert_eq!(far_a.state.lock().unwrap().sent, [vec![0, 1], vec![1, 3]]);
    assert_eq!(far_b.state.lock().unwrap().sent, [vec![2, 2]]);
    let facts = worker.facts();
    assert_eq!((facts.of(WorkerCounter::SentPackets), facts.of(WorkerCounter::TxPackets)), (3, 3));
    assert_eq!((facts.of(WorkerCounter::Units), facts.lost()), (3, 0));
}

#[test]
fn each_device_gets_the_first_word_in_turn_and_a_turn_has_one_burst() {
    let ((a, far_a), (b, far_b)) = (fake("flooded"), fake("quiet"));
    let mut worker = simple(vec![a, b]);
    far_a.push_many(10 * BURST_MAX, &[0, 1]);
    far_b.push(&[0, 2]);
    assert_eq!(worker.turn(Instant::ORIGIN), BURST_MAX);
    assert_eq!(far_b.sent(), 0);
    assert_eq!(worker.turn(Instant::ORIGIN), BURST_MAX);
    assert_eq!(far_b.sent(), 1, "the quiet device waits one turn at most");
}

#[test]
fn an_engine_that_is_nearly_full_gets_no_more_than_it_is_willing_to_take() {
    let ((a, far_a), (b, far_b)) = (fake("a"), fake("b"));
    let engine = Echo { unwanted: BURST_MAX - 5, ..Echo::default() };
    let mut worker = worker(engine, vec![a, b], WorkerConfig::default());
    far_a.push_many(3, &[0, 1]);
    far_b.push_many(10, &[0, 2]);
    assert_eq!(worker.turn(Instant::ORIGIN), 5);
    let seen: Vec<_> = worker.engine().unwrap().seen.iter().map(|(_, mark)| *mark).collect();
    assert_eq!(seen, [1, 1, 1, 2, 2]);
    assert_eq!(far_b.state.lock().unwrap().incoming.len(), 8, "the rest waits in its device");
}

#[test]
fn an_engine_that_is_full_costs_no_core_and_is_served_again_once_it_is_not() {
    let (a, far) = fake("a");
    let running = start(move || {
        let engine = Echo { unwanted: BURST_MAX, ..Echo::default() };
        worker(engine, vec![a], WorkerConfig::default())
    });
    far.push_many(10, &[0, 1]);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(far.sent(), 0);
    let facts = running.control.ask(PATIENCE, |desk| desk.engine.unwanted = 0);
    assert!(facts.is_ok());
    far.wait_for_sent(10);
    let facts = running.end().unwrap().facts;
    // A look a millisecond, where a busy loop would make tens of thousands.
    assert!(facts.of(WorkerCounter::Rounds) < 2000, "{facts:?}");
    assert_eq!(facts.of(WorkerCounter::RxPackets), 10);
}

#[test]
fn a_device_that_is_full_keeps_a_bounded_backlog_in_order_and_loses_the_rest_by_name() {
    let (a, far) = fake("a");
    far.state.lock().unwrap().room = 3;
    let mut worker = simple(vec![a]);
    let arrivals = BACKLOG_MAX + 2 * BURST_MAX;
    for mark in 0..arrivals {
        far.push(&[0, mark as u8]);
    }
    while worker.turn(Instant::ORIGIN) > 0 {}
    let facts = worker.facts().clone();
    assert_eq!(facts.of(WorkerCounter::TxPackets), 3);
    assert_eq!(facts.of(WorkerCounter::Backlog), BACKLOG_MAX as u64);
    let lost = (arrivals - 3 - BACKLOG_MAX) as u64;
    assert_eq!(facts.of(fact_of(DropReason::DeviceFull)), lost);
    assert_eq!(
        facts.of(WorkerCounter::SentPackets),
        facts.of(WorkerCounter::TxPackets) + lost + BACKLOG_MAX as u64
    );

    far.state.lock().unwrap().room = usize::MAX;
    worker.turn(Instant::ORIGIN);
    let sent = far.state.lock().unwrap().sent.clone();
    assert_eq!(sent.len(), 3 + BACKLOG_MAX);
    assert!(sent.iter().zip(0..).all(|(packet, mark)| packet[1] == mark as u8));
    assert_eq!(worker.facts().of(WorkerCounter::Backlog), 0);
}

#[test]
fn a_device_that_refuses_is_asked_once_a_turn() {
    let (a, far) = fake("a");
    far.state.lock().unwrap().room = 0;
    let mut worker =
        worker(Echo { copies: 9, ..Echo::default() }, vec![a], WorkerConfig::default());
    far.push_many(BURST_MAX, &[0, 7]);
    worker.turn(Instant::ORIGIN);
    assert_eq!(far.state.lock().unwrap().transmits, 1);
    assert_eq!(
        worker.facts().of(WorkerCounter::DropsDeviceFull),
        (10 * BURST_MAX - BACKLOG_MAX) as u64
    );
}

#[test]
fn more_than_a_backlog_in_one_turn_leaves_whole_where_the_device_takes_it() {
    let (a, far) = fake("a");
    let mut worker =
        worker(Echo { copies: 9, ..Echo::default() }, vec![a], WorkerConfig::default());
    far.push_many(BURST_MAX, &[0, 7]);
    worker.turn(Instant::ORIGIN);
    assert_eq!((far.sent(), worker.facts().lost()), (10 * BURST_MAX, 0));
}

#[test]
fn an_engine_is_told_how_many_packets_there_is_time_to_send() {
    let (device, far) = fake("slow");
    let engine = Echo { copies: 99, ..Echo::default() };
    let mut worker =
        worker(engine, vec![Fake { is_slow: true, ..device }], WorkerConfig::default());
    let clock = Clock::new();
    worker.clock = Some(clock);
    far.push(&[0, 1]);
    for left in (0..100).rev() {
        worker.turn(clock.now());
        assert_eq!(worker.facts().of(WorkerCounter::Backlog), left);
        let room = worker.engine().and_then(|engine| engine.tx_room);
        // Beside a long backlog answers have their part of it.
        assert_eq!(room, Some(TX_ROOM.min(BACKLOG_MAX - BURST_MAX - left as usize)));
    }
    assert_eq!(far.sent(), 100);
}

/// As programs run their engines.
#[test]
fn an_engine_that_is_shown_is_told_so_too() {
    let mut shown = crate::publish::Shown::silent(Echo::default());
    shown.set_tx_room(7);
    assert_eq!(shown.engine.tx_room, Some(7));
    assert_eq!((shown.touch_memory(), shown.engine.touched), (1, 1));
}

#[test]
fn an_engine_touches_its_memory_once_before_the_first_packet() {
    let (a, far) = fake("a");
    let mut worker = simple(vec![a]);
    assert_eq!(worker.engine().map(|engine| engine.touched), Some(1));
    far.push(&[0, 1]);
    worker.turn(Instant::ORIGIN);
    assert_eq!(worker.engine().map(|engine| engine.touched), Some(1));
}

#[test]
fn packets_that_there_is_no_time_to_receive_wait_in_their_devices_which_take_turns() {
    let ((a, far_a), (b, far_b)) = (fake("a"), fake("b"));
    let slow = |device| Fake { slow_reads: Some(8), ..device };
    let mut worker = simple(vec![slow(a), slow(b)]);
    let clock = Clock::new();
    worker.clock = Some(clock);
    far_a.push_many(24, &[0, 1]);
    far_b.push_many(16, &[0, 2]);
    let mut taken = || {
        // On a busy machine, too: a turn that was preempted would take less the next time.
        worker.packet_limit = TurnLimit::of_packets();
        let found = worker.turn(clock.now());
        let waiting = [&far_a, &far_b].map(|far| far.state.lock().unwrap().incoming.len());
        let cuts = worker.facts().of(WorkerCounter::ReceiveCuts);
        // Whether the next turn follows at once.
        (found, waiting, cuts, worker.gate.has_more())
    };
    assert_eq!(taken(), (8, [16, 16], 1, true));
    assert_eq!(taken(), (8, [16, 8], 2, true));
    assert_eq!(taken(), (8, [8, 8], 3, true));
    // A device that has nothing left needs no more time.
    assert_eq!(taken(), (16, [0, 0], 3, false));
    assert_eq!(far_a.sent() + far_b.sent(), 40);
}

#[test]
fn packets_wait_for_the_next_turn_behind_a_slice_that_took_the_time_of_one() {
    let (a, far) = fake("a");
    let engine = Echo {
        owed: 2,
        deadline: Some(Instant::ORIGIN),
        unit_takes: Duration::from_millis(1),
        ..Echo::default()
    };
    let mut worker = worker(engine, vec![a], WorkerConfig::default());
    let clock = Clock::new();
    worker.clock = Some(clock);
    worker.owes_slice = true;
    far.push(&[0, 1]);
    assert_eq!((worker.turn(clock.now()), far.sent()), (0, 0));
    assert_eq!(worker.engine().map(|engine| engine.works), Some(1));
    assert!(!worker.owes_slice);
    assert_eq!((worker.turn(clock.now()), far.sent()), (1, 1));
}

#[test]
fn a_packet_for_an_interface_without_device_is_dropped_by_name() {
    let (a, far) = fake("a");
    let mut worker = simple(vec![a]);
    far.push(&[9, 1]);
    far.push(&[255, 1]);
    worker.turn(Instant::ORIGIN);
    let unknown = fact_of(DropReason::InterfaceUnknown);
    assert_eq!((worker.facts().of(unknown), far.sent()), (2, 0));
}

#[test]
fn a_device_that_vanishes_takes_its_packets_along_and_the_worker_goes_on_with_the_others() {
    let ((a, far_a), (b, far_b)) = (fake("a"), fake("b"));
    let (events, happened) = mpsc::sync_channel(4);
    let config = WorkerConfig { events: Some(events), ..WorkerConfig::default() };
    let mut worker = worker(Echo::default(), vec![a, b], config);
    far_a.state.lock().unwrap().room = 0;
    far_a.push_many(5, &[0, 1]);
    worker.turn(Instant::ORIGIN);
    far_a.cut();
    far_b.push(&[1, 2]);
    far_b.push(&[2, 2]);
    worker.turn(Instant::ORIGIN);
    let gone = fact_of(DropReason::DeviceGone);
    assert_eq!(worker.facts().of(gone), 6, "five that waited, one that was sent too late");
    assert_eq!((worker.facts().of(WorkerCounter::DevicesLive), far_b.sent()), (1, 1));
    let Ok(Event::DeviceLost { device, error }) = happened.try_recv() else { panic!("no event") };
    assert_eq!(device, "a");
    assert!(error.contains("gone"), "{error}");
    let report = worker.ports[0].report();
    assert_eq!((report.error, report.stats.rx_packets), (Some(error), 5));
}

#[test]
fn the_worker_ends_with_the_error_of_its_last_device() {
    let (a, far) = fake("fw0");
    let running = start(|| simple(vec![a]));
    far.cut();
    let error = running.thread.join().unwrap().unwrap_err();
    assert!(
        matches!(&error, WorkerError::NoDeviceLeft(DeviceError::Gone { device }) if device == "fw0")
    );
    assert!(error.to_string().starts_with("no device is left: fw0"), "{error}");
}

#[test]
fn an_idle_worker_sleeps_once_and_wakes_for_each_packet_once() {
    let (a, far) = fake("a");
    let running = start(|| simple(vec![a]));
    wait_until(|| running.reader.read().facts.of(WorkerCounter::Sleeps) == 1);
    thread::sleep(Duration::from_millis(100));
    let facts = running.reader.read().facts;
    assert_eq!(
        (facts.of(WorkerCounter::Sleeps), facts.of(WorkerCounter::Rounds)),
        (1, 1),
        "{facts:?}"
    );
    for n in 1..=20 {
        far.push(&[0, 1]);
        far.wait_for_sent(n);
    }
    let facts = running.end().unwrap().facts;
    assert!(facts.of(WorkerCounter::Sleeps) <= 22, "{facts:?}");
    assert!(
        facts.of(WorkerCounter::Rounds) <= 22,
        "one turn each, and none for nothing: {facts:?}"
    );
    assert_eq!(facts.of(WorkerCounter::WakesTimer), 0);
    assert_eq!(facts.of(WorkerCounter::TxPackets), 20);
}

#[test]
fn an_empty_turn_is_repeated_under_load_but_not_where_its_device_waits_for_the_core() {
    for waits_for_core in [false, true] {
        let (device, far) = fake("f0");
        let mut worker = simple(vec![Fake { waits_for_core, ..device }, fake("f1").0]);
        let now = Instant::ORIGIN;
        // Load, and then nothing: another look may find more.
        assert_eq!(worker.has_more(LOAD_BURST, now, true), !waits_for_core);
        assert_eq!(worker.has_more(0, now, true), !waits_for_core);
        // A full turn is another matter: there is more already.
        far.push_many(BURST_MAX, &[1, 0, 9]);
        let found = worker.turn(now);
        assert!(worker.has_more(found, now, true));
    }
}

#[test]
fn a_deadline_of_the_engine_ends_the_sleep_and_timed_work_goes_on_until_it_is_done() {
    let (a, _far) = fake("a");
    let owed = 3 * u64::from(WORK_UNITS) + 1;
    // From the worker's first query, just before it sleeps, however long the start took.
    let after = Some(Duration::from_millis(200));
    let running = start(move || {
        worker(Echo { owed, after, ..Echo::default() }, vec![a], WorkerConfig::default())
    });
    wait_until(|| running.reader.read().facts.of(WorkerCounter::WorkSlices) == 4);
    let facts = running.end().unwrap().facts;
    assert_eq!(facts.of(WorkerCounter::Units), owed);
    assert_eq!(facts.of(WorkerCounter::WakesTimer), 1, "{facts:?}");
}

#[test]
fn timed_work_gets_one_bounded_slice_in_every_turn_of_a_flood() {
    let (a, far) = fake("a");
    let engine = Echo { owed: 1000, deadline: Some(Instant::ORIGIN), ..Echo::default() };
    let mut worker = worker(engine, vec![a], WorkerConfig::default());
    far.push_many(5 * BURST_MAX, &[0, 1]);
    for turn in 1..=5 {
        assert_eq!(worker.turn(Instant::ORIGIN), BURST_MAX);
        assert_eq!(worker.engine().unwrap().works, turn);
        assert_eq!(worker.engine().unwrap().owed, 1000 - turn * u64::from(WORK_UNITS));
    }
}

#[test]
fn it_stops_under_load() {
    let (a, far) = fake("a");
    let running = start(|| simple(vec![a]));
    let feeder = thread::spawn({
        let stop = running.stop.clone();
        move || {
            while !stop.is_triggered() {
                far.state.lock().unwrap().sent.clear();
                far.push_many(BURST_MAX, &[0, 1]);
            }
        }
    });
    wait_until(|| running.reader.read().facts.of(WorkerCounter::TxPackets) > 10_000);
    let ended = running.end().unwrap();
    feeder.join().unwrap();
    let facts = &ended.facts;
    assert!(facts.of(WorkerCounter::TxPackets) > 10_000);
    assert_eq!(
        facts.of(WorkerCounter::SentPackets),
        facts.of(WorkerCounter::TxPackets) + facts.lost()
    );
    assert_eq!(ended.ports[0].stats.tx_packets, facts.of(WorkerCounter::TxPackets));
}

#[test]
fn requests_of_other_threads_are_answered_asleep_and_under_load() {
    let (a, far) = fake("a");
    let running = start(|| simple(vec![a]));
    let seen = |desk: &mut ControlQueue<'_, Echo>| (desk.engine.seen.len(), desk.ports().len());
    for _ in 0..100 {
        assert_eq!(running.control.ask(PATIENCE, seen), Ok((0, 1)));
    }
    let (pushed, asked) = (50 * BURST_MAX, 50);
    far.push_many(pushed, &[0, 1]);
    for _ in 0..asked {
        assert!(running.control.ask(PATIENCE, seen).is_ok());
    }
    far.wait_for_sent(pushed);
    let control = running.control.clone();
    let facts = running.end().unwrap().facts;
    assert_eq!(facts.of(WorkerCounter::Commands), 100 + asked);
    assert_eq!(control.ask(PATIENCE, seen), Err(crate::ControlError::Ended));
}

#[test]
fn a_full_mailbox_refuses_at_once_and_is_emptied_a_few_a_turn() {
    let (a, _far) = fake("a");
    let mut worker = simple(vec![a]);
    let control = worker.control();
    let posted = (0..).take_while(|_| control.post(WorkerCommand::new(|_| {})).is_ok()).count();
    assert_eq!(posted, 64);
    assert_eq!(control.post(WorkerCommand::new(|_| {})), Err(crate::ControlError::Full));
    worker.turn(Instant::ORIGIN);
    assert_eq!(worker.facts().of(WorkerCounter::Commands), COMMANDS_MAX as u64);
    for _ in 0..posted {
        worker.turn(Instant::ORIGIN);
    }
    assert_eq!(worker.facts().of(WorkerCounter::Commands), posted as u64);
}

#[test]
fn a_device_without_descriptor_is_served_by_the_bell_and_by_looking() {
    let (a, far) = fake("a");
    let config = WorkerConfig { look_every: Duration::from_secs(3600), ..WorkerConfig::default() };
    let (tell, told) = mpsc::channel();
    let running = start(move || {
        let silent = Fake { has_descriptor: false, ..a };
        let worker = worker(Echo::default(), vec![silent], config);
        tell.send(worker.bell()).unwrap();
        worker
    });
    let bell = told.recv().unwrap();
    for n in 1..=10 {
        far.push(&[0, 1]);
        bell.ring();
        far.wait_for_sent(n);
    }
    assert!(running.end().unwrap().facts.of(WorkerCounter::Sleeps) <= 12);

    let (b, far) = fake("b");
    let running = start(move || simple(vec![Fake { has_descriptor: false, ..b }]));
    far.push(&[0, 1]);
    far.wait_for_sent(1);
    assert!(running.end().is_ok());
}

#[test]
fn a_descriptor_that_always_calls_for_nothing_does_not_keep_the_core_busy() {
    let (a, far) = fake("a");
    let running = start(move || simple(vec![Fake { lies: true, ..a }]));
    far.call();
    thread::sleep(Duration::from_millis(200));
    far.push(&[0, 1]);
    far.wait_for_sent(1);
    let facts = running.end().unwrap().facts;
    // Eight wake-ups are accepted, then one in 20 ms: far below a busy loop's tens of thousands.
    assert!(facts.of(WorkerCounter::WakesDevice) < 1000, "{facts:?}");
}

#[test]
fn a_backlog_is_tried_again_without_being_called() {
    let (a, far) = fake("a");
    far.state.lock().unwrap().room = 0;
    let running = start(|| simple(vec![a]));
    far.push(&[0, 1]);
    wait_until(|| far.state.lock().unwrap().transmits >= 3);
    far.state.lock().unwrap().room = 1;
    far.wait_for_sent(1);
    let facts = running.end().unwrap().facts;
    assert_eq!((facts.of(WorkerCounter::TxPackets), facts.of(WorkerCounter::Backlog)), (1, 0));
}

#[test]
fn a_snapshot_holds_the_facts_and_the_engine_of_the_same_moment() {
    let (a, far) = fake("a");
    let running = start(|| simple(vec![a]));
    far.push_many(500 * BURST_MAX, &[0, 1]);
    let mut last = 0;
    while last < 500 * BURST_MAX as u64 {
        let seen = running.reader.read();
        assert_eq!(seen.facts.of(WorkerCounter::RxPackets), seen.words[0]);
        let out = seen.facts.of(WorkerCounter::TxPackets) + seen.facts.of(WorkerCounter::Backlog);
        assert_eq!(seen.facts.of(WorkerCounter::SentPackets), out + seen.facts.lost());
        last = seen.words[0];
    }
    running.end().unwrap();
}

#[test]
fn too_many_devices_are_refused_in_words() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let ports = (0..65).map(|_| Port::new(IfIndex(1), Box::new(fake("a").0))).collect();
    let random = Randomness::from_number(1);
    let refused = Worker::new(Echo::default(), pool, random, ports, WorkerConfig::default());
    assert!(refused.unwrap_err().to_string().contains("64 at most"));
}

#[test]
fn a_turn_does_not_grow_the_pool_debt() {
    let (a, far) = fake("a");
    let mut worker = simple(vec![a]);
    let before = worker.pool.available();
    far.push_many(1000, &[0, 1]);
    while worker.turn(Instant::ORIGIN) > 0 {}
    assert_eq!(worker.pool.available(), before);
}
