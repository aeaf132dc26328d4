//! What SYNs are answered with, for devices with a program that answers at the interface.
//!
//! Asked by the dispatcher by way of [`Engine`](floodwall_packet::Engine) when something has
//! changed and when the keys turn. Invariant: what is offered is what this stack would answer by
//! cookie; where more than address and port decides whether it answers, nothing is offered. The
//! program answers by the interface and to the link address that the SYN came from; routes are not
//! asked.

use core::net::IpAddr;

use floodwall_base::{IfIndex, Instant};
use floodwall_packet::SynOffers;
use floodwall_tcp::{CookieEpoch, CookieMoment};

use crate::shards::Role;
use crate::stack::Stack;

/// Fills in what SYNs that arrive at an interface are answered with.
pub(crate) fn fill(stack: &Stack, now: Instant, iface: IfIndex, offers: &mut SynOffers) {
    offers.clear();
    let interface = stack.interfaces.get(usize::from(iface.0)).filter(|found| found.up);
    let (Some(interface), Some(tcp)) = (interface, &stack.tcp) else { return };
    // Of several shards each must believe what any of them has made.
    let is_alone = matches!(stack.shard.role, Role::Alone) || stack.shard.wall.secrets > 0;
    if !is_alone || !lets_all_else_in(stack, iface) {
        return;
    }
    let epoch = stack.shard.wall.epoch(now);
    let until = stack.shard.wall.end_of(epoch, now);
    offers.keys = Some(tcp.set.cookie_keys(CookieMoment::new(now, epoch), until));
    offers.zone = iface;
    for address in interface.addresses().filter(|address| address.state.is_assigned()) {
        let hop_limit = match address.addr {
            IpAddr::V4(_) => stack.hop_limit_of::<core::net::Ipv4Addr>(iface),
            IpAddr::V6(_) => stack.hop_limit_of::<core::net::Ipv6Addr>(iface),
        };
        tcp.set.syn_offers((address.addr, iface), hop_limit, |offer| {
            offers.add(offer);
        });
    }
}

/// Whether the interface's access list has nothing but sources that it denies: those are lost
/// before a SYN is looked at.
fn lets_all_else_in(stack: &Stack, iface: IfIndex) -> bool {
    let rules = stack.access_list(iface).into_iter().flat_map(|list| list.rules());
    rules.into_iter().all(|(rule, _)| !rule.permits && rule.protocol.is_none() && rule.to.is_none())
}

/// Another number whenever [`fill`] may say something else.
pub(crate) fn changed(stack: &Stack, now: Instant) -> u64 {
    let CookieEpoch(epoch) = stack.shard.wall.epoch(now);
    // Not of connections: those come and go with every packet.
    let listeners = stack.tcp.as_ref().map_or(0, |tcp| tcp.set.listeners_changed());
    let numbers =
        [crate::link::rx_filter::tables_changed(stack), listeners, stack.shard.wall.number()];
    numbers.into_iter().fold(epoch, |all, number| all.rotate_left(17).wrapping_add(number))
}
