//! RACK: time-based loss detection (RFC 8985 section 6).
//!
//! Called by `scoreboard` for every newly delivered segment, and by `recovery`. Invariant: the
//! state is that of the segment which was sent last among all delivered ones; the reordering window
//! is at most the smoothed round-trip time.

use core::time::Duration;

use floodwall_base::{Instant, Seq};

use crate::ack_segment::AckSegment;
use crate::rtt::RttEstimator;
use crate::timestamps::tick_of;

/// Recoveries without a D-SACK after which the reordering window shrinks again (section 6.2).
const WINDOW_PERSIST: u8 = 16;
/// Segments that must have been delivered out of order while no reordering was seen (section 5.2):
/// the threshold of duplicate ACKs for fast retransmit.
const DUP_THRESH: u32 = 3;
/// The largest degree of reordering that is told, as on Linux.
const DEGREE_MAX: u32 = 300;

/// The RACK state of one connection: its latest delivered segment and the reordering window.
#[derive(Clone, Debug)]
pub struct RackState {
    sent_at: Instant,
    end: Seq,
    /// In nanoseconds, as the next field.
    rtt: u64,
    /// The last byte known to be delivered.
    forward: Seq,
    /// The end of the round in which a D-SACK was received.
    dsack_round: Option<Seq>,
    window_mult: u8,
    persist: u8,
    has_sample: bool,
    /// ACKs of segments that had been overtaken; reordering was seen where there were any.
    reordered: u8,
    /// The most bytes by which a segment was overtaken at any time.
    reach: u32,
    /// The minimum RTT; [`u64::MAX`] before the first sample.
    min_rtt: u64,
}

impl RackState {
    /// The state before any delivery; the stream is at `una`.
    #[must_use]
    pub const fn new(una: Seq) -> Self {
        Self {
            sent_at: Instant::ORIGIN,
            end: una,
            rtt: 0,
            forward: una,
            dsack_round: None,
            window_mult: 1,
            persist: WINDOW_PERSIST,
            has_sample: false,
            reordered: 0,
            reach: 0,
            min_rtt: u64::MAX,
        }
    }

    /// Whether reordering was seen on the path.
    #[must_use]
    pub const fn is_reordering(&self) -> bool {
        self.reordered > 0
    }

    /// How often reordering was seen, up to 255, as Linux's `tcpi_reord_seen` has it.
    #[must_use]
    pub const fn reordered(&self) -> u8 {
        self.reordered
    }

    /// How far segments were overtaken, in segments of `mss` bytes and 3 at least, as Linux's
    /// `tcpi_reordering` has it. Losses are not detected by it, but by time.
    #[must_use]
    pub fn reordering_degree(&self, mss: u32) -> u32 {
        self.reach.div_ceil(mss.max(1)).clamp(DUP_THRESH, DEGREE_MAX)
    }

    /// The round-trip time of the latest delivered segment.
    #[must_use]
    pub const fn rtt(&self) -> Duration {
        Duration::from_nanos(self.rtt)
    }

    /// The same, once a segment was delivered.
    #[must_use]
    pub fn sample(&self) -> Option<Duration> {
        self.has_sample.then(|| self.rtt())
    }

    /// The path's minimum RTT, which separates the ACK of a retransmission from that of its
    /// original.
    pub(crate) const fn set_min_rtt(&mut self, nanos: u64) {
        self.min_rtt = nanos;
    }

    /// A segment was newly delivered (steps 2 and 3). Returns by how many bytes it was overtaken.
    #[inline(always)]
    pub(crate) fn on_arrived(
        &mut self,
        sent_at: Instant,
        (start, end): (Seq, Seq),
        is_retransmission: bool,
        segment: &AckSegment<'_>,
    ) -> u32 {
        let mut reach = 0;
        if self.forward.is_before(end) {
            self.forward = end;
        } else if end.is_before(self.forward) && !is_retransmission {
            reach = self.forward.since(start);
        }
        let rtt = segment.now.as_nanos().saturating_sub(sent_at.as_nanos());
        if is_retransmission {
            let of_original = segment.echoed_at.is_some_and(|echo| echo < tick_of(sent_at));
            if of_original || self.min_rtt != u64::MAX && rtt < self.min_rtt {
                return reach;
            }
        }
        if !self.has_sample || is_after(sent_at, end, self.sent_at, self.end) {
            (self.sent_at, self.end, self.rtt, self.has_sample) = (sent_at, end, rtt, true);
        }
        reach
    }

    /// Whether a segment was sent before the latest delivered one. What a round sends has one time:
    /// the order of a retransmission and of new data in it is not known.
    #[must_use]
    pub fn was_sent_before(&self, sent_at: Instant, end: Seq, is_retransmission: bool) -> bool {
        self.has_sample
            && match is_retransmission {
                true => self.sent_at > sent_at,
                false => is_after(self.sent_at, self.end, sent_at, end),
            }
    }

    /// The latest delivered segment is again that of an earlier state: an ACK has turned out to be
    /// of originals, and not of what was sent again.
    pub(crate) const fn forget_arrival(&mut self, earlier: &Self) {
        (self.sent_at, self.end) = (earlier.sent_at, earlier.end);
        (self.rtt, self.has_sample) = (earlier.rtt, earlier.has_sample);
    }

    /// Adapts the reordering window to D-SACKs (step 4), and notes by how much the segments of this
    /// ACK were overtaken at most.
    pub fn on_ack(&mut self, una: Seq, nxt: Seq, has_dsack: bool, reach: u32) {
        if reach > 0 {
            self.reordered = self.reordered.saturating_add(1);
            self.reach = self.reach.max(reach);
        }
        if self.dsack_round.is_some_and(|round| round.is_at_most(una)) {
            self.dsack_round = None;
        }
        if has_dsack && self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.window_mult = self.window_mult.saturating_add(1);
            self.persist = WINDOW_PERSIST;
        }
    }

    /// A recovery ends: after sixteen without a D-SACK the reordering window is reset.
    pub const fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.window_mult = 1;
        }
    }

    /// The reordering window: how long earlier segments may still arrive (step 4).
    #[must_use]
    pub fn reordering_window(
        &self,
        rtt: &RttEstimator,
        is_recovering: bool,
        sacked_segments: u32,
    ) -> Duration {
        if !self.is_reordering() && (is_recovering || sacked_segments >= DUP_THRESH) {
            return Duration::ZERO;
        }
        let quarter = rtt.min().unwrap_or_default() / 4;
        (quarter * u32::from(self.window_mult)).min(rtt.smoothed().unwrap_or_default())
    }
}

/// RACK_sent_after: sent later, or at the same time with a higher sequence number.
fn is_after(at: Instant, end: Seq, other_at: Instant, other_end: Seq) -> bool {
    at > other_at || (at == other_at && other_end.is_before(end))
}
