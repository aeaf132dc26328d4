//! `WorkerGroup`: the workers of one host, each a thread on a core of its own.
//!
//! Called by programs. Every worker has its devices' queues, its home in one region of packet
//! memory, and its shard of the host, made on its own thread by one closure; together they have a
//! [`Domain`] for what the control shard publishes, a [`Steering`], rings between each two of them
//! and one [`Stop`]. The control shard is made first.
//!
//! Invariants: a worker group starts whole or not at all; it ends when the stop is triggered, or
//! when its last device vanishes, or when a worker ends for any other reason; every thread is
//! joined, also where the worker group is only dropped; what is left in the rings then is counted.

use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use floodwall_base::{HashKey, Steering, WorkerId};
use floodwall_packet::{Engine, PoolConfig, PoolError, Region};
use floodwall_sync::qsbr::{Domain, NoRecord};
use thiserror::Error;

use crate::bell::Bell;
use crate::clock::Clock;
use crate::control::Control;
use crate::core_share::{CoreNote, CoreShare};
use crate::core_watch;
use crate::entropy::{self, NoEntropy};
use crate::exchange::{Exchange, exchanges};
use crate::membership::{GroupCommands, Make, Setting};
use crate::panics::{self, OnPanic};
use crate::pin::{PinError, pin_to_core};
use crate::port::Port;
use crate::publish::{Publish, Published, PublishedReader};
use crate::shared_pressure::SharedPressure;
use crate::stop::Stop;
use crate::turn_gate::ApplicationShare;
use crate::worker::{Ended, Worker, WorkerConfig, WorkerError};
use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// Workers that one worker group may have: each two of them have two rings.
pub const WORKERS_MAX: usize = 64;

/// One worker's place.
#[derive(Debug, Default)]
pub struct WorkerSlot {
    /// The core that it is pinned to, as the system numbers them; `None` for any.
    pub core: Option<usize>,
    /// Its queues of the devices. What leaves through a device of which it has none is handed to
    /// the first worker that has one.
    pub ports: Vec<Port>,
}

/// How a worker group is made up.
#[derive(Debug)]
pub struct WorkerGroupConfig {
    /// One place a worker; the first is the control shard's.
    pub slots: Vec<WorkerSlot>,
    /// The memory of all together; its `workers` is set to their number. `accounts` are each
    /// worker's.
    pub memory: PoolConfig,
    /// What all workers read together is published under it.
    pub domain: Domain,
    /// The mapping of flows to workers (RSS-like steering).
    pub steering: Steering,
    /// What the panic of one worker does to the others.
    pub on_panic: OnPanic,
    /// How each worker behaves.
    pub worker: WorkerConfig,
}

impl WorkerGroupConfig {
    /// A worker group in these places, the rest as usual, the steering keyed with the system's
    /// randomness.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn new(slots: Vec<WorkerSlot>) -> Result<Self, NoEntropy> {
        let mut random = entropy::randomness()?;
        let key = HashKey::new(random.secret.next_u64(), random.secret.next_u64());
        let workers = u16::try_from(slots.len()).unwrap_or(u16::MAX);
        Ok(Self {
            slots,
            memory: PoolConfig::default(),
            domain: Domain::new(workers),
            steering: Steering::new(key, workers),
            on_panic: OnPanic::default(),
            worker: WorkerConfig::default(),
        })
    }
}

/// The reason that a worker group could not start, or ended without a stop request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerGroupError {
    /// No worker, or too many.
    #[error("{0} workers: there must be one at least, and {WORKERS_MAX} at most")]
    Workers(usize),
    /// The steering, or the domain, is for another number of workers.
    #[error("{what} is for {made} workers, but there are {workers}")]
    Mismatch {
        /// Which.
        what: &'static str,
        /// For how many it was made.
        made: usize,
        /// How many there are.
        workers: usize,
    },
    /// Two workers on one core.
    #[error("core {0} is given to two workers: each needs a core of its own")]
    CoreTwice(usize),
    /// A worker could not be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// No packet memory.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// The system gives no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A worker could not start, or ended by itself.
    #[error("worker {}: {error}", worker.0)]
    Worker {
        /// Which worker.
        worker: WorkerId,
        /// Why.
        error: WorkerError,
    },
}

/// What other threads need of one worker.
#[derive(Debug)]
pub struct WorkerSeat<E: 'static> {
    /// Handle to send requests to its engine.
    pub control: Control<E>,
    /// How they read its counters.
    pub reader: PublishedReader,
    /// How they wake it, for devices without a descriptor.
    pub bell: Bell,
}

impl<E: 'static> Clone for WorkerSeat<E> {
    fn clone(&self) -> Self {
        let Self { control, reader, bell } = self;
        Self { control: control.clone(), reader: reader.clone(), bell: bell.clone() }
    }
}

/// The snapshots of all workers. Clones read the same ones.
#[derive(Clone, Debug)]
pub struct WorkerGroupReader {
    readers: Vec<PublishedReader>,
    domain: Domain,
}

impl WorkerGroupReader {
    /// The newest snapshot of each worker, in order: each is of one moment, each of another. What
    /// may be asserted of them is in [`WorkerCounters`]. Copies 4 KiB a worker; waits for none.
    #[must_use]
    pub fn read(&self) -> Vec<Published> {
        self.readers.iter().map(PublishedReader::read).collect()
    }

    /// The reclamation domain (QSBR) of all workers, with the age of each worker's last pause.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        &self.domain
    }
}

/// The state of a worker group that ended on request.
#[derive(Debug)]
pub struct WorkerGroupEnded {
    /// How each worker ended, in order.
    pub workers: Vec<Ended>,
    /// Packets that were left in the rings between them.
    pub in_rings: u64,
}

impl WorkerGroupEnded {
    /// One fact of all workers together.
    #[must_use]
    pub fn sum(&self, fact: WorkerCounter) -> u64 {
        self.workers.iter().map(|ended| ended.facts.of(fact)).sum()
    }

    /// Whether the packet accounting balances, including packets between the workers.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        let each = self.workers.iter().map(|ended| &ended.facts).all(WorkerCounters::are_conserved);
        each && self.sum(WorkerCounter::HandedOver)
            == self.sum(WorkerCounter::Adopted) + self.in_rings
    }
}

/// What a worker's thread leaves behind.
struct TurnOutcome {
    ended: Result<Ended, WorkerError>,
    exchange: Option<Exchange>,
}

/// Several workers of one host, each with its own thread and core.
pub struct WorkerGroup<E: 'static> {
    seats: Vec<WorkerSeat<E>>,
    threads: Vec<JoinHandle<TurnOutcome>>,
    stop: Stop,
    domain: Domain,
    /// Last: every packet is home before the memory goes.
    _region: Arc<Region>,
}

impl<E: Engine + Publish + 'static> WorkerGroup<E> {
    /// Starts all workers, the control shard first, each made by `make` on its own thread.
    /// Allocates all that they will need. After a panic `make` is called again for that worker,
    /// where the policy is [`OnPanic::Isolate`].
    ///
    /// # Errors
    /// An invalid configuration, a core that may not be used, no memory, or the error of `make`. No
    /// worker runs then, and the stop is triggered if any was started.
    pub fn start(
        config: WorkerGroupConfig,
        stop: &Stop,
        make: impl Fn(&mut Setting<'_>) -> Result<E, String> + Send + Sync + 'static,
    ) -> Result<Self, WorkerGroupError> {
        check(&config)?;
        let workers = config.slots.len();
        panics::keep_places();
        let region = Region::new(&PoolConfig { workers, ..config.memory })?;
        let bells: Result<Vec<_>, _> = (0..workers).map(|_| Bell::new()).collect();
        let bells = bells.map_err(|source| system("make the workers' bells", source))?;
        let shared = GroupShared {
            carriers: carriers(&config.slots).into(),
            common: common(&config.slots).into(),
            pressure: SharedPressure::default(),
            live: Arc::new(AtomicUsize::new(config.slots.iter().map(|b| b.ports.len()).sum())),
            ended: Arc::default(),
            bells: bells.into(),
            make: Arc::new(make),
            region: Arc::clone(&region),
            domain: config.domain.clone(),
            steering: config.steering,
            on_panic: config.on_panic,
            config: config.worker,
            note: None,
            stop: stop.clone(),
        };
        let mut group = Self {
            seats: Vec::new(),
            threads: Vec::new(),
            stop: stop.clone(),
            domain: config.domain,
            _region: region,
        };
        let notes = watched_cores(&config.slots, &shared.config);
        let exchanges = exchanges(&shared.bells);
        for (id, (slot, exchange)) in config.slots.into_iter().zip(exchanges).enumerate() {
            let note = notes.get(id).map(|(_, note)| Arc::clone(note));
            group.hire(
                WorkerId(id as u16),
                slot,
                exchange,
                GroupShared { note, ..shared.clone() },
            )?;
        }
        if !notes.is_empty() {
            core_watch::watch(notes, stop.clone())
                .map_err(|source| system("start the thread that watches cores", source))?;
        }
        Ok(group)
    }

    /// Starts one worker and waits until it has had its first turn.
    fn hire(
        &mut self,
        id: WorkerId,
        slot: WorkerSlot,
        exchange: Exchange,
        shared: GroupShared<E>,
    ) -> Result<(), WorkerGroupError> {
        let (ready, is_ready) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("worker-{}", id.0))
            .spawn(move || live(id, slot, exchange, shared, &ready))
            .map_err(|source| system("start a worker's thread", source))?;
        match is_ready.recv() {
            Ok(Ok(seat)) => {
                self.seats.push(seat);
                self.threads.push(thread);
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            // It ended without a result: only a panic outside of the engine does that.
            Err(_) => {
                let _ = thread.join();
                Err(system("start a worker", std::io::Error::other("its thread panicked")))
            }
        }
    }

    /// What other threads need of each worker, in order.
    #[must_use]
    pub fn seats(&self) -> &[WorkerSeat<E>] {
        &self.seats
    }

    /// Handle to send requests to the control shard.
    #[must_use]
    pub fn control(&self) -> Control<E> {
        // A worker group has one worker at least.
        self.seats[0].control.clone()
    }

    /// How other threads read the counters of all workers.
    #[must_use]
    pub fn reader(&self) -> WorkerGroupReader {
        let readers = self.seats.iter().map(|seat| seat.reader.clone()).collect();
        WorkerGroupReader { readers, domain: self.domain.clone() }
    }

    /// Waits until the worker group has ended: until its stop is triggered, by any thread.
    ///
    /// # Errors
    /// The first worker, in order, that ended without a stop request.
    pub fn join(mut self) -> Result<WorkerGroupEnded, WorkerGroupError> {
        let mut workers = Vec::new();
        let mut exchanges = Vec::new();
        let mut first = None;
        for (id, thread) in self.threads.drain(..).enumerate() {
            let worker = WorkerId(id as u16);
            let failed = match thread.join() {
                Ok(TurnOutcome { ended, exchange }) => {
                    exchanges.extend(exchange);
                    ended.map(|ended| workers.push(ended)).err()
                }
                Err(payload) => Some(WorkerError::Panicked(panics::report::<E>(worker, &*payload))),
            };
            first = first.or(failed.map(|error| WorkerGroupError::Worker { worker, error }));
        }
        if let Some(error) = first {
            return Err(error);
        }
        // All workers have ended: no more packets are pushed.
        let in_rings = exchanges.iter_mut().map(Exchange::waiting).sum::<usize>() as u64;
        Ok(WorkerGroupEnded { workers, in_rings })
    }
}

impl<E> Drop for WorkerGroup<E> {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.stop.trigger();
        for thread in self.threads.drain(..) {
            // Its panic, if any, was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl<E> fmt::Debug for WorkerGroup<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerGroup").field("workers", &self.seats.len()).finish_non_exhaustive()
    }
}

/// What every worker of a worker group is given.
struct GroupShared<E> {
    carriers: Arc<[Option<WorkerId>]>,
    common: Arc<[bool]>,
    pressure: SharedPressure,
    live: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    bells: Arc<[Bell]>,
    make: Arc<Make<E>>,
    region: Arc<Region>,
    domain: Domain,
    steering: Steering,
    on_panic: OnPanic,
    config: WorkerConfig,
    /// What the worker and the thread that watches its core tell each other.
    note: Option<Arc<CoreNote>>,
    stop: Stop,
}

impl<E> Clone for GroupShared<E> {
    fn clone(&self) -> Self {
        Self {
            carriers: Arc::clone(&self.carriers),
            common: Arc::clone(&self.common),
            pressure: self.pressure.join(),
            live: Arc::clone(&self.live),
            ended: Arc::clone(&self.ended),
            bells: Arc::clone(&self.bells),
            make: Arc::clone(&self.make),
            region: Arc::clone(&self.region),
            domain: self.domain.clone(),
            steering: self.steering,
            on_panic: self.on_panic,
            config: self.config.clone(),
            note: self.note.clone(),
            stop: self.stop.clone(),
        }
    }
}

fn system(action: &'static str, source: std::io::Error) -> WorkerGroupError {
    WorkerGroupError::System { action, source }
}

/// The cores that are watched for others, and a note for each worker; none where they are not
/// watched, or the workers have no core each.
fn watched_cores(slots: &[WorkerSlot], config: &WorkerConfig) -> Vec<(usize, Arc<CoreNote>)> {
    let watches = config.watches_core && config.balance.is_some() && config.applications.is_none();
    let cores = slots.iter().map(|slot| Some((slot.core?, Arc::default())));
    let cores: Option<Vec<_>> = watches.then(|| cores.collect()).flatten();
    cores.unwrap_or_default()
}

/// How a worker shares a core that is watched, as it tells `note`. Without a note it has the core
/// for itself.
fn share_core(config: &mut WorkerConfig, note: Option<Arc<CoreNote>>) -> Option<CoreShare> {
    if !config.watches_core || config.applications.is_some() {
        return None;
    }
    let share = ApplicationShare::new();
    let core = note.map(|note| CoreShare::watched(note, share.clone()));
    match core {
        Some(_) => config.applications = Some(share),
        None => config.balance = None,
    }
    core
}

fn check(config: &WorkerGroupConfig) -> Result<(), WorkerGroupError> {
    let workers = config.slots.len();
    if workers == 0 || workers > WORKERS_MAX {
        return Err(WorkerGroupError::Workers(workers));
    }
    let made = usize::from(config.steering.workers());
    if made != workers {
        return Err(WorkerGroupError::Mismatch { what: "the steering", made, workers });
    }
    let mut cores: Vec<_> = config.slots.iter().filter_map(|slot| slot.core).collect();
    cores.sort_unstable();
    match cores.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(WorkerGroupError::CoreTwice(two[0])),
        None => Ok(()),
    }
}

/// The first worker with a port of each interface.
fn carriers(slots: &[WorkerSlot]) -> Vec<Option<WorkerId>> {
    let mut carriers = Vec::new();
    for (id, slot) in slots.iter().enumerate() {
        for port in &slot.ports {
            let iface = usize::from(port.iface().0);
            carriers.resize(carriers.len().max(iface + 1), None);
            carriers[iface].get_or_insert(WorkerId(id as u16));
        }
    }
    carriers
}

/// Of each interface, whether every worker has a port of it.
fn common(slots: &[WorkerSlot]) -> Vec<bool> {
    let has =
        |slot: &WorkerSlot, iface| slot.ports.iter().any(|p| usize::from(p.iface().0) == iface);
    let is_common = |iface| slots.iter().all(|slot| has(slot, iface));
    (0..carriers(slots).len()).map(is_common).collect()
}

/// Triggers the stop when a worker's thread ends, however it ends.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

type Ready<E> = SyncSender<Result<WorkerSeat<E>, WorkerGroupError>>;

/// A worker's life, on its own thread.
fn live<E: Engine + Publish + 'static>(
    id: WorkerId,
    slot: WorkerSlot,
    exchange: Exchange,
    shared: GroupShared<E>,
    ready: &Ready<E>,
) -> TurnOutcome {
    let guard = StopAtEnd(shared.stop.clone());
    let on_panic = shared.on_panic;
    let mut worker = match stand(id, slot, exchange, shared) {
        Ok(worker) => worker,
        Err(error) => {
            // Start-up waits for exactly this message.
            let _ = ready.send(Err(error));
            return TurnOutcome { ended: Err(WorkerError::NotMade(String::new())), exchange: None };
        }
    };
    let seat =
        WorkerSeat { control: worker.control(), reader: worker.reader(), bell: worker.bell() };
    // Later workers read what its engine publishes: published in its first turn.
    let told = ready.clone();
    worker.begun = Some(Box::new(move || _ = told.send(Ok(seat))));
    let ended = loop {
        let payload = match catch_unwind(AssertUnwindSafe(|| worker.run(&guard.0))) {
            Ok(ended) => break ended,
            Err(payload) => payload,
        };
        let report = panics::report::<E>(id, &*payload);
        match on_panic {
            OnPanic::EndProcess => end_process(&report),
            OnPanic::EndGroup => break Err(WorkerError::Panicked(report)),
            OnPanic::Isolate => worker.leave_behind(report),
        }
    };
    worker.tell_begun();
    TurnOutcome { ended, exchange: worker.group.take().map(|group| group.exchange) }
}

/// Decision D19's default. Without unwinding: nothing more is done on broken state.
fn end_process(report: &panics::PanicReport) -> ! {
    // The last message of the process; if the write fails there is no other channel.
    let _ = writeln!(std::io::stderr(), "floodwall: {report}");
    std::process::abort()
}

/// A worker on its core, with its memory and its engine.
fn stand<E: Engine + Publish + 'static>(
    id: WorkerId,
    slot: WorkerSlot,
    exchange: Exchange,
    shared: GroupShared<E>,
) -> Result<Worker<E>, WorkerGroupError> {
    if let Some(core) = slot.core {
        pin_to_core(core)?;
    }
    let pool = shared.region.attach()?;
    let random = entropy::randomness()?;
    let in_words = |error| WorkerGroupError::Worker { worker: id, error };
    let bell = shared.bells[usize::from(id.0)].clone();
    let mut config = shared.config;
    let core = share_core(&mut config, shared.note);
    let mut worker = Worker::empty(bell, pool, random, slot.ports, config).map_err(in_words)?;
    worker.core = core.or(worker.core.take());
    let workers = shared.bells.len();
    let now = Clock::new().now();
    let reader = shared.domain.reader_at(now).map_err(|NoRecord(made)| {
        WorkerGroupError::Mismatch { what: "the domain", made, workers }
    })?;
    let mut exchange = exchange;
    exchange.settle();
    if workers > 1 {
        worker.gate.join(id);
    }
    worker.group = Some(GroupCommands {
        id,
        workers: workers as u16,
        reader,
        steering: shared.steering,
        exchange,
        carriers: shared.carriers,
        common: shared.common,
        pressure: shared.pressure,
        live: shared.live,
        ended: shared.ended,
        bells: shared.bells,
        domain: shared.domain,
        make: shared.make,
    });
    worker.make_engine(now).map_err(in_words)?;
    Ok(worker)
}

#[cfg(test)]
mod credit;
#[cfg(test)]
mod full_ring;
#[cfg(test)]
mod tests;
