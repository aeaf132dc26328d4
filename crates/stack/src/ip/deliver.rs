//! Dispatch by IP protocol number, and ICMP of both families.
//!
//! Called by `rx.rs` with a packet with validated headers. UDP goes to its sockets; ICMP requests
//! are answered, ICMP errors reported to the socket that they are about; neighbour discovery goes
//! to `neighbors.rs`; the rest is refused. Reading: RFC 1122 sections 3.2.2 and 4.1.3, RFC 4443
//! sections 2.4, 4.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, Family, IfIndex};
use floodwall_ip::{ArrivedUpper, IcmpError, RefusedAction};
use floodwall_packet::{ChecksumState, PacketBuf};
use floodwall_udp::{DatagramInput, DatagramKey, DatagramVerdict};
use floodwall_wire::icmpv4::{self, Icmpv4Message, Icmpv4Type};
use floodwall_wire::icmpv6::{self, Icmpv6Message, Icmpv6Type};
use floodwall_wire::{Icmpv4Header, Icmpv6Header, IpProtocol};

use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{BEST_EFFORT, OutgoingPacket};
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;
use crate::triage::recent_peers::peer_of;

impl Stack {
    #[inline]
    pub(crate) fn deliver_v4(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        upper: ArrivedUpper,
    ) {
        let heard =
            upper.protocol != IpProtocol::ICMPV4 && self.overhear(cx, &packet, &ascent, upper);
        match upper.protocol {
            IpProtocol::UDP => {
                self.stats.counters.count(Counter::IpInDelivers);
                if self.dhcp_asks() && self.is_for_dhcp(&packet, ascent.iface, upper, ascent.l3) {
                    return self.dhcp_input(cx, packet, ascent, upper);
                }
                self.udp_input(cx, packet, ascent, upper);
            }
            IpProtocol::TCP if self.tcp.is_some() => {
                self.stats.counters.count(Counter::IpInDelivers);
                self.tcp_input(cx, packet, ascent, upper);
            }
            IpProtocol::ICMPV4 => {
                self.stats.counters.count(Counter::IpInDelivers);
                self.icmpv4(cx, packet, ascent, upper);
            }
            IpProtocol::IGMP => {
                self.stats.counters.count(Counter::IpInDelivers);
                self.igmp(cx, packet, ascent, upper);
            }
            _ if heard => self.overheard(packet, Counter::IpInDelivers),
            _ => self.refuse_protocol(cx, packet, ascent, upper),
        }
    }

    #[inline]
    pub(crate) fn deliver_v6(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        upper: ArrivedUpper,
    ) {
        // A packet to a group with one of our own source addresses is forged, or our own looped
        // back; only duplicate address detection needs to see it (RFC 4862 section 5.4).
        if ascent.to_group && upper.protocol != IpProtocol::ICMPV6 && self.is_forged(ascent) {
            return self.drop_ip::<Ipv6Addr>(packet, DropReason::IpSourceInvalid);
        }
        let heard =
            upper.protocol != IpProtocol::ICMPV6 && self.overhear(cx, &packet, &ascent, upper);
        match upper.protocol {
            IpProtocol::UDP => {
                self.stats.counters.count(Counter::Ip6InDelivers);
                if self.control.dhcpv6.asks() && self.is_for_dhcpv6(&packet, &ascent, upper) {
                    return self.dhcpv6_input(cx, packet, ascent, upper);
                }
                self.udp_input(cx, packet, ascent, upper);
            }
            IpProtocol::TCP if self.tcp.is_some() => {
                self.stats.counters.count(Counter::Ip6InDelivers);
                self.tcp_input(cx, packet, ascent, upper);
            }
            IpProtocol::ICMPV6 => {
                self.stats.counters.count(Counter::Ip6InDelivers);
                self.icmpv6(cx, packet, ascent, upper);
            }
            _ if heard => self.overheard(packet, Counter::Ip6InDelivers),
            _ => self.refuse_protocol(cx, packet, ascent, upper),
        }
    }

    /// Whether a packet received from the link has one of our addresses as its source.
    #[cold]
    pub(crate) fn is_forged(&self, ascent: RxMeta<Ipv6Addr>) -> bool {
        ascent.iface != IfIndex::LOOPBACK && self.owns(ascent.heading.src_addr)
    }

    /// Accounts for a packet that only raw sockets received.
    #[cold]
    fn overheard(&mut self, packet: PacketBuf, counter: Counter) {
        self.stats.counters.count(counter);
        self.stats.outcomes.delivered += 1;
        drop(packet);
    }

    #[cold]
    fn refuse_protocol<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<A>,
        upper: ArrivedUpper,
    ) {
        let pointer = u32::try_from(upper.announced_at).unwrap_or(0);
        let owed = IcmpError::ProtocolUnreachable { pointer };
        let refusal = RefusedAction::owing(DropReason::ProtocolUnknown, owed);
        self.refuse(cx, packet, ascent, Some(upper), refusal);
    }

    #[inline]
    fn udp_input<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<A>,
        upper: ArrivedUpper,
    ) {
        let l4 = ascent.l3 + upper.offset;
        let input = DatagramInput {
            src_addr: ascent.heading.src_addr.to_ip(),
            dst_addr: ascent.heading.dst_addr.to_ip(),
            iface: ascent.iface,
            l3: ascent.l3,
            l4,
            len: packet.len() - l4,
            group: ascent.to_group,
        };
        let ports = packet.first().get(l4..).and_then(|bytes| bytes.first_chunk()).copied();
        let (stats, answered) = (&mut self.stats, &self.sockets.recent_peers);
        let (counters, access) = (&mut stats.counters, &mut stats.access);
        let is_answered =
            |datagram_key: &DatagramKey| answered.knows(&peer_of(datagram_key, ascent.iface));
        let udp = &mut self.sockets.udp;
        match udp.input_from(&input, packet, cx.pool, counters, access, is_answered) {
            DatagramVerdict::Delivered { socket, .. } => {
                (stats.outcomes.delivered, self.memory.has_moved) =
                    (stats.outcomes.delivered + 1, true);
                if !upper.fragmented {
                    self.udp_delivered(&input, ports.unwrap_or_default(), socket);
                }
            }
            DatagramVerdict::DeliveredToGroup { .. } => {
                (stats.outcomes.delivered, self.memory.has_moved) =
                    (stats.outcomes.delivered + 1, true);
            }
            DatagramVerdict::Dropped(packet, reason) => self.drop_packet(packet, reason),
            DatagramVerdict::Challenged { packet, answer } => {
                self.challenged(cx, packet, answer, ascent);
            }
            DatagramVerdict::PortUnreachable(packet) => self.no_port(cx, packet, ascent, upper),
        }
    }

    /// Sends a challenge to an unverified source in place of accepting its packet. The source does
    /// not become an established peer by it.
    #[cold]
    fn challenged<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        answer: Option<PacketBuf>,
        ascent: RxMeta<A>,
    ) {
        self.drop_packet(packet, DropReason::UdpChallenged);
        let Some(packet) = answer else { return };
        self.stats.counters.count(match A::FAMILY {
            Family::V4 => Counter::UdpOutDatagrams,
            Family::V6 => Counter::Udp6OutDatagrams,
        });
        let ends =
            AddrPair { src_addr: ascent.heading.dst_addr, dst_addr: ascent.heading.src_addr };
        let hop_limit = self.hop_limit_of::<A>(ascent.iface);
        let (protocol, zone) = (IpProtocol::UDP, Some(ascent.iface));
        self.output(
            cx,
            OutgoingPacket { packet, ends, protocol, hop_limit, class: BEST_EFFORT, zone },
        );
    }

    #[cold]
    fn no_port<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<A>,
        upper: ArrivedUpper,
    ) {
        self.answer_error(cx, &packet, ascent, Some(upper), IcmpError::PortUnreachable);
        self.drop_packet(packet, DropReason::UdpNoPort);
    }

    #[inline(never)]
    fn icmpv4(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        upper: ArrivedUpper,
    ) {
        self.stats.counters.count(Counter::IcmpInMsgs);
        let l4 = ascent.l3 + upper.offset;
        let mut scratch = [0; icmpv4::HEADER_LEN];
        let header = packet.header(l4, icmpv4::HEADER_LEN, &mut scratch, &mut self.stats.access);
        let Some(header) = header.and_then(|bytes| Icmpv4Header::parse(bytes).ok()) else {
            self.stats.counters.count(Counter::IcmpInErrors);
            return self.drop_packet(packet, DropReason::IcmpMalformed);
        };
        let body = packet.sum(l4 + icmpv4::HEADER_LEN, packet.len());
        if packet.checksum_state() == ChecksumState::Unverified && !header.verifies(body) {
            self.stats.counters.count(Counter::IcmpInErrors);
            self.stats.counters.count(Counter::IcmpInCsumErrors);
            return self.drop_packet(packet, DropReason::IcmpChecksum);
        }
        let message = header.message();
        self.overhear(cx, &packet, &ascent, upper);
        match message {
            // With any code, as Linux: the request's code is the reply's.
            Icmpv4Message::EchoRequest { .. }
            | Icmpv4Message::Unknown { kind: Icmpv4Type::ECHO_REQUEST, .. } => {
                self.echo_v4(cx, packet, ascent, l4)
            }
            Icmpv4Message::EchoReply { id, .. } => {
                self.stats.counters.count(Counter::IcmpInEchoReps);
                self.echo_replied(packet, ascent, l4, id);
            }
            message @ (Icmpv4Message::DestinationUnreachable { .. }
            | Icmpv4Message::TimeExceeded { .. }
            | Icmpv4Message::ParameterProblem { .. }) => {
                self.error_v4(cx, packet, ascent, l4, message);
            }
            Icmpv4Message::Redirect { code: 0..=3, .. } => {
                self.redirect_v4(cx, packet, ascent, l4);
            }
            Icmpv4Message::Unknown { kind: Icmpv4Type::SOURCE_QUENCH, .. } => {
                self.stats.counters.count(Counter::IcmpInSrcQuenchs);
                self.drop_packet(packet, DropReason::IcmpTypeUnknown);
            }
            _ => self.drop_packet(packet, DropReason::IcmpTypeUnknown),
        }
    }

    #[inline(never)]
    fn icmpv6(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        upper: ArrivedUpper,
    ) {
        self.stats.counters.count(Counter::Icmp6InMsgs);
        let l4 = ascent.l3 + upper.offset;
        let mut scratch = [0; icmpv6::HEADER_LEN];
        let header = packet.header(l4, icmpv6::HEADER_LEN, &mut scratch, &mut self.stats.access);
        let Some(header) = header.and_then(|bytes| Icmpv6Header::parse(bytes).ok()) else {
            self.stats.counters.count(Counter::Icmp6InErrors);
            return self.drop_packet(packet, DropReason::IcmpMalformed);
        };
        let len = packet.len() - l4;
        let body = packet.sum(l4 + icmpv6::HEADER_LEN, len);
        let pseudo = floodwall_checksum::pseudo_header_v6(
            ascent.heading.src_addr,
            ascent.heading.dst_addr,
            IpProtocol::ICMPV6.0,
            u32::try_from(len).unwrap_or(u32::MAX),
        );
        let unverified = packet.checksum_state() == ChecksumState::Unverified;
        if unverified && !header.verifies(pseudo, body) {
            self.stats.counters.count(Counter::Icmp6InErrors);
            self.stats.counters.count(Counter::Icmp6InCsumErrors);
            return self.drop_packet(packet, DropReason::IcmpChecksum);
        }
        let (kind, message) = (header.kind(), header.message());
        self.overhear(cx, &packet, &ascent, upper);
        match message {
            Icmpv6Message::EchoRequest { .. }
            | Icmpv6Message::Unknown { kind: Icmpv6Type::ECHO_REQUEST, .. } => {
                self.echo_v6(cx, packet, ascent, l4)
            }
            Icmpv6Message::EchoReply { id, .. } => {
                self.stats.counters.count(Counter::Icmp6InEchoReplies);
                self.echo_replied(packet, ascent, l4, id);
            }
            // Unknown errors too: they are for the upper layer (RFC 4443 section 2.4 (a)).
            message if kind.is_error() => self.error_v6(cx, packet, ascent, l4, message),
            _ if self.is_follower()
                && (kind.is_group_membership() || kind.is_neighbor_discovery()) =>
            {
                self.hand_in(cx, packet, upper.fragmented.then_some(ascent.l3));
            }
            _ if kind.is_group_membership() => self.mld(cx, packet, ascent, upper),
            _ if kind.is_neighbor_discovery() => self.ndp(cx, packet, ascent, upper, kind),
            _ => self.drop_packet(packet, DropReason::IcmpTypeUnknown),
        }
    }

    pub(crate) fn owns_addr(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(a) => self.owns(a),
            IpAddr::V6(a) => self.owns(a),
        }
    }
}
