//! The TCP header.
//!
//! Called by `tcp`, `syncache`, `guard`, `pktgen` and the tests. Invariant: a [`TcpHeader`]'s
//! data offset covers its fixed part and stays inside the segment. Read first: RFC 9293 section
//! 3.1. Not here: options (`tcp_options.rs`), sequence arithmetic.

use core::fmt;
use core::ops::BitOr;

use floodwall_checksum::{InternetSum, header20, sum};
use thiserror::Error;

use crate::BufferTooShort;
use crate::field;
use crate::tcp_options::{
    SYN_OPTIONS_LEN, SynNumbers, TIMESTAMPS_HEAD, TcpOptionSet, TcpOptions, Timestamps,
};

/// The bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// The most bytes a header can have.
pub const HEADER_LEN_MAX: usize = 60;
/// The bytes of a header with timestamps and no other option, as nearly all segments have it.
pub const STAMPED_LEN: usize = HEADER_LEN + 12;
/// The bytes of a header with the options that a SYN usually has ([`SynNumbers`]).
pub const SYN_LEN: usize = HEADER_LEN + SYN_OPTIONS_LEN;

/// The header length in bytes of the header that begins with `first`, if that is possible.
///
/// For callers that make 20 bytes contiguous first, then the whole header.
#[inline]
#[must_use]
pub const fn header_len(first: &[u8; HEADER_LEN]) -> Option<usize> {
    let len = (first[12] >> 4) as usize * 4;
    if len >= HEADER_LEN { Some(len) } else { None }
}

/// The control bits (RFC 9293 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// Congestion was echoed (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether every bit of `flags` is set.
    #[inline]
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether some bit of `flags` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// The bits of either.
    #[inline]
    #[must_use]
    pub const fn union(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, flags: Self) -> Self {
        self.union(flags)
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(TcpFlags, &str); 8] = [
            (TcpFlags::SYN, "S"),
            (TcpFlags::FIN, "F"),
            (TcpFlags::RST, "R"),
            (TcpFlags::PSH, "P"),
            (TcpFlags::ACK, "."),
            (TcpFlags::URG, "U"),
            (TcpFlags::ECE, "E"),
            (TcpFlags::CWR, "W"),
        ];
        if self.0 == 0 {
            return f.write_str("none");
        }
        NAMES.iter().filter(|(flag, _)| self.contains(*flag)).try_for_each(|(_, n)| f.write_str(n))
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpFlags({self})")
    }
}

/// Why bytes are not a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TcpError {
    /// Fewer contiguous bytes than the header has.
    #[error("the TCP header is cut short")]
    Truncated,
    /// The data offset is under five words.
    #[error("the TCP data offset is under 20 bytes")]
    DataOffsetShort,
    /// The data offset is longer than the segment.
    #[error("the TCP data offset is longer than the segment")]
    DataOffsetLong,
}

/// A checked TCP header.
#[derive(Clone, Copy, Debug)]
pub struct TcpHeader<'a> {
    fixed: &'a [u8; HEADER_LEN],
    options: &'a [u8],
}

impl<'a> TcpHeader<'a> {
    /// Checks the header at the front of `bytes`, which holds at least the whole header;
    /// `segment_len` is the number of bytes the IP packet carries from here on.
    ///
    /// # Errors
    /// See [`TcpError`]. The checksum is not looked at (see [`TcpHeader::verifies`]), nor are
    /// the options.
    #[inline]
    pub fn parse(bytes: &'a [u8], segment_len: usize) -> Result<Self, TcpError> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(TcpError::Truncated)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        let options_len = header_len.checked_sub(HEADER_LEN).ok_or(TcpError::DataOffsetShort)?;
        if header_len > segment_len {
            return Err(TcpError::DataOffsetLong);
        }
        let options = rest.get(..options_len).ok_or(TcpError::Truncated)?;
        Ok(Self { fixed, options })
    }

    /// The sender's port.
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

    /// The sequence number of the first byte (or of the SYN).
    #[inline]
    #[must_use]
    pub fn seq(&self) -> u32 {
        field::long::<4, _>(self.fixed)
    }

    /// The acknowledgment number; counts only with [`TcpFlags::ACK`].
    #[inline]
    #[must_use]
    pub fn ack(&self) -> u32 {
        field::long::<8, _>(self.fixed)
    }

    /// The bytes of the header with its options: where the payload begins.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// The control bits.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> TcpFlags {
        TcpFlags(self.fixed[13])
    }

    /// The window, not yet scaled.
    #[inline]
    #[must_use]
    pub fn window(&self) -> u16 {
        field::word::<14, _>(self.fixed)
    }

    /// The checksum as it is.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        field::word::<16, _>(self.fixed)
    }

    /// The urgent pointer; counts only with [`TcpFlags::URG`].
    #[inline]
    #[must_use]
    pub fn urgent(&self) -> u16 {
        field::word::<18, _>(self.fixed)
    }

    /// The options, to be iterated over.
    #[inline]
    #[must_use]
    pub const fn options(&self) -> TcpOptions<'a> {
        TcpOptions::new(self.options)
    }

    /// The bytes of the options, 0 to 40.
    #[inline]
    #[must_use]
    pub const fn options_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// Whether the checksum is right, given the sums of the pseudo-header (with the length of
    /// header and payload) and of the payload.
    #[inline]
    #[must_use]
    pub fn verifies(&self, pseudo_header: InternetSum, payload: InternetSum) -> bool {
        pseudo_header.add(self.sum()).add(payload).verifies()
    }

    /// The sum of the header bytes, options and checksum included.
    #[inline]
    pub fn sum(&self) -> InternetSum {
        header20(self.fixed).add(sum(self.options))
    }

    /// The values, for building an equal header (options and checksum apart).
    #[must_use]
    pub fn fields(&self) -> TcpFields {
        TcpFields {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            seq: self.seq(),
            ack: self.ack(),
            flags: self.flags(),
            window: self.window(),
            urgent: self.urgent(),
        }
    }
}

/// The values of a TCP header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpFields {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgment number.
    pub ack: u32,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window, already scaled down.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
}

impl TcpFields {
    /// Writes a header with `options` at the front of `out`, checksum included, given the sum
    /// of the payload and the sum of the pseudo-header for `payload_len` and the header's
    /// length, as returned by [`TcpOptionSet::emitted_len`]; returns the length.
    ///
    /// # Errors
    /// If `out` cannot hold the header; 60 bytes always can.
    pub fn emit(
        &self,
        options: &TcpOptionSet,
        pseudo_header: InternetSum,
        payload: InternetSum,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let options_len = options.emitted_len();
        let short = BufferTooShort { needed: HEADER_LEN + options_len };
        let (fixed, rest) = out.split_first_chunk_mut::<HEADER_LEN>().ok_or(short)?;
        let rest = rest.get_mut(..options_len).ok_or(short)?;
        let options = options.emit_summed(rest).map_err(|_| short)?;
        let [first, second, _] = self.lanes((short.needed / 4) as u8);
        let fields = InternetSum::of_u64(first)
            .add(InternetSum::of_u64(second))
            .add(InternetSum::of_u16(self.urgent));
        let check = pseudo_header.add(fields).add(options).add(payload).finish();
        let last = u64::from(check) << 16 | u64::from(self.urgent);
        put_lanes([first, second, last], fixed);
        Ok(short.needed)
    }

    /// As [`TcpFields::emit`], without options, given the sum of everything else: pseudo-header,
    /// ports and payload. Its urgent pointer is zero.
    #[inline]
    pub fn emit_bare(&self, others: InternetSum, out: &mut [u8; HEADER_LEN]) {
        let [first, second, _] = self.lanes((HEADER_LEN / 4) as u8);
        let sum = others.add(InternetSum::of_u32(self.seq)).add(InternetSum::of_u64(second));
        put_lanes([first, second, u64::from(sum.finish()) << 16], out);
    }

    /// As [`TcpFields::emit_bare`], with timestamps in their usual place (RFC 7323 appendix A).
    #[inline(always)]
    pub fn emit_stamped(
        &self,
        stamps: Timestamps,
        others: InternetSum,
        out: &mut [u8; STAMPED_LEN],
    ) {
        let [first, second, _] = self.lanes((STAMPED_LEN / 4) as u8);
        let head = u64::from(TIMESTAMPS_HEAD);
        let numbers = u64::from(stamps.value) << 32 | u64::from(stamps.echo);
        let sum = others
            .add(InternetSum::of_u64(u64::from(self.seq) << 32 | head))
            .add(InternetSum::of_u64(second))
            .add(InternetSum::of_u64(numbers));
        let last = u64::from(sum.finish()) << 48 | head;
        for (field, lane) in out.as_chunks_mut().0.iter_mut().zip([first, second, last, numbers]) {
            *field = lane.to_be_bytes();
        }
    }

    /// As [`TcpFields::emit`] of a SYN with its usual options and without payload, given the sum of
    /// the pseudo-header. Its urgent pointer is zero.
    #[inline]
    pub fn emit_syn(
        &self,
        options: &SynNumbers,
        pseudo_header: InternetSum,
        out: &mut [u8; SYN_LEN],
    ) {
        let [first, second, _] = self.lanes((SYN_LEN / 4) as u8);
        let (size, [stamps, last]) = options.lanes();
        let sum = [first, second, size.into(), stamps, last]
            .into_iter()
            .fold(pseudo_header, |sum, lane| sum.add(InternetSum::of_u64(lane)));
        let third = u64::from(sum.finish()) << 48 | u64::from(size);
        let lanes = [first, second, third, stamps, last];
        for (field, lane) in out.as_chunks_mut().0.iter_mut().zip(lanes) {
            *field = lane.to_be_bytes();
        }
    }

    /// The fixed part as numbers of eight, eight and four bytes, its checksum zero.
    #[inline]
    fn lanes(&self, words: u8) -> [u64; 3] {
        let ports = u64::from(self.src_port) << 48 | u64::from(self.dst_port) << 32;
        let bits = u64::from(words) << 28 | u64::from(self.flags.0) << 16;
        let second = u64::from(self.ack) << 32 | bits | u64::from(self.window);
        [ports | u64::from(self.seq), second, self.urgent.into()]
    }

    /// Writes the fixed part for a header of `words` 32-bit words, its checksum zero: for
    /// generators that bring their own option bytes, and for hardware to fill in.
    #[inline]
    pub fn emit_fixed(&self, words: u8, out: &mut [u8; HEADER_LEN]) {
        put_lanes(self.lanes(words), out);
    }
}

/// Writes a fixed part.
#[inline]
fn put_lanes([first, second, last]: [u64; 3], out: &mut [u8; HEADER_LEN]) {
    field::put::<0, 8, _>(out, first.to_be_bytes());
    field::put::<8, 8, _>(out, second.to_be_bytes());
    field::put_long::<16, _>(out, last as u32);
}
