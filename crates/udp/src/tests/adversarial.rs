//! What an attacker or a careless program can do to one socket's queue: each a test of its own.

use core::time::Duration;

use floodwall_base::{Counter, DropReason, Instant};
use floodwall_packet::{Class, Triage};

use super::*;

fn reason(verdict: &DatagramVerdict) -> Option<DropReason> {
    match verdict {
        DatagramVerdict::Dropped(_, reason) => Some(*reason),
        _ => None,
    }
}

fn at(family: usize) -> (Family, SocketAddr, SocketAddr) {
    let (family, ours, peer, _) = FAMILIES[family];
    (family, end(peer, 9), end(ours, 53))
}

fn with_limit(limit: u64, family: Family, to: SocketAddr) -> (Bench, SocketId) {
    let mut bench = Bench::new();
    let id = bench.open_with(family, |s| s.receive_bytes = limit);
    bench.bind(id, &to.ip().to_string(), to.port()).unwrap();
    (bench, id)
}

/// CVE-2025-22059: where sums are signed, a limit near 2^31 never fires.
#[test]
fn limits_round_two_to_the_31_neither_wrap_nor_leak() {
    let half = i32::MAX as u64 / 2;
    let whole = i32::MAX as u64;
    for n in 0..2 {
        let (family, from, to) = at(n);
        for limit in [half - 1, half, half + 1, whole - 1, whole, whole + 1, whole + 2, u64::MAX] {
            let (mut bench, id) = with_limit(limit, family, to);
            for _ in 0..50 {
                assert_eq!(reason(&bench.arrive(from, to, b"x")), None, "{limit}");
            }
            let (count, charged, refused) = bench.udp.queue(id).unwrap();
            assert!(count == 50 && charged > 0 && refused == 0);
            while bench.recv(id).is_ok() {}
            assert_eq!(bench.udp.queue(id), Ok((0, 0, 0)));
        }
    }
}

#[test]
fn datagrams_without_payload_are_charged_like_others() {
    for n in 0..2 {
        let (family, from, to) = at(n);
        let (mut bench, id) = with_limit(10_000, family, to);
        let taken = (0..1000).filter(|_| reason(&bench.arrive(from, to, b"")).is_none()).count();
        assert!((3..27).contains(&taken), "{taken} of a datagram's true size, not of nought");
        let (_, charged, _) = bench.udp.queue(id).unwrap();
        assert!(charged <= 10_000);
        assert_eq!(bench.recv(id).unwrap().0, b"", "and read as what they are");
    }
}

#[test]
fn one_datagram_larger_than_the_buffer_comes_into_an_empty_socket_only() {
    for n in 0..2 {
        let (family, from, to) = at(n);
        let (mut bench, id) = with_limit(3000, family, to);
        assert_eq!(reason(&bench.arrive(from, to, &[1; 9000])), None);
        let refused = reason(&bench.arrive(from, to, b"x"));
        assert_eq!(refused, Some(DropReason::UdpSocketFull));
        assert_eq!(bench.recv(id).unwrap().0.len(), 9000);
        assert_eq!(reason(&bench.arrive(from, to, b"x")), None);
        let refused = reason(&bench.arrive(from, to, &[1; 9000]));
        assert_eq!(refused, Some(DropReason::UdpSocketFull), "not into one with something in it");
    }
}

#[test]
fn looking_at_the_first_while_more_arrive_takes_nothing_and_keeps_the_order() {
    for n in 0..2 {
        let (family, from, to) = at(n);
        let (mut bench, id) = with_limit(100_000, family, to);
        let mut out = [0; 4];
        for tag in 0..20_u8 {
            drop(bench.arrive(from, to, &[tag]));
            let charged = bench.udp.queue(id).unwrap().1;
            for _ in 0..3 {
                assert_eq!(bench.udp.peek(id, &mut out).map(|r| r.len), Ok(1));
                assert_eq!(out[0], tag / 2, "the oldest");
            }
            assert_eq!(bench.udp.queue(id).unwrap().1, charged);
            if tag % 2 == 1 {
                assert_eq!(bench.recv(id).unwrap().0, [tag / 2]);
            }
        }
    }
}

#[test]
fn a_reader_that_has_stopped_costs_what_the_buffer_holds_and_no_more() {
    for n in 0..2 {
        let (family, from, to) = at(n);
        let (mut bench, id) = with_limit(20_000, family, to);
        let free = bench.pool.available();
        for millisecond in 0..500 {
            bench.udp.begin(Instant::ORIGIN + Duration::from_millis(millisecond));
            for _ in 0..4 {
                drop(bench.arrive(from, to, b"x"));
            }
            assert!(bench.udp.queue(id).unwrap().1 <= 20_000);
        }
        let (waiting, _, refused) = bench.udp.queue(id).unwrap();
        assert_eq!(waiting as u64 + refused, 2000);
        let all = bench.udp.refused(id).unwrap();
        assert_eq!(all.full + all.over_share, refused);
        // One that takes one datagram now and then always finds one.
        for second in 1..5 {
            bench.udp.begin(Instant::ORIGIN + Duration::from_secs(second));
            assert!(bench.recv(id).is_ok());
            drop(bench.arrive(from, to, b"x"));
        }
        while bench.recv(id).is_ok() {}
        assert_eq!((bench.udp.queue(id).unwrap().1, bench.pool.available()), (0, free));
    }
}

/// Where memory ends while several sockets are served with copies, those without a copy lose it,
/// are counted, and nothing leaks.
#[test]
fn memory_that_ends_within_a_batch_is_counted_and_nothing_is_lost() {
    let mut bench = Bench::new();
    let group = "239.1.1.1";
    let ids: Vec<SocketId> = (0..4)
        .map(|_| {
            let id = bench.open_with(Family::V4, |s| s.reuse_address = true);
            bench.bind(id, "0.0.0.0", 53).unwrap();
            id
        })
        .collect();
    let bytes = ip_packet(end("10.0.0.2", 9), end(group, 53), b"x");
    let packet = bench.pool.packet_from(&bytes).unwrap();
    let mut hoard = Vec::new();
    for class in [Class::Small, Class::Frame, Class::Super] {
        hoard.extend(core::iter::from_fn(|| bench.pool.alloc(class)));
    }
    let input =
        DatagramInput { group: true, ..input_of(end("10.0.0.2", 9), end(group, 53), bytes.len()) };
    let verdict = bench.input(&input, packet);
    assert!(matches!(verdict, DatagramVerdict::DeliveredToGroup { sockets: 1 }), "{verdict:?}");
    assert_eq!(bench.counters.of(Counter::UdpRcvbufErrors), 3);
    drop(hoard);
    let waiting: usize = ids.iter().map(|id| bench.udp.queue(*id).unwrap().0).sum();
    assert_eq!(waiting, 1);
    for id in ids {
        while bench.recv(id).is_ok() {}
        assert_eq!(bench.udp.queue(id).unwrap().1, 0);
    }
}

#[test]
fn a_checksum_that_is_found_wrong_after_the_charge_releases_it_exactly() {
    for n in 0..2 {
        let (family, from, to) = at(n);
        let (mut bench, id) = with_limit(100_000, family, to);
        drop(bench.arrive(from, to, b"good"));
        let before = bench.udp.queue(id);
        let mut broken = ip_packet(from, to, b"bad");
        *broken.last_mut().unwrap() ^= 1;
        let packet = bench.pool.packet_from(&broken).unwrap();
        let verdict = bench.input(&input_of(from, to, broken.len()), packet);
        assert_eq!(reason(&verdict), Some(DropReason::UdpChecksum));
        assert_eq!(bench.udp.queue(id), before, "while the dropped packet is still referenced");
        let (csum, errors) = match family {
            Family::V4 => (Counter::UdpInCsumErrors, Counter::UdpInErrors),
            Family::V6 => (Counter::Udp6InCsumErrors, Counter::Udp6InErrors),
        };
        assert_eq!((bench.counters.of(csum), bench.counters.of(errors)), (1, 1));
    }
}

#[test]
fn a_limit_that_grows_and_shrinks_in_mid_flood_holds_at_every_datagram() {
    for n in 0..2 {
        let (family, from, to) = at(n);
        let (mut bench, id) = with_limit(1000, family, to);
        for limit in [50_000_u64, 2000, 100_000, 0, 30_000] {
            let settings = bench.udp.settings(id).unwrap().clone();
            let settings = SocketSettings { receive_bytes: limit, ..settings };
            bench.udp.set_settings(id, settings).unwrap();
            let mut before = bench.udp.queue(id).unwrap().1;
            for _ in 0..100 {
                drop(bench.arrive(from, to, b"x"));
                let now = bench.udp.queue(id).unwrap().1;
                assert!(now <= limit || now <= before || before == 0, "{limit}: {before} {now}");
                before = now;
            }
        }
        while bench.recv(id).is_ok() {}
        assert_eq!(bench.udp.queue(id).unwrap().1, 0);
    }
}

#[test]
fn one_that_asks_is_told_when_a_datagram_came_and_how_many_were_refused() {
    for n in 0..2 {
        let (family, from, to) = at(n);
        let mut bench = Bench::new();
        let id = bench.open_with(family, |s| {
            (s.timestamps, s.drop_count, s.receive_bytes) = (true, true, 1);
        });
        bench.bind(id, &to.ip().to_string(), 53).unwrap();
        let now = Instant::from_nanos(77_000_000);
        bench.udp.begin(now);
        for refused in [2, 5] {
            drop(bench.arrive(from, to, b"x"));
            while bench.udp.queue(id).unwrap().2 < refused {
                drop(bench.arrive(from, to, b"x"));
            }
            let received = bench.recv(id).unwrap().1;
            assert_eq!((received.timestamp, u64::from(received.dropped)), (Some(now), refused));
        }
    }
}

/// Sockets that spread flows: each flow has one, all of them some, and triage gives the same
/// result.
#[test]
fn flows_are_spread_over_sockets_that_are_bound_alike_and_each_keeps_its_own() {
    for (family, ours, peer, _) in FAMILIES {
        let to = end(ours, 53);
        for wildcard in [true, false] {
            let mut bench = Bench::new();
            let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
            let addr = if wildcard { any.to_owned() } else { to.ip().to_string() };
            let ids: Vec<SocketId> = (0..4)
                .map(|_| {
                    let id = bench.open_with(family, |s| {
                        (s.spread_flows, s.receive_bytes) = (true, 1_000_000);
                    });
                    bench.bind(id, &addr, 53).unwrap();
                    id
                })
                .collect();
            let unknown = bench.open(family);
            assert!(bench.bind(unknown, &addr, 53).is_err(), "the option is needed on both");
            let mut of_flow = Vec::new();
            for round in 0..2 {
                for port in 1000..1200 {
                    let from = SocketAddr::new(ip(peer), port);
                    let DatagramVerdict::Delivered { socket, .. } = bench.arrive(from, to, b"x")
                    else {
                        panic!("not delivered");
                    };
                    if round == 0 {
                        of_flow.push(socket);
                    } else {
                        assert_eq!(of_flow[usize::from(port) - 1000], socket, "a flow stays");
                    }
                }
                ids.iter().for_each(|id| while bench.recv(*id).is_ok() {});
            }
            for id in &ids {
                let flows = of_flow.iter().filter(|other| *other == id).count();
                assert!((20..100).contains(&flows), "{flows} of 200");
            }
            // One that is full is full for its own flows alone, and triage knows.
            let full = of_flow[0];
            let mut settings = bench.udp.settings(full).unwrap().clone();
            settings.receive_bytes = 1;
            bench.udp.set_settings(full, settings).unwrap();
            drop(bench.arrive(SocketAddr::new(ip(peer), 1000), to, b"x"));
            for port in 1000..1200 {
                let from = SocketAddr::new(ip(peer), port);
                let refusable = bench.udp.classify(from, to, IfIndex(1)) == Triage::Rejectable;
                assert_eq!(refusable, of_flow[usize::from(port) - 1000] == full, "{port}");
            }
            bench.udp.close(full).unwrap();
            assert!(matches!(
                bench.arrive(SocketAddr::new(ip(peer), 1000), to, b"x"),
                DatagramVerdict::Delivered { .. }
            ));
        }
    }
}

/// The refusals of a round are reported once for each socket, even if its place is reused later.
#[test]
fn refusals_are_told_once_a_round_and_begin_anew_with_the_next_socket() {
    let (family, from, to) = at(0);
    let (mut bench, id) = with_limit(1, family, to);
    for _ in 0..5 {
        drop(bench.arrive(from, to, b"x"));
    }
    let (told, refused) = bench.udp.next_refusing().unwrap();
    assert_eq!((told, refused.total(), refused.full), (id, 4, 4));
    assert!(bench.udp.next_refusing().is_none());
    bench.udp.close(id).unwrap();
    let id = bench.listen(family, 53);
    assert_eq!(bench.udp.refused(id).map(|refused| refused.total()), Ok(0));
}
