//! Which worker owns a frame, by its bytes alone (decision D16).
//!
//! Called by `dispatch` for each packet that a device gave, before anything else looks at it, and
//! by the stack for datagrams that it has put together. TCP and UDP go by their flow; fragments by
//! source, destination and identification; echo requests and replies by their two addresses; ICMP
//! errors by the flow that they quote. Everything else, DHCP, and malformed packets go to the
//! control shard, which counts and answers it as a host with one core would.
//!
//! Invariants: never panics, for any bytes; the owner of a flow is that of [`Steering::flow`], of
//! an echo [`Steering::pair`] with [`ECHO`]. Nothing is checked here that does not change the
//! owner: lengths and checksums are the owner's business. Read first: RFC 791, RFC 8200 section 4,
//! RFC 792, RFC 4443.
//!
//! # Under flood
//! Reachable by any sender. Work per packet: a few loads and one keyed hash of 40 bytes; IPv6
//! extension headers cost a walk within [`ExtensionLimits`]. No state.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Steering, WorkerId};

use crate::ethernet::{self, EtherType, EthernetHeader};
use crate::icmpv4::Icmpv4Type;
use crate::icmpv6::Icmpv6Type;
use crate::ipv6_ext::ExtensionHeader;
use crate::ipv6_walk::{ExtensionLimits, ExtensionWalk, FragmentPlace, WalkEnd};
use crate::{IpProtocol, Ipv6Header, dhcpv6, field};

/// The word with which the two addresses of an echo are steered: none of a fragment's, which have
/// 16 bits in IPv4, is the same; in IPv6 one in 2^32 is, and then two meet at one worker.
pub const ECHO: u32 = 0xffff_ffff;
/// Bytes of an ICMP header before what an error quotes.
const ICMP_HEADER: usize = 8;
/// Extension headers of a quoted packet that are stepped over.
const QUOTED_HEADERS_MAX: usize = 4;
/// The ports of a DHCP server and client (RFC 2131 section 4.1).
const DHCP_PORTS: (u16, u16) = (67, 68);
/// The ports of a DHCPv6 server and client (RFC 8415 section 7.2). Servers answer from any port.
const DHCPV6_PORTS: (u16, u16) = (dhcpv6::SERVER_PORT, dhcpv6::CLIENT_PORT);

/// The owner of an Ethernet frame.
#[must_use]
#[inline]
pub fn frame(steering: &Steering, bytes: &[u8]) -> WorkerId {
    owner_of_frame(steering, bytes).unwrap_or(WorkerId::CONTROL)
}

/// The owner of an IP packet without link header.
#[must_use]
#[inline]
pub fn packet(steering: &Steering, bytes: &[u8]) -> WorkerId {
    let owner = match bytes.first().map(|first| first >> 4) {
        Some(4) => ipv4(steering, bytes),
        Some(6) => ipv6(steering, bytes),
        _ => None,
    };
    owner.unwrap_or(WorkerId::CONTROL)
}

#[inline]
fn owner_of_frame(steering: &Steering, bytes: &[u8]) -> Option<WorkerId> {
    let (link, packet) = bytes.split_first_chunk::<{ ethernet::HEADER_LEN }>()?;
    match EtherType(field::word::<12, _>(link)) {
        EtherType::IPV4 => ipv4(steering, packet),
        EtherType::IPV6 => ipv6(steering, packet),
        _ => tagged(steering, bytes),
    }
}

/// A priority tag is stepped over, as the stack does; other VLANs are not ours.
#[cold]
fn tagged(steering: &Steering, bytes: &[u8]) -> Option<WorkerId> {
    let header = EthernetHeader::parse(bytes).ok()?;
    let packet = bytes.get(header.header_len()..)?;
    match header.ether_type() {
        _ if header.tags().any(|tag| tag.id != 0) => None,
        EtherType::IPV4 => ipv4(steering, packet),
        EtherType::IPV6 => ipv6(steering, packet),
        _ => None,
    }
}

/// What is read of an IPv4 header, as far as its owner depends on it.
struct SteerV4<'a> {
    src_addr: Ipv4Addr,
    dst_addr: Ipv4Addr,
    protocol: IpProtocol,
    id: u16,
    /// Flags and offset; the flags "reserved" and "do not fragment" taken out.
    fragment: u16,
    behind: &'a [u8],
}

#[inline]
fn read_ipv4(bytes: &[u8]) -> Option<SteerV4<'_>> {
    let header = bytes.first_chunk::<20>()?;
    let first = header[0];
    let header_len = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header_len < 20 {
        return None;
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    Some(SteerV4 {
        src_addr: Ipv4Addr::new(a, b, c, d),
        dst_addr: Ipv4Addr::new(e, f, g, h),
        protocol: IpProtocol(header[9]),
        id: field::word::<4, _>(header),
        fragment: field::word::<6, _>(header) & 0x3fff,
        behind: bytes.get(header_len..)?,
    })
}

#[inline]
fn ipv4(steering: &Steering, bytes: &[u8]) -> Option<WorkerId> {
    let SteerV4 { src_addr, dst_addr, protocol, id, fragment, behind } = read_ipv4(bytes)?;
    let (src_addr, dst_addr) = (IpAddr::V4(src_addr), IpAddr::V4(dst_addr));
    if fragment != 0 {
        return Some(steering.pair(src_addr, dst_addr, id.into()));
    }
    if protocol != IpProtocol::ICMPV4 {
        return flow(steering, src_addr, dst_addr, protocol, behind);
    }
    let quoted = behind.get(ICMP_HEADER..).unwrap_or_default();
    match Icmpv4Type(*behind.first()?) {
        Icmpv4Type::ECHO_REQUEST | Icmpv4Type::ECHO_REPLY => {
            Some(steering.pair(src_addr, dst_addr, ECHO))
        }
        Icmpv4Type::DESTINATION_UNREACHABLE
        | Icmpv4Type::TIME_EXCEEDED
        | Icmpv4Type::PARAMETER_PROBLEM
        | Icmpv4Type::SOURCE_QUENCH => quoted_v4(steering, quoted),
        _ => None,
    }
}

#[inline]
fn ipv6(steering: &Steering, bytes: &[u8]) -> Option<WorkerId> {
    let header = bytes.first_chunk::<40>()?;
    let (src_addr, dst_addr) = v6_addresses(header)?;
    let protocol = IpProtocol(header[6]);
    match protocol {
        IpProtocol::UDP | IpProtocol::TCP => {
            flow(steering, src_addr, dst_addr, protocol, bytes.get(40..)?)
        }
        IpProtocol::ICMPV6 => icmpv6(steering, src_addr, dst_addr, bytes.get(40..)?),
        _ => extended(steering, bytes),
    }
}

#[inline]
fn v6_addresses(header: &[u8; 40]) -> Option<(IpAddr, IpAddr)> {
    if header[0] >> 4 != 6 {
        return None;
    }
    let (src_addr, rest) = header.get(8..)?.split_first_chunk::<16>()?;
    let dst_addr = rest.first_chunk::<16>()?;
    Some((Ipv6Addr::from(*src_addr).into(), Ipv6Addr::from(*dst_addr).into()))
}

/// IPv6 with extension headers: the same walk, with the same limits, as the stack's.
#[cold]
#[inline(never)]
fn extended(steering: &Steering, bytes: &[u8]) -> Option<WorkerId> {
    let header = Ipv6Header::parse(bytes, bytes.len()).ok()?;
    let (src_addr, dst_addr) = (header.src_addr().into(), header.dst_addr().into());
    let walk = ExtensionWalk::of_packet(&header, bytes.len(), ExtensionLimits::default());
    let (end, fragment) = walk.run(bytes, |_, _| {}).ok()?;
    if let Some(FragmentPlace { fields, .. }) = fragment.filter(|place| !place.fields.is_atomic()) {
        return Some(steering.pair(src_addr, dst_addr, fields.id));
    }
    let WalkEnd::UpperLayer { protocol, offset, .. } = end else { return None };
    let behind = bytes.get(offset..)?;
    match protocol {
        IpProtocol::ICMPV6 => icmpv6(steering, src_addr, dst_addr, behind),
        _ => flow(steering, src_addr, dst_addr, protocol, behind),
    }
}

fn icmpv6(
    steering: &Steering,
    src_addr: IpAddr,
    dst_addr: IpAddr,
    behind: &[u8],
) -> Option<WorkerId> {
    let quoted = behind.get(ICMP_HEADER..).unwrap_or_default();
    match Icmpv6Type(*behind.first()?) {
        Icmpv6Type::ECHO_REQUEST | Icmpv6Type::ECHO_REPLY => {
            Some(steering.pair(src_addr, dst_addr, ECHO))
        }
        Icmpv6Type::DESTINATION_UNREACHABLE
        | Icmpv6Type::PACKET_TOO_BIG
        | Icmpv6Type::TIME_EXCEEDED
        | Icmpv6Type::PARAMETER_PROBLEM => quoted_v6(steering, quoted),
        _ => None,
    }
}

/// The ports are the first four bytes of both protocols.
#[inline]
fn flow(
    steering: &Steering,
    src_addr: IpAddr,
    dst_addr: IpAddr,
    protocol: IpProtocol,
    behind: &[u8],
) -> Option<WorkerId> {
    if protocol != IpProtocol::UDP && protocol != IpProtocol::TCP {
        return None;
    }
    let ports = behind.first_chunk::<4>()?;
    let (src_port, dst_port) = (field::word::<0, _>(ports), field::word::<2, _>(ports));
    let is_dhcp = match dst_addr {
        IpAddr::V4(_) => (src_port, dst_port) == DHCP_PORTS || (dst_port, src_port) == DHCP_PORTS,
        IpAddr::V6(_) => dst_port == DHCPV6_PORTS.1 || (dst_port, src_port) == DHCPV6_PORTS,
    };
    if is_dhcp && protocol == IpProtocol::UDP {
        return None;
    }
    let ends = (SocketAddr::new(src_addr, src_port), SocketAddr::new(dst_addr, dst_port));
    Some(steering.flow(ends.0, ends.1, protocol.0))
}

/// What an ICMPv4 error is about: at least the header and eight bytes (RFC 792), more by RFC 1812.
#[cold]
fn quoted_v4(steering: &Steering, bytes: &[u8]) -> Option<WorkerId> {
    let SteerV4 { src_addr, dst_addr, protocol, fragment, behind, .. } = read_ipv4(bytes)?;
    // The ports are in the first fragment only.
    if fragment & 0x1fff != 0 {
        return None;
    }
    let (src_addr, dst_addr) = (src_addr.into(), dst_addr.into());
    match protocol {
        IpProtocol::ICMPV4 => Some(steering.pair(src_addr, dst_addr, ECHO)),
        _ => flow(steering, src_addr, dst_addr, protocol, behind),
    }
}

/// What an ICMPv6 error is about: as much as fitted (RFC 4443 section 3), so no length is trusted.
#[cold]
fn quoted_v6(steering: &Steering, bytes: &[u8]) -> Option<WorkerId> {
    let (header, mut behind) = bytes.split_first_chunk::<40>()?;
    let (src_addr, dst_addr) = v6_addresses(header)?;
    let mut protocol = IpProtocol(header[6]);
    for _ in 0..QUOTED_HEADERS_MAX {
        if !protocol.is_extension() {
            break;
        }
        let extension = ExtensionHeader::take(protocol, behind)?;
        if let ExtensionHeader::Fragment(fields) = extension
            && fields.offset != 0
        {
            return None;
        }
        protocol = extension.next_header();
        behind = behind.get(extension.header_len()..)?;
    }
    match protocol {
        IpProtocol::ICMPV6 => Some(steering.pair(src_addr, dst_addr, ECHO)),
        _ => flow(steering, src_addr, dst_addr, protocol, behind),
    }
}
