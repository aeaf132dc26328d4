//! The sender's use of its [`LossState`]: taken when its window limits it, a loss is found or a
//! probe leaves, and given back once all data is acknowledged and only the window matters.
//!
//! Part of [`super::Recovery`]. Invariant: the window is that of the state's controller, where
//! there is one.

use core::hint::cold_path;
use core::time::Duration;

use floodwall_base::{Instant, Seq};

use super::{Recovery, RecoveryPhase};
use crate::congestion::{Congestion, CongestionControl, Delivery, Flight};
use crate::loss_state::{LossState, SizeProbe};
use crate::sent_segments::SentSegments;
use crate::state_slab::NO_STATE;

impl Recovery {
    /// Its loss state, which is taken where it has none.
    pub(super) fn loss<'a>(&mut self, records: &'a mut SentSegments) -> Option<&'a mut LossState> {
        if self.loss == NO_STATE {
            self.loss =
                records.losses.take(LossState::new(self.window.controller(), self.board.una()));
        }
        records.losses.at_mut(self.loss)
    }

    /// Its loss state, where it has one.
    #[inline(always)]
    pub(super) fn known_loss<'a>(&self, records: &'a SentSegments) -> Option<&'a LossState> {
        if self.loss == NO_STATE { None } else { records.losses.at(self.loss) }
    }

    /// The same, to be changed.
    #[inline(always)]
    pub(super) fn known_loss_mut<'a>(
        &self,
        records: &'a mut SentSegments,
    ) -> Option<&'a mut LossState> {
        if self.loss == NO_STATE { None } else { records.losses.at_mut(self.loss) }
    }

    /// Gives its loss state back where nothing of it matters any more.
    pub(super) fn leave_loss(&mut self, records: &mut SentSegments) {
        if self.phase != RecoveryPhase::Open || self.board.outstanding() > 0 {
            return;
        }
        let Some(loss) = self.known_loss(records).filter(|loss| loss.is_spent()) else { return };
        if let Some(round_min) = loss.controller.settled() {
            self.window.settle(round_min);
        }
        records.losses.give_back(core::mem::replace(&mut self.loss, NO_STATE));
    }

    /// Data was acknowledged.
    #[inline(never)]
    pub(super) fn pass_loss(&mut self, records: &mut SentSegments) {
        let (una, is_all) = (self.board.una(), self.board.outstanding() == 0);
        if let Some(loss) = self.known_loss_mut(records) {
            loss.undo.pass(una);
            loss.point = loss.point.later(una);
            loss.marked = loss.marked.later(una);
            if is_all {
                loss.duplicates = 0;
            }
        }
        self.leave_loss(records);
    }

    /// A congestion event.
    pub(super) fn reduce(&mut self, records: &mut SentSegments, kind: Congestion, flight: &Flight) {
        match self.loss(records) {
            Some(loss) => {
                loss.controller.on_congestion(kind, flight);
                self.window.follow(&loss.controller);
            }
            None => self.window.reduce(flight, false),
        }
    }

    /// The retransmission timeout, the first of an episode where it `is_new`.
    pub(super) fn reduce_for_timeout(
        &mut self,
        records: &mut SentSegments,
        flight: &Flight,
        is_new: bool,
    ) {
        let (una, was_open) = (self.board.una(), self.phase == RecoveryPhase::Open);
        let Some(loss) = self.loss(records) else { return self.window.reduce(flight, true) };
        loss.controller.on_timeout(flight, is_new);
        self.window.follow(&loss.controller);
        if is_new {
            loss.undo.arm_for_timeout(una, was_open);
        } else {
            loss.undo.end_frto();
        }
        (loss.probe, loss.duplicates) = (None, 0);
        if loss.size_probe.flying().is_some() {
            loss.size_probe = SizeProbe::Judged(false);
        }
    }

    /// A window that was unused for so long is reduced.
    pub(super) fn after_idle(&mut self, records: &mut SentSegments, idle: Duration, rto: Duration) {
        match self.known_loss_mut(records) {
            Some(loss) => {
                loss.controller.after_idle(idle, rto, self.mss);
                self.window.follow(&loss.controller);
            }
            None => self.window.after_idle(idle, rto, self.mss),
        }
    }

    /// The segment size becomes `mss`.
    pub(super) fn rescale(&mut self, records: &mut SentSegments, mss: u32) {
        match self.known_loss_mut(records) {
            Some(loss) => {
                loss.controller.on_mss_change(self.mss, mss);
                self.window.follow(&loss.controller);
            }
            None => self.window.on_mss_change(self.mss, mss),
        }
    }

    /// Opens the window by what was acknowledged, with the nanoseconds that it took, outside of
    /// fast recovery.
    #[inline(always)]
    pub(super) fn open_by(
        &mut self,
        records: &mut SentSegments,
        (acked, rtt): (u32, Option<u64>),
        flight: u32,
        now: Instant,
    ) {
        let window = self.window.window();
        let slack = (window / 8).max(2 * self.mss);
        let is_slow_start = window < self.window.ssthresh();
        // If a burst has filled half of the window, each of its ACKs opens the window, the last as
        // the first.
        let is_tested =
            u32::from(self.burst).saturating_mul(2 * self.mss) > window || self.burst == u16::MAX;
        let is_window_limited = self.phase == RecoveryPhase::Timeout
            || if is_slow_start { is_tested } else { flight + slack >= window };
        if is_window_limited {
            self.open_limited(records, (acked, rtt), now);
        } else if let Some(loss) = self.known_loss_mut(records) {
            cold_path();
            loss.controller.on_unlimited_ack(now);
        }
    }

    /// The same where the window is what limits the flow.
    #[inline(never)]
    fn open_limited(
        &mut self,
        records: &mut SentSegments,
        (acked, rtt): (u32, Option<u64>),
        now: Instant,
    ) {
        let delivery = Delivery {
            acked,
            ack: self.board.una(),
            next: self.board.nxt(),
            rtt: rtt.map(Duration::from_nanos),
            srtt: self.rtt.smoothed().unwrap_or_default(),
            is_window_limited: true,
            mss: self.mss,
            now,
        };
        match self.loss(records) {
            Some(loss) => {
                loss.controller.on_ack(&delivery);
                self.window.follow(&loss.controller);
            }
            None => self.window.grow(acked, self.mss),
        }
    }

    /// In fast recovery so many bytes were delivered; `is_safe` as for PRR.
    pub(super) fn deliver_in_recovery(
        &mut self,
        records: &mut SentSegments,
        delivered: u32,
        is_safe: bool,
    ) {
        let (pipe, mss) = (self.board.pipe(records), self.mss);
        if let Some(loss) = self.known_loss_mut(records) {
            loss.prr.on_ack(delivered, pipe, is_safe, mss);
        }
    }

    /// So many bytes were sent.
    pub(super) fn sent_in_recovery(&mut self, records: &mut SentSegments, len: u32) {
        if let Some(loss) = self.known_loss_mut(records) {
            loss.prr.on_sent(len);
        }
    }

    /// In fast recovery one segment may be sent now.
    pub(super) fn grant(&mut self, records: &mut SentSegments) {
        if let Some(loss) = self.known_loss_mut(records) {
            loss.prr.grant(self.mss);
        }
    }

    /// Whether the newly `lost` bytes are exactly the probe for a larger segment size.
    pub(super) fn loses_probe(&mut self, records: &mut SentSegments, lost: u32) -> bool {
        let flying = self.known_loss(records).and_then(|loss| loss.size_probe.flying());
        let Some((start, len)) = flying else { return false };
        let is_it = lost == len && self.board.next_lost(records) == Some((start, len));
        if is_it {
            let nxt = self.board.nxt();
            if let Some(loss) = self.known_loss_mut(records) {
                loss.point = nxt;
            }
            self.end_size_probe(records, false);
        }
        is_it
    }

    /// A probe for a larger segment size has arrived, where all of it is acknowledged.
    pub(super) fn pass_size_probe(&mut self, records: &mut SentSegments) {
        let flying = self.known_loss(records).and_then(|loss| loss.size_probe.flying());
        if flying.is_some_and(|(seq, len): (Seq, u32)| (seq + len).is_at_most(self.board.una())) {
            self.end_size_probe(records, true);
        }
    }

    fn end_size_probe(&self, records: &mut SentSegments, arrived: bool) {
        if let Some(loss) = self.known_loss_mut(records) {
            loss.size_probe = SizeProbe::Judged(arrived);
        }
    }

    /// Ends F-RTO where new data cannot take the place of repetitions.
    pub(super) fn end_waiting(&self, records: &mut SentSegments) {
        let may_send = self.allowance(records) >= self.mss;
        if let Some(loss) = self.known_loss_mut(records)
            && loss.undo.is_waiting()
            && !(loss.undo.has_unsent() && may_send)
        {
            loss.undo.end_frto();
        }
    }
}
