//! `xdp-flood`: what a flood leaves of a host with both halves, the kernel's and ours, on one core.
//!
//! Source of the question: receive livelock (Mogul and Ramakrishnan, "Eliminating receive livelock
//! in an interrupt-driven kernel", 1996); its figures show answers over offered load. Our worker on
//! `xdp:` and on `packet:`, the bare loop (`baselines/xdp_loop.rs`) and a program at a socket of
//! the kernel meet the same flood in one run, in turns: answering (a UDP echo), forgetting, and
//! answering beside a program that takes timestamps on the same core. Honest clients of both
//! families send requests to the flooded port meanwhile. Real threads in a namespace: needs root
//! and two cores, and is skipped without, with the reason. Where the system makes a group of each
//! session (`sched_autogroup_enabled`), or others use the cores, run it in a control group of its
//! own.

mod outside;
mod tables;
mod topology;
mod trials;
mod victims;

use core::time::Duration;

use serde::Deserialize;

use self::victims::Victim;
use crate::baselines::xdp_loop::Does;
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;

/// The experiment `xdp-flood`: answers of a flooded host over offered load.
#[derive(Clone, Copy, Debug, Default)]
pub struct XdpFlood;

/// What the victim does, and what else runs on its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scene {
    /// It answers, and has the core for itself.
    Answers,
    /// It forgets what it receives.
    Drops,
    /// It answers, beside a program on its core.
    Shared,
}

impl Scene {
    const ALL: [Self; 3] = [Self::Answers, Self::Drops, Self::Shared];

    const fn name(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Drops => "drops",
            Self::Shared => "shared",
        }
    }

    const fn does(self) -> Does {
        match self {
            Self::Drops => Does::Drops,
            Self::Answers | Self::Shared => Does::Answers,
        }
    }
}

/// One scene of the plan's `[vary]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    victims: Vec<Victim>,
    loads: Vec<u64>,
}

/// The plan's `[vary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    answers: Cases,
    drops: Cases,
    shared: Cases,
}

/// The plan's `[hold]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hold {
    honest_rate: u64,
    honest_flows: u16,
    patience_millis: u64,
}

/// The plan's `[full]` or `[quick]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    millis: u64,
    rounds: u64,
    /// Whether only the least load of each scene is tried, to see that everything works.
    least: bool,
}

/// What is to be done.
struct Work<'a> {
    vary: &'a Vary,
    hold: &'a Hold,
    length: Duration,
    rounds: u64,
    least: bool,
    seed: u64,
}

impl Work<'_> {
    /// Which victim meets which load in which scene. A load is met by all before the next comes.
    fn cases(&self) -> Vec<(Scene, Victim, u64)> {
        let mut all = Vec::new();
        for scene in Scene::ALL {
            let cases = match scene {
                Scene::Answers => &self.vary.answers,
                Scene::Drops => &self.vary.drops,
                Scene::Shared => &self.vary.shared,
            };
            let loads = if self.least { 1 } else { cases.loads.len() };
            for load in cases.loads.iter().take(loads) {
                all.extend(cases.victims.iter().map(|victim| (scene, *victim, *load)));
            }
        }
        all
    }
}

impl Experiment for XdpFlood {
    fn name(&self) -> &'static str {
        "xdp-flood"
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
        let Amount { millis, rounds, least } = plan.read("amount", amount)?;
        let length = Duration::from_millis(millis);
        let work = Work { vary: &vary, hold: &hold, length, rounds, least, seed };
        let results = trials::measure(&work, progress)?;
        Ok(tables::measured(&results, least, tables::loop_turns_round()?))
    }
}
