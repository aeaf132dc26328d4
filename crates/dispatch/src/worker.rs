//! `Worker`: the loop that runs one engine on its devices.
//!
//! Called by a program on the thread that shall be the worker, alone or as one of a worker group
//! (`worker_group.rs`). What one turn does is in `turn.rs`; here is what goes on between turns.
//! While packets come it polls; when none come it sleeps, offline for the reclamation that the
//! workers of a worker group share, and costs nothing.
//!
//! Invariants: the engine's deadline, its devices, the bell and its neighbours' hand-offs end a
//! sleep, and nothing that came before it is missed; nothing is allocated and no lock is taken
//! without a request; a device that vanishes takes nothing with it but its own packets.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, Randomness};
use floodwall_device::{DeviceError, NapiRank, ThreadTime};
use floodwall_packet::{Burst, Engine, PacketList, Pool, RxFilter};
use floodwall_schedule::{BalanceConfig, GateConfig};
use thiserror::Error;

use crate::bell::Bell;
use crate::clock::Clock;
use crate::control::{Control, WorkerCommand, mailbox};
use crate::core_share::CoreShare;
use crate::membership::{GroupCommands, Setting};
use crate::offers::Offers;
use crate::panics::{PanicReport, Restarts};
use crate::port::{Port, PortReport};
use crate::publish::{Publish, PublishedReader, Publisher};
use crate::redirects::Redirects;
use crate::sleep::{PORTS_MAX, WakeReason, sleep, stay_away};
use crate::standing::Standing;
use crate::stop::Stop;
use crate::turn_gate::{ApplicationShare, TurnGate};
use crate::turn_limit::TurnLimit;
use crate::turn_watch::TurnWatch;
use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// A burst of so many packets means load: the next ones are worth polling for.
const LOAD_BURST: usize = 8;
/// Fewer packets are taken out of memory in no time worth a look at the clock.
const RECEIVE_NOTED: usize = 8;
/// How often, and for how long at most, an empty turn is repeated under load before sleeping.
const EMPTY_TURN_SPIN: (u32, Duration) = (16, Duration::from_micros(50));
/// Interval after which devices are polled again when the engine had no receive capacity
/// (backpressure).
const FEEDBACK_LOOK: Duration = Duration::from_millis(1);
/// How long a worker that ends waits for room in its devices, and for its neighbours.
const LAST_SENDS: Duration = Duration::from_millis(50);
/// While busy, a snapshot is published so often at most.
const PUBLISH_EVERY: Duration = Duration::from_millis(1);

/// How a worker behaves.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// How often a device without a descriptor is looked at when idle. Its other end may ring the
    /// [`Bell`] instead, and then this may be long.
    pub look_every: Duration,
    /// The receiver of device events. The worker never waits for it.
    pub events: Option<SyncSender<Event>>,
    /// The order of service (priority of established flows) while packets come faster than the
    /// worker handles them; `None` is in order of arrival. Costs nothing without such pressure.
    pub gate: Option<GateConfig>,
    /// How it shares its core with threads of the application; without, it takes all it can use.
    pub balance: Option<BalanceConfig>,
    /// How those threads report that they have no work; without it, they count as busy.
    pub applications: Option<ApplicationShare>,
    /// Programs of any process count as well, and the core is shared only while some are at work on
    /// it: it is watched. For workers of a worker group that have a core each, with `balance`, and
    /// without `applications`; of no effect for others.
    pub watches_core: bool,
}

impl Default for WorkerConfig {
    /// A core of its own, established flows first.
    fn default() -> Self {
        Self {
            look_every: Duration::from_millis(1),
            events: None,
            gate: Some(GateConfig::default()),
            balance: None,
            applications: None,
            watches_core: false,
        }
    }
}

/// An event that a program may want to report to its operator at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A device vanished; the others go on.
    DeviceLost {
        /// The device's name.
        device: String,
        /// What happened and what to do, as text.
        error: String,
    },
    /// The worker shares its core and lacks a privilege for it; it goes on as well as it can.
    SharesPoorly {
        /// What is missing, what that costs and how to get it, as text.
        words: String,
    },
    /// A shard panicked and was left behind; the others go on, and it is made again.
    Panicked(PanicReport),
}

/// The reason that a worker could not start, or ended without a stop request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The last device vanished.
    #[error("no device is left: {0}")]
    NoDeviceLeft(DeviceError),
    /// More devices than a worker can wait for.
    #[error("{0} devices are too many for one worker: {PORTS_MAX} at most, queues included")]
    TooManyPorts(usize),
    /// The engine could not be made.
    #[error("{0}")]
    NotMade(String),
    /// The worker panicked, and the policy is to end.
    #[error("{0}")]
    Panicked(PanicReport),
    /// The system refused something that a worker needs.
    #[error("the worker cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// The state of a worker that ended on request.
#[derive(Debug)]
pub struct Ended {
    /// What the loop has counted.
    pub facts: WorkerCounters,
    /// What each device has carried and lost.
    pub ports: Vec<PortReport>,
}

/// A worker: one thread's loop over an engine, its packet memory and its ports.
pub struct Worker<E: 'static> {
    /// `None` after a panic, until it is made again.
    pub(crate) engine: Option<E>,
    pub(crate) ports: Vec<Port>,
    /// Which port transmits for an interface.
    pub(crate) port_of: Vec<Option<usize>>,
    pub(crate) burst: Burst,
    pub(crate) departing: PacketList,
    /// What the engine accepts, as last reported to devices, and the versions of that report.
    pub(crate) wanted: RxFilter,
    pub(crate) wants_told: Option<(u64, u64)>,
    /// The same of what SYNs are answered with.
    pub(crate) offers: Offers,
    /// The same of what devices pass on by themselves.
    pub(crate) redirects: Redirects,
    /// Whether any device cares.
    pub(crate) tells_wants: bool,
    /// Of fewer packets the time is not noted in which they are received.
    pub(crate) receive_noted: usize,
    /// How many of them there were before the call of the engine that runs.
    pub(crate) sent_before: usize,
    pub(crate) random: Randomness,
    /// The port that is polled first in the next turn.
    pub(crate) first: usize,
    pub(crate) facts: WorkerCounters,
    publisher: Publisher,
    reader: PublishedReader,
    published: Instant,
    pub(crate) bell: Bell,
    control: Control<E>,
    pub(crate) mailbox: Receiver<WorkerCommand<E>>,
    config: WorkerConfig,
    /// The order of service under pressure, and the worker's share of its core.
    pub(crate) gate: TurnGate,
    /// Others on its core, where it shares it.
    pub(crate) core: Option<CoreShare>,
    /// Its rank, as it was.
    standing: Standing,
    /// How many packets a turn may take, and how much timed work.
    /// When the turn began; nothing once the worker ends.
    pub(crate) began: Option<Instant>,
    pub(crate) packet_limit: TurnLimit,
    pub(crate) work_limit: TurnLimit,
    /// The next turn begins with a slice of timed work.
    pub(crate) owes_slice: bool,
    /// While it runs.
    pub(crate) clock: Option<Clock>,
    watch: TurnWatch,
    /// Empty turns left before sleeping, and until when.
    spin: (u32, Instant),
    /// What ties it to the other workers of its worker group, where it has such.
    pub(crate) group: Option<GroupCommands<E>>,
    pub(crate) restarts: Restarts,
    /// Called once its first turn is over.
    pub(crate) begun: Option<Box<dyn FnOnce() + Send>>,
    /// Last, so that every packet above is home before its memory goes.
    pub(crate) pool: Pool,
}

impl<E: Engine + Publish + 'static> Worker<E> {
    /// A worker on the calling thread's pool. Allocates all that it will need.
    ///
    /// # Errors
    /// Too many ports, or the process has no descriptor left.
    pub fn new(
        engine: E,
        pool: Pool,
        random: Randomness,
        ports: Vec<Port>,
        config: WorkerConfig,
    ) -> Result<Self, WorkerError> {
        let bell = Bell::new()
            .map_err(|source| WorkerError::System { action: "make its bell", source })?;
        let mut worker = Self::empty(bell, pool, random, ports, config)?;
        worker.engine = Some(ready(engine));
        Ok(worker)
    }

    /// A worker without an engine yet.
    pub(crate) fn empty(
        bell: Bell,
        pool: Pool,
        random: Randomness,
        ports: Vec<Port>,
        config: WorkerConfig,
    ) -> Result<Self, WorkerError> {
        if ports.len() > PORTS_MAX {
            return Err(WorkerError::TooManyPorts(ports.len()));
        }
        let (control, mailbox) = mailbox(&bell);
        let (publisher, reader) = Publisher::new();
        let mut facts = WorkerCounters::default();
        facts.set(WorkerCounter::DevicesLive, ports.len() as u64);
        let ring = ports.iter().map(Port::ring).min().unwrap_or(0);
        let acquaints = ports.iter().any(Port::knows_established_flows);
        Ok(Self {
            engine: None,
            port_of: transmitters(&ports),
            tells_wants: ports.iter().any(Port::knows_established_flows),
            receive_noted: match ports.iter().any(Port::reads_by_calls) {
                true => 1,
                false => RECEIVE_NOTED,
            },
            ports,
            burst: Burst::new(),
            departing: PacketList::new(),
            wanted: RxFilter::default(),
            wants_told: None,
            offers: Offers::default(),
            redirects: Redirects::default(),
            sent_before: 0,
            random,
            first: 0,
            facts,
            publisher,
            reader,
            published: Instant::ORIGIN,
            bell,
            control,
            mailbox,
            gate: TurnGate::new(&config, ring, acquaints),
            core: config.balance.map(|_| CoreShare::reported()),
            standing: Standing::default(),
            config,
            began: None,
            packet_limit: TurnLimit::of_packets(),
            work_limit: TurnLimit::of_work(),
            owes_slice: false,
            clock: None,
            watch: TurnWatch::default(),
            spin: (0, Instant::ORIGIN),
            group: None,
            restarts: Restarts::default(),
            begun: None,
            pool,
        })
    }

    /// Handle to send requests to the engine.
    #[must_use]
    pub fn control(&self) -> Control<E> {
        self.control.clone()
    }

    /// How other threads wake the worker, for devices without a descriptor.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// How other threads read the counters.
    #[must_use]
    pub fn reader(&self) -> PublishedReader {
        self.reader.clone()
    }

    /// What the loop has counted so far.
    #[must_use]
    pub const fn facts(&self) -> &WorkerCounters {
        &self.facts
    }

    /// The engine, for looking at it before and after the run; `None` where it has panicked and
    /// is not made again yet.
    #[must_use]
    pub const fn engine(&self) -> Option<&E> {
        self.engine.as_ref()
    }

    /// Runs until `stop` is triggered. May be called again afterwards.
    ///
    /// # Errors
    /// The last device vanished, or the system refused to wait.
    pub fn run(&mut self, stop: &Stop) -> Result<Ended, WorkerError> {
        let clock = Clock::new();
        let mut now = clock.now();
        self.clock = Some(clock);
        self.watch.mark(clock.thread_time());
        self.publish(now);
        let spins = self.take_standing();
        while !stop.is_triggered() {
            if self.engine.is_none() && self.restarts.granted(now) {
                self.make_engine(now)?;
            }
            let began = now;
            self.watch.begin(&self.facts);
            let found = self.turn(began);
            self.tell_begun();
            now = clock.now();
            let preempted =
                self.watch.end((now, now - began), || clock.thread_time(), &mut self.facts);
            if self.has_no_device() {
                self.publish(now);
                return Err(self.last_device());
            }
            self.look_at_core(clock, now);
            if let Some(until) = self.gate.ran(began, now, preempted) {
                now = self.give_way(stop, clock, now, until);
                continue;
            }
            if self.has_more(found, now, spins) {
                if now - self.published >= PUBLISH_EVERY {
                    self.watch.mark(clock.thread_time());
                    self.publish(now);
                }
                continue;
            }
            now = match self.stays_away(now) {
                Some(until) => self.give_way(stop, clock, now, until),
                None => self.rest(stop, clock, now)?,
            };
            self.watch.slept();
        }
        let now = self.send_the_rest(clock);
        if let Some(group) = &mut self.group {
            group.exchange.close(&mut self.facts);
        }
        self.publish(now);
        let ports = self.ports.iter().map(Port::report).collect();
        Ok(Ended { facts: self.facts.clone(), ports })
    }

    /// After the last turn: what is to leave leaves, also what neighbours still hand over; for
    /// [`LAST_SENDS`] at most, where a device has no room or a neighbour does not come to its end.
    /// Returns the time then.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "a worker that ends has nothing else to do")]
    fn send_the_rest(&mut self, clock: Clock) -> Instant {
        let mut now = clock.now();
        let until = now + LAST_SENDS;
        self.began = None;
        let mut has_told = false;
        loop {
            self.ports.iter_mut().for_each(Port::begin_turn);
            let adopted = self.adopt(now);
            self.transmit();
            self.give_out(now);
            let group = self.group.as_mut().filter(|group| group.workers > 1);
            let are_others_done = group.is_none_or(|group| group.have_all_ended(&mut has_told));
            let owes = self.group.as_ref().is_some_and(GroupCommands::owes);
            let is_done = are_others_done && adopted == 0 && !self.has_mail() && !owes;
            let backlog = self.ports.iter().any(|port| port.is_live() && port.backlog() > 0);
            if is_done && !backlog || now >= until {
                return now;
            }
            std::thread::sleep(LAST_SENDS / 500);
            now = clock.now();
        }
    }

    /// Its first turn is over, or it will have none.
    #[inline]
    pub(crate) fn tell_begun(&mut self) {
        if let Some(tell) = self.begun.take() {
            tell();
        }
    }

    /// Requests from the system what sharing a core needs. Returns whether the worker may spin for
    /// a moment when nothing arrives: not where that would delay the applications.
    #[cold]
    fn take_standing(&mut self) -> bool {
        if !self.gate.shares() {
            return true;
        }
        let taken = self.standing.take();
        if self.core.as_ref().is_some_and(CoreShare::is_watched) {
            self.standing.give_back();
        }
        match taken {
            Ok(()) => true,
            Err(words) => {
                self.tell(Event::SharesPoorly { words });
                false
            }
        }
    }

    /// Looks from time to time whether others use the core, and counts what the kernel's half has
    /// used of it.
    #[inline]
    fn look_at_core(&mut self, clock: Clock, now: Instant) {
        let shared = self.gate.shares_now();
        if self.core.as_ref().is_some_and(|core| core.is_due(now, shared)) {
            self.look_at_times(clock, now, shared);
        }
    }

    fn look_at_times(&mut self, clock: Clock, now: Instant, shared: bool) {
        let Some(core) = &mut self.core else { return };
        let half = self.ports.iter().map(Port::half_time);
        let half = half.fold(ThreadTime::default(), core::ops::Add::add);
        let look = core.look(now, clock.thread_time(), half);
        let takes = shared && core.takes_half(now);
        if shared {
            self.gate.charge(look.half);
        }
        if takes {
            self.rank_napi(NapiRank::Taken);
            self.facts.add(WorkerCounter::HalfTakeovers, 1);
        }
        self.facts.add(WorkerCounter::HalfNanos, look.half.as_nanos() as u64);
        match look.changed {
            Some(true) => {
                let _ = self.standing.take();
                self.rank_napi(NapiRank::Granted);
            }
            Some(false) => {
                self.standing.give_back();
                self.core.iter_mut().for_each(CoreShare::give_back);
                self.rank_napi(NapiRank::Placed);
            }
            None => return,
        }
        self.facts.set(WorkerCounter::CoreShared, u64::from(look.changed == Some(true)));
    }

    /// For a turn that found nothing more to do: until when to stay away, although something may
    /// come.
    fn stays_away(&mut self, now: Instant) -> Option<Instant> {
        let is_light = self.gate.is_light();
        let Some(core) = &mut self.core else { return self.gate.lie_in(now) };
        if core.has_taken() {
            // Nothing comes by itself.
            if !core.gives_back(now, is_light) {
                return self.gate.until_period_end(now);
            }
            self.rank_napi(NapiRank::Granted);
            return None;
        }
        // A half's thread that is at work has what is left of the share.
        if core.is_half_busy() { None } else { self.gate.lie_in(now) }
    }

    /// How the threads of the kernel's halves stand from now on.
    fn rank_napi(&mut self, rank: NapiRank) {
        self.ports.iter_mut().for_each(|port| port.rank_half(rank));
    }

    /// Leaves the core to the applications that share it. Returns the time then.
    fn give_way(&mut self, stop: &Stop, clock: Clock, now: Instant, until: Instant) -> Instant {
        let before = clock.thread_time();
        self.spin.0 = 0;
        if now - self.published >= PUBLISH_EVERY {
            self.publish(now);
        }
        // Else the kernel's half would go on with what the worker leaves to others.
        let has_thread = |core: &CoreShare| core.has_half() && !core.has_taken();
        let denies = self.gate.shares_now() && self.core.as_ref().is_some_and(has_thread);
        if denies {
            self.rank_napi(NapiRank::Denied);
        }
        let away = || {
            stay_away(stop, now, until);
            ((), clock.now())
        };
        let ((), end) = match &mut self.group {
            Some(group) => group.offline(away),
            None => away(),
        };
        if denies {
            self.facts.add(WorkerCounter::HalfDenied, 1);
            self.rank_napi(NapiRank::Granted);
        }
        self.gate.rested(now, end, clock.thread_time().saturating_sub(before));
        end
    }

    /// Whether the next turn must follow at once.
    fn has_more(&mut self, found: usize, now: Instant, spins: bool) -> bool {
        let full = self.packet_limit.part_of(BURST_MAX as u32) as usize;
        if found >= LOAD_BURST {
            self.spin = (EMPTY_TURN_SPIN.0, now + EMPTY_TURN_SPIN.1);
        }
        let is_hungry = self.is_hungry(now);
        if found >= full
            || self.gate.has_more()
            || self.deadline().is_some_and(|deadline| deadline <= now)
            || is_hungry && self.ports.iter().any(Port::has_pending)
            || is_hungry && self.has_mail()
            || self.owes()
        {
            return true;
        }
        let (left, until) = self.spin;
        let spins =
            spins && left > 0 && now < until && !self.ports.iter().any(Port::waits_for_core);
        self.spin.0 = left.saturating_sub(1);
        spins
    }

    /// Publishes, and sleeps until something happens. Returns the time then.
    fn rest(&mut self, stop: &Stop, clock: Clock, now: Instant) -> Result<Instant, WorkerError> {
        let before = self.gate.shares_now().then(|| clock.thread_time());
        self.spin.0 = 0;
        let may = self.engine.as_mut().is_none_or(E::rests);
        if !may || !self.bell.doze() {
            return Ok(now);
        }
        // Hand-offs of neighbours are checked once more: see `sync::Alarm`.
        let is_hungry = self.is_hungry(now);
        if is_hungry && self.has_mail() {
            self.bell.rise(false);
            return Ok(now);
        }
        self.facts.add(WorkerCounter::Sleeps, 1);
        self.publish(now);
        let slept_from = now;
        let until = self.wake_at(now, is_hungry);
        self.ports.iter_mut().for_each(Port::back_off);
        // Not hungry: what is not wanted stays where it is, in the card.
        if is_hungry {
            self.ports.iter_mut().for_each(Port::rest);
        }
        let slept = || {
            let woken = sleep(stop, &self.bell, &self.ports, is_hungry, now, until);
            (woken, clock.now())
        };
        let (woken, now) = match &mut self.group {
            Some(group) => group.offline(slept),
            None => slept(),
        };
        let woken = woken.map_err(|e| WorkerError::System { action: "wait", source: e.into() })?;
        self.bell.rise(woken.rung);
        self.note_wake(&woken, now);
        let spent = before.map(|before| clock.thread_time().saturating_sub(before));
        self.gate.rested(slept_from, now, spent.unwrap_or_default());
        Ok(now)
    }

    /// When a sleep ends by itself.
    fn wake_at(&self, now: Instant, is_hungry: bool) -> Option<Instant> {
        let silent = is_hungry && self.ports.iter().any(Port::is_silent);
        let look = match is_hungry {
            true => silent.then(|| now + self.config.look_every),
            false => Some(now + FEEDBACK_LOOK),
        };
        // Unverified packets that wait for the engine's receive capacity.
        let look = look.or_else(|| self.gate.holds_back().then(|| now + FEEDBACK_LOOK));
        let ports = self.ports.iter().map(|port| port.deadline(now));
        let shared = self.gate.shares_now();
        let core = self.core.as_ref().and_then(|core| core.wake_at(now, shared));
        [self.deadline(), look, core].into_iter().chain(ports).flatten().min()
    }

    fn note_wake(&mut self, woken: &WakeReason, now: Instant) {
        let fact = match (woken.rung || woken.stopped, woken.ports) {
            (true, _) => WorkerCounter::WakesBell,
            (false, 0) => WorkerCounter::WakesTimer,
            (false, _) => WorkerCounter::WakesDevice,
        };
        self.facts.add(fact, 1);
        for (index, port) in self.ports.iter_mut().enumerate() {
            if woken.ports >> index & 1 == 1 {
                port.called(now);
            }
        }
    }

    /// Whether every device is gone, those of the whole worker group where it is of one.
    fn has_no_device(&self) -> bool {
        let is_alone = || self.group.as_ref().is_none_or(GroupCommands::has_no_device);
        !self.ports.is_empty() && !self.ports.iter().any(Port::is_live) && is_alone()
    }

    /// Makes the engine, at the start and after a panic.
    #[cold]
    pub(crate) fn make_engine(&mut self, now: Instant) -> Result<(), WorkerError> {
        let Some(group) = &mut self.group else { return Ok(()) };
        let restarts = self.restarts.count;
        self.facts.set(WorkerCounter::Restarts, restarts);
        let mut setting = Setting {
            worker: group.id,
            workers: group.workers,
            pool: &self.pool,
            random: &mut self.random,
            now,
            steering: group.steering,
            domain: &group.domain,
            restarts,
            bells: &group.bells,
        };
        // Reclamation must not wait while a shard is made, which takes time.
        let parked = group.reader.park();
        let made = (group.make)(&mut setting).map_err(WorkerError::NotMade).map(ready);
        parked.wake(now);
        self.engine = Some(made?);
        Ok(())
    }

    /// After a panic: the engine is dropped, and with it its flows and its packets; so is what it
    /// was working on. What others handed over, and what is to leave, is whole and goes on. Until
    /// all that is done the worker is no reader of what the others share.
    #[cold]
    pub(crate) fn leave_behind(&mut self, report: PanicReport) {
        self.facts.add(WorkerCounter::Panics, 1);
        // The call did not come to its end, but what it sent is to leave.
        let sent = self.departing.len().saturating_sub(self.sent_before);
        self.sent_before = self.departing.len();
        self.facts.add(WorkerCounter::SentPackets, sent as u64);
        let engine = self.engine.take();
        // What is left of it may be in no state to be dropped; then the rest of it stays for ever.
        let dropped = || catch_unwind(AssertUnwindSafe(|| drop(engine)));
        let _ = match &mut self.group {
            Some(group) => {
                let _parked = group.reader.park();
                dropped()
            }
            None => dropped(),
        };
        let untouched = self.burst.drain().count();
        self.facts.add(WorkerCounter::DropsShardDown, untouched as u64);
        if let Some(group) = &mut self.group {
            group.exchange.restore(&mut self.facts);
        }
        self.tell(Event::Panicked(report));
    }

    /// When it must look at its engine at the latest, or may make it again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.engine {
            Some(engine) => engine.deadline(),
            None => self.restarts.next(),
        }
    }

    /// The number of packets it takes now. Without an engine there is no limit: they are dropped
    /// and counted.
    pub(crate) fn rx_capacity(&self, now: Instant) -> usize {
        let most = self.packet_limit.part_of(BURST_MAX as u32) as usize;
        // What arrives is answered: behind a backlog that there is no time for, less is taken.
        let room = self.ports.iter().filter_map(Port::cut_room).min().unwrap_or(most);
        let most = most.min(room);
        self.engine.as_ref().map_or(most, |engine| engine.rx_capacity(now).min(most))
    }

    /// Whether packets are requested from devices.
    fn is_hungry(&self, now: Instant) -> bool {
        self.gate.asks(self.rx_capacity(now)) > 0
    }

    /// Whether packets wait for room in a ring to another worker.
    fn owes(&self) -> bool {
        self.group.as_ref().is_some_and(GroupCommands::owes)
    }

    fn has_mail(&mut self) -> bool {
        self.group.as_mut().is_some_and(GroupCommands::has_mail)
    }

    fn publish(&mut self, now: Instant) {
        self.published = now;
        self.gate.report(&mut self.facts);
        self.publisher.publish(now, &self.facts, self.engine.as_ref());
    }

    /// Sends an event, if there is a receiver. A receiver that is full or gone must not block the
    /// worker.
    #[cold]
    pub(crate) fn tell(&self, event: Event) {
        if let Some(events) = &self.config.events {
            let _ = events.try_send(event);
        }
    }

    #[cold]
    pub(crate) fn lost_device(&mut self, index: usize) {
        if let Some(group) = &self.group {
            group.lost_device();
        }
        let live = self.ports.iter().filter(|port| port.is_live()).count();
        self.facts.set(WorkerCounter::DevicesLive, live as u64);
        let Some(error) = self.ports[index].end() else { return };
        let device = error.device().to_owned();
        self.tell(Event::DeviceLost { device, error: error.to_string() });
    }

    #[cold]
    fn last_device(&mut self) -> WorkerError {
        let name = || DeviceError::Gone { device: "every device".to_owned() };
        let end = self.ports.iter_mut().rev().find_map(Port::take_end);
        WorkerError::NoDeviceLeft(end.unwrap_or_else(name))
    }
}

/// An engine with its memory, before the first packet.
fn ready<E: Engine>(mut engine: E) -> E {
    engine.touch_memory();
    engine
}

/// The first port of each interface.
fn transmitters(ports: &[Port]) -> Vec<Option<usize>> {
    let interfaces = ports.iter().map(|port| usize::from(port.iface().0) + 1).max().unwrap_or(0);
    let mut port_of = vec![None; interfaces];
    for (index, port) in ports.iter().enumerate() {
        port_of[usize::from(port.iface().0)].get_or_insert(index);
    }
    port_of
}

impl<E> fmt::Debug for Worker<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("ports", &self.ports).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
