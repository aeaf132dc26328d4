//! `Worker`: the loop that runs one engine on its devices.
//!
//! Called by a program on the thread that shall be the worker. One turn reads the clock once, takes
//! at most one burst (each device gets the first word in turn), lets the engine have it, transmits,
//! and does at most one slice of timed work. While packets come it polls; when none come it sleeps.
//!
//! Invariants: work in a turn is bounded (a burst, [`WORK_UNITS`] of timed work, a few requests);
//! timed work gets its slice in every turn, so a flood slows it but never stops it; nothing is
//! allocated and no lock is taken in a turn without requests; a device that vanishes takes nothing
//! with it but its own packets.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use floodwall_base::limits::{BURST_MAX, WORK_UNITS};
use floodwall_base::{Instant, Randomness, Units};
use floodwall_device::DeviceError;
use floodwall_packet::{Burst, Engine, PacketList, Pool, Round};
use thiserror::Error;

use crate::bell::Bell;
use crate::clock::Clock;
use crate::control::{COMMANDS_MAX, Command, Control, Desk, mailbox};
use crate::facts::{Fact, Facts};
use crate::port::{Port, PortReport};
use crate::publish::{Publish, PublishedReader, Publisher};
use crate::sleep::{PORTS_MAX, sleep};
use crate::stop::Stop;

/// Units that an engine is granted for one burst.
const ROUND_UNITS: Units = Units(8 * BURST_MAX as u32);
/// A burst of so many packets means load: the next ones are worth polling for.
const LOAD: usize = 8;
/// How often, and for how long at most, an empty turn is repeated under load before sleeping.
const SPIN: (u32, Duration) = (16, Duration::from_micros(50));
/// While busy, a snapshot is published so often at most.
const PUBLISH_EVERY: Duration = Duration::from_millis(1);

/// How a worker behaves.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// How often a device without a descriptor is looked at when idle. Its other end may ring the
    /// [`Bell`] instead, and then this may be long.
    pub look_every: Duration,
    /// Who is told of what happens to devices. Never waited for.
    pub events: Option<SyncSender<Event>>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self { look_every: Duration::from_millis(1), events: None }
    }
}

/// What a program may want to tell its operator at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A device vanished; the others go on.
    DeviceLost {
        /// The device's name.
        device: String,
        /// What happened and what to do, in words.
        error: String,
    },
}

/// Why a worker could not start, or ended without being asked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The last device vanished.
    #[error("no device is left: {0}")]
    NoDeviceLeft(DeviceError),
    /// More devices than a worker can wait for.
    #[error("{0} devices are too many for one worker: {PORTS_MAX} at most, queues included")]
    TooManyPorts(usize),
    /// The system refused something that a worker needs.
    #[error("the worker cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// How a worker ended that was asked to.
#[derive(Debug)]
pub struct Ended {
    /// What the loop has counted.
    pub facts: Facts,
    /// What each device has carried and lost.
    pub ports: Vec<PortReport>,
}

/// See the file's head.
pub struct Worker<E: 'static> {
    engine: E,
    ports: Vec<Port>,
    /// Which port transmits for an interface.
    port_of: Vec<Option<usize>>,
    burst: Burst,
    departing: PacketList,
    random: Randomness,
    /// The port that gets the first word in the next turn.
    first: usize,
    facts: Facts,
    publisher: Publisher,
    reader: PublishedReader,
    published: Instant,
    bell: Bell,
    control: Control<E>,
    mailbox: Receiver<Command<E>>,
    config: WorkerConfig,
    /// Empty turns left before sleeping, and until when.
    spin: (u32, Instant),
    /// Last, so that every packet above is home before its memory goes.
    pool: Pool,
}

impl<E: Engine + Publish + 'static> Worker<E> {
    /// A worker on the calling thread's pool. Allocates all that it will need.
    ///
    /// # Errors
    /// Too many ports, or the process has no descriptor left.
    pub fn new(
        engine: E,
        pool: Pool,
        random: Randomness,
        ports: Vec<Port>,
        config: WorkerConfig,
    ) -> Result<Self, WorkerError> {
        if ports.len() > PORTS_MAX {
            return Err(WorkerError::TooManyPorts(ports.len()));
        }
        let bell = Bell::new()
            .map_err(|source| WorkerError::System { action: "make its bell", source })?;
        let (control, mailbox) = mailbox(&bell);
        let (publisher, reader) = Publisher::new();
        let mut facts = Facts::default();
        facts.set(Fact::DevicesLive, ports.len() as u64);
        Ok(Self {
            port_of: transmitters(&ports),
            engine,
            ports,
            burst: Burst::new(),
            departing: PacketList::new(),
            random,
            first: 0,
            facts,
            publisher,
            reader,
            published: Instant::ORIGIN,
            bell,
            control,
            mailbox,
            config,
            spin: (0, Instant::ORIGIN),
            pool,
        })
    }

    /// How other threads ask something of the engine.
    #[must_use]
    pub fn control(&self) -> Control<E> {
        self.control.clone()
    }

    /// How other threads wake the worker, for devices without a descriptor.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// How other threads read the counters.
    #[must_use]
    pub fn reader(&self) -> PublishedReader {
        self.reader.clone()
    }

    /// What the loop has counted so far.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The engine, for looking at it before and after the run.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    /// Runs until `stop` is triggered. May be called again afterwards.
    ///
    /// # Errors
    /// The last device vanished, or the system refused to wait.
    pub fn run(&mut self, stop: &Stop) -> Result<Ended, WorkerError> {
        let clock = Clock::new();
        let mut now = clock.now();
        self.publish(now);
        while !stop.is_triggered() {
            let found = self.turn(now);
            let end = clock.now();
            let took = u64::try_from((end - now).as_nanos()).unwrap_or(u64::MAX);
            self.facts.raise(Fact::LongestRoundNanos, took);
            now = end;
            if !self.ports.is_empty() && !self.ports.iter().any(Port::is_live) {
                self.publish(now);
                return Err(self.last_device());
            }
            if self.has_more(found, now) {
                if now - self.published >= PUBLISH_EVERY {
                    self.publish(now);
                }
                continue;
            }
            now = self.rest(stop, clock, now)?;
        }
        self.ports.iter_mut().for_each(Port::begin_turn);
        self.transmit();
        self.publish(now);
        let ports = self.ports.iter().map(Port::report).collect();
        Ok(Ended { facts: self.facts.clone(), ports })
    }

    /// One turn of the loop at `now`; returns how many packets were found. For programs that run
    /// a worker inside another loop; [`Worker::run`] is made of it.
    pub fn turn(&mut self, now: Instant) -> usize {
        self.facts.add(Fact::Rounds, 1);
        if self.bell.heard() {
            self.carry_out_commands(now);
        }
        self.receive();
        let found = self.burst.len();
        if found > 0 {
            self.facts.add(Fact::BusyRounds, 1);
            self.facts.add(Fact::RxPackets, found as u64);
            self.call_engine(now, ROUND_UNITS, E::round);
        }
        self.transmit();
        if self.engine.deadline().is_some_and(|deadline| deadline <= now) {
            self.facts.add(Fact::WorkSlices, 1);
            self.call_engine(now, Units(WORK_UNITS), E::work);
            self.transmit();
        }
        self.engine.departed();
        found
    }

    #[inline]
    fn call_engine(
        &mut self,
        now: Instant,
        budget: Units,
        call: impl FnOnce(&mut E, &mut Round<'_>) -> Units,
    ) {
        let mut round = Round {
            now,
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut self.burst,
            departing: &mut self.departing,
            budget,
            peers: None,
        };
        let spent = call(&mut self.engine, &mut round);
        self.facts.add(Fact::Units, u64::from(spent.0));
    }

    /// One burst from all devices together, beginning with another one each turn.
    fn receive(&mut self) {
        // What an engine left is not its neighbours' burden.
        self.burst.drain().for_each(drop);
        let count = self.ports.len();
        for step in 0..count {
            let index = (self.first + step) % count;
            let port = &mut self.ports[index];
            port.begin_turn();
            if port.receive(&self.pool, &mut self.burst, &mut self.facts) {
                self.lost_device(index);
            }
        }
        self.first = (self.first + 1) % count.max(1);
    }

    /// Shares what is to leave out to the ports, in order, and lets them transmit.
    fn transmit(&mut self) {
        self.facts.add(Fact::SentPackets, self.departing.len() as u64);
        while let Some(packet) = self.departing.pop_front() {
            let iface = usize::from(packet.iface().0);
            let Some(index) = self.port_of.get(iface).copied().flatten() else {
                self.facts.add(Fact::DropsInterfaceUnknown, 1);
                continue;
            };
            if self.ports[index].send(packet, &mut self.facts) {
                self.lost_device(index);
            }
        }
        let mut backlog = 0;
        for index in 0..self.ports.len() {
            if self.ports[index].flush(&mut self.facts) {
                self.lost_device(index);
            }
            backlog += self.ports[index].backlog();
        }
        self.facts.set(Fact::Backlog, backlog as u64);
    }

    /// A few of the waiting requests; the bell is rung again where more may wait.
    #[cold]
    fn carry_out_commands(&mut self, now: Instant) {
        for _ in 0..COMMANDS_MAX {
            let Ok(command) = self.mailbox.try_recv() else { return };
            self.facts.add(Fact::Commands, 1);
            command.carry_out(&mut Desk { now, engine: &mut self.engine, ports: &self.ports });
        }
        self.bell.ring();
    }

    /// Whether the next turn must follow at once.
    fn has_more(&mut self, found: usize, now: Instant) -> bool {
        if found >= LOAD {
            self.spin = (SPIN.0, now + SPIN.1);
        }
        if found == BURST_MAX
            || self.engine.deadline().is_some_and(|deadline| deadline <= now)
            || self.ports.iter().any(Port::has_pending)
        {
            return true;
        }
        let (left, until) = self.spin;
        let spins = left > 0 && now < until;
        self.spin.0 = left.saturating_sub(1);
        spins
    }

    /// Publishes, and sleeps until something happens. Returns the time then.
    fn rest(&mut self, stop: &Stop, clock: Clock, now: Instant) -> Result<Instant, WorkerError> {
        self.spin.0 = 0;
        if !self.engine.rests() {
            return Ok(now);
        }
        self.facts.add(Fact::Sleeps, 1);
        self.publish(now);
        let silent = self.ports.iter().any(Port::is_silent);
        let until = [self.engine.deadline(), silent.then(|| now + self.config.look_every)]
            .into_iter()
            .chain(self.ports.iter().map(|port| port.deadline(now)))
            .flatten()
            .min();
        self.ports.iter_mut().for_each(Port::back_off);
        let woken = sleep(stop, &self.bell, &self.ports, now, until)
            .map_err(|errno| WorkerError::System { action: "wait", source: errno.into() })?;
        if woken.rung {
            self.bell.silence_if_quiet();
        }
        let fact = match (woken.rung, woken.ports) {
            (true, _) => Fact::WakesBell,
            (false, 0) => Fact::WakesTimer,
            (false, _) => Fact::WakesDevice,
        };
        self.facts.add(fact, 1);
        let now = clock.now();
        for (index, port) in self.ports.iter_mut().enumerate() {
            if woken.ports >> index & 1 == 1 {
                port.called(now);
            }
        }
        Ok(now)
    }

    fn publish(&mut self, now: Instant) {
        self.published = now;
        self.publisher.publish(now, &self.facts, &self.engine);
    }

    #[cold]
    fn lost_device(&mut self, index: usize) {
        let live = self.ports.iter().filter(|port| port.is_live()).count();
        self.facts.set(Fact::DevicesLive, live as u64);
        let port = &self.ports[index];
        let (Some(events), Some(error)) = (&self.config.events, port.end()) else { return };
        let device = error.device().to_owned();
        // Nobody may hold up the worker by not listening.
        let _ = events.try_send(Event::DeviceLost { device, error: error.to_string() });
    }

    #[cold]
    fn last_device(&mut self) -> WorkerError {
        let name = || DeviceError::Gone { device: "every device".to_owned() };
        let end = self.ports.iter_mut().rev().find_map(Port::take_end);
        WorkerError::NoDeviceLeft(end.unwrap_or_else(name))
    }
}

/// The first port of each interface.
fn transmitters(ports: &[Port]) -> Vec<Option<usize>> {
    let interfaces = ports.iter().map(|port| usize::from(port.iface().0) + 1).max().unwrap_or(0);
    let mut port_of = vec![None; interfaces];
    for (index, port) in ports.iter().enumerate() {
        port_of[usize::from(port.iface().0)].get_or_insert(index);
    }
    port_of
}

impl<E> fmt::Debug for Worker<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("ports", &self.ports).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
