//! HyStart++ (RFC 9406): detects when slow start should end before it causes loss.
//!
//! Called by [`super::cubic`], in the first slow start of a connection only. Invariant: it only
//! slows the window's growth or ends slow start; it never shrinks a window. A round lasts until all
//! data that was in flight at its beginning is acknowledged.

use core::time::Duration;

use floodwall_base::Seq;

use super::Delivery;

/// RFC 9406 section 4.3.
const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_ROUNDS: u8 = 5;
/// Divisor of the window growth in conservative slow start.
pub(super) const CSS_GROWTH_DIVISOR: u32 = 4;
/// No sample, in microseconds.
pub(super) const NONE: u32 = u32::MAX;

/// The phase of slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HystartPace {
    /// Standard slow start.
    Full,
    /// Conservative slow start.
    Slow,
    /// Slow start has ended.
    End,
}

/// The HyStart++ state of one connection; times in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Hystart {
    round_end: Option<Seq>,
    last_min: u32,
    current_min: u32,
    samples: u8,
    /// Conservative slow start: the baseline minimum RTT, and its rounds.
    css: Option<(u32, u8)>,
}

impl Hystart {
    pub(super) const fn new() -> Self {
        Self { round_end: None, last_min: NONE, current_min: NONE, samples: 0, css: None }
    }

    /// The state after a round with this minimum RTT.
    pub(super) const fn after_round(min: u32) -> Self {
        Self { current_min: min, ..Self::new() }
    }

    /// Where a round has ended, the minimum RTT of it, if that is all that is known.
    pub(super) const fn round_min(&self) -> Option<u32> {
        if self.css.is_none() { Some(self.current_min) } else { None }
    }

    /// Processes one ACK in slow start.
    pub(super) fn on_ack(&mut self, delivery: &Delivery) -> HystartPace {
        // An end of long ago, before a pause without samples, lies half of the circle ahead.
        let in_round = self
            .round_end
            .is_some_and(|end| delivery.ack.is_before(end) && end.is_at_most(delivery.next));
        if !in_round && self.next_round(delivery.next) {
            return HystartPace::End;
        }
        if let Some(rtt) = delivery.rtt {
            self.current_min = self.current_min.min(micros(rtt));
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= N_RTT_SAMPLE && self.current_min != NONE {
            self.judge();
        }
        if self.css.is_some() { HystartPace::Slow } else { HystartPace::Full }
    }

    /// Begins a round; returns true where the conservative rounds are used up.
    fn next_round(&mut self, next: Seq) -> bool {
        let is_first = self.round_end.is_none();
        self.round_end = Some(next);
        (self.last_min, self.current_min, self.samples) = (self.current_min, NONE, 0);
        match &mut self.css {
            Some((_, rounds)) if !is_first => {
                *rounds += 1;
                *rounds >= CSS_ROUNDS
            }
            _ => false,
        }
    }

    fn judge(&mut self) {
        match self.css {
            None if self.last_min != NONE => {
                let thresh =
                    (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if self.current_min >= self.last_min.saturating_add(thresh) {
                    self.css = Some((self.current_min, 0));
                }
            }
            // The delay has fallen again: the queue was not caused by this flow.
            Some((baseline, _)) if self.current_min < baseline => self.css = None,
            _ => {}
        }
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(NONE - 1).min(NONE - 1)
}
