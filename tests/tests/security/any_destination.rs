//! An interface that takes any destination: what is routed there is ours, and nothing more than
//! that. A listener or socket at every port receives the requested destination, and answers from
//! it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use floodwall_base::{DropReason, Family};
use floodwall_packet::{PacketBuf, Triage};
use floodwall_stack::{SendError, StackConfig};
use floodwall_tcp::{RecvError, TcpSettings};
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER, addr, from_peer};
use floodwall_tests::tcp_peer::{TcpPeer, put};
use floodwall_tests::{Rig, ethernet_config};
use floodwall_udp::{SocketId, SocketSettings};
use floodwall_wire::IpProtocol;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

fn config(any_destination: bool) -> StackConfig {
    let mut config = ethernet_config(HOST);
    config.interfaces[0].any_destination = any_destination;
    config
}

/// Another host's address.
fn elsewhere(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 51, 100, 7).into(),
        Family::V6 => "2001:db8:7::7".parse().expect("an address"),
    }
}

/// A host with a listener at every port, and a peer that connects elsewhere through it.
fn peer(family: Family, any_destination: bool) -> TcpPeer {
    let everything = TcpSettings { every_port: true, ..TcpSettings::default() };
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
        let ordinary = TcpSettings::default();
        let web = SocketAddr::from(([0_u16; 8], 80));
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
        // Our own address is served at every port all the same.
        peer.towards = None;
        peer.open(TcpOptionSet::NONE);
    }
}

#[test]
fn what_cannot_be_routed_is_not_taken() {
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
        assert_eq!(peer.rig.stats().outcomes.delivered, 0, "{to}");
    }
}

#[test]
fn triage_does_not_refuse_what_is_taken() {
    for family in FAMILIES {
        for (taken, class) in [(true, Triage::Unknown), (false, Triage::Rejectable)] {
            let peer = peer(family, taken);
            let bytes = peer.bytes(&put(TcpFlags::SYN, 0, 0));
            let (to, from) = (elsewhere(family), addr(family, PEER));
            let frame = from_peer(&craft::ip(from, to, IpProtocol::TCP, &bytes));
            assert_eq!(peer.rig.classify(&[frame]), [class], "{family:?} {taken}");
        }
    }
}

#[test]
fn a_datagram_to_a_port_where_nothing_listens_is_refused_from_where_it_went() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&config(true), PEER);
        let (to, from) = (elsewhere(family), addr(family, PEER));
        let packet = craft::udp((from, 9).into(), (to, 9).into(), b"anybody?");
        let answers = rig.frame(&from_peer(&packet));
        assert_eq!(ends(&answers, family).0.ip(), to);
    }
}

/// Both ends, by the headers of one frame.
fn ends(frames: &[PacketBuf], family: Family) -> (SocketAddr, SocketAddr) {
    let [frame] = frames else { panic!("one frame, not {frames:?}") };
    let bytes: Vec<u8> = frame.chunks().flatten().copied().collect();
    let ip = |at: usize| match family {
        Family::V4 => IpAddr::from(<[u8; 4]>::try_from(&bytes[26 + 4 * at..][..4]).expect("four")),
        Family::V6 => {
            IpAddr::from(<[u8; 16]>::try_from(&bytes[22 + 16 * at..][..16]).expect("sixteen"))
        }
    };
    let l4 = if family == Family::V4 { 34 } else { 54 };
    let port = |at: usize| u16::from_be_bytes([bytes[l4 + 2 * at], bytes[l4 + 2 * at + 1]]);
    (SocketAddr::new(ip(0), port(0)), SocketAddr::new(ip(1), port(1)))
}

/// A host with a UDP socket at every port of both families.
fn with_socket(adjust: impl FnOnce(&mut SocketSettings)) -> (Rig, SocketId) {
    let mut rig = Rig::with_neighbor(&config(true), PEER);
    let mut settings = SocketSettings::new(Family::V6);
    settings.every_port = true;
    adjust(&mut settings);
    let id = rig.sockets(|s| s.udp_bind(SocketAddr::from(([0_u16; 8], 0)), settings)).0;
    (rig, id.expect("no other socket has every port"))
}

fn datagram(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    from_peer(&craft::udp(from, to, b"hello"))
}

#[test]
fn a_datagram_to_anywhere_is_heard_and_answered_from_where_it_wanted_to_go() {
    for family in FAMILIES {
        let (mut rig, id) = with_socket(|_| {});
        let from = SocketAddr::new(addr(family, PEER), 40_000);
        for to in [(elsewhere(family), 4711), (elsewhere(family), 1), (addr(family, HOST), 4711)] {
            let to = SocketAddr::from(to);
            assert!(rig.frame(&datagram(from, to)).is_empty());
            let received = rig.sockets(|s| s.udp_recv(id, &mut [0; 9])).0.expect("it is received");
            assert_eq!((received.from, received.to), (from, to));
            let (sent, frames) = rig.sockets(|s| s.udp_reply(id, &received, b"answer"));
            assert_eq!((sent, ends(&frames, family)), (Ok(()), (to, from)));
            // Anything that is routed here may be the source: what a relay received elsewhere.
            let third = SocketAddr::new(to.ip(), 53);
            let (sent, frames) = rig.sockets(|s| s.udp_send_from(id, third, from, b"news"));
            assert_eq!((sent, ends(&frames, family)), (Ok(()), (third, from)));
        }
        let gone: IpAddr = match family {
            Family::V4 => Ipv4Addr::new(169, 254, 9, 9).into(),
            Family::V6 => "fe80::99".parse().expect("an address"),
        };
        let (sent, frames) = rig.sockets(|s| s.udp_send_from(id, (gone, 7).into(), from, b"x"));
        assert_eq!((sent, frames.len()), (Err(SendError::AddressGone(gone)), 0));
        let (sent, _) = rig.sockets(|s| s.udp_send(id, Some(from), b"x"));
        let needs_port = floodwall_udp::SendError::SourcePort;
        assert_eq!(sent, Err(SendError::Socket(needs_port)), "it has no port of its own");
    }
}

#[test]
fn an_ordinary_socket_answers_from_where_a_datagram_wanted_to_go_too() {
    for family in FAMILIES {
        let mut rig = Rig::with_neighbor(&config(true), PEER);
        let settings = SocketSettings::new(Family::V6);
        let any = SocketAddr::from(([0_u16; 8], 53));
        let id = rig.sockets(|s| s.udp_bind(any, settings)).0.expect("a free port");
        let (from, to) = ((addr(family, PEER), 9).into(), (elsewhere(family), 53).into());
        rig.frame(&datagram(from, to));
        let received = rig.sockets(|s| s.udp_recv(id, &mut [0; 9])).0.expect("it is received");
        let (sent, frames) = rig.sockets(|s| s.udp_reply(id, &received, b"answer"));
        assert_eq!((sent, ends(&frames, family)), (Ok(()), (to, from)));
    }
}

#[test]
fn a_socket_of_a_port_comes_before_the_one_of_every_port() {
    for family in FAMILIES {
        let (mut rig, every) = with_socket(|_| {});
        let bound = SocketAddr::new(addr(family, HOST), 53);
        let own = rig.sockets(|s| s.udp_bind(bound, SocketSettings::new(family))).0.expect("free");
        let from = (addr(family, PEER), 9).into();
        let elsewhere = SocketAddr::new(elsewhere(family), 53);
        for (to, socket) in [(bound, own), (elsewhere, every)] {
            rig.frame(&datagram(from, to));
            assert_eq!(rig.sockets(|s| s.udp_recv(socket, &mut [0; 9])).0.map(|r| r.to), Ok(to));
        }
    }
}

#[test]
fn under_flood_a_socket_at_every_port_is_bounded_and_answered_peers_come_first() {
    for family in FAMILIES {
        let (mut rig, id) = with_socket(|settings| settings.receive_bytes = 40_000);
        let established = SocketAddr::new(addr(family, PEER), 40_000);
        let to = SocketAddr::new(elsewhere(family), 4711);
        // A peer that talks with it.
        for _ in 0..4 {
            rig.frame(&datagram(established, to));
            let received = rig.sockets(|s| s.udp_recv(id, &mut [0; 9])).0.expect("it is received");
            rig.sockets(|s| s.udp_reply(id, &received, b"answer")).0.expect("it is sent");
            rig.run_for(Duration::from_millis(200));
        }
        let unknown = |n: u16| {
            let to = SocketAddr::new(elsewhere(family), n.wrapping_mul(7919));
            datagram((addr(family, 77), n).into(), to)
        };
        let classes = rig.classify(&[datagram(established, to), unknown(1)]);
        assert_eq!(classes, [Triage::Established, Triage::Unknown], "{family:?}");
        (0..2000).for_each(|n| _ = rig.frame(&unknown(n)));
        let (_, held, refused) = rig.sockets(|s| s.udp_queue(id)).0.expect("it is open");
        assert!(held <= 40_000 && refused > 1500, "{held} bytes, {refused} refused");
        // An answered peer still has a place, until the socket is full; then none is looked at.
        rig.frame(&datagram(established, to));
        let mut sources = Vec::new();
        while let Ok(received) = rig.sockets(|s| s.udp_recv(id, &mut [0; 9])).0 {
            sources.push(received.from);
        }
        assert_eq!(sources.iter().filter(|from| **from == established).count(), 1);
        let mut settings = rig.sockets(|s| s.udp_settings(id).cloned()).0.expect("open");
        settings.receive_bytes = 1;
        rig.sockets(|s| s.udp_set_settings(id, settings)).0.expect("open");
        rig.frame(&unknown(1));
        assert_eq!(rig.classify(&[unknown(2)]), [Triage::Rejectable]);
    }
}
