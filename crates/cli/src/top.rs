//! What `floodwall top` shows: one value, for a terminal and as JSON.

use std::fmt::Write as _;

use floodwall_dispatch::WorkerCounter;
use serde::Serialize;

use crate::explain::{self, Explanation};
use crate::output::shown;
use crate::rates::{ReportDifference, short};
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
                name: shown(&name),
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
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "floodwall top, up {:.0} s: {}", self.uptime_seconds, self.verdict);
        let _ = writeln!(out);
        let _ = writeln!(
            out,
            "{:<16}{:>10}{:>10}{:>10}{:>10}",
            "INTERFACE", "IN pkt/s", "IN B/s", "OUT pkt/s", "OUT B/s"
        );
        for i in &self.interfaces {
            let rates = [i.in_packets, i.in_bytes, i.out_packets, i.out_bytes].map(short);
            let [a, b, c, d] = rates;
            let _ = writeln!(out, "{:<16}{a:>10}{b:>10}{c:>10}{d:>10}", i.name);
        }
        self.write_services(&mut out);
        let _ = writeln!(
            out,
            "\n{:<8}{:>6}{:>8}{:>8}{:>10}{:>10}{:>10}",
            "WORKER", "CORE", "BUSY", "LEFT", "pkt/s", "BACKLOG", "WAITING"
        );
        for (n, w) in self.workers.iter().enumerate() {
            let core = w.core.map_or_else(|| "any".to_owned(), |core| core.to_string());
            let percent = |part: f64| format!("{:.1} %", part * 100.0);
            let busy = percent(w.busy);
            let left = w.left.map_or_else(|| "-".to_owned(), percent);
            let packets = short(w.packets);
            let _ = writeln!(
                out,
                "{n:<8}{core:>6}{busy:>8}{left:>8}{packets:>10}{:>10}{:>10}",
                w.backlog, w.waiting
            );
        }
        let _ = writeln!(
            out,
            "\nconnections {} of {}, {} opened/s; datagrams read {}/s; grace period p99 {:.3} ms",
            self.connections,
            self.connections_limit,
            short(self.opened_per_second),
            short(self.datagrams_per_second),
            self.grace_period_p99_seconds * 1e3
        );
        if !self.sources.is_empty() {
            let _ = writeln!(out, "sources: {}", sources::line(&self.sources));
        }
        for (title, all) in [("REFUSED", &self.refusals), ("AT THE INTERFACE", &self.first_line)] {
            if all.is_empty() {
                continue;
            }
            let _ = writeln!(out, "\n{title:<28}{:>10}", "pkt/s");
            for refusal in all {
                let _ = writeln!(out, "{:<28}{:>10}", refusal.reason, short(refusal.per_second));
            }
        }
        // The verdict stays in sight where the terminal is small.
        let cut = |line: &str| line.chars().take(columns.max(20)).collect::<String>();
        let kept: Vec<_> = out.lines().take(lines.max(4)).map(cut).collect();
        kept.join("\n") + "\n"
    }

    /// A line for each service.
    fn write_services(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\n{:<28}{:>10}{:>10}{:>11}{:>11}  QUEUE",
            "SERVICE", "CONN/s", "DGRAM/s", "REFUSED/s", "COOKIES/s"
        );
        for s in &self.services {
            let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), short);
            let limit = s.queue_limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            let _ = writeln!(
                out,
                "{:<28}{:>10}{:>10}{:>11}{:>11}  {}{limit}",
                format!("{} {}", s.kind, s.local),
                rate(s.opened),
                rate(s.datagrams),
                short(s.refused),
                rate(s.cookies),
                s.queue
            );
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{DeviceReport, RunReport};

    #[test]
    fn the_verdict_is_first_and_names_never_control_the_terminal() {
        let device = |n| DeviceReport {
            ifname: "fw\x1b[2J0".to_owned(),
            stats: [("rx_packets".to_owned(), n)].into(),
            ..DeviceReport::default()
        };
        let report = |seconds: u64, n| RunReport {
            uptime_ns: seconds * 1_000_000_000,
            devices: vec![device(n)],
            ..RunReport::default()
        };
        let (before, after) = (report(1, 0), report(3, 5000));
        let view = TopView::of(&ReportDifference::new(&before, &after).unwrap());
        let text = view.text((50, 80));
        assert!(text.starts_with("floodwall top, up 3 s: fine"), "{text}");
        assert!(text.contains("2.50k") && !text.contains('\x1b'), "{text}");
        let small = view.text((1, 1));
        assert!(small.lines().all(|line| line.len() <= 20), "{small}");
        assert_eq!(small.lines().count(), 4, "a small terminal");
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["interfaces"][0]["in_packets"], 2500.0);
    }
}
