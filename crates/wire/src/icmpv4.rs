//! ICMP for IPv4: echo and errors.
//!
//! Called by `ip` (answering, errors), by the engines (errors about their packets), `pktgen`
//! and the tests. Invariant: an [`Icmpv4Header`] has its eight bytes; their content is an
//! [`Icmpv4Message`], any type and code being a value. Read first: RFC 792, RFC 1191 section 4
//! (the MTU in "fragmentation needed"), RFC 1122 section 3.2.2. Not here: the quoted packet,
//! which is unchecked bytes for the IP parsers again.

use core::net::Ipv4Addr;

use floodwall_checksum::InternetSum;
use thiserror::Error;

use crate::field;

/// The bytes of the header of every message.
pub const HEADER_LEN: usize = 8;

/// The type of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Icmpv4Type(pub u8);

impl Icmpv4Type {
    /// The answer to an echo request.
    pub const ECHO_REPLY: Self = Self(0);
    /// A packet could not be delivered.
    pub const DESTINATION_UNREACHABLE: Self = Self(3);
    /// Deprecated by RFC 6633: ignored.
    pub const SOURCE_QUENCH: Self = Self(4);
    /// There is a better first hop.
    pub const REDIRECT: Self = Self(5);
    /// Please answer.
    pub const ECHO_REQUEST: Self = Self(8);
    /// A packet lived too long.
    pub const TIME_EXCEEDED: Self = Self(11);
    /// A packet's header is in error.
    pub const PARAMETER_PROBLEM: Self = Self(12);

    /// Whether the message is about another packet: never to be answered with an error
    /// (RFC 1122 section 3.2.2).
    #[inline]
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Self::DESTINATION_UNREACHABLE
                | Self::SOURCE_QUENCH
                | Self::REDIRECT
                | Self::TIME_EXCEEDED
                | Self::PARAMETER_PROBLEM
        )
    }
}

/// Why a packet could not be delivered (RFC 792, RFC 1812 section 5.2.7.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnreachableCode(pub u8);

impl UnreachableCode {
    /// No route to the network.
    pub const NETWORK: Self = Self(0);
    /// The host does not answer on its link.
    pub const HOST: Self = Self(1);
    /// The host does not support the protocol.
    pub const PROTOCOL: Self = Self(2);
    /// The port has no listener.
    pub const PORT: Self = Self(3);
    /// The packet is too big and must not be fragmented.
    pub const FRAGMENTATION_NEEDED: Self = Self(4);
    /// A source route failed.
    pub const SOURCE_ROUTE_FAILED: Self = Self(5);
    /// Forbidden by an administrator.
    pub const PROHIBITED: Self = Self(13);
}

/// What lived too long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimeExceededCode(pub u8);

impl TimeExceededCode {
    /// The time to live ran out on the way.
    pub const TTL: Self = Self(0);
    /// Fragments did not all come in time.
    pub const REASSEMBLY: Self = Self(1);
}

/// The content of a message: the type, the code, and the four bytes after the checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Icmpv4Message {
    /// The answer to an echo request; the body is that of the request.
    EchoReply {
        /// Identifies the requesting program.
        id: u16,
        /// Which request.
        seq: u16,
    },
    /// A packet could not be delivered; the body quotes it.
    DestinationUnreachable {
        /// Why.
        code: UnreachableCode,
        /// The next link's MTU in bytes, with [`UnreachableCode::FRAGMENTATION_NEEDED`]; zero
        /// from routers older than RFC 1191.
        next_hop_mtu: u16,
    },
    /// There is a better first hop; the body quotes the packet.
    Redirect {
        /// For what: 0 network, 1 host, 2 and 3 the same for a type of service.
        code: u8,
        /// The better hop.
        gateway: Ipv4Addr,
    },
    /// Please answer.
    EchoRequest {
        /// Identifies the requesting program.
        id: u16,
        /// Which request.
        seq: u16,
    },
    /// A packet lived too long; the body quotes it.
    TimeExceeded {
        /// In which way.
        code: TimeExceededCode,
    },
    /// A packet's header is in error; the body quotes it.
    ParameterProblem {
        /// 0: the pointer shows it; 1: an option is missing; 2: bad length.
        code: u8,
        /// The offset of the wrong byte in the quoted packet.
        pointer: u8,
    },
    /// Anything else, echoes with a code other than zero among it.
    Unknown {
        /// The type.
        kind: Icmpv4Type,
        /// The code.
        code: u8,
        /// The four bytes after the checksum.
        rest: [u8; 4],
    },
}

impl Icmpv4Message {
    const fn of(kind: Icmpv4Type, code: u8, rest: [u8; 4]) -> Self {
        let [a, b, c, d] = rest;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match (kind, code) {
            (Icmpv4Type::ECHO_REPLY, 0) => Self::EchoReply { id: first, seq: second },
            (Icmpv4Type::DESTINATION_UNREACHABLE, _) => {
                Self::DestinationUnreachable { code: UnreachableCode(code), next_hop_mtu: second }
            }
            (Icmpv4Type::REDIRECT, _) => {
                Self::Redirect { code, gateway: Ipv4Addr::from_octets(rest) }
            }
            (Icmpv4Type::ECHO_REQUEST, 0) => Self::EchoRequest { id: first, seq: second },
            (Icmpv4Type::TIME_EXCEEDED, _) => Self::TimeExceeded { code: TimeExceededCode(code) },
            (Icmpv4Type::PARAMETER_PROBLEM, _) => Self::ParameterProblem { code, pointer: a },
            _ => Self::Unknown { kind, code, rest },
        }
    }

    /// The type, the code, and the four bytes after the checksum.
    #[must_use]
    pub const fn parts(&self) -> (Icmpv4Type, u8, [u8; 4]) {
        match *self {
            Self::EchoReply { id, seq } => (Icmpv4Type::ECHO_REPLY, 0, two(id, seq)),
            Self::DestinationUnreachable { code, next_hop_mtu } => {
                (Icmpv4Type::DESTINATION_UNREACHABLE, code.0, two(0, next_hop_mtu))
            }
            Self::Redirect { code, gateway } => (Icmpv4Type::REDIRECT, code, gateway.octets()),
            Self::EchoRequest { id, seq } => (Icmpv4Type::ECHO_REQUEST, 0, two(id, seq)),
            Self::TimeExceeded { code } => (Icmpv4Type::TIME_EXCEEDED, code.0, [0; 4]),
            Self::ParameterProblem { code, pointer } => {
                (Icmpv4Type::PARAMETER_PROBLEM, code, [pointer, 0, 0, 0])
            }
            Self::Unknown { kind, code, rest } => (kind, code, rest),
        }
    }

    /// Writes the header, checksum included, given the sum of the body behind it.
    #[inline]
    pub fn emit(&self, body: InternetSum, out: &mut [u8; HEADER_LEN]) {
        let (kind, code, rest) = self.parts();
        field::put::<0, 4, _>(out, [kind.0, code, 0, 0]);
        field::put::<4, 4, _>(out, rest);
        let check = floodwall_checksum::sum(out).add(body).finish();
        field::put_word::<2, _>(out, check);
    }
}

#[inline]
pub(crate) const fn two(first: u16, second: u16) -> [u8; 4] {
    ((first as u32) << 16 | second as u32).to_be_bytes()
}

/// Why bytes are not an ICMPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Icmpv4Error {
    /// Fewer than 8 contiguous bytes.
    #[error("the ICMP header is cut short")]
    Truncated,
}

/// A checked ICMPv4 header.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv4Header<'a> {
    fixed: &'a [u8; HEADER_LEN],
}

impl<'a> Icmpv4Header<'a> {
    /// Takes the header at the front of `bytes`.
    ///
    /// # Errors
    /// See [`Icmpv4Error`]. The checksum is not looked at: see [`Icmpv4Header::verifies`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Icmpv4Error> {
        let fixed = bytes.first_chunk::<HEADER_LEN>().ok_or(Icmpv4Error::Truncated)?;
        Ok(Self { fixed })
    }

    /// The type.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> Icmpv4Type {
        Icmpv4Type(self.fixed[0])
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
    pub fn message(&self) -> Icmpv4Message {
        Icmpv4Message::of(self.kind(), self.code(), field::bytes::<4, 4, _>(self.fixed))
    }

    /// Whether the checksum is right, given the sum of the bytes behind the header, to the end
    /// of the IP payload.
    #[inline]
    #[must_use]
    pub fn verifies(&self, body: InternetSum) -> bool {
        floodwall_checksum::sum(self.fixed).add(body).verifies()
    }
}
