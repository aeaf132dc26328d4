//! A burst of segments and the same segments one by one: one outcome, and fewer answers.
//!
//! What a connection's segments in a row have in common is looked at once (`floodwall-tcp`'s
//! `rx_coalesce/run.rs`, `stack`'s `tcp/gro.rs`). The only visible difference may be the number of
//! acknowledgments.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "twins and frames of known size")]

use std::collections::BTreeMap;

use floodwall_base::{DropReason, Family, IfIndex, PublicRandom};
use floodwall_packet::{ChecksumState, PacketBuf};
use floodwall_tcp::TcpSettings;
use floodwall_tests::craft::{self, HOST, PEER, addr, from_peer};
use floodwall_tests::tcp_peer::{Put, TcpPeer, put};
use floodwall_tests::{Drops, drops_between, ethernet_config};
use floodwall_wire::IpProtocol;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

const ACK: TcpFlags = TcpFlags::ACK;
/// Bytes of a connection's text that are sent at most: less than its window.
const TEXT: usize = 20_000;

fn options(value: u32) -> TcpOptionSet {
    let timestamps = Some(Timestamps { value, echo: 0 });
    TcpOptionSet { timestamps, sack_permitted: true, mss: Some(1400), ..TcpOptionSet::NONE }
}

fn stamped(value: u32) -> TcpOptionSet {
    TcpOptionSet { sack_permitted: false, mss: None, ..options(value) }
}

fn frame(peer: &TcpPeer, put: &Put) -> Vec<u8> {
    let (host, other) = (addr(peer.family, HOST), addr(peer.family, PEER));
    let mut frame = from_peer(&craft::ip(other, host, IpProtocol::TCP, &peer.bytes(put)));
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, HOST]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, PEER]);
    frame
}

/// A stream in pieces, and what happens to them on their way.
fn segments(chance: &mut PublicRandom, text: &[u8]) -> Vec<Put> {
    let (mut at, mut clock, mut window) = (0, 100, 50_000);
    let mut puts = Vec::new();
    while at < text.len() {
        let len = if chance.chance(0.8) { 1388 } else { 1 + chance.below(1388) as usize };
        let end = (at + len).min(text.len());
        let mut flags = ACK;
        if chance.chance(0.2) {
            flags = flags | TcpFlags::PSH;
        }
        if end == text.len() {
            flags = flags | TcpFlags::FIN;
        }
        clock += u32::from(chance.chance(0.1));
        window -= u16::from(chance.chance(0.05));
        let one = put(flags, 1 + at as u32, 1).options(stamped(clock)).window(window);
        puts.push(one.data(&text[at..end]));
        at = end;
    }
    let twice: Vec<Put> = puts.iter().filter(|_| chance.chance(0.05)).cloned().collect();
    for again in twice {
        puts.insert(chance.below(puts.len() as u64 + 1) as usize, again);
    }
    for _ in 0..chance.below(3) {
        let at = chance.below(puts.len() as u64) as usize;
        if at > 0 {
            puts.swap(at - 1, at);
        }
    }
    // Nothing new, a reset that misses, and what is beyond the window.
    for odd in [put(ACK, 1, 1), put(TcpFlags::RST, 7, 1), put(ACK, 1 << 24, 1).data(b"far")] {
        if chance.chance(0.3) {
            puts.insert(chance.below(puts.len() as u64) as usize, odd.options(stamped(clock)));
        }
    }
    puts
}

/// Frames of which a few are spoilt, padded, or say something else in their network header.
fn frames(chance: &mut PublicRandom, peer: &TcpPeer, puts: &[Put]) -> Vec<Vec<u8>> {
    let spoil = |put: &Put| {
        let mut frame = frame(peer, put);
        if chance.chance(0.06) {
            let within = if chance.chance(0.6) { 66 } else { frame.len() as u64 };
            let at = chance.below(within) as usize;
            frame[at] ^= 1 << chance.below(8);
        }
        if chance.chance(0.04) {
            frame.extend_from_slice(&[0xee; 9]);
        }
        frame
    };
    puts.iter().map(spoil).collect()
}

fn packets(peer: &TcpPeer, frames: &[Vec<u8>], cut: Option<usize>) -> Vec<PacketBuf> {
    let packet = |frame: &Vec<u8>| match cut {
        None => peer.rig.pool.packet_from(frame).unwrap(),
        Some(piece) => {
            let (head, text) = frame.split_at(piece.min(frame.len()));
            let text = text.chunks(1500).filter(|chunk| !chunk.is_empty());
            peer.rig.pool.packet_from_chunks([head].into_iter().chain(text)).unwrap()
        }
    };
    frames.iter().map(packet).collect()
}

/// Drops by reason. Which timestamp is the newest depends on when the last acknowledgment left (RFC
/// 7323 section 4.3), so what is old may be refused for its time or for its place.
fn dead(drops_between: &Drops) -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::new();
    for (reason, n) in &drops_between.0 {
        let name = match reason {
            DropReason::TcpTimestamp | DropReason::TcpOutOfWindow => "old",
            reason => reason.name(),
        };
        *all.entry(name).or_default() += n;
    }
    all
}

#[test]
fn a_burst_and_its_segments_one_by_one_have_the_same_outcome() {
    let mut fewer = 0;
    for seed in 0..600 {
        let mut chance = PublicRandom::new(seed);
        let family = if seed % 2 == 0 { Family::V4 } else { Family::V6 };
        let mut twins = [(); 2].map(|()| TcpPeer::new(family, &TcpSettings::default()));
        let ids = twins.each_mut().map(|twin| twin.open(options(99)));
        let text: Vec<u8> = (0..TEXT).map(|i| (i % 251) as u8).collect();
        let text = &text[..1 + chance.below(TEXT as u64) as usize];
        let puts = segments(&mut chance, text);
        let frames = frames(&mut chance, &twins[0], &puts);
        // Sometimes in pieces, of which the first ends with the headers, or within them.
        let cut = [None, Some(if family == Family::V4 { 66 } else { 86 }), Some(40)];
        let cut = cut[chance.below(3) as usize];
        let before = twins.each_ref().map(|twin| twin.rig.stats());
        let [one_by_one, burst] = &mut twins;
        let mut answers = [0; 2];
        for packet in packets(one_by_one, &frames, cut) {
            answers[0] += one_by_one.rig.arrive(vec![packet]).len();
        }
        let all = packets(burst, &frames, cut);
        answers[1] += burst.rig.arrive(all).len();
        fewer += usize::from(answers[1] < answers[0]);
        assert!(answers[1] <= answers[0], "seed {seed}: {answers:?}");
        assert_eq!(answers[0] > 0, answers[1] > 0, "seed {seed}");
        let dropped = [0, 1].map(|n| dead(&drops_between(&before[n], &twins[n].rig.stats())));
        assert_eq!(dropped[0], dropped[1], "seed {seed}");
        for twin in &twins {
            assert!(twin.rig.conservation().holds(), "seed {seed}");
        }
        let delivered = twins.each_ref().map(|twin| twin.rig.stats().outcomes.delivered);
        assert_eq!(delivered[0], delivered[1], "seed {seed}");
        let states = [0, 1].map(|n| twins[n].state(ids[n]));
        assert_eq!(states[0], states[1], "seed {seed}");
        let read = [0, 1].map(|n| twins[n].received(ids[n]));
        assert!(read[0] == read[1] && text.starts_with(&read[0]), "seed {seed}: another stream");
    }
    assert!(fewer > 300, "runs were taken as one in {fewer} of 600 bursts");
}

#[test]
fn one_acknowledgment_answers_a_train() {
    for family in [Family::V4, Family::V6] {
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        let id = peer.open(options(99));
        let puts = (0..20).map(|n| put(ACK, 1 + n * 1388, 1).options(stamped(100)));
        let frames: Vec<_> = puts.map(|put| frame(&peer, &put.data(&[7; 1388]))).collect();
        let all = packets(&peer, &frames, None);
        let departed = peer.rig.arrive(all);
        let answers = peer.read(&departed);
        let [answer] = answers.as_slice() else { panic!("{family:?}: {answers:?}") };
        let end = floodwall_tests::tcp_peer::IRS.wrapping_add(1 + 20 * 1388);
        assert_eq!((answer.ack, answer.len), (end, 0), "{family:?}");
        assert_eq!(peer.received(id), vec![7; 20 * 1388]);
    }
}

/// What a rule of an access list has let in is every segment, however they are taken.
#[test]
fn an_access_list_counts_each_segment_of_a_train() {
    for family in [Family::V4, Family::V6] {
        let mut peer = TcpPeer::new(family, &TcpSettings::default());
        let id = peer.open(options(99));
        let rule = "permit tcp from any to any".parse().unwrap();
        assert!(peer.rig.stack.set_access_list(IfIndex(1), &[rule]));
        let puts = (0..20).map(|n| put(ACK, 1 + n * 1000, 1).options(stamped(100)));
        let frames: Vec<_> = puts.map(|put| frame(&peer, &put.data(&[7; 1000]))).collect();
        let all = packets(&peer, &frames, None);
        peer.rig.arrive(all);
        assert_eq!(peer.received(id), vec![7; 20_000]);
        let list = peer.rig.stack.access_list(IfIndex(1)).unwrap();
        let counts: Vec<_> = list.rules().map(|(_, count)| count.packets).collect();
        assert_eq!(counts, [20], "{family:?}");
    }
}

#[test]
fn full_segments_leave_as_they_would_one_by_one() {
    for family in [Family::V4, Family::V6] {
        // Without Nagle's algorithm the rest leaves too.
        let settings = TcpSettings { nodelay: true, ..TcpSettings::default() };
        let mut peer = TcpPeer::new(family, &settings);
        let id = peer.open(options(99));
        let (taken, left) = peer.sockets(|s| s.tcp_send(id, &[7; 10_000]).unwrap());
        assert_eq!(taken, 10_000);
        // `read` has verified the checksums.
        let lens: Vec<_> = left.iter().map(|segment| segment.len).collect();
        let seqs: Vec<_> = left.iter().map(|segment| segment.seq.wrapping_sub(peer.iss)).collect();
        assert_eq!(lens, [1388, 1388, 1388, 1388, 1388, 1388, 1388, 284], "{family:?}");
        assert_eq!(seqs, [1, 1389, 2777, 4165, 5553, 6941, 8329, 9717], "{family:?}");
        let pushed: Vec<_> = left.iter().map(|s| s.flags.contains(TcpFlags::PSH)).collect();
        assert_eq!(pushed, [false, false, false, false, false, false, false, true], "{family:?}");
    }
}

#[test]
fn a_device_that_finishes_checksums_is_left_them() {
    for family in [Family::V4, Family::V6] {
        let mut config = ethernet_config(HOST);
        config.interfaces[0].checksum_offload = true;
        let settings = TcpSettings { nodelay: true, ..TcpSettings::default() };
        let mut peer = TcpPeer::on(&config, family, &settings, ((HOST, PEER), (80, 40_000)));
        let id = peer.open(options(99));
        let (taken, departed) = peer.rig.sockets(|s| s.tcp_send(id, &[7; 4000]).unwrap());
        assert_eq!((taken, departed.len()), (4000, 3), "two full segments and the rest");
        let l4 = if family == Family::V4 { 34 } else { 54 };
        for mut packet in departed {
            assert_eq!(packet.checksum_state(), ChecksumState::Partial, "{family:?}");
            let offload = packet.offload().expect("where the sum belongs");
            let at = (usize::from(offload.checksum_start), offload.checksum_offset);
            assert_eq!((at, offload.flags, offload.gso_type), ((l4, 16), 1, 0), "{family:?}");
            // What the device does.
            let check = packet.sum(l4, packet.len() - l4).finish();
            let front = packet.front_mut(l4 + 18).expect("headers of our own");
            front[l4 + 16..].copy_from_slice(&check.to_be_bytes());
            let read = peer.read(&[packet]);
            assert!(matches!(read.as_slice(), [segment] if segment.len > 0), "{family:?}");
        }
    }
}
