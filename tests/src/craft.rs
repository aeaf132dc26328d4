//! Packets as a peer would make them, byte by byte: the tests break them afterwards.
//!
//! Called by the scenario tests. Invariant: what comes out is valid, checksums included, unless its
//! caller requests otherwise; IPv4 and IPv6 are made by the same calls. The host under test is
//! number [`HOST`], its peer [`PEER`] (see `ethernet_config`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Family, MacAddr};
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_wire::ipv6_ext::FragmentFields;
use floodwall_wire::ndp::NeighborAdvertisementFields;
use floodwall_wire::{
    ArpOperation, ArpPacket, Dscp, Ecn, EtherType, EthernetFields, Icmpv4Message, Icmpv6Message,
    IpProtocol, Ipv4Fields, Ipv4Header, Ipv6Fields, Ipv6Header, NdpOption, UdpFields, arp,
    ethernet, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, udp as udp_header,
};

/// The host under test.
pub const HOST: u8 = 1;
/// Its peer.
pub const PEER: u8 = 2;
/// Both families.
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// The hop limit of everything made here, which is also neighbour discovery's.
pub const HOP_LIMIT: u8 = 255;

/// The link address of a station.
#[must_use]
pub const fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

/// The address of a host of the test network.
#[must_use]
pub fn addr(family: Family, host: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, host).into(),
        Family::V6 => v6(host).into(),
    }
}

/// The IPv4 address of a host of the test network.
#[must_use]
pub const fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

/// The IPv6 address of a host of the test network.
#[must_use]
pub const fn v6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host as u16)
}

/// The protocol number of a family's ICMP.
#[must_use]
pub const fn icmp_of(family: Family) -> IpProtocol {
    match family {
        Family::V4 => IpProtocol::ICMPV4,
        Family::V6 => IpProtocol::ICMPV6,
    }
}

/// An Ethernet frame.
#[must_use]
pub fn frame(to: MacAddr, from: MacAddr, ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut out = [0; ethernet::HEADER_LEN];
    EthernetFields { dst_addr: to, src_addr: from, ether_type }.emit(&mut out);
    [&out, payload].concat()
}

/// An IP packet in a frame from the peer: to the host, or to the group that it is for.
#[must_use]
pub fn from_peer(packet: &[u8]) -> Vec<u8> {
    let version = packet.first().map_or(4, |b| b >> 4);
    let ether_type = if version == 6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let to = match destination(packet) {
        Some(IpAddr::V4(a)) if a.is_multicast() => MacAddr::of_ipv4_multicast(a),
        Some(IpAddr::V4(a)) if a.octets()[3] == 255 => MacAddr::BROADCAST,
        Some(IpAddr::V6(a)) if a.is_multicast() => MacAddr::of_ipv6_multicast(a),
        _ => mac(HOST),
    };
    frame(to, mac(PEER), ether_type, packet)
}

/// The destination of an IP packet, as far as its first bytes show it.
#[must_use]
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => packet.get(16..)?.first_chunk::<4>().map(|a| IpAddr::from(*a)),
        6 => packet.get(24..)?.first_chunk::<16>().map(|a| IpAddr::from(*a)),
        _ => None,
    }
}

/// An IP packet of either family.
///
/// # Panics
/// The families differ.
#[must_use]
pub fn ip(from: IpAddr, to: IpAddr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let len = ipv4::HEADER_LEN + payload.len();
            let mut out = [0; ipv4::HEADER_LEN];
            Ipv4Fields::new(src_addr, dst_addr, protocol, HOP_LIMIT, len as u16).emit(&mut out);
            [&out, payload].concat()
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let mut out = [0; ipv6::HEADER_LEN];
            let len = payload.len() as u16;
            Ipv6Fields::new(src_addr, dst_addr, protocol, HOP_LIMIT, len).emit(&mut out);
            [&out, payload].concat()
        }
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// An IPv4 packet with options, which are padded to a multiple of four bytes.
///
/// # Panics
/// The options are too long for a header.
#[must_use]
pub fn ipv4_with_options(fields: Ipv4Fields, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = [0; ipv4::HEADER_LEN_MAX];
    let len = ipv4::HEADER_LEN + options.len().next_multiple_of(4);
    let fields = Ipv4Fields { total_len: (len + payload.len()) as u16, ..fields };
    let len = fields.emit_with_options(options, &mut out).expect("at most 40 bytes of options");
    [&out[..len], payload].concat()
}

/// The fields of an IPv4 packet from the peer to the host; the length is set by
/// [`ipv4_with_options`].
#[must_use]
pub const fn ipv4_fields(protocol: IpProtocol) -> Ipv4Fields {
    Ipv4Fields::new(v4(PEER), v4(HOST), protocol, HOP_LIMIT, 0)
}

/// The sum of the pseudo header.
///
/// # Panics
/// The families differ.
pub fn pseudo(from: IpAddr, to: IpAddr, protocol: IpProtocol, len: usize) -> InternetSum {
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => pseudo_header_v4(a, b, protocol.0, len as u16),
        (IpAddr::V6(a), IpAddr::V6(b)) => pseudo_header_v6(a, b, protocol.0, len as u32),
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// A UDP datagram without IP header.
#[must_use]
pub fn udp_datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = udp_header::HEADER_LEN + payload.len();
    let fields = UdpFields { src_port: from.port(), dst_port: to.port(), len: len as u16 };
    let mut out = [0; udp_header::HEADER_LEN];
    let pseudo = pseudo(from.ip(), to.ip(), IpProtocol::UDP, len);
    fields.emit(pseudo, sum(payload), &mut out);
    [&out, payload].concat()
}

/// A UDP datagram in its IP packet.
#[must_use]
pub fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    ip(from.ip(), to.ip(), IpProtocol::UDP, &udp_datagram(from, to, payload))
}

/// A UDP datagram from the peer to a port of the host.
#[must_use]
pub fn udp_to_port(family: Family, port: u16, payload: &[u8]) -> Vec<u8> {
    udp((addr(family, PEER), 4000).into(), (addr(family, HOST), port).into(), payload)
}

/// An ICMPv4 message in its IP packet.
#[must_use]
pub fn icmpv4(from: Ipv4Addr, to: Ipv4Addr, message: Icmpv4Message, body: &[u8]) -> Vec<u8> {
    let mut out = [0; icmpv4::HEADER_LEN];
    message.emit(sum(body), &mut out);
    ip(from.into(), to.into(), IpProtocol::ICMPV4, &[&out, body].concat())
}

/// An ICMPv6 message without IP header.
#[must_use]
pub fn icmpv6_message(
    from: Ipv6Addr,
    to: Ipv6Addr,
    message: Icmpv6Message,
    body: &[u8],
) -> Vec<u8> {
    let mut out = [0; icmpv6::HEADER_LEN];
    let len = out.len() + body.len();
    message.emit(pseudo(from.into(), to.into(), IpProtocol::ICMPV6, len), sum(body), &mut out);
    [&out, body].concat()
}

/// An ICMPv6 message in its IP packet.
#[must_use]
pub fn icmpv6(from: Ipv6Addr, to: Ipv6Addr, message: Icmpv6Message, body: &[u8]) -> Vec<u8> {
    let bytes = icmpv6_message(from, to, message, body);
    ip(from.into(), to.into(), IpProtocol::ICMPV6, &bytes)
}

/// An echo request of either family.
///
/// # Panics
/// The families differ.
#[must_use]
pub fn echo(from: IpAddr, to: IpAddr, body: &[u8]) -> Vec<u8> {
    let (id, seq) = (7, 1);
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            icmpv4(a, b, Icmpv4Message::EchoRequest { id, seq }, body)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            icmpv6(a, b, Icmpv6Message::EchoRequest { id, seq }, body)
        }
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// The same IP packet with another traffic class (IPv4: TOS).
///
/// # Panics
/// It is no packet.
#[must_use]
pub fn with_class(packet: &[u8], class: u8) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    if bytes[0] >> 4 == 6 {
        (bytes[0], bytes[1]) = (0x60 | class >> 4, class << 4 | bytes[1] & 0xf);
        return bytes;
    }
    let mut fields = Ipv4Header::parse(packet, packet.len()).expect("an IPv4 header").fields();
    (fields.dscp, fields.ecn) = (Dscp::of_traffic_class(class), Ecn::of_traffic_class(class));
    fields.emit(bytes.first_chunk_mut().expect("a header"));
    bytes
}

/// "Port unreachable" about `quoted`, of either family, from the peer to the host.
#[must_use]
pub fn port_unreachable(family: Family, quoted: &[u8]) -> Vec<u8> {
    match family {
        Family::V4 => {
            let (code, next_hop_mtu) = (icmpv4::UnreachableCode::PORT, 0);
            let message = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu };
            icmpv4(v4(PEER), v4(HOST), message, quoted)
        }
        Family::V6 => {
            let code = icmpv6::UnreachableCode::PORT;
            icmpv6(v6(PEER), v6(HOST), Icmpv6Message::DestinationUnreachable { code }, quoted)
        }
    }
}

/// An IPv6 packet from the peer to the host with extension headers: each is its protocol number and
/// its bytes, the first of which is set to the number of what follows.
#[must_use]
pub fn ipv6_chain(headers: &[(IpProtocol, &[u8])], last: IpProtocol, payload: &[u8]) -> Vec<u8> {
    ipv6_chain_to(v6(HOST), headers, last, payload)
}

/// As [`ipv6_chain`], to another destination.
#[must_use]
pub fn ipv6_chain_to(
    to: Ipv6Addr,
    headers: &[(IpProtocol, &[u8])],
    last: IpProtocol,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (n, (_, header)) in headers.iter().enumerate() {
        let next = headers.get(n + 1).map_or(last, |(kind, _)| *kind);
        bytes.push(next.0);
        bytes.extend_from_slice(header.get(1..).unwrap_or_default());
    }
    bytes.extend_from_slice(payload);
    let first = headers.first().map_or(last, |(kind, _)| *kind);
    ip(v6(PEER).into(), to.into(), first, &bytes)
}

/// The bytes of an options header that holds `options`: its length is set, its first byte is not.
///
/// # Panics
/// They do not fill it.
#[must_use]
pub fn options_header(options: &[u8]) -> Vec<u8> {
    let len = options.len() + 2;
    assert!(len.is_multiple_of(8), "{len} bytes are no extension header");
    [&[0, (len / 8 - 1) as u8], options].concat()
}

/// The bytes of a fragment header, its first not set.
#[must_use]
pub fn fragment_header(offset: u16, more: bool) -> [u8; 8] {
    let [a, b] = (offset << 3 | u16::from(more)).to_be_bytes();
    [0, 0, a, b, 0, 0, 0, 9]
}

/// The frame with which a station answers the host's question for its link address.
///
/// # Panics
/// Never: the message is short.
#[must_use]
pub fn neighbor_answer(family: Family, host: u8) -> Vec<u8> {
    if family == Family::V4 {
        let packet = ArpPacket {
            operation: ArpOperation::REPLY,
            sender_link_addr: mac(host),
            sender_addr: v4(host),
            target_link_addr: mac(HOST),
            target_addr: v4(HOST),
        };
        let mut bytes = [0; arp::PACKET_LEN];
        packet.emit(&mut bytes);
        return frame(mac(HOST), mac(host), EtherType::ARP, &bytes);
    }
    let fields = NeighborAdvertisementFields {
        router: false,
        solicited: true,
        override_entry: true,
        target_addr: v6(host),
    };
    let mut bytes = [0; 64];
    let options = [NdpOption::TargetLinkAddr(mac(host))];
    let len = fields.emit_into(&options, v6(host), v6(HOST), &mut bytes).expect("it fits");
    from_peer(&ip(v6(host).into(), v6(HOST).into(), IpProtocol::ICMPV6, &bytes[..len]))
}

/// One fragment of an IP packet: its bytes `from..to` behind the headers that all fragments repeat,
/// under the identification `id`. Of IPv6 the fragment header stands directly behind the fixed one.
///
/// # Panics
/// The packet is no IP packet, or shorter.
#[must_use]
pub fn fragment(packet: &[u8], id: u32, from: usize, to: usize, more: bool) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        let header = Ipv4Header::parse(packet, packet.len()).expect("an IPv4 packet");
        let payload = &packet[header.header_len()..][from..to];
        let fields = Ipv4Fields {
            id: id as u16,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: from as u16,
            ..header.fields()
        };
        return ipv4_with_options(fields, header.options_bytes(), payload);
    }
    let header = Ipv6Header::parse(packet, packet.len()).expect("an IPv6 packet");
    let (next_header, offset) = (header.next_header(), from as u16);
    let mut fragment = [0; ipv6_ext::HEADER_LEN_MIN];
    FragmentFields { next_header, offset, more, id }.emit(&mut fragment);
    let payload = [&fragment, &packet[ipv6::HEADER_LEN..][from..to]].concat();
    let (from, to) = (header.src_addr(), header.dst_addr());
    ip(from.into(), to.into(), IpProtocol::FRAGMENT, &payload)
}

/// All fragments of an IP packet with at most `step` bytes of payload each.
#[must_use]
pub fn fragments(packet: &[u8], id: u32, step: usize) -> Vec<Vec<u8>> {
    let repeated = if packet[0] >> 4 == 4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let total = packet.len() - repeated;
    (0..total)
        .step_by(step)
        .map(|from| fragment(packet, id, from, total.min(from + step), from + step < total))
        .collect()
}

/// A membership message in its IP packet, as routers and hosts of the link send it: hop limit 1 and
/// the router alert option.
///
/// # Panics
/// The families differ.
#[must_use]
pub fn group_packet(from: IpAddr, to: IpAddr, message: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let fields = Ipv4Fields::new(src_addr, dst_addr, IpProtocol::IGMP, 1, 0);
            ipv4_with_options(fields, &[148, 4, 0, 0], message)
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let len = (8 + message.len()) as u16;
            let mut out = [0; ipv6::HEADER_LEN];
            Ipv6Fields::new(src_addr, dst_addr, IpProtocol::HOP_BY_HOP, 1, len).emit(&mut out);
            [&out[..], &[IpProtocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0], message].concat()
        }
        _ => panic!("{from} and {to} are of two families"),
    }
}
