//! The UDP header.
//!
//! Called by `udp`, `pktgen` and the tests. Invariant: a [`UdpHeader`]'s length covers at least
//! its header and at most the bytes there are. Read first: RFC 768, RFC 8200 section 8.1 (the
//! checksum over IPv6), RFC 9868 (bytes behind the length are options, and no error).

use floodwall_checksum::InternetSum;
use thiserror::Error;

use crate::field;

/// The bytes of the header.
pub const HEADER_LEN: usize = 8;

/// Why bytes are not a UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum UdpError {
    /// Fewer than 8 contiguous bytes.
    #[error("the UDP header is cut short")]
    Truncated,
    /// The length is under 8; this includes zero, which only jumbograms may have (RFC 2675).
    #[error("the UDP length is under 8")]
    LengthShort,
    /// The length is longer than what the IP packet carries.
    #[error("the UDP length is longer than the packet")]
    LengthLong,
}

/// A checked UDP header.
#[derive(Clone, Copy, Debug)]
pub struct UdpHeader<'a> {
    fixed: &'a [u8; HEADER_LEN],
}

impl<'a> UdpHeader<'a> {
    /// Checks the header at the front of `bytes`; `available` is the number of bytes that the
    /// IP packet carries from here on, in however many chunks.
    ///
    /// # Errors
    /// See [`UdpError`]. The checksum is not looked at: see [`UdpHeader::verifies`].
    #[inline]
    pub fn parse(bytes: &'a [u8], available: usize) -> Result<Self, UdpError> {
        let fixed = bytes.first_chunk::<HEADER_LEN>().ok_or(UdpError::Truncated)?;
        let header = Self { fixed };
        if header.len() < HEADER_LEN {
            return Err(UdpError::LengthShort);
        }
        if header.len() > available {
            return Err(UdpError::LengthLong);
        }
        Ok(header)
    }

    /// The sender's port; zero if there is none to answer to.
    #[inline]
    #[must_use]
    pub fn src_port(&self) -> u16 {
        field::word::<0, _>(self.fixed)
    }

    /// The receiver's port.
    #[inline]
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        field::word::<2, _>(self.fixed)
    }

    /// The bytes of the datagram, header included: 8 to 65,535.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a datagram has at least its header")]
    pub fn len(&self) -> usize {
        usize::from(field::word::<4, _>(self.fixed))
    }

    /// The bytes of the payload.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.len() - HEADER_LEN
    }

    /// The checksum, or `None` if the sender made none.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> Option<u16> {
        match field::word::<6, _>(self.fixed) {
            0 => None,
            check => Some(check),
        }
    }

    /// Whether the checksum is right, given the sums of the pseudo-header (with the length
    /// [`UdpHeader::len`]) and of the payload's [`UdpHeader::payload_len`] bytes.
    ///
    /// A datagram without checksum verifies; over IPv6 the caller must refuse it first unless
    /// its port opted in (RFC 6935).
    #[inline]
    #[must_use]
    pub fn verifies(&self, pseudo_header: InternetSum, payload: InternetSum) -> bool {
        self.checksum().is_none() || pseudo_header.add(self.sum()).add(payload).verifies()
    }

    /// The sum of the eight header bytes, checksum included.
    #[inline]
    pub fn sum(&self) -> InternetSum {
        floodwall_checksum::sum(self.fixed)
    }

    /// The values, for building an equal header (its checksum apart).
    #[must_use]
    pub fn fields(&self) -> UdpFields {
        UdpFields {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            len: field::word::<4, _>(self.fixed),
        }
    }
}

/// The values of a UDP header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpFields {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The bytes of the datagram, header included; written as it is.
    pub len: u16,
}

impl UdpFields {
    /// Writes a header with a checksum, given the sums of the pseudo-header and the payload.
    #[inline]
    pub fn emit(
        &self,
        pseudo_header: InternetSum,
        payload: InternetSum,
        out: &mut [u8; HEADER_LEN],
    ) {
        // Summed from the values: reading back what was just written in halves would stall.
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let header = InternetSum::of_u32(ports).add(InternetSum::of_u16(self.len));
        let check = match pseudo_header.add(header).add(payload).finish() {
            // Zero means "none"; all ones is the same number to the receiver (RFC 768).
            0 => 0xffff,
            check => check,
        };
        let rest = u32::from(self.len) << 16 | u32::from(check);
        field::put::<0, 8, _>(out, (u64::from(ports) << 32 | u64::from(rest)).to_be_bytes());
    }

    /// Writes a header with a checksum of zero: none (IPv4), or for hardware to fill in.
    #[inline]
    pub fn emit_without_checksum(&self, out: &mut [u8; HEADER_LEN]) {
        field::put_word::<0, _>(out, self.src_port);
        field::put_word::<2, _>(out, self.dst_port);
        field::put_word::<4, _>(out, self.len);
        field::put_word::<6, _>(out, 0);
    }
}
