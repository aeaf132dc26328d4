//! Ethernet II headers with up to two VLAN tags.
//!
//! Called by `stack` on arrival and transmission, by `pktgen` and the tests. Invariant: an
//! [`EthernetHeader`] covers 14, 18 or 22 bytes and its type is what follows them. Read first:
//! RFC 894, RFC 2464 (IPv6), IEEE 802.1Q clause 9. Not here: the frame check sequence, which
//! devices strip, and IEEE 802.3 length framing, which shows as [`EtherType::is_length`].

use core::fmt;

use floodwall_base::MacAddr;
use thiserror::Error;

use crate::BufferTooShort;
use crate::field;

/// The bytes of a header without tags.
pub const HEADER_LEN: usize = 14;
/// The bytes of one VLAN tag.
pub const TAG_LEN: usize = 4;
/// The most VLAN tags that are read.
pub const TAGS_MAX: usize = 2;

/// What an Ethernet payload is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// A service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);

    /// Whether a VLAN tag follows rather than a payload.
    #[inline]
    #[must_use]
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }

    /// Whether this is an IEEE 802.3 length and not a type at all.
    #[inline]
    #[must_use]
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPv4"),
            Self::ARP => f.write_str("ARP"),
            Self::VLAN => f.write_str("VLAN"),
            Self::IPV6 => f.write_str("IPv6"),
            Self::SERVICE_VLAN => f.write_str("service VLAN"),
            Self(length) if self.is_length() => write!(f, "802.3 length {length}"),
            Self(number) => write!(f, "type {number:#06x}"),
        }
    }
}

/// One VLAN tag (IEEE 802.1Q clause 9.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VlanTag {
    /// Which kind of tag: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub kind: EtherType,
    /// The priority code point, 0 to 7.
    pub priority: u8,
    /// Whether the frame may be dropped first.
    pub drop_eligible: bool,
    /// The VLAN, 0 to 4095.
    pub id: u16,
}

impl VlanTag {
    #[inline]
    const fn of(kind: EtherType, control: u16) -> Self {
        Self {
            kind,
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
            id: control & 0x0fff,
        }
    }

    #[inline]
    const fn control(self) -> u16 {
        (self.priority as u16) << 13 | (self.drop_eligible as u16) << 12 | self.id & 0x0fff
    }
}

/// Why bytes are not an Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EthernetError {
    /// Fewer than 14 bytes.
    #[error("the Ethernet header is cut short")]
    Truncated,
    /// A VLAN tag is announced and not there.
    #[error("a VLAN tag is cut short")]
    TagTruncated,
    /// More than two VLAN tags.
    #[error("more than two VLAN tags")]
    TooManyTags,
}

/// A checked Ethernet II header.
#[derive(Clone, Copy, Debug)]
pub struct EthernetHeader<'a> {
    fixed: &'a [u8; HEADER_LEN],
    tags: &'a [[u8; TAG_LEN]],
    ether_type: EtherType,
}

impl<'a> EthernetHeader<'a> {
    /// Checks the header at the front of `bytes`, which must be contiguous for 14 bytes and
    /// four more for each tag (22 are always enough; fewer if the frame has no tags).
    ///
    /// # Errors
    /// See [`EthernetError`]. Cost: one comparison for an untagged frame.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, EthernetError> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(EthernetError::Truncated);
        };
        let ether_type = EtherType(field::word::<12, _>(fixed));
        if ether_type.is_tag() {
            return Self::parse_tags(fixed, rest);
        }
        Ok(Self { fixed, tags: &[], ether_type })
    }

    #[cold]
    #[inline(never)]
    fn parse_tags(fixed: &'a [u8; HEADER_LEN], rest: &'a [u8]) -> Result<Self, EthernetError> {
        let (all, _) = rest.as_chunks::<TAG_LEN>();
        let outer = all.first().ok_or(EthernetError::TagTruncated)?;
        let ether_type = EtherType(field::word::<2, _>(outer));
        if !ether_type.is_tag() {
            let tags = all.get(..1).unwrap_or_default();
            return Ok(Self { fixed, tags, ether_type });
        }
        let inner = all.get(1).ok_or(EthernetError::TagTruncated)?;
        let ether_type = EtherType(field::word::<2, _>(inner));
        if ether_type.is_tag() {
            return Err(EthernetError::TooManyTags);
        }
        Ok(Self { fixed, tags: all.get(..TAGS_MAX).unwrap_or_default(), ether_type })
    }

    /// The destination of the frame.
    #[inline]
    #[must_use]
    pub fn dst_addr(&self) -> MacAddr {
        MacAddr(field::bytes::<0, 6, _>(self.fixed))
    }

    /// The source of the frame, unverified.
    #[inline]
    #[must_use]
    pub fn src_addr(&self) -> MacAddr {
        MacAddr(field::bytes::<6, 6, _>(self.fixed))
    }

    /// What the payload is: the type after the last tag.
    #[inline]
    #[must_use]
    pub const fn ether_type(&self) -> EtherType {
        self.ether_type
    }

    /// The bytes of the header with its tags: where the payload begins.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.tags.len() * TAG_LEN
    }

    /// The VLAN tags, outermost first; none to two.
    pub fn tags(&self) -> impl Iterator<Item = VlanTag> + use<'a> {
        let mut kind = EtherType(field::word::<12, _>(self.fixed));
        self.tags.iter().map(move |tag| {
            let this = VlanTag::of(kind, field::word::<0, _>(tag));
            kind = EtherType(field::word::<2, _>(tag));
            this
        })
    }

    /// The values, for building an equal header (without its tags).
    #[must_use]
    pub fn fields(&self) -> EthernetFields {
        EthernetFields {
            dst_addr: self.dst_addr(),
            src_addr: self.src_addr(),
            ether_type: self.ether_type,
        }
    }
}

/// The values of an Ethernet header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EthernetFields {
    /// The destination of the frame.
    pub dst_addr: MacAddr,
    /// The source of the frame.
    pub src_addr: MacAddr,
    /// What the payload is.
    pub ether_type: EtherType,
}

impl EthernetFields {
    /// Writes a header without tags.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        field::put::<0, 6, _>(out, self.dst_addr.0);
        field::put::<6, 6, _>(out, self.src_addr.0);
        field::put_word::<12, _>(out, self.ether_type.0);
    }

    /// Writes a header with `tags`, outermost first, at the front of `out`; returns its length.
    ///
    /// # Errors
    /// If `out` cannot hold 14 bytes and four for each tag.
    pub fn emit_tagged(&self, tags: &[VlanTag], out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut writer = field::FieldWriter::new(out);
        writer.put(&self.dst_addr.0);
        writer.put(&self.src_addr.0);
        for tag in tags {
            writer.put(&tag.kind.0.to_be_bytes());
            writer.put(&tag.control().to_be_bytes());
        }
        writer.put(&self.ether_type.0.to_be_bytes());
        writer.finish()
    }
}
