//! `TurnGate`: the worker's side of balance and triage, with the rules of `floodwall-schedule`.
//!
//! Called by `turn.rs` before and after each poll, and by `worker.rs` after each turn and each
//! sleep. Invariant: what a packet meets here is the worker's alone; the one value that other
//! threads write ([`Applications`]) is read once a turn, whatever the number of packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use floodwall_base::Instant;
use floodwall_base::limits::BURST_MAX;
use floodwall_packet::{Burst, Engine};
use floodwall_schedule::{Balance, Gate, Next, Poll};

use crate::facts::{Fact, Facts};
use crate::worker::WorkerConfig;

/// How the programs on a worker's core tell it whether they have something to do. Clones are of the
/// same core.
///
/// Without it a worker that shares its core keeps what it has promised even while nobody wants it:
/// that is safe, and costs packet work up to the promised share. With it, and nobody at work, the
/// worker takes the whole core.
#[derive(Clone, Debug, Default)]
pub struct Applications(Arc<AtomicUsize>);

/// While it lives, somebody is at work.
#[derive(Debug)]
pub struct AtWork(Arc<AtomicUsize>);

impl Applications {
    /// Nobody is at work yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that a program has something to do, until the answer is dropped. Two atomic operations
    /// in all, on a line that the worker reads once a turn.
    #[must_use]
    pub fn at_work(&self) -> AtWork {
        self.0.fetch_add(1, Ordering::Relaxed);
        AtWork(Arc::clone(&self.0))
    }

    fn are_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See the file's head.
pub(crate) struct TurnGate {
    gate: Option<Gate>,
    balance: Option<Balance>,
    applications: Option<Applications>,
    /// How many packets the devices were asked for in this turn, and have given.
    asked: usize,
    taken: usize,
    /// How many the engine was willing to take.
    appetite: usize,
    /// Until when the worker means to be away.
    away_until: Option<Instant>,
}

impl TurnGate {
    pub(crate) fn new(config: &WorkerConfig) -> Self {
        Self {
            gate: config.gate.map(Gate::new),
            balance: config.balance.map(|balance| Balance::new(balance, Instant::ORIGIN)),
            applications: config.applications.clone(),
            asked: 0,
            taken: 0,
            appetite: 0,
            away_until: None,
        }
    }

    /// How many packets devices are asked for in this turn. With a gate, the engine's appetite
    /// bounds what strangers bring, and not what is looked at.
    #[inline]
    pub(crate) fn ask(&mut self, appetite: usize) -> usize {
        self.appetite = appetite.min(BURST_MAX);
        self.asked = self.asks(appetite);
        self.asked
    }

    /// How many packets devices would be asked for.
    pub(crate) fn asks(&self, appetite: usize) -> usize {
        let appetite = appetite.min(BURST_MAX);
        self.gate.as_ref().map_or(appetite, |gate| gate.ask(appetite))
    }

    /// Whether this turn only looks ahead for friends, and timed work waits.
    #[inline]
    pub(crate) fn looks_ahead(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::looks_ahead)
    }

    /// The devices have given `taken`; what is this worker's is in `burst`, of which is left what
    /// the engine shall have now. Without an engine all is left: it dies by another name.
    #[inline]
    pub(crate) fn admit<E: Engine>(
        &mut self,
        now: Instant,
        engine: Option<&E>,
        burst: &mut Burst,
        taken: usize,
    ) {
        self.taken = taken;
        let poll = Poll { now, asked: self.asked, taken, appetite: self.appetite };
        match (&mut self.gate, engine) {
            (Some(gate), Some(engine)) => gate.admit(engine, burst, &poll),
            _ => burst.set_limit(BURST_MAX),
        }
    }

    /// Whether there may be more than the last turn took.
    pub(crate) fn has_more(&self) -> bool {
        let full = self.taken > 0 && self.taken >= self.asked;
        full || self.appetite > 0 && self.gate.as_ref().is_some_and(|gate| gate.waiting() > 0)
    }

    /// Whether packets wait for the engine's appetite.
    pub(crate) fn holds_back(&self) -> bool {
        self.appetite == 0 && self.gate.as_ref().is_some_and(|gate| gate.waiting() > 0)
    }

    /// Whether the worker shares its core.
    pub(crate) const fn shares(&self) -> bool {
        self.balance.is_some()
    }

    /// A turn ran from `from` to `to`: until when the core is now somebody else's.
    #[inline]
    pub(crate) fn ran(&mut self, from: Instant, to: Instant) -> Option<Instant> {
        let more = self.has_more();
        if let Some(gate) = &mut self.gate {
            gate.ran(to - from);
        }
        let balance = self.balance.as_mut()?;
        if let Some(applications) = &self.applications {
            balance.set_applications_idle(from, applications.are_idle());
        }
        self.away_until = match balance.ran(from, to, self.taken, more) {
            Next::Go => None,
            Next::Rest { until } => Some(until),
        };
        self.away_until
    }

    /// For a turn that found nothing more to do: until when to stay away all the same.
    pub(crate) fn lie_in(&mut self, now: Instant) -> Option<Instant> {
        self.away_until = self.balance.as_ref()?.lie_in(now);
        self.away_until
    }

    /// The worker was not on the core.
    pub(crate) fn rested(&mut self, from: Instant, to: Instant) {
        if let (Some(gate), Some(until)) = (&mut self.gate, self.away_until.take()) {
            gate.rests(until.min(to) - from);
        }
        if let Some(balance) = &mut self.balance {
            balance.rested(from, to);
        }
    }

    /// Writes what has happened here to the facts.
    pub(crate) fn report(&self, facts: &mut Facts) {
        if let Some(gate) = &self.gate {
            let stats = gate.stats();
            facts.set(Fact::TriageLooks, stats.looked_at());
            facts.set(Fact::TriageFriends, stats.friends);
            facts.set(Fact::TriageWaiting, gate.waiting() as u64);
            facts.set(Fact::DropsTriageRefusable, stats.refused);
            facts.set(Fact::DropsTriageStranger, stats.crowded_out);
        }
        if let Some(balance) = &self.balance {
            let stats = balance.stats();
            let nanos =
                |length: core::time::Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
            facts.set(Fact::TimeSqueeze, stats.time_squeeze);
            facts.set(Fact::BalanceRanNanos, nanos(stats.ran));
            facts.set(Fact::BalanceRestedNanos, nanos(stats.rested));
            facts.set(Fact::LongestRunNanos, nanos(stats.longest_run));
        }
    }
}

#[cfg(test)]
mod tests;
