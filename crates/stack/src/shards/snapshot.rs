//! `TableSnapshot`: the interfaces and exceptions that the control shard publishes, and how
//! followers copy them.
//!
//! Filled by `control.rs`, copied by `follower.rs`. Each part carries a revision, so that both copy
//! only what has changed; memory is reused, so that neither allocates. Followers copy instead of
//! reading in place: every packet reads these tables, several times, and they rarely change; so
//! each core has its own cache lines of them.

mod copy;

use core::mem;
use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{HashKey, limits};
use floodwall_fib::exceptions::Exceptions;
use floodwall_ip::Interface;

/// One published state of interfaces, path exceptions and DHCP clients.
pub(crate) struct TableSnapshot {
    /// Grows with each snapshot; 0 is the empty one that is there before the first.
    pub(super) generation: u64,
    pub(super) interfaces_revision: u64,
    pub(super) interfaces: Vec<Interface>,
    pub(super) exceptions_v4: Exceptions<Ipv4Addr>,
    pub(super) exceptions_v6: Exceptions<Ipv6Addr>,
    /// Whether a DHCP client waits for an answer.
    pub(super) dhcp_asks: bool,
}

impl TableSnapshot {
    /// One with memory for all that it may ever hold.
    pub(super) fn empty() -> Self {
        let key = HashKey::new(0, 0);
        Self {
            generation: 0,
            interfaces_revision: 0,
            interfaces: Vec::new(),
            exceptions_v4: Exceptions::new(key),
            exceptions_v6: Exceptions::new(key),
            dhcp_asks: false,
        }
    }

    /// About how many bytes one holds.
    pub(super) const fn bytes(interfaces: usize) -> usize {
        const ADDRESS: usize = 64;
        const GROUP: usize = 24;
        let each = mem::size_of::<Interface>()
            + 2 * limits::ADDRESSES_MAX * ADDRESS
            + limits::INTERFACE_GROUPS_MAX * GROUP;
        let exceptions = Exceptions::<Ipv4Addr>::bytes() + Exceptions::<Ipv6Addr>::bytes();
        mem::size_of::<Self>() + interfaces * each + exceptions
    }
}

/// Allocates where there are more than before: with the first copy only.
pub(super) fn copy_interfaces(to: &mut Vec<Interface>, from: &[Interface]) {
    to.truncate(from.len());
    for (to, from) in to.iter_mut().zip(from) {
        if to != from {
            to.copy_from(from);
        }
    }
    to.extend_from_slice(from.get(to.len()..).unwrap_or_default());
}

fn copy_exceptions<A: floodwall_base::Address>(to: &mut Exceptions<A>, from: &Exceptions<A>) {
    if to.revision() != from.revision() {
        to.copy_from(from);
    }
}
