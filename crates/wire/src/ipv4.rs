//! The IPv4 header.
//!
//! Called by `ip` on input, output and forwarding, by `pktgen` and the tests. Invariant: an
//! [`Ipv4Header`] is version 4, its header and total lengths fit each other and the packet, and
//! (unless the caller's hardware did it) its checksum is right. Read first: RFC 791 section
//! 3.1, RFC 1122 section 3.2.1, RFC 1812 section 5.2.2. Not here: options (`ipv4_options.rs`),
//! any opinion about addresses.

use core::net::Ipv4Addr;

use floodwall_checksum::{InternetSum, header20, pseudo_header_v4, sum, update16};
use thiserror::Error;

use crate::field;
use crate::ipv4_options::Ipv4Options;
use crate::{BufferTooShort, Dscp, Ecn, IpProtocol};

/// The bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// The most bytes a header can have.
pub const HEADER_LEN_MAX: usize = 60;

/// The header length in bytes according to its first byte, `first`, if it is one of IPv4.
///
/// For callers that make 20 bytes contiguous first, then the whole header.
#[inline]
#[must_use]
pub const fn header_len(first: &[u8; HEADER_LEN]) -> Option<usize> {
    let len = (first[0] & 0x0f) as usize * 4;
    if first[0] >> 4 == 4 && len >= HEADER_LEN { Some(len) } else { None }
}

/// Lowers the time to live by one and patches the checksum (RFC 1624); returns the new value,
/// or `None`, changing nothing, if the packet has no hop left to go.
#[inline]
pub fn decrement_ttl(header: &mut [u8; HEADER_LEN]) -> Option<u8> {
    let ttl = header[8].checked_sub(1).filter(|&ttl| ttl > 0)?;
    let old = field::word::<8, _>(header);
    let check = update16(field::word::<10, _>(header), old, old - 0x0100);
    header[8] = ttl;
    field::put_word::<10, _>(header, check);
    Some(ttl)
}

/// Kept apart: almost no packet has options, and the loop would cost all the others registers.
#[cold]
#[inline(never)]
fn sum_options(options: &[u8]) -> InternetSum {
    sum(options)
}

/// Why bytes are not an IPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Ipv4Error {
    /// Fewer contiguous bytes than the header has.
    #[error("the IPv4 header is cut short")]
    Truncated,
    /// The version is not 4.
    #[error("the IP version is not 4")]
    Version,
    /// The header length field is under five words.
    #[error("the IPv4 header length is under 20 bytes")]
    HeaderLength,
    /// The total length is shorter than the header.
    #[error("the IPv4 total length is shorter than the header")]
    TotalLengthShort,
    /// The total length is longer than the packet.
    #[error("the IPv4 total length is longer than the packet")]
    TotalLengthLong,
    /// The header checksum is wrong.
    #[error("the IPv4 header checksum is wrong")]
    Checksum,
}

/// A checked IPv4 header.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header<'a> {
    fixed: &'a [u8; HEADER_LEN],
    options: &'a [u8],
}

impl<'a> Ipv4Header<'a> {
    /// Checks the header at the front of `bytes`, which holds at least the whole header;
    /// `packet_len` is the number of bytes from its first byte to the end of the buffer, in
    /// however many chunks.
    ///
    /// Bytes behind the total length (Ethernet padding) are no error.
    ///
    /// # Errors
    /// See [`Ipv4Error`]; the checksum is looked at last. Cost: about 3 ns.
    #[inline]
    pub fn parse(bytes: &'a [u8], packet_len: usize) -> Result<Self, Ipv4Error> {
        let header = Self::parse_offloaded(bytes, packet_len)?;
        if header.sum().verifies() { Ok(header) } else { Err(Ipv4Error::Checksum) }
    }

    /// Like [`Ipv4Header::parse`], for packets with a header checksum that the hardware has
    /// verified.
    ///
    /// # Errors
    /// See [`Ipv4Error`], all but the checksum.
    #[inline]
    pub fn parse_offloaded(bytes: &'a [u8], packet_len: usize) -> Result<Self, Ipv4Error> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Ipv4Error::Truncated)?;
        if fixed[0] >> 4 != 4 {
            return Err(Ipv4Error::Version);
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        let options_len = header_len.checked_sub(HEADER_LEN).ok_or(Ipv4Error::HeaderLength)?;
        let options = rest.get(..options_len).ok_or(Ipv4Error::Truncated)?;
        let total_len = usize::from(field::word::<2, _>(fixed));
        if total_len < header_len {
            return Err(Ipv4Error::TotalLengthShort);
        }
        if total_len > packet_len {
            return Err(Ipv4Error::TotalLengthLong);
        }
        Ok(Self { fixed, options })
    }

    #[inline]
    fn sum(&self) -> InternetSum {
        let fixed = header20(self.fixed);
        if self.options.is_empty() { fixed } else { fixed.add(sum_options(self.options)) }
    }

    /// The differentiated services code point.
    #[inline]
    #[must_use]
    pub const fn dscp(&self) -> Dscp {
        Dscp::of_traffic_class(self.fixed[1])
    }

    /// The congestion notification field.
    #[inline]
    #[must_use]
    pub const fn ecn(&self) -> Ecn {
        Ecn::of_traffic_class(self.fixed[1])
    }

    /// The bytes of the header with its options: where the payload begins.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// The bytes of the packet, header included; at least [`Ipv4Header::header_len`].
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> usize {
        usize::from(field::word::<2, _>(self.fixed))
    }

    /// The bytes after the header.
    #[inline]
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.total_len() - self.header_len()
    }

    /// The identification, which means something for fragments only (RFC 6864).
    #[inline]
    #[must_use]
    pub fn id(&self) -> u16 {
        field::word::<4, _>(self.fixed)
    }

    /// Whether routers must not fragment the packet.
    #[inline]
    #[must_use]
    pub const fn dont_fragment(&self) -> bool {
        self.fixed[6] & 0x40 != 0
    }

    /// Whether more fragments follow this one.
    #[inline]
    #[must_use]
    pub const fn more_fragments(&self) -> bool {
        self.fixed[6] & 0x20 != 0
    }

    /// Where this fragment belongs in the original payload, in bytes: 0 to 65,528.
    #[inline]
    #[must_use]
    pub fn fragment_offset(&self) -> usize {
        usize::from(field::word::<6, _>(self.fixed) & 0x1fff) * 8
    }

    /// Whether this is a fragment and not a whole packet.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        field::word::<6, _>(self.fixed) & 0x3fff != 0
    }

    /// The time to live, in hops.
    #[inline]
    #[must_use]
    pub const fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// What the payload is.
    #[inline]
    #[must_use]
    pub const fn protocol(&self) -> IpProtocol {
        IpProtocol(self.fixed[9])
    }

    /// The source of the packet, unverified.
    #[inline]
    #[must_use]
    pub fn src_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(field::bytes::<12, 4, _>(self.fixed))
    }

    /// The destination of the packet.
    #[inline]
    #[must_use]
    pub fn dst_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(field::bytes::<16, 4, _>(self.fixed))
    }

    /// The options, to be iterated over.
    #[inline]
    #[must_use]
    pub const fn options(&self) -> Ipv4Options<'a> {
        Ipv4Options::new(self.options)
    }

    /// The bytes of the options, 0 to 40.
    #[inline]
    #[must_use]
    pub const fn options_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// The sum of the pseudo-header for an upper layer of `len` bytes.
    #[inline]
    pub fn pseudo_header(&self, protocol: IpProtocol, len: u16) -> InternetSum {
        pseudo_header_v4(self.src_addr(), self.dst_addr(), protocol.0, len)
    }

    /// The values, for building an equal header (its options apart).
    #[must_use]
    pub fn fields(&self) -> Ipv4Fields {
        Ipv4Fields {
            dscp: self.dscp(),
            ecn: self.ecn(),
            total_len: field::word::<2, _>(self.fixed),
            id: self.id(),
            dont_fragment: self.dont_fragment(),
            more_fragments: self.more_fragments(),
            fragment_offset: field::word::<6, _>(self.fixed) << 3,
            ttl: self.ttl(),
            protocol: self.protocol(),
            src_addr: self.src_addr(),
            dst_addr: self.dst_addr(),
        }
    }
}

/// The values of an IPv4 header to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Fields {
    /// The differentiated services code point.
    pub dscp: Dscp,
    /// The congestion notification field.
    pub ecn: Ecn,
    /// The bytes of the packet, header and options included; written as it is.
    pub total_len: u16,
    /// The identification.
    pub id: u16,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Whether more fragments follow.
    pub more_fragments: bool,
    /// Where the payload belongs, in bytes; the low three bits are not sent.
    pub fragment_offset: u16,
    /// The time to live, in hops.
    pub ttl: u8,
    /// What the payload is.
    pub protocol: IpProtocol,
    /// The source.
    pub src_addr: Ipv4Addr,
    /// The destination.
    pub dst_addr: Ipv4Addr,
}

impl Ipv4Fields {
    /// An unfragmented, best-effort packet of `total_len` bytes.
    #[must_use]
    pub const fn new(
        src_addr: Ipv4Addr,
        dst_addr: Ipv4Addr,
        protocol: IpProtocol,
        ttl: u8,
        total_len: u16,
    ) -> Self {
        Self {
            dscp: Dscp::DEFAULT,
            ecn: Ecn::NotCapable,
            total_len,
            id: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl,
            protocol,
            src_addr,
            dst_addr,
        }
    }

    /// Writes a header without options, checksum included.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let [first, second, last] = self.lanes(5);
        let sum = InternetSum::of_u64(first)
            .add(InternetSum::of_u64(second))
            .add(InternetSum::of_u64(last));
        put_lanes([first, second | u64::from(sum.finish()) << 32, last], out);
    }

    /// Writes a header with `options` (up to 40 bytes, padded with zeros to a multiple of four)
    /// at the front of `out`, checksum included; returns its length.
    ///
    /// # Errors
    /// If `out` cannot hold the header; 60 bytes always can. Options over 40 bytes are reported
    /// the same way, since no header holds them.
    pub fn emit_with_options(
        &self,
        options: &[u8],
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let len = HEADER_LEN + options.len().next_multiple_of(4);
        let short = BufferTooShort { needed: len };
        if len > HEADER_LEN_MAX {
            return Err(short);
        }
        let header = out.get_mut(..len).ok_or(short)?;
        header.fill(0);
        let (fixed, rest) = header.split_first_chunk_mut::<HEADER_LEN>().ok_or(short)?;
        self.emit_fixed((len / 4) as u8, fixed);
        rest.get_mut(..options.len()).ok_or(short)?.copy_from_slice(options);
        let check = header20(fixed).add(sum(rest)).finish();
        field::put_word::<10, _>(fixed, check);
        Ok(len)
    }

    #[inline]
    fn emit_fixed(&self, words: u8, out: &mut [u8; HEADER_LEN]) {
        put_lanes(self.lanes(words), out);
    }

    /// The fixed part as numbers of eight, eight and four bytes, its checksum zero: still in
    /// registers, so that their sum need not wait for stores.
    #[inline]
    fn lanes(&self, words: u8) -> [u64; 3] {
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        let head = u64::from(0x40 | words) << 56 | u64::from(self.dscp.with_ecn(self.ecn)) << 48;
        let place = u64::from(self.id) << 16 | u64::from(flags | self.fragment_offset >> 3);
        let first = head | u64::from(self.total_len) << 32 | place;
        let second = u64::from(self.ttl) << 56 | u64::from(self.protocol.0) << 48;
        [first, second | u64::from(self.src_addr.to_bits()), self.dst_addr.to_bits().into()]
    }
}

/// Writes a fixed part.
#[inline]
fn put_lanes([first, second, last]: [u64; 3], out: &mut [u8; HEADER_LEN]) {
    field::put::<0, 8, _>(out, first.to_be_bytes());
    field::put::<8, 8, _>(out, second.to_be_bytes());
    field::put::<16, 4, _>(out, (last as u32).to_be_bytes());
}
