//! The kernel's routing table, read over netlink, as lines of the same words. It is read only.
//!
//! Called by `floodwall route import`. What the kernel made itself of its addresses is left out, as
//! are broadcast and multicast routes; the table is that of the calling thread's network namespace.
//! Reading: rtnetlink(7). Invariant: every length in a message is checked before it is used.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use floodwall_fib::{RouteProtocol, TableId};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::names;
use crate::settings::parse::{WrongValue, wrong};

const GET_LINK: u16 = 18;
const GET_ROUTE: u16 = 26;
const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;
const NLMSG_DONE: u16 = 3;
const NLMSG_ERROR: u16 = 2;
/// A request for all there are.
const DUMP_FLAGS: u16 = 0x301;
/// Set on what is only a cached copy.
const ROUTE_CLONED: u32 = 0x200;
const HEADER: usize = 16;
const PROTOCOL_KERNEL: u8 = 2;

/// The lines that add what the kernel has, limited by `[table TABLE] [dev IFACE]`.
pub(crate) fn lines(words: &[&str]) -> Result<String, WrongValue> {
    let (mut table, mut only) = (TableId::MAIN, None);
    let mut words = words;
    while let [word, rest @ ..] = words {
        words = match (*word, rest) {
            ("table", [name, rest @ ..]) => {
                table = names::table(name)?;
                rest
            }
            ("dev", [dev, rest @ ..]) => {
                only = Some((*dev).to_owned());
                rest
            }
            _ => {
                let remedy = "use `import [table TABLE] [dev IFACE]`";
                return Err(wrong(format!("{word:?} is no word here"), remedy));
            }
        };
    }
    let read = || -> io::Result<String> {
        let mut links = BTreeMap::new();
        dump(GET_LINK, NEW_LINK, 16, |message| {
            // Without a name it is no link that a line could name.
            let _ = link(message, &mut links);
        })?;
        let mut lines = String::new();
        dump(GET_ROUTE, NEW_ROUTE, 12, |message| {
            let wanted = |line: &String| {
                only.as_ref().is_none_or(|dev| line.contains(&format!(" dev {dev} ")))
            };
            if let Some(line) = route(message, &links, table).filter(wanted) {
                lines.push_str(line.trim_end());
                lines.push('\n');
            }
        })?;
        Ok(lines)
    };
    let lines = read().map_err(|error| {
        let remedy = "try again; import needs permission to open netlink sockets";
        wrong(format!("cannot read the kernel's routes: {error}"), remedy)
    })?;
    match lines.is_empty() {
        true => Err(wrong("the kernel has no such routes", "see `ip route show table all`")),
        false => Ok(lines),
    }
}

/// Shows every message of one kind, from behind its netlink header.
fn dump(ask: u16, answer: u16, body: usize, mut show: impl FnMut(&[u8])) -> io::Result<()> {
    // Of netlink's protocols, none named is routes.
    let (flags, protocol) = (SocketFlags::CLOEXEC, None);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    let mut request = vec![0; HEADER + body];
    let len = request.len() as u32;
    request[..4].copy_from_slice(&len.to_ne_bytes());
    request[4..6].copy_from_slice(&ask.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP_FLAGS.to_ne_bytes());
    send(&socket, &request, SendFlags::empty())?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (len, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..len).unwrap_or_default();
        if rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some((kind, message, behind)) = next(rest) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return Err(io::Error::other("netlink refuses")),
                kind if kind == answer => show(message),
                _ => {}
            }
            rest = behind;
        }
    }
}

fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The first message: its kind, its body, and what is behind it.
fn next(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = word32(bytes, 0)? as usize;
    let body = bytes.get(HEADER..len)?;
    let behind = bytes.get(len.next_multiple_of(4).min(bytes.len())..)?;
    Some((word16(bytes, 4)?, body, behind))
}

/// The attributes of a message, by kind.
fn attributes(mut bytes: &[u8]) -> BTreeMap<u16, &[u8]> {
    let mut all = BTreeMap::new();
    while let (Some(len), Some(kind)) = (word16(bytes, 0), word16(bytes, 2)) {
        let Some(value) = bytes.get(4..usize::from(len)) else { break };
        all.insert(kind & 0x3fff, value);
        bytes = bytes.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn link(message: &[u8], links: &mut BTreeMap<u32, String>) -> Option<()> {
    let index = word32(message, 4)?;
    let all = attributes(message.get(16..)?);
    let name = all.get(&3)?.split(|byte| *byte == 0).next()?;
    links.insert(index, String::from_utf8(name.to_vec()).ok()?);
    Some(())
}

fn addr(v4: bool, bytes: &[u8]) -> Option<IpAddr> {
    Some(match v4 {
        true => IpAddr::from(*bytes.first_chunk::<4>()?),
        false => IpAddr::from(*bytes.first_chunk::<16>()?),
    })
}

/// The line that adds a route of `table`.
fn route(message: &[u8], links: &BTreeMap<u32, String>, table: TableId) -> Option<String> {
    let [family, dst_len, _, _, short_table, protocol, _, kind] = *message.first_chunk::<8>()?;
    let v4 = match family {
        2 => true,
        10 => false,
        _ => return None,
    };
    let all = attributes(message.get(12..)?);
    let of_table = all.get(&15).and_then(|t| word32(t, 0)).unwrap_or(short_table.into());
    let cloned = word32(message, 8)? & ROUTE_CLONED != 0;
    if of_table != table.0 || protocol == PROTOCOL_KERNEL || cloned {
        return None;
    }
    let kind = match kind {
        1 => "",
        6 => "blackhole ",
        7 => "unreachable ",
        8 => "prohibit ",
        _ => return None,
    };
    let prefix = match all.get(&1).and_then(|bytes| addr(v4, bytes)) {
        Some(addr) => format!("{addr}/{dst_len}"),
        None => "default".to_owned(),
    };
    let family = if v4 { "-4" } else { "-6" };
    let mut line = format!("{family} route add {kind}{prefix} ");
    let way = |all: &BTreeMap<u16, &[u8]>, index: Option<u32>| {
        let via = all.get(&5).and_then(|bytes| addr(v4, bytes));
        let via = via.map(|via| format!("via {via} ")).unwrap_or_default();
        let dev = index.and_then(|index| links.get(&index));
        via + &dev.map(|dev| format!("dev {dev} ")).unwrap_or_default()
    };
    match all.get(&9) {
        _ if !kind.is_empty() => {}
        None => line.push_str(&way(&all, all.get(&4).and_then(|bytes| word32(bytes, 0)))),
        Some(legs) => {
            let mut rest = *legs;
            while let Some(len) = word16(rest, 0).map(usize::from).filter(|len| *len >= 8) {
                let Some(leg) = rest.get(..len) else { break };
                let weight = u16::from(leg[3]) + 1;
                let leg = way(&attributes(&leg[8..]), word32(leg, 4));
                line.push_str(&format!("nexthop {leg}weight {weight} "));
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
    if let Some(src) = all.get(&7).and_then(|bytes| addr(v4, bytes)) {
        line.push_str(&format!("src {src} "));
    }
    if let Some(metric) = all.get(&6).and_then(|bytes| word32(bytes, 0)) {
        line.push_str(&format!("metric {metric} "));
    }
    if table != TableId::MAIN {
        line.push_str(&format!("table {table} "));
    }
    let protocol = names::of_protocol(RouteProtocol::of_number(protocol));
    line.push_str(&format!("proto {protocol} "));
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = (4 + value.len()) as u16;
        let mut out = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn message(kind: u8, protocol: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let head = [2, 24, 0, 0, 254, protocol, 0, kind, 0, 0, 0, 0];
        [&head[..], &attributes.concat()].concat()
    }

    #[test]
    fn the_kernel_s_routes_become_lines() {
        let links = BTreeMap::from([(7, "eth0".to_owned())]);
        let to = attribute(1, &[192, 0, 2, 0]);
        let dev = attribute(4, &7_u32.to_ne_bytes());
        let via = attribute(5, &[10, 0, 0, 1]);
        let metric = attribute(6, &50_u32.to_ne_bytes());
        let all = [to.clone(), dev, via.clone(), metric];
        let line = |kind, protocol, all: &[Vec<u8>]| {
            route(&message(kind, protocol, all), &links, TableId::MAIN)
        };
        let expected = "-4 route add 192.0.2.0/24 via 10.0.0.1 dev eth0 metric 50 proto static ";
        assert_eq!(line(1, 4, &all).as_deref(), Some(expected));
        let hole = "-4 route add blackhole 192.0.2.0/24 proto boot ";
        assert_eq!(line(6, 3, std::slice::from_ref(&to)).as_deref(), Some(hole));
        assert_eq!((line(1, 2, &all), line(5, 4, &all)), (None, None), "the kernel's, a group's");
        let leg = [&[16, 0, 0, 2][..], &7_u32.to_ne_bytes(), &via].concat();
        let several = line(1, 4, &[to, attribute(9, &[leg.clone(), leg].concat())]);
        let leg = "nexthop via 10.0.0.1 dev eth0 weight 3 ";
        assert_eq!(several.unwrap(), format!("-4 route add 192.0.2.0/24 {leg}{leg}proto static "));
    }

    #[test]
    fn a_record_of_a_wrong_length_is_no_route() {
        let links = BTreeMap::new();
        let whole = message(1, 4, &[attribute(1, &[192, 0, 2, 0]), attribute(9, &[255; 12])]);
        for len in 0..whole.len() {
            let _ = route(&whole[..len], &links, TableId::MAIN);
            let _ = next(&whole[..len]);
        }
        assert!(next(&[255; 16]).is_none());
    }
}
