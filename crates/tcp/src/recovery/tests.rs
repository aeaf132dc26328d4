//! Rules of the sender one by one, and whole transfers over an impaired path.

mod far;

use std::collections::BTreeMap;

use floodwall_base::PublicRandom;
use floodwall_wire::tcp_options::SackBlock;

use super::*;
use crate::state_slab::StateSlab;

const MSS: u32 = 1000;
const ALL: Agreement = Agreement {
    sack: true,
    rtt: &RttConfig {
        initial: Duration::from_secs(1),
        min: Duration::from_millis(200),
        max: Duration::from_secs(120),
    },
};

fn ms(n: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(n)
}

/// A sender with its slab, on a connection with a measured RTT of 100 ms.
struct Sender {
    records: SentSegments,
    recovery: Recovery,
}

impl Sender {
    fn new(algorithm: Algorithm) -> Self {
        let mut recovery = Recovery::new(Seq(0), MSS, algorithm, ms(0));
        recovery.rtt_mut().sample(Duration::from_millis(100), 1, ms(0));
        Self { records: SentSegments::new(10_000, 4), recovery }
    }

    fn send(&mut self, segments: u32, now: Instant) {
        for _ in 0..segments {
            assert!(self.recovery.on_sent(&mut self.records, (MSS, MSS), &ALL, now));
        }
    }

    fn ack(&mut self, ack: u32, blocks: &[(u32, u32)], now: Instant) -> RecoveryVerdict {
        self.ack_echo(ack, blocks, None, now)
    }

    fn hear(&mut self, ack: u32, blocks: &[(u32, u32)], now: Instant) {
        let _ = self.ack(ack, blocks, now);
    }

    fn ack_echo(
        &mut self,
        ack: u32,
        blocks: &[(u32, u32)],
        echoed_at: Option<Instant>,
        now: Instant,
    ) -> RecoveryVerdict {
        let sack: Vec<_> = blocks
            .iter()
            .map(|&(l, r)| Some(SackBlock { left: l * MSS, right: r * MSS }))
            .collect();
        let is_duplicate = Seq(ack * MSS) == self.recovery.board.una();
        let segment = AckSegment {
            ack: Seq(ack * MSS),
            sack: &sack,
            echoed_at,
            is_duplicate,
            rtt_min: u64::MAX,
            now,
        };
        self.recovery.on_ack(&mut self.records, &segment, &ALL)
    }

    /// Retransmits what is permitted, and returns the segments.
    fn repair(&mut self, now: Instant) -> Vec<u32> {
        let mut sent = Vec::new();
        while self.recovery.allowance(&self.records) >= MSS
            && let Some((start, len)) = self.recovery.next_lost(&self.records)
        {
            self.recovery.on_retransmitted(&mut self.records, start, len.min(MSS), now);
            sent.push(start.0 / MSS);
        }
        sent
    }

    fn expire(&mut self, now: Instant) -> TimeoutKind {
        self.recovery.on_timer(&mut self.records, &ALL, now)
    }

    fn timer(&self) -> Option<(RecoveryTimer, Instant)> {
        self.recovery.timer(&ALL)
    }
}

#[test]
fn a_connections_sender_stays_within_its_share_of_memory() {
    assert!(size_of::<Recovery>() <= 136, "{}", size_of::<Recovery>());
}

#[test]
fn reordering_is_told_as_often_and_as_far_as_linux_tells_it() {
    // Linux's `sack-shift-sacked-7-3-4-8-9-fack` and Google's `rack-reo-timeout`: the seventh
    // segment before the third is five, the tenth before the first is ten.
    let mut s = Sender::new(Algorithm::Cubic);
    s.send(10, ms(0));
    assert_eq!(s.recovery.reordering(), (0, 3), "the threshold of RFC 5681");
    s.hear(0, &[(7, 8)], ms(100));
    assert_eq!(s.recovery.reordering(), (0, 3));
    s.hear(0, &[(3, 4), (7, 8)], ms(101));
    assert_eq!(s.recovery.reordering(), (1, 5));
    s.hear(0, &[(3, 4), (7, 8)], ms(102));
    s.hear(0, &[(3, 4), (7, 10)], ms(103));
    assert_eq!(s.recovery.reordering(), (1, 5), "no news, and news in order");
    s.hear(10, &[], ms(104));
    assert_eq!(s.recovery.reordering(), (2, 10));
    // What was sent again was lost, and not overtaken.
    s.send(10, ms(200));
    s.hear(10, &[(17, 20)], ms(300));
    let _ = s.expire(ms(10_000));
    let again = s.repair(ms(10_000));
    assert!(again.contains(&10), "{again:?}");
    s.hear(11, &[(17, 20)], ms(10_100));
    assert_eq!(s.recovery.reordering(), (2, 10));
}

#[test]
fn a_plain_acknowledgment_changes_what_any_other_way_to_take_it_would() {
    for seed in 0..200 {
        let mut chance = PublicRandom::new(seed);
        let algorithm = [Algorithm::Reno, Algorithm::Cubic][seed as usize % 2];
        let [mut quick, mut slow] = [Sender::new(algorithm), Sender::new(algorithm)];
        let agreement = Agreement { sack: seed % 3 != 0, ..ALL };
        let (mut now, mut sent, mut plain) = (ms(0), 0, 0);
        for _ in 0..300 {
            now += Duration::from_micros(chance.below(90_000));
            let una = quick.recovery.board.una();
            if chance.below(2) == 0 {
                let segments = 1 + chance.below(3) as u32;
                if quick.recovery.allowance(&quick.records) >= segments * MSS {
                    quick.send(segments, now);
                    slow.send(segments, now);
                    sent += segments;
                }
            } else if sent * MSS != una.0 {
                let mut all = AckSegment {
                    ack: Seq(sent * MSS),
                    sack: &[],
                    echoed_at: (chance.below(2) == 0).then_some(now),
                    is_duplicate: false,
                    rtt_min: u64::MAX,
                    now,
                };
                // Sometimes a SACK block first, or only a part.
                let block = SackBlock { left: (sent - 1) * MSS, right: sent * MSS };
                let blocks = [Some(block)];
                match chance.below(16) {
                    0 if agreement.sack => (all.ack, all.sack) = (una, &blocks),
                    0 => (all.ack, all.is_duplicate) = (una, true),
                    1 => all.ack = una + MSS,
                    _ => {}
                }
                plain += u32::from(quick.recovery.is_plain(&quick.records, all.ack, all.sack));
                let said = quick.recovery.on_ack(&mut quick.records, &all, &agreement);
                let other = slow.recovery.on_any_ack(&mut slow.records, &all, &agreement);
                assert_eq!(said, other);
            }
            assert_eq!(quick.repair(now), slow.repair(now));
            let states = [&quick, &slow].map(|sender| format!("{:?}", sender.recovery));
            assert_eq!(states[0], states[1], "seed {seed}");
            assert_eq!(quick.records.available(), slow.records.available());
        }
        assert!(plain > 10, "seed {seed}: {plain}");
    }
}

#[test]
fn three_segments_reported_beyond_a_hole_start_a_recovery_at_once() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(10, ms(0));
    assert_eq!(s.ack(0, &[(1, 2)], ms(100)).lost, 0, "it may still come");
    assert_eq!(s.ack(0, &[(1, 3)], ms(100)).lost, 0);
    let verdict = s.ack(0, &[(1, 4)], ms(100));
    assert_eq!((verdict.lost, verdict.is_reduced), (MSS, true));
    assert_eq!(s.recovery.phase(), RecoveryPhase::Fast);
    assert_eq!(s.recovery.window().ssthresh(), 5 * MSS);
    assert_eq!(s.repair(ms(100)), [0]);
    assert!(!s.ack(10, &[], ms(200)).is_reduced);
    assert_eq!((s.recovery.phase(), s.recovery.window().window()), (RecoveryPhase::Open, 5 * MSS));
}

#[test]
fn one_segment_beyond_a_hole_waits_for_the_reordering_window() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(3, ms(0));
    assert_eq!(s.ack(0, &[(1, 2)], ms(100)).lost, 0);
    // A quarter of the minimum RTT behind the latest delivery.
    assert_eq!(s.timer(), Some((RecoveryTimer::Reordering, ms(125))));
    assert_eq!(s.expire(ms(124)), TimeoutKind::Nothing);
    assert_eq!(s.expire(ms(125)), TimeoutKind::Lost);
    assert_eq!(s.repair(ms(125)), [0]);
}

#[test]
fn reordering_that_was_seen_is_waited_for_and_reported_duplicates_widen_it() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(10, ms(0));
    assert_eq!(s.ack(0, &[(1, 4)], ms(100)).lost, MSS);
    assert_eq!(s.repair(ms(100)), [0]);
    // The original arrives: the path reorders. Its ACK comes before a retransmission could be
    // acknowledged.
    let early = s.ack_echo(10, &[], Some(ms(0)), ms(110));
    assert!(early.is_undone, "its echo is from before the retransmission");
    assert_eq!(s.recovery.window().ssthresh(), crate::congestion::UNLIMITED);
    s.send(10, ms(200));
    s.hear(10, &[(11, 12)], ms(300));
    s.hear(11, &[], ms(301));
    assert!(s.recovery.rack.is_reordering());
    assert_eq!(s.ack(11, &[(13, 19)], ms(302)).lost, 0, "six segments beyond, and it waits");
    let Some((RecoveryTimer::Reordering, first)) = s.timer() else { panic!("{:?}", s.timer()) };
    s.hear(11, &[(0, 1), (13, 19)], ms(303));
    let mut wider = s.recovery.rack.reordering_window(&s.recovery.rtt, false, 6);
    assert_eq!(wider, s.recovery.rtt.min().unwrap() / 4 * 2, "one more quarter");
    s.hear(11, &[(0, 1), (13, 19)], ms(304));
    wider = wider.max(s.recovery.rack.reordering_window(&s.recovery.rtt, false, 6));
    assert_eq!(wider, s.recovery.rtt.min().unwrap() / 4 * 2, "once in a round");
    assert!(first > ms(302));
}

#[test]
fn prr_sends_one_for_two_and_ends_at_the_threshold() {
    let mut s = Sender::new(Algorithm::Reno);
    s.recovery.before_sending(&mut s.records, &ALL, ms(0));
    s.send(20, ms(0));
    // Ten more than the window: as if it had been 20.
    let (mut out, mut delivered) = (0, 0);
    for n in 1..20 {
        let verdict = s.ack(0, &[(1, 1 + n)], ms(100));
        if s.recovery.phase() == RecoveryPhase::Fast {
            delivered += verdict.change.delivered() / MSS;
            out += s.repair(ms(100)).len() as u32;
            while s.recovery.allowance(&s.records) >= MSS {
                s.send(1, ms(100));
                out += 1;
            }
            let ssthresh = s.recovery.window().ssthresh() / MSS;
            assert!(
                out <= delivered + 2 && s.recovery.board.pipe(&s.records) / MSS <= 20,
                "{out} {delivered}"
            );
            assert!(s.recovery.board.pipe(&s.records) >= (ssthresh - 2) * MSS);
        }
    }
    let ssthresh = s.recovery.window().ssthresh();
    assert!(s.recovery.board.pipe(&s.records).abs_diff(ssthresh) <= 2 * MSS);
}

#[test]
fn a_tail_that_is_lost_is_probed_after_two_round_trips() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(4, ms(0));
    assert_eq!(s.timer(), Some((RecoveryTimer::Probe, ms(200))));
    assert_eq!(s.expire(ms(200)), TimeoutKind::Probe);
    s.recovery.on_retransmitted(&mut s.records, Seq(3 * MSS), MSS, ms(200));
    s.recovery.on_probe_sent(&mut s.records, true, ms(200));
    assert_eq!(
        s.timer(),
        Some((RecoveryTimer::Retransmission, ms(500))),
        "one probe, then the timeout"
    );
    // The probe's ACK reveals the hole: a recovery, and no timeout.
    let verdict = s.ack(2, &[(3, 4)], ms(300));
    assert_eq!((verdict.lost, s.recovery.phase()), (MSS, RecoveryPhase::Fast));
    assert_eq!(s.repair(ms(300)), [2]);
    assert_eq!(s.ack(4, &[], ms(400)).lost, 0);
    assert_eq!(s.timer(), None);
}

#[test]
fn a_peer_of_a_few_microseconds_is_not_probed_before_two_milliseconds() {
    let mut s = Sender::new(Algorithm::Reno);
    s.recovery.rtt = RttEstimator::new();
    s.recovery.rtt_mut().sample(Duration::from_micros(20), 1, ms(0));
    s.send(4, ms(0));
    assert_eq!(s.timer(), Some((RecoveryTimer::Probe, ms(2))));
}

#[test]
fn a_single_segment_is_probed_when_its_timeout_would_be() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(1, ms(0));
    // After 2 * SRTT + 200 ms, and after SRTT + 200 ms at the latest, when the timeout would be.
    assert_eq!(s.timer(), Some((RecoveryTimer::Probe, ms(300))));
    let window = s.recovery.window().window();
    assert!(matches!(s.expire(ms(300)), TimeoutKind::Probe));
    s.recovery.on_retransmitted(&mut s.records, Seq(0), MSS, ms(300));
    s.recovery.on_probe_sent(&mut s.records, true, ms(300));
    // The timeout is as long after the probe as it would have been after the segment.
    assert_eq!(s.recovery.window().window(), window);
    assert_eq!(s.timer(), Some((RecoveryTimer::Retransmission, ms(600))));
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(4, ms(0));
    assert!(matches!(s.expire(ms(200)), TimeoutKind::Probe));
    s.recovery.on_retransmitted(&mut s.records, Seq(3 * MSS), MSS, ms(200));
    s.recovery.on_probe_sent(&mut s.records, true, ms(200));
    s.send(1, ms(201));
    let before = s.recovery.window().window();
    // All data beyond the probe is acknowledged without a D-SACK: the original was lost.
    assert!(s.ack(5, &[], ms(301)).is_reduced);
    assert!(s.recovery.window().window() < before);
}

#[test]
fn a_timeout_sends_everything_again_in_slow_start_and_doubles() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(10, ms(0));
    assert!(matches!(s.expire(ms(200)), TimeoutKind::Probe));
    s.recovery.on_probe_sent(&mut s.records, true, ms(200));
    assert_eq!(s.expire(ms(499)), TimeoutKind::Nothing);
    assert_eq!(s.expire(ms(500)), TimeoutKind::Timeout);
    assert_eq!((s.recovery.window().window(), s.recovery.board.lost(&s.records)), (MSS, 10 * MSS));
    assert_eq!(s.repair(ms(500)), [0]);
    assert_eq!(s.timer(), Some((RecoveryTimer::Retransmission, ms(1100))));
    assert_eq!(s.expire(ms(1100)), TimeoutKind::Timeout);
    assert_eq!(s.recovery.window().ssthresh(), 5 * MSS, "not halved again");
    assert_eq!(s.repair(ms(1100)), [0]);
    s.hear(1, &[], ms(1200));
    assert_eq!(s.repair(ms(1200)), [1, 2]);
    s.hear(3, &[], ms(1300));
    assert_eq!(s.repair(ms(1300)).len(), 4);
    s.hear(10, &[], ms(1400));
    assert_eq!(s.recovery.phase(), RecoveryPhase::Open);
}

#[test]
fn a_timeout_that_answered_a_delay_is_undone_by_the_echo() {
    let mut s = Sender::new(Algorithm::Cubic);
    s.send(10, ms(0));
    let window = s.recovery.window().window();
    s.recovery.alarm = ConnectionIndex::NONE;
    assert_eq!(s.expire(ms(300)), TimeoutKind::Timeout);
    s.repair(ms(300));
    assert!(s.ack_echo(1, &[], Some(ms(0)), ms(310)).is_undone);
    assert_eq!((s.recovery.phase(), s.recovery.board.lost(&s.records)), (RecoveryPhase::Open, 0));
    assert!(s.recovery.window().window() >= window);
}

#[test]
fn what_was_sent_again_is_measured_by_an_echo_alone_that_acknowledges_more() {
    // Karn's rule (RFC 6298 section 3), and RFC 7323 section 4.1.
    let mean = |s: &Sender| s.recovery.rtt().smoothed().unwrap().as_millis();
    for (echoed_at, after) in [(None, 100), (Some(ms(300)), 99)] {
        let mut s = after_a_timeout();
        assert_eq!(mean(&s), 100);
        let _ = s.ack_echo(0, &[], Some(ms(0)), ms(350));
        assert_eq!(mean(&s), 100, "it acknowledges nothing");
        let _ = s.ack_echo(1, &[], echoed_at, ms(360));
        assert_eq!(mean(&s), after, "{echoed_at:?}");
    }
    // What was sent once is measured without an echo.
    let mut s = Sender::new(Algorithm::Cubic);
    s.send(1, ms(0));
    s.hear(1, &[], ms(60));
    assert_eq!(mean(&s), 95);
}

/// A timeout at 300 ms of ten segments, the first of which was sent again.
fn after_a_timeout() -> Sender {
    let mut s = Sender::new(Algorithm::Cubic);
    s.send(10, ms(0));
    s.recovery.alarm = ConnectionIndex::NONE;
    assert_eq!(s.expire(ms(300)), TimeoutKind::Timeout);
    assert_eq!(s.repair(ms(300)), [0]);
    s
}

#[test]
fn a_timeout_that_answered_a_delay_is_undone_without_timestamps_and_nothing_is_sent_again() {
    // RFC 5682 section 2.1. All acknowledgments come 350 ms late; the first covers two segments.
    let mut s = after_a_timeout();
    let window = 10 * MSS;
    assert!(s.ack(2, &[], ms(350)).is_undone);
    for n in 3..=10 {
        let verdict = s.ack(n, &[], ms(350 + u64::from(n)));
        assert_eq!((verdict.lost, s.recovery.board.lost(&s.records)), (0, 0), "{n}");
        assert!(s.repair(ms(360)).is_empty());
    }
    assert_eq!(s.recovery.phase(), RecoveryPhase::Open);
    assert!(s.recovery.window().window() >= window);
    // The same where blocks report what comes late (section 3).
    let mut s = after_a_timeout();
    assert!(s.ack(0, &[(3, 5)], ms(350)).is_undone);
    assert!(s.ack(5, &[], ms(351)).lost == 0 && s.repair(ms(351)).is_empty());
}

#[test]
fn an_acknowledgment_of_what_was_sent_again_alone_waits_for_the_next() {
    // RFC 5682 section 2.1, steps 2b and 3b: two new segments, and then the decision.
    let mut s = after_a_timeout();
    s.recovery.note_unsent(&mut s.records, true);
    assert!(!s.ack(1, &[], ms(350)).is_undone);
    assert!(s.repair(ms(350)).is_empty(), "no repetition");
    assert_eq!(s.recovery.allowance(&s.records), 2 * MSS);
    s.send(2, ms(350));
    s.recovery.note_unsent(&mut s.records, true);
    assert!(s.ack(2, &[], ms(351)).is_undone, "an original");
    assert!(s.repair(ms(351)).is_empty() && s.recovery.board.lost(&s.records) == 0);

    // Only the new ones arrive: all else was lost.
    let mut s = after_a_timeout();
    s.recovery.note_unsent(&mut s.records, true);
    s.hear(1, &[], ms(350));
    s.send(2, ms(350));
    assert!(!s.ack(1, &[(10, 11)], ms(450)).is_undone);
    assert_eq!(s.repair(ms(450))[0], 1, "repaired as ever");

    // Nothing new to send, or the window is shut: repaired at once.
    let mut s = after_a_timeout();
    s.recovery.note_unsent(&mut s.records, false);
    s.hear(1, &[], ms(350));
    assert_eq!(s.repair(ms(350)), [1, 2]);

    // The new ones are lost, too: the next timeout repairs.
    let mut s = after_a_timeout();
    s.recovery.note_unsent(&mut s.records, true);
    s.hear(1, &[], ms(350));
    s.send(2, ms(350));
    let (_, at) = s.timer().unwrap();
    assert_eq!(s.expire(at), TimeoutKind::Timeout);
    assert_eq!(s.repair(at), [1]);
}

#[test]
fn all_that_was_sent_again_and_reported_as_duplicate_undoes_the_reduction() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(10, ms(0));
    let window = s.recovery.window().window();
    s.hear(0, &[(2, 5)], ms(100));
    assert_eq!(s.repair(ms(100)), [0], "three arrived, half of the window is wanted");
    s.hear(0, &[(2, 8)], ms(100));
    assert_eq!(s.repair(ms(100)), [1]);
    assert!(!s.ack(8, &[(0, 1)], ms(130)).is_undone, "one of two");
    assert!(s.ack(8, &[(1, 2)], ms(131)).is_undone);
    assert!(s.recovery.window().window() >= window);
}

#[test]
fn a_mark_reduces_once_in_a_window() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(10, ms(0));
    assert!(s.recovery.on_ecn_echo(&mut s.records, ms(100)));
    assert!(!s.recovery.on_ecn_echo(&mut s.records, ms(101)));
    assert_eq!(s.recovery.window().window(), 5 * MSS);
    s.hear(10, &[], ms(150));
    s.send(5, ms(160));
    assert!(s.recovery.on_ecn_echo(&mut s.records, ms(260)));
}

#[test]
fn a_duplicate_long_after_a_recovery_does_not_undo_it() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(10, ms(0));
    let _ = s.ack(0, &[(1, 4)], ms(100));
    assert_eq!(s.repair(ms(100)), [0]);
    let _ = s.ack(10, &[], ms(200));
    let reduced = s.recovery.window().window();
    // The network duplicates a segment, two flights later.
    for round in 1..=2 {
        s.send(5, ms(200 + 100 * round));
        let _ = s.ack(10 + 5 * round as u32, &[], ms(250 + 100 * round));
    }
    let verdict = s.ack(20, &[(19, 20)], ms(500));
    assert!(verdict.change.dsack.is_some() && !verdict.is_undone);
    assert!(s.recovery.window().window() < 2 * reduced);
}

#[test]
fn the_ack_that_ends_one_recovery_and_begins_the_next_sends_at_once() {
    // RFC 9937: the first retransmission of a recovery always leaves.
    let mut s = Sender::new(Algorithm::Reno);
    s.send(10, ms(0));
    let _ = s.ack(0, &[(1, 4)], ms(100));
    assert_eq!(s.repair(ms(100)), [0]);
    s.send(10, ms(150));
    // The first recovery's data is acknowledged, and the first of the next flight is missing.
    let verdict = s.ack(10, &[(11, 15)], ms(250));
    assert_eq!(verdict.lost, MSS);
    assert_eq!(s.recovery.phase(), RecoveryPhase::Fast);
    assert_eq!(s.repair(ms(250)), [10]);
}

#[test]
fn a_segment_without_news_does_not_put_the_probe_off() {
    // RFC 8985 section 7.2: the peer's own data arrives all the time.
    let mut s = Sender::new(Algorithm::Reno);
    s.send(2, ms(0));
    let _ = s.ack(2, &[], ms(100));
    s.send(3, ms(100));
    let (timer, at) = s.timer().unwrap();
    assert_eq!(timer, RecoveryTimer::Probe);
    for n in 1..10 {
        let _ = s.ack(2, &[], ms(100 + 10 * n));
        assert_eq!(s.timer(), Some((timer, at)), "{n}");
    }
    // What is acknowledged does.
    let _ = s.ack(3, &[], ms(200));
    assert!(s.timer().unwrap().1 > at);
}

#[test]
fn a_peer_that_forgets_what_it_reported_gets_it_again() {
    let mut s = Sender::new(Algorithm::Reno);
    s.send(4, ms(0));
    s.hear(0, &[(0, 3)], ms(100));
    assert_eq!(s.recovery.board.sacked(&s.records), 3 * MSS);
    let (_, at) = s.timer().unwrap();
    let mut now = at;
    while s.expire(now) != TimeoutKind::Timeout {
        now += Duration::from_millis(100);
    }
    assert_eq!(
        (s.recovery.board.sacked(&s.records), s.recovery.board.lost(&s.records)),
        (0, 4 * MSS)
    );
}

/// An ACK in flight.
struct Ack {
    ack: u32,
    sack: Vec<Option<SackBlock>>,
    of: Instant,
}

/// A path and a receiver: delays, losses, reordering and duplicates from a seed.
struct Path {
    random: PublicRandom,
    loss: f64,
    jitter: u64,
    sack: bool,
    timestamps: bool,
    /// Segments in flight to the receiver: arrival time, byte range, and time sent.
    forth: BTreeMap<(u64, u64), (u32, u32, Instant)>,
    back: BTreeMap<(u64, u64), Ack>,
    /// Received ranges beyond the hole.
    held: BTreeMap<u32, u32>,
    next: u32,
    serial: u64,
}

const DELAY: u64 = 25_000_000;

impl Path {
    fn offer(&mut self, start: u32, len: u32, now: Instant) {
        let mut at = start;
        while at < start + len {
            let piece = MSS.min(start + len - at);
            if !self.random.chance(self.loss) {
                let copies = if self.random.chance(self.loss / 4.0) { 2 } else { 1 };
                for _ in 0..copies {
                    let due = now.as_nanos() + DELAY + self.random.below(self.jitter + 1);
                    self.serial += 1;
                    self.forth.insert((due, self.serial), (at, piece, now));
                }
            }
            at += piece;
        }
    }

    fn receive(&mut self, (start, len, sent): (u32, u32, Instant), now: u64) {
        let end = start + len;
        let is_known = end <= self.next
            || self.held.range(..=start).next_back().is_some_and(|(_, &e)| e >= end);
        let mut blocks = Vec::new();
        if is_known {
            blocks.push(Some(SackBlock { left: start, right: end }));
        } else {
            self.held.entry(start).and_modify(|e| *e = end.max(*e)).or_insert(end);
        }
        let mut merged: BTreeMap<u32, u32> = BTreeMap::new();
        for (&s, &e) in &self.held {
            match merged.last_entry() {
                Some(mut last) if *last.get() >= s => *last.get_mut() = e.max(*last.get()),
                _ => drop(merged.insert(s, e)),
            }
        }
        self.held = merged;
        while let Some((&s, &e)) = self.held.first_key_value().filter(|(s, _)| **s <= self.next) {
            self.next = self.next.max(e);
            self.held.remove(&s);
        }
        let own = self.held.range(..=start).next_back().map(|(&s, &e)| (s, e));
        let others = self.held.iter().map(|(&s, &e)| (s, e)).filter(|b| Some(*b) != own);
        blocks.extend(
            own.into_iter()
                .chain(others)
                .take(3)
                .map(|(left, right)| Some(SackBlock { left, right })),
        );
        if !self.sack {
            blocks.clear();
        }
        if !self.random.chance(self.loss) {
            self.serial += 1;
            let due = now + DELAY + self.random.below(self.jitter + 1);
            self.back.insert((due, self.serial), Ack { ack: self.next, sack: blocks, of: sent });
        }
    }
}

#[expect(clippy::too_many_lines, reason = "one loop that reads from top to bottom")]
/// Runs a transfer of a connection that may have so many loss states; returns its duration in
/// virtual ms, and the number of bytes sent per byte of data.
fn transfer_with(
    seed: u64,
    (loss, jitter): (f64, u64),
    kind: (bool, bool, Algorithm),
    places: usize,
) -> (u64, f64) {
    let (sack, timestamps, algorithm) = kind;
    let agreement = Agreement { sack, ..ALL };
    let total = 1000 * MSS;
    let mut records = SentSegments::new(10_000, 4);
    records.losses = StateSlab::new(places);
    let mut r = Recovery::new(Seq(0), MSS, algorithm, ms(0));
    let mut path = Path {
        random: PublicRandom::new(seed),
        loss,
        jitter,
        sack,
        timestamps,
        forth: BTreeMap::new(),
        back: BTreeMap::new(),
        held: BTreeMap::new(),
        next: 0,
        serial: 0,
    };
    let (mut now, mut sent, mut una) = (ms(0), 0_u64, 0);
    while r.board().una() != Seq(total) {
        assert!(
            now < ms(4_000_000),
            "stuck: seed {seed} {loss} {kind:?}, {r:?} {:?}",
            r.timer(&agreement)
        );
        // Send what is permitted.
        loop {
            let room = r.allowance(&records);
            if let Some((start, len)) = r.next_lost(&records) {
                if room < MSS.min(len) {
                    break;
                }
                let len = len.min(MSS);
                r.on_retransmitted(&mut records, start, len, now);
                path.offer(start.0, len, now);
                sent += u64::from(len);
            } else if room >= MSS && r.board().nxt() != Seq(total) && r.board().can_record(&records)
            {
                r.before_sending(&mut records, &agreement, now);
                let start = r.board().nxt().0;
                assert!(r.on_sent(&mut records, (MSS, MSS), &agreement, now));
                path.offer(start, MSS, now);
                sent += u64::from(MSS);
            } else {
                break;
            }
        }
        let timer = r.timer(&agreement).expect("something is outstanding").1.as_nanos();
        let forth = path.forth.first_key_value().map_or(u64::MAX, |(k, _)| k.0);
        let back = path.back.first_key_value().map_or(u64::MAX, |(k, _)| k.0);
        let next = timer.min(forth).min(back).max(now.as_nanos());
        now = Instant::from_nanos(next);
        if next == forth {
            let (_, segment) = path.forth.pop_first().unwrap();
            path.receive(segment, next);
        } else if next == back {
            let (_, Ack { ack, sack, of: sent_at }) = path.back.pop_first().unwrap();
            let echoed_at = path.timestamps.then(|| crate::timestamps::tick_of(sent_at));
            let is_duplicate = ack == una;
            if ack < una {
                continue;
            }
            una = ack;
            let segment = AckSegment {
                ack: Seq(ack),
                sack: &sack,
                echoed_at,
                is_duplicate,
                rtt_min: u64::MAX,
                now,
            };
            let _ = r.on_ack(&mut records, &segment, &agreement);
        } else {
            match r.on_timer(&mut records, &agreement, now) {
                TimeoutKind::Probe => {
                    let (start, len) = r.tail(&records).unwrap();
                    r.on_retransmitted(&mut records, start, len, now);
                    r.on_probe_sent(&mut records, true, now);
                    path.offer(start.0, len, now);
                    sent += u64::from(len);
                }
                TimeoutKind::Nothing | TimeoutKind::Lost | TimeoutKind::Timeout => {}
            }
        }
        let b = r.board();
        assert!(b.sacked(&records) + b.lost(&records) <= b.outstanding());
        assert!(r.window().window() >= MSS);
    }
    assert_eq!((path.next, records.available()), (total, 10_000));
    r.clear(&mut records);
    assert_eq!((records.losses.in_use(), records.marks.in_use()), (0, 0));
    (now.as_nanos() / 1_000_000, sent as f64 / f64::from(total))
}

fn transfer(seed: u64, loss: f64, jitter: u64, kind: (bool, bool, Algorithm)) -> (u64, f64) {
    transfer_with(seed, (loss, jitter), kind, 1)
}

#[test]
fn a_sender_without_memory_for_its_losses_repairs_them_as_ever() {
    let kinds = [(true, true, Algorithm::Cubic), (false, false, Algorithm::Reno)];
    for seed in 0..4 {
        for kind in kinds {
            for path in [(0.01, 0), (0.05, 4_000_000), (0.2, 30_000_000)] {
                let (time, factor) = transfer_with(seed, path, kind, 0);
                assert!(factor <= 3.0, "{seed} {kind:?} {path:?}: {factor} in {time} ms");
            }
        }
    }
    // The window is halved, once, and there is no undo.
    let mut s = Sender::new(Algorithm::Cubic);
    s.records.losses = StateSlab::new(0);
    s.send(10, ms(0));
    assert!(s.ack(0, &[(1, 4)], ms(100)).is_reduced);
    assert_eq!((s.recovery.window().window(), s.recovery.allowance(&s.records)), (5 * MSS, MSS));
    assert_eq!(s.repair(ms(100)).len(), 1);
    assert!(!s.ack_echo(5, &[], Some(ms(0)), ms(150)).is_undone);
    assert_eq!(s.recovery.window().ssthresh(), 5 * MSS);
}

#[test]
fn a_sender_at_rest_that_lost_nothing_keeps_no_state_of_losses() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let mut s = Sender::new(algorithm);
        let in_use = |s: &Sender| s.records.losses.in_use();
        // Small messages need none; a window that is used does, until all of it is acknowledged.
        s.send(1, ms(0));
        s.hear(1, &[], ms(100));
        assert_eq!(in_use(&s), 0);
        s.send(10, ms(200));
        s.hear(3, &[], ms(300));
        assert_eq!(in_use(&s), 1);
        s.hear(11, &[], ms(301));
        assert_eq!(in_use(&s), 0);
        assert!(s.recovery.window().window() >= 14 * MSS, "and the window stays");
        // After a loss it stays, as the curve and what may undo it do.
        s.send(10, ms(400));
        s.hear(11, &[(12, 15)], ms(500));
        s.repair(ms(500));
        s.hear(21, &[], ms(600));
        assert_eq!((s.recovery.phase(), in_use(&s)), (RecoveryPhase::Open, 1));
        s.recovery.clear(&mut s.records);
        assert_eq!(in_use(&s), 0);
    }
}

#[test]
fn slow_start_goes_on_after_a_rest_as_if_nothing_had_been_given_back() {
    // Rounds that end in a rest, and the same rounds with a state that a probe keeps.
    let [mut left, mut kept] = [0, 1].map(|_| Sender::new(Algorithm::Cubic));
    let (mut now, mut sent) = (ms(0), 0);
    for round in 0..12_u64 {
        for (s, keeps) in [(&mut left, false), (&mut kept, true)] {
            let burst = (s.recovery.allowance(&s.records) / MSS).min(60);
            s.send(burst, now);
            if keeps {
                s.recovery.on_size_probe(&mut s.records, Seq(u32::MAX / 2), 1);
            }
            for segment in 1..=burst {
                // The path's queue grows from the fourth round on.
                let late = now + Duration::from_millis(100 + round.saturating_sub(2) * 20);
                let _ = s.recovery.on_any_ack(
                    &mut s.records,
                    &AckSegment {
                        ack: Seq((sent + segment) * MSS),
                        sack: &[],
                        echoed_at: None,
                        is_duplicate: false,
                        rtt_min: u64::MAX,
                        now: late,
                    },
                    &ALL,
                );
            }
            if keeps {
                sent += burst;
            }
        }
        now += Duration::from_millis(300);
        assert_eq!(left.recovery.window().window(), kept.recovery.window().window(), "{round}");
        assert_eq!(kept.records.losses.in_use(), 1);
    }
    assert!(left.recovery.window().window() > 40 * MSS);
}

#[test]
fn every_transfer_ends_with_any_loss_and_reordering() {
    let kinds = [
        (true, true, Algorithm::Cubic),
        (true, false, Algorithm::Cubic),
        (true, true, Algorithm::Reno),
        (false, true, Algorithm::Reno),
        (false, false, Algorithm::Cubic),
    ];
    let seeds = if std::env::var_os("FLOODWALL_DEEP").is_some() { 500 } else { 8 };
    for seed in 0..seeds {
        for kind in kinds {
            for (loss, jitter) in [(0.0, 0), (0.01, 0), (0.05, 4_000_000), (0.2, 30_000_000)] {
                let (time, factor) = transfer(seed, loss, jitter, kind);
                // Retransmissions approximately equal losses, without SACK there are more.
                let bound = match (loss, kind.0) {
                    (0.0, _) => 1.0,
                    (l, true) if l < 0.1 => 1.0 + 4.0 * l,
                    _ => 3.0,
                };
                assert!(factor <= bound, "{seed} {kind:?} {loss}: {factor} in {time} ms");
            }
        }
    }
}

#[test]
fn without_loss_the_window_opens_as_slow_start_says() {
    let (time, factor) = transfer(1, 0.0, 0, (true, true, Algorithm::Reno));
    assert!((factor - 1.0).abs() < 1e-9);
    // 10 + 20 + 40 ... reaches 1000 segments in the seventh round trip of 50 ms.
    assert_eq!(time, 7 * 50);
}
