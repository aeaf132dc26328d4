//! `grace-period`: how long unlinked memory waits, at rest, under flood, and with a stuck reader.
//! Source: Sarma, "Route cache performance under stress" (linux-kernel, 29 March 2004).
//!
//! Twice over. In virtual time (`simulated.rs`), where the product's own reclamation runs with its
//! own policy and with two historic ones at loads from rest to ten times what a worker can do: the
//! same seed gives the same numbers. And in real threads (`threads.rs`), beside two crates, all in
//! one run, in turns: medians of ratios are compared, never figures of different runs. `tables.rs`
//! makes numbers, tables and pictures of both.

mod graces;
mod objects;
mod schemes;
mod simulated;
mod tables;
mod threads;

pub use graces::{BUCKET_NANOS, Bucket, Graces};
pub use schemes::Scheme;
pub(super) use simulated::poisson;
pub use simulated::{Costs, Seen, Traffic, simulate};
pub use threads::{Condition, Turn, Work, turn};

use floodwall_sync::qsbr::Paced;
use serde::Deserialize;

use crate::baselines::lazy_quiescence::LazyQuiescence;
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;

/// The experiment `grace-period`: how long unlinked memory waits to be freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct GracePeriod;

/// The plan's `[vary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    /// Shares of what a worker can do, growing.
    loads: Vec<f64>,
    schemes: Vec<Scheme>,
}

/// The plan's `[hold]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    virtual_time: Costs,
    threads: Work,
}

/// The plan's `[full]` or `[quick]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    /// Virtual time of each run.
    virtual_millis: u64,
    /// How often each scheme has its turn, at rest and under flood.
    turns: u64,
    /// Turns under flood that the machine must leave undisturbed, of each scheme: there are more
    /// of them until it has, but no more than `turns_max`.
    undisturbed: usize,
    /// See there.
    turns_max: u64,
    /// How long a turn lasts.
    turn_millis: u64,
    /// How often each has a stuck reader.
    stuck_turns: u64,
}

impl Amount {
    /// Whether a scheme wants more turns.
    fn is_disturbed(&self, series: &Series) -> bool {
        series.turns.iter().filter(|turn| turn.is_undisturbed()).count() < self.undisturbed
    }
}

/// The policies of virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Discipline {
    Floodwall,
    WhenIdle,
    FourCallbacks,
}

impl Discipline {
    const ALL: [Self; 3] = [Self::Floodwall, Self::WhenIdle, Self::FourCallbacks];

    const fn scheme(self) -> Scheme {
        match self {
            Self::Floodwall => Scheme::Floodwall,
            Self::WhenIdle => Scheme::QuiescentWhenIdle,
            Self::FourCallbacks => Scheme::FourCallbacks,
        }
    }

    fn run(self, costs: &Costs, traffic: &Traffic, seed: u64) -> Seen {
        match self {
            Self::Floodwall => simulate(Paced, costs, traffic, seed),
            Self::WhenIdle => simulate(LazyQuiescence::UNBOUNDED, costs, traffic, seed),
            Self::FourCallbacks => simulate(LazyQuiescence::THROTTLED, costs, traffic, seed),
        }
    }
}

/// One load in virtual time: what each policy saw.
struct Row {
    load: f64,
    seen: Vec<(Discipline, Seen)>,
}

/// One scheme in one condition: its turns, in order.
struct Series {
    scheme: Scheme,
    condition: Condition,
    turns: Vec<Turn>,
}

/// Everything that one seed measured.
struct Findings {
    costs: Costs,
    work: Work,
    rows: Vec<Row>,
    /// Rest, flood at ten times, rest.
    timeline: Row,
    series: Vec<Series>,
}

impl Experiment for GracePeriod {
    fn name(&self) -> &'static str {
        "grace-period"
    }

    fn run(
        &self,
        plan: &Plan,
        amount: &toml::Table,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let vary: Vary = plan.read("vary", &plan.vary)?;
        let hold: Hold = plan.read("hold", &plan.hold)?;
        let amount: Amount = plan.read("amount", amount)?;
        let (costs, work) = (hold.virtual_time, hold.threads);
        let end = amount.virtual_millis * 1_000_000;
        let steps = vary.loads.len() as u64 + 1 + amount.turns + amount.stuck_turns;
        let row = |load: f64, traffic: &Traffic| Row {
            load,
            seen: Discipline::ALL.map(|one| (one, one.run(&costs, traffic, seed))).into(),
        };
        let mut rows = Vec::new();
        for &load in &vary.loads {
            progress.step(&format!("load {load}"), rows.len() as u64, steps);
            rows.push(row(load, &Traffic::steady(load, end)));
        }
        let least = vary.loads.first().copied().unwrap_or_default();
        let most = vary.loads.last().copied().unwrap_or_default();
        let middle = (end / 4, end / 4 * 3);
        let traffic = Traffic { load: least, flood: most, from_to: middle, end };
        let timeline = row(most, &traffic);
        let done = rows.len() as u64 + 1;
        let series = in_threads(&vary.schemes, &work, &amount, |turn| {
            progress.step("threads", done + turn, steps);
        });
        Ok(tables::measured(&Findings { costs, work, rows, timeline, series }))
    }
}

/// All schemes in turns, so that each moment of the machine is shared by all.
fn in_threads(
    schemes: &[Scheme],
    work: &Work,
    amount: &Amount,
    mut progress: impl FnMut(u64),
) -> Vec<Series> {
    let conditions = [
        (Condition::Rest, amount.turns, amount.turn_millis),
        (Condition::Flood, amount.turns, amount.turn_millis),
        (Condition::Stuck, amount.stuck_turns, 2 * work.stuck_millis),
    ];
    let mut series: Vec<Series> = Vec::new();
    for (condition, ..) in conditions {
        let new = |&scheme| Series { scheme, condition, turns: Vec::new() };
        series.extend(schemes.iter().map(new));
    }
    for round in 0..amount.turns_max.max(amount.turns) {
        progress(round);
        for (condition, turns, millis) in conditions {
            let disturbed = condition == Condition::Flood
                && series.iter().any(|one| one.condition == condition && amount.is_disturbed(one));
            if round < turns || disturbed {
                for one in series.iter_mut().filter(|one| one.condition == condition) {
                    one.turns.push(turn(one.scheme, condition, work, millis));
                }
            }
        }
    }
    series
}
