//! Detection of spurious reductions.
//!
//! Part of the sender ([`super::Recovery`]). Three kinds of evidence: the first ACK after a
//! retransmission echoes a timestamp from before it (Eifel, RFC 3522); all retransmitted data is
//! reported as duplicate (RFC 3708); after a timeout, data that was never retransmitted is
//! acknowledged (F-RTO, RFC 5682 section 3). Invariant: one reduction is undone at most once.

use floodwall_base::{Instant, Seq};

use super::{AckSegment, ScoreboardChange};
use crate::connection_index::ConnectionIndex;
use crate::timestamps::tick_of;

/// The evidence that the current reduction was spurious.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecoveryUndo {
    /// A recovery episode that may be undone.
    is_armed: bool,
    /// Its timeout was the first of the episode: F-RTO applies.
    is_frto: bool,
    /// When data was first retransmitted in it.
    first_at: ConnectionIndex,
    /// Bytes retransmitted in it, and those of them reported as duplicates.
    repeated: u32,
    reported: u32,
    /// The cumulative acknowledgment when it began.
    from: Seq,
}

impl RecoveryUndo {
    /// Starts an episode with a fast recovery.
    pub(super) fn arm(&mut self, una: Seq) {
        *self = Self { is_armed: true, from: una, ..Self::default() };
    }

    /// Starts an episode with a timeout, or turns a recovery into one.
    pub(super) fn arm_for_timeout(&mut self, una: Seq, is_frto: bool) {
        self.arm(una);
        self.is_frto = is_frto;
    }

    /// Whether an acknowledgment without reports may still decide.
    #[inline]
    pub(super) fn awaits_ack(&self) -> bool {
        self.is_armed && (self.is_frto || !self.first_at.is_none())
    }

    /// Ends the episode: the reduction stays.
    pub(super) fn disarm(&mut self) {
        *self = Self::default();
    }

    /// Data was retransmitted.
    pub(super) fn on_retransmitted(&mut self, len: u32, now: Instant) {
        if self.is_armed {
            if self.first_at.is_none() {
                self.first_at = now.into();
            }
            self.repeated = self.repeated.saturating_add(len);
        }
    }

    /// Whether this ACK proves that nothing was lost; then the episode ends.
    pub(super) fn judge(
        &mut self,
        segment: &AckSegment<'_>,
        change: &ScoreboardChange,
        is_timeout: bool,
    ) -> bool {
        if !self.is_armed {
            return false;
        }
        if let Some(block) = change.dsack
            && self.from.is_at_most(Seq(block.left))
        {
            self.reported = self.reported.saturating_add(Seq(block.right).since(Seq(block.left)));
        }
        let is_all_reported = self.repeated > 0 && self.reported >= self.repeated;
        let is_early = change.acked > 0
            && segment
                .echoed_at
                .zip(self.first_at.get())
                .is_some_and(|(echo, at)| echo < tick_of(at));
        let is_original = is_timeout && self.is_frto && change.is_original;
        // The first ACK that advances `una` decides about the timestamp; D-SACKs may arrive later.
        if change.acked > 0 {
            self.is_frto = false;
            if !self.first_at.is_none() && segment.echoed_at.is_some() && !is_early {
                self.first_at = ConnectionIndex::NONE;
            }
        }
        let is_spurious = is_all_reported || is_early || is_original;
        if is_spurious {
            self.disarm();
        }
        is_spurious
    }
}
