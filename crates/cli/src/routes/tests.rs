//! Words against a table: what they do, what they are refused with, how it is shown.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{HashKey, IfIndex, Instant};
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{Fib, FibConfig};
use floodwall_ip::{Interface, LinkMedium};
use serde_json::{Value, json};

use super::apply::{self, RouteContext, RouteUndo};
use super::document;
use super::parse::{self, RouteFilter, RouteRequest};
use super::rule_words::RuleWish;

const NOW: Instant = Instant::from_nanos(5_000_000_000);

fn table<A: LpmFamily>() -> Fib<A> {
    Fib::alone(FibConfig::for_routes(64), HashKey::new(1, 2), NOW)
}

fn wish(text: &str) -> Result<RouteRequest, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    parse::line(&words, None).map_err(|wrong| format!("{}; {}", wrong.what, wrong.remedy))
}

fn loopback() -> Interface {
    Interface::new(IfIndex::LOOPBACK, "lo", LinkMedium::Loopback, 65_536, true)
}

fn interfaces() -> Vec<Interface> {
    let mut fw0 = Interface::new(IfIndex(1), "fw0", LinkMedium::Ip, 1500, true);
    for address in ["10.0.0.2/24", "fd00::2/64"] {
        let cidr: floodwall_base::IpCidr = address.parse().expect("an address");
        fw0.add_address(cidr, floodwall_ip::AddressState::Preferred).expect("room");
    }
    vec![loopback(), fw0]
}

fn act<A: LpmFamily>(fib: &mut Fib<A>, text: &str) -> Result<RouteUndo<A>, String> {
    let all = interfaces();
    let context = RouteContext { interfaces: &all, now: NOW };
    match wish(text)? {
        RouteRequest::Put(how, words) => apply::put(fib, context, how, &words),
        RouteRequest::Delete(words) => apply::delete(fib, context, &words),
        RouteRequest::Rule(RuleWish::Add(words)) => apply::add_rule(fib, context, &words),
        RouteRequest::Rule(RuleWish::Delete(words)) => apply::delete_rule(fib, context, &words),
        other => panic!("{other:?}"),
    }
}

fn shown<A: LpmFamily>(fib: &Fib<A>) -> Vec<Value> {
    let all = interfaces();
    let filter = RouteFilter { table: Some(None), ..RouteFilter::default() };
    document::routes(fib, RouteContext { interfaces: &all, now: NOW }, &filter).0
}

fn only<A: LpmFamily>(text: &str) -> Value {
    let mut fib = table::<A>();
    act(&mut fib, text).expect(text);
    shown(&fib).remove(0)
}

#[test]
fn routes_are_shown_with_the_keys_of_iproute2() {
    assert_eq!(
        only::<Ipv4Addr>("route add 192.0.2.0/24 via 10.0.0.1 metric 50 proto static src 10.0.0.2"),
        json!({ "dst": "192.0.2.0/24", "gateway": "10.0.0.1", "dev": "fw0", "protocol": "static",
                "prefsrc": "10.0.0.2", "metric": 50, "flags": [] })
    );
    assert_eq!(
        only::<Ipv4Addr>("route add 192.0.2.1 dev fw0 table 7 expires 600"),
        json!({ "dst": "192.0.2.1", "dev": "fw0", "table": "7", "scope": "link", "flags": [],
                "expires": 600 })
    );
    assert_eq!(
        only::<Ipv6Addr>("-6 route add default via fe80::1 dev fw0"),
        json!({ "dst": "default", "gateway": "fe80::1", "dev": "fw0", "metric": 1024, "flags": [],
                "pref": "medium" })
    );
    assert_eq!(
        only::<Ipv4Addr>("route add blackhole 198.51.100.0/24"),
        json!({ "type": "blackhole", "dst": "198.51.100.0/24", "flags": [] })
    );
    let several = "route add default nexthop via 10.0.0.1 weight 3 nexthop via 10.0.0.9 dev fw0";
    assert_eq!(
        only::<Ipv4Addr>(several)["nexthops"],
        json!([{ "gateway": "10.0.0.1", "dev": "fw0", "weight": 3, "flags": [] },
               { "gateway": "10.0.0.9", "dev": "fw0", "weight": 1, "flags": [] }])
    );
    assert_eq!(
        document::route_in_words(&only::<Ipv4Addr>(several)),
        concat!(
            "default\n\tnexthop via 10.0.0.1 dev fw0 weight 3\n",
            "\tnexthop via 10.0.0.9 dev fw0 weight 1\n"
        )
    );
}

#[test]
fn add_replace_append_and_delete_do_what_ip_s_do() {
    let mut fib = table::<Ipv4Addr>();
    let mut does = |text: &str| act(&mut fib, text).map(drop);
    assert_eq!(does("route add 192.0.2.0/24 via 10.0.0.1"), Ok(()));
    assert!(does("route add 192.0.2.0/24 via 10.0.0.9").unwrap_err().contains("exists"));
    assert_eq!(does("route append 192.0.2.0/24 via 10.0.0.9"), Ok(()));
    assert_eq!(does("route add 192.0.2.0/24 via 10.0.0.9 metric 5"), Ok(()));
    assert_eq!(does("route replace 192.0.2.0/24 via 10.0.0.7"), Ok(()));
    assert_eq!(does("route del 192.0.2.0/24 via 10.0.0.9 metric 5"), Ok(()));
    assert!(does("route del 192.0.2.0/24 via 10.0.0.66").unwrap_err().contains("no such route"));
    let mut gateways: Vec<_> =
        shown(&fib).iter().map(|route| route["gateway"].to_string()).collect();
    gateways.sort_unstable();
    assert_eq!(gateways, ["\"10.0.0.7\"", "\"10.0.0.9\""]);
}

#[test]
fn every_change_can_be_taken_back() {
    let mut fib = table::<Ipv4Addr>();
    act(&mut fib, "route add 192.0.2.0/24 via 10.0.0.1").expect("room");
    act(&mut fib, "route add 198.51.100.0/24 nexthop via 10.0.0.1 nexthop via 10.0.0.9 weight 9")
        .expect("room");
    let (routes, rules) = (shown(&fib), fib.rules().to_vec());
    for text in [
        "route add 203.0.113.0/24 dev fw0",
        "route add blackhole 203.0.113.0/24 metric 9",
        "route replace 192.0.2.0/24 via 10.0.0.9 metric 0 proto bgp",
        "route replace 198.51.100.0/24 via 10.0.0.9",
        "route del 192.0.2.0/24",
        "route del 198.51.100.0/24",
        "route append 192.0.2.0/24 nexthop via 10.0.0.7 nexthop via 10.0.0.8",
        "rule add from 10.0.0.0/8 table 7 priority 9",
        "rule del table main",
    ] {
        let undo = act(&mut fib, text).expect(text);
        assert!(shown(&fib) != routes || fib.rules() != rules, "{text}");
        apply::take_back(&mut fib, undo, NOW);
        assert_eq!((shown(&fib), fib.rules().to_vec()), (routes.clone(), rules.clone()), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_with_what_to_say_instead() {
    let mut fib = table::<Ipv4Addr>();
    for (text, part) in [
        ("route dance", "\"dance\" is no word here"),
        ("route add", "the prefix is missing"),
        ("route add 10.0.0.1/24 dev fw0", "write 10.0.0.0/24, or 10.0.0.1"),
        ("route add 10.0.0.0/33 dev fw0", "/33 is not a prefix length"),
        ("route add x dev fw0", "\"x\" is not a prefix"),
        ("route add default", "the route leads nowhere"),
        ("route add default via", "nothing stands behind \"via\""),
        ("route add default via x", "\"x\" is not an address"),
        ("route add 10.9.0.0/16 via fd00::1", "fd00::1 is of the other family"),
        ("route add 10.9.0.0/16 via 192.0.2.1", "no interface has a prefix that covers"),
        ("route add 10.9.0.0/16 via 192.0.2.1 dev fw0", "use `onlink`"),
        ("route add 10.9.0.0/16 via 10.0.0.2", "an address of ours"),
        ("route add 10.9.0.0/16 dev eth9", "there is no interface \"eth9\"; there are lo, fw0"),
        ("route add 10.9.0.0/16 dev fw0 metric much", "\"much\" is not what stands behind"),
        ("route add 10.9.0.0/16 dev fw0 expires 0", "ends before it begins"),
        ("route add 10.9.0.0/16 dev fw0 proto mine", "\"mine\" is not a protocol"),
        ("route add 10.9.0.0/16 dev fw0 table 0", "\"0\" is not a table"),
        ("route add 10.9.0.0/16 dev fw0 src 10.0.0.77", "src 10.0.0.77 is no address"),
        ("route add 10.9.0.0/16 dev fw0 mtu 1400", "\"mtu\" is no word here"),
        ("route add blackhole 10.9.0.0/16 via 10.0.0.1", "has no next hop"),
        ("route add 10.9.0.0/16 nexthop weight 3", "leads nowhere"),
        ("route add 10.9.0.0/16 nexthop via 10.0.0.1 weight 257", "257 cannot be a weight"),
        ("route add 10.9.0.0/16 via 10.0.0.1 nexthop via 10.0.0.9", "one way stands beside"),
        ("-6 route add 10.9.0.0/16 dev fw0", "of the other family"),
        ("rule add from 10.0.0.0/8", "the rule has no table"),
        ("rule add table 7 ifi fw0", "\"ifi\" is no word here"),
        ("rule del priority 77", "no such rule"),
    ] {
        let said = act(&mut fib, text).map(drop).unwrap_err();
        assert!(said.contains(part), "{text}: {said}");
        assert!(said.contains(';') || said.contains(':'), "{text}: {said}");
    }
    assert!(shown(&fib).is_empty());
}

#[test]
fn a_wrong_word_in_line_700_000_is_named_with_its_line() {
    let mut batch = String::new();
    for n in 0..699_999_u32 {
        let [_, a, b, c] = (n << 2).to_be_bytes();
        batch += &format!("route add 10.{a}.{b}.{c}/30 dev fw0\n");
    }
    batch += "route add 10.0.0.0/8 dev fw0 metrik 7\n";
    let (wishes, faults) = super::session::read(&batch);
    assert_eq!(wishes.len(), 699_999);
    let [(line, why)] = &faults[..] else { panic!("{}", faults.len()) };
    assert_eq!(*line, 700_000);
    assert!(why.contains("\"metrik\" is no word here") && why.contains(';'), "{why}");
}

#[test]
fn rules_are_read_and_shown_in_ip_s_words() {
    let mut fib = table::<Ipv4Addr>();
    act(&mut fib, "rule add from 10.0.0.0/8 to 192.0.2.1 iif fw0 pref 100 lookup 7").expect("room");
    act(&mut fib, "rule add from 10.0.0.0/8 prohibit").expect("room");
    let all = interfaces();
    let context = RouteContext { interfaces: &all, now: NOW };
    let shown: Vec<Value> =
        fib.rules().iter().map(|rule| document::of_rule(rule, context)).collect();
    assert_eq!(
        shown[2],
        json!({ "priority": 100, "src": "10.0.0.0", "srclen": 8, "dst": "192.0.2.1", "iif": "fw0",
                "table": "7" })
    );
    assert_eq!(document::rule_in_words(&shown[0]), "0:\tfrom all lookup local\n");
    assert_eq!(document::rule_in_words(&shown[1]), "99:\tfrom 10.0.0.0/8 prohibit\n");
    let line = "100:\tfrom 10.0.0.0/8 to 192.0.2.1 iif fw0 lookup 7\n";
    assert_eq!(document::rule_in_words(&shown[2]), line);
}

#[test]
fn questions_and_filters_are_understood() {
    let Ok(RouteRequest::Get(question)) = wish("route get 192.0.2.1 from 10.0.0.2 iif fw0") else {
        panic!("a question")
    };
    let from: IpAddr = "10.0.0.2".parse().expect("an address");
    assert_eq!((question.from, question.iif.as_deref()), (Some(from), Some("fw0")));
    let Ok(RouteRequest::Show(filter)) = wish("-6 route show table all proto bgp dev fw0") else {
        panic!("a filter")
    };
    assert_eq!((filter.table, filter.dev.as_deref()), (Some(None), Some("fw0")));
    for text in ["route get", "route get x", "route show table", "route get 192.0.2.1 fd00::1"] {
        assert!(wish(text).is_err(), "{text}");
    }
}
