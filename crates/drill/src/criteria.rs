//! The criteria: the guarantees of a drill, each judged from evidence and from nothing else.
//!
//! Called by `run.rs` at the end. Pure functions of [`Evidence`], so that a test can show each of
//! them failing. The bounds are those of the flood contract; what cannot be judged on a machine
//! that others share (gaps in real time) is reported beside, not judged.

use core::fmt;
use core::time::Duration;

use floodwall_base::limits::{EXCEPTION_BURST, EXCEPTION_RATE, EXCEPTIONS_MAX};
use serde::Serialize;

use crate::report::{ConservationReport, HonestReport, MemoryReport, PhaseReport, WorkerReport};
use crate::topology;

/// The least share of honest questions that is answered, in each phase and family.
pub const ANSWERED_MIN: f64 = 0.99;
/// The least share of honest questions in fragments that is answered, in each phase and family.
pub const FRAGMENTED_MIN: f64 = 0.9;
/// The minimum part of their unloaded goodput that established clients keep while unverified
/// sources offer [`OFFERED_MAX`] of what the triage can look at.
pub const ESTABLISHED_MIN: f64 = 0.9;
/// The least part of its unloaded progress that an application on the worker's core makes, in each
/// phase.
pub const SHARE_MIN: f64 = 0.5;
/// By how much less it may be seen: a phase may end inside of a period of 500 us.
pub const SHARE_SLACK: f64 = 0.005;
/// The longest that recovery may take.
pub const RECOVERY_MAX: Duration = Duration::from_secs(1);
/// The longest that a worker may run without a break.
pub const RUN_MAX: Duration = Duration::from_millis(1);
/// The share of the measured capacity below which criteria are guaranteed (decision F27).
pub const OFFERED_MAX: f64 = 0.8;
/// The least part of a planned flood that must have been offered, or nothing was shown.
pub const OFFERED_MIN: f64 = 0.5;
/// The greatest part of a phase, in percent, for which its flood may have been held back. A flood
/// is planned at 0.6 of what the host took just before: one that now takes less than 0.56 of that
/// would need more.
pub const HELD_MAX: u64 = 25;
/// Unless others had the cores for this part of the time, in percent.
pub const WAITED_EXCUSE: u64 = 10;

/// A guarantee.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// Honest questions are answered.
    Answered,
    /// TCP clients get their connection and their echo.
    Connected,
    /// Every packet is accounted for exactly once, at every snapshot.
    Conservation,
    /// Clients behind the router are answered, through the honest router.
    Far,
    /// Honest questions in fragments are put together and answered.
    Fragmented,
    /// Clients that were answered before keep their goodput beside unverified sources.
    EstablishedKept,
    /// Memory is back to its former use.
    Memory,
    /// No packet was dropped without a counted reason.
    NamedDrops,
    /// The floods were offered.
    Offered,
    /// Learnt path information keeps to its rate, and its memory to its bound.
    Paths,
    /// An application on the worker's core makes its share of progress.
    Share,
    /// Service is as before soon after the floods.
    Recovery,
    /// The worker takes breaks.
    WorkerRun,
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Answered => "honest answered",
            Self::Connected => "TCP connected",
            Self::Conservation => "conservation",
            Self::Far => "router kept",
            Self::Fragmented => "large answered",
            Self::EstablishedKept => "established kept",
            Self::Memory => "memory",
            Self::NamedDrops => "named drops",
            Self::Offered => "floods offered",
            Self::Paths => "paths learnt",
            Self::Recovery => "recovery",
            Self::Share => "application",
            Self::WorkerRun => "worker run",
        })
    }
}

/// What came out for one criterion.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CriterionVerdict {
    /// Which criterion.
    pub criterion: Criterion,
    /// Whether it holds.
    pub passed: bool,
    /// What was guaranteed, in words.
    pub required: String,
    /// What was measured, in words.
    pub measured: String,
}

/// All that criteria are judged by.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The phases in order.
    pub phases: &'a [PhaseReport],
    /// Both ledgers, and how often they were checked.
    pub conservation: &'a ConservationReport,
    /// Memory before and after.
    pub memory: &'a MemoryReport,
    /// How long after the last flood service was as before; `None` where it was not.
    pub recovery: Option<Duration>,
    /// The worker's runs.
    pub worker: &'a WorkerReport,
}

/// Judges every criterion.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<CriterionVerdict> {
    let mut verdicts = vec![
        answered(evidence.phases),
        share(Criterion::Fragmented, FRAGMENTED_MIN, evidence.phases, |phase| &phase.fragmented),
        share(Criterion::Far, ANSWERED_MIN, evidence.phases, |phase| &phase.far),
        share(Criterion::Connected, ANSWERED_MIN, evidence.phases, |phase| &phase.called),
        offered(evidence.phases),
        conservation(evidence.conservation),
        named_drops(evidence.conservation),
        memory(evidence.memory),
        paths(evidence.phases),
        recovery(evidence.recovery),
        worker_run(evidence.worker),
    ];
    verdicts.extend(application(evidence.phases));
    verdicts.extend(established(evidence.phases));
    verdicts
}

/// Judged where the host's own triage decides what is admitted; `None` elsewhere.
fn established(phases: &[PhaseReport]) -> Option<CriterionVerdict> {
    let kept = phases.iter().filter_map(|phase| Some((phase.established_flows_kept?, phase)));
    let (kept, phase) = kept.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(CriterionVerdict {
        criterion: Criterion::EstablishedKept,
        passed: kept >= ESTABLISHED_MIN,
        required: format!("at least {:.0} % of unloaded goodput", ESTABLISHED_MIN * 100.0),
        measured: format!(
            "{:.2} % at worst, beside {} unverified/s; triage looks at {}/s",
            kept * 100.0,
            phase.offered_pps,
            phase.triage_pps.unwrap_or(0)
        ),
    })
}

/// Judged where there is an application on the worker's core: in virtual time in every phase, in
/// real time in one; `None` elsewhere.
fn application(phases: &[PhaseReport]) -> Option<CriterionVerdict> {
    let shares = phases.iter().filter_map(|phase| Some((phase.application_share?, phase)));
    let (share, phase) = shares.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(CriterionVerdict {
        criterion: Criterion::Share,
        passed: share >= SHARE_MIN - SHARE_SLACK,
        required: format!("at least {:.0} % of unloaded progress", SHARE_MIN * 100.0),
        measured: format!(
            "{:.1} % at worst ({}), longest gap {} us",
            share * 100.0,
            phase.name,
            phase.application_gap_nanos / 1000
        ),
    })
}

fn answered(phases: &[PhaseReport]) -> CriterionVerdict {
    share(Criterion::Answered, ANSWERED_MIN, phases, |phase| &phase.honest)
}

/// The least share of questions that is answered, of these rows.
fn share(
    criterion: Criterion,
    least: f64,
    phases: &[PhaseReport],
    rows: impl Fn(&PhaseReport) -> &[HonestReport],
) -> CriterionVerdict {
    let rows = phases.iter().flat_map(|phase| rows(phase).iter().map(move |row| (phase, row)));
    let worst = rows.min_by(|a, b| a.1.share().total_cmp(&b.1.share()));
    let share = worst.map_or(0.0, |(_, row)| row.share());
    CriterionVerdict {
        criterion,
        passed: share >= least,
        required: format!("at least {:.0} % in each phase and family", least * 100.0),
        measured: match worst {
            Some((phase, row)) => {
                format!("{:.2} % at worst ({}, {})", share * 100.0, phase.name, row.family)
            }
            None => "nothing was asked".to_owned(),
        },
    }
}

/// A flood is held back while packets pile up before the host, and while it is busier than criteria
/// are guaranteed for. A host that is too slow for a flood that it took before must not pass by
/// that.
fn offered(phases: &[PhaseReport]) -> CriterionVerdict {
    let part = |phase: &PhaseReport| phase.offered_pps as f64 / phase.planned_pps.max(1) as f64;
    let floods = || phases.iter().filter(|phase| phase.planned_pps > 0);
    let worst = floods().min_by(|a, b| part(a).total_cmp(&part(b)));
    let excused = |phase: &PhaseReport| phase.waited_percent.is_some_and(|p| p >= WAITED_EXCUSE);
    let held = |phase: &PhaseReport| phase.held_percent.unwrap_or(0);
    let most_held = floods().map(held).max().unwrap_or(0);
    let enough = |phase: &PhaseReport| part(phase) >= OFFERED_MIN && held(phase) <= HELD_MAX;
    let least = format!("{:.0} %", OFFERED_MIN * 100.0);
    CriterionVerdict {
        criterion: Criterion::Offered,
        passed: floods().all(|phase| enough(phase) || excused(phase)),
        required: format!(
            "at least {least} of what was planned, held back for at most {HELD_MAX} % of a phase, \
             or others had the cores {WAITED_EXCUSE} % of the time"
        ),
        measured: worst.map_or_else(
            || "no floods".to_owned(),
            |phase| {
                let (part, name) = (part(phase) * 100.0, &phase.name);
                format!("{part:.0} % of it at worst ({name}), held back for {most_held} % at most")
            },
        ),
    }
}

fn conservation(law: &ConservationReport) -> CriterionVerdict {
    CriterionVerdict {
        criterion: Criterion::Conservation,
        passed: law.violations == 0 && law.snapshots > 0,
        required: "every packet is accounted for exactly once, at every snapshot".to_owned(),
        measured: match &law.first_violation {
            None => format!("{} snapshots, all balanced", law.snapshots),
            Some(first) => {
                format!("{} of {} snapshots do not balance: {first}", law.violations, law.snapshots)
            }
        },
    }
}

fn named_drops(law: &ConservationReport) -> CriterionVerdict {
    CriterionVerdict {
        criterion: Criterion::NamedDrops,
        passed: law.unnamed == 0,
        required: "no packet is dropped without a reason".to_owned(),
        measured: format!("{} without a reason, {} with one", law.unnamed, law.named),
    }
}

fn memory(memory: &MemoryReport) -> CriterionVerdict {
    let (host, crowd) = memory.missing();
    CriterionVerdict {
        criterion: Criterion::Memory,
        passed: host == 0 && crowd == 0,
        required: "packet memory back to its former use".to_owned(),
        measured: match memory.host_waiting {
            waiting if waiting > 0 && !memory.outlasted => format!(
                "{host} packets missing at the host, {crowd} at the clients; {waiting} more \
                 wait for their time to end (fragments have 30 or 60 s), which a simulated drill \
                 outlasts"
            ),
            _ => format!("{host} packets missing at the host, {crowd} at the clients"),
        },
    }
}

/// Forged "packet too big" and redirects about existing flows are accepted, but neither often nor
/// for long. A drill in which none was accepted has not shown it.
fn paths(phases: &[PhaseReport]) -> CriterionVerdict {
    let learnt: u64 = phases.iter().map(|phase| phase.paths_learnt).sum();
    let known = phases.iter().map(|phase| phase.paths_known).max().unwrap_or(0);
    let part = |phase: &PhaseReport| phase.paths_learnt as f64 / phase.paths_allowed.max(1) as f64;
    let worst = phases.iter().max_by(|a, b| part(a).total_cmp(&part(b)));
    let room = topology::FAMILIES.len() as u64 * EXCEPTIONS_MAX as u64;
    let within = phases.iter().all(|phase| phase.paths_learnt <= phase.paths_allowed);
    CriterionVerdict {
        criterion: Criterion::Paths,
        passed: within && known <= room && learnt > 0,
        required: format!(
            "some, at most {EXCEPTION_RATE} a second and {EXCEPTION_BURST} at once on average; \
             room for {room}"
        ),
        measured: worst.map_or_else(
            || "no phases".to_owned(),
            |phase| {
                format!(
                    "{learnt} learnt, {} of {} at worst ({}); {known} known at most",
                    phase.paths_learnt, phase.paths_allowed, phase.name
                )
            },
        ),
    }
}

fn recovery(recovery: Option<Duration>) -> CriterionVerdict {
    CriterionVerdict {
        criterion: Criterion::Recovery,
        passed: recovery.is_some_and(|took| took <= RECOVERY_MAX),
        required: format!("share and latency as before within {} s", RECOVERY_MAX.as_secs()),
        measured: recovery.map_or_else(
            || "not within the phase".to_owned(),
            |took| format!("after {} ms", took.as_millis()),
        ),
    }
}

fn worker_run(worker: &WorkerReport) -> CriterionVerdict {
    let run = Duration::from_nanos(worker.run_nanos);
    CriterionVerdict {
        criterion: Criterion::WorkerRun,
        passed: run <= RUN_MAX,
        required: format!("at most {} us of work without a break", RUN_MAX.as_micros()),
        measured: format!(
            "{} us ({} packets and {} units at most in one round)",
            run.as_micros(),
            worker.packets_max,
            worker.units_max
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::FreeFrames;

    /// Evidence of a drill without blame.
    fn good() -> (Vec<PhaseReport>, ConservationReport, MemoryReport, WorkerReport) {
        let row = HonestReport { asked: 100, answered: 99, ..HonestReport::default() };
        let rows = || vec![row.clone(), row.clone()];
        let phase = PhaseReport {
            honest: rows(),
            fragmented: rows(),
            far: rows(),
            called: rows(),
            paths_learnt: 400,
            paths_allowed: 400,
            paths_known: 2 * EXCEPTIONS_MAX as u64,
            ..PhaseReport::default()
        };
        let law = ConservationReport { snapshots: 5, named: 7, ..ConservationReport::default() };
        let worker = WorkerReport { run_nanos: 1_000_000, ..WorkerReport::default() };
        (vec![phase], law, MemoryReport::default(), worker)
    }

    fn failed(
        (phases, conservation, memory, worker): &(
            Vec<PhaseReport>,
            ConservationReport,
            MemoryReport,
            WorkerReport,
        ),
        recovery: Option<Duration>,
    ) -> Vec<Criterion> {
        let verdicts = judge(&Evidence { phases, conservation, memory, recovery, worker });
        verdicts.iter().filter(|v| !v.passed).map(|v| v.criterion).collect()
    }

    #[test]
    fn a_drill_at_every_bound_passes() {
        assert_eq!(failed(&good(), Some(RECOVERY_MAX)), []);
    }

    #[test]
    fn a_flood_must_be_offered_and_not_be_held_back_for_long() {
        const SECOND: Option<Duration> = Some(Duration::from_secs(1));
        let mut e = good();
        (e.0[0].planned_pps, e.0[0].offered_pps) = (100, 50);
        assert_eq!(failed(&e, SECOND), []);
        (e.0[0].offered_pps, e.0[0].waited_percent) = (49, Some(WAITED_EXCUSE - 1));
        assert_eq!(failed(&e, SECOND), [Criterion::Offered]);
        e.0[0].waited_percent = Some(WAITED_EXCUSE);
        assert_eq!(failed(&e, SECOND), [], "others had the cores");
        let mut e = good();
        (e.0[0].planned_pps, e.0[0].offered_pps) = (100, 100);
        e.0[0].held_percent = Some(HELD_MAX);
        assert_eq!(failed(&e, SECOND), []);
        e.0[0].held_percent = Some(HELD_MAX + 1);
        assert_eq!(failed(&e, SECOND), [Criterion::Offered]);
        e.0[0].waited_percent = Some(WAITED_EXCUSE);
        assert_eq!(failed(&e, SECOND), [], "others had the cores");
    }

    #[test]
    fn each_floor_fails_alone() {
        let second = Some(RECOVERY_MAX);
        let mut e = good();
        e.0[0].honest[1].answered = 98;
        assert_eq!(failed(&e, second), [Criterion::Answered]);
        let mut e = good();
        e.0.clear();
        let unasked = [
            Criterion::Answered,
            Criterion::Fragmented,
            Criterion::Far,
            Criterion::Connected,
            Criterion::Paths,
        ];
        assert_eq!(failed(&e, second), unasked, "no questions prove nothing");
        let mut e = good();
        e.0[0].fragmented[0].answered = 90;
        assert_eq!(failed(&e, second), []);
        e.0[0].fragmented[0].answered = 89;
        assert_eq!(failed(&e, second), [Criterion::Fragmented]);
        let mut e = good();
        e.0[0].far[1].answered = 98;
        assert_eq!(failed(&e, second), [Criterion::Far]);
        let mut e = good();
        e.0[0].called[0].answered = 98;
        assert_eq!(failed(&e, second), [Criterion::Connected]);
        let mut e = good();
        (e.1.violations, e.1.first_violation) = (1, Some("arrived 3, accounted 2".to_owned()));
        assert_eq!(failed(&e, second), [Criterion::Conservation]);
        let mut e = good();
        e.1.snapshots = 0;
        assert_eq!(failed(&e, second), [Criterion::Conservation], "no snapshots prove nothing");
        let mut e = good();
        e.1.unnamed = 1;
        assert_eq!(failed(&e, second), [Criterion::NamedDrops]);
        let mut e = good();
        e.2.host_before = FreeFrames { small: 2, frames: 1, references: 1 };
        e.2.host_after = FreeFrames { small: 1, frames: 1, references: 1 };
        assert_eq!(failed(&e, second), [Criterion::Memory]);
        e.2.host_waiting = 1;
        assert_eq!(failed(&e, second), [], "a fragment may wait for a while");
        e.2.outlasted = true;
        assert_eq!(failed(&e, second), [Criterion::Memory], "but not for ever");
        let late = Some(RECOVERY_MAX + Duration::from_nanos(1));
        assert_eq!(failed(&good(), late), [Criterion::Recovery]);
        assert_eq!(failed(&good(), None), [Criterion::Recovery]);
        let mut e = good();
        e.0[0].application_share = Some(SHARE_MIN - SHARE_SLACK);
        assert_eq!(failed(&e, second), []);
        e.0[0].application_share = Some(0.49);
        assert_eq!(failed(&e, second), [Criterion::Share]);
        let mut e = good();
        e.0[0].established_flows_kept = Some(ESTABLISHED_MIN);
        assert_eq!(failed(&e, second), []);
        e.0[0].established_flows_kept = Some(ESTABLISHED_MIN - 0.001);
        assert_eq!(failed(&e, second), [Criterion::EstablishedKept]);
        let mut e = good();
        e.0[0].paths_learnt += 1;
        assert_eq!(failed(&e, second), [Criterion::Paths]);
        let mut e = good();
        e.0[0].paths_learnt = 0;
        assert_eq!(failed(&e, second), [Criterion::Paths], "no accepted message proves nothing");
        let mut e = good();
        e.0[0].paths_known += 1;
        assert_eq!(failed(&e, second), [Criterion::Paths]);
        let mut e = good();
        e.3.run_nanos += 1;
        assert_eq!(failed(&e, second), [Criterion::WorkerRun]);
    }
}
