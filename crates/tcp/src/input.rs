//! Segment arrival: RFC 9293 section 3.10.7, clause by clause, with RFC 5961's checks.
//!
//! Called by `connection_table.rs` with a segment that has a valid checksum and belongs to this
//! connection. The handlers change the connection, note pending output, and return; they send
//! nothing. Invariants: a segment that fails the sequence or the acknowledgment test changes no
//! state, window or timestamp; no segment outside of the window changes the peer's stream. SYN-SENT
//! has a handler of its own (`input/syn_sent.rs`), the acknowledgment too (`input/ack.rs`), and
//! text and FIN (`input/text.rs`). Urgent data is ordinary data here: the pointer is ignored (RFC
//! 6093 section 6 permits in-line delivery).

mod ack;
mod syn_sent;
mod text;

use core::hint::cold_path;
use core::time::Duration;

use floodwall_base::limits::TCP_TIME_WAIT;
use floodwall_base::{Counter, DropReason, Instant};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_wire::tcp::TcpFlags;

use crate::coarse_time::CoarseTime;
use crate::connection::{Connection, ConnectionContext, ConnectionDue};
use crate::error::ConnectionError;
use crate::events::ConnectionEvents;
use crate::segment::{ResetSegment, Segment};
use crate::state::TcpState;
use crate::timer::TimerKind;

/// Minimum interval between answers to segments without data outside of the window.
const ANSWER_EVERY: u32 = CoarseTime::ticks_of(Duration::from_millis(500));

/// The outcome of a segment.
#[derive(Debug)]
pub(crate) enum InputOutcome {
    /// It was accepted.
    Taken,
    /// It is not acceptable; a reset is due, unless it is one.
    Reset(Option<ResetSegment>, DropReason),
    /// It was not acceptable.
    Dropped(DropReason),
}

impl Connection {
    /// Processes one segment. `payload` is exactly its payload.
    pub(crate) fn input(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: Segment,
        payload: PacketBuf,
    ) -> InputOutcome {
        match self.state() {
            TcpState::Closed | TcpState::Listen => InputOutcome::Reset(
                ResetSegment::answer(self.flow, &segment),
                DropReason::TcpNoConnection,
            ),
            TcpState::SynSent => self.input_syn_sent(cx, segment, payload),
            _ => self.input_synchronized(cx, segment, payload),
        }
    }

    /// SYN-RECEIVED and all later states (RFC 9293 section 3.10.7.4).
    fn input_synchronized(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        mut segment: Segment,
        payload: PacketBuf,
    ) -> InputOutcome {
        // Simultaneous open: the peer's SYN-ACK repeats the SYN that was already accepted.
        if self.state() == TcpState::SynReceived
            && segment.has(TcpFlags::SYN | TcpFlags::ACK)
            && segment.seq == self.rcv.irs
        {
            segment.flags = TcpFlags(segment.flags.0 & !TcpFlags::SYN.0);
            segment.seq += 1;
            // Its window is not scaled, as in every SYN (RFC 7323 section 2.2).
            let shift = core::mem::take(&mut self.snd.shift);
            let outcome = self.input_synchronized(cx, segment, payload);
            self.snd.shift = shift;
            return outcome;
        }
        if let Some(outcome) = self.refuse_by_timestamp(cx, &segment) {
            return outcome;
        }
        // First: the sequence number.
        if !self.rcv.accepts(segment.seq, segment.sequence_len()) {
            return self.outside(cx, &segment);
        }
        // Second: RST (RFC 5961 section 3.2).
        if segment.has(TcpFlags::RST) {
            return self.on_reset(cx, &segment);
        }
        // Fourth: SYN (RFC 5961 section 4.2).
        if segment.has(TcpFlags::SYN) {
            self.syn_answered |= self.state() == TcpState::TimeWait;
            return self.challenge(cx, DropReason::TcpOutOfWindow);
        }
        // Fifth: ACK.
        if !segment.has(TcpFlags::ACK) {
            return InputOutcome::Dropped(DropReason::TcpNoAck);
        }
        if let Some(outcome) = self.on_ack(cx, &segment) {
            return outcome;
        }
        self.note_timestamp(&segment, cx.now);
        self.note_marks(&segment);
        self.heard = cx.now;
        self.arm_keepalive(&mut cx.records.rare);
        // Sixth: URG is ignored. Seventh: the text; eighth: FIN.
        self.on_text(cx, segment, payload)
    }

    /// Whether a segment, which has just proved the connection, is an acknowledgment of our SYN-ACK
    /// and nothing else.
    pub(crate) fn is_bare_proof(&self, segment: &Segment) -> bool {
        segment.flags == TcpFlags::ACK
            && segment.len == 0
            && !segment.congestion
            && segment.seq == self.rcv.nxt
            && segment.ack == self.snd.nxt
            && segment.options.sack.first().is_none_or(Option::is_none)
            && segment.options.timestamps.is_none_or(|it| it.value == self.recent.echo())
    }

    /// Processes such a segment. Time and timestamp of the connection are its own: what the general
    /// path would change is the window.
    pub(crate) fn input_bare_proof(&mut self, segment: &Segment) {
        debug_assert_eq!(self.state(), TcpState::Established, "it was proved");
        self.take_window(segment);
    }

    /// As [`Connection::input`] for consecutive segments that the connection expects
    /// ([`Connection::expects`]): `segment` has the total length of all `texts`.
    pub(crate) fn input_train(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &Segment,
        texts: PacketList,
    ) -> InputOutcome {
        if !self.expects(segment) {
            return InputOutcome::Dropped(DropReason::TcpOutOfWindow);
        }
        if let Some(outcome) = self.refuse_by_timestamp(cx, segment) {
            return outcome;
        }
        if let Some(outcome) = self.on_ack(cx, segment) {
            return outcome;
        }
        self.note_timestamp(segment, cx.now);
        self.note_marks(segment);
        self.heard = cx.now;
        self.arm_keepalive(&mut cx.records.rare);
        self.on_texts(cx, (segment.len, segment.has(TcpFlags::PSH)), texts)
    }

    /// Whether only in-order data is expected, and a program is there to read it.
    #[inline]
    pub(crate) fn hears_only_text(&self) -> bool {
        self.hears_in_order() && !self.rcv.shut
    }

    /// Whether only in-order data, or the FIN, is expected.
    #[inline]
    pub(crate) fn hears_in_order(&self) -> bool {
        matches!(self.state(), TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2)
            && self.out_of_order.is_empty()
            && !self.fin_ahead
    }

    /// Whether a segment without text at RCV.NXT is an acknowledgment and nothing else.
    #[inline]
    pub(crate) fn hears_acknowledgments(&self) -> bool {
        self.state().is_synchronized() && self.state() != TcpState::TimeWait
    }

    /// RFC 7323 section 5.3: protection against wrapped sequence numbers (PAWS). A segment without
    /// a timestamp is not dropped, although section 3.2 says that it should be: keepalives and
    /// resets of middleboxes, and keepalives and ACKs of some hosts, have none on connections that
    /// agreed on them, and a peer that gets no answer resets the connection. Linux accepts them,
    /// too.
    #[inline(always)]
    pub(crate) fn refuse_by_timestamp(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &Segment,
    ) -> Option<InputOutcome> {
        if !self.agreed.timestamps || segment.has(TcpFlags::RST) {
            return None;
        }
        let timestamps = segment.options.timestamps?;
        if !self.recent.is_old(timestamps.value, cx.now) {
            return None;
        }
        cold_path();
        let segment = *segment;
        self.answer(cx, &segment);
        Some(InputOutcome::Dropped(DropReason::TcpTimestamp))
    }

    /// Updates TS.Recent from a segment that covers the last acknowledgment sent (RFC 7323 section
    /// 4.3 (2)). Only called for segments in the window.
    #[inline(always)]
    pub(crate) fn note_timestamp(&mut self, segment: &Segment, now: Instant) {
        if let Some(timestamps) = segment.options.timestamps
            && self.agreed.timestamps
        {
            self.recent.update(timestamps.value, segment.seq, self.rcv.acked, now);
            // Full segments were sent without delay; the time that a short one waited is not the
            // path's.
            if segment.len >= u32::from(self.rcv.mss)
                && let Some(at) = self.clock.moment(timestamps.echo, now)
            {
                self.rcv.tuning.echoed(timestamps.echo, now.saturating_since(at));
            }
        }
    }

    /// Not in the window: answered by an ACK with the expected numbers (first check of the RFC).
    fn outside(&mut self, cx: &mut ConnectionContext<'_>, segment: &Segment) -> InputOutcome {
        if segment.has(TcpFlags::RST) {
            // Some stacks give it the sequence number of the FIN they sent before.
            if self.rcv.fin && segment.seq + 1 == self.rcv.nxt && self.state() != TcpState::TimeWait
            {
                return self.be_reset();
            }
            return InputOutcome::Dropped(DropReason::TcpOutOfWindow);
        }
        if self.state() == TcpState::TimeWait {
            self.syn_answered |= segment.has(TcpFlags::SYN);
            if segment.has(TcpFlags::FIN) {
                // The peer's FIN again: our acknowledgment was lost (eighth check).
                self.timers.set(TimerKind::Close, cx.now + TCP_TIME_WAIT);
            }
        }
        self.note_duplicate(cx.records, segment);
        self.answer(cx, segment);
        self.note_pressure();
        if self.repeats_last(segment) {
            self.heard = cx.now;
            self.arm_keepalive(&mut cx.records.rare);
            if let Some(outcome) = self.on_ack(cx, segment) {
                return outcome;
            }
        }
        InputOutcome::Dropped(DropReason::TcpOutOfWindow)
    }

    /// Whether a segment outside of the window ends exactly at RCV.NXT: the peer repeats its last
    /// one, or probes us with a byte before the window. All of its text is old, but its
    /// acknowledgment is as current as that of a segment without text at RCV.NXT, and may be the
    /// only one that still arrives.
    fn repeats_last(&self, segment: &Segment) -> bool {
        segment.has(TcpFlags::ACK)
            && !segment.has(TcpFlags::SYN)
            && segment.sequence_len() > 0
            && segment.end() == self.rcv.nxt
            && self.state().is_synchronized()
            && self.state() != TcpState::TimeWait
    }

    /// The peer's data did not fit. A program on another thread may have read data without
    /// reporting it yet: an event makes its worker check.
    fn note_pressure(&mut self) {
        if self.rcv.lent > 0 {
            self.events.add(ConnectionEvents::READABLE);
        }
    }

    /// Answers an unacceptable segment by an ACK. One without data is answered at most twice per
    /// second: otherwise two desynchronised ends would answer each other for ever.
    fn answer(&mut self, cx: &mut ConnectionContext<'_>, segment: &Segment) {
        if segment.len == 0 && !segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN) {
            let Some(state) = self.rare(&mut cx.records.rare) else { return };
            let (now, last) = (CoarseTime::of(cx.now), state.answered);
            if now.since(last) < ANSWER_EVERY && last != CoarseTime::ORIGIN {
                return;
            }
            state.answered = now;
        }
        self.due.add(ConnectionDue::ACK);
    }

    /// Sends a challenge ACK (RFC 5961), within the connection's budget (section 7).
    fn challenge(&mut self, cx: &mut ConnectionContext<'_>, reason: DropReason) -> InputOutcome {
        let state = self.rare(&mut cx.records.rare);
        if state.is_some_and(|state| state.challenges.allow(cx.now, &mut cx.random.secret)) {
            cx.counters.count(Counter::TcpExtTCPChallengeACK);
            self.due.add(ConnectionDue::ACK);
        }
        InputOutcome::Dropped(reason)
    }

    /// A reset in the window: accepted only with exactly the next sequence number.
    fn on_reset(&mut self, cx: &mut ConnectionContext<'_>, segment: &Segment) -> InputOutcome {
        if self.state() == TcpState::TimeWait {
            // RFC 1337: a reset must not cut TIME-WAIT short, unless it answers our answer to a
            // SYN (see `time_wait.rs`).
            if self.syn_answered && segment.seq == self.rcv.nxt {
                self.be_quiet();
                return InputOutcome::Taken;
            }
            return InputOutcome::Dropped(DropReason::TcpOutOfWindow);
        }
        if segment.seq != self.rcv.nxt {
            return self.challenge(cx, DropReason::TcpOutOfWindow);
        }
        self.be_reset()
    }

    /// The peer has reset the connection.
    fn be_reset(&mut self) -> InputOutcome {
        match self.state() {
            TcpState::SynReceived => self.fail(ConnectionError::Refused),
            // Also in CLOSING and LAST-ACK, where our FIN, and the data before it, may be lost.
            _ => self.fail(ConnectionError::Reset),
        }
        InputOutcome::Taken
    }
}
