//! The report of a running instance: one document, the same for humans and programs.
//!
//! Made by the instance ([`crate::cmd::run`]) on request, sent as JSON, and read back by `stat`.
//! Keys are stable, units are whole numbers; names of counters are nstat's where the meaning is
//! the same, names of neighbours and addresses are those of `ip -j`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use floodwall_base::{Counter, DropCounts, IfIndex, Instant};
use floodwall_device::{PlacementReport, ServiceSample};
use floodwall_dispatch::{
    Clock, ControlQueue, FloodUnderWay, PortReport, Published, Shown, WorkerCounters,
    WorkerGroupReader,
};
use floodwall_stack::{Host, Stats};
use serde::{Deserialize, Serialize};

use crate::first_line::{self, LinePartReport};
use crate::hosted;
use crate::listeners::Handshakes;
use crate::network::{AddrInfo, NetworkConfig};

/// The whole document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunReport {
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// Since the workers were started.
    pub(crate) uptime_ns: u64,
    /// The core that the only worker is pinned to.
    pub(crate) cpu: Option<usize>,
    /// Every counter, zero or not.
    pub(crate) counters: BTreeMap<String, u64>,
    /// Those reasons that have a count.
    pub(crate) drops: Vec<DropReport>,
    pub(crate) conservation: ConservationLaw,
    pub(crate) devices: Vec<DeviceReport>,
    pub(crate) neighbours: Vec<NeighbourReport>,
    /// Routers, prefixes, leases, name servers, groups, fragments; links with their addresses.
    pub(crate) network: NetworkConfig,
    /// What the loops count of themselves: sums, and the longest of what is longest.
    pub(crate) worker: BTreeMap<String, u64>,
    /// Each of them apart, in order.
    #[serde(default)]
    pub(crate) workers: Vec<WorkerReport>,
    /// How long each took to answer requests like the one for this document.
    #[serde(default)]
    pub(crate) answers: Vec<AnswerTimes>,
    /// The TCP listeners, and the outcome of their handshakes.
    #[serde(default)]
    pub(crate) listeners: Vec<crate::listeners::ListenerSettings>,
    /// The SYN cache's own counts, under FreeBSD's names.
    #[serde(default)]
    pub(crate) syncache: BTreeMap<String, u64>,
    /// The UDP sockets, as far as they are few.
    #[serde(default)]
    pub(crate) udp_sockets: Vec<crate::listeners::UdpReport>,
    /// TCP connections and their places.
    #[serde(default)]
    pub(crate) connections: crate::listeners::ConnectionUse,
    /// Memory that was unlinked and waits until every worker has paused.
    #[serde(default)]
    pub(crate) reclamation: Reclamation,
    /// The floods that are under way, as the log has them.
    #[serde(default)]
    pub(crate) floods: Vec<FloodReport>,
}

/// A flood that is under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FloodReport {
    /// Its name, as in `explain`.
    pub(crate) kind: String,
    /// The uptime at which it began.
    pub(crate) began_ns: u64,
    /// The highest rate of refused packets per second.
    pub(crate) peak_rate: f64,
    /// Packets refused since then.
    pub(crate) refused: u64,
    /// What is served meanwhile as a share of the rate before, where that is known.
    pub(crate) honest_share: Option<f64>,
}

impl FloodReport {
    fn new(flood: &FloodUnderWay, birth: &StartTime) -> Self {
        Self {
            kind: flood.kind.name().to_owned(),
            began_ns: nanos(flood.began.saturating_since(birth.started)),
            peak_rate: flood.peak,
            refused: flood.refused,
            honest_share: flood.honest_share,
        }
    }
}

/// One worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    /// The core that it is pinned to.
    pub(crate) core: Option<usize>,
    /// Since it last paused; `None` while it sleeps, and is not waited for.
    pub(crate) quiescent_age_ns: Option<u64>,
    /// Since its snapshot was taken; a worker that sleeps takes none.
    pub(crate) snapshot_age_ns: u64,
    /// What its loop counts of itself.
    pub(crate) facts: BTreeMap<String, u64>,
}

/// Upper bounds of [`AnswerTimes`] in nanoseconds.
const ANSWER_BOUNDS: [u64; 7] =
    [50_000, 200_000, 1_000_000, 5_000_000, 20_000_000, 100_000_000, 500_000_000];

/// A histogram of the time from a request to a worker until its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerTimes {
    /// Up to each bound, and over all of them.
    counts: [u64; ANSWER_BOUNDS.len() + 1],
    sum_ns: u64,
}

impl AnswerTimes {
    pub(crate) fn add(&mut self, took: Duration) {
        let took = nanos(took);
        let place = ANSWER_BOUNDS.iter().position(|bound| took <= *bound);
        self.counts[place.unwrap_or(ANSWER_BOUNDS.len())] += 1;
        self.sum_ns = self.sum_ns.saturating_add(took);
    }

    /// Bounds in seconds with their counts; the count over all of them, and the sum in seconds.
    pub(crate) fn buckets(&self) -> ([(f64, u64); ANSWER_BOUNDS.len()], (u64, f64)) {
        let one = |at: usize| (ANSWER_BOUNDS[at] as f64 / 1e9, self.counts[at]);
        let rest = (self.counts[ANSWER_BOUNDS.len()], self.sum_ns as f64 / 1e9);
        (std::array::from_fn(one), rest)
    }
}

/// Grace periods, and what waits for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reclamation {
    pub(crate) grace_last_ns: u64,
    pub(crate) grace_p99_ns: u64,
    pub(crate) grace_max_ns: u64,
    pub(crate) freed: u64,
    pub(crate) unreclaimed_items: u64,
    pub(crate) unreclaimed_bytes: u64,
    pub(crate) unreclaimed_items_max: u64,
    pub(crate) unreclaimed_bytes_max: u64,
    /// Changes that were not made, because as much waited as may.
    pub(crate) refused: u64,
}

/// Packets that were dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DropReport {
    /// `in`: it had arrived. `out`: we had made it.
    pub(crate) direction: String,
    pub(crate) reason: String,
    pub(crate) count: u64,
    pub(crate) sentence: String,
}

/// Both ledgers: every packet is accounted for exactly once. Of the whole host: what workers handed
/// over to each other is in neither side twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConservationLaw {
    pub(crate) holds: bool,
    pub(crate) arrived: u64,
    pub(crate) delivered: u64,
    pub(crate) forwarded: u64,
    pub(crate) answered: u64,
    pub(crate) merged: u64,
    pub(crate) held: u64,
    pub(crate) dropped_in: u64,
    pub(crate) originated: u64,
    pub(crate) transmitted: u64,
    pub(crate) pending: u64,
    pub(crate) dropped_out: u64,
    /// Packets of a router that its interfaces passed on, which no stack saw.
    #[serde(default)]
    pub(crate) redirected: u64,
}

impl RunReport {
    /// What each queue's interface has of the first line, by the interface's name.
    pub(crate) fn first_lines(&self) -> impl Iterator<Item = (&str, &[LinePartReport])> {
        self.devices.iter().map(|device| (&device.ifname[..], &device.first_line_parts[..]))
    }
}

/// One queue of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceReport {
    pub(crate) ifname: String,
    pub(crate) ifindex: u16,
    pub(crate) link_type: String,
    pub(crate) mtu: u32,
    /// Our station's address.
    pub(crate) address: Option<String>,
    pub(crate) addr_info: Vec<AddrInfo>,
    pub(crate) offload: bool,
    pub(crate) stats: BTreeMap<String, u64>,
    /// Of the program at the interface: `none`, `attached`, or `on-demand` while it is not there.
    #[serde(default)]
    pub(crate) first_line: String,
    /// What that program does, and why not more.
    #[serde(default)]
    pub(crate) first_line_parts: Vec<LinePartReport>,
    /// For which services the last packets were that the program dropped or answered.
    #[serde(default)]
    pub(crate) sampled: Vec<SampleReport>,
    /// Packets that wait for the device.
    pub(crate) backlog: usize,
    /// Why it is out of service.
    pub(crate) error: Option<String>,
    /// Where the kernel's half of it runs.
    #[serde(default)]
    pub(crate) kernel_half: NapiReport,
}

/// Packets of a sample that ended at the interface, for one reason and one service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SampleReport {
    /// The name of the count in `stats`.
    pub(crate) count: String,
    /// `tcp`, `udp`; empty for packets without ports.
    pub(crate) protocol: String,
    pub(crate) port: u16,
    pub(crate) frames: u64,
}

impl SampleReport {
    fn new(sample: &ServiceSample) -> Self {
        let (protocol, port) = sample.service;
        let protocol = match protocol {
            6 => "tcp",
            17 => "udp",
            _ => "",
        };
        let (count, protocol) = (sample.count.to_owned(), protocol.to_owned());
        Self { count, protocol, port, frames: sample.frames }
    }
}

/// Where the kernel's half of a device runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NapiReport {
    /// `busy-poll`, `napi-thread`, `left` or `none`.
    pub(crate) place: String,
    pub(crate) words: String,
    /// What lacks for a better one, what that costs, and the remedy.
    pub(crate) lacks: Vec<String>,
}

/// One neighbour, in the words of `ip -j neigh`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NeighbourReport {
    #[serde(rename = "dst")]
    pub(crate) addr: IpAddr,
    pub(crate) dev: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lladdr: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) router: bool,
    pub(crate) state: Vec<String>,
}

/// What only the worker can report: read on the worker's thread.
pub(crate) struct ReportRequest {
    ports: Vec<PortReport>,
    neighbours: Vec<NeighbourReport>,
    network: NetworkConfig,
    pub(crate) handshakes: Handshakes,
    pub(crate) answers: Vec<AnswerTimes>,
    pub(crate) floods: Vec<FloodUnderWay>,
}

/// Neighbours that one report names.
const NEIGHBOURS_MAX: usize = 4096;

/// Looks around at the worker's desk. Costs a system call a device and a walk over the neighbours.
pub(crate) fn ask(desk: &mut ControlQueue<'_, Shown<Host>>) -> ReportRequest {
    let ports = desk.ports();
    let stack = desk.engine.engine.stack();
    let name_of = |iface| {
        let port = ports.iter().find(|port| port.iface == iface);
        port.map_or_else(|| "lo".to_owned(), |port| port.info.name.clone())
    };
    let v4 = stack
        .neighbors_v4()
        .iter()
        .map(|n| (IpAddr::V4(n.addr), name_of(n.iface), n.link_addr, n.is_router, n.state));
    let v6 = stack
        .neighbors_v6()
        .iter()
        .map(|n| (IpAddr::V6(n.addr), name_of(n.iface), n.link_addr, n.is_router, n.state));
    let neighbours = v4
        .chain(v6)
        .take(NEIGHBOURS_MAX)
        .map(|(addr, dev, lladdr, router, state)| NeighbourReport {
            addr,
            dev,
            lladdr: lladdr.map(|mac| mac.to_string()),
            router,
            state: vec![state.name().to_owned()],
        })
        .collect();
    let network = NetworkConfig::of(stack, desk.now);
    let handshakes = Handshakes::of(stack);
    let (answers, floods) = (Vec::new(), Vec::new());
    ReportRequest { ports, neighbours, network, handshakes, answers, floods }
}

/// What does not change while the instance runs.
#[derive(Debug, Clone)]
pub(crate) struct StartTime {
    pub(crate) started: Instant,
    /// Each worker's core.
    pub(crate) cores: Vec<Option<usize>>,
    /// Where the kernel's half of each interface's device runs.
    pub(crate) placements: Vec<(IfIndex, PlacementReport)>,
}

impl ReportRequest {
    /// The devices of another worker.
    pub(crate) fn add_ports(&mut self, ports: Vec<PortReport>) {
        self.ports.extend(ports);
        self.ports.sort_by_key(|port| port.iface);
    }
}

impl RunReport {
    /// The document, out of the workers' snapshots and what they reported.
    pub(crate) fn new(birth: &StartTime, reader: &WorkerGroupReader, asked: ReportRequest) -> Self {
        let published = reader.read();
        let now = Clock::new().now();
        let stats = hosted::read(&hosted::sum(&published));
        let facts = WorkerCounters::of_all(published.iter().map(|published| &published.facts));
        let named = |(name, n): (&str, u64)| (name.to_owned(), n);
        let mut neighbours = asked.neighbours;
        neighbours.sort_by_key(|n| (n.dev.clone(), n.addr));
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_ns: nanos(now.saturating_since(birth.started)),
            cpu: match birth.cores[..] {
                [only] => only,
                _ => None,
            },
            counters: Counter::ALL
                .iter()
                .map(|counter| (counter.name().to_owned(), stats.counters.of(*counter)))
                .collect(),
            drops: drops(&stats),
            conservation: ConservationLaw {
                redirected: asked.ports.iter().map(|port| port.stats.rx_redirected).sum(),
                ..ConservationLaw::new(&stats)
            },
            devices: asked
                .ports
                .into_iter()
                .map(|port| device(&asked.network, &birth.placements, port))
                .collect(),
            neighbours,
            network: asked.network,
            worker: facts.named().map(named).collect(),
            workers: workers(birth, &published, reader, now),
            answers: asked.answers,
            listeners: asked.handshakes.listeners,
            syncache: asked.handshakes.syncache,
            udp_sockets: asked.handshakes.udp_sockets,
            connections: asked.handshakes.connections,
            reclamation: Reclamation::new(reader, now),
            floods: asked.floods.iter().map(|flood| FloodReport::new(flood, birth)).collect(),
        }
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

fn workers(
    birth: &StartTime,
    published: &[Published],
    reader: &WorkerGroupReader,
    now: Instant,
) -> Vec<WorkerReport> {
    let ages: Vec<_> = reader.domain().ages(now).collect();
    let one = |(number, published): (usize, &Published)| WorkerReport {
        core: birth.cores.get(number).copied().flatten(),
        quiescent_age_ns: ages.iter().find(|a| a.worker == number).map(|a| nanos(a.age)),
        snapshot_age_ns: nanos(now.saturating_since(published.at)),
        facts: published.facts.named().map(|(name, n)| (name.to_owned(), n)).collect(),
    };
    published.iter().enumerate().map(one).collect()
}

impl Reclamation {
    fn new(reader: &WorkerGroupReader, now: Instant) -> Self {
        let limbo = reader.domain().stats(now).limbo;
        Self {
            grace_last_ns: nanos(limbo.grace_last),
            grace_p99_ns: nanos(limbo.grace_p99),
            grace_max_ns: nanos(limbo.grace_max),
            freed: limbo.freed,
            unreclaimed_items: limbo.items as u64,
            unreclaimed_bytes: limbo.bytes as u64,
            unreclaimed_items_max: limbo.items_max as u64,
            unreclaimed_bytes_max: limbo.bytes_max as u64,
            refused: limbo.refused,
        }
    }
}

/// What a stack has dropped, by direction and reason.
pub(crate) fn drops(stats: &Stats) -> Vec<DropReport> {
    let side = |direction: &'static str, counts: &DropCounts| {
        let drop = |(reason, count): (floodwall_base::DropReason, u64)| DropReport {
            direction: direction.to_owned(),
            reason: reason.name().to_owned(),
            count,
            sentence: reason.sentence().to_owned(),
        };
        counts.nonzero().map(drop).collect::<Vec<_>>()
    };
    let mut all = side("in", &stats.drops_in);
    all.extend(side("out", &stats.drops_out));
    all
}

impl ConservationLaw {
    /// Of the sum over all workers. A packet that one hands over and another takes over has arrived
    /// (or was made) once; on its way between them it is in neither's figures.
    pub(crate) fn new(stats: &Stats) -> Self {
        let outcomes = &stats.outcomes;
        let net = |own: u64, adopted: u64, handed: u64| (own + adopted).saturating_sub(handed);
        Self {
            holds: stats.conservation().holds(),
            arrived: net(outcomes.received, outcomes.adopted_in, outcomes.handed_in),
            delivered: outcomes.delivered,
            forwarded: outcomes.forwarded,
            answered: outcomes.answered,
            merged: outcomes.merged,
            held: stats.held,
            dropped_in: stats.drops_in.total(),
            originated: net(outcomes.originated, outcomes.adopted_out, outcomes.handed_out),
            transmitted: outcomes.transmitted,
            pending: stats.pending,
            dropped_out: stats.drops_out.total(),
            redirected: 0,
        }
    }
}

fn device(
    network: &NetworkConfig,
    placements: &[(IfIndex, PlacementReport)],
    port: PortReport,
) -> DeviceReport {
    let placement = placements.iter().find(|(iface, _)| *iface == port.iface);
    let kernel_half = placement.map(|(_, placement)| NapiReport {
        place: placement.place.to_owned(),
        words: placement.words.clone(),
        lacks: placement.lacks.iter().map(ToString::to_string).collect(),
    });
    let link = network.links.iter().find(|link| link.ifindex == port.iface.0);
    DeviceReport {
        ifname: port.info.name,
        ifindex: port.iface.0,
        link_type: link.map_or("none", |link| link.link_type.as_str()).to_owned(),
        mtu: link.map_or(port.info.mtu, |link| link.mtu),
        address: link.and_then(|link| link.address.clone()),
        addr_info: link.map(|link| link.addr_info.clone()).unwrap_or_default(),
        offload: port.info.offload,
        stats: port.stats.named().map(|(name, n)| (name.to_owned(), n)).into(),
        first_line: port.first_line.name().to_owned(),
        first_line_parts: first_line::parts(&port.first_line_parts),
        sampled: port.sampled.iter().map(SampleReport::new).collect(),
        backlog: port.backlog,
        error: port.error,
        kernel_half: kernel_half.unwrap_or_default(),
    }
}
