//! How much may be in flight: the trait of congestion controllers, and the enum that holds one.
//!
//! Called by `recovery` alone. A controller is told what was acknowledged and what was lost, and
//! answers with a window in bytes. Invariants: integers only and no clock, so equal calls give
//! equal windows; the window never falls below one segment, nor `ssthresh` below two; nothing
//! grows while the application, and not the window, limits the flow (RFC 9293 section 3.8.6 is the
//! peer's window and not here). During recovery the window in force is that of [`crate::prr`].
//! Read first: RFC 5681, RFC 9438. Not here: pacing, ECN's echo bits.

mod cubic;
mod hystart;
mod reno;

use core::time::Duration;

use floodwall_base::{Instant, Seq};

pub use cubic::Cubic;
pub use reno::Reno;

/// Segments of the initial window (RFC 6928): ten, and no more than fits 14,600 bytes.
const INITIAL_SEGMENTS: u32 = 10;
/// `ssthresh` while no congestion was seen.
pub const UNLIMITED: u32 = 0x7fff_ffff;
/// Windows stay below what a scaled window can name (RFC 7323 section 2.3).
const WINDOW_MAX: u32 = 1 << 30;

/// The window of a new connection (RFC 6928 section 2): min(10 * MSS, max(2 * MSS, 14,600)).
#[must_use]
pub fn initial_window(mss: u32) -> u32 {
    (INITIAL_SEGMENTS * mss).min((2 * mss).max(14_600))
}

/// What a controller is told of an ACK that moved the flow on.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Bytes newly acknowledged cumulatively, which alone open the window (RFC 3465).
    pub acked: u32,
    /// The acknowledgment number.
    pub ack: Seq,
    /// The next byte to be sent: where a round of slow start ends.
    pub next: Seq,
    /// This ACK's sample, if it gave one.
    pub rtt: Option<Duration>,
    /// The smoothed time; zero before the first sample.
    pub srtt: Duration,
    /// Whether the window, not the application or the peer, limited what is in flight.
    pub is_window_limited: bool,
    /// The segment size that we send.
    pub mss: u32,
    /// The moment.
    pub now: Instant,
}

/// The state of the flow when congestion shows.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Bytes sent and not cumulatively acknowledged: RFC 5681's FlightSize.
    pub size: u32,
    /// The segment size that we send.
    pub mss: u32,
    /// The moment.
    pub now: Instant,
}

/// What told of congestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// A segment was lost, and the flow goes on.
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
    /// The flow begins with so many bytes instead of the initial window.
    fn begin_with(&mut self, window: u32);
    /// Data was acknowledged outside of recovery, or in slow start after a timeout.
    fn on_ack(&mut self, delivery: &Delivery);
    /// A window in which something was lost or marked; told once for each.
    fn on_congestion(&mut self, congestion: Congestion, flight: &Flight);
    /// The retransmission timer ran out for data sent for the first time, or again.
    fn on_timeout(&mut self, flight: &Flight, is_first: bool);
    /// Nothing was in flight for `idle`, of which the timeout is `rto` (RFC 5681 section 4.1).
    fn after_idle(&mut self, idle: Duration, rto: Duration, mss: u32);
    /// The last reduction answered no loss: takes it back (RFC 4015, RFC 9438 section 4.9).
    fn undo(&mut self);
    /// The segment size fell or rose: the window keeps its segments (RFC 5681 section 3.1).
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
}

/// Calls the one that is there.
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

/// Slow start by bytes (RFC 3465): `window` grown by what was acknowledged, by at most `limit`
/// segments for one ACK, up to `ssthresh`. Returns the window, and the bytes that congestion
/// avoidance shall count.
fn slow_start(window: u32, ssthresh: u32, delivery: &Delivery, limit: u32) -> (u32, u32) {
    let step = delivery.acked.min(delivery.mss.saturating_mul(limit));
    let used = step.min(ssthresh.saturating_sub(window));
    let left = if used < step { delivery.acked - used } else { 0 };
    (window.saturating_add(used).min(WINDOW_MAX), left)
}

/// The window after an idle time: half of it for each timeout that has passed, and no less than the
/// restart window min(IW, cwnd) (RFC 5681 section 4.1, and RFC 2861's decay in place of one step).
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
