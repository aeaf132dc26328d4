//! A node's core, shared by the worker and an application that gets the rest.
//!
//! Called by `node.rs`: before a poll (how much to request from the ring), after it (which packets
//! the engine gets), and when a turn has been paid for (how long the worker stays away). The rules
//! are those of `floodwall-schedule`, which the real dispatcher uses too. Invariants: at any moment
//! the core is the worker's or the application's, never both; a node without balance, gate and
//! application behaves as if this file were not there.

use core::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Instant, WorkerId};
use floodwall_packet::{Burst, Engine, HandoffList, Pool};
use floodwall_schedule::{Balance, Gate, HandedGate, NextTurn, Poll};

use crate::node_config::{NodeConfig, SimulatedApplication};
use crate::node_stats::NodeStats;

/// The application at work.
#[derive(Clone, Copy, Debug)]
struct SimulatedProgram {
    application: SimulatedApplication,
    /// What is left of the jobs that have come.
    pending: Duration,
    next_job: Instant,
    /// Since when it has wanted the core in vain.
    waits_since: Option<Instant>,
    ran: Duration,
    gap_max: Duration,
}

impl SimulatedProgram {
    fn new(application: SimulatedApplication) -> Self {
        Self {
            application,
            pending: Duration::ZERO,
            next_job: Instant::ORIGIN,
            waits_since: Some(Instant::ORIGIN).filter(|_| application.is_hungry()),
            ran: Duration::ZERO,
            gap_max: Duration::ZERO,
        }
    }

    /// Whether it has nothing to do at `now`.
    fn is_idle(&self, now: Instant) -> bool {
        !self.application.is_hungry() && self.pending.is_zero() && self.next_job > now
    }

    /// Notes the jobs that have come until `now`, while it did not have the core.
    fn wait_until(&mut self, now: Instant) {
        if self.application.is_hungry() {
            return;
        }
        while self.next_job <= now {
            self.waits_since.get_or_insert(self.next_job);
            self.pending += self.application.job;
            self.next_job += self.application.every;
        }
    }

    /// It has the core from `from` to `to`.
    fn run(&mut self, from: Instant, to: Instant) {
        self.wait_until(from);
        if let Some(since) = self.waits_since.take() {
            self.gap_max = self.gap_max.max(from - since);
        }
        if self.application.is_hungry() {
            self.ran += to - from;
            self.waits_since = Some(to);
            return;
        }
        let mut now = from;
        while now < to {
            if self.pending.is_zero() {
                now = self.next_job.max(now);
                if now >= to {
                    break;
                }
            } else {
                let length = self.pending.min(to - now);
                self.pending -= length;
                self.ran += length;
                now += length;
            }
            self.wait_until(now);
            self.waits_since = None;
        }
        self.waits_since = Some(to).filter(|_| !self.pending.is_zero());
    }

    /// When it has nothing left to do, if it has the core from `from` on; `limit` at the latest.
    fn done_at(mut self, from: Instant, limit: Instant) -> Instant {
        self.wait_until(from);
        let mut now = if self.application.is_hungry() { limit } else { from };
        while now < limit && !self.pending.is_zero() {
            now += core::mem::take(&mut self.pending);
            self.wait_until(now);
        }
        now.min(limit)
    }

    /// The longest that it has waited, what it waits now included.
    fn gap_at(&self, now: Instant) -> Duration {
        let waits = self.waits_since.map_or(Duration::ZERO, |since| now - since);
        self.gap_max.max(waits)
    }
}

/// The core of a node: its balance, gates and application.
#[derive(Debug)]
pub(crate) struct CoreShare {
    balance: Option<Balance>,
    gate: Option<Gate>,
    /// The same for packets that other workers of the host hand over.
    handed_gate: Option<HandedGate>,
    program: Option<SimulatedProgram>,
    /// Since when the core has been free of packet work.
    free_from: Instant,
    /// The worker stays away until then.
    rest_until: Instant,
}

impl CoreShare {
    pub(crate) fn new(config: &NodeConfig) -> Self {
        Self {
            balance: config.balance.map(|balance| Balance::new(balance, Instant::ORIGIN)),
            gate: config.gate.map(Gate::new),
            handed_gate: None,
            program: config.application.map(SimulatedProgram::new),
            free_from: Instant::ORIGIN,
            rest_until: Instant::ORIGIN,
        }
    }

    /// The core is that of the worker `own` of a host with several.
    pub(crate) fn join(&mut self, own: WorkerId) {
        self.handed_gate = self.gate.as_ref().map(|gate| HandedGate::new(own, *gate.config()));
    }

    /// Moves what other workers handed over from `inbox` to `handed`: a burst at most, and what the
    /// engine shall have of it now. Returns how many were taken, and how many looked at.
    pub(crate) fn take_handed<E: Engine + ?Sized>(
        &mut self,
        now: Instant,
        engine: &E,
        inbox: &mut HandoffList,
        handed: &mut HandoffList,
    ) -> (usize, u64) {
        let capacity = engine.rx_capacity(now).min(BURST_MAX);
        let asked = self.handed_gate.as_ref().map_or(capacity, |gate| gate.ask(capacity));
        for handoff in inbox.drain_first(asked) {
            let _ = handed.push(handoff);
        }
        let taken = handed.len();
        let Some(gate) = &mut self.handed_gate else { return (taken, 0) };
        let before = gate.stats().looked_at();
        gate.admit(engine, handed, &Poll { now, asked, taken, capacity });
        (taken, gate.stats().looked_at() - before)
    }

    /// Until when the worker stays away.
    pub(crate) const fn rest_until(&self) -> Instant {
        self.rest_until
    }

    /// How many packets wait for their turn beside the ring.
    pub(crate) fn waiting(&self) -> usize {
        self.gate.as_ref().map_or(0, Gate::waiting)
            + self.handed_gate.as_ref().map_or(0, HandedGate::waiting)
    }

    /// Tells the gates how many frames of this pool are free, where they ask for it.
    pub(crate) fn share_memory(&mut self, pool: &Pool) {
        if let Some(gate) = self.gate.as_mut().filter(|gate| gate.uses_free_frames()) {
            gate.set_free_frames(pool.available().frames);
        }
        if let Some(gate) = self.handed_gate.as_mut().filter(|gate| gate.uses_free_frames()) {
            gate.set_free_frames(pool.available().frames);
        }
    }

    /// Whether this turn only looks ahead for established flows, and timed work waits.
    pub(crate) fn looks_ahead(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::looks_ahead)
    }

    /// The engine's receive capacity, and the number of packets to request from the ring.
    pub(crate) fn ask<E: Engine + ?Sized>(&self, now: Instant, engine: &E) -> (usize, usize) {
        let capacity = engine.rx_capacity(now).min(BURST_MAX);
        (capacity, self.gate.as_ref().map_or(capacity, |gate| gate.ask(capacity)))
    }

    /// Leaves in the burst of a `poll` what the engine shall have. Returns how many packets were
    /// looked at for that.
    pub(crate) fn admit<E: Engine + ?Sized>(
        &mut self,
        engine: &E,
        burst: &mut Burst,
        poll: &Poll,
    ) -> u64 {
        let Some(gate) = &mut self.gate else {
            burst.set_limit(BURST_MAX);
            return 0;
        };
        let before = gate.stats().looked_at();
        gate.admit(engine, burst, poll);
        gate.stats().looked_at() - before
    }

    /// The worker had the core from `from` to `to`, and took `packets`; `more` wait. Until then it
    /// was the application's.
    pub(crate) fn occupy(&mut self, from: Instant, to: Instant, packets: usize, more: bool) {
        self.leave_until(from);
        let idle = self.program.as_ref().is_some_and(|program| program.is_idle(to));
        self.free_from = to;
        if let Some(gate) = &mut self.gate {
            gate.ran(to - from);
        }
        if let Some(gate) = &mut self.handed_gate {
            gate.ran(to - from);
        }
        let Some(balance) = &mut self.balance else { return };
        balance.set_applications_idle(from, idle);
        self.rest_until = match balance.ran(from, to, packets, more) {
            // An application that falls idle calls the worker back.
            NextTurn::Rest { until } => self.program.map_or(until, |p| p.done_at(to, until)),
            NextTurn::Go if more => to,
            NextTurn::Go => balance.lie_in(to).unwrap_or(to),
        };
    }

    /// The core was not the worker's from when it became free until `now`.
    fn leave_until(&mut self, now: Instant) {
        if now <= self.free_from {
            return;
        }
        if let Some(program) = &mut self.program {
            program.run(self.free_from, now);
        }
        if let Some(gate) = &mut self.gate {
            gate.rests(self.rest_until.min(now) - self.free_from);
        }
        if let Some(gate) = &mut self.handed_gate {
            gate.rests(self.rest_until.min(now) - self.free_from);
        }
        if let Some(balance) = &mut self.balance {
            // Switching has no price here.
            balance.rested(self.free_from, now, Duration::ZERO);
        }
    }

    /// Adds what happened here until `now` to a node's stats.
    pub(crate) fn report(&self, now: Instant, stats: &mut NodeStats) {
        if let Some(mut program) = self.program {
            if now > self.free_from {
                program.run(self.free_from, now);
            } else {
                program.wait_until(now);
            }
            stats.application_ran = program.ran;
            stats.application_gap_max = program.gap_at(now);
        }
        if let Some(balance) = &self.balance {
            stats.time_squeeze = balance.stats().time_squeeze;
            stats.run_max = balance.stats().longest_run;
        }
        stats.waiting = self.waiting();
        let handed = self.handed_gate.as_ref();
        stats.handed_held = handed.map_or(0, |gate| gate.stats().dropped() + gate.waiting() as u64);
        let gate = self.gate.as_ref().map(Gate::stats);
        for gate in gate.into_iter().chain(self.handed_gate.as_ref().map(HandedGate::stats)) {
            stats.looked_at += gate.looked_at();
            stats.refused += gate.refused;
            stats.crowded_out += gate.crowded_out;
        }
    }
}

#[cfg(test)]
mod tests {
    use floodwall_schedule::BalanceConfig;

    use super::*;

    const fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn a_hungry_program_runs_whenever_the_core_is_free_and_its_gaps_are_the_rest() {
        let config =
            NodeConfig { application: Some(SimulatedApplication::HUNGRY), ..NodeConfig::default() };
        let mut core = CoreShare::new(&config);
        core.occupy(at(10), at(30), 1, false);
        core.occupy(at(30), at(45), 1, false);
        core.occupy(at(50), at(55), 1, false);
        let mut stats = NodeStats::default();
        core.report(at(60), &mut stats);
        assert_eq!((stats.application_ran, stats.application_gap_max), (us(20), us(35)));
        core.occupy(at(60), at(200), 1, false);
        core.report(at(190), &mut stats);
        assert_eq!(stats.application_gap_max, us(130), "one that has not ended counts");
    }

    #[test]
    fn a_rest_ends_when_the_application_has_nothing_left_to_do() {
        let application = SimulatedApplication { job: us(60), every: us(1000) };
        let config = NodeConfig {
            application: Some(application),
            balance: Some(BalanceConfig::default()),
            ..NodeConfig::default()
        };
        let mut core = CoreShare::new(&config);
        core.occupy(at(0), at(250), 64, true);
        assert_eq!(core.rest_until(), at(310), "not until 500");
        core.occupy(at(310), at(700), 64, true);
        assert_eq!(core.rest_until(), at(700), "no other claim on the core");
        core.occupy(at(700), at(1001), 64, true);
        assert_eq!(core.rest_until(), at(1061), "a job came meanwhile, and is let through");
    }

    #[test]
    fn jobs_wait_for_the_core_and_are_done_in_the_time_that_they_take() {
        let application = SimulatedApplication { job: us(20), every: us(100) };
        let mut program = SimulatedProgram::new(application);
        assert!(!program.is_idle(at(0)));
        program.run(at(0), at(50));
        assert!(program.is_idle(at(50)) && !program.is_idle(at(100)));
        assert_eq!((program.ran, program.gap_max), (us(20), us(0)));
        // The core is taken from 50 to 350: three jobs come, the first waits 250.
        program.run(at(350), at(360));
        assert_eq!((program.ran, program.gap_max), (us(30), us(250)));
        program.run(at(360), at(1000));
        assert_eq!((program.ran, program.gap_max), (us(200), us(250)));
        assert!(program.is_idle(at(999)));
    }
}
