//! `GroupGateways`: the gateways of ECMP groups, and which of them are silent; and where all
//! gateways are to be kept fresh, those of other routes.
//!
//! Made once with the stack (`build.rs`); used by `group_gateways.rs`, where its bound is
//! described.

use core::net::IpAddr;

use floodwall_base::limits::GROUP_GATEWAYS_MAX;
use floodwall_base::{IfIndex, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupGateway {
    pub(super) iface: IfIndex,
    pub(super) addr: IpAddr,
    /// It is a group's: else it is only resolved.
    pub(super) in_group: bool,
    /// The groups pass it over.
    pub(super) silent: bool,
    /// Ticks since it was probed.
    pub(super) ticks: u8,
}

/// The gateways of all groups.
#[derive(Debug)]
pub(crate) struct GroupGateways {
    pub(super) list: Vec<GroupGateway>,
    /// Which is next.
    pub(super) at: usize,
    pub(super) next: Option<Instant>,
    /// Whether all that were looked at since then are fresh, and no group's.
    pub(super) calm: bool,
    /// Revisions of the routing tables that the list is of.
    pub(super) of: (u32, u32),
    /// Whether gateways of other routes are in the list.
    pub(super) keeps_all: bool,
}

impl GroupGateways {
    /// Allocates room for all.
    pub(crate) fn new(keeps_all: bool) -> Self {
        let list = Vec::with_capacity(2 * GROUP_GATEWAYS_MAX);
        Self { list, at: 0, next: None, calm: true, of: (0, 0), keeps_all }
    }
}
