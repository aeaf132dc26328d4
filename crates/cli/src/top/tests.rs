//! What is on the terminal, at several sizes.

use std::collections::BTreeMap;

use floodwall_dispatch::WorkerCounter;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::*;
use crate::explain;
use crate::listeners::{ListenerSettings, UdpReport};
use crate::rates::ReportDifference;
use crate::report::RunReport;
use crate::report::{DeviceReport, DropReport, WorkerReport};
use crate::sources::SourceShare;

const SECOND: u64 = 1_000_000_000;

#[test]
fn the_verdict_is_first_and_names_never_control_the_terminal() {
    let device = |n| DeviceReport {
        ifname: "fw\x1b[2J0".to_owned(),
        stats: [("rx_packets".to_owned(), n)].into(),
        ..DeviceReport::default()
    };
    let report = |seconds: u64, n| RunReport {
        uptime_ns: seconds * SECOND,
        devices: vec![device(n)],
        ..RunReport::default()
    };
    let (before, after) = (report(1, 0), report(3, 5000));
    let view = TopView::of(&ReportDifference::new(&before, &after).unwrap());
    let text = view.text(Some((50, 80)));
    assert!(text.starts_with("floodwall top, up 3.0 s"), "{text}");
    assert!(text.lines().nth(2).is_some_and(|line| line.starts_with("fine")), "{text}");
    assert!(text.contains("2.50k") && !text.contains('\x1b'), "{text}");
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["interfaces"][0]["in_packets"], 2500.0);
    assert_eq!(json["interfaces"][0]["first_line"], "none");
}

fn named<const N: usize>(counts: [(&str, u64); N], n: u64) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.to_owned(), count * n)).into()
}

fn listener(at: &str, n: u64) -> ListenerSettings {
    ListenerSettings {
        local: at.parse().unwrap(),
        backlog: 1024,
        half_open: 512,
        waiting: 1,
        cache_hits: 100 * n,
        cookies_sent: 424_242 * n,
        cookies_valid: 9 * n,
        refused: 40 * n,
        cookie_only: 0,
    }
}

fn device(ifname: &str, first_line: &str, n: u64) -> DeviceReport {
    let counts = [
        ("rx_packets", 900_000),
        ("rx_bytes", 54_000_000),
        ("tx_packets", 800_000),
        ("tx_bytes", 48_000_000),
        ("rx_syns_answered", 300_000),
        ("rx_segments", 1000),
        ("rx_unverified", 700),
    ];
    DeviceReport {
        ifname: ifname.to_owned(),
        first_line: first_line.to_owned(),
        stats: named(counts, n),
        ..DeviceReport::default()
    }
}

fn worker(core: usize, n: u64) -> WorkerReport {
    let facts = [
        (WorkerCounter::TurnNanos.name(), SECOND),
        (WorkerCounter::RxPackets.name(), 450_000),
        (WorkerCounter::TriageWaiting.name(), 12),
    ];
    WorkerReport { core: Some(core), facts: named(facts, n), ..WorkerReport::default() }
}

fn drops(n: u64) -> Vec<DropReport> {
    let counts = [
        ("TcpHandshakeRefused", 900),
        ("TcpNoConnection", 800),
        ("UdpNoPort", 700),
        ("FragmentSourceFull", 60),
        ("IcmpRateLimited", 50),
        ("IpHeaderChecksum", 40),
        ("NeighborPendingFull", 30),
        ("ExtensionMalformed", 20),
        ("IpVersion", 10),
    ];
    let drop = |(reason, count): (&str, u64)| DropReport {
        direction: "in".to_owned(),
        reason: reason.to_owned(),
        count: count * n,
        sentence: String::new(),
    };
    counts.map(drop).into()
}

/// A host of three interfaces, three workers and six services, under a flood of SYNs.
fn flooded() -> TopView {
    let services = ["[::]:80", "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535"];
    let udp = |port| UdpReport::quiet(format!("[::]:{port}").parse().unwrap());
    let report = |n: u64| RunReport {
        uptime_ns: (100_000 + 2 * n) * SECOND,
        listeners: services.map(|at| listener(at, n)).into(),
        udp_sockets: (7001..7005).map(udp).collect(),
        devices: vec![
            device("enp129s0f0np0v3", "attached", n),
            device("fw0", "on-demand", n),
            device("fw1", "", n),
        ],
        workers: (0..3).map(|core| worker(core, n)).collect(),
        drops: drops(n),
        counters: named([("TcpExtSyncookiesSent", 848_484), ("TcpPassiveOpens", 200)], n),
        ..RunReport::default()
    };
    let (before, after) = (report(0), report(1));
    let mut view = TopView::of(&ReportDifference::new(&before, &after).unwrap());
    view.connections_limit = 49_152;
    view.sources = [("192.0.2.0/24", 0.43), ("2001:db8:ffff::/48", 0.12), ("10.7.7.0/24", 0.05)]
        .map(|(prefix, share)| SourceShare { prefix: prefix.to_owned(), share })
        .into();
    view
}

/// Words and numbers that the widest picture has; those that another has must be among them.
fn words(text: &str) -> std::collections::BTreeSet<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// What a terminal of so many lines and columns shows after twenty looks.
fn shown(view: &TopView, (lines, columns): (u16, u16)) -> String {
    let mut history = History::default();
    (0..20).for_each(|_| history.add(view));
    let area = Rect::new(0, 0, columns, lines);
    let mut buf = Buffer::empty(area);
    Picture { view, history: &history, look: Look::PLAIN }.draw(area, &mut buf);
    picture::lines(&buf).join("\n")
}

#[test]
fn nothing_is_cut_at_any_size_and_no_line_is_wider_than_the_terminal() {
    let view = flooded();
    let all = view.text(None);
    let whole = words(&all);
    for (lines, columns) in [(24, 80), (40, 120), (15, 40), (10, 30), (200, 60), (50, 79)] {
        let text = view.text(Some((lines, columns)));
        let size = format!("{lines} lines of {columns}:\n{text}");
        assert!(text.lines().count() <= usize::from(lines), "{size}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(columns)), "{size}");
        for word in words(&text) {
            let is_said = ["...", "and", "more", "(a", "larger", "terminal", "shows", "more)"];
            let is_verdict = view.verdict.contains(word.trim_end_matches([':', ',']));
            // An address that is longer than a line is broken.
            let is_part = columns < 60 && all.contains(&word);
            let is_count = word.parse::<usize>().is_ok();
            let is_bar = word.chars().all(|symbol| "#=.".contains(symbol));
            assert!(
                whole.contains(&word)
                    || is_said.contains(&word.as_str())
                    || is_verdict
                    || is_part
                    || is_count
                    || is_bar
                    || explain::short_verdict(&view.findings).contains(&word),
                "{word:?} is not whole: {size}"
            );
        }
        let flat = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("attack: SYN flood at"), "{size}");
        assert!(text.contains("INTERFACE") && text.contains("450k"), "{size}");
    }
    let usual = view.text(Some((24, 80)));
    for part in ["FIRST LINE", "attached", "on-demand", "REFUSED", "AT THE INTERFACE", "WORKER"] {
        assert!(usual.contains(part), "{part}: {usual}");
    }
    assert!(usual.contains("QUEUE") && usual.contains("1 of 1024"), "{usual}");
    let tall = view.text(Some((40, 120)));
    for part in ["sources: 192.0.2.0/24 43 %", "grace period", "rx_unverified", "IcmpRateLimited"] {
        assert!(tall.contains(part) && !tall.contains("... and"), "{part}: {tall}");
    }
    let small = view.text(Some((15, 40)));
    assert!(small.contains("SERVICE") && small.contains("(a larger terminal shows more)"));
}

#[test]
fn a_terminal_shows_sparklines_of_the_rates_and_bars_of_the_cores() {
    let view = flooded();
    let usual = shown(&view, (24, 80));
    assert!(usual.contains("in 1.35M pkt/s ") && usual.contains("answered 450k\n"), "{usual}");
    let marks = |line: &&str| line.matches('#').count() >= 72;
    assert_eq!(usual.lines().filter(marks).count(), 2, "twenty looks, four charts: {usual}");
    let small = shown(&view, (15, 40));
    for row in ["in         1.35M ", "refused    3.85k ", "answered    450k ", "INTERFACE"] {
        assert!(small.contains(row), "{row}: {small}");
    }
    assert!(small.lines().any(|line| line.ends_with("####################")), "{small}");
    let tall = shown(&view, (40, 120));
    let bar = |line: &&str| line.contains("50.0 %") && line.contains("####....");
    assert_eq!(tall.lines().filter(bar).count(), 3, "three cores, half at work: {tall}");
    for (lines, columns) in [(24, 80), (40, 120), (15, 40), (6, 30), (1, 1), (3, 200)] {
        let text = shown(&view, (lines, columns));
        assert!(text.lines().count() <= lines.into(), "{text}");
    }
}
