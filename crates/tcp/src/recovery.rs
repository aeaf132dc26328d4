//! Loss recovery: the sender of a connection, which decides what to send, what to retransmit, and
//! when the timer expires (RFC 8985, RFC 6675, RFC 9937, RFC 6298, RFC 5682, RFC 4015).
//!
//! Used by a connection's output, input and timer. It combines the scoreboard, RACK-TLP, PRR, the
//! round-trip time and the congestion controller, and maintains the one timer that all of these
//! need. Invariants: the window is reduced at most once per window of data; a reduction is undone
//! only on evidence from the peer (an echoed timestamp, D-SACKs, F-RTO); a timer only triggers a
//! check, which decides by the clock it is given. The caller sends: first [`Recovery::next_lost`]
//! (fast retransmit), then new data, within [`Recovery::allowance`]. Not here: the peer's window,
//! persist timer, Nagle, the limit of timeouts after which a connection is given up.

mod loss;
mod plain_ack;

use core::hint::cold_path;
use core::time::Duration;

use floodwall_base::{Instant, Seq};
use floodwall_sync::prefetch;

pub use crate::ack_segment::AckSegment;
pub use crate::scoreboard::ScoreboardChange;

use crate::congestion::{Algorithm, Congestion, CongestionControl, Flight, Window};
use crate::connection_index::ConnectionIndex;
use crate::loss_state::SizeProbe;
use crate::prr::PrrState;
use crate::rack::RackState;
use crate::rtt::{RttConfig, RttEstimator};
use crate::scoreboard::Scoreboard;
use crate::sent_segments::SentSegments;
use crate::state_slab::NO_STATE;

/// Duplicate ACKs that indicate a loss and trigger a fast retransmit where SACK is not in use (RFC
/// 5681 section 3.2).
const DUP_THRESH: u8 = 3;
/// Longest delay of a peer's delayed ACK (RFC 8985 section 7.2, WCDelAckT).
const DELAYED_ACK_MAX: Duration = Duration::from_millis(200);
/// No probe is earlier: two ticks of a millisecond, as on Linux. Where the RTT is some microseconds
/// a peer that is busy for a moment has lost nothing.
const PROBE_WAIT_MIN: Duration = Duration::from_millis(2);

/// The phase of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryPhase {
    /// No loss is known.
    Open,
    /// Losses are repaired while ACKs arrive (fast recovery).
    Fast,
    /// The retransmission timer expired: all data is retransmitted in slow start.
    Timeout,
}

/// The purpose of the timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryTimer {
    /// The reordering timer: segments that may still arrive out of order are lost when it expires
    /// (RFC 8985 section 6.2, step 5).
    Reordering,
    /// A tail loss probe is due (section 7).
    Probe,
    /// The retransmission timeout (RTO).
    Retransmission,
}

/// The action after the timer expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum TimeoutKind {
    /// It was not due, or nothing is outstanding.
    Nothing,
    /// A loss was detected: send [`Recovery::next_lost`].
    Lost,
    /// Send one segment of new data if there is any and the peer's window permits, regardless of
    /// the allowance; else [`Recovery::tail`] again. Then call [`Recovery::on_probe_sent`].
    Probe,
    /// A retransmission timeout: send the first segment again.
    Timeout,
}

/// The result of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct RecoveryVerdict {
    /// The change of the scoreboard.
    pub change: ScoreboardChange,
    /// Bytes newly detected as lost.
    pub lost: u32,
    /// The last reduction was undone: it was spurious.
    pub is_undone: bool,
    /// The window was reduced: the next new segment carries CWR where ECN is in use.
    pub is_reduced: bool,
}

/// The handshake parameters of the sender: constant afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// SACK is in use.
    pub sack: bool,
    /// Bounds of the timeout.
    pub rtt: &'static RttConfig,
}

/// The sender state of one connection. Fields are ordered by access: those needed by each segment
/// come first, those needed only on loss last.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Recovery {
    phase: RecoveryPhase,
    is_reordering: bool,
    /// Segments in flight when new data was last sent, saturating.
    burst: u16,
    /// Current segment size.
    mss: u32,
    board: Scoreboard,
    /// When the retransmission timer was started; where nothing is outstanding, since when.
    progress: Instant,
    /// When segments that may still arrive out of order are lost, where it `is_reordering`; else
    /// when a tail loss probe is due.
    alarm: ConnectionIndex,
    /// What it knows while its window limits it, or a loss is looked for ([`LossState`]).
    ///
    /// [`LossState`]: crate::loss_state::LossState
    loss: u32,
    window: Window,
    rtt: RttEstimator,
    rack: RackState,
}

impl Recovery {
    /// The sender of a connection with first byte `una` and segments of `mss` bytes.
    #[must_use]
    pub fn new(una: Seq, mss: u32, algorithm: Algorithm, now: Instant) -> Self {
        let mss = mss.max(1);
        Self {
            board: Scoreboard::new(una),
            rack: RackState::new(una),
            rtt: RttEstimator::new(),
            window: Window::new(algorithm, mss),
            loss: NO_STATE,
            phase: RecoveryPhase::Open,
            is_reordering: false,
            mss,
            burst: 0,
            progress: now,
            alarm: ConnectionIndex::NONE,
        }
    }

    /// Sets the segment size of a sender that has sent nothing yet: as [`Recovery::new`] with it.
    pub(crate) fn begin_with_segments_of(&mut self, mss: u32) {
        self.begin_under(self.window.algorithm(), mss);
    }

    /// The same under an algorithm.
    #[inline]
    pub(crate) fn begin_under(&mut self, algorithm: Algorithm, mss: u32) {
        debug_assert_eq!(self.board.outstanding(), 0, "nothing was sent");
        self.mss = mss.max(1);
        debug_assert_eq!(self.loss, NO_STATE, "nothing was lost");
        self.window = Window::new(algorithm, self.mss);
    }

    /// The same at a later time, which counts as that of the last progress.
    pub(crate) fn begin_again(&mut self, mss: u32, now: Instant) {
        self.begin_with_segments_of(mss);
        self.progress = now;
    }

    /// Prefetches the lines that an acknowledgment and new data will touch.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.phase);
        prefetch(&self.progress);
        prefetch(&self.rtt);
        prefetch(&self.rack);
        prefetch(&self.window);
    }

    /// The scoreboard of outstanding data.
    #[must_use]
    pub const fn board(&self) -> &Scoreboard {
        &self.board
    }

    /// The round-trip time estimator.
    #[must_use]
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The round-trip time estimator, for the handshake's sample and for SYN timeouts.
    pub const fn rtt_mut(&mut self) -> &mut RttEstimator {
        &mut self.rtt
    }

    /// The congestion window.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// How often reordering was seen on the path, and by how many segments.
    #[must_use]
    pub fn reordering(&self) -> (u8, u32) {
        (self.rack.reordered(), self.rack.reordering_degree(self.mss))
    }

    /// The phase of the sender.
    #[must_use]
    pub const fn phase(&self) -> RecoveryPhase {
        self.phase
    }

    /// The current segment size.
    #[must_use]
    pub const fn mss(&self) -> u32 {
        self.mss
    }

    /// Bytes that congestion control permits to send now, new or retransmitted. The peer's window
    /// is a separate bound.
    #[inline(always)]
    #[must_use]
    pub fn allowance(&self, records: &SentSegments) -> u32 {
        match self.phase {
            RecoveryPhase::Fast => self.allowance_in_recovery(records),
            RecoveryPhase::Open | RecoveryPhase::Timeout => {
                self.window.window().saturating_sub(self.board.pipe(records))
            }
        }
    }

    /// The same in fast recovery.
    #[inline(never)]
    fn allowance_in_recovery(&self, records: &SentSegments) -> u32 {
        if let Some(loss) = self.known_loss(records) {
            return loss.prr.allowance();
        }
        // RFC 6675 section 5, step C; the first retransmission is always sent.
        let is_first = self.board.next_lost(records).is_some_and(|(at, _)| at == self.board.una());
        let room = self.window.window().saturating_sub(self.board.pipe(records));
        if is_first { room.max(self.mss) } else { room }
    }

    /// The range to retransmit before anything new: its first byte, and its length.
    #[inline(always)]
    #[must_use]
    pub fn next_lost(&self, records: &SentSegments) -> Option<(Seq, u32)> {
        if self.board.is_unmarked() { None } else { self.next_lost_marked(records) }
    }

    /// The same where something may be lost.
    #[inline(never)]
    fn next_lost_marked(&self, records: &SentSegments) -> Option<(Seq, u32)> {
        let lost = self.board.next_lost(records)?;
        (!self.known_loss(records).is_some_and(|loss| loss.undo.is_waiting())).then_some(lost)
    }

    /// Call before an ACK is processed after a timeout: whether a full segment of new data waits
    /// and fits the peer's window, which F-RTO may send in place of a repetition (RFC 5682 section
    /// 2.1).
    pub fn note_unsent(&mut self, records: &mut SentSegments, is_full: bool) {
        if let Some(loss) = self.known_loss_mut(records) {
            loss.undo.note_unsent(is_full);
        }
    }

    /// Call before sending after a pause: a congestion window that was unused for an RTO is reduced
    /// (RFC 5681 section 4.1). Returns whether it may have been.
    #[inline(always)]
    pub fn before_sending(
        &mut self,
        records: &mut SentSegments,
        agreement: &Agreement,
        now: Instant,
    ) -> bool {
        if self.board.outstanding() > 0 {
            return false;
        }
        let idle = now.as_nanos().saturating_sub(self.progress.as_nanos());
        // A timeout is never less than its minimum, which needs no look at the measurements.
        let has_paused =
            idle > agreement.rtt.least_nanos() && idle > self.rtt.base_nanos(agreement.rtt);
        if has_paused {
            cold_path();
            let rto = self.rtt.base_rto(agreement.rtt);
            let idle = Duration::from_nanos(idle);
            self.after_idle(records, idle, rto);
            self.progress = now;
        }
        has_paused
    }

    /// New data was sent: `len` sequence numbers (SYN and FIN count), in segments of `unit` bytes.
    /// False where it could not be recorded: then it must not be sent. Check
    /// [`Scoreboard::can_record`] before a segment is built.
    #[inline(always)]
    #[must_use]
    pub fn on_sent(
        &mut self,
        records: &mut SentSegments,
        (len, unit): (u32, u32),
        agreement: &Agreement,
        now: Instant,
    ) -> bool {
        let was_idle = self.board.outstanding() == 0;
        if !self.board.on_sent(records, len, unit, now) {
            return false;
        }
        if was_idle {
            self.progress = now;
        }
        if self.phase == RecoveryPhase::Fast {
            cold_path();
            self.sent_in_recovery(records, len);
        }
        let (flight, mss) = (self.board.outstanding(), self.mss);
        let burst = if flight <= mss { 1 } else { flight.div_ceil(mss) };
        self.burst = u16::try_from(burst).unwrap_or(u16::MAX);
        self.schedule_probe(records, agreement, now);
        true
    }

    /// `len` bytes from `start` on were retransmitted.
    pub fn on_retransmitted(
        &mut self,
        records: &mut SentSegments,
        start: Seq,
        len: u32,
        now: Instant,
    ) {
        self.board.on_retransmitted(records, start, len, now);
        self.sent_in_recovery(records, len);
        if let Some(loss) = self.known_loss_mut(records) {
            let flying = loss.size_probe.flying();
            if flying.is_some_and(|(seq, len)| start.is_within(seq, len)) {
                loss.size_probe = SizeProbe::Judged(false);
            }
            loss.undo.on_retransmitted(len, now);
        }
        if start == self.board.una() {
            self.progress = now;
        }
    }

    /// A probe was sent; `is_repeat` where it was not new data. Call [`Recovery::on_sent`] for new
    /// data, or [`Recovery::on_retransmitted`] for a repetition, before.
    pub fn on_probe_sent(&mut self, records: &mut SentSegments, is_repeat: bool, now: Instant) {
        let end = self.board.nxt();
        if let Some(loss) = self.loss(records) {
            loss.probe = Some((end, is_repeat));
        }
        self.clear_probe();
        self.progress = now;
    }

    /// No tail loss probe is due any more.
    const fn clear_probe(&mut self) {
        if !self.is_reordering {
            self.alarm = ConnectionIndex::NONE;
        }
    }

    /// Whether an acknowledgment of nothing new, without SACK blocks, would have no effect: nothing
    /// is outstanding, and no episode awaits evidence. This holds for every segment of a peer that
    /// only sends.
    #[inline]
    #[must_use]
    pub fn awaits_nothing(&self, records: &SentSegments) -> bool {
        self.board.outstanding() == 0
            && self.phase == RecoveryPhase::Open
            && self.known_loss(records).is_none_or(|loss| loss.probe.is_none())
            && self.alarm.is_none()
    }

    /// Processes an acknowledgment completely, except for sending.
    #[inline(always)]
    pub fn on_ack(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        agreement: &Agreement,
    ) -> RecoveryVerdict {
        if self.is_plain(records, segment.ack, segment.sack) {
            return self.on_plain_ack(records, segment);
        }
        let segment = *segment;
        self.on_any_ack(records, &segment, agreement)
    }

    /// The same, in the general case.
    #[inline(never)]
    fn on_any_ack(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        agreement: &Agreement,
    ) -> RecoveryVerdict {
        let (flight, pipe) = (self.board.outstanding(), self.board.pipe(records));
        let segment = &AckSegment { rtt_min: self.rtt.min_nanos(), ..*segment };
        let is_armed = self.known_loss(records).is_some_and(|loss| loss.undo.is_armed());
        let rack_before = is_armed.then(|| self.rack.clone());
        let change = self.board.on_ack(records, segment, &mut self.rack);
        self.measure(&change, segment, flight);
        let has_dsack = change.dsack.is_some();
        self.rack.on_ack(self.board.una(), self.board.nxt(), has_dsack, change.reach);
        let mut verdict = RecoveryVerdict { change, ..RecoveryVerdict::default() };
        if change.acked > 0 {
            self.progress = segment.now;
            if let Some(loss) = self.known_loss_mut(records) {
                loss.duplicates = 0;
            }
        }
        let is_new = change.acked > 0 || change.sacked > 0;
        self.judge_probe(records, segment, &change, &mut verdict, flight);
        verdict.is_undone = self.judge_undo(records, segment, &change);
        if verdict.is_undone
            && let Some(before) = rack_before
        {
            // What was sent again was not what arrived: by its time all that was sent before would
            // be lost.
            self.rack.forget_arrival(&before);
        }
        let is_ending = self.end_recovery(records, &change);
        self.pass_size_probe(records);
        verdict.lost = self.detect(records, segment, agreement, &change);
        if verdict.lost > 0
            && self.phase == RecoveryPhase::Open
            && !self.loses_probe(records, verdict.lost)
        {
            self.enter_fast(records, flight, pipe, segment.now);
            verdict.is_reduced = true;
        }
        // The ACK that ends a recovery leaves the window at `ssthresh` (RFC 9937), unless it begins
        // the next one: its first retransmission leaves at once.
        if !is_ending || self.phase == RecoveryPhase::Fast {
            self.open_window(records, segment, &change, &verdict, flight);
        }
        self.end_waiting(records);
        // A segment without news of the flight does not put the probe off.
        if is_new {
            self.schedule_probe(records, agreement, segment.now);
        }
        self.pass_marks(records);
        verdict
    }

    /// Clears marks in the stream that were passed: half of the circle later they would mean the
    /// opposite.
    #[inline(always)]
    fn pass_marks(&mut self, records: &mut SentSegments) {
        if self.loss != NO_STATE {
            self.pass_loss(records);
        }
    }

    /// The peer echoes a mark (ECE, RFC 3168 section 6.1.2). True where the window was reduced: the
    /// next new segment carries CWR.
    pub fn on_ecn_echo(&mut self, records: &mut SentSegments, now: Instant) -> bool {
        if self.is_reduced_for_a_mark(records) || self.phase != RecoveryPhase::Open {
            return false;
        }
        let nxt = self.board.nxt();
        if let Some(loss) = self.loss(records) {
            loss.marked = nxt;
            loss.undo.disarm();
        }
        // The data in flight when the marked segment passed; this may be its last ACK.
        let size = self.board.outstanding().max(u32::from(self.burst).saturating_mul(self.mss));
        self.reduce(records, Congestion::Ecn, &Flight { size, mss: self.mss, now });
        true
    }

    /// Whether the outstanding data has caused a reduction already: one per window of data, for any
    /// kind of congestion event.
    fn is_reduced_for_a_mark(&self, records: &SentSegments) -> bool {
        self.known_loss(records).is_some_and(|loss| self.board.una().is_before(loss.marked))
    }

    /// More than one SYN of the handshake was lost: the flow begins with one segment (RFC 5681
    /// section 3.1; RFC 6928 section 2 exempts the loss of a single one).
    pub fn begin_slowly(&mut self) {
        debug_assert_eq!(self.loss, NO_STATE, "nothing was sent");
        self.window.begin_with(self.mss);
    }

    /// When to call [`Recovery::on_timer`], and for which purpose; `None` while nothing is
    /// outstanding.
    #[inline(always)]
    #[must_use]
    pub fn timer(&self, agreement: &Agreement) -> Option<(RecoveryTimer, Instant)> {
        if self.board.outstanding() == 0 {
            return None;
        }
        let rto = self.rtt.rto_nanos(agreement.rtt);
        let rto = Instant::from_nanos(self.progress.as_nanos().saturating_add(rto));
        Some(match (self.is_reordering, self.alarm.get()) {
            (true, Some(at)) if at < rto => (RecoveryTimer::Reordering, at),
            // A probe replaces a timeout that would expire first (RFC 8985 section 7.2).
            (false, Some(at)) => (RecoveryTimer::Probe, at.min(rto)),
            _ => (RecoveryTimer::Retransmission, rto),
        })
    }

    /// Whether [`Recovery::timer`] is certainly not before `at`: there is no reordering timer, and
    /// neither the probe nor the least timeout is earlier.
    #[inline(always)]
    pub(crate) fn rings_not_before(&self, agreement: &Agreement, at: Instant) -> bool {
        !self.is_reordering
            && self.alarm.is_not_before(at)
            && self.progress.as_nanos().saturating_add(agreement.rtt.least_nanos()) >= at.as_nanos()
    }

    /// The timer may have expired.
    pub fn on_timer(
        &mut self,
        records: &mut SentSegments,
        agreement: &Agreement,
        now: Instant,
    ) -> TimeoutKind {
        match self.timer(agreement) {
            Some((timer, at)) if now >= at => match timer {
                RecoveryTimer::Reordering => self.on_reordering_timer(records, agreement, now),
                RecoveryTimer::Probe => self.probe_now(records, now),
                RecoveryTimer::Retransmission => self.on_timeout(records, now),
            },
            _ => TimeoutKind::Nothing,
        }
    }

    /// The segment size has changed (path MTU): the window keeps its number of segments.
    pub fn set_mss(&mut self, records: &mut SentSegments, mss: u32) {
        let mss = mss.max(1);
        if mss != self.mss {
            self.rescale(records, mss);
            self.mss = mss;
        }
    }

    /// A router reports that segments of more than `size` bytes were too big: all of them in flight
    /// are lost, and to be sent again at once, without congestion (RFC 1191 section 6.4, RFC 8201
    /// section 5.4). The caller has validated the report and set the size.
    pub fn on_too_big(&mut self, records: &mut SentSegments, size: u32) {
        if self.board.mark_larger_lost(records, size) == 0 {
            return;
        }
        self.clear_probe();
        let nxt = self.board.nxt();
        if let Some(loss) = self.loss(records) {
            // What arrived of the rest signals no other loss.
            loss.point = nxt;
            loss.undo.end_frto();
            if loss.size_probe.flying().is_some_and(|(_, len)| len > size) {
                loss.size_probe = SizeProbe::Judged(false);
            }
        }
        if self.phase == RecoveryPhase::Fast {
            self.grant(records);
        }
    }

    /// Whether a probe for a larger segment size may be sent: no loss is known or being looked for.
    #[must_use]
    pub fn may_probe_size(&self, records: &SentSegments) -> bool {
        self.phase == RecoveryPhase::Open
            && self.known_loss(records).is_none_or(|loss| loss.size_probe == SizeProbe::Absent)
            && self.board.is_all_in_flight(records)
    }

    /// The segment of `len` bytes from `start` on, just sent, is larger than the others: its loss
    /// is not congestion (RFC 4821 section 7.6.1).
    pub fn on_size_probe(&mut self, records: &mut SentSegments, start: Seq, len: u32) {
        if let Some(loss) = self.loss(records) {
            loss.size_probe = SizeProbe::Flying(start, u16::try_from(len).unwrap_or(u16::MAX));
        }
    }

    /// Whether the last probe for a larger segment size has arrived, once that is known.
    #[inline(always)]
    pub fn take_size_verdict(&mut self, records: &mut SentSegments) -> Option<bool> {
        let loss = self.known_loss_mut(records)?;
        let SizeProbe::Judged(arrived) = loss.size_probe else { return None };
        loss.size_probe = SizeProbe::Absent;
        self.leave_loss(records);
        Some(arrived)
    }

    /// Frees the records: before the connection is freed.
    #[inline(always)]
    pub fn clear(&mut self, records: &mut SentSegments) {
        if self.loss != NO_STATE || self.board.outstanding() > 0 || !self.board.is_unmarked() {
            self.clear_some(records);
        }
    }

    /// The same where it has some.
    #[inline(never)]
    fn clear_some(&mut self, records: &mut SentSegments) {
        self.board.clear(records);
        records.losses.give_back(core::mem::replace(&mut self.loss, NO_STATE));
    }

    /// How many samples of the round-trip time a round gives, with so much in flight.
    #[inline(always)]
    const fn samples_of(&self, flight: u32) -> u32 {
        if flight <= self.mss { 1 } else { flight.div_ceil(2 * self.mss) }
    }

    fn measure(&mut self, change: &ScoreboardChange, segment: &AckSegment<'_>, flight: u32) {
        let per_round = self.samples_of(flight);
        // Karn: only data sent once; else by the echo, if `una` advanced (RFC 7323 section 4.1).
        let echoed = || {
            let at = segment.echoed_at.filter(|_| change.acked > 0)?;
            Some(segment.now.saturating_since(at))
        };
        if let Some(time) = change.rtt.or_else(echoed) {
            self.rtt.sample(time, per_round, segment.now);
        }
    }

    /// Detects losses (by time with RACK where SACK is in use, else by duplicate ACKs).
    fn detect(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        agreement: &Agreement,
        change: &ScoreboardChange,
    ) -> u32 {
        if !agreement.sack {
            return self.count_duplicates(records, segment, change);
        }
        if change.delivered() == 0 && !self.is_reordering {
            return 0;
        }
        self.detect_by_time(records, segment.now)
    }

    fn detect_by_time(&mut self, records: &mut SentSegments, now: Instant) -> u32 {
        let is_recovering = self.phase != RecoveryPhase::Open;
        let window = self.rack.reordering_window(
            &self.rtt,
            is_recovering,
            self.board.sacked_segments(records),
        );
        let (lost, again) = self.board.detect_lost(records, &self.rack, window, now);
        // Where there was none and is none, a probe may be due.
        if again.is_some() || self.is_reordering {
            (self.alarm, self.is_reordering) = (again.into(), again.is_some());
        }
        lost
    }

    /// NewReno without SACK (RFC 6582).
    fn count_duplicates(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        change: &ScoreboardChange,
    ) -> u32 {
        if change.acked > 0 {
            self.board.end_presumption(records, change.acked.saturating_sub(self.mss));
            let is_partial = self.phase == RecoveryPhase::Fast && self.board.outstanding() > 0;
            return if is_partial { self.board.mark_first_lost(records) } else { 0 };
        }
        if !segment.is_duplicate || self.board.outstanding() == 0 {
            return 0;
        }
        self.board.presume(records, self.mss);
        let Some(loss) = self.loss(records) else { return 0 };
        loss.duplicates = loss.duplicates.saturating_add(1);
        let duplicates = u32::from(loss.duplicates);
        // Early retransmit, RFC 5827: with less than four segments in flight, three duplicates
        // cannot arrive.
        let segments = self.board.outstanding().div_ceil(self.mss);
        let thresh = u32::from(DUP_THRESH).min(segments.saturating_sub(1)).max(1);
        let is_new = loss.point.is_at_most(self.board.una());
        if self.phase == RecoveryPhase::Open && is_new && duplicates >= thresh {
            self.board.mark_first_lost(records)
        } else {
            0
        }
    }

    fn enter_fast(&mut self, records: &mut SentSegments, flight: u32, pipe: u32, now: Instant) {
        self.phase = RecoveryPhase::Fast;
        let (una, nxt) = (self.board.una(), self.board.nxt());
        if !self.is_reduced_for_a_mark(records) {
            if let Some(loss) = self.loss(records) {
                loss.undo.arm(una);
            }
            let size = Flight { size: flight, mss: self.mss, now };
            self.reduce(records, Congestion::Loss, &size);
        }
        let (flight, ssthresh) = (pipe.max(self.mss), self.window.ssthresh());
        if let Some(loss) = self.loss(records) {
            loss.prr = PrrState::begin(flight, ssthresh);
            loss.point = nxt;
        }
        self.clear_probe();
    }

    /// A recovery ends once all data outstanding at its beginning is acknowledged; returns true
    /// where that was a fast recovery.
    fn end_recovery(&mut self, records: &mut SentSegments, change: &ScoreboardChange) -> bool {
        if self.phase == RecoveryPhase::Open
            || change.acked == 0
            || self.known_loss(records).is_some_and(|loss| self.board.una().is_before(loss.point))
        {
            return false;
        }
        let was_fast = self.phase == RecoveryPhase::Fast;
        self.phase = RecoveryPhase::Open;
        self.rack.on_recovered();
        self.board.end_presumption(records, u32::MAX);
        let nxt = self.board.nxt();
        if let Some(loss) = self.known_loss_mut(records) {
            loss.undo.on_recovered(nxt);
        }
        was_fast
    }

    fn open_window(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        change: &ScoreboardChange,
        verdict: &RecoveryVerdict,
        flight: u32,
    ) {
        if self.phase == RecoveryPhase::Fast {
            let delivered = match change.delivered() {
                // Without SACK each duplicate ACK stands for a segment.
                0 if segment.is_duplicate => self.mss,
                delivered => delivered,
            };
            let is_safe = change.acked > 0 && verdict.lost == 0;
            self.deliver_in_recovery(records, delivered, is_safe);
        } else if change.acked > 0 {
            let rtt = change.rtt.map(|rtt| u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX));
            self.open_by(records, (change.acked, rtt), flight, segment.now);
        }
    }

    /// RFC 8985 section 7.4: evaluates the ACK of a probe.
    fn judge_probe(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        change: &ScoreboardChange,
        verdict: &mut RecoveryVerdict,
        flight: u32,
    ) {
        let Some(loss) = self.known_loss_mut(records) else { return };
        let Some((end, is_repeat)) = loss.probe else { return };
        if segment.ack.is_before(end) {
            return;
        }
        let is_dsack = change.dsack.is_some_and(|block| Seq(block.right) == end);
        let is_bare_duplicate = segment.ack == end && change.acked == 0;
        if !is_repeat || is_dsack {
            loss.probe = None;
        } else if end.is_before(segment.ack) {
            // The probe repaired a loss that no other ACK will report.
            loss.probe = None;
            if self.phase == RecoveryPhase::Open {
                let size = Flight { size: flight, mss: self.mss, now: segment.now };
                self.reduce(records, Congestion::Loss, &size);
                verdict.is_reduced = true;
            }
        } else if is_bare_duplicate && segment.sack.iter().flatten().next().is_none() {
            loss.probe = None;
        }
    }

    /// Section 7.2: a probe is due after two round trips without an ACK; where a timeout would come
    /// first, at that time ([`Recovery::timer`]).
    #[inline(always)]
    fn schedule_probe(&mut self, records: &SentSegments, agreement: &Agreement, now: Instant) {
        let may = agreement.sack
            && self.phase == RecoveryPhase::Open
            && self.known_loss(records).is_none_or(|loss| loss.probe.is_none())
            && self.board.is_all_in_flight(records)
            && self.board.outstanding() > 0;
        let at = may.then(|| {
            let twice = self.rtt.twice_smoothed_nanos();
            let one_is_out = self.board.outstanding() <= self.mss;
            let wait = match twice {
                Some(twice) if one_is_out => twice + DELAYED_ACK_MAX.as_nanos() as u64,
                Some(twice) => twice.max(PROBE_WAIT_MIN.as_nanos() as u64),
                None => 1_000_000_000,
            };
            Instant::from_nanos(now.as_nanos().saturating_add(wait))
        });
        if !self.is_reordering {
            self.alarm = at.into();
        }
    }

    fn probe_now(&mut self, records: &SentSegments, now: Instant) -> TimeoutKind {
        self.clear_probe();
        if self.tail(records).is_none() {
            return TimeoutKind::Nothing;
        }
        self.progress = now;
        TimeoutKind::Probe
    }

    /// Where the last segment that is not known to have arrived begins, and its length: what a tail
    /// loss probe repeats.
    #[must_use]
    pub fn tail(&self, records: &SentSegments) -> Option<(Seq, u32)> {
        self.board.last_segment(records, self.mss)
    }

    fn on_reordering_timer(
        &mut self,
        records: &mut SentSegments,
        agreement: &Agreement,
        now: Instant,
    ) -> TimeoutKind {
        let (flight, pipe) = (self.board.outstanding(), self.board.pipe(records));
        let lost = self.detect_by_time(records, now);
        if lost == 0 {
            self.schedule_probe(records, agreement, now);
            return TimeoutKind::Nothing;
        }
        if self.phase == RecoveryPhase::Open && !self.loses_probe(records, lost) {
            self.enter_fast(records, flight, pipe, now);
        }
        if self.phase == RecoveryPhase::Fast {
            self.deliver_in_recovery(records, 0, false);
        }
        TimeoutKind::Lost
    }

    fn on_timeout(&mut self, records: &mut SentSegments, now: Instant) -> TimeoutKind {
        let size = Flight { size: self.board.outstanding(), mss: self.mss, now };
        // A timeout of data that was retransmitted after a timeout belongs to the same episode (RFC
        // 5681 section 3.1, equation 4).
        let is_new = self.phase != RecoveryPhase::Timeout;
        self.reduce_for_timeout(records, &size, is_new);
        let window =
            self.rack.reordering_window(&self.rtt, true, self.board.sacked_segments(records));
        let old = self.rack.sample().map(|rtt| rtt + window);
        self.board.on_timeout(records, old, now);
        self.rtt.back_off();
        self.phase = RecoveryPhase::Timeout;
        let nxt = self.board.nxt();
        if let Some(loss) = self.known_loss_mut(records) {
            loss.point = nxt;
        }
        (self.alarm, self.is_reordering) = (ConnectionIndex::NONE, false);
        self.progress = now;
        TimeoutKind::Timeout
    }

    /// RFC 4015: undoes a spurious reduction.
    fn judge_undo(
        &mut self,
        records: &mut SentSegments,
        segment: &AckSegment<'_>,
        change: &ScoreboardChange,
    ) -> bool {
        let Some(loss) = self.known_loss_mut(records) else { return false };
        let timeout_at = (self.phase == RecoveryPhase::Timeout).then_some(loss.point);
        if !loss.undo.judge(segment, change, timeout_at) {
            return false;
        }
        loss.controller.undo();
        self.window.follow(&loss.controller);
        self.board.forget_losses(records);
        self.rtt.end_back_off();
        if self.phase != RecoveryPhase::Open {
            self.phase = RecoveryPhase::Open;
            self.rack.on_recovered();
        }
        true
    }
}

#[cfg(test)]
mod tests;
