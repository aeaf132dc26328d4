//! `Balance`: when a worker leaves its core to the applications that share it.
//!
//! Called by `dispatch` after each turn with the clock's time, and by `world` with virtual time.
//! Within each period the worker may use the time that is not reserved for applications. Once that
//! is used up it rests until `start + used / own share`: an overrun is paid back to the nanosecond,
//! and nothing that the worker does can lower the applications' share of the time between two
//! rests. Time in which the system has preempted the worker is neither the worker's nor left by it:
//! the caller leaves it out of a turn. No run without a break is longer than `run_max`, one turn's
//! length provided.
//!
//! Work-conserving both ways: a worker that finds nothing to do sleeps, and the applications have
//! the core; while the applications are known to be idle the worker never rests. They are known to
//! be idle only by an explicit report ([`Balance::set_applications_idle`]); nothing is guessed.
//! Without such reports the guarantee is kept, at the cost of at most the reserved share of packet
//! work.

use core::time::Duration;

use floodwall_base::Instant;
use floodwall_base::limits::ROUND_MAX;

use crate::share::Share;

/// How a worker shares its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BalanceConfig {
    /// What of the core is reserved for applications; with [`Share::NONE`] the worker never rests.
    /// A worker is never given less than a hundredth.
    pub share: Share,
    /// The time within which the applications' share is guaranteed.
    pub period: Duration,
    /// The longest run without a break.
    pub run_max: Duration,
    /// Packets that one period may take from devices: what bounds a run where time does not.
    pub packets_max: u32,
}

impl Default for BalanceConfig {
    /// Half the core in periods of 500 us: the shortest gaps that a sleep can make without losing
    /// packets (measured: `docs/design/balance.md`).
    fn default() -> Self {
        Self {
            share: Share::HALF,
            period: Duration::from_micros(500),
            run_max: ROUND_MAX,
            packets_max: 16_384,
        }
    }
}

/// What a worker does after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextTurn {
    /// The next turn, if there is something to do.
    Go,
    /// Nothing: the core belongs to others until then.
    Rest {
        /// An absolute time.
        until: Instant,
    },
}

/// What was shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BalanceStats {
    /// Periods begun.
    pub periods: u64,
    /// Times that the budget was used up while packets waited (softnet's `time_squeeze`).
    pub time_squeeze: u64,
    /// Of these, how many by packets and not by time.
    pub packet_squeeze: u64,
    /// Time that the worker used.
    pub ran: Duration,
    /// Time that it left to others, idle sleeps included.
    pub rested: Duration,
    /// The longest run without a break, while another thread may have needed the core.
    pub longest_run: Duration,
}

impl BalanceStats {
    /// What of the core the worker left to others.
    #[must_use]
    pub fn application_share(&self) -> Share {
        Share::of(self.rested, self.ran.saturating_add(self.rested))
    }
}

/// A worker's account of core time against the applications' share.
#[derive(Clone, Debug)]
pub struct Balance {
    config: BalanceConfig,
    /// What the worker may use of one period.
    budget: Duration,
    /// The worker's own share.
    own: Share,
    start: Instant,
    used: Duration,
    packets: u32,
    /// How long the worker has run without a break.
    run: Duration,
    /// The longest turn of this run: what the next one may take.
    turn: Duration,
    rest_until: Option<Instant>,
    applications_idle: bool,
    stats: BalanceStats,
}

/// A worker's minimum share: without it the worker could not even read a stop request.
const OWN_MIN: Share = Share::per_mille(10);
/// The break that ends a run which grew too long within its budget: this part of a period.
const RUN_BREAK: Share = Share::per_mille(100);

impl Balance {
    /// A worker that begins at `now`.
    #[must_use]
    pub fn new(config: BalanceConfig, now: Instant) -> Self {
        let own = config.share.rest().max(OWN_MIN);
        Self {
            budget: own.of_time(config.period).min(config.run_max / 2),
            own,
            config,
            start: now,
            used: Duration::ZERO,
            packets: 0,
            run: Duration::ZERO,
            turn: Duration::ZERO,
            rest_until: None,
            applications_idle: false,
            stats: BalanceStats { periods: 1, ..BalanceStats::default() },
        }
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &BalanceConfig {
        &self.config
    }

    /// What was shared so far.
    #[must_use]
    pub const fn stats(&self) -> &BalanceStats {
        &self.stats
    }

    /// Reports whether the applications are idle. When they are busy again, a new period begins at
    /// `now`: the time that the worker used meanwhile was not needed by others.
    pub fn set_applications_idle(&mut self, now: Instant, idle: bool) {
        if self.applications_idle && !idle {
            self.run = Duration::ZERO;
            self.begin(now);
        }
        self.applications_idle = idle;
    }

    /// Reports a turn from `from` to `to` that took `packets` from devices; `more` is whether more
    /// wait. Returns what to do next. Where the system took the core away meanwhile, `from` is
    /// later by that time.
    #[inline]
    pub fn ran(&mut self, from: Instant, to: Instant, packets: usize, more: bool) -> NextTurn {
        let took = to - from;
        self.stats.ran = self.stats.ran.saturating_add(took);
        if self.applications_idle {
            self.rest_until = None;
            return NextTurn::Go;
        }
        self.used = self.used.saturating_add(took);
        self.run = self.run.saturating_add(took);
        self.turn = self.turn.max(took);
        self.packets = self.packets.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
        self.stats.longest_run = self.stats.longest_run.max(self.run);
        if self.config.share == Share::NONE {
            return NextTurn::Go;
        }
        self.judge(to, more)
    }

    fn judge(&mut self, now: Instant, more: bool) -> NextTurn {
        if self.is_spent() {
            let squeezed = self.packets >= self.config.packets_max;
            let owed = self.own.whole_of(self.used).unwrap_or(Duration::MAX);
            let owed = if squeezed { owed.max(self.config.period) } else { owed };
            let until = self.start + owed;
            if until > now {
                if self.rest_until.is_none() {
                    self.stats.time_squeeze += u64::from(more);
                    self.stats.packet_squeeze +=
                        u64::from(more && squeezed && self.used < self.budget);
                }
                return self.rest(until);
            }
            self.begin(now);
        } else if now >= self.start + self.config.period {
            self.begin(now);
        }
        // The next turn may be as long as the longest of this run.
        if self.run + self.turn > self.config.run_max {
            return self.rest(now + RUN_BREAK.of_time(self.config.period));
        }
        NextTurn::Go
    }

    const fn rest(&mut self, until: Instant) -> NextTurn {
        self.rest_until = Some(until);
        NextTurn::Rest { until }
    }

    /// Reports that the worker was away from the core from `from` to `to`: by [`NextTurn::Rest`],
    /// or asleep because it had no work. `spent` is the core time used to fall asleep and to wake,
    /// which applications did not have. A rest that ended early is due again by the next
    /// [`Balance::ran`].
    pub fn rested(&mut self, from: Instant, to: Instant, spent: Duration) {
        let spent = spent.min(to - from);
        self.stats.ran = self.stats.ran.saturating_add(spent);
        self.stats.rested = self.stats.rested.saturating_add(to - from - spent);
        if to <= from {
            return;
        }
        self.run = Duration::ZERO;
        self.turn = Duration::ZERO;
        if self.rest_until.is_none_or(|until| to >= until) {
            self.rest_until = None;
            if self.is_spent() || to >= self.start + self.config.period {
                self.begin(to);
            }
        }
        // Paid back with the turns that follow: a rest is over when it is over.
        self.used = self.used.saturating_add(spent);
    }

    /// Counts core time that was used for the worker's packets outside of its turns: by the
    /// kernel's half in a thread of its own.
    pub fn charge(&mut self, spent: Duration) {
        self.stats.ran = self.stats.ran.saturating_add(spent);
        self.used = self.used.saturating_add(spent.min(self.config.run_max));
    }

    /// Whether the worker has used so little of the period that it could as well sleep until
    /// something comes: an eighth of its budget.
    #[must_use]
    pub fn is_light(&self) -> bool {
        self.used * 8 < self.budget && self.packets < self.config.packets_max / 8
    }

    /// When the period ends, or one that began at `now` where it has ended.
    #[must_use]
    pub fn period_end(&self, now: Instant) -> Instant {
        let end = self.start + self.config.period;
        if end > now { end } else { now + self.config.period }
    }

    /// Whether the period's budget of time or packets is used up.
    fn is_spent(&self) -> bool {
        self.used >= self.budget || self.packets >= self.config.packets_max
    }

    /// For a worker that found nothing to do at `now`: until when it should stay away even if
    /// packets come, because it has used half of its budget and would only wake for each of them.
    /// `None` where the next packet may wake it.
    #[must_use]
    pub fn lie_in(&self, now: Instant) -> Option<Instant> {
        let end = self.start + self.config.period;
        let busy = self.used * 2 >= self.budget && self.config.share != Share::NONE;
        (busy && !self.applications_idle && now < end).then_some(end)
    }

    const fn begin(&mut self, now: Instant) {
        self.start = now;
        self.used = Duration::ZERO;
        self.packets = 0;
        self.rest_until = None;
        self.stats.periods += 1;
    }
}

#[cfg(test)]
mod tests;
