//! The acknowledgment of an acceptable segment: fifth check of RFC 9293 section 3.10.7.4, with RFC
//! 5961 section 5.

use floodwall_base::limits::TCP_TIME_WAIT;
use floodwall_base::{DropReason, Instant};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::SackBlock;

use super::InputOutcome;
use crate::connection::{Connection, ConnectionContext};
use crate::events::ConnectionEvents;
use crate::recovery::{AckSegment, RecoveryPhase};
use crate::segment::{ResetSegment, Segment};
use crate::sent_segments::SentSegments;
use crate::state::{StateStep, TcpState};
use crate::timer::{RareTimer, TimerKind};

impl Connection {
    /// Processes the acknowledgment; returns an outcome where processing of the segment ends.
    #[inline(never)]
    pub(crate) fn on_ack(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &Segment,
    ) -> Option<InputOutcome> {
        if self.state() == TcpState::SynReceived {
            if !self.snd.una.is_before(segment.ack) || !segment.ack.is_at_most(self.snd.nxt) {
                return Some(InputOutcome::Reset(
                    ResetSegment::answer(self.flow, segment),
                    DropReason::TcpAckInvalid,
                ));
            }
            self.step(StateStep::SynAcked);
            // No byte was sent.
            let _ = self.snd.acknowledge(segment.ack);
            self.take_window(segment);
            self.opened(cx);
            return None;
        }
        // An ACK of data that was never sent, or one older than any window (RFC 5961 section 5.2,
        // row 25 of the bar).
        if !self.snd.may_acknowledge(segment.ack) {
            return Some(self.challenge(cx, DropReason::TcpAckInvalid));
        }
        self.take_ack(cx, segment, &segment.options.sack)
    }

    /// The same of a synchronized connection, where the number acknowledged is plausible, with the
    /// segment's SACK blocks: part of the pass over a predicted segment.
    #[inline(always)]
    pub(crate) fn take_ack(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &Segment,
        sack: &[Option<SackBlock>],
    ) -> Option<InputOutcome> {
        self.note_echo(cx.records, segment, cx.now);
        self.tell_recovery(cx, segment, sack);
        if self.snd.una.is_before(segment.ack) {
            self.on_new_ack(cx, segment);
        }
        if self.snd.una.is_at_most(segment.ack) {
            self.take_window(segment);
        }
        self.after_ack(cx)
    }

    /// Whether it is a duplicate ACK (RFC 5681 section 2), which only signals an out-of-order
    /// arrival.
    #[inline(always)]
    fn is_duplicate(&self, segment: &Segment) -> bool {
        segment.ack == self.snd.una
            && self.snd.una != self.snd.nxt
            && segment.len == 0
            && !segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN)
            && self.scaled(segment) == self.snd.wnd
    }

    /// SEG.WND in bytes.
    #[inline(always)]
    fn scaled(&self, segment: &Segment) -> u32 {
        u32::from(segment.window) << self.snd.shift
    }

    #[inline(always)]
    pub(super) fn take_window(&mut self, segment: &Segment) {
        let window = self.scaled(segment);
        let grew = self.snd.update_window(segment.seq, segment.ack, window);
        if self.snd.wnd > 0 && (grew || self.probes > 0) {
            self.probes = 0;
            self.stalled = self.heard.max(self.stalled);
            self.timers.clear(TimerKind::Persist);
        }
    }

    /// Passes the acknowledgment and its SACK blocks to the sender.
    #[inline(always)]
    fn tell_recovery(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &Segment,
        sack: &[Option<SackBlock>],
    ) {
        let says_nothing = segment.ack == self.snd.una && sack.first().is_none_or(Option::is_none);
        if says_nothing && self.recovery.awaits_nothing(cx.records) {
            return;
        }
        let echo = segment.options.timestamps.filter(|_| self.agreed.timestamps);
        let is_duplicate = self.is_duplicate(segment);
        let sack = if self.agreed.sack { sack } else { &[] };
        let (clock, now, ack) = (self.clock, cx.now, segment.ack);
        let told = || AckSegment {
            ack,
            sack,
            echoed_at: echo.and_then(|echo| clock.moment(echo.echo, now)),
            is_duplicate,
            rtt_min: u64::MAX,
            now,
        };
        if self.recovery.phase() == RecoveryPhase::Timeout {
            let edge = segment.ack + self.scaled(segment);
            let fits = self.snd.nxt.is_before(edge) && edge.since(self.snd.nxt) >= self.mss();
            self.recovery.note_unsent(cx.records, fits && self.snd.unsent() >= self.mss());
        }
        let agreement = self.agreement();
        if self.recovery.is_reduced_by_ack(cx.records, (ack, sack, now), told, &agreement) {
            self.note_reduction();
        }
        self.judge_size_probe(cx.records, cx.now);
    }

    /// Advances `una`.
    #[inline(always)]
    fn on_new_ack(&mut self, cx: &mut ConnectionContext<'_>, segment: &Segment) {
        let (bytes, is_freed) = self.snd.acknowledge(segment.ack);
        if !is_freed {
            self.free_acknowledged(cx.records, cx.now);
        }
        self.probe = false;
        self.stalled = cx.now;
        self.probes = 0;
        self.note_alive(cx.records, cx.now);
        if bytes > 0 {
            self.note_room(&cx.records.rare);
        }
    }

    /// Frees what is acknowledged, of as many chunks as may be freed now; the timer frees what is
    /// left.
    #[inline(never)]
    fn free_acknowledged(&mut self, records: &mut SentSegments, now: Instant) {
        if !self.snd.free_acknowledged(records.freeing.left(now)) {
            self.hasten_rare_timer(&mut records.rare, RareTimer::Retry, now);
        }
    }

    /// State changes on the acknowledgment of our FIN.
    #[inline(always)]
    fn after_ack(&mut self, cx: &mut ConnectionContext<'_>) -> Option<InputOutcome> {
        if self.snd.fin_acked() { self.on_fin_acked(cx) } else { None }
    }

    fn on_fin_acked(&mut self, cx: &mut ConnectionContext<'_>) -> Option<InputOutcome> {
        match self.state() {
            TcpState::FinWait1 => {
                self.step(StateStep::FinAcked);
                if self.released {
                    self.timers.set(TimerKind::Close, cx.now + cx.places.orphans().fin);
                }
                None
            }
            TcpState::Closing => {
                self.step(StateStep::FinAcked);
                self.wait_for_stragglers(cx);
                Some(InputOutcome::Taken)
            }
            TcpState::LastAck => {
                self.step(StateStep::FinAcked);
                self.finish();
                Some(InputOutcome::Taken)
            }
            _ => None,
        }
    }

    /// TIME-WAIT begins, or begins anew.
    pub(super) fn wait_for_stragglers(&mut self, cx: &mut ConnectionContext<'_>) {
        self.snd.clear();
        self.clear_timers();
        self.timers.set(TimerKind::Close, cx.now + TCP_TIME_WAIT);
        self.events.add(ConnectionEvents::ENDED);
    }

    /// Data that was received before is reported by D-SACK (RFC 2883 section 4).
    pub(super) fn note_duplicate(&mut self, records: &mut SentSegments, segment: &Segment) {
        let end = segment.seq + segment.len;
        if segment.len > 0 && end.is_at_most(self.rcv.nxt) {
            let block = SackBlock { left: segment.seq.0, right: end.0 };
            self.keep_duplicate(&mut records.rare, block);
        }
    }
}
