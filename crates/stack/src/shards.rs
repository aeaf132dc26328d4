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
//! interfaces and routes. Bounds: snapshots are replaced once in `SNAPSHOT_EVERY` at most, and
//! `SNAPSHOTS_WAITING` wait for readers; of the neighbours `NEIGHBOR_SETS_WAITING` sets of each
//! family wait. When full nothing is published, the status word signals this to followers, and the
//! control shard resolves and sends for them: honest traffic of other shards takes that path until
//! readers have paused. Worst work per packet of a follower: one keyed hash and eight comparisons.
//! Counters: `FloodwallSnapshotsRefused`, `FloodwallNeighborsRefused`.

mod commands;
mod control;
mod follower;
mod handover;
mod neighbor_sets;
mod notes;
mod published;
mod role;
mod seat;
mod shard_places;
mod snapshot;

pub(crate) use self::follower::FollowerView;
pub(crate) use self::role::Role;
pub use self::seat::{Seat, seats};
pub(crate) use self::shard_places::ShardPlace;
pub use self::shard_places::{NoSeat, Seats};
