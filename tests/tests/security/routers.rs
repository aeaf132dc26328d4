//! Routers that say too much, too often or nonsense, in virtual time (rows 61, 62 and 65 of the
//! list of attacks).

use std::net::Ipv6Addr;
use std::time::Duration;

use floodwall_base::limits::{
    ROUTER_ADVERTISEMENT_BURST, ROUTER_ADVERTISEMENT_RATE, ROUTER_NEWCOMER_BURST,
    ROUTER_NEWCOMER_RATE, ROUTERS_MAX,
};
use floodwall_base::{DropReason, IfIndex, Instant, MacAddr, Randomness};
use floodwall_fib::RouteProtocol;
use floodwall_ip::neighbor::{EARLY_SOLICIT_MAX, UNICAST_SOLICIT_MAX, UNREACHABLE_SOLICIT_MAX};
use floodwall_ip::{AddressOrigin, AddressState, InterfaceAddress};
use floodwall_packet::PacketBuf;
use floodwall_stack::{Stack, StackConfig};
use floodwall_tests::router::{
    ALL_NODES, advertisement, believing_config, dns_names, header, message_frame, neighbor_answer,
    prefix, route, router_addr, router_mac,
};
use floodwall_tests::{Rig, bytes_of};
use floodwall_wire::ndp::{
    Lifetime, NdpOption, NeighborAdvertisementFields, Preference, PrefixInfo,
    RouterAdvertisementFields,
};

const SECOND: Duration = Duration::from_secs(1);
const FAR: &str = "2001:db8:ffff::1";

/// A host that has been up for ten seconds and accepts router advertisements.
fn rig() -> Rig {
    let mut rig = Rig::new(&believing_config());
    rig.run_for(10 * SECOND);
    rig
}

fn learnt(rig: &Rig) -> usize {
    let learnt = RouteProtocol::RouterAdvertisement;
    rig.stack.routes_v6().dump().filter(|r| r.protocol == learnt).count()
}

/// The next hop to a destination; `None` where it is on the link.
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

/// Lets as much time pass as a known router takes between two words that are both read; a newcomer
/// takes less.
fn pass_the_interval(rig: &mut Rig) {
    rig.now += SECOND / ROUTER_ADVERTISEMENT_RATE;
}

/// How many of these frames are ICMPv6 messages of a type.
fn of_type(frames: &[PacketBuf], kind: u8) -> usize {
    let is = |p: &&PacketBuf| bytes_of(p)[12..14] == [0x86, 0xdd] && bytes_of(p)[54] == kind;
    frames.iter().filter(is).count()
}

/// The whole life: a router is solicited, answers, is accepted, and all that it advertised is gone
/// after its lifetime.
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
    let (_, engine) = rig.stack.routers().next().expect("a router list");
    assert_eq!((engine.routers().count(), engine.routes().count()), (0, 0));
    assert_eq!(engine.prefixes().count(), 0);
    assert!(rig.conservation().holds());
}

/// Row 61 (CVE-2010-4669, CVE-2011-2393, CVE-2014-2309): 31,000 routers, each with a prefix, a
/// route and servers of its own. A thousand come no faster than newcomers are read, the others at
/// once, and most of those are not read. What is kept has its bounds, the honest router is accepted
/// and remains the default router, memory is flat.
#[test]
fn a_flood_of_routers_prefixes_and_routes_keeps_the_honest_one() {
    let mut rig = rig();
    let honest = [
        NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600)),
        NdpOption::RouteInfo(route("2001:db8:9::", 48, Preference::Medium, 1800)),
    ];
    rig.lives("the honest one", &advertisement(0, &header(1800), &honest));
    rig.run_for(3 * SECOND);
    let free = rig.pool.available();
    for n in 1..=31_000_u32 {
        if n <= 1000 {
            rig.now += SECOND / ROUTER_NEWCOMER_RATE;
        } else if n % 1000 == 0 {
            rig.now += 3 * SECOND;
            rig.lives("the honest one again", &advertisement(0, &header(1800), &honest));
        }
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
    let drops = rig.stats().drops_in;
    let no_place = drops.of(DropReason::RouterListFull);
    let unread = drops.of(DropReason::RouterTalkative);
    assert_eq!(no_place + unread, 31_000 - 15, "an honest one and fifteen others");
    let read = 1000 - 15..=1000 + 31 * u64::from(ROUTER_NEWCOMER_BURST);
    assert!(read.contains(&no_place), "{no_place} were read");
    let (_, engine) = rig.stack.routers().next().expect("a router list");
    assert_eq!((engine.routers().count(), engine.routes().count()), (16, 16));
    assert!(engine.prefixes().count() <= 16 && autoconf(&rig).len() <= 16);
    assert!(learnt(&rig) <= 16 + 16 + 32);
    assert_eq!(dns(&rig).0.len(), 8);
    assert_eq!(
        gateway(&rig, FAR),
        Some(Some(router_addr(0))),
        "the first router stays the default"
    );
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
        pass_the_interval(&mut rig);
        rig.lives("a mouthful", &advertisement(1, &header(1800), &options));
    }
    let (_, engine) = rig.stack.routers().next().expect("a router list");
    assert_eq!((engine.prefixes().count(), engine.routes().count()), (32, 64));
    assert_eq!((autoconf(&rig).len(), learnt(&rig)), (16, 2 + 32 + 64));
    rig.run_for(1000 * SECOND);
    assert_eq!((autoconf(&rig).len(), learnt(&rig)), (0, 2), "all that had an end");
}

/// Sends one datagram to a far host; returns the frames that leave.
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
/// chosen; RFC 4191 section 3.5: the silent one is probed again, and is back once it answers.
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
    // It is probed at once, and answers: proven.
    let me = rig.stack.interfaces()[1].link_local_addr().expect("it has one");
    assert_eq!(of_type(&rig.run_for(SECOND / 100), 135), 1);
    rig.lives("an answer", &neighbor_answer(1, me, [true, true, true]));
    rig.run_for(60 * SECOND);
    send_far(&mut rig);
    let probes = usize::from(UNICAST_SOLICIT_MAX * (1 + EARLY_SOLICIT_MAX));
    let asked = of_type(&rig.run_for(SECOND * 17 / 2), 135);
    assert_eq!(asked, probes, "three seconds of questions, no answer");
    assert_eq!(stations(&send_far(&mut rig)), [router_mac(2)], "its routes are hidden too");
    rig.run_for(SECOND / 100);
    rig.lives("the other answers", &neighbor_answer(2, me, [true, true, true]));
    let asked = rig.run_for(200 * SECOND);
    // To the group three times, with what is early each time, and the probes of a minute.
    let group = usize::from(UNREACHABLE_SOLICIT_MAX * (1 + EARLY_SOLICIT_MAX));
    let asked = of_type(&asked, 135);
    assert!((group..=group + 2).contains(&asked), "{asked}");
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(2))));
    // An advertisement proves one direction only: the router is probed.
    let asked = rig.lives("it advertises", &advertisement(1, &high, &far));
    assert_eq!((of_type(&asked, 135), gateway(&rig, FAR)), (1, Some(Some(router_addr(2)))));
    rig.lives("and answers", &neighbor_answer(1, me, [true, true, true]));
    assert_eq!(stations(&send_far(&mut rig)), [router_mac(1)]);
    assert!(rig.conservation().holds());
}

/// How long is left, rounded up to seconds.
fn left(rig: &Rig, until: Option<Instant>) -> u64 {
    until.map_or(u64::MAX, |until| (until - rig.now).as_millis().div_ceil(1000) as u64)
}

/// RFC 4862 section 5.5.3 (e): what a forged short lifetime can do to an address. Received, left
/// before, left after; all in seconds.
#[test]
fn a_short_lifetime_takes_no_address_away_within_two_hours() {
    const HOURS: u64 = 7200;
    let cases = [
        // Longer than two hours, or than what is left: taken.
        (HOURS + 1, 9000, HOURS + 1),
        (9000, 9000, 9000),
        (600, 300, 600),
        // Less than what is left, which is under two hours: ignored.
        (10, 300, 300),
        (0, 300, 300),
        (HOURS, HOURS, HOURS),
        (0, HOURS, HOURS),
        // Less than what is left, which is more: two hours.
        (HOURS, 9000, HOURS),
        (10, 9000, HOURS),
        (0, 9000, HOURS),
        (0, u64::from(u32::MAX), HOURS),
        (u64::from(u32::MAX), 300, u64::MAX),
    ];
    for (received, before, after) in cases {
        let mut rig = rig();
        let says = |secs: u64| {
            let secs = secs as u32;
            let net = prefix("2001:db8:1::", 64, secs, secs);
            advertisement(1, &header(1800), &[NdpOption::PrefixInfo(net)])
        };
        rig.lives("the first", &says(before));
        rig.lives("the second", &says(received));
        let [address] = autoconf(&rig)[..] else { panic!("{:?}", autoconf(&rig)) };
        assert_eq!(left(&rig, address.valid_until), after, "{received} after {before}");
        // The preferred lifetime is as received, and never beyond the valid one.
        let preferred = if received == u64::from(u32::MAX) { u64::MAX } else { received };
        assert_eq!(left(&rig, address.preferred_until), preferred.min(after));
        // What is on the link has no such rule (RFC 4861 section 6.3.4).
        let on_link = gateway(&rig, "2001:db8:1::9");
        assert_eq!(on_link, if received == 0 { Some(Some(router_addr(1))) } else { Some(None) });
    }
}

/// A known router's next word, late enough to be read.
fn says(rig: &mut Rig, what: &str, said: &[u8]) {
    pass_the_interval(rig);
    rig.lives(what, said);
}

/// Row 62 (CVE-2015-2922 and 2923, CVE-2015-8215, CVE-2020-16898): what a router may not say. The
/// part, or the message, is ignored.
#[test]
fn nonsense_of_a_router_changes_nothing() {
    let before = |rig: &Rig| {
        let interface = &rig.stack.interfaces()[1];
        let addresses: Vec<_> = interface.addresses().collect();
        (interface.mtu_v6, interface.hop_limit, addresses, dns(rig), learnt(rig))
    };
    let names = dns_names(&["example.org"]);
    let servers = [Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53).octets()];
    let lifetime = Lifetime::from_secs(600);
    let usual = [
        NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600)),
        NdpOption::Mtu(1400),
        NdpOption::RecursiveDns { lifetime, servers: &servers },
        NdpOption::DnsSearch { lifetime, names: &names },
    ];
    let mut rig = rig();
    rig.lives("a sane one", &advertisement(1, &header(1800), &usual));
    rig.run_for(3 * SECOND);
    let sane = before(&rig);
    for hops in 1..64 {
        let fields = RouterAdvertisementFields { hop_limit: Some(hops), ..header(1800) };
        says(&mut rig, "a low hop limit", &advertisement(1, &fields, &[]));
    }
    for mtu in [0, 1, 68, 1279, 1501, 9000, 65_536, u32::MAX] {
        says(&mut rig, "an MTU", &advertisement(1, &header(1800), &[NdpOption::Mtu(mtu)]));
    }
    let on_link = |info: PrefixInfo| PrefixInfo { on_link: false, ..info };
    let longer = on_link(prefix("2001:db8:2::", 64, 100, 200));
    let prefixes = [
        prefix("fe80::", 64, 7200, 3600),
        prefix("fe80::", 10, 7200, 3600),
        prefix("ff02::", 64, 7200, 3600),
        prefix("ff00::", 8, 7200, 3600),
        prefix("::", 64, 7200, 3600),
        prefix("::", 0, 7200, 3600),
        prefix("2001:db8:2::", 129, 7200, 3600),
        prefix("2001:db8:2::", 255, 7200, 3600),
        on_link(prefix("2001:db8:2::", 63, 7200, 3600)),
        on_link(prefix("2001:db8:2::", 65, 7200, 3600)),
        on_link(prefix("2001:db8:2::", 128, 7200, 3600)),
        prefix("2001:db8:2::", 64, 0, 0),
        longer,
    ];
    for info in prefixes {
        let said = advertisement(1, &header(1800), &[NdpOption::PrefixInfo(info)]);
        says(&mut rig, &format!("{info:?}"), &said);
    }
    let routes = [
        route("fe80::", 64, Preference::High, 900),
        route("ff00::", 8, Preference::High, 900),
        route("::", 96, Preference::High, 900),
        route("2001:db8:9::", 48, Preference::Reserved, 900),
    ];
    for info in routes {
        says(&mut rig, "a route", &advertisement(1, &header(1800), &[NdpOption::RouteInfo(info)]));
    }
    let bad_names: [&[u8]; 4] = [&[0xc0, 0, 0, 0], &[63, b'a'], &[3, b'a', b'\n', b'b', 0], &[1]];
    for names in bad_names {
        let option = NdpOption::DnsSearch { lifetime, names };
        says(&mut rig, "a name", &advertisement(1, &header(1800), &[option]));
    }
    for addr in ["::", "::1", "ff02::1"] {
        let servers = [addr.parse::<Ipv6Addr>().expect("an address").octets()];
        let option = NdpOption::RecursiveDns { lifetime, servers: &servers };
        says(&mut rig, "a server", &advertisement(1, &header(1800), &[option]));
    }
    assert_eq!(before(&rig), sane);
    impossible_lengths_make_a_message_none(&mut rig);
    assert_eq!((before(&rig), gateway(&rig, FAR)), (sane, Some(Some(router_addr(1)))));
}

fn impossible_lengths_make_a_message_none(rig: &mut Rig) {
    // Lengths of options that are impossible make the whole message none, its lifetime of zero
    // included: length 0, an even number of units for DNS servers, and beyond the message.
    let broken: [&[u8]; 6] = [&[1, 0], &[25, 0], &[25, 2], &[25, 4], &[31, 1], &[3, 200]];
    for option in broken {
        let filler = [option, &[0; 30]].concat();
        let said = broken_advertisement(&filler);
        pass_the_interval(rig);
        rig.expect_drop(&format!("{option:?}"), &said, DropReason::NdpMalformed, None);
    }
}

/// "I am a router no longer", behind which options stand as they are given.
fn broken_advertisement(options: &[u8]) -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend(options);
    let (addr, len) = (router_addr(1), message.len() as u32);
    let pseudo = floodwall_checksum::pseudo_header_v6(addr, ALL_NODES, 58, len);
    let check = floodwall_checksum::sum(&message).add(pseudo).finish();
    message[2..4].copy_from_slice(&check.to_be_bytes());
    message_frame(router_mac(1), addr, ALL_NODES, &message)
}

/// RFC 4861 sections 6.1.2 and 7.2.5, RFC 6980: which stations are no routers, and which no longer.
#[test]
fn a_host_that_is_no_router_is_not_accepted_and_one_that_stops_being_one_is_removed() {
    let mut rig = rig();
    let message = |hop_limit: u8| {
        let mut frame = advertisement(1, &header(1800), &[]);
        frame[14 + 7] = hop_limit;
        frame
    };
    for hop_limit in [0, 1, 64, 254] {
        rig.expect_drop("from afar", &message(hop_limit), DropReason::NdpHopLimit, None);
    }
    assert_eq!(gateway(&rig, FAR), None);
    rig.lives("a router", &message(255));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(1))));
    let me = rig.stack.interfaces()[1].link_local_addr().expect("it has one");
    rig.lives("no router any more", &neighbor_answer(1, me, [false, false, true]));
    assert_eq!((gateway(&rig, FAR), learnt(&rig)), (None, 0));
    rig.lives("a router again", &message(255));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(1))));
    rig.lives("its last word", &advertisement(1, &header(0), &[]));
    assert_eq!((gateway(&rig, FAR), learnt(&rig)), (None, 0));
}

/// A router that changes its mind with each word costs no more than its words; we ask no faster.
#[test]
fn a_flapping_router_makes_us_ask_no_faster() {
    let mut rig = rig();
    let net = [NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600))];
    let (mut asked, mut probes) = (0, 0);
    for n in 0..80 {
        let secs = if n % 2 == 0 { 1800 } else { 0 };
        rig.lives("its mind", &advertisement(1, &header(secs), &net));
        let sent = rig.run_for(SECOND / ROUTER_NEWCOMER_RATE);
        asked += of_type(&sent, 133);
        probes += of_type(&sent, 135);
    }
    assert!((1..=6).contains(&asked), "{asked} questions in 20 seconds");
    assert_eq!((probes, autoconf(&rig).len()), (1, 1), "one address, probed once");
    assert!(rig.conservation().holds());
}

/// A known router is read as often as it may advertise and more; all others share one rate, and
/// take none of the known one's. An advertisement that is not read has changed nothing.
#[test]
fn a_router_that_advertises_too_often_is_not_read_and_takes_nothing_from_known_ones() {
    let mut rig = rig();
    let said = |n| advertisement(n, &header(1800), &[]);
    rig.lives("the honest one", &said(0));
    rig.run_for(3 * SECOND);
    for n in 1..=ROUTER_NEWCOMER_BURST {
        rig.lives("a newcomer", &said(n));
    }
    rig.expect_drop("one too many", &said(100), DropReason::RouterTalkative, None);
    for _ in 0..ROUTER_ADVERTISEMENT_BURST {
        rig.lives("the honest one, in parts", &said(0));
    }
    let last = advertisement(0, &header(0), &[]);
    rig.expect_drop("the honest one, too often", &last, DropReason::RouterTalkative, None);
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(0))));
    pass_the_interval(&mut rig);
    rig.lives("its last word", &last);
    assert_ne!(gateway(&rig, FAR), Some(Some(router_addr(0))));
    // What is no router advertisement takes no share.
    let mut afar = said(101);
    afar[14 + 7] = 64;
    for _ in 0..100 {
        rig.expect_drop("from afar", &afar, DropReason::NdpHopLimit, None);
    }
    rig.lives("a newcomer in time", &said(101));
    let (_, engine) = rig.stack.routers().next().expect("a router list");
    assert!(engine.routers().count() <= ROUTERS_MAX);
}

/// The clock jumps by a day, as after a sleep: what has ended is not used, before any timer.
#[test]
fn after_a_jump_of_the_clock_nothing_that_has_ended_is_used() {
    let mut rig = rig();
    let options = [
        NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600)),
        NdpOption::RouteInfo(route("2001:db8:9::", 48, Preference::High, 250)),
    ];
    rig.lives("a router", &advertisement(1, &header(1800), &options));
    rig.now += Duration::from_secs(86_400);
    for to in [FAR, "2001:db8:9::1", "2001:db8:1::1"] {
        assert_eq!(gateway(&rig, to), None, "{to}");
    }
    // The next word of a router finds all places free, and counts from now.
    rig.lives("another", &advertisement(2, &header(1800), &options));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(2))));
    rig.run_for(SECOND);
    assert_eq!((gateway(&rig, FAR), autoconf(&rig).len()), (Some(Some(router_addr(2))), 1));
    assert!(rig.conservation().holds());
}

/// RFC 4861 section 6.3.7: on a link that was down routers are solicited anew, and nothing of the
/// old link is left.
#[test]
fn a_link_that_was_down_is_a_new_link() {
    let mut rig = rig();
    let net = [NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600)), NdpOption::Mtu(1300)];
    rig.lives("a router", &advertisement(1, &header(1800), &net));
    rig.run_for(3 * SECOND);
    let set_up = |rig: &mut Rig, up| {
        let Rig { stack, now, random, .. } = rig;
        stack.set_up(IfIndex(1), up, *now, random);
    };
    set_up(&mut rig, false);
    assert_eq!((learnt(&rig), autoconf(&rig)), (0, vec![]));
    assert_eq!(rig.stack.interfaces()[1].mtu_v6, 1500);
    assert_eq!(of_type(&rig.run_for(60 * SECOND), 133), 0);
    set_up(&mut rig, true);
    assert_eq!(of_type(&rig.run_for(2 * SECOND), 133), 1);
    rig.lives("a router", &advertisement(1, &header(1800), &net));
    rig.run_for(3 * SECOND);
    assert_eq!((learnt(&rig), autoconf(&rig)[0].state), (2, AddressState::Preferred));
}

/// Row 65 (dos-new-ip6) for addresses of our own making, RFC 7217 section 6: each conflict makes
/// another identifier, three times; then the prefix stays without an address. Nothing loops.
#[test]
fn an_address_that_is_always_denied_is_tried_with_four_identifiers() {
    let mut rig = rig();
    let net = [NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600))];
    rig.lives("a router", &advertisement(1, &header(1800), &net));
    let mut tried = Vec::new();
    for n in 0..600 {
        for packet in rig.run_for(Duration::from_millis(100)) {
            let bytes = bytes_of(&packet);
            if bytes[12..14] != [0x86, 0xdd] || bytes[54] != 135 || bytes[22..38] != [0; 16] {
                continue;
            }
            let target = bytes[62..78].first_chunk::<16>().expect("a target");
            tried.push(Ipv6Addr::from(*target));
            rig.frame(&denial(tried[tried.len() - 1]));
        }
        if n % 100 == 99 {
            rig.frame(&advertisement(1, &header(1800), &net));
        }
    }
    let mut different = tried.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!((tried.len(), different.len()), (4, 4), "{tried:?}");
    let [address] = autoconf(&rig)[..] else { panic!("{:?}", autoconf(&rig)) };
    assert_eq!(address.state, AddressState::Duplicate);
    assert!(rig.conservation().holds());
}

/// "That address is mine", to all.
fn denial(target_addr: Ipv6Addr) -> Vec<u8> {
    let fields = NeighborAdvertisementFields {
        router: false,
        solicited: false,
        override_entry: true,
        target_addr,
    };
    let mut out = [0; 64];
    let options = [NdpOption::TargetLinkAddr(router_mac(9))];
    let len = fields.emit_into(&options, target_addr, ALL_NODES, &mut out).expect("it fits");
    message_frame(router_mac(9), target_addr, ALL_NODES, &out[..len])
}

/// RFC 4191 section 3.2, and its ::/0, which has the last word.
#[test]
fn preferences_decide_among_routers_and_routes() {
    let mut rig = rig();
    let of = |preference| RouterAdvertisementFields { preference, ..header(1800) };
    rig.lives("as others", &advertisement(1, &of(Preference::Medium), &[]));
    rig.lives("after others", &advertisement(2, &of(Preference::Low), &[]));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(1))));
    rig.lives("over others", &advertisement(3, &of(Preference::High), &[]));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(3))));
    let all = NdpOption::RouteInfo(route("::", 0, Preference::Low, 900));
    rig.lives("its last word", &advertisement(3, &of(Preference::High), &[all]));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(1))));
    let net = "2001:db8:ffff::";
    let option = |preference| NdpOption::RouteInfo(route(net, 48, preference, 900));
    rig.lives("a route", &advertisement(2, &of(Preference::Low), &[option(Preference::Medium)]));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(2))), "the longer prefix");
    rig.lives("the same", &advertisement(3, &of(Preference::Low), &[option(Preference::High)]));
    assert_eq!(gateway(&rig, FAR), Some(Some(router_addr(3))));
}

/// With the same secret a host has the same addresses after a restart; without one, others.
#[test]
fn addresses_are_the_same_after_a_restart_with_the_same_secret() {
    let address = |secret: Option<[u8; 16]>, seed: u64| {
        let config = StackConfig { stable_secret: secret, ..believing_config() };
        let mut rig = Rig::new(&config);
        rig.random = Randomness::from_number(seed);
        rig.stack = Stack::new(&config, &mut rig.random, rig.now).expect("a configuration");
        let net = [NdpOption::PrefixInfo(prefix("2001:db8:1::", 64, 7200, 3600))];
        rig.lives("a router", &advertisement(1, &header(1800), &net));
        autoconf(&rig)[0].addr
    };
    assert_eq!(address(Some([7; 16]), 1), address(Some([7; 16]), 2));
    assert_ne!(address(Some([7; 16]), 1), address(Some([8; 16]), 1));
    assert_ne!(address(None, 1), address(None, 2));
}
