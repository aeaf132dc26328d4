//! `MulticastGroups`: the groups that this host is a member of, by interface.
//!
//! Made once with the stack (`build.rs`); used by `multicast.rs` and its children.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{IfIndex, Instant};
use floodwall_ip::GroupProtocolState;

/// Memberships of all interfaces.
#[derive(Debug)]
pub(crate) struct MulticastGroups {
    pub(super) links: Vec<GroupLink>,
    /// When a report is due: never later than the engines' own deadlines.
    pub(super) next: Option<Instant>,
    /// Sockets' memberships with a source filter.
    pub(super) filtered: usize,
}

/// Memberships of one interface.
#[derive(Debug)]
pub(crate) struct GroupLink {
    pub(super) v4: GroupProtocolState<Ipv4Addr>,
    pub(super) v6: GroupProtocolState<Ipv6Addr>,
    pub(super) up: bool,
    /// Whether it had a link-local address to report from.
    pub(super) has_source: bool,
}

impl MulticastGroups {
    /// Allocates memory for so many interfaces.
    pub(crate) fn new(interfaces: usize) -> Self {
        let link = || GroupLink {
            v4: GroupProtocolState::new(),
            v6: GroupProtocolState::new(),
            up: false,
            has_source: false,
        };
        Self { links: (0..interfaces).map(|_| link()).collect(), next: None, filtered: 0 }
    }

    pub(super) fn link_mut(&mut self, iface: IfIndex) -> Option<&mut GroupLink> {
        self.links.get_mut(usize::from(iface.0))
    }

    /// When `Stack::group_timers` must be called at the latest.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Updates the deadline after a change that may move it.
    pub(super) fn plan(&mut self) {
        let due = |l: &GroupLink| [l.v4.deadline(), l.v6.deadline()];
        self.next = self.links.iter().flat_map(due).flatten().min();
    }
}
