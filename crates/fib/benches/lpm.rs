//! Full Internet tables of both families: look-ups, changes, building and memory, beside two
//! crates that do the same; prints medians and ratios.
//!
//! Run: `cargo bench -p floodwall-fib`. The prefixes are those of `data/bgp`, each with one of 255
//! next hops by a hash. Three traces of addresses: `tab`, a random address within a random prefix;
//! `uni`, uniform over the space (IPv6: 2000::/3); `zipf`, half a million addresses of `tab` by
//! Zipf's law. Before the clock starts all three tables must agree on a million addresses of each.
//! Rounds are interleaved, so that a change of clock speed hits all alike; numbers are millions of
//! look-ups a second and microseconds a change. As a test (`cargo test`) it runs a small share of
//! everything once.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use floodwall_base::{Address, Prefix};
use floodwall_fib::lpm::{Capacity, Family, Lpm, LpmWriter};
use floodwall_sync::qsbr::{Domain, Moment, Reader};
use ip_network_table_deps_treebitmap::IpLookupTable;
use prefix_trie::PrefixMap;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/bgp/prefixes.txt.gz");
const BURST: usize = 64;
const NOW: floodwall_base::Instant = floodwall_base::Instant::ORIGIN;

/// How much of everything.
struct Size {
    addrs: usize,
    checked: usize,
    rounds: usize,
    changes: usize,
}

const FULL: Size = Size { addrs: 1 << 21, checked: 1_000_000, rounds: 7, changes: 100_000 };
const SMOKE: Size = Size { addrs: 1 << 12, checked: 4096, rounds: 1, changes: 1000 };

/// A small generator: a bench repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bits(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

/// What the rivals need of a family.
trait Rivals: Family {
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

/// The prefixes of one family, each with its next hop.
fn table<A: Address>() -> Vec<(Prefix<A>, u32)> {
    let lines = BufReader::new(flate2::read::GzDecoder::new(File::open(TABLE).unwrap())).lines();
    let mut found = Vec::new();
    for line in lines {
        let line = line.unwrap();
        let Some((addr, len)) = line.trim().split_once('/') else { continue };
        let Some(addr) = A::from_ip(addr.parse::<IpAddr>().unwrap()) else { continue };
        let prefix = Prefix::new(addr, len.parse().unwrap()).unwrap();
        let mut hash =
            Random((prefix.addr().to_bits_aligned() >> 64) as u64 ^ u64::from(prefix.len()));
        found.push((prefix, (hash.next() % 255) as u32 + 1));
    }
    found
}

/// A random address within a random prefix.
fn within<A: Address>(prefixes: &[(Prefix<A>, u32)], random: &mut Random) -> A {
    let prefix = prefixes[random.next() as usize % prefixes.len()].0;
    let host = random.bits().checked_shr(u32::from(prefix.len())).unwrap_or(0);
    A::from_bits_aligned(prefix.addr().to_bits_aligned() | host)
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

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let made = what();
    (made, begin.elapsed())
}

impl<A: Rivals> Tables<A> {
    fn new(prefixes: &[(Prefix<A>, u32)]) -> Self {
        let domain = Domain::new(1);
        let mut ours = LpmWriter::new(&domain, Capacity::for_prefixes(prefixes.len() + 100_000));
        let ((), first) = timed(|| ours.load(prefixes.iter().copied(), NOW).unwrap());
        let (trie, second) =
            timed(|| prefixes.iter().map(|(p, v)| (A::net(*p), *v)).collect::<PrefixMap<_, _>>());
        let (bitmap, third) = timed(|| {
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
            assert_eq!((found, self.in_bitmap(*addr)), (want, want), "{addr}");
        }
    }

    /// Millions of look-ups a second: scalar, burst, and the two rivals.
    fn pass(&self, addrs: &[A]) -> [f64; 4] {
        let rate = |time: Duration| addrs.len() as f64 / time.as_secs_f64() / 1e6;
        let view = self.reader.view();
        let scalar =
            timed(|| addrs.iter().map(|a| u64::from(self.lpm.lookup(view, *a, NOW))).sum::<u64>());
        let burst = timed(|| {
            let (mut found, mut sum) = ([0; BURST], 0_u64);
            for addrs in addrs.chunks(BURST) {
                self.lpm.lookup_burst(view, addrs, NOW, &mut found);
                sum += found[..addrs.len()].iter().map(|v| u64::from(*v)).sum::<u64>();
            }
            sum
        });
        let trie = timed(|| addrs.iter().map(|a| u64::from(self.in_trie(*a))).sum::<u64>());
        let bitmap = timed(|| addrs.iter().map(|a| u64::from(self.in_bitmap(*a))).sum::<u64>());
        assert_eq!([burst.0, trie.0, bitmap.0], [scalar.0; 3], "the sums differ");
        black_box(scalar.0);
        [rate(scalar.1), rate(burst.1), rate(trie.1), rate(bitmap.1)]
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn family<A: Rivals>(name: &str, size: &Size) {
    let prefixes = table::<A>();
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
    println!("  M/s    scalar   burst   prefix-trie  treebitmap   scalar/trie  burst/trie");
    for (trace, addrs) in traces(&prefixes, size) {
        tables.agree(&addrs[..size.checked.min(addrs.len())]);
        let rounds: Vec<[f64; 4]> = (0..size.rounds).map(|_| tables.pass(&addrs)).collect();
        let [scalar, burst, trie, bitmap] =
            [0, 1, 2, 3].map(|n| median(rounds.iter().map(|r| r[n]).collect()));
        println!(
            "  {trace:5} {scalar:7.1} {burst:7.1} {trie:12.1} {bitmap:11.1} {:12.2}x {:10.2}x",
            scalar / trie,
            burst / trie
        );
    }
    let [inserts, removals] = tables.changes(&prefixes, size.changes);
    for (what, times) in [("insert", inserts), ("remove", removals)] {
        let at = |share: f64| times[(times.len() as f64 * share) as usize].as_nanos() as f64 / 1e3;
        println!(
            "  {what}: median {:.2} us, 99 % {:.2}, 99.9 % {:.2}",
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
    let after = tables.ours.memory();
    println!("  after {} changes: {:.2} MiB", 2 * size.changes, mib(after.lookup_high_water));
}

fn main() {
    let size = if std::env::args().any(|arg| arg == "--bench") { &FULL } else { &SMOKE };
    family::<Ipv4Addr>("IPv4", size);
    family::<Ipv6Addr>("IPv6", size);
}
