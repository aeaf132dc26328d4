//! Adding, replacing, appending, deleting, and what look-ups then find.

use super::*;
use crate::{
    Leg, Member, NextHop, NextHopId, Put, RouteError, RouteKind, Rule, RuleAction, Selector,
};
use crate::{Query, RouteProtocol, TableId};
use floodwall_base::limits;

both! {
    the_longest_prefix_wins_and_the_lower_metric => longest;
    an_expired_route_uncovers_what_is_behind_it_at_once => uncovers;
    what_exists_is_refused_and_replaced_only_when_asked => refused;
    a_gateway_of_many_routes_changes_by_one_object => shared;
    a_group_spreads_flows_by_weight_and_moves_only_those_that_must => groups;
    rules_choose_the_table_by_source_and_interface => rules;
    a_dead_link_uncovers_the_other_route_until_it_comes_back => dead;
    at_the_cap_a_route_is_refused_and_nothing_changes => caps;
}

fn iface<A: LpmFamily>(fib: &Fib<A>, to: &str, now: Instant) -> Option<u16> {
    fib.lookup(addr(to), now).map(|found| found.iface.0)
}

fn longest<A: LpmFamily>() {
    let mut fib = fib::<A>();
    fib.add(route("10.0.0.0/8", 1), START).unwrap();
    fib.add(route("10.1.0.0/16", 2), START).unwrap();
    fib.add(route("0.0.0.0/0", 3), START).unwrap();
    for (metric, at) in [(9, 9), (4, 4), (7, 7)] {
        fib.add(Route { metric, ..route("20.0.0.0/8", at) }, START).unwrap();
    }
    let of = |to| iface(&fib, to, START).unwrap();
    assert_eq!([of("10.1.2.3"), of("10.2.0.0"), of("99.0.0.0"), of("20.1.1.1")], [2, 1, 3, 4]);
    let metrics: Vec<_> =
        fib.routes_to(TableId::MAIN, prefix("20.0.0.0/8")).map(|r| r.metric).collect();
    assert_eq!(metrics, [4, 7, 9]);
}

fn uncovers<A: LpmFamily>() {
    for prefixes in [0, 2 * limits::ROUTES_LISTED_MAX as u16] {
        let mut fib = fib::<A>();
        for n in 0..prefixes {
            fib.add(route(&format!("99.{n}.0.0/16"), 9), START).unwrap();
        }
        let ends = |seconds, route: Route<A>| Route { expires: Some(after(seconds)), ..route };
        fib.add(ends(3, route("10.1.1.0/24", 4)), START).unwrap();
        fib.add(ends(1, Route { metric: 0, ..route("10.1.0.0/16", 2) }), START).unwrap();
        fib.add(ends(2, Route { metric: 5, ..route("10.1.0.0/16", 3) }), START).unwrap();
        assert_eq!(iface(&fib, "10.1.0.1", after(2)), None);
        fib.add(route("10.0.0.0/8", 1), START).unwrap();
        let of = |to, now| iface(&fib, to, now).unwrap();
        let nanosecond = Duration::from_nanos(1);
        assert_eq!([START, after(1)].map(|now| of("10.1.0.1", now)), [2, 3]);
        assert_eq!(of("10.1.0.1", START + (Duration::from_secs(2) - nanosecond)), 3);
        assert_eq!([after(2), after(9)].map(|now| of("10.1.0.1", now)), [1, 1]);
        assert_eq!([START, after(2), after(3)].map(|now| of("10.1.1.9", now)), [4, 4, 1]);
        fib.delete(&Selector::to(prefix("10.0.0.0/8")), START).unwrap();
        assert_eq!(iface(&fib, "10.1.1.9", after(3)), None);
        assert_eq!((fib.collect(after(9), 100), fib.expiring()), (3, 0));
        assert_eq!(fib.len(), usize::from(prefixes));
    }
}

fn refused<A: LpmFamily>() {
    let mut fib = fib::<A>();
    let one = route("10.0.0.0/8", 1);
    let ending = Route { expires: Some(after(9)), ..one };
    assert_eq!(fib.add(Route { expires: Some(START), ..one }, START), Err(RouteError::Over));
    fib.add(one, START).unwrap();
    for again in [one, ending, Route { iface: IfIndex(2), ..one }] {
        assert!(matches!(fib.add(again, START), Err(RouteError::Exists { .. })));
        assert_eq!(fib.dump().collect::<Vec<_>>(), [one]);
    }
    assert!(matches!(fib.append(one, START), Err(RouteError::Exists { .. })));
    fib.replace(ending, START).unwrap();
    assert_eq!((fib.dump().collect::<Vec<_>>(), fib.expiring()), (vec![ending], 1));
    fib.replace(one, START).unwrap();
    assert_eq!((fib.dump().collect::<Vec<_>>(), fib.expiring()), (vec![one], 0));
    fib.append(route("10.0.0.0/8", 2), START).unwrap();
    assert_eq!(iface(&fib, "10.0.0.1", START), Some(1), "the older one stays the better");
    let second = Selector { iface: Some(IfIndex(2)), ..Selector::to(one.prefix) };
    assert_eq!(fib.delete(&second, START).unwrap().iface, IfIndex(2));
    assert!(matches!(fib.delete(&second, START), Err(RouteError::NotFound { .. })));
    assert_eq!(fib.len(), 1);
}

fn hop<A: Address>(iface: u16, via: &str) -> NextHop<A> {
    let gateway = Some(addr(via));
    NextHop { kind: RouteKind::Unicast, iface: IfIndex(iface), gateway, src_addr: None }
}

fn shared<A: LpmFamily>() {
    let mut fib = fib::<A>();
    let id = NextHopId(7);
    let through = |n: u16| Route::through(prefix(&format!("10.{n}.0.0/16")), id);
    assert_eq!(fib.add(through(0), START), Err(RouteError::NextHopUnknown(id)));
    fib.add_next_hop(id, hop(1, "9.9.9.1")).unwrap();
    assert_eq!(fib.add_next_hop(id, hop(1, "9.9.9.1")), Err(RouteError::NextHopExists(id)));
    (0..200).for_each(|n| fib.add(through(n), START).unwrap());
    let via =
        |fib: &Fib<A>, n: u16| fib.lookup(addr(&format!("10.{n}.1.1")), START).unwrap().gateway;
    assert!((0..200).all(|n| via(&fib, n) == Some(addr("9.9.9.1"))));
    fib.replace_next_hop(id, hop(2, "9.9.9.2"), START).unwrap();
    assert!((0..200).all(|n| via(&fib, n) == Some(addr("9.9.9.2"))));
    assert_eq!(fib.delete_next_hop(id), Err(RouteError::NextHopUsed { id, users: 200 }));
    // Those without a number share too.
    for n in 0..200 {
        fib.add(Route::via(prefix(&format!("20.{n}.0.0/16")), IfIndex(1), addr("9.9.9.3")), START)
            .unwrap();
    }
    assert_eq!(fib.next_hops().map(|hop| hop.users).collect::<Vec<_>>(), [200, 200]);
    assert_eq!(remove_all(&mut fib, START), 400);
    assert_eq!(fib.next_hops().map(|hop| hop.users).collect::<Vec<_>>(), [0]);
    fib.delete_next_hop(id).unwrap();
    assert_eq!(fib.next_hops().count(), 0);
}

fn spread<A: LpmFamily>(fib: &Fib<A>) -> Vec<u16> {
    let flow = |n: u64| Query { flow: Some(n), ..Query::to(addr("10.1.1.1")) };
    (0..128).map(|n| fib.lookup_query(&flow(n), START).unwrap().iface.0).collect()
}

fn groups<A: LpmFamily>() {
    let mut fib = fib::<A>();
    for n in 1..=3 {
        fib.add_next_hop(NextHopId(n), hop(n as u16, "9.9.9.9")).unwrap();
    }
    let member = |n: u32, weight| Member { id: NextHopId(n), weight };
    let group = NextHopId(10);
    fib.add_group(group, &[member(1, 1), member(2, 3)]).unwrap();
    assert!(matches!(
        fib.add_group(NextHopId(11), &[member(10, 1)]),
        Err(RouteError::Group { .. })
    ));
    fib.add(Route::through(prefix("10.0.0.0/8"), group), START).unwrap();
    let count = |all: &[u16], iface| all.iter().filter(|at| **at == iface).count();
    let before = spread(&fib);
    assert!(count(&before, 1).abs_diff(32) <= 1 && count(&before, 2).abs_diff(96) <= 1);
    // A third member takes its share and moves nothing else.
    fib.replace_group(group, &[member(1, 1), member(2, 3), member(3, 4)], START).unwrap();
    let third = spread(&fib);
    assert!(before.iter().zip(&third).all(|(a, b)| a == b || *b == 3));
    assert!(count(&third, 3).abs_diff(64) <= 1);
    // A member with a link that goes loses its flows, the others keep theirs; and it gets them
    // back.
    fib.set_usable(IfIndex(2), false, START);
    let without = spread(&fib);
    assert!(third.iter().zip(&without).all(|(a, b)| *b != 2 && (a == b || *a == 2)));
    fib.set_usable(IfIndex(2), true, START);
    assert_eq!(spread(&fib), third);
    // The same without numbers.
    let legs = [1, 2].map(|n| Leg { hop: hop(n, "9.9.9.9"), weight: 1 });
    fib.put_multipath(route("10.1.0.0/16", 0), &legs, Put::Add, START).unwrap();
    assert!(count(&spread(&fib), 1).abs_diff(64) <= 1);
    let objects = fib.next_hops().count();
    fib.delete(&Selector::to(prefix("10.1.0.0/16")), START).unwrap();
    assert_eq!(fib.next_hops().count(), objects - 3);
}

fn rules<A: LpmFamily>() {
    let mut fib = fib::<A>();
    let (main, other) =
        (route::<A>("0.0.0.0/0", 1), Route { table: TableId(7), ..route("10.0.0.0/8", 2) });
    fib.add(main, START).unwrap();
    fib.add(other, START).unwrap();
    let of = |fib: &Fib<A>, from: Option<&str>, iif: Option<u16>| {
        let query = Query {
            src_addr: from.map(addr),
            iif: iif.map(IfIndex),
            ..Query::to(addr("10.1.1.1"))
        };
        fib.lookup_query(&query, START).map(|found| (found.kind, found.iface.0))
    };
    let unicast = |iface| Some((RouteKind::Unicast, iface));
    assert_eq!(of(&fib, None, None), unicast(1), "no rule looks up table 7");
    let from = Rule { from: Some(prefix("50.0.0.0/8")), ..Rule::all(100, TableId(7)) };
    fib.add_rule(from).unwrap();
    assert!(fib.add_rule(from).is_err());
    assert_eq!([of(&fib, None, None), of(&fib, Some("51.0.0.1"), None)], [unicast(1); 2]);
    assert_eq!(of(&fib, Some("50.0.0.1"), None), unicast(2));
    let iif = Rule {
        iif: Some(IfIndex(5)),
        action: RuleAction::Decide(RouteKind::Prohibit),
        ..Rule::all(50, TableId::MAIN)
    };
    fib.add_rule(iif).unwrap();
    assert_eq!(of(&fib, Some("50.0.0.1"), Some(5)), Some((RouteKind::Prohibit, 0)));
    assert_eq!(
        fib.rules().iter().map(|r| r.priority).collect::<Vec<_>>(),
        [0, 50, 100, 32_766, 32_767]
    );
    fib.delete_rule(|rule| rule.priority == 50).unwrap();
    assert_eq!(of(&fib, Some("50.0.0.1"), Some(5)), unicast(2));
}

fn dead<A: LpmFamily>() {
    for prefixes in [0, 2 * limits::ROUTES_LISTED_MAX as u16] {
        let mut fib = fib::<A>();
        for n in 0..prefixes {
            fib.add(route(&format!("99.{n}.0.0/16"), 9), START).unwrap();
        }
        fib.add(route("10.0.0.0/8", 63), START).unwrap();
        fib.add(route("10.1.0.0/16", 2), START).unwrap();
        let of = |fib: &Fib<A>, to| iface(fib, to, START);
        assert_eq!(of(&fib, "10.1.0.1"), Some(2));
        fib.set_usable(IfIndex(2), false, START);
        assert_eq!(of(&fib, "10.1.0.1"), Some(63));
        fib.set_usable(IfIndex(63), false, START);
        assert_eq!(of(&fib, "10.1.0.1"), None);
        assert!(fib.leads_into_a_dead_link(addr("10.2.0.1")));
        assert!(prefixes > 0 || !fib.leads_into_a_dead_link(addr("11.0.0.1")));
        fib.set_usable(IfIndex(2), true, START);
        assert_eq!((of(&fib, "10.1.0.1"), of(&fib, "10.2.0.1")), (Some(2), None));
        assert_eq!(fib.len(), 2 + usize::from(prefixes));
    }
}

fn caps<A: LpmFamily>() {
    let config = FibConfig { routes_max: 3, ..FibConfig::default() };
    let mut fib = Fib::<A>::alone(config, HashKey::new(1, 2), START);
    let nth = |n: u16| route::<A>(&format!("10.{n}.0.0/16"), 1);
    (0..3).for_each(|n| fib.add(nth(n), START).unwrap());
    let before: Vec<_> = fib.dump().collect();
    assert_eq!(fib.add(nth(3), START), Err(RouteError::Full(3)));
    assert_eq!(fib.dump().collect::<Vec<_>>(), before);
    fib.replace(Route { iface: IfIndex(4), ..nth(0) }, START).unwrap();
    // Advertised routes have room of their own, as much for each interface and for each router.
    let protocol = RouteProtocol::RouterAdvertisement;
    let told = |n: u32, iface: u16, router: &str| {
        let prefix = Prefix::new(A::from_bits_aligned(u128::from(n) << 104), 24).unwrap();
        Route { protocol, ..Route::via(prefix, IfIndex(iface), addr(router)) }
    };
    let most = limits::ROUTES_LEARNT_ROUTER_MAX as u32;
    (0..most).for_each(|n| fib.set(told(n, 1, "9.9.9.1"), START).unwrap());
    assert_eq!(
        fib.set(told(most, 1, "9.9.9.1"), START),
        Err(RouteError::RouterFull(most as usize))
    );
    let mut n = most;
    while fib.set(told(n, 1, &format!("9.9.9.{}", 2 + n / 60)), START).is_ok() {
        n += 1;
    }
    assert_eq!(n as usize, limits::ROUTES_LEARNT_INTERFACE_MAX);
    fib.set(told(n, 2, "9.9.9.1"), START).unwrap();
    assert_eq!(fib.len(), 3 + n as usize + 1);
    fib.set(Route { expires: Some(START), ..told(0, 1, "9.9.9.1") }, START).unwrap();
    assert_eq!(fib.len(), 3 + n as usize, "a lifetime of zero removes");
    fib.set(told(9999, 1, "9.9.9.77"), START).unwrap();
}
