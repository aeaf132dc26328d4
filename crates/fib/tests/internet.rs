//! The Internet's tables of both families, beside an independent crate that does the same.
//!
//! A sixteenth of the prefixes and some thousand random addresses; with `FLOODWALL_DEEP=1` all of
//! them and ten million addresses a family. Half of the addresses are within random prefixes, half
//! anywhere. Then a third of the routes goes, and the answers are compared again.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failing test may panic")]

mod table;

use std::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{HashKey, Instant, PublicRandom};
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{Dump, Fib, FibConfig, Route, RouteError, Selector};
use floodwall_sync::qsbr::Domain;
use ip_network_table_deps_treebitmap::IpLookupTable;
use ip_network_table_deps_treebitmap::address::Address as RivalAddress;

use table::{is_deep, routes};

const NOW: Instant = Instant::ORIGIN;

/// Through the reader in bursts and through the writer one by one: the answers of the other crate.
fn agrees<A: LpmFamily + RivalAddress>(
    fib: &mut Fib<A>,
    domain: &Domain,
    routes: &[Route<A>],
    (count, random): (usize, &mut PublicRandom),
) {
    let mut rival = IpLookupTable::new();
    for route in routes {
        let len = u32::from(route.prefix.len());
        rival.insert(route.prefix.addr(), len, (route.iface, route.gateway));
    }
    assert!(fib.publish(NOW));
    let (reader, seen) = (domain.reader().unwrap(), fib.reader());
    let mut found = [None; 50];
    for round in 0..count / found.len() {
        let mut any = || u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let addrs: [A; 50] = core::array::from_fn(|n| {
            let prefix = routes[any() as usize % routes.len()].prefix;
            let host = any().checked_shr(u32::from(prefix.len())).unwrap_or(0);
            let within = A::from_bits_aligned(prefix.addr().to_bits_aligned() | host);
            if n % 2 == 0 { within } else { A::from_bits_aligned(any()) }
        });
        seen.lookup_burst(reader.view(), &addrs, NOW, &mut found);
        for (n, addr) in addrs.into_iter().enumerate() {
            let want = rival.longest_match(addr).map(|(.., way)| *way);
            assert_eq!(found[n].map(|found| (found.iface, found.gateway)), want, "{addr}");
            if (round + n) % 16 == 0 {
                assert_eq!(fib.lookup(addr, NOW), found[n], "{addr}");
            }
        }
    }
}

fn internet<A: LpmFamily + RivalAddress>(routes_of_all: usize) {
    let (every, count) = if is_deep() { (1, 10_000_000) } else { (16, 20_000) };
    let mut routes = routes::<A>(every);
    assert!(routes.len() >= routes_of_all / every, "{}", routes.len());
    let domain = Domain::new(1);
    let config = FibConfig::for_routes(routes.len());
    let mut fib = Fib::new(&domain, config, HashKey::new(1, 2), NOW);
    let mut random = PublicRandom::new(7);
    fib.load(&routes, NOW).unwrap();
    assert_eq!(fib.len(), routes.len());
    agrees(&mut fib, &domain, &routes, (count, &mut random));
    // What remains of it when a third has gone.
    let mut n = 0;
    routes.retain(|route| {
        n += 1;
        if n % 3 == 0 {
            let which = Selector::to(route.prefix);
            // What covers much leaves more than one step: the next change waits for it.
            while fib.delete(&which, NOW).is_err_and(|error| error == RouteError::Pending) {
                assert!(fib.sweep(NOW, 64) > 0);
            }
        }
        n % 3 != 0
    });
    agrees(&mut fib, &domain, &routes, (count / 10, &mut random));
    assert_eq!(fib.len(), routes.len());
    let (mut dump, mut gone) = (Dump::default(), 0);
    while let Some(some) = fib.remove_some(&mut dump, 1000, NOW, |_| true) {
        gone += some;
    }
    assert_eq!(gone, routes.len());
    while fib.sweep(NOW, 1000) > 0 {}
    assert_eq!((fib.is_empty(), fib.next_hops().count()), (true, 0));
}

#[test]
fn the_internets_ipv4_table_answers_as_another_crate_does() {
    internet::<Ipv4Addr>(900_000);
}

#[test]
fn the_internets_ipv6_table_answers_as_another_crate_does() {
    internet::<Ipv6Addr>(155_000);
}
