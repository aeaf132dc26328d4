//! IP headers: fragments, chains, routes, jumbograms, tunnels, options, lengths, addresses.

use std::net::IpAddr;

use floodwall_base::{DropReason, Family};
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig};
use floodwall_testkit::Seeded;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, from_peer, ip, ipv4_fields, ipv4_with_options, ipv6_chain,
    udp, udp_to_port,
};
use floodwall_tests::{Owed, Rig, Sent, ethernet_config};
use floodwall_wire::IpProtocol;

use crate::rig;

/// Row 52, CVE-2020-13984, CVE-2020-17445, CVE-2016-7039, CVE-2024-38063: header chains that loop,
/// recurse, or cost quadratic time. With any chain, a packet costs a bounded number of looks.
#[test]
fn any_chain_of_headers_costs_a_bounded_number_of_looks() {
    let kinds = [0, 43, 44, 50, 51, 60, 135, 139, 140, 17, 58, 59, 6];
    let (mut rig, mut seeded, mut most) = (rig(), Seeded::new(52), 0);
    let free = rig.pool.available();
    for _ in 0..30_000 {
        let mut bytes = Vec::new();
        for _ in 0..seeded.below(20) {
            let len = (seeded.below(4) + 1) * 8;
            let mut header: Vec<u8> = (0..len).map(|_| seeded.next() as u8 & 0x3f).collect();
            header[0] = kinds[seeded.below(kinds.len())];
            header[1] = if seeded.below(8) == 0 { seeded.next() as u8 } else { len as u8 / 8 - 1 };
            bytes.extend(header);
        }
        let first = IpProtocol(kinds[seeded.below(kinds.len())]);
        let packet = ip(addr(Family::V6, PEER), addr(Family::V6, HOST), first, &bytes);
        let before = rig.stats().access.checks();
        rig.frame(&from_peer(&packet));
        most = most.max(rig.stats().access.checks() - before);
        assert!(rig.conservation().holds());
    }
    // Some were fragments, which are given up in time.
    drop(rig.run_for(std::time::Duration::from_secs(100)));
    assert_eq!(rig.pool.available(), free);
    // Two for each of eight headers, as many steps over what a refused packet carries, and a few.
    assert!(most <= 40, "{most} looks");
}

/// Row 52: the longest chain there is: 8,172 headers of eight bytes in 64 KiB.
#[test]
fn a_chain_of_eight_thousand_headers_costs_no_more_than_one_of_nine() {
    let padding = [0, 0, 1, 4, 0, 0, 0, 0];
    let looks = |count: usize| {
        let mut rig = rig();
        let headers = vec![(IpProtocol::DESTINATION_OPTIONS, &padding[..]); count];
        let packet = ipv6_chain(&headers, IpProtocol::UDP, &[0; 8]);
        let owed = Some(Owed::problem_v6(8, 40 + 64));
        rig.packet_is_dropped("a chain", &packet, DropReason::ExtensionLimit, owed);
        rig.stats().access.checks()
    };
    let (nine, all) = (looks(9), looks(8172));
    assert!(all <= nine + 16, "{nine} and {all}");
}

/// Row 53, CVE-2007-2242: routing headers of type 0 make a packet go to and fro (RFC 5095).
#[test]
fn a_routing_header_is_never_followed() {
    for addrs in [1, 2, 10, 80] {
        let mut header = vec![0, addrs * 2, 0, addrs, 0, 0, 0, 0];
        for n in 0..addrs {
            let IpAddr::V6(via) = addr(Family::V6, if n % 2 == 0 { PEER } else { HOST }) else {
                continue;
            };
            header.extend(via.octets());
        }
        let headers: [(IpProtocol, &[u8]); 1] = [(IpProtocol::ROUTING, &header)];
        let packet = ipv6_chain(&headers, IpProtocol::UDP, &[0; 8]);
        let owed = Some(Owed::problem_v6(0, 42));
        rig().packet_is_dropped("type 0", &packet, DropReason::ExtensionRouting, owed);
        // With nothing left to visit it is stepped over.
        header[3] = 0;
        let headers: [(IpProtocol, &[u8]); 1] = [(IpProtocol::ROUTING, &header)];
        let ask = echo(addr(Family::V6, PEER), addr(Family::V6, HOST), b"?")[40..].to_vec();
        let packet = ipv6_chain(&headers, IpProtocol::ICMPV6, &ask);
        let answers = rig().lives("visited", &from_peer(&packet));
        assert_eq!(Sent::of(&answers[0]).icmp().kind, 129);
    }
}

/// Row 55, CVE-2020-10136, CVE-2020-11896, CVE-2024-7595, CVE-2025-23018: packets within packets,
/// unasked. What is inside is neither unwrapped, nor answered, nor passed on.
#[test]
fn no_tunnel_is_unwrapped_unasked() {
    for family in FAMILIES {
        let (peer, host) = (addr(family, PEER), addr(family, HOST));
        for inner in FAMILIES.map(|f| echo(addr(f, PEER), addr(f, HOST), b"inside")) {
            for protocol in [4, 41, 47, 55, 94, 97, 98, 115, 137] {
                let gre = [&[0, 0, if inner[0] >> 4 == 4 { 8 } else { 0x86 }, 0][..], &inner];
                let payload = if protocol == 47 { gre.concat() } else { inner.clone() };
                let packet = ip(peer, host, IpProtocol(protocol), &payload);
                let owed = match family {
                    Family::V4 => Owed::unreachable(family, 2),
                    Family::V6 => Owed::problem_v6(1, 6),
                };
                let mut rig = rig();
                rig.packet_is_dropped("a tunnel", &packet, DropReason::ProtocolUnknown, Some(owed));
                assert_eq!(rig.stats().outcomes.forwarded, 0);
            }
            // VXLAN, Geneve, GTP-U, Teredo, MPLS and GRE in UDP.
            for port in [4789, 6081, 2152, 3544, 6635, 4754] {
                let payload = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &inner].concat();
                let packet = udp((peer, 4000).into(), (host, port).into(), &payload);
                let owed = Owed::unreachable(family, if family == Family::V4 { 3 } else { 4 });
                rig().packet_is_dropped("a tunnel", &packet, DropReason::UdpNoPort, Some(owed));
            }
        }
    }
}

/// Row 56, CVE-2019-12256, CVE-2021-24074: every kind of IPv4 option with every length.
#[test]
fn ipv4_options_of_any_kind_and_length_do_no_harm() {
    let mut rig = rig();
    let free = rig.pool.available();
    let datagram = &udp_to_port(Family::V4, 9, b"")[20..];
    for kind in 0..=255 {
        for len in 0..=41 {
            let mut options = [1; 40];
            options[0] = kind;
            options[1] = len;
            if len > 2 {
                options[2] = 4;
            }
            // Behind a no-operation, the length is a kind, and so on.
            if kind == 1 {
                continue;
            }
            let packet = ipv4_with_options(ipv4_fields(IpProtocol::UDP), &options, datagram);
            let before = rig.stats();
            rig.run_for(std::time::Duration::from_secs(1));
            let answers = rig.frame(&from_peer(&packet));
            let after = rig.stats();
            let dropped = floodwall_tests::drops_between(&before, &after).0[0].0;
            let routed = matches!(kind, 131 | 137);
            let expected = match (kind, len) {
                (0, _) => DropReason::UdpNoPort,
                (_, 0 | 1 | 41) => DropReason::IpOptionMalformed,
                _ if routed && len >= 3 && (len - 3) % 4 == 0 => DropReason::IpSourceRoute,
                (7, _) if len < 3 || (len - 3) % 4 != 0 => DropReason::IpOptionMalformed,
                (68, _) if len < 4 || len % 4 != 0 => DropReason::IpOptionMalformed,
                // Its pointer, 4, is before the first timestamp.
                (68, _) => DropReason::IpOptionMalformed,
                (148, 4) => DropReason::UdpNoPort,
                (148, _) => DropReason::IpOptionMalformed,
                _ if routed => DropReason::IpOptionMalformed,
                _ => DropReason::UdpNoPort,
            };
            assert_eq!(dropped, expected, "option {kind} of {len} bytes");
            assert_eq!(answers.is_empty(), dropped == DropReason::IpSourceRoute);
        }
    }
    assert_eq!(rig.pool.available(), free);
}

/// Row 57, CVE-2020-11897, CVE-2020-17441: wrong lengths, of every size, for packets cut at every
/// byte.
#[test]
fn a_length_of_any_value_in_a_packet_cut_anywhere_does_no_harm() {
    for family in FAMILIES {
        let packet = udp_to_port(family, 9, &[7; 24]);
        let at = if family == Family::V4 { 2 } else { 4 };
        let header = if family == Family::V4 { 20 } else { 40 };
        let mut rig = rig();
        for cut in header..=packet.len() {
            for said in (0..packet.len() as u16 + 10).chain([0x7fff, 0x8000, 0xffff]) {
                let mut bytes = packet[..cut].to_vec();
                bytes[at..at + 2].copy_from_slice(&said.to_be_bytes());
                if family == Family::V4 {
                    bytes[10..12].copy_from_slice(&[0, 0]);
                    let check = floodwall_checksum::sum(&bytes[..20]).finish();
                    bytes[10..12].copy_from_slice(&check.to_be_bytes());
                }
                let whole = usize::from(said) + if family == Family::V4 { 0 } else { 40 };
                let before = rig.stats();
                drop(rig.frame(&from_peer(&bytes)));
                let dropped = floodwall_tests::drops_between(&before, &rig.stats()).0;
                let reason = match whole {
                    whole if whole > cut || whole < header => DropReason::IpLength,
                    whole if whole < packet.len() => DropReason::UdpMalformed,
                    _ => DropReason::UdpNoPort,
                };
                assert_eq!(dropped, [(reason, 1)], "{family:?} {said} of {cut}");
            }
        }
        assert!(rig.conservation().holds());
    }
}

/// Row 60, CVE-2019-14899: a packet for the address of another interface comes from a peer that
/// should not learn of it. The strong host model (RFC 1122 section 3.3.4.2) answers to an address
/// where it is.
#[test]
fn an_address_is_reached_through_its_own_interface_alone() {
    let second = InterfaceConfig {
        name: "tun0".to_owned(),
        medium: LinkMedium::Ip,
        mtu: 1500,
        addresses: ["10.1.0.1/24", "fd01::1/64"].map(|a| a.parse().expect("an address")).into(),
        gateways: Vec::new(),
        ..InterfaceConfig::default()
    };
    let mut config: StackConfig = ethernet_config(HOST);
    config.interfaces.push(second);
    for (family, other) in [(Family::V4, "10.1.0.1"), (Family::V6, "fd01::1")] {
        let mut rig = Rig::with_neighbor(&config, PEER);
        let to: IpAddr = other.parse().expect("an address");
        for packet in [
            echo(addr(family, PEER), to, b"?"),
            udp((addr(family, PEER), 4000).into(), (to, 9).into(), b"?"),
        ] {
            rig.packet_is_dropped("another interface's", &packet, DropReason::IpNotForUs, None);
        }
        // A packet that claims that address as its source is not accepted.
        let packet = echo(to, addr(family, HOST), b"?");
        rig.packet_is_dropped("in our name", &packet, DropReason::IpSourceInvalid, None);
    }
}

/// Row 60: martians (RFC 1812 section 5.3.7, RFC 6890, RFC 4291): no packet from or to what cannot
/// be.
#[test]
fn martians_are_dropped_silently() {
    let sources = [
        "0.0.0.0",
        "0.255.255.255",
        "127.0.0.0",
        "127.255.255.255",
        "224.0.0.0",
        "239.255.255.255",
        "240.0.0.0",
        "255.255.255.255",
        "10.0.0.255",
        "::",
        "::1",
        "::2",
        "::ffff:1.2.3.4",
        "::1.2.3.4",
        "ff00::",
        "ff02::1",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ];
    for source in sources {
        let from: IpAddr = source.parse().expect("an address");
        let to = addr(Family::of(from), HOST);
        for packet in [
            echo(from, to, b"?"),
            udp((from, 4000).into(), (to, 9).into(), b"?"),
            ip(from, to, IpProtocol(200), b"?"),
        ] {
            let mut rig = rig();
            assert!(rig.frame(&from_peer(&packet)).is_empty(), "{source}");
            assert_eq!(rig.stats().drops_in.total(), 1, "{source}");
        }
    }
}

/// Row 59, CVE-2011-2699, CVE-2019-10638, CVE-2020-36516: counters that remote hosts can read. What
/// we send is atomic, so that its identification reveals nothing (RFC 6864), and carries no flow
/// label.
#[test]
fn identifications_say_nothing() {
    for family in FAMILIES {
        let mut rig = rig();
        for n in 0..200_u8 {
            let ask = echo(addr(family, PEER), addr(family, HOST), &[n]);
            let closed = udp_to_port(family, 9, &[n]);
            for answer in [rig.frame(&from_peer(&ask)), rig.frame(&from_peer(&closed))] {
                for packet in &answer {
                    let bytes = floodwall_tests::bytes_of(packet);
                    let ip = &bytes[14..];
                    match family {
                        Family::V4 => assert_eq!((&ip[4..6], ip[6] & 0x40), (&[0, 0][..], 0x40)),
                        Family::V6 => assert_eq!((ip[1] & 0x0f, &ip[2..4]), (0, &[0, 0][..])),
                    }
                }
            }
        }
    }
}
