//! A node: an engine with a core, memory, randomness and a device ring of its own.
//!
//! Called by `world.rs`. A turn of a node is what a worker's round is on a real core: up to
//! `BURST_MAX` packets from the ring, `round`; where the engine's deadline has come, `work`; then
//! the price of all that, during which the node is busy and its arrivals wait in the ring. What
//! the turn sends leaves when the turn has been paid for. Invariant: `round` and `work` are never
//! called while the node is busy. Where its core is shared (`core_share.rs`), a turn may also wait
//! for the worker's share, and packets for the gate's leave.
//!
//! # Under flood
//! Reachable by any sender to the node. Bound: the ring (`NodeConfig::ring`), and the node's own
//! pool. When full the new frame is dropped and counted by the lane that delivered it (`ring_full`,
//! `no_buffer`).

use core::any::Any;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use floodwall_base::limits::INTERFACES_MAX;
use floodwall_base::{IfIndex, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketBuf, PacketList, Pool, Round};
use floodwall_schedule::Poll;

use crate::core_share::CoreShare;
use crate::cost::{CostTable, Spent};
use crate::error::WorldError;
use crate::frame;
use crate::lane::LaneDrop;
use crate::link::{LinkId, Side};
use crate::node_config::{NodeConfig, NodeId};
use crate::node_stats::NodeStats;
use crate::remake::{AnyEngine, NoRemake, Remake, Remaking};
use crate::simulated_workers::SimulatedMembership;

/// Delay for an engine that requests an immediate call and then does nothing.
const FRUITLESS_PAUSE: Duration = Duration::from_micros(1);
/// The least time between two calls of `work`, so that no engine can stop the clock.
const WORK_PAUSE: Duration = Duration::from_nanos(1);

/// An engine with its core, memory, randomness and device ring.
pub(crate) struct WorldNode {
    pub(crate) name: String,
    pub(crate) engine: Box<dyn AnyEngine>,
    pub(crate) random: Randomness,
    config: NodeConfig,
    pub(crate) share: CoreShare,
    /// The link of each interface; index 0 stays empty.
    ports: Vec<Option<(LinkId, Side)>>,
    ring: PacketList,
    pub(crate) arrived: Burst,
    /// Packets that other workers handed over, taken in this turn.
    adopted: usize,
    departing: PacketList,
    /// What ties it to the other workers of its host.
    pub(crate) membership: Option<SimulatedMembership>,
    /// How its engine is made again after a panic.
    pub(crate) remake: Option<Remake>,
    busy_until: Instant,
    /// Earliest next call of `work` for its deadline's sake.
    work_from: Instant,
    /// Earliest next look into the ring.
    poll_from: Instant,
    /// Picoseconds of work that rounding has not charged yet.
    owed: u64,
    /// When the world will call next, as it has noted.
    pub(crate) wake_at: Option<Instant>,
    pub(crate) stats: NodeStats,
    /// Whether it may send fragments of TCP segments.
    pub(crate) may_fragment: bool,
    /// Last, so that it is dropped after everything that may hold its packets.
    pub(crate) pool: Pool,
}

impl WorldNode {
    /// One turn, where something waits or is due. A panic in it costs the engine.
    pub(crate) fn turn(&mut self, now: Instant) {
        let Some(mut remake) = self.remake.take() else { return self.take_turn(now) };
        let panicked = catch_unwind(AssertUnwindSafe(|| self.take_turn(now))).is_err();
        if panicked {
            self.stats.panics += 1;
            let dead = core::mem::replace(&mut self.engine, Box::new(NoRemake));
            drop(dead);
            self.stats.untouched += self.arrived.drain().count() as u64;
            let Self { pool, random, .. } = self;
            self.engine = remake(&mut Remaking { now, pool, random });
        }
        self.remake = Some(remake);
    }
}

impl WorldNode {
    pub(crate) fn new(
        name: &str,
        engine: Box<dyn AnyEngine>,
        pool: Pool,
        seed: u64,
        config: NodeConfig,
    ) -> Self {
        Self {
            name: name.to_owned(),
            engine,
            pool,
            random: Randomness::from_number(seed),
            share: CoreShare::new(&config),
            config,
            ports: Vec::new(),
            ring: PacketList::new(),
            arrived: Burst::new(),
            adopted: 0,
            departing: PacketList::new(),
            membership: None,
            remake: None,
            busy_until: Instant::ORIGIN,
            work_from: Instant::ORIGIN,
            poll_from: Instant::ORIGIN,
            owed: 0,
            wake_at: None,
            stats: NodeStats::default(),
            may_fragment: false,
        }
    }

    pub(crate) fn engine_mut<E: Engine + 'static>(&mut self) -> Option<&mut E> {
        let engine: &mut dyn Any = &mut *self.engine;
        engine.downcast_mut()
    }

    pub(crate) fn engine_ref<E: Engine + 'static>(&self) -> Option<&E> {
        let engine: &dyn Any = &*self.engine;
        engine.downcast_ref()
    }

    pub(crate) const fn set_costs(&mut self, costs: CostTable) {
        self.config.costs = costs;
    }

    /// The link behind an interface.
    pub(crate) fn port(&self, iface: IfIndex) -> Option<(LinkId, Side)> {
        self.ports.get(usize::from(iface.0)).copied().flatten()
    }

    /// Whether a link could be attached to `iface`.
    pub(crate) fn check_port(&self, id: NodeId, iface: IfIndex) -> Result<(), WorldError> {
        if iface == IfIndex::LOOPBACK {
            return Err(WorldError::Loopback);
        }
        if usize::from(iface.0) >= INTERFACES_MAX {
            return Err(WorldError::InterfaceBeyondLimit(iface));
        }
        match self.port(iface) {
            Some(_) => Err(WorldError::InterfaceTaken { node: id, iface }),
            None => Ok(()),
        }
    }

    /// Attaches a link to an interface that [`WorldNode::check_port`] has found free.
    pub(crate) fn set_port(&mut self, iface: IfIndex, link: LinkId, side: Side) {
        let at = usize::from(iface.0);
        if self.ports.len() <= at {
            self.ports.resize(at + 1, None);
        }
        if let Some(port) = self.ports.get_mut(at) {
            *port = Some((link, side));
        }
    }

    /// Puts a frame that arrives on `iface` into the device ring.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        iface: IfIndex,
        bytes: &[u8],
    ) -> Result<(), LaneDrop> {
        if self.ring.len() >= self.config.ring {
            return Err(LaneDrop::RingFull);
        }
        let mut packet = frame::copy_in(&self.pool, bytes).ok_or(LaneDrop::NoBuffer)?;
        packet.set_iface(iface);
        packet.set_timestamp(now);
        self.ring.push_back(packet);
        self.stats.ring_peak = self.stats.ring_peak.max(self.ring.len());
        Ok(())
    }

    /// Whether the node has nothing waiting and no deadline.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_input() && self.departing.is_empty() && self.engine.deadline().is_none()
    }

    /// Whether a packet waits to be handled.
    fn has_input(&self) -> bool {
        !self.ring.is_empty() || self.share.waiting() > 0 || self.has_news()
    }

    fn has_news(&self) -> bool {
        self.membership.as_ref().is_some_and(SimulatedMembership::has_news)
    }

    fn is_stuck(&self) -> bool {
        self.membership.as_ref().is_some_and(|m| m.stuck)
    }

    /// Pauses if it has nothing to do now: a sleeping worker delays no reclamation.
    pub(crate) fn pause_if_asleep(&mut self, now: Instant) {
        let asleep = self.busy_until <= now && !self.has_input();
        if let Some(membership) = self.membership.as_mut().filter(|_| asleep) {
            membership.pause(now);
        }
    }

    /// What the node did until `now`.
    pub(crate) fn stats(&self, now: Instant) -> NodeStats {
        let mut stats = self.stats;
        self.share.report(now, &mut stats);
        stats
    }

    /// When the node must be called next.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        if self.is_stuck() {
            return None;
        }
        if !self.departing.is_empty() {
            return Some(self.busy_until);
        }
        let from = self.busy_until.max(self.share.rest_until());
        let work = self.engine.deadline().filter(|at| *at != Instant::FAR);
        let work = work.map(|at| at.max(self.work_from));
        let poll = self.has_input().then_some(self.poll_from);
        Some([work, poll].into_iter().flatten().min()?.max(from))
    }

    /// Whether what was sent has been paid for and may leave.
    pub(crate) fn take_departure(&mut self, now: Instant) -> Option<PacketBuf> {
        if self.busy_until > now {
            return None;
        }
        let packet = self.departing.pop_front();
        self.stats.packets_out += u64::from(packet.is_some());
        packet
    }

    /// As [`WorldNode::turn`], without a net.
    pub(crate) fn take_turn(&mut self, now: Instant) {
        let due = self.engine.deadline().is_some_and(|at| at <= now) && self.work_from <= now;
        let waits = self.has_input() && self.poll_from <= now;
        let blocked = self.busy_until.max(self.share.rest_until()) > now || self.is_stuck();
        if blocked || !(waits || due) {
            return;
        }
        let sent_before = self.departing.len();
        let mut spent = self.take_burst(now);
        if !self.arrived.is_empty() {
            self.stats.rounds += 1;
            spent.units = self.call(now, |engine, round| engine.round(round));
        }
        self.adopt(now, &mut spent);
        // Timed work waits for a turn that does more than look ahead.
        let may = !self.share.looks_ahead();
        let nudge = self.membership.as_mut().filter(|_| may);
        let nudged = nudge.is_some_and(|m| core::mem::take(&mut m.nudged));
        let due = self.engine.deadline().is_some_and(|at| at <= now);
        if may && (due || nudged) && self.work_from <= now {
            let units = self.work(now);
            spent.units = spent.units.plus(units);
        }
        self.stats.turns += 1;
        self.pay(now, spent, sent_before);
        self.engine.departed();
        if let Some(membership) = &mut self.membership {
            membership.pause(now);
        }
    }

    /// Takes what other workers handed over.
    fn adopt(&mut self, now: Instant, spent: &mut Spent) {
        let Self { engine, pool, random, config, arrived, departing, membership, share, .. } = self;
        let Some(membership) = membership.as_mut() else { return };
        let SimulatedMembership { inbox, handed, .. } = membership;
        let (taken, looked_at) = share.take_handed(now, &**engine, inbox, handed);
        self.stats.adopted += taken as u64;
        self.adopted = taken;
        spent.triaged += looked_at;
        if handed.is_empty() {
            return;
        }
        let (peers, handed) = membership.peers_and_handed();
        let (budget, peers) = (config.budget, Some(peers));
        let mut round = Round { now, pool, random, arrived, departing, budget, peers };
        spent.units = spent.units.plus(engine.adopt(&mut round, handed));
        drop(handed.drain());
    }

    /// Hands over packets that came by the wrong queue to their owner.
    fn sort(&mut self) {
        let Some(membership) = self.membership.as_mut() else { return };
        let lost = membership.sort(&mut self.arrived);
        self.stats.handoff_lost += lost;
    }

    /// Lets `caller` use the engine with a round of its own, at the price of the packets it sends.
    pub(crate) fn visit<E: Engine + 'static, R>(
        &mut self,
        now: Instant,
        caller: impl FnOnce(&mut E, &mut Round<'_>) -> R,
    ) -> Option<R> {
        let Self { engine, pool, random, config, arrived, departing, membership, .. } = self;
        let peers = membership.as_mut().map(SimulatedMembership::peers);
        let engine: &mut dyn Any = &mut **engine;
        let engine: &mut E = engine.downcast_mut()?;
        let (budget, sent_before) = (config.budget, departing.len());
        let answer =
            caller(engine, &mut Round { now, pool, random, arrived, departing, budget, peers });
        drop(self.arrived.drain());
        self.pay(now, Spent::default(), sent_before);
        Some(answer)
    }

    fn take_burst(&mut self, now: Instant) -> Spent {
        let mut spent = Spent { wake_ups: 1, ..Spent::default() };
        self.share.share_memory(&self.pool);
        let (capacity, asked) = self.share.ask(now, &*self.engine);
        self.arrived.set_limit(asked);
        while self.arrived.room() > 0 {
            let Some(packet) = self.ring.pop_front() else { break };
            spent.packets += 1;
            spent.bytes += packet.len() as u64;
            if self.arrived.push(packet).is_err() {
                break;
            }
        }
        let poll = Poll { now, asked, taken: self.arrived.len(), capacity };
        self.sort();
        spent.triaged = self.share.admit(&*self.engine, &mut self.arrived, &poll);
        self.stats.packets_in += self.arrived.len() as u64;
        // An engine without receive capacity is called again at its deadline, or soon.
        let idled = spent.packets == 0 && self.arrived.is_empty();
        self.poll_from = if idled { now + FRUITLESS_PAUSE } else { now };
        spent
    }

    fn call(
        &mut self,
        now: Instant,
        what: impl FnOnce(&mut dyn AnyEngine, &mut Round<'_>) -> Units,
    ) -> Units {
        let units = what(
            &mut *self.engine,
            &mut Round {
                now,
                pool: &self.pool,
                random: &mut self.random,
                arrived: &mut self.arrived,
                departing: &mut self.departing,
                budget: self.config.budget,
                peers: self.membership.as_mut().map(SimulatedMembership::peers),
            },
        );
        // What the engine left is dropped here, and its ledger will not balance: its own fault.
        drop(self.arrived.drain());
        units
    }

    fn work(&mut self, now: Instant) -> Units {
        let before = self.departing.len();
        self.stats.works += 1;
        let units = self.call(now, |engine, round| engine.work(round));
        let fruitless = units.is_zero() && self.departing.len() == before;
        let again = self.engine.deadline().is_some_and(|at| at <= now);
        self.stats.fruitless += u64::from(fruitless && again);
        self.work_from = now + if fruitless && again { FRUITLESS_PAUSE } else { WORK_PAUSE };
        units
    }

    /// Makes the node busy for as long as it cost what was spent, and what was sent beyond the
    /// first `sent_before` packets that wait to depart.
    fn pay(&mut self, now: Instant, mut spent: Spent, sent_before: usize) {
        let taken = usize::try_from(spent.packets).unwrap_or(usize::MAX);
        let taken = taken + core::mem::take(&mut self.adopted);
        for packet in self.departing.iter().skip(sent_before) {
            spent.packets += 1;
            spent.bytes += packet.len() as u64;
        }
        let price = self.config.costs.price(&spent).0.saturating_add(self.owed);
        self.owed = price % 1000;
        let length = Duration::from_nanos(price / 1000);
        let from = self.busy_until.max(now);
        self.busy_until = from + length;
        // Timed work that is due waits as packets do: an application's backlog is no idleness.
        let due = self.engine.deadline().is_some_and(|at| at <= self.busy_until);
        self.share.occupy(from, self.busy_until, taken, due || self.has_input());
        self.stats.units += u64::from(spent.units.0);
        self.stats.busy += length;
        self.stats.turn_max = self.stats.turn_max.max(length);
    }
}
