//! The kinds of floods, and the counters that tell them.

use super::at_interface::{self, services};
use super::{AttackFacts, Explanation, TroubleKind};
use crate::rates::{ReportDifference, short};
use floodwall_dispatch::{FLOOD_RATE_MIN, FloodKind, WorkerCounter};

/// Below this many refusals a second nothing is called a flood.
const REFUSAL_RATE_MIN: f64 = FLOOD_RATE_MIN;

/// Floods that drop reasons alone tell.
pub(super) const TOLD_FLOODS: [FloodKind; 6] = [
    FloodKind::Fragments,
    FloodKind::Icmp,
    FloodKind::Malformed,
    FloodKind::NoConnection,
    FloodKind::ClosedPorts,
    FloodKind::Neighbors,
];

/// Every flood that is under way.
pub(super) fn attacks(between: &ReportDifference<'_>) -> Vec<Explanation> {
    let mut all: Vec<_> =
        TOLD_FLOODS.iter().filter_map(|kind| by_reasons(between, *kind)).collect();
    all.extend(syn_flood(between));
    all.extend(udp_floods(between));
    if all.is_empty() {
        all.extend(shed(between));
    }
    for finding in &mut all {
        finding.attack = Some(AttackFacts::new(between, &finding.name));
    }
    all
}

fn by_reasons(between: &ReportDifference<'_>, kind: FloodKind) -> Option<Explanation> {
    let mut rate: f64 = kind.reasons().iter().map(|reason| between.dropped(reason.name())).sum();
    rate += kind.device_counts().iter().map(|stat| between.device(None, stat)).sum::<f64>();
    if rate < REFUSAL_RATE_MIN {
        return None;
    }
    let says = format!("{}, {} a second", kind.sentence(), short(rate));
    let services = services(between, kind.device_counts());
    let place = at_interface::place(&services, rate, between.after);
    let mut finding = Explanation::new(TroubleKind::Attack, kind.name(), place, rate).says(says);
    for reason in kind.reasons() {
        finding = finding.shows(reason.name(), between.dropped(reason.name()));
    }
    Some(shows_interface(finding, between, kind))
}

/// Adds the counts of the devices to the evidence.
fn shows_interface(
    finding: Explanation,
    between: &ReportDifference<'_>,
    kind: FloodKind,
) -> Explanation {
    let counts = kind.device_counts();
    let rate = |stat| between.device(None, stat);
    let finding = counts.iter().fold(finding, |finding, stat| finding.shows(stat, rate(stat)));
    let all = counts.iter().map(|stat| rate(stat)).sum();
    let evidence = at_interface::evidence(&services(between, counts), all, between.after);
    evidence.into_iter().fold(finding, Explanation::fact)
}

/// SYNs that are not completed: cookies sent, entries displaced, far more than connections opened.
fn syn_flood(between: &ReportDifference<'_>) -> Option<Explanation> {
    let cookies = between.counter("TcpExtSyncookiesSent");
    let answered = between.device(None, "rx_syns_answered");
    let drops = between.counter("TcpExtListenDrops");
    let overflow = between.counter("TcpExtListenOverflows");
    let refused = between.dropped("TcpHandshakeRefused");
    let opens = between.counter("TcpPassiveOpens");
    // A full accept queue refuses handshakes, too: that is the application's.
    let rate = cookies + answered + (drops.max(refused) - overflow).max(0.0);
    if rate < REFUSAL_RATE_MIN || rate < 4.0 * opens {
        return None;
    }
    let sent = |l: &crate::listeners::ListenerSettings| {
        between.listener(l.local, |l| l.cookies_sent + l.refused)
    };
    let worst = between.after.listeners.iter().max_by(|a, b| sent(a).total_cmp(&sent(b)));
    // The workers know what they answered themselves; the rest is sampled.
    let sampled = services(between, FloodKind::Syn.device_counts());
    let sampled = at_interface::place(&sampled, answered, between.after);
    let place = match worst.filter(|l| sent(l) > 0.0) {
        Some(l) if sent(l) > answered || sampled.is_empty() => l.local.to_string(),
        _ => sampled,
    };
    let says = format!(
        "{} SYNs a second are answered by cookies or refused, {} connections a second open all \
         the same",
        short(rate),
        short(opens)
    );
    let finding =
        Explanation::new(TroubleKind::Attack, FloodKind::Syn.name(), place, rate).says(says);
    Some(
        shows_interface(finding, between, FloodKind::Syn)
            .shows("TcpExtSyncookiesSent", cookies)
            .shows("TcpExtListenDrops", drops)
            .shows("TcpHandshakeRefused", refused)
            .shows("TcpPassiveOpens", opens),
    )
}

/// Sockets that refuse their heavy senders.
fn udp_floods(between: &ReportDifference<'_>) -> Vec<Explanation> {
    let mut all = Vec::new();
    for socket in &between.after.udp_sockets {
        let over = between.udp(socket.local, |u| u.over_share);
        let challenged = between.udp(socket.local, |u| u.challenged);
        let rate = over + challenged;
        if rate < REFUSAL_RATE_MIN || super::bounds::is_hardly_read(between, socket) {
            continue;
        }
        let says = format!(
            "{} datagrams a second of senders over their share are refused, light senders are \
             preferred",
            short(rate)
        );
        let place = socket.local.to_string();
        let finding =
            Explanation::new(TroubleKind::Attack, FloodKind::Udp.name(), place, rate).says(says);
        let finding = finding.shows("over_share", over).shows("challenged", challenged);
        all.push(finding.shows("full", between.udp(socket.local, |u| u.full)));
    }
    all
}

/// Overload that no service and no reason explains: packets of unverified flows are shed.
fn shed(between: &ReportDifference<'_>) -> Option<Explanation> {
    let unknown = between.worker(WorkerCounter::DropsTriageUnknown);
    let refusable = between.worker(WorkerCounter::DropsTriageRejectable);
    let at_interface = FloodKind::Overload.device_counts().iter();
    let at_interface: f64 = at_interface.map(|stat| between.device(None, stat)).sum();
    let rate = unknown + refusable + at_interface;
    if rate < REFUSAL_RATE_MIN {
        return None;
    }
    let says = format!(
        "{} packets a second of unverified flows are shed, established flows go first",
        short(rate)
    );
    let services = services(between, FloodKind::Overload.device_counts());
    let place = at_interface::place(&services, rate, between.after);
    let finding =
        Explanation::new(TroubleKind::Attack, FloodKind::Overload.name(), place, rate).says(says);
    let finding =
        finding.shows("drops_triage_unknown", unknown).shows("drops_triage_rejectable", refusable);
    Some(shows_interface(finding, between, FloodKind::Overload))
}
