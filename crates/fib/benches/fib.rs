//! The whole path: routes, next hops, lifetimes and rules over the look-up structure; full tables
//! of both families, each answer compared with another crate's.
//!
//! Run: `cargo bench -p floodwall-fib --bench fib`. Prefixes and traces as in `lpm.rs` (`tab`).
//! Prints the time and memory of a load; look-ups a second through [`FibReader`], one at a time and
//! in bursts, in a table without ends, in one of which 100,000 routes can end before any has, and
//! in the same with a tenth of those ended and not collected, as medians of each round's ratio; and
//! what a change takes while two other threads look up. Before that, what the wheel of ends takes
//! to set and clear one of 100,000. Rates are per second of the thread's processor time. As a test
//! it runs a small share once.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod internet;

use std::collections::HashMap;
use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use floodwall_base::{Address, HashKey, IfIndex, Prefix};
use floodwall_fib::expiry::Expiry;
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{Fib, FibConfig, FibReader, Found, Route, Selector};
use floodwall_sync::qsbr::{Domain, Moment, Reader};
use ip_network_table_deps_treebitmap::IpLookupTable;
use ip_network_table_deps_treebitmap::address::Address as RivalAddress;

use internet::{BURST, Random, median, share, timed, worked};

const START: floodwall_base::Instant = floodwall_base::Instant::from_nanos(1_000_000_000);
const WAYS: u32 = 60;

/// How much of everything.
struct Size {
    every: usize,
    addrs: usize,
    rounds: usize,
    changes: usize,
    ending: usize,
}

const FULL: Size = Size { every: 1, addrs: 1 << 20, rounds: 7, changes: 50_000, ending: 100_000 };
const SMOKE: Size = Size { every: 64, addrs: 1 << 12, rounds: 1, changes: 500, ending: 1000 };

trait Rival: LpmFamily {
    type Of: RivalAddress + Copy;
    fn of(self) -> Self::Of;
}

impl Rival for Ipv4Addr {
    type Of = Self;
    fn of(self) -> Self {
        self
    }
}

impl Rival for Ipv6Addr {
    type Of = Self;
    fn of(self) -> Self {
        self
    }
}

/// The routes of one family: each through one of 255 routers.
fn routes<A: Address>(every: usize) -> Vec<Route<A>> {
    let route = |(prefix, way): (Prefix<A>, u32)| {
        let gateway = A::from_bits_aligned(0x0a00_0001_u128 << 96 | u128::from(way) << 97);
        Route::via(prefix, IfIndex((way % WAYS) as u16 + 1), gateway)
    };
    internet::prefixes(every).into_iter().map(route).collect()
}

struct Table<A: LpmFamily> {
    reader: Reader,
    fib: Fib<A>,
    seen: FibReader<A>,
}

impl<A: Rival> Table<A> {
    fn new(routes: &[Route<A>]) -> (Self, Duration) {
        let domain = Domain::new(4);
        let config = FibConfig::for_routes(routes.len() + 100_000);
        let mut fib = Fib::new(&domain, config, HashKey::new(1, 2), START);
        let (loaded, time) = worked(|| fib.load(routes, START));
        loaded.unwrap();
        assert!(fib.publish(START));
        let (reader, seen) = (domain.reader().unwrap(), fib.reader());
        (Self { reader, fib, seen }, time)
    }

    /// Millions of look-ups a second: one at a time, in bursts, and one at a time in tables bound
    /// to their view.
    fn pass(&self, addrs: &[A], now: floodwall_base::Instant) -> [f64; 3] {
        let view = self.reader.view();
        let way = |found: Option<Found<A>>| found.map_or(0, |found| u64::from(found.next_hop.0));
        let one = worked(|| {
            addrs.iter().map(|addr| way(self.seen.lookup(view, *addr, now))).sum::<u64>()
        });
        let burst = worked(|| {
            let (mut found, mut sum) = ([None; BURST], 0_u64);
            for addrs in addrs.chunks(BURST) {
                self.seen.lookup_burst(view, addrs, now, &mut found);
                sum += found.iter().take(addrs.len()).map(|found| way(*found)).sum::<u64>();
            }
            sum
        });
        let bound = worked(|| {
            let bound = self.seen.bind(view);
            addrs.iter().map(|addr| way(bound.lookup(*addr, now))).sum::<u64>()
        });
        assert_eq!([one.0; 2], [burst.0, bound.0], "the sums differ");
        black_box(one.0);
        [one.1, burst.1, bound.1].map(|time| addrs.len() as f64 / time.as_secs_f64() / 1e6)
    }

    /// Every answer is that of the other crate's table of the routes that are valid at `now`.
    fn agrees(&self, routes: &[Route<A>], addrs: &[A], now: floodwall_base::Instant) {
        let (mut rival, mut ways) = (IpLookupTable::new(), HashMap::new());
        for route in routes.iter().filter(|route| route.expires.is_none_or(|end| end > now)) {
            let len = u32::from(route.prefix.len());
            rival.insert(route.prefix.addr().of(), len, (route.iface, route.gateway));
            *ways.entry(route.gateway).or_insert(0) += 1;
        }
        let view = self.reader.view();
        let mut found = vec![None; addrs.len()];
        self.seen.lookup_burst(view, addrs, now, &mut found);
        for (addr, found) in addrs.iter().zip(found) {
            let want = rival.longest_match(addr.of()).map(|(.., way)| *way);
            assert_eq!(found.map(|found| (found.iface, found.gateway)), want, "{addr}");
            assert_eq!(self.seen.lookup(view, *addr, now), found, "{addr}");
            assert_eq!(self.seen.bind(view).lookup(*addr, now), found, "{addr} bound");
        }
        assert!(ways.len() > 20, "the table has distinct next hops");
    }
}

/// Changes of random routes while two threads look up: sorted times.
fn changes<A: Rival>(table: &mut Table<A>, routes: &[Route<A>], addrs: &[A], size: &Size) {
    let (done, mut times) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut reader, seen, done) =
                (table.fib.domain().reader().unwrap(), table.seen.clone(), &done);
            scope.spawn(move || {
                let mut found = [None; BURST];
                for addrs in addrs.chunks(BURST).cycle().take_while(|_| !done.load(Relaxed)) {
                    seen.lookup_burst(reader.view(), addrs, START, &mut found);
                    reader.pass(Moment::RoundEnd, START);
                }
            });
        }
        let mut random = Random(5);
        for _ in 0..size.changes / 2 {
            let route = routes[random.next() as usize % routes.len()];
            let which = Selector::to(route.prefix);
            for add in [false, true] {
                loop {
                    let (done, time) = timed(|| match add {
                        true => table.fib.add(route, START).is_ok(),
                        false => table.fib.delete(&which, START).is_ok(),
                    });
                    table.fib.publish(START);
                    table.reader.pass(Moment::RoundEnd, START);
                    if done {
                        times.push(time);
                        break;
                    }
                    std::thread::yield_now();
                }
            }
        }
        done.store(true, Relaxed);
    });
    times.sort_unstable();
    let at = |part| share(&times, part);
    println!(
        "  {} changes beside two readers: median {:.2} us, 99 % {:.2}, 99.9 % {:.2}, by the wall",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999)
    );
}

fn family<A: Rival>(name: &str, size: &Size) {
    let routes = routes::<A>(size.every);
    let mut random = Random(1);
    let within = |random: &mut Random| {
        let prefix = routes[random.next() as usize % routes.len()].prefix;
        random.within(prefix)
    };
    let addrs: Vec<A> = (0..size.addrs).map(|_| within(&mut random)).collect();
    let (mut plain, time) = Table::new(&routes);
    let (lookup, writer) = plain.fib.memory();
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!(
        "{name}: {} routes loaded in {:.3} s; looked up in {:.2} MiB, kept in {:.0} MiB",
        routes.len(),
        time.as_secs_f64(),
        mib(lookup),
        mib(writer)
    );
    plain.agrees(&routes, &addrs, START);
    let step = (routes.len() / size.ending).max(1);
    let end = |n: usize| START + Duration::from_millis(10_000 + n as u64);
    let mut ending = routes.clone();
    let mut chosen: Vec<usize> = (0..ending.len()).collect();
    if step == 1 {
        chosen.sort_by_key(|n| Random(*n as u64).next());
    }
    let chosen: Vec<usize> = chosen.into_iter().step_by(step).take(size.ending).collect();
    chosen.iter().enumerate().for_each(|(n, at)| ending[*at].expires = Some(end(n)));
    let (mut other, time) = Table::new(&ending);
    println!("  with {} that end: loaded in {:.3} s", chosen.len(), time.as_secs_f64());
    let tenth = end(chosen.len() / 10);
    other.fib.collect(START, 1);
    other.agrees(&ending, &addrs, START);
    other.agrees(&ending, &addrs, tenth);
    let rounds: Vec<_> = (0..size.rounds)
        .map(|_| {
            let all = [plain.pass(&addrs, START), other.pass(&addrs, START)];
            [all[0], all[1], other.pass(&addrs, tenth)]
        })
        .collect();
    for (kind, what) in
        ["one at a time", "in bursts", "one at a time, bound"].into_iter().enumerate()
    {
        let column = |n: usize| median(rounds.iter().map(|round| round[n][kind]).collect());
        let share =
            |n: usize| median(rounds.iter().map(|round| round[n][kind] / round[0][kind]).collect());
        println!(
            "  {what}: {:.1} M/s; with ends ahead {:.2} of it, with a tenth ended {:.2}",
            column(0),
            share(1),
            share(2)
        );
    }
    changes(&mut plain, &routes, &addrs, size);
    plain.agrees(&routes, &addrs[..addrs.len() / 8], START);
}

/// The wheel of lifetimes: what setting and clearing one costs among many, in no order, and what a
/// collection costs that finds nothing due.
fn wheel(size: &Size) {
    let (count, mut random) = (size.ending as u32, Random(11));
    let mut expiry = Expiry::new(count as usize, START);
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_by_key(|n| Random(u64::from(*n)).next());
    let ends: Vec<_> = order
        .iter()
        .map(|_| START + Duration::from_millis(1000 + random.next() % 7_200_000))
        .collect();
    let per = |time: Duration, of: u32| time.as_nanos() as f64 / f64::from(of);
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..2 * size.rounds + 1 {
        let ((), inserts) = worked(|| {
            order.iter().zip(&ends).for_each(|(at, end)| expiry.insert(*at, *end, START));
        });
        let (due, looks) =
            worked(|| (0..1000).filter_map(|_| black_box(&mut expiry).pop_due(START)).count());
        assert_eq!((due, expiry.len()), (0, count as usize));
        let ((), cancels) = worked(|| order.iter().rev().for_each(|at| expiry.cancel(*at)));
        assert!(expiry.is_empty());
        let figures = [per(inserts, count), per(cancels, count), per(looks, 1000)];
        all.iter_mut().zip(figures).for_each(|(all, one)| all.push(one));
    }
    let [inserts, cancels, looks] = all.map(median);
    println!(
        "wheel of {count} ends: insert {inserts:.1} ns, cancel {cancels:.1} ns; with none due \
         {looks:.1} ns"
    );
}

fn main() {
    let size = if std::env::args().any(|arg| arg == "--bench") { &FULL } else { &SMOKE };
    wheel(size);
    family::<Ipv4Addr>("IPv4", size);
    family::<Ipv6Addr>("IPv6", size);
}
