//! What is not an attack: applications that do not keep up, bounds, the path.

use super::{Explanation, TroubleKind};
use crate::listeners::UdpReport;
use crate::rates::{ReportDifference, short};
use floodwall_dispatch::{FLOOD_RATE_MIN, WorkerCounter};

/// Below this many events a second a rule is silent.
const EVENT_RATE_MIN: f64 = 5.0;
/// The share of segments sent again from which on the path is called lossy.
const LOSSY_SHARE: f64 = 0.02;

/// A reader that takes fewer datagrams a second than this is slow, whichever refusals its full
/// queue causes, up to so many a second: one client alone is over its share of a queue that is
/// never emptied.
const SLOW_READER: f64 = FLOOD_RATE_MIN;
const REFUSED_MAX: f64 = 50.0 * FLOOD_RATE_MIN;

/// Whether a socket refuses because it is hardly read.
pub(super) fn is_hardly_read(between: &ReportDifference<'_>, socket: &UdpReport) -> bool {
    let at = socket.local;
    let refused = between.udp(at, |u| u.full + u.over_share + u.challenged);
    let taken = between.udp(at, |u| u.taken);
    socket.waiting > 0 && (EVENT_RATE_MIN..REFUSED_MAX).contains(&refused) && taken < SLOW_READER
}

/// Queues that fill because their reader does not keep up.
pub(super) fn slow_applications(between: &ReportDifference<'_>) -> Vec<Explanation> {
    let mut all = Vec::new();
    for socket in &between.after.udp_sockets {
        let full = between.udp(socket.local, |u| u.full);
        let over = between.udp(socket.local, |u| u.over_share + u.challenged);
        // Under a flood the heavy senders are refused first; then the reader is not the reason.
        let hardly_read = is_hardly_read(between, socket);
        if !hardly_read && (full < EVENT_RATE_MIN || over > full) {
            continue;
        }
        let refused = full + over;
        let says = format!(
            "the receive queue of the socket is full, {} datagrams a second are refused: its \
             reader does not keep up",
            short(refused)
        );
        let place = socket.local.to_string();
        let finding =
            Explanation::new(TroubleKind::SlowApplication, "UDP receive queue", place, refused)
                .says(says);
        let waiting = format!("{} datagrams of {} bytes wait", socket.waiting, socket.charged);
        let taken = between.udp(socket.local, |u| u.taken);
        let finding = finding.shows("full", full).shows("over_share, challenged", over);
        all.push(finding.fact(format!("taken {}/s", short(taken))).fact(waiting));
    }
    for listener in &between.after.listeners {
        let overflow = between.counter("TcpExtListenOverflows");
        let full = listener.backlog > 0 && listener.waiting * 10 >= listener.backlog as u64 * 9;
        if !full || overflow < EVENT_RATE_MIN {
            continue;
        }
        let says = "the accept queue is full: the application accepts too slowly";
        let place = listener.local.to_string();
        let finding =
            Explanation::new(TroubleKind::SlowApplication, "accept queue", place, overflow)
                .says(says);
        let waiting = format!("{} of {} wait", listener.waiting, listener.backlog);
        all.push(finding.shows("TcpExtListenOverflows", overflow).fact(waiting));
    }
    let stuck = between.dropped("TcpReceiveFull");
    if stuck >= EVENT_RATE_MIN {
        let says = "connections' receive queues are full: their application does not read";
        let name = "TCP receive queue";
        let finding = Explanation::new(TroubleKind::SlowApplication, name, "", stuck).says(says);
        all.push(finding.shows("TcpReceiveFull", stuck));
    }
    all
}

/// A bound that reasons or counts show to be reached.
struct Bound {
    name: &'static str,
    /// Its name in `limits.rs` or the pool, and its key, if it has one.
    place: &'static str,
    remedy: &'static str,
    rate: fn(&ReportDifference<'_>) -> f64,
    counter: &'static str,
}

const BOUND_RULES: [Bound; 7] = [
    Bound {
        name: "packet memory",
        place: "the packet pool",
        remedy: "use more workers (key `workers`): each brings a pool",
        rate: |d| d.dropped("NoBuffer") + d.device(None, "rx_no_buffer"),
        counter: "NoBuffer",
    },
    Bound {
        name: "memory of all UDP sockets",
        place: "udp_memory_bytes",
        remedy: "it has no key; close sockets that are not read",
        rate: |d| d.dropped("UdpMemoryFull"),
        counter: "UdpMemoryFull",
    },
    Bound {
        name: "device ring",
        place: "the device's receive ring",
        remedy: "the workers do not keep up: more of them (key `workers` or `cores`), or more \
                 queues (key `interface.queues`)",
        rate: |d| d.device(None, "rx_ring_full"),
        counter: "rx_ring_full",
    },
    Bound {
        name: "transmit ring",
        place: "the device's transmit ring and its backlog",
        remedy: "the link takes less than is sent; see its speed and its driver's ring",
        rate: |d| d.worker(WorkerCounter::DropsDeviceFull) + d.dropped("DeviceFull"),
        counter: "drops_device_full",
    },
    Bound {
        name: "rings between workers",
        place: "the hand-off ring",
        remedy: "give the device a queue for each worker (key `interface.queues`)",
        rate: |d| {
            d.worker(WorkerCounter::DropsHandoffFrame)
                + d.worker(WorkerCounter::DropsHandoffDeparture)
                + d.dropped("HandoffFull")
        },
        counter: "drops_handoff_frame",
    },
    Bound {
        name: "connections for want of memory",
        place: "TCP's part of the packet memory",
        remedy: "use more workers (key `workers`): each brings memory",
        rate: |d| d.counter("TcpExtTCPAbortOnMemory"),
        counter: "TcpExtTCPAbortOnMemory",
    },
    Bound {
        name: "reclamation",
        place: "unlinked memory that may wait",
        remedy: "a worker does not pause; see `stat --workers`",
        rate: |d| {
            let of = |r: &crate::report::RunReport| r.reclamation.refused;
            of(d.after).saturating_sub(of(d.before)) as f64 / d.seconds
        },
        counter: "reclamation refused",
    },
];

/// Bounds that are reached.
pub(super) fn too_small(between: &ReportDifference<'_>) -> Vec<Explanation> {
    let mut all = Vec::new();
    for bound in &BOUND_RULES {
        let rate = (bound.rate)(between);
        if rate < EVENT_RATE_MIN {
            continue;
        }
        let says = format!("the bound is reached {} times a second", short(rate));
        let finding = Explanation::new(TroubleKind::TooSmall, bound.name, bound.place, rate);
        all.push(finding.says(says).remedy(bound.remedy).shows(bound.counter, rate));
    }
    let (open, max) = (between.after.connections.open, between.after.connections.max);
    if max > 0 && open >= max {
        let place = "TCP_CONNECTIONS";
        let says = format!("all {max} places for connections are taken");
        let finding =
            Explanation::new(TroubleKind::TooSmall, "TCP connections", place, open as f64);
        let remedy = "use more workers (key `workers`): each has as many places";
        all.push(finding.says(says).remedy(remedy).fact(format!("{open} of {max} are open")));
    }
    all
}

/// What could not be sent for want of a route, both families.
fn unrouted(between: &ReportDifference<'_>) -> f64 {
    between.counter("IpOutNoRoutes") + between.counter("Ip6OutNoRoutes")
}

/// Losses, MTU, neighbours, routes, links.
pub(super) fn path(between: &ReportDifference<'_>) -> Vec<Explanation> {
    let mut all = Vec::new();
    let (again, sent) = (between.counter("TcpRetransSegs"), between.counter("TcpOutSegs"));
    if again >= EVENT_RATE_MIN && again >= LOSSY_SHARE * sent {
        let percent = 100.0 * again / sent.max(again);
        let says = format!("{percent:.1} % of TCP's segments are sent again: the path loses");
        let finding = Explanation::new(TroubleKind::Path, "losses", "", again).says(says);
        all.push(finding.shows("TcpRetransSegs", again).shows("TcpOutSegs", sent));
    }
    let rules: [(&str, &[&str], &str); 4] = [
        ("MTU", &["PacketTooBig"], "packets exceed the MTU of the link that they leave by"),
        ("neighbours", &["NeighborUnreachable"], "stations of the link do not answer"),
        (
            "routes",
            &["NoRoute", "RouteUnreachable", "RouteProhibited"],
            "no route leads to some destinations; see `floodwall route get`",
        ),
        ("link down", &["InterfaceDown", "DeviceGone"], "an interface is down"),
    ];
    for (name, reasons, says) in rules {
        let dropped: f64 = reasons.iter().map(|reason| between.dropped(reason)).sum();
        // What a program or a service would have sent was refused before it was a packet.
        let refused = if name == "routes" { unrouted(between) } else { 0.0 };
        let rate = dropped.max(refused);
        if rate < EVENT_RATE_MIN {
            continue;
        }
        let mut finding = Explanation::new(TroubleKind::Path, name, "", rate).says(says);
        if refused > 0.0 {
            finding = finding.shows("OutNoRoutes", refused);
        }
        for reason in reasons {
            finding = finding.shows(reason, between.dropped(reason));
        }
        all.push(finding);
    }
    let broken = between.after.devices.iter().filter_map(|d| Some((d, d.error.as_ref()?)));
    for (device, error) in broken {
        let place = crate::output::shown(&device.ifname);
        let finding = Explanation::new(TroubleKind::Path, "device out of service", place, 0.0);
        all.push(finding.says(crate::output::shown(error)).fact("its device failed".to_owned()));
    }
    all
}
