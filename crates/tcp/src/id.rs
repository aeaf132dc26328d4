//! `ConnectionId` and `ListenerId`: the handles of connections and listeners for other crates.
//!
//! Used by `stack` and, through it, by applications. Invariant: that of `place_id!`.

use floodwall_base::place_id;
use thiserror::Error;

place_id! {
    /// A handle of one connection of one [`crate::ConnectionTable`]: a place and its generation.
    pub struct ConnectionId: "tcp";
}

place_id! {
    /// A handle of one listener of one [`crate::ConnectionTable`]: a place and its generation.
    pub struct ListenerId: "listener";
}

/// The handle refers to no open connection or listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the connection is gone")]
pub struct StaleHandle;
