//! The options inside hop-by-hop and destination options headers.
//!
//! Called by `ipv6_walk.rs`, which enforces limits and the actions of unknown options, and by
//! `show`. Invariant: the iterator moves at least one byte per item and ends at the first
//! error. Read first: RFC 8200 section 4.2, RFC 2711 (router alert), RFC 2675 (jumbo payload).

use thiserror::Error;

/// Pad1: one byte of padding, without length.
pub const PAD1: u8 = 0x00;
/// PadN: two bytes and more of padding.
pub const PADN: u8 = 0x01;
/// Router alert (RFC 2711).
pub const ROUTER_ALERT: u8 = 0x05;
/// Jumbo payload (RFC 2675).
pub const JUMBO_PAYLOAD: u8 = 0xc2;

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ipv6Option<'a> {
    /// One byte of padding.
    Pad1,
    /// Padding with this many bytes after type and length.
    PadN(u8),
    /// Routers, look closer; with its value.
    RouterAlert(u16),
    /// The payload has this many bytes.
    JumboPayload(u32),
    /// Anything else.
    Unknown {
        /// The whole type byte, action bits included.
        kind: u8,
        /// What follows type and length.
        data: &'a [u8],
    },
}

/// The required action of a node that does not know the type, in its two highest bits (RFC 8200
/// section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OptionAction {
    /// 00: skip the option.
    Skip,
    /// 01: discard the packet silently.
    Discard,
    /// 10: discard and report, even to the sender of a multicast.
    Report,
    /// 11: discard and report, unless the destination was a multicast address.
    ReportUnlessMulticast,
}

impl OptionAction {
    /// The required action for an unknown type byte `kind`.
    #[inline]
    #[must_use]
    pub const fn of_kind(kind: u8) -> Self {
        match kind >> 6 {
            0 => Self::Skip,
            1 => Self::Discard,
            2 => Self::Report,
            _ => Self::ReportUnlessMulticast,
        }
    }
}

/// An option's length is missing, reaches past the header, or does not suit its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("bad IPv6 option at byte {offset} of its header")]
pub struct Ipv6OptionError {
    /// The offset of the option from the first byte of its extension header.
    pub offset: usize,
}

/// The options of an extension header, each with its offset from that header's first byte.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Options<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Ipv6Options<'a> {
    /// The options in `bytes`, which follow the two fixed bytes of the extension header.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 2 }
    }

    fn read(&mut self) -> Result<Option<Ipv6Option<'a>>, Ipv6OptionError> {
        let error = Ipv6OptionError { offset: self.offset };
        let (kind, end) = match *self.rest {
            [] => return Ok(None),
            [PAD1, ref rest @ ..] => {
                self.rest = rest;
                self.offset += 1;
                return Ok(Some(Ipv6Option::Pad1));
            }
            [kind, len, ..] => (kind, 2 + usize::from(len)),
            [_] => return Err(error),
        };
        let data = self.rest.get(2..end).ok_or(error)?;
        let option = match (kind, data) {
            (PADN, _) => Ipv6Option::PadN(data.len() as u8),
            (ROUTER_ALERT, &[a, b]) => Ipv6Option::RouterAlert(u16::from_be_bytes([a, b])),
            (JUMBO_PAYLOAD, &[a, b, c, d]) => {
                Ipv6Option::JumboPayload(u32::from_be_bytes([a, b, c, d]))
            }
            (ROUTER_ALERT | JUMBO_PAYLOAD, _) => return Err(error),
            _ => Ipv6Option::Unknown { kind, data },
        };
        self.rest = self.rest.get(end..).unwrap_or_default();
        self.offset += end;
        Ok(Some(option))
    }
}

impl<'a> Iterator for Ipv6Options<'a> {
    type Item = Result<(usize, Ipv6Option<'a>), Ipv6OptionError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let item = self.read().transpose()?;
        if item.is_err() {
            self.rest = &[];
        }
        Some(item.map(|option| (offset, option)))
    }
}
