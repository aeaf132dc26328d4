//! Detection of spurious reductions.
//!
//! Part of the sender (`recovery.rs`), in its [`LossState`](crate::loss_state::LossState). Three
//! kinds of evidence: the first ACK after a retransmission echoes a timestamp from before it
//! (Eifel, RFC 3522); all retransmitted data is reported as duplicate (RFC 3708); after a timeout,
//! data that was never retransmitted is acknowledged or reported by SACK (F-RTO, RFC 5682 sections
//! 2 and 3). Where the first ACK after the timeout covers no more than what was sent again, new
//! data is sent in place of repetitions, and the next ACK decides. Invariant: one reduction is
//! undone at most once.

use floodwall_base::{Instant, Seq};

use crate::ack_segment::AckSegment;
use crate::connection_index::ConnectionIndex;
use crate::scoreboard_change::ScoreboardChange;
use crate::timestamps::tick_of;

/// The evidence that the current reduction was spurious.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecoveryUndo {
    /// A recovery episode that may be undone.
    is_armed: bool,
    /// Its timeout was the first of the episode: F-RTO applies.
    is_frto: bool,
    /// New data is sent in place of repetitions (RFC 5682 section 2.1, step 2b).
    is_waiting: bool,
    /// A full segment of new data may be sent.
    has_unsent: bool,
    /// When data was first retransmitted in it.
    first_at: ConnectionIndex,
    /// Bytes retransmitted in it, less those of them reported as duplicates.
    unreported: u32,
    /// The cumulative acknowledgment when it began.
    from: Seq,
    /// The recovery is over: reports of duplicates that may still come do so before this is
    /// acknowledged.
    until: Seq,
    is_over: bool,
    /// Something was retransmitted in it.
    has_repeated: bool,
}

impl RecoveryUndo {
    /// Starts an episode with a fast recovery.
    pub(crate) fn arm(&mut self, una: Seq) {
        *self = Self { is_armed: true, from: una, ..Self::default() };
    }

    /// Starts an episode with a timeout, or turns a recovery into one.
    pub(crate) fn arm_for_timeout(&mut self, una: Seq, is_frto: bool) {
        self.arm(una);
        self.is_frto = is_frto;
    }

    /// Whether there is an episode to be decided.
    pub(crate) const fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Whether lost data waits, because the next ACK may prove that nothing is lost.
    #[inline]
    pub(crate) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Notes whether a full segment of new data may be sent.
    pub(crate) const fn note_unsent(&mut self, is_full: bool) {
        self.has_unsent = is_full;
    }

    pub(crate) const fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// Ends F-RTO without a result: lost data is sent again.
    pub(crate) const fn end_frto(&mut self) {
        (self.is_frto, self.is_waiting) = (false, false);
    }

    /// Whether an acknowledgment without reports may still decide.
    #[inline]
    pub(crate) fn awaits_ack(&self) -> bool {
        self.is_armed && (self.is_frto || !self.first_at.is_none())
    }

    /// Ends the episode: the reduction stays.
    pub(crate) fn disarm(&mut self) {
        *self = Self::default();
    }

    /// The recovery has ended, with data up to `nxt` sent.
    pub(crate) fn on_recovered(&mut self, nxt: Seq) {
        if self.is_armed {
            (self.until, self.is_over) = (nxt, true);
        }
    }

    /// All before `una` is acknowledged.
    #[inline]
    pub(crate) fn pass(&mut self, una: Seq) {
        if self.is_over && self.until.is_before(una) {
            self.disarm();
        }
    }

    /// Data was retransmitted.
    pub(crate) fn on_retransmitted(&mut self, len: u32, now: Instant) {
        if self.is_armed {
            if self.first_at.is_none() {
                self.first_at = now.into();
            }
            self.unreported = self.unreported.saturating_add(len);
            self.has_repeated = true;
        }
    }

    /// Whether this ACK proves that nothing was lost; then the episode ends. `timeout_at` is the
    /// next number to be sent when the timer expired, where it did.
    pub(crate) fn judge(
        &mut self,
        segment: &AckSegment<'_>,
        change: &ScoreboardChange,
        timeout_at: Option<Seq>,
    ) -> bool {
        if !self.is_armed {
            return false;
        }
        if let Some(block) = change.dsack
            && self.from.is_at_most(Seq(block.left))
        {
            let len = Seq(block.right).since(Seq(block.left));
            self.unreported = self.unreported.saturating_sub(len);
        }
        let is_all_reported = self.has_repeated && self.unreported == 0;
        let is_early = change.acked > 0
            && segment
                .echoed_at
                .zip(self.first_at.get())
                .is_some_and(|(echo, at)| echo < tick_of(at));
        let is_original = self.is_frto
            && timeout_at.zip(change.original).is_some_and(|(point, end)| end.is_at_most(point));
        // The first ACK that advances `una` decides about the timestamp; D-SACKs may arrive later.
        if change.acked > 0 {
            // One that covers only what was sent again decides nothing, the first time.
            let may_wait = !self.is_waiting && change.original.is_none();
            let is_over = timeout_at.is_none_or(|point| point.is_at_most(segment.ack));
            self.is_waiting = self.is_frto && may_wait && !is_over;
            self.is_frto = self.is_waiting;
            if !self.first_at.is_none() && segment.echoed_at.is_some() && !is_early {
                self.first_at = ConnectionIndex::NONE;
            }
        }
        if change.acked == 0 && self.is_waiting && (change.sacked > 0 || segment.is_duplicate) {
            // Only new data arrives: the rest is lost.
            self.end_frto();
        }
        let is_spurious = is_all_reported || is_early || is_original;
        if is_spurious {
            self.disarm();
        }
        is_spurious
    }
}
