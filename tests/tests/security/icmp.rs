//! ICMP: what errors give away, what they quote, when there must be none.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{DropReason, Family, MacAddr};
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig, StaticRoute};
use floodwall_testkit::Seeded;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, fragment_header, frame, from_peer, icmp_of, icmpv4, icmpv6,
    ip, ipv4_fields, ipv4_with_options, ipv6_chain, mac, options_header, port_unreachable, udp,
    udp_to_port, v4, v6,
};
use floodwall_tests::{Rig, Sent, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::{EtherType, Icmpv4Message, Icmpv6Message, IpProtocol};

use crate::rig;

/// A host without link headers that answers to everywhere.
fn reachable_from_everywhere() -> StackConfig {
    let base = ethernet_config(HOST);
    let everywhere = |prefix: &str| StaticRoute {
        prefix: prefix.parse().expect("a prefix"),
        via: None,
        iface: 0,
    };
    StackConfig {
        interfaces: vec![InterfaceConfig { medium: LinkMedium::Ip, ..base.interfaces[0].clone() }],
        routes: vec![everywhere("0.0.0.0/0"), everywhere("::/0")],
        ..base
    }
}

/// A far host: the `n`th of its network.
fn unknown(family: Family, network: u8, n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    match family {
        Family::V4 => [198, network, a, b].into(),
        Family::V6 => [0x2001, 0xdb8, u16::from(network), n, 0, 0, 0, 1].into(),
    }
}

/// Row 36, CVE-2020-25705 (SAD DNS): an attacker spends the limit of errors with probes in a
/// victim's name, then sends one in its own; an answer revealed that one of its probes had hit an
/// open port. It chooses how many probes to send, and must not guess better than in 55 of 100
/// tries.
#[test]
fn the_limit_of_errors_does_not_tell_which_ports_are_open() {
    for family in FAMILIES {
        for probes in [40, 49, 50, 51, 60] {
            let right = guesses(family, probes, 600);
            assert!((45..=55).contains(&(right / 6)), "{family:?}, {probes}: {right} of 600");
        }
    }
}

/// How often the attacker is right, of `tries`, half of them with an open port among the probed.
fn guesses(family: Family, probes: u16, tries: usize) -> usize {
    let mut rig = Rig::new(&reachable_from_everywhere());
    let any = SocketAddr::new("::".parse().expect("an address"), 5000);
    rig.sockets(|s| s.udp_bind(any, SocketSettings::new(Family::V6))).0.expect("a socket");
    let (victim, attacker) = (unknown(family, 1, 1), unknown(family, 2, 1));
    let host = addr(family, HOST);
    let mut right = 0;
    for n in 0..tries {
        let open = n % 2 == 0;
        rig.run_for(Duration::from_secs(2));
        for probe in 0..probes {
            // Either 5000 is among them, or a closed port is.
            let port = if open { 5000 + probe } else { 6000 + probe };
            rig.frame(&udp((victim, 53).into(), (host, port).into(), b""));
        }
        let own = rig.frame(&udp((attacker, 4000).into(), (host, 1).into(), b""));
        right += usize::from(own.is_empty() != open);
    }
    right
}

/// The same from the other side: what one peer is denied costs another nothing.
#[test]
fn a_peer_over_its_share_of_errors_takes_nothing_from_others() {
    for family in FAMILIES {
        let mut rig = Rig::new(&reachable_from_everywhere());
        let (greedy, honest) = (unknown(family, 1, 1), unknown(family, 2, 1));
        let host = addr(family, HOST);
        let (mut to_greedy, mut to_honest) = (0, 0);
        for n in 0..10_000 {
            rig.run_for(Duration::from_micros(1000));
            to_greedy += rig.frame(&udp((greedy, 9).into(), (host, 1).into(), b"")).len();
            if n % 50 == 0 {
                to_honest += rig.frame(&udp((honest, 9).into(), (host, 1).into(), b"")).len();
            }
        }
        // A hundred a second and a burst, with random prices; and everything for the other.
        assert!((700..1500).contains(&to_greedy), "{to_greedy} in ten seconds");
        assert_eq!(to_honest, 200);
    }
}

/// RFC 4443 section 2.4 (f): however many peers there are, the total of errors stays below their
/// limit.
#[test]
fn errors_to_all_peers_together_are_limited() {
    for family in FAMILIES {
        let mut rig = Rig::new(&reachable_from_everywhere());
        let host = addr(family, HOST);
        let mut errors = 0;
        for n in 0..20_000_u16 {
            rig.run_for(Duration::from_micros(50));
            let peer = unknown(family, 1, n);
            errors += rig.frame(&udp((peer, 9).into(), (host, 1).into(), b"")).len();
        }
        // A thousand in the second that this took, and the burst.
        assert!((800..1300).contains(&errors), "{family:?}: {errors}");
    }
}

/// Row 38, CVE-2018-4407, CVE-2020-22283: errors about packets with the longest headers, of any
/// length, in any number of pieces, were built beyond their memory.
#[test]
fn an_error_about_a_packet_of_any_shape_keeps_within_its_size() {
    let mut seeded = Seeded::new(38);
    for family in FAMILIES {
        let mut rig = Rig::new(&reachable_from_everywhere());
        let (from, to) = (unknown(family, 1, 1), addr(family, HOST));
        for len in 0..2000 {
            let payload = vec![0x77; len];
            let packet = match (family, len % 2) {
                (Family::V4, 1) => {
                    ipv4_with_options(ipv4_fields(IpProtocol(200)), &[1; 40], &payload)
                }
                (Family::V6, 1) => {
                    let padding = options_header(&[1, 4, 0, 0, 0, 0]);
                    let headers = [(IpProtocol::DESTINATION_OPTIONS, &padding[..]); 8];
                    ipv6_chain(&headers, IpProtocol(200), &payload)
                }
                _ => ip(from, to, IpProtocol(200), &payload),
            };
            rig.run_for(Duration::from_millis(50));
            let piece = seeded.below(1700) + packet.len() / 60 + 1;
            let whole = rig.pool.packet_from_chunks(packet.chunks(piece)).expect("room");
            let answers = rig.arrive(vec![whole]);
            assert_eq!(answers.len(), 1, "{family:?} {len}");
            let (kind, most) = match family {
                Family::V4 => (EtherType::IPV4, 576),
                Family::V6 => (EtherType::IPV6, 1280),
            };
            let bytes = floodwall_tests::bytes_of(&answers[0]);
            let sent = Sent::of_ip(&bytes, kind);
            let quote = sent.icmp().body;
            assert_eq!((sent.len <= most, quote[..] == packet[..quote.len()]), (true, true));
            assert!(quote.len() == packet.len() || sent.len == most, "{family:?} {len}");
        }
    }
}

/// Row 39, CVE-2020-7469, CVE-2026-23398, CVE-2020-11898: what an error quotes is untrusted, its
/// lengths, headers and protocols too.
#[test]
fn a_quote_of_any_bytes_does_no_harm() {
    let mut seeded = Seeded::new(39);
    for family in FAMILIES {
        let mut rig = rig();
        let from = SocketAddr::new(addr(family, HOST), 4000);
        let to = SocketAddr::new(addr(family, PEER), 9);
        let id = rig.sockets(|s| {
            let any = SocketAddr::new("::".parse().expect("an address"), 4000);
            let id = s.udp_bind(any, SocketSettings::new(Family::V6)).expect("a socket");
            s.udp_connect(id, to).expect("a peer");
            id
        });
        let (id, good) = (id.0, udp(from, to, b"hello"));
        let free = rig.pool.available();
        let mut told = 0;
        for _ in 0..20_000 {
            let mut quote = good.clone();
            for _ in 0..seeded.below(4) {
                let at = seeded.below(quote.len());
                quote[at] = seeded.next() as u8;
            }
            quote.truncate(seeded.below(quote.len() + 20));
            assert!(rig.frame(&from_peer(&port_unreachable(family, &quote))).is_empty());
            told += usize::from(
                rig.sockets(|s| s.udp_recv(id, &mut [0; 9]))
                    .0
                    .is_err_and(|e| matches!(e, floodwall_udp::RecvError::Icmp(_))),
            );
        }
        assert!((2000..20_000).contains(&told), "{family:?}: {told}");
        assert!(rig.conservation().holds());
        assert_eq!(rig.pool.available(), free);
    }
}

/// Row 40, CVE-1999-0513 (smurf), rsmurf, RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e):
/// for any defect of a packet, there is no answer to, from or about many.
#[test]
fn nothing_to_or_from_many_is_ever_answered() {
    let many = |family| -> Vec<IpAddr> {
        let all = match family {
            Family::V4 => vec!["224.0.0.1", "239.1.1.1", "255.255.255.255", "10.0.0.255"],
            Family::V6 => vec!["ff02::1", "ff02::2", "ff0e::1", "ff02::1:ff00:1"],
        };
        all.into_iter().map(|a| a.parse().expect("an address")).collect()
    };
    let no_host = |family| -> Vec<IpAddr> {
        let all = match family {
            Family::V4 => vec!["0.0.0.0", "127.0.0.1"],
            Family::V6 => vec!["::", "::1"],
        };
        all.into_iter().map(|a| a.parse().expect("an address")).collect()
    };
    for family in FAMILIES {
        // A group's echo requests are answered unless settings say otherwise: see below.
        let config = StackConfig { icmpv6_echo_ignore_multicast: true, ..ethernet_config(HOST) };
        let mut rig = Rig::with_neighbor(&config, PEER);
        rig.run_for(Duration::from_secs(10));
        let (host, peer) = (addr(family, HOST), addr(family, PEER));
        let senders = many(family).into_iter().chain(no_host(family)).map(|from| (from, host));
        let ends = senders.chain(many(family).into_iter().map(|to| (peer, to)));
        for (from, to) in ends {
            let offences = [
                echo(from, to, b"?"),
                udp((from, 4000).into(), (to, 9).into(), b"?"),
                udp((from, 7).into(), (to, 7).into(), b"?"),
                ip(from, to, IpProtocol(200), b"?"),
                ip(from, to, IpProtocol::TCP, &[0; 20]),
                ip(from, to, icmp_of(family), &[13, 0, 0, 0, 0, 0, 0, 0]),
            ];
            let kind = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
            for packet in offences {
                for station in [mac(HOST), MacAddr::BROADCAST, MacAddr([0x33, 0x33, 0, 0, 0, 1])] {
                    rig.run_for(Duration::from_secs(1));
                    let answers = rig.frame(&frame(station, mac(PEER), kind, &packet));
                    assert!(answers.is_empty(), "{from} to {to}: {answers:?}");
                }
            }
        }
    }
}

/// Errors about errors would go round for ever (RFC 1122 section 3.2.2): two hosts that send each
/// other errors fall silent at once.
#[test]
fn an_error_of_any_code_is_never_answered_by_an_error() {
    for family in FAMILIES {
        let mut rig = rig();
        let kinds: Vec<u8> = match family {
            Family::V4 => vec![3, 4, 5, 11, 12],
            // All below 128 are errors, known or not.
            Family::V6 => (0..128).chain([137]).collect(),
        };
        for kind in kinds {
            for code in [0, 1, 4, 15, 255] {
                let (from, to) = (addr(family, PEER), addr(family, HOST));
                let mut packet = port_unreachable(family, &[0x45; 60]);
                let at = if family == Family::V4 { 20 } else { 40 };
                (packet[at], packet[at + 1]) = (kind, code);
                packet[at + 2..at + 4].copy_from_slice(&[0, 0]);
                let mut sum = floodwall_checksum::sum(&packet[at..]);
                if family == Family::V6 {
                    let len = packet.len() - at;
                    let pseudo = floodwall_tests::craft::pseudo(from, to, IpProtocol::ICMPV6, len);
                    sum = sum.add(pseudo);
                }
                packet[at + 2..at + 4].copy_from_slice(&sum.finish().to_be_bytes());
                rig.run_for(Duration::from_secs(1));
                assert!(rig.frame(&from_peer(&packet)).is_empty(), "{family:?} {kind} {code}");
                assert_eq!(rig.stats().drops_in.of(DropReason::IcmpChecksum), 0);
            }
        }
    }
}

/// Row 37, CVE-2021-20322: an error that claims a smaller MTU, forged for an open port, a connected
/// one and a closed one: no difference is visible from outside, and nothing is stored for any.
#[test]
fn a_forged_error_shows_nothing_whether_a_socket_exists() {
    for family in FAMILIES {
        let too_big = |quoted: &[u8]| match family {
            Family::V4 => {
                let code = floodwall_wire::icmpv4::UnreachableCode::FRAGMENTATION_NEEDED;
                let message = Icmpv4Message::DestinationUnreachable { code, next_hop_mtu: 600 };
                icmpv4(v4(PEER), v4(HOST), message, quoted)
            }
            Family::V6 => {
                icmpv6(v6(PEER), v6(HOST), Icmpv6Message::PacketTooBig { mtu: 1280 }, quoted)
            }
        };
        let mut rig = rig();
        let any = |port| SocketAddr::new("::".parse().expect("an address"), port);
        let settings = || SocketSettings::new(Family::V6);
        rig.sockets(|s| s.udp_bind(any(5000), settings())).0.expect("a socket");
        let to = SocketAddr::new(addr(family, PEER), 9);
        rig.sockets(|s| {
            let id = s.udp_bind(any(5001), settings()).expect("a socket");
            s.udp_connect(id, to).expect("a peer");
        });
        let free = rig.pool.available();
        let mut seen = Vec::new();
        for port in [5000, 5001, 5002] {
            let quoted = udp((addr(family, HOST), port).into(), to, b"never sent");
            let told = rig.frame(&from_peer(&too_big(&quoted)));
            // What the forger sees next: an error of its own, and how many it may have.
            let own = udp((addr(family, PEER), 4000).into(), (addr(family, HOST), 1).into(), b"");
            rig.run_for(Duration::from_secs(2));
            let after = rig.frame(&from_peer(&own)).len();
            seen.push((told.len(), after));
            assert_eq!(rig.pool.available(), free, "nothing is kept");
        }
        assert_eq!(seen, [(0, 1); 3]);
    }
}

/// Row 38 again: each error that there is, about packets of every shape that calls for it.
#[test]
fn every_error_keeps_within_its_size_for_any_packet() {
    let unknown = options_header(&[1, 0, 0x9e, 2, 0, 0]);
    let padding = options_header(&[1, 4, 0, 0, 0, 0]);
    let route = [0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let many = vec![(IpProtocol::DESTINATION_OPTIONS, &padding[..]); 9];
    let mut rig = rig();
    for len in (1..2000).step_by(13) {
        let payload = vec![0x77; len];
        let v6_chain =
            |headers: &[(IpProtocol, &[u8])]| ipv6_chain(headers, IpProtocol(200), &payload);
        let with =
            |options: &[u8]| ipv4_with_options(ipv4_fields(IpProtocol::UDP), options, &payload);
        let port = |family| udp_to_port(family, 9, &payload);
        for packet in [
            v6_chain(&[(IpProtocol::HOP_BY_HOP, &unknown)]),
            v6_chain(&[(IpProtocol::ROUTING, &route)]),
            v6_chain(&many),
            v6_chain(&[(IpProtocol::DESTINATION_OPTIONS, &padding), (IpProtocol(0), &padding)]),
            port(Family::V6),
            with(&[130, 0, 0, 0]),
            with(&[[1; 39].as_slice(), &[130]].concat()),
            port(Family::V4),
        ] {
            rig.run_for(Duration::from_millis(100));
            let chunks = packet.chunks(len.div_ceil(40).max(37));
            let frame = from_peer(&packet);
            let cut = std::iter::once(&frame[..14]).chain(chunks);
            let whole = rig.pool.packet_from_chunks(cut).expect("room");
            let answers = rig.arrive(vec![whole]);
            assert_eq!(answers.len(), 1, "{len}");
            let most = if packet[0] >> 4 == 4 { 576 } else { 1280 };
            let sent = Sent::of(&answers[0]);
            assert!(sent.len <= most && sent.icmp().body == packet[..sent.icmp().body.len()]);
        }
    }
}

/// Row 39 again: behind extension headers, in a quote that RFC 4884 extends, of an unassigned
/// protocol, cut at every byte.
#[test]
fn a_quoted_chain_is_stepped_over_and_read_as_far_as_it_goes() {
    let mut rig = rig();
    let local: SocketAddr = (v6(HOST), 4000).into();
    let to: SocketAddr = (v6(PEER), 9).into();
    let id = rig.sockets(|s| {
        let any = SocketAddr::new("::".parse().expect("an address"), 4000);
        let id = s.udp_bind(any, SocketSettings::new(Family::V6)).expect("a socket");
        s.udp_connect(id, to).expect("a peer");
        id
    });
    let id = id.0;
    let datagram = udp(local, to, b"hello")[40..].to_vec();
    let quoted = |headers: &[(IpProtocol, &[u8])], last| {
        let mut packet = ipv6_chain(headers, last, &datagram);
        packet[8..24].copy_from_slice(&v6(HOST).octets());
        packet[24..40].copy_from_slice(&v6(PEER).octets());
        packet
    };
    let padding = options_header(&[1, 4, 0, 0, 0, 0]);
    let first = fragment_header(0, true);
    let later = fragment_header(100, true);
    let options = (IpProtocol::DESTINATION_OPTIONS, &padding[..]);
    let told = |rig: &mut Rig, quote: &[u8]| {
        let answers = rig.frame(&from_peer(&port_unreachable(Family::V6, quote)));
        assert!(answers.is_empty());
        rig.sockets(|s| s.udp_recv(id, &mut [0; 9]))
            .0
            .is_err_and(|e| matches!(e, floodwall_udp::RecvError::Icmp(_)))
    };
    for (headers, last, is_told) in [
        (vec![(IpProtocol::FRAGMENT, &first[..])], IpProtocol::UDP, true),
        (vec![options, (IpProtocol::FRAGMENT, &first[..])], IpProtocol::UDP, true),
        (vec![options; 8], IpProtocol::UDP, true),
        (vec![options; 9], IpProtocol::UDP, false),
        (vec![options; 150], IpProtocol::UDP, false),
        (vec![(IpProtocol::FRAGMENT, &later[..])], IpProtocol::UDP, false),
        (vec![options], IpProtocol(200), false),
        (vec![options], IpProtocol::NO_NEXT_HEADER, false),
    ] {
        let quote = quoted(&headers, last);
        let before = rig.stats().access.checks();
        assert_eq!(told(&mut rig, &quote), is_told, "{} headers", headers.len());
        assert!(rig.stats().access.checks() - before < 40);
        let ports = quote.len() - datagram.len() + 4;
        for len in (0..quote.len()).step_by(1 + headers.len() / 20 * 7) {
            assert_eq!(told(&mut rig, &quote[..len]), is_told && len >= ports, "cut at {len}");
        }
        // RFC 4884: 128 bytes of quote, then an extension of our type of harm.
        let mut extended = quote.clone();
        extended.resize(extended.len().max(128), 0);
        extended.extend([0x20, 0, 0, 0, 0, 8, 1, 1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(told(&mut rig, &extended), is_told);
    }
    // The peer and its message are reported with it.
    assert!(told(&mut rig, &udp(local, to, b"hello")));
    let report = rig.sockets(|s| s.udp_last_error(id)).0.expect("a report");
    assert_eq!((report.offender, report.kind, report.code), (v6(PEER).into(), 1, 4));
    assert_eq!((report.dst_addr, report.mtu()), (v6(PEER).into(), None));
}
