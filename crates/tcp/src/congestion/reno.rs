//! NewReno's window (RFC 5681), counted in bytes (RFC 3465).
//!
//! Called through [`super::Controller`]. Invariant: one segment more in a window's worth of
//! acknowledged bytes; half of the flight after a loss. Not here: which segments are lost
//! (`scoreboard`), the sending rate in recovery (`prr`).

use core::time::Duration;

use super::{
    Congestion, CongestionControl, Delivery, Flight, UNLIMITED, WINDOW_MAX, decayed,
    initial_window, rescaled, slow_start,
};

/// Segments that one ACK may add in slow start: L of RFC 3465 section 2.2.
const SLOW_START_LIMIT: u32 = 2;

/// The NewReno congestion controller (RFC 5681): 24 bytes.
#[derive(Clone, Debug)]
pub struct Reno {
    window: u32,
    ssthresh: u32,
    /// Acknowledged bytes towards the next segment of congestion avoidance.
    counted: u32,
    /// Window and threshold before the last reduction, for undo.
    before: Option<(u32, u32)>,
}

impl Reno {
    /// The controller of a new connection.
    #[must_use]
    pub fn new(mss: u32) -> Self {
        Self { window: initial_window(mss), ssthresh: UNLIMITED, counted: 0, before: None }
    }

    /// The controller of a connection that has lost nothing.
    pub(super) const fn going_on(window: u32, ssthresh: u32) -> Self {
        Self { window, ssthresh, counted: 0, before: None }
    }

    /// Whether window and threshold are all that is known.
    pub(super) const fn is_settled(&self) -> bool {
        self.counted == 0 && self.before.is_none()
    }

    fn reduce(&mut self, flight: &Flight) {
        // RFC 5681 equation 4; limited transmit does not count (section 3.2, step 1).
        self.ssthresh = (flight.size.min(self.window) / 2).max(2 * flight.mss);
        self.counted = 0;
    }
}

impl CongestionControl for Reno {
    fn window(&self) -> u32 {
        self.window
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    fn on_ack(&mut self, delivery: &Delivery) {
        if !delivery.is_window_limited {
            return;
        }
        let mut acked = delivery.acked;
        if self.window < self.ssthresh {
            (self.window, acked) =
                slow_start(self.window, self.ssthresh, delivery, SLOW_START_LIMIT);
        }
        self.counted = self.counted.saturating_add(acked);
        if acked > 0 && self.counted >= self.window {
            self.counted -= self.window;
            self.window = self.window.saturating_add(delivery.mss).min(WINDOW_MAX);
            self.counted = self.counted.min(self.window);
        }
    }

    fn on_congestion(&mut self, _: Congestion, flight: &Flight) {
        self.before = Some((self.window, self.ssthresh));
        self.reduce(flight);
        self.window = self.ssthresh;
    }

    fn on_timeout(&mut self, flight: &Flight, is_first: bool) {
        if is_first {
            self.before = Some((self.window, self.ssthresh));
            self.reduce(flight);
        }
        self.window = flight.mss;
        self.counted = 0;
    }

    fn begin_with(&mut self, window: u32) {
        self.window = window;
    }

    fn after_idle(&mut self, idle: Duration, rto: Duration, mss: u32) {
        if idle >= rto {
            self.ssthresh = self.ssthresh.max(self.window / 4 * 3);
            self.window = decayed(self.window, idle, rto, mss);
            self.counted = 0;
        }
    }

    fn undo(&mut self) {
        if let Some((window, ssthresh)) = self.before.take() {
            self.window = self.window.max(window);
            self.ssthresh = self.ssthresh.max(ssthresh);
        }
    }

    fn on_mss_change(&mut self, from: u32, to: u32) {
        self.window = rescaled(self.window, from, to);
        self.counted = 0;
    }
}
