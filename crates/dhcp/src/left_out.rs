//! `LeftOut`: what of a server's message is not in the lease, and why, in words.
//!
//! Made by `lease.rs`, printed by the program. Invariant: [`LeftOutList`] counts all, and keeps the
//! first few.

use core::fmt;
use core::net::Ipv4Addr;

use floodwall_base::limits::DHCP_LEFT_OUT_MAX;

use crate::array_vec::ArrayVec;
use crate::lease::LeaseRoute;

/// Why a route is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RouteFault {
    /// No host can be there, or it would put the world on the link.
    Destination,
    /// No router can have the address.
    Gateway,
    /// The router is on no prefix of the lease.
    OffLink,
    /// The lease has as many as one may have.
    TooMany,
}

/// One thing that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeftOut {
    /// A route.
    Route(LeaseRoute, RouteFault),
    /// A list of classless routes, the option of this number, that cannot be read.
    Routes(u8),
    /// The routers (option 3): the classless routes of the option of this number replace them (RFC
    /// 3442), and no default route is among these.
    Routers(u8),
    /// A name server that cannot be one, or is one too many.
    Dns(Ipv4Addr),
    /// So many domains of the search list.
    Domains(u32),
    /// An MTU below the least of IPv4.
    Mtu(u16),
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(LeaseRoute { prefix, gateway }, fault) => {
                match gateway {
                    Some(gateway) if prefix.len() == 0 => write!(f, "the router {gateway}")?,
                    Some(gateway) => write!(f, "the route to {prefix} via {gateway}")?,
                    None => write!(f, "the route to {prefix} on the link")?,
                }
                f.write_str(match fault {
                    RouteFault::Destination => ": no such destination can be there",
                    RouteFault::Gateway => ": no router can have that address",
                    RouteFault::OffLink => ": it is on no prefix of the lease",
                    RouteFault::TooMany => ": the lease has too many routes",
                })
            }
            Self::Routes(code) => write!(f, "option {code}: the list of routes cannot be read"),
            Self::Routers(code) => {
                let why = "replaces it (RFC 3442) and has no default route";
                write!(f, "option 3, the routers: option {code} {why}")
            }
            Self::Dns(server) => write!(f, "the name server {server}: unusable, or one too many"),
            Self::Domains(count) => write!(f, "{count} domains: unreadable, or too many"),
            Self::Mtu(mtu) => write!(f, "the MTU {mtu}: IPv4 needs more"),
        }
    }
}

/// What a message had that is not in its lease: all counted, the first few in detail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOutList {
    count: u32,
    first: ArrayVec<LeftOut, DHCP_LEFT_OUT_MAX>,
}

impl LeftOutList {
    pub(crate) fn push(&mut self, what: LeftOut) {
        self.push_many(what, 1);
    }

    pub(crate) fn push_many(&mut self, what: LeftOut, count: u32) {
        self.count = self.count.saturating_add(count);
        // What does not fit is counted.
        let _ = self.first.push(what);
    }

    /// How many there were.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The first of them.
    pub fn iter(&self) -> impl Iterator<Item = LeftOut> + '_ {
        self.first.iter()
    }
}
