//! The stack's side of ARP, neighbour discovery and address detection: their verdicts become
//! frames, state and counts.
//!
//! Called by `rx.rs` and `deliver.rs` for what arrived, by `tx.rs` when a link address is missing,
//! and for timed work. Reading: RFC 826, RFC 4861 section 7, RFC 4862 section 5.4, RFC 5227.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, IfIndex, Instant, MacAddr, Units};
use floodwall_fib::{Fib, Found, RouteKind};
use floodwall_ip::dad::DadResponse;
use floodwall_ip::{
    ArpVerdict, ArrivedUpper, DadEvent, Interface, LinkMedium, NdpHeading, NdpVerdict,
    NeighborEvent, Nonce, arp, ndp,
};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_wire::{Icmpv6Type, ethernet};

use crate::ip::forward::crossing::CrossingPacket;
use crate::ip::ip_family::IpFamily;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// The longest neighbour discovery message: a minimum MTU's worth and some.
pub(crate) const NDP_MESSAGE_MAX: usize = 1500;
/// Timed events that one look at a table brings.
const LOOK_EVENTS: usize = 16;
/// Units that one kind of timed work gets before the next has its turn: a slice has room for a turn
/// of each kind, so timers that unverified sources create cannot starve another kind.
const TURN_UNITS: u32 = 4;

/// A few events, taken out of a table before they are acted upon.
struct NeighborEvents<E> {
    slots: [Option<E>; LOOK_EVENTS],
    len: usize,
}

impl<E> NeighborEvents<E> {
    fn new() -> Self {
        Self { slots: [const { None }; LOOK_EVENTS], len: 0 }
    }

    fn push(&mut self, event: E) {
        if let Some(slot) = self.slots.get_mut(self.len) {
            *slot = Some(event);
            self.len += 1;
        }
    }

    fn take(self) -> impl Iterator<Item = E> {
        self.slots.into_iter().flatten()
    }
}

/// What the IP header of a message says; the link's part is not yet known.
fn heading_of(ascent: &RxMeta<Ipv6Addr>) -> NdpHeading {
    let heading = &ascent.heading;
    NdpHeading {
        src_addr: heading.src_addr,
        dst_addr: heading.dst_addr,
        hop_limit: heading.hop_limit,
        fragmented: false,
        link_src_addr: None,
        on_link: false,
    }
}

/// Whether a route puts a neighbour on the link of this interface, although no address of ours
/// covers it.
fn leads_to(routes: &Fib<Ipv6Addr>, interface: &Interface, addr: Ipv6Addr, now: Instant) -> bool {
    let by_route = |found: Found<Ipv6Addr>| {
        (found.kind, found.iface, found.gateway) == (RouteKind::Unicast, interface.index, None)
    };
    !interface.is_on_link(addr.into()) && routes.lookup(addr, now).is_some_and(by_route)
}

impl Stack {
    #[cold]
    pub(crate) fn arp(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf, l3: usize) {
        const LEN: usize = floodwall_wire::arp::PACKET_LEN;
        if self.is_follower() {
            return self.hand_in(cx, packet, None);
        }
        let (mut scratch, mut released) = ([0; LEN], PacketList::new());
        let Self { interfaces, v4, stats, .. } = self;
        let Some(interface) = interfaces.get(usize::from(packet.iface().0)) else {
            return self.drop_packet(packet, DropReason::InterfaceUnknown);
        };
        let Some(bytes) = packet.header(l3, LEN, &mut scratch, &mut stats.access) else {
            return self.drop_packet(packet, DropReason::ArpMalformed);
        };
        let counters = &mut stats.counters;
        let verdict =
            arp::input(bytes, interface, &mut v4.neighbors, cx.now, &mut released, counters);
        let iface = interface.index;
        match verdict {
            ArpVerdict::Reply { link_addr, packet: reply } => {
                let frame = arp::frame(cx.pool, interface, link_addr, &reply);
                stats.outcomes.answered += 1;
                if self.depart_own(cx, frame) {
                    self.stats.counters.count(Counter::FloodwallArpOutReplies);
                }
                self.learnt::<Ipv4Addr>(cx, released, link_addr);
            }
            ArpVerdict::Learnt { link_addr } => {
                self.stats.outcomes.delivered += 1;
                self.learnt::<Ipv4Addr>(cx, released, link_addr);
            }
            ArpVerdict::Conflict(addr) => {
                self.stats.outcomes.delivered += 1;
                self.conflict(cx, iface, addr.into(), None);
            }
            ArpVerdict::Drop(reason) => self.drop_packet(packet, reason),
        }
    }

    #[cold]
    pub(crate) fn ndp(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        upper: ArrivedUpper,
        kind: Icmpv6Type,
    ) {
        let l4 = ascent.l3 + upper.offset;
        let len = packet.len() - l4;
        let mut scratch = [0; NDP_MESSAGE_MAX];
        let link_src_addr = self.link_source(&packet);
        let heading =
            NdpHeading { fragmented: upper.fragmented, link_src_addr, ..heading_of(&ascent) };
        if !self.attends(ascent.iface, kind, &heading, cx.now) {
            return self.drop_packet(packet, DropReason::RouterTalkative);
        }
        let mut released = PacketList::new();
        let Self { interfaces, v6, stats, .. } = self;
        let Some(interface) = interfaces.get(usize::from(ascent.iface.0)) else {
            return self.drop_packet(packet, DropReason::InterfaceUnknown);
        };
        // Where stations have no addresses there is nothing to discover.
        if interface.link_addr().is_none() {
            return self.drop_packet(packet, DropReason::NdpNotForUs);
        }
        let access = &mut stats.access;
        let fits = len <= NDP_MESSAGE_MAX;
        let Some(message) = fits.then(|| packet.header(l4, len, &mut scratch, access)).flatten()
        else {
            return self.drop_packet(packet, DropReason::NdpMalformed);
        };
        let (now, counters) = (cx.now, &mut stats.counters);
        let asks = kind == Icmpv6Type::NEIGHBOR_SOLICITATION;
        let on_link = asks && leads_to(&v6.routes, interface, heading.src_addr, now);
        let heading = NdpHeading { on_link, ..heading };
        let neighbors = &mut v6.neighbors;
        let verdict =
            ndp::input(message, &heading, interface, neighbors, now, &mut released, counters);
        match verdict {
            NdpVerdict::Advertise(answer) => {
                let frame = ndp::advertisement(cx.pool, interface, &answer);
                stats.outcomes.answered += 1;
                if self.depart_own(cx, frame) {
                    self.stats.counters.count(Counter::Icmp6OutMsgs);
                    self.stats.counters.count(Counter::Icmp6OutNeighborAdvertisements);
                }
                self.learnt::<Ipv6Addr>(cx, released, answer.link_dst_addr);
            }
            NdpVerdict::Learnt { addr, link_addr, router, reachable } => {
                self.stats.outcomes.delivered += 1;
                if router == Some(false) {
                    self.router_is_none(cx, ascent.iface, addr.into());
                    self.forget_redirects_to(ascent.iface, addr, true);
                } else if reachable {
                    self.router_answered(cx, ascent.iface, addr.into());
                }
                self.learnt::<Ipv6Addr>(cx, released, link_addr);
            }
            NdpVerdict::DadConflict { addr, nonce } => {
                self.stats.outcomes.delivered += 1;
                self.conflict(cx, ascent.iface, addr.into(), nonce);
            }
            NdpVerdict::Router(said) => match self.router_input(cx, ascent.iface, &said) {
                Ok(()) => self.stats.outcomes.delivered += 1,
                Err(reason) => self.drop_packet(packet, reason),
            },
            NdpVerdict::Asked => match self.router_asked(cx, ascent.iface) {
                Ok(()) => self.stats.outcomes.delivered += 1,
                Err(reason) => self.drop_packet(packet, reason),
            },
            NdpVerdict::Redirect(_) => self.redirect_v6(cx, packet, ascent, l4),
            NdpVerdict::Drop(reason) => {
                if kind != Icmpv6Type::REDIRECT && reason == DropReason::NdpMalformed {
                    self.stats.counters.count(Counter::Icmp6InErrors);
                }
                self.drop_packet(packet, reason);
            }
        }
    }

    /// The station that sent a frame, where the link has stations.
    fn link_source(&mut self, packet: &PacketBuf) -> Option<MacAddr> {
        let interface = self.interfaces.get(usize::from(packet.iface().0))?;
        let LinkMedium::Ethernet(_) = interface.medium else { return None };
        let mut scratch = [0; ethernet::HEADER_LEN];
        let len = ethernet::HEADER_LEN;
        let header = packet.header(0, len, &mut scratch, &mut self.stats.access)?;
        Some(MacAddr(*header.get(6..12)?.first_chunk()?))
    }

    /// A neighbour's link address has become known, or another: what waited for it leaves.
    pub(crate) fn learnt<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        released: PacketList,
        neighbor: MacAddr,
    ) {
        self.sockets.path_cache.forget();
        self.release::<A>(cx, released, neighbor);
    }

    /// An address conflict: another station uses, or probes for, one of our addresses.
    fn conflict(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
        nonce: Option<Nonce>,
    ) {
        let response = self.control.dad.conflict(iface, addr, nonce, cx.now, cx.random);
        match response {
            DadResponse::Ignore => return,
            // It is declined at the first sign of another owner (RFC 2131 section 4.4.1).
            DadResponse::Retry if self.is_leased(iface, addr) => {
                self.control.dad.stop(iface, addr);
                self.address_is_taken(cx, iface, addr);
            }
            DadResponse::Defend => self.announce(cx, iface, addr),
            _ if self.autoconf_conflict(cx, iface, addr) => {}
            DadResponse::Retry => {}
            DadResponse::GiveUp => self.address_is_taken(cx, iface, addr),
        }
        self.stats.counters.count(Counter::FloodwallDadConflicts);
    }

    /// Announces one of our addresses on the link (gratuitous ARP, unsolicited neighbour
    /// advertisement).
    fn announce(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, addr: IpAddr) {
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else { return };
        let (frame, counter) = match addr {
            IpAddr::V4(a) => {
                (arp::announce(cx.pool, interface, a), Counter::FloodwallArpOutRequests)
            }
            IpAddr::V6(a) => {
                (ndp::announce(cx.pool, interface, a), Counter::Icmp6OutNeighborAdvertisements)
            }
        };
        self.depart_counted(cx, frame, counter);
    }

    /// Probes whether an address is in use on the link (duplicate address detection).
    fn probe(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, addr: IpAddr, nonce: Nonce) {
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else { return };
        let (frame, counter) = match addr {
            IpAddr::V4(a) => (arp::probe(cx.pool, interface, a), Counter::FloodwallArpOutRequests),
            IpAddr::V6(a) => {
                (ndp::probe(cx.pool, interface, a, nonce), Counter::Icmp6OutNeighborSolicits)
            }
        };
        self.depart_counted(cx, frame, counter);
    }

    /// Sends a request for a neighbour's link address: to the link's group, or to the neighbour
    /// itself.
    pub(crate) fn solicit(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
        unicast: Option<MacAddr>,
    ) {
        let Some(interface) = self.interfaces.get(usize::from(iface.0)) else { return };
        // A request must not carry an address that is not ours yet; the timer retries.
        let Some(source) = floodwall_ip::source_address(addr, iface, &self.interfaces) else {
            return;
        };
        let (frame, counter) = match (source, addr) {
            (IpAddr::V4(from), IpAddr::V4(a)) => {
                let frame = arp::request(cx.pool, interface, from, a, unicast);
                (frame, Counter::FloodwallArpOutRequests)
            }
            (IpAddr::V6(from), IpAddr::V6(a)) => {
                let frame = ndp::solicitation(cx.pool, interface, from, a, unicast);
                (frame, Counter::Icmp6OutNeighborSolicits)
            }
            _ => return,
        };
        self.depart_counted(cx, frame, counter);
    }

    pub(crate) fn depart_counted(
        &mut self,
        cx: &mut RoundContext<'_>,
        frame: Option<PacketBuf>,
        counter: Counter,
    ) {
        if self.depart_own(cx, frame) {
            self.stats.counters.count(counter);
            if counter != Counter::FloodwallArpOutRequests {
                self.stats.counters.count(Counter::Icmp6OutMsgs);
            }
        }
    }

    /// All timed work, up to `budget` units, each kind in its turn.
    pub(crate) fn timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        const BESIDE_TCP: [fn(&mut Stack, &mut RoundContext<'_>, Units) -> Units; 14] = [
            Stack::address_timers,
            Stack::address_lifetimes,
            Stack::dhcp_timers,
            Stack::dhcpv6_timers,
            Stack::group_gateway_timers,
            Stack::neighbor_timers::<Ipv4Addr>,
            Stack::neighbor_timers::<Ipv6Addr>,
            Stack::router_timers,
            Stack::advertiser_timers,
            Stack::reassembly_timers::<Ipv4Addr>,
            Stack::reassembly_timers::<Ipv6Addr>,
            Stack::group_timers,
            Stack::route_timers::<Ipv4Addr>,
            Stack::route_timers::<Ipv6Addr>,
        ];
        let mut left = budget;
        // Mostly connections alone have something to do.
        let only_tcp = self.deadline_beside_tcp() > cx.now;
        loop {
            let before = left;
            for kind in BESIDE_TCP.iter().filter(|_| !only_tcp) {
                left = left.minus(kind(self, cx, Units(left.0.min(TURN_UNITS))));
            }
            left = left.minus(self.tcp_timers(cx, Units(left.0.min(TURN_UNITS))));
            if left == before || left.is_zero() {
                return budget.minus(left);
            }
        }
    }

    fn address_timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let mut events = NeighborEvents::new();
        let spent = self.control.dad.work(cx.now, budget, cx.random, |event| events.push(event));
        for event in events.take() {
            match event {
                DadEvent::Announce(iface, addr) => self.announce(cx, iface, addr),
                DadEvent::Confirmed(iface, addr) => self.address_is_ours(cx, iface, addr),
                DadEvent::Probe(iface, addr, nonce) => self.probe(cx, iface, addr, nonce),
            }
        }
        spent
    }

    fn neighbor_timers<A: CrossingPacket>(
        &mut self,
        cx: &mut RoundContext<'_>,
        budget: Units,
    ) -> Units {
        let mut events = NeighborEvents::new();
        let spent = A::neighbors(self).work(cx.now, budget, |event| events.push(event));
        for event in events.take() {
            match event {
                NeighborEvent::Solicit { iface, addr, unicast } => {
                    self.solicit(cx, iface, addr.to_ip(), unicast);
                }
                NeighborEvent::Unreachable { iface, addr, mut packets } => {
                    self.router_unreachable(cx, iface, addr.to_ip());
                    self.gateway_is_silent(iface, addr);
                    self.forget_redirects_to(iface, addr, false);
                    while let Some(packet) = packets.pop_front() {
                        self.stats.pending -= 1;
                        self.tell_unreachable::<A>(cx.now, &packet);
                        self.tell_sender_unreachable::<A>(cx, &packet);
                        self.drop_output::<A>(packet, DropReason::NeighborUnreachable);
                    }
                    self.sockets.path_cache.forget();
                }
            }
        }
        spent
    }
}
