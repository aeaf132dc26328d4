//! Routes and rules carried out on a table, with what would take each back.
//!
//! Called by `session.rs` at the worker's desk. Generic over the family; the table is the one
//! writer's. Invariant: an error leaves the table as it was, and names the word and the remedy.

use std::time::Duration;

use floodwall_base::{Address, IfIndex, Instant, Prefix};
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{Fib, Leg, NextHop, Put, Route, RouteProtocol, Rule, RuleAction, Selector};
use floodwall_fib::{RouteKind, TableId};
use floodwall_ip::Interface;

use super::parse::{LegWords, RouteWords};
use super::rule_words::RuleWords;

/// iproute2's metric of IPv6 routes without one.
const METRIC_V6: u32 = 1024;

/// What words are understood by.
#[derive(Clone, Copy)]
pub(crate) struct RouteContext<'a> {
    pub(crate) interfaces: &'a [Interface],
    pub(crate) now: Instant,
}

/// What takes a change back.
#[derive(Debug, Clone)]
pub(crate) enum RouteUndo<A: Address> {
    /// This one is new.
    Remove(Route<A>),
    /// This one was there instead, with its ways where they are several.
    Restore(Route<A>, Vec<Leg<A>>, Put),
    /// This rule is new.
    RemoveRule(Rule<A>),
    /// This rule was there.
    RestoreRule(Rule<A>),
}

impl RouteContext<'_> {
    pub(crate) fn named(&self, dev: &str) -> Result<IfIndex, String> {
        let found = self.interfaces.iter().find(|i| i.name == dev).map(|i| i.index);
        found.ok_or_else(|| {
            let all: Vec<_> = self.interfaces.iter().map(|i| i.name.as_str()).collect();
            format!("there is no interface {dev:?}; there are {}", all.join(", "))
        })
    }

    /// The interface of a next hop; a gateway has to be a neighbour there.
    fn way<A: Address>(
        &self,
        via: Option<A>,
        dev: Option<&str>,
        onlink: bool,
    ) -> Result<IfIndex, String> {
        let dev = dev.map(|dev| self.named(dev)).transpose()?;
        let Some(via) = via else {
            return dev.ok_or_else(|| "the interface is missing; add `dev IFACE`".to_owned());
        };
        let addr = via.to_ip();
        if self.interfaces.iter().any(|i| i.owns(addr).is_some()) {
            return Err(format!("{addr} is an address of ours; name the router's"));
        }
        let reaches = |i: &Interface| i.is_on_link(addr) || via.is_link_scope();
        match dev {
            Some(dev) => {
                let interface = self.interfaces.iter().find(|i| i.index == dev);
                match onlink || interface.is_some_and(reaches) {
                    true => Ok(dev),
                    false => Err(format!(
                        "the gateway {addr} is on no prefix of that interface; add an address \
                         with a prefix that covers it, or use `onlink`"
                    )),
                }
            }
            None if via.is_link_scope() => {
                Err(format!("{addr} is valid on one link only; add `dev IFACE`"))
            }
            None => {
                let on_link = |i: &&Interface| i.is_on_link(addr);
                let found = self.interfaces.iter().find(on_link).map(|i| i.index);
                found.ok_or_else(|| {
                    format!(
                        "no interface has a prefix that covers the gateway {addr}; name one \
                             with `dev IFACE`"
                    )
                })
            }
        }
    }

    fn leg<A: Address>(&self, words: &LegWords) -> Result<Leg<A>, String> {
        let via = words.via.and_then(A::from_ip);
        let iface = self.way(via, words.dev.as_deref(), words.onlink)?;
        let hop = NextHop { kind: RouteKind::Unicast, iface, gateway: via, src_addr: None };
        Ok(Leg { hop, weight: words.weight.unwrap_or(1) })
    }
}

fn prefix_of<A: Address>(words: &RouteWords) -> Result<Prefix<A>, String> {
    let addr = A::from_ip(words.prefix.addr());
    addr.and_then(|addr| Prefix::new(addr, words.prefix.prefix_len()))
        .ok_or_else(|| format!("{} is of the other family; leave -4 or -6 out", words.prefix))
}

/// Adds or replaces a route as given.
pub(crate) fn put<A: LpmFamily>(
    fib: &mut Fib<A>,
    context: RouteContext<'_>,
    how: Put,
    words: &RouteWords,
) -> Result<RouteUndo<A>, String> {
    let (route, legs) = route_of(context, words)?;
    let former = match how {
        Put::Replace => fib
            .routes_to(route.table, route.prefix)
            .find(|old| old.metric == route.metric)
            .map(|old| (old, legs_of(fib, &old))),
        _ => None,
    };
    let done = match legs.is_empty() {
        true => fib.put(route, how, context.now),
        false => fib.put_multipath(route, &legs, how, context.now),
    };
    done.map_err(|error| error.to_string())?;
    Ok(match former {
        Some((old, legs)) => RouteUndo::Restore(old, legs, Put::Replace),
        // It stands behind those of its metric.
        None => {
            let same = |new: &Route<A>| new.metric == route.metric;
            let new = fib.routes_to(route.table, route.prefix).filter(same).last();
            RouteUndo::Remove(new.unwrap_or(route))
        }
    })
}

fn route_of<A: LpmFamily>(
    context: RouteContext<'_>,
    words: &RouteWords,
) -> Result<(Route<A>, Vec<Leg<A>>), String> {
    let prefix = prefix_of::<A>(words)?;
    let kind = words.kind.unwrap_or_default();
    let gateway = words.via.and_then(A::from_ip);
    let legs = words.legs.iter().map(|leg| context.leg(leg)).collect::<Result<Vec<_>, _>>()?;
    let iface = match (kind.is_unicast() && legs.is_empty(), legs.first()) {
        (true, _) => context.way(gateway, words.dev.as_deref(), words.onlink)?,
        (false, Some(leg)) => leg.hop.iface,
        (false, None) => IfIndex::LOOPBACK,
    };
    let src_addr = words.src.and_then(A::from_ip);
    if let Some(src) = words.src
        && !context.interfaces.iter().any(|i| i.owns(src).is_some())
    {
        return Err(format!("src {src} is no address of this host; add it first"));
    }
    let table = match kind {
        RouteKind::Local => TableId::LOCAL,
        _ => TableId::MAIN,
    };
    let usual = if A::BITS == 32 { 0 } else { METRIC_V6 };
    let route = Route {
        table: words.table.unwrap_or(table),
        gateway,
        metric: words.metric.unwrap_or(usual),
        kind,
        protocol: words.protocol.unwrap_or(RouteProtocol::Boot),
        src_addr,
        expires: words.expires.map(|secs| context.now + Duration::from_secs(u64::from(secs))),
        ..Route::on_link(prefix, iface)
    };
    Ok((route, legs))
}

/// The ways of a route that has several.
pub(crate) fn legs_of<A: LpmFamily>(fib: &Fib<A>, route: &Route<A>) -> Vec<Leg<A>> {
    let Some(group) = route.next_hop.and_then(|id| fib.next_hop(id)) else { return Vec::new() };
    let leg = |member: &floodwall_fib::Member| {
        let hop = fib.next_hop(member.id).and_then(|shown| shown.hop)?;
        Some(Leg { hop, weight: member.weight })
    };
    group.members.iter().filter_map(leg).collect()
}

/// Deletes the first route that is meant.
pub(crate) fn delete<A: LpmFamily>(
    fib: &mut Fib<A>,
    context: RouteContext<'_>,
    words: &RouteWords,
) -> Result<RouteUndo<A>, String> {
    let iface = words.dev.as_deref().map(|dev| context.named(dev)).transpose()?;
    let table = match words.kind {
        Some(RouteKind::Local) => TableId::LOCAL,
        _ => TableId::MAIN,
    };
    let which = Selector {
        table: words.table.unwrap_or(table),
        kind: words.kind,
        gateway: words.via.and_then(A::from_ip),
        iface,
        metric: words.metric,
        protocol: words.protocol,
        ..Selector::to(prefix_of::<A>(words)?)
    };
    let meant = fib.routes_to(which.table, which.prefix).find(|route| which.means(route));
    let legs = meant.map(|route| legs_of(fib, &route)).unwrap_or_default();
    let gone = fib.delete(&which, context.now).map_err(|error| error.to_string())?;
    Ok(RouteUndo::Restore(gone, legs, Put::Append))
}

/// Takes a change back. What cannot be had again, because its end has come meanwhile, is left out.
pub(crate) fn take_back<A: LpmFamily>(fib: &mut Fib<A>, undo: RouteUndo<A>, now: Instant) {
    let _ = match undo {
        RouteUndo::Remove(new) => {
            fib.remove_to(new.table, new.prefix, now, |route| *route == new);
            Ok(())
        }
        RouteUndo::Restore(route, legs, how) if legs.is_empty() => fib.put(route, how, now),
        RouteUndo::Restore(route, legs, how) => {
            let route = Route { next_hop: None, gateway: None, ..route };
            fib.put_multipath(route, &legs, how, now)
        }
        RouteUndo::RemoveRule(rule) => {
            let _ = fib.delete_rule(|other| *other == rule);
            Ok(())
        }
        RouteUndo::RestoreRule(rule) => {
            let _ = fib.add_rule(rule);
            Ok(())
        }
    };
}

/// Adds a rule; without a priority it goes before all others that have one (as Linux does).
pub(crate) fn add_rule<A: LpmFamily>(
    fib: &mut Fib<A>,
    context: RouteContext<'_>,
    words: &RuleWords,
) -> Result<RouteUndo<A>, String> {
    let rules = fib.rules();
    let second = rules.iter().map(|rule| rule.priority).find(|priority| *priority != 0);
    let usual = second.map_or(32_765, |priority| priority.saturating_sub(1));
    let action = match (words.kind, words.table) {
        (Some(kind), _) => RuleAction::Decide(kind),
        (None, table) => RuleAction::Table(table.unwrap_or_default()),
    };
    let rule = Rule {
        priority: words.priority.unwrap_or(usual),
        from: prefix(words.from),
        to: prefix(words.to),
        iif: words.iif.as_deref().map(|iif| context.named(iif)).transpose()?,
        action,
    };
    fib.add_rule(rule).map(|()| RouteUndo::RemoveRule(rule)).map_err(|error| error.to_string())
}

fn prefix<A: Address>(of: Option<floodwall_base::IpCidr>) -> Option<Prefix<A>> {
    of.and_then(|of| Prefix::new(A::from_ip(of.addr())?, of.prefix_len()))
}

/// Deletes the first rule that matches all given fields.
pub(crate) fn delete_rule<A: LpmFamily>(
    fib: &mut Fib<A>,
    context: RouteContext<'_>,
    words: &RuleWords,
) -> Result<RouteUndo<A>, String> {
    let (from, to) = (prefix::<A>(words.from), prefix::<A>(words.to));
    let iif = words.iif.as_deref().map(|iif| context.named(iif)).transpose()?;
    let done = fib.delete_rule(|rule| {
        let action = match rule.action {
            RuleAction::Table(table) => {
                words.kind.is_none() && words.table.is_none_or(|t| t == table)
            }
            RuleAction::Decide(kind) => {
                words.table.is_none() && words.kind.is_none_or(|k| k == kind)
            }
        };
        let said = |said: bool, is: bool| !said || is;
        action
            && said(words.priority.is_some(), words.priority == Some(rule.priority))
            && said(from.is_some(), rule.from == from)
            && said(to.is_some(), rule.to == to)
            && said(iif.is_some(), rule.iif == iif)
    });
    done.map(RouteUndo::RestoreRule).map_err(|error| error.to_string())
}
