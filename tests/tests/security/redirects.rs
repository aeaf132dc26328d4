//! Redirects: which senders may announce a better first hop (row 64 of the list of attacks), both
//! families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family, IfIndex, MacAddr, limits};
use floodwall_stack::{InterfaceConfig, StackConfig};
use floodwall_tests::craft::{FAMILIES, HOST, PEER, addr, frame, icmpv4, ip, mac, v4, v6};
use floodwall_tests::router::{message_frame, router_addr, router_mac};
use floodwall_tests::{Rig, bytes_of, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::ndp::RedirectFields;
use floodwall_wire::{EtherType, Icmpv4Message, IpProtocol, NdpOption};

const ONE: IfIndex = IfIndex(1);

/// The default router, another on the link, and a far host.
#[derive(Clone, Copy)]
struct Places {
    gateway: IpAddr,
    better: IpAddr,
    far: IpAddr,
}

fn places(family: Family) -> Places {
    match family {
        Family::V4 => Places {
            gateway: v4(1 + HOST).into(),
            better: v4(66).into(),
            far: Ipv4Addr::new(203, 0, 113, 9).into(),
        },
        Family::V6 => Places {
            gateway: router_addr(1).into(),
            better: router_addr(66).into(),
            far: "2001:db8:ffff::9".parse().expect("an address"),
        },
    }
}

fn config(accept_redirects: bool) -> StackConfig {
    let base = ethernet_config(HOST);
    let gateways = FAMILIES.map(|family| places(family).gateway).into();
    let interface = InterfaceConfig { gateways, ..base.interfaces[0].clone() };
    StackConfig { interfaces: vec![interface], accept_redirects, udp_sockets_max: 2048, ..base }
}

/// A host with all neighbours known: the last byte of a station identifies it.
fn rig(accept_redirects: bool) -> Rig {
    let mut rig = Rig::new(&config(accept_redirects));
    rig.run_for(Duration::from_secs(5));
    for family in FAMILIES {
        let Places { gateway, better, .. } = places(family);
        for (n, neighbor) in [(1, gateway), (2, better)] {
            rig.stack.add_neighbor(ONE, neighbor, router_mac(n), rig.now).expect("room");
        }
    }
    rig
}

/// A program has a flow to `to`, as [`ours`] quotes it.
fn live(rig: &mut Rig, to: IpAddr) {
    let own = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0x1234);
    let settings = SocketSettings { reuse_address: true, ..SocketSettings::new(Family::V6) };
    rig.sockets(|s| {
        let id = s.udp_bind(own, settings).expect("a socket");
        s.udp_connect(id, SocketAddr::new(to, 9)).expect("a route");
    });
}

/// The packet that a redirect quotes: a datagram of ours.
fn ours(family: Family, to: IpAddr) -> Vec<u8> {
    ip(addr(family, HOST), to, IpProtocol::UDP, &[0x12, 0x34, 0, 9, 0, 9, 0, 0, b'?'])
}

/// "For packets to `about` go through `target`", sent by `from`, about the packet `quote`.
fn redirect(from: IpAddr, target: IpAddr, about: IpAddr, quote: &[u8]) -> Vec<u8> {
    match (from, target, about) {
        (IpAddr::V4(from), IpAddr::V4(gateway), _) => {
            let message = Icmpv4Message::Redirect { code: 1, gateway };
            let packet = icmpv4(from, v4(HOST), message, quote);
            frame(mac(HOST), router_mac(1), EtherType::IPV4, &packet)
        }
        (IpAddr::V6(from), IpAddr::V6(target_addr), IpAddr::V6(dst_addr)) => {
            let mut out = [0; 256];
            let quoted = [NdpOption::RedirectedHeader(quote)];
            let options = if quote.is_empty() { &[][..] } else { &quoted };
            let fields = RedirectFields { target_addr, dst_addr };
            let len = fields.emit_into(options, from, v6(HOST), &mut out).expect("it fits");
            message_frame(router_mac(1), from, v6(HOST), &out[..len])
        }
        _ => panic!("of two families"),
    }
}

fn good(family: Family, about: IpAddr) -> Vec<u8> {
    let Places { gateway, better, .. } = places(family);
    redirect(gateway, better, about, &ours(family, about))
}

/// To which station a datagram to `to` leaves.
fn next_station(rig: &mut Rig, to: IpAddr) -> Option<MacAddr> {
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    let (_, sent) = rig.sockets(|s| {
        let id = s.udp_bind(any, SocketSettings::new(Family::V6)).expect("a socket");
        s.udp_send(id, Some(SocketAddr::new(to, 9)), b"?").expect("it leaves");
        s.udp_close(id);
    });
    bytes_of(sent.first()?).first_chunk().map(|mac| MacAddr(*mac))
}

fn followed(rig: &Rig, family: Family) -> usize {
    match family {
        Family::V4 => rig.stack.exceptions_v4().iter(rig.now).count(),
        Family::V6 => rig.stack.exceptions_v6().iter(rig.now).count(),
    }
}

#[test]
fn a_redirect_from_the_first_hop_about_our_own_packet_is_followed_for_ten_minutes() {
    for family in FAMILIES {
        let mut rig = rig(true);
        let far = places(family).far;
        live(&mut rig, far);
        assert_eq!(next_station(&mut rig, far), Some(router_mac(1)));
        rig.lives("a redirect", &good(family, far));
        assert_eq!(next_station(&mut rig, far), Some(router_mac(2)), "{family:?}");
        let counter = [Counter::IcmpInRedirects, Counter::Icmp6InRedirects];
        assert_eq!(rig.stats().counters.of(counter[usize::from(family == Family::V6)]), 1);
        rig.run_for(Duration::from_secs(599));
        assert_eq!(next_station(&mut rig, far), Some(router_mac(2)));
        rig.run_for(Duration::from_secs(1));
        assert_eq!((next_station(&mut rig, far), followed(&rig, family)), (Some(router_mac(1)), 0));
    }
}

#[test]
fn by_default_no_redirect_is_followed() {
    for family in FAMILIES {
        let mut rig = rig(false);
        let far = places(family).far;
        rig.expect_drop("a redirect", &good(family, far), DropReason::RedirectIgnored, None);
        assert_eq!(next_station(&mut rig, far), Some(router_mac(1)));
    }
}

/// Each rule of RFC 4861 section 8.1 and RFC 1122 section 3.2.2.2, broken alone.
#[test]
fn a_redirect_that_breaks_a_rule_changes_nothing_and_says_which() {
    for family in FAMILIES {
        let mut rig = rig(true);
        let Places { gateway, better, far } = places(family);
        let (quote, me, peer) = (ours(family, far), addr(family, HOST), addr(family, PEER + 1));
        let link_local: IpAddr = router_addr(7).into();
        let unknown = if family == Family::V4 { v4(77).into() } else { link_local };
        let foreign = ip(peer, far, IpProtocol::UDP, &quote[quote.len() - 9..]);
        let elsewhere = ours(family, peer);
        let reason = DropReason::RedirectNotFirstHop;
        rig.expect_drop("another", &redirect(unknown, better, far, &quote), reason, None);
        let reason = DropReason::RedirectNotQuoted;
        rig.expect_drop("no quote", &redirect(gateway, better, far, &[]), reason, None);
        rig.expect_drop("another's", &redirect(gateway, better, far, &foreign), reason, None);
        rig.expect_drop("cut", &redirect(gateway, better, far, &quote[..18]), reason, None);
        rig.expect_drop("no flow", &redirect(gateway, better, far, &quote), reason, None);
        live(&mut rig, far);
        if family == Family::V4 {
            // The option of the other family is padded to eight.
            let cut = &quote[..quote.len() - 2];
            rig.expect_drop("seven bytes", &redirect(gateway, better, far, cut), reason, None);
        }
        if family == Family::V6 {
            rig.expect_drop(
                "another way",
                &redirect(gateway, better, far, &elsewhere),
                reason,
                None,
            );
        }
        // What is on the link, or is ours, is reached without a router.
        let reason = DropReason::RedirectNotFirstHop;
        rig.expect_drop("a neighbour", &redirect(gateway, better, peer, &elsewhere), reason, None);
        let (ourselves, itself) = (ours(family, me), ours(family, me));
        rig.expect_drop("ourselves", &redirect(gateway, better, me, &ourselves), reason, None);
        let reason = DropReason::RedirectTarget;
        match family {
            Family::V4 => {
                for target in ["10.0.0.1", "10.0.0.255", "255.255.255.255", "0.0.0.0"] {
                    let target = target.parse().expect("an address");
                    rig.expect_drop(
                        "no host",
                        &redirect(gateway, target, far, &quote),
                        reason,
                        None,
                    );
                }
                for target in ["198.51.100.1", "224.0.0.1", "127.0.0.1"] {
                    let target = target.parse().expect("an address");
                    rig.expect_drop(
                        "off the link",
                        &redirect(gateway, target, far, &quote),
                        reason,
                        None,
                    );
                }
            }
            Family::V6 => {
                let own = rig.stack.interfaces()[1].link_local_addr().expect("it has one");
                rig.expect_drop("to us", &redirect(gateway, own.into(), far, &quote), reason, None);
                // RFC 4861 section 8.1 alone: neither link-local nor the destination.
                let reason = DropReason::NdpMalformed;
                rig.expect_drop("off the link", &redirect(gateway, me, far, &quote), reason, None);
                rig.expect_drop("itself", &redirect(gateway, peer, me, &itself), reason, None);
            }
        }
        assert_eq!((next_station(&mut rig, far), followed(&rig, family)), (Some(router_mac(1)), 0));
    }
}

/// IPv6 announces an on-link destination by a target that is the destination itself.
#[test]
fn a_destination_that_is_on_the_link_after_all_is_sent_to_directly() {
    let mut rig = rig(true);
    let Places { gateway, far, .. } = places(Family::V6);
    rig.stack.add_neighbor(ONE, far, router_mac(3), rig.now).expect("room");
    live(&mut rig, far);
    rig.lives("a redirect", &redirect(gateway, far, far, &ours(Family::V6, far)));
    assert_eq!(next_station(&mut rig, far), Some(router_mac(3)));
}

/// An attacker that forges the router can redirect what programs send, at a rate, and nothing else.
#[test]
fn a_flood_of_redirects_is_believed_of_live_flows_and_at_a_rate() {
    for family in FAMILIES {
        let mut rig = rig(true);
        let nth = |n: u32| -> IpAddr {
            let [_, a, b, c] = n.to_be_bytes();
            match family {
                Family::V4 => Ipv4Addr::new(100, 64 + a, b, c).into(),
                Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, n as u16).into(),
            }
        };
        (1..=1000).for_each(|n| live(&mut rig, nth(n)));
        let free = rig.pool.available();
        for n in 1001..=20_000 {
            rig.frame(&good(family, nth(n)));
        }
        assert_eq!(followed(&rig, family), 0);
        assert_eq!(rig.stats().drops_in.of(DropReason::RedirectNotQuoted), 19_000);
        let before = rig.stats().counters.of(Counter::FloodwallExceptionsLearnt);
        for n in 1..=1000 {
            rig.frame(&good(family, nth(n)));
        }
        let limited = rig.stats().drops_in.of(DropReason::ExceptionLimited);
        assert!(limited > 1000 - 2 * u64::from(limits::EXCEPTION_BURST), "{limited}");
        // Each is accepted or over the rate; of those accepted one may take another's place.
        let learnt = rig.stats().counters.of(Counter::FloodwallExceptionsLearnt);
        assert_eq!((learnt - before) + limited, 1000);
        let followed = followed(&rig, family) as u64;
        assert!(followed > 0 && followed <= learnt - before, "{followed} of {learnt}");
        assert_eq!(next_station(&mut rig, nth(1)), Some(router_mac(2)));
        assert_eq!(next_station(&mut rig, nth(20_000)), Some(router_mac(1)));
        assert_eq!(rig.pool.available(), free);
        assert!(rig.conservation().holds());
    }
}

/// A target that does not answer is not insisted on (RFC 4861 section 7.3.3).
#[test]
fn a_redirect_to_a_host_that_does_not_answer_is_removed() {
    for family in FAMILIES {
        let mut rig = rig(true);
        let Places { gateway, far, .. } = places(family);
        let silent: IpAddr = match family {
            Family::V4 => v4(99).into(),
            Family::V6 => router_addr(99).into(),
        };
        live(&mut rig, far);
        rig.lives("a redirect", &redirect(gateway, silent, far, &ours(family, far)));
        assert!(next_station(&mut rig, far).is_none_or(|mac| mac != router_mac(1)));
        rig.run_for(Duration::from_secs(5));
        assert_eq!(next_station(&mut rig, far), Some(router_mac(1)), "{family:?}");
        assert!(rig.conservation().holds());
    }
}

/// A link that went down may be another when it is back.
#[test]
fn a_link_that_goes_down_takes_its_redirects_along() {
    for family in FAMILIES {
        let mut rig = rig(true);
        live(&mut rig, places(family).far);
        rig.lives("a redirect", &good(family, places(family).far));
        for up in [false, true] {
            let Rig { stack, now, random, .. } = &mut rig;
            stack.set_up(ONE, up, *now, random);
        }
        assert_eq!(followed(&rig, family), 0);
    }
}
