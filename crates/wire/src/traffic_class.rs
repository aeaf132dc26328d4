//! The traffic class byte that IPv4 (as Type of Service) and IPv6 share.
//!
//! Called by `ipv4.rs` and `ipv6.rs`. Invariant: the two parts together are the whole byte.
//! Read first: RFC 2474 section 3 (DSCP), RFC 3168 section 5 (ECN).

/// The explicit congestion notification field, two bits (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand ECN.
    #[default]
    NotCapable = 0b00,
    /// ECN-capable, ECT(1).
    Capable1 = 0b01,
    /// ECN-capable, ECT(0).
    Capable0 = 0b10,
    /// Congestion was experienced on the way.
    CongestionExperienced = 0b11,
}

impl Ecn {
    /// The field of a traffic class byte.
    #[inline]
    #[must_use]
    pub const fn of_traffic_class(byte: u8) -> Self {
        match byte & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::CongestionExperienced,
        }
    }
}

/// The differentiated services code point, six bits (RFC 2474 section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Dscp(u8);

impl Dscp {
    /// Best effort, what almost every packet has.
    pub const DEFAULT: Self = Self(0);

    /// A code point; only the low six bits count.
    #[inline]
    #[must_use]
    pub const fn new(code_point: u8) -> Self {
        Self(code_point & 0x3f)
    }

    /// The field of a traffic class byte.
    #[inline]
    #[must_use]
    pub const fn of_traffic_class(byte: u8) -> Self {
        Self(byte >> 2)
    }

    /// The code point, 0 to 63.
    #[inline]
    #[must_use]
    pub const fn code_point(self) -> u8 {
        self.0
    }

    /// The whole traffic class byte, together with `ecn`.
    #[inline]
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> u8 {
        self.0 << 2 | ecn as u8
    }
}
