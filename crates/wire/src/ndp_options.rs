//! Neighbor discovery options, read one after another and written one by one.
//!
//! Called by `ndp.rs`. Invariant: [`NdpOptions`] is made from bytes that were gone through once,
//! so it gives options and never errors; at most [`NDP_OPTIONS_MAX`] of them. Read first: RFC 4861
//! section 4.6, RFC 8106 section 5 (DNS), RFC 4191 section 2.3 (routes), RFC 3971 section 5.3.2
//! (nonce). Not here: whether to accept them.

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_base::MacAddr;
use floodwall_base::limits::NDP_OPTIONS_MAX;
use thiserror::Error;

use crate::BufferTooShort;
use crate::field::{self, FieldWriter};

/// How long something advertised is good, in whole seconds; all ones mean for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lifetime(u32);

impl Lifetime {
    /// For ever (RFC 4861 section 4.6.2).
    pub const INFINITE: Self = Self(u32::MAX);
    /// No longer.
    pub const ZERO: Self = Self(0);

    /// So many seconds; `u32::MAX` are for ever.
    #[must_use]
    pub const fn from_secs(secs: u32) -> Self {
        Self(secs)
    }

    /// The seconds as sent.
    #[must_use]
    pub const fn as_secs(self) -> u32 {
        self.0
    }

    /// The duration, or `None` for ever.
    #[must_use]
    pub const fn duration(self) -> Option<Duration> {
        if self.0 == u32::MAX { None } else { Some(Duration::from_secs(self.0 as u64)) }
    }
}

/// The preference of a router or a route (RFC 4191 section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Preference {
    /// Over others.
    High,
    /// As others.
    #[default]
    Medium,
    /// After others.
    Low,
    /// The value that must not be sent: a router so marked counts as medium, a route is ignored.
    Reserved,
}

impl Preference {
    pub(crate) const fn of_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::Medium,
            0b01 => Self::High,
            0b11 => Self::Low,
            _ => Self::Reserved,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::Medium => 0b00,
            Self::High => 0b01,
            Self::Reserved => 0b10,
            Self::Low => 0b11,
        }
    }
}

/// A prefix information option (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrefixInfo {
    /// The prefix; bits behind its length are to be ignored.
    pub prefix: Ipv6Addr,
    /// The bits of the prefix, as sent: may be over 128.
    pub prefix_len: u8,
    /// Whether its addresses are on this link (L).
    pub on_link: bool,
    /// Whether hosts may make themselves an address from it (A).
    pub autonomous: bool,
    /// How long the prefix is good.
    pub valid_lifetime: Lifetime,
    /// How long addresses made from it are preferred.
    pub preferred_lifetime: Lifetime,
}

/// A route information option (RFC 4191 section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RouteInfo {
    /// The prefix, with zeros where the option was short.
    pub prefix: Ipv6Addr,
    /// The bits of the prefix, 0 to 128.
    pub prefix_len: u8,
    /// The preference of this router for it.
    pub preference: Preference,
    /// How long the route is good.
    pub lifetime: Lifetime,
}

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NdpOption<'a> {
    /// The sender's link address.
    SourceLinkAddr(MacAddr),
    /// The target's link address.
    TargetLinkAddr(MacAddr),
    /// A prefix.
    PrefixInfo(PrefixInfo),
    /// The beginning of the packet that caused a redirect: unchecked bytes.
    RedirectedHeader(&'a [u8]),
    /// The link's MTU in bytes.
    Mtu(u32),
    /// A nonce (RFC 3971; in duplicate address detection RFC 7527): six bytes and eights more.
    Nonce(&'a [u8]),
    /// A route.
    RouteInfo(RouteInfo),
    /// Recursive DNS servers.
    RecursiveDns {
        /// How long they may be used.
        lifetime: Lifetime,
        /// Their addresses, 16 bytes each; at least one.
        servers: &'a [[u8; 16]],
    },
    /// DNS search list.
    DnsSearch {
        /// How long it may be used.
        lifetime: Lifetime,
        /// Domain names in DNS encoding, padded with zeros: unchecked bytes.
        names: &'a [u8],
    },
    /// Anything else, to be ignored.
    Unknown {
        /// The type.
        kind: u8,
        /// What follows type and length.
        data: &'a [u8],
    },
}

/// An option that makes its whole message invalid, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NdpOptionError {
    /// The length is zero (RFC 4861 section 4.6: "must silently discard").
    #[error("the option at byte {0} has length zero")]
    LengthZero(usize),
    /// The length reaches past the message.
    #[error("the option at byte {0} is longer than the message")]
    LengthLong(usize),
    /// The length does not suit the type.
    #[error("the option at byte {0} has a length that does not suit its type")]
    LengthForKind(usize),
    /// More than [`NDP_OPTIONS_MAX`] options.
    #[error("too many options")]
    TooMany,
}

/// The options of a checked message.
#[derive(Clone, Copy, Debug)]
pub struct NdpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> NdpOptions<'a> {
    /// Goes through the options in `bytes`, which begin at `offset` of their message.
    pub(crate) fn check(bytes: &'a [u8], offset: usize) -> Result<Self, NdpOptionError> {
        let mut rest = bytes;
        for _ in 0..NDP_OPTIONS_MAX {
            let at = offset + (bytes.len() - rest.len());
            match take(rest) {
                Ok(None) => return Ok(Self { rest: bytes }),
                Ok(Some((_, behind))) => rest = behind,
                Err(error) => return Err(error(at)),
            }
        }
        if rest.is_empty() { Ok(Self { rest: bytes }) } else { Err(NdpOptionError::TooMany) }
    }

    /// The first source link address, if any.
    #[must_use]
    pub fn source_link_addr(mut self) -> Option<MacAddr> {
        self.find_map(|o| if let NdpOption::SourceLinkAddr(a) = o { Some(a) } else { None })
    }

    /// The first target link address, if any.
    #[must_use]
    pub fn target_link_addr(mut self) -> Option<MacAddr> {
        self.find_map(|o| if let NdpOption::TargetLinkAddr(a) = o { Some(a) } else { None })
    }

    /// The first nonce, if any.
    #[must_use]
    pub fn nonce(mut self) -> Option<&'a [u8]> {
        self.find_map(|o| if let NdpOption::Nonce(nonce) = o { Some(nonce) } else { None })
    }
}

impl<'a> Iterator for NdpOptions<'a> {
    type Item = NdpOption<'a>;

    fn next(&mut self) -> Option<NdpOption<'a>> {
        // `check` has seen these bytes: there is no error left to happen.
        let (option, rest) = take(self.rest).ok()??;
        self.rest = rest;
        Some(option)
    }
}

type Taken<'a> = Result<Option<(NdpOption<'a>, &'a [u8])>, fn(usize) -> NdpOptionError>;

/// The first option of `bytes` and what follows it.
fn take(bytes: &[u8]) -> Taken<'_> {
    let (kind, len) = match *bytes {
        [] => return Ok(None),
        [_, 0, ..] => return Err(NdpOptionError::LengthZero),
        [kind, units, ..] => (kind, usize::from(units) * 8),
        [_] => return Err(NdpOptionError::LengthLong),
    };
    let data = bytes.get(2..len).ok_or(NdpOptionError::LengthLong as fn(usize) -> _)?;
    let option = decode(kind, data).ok_or(NdpOptionError::LengthForKind as fn(usize) -> _)?;
    Ok(Some((option, bytes.get(len..).unwrap_or_default())))
}

/// Reads an option; `None` if the length does not suit the type.
fn decode(kind: u8, data: &[u8]) -> Option<NdpOption<'_>> {
    Some(match kind {
        1 => NdpOption::SourceLinkAddr(MacAddr(data.try_into().ok()?)),
        2 => NdpOption::TargetLinkAddr(MacAddr(data.try_into().ok()?)),
        3 => NdpOption::PrefixInfo(prefix_info(data.try_into().ok()?)),
        4 => NdpOption::RedirectedHeader(data.get(6..)?),
        5 => NdpOption::Mtu(field::long::<2, 6>(data.try_into().ok()?)),
        14 => NdpOption::Nonce(data),
        24 => NdpOption::RouteInfo(route_info(data)?),
        25 => {
            let (lifetime, rest) = lifetime(data)?;
            match rest.as_chunks::<16>() {
                (servers @ [_, ..], []) => NdpOption::RecursiveDns { lifetime, servers },
                _ => return None,
            }
        }
        31 => {
            let (lifetime, names) = lifetime(data)?;
            if names.is_empty() {
                return None;
            }
            NdpOption::DnsSearch { lifetime, names }
        }
        _ => NdpOption::Unknown { kind, data },
    })
}

/// The lifetime of a DNS option, after two reserved bytes, and what follows it.
fn lifetime(data: &[u8]) -> Option<(Lifetime, &[u8])> {
    let (head, rest) = data.split_first_chunk::<6>()?;
    Some((Lifetime(field::long::<2, _>(head)), rest))
}

fn prefix_info(data: &[u8; 30]) -> PrefixInfo {
    PrefixInfo {
        prefix: Ipv6Addr::from_octets(field::bytes::<14, 16, _>(data)),
        prefix_len: data[0],
        on_link: data[1] & 0x80 != 0,
        autonomous: data[1] & 0x40 != 0,
        valid_lifetime: Lifetime(field::long::<2, _>(data)),
        preferred_lifetime: Lifetime(field::long::<6, _>(data)),
    }
}

/// RFC 4191 section 2.3: length 1, 2 or 3 units, enough for the prefix length.
fn route_info(data: &[u8]) -> Option<RouteInfo> {
    let (head, prefix) = data.split_first_chunk::<6>()?;
    let prefix_len = head[0];
    let fits = prefix.len() <= 16 && prefix_len <= 128 && prefix.len() * 8 >= prefix_len.into();
    if !fits {
        return None;
    }
    let mut octets = [0; 16];
    octets.iter_mut().zip(prefix).for_each(|(to, from)| *to = *from);
    Some(RouteInfo {
        prefix: Ipv6Addr::from_octets(octets),
        prefix_len,
        preference: Preference::of_bits(head[1] >> 3),
        lifetime: Lifetime(field::long::<2, _>(head)),
    })
}

impl NdpOption<'_> {
    /// Writes the option at the front of `out`, padded with zeros to a multiple of eight bytes;
    /// returns its length.
    ///
    /// # Errors
    /// If `out` cannot hold it, or no option can (2,040 bytes).
    pub fn emit_into(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut writer = FieldWriter::new(out);
        self.emit(&mut writer)?;
        writer.finish()
    }

    pub(crate) fn emit(&self, writer: &mut FieldWriter<'_>) -> Result<(), BufferTooShort> {
        let (kind, len) = self.kind_and_len();
        let units = u8::try_from(len / 8).map_err(|_| BufferTooShort { needed: len })?;
        writer.put(&[kind, units]);
        match self {
            Self::SourceLinkAddr(addr) | Self::TargetLinkAddr(addr) => writer.put(&addr.0),
            Self::PrefixInfo(info) => emit_prefix_info(info, writer),
            Self::RedirectedHeader(bytes) => {
                writer.put(&[0; 6]);
                writer.put(bytes);
            }
            Self::Mtu(mtu) => {
                writer.put(&[0; 2]);
                writer.put(&mtu.to_be_bytes());
            }
            Self::RouteInfo(info) => {
                writer.put(&[info.prefix_len, info.preference.bits() << 3]);
                writer.put(&info.lifetime.0.to_be_bytes());
                writer.put(&info.prefix.octets());
            }
            Self::RecursiveDns { lifetime, servers } => {
                writer.put(&[0; 2]);
                writer.put(&lifetime.0.to_be_bytes());
                writer.put(servers.as_flattened());
            }
            Self::DnsSearch { lifetime, names } => {
                writer.put(&[0; 2]);
                writer.put(&lifetime.0.to_be_bytes());
                writer.put(names);
            }
            Self::Nonce(data) | Self::Unknown { data, .. } => writer.put(data),
        }
        writer.pad(8, 0);
        Ok(())
    }

    /// The type, and the bytes of the option with its padding.
    fn kind_and_len(&self) -> (u8, usize) {
        let (kind, data) = match self {
            Self::SourceLinkAddr(_) => (1, 6),
            Self::TargetLinkAddr(_) => (2, 6),
            Self::PrefixInfo(_) => (3, 30),
            Self::RedirectedHeader(bytes) => (4, 6 + bytes.len()),
            Self::Mtu(_) => (5, 6),
            Self::Nonce(nonce) => (14, nonce.len()),
            Self::RouteInfo(_) => (24, 22),
            Self::RecursiveDns { servers, .. } => (25, 6 + servers.len() * 16),
            Self::DnsSearch { names, .. } => (31, 6 + names.len()),
            Self::Unknown { kind, data } => (*kind, data.len()),
        };
        (kind, (2 + data).next_multiple_of(8))
    }
}

fn emit_prefix_info(info: &PrefixInfo, writer: &mut FieldWriter<'_>) {
    let flags = u8::from(info.on_link) << 7 | u8::from(info.autonomous) << 6;
    writer.put(&[info.prefix_len, flags]);
    writer.put(&info.valid_lifetime.0.to_be_bytes());
    writer.put(&info.preferred_lifetime.0.to_be_bytes());
    writer.put(&[0; 4]);
    writer.put(&info.prefix.octets());
}
