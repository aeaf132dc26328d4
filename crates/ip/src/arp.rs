//! ARP: what neighbours report of IPv4 addresses, and our own requests and replies as frames.
//!
//! Called by `stack` with the payload of ARP frames, and when [`NeighborEvent::Solicit`],
//! [`Resolution::Waiting`] or `dad.rs` need something sent. Invariants: an entry is made only of a
//! request for one of our addresses by a station of the link; anything else changes something only
//! where the neighbour is known or was solicited; nothing is accepted about our own addresses. Read
//! first: RFC 826 ("Packet Reception"), RFC 5227 (conflicts and probes), RFC 5494. Not here: the
//! states (`neighbor.rs`), what is done about a conflict (`dad.rs`).
//!
//! A request for another host, seen because it is broadcast, updates the entry of its sender where
//! there is one (RFC 826): an address that has moved to another station is known at once.
//!
//! # Under flood
//! Reachable by any station on the link. It keeps nothing itself; what it makes the neighbour cache
//! keep is bounded there, as unverified neighbours. Worst work per packet: 32 compares of
//! addresses, one table probe. Moves `FloodwallArpInRequests`, `FloodwallArpInReplies`, and the
//! drops `ArpMalformed`, `ArpNotForUs`, `ArpSenderInvalid`.
//!
//! [`NeighborEvent::Solicit`]: crate::NeighborEvent::Solicit
//! [`Resolution::Waiting`]: crate::Resolution::Waiting

use core::net::{IpAddr, Ipv4Addr};

use floodwall_base::{
    Counter, Counters, DropReason, Instant, MacAddr, ipv4_is_reserved, ipv4_source_is_plausible,
};
use floodwall_packet::{Class, PacketBuf, PacketList, Pool};
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, EthernetFields, arp, ethernet};

use crate::iface::{AddressState, Interface};
use crate::neighbor::{AdvertisementFlags, NeighborCache};

/// What an ARP packet means to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum ArpVerdict {
    /// A request for one of our addresses: [`frame`] makes `packet` a reply for `link_addr`;
    /// packets that were released leave to it as well.
    Reply {
        /// The requester.
        link_addr: MacAddr,
        /// The answer.
        packet: ArpPacket,
    },
    /// It resolved or confirmed a known or solicited neighbour: what was released leaves to
    /// `link_addr`.
    Learnt {
        /// The neighbour's link address.
        link_addr: MacAddr,
    },
    /// Another station uses, or probes for, this address of ours: handled by `dad.rs`.
    Conflict(Ipv4Addr),
    /// It is dropped, for this reason.
    Drop(DropReason),
}

/// Takes an ARP packet: `bytes` from behind the link header. Packets that waited for the neighbour
/// go to `released`.
pub fn input(
    bytes: &[u8],
    iface: &Interface,
    cache: &mut NeighborCache<Ipv4Addr>,
    now: Instant,
    released: &mut PacketList,
    counters: &mut Counters,
) -> ArpVerdict {
    let (Ok(packet), Some(our_link_addr)) = (ArpPacket::parse(bytes), iface.link_addr()) else {
        return ArpVerdict::Drop(DropReason::ArpMalformed);
    };
    if !sender_is_plausible(&packet, iface) || packet.sender_link_addr == our_link_addr {
        return ArpVerdict::Drop(DropReason::ArpSenderInvalid);
    }
    // RFC 5227 section 2.4: any ARP packet, request or reply, that has our address as its sender.
    if iface.owns_v4(packet.sender_addr).is_some() {
        return ArpVerdict::Conflict(packet.sender_addr);
    }
    let target = iface.owns_v4(packet.target_addr);
    match packet.operation {
        ArpOperation::REQUEST => {
            request_input(&packet, target, our_link_addr, iface, cache, now, released, counters)
        }
        ArpOperation::REPLY => {
            if target.is_some() {
                counters.count(Counter::FloodwallArpInReplies);
            }
            reply_input(&packet, target, iface, cache, now, released)
        }
        _ => ArpVerdict::Drop(DropReason::ArpMalformed),
    }
}

/// Whether the sender can be a station: a link address of one, and an address of one or none.
fn sender_is_plausible(packet: &ArpPacket, iface: &Interface) -> bool {
    let addr = packet.sender_addr;
    packet.sender_link_addr.is_unicast()
        && (addr.is_unspecified()
            || ipv4_source_is_plausible(addr)
            || ipv4_is_reserved(addr) && iface.has_reserved())
        && !iface.is_broadcast_v4(addr)
}

#[expect(clippy::too_many_arguments, reason = "the tail of `input`, and called by it alone")]
fn request_input(
    packet: &ArpPacket,
    target: Option<AddressState>,
    our_link_addr: MacAddr,
    iface: &Interface,
    cache: &mut NeighborCache<Ipv4Addr>,
    now: Instant,
    released: &mut PacketList,
    counters: &mut Counters,
) -> ArpVerdict {
    let (link_addr, sender_addr) = (packet.sender_link_addr, packet.sender_addr);
    let announces = sender_addr == packet.target_addr;
    match target {
        Some(AddressState::Preferred | AddressState::Deprecated) => {
            counters.count(Counter::FloodwallArpInRequests);
            // A probe has no sender address; a source outside the prefix gets a reply and no entry.
            if !sender_addr.is_unspecified() && iface.is_on_link(IpAddr::V4(sender_addr)) {
                cache.solicited_by(iface.index, sender_addr, link_addr, now, released);
            }
            ArpVerdict::Reply { link_addr, packet: answer(packet, our_link_addr) }
        }
        // RFC 5227 section 2.1.1: another host probes for the address that we probe for.
        Some(AddressState::Tentative) if sender_addr.is_unspecified() => {
            ArpVerdict::Conflict(packet.target_addr)
        }
        None if announces || is_resolved(cache, iface, sender_addr) => {
            tell(packet, false, iface, cache, now, released)
        }
        _ => ArpVerdict::Drop(DropReason::ArpNotForUs),
    }
}

/// Whether the neighbour's link address is known: only then a request for another host counts.
fn is_resolved(cache: &NeighborCache<Ipv4Addr>, iface: &Interface, addr: Ipv4Addr) -> bool {
    cache.neighbor(iface.index, addr).is_some_and(|neighbor| neighbor.link_addr.is_some())
}

fn reply_input(
    packet: &ArpPacket,
    target: Option<AddressState>,
    iface: &Interface,
    cache: &mut NeighborCache<Ipv4Addr>,
    now: Instant,
    released: &mut PacketList,
) -> ArpVerdict {
    let announces = packet.sender_addr == packet.target_addr;
    if packet.sender_addr.is_unspecified() || (target.is_none() && !announces) {
        return ArpVerdict::Drop(DropReason::ArpNotForUs);
    }
    // ARP has no solicited flag: a reply counts as one if we sent a request.
    let asked = target.is_some() && cache.is_asked(iface.index, packet.sender_addr);
    tell(packet, asked, iface, cache, now, released)
}

/// Passes the sender to the cache, which makes no entry.
fn tell(
    packet: &ArpPacket,
    solicited: bool,
    iface: &Interface,
    cache: &mut NeighborCache<Ipv4Addr>,
    now: Instant,
    released: &mut PacketList,
) -> ArpVerdict {
    let flags = AdvertisementFlags { router: false, solicited, overriding: true };
    let (addr, link_addr) = (packet.sender_addr, Some(packet.sender_link_addr));
    match cache.advertised(iface.index, addr, link_addr, flags, now, released) {
        Some(heard) => ArpVerdict::Learnt { link_addr: heard.link_addr },
        None => ArpVerdict::Drop(DropReason::ArpNotForUs),
    }
}

/// The answer to a request: sender and target change places (RFC 826).
fn answer(request: &ArpPacket, our_link_addr: MacAddr) -> ArpPacket {
    ArpPacket {
        operation: ArpOperation::REPLY,
        sender_link_addr: our_link_addr,
        sender_addr: request.target_addr,
        target_link_addr: request.sender_link_addr,
        target_addr: request.sender_addr,
    }
}

/// A frame for `link_addr` that carries `packet`, its interface set. `None` where the pool is empty
/// or the interface is not Ethernet. The caller counts it as sent.
#[must_use]
pub fn frame(
    pool: &Pool,
    iface: &Interface,
    link_addr: MacAddr,
    packet: &ArpPacket,
) -> Option<PacketBuf> {
    let fields = EthernetFields {
        dst_addr: link_addr,
        src_addr: iface.link_addr()?,
        ether_type: EtherType::ARP,
    };
    let mut frame = pool.alloc(Class::Small)?;
    let room = frame.extend(ethernet::HEADER_LEN + arp::PACKET_LEN)?;
    let (header, payload) = room.split_first_chunk_mut::<{ ethernet::HEADER_LEN }>()?;
    fields.emit(header);
    packet.emit(payload.first_chunk_mut()?);
    frame.set_iface(iface.index);
    frame.set_layers(ethernet::HEADER_LEN, ethernet::HEADER_LEN, ethernet::HEADER_LEN);
    Some(frame)
}

/// A request for `target_addr`: broadcast, or to the neighbour at `unicast` to verify reachability
/// (RFC 1122 section 2.3.2.1). `src_addr` is one of our addresses.
#[must_use]
pub fn request(
    pool: &Pool,
    iface: &Interface,
    src_addr: Ipv4Addr,
    target_addr: Ipv4Addr,
    unicast: Option<MacAddr>,
) -> Option<PacketBuf> {
    let packet = ArpPacket {
        operation: ArpOperation::REQUEST,
        sender_link_addr: iface.link_addr()?,
        sender_addr: src_addr,
        target_link_addr: MacAddr::ZERO,
        target_addr,
    };
    frame(pool, iface, unicast.unwrap_or(MacAddr::BROADCAST), &packet)
}

/// A probe for `addr`, without announcing that we use it (RFC 5227 section 2.1.1).
#[must_use]
pub fn probe(pool: &Pool, iface: &Interface, addr: Ipv4Addr) -> Option<PacketBuf> {
    request(pool, iface, Ipv4Addr::UNSPECIFIED, addr, None)
}

/// An announcement that we use `addr` (RFC 5227 section 2.3).
#[must_use]
pub fn announce(pool: &Pool, iface: &Interface, addr: Ipv4Addr) -> Option<PacketBuf> {
    request(pool, iface, addr, addr, None)
}

#[cfg(test)]
#[path = "arp/tests.rs"]
mod tests;
