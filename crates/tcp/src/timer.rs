//! The timers of a connection, with one common deadline.
//!
//! Used by the connection's handlers; the set's timer wheel has only the earliest, and delayed ACKs
//! have a list of their own (`delayed_ack.rs`). Invariant: a timer that is not set is at
//! [`Instant::FAR`]. Timers reclaim memory and repair losses; the validity of a segment never
//! depends on one.

use floodwall_base::Instant;

/// The timers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum TimerKind {
    /// The loss timer: retransmission, reordering or tail loss probe (RFC 6298, RFC 8985).
    Retransmit,
    /// The delayed ACK (RFC 9293 section 3.8.6.3).
    DelayedAck,
    /// The persist timer: the peer's window is zero or too small (RFC 9293 section 3.8.6.1).
    Persist,
    /// Keepalive (RFC 9293 section 3.8.4).
    Keepalive,
    /// FIN-WAIT-2 without an owner, or TIME-WAIT, ends.
    Close,
    /// Retry after the pool had no memory for a segment.
    Retry,
}

const TIMER_COUNT: usize = 6;

/// All timers of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers([Instant; TIMER_COUNT]);

impl Timers {
    pub(crate) const NONE: Self = Self([Instant::FAR; TIMER_COUNT]);

    const ALL: [TimerKind; TIMER_COUNT] = [
        TimerKind::Retransmit,
        TimerKind::DelayedAck,
        TimerKind::Persist,
        TimerKind::Keepalive,
        TimerKind::Close,
        TimerKind::Retry,
    ];

    #[inline]
    pub(crate) fn set(&mut self, timer: TimerKind, at: Instant) {
        if let Some(slot) = self.0.get_mut(timer as usize) {
            *slot = at;
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self, timer: TimerKind) {
        self.set(timer, Instant::FAR);
    }

    #[inline]
    pub(crate) fn at(&self, timer: TimerKind) -> Instant {
        self.0.get(timer as usize).copied().unwrap_or(Instant::FAR)
    }

    #[inline]
    pub(crate) fn is_set(&self, timer: TimerKind) -> bool {
        self.at(timer) != Instant::FAR
    }

    /// The earliest timer of the wheel: all but the delayed ACK.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        let [retransmit, _, others @ ..] = self.0;
        others.into_iter().fold(retransmit, Instant::min)
    }

    /// Clears and returns one that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<TimerKind> {
        let due = Self::ALL.into_iter().find(|timer| self.at(*timer) <= now)?;
        self.clear(due);
        Some(due)
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::NONE;
    }
}
