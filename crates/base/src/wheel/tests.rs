//! The wheel against an ordered map: nothing early, nothing late, nothing lost, bounded work.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MANY: Units = Units(u32::MAX);

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn due(wheel: &mut TimerWheel, now: Instant) -> Vec<u32> {
    let mut found = Vec::new();
    wheel.expire(now, MANY, |index| found.push(index));
    found
}

/// When an entry may be given out at the earliest.
fn rounded(deadline: u64) -> u64 {
    deadline.div_ceil(1 << TICK_SHIFT).min(TICK_MAX) << TICK_SHIFT
}

#[test]
fn an_empty_wheel_wants_nothing() {
    let mut wheel = TimerWheel::new(4, at(u64::MAX / 3));
    assert_eq!((wheel.deadline(), wheel.pop_due(Instant::FAR, &mut MANY.clone())), (None, None));
    wheel.insert(2, at(5));
    wheel.cancel(2);
    wheel.cancel(2);
    assert_eq!((wheel.deadline(), wheel.len()), (None, 0));
}

#[test]
fn entries_come_out_in_order_and_never_early() {
    let mut wheel = TimerWheel::new(4, Instant::ORIGIN);
    let second = 1_000_000_000;
    for (index, seconds) in [(0, 30), (1, 1), (2, 100_000), (3, 5)] {
        wheel.insert(index, at(seconds * second));
    }
    assert_eq!(due(&mut wheel, at(second - 1)), []);
    assert_eq!(due(&mut wheel, at(rounded(second))), [1]);
    assert_eq!(due(&mut wheel, at(50 * second)), [3, 0]);
    assert_eq!(due(&mut wheel, at(rounded(100_000 * second) - 1)), []);
    assert_eq!(due(&mut wheel, at(rounded(100_000 * second))), [2]);
}

#[test]
fn the_farthest_moment_has_its_place() {
    let mut wheel = TimerWheel::new(2, Instant::ORIGIN);
    wheel.insert(0, Instant::FAR);
    wheel.insert(1, at(1));
    assert_eq!(due(&mut wheel, at(1 << 40)), [1]);
    assert!(wheel.deadline().is_some_and(|d| d > at(1 << 40)));
    assert_eq!(due(&mut wheel, Instant::FAR), [0]);
}

#[test]
fn work_stops_at_its_budget_and_goes_on_later() {
    let mut wheel = TimerWheel::new(1000, Instant::ORIGIN);
    (0..1000).for_each(|index| wheel.insert(index, at(1 << 40)));
    let (now, mut found, mut calls) = (at(1 << 41), 0, 0);
    while !wheel.is_empty() {
        assert!(wheel.deadline().is_some_and(|d| d <= now));
        let spent = wheel.expire(now, Units(10), |_| found += 1);
        assert!(spent <= Units(10));
        calls += 1;
    }
    assert_eq!(found, 1000);
    assert!(calls <= 1000 * LEVELS / 10);
}

#[test]
fn an_entry_may_be_set_again_while_others_are_given_out() {
    let mut wheel = TimerWheel::new(2, Instant::ORIGIN);
    wheel.insert(0, at(1));
    wheel.insert(1, at(1));
    let (mut units, now) = (Units(8), at(1 << 30));
    let mut order = Vec::new();
    while let Some(index) = wheel.pop_due(now, &mut units) {
        order.push(index);
        if order.len() < 4 {
            wheel.insert(index, now);
        }
    }
    // One that is due at once waits behind those that are due already.
    assert_eq!(order, [0, 1, 0, 1, 0]);
}

#[test]
fn time_that_goes_backwards_harms_nothing() {
    let mut wheel = TimerWheel::new(2, at(1 << 40));
    wheel.insert(0, at(1 << 41));
    assert_eq!(due(&mut wheel, at(5)), []);
    wheel.insert(1, at(7));
    assert_eq!(due(&mut wheel, at(5)), [1]);
    assert_eq!(due(&mut wheel, at(1 << 41)), [0]);
}

/// What the random test does.
#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u64),
    Cancel(u32),
    Pass(u64),
    Expire(u32),
}

const ENTRIES: u32 = 24;

fn step() -> impl Strategy<Value = Step> {
    // Delays of every magnitude, so that every level is visited.
    let delay = || (0_u32..50, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1));
    prop_oneof![
        4 => (0..ENTRIES, delay()).prop_map(|(i, d)| Step::Insert(i, d)),
        1 => (0..ENTRIES).prop_map(Step::Cancel),
        2 => delay().prop_map(Step::Pass),
        3 => (0_u32..40).prop_map(Step::Expire),
    ]
}

proptest! {
    #[test]
    fn the_wheel_agrees_with_an_ordered_map(
        start in prop_oneof![Just(0), any::<u64>().prop_map(|n| n >> 2)],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut wheel = TimerWheel::new(ENTRIES as usize, at(start));
        let mut oracle: BTreeMap<u32, u64> = BTreeMap::new();
        let mut now = start;
        for step in steps {
            match step {
                Step::Insert(index, delay) => {
                    wheel.insert(index, at(now + delay));
                    oracle.insert(index, rounded(now + delay));
                }
                Step::Cancel(index) => {
                    wheel.cancel(index);
                    oracle.remove(&index);
                }
                Step::Pass(delay) => now += delay,
                Step::Expire(units) => {
                    let mut left = Units(units);
                    while let Some(index) = wheel.pop_due(at(now), &mut left) {
                        let deadline = oracle.remove(&index);
                        prop_assert!(deadline.is_some_and(|d| d <= now), "{index} early");
                    }
                    // With units left, nothing that is due may remain.
                    prop_assert!(left.is_zero() || oracle.values().all(|&d| d > now));
                }
            }
            let first = oracle.values().min().copied();
            prop_assert_eq!(wheel.len(), oracle.len());
            prop_assert_eq!(wheel.deadline().is_none(), first.is_none());
            if let (Some(wheel), Some(first)) = (wheel.deadline(), first) {
                prop_assert!(wheel.as_nanos() <= first.max(now));
            }
            prop_assert!((0..ENTRIES).all(|i| wheel.is_set(i) == oracle.contains_key(&i)));
        }
    }

    #[test]
    fn sleeping_until_the_deadline_finds_every_entry_in_time(
        delays in prop::collection::vec((0_u32..55, any::<u64>()), 1..20),
    ) {
        let delays: Vec<u64> = delays.iter().map(|(bits, n)| n & ((1 << bits) - 1)).collect();
        let mut wheel = TimerWheel::new(delays.len(), Instant::ORIGIN);
        for (index, delay) in delays.iter().enumerate() {
            wheel.insert(index as u32, at(*delay));
        }
        let mut wakes = 0;
        while let Some(now) = wheel.deadline() {
            wakes += 1;
            for index in due(&mut wheel, now) {
                prop_assert_eq!(now.as_nanos(), rounded(delays[index as usize]));
            }
        }
        prop_assert!(wakes <= delays.len() * LEVELS);
    }
}
