//! Single words of `ip route` and `ip rule`: prefixes, numbers, names of interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::{Family, IpCidr};

use crate::settings::parse::{WrongValue, wrong};

pub(super) const PREFIX_USE: &str =
    "write a prefix, as in 10.0.0.0/8, fd00::/8, 192.0.2.1 or default";

/// A prefix; where the word has no family of its own, `family` is it.
pub(super) fn prefix(text: &str, family: Option<Family>) -> Result<IpCidr, WrongValue> {
    let any = |family| match family {
        Some(Family::V6) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    let odd = || wrong(format!("{text:?} is not a prefix"), PREFIX_USE);
    let (addr, len) = match (text, text.split_once('/')) {
        ("default" | "any" | "all", _) => (any(family), Some("0")),
        (_, Some((addr, len))) => (addr.parse().map_err(|_| odd())?, Some(len)),
        (_, None) => (text.parse().map_err(|_| odd())?, None),
    };
    let bits = if addr.is_ipv4() { 32 } else { 128 };
    let len: u8 = match len {
        Some(len) => len.parse().ok().filter(|len| *len <= bits).ok_or_else(|| {
            wrong(format!("/{len} is not a prefix length of that family"), PREFIX_USE)
        })?,
        None => bits,
    };
    let network = network(addr, len);
    if network != addr {
        let what = format!("{text} has bits behind its prefix length");
        return Err(wrong(what, format!("write {network}/{len}, or {addr} for the one host")));
    }
    if family.is_some_and(|family| family != Family::of(addr)) {
        return Err(other_family(text));
    }
    IpCidr::new(addr, len).ok_or_else(odd)
}

fn network(addr: IpAddr, len: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            Ipv4Addr::from_bits(a.to_bits() & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            Ipv6Addr::from_bits(a.to_bits() & mask).into()
        }
    }
}

pub(super) fn other_family(text: &str) -> WrongValue {
    wrong(format!("{text} is of the other family"), "leave -4 or -6 out, or write an address of it")
}

pub(super) fn number<T: std::str::FromStr>(
    word: &str,
    text: &str,
    as_in: &str,
) -> Result<T, WrongValue> {
    text.parse().map_err(|_| {
        wrong(format!("{text:?} is not what stands behind {word:?}"), format!("write {as_in}"))
    })
}

pub(super) fn interface(name: &str) -> Result<String, WrongValue> {
    crate::settings::parse::device(&format!("tap:{name}")).map(|device| device.name)
}

pub(super) fn dangling(word: &str) -> WrongValue {
    wrong(format!("nothing stands behind {word:?}"), "write its value behind it")
}
