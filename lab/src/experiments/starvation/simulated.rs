//! The flooded core in virtual time: one host with an application on its core, an established peer,
//! and a flood.
//!
//! Called by `starvation.rs` for each variant and load. The host is the product's own stack on a
//! node of `floodwall-world`, priced by its cost table; the established peer sends requests on
//! flows known to the host, unverified sources send from random addresses to a program that works
//! on each of their datagrams; both families alike. Each side has a link of its own, and both end
//! in one device ring. Exact: the same seed gives the same numbers on any machine.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodwall_base::{Family, IfIndex, Instant, IpCidr, MacAddr, Prefix, Randomness, Units};
use floodwall_packet::{Pool, PoolConfig};
use floodwall_pktgen::{
    AddrRange, Blast, Content, Honest, HonestConfig, Pace, Peer, Plan, PortRange, StationConfig,
    Stream,
};
use floodwall_schedule::{BalanceConfig, GateConfig, Share};
use floodwall_stack::{
    Application as Service, Host, InterfaceConfig, LinkMedium, StackConfig, accounts_needed,
};
use floodwall_world::{
    CostTable, LaneConfig, LinkConfig, LinkId, NodeConfig, NodeId, SimulatedApplication, Spent,
    World,
};

use super::Variant;
use crate::error::LabError;
use crate::experiments::service::{Answers, Toil};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// The interface of the established peer, and that of the flood.
const IFACES: [IfIndex; 2] = [IfIndex(1), IfIndex(2)];
/// The port of the established peer's requests, and the port of the flood.
pub(super) const PORTS: [u16; 2] = [7, 9];
/// The source port of the established peer's requests.
const FRIEND_PORT: u16 = 40_000;
/// Packets a second, more than any core here looks at.
const BOUNDLESS: u64 = 40_000_000;
/// How long the established peer waits for an answer.
const PATIENCE: Duration = Duration::from_millis(20);
/// One way between anybody and the host.
const DELAY: Duration = Duration::from_micros(20);

/// What is the same at every point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// What of the core is promised to the application.
    pub(super) share: Share,
    /// Packets that wait in the device.
    pub(super) ring: usize,
    /// How long the program works on each unverified datagram.
    pub(super) toil: Duration,
    /// The established peer's requests a second.
    pub(super) established_rate: u64,
    /// How long the established peer sends requests.
    pub(super) length: Duration,
    pub(super) seed: u64,
}

/// What one variant made of one load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    /// How long everything lasted.
    pub(super) length: Duration,
    /// What the application lacks of what it was promised: part of the last period at most.
    pub(super) app_owed: Duration,
    /// The application's part of the time.
    pub(super) app_share: f64,
    /// The longest that it wanted the core in vain.
    pub(super) app_gap: Duration,
    /// The longest run of the worker without a break.
    pub(super) run_max: Duration,
    /// The established peer's requests, and those answered in time.
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// Of the answers, how long the slowest hundredth took at least.
    pub(super) p99: Duration,
    /// Unverified datagrams a second that were worked on.
    pub(super) unverified_served: f64,
    /// Packets that found the ring full, of those offered.
    pub(super) ring_full: f64,
    /// Packets dropped in triage, of those offered.
    pub(super) refused: f64,
}

impl Point {
    /// The established peer's goodput.
    pub(super) fn goodput(&self) -> f64 {
        self.answered as f64 / (self.asked as f64).max(1.0)
    }
}

fn station(side: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, side as u8])
}

pub(super) fn host_mac(side: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, side as u8])
}

/// An address of a side: number 1 is the host's.
fn addr(side: usize, family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, side as u8 + 1, 0, number]),
        Family::V6 => IpAddr::from([0xfd00 + side as u16 + 1, 0, 0, 0, 0, 0, 0, number.into()]),
    }
}

fn cidr(side: usize, family: Family, number: u8) -> Option<IpCidr> {
    IpCidr::new(addr(side, family, number), if family == Family::V4 { 16 } else { 64 })
}

/// The source addresses of the flood: the upper half of the link's prefix.
fn unverified_addrs(family: Family) -> Result<AddrRange, LabError> {
    let range = match addr(1, family, 0) {
        IpAddr::V4(addr) => {
            let upper = (u32::from(addr) | 1 << 15).into();
            Prefix::new(upper, 17).map(AddrRange::V4)
        }
        IpAddr::V6(addr) => {
            let upper = (u128::from(addr) | 1 << 63).into();
            Prefix::new(upper, 65).map(AddrRange::V6)
        }
    };
    range.ok_or(LabError::Scene("a prefix".to_owned()))
}

/// The host's addresses on the flood's link, with their prefixes, as `ip` writes them.
pub(super) fn unverified_side() -> Vec<String> {
    let text = |family: &Family| {
        let len = if *family == Family::V4 { 16 } else { 64 };
        format!("{}/{len}", addr(1, *family, 1))
    };
    FAMILIES.iter().map(text).collect()
}

/// One host, its established peer and its flood.
struct Built {
    world: World,
    host: NodeId,
    established: NodeId,
    links: [LinkId; 2],
    /// Unverified datagrams that were worked on.
    served: Arc<AtomicU64>,
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

pub(super) fn stack() -> StackConfig {
    let interface = |side: usize| InterfaceConfig {
        name: ["established0", "unverified0"].get(side).copied().unwrap_or_default().to_owned(),
        medium: LinkMedium::Ethernet(host_mac(side)),
        addresses: FAMILIES.iter().filter_map(|family| cidr(side, *family, 1)).collect(),
        ..InterfaceConfig::default()
    };
    StackConfig {
        interfaces: vec![interface(0), interface(1)],
        udp_sockets_max: 16,
        duplicate_address_detection: false,
        ..StackConfig::default()
    }
}

impl Scene {
    /// How many unverified datagrams a second this host serves while more arrive, with the core for
    /// itself.
    ///
    /// # Errors
    /// The scene cannot be made.
    pub(super) fn capacity(&self) -> Result<u64, LabError> {
        let alone = Self { established_rate: 1, length: Duration::from_millis(20), ..*self };
        let mut built = alone.build(None, BOUNDLESS / 2)?;
        // Once the ring is full, it stays full.
        let start = Duration::from_millis(5);
        built.world.run_for(start);
        let before = built.served.load(Ordering::Relaxed);
        built.world.run_for(alone.length - start);
        let served = built.served.load(Ordering::Relaxed) - before;
        Ok((served as f64 / (alone.length - start).as_secs_f64()) as u64)
    }

    /// How many packets a second triage looks at while more arrive, with established flows present
    /// and the core shared: its capacity.
    ///
    /// # Errors
    /// The scene cannot be made.
    pub(super) fn triage(&self) -> Result<u64, LabError> {
        let mut built = self.build(Some(Variant::Both), BOUNDLESS)?;
        let (start, length) = (Duration::from_millis(5), Duration::from_millis(10));
        built.world.run_for(start);
        let before = built.world.node_stats(built.host).looked_at;
        built.world.run_for(length);
        let looked_at = built.world.node_stats(built.host).looked_at - before;
        Ok((looked_at as f64 / length.as_secs_f64()) as u64)
    }

    /// The outcome for all parties of a flood of `rate` packets a second.
    ///
    /// # Errors
    /// The scene cannot be made.
    pub(super) fn measure(&self, variant: Variant, rate: u64) -> Result<Point, LabError> {
        let mut built = self.build(Some(variant), rate)?;
        // The flood goes on until each question has been answered, or has not.
        let length = self.length + PATIENCE + DELAY;
        built.world.run_for(length);
        let stats = built.world.node_stats(built.host);
        let honest = built.world.node_ref::<Honest>(built.established);
        let honest = honest.ok_or(LabError::Scene("the established peer is gone".to_owned()))?;
        let [established, unverified] = built.links.map(|link| built.world.stats(link).from_a);
        let offered = (established.sent + unverified.sent).max(1) as f64;
        let not_served = stats.refused + stats.crowded_out;
        let seconds = length.as_secs_f64();
        let promised = if variant.balances() { self.share } else { Share::NONE };
        let owed = promised.of_time(length).saturating_sub(stats.application_ran);
        Ok(Point {
            length,
            app_owed: owed,
            app_share: stats.application_ran.as_secs_f64() / seconds,
            app_gap: stats.application_gap_max,
            run_max: stats.run_max,
            asked: honest.stats().intended,
            answered: honest.stats().answered,
            p99: honest.latency().quantile(0.99).unwrap_or_default(),
            unverified_served: built.served.load(Ordering::Relaxed) as f64 / seconds,
            ring_full: (established.ring_full + unverified.ring_full) as f64 / offered,
            refused: not_served as f64 / offered,
        })
    }

    /// The world; without a variant, only the worker has the core.
    fn build(&self, variant: Option<Variant>, rate: u64) -> Result<Built, LabError> {
        let mut world = World::new(self.seed);
        let config = stack();
        let sizes = PoolConfig {
            small: 2 * self.ring + 4096,
            accounts: accounts_needed(&config),
            ..PoolConfig::default()
        };
        let (pool, mut random) = (Pool::new(&sizes)?, Randomness::from_number(self.seed));
        let flow = |family| {
            let at = |number, port| SocketAddr::new(addr(0, family, number), port);
            (at(1, PORTS[0]), at(2, FRIEND_PORT))
        };
        let unit = CostTable::default().price(&Spent { units: Units(1), ..Spent::default() });
        let units = (self.toil.as_nanos() as u64 * 1000).checked_div(unit.0).unwrap_or(0);
        let (units, served) = (u32::try_from(units).unwrap_or(u32::MAX), Arc::default());
        let toil = Toil::new(PORTS[1], units, Arc::clone(&served));
        let services: Vec<Box<dyn Service>> =
            vec![Box::new(Answers::new(FAMILIES.map(flow).to_vec())), Box::new(toil)];
        let mut host =
            Host::new(&config, services, &pool, &mut random, Instant::ORIGIN).map_err(wrong)?;
        for family in FAMILIES {
            let established = addr(0, family, 2);
            let stack = host.stack_mut();
            stack
                .add_neighbor(IFACES[0], established, station(0), Instant::ORIGIN)
                .map_err(wrong)?;
        }
        let host = world.add_node_with("host", host, pool, self.core(variant));
        let free = || -> Result<(Pool, NodeConfig), LabError> {
            let sizes = PoolConfig { frames: 8192, ..PoolConfig::default() };
            Ok((Pool::new(&sizes)?, NodeConfig { ring: 8192, ..NodeConfig::free() }))
        };
        let (memory, core) = free()?;
        let established = world.add_node_with("established", self.honest()?, memory, core);
        let (memory, core) = free()?;
        let unverified =
            world.add_node_with("unverified", unverified(rate, host_mac(1))?, memory, core);
        let way = LinkConfig::both(LaneConfig::with_delay(DELAY));
        let mut join = |node, iface| world.connect((node, IfIndex(1)), (host, iface), way);
        let links = [join(established, IFACES[0]), join(unverified, IFACES[1])];
        let [asked, others] = links;
        let links = [asked.map_err(wrong)?, others.map_err(wrong)?];
        Ok(Built { world, host, established, links, served })
    }

    fn core(&self, variant: Option<Variant>) -> NodeConfig {
        let mut config = NodeConfig { ring: self.ring, ..NodeConfig::default() };
        let Some(variant) = variant else { return config };
        config.application = Some(SimulatedApplication::HUNGRY);
        if variant.balances() {
            config.balance = Some(BalanceConfig { share: self.share, ..BalanceConfig::default() });
        }
        if variant.triages() {
            config.gate = Some(GateConfig::default());
        }
        config
    }

    fn honest(&self) -> Result<Honest, LabError> {
        let service = |family| SocketAddr::new(addr(0, family, 1), PORTS[0]);
        Honest::new(HonestConfig {
            station: StationConfig {
                mac: station(0),
                addrs: FAMILIES.iter().filter_map(|family| cidr(0, *family, 2)).collect(),
                peer: Peer::Link(host_mac(0)),
                ..StationConfig::default()
            },
            servers: FAMILIES.map(service).to_vec(),
            src_ports: PortRange::one(FRIEND_PORT),
            pace: Pace::per_second(self.established_rate),
            stop_after: Some(self.length),
            timeout: PATIENCE,
            ..HonestConfig::default()
        })
        .map_err(wrong)
    }
}

/// Unverified sources that send so many packets a second to the station `host`, half of each
/// family.
///
/// # Errors
/// The scene cannot be made.
pub(super) fn unverified(rate: u64, host: MacAddr) -> Result<Blast, LabError> {
    let mut streams = Vec::new();
    for family in FAMILIES.into_iter().filter(|_| rate > 0) {
        let pace = Pace::per_second((rate / 2).max(1));
        let to = AddrRange::from(addr(1, family, 1));
        let stream = Stream::new(Content::Udp, unverified_addrs(family)?, to, pace);
        let start_after = Duration::from_nanos(if family == Family::V6 { 130 } else { 0 });
        streams.push(Stream { dst_ports: PortRange::one(PORTS[1]), start_after, ..stream });
    }
    let station =
        StationConfig { mac: station(1), peer: Peer::Link(host), ..StationConfig::default() };
    Blast::new(Plan { station, streams }).map_err(wrong)
}
