//! Addresses that no router passes on, and those that look so and pass (RFC 1812 sections 4.2.2.11,
//! 4.2.3.1, 5.3.5 and 5.3.7, RFC 4291 section 2, RFC 6890).

use std::net::IpAddr;

use floodwall_base::DropReason::{self, *};
use floodwall_ip::forward::Martians;
use floodwall_stack::StackConfig;
use floodwall_tests::Rig;
use floodwall_tests::craft::{FAMILIES, PEER, addr};
use floodwall_tests::transit::{Transit, router_config};

use super::{datagram, far, passes, router, router_with, stays};

fn parse(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// From one of these sources to a far host, or from the peer to one of these destinations, nothing
/// passes, and no error is sent.
fn none_passes(sources: &[&str], destinations: &[&str], reason: DropReason) {
    let mut router = router();
    let family = |addr: IpAddr| if addr.is_ipv4() { FAMILIES[0] } else { FAMILIES[1] };
    for from in sources.iter().map(|text| parse(text)) {
        stays(&mut router, &datagram(from, far(family(from), 7)), reason);
    }
    for to in destinations.iter().map(|text| parse(text)) {
        stays(&mut router, &datagram(addr(family(to), PEER), to), reason);
    }
}

/// Named rules, each with addresses that break it and the reason of the drop.
macro_rules! rules {
    ($($(#[doc = $text:literal])*
       $name:ident: $sources:expr, $destinations:expr, $reason:expr;)*) => {
        $($(#[doc = $text])* #[test] fn $name() {
            none_passes(&$sources, &$destinations, $reason);
        })*
    };
}

rules! {
    /// "SHOULD NOT forward any packet that has [...] a source address on network 0."
    rfc1812_5_3_7_no_source_on_network_0: ["0.0.0.0", "0.1.2.3"], [], IpSourceInvalid;
    rfc1812_5_3_7_no_destination_on_network_0: [], ["0.0.0.0", "0.1.2.3"], IpDestinationInvalid;
    rfc1812_5_3_7_no_source_on_network_127: ["127.0.0.1", "127.255.255.254"], [], IpSourceInvalid;
    rfc1812_5_3_7_no_destination_on_network_127:
        [], ["127.0.0.1", "127.9.9.9"], IpDestinationInvalid;
    rfc1812_5_3_7_no_group_as_source: ["224.0.0.1", "239.255.255.255"], [], IpSourceInvalid;
    rfc1812_5_3_7_no_class_e_source: ["240.0.0.1", "255.255.255.254"], [], IpSourceInvalid;
    rfc1812_5_3_7_no_class_e_destination: [], ["240.0.0.1", "255.255.255.254"], ForwardMartian;
    rfc1812_4_2_2_11_c_no_limited_broadcast_as_source: ["255.255.255.255"], [], IpSourceInvalid;
    /// Of the link that it came by, and of another: an answer would go to everybody there.
    rfc1812_4_2_2_11_d_no_directed_broadcast_as_source:
        ["10.0.0.255", "10.1.0.255"], [], IpSourceInvalid;
    /// Blocked unless configured otherwise, which is not offered.
    rfc2644_no_directed_broadcast_is_passed_on: [], ["10.1.0.255"], ForwardBroadcast;
    /// {prefix, 0}, the broadcast address of long ago: "SHOULD silently discard".
    rfc1812_4_2_3_1_nothing_to_a_networks_own_address:
        [], ["10.1.0.0", "10.0.0.0"], ForwardBroadcast;
    rfc1812_5_3_7_none_of_our_addresses_as_source: ["10.0.0.1", "10.1.0.1"], [], IpSourceInvalid;
    rfc1812_5_3_10_groups_are_not_routed: [], ["224.0.0.5", "239.1.2.3"], IpGroupNotJoined;
    rfc3927_2_7_no_link_local_source: ["169.254.1.1"], [], ForwardLinkScope;
    rfc3927_2_7_no_link_local_destination: [], ["169.254.1.1"], ForwardLinkScope;
    /// "Must never be forwarded by an IPv6 router."
    rfc4291_2_5_2_no_unspecified_source: ["::"], [], ForwardMartian;
    rfc4291_2_5_2_no_unspecified_destination: [], ["::"], IpDestinationInvalid;
    rfc4291_2_5_3_no_loopback_source: ["::1"], [], IpSourceInvalid;
    rfc4291_2_5_3_no_loopback_destination: [], ["::1"], IpDestinationInvalid;
    rfc4291_2_5_5_no_ipv4_in_ipv6_source: ["::ffff:10.0.0.2", "::10.0.0.2"], [], IpSourceInvalid;
    rfc4291_2_5_5_no_ipv4_in_ipv6_destination:
        [], ["::ffff:10.1.0.2", "::10.1.0.2"], IpDestinationInvalid;
    /// A source of this kind gets an error: `forwarding.rs`.
    rfc4291_2_5_6_no_link_local_destination: [], ["fe80::99"], ForwardLinkScope;
    rfc4291_2_7_no_group_as_source: ["ff02::1", "ff0e::7"], [], IpSourceInvalid;
    rfc4291_2_7_scopes_0_and_1_stay_within_a_node: [], ["ff00::9", "ff01::9"], IpDestinationInvalid;
    rfc4291_2_7_no_group_beyond_its_scope: [], ["ff02::9", "ff05::9", "ff0e::9"], IpGroupNotJoined;
    rfc4291_2_none_of_our_addresses_as_source: ["fd00::1", "fd01::1"], [], IpSourceInvalid;
}

/// "Other packets addressed to the tentative address should be silently discarded": a router does
/// not forward it either.
#[test]
fn rfc4862_5_4_nothing_is_passed_on_to_an_address_of_ours_that_is_tentative() {
    let config = StackConfig { duplicate_address_detection: true, ..router_config() };
    let mut router = Transit { rig: Rig::new(&config) };
    for own in ["fd00::1", "fd01::1"] {
        stays(&mut router, &datagram(addr(FAMILIES[1], PEER), parse(own)), IpNotForUs);
    }
}

/// What the registries of RFC 6890 call forwardable, and looks as if it were not.
const FORWARDABLE: [&str; 17] = [
    "100.64.0.1",
    "192.168.77.1",
    "192.0.0.1",
    "192.0.0.9",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.175.48.1",
    "198.18.0.1",
    "64:ff9b::1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:2::1",
    "2002::1",
    "fc00::1",
    "fec0::1",
];
/// What they do not, beside what never passes.
const NOT_FORWARDABLE: [&str; 9] = [
    "192.0.0.8",
    "192.0.0.170",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "2001:10::1",
    "2001:db8::1",
    "3fff::1",
    "3fff:fff:ffff::1",
];

/// A packet to this address and one from it.
fn both_ways(text: &str) -> [Vec<u8>; 2] {
    let it = parse(text);
    let family = FAMILIES[usize::from(it.is_ipv6())];
    [datagram(addr(family, PEER), it), datagram(it, far(family, 7))]
}

/// Site-local addresses are as any (RFC 3879 section 4).
#[test]
fn rfc6890_what_is_forwardable_passes() {
    for martians in [Martians::Impossible, Martians::Registry] {
        let mut router = router_with(martians);
        for packet in FORWARDABLE.into_iter().flat_map(both_ways) {
            passes(&mut router, &packet);
        }
    }
}

#[test]
fn rfc6890_what_is_not_forwardable_stays_where_that_is_asked_for() {
    let (mut open, mut strict) = (router(), router_with(Martians::Registry));
    for packet in NOT_FORWARDABLE.into_iter().flat_map(both_ways) {
        stays(&mut strict, &packet, ForwardMartian);
        passes(&mut open, &packet);
    }
}
