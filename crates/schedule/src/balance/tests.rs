//! Guarantees of `Balance`, with simulated clocks.

use floodwall_base::PublicRandom;

use super::*;

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn at(n: u64) -> Instant {
    Instant::ORIGIN + us(n)
}

fn config(share: u16) -> BalanceConfig {
    BalanceConfig { share: Share::per_mille(share), ..BalanceConfig::default() }
}

/// A worker that always has more to do, in turns of random length, which follows the decisions;
/// woken late by up to `late`. Returns the time at the end.
fn flooded(balance: &mut Balance, turns: u32, longest: u64, late: u64) -> Instant {
    flooded_where_sleep_costs(balance, turns, longest, (late, Duration::ZERO))
}

/// As [`flooded`], where each rest costs the worker so much of the core.
fn flooded_where_sleep_costs(
    balance: &mut Balance,
    turns: u32,
    longest: u64,
    (late, spent): (u64, Duration),
) -> Instant {
    let mut random = PublicRandom::new(7);
    let mut now = Instant::ORIGIN;
    for _ in 0..turns {
        let from = now;
        now += Duration::from_nanos(1 + random.below(longest));
        if let NextTurn::Rest { until } = balance.ran(from, now, 8, true) {
            assert!(until > now);
            let woken = until + Duration::from_nanos(random.below(late + 1));
            balance.rested(now, woken, spent);
            now = woken;
        }
    }
    now
}

#[test]
fn under_any_flood_applications_have_their_share_to_the_nanosecond() {
    for share in [1, 100, 500, 900, 990] {
        for longest in [2_000, 60_000, 400_000] {
            let mut balance = Balance::new(config(share), Instant::ORIGIN);
            let end = flooded(&mut balance, 20_000, longest, 0);
            let stats = *balance.stats();
            assert_eq!(stats.ran + stats.rested, end - Instant::ORIGIN);
            // What the last, unpaid run used counts against it.
            let reserved = Share::per_mille(share).of_time(end - Instant::ORIGIN);
            let slack = us(2000);
            assert!(stats.rested + slack >= reserved, "{share} {longest}: {stats:?}");
            // Work-conserving: not much more either, but for the sake of short runs.
            let own = Share::per_mille(share).rest().of_time(end - Instant::ORIGIN);
            assert!(stats.ran + slack + own / 8 >= own, "{share} {longest}: {stats:?}");
            assert!(stats.time_squeeze > 0);
        }
    }
}

#[test]
fn what_it_takes_to_sleep_and_to_wake_is_the_workers_own_loss() {
    for share in [100, 500, 900] {
        let mut balance = Balance::new(config(share), Instant::ORIGIN);
        let end = flooded_where_sleep_costs(&mut balance, 20_000, 60_000, (0, us(10)));
        let (stats, all) = (*balance.stats(), end - Instant::ORIGIN);
        assert_eq!(stats.ran + stats.rested, all);
        let reserved = Share::per_mille(share).of_time(all);
        assert!(stats.rested + us(2000) >= reserved, "{share}: {stats:?}");
        let own = Share::per_mille(share).rest().of_time(all);
        assert!(stats.ran + us(2000) + own / 8 >= own, "{share}: {stats:?}");
    }
}

#[test]
fn a_sleep_cannot_have_cost_more_than_it_lasted() {
    let mut balance = Balance::new(config(500), Instant::ORIGIN);
    balance.rested(at(0), at(600), us(1_000_000));
    assert_eq!((balance.stats().ran, balance.stats().rested), (us(600), us(0)));
}

#[test]
fn without_a_share_nothing_is_kept_for_applications() {
    let mut balance = Balance::new(config(0), Instant::ORIGIN);
    flooded(&mut balance, 10_000, 60_000, 0);
    assert_eq!(balance.stats().application_share(), Share::NONE);
    assert!(balance.stats().longest_run > us(100_000), "the gap grows with the flood");
}

#[test]
fn an_overrun_is_paid_back() {
    let mut balance = Balance::new(config(500), at(0));
    // 400 us where 250 are allowed: away until 800, not until the period's end at 500.
    assert_eq!(balance.ran(at(0), at(400), 64, true), NextTurn::Rest { until: at(800) });
    balance.rested(at(400), at(800), Duration::ZERO);
    assert_eq!(balance.ran(at(800), at(900), 64, true), NextTurn::Go);
    assert_eq!(balance.stats().time_squeeze, 1);
}

#[test]
fn a_rest_that_ends_early_is_still_owed() {
    let mut balance = Balance::new(config(500), at(0));
    assert_eq!(balance.ran(at(0), at(250), 64, true), NextTurn::Rest { until: at(500) });
    balance.rested(at(250), at(300), Duration::ZERO);
    assert_eq!(balance.ran(at(300), at(310), 64, true), NextTurn::Rest { until: at(520) });
    balance.rested(at(310), at(520), Duration::ZERO);
    assert_eq!(balance.ran(at(520), at(530), 64, true), NextTurn::Go);
    assert_eq!(balance.stats().time_squeeze, 1, "one exhaustion, reported twice");
}

#[test]
fn no_run_is_longer_than_the_limit_at_any_period() {
    for period in [us(100), us(500), us(2_000), us(20_000)] {
        for share in [1, 500, 900] {
            let config = BalanceConfig { period, ..config(share) };
            let mut balance = Balance::new(config, Instant::ORIGIN);
            flooded(&mut balance, 50_000, 60_000, 3_000);
            let longest = balance.stats().longest_run;
            assert!(longest <= ROUND_MAX, "{period:?} {share}: {longest:?}");
        }
    }
}

#[test]
fn a_budget_in_packets_ends_a_run_where_time_does_not() {
    let config = BalanceConfig { packets_max: 128, ..config(500) };
    let mut balance = Balance::new(config, at(0));
    assert_eq!(balance.ran(at(0), at(1), 64, true), NextTurn::Go);
    assert_eq!(balance.ran(at(1), at(2), 64, true), NextTurn::Rest { until: at(500) });
    balance.rested(at(2), at(500), Duration::ZERO);
    assert_eq!(balance.ran(at(500), at(501), 64, true), NextTurn::Go);
    let stats = balance.stats();
    assert_eq!((stats.time_squeeze, stats.packet_squeeze), (1, 1));
}

#[test]
fn idle_applications_leave_the_worker_everything_until_they_want_it_back() {
    let mut balance = Balance::new(config(500), at(0));
    balance.set_applications_idle(at(0), true);
    for turn in 0..100 {
        assert_eq!(balance.ran(at(turn * 50), at(turn * 50 + 50), 64, true), NextTurn::Go);
    }
    assert_eq!(balance.stats().longest_run, Duration::ZERO, "no application waited");
    balance.set_applications_idle(at(5_000), false);
    assert_eq!(
        balance.ran(at(5_000), at(5_249), 64, true),
        NextTurn::Go,
        "a whole budget from here"
    );
    assert_eq!(balance.ran(at(5_249), at(5_250), 64, true), NextTurn::Rest { until: at(5_500) });
    // And idle again: unused application time is not waited for.
    balance.set_applications_idle(at(5_250), true);
    assert_eq!(balance.ran(at(5_250), at(5_900), 64, true), NextTurn::Go);
}

#[test]
fn a_worker_without_work_is_not_squeezed() {
    let mut balance = Balance::new(config(500), at(0));
    for n in 0..1000 {
        // 20 us of work every 100 us.
        assert_eq!(balance.ran(at(n * 100), at(n * 100 + 20), 1, false), NextTurn::Go);
        balance.rested(at(n * 100 + 20), at(n * 100 + 100), Duration::ZERO);
    }
    assert_eq!(balance.stats().time_squeeze, 0);
    assert_eq!(balance.stats().application_share(), Share::per_mille(800));
    assert_eq!(balance.stats().longest_run, us(20));
}

#[test]
fn a_worker_that_is_woken_for_every_packet_lies_in_to_the_periods_end() {
    let mut balance = Balance::new(config(500), at(0));
    assert_eq!(balance.lie_in(at(1)), None, "the first packet is answered at once");
    assert_eq!(balance.ran(at(0), at(130), 64, false), NextTurn::Go);
    assert_eq!(balance.lie_in(at(130)), Some(at(500)));
    assert_eq!(balance.lie_in(at(500)), None);
    balance.set_applications_idle(at(130), true);
    assert_eq!(balance.lie_in(at(130)), None);
}

#[test]
fn what_the_kernels_half_uses_beside_the_turns_counts_as_the_workers() {
    let mut balance = Balance::new(config(500), at(0));
    assert_eq!(balance.ran(at(0), at(20), 8, true), NextTurn::Go);
    assert_eq!((balance.lie_in(at(250)), balance.is_light()), (None, true), "20 of 250 us");
    balance.charge(us(230));
    assert!(!balance.is_light());
    assert_eq!((balance.period_end(at(270)), balance.period_end(at(500))), (at(500), at(1000)));
    assert_eq!(balance.lie_in(at(260)), Some(at(500)));
    // Both together have used 260 of 250 us.
    assert_eq!(balance.ran(at(260), at(270), 8, true), NextTurn::Rest { until: at(520) });
    assert_eq!(balance.stats().ran, us(260));
}

#[test]
fn a_turn_longer_than_any_run_is_paid_back_whole() {
    let mut balance = Balance::new(config(500), at(0));
    assert_eq!(balance.ran(at(0), at(5_000), 64, true), NextTurn::Rest { until: at(10_000) });
    balance.rested(at(5_000), at(10_000), Duration::ZERO);
    assert_eq!(balance.stats().application_share(), Share::HALF);
}

#[test]
fn everything_reserved_for_applications_still_leaves_the_worker_a_hundredth() {
    let mut balance = Balance::new(config(1000), Instant::ORIGIN);
    flooded(&mut balance, 1000, 5_000, 0);
    let share = balance.stats().application_share();
    assert!(share >= Share::per_mille(989) && share < Share::ALL, "{share}");
}

#[test]
fn a_clock_that_stands_still_or_leaps_is_survived() {
    let mut balance = Balance::new(config(500), at(0));
    assert_eq!(balance.ran(at(5), at(5), 0, true), NextTurn::Go);
    assert_eq!(balance.ran(at(9), at(5), 0, true), NextTurn::Go);
    assert!(matches!(
        balance.ran(at(5), Instant::FAR, 64, true),
        NextTurn::Go | NextTurn::Rest { .. }
    ));
    balance.rested(Instant::FAR, at(5), Duration::ZERO);
    balance.rested(at(5), Instant::FAR, Duration::ZERO);
    assert!(matches!(balance.ran(Instant::FAR, Instant::FAR, usize::MAX, true), NextTurn::Go));
}
