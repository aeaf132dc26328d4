//! ICMP errors as a UDP socket sees them.
//!
//! The stack parses the message and its quote, checks that the quote is ours, and calls
//! [`crate::Udp::icmp_error`]. Invariant: an error reaches the application once, and only the
//! socket of the quoted flow. Read first: RFC 1122 section 4.1.3.3, RFC 8085 section 5.2.

use core::net::SocketAddr;

use floodwall_base::IfIndex;
use thiserror::Error;

use crate::id::SocketId;

/// The meaning of an ICMP message of either family for a datagram of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum IcmpError {
    /// A router or host refuses by policy.
    #[error("refused by an administrator on the way")]
    AdminProhibited,
    /// No neighbour answers there, or no route (host unreachable, address unreachable).
    #[error("the host cannot be reached")]
    HostUnreachable,
    /// No route leads there.
    #[error("the network cannot be reached")]
    NetUnreachable,
    /// The datagram exceeds the path's MTU.
    #[error("the datagram exceeds the path's MTU of {mtu} bytes")]
    PacketTooBig {
        /// Bytes of the largest packet, IP header included.
        mtu: u32,
    },
    /// Something in the headers was refused.
    #[error("the destination or a router refused a header field")]
    ParameterProblem,
    /// No socket has the port.
    #[error("the destination's port is closed")]
    PortUnreachable,
    /// The host does not support UDP.
    #[error("the destination does not support UDP")]
    ProtocolUnreachable,
    /// The hop limit ran out, or fragments were missing.
    #[error("the datagram's time ran out on the way")]
    TimeExceeded,
    /// An ICMPv6 error of a type that is unknown here (RFC 4443 section 2.4 (a)).
    #[error("an ICMPv6 error of the unknown type {kind} and code {code}")]
    Unknown {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

impl IcmpError {
    /// Whether the error is hard: a retry is pointless. Soft errors reach only sockets with
    /// `recv_errors` (RFC 1122 section 4.2.3.9 draws the same line for TCP).
    #[must_use]
    pub const fn is_hard(self) -> bool {
        matches!(
            self,
            Self::AdminProhibited
                | Self::ParameterProblem
                | Self::PortUnreachable
                | Self::ProtocolUnreachable
        )
    }
}

/// The datagram that an ICMP error quotes, from our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotedDatagram {
    /// Its source: ours.
    pub local: SocketAddr,
    /// Its destination.
    pub remote: SocketAddr,
    /// Where the ICMP message arrived: counts for link-local addresses.
    pub iface: IfIndex,
}

/// What became of an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpVerdict {
    /// The socket will report it to its application.
    Delivered(SocketId),
    /// A socket could have sent the datagram, but has such errors disabled.
    Ignored(SocketId),
    /// No socket here can have sent it: count it as `IcmpNoFlow`.
    NoFlow,
}
