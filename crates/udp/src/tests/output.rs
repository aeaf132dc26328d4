//! What is sent: bytes, checksums, limits, and the way back through input.

use floodwall_base::Counter;
use floodwall_packet::{HEADROOM_SMALL, PacketList};

use super::*;

impl Bench {
    fn send(
        &mut self,
        id: SocketId,
        to: SocketAddr,
        src: &str,
        bytes: &[u8],
    ) -> Result<PacketBuf, SendError> {
        self.udp.output(&self.pool, id, to, (ip(src), 0).into(), bytes, &mut self.counters)
    }
}

fn flat(packet: &PacketBuf) -> Vec<u8> {
    packet.chunks().flatten().copied().collect()
}

#[test]
fn what_is_sent_is_what_arrives_at_every_length() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        let most = if family == Family::V4 { 65_507 } else { 65_527 };
        let bytes: Vec<u8> = (0..=255).cycle().take(most + 1).collect();
        for len in (0..200).chain([1471, 1472, 1473, 1783, 1784, 1785, 4000, most]) {
            let mut packet = bench.send(id, end(peer, 9), ours, &bytes[..len]).unwrap();
            assert!(packet.headroom() >= HEADROOM_SMALL - 8);
            let header = packet.prepend(l4_of(ip(ours))).unwrap();
            // The answer: the two ends are exchanged, which leaves the sum unchanged.
            header.copy_from_slice(&ip_packet(end(peer, 53), end(ours, 9), b"")[..header.len()]);
            let input = input_of(end(peer, 53), end(ours, 53), packet.len());
            let at = l4_of(ip(ours));
            assert_eq!(flat(&packet)[at..at + 4], [0, 53, 0, 9]);
            let mut reader = Bench::new();
            let other = reader.listen(family, 9);
            assert!(
                matches!(reader.input(&input, packet), DatagramVerdict::Delivered { .. }),
                "{len}"
            );
            assert_eq!(reader.recv(other).unwrap().0, bytes[..len]);
        }
        let refused = bench.send(id, end(peer, 9), ours, &bytes[..most + 1]);
        assert_eq!(refused.unwrap_err(), SendError::MessageTooLong { max: most });
        assert_eq!(bench.udp.sending(id), Ok(0));
    }
}

#[test]
fn without_large_frames_a_payload_becomes_a_chain() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        let bytes: Vec<u8> = (0..=250).cycle().take(60_001).collect();
        let whole = flat(&bench.send(id, end(peer, 9), ours, &bytes).unwrap());
        bench.pool = Pool::new(&PoolConfig { supers: 0, ..PoolConfig::default() }).unwrap();
        let packet = bench.send(id, end(peer, 9), ours, &bytes).unwrap();
        assert!(packet.chunk_count() > 30 && flat(&packet) == whole);
    }
}

#[test]
fn pieces_are_joined_as_one_payload() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        let bytes: Vec<u8> = (1..=255).cycle().take(3000).collect();
        for cuts in [[0, 0], [1, 2], [7, 8], [100, 101], [5, 2999], [3000, 3000]] {
            let whole = flat(&bench.send(id, end(peer, 9), ours, &bytes).unwrap());
            let pieces = [&bytes[..cuts[0]], &bytes[cuts[0]..cuts[1]], &bytes[cuts[1]..]];
            let (pool, counters) = (&bench.pool, &mut bench.counters);
            let gathered =
                bench.udp.output_gather(pool, id, end(peer, 9), end(ours, 0), &pieces, counters);
            assert_eq!(flat(&gathered.unwrap()), whole);
        }
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_all_ones_and_none_only_when_asked() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        let all_ones = (0..=u16::MAX).find(|word| {
            let packet = bench.send(id, end(peer, 9), ours, &word.to_be_bytes()).unwrap();
            assert_ne!(packet.first()[6..8], [0, 0]);
            packet.first()[6..8] == [0xff, 0xff]
        });
        assert!(all_ones.is_some());
        let mut settings = bench.udp.settings(id).unwrap().clone();
        settings.zero_checksum_tx = true;
        bench.udp.set_settings(id, settings).unwrap();
        let packet = bench.send(id, end(peer, 9), ours, b"x").unwrap();
        assert_eq!(packet.first(), [0, 53, 0, 9, 0, 9, 0, 0, b'x']);
    }
}

#[test]
fn the_send_limit_counts_what_has_not_left() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let id = bench.listen(family, 53);
        let size = u64::from(bench.send(id, end(peer, 9), ours, b"x").unwrap().true_size());
        for (limit, fit) in [(0, 1), (1, 1), (size, 1), (size * 3, 3), (size * 4 - 1, 3)] {
            let mut settings = bench.udp.settings(id).unwrap().clone();
            settings.send_bytes = limit;
            bench.udp.set_settings(id, settings).unwrap();
            let mut out = PacketList::new();
            let datagrams = core::iter::repeat_n((end(peer, 9), end(ours, 0), &b"x"[..]), 5);
            let (pool, counters) = (&bench.pool, &mut bench.counters);
            let (count, error) = bench.udp.output_burst(pool, id, datagrams, &mut out, counters);
            assert_eq!((count, error), (fit, Some(SendError::WouldBlock)), "limit {limit}");
            assert_eq!(bench.udp.sending(id), Ok(size * fit as u64));
            drop(out.pop_front());
            assert!(bench.send(id, end(peer, 9), ours, b"x").is_ok(), "one left, one may follow");
            drop(out);
            assert_eq!(bench.udp.sending(id), Ok(0));
        }
        // A socket that closes while its datagrams are on their way releases their charge.
        let packet = bench.send(id, end(peer, 9), ours, b"x").unwrap();
        bench.udp.close(id).unwrap();
        drop(packet);
    }
}

#[test]
fn impossible_destinations_are_refused_by_name() {
    for (family, ours, peer, _) in FAMILIES {
        let mut bench = Bench::new();
        let unbound = bench.open(family);
        assert_eq!(bench.send(unbound, end(peer, 9), ours, b"").unwrap_err(), SendError::NotBound);
        let id = bench.open_with(family, |s| s.v6_only = true);
        bench.bind(id, ours, 53).unwrap();
        let (zero, alien) =
            if family == Family::V4 { ("0.0.0.0", "fd00::2") } else { ("::", "10.0.0.2") };
        for (to, src, error) in [
            (end(peer, 0), ours, SendError::InvalidDestination),
            (end(zero, 9), ours, SendError::InvalidDestination),
            (end(alien, 9), ours, SendError::AddressFamily),
            (end(peer, 9), alien, SendError::AddressFamily),
        ] {
            assert_eq!(bench.send(id, to, src, b"").unwrap_err(), error);
        }
        assert_eq!(bench.counters.of(Counter::UdpOutDatagrams), 0);
        bench.send(id, end(peer, 9), ours, b"").unwrap();
        let sent = (
            bench.counters.of(Counter::UdpOutDatagrams),
            bench.counters.of(Counter::Udp6OutDatagrams),
        );
        assert_eq!(sent, if family == Family::V4 { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn an_empty_pool_is_an_error_and_no_leak() {
    let mut bench = Bench::new();
    bench.pool = Pool::new(&PoolConfig { small: 1, frames: 1, ..PoolConfig::default() }).unwrap();
    let id = bench.listen(Family::V6, 53);
    let before = bench.pool.available();
    let kept: Vec<_> = (0..2).map(|_| bench.send(id, end("fd00::2", 9), "fd00::1", b"x")).collect();
    assert!(kept.iter().all(Result::is_ok));
    let refused = bench.send(id, end("fd00::2", 9), "fd00::1", &[0; 5000]);
    assert_eq!(refused.unwrap_err(), SendError::NoBuffer);
    drop(kept);
    assert_eq!(bench.pool.available(), before);
}
