//! How routes come and go: the verbs of [`Fib`].
//!
//! Called by `stack` for addresses, gateways, leases and router advertisements, and for the
//! operator's commands. Order of every change: all that can be refused is checked or taken first;
//! then the list is changed and shown; where showing it fails, the list is as it was.

use floodwall_base::limits;
use floodwall_base::{Address, IfIndex, Instant, Prefix};

use crate::error::{Named, RouteError};
use crate::fib::{Fib, Old};
use crate::hop_writer::Object;
use crate::lpm::LpmFamily;
use crate::next_hop::{Leg, Member, NextHop, NextHopId};
use crate::records::{NONE, RouteRecord};
use crate::route::{Route, RouteKind, RouteProtocol, TableId};

/// Which route is meant: what is `None` may be anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector<A: Address> {
    /// To exactly where.
    pub prefix: Prefix<A>,
    /// In which table.
    pub table: TableId,
    /// Of which kind.
    pub kind: Option<RouteKind>,
    /// Through which router.
    pub gateway: Option<A>,
    /// Out of which interface.
    pub iface: Option<IfIndex>,
    /// Through which object.
    pub next_hop: Option<NextHopId>,
    /// Of which metric.
    pub metric: Option<u32>,
    /// Its protocol (origin).
    pub protocol: Option<RouteProtocol>,
}

impl<A: Address> Selector<A> {
    /// Any route of the main table to exactly `prefix`.
    #[must_use]
    pub const fn to(prefix: Prefix<A>) -> Self {
        Self {
            prefix,
            table: TableId::MAIN,
            kind: None,
            gateway: None,
            iface: None,
            next_hop: None,
            metric: None,
            protocol: None,
        }
    }

    /// Whether a route is meant.
    #[must_use]
    pub fn means(&self, route: &Route<A>) -> bool {
        fn may<T: PartialEq>(wanted: Option<T>, has: T) -> bool {
            wanted.is_none_or(|wanted| wanted == has)
        }
        (self.prefix, self.table) == (route.prefix, route.table)
            && may(self.kind, route.kind)
            && (self.gateway.is_none() || self.gateway == route.gateway)
            && may(self.iface, route.iface)
            && (self.next_hop.is_none() || self.next_hop == route.next_hop)
            && may(self.metric, route.metric)
            && may(self.protocol, route.protocol)
    }
}

/// How a route is put among those of its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// Only where none of its metric is.
    Add,
    /// In the place of the first of its metric, where one is.
    Replace,
    /// Behind those of its metric, unless the very same way is there.
    Append,
}

/// Whether a route is removed with the link that it was learnt on.
const fn is_told(protocol: RouteProtocol) -> bool {
    matches!(protocol, RouteProtocol::RouterAdvertisement | RouteProtocol::Dhcp)
}

impl<A: LpmFamily> Fib<A> {
    /// Adds a route; its prefix has none of the same metric.
    ///
    /// # Errors
    /// See [`RouteError`]; [`RouteError::Exists`] also where the one that exists would only be
    /// given an end, or lose it (I5).
    pub fn add(&mut self, route: Route<A>, now: Instant) -> Result<(), RouteError> {
        self.put(route, Put::Add, now)
    }

    /// Adds a route, in the place of the first of its prefix and metric where there is one.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn replace(&mut self, route: Route<A>, now: Instant) -> Result<(), RouteError> {
        self.put(route, Put::Replace, now)
    }

    /// Adds a route behind those of its prefix and metric.
    ///
    /// # Errors
    /// See [`RouteError`]; an identical route may not be there.
    pub fn append(&mut self, route: Route<A>, now: Instant) -> Result<(), RouteError> {
        self.put(route, Put::Append, now)
    }

    /// Adds a route.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn put(&mut self, route: Route<A>, how: Put, now: Instant) -> Result<(), RouteError> {
        self.check(&route, now)?;
        let hop = self.hop_of(&route)?;
        self.put_through(route, hop, how, now)
    }

    /// Adds an ECMP route: its flows are spread over several next hops (RFC 2992). Its own gateway
    /// and interface are of no meaning.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn put_multipath(
        &mut self,
        route: Route<A>,
        legs: &[Leg<A>],
        how: Put,
        now: Instant,
    ) -> Result<(), RouteError> {
        self.check(&Route { gateway: None, next_hop: None, ..route }, now)?;
        let mut members = Vec::with_capacity(legs.len());
        let mut made = Ok(());
        for leg in legs.iter().take(limits::NEXT_HOP_MEMBERS_MAX + 1) {
            match self.check_iface(leg.hop.iface).and_then(|()| self.hops.share(leg.hop)) {
                Ok(id) => members.push(Member { id: NextHopId(id), weight: leg.weight }),
                Err(error) => made = Err(error),
            }
        }
        let group = made.and_then(|()| self.hops.group(members.as_slice().into()));
        // The group counts on them now.
        members.iter().for_each(|member| self.release_hop(member.id.0));
        self.put_through(route, group?, how, now)
    }

    /// Adds a route, or puts it in the place of the one that the same protocol has for the same
    /// prefix, gateway and interface: how an advertised route is prolonged, or preferred more or
    /// less. An expired one is removed instead (I7). Prolonging alone is no change of an answer.
    ///
    /// # Errors
    /// See [`RouteError`]; the former route is then as it was.
    pub fn set(&mut self, route: Route<A>, now: Instant) -> Result<(), RouteError> {
        let same = |r: &Route<A>| {
            (r.gateway, r.iface, r.protocol) == (route.gateway, route.iface, route.protocol)
        };
        let former = self.first(route.table, route.prefix, same);
        let over = route.expires.is_some_and(|end| end <= now);
        let Some(at) = former else {
            return if over { Ok(()) } else { self.put(route, Put::Append, now) };
        };
        if over {
            return self.remove_at(at, now);
        }
        let Some(old) = self.route_at(at) else { return Ok(()) };
        if (Route { expires: route.expires, ..old }) == route && self.prolong(at, &route, now) {
            return Ok(());
        }
        self.check(&route, now)?;
        let hop = self.hop_of(&route)?;
        self.exchange(at, route, hop, now)
    }

    /// Deletes the first route that is meant, best first.
    ///
    /// # Errors
    /// None is; or see [`RouteError::Pending`].
    pub fn delete(&mut self, which: &Selector<A>, now: Instant) -> Result<Route<A>, RouteError> {
        let at = self.first(which.table, which.prefix, |route| which.means(route));
        let not_found =
            RouteError::NotFound { prefix: Named::of(which.prefix), table: which.table };
        let at = at.ok_or(not_found)?;
        let route = self.route_at(at).ok_or(not_found)?;
        self.remove_at(at, now)?;
        Ok(route)
    }

    /// What is wrong with a route, before anything is taken for it.
    pub(crate) fn check(&self, route: &Route<A>, now: Instant) -> Result<(), RouteError> {
        let led = route.gateway.is_some() || route.next_hop.is_some();
        if !route.kind.is_unicast() && led {
            return Err(RouteError::NeedsNoGateway);
        }
        if route.expires.is_some_and(|end| end <= now) {
            return Err(RouteError::Over);
        }
        self.check_iface(route.iface)
    }

    const fn check_iface(&self, iface: IfIndex) -> Result<(), RouteError> {
        // Whether an interface carries packets is a bit of one word.
        if iface.0 as usize >= limits::INTERFACES_MAX {
            return Err(RouteError::Interface(iface));
        }
        Ok(())
    }

    /// The object that a route goes through, counted on.
    pub(crate) fn hop_of(&mut self, route: &Route<A>) -> Result<u32, RouteError> {
        match route.next_hop {
            None => {
                let Route { kind, iface, gateway, src_addr, .. } = *route;
                self.hops.share(NextHop { kind, iface, gateway, src_addr })
            }
            Some(id) if self.hops.object(id.0).is_some() => {
                self.hops.hold(id.0);
                Ok(id.0)
            }
            Some(id) => Err(RouteError::NextHopUnknown(id)),
        }
    }

    pub(crate) fn release_hop(&mut self, hop: u32) {
        self.hops.release(hop, &mut self.old_hops);
        self.unlinked.extend(self.old_hops.drain(..).map(Old::Hop));
        self.may_wait = true;
    }

    /// Puts a route through an object that has been counted on; the count goes where that fails.
    fn put_through(
        &mut self,
        route: Route<A>,
        hop: u32,
        how: Put,
        now: Instant,
    ) -> Result<(), RouteError> {
        let here = |r: &Route<A>| r.metric == route.metric;
        let same = |this: &Self, at: u32| this.records.at(at).is_some_and(|r| r.hop == hop);
        let rival = self.first(route.table, route.prefix, here);
        let refused = match (how, rival) {
            (Put::Replace, Some(at)) => return self.exchange(at, route, hop, now),
            (Put::Add, Some(_)) => true,
            (Put::Append, Some(_)) => {
                let all = self.of_prefix(route.table, route.prefix);
                all.iter().any(|at| same(self, *at) && self.metric_of(*at) == Some(route.metric))
            }
            _ => false,
        };
        let put = if refused {
            Err(RouteError::Exists { prefix: Named::of(route.prefix), metric: route.metric })
        } else {
            self.insert(&route, hop, now)
        };
        if put.is_err() {
            self.release_hop(hop);
        }
        put
    }

    fn metric_of(&self, at: u32) -> Option<u32> {
        self.records.at(at).map(|record| record.metric)
    }

    fn insert(&mut self, route: &Route<A>, hop: u32, now: Instant) -> Result<(), RouteError> {
        let table = self.table_at(route.table)?;
        self.check_caps(route, None)?;
        self.ready(now)?;
        let of_prefix = self.tables.get(usize::from(table)).and_then(|t| t.head(route.prefix));
        match of_prefix {
            None => self.make_room(table, now)?,
            Some(head) if head.len as usize >= limits::ROUTES_PREFIX_MAX => {
                let (prefix, max) = (Named::of(route.prefix), limits::ROUTES_PREFIX_MAX);
                return Err(RouteError::PrefixFull { prefix, max });
            }
            Some(_) => {}
        }
        let at = self.record(route, table, hop, now)?;
        self.with_table(table, now, |table, parts| {
            table.link(at, parts.records);
            Ok(())
        })?;
        if let Err(error) = self.refresh(table, route.prefix, now) {
            self.with_table(table, now, |table, parts| {
                table.unlink(at, parts.records);
                table.refresh(route.prefix, parts)
            })?;
            self.forget(at);
            return Err(error);
        }
        self.count(route, 1);
        self.changed();
        Ok(())
    }

    /// Puts a route in the place of another of its prefix; nothing changes where that fails.
    fn exchange(
        &mut self,
        at: u32,
        route: Route<A>,
        hop: u32,
        now: Instant,
    ) -> Result<(), RouteError> {
        let done = self.try_exchange(at, &route, hop, now);
        if done.is_err() {
            self.release_hop(hop);
        }
        done
    }

    fn try_exchange(
        &mut self,
        at: u32,
        route: &Route<A>,
        hop: u32,
        now: Instant,
    ) -> Result<(), RouteError> {
        let Some(old) = self.records.at(at).copied() else { return Ok(()) };
        let Some(was) = self.route_at(at) else { return Ok(()) };
        self.check_caps(route, Some(&was))?;
        self.ready(now)?;
        let new = self.record(route, old.table, hop, now)?;
        let in_place = self.records.at(new).is_some_and(|r| r.rank() == old.rank());
        let swap = |this: &mut Self, from: u32, to: u32| {
            this.with_table(old.table, now, |table, parts| {
                if in_place {
                    table.exchange(from, to, parts.records);
                } else {
                    table.unlink(from, parts.records);
                    table.link(to, parts.records);
                }
                Ok(())
            })
        };
        swap(self, at, new)?;
        if let Err(error) = self.refresh(old.table, old.prefix, now) {
            swap(self, new, at)?;
            self.refresh(old.table, old.prefix, now)?;
            self.forget(new);
            return Err(error);
        }
        self.count(&was, -1);
        self.count(route, 1);
        self.forget(at);
        self.release_hop(old.hop);
        self.changed();
        Ok(())
    }

    /// Takes a record, and a lifetime where the route has an end (I1). Readers see neither yet.
    pub(crate) fn record(
        &mut self,
        route: &Route<A>,
        table: u16,
        hop: u32,
        now: Instant,
    ) -> Result<u32, RouteError> {
        let Route { prefix, metric, preference, protocol, .. } = *route;
        let until = route.expires.filter(|end| *end != Instant::FAR);
        let lifetime = match until {
            None => NONE,
            Some(until) => {
                if self.free_lifetimes.is_empty() {
                    // What waits for readers that have paused meanwhile.
                    self.publish(now);
                }
                let max = self.config.expiring_max;
                let full = self.expiry.len() >= max;
                let none = if full { RouteError::ExpiringFull(max) } else { RouteError::Pending };
                let entry = self.free_lifetimes.pop().ok_or(none)?;
                self.shared.lifetimes.write(entry, until, hop);
                self.expiry.insert(entry, until, now);
                entry
            }
        };
        let next = NONE;
        let record =
            RouteRecord { prefix, metric, hop, lifetime, next, table, preference, protocol };
        let at = self.records.insert(record);
        if let Some(of) = self.lifetime_of.get_mut(lifetime as usize) {
            *of = at;
        }
        if is_told(protocol) {
            self.told.insert(at);
        }
        self.newest = at;
        Ok(at)
    }

    /// Gives a record back, and its lifetime once readers no longer reach it (I4).
    pub(crate) fn forget(&mut self, at: u32) {
        let Some(record) = self.records.remove(at) else { return };
        if is_told(record.protocol) {
            self.told.remove(at);
        }
        self.leaving.remove(at);
        if record.lifetime != NONE {
            self.expiry.cancel(record.lifetime);
            self.unlinked.push(Old::Lifetime(record.lifetime));
            self.may_wait = true;
        }
    }

    /// Takes a route out of its table.
    pub(crate) fn remove_at(&mut self, at: u32, now: Instant) -> Result<(), RouteError> {
        let Some(record) = self.records.at(at).copied() else { return Ok(()) };
        let Some(route) = self.route_at(at) else { return Ok(()) };
        let RouteRecord { table, prefix, hop, .. } = record;
        self.ready(now)?;
        self.with_table(table, now, |table, parts| {
            table.unlink(at, parts.records);
            table.refresh(prefix, parts).inspect_err(|_| table.relink(at, parts.records))
        })?;
        self.count(&route, -1);
        self.forget(at);
        self.release_hop(hop);
        self.changed();
        Ok(())
    }

    /// Moves a route's end where nothing else changes; false where it gets or loses one.
    fn prolong(&mut self, at: u32, route: &Route<A>, now: Instant) -> bool {
        let until = route.expires.filter(|end| *end != Instant::FAR);
        let (Some(record), Some(until)) = (self.records.at(at), until) else {
            // Endless before and after: nothing is to be done.
            return self.records.at(at).is_some_and(|r| r.lifetime == NONE) && until.is_none();
        };
        let lifetime = record.lifetime;
        if lifetime == NONE {
            return false;
        }
        let before = self.shared.lifetimes.until(lifetime);
        if let Some(table) = self.tables.get_mut(usize::from(record.table)) {
            table.index.ends_at(until);
        }
        self.shared.lifetimes.prolong(lifetime, until);
        self.expiry.insert(lifetime, until, now);
        self.tell_ends(now);
        self.revision = self.revision.wrapping_add(1);
        // Shortened, or called back to life.
        self.generation = self.generation.wrapping_add(u32::from(until < before || before <= now));
        true
    }

    /// Whether there is room among the configured or the learnt routes, in exchange for `old`.
    fn check_caps(&self, route: &Route<A>, old: Option<&Route<A>>) -> Result<(), RouteError> {
        let gone = |f: &dyn Fn(&Route<A>) -> bool| usize::from(old.is_some_and(f));
        let (learnt, max) = (self.learnt, self.config.learnt_max);
        if !route.protocol.is_learnt() {
            let has = self.records.len() - learnt - gone(&|r| !r.protocol.is_learnt());
            let full = RouteError::Full(self.config.routes_max);
            return if has >= self.config.routes_max { Err(full) } else { Ok(()) };
        }
        let (iface, most) = (route.iface, limits::ROUTES_LEARNT_INTERFACE_MAX);
        let of_iface = self.by_iface.get(&iface).copied().unwrap_or(0)
            - gone(&|r| r.protocol.is_learnt() && r.iface == iface);
        if of_iface >= most || learnt - gone(&|r| r.protocol.is_learnt()) >= max {
            return Err(RouteError::InterfaceFull { iface, max: most.min(max) });
        }
        let Some(gateway) = route.gateway else { return Ok(()) };
        let of_router = self.by_router.get(&(iface, gateway)).copied().unwrap_or(0)
            - gone(&|r| r.protocol.is_learnt() && (r.iface, r.gateway) == (iface, Some(gateway)));
        let most = limits::ROUTES_LEARNT_ROUTER_MAX;
        if of_router >= most { Err(RouteError::RouterFull(most)) } else { Ok(()) }
    }

    fn count(&mut self, route: &Route<A>, change: isize) {
        if !route.protocol.is_learnt() {
            return;
        }
        self.learnt = self.learnt.saturating_add_signed(change);
        let of_iface = self.by_iface.entry(route.iface).or_default();
        *of_iface = of_iface.saturating_add_signed(change);
        let Some(gateway) = route.gateway else { return };
        let of_router = self.by_router.entry((route.iface, gateway)).or_default();
        *of_router = of_router.saturating_add_signed(change);
        if *of_router == 0 {
            self.by_router.remove(&(route.iface, gateway));
        }
    }

    /// The numbers of a prefix's routes, best first, without those on their way out.
    pub(crate) fn of_prefix(&self, table: TableId, prefix: Prefix<A>) -> Vec<u32> {
        let table = self.table_of(table).and_then(|at| self.tables.get(usize::from(at)));
        let all = table.map(|table| table.routes(prefix, &self.records));
        all.into_iter().flatten().filter(|at| !self.leaving.contains(*at)).collect()
    }

    pub(crate) fn first(
        &self,
        table: TableId,
        prefix: Prefix<A>,
        mut which: impl FnMut(&Route<A>) -> bool,
    ) -> Option<u32> {
        let table = self.tables.get(usize::from(self.table_of(table)?))?;
        let mut all = table.routes(prefix, &self.records);
        all.find(|at| self.present_at(*at).is_some_and(|route| which(&route)))
    }

    /// A route as it is shown.
    pub(crate) fn route_at(&self, at: u32) -> Option<Route<A>> {
        let record = self.records.at(at)?;
        let named = self.hops.is_named(record.hop);
        let table = self.tables.get(usize::from(record.table))?.id;
        let lives = record.lifetime != NONE;
        let (hop, next_hop) = match self.hops.object(record.hop)? {
            Object::Hop(hop) => (*hop, named.then_some(NextHopId(record.hop))),
            Object::Group(_) => (NextHop::nowhere(RouteKind::Unicast), Some(NextHopId(record.hop))),
        };
        Some(Route {
            prefix: record.prefix,
            table,
            iface: hop.iface,
            gateway: hop.gateway,
            next_hop,
            metric: record.metric,
            preference: record.preference,
            kind: hop.kind,
            protocol: record.protocol,
            src_addr: hop.src_addr,
            expires: lives.then(|| self.shared.lifetimes.until(record.lifetime)),
        })
    }
}
