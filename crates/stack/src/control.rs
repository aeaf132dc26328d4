//! What configures the host while it runs: addresses and their detection, DHCP, routers and their
//! advertisements, groups.
//!
//! All of it is timed work of the control shard, off the packet path.

pub(crate) mod addresses;
pub(crate) mod advertise;
pub(crate) mod dhcp;
pub(crate) mod dhcpv6;
pub(crate) mod group_gateways;
pub(crate) mod host_view;
pub(crate) mod multicast;
pub(crate) mod router;
