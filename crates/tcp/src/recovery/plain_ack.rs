//! The usual acknowledgment: of all outstanding data, of which nothing was lost, sent again or
//! SACKed.
//!
//! Called by [`Recovery::on_ack`]. Invariant: the outcome is that of the general case, without loss
//! detection.

use core::hint::cold_path;
use core::time::Duration;

use floodwall_base::{Instant, Seq};
use floodwall_wire::tcp_options::SackBlock;

use super::{Agreement, Recovery, RecoveryPhase, RecoveryVerdict};
use crate::ack_segment::AckSegment;
use crate::connection_index::ConnectionIndex;
use crate::loss_state::SizeProbe;
use crate::scoreboard::ScoreboardChange;
use crate::sent_segments::SentSegments;
use crate::state_slab::NO_STATE;

impl Recovery {
    /// [`Recovery::on_ack`], where it only matters whether the window was reduced: of a segment
    /// with this acknowledgment and these blocks, of which `told` gives all, if that is needed.
    #[inline(always)]
    pub(crate) fn is_reduced_by_ack<'a>(
        &mut self,
        records: &mut SentSegments,
        (ack, sack, now): (Seq, &[Option<SackBlock>], Instant),
        told: impl FnOnce() -> AckSegment<'a>,
        agreement: &Agreement,
    ) -> bool {
        if !self.is_plain(records, ack, sack) {
            cold_path();
            return self.on_any_ack(records, &told(), agreement).is_reduced;
        }
        if self.on_sole_ack(records, now).is_none() {
            cold_path();
            let _ = self.on_plain_ack_of_many(records, &told());
        }
        false
    }

    /// Fast path: whether an acknowledgment covers all outstanding data, of which nothing was lost,
    /// retransmitted or SACKed.
    #[inline(always)]
    pub(super) fn is_plain(
        &self,
        records: &SentSegments,
        ack: Seq,
        sack: &[Option<SackBlock>],
    ) -> bool {
        self.phase == RecoveryPhase::Open
            && (self.loss == NO_STATE || self.is_undisputed(records))
            && !self.is_reordering
            && sack.iter().all(Option::is_none)
            && self.board.is_completed_by(ack)
    }

    /// Whether no probe is in flight, and no acknowledgment may undo a reduction.
    #[inline(never)]
    fn is_undisputed(&self, records: &SentSegments) -> bool {
        self.known_loss(records).is_none_or(|loss| {
            loss.probe.is_none() && loss.size_probe == SizeProbe::Absent && !loss.undo.awaits_ack()
        })
    }

    /// [`Recovery::on_ack`] for the fast path, without loss detection.
    #[inline(always)]
    pub(super) fn on_plain_ack(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
    ) -> RecoveryVerdict {
        match self.on_sole_ack(records, segment.now) {
            Some(change) => RecoveryVerdict { change, ..RecoveryVerdict::default() },
            None => {
                let segment = *segment;
                self.on_plain_ack_of_many(records, &segment)
            }
        }
    }

    /// The same of one record that was never sent again; `None`, without an effect, of others.
    #[inline(always)]
    fn on_sole_ack(
        &mut self,
        records: &mut SentSegments,
        now: Instant,
    ) -> Option<ScoreboardChange> {
        let (flight, start) = (self.board.outstanding(), self.board.una());
        let (sent_at, end, acked) = self.board.take_sole(records)?;
        let reach = self.rack.on_arrived(sent_at, (start, end), now, None);
        let nanos = now.as_nanos().saturating_sub(sent_at.as_nanos());
        self.rtt.sample_nanos(nanos, self.samples_of(flight), now);
        self.rack.on_ack(self.board.una(), self.board.nxt(), false, reach);
        self.progress = now;
        self.open_by(records, (acked, Some(nanos)), flight, now);
        self.pass_marks(records);
        self.alarm = ConnectionIndex::NONE;
        Some(ScoreboardChange {
            acked,
            acked_new: acked,
            rtt: Some(Duration::from_nanos(nanos)),
            original: Some(end),
            reach,
            ..ScoreboardChange::default()
        })
    }

    /// The same of several records, or of data that was sent again.
    #[inline(never)]
    fn on_plain_ack_of_many(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
    ) -> RecoveryVerdict {
        let flight = self.board.outstanding();
        let segment = &AckSegment { rtt_min: self.rtt.min_nanos(), ..*segment };
        let change = self.board.complete(records, segment, &mut self.rack);
        self.measure(&change, segment, flight);
        self.rack.on_ack(self.board.una(), self.board.nxt(), false, change.reach);
        self.progress = segment.now;
        let verdict = RecoveryVerdict { change, ..RecoveryVerdict::default() };
        self.open_window(records, segment, &change, &verdict, flight);
        self.pass_marks(records);
        self.alarm = ConnectionIndex::NONE;
        verdict
    }
}
