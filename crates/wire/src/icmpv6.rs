//! ICMP for IPv6: echo and errors; neighbor discovery is in `ndp.rs`.
//!
//! Called by `ip` (answering, errors), by the engines (errors about their packets), `pktgen`
//! and the tests. Invariant: an [`Icmpv6Header`] has its eight bytes; their content is an
//! [`Icmpv6Message`], any type and code being a value. Read first: RFC 4443 sections 2 to 4,
//! RFC 8883 (codes for limits). Not here: the quoted packet, which is unchecked bytes for the
//! IP parsers again.

use floodwall_checksum::InternetSum;
use thiserror::Error;

use crate::field;
use crate::icmpv4::two;

/// The bytes of the header of every message.
pub const HEADER_LEN: usize = 8;

/// The type of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Icmpv6Type(pub u8);

impl Icmpv6Type {
    /// A packet could not be delivered.
    pub const DESTINATION_UNREACHABLE: Self = Self(1);
    /// A packet did not fit a link.
    pub const PACKET_TOO_BIG: Self = Self(2);
    /// A packet lived too long.
    pub const TIME_EXCEEDED: Self = Self(3);
    /// A packet's headers are in error.
    pub const PARAMETER_PROBLEM: Self = Self(4);
    /// Please answer.
    pub const ECHO_REQUEST: Self = Self(128);
    /// The answer to an echo request.
    pub const ECHO_REPLY: Self = Self(129);
    /// Multicast listener query (RFC 9777).
    pub const LISTENER_QUERY: Self = Self(130);
    /// Multicast listener report, version 1 (RFC 2710).
    pub const LISTENER_REPORT_V1: Self = Self(131);
    /// Multicast listener done, version 1 (RFC 2710).
    pub const LISTENER_DONE_V1: Self = Self(132);
    /// Router solicitation (RFC 4861).
    pub const ROUTER_SOLICITATION: Self = Self(133);
    /// Router advertisement (RFC 4861).
    pub const ROUTER_ADVERTISEMENT: Self = Self(134);
    /// Neighbor solicitation (RFC 4861).
    pub const NEIGHBOR_SOLICITATION: Self = Self(135);
    /// Neighbor advertisement (RFC 4861).
    pub const NEIGHBOR_ADVERTISEMENT: Self = Self(136);
    /// There is a better first hop (RFC 4861).
    pub const REDIRECT: Self = Self(137);
    /// Multicast listener report, version 2 (RFC 9777).
    pub const LISTENER_REPORT_V2: Self = Self(143);

    /// Whether the message is an error: never to be answered with an error (RFC 4443 section
    /// 2.4(e)).
    #[inline]
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 < 128
    }

    /// Whether the message belongs to MLD: hop limit 1, router alert.
    #[inline]
    #[must_use]
    pub const fn is_group_membership(self) -> bool {
        matches!(
            self,
            Self::LISTENER_QUERY
                | Self::LISTENER_REPORT_V1
                | Self::LISTENER_DONE_V1
                | Self::LISTENER_REPORT_V2
        )
    }

    /// Whether the message belongs to neighbor discovery: hop limit 255, never fragmented.
    #[inline]
    #[must_use]
    pub const fn is_neighbor_discovery(self) -> bool {
        self.0 >= Self::ROUTER_SOLICITATION.0 && self.0 <= Self::REDIRECT.0
    }
}

/// Why a packet could not be delivered (RFC 4443 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnreachableCode(pub u8);

impl UnreachableCode {
    /// No route to the destination.
    pub const NO_ROUTE: Self = Self(0);
    /// Forbidden by an administrator.
    pub const PROHIBITED: Self = Self(1);
    /// The source address cannot go where the destination is.
    pub const BEYOND_SCOPE: Self = Self(2);
    /// The host does not answer on its link.
    pub const ADDRESS: Self = Self(3);
    /// The port has no listener.
    pub const PORT: Self = Self(4);
    /// The source address failed a policy.
    pub const SOURCE_POLICY: Self = Self(5);
    /// The route is a reject route.
    pub const REJECT_ROUTE: Self = Self(6);
    /// The header chain is too long for this node (RFC 8883 section 3).
    pub const HEADERS_TOO_LONG: Self = Self(8);
}

/// What lived too long (RFC 4443 section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimeExceededCode(pub u8);

impl TimeExceededCode {
    /// The hop limit ran out on the way.
    pub const HOP_LIMIT: Self = Self(0);
    /// Fragments did not all come in time.
    pub const REASSEMBLY: Self = Self(1);
}

/// What is wrong with a header (RFC 4443 section 3.4 and later RFCs).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ParameterProblemCode(pub u8);

impl ParameterProblemCode {
    /// A field has an impossible value.
    pub const ERRONEOUS_FIELD: Self = Self(0);
    /// A next header is not known.
    pub const UNRECOGNIZED_NEXT_HEADER: Self = Self(1);
    /// An option is not known, and its type requires an error.
    pub const UNRECOGNIZED_OPTION: Self = Self(2);
    /// A first fragment lacks part of the header chain (RFC 7112).
    pub const INCOMPLETE_CHAIN: Self = Self(3);
    /// A router does not know a next header (RFC 8883 section 2.1).
    pub const UNRECOGNIZED_BY_ROUTER: Self = Self(5);
    /// An extension header is too big (RFC 8883 section 2.2).
    pub const HEADER_TOO_BIG: Self = Self(6);
    /// The chain of extension headers has too many bytes (RFC 8883 section 2.3).
    pub const CHAIN_TOO_LONG: Self = Self(7);
    /// The chain has too many headers (RFC 8883 section 2.4).
    pub const TOO_MANY_HEADERS: Self = Self(8);
    /// A header has too many options (RFC 8883 section 2.5).
    pub const TOO_MANY_OPTIONS: Self = Self(9);
    /// An option, or a run of padding, is too big (RFC 8883 section 2.6).
    pub const OPTION_TOO_BIG: Self = Self(10);
}

/// The content of a message: the type, the code, and the four bytes after the checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Icmpv6Message {
    /// A packet could not be delivered; the body quotes it.
    DestinationUnreachable {
        /// Why.
        code: UnreachableCode,
    },
    /// A packet did not fit a link; the body quotes it.
    PacketTooBig {
        /// The link's MTU in bytes.
        mtu: u32,
    },
    /// A packet lived too long; the body quotes it.
    TimeExceeded {
        /// In which way.
        code: TimeExceededCode,
    },
    /// A packet's headers are in error; the body quotes it.
    ParameterProblem {
        /// In which way.
        code: ParameterProblemCode,
        /// The offset of the wrong byte in the quoted packet.
        pointer: u32,
    },
    /// Please answer.
    EchoRequest {
        /// Identifies the requesting program.
        id: u16,
        /// Which request.
        seq: u16,
    },
    /// The answer to an echo request; the body is that of the request.
    EchoReply {
        /// Identifies the requesting program.
        id: u16,
        /// Which request.
        seq: u16,
    },
    /// Anything else: neighbor discovery, and echoes with a code other than zero, among it.
    Unknown {
        /// The type.
        kind: Icmpv6Type,
        /// The code.
        code: u8,
        /// The four bytes after the checksum.
        rest: [u8; 4],
    },
}

impl Icmpv6Message {
    const fn of(kind: Icmpv6Type, code: u8, rest: [u8; 4]) -> Self {
        let [a, b, c, d] = rest;
        let (id, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let long = u32::from_be_bytes(rest);
        match (kind, code) {
            (Icmpv6Type::DESTINATION_UNREACHABLE, _) => {
                Self::DestinationUnreachable { code: UnreachableCode(code) }
            }
            // "Set to 0 by the originator and ignored by the receiver" (RFC 4443 section 3.2).
            (Icmpv6Type::PACKET_TOO_BIG, _) => Self::PacketTooBig { mtu: long },
            (Icmpv6Type::TIME_EXCEEDED, _) => Self::TimeExceeded { code: TimeExceededCode(code) },
            (Icmpv6Type::PARAMETER_PROBLEM, _) => {
                Self::ParameterProblem { code: ParameterProblemCode(code), pointer: long }
            }
            (Icmpv6Type::ECHO_REQUEST, 0) => Self::EchoRequest { id, seq },
            (Icmpv6Type::ECHO_REPLY, 0) => Self::EchoReply { id, seq },
            _ => Self::Unknown { kind, code, rest },
        }
    }

    /// The type, the code, and the four bytes after the checksum.
    #[must_use]
    pub const fn parts(&self) -> (Icmpv6Type, u8, [u8; 4]) {
        match *self {
            Self::DestinationUnreachable { code } => {
                (Icmpv6Type::DESTINATION_UNREACHABLE, code.0, [0; 4])
            }
            Self::PacketTooBig { mtu } => (Icmpv6Type::PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Self::TimeExceeded { code } => (Icmpv6Type::TIME_EXCEEDED, code.0, [0; 4]),
            Self::ParameterProblem { code, pointer } => {
                (Icmpv6Type::PARAMETER_PROBLEM, code.0, pointer.to_be_bytes())
            }
            Self::EchoRequest { id, seq } => (Icmpv6Type::ECHO_REQUEST, 0, two(id, seq)),
            Self::EchoReply { id, seq } => (Icmpv6Type::ECHO_REPLY, 0, two(id, seq)),
            Self::Unknown { kind, code, rest } => (kind, code, rest),
        }
    }

    /// Writes the header, checksum included, given the sums of the pseudo-header (with the
    /// length of header and body) and of the body behind the header.
    #[inline]
    pub fn emit(&self, pseudo_header: InternetSum, body: InternetSum, out: &mut [u8; HEADER_LEN]) {
        let (kind, code, rest) = self.parts();
        field::put::<0, 4, _>(out, [kind.0, code, 0, 0]);
        field::put::<4, 4, _>(out, rest);
        let check = pseudo_header.add(floodwall_checksum::sum(out)).add(body).finish();
        field::put_word::<2, _>(out, check);
    }
}

/// Why bytes are not an ICMPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Icmpv6Error {
    /// Fewer than 8 contiguous bytes.
    #[error("the ICMPv6 header is cut short")]
    Truncated,
}

/// A checked ICMPv6 header.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6Header<'a> {
    fixed: &'a [u8; HEADER_LEN],
}

impl<'a> Icmpv6Header<'a> {
    /// Takes the header at the front of `bytes`.
    ///
    /// # Errors
    /// See [`Icmpv6Error`]. The checksum is not looked at: see [`Icmpv6Header::verifies`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Icmpv6Error> {
        let fixed = bytes.first_chunk::<HEADER_LEN>().ok_or(Icmpv6Error::Truncated)?;
        Ok(Self { fixed })
    }

    /// The type.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> Icmpv6Type {
        Icmpv6Type(self.fixed[0])
    }

    /// The code.
    #[inline]
    #[must_use]
    pub const fn code(&self) -> u8 {
        self.fixed[1]
    }

    /// The content of the message.
    #[inline]
    #[must_use]
    pub fn message(&self) -> Icmpv6Message {
        Icmpv6Message::of(self.kind(), self.code(), field::bytes::<4, 4, _>(self.fixed))
    }

    /// Whether the checksum is right, given the sums of the pseudo-header (with the length of
    /// the whole message) and of the bytes behind the header, to the end of the IP payload.
    #[inline]
    #[must_use]
    pub fn verifies(&self, pseudo_header: InternetSum, body: InternetSum) -> bool {
        pseudo_header.add(floodwall_checksum::sum(self.fixed)).add(body).verifies()
    }
}
