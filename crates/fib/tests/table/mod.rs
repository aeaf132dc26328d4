//! The Internet's table as routes, for the tests that load it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;

use floodwall_base::{Address, IfIndex, Prefix};
use floodwall_fib::Route;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/bgp/prefixes.txt.gz");

/// Whether tests may last: `FLOODWALL_DEEP=1`.
pub(crate) fn is_deep() -> bool {
    std::env::var_os("FLOODWALL_DEEP").is_some_and(|value| value != "0")
}

/// The routes of one family, of every so many lines one.
pub(crate) fn routes<A: Address>(every: usize) -> Vec<Route<A>> {
    let lines = BufReader::new(flate2::read::GzDecoder::new(File::open(TABLE).unwrap())).lines();
    let mut found = Vec::new();
    for (n, line) in lines.step_by(every).enumerate() {
        let line = line.unwrap();
        let Some((addr, len)) = line.trim().split_once('/') else { continue };
        let Some(addr) = A::from_ip(addr.parse::<IpAddr>().unwrap()) else { continue };
        let prefix = Prefix::new(addr, len.parse().unwrap()).unwrap();
        let way = n % 251 + 1;
        let gateway = A::from_bits_aligned((way as u128) << 97);
        found.push(Route::via(prefix, IfIndex((way % 60) as u16 + 1), gateway));
    }
    found
}
