//! Routers that say too much, too often or nonsense, in virtual time (rows 61, 62 and 65 of the
//! list of attacks).

use std::net::Ipv6Addr;
use std::time::Duration;

use floodwall_base::{DropReason, MacAddr};
use floodwall_fib::RouteProtocol;
use floodwall_ip::{AddressOrigin, AddressState, InterfaceAddress};
use floodwall_packet::PacketBuf;
use floodwall_tests::router::{
    advertisement, believing_config, dns_names, header, neighbor_answer, prefix, route,
    router_addr, router_mac,
};
use floodwall_tests::{Rig, bytes_of};
use floodwall_wire::ndp::{Lifetime, NdpOption, Preference, RouterAdvertisementFields};

const SECOND: Duration = Duration::from_secs(1);
const FAR: &str = "2001:db8:ffff::1";

/// A host that has been up for ten seconds and believes routers.
fn rig() -> Rig {
    let mut rig = Rig::new(&believing_config());
    rig.run_for(10 * SECOND);
    rig
}

fn learnt(rig: &Rig) -> usize {
    let learnt = RouteProtocol::RouterAdvertisement;
    rig.stack.routes_v6().routes().iter().filter(|r| r.protocol == learnt).count()
}

/// Through whom a destination is reached; `None` where it is on the link.
fn gateway(rig: &Rig, to: &str) -> Option<Option<Ipv6Addr>> {
    let to = to.parse().expect("an address");
    rig.stack.routes_v6().lookup(to, rig.now).map(|route| route.gateway)
}

fn autoconf(rig: &Rig) -> Vec<InterfaceAddress> {
    let all = rig.stack.interfaces()[1].addresses();
    all.filter(|a| a.origin == AddressOrigin::Autoconf).collect()
}

fn dns(rig: &Rig) -> (Vec<String>, Vec<String>) {
    let dns = rig.stack.dns(rig.now);
    let servers = dns.servers.iter().map(|(addr, iface)| format!("{addr}@{}", iface.0));
    (servers.collect(), dns.search.iter().map(ToString::to_string).collect())
}

/// How many of these frames are ICMPv6 messages of a type.
fn of_type(frames: &[PacketBuf], kind: u8) -> usize {
    let is = |p: &&PacketBuf| bytes_of(p)[12..14] == [0x86, 0xdd] && bytes_of(p)[54] == kind;
    frames.iter().filter(is).count()
}

/// The whole life: a router is asked for, answers, is believed, and all that it said is gone after
/// its time.
#[test]
fn what_a_router_says_is_done_and_is_gone_in_its_time() {
    let mut rig = Rig::new(&believing_config());
    let asked = rig.run_for(10 * SECOND);
    assert_eq!(of_type(&asked, 133), 2, "after a moment, and four seconds later");
    let servers = [Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53).octets()];
    let names = dns_names(&["example.org"]);
    let lifetime = Lifetime::from_secs(300);
    let fields = RouterAdvertisementFields { hop_limit: Some(70), ..header(300) };
    let options = [
        NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 400, 200)),
        NdpOption::RouteInfo(route("2001:db8:9::", 48, Preference::High, 250)),
        NdpOption::Mtu(1400),
        NdpOption::RecursiveDns { lifetime, servers: &servers },
        NdpOption::DnsSearch { lifetime, names: &names },
    ];
    rig.lives("an advertisement", &advertisement(1, &fields, &options));
    let via = Some(Some(router_addr(1)));
    let ways = |rig: &Rig| [FAR, "2001:db8:9::1", "2001:db8:1::9"].map(|to| gateway(rig, to));
    assert_eq!(ways(&rig), [via, via, Some(None)]);
    assert_eq!(dns(&rig), (vec!["2001:db8::53@1".into()], vec!["example.org".into()]));
    let [address] = autoconf(&rig)[..] else { panic!("{:?}", autoconf(&rig)) };
    assert_eq!((address.prefix_len, address.state), (64, AddressState::Tentative));
    let interface = &rig.stack.interfaces()[1];
    assert_eq!((interface.mtu, interface.mtu_v6, interface.hop_limit), (1500, 1400, 70));
    let quiet = rig.run_for(150 * SECOND);
    assert_eq!((of_type(&quiet, 133), of_type(&quiet, 135)), (0, 1), "one probe, no question");
    assert_eq!(autoconf(&rig)[0].state, AddressState::Preferred);
    rig.run_for(60 * SECOND);
    assert_eq!(autoconf(&rig)[0].state, AddressState::Deprecated);
    rig.run_for(50 * SECOND);
    assert_eq!((ways(&rig), learnt(&rig)), ([via, via, Some(None)], 2), "the default one");
    rig.run_for(60 * SECOND);
    assert_eq!(ways(&rig), [None, None, Some(None)]);
    assert_eq!(dns(&rig), (vec![], vec![]));
    rig.run_for(100 * SECOND);
    assert_eq!((ways(&rig), learnt(&rig), autoconf(&rig)), ([None; 3], 0, vec![]));
    let interface = &rig.stack.interfaces()[1];
    assert_eq!((interface.mtu_v6, interface.hop_limit), (1500, 64), "as configured");
    let (_, engine) = rig.stack.routers().next().expect("one that believes");
    assert_eq!((engine.routers().count(), engine.routes().count()), (0, 0));
    assert_eq!(engine.prefixes().count(), 0);
    assert!(rig.conservation().holds());
}

/// Row 61 (CVE-2010-4669, CVE-2011-2393, CVE-2014-2309): 31,000 routers, each with a prefix, a
/// route and servers of its own. What is kept has its bounds, the honest router leads as before,
/// memory is flat, and the cost of the last thousand is that of the first.
#[test]
fn a_flood_of_routers_prefixes_and_routes_keeps_the_honest_one() {
    let mut rig = rig();
    let options = [
        NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600)),
        NdpOption::RouteInfo(route("2001:db8:9::", 48, Preference::Medium, 1800)),
    ];
    rig.lives("the honest one", &advertisement(0, &header(1800), &options));
    rig.run_for(3 * SECOND);
    let free = rig.pool.available();
    for n in 1..=31_000_u32 {
        let net = |high: u16| Ipv6Addr::new(0x2001, high, (n >> 16) as u16, n as u16, 0, 0, 0, 0);
        let servers = [net(0x53).octets()];
        let name = format!("n{n}.example");
        let names = dns_names(&[&name]);
        let (net, to) = (net(0xdb9).to_string(), net(0xdba).to_string());
        let lifetime = Lifetime::INFINITE;
        let options = [
            NdpOption::PrefixInfo(prefix(&net, 64, u32::MAX, u32::MAX)),
            NdpOption::RouteInfo(route(&to, 64, Preference::High, u32::MAX)),
            NdpOption::RecursiveDns { lifetime, servers: &servers },
            NdpOption::DnsSearch { lifetime, names: &names },
        ];
        let fields = RouterAdvertisementFields { preference: Preference::Medium, ..header(65_535) };
        rig.frame(&advertisement(n, &fields, &options));
    }
    let refused = rig.stats().drops_in.of(DropReason::RouterListFull);
    assert_eq!(refused, 31_000 - 15, "an honest one and fifteen others");
    let (_, engine) = rig.stack.routers().next().expect("one that believes");
    assert_eq!((engine.routers().count(), engine.routes().count()), (16, 16));
    assert!(engine.prefixes().count() <= 16 && autoconf(&rig).len() <= 16);
    assert!(learnt(&rig) <= 16 + 16 + 32);
    assert_eq!(dns(&rig).0.len(), 8);
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(0))), "who was there first leads");
    assert_eq!(gateway(&rig, "2001:db8:9::1"), Some(Some(router_addr(0))));
    assert_eq!(gateway(&rig, "2001:db8:1::1"), Some(None));
    let neighbors = rig.stack.neighbors_v6().iter().count();
    assert!(neighbors <= 64, "{neighbors}");
    assert_eq!(rig.pool.available(), free, "no packet stays");
    assert!(rig.conservation().holds());
    // And the honest one can still change its mind.
    rig.lives("its end", &advertisement(0, &header(0), &[]));
    assert_ne!(gateway(&rig, FAR), Some(Some(router_addr(0))));
}

/// The same by one router, 64 options a message: each list stops at its own bound.
#[test]
fn one_router_with_thousands_of_prefixes_and_routes_fills_no_more_than_the_lists() {
    let mut rig = rig();
    rig.lives("the honest one", &advertisement(0, &header(1800), &[]));
    for n in 0..1000_u16 {
        let of = |high: u16, i: u16| Ipv6Addr::new(0x2001, high, n, i, 0, 0, 0, 0).to_string();
        let prefixes = (0..16).map(|i| NdpOption::PrefixInfo(prefix(&of(1, i), 64, 900, 900)));
        let routes =
            (0..24).map(|i| NdpOption::RouteInfo(route(&of(2, i), 64, Preference::High, 900)));
        let options: Vec<_> = prefixes.chain(routes).collect();
        rig.frame(&advertisement(1, &header(1800), &options));
    }
    let (_, engine) = rig.stack.routers().next().expect("one that believes");
    assert_eq!((engine.prefixes().count(), engine.routes().count()), (32, 64));
    assert_eq!((autoconf(&rig).len(), learnt(&rig)), (16, 2 + 32 + 64));
    rig.run_for(1000 * SECOND);
    assert_eq!((autoconf(&rig).len(), learnt(&rig)), (0, 2), "all that had an end");
}

/// Sends one datagram to a far host; whoever it leaves to.
fn send_far(rig: &mut Rig) -> Vec<PacketBuf> {
    use floodwall_base::Family;
    use floodwall_udp::SocketSettings;
    let any = "[::]:0".parse().expect("an address");
    let to = std::net::SocketAddr::new(FAR.parse().expect("an address"), 9);
    let settings = SocketSettings::new(Family::V6);
    let (_, sent) = rig.sockets(|s| {
        let id = s.udp_bind(any, settings).expect("a socket");
        let sent = s.udp_send(id, Some(to), b"?");
        s.udp_close(id);
        sent
    });
    sent
}

/// The link destination of the datagrams among these frames.
fn stations(frames: &[PacketBuf]) -> Vec<MacAddr> {
    let udp = frames.iter().map(bytes_of).filter(|b| b[12..14] == [0x86, 0xdd] && b[20] == 17);
    udp.filter_map(|b| b.first_chunk().map(|mac| MacAddr(*mac))).collect()
}

/// Two routers that both answer once; the first is then silent. RFC 4861 section 6.3.6: another is
/// chosen; RFC 4191 section 3.5: the silent one is asked again, and is back once it answers.
#[test]
fn when_a_router_falls_silent_another_is_chosen_and_it_is_back_once_it_answers() {
    let mut rig = rig();
    let high = RouterAdvertisementFields { preference: Preference::High, ..header(9000) };
    let net = [NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 9000, 9000))];
    let far = [NdpOption::RouteInfo(route("2001:db8:ffff::", 48, Preference::Medium, 9000))];
    rig.lives("the liked one", &advertisement(1, &high, &net));
    rig.lives("its route", &advertisement(1, &high, &far));
    rig.lives("the other", &advertisement(2, &header(9000), &[]));
    rig.run_for(3 * SECOND);
    assert_eq!(stations(&send_far(&mut rig)), [router_mac(1)]);
    // It is asked five seconds later, and answers: proven.
    let me = rig.stack.interfaces()[1].link_local_addr().expect("it has one");
    assert_eq!(of_type(&rig.run_for(6 * SECOND), 135), 1);
    rig.lives("an answer", &neighbor_answer(1, me, [true, true, true]));
    rig.run_for(60 * SECOND);
    send_far(&mut rig);
    assert_eq!(of_type(&rig.run_for(9 * SECOND), 135), 3, "three questions, no answer");
    assert_eq!(stations(&send_far(&mut rig)), [router_mac(2)], "its routes are hidden too");
    rig.run_for(6 * SECOND);
    rig.lives("the other answers", &neighbor_answer(2, me, [true, true, true]));
    let asked = rig.run_for(200 * SECOND);
    assert!((3..=5).contains(&of_type(&asked, 135)), "{}", of_type(&asked, 135));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(2))));
    // An advertisement says that it can be heard, not that it hears: it is asked.
    let asked = rig.lives("it speaks", &advertisement(1, &high, &far));
    assert_eq!((of_type(&asked, 135), gateway(&rig, FAR)), (1, Some(Some(router_addr(2)))));
    rig.lives("and answers", &neighbor_answer(1, me, [true, true, true]));
    assert_eq!(stations(&send_far(&mut rig)), [router_mac(1)]);
    assert!(rig.conservation().holds());
}
