//! Two hosts on one wire: they find each other and talk, in both families.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::SocketAddr;
use std::time::Duration;

use floodwall_base::{Counter, Family};
use floodwall_ip::neighbor::{EARLY_SOLICIT_MAX, MULTICAST_SOLICIT_MAX};
use floodwall_packet::PacketBuf;
use floodwall_stack::StackConfig;
use floodwall_tests::{Rig, ethernet_config};
use floodwall_udp::{RecvError, SocketSettings};

/// Carries frames to and fro until both are silent.
fn exchange(a: &mut Rig, b: &mut Rig, mut to_b: Vec<PacketBuf>) {
    let mut to_a = Vec::new();
    for _ in 0..20 {
        to_a.extend(b.arrive(std::mem::take(&mut to_b)));
        to_b.extend(a.arrive(std::mem::take(&mut to_a)));
    }
}

fn talk(host: &str) {
    let (mut a, mut b) = (Rig::new(&ethernet_config(1)), Rig::new(&ethernet_config(2)));
    let open = |rig: &mut Rig, port| {
        let any = SocketAddr::new("::".parse().unwrap(), port);
        rig.sockets(|s| s.udp_bind(any, SocketSettings::new(Family::V6))).0.unwrap()
    };
    let (from, at) = (open(&mut a, 4000), open(&mut b, 7000));
    let to = SocketAddr::new(host.parse().unwrap(), 7000);
    let (sent, frames) = a.sockets(|s| s.udp_send(from, Some(to), b"hello"));
    sent.unwrap();
    assert_eq!(a.stats().pending, 1, "the datagram waits for the link address");
    exchange(&mut a, &mut b, frames);
    let mut buffer = [0; 100];
    let (received, _) = b.sockets(|s| s.udp_recv(at, &mut buffer));
    let received = received.unwrap();
    assert_eq!((&buffer[..received.len], received.from.port()), (&b"hello"[..], 4000));
    let (answered, frames) = b.sockets(|s| s.udp_reply(at, &received, b"yes"));
    answered.unwrap();
    exchange(&mut b, &mut a, frames);
    let (received, _) = a.sockets(|s| s.udp_recv(from, &mut buffer));
    assert_eq!(received.unwrap().from, to);
    for rig in [&mut a, &mut b] {
        assert!(rig.conservation().holds(), "{:?}", rig.stats());
        assert_eq!(rig.stats().drops_out.total(), 0);
    }
}

#[test]
fn two_hosts_find_each_other_and_talk_over_ipv4() {
    talk("10.0.0.2");
}

#[test]
fn two_hosts_find_each_other_and_talk_over_ipv6() {
    talk("fd00::2");
}

#[test]
fn a_closed_port_is_told_to_the_connected_sender() {
    for host in ["10.0.0.2", "fd00::2"] {
        let mut a = Rig::with_neighbor(&ethernet_config(1), 2);
        let mut b = Rig::with_neighbor(&ethernet_config(2), 1);
        let to = SocketAddr::new(host.parse().unwrap(), 9);
        let (id, frames) = a.sockets(|s| {
            let any = SocketAddr::new("::".parse().unwrap(), 0);
            let id = s.udp_bind(any, SocketSettings::new(Family::V6)).unwrap();
            s.udp_connect(id, to).unwrap();
            s.udp_send(id, None, b"anybody?").unwrap();
            id
        });
        exchange(&mut a, &mut b, frames);
        let (received, _) = a.sockets(|s| s.udp_recv(id, &mut [0; 10]));
        assert!(matches!(received, Err(RecvError::Icmp(_))), "{host}: {received:?}");
        assert!(a.conservation().holds() && b.conservation().holds());
    }
}

#[test]
fn a_neighbour_that_never_answers_is_told_and_nothing_is_kept() {
    for (host, counter) in [
        ("10.0.0.9", Counter::FloodwallArpOutRequests),
        ("fd00::9", Counter::Icmp6OutNeighborSolicits),
    ] {
        let mut a = Rig::new(&ethernet_config(1));
        a.run_for(Duration::from_secs(5));
        let before = a.pool.available();
        let to = SocketAddr::new(host.parse().unwrap(), 9);
        let (id, _) = a.sockets(|s| {
            let any = SocketAddr::new("::".parse().unwrap(), 0);
            let id = s.udp_bind(any, SocketSettings::new(Family::V6)).unwrap();
            (0..5).for_each(|_| s.udp_send(id, Some(to), b"anybody?").unwrap());
            id
        });
        let asked = a.stats().counters.of(counter);
        assert_eq!(a.stats().pending, 3, "{host}: at most three wait");
        a.run_for(Duration::from_secs(10));
        let stats = a.stats();
        let paced = u64::from(MULTICAST_SOLICIT_MAX) - 1;
        let all = paced + u64::from(EARLY_SOLICIT_MAX);
        assert_eq!(stats.counters.of(counter) - asked, all, "{host}: and the first one");
        assert_eq!((stats.pending, stats.drops_out.total()), (0, 5));
        assert!(a.conservation().holds());
        a.sockets(|s| s.udp_close(id));
        assert_eq!(a.pool.available(), before, "{host}");
    }
}

#[test]
fn what_is_sent_to_oneself_arrives() {
    for host in ["127.0.0.1", "::1", "10.0.0.1", "fd00::1"] {
        let mut a = Rig::new(&StackConfig { ..ethernet_config(1) });
        let to = SocketAddr::new(host.parse().unwrap(), 7000);
        let (id, frames) = a.sockets(|s| {
            let any = SocketAddr::new("::".parse().unwrap(), 7000);
            let id = s.udp_bind(any, SocketSettings::new(Family::V6)).unwrap();
            s.udp_send(id, Some(to), b"me").unwrap();
            id
        });
        assert!(frames.is_empty(), "{host} leaves no interface");
        a.run_for(Duration::from_millis(1));
        let (received, _) = a.sockets(|s| s.udp_recv(id, &mut [0; 10]));
        assert_eq!(received.unwrap().from, to, "{host}");
        assert!(a.conservation().holds());
    }
}

#[test]
fn clients_that_cannot_be_answered_do_not_silence_a_service() {
    let mut server = Rig::with_neighbor(&ethernet_config(1), 2);
    let any = SocketAddr::new("::".parse().unwrap(), 7000);
    let id = server.sockets(|s| s.udp_bind(any, SocketSettings::new(Family::V6))).0.unwrap();
    for (ghosts, honest) in [("10.0.0", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let send = |server: &mut Rig, host: &str| {
            let to = SocketAddr::new(host.parse().unwrap(), 5000);
            server.sockets(|s| s.udp_send(id, Some(to), &[7; 100]))
        };
        // Far more than wait, and more bytes than the socket may have on its way.
        for n in 3..250 {
            let ghost = if honest.contains(':') {
                format!("{ghosts}:{n}")
            } else {
                format!("{ghosts}.{n}")
            };
            for _ in 0..4 {
                send(&mut server, &ghost).0.unwrap();
            }
        }
        let (sent, frames) = send(&mut server, honest);
        sent.unwrap();
        assert_eq!(frames.len(), 1, "{honest} is answered at once");
        assert!(server.conservation().holds());
    }
}
