//! `Proven`: a client that has proved that it receives packets at its address.
//!
//! Made only here, from a cache entry or from a cookie; consumed by `tcp`, which makes the
//! connection from it, and by guards (decision E22). Invariant: there is no other way to a passive
//! connection; therefore its fields are private and no other crate can construct one.

use core::time::Duration;

use floodwall_base::{FlowKey, Mss, Seq};

use crate::listener::{AcceptSlot, ListenerId};

/// How the client's address was proved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProvenBy {
    /// By an entry of the cache: all options of its SYN are known.
    Cache,
    /// By a cookie: the segment size is rounded down, and without timestamps the window scale
    /// as well.
    Cookie,
}

/// The timestamp state with which a connection starts (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProvenTimestamps {
    /// TS.Recent: the client's latest TSval.
    pub recent: u32,
    /// The latest TSval of ours that the client can have received. The connection's first TSval is
    /// at least this: the offset of its clock is this value minus the clock. Its low bits carry
    /// options, so that no round trip can be measured from the echo of a SYN-ACK more finely than
    /// 64 ticks.
    pub last_sent: u32,
}

/// A client with a proved address, and the options agreed on in the handshake.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Proven {
    pub(crate) flow: FlowKey,
    pub(crate) slot: AcceptSlot,
    pub(crate) irs: Seq,
    pub(crate) iss: Seq,
    pub(crate) mss: Mss,
    pub(crate) peer_window: Option<u16>,
    pub(crate) window_scale: Option<(u8, u8)>,
    pub(crate) sack: bool,
    pub(crate) timestamps: Option<ProvenTimestamps>,
    pub(crate) ecn: bool,
    pub(crate) retransmitted: u8,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) by: ProvenBy,
}

impl Proven {
    /// The flow.
    #[must_use]
    pub const fn flow(&self) -> &FlowKey {
        &self.flow
    }

    /// The listener that owns the connection.
    #[must_use]
    pub const fn listener(&self) -> ListenerId {
        self.slot.listener
    }

    /// Its place in the accept queue, to be released.
    #[must_use]
    pub const fn slot(&self) -> AcceptSlot {
        self.slot
    }

    /// The client's initial sequence number; RCV.NXT is one more.
    #[must_use]
    pub const fn irs(&self) -> Seq {
        self.irs
    }

    /// Our initial sequence number; SND.UNA and SND.NXT are one more.
    #[must_use]
    pub const fn iss(&self) -> Seq {
        self.iss
    }

    /// The largest segment that the client takes, at least
    /// [`floodwall_base::limits::TCP_MSS_FLOOR`].
    #[must_use]
    pub const fn mss(&self) -> Mss {
        self.mss
    }

    /// The window of the client's SYN; unknown for a cookie. The segment that proved the
    /// address has a later one.
    #[must_use]
    pub const fn peer_window(&self) -> Option<u16> {
        self.peer_window
    }

    /// The shift of the client's windows and that of ours, where both were offered; each is at
    /// most 14.
    #[must_use]
    pub const fn window_scale(&self) -> Option<(u8, u8)> {
        self.window_scale
    }

    /// Whether selective acknowledgements are permitted both ways.
    #[must_use]
    pub const fn sack(&self) -> bool {
        self.sack
    }

    /// The timestamp state, if both ends use timestamps.
    #[must_use]
    pub const fn timestamps(&self) -> Option<ProvenTimestamps> {
        self.timestamps
    }

    /// Whether ECN was agreed on (RFC 3168 section 6.1.1).
    #[must_use]
    pub const fn ecn(&self) -> bool {
        self.ecn
    }

    /// How often our SYN-ACK was retransmitted. If at all, the connection begins with one
    /// segment (RFC 5681 section 3.1), and the round-trip time was not measured.
    #[must_use]
    pub const fn retransmitted(&self) -> u8 {
        self.retransmitted
    }

    /// The round-trip time of our SYN-ACK and its answer (RFC 6298 section 2.2), never
    /// underestimated. It is overestimated by at most a quarter of a millisecond where the SYN-ACK
    /// was sent once and an entry kept it; by at most 67 ms where only the echoed timestamp gives
    /// it, because the SYN was received again or a cookie kept it. `None` where it is ambiguous: we
    /// retransmitted (Karn), or a cookie without timestamps, or a cookie of another instance.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// How the address was proved.
    #[must_use]
    pub const fn by(&self) -> ProvenBy {
        self.by
    }
}

/// The fields of a proof, for implementations other than the product's (feature `testing`).
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, PartialEq, Debug)]
#[expect(missing_docs, reason = "each is the accessor of its name")]
pub struct ProvenParts {
    pub flow: FlowKey,
    pub slot: AcceptSlot,
    pub irs: Seq,
    pub iss: Seq,
    pub mss: Mss,
    pub window_scale: Option<(u8, u8)>,
    pub sack: bool,
    pub timestamps: Option<ProvenTimestamps>,
    pub ecn: bool,
    pub retransmitted: u8,
}

#[cfg(any(test, feature = "testing"))]
impl Proven {
    /// A proof without a handshake: for baselines of the lab and for tests. No product crate
    /// enables the feature.
    #[must_use]
    pub const fn of_baseline(parts: ProvenParts) -> Self {
        let ProvenParts { flow, slot, irs, iss, mss, window_scale, sack, timestamps, ecn, .. } =
            parts;
        Self {
            flow,
            slot,
            irs,
            iss,
            mss,
            peer_window: None,
            window_scale,
            sack,
            timestamps,
            ecn,
            retransmitted: parts.retransmitted,
            round_trip: None,
            by: ProvenBy::Cache,
        }
    }
}
