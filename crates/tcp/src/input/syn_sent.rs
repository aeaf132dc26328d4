//! A segment for a connection in SYN-SENT: RFC 9293 section 3.10.7.3.

use floodwall_base::DropReason;
use floodwall_packet::PacketBuf;
use floodwall_wire::tcp::TcpFlags;

use super::InputOutcome;
use crate::connection::{Connection, ConnectionContext, ConnectionDue, clamp_mss};
use crate::error::ConnectionError;
use crate::events::ConnectionEvents;
use crate::segment::{ResetSegment, Segment};
use crate::state::StateStep;
use crate::timer::TimerKind;
use crate::timestamps::RecentTimestamp;

impl Connection {
    pub(super) fn input_syn_sent(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: Segment,
        payload: PacketBuf,
    ) -> InputOutcome {
        let has_ack = segment.has(TcpFlags::ACK);
        // First: ACK. One that does not acknowledge our SYN belongs to an earlier connection.
        let acceptable =
            self.snd.una.is_before(segment.ack) && segment.ack.is_at_most(self.snd.nxt);
        if has_ack && !acceptable {
            if !segment.has(TcpFlags::RST) {
                self.repeat_syn(cx);
            }
            return InputOutcome::Reset(
                ResetSegment::answer(self.flow, &segment),
                DropReason::TcpAckInvalid,
            );
        }
        // Second: RST, accepted only if it acknowledges our SYN (RFC 5961 section 3.2).
        if segment.has(TcpFlags::RST) {
            if has_ack {
                self.fail(ConnectionError::Refused);
                return InputOutcome::Taken;
            }
            return InputOutcome::Dropped(DropReason::TcpOutOfWindow);
        }
        // Fourth: SYN; fifth: neither.
        if !segment.has(TcpFlags::SYN) {
            return InputOutcome::Dropped(DropReason::TcpNoAck);
        }
        self.agree(cx, &segment);
        self.rcv.start(segment.seq);
        if !has_ack {
            // Simultaneous open.
            self.step(StateStep::Syn);
            self.due.add(ConnectionDue::SYN);
            (self.snd.wl1, self.snd.wl2) = (segment.seq, self.snd.una);
            self.snd.wnd = u32::from(segment.window);
            self.snd.wnd_max = self.snd.wnd;
            return InputOutcome::Taken;
        }
        self.step(StateStep::SynAck);
        // No byte was sent.
        let _ = self.snd.acknowledge(segment.ack);
        (self.snd.wl1, self.snd.wl2) = (segment.seq, segment.ack);
        self.snd.wnd = u32::from(segment.window);
        self.snd.wnd_max = self.snd.wnd;
        self.opened(cx);
        self.due.add(ConnectionDue::ACK);
        // Data in the SYN starts after its sequence number.
        let mut rest = segment;
        rest.seq += 1;
        rest.flags = TcpFlags(rest.flags.0 & !TcpFlags::SYN.0);
        if rest.len > 0 || rest.has(TcpFlags::FIN) {
            // It fits the window that our SYN offered.
            self.rcv.edge = self.rcv.edge.later(self.rcv.nxt + self.syn_window());
            return self.on_text(cx, rest, payload);
        }
        InputOutcome::Taken
    }

    /// The peer answers an earlier connection of these endpoints, most likely by a challenge ACK to
    /// our SYN. The reset that it gets ends that connection (RFC 5961 section 4.2), so our SYN is
    /// sent again at once, as by Linux: once, so that forged answers cause no more than one.
    fn repeat_syn(&mut self, cx: &ConnectionContext<'_>) {
        if self.syn_answered || self.recovery.rtt().backoff() > 0 {
            return;
        }
        self.syn_answered = true;
        self.heard = cx.now;
        self.due.add(ConnectionDue::SYN);
    }

    /// The handshake is complete.
    pub(super) fn opened(&mut self, cx: &mut ConnectionContext<'_>) {
        self.timers.clear(TimerKind::Retransmit);
        self.syn_answered = false;
        // The handshake gives the first sample, where the SYN was sent once (Karn; RFC 6298
        // section 5.7).
        if self.recovery.rtt().backoff() == 0 {
            self.recovery.rtt_mut().sample(cx.now - self.heard, 1, cx.now);
        } else {
            if self.recovery.rtt().backoff() > 1 {
                self.recovery.begin_slowly();
            }
            self.recovery.rtt_mut().syn_was_retransmitted();
        }
        self.heard = cx.now;
        self.stalled = cx.now;
        self.arm_keepalive(&mut cx.records.rare);
        self.events.add(ConnectionEvents::OPENED | ConnectionEvents::WRITABLE);
    }

    /// Accepts the options of a SYN that we offered too.
    fn agree(&mut self, cx: &mut ConnectionContext<'_>, segment: &Segment) {
        let options = &segment.options;
        if let Some(mss) = options.mss {
            self.agreed.peer_mss = clamp_mss(mss);
            self.rcv.expect_at_most(self.agreed.peer_mss);
        }
        self.agreed.sack = self.offers.sack() && options.sack_permitted;
        self.agreed.timestamps = self.offers.timestamps() && options.timestamps.is_some();
        self.agree_on_marks(segment);
        if let Some(timestamps) = options.timestamps {
            self.recent = RecentTimestamp::new(timestamps.value, cx.now);
        }
        // Window scaling applies both ways or not at all (RFC 7323 section 2.2).
        let scale = options.window_scale.filter(|_| self.offers.scale());
        self.agreed.scaled = scale.is_some();
        self.snd.shift = scale.unwrap_or(0).min(14);
        if !self.agreed.scaled {
            self.rcv.shift = 0;
        }
        self.restart_recovery(cx.now);
    }
}
