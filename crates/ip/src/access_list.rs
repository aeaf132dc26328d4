//! `AccessList`: which packets an interface lets in, by prefix, protocol and port.
//!
//! Kept by `stack` for each interface that has rules, and evaluated for every packet after its
//! header check, before any other processing. Invariants: the first rule that matches decides, what
//! none matches passes; each rule counts what it decided; rules are checked when they are given and
//! never change. The syntax is an operator's: `deny udp from 10.0.0.0/8 to any dport 53`. Reading:
//! RFC 1812 section 5.3.9, RFC 1858 and RFC 3128 (filters and fragments). Not here: state, replies
//! to denied packets.
//!
//! # Fragments
//! A later fragment has no ports. A rule that permits by port lets those through that match in
//! everything else, a rule that denies by port does not match them: without its first fragment no
//! datagram becomes whole, and a first fragment that hides its ports matches neither.
//!
//! # Under flood
//! Reachable by any sender, fixed in size: [`ACCESS_RULES_MAX`] rules of one interface. Worst work
//! per packet: a look at each rule and at most sixteen extension headers, those only where a rule
//! names a protocol. Counter: `FloodwallAccessDenied`, and those of the rules.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;
use core::str::FromStr;

use floodwall_base::limits::{ACCESS_RULES_MAX, EXTENSION_HEADERS_MAX};
use floodwall_base::{Address, Family, IpCidr};
use floodwall_packet::{AccessCounters, PacketBuf};
use floodwall_wire::{IpProtocol, ipv6_ext};
use thiserror::Error;

use crate::input::ArrivedHeading;

/// One rule. A field that is not given matches any packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessRule {
    /// Whether what matches passes.
    pub permits: bool,
    /// The upper protocol.
    pub protocol: Option<IpProtocol>,
    /// Where from.
    pub from: Option<IpCidr>,
    /// Where to.
    pub to: Option<IpCidr>,
    /// Source ports, of UDP and TCP.
    pub src_ports: Option<RangeInclusive<u16>>,
    /// Destination ports.
    pub dst_ports: Option<RangeInclusive<u16>>,
}

/// Why a text is no rule.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{what}: {word:?}")]
pub struct AccessRuleError {
    /// The token at fault; empty where one is missing.
    pub word: String,
    /// What is wrong with it.
    pub what: &'static str,
}

impl FromStr for AccessRule {
    type Err = AccessRuleError;

    fn from_str(text: &str) -> Result<Self, AccessRuleError> {
        let bad = |word: &str, what| AccessRuleError { word: word.to_owned(), what };
        let mut words = text.split_whitespace();
        let permits = match words.next() {
            Some("permit") => true,
            Some("deny") => false,
            other => {
                return Err(bad(other.unwrap_or_default(), "a rule begins with permit or deny"));
            }
        };
        let mut rule = Self { permits, ..Self::default() };
        while let Some(word) = words.next() {
            let slot = match word {
                "from" => &mut rule.from,
                "to" => &mut rule.to,
                "sport" | "dport" => {
                    let range = words.next().and_then(ports);
                    let range = range.ok_or_else(|| bad(word, "no port or range follows"))?;
                    let slot = match word {
                        "sport" => &mut rule.src_ports,
                        _ => &mut rule.dst_ports,
                    };
                    *slot = Some(range);
                    continue;
                }
                _ => {
                    let known = protocol(word).ok_or_else(|| bad(word, "unknown keyword"))?;
                    rule.protocol = Some(known);
                    continue;
                }
            };
            let prefix = words.next().ok_or_else(|| bad(word, "no prefix follows"))?;
            if prefix != "any" {
                *slot = Some(prefix.parse().map_err(|_| bad(prefix, "not a prefix"))?);
            }
        }
        rule.check().map_err(|what| bad(text, what))?;
        Ok(rule)
    }
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    (low <= high).then_some(low..=high)
}

fn protocol(word: &str) -> Option<IpProtocol> {
    Some(match word {
        "udp" => IpProtocol::UDP,
        "tcp" => IpProtocol::TCP,
        "icmp" => IpProtocol::ICMPV4,
        "icmpv6" => IpProtocol::ICMPV6,
        number => IpProtocol(number.parse().ok()?),
    })
}

impl AccessRule {
    fn check(&self) -> Result<(), &'static str> {
        let has_ports = matches!(self.protocol, Some(IpProtocol::UDP | IpProtocol::TCP));
        if (self.src_ports.is_some() || self.dst_ports.is_some()) && !has_ports {
            return Err("ports are of udp or tcp");
        }
        match (self.from, self.to) {
            (Some(from), Some(to)) if from.addr().is_ipv4() != to.addr().is_ipv4() => {
                Err("both prefixes are of one family")
            }
            _ => Ok(()),
        }
    }

    fn matches(&self, ends: (IpAddr, IpAddr), upper: &FilteredUpper) -> bool {
        let within = |prefix: Option<IpCidr>, addr| prefix.is_none_or(|p| p.contains(addr));
        if !within(self.from, ends.0) || !within(self.to, ends.1) {
            return false;
        }
        if self.protocol.is_some_and(|protocol| upper.protocol != Some(protocol)) {
            return false;
        }
        if self.src_ports.is_none() && self.dst_ports.is_none() {
            return true;
        }
        let within = |range: &Option<RangeInclusive<u16>>, port| {
            range.as_ref().is_none_or(|range| range.contains(&port))
        };
        match upper.ports {
            Some((from, to)) => within(&self.src_ports, from) && within(&self.dst_ports, to),
            None => self.permits && upper.is_later_fragment,
        }
    }
}

impl fmt::Display for AccessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.permits { "permit" } else { "deny" })?;
        match self.protocol {
            None => {}
            Some(IpProtocol::UDP) => f.write_str(" udp")?,
            Some(IpProtocol::TCP) => f.write_str(" tcp")?,
            Some(IpProtocol::ICMPV4) => f.write_str(" icmp")?,
            Some(IpProtocol::ICMPV6) => f.write_str(" icmpv6")?,
            Some(IpProtocol(number)) => write!(f, " {number}")?,
        }
        for (word, prefix) in [("from", self.from), ("to", self.to)] {
            if let Some(prefix) = prefix {
                write!(f, " {word} {prefix}")?;
            }
        }
        for (word, range) in [("sport", &self.src_ports), ("dport", &self.dst_ports)] {
            match range {
                Some(range) if range.start() == range.end() => {
                    write!(f, " {word} {}", range.start())?
                }
                Some(range) => write!(f, " {word} {}-{}", range.start(), range.end())?,
                None => {}
            }
        }
        Ok(())
    }
}

/// What is known of a packet behind its network header.
struct FilteredUpper {
    protocol: Option<IpProtocol>,
    ports: Option<(u16, u16)>,
    is_later_fragment: bool,
}

/// What a rule has decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuleCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the network header on.
    pub bytes: u64,
}

/// An ordered list of rules with hit counters.
#[derive(Clone, Debug)]
pub struct AccessList {
    rules: Box<[(AccessRule, RuleCount)]>,
    /// Whether any rule matches on more than addresses.
    looks_further: bool,
}

impl AccessList {
    /// The rules in their order; those beyond [`ACCESS_RULES_MAX`] are refused by the
    /// configuration.
    #[must_use]
    pub fn new(rules: &[AccessRule]) -> Self {
        let rules = rules.iter().take(ACCESS_RULES_MAX);
        let rules: Box<[_]> = rules.map(|rule| (rule.clone(), RuleCount::default())).collect();
        Self { looks_further: rules.iter().any(|(rule, _)| rule.protocol.is_some()), rules }
    }

    /// Prefixes from which every packet is denied: for devices that drop early. They come from
    /// rules that deny by source prefix alone and that no overlapping permit rule precedes.
    pub fn denied_sources(&self) -> impl Iterator<Item = IpCidr> + '_ {
        let rules = || self.rules.iter().map(|(rule, _)| rule);
        rules().enumerate().flat_map(move |(at, rule)| {
            let denies = !rule.permits && rule.protocol.is_none() && rule.to.is_none();
            let all = || [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            let every = |addr| rule.from.is_none().then(|| IpCidr::new(addr, 0)).flatten();
            let from = rule.from.into_iter().chain(all().into_iter().filter_map(every));
            let lets_in = move |prefix: &IpCidr| {
                rules().take(at).any(|rule| rule.permits && may_come_from(rule, prefix))
            };
            from.filter(move |prefix| denies && !lets_in(prefix))
        })
    }

    /// The rules with what each has decided.
    pub fn rules(&self) -> impl Iterator<Item = (&AccessRule, RuleCount)> {
        self.rules.iter().map(|(rule, count)| (rule, *count))
    }

    /// Whether a packet may enter, after its header was checked; the matching rule counts it.
    pub fn permits<A: Address>(
        &mut self,
        packet: &PacketBuf,
        l3: usize,
        heading: &ArrivedHeading<A>,
        access: &mut AccessCounters,
    ) -> bool {
        let upper = match self.looks_further {
            true => upper_of(packet, l3, heading, access),
            false => FilteredUpper { protocol: None, ports: None, is_later_fragment: false },
        };
        let ends = (heading.src_addr.to_ip(), heading.dst_addr.to_ip());
        let decides = self.rules.iter_mut().find(|(rule, _)| rule.matches(ends, &upper));
        decides.is_none_or(|(rule, count)| {
            count.packets += 1;
            count.bytes += heading.total_len as u64;
            rule.permits
        })
    }
}

/// Whether a rule may match what comes from a prefix.
fn may_come_from(rule: &AccessRule, prefix: &IpCidr) -> bool {
    rule.from.is_none_or(|from| from.contains(prefix.addr()) || prefix.contains(from.addr()))
}

fn upper_of<A: Address>(
    packet: &PacketBuf,
    l3: usize,
    heading: &ArrivedHeading<A>,
    access: &mut AccessCounters,
) -> FilteredUpper {
    let (mut protocol, mut offset, mut later) = (heading.protocol, heading.header_len, false);
    if A::FAMILY == Family::V4 {
        let mut scratch = [0; 2];
        let place: Option<&[u8; 2]> = packet.header_array(l3 + 6, &mut scratch, access);
        later = place.is_some_and(|place| u16::from_be_bytes(*place) & 0x1fff != 0);
    }
    let mut steps = 0;
    while A::FAMILY == Family::V6 && protocol.is_extension() && !later {
        let mut scratch = [0; ipv6_ext::HEADER_LEN_MIN];
        let first: Option<&[u8; 8]> = packet.header_array(l3 + offset, &mut scratch, access);
        let next = first.and_then(|first| Some((first, ipv6_ext::header_len(protocol, first)?)));
        let Some((first, len)) = next.filter(|_| steps < 2 * EXTENSION_HEADERS_MAX) else {
            return FilteredUpper { protocol: None, ports: None, is_later_fragment: false };
        };
        let is_fragment = protocol == IpProtocol::FRAGMENT;
        later = is_fragment && u16::from_be_bytes([first[2], first[3]]) >> 3 != 0;
        (protocol, offset, steps) = (IpProtocol(first[0]), offset + len, steps + 1);
    }
    let has_ports = matches!(protocol, IpProtocol::UDP | IpProtocol::TCP) && !later;
    let mut scratch = [0; 4];
    let ports: Option<&[u8; 4]> =
        has_ports.then(|| packet.header_array(l3 + offset, &mut scratch, access)).flatten();
    let ports = ports.map(|p| (u16::from_be_bytes([p[0], p[1]]), u16::from_be_bytes([p[2], p[3]])));
    FilteredUpper { protocol: Some(protocol), ports, is_later_fragment: later }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use floodwall_packet::{Pool, PoolConfig};
    use floodwall_wire::{Ipv4Fields, Ipv6Fields, ipv4, ipv6};

    use super::*;
    use crate::input;

    fn list(rules: &[&str]) -> AccessList {
        let rules: Vec<AccessRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        AccessList::new(&rules)
    }

    fn v4(list: &mut AccessList, from: &str, protocol: IpProtocol, offset: u16, port: u16) -> bool {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let to = Ipv4Addr::new(10, 9, 0, 1);
        let mut fields = Ipv4Fields::new(from.parse().unwrap(), to, protocol, 64, 28);
        fields.fragment_offset = offset;
        let mut header = [0; ipv4::HEADER_LEN];
        fields.emit(&mut header);
        let port = port.to_be_bytes();
        let ports = [4, 0, port[0], port[1], 0, 8, 0, 0];
        let packet = pool.packet_from_chunks([&header[..], &ports[..]]).unwrap();
        let mut access = AccessCounters::default();
        let heading = input::ipv4(&packet, 0, &mut access).unwrap();
        list.permits(&packet, 0, &heading, &mut access)
    }

    fn v6(list: &mut AccessList, chain: &[u8], first: IpProtocol) -> bool {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (from, to): (Ipv6Addr, Ipv6Addr) =
            ("fd00::2".parse().unwrap(), "fd09::1".parse().unwrap());
        let mut header = [0; ipv6::HEADER_LEN];
        Ipv6Fields::new(from, to, first, 64, chain.len() as u16).emit(&mut header);
        let packet = pool.packet_from_chunks([&header[..], chain]).unwrap();
        let mut access = AccessCounters::default();
        let heading = input::ipv6(&packet, 0, &mut access).unwrap();
        list.permits(&packet, 0, &heading, &mut access)
    }

    #[test]
    fn sources_are_denied_where_nothing_of_them_can_come_in() {
        let denied = |rules: &[&str]| {
            let all: Vec<_> = list(rules).denied_sources().map(|p| p.to_string()).collect();
            all
        };
        let rules = ["deny from 10.1.0.0/16", "deny from fd01::/16", "deny udp from 10.2.0.0/16"];
        assert_eq!(denied(&rules), ["10.1.0.0/16", "fd01::/16"]);
        assert_eq!(denied(&["deny from 10.3.0.0/16 to 10.0.0.1", "deny tcp dport 1"]), [""; 0]);
        // Something before it lets some of it in; of the other family, or of another prefix, not.
        for permit in ["permit udp dport 53", "permit from 10.1.2.3", "permit from 10.0.0.0/8"] {
            assert_eq!(denied(&[permit, "deny from 10.1.0.0/16"]), [""; 0], "{permit}");
        }
        for permit in ["permit from fd01::/16", "permit from 10.2.0.0/16"] {
            assert_eq!(denied(&[permit, "deny from 10.1.0.0/16"]), ["10.1.0.0/16"], "{permit}");
        }
        assert_eq!(denied(&["deny from 10.1.0.0/16", "permit from 10.1.2.3"]), ["10.1.0.0/16"]);
        assert_eq!(denied(&["deny"]), ["0.0.0.0/0", "::/0"]);
        assert_eq!(denied(&["permit from 10.1.2.3", "deny"]), ["::/0"]);
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_counts() {
        let udp = IpProtocol::UDP;
        let mut list = list(&[
            "permit udp from 10.0.0.7 dport 53",
            "deny udp dport 50-60",
            "deny from 10.1.0.0/16",
        ]);
        assert!(v4(&mut list, "10.0.0.7", udp, 0, 53));
        assert!(!v4(&mut list, "10.0.0.8", udp, 0, 53));
        assert!(!v4(&mut list, "10.0.0.7", udp, 0, 60));
        assert!(v4(&mut list, "10.0.0.7", udp, 0, 61), "what none matches passes");
        assert!(v4(&mut list, "10.0.0.8", IpProtocol::TCP, 0, 53));
        assert!(!v4(&mut list, "10.1.2.3", IpProtocol(200), 0, 0));
        let counts: Vec<_> = list.rules().map(|(_, count)| (count.packets, count.bytes)).collect();
        assert_eq!(counts, [(1, 28), (2, 56), (1, 28)]);
    }

    #[test]
    fn later_fragments_pass_with_what_permits_and_match_no_denied_port() {
        let udp = IpProtocol::UDP;
        let mut closed = list(&["permit udp dport 53", "deny udp"]);
        assert!(v4(&mut closed, "10.0.0.7", udp, 1480, 9));
        assert!(!v4(&mut closed, "10.0.0.7", IpProtocol::UDP, 0, 9));
        let mut open = list(&["deny udp dport 53"]);
        assert!(v4(&mut open, "10.0.0.7", udp, 1480, 53));
        assert!(!v4(&mut open, "10.0.0.7", udp, 0, 53));
    }

    #[test]
    fn ipv6_is_looked_at_behind_its_extension_headers() {
        let udp = [4, 0, 0, 53, 0, 8, 0, 0];
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        let first = [17, 0, 0, 1, 0, 0, 0, 9];
        let later = [17, 0, 5, 0x88, 0, 0, 0, 9];
        let mut list = list(&["deny udp from fd00::/16 dport 53", "permit icmpv6", "deny 200"]);
        assert!(!v6(&mut list, &udp, IpProtocol::UDP));
        assert!(!v6(&mut list, &[options, udp].concat(), IpProtocol(60)));
        assert!(!v6(&mut list, &[first, udp].concat(), IpProtocol::FRAGMENT));
        assert!(v6(&mut list, &[later, udp].concat(), IpProtocol::FRAGMENT));
        assert!(!v6(&mut list, &udp, IpProtocol(200)));
        assert!(v6(&mut list, &options[..4], IpProtocol(60)), "cut short: nothing is known");
    }

    #[test]
    fn rules_are_read_as_they_are_shown_and_wrong_ones_name_the_word() {
        for text in [
            "deny",
            "permit udp from 10.0.0.0/8 to 10.1.2.3/32 sport 1-9 dport 53",
            "deny icmpv6 from fd00::/16",
            "deny 47 to 10.0.0.0/8",
        ] {
            assert_eq!(text.parse::<AccessRule>().unwrap().to_string(), text);
        }
        assert_eq!("deny from any".parse::<AccessRule>().unwrap().to_string(), "deny");
        for (text, word) in [
            ("", ""),
            ("drop udp", "drop"),
            ("deny sctpp", "sctpp"),
            ("deny from", "from"),
            ("deny from 10.0.0/8", "10.0.0/8"),
            ("deny udp dport", "dport"),
            ("deny udp dport 9-5", "dport"),
            ("deny dport 5", "deny dport 5"),
            ("deny from 10.0.0.0/8 to fd00::/8", "deny from 10.0.0.0/8 to fd00::/8"),
        ] {
            assert_eq!(text.parse::<AccessRule>().unwrap_err().word, word, "{text}");
        }
    }
}
