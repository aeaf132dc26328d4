//! `QuotedPacket`: the packet of ours that an ICMP message quotes, parsed from the start.
//!
//! Read by `errors.rs` and `exceptions/quote.rs`. The quoted bytes come from an unverified source:
//! nothing in them is taken for true before a flow of ours matches.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Family, IfIndex, limits};
use floodwall_ip::ping::PingQuote;
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_udp::QuotedDatagram;
use floodwall_wire::icmpv4::Icmpv4Type;
use floodwall_wire::icmpv6::Icmpv6Type;
use floodwall_wire::{IpProtocol, ipv4, ipv6, ipv6_ext};

use crate::ip::ip_family::IpFamily;

/// The headers of a packet that an error quotes, as we would have sent it: its source is our end.
#[derive(Clone, Copy)]
pub(crate) struct QuotedPacket<A> {
    pub(crate) src_addr: A,
    pub(crate) dst_addr: A,
    pub(crate) protocol: IpProtocol,
    /// Where the upper layer starts in the packet that quotes.
    pub(crate) l4: usize,
    /// Length of the whole packet in bytes, from its header.
    pub(crate) len: u32,
}

impl<A: IpFamily> QuotedPacket<A> {
    /// Parses the quote at `at`. `None` where it is no packet of this family, is a later fragment,
    /// or ends before its upper layer. The extensions that RFC 4884 appends to a quote start behind
    /// its 128th byte, beyond all that is parsed but the longest chains; those are read no further
    /// than the limit of headers.
    pub(crate) fn of(packet: &PacketBuf, at: usize, access: &mut AccessCounters) -> Option<Self> {
        if A::BITS == 32 {
            Self::of_v4(packet, at, access)
        } else {
            Self::of_v6(packet, at, access)
        }
    }

    fn of_v4(packet: &PacketBuf, at: usize, access: &mut AccessCounters) -> Option<Self> {
        let mut scratch = [0; ipv4::HEADER_LEN];
        let fixed: &[u8; ipv4::HEADER_LEN] = packet.header_array(at, &mut scratch, access)?;
        let later = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0;
        let len = ipv4::header_len(fixed).filter(|_| !later && fixed[0] >> 4 == 4)?;
        let addr = |from: usize| -> Option<A> {
            A::from_ip(IpAddr::from(*fixed.get(from..)?.first_chunk::<4>()?))
        };
        let protocol = IpProtocol(fixed[9]);
        let total = u16::from_be_bytes([fixed[2], fixed[3]]).into();
        let (src_addr, dst_addr) = (addr(12)?, addr(16)?);
        Some(Self { src_addr, dst_addr, protocol, l4: at + len, len: total })
    }

    /// Skips extension headers by their lengths: a packet of ours may have a fragment header among
    /// them.
    fn of_v6(packet: &PacketBuf, at: usize, access: &mut AccessCounters) -> Option<Self> {
        let mut scratch = [0; ipv6::HEADER_LEN];
        let fixed: &[u8; ipv6::HEADER_LEN] = packet.header_array(at, &mut scratch, access)?;
        if fixed[0] >> 4 != 6 {
            return None;
        }
        let addr = |from: usize| -> Option<A> {
            A::from_ip(IpAddr::from(*fixed.get(from..)?.first_chunk::<16>()?))
        };
        let (src_addr, dst_addr) = (addr(8)?, addr(24)?);
        let len = u32::from(u16::from_be_bytes([fixed[4], fixed[5]])) + ipv6::HEADER_LEN as u32;
        let (mut protocol, mut l4) = (IpProtocol(fixed[6]), at + ipv6::HEADER_LEN);
        for _ in 0..=limits::EXTENSION_HEADERS_MAX {
            if !protocol.is_extension() {
                return Some(Self { src_addr, dst_addr, protocol, l4, len });
            }
            let mut scratch = [0; ipv6_ext::HEADER_LEN_MIN];
            let first = packet.header_array(l4, &mut scratch, access)?;
            let later = u16::from_be_bytes([first[2], first[3]]) >> 3 != 0;
            if protocol == IpProtocol::FRAGMENT && later {
                return None;
            }
            l4 += ipv6_ext::header_len(protocol, first)?;
            protocol = IpProtocol(first[0]);
        }
        None
    }

    /// The ports and the sequence number of a TCP segment, where all are quoted.
    pub(super) fn tcp(
        &self,
        packet: &PacketBuf,
        access: &mut AccessCounters,
    ) -> Option<((u16, u16), u32)> {
        let mut scratch = [0; 8];
        let [a, b, c, d, seq @ ..] = *packet.header_array(self.l4, &mut scratch, access)?;
        let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Some((ports, u32::from_be_bytes(seq)))
    }

    /// The flow of a UDP datagram, where both ports are quoted.
    pub(super) fn udp(
        &self,
        packet: &PacketBuf,
        iface: IfIndex,
        access: &mut AccessCounters,
    ) -> Option<QuotedDatagram> {
        let mut scratch = [0; 4];
        let ports: &[u8; 4] = packet.header_array(self.l4, &mut scratch, access)?;
        let end = |addr: A, port| SocketAddr::new(addr.to_ip(), u16::from_be_bytes(port));
        Some(QuotedDatagram {
            local: end(self.src_addr, [ports[0], ports[1]]),
            remote: end(self.dst_addr, [ports[2], ports[3]]),
            iface,
        })
    }

    /// An echo request, where its identifier is quoted.
    pub(super) fn ping(
        &self,
        packet: &PacketBuf,
        access: &mut AccessCounters,
    ) -> Option<PingQuote> {
        let mut scratch = [0; 6];
        let front: &[u8; 6] = packet.header_array(self.l4, &mut scratch, access)?;
        let request = match A::FAMILY {
            Family::V4 => Icmpv4Type::ECHO_REQUEST.0,
            Family::V6 => Icmpv6Type::ECHO_REQUEST.0,
        };
        let identifier = u16::from_be_bytes([front[4], front[5]]);
        (front[0] == request).then_some(PingQuote { family: A::FAMILY, identifier })
    }
}
