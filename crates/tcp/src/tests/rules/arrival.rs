//! Segments that arrive at an open connection: RFC 9293 section 3.10.7.4, RFC 5961, RFC 7323.

use core::time::Duration;

use floodwall_base::{Counter, DropReason};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{SackBlock, TcpOptionSet, Timestamps};

use crate::tests::cable::FRAMES;
use crate::tests::peer::{A, F, Out, Peer, R, S, put};
use crate::{ConnectionError, RecvError, TcpSettings, TcpState};

fn with_timestamps() -> TcpOptionSet {
    let timestamps = Some(Timestamps { value: 1000, echo: 0 });
    TcpOptionSet { timestamps, sack_permitted: true, ..TcpOptionSet::NONE }
}

fn open() -> (Peer, crate::ConnectionId) {
    Peer::accepted(false, &TcpSettings::default(), TcpOptionSet::NONE)
}

#[test]
fn a_reset_ends_a_connection_only_at_the_next_sequence_number() {
    // RFC 5961 section 3.2; rows 22 and 24 of the bar.
    let (mut peer, id) = open();
    let free = peer.host.pool.available();
    let answer = peer.give(put(R, 2, 0));
    assert!(peer.is_ack(&answer, 1), "in the window: a challenge, {answer:?}");
    for seq in [0, 500_000, 1 << 31] {
        assert!(peer.give(put(R, seq, 0)).is_empty(), "outside: silence");
        assert_eq!(peer.dropped, Some(DropReason::TcpOutOfWindow));
    }
    // As many challenges as the budget permits, for any number of triggers; the others leak no
    // memory.
    let answers: usize = (0..1000).map(|_| peer.give(put(R, 2, 0)).len()).sum();
    assert!(answers <= 5, "{answers}");
    assert_eq!(peer.host.pool.available(), free);
    assert_eq!(peer.state(id), TcpState::Established);
    assert!(peer.give(put(R, 1, 0)).is_empty());
    assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::Reset)));
    assert_eq!(peer.state(id), TcpState::Closed);
}

#[test]
fn a_syn_in_the_window_is_challenged_and_changes_nothing() {
    // RFC 5961 section 4.2.
    let (mut peer, id) = open();
    let answer = peer.give(put(S, 10, 0));
    assert!(peer.is_ack(&answer, 1));
    assert_eq!(
        (peer.state(id), peer.dropped),
        (TcpState::Established, Some(DropReason::TcpOutOfWindow))
    );
    // A repeated SYN of the handshake lies before the window: the answer is an ACK with the current
    // numbers.
    let answer = peer.give(put(S, 0, 0));
    assert!(peer.is_ack(&answer, 1));
}

#[test]
fn an_acknowledgment_of_what_was_never_sent_changes_nothing() {
    // RFC 5961 section 5.2, row 25.
    let (mut peer, id) = open();
    peer.write(id, b"abc");
    for ack in [5, 1 << 30, (1_u32 << 31) - 100_000] {
        let answers = peer.give(put(A, 1, ack).data(b"evil").window(1));
        assert!(answers.len() <= 1 && peer.dropped == Some(DropReason::TcpAckInvalid), "{ack}");
    }
    // Older than any window that was offered.
    peer.give(put(A, 1, 1_u32.wrapping_sub(50_001)).data(b"evil"));
    assert_eq!(peer.dropped, Some(DropReason::TcpAckInvalid));
    assert_eq!(peer.host.tcp.unacknowledged(id), Ok(3));
    assert_eq!(peer.read(id, 9).0, Err(RecvError::WouldBlock));
    // Below our SYN.
    peer.give(put(A, 1, 0).data(b"evil"));
    assert_eq!(peer.dropped, Some(DropReason::TcpAckInvalid));
    assert_eq!(peer.read(id, 9).0, Err(RecvError::WouldBlock));
    // An old one within the window is a duplicate, and its data is accepted.
    peer.give(put(A, 1, 4));
    peer.give(put(A, 1, 1).data(b"good"));
    assert_eq!(peer.read(id, 9).0, Ok(b"good".to_vec()));
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let (mut peer, id) = open();
    assert!(peer.give(put(TcpFlags::NONE, 1, 0).data(b"x")).is_empty());
    assert_eq!(peer.dropped, Some(DropReason::TcpNoAck));
    assert_eq!(peer.read(id, 9).0, Err(RecvError::WouldBlock));
}

#[test]
fn an_old_timestamp_is_answered_and_its_segment_dropped() {
    // RFC 7323 section 5.3 (R1).
    let (mut peer, id) = Peer::accepted(true, &TcpSettings::default(), with_timestamps());
    peer.give(put(A, 1, 1).time(2000, 0).data(b"new"));
    let answer = peer.give(put(A, 4, 1).time(1999, 0).data(b"old"));
    assert_eq!(peer.dropped, Some(DropReason::TcpTimestamp));
    assert!(peer.is_ack(&answer, 4));
    assert_eq!(peer.read(id, 9).0, Ok(b"new".to_vec()));
    // A reset needs none (section 3.2).
    peer.give(put(R, 4, 0));
    assert_eq!(peer.state(id), TcpState::Closed);
}

#[test]
fn a_segment_that_fails_a_test_never_changes_the_recent_timestamp() {
    // Row 28: CVE-2005-0356.
    let (mut peer, id) = Peer::accepted(false, &TcpSettings::default(), with_timestamps());
    let poison = 0x7000_0000;
    peer.give(put(A, 1 << 20, 1).time(poison, 0).data(b"outside"));
    peer.give(put(A, 1, 99).time(poison, 0).data(b"acknowledges too much"));
    peer.give(put(TcpFlags::NONE, 1, 0).time(poison, 0).data(b"no ack"));
    peer.give(put(A, 5, 1).time(poison, 0).data(b"ahead"));
    let sent = peer.write(id, b"x");
    assert_eq!(sent[0].options.timestamps.map(|t| t.echo), Some(1001));
    let answer = peer.give(put(A, 1, 1).time(1500, 0).data(b"1234"));
    assert_eq!(answer[0].options.timestamps.map(|t| t.echo), Some(1500));
}

#[test]
fn what_lies_outside_of_the_window_is_cut_off() {
    let settings = TcpSettings { receive_bytes: 1000, ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &settings, TcpOptionSet::NONE);
    let data: Vec<u8> = (0..1400_u32).map(|n| n as u8).collect();
    let answer = peer.give(put(A | F, 1, 1).data(&data));
    assert_eq!(answer[0].ack, peer.theirs(1001), "and the FIN behind is not taken");
    assert_eq!(peer.read(id, 2000).0.unwrap(), data[..1000]);
    // Bytes already received are trimmed at the front.
    peer.give(put(A, 501, 1).data(&data[500..1300]));
    assert_eq!(peer.read(id, 2000).0.unwrap(), data[1000..1300]);
    let answer = peer.give(put(A, 1, 1).data(&data[..100]));
    assert!(peer.is_ack(&answer, 1301));
    assert_eq!(peer.dropped, Some(DropReason::TcpOutOfWindow));
}

#[test]
fn an_urgent_pointer_changes_nothing_of_the_stream() {
    // Row 21; RFC 6093 section 6.
    let (mut peer, id) = open();
    let mut expected = vec![];
    for urgent in [0, 1, 2, 3, 100, u16::MAX] {
        let seq = 1 + expected.len() as u32;
        for flags in [A | TcpFlags::URG, A] {
            let bare = crate::tests::peer::Put { urgent, ..put(flags, seq, 1) };
            peer.give(bare);
        }
        let put = crate::tests::peer::Put { urgent, ..put(A | TcpFlags::URG, seq, 1) };
        peer.give(put.data(b"ab"));
        expected.extend_from_slice(b"ab");
    }
    assert_eq!(peer.read(id, 99).0, Ok(expected));
}

#[test]
fn segments_without_data_outside_of_the_window_are_answered_twice_a_second_at_most() {
    // Row 26: two desynchronised ends would answer each other for ever.
    let (mut peer, _) = open();
    let mut answers = 0;
    for _ in 0..100 {
        answers += peer.give(put(A, 1 << 30, 1)).len();
        peer.wait(Duration::from_millis(50));
    }
    assert!((5..=11).contains(&answers), "{answers} in 5 s");
}

#[test]
fn answers_out_of_window_take_one_rare_state_of_the_connection_that_is_hit() {
    for v6 in [false, true] {
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), with_timestamps());
        let in_use = |peer: &Peer| peer.host.tcp.records.rare.in_use();
        peer.write(id, b"abc");
        peer.give(put(A, 1, 4).time(1001, 0).data(b"abc"));
        assert_eq!(in_use(&peer), 0, "usual segments take none");
        for n in 0..100 {
            peer.give(put(A, 1 << 30, 1));
            peer.give(put(S, 10 + n, 0));
            peer.give(put(R, 10 + n, 0));
        }
        assert_eq!(in_use(&peer), 1);
        peer.give(put(A | F, 10, 4).time(1002, 0));
        assert_eq!(in_use(&peer), 1, "the FIN that came too early is noted in the same");
        peer.give(put(R, 4, 0));
        assert_eq!(peer.state(id), TcpState::Closed);
        let (tcp, lend) = peer.host.lend(peer.now);
        tcp.abort(&lend, id).unwrap();
        assert_eq!(in_use(&peer), 0, "given back");
    }
}

#[test]
fn bytes_that_came_first_are_kept_when_others_come_for_their_place() {
    // Row 17.
    let (mut peer, id) = open();
    peer.give(put(A, 5, 1).data(b"EFGH"));
    peer.give(put(A, 3, 1).data(b"cdxxxxij"));
    peer.give(put(A, 1, 1).data(b"abyyyyyyyykl"));
    assert_eq!(peer.read(id, 99).0, Ok(b"abcdEFGHijkl".to_vec()));
}

#[test]
fn the_timestamp_of_the_first_segment_since_the_last_acknowledgment_is_echoed() {
    // RFC 7323 section 4.3, examples A and B.
    for v6 in [false, true] {
        let (mut peer, _) = Peer::accepted(v6, &TcpSettings::default(), with_timestamps());
        let echo = |out: &[Out]| out.last().unwrap().options.timestamps.unwrap().echo;
        // One that waits for the delay, and what comes meanwhile.
        for n in 0..20 {
            let time = 2000 + 10 * n;
            let first = peer.give(put(A, 1 + 20 * n, 1).time(time, 0).data(&[0; 10]));
            let second = peer.give(put(A, 11 + 20 * n, 1).time(time + 5, 0).data(&[0; 10]));
            let later = peer.wait(Duration::from_millis(500));
            let all = [first, second, later].concat();
            assert_eq!(all[0].options.timestamps.unwrap().echo, time, "{n}");
            assert!(echo(&all) >= time);
        }
        // Beyond a hole, and where it is filled.
        let end = 1 + 20 * 20;
        let before = echo(&peer.give(put(A, end + 10, 1).time(3000, 0).data(&[0; 10])));
        assert!(before < 3000);
        assert_eq!(echo(&peer.give(put(A, end, 1).time(3001, 0).data(&[0; 10]))), 3001);
    }
}

#[test]
fn what_comes_ahead_is_reported_in_blocks_and_duplicates_first() {
    // RFC 2018 section 4, RFC 2883 section 4.
    let (mut peer, id) = Peer::accepted(false, &TcpSettings::default(), with_timestamps());
    let answer = peer.give(put(A, 11, 1).time(1001, 0).data(&[1; 10]));
    assert_eq!(answer[0].ack, peer.theirs(1));
    let block = SackBlock { left: peer.theirs(11), right: peer.theirs(21) };
    assert_eq!(answer[0].options.sack[..2], [Some(block), None]);
    let answer = peer.give(put(A, 11, 1).time(1001, 0).data(&[1; 10]));
    assert_eq!(answer[0].options.sack[..2], [Some(block), Some(block)]);
    let answer = peer.give(put(A, 1, 1).time(1001, 0).data(&[0; 10]));
    assert_eq!(answer[0].ack, peer.theirs(21), "a filled hole is acknowledged at once");
    assert_eq!(answer[0].options.sack[0], None);
    let answer = peer.give(put(A, 1, 1).time(1001, 0).data(&[0; 5]));
    let again = SackBlock { left: peer.theirs(1), right: peer.theirs(6) };
    assert_eq!(answer[0].options.sack[0], Some(again));
    assert_eq!(peer.read(id, 99).0.unwrap().len(), 20);
}

#[test]
fn a_fin_that_comes_ahead_waits_for_what_lies_before_it() {
    let (mut peer, id) = open();
    peer.give(put(A | F, 4, 1).data(b"def"));
    assert_eq!(peer.state(id), TcpState::Established);
    let answer = peer.give(put(A, 1, 1).data(b"abc"));
    assert!(peer.is_ack(&answer, 8));
    assert_eq!(peer.state(id), TcpState::CloseWait);
    assert_eq!(peer.read(id, 99).0, Ok(b"abcdef".to_vec()));
    assert_eq!(peer.read(id, 99).0, Ok(vec![]));
}

#[test]
fn holes_beyond_the_bound_are_refused_and_the_stream_goes_on() {
    // Row 16: one byte each with gaps of one.
    let (mut peer, id) = open();
    let mut refused = 0;
    for n in 0..200 {
        peer.give(put(A, 2 + 2 * n, 1).data(b"x"));
        refused += u32::from(peer.dropped == Some(DropReason::TcpReceiveFull));
    }
    assert!(refused >= 100, "{refused}");
    peer.give(put(A, 1, 1).data(&[b'y'; 500]));
    assert_eq!(peer.read(id, 999).0.unwrap().len(), 500);
}

#[test]
fn a_wrong_checksum_or_an_impossible_header_is_dropped_and_counted() {
    // Row 20: every option kind with every length, and every data offset.
    let (mut peer, id) = open();
    let good = peer.bytes(&put(A, 1, 1).data(b"data"));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        assert!(peer.give_bytes(&bad).is_empty());
        let reason = peer.dropped.unwrap();
        assert!(matches!(reason, DropReason::TcpChecksum | DropReason::TcpMalformed), "{at}");
    }
    assert!(peer.host.counters.of(Counter::TcpInCsumErrors) >= 20);
    for cut in 0..20 {
        peer.give_bytes(&good[..cut]);
        assert_eq!(peer.dropped, Some(DropReason::TcpMalformed));
    }
    for kind in 0..=255_u8 {
        for len in 0..=12_u8 {
            let mut bytes = peer.bytes(&put(A, 1, 1).time(1, 2).data(b""));
            bytes[20..22].copy_from_slice(&[kind, len]);
            bytes[16..18].fill(0);
            let pseudo =
                crate::pseudo_header::pseudo_header(&peer.flow(), bytes.len() as u32).unwrap();
            let check = pseudo.add(floodwall_checksum::sum(&bytes)).finish();
            bytes[16..18].copy_from_slice(&check.to_be_bytes());
            peer.give_bytes(&bytes);
        }
    }
    assert_eq!(peer.state(id), TcpState::Established);
    assert_eq!(peer.read(id, 9).0, Err(RecvError::WouldBlock));
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once_and_one_alone_soon() {
    // RFC 9293 section 3.8.6.3.
    let (mut peer, id) = open();
    let full = [7; 1460];
    // The first segments are acknowledged one by one, and determine the segment size estimate.
    let mut seq = 1;
    while peer.give(put(A, seq, 1).data(&full)).is_empty() && peer.wait(Duration::ZERO).len() == 1 {
        seq += 1460;
        assert!(peer.read(id, 9000).0.is_ok() && seq < 20 * 1460);
    }
    let answer = peer.give(put(A, seq + 1460, 1).data(&full));
    assert!(peer.is_ack(&answer, seq + 2920), "one that waits, and another");
    seq += 2920;
    for _ in 0..4 {
        assert!(peer.give(put(A, seq, 1).data(&full)).is_empty());
        let answer = peer.give(put(A, seq + 1460, 1).data(&full));
        assert!(peer.is_ack(&answer, seq + 2920));
        seq += 2920;
        assert!(peer.read(id, 9000).0.is_ok());
    }
    assert!(peer.give(put(A, seq, 1).data(&full)).is_empty());
    assert!(peer.wait(Duration::from_millis(30)).is_empty());
    let late = peer.wait(Duration::from_millis(470));
    assert!(peer.is_ack(&late, seq + 1460));
    // That was in vain, so that the next one does not wait; until the program answers.
    assert!(peer.give(put(A, seq + 1460, 1).data(b"x")).is_empty());
    let answer = peer.wait(Duration::ZERO);
    assert!(peer.is_ack(&answer, seq + 1461));
    peer.write(id, b"y");
    // Data carries the acknowledgment.
    assert!(peer.give(put(A, seq + 1461, 2).data(b"x")).is_empty());
    assert_eq!(peer.write(id, b"y")[0].ack, peer.theirs(seq + 1462));
    assert!(peer.wait(Duration::from_millis(150)).iter().all(|out| !out.data.is_empty()));
}

/// A peer fills the advertised window with segments of `size` bytes: first all but the first `hole`
/// bytes, then these too.
fn fill(size: usize, hole: u32) {
    const WINDOW: u32 = 65_535;
    let settings = TcpSettings { receive_bytes: WINDOW, ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &settings, TcpOptionSet::NONE);
    for (mut next, end) in [(hole, WINDOW), (0, hole)] {
        while next < end {
            let len = (size as u32).min(end - next);
            peer.give(put(A, 1 + next, 1).data(&vec![7; len as usize]));
            assert_eq!(peer.dropped, None, "segments of {size} at {next}, hole of {hole}");
            next += len;
        }
    }
    assert_eq!(peer.host.tcp.readable(id), Ok(WINDOW as usize), "{size}");
    let frames = FRAMES - peer.host.pool.available().frames;
    // Out-of-order data may hold four times the window, in-order data three times.
    let times = if hole == 0 { 3 } else { 4 };
    assert!(frames as u32 <= times * WINDOW / 2048 + 2, "{size}, {hole}: {frames} frames");
}

#[test]
fn a_window_never_advertises_what_is_then_refused_for_any_segment_sizes() {
    for size in [100, 500, 561, 700, 1000, 1460, 9000, 40_000] {
        for hole in [0, 100, 1000] {
            fill(size, hole);
        }
    }
}

/// Two peers with addresses that differ in the upper half alone share an entry of the flows that
/// were found last: each segment still gets to its own connection, and a new one to a place's next.
#[test]
fn flows_that_are_looked_for_in_one_place_are_told_apart() {
    let mut peer = Peer::new(true);
    let listener = peer.listen(&TcpSettings::default(), 4);
    let addrs = ["fd00::9", "fd01::9"].map(|addr| addr.parse().unwrap());
    let ends = addrs.map(|addr| {
        peer.peer_v6 = addr;
        let id = peer.handshake(listener, TcpOptionSet::NONE);
        (addr, id, peer.iss)
    });
    let mut out = [0; 8];
    for round in 0..4_u32 {
        for (addr, id, iss) in ends {
            (peer.peer_v6, peer.iss) = (addr, iss);
            let text = addr.to_string();
            let seq = 1 + round * text.len() as u32;
            peer.give(put(A, seq, 1).data(text.as_bytes()));
            let n = peer.host.tcp.recv(id, &mut out, peer.now).unwrap();
            assert_eq!(&out[..n], text.as_bytes(), "round {round}");
        }
    }
    // The first one is reset, and its place is another's.
    (peer.peer_v6, peer.iss) = (addrs[0], ends[0].2);
    peer.give(put(R, 1 + 4 * 7, 0));
    let now = peer.now;
    let (tcp, lend) = peer.host.lend(now);
    tcp.close(&lend, ends[0].1).unwrap();
    peer.peer_port += 1;
    let id = peer.handshake(listener, TcpOptionSet::NONE);
    assert_eq!(id.index(), ends[0].1.index(), "the place is used again");
    peer.peer_port -= 1;
    let answer = peer.give(put(A, 1 + 4 * 7, 1).data(b"late"));
    assert_eq!(answer[0].flags, R, "nothing is left of the first connection");
    assert_eq!(peer.host.tcp.readable(id), Ok(0));
}
