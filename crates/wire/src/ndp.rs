//! Neighbor discovery messages: router and neighbor solicitations and advertisements, redirects.
//!
//! Called by `ip/ndp.rs`, `pktgen` and the tests. A `parse` takes the whole ICMPv6 message,
//! contiguous, with a checksum that the caller has verified. Invariant: a view has its fixed part,
//! code zero, targets that are no multicast addresses, and options of valid lengths; that is the
//! validation of RFC 4861 as far as the message alone allows it. Left to the caller: hop limit 255,
//! what the IP addresses must be, and fragments (RFC 6980).
//!
//! Read first: RFC 4861 sections 4 and 6.1, 7.1, 8.1; RFC 4191 section 2.2 (router preference).

use core::net::Ipv6Addr;
use core::time::Duration;

use floodwall_checksum::{pseudo_header_v6, sum};
use thiserror::Error;

use crate::field::{self, FieldWriter};
use crate::icmpv6::Icmpv6Type;
pub use crate::ndp_options::{
    Lifetime, NdpOption, NdpOptionError, NdpOptions, Preference, PrefixInfo, RouteInfo,
};
use crate::{BufferTooShort, IpProtocol};

/// Why bytes are not a neighbor discovery message of the expected type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NdpError {
    /// Shorter than the fixed part of the message.
    #[error("the neighbor discovery message is cut short")]
    Truncated,
    /// The type is another one.
    #[error("the message is of another type")]
    Type,
    /// The code is not zero.
    #[error("the code is not zero")]
    Code,
    /// The target (of a redirect: the destination) is a multicast address.
    #[error("the target is a multicast address")]
    MulticastTarget,
    /// An option is invalid, and with it the message.
    #[error("{0}")]
    Option(#[from] NdpOptionError),
}

/// Splits a message of type `kind` into its `N` fixed bytes and its checked options.
#[inline]
fn split<const N: usize>(
    kind: Icmpv6Type,
    message: &[u8],
) -> Result<(&[u8; N], NdpOptions<'_>), NdpError> {
    let (fixed, options) = message.split_first_chunk::<N>().ok_or(NdpError::Truncated)?;
    let [first, code, ..] = fixed.as_slice() else { return Err(NdpError::Truncated) };
    if *first != kind.0 {
        return Err(NdpError::Type);
    }
    if *code != 0 {
        return Err(NdpError::Code);
    }
    Ok((fixed, NdpOptions::check(options, N)?))
}

/// Writes a message: type, code zero, checksum, `body`, options; returns its length.
fn emit_message(
    kind: Icmpv6Type,
    body: &[u8],
    options: &[NdpOption<'_>],
    src_addr: Ipv6Addr,
    dst_addr: Ipv6Addr,
    out: &mut [u8],
) -> Result<usize, BufferTooShort> {
    let mut writer = FieldWriter::new(out);
    writer.put(&[kind.0, 0, 0, 0]);
    writer.put(body);
    for option in options {
        option.emit(&mut writer)?;
    }
    let needed = writer.finish()?;
    let short = BufferTooShort { needed };
    let message = out.get_mut(..needed).ok_or(short)?;
    let pseudo =
        pseudo_header_v6(src_addr, dst_addr, IpProtocol::ICMPV6.0, needed.try_into().unwrap_or(0));
    let check = pseudo.add(sum(message)).finish();
    let fixed = message.first_chunk_mut::<8>().ok_or(short)?;
    field::put_word::<2, _>(fixed, check);
    Ok(needed)
}

/// A checked router solicitation (RFC 4861 section 4.1).
#[derive(Clone, Copy, Debug)]
pub struct RouterSolicitation<'a> {
    options: NdpOptions<'a>,
}

impl<'a> RouterSolicitation<'a> {
    /// Checks `message`, from the ICMPv6 type to its end.
    ///
    /// # Errors
    /// See [`NdpError`].
    pub fn parse(message: &'a [u8]) -> Result<Self, NdpError> {
        let (_, options) = split::<8>(Icmpv6Type::ROUTER_SOLICITATION, message)?;
        Ok(Self { options })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> NdpOptions<'a> {
        self.options
    }
}

/// The values of a router solicitation to be written: it has none but its options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RouterSolicitationFields;

impl RouterSolicitationFields {
    /// Writes the message with its checksum at the front of `out`; returns its length.
    ///
    /// # Errors
    /// If `out` cannot hold it.
    pub fn emit_into(
        &self,
        options: &[NdpOption<'_>],
        src_addr: Ipv6Addr,
        dst_addr: Ipv6Addr,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        emit_message(Icmpv6Type::ROUTER_SOLICITATION, &[0; 4], options, src_addr, dst_addr, out)
    }
}

/// A checked router advertisement (RFC 4861 section 4.2).
#[derive(Clone, Copy, Debug)]
pub struct RouterAdvertisement<'a> {
    fixed: &'a [u8; 16],
    options: NdpOptions<'a>,
}

impl<'a> RouterAdvertisement<'a> {
    /// Checks `message`, from the ICMPv6 type to its end.
    ///
    /// # Errors
    /// See [`NdpError`].
    pub fn parse(message: &'a [u8]) -> Result<Self, NdpError> {
        let (fixed, options) = split(Icmpv6Type::ROUTER_ADVERTISEMENT, message)?;
        Ok(Self { fixed, options })
    }

    /// Its fields, without options.
    #[must_use]
    pub fn fields(&self) -> RouterAdvertisementFields {
        let fixed = self.fixed;
        RouterAdvertisementFields {
            hop_limit: if fixed[4] == 0 { None } else { Some(fixed[4]) },
            managed: fixed[5] & 0x80 != 0,
            other: fixed[5] & 0x40 != 0,
            preference: Preference::of_bits(fixed[5] >> 3),
            router_lifetime: Duration::from_secs(field::word::<6, _>(fixed).into()),
            reachable_time: Duration::from_millis(field::long::<8, _>(fixed).into()),
            retrans_timer: Duration::from_millis(field::long::<12, _>(fixed).into()),
        }
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> NdpOptions<'a> {
        self.options
    }
}

/// The values of a router advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RouterAdvertisementFields {
    /// The hop limit hosts shall use, if the router has an opinion.
    pub hop_limit: Option<u8>,
    /// Addresses are to be had by DHCPv6 (M).
    pub managed: bool,
    /// Other things are to be had by DHCPv6 (O).
    pub other: bool,
    /// The preference of this router (RFC 4191).
    pub preference: Preference,
    /// How long this is a default router; zero if it is none. Whole seconds, at most 65,535.
    pub router_lifetime: Duration,
    /// How long a neighbor is reachable after a sign of life; zero is no opinion. Milliseconds.
    pub reachable_time: Duration,
    /// How long between solicitations; zero is no opinion. Milliseconds.
    pub retrans_timer: Duration,
}

impl RouterAdvertisementFields {
    /// Writes the message with its checksum at the front of `out`; returns its length.
    ///
    /// Durations too long for their fields are cut to the longest.
    ///
    /// # Errors
    /// If `out` cannot hold it.
    pub fn emit_into(
        &self,
        options: &[NdpOption<'_>],
        src_addr: Ipv6Addr,
        dst_addr: Ipv6Addr,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut body = [0; 12];
        body[0] = self.hop_limit.unwrap_or(0);
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        body[1] = flags | self.preference.bits() << 3;
        let secs = u16::try_from(self.router_lifetime.as_secs()).unwrap_or(u16::MAX);
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        field::put_word::<2, _>(&mut body, secs);
        field::put_long::<4, _>(&mut body, millis(self.reachable_time));
        field::put_long::<8, _>(&mut body, millis(self.retrans_timer));
        emit_message(Icmpv6Type::ROUTER_ADVERTISEMENT, &body, options, src_addr, dst_addr, out)
    }
}

/// A checked neighbor solicitation (RFC 4861 section 4.3).
#[derive(Clone, Copy, Debug)]
pub struct NeighborSolicitation<'a> {
    fixed: &'a [u8; 24],
    options: NdpOptions<'a>,
}

impl<'a> NeighborSolicitation<'a> {
    /// Checks `message`, from the ICMPv6 type to its end.
    ///
    /// # Errors
    /// See [`NdpError`].
    pub fn parse(message: &'a [u8]) -> Result<Self, NdpError> {
        let (fixed, options) = split(Icmpv6Type::NEIGHBOR_SOLICITATION, message)?;
        let this = Self { fixed, options };
        if this.target_addr().is_multicast() {
            return Err(NdpError::MulticastTarget);
        }
        Ok(this)
    }

    /// The address to be resolved.
    #[must_use]
    pub fn target_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(field::bytes::<8, 16, _>(self.fixed))
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> NdpOptions<'a> {
        self.options
    }

    /// Its fields, without options.
    #[must_use]
    pub fn fields(&self) -> NeighborSolicitationFields {
        NeighborSolicitationFields { target_addr: self.target_addr() }
    }
}

/// The values of a neighbor solicitation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NeighborSolicitationFields {
    /// The address to be resolved.
    pub target_addr: Ipv6Addr,
}

impl NeighborSolicitationFields {
    /// Writes the message with its checksum at the front of `out`; returns its length.
    ///
    /// # Errors
    /// If `out` cannot hold it.
    pub fn emit_into(
        &self,
        options: &[NdpOption<'_>],
        src_addr: Ipv6Addr,
        dst_addr: Ipv6Addr,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut body = [0; 20];
        field::put::<4, 16, _>(&mut body, self.target_addr.octets());
        emit_message(Icmpv6Type::NEIGHBOR_SOLICITATION, &body, options, src_addr, dst_addr, out)
    }
}

/// A checked neighbor advertisement (RFC 4861 section 4.4).
#[derive(Clone, Copy, Debug)]
pub struct NeighborAdvertisement<'a> {
    fixed: &'a [u8; 24],
    options: NdpOptions<'a>,
}

impl<'a> NeighborAdvertisement<'a> {
    /// Checks `message`, from the ICMPv6 type to its end.
    ///
    /// # Errors
    /// See [`NdpError`].
    pub fn parse(message: &'a [u8]) -> Result<Self, NdpError> {
        let (fixed, options) = split(Icmpv6Type::NEIGHBOR_ADVERTISEMENT, message)?;
        let this = Self { fixed, options };
        if this.target_addr().is_multicast() {
            return Err(NdpError::MulticastTarget);
        }
        Ok(this)
    }

    /// The address that the link address is announced for.
    #[must_use]
    pub fn target_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(field::bytes::<8, 16, _>(self.fixed))
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> NdpOptions<'a> {
        self.options
    }

    /// Its fields, without options.
    #[must_use]
    pub fn fields(&self) -> NeighborAdvertisementFields {
        NeighborAdvertisementFields {
            router: self.fixed[4] & 0x80 != 0,
            solicited: self.fixed[4] & 0x40 != 0,
            override_entry: self.fixed[4] & 0x20 != 0,
            target_addr: self.target_addr(),
        }
    }
}

/// The values of a neighbor advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NeighborAdvertisementFields {
    /// The sender is a router (R).
    pub router: bool,
    /// It answers a solicitation (S).
    pub solicited: bool,
    /// It replaces a link address known before (O).
    pub override_entry: bool,
    /// The address that the link address is announced for.
    pub target_addr: Ipv6Addr,
}

impl NeighborAdvertisementFields {
    /// Writes the message with its checksum at the front of `out`; returns its length.
    ///
    /// # Errors
    /// If `out` cannot hold it.
    pub fn emit_into(
        &self,
        options: &[NdpOption<'_>],
        src_addr: Ipv6Addr,
        dst_addr: Ipv6Addr,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut body = [0; 20];
        body[0] = u8::from(self.router) << 7
            | u8::from(self.solicited) << 6
            | u8::from(self.override_entry) << 5;
        field::put::<4, 16, _>(&mut body, self.target_addr.octets());
        emit_message(Icmpv6Type::NEIGHBOR_ADVERTISEMENT, &body, options, src_addr, dst_addr, out)
    }
}

/// A checked redirect (RFC 4861 section 4.5).
#[derive(Clone, Copy, Debug)]
pub struct Redirect<'a> {
    fixed: &'a [u8; 40],
    options: NdpOptions<'a>,
}

impl<'a> Redirect<'a> {
    /// Checks `message`, from the ICMPv6 type to its end.
    ///
    /// # Errors
    /// See [`NdpError`]. Whether the target may be a first hop at all is for the caller to check:
    /// [`RedirectFields::is_target_allowed`].
    pub fn parse(message: &'a [u8]) -> Result<Self, NdpError> {
        let (fixed, options) = split(Icmpv6Type::REDIRECT, message)?;
        let this = Self { fixed, options };
        let RedirectFields { target_addr, dst_addr } = this.fields();
        if dst_addr.is_multicast() || target_addr.is_multicast() {
            return Err(NdpError::MulticastTarget);
        }
        Ok(this)
    }

    /// Its fields, without options.
    #[must_use]
    pub fn fields(&self) -> RedirectFields {
        RedirectFields {
            target_addr: Ipv6Addr::from_octets(field::bytes::<8, 16, _>(self.fixed)),
            dst_addr: Ipv6Addr::from_octets(field::bytes::<24, 16, _>(self.fixed)),
        }
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> NdpOptions<'a> {
        self.options
    }
}

/// The values of a redirect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RedirectFields {
    /// The better first hop; the destination itself if that is on the link.
    pub target_addr: Ipv6Addr,
    /// The destination that the redirect is about.
    pub dst_addr: Ipv6Addr,
}

impl RedirectFields {
    /// Whether the target is a link-local address or the destination (RFC 4861 section 8.1).
    #[must_use]
    pub fn is_target_allowed(&self) -> bool {
        self.target_addr.is_unicast_link_local() || self.target_addr == self.dst_addr
    }

    /// Writes the message with its checksum at the front of `out`; returns its length.
    ///
    /// # Errors
    /// If `out` cannot hold it.
    pub fn emit_into(
        &self,
        options: &[NdpOption<'_>],
        src_addr: Ipv6Addr,
        dst_addr: Ipv6Addr,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut body = [0; 36];
        field::put::<4, 16, _>(&mut body, self.target_addr.octets());
        field::put::<20, 16, _>(&mut body, self.dst_addr.octets());
        emit_message(Icmpv6Type::REDIRECT, &body, options, src_addr, dst_addr, out)
    }
}
