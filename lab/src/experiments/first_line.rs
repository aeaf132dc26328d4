//! `first-line`: honest newcomers of a flooded host that answers SYNs at the interface.
//!
//! `floodwall run` on `xdp:` and on `packet:`, as it is by default, and the kernel with its cookies
//! meet the same floods in one run, in turns: SYNs at the port of the clients; datagrams at
//! another port, with questions in datagrams at that port and at a third one; SYNs, ACKs, RSTs and
//! datagrams at once; and as routers, datagrams to random destinations behind them (`router.rs`).
//! Some of them meet the floods a second time, beside a program on their core that only takes
//! timestamps. The plan `guard` has the same for the kernel behind `floodwall guard`, beside the
//! kernel alone and behind SYNPROXY, with ACKs and RSTs too. Clients of the kernel's connect and
//! exchange a line, `honest_rate` a second, in `patience_millis` each; all are judged,
//! and which met a stall of the machine is told (`stalls.rs`). Real processes and threads
//! in namespaces: needs root, `ip`, `ethtool` and two cores, and is skipped without, with the
//! reason. Where the system makes a group of each session, or others use the cores, run it in a
//! control group of its own.

mod clients;
mod questions;
mod router;
mod tables;
mod trials;
mod victims;

use core::slice;

use serde::Deserialize;

use self::victims::Victim;
use crate::error::LabError;
use crate::experiments::Experiment;
use crate::measure::Measured;
use crate::plan::Plan;
use crate::progress::Progress;

/// The experiment `first-line`: honest newcomers over offered load.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstLine;

/// What the flood is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Flood {
    /// SYNs of invented sources, to the clients' port.
    Syn,
    /// ACKs of no connection, of invented sources, to the clients' port.
    Ack,
    /// RSTs likewise.
    Rst,
    /// Datagrams of invented sources, to another port with a service.
    Udp,
    /// SYNs, ACKs, RSTs and datagrams, a quarter each.
    Mixed,
    /// Datagrams through a router, to random destinations behind a host.
    Routed,
    /// The same to random destinations on that host's link.
    OnLink,
}

impl Flood {
    const ALL: [Self; 7] =
        [Self::Syn, Self::Ack, Self::Rst, Self::Udp, Self::Mixed, Self::Routed, Self::OnLink];

    /// What its packets are.
    const fn parts(&self) -> &[Self] {
        match self {
            Self::Mixed => &[Self::Syn, Self::Ack, Self::Rst, Self::Udp],
            _ => slice::from_ref(self),
        }
    }

    /// Whether datagrams come to a host.
    const fn has_datagrams(self) -> bool {
        matches!(self, Self::Udp | Self::Mixed)
    }

    /// Whether the victim is a router.
    const fn is_transit(self) -> bool {
        matches!(self, Self::Routed | Self::OnLink)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Syn => "syn",
            Self::Ack => "ack",
            Self::Rst => "rst",
            Self::Udp => "udp",
            Self::Mixed => "mixed",
            Self::Routed => "routed",
            Self::OnLink => "on-link",
        }
    }
}

/// The plan's `[vary]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    floods: Vec<Flood>,
    victims: Vec<Victim>,
    loads: Vec<u64>,
    /// Victims that meet the floods a second time, beside a program on their core.
    #[serde(default)]
    beside_a_program: Vec<Victim>,
}

/// The plan's `[hold]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hold {
    honest_rate: u64,
    patience_millis: u64,
}

/// The plan's `[full]` or `[quick]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    calls: usize,
    rounds: u64,
    /// The one load that is tried in place of the plan's, to see that everything works.
    only_load: Option<u64>,
    /// How many of the floods are tried.
    #[serde(default = "all")]
    floods: usize,
}

const fn all() -> usize {
    usize::MAX
}

/// One victim and one flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TrialCase {
    flood: Flood,
    six: bool,
    victim: Victim,
    /// Packets a second that are to be offered.
    planned: u64,
    /// A program that takes timestamps is on the victim's core.
    shares: bool,
}

/// What is to be done.
struct Work<'a> {
    vary: &'a Vary,
    hold: &'a Hold,
    calls: usize,
    rounds: u64,
    only_load: Option<u64>,
    floods: usize,
}

impl Work<'_> {
    /// How long a flood has to rise.
    const fn rises(&self) -> core::time::Duration {
        if self.only_load.is_some() { trials::RISES_QUICK } else { trials::RISES }
    }

    /// Cores of which stalls are looked for: none where speed is not judged.
    const fn watched<'c>(&self, cores: &'c [usize]) -> &'c [usize] {
        if self.only_load.is_some() { &[] } else { cores }
    }

    /// Which victim meets which flood. A load is met by all before the next comes.
    fn cases(&self) -> Vec<TrialCase> {
        let loads = self.only_load.as_ref().map_or(self.vary.loads.as_slice(), slice::from_ref);
        let mut all = Vec::new();
        for flood in self.vary.floods.iter().take(self.floods) {
            for six in [false, true] {
                for load in loads {
                    let (flood, planned) = (*flood, *load);
                    let case = |victim, shares| TrialCase { flood, six, victim, planned, shares };
                    all.extend(self.vary.victims.iter().map(|victim| case(*victim, false)));
                    // Where only function is tested, one of them shows it.
                    let is_first = all.len() == self.vary.victims.len();
                    let count = self.only_load.map_or(usize::MAX, |_| usize::from(is_first));
                    let beside = self.vary.beside_a_program.iter().take(count);
                    all.extend(beside.map(|victim| case(*victim, true)));
                }
            }
        }
        all
    }
}

impl Experiment for FirstLine {
    fn name(&self) -> &'static str {
        "first-line"
    }

    fn run(
        &self,
        plan: &Plan,
        amount: &toml::Table,
        _: u64,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let vary: Vary = plan.read("vary", &plan.vary)?;
        let hold: Hold = plan.read("hold", &plan.hold)?;
        let Amount { calls, rounds, only_load, floods } = plan.read("amount", amount)?;
        let work = Work { vary: &vary, hold: &hold, calls, rounds, only_load, floods };
        Ok(tables::measured(&trials::measure(&work, progress)?, only_load.is_some()))
    }
}
