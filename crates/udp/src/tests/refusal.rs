//! What is refused, in which order, at what price, and with which count.

use floodwall_base::{Counter, DropReason};
use floodwall_packet::ChecksumState;
use proptest::prelude::*;

use super::*;

/// What a verdict comes down to.
fn outcome(verdict: &DatagramVerdict) -> &'static str {
    match verdict {
        DatagramVerdict::Delivered { .. } => "delivered",
        DatagramVerdict::DeliveredToGroup { .. } => "delivered to group",
        DatagramVerdict::Challenged { .. } => "challenged",
        DatagramVerdict::PortUnreachable(_) => "port unreachable",
        DatagramVerdict::Dropped(_, reason) => reason.name(),
    }
}

/// How the bytes fare as one chunk; in the other chunkings they must fare alike.
fn verdict_in_every_cut(
    family: Family,
    input: DatagramInput,
    bytes: &[u8],
    cuts: &[usize],
) -> &'static str {
    let mut bench = Bench::new();
    let id = bench.listen(family, 53);
    let packet = bench.pool.packet_from(bytes).unwrap();
    let whole = outcome(&bench.input(&input, packet));
    let read = bench.recv(id);
    for cut in cuts {
        let (a, b) = bytes.split_at(*cut);
        let packet = bench.pool.packet_from_chunks([a, b]).unwrap();
        assert_eq!(outcome(&bench.input(&input, packet)), whole, "cut at {cut}");
        assert_eq!(bench.recv(id), read, "cut at {cut}");
    }
    whole
}

#[test]
fn every_truncation_in_every_cut_is_judged_alike() {
    for (family, ours, peer, _) in FAMILIES {
        let (from, to) = (end(peer, 9), end(ours, 53));
        let bytes = ip_packet(from, to, b"seventeen bytes!!");
        for len in l4_of(to.ip())..=bytes.len() {
            let input = input_of(from, to, len);
            let cuts: Vec<usize> = (0..=len).collect();
            let verdict = verdict_in_every_cut(family, input, &bytes[..len], &cuts);
            assert_eq!(verdict, if len < bytes.len() { "UdpMalformed" } else { "delivered" });
            // An IP length beyond the bytes of the packet changes nothing.
            let boast = DatagramInput { len: bytes.len() - input.l4, ..input };
            assert_eq!(verdict_in_every_cut(family, boast, &bytes[..len], &[]), verdict);
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed_in_every_cut() {
    for (family, ours, peer, _) in FAMILIES {
        let (from, to) = (end(peer, 9), end(ours, 53));
        let good = ip_packet(from, to, b"odd");
        let l4 = l4_of(to.ip());
        for bit in l4 * 8..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let cuts: Vec<usize> = (l4..=good.len()).collect();
            let verdict =
                verdict_in_every_cut(family, input_of(from, to, bytes.len()), &bytes, &cuts);
            assert!(matches!(verdict, "UdpMalformed" | "UdpChecksum"), "bit {bit}: {verdict}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_do_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        cut in any::<prop::sample::Index>(),
        l4 in 0..130_usize,
        len in 0..200_usize,
        v6 in any::<bool>(),
        verified in any::<bool>(),
        group in any::<bool>(),
    ) {
        let (family, ours, peer, _) = FAMILIES[usize::from(v6)];
        let mut bench = Bench::new();
        let mut bytes = bytes;
        if let Some(port) = bytes.get_mut(l4 + 2..l4 + 4) {
            port.copy_from_slice(&[0, 53]);
        }
        let id = bench.listen(family, 53);
        let before = bench.pool.available();
        let (a, b) = bytes.split_at(cut.index(bytes.len() + 1));
        let mut packet = bench.pool.packet_from_chunks([a, b]).unwrap();
        if verified {
            packet.set_checksum_state(ChecksumState::Verified);
        }
        let input = DatagramInput { l4, len, group, ..input_of(end(peer, 9), end(ours, 53), 999) };
        drop(bench.input(&input, packet));
        let _ = bench.udp.close(id);
        prop_assert_eq!(bench.pool.available(), before);
    }
}

#[test]
fn bytes_behind_the_length_are_no_error_and_not_payload() {
    for (family, ours, peer, _) in FAMILIES {
        let (from, to) = (end(peer, 9), end(ours, 53));
        let mut bytes = ip_packet(from, to, b"payload");
        bytes.extend(b"surplus");
        let cuts: Vec<usize> = (0..=bytes.len()).collect();
        let input = input_of(from, to, bytes.len());
        assert_eq!(verdict_in_every_cut(family, input, &bytes, &cuts), "delivered");
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        let packet = bench.pool.packet_from(&bytes).unwrap();
        let _ = bench.input(&input, packet);
        assert_eq!(bench.recv(id).unwrap().0, b"payload");
    }
}

#[test]
fn a_missing_checksum_is_fine_for_ipv4_and_needs_consent_for_ipv6() {
    for (family, ours, peer, _) in FAMILIES {
        for consent in [false, true] {
            let mut bench = Bench::new();
            let id = bench.open_with(family, |s| s.zero_checksum_rx = consent);
            bench.bind(id, ours, 53).unwrap();
            let (from, to) = (end(peer, 9), end(ours, 53));
            let mut bytes = ip_packet(from, to, b"x");
            let l4 = l4_of(to.ip());
            bytes[l4 + 6..l4 + 8].fill(0);
            let packet = bench.pool.packet_from(&bytes).unwrap();
            let verdict = outcome(&bench.input(&input_of(from, to, bytes.len()), packet));
            let fine = family == Family::V4 || consent;
            assert_eq!(verdict, if fine { "delivered" } else { "UdpChecksum" });
            assert_eq!(bench.counters.of(Counter::Udp6InCsumErrors), u64::from(!fine));
        }
    }
}

#[test]
fn a_checksum_that_a_device_has_verified_is_not_computed() {
    for (family, ours, peer, _) in FAMILIES {
        for state in [ChecksumState::Verified, ChecksumState::Partial] {
            let mut bench = Bench::new();
            bench.listen(family, 53);
            let (from, to) = (end(peer, 9), end(ours, 53));
            let mut bytes = ip_packet(from, to, b"x");
            bytes[l4_of(to.ip()) + 6] ^= 0x55;
            let mut packet = bench.pool.packet_from(&bytes).unwrap();
            packet.set_checksum_state(state);
            let verdict = bench.input(&input_of(from, to, bytes.len()), packet);
            assert_eq!(outcome(&verdict), "delivered");
        }
    }
}

#[test]
fn counts_are_those_of_linux_and_of_the_right_family() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.open_with(family, |s| s.receive_bytes = 1);
        bench.bind(id, ours, 53).unwrap();
        let (from, to) = (end(peer, 9), end(ours, 53));
        let mut broken = ip_packet(from, to, b"x");
        *broken.last_mut().unwrap() ^= 1;
        let input = input_of(from, to, broken.len());
        let put = |bench: &mut Bench, bytes: &[u8], input: &DatagramInput| {
            let packet = bench.pool.packet_from(bytes).unwrap();
            outcome(&bench.input(input, packet))
        };
        assert_eq!(put(&mut bench, &broken, &input), "UdpChecksum");
        let short = DatagramInput { len: 7, ..input };
        assert_eq!(put(&mut bench, &broken, &short), "UdpMalformed");
        let closed = end(ours, 54);
        assert_eq!(outcome(&bench.arrive(from, closed, b"x")), "port unreachable");
        let mut broken_closed = ip_packet(from, closed, b"x");
        *broken_closed.last_mut().unwrap() ^= 1;
        // No answer to what is not intact (RFC 1122 section 4.1.3.4).
        assert_eq!(put(&mut bench, &broken_closed, &input), "UdpChecksum");
        assert_eq!(outcome(&bench.arrive(from, to, b"x")), "delivered");
        assert_eq!(outcome(&bench.arrive(from, to, b"x")), "UdpSocketFull");
        let own = |v4, v6| if family == Family::V4 { (v4, v6) } else { (v6, v4) };
        for (n, (ours, theirs)) in [
            (4, own(Counter::UdpInErrors, Counter::Udp6InErrors)),
            (2, own(Counter::UdpInCsumErrors, Counter::Udp6InCsumErrors)),
            (1, own(Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors)),
            (1, own(Counter::UdpNoPorts, Counter::Udp6NoPorts)),
            (0, own(Counter::UdpInDatagrams, Counter::Udp6InDatagrams)),
        ] {
            assert_eq!((bench.counters.of(ours), bench.counters.of(theirs)), (n, 0), "{ours:?}");
        }
    }
}

#[test]
fn a_full_socket_refuses_before_it_reads_the_payload() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.open_with(family, |s| s.receive_bytes = 0);
        bench.bind(id, ours, 53).unwrap();
        let (from, to) = (end(peer, 9), end(ours, 53));
        assert_eq!(outcome(&bench.arrive(from, to, &[1; 3000])), "delivered");
        // Broken, but not checked: had the checksum come first, it would be the reason.
        let mut broken = ip_packet(from, to, b"x");
        *broken.last_mut().unwrap() ^= 1;
        let packet = bench.pool.packet_from(&broken).unwrap();
        let verdict = bench.input(&input_of(from, to, broken.len()), packet);
        assert_eq!(outcome(&verdict), "UdpSocketFull");
        assert_eq!(bench.counters.of(Counter::UdpInCsumErrors), 0);
        assert_eq!(bench.udp.queue(id).map(|q| (q.0, q.2)), Ok((1, 1)));
        // Another socket does not notice.
        let other = bench.listen(family, 54);
        let verdict = bench.arrive(from, end(ours, 54), b"x");
        assert!(matches!(verdict, DatagramVerdict::Delivered { socket, .. } if socket == other));
    }
}

#[test]
fn the_limit_counts_true_bytes_at_every_size() {
    for (family, ours, peer, _) in FAMILIES {
        let (from, to) = (end(peer, 9), end(ours, 53));
        let size = u64::from(
            Bench::new().pool.packet_from(&ip_packet(from, to, b"x")).unwrap().true_size(),
        );
        let huge = [i32::MAX as u64 / 2, i32::MAX as u64, u64::from(u32::MAX), u64::MAX];
        for (limit, fit) in
            [(0, 1), (1, 1), (size - 1, 1), (size, 1), (size * 2 - 1, 1), (size * 7, 7)]
                .into_iter()
                .chain(huge.map(|limit| (limit, 100)))
        {
            let mut bench = Bench::new();
            // Heavy sources are not considered here: this is the cap.
            let id = bench.open_with(family, |s| {
                (s.receive_bytes, s.fair_drop) = (limit, false);
            });
            bench.bind(id, ours, 53).unwrap();
            let taken =
                (0..100).filter(|_| outcome(&bench.arrive(from, to, b"x")) == "delivered").count();
            assert_eq!(taken, fit, "limit {limit}");
            assert_eq!(bench.udp.queue(id), Ok((fit, size * fit as u64, 100 - fit as u64)));
            while bench.recv(id).is_ok() {}
            assert_eq!(bench.udp.queue(id).map(|q| q.1), Ok(0));
        }
    }
}

#[test]
fn closing_in_the_middle_of_a_flood_releases_everything() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let before = bench.pool.available();
        for round in 0..20 {
            let id = bench.listen(family, 53);
            for n in 0..50 {
                let _ = bench.arrive(end(peer, 9), end(ours, 53), &vec![0; n * 30]);
            }
            for _ in 0..round {
                bench.recv(id).unwrap();
            }
            assert_eq!(bench.udp.close(id), Ok(50 - round));
            assert_eq!(bench.pool.available(), before);
            let verdict = bench.arrive(end(peer, 9), end(ours, 53), b"x");
            assert!(matches!(verdict, DatagramVerdict::PortUnreachable(_)));
        }
    }
}

#[test]
fn a_lower_limit_keeps_what_waits_and_refuses_more() {
    let mut bench = Bench::new();
    let id = bench.listen(Family::V6, 53);
    let (from, to) = (end("fd00::2", 9), end("fd00::1", 53));
    for _ in 0..10 {
        let _ = bench.arrive(from, to, b"x");
    }
    let mut settings = bench.udp.settings(id).unwrap().clone();
    settings.receive_bytes = 1;
    bench.udp.set_settings(id, settings).unwrap();
    for left in (0..10).rev() {
        let verdict = bench.arrive(from, to, b"x");
        assert!(matches!(verdict, DatagramVerdict::Dropped(_, DropReason::UdpSocketFull)));
        bench.recv(id).unwrap();
        assert_eq!(bench.udp.queue(id).map(|q| q.0), Ok(left));
    }
    assert_eq!(outcome(&bench.arrive(from, to, b"x")), "delivered");
}
