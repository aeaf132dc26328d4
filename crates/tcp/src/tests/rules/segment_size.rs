//! How large segments are: RFC 9293 section 3.7.1, RFC 6691, RFC 1191, RFC 8201. That none exceeds
//! the path MTU is asserted of every segment by `peer.rs` and `cable.rs`.

use core::time::Duration;

use floodwall_packet::PacketList;
use floodwall_wire::tcp::TcpHeader;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use crate::tests::peer::{A, Out, Peer, put};
use crate::{ConnectionId, TcpSettings};

/// The options of a peer's SYN, with the MSS of an Ethernet link.
fn offer(v6: bool, timestamps: bool) -> TcpOptionSet {
    TcpOptionSet {
        mss: Some(if v6 { 1440 } else { 1460 }),
        sack_permitted: true,
        window_scale: Some(7),
        timestamps: timestamps.then_some(Timestamps { value: 1, echo: 0 }),
        ..TcpOptionSet::NONE
    }
}

fn accepted(v6: bool, timestamps: bool) -> (Peer, ConnectionId) {
    Peer::accepted(v6, &TcpSettings::default(), offer(v6, timestamps))
}

/// The bytes of the IP packet of a segment.
fn packet_len(v6: bool, out: &Out) -> usize {
    (if v6 { 60 } else { 40 }) + out.options.emitted_len() + out.data.len()
}

/// A segment of the peer with `len` bytes at `seq`, which acknowledges up to `ack`.
fn text(peer: &mut Peer, timestamps: bool, (seq, len): (u32, usize), ack: u32) -> Vec<Out> {
    let data = vec![1; len];
    let mut it = put(A, seq, ack).data(&data);
    if timestamps {
        it = it.time(2, 0);
    }
    peer.give(it)
}

#[test]
fn segments_with_sack_blocks_fill_the_path_and_do_not_exceed_it() {
    for (v6, timestamps) in [(false, false), (false, true), (true, false), (true, true)] {
        for holes in 1..=5 {
            let (mut peer, id) = accepted(v6, timestamps);
            for hole in 0..holes {
                text(&mut peer, timestamps, (101 + 200 * hole, 100), 1);
            }
            let fresh = peer.write(id, &[7; 10_000]);
            let blocks = holes.min(if timestamps { 3 } else { 4 }) as usize;
            let whole = &fresh[..fresh.len() - 1];
            assert!(whole.len() >= 5);
            for out in whole {
                assert_eq!(out.options.sack.iter().flatten().count(), blocks);
                assert_eq!(packet_len(v6, out), 1500, "{v6} {timestamps} {holes}");
            }
            // All again after a timeout, still with the holes open.
            let again: Vec<_> = peer.wait(Duration::from_secs(2));
            assert!(again.iter().any(|out| out.seq == peer.ours(1) && !out.data.is_empty()));
            // The stream is whole.
            let all: Vec<_> = fresh.iter().flat_map(|out| out.data.clone()).collect();
            assert_eq!(all.len(), 10_000, "{v6} {timestamps} {holes}");
        }
    }
}

/// What leaves at once, as runs.
fn run(peer: &mut Peer) -> Vec<TcpOptionSet> {
    let (now, mut all) = (peer.now, vec![]);
    let (tcp, mut lend) = peer.host.lend(now);
    let mut rest = PacketList::new();
    while let Some(first) = tcp.transmit_run(&mut lend, &mut rest) {
        for packet in [first.packet].into_iter().chain(core::iter::from_fn(|| rest.pop_front())) {
            let bytes: Vec<u8> = packet.chunks().flatten().copied().collect();
            let header = TcpHeader::parse(&bytes, bytes.len()).unwrap();
            all.push(TcpOptionSet::read(header.options()).unwrap());
        }
    }
    all
}

#[test]
fn a_duplicate_is_reported_by_one_segment_of_a_run() {
    // RFC 2883 section 4: "each duplicate contiguous sequence of data received is reported in at
    // most one D-SACK block".
    for v6 in [false, true] {
        let (mut peer, id) = accepted(v6, false);
        assert!(peer.write(id, &[7; 30_000]).len() >= 10);
        text(&mut peer, false, (1, 100), 1);
        let _ = peer.read(id, 100);
        let again = [1, 101].map(|n| floodwall_base::Seq(peer.theirs(n)));
        let connection = peer.host.tcp.named_mut(id).unwrap();
        connection.ahead.note_duplicate(again[0], again[1]);
        let (now, bytes) = (peer.now, peer.bytes(&put(A, 101, 10 * 1400)));
        let (tcp, mut lend) = peer.host.lend(now);
        let packet = lend.pool.packet_from(&bytes).unwrap();
        let input = peer_input(v6, bytes.len());
        let input = crate::SegmentInput { dst_addr: tcp.ends(id).unwrap().0.ip(), ..input };
        let _ = tcp.input(&mut lend, &input, packet, &mut Default::default());
        let sent = run(&mut peer);
        assert!(sent.len() >= 5, "{}", sent.len());
        let reports = sent.iter().filter(|options| options.sack[0].is_some()).count();
        assert_eq!(reports, 1);
        assert!(sent[0].sack[0].is_some());
    }
}

fn peer_input(v6: bool, len: usize) -> crate::SegmentInput {
    let addr = |text: &str| text.parse().unwrap();
    crate::SegmentInput {
        src_addr: addr(if v6 { "fd00::9" } else { "10.0.0.9" }),
        dst_addr: addr(if v6 { "fd00::1" } else { "10.0.0.1" }),
        iface: floodwall_base::IfIndex(1),
        l4: 0,
        len,
        mtu: 1500,
        group: false,
        congestion: false,
    }
}
