//! Congestion control: the trait of the controllers, and the enum that holds one.
//!
//! Used by `recovery` alone. A controller is notified of acknowledged and of lost data, and gives a
//! window in bytes. Invariants: integers only and no clock, so equal calls give equal windows; the
//! window never falls below one segment, nor `ssthresh` below two; nothing grows while the
//! application, and not the window, limits the flow (RFC 9293 section 3.8.6 is the peer's window
//! and not here). During recovery the window in force is that of [`crate::prr`]. Read first: RFC
//! 5681, RFC 9438. Not here: pacing, the ECN echo bits.

mod cubic;
mod hystart;
mod reno;

use core::time::Duration;

use floodwall_base::{Instant, Seq};

pub use cubic::Cubic;
pub use reno::Reno;

/// Segments of the initial window (RFC 6928): ten, and no more than fits 14,600 bytes.
const INITIAL_SEGMENTS: u32 = 10;
/// `ssthresh` before any congestion event.
pub const UNLIMITED: u32 = 0x7fff_ffff;
/// Windows stay below the largest scaled window (RFC 7323 section 2.3).
const WINDOW_MAX: u32 = 1 << 30;

/// The window of a new connection (RFC 6928 section 2): min(10 * MSS, max(2 * MSS, 14,600)).
#[must_use]
pub fn initial_window(mss: u32) -> u32 {
    (INITIAL_SEGMENTS * mss).min((2 * mss).max(14_600))
}

/// The input of a controller for an ACK that advances the flow.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Bytes newly acknowledged cumulatively, which alone open the window (RFC 3465).
    pub acked: u32,
    /// The acknowledgment number.
    pub ack: Seq,
    /// The next byte to be sent (SND.NXT): where a round of slow start ends.
    pub next: Seq,
    /// The round-trip sample of this ACK, if any.
    pub rtt: Option<Duration>,
    /// The smoothed time; zero before the first sample.
    pub srtt: Duration,
    /// Whether the window, not the application or the peer, limited what is in flight.
    pub is_window_limited: bool,
    /// The segment size that we send.
    pub mss: u32,
    /// The current time.
    pub now: Instant,
}

/// The state of the flow at a congestion event.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Bytes sent and not cumulatively acknowledged: RFC 5681's FlightSize.
    pub size: u32,
    /// The segment size that we send.
    pub mss: u32,
    /// The current time.
    pub now: Instant,
}

/// The kind of a congestion event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// A segment was lost, and fast recovery begins.
    Loss,
    /// The peer echoes a mark (RFC 3168 section 6.1.2).
    Ecn,
}

/// One congestion controller.
pub trait CongestionControl {
    /// Bytes that may be in flight.
    fn window(&self) -> u32;
    /// Where slow start ends, in bytes.
    fn ssthresh(&self) -> u32;
    /// Sets the initial window to so many bytes.
    fn begin_with(&mut self, window: u32);
    /// Data was acknowledged outside of recovery, or in slow start after a timeout.
    fn on_ack(&mut self, delivery: &Delivery);
    /// The same where the window has not limited what is in flight.
    fn on_unlimited_ack(&mut self, _now: Instant) {}
    /// A loss or an ECN mark in a window of data; called once per window.
    fn on_congestion(&mut self, congestion: Congestion, flight: &Flight);
    /// The retransmission timer expired, for data sent for the first time or again.
    fn on_timeout(&mut self, flight: &Flight, is_first: bool);
    /// Nothing was in flight for `idle`; `rto` is the retransmission timeout (RFC 5681 section
    /// 4.1).
    fn after_idle(&mut self, idle: Duration, rto: Duration, mss: u32);
    /// Undoes the last reduction, which was spurious (RFC 4015, RFC 9438 section 4.9).
    fn undo(&mut self);
    /// The segment size has changed: the window keeps its number of segments (RFC 5681 section
    /// 3.1).
    fn on_mss_change(&mut self, from: u32, to: u32);
}

/// Which controller a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    Reno,
    /// RFC 9438 with HyStart++ (RFC 9406).
    #[default]
    Cubic,
}

/// A controller by value: no allocation, no virtual call.
#[derive(Clone, Debug)]
pub enum Controller {
    /// RFC 5681.
    Reno(Reno),
    /// RFC 9438.
    Cubic(Cubic),
}

impl Controller {
    /// A controller for a new connection that sends segments of `mss` bytes.
    #[must_use]
    pub fn new(algorithm: Algorithm, mss: u32) -> Self {
        match algorithm {
            Algorithm::Reno => Self::Reno(Reno::new(mss)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(mss)),
        }
    }

    /// Which one it is.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Reno(_) => Algorithm::Reno,
            Self::Cubic(_) => Algorithm::Cubic,
        }
    }

    /// Where all data is acknowledged: whether window and threshold, and the minimum RTT of the
    /// round that has just ended, which is returned, are all that is known.
    pub(crate) fn settled(&self) -> Option<u32> {
        match self {
            Self::Reno(reno) => reno.is_settled().then_some(hystart::NONE),
            Self::Cubic(cubic) => cubic.settled(),
        }
    }
}

/// The window of a connection, and all that its controller must remember while it has lost nothing
/// and all data is acknowledged: the [`Controller`] itself exists only in between.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    window: u32,
    ssthresh: u32,
    /// The minimum RTT of the last round of slow start (`hystart.rs`).
    round_min: u32,
    algorithm: Algorithm,
}

impl Window {
    /// The window of a new connection.
    #[must_use]
    pub fn new(algorithm: Algorithm, mss: u32) -> Self {
        let window = initial_window(mss);
        Self { window, ssthresh: UNLIMITED, round_min: hystart::NONE, algorithm }
    }

    /// Bytes that may be in flight.
    #[must_use]
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Where slow start ends, in bytes.
    #[must_use]
    pub const fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// The algorithm of the controller.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The controller that goes on from here.
    pub(crate) fn controller(&self) -> Controller {
        match self.algorithm {
            Algorithm::Reno => Controller::Reno(Reno::going_on(self.window, self.ssthresh)),
            Algorithm::Cubic => {
                Controller::Cubic(Cubic::going_on(self.window, self.ssthresh, self.round_min))
            }
        }
    }

    /// The controller has changed.
    #[inline]
    pub(crate) fn follow(&mut self, controller: &Controller) {
        (self.window, self.ssthresh) = (controller.window(), controller.ssthresh());
    }

    /// The controller is no longer kept; it was [settled](Controller::settled).
    pub(crate) const fn settle(&mut self, round_min: u32) {
        self.round_min = round_min;
    }

    /// [`CongestionControl::begin_with`], without a controller.
    pub(crate) const fn begin_with(&mut self, window: u32) {
        self.window = window;
    }

    /// [`CongestionControl::after_idle`], without a controller.
    pub(crate) fn after_idle(&mut self, idle: Duration, rto: Duration, mss: u32) {
        if idle >= rto {
            self.ssthresh = self.ssthresh.max(self.window / 4 * 3);
            self.window = decayed(self.window, idle, rto, mss);
        }
    }

    /// [`CongestionControl::on_mss_change`], without a controller.
    pub(crate) fn on_mss_change(&mut self, from: u32, to: u32) {
        self.window = rescaled(self.window, from, to);
    }

    /// A congestion event of a connection for which there is no memory for a controller (RFC 5681
    /// equation 4); `is_timeout` where it was a timeout.
    pub(crate) fn reduce(&mut self, flight: &Flight, is_timeout: bool) {
        self.ssthresh = (flight.size.min(self.window) / 2).max(2 * flight.mss);
        self.window = if is_timeout { flight.mss } else { self.ssthresh };
    }

    /// The same of an acknowledgment: slow start, and a segment for each window beyond it.
    pub(crate) fn grow(&mut self, acked: u32, mss: u32) {
        let step = if self.window < self.ssthresh {
            acked.min(2 * mss)
        } else {
            let step = u64::from(mss) * u64::from(acked) / u64::from(self.window.max(1));
            u32::try_from(step).unwrap_or(mss).min(mss)
        };
        self.window = self.window.saturating_add(step).min(WINDOW_MAX);
    }
}

/// Dispatches a call to the active controller.
macro_rules! each {
    ($self:ident, $one:ident => $call:expr) => {
        match $self {
            Self::Reno($one) => $call,
            Self::Cubic($one) => $call,
        }
    };
}

impl CongestionControl for Controller {
    fn window(&self) -> u32 {
        each!(self, c => c.window())
    }
    fn ssthresh(&self) -> u32 {
        each!(self, c => c.ssthresh())
    }
    fn on_ack(&mut self, delivery: &Delivery) {
        each!(self, c => c.on_ack(delivery));
    }
    #[inline(always)]
    fn on_unlimited_ack(&mut self, now: Instant) {
        each!(self, c => c.on_unlimited_ack(now));
    }
    fn on_congestion(&mut self, congestion: Congestion, flight: &Flight) {
        each!(self, c => c.on_congestion(congestion, flight));
    }
    fn on_timeout(&mut self, flight: &Flight, is_first: bool) {
        each!(self, c => c.on_timeout(flight, is_first));
    }
    fn begin_with(&mut self, window: u32) {
        each!(self, c => c.begin_with(window));
    }
    fn after_idle(&mut self, idle: Duration, rto: Duration, mss: u32) {
        each!(self, c => c.after_idle(idle, rto, mss));
    }
    fn undo(&mut self) {
        each!(self, c => c.undo());
    }
    fn on_mss_change(&mut self, from: u32, to: u32) {
        each!(self, c => c.on_mss_change(from, to));
    }
}

/// Slow start by bytes (RFC 3465): `window` grown by the acknowledged bytes, by at most `limit`
/// segments per ACK, up to `ssthresh`. Returns the window, and the bytes left for congestion
/// avoidance.
fn slow_start(window: u32, ssthresh: u32, delivery: &Delivery, limit: u32) -> (u32, u32) {
    let step = delivery.acked.min(delivery.mss.saturating_mul(limit));
    let used = step.min(ssthresh.saturating_sub(window));
    let left = if used < step { delivery.acked - used } else { 0 };
    (window.saturating_add(used).min(WINDOW_MAX), left)
}

/// The window after an idle time: halved for each timeout that has passed, but not below the
/// restart window min(IW, cwnd) (RFC 5681 section 4.1, with RFC 2861's decay instead of one step).
fn decayed(window: u32, idle: Duration, rto: Duration, mss: u32) -> u32 {
    let rounds = idle.as_nanos() / rto.as_nanos().max(1);
    let floor = initial_window(mss).min(window);
    let shift = u32::try_from(rounds).unwrap_or(u32::MAX).min(31);
    (window >> shift).max(floor)
}

fn rescaled(bytes: u32, from: u32, to: u32) -> u32 {
    let bytes = u64::from(bytes) * u64::from(to) / u64::from(from.max(1));
    u32::try_from(bytes).unwrap_or(WINDOW_MAX).clamp(to, WINDOW_MAX)
}

#[cfg(test)]
mod tests;
