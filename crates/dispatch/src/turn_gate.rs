//! `TurnGate`: the worker's side of balance and triage, with the rules of `floodwall-schedule`.
//!
//! Called by `turn.rs` before and after each poll, and by `worker.rs` after each turn and each
//! sleep. Invariant: the state used per packet belongs to the worker alone; the one value that
//! other threads write ([`ApplicationShare`]) is read once a turn, for any number of packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, WorkerId};
use floodwall_packet::{Burst, Engine, HandoffList, PacketBuf, Pool};
use floodwall_schedule::{Balance, Gate, GateConfig, GateStats, HandedGate, NextTurn, Poll};

use crate::worker::WorkerConfig;
use crate::worker_counters::{WorkerCounter, WorkerCounters};

/// How the programs on a worker's core report whether they have work. Clones are of the same core.
///
/// Without it a worker that shares its core keeps the reserved share free even while it is unused:
/// that is safe, and costs packet work up to the reserved share. With it, and with no program at
/// work, the worker takes the whole core.
#[derive(Clone, Debug, Default)]
pub struct ApplicationShare(Arc<AtomicUsize>);

/// A program is at work while this value exists.
#[derive(Debug)]
pub struct AtWork(Arc<AtomicUsize>);

impl ApplicationShare {
    /// No program is at work yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports that a program has work, until the returned value is dropped. Two atomic operations
    /// in total, on a line that the worker reads once a turn.
    #[must_use]
    pub fn at_work(&self) -> AtWork {
        self.0.fetch_add(1, Ordering::Relaxed);
        AtWork(Arc::clone(&self.0))
    }

    pub(crate) fn are_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The gates of one worker, for devices and for handed-over packets, and its core share.
pub(crate) struct TurnGate {
    gate: Option<Gate>,
    /// The same for packets that neighbours hand over.
    handed_gate: Option<HandedGate>,
    balance: Option<Balance>,
    applications: Option<ApplicationShare>,
    /// Packets requested from devices in this turn, and received.
    asked: usize,
    taken: usize,
    /// How many the engine was willing to take.
    capacity: usize,
    /// Packets requested from neighbours in this turn, and received.
    asked_handed: usize,
    taken_handed: usize,
    /// Until when the worker means to be away.
    away_until: Option<Instant>,
}

impl TurnGate {
    /// A gate before devices of which the smallest ring holds `ring` packets, if known; `acquaints`
    /// where one of them keeps a table of established flows.
    pub(crate) fn new(config: &WorkerConfig, ring: usize, acquaints: bool) -> Self {
        let gate = |gate: GateConfig| GateConfig {
            burst: gate.burst.max(ring / 2),
            acquaints: gate.acquaints || acquaints,
            ..gate
        };
        let gate = config.gate.map(gate);
        Self {
            gate: gate.map(Gate::new),
            handed_gate: None,
            balance: config.balance.map(|balance| Balance::new(balance, Instant::ORIGIN)),
            applications: config.applications.clone(),
            asked: 0,
            taken: 0,
            capacity: 0,
            asked_handed: 0,
            taken_handed: 0,
            away_until: None,
        }
    }

    /// Sets the worker's number in a worker group: neighbours will hand over packets.
    pub(crate) fn join(&mut self, own: WorkerId) {
        let handed = |gate: &Gate| GateConfig { burst: 0, acquaints: false, ..*gate.config() };
        self.handed_gate = self.gate.as_ref().map(|gate| HandedGate::new(own, handed(gate)));
    }

    /// How many packets are taken of neighbours in this turn.
    #[inline]
    pub(crate) fn ask_handed(&mut self, capacity: usize) -> usize {
        self.capacity = capacity.min(BURST_MAX);
        let gate = self.handed_gate.as_ref();
        self.asked_handed = gate.map_or(self.capacity, |gate| gate.ask(self.capacity));
        self.asked_handed
    }

    /// As [`TurnGate::admit`], of what neighbours handed over.
    #[inline]
    pub(crate) fn admit_handed<E: Engine>(
        &mut self,
        now: Instant,
        engine: Option<&E>,
        handed: &mut HandoffList,
        taken: usize,
    ) {
        self.taken_handed = taken;
        let poll = Poll { now, asked: self.asked_handed, taken, capacity: self.capacity };
        if let (Some(gate), Some(engine)) = (&mut self.handed_gate, engine) {
            gate.admit(engine, handed, &poll);
        }
    }

    /// Another worker's devices drop unverified flows: packets that this worker gets from it are
    /// classified, so that those devices learn the established flows.
    #[inline]
    pub(crate) const fn others_choose(&mut self, now: Instant) {
        if let Some(gate) = &mut self.handed_gate {
            gate.others_choose(now);
        }
    }

    /// The packets of established flows among `handed`, as it was admitted.
    pub(crate) fn handed_established_flows<'a>(
        &self,
        handed: &'a HandoffList,
    ) -> impl Iterator<Item = &'a PacketBuf> + use<'a> {
        let gate = self.handed_gate.as_ref();
        gate.map(|gate| gate.established(handed)).into_iter().flatten()
    }

    /// Whether there is a gate at all.
    pub(crate) const fn chooses(&self) -> bool {
        self.gate.is_some()
    }

    /// Tells the gates how many frames of this pool are free, where they ask for it.
    #[inline]
    pub(crate) fn share_memory(&mut self, pool: &Pool) {
        if let Some(gate) = self.gate.as_mut().filter(|gate| gate.uses_free_frames()) {
            gate.set_free_frames(pool.available().frames);
        }
        if let Some(gate) = self.handed_gate.as_mut().filter(|gate| gate.uses_free_frames()) {
            gate.set_free_frames(pool.available().frames);
        }
    }

    /// Packets of unverified flows that wait at both gates.
    fn waiting(&self) -> usize {
        self.gate.as_ref().map_or(0, Gate::waiting)
            + self.handed_gate.as_ref().map_or(0, HandedGate::waiting)
    }

    /// Maximum packets of unverified flows that devices may deliver in this turn, where they can
    /// distinguish them.
    #[inline]
    pub(crate) fn credit(&self) -> Option<usize> {
        self.gate.as_ref().and_then(Gate::credit)
    }

    /// Records that a device has lost packets for lack of room.
    pub(crate) const fn overflowed(&mut self, now: Instant) {
        if let Some(gate) = &mut self.gate {
            gate.overflowed(now);
        }
    }

    /// Number of packets of established flows at the front of the last admitted burst.
    #[inline]
    pub(crate) fn established(&self) -> usize {
        self.gate.as_ref().map_or(0, Gate::established)
    }

    /// Number of packets to request from devices in this turn. With a gate, the engine's receive
    /// capacity limits unverified flows, but not the number of packets that are classified.
    #[inline]
    pub(crate) fn ask(&mut self, capacity: usize) -> usize {
        self.capacity = capacity.min(BURST_MAX);
        self.asked = self.asks(capacity);
        self.asked
    }

    /// A turn's time to receive is over, and devices may have more than was taken: the poll counts
    /// as full.
    #[cold]
    pub(crate) const fn cut(&mut self, taken: usize) {
        self.asked = taken;
    }

    /// Number of packets that would be requested from devices.
    pub(crate) fn asks(&self, capacity: usize) -> usize {
        let capacity = capacity.min(BURST_MAX);
        self.gate.as_ref().map_or(capacity, |gate| gate.ask(capacity))
    }

    /// Whether this turn only looks ahead for established flows, and timed work waits.
    #[inline]
    pub(crate) fn looks_ahead(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::looks_ahead)
    }

    /// Admits a poll: the devices have given `taken` packets, and those of this worker are in
    /// `burst`. Leaves in it what the engine gets now. Without an engine all is left, to be dropped
    /// with another reason.
    #[inline]
    pub(crate) fn admit<E: Engine>(
        &mut self,
        now: Instant,
        engine: Option<&E>,
        burst: &mut Burst,
        taken: usize,
    ) {
        self.taken = taken;
        let poll = Poll { now, asked: self.asked, taken, capacity: self.capacity };
        match (&mut self.gate, engine) {
            (Some(gate), Some(engine)) => gate.admit(engine, burst, &poll),
            _ => burst.set_limit(BURST_MAX),
        }
    }

    /// Whether there may be more than the last turn took.
    pub(crate) fn has_more(&self) -> bool {
        let full = self.taken > 0 && self.taken >= self.asked;
        full || self.capacity > 0 && self.waiting() > 0
    }

    /// Whether packets wait for the engine's receive capacity.
    pub(crate) fn holds_back(&self) -> bool {
        self.capacity == 0 && self.waiting() > 0
    }

    /// Whether the worker shares its core.
    pub(crate) const fn shares(&self) -> bool {
        self.balance.is_some()
    }

    /// Whether it does so now: unless its applications are known to be idle.
    pub(crate) fn shares_now(&self) -> bool {
        self.balance.is_some()
            && !self.applications.as_ref().is_some_and(ApplicationShare::are_idle)
    }

    /// The kernel's half has used core time in a thread of its own.
    pub(crate) fn charge(&mut self, spent: Duration) {
        if let Some(balance) = &mut self.balance {
            balance.charge(spent);
        }
    }

    /// Whether hardly anything of the worker's share was used in this period.
    pub(crate) fn is_light(&self) -> bool {
        self.balance.as_ref().is_none_or(Balance::is_light)
    }

    /// For a turn that found nothing more to do, where nothing can wake the worker: until when to
    /// stay away.
    pub(crate) fn until_period_end(&mut self, now: Instant) -> Option<Instant> {
        self.away_until = Some(self.balance.as_ref()?.period_end(now));
        self.away_until
    }

    /// Records a turn from `from` to `to`, without the time in which the system had preempted it;
    /// returns until when the core is left to others.
    #[inline]
    pub(crate) fn ran(
        &mut self,
        from: Instant,
        to: Instant,
        preempted: Duration,
    ) -> Option<Instant> {
        let from = to.min(from + preempted);
        let more = self.has_more();
        if let Some(gate) = &mut self.gate {
            gate.ran(to - from);
        }
        if let Some(gate) = &mut self.handed_gate {
            gate.ran(to - from);
        }
        let balance = self.balance.as_mut()?;
        if let Some(applications) = &self.applications {
            balance.set_applications_idle(from, applications.are_idle());
        }
        self.away_until = match balance.ran(from, to, self.taken + self.taken_handed, more) {
            NextTurn::Go => None,
            NextTurn::Rest { until } => Some(until),
        };
        self.away_until
    }

    /// For a turn that found nothing more to do: until when to stay away all the same.
    pub(crate) fn lie_in(&mut self, now: Instant) -> Option<Instant> {
        self.away_until = self.balance.as_ref()?.lie_in(now);
        self.away_until
    }

    /// The worker was not on the core, but for what it took to leave and to come back.
    pub(crate) fn rested(&mut self, from: Instant, to: Instant, spent: Duration) {
        if let (Some(gate), Some(until)) = (&mut self.gate, self.away_until.take()) {
            gate.rests(until.min(to) - from);
            if let Some(handed) = &mut self.handed_gate {
                handed.rests(until.min(to) - from);
            }
        }
        if let Some(balance) = &mut self.balance {
            balance.rested(from, to, spent);
        }
    }

    /// Writes what has happened here to the facts.
    pub(crate) fn report(&self, facts: &mut WorkerCounters) {
        let gates = || {
            let gate = self.gate.as_ref().map(Gate::stats);
            gate.into_iter().chain(self.handed_gate.as_ref().map(HandedGate::stats))
        };
        let sum = |what: fn(&GateStats) -> u64| gates().map(what).sum();
        facts.set(WorkerCounter::TriageLooks, sum(GateStats::looked_at));
        facts.set(WorkerCounter::TriageEstablished, sum(|stats| stats.established));
        facts.set(WorkerCounter::TriageWaiting, self.waiting() as u64);
        facts.set(WorkerCounter::DropsTriageRejectable, sum(|stats| stats.refused));
        facts.set(WorkerCounter::DropsTriageUnknown, sum(|stats| stats.crowded_out));
        if let Some(balance) = &self.balance {
            let stats = balance.stats();
            let nanos =
                |length: core::time::Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
            facts.set(WorkerCounter::TimeSqueeze, stats.time_squeeze);
            facts.set(WorkerCounter::BalanceRanNanos, nanos(stats.ran));
            facts.set(WorkerCounter::BalanceRestedNanos, nanos(stats.rested));
            facts.set(WorkerCounter::LongestRunNanos, nanos(stats.longest_run));
        }
    }
}

#[cfg(test)]
mod tests;
