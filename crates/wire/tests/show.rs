//! The one-line forms, and that no bytes make them panic.

use floodwall_base::MacAddr;
use floodwall_checksum::{InternetSum, sum};
use floodwall_wire::ndp::NeighborSolicitationFields;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};
use floodwall_wire::*;
use proptest::prelude::*;

fn ethernet(ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
    let (dst_addr, src_addr) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
    let mut out = [0; 14];
    EthernetFields { dst_addr, src_addr, ether_type }.emit(&mut out);
    [&out, payload].concat()
}

fn ipv6(next_header: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let mut out = [0; 40];
    Ipv6Fields::new(a, b, next_header, 64, payload.len() as u16).emit(&mut out);
    [&out, payload].concat()
}

fn ipv4(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut out = [0; 20];
    let total = 20 + payload.len() as u16;
    Ipv4Fields::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), protocol, 63, total)
        .emit(&mut out);
    [&out, payload].concat()
}

fn udp(payload_len: usize) -> Vec<u8> {
    let mut out = [0; 8];
    let fields = UdpFields { src_port: 4000, dst_port: 7001, len: 8 + payload_len as u16 };
    fields.emit_without_checksum(&mut out);
    [&out[..], &vec![0; payload_len]].concat()
}

#[test]
fn udp_over_both_versions_reads_like_a_sentence() {
    let frame = ethernet(EtherType::IPV6, &ipv6(IpProtocol::UDP, &udp(64)));
    assert_eq!(
        show::ShownFrame(&frame).to_string(),
        "02:00:00:00:00:01 > 02:00:00:00:00:02 IPv6 fd00::1 > fd00::2 hop 64 \
         UDP 4000 > 7001 len 64"
    );
    let frame = ethernet(EtherType::IPV4, &ipv4(IpProtocol::UDP, &udp(0)));
    assert_eq!(
        show::ShownFrame(&frame).to_string(),
        "02:00:00:00:00:01 > 02:00:00:00:00:02 IPv4 192.0.2.1 > 192.0.2.2 ttl 63 \
         UDP 4000 > 7001 len 0"
    );
}

#[test]
fn tcp_shows_its_flags_and_options() {
    let fields = TcpFields {
        src_port: 4000,
        dst_port: 80,
        seq: 1,
        ack: 2,
        flags: TcpFlags::SYN | TcpFlags::ACK,
        window: 65_535,
        urgent: 0,
    };
    let options = TcpOptionSet {
        mss: Some(1440),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 9, echo: 8 }),
        ..TcpOptionSet::NONE
    };
    let mut out = [0; 60];
    let len = fields.emit(&options, InternetSum::ZERO, InternetSum::ZERO, &mut out).unwrap();
    assert_eq!(
        show::Packet(&ipv6(IpProtocol::TCP, &out[..len])).to_string(),
        "IPv6 fd00::1 > fd00::2 hop 64 TCP 4000 > 80 S. seq 1 ack 2 win 65535 \
         mss 1440 sackOK ts 9 ecr 8 wscale 7 len 0"
    );
}

#[test]
fn errors_show_the_packet_they_are_about_once() {
    let mut header = [0; 8];
    let quoted = ipv6(IpProtocol::UDP, &udp(4));
    Icmpv6Message::PacketTooBig { mtu: 1280 }.emit(InternetSum::ZERO, sum(&quoted), &mut header);
    let error = ipv6(IpProtocol::ICMPV6, &[&header[..], &quoted].concat());
    let line = "IPv6 fd00::1 > fd00::2 hop 64 ICMPv6 packet too big mtu 1280 \
                about {IPv6 fd00::1 > fd00::2 hop 64 UDP 4000 > 7001 len 4}";
    assert_eq!(show::Packet(&error).to_string(), line);
    let nested = ipv6(IpProtocol::ICMPV6, &[&header[..], &error].concat());
    let line = show::Packet(&nested).to_string();
    assert_eq!(line.matches("about").count(), 1, "{line}");

    let mut header = [0; 8];
    Icmpv4Message::ParameterProblem { code: 0, pointer: 8 }.emit(InternetSum::ZERO, &mut header);
    let quoted = ipv4(IpProtocol::TCP, &[0, 1, 0, 2, 0, 0, 0, 0]);
    let error = ipv4(IpProtocol::ICMPV4, &[&header[..], &quoted].concat());
    assert_eq!(
        show::Packet(&error).to_string(),
        "IPv4 192.0.2.1 > 192.0.2.2 ttl 63 ICMP parameter problem code 0 pointer 8 \
         about {IPv4 192.0.2.1 > 192.0.2.2 ttl 63 TCP 1 > 2}"
    );
}

#[test]
fn neighbors_and_arp_are_readable() {
    let mut out = [0; 64];
    let target_addr = "fd00::9".parse().unwrap();
    let option = NdpOption::SourceLinkAddr(MacAddr([2, 0, 0, 0, 0, 1]));
    let len = NeighborSolicitationFields { target_addr }
        .emit_into(&[option], target_addr, target_addr, &mut out)
        .unwrap();
    assert_eq!(
        show::Packet(&ipv6(IpProtocol::ICMPV6, &out[..len])).to_string(),
        "IPv6 fd00::1 > fd00::2 hop 64 ICMPv6 neighbor solicitation who has fd00::9 \
         source 02:00:00:00:00:01"
    );
    let mut arp = [0; 28];
    ArpPacket {
        operation: ArpOperation::REQUEST,
        sender_link_addr: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_addr: [192, 0, 2, 1].into(),
        target_link_addr: MacAddr::ZERO,
        target_addr: [192, 0, 2, 2].into(),
    }
    .emit(&mut arp);
    assert_eq!(
        show::ShownFrame(&ethernet(EtherType::ARP, &arp)).to_string(),
        "02:00:00:00:00:01 > 02:00:00:00:00:02 \
         ARP who has 192.0.2.2, tell 192.0.2.1 at 02:00:00:00:00:01"
    );
}

#[test]
fn extension_headers_and_fragments_are_named() {
    let chain = [
        [60, 0, 5, 2, 0, 0, 1, 0].as_slice(),
        &[44, 0, 0x1e, 0, 1, 2, 0, 0],
        &[17, 0, 0x05, 0xa9, 0, 0, 0, 7],
        &[0; 16],
    ]
    .concat();
    assert_eq!(
        show::Packet(&ipv6(IpProtocol::HOP_BY_HOP, &chain)).to_string(),
        "IPv6 fd00::1 > fd00::2 hop 64 HopByHop(router alert 0) \
         DestinationOptions(option 0x1e) Fragment(id 0x00000007 offset 1448 more) UDP len 16"
    );
    let routing = [17, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        show::Packet(&ipv6(IpProtocol::ROUTING, &routing)).to_string(),
        "IPv6 fd00::1 > fd00::2 hop 64 [a routing header has segments left (header at byte 40)]"
    );
}

#[test]
fn damage_is_named_and_what_is_left_is_shown() {
    let packet = ipv6(IpProtocol::UDP, &udp(64));
    let line = show::Packet(&packet[..60]).to_string();
    assert!(line.contains("[the IPv6 payload length is longer than the packet]"), "{line}");
    assert!(line.ends_with("UDP 4000 > 7001 len 64"), "{line}");
    let mut packet = ipv4(IpProtocol::UDP, &udp(64));
    packet[8] ^= 1;
    let line = show::Packet(&packet).to_string();
    assert!(line.contains("[the IPv4 header checksum is wrong] UDP"), "{line}");
    assert_eq!(show::Packet(&[]).to_string(), "[no bytes]");
    assert_eq!(show::Packet(&[0x50]).to_string(), "[IP version 5]");
    for cut in 0..packet.len() {
        assert!(!show::Packet(&packet[..cut]).to_string().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_make_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for line in [show::ShownFrame(&bytes).to_string(), show::Packet(&bytes).to_string()] {
            prop_assert!(!line.contains('\n') && !line.is_empty());
        }
        _ = validate(&bytes);
    }

    #[test]
    fn any_payload_of_a_real_header_makes_one_line(
        protocol in prop::sample::select(vec![0u8, 1, 6, 17, 43, 44, 51, 58, 60, 99]),
        kind in prop::sample::select(vec![0u8, 1, 3, 8, 11, 12, 128, 133, 134, 135, 136, 137, 2]),
        mut payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let [first, code, ..] = &mut payload[..] {
            (*first, *code) = (kind, *code % 2);
        }
        let protocol = IpProtocol(protocol);
        for frame in [
            ethernet(EtherType::IPV6, &ipv6(protocol, &payload)),
            ethernet(EtherType::IPV4, &ipv4(protocol, &payload)),
        ] {
            let line = show::ShownFrame(&frame).to_string();
            prop_assert!(!line.contains('\n'));
            if let Ok(valid) = validate(&frame) {
                prop_assert!(u32::from(valid.network) <= u32::from(valid.transport));
                prop_assert!(u32::from(valid.transport) <= valid.payload);
                prop_assert!(valid.payload <= valid.end);
                prop_assert!(valid.end as usize <= frame.len());
            }
        }
    }
}
