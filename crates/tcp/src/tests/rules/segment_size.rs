//! How large segments are: RFC 9293 section 3.7.1, RFC 6691, RFC 1191, RFC 8201. That none exceeds
//! the path MTU is asserted of every segment by `peer.rs` and `cable.rs`.

use core::time::Duration;

use floodwall_packet::PacketList;
use floodwall_wire::tcp::TcpHeader;
use floodwall_wire::tcp_options::{SackBlock, TcpOptionSet, Timestamps};

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

/// More than fits beside the blocks, and no more than fits without them: by the queue, with the
/// call, and as a tail loss probe.
#[test]
fn sack_blocks_have_their_room_whichever_way_a_segment_is_sent() {
    for (v6, timestamps) in [(false, false), (false, true), (true, false), (true, true)] {
        let with_a_hole = || {
            let (mut peer, id) = accepted(v6, timestamps);
            text(&mut peer, timestamps, (101, 100), 1);
            let whole = peer.write(id, &[7; 3000]);
            assert_eq!(packet_len(v6, &whole[0]), 1500);
            let ack = 1 + whole.iter().map(|out| out.data.len() as u32).sum::<u32>();
            let rest = text(&mut peer, timestamps, (301, 100), ack);
            let ack = ack + rest.iter().map(|out| out.data.len() as u32).sum::<u32>();
            text(&mut peer, timestamps, (301, 100), ack);
            (peer, id, whole[0].data.len() - 8)
        };
        for more in 0..=20 {
            let (mut peer, id, room) = with_a_hole();
            let queued = peer.write(id, &vec![7; room + more]);
            assert_eq!(queued[0].data.len(), room, "{v6} {timestamps} {more}");
            let (mut peer, id, room) = with_a_hole();
            let at_once = peer.write_at_once(id, &vec![7; room + more]);
            assert_eq!(at_once[0].data.len(), room, "{v6} {timestamps} {more}");
        }
        // The congestion window is full.
        let (mut peer, id, room) = with_a_hole();
        let sent = peer.write(id, &[7; 60_000]).len();
        assert!(sent < 20, "{sent}");
        let probe = peer.wait(Duration::from_millis(150));
        assert_eq!(probe[0].data.len(), room, "{v6} {timestamps}");
        let end = peer.ours(3001 + (sent * room) as u32);
        assert_eq!(probe[0].seq, end, "new data");
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
        let (connection, rare) = peer.host.tcp.named_rare(id).unwrap();
        connection.keep_duplicate(rare, SackBlock { left: again[0].0, right: again[1].0 });
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

/// The payloads of segments.
fn sizes(out: &[Out]) -> Vec<usize> {
    out.iter().map(|out| out.data.len()).filter(|len| *len > 0).collect()
}

/// Acknowledges all that was sent until no more comes; returns the sizes of the segments that did.
fn drain(peer: &mut Peer, first: &[Out]) -> Vec<usize> {
    let (mut out, mut all) = (first.to_vec(), sizes(first));
    for _ in 0..1000 {
        let end =
            |out: &Out| out.seq.wrapping_add(out.data.len() as u32).wrapping_sub(peer.ours(0));
        let Some(ack) = out.iter().map(end).max() else { break };
        peer.now += Duration::from_millis(10);
        out = peer.give(put(A, 1, ack));
        all.extend(sizes(&out));
        out.retain(|out| !out.data.is_empty());
    }
    all
}

#[test]
fn a_syn_ack_announces_what_the_link_back_to_the_client_carries() {
    // RFC 9293 section 3.7.1, RFC 6691: also when it is sent again, and within what was asked for.
    for (v6, headers) in [(false, 40), (true, 60)] {
        for (mtu, asked) in
            [(1500, None), (1492, None), (1280, None), (9000, None), (1500, Some(900))]
        {
            let mut peer = Peer::new(v6);
            peer.mtu = mtu;
            peer.listen(&TcpSettings { mss: asked, ..TcpSettings::default() }, 4);
            let syn = crate::tests::peer::Put {
                options: offer(v6, false),
                ..put(crate::tests::peer::S, 0, 0)
            };
            let right = Some(asked.unwrap_or(mtu as u16 - headers));
            assert_eq!(peer.give(syn)[0].options.mss, right);
            let again = peer.wait(Duration::from_secs(2));
            assert_eq!(again[0].options.mss, right, "sent again");
        }
    }
}

#[test]
fn an_open_connection_follows_the_path_mtu_of_the_routes_both_ways() {
    for v6 in [false, true] {
        let (mut peer, id) = accepted(v6, false);
        let headers = if v6 { 60 } else { 40 };
        for mtu in [1500, 1300, 1280, 1492, 1500] {
            peer.mtu = mtu;
            let out = peer.write(id, &[7; 6000]);
            let all = drain(&mut peer, &out);
            assert_eq!(all.iter().sum::<usize>(), 6000);
            assert_eq!(all[0], (mtu as usize - headers).min(1460 - 20 * usize::from(v6)), "{mtu}");
        }
    }
}

#[test]
fn an_accepted_connection_begins_with_the_path_of_its_client() {
    // Independent of what the link of its SYN carries: answers may take another, and the
    // initial window is that of their size (RFC 6928: ten segments, at most 14,600 bytes).
    for (mtu, window) in [(1300, 12_600), (9000, 17_920)] {
        let mut peer = Peer::new(false);
        let listener = peer.listen(&TcpSettings::default(), 4);
        let offer = TcpOptionSet { mss: Some(8960), ..offer(false, false) };
        peer.mtu = 1500;
        peer.give(crate::tests::peer::Put { options: offer, ..put(crate::tests::peer::S, 0, 0) })
            .iter()
            .for_each(|answer| peer.iss = answer.seq);
        peer.mtu = mtu;
        peer.give(put(A, 1, 1));
        let id = peer.host.tcp.accept(listener).unwrap().unwrap();
        let out = peer.write(id, &[7; 40_000]);
        assert_eq!(sizes(&out).iter().sum::<usize>(), window);
        assert_eq!(out[0].data.len(), mtu as usize - 40);
    }
}

/// A router reports a packet that begins at `seq` of our stream.
fn too_big(peer: &mut Peer, seq: u32, mtu: u32) -> (bool, Vec<Out>) {
    let (flow, seq, now) = (peer.flow(), floodwall_base::Seq(peer.ours(seq)), peer.now);
    let mut heard = false;
    let says = crate::IcmpSays::TooBig(mtu);
    let out = peer.with(|tcp, _| {
        heard = tcp.icmp_error(&flow, seq, says, now) == crate::IcmpHeard::Accepted;
    });
    (heard, out)
}

#[test]
fn all_that_is_larger_than_a_reported_path_leaves_again_at_once_and_without_congestion() {
    // RFC 1191 section 6.4, RFC 8201 section 5.4.
    for (v6, timestamps) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut peer, id) = accepted(v6, timestamps);
        let out = peer.write(id, &[7; 60_000]);
        let flight: usize = sizes(&out).iter().sum();
        assert!(flight >= 14_000);
        let window = |peer: &Peer| peer.host.tcp.info(id, peer.now).unwrap().window;
        let segments = window(&peer) / out[0].data.len() as u32;
        let (heard, again) = too_big(&mut peer, 1, 1300);
        assert!(heard);
        let size = 1300 - if v6 { 60 } else { 40 } - if timestamps { 12 } else { 0 };
        assert_eq!(again[0].seq, peer.ours(1));
        assert_eq!(sizes(&again), vec![size; segments as usize], "as many segments as before");
        assert!(again.windows(2).all(|two| two[1].seq == two[0].seq.wrapping_add(size as u32)));
        assert_eq!(window(&peer), segments * size as u32);
        // The routers on the path report each packet of the flight: known, and of ours all the
        // same.
        for _ in 0..3 {
            assert!(too_big(&mut peer, 1, 1300).0);
        }
        // No timer had to expire: the rest follows as these arrive.
        assert_eq!(peer.host.counters.of(floodwall_base::Counter::TcpExtTCPTimeouts), 0);
        if !timestamps {
            let all = drain(&mut peer, &again);
            assert!(all.iter().all(|len| *len <= size));
            assert!(window(&peer) >= segments * size as u32, "no reduction");
        }
    }
}

#[test]
fn small_segments_in_flight_are_not_sent_again_when_large_ones_were_too_big() {
    let nodelay = TcpSettings { nodelay: true, ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &nodelay, offer(false, false));
    assert_eq!(sizes(&peer.write(id, &[1; 100])), [100]);
    assert_eq!(sizes(&peer.write(id, &[2; 3420])), [1460, 1460, 500]);
    let (heard, again) = too_big(&mut peer, 101, 1300);
    assert!(heard);
    let spans: Vec<_> =
        again.iter().map(|out| (out.seq.wrapping_sub(peer.ours(0)), out.data.len())).collect();
    assert_eq!(spans, [(101, 1260), (1361, 1260), (2621, 400)]);
}

#[test]
fn an_outage_does_not_leave_small_segments_for_good() {
    for (v6, full) in [(false, 1460), (true, 1440)] {
        let (mut peer, id) = accepted(v6, false);
        peer.write(id, &[7; 14_000]);
        let lost = peer.wait(Duration::from_secs(3));
        let smaller = lost.last().unwrap().data.len();
        assert!(smaller < full, "a black hole was suspected: {smaller}");
        peer.give(put(A, 1, 14_001));
        let out = peer.write(id, &[7; 60_000]);
        let all = drain(&mut peer, &out);
        let whole = all.iter().filter(|len| **len == full).count();
        assert!(whole > all.len() / 2, "{all:?}");
    }
}

#[test]
fn a_black_hole_is_measured_and_its_probes_are_no_congestion() {
    for (v6, sack, holds) in [(false, true, 1340), (true, true, 1300), (false, false, 1340)] {
        let options = TcpOptionSet { sack_permitted: sack, ..offer(v6, false) };
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), options);
        let mut queue = peer.write(id, &[7; 14_000]);
        let (mut arrived, mut left, mut largest) = (1_u32, 3_000_000_usize, 0);
        let mut blocks: Vec<(u32, u32)> = vec![];
        let mut reductions = 0;
        let mut window = 0;
        for _ in 0..3000 {
            if queue.is_empty() {
                queue = peer.wait(Duration::from_millis(20));
            }
            // One round trip: what fits the path arrives, in order.
            let (mut answers, now) = (vec![], core::mem::take(&mut queue));
            for out in now.into_iter().filter(|out| out.data.len() <= holds && !out.data.is_empty())
            {
                let (from, len) = (out.seq.wrapping_sub(peer.ours(0)), out.data.len() as u32);
                largest = largest.max(len as usize);
                match from <= arrived {
                    true => arrived = arrived.max(from + len),
                    false => blocks.push((from, from + len)),
                }
                while let Some(at) = blocks.iter().position(|b| b.0 <= arrived) {
                    arrived = arrived.max(blocks.remove(at).1);
                }
                let mut ack = put(A, 1, arrived);
                if let Some(last) = blocks.last().filter(|_| sack) {
                    ack.options.sack[0] = Some(floodwall_wire::tcp_options::SackBlock {
                        left: peer.ours(last.0),
                        right: peer.ours(last.1),
                    });
                }
                answers.push(ack);
            }
            peer.now += Duration::from_millis(10);
            for ack in answers {
                queue.extend(peer.give(ack));
            }
            let info = peer.host.tcp.info(id, peer.now).unwrap();
            reductions += u32::from(arrived > 30_000 && info.window < window);
            window = info.window;
            if left > 0 {
                let more = vec![7; left.min(20_000)];
                let now = peer.now;
                let (tcp, mut lend) = peer.host.lend(now);
                left -= tcp.send(&mut lend, id, &more).unwrap_or(0);
                queue.extend(peer.with(|_, _| ()));
            }
            if left == 0 && arrived >= 3_000_000 {
                break;
            }
        }
        assert!(arrived >= 3_000_000, "{v6} {sack}: {arrived}");
        assert!((holds - 24..=holds).contains(&largest), "{largest} of {holds}");
        assert_eq!(reductions, 0, "{v6} {sack}");
    }
}

#[test]
fn a_path_below_the_floor_is_served_by_letting_routers_fragment() {
    // By a report, and without one.
    let (mut peer, id) = accepted(false, false);
    peer.write(id, &[7; 14_000]);
    let (heard, again) = too_big(&mut peer, 1, 400);
    assert!(heard && again.iter().all(|out| out.fragmentable && out.data.len() == 512));
    let (mut peer, id) = accepted(false, false);
    peer.write(id, &[7; 14_000]);
    let out = peer.wait(Duration::from_secs(60));
    assert!(out.iter().filter(|out| out.fragmentable).all(|out| out.data.len() <= 512));
    assert!(out.last().unwrap().fragmentable);
    // IPv6 has no path below 1280 bytes.
    let (mut peer, id) = accepted(true, false);
    peer.write(id, &[7; 14_000]);
    let (heard, again) = too_big(&mut peer, 1, 400);
    assert!(heard && again.iter().all(|out| !out.fragmentable && out.data.len() == 1220));
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
