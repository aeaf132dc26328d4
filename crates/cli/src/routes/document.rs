//! Routes and rules as `ip -j` shows them, and as `ip` does.
//!
//! Keys and words are iproute2's. A route is one JSON object; its line in words is made of that
//! object, so that both agree.

use floodwall_base::{Address, IfIndex, Instant, Prefix};
use floodwall_fib::lpm::LpmFamily;
use floodwall_fib::{
    Fib, Route, RouteKind, RoutePreference, RouteProtocol, Rule, RuleAction, TableId,
};
use serde_json::{Map, Value, json};

use super::apply::{RouteContext, legs_of};
use super::names;
use super::parse::RouteFilter;

/// Maximum of routes in one answer; a larger table needs a filter.
pub(crate) const SHOWN_MAX: usize = 50_000;

fn dev(context: RouteContext<'_>, iface: IfIndex) -> String {
    let found = context.interfaces.iter().find(|i| i.index == iface);
    found.map_or_else(|| format!("if{}", iface.0), |i| i.name.clone())
}

/// As iproute2 writes one: a host without its length, all as `default`.
pub(crate) fn prefix<A: Address>(prefix: Prefix<A>) -> String {
    match prefix.len() {
        0 => "default".to_owned(),
        len if len == A::BITS => prefix.addr().to_string(),
        _ => prefix.to_string(),
    }
}

/// The routes that a filter lets through, in the order of iproute2: by prefix, then metric.
pub(crate) fn routes<A: LpmFamily>(
    fib: &Fib<A>,
    context: RouteContext<'_>,
    filter: &RouteFilter,
) -> (Vec<Value>, bool) {
    let table = filter.table.unwrap_or(Some(TableId::MAIN));
    let wanted = |route: &Route<A>| {
        let iface = filter.dev.as_deref().map(|dev| context.named(dev).ok());
        let exact = filter.prefix.is_none_or(|p| {
            A::from_ip(p.addr()) == Some(route.prefix.addr())
                && p.prefix_len() == route.prefix.len()
        });
        exact
            && table.is_none_or(|table| table == route.table)
            && iface.is_none_or(|iface| iface == Some(route.iface))
            && filter.via.is_none_or(|via| route.gateway.map(Address::to_ip) == Some(via))
            && filter.protocol.is_none_or(|protocol| protocol == route.protocol)
            && filter.kind.is_none_or(|kind| kind == route.kind)
    };
    let mut found: Vec<Route<A>> =
        fib.dump_at(context.now).filter(wanted).take(SHOWN_MAX + 1).collect();
    found.sort_by_key(|route| (route.table, route.prefix.addr(), route.prefix.len(), route.metric));
    let more = found.len() > SHOWN_MAX;
    found.truncate(SHOWN_MAX);
    let all = table.is_none();
    (found.iter().map(|route| of_route(fib, context, route, all)).collect(), more)
}

/// One route; its table where others are shown too.
pub(crate) fn of_route<A: LpmFamily>(
    fib: &Fib<A>,
    context: RouteContext<'_>,
    route: &Route<A>,
    table: bool,
) -> Value {
    let mut out = Map::new();
    let mut say = |key: &str, value: Value| drop(out.insert(key.to_owned(), value));
    if !route.kind.is_unicast() {
        say("type", json!(route.kind.name()));
    }
    say("dst", json!(prefix(route.prefix)));
    let legs = legs_of(fib, route);
    if legs.is_empty() && route.kind.is_unicast() {
        if let Some(gateway) = route.gateway {
            say("gateway", json!(gateway.to_string()));
        }
        say("dev", json!(dev(context, route.iface)));
    } else if route.kind == RouteKind::Local {
        say("dev", json!("lo"));
    }
    if table && route.table != TableId::MAIN {
        say("table", json!(route.table.to_string()));
    }
    if route.protocol != RouteProtocol::Boot {
        say("protocol", json!(names::of_protocol(route.protocol)));
    }
    let on_link = route.kind.is_unicast() && route.gateway.is_none() && legs.is_empty();
    match route.kind {
        _ if A::BITS != 32 => {}
        RouteKind::Local => say("scope", json!("host")),
        _ if on_link => say("scope", json!("link")),
        _ => {}
    }
    if let Some(src) = route.src_addr {
        say("prefsrc", json!(src.to_string()));
    }
    if route.metric != 0 {
        say("metric", json!(route.metric));
    }
    say("flags", json!([]));
    if let Some(left) = route.expires.map(|end| seconds_left(end, context.now)) {
        say("expires", json!(left));
    }
    if A::BITS != 32 {
        say("pref", json!(preference(route.preference)));
    }
    if !legs.is_empty() {
        let legs: Vec<Value> = legs
            .iter()
            .map(|leg| {
                let mut one = Map::new();
                if let Some(gateway) = leg.hop.gateway {
                    one.insert("gateway".to_owned(), json!(gateway.to_string()));
                }
                one.insert("dev".to_owned(), json!(dev(context, leg.hop.iface)));
                one.insert("weight".to_owned(), json!(leg.weight));
                one.insert("flags".to_owned(), json!([]));
                Value::Object(one)
            })
            .collect();
        say("nexthops", json!(legs));
    }
    Value::Object(out)
}

const fn preference(preference: RoutePreference) -> &'static str {
    match preference {
        RoutePreference::High => "high",
        RoutePreference::Medium => "medium",
        RoutePreference::Low => "low",
    }
}

pub(crate) fn seconds_left(end: Instant, now: Instant) -> u64 {
    end.as_nanos().saturating_sub(now.as_nanos()).div_ceil(1_000_000_000)
}

/// One rule.
pub(crate) fn of_rule<A: Address>(rule: &Rule<A>, context: RouteContext<'_>) -> Value {
    let mut out = Map::new();
    let mut say = |key: &str, value: Value| drop(out.insert(key.to_owned(), value));
    say("priority", json!(rule.priority));
    let halves = [("src", "srclen", rule.from), ("dst", "dstlen", rule.to)];
    for (key, len_key, prefix) in halves {
        match prefix.filter(|prefix| prefix.len() > 0) {
            Some(prefix) => {
                say(key, json!(prefix.addr().to_string()));
                if prefix.len() < A::BITS {
                    say(len_key, json!(prefix.len()));
                }
            }
            None if key == "src" => say(key, json!("all")),
            None => {}
        }
    }
    if let Some(iif) = rule.iif {
        say("iif", json!(dev(context, iif)));
    }
    match rule.action {
        RuleAction::Table(table) => say("table", json!(table.to_string())),
        RuleAction::Decide(kind) => say("action", json!(kind.name())),
    }
    Value::Object(out)
}

/// A route's line.
pub(crate) fn route_in_words(route: &Value) -> String {
    let text = |key: &str| route.get(key).and_then(Value::as_str);
    let number = |key: &str| route.get(key).and_then(Value::as_u64);
    let mut line = String::new();
    if let Some(kind) = text("type") {
        line.push_str(&format!("{kind} "));
    }
    line.push_str(text("dst").unwrap_or("?"));
    for (key, word) in [("from", "from"), ("gateway", "via"), ("dev", "dev"), ("table", "table")]
        .into_iter()
        .chain([("protocol", "proto"), ("scope", "scope"), ("prefsrc", "src")])
    {
        if let Some(value) = text(key) {
            line.push_str(&format!(" {word} {value}"));
        }
    }
    if let Some(metric) = number("metric") {
        line.push_str(&format!(" metric {metric}"));
    }
    if let Some(left) = number("expires") {
        line.push_str(&format!(" expires {left}sec"));
    }
    for metrics in route.get("metrics").and_then(Value::as_array).into_iter().flatten() {
        if let Some(mtu) = metrics.get("mtu") {
            line.push_str(&format!(" mtu {mtu}"));
        }
    }
    if let Some(pref) = text("pref") {
        line.push_str(&format!(" pref {pref}"));
    }
    for leg in route.get("nexthops").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| leg.get(key).and_then(Value::as_str);
        let via = text("gateway").map(|via| format!(" via {via}")).unwrap_or_default();
        let weight = leg.get("weight").and_then(Value::as_u64).unwrap_or(1);
        let dev = text("dev").unwrap_or("?");
        line.push_str(&format!("\n\tnexthop{via} dev {dev} weight {weight}"));
    }
    line.push('\n');
    line
}

/// A rule's line.
pub(crate) fn rule_in_words(rule: &Value) -> String {
    let text = |key: &str| rule.get(key).and_then(Value::as_str);
    let number = |key: &str| rule.get(key).and_then(Value::as_u64);
    let prefix = |key: &str, len: &str| {
        let len = number(len).map(|len| format!("/{len}")).unwrap_or_default();
        text(key).map(|addr| format!("{addr}{len}"))
    };
    let mut line = format!("{}:\tfrom ", number("priority").unwrap_or(0));
    line.push_str(&prefix("src", "srclen").unwrap_or_else(|| "all".to_owned()));
    if let Some(to) = prefix("dst", "dstlen") {
        line.push_str(&format!(" to {to}"));
    }
    if let Some(iif) = text("iif") {
        line.push_str(&format!(" iif {iif}"));
    }
    if let Some(table) = text("table") {
        line.push_str(&format!(" lookup {table}"));
    }
    if let Some(action) = text("action") {
        line.push_str(&format!(" {action}"));
    }
    line.push('\n');
    line
}
