//! Reports for humans.
//!
//! Called by `stat`, and by `run` for its last line. Colour stands on a terminal only, and not
//! where `NO_COLOR` is set (no-color.org).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal;

use floodwall_base::Counter;
use floodwall_dispatch::WorkerCounter;

use crate::network::{AddrInfo, FOR_EVER, LeaseInfo, NetworkConfig};
use crate::report::{ConservationLaw, DeviceReport, RunReport, WorkerReport};

/// How headings stand out.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    bold: &'static str,
    alarm: &'static str,
    plain: &'static str,
}

impl Style {
    /// Colour where `stream` is a terminal and it is not switched off.
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if stream.is_terminal() && !unwanted && !dumb {
            Self { bold: "\x1b[1m", alarm: "\x1b[1;31m", plain: "\x1b[0m" }
        } else {
            Self::plain()
        }
    }

    /// No colour.
    pub(crate) const fn plain() -> Self {
        Self { bold: "", alarm: "", plain: "" }
    }
}

/// What of a report is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShownValue {
    /// Counters at zero, too.
    pub(crate) all: bool,
    /// A column a worker.
    pub(crate) workers: bool,
}

/// The whole report.
pub(crate) fn report(report: &RunReport, shown: ShownValue, style: Style) -> String {
    let all = shown.all;
    let mut out = String::new();
    let Style { bold, plain, .. } = style;
    let core = on_cores(report);
    let uptime = seconds(report.uptime_ns);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{bold}floodwall {}{plain}, process {}, {core}, up {uptime}",
        report.version, report.pid
    );
    for device in &report.devices {
        show_device(&mut out, device, style);
    }
    if !report.neighbours.is_empty() {
        let _ = writeln!(out, "\n{bold}Neighbours{plain}");
    }
    for n in &report.neighbours {
        let lladdr = n.lladdr.as_ref().map(|mac| format!(" lladdr {mac}")).unwrap_or_default();
        let router = if n.router { " router" } else { "" };
        let state = n.state.join(",");
        let _ = writeln!(out, "{} dev {}{lladdr}{router} {state}", n.addr, n.dev);
    }
    network(&mut out, &report.network, style);
    crate::listeners::show(&mut out, &report.listeners, (bold, plain));
    counters(&mut out, report, all, style);
    drops(&mut out, report, style);
    conservation(&mut out, &report.conservation, style);
    reclamation(&mut out, report, style);
    workers(&mut out, report, shown, style);
    out
}

/// What changed between two looks: a line for each counter that moved, per second and in total.
pub(crate) fn differences(
    between: &crate::rates::ReportDifference<'_>,
    all: bool,
    style: Style,
) -> String {
    use crate::rates::short;
    let Style { bold, plain, .. } = style;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{bold}per second, over {:.1} s{plain}", between.seconds);
    for name in between.interfaces() {
        let of = |stat| short(between.device(Some(name), stat));
        let _ = writeln!(
            out,
            "{}: in {} packets {} bytes, out {} packets {} bytes",
            crate::output::shown(&name),
            of("rx_packets"),
            of("rx_bytes"),
            of("tx_packets"),
            of("tx_bytes")
        );
    }
    let mut heading = false;
    for counter in Counter::ALL {
        let rate = between.counter(counter.name());
        if rate == 0.0 && !all {
            continue;
        }
        if !std::mem::replace(&mut heading, true) {
            let _ = writeln!(out, "\n{bold}Counters{plain}");
        }
        let (name, total) = (counter.name(), between.after.counters.get(counter.name()));
        let total = total.copied().unwrap_or(0);
        let _ = writeln!(out, "{name:<32}{:>10}{total:>16}  {}", short(rate), counter.sentence());
    }
    let drops = between.drops();
    if !drops.is_empty() {
        let _ = writeln!(out, "\n{bold}Drops{plain}");
    }
    for (direction, reason, rate) in drops {
        let _ = writeln!(out, "{direction:<4}{reason:<28}{:>10}", short(rate));
    }
    out
}

/// Where it runs, in words.
fn on_cores(report: &RunReport) -> String {
    let cores: Vec<_> =
        report.workers.iter().filter_map(|worker| worker.core).map(|n| n.to_string()).collect();
    match (report.workers.len(), report.cpu, cores.is_empty()) {
        (0 | 1, Some(cpu), _) => format!("core {cpu}"),
        (0 | 1, None, _) => "any core".to_owned(),
        (n, _, true) => format!("{n} workers on any core"),
        (n, _, false) => format!("{n} workers on cores {}", cores.join(",")),
    }
}

/// Grace periods, and what waits for them; nothing where nothing ever waited.
fn reclamation(out: &mut String, report: &RunReport, style: Style) {
    let Style { bold, alarm, plain } = style;
    let r = &report.reclamation;
    if r.freed + r.unreclaimed_items + r.refused == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "\n{bold}Reclamation{plain}: {} freed, grace period {} last, {} p99, {} longest",
        r.freed,
        short(r.grace_last_ns),
        short(r.grace_p99_ns),
        short(r.grace_max_ns)
    );
    let refused = match r.refused {
        0 => "no change refused".to_owned(),
        n => format!("{alarm}{n} changes refused{plain}"),
    };
    let _ = writeln!(
        out,
        "  {} objects of {} bytes wait, {} of {} at most; {refused}",
        r.unreclaimed_items, r.unreclaimed_bytes, r.unreclaimed_items_max, r.unreclaimed_bytes_max
    );
}

/// What the loops count of themselves: totals, or a column a worker.
fn workers(out: &mut String, report: &RunReport, shown: ShownValue, style: Style) {
    let Style { bold, plain, .. } = style;
    let title = if report.workers.len() == 1 { "Worker" } else { "Workers" };
    let _ = writeln!(out, "\n{bold}{title}{plain}");
    let of = |facts: &BTreeMap<String, u64>, fact: &WorkerCounter| {
        facts.get(fact.name()).copied().unwrap_or(0)
    };
    let columns: &[WorkerReport] = if shown.workers { &report.workers } else { &[] };
    for (what, value) in SHOWN_FACTS {
        let cells: String = columns.iter().map(|one| format!("{:>16}", value(one))).collect();
        if !cells.is_empty() {
            let _ = writeln!(out, "{what:<32}{:>16}{cells}", "");
        }
    }
    if let (Some(share), true) = (share(&report.worker), columns.is_empty()) {
        let what = "Left of the workers' cores to applications.";
        let _ = writeln!(out, "{:<32}{:>16}  {what}", "application share", percent(share));
    }
    for fact in WorkerCounter::ALL {
        let total = of(&report.worker, fact);
        if total == 0 && !shown.all {
            continue;
        }
        if columns.is_empty() {
            let _ = writeln!(out, "{:<32}{total:>16}  {}", fact.name(), fact.sentence());
            continue;
        }
        let each = columns.iter().map(|one| format!("{:>16}", of(&one.facts, fact)));
        let _ = writeln!(out, "{:<32}{total:>16}{}", fact.name(), each.collect::<String>());
    }
}

/// A word for one column of a worker.
type Word = fn(&WorkerReport) -> String;

/// The facts that are shown of a worker beside its counts.
const SHOWN_FACTS: [(&str, Word); 4] = [
    ("core", |one| one.core.map_or_else(|| "any".to_owned(), |core| core.to_string())),
    ("paused ago", |one| one.quiescent_age_ns.map_or_else(|| "asleep".to_owned(), short)),
    ("application share", |one| share(&one.facts).map_or_else(|| "not shared".to_owned(), percent)),
    ("snapshot taken ago", |one| short(one.snapshot_age_ns)),
];

fn show_device(out: &mut String, device: &DeviceReport, style: Style) {
    let Style { bold, alarm, plain } = style;
    let DeviceReport { ifname, ifindex, link_type, mtu, .. } = device;
    let mac = device.address.as_ref().map(|mac| format!(" {mac}")).unwrap_or_default();
    let offload = if device.offload { "on" } else { "off" };
    let _ = writeln!(
        out,
        "\n{bold}{ifindex}: {ifname}{plain} link/{link_type}{mac} mtu {mtu} offload {offload}"
    );
    for addr in &device.addr_info {
        let line = of_address(addr, ifname);
        let [valid, preferred] = [addr.valid_life_time, addr.preferred_life_time].map(time);
        let _ = write!(out, "    {line}");
        if addr.dynamic {
            let _ = write!(out, " valid_lft {valid} preferred_lft {preferred}");
        }
        out.push('\n');
    }
    if let Some(line) = crate::first_line::shown(&device.first_line_parts) {
        let _ = writeln!(out, "    first line: {line}");
    }
    let half = &device.kernel_half;
    if !matches!(half.place.as_str(), "" | "none") {
        let lacks = half.lacks.len();
        let lack = if lacks == 0 { "" } else { alarm };
        let _ = writeln!(out, "    {lack}kernel's half {}{plain}: {}", half.place, half.words);
        half.lacks.iter().for_each(|lack| {
            let _ = writeln!(out, "      {lack}");
        });
    }
    let of = |name: &str| device.stats.get(name).copied().unwrap_or(0);
    for side in ["rx", "tx"] {
        let (packets, bytes) = (format!("{side}_packets"), format!("{side}_bytes"));
        let _ = write!(out, "    {side} {} packets, {} bytes", of(&packets), of(&bytes));
        let losses = device.stats.iter().filter(|(name, n)| {
            **n > 0 && name.starts_with(side) && **name != packets && **name != bytes
        });
        for (name, n) in losses {
            let _ = write!(out, ", {n} {}", name[side.len()..].trim_matches('_').replace('_', " "));
        }
        out.push('\n');
    }
    let is_other = |name: &str| !name.starts_with("rx") && !name.starts_with("tx");
    for (name, n) in device.stats.iter().filter(|(name, n)| **n > 0 && is_other(name)) {
        let _ = writeln!(out, "    {n} {}", name.replace('_', " "));
    }
    if device.backlog > 0 {
        let _ = writeln!(out, "    {} packets wait for the device", device.backlog);
    }
    if let Some(error) = &device.error {
        let _ = writeln!(out, "    {alarm}out of service: {error}{plain}");
    }
}

/// What was learnt from the links.
fn network(out: &mut String, network: &NetworkConfig, style: Style) {
    let Style { bold, plain, .. } = style;
    let told = !(network.routers.is_empty() && network.leases.is_empty());
    if told {
        let _ = writeln!(out, "\n{bold}Configuration{plain}");
    }
    for r in &network.routers {
        let lost = if r.reachable { "" } else { " unreachable" };
        let _ = writeln!(
            out,
            "router {} dev {} pref {} for {}{lost}",
            r.gateway,
            r.dev,
            r.pref,
            time(r.life_time)
        );
    }
    for p in &network.prefixes {
        let _ = writeln!(out, "prefix {} dev {} for {}", p.prefix, p.dev, time(p.life_time));
    }
    for info in &network.leases {
        lease(out, info);
    }
    if !network.dns.servers.is_empty() {
        let _ = writeln!(out, "dns {}", network.dns.servers.join(" "));
    }
    if !network.dns.search.is_empty() {
        let _ = writeln!(out, "search {}", network.dns.search.join(" "));
    }
    for group in &network.groups {
        let _ = writeln!(out, "group {} dev {}", group.address, group.dev);
    }
    for f in network.reassembly.iter().filter(|f| f.datagrams > 0) {
        let _ = writeln!(
            out,
            "fragments {}: {} of {} datagrams wait in {} bytes",
            f.family, f.fragments, f.datagrams, f.bytes
        );
    }
}

fn lease(out: &mut String, info: &LeaseInfo) {
    let LeaseInfo { family, dev, state, refused, last_refusal, lease } = info;
    let protocol = if family == "inet6" { "dhcpv6" } else { "dhcp" };
    let _ = write!(out, "{protocol} {state} dev {dev}");
    if let Some(l) = lease {
        let _ = write!(
            out,
            " {}/{} from {} for {}, renewed in {}, rebound in {}",
            l.local,
            l.prefixlen,
            l.server,
            time(l.valid_life_time),
            time(l.renew_in),
            time(l.rebind_in)
        );
        for route in &l.routes {
            let _ = write!(out, ", {route}");
        }
        if l.left_out > 0 {
            let _ = write!(out, ", {} things left out", l.left_out);
            for (n, what) in l.left_out_why.iter().enumerate() {
                let _ = write!(out, "{}{what}", if n == 0 { ": " } else { "; " });
            }
        }
    }
    if let Some(last) = last_refusal {
        let _ = write!(out, ", {refused} messages not accepted, the last because {last}");
    }
    out.push('\n');
}

fn counters(out: &mut String, report: &RunReport, all: bool, style: Style) {
    let _ = writeln!(out, "\n{}Counters{}", style.bold, style.plain);
    for counter in Counter::ALL {
        let n = report.counters.get(counter.name()).copied().unwrap_or(0);
        if n > 0 || all {
            let _ = writeln!(out, "{:<32}{n:>16}", counter.name());
        }
    }
}

fn drops(out: &mut String, report: &RunReport, style: Style) {
    let Style { bold, plain, .. } = style;
    for (direction, title) in
        [("in", "Dropped of what arrived"), ("out", "Dropped of what we made")]
    {
        let mut these = report.drops.iter().filter(|drop| drop.direction == direction).peekable();
        if these.peek().is_some() {
            let _ = writeln!(out, "\n{bold}{title}{plain}");
        }
        for drop in these {
            let _ = writeln!(out, "{:<32}{:>16}  {}", drop.reason, drop.count, drop.sentence);
        }
    }
}

fn conservation(out: &mut String, law: &ConservationLaw, style: Style) {
    let Style { bold, alarm, plain } = style;
    let verdict = match law.holds {
        true => "every packet is accounted for exactly once".to_owned(),
        false => format!("{alarm}BROKEN: the ledgers differ; please report this{plain}"),
    };
    let _ = writeln!(out, "\n{bold}Conservation{plain}: {verdict}");
    let _ = writeln!(
        out,
        "  {} arrived = {} delivered + {} answered + {} forwarded + {} dropped",
        law.arrived, law.delivered, law.answered, law.forwarded, law.dropped_in
    );
    if law.merged + law.held > 0 {
        let _ = writeln!(out, "    + {} merged + {} waiting fragments", law.merged, law.held);
    }
    let _ = writeln!(
        out,
        "  {} made = {} transmitted + {} waiting for a neighbour + {} dropped",
        law.originated, law.transmitted, law.pending, law.dropped_out
    );
    if law.redirected > 0 {
        let _ = writeln!(out, "  {} redirected at the interfaces, beside these", law.redirected);
    }
}

/// A length of time in words.
pub(crate) fn seconds(nanos: u64) -> String {
    let (whole, tenth) = (nanos / 1_000_000_000, nanos / 100_000_000 % 10);
    match whole {
        0..=59 => format!("{whole}.{tenth} s"),
        60..=3599 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// What a worker that shares its core has left to others, in thousandths; `None` where it does not
/// share.
fn share(facts: &BTreeMap<String, u64>) -> Option<u64> {
    let of = |fact: WorkerCounter| facts.get(fact.name()).copied().unwrap_or(0);
    let (ran, rested) = (of(WorkerCounter::BalanceRanNanos), of(WorkerCounter::BalanceRestedNanos));
    (u128::from(rested) * 1000)
        .checked_div(u128::from(ran) + u128::from(rested))
        .map(|share| share as u64)
}

fn percent(thousandths: u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// A short time in words.
fn short(nanos: u64) -> String {
    match nanos {
        0..=9_999 => format!("{nanos} ns"),
        10_000..=9_999_999 => format!("{} us", nanos / 1_000),
        10_000_000..=9_999_999_999 => format!("{} ms", nanos / 1_000_000),
        _ => seconds(nanos),
    }
}

/// One address on one line.
pub(crate) fn of_address(addr: &AddrInfo, ifname: &str) -> String {
    let marks = [
        ("dynamic", addr.dynamic),
        ("tentative", addr.tentative),
        ("deprecated", addr.deprecated),
        ("dadfailed", addr.dadfailed),
    ];
    let marks: String =
        marks.iter().filter(|(_, is)| *is).map(|(name, _)| format!(" {name}")).collect();
    let AddrInfo { family, local, prefixlen, scope, .. } = addr;
    // IPv4 addresses have a label, which is the interface's name.
    let label = if local.is_ipv4() { format!(" {ifname}") } else { String::new() };
    format!("{family} {local}/{prefixlen} scope {scope}{marks}{label}")
}

/// A time that is left.
pub(crate) fn time(seconds: u32) -> String {
    if seconds == FOR_EVER { "forever".to_owned() } else { format!("{seconds}sec") }
}

#[cfg(test)]
mod tests {
    use floodwall_base::DropReason;
    use floodwall_stack::Stats;

    use super::*;

    /// Both sides of each printed line, recomputed from its numbers.
    fn sides(printed: &str) -> Vec<(u64, u64)> {
        let (mut sides, mut rest) = (Vec::new(), printed.lines().skip(2).peekable());
        while let Some(line) = rest.next() {
            let more = rest.next_if(|line| line.trim().starts_with('+')).unwrap_or_default();
            let (left, right) = line.split_once('=').unwrap();
            let sum = |text: &str| -> u64 {
                text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum()
            };
            sides.push((sum(left), sum(right) + sum(more)));
        }
        sides
    }

    #[test]
    fn the_printed_line_of_conservation_adds_up_with_several_workers() {
        // Two workers: one hands 60 of its 100 frames over, the other takes 57 of them over so far,
        // and 40 that were steered to it before a shard saw them.
        let (mut first, mut second) = (Stats::default(), Stats::default());
        (first.outcomes.received, first.outcomes.handed_in, first.outcomes.delivered) =
            (100, 60, 30);
        (first.outcomes.merged, first.held) = (3, 2);
        first.drops_in.add(DropReason::UdpNoPort, 5);
        (second.outcomes.received, second.outcomes.adopted_in) = (9, 97);
        (second.outcomes.answered, second.outcomes.forwarded) = (56, 50);
        (second.outcomes.originated, second.outcomes.handed_out, second.outcomes.transmitted) =
            (20, 12, 8);
        (first.outcomes.originated, first.outcomes.adopted_out, first.outcomes.transmitted) =
            (4, 11, 13);
        first.pending = 1;
        first.drops_out.add(DropReason::LoopbackFull, 1);
        assert!(first.conservation().holds() && second.conservation().holds());
        let [first, second] = [first, second].map(|stats| crate::hosted::words(&stats));
        let sum = first.iter().zip(&second).map(|(a, b)| a + b).collect::<Vec<_>>();
        for (words, arrived, made) in [(&first, 40, 15), (&second, 106, 8), (&sum, 146, 23)] {
            let law = ConservationLaw::new(&crate::hosted::read(words));
            let mut printed = String::new();
            conservation(&mut printed, &law, Style::plain());
            assert!(printed.contains("exactly once"), "{printed}");
            let sides = sides(&printed);
            assert_eq!(sides, [(arrived, arrived), (made, made)], "{printed}");
        }
    }

    #[test]
    fn short_times_keep_at_least_two_digits() {
        let words = [0, 9_999, 10_000, 9_999_999, 10_000_000, 12_345_678_901].map(short);
        assert_eq!(words, ["0 ns", "9999 ns", "10 us", "9999 us", "10 ms", "12.3 s"]);
    }

    #[test]
    fn times_read_as_people_say_them() {
        assert_eq!(seconds(0), "0.0 s");
        assert_eq!(seconds(12_345_678_901), "12.3 s");
        assert_eq!(seconds(61_000_000_000), "1 min 1 s");
        assert_eq!(seconds(7_260_000_000_000), "2 h 1 min");
    }
}
