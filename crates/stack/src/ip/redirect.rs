//! Redirects: which sender may change a next hop, and for which packets.
//!
//! Called by `neighbors.rs` (ICMPv6) and `deliver.rs` (ICMPv4) with messages that are well-formed;
//! these go to the control shard. One decision for both families. Invariant: a redirect is followed
//! only where the operator allows it, where it comes from the router that is the destination's
//! current next hop, where the better first hop is a neighbour, and where it quotes a packet of a
//! live flow of ours to that destination (`exceptions.rs` stores it). RFC 4861 lets a router leave
//! the quote out; we do not accept that: no known router does, and the quote protects against blind
//! forgery. Each refusal has its drop reason. Reading: RFC 4861 sections 8.1 and 8.3, RFC 1122
//! section 3.2.2.2, RFC 3756 section 4.2.4.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, IfIndex};
use floodwall_fib::exceptions::PathUpdate;
use floodwall_packet::PacketBuf;
use floodwall_tcp::IcmpHeard;

use crate::ip::exceptions::{PathUpdateFamily, PathUpdateQuote};
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::OutputPath;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// An ICMPv4 redirect: for a network it counts for the host alone (RFC 1122 section 3.2.2.2).
    pub(crate) fn redirect_v4(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv4Addr>,
        l4: usize,
    ) {
        if self.is_follower() {
            return self.hand_in(cx, packet, None);
        }
        self.stats.counters.count(Counter::IcmpInRedirects);
        self.redirected(cx, packet, l4, ascent.heading.src_addr, ascent.iface);
    }

    /// An ICMPv6 redirect that is well-formed.
    pub(crate) fn redirect_v6(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<Ipv6Addr>,
        l4: usize,
    ) {
        self.stats.counters.count(Counter::Icmp6InRedirects);
        self.redirected(cx, packet, l4, ascent.heading.src_addr, ascent.iface);
    }

    /// Checks a redirect against routes and links; the flow is checked after that.
    fn redirected<A: PathUpdateFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        l4: usize,
        from: A,
        on: IfIndex,
    ) {
        if !self.control.follows_redirects {
            return self.drop_packet(packet, DropReason::RedirectIgnored);
        }
        let said = A::statement(&packet, l4, &mut self.stats.access);
        let Some(said) = said.filter(|said| self.owns(said.flow.src_addr)) else {
            return self.drop_packet(packet, DropReason::RedirectNotQuoted);
        };
        match self.may_redirect(cx, &said, from, on) {
            Ok(()) => self.exception_message::<A>(cx, packet, l4, false, IcmpHeard::Unknown),
            Err(reason) => self.drop_packet(packet, reason),
        }
    }

    fn may_redirect<A: IpFamily>(
        &self,
        cx: &RoundContext<'_>,
        said: &PathUpdateQuote<A>,
        from: A,
        on: IfIndex,
    ) -> Result<(), DropReason> {
        let (PathUpdate::Redirect(target_addr), dst_addr) = (said.lesson, said.flow.dst_addr)
        else {
            return Err(DropReason::RedirectTarget);
        };
        let interface = self.interfaces.get(usize::from(on.0));
        let neighbor = interface.is_some_and(|interface| {
            let broadcast = match target_addr.to_ip() {
                IpAddr::V4(addr) => interface.is_broadcast_v4(addr),
                IpAddr::V6(_) => false,
            };
            let on_link = interface.is_on_link(target_addr.to_ip()) || target_addr == dst_addr;
            on_link && !broadcast && !target_addr.is_group()
        });
        if !neighbor || target_addr == A::UNSPECIFIED || self.owns(target_addr) {
            return Err(DropReason::RedirectTarget);
        }
        let first_hop = match self.path(cx, dst_addr, None) {
            Ok(OutputPath::Via { iface, next_hop, .. }) if iface == on && next_hop != dst_addr => {
                Some(next_hop)
            }
            _ => None,
        };
        let routed = self.hop_of(cx, dst_addr).is_some_and(|hop| hop.via.is_some());
        match routed && first_hop == Some(from) {
            true => Ok(()),
            false => Err(DropReason::RedirectNotFirstHop),
        }
    }

    /// A neighbour does not answer, or is no router any more: nothing is redirected to it.
    pub(crate) fn forget_redirects_to<A: IpFamily>(
        &mut self,
        on: IfIndex,
        target_addr: A,
        as_router: bool,
    ) {
        let gone = A::exceptions_mut(self).forget_redirects(|entry, target| {
            let router = target != entry.dst_addr;
            entry.hop.iface == on && target == target_addr && (router || !as_router)
        });
        if gone {
            self.sockets.path_cache.forget();
        }
    }

    /// The link went down.
    pub(crate) fn forget_exceptions_on(&mut self, iface: IfIndex) {
        self.v4.exceptions.forget_on(iface);
        self.v6.exceptions.forget_on(iface);
    }
}
