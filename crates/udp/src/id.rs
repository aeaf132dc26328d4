//! `SocketId`: the handle of a socket outside this crate.
//!
//! Used by `stack` and, through it, by applications. Invariant: that of `place_id!`.

use floodwall_base::place_id;
use thiserror::Error;

place_id! {
    /// One socket of one [`crate::Udp`]: a place and which of its owners.
    pub struct SocketId: "udp";
}

/// The id names no open socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the socket is closed")]
pub struct SocketClosed;
