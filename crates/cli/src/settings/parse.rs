//! The words of devices, services, addresses and numbers, the same in flags and files.
//!
//! Each function takes text and gives a value, or what is wrong with it and the remedy.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::ValueEnum as _;
use floodwall_base::{IpCidr, MacAddr};
use floodwall_device::{
    DeviceSpec, FirstLineMode, InvalidDeviceSpec, InvalidNapiPolicy, NapiPolicy,
};
use floodwall_dispatch::{OnPanic, WORKERS_MAX};

use crate::log::{LogFormat, LogLevel};

/// What is wrong, and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WrongValue {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

pub(crate) fn wrong(what: impl Into<String>, remedy: impl Into<String>) -> WrongValue {
    WrongValue { what: what.into(), remedy: remedy.into() }
}

/// `tun:NAME`, `tap:NAME`, `packet:INTERFACE`, `xdp:INTERFACE,queues=N,mode=WAY`.
pub(crate) fn device(text: &str) -> Result<DeviceSpec, WrongValue> {
    text.parse().map_err(|InvalidDeviceSpec { what, remedy }| wrong(what, remedy))
}

/// `off`, `filter`, `cookies`, `auto`.
pub(crate) fn first_line(text: &str) -> Result<FirstLineMode, WrongValue> {
    let what = || format!("{text:?} is no mode of the first line");
    text.parse().map_err(|()| wrong(what(), FirstLineMode::REMEDY))
}

/// `auto`, `busy-poll`, `napi-thread`, `leave`.
pub(crate) fn kernel_half(text: &str) -> Result<NapiPolicy, WrongValue> {
    text.parse().map_err(|InvalidNapiPolicy { text }| {
        let what = format!("{text:?} is no place for the kernel's half");
        wrong(what, InvalidNapiPolicy::REMEDY)
    })
}

/// Kinds of services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServiceKind {
    Echo,
    Discard,
    Chargen,
    TcpEcho,
    TcpDiscard,
    TcpChargen,
    Http,
    Bulk,
}

/// A service: `udp-echo:7001`, or with groups that it joins, `udp-echo:7001@239.1.2.3,ff02::1234`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServiceWord {
    pub(crate) kind: ServiceKind,
    pub(crate) port: u16,
    pub(crate) groups: Vec<IpAddr>,
}

impl ServiceKind {
    /// Whether it takes connections.
    pub(crate) const fn is_tcp(self) -> bool {
        !matches!(self, Self::Echo | Self::Discard | Self::Chargen)
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Echo => "udp-echo",
            Self::Discard => "udp-discard",
            Self::Chargen => "udp-chargen",
            Self::TcpEcho => "tcp-echo",
            Self::TcpDiscard => "tcp-discard",
            Self::TcpChargen => "tcp-chargen",
            Self::Http => "http",
            Self::Bulk => "bulk",
        }
    }
}

impl fmt::Display for ServiceWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.word(), self.port)?;
        for (n, group) in self.groups.iter().enumerate() {
            write!(f, "{}{group}", if n == 0 { '@' } else { ',' })?;
        }
        Ok(())
    }
}

/// `udp-echo`, `udp-discard`, `udp-chargen`, `tcp-echo`, `tcp-discard`, `tcp-chargen`, `http`,
/// `bulk`.
pub(crate) fn service_kind(text: &str) -> Result<ServiceKind, WrongValue> {
    use ServiceKind::{Bulk, Chargen, Discard, Echo, Http, TcpChargen, TcpDiscard, TcpEcho};
    [Echo, Discard, Chargen, TcpEcho, TcpDiscard, TcpChargen, Http, Bulk]
        .into_iter()
        .find(|kind| kind.word() == text)
        .ok_or_else(|| {
            let remedy =
                "the services are udp-echo, udp-discard, udp-chargen, tcp-echo, tcp-discard, \
                 tcp-chargen, http and bulk";
            wrong(format!("{text:?} is not a service"), remedy)
        })
}

/// A port that a service can be reached at.
pub(crate) fn port(number: i64) -> Result<u16, WrongValue> {
    u16::try_from(number).ok().filter(|port| *port != 0).ok_or_else(|| {
        wrong(format!("{number} is not a port that can be reached"), "use a port from 1 to 65535")
    })
}

/// A group that a service joins.
pub(crate) fn group(text: &str) -> Result<IpAddr, WrongValue> {
    text.parse().ok().filter(IpAddr::is_multicast).ok_or_else(|| {
        let remedy = "write a multicast address, as in 239.1.2.3 or ff02::1234";
        wrong(format!("{text:?} is not a group"), remedy)
    })
}

/// `udp-echo:7001`, `udp-echo:7001@239.1.2.3`.
pub(crate) fn service(text: &str) -> Result<ServiceWord, WrongValue> {
    let Some((kind, number)) = text.split_once(':') else {
        let remedy = "write a service and its port, as in udp-echo:7001";
        return Err(wrong(format!("{text:?} is not a service"), remedy));
    };
    let kind = service_kind(kind)?;
    let (number, groups) = number.split_once('@').map_or((number, None), |(n, g)| (n, Some(g)));
    let groups = groups.iter().flat_map(|groups| groups.split(',')).map(group);
    let groups = groups.collect::<Result<_, _>>()?;
    let number: i64 = number
        .parse()
        .map_err(|_| wrong(format!("{number:?} is not a port"), "use a port from 1 to 65535"))?;
    Ok(ServiceWord { kind, port: port(number)?, groups })
}

/// An address of ours, `10.0.0.2/24`.
pub(crate) fn address(text: &str) -> Result<IpCidr, WrongValue> {
    if let Some((_, length)) = text.split_once('/') {
        return text.parse().map_err(|_| {
            let what = match text.split_once('/').map(|(addr, _)| addr.parse::<IpAddr>()) {
                Some(Ok(_)) => format!("/{length} is not a prefix length of that family"),
                _ => format!("{text:?} is not an address"),
            };
            wrong(what, "write an address and its prefix length, as in 10.0.0.2/24 or fd00::2/64")
        });
    }
    let what = match text.parse::<IpAddr>() {
        Ok(_) => format!("{text} lacks its prefix length"),
        Err(_) => format!("{text:?} is not an address"),
    };
    Err(wrong(what, "write an address and its prefix length, as in 10.0.0.2/24 or fd00::2/64"))
}

/// A router's address.
pub(crate) fn gateway(text: &str) -> Result<IpAddr, WrongValue> {
    text.parse().map_err(|_| {
        let remedy = "write the router's address alone, as in 10.0.0.1 or fd00::1";
        wrong(format!("{text:?} is not an address"), remedy)
    })
}

/// A router, and whether it is on the link although no prefix covers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RouterWord {
    pub(crate) addr: IpAddr,
    pub(crate) onlink: bool,
}

/// A router's address, and perhaps `onlink` behind it, as ip(8) has it.
pub(crate) fn router(text: &str) -> Result<RouterWord, WrongValue> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match *words {
        [addr, "onlink"] => Ok(RouterWord { addr: gateway(addr)?, onlink: true }),
        _ => Ok(RouterWord { addr: gateway(text)?, onlink: false }),
    }
}

/// A route in the words of ip(8): `192.0.2.0/24 via 10.0.0.1`, `default via fd00::1`, or a prefix
/// alone where it is on the link.
pub(crate) fn route(text: &str) -> Result<RouteWord, WrongValue> {
    let remedy = "write a prefix, and via and a router's address behind it, as in 192.0.2.0/24 via \
                  10.0.0.1; default is a prefix, too";
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (prefix, via, onlink) = match *words {
        [prefix] => (prefix, None, false),
        [prefix, "via", via] => (prefix, Some(gateway(via)?), false),
        [prefix, "via", via, "onlink"] => (prefix, Some(gateway(via)?), true),
        _ => return Err(wrong(format!("{text:?} is not a route"), remedy)),
    };
    let six = via.is_some_and(|via| via.is_ipv6());
    let prefix = match prefix {
        "default" if via.is_none() => {
            return Err(wrong("a default route leads to a router", remedy));
        }
        "default" if six => "::/0",
        "default" => "0.0.0.0/0",
        other => other,
    };
    let prefix = address(prefix)?;
    if via.is_some_and(|via| via.is_ipv4() != prefix.addr().is_ipv4()) {
        return Err(wrong(format!("{text:?} is of two families"), "name a router of the prefix's"));
    }
    Ok(RouteWord { prefix, via, onlink })
}

/// A static route of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RouteWord {
    pub(crate) prefix: IpCidr,
    pub(crate) via: Option<IpAddr>,
    /// The router is on the link although no prefix covers it.
    pub(crate) onlink: bool,
}

/// A station's link address.
pub(crate) fn mac(text: &str) -> Result<MacAddr, WrongValue> {
    let mac: MacAddr = text.parse().map_err(|_| {
        let remedy = "write six pairs of hexadecimal digits, as in 02:00:00:00:00:02";
        wrong(format!("{text:?} is not a link address"), remedy)
    })?;
    if !mac.is_unicast() {
        let remedy = "use a station's own, as in 02:00:00:00:00:02 (first byte even, not all zero)";
        return Err(wrong(format!("{mac} names no station"), remedy));
    }
    Ok(mac)
}

/// Least that any IP link must carry (RFC 791), and the most that a packet can have.
const MTU: (i64, i64) = (68, 65_535);

/// The largest packet of a link.
pub(crate) fn mtu(number: i64) -> Result<u32, WrongValue> {
    within(number, MTU, "an MTU").map(|mtu| mtu as u32)
}

/// Queues of one interface.
pub(crate) fn queues(number: i64) -> Result<usize, WrongValue> {
    within(number, (1, 8), "a number of queues").map(|queues| queues as usize)
}

/// A core.
pub(crate) fn cpu(number: i64) -> Result<usize, WrongValue> {
    within(number, (0, 1023), "a core").map(|cpu| cpu as usize)
}

/// How many workers.
pub(crate) fn workers(number: i64) -> Result<usize, WrongValue> {
    within(number, (1, WORKERS_MAX as i64), "a number of workers").map(|workers| workers as usize)
}

/// Room for how many routes of each family.
pub(crate) fn routes(number: i64) -> Result<usize, WrongValue> {
    within(number, (16, 4_000_000), "a number of routes").map(|routes| routes as usize)
}

/// One core a worker, in the words of taskset: `0,2-3`.
pub(crate) fn cores(text: &str) -> Result<Vec<usize>, WrongValue> {
    let remedy = "write one core for each worker, as in 0,1 or 0-3";
    let odd = |part: &str| wrong(format!("{part:?} is no core and no range of cores"), remedy);
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<i64>().map_err(|_| odd(part));
        let (first, last) = (cpu(number(first)?)?, cpu(number(last)?)?);
        if first > last {
            return Err(odd(part));
        }
        for core in first..=last {
            if cores.contains(&core) {
                return Err(wrong(format!("core {core} is named twice"), remedy));
            }
            cores.push(core);
        }
    }
    match cores.len() > WORKERS_MAX {
        true => Err(wrong(format!("{} cores are too many", cores.len()), "use 64 at most")),
        false => Ok(cores),
    }
}

/// How many seconds connections may take to end.
pub(crate) fn drain(number: i64) -> Result<Duration, WrongValue> {
    let seconds = within(number, (0, 86_400), "a number of seconds")?;
    Ok(Duration::from_secs(seconds.unsigned_abs()))
}

/// The form of the log: `text`, `json`.
pub(crate) fn log_format(text: &str) -> Result<LogFormat, WrongValue> {
    let what = |_| wrong(format!("{text:?} is no form of the log"), "write text or json");
    LogFormat::from_str(text, false).map_err(what)
}

/// The least important messages of the log: `error`, `warn`, `info`, `debug`.
pub(crate) fn log_level(text: &str) -> Result<LogLevel, WrongValue> {
    let remedy = "write error, warn, info or debug";
    let what = |_| wrong(format!("{text:?} is no level of the log"), remedy);
    LogLevel::from_str(text, false).map_err(what)
}

/// The address and port that metrics are served at.
pub(crate) fn metrics(text: &str) -> Result<SocketAddr, WrongValue> {
    let what = |_| {
        let what = format!("{text:?} is not an address with a port");
        wrong(what, "write ADDRESS:PORT of this host, as in 127.0.0.1:9100 or [::1]:9100")
    };
    text.parse().map_err(what)
}

/// What the panic of one worker does: `end`, `isolate`.
pub(crate) fn on_panic(text: &str) -> Result<OnPanic, WrongValue> {
    match text {
        // The process ends in good order after the worker group.
        "end" => Ok(OnPanic::EndGroup),
        "isolate" => Ok(OnPanic::Isolate),
        _ => Err(wrong(format!("{text:?} is not a policy"), "write end or isolate")),
    }
}

fn within(number: i64, (least, most): (i64, i64), what: &str) -> Result<i64, WrongValue> {
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(wrong(format!("{number} cannot be {what}"), format!("use {least} to {most}")))
}
