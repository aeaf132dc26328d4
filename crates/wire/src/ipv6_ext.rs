//! The IPv6 extension headers, one view each, and how to write them.
//!
//! Called by `ipv6_walk.rs`, which finds and checks them, and by generators and tests. Invariant:
//! a view covers exactly the bytes of its own length field. Read first: RFC 8200 section 4, RFC
//! 4302 section 2 (AH), RFC 5095 (routing type 0). Not here: ESP, which is opaque; mobility, HIP
//! and Shim6, which are unknown upper layers to this stack.

use crate::field::{self, FieldWriter};
use crate::ipv6_options::{Ipv6Options, PAD1, PADN};
use crate::{BufferTooShort, IpProtocol};

/// The least bytes of any extension header, and the fragment header's only size.
pub const HEADER_LEN_MIN: usize = 8;

/// The length in bytes of the extension header `kind` that begins with `first`: 8 to 2,048, or
/// `None` if `kind` is no extension header.
#[inline]
#[must_use]
pub const fn header_len(kind: IpProtocol, first: &[u8; HEADER_LEN_MIN]) -> Option<usize> {
    let units = first[1] as usize;
    match kind {
        IpProtocol::FRAGMENT => Some(HEADER_LEN_MIN),
        IpProtocol::AUTHENTICATION => Some((units + 2) * 4),
        _ if kind.is_extension() => Some((units + 1) * 8),
        _ => None,
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug)]
pub enum ExtensionHeader<'a> {
    /// For every node on the way (RFC 8200 section 4.3).
    HopByHop(OptionsHeader<'a>),
    /// Nodes to visit (RFC 8200 section 4.4).
    Routing(RoutingHeader<'a>),
    /// A piece of a packet (RFC 8200 section 4.5).
    Fragment(FragmentFields),
    /// For the destination (RFC 8200 section 4.6).
    DestinationOptions(OptionsHeader<'a>),
    /// Integrity (RFC 4302); skipped unverified without a key.
    Authentication(AuthenticationHeader<'a>),
}

impl<'a> ExtensionHeader<'a> {
    /// Takes the header `kind` at the front of `bytes`, if all of it is there.
    #[inline]
    #[must_use]
    pub fn take(kind: IpProtocol, bytes: &'a [u8]) -> Option<Self> {
        let first = bytes.first_chunk::<HEADER_LEN_MIN>()?;
        let rest = bytes.get(HEADER_LEN_MIN..header_len(kind, first)?)?;
        let all = bytes.get(..HEADER_LEN_MIN + rest.len())?;
        Some(match kind {
            IpProtocol::HOP_BY_HOP => Self::HopByHop(OptionsHeader { all }),
            IpProtocol::ROUTING => Self::Routing(RoutingHeader { first, all }),
            IpProtocol::FRAGMENT => Self::Fragment(FragmentFields::of(first)),
            IpProtocol::DESTINATION_OPTIONS => Self::DestinationOptions(OptionsHeader { all }),
            _ => Self::Authentication(AuthenticationHeader { first, all }),
        })
    }

    /// Which header this is.
    #[must_use]
    pub const fn kind(&self) -> IpProtocol {
        match self {
            Self::HopByHop(_) => IpProtocol::HOP_BY_HOP,
            Self::Routing(_) => IpProtocol::ROUTING,
            Self::Fragment(_) => IpProtocol::FRAGMENT,
            Self::DestinationOptions(_) => IpProtocol::DESTINATION_OPTIONS,
            Self::Authentication(_) => IpProtocol::AUTHENTICATION,
        }
    }

    /// What follows.
    #[inline]
    #[must_use]
    pub fn next_header(&self) -> IpProtocol {
        match self {
            Self::HopByHop(header) | Self::DestinationOptions(header) => header.next_header(),
            Self::Routing(header) => header.next_header(),
            Self::Fragment(fields) => fields.next_header,
            Self::Authentication(header) => IpProtocol(header.first[0]),
        }
    }

    /// The bytes of the header.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::HopByHop(header) | Self::DestinationOptions(header) => header.all.len(),
            Self::Routing(header) => header.all.len(),
            Self::Fragment(_) => HEADER_LEN_MIN,
            Self::Authentication(header) => header.all.len(),
        }
    }
}

/// A hop-by-hop or destination options header.
#[derive(Clone, Copy, Debug)]
pub struct OptionsHeader<'a> {
    all: &'a [u8],
}

impl<'a> OptionsHeader<'a> {
    /// What follows.
    #[inline]
    #[must_use]
    pub fn next_header(&self) -> IpProtocol {
        // A header has at least eight bytes; "none" would end the walk as well.
        self.all.first().map_or(IpProtocol::NO_NEXT_HEADER, |&next| IpProtocol(next))
    }

    /// The options.
    #[inline]
    #[must_use]
    pub fn options(&self) -> Ipv6Options<'a> {
        Ipv6Options::new(self.all.get(2..).unwrap_or_default())
    }
}

/// A routing header.
#[derive(Clone, Copy, Debug)]
pub struct RoutingHeader<'a> {
    first: &'a [u8; HEADER_LEN_MIN],
    all: &'a [u8],
}

impl<'a> RoutingHeader<'a> {
    /// What follows.
    #[inline]
    #[must_use]
    pub const fn next_header(&self) -> IpProtocol {
        IpProtocol(self.first[0])
    }

    /// The routing type; 0 is deprecated (RFC 5095), 4 is segment routing (RFC 8754).
    #[inline]
    #[must_use]
    pub const fn routing_type(&self) -> u8 {
        self.first[2]
    }

    /// How many nodes are still to be visited.
    #[inline]
    #[must_use]
    pub const fn segments_left(&self) -> u8 {
        self.first[3]
    }

    /// What follows the four fixed bytes.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.all.get(4..).unwrap_or_default()
    }
}

/// An authentication header.
#[derive(Clone, Copy, Debug)]
pub struct AuthenticationHeader<'a> {
    first: &'a [u8; HEADER_LEN_MIN],
    all: &'a [u8],
}

impl<'a> AuthenticationHeader<'a> {
    /// Which security association.
    #[inline]
    #[must_use]
    pub fn security_parameters_index(&self) -> u32 {
        field::long::<4, _>(self.first)
    }

    /// The sequence number and the integrity check value, as they are.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.all.get(HEADER_LEN_MIN..).unwrap_or_default()
    }
}

/// The fields of a fragment header; reserved bits are ignored and sent as zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FragmentFields {
    /// What the original packet's fragmentable part begins with.
    pub next_header: IpProtocol,
    /// Where this piece belongs in the fragmentable part, in bytes: a multiple of eight; low
    /// bits are not sent.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Which packet the pieces belong to.
    pub id: u32,
}

impl FragmentFields {
    #[inline]
    pub(crate) fn of(header: &[u8; HEADER_LEN_MIN]) -> Self {
        let place = field::word::<2, _>(header);
        Self {
            next_header: IpProtocol(header[0]),
            offset: place & 0xfff8,
            more: place & 1 != 0,
            id: field::long::<4, _>(header),
        }
    }

    /// Whether this is all of the packet, to be handled on its own (RFC 6946).
    #[inline]
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Whether the rest of the header chain is in this piece.
    #[inline]
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN_MIN]) {
        out[0] = self.next_header.0;
        out[1] = 0;
        field::put_word::<2, _>(out, self.offset & 0xfff8 | u16::from(self.more));
        field::put_long::<4, _>(out, self.id);
    }
}

/// Writes a hop-by-hop or destination options header around `options` (as they are on the wire,
/// up to 2,046 bytes), padded to a multiple of eight bytes; returns its length.
///
/// # Errors
/// If `out` cannot hold the header, or no header can hold the options.
pub fn emit_options(
    next_header: IpProtocol,
    options: &[u8],
    out: &mut [u8],
) -> Result<usize, BufferTooShort> {
    let len = (2 + options.len()).next_multiple_of(8);
    let units = u8::try_from(len / 8 - 1).map_err(|_| BufferTooShort { needed: len })?;
    let mut writer = FieldWriter::new(out);
    writer.put(&[next_header.0, units]);
    writer.put(options);
    match len - writer.len() {
        0 => {}
        1 => writer.put(&[PAD1]),
        padding => {
            writer.put(&[PADN, padding as u8 - 2]);
            writer.pad(8, 0);
        }
    }
    writer.finish()
}

/// Writes a routing header of any type; `data` follows the four fixed bytes and is padded with
/// zeros to a whole header (type 0: four reserved bytes, then addresses); returns its length.
///
/// # Errors
/// If `out` cannot hold the header, or no header can hold the data.
pub fn emit_routing(
    next_header: IpProtocol,
    routing_type: u8,
    segments_left: u8,
    data: &[u8],
    out: &mut [u8],
) -> Result<usize, BufferTooShort> {
    let len = (4 + data.len()).next_multiple_of(8);
    let units = u8::try_from(len / 8 - 1).map_err(|_| BufferTooShort { needed: len })?;
    let mut writer = FieldWriter::new(out);
    writer.put(&[next_header.0, units, routing_type, segments_left]);
    writer.put(data);
    writer.pad(8, 0);
    writer.finish()
}

/// Writes an authentication header; `check_value` is padded with zeros to a multiple of eight
/// bytes total; returns the length.
///
/// # Errors
/// If `out` cannot hold the header, or no header can hold the value.
pub fn emit_authentication(
    next_header: IpProtocol,
    security_parameters_index: u32,
    sequence: u32,
    check_value: &[u8],
    out: &mut [u8],
) -> Result<usize, BufferTooShort> {
    let len = (12 + check_value.len()).next_multiple_of(8);
    let units = u8::try_from(len / 4 - 2).map_err(|_| BufferTooShort { needed: len })?;
    let mut writer = FieldWriter::new(out);
    writer.put(&[next_header.0, units, 0, 0]);
    writer.put(&security_parameters_index.to_be_bytes());
    writer.put(&sequence.to_be_bytes());
    writer.put(check_value);
    writer.pad(8, 0);
    writer.finish()
}
