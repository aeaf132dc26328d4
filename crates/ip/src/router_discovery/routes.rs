//! `AdvertisedRoutes`: the routes that routers of one link advertise besides the default one.
//!
//! Called by `router_discovery.rs` for route information options. Invariants: at most
//! [`ADVERTISED_ROUTES_MAX`]; each belongs to a router of the list; a route through a router that
//! does not answer is not shown to the routing table, as if it were not there (RFC 4191 section
//! 3.2). Not here: ::/0, which means the same as the header (`router_discovery.rs`).
//!
//! # Under flood
//! Reachable by any station on the link. When full, the new route is refused: no entry is removed
//! before its own lifetime or its router's ends. Worst work per option: 64 compares.

use core::net::Ipv6Addr;

use floodwall_base::limits::ADVERTISED_ROUTES_MAX;
use floodwall_base::{Instant, Prefix};

use super::actions::{RouterAction, RouterActions};

/// One route.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdvertisedRoute {
    pub(super) prefix: Prefix<Ipv6Addr>,
    pub(super) router: Ipv6Addr,
    pub(super) metric: u32,
    pub(super) until: Instant,
    /// Whether the routing table has it.
    shown: bool,
}

impl AdvertisedRoute {
    const fn set(&self) -> RouterAction {
        let (prefix, gateway) = (self.prefix, Some(self.router));
        RouterAction::SetRoute { prefix, gateway, metric: self.metric, until: self.until }
    }

    const fn removal(&self) -> RouterAction {
        RouterAction::RemoveRoute { prefix: self.prefix, gateway: Some(self.router) }
    }
}

/// The advertised routes of one interface.
#[derive(Debug)]
pub(super) struct AdvertisedRoutes(Box<[Option<AdvertisedRoute>]>);

impl AdvertisedRoutes {
    pub(super) fn new() -> Self {
        Self(vec![None; ADVERTISED_ROUTES_MAX].into())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AdvertisedRoute> {
        self.0.iter().flatten()
    }

    /// A router advertises a route until a moment, which may have passed. Returns its place, for
    /// the timer.
    pub(super) fn input(
        &mut self,
        new: (Prefix<Ipv6Addr>, Ipv6Addr, u32, Instant),
        reachable: bool,
        now: Instant,
        actions: &mut RouterActions,
    ) -> Option<usize> {
        let (prefix, router, metric, until) = new;
        let same = |r: &AdvertisedRoute| r.prefix == prefix && r.router == router;
        let known = self.0.iter().position(|s| s.is_some_and(|r| same(&r)));
        if until <= now {
            self.remove(known?, actions);
            return None;
        }
        let at = known.or_else(|| self.0.iter().position(Option::is_none))?;
        let route = AdvertisedRoute { prefix, router, metric, until, shown: reachable };
        if let Some(slot) = self.0.get_mut(at) {
            *slot = Some(route);
        }
        if reachable {
            actions.push(route.set());
        }
        Some(at)
    }

    /// A route's timer expired: an ended route is removed. Returns its end otherwise.
    pub(super) fn ring(
        &mut self,
        at: usize,
        now: Instant,
        actions: &mut RouterActions,
    ) -> Option<Instant> {
        let until = self.0.get(at)?.as_ref()?.until;
        if until > now {
            return Some(until);
        }
        self.remove(at, actions);
        None
    }

    fn remove(&mut self, at: usize, actions: &mut RouterActions) {
        if let Some(route) = self.0.get_mut(at).and_then(Option::take).filter(|r| r.shown) {
            actions.push(route.removal());
        }
    }

    /// Shows or hides the routes of a router that answers again, or no longer.
    pub(super) fn show(&mut self, router: Ipv6Addr, shown: bool, actions: &mut RouterActions) {
        let of_router = self.0.iter_mut().flatten().filter(|r| r.router == router);
        for route in of_router.filter(|r| r.shown != shown) {
            route.shown = shown;
            actions.push(if shown { route.set() } else { route.removal() });
        }
    }

    /// Removes the routes of a router.
    pub(super) fn forget(&mut self, router: Ipv6Addr, actions: &mut RouterActions) {
        for at in 0..self.0.len() {
            if self.0.get(at).is_some_and(|s| s.is_some_and(|r| r.router == router)) {
                self.remove(at, actions);
            }
        }
    }

    pub(super) fn any_of(&self, router: Ipv6Addr) -> bool {
        self.iter().any(|r| r.router == router)
    }
}
