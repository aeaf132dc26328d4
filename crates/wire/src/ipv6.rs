//! The IPv6 header.
//!
//! Called by `ip` on input, output and forwarding, by `pktgen` and the tests. Invariant: an
//! [`Ipv6Header`] is version 6 and its payload fits the packet. Read first: RFC 8200 section 3,
//! RFC 2675 (why a payload length of zero may be wrong). Not here: extension headers
//! (`ipv6_walk.rs`), any opinion about addresses.

use core::net::Ipv6Addr;

use floodwall_checksum::{InternetSum, pseudo_header_v6};
use thiserror::Error;

use crate::field;
use crate::{Dscp, Ecn, IpProtocol};

/// The bytes of the header.
pub const HEADER_LEN: usize = 40;

/// Lowers the hop limit by one; returns the new value, or `None`, changing nothing, if the
/// packet has no hop left to go (RFC 8200 section 3).
#[inline]
pub fn decrement_hop_limit(header: &mut [u8; HEADER_LEN]) -> Option<u8> {
    let hop_limit = header[7].checked_sub(1).filter(|&hops| hops > 0)?;
    header[7] = hop_limit;
    Some(hop_limit)
}

/// Why bytes are not an IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Ipv6Error {
    /// Fewer than 40 contiguous bytes.
    #[error("the IPv6 header is cut short")]
    Truncated,
    /// The version is not 6.
    #[error("the IP version is not 6")]
    Version,
    /// The payload is longer than the packet.
    #[error("the IPv6 payload length is longer than the packet")]
    PayloadLengthLong,
}

/// A checked IPv6 header.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Header<'a> {
    fixed: &'a [u8; HEADER_LEN],
}

impl<'a> Ipv6Header<'a> {
    /// Checks the header at the front of `bytes`, which holds at least its 40 bytes;
    /// `packet_len` is the number of bytes from its first byte to the end of the buffer, in
    /// however many chunks.
    ///
    /// Bytes behind the payload (Ethernet padding) are no error. Jumbograms look like an empty
    /// payload here; [`crate::ExtensionWalk::of_packet`] refuses them.
    ///
    /// # Errors
    /// See [`Ipv6Error`]. Cost: about 1 ns.
    #[inline]
    pub fn parse(bytes: &'a [u8], packet_len: usize) -> Result<Self, Ipv6Error> {
        let fixed = bytes.first_chunk::<HEADER_LEN>().ok_or(Ipv6Error::Truncated)?;
        if fixed[0] >> 4 != 6 {
            return Err(Ipv6Error::Version);
        }
        let header = Self { fixed };
        if header.total_len() > packet_len {
            return Err(Ipv6Error::PayloadLengthLong);
        }
        Ok(header)
    }

    /// The differentiated services code point.
    #[inline]
    #[must_use]
    pub const fn dscp(&self) -> Dscp {
        Dscp::of_traffic_class(self.traffic_class())
    }

    /// The congestion notification field.
    #[inline]
    #[must_use]
    pub const fn ecn(&self) -> Ecn {
        Ecn::of_traffic_class(self.traffic_class())
    }

    #[inline]
    const fn traffic_class(&self) -> u8 {
        self.fixed[0] << 4 | self.fixed[1] >> 4
    }

    /// The flow label, 20 bits (RFC 6437).
    #[inline]
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        field::long::<0, _>(self.fixed) & 0x000f_ffff
    }

    /// The bytes of the header: always 40.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// The bytes after the header, extension headers included.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> usize {
        usize::from(field::word::<4, _>(self.fixed))
    }

    /// The bytes of the packet, header included.
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> usize {
        HEADER_LEN + self.payload_len()
    }

    /// What follows the header: an extension header or the upper layer.
    #[inline]
    #[must_use]
    pub const fn next_header(&self) -> IpProtocol {
        IpProtocol(self.fixed[6])
    }

    /// The hop limit.
    #[inline]
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// The source of the packet, unverified.
    #[inline]
    #[must_use]
    pub fn src_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(field::huge::<8, _>(self.fixed))
    }

    /// The destination of the packet.
    #[inline]
    #[must_use]
    pub fn dst_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(field::huge::<24, _>(self.fixed))
    }

    /// The sum of the pseudo-header for an upper layer of `len` bytes.
    #[inline]
    pub fn pseudo_header(&self, protocol: IpProtocol, len: u32) -> InternetSum {
        pseudo_header_v6(self.src_addr(), self.dst_addr(), protocol.0, len)
    }

    /// The values, for building an equal header.
    #[must_use]
    pub fn fields(&self) -> Ipv6Fields {
        Ipv6Fields {
            dscp: self.dscp(),
            ecn: self.ecn(),
            flow_label: self.flow_label(),
            payload_len: field::word::<4, _>(self.fixed),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            src_addr: self.src_addr(),
            dst_addr: self.dst_addr(),
        }
    }
}

/// The values of an IPv6 header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Fields {
    /// The differentiated services code point.
    pub dscp: Dscp,
    /// The congestion notification field.
    pub ecn: Ecn,
    /// The flow label; only the low 20 bits are sent.
    pub flow_label: u32,
    /// The bytes after the header, extension headers included; written as it is.
    pub payload_len: u16,
    /// What follows the header.
    pub next_header: IpProtocol,
    /// The hop limit.
    pub hop_limit: u8,
    /// The source.
    pub src_addr: Ipv6Addr,
    /// The destination.
    pub dst_addr: Ipv6Addr,
}

impl Ipv6Fields {
    /// A best-effort packet with `payload_len` bytes after the header.
    #[must_use]
    pub const fn new(
        src_addr: Ipv6Addr,
        dst_addr: Ipv6Addr,
        next_header: IpProtocol,
        hop_limit: u8,
        payload_len: u16,
    ) -> Self {
        Self {
            dscp: Dscp::DEFAULT,
            ecn: Ecn::NotCapable,
            flow_label: 0,
            payload_len,
            next_header,
            hop_limit,
            src_addr,
            dst_addr,
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let class = u32::from(self.dscp.with_ecn(self.ecn));
        field::put_long::<0, _>(out, 6 << 28 | class << 20 | self.flow_label & 0x000f_ffff);
        field::put_word::<4, _>(out, self.payload_len);
        out[6] = self.next_header.0;
        out[7] = self.hop_limit;
        field::put::<8, 16, _>(out, self.src_addr.octets());
        field::put::<24, 16, _>(out, self.dst_addr.octets());
    }
}
