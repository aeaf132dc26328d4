//! What an ICMP message states of a path, and the flow that it quotes: parsed from an unverified
//! source's bytes, from the ICMP header on.
//!
//! Called by `exceptions.rs` at each shard that the message comes to. Invariant: a flow is quoted
//! only where all eight bytes behind its IP header are there (RFC 792 has no fewer); everything
//! else of the statement is unchecked. Reading: RFC 792, RFC 1191 section 4, RFC 4443 section 3.2,
//! RFC 4861 section 4.5.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Family, MacAddr};
use floodwall_fib::exceptions::PathUpdate;
use floodwall_ip::ping::PingQuote;
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_wire::icmpv4::{Icmpv4Type, UnreachableCode};
use floodwall_wire::icmpv6::Icmpv6Type;
use floodwall_wire::ndp::Redirect;
use floodwall_wire::{
    Icmpv4Header, Icmpv4Message, Icmpv6Header, Icmpv6Message, IpProtocol, NdpOption, icmpv4,
    icmpv6, ipv6, ipv6_ext,
};

use crate::ip::ip_family::IpFamily;
use crate::ip::quoted_packet::QuotedPacket;
use crate::link::neighbors::NDP_MESSAGE_MAX;

/// Required bytes of a quoted upper header.
const QUOTE_FRONT_MIN: usize = 8;

/// The packet of ours that is quoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotedFlow<A> {
    pub(crate) src_addr: A,
    pub(crate) dst_addr: A,
    pub(crate) protocol: IpProtocol,
    /// Length of the packet in bytes, from its header.
    pub(crate) len: u32,
    /// The first bytes of its upper header.
    pub(crate) front: [u8; QUOTE_FRONT_MIN],
}

impl<A: IpFamily> QuotedFlow<A> {
    /// Parses the quote at `at` of a packet.
    pub(crate) fn of(packet: &PacketBuf, at: usize, access: &mut AccessCounters) -> Option<Self> {
        let QuotedPacket { src_addr, dst_addr, protocol, l4, len } =
            QuotedPacket::of(packet, at, access)?;
        let mut scratch = [0; QUOTE_FRONT_MIN];
        let front = *packet.header_array(l4, &mut scratch, access)?;
        Some(Self { src_addr, dst_addr, protocol, len, front })
    }

    /// Whether it is an echo reply.
    pub(crate) fn is_echo_reply(&self) -> bool {
        let reply = match A::FAMILY {
            Family::V4 => Icmpv4Type::ECHO_REPLY.0,
            Family::V6 => Icmpv6Type::ECHO_REPLY.0,
        };
        self.protocol == A::ICMP && self.front[0] == reply
    }

    /// The quoted echo request, if it is one.
    pub(crate) fn ping(&self) -> Option<PingQuote> {
        let request = match A::FAMILY {
            Family::V4 => Icmpv4Type::ECHO_REQUEST.0,
            Family::V6 => Icmpv6Type::ECHO_REQUEST.0,
        };
        let [kind, _, _, _, a, b, ..] = self.front;
        let identifier = u16::from_be_bytes([a, b]);
        (kind == request).then_some(PingQuote { family: A::FAMILY, identifier })
    }
}

impl QuotedFlow<Ipv6Addr> {
    /// Parses the packet that a redirect quotes in an option: a packet of ours, whole or a first
    /// fragment.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (header, mut rest) = bytes.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let addr = |at: usize| header.get(at..)?.first_chunk().copied().map(Ipv6Addr::from);
        let (src_addr, dst_addr) = (addr(8)?, addr(24)?);
        let mut protocol = IpProtocol(header[6]);
        if header[0] >> 4 != 6 {
            return None;
        }
        if protocol == IpProtocol::FRAGMENT {
            let (fragment, behind) = rest.split_first_chunk::<{ ipv6_ext::HEADER_LEN_MIN }>()?;
            if u16::from_be_bytes([fragment[2], fragment[3]]) >> 3 != 0 {
                return None;
            }
            (protocol, rest) = (IpProtocol(fragment[0]), behind);
        }
        let len = u32::from(u16::from_be_bytes([header[4], header[5]])) + ipv6::HEADER_LEN as u32;
        Some(Self { src_addr, dst_addr, protocol, len, front: *rest.first_chunk()? })
    }
}

/// The content of a message: the path lesson and the quoted flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathUpdateQuote<A> {
    pub(crate) lesson: PathUpdate<A>,
    pub(crate) flow: QuotedFlow<A>,
    /// Link address of the better first hop.
    pub(crate) link_addr: Option<MacAddr>,
}

/// What differs between the families.
pub(crate) trait PathUpdateFamily: IpFamily {
    /// Parses the message that begins at `at`; `None` where it is another, or quotes no flow.
    fn statement(
        packet: &PacketBuf,
        at: usize,
        access: &mut AccessCounters,
    ) -> Option<PathUpdateQuote<Self>>;
}

/// The family of an ICMP message that another shard handed over: the two families' ICMP types are
/// disjoint.
pub(super) fn is_v4(packet: &PacketBuf) -> bool {
    let kind = packet.first().first().copied().map(Icmpv4Type);
    matches!(kind, Some(Icmpv4Type::DESTINATION_UNREACHABLE | Icmpv4Type::REDIRECT))
}

impl PathUpdateFamily for Ipv4Addr {
    fn statement(
        packet: &PacketBuf,
        at: usize,
        access: &mut AccessCounters,
    ) -> Option<PathUpdateQuote<Self>> {
        let mut scratch = [0; icmpv4::HEADER_LEN];
        let header = packet.header(at, icmpv4::HEADER_LEN, &mut scratch, access)?;
        let lesson = match Icmpv4Header::parse(header).ok()?.message() {
            Icmpv4Message::DestinationUnreachable {
                code: UnreachableCode::FRAGMENTATION_NEEDED,
                next_hop_mtu,
            } => PathUpdate::PathMtu(next_hop_mtu.into()),
            Icmpv4Message::Redirect { gateway, .. } => PathUpdate::Redirect(gateway),
            _ => return None,
        };
        let flow = QuotedFlow::of(packet, at + icmpv4::HEADER_LEN, access)?;
        Some(PathUpdateQuote { lesson, flow, link_addr: None })
    }
}

impl PathUpdateFamily for Ipv6Addr {
    fn statement(
        packet: &PacketBuf,
        at: usize,
        access: &mut AccessCounters,
    ) -> Option<PathUpdateQuote<Self>> {
        let mut scratch = [0; icmpv6::HEADER_LEN];
        let header = packet.header(at, icmpv6::HEADER_LEN, &mut scratch, access)?;
        let header = Icmpv6Header::parse(header).ok()?;
        if header.kind() == Icmpv6Type::REDIRECT {
            return redirect(packet, at, access);
        }
        let Icmpv6Message::PacketTooBig { mtu } = header.message() else { return None };
        let flow = QuotedFlow::of(packet, at + icmpv6::HEADER_LEN, access)?;
        Some(PathUpdateQuote { lesson: PathUpdate::PathMtu(mtu), flow, link_addr: None })
    }
}

/// Parses a redirect that was validated on arrival.
fn redirect(
    packet: &PacketBuf,
    at: usize,
    access: &mut AccessCounters,
) -> Option<PathUpdateQuote<Ipv6Addr>> {
    let len = packet.len().saturating_sub(at);
    let mut scratch = [0; NDP_MESSAGE_MAX];
    if len > NDP_MESSAGE_MAX {
        return None;
    }
    let message = Redirect::parse(packet.header(at, len, &mut scratch, access)?).ok()?;
    let (fields, mut options) = (message.fields(), message.options());
    let link_addr = options.target_link_addr().filter(|addr| addr.is_unicast());
    let flow = options.find_map(|option| match option {
        NdpOption::RedirectedHeader(bytes) => QuotedFlow::of_bytes(bytes),
        _ => None,
    })?;
    let right = flow.dst_addr == fields.dst_addr;
    let lesson = PathUpdate::Redirect(fields.target_addr);
    right.then_some(PathUpdateQuote { lesson, flow, link_addr })
}
