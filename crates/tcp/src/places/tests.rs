//! Places: classes, prefixes, and what makes room.

use super::*;

const KEY: HashKey = HashKey::new(5, 6);

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn v4(prefix: u8, host: u8) -> IpAddr {
    IpAddr::from([10, 0, prefix, host])
}

fn v6(site: u16, net: u16) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, site, net, 0, 0, 0, 1])
}

/// Each has been silent since it was entered, at its index in milliseconds.
fn silent(index: u32) -> Option<Instant> {
    Some(at(u64::from(index)))
}

fn ledger() -> PlaceLedger {
    PlaceLedger::of_shard(1000, KEY)
}

fn enter(ledger: &mut PlaceLedger, indices: core::ops::Range<u32>, peer: impl Fn(u32) -> IpAddr) {
    let here = |index| (peer(index), Duration::ZERO);
    indices.for_each(|index| ledger.enter(index, 0, here(index), at(u64::from(index))));
    ledger.enter_waiting(usize::MAX);
}

#[test]
fn the_prefix_with_most_gives_up_what_no_program_owns_and_then_what_is_idle_for_longest() {
    for peers in [[v4(1, 1), v4(2, 1), v4(3, 1)], [v6(1, 1), v6(2, 1), v6(3, 1)]] {
        let mut ledger = ledger();
        enter(&mut ledger, 0..3, |_| peers[0]);
        enter(&mut ledger, 3..13, |_| peers[1]);
        ledger.disown(0);
        ledger.disown(9);
        let newcomer = Some(peers[2]);
        assert_eq!(ledger.victim(0, newcomer, at(20), silent), Some(9));
        ledger.leave(9);
        assert_eq!(ledger.victim(0, newcomer, at(20), silent), Some(3));
        ledger.leave(3);
        assert_eq!(ledger.victim(0, newcomer, at(20), silent), Some(4));
        // One without an owner weighs as much as four others.
        (4..9).for_each(|index| ledger.leave(index));
        assert_eq!((ledger.held_by(0, peers[0]), ledger.held_by(0, peers[1])), (6, 3));
        assert_eq!(ledger.victim(0, newcomer, at(20), silent), Some(0));
    }
}

#[test]
fn a_prefix_that_holds_no_more_gives_up_only_what_is_idle() {
    let mut ledger = ledger();
    enter(&mut ledger, 0..5, |_| v4(1, 1));
    enter(&mut ledger, 5..10, |_| v4(2, 1));
    let (own, other) = (Some(v4(2, 9)), Some(v4(3, 1)));
    // As much after the newcomer has come: its own prefix first, and nothing that is active.
    assert_eq!(ledger.victim(0, own, at(400), silent), None);
    assert_eq!(ledger.victim(0, own, at(506), silent), Some(5));
    // For a prefix that holds less, at once.
    assert_eq!(ledger.victim(0, other, at(10), silent), Some(0));
    // Also for a connection that a program opens.
    assert_eq!(ledger.victim(0, None, at(10), silent), Some(0));
}

#[test]
fn activity_is_noticed_when_a_victim_is_looked_for() {
    let mut ledger = ledger();
    enter(&mut ledger, 0..100, |_| v4(1, 1));
    let other = Some(v4(2, 1));
    // The first ten are active.
    let look = |index: u32| Some(if index < 10 { at(500) } else { at(u64::from(index)) });
    assert_eq!(ledger.victim(0, other, at(501), look), Some(10));
    // Where all are active, the one that was so longest ago of those that were looked at.
    let active = |index: u32| Some(at(600 + u64::from(index * 37 % 101)));
    let victim = ledger.victim(0, other, at(800), active).unwrap();
    let looked = 10..10 + TCP_EVICT_LOOKS as u32;
    let oldest = looked.min_by_key(|index| index * 37 % 101).unwrap();
    assert_eq!(victim, oldest);
}

#[test]
fn a_listener_s_connections_that_must_be_idle_for_longer_stay() {
    let mut ledger = ledger();
    for index in 0..20 {
        let idle_min = if index < 15 { Duration::from_secs(60) } else { Duration::ZERO };
        ledger.enter(index, 0, (v4(1, 1), idle_min), at(u64::from(index)));
    }
    ledger.enter_waiting(usize::MAX);
    assert_eq!(ledger.victim(0, None, at(100), silent), Some(15));
    (15..20).for_each(|index| ledger.leave(index));
    assert_eq!(ledger.victim(0, None, at(59_999), silent), None);
    assert!(ledger.victim(0, None, at(60_100), silent).is_some());
}

#[test]
fn the_share_of_a_prefix_is_that_of_all_that_have_some_and_one_more() {
    let mut ledger = ledger();
    assert!(!ledger.has_its_share(0, v4(1, 1), 1000));
    enter(&mut ledger, 0..499, |_| v4(1, 1));
    assert!(!ledger.has_its_share(0, v4(1, 1), 1000));
    enter(&mut ledger, 499..500, |_| v4(1, 1));
    assert!(ledger.has_its_share(0, v4(1, 200), 1000));
    enter(&mut ledger, 500..510, |index| v4(index as u8, 1));
    assert!(ledger.has_its_share(0, v4(1, 1), 1000) && !ledger.has_its_share(0, v4(9, 1), 1000));
}

#[test]
fn what_waits_counts_once_it_is_entered_as_it_is_by_then() {
    let mut ledger = ledger();
    (0..8).for_each(|index| ledger.enter(index, 0, (v4(1, 1), Duration::ZERO), at(0)));
    assert_eq!((ledger.held_by(0, v4(1, 1)), ledger.victim(0, None, at(9), silent)), (0, None));
    ledger.leave(0);
    ledger.disown(2);
    ledger.enter_waiting(3);
    let unowned = u64::from(TCP_UNOWNED_WEIGHT);
    assert_eq!((ledger.held_by(0, v4(1, 1)), ledger.count(0)), (2 + unowned, 2 + unowned));
    assert_eq!(ledger.victim(0, None, at(9), silent), Some(2));
    // One that has left is not entered, nor one twice.
    ledger.leave(4);
    ledger.leave(1);
    ledger.enter_waiting(usize::MAX);
    assert_eq!(ledger.count(0), 4 + unowned);
    (0..8).for_each(|index| ledger.leave(index));
    assert_eq!((ledger.count(0), ledger.held_by(0, v4(1, 1))), (0, 0));
}
