//! `SocketId`: how everyone outside names a socket.
//!
//! Used by `stack` and, through it, by applications. Invariant: an id whose socket was closed
//! gives an error, never another's socket, because each place counts its owners.

use core::fmt;

use thiserror::Error;

/// One socket of one [`crate::Udp`]: a place and which of its owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SocketId {
    /// The place, below the `sockets_max` of the table: for side tables of the caller.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The id as one number.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`SocketId::to_u64`]. A made-up number names a socket or none; it harms
    /// nothing.
    #[must_use]
    pub const fn from_u64(id: u64) -> Self {
        Self { index: id as u32, generation: (id >> 32) as u32 }
    }
}

impl fmt::Debug for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp{}.{}", self.index, self.generation)
    }
}

/// The id names no open socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the socket is closed")]
pub struct SocketClosed;
