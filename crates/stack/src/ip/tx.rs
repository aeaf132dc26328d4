//! Packet out: route, header, neighbour, link header.
//!
//! Called for everything that this stack originates. A packet that cannot leave is dropped here,
//! with a reason, in the output accounting. Reading: RFC 1122 section 3.3.1, RFC 4861 section 5.2.

use core::net::IpAddr;

use floodwall_base::{Address, DropReason, Family, IfIndex, MacAddr, limits};
use floodwall_fib::RouteKind;
use floodwall_fib::exceptions::FirstHop;
use floodwall_ip::output::HeaderError;
use floodwall_ip::{LinkMedium, Resolution, source_address};
use floodwall_packet::{ChecksumState, PacketBuf, PacketList};
use floodwall_wire::{EtherType, EthernetFields};

use crate::ip::cut;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{OutgoingPacket, OutputPath};
use crate::ip::partial;
use crate::ip::path_cache::{LearnedPath, PathQuery, SendingPath};
use crate::round_context::RoundContext;
use crate::stack::Stack;

pub(crate) use floodwall_ip::iface::HOP_LIMIT;

impl Stack {
    /// Where `dst_addr` leads from here. Link-local addresses and groups need `zone`, or the first
    /// interface that is up is taken.
    pub(crate) fn path<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        dst_addr: A,
        zone: Option<IfIndex>,
    ) -> Result<OutputPath<A>, DropReason> {
        let here = dst_addr.is_group() && zone == Some(IfIndex::LOOPBACK);
        if here || dst_addr.is_loopback_addr() || self.owns_in(dst_addr, zone) {
            return Ok(OutputPath::Local);
        }
        let on_link = dst_addr.is_group()
            || dst_addr.is_link_scope()
            || dst_addr.to_ip() == IpAddr::V4(core::net::Ipv4Addr::BROADCAST);
        if on_link {
            let iface = zone.or_else(|| self.first_up()).ok_or(DropReason::NoRoute)?;
            return self.via(iface, dst_addr);
        }
        let Some(route) = self.route_to(cx, dst_addr) else {
            if self.is_behind() {
                // There may be one that could not be shown: the control shard decides.
                let iface = zone.or_else(|| self.first_up()).ok_or(DropReason::NoRoute)?;
                return self.via(iface, dst_addr);
            }
            let dead = self.leads_into_a_dead_link(cx, dst_addr);
            return Err(if dead { DropReason::InterfaceDown } else { DropReason::NoRoute });
        };
        match route.kind {
            RouteKind::Unicast => {}
            RouteKind::Local => return Ok(OutputPath::Local),
            _ => return Err(DropReason::NoRoute),
        }
        let hop = FirstHop { iface: route.iface, via: route.gateway };
        let known = A::exceptions(self).lookup(dst_addr, hop, cx.now);
        let next_hop = known.target_addr.or(hop.via).unwrap_or(dst_addr);
        let path = self.via(route.iface, next_hop)?;
        Ok(path.at_most(known.mtu))
    }

    /// Whether the next hop of a path is a neighbour, of which reachability is looked after.
    pub(crate) fn leads_to_neighbor<A: IpFamily>(&self, path: OutputPath<A>) -> bool {
        let OutputPath::Via { iface, .. } = path else { return false };
        let interface = self.interfaces.get(usize::from(iface.0));
        interface.is_none_or(|it| it.medium != LinkMedium::Ip)
    }

    /// Where the route to a destination hands packets to: what was learnt of it counts for that.
    pub(crate) fn hop_of<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        dst_addr: A,
    ) -> Option<FirstHop<A>> {
        let of = |addr: A| addr.is_group() || addr.is_link_scope();
        let route = self.route_to(cx, dst_addr).filter(|_| !of(dst_addr))?;
        Some(FirstHop { iface: route.iface, via: route.gateway })
    }

    /// The hop limit of packets that leave on a path, unless the sender sets another: for IPv6 the
    /// one that a router advertises (RFC 4861 section 6.3.2, CurHopLimit).
    pub(crate) fn hop_limit_on<A: IpFamily>(&self, path: OutputPath<A>) -> u8 {
        match path {
            OutputPath::Via { iface, .. } => self.hop_limit_of::<A>(iface),
            OutputPath::Local => HOP_LIMIT,
        }
    }

    /// As [`Stack::hop_limit_on`], for what leaves by an interface.
    pub(crate) fn hop_limit_of<A: IpFamily>(&self, iface: IfIndex) -> u8 {
        let interface = self.interfaces.get(usize::from(iface.0));
        interface.filter(|_| A::FAMILY == Family::V6).map_or(HOP_LIMIT, |i| i.hop_limit)
    }

    fn via<A: IpFamily>(&self, iface: IfIndex, next_hop: A) -> Result<OutputPath<A>, DropReason> {
        let interface =
            self.interfaces.get(usize::from(iface.0)).ok_or(DropReason::InterfaceUnknown)?;
        if !interface.up {
            return Err(DropReason::InterfaceDown);
        }
        let mtu = interface.mtu_of(A::FAMILY == Family::V4);
        Ok(OutputPath::Via { iface, next_hop, mtu })
    }

    /// Whether the address is ours; a link-local one only on its own link.
    fn owns_in<A: Address>(&self, addr: A, zone: Option<IfIndex>) -> bool {
        let addr_ip = addr.to_ip();
        self.interfaces.iter().any(|i| {
            let here = !addr.is_link_scope() || zone.is_none_or(|z| z == i.index);
            let anycast = matches!(addr_ip, IpAddr::V6(addr) if i.is_router_anycast(addr));
            here && (anycast || i.owns(addr_ip).is_some_and(|state| state.is_assigned()))
        })
    }

    pub(crate) fn first_up(&self) -> Option<IfIndex> {
        self.interfaces.iter().skip(1).find(|i| i.up).map(|i| i.index)
    }

    /// Our address towards a destination (RFC 6724).
    pub(crate) fn source_for<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        dst_addr: A,
        zone: Option<IfIndex>,
    ) -> Option<A> {
        let path = self.path(cx, dst_addr, zone).ok()?;
        self.source_on(cx, path, dst_addr)
    }

    /// The source address towards a destination, given its path.
    pub(crate) fn source_on<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        path: OutputPath<A>,
        dst_addr: A,
    ) -> Option<A> {
        let iface = match path {
            OutputPath::Via { iface, .. } => iface,
            OutputPath::Local if dst_addr.is_group() => IfIndex::LOOPBACK,
            OutputPath::Local => return Some(dst_addr),
        };
        let preferred = self.route_to(cx, dst_addr).and_then(|r| r.src_addr);
        preferred.or_else(|| {
            let found = source_address(dst_addr.to_ip(), iface, &self.interfaces)?;
            A::from_ip(found)
        })
    }

    /// Sends one packet: the only way out for what we originate above the network layer.
    pub(crate) fn output<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        outgoing: OutgoingPacket<A>,
    ) {
        self.output_within(cx, outgoing, None);
    }

    /// The same, in pieces of `path_mtu` bytes at most, where that is known otherwise.
    pub(crate) fn output_within<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        outgoing: OutgoingPacket<A>,
        path_mtu: Option<u32>,
    ) {
        match self.path(cx, outgoing.ends.dst_addr, outgoing.zone) {
            Ok(path) => self.output_on(cx, outgoing, path.at_most(path_mtu), None),
            Err(reason) => {
                self.originate::<A>(outgoing.packet.len() + A::HEADER_LEN);
                self.drop_output::<A>(outgoing.packet, reason);
            }
        }
    }

    /// Counts a packet that we made.
    #[inline]
    pub(crate) fn originate<A: IpFamily>(&mut self, len: usize) {
        self.stats.outcomes.originated += 1;
        self.stats.counters.count(A::OUT_REQUESTS);
        self.stats.counters.add(A::OUT_OCTETS, len as u64);
    }

    /// Sends one packet on a known path, and caches the path for `query`.
    pub(crate) fn output_on<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        outgoing: OutgoingPacket<A>,
        path: OutputPath<A>,
        sending: Option<SendingPath>,
    ) {
        let OutgoingPacket { packet, ends, protocol, hop_limit, class, .. } = outgoing;
        let len = packet.len() + A::HEADER_LEN;
        self.originate::<A>(len);
        let packet = match A::header(cx.pool, packet, ends, protocol, hop_limit, class) {
            Ok(packet) => packet,
            Err(HeaderError::NoBuffer(packet)) => {
                return self.drop_output::<A>(packet, DropReason::NoBuffer);
            }
            Err(HeaderError::TooLong(packet)) => {
                return self.drop_output::<A>(packet, DropReason::PacketTooBig);
            }
        };
        self.send_headed(cx, packet, path, sending);
    }

    /// Sends a packet that has its IP header.
    pub(crate) fn send_headed<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        path: OutputPath<A>,
        sending: Option<SendingPath>,
    ) {
        let len = packet.len();
        match path {
            OutputPath::Local => self.loop_back::<A>(packet),
            OutputPath::Via { iface, next_hop, mtu } => {
                let v4 = A::FAMILY == Family::V4;
                // The headers of a packet that will be cut serve no other.
                if len > mtu as usize {
                    return self.transmit_within(cx, packet, iface, next_hop, mtu);
                }
                let learn = sending.map(|SendingPath { query, flow, is_settled }| {
                    (query, LearnedPath { v4, flow, iface, mtu, is_settled })
                });
                self.transmit(cx, packet, iface, next_hop, learn);
            }
        }
    }

    /// To ourselves: the packet arrives on the loopback interface in one of the next rounds.
    pub(crate) fn loop_back<A: IpFamily>(&mut self, mut packet: PacketBuf) {
        if self.burst.loopback.len() >= limits::LOOPBACK_QUEUE_MAX {
            return self.drop_output::<A>(packet, DropReason::LoopbackFull);
        }
        packet.set_iface(IfIndex::LOOPBACK);
        packet.set_link_group(false);
        packet.uncharge();
        self.stats.outcomes.transmitted += 1;
        self.burst.loopback.push_back(packet);
    }

    /// Hands an IP packet to its link. The link header goes before it once the neighbour's
    /// address is known.
    #[inline]
    pub(crate) fn transmit<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        iface: IfIndex,
        next_hop: A,
        learn: Option<(PathQuery, LearnedPath)>,
    ) {
        packet.set_iface(iface);
        if self.is_behind() {
            return self.hand_out::<A>(cx, packet);
        }
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else {
            return self.drop_output::<A>(packet, DropReason::InterfaceUnknown);
        };
        let LinkMedium::Ethernet(mac) = interface.medium else {
            let mtu = cut::mtu(&packet, interface.mtu_of(A::FAMILY == Family::V4));
            if packet.len() > mtu as usize {
                return self.depart_cut::<A>(cx, packet, mtu, None);
            }
            if let Some((query, path)) = learn {
                self.sockets.path_cache.learn(query, cx.now, path, packet.first(), 0);
            }
            return self.depart(cx, packet);
        };
        let group = match next_hop.to_ip() {
            IpAddr::V4(a) if interface.is_broadcast_v4(a) => Some(MacAddr::BROADCAST),
            IpAddr::V4(a) if a.is_multicast() => Some(MacAddr::of_ipv4_multicast(a)),
            IpAddr::V6(a) if a.is_multicast() => Some(MacAddr::of_ipv6_multicast(a)),
            _ => None,
        };
        if let Some(group) = group {
            return self.frame::<A>(cx, packet, mac, group, None);
        }
        // Packets that wait for a neighbour are bounded there. They must not also use up their
        // socket's send limit, or a few clients with unresolvable link addresses would block a
        // service.
        packet.uncharge();
        if self.is_follower() {
            return match self.published_neighbor(cx, iface, next_hop) {
                Some(neighbor) => self.frame::<A>(cx, packet, mac, neighbor, learn),
                None => self.hand_out::<A>(cx, packet),
            };
        }
        match A::neighbors(self).resolve(iface, (next_hop, A::UNSPECIFIED), cx.now, packet) {
            Resolution::Known(packet, neighbor) => {
                self.frame::<A>(cx, packet, mac, neighbor, learn);
            }
            Resolution::Waiting { solicit, dropped, evicted } => {
                (self.stats.pending, self.memory.has_moved) = (self.stats.pending + 1, true);
                self.drop_evicted::<A>(evicted);
                if let Some(dropped) = dropped {
                    self.stats.pending -= 1;
                    self.drop_output::<A>(dropped, DropReason::NeighborPendingFull);
                }
                if solicit {
                    self.solicit(cx, iface, next_hop.to_ip(), None);
                }
            }
            Resolution::Refused(packet, reason) => self.drop_output::<A>(packet, reason),
        }
    }

    /// Drops what waited for a neighbour that gave way to another.
    pub(crate) fn drop_evicted<A: IpFamily>(&mut self, mut evicted: PacketList) {
        while let Some(packet) = evicted.pop_front() {
            self.stats.pending -= 1;
            self.drop_output::<A>(packet, DropReason::NeighborTableFull);
        }
    }

    /// Sends packets after their neighbour has been resolved.
    pub(crate) fn release<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut released: PacketList,
        neighbor: MacAddr,
    ) {
        while let Some(packet) = released.pop_front() {
            self.stats.pending -= 1;
            match self.interfaces.get(usize::from(packet.iface().0)).map(|i| i.medium) {
                Some(LinkMedium::Ethernet(mac)) => {
                    self.frame::<A>(cx, packet, mac, neighbor, None);
                }
                _ => self.drop_output::<A>(packet, DropReason::InterfaceUnknown),
            }
        }
    }

    /// Puts the Ethernet header before an IP packet and hands it to its device.
    #[inline]
    pub(crate) fn frame<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        src_addr: MacAddr,
        dst_addr: MacAddr,
        learn: Option<(PathQuery, LearnedPath)>,
    ) {
        const LEN: usize = floodwall_wire::ethernet::HEADER_LEN;
        let interface = self.interfaces.get(usize::from(packet.iface().0));
        let mtu = interface.map_or(0, |i| i.mtu_of(A::FAMILY == Family::V4));
        let mtu = cut::mtu(&packet, mtu);
        if packet.len() > mtu as usize {
            return self.depart_cut::<A>(cx, packet, mtu, Some((src_addr, dst_addr)));
        }
        let mut packet = match packet.push_header(cx.pool, LEN) {
            Ok(packet) => packet,
            Err(packet) => return self.drop_output::<A>(packet, DropReason::NoBuffer),
        };
        let ether_type: EtherType = A::ETHER_TYPE;
        if let Some(out) = packet.front_mut(LEN).and_then(|bytes| bytes.first_chunk_mut()) {
            EthernetFields { dst_addr, src_addr, ether_type }.emit(out);
        }
        if let Some((query, path)) = learn {
            self.sockets.path_cache.learn(query, cx.now, path, packet.first(), LEN);
        }
        self.depart(cx, packet);
    }

    #[inline]
    pub(crate) fn depart(&mut self, cx: &mut RoundContext<'_>, mut packet: PacketBuf) {
        packet.uncharge();
        if packet.checksum_state() == ChecksumState::Partial {
            partial::describe(&mut packet);
        }
        self.stats.outcomes.transmitted += 1;
        cx.departing.push_back(packet);
    }

    /// A frame that the neighbour protocols made, complete.
    pub(crate) fn depart_own(
        &mut self,
        cx: &mut RoundContext<'_>,
        frame: Option<PacketBuf>,
    ) -> bool {
        self.stats.outcomes.originated += 1;
        match frame {
            Some(frame) => self.depart(cx, frame),
            None => {
                self.stats.drops_out.count(DropReason::NoBuffer);
                return false;
            }
        }
        true
    }
}
