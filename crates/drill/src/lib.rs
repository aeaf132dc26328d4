//! The flood contract as a command: floods, honest clients, criteria, verdicts.
//!
//! [`drill`] starts a host with an echo service, has honest clients of both families use it, and
//! floods it meanwhile: with captured attacks and mutations of them, datagrams, echo requests,
//! forged errors, false path MTUs and redirects, fragments, chains of headers, false neighbours and
//! routers, group queries. It
//! ends with a [`Report`], which has a verdict for each [`Criterion`]. Called by the program
//! `floodwall`. Where it takes place is a choice ([`DrillPlace`]): over a memory wire in real time;
//! on a TAP with the Linux kernel as the honest client; or in a simulated world, where the same
//! seed gives the same report byte for byte.
//!
//! [`self_test`] proves a device instead: see `self_test.rs`.
//!
//! Invariants: no packet leaves the process, or its own network namespace; the same seed gives the
//! same packets in the same order. Start reading at `run.rs`; `criteria.rs` has the guarantees.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod bench;
mod callers;
mod cost;
mod criteria;
mod error;
mod flood;
mod honest;
mod hosted;
mod hostile;
mod namespace;
mod paths;
mod pinned;
mod progress;
mod report;
mod router;
mod rss;
mod run;
mod self_test;
mod server;
mod shards;
mod sim;
mod slow_acceptor;
mod stamping;
mod streams;
mod syns;
mod tap;
mod throttle;
mod topology;
mod traffic;
mod transit;
mod wire;

use core::time::Duration;

pub use cost::{BurstReport, COST_RATIO_MAX, COST_ROUNDS, CostReport, PriceReport, measure_costs};
pub use criteria::{
    ANSWERED_MIN, Criterion, CriterionVerdict, ESTABLISHED_MIN, Evidence, FRAGMENTED_MIN, HELD_MAX,
    OFFERED_MAX, OFFERED_MIN, RECOVERY_MAX, RUN_MAX, SHARE_MIN, SHARE_SLACK, WAITED_EXCUSE, judge,
};
pub use error::DrillError;
pub use floodwall_world::{CostTable, ParseCostError};
pub use progress::{DrillProgress, SilentProgress, to_stderr};
pub use report::{
    ConservationReport, DropTotals, GraceReport, HonestReport, MemoryReport, PhaseReport, Report,
    WorkerReport,
};
pub use run::Schedule;
pub use self_test::{
    DeviceCapacity, Finding, FindingOutcome, SelfTest, SelfTestOptions, measure_capacity, self_test,
};
pub use server::{FreeFrames, ServerConfig, ServerEffort};
pub use shards::ShardReport;

/// Where a drill takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DrillPlace {
    /// Over a memory wire, in real time, the host on a thread of its own.
    #[default]
    Wire,
    /// In a simulated world with work that is priced by the table.
    World(CostTable),
    /// On a TAP in a network namespace that it makes, with the Linux kernel as the honest client.
    /// Needs root.
    Tap,
}

/// What to drill, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrillOptions {
    /// Decides every packet.
    pub seed: u64,
    /// Where.
    pub place: DrillPlace,
    /// How long, how fast.
    pub schedule: Schedule,
    /// The host under test.
    pub server: ServerConfig,
}

impl DrillOptions {
    /// A whole drill over the memory wire: about 60 s.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            place: DrillPlace::Wire,
            schedule: Schedule {
                phase: Duration::from_millis(1750),
                probe: Duration::from_millis(200),
                probe_rate: 50_000_000,
                flood_rate_max: wire::RATE_MAX,
                honest_rate: 1000,
                planned_for: None,
                connections_only: false,
            },
            server: ServerConfig::default(),
        }
    }

    /// A whole drill on a TAP: about 55 s.
    #[must_use]
    pub fn on_tap(seed: u64) -> Self {
        let whole = Self::new(seed);
        let schedule = Schedule {
            probe_rate: 10_000_000,
            flood_rate_max: 100_000,
            honest_rate: 500,
            ..whole.schedule
        };
        Self { place: DrillPlace::Tap, schedule, ..whole }
    }

    /// A whole drill in a simulated world: four tenths of a second of virtual time a phase.
    #[must_use]
    pub fn simulated(seed: u64) -> Self {
        let whole = Self::new(seed);
        let schedule = Schedule {
            phase: Duration::from_millis(400),
            probe: Duration::from_millis(20),
            probe_rate: 5_000_000,
            flood_rate_max: u64::MAX,
            ..whole.schedule
        };
        Self { place: DrillPlace::World(CostTable::default()), schedule, ..whole }
    }
}

/// Runs a drill.
///
/// # Errors
/// It could not be run. A criterion that does not hold is no error: see [`Report::passed`].
pub fn drill(
    options: &DrillOptions,
    progress: &mut dyn DrillProgress,
) -> Result<Report, DrillError> {
    let DrillOptions { seed, place, schedule, server } = options;
    match *place {
        DrillPlace::Wire => {
            let mut bench = wire::WireBench::start(server, *seed)?;
            run::run(&mut bench, *schedule, *seed, progress)
        }
        DrillPlace::Tap => tap::drill(server, *schedule, *seed, progress),
        DrillPlace::World(costs) => {
            let tables = [costs, schedule.planned_for.unwrap_or(costs)];
            let mut bench = sim::SimBench::start(server, *seed, tables)?;
            run::run(&mut bench, *schedule, *seed, progress)
        }
    }
}
