//! `ConnectionId` and `ListenerId`: how everyone outside names a connection and a listener.
//!
//! Used by `stack` and, through it, by applications. Invariant: an id whose owner has gone gives an
//! error, never another's connection, because each place counts its owners.

use core::fmt;

use thiserror::Error;

/// One connection of one [`crate::Tcp`]: a place and which of its owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnectionId {
    /// The place, below the set's `connections_max`: for side tables of the caller.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The id as one number.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`ConnectionId::to_u64`]. A made-up number names a connection or none.
    #[must_use]
    pub const fn from_u64(id: u64) -> Self {
        Self { index: id as u32, generation: (id >> 32) as u32 }
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp{}.{}", self.index, self.generation)
    }
}

/// One listener of one [`crate::Tcp`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl fmt::Debug for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener{}.{}", self.index, self.generation)
    }
}

/// The id names no open connection or listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the connection is gone")]
pub struct Gone;
