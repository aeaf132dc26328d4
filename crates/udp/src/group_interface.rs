//! `GroupInterface`: how a program names the interface on which it joins a group.
//!
//! Resolved by the stack, which has the interfaces. Plain data.

use core::net::Ipv4Addr;

use floodwall_base::IfIndex;

/// How a program specifies the interface on which it joins a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupInterface {
    /// The outgoing interface of the route to the group, else the first that is up.
    Any,
    /// The one that has this address.
    Address(Ipv4Addr),
    /// This one.
    Index(IfIndex),
}
