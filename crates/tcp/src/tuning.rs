//! `Tuning`: auto-tuning of the receive window, from the amount that the program reads per round
//! trip.
//!
//! Called by the receive half with the number of bytes read, and by input with measurements of the
//! round-trip time. A window is large enough when it holds the flight of its sender, and that shows
//! here as the data that arrives, and is read, in one round trip: twice as much lets the sender
//! double. While it does (slow start), it doubles twice before the update of a larger window
//! reaches it: so growth counts twice more. Invariants: the limit never falls here, nor exceeds its
//! maximum; a program that does not read more than before opens nothing, however much data waits.
//! Read first: W. Feng and others, "Dynamic Right-Sizing: A Simulation Study" (2001). Not here: the
//! memory limit of all connections (`memory.rs`).
//!
//! # Under flood
//! A peer that sends fast to a program that reads fast opens its window up to `receive_bytes`; a
//! peer alone opens nothing. Work: a few additions for each read and each full segment.

use core::time::Duration;

use floodwall_base::{Instant, Seq};

/// The auto-tuning state of one receive half: 28 bytes. Times are milliseconds that wrap.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// The maximum of the limit.
    most: u32,
    /// Bytes that the program has read in the current round.
    read: u32,
    /// The maximum read in one round.
    peak: u32,
    /// When the round began.
    began: u32,
    /// The round-trip time in microseconds; 0: not known yet.
    trip: u32,
    /// The last measured echo; without timestamps, the edge that is waited for.
    seen: u32,
    /// When that edge was offered; [`NO_EDGE`] where none is waited for.
    offered: u32,
}

/// No edge is waited for: a time that never occurs.
const NO_EDGE: u32 = u32::MAX;

impl Tuning {
    /// The state at `now`, with maximum `most`.
    pub(crate) fn new(most: u32, now: Instant) -> Self {
        let (read, peak, trip, seen) = (0, 0, 0, 0);
        Self { most, read, peak, began: millis(now), trip, seen, offered: NO_EDGE }
    }

    /// Raises the growth limit to this from now on; 0 disables growth by reads.
    pub(crate) const fn towards(&mut self, most: u32) {
        self.most = most;
    }

    /// A full segment echoes a timestamp of ours that was sent so long ago.
    pub(crate) fn echoed(&mut self, echo: u32, took: Duration) {
        if echo == self.seen && self.trip != 0 {
            return;
        }
        self.seen = echo;
        let took = micros(took);
        // RFC 6298's mean: one outlier from a busy or silent sender has little effect.
        self.trip = match self.trip {
            0 => took,
            trip => (trip - trip / 8 + took / 8).max(1),
        };
    }

    /// Without timestamps: the stream has reached `nxt`, and `edge` is offered now. Data at an edge
    /// can only be sent once the offer has arrived, so the shortest time between is the round-trip
    /// time.
    pub(crate) fn advanced(&mut self, nxt: Seq, edge: Seq, now: Instant) {
        if self.offered != NO_EDGE {
            if nxt.is_before(Seq(self.seen)) {
                return;
            }
            let took = millis(now).wrapping_sub(self.offered).saturating_mul(1000).max(1000);
            self.trip = if self.trip == 0 { took } else { self.trip.min(took) };
        }
        (self.seen, self.offered) = (edge.0, millis(now));
    }

    /// The program has read so many bytes.
    pub(crate) const fn took(&mut self, bytes: u32) {
        self.read = self.read.saturating_add(bytes);
    }

    /// The next limit after this one, after a read.
    pub(crate) fn judge(&mut self, limit: u32, now: Instant) -> u32 {
        if self.trip == 0 || limit >= self.most {
            return limit;
        }
        let since = millis(now).wrapping_sub(self.began);
        if since < self.trip.div_ceil(1000) {
            return limit;
        }
        let read = core::mem::take(&mut self.read);
        self.began = millis(now);
        let rise = read.saturating_sub(self.peak);
        self.peak = self.peak.max(read);
        if rise == 0 {
            return limit;
        }
        let wanted = read.saturating_mul(2).saturating_add(rise.saturating_mul(4));
        limit.max(wanted.min(self.most))
    }
}

/// A time that wraps after 49 days; never [`NO_EDGE`].
fn millis(now: Instant) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).min(NO_EDGE - 1)
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: u64 = 50_000;
    const MOST: u32 = 6 << 20;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    fn tuning() -> Tuning {
        let mut tuning = Tuning::new(MOST, at(0));
        tuning.echoed(1, Duration::from_micros(TRIP));
        tuning
    }

    #[test]
    fn the_limit_keeps_ahead_of_a_sender_that_doubles() {
        let (mut tuning, mut limit, mut flight) = (tuning(), 262_144, 14_480);
        for trip in 1..20 {
            tuning.took(flight);
            limit = tuning.judge(limit, at(trip * TRIP));
            flight = (flight * 2).min(MOST / 2);
            assert!(limit >= (2 * flight).min(MOST), "{limit} for {flight}");
        }
        assert_eq!(limit, MOST);
    }

    #[test]
    fn a_steady_reader_gets_twice_what_it_reads_and_no_more() {
        let (mut tuning, mut limit) = (tuning(), 100_000);
        for trip in 1..1000 {
            tuning.took(400_000);
            limit = tuning.judge(limit, at(trip * TRIP));
        }
        // The first round starts at zero.
        assert_eq!(limit, 6 * 400_000);
        let mut slow = Tuning::new(MOST, at(0));
        slow.echoed(1, Duration::from_micros(TRIP));
        let mut limit = 262_144;
        for trip in 1..1000 {
            slow.took(1000);
            limit = slow.judge(limit, at(trip * TRIP));
        }
        assert_eq!(limit, 262_144, "its reads require no more");
    }

    #[test]
    fn nothing_follows_before_the_path_is_known_or_a_round_is_over() {
        let mut tuning = Tuning::new(MOST, at(0));
        tuning.took(1 << 20);
        assert_eq!(tuning.judge(1000, at(1_000_000)), 1000);
        tuning.echoed(9, Duration::from_micros(TRIP));
        assert!(tuning.judge(1000, at(1_000_000)) > 1 << 20);
        tuning.took(1 << 22);
        assert_eq!(tuning.judge(1000, at(1_000_000 + TRIP - 1000)), 1000);
        assert!(tuning.judge(1000, at(1_000_000 + TRIP)) > 1 << 22);
        tuning.towards(0);
        tuning.took(1 << 23);
        assert_eq!(tuning.judge(1000, at(9_000_000)), 1000);
    }

    #[test]
    fn without_timestamps_the_shortest_time_to_an_edge_is_the_paths() {
        let mut tuning = Tuning::new(MOST, at(0));
        tuning.advanced(Seq(u32::MAX), Seq(500), at(0));
        tuning.advanced(Seq(499), Seq(900), at(70_000));
        assert_eq!(tuning.trip, 0, "the edge was not reached");
        tuning.advanced(Seq(500), Seq(1000), at(80_000));
        assert_eq!(tuning.trip, 80_000);
        tuning.advanced(Seq(1001), Seq(2000), at(130_000));
        tuning.advanced(Seq(2000), Seq(3000), at(230_000));
        assert_eq!(tuning.trip, 50_000);
    }

    #[test]
    fn one_late_echo_moves_the_mean_by_an_eighth() {
        let mut tuning = tuning();
        tuning.echoed(2, Duration::from_micros(9 * TRIP));
        assert_eq!(u64::from(tuning.trip), 2 * TRIP);
        tuning.echoed(2, Duration::from_micros(TRIP));
        assert_eq!(u64::from(tuning.trip), 2 * TRIP, "the same echo gives no new sample");
    }
}
