//! A SYN answered, by cache and by cookie, and an unknown ACK refused, compared with the bare
//! floor; the same for every backlog and fill; memory and the cost of a SYN over a long flood.
//!
//! Run: `cargo bench -p floodwall-syncache --bench syn` (`-- --flood`, or `FLOODWALL_DEEP=1`, for
//! 100 million SYNs). The bare floor is one keyed hash over the flow and the record of 64 bytes
//! written at random in a megabyte. Rounds are interleaved and medians taken; the ratios are
//! compared with the targets; absolute nanoseconds are printed beside them. As a test it runs a
//! small share of everything once.
#![expect(clippy::unwrap_used, reason = "a bench stops at the first error")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::Instant as Clock;

use floodwall_base::{HashKey, Randomness, Units};
use floodwall_syncache::contract::{HandshakeClient, at_millis, listening};
use floodwall_syncache::{
    CacheSettings, CookiePolicy, HalfOpen, HandshakeAck, ListenSettings, ListenerId, Secret,
    SynCache,
};
use floodwall_testkit::alloc::{CountingAllocator, counted};

fn main() {
    let (whole, flood) = (
        std::env::args().any(|arg| arg == "--bench"),
        std::env::args().any(|arg| arg == "--flood")
            || std::env::var_os("FLOODWALL_DEEP").is_some_and(|value| value != "0"),
    );
    let (rounds, syns) = if whole { (15, 200_000) } else { (1, 2_000) };
    let clients: Vec<_> = (0..syns).map(|n| HandshakeClient::nth(n, n % 2 == 0)).collect();
    speeds(&clients, rounds);
    backlogs(&clients, rounds);
    memory(if flood { 100_000_000 } else { u64::from(syns) * 10 });
}

fn cache(settings: CacheSettings, listen: ListenSettings) -> (SynCache, ListenerId) {
    let mut random = Randomness::from_number(3).secret;
    let secret = Secret::random(&mut random);
    let mut it = SynCache::new(settings, secret, &mut random, at_millis(0));
    let listener = it.listen(listen).unwrap();
    (it, listener)
}

/// Nanoseconds for each client.
fn each(clients: &[HandshakeClient], mut act: impl FnMut(&HandshakeClient)) -> f64 {
    let before = Clock::now();
    clients.iter().for_each(&mut act);
    before.elapsed().as_nanos() as f64 / clients.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The bare floor: a hash and a record.
struct Bare {
    key: HashKey,
    records: Vec<[u64; 8]>,
}

impl Bare {
    fn syn(&mut self, client: &HandshakeClient) {
        let (ours, theirs) = (client.flow.local, client.flow.remote);
        let (a, b) = (ours.addr.to_bits(), theirs.addr.to_bits());
        let ports = u64::from(ours.port) << 16 | u64::from(theirs.port);
        let words = [a as u64, (a >> 64) as u64, b as u64, (b >> 64) as u64, ports];
        let hash = self.key.words(&words);
        let at = hash as usize % self.records.len();
        let [w, x, y, z, p] = words;
        self.records[at] = [w, x, y, z, p, u64::from(client.irs.0), hash, 7];
    }
}

fn speeds(clients: &[HandshakeClient], rounds: usize) {
    let mut bare = Bare { key: HashKey::new(1, 2), records: vec![[0; 8]; 16_384] };
    let never = ListenSettings { cookies: CookiePolicy::Never, ..listening(1024) };
    let always = ListenSettings { cookies: CookiePolicy::Always, ..listening(1024) };
    let all = CacheSettings { prefix_entries: usize::MAX, ..CacheSettings::default() };
    let (mut cached, at_cached) = cache(all, never);
    let (mut cookies, at_cookies) = cache(all, always);
    let (mut shut, at_shut) = cache(all, listening(1024));
    let mut times = [const { Vec::new() }; 5];
    let now = at_millis(60_000);
    for _ in 0..rounds {
        let nanos = [
            each(clients, |client| bare.syn(black_box(client))),
            each(clients, |client| {
                black_box(cached.syn(at_cached, &client.syn(), now));
            }),
            each(clients, |client| {
                black_box(cookies.syn(at_cookies, &client.syn(), now));
            }),
            each(clients, |client| {
                black_box(cookies.syn(at_cookies, &client.timeless().syn(), now));
            }),
            each(clients, |client| {
                let ack = HandshakeAck {
                    flow: client.flow,
                    seq: client.irs,
                    ack: client.irs,
                    timestamp: None,
                };
                black_box(shut.ack(at_shut, &ack, now));
            }),
        ];
        times.iter_mut().zip(nanos).for_each(|(all, one)| all.push(one));
    }
    let names = ["bare", "cached", "cookie", "cookie, no timestamps", "unknown ACK, gate shut"];
    let floor = median(times[0].clone());
    for (name, times) in names.iter().zip(times) {
        let it = median(times);
        println!("{name:<24} {it:>7.1} ns  {:>5.2} x bare", it / floor);
    }
    black_box(&bare.records);
}

fn backlogs(clients: &[HandshakeClient], rounds: usize) {
    println!("\na SYN by cache: backlog, fill before it (cookies never, so that all are cached)");
    let never = |backlog| ListenSettings { cookies: CookiePolicy::Never, ..listening(backlog) };
    let all = CacheSettings { prefix_entries: usize::MAX, ..CacheSettings::default() };
    let cases: Vec<_> = [128, 1024, 65_536]
        .into_iter()
        .flat_map(|backlog| [0, 25, 50, 75, 100].map(|fill| (backlog, fill)))
        .collect();
    let mut times = vec![Vec::new(); cases.len()];
    // Background load of the machine affects all variants equally.
    for round in 0..rounds * 5 {
        for ((backlog, fill), times) in cases.iter().zip(&mut times) {
            let (mut it, listener) = cache(all, never(*backlog));
            times.push(filled(&mut it, listener, *fill, clients, round));
        }
    }
    let medians: Vec<_> = times.into_iter().map(median).collect();
    for ((backlog, fill), median) in cases.iter().zip(&medians) {
        println!("{backlog:>6} {fill:>4} % {median:>7.1} ns");
    }
    let most = medians.iter().copied().fold(0.0, f64::max);
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let kept = if most / least <= 1.3 { "kept" } else { "MISSED" };
    println!("most to least: {:.2} (at most 1.3: {kept})", most / least);
}

/// Nanoseconds per SYN, with the cache filled to a given percentage and a given number of SYNs
/// seen before.
fn filled(
    it: &mut SynCache,
    listener: ListenerId,
    fill: u32,
    clients: &[HandshakeClient],
    round: usize,
) -> f64 {
    let (now, some) = (at_millis(60_000), 1000.min(clients.len()));
    let from = round * some % clients.len();
    let part = &clients[from..(from + some).min(clients.len())];
    let once = |it: &mut SynCache| {
        for n in 0..15_359 * fill / 100 {
            let other = HandshakeClient::nth(1 << 24 | n, n % 2 == 0);
            let _ = it.syn(listener, &other.syn(), now);
        }
        let nanos = each(part, |client| {
            black_box(it.syn(listener, &client.syn(), now));
        });
        for client in part {
            it.reset(&client.flow, client.irs + 1, now);
        }
        nanos
    };
    once(it);
    once(it)
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Number of slices of a flood that are compared by cost. A slice of a long flood is short, so
/// that the median comes from slices that ran without preemption.
const PARTS: u64 = 10_000;

fn memory(syns: u64) {
    let (mut it, listener) = cache(CacheSettings::default(), listening(1024));
    let (resident, mut parts) = (resident(), Vec::with_capacity(PARTS as usize));
    let (count, ()) = counted(|| {
        for part in 0..PARTS {
            let of_part = syns * part / PARTS..syns * (part + 1) / PARTS;
            let (before, many) = (Clock::now(), of_part.end - of_part.start);
            flood(&mut it, listener, of_part);
            parts.push(before.elapsed().as_nanos() as f64 / many as f64);
        }
    });
    let taken = count.allocations;
    println!("\n{syns} SYNs: {taken} allocations, {} bytes in total", it.memory());
    println!("resident before and after: {resident} and {} KiB", self::resident());
    // The first tenth fills the cache and warms up.
    let tenth = |n: usize| median(parts[n * parts.len() / 10..][..parts.len() / 10].to_vec());
    let (early, late) = (tenth(1), tenth(9));
    println!("a SYN of the second tenth {early:.1} ns, of the last {late:.1}: {:.2}", late / early);
    assert_eq!(taken, 0, "no memory is taken after the start");
}

/// Resident memory of this process, in KiB; 0 where the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn flood(it: &mut SynCache, listener: ListenerId, syns: core::ops::Range<u64>) {
    for n in syns {
        let now = at_millis(60_000 + n / 1000);
        let client = HandshakeClient::nth((n as u32).wrapping_mul(2_654_435_769) >> 2, n % 2 == 0);
        black_box(it.syn(listener, &client.syn(), now));
        if n % 64 == 0 {
            it.work(now, Units(64), &mut |again| {
                black_box(again);
            });
        }
    }
}
