//! `floodwall neigh`: ip(8)'s words about the neighbours of a running instance.
//!
//! The arguments are parsed here, so that a syntax error is reported before the instance is
//! contacted; errors of the instance are printed as they come.

use std::net::IpAddr;

use floodwall_base::MacAddr;
use serde_json::Value;

use crate::args::NeighArgs;
use crate::exit::Exit;
use crate::neighbors::{NeighborRequest, NeighbourPut};
use crate::output;
use crate::settings::parse::{self, WrongValue, wrong};
use crate::socket::request::ControlRequest;
use crate::socket::{client, path};

const NEIGH_USE: &str = "use `show`, `add ADDRESS lladdr MAC dev IFACE`, `del ADDRESS dev IFACE` \
                         or `flush dev IFACE`";
const NEIGHBOR_STATES: [&str; 7] =
    ["incomplete", "reachable", "stale", "delay", "probe", "failed", "permanent"];

/// Which of them are to be seen.
#[derive(Debug, Default, PartialEq)]
struct NeighFilter {
    addr: Option<IpAddr>,
    dev: Option<String>,
    nud: Option<String>,
}

/// What is wanted.
#[derive(Debug, PartialEq)]
enum NeighRequest {
    Show(NeighFilter),
    Do(NeighborRequest),
}

/// `floodwall neigh …`
pub(crate) fn neigh(args: &NeighArgs) -> Exit {
    let words: Vec<_> = args.words.iter().map(String::as_str).collect();
    let wish = match wish(&words) {
        Ok(wish) => wish,
        Err(WrongValue { what, remedy }) => {
            eprintln!("floodwall: neigh: {what}; {remedy}");
            return Exit::Usage;
        }
    };
    let socket = match path::find(args.ask.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let (request, filter) = match wish {
        NeighRequest::Show(filter) => (NeighborRequest::Show, Some(filter)),
        NeighRequest::Do(request) => (request, None),
    };
    let answer = match client::ask(&socket, &ControlRequest::Neighbor(request).to_string()) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: neigh: {error}");
            return error.exit();
        }
    };
    let Some(filter) = filter else { return Exit::Done };
    let family = |addr: &IpAddr| (!args.v4 || addr.is_ipv4()) && (!args.v6 || addr.is_ipv6());
    let all = answer.as_array().cloned().unwrap_or_default();
    let all: Vec<Value> = all.into_iter().filter(|one| filter.lets(one, family)).collect();
    match args.ask.json {
        true => output::print_document(&Value::Array(all)),
        false => output::print(&all.iter().map(in_words).collect::<String>()),
    }
}

impl NeighFilter {
    fn lets(&self, one: &Value, family: impl Fn(&IpAddr) -> bool) -> bool {
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        let addr = text("dst").parse::<IpAddr>().ok();
        let state = one["state"][0].as_str().unwrap_or_default();
        addr.as_ref().is_some_and(family)
            && self.addr.is_none_or(|wanted| addr == Some(wanted))
            && self.dev.as_ref().is_none_or(|dev| text("dev") == dev)
            && self.nud.as_ref().is_none_or(|nud| state.eq_ignore_ascii_case(nud))
    }
}

/// As `ip neigh` has it.
fn in_words(one: &Value) -> String {
    let text = |key: &str| one[key].as_str().unwrap_or_default();
    let mut line = format!("{} dev {}", text("dst"), text("dev"));
    if let Some(mac) = one["lladdr"].as_str() {
        line.push_str(&format!(" lladdr {mac}"));
    }
    if one.get("router").is_some() {
        line.push_str(" router");
    }
    line + &format!(" {}\n", one["state"][0].as_str().unwrap_or_default())
}

/// What may stand behind a verb, in any order.
#[derive(Default)]
struct NeighTail {
    addr: Option<IpAddr>,
    dev: Option<String>,
    mac: Option<MacAddr>,
    nud: Option<String>,
}

impl NeighTail {
    fn read(mut words: &[&str]) -> Result<Self, WrongValue> {
        let mut behind = Self::default();
        loop {
            words = match *words {
                [] => return Ok(behind),
                ["dev", dev, ref rest @ ..] => {
                    let name = parse::device(&format!("tap:{dev}"))?.name;
                    behind.dev = Some(name);
                    rest
                }
                ["lladdr", mac, ref rest @ ..] => {
                    let odd =
                        || wrong(format!("{mac:?} is no link address"), "write 02:00:00:00:00:07");
                    behind.mac = Some(mac.parse().map_err(|_| odd())?);
                    rest
                }
                ["nud", state, ref rest @ ..] => {
                    if state != "all" && !NEIGHBOR_STATES.contains(&state) {
                        let remedy = "the states are incomplete, reachable, stale, delay, probe, \
                                      failed, permanent, and all";
                        return Err(wrong(format!("{state:?} is no state"), remedy));
                    }
                    behind.nud = Some(state.to_owned());
                    rest
                }
                [word @ ("dev" | "lladdr" | "nud" | "to")] => {
                    return Err(wrong(format!("nothing stands behind {word:?}"), NEIGH_USE));
                }
                ["to", addr, ref rest @ ..] | [addr, ref rest @ ..] => {
                    if behind.addr.is_some() {
                        return Err(wrong(format!("{addr:?} is no word here"), NEIGH_USE));
                    }
                    let odd = || wrong(format!("{addr:?} is not an address"), NEIGH_USE);
                    behind.addr = Some(addr.parse().map_err(|_| odd())?);
                    rest
                }
            };
        }
    }
}

fn wish(words: &[&str]) -> Result<NeighRequest, WrongValue> {
    let missing = |what: &str| wrong(format!("{what} is missing"), NEIGH_USE);
    let (verb, rest) = words.split_first().unwrap_or((&"show", &[]));
    let NeighTail { addr, dev, mac, nud } = NeighTail::read(match *verb {
        "show" | "sh" | "s" | "list" | "ls" | "l" | "add" | "a" | "replace" | "repl" | "change"
        | "chg" | "delete" | "del" | "d" | "flush" | "f" => rest,
        other => return Err(wrong(format!("{other:?} is no word here"), NEIGH_USE)),
    })?;
    let needs = || dev.clone().ok_or_else(|| missing("the interface"));
    let verb = match *verb {
        "a" => "add",
        "repl" => "replace",
        "chg" => "change",
        other => other,
    };
    if let Some(put) = NeighbourPut::of(verb) {
        if let Some(state) = nud.filter(|state| state != "permanent") {
            let remedy = "neighbours that are kept are permanent";
            return Err(wrong(format!("a neighbour is not kept as {state}"), remedy));
        }
        let addr = addr.ok_or_else(|| missing("the address"))?;
        let mac = mac.ok_or_else(|| missing("lladdr"))?;
        return Ok(NeighRequest::Do(NeighborRequest::Keep { put, dev: needs()?, addr, mac }));
    }
    if mac.is_some() {
        return Err(wrong("\"lladdr\" is no word here", NEIGH_USE));
    }
    match verb {
        "delete" | "del" | "d" => {
            let addr = addr.ok_or_else(|| missing("the address"))?;
            Ok(NeighRequest::Do(NeighborRequest::Delete { dev: needs()?, addr }))
        }
        "flush" | "f" => {
            if let Some(addr) = addr {
                return Err(wrong(format!("{:?} is no word here", addr.to_string()), NEIGH_USE));
            }
            let all = match nud.as_deref() {
                None => false,
                Some("all") => true,
                Some(_) => return Err(wrong("flush supports nud all only", NEIGH_USE)),
            };
            Ok(NeighRequest::Do(NeighborRequest::Flush { dev: needs()?, all }))
        }
        _ => Ok(NeighRequest::Show(NeighFilter { addr, dev, nud: nud.filter(|nud| nud != "all") })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<NeighRequest, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        wish(&words).map_err(|wrong| format!("{}; {}", wrong.what, wrong.remedy))
    }

    #[test]
    fn the_words_of_ip_are_understood() {
        let line = |text: &str| match said(text) {
            Ok(NeighRequest::Do(request)) => ControlRequest::Neighbor(request).to_string(),
            other => panic!("{other:?}"),
        };
        for (text, wanted) in [
            (
                "add 10.0.0.7 lladdr 02:00:00:00:00:07 dev fw0",
                "neigh add fw0 10.0.0.7 02:00:00:00:00:07",
            ),
            (
                "replace fd00::7 dev fw0 lladdr 02:00:00:00:00:07 nud permanent",
                "neigh replace fw0 fd00::7 02:00:00:00:00:07",
            ),
            (
                "change to 10.0.0.7 lladdr 02:00:00:00:00:08 dev fw0",
                "neigh change fw0 10.0.0.7 02:00:00:00:00:08",
            ),
            ("del 10.0.0.7 dev fw0", "neigh del fw0 10.0.0.7"),
            ("flush dev fw0", "neigh flush fw0"),
            ("flush dev fw0 nud all", "neigh flush fw0 all"),
        ] {
            assert_eq!(line(text), wanted);
            let Some(ControlRequest::Neighbor(again)) = ControlRequest::read(wanted) else {
                panic!("{wanted}")
            };
            assert_eq!(ControlRequest::Neighbor(again).to_string(), wanted);
        }
        assert_eq!(said(""), Ok(NeighRequest::Show(NeighFilter::default())));
        let filter =
            NeighFilter { dev: Some("fw0".to_owned()), nud: Some("stale".to_owned()), addr: None };
        assert_eq!(said("show dev fw0 nud stale"), Ok(NeighRequest::Show(filter)));
    }

    #[test]
    fn a_wrong_word_is_named_with_what_to_say_instead() {
        for (text, part) in [
            ("dance", "\"dance\" is no word here"),
            ("add 10.0.0.7 dev fw0", "lladdr is missing"),
            ("add lladdr 02:00:00:00:00:07 dev fw0", "the address is missing"),
            ("add 10.0.0.7 lladdr 02:00:00:00:00:07", "the interface is missing"),
            ("add 10.0.0.7 lladdr 02:00 dev fw0", "\"02:00\" is no link address"),
            ("add 10.0.0.7 lladdr 02:00:00:00:00:07 dev fw0 nud stale", "not kept as stale"),
            ("add x lladdr 02:00:00:00:00:07 dev fw0", "\"x\" is not an address"),
            ("del 10.0.0.7", "the interface is missing"),
            ("del 10.0.0.7 dev", "nothing stands behind \"dev\""),
            ("flush 10.0.0.7 dev fw0", "\"10.0.0.7\" is no word here"),
            ("show nud odd", "\"odd\" is no state"),
        ] {
            let said = said(text).unwrap_err();
            assert!(said.contains(part) && said.contains("; "), "{text}: {said}");
        }
    }

    #[test]
    fn neighbours_are_shown_as_ip_shows_them() {
        let one = serde_json::json!({
            "dst": "fe80::1", "dev": "fw0", "lladdr": "02:00:00:00:00:01", "router": null,
            "state": ["REACHABLE"],
        });
        assert_eq!(in_words(&one), "fe80::1 dev fw0 lladdr 02:00:00:00:00:01 router REACHABLE\n");
        let failed = serde_json::json!({ "dst": "10.0.0.9", "dev": "fw0", "state": ["FAILED"] });
        assert_eq!(in_words(&failed), "10.0.0.9 dev fw0 FAILED\n");
        let filter = NeighFilter { nud: Some("reachable".to_owned()), ..NeighFilter::default() };
        assert!(filter.lets(&one, IpAddr::is_ipv6) && !filter.lets(&one, IpAddr::is_ipv4));
        assert!(!filter.lets(&failed, |_| true));
    }
}
