//! `Seat`: a stack's place among the shards of its host, given once for each stack.
//!
//! Made here for all shards at once, handed out by `shard_places.rs`, used up where a stack is made
//! (`build.rs`).

use std::sync::Arc;

use floodwall_base::{SecretRandom, Steering, WorkerId, limits};
use floodwall_sync::RcuCell;
use floodwall_sync::qsbr::Domain;
use floodwall_sync::{snapshot as latch, spsc};

use super::control::ControlShard;
use super::follower::Follower;
use super::neighbor_sets::NeighborSets;
use super::notes::PeerNotes;
use super::published::{PublishedTables, STATUS_WORDS};
use super::role::Role;
use super::shard_places::ShardPlace;
use super::snapshot::TableSnapshot;
use crate::config::StackConfig;
use crate::ip::fib_pair::FibPair;
use crate::stats::Stats;
use floodwall_remote::RemoteShard;

/// A stack's place among the shards of its host: given by [`Seats::take`](super::Seats::take), used
/// up by [`crate::Stack::seated`].
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

    pub(super) fn first(worker: WorkerId, steering: Steering, role: Role) -> Self {
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
/// one: see [`Seats`](super::Seats), which has places that are taken again after a panic.
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
pub(super) fn first_seats(
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
