//! [`HalfOpen`]: the interface between listeners and the store of half-open connections.
//!
//! Used by `tcp`'s listeners and by guards, which are generic over [`HalfOpen`] with
//! [`crate::SynCache`] as the default; the lab implements historic designs behind it (decision A4).
//! The invariants of every implementation are in `contract.rs`. Values go in and come out; sending
//! them, and the rate limit of resets, is left to the caller.

use floodwall_base::{FlowKey, HashKey, Instant, Seq, Units};

use crate::listener::{AcceptSlot, ListenerId};
use crate::moment::CookieMoment;
use crate::proven::Proven;
use crate::segment::{HandshakeAck, SynSegment};
use crate::settings::{CookiePolicy, ListenSettings};
use crate::stats::{ListenerStats, Stats};

/// A SYN-ACK to be sent: every field that differs between segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynAck {
    /// The flow that it answers; it is sent from the local endpoint.
    pub flow: FlowKey,
    /// SEG.SEQ: our initial sequence number, which is always a cookie.
    pub seq: Seq,
    /// SEG.ACK: what follows the SYN. Data that came with it is not acknowledged.
    pub ack: Seq,
    /// The window field, not scaled.
    pub window: u16,
    /// Our MSS option; `None` where it is omitted, so that a cookie is no longer than the SYN of a
    /// client that sent none.
    pub mss: Option<u16>,
    /// Our shift, where the client offered one.
    pub window_scale: Option<u8>,
    /// Whether to permit selective acknowledgements.
    pub sack: bool,
    /// TSval and TSecr, where the client offered timestamps.
    pub timestamp: Option<(u32, u32)>,
    /// Whether ECE is set: yes to an ECN-setup SYN (RFC 3168 section 6.1.1).
    pub ecn: bool,
}

/// The outcome of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SynAnswer {
    /// Stored, and to be answered; the SYN-ACK is retransmitted if it is not acknowledged.
    Cached(SynAck),
    /// To be answered; nothing was stored.
    Cookie(SynAck),
    /// Known already; the same answer is sent again.
    Again(SynAck),
    /// No answer.
    Refused(SynRefusal),
}

impl SynAnswer {
    /// The SYN-ACK to be sent, if any.
    #[must_use]
    pub const fn syn_ack(&self) -> Option<&SynAck> {
        match self {
            Self::Cached(it) | Self::Cookie(it) | Self::Again(it) => Some(it),
            Self::Refused(_) => None,
        }
    }
}

/// The reason why a SYN gets no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SynRefusal {
    /// The listener is gone.
    NoListener,
    /// The source or destination is unspecified, a multicast group or port 0, or both are
    /// equal.
    Implausible,
    /// The cache is full, and cookies are disabled (`CookiePolicy::Never`).
    Full,
}

/// The outcome of an ACK.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum AckOutcome {
    /// The client has proved its address. The segment itself, data and flags, is for the new
    /// connection to process.
    Proven(Proven),
    /// Not valid, or not accepted now.
    Refused(AckRefusal),
}

/// The reason why an ACK made no connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AckRefusal {
    /// No entry matches it, and it is no valid cookie or no cookie was outstanding: reset.
    Unknown,
    /// It does not acknowledge our SYN-ACK: reset; the half-open connection stays.
    BadAck,
    /// Its sequence number or timestamp is not the client's: dropped; the half-open connection
    /// stays.
    BadSeq,
    /// The accept queue, or the share of it for this source, is full: dropped. The client sends
    /// again.
    AcceptFull,
    /// The verification budget is spent: dropped. The client sends again.
    Budget,
    /// The listener is gone.
    NoListener,
}

impl AckRefusal {
    /// Whether a reset is due (RFC 9293 section 3.10.7.2 and 3.10.7.4), rate-limited by the
    /// caller.
    #[must_use]
    pub const fn wants_reset(self) -> bool {
        matches!(self, Self::Unknown | Self::BadAck | Self::NoListener)
    }
}

/// A challenge ACK (RFC 5961 section 3.2), rate-limited by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChallengeAck {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
}

/// The outcome of a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetReply {
    /// It matched exactly: the half-open connection is removed.
    Removed,
    /// It was in the window but not exact: a challenge ACK is due.
    Challenge(ChallengeAck),
    /// It was outside of the window, or no half-open connection matches it.
    Ignored,
}

/// The outcome of an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// It quoted our SYN-ACK and was the second error, and three SYN-ACKs were unanswered: the
    /// half-open connection is removed.
    Removed,
    /// It quoted our SYN-ACK and was recorded.
    Noted,
    /// It did not quote a SYN-ACK of ours.
    Ignored,
}

/// A store of half-open connections. Invariants: see `contract.rs`.
pub trait HalfOpen {
    /// Adds a listener. `None` where there are too many.
    fn listen(&mut self, settings: ListenSettings) -> Option<ListenerId>;

    /// Removes a listener and, at once, all its half-open connections.
    fn unlisten(&mut self, listener: ListenerId);

    /// Sets when SYNs of that listener are answered by cookies only; no effect if the listener
    /// is gone.
    fn set_cookies(&mut self, listener: ListenerId, policy: CookiePolicy);

    /// Sets how many connections of that listener may wait to be accepted; `None` if the
    /// listener is gone.
    fn backlog(&self, listener: ListenerId) -> Option<usize>;

    /// The key under which flows are hashed here. A caller that looks up the flow in a table of
    /// its own first uses the same key and passes its hash along with the segment, so that a
    /// segment is hashed once.
    fn flow_key(&self) -> HashKey;

    /// Hint that a segment of a flow that hashes to `hash` follows soon: prefetches
    /// memory.
    fn prefetch(&self, _hash: u64) {}

    /// A SYN for that listener; its flow hashes to `hash` under [`HalfOpen::flow_key`].
    fn syn_hashed(
        &mut self,
        listener: ListenerId,
        syn: &SynSegment,
        hash: u64,
        at: CookieMoment,
    ) -> SynAnswer;

    /// An ACK for that listener that matches no connection; its flow hashes to `hash` under
    /// [`HalfOpen::flow_key`]. [`AckOutcome::Proven`] has reserved a place in the accept queue,
    /// which [`HalfOpen::accepted`] releases.
    fn ack_hashed(
        &mut self,
        listener: ListenerId,
        ack: &HandshakeAck,
        hash: u64,
        at: CookieMoment,
    ) -> AckOutcome;

    /// As [`HalfOpen::syn_hashed`], for callers that have not hashed the flow.
    fn syn(&mut self, listener: ListenerId, syn: &SynSegment, at: CookieMoment) -> SynAnswer {
        self.syn_hashed(listener, syn, self.flow_key().flow(&syn.flow), at)
    }

    /// As [`HalfOpen::ack_hashed`], for callers that have not hashed the flow.
    fn ack(&mut self, listener: ListenerId, ack: &HandshakeAck, at: CookieMoment) -> AckOutcome {
        self.ack_hashed(listener, ack, self.flow_key().flow(&ack.flow), at)
    }

    /// Releases a place in the accept queue: the application has accepted the connection, or
    /// the connection ended before. Called once per proof.
    fn accepted(&mut self, slot: AcceptSlot);

    /// A reset for a flow without a connection.
    fn reset(&mut self, flow: &FlowKey, seq: Seq, at: CookieMoment) -> ResetReply;

    /// An ICMP error about a flow without a connection, which quoted that sequence number of a
    /// segment of ours.
    fn unreachable(&mut self, flow: &FlowKey, quoted: Seq) -> Unreachable;

    /// A SYN-ACK could not be sent and never will be (no route): it is not retransmitted.
    fn unsent(&mut self, flow: &FlowKey, at: CookieMoment);

    /// Whether that flow has a half-open connection: a hint for triage. Read-only.
    fn expects(&self, flow: &FlowKey) -> bool;

    /// Whether cookies of that listener may be outstanding: then a segment that proves nothing may
    /// be a later one of a client after its first was lost. Read-only.
    fn awaits_cookies(&self, _listener: ListenerId, _now: Instant) -> bool {
        false
    }

    /// Whether an ACK acknowledges a SYN-ACK of ours: a hint for triage, which separates
    /// returning clients from a flood. Read-only; ignores the gate, the budget and the room in the
    /// accept queue.
    fn recognizes(&self, ack: &HandshakeAck) -> bool;

    /// Timed work of at most `granted` units: passes the SYN-ACKs that are due for
    /// retransmission to `send`. Returns the units spent.
    fn work(&mut self, at: CookieMoment, granted: Units, send: &mut impl FnMut(&SynAck)) -> Units
    where
        Self: Sized;

    /// The latest time at which timed work is due; [`Instant::FAR`] where there is none.
    fn deadline(&self) -> Instant;

    /// The units of work of all calls but [`HalfOpen::work`] since the last call of this
    /// function.
    fn take_spent(&mut self) -> Units;

    /// The total counters.
    fn stats(&self) -> Stats;

    /// The counters of one listener; `None` if it is gone.
    fn listener_stats(&self, listener: ListenerId) -> Option<ListenerStats>;
}
