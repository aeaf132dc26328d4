//! Every interleaving of one reader and the writer of routes, under loom.
//!
//! Run by the step `loom` of `cargo xtask ci`; without `cfg(loom)` this file is empty. The models
//! use the public tables, tiny, in both families: a look-up finds what was there before a change
//! or what is there after it, never half of it, never what memory was used for later, and never
//! the older of two answers after the newer one. Reading: `sync::qsbr` for what a view guarantees.
//!
//! What was broken by hand, and noticed: the release of `Line::publish` (a prefix that leads
//! elsewhere), that of `Hops::show` (an object that changes), the end that is to be known before
//! its route (a route that has ended), the comparison of a lifetime with the clock (a lifetime that
//! is used again), the word that led to a slot that can expire, read a second time (another entry),
//! and a limbo that gives back at once. Not noticed: the release of a direct block's entry, as a
//! line that has not arrived yet reads as empty, which is the answer before.
#![cfg(loom)]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{Address, HashKey, IfIndex, Instant, Prefix};
use floodwall_fib::lpm::{ENTRY, Lpm, LpmCapacity, LpmFamily, LpmWriter, RouteTarget};
use floodwall_fib::{Fib, FibConfig, FibReader, NextHop, NextHopId, Route, RouteKind, TableId};
use floodwall_sync::qsbr::{Domain, Reader};
use loom::thread;

const START: Instant = Instant::from_nanos(1_000_000_000);
const END: Instant = Instant::from_nanos(2_000_000_000);

/// Each model in both families.
macro_rules! both {
    ($($model:ident: $v4:ident, $v6:ident;)*) => {
        $(#[test]
        fn $v4() {
            $model::<Ipv4Addr>();
        }

        #[test]
        fn $v6() {
            $model::<Ipv6Addr>();
        })*
    };
}

both! {
    a_prefix_comes:
        a_prefix_that_comes_is_found_wholly_or_not_ipv4,
        a_prefix_that_comes_is_found_wholly_or_not_ipv6;
    a_value_changes:
        a_prefix_that_leads_elsewhere_is_never_missed_ipv4,
        a_prefix_that_leads_elsewhere_is_never_missed_ipv6;
    memory_is_used_again:
        memory_that_is_used_again_misleads_nothing_ipv4,
        memory_that_is_used_again_misleads_nothing_ipv6;
    an_ended_route_comes:
        a_route_that_has_ended_is_never_taken_for_one_that_lives_ipv4,
        a_route_that_has_ended_is_never_taken_for_one_that_lives_ipv6;
    an_ended_route_is_replaced:
        a_route_that_has_ended_gives_way_to_one_without_end_ipv4,
        a_route_that_has_ended_gives_way_to_one_without_end_ipv6;
    a_next_hop_changes:
        a_way_that_changes_is_found_as_it_was_or_as_it_is_ipv4,
        a_way_that_changes_is_found_as_it_was_or_as_it_is_ipv6;
    a_named_hop_changes:
        an_object_that_changes_is_never_found_in_halves_ipv4,
        an_object_that_changes_is_never_found_in_halves_ipv6;
    a_lifetime_is_used_again:
        a_lifetime_that_is_used_again_brings_no_route_back_ipv4,
        a_lifetime_that_is_used_again_brings_no_route_back_ipv6;
}

/// Checks a model with two preemptions in one execution at most, or as many as
/// the number in `LOOM_MAX_PREEMPTIONS`.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.max_branches = 1 << 20;
    builder.check(model);
}

fn addr<A: Address>(text: &str) -> A {
    let v4: Ipv4Addr = text.parse().unwrap();
    A::from_bits_aligned(u128::from(v4.to_bits()) << 96)
}

fn prefix<A: Address>(text: &str) -> Prefix<A> {
    let (addr, len) = text.split_once('/').unwrap();
    Prefix::new(self::addr(addr), len.parse().unwrap()).unwrap()
}

/// The least that a change is sure of.
fn table<A: LpmFamily>(domain: &Domain) -> LpmWriter<A> {
    let capacity = LpmCapacity { lines: 24, slots: 4096, directs: 6, retired: 128 };
    LpmWriter::new(domain, capacity)
}

fn look<A: LpmFamily>(lpm: &Lpm<A>, reader: &Reader, text: &str, now: Instant) -> u32 {
    lpm.lookup(reader.view(), addr(text), now)
}

/// A prefix comes below another one: it is found or not, and once found it stays.
fn a_prefix_comes<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut writer = table::<A>(&domain);
        writer.insert(prefix("10.0.0.0/8"), 1, START).unwrap();
        let (lpm, reader) = (writer.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            let found = [0; 2].map(|_| look(&lpm, &reader, "10.1.2.3", START));
            assert!(matches!(found, [1, 1] | [1, 5] | [5, 5]), "{found:?}");
        });
        writer.insert(prefix("10.1.2.0/28"), 5, START).unwrap();
        looks.join().unwrap();
    });
}

/// A prefix leads elsewhere, beside another one of the same node: it is never missed meanwhile.
fn a_value_changes<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut writer = table::<A>(&domain);
        writer.insert(prefix("10.0.0.0/8"), 1, START).unwrap();
        writer.insert(prefix("10.1.2.0/28"), 5, START).unwrap();
        writer.insert(prefix("10.1.2.16/28"), 7, START).unwrap();
        let (lpm, reader) = (writer.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            let found = [0; 2].map(|_| look(&lpm, &reader, "10.1.2.3", START));
            assert!(matches!(found, [5, 5] | [5, 6] | [6, 6]), "{found:?}");
        });
        writer.insert(prefix("10.1.2.0/28"), 6, START).unwrap();
        looks.join().unwrap();
    });
}

/// A route that has ended, among others that can, is replaced by one that cannot: its entry is
/// found, or the value, and no other entry.
fn an_ended_route_is_replaced<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut writer = table::<A>(&domain);
        writer.insert(prefix("10.1.1.0/24"), 1, START).unwrap();
        let ends = RouteTarget::until(5, 3, START);
        writer.replace(prefix("10.1.2.0/24"), Some(ends), START).unwrap();
        let (lpm, reader) = (writer.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            let found = lpm.bind(reader.view()).lookup(addr("10.1.2.3"), END);
            assert!(found == ENTRY | 3 || found == 7, "{found:x}");
        });
        let stays = RouteTarget::forever(7);
        writer.replace(prefix("10.1.2.0/24"), Some(stays), START).unwrap();
        looks.join().unwrap();
    });
}

/// A prefix goes, and what it took is used for another part of the space: no reader on the way
/// there meets that.
fn memory_is_used_again<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut writer = table::<A>(&domain);
        writer.insert(prefix("10.0.0.0/8"), 1, START).unwrap();
        writer.insert(prefix("10.1.2.0/28"), 5, START).unwrap();
        let (lpm, mut reader) = (writer.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            let before = look(&lpm, &reader, "10.1.2.3", START);
            reader.quiescent(START);
            let after = look(&lpm, &reader, "10.9.2.3", START);
            let found = (before, after);
            assert!(matches!(found, (5 | 1, 1 | 7)), "{found:?}");
        });
        writer.remove(prefix("10.1.2.0/28"), START).unwrap();
        writer.insert(prefix("10.9.2.0/28"), 7, START).unwrap();
        looks.join().unwrap();
    });
}

/// A route that expires comes: a reader with a clock past its end never takes its value.
fn an_ended_route_comes<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut writer = table::<A>(&domain);
        writer.insert(prefix("10.0.0.0/8"), 1, START).unwrap();
        let (lpm, reader) = (writer.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            let found = look(&lpm, &reader, "10.1.2.3", END);
            assert!(found == 1 || found == ENTRY | 3, "{found}");
        });
        let target = RouteTarget::until(5, 3, END);
        writer.replace(prefix("10.1.2.0/28"), Some(target), START).unwrap();
        looks.join().unwrap();
    });
}

fn fib<A: LpmFamily>(domain: &Domain) -> Fib<A> {
    let config = FibConfig {
        routes_max: 4,
        learnt_max: 0,
        expiring_max: 1,
        next_hops_max: 2,
        groups_max: 0,
    };
    Fib::new(domain, config, HashKey::new(1, 2), START)
}

/// A next hop with the same number in all parts.
fn way<A: Address>(n: u16) -> NextHop<A> {
    let addr = addr(&format!("10.{n}.{n}.{n}"));
    let src_addr = Some(addr);
    NextHop { kind: RouteKind::Unicast, iface: IfIndex(n), gateway: Some(addr), src_addr }
}

/// The number in all parts of what was found.
fn number<A: LpmFamily>(fib: &FibReader<A>, reader: &Reader, text: &str, now: Instant) -> u16 {
    let found = fib.lookup(reader.view(), addr(text), now).expect("there is always a route");
    let n = found.iface.0;
    let way = way::<A>(n);
    if found.gateway.is_some() {
        assert_eq!((found.gateway, found.src_addr), (way.gateway, way.src_addr), "of {n}");
    }
    n
}

/// A next hop is replaced twice under its route, so that its first place may be used again.
fn a_next_hop_changes<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut fib = fib::<A>(&domain);
        let way = |n| Route {
            gateway: way::<A>(n).gateway,
            src_addr: way::<A>(n).src_addr,
            ..Route::on_link(prefix("10.0.0.0/8"), IfIndex(n))
        };
        fib.add(way(1), START).unwrap();
        fib.publish(START);
        let (routes, mut reader) = (fib.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            let before = number(&routes, &reader, "10.1.2.3", START);
            reader.quiescent(START);
            let after = number(&routes, &reader, "10.1.2.3", START);
            assert!((1..=3).contains(&before) && before <= after, "{before}, then {after}");
        });
        for n in 2..=3 {
            let _ = fib.replace(way(n), START);
            fib.publish(START);
        }
        looks.join().unwrap();
    });
}

/// An object with a name leads elsewhere, by one store.
fn a_named_hop_changes<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut fib = fib::<A>(&domain);
        let id = NextHopId(1);
        fib.add_next_hop(id, way(1)).unwrap();
        fib.add(Route::through(prefix("10.0.0.0/8"), id), START).unwrap();
        fib.publish(START);
        let (routes, reader) = (fib.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            let found = [0; 2].map(|_| number(&routes, &reader, "10.1.2.3", START));
            assert!(matches!(found, [1, 1] | [1, 2] | [2, 2]), "{found:?}");
        });
        fib.replace_next_hop(id, way(2), START).unwrap();
        looks.join().unwrap();
    });
}

/// A route ends, is collected, and its lifetime is given to another route: the reader, with a clock
/// is past the end, finds the shorter one all the while.
fn a_lifetime_is_used_again<A: LpmFamily>() {
    check(|| {
        let domain = Domain::new(1);
        let mut fib = fib::<A>(&domain);
        let ending = |text, n, end| Route {
            expires: Some(end),
            ..Route::on_link(prefix::<A>(text), IfIndex(n))
        };
        fib.add(Route::on_link(prefix("10.0.0.0/8"), IfIndex(1)), START).unwrap();
        fib.add(ending("10.1.0.0/16", 2, END), START).unwrap();
        fib.publish(START);
        let (routes, mut reader) = (fib.reader(), domain.reader().unwrap());
        let looks = thread::spawn(move || {
            for _ in 0..2 {
                assert_eq!(number(&routes, &reader, "10.1.2.3", END), 1);
                reader.quiescent(END);
            }
        });
        let (late, later) = (END + Duration::from_secs(1), END + Duration::from_secs(9));
        assert_eq!(fib.collect(late, 8), 1);
        fib.publish(late);
        let _ = fib.add(ending("10.9.0.0/16", 2, later), late);
        fib.publish(late);
        looks.join().unwrap();
        assert!(fib.routes_to(TableId::MAIN, prefix("10.1.0.0/16")).next().is_none());
    });
}
