//! A host with several workers in the world: each a node with a core, a ring and memory of its own.
//!
//! Called by `world.rs` and `node.rs`. The workers share the host's links: an arriving frame is put
//! into the ring of the worker that owns it, by the same function as on real devices
//! (`wire::steer`). Packets handed over in a turn are in the other worker's inbox when the turn is
//! over, bounded as the real rings are. Invariants: a worker passes a quiescent state at the end of
//! each turn, and while it has nothing to do it counts as asleep, so that it delays no reclamation;
//! the order depends on the world's order only.
//!
//! # Under flood
//! Reachable by peers with packets that are handed over. Bound: [`TURN_HANDOFFS`] packets of one
//! turn, [`HANDOFF_RING`] in one inbox, of which a turn takes a burst. When full the new packet is
//! dropped and counted ([`crate::NodeStats::handoff_lost`]); a packet to be sent also when more
//! than [`HANDOFF_OUTGOING_MAX`] wait.

use floodwall_base::limits::{BURST_MAX, HANDOFF_OUTGOING_MAX, HANDOFF_RING};
use floodwall_base::{IfIndex, Instant, Steering, WorkerId};
use floodwall_packet::{Burst, Handoff, HandoffKind, HandoffList, Peers};
use floodwall_sync::qsbr::{Domain, Moment, Reader};
use floodwall_wire::steer;

use crate::node_config::NodeId;

/// Maximum packets that one worker hands over in a turn.
pub(crate) const TURN_HANDOFFS: usize = 256;

/// The workers of one host, the control shard's first.
pub(crate) struct SimulatedWorkers {
    pub(crate) members: Vec<NodeId>,
    steering: Steering,
    /// Interfaces with all their frames in one worker's queue, regardless of the owner.
    queues: Vec<(IfIndex, NodeId)>,
}

impl SimulatedWorkers {
    pub(crate) const fn new(members: Vec<NodeId>, steering: Steering) -> Self {
        Self { members, steering, queues: Vec::new() }
    }

    /// The node of a worker.
    pub(crate) fn member(&self, worker: WorkerId) -> Option<NodeId> {
        self.members.get(usize::from(worker.0)).copied()
    }

    /// From now on all frames of an interface are put into the ring of one worker.
    pub(crate) fn set_queue(&mut self, iface: IfIndex, worker: NodeId) {
        self.queues.retain(|(known, _)| *known != iface);
        self.queues.push((iface, worker));
    }

    /// The worker that gets an Ethernet frame in its ring.
    pub(crate) fn receiver(&self, iface: IfIndex, frame: &[u8]) -> Option<NodeId> {
        let queue = self.queues.iter().find(|(known, _)| *known == iface);
        queue
            .map(|(_, worker)| *worker)
            .or_else(|| self.member(steer::frame(&self.steering, frame)))
    }
}

/// What ties a node to the other workers of its host.
pub(crate) struct SimulatedMembership {
    /// Which worker group of the world.
    pub(crate) group: usize,
    reader: Reader,
    pub(crate) handoff: HandoffList,
    pub(crate) inbox: HandoffList,
    /// Of the inbox, what the engine is given now.
    pub(crate) handed: HandoffList,
    own: WorkerId,
    steering: Steering,
    /// Another worker has requested a turn for it.
    pub(crate) nudged: bool,
    /// It neither has turns nor pauses: a worker that hangs.
    pub(crate) stuck: bool,
}

impl SimulatedMembership {
    /// `None` where every worker that the domain was made for has its reader.
    pub(crate) fn new(
        group: usize,
        domain: &Domain,
        own: WorkerId,
        steering: Steering,
    ) -> Option<Self> {
        Some(Self {
            group,
            reader: domain.reader().ok()?,
            handoff: HandoffList::new(TURN_HANDOFFS),
            inbox: HandoffList::new(HANDOFF_RING),
            handed: HandoffList::new(BURST_MAX),
            own,
            steering,
            nudged: false,
            stuck: false,
        })
    }

    /// What an engine is given of it for one call.
    pub(crate) fn peers(&mut self) -> Peers<'_> {
        Peers { view: self.reader.view(), handoff: &mut self.handoff }
    }

    /// As [`SimulatedMembership::peers`], with what it is handed beside it.
    pub(crate) fn peers_and_handed(&mut self) -> (Peers<'_>, &mut HandoffList) {
        let peers = Peers { view: self.reader.view(), handoff: &mut self.handoff };
        (peers, &mut self.handed)
    }

    /// Takes out of a burst what is another worker's, for its owner; returns how many found no
    /// room.
    pub(crate) fn sort(&mut self, burst: &mut Burst) -> u64 {
        let Self { own, steering, handoff, .. } = self;
        let mut lost = 0;
        burst.sort_out(0, |packet| {
            let to = steer::frame(steering, packet.first());
            if to == *own {
                return Some(packet);
            }
            let kind = HandoffKind::Frame;
            lost += u64::from(handoff.push(Handoff { to, kind, packet }).is_err());
            None
        });
        lost
    }

    /// Whether a turn would find something of other workers'.
    pub(crate) fn has_news(&self) -> bool {
        self.nudged || !self.inbox.is_empty()
    }

    /// A turn is over, or the worker sleeps.
    pub(crate) fn pause(&mut self, now: Instant) {
        if !self.stuck {
            self.reader.pass(Moment::RoundEnd, now);
        }
    }

    /// Takes a packet from another worker; false where there was no room.
    pub(crate) fn take(&mut self, handoff: Handoff) -> bool {
        let outgoing = handoff.kind == HandoffKind::Outgoing;
        let most = if outgoing { HANDOFF_OUTGOING_MAX } else { HANDOFF_RING };
        self.inbox.len() < most && self.inbox.push(handoff).is_ok()
    }
}
