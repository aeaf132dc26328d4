//! Links: what came to many on one, what leaves by the one that it came by, and which of them a
//! router serves (RFC 1812 sections 4.3.3.2, 5.2.7.2, 5.3.4, 5.3.5 and 5.3.11, RFC 4861 section 8,
//! RFC 4443 section 3.1).

use std::net::Ipv4Addr;

use floodwall_base::DropReason::*;
use floodwall_base::{Family, MacAddr, Prefix};
use floodwall_fib::Route;
use floodwall_stack::LinkMedium;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, fragments, frame, icmp_of, icmpv4, ip, mac,
};
use floodwall_tests::transit::right_mac;
use floodwall_wire::{EtherType, Icmpv4Message};

use super::*;

#[test]
fn rfc1812_5_3_4_nothing_that_came_to_many_on_its_link() {
    let many = [
        (Family::V4, EtherType::IPV4, MacAddr([1, 0, 0x5e, 0, 0, 1])),
        (Family::V6, EtherType::IPV6, MacAddr([0x33, 0x33, 0, 0, 0, 1])),
        (Family::V4, EtherType::IPV4, MacAddr::BROADCAST),
        (Family::V6, EtherType::IPV6, MacAddr::BROADCAST),
    ];
    for (family, kind, to) in many {
        let mut router = router();
        let frame = frame(to, mac(PEER), kind, &honest(family));
        let dropped = router.dropped(|r| assert!(r.arrive(LEFT, &[frame]).is_empty()));
        assert_eq!(dropped.0, [(ForwardBroadcast, 1)]);
    }
}

/// "MUST NOT be forwarded. Limited broadcasts MUST NOT be discarded": they get up to UDP.
#[test]
fn rfc1812_5_3_5_1_limited_broadcasts_are_for_the_router_alone() {
    let packet = datagram(addr(Family::V4, PEER), Ipv4Addr::BROADCAST.into());
    for to in [MacAddr::BROADCAST, mac(HOST)] {
        let mut router = router();
        let frame = frame(to, mac(PEER), EtherType::IPV4, &packet);
        let dropped = router.dropped(|r| assert!(r.arrive(LEFT, &[frame]).is_empty()));
        assert_eq!(dropped.0, [(UdpNoPort, 1)]);
    }
}

/// It "MUST silently discard any packets which are received on that interface but are not
/// addressed to the router", and "MUST NOT send packets out that interface, except for datagrams
/// originated by the router".
#[test]
fn rfc1812_5_3_11_a_link_that_is_not_served_takes_and_gives_nothing() {
    for side in [0, 1] {
        let mut config = router_config();
        config.interfaces[side].forwarding = false;
        let mut router = Transit::new(&config);
        for family in FAMILIES {
            for packet in [honest(family), datagram(addr(family, PEER), right(family, 66))] {
                if side == 0 {
                    stays(&mut router, &packet, IpNotForUs);
                    continue;
                }
                let icmp = told(&mut router, &packet, RouteProhibited);
                assert_eq!((icmp.kind, icmp.code), kind(family, (3, 13), (1, 1)));
            }
            let ping = |to| floodwall_tests::craft::echo(addr(family, PEER), to, b"?");
            let for_us = [addr(family, HOST), right(family, HOST)];
            let answered = for_us.map(|to| router.arrive(LEFT, &[from_left(&ping(to))]).len());
            // Where it does not forward, it is a host.
            assert_eq!(answered, [1, side]);
        }
    }
}

#[test]
fn rfc1812_5_3_8_nothing_asks_for_the_way_back_unless_told_to() {
    let mut router = Transit::new(&router_config());
    for (family, from) in FAMILIES.into_iter().zip(["192.168.9.9", "fd99::9"]) {
        passes(&mut router, &datagram(from.parse().unwrap(), far(family, 7)));
    }
}

/// A router, and the way from its left link back to there.
fn hairpin(family: Family) -> (Transit, IpAddr) {
    let (mut router, now) = (router(), router().rig.now);
    let gateway: IpAddr = match family {
        Family::V4 => addr(family, 9),
        Family::V6 => "fe80::9".parse().unwrap(),
    };
    router.knows(LEFT, gateway, mac(9));
    let stack = &mut router.rig.stack;
    let to = match gateway {
        IpAddr::V4(gateway) => {
            let prefix = Prefix::new(Ipv4Addr::new(192, 168, 5, 0), 24).unwrap();
            stack.routes_v4_mut().append(Route::via(prefix, LEFT, gateway), now).unwrap();
            "192.168.5.5".parse().unwrap()
        }
        IpAddr::V6(gateway) => {
            let prefix = Prefix::new("fd55::".parse().unwrap(), 64).unwrap();
            stack.routes_v6_mut().append(Route::via(prefix, LEFT, gateway), now).unwrap();
            "fd55::5".parse().unwrap()
        }
    };
    (router, to)
}

/// How many leave by the left, the packet itself among them, which is the last.
fn turned_back(router: &mut Transit, packet: &[u8]) -> usize {
    let departed = router.arrive(LEFT, &[from_left(packet)]);
    let last = departed.last().expect("the packet passes");
    assert_eq!(bytes_of(last)[14..], one_hop_later(packet));
    assert!(departed.iter().all(|packet| packet.iface() == LEFT));
    departed.len()
}

#[test]
fn rfc1812_5_2_7_2_hosts_on_the_link_are_redirected_and_nothing_else() {
    for family in FAMILIES {
        let (mut router, to) = hairpin(family);
        assert_eq!(turned_back(&mut router, &datagram(addr(family, PEER), to)), 2);
        for from in [right(family, PEER), far(family, 9)] {
            assert_eq!(turned_back(&mut router, &datagram(from, to)), 1, "{from}");
        }
    }
}

/// RFC 4861 section 8.1: the target is a link-local address, or the destination. So hosts are not
/// told of a gateway by another name.
#[test]
fn rfc4861_8_1_the_target_is_a_name_that_hosts_believe() {
    let (mut router, now) = (router(), router().rig.now);
    let prefix = Prefix::new("fd55::".parse().unwrap(), 64).unwrap();
    let route = Route::via(prefix, LEFT, "fd00::9".parse().unwrap());
    router.rig.stack.routes_v6_mut().append(route, now).unwrap();
    router.knows(LEFT, addr(Family::V6, 9), mac(9));
    let from = addr(Family::V6, PEER);
    assert_eq!(turned_back(&mut router, &datagram(from, "fd55::5".parse().unwrap())), 1);
    assert_eq!(turned_back(&mut router, &datagram(from, addr(Family::V6, 9))), 2);
}

/// A redirect is an error (RFC 1812 section 4.3.2.7), so these earn none.
#[test]
fn rfc1812_4_3_2_7_no_redirect_about_an_error_or_a_later_fragment() {
    for family in FAMILIES {
        let (mut router, to) = hairpin(family);
        let from = addr(family, PEER);
        let kind = if family == Family::V4 { 3 } else { 1 };
        let error = ip(from, to, icmp_of(family), &[kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(turned_back(&mut router, &error), 1);
        let pieces = fragments(&datagram(from, to), 9, 8);
        let told = turned_back(&mut router, &pieces[1]) - 1;
        assert_eq!(told, usize::from(family == Family::V6));
    }
}

/// RFC 4861 section 8.3: "A router MUST NOT update its routing tables upon receipt of a Redirect."
#[test]
fn rfc1812_4_3_3_2_what_redirects_say_changes_nothing_for_others() {
    let config = floodwall_stack::StackConfig { accept_redirects: true, ..router_config() };
    let mut router = Transit::new(&config);
    router.knows(RIGHT, right(Family::V4, 9), right_mac(9));
    let quote = datagram(right(Family::V4, HOST), far(Family::V4, 7));
    let message = Icmpv4Message::Redirect { code: 1, gateway: Ipv4Addr::new(10, 1, 0, 9) };
    let redirect = icmpv4(Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 1, 0, 1), message, &quote);
    router.arrive(RIGHT, &[floodwall_tests::transit::from_right(&redirect)]);
    let departed = router.arrive(LEFT, &[from_left(&honest(Family::V4))]);
    assert_eq!(bytes_of(&departed[0])[..6], right_mac(PEER).0);
}

/// A packet that came over a link without stations, for another host on it: "MUST NOT be forwarded
/// back onto the arrival link", or it goes to and fro until its hops are used up.
#[test]
fn rfc4443_3_1_nothing_goes_back_over_a_point_to_point_link() {
    let mut config = router_config();
    config.interfaces[0].medium = LinkMedium::Ip;
    let mut router = Transit { rig: floodwall_tests::Rig::new(&config) };
    for family in FAMILIES {
        let packet = datagram(addr(family, PEER), addr(family, 99));
        let mut arrived = router.rig.pool.packet_from(&packet).unwrap();
        arrived.set_iface(LEFT);
        let departed = router.rig.round(vec![arrived], floodwall_packet::Engine::round).1;
        assert_eq!(departed.len(), 1);
        let ether_type = if family == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let icmp = Sent::of_ip(&bytes_of(&departed[0]), ether_type).icmp();
        assert_eq!((icmp.kind, icmp.code), kind(family, (3, 1), (1, 3)), "address unreachable");
        // From the other side it goes there.
        let inwards = datagram(right(family, PEER), addr(family, 99));
        let departed = router.arrive(RIGHT, &[floodwall_tests::transit::from_right(&inwards)]);
        assert_eq!(bytes_of(&departed[0]), one_hop_later(&inwards));
    }
}

/// RFC 4291 section 2.8: a router is in the groups of all routers, of each scope that has one.
#[test]
fn rfc4291_2_8_routers_answer_as_all_routers() {
    for group in ["ff02::2", "ff05::2"] {
        let to: std::net::Ipv6Addr = group.parse().unwrap();
        let ping = floodwall_tests::craft::echo(addr(Family::V6, PEER), to.into(), b"?");
        let frame = frame(MacAddr::of_ipv6_multicast(to), mac(PEER), EtherType::IPV6, &ping);
        assert_eq!(router().arrive(LEFT, &[frame]).len(), 1, "{group}");
    }
}
