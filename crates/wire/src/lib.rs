//! Checked views and builders for network headers; never allocates.
//!
//! Bytes become types once, here: a header view such as [`Ipv6Header`] can only be made by its
//! `parse`, which checks every length that a peer controls, and from then on its getters check
//! nothing. The other way, plain values such as [`Ipv6Fields`] write themselves into buffers. One
//! file is one header; `show` prints any bytes for humans.
//!
//! Called by every engine, device and test of the workspace. Invariants: nothing here panics, loops
//! without a bound, allocates or keeps state between packets; IPv4 and IPv6 are treated alike.
//! `packet_len` arguments exist because a packet may lie in several chunks: a view needs its header
//! contiguous and the *length* of the rest.
//!
//! Start reading with `ipv6.rs`; the longest walk is in `ipv6_walk.rs`.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

pub mod arp;
pub mod dhcpv4;
pub mod dhcpv6;
pub mod ethernet;
mod field;
pub mod group;
pub mod icmp_report;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv4_options;
pub mod ipv6;
pub mod ipv6_ext;
pub mod ipv6_options;
pub mod ipv6_walk;
pub mod mld;
pub mod ndp;
mod ndp_options;
pub mod protocol;
pub mod show;
pub mod steer;
pub mod tcp;
pub mod tcp_options;
pub mod traffic_class;
pub mod udp;
pub mod validate;

pub use arp::{ArpError, ArpOperation, ArpPacket};
pub use dhcpv4::{Dhcpv4Error, Dhcpv4Fields, Dhcpv4Message, Dhcpv4Type};
pub use dhcpv6::{
    Dhcpv6Error, Dhcpv6Message, Dhcpv6Options, Dhcpv6Status, Dhcpv6Type, Dhcpv6Writer,
};
pub use ethernet::{EtherType, EthernetError, EthernetFields, EthernetHeader, VlanTag};
pub use field::BufferTooShort;
pub use group::{Generation, GroupMessage, GroupMessageError, GroupProtocol, QueryFields};
pub use icmp_report::IcmpReport;
pub use icmpv4::{Icmpv4Error, Icmpv4Header, Icmpv4Message, Icmpv4Type};
pub use icmpv6::{Icmpv6Error, Icmpv6Header, Icmpv6Message, Icmpv6Type};
pub use igmp::IgmpType;
pub use ipv4::{Ipv4Error, Ipv4Fields, Ipv4Header};
pub use ipv6::{Ipv6Error, Ipv6Fields, Ipv6Header};
pub use ipv6_ext::ExtensionHeader;
pub use ipv6_walk::{ExtensionError, ExtensionLimits, ExtensionWalk, Owed, Step, WalkEnd, Want};
pub use ndp::{
    NdpError, NdpOption, NdpOptions, NeighborAdvertisement, NeighborSolicitation, Redirect,
    RouterAdvertisement, RouterSolicitation,
};
pub use protocol::IpProtocol;
pub use tcp::{TcpError, TcpFields, TcpFlags, TcpHeader};
pub use traffic_class::{Dscp, Ecn};
pub use udp::{UdpError, UdpFields, UdpHeader};
pub use validate::{FrameError, Validated, validate};
