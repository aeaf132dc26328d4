//! `Seats`: the places of a host's shards, which outlive the stacks that sit in them.
//!
//! Called by the code that makes the workers' stacks, at the start and again after a panic
//! (decision D19). A follower's place keeps what only one stack at a time may have: its end of the
//! log of socket commands, the state that it shares with programs on other threads, and its
//! counters. A stack gives it back when it is dropped; the next one reads what the control shard
//! has published, opens the programs' sockets again, and continues the counters.
//!
//! Invariants: one stack per place at a time; packets that a panicked shard held are in its
//! accounting under `ShardPanicked`, so that it balances before the next stack receives a packet;
//! the control shard's place is taken once: what a host has learned and decided is there alone and
//! is lost with it.

mod leave;

use std::sync::Arc;

use floodwall_base::{DropReason, SecretRandom, Steering, WorkerId};
use floodwall_sync::lock::{Mutex, MutexGuard, PoisonError};
use floodwall_sync::qsbr::Domain;
use thiserror::Error;

use super::follower::Follower;
use super::role::Role;
use super::seat::{Seat, first_seats};
use crate::config::StackConfig;
use crate::stats::Stats;
use floodwall_remote::RemoteShard;
use floodwall_remote::worker::ShardKeeper;

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoSeat {
    /// No worker of that number.
    #[error("the host has no worker {}", .0.0)]
    Unknown(WorkerId),
    /// A stack sits there, or it was dropped in no state to leave its place to another.
    #[error("the place of worker {} is taken", .0.0)]
    Taken(WorkerId),
    /// The control shard's, among several, is taken once.
    #[error(
        "the control shard cannot begin again beside the others: neighbours, leases, routers and \
         the order of socket commands is lost with it; restart the process"
    )]
    Control,
}

/// What the last stack of a place has left.
#[derive(Default)]
struct LeftState {
    /// Before the first stack: its seat.
    first: Option<Seat>,
    follower: Option<Box<Follower>>,
    remote: Option<Box<RemoteShard>>,
    stats: Option<Stats>,
}

/// One shard's place.
pub(crate) struct ShardPlace {
    worker: WorkerId,
    steering: Steering,
    /// Touched when a stack is made, and when one is dropped.
    left: Mutex<LeftState>,
}

impl ShardPlace {
    fn left(&self) -> MutexGuard<'_, LeftState> {
        // What is kept is whole after each step.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardKeeper for ShardPlace {
    fn keep(&self, remote: Box<RemoteShard>) {
        self.left().remote = Some(remote);
    }
}

/// The places of all shards of one host. Clones are the same.
#[derive(Clone)]
pub struct Seats {
    places: Arc<[Arc<ShardPlace>]>,
}

impl Seats {
    /// The places of a host's shards: as many as `steering` has. The stacks must be made of one
    /// configuration. `domain` is the host's, with a reader for each worker. Allocates everything
    /// that will ever be published.
    #[must_use]
    pub fn new(
        config: &StackConfig,
        domain: &Domain,
        steering: Steering,
        random: &mut SecretRandom,
    ) -> Self {
        let place = |seat: Seat| {
            let (worker, steering) = (seat.worker, seat.steering);
            let left = LeftState { first: Some(seat), ..LeftState::default() };
            Arc::new(ShardPlace { worker, steering, left: Mutex::new(left) })
        };
        let seats = first_seats(config, domain, steering, random);
        Self { places: seats.into_iter().map(place).collect() }
    }

    /// The place of a worker's next stack: of its first, or of one after a panic, when the last one
    /// has been dropped.
    ///
    /// # Errors
    /// See [`NoSeat`]; the words are for an operator.
    pub fn take(&self, worker: WorkerId) -> Result<Seat, NoSeat> {
        let place = self.places.get(usize::from(worker.0)).ok_or(NoSeat::Unknown(worker))?;
        let mut left = place.left();
        let mut seat = match left.first.take() {
            Some(first) => first,
            None => place.again(&mut left)?,
        };
        seat.place = Some(Arc::clone(place));
        Ok(seat)
    }
}

impl core::fmt::Debug for Seats {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Seats").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl ShardPlace {
    fn again(&self, left: &mut LeftState) -> Result<Seat, NoSeat> {
        let (worker, steering) = (self.worker, self.steering);
        let taken = NoSeat::Taken(worker);
        let role = match (steering.workers(), worker) {
            // Programs' state with the last stack was ended already.
            (1, _) => Role::Alone,
            (_, WorkerId::CONTROL) => return Err(NoSeat::Control),
            _ => Role::Follower(left.follower.take().ok_or(taken)?),
        };
        let mut inherited = left.stats.take().ok_or(taken)?;
        let mut remote = left.remote.take();
        if let Some(remote) = &mut remote {
            let unsent = remote.begin_again();
            inherited.outcomes.originated += unsent;
            inherited.drops_out.add(DropReason::ShardPanicked, unsent);
        }
        Ok(Seat { worker, steering, role, inherited, remote, place: None, fibs: None })
    }
}
