//! The words of `ip route`, as values.
//!
//! Called at both ends of the control socket. Nothing here depends on an instance: interfaces are
//! names, addresses of either family. Invariant: an error names the word that is wrong and what to
//! write instead.

use std::net::IpAddr;

use floodwall_base::{Family, IpCidr};
use floodwall_fib::{Put, RouteKind, RouteProtocol, TableId};

use super::names;
use super::rule_words::{self, RuleWish};
use super::word::{PREFIX_USE, dangling, interface, number, other_family, prefix};
use crate::settings::parse::{WrongValue, wrong};

/// The request of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RouteRequest {
    /// A route to be put.
    Put(Put, RouteWords),
    /// A route less.
    Delete(RouteWords),
    /// To see some.
    Show(RouteFilter),
    /// Where a packet would go.
    Get(RouteQuestion),
    /// Of rules.
    Rule(RuleWish),
}

/// One route, as given by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteWords {
    pub(crate) prefix: IpCidr,
    pub(crate) kind: Option<RouteKind>,
    pub(crate) table: Option<TableId>,
    pub(crate) via: Option<IpAddr>,
    pub(crate) dev: Option<String>,
    pub(crate) onlink: bool,
    pub(crate) metric: Option<u32>,
    pub(crate) protocol: Option<RouteProtocol>,
    pub(crate) src: Option<IpAddr>,
    /// Seconds.
    pub(crate) expires: Option<u32>,
    pub(crate) legs: Vec<LegWords>,
}

/// One way of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LegWords {
    pub(crate) via: Option<IpAddr>,
    pub(crate) dev: Option<String>,
    pub(crate) weight: Option<u16>,
    pub(crate) onlink: bool,
}

/// Which routes are to be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RouteFilter {
    pub(crate) family: Option<Family>,
    /// `None` for the main table, `Some(None)` for all.
    pub(crate) table: Option<Option<TableId>>,
    pub(crate) dev: Option<String>,
    pub(crate) via: Option<IpAddr>,
    pub(crate) protocol: Option<RouteProtocol>,
    pub(crate) kind: Option<RouteKind>,
    pub(crate) prefix: Option<IpCidr>,
}

/// A packet that may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteQuestion {
    pub(crate) to: IpAddr,
    pub(crate) from: Option<IpAddr>,
    pub(crate) iif: Option<String>,
}

const ROUTE_USE: &str = "use `add|replace|append PREFIX [via ADDRESS] [dev IFACE]`, `del PREFIX`, \
                   `show` or `get ADDRESS`";

/// Parses one line: `route …` or `rule …`; `family` is that of `-4` or `-6`.
pub(crate) fn line(words: &[&str], family: Option<Family>) -> Result<RouteRequest, WrongValue> {
    match *words {
        ["-4", ref rest @ ..] => line(rest, Some(Family::V4)),
        ["-6", ref rest @ ..] => line(rest, Some(Family::V6)),
        ["route" | "r" | "ro", ref rest @ ..] => route(rest, family),
        ["rule" | "ru", ref rest @ ..] => rule_words::rule(rest, family).map(RouteRequest::Rule),
        [other, ..] => Err(wrong(format!("{other:?} is no word here"), "begin with route or rule")),
        [] => Err(wrong("the line is empty", "begin with route or rule")),
    }
}

fn route(words: &[&str], family: Option<Family>) -> Result<RouteRequest, WrongValue> {
    match *words {
        [] => shown(&[], family),
        ["add" | "a", ref rest @ ..] => Ok(RouteRequest::Put(Put::Add, spec(rest, family, true)?)),
        ["replace" | "change" | "r", ref rest @ ..] => {
            Ok(RouteRequest::Put(Put::Replace, spec(rest, family, true)?))
        }
        ["append", ref rest @ ..] => Ok(RouteRequest::Put(Put::Append, spec(rest, family, true)?)),
        ["delete" | "del" | "d", ref rest @ ..] => {
            Ok(RouteRequest::Delete(spec(rest, family, false)?))
        }
        ["show" | "sh" | "s" | "list" | "ls" | "l", ref rest @ ..] => shown(rest, family),
        ["get", ref rest @ ..] => asked(rest),
        [other, ..] => Err(wrong(format!("{other:?} is no word here"), ROUTE_USE)),
    }
}

fn gateway(text: &str) -> Result<IpAddr, WrongValue> {
    crate::settings::parse::gateway(text)
}

fn seconds(text: &str) -> Result<u32, WrongValue> {
    number("expires", text.strip_suffix("sec").unwrap_or(text), "seconds, as in 600")
}

/// What `add`, `replace`, `append` and `del` have behind them.
fn spec(words: &[&str], family: Option<Family>, whole: bool) -> Result<RouteWords, WrongValue> {
    let (kind, words) = match words {
        [first, rest @ ..] if names::kind(first).is_some() => (names::kind(first), rest),
        _ => (None, words),
    };
    let (["to", first, rest @ ..] | [first, rest @ ..]) = words else {
        return Err(wrong("the prefix is missing", PREFIX_USE));
    };
    // `default` is of the family of its gateway.
    let hinted = family.or_else(|| {
        let gateways = words.windows(2).filter(|pair| pair[0] == "via");
        gateways.filter_map(|pair| pair[1].parse().ok()).map(Family::of).next()
    });
    let general = matches!(*first, "default" | "any" | "all");
    let prefix = prefix(first, if general { hinted } else { family })?;
    let mut spec = RouteWords {
        prefix,
        kind,
        table: None,
        via: None,
        dev: None,
        onlink: false,
        metric: None,
        protocol: None,
        src: None,
        expires: None,
        legs: Vec::new(),
    };
    behind(&mut spec, rest)?;
    judge(&spec, whole)?;
    Ok(spec)
}

fn behind(spec: &mut RouteWords, mut words: &[&str]) -> Result<(), WrongValue> {
    while let [word, rest @ ..] = words {
        words = match (*word, rest) {
            ("onlink", rest) => {
                spec.onlink = true;
                rest
            }
            ("nexthop", rest) => {
                let (leg, rest) = leg(rest)?;
                spec.legs.push(leg);
                rest
            }
            (
                "via" | "dev" | "metric" | "preference" | "priority" | "table" | "proto"
                | "protocol" | "src" | "expires",
                [],
            ) => return Err(dangling(word)),
            ("via", ["inet" | "inet6", via, rest @ ..]) | ("via", [via, rest @ ..]) => {
                spec.via = Some(gateway(via)?);
                rest
            }
            ("dev", [dev, rest @ ..]) => {
                spec.dev = Some(interface(dev)?);
                rest
            }
            ("metric" | "preference" | "priority", [metric, rest @ ..]) => {
                spec.metric = Some(number(word, metric, "a number, as in 100")?);
                rest
            }
            ("table", [table, rest @ ..]) => {
                spec.table = Some(names::table(table)?);
                rest
            }
            ("proto" | "protocol", [protocol, rest @ ..]) => {
                spec.protocol = Some(names::protocol(protocol)?);
                rest
            }
            ("src", [src, rest @ ..]) => {
                spec.src = Some(number(word, src, "an address of ours, as in 10.0.0.2")?);
                rest
            }
            ("expires", [time, rest @ ..]) => {
                spec.expires = Some(seconds(time)?);
                rest
            }
            _ => return Err(wrong(format!("{word:?} is no word here"), ROUTE_USE)),
        };
    }
    Ok(())
}

/// `nexthop via ADDRESS dev IFACE weight N`.
fn leg<'a, 'b>(mut words: &'a [&'b str]) -> Result<(LegWords, &'a [&'b str]), WrongValue> {
    let mut leg = LegWords::default();
    loop {
        words = match *words {
            [word @ ("via" | "dev" | "weight")] => return Err(dangling(word)),
            ["via", via, ref rest @ ..] => {
                leg.via = Some(gateway(via)?);
                rest
            }
            ["dev", dev, ref rest @ ..] => {
                leg.dev = Some(interface(dev)?);
                rest
            }
            ["weight", weight, ref rest @ ..] => {
                let weight: u16 = number("weight", weight, "a number from 1 to 256")?;
                if !(1..=256).contains(&weight) {
                    return Err(wrong(format!("{weight} cannot be a weight"), "use 1 to 256"));
                }
                leg.weight = Some(weight);
                rest
            }
            ["onlink", ref rest @ ..] => {
                leg.onlink = true;
                rest
            }
            _ => break,
        };
    }
    if leg.via.is_none() && leg.dev.is_none() {
        let remedy = "write `nexthop via ADDRESS dev IFACE weight N` for each";
        return Err(wrong("a next hop leads nowhere", remedy));
    }
    Ok((leg, words))
}

/// Whether the parts of a route go together.
fn judge(spec: &RouteWords, whole: bool) -> Result<(), WrongValue> {
    let family = Family::of(spec.prefix.addr());
    let legs = spec.legs.iter().filter_map(|leg| leg.via);
    for addr in spec.via.into_iter().chain(spec.src).chain(legs) {
        if Family::of(addr) != family {
            let remedy = format!("write one of the family of {}", spec.prefix);
            return Err(wrong(format!("{addr} is of the other family"), remedy));
        }
    }
    let leads = spec.via.is_some() || spec.dev.is_some() || !spec.legs.is_empty();
    let unicast = spec.kind.is_none_or(RouteKind::is_unicast);
    if whole && unicast && !leads {
        let remedy = "add `via ADDRESS`, `dev IFACE` or both, or begin with blackhole";
        return Err(wrong("the route leads nowhere", remedy));
    }
    if !unicast && (spec.via.is_some() || !spec.legs.is_empty()) {
        let name = spec.kind.map_or("", RouteKind::name);
        return Err(wrong(format!("a route of kind {name} has no next hop"), "leave `via` out"));
    }
    if !spec.legs.is_empty() && (spec.via.is_some() || spec.dev.is_some()) {
        let remedy = "write each as `nexthop via ADDRESS dev IFACE`";
        return Err(wrong("one way stands beside several next hops", remedy));
    }
    if spec.expires == Some(0) {
        return Err(wrong("expires 0 ends before it begins", "delete the route instead"));
    }
    Ok(())
}

fn shown(mut words: &[&str], family: Option<Family>) -> Result<RouteRequest, WrongValue> {
    let mut filter = RouteFilter { family, ..RouteFilter::default() };
    while let [word, rest @ ..] = words {
        words = match (*word, rest) {
            ("table" | "dev" | "via" | "proto" | "protocol" | "type" | "to" | "exact", []) => {
                return Err(dangling(word));
            }
            ("table", ["all" | "0", rest @ ..]) => {
                filter.table = Some(None);
                rest
            }
            ("table", [table, rest @ ..]) => {
                filter.table = Some(Some(names::table(table)?));
                rest
            }
            ("dev", [dev, rest @ ..]) => {
                filter.dev = Some(interface(dev)?);
                rest
            }
            ("via", [via, rest @ ..]) => {
                filter.via = Some(gateway(via)?);
                rest
            }
            ("proto" | "protocol", [protocol, rest @ ..]) => {
                filter.protocol = Some(names::protocol(protocol)?);
                rest
            }
            ("type", [kind, rest @ ..]) => {
                let remedy = "write unicast, local, blackhole, unreachable or prohibit";
                let odd = || wrong(format!("{kind:?} is not a type of routes"), remedy);
                filter.kind = Some(names::kind(kind).ok_or_else(odd)?);
                rest
            }
            ("to", ["exact", to, rest @ ..]) | ("to" | "exact", [to, rest @ ..]) => {
                filter.prefix = Some(prefix(to, family)?);
                rest
            }
            (to, rest) if filter.prefix.is_none() => {
                filter.prefix = Some(prefix(to, family)?);
                rest
            }
            _ => return Err(wrong(format!("{word:?} is no word here"), ROUTE_USE)),
        };
    }
    Ok(RouteRequest::Show(filter))
}

fn asked(words: &[&str]) -> Result<RouteRequest, WrongValue> {
    let (["to", to, rest @ ..] | [to, rest @ ..]) = words else {
        return Err(wrong("the address is missing", "write `get ADDRESS`"));
    };
    let addr = |text: &str| -> Result<IpAddr, WrongValue> {
        let remedy = "write an address alone, as in 192.0.2.1";
        text.parse().map_err(|_| wrong(format!("{text:?} is not an address"), remedy))
    };
    let mut question = RouteQuestion { to: addr(to)?, from: None, iif: None };
    let mut words = rest;
    while let [word, rest @ ..] = words {
        words = match (*word, rest) {
            ("from" | "iif", []) => return Err(dangling(word)),
            ("from", [from, rest @ ..]) => {
                question.from = Some(addr(from)?);
                rest
            }
            ("iif", [iif, rest @ ..]) => {
                question.iif = Some(interface(iif)?);
                rest
            }
            _ => {
                let remedy = "write `get ADDRESS [from ADDRESS] [iif IFACE]`";
                return Err(wrong(format!("{word:?} is no word here"), remedy));
            }
        };
    }
    if let Some(from) = question.from.filter(|from| Family::of(*from) != Family::of(question.to)) {
        return Err(other_family(&from.to_string()));
    }
    Ok(RouteRequest::Get(question))
}
