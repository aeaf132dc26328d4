//! Drops in ICMP, neighbour discovery and UDP, in both families: each is provoked by a packet and
//! counted once by its reason.
//!
//! What each call of `expect_drop` checks is documented at `Rig::expect_drop`. Reading: RFC
//! 792, RFC 4443, RFC 4861 sections 6.1, 7.1 and 8.1, RFC 6980, RFC 768, RFC 1122 section 4.1.3.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::{Counter, DropReason, Family, MacAddr, solicited_node};
use floodwall_stack::StackConfig;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, fragment_header, from_peer, icmp_of, ip, ipv6_chain, mac,
    port_unreachable, pseudo, udp, udp_datagram, udp_to_port, v6,
};
use floodwall_tests::{Owed, Rig, Sent, drops_between, ethernet_config};
use floodwall_udp::{SocketId, SocketSettings};
use floodwall_wire::ndp::{NeighborAdvertisementFields, NeighborSolicitationFields};
use floodwall_wire::{IpProtocol, NdpOption};

fn rig() -> Rig {
    Rig::with_neighbor(&ethernet_config(HOST), PEER)
}

/// A socket on a port of every address of both families.
fn open(rig: &mut Rig, port: u16, settings: SocketSettings) -> SocketId {
    let any = SocketAddr::new("::".parse().unwrap(), port);
    rig.sockets(|s| s.udp_bind(any, settings)).0.unwrap()
}

/// An ICMP message of a family in its packet, its checksum made right.
fn icmp(family: Family, mut message: Vec<u8>) -> Vec<u8> {
    let (from, to) = (addr(family, PEER), addr(family, HOST));
    message[2..4].copy_from_slice(&[0, 0]);
    let mut sum = floodwall_checksum::sum(&message);
    if family == Family::V6 {
        sum = sum.add(pseudo(from, to, IpProtocol::ICMPV6, message.len()));
    }
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    ip(from, to, icmp_of(family), &message)
}

#[test]
fn a_truncated_icmp_message_is_dropped() {
    for family in FAMILIES {
        for len in 0..8 {
            let packet =
                ip(addr(family, PEER), addr(family, HOST), icmp_of(family), &[8; 8][..len]);
            let reason = DropReason::IcmpMalformed;
            rig().packet_is_dropped(&format!("{family:?} {len}"), &packet, reason, None);
        }
    }
}

#[test]
fn an_icmp_message_with_a_wrong_checksum_is_dropped() {
    for family in FAMILIES {
        let good = echo(addr(family, PEER), addr(family, HOST), b"hello");
        let header = if family == Family::V4 { 20 } else { 40 };
        let mut rig = rig();
        for at in header..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            let what = format!("{family:?} {at}");
            rig.packet_is_dropped(&what, &bytes, DropReason::IcmpChecksum, None);
        }
        let counter = match family {
            Family::V4 => Counter::IcmpInCsumErrors,
            Family::V6 => Counter::Icmp6InCsumErrors,
        };
        assert_eq!(rig.stats().counters.of(counter) as usize, good.len() - header);
    }
}

#[test]
fn an_icmp_message_of_another_type_is_dropped() {
    // Source quench (RFC 6633), timestamp, address mask; for IPv6 MLD, name lookup, experiments.
    for kind in [1, 4, 6, 9, 10, 13, 14, 15, 17, 30, 40, 255] {
        let packet = icmp(Family::V4, vec![kind, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
        rig().packet_is_dropped(&format!("{kind}"), &packet, DropReason::IcmpTypeUnknown, None);
    }
    for kind in [138, 139, 160, 200, 255] {
        let packet = icmp(Family::V6, vec![kind, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
        rig().packet_is_dropped(&format!("{kind}"), &packet, DropReason::IcmpTypeUnknown, None);
    }
    // An echo reply with a code is none.
    for (family, kind) in [(Family::V4, 0), (Family::V6, 129)] {
        let packet = icmp(family, vec![kind, 1, 0, 0, 0, 0, 0, 1]);
        rig().packet_is_dropped("code 1", &packet, DropReason::IcmpTypeUnknown, None);
    }
}

/// As Linux does. RFC 792 and RFC 4443 section 4.1 have no code but 0, and no rule for another.
#[test]
fn an_echo_request_with_a_code_is_answered_with_it() {
    for (family, request, reply) in [(Family::V4, 8, 0), (Family::V6, 128, 129)] {
        for code in [0, 1, 255] {
            let packet = icmp(family, vec![request, code, 0, 0, 0, 7, 0, 1, 9]);
            let answers = rig().lives(&format!("{family:?} {code}"), &from_peer(&packet));
            let sent = Sent::of(&answers[0]);
            let to = (sent.from, sent.to);
            assert_eq!((answers.len(), to), (1, (addr(family, HOST), addr(family, PEER))));
            let icmp = sent.icmp();
            assert_eq!((icmp.kind, icmp.code), (reply, code), "{family:?}");
            assert_eq!((icmp.word, &icmp.body[..]), (0x0007_0001, &[9][..]));
        }
    }
}

/// Smurf: a request to many, from a victim (CVE-1999-0513).
#[test]
fn an_echo_request_to_many_is_dropped_unanswered() {
    let groups = [
        (Family::V4, "224.0.0.1"),
        (Family::V4, "10.0.0.255"),
        (Family::V4, "255.255.255.255"),
        (Family::V6, "ff02::1"),
        (Family::V6, "ff02::1:ff00:1"),
    ];
    let config = StackConfig { icmpv6_echo_ignore_multicast: true, ..ethernet_config(HOST) };
    for (family, group) in groups {
        let to: IpAddr = group.parse().unwrap();
        let packet = echo(addr(family, PEER), to, b"?");
        let mut rig = Rig::with_neighbor(&config, PEER);
        rig.packet_is_dropped(group, &packet, DropReason::IcmpEchoRefused, None);
    }
    for family in FAMILIES {
        let packet = echo(addr(family, PEER), addr(family, HOST), b"?");
        let mut bytes = from_peer(&packet);
        bytes[..6].copy_from_slice(&[0xff; 6]);
        rig().expect_drop("in a broadcast frame", &bytes, DropReason::IcmpEchoRefused, None);
    }
}

/// RFC 4443 section 4.2 wants an answer, from an address of ours; for IPv4 (RFC 1122 section
/// 3.2.2.6) a setting does.
#[test]
fn an_echo_request_to_a_group_is_answered_from_our_own_address_where_the_settings_say_so() {
    let config = StackConfig { icmp_echo_ignore_broadcasts: false, ..ethernet_config(HOST) };
    for (family, group) in [
        (Family::V4, "224.0.0.1"),
        (Family::V4, "10.0.0.255"),
        (Family::V6, "ff02::1"),
        (Family::V6, "ff02::1:ff00:1"),
    ] {
        let mut rig = Rig::with_neighbor(&config, PEER);
        let bytes = from_peer(&echo(addr(family, PEER), group.parse().unwrap(), b"anybody?"));
        let answers = rig.lives(group, &bytes);
        let sent = Sent::of(&answers[0]);
        assert_eq!(
            (answers.len(), sent.from, sent.to),
            (1, addr(family, HOST), addr(family, PEER))
        );
        let icmp = sent.icmp();
        assert_eq!(icmp.kind, if family == Family::V4 { 0 } else { 129 });
        assert_eq!((icmp.word, &icmp.body[..]), (0x0007_0001, &b"anybody?"[..]));
    }
    // Not to what pretends to be one of our own addresses.
    let packet = echo(addr(Family::V6, HOST), "ff02::1".parse().unwrap(), b"?");
    rig().packet_is_dropped("forged", &packet, DropReason::IpSourceInvalid, None);
}

/// Smurf again: what many can be made to send to one victim is bounded as errors are.
#[test]
fn answers_to_a_groups_echo_requests_are_rationed_like_errors() {
    let config =
        StackConfig { icmp_echo_ignore_broadcasts: false, echo_rate: 0, ..ethernet_config(HOST) };
    for (family, group) in [(Family::V4, "224.0.0.1"), (Family::V6, "ff02::1")] {
        let mut rig = Rig::with_neighbor(&config, PEER);
        let bytes = from_peer(&echo(addr(family, PEER), group.parse().unwrap(), b"?"));
        let answered: usize = (0..3000).map(|_| rig.frame(&bytes).len()).sum();
        let limited = rig.stats().drops_in.of(DropReason::IcmpRateLimited);
        assert_eq!(answered as u64 + limited, 3000);
        // The burst of 50, with a random price.
        assert!((25..110).contains(&answered), "{answered}");
    }
}

/// RFC 4443 section 2.4 (a): an error of an unknown type is reported to the socket that it is
/// about.
#[test]
fn an_unknown_icmpv6_error_is_for_the_socket_of_the_quoted_packet() {
    let mut rig = rig();
    let settings = SocketSettings { recv_errors: true, ..SocketSettings::new(Family::V6) };
    let id = open(&mut rig, 4000, settings);
    let quoted = udp((v6(HOST), 4000).into(), (v6(PEER), 9).into(), b"hello");
    for kind in [0, 100, 127] {
        let packet = icmp(Family::V6, [&[kind, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat());
        rig.lives("an error", &from_peer(&packet));
        let told = rig.sockets(|s| s.udp_recv(id, &mut [0; 9])).0.unwrap_err();
        let error = floodwall_udp::IcmpError::Unknown { kind, code: 3 };
        assert_eq!(told, floodwall_udp::RecvError::Icmp(error));
        let packet = icmp(Family::V6, vec![kind, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
        rig.packet_is_dropped("about nothing", &packet, DropReason::IcmpNoFlow, None);
    }
}

#[test]
fn an_error_or_a_reply_that_belongs_to_nothing_is_dropped() {
    for (family, kind) in [(Family::V4, 0), (Family::V6, 129)] {
        let packet = icmp(family, vec![kind, 0, 0, 0, 0, 7, 0, 1, 1, 2, 3]);
        rig().packet_is_dropped("an echo reply", &packet, DropReason::IcmpNoFlow, None);
    }
    for family in FAMILIES {
        let (us, peer) = (addr(family, HOST), addr(family, PEER));
        let ours = udp((us, 9).into(), (peer, 9).into(), b"never sent");
        let theirs = udp((peer, 9).into(), (us, 9).into(), b"not ours");
        let other = ip(us, peer, IpProtocol(200), b"????????");
        for quoted in [&ours[..], &theirs, &other, b"", b"\x45"] {
            let packet = port_unreachable(family, quoted);
            rig().packet_is_dropped(&format!("{quoted:?}"), &packet, DropReason::IcmpNoFlow, None);
        }
    }
}

/// CVE-2026-23398, CVE-2020-11898: what an error quotes is read as far as it goes.
#[test]
fn a_quote_truncated_at_any_byte_is_read_as_far_as_it_goes() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = open(&mut rig, 4000, SocketSettings::new(Family::V6));
        let to = SocketAddr::new(addr(family, PEER), 9);
        rig.sockets(|s| s.udp_connect(id, to)).0.unwrap();
        let from = SocketAddr::new(addr(family, HOST), 4000);
        let sent = udp(from, to, b"hello");
        let ports = sent.len() - 5 - 4;
        for len in 0..sent.len() {
            let bytes = from_peer(&port_unreachable(family, &sent[..len]));
            if len < ports {
                rig.expect_drop(&format!("{family:?} {len}"), &bytes, DropReason::IcmpNoFlow, None);
            } else {
                rig.lives(&format!("{family:?} {len}"), &bytes);
                rig.sockets(|s| s.udp_recv(id, &mut [0; 9])).0.unwrap_err();
            }
        }
    }
}

#[test]
fn echo_requests_beyond_a_peers_share_are_dropped() {
    for family in FAMILIES {
        let config = StackConfig { echo_rate: 100, ..ethernet_config(HOST) };
        let mut rig = Rig::with_neighbor(&config, PEER);
        let bytes = from_peer(&echo(addr(family, PEER), addr(family, HOST), b"?"));
        let answered: usize = (0..3000).map(|_| rig.frame(&bytes).len()).sum();
        let stats = rig.stats();
        let limited = stats.drops_in.of(DropReason::IcmpRateLimited);
        assert_eq!((stats.drops_in.total(), answered as u64 + limited), (limited, 3000));
        // The burst of 1,000, with a random price, and nothing more while no time passes.
        assert!((850..1150).contains(&answered), "{answered}");
        assert!(rig.conservation().holds());
        let counter = match family {
            Family::V4 => Counter::IcmpOutRateLimitHost,
            Family::V6 => Counter::Icmp6OutRateLimitHost,
        };
        assert_eq!(stats.counters.of(counter), limited);
    }
}

/// A neighbour solicitation as it should be.
fn solicitation(target: Ipv6Addr, from: Ipv6Addr, to: Ipv6Addr, option: bool) -> Vec<u8> {
    let mut bytes = [0; 64];
    let options = [NdpOption::SourceLinkAddr(mac(PEER))];
    let fields = NeighborSolicitationFields { target_addr: target };
    let options = if option { &options[..] } else { &[] };
    let len = fields.emit_into(options, from, to, &mut bytes).unwrap();
    ip(from.into(), to.into(), IpProtocol::ICMPV6, &bytes[..len])
}

fn advertisement(target: Ipv6Addr, to: Ipv6Addr, solicited: bool, link: MacAddr) -> Vec<u8> {
    let mut bytes = [0; 64];
    let fields = NeighborAdvertisementFields {
        router: false,
        solicited,
        override_entry: true,
        target_addr: target,
    };
    let options = [NdpOption::TargetLinkAddr(link)];
    let len = fields.emit_into(&options, v6(PEER), to, &mut bytes).unwrap();
    ip(v6(PEER).into(), to.into(), IpProtocol::ICMPV6, &bytes[..len])
}

#[test]
fn neighbour_discovery_that_crossed_a_router_is_dropped() {
    let group = solicited_node(v6(HOST));
    for hop_limit in [0, 1, 64, 254] {
        let mut packet = solicitation(v6(HOST), v6(PEER), group, true);
        packet[7] = hop_limit;
        let what = format!("{hop_limit}");
        rig().packet_is_dropped(&what, &packet, DropReason::NdpHopLimit, None);
    }
}

#[test]
fn malformed_neighbour_discovery_is_dropped() {
    let reason = DropReason::NdpMalformed;
    let group = solicited_node(v6(HOST));
    let good = solicitation(v6(HOST), v6(PEER), group, true);
    let message = good[40..].to_vec();
    // Cut short, an option of length zero or beyond the end, a code, a group as target.
    for len in 8..message.len() {
        // Without its option it is whole.
        if len != 24 {
            let packet = icmp(Family::V6, message[..len].to_vec());
            rig().packet_is_dropped(&format!("{len}"), &packet, reason, None);
        }
    }
    for (at, byte) in [(25, 0), (25, 2), (25, 255), (1, 1), (8, 0xff)] {
        let mut message = message.clone();
        message[at] = byte;
        rig().packet_is_dropped(&format!("byte {at}"), &icmp(Family::V6, message), reason, None);
    }
    // RFC 6980: not even an atomic fragment.
    let whole: [(IpProtocol, &[u8]); 1] = [(IpProtocol::FRAGMENT, &fragment_header(0, false))];
    let to_us = solicitation(v6(HOST), v6(PEER), v6(HOST), true);
    let packet = ipv6_chain(&whole, IpProtocol::ICMPV6, &to_us[40..]);
    rig().packet_is_dropped("atomic fragment", &packet, reason, None);
    // RFC 4861 section 7.1.1: a probe names no link address and goes to the right group.
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let packet = solicitation(v6(HOST), unspecified, group, true);
    rig().packet_is_dropped("a probe with a link address", &packet, reason, None);
    let packet = solicitation(v6(HOST), unspecified, v6(HOST), false);
    rig().packet_is_dropped("a probe to one", &packet, reason, None);
    // Section 7.1.2: a solicited answer does not go to all.
    let all = "ff02::1".parse().unwrap();
    let packet = advertisement(v6(9), all, true, mac(9));
    rig().packet_is_dropped("solicited, to all", &packet, reason, None);
    let packet = advertisement(v6(9), v6(HOST), true, MacAddr::BROADCAST);
    rig().packet_is_dropped("the broadcast address", &packet, reason, None);
    // Section 6.1.2 and 8.1: routers send from link-local addresses.
    for (kind, len) in [(134, 16), (137, 40)] {
        let mut message = vec![0; len];
        message[0] = kind;
        rig().packet_is_dropped(&format!("{kind}"), &icmp(Family::V6, message), reason, None);
    }
}

#[test]
fn neighbour_discovery_about_others_is_dropped() {
    let group = solicited_node(v6(HOST));
    let mut rig = rig();
    // Its last three bytes are ours, so that it reaches the group; the address is not.
    let other: Ipv6Addr = "fd00::9:0:1".parse().unwrap();
    let packet = solicitation(other, v6(PEER), group, true);
    rig.packet_is_dropped("for another", &packet, DropReason::NdpNotForUs, None);
    // CVE-2008-2476: from elsewhere it would fill the cache with what is not on the link.
    let far: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let packet = solicitation(v6(HOST), far, group, true);
    rig.packet_is_dropped("from afar", &packet, DropReason::NdpNotForUs, None);
    let packet = solicitation(v6(HOST), v6(HOST), group, true);
    rig.packet_is_dropped("from ourselves", &packet, DropReason::NdpNotForUs, None);
    assert_eq!(rig.stack.neighbors_v6().iter().count(), 1, "the peer alone");
}

#[test]
fn an_advertisement_that_nothing_asked_for_is_dropped() {
    let all = "ff02::1".parse().unwrap();
    for (to, solicited) in [(v6(HOST), true), (v6(HOST), false), (all, false)] {
        let mut rig = rig();
        let packet = advertisement(v6(9), to, solicited, mac(9));
        rig.packet_is_dropped("unsolicited", &packet, DropReason::NdpUnsolicited, None);
        assert_eq!(rig.stack.neighbors_v6().iter().count(), 1, "the peer alone");
    }
}

#[test]
fn a_malformed_datagram_is_dropped() {
    for family in FAMILIES {
        let mut rig = rig();
        open(&mut rig, 7, SocketSettings::new(Family::V6));
        let reason = DropReason::UdpMalformed;
        let (from, to) = (addr(family, PEER), addr(family, HOST));
        let good = udp_datagram((from, 4000).into(), (to, 7).into(), b"hello");
        for len in 0..8 {
            let packet = ip(from, to, IpProtocol::UDP, &good[..len]);
            rig.packet_is_dropped(&format!("{family:?} cut at {len}"), &packet, reason, None);
        }
        // Below the header's own length, and beyond the packet: 0 is a jumbogram's (RFC 2675).
        for len in (0_u16..8).chain([14, 15, 100, 0x7fff, 0xffff]) {
            let mut bytes = good.clone();
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
            let packet = ip(from, to, IpProtocol::UDP, &bytes);
            rig.packet_is_dropped(&format!("{family:?} {len}"), &packet, reason, None);
        }
    }
}

#[test]
fn a_datagram_with_a_wrong_checksum_is_dropped_with_and_without_a_socket() {
    for family in FAMILIES {
        let mut rig = rig();
        let settings = SocketSettings { receive_bytes: 1 << 20, ..SocketSettings::new(Family::V6) };
        open(&mut rig, 7, settings);
        let header = if family == Family::V4 { 20 } else { 40 };
        for port in [7, 9] {
            let good = udp_to_port(family, port, b"hello");
            for at in (header + 6)..good.len() {
                let mut bytes = good.clone();
                bytes[at] ^= 1;
                let what = format!("{family:?} {port} {at}");
                rig.packet_is_dropped(&what, &bytes, DropReason::UdpChecksum, None);
            }
        }
        let mut none = udp_to_port(family, 7, b"hello");
        none[header + 6..header + 8].copy_from_slice(&[0, 0]);
        match family {
            // RFC 768: no checksum was made. RFC 8200 section 8.1: there is always one.
            Family::V4 => assert!(rig.lives("none", &from_peer(&none)).is_empty()),
            Family::V6 => rig.packet_is_dropped("none", &none, DropReason::UdpChecksum, None),
        }
        none[header + 2..header + 4].copy_from_slice(&9_u16.to_be_bytes());
        match family {
            Family::V4 => {
                let owed = Some(Owed::unreachable(family, 3));
                rig.packet_is_dropped("none, closed", &none, DropReason::UdpNoPort, owed);
            }
            Family::V6 => {
                rig.packet_is_dropped("none, closed", &none, DropReason::UdpChecksum, None);
            }
        }
    }
}

#[test]
fn a_datagram_for_a_closed_port_is_dropped_and_is_told() {
    for family in FAMILIES {
        let code = if family == Family::V4 { 3 } else { 4 };
        for len in [0, 1, 100, 1400] {
            let packet = udp_to_port(family, 9, &vec![1; len]);
            let owed = Some(Owed::unreachable(family, code));
            let what = format!("{family:?} {len}");
            rig().packet_is_dropped(&what, &packet, DropReason::UdpNoPort, owed);
        }
    }
}

#[test]
fn a_datagram_to_many_for_a_closed_port_is_dropped_untold() {
    let groups = [
        (Family::V4, "224.0.0.1"),
        (Family::V4, "10.0.0.255"),
        (Family::V4, "255.255.255.255"),
        (Family::V6, "ff02::1"),
    ];
    for (family, group) in groups {
        let to: IpAddr = group.parse().unwrap();
        let packet = udp((addr(family, PEER), 4000).into(), (to, 9).into(), b"?");
        rig().packet_is_dropped(group, &packet, DropReason::UdpNoPort, None);
    }
    for family in FAMILIES {
        let mut bytes = from_peer(&udp_to_port(family, 9, b"?"));
        bytes[..6].copy_from_slice(&[0xff; 6]);
        rig().expect_drop("in a broadcast frame", &bytes, DropReason::UdpNoPort, None);
    }
}

#[test]
fn a_datagram_for_a_full_socket_is_dropped_and_the_waiting_ones_stay() {
    for family in FAMILIES {
        let mut rig = rig();
        let settings = SocketSettings {
            receive_bytes: 20_000,
            fair_drop: false,
            ..SocketSettings::new(Family::V6)
        };
        let id = open(&mut rig, 7, settings);
        let free = rig.pool.available();
        let bytes = from_peer(&udp_to_port(family, 7, &[1; 1000]));
        let before = rig.stats();
        for _ in 0..100 {
            assert!(rig.frame(&bytes).is_empty(), "no answer");
        }
        let dropped = drops_between(&before, &rig.stats());
        let waiting = rig.stats().outcomes.delivered;
        assert_eq!(dropped, (vec![(DropReason::UdpSocketFull, 100 - waiting)], vec![]));
        assert!((5..20).contains(&waiting), "{waiting} of 2,176 true bytes");
        let received = (0..).take_while(|_| {
            rig.sockets(|s| s.udp_recv(id, &mut [0; 2000])).0.is_ok_and(|r| r.len == 1000)
        });
        assert_eq!(received.count() as u64, waiting);
        assert_eq!(rig.pool.available(), free);
        assert!(rig.conservation().holds());
    }
}

#[test]
fn an_answered_echo_is_the_question_again() {
    for family in FAMILIES {
        for len in [0, 1, 2, 33, 1400] {
            let body: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let packet = echo(addr(family, PEER), addr(family, HOST), &body);
            let mut rig = rig();
            let answers = rig.lives("an echo", &from_peer(&packet));
            let icmp = Sent::of(&answers[0]).icmp();
            let kind = if family == Family::V4 { 0 } else { 129 };
            assert_eq!((icmp.kind, icmp.code, icmp.word), (kind, 0, 7 << 16 | 1));
            assert_eq!(icmp.body, body);
        }
    }
}
