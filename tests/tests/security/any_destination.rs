//! An interface that takes any destination: what is routed there is ours, and nothing more than
//! that. A listener at every port hears who wanted to go where, and is answered from there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{DropReason, Family};
use floodwall_packet::Triage;
use floodwall_stack::StackConfig;
use floodwall_tcp::{RecvError, Settings};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer};
use floodwall_tests::tcp_peer::{TcpPeer, put};
use floodwall_tests::{Rig, ethernet_config};
use floodwall_wire::IpProtocol;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

fn config(any_destination: bool) -> StackConfig {
    let mut config = ethernet_config(HOST);
    config.interfaces[0].any_destination = any_destination;
    config
}

/// Somebody else's address.
fn elsewhere(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 51, 100, 7).into(),
        Family::V6 => "2001:db8:7::7".parse().expect("an address"),
    }
}

/// A host with a listener at every port, and who wants to go elsewhere by it.
fn peer(family: Family, any_destination: bool) -> TcpPeer {
    let everything = Settings { every_port: true, ..Settings::default() };
    let ends = ((HOST, PEER), (0, 40_000));
    let mut peer = TcpPeer::on(&config(any_destination), family, &everything, ends);
    (peer.ports.0, peer.towards) = (4711, Some(elsewhere(family)));
    peer
}

#[test]
fn a_connection_to_anywhere_is_accepted_and_tells_where_it_wanted_to_go() {
    for family in FAMILIES {
        let mut peer = peer(family, true);
        let id = peer.open(TcpOptionSet { mss: Some(1400), ..TcpOptionSet::NONE });
        let (ours, theirs) = peer.sockets(|s| s.tcp_ends(id)).0.expect("it is open");
        assert_eq!((ours.ip(), ours.port()), (elsewhere(family), 4711));
        assert_eq!((theirs.ip(), theirs.port()), (addr(family, PEER), 40_000));
        peer.give(&put(TcpFlags::ACK, 1, 1).data(b"hello"));
        assert_eq!(peer.received(id), b"hello");
        // The answer's checksum, which the peer verifies, is of the address that it called.
        let (sent, answer) = peer.sockets(|s| s.tcp_send(id, b"welcome"));
        assert_eq!((sent, answer[0].len), (Ok(7), 7));
        assert_eq!(peer.sockets(|s| s.tcp_recv(id, &mut [0; 9])).0, Err(RecvError::WouldBlock));
    }
}

#[test]
fn a_listener_of_a_port_comes_before_the_one_of_every_port() {
    for family in FAMILIES {
        let mut peer = peer(family, true);
        let ordinary = Settings::default();
        let web = std::net::SocketAddr::from(([0_u16; 8], 80));
        let web = peer.sockets(|s| s.tcp_listen(web, &ordinary, 8, 1)).0.expect("a free port");
        let every = core::mem::replace(&mut peer.listener, web);
        peer.ports.0 = 80;
        peer.open(TcpOptionSet::NONE);
        (peer.listener, peer.ports.0) = (every, 81);
        peer.open(TcpOptionSet::NONE);
    }
}

#[test]
fn without_it_what_is_for_others_is_refused_as_ever() {
    for family in FAMILIES {
        let mut peer = peer(family, false);
        assert!(peer.give(&put(TcpFlags::SYN, 0, 0)).is_empty());
        assert_eq!(peer.rig.stats().drops_in.of(DropReason::IpNotForUs), 1);
        // Our own address is heard at every port all the same.
        peer.towards = None;
        peer.open(TcpOptionSet::NONE);
    }
}

#[test]
fn what_cannot_be_routed_to_anybody_is_nobodys() {
    let never: [IpAddr; 9] = [
        Ipv4Addr::LOCALHOST.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::new(224, 0, 0, 9).into(),
        Ipv4Addr::new(169, 254, 3, 4).into(),
        Ipv4Addr::BROADCAST.into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv6Addr::UNSPECIFIED.into(),
        "ff0e::9".parse().expect("a group"),
        "fe80::3:4".parse().expect("an address"),
    ];
    for to in never {
        let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
        let mut peer = peer(family, true);
        peer.towards = Some(to);
        assert!(peer.give(&put(TcpFlags::SYN, 0, 0)).is_empty(), "{to}");
        assert_eq!(peer.rig.stats().fates.delivered, 0, "{to}");
    }
}

#[test]
fn triage_does_not_refuse_what_is_taken() {
    for family in FAMILIES {
        for (taken, class) in [(true, Triage::Stranger), (false, Triage::Refusable)] {
            let peer = peer(family, taken);
            let bytes = peer.bytes(&put(TcpFlags::SYN, 0, 0));
            let (to, from) = (elsewhere(family), addr(family, PEER));
            let frame = from_peer(&craft::ip(from, to, IpProtocol::TCP, &bytes));
            assert_eq!(peer.rig.classify(&[frame]), [class], "{family:?} {taken}");
        }
    }
}

#[test]
fn a_datagram_to_a_port_where_nobody_listens_is_refused_from_where_it_went() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&config(true), PEER);
        let (to, from) = (elsewhere(family), addr(family, PEER));
        let packet = craft::udp((from, 9).into(), (to, 9).into(), b"anybody?");
        let answers = rig.frame(&from_peer(&packet));
        let [answer] = &answers[..] else { panic!("one answer, not {answers:?}") };
        let bytes: Vec<u8> = answer.chunks().flatten().copied().collect();
        let source = match family {
            Family::V4 => IpAddr::from(<[u8; 4]>::try_from(&bytes[26..30]).expect("four")),
            Family::V6 => IpAddr::from(<[u8; 16]>::try_from(&bytes[22..38]).expect("sixteen")),
        };
        assert_eq!(source, to);
    }
}
