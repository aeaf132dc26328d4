//! `Prefixes`: what is on the link, and which addresses we made ourselves of it.
//!
//! Called by `router_discovery.rs` for prefix information options, and when an address of ours met
//! a conflict. The two uses of a prefix are apart: only the L flag puts it on the link (RFC 5942),
//! only the A flag makes an address. Invariants: at most [`PREFIXES_MAX`] prefixes and
//! [`AUTOCONF_ADDRESSES_MAX`] addresses; a forged short lifetime takes no address away within two
//! hours (RFC 4862 section 5.5.3 (e)); what has ended is absent by the reader's own clock. Read
//! first: RFC 4861 section 6.3.4, RFC 4862 section 5.5. Not here: whether an address is ours alone
//! (`dad.rs`), when it is deprecated (the stack, by the times that it gets).
//!
//! # Under flood
//! Reachable by any station on the link. When full, the new prefix is refused. Worst work per
//! option: 32 compares and, for a new prefix, one keyed hash. Every address that is made costs us
//! one probe and a compare for each packet that arrives, hence their own smaller bound.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::limits::{AUTOCONF_ADDRESSES_MAX, PREFIXES_MAX};
use floodwall_base::{Instant, Prefix};
use floodwall_wire::ndp::{Lifetime, PrefixInfo};

use super::actions::{RouterAction, RouterActions};
use super::slaac::{AUTOCONF_PREFIX_LEN, IDGEN_RETRIES, StableIds};

/// What no advertisement may take from an address at once (RFC 4862 section 5.5.3 (e)).
pub const TWO_HOURS: Duration = Duration::from_secs(7200);
/// The metric of an on-link prefix route: Linux's for learned ones.
pub const METRIC_ON_LINK: u32 = 256;

/// An address that we made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Autoconf {
    pub(super) addr: Ipv6Addr,
    conflicts: u8,
    /// Every identifier that may be tried met a conflict.
    failed: bool,
    pub(super) preferred_until: Instant,
    pub(super) valid_until: Instant,
}

/// One prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdvertisedPrefix {
    pub(super) prefix: Prefix<Ipv6Addr>,
    /// Until when it is on the link; the origin where it never was.
    pub(super) on_link_until: Instant,
    pub(super) autoconf: Option<Autoconf>,
}

impl AdvertisedPrefix {
    fn is_live(&self, now: Instant) -> bool {
        self.on_link_until > now || self.autoconf.is_some_and(|a| a.valid_until > now)
    }

    const fn set_address(&self, a: &Autoconf) -> RouterAction {
        let &Autoconf { addr, preferred_until, valid_until, .. } = a;
        let prefix_len = AUTOCONF_PREFIX_LEN;
        RouterAction::SetAddress { addr, prefix_len, preferred_until, valid_until }
    }

    /// Reports what has ended, and removes it.
    fn expire(&mut self, now: Instant, actions: &mut RouterActions) {
        if self.on_link_until != Instant::ORIGIN && self.on_link_until <= now {
            self.on_link_until = Instant::ORIGIN;
            actions.push(RouterAction::RemoveRoute { prefix: self.prefix, gateway: None });
        }
        if let Some(autoconf) = self.autoconf.filter(|a| a.valid_until <= now) {
            self.autoconf = None;
            actions.push(RouterAction::RemoveAddress(autoconf.addr));
        }
    }

    /// When it next has to be looked at.
    fn next_end(&self) -> Option<Instant> {
        let on_link = Some(self.on_link_until).filter(|at| *at != Instant::ORIGIN);
        let valid = self.autoconf.map(|a| a.valid_until);
        [on_link, valid].into_iter().flatten().min()
    }
}

/// The moment at which a lifetime ends; [`Instant::FAR`] for never.
pub(super) fn end_of(lifetime: Lifetime, now: Instant) -> Instant {
    lifetime.duration().map_or(Instant::FAR, |length| now + length)
}

/// Whether the prefix may be used at all: neither a group's nor one that is never on a wire, and
/// not link-local (RFC 4861 section 6.3.4, RFC 4862 section 5.5.3 (b)).
pub(super) fn is_usable(prefix: Prefix<Ipv6Addr>) -> bool {
    let addr = prefix.addr();
    let reserved = prefix.len() > 0 && floodwall_base::ipv6_source_is_plausible(addr);
    reserved && !addr.is_unicast_link_local()
}

/// The prefixes of one interface, and the SLAAC addresses made from them.
#[derive(Debug)]
pub(super) struct Prefixes {
    slots: Box<[Option<AdvertisedPrefix>]>,
    ids: StableIds,
    autoconf: bool,
}

impl Prefixes {
    pub(super) fn new(ids: StableIds, autoconf: bool) -> Self {
        Self { slots: vec![None; PREFIXES_MAX].into(), ids, autoconf }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AdvertisedPrefix> {
        self.slots.iter().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Takes a prefix of an advertisement. Returns its place and when it must be checked again.
    pub(super) fn input(
        &mut self,
        info: &PrefixInfo,
        now: Instant,
        actions: &mut RouterActions,
    ) -> Option<(usize, Option<Instant>)> {
        let prefix = Prefix::new(info.prefix, info.prefix_len).filter(|p| is_usable(*p))?;
        let found = self.slots.iter().position(|s| s.is_some_and(|p| p.prefix == prefix));
        let good = info.valid_lifetime != Lifetime::ZERO;
        let at = match found {
            Some(at) => at,
            None if !good || !(info.on_link || self.makes_address(prefix, info)) => return None,
            None => self.slots.iter().position(Option::is_none)?,
        };
        let mut entry = self.slots.get(at).copied().flatten().unwrap_or(AdvertisedPrefix {
            prefix,
            on_link_until: Instant::ORIGIN,
            autoconf: None,
        });
        entry.expire(now, actions);
        if info.on_link {
            on_link_input(&mut entry, info, now, actions);
        }
        // A preferred lifetime beyond the valid one: the A flag is ignored (RFC 4862 section
        // 5.5.3 (c)).
        if info.autonomous && info.preferred_lifetime <= info.valid_lifetime {
            self.autoconf_input(&mut entry, info, now, actions);
        }
        let slot = self.slots.get_mut(at)?;
        *slot = entry.is_live(now).then_some(entry);
        Some((at, slot.as_ref().and_then(AdvertisedPrefix::next_end)))
    }

    /// Whether an address may be made of a new prefix.
    fn makes_address(&self, prefix: Prefix<Ipv6Addr>, info: &PrefixInfo) -> bool {
        let count = self.iter().filter(|p| p.autoconf.is_some()).count();
        self.autoconf
            && info.autonomous
            && info.preferred_lifetime <= info.valid_lifetime
            && prefix.len() == AUTOCONF_PREFIX_LEN
            && count < AUTOCONF_ADDRESSES_MAX
    }

    /// RFC 4862 section 5.5.3 (d) and (e).
    fn autoconf_input(
        &self,
        entry: &mut AdvertisedPrefix,
        info: &PrefixInfo,
        now: Instant,
        actions: &mut RouterActions,
    ) {
        let preferred = end_of(info.preferred_lifetime, now);
        let valid = end_of(info.valid_lifetime, now);
        let autoconf = match entry.autoconf {
            Some(old) => {
                let floor = now + TWO_HOURS;
                let accepted = if valid > floor || valid > old.valid_until {
                    valid
                } else {
                    old.valid_until.min(floor)
                };
                let preferred_until = preferred.min(accepted);
                Autoconf { preferred_until, valid_until: accepted, ..old }
            }
            None if valid > now && self.makes_address(entry.prefix, info) => {
                let Some(addr) = self.ids.address(entry.prefix, 0) else { return };
                Autoconf {
                    addr,
                    conflicts: 0,
                    failed: false,
                    preferred_until: preferred,
                    valid_until: valid,
                }
            }
            None => return,
        };
        entry.autoconf = Some(autoconf);
        if !autoconf.failed {
            actions.push(entry.set_address(&autoconf));
        }
    }

    /// A prefix's timer rang. Returns when it must be looked at again.
    pub(super) fn ring(
        &mut self,
        at: usize,
        now: Instant,
        actions: &mut RouterActions,
    ) -> Option<Instant> {
        let slot = self.slots.get_mut(at)?;
        let entry = slot.as_mut()?;
        entry.expire(now, actions);
        let next = entry.next_end();
        if !entry.is_live(now) {
            *slot = None;
            return None;
        }
        next
    }

    /// Another host uses an address of ours: the next identifier is tried, if one is left. True
    /// where the address is one of these.
    pub(super) fn conflict(
        &mut self,
        addr: Ipv6Addr,
        now: Instant,
        actions: &mut RouterActions,
    ) -> Option<bool> {
        let ids = self.ids;
        let mut entries = self.slots.iter_mut().flatten();
        let entry = entries.find(|p| p.autoconf.is_some_and(|a| a.addr == addr))?;
        let mut autoconf = entry.autoconf.filter(|a| a.valid_until > now)?;
        let conflicts = autoconf.conflicts + 1;
        let next = ids.address(entry.prefix, conflicts).filter(|_| conflicts <= IDGEN_RETRIES);
        match next {
            Some(next) => {
                (autoconf.addr, autoconf.conflicts) = (next, conflicts);
                actions.push(RouterAction::RemoveAddress(addr));
                actions.push(entry.set_address(&autoconf));
            }
            None => autoconf.failed = true,
        }
        entry.autoconf = Some(autoconf);
        Some(next.is_some())
    }

    /// Removes everything.
    pub(super) fn clear(&mut self, actions: &mut RouterActions) {
        for slot in &mut self.slots {
            if let Some(mut entry) = slot.take() {
                entry.expire(Instant::FAR, actions);
            }
        }
    }
}

/// RFC 4861 section 6.3.4: the prefix list. No two-hour rule here: the worst that a forger gets is
/// that neighbours are reached through a router.
fn on_link_input(
    entry: &mut AdvertisedPrefix,
    info: &PrefixInfo,
    now: Instant,
    actions: &mut RouterActions,
) {
    let until = end_of(info.valid_lifetime, now);
    if until <= now {
        let was = entry.on_link_until != Instant::ORIGIN;
        entry.on_link_until = Instant::ORIGIN;
        if was {
            actions.push(RouterAction::RemoveRoute { prefix: entry.prefix, gateway: None });
        }
        return;
    }
    entry.on_link_until = until;
    let (prefix, metric) = (entry.prefix, METRIC_ON_LINK);
    actions.push(RouterAction::SetRoute { prefix, gateway: None, metric, until });
}
