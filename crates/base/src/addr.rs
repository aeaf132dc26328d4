//! Addresses of both families as one trait, prefixes, and the classes that decide how a packet is
//! handled.
//!
//! Tables are generic over [`Address`] and instantiated for both families (decision E20). Reading:
//! RFC 4291 (IPv6 addressing), RFC 6890 (special-purpose registries), RFC 1122 section 3.2.1.3.

use core::fmt;
use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// The two families.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4, RFC 791.
    V4,
    /// IPv6, RFC 8200.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub const fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// What the tables require of an address of either family.
pub trait Address:
    Copy + Eq + Ord + Hash + fmt::Debug + fmt::Display + FromStr + Send + Sync + Unpin + 'static
{
    /// Width in bits: 32 or 128.
    const BITS: u8;
    /// Which family this is.
    const FAMILY: Family;
    /// All zeros.
    const UNSPECIFIED: Self;

    /// The address as the upper bits of a 128-bit number, so that prefixes compare alike.
    fn to_bits_aligned(self) -> u128;
    /// The inverse of [`Address::to_bits_aligned`]; lower bits beyond the width are ignored.
    fn from_bits_aligned(bits: u128) -> Self;
    /// The address as either family's.
    fn to_ip(self) -> IpAddr;
    /// This family's address out of `addr`, if it is of this family.
    fn from_ip(addr: IpAddr) -> Option<Self>;
    /// Whether it names a group (RFC 1112, RFC 4291 section 2.7).
    fn is_group(self) -> bool;
    /// Whether it is valid on one link only (169.254/16, fe80::/10).
    fn is_link_scope(self) -> bool;
    /// Whether it is a loopback address (127/8, ::1).
    fn is_loopback_addr(self) -> bool;
}

impl Address for Ipv4Addr {
    const BITS: u8 = 32;
    const FAMILY: Family = Family::V4;
    const UNSPECIFIED: Self = Self::UNSPECIFIED;

    #[inline]
    fn to_bits_aligned(self) -> u128 {
        (self.to_bits() as u128) << 96
    }
    #[inline]
    fn from_bits_aligned(bits: u128) -> Self {
        Self::from_bits((bits >> 96) as u32)
    }
    fn to_ip(self) -> IpAddr {
        IpAddr::V4(self)
    }
    fn from_ip(addr: IpAddr) -> Option<Self> {
        match addr {
            IpAddr::V4(a) => Some(a),
            IpAddr::V6(_) => None,
        }
    }
    fn is_group(self) -> bool {
        self.is_multicast()
    }
    fn is_link_scope(self) -> bool {
        self.is_link_local()
    }
    fn is_loopback_addr(self) -> bool {
        self.is_loopback()
    }
}

impl Address for Ipv6Addr {
    const BITS: u8 = 128;
    const FAMILY: Family = Family::V6;
    const UNSPECIFIED: Self = Self::UNSPECIFIED;

    #[inline]
    fn to_bits_aligned(self) -> u128 {
        self.to_bits()
    }
    #[inline]
    fn from_bits_aligned(bits: u128) -> Self {
        Self::from_bits(bits)
    }
    fn to_ip(self) -> IpAddr {
        IpAddr::V6(self)
    }
    fn from_ip(addr: IpAddr) -> Option<Self> {
        match addr {
            IpAddr::V6(a) => Some(a),
            IpAddr::V4(_) => None,
        }
    }
    fn is_group(self) -> bool {
        self.is_multicast()
    }
    fn is_link_scope(self) -> bool {
        self.is_unicast_link_local()
    }
    fn is_loopback_addr(self) -> bool {
        self.is_loopback()
    }
}

/// An address and how many of its leading bits count. The bits beyond are always zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    addr: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of `len` bits that holds `addr`; bits beyond are cleared. `None` where `len`
    /// exceeds the family's width.
    #[must_use]
    pub fn new(addr: A, len: u8) -> Option<Self> {
        if len > A::BITS {
            return None;
        }
        Some(Self { addr: A::from_bits_aligned(addr.to_bits_aligned() & mask(len)), len })
    }

    /// The prefix that holds `addr` alone.
    #[must_use]
    pub fn host(addr: A) -> Self {
        Self { addr, len: A::BITS }
    }

    /// The prefix that holds everything.
    #[must_use]
    pub fn all() -> Self {
        Self { addr: A::UNSPECIFIED, len: 0 }
    }

    /// The first address.
    #[must_use]
    pub fn addr(self) -> A {
        self.addr
    }

    /// How many leading bits count.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a prefix length, not a number of items")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether `addr` is inside the prefix.
    #[must_use]
    #[inline]
    pub fn contains(self, addr: A) -> bool {
        (addr.to_bits_aligned() ^ self.addr.to_bits_aligned()) & mask(self.len) == 0
    }
}

/// A number with the `len` leading bits set.
#[inline]
const fn mask(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - len as u32) }
}

impl<A: fmt::Display> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl<A: fmt::Display> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParsePrefixError {
    /// The part before the slash is no address.
    Address,
    /// The part behind the slash is no number, or exceeds the family's width.
    Length,
}

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "not an address: write 192.0.2.1/24 or 2001:db8::1/64",
            Self::Length => "the prefix length must be 0 to 32 (IPv4) or 0 to 128 (IPv6)",
        })
    }
}

impl core::error::Error for ParsePrefixError {}

/// An interface's address with its prefix length, either family: `192.0.2.7/24`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpCidr {
    addr: IpAddr,
    len: u8,
}

impl IpCidr {
    /// An address and a prefix length; `None` where the length exceeds the family's width.
    #[must_use]
    pub const fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let width = match addr {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        if len > width { None } else { Some(Self { addr, len }) }
    }

    /// The address, host bits included.
    #[must_use]
    pub const fn addr(self) -> IpAddr {
        self.addr
    }

    /// The prefix length in bits.
    #[must_use]
    pub const fn prefix_len(self) -> u8 {
        self.len
    }

    /// Whether `addr` is of this family and in this prefix.
    #[must_use]
    pub fn contains(self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                Prefix::new(a, self.len).is_some_and(|p| p.contains(b))
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                Prefix::new(a, self.len).is_some_and(|p| p.contains(b))
            }
            _ => false,
        }
    }
}

impl fmt::Display for IpCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl fmt::Debug for IpCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for IpCidr {
    type Err = ParsePrefixError;

    /// Without a slash the whole width is meant, as iproute2 does.
    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| ParsePrefixError::Address)?;
        let len = match len {
            Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => {
                len.parse().map_err(|_| ParsePrefixError::Length)?
            }
            Some(_) => return Err(ParsePrefixError::Length),
            None if addr.is_ipv4() => 32,
            None => 128,
        };
        Self::new(addr, len).ok_or(ParsePrefixError::Length)
    }
}

/// Whether `addr` may stand as the source of a packet that arrived on a link: not a group, not the
/// broadcast address, not loopback, not in 0/8 or 240/4 (RFC 1122 section 3.2.1.3, RFC 6890). The
/// caller checks the unspecified address: DHCP uses it.
#[must_use]
#[inline]
pub const fn ipv4_source_is_plausible(addr: Ipv4Addr) -> bool {
    let first = addr.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// Whether `addr` is reserved for future use (240/4 without the broadcast address, RFC 1112 section
/// 4): a host's only where an operator or a server configures it, as some clouds do.
#[must_use]
#[inline]
pub const fn ipv4_is_reserved(addr: Ipv4Addr) -> bool {
    addr.octets()[0] >= 240 && addr.to_bits() != u32::MAX
}

/// Whether `addr` may be configured for a host: one that may stand as a source, or is reserved.
#[must_use]
pub const fn ipv4_is_configurable(addr: Ipv4Addr) -> bool {
    ipv4_source_is_plausible(addr) || ipv4_is_reserved(addr)
}

/// Whether `addr` may stand as the source of a packet that arrived on a link: not a group, not ::1,
/// not an IPv4-mapped or IPv4-compatible address (RFC 4291 section 2, RFC 6890). The caller checks
/// the unspecified address: duplicate address detection uses it.
#[must_use]
#[inline]
pub const fn ipv6_source_is_plausible(addr: Ipv6Addr) -> bool {
    let bits = addr.to_bits();
    // A group starts with ff; ::1, ::a.b.c.d and ::ffff:a.b.c.d have 80 leading zero bits.
    (bits >> 120) != 0xff && (bits >> 48) != 0
}

/// The solicited-node group of an address (RFC 4291 section 2.7.1).
#[must_use]
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    const BASE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(BASE | (addr.to_bits() & 0xff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_what_they_cover_in_both_families() {
        let p = Prefix::new(Ipv4Addr::new(10, 1, 2, 3), 8).unwrap();
        assert_eq!(p.to_string(), "10.0.0.0/8");
        assert!(
            p.contains(Ipv4Addr::new(10, 255, 0, 1)) && !p.contains(Ipv4Addr::new(11, 0, 0, 0))
        );
        let p: Prefix<Ipv6Addr> = Prefix::new("fd00::7".parse().unwrap(), 64).unwrap();
        assert!(
            p.contains("fd00::1".parse().unwrap()) && !p.contains("fd00:0:0:1::".parse().unwrap())
        );
        assert!(Prefix::<Ipv4Addr>::all().contains(Ipv4Addr::BROADCAST));
        assert!(Prefix::new(Ipv4Addr::LOCALHOST, 33).is_none());
        assert!(Prefix::host(Ipv6Addr::LOCALHOST).contains(Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn interface_addresses_parse_with_and_without_length() {
        assert_eq!("10.0.0.2/24".parse::<IpCidr>().unwrap().to_string(), "10.0.0.2/24");
        assert_eq!("fd00::2".parse::<IpCidr>().unwrap().prefix_len(), 128);
        for bad in ["", "10.0.0.2/", "10.0.0.2/33", "10.0.0/8", "fd00::/129", "fd00::/+1", "x/8"] {
            assert!(bad.parse::<IpCidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn implausible_sources_are_named() {
        for bad in ["0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"] {
            assert!(!ipv4_source_is_plausible(bad.parse().unwrap()), "{bad}");
        }
        for bad in ["::1", "ff02::1", "::ffff:10.0.0.1", "::10.0.0.1", "::"] {
            assert!(!ipv6_source_is_plausible(bad.parse().unwrap()), "{bad}");
        }
        assert!(ipv4_source_is_plausible(Ipv4Addr::new(10, 0, 0, 1)));
        for (addr, reserved) in [
            ("240.0.0.1", true),
            ("255.255.255.254", true),
            ("255.255.255.255", false),
            ("239.1.1.1", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(ipv4_is_reserved(addr.parse().unwrap()), reserved, "{addr}");
            assert_eq!(ipv4_is_configurable(addr.parse().unwrap()), reserved || addr == "10.0.0.1");
        }
        assert!(ipv6_source_is_plausible("fe80::1".parse().unwrap()));
        assert_eq!(
            solicited_node("fd00::12:3456".parse().unwrap()).to_string(),
            "ff02::1:ff12:3456"
        );
    }
}
