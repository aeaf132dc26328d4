//! Unsolicited messages of the link: neighbours, routers, redirects, group queries.
//!
//! Called by `blast.rs` for each packet of a stream that sends them. Invariants: every message is
//! right in its checksums, lengths and hop limit, so that it is accepted as far as an unverified
//! station on the link can be; a frame takes [`FRAME_MAX`] bytes at most; the same randomness gives
//! the same bytes. IPv4 and IPv6 are treated alike: ARP and neighbour discovery, IGMP and MLD, the
//! router advertisements of RFC 1256 and of RFC 4861. Reading: RFC 826, 1256, 3376, 3810, 4191,
//! 4861, 8106. Not here: which receivers accept them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{MacAddr, PublicRandom, solicited_node};
use floodwall_checksum::{InternetSum, pseudo_header_v6, sum};
use floodwall_wire::ipv6_ext::emit_options;
use floodwall_wire::ndp::{
    Lifetime, NdpOption, NeighborAdvertisementFields, NeighborSolicitationFields, Preference,
    PrefixInfo, RedirectFields, RouteInfo, RouterAdvertisementFields,
};
use floodwall_wire::{
    ArpOperation, ArpPacket, EtherType, EthernetFields, Icmpv4Message, Icmpv4Type, Icmpv6Message,
    Icmpv6Type, IpProtocol, Ipv4Fields, Ipv6Fields, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6,
};

use crate::station::StationMedium;

/// The largest frame that is made.
pub(crate) const FRAME_MAX: usize = 1024;
/// The hop limit of neighbour discovery (RFC 4861 section 7.1).
const ND_HOPS: u8 = 255;
/// The hop limit of group queries (RFC 3810 section 5, RFC 3376 section 4).
const GROUP_HOPS: u8 = 1;
/// IPv4's router alert (RFC 2113), with a length and no value.
const ROUTER_ALERT_V4: [u8; 4] = [148, 4, 0, 0];
/// IPv6's router alert (RFC 2711) of MLD.
const ROUTER_ALERT_V6: [u8; 4] = [5, 2, 0, 0];
/// Every host of the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The kind of a forged message. Sources and destinations are the stream's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// Requests for the destination address: ARP requests, neighbour solicitations.
    NeighborRequests,
    /// The source address is mine: ARP replies to one or to all, neighbour advertisements with any
    /// flags, each time with another link address.
    NeighborClaims,
    /// The source is a router, with random prefixes, routes, name servers and parameters; a few
    /// have a lifetime of zero.
    RouterAdvertisements,
    /// Redirects from the source.
    Redirects,
    /// Group queries: every version of IGMP and MLD, for all groups or one.
    GroupQueries,
}

/// Source and destination of the message.
#[derive(Clone, Copy)]
pub(crate) struct ForgedAddrs {
    pub(crate) medium: StationMedium,
    /// Our link address, and the peer's.
    pub(crate) link: (MacAddr, MacAddr),
    pub(crate) addrs: (IpAddr, IpAddr),
}

/// Writes one message as a frame to `out`.
pub(crate) fn write(
    forgery: Forgery,
    ends: ForgedAddrs,
    random: &mut PublicRandom,
    out: &mut Vec<u8>,
) {
    out.clear();
    match ends.addrs {
        (IpAddr::V4(from), IpAddr::V4(to)) => match forgery {
            Forgery::NeighborRequests => arp(ends, ArpOperation::REQUEST, from, to, random, out),
            Forgery::NeighborClaims => arp(ends, ArpOperation::REPLY, from, to, random, out),
            Forgery::RouterAdvertisements => router_v4(ends, (from, to), random, out),
            Forgery::Redirects => redirect_v4(ends, (from, to), random, out),
            Forgery::GroupQueries => igmp_query(ends, from, random, out),
        },
        (IpAddr::V6(from), IpAddr::V6(to)) => match forgery {
            Forgery::NeighborRequests => solicitation(ends, (from, to), random, out),
            Forgery::NeighborClaims => advertisement(ends, (from, to), random, out),
            Forgery::RouterAdvertisements => router_v6(ends, (from, to), random, out),
            Forgery::Redirects => redirect_v6(ends, (from, to), random, out),
            Forgery::GroupQueries => mld_query(ends, from, random, out),
        },
        // A plan of two families does not come here.
        _ => {}
    }
}

/// A station address that is not assigned.
fn random_mac(random: &mut PublicRandom) -> MacAddr {
    let [a, b, c, d, e, ..] = random.next_u64().to_le_bytes();
    MacAddr([2, a, b, c, d, e])
}

fn random_v4(random: &mut PublicRandom) -> Ipv4Addr {
    Ipv4Addr::from_bits(random.next_u64() as u32)
}

fn random_v6(random: &mut PublicRandom) -> Ipv6Addr {
    let (high, low) = (random.next_u64(), random.next_u64());
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

/// A unique local address (RFC 4193): a prefix of these diverts only the traffic of its users. More
/// specific routes than the default may be advertised by any neighbour (RFC 4191).
fn random_local(random: &mut PublicRandom) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfd << 120 | random_v6(random).to_bits() >> 8)
}

/// One chance in `of`.
fn one_in(of: u64, random: &mut PublicRandom) -> bool {
    random.below(of) == 0
}

fn link_header(ends: ForgedAddrs, to: MacAddr, ether_type: EtherType, out: &mut Vec<u8>) {
    if ends.medium == StationMedium::Ethernet {
        let mut header = [0; ethernet::HEADER_LEN];
        EthernetFields { dst_addr: to, src_addr: ends.link.0, ether_type }.emit(&mut header);
        out.extend_from_slice(&header);
    }
}

fn arp(
    ends: ForgedAddrs,
    operation: ArpOperation,
    from: Ipv4Addr,
    to: Ipv4Addr,
    random: &mut PublicRandom,
    out: &mut Vec<u8>,
) {
    let request = operation == ArpOperation::REQUEST;
    // An announcement has the sender's address as sender and target, and is broadcast.
    let announces = !request && one_in(2, random);
    let all = request || announces;
    let packet = ArpPacket {
        operation,
        sender_link_addr: random_mac(random),
        sender_addr: from,
        target_link_addr: if request { MacAddr::ZERO } else { ends.link.1 },
        target_addr: if announces { from } else { to },
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    link_header(ends, if all { MacAddr::BROADCAST } else { ends.link.1 }, EtherType::ARP, out);
    out.extend_from_slice(&bytes);
}

/// A packet of IPv4 with these options.
fn packet_v4(
    ends: ForgedAddrs,
    fields: Ipv4Fields,
    options: &[u8],
    body: &[u8],
    out: &mut Vec<u8>,
) {
    let to = if fields.dst_addr.is_multicast() {
        MacAddr::of_ipv4_multicast(fields.dst_addr)
    } else {
        ends.link.1
    };
    link_header(ends, to, EtherType::IPV4, out);
    let len = ipv4::HEADER_LEN + options.len() + body.len();
    let fields = Ipv4Fields { total_len: len as u16, ..fields };
    let mut header = [0; ipv4::HEADER_LEN_MAX];
    // The options are four bytes or none.
    let len = fields.emit_with_options(options, &mut header).unwrap_or(0);
    out.extend_from_slice(header.get(..len).unwrap_or_default());
    out.extend_from_slice(body);
}

/// A packet of IPv6 to a group or to the peer; `body` has its checksum.
fn packet_v6(ends: ForgedAddrs, fields: Ipv6Fields, parts: [&[u8]; 2], out: &mut Vec<u8>) {
    let to = if fields.dst_addr.is_multicast() {
        MacAddr::of_ipv6_multicast(fields.dst_addr)
    } else {
        ends.link.1
    };
    link_header(ends, to, EtherType::IPV6, out);
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut header = [0; ipv6::HEADER_LEN];
    Ipv6Fields { payload_len: len as u16, ..fields }.emit(&mut header);
    out.extend_from_slice(&header);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A message of neighbour discovery, written by `message`.
fn discovery(
    ends: ForgedAddrs,
    from: Ipv6Addr,
    to: Ipv6Addr,
    out: &mut Vec<u8>,
    message: impl FnOnce(&mut [u8]) -> Result<usize, floodwall_wire::BufferTooShort>,
) {
    let mut body = [0; FRAME_MAX - ethernet::HEADER_LEN - ipv6::HEADER_LEN];
    // The longest advertisement that is made here takes half of it.
    let len = message(&mut body).unwrap_or(0);
    let fields = Ipv6Fields::new(from, to, IpProtocol::ICMPV6, ND_HOPS, 0);
    packet_v6(ends, fields, [body.get(..len).unwrap_or_default(), &[]], out);
}

type V6Ends = (Ipv6Addr, Ipv6Addr);
type V4Ends = (Ipv4Addr, Ipv4Addr);

fn solicitation(
    ends: ForgedAddrs,
    (from, to): V6Ends,
    random: &mut PublicRandom,
    out: &mut Vec<u8>,
) {
    let group = solicited_node(to);
    let option = [NdpOption::SourceLinkAddr(random_mac(random))];
    discovery(ends, from, group, out, |body| {
        NeighborSolicitationFields { target_addr: to }.emit_into(&option, from, group, body)
    });
}

fn advertisement(
    ends: ForgedAddrs,
    (from, to): V6Ends,
    random: &mut PublicRandom,
    out: &mut Vec<u8>,
) {
    let to = if one_in(2, random) { ALL_NODES } else { to };
    let flags = random.next_u64();
    let fields = NeighborAdvertisementFields {
        router: flags & 1 != 0,
        // To all, it cannot be an answer (RFC 4861 section 7.1.2).
        solicited: flags & 2 != 0 && !to.is_multicast(),
        override_entry: flags & 4 != 0,
        target_addr: from,
    };
    let option = [NdpOption::TargetLinkAddr(random_mac(random))];
    discovery(ends, from, to, out, |body| fields.emit_into(&option, from, to, body));
}

fn router_v6(ends: ForgedAddrs, (from, to): V6Ends, random: &mut PublicRandom, out: &mut Vec<u8>) {
    let lifetime = |random: &mut PublicRandom| match random.below(4) {
        0 => Lifetime::INFINITE,
        1 => Lifetime::ZERO,
        _ => Lifetime::from_secs(random.below(100_000) as u32),
    };
    let preference = |random: &mut PublicRandom| match random.below(4) {
        0 | 1 => Preference::High,
        2 => Preference::Medium,
        _ => Preference::Low,
    };
    let servers = [random_v6(random).octets(), random_v6(random).octets()];
    let mut options = [NdpOption::SourceLinkAddr(random_mac(random)); 12];
    for (n, place) in options.iter_mut().enumerate().skip(1) {
        *place = match n {
            1..=4 => NdpOption::PrefixInfo(PrefixInfo {
                prefix: random_local(random),
                prefix_len: if one_in(4, random) { 8 + random.below(248) as u8 } else { 64 },
                on_link: !one_in(4, random),
                autonomous: !one_in(4, random),
                valid_lifetime: lifetime(random),
                preferred_lifetime: lifetime(random),
            }),
            5..=8 => NdpOption::RouteInfo(RouteInfo {
                prefix: random_local(random),
                prefix_len: 8 + random.below(121) as u8,
                preference: preference(random),
                lifetime: lifetime(random),
            }),
            9 => NdpOption::Mtu(random.next_u64() as u32 >> random.below(32)),
            10 => NdpOption::RecursiveDns { lifetime: lifetime(random), servers: &servers },
            _ => NdpOption::DnsSearch {
                lifetime: lifetime(random),
                names: b"\x05flood\x07invalid\0\0",
            },
        };
    }
    let millis = |random: &mut PublicRandom| {
        Duration::from_millis(u64::from(random.next_u64() as u32 >> random.below(32)))
    };
    let fields = RouterAdvertisementFields {
        hop_limit: Some(random.below(256) as u8),
        managed: one_in(2, random),
        other: one_in(2, random),
        preference: preference(random),
        router_lifetime: Duration::from_secs(random.below(3).min(1) * random.below(65_536)),
        reachable_time: millis(random),
        retrans_timer: millis(random),
    };
    let count = 1 + random.below(options.len() as u64) as usize;
    let options = options.get(..count).unwrap_or_default();
    discovery(ends, from, to, out, |body| fields.emit_into(options, from, to, body));
}

fn redirect_v6(
    ends: ForgedAddrs,
    (from, to): V6Ends,
    random: &mut PublicRandom,
    out: &mut Vec<u8>,
) {
    // A group has no better way.
    let dst_addr = Ipv6Addr::from_bits(random_v6(random).to_bits() >> 3 | 1 << 125);
    // A better router, or the destination on the link itself.
    let router = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(random.next_u64()));
    let target_addr = if one_in(2, random) { router } else { dst_addr };
    let mut quote = [0; ipv6::HEADER_LEN];
    Ipv6Fields::new(to, dst_addr, IpProtocol::NO_NEXT_HEADER, 64, 0).emit(&mut quote);
    let options =
        [NdpOption::TargetLinkAddr(random_mac(random)), NdpOption::RedirectedHeader(&quote)];
    discovery(ends, from, to, out, |body| {
        RedirectFields { target_addr, dst_addr }.emit_into(&options, from, to, body)
    });
}

fn icmp_v4(
    ends: ForgedAddrs,
    (from, to): V4Ends,
    message: Icmpv4Message,
    body: &[u8],
    out: &mut Vec<u8>,
) {
    let mut head = [0; icmpv4::HEADER_LEN];
    message.emit(sum(body), &mut head);
    let at = out.len();
    let len = ipv4::HEADER_LEN + head.len();
    let fields = Ipv4Fields::new(from, to, IpProtocol::ICMPV4, 64, len as u16);
    packet_v4(ends, fields, &[], &head, out);
    out.extend_from_slice(body);
    // The length is known by now: it is put in together with its checksum.
    let start = at + if ends.medium == StationMedium::Ethernet { ethernet::HEADER_LEN } else { 0 };
    let fields = Ipv4Fields { total_len: (len + body.len()) as u16, ..fields };
    if let Some(header) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        fields.emit(header);
    }
}

/// RFC 1256: the number of addresses, two 32-bit words for each, a lifetime; then address and
/// preference.
fn router_v4(ends: ForgedAddrs, addrs: V4Ends, random: &mut PublicRandom, out: &mut Vec<u8>) {
    let [high, low] = (random.next_u64() as u16).to_be_bytes();
    let kind = Icmpv4Type(9);
    let message = Icmpv4Message::Unknown { kind, code: 0, rest: [1, 2, high, low] };
    let [a, b, c, d] = addrs.0.octets();
    icmp_v4(ends, addrs, message, &[a, b, c, d, 0x7f, 0xff, 0xff, 0xff], out);
}

fn redirect_v4(ends: ForgedAddrs, addrs: V4Ends, random: &mut PublicRandom, out: &mut Vec<u8>) {
    let (code, gateway) = (random.below(4) as u8, random_v4(random));
    let mut quote = [0; ipv4::HEADER_LEN + 8];
    if let Some(header) = quote.first_chunk_mut() {
        Ipv4Fields::new(addrs.1, random_v4(random), IpProtocol::UDP, 64, 28).emit(header);
    }
    icmp_v4(ends, addrs, Icmpv4Message::Redirect { code, gateway }, &quote, out);
}

/// RFC 3376 section 4.1: version 1 has no delay, version 2 no more than eight bytes.
fn igmp_query(ends: ForgedAddrs, from: Ipv4Addr, random: &mut PublicRandom, out: &mut Vec<u8>) {
    let version = 1 + random.below(3);
    let all = one_in(2, random);
    let group = Ipv4Addr::from_bits(0xe000_0000 | random.next_u64() as u32 >> 4);
    let mut bytes = [0; 12 + 4 * 4];
    let delay = if version == 1 { 0 } else { random.below(256) as u8 };
    let (fixed, rest) = bytes.split_at_mut(8);
    fixed.copy_from_slice(&[0x11, delay, 0, 0, 0, 0, 0, 0]);
    if !all && let Some(place) = fixed.last_chunk_mut() {
        *place = group.octets();
    }
    let sources = if all { 0 } else { random.below(5) as u8 };
    if let Some((head, addrs)) = rest.split_first_chunk_mut::<4>() {
        *head = [random.below(16) as u8, random.below(256) as u8, 0, sources];
        addrs.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
    }
    let len = if version == 3 { 12 + 4 * usize::from(sources) } else { 8 };
    let bytes = bytes.get_mut(..len).unwrap_or_default();
    let check = sum(bytes).finish();
    bytes.iter_mut().skip(2).zip(check.to_be_bytes()).for_each(|(to, from)| *to = from);
    let to = if all { Ipv4Addr::new(224, 0, 0, 1) } else { group };
    let fields = Ipv4Fields::new(from, to, IpProtocol::IGMP, GROUP_HOPS, 0);
    let alert: &[u8] = if version == 1 { &[] } else { &ROUTER_ALERT_V4 };
    packet_v4(ends, fields, alert, bytes, out);
}

/// RFC 3810 section 5.1: version 1 ends behind the group.
fn mld_query(ends: ForgedAddrs, from: Ipv6Addr, random: &mut PublicRandom, out: &mut Vec<u8>) {
    let all = one_in(2, random);
    let group = Ipv6Addr::from_bits(0xff02 << 112 | u128::from(random.next_u64()));
    let sources = if all { 0 } else { random.below(5) as u8 };
    let mut body = [0; 20 + 16 * 4];
    if let Some((place, rest)) = body.split_first_chunk_mut::<16>() {
        *place = if all { [0; 16] } else { group.octets() };
        if let Some((head, addrs)) = rest.split_first_chunk_mut::<4>() {
            *head = [random.below(16) as u8, random.below(256) as u8, 0, sources];
            addrs.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        }
    }
    let len = if one_in(2, random) { 16 } else { 20 + 16 * usize::from(sources) };
    let body = body.get(..len).unwrap_or_default();
    let [high, low] = (random.next_u64() as u16).to_be_bytes();
    let (kind, rest) = (Icmpv6Type::LISTENER_QUERY, [high, low, 0, 0]);
    let to = if all { ALL_NODES } else { group };
    let total = (icmpv6::HEADER_LEN + len) as u32;
    let pseudo: InternetSum = pseudo_header_v6(from, to, IpProtocol::ICMPV6.0, total);
    let mut message = [0; 8 + icmpv6::HEADER_LEN];
    let (alert, head) = message.split_at_mut(8);
    // Eight bytes hold one option of four.
    let _ = emit_options(IpProtocol::ICMPV6, &ROUTER_ALERT_V6, alert);
    if let Some(head) = head.first_chunk_mut() {
        Icmpv6Message::Unknown { kind, code: 0, rest }.emit(pseudo, sum(body), head);
    }
    let fields = Ipv6Fields::new(from, to, IpProtocol::HOP_BY_HOP, GROUP_HOPS, 0);
    packet_v6(ends, fields, [&message, body], out);
}

#[cfg(test)]
#[path = "forge/tests.rs"]
mod tests;
