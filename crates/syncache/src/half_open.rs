//! The seam: what a listener asks of whoever keeps its half-open connections.
//!
//! Called by `tcp`'s listeners and by guards, which are generic over [`HalfOpen`] with
//! [`crate::SynCache`] as the default; the lab puts historic designs behind it (decision A4).
//! Invariants of every implementer stand in `contract.rs`. Values go in and come out; who sends
//! them, and at what rate resets are sent, is the caller's matter.

use floodwall_base::{FlowKey, HashKey, Instant, Seq, Units};

use crate::listener::{AcceptSlot, ListenerId};
use crate::moment::Moment;
use crate::proven::Proven;
use crate::segment::{Ack, Syn};
use crate::settings::{CookiePolicy, ListenSettings};
use crate::stats::{ListenerStats, Stats};

/// A SYN-ACK to be sent: everything that is not in every segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynAck {
    /// The flow that it answers; it leaves from the local end.
    pub flow: FlowKey,
    /// SEG.SEQ: our initial sequence number, which is always a cookie.
    pub seq: Seq,
    /// SEG.ACK: what follows the SYN. Data that came with it is not acknowledged.
    pub ack: Seq,
    /// The window field, not scaled.
    pub window: u16,
    /// Our largest segment; `None` where it is not said, so that the answer is no longer than the
    /// SYN of a client that did not say its own.
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

/// What became of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answered {
    /// Noted, and to be answered; it is sent again by itself if nobody acknowledges it.
    Cached(SynAck),
    /// To be answered; nothing was noted.
    Cookie(SynAck),
    /// Known already, and to be answered as before.
    Again(SynAck),
    /// No answer.
    Refused(SynRefusal),
}

impl Answered {
    /// What is to be sent.
    #[must_use]
    pub const fn syn_ack(&self) -> Option<&SynAck> {
        match self {
            Self::Cached(it) | Self::Cookie(it) | Self::Again(it) => Some(it),
            Self::Refused(_) => None,
        }
    }
}

/// Why a SYN has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SynRefusal {
    /// The listener is gone.
    NoListener,
    /// From or to nowhere, a group, port 0, or itself.
    Implausible,
    /// No room, and no cookies (`CookiePolicy::Never`).
    Full,
}

/// What became of an ACK.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Acked {
    /// The client has proved its address. The segment itself, data and flags, is now the new
    /// connection's to handle.
    Proven(Proven),
    /// Not believed, or not now.
    Refused(Refusal),
}

/// Why an ACK made no connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Nothing is known of it, and its acknowledgement is no cookie or none was asked for: reset.
    Unknown,
    /// It acknowledges something else than our SYN-ACK: reset, the half-open connection stays.
    BadAck,
    /// Its sequence number or timestamp is not the client's: silence, the half-open connection
    /// stays.
    BadSeq,
    /// The accept queue, or its source's share of it, is full: silence. The client sends again.
    AcceptFull,
    /// The budget for verification is spent: silence. The client sends again.
    Budget,
    /// The listener is gone.
    NoListener,
}

impl Refusal {
    /// Whether a reset is due (RFC 9293 section 3.10.7.2 and 3.10.7.4), at the caller's rate.
    #[must_use]
    pub const fn wants_reset(self) -> bool {
        matches!(self, Self::Unknown | Self::BadAck | Self::NoListener)
    }
}

/// A challenge ACK (RFC 5961 section 3.2), for the caller to ration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChallengeAck {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
}

/// What became of a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// It was exact: the half-open connection is gone.
    Removed,
    /// It was near: asks for a challenge.
    Challenge(ChallengeAck),
    /// It was somebody's guess, or of nothing that is known.
    Ignored,
}

/// What became of an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// It quoted our SYN-ACK, it was the second, and nobody had answered three of them.
    Removed,
    /// It quoted our SYN-ACK and is remembered.
    Noted,
    /// It quoted something else.
    Ignored,
}

/// Whoever keeps half-open connections. See the file's head.
pub trait HalfOpen {
    /// A listener begins. `None` where there are too many.
    fn listen(&mut self, settings: ListenSettings) -> Option<ListenerId>;

    /// A listener ends, and with it, at once, everything half open of it.
    fn unlisten(&mut self, listener: ListenerId);

    /// When SYNs of that listener are answered by cookies alone; nothing where it is gone.
    fn set_cookies(&mut self, listener: ListenerId, policy: CookiePolicy);

    /// How many connections of that listener may wait to be accepted; `None` where it is gone.
    fn backlog(&self, listener: ListenerId) -> Option<usize>;

    /// The key under which flows are hashed here. Who keeps a table of flows that is asked first
    /// hashes by the same, and hands its hash over with the segment: one for both.
    fn flow_key(&self) -> HashKey;

    /// A segment whose flow hashes to `hash` may be asked about soon: a hint, for memory that is
    /// slow to come.
    fn expect(&self, _hash: u64) {}

    /// A SYN for that listener, whose flow hashes to `hash` under [`HalfOpen::flow_key`].
    fn syn_hashed(&mut self, listener: ListenerId, syn: &Syn, hash: u64, at: Moment) -> Answered;

    /// An ACK for that listener that belongs to no connection, whose flow hashes to `hash` under
    /// [`HalfOpen::flow_key`]. [`Acked::Proven`] has taken a place of the accept queue, which
    /// [`HalfOpen::accepted`] gives back.
    fn ack_hashed(&mut self, listener: ListenerId, ack: &Ack, hash: u64, at: Moment) -> Acked;

    /// As [`HalfOpen::syn_hashed`], for who has not hashed the flow.
    fn syn(&mut self, listener: ListenerId, syn: &Syn, at: Moment) -> Answered {
        self.syn_hashed(listener, syn, self.flow_key().flow(&syn.flow), at)
    }

    /// As [`HalfOpen::ack_hashed`], for who has not hashed the flow.
    fn ack(&mut self, listener: ListenerId, ack: &Ack, at: Moment) -> Acked {
        self.ack_hashed(listener, ack, self.flow_key().flow(&ack.flow), at)
    }

    /// The application has accepted the connection of that place, or the connection has ended
    /// without; once for each proof.
    fn accepted(&mut self, slot: AcceptSlot);

    /// A reset for a flow without a connection.
    fn reset(&mut self, flow: &FlowKey, seq: Seq, at: Moment) -> Reset;

    /// An ICMP error about a flow without a connection, which quoted that sequence number of ours.
    fn unreachable(&mut self, flow: &FlowKey, quoted: Seq) -> Unreachable;

    /// A SYN-ACK could not be sent, and never will be (no route): nothing of it is sent again.
    fn unsent(&mut self, flow: &FlowKey, at: Moment);

    /// Whether something is half open of that flow: a hint for triage. Writes nothing.
    fn expects(&self, flow: &FlowKey) -> bool;

    /// Whether an ACK acknowledges a SYN-ACK of ours: a hint for triage, by which a client that
    /// comes back is told from a flood. Writes nothing, and says nothing of the gate, the budget or
    /// room in the accept queue.
    fn recognizes(&self, ack: &Ack) -> bool;

    /// Timed work, `granted` units of it at most: hands `send` the SYN-ACKs that are due again.
    /// Returns what it spent.
    fn work(&mut self, at: Moment, granted: Units, send: &mut impl FnMut(&SynAck)) -> Units
    where
        Self: Sized;

    /// When there is timed work at the latest; [`Instant::FAR`] where there is none.
    fn deadline(&self) -> Instant;

    /// The units of work of all calls but [`HalfOpen::work`] since this was last asked.
    fn take_spent(&mut self) -> Units;

    /// What was counted in all.
    fn stats(&self) -> Stats;

    /// What was counted of one listener; `None` where it is gone.
    fn listener_stats(&self, listener: ListenerId) -> Option<ListenerStats>;
}
