//! What an operator asks about an attack besides its kind: since when, what it costs, what honest
//! clients notice.
//!
//! Called by `attack.rs`. Since when is known from the instance's own watch for floods
//! (`floods.rs`), which looks once a second; the rest is compared between the two reports.

use floodwall_base::DropReason;
use floodwall_dispatch::{FLOOD_RATE_MIN, FloodKind, WorkerCounter};
use serde::Serialize;

use crate::rates::{ReportDifference, short};
use crate::report::FloodReport;

/// The share of segments sent again from which on clients notice it.
const SENT_AGAIN_SHARE: f64 = 0.02;
/// What devices lose without looking at it: honest packets, too.
const BLIND_LOSSES: [&str; 2] = ["rx_ring_full", "rx_no_buffer"];
/// Packets of established flows that a program at the interface refuses.
const ESTABLISHED_LOSSES: [&str; 2] = ["rx_flow_full", "rx_flow_prefix_full"];

/// The answers; each sentence names its counters.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct AttackFacts {
    /// Seconds since the instance's watch saw it begin; `None` where it has not seen it yet.
    pub(crate) since_seconds: Option<f64>,
    /// The highest rate and the number of packets refused since then.
    pub(crate) peak_rate: Option<f64>,
    pub(crate) refused: Option<u64>,
    /// One sentence.
    pub(crate) costs: String,
    /// One sentence.
    pub(crate) clients: String,
}

impl AttackFacts {
    pub(super) fn new(between: &ReportDifference<'_>, name: &str) -> Self {
        let flood = between.after.floods.iter().find(|flood| flood.kind == name);
        let since = |flood: &FloodReport| between.after.uptime_ns.saturating_sub(flood.began_ns);
        Self {
            since_seconds: flood.map(|flood| since(flood) as f64 / 1e9),
            peak_rate: flood.map(|flood| flood.peak_rate),
            refused: flood.map(|flood| flood.refused),
            costs: costs(between),
            clients: clients(between, flood),
        }
    }

    /// Since when, for humans; `now` is seconds since 1970.
    pub(crate) fn since(&self, now: f64) -> String {
        let (Some(seconds), Some(peak), Some(refused)) =
            (self.since_seconds, self.peak_rate, self.refused)
        else {
            return "less than two seconds ago, or it comes and goes: the instance's watch, which \
                    looks once a second, has not noted it"
                .to_owned();
        };
        let of_day = ((now - seconds).max(0.0) as u64) % 86_400;
        let (hours, minutes, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        format!(
            "{hours:02}:{minutes:02}:{second:02} UTC, for {seconds:.0} s; {} packets a second at \
             most, {} refused in all",
            short(peak),
            short(refused as f64)
        )
    }
}

/// The workers' time, and what never reached them.
fn costs(between: &ReportDifference<'_>) -> String {
    let packets = between.worker(WorkerCounter::RxPackets);
    let busy = between.worker(WorkerCounter::TurnNanos) / 1e9;
    let mut all = format!(
        "{:.1} % of a core at the workers, for {} packets and {} bytes a second",
        busy * 100.0,
        short(packets),
        short(between.device(None, "rx_bytes"))
    );
    // Of few packets the time is that of all else that a worker does.
    if packets >= FLOOD_RATE_MIN {
        let each = busy * 1e6 / packets;
        all += &format!(" ({each:.2} us a packet, services included)");
    }
    let counts = FloodKind::ALL.into_iter().flat_map(FloodKind::device_counts);
    let before: f64 = counts.map(|stat| between.device(None, stat)).sum();
    if before > 0.0 {
        all += &format!("; {} packets a second end at the interface, before them", short(before));
    }
    all
}

/// What clients notice, each part by a count.
fn clients(between: &ReportDifference<'_>, flood: Option<&FloodReport>) -> String {
    let mut all = Vec::new();
    if let Some(share) = flood.and_then(|flood| flood.honest_share) {
        all.push(format!("{:.0} % of the service before the flood goes on", share * 100.0));
    }
    let opened = between.counter("TcpPassiveOpens");
    let datagrams = between.counter("UdpInDatagrams") + between.counter("Udp6InDatagrams");
    all.push(format!(
        "{} connections open and {} datagrams are read a second",
        short(opened),
        short(datagrams)
    ));
    let by_cookie =
        between.counter("TcpExtSyncookiesRecv") + between.device(None, "rx_cookies_proven");
    if by_cookie > 0.0 {
        all.push(format!("{} of the connections open by a cookie", short(by_cookie)));
    }
    let (again, sent) = (between.counter("TcpRetransSegs"), between.counter("TcpOutSegs"));
    if again >= SENT_AGAIN_SHARE * sent.max(1.0) {
        let percent = 100.0 * again / sent.max(again);
        all.push(format!("{percent:.0} % of TCP's segments are sent again"));
    }
    let sum = |stats: [&str; 2]| stats.iter().map(|s| between.device(None, s)).sum::<f64>();
    let established = sum(ESTABLISHED_LOSSES);
    let full = between.dropped(DropReason::TcpReceiveFull.name());
    if established > 0.0 {
        let rate = short(established);
        all.push(format!(
            "{rate} packets a second of established flows over their credit are lost"
        ));
    }
    let blind = sum(BLIND_LOSSES) + between.dropped(DropReason::NoBuffer.name());
    match blind > 0.0 {
        true => {
            all.push(format!("{} packets a second are lost unseen, any client's", short(blind)))
        }
        false if established + full == 0.0 => {
            all.push("no packet of an established flow is shed".to_owned());
        }
        false => {}
    }
    all.join("; ")
}
