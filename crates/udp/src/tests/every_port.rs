//! A socket at every port: what it takes and what it leaves, and where its answers come from.

use floodwall_packet::Triage;

use super::*;

/// A socket at every port of both families.
fn at_every_port(bench: &mut Bench) -> SocketId {
    let id = bench.open_with(Family::V6, |s| s.every_port = true);
    assert_eq!(bench.bind(id, "::", 0), Ok(end("::", 0)));
    id
}

fn taken_by(bench: &mut Bench, from: SocketAddr, to: SocketAddr) -> Option<SocketId> {
    match bench.arrive(from, to, b"x") {
        DatagramVerdict::Delivered { socket, .. } => Some(socket),
        _ => None,
    }
}

#[test]
fn it_takes_what_no_other_socket_takes_and_tells_where_that_wanted_to_go() {
    for (family, ours, peer, elsewhere) in FAMILIES {
        let mut bench = Bench::new();
        let every = at_every_port(&mut bench);
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
        let bound = bench.open(family);
        bench.bind(bound, ours, 53).unwrap();
        let wild = bench.open_with(family, |s| s.v6_only = true);
        bench.bind(wild, any, 80).unwrap();
        let connected = bench.open(family);
        bench.bind(connected, ours, 99).unwrap();
        bench.connect(connected, end(peer, 7), ours).unwrap();
        let datagram_key = [
            (end(ours, 53), bound),
            (end(elsewhere, 53), every),
            (end(elsewhere, 80), wild),
            (end(ours, 99), every),
            (end(ours, 1), every),
            (end(elsewhere, 65_535), every),
            (end(elsewhere, 0), every),
        ];
        for (to, socket) in datagram_key {
            let class = bench.udp.classify(end(peer, 9), to, IfIndex(1));
            assert_eq!(class, Triage::Unknown, "{to}");
            assert_eq!(taken_by(&mut bench, end(peer, 9), to), Some(socket), "{to}");
            let (bytes, received) = bench.recv(socket).unwrap();
            assert_eq!((&bytes[..], received.from, received.to), (&b"x"[..], end(peer, 9), to));
        }
        assert_eq!(taken_by(&mut bench, end(peer, 7), end(ours, 99)), Some(connected));
        bench.udp.close(every).unwrap();
        let unheard = bench.arrive(end(peer, 9), end(ours, 1), b"x");
        assert!(matches!(unheard, DatagramVerdict::PortUnreachable(_)), "{unheard:?}");
    }
}

#[test]
fn full_it_is_refused_before_any_work_and_groups_are_not_its() {
    for (_, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let every = at_every_port(&mut bench);
        let mut settings = bench.udp.settings(every).unwrap().clone();
        // An empty socket takes one of any size.
        (settings.receive_bytes, settings.every_port) = (1, false);
        bench.udp.set_settings(every, settings).unwrap();
        assert!(bench.udp.settings(every).unwrap().every_port, "it is fixed");
        assert_eq!(taken_by(&mut bench, end(peer, 9), end(ours, 1)), Some(every));
        for port in [1, 2, 60_000] {
            let class = bench.udp.classify(end(peer, 9), end(ours, port), IfIndex(1));
            assert_eq!(class, Triage::Rejectable, "{port}");
            let refused = bench.arrive(end(peer, 9), end(ours, port), b"x");
            let full = floodwall_base::DropReason::UdpSocketFull;
            assert!(matches!(refused, DatagramVerdict::Dropped(_, reason) if reason == full));
        }
        bench.recv(every).unwrap();
        let group = if ip(ours).is_ipv4() { "239.1.2.3" } else { "ff05::7" };
        let dropped = bench.arrive(end(peer, 9), end(group, 5), b"x");
        assert!(matches!(dropped, DatagramVerdict::Dropped(..)), "{dropped:?}");
    }
}

#[test]
fn it_is_bound_to_no_port_shared_only_by_agreement_and_never_connected() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.open_with(family, |s| s.every_port = true);
        assert_eq!(bench.bind(id, ours, 53), Err(BindError::EveryPort));
        bench.bind(id, ours, 0).unwrap();
        assert_eq!(bench.udp.local_addr(id), Ok(Some(end(ours, 0))));
        let refused = bench.connect(id, end(peer, 7), ours);
        assert_eq!(refused, Err(ConnectError::Bind(BindError::EveryPort)));
        let second = bench.open_with(family, |s| s.every_port = true);
        assert_eq!(bench.bind(second, ours, 0), Err(BindError::AddrInUse));
        let third = bench.open_with(Family::V6, |s| s.every_port = true);
        assert_eq!(bench.bind(third, "::", 0), Err(BindError::AddrInUse));
        // What was never bound takes nothing along when it is closed.
        bench.udp.close(third).unwrap();
        assert_eq!(taken_by(&mut bench, end(peer, 9), end(ours, 7)), Some(id));
        // A request for any port gets one, as ever.
        let other = bench.open(family);
        assert!(bench.bind(other, ours, 0).unwrap().port() >= 32_768);
        let mut bench = Bench::new();
        let two = [1, 2].map(|_| {
            let id = bench.open_with(family, |s| (s.every_port, s.spread_flows) = (true, true));
            bench.bind(id, ours, 0).unwrap();
            id
        });
        let count = |id| bench.udp.queue(id).unwrap().0;
        assert_eq!(two.map(count), [0, 0]);
        for port in 1..100 {
            let datagram_key = taken_by(&mut bench, end(peer, port), end(ours, 7));
            assert_eq!(
                taken_by(&mut bench, end(peer, port), end(ours, 7)),
                datagram_key,
                "one flow"
            );
        }
        let shares = two.map(|id| bench.udp.queue(id).unwrap().0);
        assert!(shares.iter().all(|share| *share > 40), "{shares:?}");
    }
}

#[test]
fn what_it_sends_leaves_from_the_port_that_it_is_told() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let every = at_every_port(&mut bench);
        let own = bench.listen(family, 53);
        let mut port_of = |id, port| {
            let (pool, counters) = (&bench.pool, &mut bench.counters);
            let sent = bench.udp.output(pool, id, end(peer, 9), end(ours, port), b"x", counters);
            sent.map(|packet| u16::from_be_bytes([packet.first()[0], packet.first()[1]]))
        };
        assert_eq!(port_of(every, 4711), Ok(4711));
        assert_eq!(port_of(every, 0), Err(SendError::SourcePort));
        assert_eq!(port_of(own, 53), Ok(53));
        assert_eq!(port_of(own, 0), Ok(53));
        assert_eq!(port_of(own, 54), Err(SendError::SourcePort), "that is not its own");
    }
}
