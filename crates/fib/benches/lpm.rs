//! Full Internet tables of both families: look-ups, changes, building and memory, beside two
//! crates that do the same; prints medians and ratios.
//!
//! Run: `cargo bench -p floodwall-fib`. The prefixes are those of `data/bgp`, each with one of 255
//! next hops by a hash. Three traces of addresses: `tab`, a random address within a random prefix;
//! `uni`, uniform over the space (IPv6: 2000::/3); `zipf`, half a million addresses of `tab` by
//! Zipf's law. Before the clock starts all three tables must agree on a million addresses of each.
//! Rounds are interleaved, so that a change of clock speed hits all alike; ratios are medians of
//! each round's ratio. Rates are per second of the thread's processor time, changes are timed by
//! the wall. `ending` repeats `tab` in a table of which 100,000 routes can expire, before the
//! first end and, with a tenth of them ended and not collected, after it, with a second pass over
//! the lifetimes. `churn` is 10,000 changes a second while two threads look up. As a test (`cargo
//! test`) it runs a small share of everything once.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod internet;

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use floodwall_base::{Address, Prefix};
use floodwall_fib::lpm::{ENTRY, Lpm, LpmCapacity, LpmFamily, LpmWriter, RouteTarget};
use floodwall_sync::qsbr::{Domain, Moment, Reader};
use ip_network_table_deps_treebitmap::IpLookupTable;
use prefix_trie::PrefixMap;

use internet::{BURST, Random, median, share, timed, worked};

const NOW: floodwall_base::Instant = floodwall_base::Instant::ORIGIN;

/// How much of everything.
struct Size {
    addrs: usize,
    checked: usize,
    rounds: usize,
    changes: usize,
    /// Routes that can expire.
    ending: usize,
}

const FULL: Size =
    Size { addrs: 1 << 20, checked: 1_000_000, rounds: 9, changes: 100_000, ending: 100_000 };
const SMOKE: Size = Size { addrs: 1 << 12, checked: 4096, rounds: 1, changes: 1000, ending: 1000 };

/// What the rivals need of a family.
trait Rivals: LpmFamily {
    type Net: prefix_trie::Prefix + Copy;
    type Rival: ip_network_table_deps_treebitmap::address::Address + Copy;
    fn net(prefix: Prefix<Self>) -> Self::Net;
    fn rival(self) -> Self::Rival;
    fn uniform(bits: u128) -> Self;
}

impl Rivals for Ipv4Addr {
    type Net = ipnet::Ipv4Net;
    type Rival = Self;
    fn net(prefix: Prefix<Self>) -> ipnet::Ipv4Net {
        ipnet::Ipv4Net::new(prefix.addr(), prefix.len()).unwrap()
    }
    fn rival(self) -> Self {
        self
    }
    fn uniform(bits: u128) -> Self {
        Self::from_bits_aligned(bits)
    }
}

impl Rivals for Ipv6Addr {
    type Net = ipnet::Ipv6Net;
    type Rival = Self;
    fn net(prefix: Prefix<Self>) -> ipnet::Ipv6Net {
        ipnet::Ipv6Net::new(prefix.addr(), prefix.len()).unwrap()
    }
    fn rival(self) -> Self {
        self
    }
    fn uniform(bits: u128) -> Self {
        Self::from_bits_aligned(bits >> 3 | 1 << 125)
    }
}

/// A random address within a random prefix.
fn within<A: Address>(prefixes: &[(Prefix<A>, u32)], random: &mut Random) -> A {
    let prefix = prefixes[random.next() as usize % prefixes.len()].0;
    random.within(prefix)
}

fn traces<A: Rivals>(prefixes: &[(Prefix<A>, u32)], size: &Size) -> [(&'static str, Vec<A>); 3] {
    let mut random = Random(1);
    let tab: Vec<A> = (0..size.addrs).map(|_| within(prefixes, &mut random)).collect();
    let uni = (0..size.addrs).map(|_| A::uniform(random.bits())).collect();
    // Zipf with exponent 1 by inversion: rank n^u of n, u uniform.
    let ranks = (tab.len() / 4).min(500_000) as f64;
    let zipf = |random: &mut Random| {
        let u = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        tab[(ranks.powf(u) as usize - 1).min(tab.len() - 1)]
    };
    let zipf = (0..size.addrs).map(|_| zipf(&mut random)).collect();
    [("tab", tab), ("uni", uni), ("zipf", zipf)]
}

/// The three tables, filled alike.
struct Tables<A: Rivals> {
    reader: Reader,
    ours: LpmWriter<A>,
    lpm: Lpm<A>,
    trie: PrefixMap<A::Net, u32>,
    bitmap: IpLookupTable<A::Rival, u32>,
    built: [Duration; 3],
}

impl<A: Rivals> Tables<A> {
    fn new(prefixes: &[(Prefix<A>, u32)]) -> Self {
        let domain = Domain::new(1);
        let mut ours = LpmWriter::new(&domain, LpmCapacity::for_prefixes(prefixes.len() + 100_000));
        let ((), first) = worked(|| ours.load(prefixes.iter().copied(), NOW).unwrap());
        let (trie, second) =
            worked(|| prefixes.iter().map(|(p, v)| (A::net(*p), *v)).collect::<PrefixMap<_, _>>());
        let (bitmap, third) = worked(|| {
            let mut bitmap = IpLookupTable::new();
            for (prefix, value) in prefixes {
                bitmap.insert(prefix.addr().rival(), u32::from(prefix.len()), *value);
            }
            bitmap
        });
        let (reader, lpm) = (domain.reader().unwrap(), ours.reader());
        Self { reader, ours, lpm, trie, bitmap, built: [first, second, third] }
    }

    fn in_trie(&self, addr: A) -> u32 {
        let host = A::net(Prefix::host(addr));
        self.trie.get_lpm(&host).map_or(0, |(_, value)| *value)
    }

    fn in_bitmap(&self, addr: A) -> u32 {
        self.bitmap.longest_match(addr.rival()).map_or(0, |(_, _, value)| *value)
    }

    /// All three, and the burst, give the same answers.
    fn agree(&self, addrs: &[A]) {
        let mut found = vec![0; addrs.len()];
        self.lpm.lookup_burst(self.reader.view(), addrs, NOW, &mut found);
        for (addr, found) in addrs.iter().zip(found) {
            let want = self.in_trie(*addr);
            assert_eq!(self.lpm.lookup(self.reader.view(), *addr, NOW), want, "{addr}");
            assert_eq!(self.lpm.bind(self.reader.view()).lookup(*addr, NOW), want, "{addr}");
            assert_eq!((found, self.in_bitmap(*addr)), (want, want), "{addr}");
        }
    }

    /// Millions of look-ups a second: scalar, burst, the two rivals, and scalar in a table bound to
    /// its view.
    fn pass(&self, addrs: &[A]) -> [f64; 5] {
        let rate = |time: Duration| addrs.len() as f64 / time.as_secs_f64() / 1e6;
        let view = self.reader.view();
        let scalar =
            worked(|| addrs.iter().map(|a| u64::from(self.lpm.lookup(view, *a, NOW))).sum::<u64>());
        let burst = worked(|| {
            let (mut found, mut sum) = ([0; BURST], 0_u64);
            for addrs in addrs.chunks(BURST) {
                self.lpm.lookup_burst(view, addrs, NOW, &mut found);
                sum += found[..addrs.len()].iter().map(|v| u64::from(*v)).sum::<u64>();
            }
            sum
        });
        let bound = worked(|| {
            let bound = self.lpm.bind(view);
            addrs.iter().map(|a| u64::from(bound.lookup(*a, NOW))).sum::<u64>()
        });
        let trie = worked(|| addrs.iter().map(|a| u64::from(self.in_trie(*a))).sum::<u64>());
        let bitmap = worked(|| addrs.iter().map(|a| u64::from(self.in_bitmap(*a))).sum::<u64>());
        assert_eq!([burst.0, trie.0, bitmap.0, bound.0], [scalar.0; 4], "the sums differ");
        black_box(scalar.0);
        [scalar.1, burst.1, trie.1, bitmap.1, bound.1].map(rate)
    }

    /// Takes random prefixes out and puts them in again; sorted times of both.
    fn changes(&mut self, prefixes: &[(Prefix<A>, u32)], count: usize) -> [Vec<Duration>; 2] {
        let (mut removals, mut inserts) = (Vec::new(), Vec::new());
        let mut random = Random(7);
        for n in 0..count {
            let (prefix, value) = prefixes[random.next() as usize % prefixes.len()];
            let (removed, time) = timed(|| self.ours.remove(prefix, NOW).unwrap());
            assert_eq!(removed, Some(value));
            removals.push(time);
            let (before, time) = timed(|| self.ours.insert(prefix, value, NOW).unwrap());
            assert_eq!(before, None);
            inserts.push(time);
            if n % 16 == 0 {
                self.reader.pass(Moment::RoundEnd, NOW);
            }
        }
        removals.sort_unstable();
        inserts.sort_unstable();
        [inserts, removals]
    }
}

/// A lifetime as the table above keeps it: when it ends, where it leads, what it covers.
#[derive(Clone, Copy)]
struct Lifetime {
    until: u64,
    hop: u32,
    cover: u32,
}

/// The second pass: what each entry leads to at `now`.
fn resolve(lifetimes: &[Lifetime], now: u64, found: &mut [u32]) {
    for found in found.iter().filter(|found| **found & ENTRY != 0) {
        if let Some(lifetime) = lifetimes.get((*found & !ENTRY) as usize) {
            floodwall_sync::prefetch(lifetime);
        }
    }
    for found in found.iter_mut().filter(|found| **found & ENTRY != 0) {
        while *found & ENTRY != 0 {
            let Lifetime { until, hop, cover } = lifetimes[(*found & !ENTRY) as usize];
            *found = if until > now { hop } else { cover };
        }
    }
}

/// The same table with some routes that can expire, beside the one without.
fn ending<A: Rivals>(tables: &Tables<A>, prefixes: &[(Prefix<A>, u32)], addrs: &[A], size: &Size) {
    let end = |n: usize| floodwall_base::Instant::from_nanos(1_000_000 + n as u64);
    let domain = Domain::new(1);
    let mut writer =
        LpmWriter::<A>::new(&domain, LpmCapacity::for_prefixes(prefixes.len() + 400_000));
    let mut lifetimes = Vec::new();
    writer.load(prefixes.iter().copied(), NOW).unwrap();
    // As many as that, spread by a hash.
    let is_chosen = |n: usize| Random(n as u64).next() as usize % prefixes.len() < size.ending;
    for (_, (prefix, hop)) in prefixes.iter().enumerate().filter(|(n, _)| is_chosen(*n)) {
        let until = end(lifetimes.len());
        let (entry, target) =
            (lifetimes.len() as u32, RouteTarget::until(*hop, lifetimes.len() as u32, until));
        // For the cost of a step it does not matter what it covers.
        lifetimes.push(Lifetime { until: until.as_nanos(), hop: *hop, cover: 1 });
        writer.replace(*prefix, Some(target), NOW).unwrap();
        debug_assert_eq!(writer.exact(*prefix), Some(ENTRY | entry));
    }
    let step = (lifetimes.len() / 10).max(1);
    let (reader, lpm) = (domain.reader().unwrap(), writer.reader());
    let pass = |lpm: &Lpm<A>, reader: &Reader, now: floodwall_base::Instant| {
        let view = reader.view();
        let ((), burst) = worked(|| {
            let mut found = [0; BURST];
            for addrs in addrs.chunks(BURST) {
                lpm.lookup_burst(view, addrs, now, &mut found);
                resolve(&lifetimes, now.as_nanos(), &mut found[..addrs.len()]);
                black_box(&found);
            }
        });
        let ((), scalar) = worked(|| {
            for addr in addrs {
                let mut found = [lpm.lookup(view, *addr, now)];
                resolve(&lifetimes, now.as_nanos(), &mut found);
                black_box(&found);
            }
        });
        [scalar, burst].map(|time| addrs.len() as f64 / time.as_secs_f64() / 1e6)
    };
    let rounds: Vec<_> = (0..size.rounds)
        .map(|_| {
            let without = pass(&tables.lpm, &tables.reader, NOW);
            let before = pass(&lpm, &reader, NOW);
            let after = pass(&lpm, &reader, end(step));
            [0, 1].map(|n| [before[n] / without[n], after[n] / without[n]])
        })
        .collect();
    let share = |kind: usize, when: usize| median(rounds.iter().map(|r| r[kind][when]).collect());
    println!(
        "  tab with {} routes that can expire, of the rate without: before the first end scalar \
         {:.2}, burst {:.2}; after a tenth has ended scalar {:.2}, burst {:.2}; in {:.2} MiB",
        lifetimes.len(),
        share(0, 0),
        share(1, 0),
        share(0, 1),
        share(1, 1),
        writer.memory().lookup as f64 / f64::from(1 << 20),
    );
}

/// What bursts took beside changes, or beside none: of processor time.
#[derive(Default)]
struct Bursts {
    count: AtomicU64,
    /// Of more than 100 us.
    long: AtomicU64,
    longest: AtomicU64,
}

impl Bursts {
    /// Looks up in bursts until it is done.
    fn look<A: Rivals>(&self, reader: &mut Reader, lpm: &Lpm<A>, addrs: &[A], done: &AtomicBool) {
        let mut found = [0; BURST];
        for addrs in addrs.chunks(BURST).cycle().take_while(|_| !done.load(Relaxed)) {
            let ((), time) = worked(|| {
                lpm.lookup_burst(reader.view(), addrs, NOW, &mut found);
            });
            self.count.fetch_add(1, Relaxed);
            self.long.fetch_add(u64::from(time > Duration::from_micros(100)), Relaxed);
            self.longest.fetch_max(time.as_nanos() as u64, Relaxed);
            reader.pass(Moment::RoundEnd, NOW);
        }
    }

    fn show(&self) -> String {
        format!(
            "{} of {:.1} M bursts above 100 us, the longest {:.1} us",
            self.long.load(Relaxed),
            self.count.load(Relaxed) as f64 / 1e6,
            self.longest.load(Relaxed) as f64 / 1e3
        )
    }
}

/// Ten thousand changes a second while two threads look up: how long a burst took at most, and a
/// change, in processor time. Then the same threads for as long without a change: what they meet
/// then too is the machine's, for its clock runs on while its host or an interrupt has it.
fn churn<A: Rivals>(prefixes: &[(Prefix<A>, u32)], addrs: &[A], size: &Size) {
    let domain = Domain::new(3);
    let mut writer =
        LpmWriter::<A>::new(&domain, LpmCapacity::for_prefixes(prefixes.len() + 100_000));
    writer.load(prefixes.iter().copied(), NOW).unwrap();
    let mut times = Vec::new();
    let (mut beside, mut alone) = (Bursts::default(), Bursts::default());
    for (bursts, changes) in [(&mut beside, true), (&mut alone, false)] {
        let (done, bursts) = (AtomicBool::new(false), &*bursts);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (mut reader, lpm) = (domain.reader().unwrap(), writer.reader());
                let done = &done;
                scope.spawn(move || bursts.look(&mut reader, &lpm, addrs, done));
            }
            let (mut random, start) = (Random(5), Instant::now());
            for n in 0..size.changes as u32 / 4 {
                while start.elapsed() < n * Duration::from_micros(200) {
                    std::thread::sleep(Duration::from_micros(50));
                }
                let (prefix, value) = prefixes[random.next() as usize % prefixes.len()];
                for target in
                    [None, Some(RouteTarget::forever(value))].into_iter().filter(|_| changes)
                {
                    while {
                        let (changed, time) = worked(|| writer.replace(prefix, target, NOW));
                        times.push(time);
                        changed.is_err()
                    } {
                        std::thread::yield_now();
                    }
                }
            }
            done.store(true, Relaxed);
        });
    }
    times.sort_unstable();
    let at = |part| share(&times, part);
    println!(
        "  churn: {} changes of median {:.2} us, 99.9 % {:.2}, at most {:.1}; beside them {}; \
         without changes {}",
        times.len(),
        at(0.5),
        at(0.999),
        times.last().map_or(0.0, |time| time.as_nanos() as f64 / 1e3),
        beside.show(),
        alone.show(),
    );
}

fn family<A: Rivals>(name: &str, size: &Size) {
    let prefixes = internet::prefixes::<A>(1);
    let mut tables = Tables::new(&prefixes);
    let memory = tables.ours.memory();
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!(
        "{name}: {} prefixes; looked up in {:.2} MiB, written with {:.1} MiB; built in {:.3} s \
         (prefix-trie {:.3}, treebitmap {:.3})",
        prefixes.len(),
        mib(memory.lookup),
        mib(memory.writer),
        tables.built[0].as_secs_f64(),
        tables.built[1].as_secs_f64(),
        tables.built[2].as_secs_f64(),
    );
    println!("  M/s    scalar   bound   burst  prefix-trie  treebitmap  scalar  bound  burst/trie");
    for (trace, addrs) in traces(&prefixes, size) {
        tables.agree(&addrs[..size.checked.min(addrs.len())]);
        let rounds: Vec<[f64; 5]> = (0..size.rounds).map(|_| tables.pass(&addrs)).collect();
        let column = |n: usize| median(rounds.iter().map(|r| r[n]).collect());
        let ratio = |n: usize| median(rounds.iter().map(|r| r[n] / r[2]).collect());
        let [scalar, burst, trie, bitmap, bound] = [0, 1, 2, 3, 4].map(column);
        println!(
            "  {trace:5} {scalar:7.1} {bound:7.1} {burst:7.1} {trie:12.1} {bitmap:11.1} {:6.2}x \
             {:5.2}x {:9.2}x",
            ratio(0),
            ratio(4),
            ratio(1)
        );
        if trace == "tab" {
            ending(&tables, &prefixes, &addrs, size);
        }
    }
    let [inserts, removals] = tables.changes(&prefixes, size.changes);
    for (what, times) in [("insert", inserts), ("remove", removals)] {
        let at = |part| share(&times, part);
        println!(
            "  {what}: median {:.2} us, 99 % {:.2}, 99.9 % {:.2}",
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
    let after = tables.ours.memory();
    println!("  after {} changes: {:.2} MiB", 2 * size.changes, mib(after.lookup_high_water));
    let mut random = Random(3);
    let addrs: Vec<A> = (0..size.addrs / 8).map(|_| within(&prefixes, &mut random)).collect();
    churn(&prefixes, &addrs, size);
}

fn main() {
    let size = if std::env::args().any(|arg| arg == "--bench") { &FULL } else { &SMOKE };
    family::<Ipv4Addr>("IPv4", size);
    family::<Ipv6Addr>("IPv6", size);
}
