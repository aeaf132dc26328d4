//! What router discovery requests of its caller, as plain values in a list of fixed size.
//!
//! Filled by `router_discovery.rs` and its parts, emptied by `stack` after each message and each
//! unit of timed work. Invariant: the list never grows beyond what it was given at construction,
//! which holds all that one message or one expiry can cause.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::limits::{
    ADVERTISED_ROUTES_MAX, AUTOCONF_ADDRESSES_MAX, NDP_OPTIONS_MAX, PREFIXES_MAX, ROUTERS_MAX,
};
use floodwall_base::{Instant, Prefix};

/// What one message can cause: two for each option, a displaced router's routes, and every
/// router's new rank. Forgetting a whole link causes less.
const ACTIONS_MAX: usize = 2 * NDP_OPTIONS_MAX + ADVERTISED_ROUTES_MAX + 2 * ROUTERS_MAX + 4;
const _: () = assert!(
    ACTIONS_MAX >= ADVERTISED_ROUTES_MAX + ROUTERS_MAX + PREFIXES_MAX + AUTOCONF_ADDRESSES_MAX + 4
);

/// One thing to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouterAction {
    /// Add this route, in place of the one that was learned for the same prefix and gateway.
    SetRoute {
        /// What it is for.
        prefix: Prefix<Ipv6Addr>,
        /// The router; `None` where the prefix is on the link.
        gateway: Option<Ipv6Addr>,
        /// The lower, the better.
        metric: u32,
        /// When it ceases to exist; [`Instant::FAR`] for never.
        until: Instant,
    },
    /// Remove the learned route for this prefix and gateway.
    RemoveRoute {
        /// What it was for.
        prefix: Prefix<Ipv6Addr>,
        /// The router.
        gateway: Option<Ipv6Addr>,
    },
    /// Have this address, probed before its use where it is new; else prolong or shorten it.
    SetAddress {
        /// The address.
        addr: Ipv6Addr,
        /// The length of the prefix that it is from.
        prefix_len: u8,
        /// When it becomes deprecated; [`Instant::FAR`] for never.
        preferred_until: Instant,
        /// When it ceases to be ours; [`Instant::FAR`] for never.
        valid_until: Instant,
    },
    /// Have this address no longer.
    RemoveAddress(Ipv6Addr),
    /// Treat the link so.
    SetLink(LinkParameters),
    /// The DNS servers or the search list are others.
    DnsChanged,
    /// Send a router solicitation.
    Solicit,
    /// Probe the reachability of this router (RFC 4191 section 3.5).
    Probe(Ipv6Addr),
}

/// What routers advertise of the link; `None`: as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkParameters {
    /// The hop limit of what we send.
    pub hop_limit: Option<u8>,
    /// The largest IPv6 packet in bytes.
    pub mtu: Option<u32>,
    /// How long a sign of life of a neighbour counts.
    pub reachable_time: Option<Duration>,
    /// The interval between two solicitations of a neighbour.
    pub retrans_timer: Option<Duration>,
}

/// The list of actions of one call.
#[derive(Debug)]
pub struct RouterActions(Vec<RouterAction>);

impl Default for RouterActions {
    fn default() -> Self {
        Self(Vec::with_capacity(ACTIONS_MAX))
    }
}

impl RouterActions {
    /// An empty list. Takes all the memory that it will ever need, about 16 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn push(&mut self, action: RouterAction) {
        debug_assert!(self.0.len() < ACTIONS_MAX, "one message causes more than was thought");
        if self.0.len() < ACTIONS_MAX {
            self.0.push(action);
        }
    }

    /// Reports that the DNS configuration changed, once for any number of changes.
    pub(super) fn dns_changed(&mut self) {
        if self.0.last() != Some(&RouterAction::DnsChanged) {
            self.push(RouterAction::DnsChanged);
        }
    }

    /// What is to be done.
    #[must_use]
    pub fn as_slice(&self) -> &[RouterAction] {
        &self.0
    }

    /// Takes the first `n`th action; `None` behind the last.
    #[must_use]
    pub fn at(&self, n: usize) -> Option<RouterAction> {
        self.0.get(n).copied()
    }

    /// Clears the list, keeping the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
