//! The bench in real time: a memory wire, the host's worker on a thread of its own at one end, the
//! crowd in the calling thread at the other; of a host of several workers a wire for each, and one
//! end for the crowd (`rss.rs`).
//!
//! The wire stands for a network card's receive ring: what finds it full is dropped there, honest
//! or not, and is counted (decision F27). A flood is held back where it exceeds what criteria are
//! guaranteed for (`throttle.rs`). The wire is longer than a card's, because a machine that is
//! shared with others takes the core away from the host's thread for longer than a core of its own
//! would ever be gone. An application runs on the worker's core in one phase only (`stamping.rs`),
//! because there the system's scheduler affects all measurements; where several workers leave no
//! core to the crowd, it shares the last one's, and there is no application on that. The bell
//! stands for the card's interrupt, [`BELL_MODERATION`] included. On a TAP (`tap.rs`) the same loop
//! sends the flood, and honest clients are the kernel's. Threads and clock: a shell, as `dispatch`
//! is.

use core::cell::Cell;
use core::time::Duration;

use floodwall_base::{Instant, Randomness, Units};
use floodwall_device::{Device, WireConfig, pair_of};
use floodwall_dispatch::{ApplicationShare, Clock, WorkerCounter};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};

use rustix::thread::{Pid, gettid};

use crate::bench::{BenchLook, BenchLoop, BenchOutcome, BenchWatch, DrillBench};
use crate::error::DrillError;
use crate::honest::{QuestionSource, SentQuestion};
use crate::hosted::{self, HostedReport, HostedWorkers, Thread};
use crate::pinned::Pinned;
use crate::report::GraceReport;
use crate::rss::RssSpread;
use crate::server::{FreeFrames, ServerConfig};
use crate::shards::ShardReport;
use crate::stamping::{StampSource, Stamping};
use crate::throttle::Throttle;
use crate::traffic::{TrafficSeen, TrafficSource, TrafficStretch, sort_losses};

/// Packets of the ring, each way; of several rings together.
pub(crate) const WIRE_RING: usize = 65_536;
/// The crowd's packets: small ones for a ring full and then some, and larger ones.
const CROWD_PACKETS: (usize, usize) = (WIRE_RING + WIRE_RING / 2, WIRE_RING / 4);
/// Packets a second at which a pause of the host's thread of 50 ms does not fill the ring.
pub(crate) const RATE_MAX: u64 = WIRE_RING as u64 * 20;
/// The least time between two rings of the bell.
const BELL_MODERATION: Duration = Duration::from_micros(20);
/// How long memory has to come back: the timers of neighbours that do not answer, and some more.
/// Fragments may wait for longer than is acceptable for a drill.
const MEMORY_PATIENCE: Duration = Duration::from_secs(8);
/// A TAP from which nothing has come for so long is empty.
const TAP_QUIET: Duration = Duration::from_millis(50);
/// How long the crowd's thread rests at a time.
const THREAD_REST: Duration = Duration::from_micros(200);
/// How often a snapshot is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Units of work that the crowd does in a turn.
const TURN_UNITS: Units = Units(64);
/// Bursts that the crowd takes in a turn.
const TURN_BURSTS: usize = 4;

/// Honest clients that are not part of the crowd.
pub(crate) trait OutsideHosts {
    /// Begins sending.
    fn begin(&mut self, asking: &QuestionSource) -> Result<(), DrillError>;

    /// Questions and answers so far.
    fn tally(&self) -> (u64, u64);

    /// Whether every question is answered or lost.
    fn is_finished(&self) -> bool;

    /// What became of the questions, by family.
    fn end(&mut self) -> Result<[SentQuestion; 2], DrillError>;

    /// Packets that found the host's receive ring full so far, as far as it is known.
    fn ring_full(&self) -> u64;
}

/// The drill over a memory wire or a TAP, in real time.
pub(crate) struct WireBench {
    crowd: TrafficSource,
    outsiders: Option<Box<dyn OutsideHosts>>,
    device: Box<dyn Device>,
    clock: Clock,
    random: Randomness,
    host: HostedWorkers,
    /// This one's, the crowd's.
    thread: Pid,
    _pinned: Option<Pinned>,
    rung: Instant,
    /// How programs on the workers' cores register with them.
    applications: ApplicationShare,
    burst: Burst,
    departing: PacketList,
    /// Last, so that every packet above is home before its memory goes.
    pool: Pool,
}

impl WireBench {
    /// Lays the wire, or one for each worker, and starts the host.
    pub(crate) fn start(config: &ServerConfig, seed: u64) -> Result<Self, DrillError> {
        let workers = usize::from(config.workers.max(1));
        let capacity = WIRE_RING / workers;
        let wires = (0..workers).map(|_| pair_of(WireConfig { capacity, ..WireConfig::default() }));
        let (ours, theirs): (Vec<_>, Vec<_>) = wires.unzip();
        let ours = RssSpread::new(ours, hosted::steering(config, seed));
        let ours = ours.ok_or(DrillError::WorkerEnded("there is none".to_owned()))?;
        let theirs = theirs.into_iter().map(|end| Box::new(end) as Box<dyn Device>).collect();
        let bench = Self::between(config, seed, Box::new(ours), theirs, None)?;
        // Where it may not be pinned, the system schedules it.
        let pinned = bench.shared_core().and_then(Pinned::to);
        Ok(Self { _pinned: pinned, ..bench })
    }

    /// Starts the host, a worker for each queue of `theirs`; the crowd sends through `ours`.
    pub(crate) fn between(
        config: &ServerConfig,
        seed: u64,
        ours: Box<dyn Device>,
        theirs: Vec<Box<dyn Device>>,
        outsiders: Option<Box<dyn OutsideHosts>>,
    ) -> Result<Self, DrillError> {
        let (small, frames) = CROWD_PACKETS;
        let pool = Pool::new(&PoolConfig { small, frames, ..PoolConfig::default() })?;
        let applications = ApplicationShare::new();
        let host = HostedWorkers::start(config, seed, theirs, &applications)?;
        Ok(Self {
            crowd: TrafficSource::default(),
            outsiders,
            device: ours,
            clock: Clock::new(),
            random: Randomness::from_number(seed),
            host,
            thread: gettid(),
            _pinned: None,
            rung: Instant::ORIGIN,
            applications,
            burst: Burst::new(),
            departing: PacketList::new(),
            pool,
        })
    }

    /// The last worker's core, where each worker has one and none is left for the crowd.
    fn shared_core(&self) -> Option<usize> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let [_, .., last] = self.host.threads() else { return None };
        last.core.filter(|_| self.host.threads().len() >= cores)
    }

    /// The workers with an application and nothing else beside them on their cores.
    fn apart(&self) -> &[Thread] {
        match self.host.threads() {
            [others @ .., _] if self.shared_core().is_some() => others,
            all => all,
        }
    }

    fn look(&self) -> BenchLook {
        let said = self.host.said();
        // What outsiders give is not known before it arrives.
        let given = match self.outsiders {
            Some(_) => said.facts.of(WorkerCounter::RxPackets),
            None => self.device.stats().tx_packets,
        };
        look(said, FreeFrames::of(&self.pool), given)
    }

    /// Prepares a stretch, its honest part with the outsiders where there are some.
    fn begin(&mut self, stretch: &TrafficStretch) -> Result<(), DrillError> {
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

    fn seen(&mut self, stretch: &TrafficStretch) -> Result<TrafficSeen, DrillError> {
        let mut seen = self.crowd.seen();
        if let Some(outsiders) = self.outsiders.as_mut().filter(|_| stretch.asking.is_some()) {
            let [near, ..] = &mut seen.asked;
            *near = outsiders.end()?;
        }
        Ok(seen)
    }

    /// How long each thread has been ready while others had its core, by the system's account.
    fn waited(&self) -> Vec<Option<u64>> {
        let workers = self.host.threads().iter().map(|thread| thread.id);
        workers.chain([self.thread]).map(|thread| hosted::account(thread, 1)).collect()
    }

    /// How long each of those that an application runs beside has run, by the same.
    fn workers_ran(&self) -> Vec<Option<Duration>> {
        self.apart().iter().map(hosted::ran).collect()
    }

    /// A program on the core of each of them.
    fn start_stamping(&self) -> Result<Vec<Stamping>, DrillError> {
        let system = |source| DrillError::System { action: "start the application", source };
        let cores = self.apart().iter().filter_map(|thread| thread.core);
        cores.map(|core| Stamping::start(core, &self.applications).map_err(system)).collect()
    }

    /// One turn of the crowd. Returns what found the ring full.
    fn turn(&mut self, now: Instant) -> Result<(u64, u64), DrillError> {
        for _ in 0..TURN_BURSTS {
            if self.device.receive(&self.pool, &mut self.burst)? == 0 {
                break;
            }
            self.call(now, TrafficSource::round);
        }
        if self.crowd.deadline().is_some_and(|deadline| deadline <= now) {
            self.call(now, TrafficSource::work);
        }
        if self.departing.is_empty() {
            return Ok((0, 0));
        }
        self.device.transmit(&mut self.departing)?;
        let lost = sort_losses(&self.departing.take());
        if now.saturating_since(self.rung) >= BELL_MODERATION {
            self.rung = now;
            self.host.ring();
        }
        Ok(lost)
    }

    fn call(
        &mut self,
        now: Instant,
        call: impl FnOnce(&mut TrafficSource, &mut Round<'_>) -> Units,
    ) {
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
        let is_due = |deadline: Instant| deadline <= now + THREAD_REST;
        if self.outsiders.is_some() && !self.crowd.deadline().is_some_and(is_due) {
            std::thread::park_timeout(THREAD_REST);
        }
    }
}

impl WireBench {
    /// A stretch, until all senders have finished.
    fn drive(
        &mut self,
        stretch: &TrafficStretch,
        watch: &mut dyn BenchWatch,
    ) -> Result<BenchOutcome, DrillError> {
        self.begin(stretch)?;
        let mut outcome = BenchOutcome::default();
        let (first, lost_outside) = (self.look(), self.lost_outside());
        let (waited, mut throttle) =
            (self.waited(), Throttle::new(stretch, self.outsiders.is_none()));
        let started = self.clock.now();
        let (end, mut look_at) = (started + stretch.length(), started);
        loop {
            let now = self.clock.now();
            let (honest, flood) = self.turn(now)?;
            outcome.ring_full.0 += honest;
            outcome.ring_full.1 += flood;
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.host.check()?;
                let look = self.look();
                if look.at <= end && look.at > started {
                    outcome.note(&first, &look);
                }
                self.crowd.hold_flood(throttle.look(&look, self.host.threads().len()));
                watch.look(&look);
                watch.tick(now - started, self.tally());
                if now >= end && self.is_finished() {
                    break;
                }
            }
            self.rest(now);
        }
        outcome.held_percent = throttle.percent();
        outcome.waited_percent =
            waited_percent(&waited, &self.waited(), self.clock.now() - started);
        outcome.seen = self.seen(stretch)?;
        // The system does not report which packets found its ring full.
        outcome.ring_full.1 += self.lost_outside() - lost_outside;
        Ok(outcome)
    }

    /// What the stretch sent is no burden of the next one's.
    fn drain(
        &mut self,
        stretch: &TrafficStretch,
        watch: &mut dyn BenchWatch,
    ) -> Result<BenchLook, DrillError> {
        // A TAP's queue length is not known: it is empty when nothing has come for a while.
        let asks = self.outsiders.is_some() && stretch.flood.is_some();
        let (quiet, clock) = (if asks { TAP_QUIET } else { Duration::ZERO }, self.clock);
        let last = Cell::new((0, clock.now()));
        self.settle(crate::honest::ANSWER_TIMEOUT, watch, &|look| {
            let (received, now) = (look.worker.received, clock.now());
            if received != last.get().0 {
                last.set((received, now));
            }
            received >= look.given && now - last.get().1 >= quiet
        })
    }
}

impl DrillBench for WireBench {
    fn run(
        &mut self,
        stretch: &TrafficStretch,
        watch: &mut dyn BenchWatch,
    ) -> Result<BenchOutcome, DrillError> {
        let outcome = self.drive(stretch, watch)?;
        self.drain(stretch, watch)?;
        Ok(outcome)
    }

    /// Over a TAP the kernel's half of the device would have its part of the core too.
    fn has_application_apart(&self) -> bool {
        let mut threads = self.apart().iter();
        self.outsiders.is_none() && threads.all(|thread| thread.core.is_some())
    }

    fn run_beside_application(
        &mut self,
        stretch: &TrafficStretch,
        watch: &mut dyn BenchWatch,
    ) -> Result<(BenchOutcome, Duration), DrillError> {
        let before = self.workers_ran();
        let stamping = self.start_stamping()?;
        let mut outcome = self.drive(stretch, watch)?;
        let after = self.workers_ran();
        let stamps: Vec<Option<StampSource>> = stamping.into_iter().map(Stamping::end).collect();
        self.drain(stretch, watch)?;
        // What counts is the worker that left the least.
        let shares = stamps.iter().zip(before.into_iter().zip(after));
        let shares = shares.filter_map(|(stamps, (before, after))| {
            let (ran, worker) = (stamps.as_ref()?.ran, after?.saturating_sub(before?));
            Some(ran.as_secs_f64() / (ran + worker).as_secs_f64().max(1e-9))
        });
        outcome.share = shares.min_by(f64::total_cmp);
        let gaps = stamps.iter().flatten().map(|stamps| stamps.gap);
        Ok((outcome, gaps.max().unwrap_or_default()))
    }

    fn settle(
        &mut self,
        at_most: Duration,
        watch: &mut dyn BenchWatch,
        done: &dyn Fn(&BenchLook) -> bool,
    ) -> Result<BenchLook, DrillError> {
        self.crowd.begin(&TrafficStretch::default(), true)?;
        let end = self.clock.now() + at_most;
        let mut look_at = Instant::ORIGIN;
        loop {
            let now = self.clock.now();
            self.turn(now)?;
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.host.check()?;
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

    /// Over a TAP the kernel's half of the device is the bottleneck, and has no triage.
    fn finds_established_flows(&self) -> bool {
        self.outsiders.is_none()
    }

    fn shards(&self) -> Vec<ShardReport> {
        self.host.shards()
    }

    fn grace(&self) -> Option<GraceReport> {
        self.host.grace(self.clock.now())
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn patience(&self) -> Duration {
        MEMORY_PATIENCE
    }

    fn describe(&self) -> &'static str {
        if self.outsiders.is_some() {
            "TAP in a network namespace of its own, the kernel as honest client"
        } else {
            "memory wire, real time"
        }
    }
}

fn look(
    HostedReport { at, facts, view }: HostedReport,
    crowd_free: FreeFrames,
    given: u64,
) -> BenchLook {
    BenchLook {
        at,
        view,
        worker: BenchLoop {
            received: facts.of(WorkerCounter::RxPackets),
            triaged: [WorkerCounter::DropsTriageRejectable, WorkerCounter::DropsTriageUnknown]
                .map(|fact| facts.of(fact)),
            waiting: facts.of(WorkerCounter::TriageWaiting),
            application_ran: None,
            application_gap: Duration::ZERO,
            ran: Duration::from_nanos(facts.of(WorkerCounter::BalanceRanNanos)),
            sent: facts.of(WorkerCounter::SentPackets),
            transmitted: facts.of(WorkerCounter::TxPackets),
            backlog: facts.of(WorkerCounter::Backlog),
            lost: facts.lost(),
            longest: Duration::from_nanos(facts.of(WorkerCounter::LongestRoundNanos)),
        },
        crowd_free,
        given,
    }
}

/// The longest wait of all threads, as a part of the time.
fn waited_percent(before: &[Option<u64>], after: &[Option<u64>], time: Duration) -> Option<u64> {
    let waits = before.iter().zip(after).filter_map(|(before, after)| {
        Some((*after)?.saturating_sub((*before)?) * 100 / (time.as_nanos() as u64).max(1))
    });
    waits.max()
}
