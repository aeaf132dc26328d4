//! `RouteError`: why a table was not changed, and what to do about it.

use core::fmt;

use floodwall_base::{Address, IfIndex, IpCidr, Prefix};
use thiserror::Error;

use crate::lpm::UpdateError;
use crate::next_hop::NextHopId;
use crate::route::TableId;

/// A prefix of either family, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named(Option<IpCidr>);

impl Named {
    pub(crate) fn of<A: Address>(prefix: Prefix<A>) -> Self {
        Self(IpCidr::new(prefix.addr().to_ip(), prefix.len()))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cidr) if cidr.prefix_len() == 0 => f.write_str("default"),
            Some(cidr) => write!(f, "{}/{}", cidr.addr(), cidr.prefix_len()),
            None => f.write_str("?"),
        }
    }
}

/// Why a change was refused. The table is as it was.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// A route with this prefix and metric exists.
    #[error(
        "a route to {prefix} with metric {metric} exists: replace it, append, or change the metric"
    )]
    Exists {
        /// To where.
        prefix: Named,
        /// Its metric.
        metric: u32,
    },
    /// No route is meant.
    #[error("table {table} has no such route to {prefix}: see the routes that it has")]
    NotFound {
        /// To where.
        prefix: Named,
        /// In which table.
        table: TableId,
    },
    /// The configured routes are as many as there may be.
    #[error("the routing table is full ({0} routes): delete some, or allow more (`routes_max`)")]
    Full(usize),
    /// An interface's learnt routes are as many as there may be.
    #[error("interface {} has learnt {max} routes, as many as it may: no more are taken", iface.0)]
    InterfaceFull {
        /// Of which interface.
        iface: IfIndex,
        /// How many.
        max: usize,
    },
    /// A router's learnt routes are as many as there may be.
    #[error("a router has advertised {0} routes, the maximum: the new one is ignored")]
    RouterFull(usize),
    /// The routes that can expire are as many as there may be.
    #[error(
        "{0} routes have a lifetime, as many as may: let some end, or allow more (`expiring_max`)"
    )]
    ExpiringFull(usize),
    /// One prefix has as many routes as it may.
    #[error("{prefix} has {max} routes, as many as one prefix may: delete some")]
    PrefixFull {
        /// Which.
        prefix: Named,
        /// How many.
        max: usize,
    },
    /// There are as many tables as there may be.
    #[error("there are {0} tables, as many as may be: use one of them (`tables_max`)")]
    TablesFull(usize),
    /// There are as many next hops as there may be.
    #[error(
        "there are {0} next hops, as many as may be: share them, or allow more (`next_hops_max`)"
    )]
    NextHopsFull(usize),
    /// There are as many next-hop groups as there may be.
    #[error("there are {0} groups of next hops, as many as may be: share them (`groups_max`)")]
    GroupsFull(usize),
    /// No such object.
    #[error("there is no next hop {}: add it first", .0.0)]
    NextHopUnknown(NextHopId),
    /// The number is taken.
    #[error("next hop {} exists: replace it, or give another number", .0.0)]
    NextHopExists(NextHopId),
    /// Routes or groups go through it.
    #[error("{users} routes or groups go through next hop {}: delete them first", id.0)]
    NextHopUsed {
        /// Which.
        id: NextHopId,
        /// How many.
        users: u32,
    },
    /// A group makes no sense.
    #[error("a group has 1 to {max} members, each no group and of a weight from 1 to 256")]
    Group {
        /// How many members it may have.
        max: usize,
    },
    /// A kind that leads nowhere with a gateway or a next hop.
    #[error("a route that leads nowhere takes no gateway and no next hop: leave `via` out")]
    NeedsNoGateway,
    /// A lifetime that is over.
    #[error("a lifetime of 0 ends before it begins: delete the route instead")]
    Over,
    /// The interface cannot be.
    #[error("there can be no interface {}: name one that exists", .0.0)]
    Interface(IfIndex),
    /// The look-up structure has no room.
    #[error("the routing table's memory is used up: delete routes, or allow more (`routes_max`)")]
    Memory,
    /// Too much waits for the readers.
    #[error("too many changes wait for the workers to pause: try again later")]
    Pending,
}

impl From<UpdateError> for RouteError {
    fn from(error: UpdateError) -> Self {
        match error {
            UpdateError::Pending => Self::Pending,
            _ => Self::Memory,
        }
    }
}
