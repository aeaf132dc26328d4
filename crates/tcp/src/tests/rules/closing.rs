//! How connections end: RFC 9293 sections 3.6 and 3.10.4, RFC 1337, RFC 6191, RFC 2525.

use core::time::Duration;

use floodwall_base::{DropReason, IfIndex, Seq};
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use crate::tests::cable::FRAMES;
use crate::tests::peer::{A, F, Peer, R, S, put};
use crate::{
    Acknowledge, ConnectionError, FlowAdmission, RecvError, Segment, SendError, TcpSettings,
    TcpState,
};

fn open() -> (Peer, crate::ConnectionId) {
    Peer::accepted(false, &TcpSettings::default(), TcpOptionSet::NONE)
}

#[test]
fn both_sides_may_close_at_once() {
    // RFC 9293 section 3.6, figure 13.
    let (mut peer, id) = open();
    let fin = peer.shutdown(id);
    assert_eq!((fin[0].flags, fin[0].seq), (F | A, peer.ours(1)));
    let answer = peer.give(put(F | A, 1, 1));
    assert!(peer.is_ack(&answer, 2));
    assert_eq!(peer.state(id), TcpState::Closing);
    peer.give(put(A, 2, 2));
    assert_eq!(peer.state(id), TcpState::TimeWait);
}

#[test]
fn the_passive_side_closes_by_way_of_last_ack() {
    let (mut peer, id) = open();
    peer.give(put(F | A, 1, 1).data(b"bye"));
    assert_eq!(peer.state(id), TcpState::CloseWait);
    assert_eq!(peer.read(id, 9).0, Ok(b"bye".to_vec()));
    let last = peer.write(id, b"and bye");
    assert_eq!(last[0].data, b"and bye");
    assert_eq!(peer.close(id)[0].flags, F | A);
    peer.give(put(A, 5, 9));
    assert!(peer.host.tcp.is_empty());
}

#[test]
fn a_fin_waits_for_the_data_before_it_and_is_sent_again_until_acknowledged() {
    let (mut peer, id) = open();
    peer.give(put(A, 1, 1).window(536));
    assert_eq!(peer.write(id, &[7; 540])[0].data.len(), 536);
    assert!(peer.shutdown(id).is_empty());
    assert_eq!(peer.state(id), TcpState::Established);
    let rest = peer.give(put(A, 1, 537).window(500));
    assert_eq!((rest[0].flags, rest[0].data.len()), (F | A, 4));
    assert_eq!(peer.state(id), TcpState::FinWait1);
    let again = peer.wait(Duration::from_secs(3));
    assert!(!again.is_empty() && again.iter().all(|out| out.flags == F | A));
    peer.give(put(A, 1, 541));
    assert!(peer.wait(Duration::from_secs(9)).iter().all(|out| out.data.is_empty()));
    peer.give(put(A, 1, 542));
    assert_eq!(peer.state(id), TcpState::FinWait2);
    let now = peer.now;
    let (tcp, mut lend) = peer.host.lend(now);
    assert_eq!(tcp.send(&mut lend, id, b"more"), Err(SendError::Closed));
}

#[test]
fn data_for_an_application_that_has_gone_is_answered_by_a_reset() {
    // RFC 9293 section 3.6.1, MUST-17.
    let (mut peer, id) = open();
    peer.close(id);
    peer.give(put(A, 1, 2));
    let answer = peer.give(put(A, 1, 2).data(b"hello?"));
    assert_eq!((answer[0].flags, answer[0].seq), (R, peer.ours(2)));
    assert!(peer.host.tcp.is_empty());
}

#[test]
fn a_connection_that_is_let_go_with_data_unread_is_reset() {
    // RFC 2525 section 2.17.
    let (mut peer, id) = open();
    peer.give(put(A, 1, 1).data(b"unread"));
    let answer = peer.close(id);
    assert_eq!((answer[0].flags, answer[0].seq), (R | A, peer.ours(1)));
    assert!(peer.host.tcp.is_empty());
}

#[test]
fn an_abort_resets_at_once_and_forgets_what_was_written() {
    // RFC 9293 section 3.10.5.
    let (mut peer, id) = open();
    peer.give(put(A, 1, 1).window(0));
    peer.write(id, b"never sent");
    let now = peer.now;
    let (tcp, mut lend) = peer.host.lend(now);
    tcp.abort(&lend, id).unwrap();
    let out = tcp.transmit(&mut lend).unwrap();
    assert_eq!(out.packet.len(), 20);
    assert!(peer.host.tcp.is_empty());
    assert_eq!(peer.host.pool.available().small, 4096 - 1);
    drop(out);
}

#[test]
fn received_data_is_read_before_a_reset_is_told() {
    let (mut peer, id) = open();
    peer.give(put(A, 1, 1).data(b"first this"));
    peer.give(put(R, 11, 0));
    assert_eq!(peer.read(id, 99).0, Ok(b"first this".to_vec()));
    assert_eq!(peer.read(id, 9).0, Err(RecvError::Connection(ConnectionError::Reset)));
    assert_eq!(peer.read(id, 9).0, Ok(vec![]), "an error is given once");
}

#[test]
fn an_orphan_waits_a_minute_for_the_peers_fin() {
    // Row 14.
    let (mut peer, id) = open();
    peer.close(id);
    peer.give(put(A, 1, 2));
    assert_eq!(peer.host.tcp.len(), 1);
    let out = peer.wait(Duration::from_secs(61));
    assert_eq!(out.last().unwrap().flags, R | A);
    assert!(peer.host.tcp.is_empty());
}

#[test]
fn an_orphan_with_an_unacknowledged_fin_is_given_up() {
    // Row 14: Sockstress.
    let (mut peer, id) = open();
    peer.write(id, b"data without acknowledgment");
    peer.close(id);
    let out = peer.wait(Duration::from_secs(300));
    assert!(peer.host.tcp.is_empty());
    assert!((4..30).contains(&out.len()), "{}", out.len());
    let free = peer.host.pool.available();
    assert_eq!((free.frames, free.small, free.references), (FRAMES, 4096, 8192));
}

/// A connection that we have closed first, and that the application has released: a TIME-WAIT
/// record.
fn in_time_wait() -> Peer {
    let timestamps = Some(Timestamps { value: 1000, echo: 0 });
    let options = TcpOptionSet { timestamps, ..TcpOptionSet::NONE };
    let (mut peer, id) = Peer::accepted(false, &TcpSettings::default(), options);
    peer.close(id);
    peer.give(put(A, 1, 2).time(1002, 0));
    let answer = peer.give(put(F | A, 1, 2).time(1003, 0));
    assert!(peer.is_ack(&answer, 2));
    assert_eq!((peer.host.tcp.len(), peer.state(id)), (1, TcpState::Closed));
    peer
}

#[test]
fn a_reset_does_not_cut_time_wait_short() {
    // RFC 1337; row 13.
    let mut peer = in_time_wait();
    assert!(peer.give(put(R, 2, 0)).is_empty());
    assert_eq!(peer.dropped, Some(DropReason::TcpOutOfWindow));
    assert_eq!(peer.host.tcp.len(), 1);
}

#[test]
fn a_repeated_fin_is_acknowledged_in_time_wait_which_begins_anew() {
    let mut peer = in_time_wait();
    peer.wait(Duration::from_secs(50));
    let answer = peer.give(put(F | A, 1, 2).time(1003, 0));
    assert!(peer.is_ack(&answer, 2));
    peer.wait(Duration::from_secs(50));
    assert_eq!(peer.host.tcp.len(), 1);
    peer.wait(Duration::from_secs(11));
    assert!(peer.host.tcp.is_empty());
}

#[test]
fn a_later_syn_opens_anew_out_of_time_wait_and_an_old_one_does_not() {
    // RFC 6191 section 2.
    let mut peer = in_time_wait();
    let old = peer.give(put(S, 5000, 0).time(999, 0));
    assert!(peer.is_ack(&old, 2), "{old:?}");
    let new = peer.give(put(S, 5000, 0).time(3000, 0));
    assert!(new[0].flags.contains(S | A));
}

#[test]
fn the_acknowledgment_of_a_fin_waits_for_ours_where_both_sides_have_sent_text() {
    for v6 in [false, true] {
        let accepted = || Peer::accepted(v6, &TcpSettings::default(), TcpOptionSet::NONE);
        let (mut peer, id) = accepted();
        let answer = peer.give(put(F | A, 1, 1));
        assert!(peer.is_ack(&answer, 2), "nothing was heard before: {answer:?}");
        assert_eq!(peer.state(id), TcpState::CloseWait);

        let heard = || {
            let (mut peer, id) = accepted();
            peer.give(put(A, 1, 1).data(b"text"));
            peer.wait(Duration::from_millis(300));
            assert_eq!(peer.read(id, 9).0, Ok(b"text".to_vec()));
            (peer, id)
        };
        // FreeBSD's rcv-data-segments: what only receives acknowledges at once.
        let (mut peer, _) = heard();
        let answer = peer.give(put(F | A, 5, 1));
        assert!(peer.is_ack(&answer, 6), "nothing was said: {answer:?}");

        let answered = || {
            let (mut peer, id) = heard();
            assert_eq!(peer.write(id, b"fine").len(), 1);
            peer.give(put(A, 5, 5));
            (peer, id)
        };
        let (mut peer, id) = answered();
        assert!(peer.give(put(F | A, 5, 5)).is_empty(), "it waits");
        let fin = peer.close(id);
        assert!(matches!(&fin[..], [one] if one.flags == F | A && one.ack == peer.theirs(6)));
        peer.give(put(A, 6, 6));
        assert!(peer.host.tcp.is_empty() && peer.wait(Duration::from_secs(9)).is_empty());

        let (mut peer, _) = answered();
        assert!(peer.give(put(F | A, 5, 5)).is_empty());
        assert!(peer.wait(Duration::from_millis(39)).is_empty());
        let answer = peer.wait(Duration::from_millis(3));
        assert!(peer.is_ack(&answer, 6), "after the delay: {answer:?}");

        // The peer repeats its FIN: it was not heard, as far as the peer knows.
        let (mut peer, _) = answered();
        assert!(peer.give(put(F | A, 5, 5)).is_empty());
        let answer = peer.give(put(F | A, 5, 5));
        assert!(peer.is_ack(&answer, 6), "{answer:?}");
        // After our FIN there is nothing to wait for.
        let (mut peer, id) = answered();
        assert_eq!(peer.shutdown(id)[0].flags, F | A);
        let answer = peer.give(put(F | A, 5, 6));
        assert!(peer.is_ack(&answer, 6), "{answer:?}");
    }
    let settings = TcpSettings { acknowledge: Acknowledge::AtOnce, ..TcpSettings::default() };
    let (mut peer, id) = Peer::accepted(false, &settings, TcpOptionSet::NONE);
    assert_eq!(peer.give(put(A, 1, 1).data(b"text")).len(), 1);
    assert_eq!(peer.write(id, b"fine").len(), 1);
    let answer = peer.give(put(F | A, 5, 5));
    assert!(peer.is_ack(&answer, 6), "all is acknowledged at once: {answer:?}");
}

/// The segments that are predicted in a state, out of a list with every field wrong in turn.
fn predicted(peer: &mut Peer, next: (u32, u32)) -> Vec<&'static str> {
    let (seq, ack) = (Seq(peer.theirs(next.0)), Seq(peer.ours(next.1)));
    let (flow, admission) = (peer.flow(), FlowAdmission { iface: IfIndex(1), generation: 3 });
    let tcp = &mut peer.host.tcp;
    tcp.admit(&flow, admission, || true);
    let plain = Segment { seq, ack, flags: A, window: 9_000, ..Segment::NONE };
    let fin = Segment { flags: F | A, ..plain };
    let stamped = Timestamps { value: 9, echo: 0 };
    let stamped = TcpOptionSet { timestamps: Some(stamped), ..TcpOptionSet::NONE };
    let edge = tcp.named(tcp.id(tcp.latest())).unwrap().rcv.edge.since(seq);
    let all = [
        ("ack", plain),
        ("fin", fin),
        ("text", Segment { len: 64, ..plain }),
        ("text and fin", Segment { len: 64, ..fin }),
        ("the whole window", Segment { len: edge, ..plain }),
        ("the whole window but one, and fin", Segment { len: edge - 1, ..fin }),
        ("fin behind the window", Segment { len: edge, ..fin }),
        ("a later ack", Segment { seq: seq + 1, ..plain }),
        ("an earlier ack", Segment { seq: seq - 1, ..plain }),
        ("a later fin", Segment { seq: seq + 1, ..fin }),
        ("an earlier fin", Segment { seq: seq - 1, ..fin }),
        ("ack of what was not sent", Segment { ack: ack + 1, ..plain }),
        ("fin with an ack of what was not sent", Segment { ack: ack + 1, ..fin }),
        ("fin with an old ack", Segment { ack: ack - 9, ..fin }),
        ("ack with timestamps", Segment { options: stamped, ..plain }),
        ("fin with timestamps", Segment { options: stamped, ..fin }),
    ];
    let mut found = vec![];
    for (name, segment) in all {
        let index = tcp.predicts(&flow, admission, &segment, true);
        found.extend(index.map(|_| name));
        let other = FlowAdmission { generation: 4, ..admission };
        assert_eq!(tcp.predicts(&flow, other, &segment, true), None, "{name}: not admitted");
    }
    found
}

#[test]
fn a_segment_is_predicted_where_the_state_hears_it_and_no_field_is_wrong() {
    let fins = ["fin", "text and fin", "the whole window but one, and fin"];
    let texts = ["text", "the whole window"];
    let ack = vec!["ack"];
    let open_hears: std::collections::BTreeSet<_> =
        ["ack"].into_iter().chain(fins).chain(texts).collect();
    for v6 in [false, true] {
        let accepted = || Peer::accepted(v6, &TcpSettings::default(), TcpOptionSet::NONE);
        let set = |found: Vec<_>| found.into_iter().collect::<std::collections::BTreeSet<_>>();
        let (mut peer, id) = accepted();
        assert_eq!(set(predicted(&mut peer, (1, 1))), open_hears, "ESTABLISHED");
        peer.shutdown(id);
        assert_eq!(set(predicted(&mut peer, (1, 2))), open_hears, "FIN-WAIT-1");
        peer.give(put(A, 1, 2));
        assert_eq!(set(predicted(&mut peer, (1, 2))), open_hears, "FIN-WAIT-2");
        peer.give(put(F | A, 1, 2));
        assert_eq!(peer.state(id), TcpState::TimeWait);
        assert!(predicted(&mut peer, (2, 2)).is_empty(), "TIME-WAIT");

        let (mut peer, id) = accepted();
        peer.give(put(F | A, 1, 1));
        assert_eq!(predicted(&mut peer, (2, 1)), ack, "CLOSE-WAIT");
        peer.shutdown(id);
        assert_eq!(peer.state(id), TcpState::LastAck);
        assert_eq!(predicted(&mut peer, (2, 2)), ack, "LAST-ACK");

        let (mut peer, id) = accepted();
        peer.shutdown(id);
        peer.give(put(F | A, 1, 1));
        assert_eq!(peer.state(id), TcpState::Closing);
        assert_eq!(predicted(&mut peer, (2, 2)), ack, "CLOSING");

        // The program has gone: text is refused, which the general path does.
        let (mut peer, id) = accepted();
        peer.close(id);
        assert_eq!(predicted(&mut peer, (1, 2)), ["ack", "fin"], "without a program");

        let (mut peer, _) = accepted();
        peer.give(put(A, 9, 1).data(b"ahead"));
        assert_eq!(predicted(&mut peer, (1, 1)), ack, "out of order");
        let (mut peer, _) = accepted();
        peer.give(put(F | A, 9, 1));
        assert_eq!(predicted(&mut peer, (1, 1)), ack, "a FIN out of order");
    }
}
