//! A router advertises itself: what hosts receive, when, and how often on solicitation.
//!
//! Reading: RFC 4861 section 6.2, RFC 4191, RFC 8106.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::Ipv6Addr;
use std::time::Duration;

use floodwall_base::{Counter, DropReason, MacAddr};
use floodwall_packet::PacketBuf;
use floodwall_stack::{AdvertiserConfig, ConfigError, StackConfig};
use floodwall_tests::craft::{PEER, mac};
use floodwall_tests::router::{message_frame, prefix, route};
use floodwall_tests::transit::{LEFT, Transit, router_config};
use floodwall_tests::{Sent, bytes_of};
use floodwall_wire::ethernet::{EtherType, HEADER_LEN};
use floodwall_wire::ndp::{
    NdpOption, Preference, RouterAdvertisement, RouterAdvertisementFields, RouterSolicitationFields,
};

const ALL_NODES: &str = "ff02::1";

fn said() -> AdvertiserConfig {
    AdvertiserConfig {
        lifetime: Duration::from_secs(1800),
        preference: Preference::High,
        mtu: Some(1400),
        prefixes: vec![prefix("fd00::", 64, 3600, 1800)],
        routes: vec![route("fd16::", 16, Preference::Low, 600)],
        dns: vec!["fd00::53".parse().unwrap()],
        ..AdvertiserConfig::default()
    }
}

fn config() -> StackConfig {
    let mut config = router_config();
    config.interfaces[0].advertise = Some(said());
    config
}

/// The advertisements among what departed.
fn advertisements(departed: &[PacketBuf]) -> Vec<Sent> {
    let all = departed.iter().filter(|p| bytes_of(p).get(54) == Some(&134));
    // They go to a group, not to the peer that `Sent::of` expects.
    all.map(|packet| Sent::of_ip(&bytes_of(packet)[HEADER_LEN..], EtherType::IPV6)).collect()
}

fn question(from: &str, options: &[NdpOption<'_>]) -> Vec<u8> {
    let (from, to): (Ipv6Addr, Ipv6Addr) = (from.parse().unwrap(), "ff02::2".parse().unwrap());
    let mut out = [0; 64];
    let len = RouterSolicitationFields.emit_into(options, from, to, &mut out).unwrap();
    message_frame(mac(PEER), from, to, &out[..len])
}

/// A router that has said its first words.
fn router() -> Transit {
    let mut router = Transit::new(&config());
    router.rig.run_for(Duration::from_secs(100));
    router
}

#[test]
fn hosts_hear_all_that_is_configured() {
    let mut rig = floodwall_tests::Rig::new(&config());
    let departed = rig.run_for(Duration::from_secs(1));
    let sent = advertisements(&departed);
    assert_eq!(sent.len(), 1, "soon after the start");
    assert!(sent[0].from.to_string().starts_with("fe80::"));
    assert_eq!(sent[0].to, ALL_NODES.parse::<Ipv6Addr>().unwrap());
    let message = RouterAdvertisement::parse(&sent[0].payload).unwrap();
    let fields = message.fields();
    let wanted = RouterAdvertisementFields {
        hop_limit: Some(64),
        managed: false,
        other: false,
        preference: Preference::High,
        router_lifetime: Duration::from_secs(1800),
        reachable_time: Duration::ZERO,
        retrans_timer: Duration::ZERO,
    };
    assert_eq!(fields, wanted);
    let options: Vec<_> = message.options().collect();
    assert!(options.contains(&NdpOption::SourceLinkAddr(mac(1))));
    assert!(options.contains(&NdpOption::Mtu(1400)));
    assert!(options.contains(&NdpOption::PrefixInfo(prefix("fd00::", 64, 3600, 1800))));
    assert!(options.contains(&NdpOption::RouteInfo(route("fd16::", 16, Preference::Low, 600))));
    let dns = options.iter().any(|o| {
        matches!(o, NdpOption::RecursiveDns { servers, .. }
        if servers[0] == "fd00::53".parse::<Ipv6Addr>().unwrap().octets())
    });
    assert!(dns && options.len() == 5);
}

#[test]
fn a_question_is_answered_soon_and_a_flood_of_them_no_faster() {
    let mut router = router();
    let ask = question("fe80::2", &[NdpOption::SourceLinkAddr(mac(PEER))]);
    assert!(
        advertisements(&router.arrive(LEFT, std::slice::from_ref(&ask))).is_empty(),
        "not at once"
    );
    let answer = router.rig.run_for(Duration::from_millis(500));
    assert_eq!(advertisements(&answer).len(), 1);
    let (mut said, mut asked) = (0, 0);
    for n in 0..1000_u16 {
        let from = format!("fe80::{n:x}:2");
        let departed = router.arrive(LEFT, &[question(&from, &[]), ask.clone()]);
        said += advertisements(&departed).len();
        said += advertisements(&router.rig.run_for(Duration::from_millis(10))).len();
        asked += 2;
    }
    assert!((2..=4).contains(&said), "{said} in ten seconds for {asked} questions");
    let counters = router.rig.stats().counters;
    assert_eq!(counters.of(Counter::Icmp6InRouterSolicits), asked + 1);
    assert!(router.rig.conservation().holds());
}

#[test]
fn one_that_does_not_advertise_leaves_questions_unanswered() {
    let mut silent = Transit::new(&router_config());
    let ask = question("fe80::2", &[]);
    let dropped =
        silent.dropped(|r| assert!(r.arrive(LEFT, std::slice::from_ref(&ask)).is_empty()));
    assert_eq!(dropped.0, [(DropReason::IcmpTypeUnknown, 1)]);
    // Nor does a host that is configured to, but does not forward.
    let host = StackConfig { ipv6_forwarding: false, ..config() };
    let mut host = floodwall_tests::Rig::new(&host);
    assert!(advertisements(&host.run_for(Duration::from_secs(60))).is_empty());
}

#[test]
fn a_question_from_nothing_with_a_link_address_is_none() {
    let mut router = router();
    let odd = question("::", &[NdpOption::SourceLinkAddr(MacAddr([2, 0, 0, 0, 0, 9]))]);
    let dropped = router.dropped(|r| assert!(r.arrive(LEFT, &[odd]).is_empty()));
    assert_eq!(dropped.0, [(DropReason::NdpMalformed, 1)]);
    let fine = question("::", &[]);
    router.arrive(LEFT, &[fine]);
    assert_eq!(advertisements(&router.rig.run_for(Duration::from_millis(500))).len(), 1);
}

#[test]
fn a_router_that_ceases_says_so() {
    let mut router = router();
    let now = router.rig.now;
    router.rig.stack.cease_advertising(now);
    let sent = advertisements(&router.rig.run_for(Duration::from_millis(10)));
    assert_eq!(sent.len(), 1);
    let message = RouterAdvertisement::parse(&sent[0].payload).unwrap();
    assert_eq!(message.fields().router_lifetime, Duration::ZERO);
    router.arrive(LEFT, &[question("fe80::2", &[])]);
    assert!(advertisements(&router.rig.run_for(Duration::from_secs(2000))).is_empty());
}

#[test]
fn what_no_router_may_say_makes_no_stack() {
    let mut config = config();
    let odd = AdvertiserConfig { mtu: Some(1000), ..said() };
    config.interfaces[0].advertise = Some(odd);
    let error = floodwall_stack::check(&config).unwrap_err();
    assert!(matches!(error, ConfigError::Advertise { .. }), "{error}");
}
