//! The 48-bit link address of Ethernet and its relatives.

use core::fmt;
use core::str::FromStr;

/// A 48-bit IEEE 802 link address, in transmission order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones: every station on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeros: what ARP requests carry where the answer is wanted.
    pub const ZERO: Self = Self([0; 6]);

    /// Whether this address names a group (multicast or broadcast).
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether this is the broadcast address.
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether one station can own this address: neither a group nor all zeros.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_group() && self != Self::ZERO
    }

    /// The group address of an IPv4 multicast address (RFC 1112 section 6.4).
    #[must_use]
    pub const fn of_ipv4_multicast(addr: core::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = addr.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address of an IPv6 multicast address (RFC 2464 section 7).
    #[must_use]
    pub const fn of_ipv6_multicast(addr: core::net::Ipv6Addr) -> Self {
        let o = addr.octets();
        Self([0x33, 0x33, o[12], o[13], o[14], o[15]])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text was not six pairs of hexadecimal digits joined by colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six pairs of hexadecimal digits, as in 02:00:00:00:00:02")
    }
}

impl core::error::Error for ParseMacError {}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(ParseMacError)?;
            let hex = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte = if hex {
                u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?
            } else {
                return Err(ParseMacError);
            };
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_bad_text_is_refused() {
        let mac: MacAddr = "02:00:0a:ff:00:02".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:0a:ff:00:02");
        for bad in
            ["", "02", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:2", "02:00:00:00:00:+2"]
        {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn groups_are_told_from_stations() {
        assert!(MacAddr::BROADCAST.is_group() && !MacAddr::BROADCAST.is_unicast());
        assert!(!MacAddr::ZERO.is_unicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 2]).is_unicast());
        let group = MacAddr::of_ipv4_multicast(core::net::Ipv4Addr::new(239, 255, 1, 2));
        assert_eq!(group.to_string(), "01:00:5e:7f:01:02");
    }
}
