//! Forged statements about paths: "packet too big" and redirects that quote existing flows.
//!
//! Read by `flood.rs` when a stretch is prepared. An unverified source queries the service, and
//! quotes the answer that it must have got: so the host has no means to refuse what follows, and
//! only bounds, a rate and the size of its memory limit it. Others quote answers to honest clients,
//! with ports guessed among those in use. Redirects come with the honest router's address and lead
//! to neighbours that do not exist. Invariant: no question bears an honest client's address.
//! Reading: RFC 1191, RFC 8201, RFC 4861 section 8, RFC 5927 section 7.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Family, PublicRandom};
use floodwall_checksum::{pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_wire::ndp::RedirectFields;
use floodwall_wire::{
    EtherType, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Fields, Ipv6Fields, NdpOption,
    UdpFields, icmpv4, icmpv6, ipv4, ipv6, udp,
};

use crate::hostile::link_header;
use crate::topology::{self, TopologyHost};

/// Unverified sources of each family: as many as a host remembers of those that it has answered.
const UNKNOWN_HOSTS: u32 = 1024;
/// In how many networks they are: a host remembers so many of each.
const PATH_NETWORKS: u32 = 128;
/// The original length in the quoted packets.
const QUOTED_LEN: u16 = 1500;
/// Ports that honest clients use in a phase, in turn, and the first of them.
const CLIENT_PORTS: (u16, u64) = (40_000, 64);
/// The MTU of their paths: a large answer still goes in three pieces. With the minimum that is
/// accepted it would be eight, which is more than may wait for a neighbour's link address.
const CLIENT_MTU: u32 = 1400;

/// An end of a flow of the service.
#[derive(Clone, Copy)]
struct ForgedRouter {
    addr: IpAddr,
    port: u16,
}

/// The content of one forged message about a flow.
#[derive(Clone, Copy)]
enum ForgedMessage {
    TooBig(u32),
    Redirect,
}

/// One question per unverified source, the likeliest message about its answer, and one that is easy
/// to recognize as forged; and one about a client.
pub(crate) fn too_big(random: &mut PublicRandom) -> Vec<Vec<u8>> {
    let mut frames = Vec::with_capacity(8 * UNKNOWN_HOSTS as usize);
    for n in 0..UNKNOWN_HOSTS {
        for family in topology::FAMILIES {
            let floor = if family == Family::V4 { 552 } else { 1280 };
            let likely = floor + random.below(1500 - u64::from(floor)) as u32;
            let silly = [0, 68, floor - 1, 1500, 9000, 65_535];
            let silly = silly.get(random.below(6) as usize).copied().unwrap_or(0);
            let unknown = unknown(family, n);
            let other_port = ForgedRouter { port: unknown.port ^ 1, ..unknown };
            let client = client(&TopologyHost::ALL, family, random);
            let about = if n % 2 == 0 { unknown } else { other_port };
            frames.push(question(unknown));
            frames.extend(lie(unknown, ForgedMessage::TooBig(likely), random));
            frames.extend(lie(about, ForgedMessage::TooBig(silly), random));
            frames.extend(lie(client, ForgedMessage::TooBig(CLIENT_MTU), random));
        }
    }
    frames
}

/// Redirects about clients behind the router, and about destinations without traffic.
pub(crate) fn redirects(random: &mut PublicRandom) -> Vec<Vec<u8>> {
    let mut frames = Vec::with_capacity(4 * UNKNOWN_HOSTS as usize);
    for n in 0..UNKNOWN_HOSTS {
        for family in topology::FAMILIES {
            let client = client(&[TopologyHost::Far], family, random);
            let other_port = ForgedRouter { port: 1, ..unknown(family, n) };
            frames.extend(lie(client, ForgedMessage::Redirect, random));
            frames.extend(lie(other_port, ForgedMessage::Redirect, random));
        }
    }
    frames
}

/// The `n`th of a family, none of them honest.
fn unknown(family: Family, n: u32) -> ForgedRouter {
    let (network, host) = (n % PATH_NETWORKS, n / PATH_NETWORKS + 1);
    let addr = match family {
        Family::V4 => {
            let net = Ipv4Addr::new(198, 19, 0, 0).to_bits();
            Ipv4Addr::from_bits(net | network << 8 | host).into()
        }
        Family::V6 => {
            Ipv6Addr::new(0x2001, 2, 0, 0x100 + network as u16, 0, 0, 0, host as u16).into()
        }
    };
    ForgedRouter { addr, port: 30_000 + n as u16 }
}

/// An honest client, with a port that it may be using.
fn client(parties: &[TopologyHost], family: Family, random: &mut PublicRandom) -> ForgedRouter {
    let addrs: Vec<IpAddr> = parties
        .iter()
        .flat_map(|party| topology::client_addrs(*party, family))
        .map(|cidr| cidr.addr())
        .collect();
    let at = random.below(addrs.len().max(1) as u64) as usize;
    let addr = addrs.get(at).copied().unwrap_or(topology::server_addr(family));
    let (first, count) = CLIENT_PORTS;
    ForgedRouter { addr, port: first + random.below(count) as u16 }
}

/// A question of an unverified source to the service.
fn question(from: ForgedRouter) -> Vec<u8> {
    const LEN: usize = udp::HEADER_LEN + 18;
    let mut datagram = [0; LEN];
    let fields =
        UdpFields { src_port: from.port, dst_port: topology::SERVICE_PORT, len: LEN as u16 };
    let pseudo = match from.addr {
        IpAddr::V4(addr) => {
            pseudo_header_v4(addr, topology::SERVER_V4, IpProtocol::UDP.0, LEN as u16)
        }
        IpAddr::V6(addr) => {
            pseudo_header_v6(addr, topology::SERVER_V6, IpProtocol::UDP.0, LEN as u32)
        }
    };
    if let Some(header) = datagram.first_chunk_mut() {
        fields.emit(pseudo, sum(&[0; 18]), header);
    }
    packet(from.addr, topology::server_addr(Family::of(from.addr)), IpProtocol::UDP, &datagram)
}

/// A frame with an IP packet of 60 hops, or of 255 where it is ICMPv6.
fn packet(from: IpAddr, to: IpAddr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut head = [0; ipv4::HEADER_LEN];
            let len = (head.len() + payload.len()) as u16;
            Ipv4Fields::new(from, to, protocol, 60, len).emit(&mut head);
            [&link_header(EtherType::IPV4)[..], &head, payload].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut head = [0; ipv6::HEADER_LEN];
            let hops = if protocol == IpProtocol::ICMPV6 { 255 } else { 60 };
            Ipv6Fields::new(from, to, protocol, hops, payload.len() as u16).emit(&mut head);
            [&link_header(EtherType::IPV6)[..], &head, payload].concat()
        }
        _ => Vec::new(),
    }
}

/// The front of a large answer of the service to `to`.
fn quote(to: ForgedRouter) -> Vec<u8> {
    let mut datagram = [0; udp::HEADER_LEN];
    let len = QUOTED_LEN - ipv6::HEADER_LEN as u16;
    UdpFields { src_port: topology::SERVICE_PORT, dst_port: to.port, len }
        .emit_without_checksum(&mut datagram);
    match to.addr {
        IpAddr::V4(to) => {
            let mut head = [0; ipv4::HEADER_LEN];
            Ipv4Fields::new(topology::SERVER_V4, to, IpProtocol::UDP, 60, QUOTED_LEN)
                .emit(&mut head);
            [&head[..], &datagram].concat()
        }
        IpAddr::V6(to) => {
            let mut head = [0; ipv6::HEADER_LEN];
            Ipv6Fields::new(topology::SERVER_V6, to, IpProtocol::UDP, 60, len).emit(&mut head);
            [&head[..], &datagram].concat()
        }
    }
}

/// The forged message about the answer to `about`.
fn lie(about: ForgedRouter, lie: ForgedMessage, random: &mut PublicRandom) -> Option<Vec<u8>> {
    let quote = quote(about);
    match about.addr {
        IpAddr::V4(_) => Some(lie_v4(&quote, lie, random)),
        IpAddr::V6(to) => lie_v6(to, &quote, lie, random),
    }
}

fn lie_v4(quote: &[u8], lie: ForgedMessage, random: &mut PublicRandom) -> Vec<u8> {
    let any = random.below(1 << 14) as u32;
    let (from, message) = match lie {
        ForgedMessage::TooBig(mtu) => {
            let from = Ipv4Addr::from_bits(Ipv4Addr::new(198, 19, 0, 0).to_bits() | any);
            let code = icmpv4::UnreachableCode::FRAGMENTATION_NEEDED;
            (from, Icmpv4Message::DestinationUnreachable { code, next_hop_mtu: mtu as u16 })
        }
        ForgedMessage::Redirect => {
            let gateway = Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 64, 0).to_bits() | any);
            (topology::ROUTER_V4, Icmpv4Message::Redirect { code: 1, gateway })
        }
    };
    let mut icmp = [0; icmpv4::HEADER_LEN];
    message.emit(sum(quote), &mut icmp);
    packet(from.into(), topology::SERVER_V4.into(), IpProtocol::ICMPV4, &[&icmp, quote].concat())
}

fn lie_v6(
    to: Ipv6Addr,
    quote: &[u8],
    lie: ForgedMessage,
    random: &mut PublicRandom,
) -> Option<Vec<u8>> {
    let (any, protocol) = (u128::from(random.next_u64() >> 1), IpProtocol::ICMPV6);
    match lie {
        ForgedMessage::TooBig(mtu) => {
            let net = Ipv6Addr::new(0x2001, 2, 0, 0x13, 0, 0, 0, 0).to_bits();
            let from = Ipv6Addr::from_bits(net | any);
            let mut icmp = [0; icmpv6::HEADER_LEN];
            let len = (icmp.len() + quote.len()) as u32;
            let pseudo = pseudo_header_v6(from, topology::SERVER_V6, protocol.0, len);
            Icmpv6Message::PacketTooBig { mtu }.emit(pseudo, sum(quote), &mut icmp);
            let message = [&icmp, quote].concat();
            Some(packet(from.into(), topology::SERVER_V6.into(), protocol, &message))
        }
        ForgedMessage::Redirect => {
            let target_addr =
                Ipv6Addr::from_bits(0xfe80_0000_0000_0000_8000_u128 << 48 | any >> 16);
            let mut out = [0; 128];
            let options = [NdpOption::RedirectedHeader(quote)];
            let (from, fields) =
                (topology::ROUTER_LINK_LOCAL, RedirectFields { target_addr, dst_addr: to });
            let len = fields.emit_into(&options, from, topology::SERVER_V6, &mut out).ok()?;
            Some(packet(from.into(), topology::SERVER_V6.into(), protocol, out.get(..len)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use floodwall_wire::{Icmpv6Header, Ipv4Header, Ipv6Header};

    use super::*;

    #[test]
    fn what_is_forged_is_right_in_every_checksum_and_no_honest_client_asks() {
        let mut random = PublicRandom::new(7);
        let mut seen = [[0; 3]; 2];
        for frame in too_big(&mut random).into_iter().chain(redirects(&mut random)) {
            let bytes = &frame[14..];
            let (from, protocol, verifies) = if bytes[0] >> 4 == 4 {
                let header = Ipv4Header::parse(bytes, bytes.len()).unwrap();
                assert_eq!(header.dst_addr(), topology::SERVER_V4);
                let len = bytes.len() as u16 - 20;
                let pseudo = header.pseudo_header(IpProtocol::UDP, len);
                let behind = sum(&bytes[20..]);
                let all =
                    if header.protocol() == IpProtocol::UDP { pseudo.add(behind) } else { behind };
                (IpAddr::from(header.src_addr()), header.protocol(), all.verifies())
            } else {
                let header = Ipv6Header::parse(bytes, bytes.len()).unwrap();
                assert_eq!(header.dst_addr(), topology::SERVER_V6);
                let protocol = header.next_header();
                let pseudo = header.pseudo_header(protocol, (bytes.len() - 40) as u32);
                let redirect = protocol == IpProtocol::ICMPV6
                    && Icmpv6Header::parse(&bytes[40..]).unwrap().kind().0 == 137;
                assert!(!redirect || header.hop_limit() == 255);
                (header.src_addr().into(), protocol, pseudo.add(sum(&bytes[40..])).verifies())
            };
            assert!(verifies, "{frame:02x?}");
            assert!(
                TopologyHost::ALL.into_iter().all(|party| !topology::is_client(party, from)),
                "{from}"
            );
            let column = match protocol {
                IpProtocol::UDP => 0,
                _ if from == IpAddr::V4(topology::ROUTER_V4) => 1,
                _ if from == IpAddr::V6(topology::ROUTER_LINK_LOCAL) => 1,
                _ => 2,
            };
            seen[usize::from(from.is_ipv6())][column] += 1;
        }
        let each = UNKNOWN_HOSTS;
        assert_eq!(seen, [[each, 2 * each, 3 * each]; 2]);
    }
}
