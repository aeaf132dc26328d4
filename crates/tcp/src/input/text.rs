//! Text and FIN of an acceptable segment: seventh and eighth check of RFC 9293 section 3.10.7.4.

use core::hint::cold_path;

use floodwall_base::{DropReason, Instant, Seq};
use floodwall_packet::{PacketBuf, PacketList, Pool};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::SackBlock;

use super::InputOutcome;
use crate::connection::{Connection, ConnectionContext, ConnectionDue};
use crate::connection_flags::ConnectionFlags;
use crate::error::ConnectionError;
use crate::events::ConnectionEvents;
use crate::out_of_order::Insertion;
use crate::segment::{ResetSegment, Segment};
use crate::settings::Acknowledge;
use crate::state::{StateStep, TcpState};
use crate::timer::AckDelay;

impl Connection {
    pub(super) fn on_text(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        mut segment: Segment,
        mut payload: PacketBuf,
    ) -> InputOutcome {
        if segment.sequence_len() == 0 {
            if self.state() == TcpState::TimeWait && segment.seq != self.rcv.nxt {
                // The counts disagree; the TIME-WAIT record (`time_wait.rs`) answers in the same
                // way.
                self.answer(cx, &segment);
            }
            return InputOutcome::Taken;
        }
        if !self.state().hears() {
            // The peer has sent its FIN; repeated segments are acknowledged again.
            self.due.add(ConnectionDue::ACK);
            if self.state() == TcpState::TimeWait && segment.has(TcpFlags::FIN) {
                self.wait_for_stragglers(cx);
            }
            return InputOutcome::Taken;
        }
        self.trim(cx, &mut segment, &mut payload);
        if segment.len > 0 && self.rcv.shut && self.released {
            // Data for an application that has released the connection (RFC 9293 section 3.6.1,
            // MUST-17). The reset has the number that the peer expects: one with SND.NXT would be
            // inexact for a peer that has not received our FIN (RFC 5961 section 3.2).
            self.fail(ConnectionError::Reset);
            let reset = ResetSegment::answer(self.flow, &segment);
            return InputOutcome::Reset(reset, DropReason::TcpNoConnection);
        }
        if segment.len > 0 && self.rcv.is_refused(self.out_of_order.held(), cx.full) {
            // It is retransmitted by the peer; the window announced meanwhile is the actual one.
            self.due.add(ConnectionDue::ACK);
            self.note_pressure();
            return InputOutcome::Dropped(DropReason::TcpReceiveFull);
        }
        if segment.seq != self.rcv.nxt {
            return self.out_of_order(cx, segment, payload);
        }
        if segment.len > 0 {
            // Data within the advertised window is never refused because of this connection's own
            // limit.
            if self.out_of_order.is_empty() {
                self.take_in_order(cx.pool, payload, cx.now);
            } else {
                // A hole is filled: acknowledged at once (RFC 5681 section 4.2). Of bytes received
                // twice the first copy is kept.
                self.due.add(ConnectionDue::ACK);
                let (_, duplicate) =
                    self.out_of_order.insert(cx.runs, cx.pool, segment.seq, payload, u32::MAX);
                self.keep_first_duplicate(&mut cx.records.rare, duplicate);
                self.take_ready(cx);
            }
        }
        let fin = (segment.has(TcpFlags::FIN) && segment.seq + segment.len == self.rcv.nxt)
            || self.fin_end(cx).is_some_and(|end| end.is_at_most(self.rcv.nxt));
        self.owe_ack((segment.len, segment.has(TcpFlags::PSH)));
        if fin {
            self.on_fin(cx);
        }
        InputOutcome::Taken
    }

    /// As [`Connection::on_text`] for consecutive expected segments: `len` bytes of text in total.
    pub(super) fn on_texts(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        (len, pushed): (u32, bool),
        mut texts: PacketList,
    ) -> InputOutcome {
        if self.rcv.is_refused(self.out_of_order.held(), cx.full) {
            self.due.add(ConnectionDue::ACK);
            self.note_pressure();
            return InputOutcome::Dropped(DropReason::TcpReceiveFull);
        }
        let is_train = texts.len() > 1;
        while let Some(text) = texts.pop_front() {
            self.take_in_order(cx.pool, text, cx.now);
        }
        if is_train && self.acknowledge == Acknowledge::EverySecond {
            self.due.add(ConnectionDue::ACK);
        }
        self.owe_ack((len, pushed));
        InputOutcome::Taken
    }

    /// As [`Connection::on_text`] for one expected segment with text, with FIN, or with both.
    #[inline(always)]
    pub(crate) fn on_next_text(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &Segment,
        text: PacketBuf,
    ) -> InputOutcome {
        if segment.len > 0 {
            if self.rcv.is_refused(self.out_of_order.held(), cx.full) {
                cold_path();
                self.due.add(ConnectionDue::ACK);
                self.note_pressure();
                return InputOutcome::Dropped(DropReason::TcpReceiveFull);
            }
            self.take_in_order(cx.pool, text, cx.now);
        }
        self.owe_ack((segment.len, segment.has(TcpFlags::PSH)));
        if segment.has(TcpFlags::FIN) {
            self.on_fin(cx);
        }
        InputOutcome::Taken
    }

    /// The end of the peer's FIN, where that arrived out of order.
    fn fin_end(&self, cx: &ConnectionContext<'_>) -> Option<Seq> {
        if !self.fin_ahead {
            return None;
        }
        self.known_rare(&cx.records.rare).map(|state| state.fin_end)
    }

    /// Trims a segment to the window.
    fn trim(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &mut Segment,
        payload: &mut PacketBuf,
    ) {
        if segment.seq.is_before(self.rcv.nxt) {
            let old = self.rcv.nxt.since(segment.seq).min(segment.len);
            if old > 0 {
                let block = SackBlock { left: segment.seq.0, right: (segment.seq + old).0 };
                self.keep_duplicate(&mut cx.records.rare, block);
            }
            payload.trim_front(old as usize);
            segment.len -= old;
            segment.seq += old;
            self.due.add(ConnectionDue::ACK);
        }
        let mut room =
            if segment.seq.is_before(self.rcv.edge) { self.rcv.edge.since(segment.seq) } else { 0 };
        if let Some(end) = self.fin_end(cx) {
            // Data after the peer's FIN is ignored.
            room = room.min(if segment.seq.is_before(end) { end.since(segment.seq) } else { 0 });
        }
        if segment.len > room {
            payload.truncate(room as usize);
            segment.len = room;
            // The FIN lies behind the trimmed part.
            segment.flags = TcpFlags(segment.flags.0 & !TcpFlags::FIN.0);
            self.due.add(ConnectionDue::ACK);
        }
    }

    #[inline(always)]
    fn take_in_order(&mut self, pool: &Pool, payload: PacketBuf, now: Instant) {
        let len = payload.len() as u32;
        self.rcv.nxt += len;
        if !self.agreed.timestamps {
            self.rcv.tuning.advanced(self.rcv.nxt, self.rcv.edge, now);
        }
        self.rcv.mss = self.rcv.mss.max(len.min(u32::from(self.our_mss)) as u16);
        if self.rcv.shut {
            return;
        }
        if self.rcv.is_crowded(self.out_of_order.held()) {
            cold_path();
            self.rcv.queue.push_tight(payload, pool);
        } else {
            self.rcv.queue.push_compact(payload);
        }
        self.events.add(ConnectionEvents::READABLE);
    }

    /// Delayed ACK: every second full segment is acknowledged at once, or as the settings specify;
    /// otherwise within `DELAYED_ACK_TIME` (RFC 9293 section 3.8.6.3).
    fn owe_ack(&mut self, (len, pushed): (u32, bool)) {
        self.rcv.unacked = self.rcv.unacked.saturating_add(len);
        let is_enough = match self.acknowledge {
            Acknowledge::SecondFull => self.rcv.unacked >= 2 * u32::from(self.rcv.mss),
            Acknowledge::EverySecond => len > 0 && self.timers.delays_ack(),
            Acknowledge::AtOnce => len > 0,
        };
        if is_enough {
            self.due.add(ConnectionDue::ACK);
        } else if self.is_quick(len, pushed) {
            self.timers.ack = AckDelay::Quick;
        } else if len > 0 {
            self.timers.delay_ack();
        }
    }

    /// Quick acknowledgments: while a connection is young, from when its program has accepted it
    /// ([`Connection::accept`]), or after a delay in vain, a segment alone is acknowledged at the
    /// end of the round, since its sender may have no more than one in flight: by then a program on
    /// the same core has answered, and its data carries it. They end when the program answers, so
    /// that acknowledgments ride on its data, and for full segments after `QUICK_ACKS`: what
    /// follows in a row is acknowledged by pairs anyway. A short segment, or one with PSH, ends a
    /// write of the peer: the next one may wait for this acknowledgment (Nagle's algorithm).
    fn is_quick(&mut self, len: u32, pushed: bool) -> bool {
        let is_quick = len > 0 && self.rcv.quick > 0 && self.acknowledge == Acknowledge::SecondFull;
        if is_quick && !pushed && len >= u32::from(self.rcv.mss) {
            self.rcv.quick -= 1;
        }
        is_quick
    }

    /// Out of order: acknowledged at once (RFC 5681 section 4.2), which drives the peer's fast
    /// retransmit.
    fn out_of_order(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: Segment,
        payload: PacketBuf,
    ) -> InputOutcome {
        self.due.add(ConnectionDue::ACK);
        if segment.has(TcpFlags::FIN) {
            // Without a rare state it is dropped.
            if let Some(state) = self.rare(&mut cx.records.rare) {
                state.fin_end = segment.seq + segment.len;
                self.fin_ahead = true;
            }
        }
        if segment.len == 0 {
            return InputOutcome::Taken;
        }
        let room = self.rcv.room_ahead();
        let (outcome, duplicate) =
            self.out_of_order.insert(cx.runs, cx.pool, segment.seq, payload, room);
        self.keep_first_duplicate(&mut cx.records.rare, duplicate);
        match outcome {
            Insertion::Kept | Insertion::Duplicate => InputOutcome::Taken,
            Insertion::NoRoom | Insertion::TooManyRuns => {
                InputOutcome::Dropped(DropReason::TcpReceiveFull)
            }
        }
    }

    /// Delivers queued segments that are now in order.
    fn take_ready(&mut self, cx: &mut ConnectionContext<'_>) {
        let (mut ready, next) = self.out_of_order.take_ready(cx.runs, self.rcv.nxt);
        while let Some(packet) = ready.pop_front() {
            self.take_in_order(cx.pool, packet, cx.now);
        }
        debug_assert_eq!(self.rcv.nxt, next);
    }

    /// Processes the peer's FIN. Its acknowledgment waits for our FIN as that of text waits for an
    /// answer (RFC 9293 section 3.8.6.3), where both sides have sent text and we have not closed. A
    /// connection that has only received acknowledges at once: nothing shows that our FIN is near.
    fn on_fin(&mut self, cx: &mut ConnectionContext<'_>) {
        let waits = self.state() == TcpState::Established
            && self.rcv.nxt != self.rcv.irs + 1
            && self.snd.nxt != self.snd.iss + 1
            && self.acknowledge != Acknowledge::AtOnce;
        self.rcv.nxt += 1;
        self.rcv.fin = true;
        // Data after the peer's FIN is dropped.
        self.out_of_order.clear(cx.runs);
        self.flags.set(ConnectionFlags::DUPLICATE, false);
        self.events.add(ConnectionEvents::READABLE);
        if waits {
            self.timers.delay_ack();
        } else {
            self.due.add(ConnectionDue::ACK);
        }
        let is_wait = self.state() == TcpState::FinWait2;
        self.step(StateStep::Fin);
        if is_wait {
            self.wait_for_stragglers(cx);
        }
    }
}
