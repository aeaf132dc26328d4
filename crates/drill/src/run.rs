//! The plan of a drill: which phases, how fast each flood, what is remembered, what is judged.
//!
//! Called by programs through [`drill`](crate::drill). Each flood is first offered without bound
//! for a moment, to learn what the host takes of it; then, with honest clients, at [`OFFERED_LOAD`]
//! of that, below the 0.8 under which criteria are guaranteed (decision F27).

use core::time::Duration;
use std::collections::VecDeque;

use floodwall_base::{DropCounts, DropReason, Family, Instant, limits};
use floodwall_world::CostTable;

use crate::bench::{BenchLook, BenchWatch, DrillBench, rate};
use crate::callers::CallPurpose;
use crate::criteria::{Evidence, judge};
use crate::error::DrillError;
use crate::flood::{Flood, FloodKind};
use crate::honest::{CallPlan, QuestionSource, SentQuestion};
use crate::hostile;
use crate::progress::DrillProgress;
use crate::report::{
    ConservationReport, DropTotals, HonestReport, MemoryReport, PhaseReport, Report, WorkerReport,
};
use crate::server::{FreeFrames, ServerPaths};
use crate::topology;
use crate::traffic::{AskedBy, TrafficStretch};
use crate::transit::CrossedPackets;

/// The part of the measured capacity that floods offer.
const OFFERED_LOAD: f64 = 0.6;
const _: () =
    assert!(OFFERED_LOAD < crate::criteria::OFFERED_MAX, "criteria are guaranteed below that");
/// How long the first looks may take.
const SETTLE_PATIENCE: Duration = Duration::from_secs(8);
/// No packet may wait for longer: a fragment for 60 s (RFC 8200 section 4.5), and the error that
/// then goes to its sender for a neighbour that does not answer.
const WAIT_MAX: Duration = Duration::from_secs(100);
/// How long service is measured at a time after the last flood.
const RECOVERY_STEP: Duration = Duration::from_millis(100);
/// So many of these in a row are judged together, and recovery is over at the end of the last of
/// them: answers that come in steps of a scheduler's tick average out.
const RECOVERY_STEPS: usize = 3;
/// How much slower than before an answer may be that counts as before.
const ANSWER_SLACK: Duration = Duration::from_micros(500);

/// How long, how fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Each phase.
    pub phase: Duration,
    /// Each measurement of capacity.
    pub probe: Duration,
    /// Packets a second offered then.
    pub probe_rate: u64,
    /// The maximum rate of a flood while honest clients send, even if the host could take more.
    pub flood_rate_max: u64,
    /// Honest questions a second, each family.
    pub honest_rate: u64,
    /// In virtual time: the machine for which the floods are planned; by default the one that the
    /// drill runs on. With another one's, floods do not become slower where the machine is.
    pub planned_for: Option<CostTable>,
    /// Attacks with connections of their own alone, without floods: criteria about those fail.
    pub connections_only: bool,
}

/// The floods in order: name, sentence, kind.
pub(crate) const FLOODS: [(&str, &str, FloodKind); 17] = [
    ("fragments", "tiny, overlapping, and of packets never completed", FloodKind::Fragments),
    ("headers", "long chains, many options, padding, routes", FloodKind::Headers),
    ("hostile", "captured attacks, as they are, aimed, and mutated", FloodKind::Hostile),
    ("udp closed", "datagrams to closed ports from random sources", FloodKind::UdpClosed),
    ("udp open", "datagrams to the service itself from random sources", FloodKind::UdpOpen),
    ("sweeps", "neighbours that ask for all and claim to be all", FloodKind::Sweeps),
    ("neighbours", "the same from sources on the link that do not exist", FloodKind::Neighbors),
    ("routers", "unsolicited router advertisements and redirects", FloodKind::Routers),
    ("queries", "queries of groups, of every version", FloodKind::Queries),
    ("syn", "SYNs from random sources, some with a request", FloodKind::Syn),
    ("syn one row", "SYNs that would meet in one row of a keyless hash", FloodKind::SynOneRow),
    ("syn and ack", "SYNs, ACKs and resets of the same sources", FloodKind::SynAndAck),
    (
        "ack and reset",
        "ACKs and resets of unknown flows, and with clients' addresses",
        FloodKind::AckAndReset,
    ),
    ("icmp echo", "echo requests from random sources", FloodKind::IcmpEcho),
    ("icmp errors", "forged errors about answers to honest clients", FloodKind::IcmpErrors),
    ("too big", "packet too big about what was just answered", FloodKind::TooBig),
    ("redirects", "redirects about what was just answered", FloodKind::Redirects),
];

/// Attacks with connections of their own, in order: name, sentence, purpose, and at how many times
/// its price.
const ERRANDS: [(&str, &str, CallPurpose, u64); 19] = {
    const TAKES: &str = "answers taken, and never closed: more than there are places";
    const LEAVES: &str = "ends that are never acknowledged: more than there are places";
    const IDLES: &str = "silent connections of two services: more than there are places";
    const DRIPS: &str = "64 web clients that take little of much all the time";
    const PIPELINES: &str = "20 web clients that send requests back to back";
    const TRICKLES: &str = "50 web clients that send a request byte by byte";
    const REPLAYS: &str = "an old frame of a connection sent again and again";
    const BESIDE: &str = "the same beside large pages for others";
    [
        (
            "slow accept",
            "handshakes completed faster than they are accepted",
            CallPurpose::Holds,
            1,
        ),
        ("slow read", "web clients that ask for much and read nothing", CallPurpose::Stalls, 1),
        ("churn", "connections that are reset as soon as they are there", CallPurpose::Drops, 1),
        ("half closed", TAKES, CallPurpose::Takes, 1),
        ("half closed x4", TAKES, CallPurpose::Takes, 4),
        ("not taken", LEAVES, CallPurpose::Leaves, 1),
        ("not taken x4", LEAVES, CallPurpose::Leaves, 4),
        ("idle", IDLES, CallPurpose::Idles, 1),
        ("idle x4", IDLES, CallPurpose::Idles, 4),
        ("drips", DRIPS, CallPurpose::Drips, 1),
        ("drips x4", DRIPS, CallPurpose::Drips, 4),
        ("pipelined", PIPELINES, CallPurpose::Pipelines, 1),
        ("pipelined x4", PIPELINES, CallPurpose::Pipelines, 4),
        ("by bytes", TRICKLES, CallPurpose::Trickles, 1),
        ("by bytes x4", TRICKLES, CallPurpose::Trickles, 4),
        ("replayed", REPLAYS, CallPurpose::Replays, 1),
        ("replayed x4", REPLAYS, CallPurpose::Replays, 4),
        ("beside pages", BESIDE, CallPurpose::ReplaysBesideFetches, 1),
        ("beside pages x4", BESIDE, CallPurpose::ReplaysBesideFetches, 4),
    ]
};

/// What is remembered of a drill.
struct Log<'a> {
    progress: &'a mut dyn DrillProgress,
    looks: u64,
    violations: u64,
    first_violation: Option<String>,
    host_before: Option<FreeFrames>,
    in_use_max: u64,
    quiet: bool,
    /// The longest that the application has waited so far.
    gap: Duration,
    /// What the host has learnt of paths so far.
    paths: ServerPaths,
}

/// What is wrong with a snapshot, where something is.
fn violation(look: &BenchLook) -> Option<String> {
    let (law, worker) = (look.view.stats.conservation(), &look.worker);
    let gone = worker.transmitted + worker.backlog + worker.lost;
    if law.arrived != law.arrived_fates {
        return Some(format!("{} arrived, {} accounted for", law.arrived, law.arrived_fates));
    }
    if law.originated != law.originated_fates {
        return Some(format!("{} made, {} accounted for", law.originated, law.originated_fates));
    }
    if worker.sent != gone {
        return Some(format!("{} sent, {gone} left, wait or dropped in loop", worker.sent));
    }
    let [refused, unknown] = worker.triaged;
    let arrived = law.arrived + refused + unknown + worker.waiting;
    if arrived < worker.received || look.given < worker.received {
        let given = look.given;
        return Some(format!("{given} given, {} received, {arrived} arrived", worker.received));
    }
    None
}

impl BenchWatch for Log<'_> {
    fn look(&mut self, look: &BenchLook) {
        self.looks += 1;
        self.gap = self.gap.max(look.worker.application_gap);
        self.paths = look.view.paths;
        if let Some(text) = violation(look) {
            self.violations += 1;
            self.first_violation.get_or_insert(text);
        }
        if let Some(before) = &self.host_before {
            self.in_use_max = self.in_use_max.max(look.view.free.in_use_since(before));
        }
    }

    fn tick(&mut self, elapsed: Duration, (asked, answered, flood): (u64, u64, u64)) {
        if !self.quiet {
            self.progress.tick(elapsed, asked, answered, flood);
        }
    }
}

/// A drill under way.
struct DrillRun<'a> {
    bench: &'a mut dyn DrillBench,
    log: Log<'a>,
    schedule: Schedule,
    seed: u64,
    /// Distinguishes stretches.
    stretches: u32,
    phases: Vec<PhaseReport>,
    /// Packets that found the ring full, those of measurements included.
    ring_full: u64,
    /// When the last phase ended, and what the host had learnt of paths by then.
    closed: (Instant, u64),
}

impl DrillRun<'_> {
    fn asking(&mut self, length: Duration) -> QuestionSource {
        self.stretches += 1;
        let (rate, id) = (self.schedule.honest_rate, self.stretches);
        QuestionSource {
            rate,
            length,
            discover: id == 1,
            established: false,
            calls: CallPlan::None,
            id,
        }
    }

    /// Honest clients alone.
    fn baseline(&mut self) -> Result<AskedBy, DrillError> {
        self.calm("baseline", "honest clients alone", CallPlan::Honest)
    }

    /// Honest clients without a flood, alone or beside attackers that open connections.
    fn calm(
        &mut self,
        name: &'static str,
        what: &'static str,
        calls: CallPlan,
    ) -> Result<AskedBy, DrillError> {
        let length = self.schedule.phase;
        self.log.progress.begin(name, what, length);
        let asking = QuestionSource { calls, ..self.asking(length) };
        let stretch = TrafficStretch { asking: Some(asking), ..TrafficStretch::default() };
        let outcome = self.bench.run(&stretch, &mut self.log)?;
        let mut phase = PhaseReport { name, what, ..PhaseReport::default() };
        phase.take(&outcome.seen.asked);
        phase.called = rows(&outcome.seen.called);
        phase.ring_full_honest = outcome.ring_full.0;
        phase.application_share = outcome.share;
        phase.offered = outcome.seen.flooded;
        phase.offered_pps = rate(phase.offered, length);
        self.close(phase);
        Ok(outcome.seen.asked)
    }

    fn close(&mut self, mut phase: PhaseReport) {
        phase.application_gap_nanos = self.log.gap.as_nanos() as u64;
        let (now, ServerPaths { learnt, known }) = (self.bench.now(), self.log.paths);
        let (before, learnt_before) = core::mem::replace(&mut self.closed, (now, learnt));
        (phase.paths_learnt, phase.paths_known) = (learnt.saturating_sub(learnt_before), known);
        phase.paths_allowed = paths_allowed(now - before);
        self.log.progress.end(&phase);
        self.phases.push(phase);
    }

    /// What the host takes of a flood when more is offered, how much it looks at, and whether more
    /// was offered; with or without established clients, for which it looks ahead.
    fn probe(
        &mut self,
        kind: FloodKind,
        established: bool,
    ) -> Result<(u64, u64, bool), DrillError> {
        let Schedule { probe: length, probe_rate: rate, .. } = self.schedule;
        let flood = Flood { kind, rate, length, seed: self.seed };
        self.log.quiet = true;
        let asking = established.then(|| QuestionSource { established, ..self.asking(length) });
        let stretch = TrafficStretch { asking, flood: Some(flood), probes: true };
        let outcome = self.bench.run(&stretch, &mut self.log)?;
        self.log.quiet = false;
        self.ring_full += outcome.ring_full.1;
        Ok((outcome.taken_rate.max(1), outcome.looked_rate, outcome.ring_full.1 > 0))
    }

    fn flood(
        &mut self,
        name: &'static str,
        what: &'static str,
        kind: FloodKind,
    ) -> Result<(), DrillError> {
        let length = self.schedule.phase;
        self.log.progress.begin(name, what, length);
        let (capacity, looked, more_offered) = self.probe(kind, false)?;
        let offer = ((capacity as f64 * OFFERED_LOAD) as u64).min(self.schedule.flood_rate_max);
        let flood = Flood { kind, rate: offer.max(1), length, seed: self.seed };
        let calls = if kind.is_tcp() { CallPlan::Honest } else { CallPlan::None };
        let asking = QuestionSource { calls, ..self.asking(length) };
        let stretch = TrafficStretch { asking: Some(asking), flood: Some(flood), probes: false };
        let outcome = self.bench.run(&stretch, &mut self.log)?;
        let (ring_full_honest, ring_full_flood) = outcome.ring_full;
        self.ring_full += ring_full_flood;
        let offered = outcome.seen.flooded;
        let mut phase = PhaseReport {
            name,
            what,
            capacity_pps: Some(capacity),
            triage_pps: Some(looked),
            capacity_is_generator: !more_offered,
            application_share: outcome.share,
            planned_pps: flood.rate,
            offered_pps: rate(offered, length),
            waited_percent: outcome.waited_percent,
            held_percent: outcome.held_percent,
            offered,
            returned: outcome.seen.returned,
            ring_full_honest,
            ring_full_flood,
            ..PhaseReport::default()
        };
        phase.take(&outcome.seen.asked);
        if kind.is_tcp() {
            phase.called = rows(&outcome.seen.called);
        }
        self.close(phase);
        Ok(())
    }

    /// A program that always wants the worker's core, beside a flood of as much as can be sent;
    /// nothing where one runs in every phase, or where it cannot have that core.
    fn application(&mut self) -> Result<(), DrillError> {
        if !self.bench.has_application_apart() {
            return Ok(());
        }
        let (name, what) = ("application", "a program on the worker's core, the service flooded");
        let Schedule { phase: length, probe_rate: rate, .. } = self.schedule;
        self.log.progress.begin(name, what, length);
        let flood = Flood { kind: FloodKind::UdpOpen, rate, length, seed: self.seed };
        let stretch = TrafficStretch { flood: Some(flood), ..TrafficStretch::default() };
        let (outcome, gap) = self.bench.run_beside_application(&stretch, &mut self.log)?;
        self.log.gap = self.log.gap.max(gap);
        self.ring_full += outcome.ring_full.1;
        let offered = outcome.seen.flooded;
        self.close(PhaseReport {
            name,
            what,
            application_share: outcome.share,
            offered_pps: crate::bench::rate(offered, length),
            waited_percent: outcome.waited_percent,
            held_percent: outcome.held_percent,
            offered,
            returned: outcome.seen.returned,
            ring_full_flood: outcome.ring_full.1,
            ..PhaseReport::default()
        });
        Ok(())
    }

    /// Clients that the host has answered before, alone, and then while unverified sources offer as
    /// much as criteria are guaranteed up to: 0.8 of what the triage can look at with established
    /// clients present.
    fn established(&mut self) -> Result<(), DrillError> {
        if !self.bench.finds_established_flows() {
            return Ok(());
        }
        let (name, what) = ("established", "known clients, while others offer 0.8 of all looks");
        let (length, kind) = (self.schedule.phase, FloodKind::UdpOpen);
        self.log.progress.begin(name, what, length);
        let asking = Some(QuestionSource { established: true, ..self.asking(length) });
        let alone = TrafficStretch { asking, ..TrafficStretch::default() };
        let [alone, ..] = self.bench.run(&alone, &mut self.log)?.seen.asked;
        let (capacity, looked, more_offered) = self.probe(kind, true)?;
        let rate = ((looked as f64 * crate::criteria::OFFERED_MAX) as u64).max(1);
        let flood = Some(Flood { kind, rate, length, seed: self.seed });
        let asking = Some(QuestionSource { established: true, ..self.asking(length) });
        let stretch = TrafficStretch { asking, flood, probes: false };
        let outcome = self.bench.run(&stretch, &mut self.log)?;
        self.ring_full += outcome.ring_full.1;
        let [flooded, ..] = &outcome.seen.asked;
        let kept = alone.iter().zip(flooded).map(|(alone, flooded)| kept(alone, flooded));
        let offered = outcome.seen.flooded;
        self.close(PhaseReport {
            name,
            what,
            capacity_pps: Some(capacity),
            triage_pps: Some(looked),
            capacity_is_generator: !more_offered,
            application_share: outcome.share,
            planned_pps: rate,
            offered_pps: crate::bench::rate(offered, length),
            waited_percent: outcome.waited_percent,
            held_percent: outcome.held_percent,
            offered,
            returned: outcome.seen.returned,
            ring_full_honest: outcome.ring_full.0,
            ring_full_flood: outcome.ring_full.1,
            established: rows(flooded),
            established_flows_kept: kept.min_by(f64::total_cmp),
            ..PhaseReport::default()
        });
        Ok(())
    }

    /// A router of its own under floods, where the bench has one.
    fn transit(&mut self) -> Result<(), DrillError> {
        let length = self.schedule.phase / 5;
        self.log.progress.begin("transit", "a router under floods", length);
        for CrossedPackets { mut phase, violation } in
            self.bench.transit(length, OFFERED_LOAD, self.seed)?
        {
            self.log.looks += 1;
            if let Some(text) = violation {
                self.log.violations += 1;
                self.log.first_violation.get_or_insert(format!("{}: {text}", phase.name));
            }
            phase.application_gap_nanos =
                phase.application_gap_nanos.max(self.log.gap.as_nanos() as u64);
            self.log.progress.end(&phase);
            self.phases.push(phase);
        }
        Ok(())
    }

    /// Honest clients alone again, step by step. Returns how long it took until some steps in a row
    /// had been as good as the baseline.
    fn recovery(&mut self, before: &AskedBy) -> Result<Option<Duration>, DrillError> {
        let (name, what) = ("recovery", "honest clients alone again");
        let length = self.schedule.phase;
        self.log.progress.begin(name, what, length);
        let started = self.bench.now();
        let (mut all, mut recovered) = (AskedBy::default(), None);
        let (mut ring_full_honest, mut share) = (0, None);
        let mut latest = VecDeque::with_capacity(RECOVERY_STEPS);
        loop {
            let stretch = TrafficStretch {
                asking: Some(self.asking(RECOVERY_STEP)),
                ..TrafficStretch::default()
            };
            let outcome = self.bench.run(&stretch, &mut self.log)?;
            ring_full_honest += outcome.ring_full.0;
            share = [share, outcome.share].into_iter().flatten().min_by(f64::total_cmp);
            let elapsed = self.bench.now() - started;
            let asked = &outcome.seen.asked;
            // Of those on the link: the others are too few in so short a time.
            let [before, ..] = before;
            let [near, ..] = asked;
            latest.truncate(RECOVERY_STEPS - 1);
            latest.push_front(near.clone());
            let as_before = latest.len() == RECOVERY_STEPS
                && before.iter().enumerate().all(|(family, before)| {
                    is_as_before(before, latest.iter().filter_map(|step| step.get(family)))
                });
            if recovered.is_none() && as_before {
                recovered = Some(elapsed);
            }
            let sums = all.iter_mut().flatten().zip(asked.iter().flatten());
            sums.for_each(|(sum, step)| sum.merge(step));
            // With short phases, too: fewer steps are no evidence.
            if elapsed >= length && latest.len() == RECOVERY_STEPS {
                break;
            }
        }
        let mut phase = PhaseReport { name, what, ring_full_honest, ..PhaseReport::default() };
        phase.application_share = share;
        phase.take(&all);
        self.close(phase);
        Ok(recovered)
    }
}

/// Whether service is as good as it was: in each of these steps the questions are answered, and in
/// all of them together the answers are as fast.
///
/// A queue that a flood has left behind delays all, so it shows in the fast tenth and in the median
/// alike, and either of them being as before means that there is none. Both are needed: other work
/// on the machine delays the requests that it hits, and they may be more than half; and where
/// answers wait for a scheduler's tick (4 ms, over a TAP on a busy machine), the fast tenth depends
/// on the ticks' phase against the questions, three times as much in one run as in the next, while
/// the median does not.
fn is_as_before<'a>(before: &SentQuestion, steps: impl Iterator<Item = &'a SentQuestion>) -> bool {
    let (mut all, mut answered) = (SentQuestion::default(), true);
    for step in steps {
        answered &= step.share() >= crate::criteria::ANSWERED_MIN;
        all.merge(step);
    }
    let as_fast = |part| {
        let both = before.latency.quantile(part).zip(all.latency.quantile(part));
        both.is_some_and(|(before, now)| now <= (before * 2).max(before + ANSWER_SLACK))
    };
    answered && (as_fast(0.1) || as_fast(0.5))
}

/// How many path MTUs and redirects a host may accept within a time: what one costs is random, an
/// average of one.
fn paths_allowed(time: Duration) -> u64 {
    let rate = f64::from(limits::EXCEPTION_RATE) * time.as_secs_f64();
    ((rate + f64::from(limits::EXCEPTION_BURST)) * 1.25) as u64
}

/// What is left of a family's goodput, of what it was before; nothing where it was nothing.
fn kept(before: &SentQuestion, now: &SentQuestion) -> f64 {
    if before.answered == 0 { 0.0 } else { now.share() / before.share() }
}

/// What became of the questions, by family.
fn rows(asked: &[SentQuestion; 2]) -> Vec<HonestReport> {
    let families: [Family; 2] = topology::FAMILIES;
    let row = |(family, asked): (&Family, _)| HonestReport::new(*family, asked);
    families.iter().zip(asked).map(row).collect()
}

impl PhaseReport {
    /// Adds the outcome of all clients' questions.
    fn take(&mut self, asked: &AskedBy) {
        let [near, large, far] = asked;
        (self.honest, self.fragmented, self.far) = (rows(near), rows(large), rows(far));
    }
}

/// Runs all phases on a bench.
pub(crate) fn run(
    bench: &mut dyn DrillBench,
    schedule: Schedule,
    seed: u64,
    progress: &mut dyn DrillProgress,
) -> Result<Report, DrillError> {
    let log = Log {
        progress,
        looks: 0,
        violations: 0,
        first_violation: None,
        host_before: None,
        in_use_max: 0,
        quiet: false,
        gap: Duration::ZERO,
        paths: ServerPaths::default(),
    };
    let started = bench.now();
    let (stretches, phases, ring_full, closed) = (0, Vec::new(), 0, (started, 0));
    let mut run = DrillRun { bench, log, schedule, seed, stretches, phases, ring_full, closed };
    // The first looks at the host's memory, before anything is sent.
    let start = run.bench.settle(SETTLE_PATIENCE, &mut run.log, &|look| look.view.looks > 1)?;
    run.log.host_before = Some(start.view.free);
    let before = run.baseline()?;
    let whole = !schedule.connections_only;
    for (name, what, kind) in FLOODS.into_iter().filter(|_| whole) {
        run.flood(name, what, kind)?;
    }
    for (name, what, purpose, price) in ERRANDS {
        run.calm(name, what, CallPlan::Beside(purpose, price))?;
    }
    if whole {
        run.application()?;
        run.established()?;
        run.transit()?;
    }
    let recovery = run.recovery(&before)?;
    let (peace, looks) = (run.bench.now(), run.bench_looks()?);
    let is_back = |look: &BenchLook| {
        look.view.looks > looks
            && look.worker.received == look.given
            && look.view.free.in_use_since(&start.view.free) == 0
            && look.crowd_free.in_use_since(&start.crowd_free) == 0
    };
    let patience = run.bench.patience();
    let end = run.bench.settle(patience, &mut run.log, &is_back)?;
    let end = at_rest(run.bench, &mut run.log, end)?;
    let settled = run.bench.now() - peace;
    let took = run.bench.now() - started;
    let memory = MemoryReport {
        host_before: start.view.free,
        host_after: end.view.free,
        host_waiting: end.view.stats.held + end.view.stats.pending,
        outlasted: patience > WAIT_MAX,
        host_in_use_max: run.log.in_use_max,
        crowd_before: start.crowd_free,
        crowd_after: end.crowd_free,
        settled_ms: settled.as_millis() as u64,
    };
    Ok(run.report(&end, memory, recovery, took))
}

/// Packets that a snapshot does not account for: under way, or dropped without a reason.
fn unaccounted(look: &BenchLook) -> u64 {
    let (law, worker) = (look.view.stats.conservation(), &look.worker);
    let triaged: u64 = worker.triaged.iter().sum();
    law.arrived.abs_diff(law.arrived_fates)
        + law.originated.abs_diff(law.originated_fates)
        + worker.sent.abs_diff(worker.transmitted + worker.backlog + worker.lost)
        + look.given.saturating_sub(worker.received)
        + worker.received.saturating_sub(law.arrived + triaged + worker.waiting)
}

/// The last snapshot, or a later one in which nothing is under way: a host never rests completely.
/// It asks its neighbours, which answer, and fragments are given up. What is dropped without a
/// reason remains unaccounted for.
fn at_rest(
    bench: &mut dyn DrillBench,
    watch: &mut dyn BenchWatch,
    last: BenchLook,
) -> Result<BenchLook, DrillError> {
    if unaccounted(&last) == 0 {
        return Ok(last);
    }
    bench.settle(SETTLE_PATIENCE, watch, &|look| unaccounted(look) == 0)
}

impl DrillRun<'_> {
    /// How often the host has looked at its memory so far.
    fn bench_looks(&mut self) -> Result<u64, DrillError> {
        let look = self.bench.settle(Duration::ZERO, &mut self.log, &|_| true)?;
        Ok(look.view.looks)
    }

    fn report(
        self,
        end: &BenchLook,
        memory: MemoryReport,
        recovery: Option<Duration>,
        took: Duration,
    ) -> Report {
        let conservation = self.conservation(end);
        let worker = worker(end);
        let evidence = Evidence {
            phases: &self.phases,
            conservation: &conservation,
            memory: &memory,
            recovery,
            worker: &worker,
        };
        let verdicts = judge(&evidence);
        let stats = &end.view.stats;
        let mut drops = DropTotals::of("in", &stats.drops_in);
        drops.extend(DropTotals::of("out", &stats.drops_out));
        let mut triaged = DropCounts::default();
        let reasons = [DropReason::TriageRejectable, DropReason::TriageUnknown];
        reasons.into_iter().zip(end.worker.triaged).for_each(|(reason, n)| triaged.add(reason, n));
        drops.extend(DropTotals::of("in", &triaged));
        Report {
            version: env!("CARGO_PKG_VERSION"),
            bench: self.bench.describe(),
            seed: self.seed,
            took_ms: took.as_millis() as u64,
            passed: verdicts.iter().all(|verdict| verdict.passed),
            notes: notes(&self.phases),
            phases: self.phases,
            drops,
            conservation,
            memory,
            worker,
            grace: self.bench.grace(),
            shards: self.bench.shards(),
            recovery_ms: recovery.map(|took| took.as_millis() as u64),
            verdicts,
        }
    }

    fn conservation(&self, end: &BenchLook) -> ConservationReport {
        let (stats, worker) = (&end.view.stats, &end.worker);
        let outcomes = &stats.outcomes;
        let dropped_triage: u64 = worker.triaged.iter().sum();
        let unnamed = unaccounted(end);
        let (dropped_in, dropped_out) = (stats.drops_in.total(), stats.drops_out.total());
        ConservationReport {
            snapshots: self.log.looks,
            violations: self.log.violations,
            first_violation: self.log.first_violation.clone(),
            arrived: outcomes.received,
            delivered: outcomes.delivered,
            forwarded: outcomes.forwarded,
            answered: outcomes.answered,
            merged: outcomes.merged,
            held: stats.held,
            dropped_in,
            originated: outcomes.originated,
            transmitted: outcomes.transmitted,
            pending: stats.pending,
            dropped_out,
            dropped_triage,
            dropped_loop: worker.lost,
            named: dropped_in + dropped_out + dropped_triage + worker.lost + self.ring_full,
            unnamed,
        }
    }
}

fn worker(end: &BenchLook) -> WorkerReport {
    let (effort, longest) = (&end.view.effort, end.worker.longest.as_nanos() as u64);
    let mut report = WorkerReport {
        packets_max: effort.packets_max,
        units_max: effort.units_max,
        longest_gap_nanos: longest,
        ..WorkerReport::default()
    };
    if effort.busy_nanos == 0 {
        (report.run_nanos, report.how) = (longest, "longest turn in virtual time");
    } else {
        report.unit_nanos = effort.busy_nanos.div_ceil(effort.units.max(1));
        report.run_nanos = effort.units_max * report.unit_nanos;
        report.how = "dearest round's units of work at the average price of one";
    }
    report
}

/// Notes for readers of the figures.
fn notes(phases: &[PhaseReport]) -> Vec<String> {
    let captures = hostile::captures();
    let mut notes = vec![format!("hostile packets come from {captures} captures in the program")];
    notes.push(format!(
        "takes/s is what the host took of that flood, unpaced, just before its phase; floods offer \
         {:.0} % of it at most",
        OFFERED_LOAD * 100.0
    ));
    if phases.iter().any(|phase| phase.capacity_is_generator) {
        notes.push("> marks where the generator, not the host, set that limit".to_owned());
    }
    if let Some(most) = phases.iter().filter_map(|phase| phase.waited_percent).max()
        && most >= crate::criteria::WAITED_EXCUSE
    {
        notes.push(format!(
            "other work on this machine kept a thread of the drill off its core for up to {most} % \
             of a phase; the memory wire holds floods back meanwhile, since what the host \
             could take then was not measured"
        ));
    }
    notes.extend(held_back(phases));
    let honest: u64 = phases.iter().map(|phase| phase.ring_full_honest).sum();
    if honest > 0 {
        notes.push(format!(
            "{honest} honest packets found the receive ring full: the host's thread did not run \
             for as long as the ring lasts; is the machine busy with other work?"
        ));
    }
    notes
}

/// Which flood was held back for the longest, where one was.
fn held_back(phases: &[PhaseReport]) -> Option<String> {
    let held = phases.iter().filter_map(|phase| Some((phase.held_percent?, phase.name)));
    let (percent, name) = held.max().filter(|(percent, _)| *percent > 0)?;
    Some(format!(
        "floods were held back for up to {percent} % of a phase ({name}): the host was busier than \
         the criteria allow for (or packets piled up), so it took less then than when the flood \
         was planned; flood/s is what was offered"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flood_that_was_held_back_for_longest_is_named() {
        let phase = |name, held_percent| PhaseReport { name, held_percent, ..<_>::default() };
        assert_eq!(held_back(&[phase("a", None), phase("b", Some(0))]), None);
        let note = held_back(&[phase("a", Some(3)), phase("b", Some(12)), phase("c", None)]);
        assert!(note.unwrap().contains("12 % of a phase (b)"));
    }

    #[test]
    fn a_doctored_snapshot_is_seen() {
        let mut look = BenchLook::default();
        assert_eq!(violation(&look), None);
        look.view.stats.outcomes.received = 1;
        assert_eq!(violation(&look), Some("1 arrived, 0 accounted for".to_owned()));
        look.view.stats.outcomes.delivered = 1;
        assert_eq!(violation(&look), None);
        look.view.stats.outcomes.originated = 1;
        assert!(violation(&look).is_some());
        look.view.stats.outcomes.transmitted = 1;
        look.worker.sent = 1;
        assert!(violation(&look).is_some());
        look.worker.lost = 1;
        assert_eq!(violation(&look), None);
        look.worker.received = 2;
        assert!(violation(&look).is_some(), "more received than arrived or were given");
    }

    /// A bench at the end of a drill: so many packets are lost, and in each snapshot but the last
    /// ones of `snapshots` one more is on the wire.
    struct Ended {
        lost: u64,
        snapshots: u64,
    }

    impl Ended {
        fn look(&self) -> BenchLook {
            let mut look = BenchLook::default();
            look.worker.received = 100;
            look.view.stats.outcomes.received = 100;
            look.view.stats.outcomes.delivered = 100;
            look.given = 100 + self.lost + u64::from(self.snapshots > 0);
            look
        }
    }

    impl DrillBench for Ended {
        fn run(
            &mut self,
            _: &TrafficStretch,
            _: &mut dyn BenchWatch,
        ) -> Result<crate::bench::BenchOutcome, DrillError> {
            Ok(crate::bench::BenchOutcome::default())
        }

        fn settle(
            &mut self,
            at_most: Duration,
            _: &mut dyn BenchWatch,
            done: &dyn Fn(&BenchLook) -> bool,
        ) -> Result<BenchLook, DrillError> {
            for _ in 0..at_most.as_millis() {
                self.snapshots = self.snapshots.saturating_sub(1);
                if done(&self.look()) {
                    break;
                }
            }
            Ok(self.look())
        }

        fn now(&self) -> Instant {
            Instant::ORIGIN
        }

        fn patience(&self) -> Duration {
            Duration::ZERO
        }

        fn describe(&self) -> &'static str {
            "the end"
        }
    }

    struct Blind;

    impl BenchWatch for Blind {
        fn look(&mut self, _: &BenchLook) {}

        fn tick(&mut self, _: Duration, _: (u64, u64, u64)) {}
    }

    #[test]
    fn a_packet_on_the_wire_at_the_end_is_awaited_and_a_lost_one_is_seen() {
        for (lost, snapshots) in [(0, 0), (0, 3), (2, 0), (1, 5)] {
            let mut bench = Ended { lost, snapshots };
            let last = bench.look();
            let end = at_rest(&mut bench, &mut Blind, last).unwrap();
            assert_eq!(unaccounted(&end), lost);
        }
    }

    /// A step of a hundred questions, of which so many are answered, each after so many us.
    fn step(answered: u64, micros: impl Fn(u64) -> u64) -> SentQuestion {
        let mut asked = SentQuestion { asked: 100, answered, ..SentQuestion::default() };
        (0..answered).for_each(|n| asked.latency.record(Duration::from_micros(micros(n))));
        asked
    }

    #[test]
    fn service_is_as_before_only_with_share_and_latency() {
        let as_before = |steps: &[SentQuestion]| is_as_before(&step(100, |_| 50), steps.iter());
        let with = |one: SentQuestion| [step(100, |_| 50), one, step(100, |_| 50)];
        assert!(as_before(&with(step(99, |_| 500))));
        assert!(!as_before(&with(step(98, |_| 50))), "each step is answered, not all together");
        assert!(!as_before(&[step(100, |_| 700), step(100, |_| 700)]));
        assert!(!as_before(&[step(0, |_| 0)]));
        assert!(!as_before(&[]));
        // Other work on the machine hits six of ten; a queue hits all.
        assert!(as_before(&[step(100, |n| if n % 10 < 6 { 9000 } else { 60 })]));
        assert!(!as_before(&[step(100, |n| if n % 10 < 6 { 9000 } else { 660 })]));
    }

    /// As recorded over a TAP on a busy machine: questions each 2 ms, answers at ticks of 4 ms.
    #[test]
    fn answers_that_wait_for_ticks_are_judged_by_their_middle() {
        let ticks = |phase: u64, more: u64| {
            step(100, move |n| more + phase + (n * 2000 % 8000) + n * 7 % 100)
        };
        let before = ticks(400, 0);
        let judge = |steps: [SentQuestion; 3]| is_as_before(&before, steps.iter());
        // The phase makes three times as much of the fast tenth, and nothing else has changed.
        assert!(judge([ticks(1340, 0), ticks(1870, 0), ticks(1540, 0)]));
        // A queue that is left behind, or a host three times as slow, is seen all the same.
        assert!(!judge([ticks(400, 9000), ticks(400, 8000), ticks(400, 7000)]));
        let slow = || step(100, |n| 3 * (400 + n * 2000 % 8000) + 1200);
        assert!(!judge([slow(), slow(), slow()]));
    }
}
