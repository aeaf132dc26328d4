//! The timers of a connection, with one common deadline.
//!
//! Used by the connection's handlers; the set's timer wheel has only the earliest, and delayed ACKs
//! have a list of their own (`delayed_ack.rs`). Invariant: a timer that is not set is at
//! [`Instant::FAR`]. Timers reclaim memory and repair losses; the validity of a segment never
//! depends on one.

use floodwall_base::Instant;

/// The timers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
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
    /// Retry after the pool had no memory for a segment; or what is acknowledged is to be freed.
    Retry,
}

/// All timers of one connection. Of the loss timer, the persist timer and the end one is set at
/// most: the first is for data in flight, the second for data that waits where none is, the third
/// for a connection that has neither.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// That of `kind`.
    main: Instant,
    delayed: Instant,
    keepalive: Instant,
    retry: Instant,
    kind: TimerKind,
}

impl Timers {
    pub(crate) const NONE: Self = Self {
        main: Instant::FAR,
        delayed: Instant::FAR,
        keepalive: Instant::FAR,
        retry: Instant::FAR,
        kind: TimerKind::Retransmit,
    };

    /// Sets a timer; at [`Instant::FAR`] it is cleared.
    #[inline(always)]
    pub(crate) fn set(&mut self, timer: TimerKind, at: Instant) {
        match timer {
            TimerKind::DelayedAck => self.delayed = at,
            TimerKind::Keepalive => self.keepalive = at,
            TimerKind::Retry => self.retry = at,
            main if at == Instant::FAR => self.clear(main),
            main => (self.main, self.kind) = (at, main),
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self, timer: TimerKind) {
        match timer {
            TimerKind::DelayedAck => self.delayed = Instant::FAR,
            TimerKind::Keepalive => self.keepalive = Instant::FAR,
            TimerKind::Retry => self.retry = Instant::FAR,
            main if main == self.kind => self.main = Instant::FAR,
            _ => {}
        }
    }

    #[inline(always)]
    pub(crate) fn at(&self, timer: TimerKind) -> Instant {
        match timer {
            TimerKind::DelayedAck => self.delayed,
            TimerKind::Keepalive => self.keepalive,
            TimerKind::Retry => self.retry,
            main if main == self.kind => self.main,
            _ => Instant::FAR,
        }
    }

    #[inline]
    pub(crate) fn is_set(&self, timer: TimerKind) -> bool {
        self.at(timer) != Instant::FAR
    }

    /// The earliest timer of the wheel: all but the delayed ACK.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.main.min(self.keepalive).min(self.retry)
    }

    /// Clears and returns one that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<TimerKind> {
        let all = [self.kind, TimerKind::DelayedAck, TimerKind::Keepalive, TimerKind::Retry];
        let due = all.into_iter().find(|timer| self.at(*timer) <= now)?;
        self.clear(due);
        Some(due)
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::NONE;
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
        use TimerKind::{Close, DelayedAck, Keepalive, Persist, Retransmit, Retry};
        let mut timers = Timers::NONE;
        timers.set(Retransmit, at(5));
        timers.set(Keepalive, at(9));
        timers.set(Persist, at(7));
        // Nothing is in flight: that the loss timer is cleared leaves the other one.
        timers.set(Retransmit, Instant::FAR);
        timers.clear(Retransmit);
        assert!(timers.is_set(Persist) && !timers.is_set(Retransmit) && !timers.is_set(Close));
        assert_eq!((timers.next(), timers.at(Persist)), (at(7), at(7)));
        timers.set(Close, at(8));
        timers.clear(Persist);
        timers.set(Retry, at(1));
        timers.set(DelayedAck, at(0));
        assert_eq!(
            (timers.next(), timers.at(Close), timers.at(Persist)),
            (at(1), at(8), Instant::FAR)
        );
        let due = core::iter::from_fn(|| timers.pop_due(at(9))).collect::<Vec<_>>();
        assert_eq!(due, [Close, DelayedAck, Keepalive, Retry]);
        assert_eq!(timers.next(), Instant::FAR);
    }
}
