//! ICMP errors that arrived: their meaning to a socket, and the flow that they quote.
//!
//! The quoted bytes come from an unverified source: they are parsed again from the start, and
//! accepted only where they match a socket of ours (RFC 8085 section 5.2).

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, Family, Instant};
use floodwall_packet::PacketBuf;
use floodwall_tcp::{IcmpHeard, IcmpSays};
use floodwall_udp::{IcmpError, IcmpVerdict};
use floodwall_wire::icmpv4::Icmpv4Type;
use floodwall_wire::icmpv6::Icmpv6Type;
use floodwall_wire::{IcmpReport, Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4, icmpv6};

use crate::ip::exceptions::PathUpdateFamily;
use crate::ip::ip_family::IpFamily;
use crate::ip::quoted_packet::QuotedPacket;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// What an ICMPv4 error means to a socket (RFC 1122 section 4.2.3.9 lists the hard and soft ones).
pub(crate) fn of_icmpv4(message: Icmpv4Message) -> IcmpError {
    use icmpv4::UnreachableCode as Code;
    match message {
        Icmpv4Message::DestinationUnreachable { code: Code::PORT, .. } => {
            IcmpError::PortUnreachable
        }
        Icmpv4Message::DestinationUnreachable { code: Code::PROTOCOL, .. } => {
            IcmpError::ProtocolUnreachable
        }
        Icmpv4Message::DestinationUnreachable {
            code: Code::FRAGMENTATION_NEEDED,
            next_hop_mtu,
        } => IcmpError::PacketTooBig { mtu: u32::from(next_hop_mtu) },
        Icmpv4Message::DestinationUnreachable { code: Code::NETWORK, .. } => {
            IcmpError::NetUnreachable
        }
        Icmpv4Message::DestinationUnreachable { code: Code::PROHIBITED, .. } => {
            IcmpError::AdminProhibited
        }
        Icmpv4Message::TimeExceeded { .. } => IcmpError::TimeExceeded,
        Icmpv4Message::ParameterProblem { .. } => IcmpError::ParameterProblem,
        _ => IcmpError::HostUnreachable,
    }
}

/// What an ICMPv6 error means to a socket.
pub(crate) fn of_icmpv6(message: Icmpv6Message) -> IcmpError {
    use icmpv6::UnreachableCode as Code;
    match message {
        Icmpv6Message::DestinationUnreachable { code: Code::PORT } => IcmpError::PortUnreachable,
        Icmpv6Message::DestinationUnreachable { code: Code::NO_ROUTE | Code::REJECT_ROUTE } => {
            IcmpError::NetUnreachable
        }
        Icmpv6Message::DestinationUnreachable { code: Code::PROHIBITED | Code::SOURCE_POLICY } => {
            IcmpError::AdminProhibited
        }
        Icmpv6Message::PacketTooBig { mtu } => IcmpError::PacketTooBig { mtu },
        Icmpv6Message::TimeExceeded { .. } => IcmpError::TimeExceeded,
        Icmpv6Message::ParameterProblem { .. } => IcmpError::ParameterProblem,
        Icmpv6Message::Unknown { kind, code, .. } => IcmpError::Unknown { kind: kind.0, code },
        _ => IcmpError::HostUnreachable,
    }
}

/// What an error means to a TCP connection.
const fn tcp_says(error: IcmpError) -> IcmpSays {
    match error {
        IcmpError::PacketTooBig { mtu } => IcmpSays::TooBig(mtu),
        error if error.is_hard() => IcmpSays::Refused,
        _ => IcmpSays::Unreachable,
    }
}

impl Stack {
    pub(crate) fn error_v4(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        l4: usize,
        message: Icmpv4Message,
    ) {
        self.stats.counters.count(match message {
            Icmpv4Message::TimeExceeded { .. } => Counter::IcmpInTimeExcds,
            Icmpv4Message::ParameterProblem { .. } => Counter::IcmpInParmProbs,
            _ => Counter::IcmpInDestUnreachs,
        });
        let (offender, iface) = (ascent.heading.src_addr.into(), ascent.iface);
        let report = IcmpReport::of_v4(offender, iface, offender, &message);
        self.quoted::<Ipv4Addr>(cx, packet, l4, of_icmpv4(message), report);
    }

    pub(crate) fn error_v6(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        l4: usize,
        message: Icmpv6Message,
    ) {
        let counter = match message {
            Icmpv6Message::DestinationUnreachable { .. } => Some(Counter::Icmp6InDestUnreachs),
            Icmpv6Message::PacketTooBig { .. } => Some(Counter::Icmp6InPktTooBigs),
            Icmpv6Message::TimeExceeded { .. } => Some(Counter::Icmp6InTimeExcds),
            Icmpv6Message::ParameterProblem { .. } => Some(Counter::Icmp6InParmProblems),
            _ => None,
        };
        if let Some(counter) = counter {
            self.stats.counters.count(counter);
        }
        let (offender, iface) = (ascent.heading.src_addr.into(), ascent.iface);
        let report = IcmpReport::of_v6(offender, iface, offender, &message);
        self.quoted::<Ipv6Addr>(cx, packet, l4, of_icmpv6(message), report);
    }

    /// Handles an error about a packet of ours: reports it to the sockets that can have sent that,
    /// by the quoted headers, and records it where it is about the path (path MTU).
    fn quoted<A: PathUpdateFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        l4: usize,
        error: IcmpError,
        report: IcmpReport,
    ) {
        // Both families' ICMP headers have the same length.
        let at = l4 + icmpv6::HEADER_LEN;
        let quote = QuotedPacket::<A>::of(&packet, at, &mut self.stats.access);
        let (told, segment) = quote.map_or((false, IcmpHeard::Unknown), |quote| {
            let report = IcmpReport { dst_addr: quote.dst_addr.to_ip(), ..report };
            match self.speaks_as(quote.src_addr) {
                true => self.tell(cx.now, &packet, &quote, error, report),
                false => (false, IcmpHeard::Unknown),
            }
        });
        if matches!(error, IcmpError::PacketTooBig { .. }) {
            self.exception_message::<A>(cx, packet, l4, told, segment);
        } else if told {
            self.stats.outcomes.delivered += 1;
        } else {
            self.drop_packet(packet, DropReason::IcmpNoFlow);
        }
    }

    /// Reports a failed neighbour resolution to the sockets that sent the waiting packet (RFC 4861
    /// section 7.2.2), as if the packet's source address had sent the ICMP error.
    pub(crate) fn tell_unreachable<A: IpFamily>(&mut self, now: Instant, packet: &PacketBuf) {
        let Some(quote) = QuotedPacket::<A>::of(packet, 0, &mut self.stats.access) else { return };
        let (kind, code) = match A::FAMILY {
            Family::V4 => (Icmpv4Type::DESTINATION_UNREACHABLE.0, icmpv4::UnreachableCode::HOST.0),
            Family::V6 => {
                (Icmpv6Type::DESTINATION_UNREACHABLE.0, icmpv6::UnreachableCode::ADDRESS.0)
            }
        };
        let (offender, dst_addr) = (quote.src_addr.to_ip(), quote.dst_addr.to_ip());
        let report = IcmpReport { offender, iface: packet.iface(), dst_addr, kind, code, info: 0 };
        // Whether the error is reported to the program is the socket's own setting.
        let _ = self.tell(now, packet, &quote, IcmpError::HostUnreachable, report);
    }

    /// Reports an error to the socket of the quoted flow. Returns whether there was one, and what
    /// a TCP connection made of it.
    fn tell<A: IpFamily>(
        &mut self,
        now: Instant,
        packet: &PacketBuf,
        quote: &QuotedPacket<A>,
        error: IcmpError,
        report: IcmpReport,
    ) -> (bool, IcmpHeard) {
        let protocol = quote.protocol;
        let overheard =
            self.sockets.raw.hears(A::FAMILY, protocol) && self.sockets.raw.error(protocol, report);
        let mut segment = IcmpHeard::Unknown;
        let asked = if protocol == IpProtocol::UDP {
            quote.udp(packet, report.iface, &mut self.stats.access).is_some_and(|flow| {
                match self.sockets.udp.icmp_error(&flow, error) {
                    IcmpVerdict::Delivered(id) => {
                        self.sockets.udp.note_report(id, report);
                        true
                    }
                    _ => false,
                }
            })
        } else if protocol == IpProtocol::TCP {
            let quoted = quote.tcp(packet, &mut self.stats.access);
            quoted.is_some_and(|((ours, theirs), seq)| {
                let local = (quote.src_addr.to_ip(), ours);
                let remote = (quote.dst_addr.to_ip(), theirs);
                segment = self.tcp_told(now, local, remote, report.iface, seq, tcp_says(error));
                segment == IcmpHeard::Accepted
            })
        } else if protocol == A::ICMP {
            let quote = quote.ping(packet, &mut self.stats.access);
            quote.is_some_and(|quote| self.sockets.ping.error(&quote, report))
        } else {
            false
        };
        (overheard || asked, segment)
    }
}
