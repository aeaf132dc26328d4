//! Many at once: bursts of look-ups, loads of routes, and what a call does at most.

use super::*;
use crate::{
    Dump, Found, Member, NextHop, NextHopId, Query, RouteError, RouteKind, RouteProtocol, Rule,
    RuleAction, Selector, TableId,
};
use floodwall_sync::qsbr::Domain;

both! {
    a_prefix_with_many_open_ones_below_uncovers_them_in_steps => uncovered;
    a_burst_is_its_look_ups_through_rules_lists_and_tries => bursts;
    a_load_is_its_additions_in_a_list_and_in_a_trie => loads;
    a_load_that_is_refused_changes_nothing => refused;
    a_lifetime_counts_to_the_nanosecond_however_it_is_moved => moved;
    what_a_next_hop_leaves_is_swept_in_steps => swept;
    a_link_that_goes_visits_what_was_told_and_not_the_operators_routes => told;
    routes_that_go_together_are_gone_at_once_and_taken_out_in_steps => together;
    what_a_router_takes_back_over_much_below_it_goes_in_steps => taken_back;
}

fn nth<A: Address>(n: u32) -> Route<A> {
    let bits = u128::from(0x0a00_0000 + (n << 8)) << 96;
    let to = Prefix::new(A::from_bits_aligned(bits), 24).unwrap();
    Route::on_link(to, IfIndex((n % 60) as u16 + 1))
}

fn inside<A: Address>(n: u32) -> A {
    A::from_bits_aligned(nth::<A>(n).prefix.addr().to_bits_aligned() | 7 << 96)
}

fn large<A: LpmFamily>(routes: usize) -> Fib<A> {
    Fib::alone(FibConfig::for_routes(routes), HashKey::new(1, 2), START)
}

fn iface<A: Address>(found: Option<Found<A>>) -> u16 {
    found.map_or(0, |found| found.iface.0)
}

fn bursts<A: LpmFamily>() {
    let domain = Domain::new(1);
    let reader = domain.reader().unwrap();
    let config = FibConfig::for_routes(4000);
    let mut fib = Fib::<A>::new(&domain, config, HashKey::new(1, 2), START);
    let other = TableId(7);
    let check = |fib: &mut Fib<A>| {
        fib.publish(START);
        let addrs: Vec<A> = (0..900).map(inside).collect();
        for now in [START, after(3), after(9)] {
            let (mut own, mut seen) = (vec![None; 900], vec![None; 901]);
            fib.lookup_burst(&addrs, now, &mut own);
            let readers = fib.reader();
            readers.lookup_burst(reader.view(), &addrs, now, &mut seen);
            let bound = readers.bind(reader.view());
            for (n, addr) in addrs.iter().enumerate() {
                let alone = fib.lookup(*addr, now);
                assert_eq!((own[n], seen[n]), (alone, alone), "{addr} at {now:?}");
                assert_eq!(readers.lookup(reader.view(), *addr, now), alone);
                assert_eq!(bound.lookup(*addr, now), alone, "{addr} bound, at {now:?}");
                let query = Query { iif: Some(IfIndex(9)), ..Query::to(*addr) };
                assert_eq!(bound.lookup_query(&query, now), fib.lookup_query(&query, now));
                let query = Query { flow: Some(n as u64), ..Query::to(*addr) };
                assert_eq!(bound.lookup_query(&query, now), fib.lookup_query(&query, now));
            }
            assert_eq!(seen[900], None, "no more than there are addresses");
        }
    };
    let ends = |n: u32| n.is_multiple_of(3).then(|| after(u64::from(n % 8 + 1)));
    // A list alone; a trie alone; both, and rules that use them for some; one that decides.
    (0..100).for_each(|n| fib.add(Route { expires: ends(n), ..nth(n) }, START).unwrap());
    check(&mut fib);
    (100..600).for_each(|n| fib.add(Route { expires: ends(n), ..nth(n) }, START).unwrap());
    // The rest is spread by flows.
    let members = [1, 2].map(|n| {
        let (iface, kind) = (IfIndex(n as u16), RouteKind::Unicast);
        let hop = NextHop { kind, iface, gateway: None, src_addr: None };
        fib.add_next_hop(NextHopId(n), hop).unwrap();
        Member { id: NextHopId(n), weight: 1 }
    });
    fib.add_group(NextHopId(10), &members).unwrap();
    fib.add(Route::through(Prefix::all(), NextHopId(10)), START).unwrap();
    check(&mut fib);
    (0..50).for_each(|n| {
        fib.add(Route { table: other, iface: IfIndex(61), ..nth(7 * n) }, START).unwrap();
    });
    fib.add_rule(Rule::all(5, other)).unwrap();
    check(&mut fib);
    let to = Some(prefix("10.0.0.0/18"));
    fib.delete_rule(|rule| rule.priority == 5).unwrap();
    fib.add_rule(Rule { to, ..Rule::all(5, other) }).unwrap();
    let action = RuleAction::Decide(RouteKind::Blackhole);
    let to = Some(prefix("10.2.0.0/17"));
    fib.add_rule(Rule { to, action, ..Rule::all(9, other) }).unwrap();
    check(&mut fib);
    assert_eq!(fib.lookup(inside(0x210), START).unwrap().kind, RouteKind::Blackhole);
    assert_eq!([0, 7, 8].map(|n| iface(fib.lookup(inside(n), after(9)))), [61, 61, 9]);
}

fn loads<A: LpmFamily>() {
    for count in [10_u32, 3000] {
        let (mut added, mut loaded) = (large::<A>(4000), large::<A>(4000));
        for fib in [&mut added, &mut loaded] {
            fib.add(Route { metric: 5, ..nth(3) }, START).unwrap();
            fib.add(Route { expires: Some(after(5)), ..route("10.0.0.0/9", 60) }, START).unwrap();
        }
        let other = |n| Route { table: TableId(9), ..nth(n) };
        let ends = |n: u32| n.is_multiple_of(5).then(|| after(u64::from(n % 8 + 1)));
        let mut routes: Vec<_> = (0..count).map(|n| Route { expires: ends(n), ..nth(n) }).collect();
        routes.extend([other(1), other(2), Route { metric: 9, ..nth(1) }]);
        routes.push(route("10.0.0.0/8", 59));
        routes.iter().for_each(|route| added.add(*route, START).unwrap());
        loaded.load(&routes, START).unwrap();
        let shown = |fib: &Fib<A>| fib.dump().map(|r| format!("{r:?}")).collect::<Vec<_>>();
        assert_eq!(shown(&loaded), shown(&added));
        for now in [START, after(4), after(9)] {
            for n in 0..count + 20 {
                let (a, b) = (added.lookup(inside(n), now), loaded.lookup(inside(n), now));
                assert_eq!(iface(a), iface(b), "{n} at {now:?}");
            }
        }
        for fib in [&mut added, &mut loaded] {
            fib.collect(after(30), usize::MAX);
            remove_all(fib, after(30));
            fib.publish(after(30));
            assert_eq!((fib.len(), fib.expiring(), fib.next_hops().count()), (0, 0, 0));
        }
    }
}

fn refused<A: LpmFamily>() {
    for before in [3, 200] {
        let mut fib = large::<A>(2000);
        (0..before).for_each(|n| fib.add(nth(n), START).unwrap());
        let shown = |fib: &Fib<A>| fib.dump().map(|r| format!("{r:?}")).collect::<Vec<_>>();
        let was = shown(&fib);
        let mut routes: Vec<_> = (1000..2500).map(nth).collect();
        // One that is there, far behind.
        routes[1200] = nth(2);
        let error = fib.load(&routes, START).unwrap_err();
        assert_eq!((error.at, error.left), (1200, 0));
        assert!(matches!(error.error, RouteError::Exists { .. }));
        // One that has no next hop.
        routes[1200] = Route::through(nth::<A>(2200).prefix, NextHopId(5));
        let error = fib.load(&routes, START).unwrap_err();
        assert_eq!((error.at, error.left), (1200, 0));
        // One that cannot be: seen before anything is taken.
        routes[1200] = Route { expires: Some(START), ..nth(2200) };
        assert_eq!(fib.load(&routes, START).unwrap_err().error, RouteError::Over);
        // More than there may be.
        let many: Vec<_> = (1000..3000).map(nth).collect();
        let error = fib.load(&many, START).unwrap_err();
        assert_eq!((error.at, error.error), (2000 - before as usize, RouteError::Full(2000)));
        assert_eq!(shown(&fib), was);
        assert_eq!(fib.next_hops().map(|hop| hop.users).sum::<u32>(), before);
        for n in (0..before).chain(1000..1010).chain(2190..2210) {
            assert_eq!(fib.lookup(inside(n), START).is_some(), n < before, "{n}");
        }
        routes[1200] = nth(2600);
        fib.load(&routes, START).unwrap();
        assert_eq!(fib.len(), before as usize + 1500);
    }
}

/// In a trie, which stores only the earliest end: ends that are moved to and fro, by as little as a
/// nanosecond, and collected late.
fn moved<A: LpmFamily>() {
    let mut fib = large::<A>(2000);
    (0..300).for_each(|n| fib.add(nth(n), START).unwrap());
    let protocol = RouteProtocol::RouterAdvertisement;
    let told = |n: u32, end| Route { protocol, expires: Some(end), ..nth(1000 + n) };
    let tick = Duration::from_nanos(1);
    let is_there = |fib: &Fib<A>, n: u32, now| fib.lookup(inside(1000 + n), now).is_some();
    for n in 0..8 {
        fib.set(told(n, after(100)), START).unwrap();
    }
    for round in 0..400_u64 {
        let (n, now) = (round as u32 % 8, START + Duration::from_millis(round * 40));
        let left = Duration::from_nanos(1 + round * round * 7919 % 3_000_000_000);
        fib.set(told(n, now + left), now).unwrap();
        assert!(is_there(&fib, n, now));
        let at = [left - tick, left].map(|left| is_there(&fib, n, now + left));
        assert_eq!(at, [true, false], "in round {round}");
        if round % 3 == 0 {
            fib.collect(now, 4);
        }
        for other in 0..8 {
            let lives = fib.routes_to(TableId::MAIN, nth::<A>(1000 + other).prefix);
            let lives = lives.into_iter().any(|r| r.expires.is_some_and(|end| end > now));
            assert_eq!(is_there(&fib, other, now), lives, "{other} in round {round}");
        }
        fib.publish(now);
    }
}

/// A route in front of thousands that have ended: what these uncover changes in steps, and the
/// routes that it led to before stay good until the last.
fn uncovered<A: LpmFamily>() {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let config = FibConfig::for_routes(4000);
    let mut fib = Fib::<A>::new(&domain, config, HashKey::new(1, 2), START);
    (0..3000).for_each(|n| {
        fib.add(Route { expires: Some(after(9)), ..nth(n) }, START).unwrap();
        fib.publish(START);
        reader.quiescent(START);
    });
    let all =
        |iface| Route { prefix: Prefix::all(), ..Route::on_link(Prefix::all(), IfIndex(iface)) };
    fib.add(all(61), START).unwrap();
    fib.complete(START);
    let (late, mut steps) = (after(9), 0);
    let seen = fib.reader();
    fib.replace(all(62), late).unwrap();
    assert_eq!(fib.add(nth(3500), late), Err(RouteError::Pending), "one change at a time");
    while fib.deadline() == Some(Instant::ORIGIN) {
        fib.publish(late);
        for n in (0..3000).step_by(97) {
            let found = seen.lookup(reader.view(), inside(n), late);
            assert!(matches!(iface(found), 61 | 62), "{n}: {found:?}");
            assert_eq!(found, fib.lookup(inside(n), late));
        }
        reader.quiescent(late);
        assert!(fib.sweep(late, 100) <= 100);
        steps += 1;
    }
    assert!((20..=40).contains(&steps), "{steps}");
    assert!((0..3000).all(|n| iface(fib.lookup(inside(n), late)) == 62));
    for _ in 0..3 {
        fib.publish(late);
        reader.quiescent(late);
    }
    assert_eq!((fib.waits(), fib.next_hops().count()), (false, 61));
}

/// A short prefix over many lines of the trie, which inherit it: in steps of what the caller gives,
/// each of which visits as much at most; and nothing that was there is used again before the end.
#[test]
fn a_short_ipv6_prefix_over_many_lines_changes_in_steps() {
    let domain = Domain::new(1);
    let mut reader = domain.reader().unwrap();
    let config = FibConfig::for_routes(70_000);
    let mut fib = Fib::<Ipv6Addr>::new(&domain, config, HashKey::new(1, 2), START);
    // A /48 in each /40 of 2001:da00::/26 leaves a line below each, which inherits.
    let count = 1 << 14;
    let nth = |n: u32| Ipv6Addr::from_bits(0x2001_da00_u128 << 96 | u128::from(n) << 88);
    let routes: Vec<_> = (0..count)
        .map(|n| Route::on_link(Prefix::new(nth(n), 48).unwrap(), IfIndex(n as u16 % 9 + 1)))
        .collect();
    fib.load(&routes, START).unwrap();
    let short = |iface| Route::on_link(Prefix::new(nth(0), 26).unwrap(), IfIndex(iface));
    let seen = fib.reader();
    let beside = |n: u32| Ipv6Addr::from_bits(nth(n).to_bits() | 7 << 80);
    for (former, next) in [(0, 40), (40, 41), (41, 0)] {
        match next {
            0 => _ = fib.delete(&Selector::to(short(41).prefix), START).unwrap(),
            next => fib.replace(short(next), START).unwrap(),
        }
        let mut steps = 0;
        while fib.deadline() == Some(Instant::ORIGIN) {
            fib.publish(START);
            for n in (0..count).step_by(1009) {
                let found = iface(seen.lookup(reader.view(), beside(n), START));
                assert!(found == former || found == next, "{n}: {found}");
            }
            reader.quiescent(START);
            assert!(fib.sweep(START, 128) <= 128);
            steps += 1;
        }
        assert!((100..=300).contains(&steps), "{steps} for {next}");
        assert!((0..count).all(|n| iface(fib.lookup(beside(n), START)) == next));
        for _ in 0..3 {
            fib.publish(START);
            reader.quiescent(START);
        }
        assert!(!fib.waits());
    }
}

fn swept<A: LpmFamily>() {
    let mut fib = large::<A>(6000);
    let (id, count) = (NextHopId(7), 5000);
    let hop = |iface| NextHop {
        kind: RouteKind::Unicast,
        iface: IfIndex(iface),
        gateway: Some(addr("9.9.9.9")),
        src_addr: None,
    };
    fib.add_next_hop(id, hop(1)).unwrap();
    fib.add(Route { prefix: Prefix::all(), ..nth(4) }, START).unwrap();
    let through: Vec<_> = (0..count).map(|n| Route::through(nth::<A>(n).prefix, id)).collect();
    fib.load(&through, START).unwrap();
    fib.set_usable(IfIndex(2), false, START);
    while fib.sweep(START, 5000) > 0 {}
    // Into a link that is down and out again: each call looks at so many, and reports that there is
    // more.
    for (to, uncovers) in [(2, true), (1, false)] {
        fib.replace_next_hop(id, hop(to), START).unwrap();
        let mut steps = 0;
        while fib.deadline().is_some() {
            assert!(fib.sweep(START, 100) <= 100);
            steps += 1;
        }
        assert!((35..=45).contains(&steps), "{steps}: most of them were left for later");
        for n in 0..count {
            assert_eq!(iface(fib.lookup(inside(n), START)) == 5, uncovers, "{n}");
        }
    }
}

fn told<A: LpmFamily>() {
    let mut fib = large::<A>(3000);
    (0..2000).for_each(|n| fib.add(nth(n), START).unwrap());
    for (n, protocol) in
        [RouteProtocol::Dhcp, RouteProtocol::RouterAdvertisement].into_iter().enumerate()
    {
        for iface in [1, 2] {
            let to = nth::<A>(5000 + n as u32).prefix;
            let via = Route::via(to, IfIndex(iface), addr(&format!("9.9.9.{iface}")));
            fib.append(Route { protocol, ..via }, START).unwrap();
        }
    }
    let mut visited = 0;
    let gone = fib.remove_told(START, |route| {
        visited += 1;
        route.iface == IfIndex(1)
    });
    assert_eq!((gone, visited, fib.len()), (2, 4, 2002));
    assert_eq!(fib.remove_told(START, |_| true), 2);
    assert_eq!((fib.len(), fib.told.iter().count()), (2000, 0));
}

/// Many routes of a router, a link and the operator: gone for all readers at once, with work left
/// to do.
fn together<A: LpmFamily>() {
    let mut fib = large::<A>(3000);
    let way = |n: u32, iface| Route { iface: IfIndex(iface), ..nth::<A>(n) };
    (0..2000).for_each(|n| fib.add(way(n, 1 + (n % 2) as u16), START).unwrap());
    fib.add(Route { prefix: Prefix::all(), ..way(0, 3) }, START).unwrap();
    let (mut dump, mut gone, mut before) = (Dump::default(), 0, fib.units);
    while let Some(some) = fib.remove_some(&mut dump, 200, START, |route| route.iface == IfIndex(2))
    {
        let took = core::mem::replace(&mut before, fib.units).abs_diff(fib.units);
        assert!(some <= 200 && took <= (STEP + 64), "{took}");
        gone += some;
    }
    assert_eq!((gone, fib.len(), fib.dump().count()), (1000, 1001, 1001));
    assert!(fib.leaving.len() > 100, "{} are left for later", fib.leaving.len());
    let last = way(1999, 2);
    assert_eq!(fib.routes_to(TableId::MAIN, last.prefix).count(), 0);
    assert!(fib.delete(&Selector::to(last.prefix), START).is_err(), "it has gone");
    // What comes again meanwhile stays.
    fib.add(last, START).unwrap();
    let mut steps = 0;
    while fib.deadline().is_some() {
        assert!(fib.sweep(START, 64) <= 64);
        let took = core::mem::replace(&mut before, fib.units).abs_diff(fib.units);
        assert!(took <= 64 * 16 + 64 + STEP, "{took}");
        steps += 1;
    }
    assert!(steps > 5, "{steps}");
    assert_eq!((fib.len(), fib.leaving.len(), fib.records.len()), (1002, 0, 1002));
    for n in 0..2000 {
        let way = if n == 1999 { 2 } else { 1 + n % 2 * 2 };
        assert_eq!(iface(fib.lookup(inside(n), START)), way as u16, "{n}");
    }
}

/// A router takes back what covers more than one step uncovers; its link goes; a lease ends.
fn taken_back<A: LpmFamily>() {
    let mut fib = large::<A>(6000);
    (0..3000).for_each(|n| {
        fib.add(Route { expires: Some(after(9)), ..nth(n) }, START).unwrap();
    });
    let protocol = RouteProtocol::RouterAdvertisement;
    let all = |text| Route { protocol, ..route::<A>(text, 61) };
    let short = ["8.0.0.0/5", "0.0.0.0/1", "0.0.0.0/0"].map(all);
    let [mut lasting, mut of_one] = [0_usize; 2];
    for by_prefix in [true, false] {
        for route in short {
            fib.set(route, START).unwrap();
            fib.complete(START);
        }
        let before = fib.units;
        let gone = match by_prefix {
            true => fib.remove_to(TableId::MAIN, short[0].prefix, START, |_| true),
            false => fib.remove_told(START, |route| route.iface == IfIndex(61)),
        };
        assert_eq!(gone, if by_prefix { 1 } else { 3 });
        let took = fib.units - before;
        assert!(took <= STEP + 64 + STEP, "{took} units in one call");
        while fib.deadline() == Some(Instant::ORIGIN) {
            assert!(fib.sweep(START, 100) <= 100);
            *(if by_prefix { &mut of_one } else { &mut lasting }) += 1;
        }
        assert_eq!(fib.len(), if by_prefix { 3002 } else { 3000 });
    }
    assert!(of_one >= 20 && lasting >= 2 * of_one, "{of_one} {lasting}");
    let covered = iface(fib.lookup(inside(7), after(9)));
    assert_eq!(covered, 0, "nothing is behind what has ended");
}

/// What one call does of what is left below, in units.
const STEP: u64 = floodwall_base::limits::ROUTE_STEP_UNITS as u64;
