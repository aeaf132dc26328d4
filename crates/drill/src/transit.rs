//! A router under floods, in virtual time: honest flows through it while unverified sources send to
//! random destinations behind it, to random ones on its own link, or with a hop limit that ends
//! there.
//!
//! Called by `run.rs` through the simulated bench, for four phases of the drill. A world of its own
//! for each: honest clients, attackers and an echo service on the links of one router, which is
//! the product's stack, priced by the cost table, beside a program that always wants its core.
//! Attackers offer the drill's share of what the router takes, which is measured first. Invariant:
//! the same seed gives the same report. Criteria: honest questions answered, both ledgers balanced,
//! memory back; judged with all others'.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, IpCidr, MacAddr, Randomness};
use floodwall_packet::{Pool, PoolConfig};
use floodwall_pktgen::{
    AddrRange, Blast, Content, Flows, Honest, HonestConfig, Pace, Peer, Plan, StationConfig, Stream,
};
use floodwall_schedule::GateConfig;
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{
    Application as Service, Host, HostError, InterfaceConfig, LinkMedium, Stack, StackConfig,
    StaticRoute, accounts_needed,
};
use floodwall_world::{
    CostTable, LaneConfig, LinkConfig, NodeConfig, NodeId, SimulatedApplication, World,
};

use crate::bench::rate;
use crate::error::DrillError;
use crate::honest::SentQuestion;
use crate::report::{HonestReport, PhaseReport};
use crate::server::{FreeFrames, ServerConfig};
use crate::topology::{self, FAMILIES};

/// Honest questions a second, of each family.
const QUESTION_RATE: u64 = 5_000;
/// Before the flood begins: neighbours are found.
const WARM_UP: Duration = Duration::from_millis(5);
/// How long what a router takes is measured.
const PROBE_TIME: Duration = Duration::from_millis(4);
/// Packets a second while it is: more than it takes.
const PROBE_RATE: u64 = 5_000_000;
/// One way of each link.
const LINK_DELAY: Duration = Duration::from_micros(20);
/// How long an answer is waited for.
const ANSWER_PATIENCE: Duration = Duration::from_millis(50);
/// How long a neighbour that does not answer is probed, and a little more.
const GIVEN_UP: Duration = Duration::from_secs(5);
/// Packets of the router's receive ring.
const RX_RING: usize = 4096;
/// The links: of the IPv4 client, of attackers, of the service, of the IPv6 client.
const TRANSIT_LINKS: [u8; 4] = [0, 1, 2, 3];

/// Where attackers send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TransitKind {
    /// To random destinations behind the service's link, so many packets each.
    Routed(u32),
    /// To random destinations of that link itself: a /16 and a /64.
    OnLink,
    /// To random destinations behind it, but their hop limit ends at the router.
    LastHop,
}

const TRANSIT_PHASES: [(&str, &str, TransitKind); 4] = [
    ("routed, 1 each", "a router: random destinations behind it", TransitKind::Routed(1)),
    ("routed, 10 each", "the same, ten packets to each", TransitKind::Routed(10)),
    ("on its link", "a router: random destinations on a /16 and a /64", TransitKind::OnLink),
    ("last hop", "a router: packets with a hop limit that ends there", TransitKind::LastHop),
];

/// What a phase has shown.
pub(crate) struct CrossedPackets {
    pub(crate) phase: PhaseReport,
    /// What was wrong with the router's ledgers or memory at its end.
    pub(crate) violation: Option<String>,
}

/// The four phases, each of `length`; floods offer `load` of what the router takes.
pub(crate) fn phases(
    server: &ServerConfig,
    costs: CostTable,
    (length, load): (Duration, f64),
    seed: u64,
) -> Result<Vec<CrossedPackets>, DrillError> {
    let one = |(name, what, kind)| {
        let topology = TransitTopology { server, costs, kind, seed };
        let taken = topology.capacity()?.max(1);
        let planned = ((taken as f64 * load) as u64).max(1);
        topology.phase(length, planned).map(|crossed| {
            let phase = PhaseReport { name, what, capacity_pps: Some(taken), ..crossed.phase };
            CrossedPackets { phase, ..crossed }
        })
    };
    TRANSIT_PHASES.into_iter().map(one).collect()
}

struct TransitTopology<'a> {
    server: &'a ServerConfig,
    costs: CostTable,
    kind: TransitKind,
    seed: u64,
}

struct BuiltTransit {
    world: World,
    router: NodeId,
    attackers: NodeId,
    /// Of each family.
    clients: [NodeId; 2],
}

const fn mac(link: u8, host: u8) -> MacAddr {
    MacAddr([2, 0xf2, 0, 0, link, host])
}

/// A host of a link; number 1 is the router. All of it is in the ranges for benchmarks.
fn addr(link: u8, family: Family, host: u8) -> IpAddr {
    match family {
        // The third is a /16 with the router and the service in its first /24.
        Family::V4 if link == 2 => IpAddr::from([198, 19, 0, host]),
        Family::V4 => IpAddr::from([198, 18, link, host]),
        Family::V6 => {
            IpAddr::from([0x2001, 2, 0, 0x20 + u16::from(link), 0, 0, 0, u16::from(host)])
        }
    }
}

fn prefix(link: u8, family: Family, host: u8) -> Option<IpCidr> {
    let len = match family {
        Family::V4 if link == 2 => 16,
        Family::V4 => 24,
        Family::V6 => 64,
    };
    IpCidr::new(addr(link, family, host), len)
}

/// Destinations behind the service's link.
const DESTINATIONS_BEHIND: [&str; 2] = ["198.18.128.0/17", "2001:2:0:8000::/49"];

/// The link of the honest client of a family.
const fn home(family: Family) -> u8 {
    if matches!(family, Family::V4) { 0 } else { 3 }
}

/// The router's interface to a link.
const fn port(link: u8) -> IfIndex {
    IfIndex(link as u16 + 1)
}

fn interface(link: u8, host: u8) -> InterfaceConfig {
    InterfaceConfig {
        name: format!("eth{link}"),
        medium: LinkMedium::Ethernet(mac(link, host)),
        addresses: FAMILIES.into_iter().filter_map(|family| prefix(link, family, host)).collect(),
        ..InterfaceConfig::default()
    }
}

impl TransitTopology<'_> {
    fn router() -> StackConfig {
        let route = |(text, family): (&&str, Family)| {
            Some(StaticRoute {
                prefix: text.parse().ok()?,
                via: Some(addr(2, family, 2)),
                iface: 2,
            })
        };
        StackConfig {
            interfaces: TRANSIT_LINKS.into_iter().map(|link| interface(link, 1)).collect(),
            routes: DESTINATIONS_BEHIND.iter().zip(FAMILIES).filter_map(route).collect(),
            ipv4_forwarding: true,
            ipv6_forwarding: true,
            duplicate_address_detection: false,
            ..StackConfig::default()
        }
    }

    /// The echo service, with default routes that lead back.
    fn service(&self) -> Result<(Host, Pool), DrillError> {
        let own = interface(2, 2);
        let gateways = FAMILIES.map(|family| addr(2, family, 1)).to_vec();
        let config = StackConfig {
            interfaces: vec![InterfaceConfig { gateways, ..own }],
            duplicate_address_detection: false,
            ..StackConfig::default()
        };
        let pool = Pool::new(&PoolConfig {
            accounts: accounts_needed(&config),
            frames: 2 * RX_RING,
            ..PoolConfig::default()
        })?;
        let mut services: Vec<Box<dyn Service>> = Vec::new();
        if self.server.service {
            services.push(Box::new(UdpService::new(ServiceKind::Echo, topology::SERVICE_PORT)));
        }
        let mut random = Randomness::from_number(self.seed);
        let host = Host::new(&config, services, &pool, &mut random, Instant::ORIGIN)?;
        Ok((host, pool))
    }

    fn client(&self, family: Family, length: Duration) -> Result<Honest, DrillError> {
        let (link, host) = (home(family), 2);
        let half = Duration::from_nanos(500_000_000 / QUESTION_RATE);
        let bits = if family == Family::V4 { 32 } else { 128 };
        Ok(Honest::new(HonestConfig {
            station: StationConfig {
                mac: mac(link, host),
                addrs: IpCidr::new(addr(link, family, host), bits).into_iter().collect(),
                peer: Peer::Addr(addr(link, family, 1)),
                ..StationConfig::default()
            },
            servers: vec![SocketAddr::new(addr(2, family, 2), topology::SERVICE_PORT)],
            pace: Pace::per_second(QUESTION_RATE),
            start_after: if family == Family::V6 { WARM_UP + half } else { WARM_UP },
            stop_after: Some(WARM_UP + length),
            timeout: ANSWER_PATIENCE,
            ..HonestConfig::default()
        })?)
    }

    /// Attackers that send so many packets a second, half of each family.
    fn attackers(&self, rate: u64, length: Duration) -> Result<Blast, DrillError> {
        let stream = |(at, family): (usize, Family)| {
            let to: AddrRange = match self.kind {
                TransitKind::OnLink => prefix(2, family, 1).map(AddrRange::from)?,
                _ => DESTINATIONS_BEHIND.get(at)?.parse().ok()?,
            };
            let from = AddrRange::from(prefix(1, family, 2)?);
            let pace = Pace::per_second((rate / 2).max(1));
            let plain = Stream::new(Content::Udp, from, to, pace);
            let start_after = 2 * WARM_UP;
            let stop_after = Some(start_after + length);
            Some(match self.kind {
                TransitKind::Routed(flow_packets) => {
                    let flows = Some(Flows { count: 1024, in_sequence: false });
                    Stream { flow_packets, flows, start_after, stop_after, ..plain }
                }
                TransitKind::OnLink => Stream { start_after, stop_after, ..plain },
                TransitKind::LastHop => Stream { hop_limit: 1, start_after, stop_after, ..plain },
            })
        };
        let streams = FAMILIES.into_iter().enumerate().filter_map(stream).collect();
        let station = StationConfig {
            mac: mac(1, 2),
            addrs: FAMILIES.into_iter().filter_map(|family| prefix(1, family, 2)).collect(),
            peer: Peer::Link(mac(1, 1)),
            ..StationConfig::default()
        };
        Ok(Blast::new(Plan { station, streams })?)
    }

    fn build(&self, rate: u64, length: Duration) -> Result<BuiltTransit, DrillError> {
        let mut world = World::new(self.seed);
        let (config, mut random) = (Self::router(), Randomness::from_number(self.seed));
        let pool = Pool::new(&PoolConfig {
            small: 2 * RX_RING + 4096,
            accounts: accounts_needed(&config),
            ..PoolConfig::default()
        })?;
        let stack = Stack::new(&config, &mut random, Instant::ORIGIN).map_err(HostError::from)?;
        let core = NodeConfig {
            costs: self.costs,
            ring: RX_RING,
            balance: self.server.balance(),
            gate: Some(GateConfig::default()),
            application: Some(SimulatedApplication::HUNGRY),
            ..NodeConfig::default()
        };
        let router = world.add_node_with("router", stack, pool, core);
        let node = NodeConfig { ring: 4 * RX_RING, ..NodeConfig::free() };
        let memory = || {
            Pool::new(&PoolConfig {
                frames: 2 * RX_RING,
                small: 4 * RX_RING,
                ..PoolConfig::default()
            })
        };
        let (host, pool) = self.service()?;
        let service = world.add_node_with("service", host, pool, node);
        let blast = self.attackers(rate, length)?;
        let attackers = world.add_node_with("attackers", blast, memory()?, node);
        for node in [router, attackers] {
            world.permit_tcp_fragments(node);
        }
        let mut joined = vec![(service, 2), (attackers, 1)];
        let mut clients = [attackers; 2];
        for (place, family) in clients.iter_mut().zip(FAMILIES) {
            let client = self.client(family, length)?;
            *place = world.add_node_with("client", client, memory()?, node);
            joined.push((*place, home(family)));
        }
        let way = LinkConfig::both(LaneConfig::with_delay(LINK_DELAY));
        for (node, link) in joined {
            world.connect((node, IfIndex(1)), (router, port(link)), way)?;
        }
        Ok(BuiltTransit { world, router, attackers, clients })
    }

    /// The flood for `length` at this rate, with honest clients about.
    fn phase(&self, length: Duration, planned: u64) -> Result<CrossedPackets, DrillError> {
        let mut built = self.build(planned, length)?;
        let world = &mut built.world;
        let free = |world: &World| world.pool(built.router).map(FreeFrames::of).unwrap_or_default();
        let before = free(world);
        let lead = 2 * WARM_UP;
        world.run_for(lead);
        let ran = world.node_stats(built.router).application_ran;
        world.run_for(length);
        let node = world.node_stats(built.router);
        let share = (node.application_ran - ran).as_secs_f64() / length.as_secs_f64().max(1e-9);
        // Answers have their time, and neighbours that do not exist are given up.
        world.run_for(ANSWER_PATIENCE + GIVEN_UP);
        let families = FAMILIES.into_iter().zip(built.clients);
        let row = |(family, client): (Family, NodeId)| {
            let honest = world.node_ref::<Honest>(client)?;
            Some(HonestReport::new(family, &SentQuestion::of(honest.stats(), honest.latency())))
        };
        let honest: Vec<HonestReport> = families.filter_map(row).collect();
        let blast = world.node_ref::<Blast>(built.attackers);
        let (offered, returned) =
            blast.map_or((0, 0), |blast| (blast.stats().sent, blast.returned().total()));
        let law = world.node_ref::<Stack>(built.router).map(|stack| stack.stats().conservation());
        let in_use = free(world).in_use_since(&before);
        let violation = match law {
            Some(law) if !law.holds() => Some(format!("the router's ledgers: {law:?}")),
            _ if in_use > 0 => Some(format!("{in_use} pieces of the router's memory are gone")),
            _ => None,
        };
        let phase = PhaseReport {
            application_share: Some(share),
            application_gap_nanos: node.application_gap_max.as_nanos() as u64,
            planned_pps: planned,
            offered_pps: rate(offered, length),
            offered,
            returned,
            honest,
            ..PhaseReport::default()
        };
        Ok(CrossedPackets { phase, violation })
    }

    /// Packets a second that the router takes where more are offered.
    fn capacity(&self) -> Result<u64, DrillError> {
        let mut built = self.build(PROBE_RATE, PROBE_TIME)?;
        built.world.run_for(2 * WARM_UP + PROBE_TIME / 4);
        let before = built.world.node_stats(built.router).packets_in;
        built.world.run_for(PROBE_TIME / 2);
        let taken = built.world.node_stats(built.router).packets_in - before;
        Ok(rate(taken, PROBE_TIME / 2))
    }
}
