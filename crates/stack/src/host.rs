//! A stack with the applications that run on its own core, in slices between the rounds.
//!
//! The deterministic, single-threaded form of an application (decision D18): no waker, no thread,
//! the same code in simulation and on a device. Called as an [`Engine`] like the stack itself.

use core::time::Duration;

use floodwall_base::{Counter, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, HandoffList, Pool, Round, Triage};
use thiserror::Error;

use crate::config::{ConfigError, StackConfig};
use crate::cx::Cx;
use crate::shard::Stack;
use crate::sockets::{Sockets, StartError};

/// A program on the stack's own core.
pub trait Application: Send {
    /// Its name, for errors and for `stat`.
    fn name(&self) -> &str;

    /// Opens its sockets. Called once, before the first round.
    ///
    /// # Errors
    /// Whatever keeps it from running.
    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError>;

    /// Does what there is to do, up to `budget` units. Called after each round that brought
    /// something, and when [`Application::deadline`] has come.
    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units;

    /// When it wants to run although nothing came; a moment in the past means at once.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// Why a host did not start.
#[derive(Debug, Error)]
pub enum HostError {
    /// The configuration makes no stack.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An application did not start.
    #[error("{name} did not start: {error}")]
    Start {
        /// Which one.
        name: String,
        /// Why.
        error: StartError,
    },
}

/// Units that all applications together get in one slice at most.
const APPLICATION_UNITS: Units = Units(128);
/// While applications lag behind, a packet's unit earns them so many: half of the core.
const APPLICATION_PART: u32 = 1;
/// How long input may be held up for applications that do not catch up.
const HOLD_UP_MAX: Duration = Duration::from_micros(500);

/// See the file's head.
pub struct Host {
    stack: Stack,
    applications: Vec<Box<dyn Application>>,
    /// Units that the applications have earned by packet work and not used.
    earned: Units,
    /// They used all that they were given: they have more to do.
    lag: bool,
    /// Packets came since they last had a slice for nothing.
    packets_came: bool,
    /// Since when no input is taken because a socket is full that an application lags behind with,
    /// and since when again after that took too long.
    held_up: Option<Instant>,
    resumed: Option<Instant>,
    /// Datagrams that full sockets had refused when last looked.
    refused: u64,
}

impl Host {
    /// Makes the stack and starts the applications.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn new(
        config: &StackConfig,
        applications: Vec<Box<dyn Application>>,
        pool: &Pool,
        random: &mut Randomness,
        now: Instant,
    ) -> Result<Self, HostError> {
        let stack = Stack::new(config, random, now)?;
        Self::with_stack(stack, applications, pool, random, now)
    }

    /// Starts the applications on a stack: on a shard of a host with several workers, each has its
    /// own instances, whose sockets hear what is steered to that shard.
    ///
    /// # Errors
    /// An application did not start.
    pub fn with_stack(
        mut stack: Stack,
        mut applications: Vec<Box<dyn Application>>,
        pool: &Pool,
        random: &mut Randomness,
        now: Instant,
    ) -> Result<Self, HostError> {
        let mut departing = floodwall_packet::PacketList::new();
        for application in &mut applications {
            let cx = Cx { now, pool, random, departing: &mut departing, peers: None };
            let mut sockets = Sockets::new(&mut stack, cx);
            application.start(&mut sockets).map_err(|error| {
                let name = application.name().to_owned();
                HostError::Start { name, error }
            })?;
        }
        Ok(Self {
            stack,
            applications,
            earned: Units(0),
            lag: false,
            packets_came: false,
            held_up: None,
            resumed: None,
            refused: 0,
        })
    }

    /// The stack.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The stack, for changing it between rounds.
    pub fn stack_mut(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// Lets the applications have up to `budget`. What they spent, and what they had the stack do.
    fn run_applications(&mut self, round: &mut Round<'_>, budget: Units) -> Units {
        let (before, mut left) = (self.stack.marks(), budget);
        for application in &mut self.applications {
            let mut sockets = Sockets::new(&mut self.stack, Cx::of(round));
            left = left.minus(application.run(&mut sockets, left));
        }
        self.lag = left.is_zero() && !self.applications.is_empty();
        self.earned = self.earned.minus(budget.minus(left));
        self.feed_back(round.now);
        budget.minus(left).plus(self.stack.effort_since(&before))
    }

    /// After packet work of `spent` units: the applications get as much, if they want it, and a
    /// whole slice where they have not been lagging behind.
    fn share(&mut self, round: &mut Round<'_>, spent: Units) -> Units {
        self.packets_came = true;
        let earned = self.earned.0.saturating_add(spent.0.saturating_mul(APPLICATION_PART));
        self.earned = Units(earned.min(APPLICATION_UNITS.0));
        let budget = if self.lag { self.earned } else { APPLICATION_UNITS };
        spent.plus(self.run_applications(round, budget))
    }

    /// Queue-state feedback: applications that lag behind and have a full socket stop all input
    /// until they have caught up, or for [`HOLD_UP_MAX`]; then as much again must pass first.
    fn feed_back(&mut self, now: Instant) {
        let counters = &self.stack.stats.counters;
        let refused =
            counters.of(Counter::UdpRcvbufErrors) + counters.of(Counter::Udp6RcvbufErrors);
        let met_full = core::mem::replace(&mut self.refused, refused) != refused;
        if !self.lag {
            self.held_up = None;
            return;
        }
        if !met_full && self.held_up.is_none() {
            return;
        }
        match (self.held_up, self.resumed) {
            (Some(since), _) if now - since >= HOLD_UP_MAX => {
                (self.held_up, self.resumed) = (None, Some(now));
            }
            (None, Some(since)) if now - since < HOLD_UP_MAX => {}
            (None, _) => (self.held_up, self.resumed) = (Some(now), None),
            (Some(_), _) => {}
        }
    }
}

impl Engine for Host {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let spent = self.stack.round(round);
        self.share(round, spent)
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        let spent = self.stack.adopt(round, handed);
        self.share(round, spent)
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        let spent = self.stack.work(round);
        // Where no packets came, nobody else wants the core.
        let idle = !core::mem::take(&mut self.packets_came);
        let budget = if idle || !self.lag { APPLICATION_UNITS } else { self.earned };
        spent.plus(self.run_applications(round, budget))
    }

    fn appetite(&self, now: Instant) -> usize {
        let held_up = self.held_up.is_some_and(|since| now - since < HOLD_UP_MAX);
        if held_up { 0 } else { self.stack.appetite(now) }
    }

    fn departed(&mut self) {
        self.stack.departed();
    }

    fn rests(&mut self) -> bool {
        self.stack.rests()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.lag {
            return Some(Instant::ORIGIN);
        }
        let applications = self.applications.iter().filter_map(|a| a.deadline());
        applications.chain(self.stack.deadline()).min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.stack.classify(burst, classes);
    }
}
