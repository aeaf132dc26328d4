//! A stack with the applications that run on its own core, in slices between the rounds.
//!
//! The deterministic, single-threaded form of an application (decision D18): no waker, no thread,
//! the same code in simulation and on a device. Called as an [`Engine`] like the stack itself.

use core::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_base::{Counter, IfIndex, Instant, Randomness, Units};
use floodwall_packet::{
    Burst, Engine, HandoffList, Pool, RedirectOffer, Round, RxFilter, SynOffers, Triage,
};
use thiserror::Error;

use crate::config::{ConfigError, StackConfig};
use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::sockets::error::StartError;
use crate::stack::Stack;

/// A program on the stack's own core.
pub trait Application: Send {
    /// Its name, for errors and for `stat`.
    fn name(&self) -> &str;

    /// Opens its sockets. Called once, before the first round.
    ///
    /// # Errors
    /// The reason why it cannot run.
    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError>;

    /// Does pending work, up to `budget` units. Called after each round that brought something, and
    /// when [`Application::deadline`] has come.
    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units;

    /// When it wants to run without input; a moment in the past means at once.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Takes nothing new from now on: closes what it listens with. Returns whether it still has
    /// connections to serve; then it goes on running, and [`Application::start`] may open it
    /// again.
    fn stop(&mut self, sockets: &mut Sockets<'_>) -> bool {
        let _ = sockets;
        false
    }
}

/// Why a host did not start.
#[derive(Debug, Error)]
pub enum HostError {
    /// The stack rejected the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no such application to stop.
    #[error("there is no {0} to stop")]
    NoSuch(String),
    /// As many have been stopped, and are kept for their connections, as may be.
    #[error("{max} stopped services are kept for their connections already", max = STOPPED_MAX)]
    TooManyStopped,
    /// An application did not start.
    #[error("{name} did not start: {error}")]
    Start {
        /// Which one.
        name: String,
        /// Why.
        error: StartError,
    },
}

/// Maximum units of an application in one slice; all that lag behind share this number.
const APPLICATION_UNITS: u32 = 128;
/// Maximum debt of an application: units spent beyond its budget in one step.
const DEBT_MAX: i64 = 1024;
/// Packet work below this many units between two slices does not compete with applications: one
/// that lags behind gets a whole slice.
const FEW_UNITS: u32 = BURST_MAX as u32 / 4;
/// Maximum time that input is held up for applications that do not catch up (backpressure).
const HOLD_UP_MAX: Duration = Duration::from_micros(500);

/// Stopped applications that are kept for their connections.
const STOPPED_MAX: usize = 32;

/// Applications to be stopped and started while a host runs: all of them, or none.
pub struct ApplicationChange {
    /// By their names.
    pub stop: Vec<String>,
    /// In this order, after the others have stopped.
    pub start: Vec<Box<dyn Application>>,
    /// Told once it is done, or refused and taken back. It must not wait.
    pub done: Box<dyn FnOnce(Result<(), HostError>) + Send>,
}

/// An application and its budget. Each has an account of its own, so that one with a backlog takes
/// nothing from the others.
struct HostedApplication {
    application: Box<dyn Application>,
    /// Units earned by packet work while it lags behind, less the units spent.
    earned: i64,
    /// It used its whole budget: it has more to do.
    lags: bool,
    /// It takes nothing new, and is kept for its connections.
    stopped: bool,
    /// It had connections when it stopped, or may have had.
    serves: bool,
    /// It took what is new when the change that is carried out began.
    ran: bool,
}

impl HostedApplication {
    const fn new(application: Box<dyn Application>) -> Self {
        Self { application, earned: 0, lags: false, stopped: false, serves: false, ran: false }
    }

    /// Budget after packet work of `spent` units: the same amount, half of the core, if it lags
    /// behind; else a whole slice.
    fn earn(&mut self, spent: u32) -> u32 {
        if !self.lags {
            return APPLICATION_UNITS;
        }
        self.earned = (self.earned + i64::from(spent)).min(i64::from(APPLICATION_UNITS));
        u32::try_from(self.earned).unwrap_or(0)
    }

    /// Grants units that need not be earned.
    fn grant(&mut self, units: u32) -> u32 {
        self.earned = units.into();
        units
    }

    /// Accounts for a slice: `used` of `budget` units.
    fn note(&mut self, budget: u32, used: u32) {
        self.lags = used >= budget;
        let left = if self.lags { self.earned - i64::from(used) } else { 0 };
        self.earned = left.max(-DEBT_MAX);
    }
}

/// A stack together with the applications that run on its core, as one [`Engine`].
pub struct Host {
    stack: Stack,
    applications: Vec<HostedApplication>,
    /// Units of packet work since the applications last had a slice of their own.
    packet_work: u32,
    /// Since when input is held up because of a full socket of an application that lags behind, and
    /// since when it is resumed after that took too long.
    held_up: Option<Instant>,
    resumed: Option<Instant>,
    /// Datagrams refused by full sockets at the last check.
    refused: u64,
    /// Applications to be stopped and started with the next timed work.
    change: Option<ApplicationChange>,
}

impl Host {
    /// Builds the stack and starts the applications.
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

    /// Starts the applications on a stack. On a shard of a host with several workers, each shard
    /// has its own instances; their sockets receive what is steered to that shard.
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
            let cx = RoundContext { now, pool, random, departing: &mut departing, peers: None };
            let mut sockets = Sockets::new(&mut stack, cx);
            application.start(&mut sockets).map_err(|error| {
                let name = application.name().to_owned();
                HostError::Start { name, error }
            })?;
        }
        Ok(Self {
            stack,
            applications: applications.into_iter().map(HostedApplication::new).collect(),
            packet_work: 0,
            held_up: None,
            resumed: None,
            refused: 0,
            change: None,
        })
    }

    /// Has applications stopped and started with the next timed work, which follows at once. The
    /// others, and connections of those that stop, are not touched. A change that still waits is
    /// replaced, and never told.
    pub fn change_applications(&mut self, change: ApplicationChange) {
        self.change = Some(change);
    }

    /// Names of the applications that take what is new, in order.
    pub fn application_names(&self) -> impl Iterator<Item = &str> {
        let open = self.applications.iter().filter(|hosted| !hosted.stopped);
        open.map(|hosted| hosted.application.name())
    }

    /// Carries out a change of applications. Off the packet path: at most once a turn, and it
    /// allocates.
    #[cold]
    fn carry_out(&mut self, change: ApplicationChange, round: &mut Round<'_>) {
        let ApplicationChange { stop, start, done } = change;
        self.applications.iter_mut().for_each(|hosted| hosted.ran = !hosted.stopped);
        let outcome = self.stop_all(&stop, round).and_then(|()| {
            start.into_iter().try_for_each(|application| self.start_one(application, round))
        });
        match &outcome {
            // What was stopped and has no connections goes.
            Ok(()) => self.applications.retain(|hosted| !hosted.stopped || hosted.serves),
            Err(_) => self.restore(round),
        }
        done(outcome);
    }

    fn stop_all(&mut self, names: &[String], round: &mut Round<'_>) -> Result<(), HostError> {
        let stopped = self.applications.iter().filter(|hosted| hosted.stopped).count();
        if stopped + names.len() > STOPPED_MAX {
            return Err(HostError::TooManyStopped);
        }
        for name in names {
            let named = |h: &&mut HostedApplication| !h.stopped && h.application.name() == name;
            let hosted = self.applications.iter_mut().find(named);
            let hosted = hosted.ok_or_else(|| HostError::NoSuch(name.clone()))?;
            let mut sockets = Sockets::new(&mut self.stack, RoundContext::of(round));
            hosted.serves = hosted.application.stop(&mut sockets);
            hosted.stopped = true;
        }
        Ok(())
    }

    /// Starts one application, or the stopped one of its name that is kept for its connections.
    fn start_one(
        &mut self,
        application: Box<dyn Application>,
        round: &mut Round<'_>,
    ) -> Result<(), HostError> {
        let name = application.name().to_owned();
        let kept = |h: &HostedApplication| h.stopped && h.serves && h.application.name() == name;
        let at = self.applications.iter().position(kept);
        let mut hosted = match at {
            Some(at) => self.applications.swap_remove(at),
            None => HostedApplication::new(application),
        };
        let mut sockets = Sockets::new(&mut self.stack, RoundContext::of(round));
        let started = hosted.application.start(&mut sockets);
        hosted.stopped = started.is_err();
        if started.is_ok() || at.is_some() {
            self.applications.push(hosted);
        }
        started.map_err(|error| HostError::Start { name, error })
    }

    /// Takes a change back: what runs and did not run before stops, and the other way round.
    fn restore(&mut self, round: &mut Round<'_>) {
        for hosted in self.applications.iter_mut().filter(|h| !h.ran && !h.stopped) {
            let mut sockets = Sockets::new(&mut self.stack, RoundContext::of(round));
            hosted.serves = hosted.application.stop(&mut sockets);
            hosted.stopped = true;
        }
        for hosted in self.applications.iter_mut().filter(|h| h.ran && h.stopped) {
            let mut sockets = Sockets::new(&mut self.stack, RoundContext::of(round));
            // It ran a moment ago with what it needs, which nothing else has now.
            hosted.stopped = hosted.application.start(&mut sockets).is_err();
        }
        self.applications.retain(|hosted| !hosted.stopped || hosted.serves);
    }

    /// The stack.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The stack, for changes between rounds.
    pub fn stack_mut(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// Whether an application has more to do than its budget allowed.
    fn lags(&self) -> bool {
        self.applications.iter().any(|hosted| hosted.lags)
    }

    /// Runs each application within its budget. The units that they spent, and those of the stack's
    /// work for them.
    fn run_applications(
        &mut self,
        round: &mut Round<'_>,
        mut budget: impl FnMut(&mut HostedApplication) -> u32,
    ) -> Units {
        let (before, mut spent) = (self.stack.marks(), 0_u32);
        let departing = round.departing.len();
        for hosted in &mut self.applications {
            // Less, where the worker grants less because its turns take too long.
            let granted = budget(hosted).min(round.budget.0.saturating_mul(2));
            if granted == 0 {
                continue;
            }
            let mut sockets = Sockets::for_slice(&mut self.stack, RoundContext::of(round));
            let used = hosted.application.run(&mut sockets, Units(granted)).0;
            sockets.end_slice();
            hosted.note(granted, used);
            spent = spent.saturating_add(used);
        }
        self.stack.tap_end(round.departing, departing);
        self.feed_back(round.now);
        Units(spent).plus(self.stack.effort_since(&before))
    }

    /// Runs the applications after packet work of `spent` units.
    fn share(&mut self, round: &mut Round<'_>, spent: Units) -> Units {
        self.packet_work = self.packet_work.saturating_add(spent.0);
        spent.plus(self.run_applications(round, |hosted| hosted.earn(spent.0)))
    }

    /// Queue-state feedback (backpressure): applications that lag behind and have a full socket
    /// stop all input until they have caught up, or for [`HOLD_UP_MAX`]; then as much again must
    /// pass first.
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
        if let Some(change) = self.change.take() {
            self.carry_out(change, round);
        }
        // Where hardly any packets came, the core is free for applications.
        let alone = core::mem::take(&mut self.packet_work) < FEW_UNITS;
        let behind = self.applications.iter().filter(|hosted| hosted.lags).count();
        let part = APPLICATION_UNITS / u32::try_from(behind.max(1)).unwrap_or(u32::MAX);
        let slice = |hosted: &mut HostedApplication| match hosted.lags {
            true if !alone => hosted.earn(0),
            true => hosted.grant(part.max(1)),
            false => APPLICATION_UNITS,
        };
        spent.plus(self.run_applications(round, slice))
    }

    fn rx_capacity(&self, now: Instant) -> usize {
        let held_up = self.held_up.is_some_and(|since| now - since < HOLD_UP_MAX);
        if held_up { 0 } else { self.stack.rx_capacity(now) }
    }

    fn touch_memory(&mut self) -> usize {
        self.stack.touch_memory()
    }

    fn set_tx_room(&mut self, packets: usize) {
        self.stack.set_tx_room(packets);
    }

    fn departed(&mut self) {
        self.stack.departed();
    }

    fn rests(&mut self) -> bool {
        self.stack.rests()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.lags() || self.change.is_some() {
            return Some(Instant::ORIGIN);
        }
        let applications = self.applications.iter().filter_map(|a| a.application.deadline());
        applications.chain(self.stack.deadline()).min()
    }

    fn classify(&self, burst: &Burst, classes: &mut [Triage]) {
        self.stack.classify(burst, classes);
    }

    fn rx_filter(&self, iface: IfIndex, wanted: &mut RxFilter) {
        self.stack.rx_filter(iface, wanted);
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

    fn take_redirects(&mut self, offers: &mut Vec<RedirectOffer>) {
        self.stack.take_redirects(offers);
    }

    fn redirects_changed(&self) -> u64 {
        Engine::redirects_changed(&self.stack)
    }

    fn wants_changed(&self) -> u64 {
        self.stack.wants_changed()
    }
}
