//! The filter of `floodwall capture`, in the words of pcap-filter(7): a part of them, joined by
//! `and`.

use std::net::IpAddr;

use floodwall_base::{Family, IpCidr};
use floodwall_stack::{TapFilter, TapProtocol, TapSide};

/// Conditions of a filter at most.
const CONDITIONS_MAX: usize = 8;
/// What a filter may consist of.
const FILTER_USE: &str = "use ip, ip6, arp, tcp, udp, icmp, icmp6; [src|dst] host ADDRESS, \
                          net PREFIX, port PORT; joined by `and`";

/// Reads a filter; the empty one lets everything pass.
///
/// # Errors
/// A sentence about the first word that makes no sense.
pub(crate) fn read_filter(text: &str) -> Result<TapFilter, String> {
    let mut filter = TapFilter::default();
    let mut words = text.split_ascii_whitespace();
    let mut conditions = 0;
    while let Some(word) = words.next() {
        let protocol = |number| Some(TapProtocol::Ip(number));
        match word {
            "and" | "&&" => continue,
            "ip" => filter.family = Some(Family::V4),
            "ip6" => filter.family = Some(Family::V6),
            "arp" => filter.protocol = Some(TapProtocol::Arp),
            "tcp" => filter.protocol = protocol(6),
            "udp" => filter.protocol = protocol(17),
            "icmp" => filter.protocol = protocol(1),
            "icmp6" => filter.protocol = protocol(58),
            "src" | "dst" | "host" | "net" | "port" => {
                let side = match word {
                    "src" => TapSide::Source,
                    "dst" => TapSide::Destination,
                    _ => TapSide::Any,
                };
                let kind = if side == TapSide::Any { Some(word) } else { words.next() };
                end(&mut filter, side, kind, &mut words)?;
            }
            other => return Err(format!("filter: {other:?} is not known; {FILTER_USE}")),
        }
        conditions += 1;
        if conditions > CONDITIONS_MAX {
            return Err(format!("filter: more than {CONDITIONS_MAX} conditions"));
        }
    }
    Ok(filter)
}

fn end<'a>(
    filter: &mut TapFilter,
    side: TapSide,
    kind: Option<&'a str>,
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let odd = |what: &str| format!("filter: {what}; {FILTER_USE}");
    let (kind, value) = match kind {
        Some(kind @ ("host" | "net" | "port")) => {
            (kind, words.next().ok_or_else(|| odd(&format!("{kind} lacks its value")))?)
        }
        // `src 192.0.2.1` is a host.
        Some(value) => ("host", value),
        None => return Err(odd("a side lacks its condition")),
    };
    let wrong = || odd(&format!("{value:?} cannot be a {kind}"));
    match kind {
        "port" => filter.ports.push((side, value.parse().map_err(|_| wrong())?)),
        "net" => filter.prefixes.push((side, value.parse().map_err(|_| wrong())?)),
        _ => {
            let addr: IpAddr = value.parse().map_err(|_| wrong())?;
            let len = if addr.is_ipv4() { 32 } else { 128 };
            let prefix: IpCidr = format!("{addr}/{len}").parse().map_err(|_| wrong())?;
            filter.prefixes.push((side, prefix));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_pcap_filter_are_read() {
        assert_eq!(read_filter("").unwrap(), TapFilter::default());
        let filter = read_filter("ip6 and tcp dst port 80 and src net fd00::/64").unwrap();
        assert_eq!(filter.family, Some(Family::V6));
        assert_eq!(filter.protocol, Some(TapProtocol::Ip(6)));
        assert_eq!(filter.ports, [(TapSide::Destination, 80)]);
        assert_eq!(filter.prefixes, [(TapSide::Source, "fd00::/64".parse().unwrap())]);
        let filter = read_filter("src 10.0.0.1 and host fd00::1").unwrap();
        assert_eq!(filter.prefixes.len(), 2);
        for text in ["port", "src", "port http", "net 10.0.0.0/33", "or", "host x\u{1b}"] {
            let why = read_filter(text).unwrap_err();
            assert!(why.contains("joined by `and`") && !why.contains('\u{1b}'), "{why}");
        }
        assert!(read_filter(&"port 1 ".repeat(9)).is_err());
    }
}
