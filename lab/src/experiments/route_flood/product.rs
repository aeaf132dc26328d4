//! The product's own stack as the router: generator, router in, router out, a device that costs
//! nothing; priced by the cost table.
//!
//! Called by `route_flood.rs`. The same packets that the variants of `core.rs` meet: random
//! destinations with flowlen 1, both families, four times what the core can do, beside a program
//! that always wants the core. Exact: the same seed gives the same numbers.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, IpCidr, MacAddr, Randomness};
use floodwall_packet::{Pool, PoolConfig};
use floodwall_pktgen::{
    AddrRange, Blast, Content, Pace, Peer, Plan, SizeRange, StationConfig, Stream,
};
use floodwall_schedule::{BalanceConfig, GateConfig, Share};
use floodwall_stack::{
    InterfaceConfig, LinkMedium, Stack, StackConfig, StaticRoute, accounts_needed,
};
use floodwall_world::{LaneConfig, LinkConfig, NodeConfig, SimulatedApplication, World};

use crate::error::LabError;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const IN: IfIndex = IfIndex(1);
const OUT: IfIndex = IfIndex(2);
/// Packets a second: more than a core takes.
const OFFERED: u64 = 16_000_000;

/// What is held.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// Destinations of each family.
    pub(super) destinations: [String; 2],
    pub(super) share: f64,
    pub(super) length: Duration,
    pub(super) seed: u64,
}

/// What the router made of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) offered: u64,
    /// Found the ring full.
    pub(super) ring_full: u64,
    /// Refused or crowded out by the gate.
    pub(super) gate: u64,
    /// Reached the router's stack, and the other side.
    pub(super) taken: u64,
    pub(super) forwarded: u64,
    /// Packets forwarded a second.
    pub(super) rate: f64,
    pub(super) app_share: f64,
    pub(super) app_gap: Duration,
    /// What every destination together left behind: neighbours and routes more than before.
    pub(super) state: usize,
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

const fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 2, host])
}

/// Number `host` of a side's link.
fn addr(side: u8, family: Family, host: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([192, 168, side, host]),
        Family::V6 => IpAddr::from([0xfdcc, u16::from(side), 0, 0, 0, 0, 0, u16::from(host)]),
    }
}

fn interface(side: u8) -> InterfaceConfig {
    let cidr = |family| {
        let len = if family == Family::V4 { 24 } else { 64 };
        IpCidr::new(addr(side, family, 1), len)
    };
    InterfaceConfig {
        name: format!("eth{side}"),
        medium: LinkMedium::Ethernet(mac(side + 1)),
        addresses: FAMILIES.into_iter().filter_map(cidr).collect(),
        ..InterfaceConfig::default()
    }
}

impl Scene {
    fn config(&self) -> Result<StackConfig, LabError> {
        let route = |(text, family): (&String, Family)| {
            let odd = |_| wrong(format!("destinations: `{text}` is no prefix"));
            let prefix = text.parse().map_err(odd)?;
            Ok(StaticRoute { prefix, via: Some(addr(1, family, 2)), iface: 1 })
        };
        let routes = self.destinations.iter().zip(FAMILIES).map(route);
        Ok(StackConfig {
            interfaces: vec![interface(0), interface(1)],
            routes: routes.collect::<Result<_, LabError>>()?,
            ipv4_forwarding: true,
            ipv6_forwarding: true,
            duplicate_address_detection: false,
            ..StackConfig::default()
        })
    }

    fn generator(&self) -> Result<Blast, LabError> {
        let stream = |(text, family): (&String, Family)| {
            let to: AddrRange = text.parse().map_err(wrong)?;
            let from = AddrRange::from(addr(0, family, 2));
            let pace = Pace::per_second(OFFERED / 2);
            // 60 bytes with IPv4's headers, as the source's.
            let payload = SizeRange::one(18);
            Ok(Stream { payload, ..Stream::new(Content::Udp, from, to, pace) })
        };
        let streams = self.destinations.iter().zip(FAMILIES).map(stream);
        let streams = streams.collect::<Result<_, LabError>>()?;
        let station =
            StationConfig { mac: mac(8), peer: Peer::Link(mac(1)), ..StationConfig::default() };
        Blast::new(Plan { station, streams }).map_err(wrong)
    }

    /// Lets the flood run.
    ///
    /// # Errors
    /// The scene cannot be made.
    pub(super) fn measure(&self) -> Result<Outcome, LabError> {
        let mut world = World::new(self.seed);
        let (config, ring) = (self.config()?, 4096);
        let sizes = PoolConfig {
            small: 2 * ring + 4096,
            accounts: accounts_needed(&config),
            ..PoolConfig::default()
        };
        let (pool, mut random) = (Pool::new(&sizes)?, Randomness::from_number(self.seed));
        let mut stack = Stack::new(&config, &mut random, Instant::ORIGIN).map_err(wrong)?;
        for family in FAMILIES {
            let next = addr(1, family, 2);
            stack.add_neighbor(OUT, next, mac(9), Instant::ORIGIN).map_err(wrong)?;
        }
        let share = Share::per_mille((self.share.clamp(0.0, 1.0) * 1000.0) as u16);
        let core = NodeConfig {
            ring,
            balance: Some(BalanceConfig { share, ..BalanceConfig::default() }),
            gate: Some(GateConfig::default()),
            application: Some(SimulatedApplication::HUNGRY),
            ..NodeConfig::default()
        };
        let router = world.add_node_with("router", stack, pool, core);
        let free = || -> Result<(Pool, NodeConfig), LabError> {
            let sizes = PoolConfig { frames: 16_384, ..PoolConfig::default() };
            Ok((Pool::new(&sizes)?, NodeConfig { ring: 16_384, ..NodeConfig::free() }))
        };
        let (memory, node) = free()?;
        let source = world.add_node_with("generator", self.generator()?, memory, node);
        let (memory, node) = free()?;
        let station =
            StationConfig { mac: mac(9), peer: Peer::Link(mac(2)), ..StationConfig::default() };
        let sink = Blast::new(Plan { station, streams: Vec::new() }).map_err(wrong)?;
        let sink = world.add_node_with("sink", sink, memory, node);
        let way = LinkConfig::both(LaneConfig::with_delay(Duration::from_micros(1)));
        let link = world.connect((source, IfIndex(1)), (router, IN), way).map_err(wrong)?;
        world.connect((sink, IfIndex(1)), (router, OUT), way).map_err(wrong)?;
        let kept = |world: &World| -> usize {
            let stack = world.node_ref::<Stack>(router);
            stack.map_or(0, |stack| {
                let neighbors =
                    stack.neighbors_v4().iter().count() + stack.neighbors_v6().iter().count();
                neighbors + stack.routes_v4().len() + stack.routes_v6().len()
            })
        };
        let before = kept(&world);
        world.run_for(self.length);
        let stats = world.node_stats(router);
        let sink = world.node_ref::<Blast>(sink).ok_or(wrong("the sink is gone"))?;
        let lane = world.stats(link).from_a;
        let seconds = self.length.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(Outcome {
            offered: lane.sent,
            ring_full: lane.ring_full,
            gate: stats.refused + stats.crowded_out,
            taken: stats.packets_in,
            forwarded: sink.returned().udp,
            rate: sink.returned().udp as f64 / seconds,
            app_share: stats.application_ran.as_secs_f64() / seconds,
            app_gap: stats.application_gap_max,
            state: kept(&world).saturating_sub(before),
        })
    }
}
