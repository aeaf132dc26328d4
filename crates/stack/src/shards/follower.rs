//! A follower's side: it takes over published tables, and hands unresolved packets to the control
//! shard.
//!
//! Called by `stack.rs` at the start of every call, by `tx.rs` for each packet without a neighbour
//! in the path cache. Invariants: it writes nothing that others read; the tables of this stack are
//! copies, all of one snapshot; a packet is sent to a published link address only while nothing is
//! withheld.
//!
//! # How the control shard learns that a neighbour is used
//!
//! Reachability is probed where traffic goes (RFC 4861 section 7.3.3), so the cache must see it.
//! When a neighbour's reachability has expired, the first packet to it is handed to the control
//! shard instead of being sent, once in [`NOTE_EVERY`] for each publication of the neighbour: the
//! cache sees it, sends it, and starts the delay timer. So there is no write that two cores share,
//! and the cost is that this one packet may be overtaken.

use std::sync::Arc;

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, Counter, DropReason, Family, IfIndex, Instant, MacAddr, WorkerId};
use floodwall_ip::neighbor::DELAY_FIRST_PROBE_TIME;
use floodwall_packet::{Handoff, HandoffKind, PacketBuf};
use floodwall_sync::qsbr::DomainView;
use floodwall_sync::snapshot::SnapshotReader;
use floodwall_sync::spsc::Consumer;

use super::neighbor_sets::{FoundNeighbor, NeighborSets};
use super::notes::PeerNotes;
use super::{
    GENERATION, NEIGHBORS_WITHHELD, PublishedTables, Role, SNAPSHOT_WITHHELD, STATUS_WORDS,
    WITHHELD,
};
use crate::ip::fib_pair::FibReaders;
use crate::ip::ip_family::IpFamily;
use crate::remote::SocketCommand;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// How often the control shard is shown that a neighbour is used: once per delay before its first
/// probe.
const NOTE_EVERY: core::time::Duration = DELAY_FIRST_PROBE_TIME;

/// A follower's reading state: readers of published tables, versions already seen, its command log.
pub(crate) struct Follower {
    published: Arc<PublishedTables>,
    pub(crate) routes: FibReaders,
    status: SnapshotReader<STATUS_WORDS>,
    /// Version of the status that was acted upon.
    seen: u64,
    generation: u64,
    interfaces_revision: u64,
    withheld: u64,
    pub(crate) dhcp_asks: bool,
    pub(super) log: Consumer<SocketCommand>,
    pub(super) notes: PeerNotes,
    /// By way of a published set: the stamp that the control shard was shown last, and when.
    noted_v4: Box<[(u32, Instant)]>,
    noted_v6: Box<[(u32, Instant)]>,
}

impl Follower {
    pub(super) fn new(
        published: Arc<PublishedTables>,
        routes: FibReaders,
        status: SnapshotReader<STATUS_WORDS>,
        log: Consumer<SocketCommand>,
        notes: PeerNotes,
    ) -> Self {
        let noted_v4 = vec![(0, Instant::ORIGIN); published.v4.ways()].into();
        let noted_v6 = vec![(0, Instant::ORIGIN); published.v6.ways()].into();
        Self {
            published,
            routes,
            status,
            seen: 0,
            generation: 0,
            interfaces_revision: 0,
            withheld: 0,
            dhcp_asks: false,
            log,
            notes,
            noted_v4,
            noted_v6,
        }
    }

    /// How often it has taken over what the control shard shows.
    pub(crate) const fn taken_over(&self) -> u64 {
        self.generation
    }

    /// The stack that it belonged to is no more: the next one has taken over nothing yet.
    pub(super) fn forget(&mut self) {
        (self.seen, self.generation, self.interfaces_revision) = (0, 0, 0);
        (self.withheld, self.dhcp_asks) = (0, false);
    }

    /// The link address of a neighbour that may be sent to; `None` where the control shard must do
    /// it.
    fn neighbor<A: FollowerView>(
        &mut self,
        view: DomainView<'_>,
        iface: IfIndex,
        addr: A,
        now: Instant,
    ) -> Option<MacAddr> {
        if self.withheld & NEIGHBORS_WITHHELD != 0 {
            return None;
        }
        let (sets, noted) = A::seen(self);
        let FoundNeighbor { link_addr, watch_from, way, stamp } = sets.lookup(view, iface, addr)?;
        if now < watch_from {
            return Some(link_addr);
        }
        let noted = noted.get_mut(way)?;
        let known = noted.0 == stamp && now < noted.1 + NOTE_EVERY;
        if !known {
            *noted = (stamp, now);
        }
        known.then_some(link_addr)
    }
}

/// What a follower has of one family.
pub(crate) trait FollowerView: Address {
    fn seen(follower: &mut Follower) -> (&NeighborSets<Self>, &mut [(u32, Instant)]);
}

impl FollowerView for Ipv4Addr {
    fn seen(follower: &mut Follower) -> (&NeighborSets<Self>, &mut [(u32, Instant)]) {
        (&follower.published.v4, &mut follower.noted_v4)
    }
}

impl FollowerView for Ipv6Addr {
    fn seen(follower: &mut Follower) -> (&NeighborSets<Self>, &mut [(u32, Instant)]) {
        (&follower.published.v6, &mut follower.noted_v6)
    }
}

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
        follower.withheld = status.words[WITHHELD];
        let has = follower.interfaces_revision;
        if status.words[GENERATION] != follower.generation {
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
            Err(packet) => self.die_out::<A>(packet, DropReason::HandoffFull),
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
pub(super) fn family_of(packet: &PacketBuf) -> Option<Family> {
    match packet.first().first()? >> 4 {
        4 => Some(Family::V4),
        6 => Some(Family::V6),
        _ => None,
    }
}
