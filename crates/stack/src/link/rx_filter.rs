//! What this stack wants of what arrives: for devices that can refuse a packet before it costs
//! anything, or leave it to the host.
//!
//! Queried by the dispatcher by way of [`Engine`](floodwall_packet::Engine) at the start and
//! whenever something has changed. Invariant: what is not wanted here, triage calls refusable (a
//! test of the XDP program compares them); where in doubt it is wanted. Followers report the tables
//! that they have taken over from the control shard; devices want what any of their shards wants.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, Family, IfIndex};
use floodwall_ip::{Interface, LinkMedium};
use floodwall_packet::RxFilter;
use floodwall_wire::{IpProtocol, dhcpv6};

use crate::shards::Role;
use crate::stack::Stack;

/// Fills in what is wanted at an interface.
pub(crate) fn fill(stack: &Stack, iface: IfIndex, wanted: &mut RxFilter) {
    // Of a link that is down nothing arrives; what is wanted stays, so that a device learns nothing
    // wrong from the frames around the change.
    let interface = stack.interfaces.get(usize::from(iface.0));
    let Some(interface) = interface.filter(|found| found.medium != LinkMedium::Loopback) else {
        return wanted.everything();
    };
    wanted.nothing();
    let asks = stack.dhcp_asks();
    wanted.any_v4 = interface.any_destination || stack.forwards::<Ipv4Addr>(iface);
    wanted.any_v6 = interface.any_destination || stack.forwards::<Ipv6Addr>(iface);
    wanted.asks_v4 = asks;
    addresses(interface, wanted);
    if let Some(list) = stack.access_list(iface) {
        list.denied_sources().for_each(|from| wanted.deny(from));
    }
    let hears =
        |protocol| [Family::V4, Family::V6].iter().any(|f| stack.sockets.raw.hears(*f, protocol));
    wanted.udp.add(stack.sockets.udp.ports());
    if stack.control.dhcpv6.listens() {
        wanted.udp.set(dhcpv6::CLIENT_PORT, true);
    }
    wanted.any_udp = asks || hears(IpProtocol::UDP) || stack.sockets.udp.hears_every_port();
    wanted.any_tcp = hears(IpProtocol::TCP);
    if let Some(tcp) = &stack.tcp {
        wanted.any_tcp |= tcp.set.ports(&mut wanted.tcp);
    }
}

/// The ports apply to addresses that are in use. Addresses that are being probed are included as
/// well: another station may claim them.
fn addresses(interface: &Interface, wanted: &mut RxFilter) {
    for address in interface.addresses() {
        let in_use = address.state.is_assigned();
        match address.addr {
            IpAddr::V4(addr) => wanted.add_v4(addr, in_use),
            IpAddr::V6(addr) => wanted.add_v6(addr, in_use),
        }
    }
    interface.broadcasts_v4().for_each(|addr| wanted.add_v4(addr, false));
    interface.router_anycasts().for_each(|addr| wanted.add_v6(addr, false));
}

/// A number that changes whenever interfaces, addresses, routes or lists may have changed.
pub(crate) fn tables_changed(stack: &Stack) -> u64 {
    let taken_over = match &stack.shard.role {
        Role::Follower(follower) => follower.taken_over(),
        _ => 0,
    };
    stack.stats.counters.of(Counter::FloodwallChanges) + taken_over
}

/// A number that changes whenever the result of [`fill`] may change: counts of changes, and bits
/// that toggle on top of them.
pub(crate) fn changed(stack: &Stack) -> u64 {
    let tcp = stack.tcp.as_ref().map_or(0, |tcp| tcp.set.ports_changed());
    let counts = tables_changed(stack) + stack.sockets.udp.ports().changes() + tcp;
    let hears = |family, protocol| stack.sockets.raw.hears(family, protocol);
    let bits = [
        stack.dhcp_asks(),
        hears(Family::V4, IpProtocol::UDP),
        hears(Family::V6, IpProtocol::UDP),
        hears(Family::V4, IpProtocol::TCP),
        hears(Family::V6, IpProtocol::TCP),
    ];
    bits.into_iter().fold(counts, |number, bit| number << 1 | u64::from(bit))
}
