//! Router discovery on our links: advertisements become routes, addresses and settings; routers are
//! solicited where no advertisement came.
//!
//! Called by `neighbors.rs` with checked advertisements, with events of the neighbour cache about
//! routers and for timed work, and by `link.rs` when a link goes down or comes up. The decisions
//! are made by `floodwall_ip::router_discovery`, one instance for each interface that accepts
//! router advertisements; here its actions are done. Invariants: what the operator configured is
//! never touched, learnt routes and addresses are known by their protocol and origin; an action
//! that fails (a full routing table) is left, and retried with the next advertisement. Reading: RFC
//! 4861 section 6.3, RFC 4862 section 5.5.
//!
//! # Under flood
//! Reachable from any station on a link that accepts router advertisements, within the bounds of
//! `router_discovery`, and rate-limited by it ([`Stack::attends`]). Worst work per message: its
//! actions, each one pass over the routes. Cached paths of sockets are invalidated only where a
//! route changes, not where its lifetime is extended.

pub(crate) mod state;

use core::net::{IpAddr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, IfIndex, Instant, Prefix, Randomness, Units};
use floodwall_fib::{Route, RouteProtocol, TableId};
use floodwall_ip::ndp::{self, RouterSummary};
use floodwall_ip::router_discovery::LinkParameters;
use floodwall_ip::{
    AddressOrigin, Detection, NdpHeading, NeighborEvent, RouterAction, RouterActions,
    RouterDiscovery,
};
use floodwall_packet::PacketList;
use floodwall_wire::Icmpv6Type;

use self::state::Dns;
use crate::control::addresses::AddAddress;
use crate::round_context::RoundContext;
use crate::stack::Stack;

impl Stack {
    /// The state of router discovery of each interface that accepts router advertisements, for
    /// display.
    pub fn routers(&self) -> impl Iterator<Item = (IfIndex, &RouterDiscovery)> {
        self.control.routers.engines.iter().map(|(iface, engine)| (*iface, engine))
    }

    /// The DNS servers and the search list that routers and DHCPv6 servers give, of all links,
    /// routers' first. Allocates: to be
    /// called when [`Stack::dns_changes`] reports a change, and periodically, because entries
    /// expire.
    #[must_use]
    pub fn dns(&self, now: Instant) -> Dns {
        let mut dns = Dns { changes: self.control.routers.dns_changes, ..Dns::default() };
        for (iface, engine) in self.routers() {
            let servers = engine.dns().servers(now);
            dns.servers.extend(servers.map(|(addr, _)| (IpAddr::V6(addr), iface)));
            for (name, _) in engine.dns().search(now) {
                if !dns.search.contains(name) {
                    dns.search.push(*name);
                }
            }
        }
        for (iface, settings) in self.dhcpv6_settings() {
            dns.servers.extend(settings.dns.iter().map(|addr| (IpAddr::V6(addr), iface)));
        }
        dns
    }

    /// How often the DNS servers or the search list have changed.
    #[must_use]
    pub fn dns_changes(&self) -> u64 {
        self.control.routers.dns_changes
    }

    /// Whether a message is to be processed: checked before its options are walked, and false for a
    /// router advertisement beyond the rate limit. A message that cannot be a router's uses nothing
    /// of this limit; it is dropped later for what is wrong with it.
    pub(crate) fn attends(
        &mut self,
        iface: IfIndex,
        kind: Icmpv6Type,
        heading: &NdpHeading,
        now: Instant,
    ) -> bool {
        let may_be = kind == Icmpv6Type::ROUTER_ADVERTISEMENT
            && heading.src_addr.is_unicast_link_local()
            && heading.hop_limit == u8::MAX
            && !heading.fragmented;
        let Some((engine, _)) = self.control.routers.of(iface).filter(|_| may_be) else {
            return true;
        };
        let attends = engine.attend(heading.src_addr, now);
        if !attends {
            self.stats.counters.count(Counter::Icmp6InRouterAdvertisements);
        }
        attends
    }

    /// A router advertisement or another message of a router arrived.
    pub(crate) fn router_input(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        said: &RouterSummary<'_>,
    ) -> Result<(), DropReason> {
        // Where router discovery is off, the message is of a type that does nothing here.
        let (engine, actions) =
            self.control.routers.of(iface).ok_or(DropReason::IcmpTypeUnknown)?;
        engine
            .input(said, cx.now, &mut cx.random.public, actions)
            .map_err(|_| DropReason::RouterListFull)?;
        let known = engine.knows(said.router_addr);
        self.do_actions(cx, iface);
        self.dhcpv6_advertised(iface, &said.fields, cx.now, cx.random);
        if known {
            let (mut released, addr) = (PacketList::new(), said.router_addr);
            let cache = &mut self.v6.neighbors;
            let link_addr = cache.router_said(iface, addr, said.link_addr, cx.now, &mut released);
            if let Some(link_addr) = link_addr.filter(|_| !released.is_empty()) {
                self.learnt::<Ipv6Addr>(cx, released, link_addr);
            }
        }
        Ok(())
    }

    /// A neighbour did not answer solicitations and is unreachable.
    pub(crate) fn router_unreachable(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
    ) {
        self.with_router(cx, iface, addr, |engine, addr, cx, actions| {
            engine.unreachable(addr, cx.now, actions);
        });
    }

    /// A neighbour has answered us.
    pub(crate) fn router_answered(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
    ) {
        self.with_router(cx, iface, addr, |engine, addr, cx, actions| {
            engine.answered(addr, cx.now, actions);
        });
    }

    /// A neighbour advertises without the router flag.
    pub(crate) fn router_is_none(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
    ) {
        self.with_router(cx, iface, addr, |engine, addr, cx, actions| {
            engine.no_router(addr, cx.now, &mut cx.random.public, actions);
        });
    }

    fn with_router(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
        act: impl FnOnce(&mut RouterDiscovery, Ipv6Addr, &mut RoundContext<'_>, &mut RouterActions),
    ) {
        let (IpAddr::V6(addr), Some((engine, actions))) = (addr, self.control.routers.of(iface))
        else {
            return;
        };
        act(engine, addr, cx, actions);
        self.do_actions(cx, iface);
    }

    /// Another station uses an address of ours: if it was formed from a prefix, another one is
    /// tried, a few times. False if it was not.
    pub(crate) fn autoconf_conflict(
        &mut self,
        cx: &mut RoundContext<'_>,
        iface: IfIndex,
        addr: IpAddr,
    ) -> bool {
        let (IpAddr::V6(v6), Some((engine, actions))) = (addr, self.control.routers.of(iface))
        else {
            return false;
        };
        let Some(tries_another) = engine.conflict(v6, cx.now, actions) else { return false };
        if !tries_another {
            self.control.dad.stop(iface, addr);
            self.address_is_taken(cx, iface, addr);
        }
        self.do_actions(cx, iface);
        true
    }

    /// The link went down or came up.
    pub(crate) fn routers_link_changed(
        &mut self,
        iface: IfIndex,
        up: bool,
        now: Instant,
        random: &mut Randomness,
    ) {
        let Some((engine, actions)) = self.control.routers.of(iface) else { return };
        if up {
            return engine.start(now, &mut random.public);
        }
        engine.stop(actions);
        let mut n = 0;
        while let Some(action) = self.control.routers.actions.at(n) {
            self.change_by_router(iface, action, now, random);
            n += 1;
        }
        self.control.routers.actions.clear();
    }

    /// Timed work of all interfaces, up to `budget` units.
    pub(crate) fn router_timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let (mut left, mut at) = (budget, 0);
        loop {
            let routers = &mut self.control.routers;
            let Some((iface, engine)) = routers.engines.get_mut(at).filter(|_| left.0 > 0) else {
                break;
            };
            let iface = *iface;
            let spent = engine.step(cx.now, &mut cx.random.public, &mut routers.actions);
            self.do_actions(cx, iface);
            left = left.minus(spent);
            at += usize::from(spent.is_zero());
        }
        budget.minus(left)
    }

    fn do_actions(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex) {
        let mut n = 0;
        while let Some(action) = self.control.routers.actions.at(n) {
            match action {
                RouterAction::Solicit => self.solicit_routers(cx, iface),
                RouterAction::Probe(router) => self.probe_router(cx, iface, router),
                action => self.change_by_router(iface, action, cx.now, cx.random),
            }
            n += 1;
        }
        self.control.routers.actions.clear();
    }

    /// Solicits routers (RFC 4861 section 6.3.7).
    fn solicit_routers(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex) {
        let interface = self.interfaces.get(usize::from(iface.0));
        let Some(interface) = interface.filter(|i| i.up) else { return };
        let frame = ndp::router_solicitation(cx.pool, interface);
        self.depart_counted(cx, frame, Counter::Icmp6OutRouterSolicits);
    }

    fn probe_router(&mut self, cx: &mut RoundContext<'_>, iface: IfIndex, router: Ipv6Addr) {
        let asked = self.v6.neighbors.probe(iface, router, cx.now);
        if let Some(NeighborEvent::Solicit { iface, addr, unicast }) = asked {
            self.solicit(cx, iface, addr.into(), unicast);
        }
    }

    /// Does what changes our own tables and sends nothing.
    fn change_by_router(
        &mut self,
        iface: IfIndex,
        action: RouterAction,
        now: Instant,
        random: &mut Randomness,
    ) {
        match action {
            RouterAction::SetRoute { prefix, gateway, metric, until } => {
                self.set_learnt_route(iface, (prefix, gateway, metric), until, now);
            }
            RouterAction::RemoveRoute { prefix, gateway } => {
                let learnt = RouteProtocol::RouterAdvertisement;
                self.v6.routes.remove_to(TableId::MAIN, prefix, now, |r| {
                    (r.protocol, r.iface, r.gateway) == (learnt, iface, gateway)
                });
                self.sockets.path_cache.forget();
            }
            RouterAction::SetAddress { addr, prefix_len, preferred_until, valid_until } => {
                let ends = (preferred_until, valid_until);
                self.set_learnt_address(iface, addr, prefix_len, ends, now, random);
            }
            RouterAction::RemoveAddress(addr) => {
                if self.origin_of(iface, addr.into()) == Some(AddressOrigin::Autoconf) {
                    // It is there: nothing can go wrong.
                    let _ = self.remove_address(iface, addr.into(), now, random);
                }
            }
            RouterAction::SetLink(link) => self.set_link_parameters(iface, link),
            RouterAction::DnsChanged => {
                self.control.routers.count_dns_change();
            }
            // These send; the caller has done them.
            RouterAction::Solicit | RouterAction::Probe(_) => {}
        }
    }

    fn set_learnt_route(
        &mut self,
        iface: IfIndex,
        (prefix, gateway, metric): (Prefix<Ipv6Addr>, Option<Ipv6Addr>, u32),
        until: Instant,
        now: Instant,
    ) {
        let route = Route {
            gateway,
            metric,
            protocol: RouteProtocol::RouterAdvertisement,
            expires: ending(until),
            ..Route::on_link(prefix, iface)
        };
        let before = self.v6.routes.generation();
        // A full table is the operator's; the next advertisement tries again.
        let _ = self.v6.routes.set(route, now);
        if self.v6.routes.generation() != before {
            self.sockets.path_cache.forget();
        }
    }

    fn set_learnt_address(
        &mut self,
        iface: IfIndex,
        addr: Ipv6Addr,
        prefix_len: u8,
        ends: (Instant, Instant),
        now: Instant,
        random: &mut Randomness,
    ) {
        let (preferred_until, valid_until) = (ending(ends.0), ending(ends.1));
        match self.origin_of(iface, addr.into()) {
            Some(AddressOrigin::Autoconf) => {
                // It is there, and never preferred longer than valid: nothing can go wrong.
                let _ = self.refresh_address(iface, addr.into(), preferred_until, valid_until, now);
            }
            // The operator has it already.
            Some(_) => {}
            None => {
                let new = AddAddress {
                    addr: addr.into(),
                    prefix_len,
                    origin: AddressOrigin::Autoconf,
                    preferred_until,
                    valid_until,
                    detection: Detection::Probe,
                    // RFC 5942: an address puts nothing on the link; the L flag does.
                    prefix_route: false,
                };
                // No room among the operator's addresses: the next advertisement tries again.
                let _ = self.add_address(iface, new, now, random);
            }
        }
    }

    fn origin_of(&self, iface: IfIndex, addr: IpAddr) -> Option<AddressOrigin> {
        self.interfaces.get(usize::from(iface.0))?.address(addr).map(|a| a.origin)
    }

    /// The link's MTU has changed: advertised ones are judged against the new one.
    pub(crate) fn routers_link_mtu(&mut self, iface: IfIndex, mtu: u32) {
        if let Some((engine, _)) = self.control.routers.of(iface)
            && let Some(link) = engine.set_link_mtu(mtu)
        {
            self.set_link_parameters(iface, link);
        }
    }

    fn set_link_parameters(&mut self, iface: IfIndex, link: LinkParameters) {
        let Some(interface) = self.interfaces.get_mut(usize::from(iface.0)) else { return };
        interface.hop_limit = link.hop_limit.unwrap_or(floodwall_ip::iface::HOP_LIMIT);
        interface.set_advertised_mtu(link.mtu);
        self.v6.neighbors.set_timers(iface, link.reachable_time, link.retrans_timer);
        self.sockets.path_cache.forget();
    }
}

/// The end of a route or address, where there is one.
fn ending(until: Instant) -> Option<Instant> {
    (until != Instant::FAR).then_some(until)
}
