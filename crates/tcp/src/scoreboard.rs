//! The scoreboard: which parts of the sent stream are delivered, in flight, or lost (RFC 2018, RFC
//! 6675, RFC 8985).
//!
//! Used by [`crate::recovery`] alone. Invariants: the records cover exactly `una..nxt`, in order
//! and without overlap; `pipe + sacked + lost = nxt - una`; a SACK block has no effect outside of
//! the sent range, and splits a record between segments only, so that a peer creates at most as
//! many records as we sent segments; blocks are advisory, and may be ignored at any time.
//!
//! # Under flood
//! Reachable by a proven peer (CVE-2019-11477 to 11479). Bound: `TCP_RECORDS_FLOW` records. Work of
//! an ACK: each record is removed once; the blocks together visit at most `TCP_SACK_STEPS` records,
//! from where the last ACK's blocks ended; the rest is left to the next ACK, which repeats it.
//! Honest traffic loses nothing: its blocks are near the previous ones.

mod marks;
mod sack;

use core::time::Duration;

use floodwall_base::limits::TCP_RECORDS_FLOW;
use floodwall_base::{Instant, Seq};

pub use crate::ack_segment::AckSegment;
use crate::rack::RackState;
pub use crate::scoreboard_change::ScoreboardChange;
use crate::sent_segments::{NONE, SegmentOutcome, SegmentRange, SentSegment, SentSegments};
use crate::state_slab::NO_STATE;

/// The scoreboard of one connection.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    by_seq: SegmentRange,
    in_flight: SegmentRange,
    una: Seq,
    nxt: Seq,
    count: u32,
    /// Its [`crate::scoreboard_marks`], or [`NO_STATE`].
    marks: u32,
}

const _: () = assert!(size_of::<Scoreboard>() <= 32, "part of each connection");

impl Scoreboard {
    /// An empty scoreboard; the stream is at `una`.
    #[must_use]
    pub const fn new(una: Seq) -> Self {
        Self {
            by_seq: SegmentRange::EMPTY,
            in_flight: SegmentRange::EMPTY,
            una,
            nxt: una,
            count: 0,
            marks: NO_STATE,
        }
    }

    /// The first unacknowledged byte.
    #[must_use]
    pub const fn una(&self) -> Seq {
        self.una
    }

    /// The next byte to be sent for the first time.
    #[must_use]
    pub const fn nxt(&self) -> Seq {
        self.nxt
    }

    /// Bytes sent and not acknowledged: RFC 5681's FlightSize.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// The estimate of bytes in flight (RFC 6675 section 4).
    #[inline(always)]
    #[must_use]
    pub fn pipe(&self, records: &SentSegments) -> u32 {
        if self.is_unmarked() { self.outstanding() } else { self.pipe_beside_marks(records) }
    }

    /// The same where there may be some that is not in flight.
    #[inline(never)]
    fn pipe_beside_marks(&self, records: &SentSegments) -> u32 {
        let marks = self.known_marks(records);
        (self.outstanding() - marks.sacked - marks.lost).saturating_sub(marks.presumed)
    }

    /// Whether it has no marks: then nothing is SACKed, lost or presumed delivered.
    #[inline(always)]
    pub(crate) const fn is_unmarked(&self) -> bool {
        self.marks == NO_STATE
    }

    /// Bytes that the peer has SACKed.
    #[must_use]
    pub fn sacked(&self, records: &SentSegments) -> u32 {
        self.known_marks(records).sacked
    }

    /// Bytes considered lost and not retransmitted.
    #[must_use]
    pub fn lost(&self, records: &SentSegments) -> u32 {
        self.known_marks(records).lost
    }

    /// Whether nothing is SACKed or considered lost.
    #[inline(always)]
    pub(crate) fn is_all_in_flight(&self, records: &SentSegments) -> bool {
        self.is_unmarked() || {
            let marks = self.known_marks(records);
            marks.sacked == 0 && marks.lost == 0
        }
    }

    /// Bytes sent again and not known to be delivered. A walk over all records.
    #[must_use]
    pub fn repeated(&self, records: &SentSegments) -> u32 {
        let (mut bytes, mut at) = (0, self.by_seq.first);
        while let Some(record) = records.at(at) {
            if record.outcome == SegmentOutcome::InFlight && record.retransmits > 0 {
                bytes += record.len;
            }
            at = record.next;
        }
        bytes
    }

    /// Segments that the peer has SACKed.
    #[must_use]
    pub fn sacked_segments(&self, records: &SentSegments) -> u32 {
        self.known_marks(records).sacked_segments
    }

    /// Number of records of this connection.
    #[must_use]
    pub const fn record_count(&self) -> u32 {
        self.count
    }

    /// Whether one more segment can be recorded.
    #[must_use]
    pub fn can_record(&self, records: &SentSegments) -> bool {
        (self.count == 0 && records.available() > 0)
            || ((self.count as usize) < TCP_RECORDS_FLOW && records.has_spare())
    }

    /// Records new data: `len` sequence numbers from [`Scoreboard::nxt`] on, in segments of `unit`
    /// bytes. Returns false, without an effect, where [`Scoreboard::can_record`] is false and it
    /// cannot extend the last record.
    #[inline(always)]
    pub fn on_sent(
        &mut self,
        records: &mut SentSegments,
        len: u32,
        unit: u32,
        now: Instant,
    ) -> bool {
        let unit = u16::try_from(unit.max(1)).unwrap_or(u16::MAX);
        if let Some(last) = records.at_mut(self.by_seq.last)
            && last.sent_at == now
            && last.outcome == SegmentOutcome::InFlight
            && last.retransmits == 0
            && last.unit == unit
            && u32::from(last.head) == u32::from(unit)
            && last.len % u32::from(unit) == 0
            && self.in_flight.last == self.by_seq.last
        {
            last.len += len;
            self.nxt += len;
            return true;
        }
        if !self.can_record(records) {
            return false;
        }
        let head = u16::try_from(len).unwrap_or(u16::MAX).min(unit);
        let record = SentSegment {
            start: self.nxt,
            len,
            sent_at: now,
            prev: NONE,
            next: NONE,
            older: NONE,
            newer: NONE,
            unit,
            head,
            segments: 0,
            retransmits: 0,
            outcome: SegmentOutcome::InFlight,
        };
        let Some(index) = records.take(record) else {
            return false;
        };
        self.count += 1;
        self.nxt += len;
        if self.count == 1 {
            // It is alone, and linked to none already.
            self.by_seq = SegmentRange { first: index, last: index };
            self.in_flight = self.by_seq;
            return true;
        }
        let last = self.by_seq.last;
        records.link_by_seq(&mut self.by_seq, last, index);
        records.append_by_time(&mut self.in_flight, index);
        true
    }

    /// The range to retransmit first: its first byte, and the number of lost bytes from there on.
    #[must_use]
    pub fn next_lost(&self, records: &SentSegments) -> Option<(Seq, u32)> {
        records.at(self.known_marks(records).list.first).map(|record| (record.start, record.len))
    }

    /// The last segment that was sent and is not known to be delivered: the tail loss probe (RFC
    /// 8985 section 7.3), at most `unit` bytes.
    #[must_use]
    pub fn last_segment(&self, records: &SentSegments, unit: u32) -> Option<(Seq, u32)> {
        let record =
            records.at(self.by_seq.last).filter(|r| r.outcome != SegmentOutcome::Sacked)?;
        let start = record.cut_before(record.end() - 1).later(record.end() - unit.min(record.len));
        Some((start, record.end().since(start)))
    }

    /// `len` bytes from `start` on were retransmitted. They were lost, or are a probe.
    pub fn on_retransmitted(
        &mut self,
        records: &mut SentSegments,
        start: Seq,
        len: u32,
        now: Instant,
    ) {
        let Some(mut index) = self.find(records, start) else {
            return;
        };
        if records.at(index).is_some_and(|record| record.start != start) {
            match self.split(records, index, start) {
                Some(behind) => index = behind,
                None => return,
            }
        }
        if records.at(index).is_none_or(|record| record.outcome == SegmentOutcome::Sacked) {
            return;
        }
        if records.at(index).is_some_and(|record| len < record.len) {
            if self.joins_previous(records, index, len, now) {
                return;
            }
            // Without a free record the rest counts as sent too: it will be detected as lost again.
            self.split(records, index, start + len);
        }
        self.leave_list(records, index);
        let Some(record) = records.at_mut(index) else {
            return;
        };
        let lost = if record.outcome == SegmentOutcome::Lost { record.len } else { 0 };
        record.outcome = SegmentOutcome::InFlight;
        record.sent_at = now;
        record.retransmits = record.retransmits.saturating_add(1);
        records.append_by_time(&mut self.in_flight, index);
        self.change_marks(records, |marks| marks.lost -= lost);
    }

    /// Moves the first `len` bytes of a lost record to the previous one, which was retransmitted at
    /// the same moment: so a burst of retransmissions is one record.
    fn joins_previous(
        &mut self,
        records: &mut SentSegments,
        index: u32,
        len: u32,
        now: Instant,
    ) -> bool {
        let Some(record) = records.at(index) else {
            return false;
        };
        let (before, unit, is_lost) =
            (record.prev, record.unit, record.outcome == SegmentOutcome::Lost);
        let at_cut = record.cut_before(record.start + len) == record.start + len;
        let again = record.retransmits.saturating_add(1);
        let Some(previous) = records.at_mut(before) else {
            return false;
        };
        let joins = is_lost
            && at_cut
            && previous.outcome == SegmentOutcome::InFlight
            && previous.sent_at == now
            && previous.retransmits == again
            && previous.unit == unit
            && previous.cut_before(previous.end() - 1) + u32::from(unit) == previous.end()
            && self.in_flight.last == before;
        if joins {
            previous.len += len;
            self.change_marks(records, |marks| marks.lost -= len);
            if let Some(record) = records.at_mut(index) {
                record.trim_front(len);
            }
        }
        joins
    }

    /// Processes an ACK: removes acknowledged data, marks SACKed ranges, and passes each newly
    /// delivered segment to `rack`.
    pub fn on_ack(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        rack: &mut RackState,
    ) -> ScoreboardChange {
        let mut change = ScoreboardChange::default();
        if self.una.is_before(segment.ack) && segment.ack.is_at_most(self.nxt) {
            self.advance(records, segment, rack, &mut change);
        }
        self.take_blocks(records, segment, rack, &mut change);
        change
    }

    /// Fast path: whether an acknowledgment covers all sent data, of which nothing was lost or
    /// SACKed.
    #[inline]
    pub(crate) fn is_completed_by(&self, ack: Seq) -> bool {
        ack == self.nxt && ack != self.una && self.is_unmarked()
    }

    /// Takes the record of all sent data, where that is one that was never sent again: on the fast
    /// path, by an acknowledgment of all.
    #[inline(always)]
    pub(crate) fn take_sole(&mut self, records: &mut SentSegments) -> Option<(Instant, Seq, u32)> {
        let first = self.by_seq.first;
        let record = records.at(first)?;
        if first != self.by_seq.last || record.start != self.una || record.retransmits > 0 {
            return None;
        }
        let (sent_at, end, len) = (record.sent_at, record.end(), record.len);
        debug_assert!(self.is_unmarked(), "nothing of it was lost");
        records.give_back(first);
        *self = Self::new(self.nxt);
        Some((sent_at, end, len))
    }

    /// Processes an ACK on the fast path.
    #[inline(never)]
    pub(crate) fn complete(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        rack: &mut RackState,
    ) -> ScoreboardChange {
        let mut change = ScoreboardChange::default();
        let first = self.by_seq.first;
        match records.at(first) {
            // All data of one send call is one record.
            Some(record) if first == self.by_seq.last && record.start == self.una => {
                let all = record.len;
                (change.acked, change.acked_new) = (all, all);
                let told = (record.sent_at, (record.start, record.end()), record.retransmits);
                arrived(rack, &mut change, segment, told);
                if record.retransmits > 0 {
                    change.rtt = None;
                }
                debug_assert!(self.is_unmarked(), "nothing of it was lost");
                records.give_back(first);
                *self = Self::new(segment.ack);
            }
            _ => self.advance(records, segment, rack, &mut change),
        }
        change
    }

    #[inline(never)]
    fn advance(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        rack: &mut RackState,
        change: &mut ScoreboardChange,
    ) {
        change.acked = segment.ack.since(self.una);
        let mut fills_hole = false;
        while let Some(record) = records.at_mut(self.by_seq.first) {
            if segment.ack.is_at_most(record.start) {
                break;
            }
            let n = segment.ack.earlier(record.end()).since(record.start);
            let end = record.start + n;
            let is_whole = n == record.len;
            let (outcome, segments) = (record.outcome, u32::from(record.segments));
            if outcome != SegmentOutcome::Sacked {
                change.acked_new += n;
                let (sent_at, start, retransmits) =
                    (record.sent_at, record.start, record.retransmits);
                fills_hole |= retransmits > 0;
                arrived(rack, change, segment, (sent_at, (start, end), retransmits));
            }
            if !is_whole {
                record.trim_front(n);
            }
            if outcome != SegmentOutcome::InFlight {
                self.unmark(records, outcome, (n, if is_whole { segments } else { 0 }));
            }
            if !is_whole {
                break;
            }
            self.remove(records, self.by_seq.first);
        }
        if fills_hole {
            // Its acknowledgment waited for the hole: the time is not the path's.
            change.rtt = None;
        }
        self.una = segment.ack;
        if !self.is_unmarked() {
            self.bound_presumption(records);
            if self.count == 0 {
                self.clear_marks(records);
            }
        }
    }

    /// So many bytes and segments that were not in flight are acknowledged.
    #[inline(never)]
    fn unmark(
        &self,
        records: &mut SentSegments,
        outcome: SegmentOutcome,
        (bytes, segments): (u32, u32),
    ) {
        self.change_marks(records, |marks| {
            if outcome == SegmentOutcome::Lost {
                marks.lost -= bytes;
            } else {
                marks.sacked -= bytes;
                marks.sacked_segments = marks.sacked_segments.saturating_sub(segments);
            }
        });
    }

    /// Marks as lost what RACK detects (RFC 8985 section 6.2, step 5): data sent long enough before
    /// delivered data. Returns the number of bytes, and when to check again at the latest.
    pub fn detect_lost(
        &mut self,
        records: &mut SentSegments,
        rack: &RackState,
        reordering: Duration,
        now: Instant,
    ) -> (u32, Option<Instant>) {
        let mut lost = 0;
        while let Some(record) = records.at(self.in_flight.first) {
            if !rack.was_sent_before(record.sent_at, record.end(), record.retransmits > 0) {
                break;
            }
            let due = record.sent_at + rack.rtt() + reordering;
            if now < due {
                return (lost, Some(due));
            }
            let Some(len) = self.mark_lost(records, self.in_flight.first) else { break };
            lost += len;
        }
        (lost, None)
    }

    /// The retransmission timer expired: the first segment is lost, and data that was sent long
    /// enough ago (RFC 8985 section 6.3). `rtt` is RACK's RTT plus its reordering window; `None`
    /// marks all. A peer that SACKed the first segment without acknowledging it has dropped it
    /// (reneging, RFC 2018 section 8): then all its SACKs are discarded. Returns the number of lost
    /// bytes.
    pub fn on_timeout(
        &mut self,
        records: &mut SentSegments,
        rtt: Option<Duration>,
        now: Instant,
    ) -> u32 {
        let before = self.lost(records);
        self.end_presumption(records, u32::MAX);
        if records
            .at(self.by_seq.first)
            .is_some_and(|first| first.outcome == SegmentOutcome::Sacked)
        {
            self.forget_blocks(records);
        }
        while let Some(record) = records.at(self.in_flight.first) {
            if rtt.is_some_and(|rtt| now < record.sent_at + rtt) {
                break;
            }
            if self.mark_lost(records, self.in_flight.first).is_none() {
                break;
            }
        }
        self.mark_first_lost(records);
        self.order_lost(records);
        self.lost(records).saturating_sub(before)
    }

    /// Marks the first segment as lost (RFC 6582: the third duplicate ACK, or a partial one).
    /// Returns its bytes, 0 where it was lost already.
    pub fn mark_first_lost(&mut self, records: &mut SentSegments) -> u32 {
        let index = self.by_seq.first;
        let Some(record) = records.at(index).filter(|r| r.outcome == SegmentOutcome::InFlight)
        else {
            return 0;
        };
        let cut = record.start + u32::from(record.head);
        if u32::from(record.head) < record.len {
            self.split(records, index, cut);
        }
        let len = self.mark_lost(records, index);
        self.bound_presumption(records);
        len.unwrap_or(0)
    }

    /// Marks as lost what is in flight in segments of more than `size` bytes (path MTU); a shorter
    /// last segment of a record has arrived or will. Returns the number of bytes. Visits all
    /// records.
    pub fn mark_larger_lost(&mut self, records: &mut SentSegments, size: u32) -> u32 {
        let (mut lost, mut at) = (0, self.by_seq.first);
        while let Some(record) = records.at(at) {
            let (index, is_single) = (at, u32::from(record.head) >= record.len);
            let largest =
                if is_single { record.len } else { u32::from(record.head.max(record.unit)) };
            if record.outcome != SegmentOutcome::InFlight || largest <= size {
                at = record.next;
                continue;
            }
            let (last, end) = (record.cut_before(record.end() - 1), record.end());
            if !is_single && end.since(last) <= size {
                self.split(records, index, last);
            }
            at = records.at(index).map_or(NONE, |record| record.next);
            lost += self.mark_lost(records, index).unwrap_or(0);
        }
        if lost > 0 {
            self.order_lost(records);
            self.bound_presumption(records);
        }
        lost
    }

    /// A duplicate ACK without SACK: a segment of `unit` bytes has left the network.
    pub fn presume(&mut self, records: &mut SentSegments, unit: u32) {
        let outstanding = self.outstanding();
        if let Some(marks) = self.marks(records) {
            let most = (outstanding - marks.sacked - marks.lost).saturating_sub(unit);
            marks.presumed = marks.presumed.saturating_add(unit).min(most);
        }
    }

    /// Subtracts `bytes` from the presumed ones: they are acknowledged.
    pub fn end_presumption(&self, records: &mut SentSegments, bytes: u32) {
        self.change_marks(records, |marks| marks.presumed = marks.presumed.saturating_sub(bytes));
    }

    /// Marks lost data as in flight again: the reduction is undone (RFC 4015).
    pub fn forget_losses(&mut self, records: &mut SentSegments) {
        loop {
            let index = self.known_marks(records).list.first;
            let Some(record) = records.at_mut(index) else { break };
            record.outcome = SegmentOutcome::InFlight;
            let (len, sent_at) = (record.len, record.sent_at);
            self.change_lost_list(records, |records, list| records.unlink_by_time(list, index));
            self.change_marks(records, |marks| marks.lost -= len);
            self.link_by_moment(records, index, sent_at);
        }
    }

    /// Frees all records: before the connection is freed.
    pub fn clear(&mut self, records: &mut SentSegments) {
        while self.by_seq.first != NONE {
            self.remove(records, self.by_seq.first);
        }
        self.clear_marks(records);
        self.una = self.nxt;
    }

    /// Marks a record as lost; returns its bytes.
    fn mark_lost(&mut self, records: &mut SentSegments, index: u32) -> Option<u32> {
        let (start, len) = records.at(index).map(|record| (record.start, record.len))?;
        self.marks(records)?.lost += len;
        if let Some(record) = records.at_mut(index) {
            record.outcome = SegmentOutcome::Lost;
        }
        records.unlink_by_time(&mut self.in_flight, index);
        self.change_lost_list(records, |records, list| {
            // Mostly they are added in order; one before all others is retransmitted first.
            let is_first = records.at(list.first).is_some_and(|r| start.is_before(r.start));
            let behind = if is_first { NONE } else { list.last };
            records.link_by_time(list, behind, index);
        });
        Some(len)
    }

    /// Sorts the lost records in stream order: after a timeout only the first segment is sent, and
    /// it must be the one that the peer waits for.
    fn order_lost(&mut self, records: &mut SentSegments) {
        let mut at = self.by_seq.first;
        self.change_lost_list(records, |records, list| {
            *list = SegmentRange::EMPTY;
            while let Some(record) = records.at(at) {
                let next = record.next;
                if record.outcome == SegmentOutcome::Lost {
                    records.append_by_time(list, at);
                }
                at = next;
            }
        });
    }

    /// Returns a record to the in-flight list, sorted by its time: searched from the oldest on,
    /// since records considered lost are old.
    fn link_by_moment(&mut self, records: &mut SentSegments, index: u32, sent_at: Instant) {
        let (mut behind, mut at) = (NONE, self.in_flight.first);
        while let Some(record) = records.at(at).filter(|record| record.sent_at <= sent_at) {
            (behind, at) = (at, record.newer);
        }
        records.link_by_time(&mut self.in_flight, behind, index);
    }

    /// Removes a record from the list by time that contains it.
    fn leave_list(&mut self, records: &mut SentSegments, index: u32) {
        match records.at(index).map(|record| record.outcome) {
            Some(SegmentOutcome::InFlight) => records.unlink_by_time(&mut self.in_flight, index),
            Some(SegmentOutcome::Lost) => {
                self.change_lost_list(records, |records, list| records.unlink_by_time(list, index));
            }
            Some(SegmentOutcome::Sacked) | None => {}
        }
    }

    fn remove(&mut self, records: &mut SentSegments, index: u32) {
        self.leave_list(records, index);
        if !self.is_unmarked() {
            let next = records.at(index).map_or(NONE, |record| record.next);
            self.change_marks(records, |marks| {
                if marks.cursor == index {
                    marks.cursor = next;
                }
            });
        }
        records.unlink_by_seq(&mut self.by_seq, index);
        records.give_back(index);
        self.count -= 1;
    }

    /// Splits a record in two; returns the part from `at` on. `None` where no record is free.
    fn split(&mut self, records: &mut SentSegments, index: u32, at: Seq) -> Option<u32> {
        if self.count as usize >= TCP_RECORDS_FLOW {
            return None;
        }
        let front = records.at(index)?;
        let n = at.since(front.start);
        debug_assert!(n > 0 && n < front.len);
        let mut back = front.clone();
        back.trim_front(n);
        let outcome = back.outcome;
        let behind = records.take(back)?;
        let front = records.at_mut(index)?;
        front.len = n;
        front.head = front.head.min(u16::try_from(n).unwrap_or(u16::MAX));
        records.link_by_seq(&mut self.by_seq, index, behind);
        match outcome {
            SegmentOutcome::InFlight => records.link_by_time(&mut self.in_flight, index, behind),
            SegmentOutcome::Lost => self.change_lost_list(records, |records, list| {
                records.link_by_time(list, index, behind);
            }),
            SegmentOutcome::Sacked => {}
        }
        self.count += 1;
        Some(behind)
    }

    /// The record that contains `seq`: tries the first lost one, the last, and the first.
    fn find(&self, records: &SentSegments, seq: Seq) -> Option<u32> {
        let holds = |index: u32| {
            records.at(index).is_some_and(|record| seq.is_within(record.start, record.len))
        };
        let lost = self.known_marks(records).list.first;
        [lost, self.by_seq.last, self.by_seq.first].into_iter().find(|&index| holds(index))
    }
}

/// Passes one newly delivered range to RACK.
#[inline(always)]
fn arrived(
    rack: &mut RackState,
    change: &mut ScoreboardChange,
    segment: &AckSegment<'_>,
    (sent_at, (start, end), retransmits): (Instant, (Seq, Seq), u8),
) {
    let again = (retransmits > 0).then_some(segment);
    let reach = rack.on_arrived(sent_at, (start, end), segment.now, again);
    change.reach = change.reach.max(reach);
    if retransmits == 0 {
        let rtt = segment.now.saturating_since(sent_at);
        change.rtt = Some(change.rtt.map_or(rtt, |other| other.min(rtt)));
        change.original.get_or_insert(end);
    }
}

#[cfg(test)]
mod tests;
