//! Forwarding: packets to other hosts are gathered for a burst, looked up together, and passed on.
//!
//! Called by `rx.rs` for a packet that is not for this host on an interface that forwards, and by
//! `stack.rs` and `shards/handover.rs` at the end of a burst. What depends on the header alone is
//! in `floodwall_ip::forward`. Invariants: no state for a destination, a source or a flow decides
//! where a packet goes; a forwarded packet counts as `forwarded` in the inbound ledger and as
//! `originated` in the outbound one, so both balance; path MTUs and redirects (`exceptions.rs`)
//! never apply to forwarded packets; packets of one flow stay in order. A follower forwards what
//! its own queue received; a packet to an unresolved neighbour goes to the control shard as it
//! arrived. Reading: RFC 1812 chapter 5, RFC 8200 sections 3 to 5, RFC 2992 (choice among several
//! next hops, ECMP). Not here: ICMP errors to senders (`accounting.rs`), redirects
//! (`forward/redirect.rs`), priority under pressure (`forward/flows.rs`).
//!
//! # Under flood
//! Reachable from any source, with any addresses. Bound: one burst of packets
//! ([`BURST_MAX`](floodwall_base::limits::BURST_MAX)); the only state kept longer is the table of
//! active pairs, of a fixed size (`forward/flows.rs`); neighbours that do not answer are
//! bounded by `floodwall_ip::neighbor`, and what a follower hands over for them by
//! [`FORWARD_HANDED_MAX`](floodwall_base::limits::FORWARD_HANDED_MAX) a round. Worst work per
//! packet: two look-ups, one neighbour, one answer within the limits of `ip/icmp_limit.rs`. Under
//! overload, packets of active pairs are forwarded first (`triage.rs`). Honest traffic to resolved
//! neighbours loses nothing; first contact with a new one may be refused (`NeighborTableFull`,
//! `NeighborPendingFull`). Counters: `IpForwDatagrams`, `Ip6OutForwDatagrams`, and the drops named
//! here.

pub(crate) mod crossing;
pub(crate) mod flows;
mod forward_path;
pub(crate) mod forwarding;
mod redirect;
mod redirect_offers;
mod redirects;
mod resolve;

use core::mem;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::limits::{BURST_MAX, FORWARD_HANDED_MAX};
use floodwall_base::{Address, Counter, DropReason, Family, IfIndex, Instant};
use floodwall_fib::{Found, Query, RouteKind};
use floodwall_ip::forward::{self, Fit};
use floodwall_ip::{ArrivedHeading, IcmpError, Interface, RefusedAction};
use floodwall_packet::PacketBuf;
use floodwall_wire::{IpProtocol, ethernet};

use self::crossing::CrossingPacket;
use self::flows::DialogueSlot;
use self::forward_path::{ForwardPath, ForwardPaths, LinkPeers};
use self::forwarding::{ForwardBatch, Forwarding, NotedPacket};
use crate::ip::ip_family::IpFamily;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::shards::Role;
use crate::stack::Stack;

impl Stack {
    /// Whether packets to other hosts that arrive on `iface` are forwarded.
    #[inline]
    pub(crate) fn forwards<A: CrossingPacket>(&self, iface: IfIndex) -> bool {
        self.policy.forwarding.as_ref().is_some_and(|forwarding| A::is_open(forwarding.port(iface)))
    }

    /// Handles a packet that is not for this host on its input interface: it waits for the end of
    /// its burst, is dropped, or is delivered locally after all.
    #[inline]
    pub(crate) fn transit<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        l3: usize,
        heading: &ArrivedHeading<A>,
    ) {
        let ascent = || RxMeta { iface: packet.iface(), l3, heading: *heading, to_group: false };
        if !self.is_surely_elsewhere(heading.dst_addr) {
            match self.is_elsewhere(heading.dst_addr) {
                Ok(true) => {}
                Ok(false) => {
                    let ascent = ascent();
                    return A::arrive(self, cx, packet, ascent);
                }
                Err(reason) => return self.drop_ip::<A>(packet, reason),
            }
        }
        if packet.is_link_group() {
            return self.drop_ip::<A>(packet, DropReason::ForwardBroadcast);
        }
        let Some(forwarding) = &mut self.policy.forwarding else {
            return self.drop_ip::<A>(packet, DropReason::IpNotForUs);
        };
        let limits = &self.policy.extension_limits;
        let access = &mut self.stats.access;
        let (from, to) = (heading.src_addr, heading.dst_addr);
        let reserved = to.to_ip().is_ipv4() && self.interfaces.iter().any(Interface::has_reserved);
        let may = forward::may_cross(from, to, forwarding.martians, reserved)
            .and_then(|()| forward::may_go_on(&packet, l3, heading, limits, access));
        if let Err(refusal) = may {
            let ascent = ascent();
            return self.refuse(cx, packet, ascent, None, refusal);
        }
        let batch = A::batch(forwarding);
        batch.ascents.push(ascent());
        batch.packets.push(packet);
        if batch.packets.len() >= BURST_MAX {
            self.forward_burst::<A>(cx);
        }
    }

    /// Fast negative check, a few instructions for each interface: none can have this address.
    #[inline]
    fn is_surely_elsewhere<A: Address>(&self, addr: A) -> bool {
        match addr.to_ip() {
            IpAddr::V4(addr) => self.interfaces.iter().all(|i| i.is_surely_foreign_v4(addr)),
            IpAddr::V6(addr) => self.interfaces.iter().all(|i| i.is_surely_foreign_v6(addr)),
        }
    }

    /// Whether an address is not ours: a router accepts packets for any of its addresses (RFC 1812
    /// section 4.2.2.11), except link-local ones of another link.
    #[cold]
    fn is_elsewhere<A: Address>(&self, addr: A) -> Result<bool, DropReason> {
        if let IpAddr::V4(addr) = addr.to_ip()
            && self.interfaces.iter().any(|i| i.is_broadcast_v4(addr) || i.is_network_v4(addr))
        {
            return Err(DropReason::ForwardBroadcast);
        }
        Ok(addr.is_link_scope() || !(self.owns(addr) || self.is_anycast(addr)))
    }

    /// Forwards all packets that wait: called at the end of a burst.
    #[inline]
    pub(crate) fn forward_all(&mut self, cx: &mut RoundContext<'_>) {
        let Some(forwarding) = &mut self.policy.forwarding else { return };
        forwarding.handed = 0;
        let (v4, v6) = (!forwarding.v4.packets.is_empty(), !forwarding.v6.packets.is_empty());
        if v4 {
            self.forward_burst::<Ipv4Addr>(cx);
        }
        if v6 {
            self.forward_burst::<Ipv6Addr>(cx);
        }
    }

    /// Looks up all packets of the batch together, then forwards each in order.
    fn forward_burst<A: CrossingPacket>(&mut self, cx: &mut RoundContext<'_>) {
        let Some(forwarding) = &mut self.policy.forwarding else { return };
        let looks_back = forwarding.looks_back;
        let mut batch = mem::take(A::batch(forwarding));
        let ForwardBatch { packets, ascents } = &mut batch;
        self.stats.counters.count(Counter::FloodwallForwardBursts);
        let mut addrs = [A::UNSPECIFIED; BURST_MAX];
        let mut found = [None; BURST_MAX];
        for (addr, ascent) in addrs.iter_mut().zip(&*ascents) {
            *addr = ascent.heading.dst_addr;
        }
        let count = ascents.len().min(BURST_MAX);
        self.routes_to(cx, addrs.get(..count).unwrap_or_default(), &mut found);
        let astray = if looks_back { self.astray(cx, ascents) } else { 0 };
        let mut noted = self.choose_noted(ascents, cx.now);
        let mut ways = ForwardPaths::new();
        let all = packets.drain(..).zip(&*ascents).zip(&found).enumerate();
        for (at, ((packet, ascent), found)) in all {
            let (place, is_chosen) = noted.next();
            if astray >> (at & 63) & 1 == 1 {
                self.stats.counters.count(Counter::TcpExtIPReversePathFilter);
                self.drop_ip::<A>(packet, DropReason::ForwardReversePath);
                continue;
            }
            let before = cx.departing.len();
            let left = self.forward(cx, packet, ascent, (found.as_ref(), &mut ways));
            let is_one = cx.departing.len() == before + 1;
            if let (true, Some(place), Some(forwarding)) =
                (left, place, &mut self.policy.forwarding)
            {
                if is_chosen {
                    forwarding.dialogues.note(place);
                }
                if is_one
                    && forwarding.redirects.has_room()
                    && forwarding.dialogues.is_established(place)
                {
                    self.offer_redirect(cx, ascent, found.as_ref());
                }
            }
        }
        // The batch's memory is reused.
        ascents.clear();
        if let Some(forwarding) = &mut self.policy.forwarding {
            *A::batch(forwarding) = batch;
        }
    }

    /// Selects the packets of this burst that update the table of active pairs on departure.
    fn choose_noted<A: CrossingPacket>(
        &mut self,
        ascents: &[RxMeta<A>],
        now: Instant,
    ) -> NotedPacket {
        let places = [DialogueSlot::UNUSED; BURST_MAX];
        let mut noted = NotedPacket { places, chosen: 0, all: false, at: 0 };
        let Some(Forwarding { dialogues, redirects, .. }) = self.policy.forwarding.as_deref_mut()
        else {
            return noted;
        };
        noted.all = redirects.has_room();
        dialogues.begin(now);
        let mut sample = dialogues.sample(ascents.iter().map(|ascent| ascent.iface));
        for (at, (ascent, slot)) in ascents.iter().zip(&mut noted.places).enumerate() {
            let is_chosen = sample.takes(ascent.iface);
            if is_chosen || noted.all {
                let heading = &ascent.heading;
                *slot = dialogues.place(heading.src_addr, heading.dst_addr);
                dialogues.prefetch(*slot);
                noted.chosen |= u64::from(is_chosen) << at;
            }
        }
        noted
    }

    /// Reverse path filtering: bitmap of the packets that fail it (RFC 3704).
    #[inline(never)]
    fn astray<A: CrossingPacket>(&self, cx: &RoundContext<'_>, ascents: &[RxMeta<A>]) -> u64 {
        let (mut addrs, mut back) = ([A::UNSPECIFIED; BURST_MAX], [None; BURST_MAX]);
        for (addr, ascent) in addrs.iter_mut().zip(ascents) {
            *addr = ascent.heading.src_addr;
        }
        let count = ascents.len().min(BURST_MAX);
        self.routes_to(cx, addrs.get(..count).unwrap_or_default(), &mut back);
        let lost = |(_, (ascent, back)): &(usize, (&RxMeta<A>, &Option<Found<A>>))| {
            !self.comes_by_its_way(ascent.iface, back.as_ref())
        };
        let all = ascents.iter().zip(&back).enumerate();
        all.filter(lost).fold(0, |bits, (at, _)| bits | 1 << (at & 63))
    }

    fn comes_by_its_way<A: CrossingPacket>(&self, iface: IfIndex, back: Option<&Found<A>>) -> bool {
        let port = self.policy.forwarding.as_ref().map(|f| f.port(iface)).unwrap_or_default();
        let same = back.is_some_and(|back| back.iface == iface);
        let back = back.map(|back| (back.kind, back.is_choice));
        forward::comes_by_its_way(port.reverse_path, back, same)
    }

    /// Looks up the routes to `addrs`.
    #[inline]
    fn routes_to<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        addrs: &[A],
        found: &mut [Option<Found<A>>],
    ) {
        match (&self.shard.role, &cx.peers) {
            (Role::Follower(follower), Some(peers)) => {
                let routes = A::fib_reader(&follower.routes);
                routes.lookup_burst(peers.view, addrs, cx.now, found);
            }
            (Role::Follower(_), None) => {}
            _ => A::fib(self).lookup_burst(addrs, cx.now, found),
        }
    }

    /// Route of a packet to a destination with several next hops (ECMP): the flow hash decides.
    #[cold]
    fn route_of_flow<A: CrossingPacket>(
        &mut self,
        cx: &RoundContext<'_>,
        packet: &PacketBuf,
        ascent: &RxMeta<A>,
    ) -> Option<Found<A>> {
        let flow = self.flow_of(packet, ascent);
        let query = Query { flow: Some(flow), ..Query::to(ascent.heading.dst_addr) };
        match (&self.shard.role, &cx.peers) {
            (Role::Follower(follower), Some(peers)) => {
                A::fib_reader(&follower.routes).lookup_query(peers.view, &query, cx.now)
            }
            (Role::Follower(_), None) => None,
            _ => A::fib(self).lookup_query(&query, cx.now),
        }
    }

    /// Keyed hash of a packet's flow: addresses and protocol, and the ports of TCP and UDP unless
    /// it is a fragment; for all else over IPv6 the 20 bits of the flow label (RFC 6438), without
    /// the traffic class beside it: a router on the way may change that (ECN, DSCP).
    fn flow_of<A: CrossingPacket>(&mut self, packet: &PacketBuf, ascent: &RxMeta<A>) -> u64 {
        let (heading, mut bytes) = (&ascent.heading, [0; 40]);
        let (ends, rest) = bytes.split_at_mut(32);
        let ends_of = [heading.src_addr, heading.dst_addr].map(Address::to_bits_aligned);
        for (out, bits) in ends.chunks_exact_mut(16).zip(ends_of) {
            out.copy_from_slice(&bits.to_be_bytes());
        }
        let has_ports = matches!(heading.protocol, IpProtocol::UDP | IpProtocol::TCP);
        let by_ports = has_ports && !heading.is_fragment;
        let at = match (by_ports, A::FAMILY) {
            (true, _) => Some(ascent.l3 + heading.header_len),
            (false, Family::V6) => Some(ascent.l3),
            (false, Family::V4) => None,
        };
        let mut scratch = [0; 4];
        let word: Option<&[u8; 4]> =
            at.and_then(|at| packet.header_array(at, &mut scratch, &mut self.stats.access));
        let (protocol, word_out) = rest.split_at_mut(4);
        protocol.fill(heading.protocol.0);
        if let Some(&[a, b, c, d]) = word {
            let word = if by_ports { [a, b, c, d] } else { [0, b & 0x0f, c, d] };
            word_out.copy_from_slice(&word);
        }
        self.policy.forwarding.as_ref().map_or(0, |forwarding| forwarding.key.bytes(&bytes))
    }

    /// Forwards one packet along the route that was looked up. Whether it has left to a resolved
    /// neighbour.
    #[inline]
    fn forward<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: &RxMeta<A>,
        (found, ways): (Option<&Found<A>>, &mut ForwardPaths<A>),
    ) -> bool {
        let chosen;
        let found = match found {
            Some(found) if found.is_choice => {
                chosen = self.route_of_flow(cx, &packet, ascent);
                chosen.as_ref()
            }
            found => found,
        };
        if self.is_behind() {
            self.hand_transit::<A>(cx, packet);
            return false;
        }
        let Some(found) = found.filter(|found| found.kind.is_unicast()) else {
            self.leads_nowhere(cx, packet, *ascent, found.map(|found| found.kind));
            return false;
        };
        let next_hop = found.gateway.unwrap_or(ascent.heading.dst_addr);
        let (way, known) = ways.place(found.iface, next_hop);
        if known {
            self.stats.counters.count(Counter::FloodwallForwardAgain);
        } else {
            *way = self.way(cx, found.iface, next_hop);
        }
        let len = packet.len() - ascent.l3;
        let plain = len <= way.mtu as usize && found.iface != ascent.iface;
        if !plain && let Err(refusal) = self.may_leave(cx, &packet, ascent, way) {
            self.refuse(cx, packet, *ascent, None, refusal);
            return false;
        }
        match way.stations {
            LinkPeers::Down => {
                let unreachable =
                    RefusedAction::owing(DropReason::InterfaceDown, IcmpError::NoRoute);
                self.refuse(cx, packet, *ascent, None, unreachable);
                return false;
            }
            LinkPeers::Closed => {
                let prohibited =
                    RefusedAction::owing(DropReason::RouteProhibited, IcmpError::Prohibited);
                self.refuse(cx, packet, *ascent, None, prohibited);
                return false;
            }
            LinkPeers::Unknown => {
                self.forward_unresolved(cx, packet, ascent.l3, way);
                return false;
            }
            _ if len > way.mtu as usize => self.forward_cut(cx, packet, ascent.l3, way),
            _ => self.forward_at_once::<A>(cx, packet, ascent.l3, way),
        }
        true
    }

    /// The error owed for a packet without a usable route, or with a local one.
    #[cold]
    fn leads_nowhere<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<A>,
        kind: Option<RouteKind>,
    ) {
        if kind == Some(RouteKind::Local) {
            return A::arrive(self, cx, packet, ascent);
        }
        let mut refusal = forward::nowhere::<A>(kind.unwrap_or_default());
        if kind.is_none() && self.leads_into_a_dead_link(cx, ascent.heading.dst_addr) {
            refusal.reason = DropReason::InterfaceDown;
        }
        self.refuse(cx, packet, ascent, None, refusal);
    }

    /// Handles the special cases: a packet that exceeds its link's MTU, or leaves by the interface
    /// that it arrived on. In the latter case its sender is sent a redirect, but on a link without
    /// stations (point-to-point) the packet is refused (RFC 4443 section 3.1): it would loop until
    /// its hop limit is used up.
    #[cold]
    fn may_leave<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: &PacketBuf,
        ascent: &RxMeta<A>,
        way: &ForwardPath<A>,
    ) -> Result<(), RefusedAction> {
        let (len, mtu) = (forward_path::largest_piece(packet, ascent.l3), way.mtu);
        let access = &mut self.stats.access;
        let fit = forward::fit::<A>(len, mtu, || {
            let mut scratch = [0; 1];
            let flags: Option<&[u8; 1]> = packet.header_array(ascent.l3 + 6, &mut scratch, access);
            flags.is_none_or(|flags| flags[0] & 0x40 != 0)
        });
        if fit == Fit::TooBig {
            let too_big = IcmpError::PacketTooBig { mtu };
            return Err(RefusedAction::owing(DropReason::PacketTooBig, too_big));
        }
        if way.iface == ascent.iface {
            if way.stations == LinkPeers::Bare && self.is_on_link(way, ascent.heading.dst_addr) {
                return Err(RefusedAction::owing(DropReason::NoRoute, IcmpError::HostUnreachable));
            }
            self.redirect_sender(cx, packet, ascent, way);
        }
        Ok(())
    }

    /// Whether a destination is on a prefix of its outgoing link.
    fn is_on_link<A: CrossingPacket>(&self, way: &ForwardPath<A>, dst_addr: A) -> bool {
        let interface = self.interfaces.get(usize::from(way.iface.0));
        interface.is_some_and(|interface| interface.is_on_link(dst_addr.to_ip()))
    }

    /// Counts a forwarded packet, in both ledgers.
    #[inline]
    fn count_forwarded<A: CrossingPacket>(&mut self) {
        self.stats.counters.count(A::FORWARDED);
        self.stats.outcomes.forwarded += 1;
        self.stats.outcomes.originated += 1;
    }

    /// Decrements a packet's hop limit in place. Where it cannot be written, the packet is counted
    /// as dropped and `false` returned.
    #[inline]
    fn lower<A: CrossingPacket>(
        &mut self,
        cx: &RoundContext<'_>,
        packet: &mut PacketBuf,
        l3: usize,
    ) -> bool {
        let lowered = packet.first_mut().and_then(|bytes| {
            let header = bytes.get_mut(l3..)?.first_chunk_mut()?;
            forward::lower_hop_limit::<A>(header);
            Some(())
        });
        lowered.is_some() || self.lower_in_pieces::<A>(cx, packet, l3)
    }

    /// The slow case: the header is shared, or straddles chunks.
    #[cold]
    fn lower_in_pieces<A: CrossingPacket>(
        &mut self,
        cx: &RoundContext<'_>,
        packet: &mut PacketBuf,
        l3: usize,
    ) -> bool {
        let Ok(bytes) = packet.pulldown(cx.pool, l3, 12, &mut self.stats.access) else {
            return false;
        };
        let Some(header) = bytes.first_chunk_mut() else { return false };
        forward::lower_hop_limit::<A>(header);
        true
    }

    /// The fast path: the neighbour is resolved and the packet fits. The new link header replaces
    /// the old one in place.
    #[inline]
    fn forward_at_once<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        l3: usize,
        way: &ForwardPath<A>,
    ) {
        if !self.lower::<A>(cx, &mut packet, l3) {
            return self.drop_ip::<A>(packet, DropReason::NoBuffer);
        }
        self.count_forwarded::<A>();
        packet.set_iface(way.iface);
        if let LinkPeers::Known(stations) = &way.stations
            && l3 == ethernet::HEADER_LEN
            && let Some(header) = packet.first_mut().and_then(|bytes| bytes.first_chunk_mut::<12>())
        {
            *header = *stations;
            return self.depart(cx, packet);
        }
        forward_path::change_link_header(&mut packet, l3, way.stations);
        self.leave_by::<A>(cx, packet, way.stations);
    }

    /// Transmits an IP packet without link header to a resolved neighbour.
    fn leave_by<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        stations: LinkPeers,
    ) {
        match stations {
            LinkPeers::Known(stations) => match forward_path::frame::<A>(cx.pool, packet, stations)
            {
                Ok(packet) => self.depart(cx, packet),
                Err(packet) => self.drop_output::<A>(packet, DropReason::NoBuffer),
            },
            _ => self.depart(cx, packet),
        }
    }

    /// Forwards a packet in fragments.
    #[cold]
    fn forward_cut<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        mut packet: PacketBuf,
        l3: usize,
        way: &ForwardPath<A>,
    ) {
        if forward_path::is_super_frame(&packet) {
            // The device segments it (GSO), as the sender intended.
            return self.forward_at_once(cx, packet, l3, way);
        }
        if !self.lower::<A>(cx, &mut packet, l3) {
            return self.drop_ip::<A>(packet, DropReason::NoBuffer);
        }
        packet.trim_front(l3);
        packet.set_iface(way.iface);
        self.count_forwarded::<A>();
        match floodwall_ip::refragment::recut(cx.pool, packet, way.mtu as usize) {
            Ok(mut pieces) => {
                let count = pieces.len() as u64;
                self.stats.counters.count(A::FRAG_OKS);
                self.stats.counters.add(A::FRAG_CREATES, count);
                self.stats.outcomes.originated += count.saturating_sub(1);
                while let Some(piece) = pieces.pop_front() {
                    self.leave_by::<A>(cx, piece, way.stations);
                }
            }
            Err((packet, reason)) => {
                self.stats.counters.count(A::FRAG_FAILS);
                self.drop_output::<A>(packet, reason);
            }
        }
    }

    /// Hands a packet as it arrived to the control shard, which forwards it: a bounded number a
    /// round, so that packets to unresolvable neighbours do not crowd out those that only the
    /// control shard can handle.
    #[cold]
    fn hand_transit<A: CrossingPacket>(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf) {
        let Some(forwarding) = &mut self.policy.forwarding else {
            return self.drop_packet(packet, DropReason::HandoffFull);
        };
        forwarding.handed += 1;
        if forwarding.handed > FORWARD_HANDED_MAX {
            return self.drop_ip::<A>(packet, DropReason::HandoffFull);
        }
        self.hand_in(cx, packet, None);
    }

    /// Sends the error for a forwarded packet after its neighbour resolution failed (RFC 4861
    /// section 7.2.2, RFC 1812 section 5.2.7.1).
    pub(crate) fn tell_sender_unreachable<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: &PacketBuf,
    ) {
        if self.policy.forwarding.is_none() {
            return;
        }
        let Some(ascent) = A::reread(self, packet) else { return };
        if !self.owns(ascent.heading.src_addr) {
            self.answer_error(cx, packet, ascent, None, IcmpError::HostUnreachable);
        }
    }
}
