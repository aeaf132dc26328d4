//! A stack with the applications that run on its own core, in slices between the rounds.
//!
//! The deterministic, single-threaded form of an application (decision D18): no waker, no thread,
//! the same code in simulation and on a device. Called as an [`Engine`] like the stack itself.

use core::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Counter, IfIndex, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, HandoffList, Pool, Round, SynOffers, Triage, Wanted};
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

/// Units that an application gets in one slice at most; all that lag behind share so many.
const APPLICATION_UNITS: u32 = 128;
/// The most that an application may owe: it spent more than it was given, in one step.
const DEBT_MAX: i64 = 1024;
/// So few units of packet work between two slices are nobody's burden: what lags behind gets a
/// whole slice.
const FEW_UNITS: u32 = BURST_MAX as u32 / 4;
/// How long input may be held up for applications that do not catch up.
const HOLD_UP_MAX: Duration = Duration::from_micros(500);

/// An application and what it may do. Each has an account of its own, so that one with a backlog
/// takes nothing from the others.
struct Hosted {
    application: Box<dyn Application>,
    /// Units that packet work has earned it, while it lags behind, less what it spent.
    earned: i64,
    /// It used all that it was given: it has more to do.
    lags: bool,
}

impl Hosted {
    /// What it may spend after packet work of `spent` units: as much, half of the core, if it lags
    /// behind, and else a whole slice.
    fn earn(&mut self, spent: u32) -> u32 {
        if !self.lags {
            return APPLICATION_UNITS;
        }
        self.earned = (self.earned + i64::from(spent)).min(i64::from(APPLICATION_UNITS));
        u32::try_from(self.earned).unwrap_or(0)
    }

    /// It is given so much for nothing.
    fn grant(&mut self, units: u32) -> u32 {
        self.earned = units.into();
        units
    }

    /// It was given `budget` units, and has `used` some.
    fn note(&mut self, budget: u32, used: u32) {
        self.lags = used >= budget;
        let left = if self.lags { self.earned - i64::from(used) } else { 0 };
        self.earned = left.max(-DEBT_MAX);
    }
}

/// See the file's head.
pub struct Host {
    stack: Stack,
    applications: Vec<Hosted>,
    /// Units of packet work since they last had a slice of their own.
    packet_work: u32,
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
        let hosted = |application| Hosted { application, earned: 0, lags: false };
        Ok(Self {
            stack,
            applications: applications.into_iter().map(hosted).collect(),
            packet_work: 0,
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

    /// Whether an application has more to do than it was given time for.
    fn lags(&self) -> bool {
        self.applications.iter().any(|hosted| hosted.lags)
    }

    /// Lets each application have what `budget` says. What they spent, and what they had the stack
    /// do.
    fn run_applications(
        &mut self,
        round: &mut Round<'_>,
        mut budget: impl FnMut(&mut Hosted) -> u32,
    ) -> Units {
        let (before, mut spent) = (self.stack.marks(), 0_u32);
        for hosted in &mut self.applications {
            let granted = budget(hosted);
            if granted == 0 {
                continue;
            }
            let mut sockets = Sockets::for_slice(&mut self.stack, Cx::of(round));
            let used = hosted.application.run(&mut sockets, Units(granted)).0;
            sockets.end_slice();
            hosted.note(granted, used);
            spent = spent.saturating_add(used);
        }
        self.feed_back(round.now);
        Units(spent).plus(self.stack.effort_since(&before))
    }

    /// After packet work of `spent` units.
    fn share(&mut self, round: &mut Round<'_>, spent: Units) -> Units {
        self.packet_work = self.packet_work.saturating_add(spent.0);
        spent.plus(self.run_applications(round, |hosted| hosted.earn(spent.0)))
    }

    /// Queue-state feedback: applications that lag behind and have a full socket stop all input
    /// until they have caught up, or for [`HOLD_UP_MAX`]; then as much again must pass first.
    fn feed_back(&mut self, now: Instant) {
        let counters = &self.stack.stats.counters;
        let refused =
            counters.of(Counter::UdpRcvbufErrors) + counters.of(Counter::Udp6RcvbufErrors);
        let met_full = core::mem::replace(&mut self.refused, refused) != refused;
        if !self.lags() {
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
        // Where hardly any packets came, nobody else wants the core.
        let alone = core::mem::take(&mut self.packet_work) < FEW_UNITS;
        let behind = self.applications.iter().filter(|hosted| hosted.lags).count();
        let part = APPLICATION_UNITS / u32::try_from(behind.max(1)).unwrap_or(u32::MAX);
        let slice = |hosted: &mut Hosted| match hosted.lags {
            true if !alone => hosted.earn(0),
            true => hosted.grant(part.max(1)),
            false => APPLICATION_UNITS,
        };
        spent.plus(self.run_applications(round, slice))
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
        if self.lags() {
            return Some(Instant::ORIGIN);
        }
        let applications = self.applications.iter().filter_map(|a| a.application.deadline());
        applications.chain(self.stack.deadline()).min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.stack.classify(burst, classes);
    }

    fn wants(&self, iface: IfIndex, wanted: &mut Wanted) {
        self.stack.wants(iface, wanted);
    }

    fn syn_offers(&self, now: Instant, iface: IfIndex, offers: &mut SynOffers) {
        self.stack.syn_offers(now, iface, offers);
    }

    fn syn_offers_changed(&self, now: Instant) -> u64 {
        self.stack.syn_offers_changed(now)
    }

    fn syns_are_answered(&mut self, answered: bool) {
        self.stack.syns_are_answered(answered);
    }

    fn wants_changed(&self) -> u64 {
        self.stack.wants_changed()
    }
}
