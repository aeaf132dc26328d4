//! What real peers do, and what they need for an answer: hosts that leave timestamps out, clients
//! behind a NAT, senders of one segment at a time, odd options.

use core::time::Duration;

use floodwall_base::DropReason;
use floodwall_syncache::CookiePolicy;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use crate::tests::peer::{A, F, PORT, Peer, Put, R, S, put};
use crate::{Acknowledge, ConnectionError, Keepalive, RecvError, TcpSettings, TcpState};

const SECOND: Duration = Duration::from_secs(1);
const P: TcpFlags = TcpFlags::PSH;

fn with_timestamps() -> TcpOptionSet {
    let timestamps = Some(Timestamps { value: 1000, echo: 0 });
    TcpOptionSet { timestamps, mss: Some(1400), ..TcpOptionSet::NONE }
}

#[test]
fn segments_without_the_timestamp_agreed_on_are_taken() {
    // Keepalives of some hosts, with and without a byte of garbage; their data; a reset.
    for v6 in [false, true] {
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), with_timestamps());
        peer.give(put(A | P, 1, 1).time(1002, 0).data(b"hello"));
        for garbage in [&b""[..], b"\0"] {
            peer.wait(SECOND);
            let answer = peer.give(put(A, 5, 1).data(garbage));
            assert!(peer.is_ack(&answer, 6), "{v6} {garbage:?}: {answer:?}");
            assert!(answer[0].options.timestamps.is_some(), "ours has one all the same");
        }
        peer.give(put(A | P, 6, 1).data(b" again"));
        assert_eq!(peer.read(id, 99).0, Ok(b"hello again".to_vec()));
        // An old one is still dropped (RFC 7323 section 5.3).
        peer.give(put(A | P, 12, 1).time(900, 0).data(b"old"));
        assert_eq!(peer.dropped, Some(DropReason::TcpTimestamp));
        // Nor need the handshake's ACK have one.
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        let answer = peer.give(Put { options: with_timestamps(), ..put(S, 0, 0) }).remove(0);
        peer.iss = answer.seq;
        peer.give(put(A, 1, 1));
        let id = peer.host.tcp.accept(listener).unwrap().unwrap();
        let echoed = peer.write(id, b"x")[0].options.timestamps.unwrap().echo;
        assert_eq!(echoed, 1000, "of the SYN, as no other came");
    }
}

/// A connection of a peer that we have closed first, in TIME-WAIT, released by its program or not.
fn closed_by_us(v6: bool, options: TcpOptionSet, released: bool) -> (Peer, u32) {
    let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), options);
    let stamp = |put: Put<'static>| match options.timestamps {
        Some(_) => put.time(1001, 0),
        None => put,
    };
    if released {
        peer.close(id)
    } else {
        peer.shutdown(id)
    };
    peer.give(stamp(put(A, 1, 2)));
    let answer = peer.give(stamp(put(F | A, 1, 2)));
    assert!(peer.is_ack(&answer, 2));
    (peer, 1_000_000)
}

#[test]
fn a_client_behind_a_nat_reuses_the_port_of_a_connection_that_we_closed() {
    // RFC 9293 section 3.10.7.3: a peer in SYN-SENT resets what acknowledges another SYN than its
    // own; RFC 1337: no other reset ends TIME-WAIT.
    for v6 in [false, true] {
        for released in [false, true] {
            for options in [TcpOptionSet::NONE, with_timestamps()] {
                let (mut peer, below) = closed_by_us(v6, options, released);
                let lower = 0_u32.wrapping_sub(below);
                // A reset before any SYN is RFC 1337's.
                peer.give(put(R, 2, 0));
                assert_eq!(peer.dropped, Some(DropReason::TcpOutOfWindow));
                let answer = peer.give(put(S, lower, 0));
                assert!(peer.is_ack(&answer, 2), "{answer:?}");
                // Inexact ones change nothing.
                for seq in [1, 3, lower] {
                    peer.give(put(R, seq, 0));
                    peer.wait(SECOND);
                    let answer = peer.give(put(S, lower, 0));
                    assert!(peer.is_ack(&answer, 2), "{answer:?}");
                }
                peer.give(put(R, 2, 0));
                peer.wait(SECOND);
                let answer = peer.give(put(S, lower, 0));
                assert_eq!(answer[0].flags, S | A, "{v6} {released} {options:?}");
            }
        }
    }
}

#[test]
fn a_syn_is_later_by_the_timestamps_that_only_the_new_connection_has() {
    // RFC 6191 section 2.
    for v6 in [false, true] {
        for released in [false, true] {
            let (mut peer, below) = closed_by_us(v6, TcpOptionSet::NONE, released);
            let syn = put(S, 0_u32.wrapping_sub(below), 0);
            let answer = peer.give(syn.clone());
            assert!(peer.is_ack(&answer, 2));
            assert_eq!(peer.give(syn.time(5, 0))[0].flags, S | A, "{v6} {released}");
        }
        // Not where the listener agrees to none.
        let settings = TcpSettings { timestamps: false, ..TcpSettings::default() };
        let (mut peer, id) = Peer::accepted(v6, &settings, TcpOptionSet::NONE);
        peer.close(id);
        peer.give(put(A, 1, 2));
        peer.give(put(F | A, 1, 2));
        let answer = peer.give(put(S, 0_u32.wrapping_sub(9999), 0).time(5, 0));
        assert!(peer.is_ack(&answer, 2));
    }
}

#[test]
fn an_answer_to_an_earlier_connection_is_reset_and_the_syn_sent_again_at_once_and_once() {
    // RFC 5961 section 4.2: a challenge ACK, which our reset answers.
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let id = peer.connect(&TcpSettings::default());
        let answer = peer.give(put(A, 7000, 5000));
        let flags: Vec<_> = answer.iter().map(|out| (out.flags, out.seq)).collect();
        assert_eq!(flags, [(R, peer.ours(5000)), (S, peer.ours(0))]);
        // More of them bring resets alone, and resets bring nothing.
        assert_eq!(peer.give(put(A, 7000, 5000)).len(), 1);
        assert!(peer.give(put(R | A, 7000, 5000)).is_empty());
        peer.wait(SECOND / 4);
        assert_eq!(peer.give(put(S | A, 0, 1))[0].flags, A);
        assert_eq!(peer.state(id), TcpState::Established);
        // Measured from the second SYN.
        let now = peer.now;
        assert_eq!(peer.host.tcp.info(id, now).unwrap().rtt, SECOND / 4);
    }
}

#[test]
fn a_user_timeout_is_kept_to_the_millisecond() {
    // RFC 5482: of data, of a window that is shut, of a silent peer, of a SYN.
    let settings = TcpSettings { user_timeout: Some(3 * SECOND), ..TcpSettings::default() };
    let just_before = 3 * SECOND - Duration::from_millis(1);
    let gives_up = |peer: &mut Peer, id, what: &str| {
        peer.wait(just_before);
        assert_ne!(peer.state(id), TcpState::Closed, "{what}");
        peer.wait(Duration::from_millis(2));
        assert_eq!(peer.state(id), TcpState::Closed, "{what}");
        let (read, _) = peer.read(id, 9);
        assert_eq!(read, Err(RecvError::Connection(ConnectionError::TimedOut)));
    };
    for v6 in [false, true] {
        let (mut peer, id) = Peer::accepted(v6, &settings, TcpOptionSet::NONE);
        peer.wait(500 * SECOND);
        peer.write(id, b"x");
        gives_up(&mut peer, id, "data");
        let (mut peer, id) = Peer::accepted(v6, &settings, TcpOptionSet::NONE);
        peer.give(put(A, 1, 1).window(0));
        peer.wait(500 * SECOND);
        assert!(peer.write(id, b"x").is_empty());
        gives_up(&mut peer, id, "shut");
        let mut peer = Peer::new(v6);
        let id = peer.connect(&settings);
        gives_up(&mut peer, id, "syn");
    }
}

#[test]
fn a_user_timeout_takes_the_place_of_the_count_of_keepalives() {
    // RFC 5482 section 4.2; tcp(7).
    for (timeout, probes) in [(3, 1), (25, 3)] {
        let keepalive = Some(Keepalive { idle: 10 * SECOND, interval: 6 * SECOND, count: 2 });
        let user_timeout = Some(timeout * SECOND);
        let settings = TcpSettings { keepalive, user_timeout, ..TcpSettings::default() };
        let (mut peer, id) = Peer::accepted(true, &settings, TcpOptionSet::NONE);
        let sent = peer.wait(100 * SECOND);
        assert_eq!(sent.iter().filter(|out| out.flags == A).count(), probes, "{sent:?}");
        assert_eq!(peer.state(id), TcpState::Closed);
        // A peer that answers is kept.
        let (mut peer, id) = Peer::accepted(false, &settings, TcpOptionSet::NONE);
        for _ in 0..20 {
            peer.wait(10 * SECOND);
            peer.give(put(A, 1, 1));
        }
        assert_eq!(peer.state(id), TcpState::Established);
    }
}

#[test]
fn the_acknowledgment_of_a_repeated_last_segment_counts() {
    // RFC 9293 section 3.10.7.4: all of it is old but its acknowledgment.
    for v6 in [false, true] {
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), TcpOptionSet::NONE);
        peer.give(put(A | P, 1, 1).data(b"query"));
        assert_eq!(peer.write(id, b"answer").len(), 1);
        // Before that the peer repeats more, or less: that acknowledges nothing.
        peer.give(put(A | P, 0, 7).data(b"quer"));
        let unacknowledged = |peer: &Peer| peer.host.tcp.unacknowledged(id).unwrap();
        assert_eq!(unacknowledged(&peer), 6);
        peer.give(put(A | P, 1, 7).data(b"query"));
        assert_eq!(peer.dropped, Some(DropReason::TcpOutOfWindow));
        assert_eq!(unacknowledged(&peer), 0, "{v6}");
        assert_eq!(peer.read(id, 99).0, Ok(b"query".to_vec()), "once");
        // A byte of garbage before the window, too; and a FIN that comes again.
        peer.write(id, b"more");
        peer.give(put(A, 5, 11).data(b"\0"));
        assert_eq!(unacknowledged(&peer), 0);
        peer.give(put(F | A, 6, 11));
        peer.close(id);
        peer.give(put(F | A, 6, 12));
        assert!(peer.host.tcp.is_empty(), "our FIN was acknowledged");
    }
}

#[test]
fn a_reset_for_data_after_close_has_the_number_that_the_peer_expects() {
    // RFC 9293 section 3.10.7.4 and RFC 5961 section 3.2: the peer has not received our FIN.
    for v6 in [false, true] {
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), TcpOptionSet::NONE);
        peer.close(id);
        let answer = peer.give(put(A, 1, 1).data(b"hello?"));
        assert_eq!((answer[0].flags, answer[0].seq), (R, peer.ours(1)), "{answer:?}");
        assert!(peer.host.tcp.is_empty());
    }
}

#[test]
fn our_segment_size_is_told_to_a_peer_that_told_none() {
    // RFC 9293 section 3.7.1, SHLD-5; where cookies answer, no answer is longer than its SYN.
    for (v6, size) in [(false, 1460), (true, 1440)] {
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        assert_eq!(peer.give(put(S, 0, 0))[0].options.mss, Some(size));
        assert_eq!(peer.wait(2 * SECOND)[0].options.mss, Some(size), "nor when it is sent again");
        peer.host.tcp.set_cookies(listener, CookiePolicy::Always).unwrap();
        peer.peer_port += 1;
        assert_eq!(peer.give(put(S, 0, 0))[0].options, TcpOptionSet::NONE);
    }
}

#[test]
fn a_syn_with_a_malformed_option_is_answered_by_what_can_be_read() {
    // RFC 9293 section 3.1, MUST-7; as Linux reads them.
    let told = |mss, scale| (mss, scale);
    for (options, expected) in [
        // A length of zero ends the list, before anything or behind the segment size.
        (&[1, 2, 0, 0, 2, 4, 4, 0][..], told(536, false)),
        (&[2, 4, 4, 0, 99, 0, 3, 3][..], told(1024, false)),
        (&[2, 4, 4, 0, 99, 255, 0, 0][..], told(1024, false)),
        (&[2, 4, 4, 0, 1, 1, 1, 8][..], told(1024, false)),
        // A length that does not suit its kind: the option alone is skipped.
        (&[2, 3, 5, 1, 3, 3, 7, 0][..], told(536, true)),
        (&[2, 4, 4, 0, 4, 3, 0, 1, 3, 3, 7, 0][..], told(1024, true)),
        (&[3, 4, 7, 7, 2, 4, 4, 0][..], told(1024, false)),
        (&[8, 4, 0, 0, 5, 3, 1, 1, 2, 4, 4, 0][..], told(1024, false)),
    ] {
        let mut peer = Peer::new(false);
        let listener = peer.listen(&TcpSettings::default(), 4);
        let mut bytes = peer.bytes(&put(S, 0, 0));
        bytes.extend_from_slice(options);
        bytes[12] = (bytes.len() as u8 / 4) << 4;
        bytes[16..18].fill(0);
        let pseudo = crate::pseudo_header::pseudo_header(&peer.flow(), bytes.len() as u32).unwrap();
        let check = pseudo.add(floodwall_checksum::sum(&bytes)).finish();
        bytes[16..18].copy_from_slice(&check.to_be_bytes());
        let answer = peer.give_bytes(&bytes);
        let [answer] = &answer[..] else { panic!("{options:?}: {answer:?}") };
        assert_eq!(answer.options.window_scale.is_some(), expected.1, "{options:?}");
        peer.iss = answer.seq;
        peer.give(put(A, 1, 1));
        let id = peer.host.tcp.accept(listener).unwrap().unwrap();
        assert_eq!(peer.write(id, &[0; 3000])[0].data.len(), expected.0, "{options:?}");
    }
}

#[test]
fn syn_acks_are_repeated_for_half_a_minute_and_the_handshake_may_end_after_a_minute() {
    // As Linux's tcp_synack_retries: at 1, 3, 7, 15 and 31 seconds, and over after 63.
    for v6 in [false, true] {
        for seconds in [16, 40, 60, 65] {
            let mut peer = Peer::new(v6);
            let listener = peer.listen(&TcpSettings::default(), 4);
            peer.iss = peer.give(put(S, 0, 0)).remove(0).seq;
            let again = peer.wait(seconds * SECOND + SECOND / 2);
            assert!(again.iter().all(|out| out.flags == S | A && out.seq == peer.iss));
            assert_eq!(again.len(), if seconds > 33 { 5 } else { 4 });
            let answer = peer.give(put(A, 1, 1));
            let is_open = peer.host.tcp.accept(listener).unwrap().is_some();
            assert_eq!((is_open, answer.len()), (seconds < 63, usize::from(seconds > 63)));
        }
    }
}

/// How often of `count` segments one is acknowledged at once, where each waits for that.
fn at_once(peer: &mut Peer, seq: &mut u32, count: u32, put: &Put<'_>) -> u32 {
    let mut quick = 0;
    for _ in 0..count {
        let mut answer = peer.give(Put { seq: *seq, ..put.clone() });
        *seq += put.data.len() as u32;
        // At the end of the round.
        answer.extend(peer.wait(Duration::ZERO));
        quick += u32::from(peer.is_ack(&answer, *seq));
        let late = peer.wait(Duration::from_millis(100));
        assert_eq!(answer.len() + late.len(), 1, "one acknowledgment each");
    }
    quick
}

#[test]
fn a_sender_of_one_segment_at_a_time_need_not_wait_for_each_acknowledgment() {
    for v6 in [false, true] {
        let full = [7; 1000];
        for (data, flags, least) in
            [(&full[..], A, 37), (&full, A | P, 40), (&full[..100], A | P, 40), (b"k", A, 40)]
        {
            let options = TcpOptionSet { mss: Some(1000), ..TcpOptionSet::NONE };
            let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), options);
            let (mut seq, segment) = (1, put(flags, 0, 1).data(data));
            let quick = at_once(&mut peer, &mut seq, 40, &segment);
            assert!(quick >= least, "{} bytes: {quick} of 40", data.len());
            // A program that answers in the same round carries it.
            assert!(peer.give(Put { seq, ..segment.clone() }).is_empty());
            seq += data.len() as u32;
            let answer = peer.write(id, b"answer");
            assert_eq!((answer.len(), answer[0].ack), (1, peer.theirs(seq)));
            assert!(peer.wait(Duration::ZERO).is_empty());
            peer.give(put(A, seq, 7));
            // It is expected to answer again, though later.
            assert!(peer.give(Put { seq, ack: 7, ..segment.clone() }).is_empty());
            assert!(peer.wait(Duration::from_millis(30)).is_empty());
            let answer = peer.write(id, b"again");
            seq += data.len() as u32;
            assert_eq!((answer.len(), answer[0].ack), (1, peer.theirs(seq)));
        }
    }
}

#[test]
fn quick_acknowledgments_wait_until_the_program_has_accepted_the_connection() {
    for v6 in [false, true] {
        let open = || {
            let mut peer = Peer::new(v6);
            let listener = peer.listen(&TcpSettings::default(), 4);
            peer.iss = peer.give(put(S, 0, 0)).remove(0).seq;
            assert!(peer.give(put(A, 1, 1)).is_empty());
            assert!(peer.give(put(A | P, 1, 1).data(b"request")).is_empty());
            assert!(peer.wait(Duration::ZERO).is_empty(), "no program could have answered");
            (peer, listener)
        };
        // Accepted, and answered in the same round: one segment.
        let (mut peer, listener) = open();
        assert_eq!(peer.host.tcp.next_event(0), None, "it is no program's yet");
        let id = peer.host.tcp.accept(listener).unwrap().unwrap();
        assert_eq!(peer.host.tcp.next_event(0).map(|(of, _)| of), Some(id), "there is text");
        assert_eq!(peer.read(id, 99).0, Ok(b"request".to_vec()));
        let answer = peer.write(id, b"answer");
        assert_eq!((answer.len(), answer[0].ack), (1, peer.theirs(8)));
        assert!(peer.wait(Duration::from_millis(100)).is_empty());
        // Accepted, and not answered: at the end of that round; so are the next ones.
        let (mut peer, listener) = open();
        peer.host.tcp.accept(listener).unwrap().unwrap();
        let answer = peer.wait(Duration::ZERO);
        assert!(peer.is_ack(&answer, 8), "{answer:?}");
        let mut seq = 8;
        assert_eq!(at_once(&mut peer, &mut seq, 4, &put(A | P, 0, 1).data(b"more")), 4);
        // Not accepted: after the usual delay.
        let (mut peer, _) = open();
        assert!(peer.wait(Duration::from_millis(39)).is_empty());
        let answer = peer.wait(Duration::from_millis(2));
        assert!(peer.is_ack(&answer, 8), "{answer:?}");
        // Nothing has arrived: accepting sends nothing.
        let (mut peer, _) = Peer::accepted(v6, &TcpSettings::default(), TcpOptionSet::NONE);
        assert!(peer.wait(Duration::from_millis(100)).is_empty());
    }
}

#[test]
fn later_segments_of_a_first_flight_under_cookies_are_dropped_in_silence() {
    // The first was lost, and what comes first is a tail loss probe, or a FIN.
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        peer.host.tcp.set_cookies(listener, CookiePolicy::Always).unwrap();
        peer.iss = peer.give(put(S, 0, 0)).remove(0).seq;
        for late in [put(A | P, 6, 1).data(b" world"), put(F | A, 12, 1)] {
            assert!(peer.give(late).is_empty());
            assert_eq!(peer.dropped, Some(DropReason::TcpHandshakeRefused));
        }
        // What proves nothing and holds nothing is reset as ever.
        assert_eq!(peer.give(put(A, 12, 1))[0].flags, R);
        peer.give(put(A | P, 1, 1).data(b"hello"));
        peer.give(put(A | P, 6, 1).data(b" world"));
        let id = peer.host.tcp.accept(listener).unwrap().unwrap();
        assert_eq!(peer.read(id, 99).0, Ok(b"hello world".to_vec()));
        // Where no cookie is outstanding, a segment of no connection is reset.
        let mut peer = Peer::new(v6);
        peer.listen(&TcpSettings::default(), 4);
        assert_eq!(peer.give(put(A | P, 6, 1).data(b" world"))[0].flags, R);
        assert_eq!(peer.port, PORT);
    }
}

#[test]
fn a_cookie_agrees_to_no_more_than_it_keeps() {
    // Of ECN (RFC 3168) it keeps a bit in our timestamp, where there is one.
    let settings = TcpSettings { ecn: true, ..TcpSettings::default() };
    let setup = S | TcpFlags::ECE | TcpFlags::CWR;
    for v6 in [false, true] {
        for (policy, options, agrees) in [
            (CookiePolicy::Always, TcpOptionSet::NONE, false),
            (CookiePolicy::Always, with_timestamps(), true),
            (CookiePolicy::Overflow, TcpOptionSet::NONE, true),
        ] {
            let mut peer = Peer::new(v6);
            let listener = peer.listen(&settings, 4);
            peer.host.tcp.set_cookies(listener, policy).unwrap();
            let answer = peer.give(Put { options, ..put(setup, 0, 0) }).remove(0);
            assert_eq!(answer.flags.contains(TcpFlags::ECE), agrees, "{policy:?}");
            peer.iss = answer.seq;
            let mut ack = put(A, 1, 1);
            if let Some(ours) = answer.options.timestamps {
                ack = ack.time(1001, ours.value);
            }
            peer.give(ack);
            let now = peer.now;
            let id = peer.host.tcp.accept(listener).unwrap().unwrap();
            assert_eq!(peer.host.tcp.info(id, now).unwrap().ecn, agrees, "{policy:?}");
        }
    }
}

#[test]
fn data_of_a_sender_that_has_slowed_down_is_acknowledged_at_once() {
    // RFC 3168 section 6.1.2: with CWR it says so, and its window may be down to one segment.
    let acknowledge = Acknowledge::EverySecond;
    let settings = TcpSettings { ecn: true, acknowledge, ..TcpSettings::default() };
    for v6 in [false, true] {
        for (flags, answers) in [(A, 0), (A | TcpFlags::CWR, 1)] {
            let mut peer = Peer::new(v6);
            peer.listen(&settings, 4);
            let setup = put(S | TcpFlags::ECE | TcpFlags::CWR, 0, 0);
            peer.iss = peer.give(Put { options: with_timestamps(), ..setup }).remove(0).seq;
            peer.give(put(A, 1, 1).time(1001, 0));
            let answer = peer.give(put(flags, 1, 1).time(1002, 0).data(b"slowly"));
            assert_eq!(answer.len(), answers, "{flags:?}: {answer:?}");
        }
    }
}

#[test]
fn a_handshake_that_later_data_proves_takes_the_earlier_data_too() {
    // RFC 7323 section 4.3: TS.Recent follows what covers the last acknowledgment.
    for v6 in [false, true] {
        let mut peer = Peer::new(v6);
        let listener = peer.listen(&TcpSettings::default(), 4);
        let answer = peer.give(Put { options: with_timestamps(), ..put(S, 0, 0) }).remove(0);
        peer.iss = answer.seq;
        let echo = answer.options.timestamps.unwrap().value;
        peer.give(put(A | P, 4, 1).time(1005, echo).data(b"def"));
        peer.give(put(A | P, 1, 1).time(1002, echo).data(b"abc"));
        let id = peer.host.tcp.accept(listener).unwrap().unwrap();
        assert_eq!(peer.read(id, 99).0, Ok(b"abcdef".to_vec()));
    }
}

#[test]
fn nodelay_sends_what_waits_however_it_is_set() {
    for v6 in [false, true] {
        let (mut peer, id) = Peer::accepted(v6, &TcpSettings::default(), TcpOptionSet::NONE);
        peer.write(id, b"first");
        assert!(peer.write(id, b"second").is_empty(), "Nagle");
        let nodelay = TcpSettings { nodelay: true, ..TcpSettings::default() };
        let out = peer.with(|tcp, now| tcp.configure(id, &nodelay, now).unwrap());
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].data, b"second");
        // Once also what a cork holds back, which stays (tcp(7)).
        let corked = TcpSettings { cork: true, ..TcpSettings::default() };
        let (mut peer, id) = Peer::accepted(v6, &corked, TcpOptionSet::NONE);
        assert!(peer.write(id, b"first").is_empty(), "the cork");
        let nodelay = TcpSettings { nodelay: true, ..corked };
        let out = peer.with(|tcp, now| tcp.configure(id, &nodelay, now).unwrap());
        assert!(matches!(&out[..], [one] if one.data == b"first"), "{out:?}");
        assert!(peer.write(id, b"second").is_empty(), "the cork");
    }
}
