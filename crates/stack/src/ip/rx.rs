//! Frame input: the link header, then IPv4, IPv6 or ARP, or a drop.
//!
//! Called by `stack.rs` for each packet of a burst. A frame that is neither IP nor ARP is dropped
//! here; so is a packet for another station or another host. Reading: RFC 894, RFC 1122 section
//! 3.2.1.3, RFC 8200 section 3.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::{Address, Counter, DropReason, IfIndex, MacAddr, ipv4_is_reserved};
use floodwall_ip::input::Layers;
use floodwall_ip::{ArrivedHeading, Interface, input};
use floodwall_packet::PacketBuf;
use floodwall_wire::{EtherType, EthernetHeader, ethernet};

use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Bytes of a link header with the two tags that are read.
const LINK_HEADER_MAX: usize = ethernet::HEADER_LEN + ethernet::TAGS_MAX * ethernet::TAG_LEN;

impl Stack {
    /// One packet as its device gave it.
    #[inline]
    pub(crate) fn input(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        self.stats.outcomes.received += 1;
        self.take_in(cx, packet);
    }

    /// One packet as its device gave it, to this worker or to another.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, cx: &mut RoundContext<'_>, mut packet: PacketBuf) {
        if self.burst.follow.is_active() {
            self.goes_general();
            packet = match self.tcp_followed(packet) {
                Ok(()) => return,
                Err(packet) => packet,
            };
        }
        let Some(interface) = self.interfaces.get(usize::from(packet.iface().0)) else {
            self.goes_general();
            return self.drop_packet(packet, DropReason::InterfaceUnknown);
        };
        if !interface.up {
            self.goes_general();
            return self.drop_packet(packet, DropReason::InterfaceDown);
        }
        match interface.medium {
            floodwall_ip::LinkMedium::Ethernet(mac) => {
                let predicted = self.tcp_predicted(cx, packet, Some(mac));
                match predicted.or_else(|packet| self.udp_predicted(packet, Some(mac))) {
                    Ok(()) => {}
                    Err(packet) => {
                        self.goes_general();
                        self.ethernet(cx, packet, mac);
                    }
                }
            }
            _ => {
                let predicted = self.tcp_predicted(cx, packet, None);
                match predicted.or_else(|packet| self.udp_predicted(packet, None)) {
                    Ok(()) => {}
                    Err(packet) => {
                        self.goes_general();
                        self.bare_ip(cx, packet);
                    }
                }
            }
        }
    }

    #[inline]
    fn ethernet(&mut self, cx: &mut RoundContext<'_>, mut packet: PacketBuf, mac: MacAddr) {
        // 14 bytes are a header, unless they announce a tag.
        let fixed = packet.first_array::<{ ethernet::HEADER_LEN }>(0);
        let Some(Ok(header)) = fixed.map(|bytes| EthernetHeader::parse(bytes)) else {
            return self.ethernet_slow_path(cx, packet, mac);
        };
        self.stats.access.borrow();
        let (dst_addr, src_addr) = (header.dst_addr(), header.src_addr());
        let ether_type = header.ether_type();
        if let Err(reason) = station(&mut packet, dst_addr, src_addr, mac) {
            return self.drop_packet(packet, reason);
        }
        self.payload(cx, packet, ether_type, ethernet::HEADER_LEN);
    }

    /// A header in pieces, or one with VLAN tags: VLAN 0 is a priority tag (IEEE 802.1Q clause
    /// 6.9), others are not ours.
    #[cold]
    fn ethernet_slow_path(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        mac: MacAddr,
    ) {
        let access = &mut self.stats.access;
        // Without tags first, so that no more than the header is copied.
        let mut read = |len: usize| {
            let mut scratch = [0; LINK_HEADER_MAX];
            let bytes = packet.header(0, len, &mut scratch, access)?;
            let h = EthernetHeader::parse(bytes).ok()?;
            let priority = h.tags().all(|tag| tag.id == 0);
            Some((h.dst_addr(), h.src_addr(), h.ether_type(), h.header_len(), priority))
        };
        let found = read(ethernet::HEADER_LEN).or_else(|| read(packet.len().min(LINK_HEADER_MAX)));
        let Some((dst_addr, src_addr, ether_type, len, priority)) = found else {
            return self.drop_packet(packet, DropReason::FrameTruncated);
        };
        if let Err(reason) = station(&mut packet, dst_addr, src_addr, mac) {
            return self.drop_packet(packet, reason);
        }
        if !priority {
            return self.drop_packet(packet, DropReason::FrameVlan);
        }
        self.payload(cx, packet, ether_type, len);
    }

    #[inline]
    fn payload(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ether_type: EtherType,
        l3: usize,
    ) {
        match ether_type {
            EtherType::IPV4 => self.ipv4(cx, packet, l3),
            EtherType::IPV6 => self.ipv6(cx, packet, l3),
            EtherType::ARP => self.arp(cx, packet, l3),
            _ => self.drop_packet(packet, DropReason::EtherTypeUnknown),
        }
    }

    /// A packet without link header: its first four bits give the family.
    fn bare_ip(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        let mut scratch = [0; 1];
        match packet.header_array(0, &mut scratch, &mut self.stats.access).map(|b| b[0] >> 4) {
            None => self.drop_packet(packet, DropReason::IpTruncated),
            Some(4) => self.ipv4(cx, packet, 0),
            Some(6) => self.ipv6(cx, packet, 0),
            Some(_) => self.drop_packet(packet, DropReason::IpVersion),
        }
    }

    #[inline]
    fn ipv4(&mut self, cx: &mut RoundContext<'_>, mut packet: PacketBuf, l3: usize) {
        self.stats.counters.count(Counter::IpInReceives);
        let octets = packet.len().saturating_sub(l3) as u64;
        self.stats.counters.add(Counter::IpInOctets, octets);
        let heading = match input::ipv4(&packet, l3, &mut self.stats.access) {
            Ok(heading) => heading,
            Err(reason) => return self.drop_ip::<Ipv4Addr>(packet, reason),
        };
        // Ethernet padding ends here.
        packet.truncate(l3 + heading.total_len);
        if !self.admits(&packet, l3, &heading) {
            return self.drop_ip::<Ipv4Addr>(packet, DropReason::AccessDenied);
        }
        let to_group = match self.is_ours_v4(packet.iface(), &heading) {
            Ok(to_group) => to_group,
            Err(DropReason::IpNotForUs) if self.dhcp_asks() => {
                return self.dhcp_stray(cx, packet, l3, &heading);
            }
            Err(DropReason::IpNotForUs) if self.forwards::<Ipv4Addr>(packet.iface()) => {
                return self.transit(cx, packet, l3, &heading);
            }
            Err(reason) => return self.drop_ip::<Ipv4Addr>(packet, reason),
        };
        let ascent = RxMeta { iface: packet.iface(), l3, heading, to_group };
        self.local_input_v4(cx, packet, ascent);
    }

    /// Whether the access list of its interface lets a packet in.
    #[inline]
    fn admits<A: Address>(
        &mut self,
        packet: &PacketBuf,
        l3: usize,
        heading: &ArrivedHeading<A>,
    ) -> bool {
        let at = usize::from(packet.iface().0);
        let Some(Some(list)) = self.policy.access_lists.get_mut(at) else { return true };
        let permits = list.permits(packet, l3, heading, &mut self.stats.access);
        if !permits {
            self.stats.counters.count(Counter::FloodwallAccessDenied);
        }
        permits
    }

    /// An IPv4 packet that is for us.
    #[inline]
    pub(crate) fn local_input_v4(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
    ) {
        if ascent.heading.is_fragment {
            return self.fragment_v4(cx, packet, ascent);
        }
        match input::ipv4_upper(&packet, ascent.l3, &ascent.heading, &mut self.stats.access) {
            Ok(upper) => self.deliver_v4(cx, packet, ascent, upper),
            Err(refusal) => self.refuse(cx, packet, ascent, None, refusal),
        }
    }

    #[inline]
    fn ipv6(&mut self, cx: &mut RoundContext<'_>, mut packet: PacketBuf, l3: usize) {
        self.stats.counters.count(Counter::Ip6InReceives);
        let octets = packet.len().saturating_sub(l3) as u64;
        self.stats.counters.add(Counter::Ip6InOctets, octets);
        let heading = match input::ipv6(&packet, l3, &mut self.stats.access) {
            Ok(heading) => heading,
            Err(reason) => return self.drop_ip::<Ipv6Addr>(packet, reason),
        };
        packet.truncate(l3 + heading.total_len);
        if !self.admits(&packet, l3, &heading) {
            return self.drop_ip::<Ipv6Addr>(packet, DropReason::AccessDenied);
        }
        let to_group = match self.is_ours_v6(packet.iface(), &heading) {
            Ok(to_group) => to_group,
            Err(DropReason::IpNotForUs)
                if self.forwards::<Ipv6Addr>(packet.iface())
                    && !self.is_tentative(heading.dst_addr) =>
            {
                return self.transit(cx, packet, l3, &heading);
            }
            Err(reason) => return self.drop_ip::<Ipv6Addr>(packet, reason),
        };
        let ascent = RxMeta { iface: packet.iface(), l3, heading, to_group };
        self.local_input_v6(cx, packet, ascent);
    }

    /// An IPv6 packet that is for us.
    #[inline]
    pub(crate) fn local_input_v6(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
    ) {
        let (limits, RxMeta { l3, heading, .. }) = (&self.policy.extension_limits, ascent);
        match input::ipv6_upper(&packet, l3, &heading, limits, &mut self.stats.access) {
            Ok(Layers::Upper(upper)) => self.deliver_v6(cx, packet, ascent, upper),
            Ok(Layers::Fragment { place, upper }) => {
                self.fragment_v6(cx, packet, ascent, (place, upper));
            }
            Err(refusal) => self.refuse(cx, packet, ascent, None, refusal),
        }
    }

    /// Whether an IPv4 packet is for this host, and whether as one of many.
    #[inline]
    pub(crate) fn is_ours_v4(
        &self,
        at: IfIndex,
        heading: &ArrivedHeading<Ipv4Addr>,
    ) -> Result<bool, DropReason> {
        let Some(interface) = self.interfaces.get(usize::from(at.0)) else {
            return Err(DropReason::InterfaceUnknown);
        };
        let dst_addr = heading.dst_addr;
        if at != IfIndex::LOOPBACK {
            input::ipv4_addresses(heading).or_else(|why| self.reserved_source(heading, why))?;
            let src_addr = heading.src_addr;
            let foreign = self.interfaces.iter().all(|i| i.is_surely_foreign_v4(src_addr));
            if !foreign && self.is_forged_v4(src_addr) {
                return Err(DropReason::IpSourceInvalid);
            }
        }
        if interface.owns_v4(dst_addr).is_some_and(|state| state.is_assigned()) {
            return Ok(false);
        }
        if interface.is_broadcast_v4(dst_addr) {
            return Ok(true);
        }
        if dst_addr.is_multicast() {
            let member = interface.is_member(dst_addr.into());
            return if member { Ok(true) } else { Err(DropReason::IpGroupNotJoined) };
        }
        let looped = at == IfIndex::LOOPBACK && self.owns(dst_addr);
        let taken = looped || takes_any(interface, dst_addr);
        if taken { Ok(false) } else { Err(DropReason::IpNotForUs) }
    }

    /// Lets a source of 240/4 pass where one of our links is there, or may be once a lease that is
    /// asked for has come.
    #[cold]
    fn reserved_source(
        &self,
        heading: &ArrivedHeading<Ipv4Addr>,
        refused: DropReason,
    ) -> Result<(), DropReason> {
        let reserved = refused == DropReason::IpSourceInvalid
            && ipv4_is_reserved(heading.src_addr)
            && (self.interfaces.iter().any(Interface::has_reserved) || self.dhcp_asks());
        match heading.dst_addr.octets()[0] {
            _ if !reserved => Err(refused),
            0 | 127 => Err(DropReason::IpDestinationInvalid),
            _ => Ok(()),
        }
    }

    /// Whether a packet from elsewhere has as its source one of our addresses, or everybody's on
    /// any of our links: an answer to that would reach them all (RFC 1812 section 4.2.2.11).
    #[cold]
    fn is_forged_v4(&self, src_addr: Ipv4Addr) -> bool {
        let is_ours = |i: &Interface| i.owns_v4(src_addr).is_some() || i.is_broadcast_v4(src_addr);
        self.interfaces.iter().any(is_ours)
    }

    /// Whether an IPv6 packet is for this host, and whether as one of many.
    #[inline]
    pub(crate) fn is_ours_v6(
        &self,
        at: IfIndex,
        heading: &ArrivedHeading<Ipv6Addr>,
    ) -> Result<bool, DropReason> {
        let Some(interface) = self.interfaces.get(usize::from(at.0)) else {
            return Err(DropReason::InterfaceUnknown);
        };
        let dst_addr = heading.dst_addr;
        if at != IfIndex::LOOPBACK {
            input::ipv6_addresses(heading)?;
            let src_addr = heading.src_addr;
            let foreign = self.interfaces.iter().all(|i| i.is_surely_foreign_v6(src_addr));
            if !foreign && !dst_addr.is_group() && self.owns(src_addr) {
                return Err(DropReason::IpSourceInvalid);
            }
        }
        if dst_addr.is_group() {
            let member = interface.is_member(dst_addr.into());
            return if member { Ok(true) } else { Err(DropReason::IpGroupNotJoined) };
        }
        // A tentative address receives nothing but neighbour discovery, which is multicast
        // (RFC 4862 section 5.4).
        if interface.owns_v6(dst_addr).is_some_and(|state| state.is_assigned()) {
            return Ok(false);
        }
        let looped = at == IfIndex::LOOPBACK && (self.owns(dst_addr) || self.is_anycast(dst_addr));
        let anycast = interface.is_router_anycast(dst_addr);
        let taken = looped || anycast || takes_any(interface, dst_addr);
        if taken { Ok(false) } else { Err(DropReason::IpNotForUs) }
    }

    /// Whether an address is one of ours that is still tentative, on any interface: it receives
    /// nothing (RFC 4862 section 5.4), and a router must not forward packets for it either.
    fn is_tentative(&self, addr: Ipv6Addr) -> bool {
        let ours = |i: &Interface| i.owns_v6(addr).is_some_and(|state| !state.is_assigned());
        self.control.dad.deadline().is_some() && self.interfaces.iter().any(ours)
    }

    /// Whether we may have sent from `addr`: it is ours, or all that is routed here is.
    pub(crate) fn speaks_as<A: Address>(&self, addr: A) -> bool {
        self.owns(addr) || self.interfaces.iter().any(|interface| takes_any(interface, addr))
    }

    /// Whether `addr` is one of a router's anycast addresses, on any interface.
    pub(crate) fn is_anycast<A: Address>(&self, addr: A) -> bool {
        let core::net::IpAddr::V6(addr) = addr.to_ip() else { return false };
        self.interfaces.iter().any(|interface| interface.is_router_anycast(addr))
    }

    /// Whether `addr` is one of this host's, on any interface.
    pub(crate) fn owns<A: Address>(&self, addr: A) -> bool {
        let addr = addr.to_ip();
        self.interfaces.iter().any(|i| i.owns(addr).is_some_and(|state| state.is_assigned()))
    }
}

/// Whether an interface accepts packets for an address that is not assigned to this host: one that
/// packets can be routed to.
pub(crate) fn takes_any<A: Address>(interface: &Interface, addr: A) -> bool {
    let broadcast = addr.to_ip() == core::net::IpAddr::V4(Ipv4Addr::BROADCAST);
    interface.any_destination
        // An address that is still being probed is not accepted.
        && interface.owns(addr.to_ip()).is_none()
        && !broadcast
        && !addr.is_group()
        && !addr.is_link_scope()
        && !addr.is_loopback_addr()
        && addr != A::UNSPECIFIED
}

/// Whether a frame is for this station. Marks the packet where it went to many.
#[inline]
fn station(
    packet: &mut PacketBuf,
    dst_addr: MacAddr,
    src_addr: MacAddr,
    mac: MacAddr,
) -> Result<(), DropReason> {
    if dst_addr != mac {
        if !dst_addr.is_group() {
            return Err(DropReason::FrameNotForUs);
        }
        packet.set_link_group(true);
    }
    if src_addr.is_group() { Err(DropReason::FrameSourceGroup) } else { Ok(()) }
}
