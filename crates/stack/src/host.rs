//! A stack with the applications that run on its own core, in slices between the rounds.
//!
//! The deterministic, single-threaded form of an application (decision D18): no waker, no thread,
//! the same code in simulation and on a device. Called as an [`Engine`] like the stack itself.

use floodwall_base::{Instant, Randomness, Units};
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

/// Units that all applications together get after a round.
const APPLICATION_UNITS: Units = Units(128);

/// See the file's head.
pub struct Host {
    stack: Stack,
    applications: Vec<Box<dyn Application>>,
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
        Ok(Self { stack, applications })
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

    /// What they spent, and what they had the stack do.
    fn run_applications(&mut self, round: &mut Round<'_>) -> Units {
        let (before, mut left) = (self.stack.marks(), APPLICATION_UNITS);
        for application in &mut self.applications {
            let mut sockets = Sockets::new(&mut self.stack, Cx::of(round));
            left = left.minus(application.run(&mut sockets, left));
        }
        APPLICATION_UNITS.minus(left).plus(self.stack.effort_since(&before))
    }
}

impl Engine for Host {
    fn round(&mut self, round: &mut Round<'_>) -> Units {
        let spent = self.stack.round(round);
        spent.plus(self.run_applications(round))
    }

    fn adopt(&mut self, round: &mut Round<'_>, handed: &mut HandoffList) -> Units {
        let spent = self.stack.adopt(round, handed);
        spent.plus(self.run_applications(round))
    }

    fn work(&mut self, round: &mut Round<'_>) -> Units {
        let spent = self.stack.work(round);
        spent.plus(self.run_applications(round))
    }

    fn departed(&mut self) {
        self.stack.departed();
    }

    fn rests(&mut self) -> bool {
        self.stack.rests()
    }

    fn deadline(&self) -> Option<Instant> {
        let applications = self.applications.iter().filter_map(|a| a.deadline());
        applications.chain(self.stack.deadline()).min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.stack.classify(burst, classes);
    }
}
