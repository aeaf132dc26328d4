//! `RouteList`: a small ordered table, from before [`crate::Fib`].
//!
//! Kept in order of preference, so that the first route that fits is the answer: longest prefix,
//! then lowest metric, then oldest. One writer: the worker itself.
//!
//! # Under flood
//! Reachable by the operator, and by routers of a link that advertise themselves, up to the bounds
//! of `floodwall_ip::router_discovery` for each interface. Bound: the number given to
//! [`RouteList::new`]. Worst work per packet: that many comparisons.

use floodwall_base::{Address, IfIndex, Instant, Prefix, limits};
use thiserror::Error;

use crate::route::Route;

/// Why a route was not added.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum AddRouteError {
    /// A route with this prefix, metric and gateway exists.
    #[error("such a route exists")]
    Exists,
    /// The table is full.
    #[error("the routing table is full ({0} routes)")]
    Full(usize),
}

/// A table of routes of one family.
#[derive(Debug)]
pub struct RouteList<A: Address> {
    routes: Vec<Route<A>>,
    max: usize,
    generation: u32,
    /// Changes with whatever is changed, lifetimes too.
    revision: u32,
    /// One bit for each interface that carries nothing now: its routes stay, and do not count.
    unusable: u64,
}

const _: () = assert!(limits::INTERFACES_MAX <= u64::BITS as usize);

impl<A: Address> RouteList<A> {
    /// An empty table for at most `max` routes, allocated now.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { routes: Vec::with_capacity(max), max, generation: 0, revision: 0, unusable: 0 }
    }

    /// Changes whenever an answer may have changed.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Changes whenever anything here was changed, a lifetime too: for whoever keeps a copy.
    #[must_use]
    pub const fn revision(&self) -> u32 {
        self.revision
    }

    /// Becomes a copy of another table, its revision included. Allocates nothing where the other
    /// holds no more than this one may.
    pub fn copy_from(&mut self, other: &Self) {
        self.routes.clone_from(&other.routes);
        self.unusable = other.unusable;
        self.generation = self.generation.wrapping_add(1);
        self.revision = other.revision;
    }

    const fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.revision = self.revision.wrapping_add(1);
    }

    /// Says whether an interface carries packets. While it does not, look-ups pass its routes over;
    /// they come back with it.
    pub fn set_usable(&mut self, iface: IfIndex, usable: bool) {
        let bit = 1_u64.checked_shl(u32::from(iface.0)).unwrap_or(0);
        self.unusable = if usable { self.unusable & !bit } else { self.unusable | bit };
        self.changed();
    }

    /// Whether look-ups count the routes of an interface.
    #[must_use]
    #[inline]
    pub const fn is_usable(&self, iface: IfIndex) -> bool {
        self.unusable.unbounded_shr(iface.0 as u32) & 1 == 0
    }

    /// The routes, in order of preference.
    #[must_use]
    pub fn routes(&self) -> &[Route<A>] {
        &self.routes
    }

    /// Adds a route.
    ///
    /// # Errors
    /// See [`AddRouteError`].
    pub fn insert(&mut self, route: Route<A>) -> Result<(), AddRouteError> {
        if self.routes.len() >= self.max {
            return Err(AddRouteError::Full(self.max));
        }
        let same = |r: &Route<A>| {
            r.prefix == route.prefix && r.metric == route.metric && r.gateway == route.gateway
        };
        if self.routes.iter().any(|r| same(r) && r.iface == route.iface) {
            return Err(AddRouteError::Exists);
        }
        let order = |r: &Route<A>| (core::cmp::Reverse(r.prefix.len()), r.metric);
        let at = self.routes.iter().position(|r| order(r) > order(&route));
        self.routes.insert(at.unwrap_or(self.routes.len()), route);
        self.changed();
        Ok(())
    }

    /// Adds a route, or puts it in the place of the one that the same protocol has for the same
    /// prefix, gateway and interface: how a route is prolonged, or liked more or less. Prolonging
    /// alone is no change of an answer.
    ///
    /// # Errors
    /// See [`AddRouteError`]; the former route is gone then only where another protocol has the
    /// very same.
    pub fn set(&mut self, route: Route<A>) -> Result<(), AddRouteError> {
        let same = |r: &Route<A>| {
            (r.prefix, r.gateway, r.iface, r.protocol)
                == (route.prefix, route.gateway, route.iface, route.protocol)
        };
        match self.routes.iter_mut().find(|r| same(r)) {
            Some(old) if old.metric == route.metric => {
                let end = |r: &Route<A>| r.expires.unwrap_or(Instant::FAR);
                let prolonged = Route { expires: route.expires, ..*old } == route;
                let same_answers = prolonged && end(&route) >= end(old);
                *old = route;
                self.revision = self.revision.wrapping_add(1);
                self.generation = self.generation.wrapping_add(u32::from(!same_answers));
                Ok(())
            }
            Some(_) => {
                self.remove(same);
                self.insert(route)
            }
            None => self.insert(route),
        }
    }

    /// Removes every route that `which` names; returns how many.
    pub fn remove(&mut self, mut which: impl FnMut(&Route<A>) -> bool) -> usize {
        let before = self.routes.len();
        self.routes.retain(|r| !which(r));
        let gone = before - self.routes.len();
        if gone > 0 {
            self.changed();
        }
        gone
    }

    /// Removes the routes for exactly `prefix`; returns how many.
    pub fn remove_prefix(&mut self, prefix: Prefix<A>) -> usize {
        self.remove(|r| r.prefix == prefix)
    }

    /// The route for one destination at `now`.
    #[must_use]
    #[inline]
    pub fn lookup(&self, addr: A, now: Instant) -> Option<&Route<A>> {
        let lives = |r: &Route<A>| r.expires.is_none_or(|at| at > now) && self.is_usable(r.iface);
        self.routes.iter().find(|r| r.prefix.contains(addr) && lives(r))
    }

    /// Whether some route that does not count now, because its interface is down, leads there: to
    /// say why [`RouteList::lookup`] found none.
    #[must_use]
    pub fn leads_into_a_dead_link(&self, addr: A, now: Instant) -> bool {
        let dead = |r: &Route<A>| !self.is_usable(r.iface);
        let lives = |r: &Route<A>| r.expires.is_none_or(|at| at > now);
        self.routes.iter().any(|r| r.prefix.contains(addr) && lives(r) && dead(r))
    }

    /// The routes for a burst of destinations: `found` is filled up to the shorter of both.
    pub fn lookup_burst<'a>(
        &'a self,
        addrs: &[A],
        now: Instant,
        found: &mut [Option<&'a Route<A>>],
    ) {
        for (addr, slot) in addrs.iter().zip(found) {
            *slot = self.lookup(*addr, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use floodwall_base::IfIndex;

    use super::*;
    use crate::route::RouteProtocol;

    fn route<A: Address>(text: &str, len: u8, iface: u16) -> Route<A> {
        let addr = text.parse().ok().unwrap();
        Route::on_link(Prefix::new(addr, len).unwrap(), IfIndex(iface))
    }

    fn longest_wins<A: Address>(wide: (&str, u8), narrow: (&str, u8), inside: &str, outside: &str) {
        let mut fib = RouteList::<A>::new(8);
        fib.insert(route(wide.0, wide.1, 1)).unwrap();
        fib.insert(route(narrow.0, narrow.1, 2)).unwrap();
        fib.insert(Route { prefix: Prefix::all(), ..route(wide.0, 0, 3) }).unwrap();
        let of = |text: &str| {
            let addr: A = text.parse().ok().unwrap();
            fib.lookup(addr, Instant::ORIGIN).unwrap().iface.0
        };
        assert_eq!((of(inside), of(outside)), (2, 1));
        let far = if A::BITS == 32 { "203.0.113.1" } else { "2001:db8::1" };
        assert_eq!(of(far), 3);
    }

    #[test]
    fn the_longest_prefix_wins_in_both_families() {
        longest_wins::<Ipv4Addr>(("10.0.0.0", 8), ("10.1.0.0", 16), "10.1.2.3", "10.2.0.1");
        longest_wins::<Ipv6Addr>(("fd00::", 8), ("fd00:1::", 32), "fd00:1::9", "fd00:2::9");
    }

    #[test]
    fn the_lower_metric_wins_whatever_the_order() {
        for order in [[5, 1, 3], [1, 3, 5], [3, 5, 1]] {
            let mut fib = RouteList::<Ipv4Addr>::new(8);
            for metric in order {
                fib.insert(Route { metric, ..route("10.0.0.0", 8, metric as u16) }).unwrap();
            }
            let metrics: Vec<_> = fib.routes().iter().map(|r| r.metric).collect();
            assert_eq!(metrics, [1, 3, 5]);
        }
    }

    #[test]
    fn an_expired_route_uncovers_the_shorter_prefix_at_once() {
        let mut fib = RouteList::<Ipv6Addr>::new(8);
        let end = Instant::from_nanos(100);
        fib.insert(route("fd00::", 8, 1)).unwrap();
        fib.insert(Route { expires: Some(end), ..route("fd00:1::", 32, 2) }).unwrap();
        let addr = "fd00:1::1".parse().unwrap();
        assert_eq!(fib.lookup(addr, Instant::from_nanos(99)).unwrap().iface.0, 2);
        assert_eq!(fib.lookup(addr, end).unwrap().iface.0, 1);
    }

    #[test]
    fn a_route_that_is_set_again_replaces_its_former_self_and_no_other() {
        let mut fib = RouteList::<Ipv6Addr>::new(2);
        let learnt = Route {
            protocol: RouteProtocol::RouterAdvertisement,
            metric: 9,
            expires: Some(Instant::from_nanos(5)),
            ..route("fd00::", 64, 1)
        };
        fib.insert(route("fd00::", 64, 1)).unwrap();
        for (metric, expires) in [(9, 5), (9, 7), (3, 8)] {
            let expires = Some(Instant::from_nanos(expires));
            fib.set(Route { metric, expires, ..learnt }).unwrap();
            assert_eq!((fib.routes().len(), fib.routes()[1].expires), (2, expires));
        }
        assert_eq!(fib.routes()[0].protocol, RouteProtocol::Static);
        assert_eq!(fib.set(Route { iface: IfIndex(2), ..learnt }), Err(AddRouteError::Full(2)));
    }

    #[test]
    fn a_dead_link_uncovers_the_other_route_until_it_comes_back() {
        let mut fib = RouteList::<Ipv4Addr>::new(8);
        fib.insert(route("10.0.0.0", 8, 63)).unwrap();
        fib.insert(route("10.1.0.0", 16, 2)).unwrap();
        let of = |fib: &RouteList<Ipv4Addr>, text: &str| {
            fib.lookup(text.parse().unwrap(), Instant::ORIGIN).map(|r| r.iface.0)
        };
        assert_eq!(of(&fib, "10.1.0.1"), Some(2));
        fib.set_usable(IfIndex(2), false);
        assert_eq!(of(&fib, "10.1.0.1"), Some(63));
        fib.set_usable(IfIndex(63), false);
        assert_eq!(of(&fib, "10.1.0.1"), None);
        assert!(fib.leads_into_a_dead_link("10.2.0.1".parse().unwrap(), Instant::ORIGIN));
        assert!(!fib.leads_into_a_dead_link("11.0.0.1".parse().unwrap(), Instant::ORIGIN));
        fib.set_usable(IfIndex(2), true);
        assert_eq!((of(&fib, "10.1.0.1"), of(&fib, "10.2.0.1")), (Some(2), None));
        assert_eq!(fib.routes().len(), 2);
    }

    #[test]
    fn the_bound_holds_and_changes_are_noticed() {
        let mut fib = RouteList::<Ipv4Addr>::new(1);
        let before = fib.generation();
        fib.insert(route("10.0.0.0", 8, 1)).unwrap();
        assert_eq!(fib.insert(route("11.0.0.0", 8, 1)), Err(AddRouteError::Full(1)));
        assert_ne!(fib.generation(), before);
        assert_eq!(fib.remove_prefix(route::<Ipv4Addr>("10.0.0.0", 8, 1).prefix), 1);
        assert!(fib.lookup(Ipv4Addr::new(10, 0, 0, 1), Instant::ORIGIN).is_none());
    }
}
