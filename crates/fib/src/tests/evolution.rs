//! The cases that the kernel's own test of expiring routes grew over the years, and what an
//! attacker would try beside them, each in virtual time.
//!
//! The kernel's were flaky because they slept; a clock that is an argument does not.

use floodwall_base::Randomness;

use super::*;
use crate::exceptions::{Exceptions, FirstHop, LIFETIME, PathUpdate};
use crate::{RouteError, RouteProtocol, Selector, TableId};

both! {
    ten_routes_of_two_seconds_are_gone_after_four => ten;
    a_thousand_temporary_routes_go_and_permanent_ones_cost_nothing => thousand;
    with_five_thousand_permanent_routes_all_temporary_ones_vanish => five_thousand;
    a_hundred_permanent_routes_replaced_by_temporary_ones_all_vanish => demoted;
    temporary_routes_replaced_by_permanent_ones_all_survive => promoted;
    a_route_of_an_advertisement_expires_and_one_that_never_ends_does_not => advertised;
    lifetimes_of_zero_one_and_for_ever_flap_and_leave_nothing => flapping;
    a_clock_that_jumps_expires_everything_in_steps_and_no_reader_waits => jump;
    an_expired_route_that_is_first_of_its_equals_gives_way => first_of_equals;
    an_expiring_default_route_uncovers_nothing_at_exactly_its_end => exactly;
    a_route_deleted_while_a_collection_is_under_way_is_not_collected_again => deleted;
    the_last_route_of_an_interface_ends_and_leaves_nothing_of_it => last_of_interface;
    two_ways_to_one_destination_end_each_at_its_own_time => two_ways;
    a_route_by_source_ends_and_uncovers_that_of_all => by_source;
    routes_replaced_while_a_dump_is_on_its_way_let_the_others_be_shown_once => replaced;
    what_never_ends_by_its_words_is_never_collected => endless;
    temporary_routes_with_exceptions_that_become_permanent_still_lose_them => promoted_too_big;
    an_exception_of_a_route_that_has_ended_does_not_count_for_the_one_behind_it => expired_parent;
    a_permanent_route_with_an_exception_is_never_visited_by_a_collection => exception_of_permanent;
    row_71_a_hundred_thousand_promotions_with_exceptions_track_nothing_in_the_end => back_and_forth;
    row_72_no_order_of_changes_hides_an_exception_from_a_flush => interleaved;
    a_flood_of_advertised_routes_leaves_the_operators_room_and_what_was_there => flood;
}

fn nth<A: Address>(n: u32) -> Route<A> {
    let bits = u128::from(0x0a00_0000 + (n << 8)) << 96;
    Route::on_link(Prefix::new(A::from_bits_aligned(bits), 24).unwrap(), IfIndex(1))
}

fn ending<A: Address>(n: u32, seconds: u64) -> Route<A> {
    Route { expires: Some(after(seconds)), ..nth(n) }
}

fn large<A: LpmFamily>(routes: usize) -> Fib<A> {
    Fib::alone(FibConfig::for_routes(routes), HashKey::new(1, 2), START)
}

fn ten<A: LpmFamily>() {
    let mut fib = fib::<A>();
    (0..10).for_each(|n| fib.add(ending(n, 2), START).unwrap());
    assert_eq!((fib.collect(after(1), 100), fib.dump_at(after(1)).count()), (0, 10));
    assert_eq!(fib.dump_at(after(2)).count(), 0, "absent before it is collected");
    assert_eq!((fib.collect(after(4), 100), fib.len()), (10, 0));
}

fn thousand<A: LpmFamily>() {
    for permanent in [0, 1000] {
        let mut fib = large::<A>(3000);
        (0..permanent).for_each(|n| fib.add(nth(n), START).unwrap());
        (0..1000).for_each(|n| fib.add(ending(5000 + n, 2), START).unwrap());
        let visited = fib.collect(after(4), usize::MAX);
        assert_eq!((visited, fib.len()), (1000, permanent as usize));
    }
}

fn five_thousand<A: LpmFamily>() {
    let mut fib = large::<A>(6000);
    (0..5000).for_each(|n| fib.add(nth(n), START).unwrap());
    (0..1000).for_each(|n| fib.add(ending(9000 + n, 1 + u64::from(n % 7)), START).unwrap());
    let mut visited = 0;
    (0..20).for_each(|second| visited += fib.collect(after(second), usize::MAX));
    assert_eq!((visited, fib.len()), (1000, 5000));
}

fn demoted<A: LpmFamily>() {
    let mut fib = large::<A>(200);
    (0..100).for_each(|n| fib.add(nth(n), START).unwrap());
    (0..100).for_each(|n| fib.replace(ending(n, 2), START).unwrap());
    assert_eq!((fib.len(), fib.expiring()), (100, 100));
    assert_eq!((fib.collect(after(4), 1000), fib.len()), (100, 0));
}

fn promoted<A: LpmFamily>() {
    let mut fib = large::<A>(200);
    (0..100).for_each(|n| fib.add(ending(n, 2), START).unwrap());
    (0..100).for_each(|n| fib.replace(nth(n), START).unwrap());
    assert_eq!((fib.len(), fib.expiring(), fib.deadline()), (100, 0, None));
    assert_eq!((fib.collect(after(400), 1000), fib.dump_at(after(400)).count()), (0, 100));
}

/// Accepts an MTU of a path, over the route that leads there now.
fn believe<A: LpmFamily>(
    fib: &Fib<A>,
    paths: &mut Exceptions<A>,
    n: u32,
    now: Instant,
) -> FirstHop<A> {
    let dst_addr = nth::<A>(n).prefix.addr();
    let found = fib.lookup(dst_addr, now).unwrap();
    let hop = FirstHop { iface: found.iface, via: found.gateway };
    let mut random = Randomness::from_number(u64::from(n)).secret;
    paths.learn(dst_addr, hop, PathUpdate::PathMtu(1300), now, &mut random);
    hop
}

fn promoted_too_big<A: LpmFamily>() {
    let (mut fib, mut paths) = (large::<A>(200), Exceptions::new(HashKey::new(5, 6)));
    (0..100).for_each(|n| fib.add(ending(n, 2), START).unwrap());
    let hops: Vec<_> = (0..100).map(|n| believe(&fib, &mut paths, n, START)).collect();
    (0..100).for_each(|n| fib.replace(nth(n), START).unwrap());
    let known = |now| {
        let mtu = |n: u32| paths.lookup(nth::<A>(n).prefix.addr(), hops[n as usize], now).mtu;
        (0..100).filter(|n| mtu(*n).is_some()).count()
    };
    let last = START + (LIFETIME - Duration::from_nanos(1));
    assert_eq!([after(4), last, START + LIFETIME].map(known), [100, 100, 0]);
    assert_eq!((fib.collect(after(5000), 1000), fib.len(), fib.deadline()), (0, 100, None));
}

fn back_and_forth<A: LpmFamily>() {
    let (mut fib, mut paths) = (large::<A>(200), Exceptions::new(HashKey::new(5, 6)));
    fib.add(nth(1), START).unwrap();
    fib.replace(ending(1, 60), START).unwrap();
    fib.publish(START);
    let memory = fib.memory();
    for round in 0..100_000_u64 {
        let now = START + Duration::from_millis(round);
        let seconds = round / 1000 + 60;
        fib.replace(if round % 2 == 0 { ending(1, seconds) } else { nth(1) }, now).unwrap();
        if round % 64 == 0 {
            believe(&fib, &mut paths, 1, now);
        }
        fib.publish(now);
        assert!(fib.len() == 1 && fib.expiring() <= 1);
    }
    let end = after(200);
    assert_eq!(
        (fib.collect(end, 1000), fib.len(), fib.expiring(), fib.deadline()),
        (0, 1, 0, None)
    );
    fib.publish(end);
    assert_eq!(fib.free_lifetimes.len(), fib.config().expiring_max);
    assert_eq!((fib.memory(), paths.len()), (memory, 1));
}

/// Routes of two links become temporary, permanent, others, and none, and exceptions are learnt in
/// between; a flush of one link leaves just those of the other.
fn interleaved<A: LpmFamily>() {
    let (mut fib, mut paths) = (large::<A>(200), Exceptions::new(HashKey::new(5, 6)));
    let mut random = floodwall_base::PublicRandom::new(72);
    let mut learnt = std::collections::BTreeSet::new();
    for round in 0..5000_u64 {
        let now = START + Duration::from_millis(round);
        let (n, iface) = (random.below(20) as u32, 1 + random.below(2) as u16);
        let route = match random.below(4) {
            0 => ending(n, 60),
            1 => Route { metric: 9, ..nth(n) },
            _ => nth(n),
        };
        let route = Route { iface: IfIndex(iface), ..route };
        if random.below(5) == 0 {
            let _ = fib.delete(&Selector::to(route.prefix), now);
        } else {
            fib.replace(route, now).unwrap();
        }
        if fib.lookup(route.prefix.addr(), now).is_some() {
            let hop = believe(&fib, &mut paths, n, now);
            learnt.insert((n, hop.iface));
        }
    }
    let known = |paths: &Exceptions<A>, now| {
        let number = |addr: A| (0..20).find(|n| nth::<A>(*n).prefix.addr() == addr).unwrap();
        paths.iter(now).map(|it| (number(it.dst_addr), it.hop.iface)).collect::<Vec<_>>()
    };
    let now = after(6);
    let mut all = known(&paths, now);
    all.sort();
    assert_eq!(all, learnt.iter().copied().collect::<Vec<_>>());
    assert!(paths.forget_on(IfIndex(1)));
    assert!(known(&paths, now).iter().all(|(_, iface)| *iface == IfIndex(2)));
    let left = learnt.iter().filter(|(_, iface)| *iface == IfIndex(2)).count();
    assert_eq!((known(&paths, now).len(), paths.len()), (left, left));
    assert!(paths.forget_on(IfIndex(2)) && paths.is_empty());
}

fn expired_parent<A: LpmFamily>() {
    let (mut fib, mut paths) = (fib::<A>(), Exceptions::new(HashKey::new(5, 6)));
    fib.add(Route { iface: IfIndex(2), ..ending(1, 5) }, START).unwrap();
    fib.add(Route { prefix: Prefix::all(), ..nth(0) }, START).unwrap();
    let of_parent = believe(&fib, &mut paths, 1, START);
    let dst_addr = nth::<A>(1).prefix.addr();
    let known = |fib: &Fib<A>, now| {
        let found = fib.lookup(dst_addr, now).unwrap();
        let hop = FirstHop { iface: found.iface, via: found.gateway };
        paths.lookup(dst_addr, hop, now).mtu
    };
    assert_eq!([after(4), after(5)].map(|now| known(&fib, now)), [Some(1300), None]);
    assert_eq!((fib.collect(after(7), 9), known(&fib, after(7))), (1, None));
    // The very route comes back, and what is known of its path with it, as long as that counts.
    fib.add(Route { iface: IfIndex(2), ..ending(1, 90) }, after(8)).unwrap();
    assert_eq!((known(&fib, after(9)), of_parent.iface), (Some(1300), IfIndex(2)));
}

fn exception_of_permanent<A: LpmFamily>() {
    let (mut fib, mut paths) = (large::<A>(2000), Exceptions::new(HashKey::new(5, 6)));
    (0..500).for_each(|n| fib.add(nth(n), START).unwrap());
    fib.add(ending(900, 2), START).unwrap();
    (0..500).for_each(|n| _ = believe(&fib, &mut paths, n, START));
    assert!(paths.len() > 400, "{}", paths.len());
    assert_eq!((fib.collect(after(4), 1000), fib.len()), (1, 500));
    assert_eq!((fib.collect(after(700), 1000), fib.deadline()), (0, None));
    assert_eq!(paths.iter(after(600)).count(), 0);
}

fn told<A: Address>(n: u32, expires: Option<Instant>) -> Route<A> {
    let protocol = RouteProtocol::RouterAdvertisement;
    Route { gateway: Some(addr("9.9.9.9")), protocol, expires, ..nth(n) }
}

fn advertised<A: LpmFamily>() {
    let mut fib = fib::<A>();
    fib.set(told(1, Some(after(30))), START).unwrap();
    fib.set(told(2, Some(Instant::FAR)), START).unwrap();
    assert_eq!((fib.len(), fib.expiring()), (2, 1));
    // It is set again: it lasts as long as it was set last.
    fib.set(told(1, Some(after(50))), after(20)).unwrap();
    assert_eq!((fib.collect(after(40), 9), fib.dump_at(after(49)).count()), (0, 2));
    assert_eq!(fib.dump_at(after(50)).count(), 1);
    assert_eq!((fib.collect(after(60), 9), fib.len()), (1, 1));
}

fn flapping<A: LpmFamily>() {
    let mut fib = fib::<A>();
    for round in 0..3000_u64 {
        let now = after(round / 10);
        let expires = match round % 4 {
            0 => Some(now),
            1 => Some(now + Duration::from_secs(1)),
            2 => Some(Instant::FAR),
            _ => None,
        };
        fib.set(told(round as u32 % 3, expires), now).unwrap();
        assert!(fib.len() <= 3 && fib.expiring() <= fib.len());
        fib.publish(now);
    }
    (0..3).for_each(|n| fib.set(told(n, Some(after(300))), after(300)).unwrap());
    fib.publish(after(300));
    assert_eq!((fib.len(), fib.expiring(), fib.next_hops().count()), (0, 0, 0));
    assert_eq!(fib.free_lifetimes.len(), fib.config().expiring_max);
}

fn jump<A: LpmFamily>() {
    let mut fib = large::<A>(3000);
    fib.add(Route { prefix: Prefix::all(), ..nth(0) }, START).unwrap();
    (1..2001).for_each(|n| {
        let other = Route { iface: IfIndex(2), ..ending(n, u64::from(n)) };
        fib.add(other, START).unwrap();
    });
    // Asleep for a year.
    let now = after(365 * 86_400);
    assert_eq!(fib.dump_at(now).count(), 1);
    let mut steps = 0;
    while fib.len() > 1 {
        // With any number left: the answer is that of a table without them.
        let addr = nth::<A>(1 + steps * 31).prefix.addr();
        assert_eq!(fib.lookup(addr, now).map(|found| found.iface), Some(IfIndex(1)));
        assert!(fib.deadline().is_some_and(|at| at <= now), "it reports that there is more");
        let left = fib.len() - 1;
        assert_eq!(fib.collect(now, 64), left.min(64));
        steps += 1;
    }
    assert!((31..=33).contains(&steps), "{steps}");
    assert_eq!(fib.collect(now, 64), 0);
}

fn first_of_equals<A: LpmFamily>() {
    let mut fib = fib::<A>();
    fib.add(Route { iface: IfIndex(5), ..ending(1, 1) }, START).unwrap();
    fib.append(Route { iface: IfIndex(6), ..ending(1, 2) }, START).unwrap();
    fib.append(Route { iface: IfIndex(7), ..nth(1) }, START).unwrap();
    let to = nth::<A>(1).prefix.addr();
    let iface = |fib: &Fib<A>, now| fib.lookup(to, now).unwrap().iface.0;
    assert_eq!([START, after(1), after(2)].map(|now| iface(&fib, now)), [5, 6, 7]);
    fib.collect(after(2), 9);
    assert_eq!([after(1), after(2)].map(|now| iface(&fib, now)), [6, 7]);
}

fn exactly<A: LpmFamily>() {
    let mut fib = fib::<A>();
    fib.add(Route { prefix: Prefix::all(), ..ending(0, 5) }, START).unwrap();
    let before = START + (Duration::from_secs(5) - Duration::from_nanos(1));
    let to = nth::<A>(1).prefix.addr();
    assert!(fib.lookup(to, before).is_some() && fib.lookup(to, after(5)).is_none());
    assert_eq!(fib.collect(after(5), 9), 0, "and it is not collected too early");
    assert_eq!((fib.collect(after(6), 9), fib.deadline()), (1, None));
}

fn last_of_interface<A: LpmFamily>() {
    let mut fib = fib::<A>();
    fib.set(told(1, Some(after(5))), START).unwrap();
    fib.set(Route { iface: IfIndex(2), ..told(1, Some(after(9))) }, START).unwrap();
    assert_eq!((fib.collect(after(6), 9), fib.len(), fib.by_iface[&IfIndex(1)]), (1, 1, 0));
    let to = nth::<A>(1).prefix.addr();
    assert_eq!(fib.lookup(to, after(6)).map(|found| found.iface), Some(IfIndex(2)));
    assert_eq!((fib.collect(after(11), 9), fib.len(), fib.told.iter().count()), (1, 0, 0));
    fib.publish(after(11));
    assert_eq!((fib.next_hops().count(), fib.waits(), fib.deadline()), (0, false, None));
}

fn two_ways<A: LpmFamily>() {
    let mut fib = fib::<A>();
    let via = |router: &str, expires| Route { gateway: Some(addr(router)), ..told(1, expires) };
    fib.set(via("9.9.9.1", Some(after(4))), START).unwrap();
    fib.set(via("9.9.9.2", Some(after(8))), START).unwrap();
    let to = nth::<A>(1).prefix.addr();
    let of = |fib: &Fib<A>, now| fib.lookup(to, now).and_then(|found| found.gateway);
    let ways = [Some(addr("9.9.9.1")), Some(addr("9.9.9.2")), None];
    assert_eq!([START, after(4), after(8)].map(|now| of(&fib, now)), ways);
    // The first is set again in time, and is the first again.
    fib.set(via("9.9.9.1", Some(after(20))), after(3)).unwrap();
    assert_eq!([after(5), after(8), after(20)].map(|now| of(&fib, now)), [ways[0], ways[0], None]);
    assert_eq!((fib.collect(after(10), 9), fib.collect(after(30), 9), fib.len()), (1, 1, 0));
}

fn by_source<A: LpmFamily>() {
    let mut fib = fib::<A>();
    let table = TableId(50);
    let from = Some(prefix("77.0.0.0/8"));
    fib.add_rule(crate::Rule { from, ..crate::Rule::all(10, table) }).unwrap();
    fib.add(Route { iface: IfIndex(3), table, ..ending(1, 5) }, START).unwrap();
    fib.add(nth(1), START).unwrap();
    let to = nth::<A>(1).prefix.addr();
    let iface = |fib: &Fib<A>, source: &str, now| {
        let query = crate::Query { src_addr: Some(addr(source)), ..crate::Query::to(to) };
        fib.lookup_query(&query, now).map(|found| found.iface.0)
    };
    for _ in 0..2 {
        assert_eq!(iface(&fib, "77.1.1.1", after(5)), Some(1));
        assert_eq!(iface(&fib, "78.1.1.1", START), Some(1));
        fib.collect(after(4), 9);
    }
    assert_eq!(iface(&fib, "77.1.1.1", after(4)), Some(3));
    assert_eq!((fib.collect(after(6), 9), fib.len()), (1, 1));
    assert_eq!(iface(&fib, "77.1.1.1", after(4)), Some(1));
}

fn replaced<A: LpmFamily>() {
    let mut fib = large::<A>(400);
    (0..300).for_each(|n| fib.add(ending(n, 9), START).unwrap());
    let (mut dump, mut seen) = (crate::Dump::default(), Vec::new());
    while let Some(route) = dump.next(&fib) {
        seen.push(route.prefix);
        // Every third becomes another, ahead of the dump or behind it, with another end or none.
        let n = seen.len() as u32;
        fib.replace(ending(n * 21 % 300, 99), START).unwrap();
        fib.replace(nth(n * 33 % 300), START).unwrap();
        fib.publish(START);
    }
    for n in 0..300 {
        let times = seen.iter().filter(|to| **to == nth::<A>(n).prefix).count();
        assert!(times == 1 || n % 3 == 0, "{n} was shown {times} times");
    }
    assert_eq!((fib.len(), fib.dump().count()), (300, 300));
    let ends = fib.dump().filter(|route| route.expires.is_some()).count();
    assert_eq!(fib.expiring(), ends);
}

fn endless<A: LpmFamily>() {
    let mut fib = fib::<A>();
    fib.add(Route { expires: Some(Instant::FAR), ..nth(1) }, START).unwrap();
    let last = Instant::from_nanos(u64::MAX - 1);
    fib.add(Route { expires: Some(last), ..nth(2) }, START).unwrap();
    assert_eq!((fib.len(), fib.expiring()), (2, 1));
    let far = after(50 * 365 * 86_400);
    assert_eq!((fib.collect(far, 9), fib.dump_at(far).count()), (0, 2));
    assert!(fib.lookup(nth::<A>(2).prefix.addr(), far).is_some());
}

fn deleted<A: LpmFamily>() {
    let mut fib = fib::<A>();
    (0..20).for_each(|n| fib.add(ending(n, 1), START).unwrap());
    assert_eq!(fib.collect(after(3), 5), 5);
    let left: Vec<_> = fib.dump().map(|route| route.prefix).collect();
    for prefix in &left[..10] {
        fib.delete(&Selector::to(*prefix), after(3)).unwrap();
        // Its memory goes to another at once.
        fib.add(Route { expires: Some(after(99)), prefix: *prefix, ..nth(0) }, after(3)).unwrap();
        fib.publish(after(3));
    }
    assert_eq!((fib.collect(after(3), 99), fib.len(), fib.expiring()), (5, 10, 10));
    assert_eq!(fib.routes_to(TableId::MAIN, left[0]).count(), 1);
}

fn flood<A: LpmFamily>() {
    let config = FibConfig { routes_max: 10, ..FibConfig::default() };
    let mut fib = Fib::<A>::alone(config, HashKey::new(1, 2), START);
    fib.set(told(0, Some(after(9))), START).unwrap();
    let (mut taken, mut refused) = (0, 0);
    for n in 1..20_000 {
        let router = addr(&format!("9.9.{}.{}", n / 250 % 250, n % 250));
        match fib.set(Route { gateway: Some(router), ..told(n, Some(after(9))) }, START) {
            Ok(()) => taken += 1,
            Err(RouteError::InterfaceFull { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        fib.publish(START);
    }
    let most = floodwall_base::limits::ROUTES_LEARNT_INTERFACE_MAX;
    assert_eq!((taken + 1, refused), (most, 20_000 - most));
    assert!(fib.lookup(nth::<A>(0).prefix.addr(), START).is_some(), "what was there stays");
    (0..10).for_each(|n| fib.add(nth(50_000 + n), START).unwrap());
    assert_eq!(fib.collect(after(12), usize::MAX), most);
    assert_eq!((fib.len(), fib.by_router.len()), (10, 0));
}
