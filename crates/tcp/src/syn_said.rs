//! `SynSaid`: what a connection's SYN said, kept for the application.
//!
//! Made by `table/half_open.rs` when a handshake completes. Plain data.

use floodwall_syncache::{Proven, ProvenBy};

/// The options of a client's SYN, as far as its handshake preserved them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynSaid {
    /// Whether an entry of the cache stored them, or a cookie, which rounds the segment size down.
    pub by: ProvenBy,
    /// The client's MSS, at least the floor.
    pub mss: u16,
    /// The window of the SYN; unknown for a cookie.
    pub window: Option<u16>,
    /// The client's window scale.
    pub window_scale: Option<u8>,
    /// Selective acknowledgments are permitted.
    pub sack: bool,
    /// Timestamps were offered.
    pub timestamps: bool,
    /// ECN is in use.
    pub ecn: bool,
    /// How often our SYN-ACK was retransmitted before the client's ACK.
    pub retransmitted: u8,
}

impl SynSaid {
    pub(crate) fn of(proven: &Proven) -> Self {
        Self {
            by: proven.by(),
            mss: proven.mss().0,
            window: proven.peer_window(),
            window_scale: proven.window_scale().map(|(theirs, _)| theirs),
            sack: proven.sack(),
            timestamps: proven.timestamps().is_some(),
            ecn: proven.ecn(),
            retransmitted: proven.retransmitted(),
        }
    }
}
