//! ICMP errors that arrived: what they mean to a socket, and which flow they quote.
//!
//! The quoted bytes are a stranger's: they are parsed again from the start, and believed only
//! where a socket of ours matches (RFC 8085 section 5.2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Counter, DropReason, IfIndex};
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_udp::{IcmpError, IcmpVerdict, Quote};
use floodwall_wire::{Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4, icmpv6, ipv4, ipv6};

use crate::rx::Ascent;
use crate::shard::Stack;
use crate::tables::Tables;

/// Bytes of the quoted transport header that are looked at: both ports.
const PORTS_LEN: usize = 4;

/// What an ICMPv4 error tells a socket (RFC 1122 section 4.2.3.9 has the hard and soft ones).
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

/// What an ICMPv6 error tells a socket.
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

impl Stack {
    pub(crate) fn error_v4(
        &mut self,
        packet: PacketBuf,
        ascent: Ascent<Ipv4Addr>,
        l4: usize,
        message: Icmpv4Message,
    ) {
        self.stats.counters.count(match message {
            Icmpv4Message::TimeExceeded { .. } => Counter::IcmpInTimeExcds,
            Icmpv4Message::ParameterProblem { .. } => Counter::IcmpInParmProbs,
            _ => Counter::IcmpInDestUnreachs,
        });
        self.quoted(packet, ascent, l4 + icmpv4::HEADER_LEN, of_icmpv4(message));
    }

    pub(crate) fn error_v6(
        &mut self,
        packet: PacketBuf,
        ascent: Ascent<Ipv6Addr>,
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
        self.quoted(packet, ascent, l4 + icmpv6::HEADER_LEN, of_icmpv6(message));
    }

    /// An error about a packet of ours: told to the socket that sent it, by the quoted header.
    fn quoted<A: Tables>(
        &mut self,
        packet: PacketBuf,
        ascent: Ascent<A>,
        at: usize,
        error: IcmpError,
    ) {
        let access = &mut self.stats.access;
        let quote = quoted_flow::<A>(&packet, at, ascent.iface, access);
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
}

/// The flow of the packet quoted at `at`, as we would have sent it: its source is our end. `None`
/// where the quote is no UDP packet of this family, is a later fragment, or ends before the ports.
/// Extension headers in the quote are not walked: we send none.
pub(crate) fn quoted_flow<A: Tables>(
    packet: &PacketBuf,
    at: usize,
    iface: IfIndex,
    access: &mut AccessCounters,
) -> Option<Quote> {
    let mut scratch = [0; ipv6::HEADER_LEN];
    let (src_addr, dst_addr, protocol, l4) = if A::BITS == 32 {
        let fixed = packet.header(at, ipv4::HEADER_LEN, &mut scratch, access)?;
        let fixed: &[u8; ipv4::HEADER_LEN] = fixed.first_chunk()?;
        let later = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0;
        let len = ipv4::header_len(fixed).filter(|_| !later)?;
        let addr = |from: usize| -> Option<IpAddr> {
            Some(IpAddr::from(*fixed.get(from..)?.first_chunk::<4>()?))
        };
        (addr(12)?, addr(16)?, fixed[9], at + len)
    } else {
        let fixed = packet.header(at, ipv6::HEADER_LEN, &mut scratch, access)?;
        let fixed: &[u8; ipv6::HEADER_LEN] = fixed.first_chunk()?;
        if fixed[0] >> 4 != 6 {
            return None;
        }
        let addr = |from: usize| -> Option<IpAddr> {
            Some(IpAddr::from(*fixed.get(from..)?.first_chunk::<16>()?))
        };
        (addr(8)?, addr(24)?, fixed[6], at + ipv6::HEADER_LEN)
    };
    if protocol != IpProtocol::UDP.0 {
        return None;
    }
    let mut scratch = [0; PORTS_LEN];
    let ports: &[u8; PORTS_LEN] = packet.header_array(l4, &mut scratch, access)?;
    let end = |addr, port| SocketAddr::new(addr, u16::from_be_bytes(port));
    Some(Quote {
        local: end(src_addr, [ports[0], ports[1]]),
        remote: end(dst_addr, [ports[2], ports[3]]),
        iface,
    })
}
