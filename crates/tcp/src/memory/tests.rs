//! Tests of the memory of all connections: shares, limits, and which connection gives way.

use floodwall_packet::PoolConfig;

use super::*;

const MEGABYTE: u64 = 1 << 20;

/// Connections of one peer.
fn memory(limit: u64, connections: usize) -> ConnectionMemory {
    let mut memory = ConnectionMemory::new(limit, connections, HashKey::new(1, 2));
    (0..connections as u32).for_each(|index| memory.join(index, peer(1)));
    memory.contested = true;
    memory
}

/// A peer of a prefix of its own.
fn peer(prefix: u8) -> IpAddr {
    IpAddr::from([10, 0, prefix, 1])
}

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

#[test]
fn what_each_may_hold_falls_with_what_is_free_and_never_below_the_floor() {
    let mut memory = memory(MEGABYTE, 1000);
    assert_eq!(u64::from(memory.allowance(0).receive), MEGABYTE / 4);
    for index in 0..200 {
        let part = memory.allowance(0).receive;
        assert!(memory.note(index, part, at(0)));
        assert!(memory.allowance(0).receive <= part && memory.allowance(0).receive >= HALF_FLOOR);
    }
    assert_eq!(memory.allowance(0).receive, HALF_FLOOR);
    // Geometric steps, then floors.
    assert!(memory.held() < MEGABYTE + 200 * u64::from(HALF_FLOOR), "{}", memory.held());
    (0..200).for_each(|index| assert!(!memory.note(index, 0, at(1))));
    assert_eq!((memory.held(), memory.victim(at(9999))), (0, None));
}

#[test]
fn a_few_that_have_grown_never_make_memory_short() {
    for count in [1, 3, 10, 30] {
        let mut memory = memory(64 * MEGABYTE, count);
        // Each takes its maximum, again and again.
        for turn in 0..50 * count as u32 {
            let index = turn % count as u32;
            memory.note(index, memory.allowance(index).receive, at(0));
            assert_eq!(memory.victim(at(100_000)), None, "{count}: {}", memory.held());
        }
        assert!(
            memory.held() / count as u64 > u64::from(HALF_LIMIT_FIRST),
            "{count}: {}",
            memory.held()
        );
    }
}

#[test]
fn none_is_ended_while_three_eighths_are_free() {
    let mut memory = memory(MEGABYTE, 10);
    memory.note(0, (MEGABYTE / 8 * 5) as u32, at(0));
    assert_eq!(memory.victim(at(100_000)), None);
    memory.note(1, 5000, at(0));
    assert_eq!((memory.victim(at(9999)), memory.victim(at(10_000))), (None, Some(0)));
}

#[test]
fn slow_peers_of_one_prefix_wait_for_each_other_while_no_other_one_needs_memory() {
    let mut memory = memory(MEGABYTE, 12);
    memory.join(11, peer(2));
    let whole = (MEGABYTE / 10) as u32;
    (0..10).for_each(|index| _ = memory.note(index, whole, at(0)));
    memory.relieved();
    assert_eq!(memory.allowance(10).receive, HALF_FLOOR);
    // A little of much, for minutes; one at last no more.
    for turn in 1..40 {
        for index in (0..10).filter(|index| turn < 36 || *index != 5) {
            memory.note(index, whole - 2000, at(turn * 5000));
            memory.note(index, whole, at(turn * 5000));
        }
        let is_still = turn >= 37;
        assert_eq!(memory.victim(at(turn * 5000)), is_still.then_some(5), "{turn}");
    }
    memory.note(5, whole, at(195_000));
    memory.note(5, whole - 2000, at(195_000));
    assert_eq!(memory.victim(at(199_000)), None);
    // A little beyond the limit, too.
    memory.note(10, 10_000, at(195_000));
    assert!(memory.held() > MEGABYTE);
    assert_eq!(memory.victim(at(199_000)), None);
    memory.note(10, 0, at(199_000));
    // Another prefix needs some.
    memory.note(11, 1000, at(199_000));
    assert_eq!(memory.victim(at(199_000)), Some(0));
    memory.relieved();
    assert_eq!(memory.victim(at(199_000)), None);
}

#[test]
fn the_last_quarter_is_for_prefixes_with_less_than_their_share() {
    let mut memory = memory(64 * MEGABYTE, 1001);
    memory.join(1000, peer(2));
    for _ in 0..20 {
        for index in 0..1000 {
            let allowed = memory.allowance(index).receive.max(memory.holders[index as usize].held);
            memory.note(index, allowed, at(0));
        }
    }
    let floors = 1000 * u64::from(HALF_FLOOR);
    assert!(memory.held() <= 48 * MEGABYTE + floors, "{}", memory.held());
    assert_eq!(u64::from(memory.allowance(1000).receive), 24 * MEGABYTE);
    memory.note(1000, 3_000_000, at(0));
    assert_eq!(memory.victim(at(9000)), None, "there was room");
}

#[test]
fn the_slowest_turnover_ends_first() {
    let mut memory = memory(MEGABYTE, 10);
    memory.note(3, 500_000, at(0));
    memory.note(4, 450_000, at(10));
    assert_eq!((memory.victim(at(3900)), memory.victim(at(4100))), (None, Some(3)));
    // It gives back as much as it held, while it takes more.
    memory.note(3, 300_000, at(500));
    memory.note(3, 500_000, at(600));
    assert_eq!(memory.victim(at(4100)), Some(3), "not all of it yet");
    memory.note(3, 200_000, at(700));
    memory.note(3, 500_000, at(710));
    assert_eq!(memory.victim(at(4100)), Some(4));
    // A little of much is no turnover, nor is growth.
    memory.note(4, 440_000, at(2900));
    memory.note(4, 460_000, at(2950));
    memory.note(3, MEGABYTE as u32 - 460_000, at(2960));
    assert!(memory.is_full(0));
    assert_eq!(memory.victim(at(4100)), Some(4));
    assert_eq!((memory.victim(at(4009)), memory.victim(at(4010))), (None, Some(4)));
}

#[test]
fn small_holders_go_last() {
    let mut memory = memory(MEGABYTE, 10);
    memory.note(0, HALF_FLOOR, at(0));
    memory.note(1, 950_000, at(5));
    assert_eq!(memory.victim(at(4005)), Some(1));
    memory.note(1, 0, at(4005));
    for index in 2..10 {
        memory.note(index, 120_000, at(3900));
    }
    assert_eq!(memory.victim(at(4005)), Some(0), "the large ones have all just turned over");
}

#[test]
fn others_have_theirs_first_and_a_quarter_is_kept() {
    let pool = Pool::new(&PoolConfig { frames: 720, ..PoolConfig::default() }).unwrap();
    let frames = pool.frames_true_bytes();
    let mut memory = memory(u64::MAX, 10);
    memory.beside(1);
    assert_eq!(memory.limit, u64::MAX, "the pool is not known");
    memory.fit(&pool);
    for percent in 0..=100 {
        let others = frames * percent / 100;
        memory.beside(others);
        assert!(memory.limit >= frames / 4 && memory.limit <= frames / 2);
        let all = others + memory.limit + memory.excess();
        assert!(all <= frames * 7 / 8 || memory.limit == frames / 4, "{percent} %");
    }
    // As much as the other users may hold by their own bounds.
    memory.beside(frames / 4 + 2 * (frames / 8) + 2 * (frames / 32));
    assert!(memory.limit > frames / 4);
    memory.beside(0);
    assert_eq!(memory.limit, frames / 2);
    memory.limit(1000);
    memory.beside(0);
    assert_eq!(memory.limit, 1000, "nor more than was configured");
}

#[test]
fn what_changed_while_memory_was_plenty_is_weighed_when_it_is_not() {
    let mut memory = memory(MEGABYTE, 41);
    memory.join(40, peer(2));
    // Little of each, often: no share knows it yet.
    for turn in 0..100 {
        (0..29).for_each(|index| _ = memory.note(index, HALF_FLOOR - turn % 2, at(0)));
    }
    assert_eq!(memory.shares.total(ALL_SHARES), 0);
    memory.note(40, 900_000, at(1));
    assert!(memory.shares.total(ALL_SHARES) < memory.held(), "a few at a time");
    assert_eq!(memory.victim(at(60_000)), Some(40));
    assert_eq!(memory.shares.total(ALL_SHARES), memory.held());
    memory.note(40, 0, at(2));
    assert!(
        (0..41).all(|index| memory.victim(at(60_000)).is_none() && !memory.note(index, 0, at(3)))
    );
    (0..41).for_each(|index| memory.quit(index));
    assert_eq!((memory.shares.total(ALL_SHARES), memory.shares.prefixes(ALL_SHARES)), (0, 0));
}

#[test]
fn beyond_the_limit_patience_ends() {
    let mut memory = memory(MEGABYTE, 10);
    memory.note(1, MEGABYTE as u32, at(0));
    memory.note(2, HALF_FLOOR, at(10));
    let least = TURNOVER_PATIENCE.as_millis() as u64;
    assert_eq!((memory.victim(at(3860)), memory.victim(at(least))), (None, Some(1)));
    // It makes progress, and holds more than before.
    memory.note(1, 0, at(20));
    memory.note(1, MEGABYTE as u32 + (MEGABYTE / 16) as u32, at(20));
    assert_eq!(memory.victim(at(1600)), None);
    assert_eq!(
        memory.victim(at(2015)),
        Some(2),
        "the one without progress for longest, not the largest"
    );
    assert!(!memory.is_exceeded());
    memory.note(3, (MEGABYTE / 8) as u32, at(20));
    assert!(memory.is_exceeded());
    assert_eq!(memory.victim(at(20)), Some(2));
    memory.note(2, 0, at(20));
    assert_eq!(memory.victim(at(20)), Some(1));
}

#[test]
fn the_prefix_that_holds_most_gives_way_and_others_have_their_share() {
    let mut memory = memory(MEGABYTE, 12);
    (10..12).for_each(|index| memory.join(index, peer(2)));
    // Many of one prefix hold everything, and give a little back all the time.
    for index in 0..10 {
        memory.note(index, (MEGABYTE / 10) as u32, at(0));
    }
    memory.note(0, (MEGABYTE / 10) as u32 + 10, at(0));
    assert!(memory.is_full(0) && !memory.is_full(10));
    assert_eq!(
        u64::from(memory.allowance(10).receive),
        MEGABYTE * 3 / 8,
        "a half of three quarters"
    );
    assert_eq!(memory.allowance(0).receive, HALF_FLOOR);
    memory.note(10, 100_000, at(100));
    // However long the other one has stood still.
    for index in 0..6 {
        assert_eq!(memory.victim(at(60_000)), Some(index));
        memory.note(index, 0, at(60_000));
        memory.note(11, 250_000, at(60_000));
    }
    assert_eq!(memory.victim(at(120_000)), Some(6), "still for long");
    memory.note(6, 0, at(120_000));
    assert_eq!(memory.victim(at(120_000)), None, "both have less than their share");
    (7..10).for_each(|index| memory.quit(index));
    assert_eq!(memory.missing(10), 0, "it is alone");
}

#[test]
fn a_connection_that_is_alone_in_its_prefix_has_most_of_the_share_and_several_have_the_same() {
    let limit = 64 * MEGABYTE;
    let mut memory = memory(limit, 102);
    (100..102).for_each(|index| memory.join(index, peer(2)));
    for _ in 0..20 {
        for index in 0..100 {
            let allowed = memory.allowance(index).receive.max(memory.holders[index as usize].held);
            memory.note(index, allowed, at(0));
        }
    }
    let share = limit / 4 * 3 / 2;
    // They have given way.
    (0..100).for_each(|index| _ = memory.note(index, (share / 80) as u32, at(0)));
    let held = |memory: &ConnectionMemory, index| memory.holders[index as usize].held;
    // Each holds a little more while it may, and a little less while it holds too much.
    let go_on = |memory: &mut ConnectionMemory, index| {
        let (allowed, now) = (memory.allowance(index).send, held(memory, index));
        let next =
            if now < allowed { now + 16 * FRAME_TRUE_BYTES } else { now - 16 * FRAME_TRUE_BYTES };
        memory.note(index, next, at(1));
    };
    (0..2000).for_each(|_| go_on(&mut memory, 100));
    let alone = u64::from(held(&memory, 100));
    assert!(alone >= share / 10 * 8 && alone <= share, "{alone} of {share}");
    (0..2000).for_each(|_| (100..102).for_each(|index| go_on(&mut memory, index)));
    let [one, other] = [100, 101].map(|index| u64::from(held(&memory, index)));
    assert!(one + other <= share && one.abs_diff(other) <= share / 10, "{one} and {other}");
    assert!(one + other >= share / 10 * 8, "{one} and {other} of {share}");
}

/// All the memory is one download's, which drains; others come at once.
#[test]
fn what_others_take_at_once_waits_for_what_drains() {
    let mut memory = memory(MEGABYTE, 301);
    (0..300).for_each(|index| memory.join(index, peer(10 + (index % 30) as u8)));
    memory.join(300, peer(9));
    memory.note(300, 850_000, at(0));
    for index in 0..300 {
        // Where nothing is in flight it may always send something.
        let ConnectionAllowance { send, scarcity, .. } = memory.allowance(index);
        let least = if scarcity == Scarcity::NoFrame { SMALL_TRUE_BYTES } else { FRAME_TRUE_BYTES };
        memory.note(index, send.max(least), at(1));
        assert!(!memory.is_exceeded(), "after {index}");
    }
    // Neither of what they may send nor of what they receive.
    for index in 0..300 {
        if !memory.is_full(index) {
            let held = memory.holders[index as usize].held;
            memory.note(index, held + FRAME_TRUE_BYTES, at(2));
        }
    }
    assert!(memory.is_full(300) && !memory.is_exceeded(), "{}", memory.held());
    assert_eq!(memory.allowance(300).send, 0, "what it holds drains first");
    memory.note(300, 840_000, at(1500));
    assert_ne!(memory.victim(at(1900)), Some(300), "it drains");
    assert_eq!(memory.victim(at(4000)), Some(300));
}

#[test]
fn a_connection_that_was_ended_is_not_found_again() {
    let mut memory = memory(MEGABYTE, 3);
    (0..3).for_each(|index| _ = memory.note(index, 340_000, at(0)));
    for index in 0..2 {
        let found = memory.victim(at(5000));
        assert_eq!(found, (index == 0).then_some(0), "a third is free then");
        memory.note(0, 0, at(5000));
        memory.quit(0);
    }
    assert_eq!(memory.held(), 680_000);
}

#[test]
fn a_search_in_vain_is_the_last_of_its_round_unless_too_much_is_held() {
    let mut memory = memory(MEGABYTE, 3);
    memory.join(2, peer(2));
    memory.note(0, 950_000, at(0));
    memory.relieved();
    assert_eq!(memory.next_victim(at(5000)), None, "no other prefix needs any");
    memory.note(2, 5000, at(5000));
    assert_eq!(memory.next_victim(at(5000)), None, "it was looked for in this round");
    assert_eq!(memory.next_victim(at(5001)), Some(0));
    memory.relieved();
    assert_eq!(memory.next_victim(at(5002)), None);
    memory.note(2, (MEGABYTE / 4) as u32, at(5002));
    assert!(memory.is_exceeded());
    assert_eq!(memory.next_victim(at(5002)), Some(0));
}

#[test]
fn a_place_that_is_anothers_begins_with_nothing_of_the_one_before() {
    // With the end of the one before told, and without: shares for two, and many peers in turn.
    for is_told in [true, false] {
        let mut memory = ConnectionMemory::new(64 * MEGABYTE, 2, HashKey::new(1, 2));
        for n in 0..100 {
            memory.join(0, peer(n));
            memory.note(0, HALF_FLOOR + 1, at(0));
            assert_eq!(memory.held(), u64::from(HALF_FLOOR + 1), "{n}");
            assert_eq!(memory.shares.held_by(ALL_SHARES, peer(n)), memory.held(), "{n}");
            assert_eq!(memory.shares.prefixes(ALL_SHARES), 1, "{n}");
            if is_told {
                memory.quit(0);
                assert_eq!((memory.held(), memory.shares.prefixes(ALL_SHARES)), (0, 0), "{n}");
            }
        }
    }
}
