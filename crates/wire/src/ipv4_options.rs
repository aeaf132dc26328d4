//! IPv4 options, one after another.
//!
//! Called by `ip` where policy looks at options at all, and by `show`. Invariant: the iterator
//! moves at least one byte per item and ends at the first error, so a header of at most 40
//! bytes of options gives at most 40 items. Read first: RFC 791 section 3.1 ("Options"), RFC
//! 2113 (router alert), RFC 7126 (which to drop). Not here: following or filling in routes.

use core::net::Ipv4Addr;

use thiserror::Error;

/// One option of an IPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ipv4Option<'a> {
    /// One byte of padding.
    Nop,
    /// Record route: addresses filled in along the way.
    RecordRoute(RouteData<'a>),
    /// Loose source and record route.
    LooseSourceRoute(RouteData<'a>),
    /// Strict source and record route.
    StrictSourceRoute(RouteData<'a>),
    /// Internet timestamp.
    Timestamp(TimestampData<'a>),
    /// Router alert with its value (RFC 2113).
    RouterAlert(u16),
    /// Anything else.
    Unknown {
        /// The whole type byte: copied flag, class, number.
        kind: u8,
        /// What follows type and length.
        data: &'a [u8],
    },
}

/// The body of a route option (RFC 791 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteData<'a> {
    /// Where the next address is, counted from the option's first byte beginning at 1; at least
    /// 4.
    pub pointer: u8,
    addrs: &'a [[u8; 4]],
}

impl<'a> RouteData<'a> {
    /// The addresses, in the order of the bytes.
    pub fn addrs(&self) -> impl ExactSizeIterator<Item = Ipv4Addr> + use<'a> {
        self.addrs.iter().map(|octets| Ipv4Addr::from_octets(*octets))
    }

    /// Whether every address has been used: the option needs no further processing.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.pointer as usize > 3 + self.addrs.len() * 4
    }
}

/// The body of a timestamp option (RFC 791 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampData<'a> {
    /// Where the next entry is, counted from the option's first byte beginning at 1; at least 5.
    pub pointer: u8,
    /// How many hosts found no room, 0 to 15.
    pub overflow: u8,
    /// What an entry is, 0 to 15: 0 times, 1 and 3 addresses with times.
    pub flag: u8,
    /// The entries as they are.
    pub entries: &'a [u8],
}

impl TimestampData<'_> {
    /// The flag of entries that are times alone.
    pub const TIMES: u8 = 0;
    /// The flag of entries that are addresses with times.
    pub const ADDRESSES: u8 = 1;
    /// The flag of entries with addresses given by the sender: only these hosts add their times.
    pub const ADDRESSES_GIVEN: u8 = 3;
}

/// An option that cannot be read, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("bad IPv4 option at byte {offset} of the header: {reason}")]
pub struct Ipv4OptionError {
    /// The offset of the option from the header's first byte.
    pub offset: usize,
    /// What is wrong with it.
    pub reason: Ipv4OptionReason,
}

impl Ipv4OptionError {
    /// The offset of the byte at fault from the header's first byte: the pointer of a parameter
    /// problem message (RFC 792).
    #[must_use]
    pub const fn pointer(&self) -> usize {
        self.offset
            + match self.reason {
                Ipv4OptionReason::Length => 0,
                Ipv4OptionReason::LengthForKind => 1,
                Ipv4OptionReason::Pointer => 2,
                Ipv4OptionReason::Overflow => 3,
            }
    }
}

/// What is wrong with an IPv4 option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Ipv4OptionReason {
    /// The length byte is missing, under 2, or reaches past the header.
    #[error("its length is malformed")]
    Length,
    /// The length is possible, but not for this kind.
    #[error("its length does not suit its kind")]
    LengthForKind,
    /// The pointer is smaller than the kind allows, or leaves room for a part of an entry.
    #[error("its pointer is at no entry")]
    Pointer,
    /// One more host found no room than can be counted.
    #[error("its overflow is full")]
    Overflow,
}

/// The options of an IPv4 header; stops at End of Options and at the first error.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Options<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Ipv4Options<'a> {
    /// The options in `bytes`, which follow the 20 bytes of the fixed header.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: crate::ipv4::HEADER_LEN }
    }

    /// Whether no option is left (also true at an end marker).
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.rest.first(), None | Some(0))
    }

    fn read(&mut self) -> Result<Option<Ipv4Option<'a>>, Ipv4OptionReason> {
        let (kind, len) = match *self.rest {
            [] | [0, ..] => return Ok(None),
            [1, ref rest @ ..] => {
                self.rest = rest;
                self.offset += 1;
                return Ok(Some(Ipv4Option::Nop));
            }
            [kind, len, ..] => (kind, usize::from(len)),
            [_] => return Err(Ipv4OptionReason::Length),
        };
        let data = self.rest.get(2..len).ok_or(Ipv4OptionReason::Length)?;
        let option = decode(kind, data)?;
        self.rest = self.rest.get(len..).unwrap_or_default();
        self.offset += len;
        Ok(Some(option))
    }
}

fn decode(kind: u8, data: &[u8]) -> Result<Ipv4Option<'_>, Ipv4OptionReason> {
    Ok(match kind {
        7 => match route(data)? {
            it if has_part(it.pointer, 2 + data.len(), 4) => {
                return Err(Ipv4OptionReason::Pointer);
            }
            route => Ipv4Option::RecordRoute(route),
        },
        131 => Ipv4Option::LooseSourceRoute(route(data)?),
        137 => Ipv4Option::StrictSourceRoute(route(data)?),
        68 => Ipv4Option::Timestamp(timestamp(data)?),
        148 => match *data {
            [high, low] => Ipv4Option::RouterAlert(u16::from_be_bytes([high, low])),
            _ => return Err(Ipv4OptionReason::LengthForKind),
        },
        _ => Ipv4Option::Unknown { kind, data },
    })
}

fn route(data: &[u8]) -> Result<RouteData<'_>, Ipv4OptionReason> {
    let (&pointer, addrs) = data.split_first().ok_or(Ipv4OptionReason::LengthForKind)?;
    let (addrs, []) = addrs.as_chunks::<4>() else {
        return Err(Ipv4OptionReason::LengthForKind);
    };
    if pointer < 4 {
        return Err(Ipv4OptionReason::Pointer);
    }
    Ok(RouteData { pointer, addrs })
}

fn timestamp(data: &[u8]) -> Result<TimestampData<'_>, Ipv4OptionReason> {
    let [pointer, flags, entries @ ..] = data else {
        return Err(Ipv4OptionReason::LengthForKind);
    };
    if !entries.len().is_multiple_of(4) {
        return Err(Ipv4OptionReason::LengthForKind);
    }
    let (len, overflow, flag) = (4 + entries.len(), flags >> 4, flags & 0x0f);
    let entry = match flag {
        TimestampData::TIMES => 4,
        TimestampData::ADDRESSES | TimestampData::ADDRESSES_GIVEN => 8,
        _ => 1,
    };
    if *pointer < 5 || has_part(*pointer, len, entry) {
        return Err(Ipv4OptionReason::Pointer);
    }
    let is_counted = flag != TimestampData::ADDRESSES_GIVEN;
    if usize::from(*pointer) > len && is_counted && overflow == 15 {
        return Err(Ipv4OptionReason::Overflow);
    }
    Ok(TimestampData { pointer: *pointer, overflow, flag, entries })
}

/// Whether an option of `len` bytes has room at `pointer`, but not for an entry.
fn has_part(pointer: u8, len: usize, entry: usize) -> bool {
    (usize::from(pointer)..usize::from(pointer) + entry - 1).contains(&len)
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Ipv4OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let item = self.read().map_err(|reason| Ipv4OptionError { offset, reason }).transpose();
        if !matches!(item, Some(Ok(_))) {
            self.rest = &[];
        }
        item
    }
}
