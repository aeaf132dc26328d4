//! Timer expiry: RFC 9293 sections 3.8.1 to 3.8.4 and 3.10.8: retransmission, persist timer,
//! keepalive, delayed ACK and TIME-WAIT.
//!
//! Called by `connection_table.rs` when a connection's deadline has come. Invariants: every state
//! ends by time alone, independent of the peer's behaviour (row 14 of the bar); segments to send
//! are noted in `due`, never sent here.
//!
//! # Under flood
//! A peer that vanishes or keeps a zero window holds a connection and its buffers for
//! `TCP_STALL_PATIENCE`, without an owner for `TCP_ORPHAN_STALL_PATIENCE`, and for less as places
//! run out (`TCP_ORPHAN_PATIENCE_MIN`); then it is reset (RFC
//! 6429 permits a host to do so; probes that are answered for ever must not keep it open).

use core::hint::cold_path;
use core::time::Duration;

use floodwall_base::limits::{TCP_OPEN_PATIENCE, TCP_STALL_PATIENCE};
use floodwall_base::{Counter, Instant};

use crate::chunk_budget::ChunkBudget;
use crate::connection::{Connection, ConnectionContext, ConnectionDue};
use crate::error::ConnectionError;
use crate::orphan_patience::OrphanPatience;
use crate::rare_state::RareState;
use crate::receive_state::QUICK_ACKS;
use crate::recovery::TimeoutKind;
use crate::settings::KeepaliveTimes;
use crate::state::{StateStep, TcpState};
use crate::state_slab::StateSlab;
use crate::timer::{AckDelay, RareTimer, TimerKind};

/// Longest interval between two zero-window probes (persist timer).
const PERSIST_MAX: Duration = Duration::from_secs(60);

impl Connection {
    /// Handles every timer that is due, and the end of an acknowledgment's delay where that is
    /// over; returns what it cost beyond a unit.
    pub(crate) fn ring(&mut self, cx: &mut ConnectionContext<'_>, is_ack_due: bool) -> u32 {
        let mut cost = 0;
        self.arm_retransmit(&cx.records.rare, Instant::FAR);
        while let Some(timer) = self.timers.pop_due(cx.now) {
            match timer {
                TimerKind::Retransmit => self.on_retransmit(cx),
                TimerKind::Persist => self.on_persist(cx),
                TimerKind::Close => self.on_close_timer(),
            }
        }
        if is_ack_due {
            self.on_ack_delay();
        }
        while let Some(timer) = self.pop_rare_timer(&mut cx.records.rare, cx.now) {
            match timer {
                RareTimer::Keepalive => self.on_keepalive(cx),
                // The retry happens when output is called.
                RareTimer::Retry => cost = self.free_by_timer(&mut cx.records.rare, cx.now),
            }
        }
        cost
    }

    /// The delay of an acknowledgment is over.
    fn on_ack_delay(&mut self) {
        match core::mem::replace(&mut self.timers.ack, AckDelay::Absent) {
            AckDelay::Absent => return,
            AckDelay::Quick => {}
            // Neither an answer nor another segment came meanwhile.
            AckDelay::Begins | AckDelay::Waits => self.rcv.quick = QUICK_ACKS,
        }
        self.due.add(ConnectionDue::ACK);
    }

    /// Frees a part of what is acknowledged, if there is any, and notifies a program that waits for
    /// room; returns the units that it cost. The timer does so again while there is more, after
    /// other connections.
    fn free_by_timer(&mut self, rare: &mut StateSlab<RareState>, now: Instant) -> u32 {
        let (mut again, held) = (false, self.snd.held());
        let cost = ChunkBudget::by_timer(|most| again = !self.snd.free_acknowledged(most));
        if again {
            self.set_rare_timer(rare, RareTimer::Retry, now + Duration::from_nanos(1));
        }
        if self.snd.held() < held {
            self.note_room(rare);
        }
        cost
    }

    /// How long a connection may make no progress before it is given up.
    fn patience(&self, rare: &StateSlab<RareState>, orphans: OrphanPatience) -> Duration {
        let opening = matches!(self.state(), TcpState::SynSent | TcpState::SynReceived);
        let usual = match opening {
            true => TCP_OPEN_PATIENCE,
            false if self.released => orphans.stall,
            false => TCP_STALL_PATIENCE,
        };
        let Some(RareState { options, .. }) = self.known_rare(rare) else { return usual };
        cold_path();
        options.stalling(if opening { options.opening(usual) } else { usual })
    }

    /// When the connection is given up unless there is progress. No timer that looks after data or
    /// a window is later, so that a user timeout is kept to (RFC 5482).
    pub(crate) fn given_up_at(&self, rare: &StateSlab<RareState>) -> Instant {
        self.stalled + self.patience(rare, OrphanPatience::FULL)
    }

    /// Gives the connection up if it has stalled for too long; returns whether it did.
    fn is_hopeless(&mut self, cx: &ConnectionContext<'_>) -> bool {
        if cx.now - self.stalled < self.patience(&cx.records.rare, cx.places.orphans()) {
            return false;
        }
        self.abort(ConnectionError::TimedOut);
        true
    }

    /// The loss timer has expired: recovery decides what to send (RFC 8985, RFC 6298).
    fn on_retransmit(&mut self, cx: &mut ConnectionContext<'_>) {
        if !self.state().is_synchronized() {
            return self.on_syn_timeout(cx);
        }
        if self.is_hopeless(cx) {
            return;
        }
        let agreement = self.agreement();
        match self.recovery.on_timer(cx.records, &agreement, cx.now) {
            TimeoutKind::Nothing => {}
            TimeoutKind::Lost => self.note_reduction(),
            TimeoutKind::Probe => self.probe = true,
            TimeoutKind::Timeout => {
                cx.counters.count(Counter::TcpExtTCPTimeouts);
                self.probe = false;
                self.note_reduction();
                self.suspect_black_hole(cx.records, cx.now);
            }
        }
        self.judge_size_probe(cx.records, cx.now);
    }

    /// Our SYN, or our SYN-ACK, is unanswered.
    fn on_syn_timeout(&mut self, cx: &mut ConnectionContext<'_>) {
        let retries = self.recovery.rtt().backoff();
        if self.is_hopeless(cx) {
            return;
        }
        if !self.user_options(&cx.records.rare).tries_again(retries) {
            return self.abort(ConnectionError::TimedOut);
        }
        cx.counters.count(Counter::TcpExtTCPTimeouts);
        self.recovery.rtt_mut().back_off();
        self.due.add(ConnectionDue::SYN);
        self.timers.set(TimerKind::Retransmit, self.open_until(&cx.records.rare, cx.now));
    }

    /// When a SYN that is sent now is retransmitted or given up.
    pub(crate) fn open_until(&self, rare: &StateSlab<RareState>, now: Instant) -> Instant {
        (now + self.rto()).min(self.given_up_at(rare))
    }

    /// The interval of the persist timer: after how long the peer's window is probed (RFC 9293
    /// section 3.8.6.1).
    fn persist_delay(&self) -> Duration {
        let doubled = self.rto().saturating_mul(1 << self.probes.min(10));
        doubled.min(PERSIST_MAX)
    }

    fn on_persist(&mut self, cx: &mut ConnectionContext<'_>) {
        if self.snd.una != self.snd.nxt || self.is_hopeless(cx) {
            return;
        }
        if self.probes == 0 {
            self.stalled = self.stalled.max(self.heard);
        }
        self.probes = self.probes.saturating_add(1);
        // A small window is filled; a zero window is probed.
        self.due.add(if self.snd.usable() > 0 {
            ConnectionDue::FORCE
        } else {
            ConnectionDue::PROBE
        });
        self.timers.set(TimerKind::Persist, self.persist_at(&cx.records.rare, cx.now));
    }

    /// When the peer's window is probed next, or the connection given up.
    pub(crate) fn persist_at(&self, rare: &StateSlab<RareState>, now: Instant) -> Instant {
        (now + self.persist_delay()).min(self.given_up_at(rare))
    }

    fn on_keepalive(&mut self, cx: &mut ConnectionContext<'_>) {
        let Some(keepalive) = self.keepalive(&cx.records.rare) else { return };
        if !self.state().is_synchronized() || self.state() == TcpState::TimeWait {
            return;
        }
        let silence = cx.now - self.heard;
        if silence < keepalive.idle() {
            return self.arm_keepalive(&mut cx.records.rare);
        }
        // Waiting data acts as the probe.
        if self.snd.una == self.snd.nxt {
            let asked = silence.saturating_sub(keepalive.idle()).as_nanos()
                / keepalive.interval().as_nanos();
            // A user timeout replaces the count, once a probe was not answered (as on Linux).
            let is_over = match self.user_options(&cx.records.rare).user_timeout() {
                Some(timeout) => silence >= timeout && (asked > 0 || timeout > keepalive.idle()),
                None => asked >= u128::from(keepalive.count),
            };
            if is_over {
                return self.abort(ConnectionError::TimedOut);
            }
            self.due.add(ConnectionDue::PROBE);
        }
        let at = self.keepalive_at(&cx.records.rare, keepalive, cx.now);
        self.set_rare_timer(&mut cx.records.rare, RareTimer::Keepalive, at);
    }

    /// When a silent peer is probed again, or the connection given up by its user timeout.
    fn keepalive_at(
        &self,
        rare: &StateSlab<RareState>,
        keepalive: KeepaliveTimes,
        now: Instant,
    ) -> Instant {
        let next = now + keepalive.interval();
        let over = self.user_options(rare).user_timeout().map(|timeout| self.heard + timeout);
        over.filter(|over| now < *over).map_or(next, |over| next.min(over))
    }

    /// TIME-WAIT is over, or an orphaned connection has waited long enough for the peer's FIN.
    fn on_close_timer(&mut self) {
        if self.state() == TcpState::TimeWait {
            self.be_quiet();
        } else {
            self.abort(ConnectionError::TimedOut);
        }
    }

    /// Ends TIME-WAIT: after its time, or because the peer opens a new connection.
    pub(crate) fn be_quiet(&mut self) {
        self.step(StateStep::Quiet);
        self.finish();
    }
}
