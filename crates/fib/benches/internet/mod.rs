//! What the benches of this crate share: the Internet's prefixes, random numbers, clocks.
//!
//! Prefixes are those of `data/bgp`, each with one of 255 ways by a hash of itself.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use floodwall_base::{Address, Prefix};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/bgp/prefixes.txt.gz");

/// Addresses of a burst.
pub(crate) const BURST: usize = 64;

/// A small generator: a bench repeats.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn bits(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    /// A random address within a prefix.
    pub(crate) fn within<A: Address>(&mut self, prefix: Prefix<A>) -> A {
        let host = self.bits().checked_shr(u32::from(prefix.len())).unwrap_or(0);
        A::from_bits_aligned(prefix.addr().to_bits_aligned() | host)
    }
}

/// The prefixes of one family, of every so many lines one, each with its way.
pub(crate) fn prefixes<A: Address>(every: usize) -> Vec<(Prefix<A>, u32)> {
    let lines = BufReader::new(flate2::read::GzDecoder::new(File::open(TABLE).unwrap())).lines();
    let mut found = Vec::new();
    for line in lines.step_by(every) {
        let line = line.unwrap();
        let Some((addr, len)) = line.trim().split_once('/') else { continue };
        let Some(addr) = A::from_ip(addr.parse::<IpAddr>().unwrap()) else { continue };
        let prefix = Prefix::new(addr, len.parse().unwrap()).unwrap();
        let seed = (prefix.addr().to_bits_aligned() >> 64) as u64 ^ u64::from(prefix.len());
        found.push((prefix, (Random(seed).next() % 255) as u32 + 1));
    }
    found
}

/// By the wall.
pub(crate) fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let made = what();
    (made, begin.elapsed())
}

/// What the calling thread has had of a processor so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// As [`timed`], but only while this thread had a processor: for what takes milliseconds.
pub(crate) fn worked<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let begin = processor_time();
    let made = what();
    (made, processor_time() - begin)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Of sorted times, the one that a share of them does not exceed, in microseconds.
pub(crate) fn share(times: &[Duration], share: f64) -> f64 {
    times[(times.len() as f64 * share) as usize].as_nanos() as f64 / 1e3
}
