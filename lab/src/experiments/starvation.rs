//! `starvation`: what a flooded core leaves to an application on it, and to established flows among
//! the flood. Source of the question: the route cache and softirq discussion of 2003 and 2004, in
//! which a program that only takes timestamps was starved for more than six seconds.
//!
//! Twice: in virtual time (`simulated.rs`), where each variant of the worker (with and without
//! balance and triage) meets each load, exact and seeded; and in real threads (`threads.rs`), where
//! our worker and the kernel's own stack meet the same flood in one run, in turns, one core each
//! time. Threads need root and are skipped without, with the reason.

mod simulated;
mod tables;
mod threads;

use core::time::Duration;

use floodwall_schedule::Share;
use serde::Deserialize;

use self::simulated::{Point, Scene};
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;

/// The experiment `starvation`: the application's share and the established flows' goodput.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starvation;

/// How the worker shares its core, and which packets it serves first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Variant {
    /// It takes the core as long as packets come, first come first served.
    Neither,
    /// It leaves the application its share.
    Balance,
    /// It serves established flows first.
    Triage,
    /// Both, as the product does.
    Both,
}

impl Variant {
    const fn name(self) -> &'static str {
        match self {
            Self::Neither => "neither",
            Self::Balance => "balance",
            Self::Triage => "triage",
            Self::Both => "both",
        }
    }

    const fn balances(self) -> bool {
        matches!(self, Self::Balance | Self::Both)
    }

    const fn triages(self) -> bool {
        matches!(self, Self::Triage | Self::Both)
    }
}

/// The plan's `[vary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    variants: Vec<Variant>,
    loads: Vec<f64>,
    rates: Vec<u64>,
}

/// The plan's `[hold]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold {
    share: f64,
    ring: usize,
    toil_micros: u64,
    established: f64,
    /// The part of what triage can look at below which the contract promises.
    promised: f64,
}

/// The plan's `[full]` or `[quick]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    millis: u64,
    bare: bool,
    threads_millis: u64,
    threads_rounds: u64,
}

/// One scene in virtual time: every variant at every load.
struct Curves {
    /// What its numbers begin with.
    name: &'static str,
    /// Packets a second that are a load of one.
    capacity: u64,
    loads: Vec<f64>,
    /// For each variant, a point for each load.
    variants: Vec<(Variant, Vec<Point>)>,
    /// Packets a second that triage looks at while more come.
    triage: u64,
    /// Both balance and triage, at the load up to which the contract promises: packets a second.
    promised: (u64, Point),
}

impl Hold {
    fn share(&self) -> Share {
        Share::per_mille((self.share.clamp(0.0, 1.0) * 1000.0) as u16)
    }

    fn scene(&self, toil: Duration, length: Duration, seed: u64) -> Result<Scene, LabError> {
        let (share, ring) = (self.share(), self.ring);
        let scene = Scene { share, ring, toil, established_rate: 1, length, seed };
        let established_rate = (scene.capacity()? as f64 * self.established) as u64;
        Ok(Scene { established_rate: established_rate.max(1), ..scene })
    }
}

impl Experiment for Starvation {
    fn name(&self) -> &'static str {
        "starvation"
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
        let Amount { millis, bare, threads_millis, threads_rounds } =
            plan.read("amount", amount)?;
        let length = Duration::from_millis(millis);
        let scenes = [("virtual", hold.toil_micros, true), ("bare", 0, bare)];
        let scenes = scenes.into_iter().filter(|(_, _, wanted)| *wanted);
        let steps = (scenes.clone().count() * vary.variants.len() * vary.loads.len()) as u64;
        let (mut all, mut done) = (Vec::new(), 0);
        for (name, toil, _) in scenes {
            let scene = hold.scene(Duration::from_micros(toil), length, seed)?;
            let capacity = scene.capacity()?;
            let mut variants = Vec::new();
            for variant in &vary.variants {
                let mut points = Vec::new();
                for load in &vary.loads {
                    progress.step(variant.name(), done, steps);
                    points.push(scene.measure(*variant, (capacity as f64 * load) as u64)?);
                    done += 1;
                }
                variants.push((*variant, points));
            }
            progress.step("promised", done, steps);
            let triage = scene.triage()?;
            let rate = (triage as f64 * hold.promised) as u64;
            let promised = (rate, scene.measure(Variant::Both, rate)?);
            let loads = vary.loads.clone();
            all.push(Curves { name, capacity, loads, variants, triage, promised });
        }
        // What threads do is no more certain with another seed: it is measured once.
        let length = Duration::from_millis(threads_millis);
        let work = threads::Work { share: hold.share(), length, rounds: threads_rounds, seed };
        let threads = match seed {
            1 => Some(threads::measure(work, &vary.rates, progress)?),
            _ => None,
        };
        Ok(tables::measured(&all, threads.as_ref()))
    }
}
