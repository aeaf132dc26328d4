//! `NextHop`: the way out that routes share.
//!
//! Plain values: what is given to [`crate::Fib`] and what a look-up finds. Routes that go the same
//! way share one object; an object with a number of its own can be changed under all its routes at
//! once. Reading: RFC 2992 (choice among several), Linux's `nexthop` objects for the words.

use floodwall_base::{Address, IfIndex};

use crate::route::RouteKind;

/// The number of a next-hop object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NextHopId(pub u32);

/// One way out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NextHop<A: Address> {
    /// What is done with the packet.
    pub kind: RouteKind,
    /// The interface that leads there.
    pub iface: IfIndex,
    /// The router; `None` where the destination is on the link itself.
    pub gateway: Option<A>,
    /// The source address that it prefers.
    pub src_addr: Option<A>,
}

/// One member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which next hop: no group.
    pub id: NextHopId,
    /// Its share of the flows, against the other members' (1 to 256).
    pub weight: u16,
}

/// One way of a multipath route, as it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg<A: Address> {
    /// Where it leads.
    pub hop: NextHop<A>,
    /// Its share of the flows (1 to 256).
    pub weight: u16,
}

/// What a look-up finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<A: Address> {
    /// What is done with the packet.
    pub kind: RouteKind,
    /// The interface that leads there.
    pub iface: IfIndex,
    /// The router; `None` where the destination is on the link itself.
    pub gateway: Option<A>,
    /// The source address that the route prefers.
    pub src_addr: Option<A>,
    /// The object it came from: of a group, the member that was chosen.
    pub next_hop: NextHopId,
    /// Whether it is one of several: another flow to the same destination may go another way.
    pub is_choice: bool,
}

impl<A: Address> NextHop<A> {
    /// One that leads nowhere.
    #[must_use]
    pub const fn nowhere(kind: RouteKind) -> Self {
        Self { kind, iface: IfIndex::LOOPBACK, gateway: None, src_addr: None }
    }
}
