//! The stack's side of following: it takes published tables over, and hands packets to other
//! workers.
//!
//! Called by the stack's engine at the start of every call, and by `tx.rs` and `rx.rs` for packets
//! that another shard must handle.

use std::sync::Arc;

use floodwall_base::{Counter, DropReason, Family, IfIndex, MacAddr, WorkerId};
use floodwall_packet::{Handoff, HandoffKind, PacketBuf};
use floodwall_sync::qsbr::DomainView;

use super::FollowerView;
use crate::ip::ip_family::IpFamily;
use crate::round_context::RoundContext;
use crate::shards::published::{GENERATION_WORD, SNAPSHOT_WITHHELD, WITHHELD_WORD};
use crate::shards::role::Role;
use crate::stack::Stack;

impl Stack {
    /// Takes over notes of the other shards since the last call, and, on a follower, what the
    /// control shard has published. Costs a look at three words, and at one of each other shard,
    /// where nothing is new; nothing where there are no others.
    #[inline(always)]
    pub(crate) fn catch_up(&mut self, cx: &mut RoundContext<'_>) {
        if !matches!(self.shard.role, Role::Alone) {
            self.catch_up_with_others(cx);
        }
    }

    #[inline(never)]
    fn catch_up_with_others(&mut self, cx: &mut RoundContext<'_>) {
        self.hear_notes(cx.now);
        if !self.is_follower() {
            return;
        }
        if let Some(peers) = &cx.peers {
            self.take_over(peers.view);
        }
        self.repeat_commands(cx);
    }

    fn take_over(&mut self, view: DomainView<'_>) {
        let Role::Follower(follower) = &mut self.shard.role else { return };
        let status = follower.status.read();
        if status.version == follower.seen {
            return;
        }
        follower.seen = status.version;
        follower.withheld = status.words[WITHHELD_WORD];
        let has = follower.interfaces_revision;
        if status.words[GENERATION_WORD] != follower.generation {
            let published = Arc::clone(&follower.published);
            let snapshot = published.snapshot.load(view);
            follower.generation = snapshot.generation;
            follower.interfaces_revision = snapshot.interfaces_revision;
            follower.dhcp_asks = snapshot.dhcp_asks;
            snapshot.give_to(self, has);
            self.stats.counters.count(Counter::FloodwallSnapshotsTaken);
        }
        self.sockets.path_cache.forget();
    }

    /// Whether another shard learns for this one.
    #[inline]
    pub(crate) const fn is_follower(&self) -> bool {
        matches!(self.shard.role, Role::Follower(_))
    }

    /// Whether the control shard must decide where packets go, because it could not show what it
    /// decides by.
    #[inline]
    pub(crate) const fn is_behind(&self) -> bool {
        match &self.shard.role {
            Role::Follower(follower) => follower.withheld & SNAPSHOT_WITHHELD != 0,
            _ => false,
        }
    }

    /// Whether a DHCP client of this host waits for an answer.
    #[inline]
    pub(crate) fn dhcp_asks(&self) -> bool {
        match &self.shard.role {
            Role::Follower(follower) => follower.dhcp_asks,
            _ => self.control.dhcp.asks(),
        }
    }

    /// The link address of a neighbour that a follower may send to; `None` where the control shard
    /// must send for it.
    pub(crate) fn published_neighbor<A: FollowerView>(
        &mut self,
        cx: &RoundContext<'_>,
        iface: IfIndex,
        addr: A,
    ) -> Option<MacAddr> {
        let Role::Follower(follower) = &mut self.shard.role else { return None };
        follower.neighbor(cx.peers.as_ref()?.view, iface, addr, cx.now)
    }

    /// Lets the control shard send a packet of ours, which begins with its IP header.
    #[cold]
    pub(crate) fn hand_out<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
    ) {
        packet.uncharge();
        let (to, kind) = (WorkerId::CONTROL, HandoffKind::Outgoing);
        match hand(cx, Handoff { to, kind, packet }) {
            Ok(()) => self.stats.outcomes.handed_out += 1,
            Err(packet) => self.drop_output::<A>(packet, DropReason::HandoffFull),
        }
    }

    /// Lets the control shard have what only it understands: the frame as it arrived, or where it
    /// came in fragments, the whole.
    #[cold]
    pub(crate) fn hand_in(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        whole: Option<usize>,
    ) {
        let kind = match whole {
            None => HandoffKind::Frame,
            Some(l3) => {
                packet.trim_front(l3);
                HandoffKind::Reassembled
            }
        };
        self.hand_to(cx, WorkerId::CONTROL, kind, packet);
    }

    /// Lets another shard have what arrived here.
    #[cold]
    pub(crate) fn hand_to(
        &mut self,
        cx: &mut RoundContext<'_>,
        to: WorkerId,
        kind: HandoffKind,
        packet: PacketBuf,
    ) {
        match hand(cx, Handoff { to, kind, packet }) {
            Ok(()) => self.stats.outcomes.handed_in += 1,
            Err(packet) => self.drop_packet(packet, DropReason::HandoffFull),
        }
    }

    /// The owner of a datagram that was put together here and begins at `l3`, where it is another.
    pub(crate) fn owner_of_whole(&self, packet: &PacketBuf, l3: usize) -> Option<WorkerId> {
        if self.shard.steering.workers() == 1 {
            return None;
        }
        // As far as the first chunk shows it: what hides its ports behind it is the control
        // shard's, here as on arrival.
        let bytes = packet.first().get(l3..).unwrap_or_default();
        let owner = floodwall_wire::steer::packet(&self.shard.steering, bytes);
        (owner != self.shard.worker).then_some(owner)
    }
}

/// Puts a packet into the list of what other workers shall have; gives it back where there is none
/// or no room.
fn hand(cx: &mut RoundContext<'_>, handoff: Handoff) -> Result<(), PacketBuf> {
    match &mut cx.peers {
        Some(peers) => peers.handoff.push(handoff).map_err(|back| back.packet),
        None => Err(handoff.packet),
    }
}

/// The family of an IP packet, by its first byte.
pub(in crate::shards) fn family_of(packet: &PacketBuf) -> Option<Family> {
    match packet.first().first()? >> 4 {
        4 => Some(Family::V4),
        6 => Some(Family::V6),
        _ => None,
    }
}
