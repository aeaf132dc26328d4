//! Random changes beside a list without tries, wheels or chains.
//!
//! After every step the table holds what the list holds, every look-up agrees, I1 to I7 hold, and
//! at the end nothing is left. What a change owes below its prefix is done here in the smallest
//! steps there are, and between any two of them each answer is the former or the new one. What is
//! accepted of paths' MTUs (PTB) is beside the routes: it lowers paths, and neither a table nor a
//! collection depends on it. Other threads look up all the while.

use std::collections::BTreeMap;

use floodwall_base::limits::{EXCEPTIONS_HOP_MAX, EXCEPTIONS_MAX};
use floodwall_base::{PublicRandom, Randomness, SecretRandom};
use floodwall_sync::qsbr::Domain;

use super::*;
use crate::exceptions::{Exceptions, FirstHop, LIFETIME, PathUpdate};
use crate::records::NONE;
use crate::{Dump, Put, RouteError, RouteProtocol, Selector, TableId};

both! {
    random_changes_leave_what_a_list_has_and_keep_every_invariant => small_and_large;
    a_full_cycle_leaks_nothing => cycle;
    a_dump_that_goes_on_while_routes_change_shows_what_stays_exactly_once => dump;
}

/// The list: routes in the order in which they came, an order number each.
#[derive(Default)]
struct Oracle<A: LpmFamily> {
    routes: Vec<(u64, Route<A>)>,
    next: u64,
    /// The last accepted message of each path: its MTU, and until when.
    paths: BTreeMap<(A, IfIndex), (u32, Instant)>,
}

impl<A: LpmFamily> Oracle<A> {
    fn of(&self, route: &Route<A>) -> impl Iterator<Item = usize> + '_ {
        let (prefix, metric) = (route.prefix, route.metric);
        let mut all: Vec<_> = (0..self.routes.len())
            .filter(|at| self.routes[*at].1.prefix == prefix && self.routes[*at].1.metric == metric)
            .collect();
        all.sort_by_key(|at| (self.routes[*at].1.preference, self.routes[*at].0));
        all.into_iter()
    }

    /// Whether the table must accept it; if so it is done.
    fn put(&mut self, route: Route<A>, how: Put) -> bool {
        let rival = self.of(&route).next();
        let way = |r: &Route<A>| (r.iface, r.gateway, r.kind, r.src_addr);
        match (how, rival) {
            (Put::Add, Some(_)) => return false,
            (Put::Append, _)
                if self.of(&route).any(|at| way(&self.routes[at].1) == way(&route)) =>
            {
                return false;
            }
            (Put::Replace, Some(at)) => {
                // In its place among its equals; behind them where its preference differs.
                if self.routes[at].1.preference != route.preference {
                    self.routes[at].0 = self.next;
                    self.next += 1;
                }
                self.routes[at].1 = route;
                return true;
            }
            _ => {}
        }
        self.routes.push((self.next, route));
        self.next += 1;
        true
    }

    fn lookup(&self, addr: A, now: Instant, down: u64) -> Option<Route<A>> {
        let lives = |r: &Route<A>| {
            r.expires.is_none_or(|end| end > now)
                && r.prefix.contains(addr)
                && down >> r.iface.0 & 1 == 0
        };
        let all = self.routes.iter().filter(|(_, r)| lives(r));
        let best = |(n, r): &&(u64, Route<A>)| {
            (core::cmp::Reverse(r.prefix.len()), r.metric, r.preference, *n)
        };
        all.min_by_key(best).map(|(_, route)| *route)
    }
}

struct Case<A: LpmFamily> {
    fib: Fib<A>,
    oracle: Oracle<A>,
    random: PublicRandom,
    now: Instant,
    down: u64,
    /// Addresses and lengths come from few, so that prefixes nest and meet.
    bytes: u64,
    exceptions: Exceptions<A>,
    secret: SecretRandom,
    /// The dump that is on its way.
    dump: Dump,
    /// Whether the last act was more than one change.
    is_many: bool,
}

impl<A: LpmFamily> Case<A> {
    fn new(fib: Fib<A>, seed: u64, bytes: u64) -> Self {
        let oracle = Oracle { routes: Vec::new(), next: 0, paths: BTreeMap::new() };
        Self {
            fib,
            oracle,
            random: PublicRandom::new(seed),
            now: START,
            down: 0,
            bytes,
            exceptions: Exceptions::new(HashKey::new(seed, 3)),
            secret: Randomness::from_number(seed).secret,
            dump: Dump::default(),
            is_many: false,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn addr(&mut self) -> A {
        let few = self.bytes;
        let mut bits = 0_u128;
        for _ in 0..8 {
            bits = bits << 16
                | u128::from(self.below(few) * 0x55 % 256) << 8
                | u128::from(self.below(3) * 0x7f);
        }
        A::from_bits_aligned(bits)
    }

    fn prefix(&mut self) -> Prefix<A> {
        let lengths = [0, 1, 8, 9, 15, 16, 17, 20, 23, 24, 25, 28, 31, 32];
        let wide = [33, 40, 47, 48, 56, 63, 64, 65, 80, 120, 127, 128];
        let n = self.below(lengths.len() as u64 + if A::BITS == 32 { 0 } else { 12 }) as usize;
        let len = lengths.iter().chain(&wide).nth(n).copied().unwrap();
        Prefix::new(self.addr(), len).unwrap()
    }

    fn route(&mut self) -> Route<A> {
        let prefix = if self.oracle.routes.is_empty() || self.below(3) > 0 {
            self.prefix()
        } else {
            let n = self.below(self.oracle.routes.len() as u64) as usize;
            self.oracle.routes[n].1.prefix
        };
        let preferences = [
            crate::RoutePreference::High,
            crate::RoutePreference::Medium,
            crate::RoutePreference::Low,
        ];
        let expires = match self.below(3) {
            0 => None,
            _ => Some(self.now + Duration::from_millis(1 + self.below(4000))),
        };
        Route {
            metric: self.below(3) as u32,
            preference: preferences[self.below(3) as usize],
            expires,
            ..Route::on_link(prefix, IfIndex(1 + self.below(6) as u16))
        }
    }

    fn step(&mut self) {
        let addrs: Vec<A> = (0..6).map(|_| self.addr()).collect();
        let (now, down) = (self.now, self.down);
        let answers = |oracle: &Oracle<A>, down| -> Vec<_> {
            addrs.iter().map(|addr| oracle.lookup(*addr, now, down).map(|r| r.iface)).collect()
        };
        let before = answers(&self.oracle, down);
        self.is_many = false;
        self.act();
        let after = answers(&self.oracle, self.down);
        let goes_on = |fib: &Fib<A>| fib.owing.is_some() || fib.leaving.len() > 0;
        while goes_on(&self.fib) {
            let owed = self.fib.len();
            for (n, addr) in addrs.iter().enumerate() {
                let found = self.fib.lookup(*addr, now).map(|found| found.iface);
                // A link that goes or comes is many changes, one behind the other.
                let is_many = self.is_many || down != self.down;
                assert!(is_many || found == before[n] || found == after[n], "{addr}: {found:?}");
            }
            assert!(self.fib.owing.is_none() || self.fib.waits());
            assert_eq!(self.fib.deadline(), Some(Instant::ORIGIN));
            assert!(self.fib.sweep(self.now, 1) <= 1);
            assert_eq!(self.fib.len(), owed, "what is owed is no route");
        }
        while self.fib.sweep(self.now, 100) > 0 {}
    }

    fn act(&mut self) {
        match self.below(20) {
            0..=7 => self.put(),
            8..=9 => self.delete(),
            10..=11 => self.collect(),
            12 => {
                let slept = self.below(700);
                self.now += Duration::from_millis(slept);
            }
            13 => self.flap(),
            14 => self.turn_link(),
            15..=16 => self.too_big(),
            17 => self.show_one(),
            18 => self.remove_many(),
            _ => {
                self.fib.publish(self.now);
            }
        }
    }

    /// A path's MTU is received and accepted: routes stay as they are.
    fn too_big(&mut self) {
        let dst_addr = self.addr();
        let Some(found) = self.fib.lookup(dst_addr, self.now) else { return };
        let (iface, mtu) = (found.iface, 1280 + self.below(200) as u32);
        let (hop, routes) = (FirstHop { iface, via: found.gateway }, self.fib.revision());
        let Self { exceptions, secret, now, .. } = self;
        exceptions.learn(dst_addr, hop, PathUpdate::PathMtu(mtu), *now, secret);
        assert_eq!(self.fib.revision(), routes);
        self.oracle.paths.insert((dst_addr, iface), (mtu, self.now + LIFETIME));
    }

    /// The exception of a path is what was accepted last, over the very route; or nothing.
    fn check_paths(&mut self) {
        assert!(self.exceptions.len() <= EXCEPTIONS_MAX.min(EXCEPTIONS_HOP_MAX));
        for ((dst_addr, iface), (mtu, until)) in &self.oracle.paths {
            let hop = |iface| FirstHop { iface, via: None };
            let known = self.exceptions.lookup(*dst_addr, hop(*iface), self.now).mtu;
            assert!(known.is_none_or(|known| known == *mtu && *until > self.now));
            assert_eq!(self.exceptions.lookup(*dst_addr, hop(IfIndex(40)), self.now).mtu, None);
        }
        let shown = self.exceptions.iter(self.now).count();
        assert!(shown <= self.oracle.paths.len());
        let late = self.now + LIFETIME;
        assert_eq!(self.exceptions.iter(late).count(), 0, "all of it ages by the clock alone");
    }

    /// One step of a dump: what it shows is there now, with any changes since the last step.
    fn show_one(&mut self) {
        let Some(route) = self.dump.next(&self.fib) else {
            self.dump = Dump::default();
            return;
        };
        assert!(self.oracle.routes.iter().any(|(_, r)| *r == route), "{route}");
    }

    fn put(&mut self) {
        let route = self.route();
        let how = [Put::Add, Put::Replace, Put::Append][self.below(3) as usize];
        match self.fib.put(route, how, self.now) {
            Ok(()) => assert!(self.oracle.put(route, how), "{how:?} {route}"),
            Err(RouteError::Exists { .. }) => {
                assert!(!self.oracle.put(route, how), "{how:?} {route}")
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn delete(&mut self) {
        let route = self.route();
        let which = Selector { iface: Some(route.iface), ..Selector::to(route.prefix) };
        let mut all: Vec<_> = (0..self.oracle.routes.len())
            .filter(|at| which.means(&self.oracle.routes[*at].1))
            .collect();
        all.sort_by_key(|at| {
            let (n, r) = &self.oracle.routes[*at];
            (r.metric, r.preference, *n)
        });
        match self.fib.delete(&which, self.now) {
            Ok(gone) => assert_eq!(self.oracle.routes.remove(all[0]).1, gone),
            Err(RouteError::NotFound { .. }) => assert!(all.is_empty()),
            Err(error) => panic!("{error}"),
        }
    }

    /// All routes of one next hop, out of all or of one prefix: gone at once for all readers, and
    /// out of the tables step by step.
    fn remove_many(&mut self) {
        let iface = IfIndex(1 + self.below(6) as u16);
        let wanted = |r: &Route<A>| r.iface == iface;
        let prefix = self.route().prefix;
        let gone = if self.below(2) == 0 {
            self.oracle.routes.retain(|(_, r)| !(wanted(r) && r.prefix == prefix));
            self.fib.remove_to(TableId::MAIN, prefix, self.now, wanted)
        } else {
            self.oracle.routes.retain(|(_, r)| !wanted(r));
            let (mut dump, mut gone) = (Dump::default(), 0);
            while let Some(some) = self.fib.remove_some(&mut dump, 7, self.now, wanted) {
                gone += some;
            }
            gone
        };
        self.is_many = true;
        assert_eq!(self.fib.len(), self.oracle.routes.len(), "{gone} went");
    }

    /// Promote, demote, prolong: a route keeps its way and gets another end.
    fn flap(&mut self) {
        if self.oracle.routes.is_empty() {
            return;
        }
        let n = self.below(self.oracle.routes.len() as u64) as usize;
        let (number, route) = self.oracle.routes[n];
        let expires = match self.below(4) {
            0 => None,
            1 => Some(Instant::FAR),
            2 => Some(self.now),
            _ => Some(self.now + Duration::from_millis(1 + self.below(9000))),
        };
        // `set` means the first of its way, which may be of another metric.
        let twins = self
            .oracle
            .routes
            .iter()
            .filter(|(_, r)| (r.prefix, r.iface) == (route.prefix, route.iface));
        if twins.count() > 1 {
            return;
        }
        self.fib.set(Route { expires, ..route }, self.now).unwrap();
        let endless = expires.filter(|end| *end != Instant::FAR);
        match expires {
            Some(end) if end <= self.now => _ = self.oracle.routes.remove(n),
            _ => self.oracle.routes[n] = (number, Route { expires: endless, ..route }),
        }
    }

    fn collect(&mut self) {
        let most = self.below(20) as usize;
        let before = self.fib.len();
        let visited = self.fib.collect(self.now, most);
        assert!(visited <= most);
        assert_eq!(before - self.fib.len(), visited, "visited is what was due");
        let left: Vec<_> = self.fib.dump().collect();
        let now = self.now;
        self.oracle.routes.retain(|(_, r)| {
            let stays = left.contains(r);
            assert!(stays || r.expires.is_some_and(|end| end <= now), "only what is over goes");
            stays
        });
    }

    fn turn_link(&mut self) {
        let iface = 1 + self.below(6);
        self.down ^= 1 << iface;
        let up = self.down >> iface & 1 == 0;
        self.fib.set_usable(IfIndex(iface as u16), up, self.now);
    }

    fn check(&mut self) {
        let mut has: Vec<_> = self.fib.dump().map(|r| format!("{r:?}")).collect();
        let mut wants: Vec<_> = self.oracle.routes.iter().map(|(_, r)| format!("{r:?}")).collect();
        has.sort();
        wants.sort();
        assert_eq!(has, wants);
        self.check_paths();
        let addrs: Vec<A> = (0..12).map(|_| self.addr()).collect();
        let mut burst = vec![None; addrs.len()];
        self.fib.lookup_burst(&addrs, self.now, &mut burst);
        for (addr, at_once) in addrs.into_iter().zip(burst) {
            let wanted = self.oracle.lookup(addr, self.now, self.down);
            let found = self.fib.lookup(addr, self.now);
            assert_eq!(at_once, found, "{addr} in a burst");
            assert_eq!(found.map(|f| f.iface), wanted.map(|r| r.iface), "{addr} wants {wanted:?}");
        }
        invariants(&self.fib);
    }
}

/// I1: in the wheel exactly while in a table and with an end. I4: nothing has two owners.
fn invariants<A: LpmFamily>(fib: &Fib<A>) {
    let records = (0..fib.records.end()).filter_map(|at| Some((at, fib.records.at(at)?)));
    let mut timed = 0;
    for (at, record) in records {
        if record.lifetime != NONE {
            assert!(fib.expiry.is_set(record.lifetime), "in the wheel");
            assert_eq!(fib.lifetime_of[record.lifetime as usize], at);
            timed += 1;
        }
    }
    assert_eq!(fib.expiry.len(), timed, "and nothing else is");
    let users: u32 = fib.next_hops().filter(|hop| hop.members.is_empty()).map(|h| h.users).sum();
    assert_eq!(users as usize, fib.len());
}

fn small_and_large<A: LpmFamily>() {
    for (seed, bytes) in [(1, 2), (2, 3), (3, 12), (4, 60)] {
        let config = FibConfig::for_routes(4096);
        let mut fib = Fib::<A>::alone(config, HashKey::new(seed, 2), START);
        // The least that one call can do of what a change leaves below it.
        fib.step = 1;
        let mut case = Case::new(fib, seed, bytes);
        for n in 0..2500 {
            case.step();
            if n % 4 == 0 {
                case.check();
            }
        }
        empty(&mut case.fib, case.now);
    }
}

/// Removes everything, and finds everything free.
fn empty<A: LpmFamily>(fib: &mut Fib<A>, now: Instant) {
    remove_all(fib, now);
    fib.publish(now);
    invariants(fib);
    assert_eq!((fib.len(), fib.expiring(), fib.next_hops().count()), (0, 0, 0));
    assert_eq!(fib.free_lifetimes.len(), fib.config().expiring_max, "all lifetimes are free");
    assert!(!fib.waits());
    fib.next_hops().for_each(|hop| assert_eq!(hop.users, 0));
}

fn cycle<A: LpmFamily>() {
    let mut fib = Fib::<A>::alone(FibConfig::for_routes(300), HashKey::new(3, 4), START);
    for round in 0..20_u64 {
        let now = after(round * 100);
        for n in 0..300_u16 {
            let ends = (n % 2 == 0).then(|| now + Duration::from_secs(u64::from(n % 50 + 1)));
            let one = route(&format!("10.{}.{}.0/24", n / 200, n % 200), 1 + n % 40);
            fib.add(Route { expires: ends, ..one }, now).unwrap();
        }
        assert_eq!((fib.len(), fib.expiring()), (300, 150));
        // The last eighth of a lifetime and a granule later all is collected.
        assert_eq!(fib.collect(now + Duration::from_secs(60), 1000), 150);
        empty(&mut fib, now + Duration::from_secs(60));
    }
}

fn dump<A: LpmFamily>() {
    let mut fib = fib::<A>();
    let nth = |n: u16| route::<A>(&format!("10.{n}.0.0/16"), 1 + n % 9);
    (0..250).for_each(|n| fib.add(nth(n), START).unwrap());
    let (mut dump, mut seen) = (Dump::default(), BTreeMap::new());
    let mut n = 0;
    while let Some(route) = dump.next(&fib) {
        *seen.entry(route.prefix).or_insert(0) += 1;
        // Every fifth goes and comes back as another, while the dump is on its way.
        let at = n * 7 % 250 / 5 * 5;
        let _ = fib.delete(&Selector::to(nth(at).prefix), START);
        let _ = fib.append(Route { iface: IfIndex(20), ..nth(at) }, START);
        n += 1;
    }
    for n in (0..250).filter(|n| n % 5 != 0) {
        assert_eq!(seen.get(&nth(n).prefix), Some(&1), "{n}");
    }
}

/// Readers on other threads see, of a prefix that flaps between two ways while a shorter one stays,
/// one of the three; and never what was never there.
#[test]
fn look_ups_of_other_threads_find_what_is_or_was_there() {
    threads::<Ipv4Addr>();
    threads::<Ipv6Addr>();
}

fn threads<A: LpmFamily>() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let domain = Domain::new(2);
    let mut fib = Fib::<A>::new(&domain, FibConfig::for_routes(2000), HashKey::new(1, 2), START);
    let stop = AtomicBool::new(false);
    fib.add(route("10.0.0.0/8", 1), START).unwrap();
    fib.publish(START);
    std::thread::scope(|scope| {
        for n in 0..2 {
            let (fib, domain, stop) = (fib.reader(), domain.clone(), &stop);
            scope.spawn(move || {
                let mut reader = domain.reader().unwrap();
                let (mut looked, mut found) = (0, [None; 8]);
                let wanted = |text: &str| addr::<A>(text);
                let addrs: Vec<A> = (0..8).map(|n| wanted(&format!("10.{n}.1.1"))).collect();
                while !stop.load(Relaxed) || looked < 100 {
                    let now = START + Duration::from_millis(n * 50);
                    fib.lookup_burst(reader.view(), &addrs, now, &mut found);
                    for found in found {
                        let iface = found.expect("the shorter one is always there").iface.0;
                        assert!((1..=8).contains(&iface), "{iface}");
                    }
                    assert_eq!(fib.lookup(reader.view(), wanted("11.0.0.1"), now), None);
                    reader.quiescent(now);
                    looked += 1;
                }
            });
        }
        let mut random = PublicRandom::new(9);
        for round in 0..6000_u64 {
            let n = random.next_u64() % 8;
            let ends = (round % 3 == 0).then(|| START + Duration::from_millis(1 + round % 99));
            let iface = 2 + (random.next_u64() % 7) as u16;
            let one = Route { expires: ends, ..route(&format!("10.{n}.0.0/16"), iface) };
            let _ = match round % 4 {
                0 => fib.remove_to(TableId::MAIN, one.prefix, START, |_| true),
                1 => usize::from(fib.append(one, START).is_ok()),
                _ => usize::from(fib.replace(one, START).is_ok()),
            };
            // Half way the list becomes a trie under the readers.
            if round == 3000 {
                for n in 0..100 {
                    fib.add(route(&format!("99.{n}.0.0/16"), 60), START).unwrap();
                }
            }
            fib.publish(START);
        }
        stop.store(true, Relaxed);
    });
    empty(&mut fib, after(1));
}

/// A learnt route is of its protocol, and the operator's of his.
#[test]
fn what_routers_tell_never_touches_what_the_operator_set() {
    let mut fib = fib::<Ipv6Addr>();
    let mine = Route { metric: 9, ..route("10.0.0.0/16", 1) };
    fib.add(mine, START).unwrap();
    let protocol = RouteProtocol::RouterAdvertisement;
    for (metric, seconds) in [(7, 5), (7, 7), (3, 8)] {
        let told = Route { metric, protocol, expires: Some(after(seconds)), ..mine };
        fib.set(told, START).unwrap();
        let all: Vec<_> = fib.routes_to(TableId::MAIN, mine.prefix).collect();
        assert_eq!(all, [told, mine]);
    }
    fib.set(Route { protocol, expires: Some(START), ..mine }, START).unwrap();
    assert_eq!(fib.dump().collect::<Vec<_>>(), [mine]);
}
