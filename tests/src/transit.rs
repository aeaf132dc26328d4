//! `Transit`: a router of two networks, driven by hand.
//!
//! Left is 10.0.0/24 and fd00::/64 with the peer of `craft`, right is 10.1.0/24 and fd01::/64; the
//! router is number one on both. Neighbours are known for good unless a test wants it otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use floodwall_base::{DropReason, Family, IfIndex, MacAddr, Units};
use floodwall_packet::{Engine, PacketBuf};
use floodwall_stack::{InterfaceConfig, LinkMedium, StackConfig, StaticRoute};
use floodwall_wire::EtherType;

use crate::craft::{self, HOST, PEER};
use crate::rig::{Drops, Rig, drops_between, ethernet_config};

/// The interface of the peer of `craft`.
pub const LEFT: IfIndex = IfIndex(1);
/// The other.
pub const RIGHT: IfIndex = IfIndex(2);

/// The station of a host on the right.
#[must_use]
pub const fn right_mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, host])
}

/// The address of a host on the right.
#[must_use]
pub fn right(family: Family, host: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 1, 0, host).into(),
        Family::V6 => Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, u16::from(host)).into(),
    }
}

/// An address that the peer on the right leads to.
#[must_use]
pub fn far(family: Family, host: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(172, 16, 0, host).into(),
        Family::V6 => Ipv6Addr::new(0xfd16, 0, 0, 0, 0, 0, 0, u16::from(host)).into(),
    }
}

/// A router of two networks that forwards both families, with a route for [`far`].
///
/// # Panics
/// Never: all texts are right.
#[must_use]
pub fn router_config() -> StackConfig {
    let base = ethernet_config(HOST);
    let left = base.interfaces[0].clone();
    let cidr = |text: &str| text.parse().expect("an address");
    let two = InterfaceConfig {
        name: "eth1".to_owned(),
        medium: LinkMedium::Ethernet(right_mac(HOST)),
        addresses: vec![cidr("10.1.0.1/24"), cidr("fd01::1/64")],
        ..left.clone()
    };
    let route = |prefix: &str, family| StaticRoute {
        prefix: cidr(prefix),
        via: Some(right(family, PEER)),
        iface: 1,
    };
    StackConfig {
        interfaces: vec![left, two],
        routes: vec![route("172.16.0.0/12", Family::V4), route("fd16::/16", Family::V6)],
        ipv4_forwarding: true,
        ipv6_forwarding: true,
        ..base
    }
}

/// A router of two networks, driven by hand.
pub struct Transit {
    /// The stack.
    pub rig: Rig,
}

impl Transit {
    /// A router with its neighbours, number two on both sides, known.
    ///
    /// # Panics
    /// The configuration makes no stack.
    #[must_use]
    pub fn new(config: &StackConfig) -> Self {
        let mut transit = Self { rig: Rig::new(config) };
        for family in craft::FAMILIES {
            transit.knows(LEFT, craft::addr(family, PEER), craft::mac(PEER));
            transit.knows(RIGHT, right(family, PEER), right_mac(PEER));
        }
        transit.rig.run_for(Duration::from_secs(10));
        transit
    }

    /// Adds a permanent neighbour to the router.
    ///
    /// # Panics
    /// There is no room.
    pub fn knows(&mut self, iface: IfIndex, addr: IpAddr, mac: MacAddr) {
        self.rig.stack.add_neighbor(iface, addr, mac, self.rig.now).expect("room");
    }

    /// Lets packets arrive on an interface in bursts; returns what departs.
    ///
    /// # Panics
    /// The pool has no room.
    pub fn arrive(&mut self, iface: IfIndex, frames: &[Vec<u8>]) -> Vec<PacketBuf> {
        self.arrive_for(iface, frames).1
    }

    /// The same, with the work that it took.
    ///
    /// # Panics
    /// As [`Transit::arrive`].
    pub fn arrive_for(&mut self, iface: IfIndex, frames: &[Vec<u8>]) -> (Units, Vec<PacketBuf>) {
        let (mut spent, mut departed) = (Units(0), Vec::new());
        for burst in frames.chunks(64) {
            let make = |frame: &Vec<u8>| {
                let mut packet = self.rig.pool.packet_from(frame).expect("room in the pool");
                packet.set_iface(iface);
                packet
            };
            let packets = burst.iter().map(make).collect();
            let (units, left) = self.rig.round(packets, |stack, round| stack.round(round));
            spent = spent.plus(units);
            departed.extend(left);
        }
        (spent, departed)
    }

    /// Lets one frame arrive on the left that must be dropped there, for this reason and no other,
    /// as [`Rig::expect_drop`] does; returns what departs.
    ///
    /// # Panics
    /// Anything is otherwise.
    pub fn expect_drop(&mut self, what: &str, packet: &[u8], reason: DropReason) -> Vec<PacketBuf> {
        let before = self.rig.stats();
        let departed = self.arrive(LEFT, &[from_left(packet)]);
        let lost = drops_between(&before, &self.rig.stats());
        assert_eq!(lost, (vec![(reason, 1)], vec![]), "{what}");
        assert!(self.rig.conservation().holds(), "{what}: {:?}", self.rig.conservation());
        departed
    }

    /// What was dropped while `act` ran; the accounting balances.
    ///
    /// # Panics
    /// They do not.
    pub fn dropped(&mut self, act: impl FnOnce(&mut Self)) -> Drops {
        let before = self.rig.stats();
        act(self);
        assert!(self.rig.conservation().holds(), "{:?}", self.rig.conservation());
        drops_between(&before, &self.rig.stats())
    }
}

/// An IP packet in a frame from the peer on the left to the router.
#[must_use]
pub fn from_left(packet: &[u8]) -> Vec<u8> {
    craft::frame(craft::mac(HOST), craft::mac(PEER), ether_type(packet), packet)
}

/// The same from the right.
#[must_use]
pub fn from_right(packet: &[u8]) -> Vec<u8> {
    craft::frame(right_mac(HOST), right_mac(PEER), ether_type(packet), packet)
}

fn ether_type(packet: &[u8]) -> EtherType {
    if packet.first().is_some_and(|b| b >> 4 == 6) { EtherType::IPV6 } else { EtherType::IPV4 }
}

/// What a packet is one hop later: the hop limit lowered, IPv4's checksum computed anew.
///
/// # Panics
/// The packet is no IP packet with a hop left.
#[must_use]
pub fn one_hop_later(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    if bytes[0] >> 4 == 6 {
        bytes[7] -= 1;
        return bytes;
    }
    bytes[8] -= 1;
    bytes[10..12].fill(0);
    let len = usize::from(bytes[0] & 15) * 4;
    let check = floodwall_checksum::sum(&bytes[..len]).finish();
    bytes[10..12].copy_from_slice(&check.to_be_bytes());
    bytes
}

/// The same packet with another hop limit.
#[must_use]
pub fn with_hop_limit(packet: &[u8], hop_limit: u8) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    if bytes[0] >> 4 == 6 {
        bytes[7] = hop_limit;
        return bytes;
    }
    bytes[8] = hop_limit + 1;
    one_hop_later(&bytes)
}
