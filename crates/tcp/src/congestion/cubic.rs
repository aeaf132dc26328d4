//! CUBIC's window (RFC 9438), with HyStart++ (RFC 9406) in the first slow start.
//!
//! Called through [`super::Controller`]. The window follows `C * (t - K)^3 + W_max` since the last
//! reduction, and never grows slower than Reno would. Integers: time in 1/1024 s, windows in bytes,
//! products in 64 bits; `t - K` is cut at 256 s, where the cube has passed every window.
//! Invariants: see [`super`]; remainders of divisions are kept, so that rounding does not slow
//! growth with large windows and small ACKs.

use core::time::Duration;

use floodwall_base::Instant;

use super::hystart::{CSS_GROWTH_DIVISOR, Hystart, HystartPace};
use super::{
    Congestion, CongestionControl, Delivery, Flight, UNLIMITED, WINDOW_MAX, decayed,
    initial_window, rescaled, slow_start,
};
use crate::connection_index::ConnectionIndex;

/// C = 0.4 segments per second cubed, in 1/65536 (RFC 9438 section 5.1).
const C_Q16: u64 = 26_214;
/// β = 0.7 in tenths (section 4.6).
const BETA_TENTHS: u64 = 7;
/// 3 * (1 - β) / (1 + β) = 9/17 (section 4.3).
const CUBIC_ALPHA: (u64, u64) = (9, 17);
/// Longest distance from the plateau that is evaluated, in 1/1024 s: 256 s.
const PLATEAU_REACH: u64 = 1 << 18;
/// Segments that one ACK may add in the first slow start (RFC 9406 section 4.2, not paced), and
/// in later ones (RFC 3465 section 2.3).
const SLOW_START_LIMIT: (u32, u32) = (8, 2);

/// The cubic curve since the last reduction.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// When congestion avoidance began; moved forward over times in which the window did not limit
    /// the flow (section 5.8).
    epoch: Instant,
    /// Bytes at the plateau.
    w_max: u32,
    /// From the epoch to the plateau, in 1/1024 s.
    k: u32,
    /// The window that Reno would have now, in bytes.
    w_est: u32,
    /// The window before the reduction: above it, Reno's α is 1.
    prior: u32,
}

/// The state that a reduction replaced.
#[derive(Clone, Copy, Debug)]
struct Before {
    window: u32,
    ssthresh: u32,
    w_max: u32,
    curve: Option<Curve>,
}

/// The CUBIC congestion controller (RFC 9438) with HyStart++ (RFC 9406).
#[derive(Clone, Debug)]
pub struct Cubic {
    window: u32,
    ssthresh: u32,
    /// The window at the last reduction, lowered by fast convergence (section 4.7); 0: none yet.
    w_max: u32,
    /// The window just before the last reduction.
    prior: u32,
    curve: Option<Curve>,
    /// Remainders of the window's and of the estimate's growth: bytes times window.
    carry: (u64, u64),
    /// Since when the window has not limited the flow.
    unlimited_since: ConnectionIndex,
    /// In the first slow start.
    hystart: Option<Hystart>,
    before: Option<Before>,
}

impl Cubic {
    /// The controller of a new connection.
    #[must_use]
    pub fn new(mss: u32) -> Self {
        Self {
            window: initial_window(mss),
            ssthresh: UNLIMITED,
            w_max: 0,
            prior: 0,
            curve: None,
            carry: (0, 0),
            unlimited_since: ConnectionIndex::NONE,
            hystart: Some(Hystart::new()),
            before: None,
        }
    }

    /// The controller of a connection that has lost nothing; `round_min` is what
    /// [`Cubic::settled`] gave.
    pub(super) fn going_on(window: u32, ssthresh: u32, round_min: u32) -> Self {
        let hystart = Some(Hystart::after_round(round_min));
        Self { window, ssthresh, hystart, ..Self::new(1) }
    }

    /// In the first slow start, with all data acknowledged: the minimum RTT of the round that has
    /// ended, which is all that is known beside the window.
    pub(super) fn settled(&self) -> Option<u32> {
        let knows_more = self.curve.is_some() || self.before.is_some() || self.w_max != 0;
        self.hystart.as_ref().filter(|_| !knows_more)?.round_min()
    }

    #[cfg(test)]
    pub(super) fn force_window(&mut self, window: u32) {
        (self.window, self.ssthresh) = (window, window);
    }

    #[cfg(test)]
    pub(super) const fn plateau(&self) -> u32 {
        self.w_max
    }

    fn save(&mut self) {
        self.before = Some(Before {
            window: self.window,
            ssthresh: self.ssthresh,
            w_max: self.w_max,
            curve: self.curve,
        });
    }

    /// The multiplicative decrease (sections 4.6 and 4.7).
    fn reduce(&mut self, flight: &Flight) {
        self.prior = self.window;
        // Fast convergence: a plateau below the last one leaves bandwidth for new flows.
        self.w_max = if self.window < self.w_max {
            tenths(self.window, 10 + BETA_TENTHS) / 2
        } else {
            self.window
        };
        self.ssthresh = tenths(flight.size.min(self.window), BETA_TENTHS).max(2 * flight.mss);
        self.curve = None;
        self.carry = (0, 0);
        self.hystart = None;
        self.unlimited_since = ConnectionIndex::NONE;
    }

    fn grow_in_slow_start(&mut self, delivery: &Delivery) -> u32 {
        let Some(hystart) = &mut self.hystart else {
            let (window, left) =
                slow_start(self.window, self.ssthresh, delivery, SLOW_START_LIMIT.1);
            self.window = window;
            return left;
        };
        let pace = hystart.on_ack(delivery);
        let slower = Delivery { acked: delivery.acked / CSS_GROWTH_DIVISOR, ..*delivery };
        let counted = if pace == HystartPace::Slow { &slower } else { delivery };
        let (window, left) = slow_start(self.window, self.ssthresh, counted, SLOW_START_LIMIT.0);
        self.window = window;
        if pace == HystartPace::End {
            self.ssthresh = self.window;
            self.hystart = None;
            return 0;
        }
        left
    }

    fn avoid_congestion(&mut self, acked: u32, delivery: &Delivery) {
        let mut curve = match self.curve {
            Some(curve) => curve,
            None => self.begin(delivery),
        };
        if let Some(since) = core::mem::take(&mut self.unlimited_since).get() {
            curve.epoch += delivery.now.saturating_since(since);
        }
        self.estimate(&mut curve, acked, delivery.mss);
        let t = ticks(delivery.now.saturating_since(curve.epoch));
        if curve.at(t, delivery.mss) < curve.w_est {
            // Section 4.3: the Reno-friendly region.
            self.window = self.window.max(curve.w_est);
        } else {
            // Sections 4.4 and 4.5: where the curve is a round trip from now, and at most half of
            // the window more.
            let ahead = curve.at(t + ticks(delivery.srtt), delivery.mss);
            let target = ahead.clamp(self.window, self.window.saturating_add(self.window / 2));
            self.carry.0 += u64::from(target - self.window) * u64::from(acked);
            let step = self.carry.0 / u64::from(self.window.max(1));
            self.carry.0 -= step * u64::from(self.window.max(1));
            self.window = self.window.saturating_add(u32::try_from(step).unwrap_or(0));
        }
        self.window = self.window.min(WINDOW_MAX);
        self.curve = Some(curve);
    }

    /// Congestion avoidance begins: K of section 4.2; without a plateau above (after a timeout, or
    /// when slow start ended by itself) the present window is the plateau (sections 4.8, 4.10).
    fn begin(&self, delivery: &Delivery) -> Curve {
        let w_max = self.w_max.max(self.window);
        let k = cube_root_of_rise(w_max - self.window, delivery.mss);
        let prior = self.prior.max(self.window);
        Curve { epoch: delivery.now, w_max, k, w_est: self.window, prior }
    }

    /// W_est of section 4.3, in bytes.
    fn estimate(&mut self, curve: &mut Curve, acked: u32, mss: u32) {
        let (num, den) = if curve.w_est >= curve.prior { (1, 1) } else { CUBIC_ALPHA };
        let window = u64::from(self.window.max(1)) * den;
        self.carry.1 += u64::from(mss) * u64::from(acked) * num * (17 / den);
        let whole = window * (17 / den);
        let step = self.carry.1 / whole;
        self.carry.1 -= step * whole;
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        curve.w_est = curve.w_est.saturating_add(step).min(WINDOW_MAX);
    }
}

impl Curve {
    /// W_cubic at `t` ticks after the epoch, in bytes.
    fn at(&self, t: u64, mss: u32) -> u32 {
        let off = t.abs_diff(u64::from(self.k)).min(PLATEAU_REACH);
        // 2^-30 s^3 in 54 bits; times C in 2^-16; then to bytes.
        let rise = (((off * off * off) >> 10) * C_Q16) >> 26;
        let rise = (rise * u64::from(mss)) >> 10;
        let rise = u32::try_from(rise).unwrap_or(u32::MAX);
        if t >= u64::from(self.k) {
            self.w_max.saturating_add(rise).min(WINDOW_MAX)
        } else {
            self.w_max.saturating_sub(rise)
        }
    }
}

impl CongestionControl for Cubic {
    fn window(&self) -> u32 {
        self.window
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    #[inline(always)]
    fn on_unlimited_ack(&mut self, now: Instant) {
        // Before the curve begins there is nothing to move.
        if self.curve.is_some() && self.unlimited_since.is_none() {
            self.unlimited_since = now.into();
        }
    }

    fn on_ack(&mut self, delivery: &Delivery) {
        if !delivery.is_window_limited {
            return self.on_unlimited_ack(delivery.now);
        }
        let acked = if self.window < self.ssthresh {
            self.grow_in_slow_start(delivery)
        } else {
            delivery.acked
        };
        if acked > 0 && self.window >= self.ssthresh {
            self.avoid_congestion(acked, delivery);
        }
    }

    fn on_congestion(&mut self, _: Congestion, flight: &Flight) {
        self.save();
        self.reduce(flight);
        self.window = self.ssthresh;
    }

    fn on_timeout(&mut self, flight: &Flight, is_first: bool) {
        if is_first {
            self.save();
            self.reduce(flight);
            // Section 4.8: the first avoidance after a timeout starts at its plateau.
            self.w_max = 0;
        }
        self.curve = None;
        self.window = flight.mss;
    }

    fn begin_with(&mut self, window: u32) {
        self.window = window;
    }

    fn after_idle(&mut self, idle: Duration, rto: Duration, mss: u32) {
        if idle >= rto {
            self.ssthresh = self.ssthresh.max(self.window / 4 * 3);
            self.window = decayed(self.window, idle, rto, mss);
            self.carry = (0, 0);
        }
        if let Some(curve) = &mut self.curve {
            curve.epoch += idle;
        }
    }

    fn undo(&mut self) {
        if let Some(before) = self.before.take() {
            self.window = self.window.max(before.window);
            self.ssthresh = self.ssthresh.max(before.ssthresh);
            self.w_max = before.w_max;
            self.curve = before.curve;
        }
    }

    fn on_mss_change(&mut self, from: u32, to: u32) {
        self.window = rescaled(self.window, from, to);
        self.carry = (0, 0);
    }
}

fn tenths(bytes: u32, tenths: u64) -> u32 {
    u32::try_from(u64::from(bytes) * tenths / 10).unwrap_or(u32::MAX)
}

/// A length of time in 1/1024 s.
fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / 976_562).unwrap_or(u64::MAX / 2).min(1 << 40)
}

/// K: the cube root of `(rise / mss) / C`, in 1/1024 s.
fn cube_root_of_rise(rise: u32, mss: u32) -> u32 {
    // (rise * 2.5 / mss) * 2^30, rounded down; below 2^64 for a segment of one byte.
    let cubed = u128::from(rise) * 5 * (1 << 29) / u128::from(mss.max(1));
    cube_root(u64::try_from(cubed).unwrap_or(u64::MAX))
}

/// The cube root, rounded down, a bit at a time: 22 steps.
fn cube_root(n: u64) -> u32 {
    let mut root = 0_u64;
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        let cube = u128::from(next) * u128::from(next) * u128::from(next);
        if cube <= u128::from(n) {
            root = next;
        }
    }
    root as u32
}
