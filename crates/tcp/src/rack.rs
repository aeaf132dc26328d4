//! RACK: time-based loss detection (RFC 8985 section 6).
//!
//! Called by `scoreboard` for every newly delivered segment, and by `recovery`. Invariant: the
//! state is that of the segment which was sent last among all delivered ones; the reordering window
//! is at most the smoothed round-trip time.

use core::hint::cold_path;
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

/// No segment was delivered yet.
const NONE: u32 = u32::MAX;

/// The RACK state of one connection, its latest delivered segment and the reordering window: 32
/// bytes.
#[derive(Clone, Debug)]
pub struct RackState {
    sent_at: Instant,
    end: Seq,
    /// The RTT in units of 64 ns, as the estimator has it; [`NONE`] before the first delivery.
    rtt: u32,
    /// The last byte known to be delivered.
    forward: Seq,
    /// The end of the round in which a D-SACK was received, until that is acknowledged.
    dsack_round: Seq,
    window_mult: u8,
    persist: u8,
    /// ACKs of segments that had been overtaken; reordering was seen where there were any.
    reordered: u8,
    /// The most bytes by which a segment was overtaken at any time.
    reach: u32,
}

impl RackState {
    /// The state before any delivery; the stream is at `una`.
    #[must_use]
    pub const fn new(una: Seq) -> Self {
        Self {
            sent_at: Instant::ORIGIN,
            end: una,
            rtt: NONE,
            forward: una,
            dsack_round: una,
            window_mult: 1,
            persist: WINDOW_PERSIST,
            reordered: 0,
            reach: 0,
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
        if self.rtt == NONE { Duration::ZERO } else { RttEstimator::length(self.rtt) }
    }

    /// The same, once a segment was delivered.
    #[must_use]
    pub fn sample(&self) -> Option<Duration> {
        (self.rtt != NONE).then(|| self.rtt())
    }

    /// A segment was newly delivered (steps 2 and 3): by the acknowledgment `again`, where it was
    /// sent again. Returns by how many bytes it was overtaken.
    #[inline(always)]
    pub(crate) fn on_arrived(
        &mut self,
        sent_at: Instant,
        (start, end): (Seq, Seq),
        now: Instant,
        again: Option<&AckSegment<'_>>,
    ) -> u32 {
        let mut reach = 0;
        if self.forward.is_before(end) {
            self.forward = end;
        } else if end.is_before(self.forward) && again.is_none() {
            cold_path();
            reach = self.forward.since(start);
        }
        let rtt = now.as_nanos().saturating_sub(sent_at.as_nanos());
        if let Some(segment) = again {
            let of_original = segment.echoed_at.is_some_and(|echo| echo < tick_of(sent_at));
            // The minimum separates the ACK of a retransmission from that of its original.
            if of_original || segment.rtt_min != u64::MAX && rtt < segment.rtt_min {
                return reach;
            }
        }
        if self.rtt == NONE || is_after(sent_at, end, self.sent_at, self.end) {
            (self.sent_at, self.end, self.rtt) = (sent_at, end, RttEstimator::units_of(rtt));
        }
        reach
    }

    /// Whether a segment was sent before the latest delivered one. What a round sends has one time:
    /// the order of a retransmission and of new data in it is not known.
    #[must_use]
    pub fn was_sent_before(&self, sent_at: Instant, end: Seq, is_retransmission: bool) -> bool {
        self.rtt != NONE
            && match is_retransmission {
                true => self.sent_at > sent_at,
                false => is_after(self.sent_at, self.end, sent_at, end),
            }
    }

    /// The latest delivered segment is again that of an earlier state: an ACK has turned out to be
    /// of originals, and not of what was sent again.
    pub(crate) const fn forget_arrival(&mut self, earlier: &Self) {
        (self.sent_at, self.end, self.rtt) = (earlier.sent_at, earlier.end, earlier.rtt);
    }

    /// Adapts the reordering window to D-SACKs (step 4), and notes by how much the segments of this
    /// ACK were overtaken at most.
    pub fn on_ack(&mut self, una: Seq, nxt: Seq, has_dsack: bool, reach: u32) {
        if reach > 0 {
            cold_path();
            self.reordered = self.reordered.saturating_add(1);
            self.reach = self.reach.max(reach);
        }
        // A mark that was passed would mean the opposite half of the circle later.
        self.dsack_round = self.dsack_round.later(una);
        if has_dsack && self.dsack_round == una {
            self.dsack_round = nxt;
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
