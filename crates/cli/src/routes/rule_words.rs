//! The words of `ip rule`, as values.

use floodwall_base::{Family, IpCidr};
use floodwall_fib::{RouteKind, TableId};

use super::names;
use super::word::{dangling, interface, number, prefix};
use crate::settings::parse::{WrongValue, wrong};

/// What is wanted of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleWish {
    Add(RuleWords),
    Delete(RuleWords),
    Show(Option<Family>),
}

/// One rule, as given by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleWords {
    pub(crate) family: Family,
    pub(crate) priority: Option<u32>,
    pub(crate) from: Option<IpCidr>,
    pub(crate) to: Option<IpCidr>,
    pub(crate) iif: Option<String>,
    pub(crate) table: Option<TableId>,
    pub(crate) kind: Option<RouteKind>,
}

const RULE_USE: &str = "use `add [from PREFIX] [to PREFIX] [iif IFACE] [priority N] table TABLE`, \
                   `del …` or `show`";

/// Reads what stands behind `rule`.
pub(super) fn rule(words: &[&str], family: Option<Family>) -> Result<RuleWish, WrongValue> {
    match *words {
        [] | ["show" | "sh" | "s" | "list" | "ls" | "l"] => Ok(RuleWish::Show(family)),
        ["add" | "a", ref rest @ ..] => {
            let rule = spec(rest, family)?;
            if rule.table.is_none() && rule.kind.is_none() {
                return Err(wrong("the rule has no table", "add `table TABLE`"));
            }
            Ok(RuleWish::Add(rule))
        }
        ["delete" | "del" | "d", ref rest @ ..] => Ok(RuleWish::Delete(spec(rest, family)?)),
        [.., last] => Err(wrong(format!("{last:?} is no word here"), RULE_USE)),
    }
}

fn spec(mut words: &[&str], family: Option<Family>) -> Result<RuleWords, WrongValue> {
    let mut rule = RuleWords {
        family: family.unwrap_or(Family::V4),
        priority: None,
        from: None,
        to: None,
        iif: None,
        table: None,
        kind: None,
    };
    let mut said = family;
    while let [word, rest @ ..] = words {
        words = match (*word, rest) {
            ("from" | "to", ["all", rest @ ..]) => rest,
            (
                "from" | "to" | "iif" | "dev" | "table" | "lookup" | "priority" | "pref" | "order",
                [],
            ) => return Err(dangling(word)),
            ("from", [from, rest @ ..]) => {
                let from = prefix(from, said)?;
                (said, rule.from) = (Some(Family::of(from.addr())), Some(from));
                rest
            }
            ("to", [to, rest @ ..]) => {
                let to = prefix(to, said)?;
                (said, rule.to) = (Some(Family::of(to.addr())), Some(to));
                rest
            }
            ("iif" | "dev", ["lo", rest @ ..]) => {
                rule.iif = Some("lo".to_owned());
                rest
            }
            ("iif" | "dev", [iif, rest @ ..]) => {
                rule.iif = Some(interface(iif)?);
                rest
            }
            ("table" | "lookup", [table, rest @ ..]) => {
                rule.table = Some(names::table(table)?);
                rest
            }
            ("priority" | "pref" | "order", [priority, rest @ ..]) => {
                rule.priority = Some(number(word, priority, "a number, as in 100")?);
                rest
            }
            (kind @ ("blackhole" | "unreachable" | "prohibit"), rest) => {
                rule.kind = names::kind(kind);
                rest
            }
            _ => return Err(wrong(format!("{word:?} is no word here"), RULE_USE)),
        };
    }
    rule.family = said.unwrap_or(rule.family);
    Ok(rule)
}
