//! Classes of packets, through the whole stack: established, unverified, or to be dropped anyway.
//!
//! That nothing is called refusable which the stack would take is asserted for every packet of
//! every capture, whole and cut, in `captures.rs` (by `Replay`).

use std::net::SocketAddr;
use std::time::Duration;

use floodwall_base::{Family, MacAddr};
use floodwall_packet::Triage::{self, Established, Rejectable, Unknown};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer};
use floodwall_tests::{Rig, ethernet_config};
use floodwall_udp::{SocketId, SocketSettings};
use floodwall_wire::{EtherType, IpProtocol};

/// A third host of the link.
const OTHER: u8 = 3;

fn rig() -> Rig {
    Rig::with_neighbor(&ethernet_config(HOST), PEER)
}

fn end(family: Family, host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(addr(family, host), port)
}

fn bind(rig: &mut Rig, family: Family, port: u16) -> SocketId {
    let settings = SocketSettings::new(family);
    rig.sockets(|s| s.udp_bind(end(family, HOST, port), settings)).0.expect("a port")
}

fn class(rig: &Rig, frame: Vec<u8>) -> Triage {
    rig.classify(&[frame])[0]
}

fn udp(family: Family, from: (u8, u16), to: u16) -> Vec<u8> {
    from_peer(&craft::udp(end(family, from.0, from.1), end(family, HOST, to), b"hello"))
}

#[test]
fn peers_of_connected_sockets_are_established_flows_and_others_to_them_refusable() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = bind(&mut rig, family, 53);
        rig.sockets(|s| s.udp_connect(id, end(family, PEER, 9))).0.expect("a way");
        bind(&mut rig, family, 54);
        let frames = [
            udp(family, (PEER, 9), 53),
            udp(family, (PEER, 10), 53),
            udp(family, (OTHER, 9), 53),
            udp(family, (PEER, 9), 54),
            udp(family, (PEER, 9), 55),
        ];
        let expected = [Established, Rejectable, Rejectable, Unknown, Rejectable];
        assert_eq!(rig.classify(&frames), expected, "{family:?}");
        assert_eq!(rig.stats().outcomes.received, 0, "nothing is changed");
    }
}

#[test]
fn a_full_socket_makes_its_datagrams_refusable() {
    for family in FAMILIES {
        let mut rig = rig();
        let settings = SocketSettings { receive_bytes: 1, ..SocketSettings::new(family) };
        rig.sockets(|s| s.udp_bind(end(family, HOST, 53), settings)).0.expect("a port");
        assert_eq!(class(&rig, udp(family, (PEER, 9), 53)), Unknown);
        rig.frame(&udp(family, (PEER, 9), 53));
        assert_eq!(class(&rig, udp(family, (PEER, 9), 53)), Rejectable);
    }
}

#[test]
fn a_peer_answered_again_is_established_and_one_answered_once_is_not() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = bind(&mut rig, family, 53);
        let answer = |rig: &mut Rig, to| {
            rig.now += Duration::from_millis(200);
            rig.sockets(|s| s.udp_send(id, Some(to), b"answer")).0.expect("sent");
            rig.arrive(Vec::new());
            rig.frame(&udp(family, (OTHER, 1), 54));
        };
        answer(&mut rig, end(family, PEER, 9));
        assert_eq!(class(&rig, udp(family, (PEER, 9), 53)), Unknown);
        answer(&mut rig, end(family, PEER, 9));
        assert_eq!(class(&rig, udp(family, (PEER, 9), 53)), Established);
        assert_eq!(class(&rig, udp(family, (PEER, 10), 53)), Unknown, "another port");
        rig.now += Duration::from_secs(31);
        rig.frame(&udp(family, (OTHER, 1), 54));
        assert_eq!(class(&rig, udp(family, (PEER, 9), 53)), Unknown, "after a silence");
    }
}

#[test]
fn answered_peers_get_a_quarter_of_the_burst_where_there_are_connected_sockets() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = bind(&mut rig, family, 53);
        for _ in 0..2 {
            rig.now += Duration::from_millis(200);
            rig.sockets(|s| s.udp_send(id, Some(end(family, PEER, 9)), b"answer")).0.expect("sent");
        }
        rig.frame(&udp(family, (OTHER, 1), 54));
        let flood = vec![udp(family, (PEER, 9), 53); 64];
        let established =
            |rig: &Rig| rig.classify(&flood).iter().filter(|c| **c == Established).count();
        assert_eq!(established(&rig), 64);
        let connected = bind(&mut rig, family, 54);
        rig.sockets(|s| s.udp_connect(connected, end(family, PEER, 9))).0.expect("a way");
        assert_eq!(established(&rig), 16);
        let mut mixed = flood.clone();
        mixed[63] = udp(family, (PEER, 9), 54);
        assert_eq!(
            rig.classify(&mixed)[63],
            Established,
            "the connected socket's is one for all that"
        );
        rig.sockets(|s| s.udp_close(connected));
        assert_eq!(established(&rig), 64);
    }
}

#[test]
fn answers_of_neighbours_that_we_asked_are_established_flows_and_unasked_ones_are_not() {
    for family in FAMILIES {
        let mut rig = Rig::new(&ethernet_config(HOST));
        let reply = || craft::neighbor_answer(family, PEER);
        assert_eq!(class(&rig, reply()), Unknown);
        let id = bind(&mut rig, family, 53);
        rig.sockets(|s| s.udp_send(id, Some(end(family, PEER, 9)), b"?")).0.expect("it waits");
        assert_eq!(class(&rig, reply()), Established, "{family:?}");
        assert_eq!(class(&rig, craft::neighbor_answer(family, OTHER)), Unknown);
        rig.frame(&reply());
        assert_eq!(class(&rig, reply()), Unknown, "it has answered");
    }
}

#[test]
fn errors_about_what_established_flows_were_sent_are_established_flows() {
    for family in FAMILIES {
        let mut rig = rig();
        let id = bind(&mut rig, family, 53);
        rig.sockets(|s| s.udp_connect(id, end(family, PEER, 9))).0.expect("a way");
        let quoted = |port| craft::udp(end(family, HOST, port), end(family, PEER, 9), b"hello");
        let error = |port| from_peer(&craft::port_unreachable(family, &quoted(port)));
        assert_eq!(class(&rig, error(53)), Established, "{family:?}");
        assert_eq!(class(&rig, error(54)), Unknown, "about nothing that we sent");
        let echo = craft::echo(addr(family, PEER), addr(family, HOST), b"x");
        assert_eq!(class(&rig, from_peer(&echo)), Unknown);
    }
}

#[test]
fn what_would_be_dropped_anyway_is_refusable() {
    for family in FAMILIES {
        let mut rig = rig();
        bind(&mut rig, family, 53);
        let (peer, host) = (addr(family, PEER), addr(family, HOST));
        let good = udp(family, (PEER, 9), 53);
        assert_eq!(class(&rig, good.clone()), Unknown);
        let broken = |at: usize, value: u8| {
            let mut frame = good.clone();
            frame[at] = value;
            frame
        };
        let length = if family == Family::V4 { 14 + 2 } else { 14 + 4 };
        let cases = [
            ("for another station", broken(5, 77)),
            ("from a group", broken(6, 1)),
            ("an unknown protocol", broken(12, 0x88)),
            ("another version", broken(14, 0x35)),
            ("a length beyond the frame", broken(length, 0x7f)),
            ("cut within its header", good[..30].to_vec()),
            ("nothing at all", Vec::new()),
            ("no port", udp(family, (PEER, 9), 7)),
            (
                "TCP, which is not enabled",
                from_peer(&craft::ip(peer, host, IpProtocol::TCP, &[0; 20])),
            ),
            (
                "another host's",
                from_peer(&craft::udp(end(family, PEER, 9), end(family, 99, 53), b"x")),
            ),
        ];
        for (what, frame) in cases {
            assert_eq!(class(&rig, frame.clone()), Rejectable, "{family:?}: {what}");
            let before = rig.stats();
            if !frame.is_empty() {
                rig.frame(&frame);
                let lost = floodwall_tests::drops_between(&before, &rig.stats()).0;
                assert_eq!(lost.len(), 1, "{what}: and it is dropped, {lost:?}");
            }
        }
    }
}

#[test]
fn what_the_first_look_cannot_tell_is_an_unverified_packets() {
    let mut rig = rig();
    for family in FAMILIES {
        bind(&mut rig, family, 53);
        let packet = craft::udp(end(family, PEER, 9), end(family, HOST, 7), &[7; 64]);
        let first = craft::fragment(&packet, 5, 0, 32, true);
        let last = craft::fragment(&packet, 5, 32, 72, false);
        assert_eq!(rig.classify(&[from_peer(&first), from_peer(&last)]), [Unknown; 2]);
    }
    let options = craft::options_header(&[1, 4, 0, 0, 0, 0]);
    let chain = [(IpProtocol::DESTINATION_OPTIONS, options.as_slice())];
    let chained = craft::ipv6_chain(&chain, IpProtocol::UDP, &[0; 8]);
    assert_eq!(class(&rig, from_peer(&chained)), Unknown);
}

#[test]
fn priority_tags_are_seen_through_and_other_vlans_are_refusable() {
    let mut rig = rig();
    for family in FAMILIES {
        let id = bind(&mut rig, family, 53);
        rig.sockets(|s| s.udp_connect(id, end(family, PEER, 9))).0.expect("a way");
        let tagged = |id: u8| {
            let mut frame = udp(family, (PEER, 9), 53);
            frame.splice(12..12, [0x81, 0, 0xe0, id]);
            frame
        };
        assert_eq!(rig.classify(&[tagged(0), tagged(7)]), [Established, Rejectable], "{family:?}");
    }
    let unknown = craft::frame(craft::mac(HOST), craft::mac(PEER), EtherType(0x9999), &[0; 46]);
    let group = craft::frame(MacAddr::BROADCAST, craft::mac(PEER), EtherType::ARP, &[0; 46]);
    assert_eq!(rig.classify(&[unknown, group]), [Rejectable, Rejectable]);
}

#[test]
fn a_burst_is_classified_as_its_packets_are_one_by_one() {
    let mut rig = rig();
    let mut frames = Vec::new();
    for family in FAMILIES {
        let id = bind(&mut rig, family, 53);
        rig.sockets(|s| s.udp_connect(id, end(family, PEER, 9))).0.expect("a way");
        bind(&mut rig, family, 54);
        for port in 50..60 {
            frames.push(udp(family, (PEER, 9), port));
            frames.push(udp(family, (OTHER, 9), port));
        }
        frames.push(craft::neighbor_answer(family, OTHER));
    }
    let one_by_one: Vec<_> = frames.iter().map(|frame| class(&rig, frame.clone())).collect();
    assert_eq!(rig.classify(&frames), one_by_one);
    for class in [Established, Unknown, Rejectable] {
        assert!(one_by_one.contains(&class));
    }
}
