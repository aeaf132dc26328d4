//! The bench in real time: a memory wire, the host's worker on a thread of its own at one end, the
//! crowd in the calling thread at the other.
//!
//! The wire stands for a network card's receive ring: what finds it full dies there, honest or
//! not, and is counted (decision F27). It is longer than a card's, because a machine that is
//! shared with others takes the core away from the host's thread for longer than a core of its own
//! would ever be gone. An application runs on the worker's core in one phase only (`stamping.rs`),
//! for there the system's scheduler has its say in everything. The bell stands for the card's
//! interrupt, [`MODERATION`] included. On a TAP (`tap.rs`) the same loop sends the flood, and
//! honest clients are the kernel's. Threads and clock: a shell, as `dispatch` is.

use core::cell::Cell;
use core::time::Duration;
use std::fs;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use floodwall_base::{IfIndex, Instant, Randomness, Units};
use floodwall_device::{Device, WireConfig, pair_of};
use floodwall_dispatch::{
    Applications, Bell, Clock, Fact, Port, Published, PublishedReader, Stop, Worker, WorkerConfig,
    pin_to_core,
};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};

use rustix::thread::{Pid, gettid};

use crate::bench::{Bench, Look, Loop, Outcome, Watch};
use crate::crowd::{Crowd, Seen, Stretch, sort_losses};
use crate::error::DrillError;
use crate::honest::{Asked, Asking};
use crate::server::{Free, Served, ServerConfig, View};
use crate::stamping::Stamping;

/// Packets of the ring, each way.
const RING: usize = 65_536;
/// Packets in the ring from which on a flood is held back: the host's thread is off its core.
const HOLD: u64 = RING as u64 / 8;
/// The crowd's packets: small ones for a ring full and then some, and larger ones.
const CROWD_PACKETS: (usize, usize) = (RING + RING / 2, RING / 4);
/// Packets a second at which a pause of the host's thread of 50 ms does not fill the ring.
pub(crate) const RATE_MAX: u64 = RING as u64 * 20;
/// The least time between two rings of the bell.
const MODERATION: Duration = Duration::from_micros(20);
/// How long memory has to come back: the timers of neighbours who do not answer, and then some.
/// Fragments may wait for longer than anybody likes to wait for a drill.
const PATIENCE: Duration = Duration::from_secs(8);
/// A TAP from which nothing has come for so long is empty.
const QUIET: Duration = Duration::from_millis(50);
/// How long the crowd's thread rests at a time.
const PAUSE: Duration = Duration::from_micros(200);
/// How often a snapshot is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Thousandths of the core that falling asleep and waking take: the system does that in the
/// worker's name, before and after the time that the worker sees.
const SLEEPING: u16 = 40;
/// Units of work that the crowd does in a turn.
const TURN_UNITS: Units = Units(64);
/// Bursts that the crowd takes in a turn.
const TURN_BURSTS: usize = 4;

/// What the worker's thread tells when it is ready.
type Ready = Result<(Bell, PublishedReader, Pid, Option<usize>), DrillError>;

/// Honest clients who are not part of the crowd.
pub(crate) trait Outsiders {
    /// Begins asking.
    fn begin(&mut self, asking: &Asking) -> Result<(), DrillError>;

    /// Asked and answered so far.
    fn tally(&self) -> (u64, u64);

    /// Whether every question is answered or lost.
    fn is_finished(&self) -> bool;

    /// What became of the questions, by family.
    fn end(&mut self) -> Result<[Asked; 2], DrillError>;

    /// Packets that found the host's receive ring full so far, as far as it is known.
    fn ring_full(&self) -> u64;
}

/// See the file's head.
pub(crate) struct WireBench {
    crowd: Crowd,
    outsiders: Option<Box<dyn Outsiders>>,
    device: Box<dyn Device>,
    clock: Clock,
    random: Randomness,
    bell: Bell,
    /// The host's and this one's.
    threads: [Pid; 2],
    rung: Instant,
    reader: PublishedReader,
    stop: Stop,
    worker: Option<JoinHandle<Result<(), String>>>,
    /// The worker's core, where it has one for itself.
    core: Option<usize>,
    /// How programs on that core tell the worker of themselves.
    applications: Applications,
    burst: Burst,
    departing: PacketList,
    /// Last, so that every packet above is home before its memory goes.
    pool: Pool,
}

impl WireBench {
    /// Lays the wire and starts the host.
    pub(crate) fn start(config: &ServerConfig, seed: u64) -> Result<Self, DrillError> {
        let (ours, theirs) = pair_of(WireConfig { capacity: RING, ..WireConfig::default() });
        Self::between(config, seed, Box::new(ours), Box::new(theirs), None)
    }

    /// Starts the host on `theirs`; the crowd sends through `ours`.
    pub(crate) fn between(
        config: &ServerConfig,
        seed: u64,
        ours: Box<dyn Device>,
        theirs: Box<dyn Device>,
        outsiders: Option<Box<dyn Outsiders>>,
    ) -> Result<Self, DrillError> {
        let system = |action| move |source| DrillError::System { action, source };
        let stop = Stop::new().map_err(system("make a stop signal"))?;
        let (small, frames) = CROWD_PACKETS;
        let pool = Pool::new(&PoolConfig { small, frames, ..PoolConfig::default() })?;
        let (ready, is_ready) = mpsc::sync_channel(1);
        let (config, until) = (config.clone(), stop.clone());
        let host = Randomness::from_number(seed ^ 0x686f_7374);
        let applications = Applications::new();
        let share = applications.clone();
        let worker = std::thread::Builder::new()
            .name("drill-host".to_owned())
            .spawn(move || serve(&config, host, theirs, share, &until, &ready))
            .map_err(system("start the host's thread"))?;
        let (bell, reader, host_thread, core) = await_start(&is_ready)?;
        let clock = Clock::new();
        Ok(Self {
            crowd: Crowd::default(),
            outsiders,
            device: ours,
            clock,
            random: Randomness::from_number(seed),
            bell,
            threads: [host_thread, gettid()],
            rung: Instant::ORIGIN,
            reader,
            stop,
            worker: Some(worker),
            core,
            applications,
            burst: Burst::new(),
            departing: PacketList::new(),
            pool,
        })
    }

    fn look(&self) -> Look {
        let published = self.reader.read();
        // What outsiders give is not known before it arrives.
        let given = match self.outsiders {
            Some(_) => published.facts.of(Fact::RxPackets),
            None => self.device.stats().tx_packets,
        };
        look(&published, Free::of(&self.pool), given)
    }

    /// Prepares a stretch, its honest part with the outsiders where there are some.
    fn begin(&mut self, stretch: &Stretch) -> Result<(), DrillError> {
        if let Some((outsiders, asking)) = self.outsiders.as_mut().zip(stretch.asking.as_ref()) {
            outsiders.begin(asking)?;
        }
        self.crowd.begin(stretch, self.outsiders.is_none())
    }

    fn is_finished(&self) -> bool {
        self.crowd.is_finished() && self.outsiders.as_ref().is_none_or(|o| o.is_finished())
    }

    fn tally(&self) -> (u64, u64, u64) {
        let (asked, answered, flooded) = self.crowd.tally();
        let (more_asked, more_answered) = self.outsiders.as_ref().map_or((0, 0), |o| o.tally());
        (asked + more_asked, answered + more_answered, flooded)
    }

    fn lost_outside(&self) -> u64 {
        self.outsiders.as_ref().map_or(0, |outsiders| outsiders.ring_full())
    }

    fn seen(&mut self, stretch: &Stretch) -> Result<Seen, DrillError> {
        let mut seen = self.crowd.seen();
        if let Some(outsiders) = self.outsiders.as_mut().filter(|_| stretch.asking.is_some()) {
            let [near, ..] = &mut seen.asked;
            *near = outsiders.end()?;
        }
        Ok(seen)
    }

    /// How long each thread has been ready while others had its core, by the system's account.
    fn waited(&self) -> [Option<u64>; 2] {
        self.threads.map(|thread| account(thread, 1))
    }

    /// How long the worker has run, by the same.
    fn worker_ran(&self) -> Option<Duration> {
        account(self.threads[0], 0).map(Duration::from_nanos)
    }

    /// One turn of the crowd. Returns what found the ring full.
    fn turn(&mut self, now: Instant) -> Result<(u64, u64), DrillError> {
        for _ in 0..TURN_BURSTS {
            if self.device.receive(&self.pool, &mut self.burst)? == 0 {
                break;
            }
            self.call(now, Crowd::round);
        }
        if self.crowd.deadline().is_some_and(|deadline| deadline <= now) {
            self.call(now, Crowd::work);
        }
        if self.departing.is_empty() {
            return Ok((0, 0));
        }
        self.device.transmit(&mut self.departing)?;
        let lost = sort_losses(&self.departing.take());
        if now.saturating_since(self.rung) >= MODERATION {
            self.rung = now;
            self.bell.ring();
        }
        Ok(lost)
    }

    fn call(&mut self, now: Instant, call: impl FnOnce(&mut Crowd, &mut Round<'_>) -> Units) {
        call(
            &mut self.crowd,
            &mut Round {
                now,
                pool: &self.pool,
                random: &mut self.random,
                arrived: &mut self.burst,
                departing: &mut self.departing,
                budget: TURN_UNITS,
                peers: None,
            },
        );
    }

    /// Leaves the core to outsiders while there is no flood to send.
    fn rest(&self, now: Instant) {
        let is_due = |deadline: Instant| deadline <= now + PAUSE;
        if self.outsiders.is_some() && !self.crowd.deadline().is_some_and(is_due) {
            std::thread::park_timeout(PAUSE);
        }
    }

    /// The worker's end, where it came too early.
    fn check_worker(&mut self) -> Result<(), DrillError> {
        if !self.worker.as_ref().is_some_and(JoinHandle::is_finished) {
            return Ok(());
        }
        let said = match self.worker.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Err(_)) => "it panicked; see above, and report it".to_owned(),
            _ => "it gave no reason".to_owned(),
        };
        Err(DrillError::WorkerEnded(said))
    }
}

impl WireBench {
    /// A stretch, until nobody sends any more.
    fn drive(&mut self, stretch: &Stretch, watch: &mut dyn Watch) -> Result<Outcome, DrillError> {
        self.begin(stretch)?;
        let mut outcome = Outcome::default();
        let (first, lost_outside) = (self.look(), self.lost_outside());
        let waited = self.waited();
        let started = self.clock.now();
        let (end, mut look_at) = (started + stretch.length(), started);
        loop {
            let now = self.clock.now();
            let (honest, flood) = self.turn(now)?;
            outcome.ring_full.0 += honest;
            outcome.ring_full.1 += flood;
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.check_worker()?;
                let look = self.look();
                if look.at <= end && look.at > started {
                    outcome.note(&first, &look);
                }
                // A measurement wants the ring full; honest clients must not meet it so.
                let piled_up = look.given.saturating_sub(look.worker.received);
                self.crowd
                    .hold_flood(!stretch.probes && stretch.asking.is_some() && piled_up > HOLD);
                watch.look(&look);
                watch.tick(now - started, self.tally());
                if now >= end && self.is_finished() {
                    break;
                }
            }
            self.rest(now);
        }
        outcome.waited_percent = waited_percent(waited, self.waited(), self.clock.now() - started);
        outcome.seen = self.seen(stretch)?;
        // The system does not tell whose packets found its ring full.
        outcome.ring_full.1 += self.lost_outside() - lost_outside;
        Ok(outcome)
    }

    /// What the stretch sent is no burden of the next one's.
    fn drain(&mut self, stretch: &Stretch, watch: &mut dyn Watch) -> Result<Look, DrillError> {
        // What lies in a TAP's queue is not told: it is empty when nothing has come for a while.
        let asks = self.outsiders.is_some() && stretch.flood.is_some();
        let (quiet, clock) = (if asks { QUIET } else { Duration::ZERO }, self.clock);
        let last = Cell::new((0, clock.now()));
        self.settle(crate::honest::TIMEOUT, watch, &|look| {
            let (received, now) = (look.worker.received, clock.now());
            if received != last.get().0 {
                last.set((received, now));
            }
            received >= look.given && now - last.get().1 >= quiet
        })
    }
}

impl Bench for WireBench {
    fn run(&mut self, stretch: &Stretch, watch: &mut dyn Watch) -> Result<Outcome, DrillError> {
        let outcome = self.drive(stretch, watch)?;
        self.drain(stretch, watch)?;
        Ok(outcome)
    }

    /// Over a TAP the kernel's half of the device would have its part of the core too.
    fn has_application_apart(&self) -> bool {
        self.core.is_some() && self.outsiders.is_none()
    }

    fn run_beside_application(
        &mut self,
        stretch: &Stretch,
        watch: &mut dyn Watch,
    ) -> Result<(Outcome, Duration), DrillError> {
        let Some(core) = self.core else { return Ok((self.run(stretch, watch)?, Duration::ZERO)) };
        let system = |source| DrillError::System { action: "start the application", source };
        let before = self.worker_ran();
        let stamping = Stamping::start(core, &self.applications).map_err(system)?;
        let mut outcome = self.drive(stretch, watch)?;
        let (after, stamps) = (self.worker_ran(), stamping.end());
        self.drain(stretch, watch)?;
        let worker = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        outcome.share = stamps.zip(worker).map(|(stamps, worker)| {
            stamps.ran.as_secs_f64() / (stamps.ran + worker).as_secs_f64().max(1e-9)
        });
        Ok((outcome, stamps.unwrap_or_default().gap))
    }

    fn settle(
        &mut self,
        at_most: Duration,
        watch: &mut dyn Watch,
        done: &dyn Fn(&Look) -> bool,
    ) -> Result<Look, DrillError> {
        self.crowd.begin(&Stretch::default(), true)?;
        let end = self.clock.now() + at_most;
        let mut look_at = Instant::ORIGIN;
        loop {
            let now = self.clock.now();
            self.turn(now)?;
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.check_worker()?;
                let look = self.look();
                watch.look(&look);
                if done(&look) || now >= end {
                    return Ok(look);
                }
            }
            self.rest(now);
            std::thread::yield_now();
        }
    }

    /// Over a TAP the kernel's half of the device is the bottleneck, and knows no friends.
    fn finds_friends(&self) -> bool {
        self.outsiders.is_none()
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn describe(&self) -> &'static str {
        if self.outsiders.is_some() {
            "TAP in a network namespace of its own, the kernel as honest client"
        } else {
            "memory wire, real time"
        }
    }
}

impl Drop for WireBench {
    fn drop(&mut self) {
        self.stop.trigger();
        if let Some(worker) = self.worker.take() {
            // It ended as it was asked to, or `check_worker` has told of it.
            let _ = worker.join();
        }
    }
}

/// One number of the system's account of a thread: 0 is how long it ran, 1 how long it was ready
/// while others ran, in nanoseconds.
fn account(thread: Pid, number: usize) -> Option<u64> {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    fs::read_to_string(path).ok()?.split_whitespace().nth(number)?.parse().ok()
}

fn look(published: &Published, crowd_free: Free, given: u64) -> Look {
    let facts = &published.facts;
    Look {
        at: published.at,
        view: View::read(&published.words),
        worker: Loop {
            received: facts.of(Fact::RxPackets),
            triaged: [Fact::DropsTriageRefusable, Fact::DropsTriageStranger]
                .map(|fact| facts.of(fact)),
            waiting: facts.of(Fact::TriageWaiting),
            application_ran: None,
            application_gap: Duration::ZERO,
            sent: facts.of(Fact::SentPackets),
            transmitted: facts.of(Fact::TxPackets),
            backlog: facts.of(Fact::Backlog),
            lost: facts.lost(),
            longest: Duration::from_nanos(facts.of(Fact::LongestRoundNanos)),
        },
        crowd_free,
        given,
    }
}

/// The longer wait of the two threads, as a part of the time.
fn waited_percent(
    before: [Option<u64>; 2],
    after: [Option<u64>; 2],
    time: Duration,
) -> Option<u64> {
    let waits = before.into_iter().zip(after).filter_map(|(before, after)| {
        Some(after?.saturating_sub(before?) * 100 / (time.as_nanos() as u64).max(1))
    });
    waits.max()
}

/// Waits until the host runs, or says why it does not.
fn await_start(is_ready: &Receiver<Ready>) -> Ready {
    is_ready.recv().unwrap_or_else(|_| {
        Err(DrillError::WorkerEnded("it panicked at its start; see above".to_owned()))
    })
}

/// The host's thread, from its memory to its end. It takes a core for itself where there are two.
fn serve(
    config: &ServerConfig,
    mut random: Randomness,
    device: Box<dyn Device>,
    applications: Applications,
    stop: &Stop,
    ready: &SyncSender<Ready>,
) -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Where it may not be pinned, it runs where the system likes.
    let last = cores.checked_sub(1).filter(|core| *core > 0);
    let core = last.filter(|core| pin_to_core(*core).is_ok());
    let clock = Clock::new();
    let made = Pool::new(&config.pool()).map_err(DrillError::from).and_then(|pool| {
        let host = Served::new(config, &pool, &mut random, clock.now(), Some(clock))?;
        let ports = vec![Port::new(IfIndex(1), device)];
        let balance = config.balance_with(SLEEPING);
        let applications = Some(applications);
        let how = WorkerConfig { balance, applications, ..WorkerConfig::default() };
        Ok(Worker::new(host, pool, random, ports, how)?)
    });
    let mut worker = match made {
        Ok(worker) => worker,
        Err(error) => {
            let text = error.to_string();
            // Who waits for it has gone only if the whole drill has.
            let _ = ready.send(Err(error));
            return Err(text);
        }
    };
    let _ = ready.send(Ok((worker.bell(), worker.reader(), gettid(), core)));
    worker.run(stop).map(drop).map_err(|error| error.to_string())
}
