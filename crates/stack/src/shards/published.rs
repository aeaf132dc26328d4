//! `PublishedTables`: what all shards of a host read, and the words of the status beside it.
//!
//! Written by the control shard (`control/publish.rs`), read by followers (`follower.rs`).

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_sync::RcuCell;

use super::neighbor_sets::NeighborSets;
use super::snapshot::TableSnapshot;

/// Words of the status that followers read once a round.
pub(super) const STATUS_WORDS: usize = 4;

/// Which snapshot is out.
pub(super) const GENERATION_WORD: usize = 0;

/// What followers must leave to the control shard.
pub(super) const WITHHELD_WORD: usize = 1;

/// Changes with every neighbour that is published.
pub(super) const NEIGHBORS_WORD: usize = 2;

/// Changes with every change of a route.
pub(super) const ROUTES_WORD: usize = 3;

/// Bit of [`WITHHELD_WORD`]: interfaces, routes or exceptions have changed and could not be
/// published.
pub(super) const SNAPSHOT_WITHHELD: u64 = 1;

/// Bit of [`WITHHELD_WORD`]: neighbours have.
pub(super) const NEIGHBORS_WITHHELD: u64 = 2;

/// What all shards of a host read.
pub(crate) struct PublishedTables {
    pub(super) snapshot: RcuCell<TableSnapshot>,
    pub(super) v4: NeighborSets<Ipv4Addr>,
    pub(super) v6: NeighborSets<Ipv6Addr>,
}
