//! The timers of a connection, with one common deadline.
//!
//! Used by the connection's handlers; the set's timer wheel has only the earliest, and delayed ACKs
//! have a list of their own (`delayed_ack.rs`), which has their times. The timers that few
//! connections have are in their rare state (`rare_state.rs`). Invariant: a timer that is not set
//! is at [`Instant::FAR`]. Timers reclaim memory and repair losses; the validity of a segment never
//! depends on one.

mod of_connection;

use floodwall_base::Instant;

/// The timers of which a connection has one at most: the first is for data in flight, the second
/// for data that waits where none is, the third for a connection that has neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum TimerKind {
    /// The loss timer: retransmission, reordering or tail loss probe (RFC 6298, RFC 8985).
    Retransmit,
    /// The persist timer: the peer's window is zero or too small (RFC 9293 section 3.8.6.1).
    Persist,
    /// FIN-WAIT-2 without an owner, or TIME-WAIT, ends.
    Close,
}

/// The timers that few connections have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RareTimer {
    /// Keepalive (RFC 9293 section 3.8.4).
    Keepalive,
    /// Retry after the pool had no memory for a segment; or what is acknowledged is to be freed.
    Retry,
}

/// Whether an acknowledgment waits: the delayed ACK (RFC 9293 section 3.8.6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckDelay {
    /// None does.
    Absent,
    /// Until the end of the round: a quick one.
    Quick,
    /// Since the current time; the list does not have it yet.
    Begins,
    /// Until the time that the list has.
    Waits,
}

/// The timers of each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// That of `kind`.
    main: Instant,
    kind: TimerKind,
    pub(crate) ack: AckDelay,
}

impl Timers {
    pub(crate) const NONE: Self =
        Self { main: Instant::FAR, kind: TimerKind::Retransmit, ack: AckDelay::Absent };

    /// Sets a timer; at [`Instant::FAR`] it is cleared.
    #[inline(always)]
    pub(crate) fn set(&mut self, timer: TimerKind, at: Instant) {
        if at == Instant::FAR {
            self.clear(timer);
        } else {
            (self.main, self.kind) = (at, timer);
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self, timer: TimerKind) {
        if timer == self.kind {
            self.main = Instant::FAR;
        }
    }

    #[inline(always)]
    pub(crate) fn is_set(&self, timer: TimerKind) -> bool {
        timer == self.kind && self.main != Instant::FAR
    }

    /// Clears and returns the one that is set, where it is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<TimerKind> {
        let due = (self.main <= now).then_some(self.kind)?;
        self.main = Instant::FAR;
        Some(due)
    }

    /// Whether an acknowledgment waits.
    #[inline(always)]
    pub(crate) fn delays_ack(&self) -> bool {
        self.ack != AckDelay::Absent
    }

    /// An acknowledgment waits from now on, unless one does already.
    #[inline(always)]
    pub(crate) fn delay_ack(&mut self) {
        if self.ack == AckDelay::Absent {
            self.ack = AckDelay::Begins;
        }
    }
}

/// The timers of a connection that has some which few have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RareTimers {
    keepalive: Instant,
    retry: Instant,
}

impl RareTimers {
    pub(crate) const NONE: Self = Self { keepalive: Instant::FAR, retry: Instant::FAR };

    const fn at(&self, timer: RareTimer) -> Instant {
        match timer {
            RareTimer::Keepalive => self.keepalive,
            RareTimer::Retry => self.retry,
        }
    }

    const fn set(&mut self, timer: RareTimer, at: Instant) {
        match timer {
            RareTimer::Keepalive => self.keepalive = at,
            RareTimer::Retry => self.retry = at,
        }
    }

    fn next(&self) -> Instant {
        self.keepalive.min(self.retry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn of_the_three_for_data_and_the_end_the_last_one_set_counts() {
        use TimerKind::{Close, Persist, Retransmit};
        let mut timers = Timers::NONE;
        timers.set(Retransmit, at(5));
        timers.set(Persist, at(7));
        // Nothing is in flight: that the loss timer is cleared leaves the other one.
        timers.set(Retransmit, Instant::FAR);
        timers.clear(Retransmit);
        assert!(timers.is_set(Persist) && !timers.is_set(Retransmit) && !timers.is_set(Close));
        assert_eq!(timers.main, at(7));
        timers.set(Close, at(8));
        timers.clear(Persist);
        assert!(timers.is_set(Close) && !timers.is_set(Persist));
        assert_eq!((timers.pop_due(at(7)), timers.pop_due(at(8))), (None, Some(Close)));
        assert_eq!((timers.pop_due(at(9)), timers.main), (None, Instant::FAR));
    }
}
