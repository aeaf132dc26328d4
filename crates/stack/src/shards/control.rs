//! The control shard's side: it detects changes, and publishes them.
//!
//! Called by `stack.rs` at the end of every call, and before a host's state is read from outside. A
//! handful of words that change with every change ([`PublishedMarks`]) is compared first; tables
//! are compared and copied only where one of these differs, and not more often than
//! [`limits::SNAPSHOT_EVERY`]. Invariant: what could not be published yet is announced as withheld
//! in the same call.

use std::sync::Arc;

use core::mem;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{Counter, Instant, limits};
use floodwall_ip::Interface;
use floodwall_sync::Retired;
use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps};
use floodwall_sync::snapshot::SnapshotWriter;
use floodwall_sync::spsc::Producer;

use super::neighbor_sets::NeighborWriter;
use super::notes::PeerNotes;
use super::snapshot::{TableSnapshot, copy_interfaces};
use super::{
    GENERATION, NEIGHBORS, NEIGHBORS_WITHHELD, PublishedTables, ROUTES, Role, SNAPSHOT_WITHHELD,
    STATUS_WORDS, WITHHELD,
};
use crate::remote::SocketCommand;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Neighbours of each family published in one call.
const NEIGHBORS_EACH: usize = 128;
/// How soon memory is reclaimed where nothing else is to be done.
const RECLAIM_EVERY: Duration = Duration::from_millis(5);

/// Counters of which at least one changes whenever a table may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PublishedMarks {
    paths: u32,
    exceptions: (u32, u32),
    changes: u64,
    dhcp_asks: bool,
}

impl PublishedMarks {
    fn of(stack: &Stack) -> Self {
        Self {
            paths: stack.sockets.path_cache.generation(),
            exceptions: (stack.v4.exceptions.revision(), stack.v6.exceptions.revision()),
            changes: stack.stats.counters.of(Counter::FloodwallChanges),
            dhcp_asks: stack.control.dhcp.asks(),
        }
    }

    /// The same, of what is copied beside the interfaces.
    fn tables(self) -> Self {
        Self { paths: 0, changes: 0, ..self }
    }
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

    /// When [`Stack::publish`] has something to do at the latest.
    pub(crate) fn deadline(&self, stack: &Stack) -> Option<Instant> {
        if self.neighbors_withheld && !self.waits() {
            return Some(Instant::ORIGIN);
        }
        if stack.has_decided() {
            return Some(self.next_look);
        }
        let looks = (self.marks != Some(PublishedMarks::of(stack))).then_some(self.next_look);
        looks.into_iter().chain(self.next_reclaim).min()
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

    /// Shows interfaces, routes and exceptions, where they are others now.
    fn show(&mut self, stack: &Stack, now: Instant) {
        let marks = PublishedMarks::of(stack);
        if self.marks == Some(marks) || now < self.next_look {
            return;
        }
        self.next_look = now + limits::SNAPSHOT_EVERY;
        if self.interfaces != stack.interfaces {
            copy_interfaces(&mut self.interfaces, &stack.interfaces);
            self.interfaces_revision += 1;
        } else if self.marks.is_some_and(|before| before.tables() == marks.tables())
            && !self.withheld
        {
            self.marks = Some(marks);
            return;
        }
        self.withheld = !self.replace(stack, now);
        if !self.withheld {
            self.marks = Some(marks);
        }
    }

    /// False where too many snapshots wait for readers.
    fn replace(&mut self, stack: &Stack, now: Instant) -> bool {
        let Some(mut next) = self.spare.pop() else {
            self.snapshot_refused += 1;
            return false;
        };
        next.take_from(stack, self.interfaces_revision);
        next.generation = self.generation + 1;
        match self.published.snapshot.replace(next, self.bytes, &mut self.limbo, now) {
            Ok(()) => {
                self.generation += 1;
                true
            }
            Err((next, _)) => {
                self.spare.push(next);
                self.snapshot_refused += 1;
                false
            }
        }
    }

    /// Publishes the status words to followers, where they have changed.
    fn say(&mut self, routes: u64) {
        let mut words = [0; STATUS_WORDS];
        words[GENERATION] = self.generation;
        words[WITHHELD] = u64::from(self.withheld || self.routes_withheld) * SNAPSHOT_WITHHELD
            + u64::from(self.neighbors_withheld) * NEIGHBORS_WITHHELD;
        words[NEIGHBORS] = self.v4.published + self.v6.published;
        words[ROUTES] = routes;
        if words != self.said {
            self.said = words;
            self.status.publish(&words);
        }
    }
}

impl Stack {
    /// Takes the place of the control shard: everything is to be published.
    pub(crate) fn lead(&mut self) {
        if let Role::Control(control) = &mut self.shard.role {
            control.v4.follow(&mut self.v4.neighbors);
            control.v6.follow(&mut self.v6.neighbors);
        }
    }

    /// Publishes what has changed; nothing where this is no control shard. Bounded: a look at a
    /// handful of words, [`NEIGHBORS_EACH`] neighbours of each family, and once in a while a copy
    /// of the tables.
    pub(crate) fn publish(&mut self, cx: &mut RoundContext<'_>) {
        let now = cx.now;
        if self.is_follower() {
            return;
        }
        let routes_shown = self.publish_routes(now);
        let Role::Control(mut control) = mem::replace(&mut self.shard.role, Role::Alone) else {
            return;
        };
        control.reclaim(now);
        let ControlShard { published, v4, v6, neighbors_withheld, .. } = &mut *control;
        let v4 = v4.publish(&published.v4, self.v4.neighbors.unmarked(), NEIGHBORS_EACH, now);
        let v6 = v6.publish(&published.v6, self.v6.neighbors.unmarked(), NEIGHBORS_EACH, now);
        *neighbors_withheld = !(v4 && v6);
        control.show(self, now);
        control.routes_withheld = !routes_shown;
        let (v4, v6) = (&self.v4.routes, &self.v6.routes);
        let routes = u64::from(v4.generation()) + u64::from(v6.generation());
        let waits = control.waits() || v4.waits() || v6.waits();
        control.next_reclaim = waits.then(|| now + RECLAIM_EVERY);
        control.say(routes);
        self.shard.role = Role::Control(control);
        self.spread_commands(cx);
    }

    /// What the control shard has published, for its counters.
    pub(crate) fn count_published(&self, counters: &mut floodwall_base::Counters) {
        let Role::Control(control) = &self.shard.role else { return };
        let neighbors = control.v4.published + control.v6.published;
        let refused = control.v4.refused + control.v6.refused;
        for (counter, n) in [
            (Counter::FloodwallSnapshots, control.generation),
            (Counter::FloodwallSnapshotsRefused, control.snapshot_refused),
            (Counter::FloodwallNeighborsPublished, neighbors),
            (Counter::FloodwallNeighborsRefused, refused),
        ] {
            counters.set(counter, n);
        }
    }
}
