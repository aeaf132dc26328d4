//! From arrival to the application: the payload, and its metadata.

use floodwall_base::Counter;

use super::*;

#[test]
fn a_datagram_is_read_as_it_was_sent() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        assert_eq!(bench.recv(id).unwrap_err(), RecvError::WouldBlock);
        for payload in [&b""[..], b"x", b"hello", &[7; 1500], &[9; 40_000]] {
            let verdict = bench.arrive(end(peer, 9), end(ours, 53), payload);
            assert!(matches!(verdict, DatagramVerdict::Delivered { was_empty: true, .. }));
            let mut out = [0; 3];
            let peeked = bench.udp.peek(id, &mut out).unwrap();
            assert_eq!((peeked.len, peeked.truncated), (payload.len().min(3), payload.len() > 3));
            let (bytes, received) = bench.recv(id).unwrap();
            assert_eq!(bytes, payload);
            let expected = Received {
                len: payload.len(),
                from: end(peer, 9),
                to: end(ours, 53),
                iface: IfIndex(1),
                truncated: false,
                timestamp: None,
                dropped: 0,
            };
            assert_eq!(received, expected);
        }
        assert_eq!(bench.recv(id).unwrap_err(), RecvError::WouldBlock);
        let (v4, v6) = match family {
            Family::V4 => (5, 0),
            Family::V6 => (0, 5),
        };
        assert_eq!(bench.counters.of(Counter::UdpInDatagrams), v4, "peeking is not reading");
        assert_eq!(bench.counters.of(Counter::Udp6InDatagrams), v6);
    }
}

#[test]
fn a_short_buffer_loses_the_rest_and_says_so() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        for len in [0, 1, 5, 6] {
            let _ = bench.arrive(end(peer, 9), end(ours, 53), b"hello");
            let mut out = vec![0; len];
            let received = bench.udp.recv(id, &mut out, &mut bench.counters).unwrap();
            assert_eq!((received.len, received.truncated), (len.min(5), len < 5));
            assert_eq!(out[..received.len], b"hello"[..received.len]);
        }
        assert_eq!(bench.recv(id).unwrap_err(), RecvError::WouldBlock);
    }
}

#[test]
fn a_dual_stack_socket_names_ipv4_senders_as_ipv4() {
    let mut bench = Bench::new();
    let id = bench.listen(Family::V6, 53);
    for (_, ours, peer, _) in FAMILIES {
        let _ = bench.arrive(end(peer, 9), end(ours, 53), b"x");
        let received = bench.recv(id).unwrap().1;
        assert_eq!((received.from, received.to), (end(peer, 9), end(ours, 53)));
    }
    let only = bench.open_with(Family::V6, |s| s.v6_only = true);
    bench.bind(only, "::", 54).unwrap();
    let v4 = bench.arrive(end("10.0.0.2", 9), end("10.0.0.1", 54), b"x");
    assert!(matches!(v4, DatagramVerdict::PortUnreachable(_)));
}

#[test]
fn a_burst_of_reads_takes_what_waits_in_order() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        for payload in [&b"a"[..], b"", b"ccc"] {
            let _ = bench.arrive(end(peer, 9), end(ours, 53), payload);
        }
        let mut buffers = [[0; 2]; 5];
        let mut slots: Vec<ReceiveSlot<'_>> =
            buffers.iter_mut().map(|buffer| ReceiveSlot { buffer, received: None }).collect();
        let count = bench.udp.recv_burst(id, &mut slots, &mut bench.counters);
        assert_eq!(count, Ok(3));
        let lens: Vec<_> = slots.iter().map(|s| s.received.map(|r| (r.len, r.truncated))).collect();
        let some = |len, truncated| Some((len, truncated));
        assert_eq!(lens, [some(1, false), some(0, false), some(2, true), None, None]);
        let again = bench.udp.recv_burst(id, &mut slots, &mut bench.counters);
        assert_eq!(again, Err(RecvError::WouldBlock));
    }
}

#[test]
fn a_packet_handed_out_stays_charged_until_it_is_dropped() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        let _ = bench.arrive(end(peer, 9), end(ours, 53), b"hello");
        let charged = bench.udp.queue(id).unwrap();
        assert!(charged.1 > 5);
        let handed = bench.udp.recv_packet(id, &mut bench.counters).unwrap();
        assert_eq!(&handed.packet.first()[handed.payload.clone()], b"hello");
        assert_eq!(
            (handed.from, handed.to, handed.iface),
            (end(peer, 9), end(ours, 53), IfIndex(1))
        );
        assert_eq!(bench.udp.queue(id), Ok((0, charged.1, 0)));
        drop(handed);
        assert_eq!(bench.udp.queue(id), Ok((0, 0, 0)));
    }
}

#[test]
fn triage_tells_established_flows_from_unverified_packets_and_changes_nothing() {
    use floodwall_packet::Triage;
    for (family, ours, peer, other) in FAMILIES {
        let mut bench = Bench::new();
        bench.listen(family, 53);
        let connected = bench.open(family);
        bench.bind(connected, ours, 54).unwrap();
        bench.connect(connected, end(peer, 9), ours).unwrap();
        let group = if family == Family::V4 { "224.0.0.9" } else { "ff02::9" };
        for (from, to, expected) in [
            (end(peer, 9), end(ours, 54), Triage::Established),
            (end(other, 9), end(ours, 54), Triage::Rejectable),
            (end(other, 9), end(ours, 53), Triage::Unknown),
            (end(other, 9), end(ours, 55), Triage::Rejectable),
            (end(other, 9), end(group, 55), Triage::Unknown),
        ] {
            assert_eq!(bench.udp.classify(from, to, IfIndex(1)), expected, "{from} {to}");
        }
        let full = bench.open_with(family, |s| s.receive_bytes = 1);
        bench.bind(full, ours, 56).unwrap();
        let triage = |bench: &Bench| bench.udp.classify(end(peer, 9), end(ours, 56), IfIndex(1));
        assert_eq!(triage(&bench), Triage::Unknown);
        let _ = bench.arrive(end(peer, 9), end(ours, 56), b"x");
        assert_eq!(triage(&bench), Triage::Rejectable);
        assert_eq!(bench.udp.next_ready(), Some(full));
        assert_eq!((bench.counters, bench.udp.has_ready()), (Counters::default(), false));
    }
}

#[test]
fn sockets_with_news_are_announced_once_a_round() {
    let mut bench = Bench::new();
    let (a, b) = (bench.listen(Family::V4, 1), bench.listen(Family::V6, 2));
    let closed = bench.listen(Family::V4, 3);
    for _ in 0..3 {
        let _ = bench.arrive(end("fd00::2", 9), end("fd00::1", 2), b"x");
        let _ = bench.arrive(end("10.0.0.2", 9), end("10.0.0.1", 3), b"x");
        let _ = bench.arrive(end("10.0.0.2", 9), end("10.0.0.1", 1), b"x");
    }
    bench.udp.close(closed).unwrap();
    assert!(bench.udp.has_ready());
    let news: Vec<_> = std::iter::from_fn(|| bench.udp.next_ready()).collect();
    assert_eq!(news, [b, a]);
    let _ = bench.arrive(end("10.0.0.2", 9), end("10.0.0.1", 1), b"x");
    assert_eq!([bench.udp.next_ready(), bench.udp.next_ready()], [Some(a), None]);
}

#[test]
fn icmp_errors_reach_the_socket_that_sent_and_only_once() {
    for (family, ours, peer, other) in FAMILIES {
        let mut bench = Bench::new();
        let connected = bench.open(family);
        bench.bind(connected, ours, 53).unwrap();
        bench.connect(connected, end(peer, 9), ours).unwrap();
        let open = bench.listen(family, 54);
        let asking = bench.open_with(family, |s| s.recv_errors = true);
        bench.bind(asking, ours, 55).unwrap();
        let quote = |local, remote| QuotedDatagram { local, remote, iface: IfIndex(1) };
        let hard = IcmpError::PortUnreachable;
        let cases = [
            (end(ours, 53), end(peer, 9), hard, IcmpVerdict::Delivered(connected)),
            (
                end(ours, 53),
                end(peer, 9),
                IcmpError::NetUnreachable,
                IcmpVerdict::Ignored(connected),
            ),
            (end(ours, 53), end(peer, 8), hard, IcmpVerdict::NoFlow),
            (end(ours, 53), end(other, 9), hard, IcmpVerdict::NoFlow),
            (end(ours, 54), end(peer, 9), hard, IcmpVerdict::Ignored(open)),
            (end(ours, 55), end(peer, 9), IcmpError::TimeExceeded, IcmpVerdict::Delivered(asking)),
            (end(ours, 56), end(peer, 9), hard, IcmpVerdict::NoFlow),
        ];
        for (local, remote, error, expected) in cases {
            assert_eq!(bench.udp.icmp_error(&quote(local, remote), error), expected);
        }
        let _ = bench.arrive(end(peer, 9), end(ours, 53), b"x");
        assert_eq!(bench.recv(connected).unwrap_err(), RecvError::Icmp(hard), "errors come first");
        assert_eq!(bench.recv(connected).unwrap().0, b"x");
        let (pool, counters) = (&bench.pool, &mut bench.counters);
        let mut send = |id| bench.udp.output(pool, id, end(peer, 9), end(ours, 0), b"x", counters);
        assert_eq!(send(asking).unwrap_err(), SendError::Icmp(IcmpError::TimeExceeded));
        assert!(send(asking).is_ok());
        assert_eq!(bench.udp.take_error(open), Ok(None));
        bench.udp.icmp_error(&quote(end(ours, 53), end(peer, 9)), hard);
        assert_eq!(bench.udp.take_error(connected), Ok(Some(hard)));
        assert_eq!(bench.udp.take_error(connected), Ok(None));
    }
}
