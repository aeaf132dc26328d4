//! What `floodwall top` shows: one value, for a terminal and as JSON.

use floodwall_dispatch::WorkerCounter;
use serde::Serialize;

use crate::explain::{self, Explanation};
use crate::output::shown;
use crate::rates::ReportDifference;
use crate::report::RunReport;
use crate::sources::SourceShare;

/// Rates that are drawn.
pub(super) const SERIES: usize = 4;
/// Refusals that are shown.
const REFUSALS_MAX: usize = 8;

/// What programs at an interface do, and what its ring loses, before a worker sees it.
const FIRST_LINE_STATS: [&str; 18] = [
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
    "rx_group_full",
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
    /// Packets a second refused for any reason, by the stack or before it.
    pub(crate) refused_per_second: f64,
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
    pub(super) name: String,
    /// Of the program at it: `none`, `attached`, or `on-demand` while it is not attached.
    pub(super) first_line: String,
    pub(super) in_packets: f64,
    pub(super) in_bytes: f64,
    pub(super) out_packets: f64,
    pub(super) out_bytes: f64,
}

/// Rates of one service.
#[derive(Debug, Serialize)]
pub(crate) struct TopService {
    /// `tcp` or `udp`.
    pub(super) kind: &'static str,
    pub(super) local: String,
    /// Connections a second, of TCP.
    pub(super) opened: Option<f64>,
    /// Datagrams taken a second, of UDP.
    pub(super) datagrams: Option<f64>,
    pub(super) refused: f64,
    /// Packets a second that ended at the interfaces, by a sample of them: refused.
    pub(super) refused_at_interface: f64,
    /// The same: SYNs answered.
    pub(super) answered_at_interface: f64,
    /// Of TCP, SYNs answered by a cookie.
    pub(super) cookies: Option<f64>,
    pub(super) queue: u64,
    /// `None` where the queue's limit is in bytes.
    pub(super) queue_limit: Option<u64>,
}

/// Packets refused for one reason.
#[derive(Debug, Serialize)]
pub(crate) struct TopRefusal {
    pub(super) reason: String,
    pub(super) per_second: f64,
}

/// One worker.
#[derive(Debug, Serialize)]
pub(crate) struct TopWorker {
    pub(super) core: Option<usize>,
    /// The part of the time, from 0 to 1, that it spent in turns: with packets and services.
    pub(super) busy: f64,
    /// The part that it left to the programs on its core, where it shares it.
    pub(super) left: Option<f64>,
    pub(super) packets: f64,
    pub(super) backlog: u64,
    pub(super) waiting: u64,
    pub(super) snapshot_age_seconds: f64,
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
        let drops = between.drops();
        let dropped: f64 = drops.iter().map(|(.., per_second)| per_second).sum();
        let refusals = drops.into_iter().take(REFUSALS_MAX);
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
            refused_per_second: dropped
                + first_line
                    .iter()
                    .filter(|it| is_refusal(&it.reason))
                    .map(|it| it.per_second)
                    .sum::<f64>(),
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

    /// Packets a second of all interfaces: arrived, sent, refused anywhere, answered there.
    pub(super) fn rates(&self) -> [f64; SERIES] {
        let sum = |of: &dyn Fn(&TopInterface) -> f64| self.interfaces.iter().map(of).sum();
        let answered = self.first_line.iter().find(|it| it.reason == "rx_syns_answered");
        let answered = answered.map_or(0.0, |it| it.per_second);
        [sum(&|i| i.in_packets), sum(&|i| i.out_packets), self.refused_per_second, answered]
    }

    /// Bytes a second of all interfaces: arrived, sent.
    pub(super) fn bytes(&self) -> [f64; 2] {
        let sum = |of: &dyn Fn(&TopInterface) -> f64| self.interfaces.iter().map(of).sum();
        [sum(&|i| i.in_bytes), sum(&|i| i.out_bytes)]
    }
}

/// Whether a count of [`FIRST_LINE_STATS`] is of packets that go no further.
fn is_refusal(stat: &str) -> bool {
    !["rx_syns_answered", "rx_cookies_proven", "rx_cookies_forged", "rx_redirected"].contains(&stat)
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
    let refusals: Vec<_> = FIRST_LINE_STATS.into_iter().filter(|stat| is_refusal(stat)).collect();
    let refused = explain::services_at_interface(between, &refusals);
    let answered = explain::services_at_interface(between, &["rx_syns_answered"]);
    let rate = |all: &[explain::ServiceRate], (kind, port)| {
        let same = all.iter().filter(|it| (it.protocol.as_str(), it.port) == (kind, port));
        same.map(|it| it.per_second).sum()
    };
    let tcp = between.after.listeners.iter().map(|l| TopService {
        kind: "tcp",
        local: l.local.to_string(),
        opened: Some(between.listener(l.local, |l| l.cache_hits + l.cookies_valid)),
        datagrams: None,
        refused: between.listener(l.local, |l| l.refused),
        refused_at_interface: rate(&refused, ("tcp", l.local.port())),
        answered_at_interface: rate(&answered, ("tcp", l.local.port())),
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
        refused_at_interface: rate(&refused, ("udp", u.local.port())),
        answered_at_interface: 0.0,
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
