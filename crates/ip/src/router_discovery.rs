//! `RouterDiscovery`: router advertisements of one link, made into routes, addresses and settings.
//!
//! Called by `stack`, one for each interface that accepts router advertisements: with
//! advertisements that `ndp.rs` has checked, with what the neighbour cache finds out about routers,
//! and for timed work. It never sends and changes nothing outside: each call leaves plain values in
//! [`RouterActions`]. Invariants: every list has its bound and all memory is taken at construction;
//! a value out of bounds changes nothing; lifetimes end by the reader's own clock, timers only
//! clean up; when the last one has ended the link is as it was configured. Start reading at
//! [`RouterDiscovery::input`]. Read first: RFC 4861 section 6.3, RFC 4862 section 5.5, RFC 4191,
//! RFC 8106, RFC 7559. Not here: whether a message is valid (`ndp.rs`), duplicate addresses
//! (`dad.rs`), prefixes by router (RFC 8028), DHCPv6.
//!
//! # Under flood
//! Reachable by any station on the link. Each part states what stays when it is full (`routers.rs`,
//! `routes.rs`, `prefixes.rs`, `dns.rs`): always an existing entry that is in use. An advertisement
//! of a router that finds no place is refused whole (`RouterListFull`). Worst work per message: 64
//! options, each 64 compares, and 16 ranks; [`RouterDiscovery::input`] returns how much it spent.
//! That is expensive, so few are read: [`RouterDiscovery::attend`] gives each known router a rate,
//! and all others together one (`RouterTalkative`). A router with lifetime zero that only
//! advertises prefixes is never known: during a flood its prefixes last as long as its last
//! accepted advertisement stated.

mod actions;
mod dns;
mod prefixes;
mod routers;
mod routes;
mod slaac;
mod solicit;

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::limits::{ADVERTISED_ROUTES_MAX, PREFIXES_MAX, ROUTERS_MAX};
use floodwall_base::{HashKey, Instant, Prefix, PublicRandom, TimerWheel, Units};
use floodwall_wire::ndp::{Lifetime, NdpOption, Preference, RouteInfo, RouterAdvertisementFields};
use thiserror::Error;

pub use self::actions::{LinkParameters, RouterAction, RouterActions};
pub use self::dns::{DnsList, DomainName};
pub use self::prefixes::{METRIC_ON_LINK, TWO_HOURS};
use self::prefixes::{Prefixes, end_of, is_usable};
pub use self::routers::METRIC;
use self::routers::{Admission, PROBE_INTERVAL, RouterList, metric_of};
use self::routes::AdvertisedRoutes;
pub use self::slaac::{AUTOCONF_PREFIX_LEN, IDGEN_RETRIES, StableIds};
pub use self::solicit::{
    RouterSolicitor, SOLICITATION_DELAY_MAX, SOLICITATION_INTERVAL, SOLICITATION_INTERVAL_MAX,
};
use crate::ndp::RouterSummary;

/// The minimum MTU that a router may set (RFC 4861 section 6.3.4, RFC 8200 section 5).
const MTU_MIN: u32 = 1280;
/// Bounds of the reachable time that a router may advertise; RFC 4861 section 6.2.1 allows an hour.
const REACHABLE_TIME: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Bounds of the retransmission interval that a router may advertise: neither a flood nor for ever.
const RETRANS_TIMER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Where each list's timers begin in the wheel.
const ROUTES_AT: usize = ROUTERS_MAX;
const PREFIXES_AT: usize = ROUTES_AT + ADVERTISED_ROUTES_MAX;
const DNS_AT: usize = PREFIXES_AT + PREFIXES_MAX;

/// Settings of an interface that accepts router advertisements.
#[derive(Clone, Copy, Debug)]
pub struct RouterDiscoveryConfig<'a> {
    /// The secret of our identifiers (RFC 7217).
    pub key: HashKey,
    /// The interface's name, which its identifiers depend on.
    pub iface_name: &'a str,
    /// Whether addresses are made of prefixes.
    pub autoconf: bool,
    /// The minimum hop limit that is accepted.
    pub hop_limit_floor: u8,
    /// The largest MTU that is taken over.
    pub link_mtu: u32,
}

/// The advertisement is refused whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the list of routers is full of routers that may answer")]
pub struct RouterListFull;

/// A router, for showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShownRouter {
    /// Its link-local address.
    pub addr: Ipv6Addr,
    /// Its preference.
    pub preference: Preference,
    /// Until when it is a default router; [`Instant::FAR`] for ever, a past moment for not.
    pub default_until: Instant,
    /// Whether it says that addresses are to be had by DHCPv6 (M).
    pub managed: bool,
    /// Whether it answers, as far as is known.
    pub reachable: bool,
}

/// A route that a router advertises, for showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShownRoute {
    /// What it is for.
    pub prefix: Prefix<Ipv6Addr>,
    /// The router that advertises it.
    pub router: Ipv6Addr,
    /// The lower, the better.
    pub metric: u32,
    /// Its end; [`Instant::FAR`] for none.
    pub until: Instant,
}

/// A prefix, for showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShownPrefix {
    /// The prefix.
    pub prefix: Prefix<Ipv6Addr>,
    /// Until when it is on the link; a past moment for not.
    pub on_link_until: Instant,
    /// The address that we made of it, and when it is no longer preferred and no longer valid.
    pub address: Option<(Ipv6Addr, Instant, Instant)>,
}

/// The router discovery state of one interface.
#[derive(Debug)]
pub struct RouterDiscovery {
    routers: RouterList,
    routes: AdvertisedRoutes,
    prefixes: Prefixes,
    dns: DnsList,
    solicitor: RouterSolicitor,
    wheel: TimerWheel,
    link: LinkParameters,
    hop_limit_floor: u8,
    link_mtu: u32,
    /// The advertised MTU that the link cannot carry yet.
    mtu_beyond: Option<u32>,
    had_default: bool,
}

impl RouterDiscovery {
    /// Sends its first solicitation within a second from `now`. Takes about 25 KiB, once.
    #[must_use]
    pub fn new(
        config: &RouterDiscoveryConfig<'_>,
        now: Instant,
        random: &mut PublicRandom,
    ) -> Self {
        let ids = StableIds::new(config.key, config.iface_name);
        Self {
            routers: RouterList::new(),
            routes: AdvertisedRoutes::new(),
            prefixes: Prefixes::new(ids, config.autoconf),
            dns: DnsList::new(),
            solicitor: RouterSolicitor::new(now, random),
            wheel: TimerWheel::new(DNS_AT + 1, now),
            link: LinkParameters::default(),
            hop_limit_floor: config.hop_limit_floor,
            link_mtu: config.link_mtu,
            mtu_beyond: None,
            had_default: false,
        }
    }

    /// Whether an advertisement of this router is to be read at all: to be called once for each,
    /// before any of its options is read. Costs 16 compares.
    #[must_use]
    pub fn attend(&mut self, router_addr: Ipv6Addr, now: Instant) -> bool {
        self.routers.attend(router_addr, now)
    }

    /// Takes an advertisement. Returns what that cost: a unit for the message and one for each
    /// option.
    ///
    /// # Errors
    /// It would be a router, and there is no room for another: nothing has changed.
    pub fn input(
        &mut self,
        said: &RouterSummary<'_>,
        now: Instant,
        random: &mut PublicRandom,
        actions: &mut RouterActions,
    ) -> Result<Units, RouterListFull> {
        let at = self.admit(said, now, actions)?;
        if let Some(at) = at {
            self.header_input(at, &said.fields, now);
        }
        let (mut spent, mut link) = (Units(1), self.link);
        if at.is_some() {
            link = self.link_of(&said.fields);
        }
        for option in said.options {
            spent = spent.plus(Units(1));
            match option {
                NdpOption::Mtu(mtu) if at.is_some() && mtu >= MTU_MIN => {
                    // One beyond the link changes nothing (RFC 4861 section 6.3.4), until the link
                    // carries as much.
                    self.mtu_beyond = Some(mtu).filter(|mtu| *mtu > self.link_mtu);
                    link.mtu = if self.mtu_beyond.is_some() { link.mtu } else { Some(mtu) };
                }
                option => self.option_input(at, &option, now, actions),
            }
        }
        if link != self.link {
            self.link = link;
            actions.push(RouterAction::SetLink(link));
        }
        if at.and_then(|at| self.routers.probe_heard(at, now).then_some(said.router_addr)).is_some()
        {
            actions.push(RouterAction::Probe(said.router_addr));
        }
        self.settle(now, random, actions);
        Ok(spent)
    }

    /// The place of the router in the list; `None` where it leads nowhere and is not known.
    fn admit(
        &mut self,
        said: &RouterSummary<'_>,
        now: Instant,
        actions: &mut RouterActions,
    ) -> Result<Option<usize>, RouterListFull> {
        let mut options = said.options;
        let leads = !said.fields.router_lifetime.is_zero()
            || options.any(|option| match option {
                NdpOption::RouteInfo(info) => {
                    info.lifetime != Lifetime::ZERO && is_route(&info).is_some()
                }
                _ => false,
            });
        if !leads {
            return Ok(self.routers.find(said.router_addr));
        }
        match self.routers.admit(said.router_addr).ok_or(RouterListFull)? {
            Admission::At(at) => Ok(Some(at)),
            Admission::Displacing(at, old, told) => {
                if told {
                    actions.push(remove_default(old));
                }
                self.routes.forget(old, actions);
                self.arm_router(at, now);
                Ok(Some(at))
            }
        }
    }

    /// RFC 4861 section 6.3.4, RFC 4191 section 2.2.
    fn header_input(&mut self, at: usize, fields: &RouterAdvertisementFields, now: Instant) {
        if let Some(router) = self.routers.at_mut(at) {
            router.preference = fields.preference;
            router.managed = fields.managed;
            router.default_until = now + fields.router_lifetime;
        }
    }

    /// The link parameters of the header, as far as they are within bounds.
    fn link_of(&self, fields: &RouterAdvertisementFields) -> LinkParameters {
        let within = |value: Duration, (least, most): (Duration, Duration)| {
            (!value.is_zero()).then(|| value.clamp(least, most))
        };
        let hop_limit = fields.hop_limit.filter(|hops| *hops >= self.hop_limit_floor);
        LinkParameters {
            hop_limit: hop_limit.or(self.link.hop_limit),
            mtu: self.link.mtu,
            reachable_time: within(fields.reachable_time, REACHABLE_TIME)
                .or(self.link.reachable_time),
            retrans_timer: within(fields.retrans_timer, RETRANS_TIMER).or(self.link.retrans_timer),
        }
    }

    /// The link carries packets of so many bytes from now on: advertised MTUs are at most that.
    /// Returns the parameters where one that was beyond the link counts thereby.
    pub fn set_link_mtu(&mut self, mtu: u32) -> Option<LinkParameters> {
        self.link_mtu = mtu;
        let now_carried = self.mtu_beyond.take_if(|beyond| *beyond <= mtu)?;
        self.link.mtu = Some(now_carried);
        Some(self.link)
    }

    fn option_input(
        &mut self,
        at: Option<usize>,
        option: &NdpOption<'_>,
        now: Instant,
        actions: &mut RouterActions,
    ) {
        match option {
            NdpOption::PrefixInfo(info) => {
                if let Some((at, next)) = self.prefixes.input(info, now, actions) {
                    self.arm(PREFIXES_AT + at, next);
                }
            }
            NdpOption::RouteInfo(info) => {
                if let Some(at) = at {
                    self.route_input(at, info, now, actions);
                }
            }
            NdpOption::RecursiveDns { lifetime, servers } => {
                let until = end_of(*lifetime, now);
                if self.dns.servers_input(servers, until, now) {
                    actions.dns_changed();
                }
            }
            NdpOption::DnsSearch { lifetime, names } => {
                let until = end_of(*lifetime, now);
                if self.dns.search_input(names, until, now) {
                    actions.dns_changed();
                }
            }
            _ => return,
        }
        self.arm(DNS_AT, self.dns.next_end());
    }

    /// RFC 4191 section 2.3; ::/0 means the same as the header, and takes precedence (section 3.1).
    fn route_input(
        &mut self,
        at: usize,
        info: &RouteInfo,
        now: Instant,
        actions: &mut RouterActions,
    ) {
        let (Some(prefix), Some(router)) = (is_route(info), self.routers.at_mut(at)) else {
            return;
        };
        let until = end_of(info.lifetime, now);
        if prefix.len() == 0 {
            router.preference = info.preference;
            router.default_until = until;
            return;
        }
        let (addr, reachable) = (router.addr, router.is_reachable());
        let route = (prefix, addr, metric_of(info.preference), until);
        if let Some(at) = self.routes.input(route, reachable, now, actions) {
            self.arm(ROUTES_AT + at, Some(until));
        }
    }

    /// The neighbour cache could not reach a router: another is chosen where there is one.
    pub fn unreachable(&mut self, addr: Ipv6Addr, now: Instant, actions: &mut RouterActions) {
        if let Some(at) = self.routers.find(addr) {
            self.routers.failed(at, now);
            self.routes.show(addr, false, actions);
            self.rank(now, actions);
            self.arm_router(at, now);
        }
    }

    /// A router has answered the neighbour cache.
    pub fn answered(&mut self, addr: Ipv6Addr, now: Instant, actions: &mut RouterActions) {
        if let Some(at) = self.routers.find(addr)
            && !self.routers.at(at).is_some_and(routers::KnownRouter::is_reachable)
        {
            self.routers.answered(at);
            self.routes.show(addr, true, actions);
            self.rank(now, actions);
            self.arm_router(at, now);
        }
    }

    /// A neighbour advertised that it is no router, or no longer (RFC 4861 section 7.2.5). True
    /// where it was one.
    pub fn no_router(
        &mut self,
        addr: Ipv6Addr,
        now: Instant,
        random: &mut PublicRandom,
        actions: &mut RouterActions,
    ) -> bool {
        let found = self.routers.find(addr);
        if let Some(router) = found.and_then(|at| self.routers.at_mut(at)) {
            router.default_until = Instant::ORIGIN;
            self.routes.forget(addr, actions);
            self.settle(now, random, actions);
        }
        found.is_some()
    }

    /// Another host uses an address of ours. Returns whether another one is tried; `None` where the
    /// address was not made here (RFC 7217 section 6).
    pub fn conflict(
        &mut self,
        addr: Ipv6Addr,
        now: Instant,
        actions: &mut RouterActions,
    ) -> Option<bool> {
        self.prefixes.conflict(addr, now, actions)
    }

    /// Does one unit of timed work; returns what was spent, none where nothing is due.
    pub fn step(
        &mut self,
        now: Instant,
        random: &mut PublicRandom,
        actions: &mut RouterActions,
    ) -> Units {
        if self.solicitor.work(now, random) {
            actions.push(RouterAction::Solicit);
            return Units(1);
        }
        let mut left = Units(1);
        if let Some(at) = self.wheel.pop_due(now, &mut left) {
            self.ring(at as usize, now, random, actions);
        }
        Units(1).minus(left)
    }

    /// When [`RouterDiscovery::step`] must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        [self.wheel.deadline(), self.solicitor.deadline()].into_iter().flatten().min()
    }

    fn ring(
        &mut self,
        at: usize,
        now: Instant,
        random: &mut PublicRandom,
        actions: &mut RouterActions,
    ) {
        match at {
            ..ROUTES_AT => {
                if let Some(router) = self.routers.at_mut(at)
                    && !router.is_reachable()
                    && router.next_probe <= now
                {
                    router.next_probe = now + PROBE_INTERVAL;
                    actions.push(RouterAction::Probe(router.addr));
                }
                self.arm_router(at, now);
            }
            ROUTES_AT..PREFIXES_AT => {
                let next = self.routes.ring(at - ROUTES_AT, now, actions);
                self.arm(at, next);
            }
            PREFIXES_AT..DNS_AT => {
                let next = self.prefixes.ring(at - PREFIXES_AT, now, actions);
                self.arm(at, next);
            }
            _ => {
                if self.dns.expire(now) {
                    actions.dns_changed();
                }
                self.arm(DNS_AT, self.dns.next_end());
            }
        }
        self.settle(now, random, actions);
    }

    /// Called after everything that may have changed the choice of routers.
    fn settle(&mut self, now: Instant, random: &mut PublicRandom, actions: &mut RouterActions) {
        self.rank(now, actions);
        for at in 0..ROUTERS_MAX {
            let Some(router) = self.routers.at(at) else { continue };
            if !router.is_default(now) && !self.routes.any_of(router.addr) {
                self.routers.remove(at);
            }
            self.arm_router(at, now);
        }
        let default = self.routers.any_default(now);
        if default {
            self.solicitor.stop();
        } else if self.had_default {
            self.solicitor.restart(now, random);
        }
        self.had_default = default;
        let nothing = self.routers.is_empty() && self.prefixes.is_empty();
        if nothing && self.link != LinkParameters::default() {
            self.link = LinkParameters::default();
            actions.push(RouterAction::SetLink(self.link));
        }
    }

    /// Emits what each default route should be, where it is not that already.
    fn rank(&mut self, now: Instant, actions: &mut RouterActions) {
        for at in 0..ROUTERS_MAX {
            let metric = self.routers.metric(at, now);
            let Some(router) = self.routers.at_mut(at) else { continue };
            let wanted = metric.map(|metric| (metric, router.default_until));
            if wanted == router.told {
                continue;
            }
            router.told = wanted;
            let gateway = router.addr;
            actions.push(match wanted {
                Some((metric, until)) => RouterAction::SetRoute {
                    prefix: Prefix::all(),
                    gateway: Some(gateway),
                    metric,
                    until,
                },
                None => remove_default(gateway),
            });
        }
    }

    fn arm_router(&mut self, at: usize, now: Instant) {
        let next = self.routers.at(at).and_then(|router| {
            let ends = router.is_default(now).then_some(router.default_until);
            let probe = (!router.is_reachable()).then_some(router.next_probe);
            [ends, probe].into_iter().flatten().min()
        });
        self.arm(at, next);
    }

    fn arm(&mut self, at: usize, next: Option<Instant>) {
        match next.filter(|next| *next != Instant::FAR) {
            Some(next) => self.wheel.insert(at as u32, next),
            None => self.wheel.cancel(at as u32),
        }
    }

    /// The link went down: all that was learned on it is removed, and no solicitation is sent.
    pub fn stop(&mut self, actions: &mut RouterActions) {
        for at in 0..ROUTERS_MAX {
            let Some(router) = self.routers.remove(at) else { continue };
            if router.told.is_some() {
                actions.push(remove_default(router.addr));
            }
            self.routes.forget(router.addr, actions);
        }
        self.prefixes.clear(actions);
        if self.dns.clear() {
            actions.dns_changed();
        }
        if self.link != LinkParameters::default() {
            self.link = LinkParameters::default();
            actions.push(RouterAction::SetLink(self.link));
        }
        (0..=DNS_AT).for_each(|at| self.wheel.cancel(at as u32));
        self.had_default = false;
        self.solicitor.stop();
    }

    /// The link is up, perhaps another one: solicitations start over.
    pub fn start(&mut self, now: Instant, random: &mut PublicRandom) {
        self.solicitor.restart(now, random);
    }

    /// The routers at `now`, in no order.
    pub fn routers(&self) -> impl Iterator<Item = ShownRouter> + '_ {
        self.routers.iter().map(|router| ShownRouter {
            addr: router.addr,
            preference: router.preference,
            default_until: router.default_until,
            managed: router.managed,
            reachable: router.is_reachable(),
        })
    }

    /// The routes besides the default one, in no order.
    pub fn routes(&self) -> impl Iterator<Item = ShownRoute> + '_ {
        self.routes.iter().map(|route| ShownRoute {
            prefix: route.prefix,
            router: route.router,
            metric: route.metric,
            until: route.until,
        })
    }

    /// The prefixes, in no order.
    pub fn prefixes(&self) -> impl Iterator<Item = ShownPrefix> + '_ {
        self.prefixes.iter().map(|p| ShownPrefix {
            prefix: p.prefix,
            on_link_until: p.on_link_until,
            address: p.autoconf.map(|a| (a.addr, a.preferred_until, a.valid_until)),
        })
    }

    /// The DNS servers and the search list.
    #[must_use]
    pub const fn dns(&self) -> &DnsList {
        &self.dns
    }

    /// What routers advertise of the link.
    #[must_use]
    pub const fn link(&self) -> LinkParameters {
        self.link
    }

    /// Whether this address is one of the routers'.
    #[must_use]
    pub fn knows(&self, addr: Ipv6Addr) -> bool {
        self.routers.find(addr).is_some()
    }
}

/// The prefix of a route option that may be used; `None` for the reserved preference (RFC 4191
/// section 2.3) and for what no route may lead to.
fn is_route(info: &RouteInfo) -> Option<Prefix<Ipv6Addr>> {
    let prefix = Prefix::new(info.prefix, info.prefix_len)?;
    let good = info.preference != Preference::Reserved;
    (good && (prefix.len() == 0 || is_usable(prefix))).then_some(prefix)
}

fn remove_default(router: Ipv6Addr) -> RouterAction {
    RouterAction::RemoveRoute { prefix: Prefix::all(), gateway: Some(router) }
}
