//! Routers as a link has them: what they say, as frames, byte by byte.
//!
//! Called by the scenario tests of router discovery. Invariant: what comes out is valid, checksum
//! included.

use std::net::Ipv6Addr;
use std::time::Duration;

use floodwall_base::MacAddr;
use floodwall_stack::{InterfaceConfig, StackConfig};
use floodwall_wire::ndp::{
    Lifetime, NdpOption, NeighborAdvertisementFields, Preference, PrefixInfo, RouteInfo,
    RouterAdvertisementFields,
};
use floodwall_wire::{EtherType, IpProtocol};

use crate::craft::{HOST, frame, ip, mac};
use crate::rig::ethernet_config;

/// Every node of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Bytes of the longest advertisement made here.
const MESSAGE_MAX: usize = 1500;

/// A host that accepts router advertisements and forms addresses by SLAAC; its IPv4 is configured.
#[must_use]
pub fn believing_config() -> StackConfig {
    let base = ethernet_config(HOST);
    let addresses = vec!["10.0.0.1/24".parse().expect("an address")];
    let believes = InterfaceConfig {
        addresses,
        accept_ra: true,
        autoconf: true,
        ..base.interfaces[0].clone()
    };
    StackConfig { interfaces: vec![believes], duplicate_address_detection: true, ..base }
}

/// The link-local address of router `n`.
#[must_use]
pub const fn router_addr(n: u32) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xaa, (n >> 16) as u16, n as u16)
}

/// The station of router `n`.
#[must_use]
pub const fn router_mac(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([2, 0xaa, a, b, c, d])
}

/// The header of a router advertisement with a lifetime of `secs` seconds, all else unspecified.
#[must_use]
pub const fn header(secs: u64) -> RouterAdvertisementFields {
    RouterAdvertisementFields {
        hop_limit: None,
        managed: false,
        other: false,
        preference: Preference::Medium,
        router_lifetime: Duration::from_secs(secs),
        reachable_time: Duration::ZERO,
        retrans_timer: Duration::ZERO,
    }
}

/// A prefix that is on the link and from which addresses are made.
#[must_use]
pub fn prefix(text: &str, prefix_len: u8, valid: u32, preferred: u32) -> PrefixInfo {
    PrefixInfo {
        prefix: text.parse().expect("a prefix"),
        prefix_len,
        on_link: true,
        autonomous: true,
        valid_lifetime: Lifetime::from_secs(valid),
        preferred_lifetime: Lifetime::from_secs(preferred),
    }
}

/// A route through the advertising router.
#[must_use]
pub fn route(text: &str, prefix_len: u8, preference: Preference, secs: u32) -> RouteInfo {
    let lifetime = Lifetime::from_secs(secs);
    RouteInfo { prefix: text.parse().expect("a prefix"), prefix_len, preference, lifetime }
}

/// Domain names in DNS encoding.
#[must_use]
pub fn dns_names(names: &[&str]) -> Vec<u8> {
    let label = |label: &str| [&[label.len() as u8], label.as_bytes()].concat();
    let name = |name: &&str| [name.split('.').flat_map(label).collect(), vec![0]].concat();
    names.iter().flat_map(name).collect()
}

/// An ICMPv6 message in its frame, from a station to the destination's link address.
#[must_use]
pub fn message_frame(from: MacAddr, src_addr: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let packet = ip(src_addr.into(), to.into(), IpProtocol::ICMPV6, message);
    let link = if to.is_multicast() { MacAddr::of_ipv6_multicast(to) } else { mac(HOST) };
    frame(link, from, EtherType::IPV6, &packet)
}

/// A router advertisement of router `n` to all nodes.
///
/// # Panics
/// The options are too long.
#[must_use]
pub fn advertisement(n: u32, fields: &RouterAdvertisementFields, options: &[NdpOption]) -> Vec<u8> {
    let (addr, link) = (router_addr(n), router_mac(n));
    let mut out = [0; MESSAGE_MAX];
    let options = [&[NdpOption::SourceLinkAddr(link)], options].concat();
    let len = fields.emit_into(&options, addr, ALL_NODES, &mut out).expect("it fits");
    message_frame(link, addr, ALL_NODES, &out[..len])
}

/// How router `n` answers a question for its link address: with R, S and O as said.
///
/// # Panics
/// Never: it fits.
#[must_use]
pub fn neighbor_answer(n: u32, to: Ipv6Addr, [r, s, o]: [bool; 3]) -> Vec<u8> {
    let (target_addr, link) = (router_addr(n), router_mac(n));
    let fields =
        NeighborAdvertisementFields { router: r, solicited: s, override_entry: o, target_addr };
    let mut out = [0; 64];
    let options = [NdpOption::TargetLinkAddr(link)];
    let len = fields.emit_into(&options, target_addr, to, &mut out).expect("it fits");
    message_frame(link, target_addr, to, &out[..len])
}
