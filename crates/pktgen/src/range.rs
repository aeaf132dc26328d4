//! Ranges from which addresses, ports and sizes are drawn, evenly or in turn.
//!
//! Called by `blast.rs` for every flow. Invariant: what is drawn is within its range.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use floodwall_base::{Address, Family, IpCidr, ParsePrefixError, Prefix, PublicRandom};

use crate::error::PlanError;

/// How values are drawn from ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// Flow number n takes each range's value number n, and starts again behind the last.
    InTurn,
    /// Evenly at random.
    #[default]
    Random,
}

/// All addresses of a prefix, or from one to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddrRange {
    /// IPv4.
    V4(Prefix<Ipv4Addr>),
    /// IPv6.
    V6(Prefix<Ipv6Addr>),
    /// From the first to the last.
    Span(AddrSpan),
}

/// The addresses from one to another of the same family, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddrSpan {
    first: IpAddr,
    last: IpAddr,
}

impl AddrSpan {
    /// From `first` to `last`; `None` where they are of two families, or in the wrong order.
    #[must_use]
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// How many more than one: 2^128 is no number.
    fn width(self) -> u128 {
        bits(self.last) - bits(self.first)
    }

    /// One of them. What lies beyond is drawn again: a division by 128 bits costs more than all
    /// else of a packet.
    fn at_random(self, random: &mut PublicRandom) -> IpAddr {
        let width = self.width();
        let mask = u128::MAX.checked_shr(width.leading_zeros()).unwrap_or(0);
        let is_short = width <= u128::from(u64::MAX);
        let mut number = || if is_short { u128::from(random.next_u64()) } else { both(random) };
        let within = (0..TRIES).map(|_| number() & mask).find(|number| *number <= width);
        self.added(within.unwrap_or(0))
    }

    /// The first address and so many more.
    fn added(self, more: u128) -> IpAddr {
        let at = bits(self.first) + more;
        match self.first {
            IpAddr::V4(_) => Ipv4Addr::from(at as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from(at).into(),
        }
    }

    fn nth(self, n: u128) -> IpAddr {
        self.added(self.width().checked_add(1).map_or(n, |count| n % count))
    }
}

/// How often a number beyond a span is drawn again: each time for half of all spans at most.
const TRIES: u32 = 64;

fn both(random: &mut PublicRandom) -> u128 {
    let (high, low) = (random.next_u64(), random.next_u64());
    u128::from(high) << 64 | u128::from(low)
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(u32::from(addr)),
        IpAddr::V6(addr) => u128::from(addr),
    }
}

impl AddrRange {
    /// The addresses' family.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(_) => Family::V6,
            Self::Span(span) => match span.first {
                IpAddr::V4(_) => Family::V4,
                IpAddr::V6(_) => Family::V6,
            },
        }
    }

    /// The first address.
    #[must_use]
    pub fn first(self) -> IpAddr {
        self.nth(0)
    }

    /// The last address.
    #[must_use]
    pub fn last(self) -> IpAddr {
        match self {
            Self::V4(_) | Self::V6(_) => self.nth(u128::MAX),
            Self::Span(span) => span.last,
        }
    }

    /// Address number `n`, counted round.
    #[must_use]
    pub fn nth(self, n: u128) -> IpAddr {
        match self {
            Self::V4(prefix) => nth(prefix, n).to_ip(),
            Self::V6(prefix) => nth(prefix, n).to_ip(),
            Self::Span(span) => span.nth(n),
        }
    }

    pub(crate) fn draw(self, spread: Spread, n: u64, random: &mut PublicRandom) -> IpAddr {
        match spread {
            Spread::InTurn => self.nth(u128::from(n)),
            Spread::Random if self.is_single() => self.first(),
            Spread::Random => match self {
                Self::V4(prefix) => nth(prefix, u128::from(random.next_u64())).to_ip(),
                Self::V6(prefix) => nth(prefix, both(random)).to_ip(),
                Self::Span(span) => span.at_random(random),
            },
        }
    }

    fn is_single(self) -> bool {
        match self {
            Self::V4(prefix) => prefix.len() == Ipv4Addr::BITS as u8,
            Self::V6(prefix) => prefix.len() == Ipv6Addr::BITS as u8,
            Self::Span(span) => span.first == span.last,
        }
    }
}

fn nth<A: Address>(prefix: Prefix<A>, n: u128) -> A {
    let host_bits = u32::from(A::BITS - prefix.len());
    let host = if host_bits >= 128 { n } else { n & ((1 << host_bits) - 1) };
    let shift = 128 - u32::from(A::BITS);
    A::from_bits_aligned(prefix.addr().to_bits_aligned() | host << shift)
}

impl From<IpAddr> for AddrRange {
    /// The one address.
    fn from(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self::V4(Prefix::host(addr)),
            IpAddr::V6(addr) => Self::V6(Prefix::host(addr)),
        }
    }
}

impl From<IpCidr> for AddrRange {
    /// All addresses of the prefix that holds the address.
    fn from(cidr: IpCidr) -> Self {
        let len = cidr.prefix_len();
        match cidr.addr() {
            IpAddr::V4(addr) => {
                Self::V4(Prefix::new(addr, len).unwrap_or_else(|| Prefix::host(addr)))
            }
            IpAddr::V6(addr) => {
                Self::V6(Prefix::new(addr, len).unwrap_or_else(|| Prefix::host(addr)))
            }
        }
    }
}

impl FromStr for AddrRange {
    type Err = ParsePrefixError;

    /// An address, or an address and a prefix length.
    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        text.parse::<IpCidr>().map(Self::from)
    }
}

/// Ports from the first to the last, both included. In an echo request the source port stands for
/// the identifier and the destination port for the sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl PortRange {
    /// One port.
    #[must_use]
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    pub(crate) const fn check(self, name: &'static str) -> Result<(), PlanError> {
        if self.first > self.last { Err(PlanError::RangeReversed(name)) } else { Ok(()) }
    }

    pub(crate) fn draw(self, spread: Spread, n: u64, random: &mut PublicRandom) -> u16 {
        let count = u64::from(self.last.saturating_sub(self.first)) + 1;
        let at = match spread {
            Spread::InTurn => n % count,
            Spread::Random => random.below(count),
        };
        self.first.wrapping_add(at as u16)
    }
}

/// Sizes in bytes, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeRange {
    /// The smallest.
    pub min: usize,
    /// The largest.
    pub max: usize,
}

impl SizeRange {
    /// One size.
    #[must_use]
    pub const fn one(bytes: usize) -> Self {
        Self { min: bytes, max: bytes }
    }

    pub(crate) const fn check(self, name: &'static str) -> Result<(), PlanError> {
        if self.min > self.max { Err(PlanError::RangeReversed(name)) } else { Ok(()) }
    }

    pub(crate) fn draw(self, spread: Spread, n: u64, random: &mut PublicRandom) -> usize {
        let count = self.max.saturating_sub(self.min) as u64 + 1;
        match spread {
            _ if count == 1 => self.min,
            Spread::InTurn => self.min + (n % count) as usize,
            Spread::Random => self.min + random.below(count) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_lies_in_its_range_in_both_families() {
        let mut random = PublicRandom::new(1);
        for text in ["10.1.0.0/16", "fd00:1::/32", "0.0.0.0/0", "::/0", "192.0.2.7", "fd00::7"] {
            let range: AddrRange = text.parse().unwrap();
            let cidr: IpCidr = text.parse().unwrap();
            for n in 0..100 {
                for spread in [Spread::InTurn, Spread::Random] {
                    assert!(cidr.contains(range.draw(spread, n, &mut random)), "{text}");
                }
            }
        }
        let ports = PortRange { first: 65_530, last: 65_535 };
        assert!((0..100).all(|n| ports.draw(Spread::Random, n, &mut random) >= 65_530));
        let sizes = SizeRange { min: 3, max: 5 };
        assert!((0..100).all(|_| (3..=5).contains(&sizes.draw(Spread::Random, 0, &mut random))));
    }

    #[test]
    fn a_span_is_drawn_from_its_first_to_its_last_and_round() {
        let addr = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut random = PublicRandom::new(1);
        for (first, last) in [("10.0.0.250", "10.0.1.3"), ("fd00::fffe", "fd00::1:7")] {
            let (first, last) = (addr(first), addr(last));
            let range = AddrRange::Span(AddrSpan::new(first, last).unwrap());
            let turn: Vec<_> =
                (0..11).map(|n| range.draw(Spread::InTurn, n, &mut random)).collect();
            assert_eq!((turn[0], turn[9], turn[10]), (first, last, first));
            for n in 0..200 {
                let drawn = range.draw(Spread::Random, n, &mut random);
                assert!(first <= drawn && drawn <= last, "{drawn}");
            }
            assert_eq!(AddrSpan::new(last, first), None);
        }
        let all = AddrSpan::new(addr("::"), addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
        assert_eq!(
            AddrRange::Span(all.unwrap()).nth(u128::MAX).to_string(),
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        );
        assert_eq!(AddrSpan::new(addr("10.0.0.1"), addr("fd00::1")), None);
    }

    #[test]
    fn in_turn_goes_round() {
        let mut random = PublicRandom::new(1);
        let range: AddrRange = "10.0.0.4/30".parse().unwrap();
        let drawn: Vec<_> = (0..5).map(|n| range.draw(Spread::InTurn, n, &mut random)).collect();
        assert_eq!(drawn[0].to_string(), "10.0.0.4");
        assert_eq!(drawn[3].to_string(), "10.0.0.7");
        assert_eq!(drawn[0], drawn[4]);
    }

    #[test]
    fn every_address_of_a_span_is_drawn_and_none_beyond_it_in_both_families() {
        let spans = [("10.0.0.5", "10.0.0.9"), ("fd00::ffff:ffff:ffff:fffe", "fd00::1:0:0:0:2")];
        for (first, last) in spans {
            let (first, last): (IpAddr, IpAddr) = (first.parse().unwrap(), last.parse().unwrap());
            let range = AddrRange::Span(AddrSpan::new(first, last).unwrap());
            let mut random = PublicRandom::new(3);
            let mut seen = std::collections::BTreeMap::new();
            for n in 0..5_000 {
                *seen.entry(range.draw(Spread::Random, n, &mut random)).or_insert(0) += 1;
            }
            assert_eq!(seen.len(), 5, "{seen:?}");
            assert_eq!((seen.keys().next(), seen.keys().last()), (Some(&first), Some(&last)));
            assert!(seen.values().all(|count| *count > 800), "as often each: {seen:?}");
        }
        let all = AddrSpan::new("::".parse().unwrap(), IpAddr::from([0xff; 16])).unwrap();
        let wide = AddrRange::Span(all).draw(Spread::Random, 0, &mut PublicRandom::new(3));
        assert!(bits(wide) >> 64 != 0);
    }
}
