//! `OutgoingPacket`: a packet to be sent, without its IP header; `OutputPath`: where it leads.
//!
//! Made by the layers above (`echo.rs`, sockets, `tcp.rs`), sent by `tx.rs`; `path_cache.rs` keeps
//! what is known of their paths. Plain data.

use floodwall_base::{Address, Family, IfIndex};
use floodwall_packet::PacketBuf;
use floodwall_wire::IpProtocol;

use crate::ip::addr_pair::AddrPair;

/// The default traffic class: best effort.
pub(crate) const BEST_EFFORT: u8 = 0;

/// Where a destination leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputPath<A> {
    /// To this host itself.
    Local,
    /// Out of an interface, to a neighbour.
    Via {
        /// Which interface.
        iface: IfIndex,
        /// A router, or the destination itself.
        next_hop: A,
        /// The largest packet in bytes.
        mtu: u32,
    },
}

impl<A> OutputPath<A> {
    /// The same with a known path MTU, which never exceeds its link's.
    pub(crate) fn at_most(self, path_mtu: Option<u32>) -> Self {
        match (self, path_mtu) {
            (Self::Via { iface, next_hop, mtu }, Some(known)) => {
                Self::Via { iface, next_hop, mtu: mtu.min(known) }
            }
            (path, _) => path,
        }
    }
}

/// The traffic class in the first two bytes of an IP header.
pub(crate) fn traffic_class<A: Address>(&[first, second]: &[u8; 2]) -> u8 {
    if A::FAMILY == Family::V4 { second } else { first << 4 | second >> 4 }
}

/// One packet to be sent, without its IP header.
pub(crate) struct OutgoingPacket<A> {
    pub(crate) packet: PacketBuf,
    pub(crate) ends: AddrPair<A>,
    pub(crate) protocol: IpProtocol,
    pub(crate) hop_limit: u8,
    /// IPv6's traffic class, IPv4's TOS.
    pub(crate) class: u8,
    /// The interface that a link-local destination or a group is meant on.
    pub(crate) zone: Option<IfIndex>,
}
