//! `DrillBench`: where a drill takes place. The memory wire and the simulated world are two.
//!
//! Called by `run.rs`, which has the phases; a bench controls how time passes and how packets get
//! from the crowd to the host. Invariant: every [`BenchLook`] is one consistent snapshot of the
//! host.

use core::time::Duration;

use floodwall_base::Instant;

use crate::error::DrillError;
use crate::report::GraceReport;
use crate::server::{FreeFrames, ServerView};
use crate::shards::ShardReport;
use crate::traffic::{TrafficSeen, TrafficStretch};
use crate::transit::CrossedPackets;

/// What the worker's loop counts: its own ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BenchLoop {
    /// Packets handed to the host.
    pub(crate) received: u64,
    /// Packets that the host sent.
    pub(crate) sent: u64,
    /// Of these, how many the device took.
    pub(crate) transmitted: u64,
    /// How many wait for it.
    pub(crate) backlog: u64,
    /// Dropped on the way, each with a counted reason.
    pub(crate) lost: u64,
    /// Of those received, dropped by the triage with a reason: refusable, and excess packets of
    /// unverified sources.
    pub(crate) triaged: [u64; 2],
    /// Of those received, how many wait at the triage.
    pub(crate) waiting: u64,
    /// How long the application on the worker's core has run; `None` where there is none.
    pub(crate) application_ran: Option<Duration>,
    /// The longest that it has waited for the core.
    pub(crate) application_gap: Duration,
    /// How long the workers have been busy, total; zero where they do not report it.
    pub(crate) ran: Duration,
    /// The longest turn, other work on the core included.
    pub(crate) longest: Duration,
}

/// One snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct BenchLook {
    pub(crate) at: Instant,
    /// The host's own statistics.
    pub(crate) view: ServerView,
    /// The statistics of its worker's loop.
    pub(crate) worker: BenchLoop,
    /// Free memory of the crowd's own pool: packets in flight are missing in it.
    pub(crate) crowd_free: FreeFrames,
    /// Packets that the crowd gave to the wire.
    pub(crate) given: u64,
}

/// How a stretch went.
#[derive(Clone, Debug, Default)]
pub(crate) struct BenchOutcome {
    pub(crate) seen: TrafficSeen,
    /// Packets dropped because the host's receive ring was full: honest, flood.
    pub(crate) ring_full: (u64, u64),
    /// Packets a second that the host took while the flood lasted, without the excess of unverified
    /// sources.
    pub(crate) taken_rate: u64,
    /// Packets a second that it took in order to look at them, at least.
    pub(crate) looked_rate: u64,
    /// What of its unloaded progress the application made; `None` where there is none.
    pub(crate) share: Option<f64>,
    /// The part of the time for which others had the cores of the bench's threads, where known.
    pub(crate) waited_percent: Option<u64>,
    /// The part of the time for which the flood was held back, in percent, where it may be.
    pub(crate) held_percent: Option<u64>,
}

/// The observer of a stretch.
pub(crate) trait BenchWatch {
    /// A snapshot, every few milliseconds.
    fn look(&mut self, look: &BenchLook);

    /// Its progress: questions, answers, flood packets so far.
    fn tick(&mut self, elapsed: Duration, tally: (u64, u64, u64));
}

/// The place of a drill: a host, its wire and its clock.
pub(crate) trait DrillBench {
    /// Carries out a stretch, until every question is answered or lost.
    fn run(
        &mut self,
        stretch: &TrafficStretch,
        watch: &mut dyn BenchWatch,
    ) -> Result<BenchOutcome, DrillError>;

    /// Whether [`DrillBench::run_beside_application`] is anything else than [`DrillBench::run`].
    fn has_application_apart(&self) -> bool {
        false
    }

    /// Whether the host's own triage separates established peers from unverified sources.
    fn finds_established_flows(&self) -> bool {
        true
    }

    /// The same beside a program that always wants the worker's core, where there is not one in
    /// every stretch: what it got of its unloaded progress is in the outcome, and the longest that
    /// it has waited comes with it.
    fn run_beside_application(
        &mut self,
        stretch: &TrafficStretch,
        watch: &mut dyn BenchWatch,
    ) -> Result<(BenchOutcome, Duration), DrillError> {
        Ok((self.run(stretch, watch)?, Duration::ZERO))
    }

    /// A router under floods that offer `load` of what it takes, for `length` each, where the bench
    /// has one.
    fn transit(
        &mut self,
        _length: Duration,
        _load: f64,
        _seed: u64,
    ) -> Result<Vec<CrossedPackets>, DrillError> {
        Ok(Vec::new())
    }

    /// Lets time pass without any sender, until `done` or for `at_most`; returns the last snapshot.
    fn settle(
        &mut self,
        at_most: Duration,
        watch: &mut dyn BenchWatch,
        done: &dyn Fn(&BenchLook) -> bool,
    ) -> Result<BenchLook, DrillError>;

    /// What each worker did so far, where there are several.
    fn shards(&self) -> Vec<ShardReport> {
        Vec::new()
    }

    /// Grace periods so far, where several workers read one writer's tables.
    fn grace(&self) -> Option<GraceReport> {
        None
    }

    /// What time it is.
    fn now(&self) -> Instant;

    /// How long the host is left in peace at the end, at most, for its memory to come back.
    fn patience(&self) -> Duration;

    /// A description for the report.
    fn describe(&self) -> &'static str;
}

impl BenchLoop {
    /// Packets that were handled: all that were received except those that were dropped only
    /// because of the excess of others, or still wait.
    pub(crate) fn handled(&self) -> u64 {
        let [_, unknown] = self.triaged;
        self.received.saturating_sub(unknown + self.waiting)
    }
}

impl BenchOutcome {
    /// Notes what was taken, and what the application got, from `first` until `now`.
    pub(crate) fn note(&mut self, first: &BenchLook, now: &BenchLook) {
        let (time, before, after) = (now.at - first.at, &first.worker, &now.worker);
        self.taken_rate = rate(after.handled().saturating_sub(before.handled()), time);
        self.looked_rate = rate(after.received.saturating_sub(before.received), time);
        let ran = after.application_ran.zip(before.application_ran);
        self.share = ran.map(|(after, before)| {
            after.saturating_sub(before).as_secs_f64() / time.as_secs_f64().max(1e-9)
        });
    }
}

/// Packets a second.
pub(crate) fn rate(packets: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(packets) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}
