//! The subnet-router anycast address: the prefix with nothing behind it, which every router of a
//! link answers to (RFC 4291 section 2.6.1).

use std::net::Ipv6Addr;

use floodwall_base::DropReason::*;
use floodwall_base::{MacAddr, solicited_node};
use floodwall_packet::PacketBuf;
use floodwall_tests::Sent;
use floodwall_tests::craft::{self, HOST, PEER, echo, frame, mac, v6};
use floodwall_wire::EtherType;
use floodwall_wire::ndp::NeighborSolicitationFields;

use super::*;

/// The left link's, the right link's, and the left link's of link-local addresses.
const ANYCASTS: [&str; 3] = ["fd00::", "fd01::", "fe80::"];

fn parse(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn sent(packet: &PacketBuf) -> Sent {
    Sent::of_ip(&bytes_of(packet)[14..], EtherType::IPV6)
}

/// Solicits the link address of a station, or probes for it.
fn question(from: Ipv6Addr, target_addr: Ipv6Addr) -> Vec<u8> {
    let group = solicited_node(target_addr);
    let mut message = [0; 24];
    let fields = NeighborSolicitationFields { target_addr };
    fields.emit_into(&[], from, group, &mut message).unwrap();
    let packet = craft::ip(from.into(), group.into(), craft::icmp_of(Family::V6), &message);
    let packet = with_hop_limit(&packet, 255);
    frame(MacAddr::of_ipv6_multicast(group), mac(PEER), EtherType::IPV6, &packet)
}

/// Of any link that we are a router of; from an address that is ours alone.
#[test]
fn rfc4291_2_6_1_a_router_answers_for_all_of_its_links() {
    for to in ANYCASTS.map(parse) {
        let mut router = router();
        let departed = router.arrive(LEFT, &[from_left(&echo(v6(PEER).into(), to.into(), b"?"))]);
        let reply = sent(&departed[0]);
        assert_eq!((departed.len(), reply.icmp().kind), (1, 129), "{to}");
        assert_eq!((reply.from, reply.to), (v6(HOST).into(), v6(PEER).into()), "RFC 4443 4.2");
    }
}

#[test]
fn rfc4443_2_2_b_an_error_about_what_was_sent_there_comes_from_an_address_of_ours() {
    let mut router = router();
    let packet = datagram(v6(PEER).into(), parse("fd00::").into());
    let departed = router.arrive(LEFT, &[from_left(&packet)]);
    let error = sent(&departed[0]);
    assert_eq!((error.icmp().kind, error.icmp().code, error.from), (1, 4, v6(HOST).into()));
}

/// Another node's answer is accepted as well; a probe for it is no conflict.
#[test]
fn rfc4861_7_2_7_its_link_address_is_told_and_overrides_nothing() {
    let mut router = router();
    let target = parse("fd00::");
    let departed = router.arrive(LEFT, &[question(v6(PEER), target)]);
    assert_eq!(departed.len(), 1);
    let (answer, icmp) = (sent(&departed[0]), sent(&departed[0]).icmp());
    assert_eq!((icmp.kind, icmp.word), (136, 0xc000_0000), "a router, asked, overriding nothing");
    assert_eq!(icmp.body[..16], target.octets());
    assert!(matches!(answer.from, IpAddr::V6(from) if from.is_unicast_link_local()));
    // One of its own overrides.
    let departed = router.arrive(LEFT, &[question(v6(PEER), v6(HOST))]);
    assert_eq!(sent(&departed[0]).icmp().word, 0xe000_0000);
    let probe = question(Ipv6Addr::UNSPECIFIED, target);
    assert!(router.arrive(LEFT, &[probe]).is_empty());
}

#[test]
fn only_routers_have_it_and_only_of_links_with_room_for_others() {
    let packet = echo(v6(PEER).into(), parse("fd00::").into(), b"?");
    let mut host = Transit::new(&StackConfig { ipv6_forwarding: false, ..router_config() });
    assert!(host.expect_drop("a host", &packet, IpNotForUs).is_empty());
    let mut config = router_config();
    config.interfaces[1].addresses = vec!["fd01::1/127".parse().unwrap()];
    let mut router = Transit::new(&config);
    let to_the_other_end = echo(v6(PEER).into(), parse("fd01::").into(), b"?");
    let departed = router.arrive(LEFT, &[from_left(&to_the_other_end)]);
    // RFC 6164: it is the other router's own; it is solicited there.
    let asks = departed.iter().all(|packet| packet.iface() == RIGHT);
    assert!(asks && sent(&departed[0]).icmp().kind == 135, "{departed:?}");
}
