//! The protocol number of IPv4's Protocol and IPv6's Next Header fields.
//!
//! Called wherever packets are dispatched on it. Invariant: any of the 256 values is a value; there
//! is no "invalid" one. Read first: RFC 8200 section 4 and IANA's "Protocol Numbers".

use core::fmt;

/// What follows an IP header: an upper-layer protocol or an IPv6 extension header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMPV4: Self = Self(1);
    /// Group management for IPv4 (RFC 9776).
    pub const IGMP: Self = Self(2);
    /// IPv4 in IP (RFC 2003): never unwrapped unasked.
    pub const IPV4: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (RFC 2473): never unwrapped unasked.
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200 section 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// Generic routing encapsulation (RFC 2784): never unwrapped unasked.
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload (RFC 4303): opaque to this stack.
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200 section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);

    /// Whether the walk over IPv6 extension headers goes on through this header.
    ///
    /// ESP is not counted: what follows it cannot be read. Mobility, HIP and Shim6 headers are
    /// unknown upper-layer protocols to this stack.
    #[inline]
    #[must_use]
    pub const fn is_extension(self) -> bool {
        matches!(
            self,
            Self::HOP_BY_HOP
                | Self::ROUTING
                | Self::FRAGMENT
                | Self::AUTHENTICATION
                | Self::DESTINATION_OPTIONS
        )
    }

    /// The usual name, for the numbers that have one here.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::HOP_BY_HOP => "HopByHop",
            Self::ICMPV4 => "ICMP",
            Self::IGMP => "IGMP",
            Self::IPV4 => "IPv4-in-IP",
            Self::TCP => "TCP",
            Self::UDP => "UDP",
            Self::IPV6 => "IPv6-in-IP",
            Self::ROUTING => "Routing",
            Self::FRAGMENT => "Fragment",
            Self::GRE => "GRE",
            Self::ESP => "ESP",
            Self::AUTHENTICATION => "AH",
            Self::ICMPV6 => "ICMPv6",
            Self::NO_NEXT_HEADER => "NoNextHeader",
            Self::DESTINATION_OPTIONS => "DestinationOptions",
            Self::SCTP => "SCTP",
            _ => return None,
        })
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "protocol {}", self.0),
        }
    }
}
