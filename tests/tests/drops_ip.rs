//! Drops by the fixed IP header and by address, in both families: each is provoked by a packet and
//! counted once by its reason.
//!
//! What each call of `expect_drop` checks is documented at `Rig::expect_drop`. Reading: RFC
//! 791, RFC 1122 sections 3.2.1 and 3.2.2, RFC 6890, RFC 8200 section 3, RFC 4291.

use std::net::{IpAddr, Ipv4Addr};

use floodwall_base::{DropReason, Family, MacAddr};
use floodwall_tests::craft::{
    FAMILIES, HOP_LIMIT, HOST, PEER, addr, echo, frame, from_peer, icmpv4, ip, ipv4_fields,
    ipv4_with_options, mac, port_unreachable, udp, udp_to_port, v4,
};
use floodwall_tests::{Owed, Rig, bytes_of, ethernet_config};
use floodwall_wire::{
    ArpOperation, ArpPacket, EtherType, Icmpv4Message, IpProtocol, Ipv4Fields, icmpv4 as icmp,
};

fn rig() -> Rig {
    Rig::with_neighbor(&ethernet_config(HOST), PEER)
}

fn hello(family: Family) -> Vec<u8> {
    echo(addr(family, PEER), addr(family, HOST), b"hello")
}

/// The same packet with a byte changed and, for IPv4, the header checksum made right again.
fn patched(packet: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[at] = byte;
    if bytes[0] >> 4 == 4 && at != 10 && at != 11 {
        bytes[10..12].copy_from_slice(&[0, 0]);
        let len = usize::from(bytes[0] & 15) * 4;
        let check = floodwall_checksum::sum(&bytes[..len.clamp(20, 28)]).finish();
        bytes[10..12].copy_from_slice(&check.to_be_bytes());
    }
    bytes
}

#[test]
fn a_packet_that_ends_within_its_header_is_dropped() {
    for family in FAMILIES {
        let (whole, mut rig) = (from_peer(&hello(family)), rig());
        let header = if family == Family::V4 { 20 } else { 40 };
        for len in 14..14 + header {
            let reason = DropReason::IpTruncated;
            rig.expect_drop(&format!("{family:?} {len}"), &whole[..len], reason, None);
        }
    }
}

#[test]
fn a_packet_of_another_version_than_announced_is_dropped() {
    for family in FAMILIES {
        let packet = hello(family);
        for version in (0..16).filter(|v| *v != packet[0] >> 4) {
            let mut bytes = from_peer(&packet);
            bytes[14] = version << 4 | packet[0] & 15;
            rig().expect_drop(
                &format!("{family:?} {version}"),
                &bytes,
                DropReason::IpVersion,
                None,
            );
        }
    }
}

#[test]
fn an_ipv4_header_of_impossible_length_is_dropped() {
    let packet = hello(Family::V4);
    for words in 0..5 {
        let bytes = patched(&packet, 0, 0x40 | words);
        rig().packet_is_dropped(&format!("{words}"), &bytes, DropReason::IpHeaderLength, None);
    }
    // 60 bytes of header in 33 bytes of packet.
    let bytes = patched(&packet, 0, 0x4f);
    rig().packet_is_dropped("15", &bytes, DropReason::IpHeaderLength, None);
}

#[test]
fn a_wrong_length_is_dropped_and_padding_is_not() {
    for family in FAMILIES {
        let (packet, mut rig) = (hello(family), rig());
        let at = if family == Family::V4 { 2 } else { 4 };
        let said = u16::from_be_bytes([packet[at], packet[at + 1]]);
        for more in [1, 2, 100, 0x7fff, u16::MAX - said] {
            let long = patched(&packet, at, ((said + more) >> 8) as u8);
            let long = patched(&long, at + 1, (said + more) as u8);
            rig.packet_is_dropped(&format!("{family:?} {more}"), &long, DropReason::IpLength, None);
        }
        let padded = [from_peer(&packet), vec![0xee; 20]].concat();
        let answers = rig.lives("padded", &padded);
        assert_eq!(answers[0].len(), 14 + packet.len(), "padding is not answered");
    }
    // Shorter than its own header.
    for len in 0..20 {
        let short = patched(&patched(&hello(Family::V4), 2, 0), 3, len);
        rig().packet_is_dropped(&format!("{len}"), &short, DropReason::IpLength, None);
    }
}

#[test]
fn an_ipv4_header_with_a_wrong_checksum_is_dropped() {
    let packet = hello(Family::V4);
    let mut rig = rig();
    for bit in (0..160).filter(|bit| bit / 8 > 3) {
        let mut bytes = from_peer(&packet);
        bytes[14 + bit / 8] ^= 1 << (bit % 8);
        rig.expect_drop(&format!("bit {bit}"), &bytes, DropReason::IpHeaderChecksum, None);
    }
}

#[test]
fn a_source_that_no_sender_can_have_is_dropped() {
    let bad = [
        (Family::V4, vec!["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255"]),
        (Family::V4, vec!["10.0.0.1", "10.0.0.255", "240.0.0.1"]),
        (Family::V6, vec!["::1", "ff02::1", "::ffff:10.0.0.2", "::10.0.0.2", "fd00::1"]),
    ];
    for (family, sources) in bad {
        for source in sources {
            let from: IpAddr = source.parse().expect("an address");
            let to = addr(family, HOST);
            let reason = DropReason::IpSourceInvalid;
            rig().packet_is_dropped(source, &echo(from, to, b"?"), reason, None);
            let closed = udp((from, 4000).into(), (to, 9).into(), b"?");
            rig().packet_is_dropped(source, &closed, reason, None);
            rig().packet_is_dropped(source, &ip(from, to, IpProtocol(200), b"?"), reason, None);
        }
    }
    // An echo request without source and destination.
    let from: IpAddr = "::".parse().expect("an address");
    let packet = echo(from, addr(Family::V6, HOST), b"?");
    rig().packet_is_dropped("::", &packet, DropReason::IpSourceInvalid, None);
}

/// 240/4 belongs to hosts where one of our links is there, and nowhere else.
#[test]
fn a_reserved_address_is_a_hosts_where_it_is_configured() {
    let mut config = ethernet_config(HOST);
    config.interfaces[0].addresses.push("240.8.0.5/24".parse().expect("an address"));
    let mut rig = Rig::new(&config);
    let (own, near) = ([240, 8, 0, 5], [240, 8, 0, 9]);
    let request = ArpPacket {
        operation: ArpOperation::REQUEST,
        sender_link_addr: mac(PEER),
        sender_addr: near.into(),
        target_link_addr: MacAddr::ZERO,
        target_addr: own.into(),
    };
    let mut bytes = [0; 28];
    request.emit(&mut bytes);
    let asked = frame(MacAddr::BROADCAST, mac(PEER), EtherType::ARP, &bytes);
    assert_eq!(rig.lives("a request", &asked).len(), 1);
    let ping = |from: [u8; 4]| from_peer(&echo(IpAddr::from(from), IpAddr::from(own), b"?"));
    let reply = bytes_of(&rig.lives("an echo", &ping(near))[0]);
    assert_eq!((&reply[26..30], &reply[30..34]), (&own[..], &near[..]));
    let closed = udp((IpAddr::from(near), 4000).into(), (IpAddr::from(own), 9).into(), b"?");
    let refused = rig.frame(&from_peer(&closed));
    assert_eq!(bytes_of(&refused[0])[34], 3, "an error answers it");
    rig.expect_drop("broadcast", &ping([255; 4]), DropReason::IpSourceInvalid, None);
    let nowhere = echo(IpAddr::from(near), IpAddr::from([0, 1, 2, 3]), b"?");
    rig.expect_drop("to 0/8", &from_peer(&nowhere), DropReason::IpDestinationInvalid, None);
    let unconfigured = echo(IpAddr::from(near), addr(Family::V4, HOST), b"?");
    self::rig().expect_drop("", &from_peer(&unconfigured), DropReason::IpSourceInvalid, None);
}

#[test]
fn a_datagram_to_a_group_from_one_of_our_own_addresses_is_dropped() {
    let group: IpAddr = "ff02::1".parse().expect("an address");
    let packet = udp((addr(Family::V6, HOST), 7000).into(), (group, 7000).into(), b"?");
    rig().packet_is_dropped("ff02::1", &packet, DropReason::IpSourceInvalid, None);
}

#[test]
fn a_destination_that_no_receiver_can_have_is_dropped() {
    let bad = [
        (Family::V4, vec!["0.0.0.0", "0.0.0.9", "127.0.0.1", "127.9.9.9"]),
        (Family::V6, vec!["::", "::1", "::ffff:10.0.0.1", "ff00::1", "ff01::1"]),
    ];
    for (family, destinations) in bad {
        for to in destinations {
            let packet = udp(
                (addr(family, PEER), 4000).into(),
                (to.parse::<IpAddr>().expect("an address"), 9).into(),
                b"?",
            );
            rig().packet_is_dropped(to, &packet, DropReason::IpDestinationInvalid, None);
        }
    }
}

#[test]
fn a_packet_for_another_host_is_dropped() {
    for family in FAMILIES {
        let packet = echo(addr(family, PEER), addr(family, 9), b"?");
        rig().packet_is_dropped("another", &packet, DropReason::IpNotForUs, None);
    }
    // The class E range is unassigned, and so is the zero address of our prefix.
    for to in ["240.0.0.1", "10.0.0.0", "169.254.0.1"] {
        let to = to.parse().expect("an address");
        let packet = echo(addr(Family::V4, PEER), to, b"?");
        rig().packet_is_dropped("unassigned", &packet, DropReason::IpNotForUs, None);
    }
}

#[test]
fn a_packet_for_a_group_that_nothing_joined_is_dropped() {
    for (family, group) in [
        (Family::V4, "224.0.0.251"),
        (Family::V4, "239.1.2.3"),
        (Family::V6, "ff02::fb"),
        (Family::V6, "ff0e::1234"),
    ] {
        let to: IpAddr = group.parse().expect("an address");
        let packet = udp((addr(family, PEER), 5353).into(), (to, 5353).into(), b"?");
        rig().packet_is_dropped(group, &packet, DropReason::IpGroupNotJoined, None);
    }
}

/// Broken IPv4 options, and where the byte at fault stands.
const BAD_OPTIONS: [(&[u8], u8); 12] = [
    (&[130], 20),                        // no length
    (&[130, 0, 0, 0], 20),               // length 0
    (&[130, 1, 0, 0], 20),               // length 1
    (&[130, 5, 0, 0], 20),               // past the header
    (&[1, 1, 130, 200], 22),             // past the header, behind no-operations
    (&[7, 4, 4, 0], 21),                 // record route without whole addresses
    (&[7, 7, 3, 0, 0, 0, 0], 22),        // its pointer before its first address
    (&[1, 7, 7, 5, 0, 0, 0, 0], 23),     // room for a part of an address
    (&[68, 8, 6, 0, 0, 0, 0, 0], 22),    // for a part of a time
    (&[68, 8, 5, 1, 0, 0, 0, 0], 22),    // for an address without its time
    (&[68, 8, 9, 0xf0, 0, 0, 0, 0], 23), // a sixteenth host without room
    (&[148, 3, 0, 0], 21),               // a router alert of three bytes
];

#[test]
fn a_malformed_ipv4_option_is_dropped_and_is_told() {
    for (options, pointer) in BAD_OPTIONS {
        let fields = ipv4_fields(IpProtocol::UDP);
        // No end marker may make the rest padding.
        let options = [options, &vec![1; options.len().next_multiple_of(4) - options.len()]];
        let packet = ipv4_with_options(fields, &options.concat(), &[0; 8]);
        let owed = Owed::problem_v4(0, pointer);
        let reason = DropReason::IpOptionMalformed;
        rig().packet_is_dropped(&format!("{options:?}"), &packet, reason, Some(owed));
    }
}

/// RFC 1122 section 3.2.2: never about an ICMP error, never about a broadcast or a group.
#[test]
fn a_malformed_ipv4_option_is_not_told_where_no_error_may_be_sent() {
    let reason = DropReason::IpOptionMalformed;
    let quoted = udp_to_port(Family::V4, 9, b"");
    let code = icmp::UnreachableCode::PORT;
    let message = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu: 0 };
    let error = icmpv4(v4(PEER), v4(HOST), message, &quoted)[20..].to_vec();
    let packet = ipv4_with_options(ipv4_fields(IpProtocol::ICMPV4), &[130, 0, 0, 0], &error);
    rig().packet_is_dropped("about an error", &packet, reason, None);

    for to in [v4(255), Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)] {
        let fields = Ipv4Fields { dst_addr: to, ..ipv4_fields(IpProtocol::UDP) };
        let packet = ipv4_with_options(fields, &[130, 0, 0, 0], &[0; 8]);
        rig().packet_is_dropped("about a broadcast", &packet, reason, None);
        // The same in a frame for this station alone.
        let frame = frame(mac(HOST), mac(PEER), EtherType::IPV4, &packet);
        rig().expect_drop("about a broadcast in a frame for one", &frame, reason, None);
    }
}

#[test]
fn an_ipv4_source_route_is_dropped_with_any_pointer() {
    for kind in [131, 137] {
        for (pointer, addrs) in [(4, 1), (8, 1), (4, 9), (40, 9), (255, 2)] {
            let mut option = vec![kind, 3 + addrs * 4, pointer];
            option.extend([10, 0, 0, 9].repeat(addrs.into()));
            for lead in [&[][..], &[1]] {
                let options = [lead, &option].concat();
                if options.len() > 40 {
                    continue;
                }
                let packet = ipv4_with_options(ipv4_fields(IpProtocol::UDP), &options, &[0; 8]);
                let what = format!("{kind} {pointer}");
                rig().packet_is_dropped(&what, &packet, DropReason::IpSourceRoute, None);
            }
        }
    }
}

#[test]
fn an_unknown_protocol_is_dropped_and_is_told() {
    // TCP among them, for the present; 4, 41 and 47 would be tunnels (CVE-2020-10136).
    for protocol in [3, 4, 6, 41, 47, 132, 143, 200, 255] {
        for family in FAMILIES {
            let (from, to) = (addr(family, PEER), addr(family, HOST));
            let inner = hello(Family::V4);
            let packet = ip(from, to, IpProtocol(protocol), &inner);
            let owed = match family {
                Family::V4 => Owed::unreachable(family, 2),
                Family::V6 => Owed::problem_v6(1, 6),
            };
            let what = format!("{family:?} {protocol}");
            rig().packet_is_dropped(&what, &packet, DropReason::ProtocolUnknown, Some(owed));
        }
    }
    // The other family's ICMP is nothing here.
    let packet = ip(v4(PEER).into(), v4(HOST).into(), IpProtocol::ICMPV6, &[128, 0, 0, 0]);
    let owed = Some(Owed::unreachable(Family::V4, 2));
    rig().packet_is_dropped("ICMPv6 over IPv4", &packet, DropReason::ProtocolUnknown, owed);
}

#[test]
fn an_unknown_protocol_to_many_is_dropped_untold() {
    let groups = [
        (Family::V4, "224.0.0.1"),
        (Family::V4, "10.0.0.255"),
        (Family::V4, "255.255.255.255"),
        (Family::V6, "ff02::1"),
    ];
    for (family, group) in groups {
        let to: IpAddr = group.parse().expect("an address");
        let packet = ip(addr(family, PEER), to, IpProtocol(200), b"?");
        let reason = DropReason::ProtocolUnknown;
        rig().packet_is_dropped(group, &packet, reason, None);
        let kind = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        rig().expect_drop(group, &frame(mac(HOST), mac(PEER), kind, &packet), reason, None);
    }
    // For one host, but in a frame for everybody.
    for family in FAMILIES {
        let packet = ip(addr(family, PEER), addr(family, HOST), IpProtocol(200), b"?");
        let mut bytes = from_peer(&packet);
        bytes[..6].copy_from_slice(&[0xff; 6]);
        rig().expect_drop("in a broadcast frame", &bytes, DropReason::ProtocolUnknown, None);
    }
}

/// RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 (c); CVE-2018-4407 was a copy beyond the end.
#[test]
fn an_error_quotes_as_much_as_fits_and_no_more() {
    for family in FAMILIES {
        for len in [0, 1, 7, 8, 500, 528, 547, 548, 549, 1231, 1232, 1233, 1400, 1452] {
            let (from, to) = (addr(family, PEER), addr(family, HOST));
            let packet = ip(from, to, IpProtocol(200), &vec![0xa5; len]);
            let owed = match family {
                Family::V4 => Owed::unreachable(family, 2),
                Family::V6 => Owed::problem_v6(1, 6),
            };
            let what = format!("{family:?} {len}");
            rig().packet_is_dropped(&what, &packet, DropReason::ProtocolUnknown, Some(owed));
        }
    }
    // The longest header.
    for len in [0, 1, 487, 488, 489, 1400] {
        let fields = Ipv4Fields { ttl: HOP_LIMIT, ..ipv4_fields(IpProtocol(200)) };
        let packet = ipv4_with_options(fields, &[1; 40], &vec![7; len]);
        let owed = Some(Owed::unreachable(Family::V4, 2));
        rig().packet_is_dropped(&format!("{len}"), &packet, DropReason::ProtocolUnknown, owed);
    }
}

#[test]
fn a_told_error_is_never_answered() {
    for family in FAMILIES {
        let quoted = udp((addr(family, HOST), 9).into(), (addr(family, PEER), 9).into(), b"");
        let packet = port_unreachable(family, &quoted);
        rig().packet_is_dropped("an error", &packet, DropReason::IcmpNoFlow, None);
    }
}
