//! What came back, counted by kind.
//!
//! Filled by `blast.rs` and `honest.rs` from every packet that arrives. Invariant: each packet is
//! counted under exactly one kind; [`Returned::total`] is their sum.

use floodwall_wire::{
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpProtocol, TcpFlags, TcpHeader,
};

use crate::seen::{SeenIp, SeenPacket};

/// Received packets, counted by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Returned {
    /// ARP packets, and neighbour discovery messages.
    pub neighbor: u64,
    /// Datagrams.
    pub udp: u64,
    /// Segments with SYN and ACK.
    pub tcp_syn_ack: u64,
    /// Segments with RST.
    pub tcp_rst: u64,
    /// Other segments.
    pub tcp: u64,
    /// Echo replies, either family.
    pub echo_replies: u64,
    /// Destination unreachable, either family.
    pub unreachable: u64,
    /// Other ICMP errors, either family.
    pub icmp_errors: u64,
    /// Fragments.
    pub fragments: u64,
    /// Everything else.
    pub other: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Returned {
    /// All packets that arrived.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.neighbor
            + self.udp
            + self.tcp_syn_ack
            + self.tcp_rst
            + self.tcp
            + self.echo_replies
            + self.unreachable
            + self.icmp_errors
            + self.fragments
            + self.other
    }

    pub(crate) fn count(&mut self, seen: &SeenPacket<'_>, len: usize) {
        self.bytes += len as u64;
        *match seen {
            SeenPacket::Arp(_) => &mut self.neighbor,
            SeenPacket::Other => &mut self.other,
            SeenPacket::Ip(ip) if ip.is_fragment => &mut self.fragments,
            SeenPacket::Ip(ip) => self.slot(ip),
        } += 1;
    }

    fn slot(&mut self, ip: &SeenIp<'_>) -> &mut u64 {
        match ip.protocol {
            IpProtocol::UDP => &mut self.udp,
            IpProtocol::TCP => match TcpHeader::parse(ip.head, ip.head.len()) {
                Ok(tcp) if tcp.flags().contains(TcpFlags::RST) => &mut self.tcp_rst,
                Ok(tcp) if tcp.flags().contains(TcpFlags::SYN | TcpFlags::ACK) => {
                    &mut self.tcp_syn_ack
                }
                _ => &mut self.tcp,
            },
            IpProtocol::ICMPV4 => match Icmpv4Header::parse(ip.head).map(|icmp| icmp.kind()) {
                Ok(Icmpv4Type::ECHO_REPLY) => &mut self.echo_replies,
                Ok(Icmpv4Type::DESTINATION_UNREACHABLE) => &mut self.unreachable,
                Ok(kind) if kind.is_error() => &mut self.icmp_errors,
                _ => &mut self.other,
            },
            IpProtocol::ICMPV6 => match Icmpv6Header::parse(ip.head).map(|icmp| icmp.kind()) {
                Ok(Icmpv6Type::ECHO_REPLY) => &mut self.echo_replies,
                Ok(Icmpv6Type::DESTINATION_UNREACHABLE) => &mut self.unreachable,
                Ok(kind) if kind.is_error() => &mut self.icmp_errors,
                Ok(kind) if kind.is_neighbor_discovery() => &mut self.neighbor,
                _ => &mut self.other,
            },
            _ => &mut self.other,
        }
    }
}
