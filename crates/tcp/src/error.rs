//! What goes wrong for an application: why a connection ended, and why a call was refused.
//!
//! Every variant names the `std::io::ErrorKind` that programs expect of a socket. Invariant: a
//! packet is never an error; these are told to callers only.

use std::io::ErrorKind;

use thiserror::Error;

use crate::id::Gone;

/// Why a connection ended before its time. Given to the application once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer has nobody who listens, or refuses.
    #[error("connection refused by the peer")]
    Refused,
    /// The peer reset the connection.
    #[error("connection reset by the peer")]
    Reset,
    /// Nothing was heard of the peer for too long.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// It was given up here.
    #[error("connection aborted")]
    Aborted,
    /// No way leads there (told by routers while the connection was being opened).
    #[error("no route to the host")]
    Unreachable,
}

impl ConnectionError {
    /// What programs know it as.
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
    /// All places are taken.
    #[error("no more connections: raise connections_max")]
    TooMany,
    /// The same four-tuple is in use.
    #[error("a connection between these ends exists")]
    InUse,
    /// Both ends must be of one family, and neither may be a group.
    #[error("these addresses cannot be the ends of a connection")]
    InvalidAddress,
    /// Every port of the range is taken, towards this peer.
    #[error("no ephemeral port is free towards this peer")]
    NoPort,
}

/// Why a listener was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// All places are taken.
    #[error("no more listeners")]
    TooMany,
    /// Somebody listens there.
    #[error("the address is in use")]
    InUse,
    /// A group cannot be listened at.
    #[error("this address cannot be listened at")]
    InvalidAddress,
}

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecvError {
    /// The connection is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// It ended before its time; given once, after all that was received.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Nothing waits.
    #[error("nothing waits to be read")]
    WouldBlock,
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The connection is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// It ended before its time; given once.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Our side is closed, or the peer has gone.
    #[error("this side of the connection is closed")]
    Closed,
    /// As much is on its way as may be.
    #[error("the connection's send limit is reached")]
    WouldBlock,
}
