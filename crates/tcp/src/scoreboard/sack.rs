//! The blocks of a SACK option: validation and marking (RFC 2018, RFC 2883).
//!
//! Part of the scoreboard; see there for invariants and bounds.

use floodwall_base::Seq;
use floodwall_base::limits::TCP_SACK_STEPS;
use floodwall_wire::tcp_options::{SACK_BLOCKS_MAX, SackBlock};

use super::{AckSegment, Scoreboard, ScoreboardChange, arrived};
use crate::rack::RackState;
use crate::sent_segments::{NONE, SegmentOutcome, SentSegments};

/// Maximum distance of a reported duplicate below the cumulative acknowledgment.
const DSACK_REACH: u32 = 1 << 30;

impl Scoreboard {
    /// Marks the ranges of the blocks, in stream order.
    pub(super) fn take_blocks(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        rack: &mut RackState,
        change: &mut ScoreboardChange,
    ) {
        let mut blocks = [(Seq(0), Seq(0)); SACK_BLOCKS_MAX];
        let mut count = 0;
        change.dsack = duplicate(segment, self.nxt);
        let skip = usize::from(change.dsack.is_some());
        for block in segment.sack.iter().flatten().take(SACK_BLOCKS_MAX).skip(skip) {
            let (left, right) = (Seq(block.left), Seq(block.right));
            let is_sound =
                left.is_before(right) && self.una.is_at_most(left) && right.is_at_most(self.nxt);
            if is_sound && let Some(place) = blocks.get_mut(count) {
                *place = (left, right);
                count += 1;
            }
        }
        let una = self.una;
        let blocks = blocks.get_mut(..count).unwrap_or_default();
        blocks.sort_unstable_by_key(|(left, _)| left.since(una));
        let mut steps = TCP_SACK_STEPS;
        for &mut (left, right) in blocks {
            self.take_block(records, segment, (rack, change), (left, right), &mut steps);
        }
    }

    fn take_block(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        (rack, change): (&mut RackState, &mut ScoreboardChange),
        (left, right): (Seq, Seq),
        steps: &mut u32,
    ) {
        let Some(mut at) = self.seek(records, left, steps) else {
            return;
        };
        while let Some(record) = records.at(at).filter(|record| record.start.is_before(right)) {
            if *steps == 0 {
                return;
            }
            *steps -= 1;
            let (next, outcome) = (record.next, record.outcome);
            let from = record.cut_behind(left.later(record.start));
            let to = record.cut_before(right.earlier(record.end()));
            self.change_marks(records, |marks| marks.cursor = at);
            if outcome != SegmentOutcome::Sacked && from.is_before(to) {
                let Some(index) = self.carve(records, at, (from, to)) else {
                    return;
                };
                self.mark_sacked(records, segment, (rack, change), index);
                at = self.merge(records, index);
                self.change_marks(records, |marks| marks.cursor = at);
                at = records.at(at).map_or(NONE, |record| record.next);
            } else {
                at = next;
            }
        }
    }

    /// The record that contains `left`, searched from the cursor in either direction. Where the
    /// steps are used up, the cursor is that much nearer for the next ACK.
    fn seek(&mut self, records: &mut SentSegments, left: Seq, steps: &mut u32) -> Option<u32> {
        let first = self.by_seq.first;
        records.at(first)?;
        let mut cursor = self.marks(records)?.cursor;
        if cursor == NONE {
            cursor = first;
        }
        let found = loop {
            let Some(record) = records.at(cursor) else { break None };
            if left.is_within(record.start, record.len) {
                break Some(cursor);
            }
            match steps.checked_sub(1) {
                Some(fewer) => *steps = fewer,
                None => break None,
            }
            let is_behind = left.is_before(record.start);
            cursor = if is_behind { record.prev } else { record.next };
        };
        self.change_marks(records, |marks| marks.cursor = cursor);
        found
    }

    /// Splits a range off into a record of its own.
    fn carve(
        &mut self,
        records: &mut SentSegments,
        index: u32,
        (from, to): (Seq, Seq),
    ) -> Option<u32> {
        let mut index = index;
        if records.at(index)?.start != from {
            index = self.split(records, index, from)?;
        }
        if records.at(index)?.end() != to {
            self.split(records, index, to)?;
        }
        Some(index)
    }

    fn mark_sacked(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        (rack, change): (&mut RackState, &mut ScoreboardChange),
        index: u32,
    ) {
        self.leave_list(records, index);
        let Some(record) = records.at_mut(index) else {
            return;
        };
        let was_lost = record.outcome == SegmentOutcome::Lost;
        record.outcome = SegmentOutcome::Sacked;
        record.segments = u16::try_from(record.segment_count()).unwrap_or(u16::MAX);
        let (len, segments) = (record.len, u32::from(record.segments));
        change.sacked += len;
        let told = (record.sent_at, (record.start, record.end()), record.retransmits);
        arrived(rack, change, segment, told);
        self.change_marks(records, |marks| {
            marks.lost -= if was_lost { len } else { 0 };
            marks.sacked += len;
            marks.sacked_segments += segments;
        });
    }

    /// Merges a SACKed record with SACKed neighbours: its segment boundaries are no longer needed.
    /// Returns the merged record.
    fn merge(&mut self, records: &mut SentSegments, index: u32) -> u32 {
        let neighbours =
            records.at(index).map_or((NONE, NONE), |record| (record.prev, record.next));
        let mut whole = index;
        for (front, back) in [(index, neighbours.1), (neighbours.0, index)] {
            let is_sacked =
                |at| records.at(at).is_some_and(|record| record.outcome == SegmentOutcome::Sacked);
            if !is_sacked(front) || !is_sacked(back) {
                continue;
            }
            let Some((len, segments)) = records.at(back).map(|r| (r.len, r.segments)) else {
                continue;
            };
            if let Some(record) = records.at_mut(front)
                && let Some(sum) = record.segments.checked_add(segments)
            {
                record.len += len;
                record.segments = sum;
                self.remove(records, back);
                whole = front;
            }
        }
        whole
    }

    /// Discards all SACKs of the peer: their ranges are lost.
    pub(super) fn forget_blocks(&mut self, records: &mut SentSegments) {
        let mut at = self.by_seq.first;
        while let Some(record) = records.at_mut(at) {
            let next = record.next;
            if record.outcome == SegmentOutcome::Sacked {
                record.outcome = SegmentOutcome::Lost;
                let len = record.len;
                record.head = record.unit.min(u16::try_from(len).unwrap_or(u16::MAX));
                self.change_lost_list(records, |records, list| records.append_by_time(list, at));
                self.change_marks(records, |marks| marks.lost += len);
            }
            at = next;
        }
        self.change_marks(records, |marks| (marks.sacked, marks.sacked_segments) = (0, 0));
    }
}

/// The duplicate that the first block reports (D-SACK, RFC 2883 section 4): it lies below the
/// cumulative acknowledgment, or within the second block.
fn duplicate(segment: &AckSegment<'_>, nxt: Seq) -> Option<SackBlock> {
    let mut blocks = segment.sack.iter().flatten();
    let first = *blocks.next()?;
    let (left, right) = (Seq(first.left), Seq(first.right));
    if !left.is_before(right) || nxt.is_before(right) {
        return None;
    }
    let is_below = right.is_at_most(segment.ack) && segment.ack.since(left) <= DSACK_REACH;
    let is_inside = blocks.next().is_some_and(|second| {
        segment.ack.is_at_most(left)
            && Seq(second.left).is_at_most(left)
            && right.is_at_most(Seq(second.right))
            && Seq(second.left).is_before(Seq(second.right))
    });
    (is_below || is_inside).then_some(first)
}
