//! The topology: our host, the kernel's, honest clients on their link, unverified sources behind a
//! router.
//!
//! Read by `victims.rs` and `outside.rs`. The flood forges source addresses from two prefixes that
//! are routed to the link's router, so that an answer to each of them leaves at once; the router's
//! link address is unassigned, so an answer costs its receiver next to nothing.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Family, IpCidr, MacAddr, Prefix};
use floodwall_pktgen::{
    AddrRange, Blast, Content, Honest, HonestConfig, Pace, Peer, Plan, PortRange, StationConfig,
    Stream,
};
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig};

use super::Hold;
use crate::error::LabError;

pub(super) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// The port that all senders use.
pub(super) const PORT: u16 = 7001;
/// Our station, that of honest clients, and the router, which does not exist.
pub(super) const OURS: MacAddr = MacAddr([2, 0, 0, 0, 7, 2]);
pub(super) const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 7, 9]);
pub(super) const ROUTER: MacAddr = MacAddr([2, 0, 0, 0, 7, 0xfe]);

/// Numbers of the link's addresses.
const KERNEL_NUMBER: u8 = 1;
const OUR_NUMBER: u8 = 2;
const CLIENT_NUMBER: u8 = 9;
const ROUTER_NUMBER: u8 = 254;

fn addr(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 7, 0, number]),
        Family::V6 => IpAddr::from([0xfd00, 7, 0, 0, 0, 0, 0, number.into()]),
    }
}

fn cidr(family: Family, number: u8) -> Option<IpCidr> {
    IpCidr::new(addr(family, number), if family == Family::V4 { 24 } else { 64 })
}

/// The kernel's addresses, with their prefixes, as `ip` writes them.
pub(super) fn kernel_addrs() -> Vec<String> {
    FAMILIES.iter().filter_map(|f| cidr(*f, KERNEL_NUMBER)).map(|cidr| cidr.to_string()).collect()
}

/// Commands of `ip` that give the kernel all neighbours at once.
pub(super) fn kernel_ways(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for family in FAMILIES {
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        let router = addr(family, ROUTER_NUMBER);
        for (addr, mac) in [(router, ROUTER), (addr(family, CLIENT_NUMBER), CLIENT)] {
            words.push(format!("{flag} neigh add {addr} lladdr {mac} dev {name} nud permanent"));
        }
        words.push(format!("{flag} route add default via {router} dev {name}"));
    }
    words
}

/// Our neighbours, known from the start: address and link address.
pub(super) fn neighbours() -> Vec<(IpAddr, MacAddr)> {
    let both = |family| {
        [(ROUTER_NUMBER, ROUTER), (CLIENT_NUMBER, CLIENT)].map(|(n, mac)| (addr(family, n), mac))
    };
    FAMILIES.into_iter().flat_map(both).collect()
}

/// Our host.
pub(super) fn stack() -> StackConfig {
    StackConfig {
        interfaces: vec![InterfaceConfig {
            name: "flooded0".to_owned(),
            medium: LinkMedium::Ethernet(OURS),
            addresses: FAMILIES.iter().filter_map(|family| cidr(*family, OUR_NUMBER)).collect(),
            gateways: FAMILIES.map(|family| addr(family, ROUTER_NUMBER)).to_vec(),
            ..InterfaceConfig::default()
        }],
        udp_sockets_max: 16,
        duplicate_address_detection: false,
        ..StackConfig::default()
    }
}

/// The target of clients and flood: link address, and address by family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    mac: MacAddr,
    number: u8,
}

impl Server {
    pub(super) const fn ours() -> Self {
        Self { mac: OURS, number: OUR_NUMBER }
    }

    pub(super) const fn kernels(mac: MacAddr) -> Self {
        Self { mac, number: KERNEL_NUMBER }
    }
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

/// The honest client of a family.
pub(super) fn honest(hold: &Hold, server: Server, family: Family) -> Result<Honest, LabError> {
    let ports = hold.honest_flows.clamp(1, 1000) - 1;
    Honest::new(HonestConfig {
        station: StationConfig {
            mac: CLIENT,
            addrs: cidr(family, CLIENT_NUMBER).into_iter().collect(),
            peer: Peer::Link(server.mac),
            ..StationConfig::default()
        },
        servers: vec![SocketAddr::new(addr(family, server.number), PORT)],
        src_ports: PortRange { first: 40_000, last: 40_000 + ports },
        pace: Pace::per_second(hold.honest_rate),
        timeout: core::time::Duration::from_millis(hold.patience_millis),
        ..HonestConfig::default()
    })
    .map_err(wrong)
}

/// Unverified sources that send so many packets a second in total, half of each family.
pub(super) fn unknown(rate: u64, server: Server) -> Result<Blast, LabError> {
    let mut streams = Vec::new();
    for family in FAMILIES.into_iter().filter(|_| rate > 0) {
        let from = match family {
            Family::V4 => Prefix::new([198, 18, 0, 0].into(), 15).map(AddrRange::V4),
            Family::V6 => Prefix::new([0x2001, 2, 0, 0, 0, 0, 0, 0].into(), 48).map(AddrRange::V6),
        };
        let from = from.ok_or_else(|| wrong("a prefix"))?;
        let pace = Pace::per_second((rate / 2).max(1));
        let to = AddrRange::from(addr(family, server.number));
        let stream = Stream::new(Content::Udp, from, to, pace);
        streams.push(Stream { dst_ports: PortRange::one(PORT), ..stream });
    }
    let station =
        StationConfig { mac: ROUTER, peer: Peer::Link(server.mac), ..StationConfig::default() };
    Blast::new(Plan { station, streams }).map_err(wrong)
}
