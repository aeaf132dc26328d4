//! The table of RFC 6724 section 10.1, its likes for IPv4, and the choice of the interface.

use floodwall_base::{IpCidr, MacAddr};

use super::*;
use crate::iface::LinkMedium;

const OUT: IfIndex = IfIndex(1);
const OTHER: IfIndex = IfIndex(2);

/// `2001:db8::1/64`, with `!` in front where it is deprecated.
fn candidate(text: &str, iface: IfIndex) -> SourceCandidate {
    let (state, text) = match text.strip_prefix('!') {
        Some(rest) => (AddressState::Deprecated, rest),
        None => (AddressState::Preferred, text),
    };
    let cidr: IpCidr = text.parse().unwrap();
    SourceCandidate { addr: cidr.addr(), prefix_len: cidr.prefix_len(), iface, state }
}

fn chosen(dst_addr: &str, here: &[&str], elsewhere: &[&str]) -> String {
    let here = here.iter().map(|c| candidate(c, OUT));
    let candidates: Vec<_> = here.chain(elsewhere.iter().map(|c| candidate(c, OTHER))).collect();
    let forward = choose_source(dst_addr.parse().unwrap(), OUT, candidates.iter().copied());
    let backward = choose_source(dst_addr.parse().unwrap(), OUT, candidates.into_iter().rev());
    assert_eq!(forward, backward, "{dst_addr}: the order decides");
    forward.map(|addr| addr.to_string()).unwrap_or_default()
}

#[test]
fn the_rfcs_own_examples_come_out() {
    // Destination, candidates, expected. Temporary and home addresses do not exist here.
    let table: [(&str, [&str; 2], &str); 6] = [
        ("2001:db8:1::1", ["2001:db8:3::1/64", "fe80::1/64"], "2001:db8:3::1"),
        ("ff05::1", ["2001:db8:3::1/64", "fe80::1/64"], "2001:db8:3::1"),
        ("2001:db8:1::1", ["!2001:db8:1::1/64", "2001:db8:2::1/64"], "2001:db8:1::1"),
        ("fe80::1", ["!fe80::2/64", "2001:db8:1::1/64"], "fe80::2"),
        ("2001:db8:1::1", ["2001:db8:1::2/64", "2001:db8:3::2/64"], "2001:db8:1::2"),
        (
            "2002:c633:6401::1",
            ["2002:c633:6401::d5e3:7953:13eb:22e8/64", "2001:db8:1::2/64"],
            "2002:c633:6401:0:d5e3:7953:13eb:22e8",
        ),
    ];
    for (dst_addr, candidates, expected) in table {
        let found = chosen(dst_addr, &candidates, &[]);
        assert_eq!(found.parse::<IpAddr>(), expected.parse(), "{dst_addr}");
    }
}

#[test]
fn each_rule_decides_where_those_before_it_do_not() {
    // Rule 3: not the deprecated one, though it matches longer.
    let (near, far) = ("2001:db8:1::9/64", "2001:db8:9::1/64");
    assert_eq!(chosen("2001:db8:1::1", &[&format!("!{near}"), far], &[]), "2001:db8:9::1");
    assert_eq!(chosen("10.1.0.1", &["!10.1.0.2/24", "10.2.0.2/24"], &[]), "10.2.0.2");
    // Rule 5: the outgoing interface's, though one of another interface matches longer.
    assert_eq!(chosen("2001:db8:1::1", &[far], &[near]), "2001:db8:9::1");
    assert_eq!(chosen("10.1.0.1", &["10.2.0.2/24"], &["10.1.0.2/24"]), "10.2.0.2");
    // Rule 6: the label, though another matches longer (unique local against global).
    assert_eq!(chosen("fd00:1::1", &["fd99::1/64", "2001:db8::1/64"], &[]), "fd99::1");
    assert_eq!(chosen("2001:db8:1::1", &["fd99::1/64", "2a00::1/64"], &[]), "2a00::1");
    // Rule 8: the longest match, no further than the prefix.
    assert_eq!(chosen("10.1.0.1", &["10.1.0.2/24", "10.2.0.2/24"], &[]), "10.1.0.2");
    let (first, second) = (candidate("fd00::1:0:0:9/64", OUT), candidate("fd00::2:0:0:1/64", OUT));
    let dst_addr = "fd00::2:0:0:9".parse().unwrap();
    assert_eq!(choose_source(dst_addr, OUT, [first, second]), Some(first.addr));
}

#[test]
fn scopes_are_kept_apart_in_both_families() {
    // Rule 2, both ways, and for IPv4's link-local addresses.
    assert_eq!(chosen("169.254.7.7", &["169.254.1.1/16", "10.0.0.1/8"], &[]), "169.254.1.1");
    assert_eq!(chosen("8.8.8.8", &["169.254.1.1/16", "10.0.0.1/8"], &[]), "10.0.0.1");
    assert_eq!(chosen("224.0.0.251", &["169.254.1.1/16", "10.0.0.1/8"], &[]), "169.254.1.1");
    assert_eq!(chosen("ff02::fb", &["fe80::1/64", "2001:db8::1/64"], &[]), "fe80::1");
}

#[test]
fn a_link_is_answered_from_that_link_only() {
    // Link-local and group destinations: no other interface's address will do.
    assert_eq!(chosen("fe80::7", &[], &["fe80::1/64", "2001:db8::1/64"]), "");
    assert_eq!(chosen("ff02::1", &[], &["2001:db8::1/64"]), "");
    assert_eq!(chosen("224.0.0.1", &[], &["10.0.0.1/8"]), "");
    // Global ones: another interface's global address, never its link-local one.
    assert_eq!(chosen("2001:db8:5::1", &["fe80::2/64"], &["2001:db8::1/64"]), "2001:db8::1");
    assert_eq!(chosen("2001:db8:5::1", &[], &["fe80::1/64"]), "");
    assert_eq!(chosen("8.8.8.8", &[], &["127.0.0.1/8"]), "");
}

#[test]
fn what_is_not_assigned_is_not_chosen() {
    for text in ["10.0.0.1/8", "fd00::1/64"] {
        let mut one = candidate(text, OUT);
        for state in [AddressState::Tentative, AddressState::Duplicate] {
            one.state = state;
            assert_eq!(choose_source(one.addr, OUT, [one]), None);
        }
    }
    let four = candidate("10.0.0.1/8", OUT);
    assert_eq!(choose_source("fd00::1".parse().unwrap(), OUT, [four]), None);
}

#[test]
fn packets_to_ourselves_come_from_where_they_go() {
    let lo = Interface::new(IfIndex::LOOPBACK, "lo", LinkMedium::Loopback, 65_536, true);
    let medium = LinkMedium::Ethernet(MacAddr([2, 0, 0, 0, 0, 1]));
    let mut eth = Interface::new(OUT, "eth0", medium, 1500, true);
    for cidr in ["10.0.0.1/24", "fd00::1/64"] {
        eth.add_address(cidr.parse().unwrap(), AddressState::Preferred).unwrap();
    }
    for text in ["10.0.0.1", "fd00::1", "127.0.0.1", "::1"] {
        let addr = text.parse().unwrap();
        assert_eq!(source_address(addr, IfIndex::LOOPBACK, [&lo, &eth]), Some(addr), "{text}");
    }
    let out = source_address("fd00::9".parse().unwrap(), OUT, [&lo, &eth]);
    assert_eq!(out, "fd00::1".parse().ok());
}
