//! ICMP errors that arrived: their meaning to a socket, and the flow that they quote.
//!
//! The quoted bytes come from an unverified source: they are parsed again from the start, and
//! accepted only where they match a socket of ours (RFC 8085 section 5.2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Counter, DropReason, Family, IfIndex, Instant, limits};
use floodwall_ip::ping::PingQuote;
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_tcp::{IcmpHeard, IcmpSays};
use floodwall_udp::{IcmpError, IcmpVerdict, QuotedDatagram};
use floodwall_wire::icmpv4::Icmpv4Type;
use floodwall_wire::icmpv6::Icmpv6Type;
use floodwall_wire::{
    IcmpReport, Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext,
};

use crate::ip::exceptions::PathUpdateFamily;
use crate::ip::ip_family::IpFamily;
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
    fn tcp(&self, packet: &PacketBuf, access: &mut AccessCounters) -> Option<((u16, u16), u32)> {
        let mut scratch = [0; 8];
        let [a, b, c, d, seq @ ..] = *packet.header_array(self.l4, &mut scratch, access)?;
        let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Some((ports, u32::from_be_bytes(seq)))
    }

    /// The flow of a UDP datagram, where both ports are quoted.
    fn udp(
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
    fn ping(&self, packet: &PacketBuf, access: &mut AccessCounters) -> Option<PingQuote> {
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
