//! The one match on protocol number, and the ICMP of both families.
//!
//! Called by `rx.rs` with a packet whose headers have been read. UDP goes to its sockets, ICMP is
//! answered or told to the socket that it is about, neighbour discovery goes to `neighbors.rs`,
//! the rest is refused. Reading: RFC 1122 sections 3.2.2 and 4.1.3, RFC 4443 sections 2.4, 4.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, IfIndex, limits};
use floodwall_ip::{Allow, IcmpError, Refusal, Upper, icmp};
use floodwall_packet::{ChecksumState, PacketBuf};
use floodwall_udp::{IcmpVerdict, Input, Verdict};
use floodwall_wire::icmpv4::{self, Icmpv4Message, Icmpv4Type};
use floodwall_wire::icmpv6::{self, Icmpv6Message, Icmpv6Type};
use floodwall_wire::{Icmpv4Header, Icmpv6Header, IpProtocol};

use crate::cx::Cx;
use crate::rx::Ascent;
use crate::shard::Stack;
use crate::tables::{Ends, Tables};
use crate::tx::{HOP_LIMIT, Outgoing};

impl Stack {
    #[inline]
    pub(crate) fn deliver_v4(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<Ipv4Addr>,
        upper: Upper,
    ) {
        match upper.protocol {
            IpProtocol::UDP => {
                self.stats.counters.count(Counter::IpInDelivers);
                self.udp_input(cx, packet, ascent, upper);
            }
            IpProtocol::ICMPV4 => {
                self.stats.counters.count(Counter::IpInDelivers);
                self.icmpv4(cx, packet, ascent, upper);
            }
            _ => self.refuse_protocol(cx, packet, ascent, upper),
        }
    }

    #[inline]
    pub(crate) fn deliver_v6(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<Ipv6Addr>,
        upper: Upper,
    ) {
        // What a group hears from one of our own addresses is a forgery, or our own echo; address
        // detection alone wants to know of it (RFC 4862 section 5.4).
        if ascent.to_group && upper.protocol != IpProtocol::ICMPV6 && self.is_forged(ascent) {
            return self.die_ip::<Ipv6Addr>(packet, DropReason::IpSourceInvalid);
        }
        match upper.protocol {
            IpProtocol::UDP => {
                self.stats.counters.count(Counter::Ip6InDelivers);
                self.udp_input(cx, packet, ascent, upper);
            }
            IpProtocol::ICMPV6 => {
                self.stats.counters.count(Counter::Ip6InDelivers);
                self.icmpv6(cx, packet, ascent, upper);
            }
            _ => self.refuse_protocol(cx, packet, ascent, upper),
        }
    }

    /// Whether a packet from elsewhere has one of our addresses as its source.
    #[cold]
    fn is_forged(&self, ascent: Ascent<Ipv6Addr>) -> bool {
        ascent.iface != IfIndex::LOOPBACK && self.owns(ascent.heading.src_addr)
    }

    #[cold]
    fn refuse_protocol<A: Tables>(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<A>,
        upper: Upper,
    ) {
        let pointer = u32::try_from(upper.announced_at).unwrap_or(0);
        let owed = IcmpError::ProtocolUnreachable { pointer };
        let refusal = Refusal::owing(DropReason::ProtocolUnknown, owed);
        self.refuse(cx, packet, ascent, Some(upper), refusal);
    }

    #[inline]
    fn udp_input<A: Tables>(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<A>,
        upper: Upper,
    ) {
        let l4 = ascent.l3 + upper.offset;
        let input = Input {
            src_addr: ascent.heading.src_addr.to_ip(),
            dst_addr: ascent.heading.dst_addr.to_ip(),
            iface: ascent.iface,
            l3: ascent.l3,
            l4,
            len: packet.len() - l4,
            group: ascent.to_group,
        };
        let stats = &mut self.stats;
        match self.udp.input(&input, packet, cx.pool, &mut stats.counters, &mut stats.access) {
            Verdict::Delivered { .. } | Verdict::DeliveredToGroup { .. } => {
                stats.fates.delivered += 1;
            }
            Verdict::Dropped(packet, reason) => self.die(packet, reason),
            Verdict::PortUnreachable(packet) => self.no_port(cx, packet, ascent, upper),
        }
    }

    #[cold]
    fn no_port<A: Tables>(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<A>,
        upper: Upper,
    ) {
        self.answer_error(cx, &packet, ascent, Some(upper), IcmpError::PortUnreachable);
        self.die(packet, DropReason::UdpNoPort);
    }

    #[inline(never)]
    fn icmpv4(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<Ipv4Addr>,
        upper: Upper,
    ) {
        self.stats.counters.count(Counter::IcmpInMsgs);
        let l4 = ascent.l3 + upper.offset;
        let mut scratch = [0; icmpv4::HEADER_LEN];
        let header = packet.header(l4, icmpv4::HEADER_LEN, &mut scratch, &mut self.stats.access);
        let Some(header) = header.and_then(|bytes| Icmpv4Header::parse(bytes).ok()) else {
            self.stats.counters.count(Counter::IcmpInErrors);
            return self.die(packet, DropReason::IcmpMalformed);
        };
        let body = packet.sum(l4 + icmpv4::HEADER_LEN, packet.len());
        if packet.checksum_state() == ChecksumState::Unverified && !header.verifies(body) {
            self.stats.counters.count(Counter::IcmpInErrors);
            self.stats.counters.count(Counter::IcmpInCsumErrors);
            return self.die(packet, DropReason::IcmpChecksum);
        }
        match header.message() {
            Icmpv4Message::EchoRequest { .. } => self.echo_v4(cx, packet, ascent, l4),
            Icmpv4Message::EchoReply { .. } => {
                self.stats.counters.count(Counter::IcmpInEchoReps);
                self.die(packet, DropReason::IcmpNoFlow);
            }
            message @ (Icmpv4Message::DestinationUnreachable { .. }
            | Icmpv4Message::TimeExceeded { .. }
            | Icmpv4Message::ParameterProblem { .. }) => {
                self.stats.counters.count(Counter::IcmpInDestUnreachs);
                let error = crate::errors::of_icmpv4(message);
                self.quoted(packet, ascent, l4 + icmpv4::HEADER_LEN, error);
            }
            _ => self.die(packet, DropReason::IcmpTypeUnknown),
        }
    }

    fn echo_v4(&mut self, cx: &mut Cx<'_>, packet: PacketBuf, ascent: Ascent<Ipv4Addr>, l4: usize) {
        self.stats.counters.count(Counter::IcmpInEchos);
        // Never to a group: the answers of many would meet at one victim (RFC 1122 section
        // 3.2.2.6 leaves it to us).
        if ascent.to_group || packet.is_link_group() {
            return self.die(packet, DropReason::IcmpEchoRefused);
        }
        let kinds = (Icmpv4Type::ECHO_REQUEST.0, Icmpv4Type::ECHO_REPLY.0);
        let from = ascent.heading.dst_addr;
        let Some(packet) = self.echo(cx, packet, ascent, l4, kinds) else { return };
        self.stats.counters.count(Counter::IcmpOutMsgs);
        self.stats.counters.count(Counter::IcmpOutEchoReps);
        self.reply(cx, packet, ascent, from);
    }

    #[inline(never)]
    fn icmpv6(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<Ipv6Addr>,
        upper: Upper,
    ) {
        self.stats.counters.count(Counter::Icmp6InMsgs);
        let l4 = ascent.l3 + upper.offset;
        let mut scratch = [0; icmpv6::HEADER_LEN];
        let header = packet.header(l4, icmpv6::HEADER_LEN, &mut scratch, &mut self.stats.access);
        let Some(header) = header.and_then(|bytes| Icmpv6Header::parse(bytes).ok()) else {
            self.stats.counters.count(Counter::Icmp6InErrors);
            return self.die(packet, DropReason::IcmpMalformed);
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
            return self.die(packet, DropReason::IcmpChecksum);
        }
        let kind = header.kind();
        match header.message() {
            Icmpv6Message::EchoRequest { .. } => self.echo_v6(cx, packet, ascent, l4),
            Icmpv6Message::EchoReply { .. } => {
                self.stats.counters.count(Counter::Icmp6InEchoReplies);
                self.die(packet, DropReason::IcmpNoFlow);
            }
            message @ (Icmpv6Message::DestinationUnreachable { .. }
            | Icmpv6Message::PacketTooBig { .. }
            | Icmpv6Message::TimeExceeded { .. }
            | Icmpv6Message::ParameterProblem { .. }) => {
                self.stats.counters.count(Counter::Icmp6InDestUnreachs);
                let error = crate::errors::of_icmpv6(message);
                self.quoted(packet, ascent, l4 + icmpv6::HEADER_LEN, error);
            }
            _ if kind.is_neighbor_discovery() => self.ndp(cx, packet, ascent, upper, kind),
            _ => self.die(packet, DropReason::IcmpTypeUnknown),
        }
    }

    fn echo_v6(&mut self, cx: &mut Cx<'_>, packet: PacketBuf, ascent: Ascent<Ipv6Addr>, l4: usize) {
        self.stats.counters.count(Counter::Icmp6InEchos);
        if ascent.heading.src_addr.is_unspecified() {
            return self.die(packet, DropReason::IpSourceInvalid);
        }
        // As with IPv4: RFC 4443 section 4.2 would answer a request to a group, and so would the
        // whole link, one forged source that it was meant for.
        if ascent.to_group || packet.is_link_group() {
            return self.die(packet, DropReason::IcmpEchoRefused);
        }
        let kinds = (Icmpv6Type::ECHO_REQUEST.0, Icmpv6Type::ECHO_REPLY.0);
        let from = ascent.heading.dst_addr;
        let Some(packet) = self.echo(cx, packet, ascent, l4, kinds) else { return };
        self.stats.counters.count(Counter::Icmp6OutMsgs);
        self.stats.counters.count(Counter::Icmp6OutEchoReplies);
        self.reply(cx, packet, ascent, from);
    }

    /// Makes a reply of an echo request, if the asker is within its share.
    fn echo<A: Tables>(
        &mut self,
        cx: &mut Cx<'_>,
        mut packet: PacketBuf,
        ascent: Ascent<A>,
        l4: usize,
        kinds: (u8, u8),
    ) -> Option<PacketBuf> {
        let peer = ascent.heading.src_addr.to_ip();
        if self.icmp_limit.allow_echo(peer, cx.now, &mut cx.random.secret) != Allow::Yes {
            self.stats.counters.count(A::OUT_LIMITED_PEER);
            self.die(packet, DropReason::IcmpRateLimited);
            return None;
        }
        packet.trim_front(l4);
        match icmp::echo_reply(cx.pool, packet, kinds, &mut self.stats.access) {
            Ok(packet) => {
                self.stats.fates.answered += 1;
                Some(packet)
            }
            Err(packet) => {
                // Two more at most: the bytes to be written, and what is left of their chunk.
                let full = packet.chunk_count() + 2 > limits::CHUNKS_MAX;
                let reason = if full { DropReason::TooManyChunks } else { DropReason::NoBuffer };
                self.die(packet, reason);
                None
            }
        }
    }

    fn reply<A: Tables>(
        &mut self,
        cx: &mut Cx<'_>,
        mut packet: PacketBuf,
        ascent: Ascent<A>,
        from: A,
    ) {
        packet.clear_offload();
        let ends = Ends { src_addr: from, dst_addr: ascent.heading.src_addr };
        let (protocol, hop_limit, zone) = (A::ICMP, HOP_LIMIT, Some(ascent.iface));
        self.output(cx, Outgoing { packet, ends, protocol, hop_limit, zone });
    }

    /// An error about a packet of ours: told to the socket that sent it, by the quoted header.
    fn quoted<A: Tables>(
        &mut self,
        packet: PacketBuf,
        ascent: Ascent<A>,
        at: usize,
        error: floodwall_udp::IcmpError,
    ) {
        let access = &mut self.stats.access;
        let quote = crate::errors::quoted_flow::<A>(&packet, at, ascent.iface, access);
        let told = quote.is_some_and(|quote| {
            self.owns_addr(quote.local.ip())
                && matches!(self.udp.icmp_error(&quote, error), IcmpVerdict::Delivered(_))
        });
        if told {
            self.stats.fates.delivered += 1;
        } else {
            self.die(packet, DropReason::IcmpNoFlow);
        }
    }

    pub(crate) fn owns_addr(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(a) => self.owns(a),
            IpAddr::V6(a) => self.owns(a),
        }
    }
}
