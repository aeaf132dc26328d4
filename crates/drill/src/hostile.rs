//! What attackers recorded and made: frames out of captures, and forged ICMP errors.
//!
//! Read by `flood.rs` when a stretch is prepared; costs a parse of 240 KB. Each captured packet is
//! used twice: as it is, which is mostly dropped as not for us, and with its addresses exchanged
//! for ours and a source chosen such that every checksum stays as right or wrong as it was (the sum
//! of both addresses does not change, RFC 6296 section 2.6), so that it reaches the deeper parsers.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Family, PublicRandom};
use floodwall_checksum::{InternetSum, pseudo_header_v6, sum};
use floodwall_device::{CapturedPacket, LinkType, parse_capture};
use floodwall_wire::{
    EtherType, EthernetFields, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Fields, Ipv6Fields,
    UdpFields, ethernet, icmpv4, icmpv6, ipv4, ipv6, udp,
};

use crate::topology;

mod embedded;

/// Packets beyond this do not fit the drill's frames.
const FRAME_MAX: usize = 1514;
/// Forged errors of each family.
const FORGED_ERRORS: usize = 512;

/// How many captures are in the program.
pub(crate) const fn captures() -> usize {
    embedded::CAPTURES.len()
}

/// The captured packets as frames: as they are, and aimed at the host.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (_, bytes) in embedded::CAPTURES {
        // Bytes without a valid capture have no packets: a test checks that there is none such.
        let packets = parse_capture(bytes).map(|capture| capture.packets).unwrap_or_default();
        for packet in packets {
            let Some(frame) = frame_of(&packet) else { continue };
            if frame.len() > FRAME_MAX || frame.len() < ethernet::HEADER_LEN {
                continue;
            }
            let mut aimed = frame.clone();
            if aim(&mut aimed) {
                frames.push(aimed);
            }
            frames.push(frame);
        }
    }
    frames
}

/// The packet as an Ethernet frame; the link addresses are the generator's business.
fn frame_of(packet: &CapturedPacket) -> Option<Vec<u8>> {
    if packet.link == LinkType::Ethernet {
        return Some(packet.bytes.clone());
    }
    let ip = packet.ip()?;
    let v4 = ip.first()? >> 4 == 4;
    let mut frame = link_header(if v4 { EtherType::IPV4 } else { EtherType::IPV6 });
    frame.extend_from_slice(ip);
    Some(frame)
}

/// A link header with addresses that the generator fills in.
pub(crate) fn link_header(ether_type: EtherType) -> Vec<u8> {
    let mut header = [0; ethernet::HEADER_LEN];
    let (dst_addr, src_addr) = (topology::SERVER_MAC, topology::FLOOD_MAC);
    EthernetFields { dst_addr, src_addr, ether_type }.emit(&mut header);
    header.to_vec()
}

/// Exchanges the addresses; false where the frame is too short to have any.
fn aim(frame: &mut [u8]) -> bool {
    let Some((link, ip)) = frame.split_at_mut_checked(ethernet::HEADER_LEN) else { return false };
    match link.get(12..14).and_then(|t| t.first_chunk()).map(|t| EtherType(u16::from_be_bytes(*t)))
    {
        Some(EtherType::IPV4) => {
            let net = Ipv4Addr::new(198, 19, 0, 0).octets();
            ip.get_mut(12..20)
                .is_some_and(|addrs| exchange(addrs, &net, &topology::SERVER_V4.octets()))
        }
        Some(EtherType::IPV6) => {
            let net = Ipv6Addr::new(0x2001, 2, 0, 0x13, 0, 0, 0, 0).octets();
            ip.get_mut(8..40)
                .is_some_and(|addrs| exchange(addrs, &net, &topology::SERVER_V6.octets()))
        }
        _ => false,
    }
}

/// Writes source and destination, the source's last word such that the sum stays.
fn exchange<const N: usize>(addrs: &mut [u8], src_addr: &[u8; N], dst_addr: &[u8; N]) -> bool {
    let before = sum(addrs).fold();
    let (front, back) = addrs.split_at_mut(N);
    front.copy_from_slice(src_addr);
    back.copy_from_slice(dst_addr);
    let after =
        InternetSum::of_u16(sum(src_addr).fold()).add(InternetSum::of_u16(sum(dst_addr).fold()));
    let missing = InternetSum::of_u16(before).add(InternetSum::of_u16(!after.fold())).fold();
    if let Some(last) = front.last_chunk_mut() {
        *last = missing.to_be_bytes();
    }
    true
}

/// Forged errors about answers of the service to honest clients: unreachable of every code, too
/// big with MTUs from nothing to large, time exceeded, parameter problems.
pub(crate) fn icmp_errors(random: &mut PublicRandom) -> Vec<Vec<u8>> {
    let mut frames = Vec::with_capacity(2 * FORGED_ERRORS);
    for _ in 0..FORGED_ERRORS {
        frames.extend(error_v4(random));
        frames.extend(error_v6(random));
    }
    frames
}

/// One of a few, by chance; the default where there is none.
fn pick<T: Copy + Default>(of: &[T], random: &mut PublicRandom) -> T {
    let at = random.below(of.len().max(1) as u64) as usize;
    of.get(at).copied().unwrap_or_default()
}

/// An address of an honest client, by chance.
fn client(family: Family, random: &mut PublicRandom) -> core::net::IpAddr {
    let addrs: Vec<_> = topology::client_addrs(topology::TopologyHost::Near, family)
        .into_iter()
        .map(Some)
        .collect();
    pick(&addrs, random).map_or(topology::server_addr(family), |cidr| cidr.addr())
}

/// The service's datagram to a client's port: what the errors quote.
fn quoted_datagram(random: &mut PublicRandom) -> [u8; udp::HEADER_LEN] {
    let mut out = [0; udp::HEADER_LEN];
    let dst_port = 40_000 + random.below(10_000) as u16;
    UdpFields { src_port: topology::SERVICE_PORT, dst_port, len: 72 }
        .emit_without_checksum(&mut out);
    out
}

fn error_v4(random: &mut PublicRandom) -> Option<Vec<u8>> {
    let core::net::IpAddr::V4(to) = client(Family::V4, random) else { return None };
    let mut quote = vec![0; ipv4::HEADER_LEN];
    Ipv4Fields::new(topology::SERVER_V4, to, IpProtocol::UDP, 60, 92)
        .emit(quote.first_chunk_mut()?);
    quote.extend_from_slice(&quoted_datagram(random));
    let mtu = pick(&[0, 68, 552, 576, 1280, 1499, 9000], random);
    let message = match random.below(4) {
        0 => Icmpv4Message::DestinationUnreachable {
            code: icmpv4::UnreachableCode(random.below(16) as u8),
            next_hop_mtu: 0,
        },
        1 => Icmpv4Message::DestinationUnreachable {
            code: icmpv4::UnreachableCode::FRAGMENTATION_NEEDED,
            next_hop_mtu: mtu,
        },
        2 => Icmpv4Message::TimeExceeded { code: icmpv4::TimeExceededCode(random.below(2) as u8) },
        _ => Icmpv4Message::ParameterProblem { code: 0, pointer: random.below(60) as u8 },
    };
    let len = ipv4::HEADER_LEN + icmpv4::HEADER_LEN + quote.len();
    let from =
        Ipv4Addr::from_bits(Ipv4Addr::new(198, 19, 0, 0).to_bits() | random.below(65_536) as u32);
    let mut frame = link_header(EtherType::IPV4);
    let mut head = [0; ipv4::HEADER_LEN];
    Ipv4Fields::new(from, topology::SERVER_V4, IpProtocol::ICMPV4, 60, len as u16).emit(&mut head);
    let mut icmp = [0; icmpv4::HEADER_LEN];
    message.emit(sum(&quote), &mut icmp);
    frame.extend([&head[..], &icmp, &quote].concat());
    Some(frame)
}

fn error_v6(random: &mut PublicRandom) -> Option<Vec<u8>> {
    let core::net::IpAddr::V6(to) = client(Family::V6, random) else { return None };
    let mut quote = vec![0; ipv6::HEADER_LEN];
    Ipv6Fields::new(topology::SERVER_V6, to, IpProtocol::UDP, 60, 72)
        .emit(quote.first_chunk_mut()?);
    quote.extend_from_slice(&quoted_datagram(random));
    let mtu = pick(&[0, 68, 576, 1279, 1280, 1499, 9000, u32::MAX], random);
    let message = match random.below(4) {
        0 => Icmpv6Message::DestinationUnreachable {
            code: icmpv6::UnreachableCode(random.below(8) as u8),
        },
        1 => Icmpv6Message::PacketTooBig { mtu },
        2 => Icmpv6Message::TimeExceeded { code: icmpv6::TimeExceededCode(random.below(2) as u8) },
        _ => Icmpv6Message::ParameterProblem {
            code: icmpv6::ParameterProblemCode(random.below(4) as u8),
            pointer: random.below(60) as u32,
        },
    };
    let len = icmpv6::HEADER_LEN + quote.len();
    let net = Ipv6Addr::new(0x2001, 2, 0, 0x13, 0, 0, 0, 0).to_bits();
    let from = Ipv6Addr::from_bits(net | u128::from(random.next_u64()));
    let mut frame = link_header(EtherType::IPV6);
    let mut head = [0; ipv6::HEADER_LEN];
    let protocol = IpProtocol::ICMPV6;
    Ipv6Fields::new(from, topology::SERVER_V6, protocol, 60, len as u16).emit(&mut head);
    let mut icmp = [0; icmpv6::HEADER_LEN];
    let pseudo = pseudo_header_v6(from, topology::SERVER_V6, protocol.0, len as u32);
    message.emit(pseudo, sum(&quote), &mut icmp);
    frame.extend([&head[..], &icmp, &quote].concat());
    Some(frame)
}

#[cfg(test)]
mod tests {
    use floodwall_wire::{Icmpv6Header, Ipv4Header, Ipv6Header};

    use super::*;

    #[test]
    fn every_embedded_capture_has_packets() {
        assert!(captures() >= 50);
        for (name, bytes) in embedded::CAPTURES {
            let capture = parse_capture(bytes);
            assert!(capture.is_ok_and(|c| !c.packets.is_empty()), "{name}");
        }
        assert!(frames().len() > 1000, "{}", frames().len());
    }

    fn check(frame: &[u8]) {
        let ip = &frame[14..];
        if ip[0] >> 4 == 4 {
            let header = Ipv4Header::parse(ip, ip.len()).unwrap();
            assert_eq!(header.dst_addr(), topology::SERVER_V4);
            assert_eq!(header.src_addr().octets()[..2], [198, 19]);
            assert!(sum(&ip[header.header_len()..]).verifies());
        } else {
            let header = Ipv6Header::parse(ip, ip.len()).unwrap();
            assert_eq!(header.dst_addr(), topology::SERVER_V6);
            let pseudo = header.pseudo_header(IpProtocol::ICMPV6, (ip.len() - 40) as u32);
            let icmp = Icmpv6Header::parse(&ip[40..]).unwrap();
            assert!(icmp.verifies(pseudo, sum(&ip[48..])));
        }
    }

    #[test]
    fn an_aimed_packet_keeps_its_checksums_and_comes_to_the_host() {
        for mut frame in icmp_errors(&mut PublicRandom::new(7)) {
            // As if between two others: the sum over both addresses changes, and is put right.
            let (at, len) = if frame[14] >> 4 == 4 { (26, 4) } else { (22, 16) };
            frame[at..at + 2 * len].rotate_left(len);
            assert!(aim(&mut frame));
            check(&frame);
        }
        assert!(!aim(&mut link_header(EtherType::IPV4)), "no addresses");
        assert!(!aim(&mut link_header(EtherType::ARP)));
    }

    #[test]
    fn forged_errors_are_right_in_every_checksum() {
        icmp_errors(&mut PublicRandom::new(3)).iter().for_each(|frame| check(frame));
    }
}
