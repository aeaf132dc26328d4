//! The walk over a packet's IPv6 extension headers, with limits, without input or output.
//!
//! Called by `ip/input.rs` on scattered packets (it returns which bytes it needs next and is fed
//! them) and by `validate.rs` and `show.rs` on contiguous ones. Nothing is recursive: one header
//! per step, at most [`ExtensionLimits::headers_max`] of them. What a bad packet's sender is owed
//! is data in the error; whether to pay (rate, addresses) is the caller's decision.
//!
//! Invariants: each step moves the offset forward by at least eight bytes or ends the walk; no
//! step looks at more than `chain_bytes_max` bytes; feeding piecewise or contiguously gives the
//! same result. A router that forwards feeds at most the hop-by-hop header.
//!
//! Read first: RFC 8200 sections 4.1 to 4.7, RFC 8504 section 5.3 (limits), RFC 8883 (codes),
//! RFC 7112 (first fragments), RFC 5095 (routing type 0), RFC 2675 (jumbograms, refused here).
//!
//! # Under flood
//! Reachable by any sender. Bound: [`ExtensionLimits`], by default 8 headers with 8 options and
//! 1,500 bytes total. Worst work per packet: one look at each option and each padding byte up to
//! those bounds. When over: the packet goes. Honest traffic loses nothing: RFC 8504 gives the same
//! defaults to every host.

use floodwall_base::limits;
use thiserror::Error;

use crate::icmpv6::ParameterProblemCode as Code;
use crate::ipv6::{HEADER_LEN, Ipv6Header};
use crate::ipv6_ext::{self, ExtensionHeader, FragmentFields, HEADER_LEN_MIN};
use crate::ipv6_options::{Ipv6Option, Ipv6Options, JUMBO_PAYLOAD, OptionAction};
use crate::protocol::IpProtocol;

/// Where the fixed header announces what follows it.
const NEXT_HEADER_AT: usize = 6;

/// How far a walk goes before it gives a packet up (RFC 8504 section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtensionLimits {
    /// The most extension headers.
    pub headers_max: usize,
    /// The most options other than padding in one header.
    pub options_max: usize,
    /// The most consecutive bytes of padding.
    pub padding_max: usize,
    /// The most bytes of all extension headers together.
    pub chain_bytes_max: usize,
}

impl Default for ExtensionLimits {
    fn default() -> Self {
        Self {
            headers_max: limits::EXTENSION_HEADERS_MAX,
            options_max: limits::EXTENSION_OPTIONS_MAX,
            padding_max: limits::EXTENSION_PADDING_MAX,
            chain_bytes_max: limits::EXTENSION_BYTES_MAX,
        }
    }
}

/// Bytes that the walk wants contiguous and fed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Want {
    /// Their offset from the first byte of the IPv6 header.
    pub offset: usize,
    /// How many; never past the end of the packet, so zero when it ends too early.
    pub len: usize,
}

/// What feeding brought.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The header is longer than what was fed: call [`ExtensionWalk::wants`] again.
    More,
    /// One header, checked.
    Header {
        /// The header.
        header: ExtensionHeader<'a>,
        /// Its offset from the first byte of the IPv6 header.
        offset: usize,
        /// The offset of the next-header field that announced it.
        announced_at: usize,
    },
    /// The walk was over before anything was fed.
    End(WalkEnd),
}

/// How a walk ended well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WalkEnd {
    /// The upper layer begins; ESP and unknown protocols count as such.
    UpperLayer {
        /// Which protocol.
        protocol: IpProtocol,
        /// Its offset from the first byte of the IPv6 header.
        offset: usize,
        /// The offset of the next-header field that announced it: the pointer for an
        /// "unrecognized next header" message.
        announced_at: usize,
    },
    /// A fragment other than the first: the rest of the chain is elsewhere.
    LaterFragment {
        /// Where its payload begins.
        offset: usize,
    },
    /// Nothing follows (RFC 8200 section 4.7); bytes behind are ignored.
    NoNextHeader {
        /// Where nothing begins.
        offset: usize,
    },
}

/// The fragment header met on the way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FragmentPlace {
    /// Its fields.
    pub fields: FragmentFields,
    /// Its offset from the first byte of the IPv6 header: how long the unfragmentable part is.
    pub offset: usize,
    /// The offset of the next-header field that announced it, which reassembly rewrites.
    pub announced_at: usize,
}

impl FragmentPlace {
    /// The place of `header`, a fragment header directly behind the IPv6 header, if what is behind
    /// it is not its datagram's first piece: what a walk would find, which goes no further.
    #[inline]
    #[must_use]
    pub fn of_later(header: &[u8; HEADER_LEN_MIN]) -> Option<Self> {
        let fields = FragmentFields::of(header);
        let place = Self { fields, offset: HEADER_LEN, announced_at: NEXT_HEADER_AT };
        (fields.offset > 0).then_some(place)
    }
}

/// The ICMP error that is sent for a refused packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owed {
    /// Silence.
    Nothing,
    /// An ICMPv6 parameter problem message (RFC 4443 section 3.4).
    ParameterProblem {
        /// Its code.
        code: Code,
        /// Its pointer: an offset from the first byte of the IPv6 header.
        pointer: usize,
        /// Whether it is sent even if the packet went to a multicast address.
        to_multicast: bool,
    },
}

/// Why a header chain was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ExtensionReason {
    /// The chain has more bytes than the limit allows.
    #[error("the extension headers are too long")]
    ChainTooLong,
    /// A hop-by-hop header anywhere but first.
    #[error("a hop-by-hop header is not the first")]
    HopByHopNotFirst,
    /// A jumbo payload option that contradicts the header, or none where one must be.
    #[error("the jumbo payload option is missing or wrong")]
    JumboPayload,
    /// A valid jumbogram.
    #[error("jumbograms are not supported")]
    JumboUnsupported,
    /// An option's length is malformed or does not suit its type.
    #[error("an option's length is wrong")]
    OptionLength,
    /// More consecutive padding than the limit allows.
    #[error("too much padding")]
    PaddingTooLong,
    /// A second fragment header.
    #[error("more than one fragment header")]
    RepeatedFragment,
    /// A routing header that still wants to be followed; no type is (RFC 5095 for type 0).
    #[error("a routing header has segments left")]
    RoutingSegmentsLeft,
    /// More headers than the limit allows.
    #[error("too many extension headers")]
    TooManyHeaders,
    /// More options than the limit allows.
    #[error("too many options")]
    TooManyOptions,
    /// The packet ends inside of a header.
    #[error("an extension header is cut short")]
    Truncated,
    /// An unknown option that must not be skipped.
    #[error("an unknown option must not be skipped")]
    UnknownOption,
}

/// A refused header chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("{reason} (header at byte {offset})")]
pub struct ExtensionError {
    /// Why.
    pub reason: ExtensionReason,
    /// The offset of the extension header at fault from the first byte of the IPv6 header.
    pub offset: usize,
    /// The ICMP error for it.
    pub owed: Owed,
}

/// Whether the IPv6 header's payload length allows a jumbo payload option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JumboOption {
    Forbidden,
    Required,
}

/// A walk in progress. See the file's top for how to use it.
///
/// ```
/// use floodwall_wire::{ExtensionLimits, ExtensionWalk, IpProtocol, Step, WalkEnd};
///
/// # fn main() -> Result<(), floodwall_wire::ExtensionError> {
/// # let packet = [0u8; 48];
/// let mut walk = ExtensionWalk::new(IpProtocol::UDP, 40, 48, ExtensionLimits::default());
/// while let Some(want) = walk.wants() {
///     // A scattered packet makes these bytes contiguous first.
///     let bytes = packet.get(want.offset..want.offset + want.len).unwrap_or_default();
///     if let Step::Header { header, .. } = walk.feed(bytes)? {
///         println!("{}", header.kind());
///     }
/// }
/// assert!(matches!(walk.end(), Some(WalkEnd::UpperLayer { offset: 40, .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ExtensionWalk {
    limits: ExtensionLimits,
    packet_len: usize,
    start: usize,
    offset: usize,
    next: IpProtocol,
    announced_at: usize,
    wanted: usize,
    headers: usize,
    fragment: Option<FragmentPlace>,
    jumbo: JumboOption,
    failed: bool,
}

impl ExtensionWalk {
    /// Begins at the header `first`, which is at `offset` (40 if it directly follows the IPv6
    /// header); `packet_len` is the bytes of the whole packet, IPv6 header included.
    #[inline]
    #[must_use]
    pub const fn new(
        first: IpProtocol,
        offset: usize,
        packet_len: usize,
        limits: ExtensionLimits,
    ) -> Self {
        Self {
            limits,
            packet_len,
            start: offset,
            offset,
            next: first,
            announced_at: NEXT_HEADER_AT,
            wanted: HEADER_LEN_MIN,
            headers: 0,
            fragment: None,
            jumbo: JumboOption::Forbidden,
            failed: false,
        }
    }

    /// Begins behind `header`; `buffer_len` is the argument of [`Ipv6Header::parse`], and matters
    /// only to a payload length of zero in front of a hop-by-hop header, which must be a
    /// jumbogram (RFC 2675 section 3).
    #[inline]
    #[must_use]
    pub fn of_packet(header: &Ipv6Header<'_>, buffer_len: usize, limits: ExtensionLimits) -> Self {
        let next = header.next_header();
        let walk = Self::new(next, HEADER_LEN, header.total_len(), limits);
        if header.payload_len() == 0 && next == IpProtocol::HOP_BY_HOP {
            return Self { packet_len: buffer_len, ..walk.of_jumbogram() };
        }
        walk
    }

    /// The same for a packet with a payload length of zero in front of a hop-by-hop header, which
    /// must be a jumbogram; its length is then that of the buffer (RFC 2675 section 3).
    #[inline]
    #[must_use]
    pub const fn of_jumbogram(self) -> Self {
        Self { jumbo: JumboOption::Required, ..self }
    }

    /// The header that comes next, if the walk goes on.
    #[inline]
    #[must_use]
    pub const fn next_header(&self) -> IpProtocol {
        self.next
    }

    /// The bytes to feed next, or `None` if the walk is over.
    #[inline]
    #[must_use]
    pub fn wants(&self) -> Option<Want> {
        if self.end().is_some() || self.failed {
            return None;
        }
        let len = self.wanted.min(self.packet_len.saturating_sub(self.offset));
        Some(Want { offset: self.offset, len })
    }

    /// How the walk ended, or `None` if it goes on or failed.
    #[inline]
    #[must_use]
    pub fn end(&self) -> Option<WalkEnd> {
        let offset = self.offset;
        if self.failed {
            None
        } else if self.fragment.is_some_and(|place| !place.fields.is_first()) {
            Some(WalkEnd::LaterFragment { offset })
        } else if self.next.is_extension() {
            None
        } else if self.next == IpProtocol::NO_NEXT_HEADER {
            Some(WalkEnd::NoNextHeader { offset })
        } else {
            let (protocol, announced_at) = (self.next, self.announced_at);
            Some(WalkEnd::UpperLayer { protocol, offset, announced_at })
        }
    }

    /// The fragment header met so far, if any.
    #[inline]
    #[must_use]
    pub const fn fragment(&self) -> Option<FragmentPlace> {
        self.fragment
    }

    /// Takes the bytes requested by [`ExtensionWalk::wants`], or more of what follows them.
    ///
    /// Fewer bytes than wanted count as a packet cut short.
    ///
    /// # Errors
    /// The chain is refused; the walk is over.
    #[inline]
    pub fn feed<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, ExtensionError> {
        if let Some(end) = self.end() {
            return Ok(Step::End(end));
        }
        let step = self.advance(bytes);
        self.failed = step.is_err();
        step
    }

    /// Walks a contiguous packet (`packet` begins with the IPv6 header) to its end, showing each
    /// header with its offset to `visit`.
    ///
    /// # Errors
    /// The chain is refused.
    pub fn run<'a>(
        mut self,
        packet: &'a [u8],
        mut visit: impl FnMut(ExtensionHeader<'a>, usize),
    ) -> Result<(WalkEnd, Option<FragmentPlace>), ExtensionError> {
        loop {
            let from = self.offset.min(self.packet_len);
            match self.feed(packet.get(from..self.packet_len).unwrap_or_default())? {
                Step::End(end) => return Ok((end, self.fragment)),
                Step::Header { header, offset, .. } => visit(header, offset),
                Step::More => {}
            }
        }
    }

    fn advance<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, ExtensionError> {
        let Some(first) = bytes.first_chunk::<HEADER_LEN_MIN>() else {
            return Err(self.truncated());
        };
        let len = self.admit(first)?;
        let (offset, announced_at) = (self.offset, self.announced_at);
        let Some(header) = ExtensionHeader::take(self.next, bytes) else {
            if self.wanted == len {
                return Err(self.truncated());
            }
            self.wanted = len;
            return Ok(Step::More);
        };
        self.check(&header)?;
        self.announced_at = offset;
        self.next = header.next_header();
        self.offset += len;
        self.wanted = HEADER_LEN_MIN;
        self.headers += 1;
        Ok(Step::Header { header, offset, announced_at })
    }

    /// Checks the place and the length of a header by its first bytes.
    fn admit(&self, first: &[u8; HEADER_LEN_MIN]) -> Result<usize, ExtensionError> {
        use ExtensionReason as Reason;
        if self.next == IpProtocol::HOP_BY_HOP && self.offset != HEADER_LEN {
            let code = Code::UNRECOGNIZED_NEXT_HEADER;
            return Err(self.problem(Reason::HopByHopNotFirst, code, self.announced_at));
        }
        if self.headers >= self.limits.headers_max {
            let code = Code::TOO_MANY_HEADERS;
            return Err(self.problem(Reason::TooManyHeaders, code, self.offset));
        }
        let len = ipv6_ext::header_len(self.next, first).unwrap_or(HEADER_LEN_MIN);
        // RFC 4302 section 2: the fixed part of an authentication header alone is 12 bytes.
        let too_small = self.next == IpProtocol::AUTHENTICATION && len < 12;
        if too_small || len > self.packet_len.saturating_sub(self.offset) {
            return Err(self.truncated());
        }
        if self.offset - self.start + len > self.limits.chain_bytes_max {
            return Err(self.problem(Reason::ChainTooLong, Code::CHAIN_TOO_LONG, self.offset));
        }
        Ok(len)
    }

    fn check(&mut self, header: &ExtensionHeader<'_>) -> Result<(), ExtensionError> {
        use ExtensionReason as Reason;
        match header {
            ExtensionHeader::HopByHop(header) => self.check_hop_by_hop(header.options()),
            ExtensionHeader::DestinationOptions(header) => {
                self.check_options(header.options(), |walk, offset, option| match option {
                    Ipv6Option::Unknown { kind, .. } => walk.unknown_option(offset, kind),
                    // Both belong into the hop-by-hop header: here, the first is unknown and
                    // is marked to be skipped, the second must not be.
                    Ipv6Option::JumboPayload(_) => walk.unknown_option(offset, JUMBO_PAYLOAD),
                    _ => Ok(()),
                })
            }
            ExtensionHeader::Routing(header) if header.segments_left() > 0 => {
                let pointer = self.offset + 2;
                Err(self.problem(Reason::RoutingSegmentsLeft, Code::ERRONEOUS_FIELD, pointer))
            }
            ExtensionHeader::Fragment(fields) => {
                if self.fragment.is_some() {
                    return Err(self.silent(Reason::RepeatedFragment));
                }
                let (offset, announced_at) = (self.offset, self.announced_at);
                self.fragment = Some(FragmentPlace { fields: *fields, offset, announced_at });
                Ok(())
            }
            ExtensionHeader::Routing(_) | ExtensionHeader::Authentication(_) => Ok(()),
        }
    }

    /// Options, and RFC 2675 section 3 on what the jumbo payload option must agree with.
    fn check_hop_by_hop(&self, options: Ipv6Options<'_>) -> Result<(), ExtensionError> {
        use ExtensionReason as Reason;
        let jumbo = |pointer| self.problem(Reason::JumboPayload, Code::ERRONEOUS_FIELD, pointer);
        self.check_options(options, |walk, offset, option| match option {
            Ipv6Option::JumboPayload(_) if walk.jumbo == JumboOption::Forbidden => {
                Err(jumbo(walk.offset + offset))
            }
            Ipv6Option::JumboPayload(len) if len <= 0xffff => Err(jumbo(walk.offset + offset + 2)),
            Ipv6Option::JumboPayload(_) => Err(walk.silent(Reason::JumboUnsupported)),
            Ipv6Option::Unknown { kind, .. } => walk.unknown_option(offset, kind),
            _ => Ok(()),
        })?;
        // No option, and yet no length: the pointer is at the payload length field.
        if self.jumbo == JumboOption::Required { Err(jumbo(4)) } else { Ok(()) }
    }

    /// Goes through `options` within the limits, showing each that is not padding to `each`.
    fn check_options(
        &self,
        options: Ipv6Options<'_>,
        each: impl Fn(&Self, usize, Ipv6Option<'_>) -> Result<(), ExtensionError>,
    ) -> Result<(), ExtensionError> {
        use ExtensionReason as Reason;
        let (mut count, mut padding) = (0, 0);
        for option in options {
            let (offset, option) = option.map_err(|error| {
                let pointer = self.offset + error.offset;
                self.problem(Reason::OptionLength, Code::ERRONEOUS_FIELD, pointer + 1)
            })?;
            let pointer = self.offset + offset;
            padding = match option {
                Ipv6Option::Pad1 => padding + 1,
                Ipv6Option::PadN(len) => padding + 2 + usize::from(len),
                _ => 0,
            };
            if padding > self.limits.padding_max {
                return Err(self.problem(Reason::PaddingTooLong, Code::OPTION_TOO_BIG, pointer));
            }
            if padding == 0 {
                count += 1;
                if count > self.limits.options_max {
                    let code = Code::TOO_MANY_OPTIONS;
                    return Err(self.problem(Reason::TooManyOptions, code, pointer));
                }
                each(self, offset, option)?;
            }
        }
        Ok(())
    }

    fn unknown_option(&self, offset: usize, kind: u8) -> Result<(), ExtensionError> {
        let to_multicast = match OptionAction::of_kind(kind) {
            OptionAction::Skip => return Ok(()),
            OptionAction::Discard => return Err(self.silent(ExtensionReason::UnknownOption)),
            OptionAction::Report => true,
            OptionAction::ReportUnlessMulticast => false,
        };
        let pointer = self.offset + offset;
        let code = Code::UNRECOGNIZED_OPTION;
        let owed = Owed::ParameterProblem { code, pointer, to_multicast };
        Err(ExtensionError { owed, ..self.silent(ExtensionReason::UnknownOption) })
    }

    /// A first fragment must hold the whole chain (RFC 7112 section 5); otherwise the origin of the
    /// fragment is unclear, and no error is sent.
    #[cold]
    fn truncated(&self) -> ExtensionError {
        match self.fragment {
            Some(place) if place.fields.more => {
                self.problem(ExtensionReason::Truncated, Code::INCOMPLETE_CHAIN, 0)
            }
            _ => self.silent(ExtensionReason::Truncated),
        }
    }

    #[cold]
    const fn silent(&self, reason: ExtensionReason) -> ExtensionError {
        ExtensionError { reason, offset: self.offset, owed: Owed::Nothing }
    }

    #[cold]
    const fn problem(&self, reason: ExtensionReason, code: Code, pointer: usize) -> ExtensionError {
        let owed = Owed::ParameterProblem { code, pointer, to_multicast: false };
        ExtensionError { reason, offset: self.offset, owed }
    }
}
