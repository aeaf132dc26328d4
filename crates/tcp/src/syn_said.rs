//! `SynSaid`: what a connection's SYN said, for the application; and `SynKept`, the part of it that
//! is kept.
//!
//! Made by `table/half_open.rs` when a handshake completes. Plain data.

use floodwall_syncache::{Proven, ProvenBy};

use crate::connection::Connection;

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

/// As much of it as the connection does not know itself: 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SynKept {
    /// The window, where `flags` has [`WINDOW`].
    window: u16,
    /// A set of bits.
    flags: u8,
    retransmitted: u8,
}

/// The connection was opened by its client.
const PASSIVE: u8 = 1;
const COOKIE: u8 = 2;
const WINDOW: u8 = 4;
/// It waits in an accept queue.
const WAITS: u8 = 8;

impl SynKept {
    /// Of an active open.
    pub(crate) const NONE: Self = Self { window: 0, flags: 0, retransmitted: 0 };

    /// Nothing but whether it waits in an accept queue.
    pub(crate) const fn waiting(waits: bool) -> Self {
        Self { flags: if waits { WAITS } else { 0 }, ..Self::NONE }
    }

    #[inline(always)]
    pub(crate) const fn waits(self) -> bool {
        self.flags & WAITS != 0
    }

    /// It waits no longer; returns whether it did.
    pub(crate) const fn end_wait(&mut self) -> bool {
        let waited = self.waits();
        self.flags &= !WAITS;
        waited
    }

    /// Of a client that waits in an accept queue.
    pub(crate) fn of(proven: &Proven) -> Self {
        let mut flags = PASSIVE | WAITS;
        if proven.by() == ProvenBy::Cookie {
            flags |= COOKIE;
        }
        let window = proven.peer_window();
        if window.is_some() {
            flags |= WINDOW;
        }
        let (window, retransmitted) = (window.unwrap_or(0), proven.retransmitted());
        Self { window, flags, retransmitted }
    }

    /// What the SYN of this connection said; `None` of an active open.
    pub(crate) fn of_connection(self, connection: &Connection) -> Option<SynSaid> {
        let has = |flag| self.flags & flag != 0;
        let agreed = &connection.agreed;
        has(PASSIVE).then(|| SynSaid {
            by: if has(COOKIE) { ProvenBy::Cookie } else { ProvenBy::Cache },
            mss: agreed.peer_mss,
            window: has(WINDOW).then_some(self.window),
            window_scale: agreed.scaled.then_some(connection.snd.shift),
            sack: agreed.sack,
            timestamps: agreed.timestamps,
            ecn: agreed.ecn,
            retransmitted: self.retransmitted,
        })
    }
}
