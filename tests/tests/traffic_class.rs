//! The traffic class (IPv4: TOS) of what leaves: what a socket requests, what a request had, what
//! errors have (RFC 1812 section 4.3.2.5).

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::{IpAddr, SocketAddr};

use floodwall_base::Family;
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer, with_class};
use floodwall_tests::{Rig, Sent, bytes_of, ethernet_config};
use floodwall_udp::{SocketId, SocketSettings};
use floodwall_wire::EtherType;

/// The classes of what a socket sends, one datagram after another.
fn classes(rig: &mut Rig, id: SocketId, to: SocketAddr, count: usize) -> Vec<u8> {
    let mut seen = Vec::new();
    for _ in 0..count {
        let (sent, departed) = rig.sockets(|s| s.udp_send(id, Some(to), b"hello"));
        sent.unwrap();
        let kind = if to.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let class = |packet| Sent::of_ip(&bytes_of(packet)[14..], kind).class;
        seen.extend(departed.iter().map(class));
    }
    seen
}

/// The first datagram has its headers made, the next ones have them from the path that was found.
#[test]
fn what_a_socket_sends_has_its_class_from_the_first_on_and_another_when_it_wants_that() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let settings = SocketSettings { traffic_class: 0xb8, ..SocketSettings::new(family) };
        let local = SocketAddr::new(addr(family, HOST), 9);
        let id = rig.sockets(|s| s.udp_bind(local, settings.clone())).0.unwrap();
        let to = SocketAddr::new(addr(family, PEER), 9);
        assert_eq!(classes(&mut rig, id, to, 4), [0xb8; 4]);
        let other = SocketSettings { traffic_class: 0x22, ..settings };
        rig.sockets(|s| s.udp_set_settings(id, other)).0.unwrap();
        assert_eq!(classes(&mut rig, id, to, 4), [0x22; 4]);
    }
}

#[test]
fn what_goes_to_a_group_has_the_sockets_class_too() {
    for (family, group) in FAMILIES.into_iter().zip(["224.0.0.9", "ff02::9"]) {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let settings = SocketSettings { traffic_class: 0xb8, ..SocketSettings::new(family) };
        let local = SocketAddr::new(addr(family, HOST), 9);
        let id = rig.sockets(|s| s.udp_bind(local, settings)).0.unwrap();
        let group: IpAddr = group.parse().unwrap();
        assert_eq!(classes(&mut rig, id, SocketAddr::new(group, 9), 2), [0xb8; 2]);
    }
}

/// Congestion that the request met is none of the reply's (RFC 3168 section 5).
#[test]
fn an_echo_reply_has_the_class_of_its_request() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let request = craft::echo(addr(family, PEER), addr(family, HOST), b"?");
        for (asked, answered) in [(0, 0), (0xb8, 0xb8), (0xe3, 0xe0), (0x10, 0x10)] {
            let departed = rig.lives("echo", &from_peer(&with_class(&request, asked)));
            assert_eq!(Sent::of(&departed[0]).class, answered, "{family:?}");
        }
    }
}

#[test]
fn an_error_about_ipv4_has_precedence_six() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&ethernet_config(HOST), PEER);
        let end = |host| SocketAddr::new(addr(family, host), 9);
        let packet = with_class(&craft::udp(end(PEER), end(HOST), b"closed"), 0xb8);
        let departed = rig.arrive(vec![rig.pool.packet_from(&from_peer(&packet)).unwrap()]);
        let class = if family == Family::V4 { 0xc0 } else { 0 };
        assert_eq!(Sent::of(&departed[0]).class, class);
    }
}
