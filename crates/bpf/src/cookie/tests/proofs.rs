//! ACKs that are believed, those that are not, and the turning of keys.

use core::time::Duration;

use floodwall_base::{Instant, Seq};
use floodwall_syncache::{AckOutcome, HalfOpen, HandshakeAck, ListenSettings};

use super::rig::*;
use crate::cookie::*;

const START: Instant = Instant::from_nanos(7 * EPOCH_NANOS);
const LINUX: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];

fn rig() -> Rig {
    Rig::new(ListenSettings::new(100), START)
}

fn long(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*frame[at..].first_chunk().unwrap())
}

/// The ACK that a client sends to that SYN-ACK.
fn ack_of(sent: &Sent, answer: &[u8]) -> Sent {
    let l4 = if sent.from.is_ipv4() { 34 } else { 54 };
    let options = match sent.options.len() {
        // The SYN-ACK of Linux' options: our timestamp is eight bytes into them.
        20 => {
            let value = long(answer, l4 + 28).to_be_bytes();
            [vec![1, 1, 8, 10, 1, 2, 3, 9], value.to_vec()].concat()
        }
        _ => Vec::new(),
    };
    let (seq, ack) = (long(answer, l4 + 8), long(answer, l4 + 4).wrapping_add(1));
    Sent { seq, ack, flags: 0x10, options, ..sent.clone() }
}

fn answered(rig: &mut Rig, sent: &Sent) -> Vec<u8> {
    let mut frame = sent.frame();
    assert_eq!(rig.run_syn(&mut frame).verdict, ANSWERED);
    frame
}

fn verdict(rig: &mut Rig, sent: &Sent) -> u64 {
    rig.run_ack(&mut sent.frame()).verdict
}

/// Whether the stack believes the ACK.
fn cache_believes(rig: &mut Rig, sent: &Sent) -> bool {
    let timestamp =
        (sent.options.len() == 12).then(|| (long(&sent.options, 4), long(&sent.options, 8)));
    let ack = HandshakeAck { flow: sent.flow(), seq: Seq(sent.seq), ack: Seq(sent.ack), timestamp };
    let (listener, at) = (rig.listener, rig.moment());
    let acked = rig.cache.ack(listener, &ack, at);
    if let AckOutcome::Proven(proven) = &acked {
        rig.cache.accepted(proven.slot());
    }
    matches!(acked, AckOutcome::Proven(_))
}

#[test]
fn what_was_answered_here_is_believed_here_and_by_the_stack() {
    let mut rig = rig();
    for v6 in [false, true] {
        for options in [&LINUX[..], &[], &[2, 4, 5, 180]] {
            let sent = Sent::syn(v6, options);
            let frame = answered(&mut rig, &sent);
            let ack = ack_of(&sent, &frame);
            assert_eq!(verdict(&mut rig, &ack), PROVEN);
            assert!(cache_believes(&mut rig, &ack));
            for (flags, text) in [(0x18, 300), (0x11, 0), (0x19, 5)] {
                let with = Sent { flags, text, ..ack.clone() };
                assert_eq!(verdict(&mut rig, &with), PROVEN, "data and FIN may come along");
            }
        }
    }
    assert_eq!(rig.desk(Desk::Proven), 2 * 3 * 4);
}

/// Every number of the cache's SYN-ACKs is a cookie, so waking loses none of its handshakes.
#[test]
fn what_the_cache_answered_is_believed_here() {
    let mut rig = rig();
    for v6 in [false, true] {
        for options in [&LINUX[..], &[]] {
            let sent = Sent::syn(v6, options);
            let answer = rig.cache_answers(&sent).unwrap();
            assert_eq!(verdict(&mut rig, &ack_of(&sent, &answer)), PROVEN);
        }
    }
}

#[test]
fn any_change_makes_it_a_forgery() {
    let mut rig = rig();
    for v6 in [false, true] {
        let sent = Sent::syn(v6, &LINUX);
        let frame = answered(&mut rig, &sent);
        let good = ack_of(&sent, &frame);
        for bit in 0..32 {
            let other = Sent { ack: good.ack ^ 1 << bit, ..good.clone() };
            assert_eq!(verdict(&mut rig, &other), FORGED, "acknowledgment, bit {bit}");
            let other = Sent { seq: good.seq ^ 1 << bit, ..good.clone() };
            assert_eq!(verdict(&mut rig, &other), FORGED, "sequence number, bit {bit}");
        }
        for bit in 0..6 {
            let mut options = good.options.clone();
            options[11] ^= 1 << bit;
            assert_eq!(verdict(&mut rig, &Sent { options, ..good.clone() }), FORGED);
        }
        assert_eq!(verdict(&mut rig, &Sent { options: vec![], ..good.clone() }), FORGED);
        let other = Sent { ports: (good.ports.0 ^ 1, PORT), ..good.clone() };
        assert_eq!(verdict(&mut rig, &other), FORGED);
        assert_eq!(verdict(&mut rig, &good), PROVEN);
    }
}

#[test]
fn of_a_million_guesses_hardly_one_is_believed() {
    let mut rig = rig();
    let guesses = if std::env::var_os("FLOODWALL_DEEP").is_some() { 1 << 20 } else { 1 << 14 };
    let mut good = Sent { flags: 0x10, ..Sent::syn(false, &[]) };
    let mut believed = 0;
    for n in 0..guesses {
        good.ack = u32::wrapping_mul(n, 0x9e37_79b1);
        believed += u32::from(verdict(&mut rig, &good) == PROVEN);
    }
    assert!(believed <= 3, "{believed}");
}

#[test]
fn what_is_no_ack_or_for_no_listener_is_a_stray() {
    let mut rig = rig();
    for v6 in [false, true] {
        let sent = Sent::syn(v6, &LINUX);
        let frame = answered(&mut rig, &sent);
        let good = ack_of(&sent, &frame);
        for flags in 0..=u8::MAX {
            let is_ack = flags & 0x16 == 0x10;
            let got = verdict(&mut rig, &Sent { flags, ..good.clone() });
            assert_eq!(got, if is_ack { PROVEN } else { STRAY }, "{flags:#04x}");
        }
        let closed = Sent { ports: (good.ports.0, PORT + 1), ..good.clone() };
        assert_eq!(verdict(&mut rig, &closed), STRAY);
    }
}

#[test]
fn a_cookie_outlives_one_turn_of_the_keys_and_not_two() {
    for (epoch, v6) in [(8, false), (9, false), (8, true), (9, true)] {
        let mut rig = rig();
        rig.at(Instant::from_nanos(epoch * EPOCH_NANOS + 5));
        let sent = Sent::syn(v6, &LINUX);
        let frame = answered(&mut rig, &sent);
        let ack = ack_of(&sent, &frame);
        for (nanos, wanted) in [
            ((epoch + 1) * EPOCH_NANOS - 1, PROVEN),
            ((epoch + 1) * EPOCH_NANOS, PROVEN),
            ((epoch + 2) * EPOCH_NANOS - 1, PROVEN),
            ((epoch + 2) * EPOCH_NANOS, FORGED),
            ((epoch + 3) * EPOCH_NANOS, FORGED),
        ] {
            rig.at(Instant::from_nanos(nanos));
            assert_eq!(verdict(&mut rig, &ack), wanted, "{nanos}");
            assert_eq!(cache_believes(&mut rig, &ack), wanted == PROVEN, "{nanos}");
        }
    }
}

#[test]
fn keys_turn_by_the_programs_own_clock_for_an_epoch_and_then_it_answers_no_more() {
    let mut rig = rig();
    let sent = Sent::syn(false, &LINUX);
    let end = START.as_nanos() + EPOCH_NANOS;
    for (nanos, goes) in [(end - 8, true), (end + 8, true), (end + EPOCH_NANOS - 8, true)] {
        rig.only_at(Instant::from_nanos(nanos));
        let mut frame = sent.frame();
        assert_eq!(rig.run_syn(&mut frame).verdict == ANSWERED, goes);
        let wanted = rig.cache_answers(&sent).unwrap();
        assert_eq!(frame, wanted, "{nanos}");
    }
    rig.only_at(Instant::from_nanos(end + EPOCH_NANOS + 8));
    assert_eq!(rig.run_syn(&mut sent.frame()).verdict, LEFT);
    assert_eq!(rig.desk(Desk::Left), 1);
    rig.turn();
    assert_eq!(rig.run_syn(&mut sent.frame()).verdict, ANSWERED, "its user is back");
}

#[test]
fn a_sister_with_the_same_secret_believes_and_one_with_another_does_not() {
    let (mut one, mut two) = (rig(), rig());
    let sent = Sent::syn(true, &LINUX);
    let frame = answered(&mut one, &sent);
    let ack = ack_of(&sent, &frame);
    assert_eq!(verdict(&mut two, &ack), PROVEN);
    let at = two.moment();
    assert!(two.cache.reload(secret(2), at));
    two.turn();
    assert_eq!(verdict(&mut two, &ack), FORGED);
}

#[test]
fn it_wakes_by_rate_or_by_pressure_and_sleeps_ten_seconds_later() {
    let mut rig = rig();
    rig.pressed(false);
    let second = |n: f64| START + Duration::from_secs_f64(n);
    let seen = |rig: &mut Rig, at: Instant| {
        rig.at(at);
        rig.run_syn(&mut Sent::syn(false, &[]).frame()).verdict
    };
    // Just under the rate: as many in every window as do not wake it.
    for window in 0..5 {
        for _ in 1..1_342 {
            assert_eq!(seen(&mut rig, second(0.5 + f64::from(window) * 0.1342178)), ASLEEP);
        }
    }
    assert_eq!((rig.desk(Desk::Woken), rig.desk(Desk::Answered)), (0, 0));
    for n in 1..1_342 {
        assert_eq!(seen(&mut rig, second(2.0)), ASLEEP, "{n}");
    }
    assert_eq!(seen(&mut rig, second(2.0)), ANSWERED, "the rate wakes it");
    assert_eq!(seen(&mut rig, second(11.9)), ANSWERED);
    assert_eq!(seen(&mut rig, second(12.1)), ASLEEP, "ten seconds later");
    rig.pressed(true);
    assert_eq!(seen(&mut rig, second(13.0)), ANSWERED, "pressure wakes it");
    rig.pressed(false);
    assert_eq!(seen(&mut rig, second(22.9)), ANSWERED);
    assert_eq!(seen(&mut rig, second(23.1)), ASLEEP);
    assert_eq!(rig.desk(Desk::Woken), 2);
}
