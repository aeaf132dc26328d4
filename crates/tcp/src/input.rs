//! A segment arrives: RFC 9293 section 3.10.7, clause by clause, with RFC 5961's checks.
//!
//! Called by `tcp.rs` with a segment whose checksum is right and which belongs to this connection.
//! The handlers change the connection, note what is to leave, and return; they send nothing.
//! Invariants: nothing that fails the sequence or the acknowledgment test changes state, window or
//! timestamp; whatever a stranger sends, the peer's stream is not changed by what lies outside of
//! the window. SYN-SENT has a handler of its own (`input/syn_sent.rs`), the acknowledgment too
//! (`input/ack.rs`), and text and FIN (`input/text.rs`). Urgent data is ordinary data here: the
//! pointer is ignored (RFC 6093 section 6 lets it be in-line).

mod ack;
mod syn_sent;
mod text;

use core::time::Duration;

use floodwall_base::limits::TCP_TIME_WAIT;
use floodwall_base::{Counter, DropReason, Instant};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_wire::tcp::TcpFlags;

use crate::connection::{Connection, Cx, Due};
use crate::error::ConnectionError;
use crate::events::Events;
use crate::segment::{Reset, Segment};
use crate::state::State;
use crate::timer::Timer;

/// How often a segment without data that lies outside of the window is answered at most.
const ANSWER_EVERY: Duration = Duration::from_millis(500);

/// What became of a segment.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was for this connection.
    Taken,
    /// It is not acceptable, and owed a reset, unless it is one.
    Reset(Option<Reset>, DropReason),
    /// It was not acceptable.
    Dropped(DropReason),
}

impl Connection {
    /// Takes one segment. `payload` has its bytes and nothing else.
    pub(crate) fn input(
        &mut self,
        cx: &mut Cx<'_>,
        segment: Segment,
        payload: PacketBuf,
    ) -> Outcome {
        match self.state() {
            State::Closed | State::Listen => {
                Outcome::Reset(Reset::answer(self.flow, &segment), DropReason::TcpNoConnection)
            }
            State::SynSent => self.input_syn_sent(cx, segment, payload),
            _ => self.input_synchronized(cx, segment, payload),
        }
    }

    /// SYN-RECEIVED and all states behind (RFC 9293 section 3.10.7.4).
    fn input_synchronized(
        &mut self,
        cx: &mut Cx<'_>,
        mut segment: Segment,
        payload: PacketBuf,
    ) -> Outcome {
        // Simultaneous open: the peer's SYN-ACK repeats the SYN that we have taken already.
        if self.state() == State::SynReceived
            && segment.has(TcpFlags::SYN | TcpFlags::ACK)
            && segment.seq == self.rcv.irs
        {
            segment.flags = TcpFlags(segment.flags.0 & !TcpFlags::SYN.0);
            segment.seq += 1;
            // Its window is not scaled, as no SYN's is (RFC 7323 section 2.2).
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
            return self.challenge(cx, DropReason::TcpOutOfWindow);
        }
        // Fifth: ACK.
        if !segment.has(TcpFlags::ACK) {
            return Outcome::Dropped(DropReason::TcpNoAck);
        }
        if let Some(outcome) = self.on_ack(cx, &segment) {
            return outcome;
        }
        self.note_timestamp(&segment, cx.now);
        self.note_marks(&segment);
        self.heard = cx.now;
        self.arm_keepalive();
        // Sixth: URG is ignored. Seventh: the text; eighth: FIN.
        self.on_text(cx, segment, payload)
    }

    /// The same for segments in a row that the connection expects ([`Connection::expects`]):
    /// `segment` has the length of all of their `texts`.
    pub(crate) fn input_train(
        &mut self,
        cx: &mut Cx<'_>,
        segment: &Segment,
        texts: PacketList,
    ) -> Outcome {
        if !self.expects(segment) {
            return Outcome::Dropped(DropReason::TcpOutOfWindow);
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
        self.arm_keepalive();
        self.on_texts(cx, segment.len, texts)
    }

    /// Whether nothing but text in order is to be expected, and a program is there to read it.
    #[inline]
    pub(crate) fn hears_only_text(&self) -> bool {
        matches!(self.state(), State::Established | State::FinWait1 | State::FinWait2)
            && self.ahead.is_empty()
            && self.fin_ahead.is_none()
            && !self.rcv.shut
    }

    /// RFC 7323 section 5.3: protection against wrapped sequence numbers, and section 3.2: a
    /// connection that agreed on timestamps drops what has none.
    fn refuse_by_timestamp(&mut self, cx: &mut Cx<'_>, segment: &Segment) -> Option<Outcome> {
        if !self.agreed.timestamps || segment.has(TcpFlags::RST) {
            return None;
        }
        let Some(timestamps) = segment.options.timestamps else {
            return Some(Outcome::Dropped(DropReason::TcpTimestamp));
        };
        if !self.recent.is_old(timestamps.value, cx.now) {
            return None;
        }
        self.answer(cx, segment);
        Some(Outcome::Dropped(DropReason::TcpTimestamp))
    }

    /// Remembers the timestamp of a segment that covers what was acknowledged last (RFC 7323
    /// section 4.3 (2)). Only called for segments in the window.
    fn note_timestamp(&mut self, segment: &Segment, now: Instant) {
        if let Some(timestamps) = segment.options.timestamps
            && self.agreed.timestamps
        {
            self.recent.update(timestamps.value, segment.seq, self.rcv.acked, now);
            // Full ones left as soon as they might; what a short one waited for is not the path.
            if segment.len >= u32::from(self.rcv.mss)
                && let Some(at) = self.clock.moment(timestamps.echo, now)
            {
                self.rcv.tuning.echoed(timestamps.echo, now.saturating_since(at));
            }
        }
    }

    /// Not in the window: an acknowledgment says what is expected (first check of the RFC).
    fn outside(&mut self, cx: &mut Cx<'_>, segment: &Segment) -> Outcome {
        if segment.has(TcpFlags::RST) {
            // Some number it as the FIN that they sent before.
            if self.rcv.fin && segment.seq + 1 == self.rcv.nxt && self.state() != State::TimeWait {
                return self.be_reset();
            }
            return Outcome::Dropped(DropReason::TcpOutOfWindow);
        }
        if self.state() == State::TimeWait && segment.has(TcpFlags::FIN) {
            // The peer's FIN again: our acknowledgment was lost (eighth check).
            self.timers.set(Timer::Close, cx.now + TCP_TIME_WAIT);
        }
        self.note_duplicate(segment);
        self.answer(cx, segment);
        self.note_pressure();
        Outcome::Dropped(DropReason::TcpOutOfWindow)
    }

    /// The peer found no room. Where a program elsewhere was handed something, it may have read it
    /// and not told: whoever serves it comes by and looks.
    fn note_pressure(&mut self) {
        if self.rcv.lent > 0 {
            self.events.add(Events::READABLE);
        }
    }

    /// An acknowledgment for a segment that was not acceptable. One without data is answered twice
    /// a second at most: else two who disagree answer each other for ever.
    fn answer(&mut self, cx: &mut Cx<'_>, segment: &Segment) {
        if segment.len == 0 && !segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN) {
            if cx.now - self.rcv.answered < ANSWER_EVERY && self.rcv.answered != Instant::ORIGIN {
                return;
            }
            self.rcv.answered = cx.now;
        }
        self.due.add(Due::ACK);
    }

    /// Asks the peer whether it meant it (RFC 5961), as often as the connection may (section 7).
    fn challenge(&mut self, cx: &mut Cx<'_>, reason: DropReason) -> Outcome {
        if self.challenges.allow(cx.now, &mut cx.random.secret) {
            cx.counters.count(Counter::TcpExtTCPChallengeACK);
            self.due.add(Due::ACK);
        }
        Outcome::Dropped(reason)
    }

    /// A reset in the window: believed only where it hits the next number exactly.
    fn on_reset(&mut self, cx: &mut Cx<'_>, segment: &Segment) -> Outcome {
        if self.state() == State::TimeWait {
            // RFC 1337: a reset must not cut TIME-WAIT short.
            return Outcome::Dropped(DropReason::TcpOutOfWindow);
        }
        if segment.seq != self.rcv.nxt {
            return self.challenge(cx, DropReason::TcpOutOfWindow);
        }
        self.be_reset()
    }

    /// The peer says that there is no such connection.
    fn be_reset(&mut self) -> Outcome {
        match self.state() {
            State::SynReceived => self.fail(ConnectionError::Refused),
            // Both have said all: nobody misses anything.
            State::Closing | State::LastAck => {
                self.step(crate::state::Step::Abort);
                self.finish();
            }
            _ => self.fail(ConnectionError::Reset),
        }
        Outcome::Taken
    }
}
