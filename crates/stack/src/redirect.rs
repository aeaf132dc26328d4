//! Redirects: who may send us another way, and for which packets.
//!
//! Called by `neighbors.rs` (ICMPv6) and `deliver.rs` (ICMPv4) with messages whose form is right,
//! and by `tx.rs` for every path through a router. One judgement for both families. Invariant: a
//! redirect is followed only where the operator lets it, where it comes from the router that leads
//! to its destination at this moment, where the better first hop is a neighbour, and where it
//! quotes a packet of ours to that destination. RFC 4861 lets a router leave the quote out; we do
//! not: none does, and it costs who forges blindly. Each refusal has its drop reason. Reading: RFC
//! 4861 sections 8.1 and 8.3, RFC 1122 section 3.2.2.2, RFC 3756 section 4.2.4.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, IfIndex, Instant};
use floodwall_ip::ndp::RedirectSummary;
use floodwall_ip::redirects::{Redirect, Redirects};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_wire::{icmpv4, ipv4, ipv6};

use crate::cx::Cx;
use crate::rx::Ascent;
use crate::shard::Stack;
use crate::tables::Tables;
use crate::tx::Path;

/// A redirect of either family.
struct Claim<A> {
    /// Who says so.
    from: A,
    on: IfIndex,
    /// For packets to whom.
    dst_addr: A,
    /// The better first hop.
    target_addr: A,
    /// Source and destination of the packet that is quoted.
    quote: Option<(A, A)>,
}

impl Stack {
    /// The IPv4 redirects that are followed.
    #[must_use]
    pub const fn redirects_v4(&self) -> &Redirects<Ipv4Addr> {
        &self.redirects_v4
    }

    /// The IPv6 redirects that are followed.
    #[must_use]
    pub const fn redirects_v6(&self) -> &Redirects<Ipv6Addr> {
        &self.redirects_v6
    }

    /// An ICMPv4 redirect: for a network it counts for the host alone (RFC 1122 section 3.2.2.2).
    pub(crate) fn redirect_v4(
        &mut self,
        cx: &mut Cx<'_>,
        packet: PacketBuf,
        ascent: Ascent<Ipv4Addr>,
        l4: usize,
        target_addr: Ipv4Addr,
    ) {
        if self.is_follower() {
            return self.hand_in(cx, packet, None);
        }
        self.stats.counters.count(Counter::IcmpInRedirects);
        let mut scratch = [0; ipv4::HEADER_LEN];
        let at = l4 + icmpv4::HEADER_LEN;
        let access = &mut self.stats.access;
        let quoted: Option<&[u8; ipv4::HEADER_LEN]> = packet.header_array(at, &mut scratch, access);
        let quote = quoted.filter(|header| header[0] >> 4 == 4).and_then(|header| {
            let addr = |at: usize| header.get(at..)?.first_chunk().copied().map(Ipv4Addr::from);
            Some((addr(12)?, addr(16)?))
        });
        let Some((_, dst_addr)) = quote else {
            return self.die(packet, DropReason::RedirectNotQuoted);
        };
        let (from, on) = (ascent.heading.src_addr, ascent.iface);
        match self.redirected(cx.now, &Claim { from, on, dst_addr, target_addr, quote }) {
            Ok(()) => self.stats.fates.delivered += 1,
            Err(reason) => self.die(packet, reason),
        }
    }

    /// An ICMPv6 redirect whose form is right.
    pub(crate) fn redirect_v6(
        &mut self,
        cx: &mut Cx<'_>,
        on: IfIndex,
        said: &RedirectSummary<'_>,
    ) -> Result<(), DropReason> {
        self.stats.counters.count(Counter::Icmp6InRedirects);
        let header = said.quote.and_then(|bytes| bytes.first_chunk::<{ ipv6::HEADER_LEN }>());
        let quote = header.filter(|header| header[0] >> 4 == 6).and_then(|header| {
            let addr = |at: usize| header.get(at..)?.first_chunk().copied().map(Ipv6Addr::from);
            Some((addr(8)?, addr(24)?))
        });
        let &RedirectSummary { from, dst_addr, target_addr, .. } = said;
        self.redirected(cx.now, &Claim { from, on, dst_addr, target_addr, quote })?;
        // RFC 4861 section 8.3: the target's link address, where it is told; a target that is not
        // the destination is a router.
        if let Some(link_addr) = said.link_addr {
            let (mut released, cache) = (PacketList::new(), &mut self.neighbors_v6);
            let known = if target_addr == dst_addr {
                cache.solicited_by(on, target_addr, link_addr, cx.now, &mut released)
            } else {
                cache.router_said(on, target_addr, Some(link_addr), cx.now, &mut released)
            };
            self.learnt::<Ipv6Addr>(cx, released, known.unwrap_or(link_addr));
        }
        Ok(())
    }

    /// Judges a redirect, and follows it if it is good.
    fn redirected<A: Tables>(&mut self, now: Instant, claim: &Claim<A>) -> Result<(), DropReason> {
        let &Claim { from, on, dst_addr, target_addr, quote } = claim;
        if !self.follows_redirects {
            return Err(DropReason::RedirectIgnored);
        }
        let ours = quote.is_some_and(|(src, to)| to == dst_addr && self.owns(src));
        if !ours {
            return Err(DropReason::RedirectNotQuoted);
        }
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
        let first_hop = match self.path(dst_addr, None, now) {
            Ok(Path::Via { iface, next_hop, .. }) if iface == on && next_hop != dst_addr => {
                Some(next_hop)
            }
            _ => None,
        };
        let route = A::fib(self).lookup(dst_addr, now).and_then(|route| route.gateway);
        let (Some(via), true) = (route, first_hop == Some(from)) else {
            return Err(DropReason::RedirectNotFirstHop);
        };
        A::redirects_mut(self).learn(Redirect { dst_addr, iface: on, via, target_addr }, now);
        self.paths.forget();
        Ok(())
    }

    /// A neighbour does not answer, or is no router any more: nothing is redirected to it.
    pub(crate) fn forget_redirects_to<A: Tables>(
        &mut self,
        on: IfIndex,
        target_addr: A,
        as_router: bool,
    ) {
        let gone = A::redirects_mut(self).forget(|r| {
            let router = r.target_addr != r.dst_addr;
            r.iface == on && r.target_addr == target_addr && (router || !as_router)
        });
        if gone {
            self.paths.forget();
        }
    }

    /// The link went down.
    pub(crate) fn forget_redirects_on(&mut self, iface: IfIndex) {
        self.redirects_v4.forget(|r| r.iface == iface);
        self.redirects_v6.forget(|r| r.iface == iface);
    }
}
