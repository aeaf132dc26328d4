//! TCP through two sockets, both ends on one core, beside smoltcp and lwIP in the same run.
//!
//! `cargo bench -p floodwall-stack --bench tcp`. Only rounds of contestants that are compared are
//! interleaved, so that no other's memory is in the caches; the table shows medians, ratios and the
//! bars. lwIP is a process of its own, built by `cargo xtask lwip`, and left out where it is not.
//! All have the same MTU, buffers and policy of checksums, no Nagle, and a wire that only
//! moves packets; each byte read is compared with what was sent. An argument selects rows (`--
//! bulk`; a full stop ends each name, so that `-- ping-pong.` is one of three); `--count N` does N
//! of each and measures nothing: two such runs under an instruction counter differ by N times the
//! cost of one. As a test a small share runs once.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot set itself up has no result")]
#![expect(clippy::indexing_slicing, reason = "two ends, and buffers of their own size")]

mod floodwall_net;
mod load;
#[path = "../lwip/child.rs"]
mod lwip;
mod net;
mod smoltcp_net;
#[path = "../smoltcp/packets.rs"]
mod smoltcp_packets;

use floodwall_net::FloodwallNet;
use load::{Bulk, Churn, Load, PingPong};
use lwip::Lwip;
use net::{Net, Shape};
use smoltcp_net::SmoltcpNet;

/// Simulated nanoseconds of one way over the wire.
pub(crate) const TURN: u64 = 500;
/// Interleaved rounds.
const ROUNDS: usize = 300;
/// About so many nanoseconds a contestant has in a round.
const SHARE: f64 = 1e6;

/// lwIP's rows.
const LWIP_ROWS: [&str; 6] = [
    "bulk",
    "ping-pong",
    "ping-pong over 64",
    "ping-pong over many",
    "connections",
    "connections, 64 at once",
];

/// How large the rows are: as a test, small.
#[derive(Clone, Copy)]
struct Size {
    many: usize,
    idle: usize,
    /// Whether lwIP is beside.
    lwip: bool,
}

/// What a row is measured against.
enum Bar {
    /// So many times the speed of smoltcp's row of the same name.
    Smoltcp(f64),
    /// So many times our own speed in this row.
    Own(f64, String),
}

impl Bar {
    /// The name of the row that this one's rounds are among, if it is one of Floodwall's. What only
    /// smoltcp's own is compared with is measured apart.
    fn group(&self, stack: &str, name: &str) -> String {
        match self {
            Self::Own(_, own) if stack != "smoltcp" => own.clone(),
            Self::Own(..) => format!("{stack} {name}"),
            Self::Smoltcp(_) => name.to_owned(),
        }
    }
}

struct Row {
    stack: &'static str,
    name: String,
    /// What one of those is that it does, in bytes; nothing where they are exchanges.
    bytes: usize,
    bar: Bar,
    /// How many in a round.
    count: usize,
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
            (std::env::args().skip(1), Self { quick: true, count: None, rows: String::new() });
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--test" => asked.quick = true,
                "--bench" => asked.quick = false,
                "--count" => asked.count = args.next().and_then(|n| n.parse().ok()),
                _ => asked.rows = arg,
            }
        }
        asked
    }
}

/// Builds a contestant, only if its row was selected.
type Maker = Box<dyn FnOnce() -> Box<dyn Load>>;

fn main() {
    let asked = Asked::of_args();
    let size = if asked.quick {
        Size { many: 64, idle: 200, lwip: false }
    } else {
        Size { many: 10_000, idle: 100_000, lwip: asked.count.is_none() && lwip::is_built() }
    };
    let mut groups: Vec<(String, Vec<Contestant>)> = Vec::new();
    for contestant in contestants(size) {
        let (stack, name, _, bar, _) = &contestant;
        if format!("{stack} {name}.").contains(&asked.rows) {
            let group = bar.group(stack, name);
            match groups.iter_mut().find(|(of, _)| *of == group) {
                Some((_, all)) => all.push(contestant),
                None => groups.push((group, vec![contestant])),
            }
        }
    }
    let rows: Vec<Row> = groups.into_iter().flat_map(|(_, all)| run_group(all, &asked)).collect();
    if asked.count.is_none() {
        report(&rows);
    }
}

/// Makes contestants and has them do their rounds in turns.
fn run_group(all: Vec<Contestant>, asked: &Asked) -> Vec<Row> {
    let mut loads: Vec<(Row, Box<dyn Load>)> = all
        .into_iter()
        .map(|(stack, name, bytes, bar, make)| {
            (Row { stack, name, bytes, bar, count: 1, nanos: Vec::new() }, make())
        })
        .collect();
    if let Some(count) = asked.count {
        loads.iter_mut().for_each(|(_, load)| load.run(count));
        return Vec::new();
    }
    if !asked.quick {
        loads.iter_mut().for_each(|(row, load)| calibrate(row, &mut **load));
    }
    for _ in 0..if asked.quick { 2 } else { ROUNDS } {
        for (row, load) in &mut loads {
            let nanos = load.timed(row.count);
            row.nanos.push(nanos);
        }
    }
    loads.into_iter().map(|(row, _)| row).collect()
}

type Contestant = (&'static str, String, usize, Bar, Maker);

fn contestants(size: Size) -> Vec<Contestant> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        of::<SmoltcpNet>(&mut all, "smoltcp", v6, size);
        if size.lwip {
            of_lwip(&mut all, v6);
        }
        of::<FloodwallNet>(&mut all, "Floodwall", v6, size);
    }
    all
}

fn of<N: Net + 'static>(all: &mut Vec<Contestant>, stack: &'static str, v6: bool, size: Size)
where
    N::Conn: 'static,
{
    let (family, plain) = (if v6 { "IPv6" } else { "IPv4" }, Shape::plain(v6));
    let mut add = |name: &str, bytes, bar, make: Maker| {
        all.push((stack, format!("{family} {name}"), bytes, bar, make));
    };
    let bulk = |shape| -> Maker { Box::new(move || Box::new(Bulk::<N>::new(shape))) };
    let pings = |connections, buffer| -> Maker {
        let shape = Shape { connections, buffer, ..plain };
        Box::new(move || Box::new(PingPong::<N>::new(shape)))
    };
    let churn = |at_once, idle| -> Maker {
        let shape = Shape { buffer: 4096, ..plain };
        Box::new(move || Box::new(Churn::<N>::new(shape, at_once, idle)))
    };
    let piece = 65_536;
    add("bulk", piece, Bar::Smoltcp(1.5), bulk(plain));
    let shape = Shape { sums: false, ..plain };
    add("bulk, no checksums", piece, Bar::Smoltcp(1.5), bulk(shape));
    let shape = Shape { mtu: 65_535, ..plain };
    add("bulk, MTU 65535", piece, Bar::Smoltcp(1.5), bulk(shape));
    let shape = Shape { connections: 64, buffer: 65_536, ..plain };
    add("bulk, 64 streams", piece, Bar::Smoltcp(2.0), bulk(shape));
    add("ping-pong", 0, Bar::Smoltcp(1.0), pings(1, Shape::BUFFER));
    let one = || format!("{family} ping-pong");
    add("ping-pong over 64", 0, Bar::Own(1.0 / 1.2, one()), pings(64, 4096));
    add("ping-pong over many", 0, Bar::Own(1.0 / 1.2, one()), pings(size.many, 4096));
    add("connections", 0, Bar::Smoltcp(2.0), churn(1, 0));
    add("connections, 64 at once", 0, Bar::Smoltcp(2.0), churn(64, 0));
    if stack == "Floodwall" {
        let one = format!("{family} connections");
        add("connections amid idle ones", 0, Bar::Own(0.8, one), churn(1, size.idle));
    }
}

/// lwIP's.
fn of_lwip(all: &mut Vec<Contestant>, v6: bool) {
    let family = if v6 { "IPv6" } else { "IPv4" };
    for name in LWIP_ROWS {
        let row = format!("{family} {name}");
        let bar = match name.starts_with("ping-pong over") {
            true => Bar::Own(1.0, format!("{family} ping-pong")),
            false => Bar::Smoltcp(1.0),
        };
        let bytes = if name == "bulk" { 65_536 } else { 0 };
        let make: Maker = {
            let row = row.clone();
            Box::new(move || Box::new(Lwip::new(&row)))
        };
        all.push(("lwIP", row, bytes, bar, make));
    }
}

/// How many make a share of a round.
fn calibrate(row: &mut Row, load: &mut dyn Load) {
    load.run(64);
    let each = load.timed(64);
    let count = (SHARE / each) as usize;
    // Where 64 are done at once, whole ones.
    row.count = if count < 64 { count.max(1) } else { count.next_multiple_of(64) };
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn report(rows: &[Row]) {
    println!("TCP through two sockets, both ends on one core; medians of interleaved rounds");
    println!(
        "a connection, buffers apart: Floodwall {} B, smoltcp {} B; at most 1024, aim 512",
        floodwall_net::connection_bytes(),
        smoltcp_net::connection_bytes()
    );
    println!(
        "{:44} {:>10} {:>10} {:>8}  {:26} {:>8}",
        "", "us", "Gbit/s", "ratio", "bar", "of lwIP"
    );
    let of = |stack: &str, name: &str| {
        let row = rows.iter().find(|row| row.stack == stack && row.name == name);
        row.map_or(f64::NAN, |row| median(&row.nanos))
    };
    for row in rows {
        let nanos = median(&row.nanos);
        let (base, bar, of_what) = match &row.bar {
            Bar::Smoltcp(bar) => (of("smoltcp", &row.name), bar, "smoltcp's rate"),
            Bar::Own(bar, name) => (of(row.stack, name), bar, "its own of one"),
        };
        let gbits = match row.bytes {
            0 => String::new(),
            bytes => format!("{:.1}", 8.0 * bytes as f64 / nanos),
        };
        let (name, ratio) = (format!("{} {}", row.stack, row.name), base / nanos);
        let says =
            if row.stack == "Floodwall" { format!("{bar:.2} of {of_what}") } else { String::new() };
        let lwip = match of("lwIP", &row.name) / nanos {
            ratio if row.stack == "Floodwall" && ratio.is_finite() => format!("{ratio:7.2}x"),
            _ => String::new(),
        };
        println!("{name:44} {:10.3} {gbits:>10} {ratio:7.2}x  {says:26} {lwip}", nanos / 1e3);
    }
}
