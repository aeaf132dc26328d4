//! Datagrams to groups and to broadcast addresses.

use floodwall_base::limits::{UDP_GROUP_SOCKETS_MAX, UDP_GROUPS_MAX};
use floodwall_base::{Counter, DropReason};

use super::*;

const GROUPS: [(Family, &str, &str, &str); 2] = [
    (Family::V4, "239.1.2.3", "10.0.0.2", "10.0.0.1"),
    (Family::V6, "ff05::7", "fd00::2", "fd00::1"),
];

fn shared(bench: &mut Bench, family: Family, addr: &str, port: u16) -> SocketId {
    let id = bench.open_with(family, |s| s.reuse_address = true);
    bench.bind(id, addr, port).unwrap();
    id
}

#[test]
fn every_listener_of_a_group_gets_its_own_charged_copy() {
    for (family, group, peer, ours) in GROUPS {
        let mut bench = Bench::new();
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
        let before = bench.pool.available();
        let hearing = [
            shared(&mut bench, family, any, 5),
            shared(&mut bench, family, group, 5),
            shared(&mut bench, family, any, 5),
        ];
        let deaf = [shared(&mut bench, family, ours, 5), shared(&mut bench, family, any, 6)];
        let verdict = bench.arrive(end(peer, 9), end(group, 5), b"to all");
        assert!(matches!(verdict, DatagramVerdict::DeliveredToGroup { sockets: 3 }), "{verdict:?}");
        let charges = hearing.map(|id| bench.udp.queue(id).unwrap().1);
        assert!(charges.iter().all(|charge| *charge == charges[0] && *charge > 200));
        for id in hearing {
            let (bytes, received) = bench.recv(id).unwrap();
            assert_eq!(
                (&bytes[..], received.to, received.from),
                (&b"to all"[..], end(group, 5), end(peer, 9))
            );
        }
        for id in deaf {
            assert_eq!(bench.recv(id).unwrap_err(), RecvError::WouldBlock);
        }
        assert_eq!(bench.pool.available(), before);
    }
}

#[test]
fn a_socket_may_insist_on_its_own_memberships() {
    for (family, group, peer, _) in GROUPS {
        let mut bench = Bench::new();
        let id = bench.open_with(family, |s| s.all_groups = false);
        bench.bind(id, if family == Family::V4 { "0.0.0.0" } else { "::" }, 5).unwrap();
        let reason = |verdict| match verdict {
            DatagramVerdict::Dropped(_, reason) => Some(reason),
            _ => None,
        };
        let verdict = bench.arrive(end(peer, 9), end(group, 5), b"x");
        assert_eq!(reason(verdict), Some(DropReason::UdpNoPort), "and no ICMP error for groups");
        bench.udp.join(id, ip(group), IfIndex(2)).unwrap();
        assert!(reason(bench.arrive(end(peer, 9), end(group, 5), b"x")).is_some(), "other link");
        bench.udp.join(id, ip(group), IfIndex(1)).unwrap();
        assert_eq!(bench.udp.join(id, ip(group), IfIndex(1)), Err(GroupError::Membership));
        let verdict = bench.arrive(end(peer, 9), end(group, 5), b"x");
        assert!(matches!(verdict, DatagramVerdict::DeliveredToGroup { sockets: 1 }));
        assert_eq!(bench.udp.groups(id).unwrap().count(), 2);
        bench.udp.leave(id, ip(group), IfIndex(1)).unwrap();
        assert_eq!(bench.udp.leave(id, ip(group), IfIndex(1)), Err(GroupError::Membership));
        assert!(reason(bench.arrive(end(peer, 9), end(group, 5), b"x")).is_some());
        assert_eq!(bench.udp.join(id, ip(peer), IfIndex(1)), Err(GroupError::NotGroup));
        for n in 0..UDP_GROUPS_MAX as u16 - 1 {
            bench.udp.join(id, ip(group), IfIndex(10 + n)).unwrap();
        }
        assert_eq!(bench.udp.join(id, ip(group), IfIndex(99)), Err(GroupError::TooMany));
    }
}

#[test]
fn one_full_listener_does_not_keep_the_others_from_hearing() {
    for (family, group, peer, _) in GROUPS {
        let mut bench = Bench::new();
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
        let full = bench.open_with(family, |s| (s.reuse_address, s.receive_bytes) = (true, 1));
        bench.bind(full, any, 5).unwrap();
        let roomy = shared(&mut bench, family, any, 5);
        for _ in 0..3 {
            let _ = bench.arrive(end(peer, 9), end(group, 5), b"x");
        }
        assert_eq!(bench.udp.queue(full).map(|q| (q.0, q.2)), Ok((1, 2)));
        assert_eq!(bench.udp.queue(roomy).map(|q| (q.0, q.2)), Ok((3, 0)));
        let own = match family {
            Family::V4 => Counter::UdpRcvbufErrors,
            Family::V6 => Counter::Udp6RcvbufErrors,
        };
        assert_eq!(bench.counters.of(own), 2);
    }
}

#[test]
fn a_group_reaches_a_bounded_number_of_sockets() {
    for (family, group, peer, _) in GROUPS {
        let mut bench = Bench::new();
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
        for _ in 0..UDP_GROUP_SOCKETS_MAX + 9 {
            shared(&mut bench, family, any, 5);
        }
        let verdict = bench.arrive(end(peer, 9), end(group, 5), b"x");
        let most = UDP_GROUP_SOCKETS_MAX as u32;
        assert!(
            matches!(verdict, DatagramVerdict::DeliveredToGroup { sockets } if sockets == most)
        );
    }
}

#[test]
fn an_ipv4_broadcast_reaches_wildcards_and_needs_leave_to_be_sent() {
    let mut bench = Bench::new();
    let id = bench.listen(Family::V6, 67);
    let (from, to) = (end("10.0.0.2", 68), end("255.255.255.255", 67));
    let bytes = ip_packet(from, to, b"discover");
    let packet = bench.pool.packet_from(&bytes).unwrap();
    let input = DatagramInput { group: true, ..input_of(from, to, bytes.len()) };
    let verdict = bench.input(&input, packet);
    assert!(matches!(verdict, DatagramVerdict::DeliveredToGroup { sockets: 1 }));
    assert_eq!(bench.recv(id).unwrap().0, b"discover");
    let (pool, counters) = (&bench.pool, &mut bench.counters);
    let sent = bench.udp.output(pool, id, to, end("10.0.0.1", 0), b"x", counters);
    assert_eq!(sent.unwrap_err(), SendError::BroadcastRefused);
    let mut settings = bench.udp.settings(id).unwrap().clone();
    settings.broadcast = true;
    bench.udp.set_settings(id, settings).unwrap();
    assert!(bench.udp.output(pool, id, to, end("10.0.0.1", 0), b"x", counters).is_ok());
}
