//! Marks in the stream that the sender keeps mean the same however much is sent, past half of the
//! circle of sequence numbers, and past all of it.

use super::*;

/// Sends and acknowledges so many bytes, without a loss.
fn pass(s: &mut Sender, bytes: u64, agreement: &Agreement, now: Instant) {
    const BURST: u32 = 1_000_000;
    for _ in 0..bytes.div_ceil(u64::from(BURST)) {
        assert!(s.recovery.on_sent(&mut s.records, (BURST, MSS), agreement, now));
        let nxt = s.recovery.board.nxt();
        let _ = acknowledge(s, nxt, agreement, now);
    }
}

fn acknowledge(s: &mut Sender, ack: Seq, agreement: &Agreement, now: Instant) -> RecoveryVerdict {
    let is_duplicate = ack == s.recovery.board.una();
    let segment =
        AckSegment { ack, sack: &[], echoed_at: None, is_duplicate, rtt_min: u64::MAX, now };
    s.recovery.on_ack(&mut s.records, &segment, agreement)
}

/// Past half of the circle of sequence numbers, and past all of it.
const FAR: [u64; 4] =
    [(1 << 31) - 5_000_000, (1 << 31) + 5_000_000, 3 << 30, (1 << 32) + 5_000_000];

#[test]
fn a_mark_is_heeded_however_much_was_sent_since_the_last_one() {
    for far in FAR {
        let mut s = Sender::new(Algorithm::Cubic);
        s.send(10, ms(0));
        assert!(s.recovery.on_ecn_echo(&mut s.records, ms(10)));
        assert!(!s.recovery.on_ecn_echo(&mut s.records, ms(11)), "once in a window");
        let _ = acknowledge(&mut s, Seq(10 * MSS), &ALL, ms(20));
        pass(&mut s, far, &ALL, ms(30));
        assert!(s.recovery.on_sent(&mut s.records, (MSS, MSS), &ALL, ms(40)));
        assert!(s.recovery.on_ecn_echo(&mut s.records, ms(41)), "{far}");
    }
}

#[test]
fn a_loss_is_found_however_much_was_sent_since_the_last_one() {
    for sack in [false, true] {
        let agreement = Agreement { sack, ..ALL };
        for far in FAR {
            let mut s = Sender::new(Algorithm::Reno);
            for round in 0..2_u64 {
                let una = s.recovery.board.una();
                assert!(s.recovery.on_sent(
                    &mut s.records,
                    (10 * MSS, MSS),
                    &agreement,
                    ms(1000 * round)
                ));
                let mut lost = 0;
                for n in 2..=6 {
                    let block = SackBlock { left: (una + MSS).0, right: (una + n * MSS).0 };
                    let blocks = [Some(block)];
                    let segment = AckSegment {
                        ack: una,
                        sack: if sack { &blocks } else { &[] },
                        echoed_at: None,
                        is_duplicate: true,
                        rtt_min: u64::MAX,
                        now: ms(1000 * round + 100),
                    };
                    lost += s.recovery.on_ack(&mut s.records, &segment, &agreement).lost;
                }
                assert_eq!(lost, MSS, "{sack} {far} {round}");
                let (start, len) = s.recovery.next_lost(&s.records).unwrap();
                assert!(s.recovery.allowance(&s.records) >= MSS);
                s.recovery.on_retransmitted(
                    &mut s.records,
                    start,
                    len.min(MSS),
                    ms(1000 * round + 100),
                );
                let nxt = s.recovery.board.nxt();
                let _ = acknowledge(&mut s, nxt, &agreement, ms(1000 * round + 200));
                assert_eq!(s.recovery.phase(), RecoveryPhase::Open);
                pass(&mut s, far, &agreement, ms(1000 * round + 300));
            }
        }
    }
}

#[test]
fn reordering_is_judged_the_same_however_much_was_sent() {
    for far in FAR {
        let mut s = Sender::new(Algorithm::Reno);
        s.send(4, ms(0));
        s.hear(4, &[], ms(100));
        pass(&mut s, far, &ALL, ms(200));
        assert_eq!(s.recovery.reordering().0, 0, "{far}");
        // The fourth and the fifth overtake the first.
        let una = s.recovery.board.una();
        s.send(10, ms(1000));
        let block = SackBlock { left: (una + 3 * MSS).0, right: (una + 5 * MSS).0 };
        for (ack, sack) in [(una, &[Some(block)][..]), (una + MSS, &[])] {
            let is_duplicate = ack == una;
            let segment = AckSegment {
                ack,
                sack,
                echoed_at: None,
                is_duplicate,
                rtt_min: u64::MAX,
                now: ms(1100),
            };
            let _ = s.recovery.on_ack(&mut s.records, &segment, &ALL);
        }
        assert_eq!(s.recovery.reordering(), (1, 5), "{far}");
    }
}

#[test]
fn a_duplicate_widens_the_reordering_window_however_much_was_sent_since_the_last_one() {
    // The end of the round with the last D-SACK, past half of the circle and past all of it.
    for steps in 1..=10_u64 {
        let mut s = Sender::new(Algorithm::Reno);
        let Recovery { rack, rtt, .. } = &mut s.recovery;
        rack.on_ack(Seq(0), Seq(10), true, 0);
        rack.on_ack(Seq(5), Seq(15), true, 0);
        assert_eq!(rack.reordering_window(rtt, false, 0), Duration::from_millis(50), "once");
        let at = |step: u64| Seq((step << 29) as u32);
        (1..=steps).for_each(|step| rack.on_ack(at(step), at(step) + 10, false, 0));
        rack.on_ack(at(steps), at(steps) + 10, true, 0);
        assert_eq!(rack.reordering_window(rtt, false, 0), Duration::from_millis(75), "{steps}");
    }
}

#[test]
fn a_tail_is_probed_however_much_was_sent_since_the_last_probe() {
    for (far, is_repeat) in FAR.map(|far| [(far, false), (far, true)]).concat() {
        let mut s = Sender::new(Algorithm::Reno);
        s.send(2, ms(0));
        let (timer, at) = s.timer().unwrap();
        assert_eq!(timer, RecoveryTimer::Probe);
        assert_eq!(s.expire(at), TimeoutKind::Probe);
        let last = s.recovery.board.nxt() - MSS;
        match is_repeat {
            true => s.recovery.on_retransmitted(&mut s.records, last, MSS, at),
            false => s.send(1, at),
        }
        s.recovery.on_probe_sent(&mut s.records, is_repeat, at);
        let nxt = s.recovery.board.nxt();
        let _ = acknowledge(&mut s, nxt, &ALL, ms(400));
        pass(&mut s, far, &ALL, ms(500));
        s.send(2, ms(600));
        assert_eq!(s.timer().unwrap().0, RecoveryTimer::Probe, "{far} {is_repeat}");
    }
}
