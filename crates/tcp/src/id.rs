//! `ConnectionId` and `ListenerId`: how everyone outside names a connection and a listener.
//!
//! Used by `stack` and, through it, by applications. Invariant: that of `place_id!`.

use floodwall_base::place_id;
use thiserror::Error;

place_id! {
    /// One connection of one [`crate::Tcp`]: a place and which of its owners.
    pub struct ConnectionId: "tcp";
}

place_id! {
    /// One listener of one [`crate::Tcp`]: a place and which of its owners.
    pub struct ListenerId: "listener";
}

/// The id names no open connection or listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the connection is gone")]
pub struct Gone;
