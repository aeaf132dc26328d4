//! `floodwall address` and `floodwall link`: ip(8)'s words for a running instance.
//!
//! The arguments are parsed here, so that a syntax error is reported before the instance is
//! contacted; errors of the instance are printed as they come.

use std::net::IpAddr;

use crate::args::{AddressArgs, AskArgs, LinkArgs};
use crate::exit::Exit;
use crate::network::{LinkSettings, NetworkConfig};
use crate::output;
use crate::settings::parse::{self, WrongValue, wrong};
use crate::show::{of_address, time};
use crate::socket::request::ControlRequest;
use crate::socket::{client, path};

/// What is wanted.
#[derive(Debug, PartialEq)]
enum AddressRequest {
    /// To see this link, or all.
    Show(Option<String>),
    Do(ControlRequest),
}

/// `floodwall address …`
pub(crate) fn address(args: &AddressArgs) -> Exit {
    let words: Vec<_> = args.words.iter().map(String::as_str).collect();
    serve(&args.ask, "address", address_wish(&words), true)
}

/// `floodwall link …`
pub(crate) fn link(args: &LinkArgs) -> Exit {
    let words: Vec<_> = args.words.iter().map(String::as_str).collect();
    serve(&args.ask, "link", link_wish(&words), false)
}

fn serve(
    ask: &AskArgs,
    command: &str,
    wish: Result<AddressRequest, WrongValue>,
    addresses: bool,
) -> Exit {
    let wish = match wish {
        Ok(wish) => wish,
        Err(WrongValue { what, remedy }) => {
            eprintln!("floodwall: {command}: {what}; {remedy}");
            return Exit::Usage;
        }
    };
    let socket = match path::find(ask.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let (request, only) = match wish {
        AddressRequest::Show(only) => (ControlRequest::Network, Some(only)),
        AddressRequest::Do(request) => (request, None),
    };
    let answer = match client::ask(&socket, &request.to_string()) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: {command}: {error}");
            return error.exit();
        }
    };
    let Some(only) = only else { return Exit::Done };
    match serde_json::from_value::<NetworkConfig>(answer) {
        Ok(network) => show(network, only.as_deref(), ask.json, addresses),
        Err(error) => {
            eprintln!("floodwall: the instance is of another version ({error})");
            Exit::Refused
        }
    }
}

fn show(network: NetworkConfig, only: Option<&str>, json: bool, addresses: bool) -> Exit {
    let mut links = network.links;
    if let Some(only) = only {
        links.retain(|link| link.ifname == only);
        if links.is_empty() {
            eprintln!(
                "floodwall: there is no interface {only:?}; `floodwall link show` names them"
            );
            return Exit::Refused;
        }
    }
    if json {
        return output::print_document(&document(&links, addresses));
    }
    output::print(&links.iter().map(|link| in_words(link, addresses)).collect::<String>())
}

/// As `ip -j` has it.
fn document(links: &[LinkSettings], addresses: bool) -> serde_json::Value {
    let mut all = serde_json::json!(links);
    if let (false, Some(links)) = (addresses, all.as_array_mut()) {
        for link in links.iter_mut().filter_map(serde_json::Value::as_object_mut) {
            link.remove("addr_info");
        }
    }
    all
}

/// As `ip` has it.
fn in_words(link: &LinkSettings, addresses: bool) -> String {
    let LinkSettings { ifindex, ifname, mtu, operstate, link_type, .. } = link;
    let mac = link.address.as_ref().map(|mac| format!(" {mac}")).unwrap_or_default();
    let flags = link.flags.join(",");
    let mut text = format!("{ifindex}: {ifname}: <{flags}> mtu {mtu} state {operstate}\n");
    text.push_str(&format!("    link/{link_type}{mac}\n"));
    for addr in link.addr_info.iter().filter(|_| addresses) {
        text.push_str(&format!("    {}\n", of_address(addr, ifname)));
        let [valid, preferred] = [addr.valid_life_time, addr.preferred_life_time].map(time);
        text.push_str(&format!("       valid_lft {valid} preferred_lft {preferred}\n"));
    }
    text
}

const ADDRESS_USE: &str = "use `add ADDRESS/LENGTH dev IFACE`, `del ADDRESS dev IFACE` or `show`";
const LINK_USE: &str = "use `set IFACE up`, `set IFACE down` or `show`";

fn address_wish(words: &[&str]) -> Result<AddressRequest, WrongValue> {
    match *words {
        [] => Ok(AddressRequest::Show(None)),
        ["show" | "sh" | "s" | "list" | "ls" | "l", ref rest @ ..] => shown(rest, ADDRESS_USE),
        ["add" | "a", ref rest @ ..] => added(rest),
        ["delete" | "del" | "d", ref rest @ ..] => deleted(rest),
        [other, ..] => Err(wrong(format!("{other:?} is no word here"), ADDRESS_USE)),
    }
}

fn link_wish(words: &[&str]) -> Result<AddressRequest, WrongValue> {
    match *words {
        [] => Ok(AddressRequest::Show(None)),
        ["show" | "sh" | "s" | "list" | "ls" | "l", ref rest @ ..] => shown(rest, LINK_USE),
        ["set", "dev", dev, state @ ("up" | "down")] | ["set", dev, state @ ("up" | "down")] => {
            let dev = interface(dev)?;
            Ok(AddressRequest::Do(ControlRequest::SetLink { dev, up: state == "up" }))
        }
        ["set", ref rest @ ..] => match rest.last() {
            Some(last) => Err(wrong(format!("{last:?} is neither up nor down"), LINK_USE)),
            None => Err(wrong("the interface is missing", LINK_USE)),
        },
        [other, ..] => Err(wrong(format!("{other:?} is no word here"), LINK_USE)),
    }
}

fn shown(words: &[&str], remedy: &str) -> Result<AddressRequest, WrongValue> {
    match *words {
        [] => Ok(AddressRequest::Show(None)),
        ["dev", dev] | [dev] => Ok(AddressRequest::Show(Some(interface(dev)?))),
        [_, other, ..] => Err(wrong(format!("{other:?} is no word here"), remedy)),
    }
}

/// A name that an interface can have, and that fits a request.
fn interface(name: &str) -> Result<String, WrongValue> {
    parse::device(&format!("tap:{name}")).map(|device| device.name)
}

/// What stands behind an address: `dev NAME` and times.
#[derive(Default)]
struct AddressTail {
    dev: Option<String>,
    valid: Option<Option<u32>>,
    preferred: Option<Option<u32>>,
}

impl AddressTail {
    fn read(mut words: &[&str], times: bool) -> Result<Self, WrongValue> {
        let mut behind = Self::default();
        loop {
            words = match *words {
                [] => return Ok(behind),
                ["dev", dev, ref rest @ ..] => {
                    behind.dev = Some(interface(dev)?);
                    rest
                }
                ["valid_lft", time, ref rest @ ..] if times => {
                    behind.valid = Some(life_time(time)?);
                    rest
                }
                ["preferred_lft", time, ref rest @ ..] if times => {
                    behind.preferred = Some(life_time(time)?);
                    rest
                }
                [word @ ("dev" | "valid_lft" | "preferred_lft")] => {
                    return Err(wrong(format!("nothing stands behind {word:?}"), ADDRESS_USE));
                }
                [other, ..] => {
                    return Err(wrong(format!("{other:?} is no word here"), ADDRESS_USE));
                }
            };
        }
    }

    fn dev(&self) -> Result<String, WrongValue> {
        self.dev.clone().ok_or_else(|| {
            wrong("the interface is missing", "name it behind the address, as in `dev fw0`")
        })
    }
}

fn life_time(text: &str) -> Result<Option<u32>, WrongValue> {
    if text == "forever" {
        return Ok(None);
    }
    // iproute2 shows times with their unit.
    let seconds = text.strip_suffix("sec").unwrap_or(text).parse().ok();
    let remedy = "write seconds, as in 3600, or forever";
    seconds.map(Some).ok_or_else(|| wrong(format!("{text:?} is not a time"), remedy))
}

fn added(words: &[&str]) -> Result<AddressRequest, WrongValue> {
    let [address, rest @ ..] = words else {
        return Err(wrong("the address is missing", ADDRESS_USE));
    };
    let address = parse::address(address)?;
    let behind = AddressTail::read(rest, true)?;
    let valid = behind.valid.flatten();
    let preferred = behind.preferred.unwrap_or(valid);
    if valid.is_some_and(|valid| preferred.is_none_or(|preferred| preferred > valid)) {
        let what = "an address cannot be preferred longer than it is valid";
        return Err(wrong(what, "give a longer valid_lft or a shorter preferred_lft"));
    }
    Ok(AddressRequest::Do(ControlRequest::AddAddress {
        dev: behind.dev()?,
        address,
        valid,
        preferred,
    }))
}

fn deleted(words: &[&str]) -> Result<AddressRequest, WrongValue> {
    let [address, rest @ ..] = words else {
        return Err(wrong("the address is missing", ADDRESS_USE));
    };
    let (addr, prefix_len): (IpAddr, _) = match address.contains('/') {
        true => parse::address(address).map(|a| (a.addr(), Some(a.prefix_len())))?,
        false => {
            let remedy = "write it as `floodwall address show` does";
            let odd = || wrong(format!("{address:?} is not an address"), remedy);
            (address.parse().map_err(|_| odd())?, None)
        }
    };
    let dev = AddressTail::read(rest, false)?.dev()?;
    Ok(AddressRequest::Do(ControlRequest::DelAddress { dev, addr, prefix_len }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(text: &str) -> Result<AddressRequest, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        address_wish(&words).map_err(|wrong| format!("{}; {}", wrong.what, wrong.remedy))
    }

    #[test]
    fn the_words_of_ip_are_understood() {
        assert_eq!(wish(""), Ok(AddressRequest::Show(None)));
        assert_eq!(wish("show dev fw0"), Ok(AddressRequest::Show(Some("fw0".to_owned()))));
        let done = |text: &str| match wish(text) {
            Ok(AddressRequest::Do(request)) => request.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(done("add 10.0.0.9/24 dev fw0"), "address add fw0 10.0.0.9/24 forever forever");
        assert_eq!(
            done("add fd00::9/64 dev fw0 preferred_lft 30sec valid_lft 60"),
            "address add fw0 fd00::9/64 60 30"
        );
        assert_eq!(done("add fd00::9/64 valid_lft 60 dev fw0"), "address add fw0 fd00::9/64 60 60");
        assert_eq!(done("del 10.0.0.9/24 dev fw0"), "address del fw0 10.0.0.9/24");
        assert_eq!(done("delete fd00::9 dev fw0"), "address del fw0 fd00::9");
        let link = |words: &[&str]| link_wish(words).ok();
        let down = AddressRequest::Do(ControlRequest::SetLink { dev: "fw0".to_owned(), up: false });
        assert_eq!(link(&["set", "dev", "fw0", "down"]).as_ref(), Some(&down));
        assert_eq!(link(&["set", "fw0", "down"]), Some(down));
    }

    #[test]
    fn a_wrong_word_is_named_with_what_to_say_instead() {
        for (text, part) in [
            ("dance", "\"dance\" is no word here"),
            ("add", "the address is missing"),
            ("add 10.0.0.9 dev fw0", "10.0.0.9 lacks its prefix length"),
            ("add 10.0.0.9/40 dev fw0", "/40 is not a prefix length"),
            ("add 10.0.0.9/24", "the interface is missing"),
            ("add 10.0.0.9/24 dev", "nothing stands behind \"dev\""),
            ("add 10.0.0.9/24 dev a/b", "cannot be an interface's name"),
            ("add 10.0.0.9/24 dev fw0 scope host", "\"scope\" is no word here"),
            ("add 10.0.0.9/24 dev fw0 valid_lft soon", "\"soon\" is not a time"),
            ("add 10.0.0.9/24 dev fw0 valid_lft 5 preferred_lft 6", "preferred longer"),
            ("add 10.0.0.9/24 dev fw0 valid_lft 5 preferred_lft forever", "preferred longer"),
            ("del x dev fw0", "\"x\" is not an address"),
            ("show dev fw0 up", "\"fw0\" is no word here"),
        ] {
            let said = wish(text).unwrap_err();
            assert!(said.contains(part) && said.contains("; "), "{text}: {said}");
        }
        for words in [&["set"][..], &["set", "fw0"], &["set", "fw0", "sideways"], &["up"]] {
            assert!(link_wish(words).is_err(), "{words:?}");
        }
    }
}
