//! Templates checked by the views of `wire`, after every kind of patch.

use floodwall_base::PublicRandom;
use floodwall_checksum::sum;
use floodwall_wire::{Icmpv4Header, Icmpv6Header, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader};

use super::*;

const SHAPES: [TemplateShape; 5] = [
    TemplateShape::Echo,
    TemplateShape::Tcp(TcpFlags::SYN),
    TemplateShape::Tcp(TcpFlags::ACK),
    TemplateShape::Tcp(TcpFlags::RST),
    TemplateShape::Udp,
];

/// Checks everything that a receiver would check.
fn assert_valid(frame: &[u8], shape: TemplateShape, medium: StationMedium) {
    let network = if medium == StationMedium::Ethernet { 14 } else { 0 };
    let packet = &frame[network..];
    let (header_len, pseudo) = if packet[0] >> 4 == 4 {
        let ip = Ipv4Header::parse(packet, packet.len()).unwrap();
        assert_eq!(ip.total_len(), packet.len());
        (ip.header_len(), ip.pseudo_header(ip.protocol(), ip.payload_len() as u16))
    } else {
        let ip = Ipv6Header::parse(packet, packet.len()).unwrap();
        assert_eq!(ip.total_len(), packet.len());
        (ip.header_len(), ip.pseudo_header(ip.next_header(), ip.payload_len() as u32))
    };
    let body = &packet[header_len..];
    match shape {
        TemplateShape::Udp => {
            let udp = UdpHeader::parse(body, body.len()).unwrap();
            assert_eq!(udp.len(), body.len());
            assert!(udp.checksum().is_some() && udp.verifies(pseudo, sum(&body[8..])));
        }
        TemplateShape::Tcp(flags) => {
            let tcp = TcpHeader::parse(body, body.len()).unwrap();
            assert_eq!(tcp.flags(), flags);
            assert!(tcp.verifies(pseudo, sum(&body[tcp.header_len()..])));
            let options = TcpOptionSet::read(tcp.options()).unwrap();
            assert_eq!(options.mss.is_some(), flags == TcpFlags::SYN);
        }
        TemplateShape::Echo if header_len == 20 => {
            assert!(Icmpv4Header::parse(body).unwrap().verifies(sum(&body[8..])));
        }
        TemplateShape::Echo => {
            assert!(Icmpv6Header::parse(body).unwrap().verifies(pseudo, sum(&body[8..])));
        }
    }
}

#[test]
fn checksums_stay_right_after_any_patch_in_both_families() {
    let mut random = PublicRandom::new(1);
    let link = (MacAddr([2; 6]), MacAddr([4; 6]));
    for (shape, medium) in
        SHAPES.into_iter().flat_map(|s| [(s, StationMedium::Ethernet), (s, StationMedium::Ip)])
    {
        for v4 in [true, false] {
            let addr = |random: &mut PublicRandom| {
                if v4 {
                    IpAddr::from((random.next_u64() as u32).to_be_bytes())
                } else {
                    IpAddr::from(u128::from(random.next_u64()).rotate_left(70).to_be_bytes())
                }
            };
            let addrs = (addr(&mut random), addr(&mut random));
            let mut template = Template::new(shape, medium, link, addrs, 64, 100).unwrap();
            assert_valid(template.frame(), shape, medium);
            for _ in 0..500 {
                let word = random.next_u64();
                match random.below(8) {
                    0 => template.set_src_addr(addr(&mut random)),
                    1 => template.set_dst_addr(addr(&mut random)),
                    2 => template.set_src_port(word as u16),
                    3 => template.set_dst_port(word as u16),
                    4 => template.set_numbers(word as u32, (word >> 32) as u32),
                    5 => template.set_id(word as u16),
                    6 => template.set_payload_len(24 + random.below(77) as usize),
                    _ => template.set_payload(16, &word.to_be_bytes()),
                }
                assert_valid(template.frame(), shape, medium);
            }
        }
    }
}

#[test]
fn a_datagram_never_says_that_it_has_no_checksum() {
    let link = (MacAddr::ZERO, MacAddr::ZERO);
    for addrs in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
        let addrs = addrs.map(|addr| addr.parse().unwrap());
        let mut template =
            Template::udp(StationMedium::Ip, link, (addrs[0], addrs[1]), 64, 4).unwrap();
        let (mut ones, transport) = (0, template.frame().len() - 12);
        for port in 0..=u16::MAX {
            template.set_dst_port(port);
            let check = UdpHeader::parse(&template.frame()[transport..], 12).unwrap().checksum();
            assert_ne!(check, None, "port {port}");
            ones += u32::from(check == Some(0xffff));
        }
        assert!(ones > 0, "the case came up");
        assert_valid(template.frame(), TemplateShape::Udp, StationMedium::Ip);
    }
}

#[test]
fn what_is_patched_is_there_and_its_neighbours_are_not_touched() {
    let addrs = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let link = (MacAddr([2; 6]), MacAddr([4; 6]));
    let mut template = Template::udp(StationMedium::Ethernet, link, addrs, 64, 30).unwrap();
    template.set_src_port(1111);
    template.set_dst_port(2222);
    template.set_src_addr("10.9.8.7".parse().unwrap());
    template.set_src_addr("fd00::1".parse().unwrap());
    template.set_payload_len(21);
    template.set_payload(20, &[1, 2]);
    let ip = Ipv4Header::parse(&template.frame()[14..], 49).unwrap();
    assert_eq!(
        (ip.src_addr().to_string(), ip.dst_addr().to_string()),
        ("10.9.8.7".into(), "10.0.0.2".into())
    );
    let udp = UdpHeader::parse(&template.frame()[34..], 29).unwrap();
    assert_eq!((udp.src_port(), udp.dst_port(), udp.payload_len()), (1111, 2222, 21));
    assert!(template.frame()[42..].iter().all(|byte| *byte == 0), "two bytes did not fit");
}

#[test]
fn impossible_packets_are_refused() {
    let link = (MacAddr::ZERO, MacAddr::ZERO);
    let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
    let error = Template::udp(StationMedium::Ip, link, (v4, v6), 64, 0).err();
    assert_eq!(error, Some(PlanError::MixedFamilies));
    let error = Template::udp(StationMedium::Ip, link, (v6, v6), 64, 65_500).err();
    assert_eq!(error, Some(PlanError::PayloadTooLong(65_500)));
}
