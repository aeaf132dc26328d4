//! UDP through two sockets, both ends on one core, beside smoltcp and lwIP.
//!
//! `cargo bench -p floodwall-stack --bench udp`. Rounds of all contestants are interleaved; the
//! table shows medians and ratios. The interfaces of smoltcp and of lwIP, which is a process of its
//! own that `cargo xtask lwip` builds, are bare IP; ours is Ethernet, or bare IP where a row says
//! so. A burst is sent and read through one `Sockets`, and arrives in one round; "singly" has a
//! `Sockets` for each datagram. Every datagram read is compared with what was sent. A word picks
//! rows (`-- Floodwall`), and `--count N` sends N bursts on each and measures nothing: two such
//! runs under an instruction counter differ by N bursts' worth of instructions.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot set itself up has no result")]

mod floodwall_pair;
#[path = "../lwip/child.rs"]
mod lwip;
#[path = "../smoltcp/packets.rs"]
mod smoltcp_packets;
mod smoltcp_pair;

use rustix::time::{ClockId, clock_gettime};

use floodwall_pair::{FloodwallPair, Shape};
use lwip::Lwip;
use smoltcp_pair::SmoltcpPair;

/// Interleaved rounds: many short ones, so that those which another program interrupts do not move
/// the median.
const ROUNDS: usize = 1500;
/// Bursts of one contestant in one round, after a few that bring its memory back into the caches.
const BURSTS: usize = 50;
/// Datagrams sent before the receiver runs.
pub(crate) const BURST: usize = 32;

/// One contestant: sends a burst and reads it at the other end.
pub(crate) trait Pair {
    /// Sends [`BURST`] datagrams and reads them all; returns how many arrived as they were sent.
    fn exchange(&mut self) -> usize;

    /// Nanoseconds of processor time that a datagram takes, in so many bursts.
    fn timed(&mut self, bursts: usize) -> f64 {
        let mut run = |bursts: usize| {
            for _ in 0..bursts {
                assert_eq!(self.exchange(), BURST, "a datagram was lost or changed");
            }
        };
        // Brings its memory back into the caches.
        run(bursts.div_ceil(10));
        let start = own_nanos();
        run(bursts);
        (own_nanos() - start) / (bursts * BURST) as f64
    }
}

impl Pair for Lwip {
    fn exchange(&mut self) -> usize {
        Self::timed(self, 1);
        BURST
    }

    fn timed(&mut self, bursts: usize) -> f64 {
        Self::timed(self, bursts) / BURST as f64
    }
}

/// What this thread has used of a processor, in nanoseconds: other programs do not count.
fn own_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

struct Row {
    name: String,
    pair: Box<dyn Pair>,
    nanos: Vec<f64>,
}

/// Options of the command line.
struct Asked {
    quick: bool,
    count: Option<usize>,
    /// Selects the rows with this in their name.
    rows: String,
}

impl Asked {
    fn of_args() -> Self {
        let (mut args, mut asked) =
            (std::env::args().skip(1), Self { quick: false, count: None, rows: String::new() });
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--test" => asked.quick = true,
                "--bench" => {}
                "--count" => asked.count = args.next().and_then(|n| n.parse().ok()),
                _ => asked.rows = arg,
            }
        }
        asked
    }
}

fn main() {
    let asked = Asked::of_args();
    let rounds = if asked.quick { 3 } else { ROUNDS };
    let mut rows = contestants();
    // As a test and under a counter without lwIP, which can count by itself.
    if !asked.quick && asked.count.is_none() && lwip::is_built() {
        rows.extend(lwip_rows());
    }
    rows.retain(|row| row.name.contains(&asked.rows));
    if let Some(count) = asked.count {
        for row in &mut rows {
            (0..count).for_each(|_| assert_eq!(row.pair.exchange(), BURST));
        }
        return;
    }
    for _ in 0..rounds {
        for row in &mut rows {
            row.nanos.push(row.pair.timed(BURSTS));
        }
    }
    report(&rows);
}

fn contestants() -> Vec<Row> {
    let [v4, v6] = [false, true].map(|v6| Shape { v6, ..Shape::default() });
    let [bare_v4, bare_v6] = [v4, v6].map(|shape| Shape { bare: true, ..shape });
    let [singly_v4, singly_v6] = [bare_v4, bare_v6].map(|shape| Shape { singly: true, ..shape });
    vec![
        row("smoltcp IPv4 64 B", SmoltcpPair::new(64, false)),
        row("smoltcp IPv6 64 B", SmoltcpPair::new(64, true)),
        row("smoltcp IPv4 1472 B", SmoltcpPair::new(1472, false)),
        row("smoltcp IPv6 1452 B", SmoltcpPair::new(1452, true)),
        row("Floodwall IPv4 64 B", FloodwallPair::new(64, v4, 1)),
        row("Floodwall IPv6 64 B", FloodwallPair::new(64, v6, 1)),
        row("Floodwall IPv4 64 B, 1000 sockets", FloodwallPair::new(64, v4, 1000)),
        row("Floodwall IPv6 64 B, 1000 sockets", FloodwallPair::new(64, v6, 1000)),
        row("Floodwall IPv4 1472 B", FloodwallPair::new(1472, v4, 1)),
        row("Floodwall IPv6 1452 B", FloodwallPair::new(1452, v6, 1)),
        row("Floodwall IPv4 64 B, bare IP", FloodwallPair::new(64, bare_v4, 1)),
        row("Floodwall IPv6 64 B, bare IP", FloodwallPair::new(64, bare_v6, 1)),
        row("Floodwall IPv4 1472 B, bare IP", FloodwallPair::new(1472, bare_v4, 1)),
        row("Floodwall IPv6 1452 B, bare IP", FloodwallPair::new(1452, bare_v6, 1)),
        row("Floodwall IPv4 64 B, bare IP, singly", FloodwallPair::new(64, singly_v4, 1)),
        row("Floodwall IPv6 64 B, bare IP, singly", FloodwallPair::new(64, singly_v6, 1)),
        row("Floodwall IPv4 1472 B, bare IP, singly", FloodwallPair::new(1472, singly_v4, 1)),
        row("Floodwall IPv6 1452 B, bare IP, singly", FloodwallPair::new(1452, singly_v6, 1)),
    ]
}

/// lwIP's.
fn lwip_rows() -> Vec<Row> {
    let names = ["IPv4 64 B", "IPv6 64 B", "IPv4 1472 B", "IPv6 1452 B"];
    names.map(|name| row(&format!("lwIP {name}"), Lwip::new(name))).into()
}

fn row(name: &str, pair: impl Pair + 'static) -> Row {
    Row { name: name.to_owned(), pair: Box::new(pair), nanos: Vec::new() }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn report(rows: &[Row]) {
    println!("UDP through two sockets, both ends on one core; medians of interleaved rounds");
    println!("{:40} {:>8} {:>8} {:>12} {:>9}", "", "ns", "M/s", "to smoltcp", "to lwIP");
    let of =
        |name: &str| rows.iter().find(|r| r.name == name).map_or(f64::NAN, |r| median(&r.nanos));
    for row in rows {
        let nanos = median(&row.nanos);
        let sort = row.name.split_once(' ').map_or("", |(_, sort)| sort);
        let sort = sort.split(',').next().unwrap_or_default();
        let [smoltcp, lwip] = ["smoltcp", "lwIP"].map(|peer| of(&format!("{peer} {sort}")) / nanos);
        let rate = 1e3 / nanos;
        println!("{:40} {nanos:8.1} {rate:8.2} {smoltcp:11.2}x {lwip:8.2}x", row.name);
    }
}
