//! Errors of the application interface: why a connection ended, and why a call was refused.
//!
//! Every variant maps to the `std::io::ErrorKind` that programs expect of a socket. Invariant: a
//! packet never causes an error value by itself; errors are returned to callers only.

use std::io::ErrorKind;

use thiserror::Error;

use crate::id::StaleHandle;

/// Why a connection ended abnormally. Reported to the application once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer has no listener on the port, or refuses.
    #[error("connection refused by the peer")]
    Refused,
    /// The peer reset the connection.
    #[error("connection reset by the peer")]
    Reset,
    /// The peer did not answer for too long.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The connection was aborted locally.
    #[error("connection aborted")]
    Aborted,
    /// No route to the peer (reported by routers during the handshake).
    #[error("no route to the host")]
    Unreachable,
}

impl ConnectionError {
    /// The corresponding error kind of the standard library.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::Refused => ErrorKind::ConnectionRefused,
            Self::Reset => ErrorKind::ConnectionReset,
            Self::TimedOut => ErrorKind::TimedOut,
            Self::Aborted => ErrorKind::ConnectionAborted,
            Self::Unreachable => ErrorKind::HostUnreachable,
        }
    }
}

/// Why a connection was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The connection table is full.
    #[error("no more connections: raise connections_max")]
    TooMany,
    /// The same four-tuple is in use.
    #[error("a connection between these endpoints exists")]
    InUse,
    /// The endpoints must be of one family, and neither may be a multicast group.
    #[error("invalid endpoints for a connection")]
    InvalidAddress,
    /// Every port of the range is in use towards this peer.
    #[error("no free ephemeral port for this peer")]
    NoPort,
}

/// Why a listener was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The listener table is full.
    #[error("no more listeners")]
    TooMany,
    /// Another listener uses the address.
    #[error("the address is in use")]
    InUse,
    /// The address is a multicast group.
    #[error("cannot listen on this address")]
    InvalidAddress,
}

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecvError {
    /// The connection is gone.
    #[error(transparent)]
    Gone(#[from] StaleHandle),
    /// It ended abnormally; reported once, after all received data.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// No data is available.
    #[error("no data is available to read")]
    WouldBlock,
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The connection is gone.
    #[error(transparent)]
    Gone(#[from] StaleHandle),
    /// It ended abnormally; reported once.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The send direction is closed, or the peer is gone.
    #[error("this side of the connection is closed")]
    Closed,
    /// The send buffer is full.
    #[error("the connection's send limit is reached")]
    WouldBlock,
}
