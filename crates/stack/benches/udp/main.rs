//! UDP through two sockets, both ends on one core, beside smoltcp in the same run.
//!
//! `cargo bench -p floodwall-stack --bench udp`. Rounds of all contestants are interleaved; the
//! table shows medians and ratios. Every datagram read is compared with what was sent.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot set itself up has no result")]

mod floodwall_pair;
mod smoltcp_pair;

use std::time::{Duration, Instant};

use floodwall_pair::FloodwallPair;
use smoltcp_pair::SmoltcpPair;

/// Interleaved rounds.
const ROUNDS: usize = 9;
/// How long one contestant runs in one round.
const SLICE: Duration = Duration::from_millis(120);
/// Datagrams sent before the receiver runs.
pub(crate) const BURST: usize = 32;

/// One contestant: sends a burst and reads it at the other end.
pub(crate) trait Pair {
    /// Sends [`BURST`] datagrams and reads them all; returns how many arrived as they were sent.
    fn exchange(&mut self) -> usize;
}

struct Row {
    name: String,
    pair: Box<dyn Pair>,
    nanos: Vec<f64>,
}

fn main() {
    let quick = std::env::args().any(|a| a == "--test");
    let (rounds, slice) = if quick { (1, Duration::from_millis(5)) } else { (ROUNDS, SLICE) };
    let mut rows = vec![
        row("smoltcp IPv4 64 B", SmoltcpPair::new(64, false)),
        row("smoltcp IPv6 64 B", SmoltcpPair::new(64, true)),
        row("smoltcp IPv4 1472 B", SmoltcpPair::new(1472, false)),
        row("Floodwall IPv4 64 B", FloodwallPair::new(64, false, 1)),
        row("Floodwall IPv6 64 B", FloodwallPair::new(64, true, 1)),
        row("Floodwall IPv4 64 B, 1000 sockets", FloodwallPair::new(64, false, 1000)),
        row("Floodwall IPv6 64 B, 1000 sockets", FloodwallPair::new(64, true, 1000)),
        row("Floodwall IPv4 1472 B", FloodwallPair::new(1472, false, 1)),
    ];
    for _ in 0..rounds {
        for row in &mut rows {
            row.nanos.push(measure(row.pair.as_mut(), slice));
        }
    }
    report(&rows);
}

fn row(name: &str, pair: impl Pair + 'static) -> Row {
    Row { name: name.to_owned(), pair: Box::new(pair), nanos: Vec::new() }
}

/// Nanoseconds a datagram, end to end.
fn measure(pair: &mut dyn Pair, slice: Duration) -> f64 {
    for _ in 0..100 {
        assert_eq!(pair.exchange(), BURST, "a datagram was lost or changed");
    }
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < slice {
        for _ in 0..100 {
            let arrived = pair.exchange();
            assert_eq!(arrived, BURST, "a datagram was lost or changed");
            count += arrived;
        }
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn report(rows: &[Row]) {
    println!("UDP through two sockets, both ends on one core; medians of interleaved rounds");
    println!("{:36} {:>8} {:>8} {:>12}", "", "ns", "M/s", "to smoltcp");
    let of = |name: &str| rows.iter().find(|r| r.name == name).map(|r| median(&r.nanos)).unwrap();
    for row in rows {
        let nanos = median(&row.nanos);
        let rival = match (row.name.contains("IPv6"), row.name.contains("1472")) {
            (_, true) => of("smoltcp IPv4 1472 B"),
            (true, _) => of("smoltcp IPv6 64 B"),
            (false, _) => of("smoltcp IPv4 64 B"),
        };
        let (rate, ratio) = (1e3 / nanos, rival / nanos);
        println!("{:36} {nanos:8.1} {rate:8.2} {ratio:11.2}x", row.name);
    }
}
