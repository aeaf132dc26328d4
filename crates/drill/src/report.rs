//! The report: one document for programs, one table for humans, out of the same values.
//!
//! Made by `run.rs`. Keys are stable; units are in their names. Invariant: a drill in virtual time
//! of one seed gives the same document, byte for byte.

use core::fmt;
use core::time::Duration;

use floodwall_base::{DropCounts, Family, Instant};
use floodwall_sync::qsbr::Domain;
use serde::Serialize;

use crate::criteria::CriterionVerdict;
use crate::error::DrillError;
use crate::honest::SentQuestion;
use crate::server::FreeFrames;
use crate::shards::ShardReport;
use crate::topology;

/// One family's honest clients in one phase.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HonestReport {
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// Questions that were scheduled.
    pub asked: u64,
    /// Answered in time.
    pub answered: u64,
    /// Median latency, from the intended moment; 0 where nothing was answered.
    pub p50_ns: u64,
    /// What 99 % do not exceed.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl HonestReport {
    pub(crate) fn new(family: Family, asked: &SentQuestion) -> Self {
        let nanos = |time: Option<Duration>| time.map_or(0, |time| time.as_nanos() as u64);
        Self {
            family: topology::family_name(family),
            asked: asked.asked,
            answered: asked.answered,
            p50_ns: nanos(asked.latency.quantile(0.5)),
            p99_ns: nanos(asked.latency.quantile(0.99)),
            max_ns: nanos(asked.latency.max()),
        }
    }

    /// The answered part; 0 without questions.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.answered as f64 / self.asked as f64 }
    }
}

/// One phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PhaseReport {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
    /// Packets a second of this flood that the host took when more were offered; `None` without
    /// a flood.
    pub capacity_pps: Option<u64>,
    /// Packets a second that the triage looked at when more were offered than it could take.
    pub triage_pps: Option<u64>,
    /// What of its unloaded progress an application on the worker's core made; `None` where there
    /// was none.
    pub application_share: Option<f64>,
    /// The longest that it has waited for the core, in this phase or before.
    pub application_gap_nanos: u64,
    /// Whether the generator, and not the host, was what set the capacity.
    pub capacity_is_generator: bool,
    /// Flood packets a second that were meant to be offered.
    pub planned_pps: u64,
    /// Flood packets a second that were offered.
    pub offered_pps: u64,
    /// The part of the time, in percent, for which the host's thread or the clients' was ready but
    /// the system gave its core to others; `None` where the system does not report it, and in
    /// virtual time.
    pub waited_percent: Option<u64>,
    /// The part of the phase for which the flood was held back, because the host was loaded beyond
    /// what criteria are guaranteed for, in percent; `None` where that is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_percent: Option<u64>,
    /// Flood packets that were offered.
    pub offered: u64,
    /// Packets that came back to the attackers.
    pub returned: u64,
    /// Honest packets that found the receive ring full.
    pub ring_full_honest: u64,
    /// Flood packets that found the receive ring full.
    pub ring_full_flood: u64,
    /// Clients on the link, by family.
    pub honest: Vec<HonestReport>,
    /// Clients with questions, and answers, in fragments, by family.
    pub fragmented: Vec<HonestReport>,
    /// Clients behind the router, by family: their answers leave by the router that is right.
    pub far: Vec<HonestReport>,
    /// Clients that opened TCP connections, by family: the whole call, handshake to echo.
    pub called: Vec<HonestReport>,
    /// Clients that the host has answered before, by family.
    pub established: Vec<HonestReport>,
    /// The least part of their goodput without a flood that one family of these has kept.
    pub established_flows_kept: Option<f64>,
    /// Path MTUs and redirects that the host learnt in it, and since the phase before.
    pub paths_learnt: u64,
    /// How many it may have learnt meanwhile.
    pub paths_allowed: u64,
    /// What it knew of single destinations at the end.
    pub paths_known: u64,
}

/// Packets that were dropped for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DropTotals {
    /// `in`: it had arrived. `out`: the host had made it.
    pub direction: &'static str,
    /// The reason's name.
    pub reason: &'static str,
    /// How many.
    pub count: u64,
    /// What happened.
    pub sentence: &'static str,
}

impl DropTotals {
    pub(crate) fn of(direction: &'static str, counts: &DropCounts) -> Vec<Self> {
        let drop = |(reason, count): (floodwall_base::DropReason, u64)| Self {
            direction,
            reason: reason.name(),
            count,
            sentence: reason.sentence(),
        };
        counts.nonzero().map(drop).collect()
    }
}

/// Both ledgers at the end, and how often they were checked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ConservationReport {
    /// Snapshots that were checked.
    pub snapshots: u64,
    /// Of these, how many did not balance.
    pub violations: u64,
    /// What was wrong with the first of them.
    pub first_violation: Option<String>,
    /// Packets that arrived.
    pub arrived: u64,
    /// Of these: taken by a socket or by the host's own protocols.
    pub delivered: u64,
    /// Of these: passed on.
    pub forwarded: u64,
    /// Of these: answered.
    pub answered: u64,
    /// Of these: fragments that became part of a packet that is accounted for itself.
    pub merged: u64,
    /// Of these: fragments that still wait for others.
    pub held: u64,
    /// Of these: dropped, by reason.
    pub dropped_in: u64,
    /// Packets that the host made.
    pub originated: u64,
    /// Of these: left.
    pub transmitted: u64,
    /// Of these: still wait for a link address.
    pub pending: u64,
    /// Of these: dropped, by reason.
    pub dropped_out: u64,
    /// Packets that the triage dropped before any work, by reason.
    pub dropped_triage: u64,
    /// Packets that were dropped in the worker's loop, by reason.
    pub dropped_loop: u64,
    /// Drops with a reason, the receive ring's included.
    pub named: u64,
    /// Packets that are nowhere, or too many.
    pub unnamed: u64,
}

/// Free packet memory before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MemoryReport {
    /// The host's, when it had started.
    pub host_before: FreeFrames,
    /// The host's, when it was left in peace again.
    pub host_after: FreeFrames,
    /// Packets that waited at the host then: fragments for others (30 s for IPv4, 60 s for IPv6),
    /// and what is for a neighbour that does not answer (three questions, up to 10 s apart).
    pub host_waiting: u64,
    /// Whether the host was left in peace for longer than that, so that none may wait any more.
    pub outlasted: bool,
    /// The most packets of the host's that were seen in use.
    pub host_in_use_max: u64,
    /// The clients', before.
    pub crowd_before: FreeFrames,
    /// The clients', after: what is missing is kept by the host.
    pub crowd_after: FreeFrames,
    /// How long the host was left in peace until all was back.
    pub settled_ms: u64,
}

impl MemoryReport {
    /// How many packets are missing: the host's, and the clients'; those apart that may still wait
    /// (a memory wire hands packets over, so what waits may be of either's memory).
    #[must_use]
    pub const fn missing(&self) -> (u64, u64) {
        let may_wait = if self.outlasted { 0 } else { self.host_waiting };
        let host = self.host_after.in_use_since(&self.host_before);
        let crowd = self.crowd_after.in_use_since(&self.crowd_before);
        let (host_left, may_wait) = (host.saturating_sub(may_wait), may_wait.saturating_sub(host));
        (host_left, crowd.saturating_sub(may_wait))
    }
}

/// The worker's runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct WorkerReport {
    /// Packets in the largest round.
    pub packets_max: u64,
    /// Units of work in the dearest round.
    pub units_max: u64,
    /// What a unit took on average.
    pub unit_nanos: u64,
    /// What is judged: the dearest round's units at that price; in virtual time, the longest turn.
    pub run_nanos: u64,
    /// The longest turn by the clock, with other work on the core included: not judged.
    pub longest_gap_nanos: u64,
    /// How `run_nanos` was found.
    pub how: &'static str,
}

/// Reclamation of what the host's workers read together: how long what was replaced waits until
/// none of them can look at it any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct GraceReport {
    /// Objects that were freed after a grace period.
    pub freed: u64,
    /// The last grace period.
    pub last_nanos: u64,
    /// What 99 % do not exceed.
    pub p99_nanos: u64,
    /// The longest.
    pub max_nanos: u64,
    /// The most objects that waited at once.
    pub waiting_max: u64,
    /// Changes that were refused because as many objects waited as may.
    pub refused: u64,
}

impl GraceReport {
    /// What a domain has counted until now.
    pub(crate) fn of(domain: &Domain, now: Instant) -> Self {
        let limbo = domain.stats(now).limbo;
        let nanos = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self {
            freed: limbo.freed,
            last_nanos: nanos(limbo.grace_last),
            p99_nanos: nanos(limbo.grace_p99),
            max_nanos: nanos(limbo.grace_max),
            waiting_max: limbo.items_max as u64,
            refused: limbo.refused,
        }
    }
}

/// The whole document.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Of the program.
    pub version: &'static str,
    /// Where the drill took place.
    pub bench: &'static str,
    /// The seed.
    pub seed: u64,
    /// How long it took, in the bench's own time.
    pub took_ms: u64,
    /// Whether every criterion holds.
    pub passed: bool,
    /// The phases in order.
    pub phases: Vec<PhaseReport>,
    /// Drops by reason.
    pub drops: Vec<DropTotals>,
    /// Both ledgers.
    pub conservation: ConservationReport,
    /// Before and after.
    pub memory: MemoryReport,
    /// The worker's runs.
    pub worker: WorkerReport,
    /// Grace periods, where several workers read one writer's tables; an only worker frees at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<GraceReport>,
    /// What each worker did, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<ShardReport>,
    /// How long after the last flood service was as before.
    pub recovery_ms: Option<u64>,
    /// What came out.
    pub verdicts: Vec<CriterionVerdict>,
    /// Notes for readers of the figures.
    pub notes: Vec<String>,
}

impl Report {
    /// The document, for programs.
    ///
    /// # Errors
    /// None that can be caused from outside.
    pub fn to_json(&self) -> Result<String, DrillError> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

/// A time in the unit that suits it.
fn time(nanos: u64) -> String {
    match nanos {
        0 => "-".to_owned(),
        1..10_000 => format!("{:.1} us", nanos as f64 / 1e3),
        10_000..1_000_000 => format!("{} us", nanos / 1000),
        1_000_000..100_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{} ms", nanos / 1_000_000),
    }
}

/// A number with thin groups, for reading.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took_ms as f64 / 1000.0;
        writeln!(f, "floodwall drill: {}, seed {}, {seconds:.1} s\n", self.bench, self.seed)?;
        self.fmt_phases(f)?;
        self.fmt_drops(f)?;
        self.fmt_ledgers(f)?;
        self.fmt_rest(f)?;
        self.fmt_verdicts(f)
    }
}

impl Report {
    fn fmt_phases(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<15}{:>10}{:>11}{:>7}{:>12}  {:<5}{:>8}{:>9}{:>8}{:>9}{:>9}{:>9}{:>9}{:>8}",
            "phase",
            "flood/s",
            "takes/s",
            "load",
            "flood",
            "",
            "asked",
            "answered",
            "%",
            "p50",
            "p99",
            "max",
            "large %",
            "far %"
        )?;
        for phase in &self.phases {
            let mut left = format!("{:<15}{:>10}{:>11}{:>7}{:>12}", phase.name, "-", "-", "-", "-");
            if let Some(capacity) = phase.capacity_pps {
                let load = phase.offered_pps as f64 / capacity.max(1) as f64 * 100.0;
                let least = if phase.capacity_is_generator { ">" } else { "" };
                left = format!(
                    "{:<15}{:>10}{:>11}{:>6.0}%{:>12}",
                    phase.name,
                    grouped(phase.offered_pps),
                    format!("{least}{}", grouped(capacity)),
                    load,
                    grouped(phase.offered)
                );
            }
            let asked = phase.honest.iter().chain(&phase.established).map(|row| (row.family, row));
            let called = phase.called.iter().zip(["TCP4", "TCP6"]).map(|(row, name)| (name, row));
            for (at, (name, row)) in asked.chain(called).enumerate() {
                let share = |rows: &[HonestReport]| {
                    rows.get(at).map_or("-".to_owned(), |row| format!("{:.1}", row.share() * 100.0))
                };
                writeln!(
                    f,
                    "{left}  {name:<5}{:>8}{:>9}{:>8.2}{:>9}{:>9}{:>9}{:>9}{:>8}",
                    row.asked,
                    row.answered,
                    row.share() * 100.0,
                    time(row.p50_ns),
                    time(row.p99_ns),
                    time(row.max_ns),
                    share(&phase.fragmented),
                    share(&phase.far)
                )?;
                left = " ".repeat(left.len());
            }
        }
        writeln!(f)
    }

    fn fmt_drops(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "drops by reason")?;
        for drop in &self.drops {
            let direction = drop.direction;
            let count = grouped(drop.count);
            writeln!(f, "  {direction:<4}{count:>12}  {:<24}{}", drop.reason, drop.sentence)?;
        }
        let (honest, flood) = self.phases.iter().fold((0, 0), |(honest, flood), phase| {
            (honest + phase.ring_full_honest, flood + phase.ring_full_flood)
        });
        if honest + flood > 0 {
            let count = grouped(honest + flood);
            writeln!(
                f,
                "  ring{count:>12}  {:<24}The host's receive ring was full; {honest} of them are \
                 known to be honest.",
                "RingFull"
            )?;
        }
        writeln!(f)
    }

    fn fmt_ledgers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let law = &self.conservation;
        writeln!(
            f,
            "arrived  {} = {} delivered + {} answered + {} forwarded + {} dropped by name",
            law.arrived, law.delivered, law.answered, law.forwarded, law.dropped_in
        )?;
        if law.merged + law.held > 0 {
            writeln!(f, "           + {} merged + {} waiting fragments", law.merged, law.held)?;
        }
        writeln!(
            f,
            "made     {} = {} transmitted + {} waiting + {} dropped by name",
            law.originated, law.transmitted, law.pending, law.dropped_out
        )
    }

    fn fmt_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, worker) = (&self.memory, &self.worker);
        if let Some(most) = self.phases.iter().filter_map(|phase| phase.triage_pps).max() {
            writeln!(f, "triage   looked at up to {} packets/s of one flood", grouped(most))?;
        }
        let shares = self.phases.iter().filter_map(|phase| phase.application_share);
        if let Some(least) = shares.min_by(f64::total_cmp) {
            let gap = self.phases.iter().map(|phase| phase.application_gap_nanos).max();
            writeln!(
                f,
                "app      {:.1} % of its unloaded progress at worst, longest gap {}",
                least * 100.0,
                time(gap.unwrap_or(0))
            )?;
        }
        let free = |free: &FreeFrames| format!("{} small, {} frames", free.small, free.frames);
        writeln!(
            f,
            "memory   {} free before, {} after ({} ms later); {} packets in use at most",
            free(&memory.host_before),
            free(&memory.host_after),
            memory.settled_ms,
            memory.host_in_use_max
        )?;
        writeln!(
            f,
            "worker   longest run {} ({}); longest gap by the clock {}, which others on the core \
             share: not judged\n",
            time(worker.run_nanos),
            worker.how,
            time(worker.longest_gap_nanos)
        )?;
        if let Some(grace) = &self.grace {
            writeln!(
                f,
                "grace    {} last, {} p99, {} longest; {} freed, {} waited at most, {} refused\n",
                time(grace.last_nanos),
                time(grace.p99_nanos),
                time(grace.max_nanos),
                grouped(grace.freed),
                grace.waiting_max,
                grace.refused
            )?;
        }
        self.shards.iter().try_for_each(|shard| writeln!(f, "{shard}"))
    }

    fn fmt_verdicts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in &self.verdicts {
            let word = if verdict.passed { "PASS" } else { "FAIL" };
            writeln!(
                f,
                "{word}  {:<16} {}; required: {}",
                verdict.criterion, verdict.measured, verdict.required
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note  {note}")?;
        }
        let word = if self.passed { "every criterion holds" } else { "a criterion does not hold" };
        writeln!(f, "\n{}: {word}", if self.passed { "PASS" } else { "FAIL" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
        assert_eq!(time(1_500), "1.5 us");
        assert_eq!(time(15_000), "15 us");
        assert_eq!(time(1_500_000), "1.5 ms");
        assert_eq!(time(150_000_000), "150 ms");
    }
}
