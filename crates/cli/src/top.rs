//! What `floodwall top` shows: one value, for a terminal and as JSON.

mod layout;
#[cfg(test)]
mod tests;

use floodwall_dispatch::WorkerCounter;
use serde::Serialize;

use self::layout::{Column, Section};

use crate::explain::{self, Explanation};
use crate::output::shown;
use crate::rates::{ReportDifference, short};
use crate::report::RunReport;
use crate::sources::{self, SourceShare};

/// Refusals that are shown.
const REFUSALS_MAX: usize = 8;

/// What programs at an interface do, and what its ring loses, before a worker sees it.
const FIRST_LINE_STATS: [&str; 17] = [
    "rx_syns_answered",
    "rx_cookies_proven",
    "rx_cookies_forged",
    "rx_redirected",
    "rx_source_group",
    "rx_vlan_foreign",
    "rx_kind_unknown",
    "rx_header_malformed",
    "rx_address_foreign",
    "rx_port_closed",
    "rx_denied",
    "rx_segments",
    "rx_unverified",
    "rx_service_full",
    "rx_prefix_full",
    "rx_flow_full",
    "rx_ring_full",
];

/// One look.
#[derive(Debug, Serialize)]
pub(crate) struct TopView {
    pub(crate) verdict: String,
    pub(crate) uptime_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) interfaces: Vec<TopInterface>,
    pub(crate) services: Vec<TopService>,
    pub(crate) refusals: Vec<TopRefusal>,
    pub(crate) workers: Vec<TopWorker>,
    /// Packets a second dropped, answered or passed on at the interfaces, before the workers.
    pub(crate) first_line: Vec<TopRefusal>,
    /// The prefixes that send most of what arrives.
    pub(crate) sources: Vec<SourceShare>,
    /// Connections opened a second, requests answered a second over UDP.
    pub(crate) opened_per_second: f64,
    pub(crate) datagrams_per_second: f64,
    pub(crate) connections: usize,
    pub(crate) connections_limit: usize,
    pub(crate) grace_period_p99_seconds: f64,
    pub(crate) findings: Vec<Explanation>,
}

/// Rates of one interface.
#[derive(Debug, Serialize)]
pub(crate) struct TopInterface {
    name: String,
    /// Of the program at it: `none`, `attached`, or `on-demand` while it is not attached.
    first_line: String,
    in_packets: f64,
    in_bytes: f64,
    out_packets: f64,
    out_bytes: f64,
}

/// Rates of one service.
#[derive(Debug, Serialize)]
pub(crate) struct TopService {
    /// `tcp` or `udp`.
    kind: &'static str,
    local: String,
    /// Connections a second, of TCP.
    opened: Option<f64>,
    /// Datagrams taken a second, of UDP.
    datagrams: Option<f64>,
    refused: f64,
    /// Of TCP, SYNs answered by a cookie.
    cookies: Option<f64>,
    queue: u64,
    /// `None` where the queue's limit is in bytes.
    queue_limit: Option<u64>,
}

/// Packets refused for one reason.
#[derive(Debug, Serialize)]
pub(crate) struct TopRefusal {
    reason: String,
    per_second: f64,
}

/// One worker.
#[derive(Debug, Serialize)]
pub(crate) struct TopWorker {
    core: Option<usize>,
    /// The part of the time, from 0 to 1, that it spent in turns: with packets and services.
    busy: f64,
    /// The part that it left to the programs on its core, where it shares it.
    left: Option<f64>,
    packets: f64,
    backlog: u64,
    waiting: u64,
    snapshot_age_seconds: f64,
}

impl TopView {
    /// What happened between two reports.
    pub(crate) fn of(between: &ReportDifference<'_>) -> Self {
        let findings = explain::findings(between);
        let after = between.after;
        let interfaces = between.interfaces().into_iter().map(|name| {
            let of = |stat| between.device(Some(name), stat);
            TopInterface {
                name: shown_name(name),
                first_line: first_line(after, name),
                in_packets: of("rx_packets"),
                in_bytes: of("rx_bytes"),
                out_packets: of("tx_packets"),
                out_bytes: of("tx_bytes"),
            }
        });
        let refusals = between.drops().into_iter().take(REFUSALS_MAX);
        let refusals = refusals.map(|(_, reason, per_second)| TopRefusal { reason, per_second });
        let first_line = FIRST_LINE_STATS.into_iter().map(|stat| {
            let per_second = between.device(None, stat);
            TopRefusal { reason: stat.to_owned(), per_second }
        });
        let mut first_line: Vec<_> = first_line.filter(|it| it.per_second > 0.0).collect();
        first_line.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
        Self {
            verdict: explain::verdict(&findings),
            uptime_seconds: after.uptime_ns as f64 / 1e9,
            seconds: between.seconds,
            interfaces: interfaces.collect(),
            services: services(between),
            refusals: refusals.collect(),
            workers: workers(between),
            first_line,
            sources: Vec::new(),
            opened_per_second: between.counter("TcpPassiveOpens"),
            datagrams_per_second: between.counter("UdpInDatagrams")
                + between.counter("Udp6InDatagrams"),
            connections: after.connections.open,
            connections_limit: after.connections.max,
            grace_period_p99_seconds: after.reclamation.grace_p99_ns as f64 / 1e9,
            findings,
        }
    }

    /// For a terminal of so many lines and columns.
    pub(crate) fn text(&self, (lines, columns): (usize, usize)) -> String {
        let (lines, columns) = (lines.max(4), columns.max(20));
        let mut sections = vec![self.head((lines, columns))];
        sections.push(Section { rank: 1, ..self.interface_table(columns) });
        sections.push(Section { rank: 3, ..self.service_table(columns) });
        sections.push(Section { rank: 4, ..self.worker_table(columns) });
        let facts = format!(
            "connections {} of {}, {} opened/s; datagrams read {}/s; grace period p99 {:.3} ms",
            self.connections,
            self.connections_limit,
            short(self.opened_per_second),
            short(self.datagrams_per_second),
            self.grace_period_p99_seconds * 1e3
        );
        sections.push(Section { title: None, rows: layout::wrap(&facts, columns), rank: 6 });
        if !self.sources.is_empty() {
            let sources = format!("sources: {}", sources::line(&self.sources));
            sections.push(Section { title: None, rows: layout::wrap(&sources, columns), rank: 5 });
        }
        let refused = refusal_table("REFUSED", &self.refusals, columns);
        let at_interface = refusal_table("AT THE INTERFACE", &self.first_line, columns);
        let at_interface = Section { rank: 7, ..at_interface };
        sections.extend(layout::pair(Section { rank: 2, ..refused }, at_interface, columns));
        layout::fit(sections, lines).join("\n") + "\n"
    }

    /// The verdict, whole where it takes three lines at most.
    fn head(&self, (lines, columns): (usize, usize)) -> Section {
        let up = format!("floodwall top, up {:.0} s", self.uptime_seconds);
        let whole = layout::wrap(&format!("{up}: {}", self.verdict), columns);
        let rows = match whole.len() <= 3 && whole.len() * 6 <= lines {
            true => whole,
            false => {
                layout::wrap(&format!("{up}: {}", explain::short_verdict(&self.findings)), columns)
            }
        };
        Section { title: None, rows, rank: 0 }
    }

    fn interface_table(&self, columns: usize) -> Section {
        let column = |title, rank, of: &dyn Fn(&TopInterface) -> String| Column {
            title,
            cells: self.interfaces.iter().map(of).collect(),
            rank,
        };
        let all = vec![
            column("INTERFACE", 0, &|i| i.name.clone()),
            column("IN pkt/s", 0, &|i| short(i.in_packets)),
            column("IN B/s", 2, &|i| short(i.in_bytes)),
            column("OUT pkt/s", 1, &|i| short(i.out_packets)),
            column("OUT B/s", 4, &|i| short(i.out_bytes)),
            column("FIRST LINE", 3, &|i| i.first_line.clone()),
        ];
        layout::table(all, columns)
    }

    fn service_table(&self, columns: usize) -> Section {
        let column = |title, rank, of: &dyn Fn(&TopService) -> String| Column {
            title,
            cells: self.services.iter().map(of).collect(),
            rank,
        };
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), short);
        let queue = |s: &TopService| {
            let limit = s.queue_limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            format!("{}{limit}", s.queue)
        };
        let all = vec![
            column("SERVICE", 0, &|s| format!("{} {}", s.kind, s.local)),
            column("CONN/s", 1, &|s| rate(s.opened)),
            column("DGRAM/s", 2, &|s| rate(s.datagrams)),
            column("REFUSED/s", 0, &|s| short(s.refused)),
            column("COOKIES/s", 4, &|s| rate(s.cookies)),
            column("QUEUE", 3, &queue),
        ];
        layout::table(all, columns)
    }

    fn worker_table(&self, columns: usize) -> Section {
        let mut numbers = 0..self.workers.len();
        let numbers: Vec<_> = numbers.by_ref().map(|n| n.to_string()).collect();
        let column = |title, rank, of: &dyn Fn(&TopWorker) -> String| Column {
            title,
            cells: self.workers.iter().map(of).collect(),
            rank,
        };
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let all = vec![
            Column { title: "WORKER", cells: numbers, rank: 0 },
            column("CORE", 4, &|w| {
                w.core.map_or_else(|| "any".to_owned(), |core| core.to_string())
            }),
            column("BUSY", 0, &|w| percent(w.busy)),
            column("LEFT", 5, &|w| w.left.map_or_else(|| "-".to_owned(), percent)),
            column("pkt/s", 1, &|w| short(w.packets)),
            column("BACKLOG", 3, &|w| w.backlog.to_string()),
            column("WAITING", 2, &|w| w.waiting.to_string()),
        ];
        layout::table(all, columns)
    }
}

fn refusal_table(title: &'static str, all: &[TopRefusal], columns: usize) -> Section {
    let reasons = all.iter().map(|refusal| refusal.reason.clone()).collect();
    let rates = all.iter().map(|refusal| short(refusal.per_second)).collect();
    let reasons = Column { title, cells: reasons, rank: 0 };
    layout::table(vec![reasons, Column { title: "pkt/s", cells: rates, rank: 0 }], columns)
}

/// A name of the system's, in characters of one column each.
fn shown_name(name: &str) -> String {
    let name = shown(&name);
    if name.is_ascii() { name } else { name.escape_default().to_string() }
}

/// The state of the program at an interface: of its queues, the one that has most of it.
fn first_line(after: &RunReport, name: &str) -> String {
    let queues = after.devices.iter().filter(|device| device.ifname == name);
    let states: Vec<_> = queues.map(|device| device.first_line.as_str()).collect();
    let known = ["attached", "on-demand"].into_iter().find(|state| states.contains(state));
    known.unwrap_or("none").to_owned()
}

fn services(between: &ReportDifference<'_>) -> Vec<TopService> {
    let tcp = between.after.listeners.iter().map(|l| TopService {
        kind: "tcp",
        local: l.local.to_string(),
        opened: Some(between.listener(l.local, |l| l.cache_hits + l.cookies_valid)),
        datagrams: None,
        refused: between.listener(l.local, |l| l.refused),
        cookies: Some(between.listener(l.local, |l| l.cookies_sent)),
        queue: l.waiting,
        queue_limit: Some(l.backlog as u64),
    });
    let udp = between.after.udp_sockets.iter().map(|u| TopService {
        kind: "udp",
        local: u.local.to_string(),
        opened: None,
        datagrams: Some(between.udp(u.local, |u| u.taken)),
        refused: between.udp(u.local, |u| u.full + u.over_share + u.challenged + u.memory),
        cookies: None,
        queue: u.waiting,
        queue_limit: None,
    });
    tcp.chain(udp).collect()
}

fn workers(between: &ReportDifference<'_>) -> Vec<TopWorker> {
    let one = |(n, worker): (usize, &crate::report::WorkerReport)| {
        let of = |fact: WorkerCounter| worker.facts.get(fact.name()).copied().unwrap_or(0);
        TopWorker {
            core: worker.core,
            // A turn that goes on is counted at its end.
            busy: (between.of_worker(n, WorkerCounter::TurnNanos).unwrap_or(0.0) / 1e9).min(1.0),
            left: between.left(n),
            packets: between.of_worker(n, WorkerCounter::RxPackets).unwrap_or(0.0),
            backlog: of(WorkerCounter::Backlog),
            waiting: of(WorkerCounter::TriageWaiting),
            snapshot_age_seconds: worker.snapshot_age_ns as f64 / 1e9,
        }
    };
    between.after.workers.iter().enumerate().map(one).collect()
}
