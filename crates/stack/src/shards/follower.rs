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

pub(super) mod catch_up;

use std::sync::Arc;

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, IfIndex, Instant, MacAddr};
use floodwall_ip::neighbor::DELAY_FIRST_PROBE_TIME;
use floodwall_sync::qsbr::DomainView;
use floodwall_sync::snapshot::SnapshotReader;
use floodwall_sync::spsc::Consumer;

use super::neighbor_sets::{FoundNeighbor, NeighborSets};
use super::notes::PeerNotes;
use super::published::{NEIGHBORS_WITHHELD, PublishedTables, STATUS_WORDS};
use crate::ip::fib_pair::FibReaders;
use floodwall_remote::SocketCommand;

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

    /// As if the control shard withheld its tables, or no more.
    #[cfg(test)]
    pub(crate) const fn withhold(&mut self, is_withheld: bool) {
        self.withheld = if is_withheld { super::published::SNAPSHOT_WITHHELD } else { 0 };
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
