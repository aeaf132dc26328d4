//! What a stack reports to devices as wanted: addresses and ports as they come and go.
//!
//! That nothing is unwanted which triage would take, and that each change is reported, is asserted
//! wherever a test calls triage (`Rig`, by `WantsWatch`); what TCP wants is in `handshakes`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family, IfIndex, IpCidr, MacAddr, Prefix, limits};
use floodwall_fib::{Put, Route};
use floodwall_ip::RawSettings;
use floodwall_packet::{Engine as _, RedirectOffer, RxFilter, Triage};
use floodwall_stack::{AddAddress, PacketTap, StackConfig, TapConfig, TapFilter};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, udp};
use floodwall_tests::transit::{
    LEFT, RIGHT, Transit, far, from_left, from_right, right, right_mac, router_config,
    with_hop_limit,
};
use floodwall_tests::{Rig, ethernet_config};
use floodwall_udp::SocketSettings;
use floodwall_wire::IpProtocol;

const ETH0: IfIndex = IfIndex(1);

fn wants(rig: &Rig) -> RxFilter {
    let mut wanted = RxFilter::default();
    rig.stack.rx_filter(ETH0, &mut wanted);
    wanted
}

/// What is said of an address: whether it is wanted, and whether by its ports.
fn said(rig: &Rig, addr: IpAddr) -> Option<bool> {
    let addr = match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    wants(rig).addresses().find(|(other, _)| *other == addr).map(|(_, by_port)| by_port)
}

/// Does something, which must be reported as a change.
fn changes<R>(rig: &mut Rig, act: impl FnOnce(&mut Rig) -> R) -> R {
    let before = rig.stack.wants_changed();
    let result = act(rig);
    assert_ne!(rig.stack.wants_changed(), before, "no change was reported");
    result
}

#[test]
fn addresses_are_wanted_from_their_first_probe_to_their_end_and_broadcasts_with_them() {
    let config = StackConfig { duplicate_address_detection: true, ..ethernet_config(HOST) };
    let mut rig = Rig::new(&config);
    rig.run_for(Duration::from_secs(60));
    for (family, prefix_len) in FAMILIES.into_iter().zip([24, 64]) {
        assert_eq!(said(&rig, addr(family, HOST)), Some(true), "{family:?}");
        assert_eq!(said(&rig, addr(family, 77)), None);
        let new = IpCidr::new(addr(family, 77), prefix_len).expect("an address");
        changes(&mut rig, |rig| {
            let Rig { stack, now, random, .. } = rig;
            stack.add_address(ETH0, AddAddress::manual(new), *now, random).expect("room");
        });
        if family == Family::V6 {
            assert_eq!(said(&rig, addr(family, 77)), Some(false), "probed, and ours already");
        }
        rig.run_for(Duration::from_secs(60));
        assert_eq!(said(&rig, addr(family, 77)), Some(true), "{family:?}");
        changes(&mut rig, |rig| {
            let Rig { stack, now, random, .. } = rig;
            stack.remove_address(ETH0, new.addr(), *now, random).expect("it is there");
        });
        assert_eq!(said(&rig, addr(family, 77)), None);
    }
    assert_eq!(said(&rig, "10.0.0.255".parse().expect("an address")), Some(false), "broadcast");
    let link_local =
        wants(&rig).addresses().any(|(addr, _)| Ipv6Addr::is_unicast_link_local(&addr));
    assert!(link_local);
}

#[test]
fn what_is_wanted_stays_while_the_link_is_down() {
    let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
    let before = wants(&rig);
    for is_up in [false, true] {
        let Rig { stack, now, random, .. } = &mut rig;
        stack.set_carrier(ETH0, is_up, *now, random);
        assert_eq!(wants(&rig), before, "up: {is_up}");
    }
}

#[test]
fn a_port_is_wanted_while_a_socket_has_it() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        assert!((0..=u16::MAX).all(|port| !wants(&rig).udp.has(port)));
        let settings = SocketSettings::new(family);
        let end = SocketAddr::new(addr(family, HOST), 53);
        let id = changes(&mut rig, |rig| rig.sockets(|s| s.udp_bind(end, settings)).0);
        let id = id.expect("a port");
        assert!(wants(&rig).udp.has(53) && !wants(&rig).udp.has(54) && !wants(&rig).any_udp);
        // A client with a bound port wants the answer there.
        let any = SocketAddr::new(addr(family, HOST), 0);
        let asks = SocketSettings::new(family);
        let asking = changes(&mut rig, |rig| rig.sockets(|s| s.udp_bind(any, asks)).0);
        let own = rig.sockets(|s| s.udp_local_addr(asking.expect("a port"))).0.expect("bound");
        assert!(wants(&rig).udp.has(own.port()));
        changes(&mut rig, |rig| rig.sockets(|s| s.udp_close(id)).0);
        assert!(!wants(&rig).udp.has(53) && wants(&rig).udp.has(own.port()));
        let frame = craft::udp(SocketAddr::new(addr(family, PEER), 9), end, b"hello");
        let _ = rig.classify(&[craft::from_peer(&frame)]);
    }
}

#[test]
fn a_socket_at_every_port_wants_them_all_while_it_is_there() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let settings = SocketSettings { every_port: true, ..SocketSettings::new(family) };
        let any = SocketAddr::new(addr(family, HOST), 0);
        let id = changes(&mut rig, |rig| rig.sockets(|s| s.udp_bind(any, settings)).0);
        assert!(wants(&rig).any_udp && !wants(&rig).any_tcp, "{family:?}");
        let end = SocketAddr::new(addr(family, HOST), 4444);
        let frame = craft::udp(SocketAddr::new(addr(family, PEER), 9), end, b"hello");
        assert_ne!(rig.classify(&[craft::from_peer(&frame)])[0], Triage::Rejectable);
        changes(&mut rig, |rig| rig.sockets(|s| s.udp_close(id.expect("room"))).0);
        assert!(!wants(&rig).any_udp);
    }
}

#[test]
fn one_that_listens_to_a_whole_protocol_wants_every_port_of_it() {
    for (family, protocol) in
        FAMILIES.into_iter().flat_map(|f| [(f, IpProtocol::UDP), (f, IpProtocol::TCP)])
    {
        let config = StackConfig { raw_sockets_max: 4, ..ethernet_config(HOST) };
        let mut rig = Rig::with_neighbor(&config, PEER);
        let both = |rig: &Rig| (wants(rig).any_udp, wants(rig).any_tcp);
        assert_eq!(both(&rig), (false, false));
        let settings = RawSettings::new(family, protocol);
        let id = changes(&mut rig, |rig| rig.sockets(|s| s.raw_open(settings)).0);
        let expected = (protocol == IpProtocol::UDP, protocol == IpProtocol::TCP);
        assert_eq!(both(&rig), expected, "{family:?}");
        changes(&mut rig, |rig| rig.sockets(|s| s.raw_close(id.expect("room"))).0);
        assert_eq!(both(&rig), (false, false));
    }
}

#[test]
fn a_router_wants_what_is_for_others_and_a_dhcp_client_what_may_be_the_answer() {
    let any = |config: &StackConfig| {
        let rig = Rig::new(config);
        let wanted = wants(&rig);
        (wanted.any_v4, wanted.any_v6, wanted.asks_v4)
    };
    let host = ethernet_config(HOST);
    assert_eq!(any(&host), (false, false, false));
    assert_eq!(any(&StackConfig { ipv4_forwarding: true, ..host.clone() }), (true, false, false));
    assert_eq!(any(&StackConfig { ipv6_forwarding: true, ..host.clone() }), (false, true, false));
    let mut all = host.clone();
    all.interfaces[0].any_destination = true;
    assert_eq!(any(&all), (true, true, false));
    let mut asks = host;
    asks.interfaces[0].addresses.clear();
    asks.interfaces[0].dhcp = true;
    let mut rig = Rig::new(&asks);
    rig.run_for(Duration::from_secs(20));
    let wanted = wants(&rig);
    assert!(wanted.asks_v4 && wanted.any_udp && !wanted.any_v4 && !wanted.any_v6);
}

#[test]
fn what_is_said_to_be_denied_is_denied_and_told_beside_what_is_not() {
    let rules = ["permit udp from 10.0.0.9 dport 53", "deny from 10.0.0.0/29", "deny from fd00::2"];
    let mut config = ethernet_config(HOST);
    config.interfaces[0].access = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    let mut rig = Rig::with_neighbor(&config, PEER);
    let denied: Vec<_> = wants(&rig).denied().iter().map(IpCidr::to_string).collect();
    assert_eq!(denied, ["10.0.0.0/29", "fd00::2/128"]);
    for family in FAMILIES {
        let end = |host| SocketAddr::new(addr(family, host), 53);
        let settings = SocketSettings::new(family);
        rig.sockets(|s| s.udp_bind(end(HOST), settings)).0.expect("a port");
        let frame = |from| craft::from_peer(&craft::udp(end(from), end(HOST), b"hello"));
        let before = rig.stats().counters.of(Counter::FloodwallAccessDenied);
        rig.frame(&frame(PEER));
        let after = rig.stats().counters.of(Counter::FloodwallAccessDenied);
        assert_eq!(after - before, 1, "{family:?}");
        rig.lives("from elsewhere", &frame(9));
    }
}

/// What devices may pass on by themselves, since it was taken last.
fn offers(router: &mut Transit) -> Vec<RedirectOffer> {
    let mut offers = Vec::new();
    router.rig.stack.take_redirects(&mut offers);
    offers
}

/// A tap of an operator.
fn tap(is_sample: bool) -> Option<Box<PacketTap>> {
    let (filter, dropped_only) = (TapFilter::default(), false);
    let config = TapConfig { filter, dropped_only, is_sample, snap_len: 128, records_max: 4 };
    Some(Box::new(PacketTap::new(config).0))
}

fn datagram(from: IpAddr, to: IpAddr) -> Vec<u8> {
    udp(SocketAddr::new(from, 4000), SocketAddr::new(to, 9), b"hello")
}

#[test]
fn hosts_that_talk_through_a_router_are_offered_to_devices_and_others_are_not() {
    for family in FAMILIES {
        let (near, to) = (addr(family, PEER), far(family, 7));
        let there = [from_left(&datagram(near, to))];
        let back = [from_right(&datagram(to, near))];
        let mut router = Transit::new(&router_config());
        // Nothing is kept where no device takes it, nor before an answer came.
        router.arrive(LEFT, &there);
        router.arrive(RIGHT, &back);
        assert_eq!(offers(&mut router), [], "{family:?}");
        let other = far(family, 8);
        router.arrive(LEFT, &[from_left(&datagram(near, other))]);
        assert_eq!(offers(&mut router), [], "{family:?}");
        router.arrive(LEFT, &there);
        router.arrive(RIGHT, &back);
        let stations = |to: MacAddr, from: MacAddr| {
            let mut both = [0; 12];
            both[..6].copy_from_slice(&to.0);
            both[6..].copy_from_slice(&from.0);
            both
        };
        let until = router.rig.now + Duration::from_secs(1);
        let offer = |(arrives, leaves), (from, to), stations| RedirectOffer {
            arrives,
            leaves,
            from,
            to,
            stations,
            mtu: 1500,
            until,
        };
        let right = stations(right_mac(PEER), right_mac(HOST));
        let left = stations(craft::mac(PEER), craft::mac(HOST));
        let wanted =
            [offer((LEFT, RIGHT), (near, to), right), offer((RIGHT, LEFT), (to, near), left)];
        assert_eq!(offers(&mut router), wanted, "{family:?}");
        // A bounded number waits, also while an operator's view samples what comes.
        router.rig.stack.set_tap(tap(true));
        let many = vec![there[0].clone(); 64];
        router.arrive(LEFT, &many);
        assert_eq!(offers(&mut router).len(), limits::REDIRECT_OFFERS_MAX, "{family:?}");
        // What is not plain decides for itself.
        let spent = from_left(&with_hop_limit(&datagram(near, to), 1));
        let echo = from_left(&craft::echo(near, to, b"?"));
        router.arrive(LEFT, &[spent, echo]);
        assert_eq!(offers(&mut router), [], "{family:?}");
        // Where there is an access list, each packet is held against it.
        let rules = ["deny udp dport 10".parse().unwrap()];
        assert!(router.rig.stack.set_access_list(LEFT, &rules));
        router.arrive(LEFT, &there);
        router.arrive(RIGHT, &back);
        let left = offers(&mut router);
        assert_eq!(left.iter().map(|offer| offer.arrives).collect::<Vec<_>>(), [RIGHT]);
    }
}

#[test]
fn each_change_of_what_offers_depend_on_is_reported_and_traffic_is_none() {
    for family in FAMILIES {
        let mut router = Transit::new(&router_config());
        let mut number = router.rig.stack.redirects_changed();
        let mut changes = |what: &str, router: &mut Transit, wanted: bool| {
            let is = router.rig.stack.redirects_changed();
            assert_eq!(is != number, wanted, "{family:?}: {what}");
            number = is;
        };
        let near = addr(family, PEER);
        let flood = |router: &mut Transit| {
            let to = |n: u8| [far(family, n), right(family, n.max(3))];
            let frames = (0..200).flat_map(to).map(|to| from_left(&datagram(near, to)));
            router.arrive(LEFT, &frames.collect::<Vec<_>>());
            router.rig.run_for(Duration::from_secs(5));
        };
        flood(&mut router);
        changes("packets to random destinations", &mut router, false);
        router.rig.stack.set_tap(tap(true));
        changes("a sample for an operator's view", &mut router, false);
        router.rig.stack.set_tap(tap(false));
        changes("a capture, which is to see each packet", &mut router, true);
        router.rig.stack.set_tap(None);
        changes("its end", &mut router, true);
        router.knows(RIGHT, right(family, PEER), right_mac(9));
        changes("another station for a next hop", &mut router, true);
        assert!(router.rig.stack.set_access_list(LEFT, &["deny udp".parse().unwrap()]));
        changes("an access list", &mut router, true);
        router.rig.stack.set_link_mtu(RIGHT, 1400);
        changes("another MTU", &mut router, true);
        let now = router.rig.now;
        let is_new = match far(family, 0) {
            IpAddr::V4(net) => {
                let route = Route::on_link(Prefix::new(net, 24).unwrap(), RIGHT);
                router.rig.stack.routes_v4_mut().put(route, Put::Append, now).is_ok()
            }
            IpAddr::V6(net) => {
                let route = Route::on_link(Prefix::new(net, 64).unwrap(), RIGHT);
                router.rig.stack.routes_v6_mut().put(route, Put::Append, now).is_ok()
            }
        };
        assert!(is_new);
        changes("a new route", &mut router, true);
        let mut random = floodwall_base::Randomness::from_number(1);
        router.rig.stack.set_carrier(RIGHT, false, now, &mut random);
        changes("a link that is down", &mut router, true);
    }
}
