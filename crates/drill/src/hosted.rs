//! `HostedWorkers`: the host under test on threads of its own, one for each worker, in real time.
//!
//! Started by `wire.rs` on the devices' queues, one for each worker. What the workers publish is
//! read as what they are together (`shards.rs`), each snapshot of one moment, those of several
//! workers of moments that are close to each other: each ledger balances by itself, so their sum
//! does. Threads: a shell, as `dispatch` is.

use core::time::Duration;
use std::fs;
use std::sync::mpsc::{self, Receiver};

use floodwall_base::{HashKey, IfIndex, Instant, Randomness, Steering};
use floodwall_device::Device;
use floodwall_dispatch::{
    ApplicationShare, Bell, Clock, Port, Setting, Stop, WorkerConfig, WorkerCounter,
    WorkerCounters, WorkerGroup, WorkerGroupConfig, WorkerGroupError, WorkerSlot, pin_to_core,
};
use floodwall_packet::PoolConfig;
use floodwall_stack::{Seats, Stack};
use rustix::thread::{Pid, gettid};

use crate::error::DrillError;
use crate::report::GraceReport;
use crate::server::{ServedCounts, ServerConfig, ServerView};
use crate::shards::{self, ShardReport};

/// Thousandths of the core that falling asleep and waking take: the system does that in the
/// worker's name, before and after the time that the worker sees.
const SLEEPING_PER_MILLE: u16 = 40;

/// One worker's thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) id: Pid,
    /// Its core, where it has one for itself.
    pub(crate) core: Option<usize>,
}

/// The reports of all workers at about one moment.
pub(crate) struct HostedReport {
    pub(crate) at: Instant,
    pub(crate) facts: WorkerCounters,
    pub(crate) view: ServerView,
}

/// The host of a drill on threads of its own. Dropping it ends it.
pub(crate) struct HostedWorkers {
    group: Option<WorkerGroup<ServedCounts>>,
    bells: Vec<Bell>,
    /// In the workers' order.
    threads: Vec<Thread>,
    stop: Stop,
}

/// The assignment of flows to workers in the drill of a seed.
pub(crate) fn steering(config: &ServerConfig, seed: u64) -> Steering {
    let mut random = Randomness::from_number(seed ^ 0x7374_6565_7269_6e67);
    let key = HashKey::new(random.secret.next_u64(), random.secret.next_u64());
    Steering::new(key, config.workers.max(1))
}

impl HostedWorkers {
    /// Starts a worker for each queue.
    pub(crate) fn start(
        config: &ServerConfig,
        seed: u64,
        queues: Vec<Box<dyn Device>>,
        applications: &ApplicationShare,
    ) -> Result<Self, DrillError> {
        let stop = Stop::new()
            .map_err(|source| DrillError::System { action: "make a stop signal", source })?;
        let one = config.pool();
        let workers = queues.len();
        let port = |queue| WorkerSlot { core: None, ports: vec![Port::new(IfIndex(1), queue)] };
        let group = WorkerGroupConfig::new(queues.into_iter().map(port).collect());
        let group = group.map_err(WorkerGroupError::from)?;
        let group = WorkerGroupConfig {
            memory: PoolConfig {
                small: one.small * workers,
                frames: one.frames * workers,
                references: one.references * workers,
                ..one
            },
            steering: steering(config, seed),
            worker: WorkerConfig {
                balance: config.balance_with(SLEEPING_PER_MILLE),
                applications: Some(applications.clone()),
                ..WorkerConfig::default()
            },
            ..group
        };
        let (tell, told) = mpsc::channel();
        let (config, stack) = (config.clone(), config.stack());
        let mut random = Randomness::from_number(seed ^ 0x686f_7374);
        let seats = Seats::new(&stack, &group.domain, group.steering, &mut random.secret);
        let make = move |setting: &mut Setting<'_>| {
            // The receiver is gone where the drill has ended.
            let _ = tell.send(Thread { id: gettid(), core: take_core(setting.worker.0) });
            let seat = seats.take(setting.worker).map_err(|error| error.to_string())?;
            let random = &mut Randomness::from_number(seed ^ u64::from(!setting.worker.0));
            let stack = Stack::seated(&stack, seat, random, setting.now);
            let stack = stack.map_err(|error| error.to_string())?;
            let clock = Some(Clock::new());
            ServedCounts::on(stack, &config, setting.pool, random, setting.now, clock)
                .map_err(|error| error.to_string())
        };
        let group = WorkerGroup::start(group, &stop, make)?;
        let bells = group.seats().iter().map(|seat| seat.bell.clone()).collect();
        let threads = threads(&told, workers);
        Ok(Self { group: Some(group), bells, threads, stop })
    }

    /// Wakes all workers: there is work in a queue without a descriptor.
    pub(crate) fn ring(&self) {
        self.bells.iter().for_each(Bell::ring);
    }

    /// What the workers have published last.
    pub(crate) fn said(&self) -> HostedReport {
        let all = self.group.as_ref().map(|group| group.reader().read()).unwrap_or_default();
        HostedReport {
            at: all.iter().map(|one| one.at).max().unwrap_or(Instant::ORIGIN),
            facts: WorkerCounters::of_all(all.iter().map(|one| &one.facts)),
            view: shards::together(all.iter().map(|one| ServerView::read(&one.words))),
        }
    }

    pub(crate) fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// What each worker did so far, where there are several.
    pub(crate) fn shards(&self) -> Vec<ShardReport> {
        let all = self.group.as_ref().map(|group| group.reader().read()).unwrap_or_default();
        if all.len() < 2 {
            return Vec::new();
        }
        let report = |(worker, facts): (usize, &WorkerCounters)| ShardReport {
            worker,
            received: facts.of(WorkerCounter::RxPackets),
            adopted: facts.of(WorkerCounter::Adopted),
            sent: facts.of(WorkerCounter::SentPackets),
            triaged: facts.of(WorkerCounter::DropsTriageRejectable)
                + facts.of(WorkerCounter::DropsTriageUnknown),
            longest_nanos: facts.of(WorkerCounter::LongestRoundNanos),
            application_share: None,
        };
        all.iter().map(|one| &one.facts).enumerate().map(report).collect()
    }

    /// Grace periods so far, where several workers read one writer's tables.
    pub(crate) fn grace(&self, now: Instant) -> Option<GraceReport> {
        let group = self.group.as_ref().filter(|group| group.seats().len() > 1)?;
        Some(GraceReport::of(group.reader().domain(), now))
    }

    /// The workers' end, where it came too early: one that ends ends the others.
    pub(crate) fn check(&mut self) -> Result<(), DrillError> {
        if !self.stop.is_triggered() {
            return Ok(());
        }
        Err(match self.group.take().map(WorkerGroup::join) {
            Some(Err(error)) => error.into(),
            _ => DrillError::WorkerEnded("it gave no reason".to_owned()),
        })
    }
}

/// Takes a core for a worker where there are two: the last for the first, and so on.
fn take_core(worker: u16) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Where it may not be pinned, the system schedules it.
    let core = cores.checked_sub(1 + usize::from(worker)).filter(|_| cores > 1);
    core.filter(|core| pin_to_core(*core).is_ok())
}

/// The workers' reports while they were made, one after the other.
fn threads(told: &Receiver<Thread>, workers: usize) -> Vec<Thread> {
    told.try_iter().take(workers).collect()
}

/// One number of the system's account of a thread: 0 is how long it ran, 1 how long it was ready
/// while others ran, in nanoseconds.
pub(crate) fn account(thread: Pid, number: usize) -> Option<u64> {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    fs::read_to_string(path).ok()?.split_whitespace().nth(number)?.parse().ok()
}

/// How long a thread has run, by the same.
pub(crate) fn ran(thread: &Thread) -> Option<Duration> {
    account(thread.id, 0).map(Duration::from_nanos)
}
