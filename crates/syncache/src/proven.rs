//! `Proven`: a client that has shown that packets to its address reach it.
//!
//! Made here alone, from a cache entry or from a cookie; consumed by `tcp`, which makes the
//! connection out of it, and by guards (decision E22). Invariant: there is no other way to a
//! passive connection, so its fields are private and nothing outside of this crate makes one.

use core::time::Duration;

use floodwall_base::{FlowKey, Mss, Seq};

use crate::listener::{AcceptSlot, ListenerId};

/// What the client's address was proved by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum By {
    /// An entry of the cache: everything that its SYN said is known.
    Cache,
    /// Its acknowledgement alone: the segment size is rounded down, and without timestamps the
    /// window scale as well.
    Cookie,
}

/// Where the timestamps of a connection go on (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timestamps {
    /// TS.Recent: the client's latest.
    pub recent: u32,
    /// The latest of ours that the client can have seen. The connection's first TSval is at least
    /// this: its clock's offset is this less the clock. Its low bits carry options, so that no
    /// round trip can be measured from the echo of a SYN-ACK more finely than 64 ticks.
    pub last_sent: u32,
}

/// See the file's head.
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
    pub(crate) timestamps: Option<Timestamps>,
    pub(crate) ecn: bool,
    pub(crate) retransmitted: u8,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) by: By,
}

impl Proven {
    /// The flow.
    #[must_use]
    pub const fn flow(&self) -> &FlowKey {
        &self.flow
    }

    /// The listener whose connection it is.
    #[must_use]
    pub const fn listener(&self) -> ListenerId {
        self.slot.listener
    }

    /// Its place of the accept queue, to be given back.
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

    /// The window of the client's SYN; a cookie does not know it. The segment that proved the
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

    /// Where timestamps go on, if both ends have them.
    #[must_use]
    pub const fn timestamps(&self) -> Option<Timestamps> {
        self.timestamps
    }

    /// Whether ECN was agreed on (RFC 3168 section 6.1.1).
    #[must_use]
    pub const fn ecn(&self) -> bool {
        self.ecn
    }

    /// How often our SYN-ACK was sent again: more than none begins with one segment (RFC 5681
    /// section 3.1), and the round trip was not measured.
    #[must_use]
    pub const fn retransmitted(&self) -> u8 {
        self.retransmitted
    }

    /// How long the answer to our SYN-ACK took (RFC 6298 section 2.2), never less than it was: by a
    /// quarter of a millisecond more at most where it was sent once and an entry kept it; by 67 ms
    /// where only the timestamp that comes back tells, because the SYN came again or a cookie kept
    /// it. `None` where nothing tells: we sent it again (Karn), or a cookie without timestamps, or
    /// one of another instance.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// What it was proved by.
    #[must_use]
    pub const fn by(&self) -> By {
        self.by
    }
}

/// The fields of a proof, for designs that are not the product's (feature `testing`).
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
    pub timestamps: Option<Timestamps>,
    pub ecn: bool,
    pub retransmitted: u8,
}

#[cfg(any(test, feature = "testing"))]
impl Proven {
    /// A proof that nobody gave: for baselines of the lab and for tests. No product crate asks for
    /// the feature.
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
            by: By::Cache,
        }
    }
}
