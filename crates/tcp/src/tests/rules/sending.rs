//! When data is sent: RFC 9293 sections 3.7 and 3.8, RFC 6429, RFC 5482.

use core::time::Duration;

use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use crate::settings::Keepalive;
use crate::tests::peer::{A, Peer, R, put};
use crate::{ConnectionError, RecvError, SendError, TcpSettings, TcpState};

const MSS: TcpOptionSet = TcpOptionSet { mss: Some(1000), ..TcpOptionSet::NONE };

#[test]
fn small_segments_wait_for_acknowledgments_unless_told_not_to() {
    // RFC 9293 section 3.7.4 (Nagle).
    for nodelay in [false, true] {
        let settings = TcpSettings { nodelay, ..TcpSettings::default() };
        let (mut peer, id) = Peer::accepted(false, &settings, MSS);
        assert_eq!(peer.write(id, b"a").len(), 1, "nothing is in flight");
        assert_eq!(peer.write(id, b"b").len(), usize::from(nodelay));
        assert_eq!(peer.write(id, b"c").len(), usize::from(nodelay));
        let out = peer.write(id, &[0; 998]);
        assert_eq!(out.len(), 1, "a full segment leaves at once");
        if !nodelay {
            assert_eq!(out[0].data.len(), 1000);
            peer.write(id, b"d");
            assert_eq!(peer.give(put(A, 1, 1002))[0].data, b"d");
        }
    }
}

#[test]
fn a_cork_holds_short_segments_back_until_it_is_drawn_or_time_is_up() {
    // Linux's TCP_CORK: takes precedence over Nagle's algorithm and TCP_NODELAY, but not over the
    // FIN.
    for nodelay in [false, true] {
        let settings = TcpSettings { nodelay, cork: true, ..TcpSettings::default() };
        let (mut peer, id) = Peer::accepted(nodelay, &settings, MSS);
        assert!(peer.write(id, b"head").is_empty(), "nothing is in flight, and yet");
        let out = peer.write(id, &[7; 1500]);
        assert_eq!(out.iter().map(|out| out.data.len()).collect::<Vec<_>>(), [1000]);
        assert!(peer.give(put(A, 1, 1001)).is_empty(), "504 bytes wait for 496 more");
        let drawn = peer.with(|tcp, now| tcp.set_cork(id, false, now));
        assert_eq!(drawn.iter().map(|out| out.data.len()).collect::<Vec<_>>(), [504]);
        peer.give(put(A, 1, 1505));
        // At most 200 milliseconds, as with Linux.
        peer.with(|tcp, now| tcp.set_cork(id, true, now));
        assert!(peer.write(id, b"tail").is_empty());
        assert!(peer.wait(Duration::from_millis(190)).is_empty());
        assert_eq!(peer.wait(Duration::from_millis(20))[0].data, b"tail");
        peer.give(put(A, 1, 1509));
        // Setting TCP_NODELAY also sends waiting data; the FIN waits for nothing.
        if !nodelay {
            assert!(peer.write(id, b"now").is_empty());
            let out = peer.with(|tcp, now| tcp.set_nodelay(id, true, now));
            assert_eq!(out[0].data, b"now");
        }
        assert!(peer.write(id, b"last").is_empty());
        assert_eq!(peer.shutdown(id)[0].data, b"last");
    }
}

#[test]
fn a_write_may_say_that_more_comes() {
    // Linux's MSG_MORE: header and body are one segment, however small.
    let (mut peer, id) = Peer::accepted(false, &TcpSettings::default(), MSS);
    assert!(peer.write_more(id, b"head").is_empty());
    assert_eq!(peer.write(id, b"body")[0].data, b"headbody");
    peer.give(put(A, 1, 9));
    assert!(peer.write_more(id, b"again").is_empty());
    assert_eq!(peer.wait(Duration::from_millis(250))[0].data, b"again", "nothing came");
}

#[test]
fn a_pause_of_hours_before_a_short_or_held_write_ends_nothing() {
    // The last progress was an hour ago; nothing was tried since.
    let hour = Duration::from_secs(3600);
    for (cork, window) in [(true, 50_000), (false, 0)] {
        let settings = TcpSettings { cork, ..TcpSettings::default() };
        let (mut peer, id) = Peer::accepted(true, &settings, MSS);
        peer.give(put(A, 1, 1).window(window));
        assert!(peer.wait(hour).is_empty());
        assert!(peer.write(id, b"late").is_empty());
        // The handshake took no time: the first timeout is the minimum, and the next twice that.
        assert_eq!(peer.wait(Duration::from_millis(300)).len(), 1, "cork {cork}");
        assert_eq!(peer.state(id), TcpState::Established, "cork {cork}");
    }
}

#[test]
fn what_was_written_and_not_sent_may_be_bounded() {
    // Linux's TCP_NOTSENT_LOWAT.
    let settings = TcpSettings { unsent_bytes: Some(3000), ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &settings, MSS);
    // The initial window is sent; only the unsent rest counts.
    peer.write(id, &[1; 3000]);
    let mut written = 3000;
    while let Ok(n @ 1..) = peer.try_write(id, &[1; 10_000]) {
        written += n;
    }
    let (unsent, writable) = peer.unsent(id);
    assert!((3000..=4000).contains(&unsent) && !writable, "{unsent} of {written}");
    assert_eq!(peer.try_write(id, b"x"), Err(SendError::WouldBlock));
    peer.with(|tcp, _| core::iter::from_fn(|| tcp.next_event(0)).count());
    // Once segments are sent there is space, and the writer is notified.
    peer.give(put(A, 1, 3001));
    let mut events = crate::ConnectionEvents::NONE;
    peer.with(|tcp, _| {
        while let Some((_, news)) = tcp.next_event(0) {
            events.add(news);
        }
    });
    assert!(events.contains(crate::ConnectionEvents::WRITABLE) && peer.unsent(id).1);
    assert!(peer.try_write(id, b"x").is_ok());
}

#[test]
fn a_window_may_be_kept_over_a_pause() {
    // Linux's tcp_slow_start_after_idle; RFC 5681 section 4.1 requires the reduction.
    for shrinks in [true, false] {
        let settings = TcpSettings { slow_start_after_idle: shrinks, ..TcpSettings::default() };
        let (mut peer, id) = Peer::accepted(false, &settings, MSS);
        let mut acked = 1;
        for _ in 0..4 {
            let data = peer.write(id, &[1; 40_000]).iter().map(|out| out.data.len()).sum::<usize>();
            acked += data as u32;
            while peer.unsent(id).0 > 0 {
                let more = peer.give(put(A, 1, acked));
                acked += more.iter().map(|out| out.data.len()).sum::<usize>() as u32;
            }
            peer.give(put(A, 1, acked));
        }
        peer.wait(Duration::from_secs(60));
        let burst = peer.write(id, &[1; 40_000]).len();
        assert_eq!(burst <= 10, shrinks, "{burst} segments at once");
    }
}

#[test]
fn a_sender_avoids_silly_windows() {
    // RFC 9293 section 3.8.6.2.1.
    let (mut peer, id) = Peer::accepted(false, &TcpSettings::default(), MSS);
    peer.give(put(A, 1, 1).window(3000));
    assert_eq!(peer.write(id, &[0; 9000]).len(), 3);
    // The window opens by a little: not enough for a segment.
    assert!(peer.give(put(A, 1, 1001).window(2100)).is_empty());
    let out = peer.give(put(A, 1, 1001).window(3000));
    assert_eq!(out.iter().map(|out| out.data.len()).collect::<Vec<_>>(), [1000]);
}

#[test]
fn a_shut_window_is_asked_about_ever_more_rarely_and_then_filled() {
    // RFC 9293 section 3.8.6.1.
    let (mut peer, id) = Peer::accepted(true, &TcpSettings::default(), MSS);
    peer.give(put(A, 1, 1).window(0));
    assert!(peer.write(id, b"waiting").is_empty());
    let probes = peer.wait(Duration::from_secs(60));
    assert!((5..=8).contains(&probes.len()), "{}", probes.len());
    assert!(probes.iter().all(|out| out.seq == peer.ours(0) && out.data.is_empty()));
    let out = peer.give(put(A, 1, 1).window(100));
    assert_eq!(out[0].data, b"waiting");
}

#[test]
fn a_window_that_stays_shut_ends_the_connection_in_the_end() {
    // RFC 6429; row 14: Nkiller2. The peer answers every probe.
    let (mut peer, id) = Peer::accepted(false, &TcpSettings::default(), MSS);
    peer.give(put(A, 1, 1).window(0));
    peer.write(id, b"waiting");
    let mut probes = 0;
    for _ in 0..1000 {
        for out in peer.wait(Duration::from_secs(1)) {
            probes += 1;
            if out.flags != (R | A) {
                peer.give(put(A, 1, 1).window(0));
            }
        }
    }
    assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::TimedOut)));
    assert!(probes < 40, "{probes}");
}

#[test]
fn a_window_that_shrinks_is_survived() {
    // RFC 9293 section 3.8.6: MUST-34; row 32.
    let (mut peer, id) = Peer::accepted(false, &TcpSettings::default(), MSS);
    peer.give(put(A, 1, 1).window(5000));
    assert_eq!(peer.write(id, &[1; 8000]).len(), 5);
    assert!(peer.give(put(A, 1, 1001).window(100)).is_empty());
    assert!(peer.give(put(A, 1, 5001).window(0)).is_empty());
    let out = peer.give(put(A, 1, 5001).window(50_000));
    assert_eq!(out.iter().map(|out| out.data.len()).sum::<usize>(), 3000);
}

#[test]
fn a_silent_peer_is_asked_and_given_up_when_it_does_not_answer() {
    // RFC 9293 section 3.8.4.
    let second = Duration::from_secs(1);
    let keepalive = Some(Keepalive { idle: 10 * second, interval: second, count: 3 });
    let settings = TcpSettings { keepalive, ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &settings, MSS);
    assert!(peer.wait(9 * second).is_empty());
    let probes = peer.wait(2 * second);
    assert!(probes.iter().all(|out| out.seq == peer.ours(0) && out.data.is_empty()));
    assert!(!probes.is_empty());
    peer.give(put(A, 1, 1));
    assert!(peer.wait(9 * second).is_empty(), "the connection stays open");
    let end = peer.wait(20 * second);
    assert_eq!((end.len(), end.last().unwrap().flags), (4, R | A));
    assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::TimedOut)));
    // Off by default (MUST-25).
    let (mut peer, _) = Peer::accepted(false, &TcpSettings::default(), MSS);
    assert!(peer.wait(Duration::from_secs(20_000)).is_empty());
}

#[test]
fn a_silent_peer_is_asked_after_two_hours_where_no_time_was_set() {
    // RFC 9293 section 3.8.4 (MUST-28).
    for v6 in [false, true] {
        let settings =
            TcpSettings { keepalive: Some(Keepalive::default()), ..TcpSettings::default() };
        let (mut peer, _) = Peer::accepted(v6, &settings, MSS);
        assert!(peer.wait(Duration::from_secs(2 * 3600 - 1)).is_empty());
        let probes = peer.wait(Duration::from_secs(2));
        assert_eq!((probes.len(), probes[0].seq), (1, peer.ours(0)));
    }
}

#[test]
fn unacknowledged_data_ends_the_connection_after_the_user_timeout() {
    // RFC 5482.
    let settings =
        TcpSettings { user_timeout: Some(Duration::from_secs(5)), ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &settings, MSS);
    peer.write(id, b"x");
    peer.wait(Duration::from_secs(4));
    assert_eq!(peer.state(id), TcpState::Established);
    let out = peer.wait(Duration::from_secs(10));
    assert_eq!(out.last().unwrap().flags, R | A);
    let now = peer.now;
    let (tcp, mut lend) = peer.host.lend(now);
    let error = SendError::Connection(ConnectionError::TimedOut);
    assert_eq!(tcp.send(&mut lend, id, b"y"), Err(error));
    assert_eq!(tcp.send(&mut lend, id, b"y"), Err(SendError::Closed));
}

#[test]
fn a_receiver_offers_no_silly_windows_and_tells_when_it_has_room() {
    // RFC 9293 section 3.8.6.2.2.
    let settings = TcpSettings { receive_bytes: 10_000, ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &settings, MSS);
    for n in 0..8 {
        peer.give(put(A, 1 + 1000 * n, 1).data(&[n as u8; 1000]));
    }
    let shut = peer.wait(Duration::from_millis(100));
    let before = peer.host.tcp.readable(id).unwrap();
    assert!(before >= 4000, "{before}");
    // A one-byte read sends no window update; a large read does.
    assert!(peer.read(id, 1).1.is_empty());
    let (_, news) = peer.read(id, 9000);
    assert_eq!(news.len(), 1, "{shut:?}");
    assert!(news[0].window > 5000 && news[0].data.is_empty());
}

#[test]
fn a_peer_that_acknowledges_in_pieces_gains_nothing() {
    // Row 27: Savage 1999; RFC 3465.
    let (mut one, a) = Peer::accepted(false, &TcpSettings::default(), MSS);
    let (mut many, b) = Peer::accepted(false, &TcpSettings::default(), MSS);
    let data = [0; 60_000];
    let first: usize = one.write(a, &data).len();
    assert_eq!(many.write(b, &data).len(), first);
    let whole = one.give(put(A, 1, 1001)).len();
    let pieces: usize = (1..=50).map(|n| many.give(put(A, 1, 1 + 20 * n)).len()).sum();
    assert!(pieces <= whole, "{pieces} for {whole}");
}

#[test]
fn full_segments_that_vanish_again_and_again_become_smaller() {
    // RFC 4821 section 7.7: a router that drops large packets without an ICMP error.
    for (v6, smaller) in [(false, 1024), (true, 1220)] {
        let large = TcpOptionSet { mss: Some(1440), ..TcpOptionSet::NONE };
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), large);
        assert_eq!(peer.write(id, &[7; 4000])[0].data.len(), 1440);
        let out = peer.wait(Duration::from_secs(10));
        let sizes: Vec<usize> = out.iter().map(|segment| segment.data.len()).collect();
        assert_eq!(sizes[..2], [1440; 2], "one or two losses change nothing");
        assert_eq!(sizes.last(), Some(&smaller));
        // The held data is complete once segments fit the path.
        let mut arrived = smaller;
        let mut out = peer.give(put(A, 1, 1 + smaller as u32));
        for _ in 0..50 {
            if out.is_empty() {
                out = peer.wait(Duration::from_secs(130));
            }
            for segment in &out {
                assert!(segment.data.len() <= smaller, "{} bytes", segment.data.len());
                if segment.seq == peer.ours(1 + arrived as u32) {
                    arrived += segment.data.len();
                }
            }
            if arrived == 4000 {
                break;
            }
            out = peer.give(put(A, 1, 1 + arrived as u32));
        }
        assert_eq!(arrived, 4000);
    }
}

/// A sent packet is the stored chunk, in one piece with its headers; a retransmission while a
/// device still owns the first packet has its headers before the same bytes, and does not overwrite
/// the first ones.
#[test]
fn a_segment_lies_in_the_chunk_that_was_written_and_is_repeated_while_it_travels() {
    for v6 in [false, true] {
        for (len, header) in [(1000, 20), (64, 32)] {
            let stamps = (header == 32).then_some(Timestamps { value: 7, echo: 0 });
            let options = TcpOptionSet { timestamps: stamps, ..MSS };
            let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), options);
            let text: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let now = peer.now;
            let (tcp, mut lend) = peer.host.lend(now);
            assert_eq!(tcp.send(&mut lend, id, &text), Ok(text.len()));
            let mut first = tcp.transmit(&mut lend).unwrap().packet;
            assert_eq!((first.chunk_count(), first.len()), (1, header + len));
            assert_eq!(first.first()[header..], text[..]);
            assert!(first.headroom() >= 58, "IPv6 and a tagged frame: {}", first.headroom());
            // Lower layers write their headers; the text is read-only.
            first.prepend(58).unwrap().fill(0xee);
            assert!(first.front_mut(58 + header).is_some() && first.first_mut().is_none());
            let before = first.first().to_vec();
            let again = peer.wait(Duration::from_secs(2));
            assert_eq!(again[0].data, text);
            assert_eq!(first.first(), before, "while a device has it");
            // After the acknowledgment, the memory lives as long as the device owns the packet.
            let ack = put(A, 1, 1 + len as u32);
            peer.give(if header == 32 { ack.time(9, 0) } else { ack });
            assert_eq!(peer.host.tcp.named(id).unwrap().snd.held(), 0);
            assert_eq!(first.first(), before);
        }
    }
}
