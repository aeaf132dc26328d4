//! `World`: the clock, the order of events, and the interface for programs.
//!
//! Called by `drill`, tests and users. Each step takes the earliest event: a frame that arrives, or
//! a node with a turn due. At the same instant frames come first, so that simultaneous arrivals are
//! handled together; then nodes in the order in which they were added. Invariants: the clock never
//! goes back, and the order depends on the seed and the calls made only.

use core::mem;
use core::time::Duration;
use std::collections::BTreeSet;

use floodwall_base::{IfIndex, Instant, PublicRandom, Steering, WorkerId};
use floodwall_packet::{Engine, HandoffList, PacketBuf, Pool, Round};
use floodwall_sync::qsbr::Domain;

use crate::cost::CostTable;
use crate::error::WorldError;
use crate::flight::FrameFlight;
use crate::frame;
use crate::lane::{LaneConfig, LaneDrop, LaneOutcome};
use crate::link::{LinkConfig, LinkId, LinkStats, Side, SimulatedLink};
use crate::node::WorldNode;
use crate::node_config::{NodeConfig, NodeId};
use crate::node_stats::NodeStats;
use crate::remake::Remaking;
use crate::simulated_workers::{SimulatedMembership, SimulatedWorkers};
use crate::trace::{TraceEvent, TraceKind};

/// Why a run came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// Nothing is on the way, and no node waits for anything.
    Idle,
    /// The time was over.
    Limit,
}

/// The purpose of a seed's stream.
const NODE_STREAM: u64 = 0x6e6f_6465;
const LANE_STREAM: u64 = 0x6c61_6e65;

/// A trace callback.
type Hook = Box<dyn FnMut(&TraceEvent<'_>)>;

/// A simulated network in virtual time: nodes, links, one clock and one seed.
///
/// ```
/// use core::time::Duration;
/// use floodwall_base::{IfIndex, Instant, Units};
/// use floodwall_packet::{Burst, Engine, Pool, PoolConfig, Round, Triage};
/// use floodwall_world::{LaneConfig, LinkConfig, World};
///
/// /// Sends one packet when it is time, and counts what comes back.
/// struct Caller { at: Option<Instant>, answers: usize }
/// /// Sends everything back.
/// struct Mirror;
///
/// impl Engine for Caller {
///     fn round(&mut self, round: &mut Round<'_>) -> Units {
///         self.answers += round.arrived.drain().count();
///         Units(1)
///     }
///     fn work(&mut self, round: &mut Round<'_>) -> Units {
///         let mut packet = round.pool.packet_from(b"hello").expect("memory");
///         packet.set_iface(IfIndex(1));
///         round.departing.push_back(packet);
///         self.at = None;
///         Units(1)
///     }
///     fn deadline(&self) -> Option<Instant> { self.at }
///     fn classify(&self, _: &Burst, _: &mut [Triage]) {}
/// }
/// impl Engine for Mirror {
///     fn round(&mut self, round: &mut Round<'_>) -> Units {
///         round.arrived.drain().for_each(|packet| round.departing.push_back(packet));
///         Units(1)
///     }
///     fn work(&mut self, _: &mut Round<'_>) -> Units { Units(0) }
///     fn deadline(&self) -> Option<Instant> { None }
///     fn classify(&self, _: &Burst, _: &mut [Triage]) {}
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut world = World::new(42);
/// let pool = || Pool::new(&PoolConfig::default());
/// let caller = Caller { at: Some(Instant::ORIGIN), answers: 0 };
/// let caller = world.add_node("caller", caller, pool()?);
/// let mirror = world.add_node("mirror", Mirror, pool()?);
/// let way = LinkConfig::both(LaneConfig::with_delay(Duration::from_millis(5)));
/// world.connect((caller, IfIndex(1)), (mirror, IfIndex(1)), way)?;
/// world.run_for(Duration::from_millis(11));
/// assert_eq!(world.node::<Caller>(caller).map(|c| c.answers), Some(1));
/// # Ok(())
/// # }
/// ```
pub struct World {
    now: Instant,
    seed: u64,
    nodes: Vec<WorldNode>,
    links: Vec<SimulatedLink>,
    flight: FrameFlight,
    /// When each node is to be called: one entry a node at most.
    turns: BTreeSet<(Instant, NodeId)>,
    hook: Option<Hook>,
    /// Hosts with several workers.
    groups: Vec<SimulatedWorkers>,
}

impl World {
    /// An empty world with its clock at the origin.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::ORIGIN,
            seed,
            nodes: Vec::new(),
            links: Vec::new(),
            flight: FrameFlight::default(),
            turns: BTreeSet::new(),
            hook: None,
            groups: Vec::new(),
        }
    }

    /// What time it is.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Adds an engine on a core of its own, with the default [`NodeConfig`]. `pool` is its memory
    /// alone. Its randomness follows from the world's seed and the order of additions.
    pub fn add_node(&mut self, name: &str, engine: impl Engine + 'static, pool: Pool) -> NodeId {
        self.add_node_with(name, engine, pool, NodeConfig::default())
    }

    /// As [`World::add_node`], with a core and a device as in `config`.
    pub fn add_node_with(
        &mut self,
        name: &str,
        engine: impl Engine + 'static,
        pool: Pool,
        config: NodeConfig,
    ) -> NodeId {
        let id = NodeId(self.nodes.len());
        let seed = self.stream(NODE_STREAM, id.0 as u64);
        self.nodes.push(WorldNode::new(name, Box::new(engine), pool, seed, config));
        id
    }

    /// Adds a host with several workers, the control shard's engine first, each with its memory: a
    /// node each, on the links of the first. Frames of its links (Ethernet) go to the node that
    /// owns them by `steering`; the engines may hand packets to each other. The engines publish
    /// under `domain`.
    ///
    /// # Errors
    /// The domain has fewer readers than there are engines, or there are none.
    pub fn add_workers<E: Engine + 'static>(
        &mut self,
        name: &str,
        engines: Vec<(E, Pool)>,
        domain: &Domain,
        steering: Steering,
        config: NodeConfig,
    ) -> Result<Vec<NodeId>, WorldError> {
        let (group, mut members) = (self.groups.len(), Vec::new());
        let (made, wanted) = (usize::from(steering.workers()), engines.len());
        if made != wanted {
            return Err(WorldError::Workers { made, wanted });
        }
        for (at, (engine, pool)) in engines.into_iter().enumerate() {
            let own = WorkerId(at as u16);
            let membership = SimulatedMembership::new(group, domain, own, steering);
            let membership = membership.ok_or(WorldError::Workers { made: at, wanted })?;
            let id = self.add_node_with(&format!("{name}.{at}"), engine, pool, config);
            if let Some(node) = self.nodes.get_mut(id.0) {
                node.membership = Some(membership);
                node.share.join(own);
            }
            members.push(id);
        }
        self.groups.push(SimulatedWorkers::new(members.clone(), steering));
        Ok(members)
    }

    /// Lets a worker of a host hang in its round, or go on: it neither handles packets nor pauses.
    pub fn set_stuck(&mut self, id: NodeId, stuck: bool) {
        if let Some(membership) = self.nodes.get_mut(id.0).and_then(|n| n.membership.as_mut()) {
            membership.stuck = stuck;
        }
        self.note_turn(id);
    }

    /// From now on all frames that arrive at a host with several workers by this interface are put
    /// into the queue of one of them, regardless of the owner, as by a card without RSS.
    pub fn set_queue(&mut self, worker: NodeId, iface: IfIndex) {
        let group = self.at(worker).and_then(|node| node.membership.as_ref()).map(|m| m.group);
        if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
            group.set_queue(iface, worker);
        }
    }

    /// From now on a panic of this node's engine costs no more than the engine: `make` makes its
    /// next one. State that the engine shares with others must tolerate that.
    pub fn set_remake<E: Engine + 'static>(
        &mut self,
        id: NodeId,
        mut make: impl FnMut(&mut Remaking<'_>) -> E + 'static,
    ) {
        if let Some(node) = self.nodes.get_mut(id.0) {
            node.remake = Some(Box::new(move |with| Box::new(make(with))));
        }
    }

    /// Packets that were handed over to a worker and that it has not yet adopted.
    #[must_use]
    pub fn handed_over(&self, id: NodeId) -> usize {
        let membership = self.at(id).and_then(|node| node.membership.as_ref());
        membership.map_or(0, |membership| membership.inbox.len())
    }

    /// The nodes that have a node's links: itself, or all workers of its host.
    fn workers_of(&self, id: NodeId) -> Vec<NodeId> {
        let group = self.at(id).and_then(|node| self.groups.get(node.membership.as_ref()?.group));
        group.map_or_else(|| vec![id], |group| group.members.clone())
    }

    /// Carries what a worker handed over to the others, and gives turns to those it nudged.
    fn carry(&mut self, id: NodeId) {
        let Self { nodes, groups, now, .. } = self;
        let Some(membership) = nodes.get_mut(id.0).and_then(|node| node.membership.as_mut()) else {
            return;
        };
        let Some(group) = groups.get(membership.group) else { return };
        let mut handed = mem::replace(&mut membership.handoff, HandoffList::new(0));
        for handoff in handed.drain() {
            let member = group.member(handoff.to).and_then(|to| nodes.get_mut(to.0));
            let Some(node) = member else { continue };
            let taken = node.membership.as_mut().is_some_and(|m| m.take(handoff));
            node.stats.handoff_lost += u64::from(!taken);
        }
        for (worker, member) in group.members.iter().enumerate() {
            let Some(node) = nodes.get_mut(member.0) else { continue };
            if let Some(membership) = &mut node.membership {
                membership.nudged |= handed.is_nudged(WorkerId(worker as u16));
            }
            node.pause_if_asleep(*now);
        }
        handed.take_nudges();
        if let Some(membership) = nodes.get_mut(id.0).and_then(|node| node.membership.as_mut()) {
            membership.handoff = handed;
        }
        for member in self.workers_of(id) {
            self.note_turn(member);
        }
    }

    /// Lays a link between two interfaces. Interfaces are numbered from 1: 0 is the engine's own
    /// loopback.
    ///
    /// # Errors
    /// An unknown node, an interface that cannot take a link, or an impossible setting.
    pub fn connect(
        &mut self,
        a: (NodeId, IfIndex),
        b: (NodeId, IfIndex),
        config: LinkConfig,
    ) -> Result<LinkId, WorldError> {
        for (id, iface) in [a, b] {
            self.at(id).ok_or(WorldError::NodeUnknown(id))?.check_port(id, iface)?;
        }
        if a == b {
            return Err(WorldError::InterfaceTaken { node: b.0, iface: b.1 });
        }
        let id = LinkId(self.links.len());
        let lane = id.0 as u64 * 2;
        let seeds = [self.stream(LANE_STREAM, lane), self.stream(LANE_STREAM, lane + 1)];
        self.links.push(SimulatedLink::new(a, b, config, seeds)?);
        for ((node, iface), side) in [(a, Side::A), (b, Side::B)] {
            for worker in self.workers_of(node) {
                if let Some(node) = self.nodes.get_mut(worker.0) {
                    node.set_port(iface, id, side);
                }
            }
        }
        Ok(id)
    }

    /// The seed of one part's own stream.
    fn stream(&self, kind: u64, index: u64) -> u64 {
        let mut kinds = PublicRandom::new(self.seed ^ kind.rotate_left(32));
        PublicRandom::new(kinds.next_u64().wrapping_add(index)).next_u64()
    }

    /// Changes how one direction of a link treats frames from now on. What is on the way stays.
    /// Nothing happens where the link is not of this world.
    ///
    /// # Errors
    /// An impossible setting.
    pub fn set_lane(
        &mut self,
        link: LinkId,
        from: Side,
        config: LaneConfig,
    ) -> Result<(), WorldError> {
        match self.links.get_mut(link.0) {
            Some(link) => link.lane_mut(from).set_config(config),
            None => Ok(()),
        }
    }

    /// Permits a node to send fragments of TCP segments: routers, and generators of floods. Of any
    /// other node a run panics at the first, in every build, as no host may make one (RFC 9293
    /// section 3.7).
    pub fn permit_tcp_fragments(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(id.0) {
            node.may_fragment = true;
        }
    }

    /// Changes what a node's work costs from now on.
    pub fn set_costs(&mut self, id: NodeId, costs: CostTable) {
        if let Some(node) = self.nodes.get_mut(id.0) {
            node.set_costs(costs);
        }
    }

    /// The engine of a node; `None` where the node is not of this world or its engine is not a
    /// `E`. What is changed is noticed at the next run.
    pub fn node<E: Engine + 'static>(&mut self, id: NodeId) -> Option<&mut E> {
        self.nodes.get_mut(id.0)?.engine_mut()
    }

    /// The engine of a node, to be looked at; `None` as in [`World::node`].
    #[must_use]
    pub fn node_ref<E: Engine + 'static>(&self, id: NodeId) -> Option<&E> {
        self.at(id)?.engine_ref()
    }

    /// Lets `caller` use a node's engine with the node's own memory and randomness, as an
    /// application between two rounds would. What it sends leaves when the node's turn in
    /// progress is over. `None` as in [`World::node`].
    pub fn visit<E: Engine + 'static, R>(
        &mut self,
        id: NodeId,
        caller: impl FnOnce(&mut E, &mut Round<'_>) -> R,
    ) -> Option<R> {
        let now = self.now;
        let answer = self.nodes.get_mut(id.0)?.visit(now, caller);
        self.carry(id);
        answer
    }

    /// A node's memory.
    #[must_use]
    pub fn pool(&self, id: NodeId) -> Option<&Pool> {
        self.at(id).map(|node| &node.pool)
    }

    /// What a node did so far; nothing where it is not of this world.
    #[must_use]
    pub fn node_stats(&self, id: NodeId) -> NodeStats {
        self.at(id).map(|node| node.stats(self.now)).unwrap_or_default()
    }

    /// The name that a node was given.
    #[must_use]
    pub fn node_name(&self, id: NodeId) -> &str {
        self.at(id).map_or("", |node| node.name.as_str())
    }

    /// What a link carried and lost so far; nothing where it is not of this world.
    #[must_use]
    pub fn stats(&self, id: LinkId) -> LinkStats {
        self.links.get(id.0).map(SimulatedLink::stats).unwrap_or_default()
    }

    /// Calls `hook` for every event of every link from now on. It costs no virtual time.
    pub fn set_trace(&mut self, hook: impl FnMut(&TraceEvent<'_>) + 'static) {
        self.hook = Some(Box::new(hook));
    }

    /// Lets time pass until `end`; everything up to and including that moment happens.
    pub fn run_until(&mut self, end: Instant) {
        self.run(end, false);
        self.now = self.now.max(end);
    }

    /// Lets `length` pass.
    pub fn run_for(&mut self, length: Duration) {
        self.run_until(self.now + length);
    }

    /// Lets time pass until no event is left, but no longer than `limit`. With a timer
    /// that always runs the world is never idle. The clock stops at the last event.
    pub fn run_until_idle(&mut self, limit: Duration) -> RunEnd {
        let end = self.now + limit;
        if self.run(end, true) {
            return RunEnd::Idle;
        }
        self.now = self.now.max(end);
        RunEnd::Limit
    }

    /// Handles events up to `end`. True where `until_idle` is set and the world became idle.
    fn run(&mut self, end: Instant, until_idle: bool) -> bool {
        // A node that was used since the last run may have another deadline.
        (0..self.nodes.len()).for_each(|at| self.note_turn(NodeId(at)));
        loop {
            let turn = self.turns.first().copied();
            let frame = self.flight.next_at();
            match (frame, turn) {
                (Some(at), turn) if at <= end && turn.is_none_or(|(turn, _)| at <= turn) => {
                    self.now = self.now.max(at);
                    self.arrive();
                }
                (_, Some((at, id))) if at <= end => {
                    self.now = self.now.max(at);
                    self.turn(id);
                }
                _ => return until_idle && self.is_idle(),
            }
        }
    }

    /// Whether nothing is on the way, and no node waits for anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flight.is_empty() && self.nodes.iter().all(WorldNode::is_idle)
    }

    fn at(&self, id: NodeId) -> Option<&WorldNode> {
        self.nodes.get(id.0)
    }

    /// Notes when a node is to be called next.
    fn note_turn(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.0) else { return };
        let next = node.next_turn().map(|at| at.max(self.now));
        if next == node.wake_at {
            return;
        }
        if let Some(before) = node.wake_at {
            self.turns.remove(&(before, id));
        }
        node.wake_at = next;
        if let Some(next) = next {
            self.turns.insert((next, id));
        }
    }

    /// A node's turn: what it has paid for leaves, then it does what waits, then what that sent
    /// leaves at once if it was free.
    fn turn(&mut self, id: NodeId) {
        self.depart(id);
        if let Some(node) = self.nodes.get_mut(id.0) {
            node.turn(self.now);
        }
        self.carry(id);
        self.depart(id);
        self.note_turn(id);
    }

    fn depart(&mut self, id: NodeId) {
        while let Some(node) = self.nodes.get_mut(id.0) {
            let Some(packet) = node.take_departure(self.now) else { return };
            match node.port(packet.iface()) {
                Some((link, side)) => self.transmit(id, (link, side), &packet),
                None => node.stats.unlinked += 1,
            }
        }
    }

    /// Gives a packet's bytes to a lane; the packet itself goes back to its sender's pool.
    fn transmit(&mut self, sender: NodeId, (id, from): (LinkId, Side), packet: &PacketBuf) {
        let Some(link) = self.links.get_mut(id.0) else { return };
        let mut frame = self.flight.buffer();
        let lane = link.lane_mut(from);
        let is_finished = frame::copy_out(packet, &mut frame);
        if let Some(node) = self.nodes.get(sender.0) {
            // In every build: all worlds rely on it, and it costs a few comparisons a frame.
            assert!(
                node.may_fragment || !frame::is_tcp_fragment(&frame),
                "{}: a TCP segment leaves as an IP fragment",
                node.name
            );
        }
        let outcome = if is_finished {
            lane.send(self.now, frame.len())
        } else {
            lane.stats.sent += 1;
            lane.stats.sent_bytes += frame.len() as u64;
            lane.drop_frame(LaneDrop::Unfinished)
        };
        self.trace(id, from, TraceKind::Sent, &frame);
        match outcome {
            LaneOutcome::Dropped(why) => {
                self.trace(id, from, TraceKind::Dropped(why), &frame);
                self.flight.recycle(frame);
            }
            LaneOutcome::Carried { at, again, flip } => {
                if let Some(bit) = flip
                    && let Some(byte) = frame.get_mut((bit / 8) as usize)
                {
                    *byte ^= 1 << (bit % 8);
                }
                if let Some(again) = again {
                    let mut copy = self.flight.buffer();
                    copy.extend_from_slice(&frame);
                    self.flight.push(again, id, from, copy);
                }
                self.flight.push(at, id, from, frame);
            }
        }
    }

    /// The earliest frame reaches its receiver's device.
    fn arrive(&mut self) {
        let Some(flown) = self.flight.pop() else { return };
        let (id, from) = (flown.link, flown.from);
        let Some(link) = self.links.get_mut(id.0) else { return };
        let (first, iface) = link.port(from.other());
        let membership = self.nodes.get(first.0).and_then(|node| node.membership.as_ref());
        let group = membership.and_then(|membership| self.groups.get(membership.group));
        let receiver = group.and_then(|group| group.receiver(iface, &flown.frame)).unwrap_or(first);
        let Some(node) = self.nodes.get_mut(receiver.0) else { return };
        let received = node.receive(self.now, iface, &flown.frame);
        let stats = &mut link.lane_mut(from).stats;
        stats.in_flight -= 1;
        let kind = match received {
            Ok(()) => {
                stats.delivered += 1;
                stats.delivered_bytes += flown.frame.len() as u64;
                TraceKind::Delivered
            }
            Err(why) => {
                stats.count_drop(why);
                TraceKind::Dropped(why)
            }
        };
        self.trace(id, from, kind, &flown.frame);
        self.flight.recycle(flown.frame);
        self.note_turn(receiver);
    }

    fn trace(&mut self, link: LinkId, from: Side, kind: TraceKind, frame: &[u8]) {
        if let Some(hook) = &mut self.hook {
            hook(&TraceEvent { at: self.now, link, from, kind, frame });
        }
    }
}

impl core::fmt::Debug for World {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (nodes, links) = (self.nodes.len(), self.links.len());
        write!(f, "World({nodes} nodes, {links} links, at {:?})", self.now)
    }
}
