//! A router passes packets on: what it changes, what it refuses, and which senders receive an
//! error, in both families.
//!
//! Each refusal is counted once by its reason with balanced accounting. Reading: RFC 1812 chapters
//! 4 and 5, RFC 8200, RFC 4443, RFC 4861 section 8, RFC 3704, RFC 6890.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, MacAddr, Prefix, limits};
use floodwall_fib::{Leg, NextHop, Route, RouteKind};
use floodwall_ip::forward::Martians;
use floodwall_stack::{InterfaceConfig, StackConfig};
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, frame, ip, ipv4_with_options, ipv6_chain_to, mac,
    options_header, udp,
};
use floodwall_tests::transit::{
    LEFT, RIGHT, Transit, far, from_left, from_right, one_hop_later, right, right_mac,
    router_config, with_hop_limit,
};
use floodwall_tests::{Sent, bytes_of};
use floodwall_wire::{EtherType, IpProtocol, Ipv4Fields, Ipv4Header};

fn router() -> Transit {
    Transit::new(&router_config())
}

fn hello(family: Family, to: IpAddr) -> Vec<u8> {
    udp(SocketAddr::new(addr(family, PEER), 4000), SocketAddr::new(to, 9), b"hello")
}

fn of(family: Family, v4: Counter, v6: Counter) -> Counter {
    if family == Family::V4 { v4 } else { v6 }
}

/// The unreachable code of a family: IPv4's first.
fn kinds(family: Family, v4: (u8, u8), v6: (u8, u8)) -> (u8, u8) {
    if family == Family::V4 { v4 } else { v6 }
}

#[test]
fn a_packet_for_the_other_side_goes_there_with_one_hop_less() {
    for family in FAMILIES {
        let mut router = router();
        for to in [right(family, PEER), far(family, 7)] {
            let packet = hello(family, to);
            let departed = router.arrive(LEFT, &[from_left(&packet)]);
            assert_eq!(departed.len(), 1, "{to}");
            let bytes = bytes_of(&departed[0]);
            let kind = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
            let after = frame(right_mac(PEER), right_mac(HOST), kind, &one_hop_later(&packet));
            assert_eq!((bytes, departed[0].iface()), (after, RIGHT), "{to}");
        }
        let stats = router.rig.stats();
        let forwarded = of(family, Counter::IpForwDatagrams, Counter::Ip6OutForwDatagrams);
        assert_eq!((stats.counters.of(forwarded), stats.outcomes.forwarded), (2, 2));
        assert!(router.rig.conservation().holds());
    }
}

#[test]
fn without_forwarding_nothing_is_passed_on() {
    for family in FAMILIES {
        let off =
            [StackConfig { ipv4_forwarding: false, ipv6_forwarding: false, ..router_config() }, {
                let mut config = router_config();
                config.interfaces[0].forwarding = false;
                config
            }];
        for config in off {
            let packet = hello(family, right(family, PEER));
            let mut router = Transit::new(&config);
            assert!(router.expect_drop("a host", &packet, DropReason::IpNotForUs).is_empty());
        }
    }
}

#[test]
fn a_burst_to_one_next_hop_is_looked_up_once_and_stays_in_order() {
    for family in FAMILIES {
        let mut router = router();
        let before = router.rig.stats();
        let packets: Vec<_> = (0..64).map(|n| hello(family, far(family, n))).collect();
        let frames: Vec<_> = packets.iter().map(|packet| from_left(packet)).collect();
        let departed = router.arrive(LEFT, &frames);
        let sent: Vec<_> = departed.iter().map(|p| bytes_of(p)[14..].to_vec()).collect();
        assert_eq!(sent, packets.iter().map(|p| one_hop_later(p)).collect::<Vec<_>>());
        let stats = router.rig.stats();
        let grown = |c| stats.counters.of(c) - before.counters.of(c);
        assert_eq!(grown(Counter::FloodwallForwardBursts), 1);
        assert_eq!(grown(Counter::FloodwallForwardAgain), 63);
    }
}

#[test]
fn a_router_answers_at_each_of_its_addresses() {
    for family in FAMILIES {
        let mut router = router();
        let ping = echo(addr(family, PEER), right(family, HOST), b"?");
        let departed = router.arrive(LEFT, &[from_left(&ping)]);
        assert_eq!(departed.len(), 1);
        let sent = Sent::of(&departed[0]);
        assert_eq!((sent.from, sent.to), (right(family, HOST), addr(family, PEER)));
        let mut host = StackConfig { ipv4_forwarding: false, ..router_config() };
        host.ipv6_forwarding = false;
        assert!(Transit::new(&host).expect_drop("host", &ping, DropReason::IpNotForUs).is_empty());
    }
}

#[test]
fn a_packet_without_a_hop_left_is_dropped_and_its_sender_is_told() {
    for family in FAMILIES {
        for hops in [0, 1] {
            let packet = with_hop_limit(&hello(family, far(family, 7)), hops);
            let mut router = router();
            let departed = router.expect_drop("no hop left", &packet, DropReason::HopLimitExceeded);
            let sent = Sent::of(&departed[0]);
            // From the interface that leads back (RFC 1812 section 4.3.2.4).
            assert_eq!((sent.from, sent.to), (addr(family, HOST), addr(family, PEER)));
            let icmp = sent.icmp();
            assert_eq!((icmp.kind, icmp.code), kinds(family, (11, 0), (3, 0)));
            assert_eq!(icmp.body, packet);
        }
        let mut router = router();
        let two = with_hop_limit(&hello(family, far(family, 7)), 2);
        assert_eq!(router.arrive(LEFT, &[from_left(&two)]).len(), 1);
    }
}

#[test]
fn routes_that_lead_nowhere_say_so_in_their_words() {
    let cases = [
        (None, DropReason::NoRoute, Some(((3, 0), (1, 0)))),
        (Some(RouteKind::Unreachable), DropReason::RouteUnreachable, Some(((3, 1), (1, 0)))),
        (Some(RouteKind::Prohibit), DropReason::RouteProhibited, Some(((3, 13), (1, 1)))),
        (Some(RouteKind::Blackhole), DropReason::RouteBlackhole, None),
    ];
    for (kind, reason, owed) in cases {
        for family in FAMILIES {
            let (mut router, now) = (router(), router().rig.now);
            let to: IpAddr = match family {
                Family::V4 => Ipv4Addr::new(192, 168, 9, 9).into(),
                Family::V6 => "fd99::9".parse().unwrap(),
            };
            if let Some(kind) = kind {
                match to {
                    IpAddr::V4(to) => {
                        let route = Route::nowhere(Prefix::host(to), kind);
                        router.rig.stack.routes_v4_mut().append(route, now).unwrap();
                    }
                    IpAddr::V6(to) => {
                        let route = Route::nowhere(Prefix::host(to), kind);
                        router.rig.stack.routes_v6_mut().append(route, now).unwrap();
                    }
                }
            }
            let departed = router.expect_drop(reason.name(), &hello(family, to), reason);
            let told = departed.first().map(|packet| {
                let icmp = Sent::of(packet).icmp();
                (icmp.kind, icmp.code)
            });
            assert_eq!(told, owed.map(|(v4, v6)| kinds(family, v4, v6)), "{reason:?}");
        }
    }
}

#[test]
fn a_route_into_a_dead_link_is_told_as_unreachable() {
    for family in FAMILIES {
        let mut router = router();
        let (now, rig) = (router.rig.now, &mut router.rig);
        rig.stack.set_up(RIGHT, false, now, &mut rig.random);
        let packet = hello(family, far(family, 7));
        let departed = router.expect_drop("dead link", &packet, DropReason::InterfaceDown);
        assert_eq!(Sent::of(&departed[0]).icmp().kind, kinds(family, (3, 0), (1, 0)).0);
    }
}

/// A router with this MTU on its right side.
fn narrow(mtu: u32) -> Transit {
    let mut config = router_config();
    config.interfaces[1].mtu = mtu;
    if mtu < 1280 {
        config.interfaces[1].addresses.retain(|address| address.addr().is_ipv4());
        config.routes.retain(|route| route.prefix.addr().is_ipv4());
    }
    let mut router = Transit { rig: floodwall_tests::Rig::new(&config) };
    for family in FAMILIES.into_iter().take(if mtu < 1280 { 1 } else { 2 }) {
        router.knows(LEFT, addr(family, PEER), mac(PEER));
        router.knows(RIGHT, right(family, PEER), right_mac(PEER));
    }
    router
}

#[test]
fn what_is_too_big_is_told_the_links_mtu() {
    for family in FAMILIES {
        let mut router = narrow(1280);
        let ends = (SocketAddr::new(addr(family, PEER), 1), SocketAddr::new(far(family, 7), 9));
        let mut packet = udp(ends.0, ends.1, &[7; 1400]);
        if family == Family::V4 {
            packet[6] |= 0x40;
            packet = with_hop_limit(&packet, 64);
        }
        let departed = router.expect_drop("too big", &packet, DropReason::PacketTooBig);
        let icmp = Sent::of(&departed[0]).icmp();
        assert_eq!((icmp.kind, icmp.code), kinds(family, (3, 4), (2, 0)));
        assert_eq!(icmp.word, 1280);
        let stats = router.rig.stats();
        let counter = of(family, Counter::IpFragFails, Counter::Ip6InTooBigErrors);
        assert_eq!(stats.counters.of(counter), 1);
    }
}

#[test]
fn ipv4_that_may_be_cut_is_cut_and_keeps_its_identification() {
    let mut router = narrow(600);
    let (from, to) = ("10.0.0.2:1".parse().unwrap(), "172.16.0.7:9".parse().unwrap());
    let mut packet = udp(from, to, &[7; 1400]);
    (packet[4], packet[5], packet[6]) = (0xbe, 0xef, 0);
    let packet = with_hop_limit(&packet, 64);
    let departed = router.arrive(LEFT, &[from_left(&packet)]);
    let mut payload = Vec::new();
    for piece in &departed {
        let bytes = bytes_of(piece)[14..].to_vec();
        let header = Ipv4Header::parse(&bytes, bytes.len()).unwrap();
        assert!(bytes.len() <= 600);
        let place = (header.id(), header.ttl(), header.fragment_offset());
        assert_eq!(place, (0xbeef, 63, payload.len()));
        payload.extend_from_slice(&bytes[20..]);
    }
    assert_eq!((departed.len(), payload), (3, packet[20..].to_vec()));
    let stats = router.rig.stats();
    assert_eq!(stats.counters.of(Counter::IpFragCreates), 3);
    assert_eq!(stats.counters.of(Counter::IpForwDatagrams), 1);
    assert!(router.rig.conservation().holds());
}

#[test]
fn fragments_are_passed_on_as_they_are() {
    for family in FAMILIES {
        let mut router = router();
        let packet = udp(
            SocketAddr::new(addr(family, PEER), 1),
            SocketAddr::new(far(family, 7), 9),
            &[7; 1000],
        );
        let pieces = floodwall_tests::craft::fragments(&packet, 77, 400);
        let frames: Vec<_> = pieces.iter().map(|piece| from_left(piece)).collect();
        let departed = router.arrive(LEFT, &frames);
        let sent: Vec<_> = departed.iter().map(|p| bytes_of(p)[14..].to_vec()).collect();
        assert_eq!(sent, pieces.iter().map(|p| one_hop_later(p)).collect::<Vec<_>>());
    }
}

#[test]
fn addresses_that_belong_to_a_link_or_to_nothing_are_not_passed_on() {
    use DropReason::{ForwardBroadcast, ForwardLinkScope, ForwardMartian};
    let v4 = [
        ("169.254.1.1", "172.16.0.7", ForwardLinkScope),
        ("10.0.0.2", "169.254.1.1", ForwardLinkScope),
        ("10.0.0.2", "240.0.0.1", ForwardMartian),
        ("10.0.0.2", "10.1.0.255", ForwardBroadcast),
        ("10.0.0.2", "0.1.2.3", DropReason::IpDestinationInvalid),
        ("10.0.0.2", "127.0.0.1", DropReason::IpDestinationInvalid),
        ("127.0.0.1", "172.16.0.7", DropReason::IpSourceInvalid),
        ("0.0.0.0", "172.16.0.7", DropReason::IpSourceInvalid),
        ("240.0.0.1", "172.16.0.7", DropReason::IpSourceInvalid),
        ("224.0.0.5", "172.16.0.7", DropReason::IpSourceInvalid),
        ("10.1.0.1", "172.16.0.7", DropReason::IpSourceInvalid),
        ("10.0.0.255", "172.16.0.7", DropReason::IpSourceInvalid),
        ("10.0.0.2", "239.1.2.3", DropReason::IpGroupNotJoined),
    ];
    let v6 = [
        ("fd00::2", "fe80::99", ForwardLinkScope),
        ("::", "fd16::7", ForwardMartian),
        ("::1", "fd16::7", DropReason::IpSourceInvalid),
        ("::ffff:10.0.0.2", "fd16::7", DropReason::IpSourceInvalid),
        ("fd01::1", "fd16::7", DropReason::IpSourceInvalid),
        ("fd00::2", "::ffff:10.0.0.2", DropReason::IpDestinationInvalid),
        ("fd00::2", "ff05::1234", DropReason::IpGroupNotJoined),
        ("ff02::1", "fd16::7", DropReason::IpSourceInvalid),
    ];
    for (from, to, reason) in v4.into_iter().chain(v6) {
        let packet = ip(from.parse().unwrap(), to.parse().unwrap(), IpProtocol::UDP, &[0; 16]);
        let departed = router().expect_drop(&format!("{from} {to}"), &packet, reason);
        assert!(departed.is_empty(), "{from} {to}: no error is sent");
    }
}

#[test]
fn one_that_sends_from_its_link_alone_is_told_that_this_leads_nowhere() {
    let mut router = router();
    router.knows(LEFT, "fe80::2".parse().unwrap(), mac(PEER));
    let packet =
        ip("fe80::2".parse().unwrap(), "fd16::7".parse().unwrap(), IpProtocol::UDP, &[0; 16]);
    let departed = router.expect_drop("link-local source", &packet, DropReason::ForwardLinkScope);
    let icmp = Sent::of(&departed[0]).icmp();
    assert_eq!((icmp.kind, icmp.code), (1, 2), "beyond the scope of the source address");
}

#[test]
fn the_registry_of_addresses_is_asked_where_that_is_configured() {
    for (family, to) in [(Family::V4, "203.0.113.9"), (Family::V6, "2001:db8::9")] {
        let packet = hello(family, to.parse().unwrap());
        let config = StackConfig { martians: Martians::Registry, ..router_config() };
        let mut strict = Transit::new(&config);
        assert!(strict.expect_drop(to, &packet, DropReason::ForwardMartian).is_empty());
        // Else it is a destination as any.
        router().expect_drop(to, &packet, DropReason::NoRoute);
    }
}

#[test]
fn what_came_in_a_frame_for_many_is_not_passed_on() {
    for family in FAMILIES {
        let packet = hello(family, far(family, 7));
        let kind = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let broadcast = frame(MacAddr::BROADCAST, mac(PEER), kind, &packet);
        let mut router = router();
        let dropped = router.dropped(|r| assert!(r.arrive(LEFT, &[broadcast]).is_empty()));
        assert_eq!(dropped.0, [(DropReason::ForwardBroadcast, 1)]);
    }
}

#[test]
fn ipv4_options_pass_but_source_routes_and_broken_ones_do_not() {
    let to = Ipv4Addr::new(172, 16, 0, 7);
    let fields = Ipv4Fields::new(Ipv4Addr::new(10, 0, 0, 2), to, IpProtocol::UDP, 64, 0);
    let with = |options: &[u8]| ipv4_with_options(fields, options, &[0; 16]);
    let route = [0x83, 7, 4, 10, 1, 0, 2, 0];
    router().expect_drop("source route", &with(&route), DropReason::IpSourceRoute);
    let mut router = router();
    let broken = router.expect_drop("broken", &with(&[7, 99]), DropReason::IpOptionMalformed);
    assert_eq!(Sent::of(&broken[0]).icmp().kind, 12);
    let alert = with(&[0x94, 4, 0, 0]);
    let departed = router.arrive(LEFT, &[from_left(&alert)]);
    assert_eq!(bytes_of(&departed[0])[14..], one_hop_later(&alert));
}

#[test]
fn the_hop_by_hop_header_is_looked_at_and_nothing_behind_it() {
    let to: Ipv6Addr = "fd16::7".parse().unwrap();
    let chain =
        |headers: &[(IpProtocol, &[u8])]| ipv6_chain_to(to, headers, IpProtocol::UDP, &[0; 16]);
    let hop = IpProtocol::HOP_BY_HOP;
    // An unknown option that requires discard and an error, and one that is to be skipped.
    let refused = chain(&[(hop, &options_header(&[0x9e, 2, 0, 0, 1, 0]))]);
    let skipped = chain(&[(hop, &options_header(&[0x1e, 2, 0, 0, 1, 0]))]);
    // For the destination alone: a router has no opinion.
    let behind = chain(&[(IpProtocol(60), &options_header(&[0x9e, 2, 0, 0, 1, 0]))]);
    let mut router = router();
    let told = router.expect_drop("refused", &refused, DropReason::ExtensionOptionUnknown);
    assert_eq!((Sent::of(&told[0]).icmp().kind, Sent::of(&told[0]).icmp().code), (4, 2));
    for packet in [skipped, behind] {
        let departed = router.arrive(LEFT, &[from_left(&packet)]);
        assert_eq!(bytes_of(&departed[0])[14..], one_hop_later(&packet));
    }
}

#[test]
fn errors_about_errors_and_fragments_are_not_made() {
    for family in FAMILIES {
        let error = floodwall_tests::craft::port_unreachable(family, &[0; 48]);
        let mut error = with_hop_limit(&error, 1);
        let at = if family == Family::V4 { 16 } else { 24 };
        let to: Vec<u8> = match far(family, 7) {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        error[at..at + to.len()].copy_from_slice(&to);
        let error = with_hop_limit(&error, 1);
        let silent = router().expect_drop("error", &error, DropReason::HopLimitExceeded);
        assert!(silent.is_empty(), "{family:?}");
    }
    let mut later = ip(addr(Family::V4, PEER), far(Family::V4, 7), IpProtocol::UDP, &[0; 16]);
    later[7] = 100;
    let later = with_hop_limit(&later, 1);
    assert!(router().expect_drop("fragment", &later, DropReason::HopLimitExceeded).is_empty());
}

#[test]
fn an_unknown_neighbour_is_asked_for_and_its_packets_leave_when_it_answers() {
    for family in FAMILIES {
        let (mut router, to) = (router(), right(family, 66));
        let packet = hello(family, to);
        let asked = router.arrive(LEFT, &[from_left(&packet)]);
        assert_eq!((asked.len(), router.rig.stats().pending), (1, 1));
        let more: Vec<_> = (0..5).map(|_| from_left(&packet)).collect();
        let dropped = router.dropped(|r| assert!(r.arrive(LEFT, &more).is_empty()));
        assert_eq!(dropped.1, [(DropReason::NeighborPendingFull, 3)]);
        let mac = right_mac(66);
        // The neighbour's own question for us carries its address.
        router.rig.stack.flush_neighbors(RIGHT);
        router.knows(RIGHT, to, mac);
        let departed = router.arrive(LEFT, &[from_left(&packet)]);
        assert_eq!(bytes_of(&departed[0])[..6], mac.0);
        assert!(router.rig.conservation().holds());
    }
}

#[test]
fn one_that_sends_to_a_neighbour_that_does_not_answer_is_told() {
    for family in FAMILIES {
        let (mut router, to) = (router(), right(family, 66));
        let packet = hello(family, to);
        router.arrive(LEFT, &[from_left(&packet)]);
        let departed = router.rig.run_for(Duration::from_secs(5));
        let told: Vec<_> = departed
            .iter()
            .filter(|p| p.iface() == LEFT)
            .map(|p| Sent::of(p).icmp())
            .map(|icmp| (icmp.kind, icmp.code, icmp.body))
            .collect();
        let (kind, code) = kinds(family, (3, 1), (1, 3));
        assert_eq!(told, [(kind, code, one_hop_later(&packet))], "{family:?}");
        assert!(router.rig.conservation().holds());
    }
}

/// A packet of another prefix for a neighbour that is not known has it resolved.
fn assert_quiet_prefix_asks(router: &mut Transit, family: Family) {
    let (quiet, to) = match family {
        Family::V4 => ("192.0.2.7", "10.1.200.1"),
        Family::V6 => ("2001:db8:7::7", "fd01::8:1"),
    };
    let [quiet, to]: [IpAddr; 2] = [quiet, to].map(|text| text.parse().unwrap());
    let packet = udp(SocketAddr::new(quiet, 9), SocketAddr::new(to, 9), b"hello");
    let departed = router.arrive(LEFT, &[from_left(&packet)]);
    assert_eq!(departed.len(), 1, "{family:?}: a question for it");
    assert_eq!(departed[0].iface(), RIGHT);
    assert!(router.rig.conservation().holds());
}

#[test]
fn random_destinations_on_a_network_take_no_known_neighbours_place() {
    for family in FAMILIES {
        let mut config = router_config();
        let wide = ["10.1.0.1/16", "fd01::1/64"].map(|text| text.parse().unwrap());
        config.interfaces[1] =
            InterfaceConfig { addresses: wide.into(), ..config.interfaces[1].clone() };
        let mut router = Transit::new(&config);
        // As many honest neighbours as may be resolved, less some.
        for n in 0..500_u16 {
            let [high, low] = n.to_be_bytes();
            let to: IpAddr = match family {
                Family::V4 => Ipv4Addr::new(10, 1, 128 + high, low.max(1)).into(),
                Family::V6 => Ipv6Addr::new(0xfd01, 0, 0, 0, 9, 9, 9, n).into(),
            };
            router.knows(RIGHT, to, right_mac(PEER));
        }
        let free = router.rig.pool.available();
        let mut random = floodwall_base::PublicRandom::new(7);
        let mut questions = 0;
        for _ in 0..300 {
            let frames: Vec<_> = (0..64)
                .map(|_| {
                    let word = random.next_u64();
                    let [a, b, c, d, ..] = word.to_be_bytes();
                    let to: IpAddr = match family {
                        Family::V4 => Ipv4Addr::new(10, 1, a % 128, b.clamp(3, 254)).into(),
                        Family::V6 => Ipv6Addr::new(
                            0xfd01,
                            0,
                            0,
                            0,
                            7,
                            u16::from(c),
                            u16::from(d),
                            u16::from_be_bytes([a, b]),
                        )
                        .into(),
                    };
                    from_left(&hello(family, to))
                })
                .collect();
            let departed = router.arrive(LEFT, &frames);
            questions += departed.iter().filter(|p| p.iface() == RIGHT).count();
            questions += router.rig.run_for(Duration::from_millis(10)).len();
            assert!(router.rig.conservation().holds());
        }
        // 19,200 packets in three seconds: the table bounds which neighbours are resolved, and how
        // often.
        let most = limits::NEIGHBORS_INCOMPLETE_MAX * 4;
        assert!(questions > 200 && questions <= most, "{questions} questions");
        let known = |router: &Transit| match family {
            Family::V4 => router.rig.stack.neighbors_v4().iter().count(),
            Family::V6 => router.rig.stack.neighbors_v6().iter().count(),
        };
        assert!(known(&router) <= 502 + limits::NEIGHBORS_INCOMPLETE_MAX + 2);
        let stats = router.rig.stats();
        assert!(stats.drops_out.of(DropReason::NeighborTableFull) > 10_000);
        // Every known neighbour still is known.
        for n in [1_u16, 250, 499] {
            let [high, low] = n.to_be_bytes();
            let to: IpAddr = match family {
                Family::V4 => Ipv4Addr::new(10, 1, 128 + high, low).into(),
                Family::V6 => Ipv6Addr::new(0xfd01, 0, 0, 0, 9, 9, 9, n).into(),
            };
            let departed = router.arrive(LEFT, &[from_left(&hello(family, to))]);
            assert_eq!(bytes_of(&departed[0])[..6], right_mac(PEER).0, "{to}");
        }
        assert_quiet_prefix_asks(&mut router, family);
        router.rig.run_for(Duration::from_secs(120));
        assert_eq!(router.rig.pool.available(), free, "memory is back");
    }
}

#[test]
fn flows_spread_over_several_next_hops_and_each_keeps_its_own() {
    for family in FAMILIES {
        let mut router = router();
        router.knows(RIGHT, right(family, 3), right_mac(3));
        let (now, to) = (router.rig.now, far(family, 7));
        match family {
            Family::V4 => {
                let hops = [PEER, 3].map(|n| hop(right(family, n)));
                let prefix = Prefix::new(Ipv4Addr::new(172, 16, 0, 0), 24).unwrap();
                add_multipath(router.rig.stack.routes_v4_mut(), prefix, hops, now);
            }
            Family::V6 => {
                let hops = [PEER, 3].map(|n| hop(right(family, n)));
                let prefix = Prefix::new("fd16::".parse().unwrap(), 64).unwrap();
                add_multipath(router.rig.stack.routes_v6_mut(), prefix, hops, now);
            }
        }
        let station = |router: &mut Transit, port: u16| {
            let from = SocketAddr::new(addr(family, PEER), port);
            let packet = udp(from, SocketAddr::new(to, 9), b"hello");
            let departed = router.arrive(LEFT, &[from_left(&packet)]);
            bytes_of(&departed[0])[5]
        };
        let first: Vec<_> = (1000..1200).map(|port| station(&mut router, port)).collect();
        let again: Vec<_> = (1000..1200).map(|port| station(&mut router, port)).collect();
        assert_eq!(first, again, "a flow stays");
        let third = first.iter().filter(|station| **station == 3).count();
        assert!((60..140).contains(&third), "{third} of 200 flows");
    }
}

/// RFC 6438: the 20 bits of the flow label select, and the traffic class beside them does not.
#[test]
fn a_changed_traffic_class_moves_no_flow_to_another_next_hop() {
    let mut router = router();
    router.knows(RIGHT, right(Family::V6, 3), right_mac(3));
    let hops = [PEER, 3].map(|n| hop(right(Family::V6, n)));
    let prefix = Prefix::new("fd16::".parse().unwrap(), 64).unwrap();
    let now = router.rig.now;
    add_multipath(router.rig.stack.routes_v6_mut(), prefix, hops, now);
    let IpAddr::V6(to) = far(Family::V6, 7) else { unreachable!() };
    let datagram = hello(Family::V6, to.into())[40..].to_vec();
    let options = options_header(&[1, 4, 0, 0, 0, 0]);
    let fragment = floodwall_tests::craft::fragment_header(0, true);
    let packets = [
        ip(addr(Family::V6, PEER), to.into(), IpProtocol(4), b"in a tunnel"),
        ip(addr(Family::V6, PEER), to.into(), IpProtocol::ESP, &[9; 32]),
        ipv6_chain_to(
            to,
            &[(IpProtocol::DESTINATION_OPTIONS, &options)],
            IpProtocol::UDP,
            &datagram,
        ),
        ipv6_chain_to(to, &[(IpProtocol::FRAGMENT, &fragment)], IpProtocol::UDP, &datagram),
        hello(Family::V6, to.into()),
    ];
    for packet in packets {
        let mut station = |class: u8, label: u32| {
            let mut packet = packet.clone();
            let word = 6 << 28 | u32::from(class) << 20 | label;
            packet[..4].copy_from_slice(&word.to_be_bytes());
            let departed = router.arrive(LEFT, &[from_left(&packet)]);
            bytes_of(&departed[0])[5]
        };
        let by_label: Vec<_> = (0..64).map(|label| station(0, label * 4099)).collect();
        for class in [1, 2, 3, 0x10, 0xb8, 0xff] {
            let again: Vec<_> = (0..64).map(|label| station(class, label * 4099)).collect();
            assert_eq!(again, by_label, "class {class:#x} of {packet:?}");
        }
        let plain = packet[6] == IpProtocol::UDP.0;
        let third = by_label.iter().filter(|station| **station == 3).count();
        let spread = if plain { third == 0 || third == 64 } else { (12..52).contains(&third) };
        assert!(spread, "{third} of 64 labels of {packet:?}");
    }
}

fn hop<A: floodwall_base::Address>(via: IpAddr) -> NextHop<A> {
    let gateway = A::from_ip(via);
    NextHop { kind: RouteKind::Unicast, iface: RIGHT, gateway, src_addr: None }
}

fn add_multipath<A: floodwall_fib::lpm::LpmFamily>(
    fib: &mut floodwall_fib::Fib<A>,
    prefix: Prefix<A>,
    hops: [NextHop<A>; 2],
    now: floodwall_base::Instant,
) {
    let legs = hops.map(|hop| Leg { hop, weight: 1 });
    let route = Route::on_link(prefix, RIGHT);
    fib.put_multipath(route, &legs, floodwall_fib::Put::Append, now).unwrap();
}

#[test]
fn a_host_is_told_of_a_better_first_hop_on_its_own_link() {
    for family in FAMILIES {
        let (mut router, now) = (router(), router().rig.now);
        let gateway: IpAddr = match family {
            Family::V4 => addr(family, 9),
            Family::V6 => "fe80::9".parse().unwrap(),
        };
        router.knows(LEFT, gateway, mac(9));
        let to: IpAddr = match (family, gateway) {
            (Family::V4, IpAddr::V4(gateway)) => {
                let prefix = Prefix::new(Ipv4Addr::new(192, 168, 5, 0), 24).unwrap();
                let route = Route::via(prefix, LEFT, gateway);
                router.rig.stack.routes_v4_mut().append(route, now).unwrap();
                "192.168.5.5".parse().unwrap()
            }
            (_, IpAddr::V6(gateway)) => {
                let prefix = Prefix::new("fd55::".parse().unwrap(), 64).unwrap();
                let route = Route::via(prefix, LEFT, gateway);
                router.rig.stack.routes_v6_mut().append(route, now).unwrap();
                "fd55::5".parse().unwrap()
            }
            _ => unreachable!(),
        };
        let packet = hello(family, to);
        let departed = router.arrive(LEFT, &[from_left(&packet)]);
        assert_eq!(departed.len(), 2, "the redirect, and the packet itself");
        let (redirect, passed) = (Sent::of(&departed[0]), bytes_of(&departed[1]));
        assert_eq!((&passed[..6], &passed[14..]), (&mac(9).0[..], &one_hop_later(&packet)[..]));
        let icmp = redirect.icmp();
        assert_eq!(
            (icmp.kind, redirect.to),
            (kinds(family, (5, 1), (137, 0)).0, addr(family, PEER))
        );
        match gateway {
            IpAddr::V4(gateway) => {
                assert_eq!((icmp.word, icmp.code), (gateway.to_bits(), 1));
                assert_eq!(icmp.body, packet);
            }
            IpAddr::V6(gateway) => {
                assert_eq!(icmp.body[..16], gateway.octets());
                assert_eq!(bytes_of(&departed[0])[21], 255, "no router has touched it");
            }
        }
        // Limited as errors are; all packets pass.
        let many: Vec<_> = (0..256).map(|_| from_left(&packet)).collect();
        let departed = router.arrive(LEFT, &many);
        let redirects = departed.len() - 256;
        assert!(redirects <= limits::ICMP_PEER_BURST as usize * 3, "{redirects}");
        let mut config = router_config();
        config.interfaces[0].send_redirects = false;
        let mut silent = Transit::new(&config);
        silent.knows(LEFT, gateway, mac(9));
        let on_link = hello(family, addr(family, 9));
        silent.knows(LEFT, addr(family, 9), mac(9));
        assert_eq!(silent.arrive(LEFT, &[from_left(&on_link)]).len(), 1, "none is sent");
    }
}

#[test]
fn nothing_learnt_of_a_path_counts_for_others_packets() {
    // A host's own packets would be cut or redirected; a router's exceptions are its own.
    for family in FAMILIES {
        let mut router = router();
        let packet = udp(
            SocketAddr::new(addr(family, PEER), 1),
            SocketAddr::new(far(family, 7), 9),
            &[7; 1400],
        );
        let error = match family {
            Family::V4 => floodwall_tests::craft::icmpv4(
                Ipv4Addr::new(172, 16, 0, 7),
                Ipv4Addr::new(10, 0, 0, 2),
                floodwall_wire::Icmpv4Message::DestinationUnreachable {
                    code: floodwall_wire::icmpv4::UnreachableCode::FRAGMENTATION_NEEDED,
                    next_hop_mtu: 1000,
                },
                &packet[..64],
            ),
            Family::V6 => floodwall_tests::craft::icmpv6(
                "fd16::7".parse().unwrap(),
                "fd00::2".parse().unwrap(),
                floodwall_wire::Icmpv6Message::PacketTooBig { mtu: 1280 },
                &packet[..64],
            ),
        };
        let back = router.arrive(RIGHT, &[from_right(&error)]);
        assert_eq!(
            bytes_of(&back[0])[14..],
            one_hop_later(&error),
            "errors pass to their destination"
        );
        assert_eq!(router.arrive(LEFT, &[from_left(&packet)]).len(), 1);
    }
}

#[test]
fn what_is_not_for_us_is_no_longer_refusable_where_it_is_passed_on() {
    use floodwall_packet::Triage;
    for family in FAMILIES {
        let frame = from_left(&hello(family, far(family, 7)));
        assert_eq!(router().rig.classify(std::slice::from_ref(&frame)), [Triage::Unknown]);
        let host =
            StackConfig { ipv4_forwarding: false, ipv6_forwarding: false, ..router_config() };
        assert_eq!(Transit::new(&host).rig.classify(&[frame]), [Triage::Rejectable]);
    }
}

#[test]
fn a_packet_in_pieces_is_passed_on_as_a_whole_one() {
    for family in FAMILIES {
        let packet = hello(family, far(family, 7));
        let whole = from_left(&packet);
        let mut router = router();
        for cut in 1..whole.len() {
            let parts = [&whole[..cut], &whole[cut..]];
            let mut buf = router.rig.pool.packet_from_chunks(parts).unwrap();
            buf.set_iface(LEFT);
            let departed = router.rig.round(vec![buf], floodwall_packet::Engine::round).1;
            assert_eq!(bytes_of(&departed[0])[14..], one_hop_later(&packet), "{family:?} {cut}");
        }
    }
}

/// RFC 7112 section 5: what hides its upper header is not passed on while a rule asks for it.
#[test]
fn a_list_is_not_passed_by_hiding_the_upper_header() {
    let mut config = router_config();
    config.interfaces[0].access = ["deny udp dport 9"].map(|r| r.parse().unwrap()).into();
    let IpAddr::V6(to) = far(Family::V6, 7) else { unreachable!() };
    let datagram = hello(Family::V6, to.into())[40..].to_vec();
    let options = options_header(&[1, 4, 0, 0, 0, 0]);
    let options = (IpProtocol::DESTINATION_OPTIONS, &options[..]);
    let first = floodwall_tests::craft::fragment_header(0, true);
    let first = (IpProtocol::FRAGMENT, &first[..]);
    let authentication = [0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for headers in [
        vec![options; 16],
        vec![options; 17],
        vec![options; 100],
        vec![(IpProtocol::AUTHENTICATION, &authentication[..])],
        vec![first, options],
    ] {
        let whole = ipv6_chain_to(to, &headers, IpProtocol::UDP, &datagram);
        let cut = ipv6_chain_to(to, &headers, IpProtocol::UDP, &datagram[..2]);
        let mut router = Transit::new(&config);
        for packet in [whole, cut] {
            let silent = router.expect_drop("hidden", &packet, DropReason::AccessDenied);
            assert!(silent.is_empty());
        }
        let none = ipv6_chain_to(to, &headers, IpProtocol::UDP, b"");
        assert!(router.expect_drop("hidden", &none, DropReason::AccessDenied).is_empty());
    }
    // Legitimate fragments of what no rule denies pass.
    let mut router = Transit::new(&config);
    for (offset, more) in [(0, true), (8, false)] {
        let header = floodwall_tests::craft::fragment_header(offset, more);
        let headers = [options, (IpProtocol::FRAGMENT, &header[..])];
        let packet = ipv6_chain_to(to, &headers, IpProtocol::TCP, &[0; 24]);
        assert_eq!(router.arrive(LEFT, &[from_left(&packet)]).len(), 1, "{offset}");
    }
}

#[test]
fn what_a_rule_denies_is_dropped_before_anything_else_is_done() {
    for family in FAMILIES {
        let mut config = router_config();
        config.interfaces[0].access = ["permit udp dport 10", "deny udp dport 9-20", "deny 200"]
            .map(|r| r.parse().unwrap())
            .into();
        let mut router = Transit::new(&config);
        let to = far(family, 7);
        let port =
            |port| udp(SocketAddr::new(addr(family, PEER), 1), SocketAddr::new(to, port), b"?");
        let silent = router.expect_drop("denied", &port(9), DropReason::AccessDenied);
        assert!(silent.is_empty());
        // No answer although it has no hop left; and what is for ourselves is denied as well.
        let spent = with_hop_limit(&port(9), 1);
        assert!(router.expect_drop("no hop left", &spent, DropReason::AccessDenied).is_empty());
        let ours = ip(addr(family, PEER), addr(family, HOST), IpProtocol(200), b"?");
        assert!(router.expect_drop("ours", &ours, DropReason::AccessDenied).is_empty());
        let open = [from_left(&port(10)), from_left(&port(21))];
        assert_eq!(router.arrive(LEFT, &open).len(), 2);
        let list = router.rig.stack.access_list(LEFT).unwrap();
        let counts: Vec<_> = list.rules().map(|(_, count)| count.packets).collect();
        assert_eq!(counts, [1, 2, 1]);
        assert_eq!(router.rig.stats().counters.of(Counter::FloodwallAccessDenied), 3);
        assert!(router.rig.stack.access_list(RIGHT).is_none());
        // From the other side nothing is solicited.
        assert_eq!(
            router
                .arrive(RIGHT, &[from_right(&ip(to, addr(family, PEER), IpProtocol(200), b"?"))])
                .len(),
            1
        );
    }
}

#[test]
fn a_follower_passes_on_what_its_own_queue_brings() {
    for family in FAMILIES {
        let mut shards = floodwall_tests::Shards::new(&router_config(), 2, Vec::new);
        let now = shards.now;
        let control = shards.workers[0].host.stack_mut();
        control.add_neighbor(LEFT, addr(family, PEER), mac(PEER), now).unwrap();
        control.add_neighbor(RIGHT, right(family, PEER), right_mac(PEER), now).unwrap();
        shards.run_for(Duration::from_secs(2), Duration::from_millis(50));
        shards.departed();
        let before = shards.stats(1).outcomes;
        let packet = hello(family, far(family, 7));
        shards.turn(1, &[from_left(&packet)]);
        let kind = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let after = frame(right_mac(PEER), right_mac(HOST), kind, &one_hop_later(&packet));
        assert_eq!(shards.departed(), [after]);
        let outcomes = shards.stats(1).outcomes;
        assert_eq!(
            (outcomes.forwarded, outcomes.handed_in),
            (before.forwarded + 1, before.handed_in)
        );
        // A packet to an unknown neighbour goes to the control shard unchanged, a bounded number of
        // them.
        let unknown: Vec<_> =
            (0..64).map(|_| from_left(&hello(family, right(family, 66)))).collect();
        shards.turn(1, &unknown);
        let handed = shards.stats(1).outcomes.handed_in - outcomes.handed_in;
        assert_eq!(handed, limits::FORWARD_HANDED_MAX as u64);
        assert_eq!(shards.stats(1).drops_in.of(DropReason::HandoffFull), 64 - handed);
        shards.turn(0, &[]);
        assert_eq!(shards.stats(0).pending, limits::NEIGHBOR_PENDING_MAX as u64);
        shards.assert_conserved();
    }
}
