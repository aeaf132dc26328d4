//! What was measured as tables in the source's form, as numbers for claims, and as a picture.
//!
//! Names of numbers: `<row>/…` for rows, `capture:<name>/…` for captures, `probe/…` for Table 1.

use floodwall_wire::IpProtocol;

use crate::baselines::chain::Costs;
use crate::measure::{Measured, Metrics};
use crate::plot::{self, Axes, Plot, Series};
use crate::table::Table;

use super::Setting;
use super::access::Accessor;
use super::probe::Habits;
use super::row::Measurement;

/// Name, the published row it stands beside, and what was measured.
type RowOf = (String, String, Measurement);
/// Name and what was measured.
type CaptureOf = (String, Measurement);

const PROTOCOLS: [(IpProtocol, &str); 3] =
    [(IpProtocol::TCP, "tcp"), (IpProtocol::UDP, "udp"), (IpProtocol::ICMPV6, "icmpv6")];

/// A capture's name without folder and ending.
pub(super) fn stem(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.split('.').next().unwrap_or(file).to_owned()
}

/// Everything for the frame.
pub(super) fn measured(
    setting: &Setting,
    habits: &[(Accessor, Habits)],
    rows: &[RowOf],
    captures: &[CaptureOf],
) -> Measured {
    let mut metrics = Metrics::default();
    probe_numbers(&mut metrics, habits);
    for (name, _, row) in rows {
        row_numbers(&mut metrics, name, row);
        own_numbers(&mut metrics, name, row);
    }
    for (name, row) in captures {
        own_numbers(&mut metrics, &format!("capture:{name}"), row);
    }
    let tables = vec![
        table_1(setting, habits),
        table_2(setting, rows),
        per_packet(rows),
        table_3(rows),
        own_copies(rows),
        by_protocol(rows),
        lengths(rows, captures),
    ];
    let plots = vec![("header-lengths.svg".to_owned(), picture(setting, rows, captures))];
    Measured { metrics, tables, plots }
}

fn probe_numbers(metrics: &mut Metrics, habits: &[(Accessor, Habits)]) {
    for (accessor, habits) in habits {
        let name = |what: &str| format!("probe/{}/{what}", accessor.name());
        // No limit but the packet's own is told apart by the numbers `…-limited`.
        for (what, max) in [("total", habits.total_max), ("single", habits.single_max)] {
            metrics.set(name(&format!("{what}-limited")), f64::from(u8::from(max.is_some())));
            if let Some(max) = max {
                metrics.set(name(&format!("{what}-max")), max as f64);
            }
        }
        metrics.set(name("spares-outer"), f64::from(u8::from(habits.spares_outer)));
        metrics.set(name("keeps-pointers"), f64::from(u8::from(habits.keeps_pointers)));
    }
}

fn per(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn row_numbers(metrics: &mut Metrics, name: &str, row: &Measurement) {
    let mut set = |what: &str, value: f64| metrics.set(format!("{name}/{what}"), value);
    set("packets", row.packets as f64);
    set("checks-per-packet", per(row.pulldown.checks, row.inputs));
    let counted = [
        ("calls", row.pulldown.calls),
        ("pulldown-copies", row.pulldown.copies),
        ("pulldown-allocations", row.pulldown.allocations),
        ("pullup-copies", row.pullup.copies),
        ("pullup-failures", row.pullup.failures),
        ("pullup2-copies", row.pullup2.copies),
        ("pullup2-failures", row.pullup2.failures),
    ];
    for (what, count) in counted {
        set(&format!("counted/{what}"), count as f64);
        set(&format!("counted/{what}-per-packet"), per(count, row.packets));
    }
    for (protocol, short) in PROTOCOLS {
        let count = row.of(protocol);
        if count.packets > 0 {
            set(&format!("{short}/calls-per-packet"), per(count.calls, count.packets));
            set(&format!("{short}/checks-per-packet"), per(count.checks, count.packets));
            set(&format!("{short}/checks-min"), count.checks_min as f64);
        }
    }
    let calls = |protocol| {
        Some(row.of(protocol)).filter(|c| c.packets > 0).map(|c| per(c.calls, c.packets))
    };
    let [tcp, udp, icmpv6] = PROTOCOLS.map(|(protocol, _)| calls(protocol));
    if let (Some(tcp), Some(udp), Some(icmpv6)) = (tcp, udp, icmpv6) {
        set("icmpv6/calls-lead", icmpv6 - tcp.max(udp));
    }
}

fn own_numbers(metrics: &mut Metrics, name: &str, row: &Measurement) {
    for (accessor, own) in &row.own {
        let mut set = |what: &str, value: u64| {
            metrics.set(format!("{name}/{accessor}/{what}"), value as f64);
        };
        set("calls", own.costs.calls);
        set("allocations", own.costs.allocations);
        set("copies", own.costs.copies);
        set("copied-bytes", own.costs.copied_bytes);
        set("lost", own.lost);
        set("wrong-answers", own.wrong);
        set("copies-of-one-header", own.copies_of_one);
        set("copies-of-contiguous", own.copies_of_contiguous);
        set("bytes-beyond-header", own.bytes_beyond);
        set("kept-beyond-limit", own.kept_beyond_limit);
        set("lost-within-limit", own.lost_within_limit);
    }
}

fn table_1(setting: &Setting, habits: &[(Accessor, Habits)]) -> Table {
    let mut columns = vec!["assumption"];
    columns.extend(habits.iter().map(|(accessor, _)| accessor.title()));
    let mut table = Table::new("Table 1: assumptions, found by probing", &columns);
    let limit = |max: Option<usize>| max.map_or("-".to_owned(), |max| max.to_string());
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let mut row = |name: &str, cell: &dyn Fn(&Habits) -> String| {
        let cells = habits.iter().map(|(_, habits)| cell(habits));
        table.row(core::iter::once(name.to_owned()).chain(cells));
    };
    row("total header length", &|h| limit(h.total_max));
    row("single header length", &|h| limit(h.single_max));
    row("avoids copy on intermediate headers", &|h| yes(h.spares_outer));
    row("avoids pointer reinitialization", &|h| yes(h.keeps_pointers));
    table.note = format!(
        "\"-\": no limit of its own; the scratch is the caller's, here {} bytes",
        setting.scratch
    );
    table
}

/// A row's name with the published row it stands beside.
fn title(name: &str, published: &str) -> String {
    if published.is_empty() { name.to_owned() } else { format!("({published}) {name}") }
}

fn table_2(setting: &Setting, rows: &[RowOf]) -> Table {
    let columns = [
        "test",
        "len checks",
        "pulldown call",
        "alloc",
        "copy",
        "pullup alloc",
        "copy",
        "fail",
        "pullup2 alloc",
        "copy",
    ];
    let mut table =
        Table::new("Table 2: allocations and copies, counted as the source counted", &columns);
    for (name, published, row) in rows {
        let (down, up, up2) = (row.pulldown, row.pullup, row.pullup2);
        let numbers = [
            down.checks,
            down.calls,
            down.allocations,
            down.copies,
            up.allocations,
            up.copies,
            up.failures,
            up2.allocations,
            up2.copies,
        ];
        let cells = numbers.iter().map(u64::to_string);
        table.row(core::iter::once(title(name, published)).chain(cells));
    }
    table.note = format!(
        "all three simulated on the chain that m_pulldown leaves; m_pullup fails beyond {} bytes",
        setting.counted.header
    );
    table
}

fn per_packet(rows: &[RowOf]) -> Table {
    let columns =
        ["test", "len checks", "pulldown call", "copy", "pullup copy", "fail", "pullup2 copy"];
    let mut table = Table::new("Table 2 per packet: the same, divided by the packets", &columns);
    for (name, published, row) in rows {
        let (down, up, up2) = (row.pulldown, row.pullup, row.pullup2);
        let numbers = [down.checks, down.calls, down.copies, up.copies, up.failures, up2.copies];
        let cells = numbers.iter().map(|number| format!("{:.4}", per(*number, row.packets)));
        table.row(core::iter::once(title(name, published)).chain(cells));
    }
    table
}

fn table_3(rows: &[RowOf]) -> Table {
    let columns =
        ["test", "IPv6 input", "TCP", "UDP", "ICMPv6", "1 mbuf", "2 mbufs", "ext mbuf(s)"];
    let mut table = Table::new("Table 3: traffic characteristics", &columns);
    for (name, published, row) in rows {
        let mut numbers = vec![row.inputs];
        numbers.extend(PROTOCOLS.map(|(protocol, _)| row.of(protocol).packets));
        numbers.extend(row.layouts);
        let cells = numbers.iter().map(u64::to_string);
        table.row(core::iter::once(title(name, published)).chain(cells));
    }
    table.note = "a packet that a routing header sends back to this host is input once more; \
                  protocols by what was found behind all headers"
        .to_owned();
    table
}

fn own_copies(rows: &[RowOf]) -> Table {
    let columns = ["test, accessor", "call", "alloc", "copy", "bytes copied", "per packet", "lost"];
    let mut table = Table::new("Own copies: each accessor really run on its own copy", &columns);
    for (name, published, row) in rows {
        for accessor in Accessor::ALL {
            let Some(own) = row.own.get(accessor.name()) else { continue };
            let Costs { calls, allocations, copies, copied_bytes, .. } = own.costs;
            table.row([
                format!("{} {}", title(name, published), accessor.title()),
                calls.to_string(),
                allocations.to_string(),
                copies.to_string(),
                copied_bytes.to_string(),
                format!("{:.3}", per(copied_bytes, row.packets)),
                own.lost.to_string(),
            ]);
        }
    }
    table.note = "lost: packets that the flat walk reads to the end and this accessor did not; a \
                  lost packet costs no more"
        .to_owned();
    table
}

fn by_protocol(rows: &[RowOf]) -> Table {
    let columns = [
        "test",
        "TCP checks",
        "calls",
        "calls/packet",
        "UDP checks",
        "calls",
        "calls/packet",
        "ICMPv6 checks",
        "calls",
        "calls/packet",
    ];
    let mut table = Table::new("By protocol: length checks and calls of m_pulldown", &columns);
    for (name, published, row) in rows {
        let mut cells = vec![title(name, published)];
        for (protocol, _) in PROTOCOLS {
            let count = row.of(protocol);
            let each = format!("{:.4}", per(count.calls, count.packets));
            cells.extend([count.checks.to_string(), count.calls.to_string(), each]);
        }
        table.row(cells);
    }
    table
}

/// Of sorted lengths: mean, and the value that `percent` of them do not exceed.
fn at_percent(sorted: &[usize], percent: usize) -> usize {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

fn lengths(rows: &[RowOf], captures: &[CaptureOf]) -> Table {
    let columns =
        ["traffic", "packets", "read", "mean", "median", "90 %", "99 %", "longest", "over 100"];
    let mut table = Table::new("Header lengths: bytes of all headers of a packet", &columns);
    let named = rows.iter().map(|(name, _, row)| (name.as_str(), row));
    for (name, row) in named.chain(captures.iter().map(|(name, row)| (name.as_str(), row))) {
        let sorted = row.header_bytes.as_slice();
        let over = sorted.iter().filter(|bytes| **bytes > 100).count();
        let mean = per(sorted.iter().sum::<usize>() as u64, sorted.len() as u64);
        let mut cells = vec![name.to_owned(), row.packets.to_string(), sorted.len().to_string()];
        cells.push(format!("{mean:.1}"));
        cells.extend([50, 90, 99, 100].map(|percent| at_percent(sorted, percent).to_string()));
        cells.push(format!("{:.1} %", 100.0 * per(over as u64, sorted.len() as u64)));
        table.row(cells);
    }
    table.note = "from the IP header to the end of the last header that input reads, options of \
                  TCP and of neighbour discovery included; the source leaves this open"
        .to_owned();
    table
}

/// The longest header portion that the picture shows.
const PICTURE_BYTES: usize = 200;

fn picture(setting: &Setting, rows: &[RowOf], captures: &[CaptureOf]) -> Plot {
    let named = rows.iter().map(|(name, _, row)| (name.as_str(), row));
    let all = named.chain(captures.iter().map(|(name, row)| (name.as_str(), row)));
    // A line of one step shows less than the table does.
    let drawn = all.filter(|(_, row)| row.header_bytes.first() != row.header_bytes.last());
    let series: Vec<_> = drawn.map(|(name, row)| cumulative(name, &row.header_bytes)).collect();
    let limit = setting.sizes.header;
    let axes = Axes {
        title: "How long all headers of a packet are",
        x: "bytes from the IP header to the end of the last header read",
        y: "packets not longer, %",
        x_max: PICTURE_BYTES as f64,
        y_max: 100.0,
        marks: &[(limit as f64, "m_pullup's limit")],
    };
    plot::lines(&axes, &series)
}

/// Steps of the share of packets with headers not longer than so many bytes.
fn cumulative(name: &str, sorted: &[usize]) -> Series {
    let share = |count: usize| 100.0 * per(count as u64, sorted.len() as u64);
    let (mut points, mut before) = (vec![(0.0, 0.0)], 0.0);
    for bytes in 0..=PICTURE_BYTES {
        let now = share(sorted.partition_point(|other| *other <= bytes));
        if now > before {
            points.extend([(bytes as f64, before), (bytes as f64, now)]);
            before = now;
        }
    }
    points.push((PICTURE_BYTES as f64, before));
    Series { name: name.to_owned(), points }
}
