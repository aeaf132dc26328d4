//! A table like a router's among others: ten thousand changes a second while two threads look up.
//!
//! Every answer is that of a prefix that fits, and where no prefix comes or goes the longest. With
//! `FLOODWALL_DEEP=1` it is the Internet's whole tables, and processor time is judged, of the
//! thread's own clock: no change and no burst of look-ups may take more than 100 us. A thread's
//! clock runs on while interrupts, or the host of a virtual machine, have its processor. So the
//! same changes are made three times over, and of each change the least counts: what the machine
//! does falls elsewhere each time, what the change does does not. (What a change does but seldom,
//! as to move a map that is full, is not seen so: it is counted, in `src/tests/work.rs`.) Bursts
//! alternate between the table that changes and its like that stays as it is: where more than a
//! chance share of the long ones falls upon the first, changes delay look-ups.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failing test may panic")]
#![expect(clippy::disallowed_methods, reason = "changes are paced, and judged by processor time")]

mod table;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{self, Duration};

use floodwall_base::{HashKey, Instant, PublicRandom};
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{Fib, FibConfig, FibReader, Found, Route, Selector};
use floodwall_sync::qsbr::{Domain, Moment, Reader};
use ip_network_table_deps_treebitmap::IpLookupTable;
use ip_network_table_deps_treebitmap::address::Address as RivalAddress;

use table::{is_deep, routes};

const NOW: Instant = Instant::ORIGIN;
/// What no call may take, of processor time.
const LONG: Duration = Duration::from_micros(100);
const BURST: usize = 64;
/// How often the same changes are made.
const REPEATS: usize = 3;

/// How much of everything.
struct Size {
    every: usize,
    addrs: usize,
    changes: usize,
    is_judged: bool,
}

fn size() -> Size {
    match is_deep() {
        true => Size { every: 1, addrs: 1 << 18, changes: 30_000, is_judged: true },
        false => Size { every: 64, addrs: 1 << 12, changes: 1000, is_judged: false },
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn worked<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let begin = processor_time();
    let made = what();
    (made, processor_time() - begin)
}

/// Whether a route is one of those that come and go.
const fn goes(at: usize) -> bool {
    at % 2 == 1
}

/// An address and the ways that may be found for it, the longest prefix's first: those up to the
/// first that stays.
struct Asked<A> {
    addr: A,
    ways: Vec<Option<A>>,
}

fn asked<A: LpmFamily + RivalAddress>(routes: &[Route<A>], count: usize) -> Vec<Asked<A>> {
    let mut rival = IpLookupTable::new();
    for (at, route) in routes.iter().enumerate() {
        rival.insert(route.prefix.addr(), u32::from(route.prefix.len()), at);
    }
    let mut random = PublicRandom::new(11);
    let mut any = || u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let one = |_| {
        let prefix = routes[any() as usize % routes.len()].prefix;
        let host = any().checked_shr(u32::from(prefix.len())).unwrap_or(0);
        let addr = A::from_bits_aligned(prefix.addr().to_bits_aligned() | host);
        let mut all: Vec<usize> = rival.matches(addr).map(|(.., at)| *at).collect();
        all.reverse();
        let stays = all.iter().position(|at| !goes(*at));
        let upto = stays.map_or(all.len(), |at| at + 1);
        let ways = all[..upto].iter().map(|at| routes[*at].gateway);
        // Where all of them go, there may be none.
        let ways = ways.chain(stays.is_none().then_some(None)).collect();
        Asked { addr, ways }
    };
    (0..count).map(one).collect()
}

/// What bursts took: how many there were, how many were long, and the longest.
#[derive(Default)]
struct Bursts {
    count: AtomicU64,
    long: AtomicU64,
    longest: AtomicU64,
}

impl Bursts {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Relaxed);
        self.long.fetch_add(u64::from(time > LONG), Relaxed);
        self.longest.fetch_max(time.as_nanos() as u64, Relaxed);
    }

    fn long(&self) -> f64 {
        self.long.load(Relaxed) as f64
    }

    fn show(&self) -> String {
        let [count, long, longest] = [&self.count, &self.long, &self.longest];
        let longest = longest.load(Relaxed) as f64 / 1e3;
        let (count, long) = (count.load(Relaxed), long.load(Relaxed));
        format!("{long} of {count} above 100 us, the longest {longest:.1} us")
    }
}

struct Tables<A: LpmFamily> {
    domain: Domain,
    fib: Fib<A>,
    still: FibReader<A>,
    _kept: Fib<A>,
}

impl<A: LpmFamily> Tables<A> {
    fn new(routes: &[Route<A>]) -> Self {
        let domain = Domain::new(3);
        let table = || {
            let config = FibConfig::for_routes(routes.len() + 1000);
            let mut fib = Fib::new(&domain, config, HashKey::new(1, 2), NOW);
            fib.load(routes, NOW).unwrap();
            assert!(fib.publish(NOW));
            fib
        };
        let (fib, kept) = (table(), table());
        Self { still: kept.reader(), domain: domain.clone(), fib, _kept: kept }
    }
}

/// Looks up in both tables by turns until it is stopped; every result fits.
fn look<A: LpmFamily>(
    mut reader: Reader,
    tables: [(FibReader<A>, &Bursts); 2],
    asked: &[Asked<A>],
    done: &AtomicBool,
) {
    let mut found = [None; BURST];
    for (n, asked) in asked.chunks_exact(BURST).cycle().enumerate() {
        let addrs: [A; BURST] = core::array::from_fn(|at| asked[at].addr);
        // Each is the first to meet a burst's addresses as often as the other.
        for at in [n % 2, 1 - n % 2] {
            let (seen, bursts) = &tables[at];
            let ((), time) = worked(|| seen.lookup_burst(reader.view(), &addrs, NOW, &mut found));
            bursts.add(time);
            for (asked, found) in asked.iter().zip(found) {
                let way = found.and_then(|found: Found<A>| found.gateway);
                let fits = if at == 0 { asked.ways.contains(&way) } else { asked.ways[0] == way };
                assert!(fits, "{}: {way:?} of {:?}", asked.addr, asked.ways);
            }
            reader.pass(Moment::RoundEnd, NOW);
        }
        if done.load(Relaxed) {
            return;
        }
    }
}

/// Takes routes out and puts them back, ten thousand changes a second: what each call took.
fn change<A: LpmFamily>(fib: &mut Fib<A>, routes: &[Route<A>], changes: usize) -> Vec<Duration> {
    let (mut random, mut times) = (PublicRandom::new(5), Vec::with_capacity(changes));
    let (start, mut refused) = (time::Instant::now(), 0);
    for n in 0..changes / 2 {
        while start.elapsed() < n as u32 * Duration::from_micros(200) {
            std::thread::sleep(Duration::from_micros(50));
        }
        let at =
            (random.next_u64() as usize % routes.len() / 2 * 2 + 1).min(routes.len() / 2 * 2 - 1);
        let route = routes[at];
        for comes in [false, true] {
            let mut longest = Duration::ZERO;
            while {
                let (changed, time) = worked(|| {
                    let changed = match comes {
                        true => fib.add(route, NOW).is_ok(),
                        false => fib.delete(&Selector::to(route.prefix), NOW).is_ok(),
                    };
                    fib.publish(NOW);
                    changed
                });
                longest = longest.max(time);
                !changed
            } {
                refused += 1;
                let ((), time) = worked(|| _ = fib.sweep(NOW, 64));
                longest = longest.max(time);
                std::thread::yield_now();
            }
            times.push(longest);
        }
    }
    assert!(refused < changes * 10, "{refused} refused of {changes}");
    times
}

fn churn<A: LpmFamily + RivalAddress>(name: &str) {
    let size = size();
    let routes = routes::<A>(size.every);
    let asked = asked(&routes, size.addrs);
    let mut tables = Tables::new(&routes);
    let (moving, still) = (Bursts::default(), Bursts::default());
    let mut least = vec![Duration::MAX; size.changes];
    let mut longest = Duration::ZERO;
    for _ in 0..REPEATS {
        let done = AtomicBool::new(false);
        let times = std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                let reader = tables.domain.reader().unwrap();
                let both = [(tables.fib.reader(), &moving), (tables.still.clone(), &still)];
                let (asked, done) = (&asked, &done);
                scope.spawn(move || look(reader, both, asked, done))
            });
            let times = change(&mut tables.fib, &routes, size.changes);
            done.store(true, Relaxed);
            // One by one: a sanitizer does not see what the scope's own end waits for.
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            times
        });
        longest = longest.max(times.iter().copied().max().unwrap());
        least.iter_mut().zip(times).for_each(|(least, time)| *least = time.min(*least));
    }
    assert_eq!(tables.fib.len(), routes.len());
    if !size.is_judged {
        return;
    }
    least.sort_unstable();
    let at = |part: f64| least[(least.len() as f64 * part) as usize].as_nanos() as f64 / 1e3;
    let worst = *least.last().unwrap();
    println!(
        "{name}: {} changes beside two readers, the least of {REPEATS} times each: median {:.2} \
         us, 99.9 % {:.2}, at most {:.1} (once {:.1}); bursts in what changes: {}; in its like \
         that does not: {}",
        least.len(),
        at(0.5),
        at(0.999),
        worst.as_nanos() as f64 / 1e3,
        longest.as_nanos() as f64 / 1e3,
        moving.show(),
        still.show()
    );
    assert!(worst <= LONG, "a change takes {worst:?}, on any machine");
    // Of two counts with one mean, the difference is beyond four times the root of their sum once
    // in thirty thousand.
    let (more, sum) = (moving.long() - still.long(), moving.long() + still.long());
    assert!(more <= 4.0 * sum.max(1.0).sqrt(), "{more} more of the long bursts beside changes");
}

#[test]
fn ten_thousand_changes_a_second_leave_every_ipv4_answer_right_and_no_call_long() {
    churn::<Ipv4Addr>("IPv4");
}

#[test]
fn ten_thousand_changes_a_second_leave_every_ipv6_answer_right_and_no_call_long() {
    churn::<Ipv6Addr>("IPv6");
}
