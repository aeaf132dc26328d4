//! The control shard's side: it detects changes, and publishes them.
//!
//! Called by `stack.rs` at the end of every call, and before a host's state is read from outside. A
//! handful of words that change with every change ([`PublishedMarks`]) is compared first; tables
//! are compared and copied only where one of these differs, and not more often than
//! [`limits::SNAPSHOT_EVERY`]. Invariant: what could not be published yet is announced as withheld
//! in the same call.

mod publish;

use std::sync::Arc;

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Instant, limits};
use floodwall_ip::Interface;
use floodwall_sync::Retired;
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps};
use floodwall_sync::snapshot::SnapshotWriter;
use floodwall_sync::spsc::Producer;

use super::neighbor_sets::NeighborWriter;
use super::notes::PeerNotes;
use super::published::{
    GENERATION_WORD, NEIGHBORS_WITHHELD, NEIGHBORS_WORD, PublishedTables, ROUTES_WORD,
    SNAPSHOT_WITHHELD, STATUS_WORDS, WITHHELD_WORD,
};
use super::snapshot::TableSnapshot;
use floodwall_remote::SocketCommand;

/// Counters of which at least one changes whenever a table may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PublishedMarks {
    paths: u32,
    exceptions: (u32, u32),
    changes: u64,
    dhcp_asks: bool,
}

/// The control shard's publishing state: snapshots, neighbour sets, status words and command logs.
pub(crate) struct ControlShard {
    published: Arc<PublishedTables>,
    status: SnapshotWriter<STATUS_WORDS>,
    /// The status words as last published.
    said: [u64; STATUS_WORDS],
    /// As they were when the snapshot that is out was made.
    marks: Option<PublishedMarks>,
    interfaces: Vec<Interface>,
    interfaces_revision: u64,
    generation: u64,
    next_look: Instant,
    limbo: Limbo<Retired<TableSnapshot>>,
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is shown")]
    spare: Vec<Box<TableSnapshot>>,
    bytes: usize,
    snapshot_refused: u64,
    withheld: bool,
    /// Routes have changed and could not be shown.
    routes_withheld: bool,
    v4: NeighborWriter<Ipv4Addr>,
    v6: NeighborWriter<Ipv6Addr>,
    neighbors_withheld: bool,
    /// When memory may be looked at again.
    next_reclaim: Option<Instant>,
    /// One for each follower.
    pub(super) logs: Vec<Producer<SocketCommand>>,
    pub(super) notes: PeerNotes,
}

impl ControlShard {
    pub(super) fn new(
        domain: &Domain,
        published: Arc<PublishedTables>,
        status: SnapshotWriter<STATUS_WORDS>,
        logs: Vec<Producer<SocketCommand>>,
        notes: PeerNotes,
    ) -> Self {
        let items = limits::SNAPSHOTS_WAITING;
        let bytes = TableSnapshot::bytes(limits::INTERFACES_MAX);
        let v4 = NeighborWriter::new(domain, &published.v4);
        let v6 = NeighborWriter::new(domain, &published.v6);
        Self {
            published,
            status,
            said: [0; STATUS_WORDS],
            marks: None,
            interfaces: Vec::new(),
            interfaces_revision: 0,
            generation: 0,
            next_look: Instant::ORIGIN,
            limbo: domain.limbo(LimboCaps { items, bytes: items * bytes }),
            spare: (0..=items).map(|_| Box::new(TableSnapshot::empty())).collect(),
            bytes,
            snapshot_refused: 0,
            withheld: false,
            routes_withheld: false,
            v4,
            v6,
            neighbors_withheld: false,
            next_reclaim: None,
            logs,
            notes,
        }
    }

    /// Whether something waits for readers.
    fn waits(&self) -> bool {
        let snapshots = self.limbo.oldest(Instant::ORIGIN).is_some();
        snapshots || self.v4.waits() || self.v6.waits()
    }

    fn reclaim(&mut self, now: Instant) {
        self.v4.reclaim(now);
        self.v6.reclaim(now);
        let Self { limbo, spare, .. } = self;
        while limbo.reclaim(|| now, |old| spare.push(old.into_box())) > 0 {}
    }

    /// Publishes the status words to followers, where they have changed.
    fn say(&mut self, routes: u64) {
        let mut words = [0; STATUS_WORDS];
        words[GENERATION_WORD] = self.generation;
        words[WITHHELD_WORD] = u64::from(self.withheld || self.routes_withheld) * SNAPSHOT_WITHHELD
            + u64::from(self.neighbors_withheld) * NEIGHBORS_WITHHELD;
        words[NEIGHBORS_WORD] = self.v4.published + self.v6.published;
        words[ROUTES_WORD] = routes;
        if words != self.said {
            self.said = words;
            self.status.publish(&words);
        }
    }
}
