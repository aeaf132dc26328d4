//! The shards of one host: what one of them publishes, what they hand over, what all repeat.
//!
//! A host with N workers is N stacks. Shard 0 is the *control shard*: it alone learns (ARP,
//! neighbour discovery, router advertisements, exceptions, DHCP, groups, address detection) and
//! runs the timers of interfaces. The others, its *followers*, never write what all share:
//!
//! ```text
//!                 published under one reclamation domain
//!   control ───── interfaces, exceptions (snapshot.rs) ───────────► followers: a copy of each part
//!      │  ├────── routes (fib::FibReader) ─────────────────────────► followers: read in place
//!      │  └────── neighbours (neighbor_sets.rs) ──────────────────► followers: read in place
//!      │  ◄────── handed over: packets without a neighbour, ──────── followers
//!      │          control frames, wholes for another owner (handover.rs)
//!      └───────── repeated in one order: socket commands (commands.rs) ► followers
//!   any  ◄────── noted: established peers of a socket (notes.rs) ────────► any other
//! ```
//!
//! Made by [`Seats`], a place for each shard, before the workers' threads start; a follower that
//! panics is followed by another stack in the same place (`shard_places.rs`). Invariants: a
//! follower decides nothing by tables older than the last round in which its status word changed;
//! what the control shard cannot publish for lack of memory it withholds, and then followers hand
//! it the packets that they would have decided on themselves; every packet handed over is counted
//! on both ends ([`crate::Stats::conservation`]). Reading: decisions D14 to D17;
//! `floodwall_sync::qsbr`. Not here: moving packets between workers (`dispatch`, `world`), the
//! choice of a frame's worker (`wire::steer`).
//!
//! # Under flood
//! Reachable from any host on a link: the control shard publishes a neighbour for each host that
//! makes us resolve it or that solicits us, and, where router advertisements are accepted,
//! interfaces and routes. Bounds: snapshots are replaced once in [`limits::SNAPSHOT_EVERY`] at
//! most, and [`limits::SNAPSHOTS_WAITING`] wait for readers; of the neighbours
//! [`limits::NEIGHBOR_SETS_WAITING`] sets of each family wait. When full nothing is published, the
//! status word signals this to followers, and the control shard resolves and sends for them: honest
//! traffic of other shards takes that path until readers have paused. Worst work per packet of a
//! follower: one keyed hash and eight comparisons. Counters: `FloodwallSnapshotsRefused`,
//! `FloodwallNeighborsRefused`.

mod commands;
mod control;
mod follower;
mod handover;
mod neighbor_sets;
mod notes;
mod shard_places;
mod snapshot;

use std::sync::Arc;

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{SecretRandom, Steering, WorkerId, limits};
use floodwall_sync::RcuCell;
use floodwall_sync::qsbr::Domain;
use floodwall_sync::{snapshot as latch, spsc};

pub(crate) use self::control::ControlShard;
pub(crate) use self::follower::{Follower, FollowerView};
use self::neighbor_sets::NeighborSets;
use self::notes::PeerNotes;
pub(crate) use self::shard_places::ShardPlace;
pub use self::shard_places::{NoSeat, Seats};
use self::snapshot::TableSnapshot;
use crate::config::StackConfig;
use crate::ip::fib_pair::FibPair;
use crate::remote::RemoteShard;
use crate::stats::Stats;

/// Words of the status that followers read once a round.
const STATUS_WORDS: usize = 4;
/// Which snapshot is out.
const GENERATION: usize = 0;
/// What followers must leave to the control shard.
const WITHHELD: usize = 1;
/// Changes with every neighbour that is published.
const NEIGHBORS: usize = 2;
/// Changes with every change of a route.
const ROUTES: usize = 3;
/// Bit of [`WITHHELD`]: interfaces, routes or exceptions have changed and could not be published.
const SNAPSHOT_WITHHELD: u64 = 1;
/// Bit of [`WITHHELD`]: neighbours have.
const NEIGHBORS_WITHHELD: u64 = 2;

/// What all shards of a host read.
pub(crate) struct PublishedTables {
    snapshot: RcuCell<TableSnapshot>,
    v4: NeighborSets<Ipv4Addr>,
    v6: NeighborSets<Ipv6Addr>,
}

/// What a stack is among the workers of its host.
pub(crate) enum Role {
    /// The only one.
    Alone,
    /// The one that learns.
    Control(Box<ControlShard>),
    /// One of the others.
    Follower(Box<Follower>),
}

/// A stack's place among the shards of its host: given by [`Seats::take`], used up by
/// [`crate::Stack::seated`].
pub struct Seat {
    pub(crate) worker: WorkerId,
    pub(crate) steering: Steering,
    pub(crate) role: Role,
    /// What was counted in this place before.
    pub(crate) inherited: Stats,
    /// What programs have with the shard since before.
    pub(crate) remote: Option<Box<RemoteShard>>,
    /// Where the stack leaves what its next one needs.
    pub(crate) place: Option<Arc<ShardPlace>>,
    /// The routing tables that the control shard is to have.
    pub(crate) fibs: Option<Box<FibPair>>,
}

impl Seat {
    /// The place of a host's only worker.
    #[must_use]
    pub fn alone(steering: Steering) -> Self {
        Self::first(WorkerId::CONTROL, steering, Role::Alone)
    }

    fn first(worker: WorkerId, steering: Steering, role: Role) -> Self {
        Self {
            worker,
            steering,
            role,
            inherited: Stats::default(),
            remote: None,
            place: None,
            fibs: None,
        }
    }

    /// The worker that this place belongs to.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }
}

impl core::fmt::Debug for Seat {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Seat").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// The places of all shards of one host, in order of their workers, each for one stack and no next
/// one: see [`Seats`], which has places that are taken again after a panic.
#[must_use]
pub fn seats(
    config: &StackConfig,
    domain: &Domain,
    steering: Steering,
    random: &mut SecretRandom,
) -> Vec<Seat> {
    first_seats(config, domain, steering, random)
}

/// The seats of the first stacks.
fn first_seats(
    config: &StackConfig,
    domain: &Domain,
    steering: Steering,
    random: &mut SecretRandom,
) -> Vec<Seat> {
    let mut notes = PeerNotes::among(steering.workers()).into_iter();
    let Some(own) = notes.next().filter(|_| steering.workers() > 1) else {
        return vec![Seat::alone(steering)];
    };
    let interfaces = config.interfaces.len();
    let places = config.neighbors_max.saturating_mul(interfaces);
    let published = Arc::new(PublishedTables {
        snapshot: RcuCell::new(domain, Box::new(TableSnapshot::empty())),
        v4: NeighborSets::new(domain, places, random.hash_key()),
        v6: NeighborSets::new(domain, places, random.hash_key()),
    });
    let (status, reader) = latch::cell([0; STATUS_WORDS]);
    let fibs = Box::new(FibPair::shared(domain, config, random));
    let (mut logs, mut followers) = (Vec::new(), Vec::new());
    for (worker, notes) in (1..).zip(notes) {
        let (log, repeats) = spsc::ring(limits::SOCKET_COMMANDS_WAITING);
        logs.push(log);
        let follower =
            Follower::new(Arc::clone(&published), fibs.readers(), reader.clone(), repeats, notes);
        let role = Role::Follower(Box::new(follower));
        followers.push(Seat::first(WorkerId(worker), steering, role));
    }
    let control = ControlShard::new(domain, published, status, logs, own);
    let role = Role::Control(Box::new(control));
    let first = Seat::first(WorkerId::CONTROL, steering, role);
    let mut all = vec![Seat { fibs: Some(fibs), ..first }];
    all.append(&mut followers);
    all
}
