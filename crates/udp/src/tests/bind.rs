//! Binding, connecting, ephemeral ports: which sockets may have which address.

use std::collections::BTreeSet;

use super::*;

/// One socket's request: family, v6_only, reuse_address, address. The port is the same for all.
#[derive(Clone, Copy, Debug)]
struct Wish(Family, bool, bool, &'static str);

fn try_bind(bench: &mut Bench, Wish(family, v6_only, reuse, addr): Wish) -> Result<(), BindError> {
    let id = bench.open_with(family, |s| (s.v6_only, s.reuse_address) = (v6_only, reuse));
    bench.bind(id, addr, 53).map(|_| ())
}

#[test]
fn binds_conflict_as_linux_says_in_either_order() {
    use Family::{V4, V6};
    let plain = |family, addr| Wish(family, false, false, addr);
    let only = |addr| Wish(V6, true, false, addr);
    let cases = [
        // One family.
        (plain(V4, "0.0.0.0"), plain(V4, "0.0.0.0"), false),
        (plain(V4, "0.0.0.0"), plain(V4, "10.0.0.1"), false),
        (plain(V4, "10.0.0.1"), plain(V4, "10.0.0.1"), false),
        (plain(V4, "10.0.0.1"), plain(V4, "10.0.0.2"), true),
        (only("::"), only("::"), false),
        (only("::"), plain(V6, "fd00::1"), false),
        (plain(V6, "fd00::1"), plain(V6, "fd00::1"), false),
        (plain(V6, "fd00::1"), plain(V6, "fd00::2"), true),
        // Both.
        (plain(V6, "::"), plain(V4, "0.0.0.0"), false),
        (plain(V6, "::"), plain(V4, "10.0.0.1"), false),
        (plain(V6, "::"), plain(V6, "fd00::1"), false),
        (plain(V6, "::"), plain(V6, "::"), false),
        (plain(V6, "::"), only("::"), false),
        (only("::"), plain(V4, "0.0.0.0"), true),
        (only("::"), plain(V4, "10.0.0.1"), true),
        (plain(V6, "fd00::1"), plain(V4, "10.0.0.1"), true),
        (plain(V6, "fd00::1"), plain(V4, "0.0.0.0"), true),
        // IPv4 through an IPv6 socket.
        (plain(V6, "::ffff:10.0.0.1"), plain(V4, "10.0.0.1"), false),
        (plain(V6, "::ffff:10.0.0.1"), plain(V4, "0.0.0.0"), false),
        (plain(V6, "::ffff:0.0.0.0"), plain(V4, "10.0.0.1"), false),
        (plain(V6, "::ffff:10.0.0.1"), only("::"), true),
        (plain(V6, "::ffff:10.0.0.1"), plain(V4, "10.0.0.2"), true),
    ];
    let with_reuse = |Wish(f, o, _, a): Wish| Wish(f, o, true, a);
    for (first, second, fits) in cases {
        for (a, b) in [(first, second), (second, first)] {
            let mut bench = Bench::new();
            try_bind(&mut bench, a).unwrap();
            let expected = if fits { Ok(()) } else { Err(BindError::AddrInUse) };
            assert_eq!(try_bind(&mut bench, b), expected, "{a:?} then {b:?}");
            // Sharing needs the option on both.
            let mut bench = Bench::new();
            try_bind(&mut bench, a).unwrap();
            assert_eq!(try_bind(&mut bench, with_reuse(b)), expected, "{a:?} then {b:?} reusing");
            let mut bench = Bench::new();
            try_bind(&mut bench, with_reuse(a)).unwrap();
            assert_eq!(try_bind(&mut bench, b), expected, "reusing {a:?} then {b:?}");
            let mut bench = Bench::new();
            for wish in [a, b, a, b] {
                assert_eq!(try_bind(&mut bench, with_reuse(wish)), Ok(()), "all reusing {wish:?}");
            }
        }
    }
}

#[test]
fn a_socket_speaks_its_families_only() {
    let mut bench = Bench::new();
    let v4 = bench.open(Family::V4);
    assert_eq!(bench.bind(v4, "::", 1), Err(BindError::AddressFamily));
    assert_eq!(bench.bind(v4, "fd00::1", 1), Err(BindError::AddressFamily));
    let only = bench.open_with(Family::V6, |s| s.v6_only = true);
    assert_eq!(bench.bind(only, "10.0.0.1", 1), Err(BindError::AddressFamily));
    assert_eq!(bench.bind(only, "::ffff:10.0.0.1", 1), Err(BindError::AddressFamily));
    let dual = bench.open(Family::V6);
    assert_eq!(bench.bind(dual, "::ffff:10.0.0.1", 1), Ok(end("10.0.0.1", 1)));
    assert_eq!(bench.udp.local_addr(dual), Ok(Some(end("10.0.0.1", 1))));
    assert_eq!(bench.bind(dual, "::", 2), Err(BindError::AlreadyBound));
    let error = ConnectError::Bind(BindError::AddressFamily);
    assert_eq!(bench.connect(v4, end("fd00::2", 9), "fd00::1"), Err(error));
    assert_eq!(bench.connect(only, end("10.0.0.2", 9), "10.0.0.1"), Err(error));
    assert_eq!(bench.connect(dual, end("fd00::2", 9), "fd00::1"), Err(error));
    assert_eq!(
        bench.connect(dual, end("10.0.0.2", 9), "fd00::1"),
        Ok(()),
        "its own address counts"
    );
    assert_eq!(bench.udp.local_addr(v4), Ok(None), "a failed connect leaves it unbound");
}

#[test]
fn link_local_addresses_belong_to_an_interface() {
    for addr in ["fe80::1", "169.254.0.1"] {
        let mut bench = Bench::new();
        let family = if ip(addr).is_ipv4() { Family::V4 } else { Family::V6 };
        let peer = if ip(addr).is_ipv4() { "169.254.0.2" } else { "fe80::2" };
        let ids: Vec<_> = (0..3).map(|_| bench.open(family)).collect();
        assert_eq!(bench.bind(ids[0], addr, 5), Err(BindError::ZoneMissing));
        let mut bind = |id, iface| {
            bench.udp.bind(id, end(addr, 5), Some(IfIndex(iface)), &mut bench.random.secret)
        };
        assert!(bind(ids[0], 1).is_ok() && bind(ids[1], 2).is_ok());
        assert_eq!(bind(ids[2], 2), Err(BindError::AddrInUse));
        assert_eq!(bench.udp.zone(ids[1]), Ok(Some(IfIndex(2))));
        for (n, iface) in [(0, 1), (1, 2)] {
            let bytes = ip_packet(end(peer, 9), end(addr, 5), b"x");
            let packet = bench.pool.packet_from(&bytes).unwrap();
            let input = input_of(end(peer, 9), end(addr, 5), bytes.len());
            let verdict = bench.input(&DatagramInput { iface: IfIndex(iface), ..input }, packet);
            assert!(
                matches!(verdict, DatagramVerdict::Delivered { socket, .. } if socket == ids[n])
            );
            assert_eq!(bench.recv(ids[n]).unwrap().1.iface, IfIndex(iface));
        }
        let unbound = bench.open(family);
        let refused = bench.connect(unbound, end(peer, 9), addr);
        assert_eq!(refused, Err(ConnectError::Bind(BindError::ZoneMissing)));
    }
}

#[test]
fn ephemeral_ports_are_spread_and_every_one_is_found() {
    for (family, ours, ..) in FAMILIES {
        let range = 40_000..=40_099;
        let mut bench = Bench::with(UdpConfig {
            sockets_max: 256,
            ephemeral_ports: range.clone(),
            ..UdpConfig::default()
        });
        let mut order = Vec::new();
        for _ in 0..100 {
            let id = bench.open_with(family, |s| s.reuse_address = true);
            order.push(bench.bind(id, ours, 0).unwrap().port());
        }
        let all: BTreeSet<u16> = order.iter().copied().collect();
        assert_eq!(all, range.collect(), "reuse_address does not share a port unasked");
        assert!(order.windows(2).filter(|w| w[0].abs_diff(w[1]) == 1).count() < 20, "{order:?}");
        let last = bench.open(family);
        assert_eq!(bench.bind(last, ours, 0), Err(BindError::PortsExhausted));
        let peer = if family == Family::V4 { "10.0.0.2" } else { "fd00::2" };
        let refused = bench.connect(last, end(peer, 1), ours);
        assert_eq!(refused, Err(ConnectError::Bind(BindError::PortsExhausted)));
        // Another address still has them all.
        let other = if family == Family::V4 { "10.0.0.9" } else { "fd00::9" };
        assert!(bench.bind(last, other, 0).is_ok());
    }
}

#[test]
fn a_connected_socket_hears_its_peer_only_and_keeps_its_bind() {
    for (family, ours, peer, other) in FAMILIES {
        let mut bench = Bench::new();
        let server = bench.open_with(family, |s| s.reuse_address = true);
        bench.bind(server, if family == Family::V4 { "0.0.0.0" } else { "::" }, 53).unwrap();
        let client = bench.open_with(family, |s| s.reuse_address = true);
        bench.bind(client, if family == Family::V4 { "0.0.0.0" } else { "::" }, 53).unwrap();
        bench.connect(client, end(peer, 9), ours).unwrap();
        assert_eq!(bench.udp.peer_addr(client), Ok(Some(end(peer, 9))));
        assert_eq!(bench.udp.local_addr(client), Ok(Some(end(ours, 53))));
        for (from, to, expected) in [
            (end(peer, 9), end(ours, 53), client),
            (end(peer, 8), end(ours, 53), server),
            (end(other, 9), end(ours, 53), server),
            (end(peer, 9), end(other, 53), server),
        ] {
            let verdict = bench.arrive(from, to, b"x");
            assert!(
                matches!(verdict, DatagramVerdict::Delivered { socket, .. } if socket == expected)
            );
        }
        // The bind stays, so others are refused as before.
        let third = bench.open(family);
        assert_eq!(bench.bind(third, other, 53), Err(BindError::AddrInUse));
        bench.udp.disconnect(client).unwrap();
        assert_eq!(bench.udp.peer_addr(client), Ok(None));
        bench.udp.close(server).unwrap();
        let verdict = bench.arrive(end(other, 1), end(ours, 53), b"x");
        assert!(matches!(verdict, DatagramVerdict::Delivered { socket, .. } if socket == client));
    }
}

#[test]
fn connecting_an_unbound_socket_gives_it_a_port() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.open(family);
        for bad in [
            end(peer, 0),
            SocketAddr::new(if family == Family::V4 { ip("0.0.0.0") } else { ip("::") }, 9),
        ] {
            assert_eq!(bench.connect(id, bad, ours), Err(ConnectError::Unspecified));
        }
        bench.connect(id, end(peer, 9), ours).unwrap();
        let local = bench.udp.local_addr(id).unwrap().unwrap();
        assert!(EPHEMERAL_PORTS.contains(&local.port()) && local.ip() == ip(ours));
        // And another peer later.
        bench.connect(id, end(peer, 10), ours).unwrap();
        assert_eq!(bench.udp.local_addr(id), Ok(Some(local)));
        assert!(matches!(
            bench.arrive(end(peer, 9), local, b""),
            DatagramVerdict::PortUnreachable(_)
        ));
        assert!(matches!(
            bench.arrive(end(peer, 10), local, b""),
            DatagramVerdict::Delivered { .. }
        ));
    }
}

#[test]
fn what_a_bind_depends_on_is_fixed_once_bound() {
    let mut bench = Bench::new();
    let id = bench.open(Family::V6);
    let mut settings = bench.udp.settings(id).unwrap().clone();
    (settings.v6_only, settings.family) = (true, Family::V4);
    bench.udp.set_settings(id, settings.clone()).unwrap();
    assert_eq!(bench.udp.settings(id).map(|s| (s.v6_only, s.family)), Ok((true, Family::V6)));
    bench.bind(id, "::", 5).unwrap();
    (settings.v6_only, settings.reuse_address, settings.broadcast) = (false, true, true);
    bench.udp.set_settings(id, settings).unwrap();
    let now = bench.udp.settings(id).unwrap();
    assert_eq!((now.v6_only, now.reuse_address, now.broadcast), (true, false, true));
}
