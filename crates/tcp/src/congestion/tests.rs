//! The controllers against the formulas of their RFCs, in floating point.

use proptest::prelude::*;

use super::*;

const MSS: u32 = 1460;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Instant {
    Instant::ORIGIN + ms(n)
}

fn delivery(acked: u32, now: Instant) -> Delivery {
    Delivery {
        acked,
        ack: Seq(0),
        next: Seq(0),
        rtt: None,
        srtt: Duration::ZERO,
        is_window_limited: true,
        mss: MSS,
        now,
    }
}

fn flight(size: u32, now: Instant) -> Flight {
    Flight { size, mss: MSS, now }
}

/// One round trip in which every segment of the window is acknowledged, one by one.
fn round(controller: &mut Controller, now: Instant, srtt: Duration) {
    let mut left = controller.window();
    while left > 0 {
        let acked = left.min(MSS);
        controller.on_ack(&Delivery { srtt, ..delivery(acked, now) });
        left -= acked;
    }
}

#[test]
fn initial_windows_are_those_of_rfc_6928() {
    for (mss, window) in
        [(1460, 14_600), (536, 5360), (1220, 12_200), (9000, 18_000), (2000, 14_600)]
    {
        assert_eq!(initial_window(mss), window);
        for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
            let controller = Controller::new(algorithm, mss);
            assert_eq!((controller.window(), controller.ssthresh()), (window, UNLIMITED));
            assert_eq!(controller.algorithm(), algorithm);
        }
    }
}

#[test]
fn slow_start_doubles_in_a_round_and_stops_at_the_threshold() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let mut c = Controller::new(algorithm, MSS);
        round(&mut c, at(0), ms(100));
        assert_eq!(c.window(), 20 * MSS);
        c.on_timeout(&flight(20 * MSS, at(1)), true);
        assert_eq!(c.window(), MSS, "loss window (RFC 5681 section 3.1)");
        let ssthresh = if algorithm == Algorithm::Reno { 10 } else { 14 };
        assert_eq!(c.ssthresh(), ssthresh * MSS);
        for window in [2, 4, 8] {
            round(&mut c, at(1), ms(100));
            assert_eq!(c.window(), window * MSS);
        }
        round(&mut c, at(1), ms(100));
        assert!(c.window() >= c.ssthresh() && c.window() < c.ssthresh() + 2 * MSS);
    }
}

#[test]
fn one_ack_for_many_segments_adds_no_more_than_its_limit() {
    let mut reno = Controller::new(Algorithm::Reno, MSS);
    reno.on_ack(&delivery(10 * MSS, at(0)));
    assert_eq!(reno.window(), 12 * MSS, "L = 2 (RFC 3465)");
    let mut cubic = Controller::new(Algorithm::Cubic, MSS);
    cubic.on_ack(&delivery(10 * MSS, at(0)));
    assert_eq!(cubic.window(), 18 * MSS, "L = 8 (RFC 9406)");
}

#[test]
fn divided_acks_open_the_window_by_bytes_only() {
    // Row 27: a thousand ACKs for one segment are worth one segment.
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let mut c = Controller::new(algorithm, MSS);
        (0..MSS).for_each(|_| c.on_ack(&delivery(1, at(0))));
        assert_eq!(c.window(), 11 * MSS);
    }
}

#[test]
fn renos_saw_has_the_area_of_the_aimd_formula() {
    // A loss whenever the window reaches W: the mean is 3/4 W (Floyd; RFC 5681's AIMD(1, 1/2)).
    let mut c = Controller::new(Algorithm::Reno, MSS);
    let top = 40 * MSS;
    let (mut sum, mut rounds) = (0_u64, 0);
    for n in 0..2000 {
        round(&mut c, at(n), ms(1));
        if c.window() >= top {
            c.on_congestion(Congestion::Loss, &flight(c.window(), at(n)));
        }
        if n >= 100 {
            (sum, rounds) = (sum + u64::from(c.window()), rounds + 1);
        }
    }
    let mean = sum as f64 / f64::from(rounds) / f64::from(top);
    assert!((mean - 0.75).abs() < 0.03, "{mean}");
}

/// W_cubic of RFC 9438 in segments.
fn w_cubic(t: f64, w_max: f64, cwnd_epoch: f64) -> f64 {
    let k = ((w_max - cwnd_epoch) / 0.4).cbrt();
    0.4 * (t - k).powi(3) + w_max
}

#[test]
fn cubics_window_follows_the_cube_through_its_plateau() {
    for segments in [500_u32, 5_000] {
        let mut c = Controller::new(Algorithm::Cubic, MSS);
        c.on_timeout(&flight(MSS, at(0)), true);
        // A window of `segments`, then one loss.
        let Controller::Cubic(cubic) = &mut c else { unreachable!() };
        cubic.force_window(segments * MSS);
        c.on_congestion(Congestion::Loss, &flight(segments * MSS, at(0)));
        let start = f64::from(c.window()) / f64::from(MSS);
        assert!((start - 0.7 * f64::from(segments)).abs() < 1.0);
        let (rtt, mut n) = (100, 0);
        let k = (f64::from(segments) * 0.3 / 0.4).cbrt();
        while (n as f64) < k * 1.5 * 1000.0 {
            round(&mut c, at(n), ms(rtt));
            n += rtt;
            // Within a round the window goes most of the way to where the curve ends it.
            let curve = |n| w_cubic(n as f64 / 1000.0, f64::from(segments), start);
            let window = f64::from(c.window()) / f64::from(MSS);
            let expected = curve(n - rtt) * 0.999..curve(n) * 1.001;
            assert!(expected.contains(&window), "{segments}: {n} ms: {window} {expected:?}");
        }
    }
}

#[test]
fn cubic_is_never_slower_than_its_reno_estimate() {
    // Short round trips and a small window: the Reno-friendly region (section 4.3).
    let mut c = Controller::new(Algorithm::Cubic, MSS);
    let Controller::Cubic(cubic) = &mut c else { unreachable!() };
    cubic.force_window(100 * MSS);
    c.on_congestion(Congestion::Loss, &flight(100 * MSS, at(0)));
    let start = f64::from(c.window()) / f64::from(MSS);
    for n in 1..=40 {
        round(&mut c, at(5 * n), ms(5));
        let window = f64::from(c.window()) / f64::from(MSS);
        let estimate = start + 9.0 / 17.0 * n as f64;
        assert!((window - estimate).abs() < 1.0, "round {n}: {window} {estimate}");
    }
    // From the window before the reduction on, a whole segment a round.
    let before = loop {
        if c.window() >= 100 * MSS {
            break c.window();
        }
        round(&mut c, at(300), ms(5));
    };
    (0..10).for_each(|_| round(&mut c, at(300), ms(5)));
    let gained = f64::from(c.window() - before) / f64::from(MSS);
    assert!((9.0..11.0).contains(&gained), "{gained}");
}

#[test]
fn cubic_reaches_the_response_function_of_its_rfc() {
    // RFC 9438 section 5.1, equation for large windows:
    // AVG_W = (C * (3 + β) / (4 * (1 - β)))^(1/4) * RTT^(3/4) / p^(3/4), at p = 1e-4, RTT = 0.1.
    let (p, rtt) = (1e-4_f64, 0.1_f64);
    let expected = (0.4_f64 * 3.7 / (4.0 * 0.3)).powf(0.25) * rtt.powf(0.75) / p.powf(0.75);
    let mut c = Controller::new(Algorithm::Cubic, MSS);
    let (mut sent, mut sum, mut rounds, mut now) = (0_u64, 0.0, 0_u32, 0_u64);
    for n in 0..6000 {
        round(&mut c, at(now), ms(100));
        now += 100;
        sent += u64::from(c.window() / MSS);
        if sent >= 10_000 {
            sent -= 10_000;
            c.on_congestion(Congestion::Loss, &flight(c.window(), at(now)));
        }
        if n > 1000 {
            sum += f64::from(c.window()) / f64::from(MSS);
            rounds += 1;
        }
    }
    let mean = sum / f64::from(rounds);
    assert!((mean / expected - 1.0).abs() < 0.1, "{mean} against {expected}");
}

#[test]
fn a_loss_below_the_last_plateau_gives_way() {
    let mut c = Controller::new(Algorithm::Cubic, MSS);
    let Controller::Cubic(cubic) = &mut c else { unreachable!() };
    cubic.force_window(1000 * MSS);
    c.on_congestion(Congestion::Loss, &flight(1000 * MSS, at(0)));
    round(&mut c, at(0), ms(10));
    c.on_congestion(Congestion::Loss, &flight(c.window(), at(10)));
    let Controller::Cubic(cubic) = &c else { unreachable!() };
    // Section 4.7: W_max = cwnd * (1 + β) / 2 of the window at that loss, about 700 segments.
    let plateau = f64::from(cubic.plateau()) / f64::from(MSS);
    assert!((590.0..605.0).contains(&plateau), "{plateau}");
}

#[test]
fn a_reduction_without_a_loss_is_taken_back() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let mut c = Controller::new(algorithm, MSS);
        (0..3).for_each(|n| round(&mut c, at(n), ms(1)));
        let before = (c.window(), c.ssthresh());
        c.on_congestion(Congestion::Loss, &flight(c.window(), at(5)));
        assert!(c.window() < before.0);
        c.undo();
        assert_eq!((c.window(), c.ssthresh()), before);
        c.undo();
        assert_eq!((c.window(), c.ssthresh()), before, "once");
        c.on_timeout(&flight(c.window(), at(6)), true);
        c.on_timeout(&flight(MSS, at(7)), false);
        c.undo();
        assert_eq!((c.window(), c.ssthresh()), before, "also over two timeouts");
    }
}

#[test]
fn an_unused_window_decays_to_the_restart_window_and_does_not_grow() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let mut c = Controller::new(algorithm, MSS);
        (0..3).for_each(|n| round(&mut c, at(n), ms(1)));
        let window = c.window();
        c.on_ack(&Delivery { is_window_limited: false, ..delivery(MSS, at(4)) });
        assert_eq!(c.window(), window, "the application limits the flow");
        c.after_idle(ms(199), ms(200), MSS);
        assert_eq!(c.window(), window);
        c.after_idle(ms(400), ms(200), MSS);
        assert_eq!(c.window(), window / 4);
        assert!(c.ssthresh() >= window / 4 * 3);
        c.after_idle(Duration::from_secs(1 << 40), ms(200), MSS);
        assert_eq!(c.window(), initial_window(MSS));
    }
}

#[test]
fn growing_delay_ends_the_first_slow_start_before_a_loss() {
    grow_delay(Controller::new(Algorithm::Cubic, MSS), 0);
}

#[test]
fn growing_delay_is_seen_however_much_was_sent_since_the_last_round() {
    // Where the window was not in use, no round ended, past half of the circle and past all of it.
    for step in 1..=10_u64 {
        let mut c = Controller::new(Algorithm::Cubic, MSS);
        let d = delivery(MSS, at(0));
        c.on_ack(&Delivery { ack: Seq(MSS), next: Seq(10 * MSS), rtt: Some(ms(50)), ..d });
        grow_delay(c, ((step << 29) + u64::from(MSS)) as u32);
    }
}

/// RFC 9406: a queue that grows by 5 ms in each round of 50 ms, from this sequence number on.
fn grow_delay(mut c: Controller, mut seq: u32) {
    let (mut now, mut slowed) = (0, 0);
    for n in 0..30_u64 {
        let next = seq.wrapping_add(c.window());
        let grown_from = c.window();
        let rtt = 50 + if n > 4 { 8 * (n - 4) } else { 0 };
        while seq != next {
            let step = MSS.min(next.wrapping_sub(seq));
            seq = seq.wrapping_add(step);
            let d = delivery(step, at(now));
            let end = next.wrapping_add(c.window());
            c.on_ack(&Delivery { ack: Seq(seq), next: Seq(end), rtt: Some(ms(rtt)), ..d });
        }
        now += rtt;
        if c.ssthresh() != UNLIMITED {
            assert!(n < 20, "five slow rounds after the delay began: {n}");
            assert!((3..=6).contains(&slowed), "{slowed}");
            return;
        }
        slowed += u32::from(c.window() < grown_from * 3 / 2);
    }
    panic!("slow start never ended");
}

proptest! {
    #[test]
    fn windows_stay_within_bounds_in_any_event(
        is_cubic: bool,
        mss in 1_u32..65_535,
        steps in prop::collection::vec((0_u8..8, any::<u32>(), 0_u64..u64::MAX / 300), 1..200),
    ) {
        let algorithm = if is_cubic { Algorithm::Cubic } else { Algorithm::Reno };
        let mut c = Controller::new(algorithm, mss);
        let mut now = Instant::ORIGIN;
        for (what, bytes, wait) in steps {
            now += Duration::from_nanos(if what % 2 == 0 { wait } else { wait % 1_000_000_000 });
            let d = Delivery {
                mss,
                srtt: Duration::from_nanos(wait),
                rtt: Some(Duration::from_nanos(wait)),
                ack: Seq(bytes),
                ..delivery(bytes, now)
            };
            match what {
                0..=2 => c.on_ack(&d),
                3 => c.on_congestion(Congestion::Loss, &Flight { size: bytes, mss, now }),
                4 => c.on_timeout(&Flight { size: bytes, mss, now }, bytes % 2 == 0),
                5 => c.after_idle(Duration::from_nanos(wait), ms(200), mss),
                6 => c.undo(),
                _ => c.on_mss_change(mss, mss),
            }
            prop_assert!(c.window() >= 1 && c.window() <= WINDOW_MAX.max(initial_window(mss)));
            prop_assert!(c.ssthresh() >= 2 * mss.min(UNLIMITED / 2));
        }
    }
}
