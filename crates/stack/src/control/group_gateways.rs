//! `GroupGateways`: whether the gateways of ECMP groups answer.
//!
//! Called by `link/neighbors.rs` when a neighbour is unreachable, and for timed work. A group
//! passes over a gateway that does not answer (`floodwall_fib`). Gateways in use are probed every
//! few seconds, so that a silent one is known after about [`PROBE_TICKS`] seconds and three probes,
//! not after its reachable time; a silent one is probed until it answers, since nothing is sent
//! there any more that would find out. A host may ask for all gateways to be kept: those of other
//! routes are resolved at the start, and again when they are stale, so that a flood, which may take
//! the answers, finds their link addresses known. Invariant: what the routing tables pass over is
//! in the list, as silent. Reading: RFC 4861 section 7.3, RFC 2992. Not here: links that are down,
//! which look-ups pass over by themselves.
//!
//! # Under flood
//! Reachable by gateways alone, which the operator or a router on the link sets. Bound:
//! `GROUP_GATEWAYS_MAX` of each family, those of groups first. Worst work: a look at the list for
//! each neighbour that is given up, and once a second a probe for each gateway. When full: further
//! gateways are not probed, and keep their flows when they do not answer.

pub(crate) mod state;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::limits::GROUP_GATEWAYS_MAX;
use floodwall_base::{IfIndex, Instant, Units};
use floodwall_ip::{NeighborEvent, NeighborState};

use self::state::GroupGateway;
use crate::ip::ip_family::IpFamily;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// How often the list is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Ticks between two probes of a gateway that answers.
const PROBE_TICKS: u8 = 3;
/// How often it is looked at where all gateways answer and none is a group's.
const CALM_INTERVAL: Duration = Duration::from_secs(5);
/// Ticks after which one that is no group's and did not answer is solicited again.
const FAILED_TICKS: u8 = 10;

impl Stack {
    /// When the gateways are to be looked at: never where there is no group.
    pub(crate) fn group_gateway_deadline(&self) -> Option<Instant> {
        let gateways = &self.control.group_gateways;
        let any = self.v4.routes.has_groups() || self.v6.routes.has_groups();
        let is_new = gateways.keeps_all && gateways.of != self.route_revisions();
        let is_watched = any || is_new || !gateways.list.is_empty();
        is_watched.then(|| gateways.next.unwrap_or(Instant::ORIGIN))
    }

    fn route_revisions(&self) -> (u32, u32) {
        (self.v4.routes.revision(), self.v6.routes.revision())
    }

    /// A neighbour does not answer: where it is a group's gateway, the group's other members get
    /// its flows.
    pub(crate) fn gateway_is_silent<A: IpFamily>(&mut self, iface: IfIndex, addr: A) {
        let is_it = |it: &&mut GroupGateway| (it.iface, it.addr) == (iface, addr.to_ip());
        let found = self.control.group_gateways.list.iter_mut().find(is_it);
        let found = found.filter(|gateway| gateway.in_group && !gateway.silent);
        let Some(gateway) = found else { return };
        gateway.silent = true;
        A::fib_mut(self).set_silent(iface, addr, true);
    }

    /// Looks at the gateways, a unit each.
    pub(crate) fn group_gateway_timers(
        &mut self,
        cx: &mut RoundContext<'_>,
        budget: Units,
    ) -> Units {
        let mut left = budget;
        let gateways = &self.control.group_gateways;
        if gateways.keeps_all && gateways.next.is_none() {
            self.list_group_gateways();
        }
        while !left.is_zero() && self.group_gateway_deadline().is_some_and(|at| at <= cx.now) {
            left = left.minus(Units(1));
            let gateways = &mut self.control.group_gateways;
            let Some(gateway) = gateways.list.get(gateways.at).copied() else {
                let is_calm = core::mem::replace(&mut gateways.calm, true);
                let interval = if is_calm { CALM_INTERVAL } else { LOOK_INTERVAL };
                (gateways.at, gateways.next) = (0, Some(cx.now + interval));
                self.list_group_gateways();
                break;
            };
            let gateway = match gateway.addr {
                IpAddr::V4(addr) => self.look_at_gateway::<Ipv4Addr>(cx, gateway, addr),
                IpAddr::V6(addr) => self.look_at_gateway::<Ipv6Addr>(cx, gateway, addr),
            };
            let gateways = &mut self.control.group_gateways;
            if let Some(slot) = gateways.list.get_mut(gateways.at) {
                *slot = gateway;
            }
            gateways.at += 1;
        }
        budget.minus(left)
    }

    /// Makes the list anew where routes have changed; what was silent still is.
    fn list_group_gateways(&mut self) {
        let of = self.route_revisions();
        if of == self.control.group_gateways.of {
            return;
        }
        let mut new = Vec::with_capacity(2 * GROUP_GATEWAYS_MAX);
        gather::<Ipv4Addr>(self, &mut new);
        gather::<Ipv6Addr>(self, &mut new);
        let before = core::mem::replace(&mut self.control.group_gateways.list, new);
        for gateway in before.iter().filter(|gateway| gateway.silent) {
            // Also those that have left their groups: a later group begins with all of its members.
            let is_it =
                |it: &&mut GroupGateway| (it.iface, it.addr) == (gateway.iface, gateway.addr);
            let kept = self.control.group_gateways.list.iter_mut().find(is_it);
            let silent = kept.map(|kept| kept.silent = true).is_some();
            match gateway.addr {
                IpAddr::V4(addr) => self.v4.routes.set_silent(gateway.iface, addr, silent),
                IpAddr::V6(addr) => self.v6.routes.set_silent(gateway.iface, addr, silent),
            }
        }
        self.control.group_gateways.of = self.route_revisions();
    }

    /// Probes a gateway where it is time, and gives a silent one that answers its flows back.
    fn look_at_gateway<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        gateway: GroupGateway,
        addr: A,
    ) -> GroupGateway {
        let GroupGateway { iface, silent, ticks, in_group, .. } = gateway;
        if !in_group {
            return self.keep_gateway(cx, gateway, addr);
        }
        self.control.group_gateways.calm = false;
        let state = A::neighbors(self).neighbor(iface, addr).map(|neighbor| neighbor.state);
        let answers = matches!(
            state,
            Some(
                NeighborState::Reachable
                    | NeighborState::Stale
                    | NeighborState::Delay
                    | NeighborState::Permanent
            )
        );
        if silent && answers {
            A::fib_mut(self).set_silent(iface, addr, false);
            self.sockets.path_cache.forget();
            return GroupGateway { silent: false, ticks: 0, ..gateway };
        }
        // One that is unknown is not in use, unless it was.
        let is_due = if silent { !answers } else { answers && ticks >= PROBE_TICKS };
        let up = self.interfaces.get(usize::from(iface.0)).is_some_and(|i| i.up);
        if !is_due || !up {
            return GroupGateway { ticks: ticks.saturating_add(1), ..gateway };
        }
        let asked = A::neighbors(self).probe(iface, addr, cx.now);
        if let Some(NeighborEvent::Solicit { iface, addr, unicast }) = asked {
            self.solicit(cx, iface, addr.to_ip(), unicast);
        }
        GroupGateway { ticks: 0, ..gateway }
    }

    /// Looks at a gateway that is no group's: resolves it where it is not known, or stale.
    fn keep_gateway<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        gateway: GroupGateway,
        addr: A,
    ) -> GroupGateway {
        let GroupGateway { iface, ticks, .. } = gateway;
        let state = A::neighbors(self).neighbor(iface, addr).map(|neighbor| neighbor.state);
        let is_fresh = matches!(
            state,
            Some(NeighborState::Reachable | NeighborState::Delay | NeighborState::Permanent)
        );
        self.control.group_gateways.calm &= is_fresh;
        let up = self.interfaces.get(usize::from(iface.0)).is_some_and(|i| i.up);
        let rests = state == Some(NeighborState::Failed) && ticks < FAILED_TICKS;
        if is_fresh || !up || rests {
            return GroupGateway { ticks: ticks.saturating_add(1), ..gateway };
        }
        let asked = A::neighbors(self).keep(iface, addr, cx.now);
        if let Some(NeighborEvent::Solicit { iface, addr, unicast }) = asked {
            self.solicit(cx, iface, addr.to_ip(), unicast);
        }
        GroupGateway { ticks: 0, ..gateway }
    }
}

/// Appends the gateways of one family, each once: those of groups, then others where they are kept.
fn gather<A: IpFamily>(stack: &Stack, list: &mut Vec<GroupGateway>) {
    let first = list.len();
    let mut add = |(iface, addr): (IfIndex, A), in_group: bool| {
        let addr = addr.to_ip();
        let known = list.iter().any(|it| (it.iface, it.addr) == (iface, addr));
        if !known && list.len() - first < GROUP_GATEWAYS_MAX {
            list.push(GroupGateway { iface, addr, in_group, silent: false, ticks: 0 });
        }
    };
    A::fib(stack).group_gateways().for_each(|gateway| add(gateway, true));
    if stack.control.group_gateways.keeps_all {
        A::fib(stack).gateways().for_each(|gateway| add(gateway, false));
    }
}
