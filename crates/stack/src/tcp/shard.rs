//! `TcpShard`: what one shard has for its TCP connections.
//!
//! Made once with the stack (`build.rs`); used by `tcp.rs` and its children. Absent where the
//! configuration allows no connections.

use floodwall_ip::icmp_limit::IcmpLimit;
use floodwall_tcp::ConnectionTable;

use super::admitted_ends::AdmittedEnds;

/// The TCP of one shard.
pub(crate) struct TcpShard {
    pub(crate) set: ConnectionTable,
    /// Rate limit of resets that belong to no connection.
    pub(crate) resets: IcmpLimit,
    /// The ends between which segments were admitted lately.
    pub(super) admitted: AdmittedEnds,
    /// The next application's number.
    owners: u32,
}

impl TcpShard {
    pub(crate) const fn new(set: ConnectionTable, resets: IcmpLimit) -> Self {
        Self { set, resets, admitted: AdmittedEnds::NONE, owners: 0 }
    }

    /// A number under which an application's events are kept apart from the others'.
    pub(crate) fn next_owner(&mut self) -> u32 {
        let owner = self.owners;
        self.owners = (owner + 1) % floodwall_tcp::OWNERS_MAX as u32;
        owner
    }
}
