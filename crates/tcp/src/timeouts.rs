//! Timer expiry: RFC 9293 sections 3.8.1 to 3.8.4 and 3.10.8: retransmission, persist timer,
//! keepalive, delayed ACK and TIME-WAIT.
//!
//! Called by `connection_table.rs` when a connection's deadline has come. Invariants: every state
//! ends by time alone, independent of the peer's behaviour (row 14 of the bar); segments to send
//! are noted in `due`, never sent here.
//!
//! # Under flood
//! A peer that vanishes or keeps a zero window holds a connection and its buffers for
//! `TCP_STALL_PATIENCE`, without an owner for `TCP_ORPHAN_STALL_PATIENCE`; then it is reset (RFC
//! 6429 permits a host to do so; probes that are answered for ever must not keep it open).

use core::time::Duration;

use floodwall_base::limits::{TCP_OPEN_PATIENCE, TCP_ORPHAN_STALL_PATIENCE, TCP_STALL_PATIENCE};
use floodwall_base::{Counter, Family, Instant};

use crate::connection::{Connection, ConnectionContext, ConnectionDue, family};
use crate::error::ConnectionError;
use crate::recovery::TimeoutKind;
use crate::state::{StateStep, TcpState};
use crate::timer::TimerKind;

/// Longest interval between two zero-window probes (persist timer).
const PERSIST_MAX: Duration = Duration::from_secs(60);

/// Consecutive timeouts after which the path MTU is suspected: Linux's `tcp_retries1`.
const BLACK_HOLE_TRIES: u8 = 3;
/// The MSS that is tried then, over IPv4 (Linux's `tcp_base_mss`) and over IPv6 (which every link
/// carries).
const BLACK_HOLE_MSS: (u16, u16) = (1024, 1220);

impl Connection {
    /// Handles every timer that is due.
    pub(crate) fn ring(&mut self, cx: &mut ConnectionContext<'_>) {
        while let Some(timer) = self.timers.pop_due(cx.now) {
            match timer {
                TimerKind::Retransmit => self.on_retransmit(cx),
                TimerKind::DelayedAck => self.due.add(ConnectionDue::ACK),
                TimerKind::Persist => self.on_persist(cx),
                TimerKind::Keepalive => self.on_keepalive(cx),
                TimerKind::Close => self.on_close_timer(),
                // The retry happens when output is called; nothing else to do.
                TimerKind::Retry => {}
            }
        }
    }

    /// How long a connection may make no progress before it is given up.
    fn patience(&self) -> Duration {
        let usual = match self.state() {
            TcpState::SynSent | TcpState::SynReceived => self.wishes.opening(TCP_OPEN_PATIENCE),
            _ if self.released => TCP_ORPHAN_STALL_PATIENCE,
            _ => TCP_STALL_PATIENCE,
        };
        self.wishes.stalling(usual)
    }

    /// Gives the connection up if it has stalled for too long; returns whether it did.
    fn is_hopeless(&mut self, cx: &ConnectionContext<'_>) -> bool {
        if cx.now - self.stalled < self.patience() {
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
        let agreement = self.agreement();
        match self.recovery.on_timer(cx.records, &agreement, cx.now) {
            TimeoutKind::Nothing => {}
            TimeoutKind::Lost => self.note_reduction(),
            TimeoutKind::Probe { start, len } => self.probe = Some((start, len)),
            TimeoutKind::Timeout => {
                cx.counters.count(Counter::TcpExtTCPTimeouts);
                self.probe = None;
                self.note_reduction();
                if !self.is_hopeless(cx) {
                    self.suspect_black_hole();
                }
            }
        }
    }

    /// Black-hole detection: full segments that are lost repeatedly may exceed the MTU of a router
    /// which sends no errors, or sends errors that are lost; smaller ones are tried (RFC 4821
    /// section 7.7, RFC 5927 section 7.2). On a path that is only slow this costs some efficiency.
    fn suspect_black_hole(&mut self) {
        let smaller = match family(&self.flow) {
            Family::V4 => BLACK_HOLE_MSS.0,
            Family::V6 => BLACK_HOLE_MSS.1,
        };
        let is_full = self.recovery.board().outstanding() >= self.mss();
        let tries = self.recovery.rtt().backoff();
        if tries >= BLACK_HOLE_TRIES && is_full && self.agreed.path_mss > smaller {
            self.agreed.path_mss = smaller;
            let mss = self.mss();
            self.recovery.set_mss(mss);
        }
    }

    /// Our SYN, or our SYN-ACK, is unanswered.
    fn on_syn_timeout(&mut self, cx: &mut ConnectionContext<'_>) {
        let retries = self.recovery.rtt().backoff();
        if self.is_hopeless(cx) {
            return;
        }
        if !self.wishes.tries_again(retries) {
            return self.abort(ConnectionError::TimedOut);
        }
        cx.counters.count(Counter::TcpExtTCPTimeouts);
        self.recovery.rtt_mut().back_off();
        self.due.add(ConnectionDue::SYN);
        self.timers.set(TimerKind::Retransmit, self.open_until(cx.now));
    }

    /// When a SYN that is sent now is retransmitted or given up.
    pub(crate) fn open_until(&self, now: Instant) -> Instant {
        (now + self.rto()).min(self.stalled + self.patience())
    }

    /// The interval of the persist timer: after how long the peer's window is probed (RFC 9293
    /// section 3.8.6.1).
    pub(crate) fn persist_delay(&self) -> Duration {
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
        self.timers.set(TimerKind::Persist, cx.now + self.persist_delay());
    }

    fn on_keepalive(&mut self, cx: &mut ConnectionContext<'_>) {
        let Some(keepalive) = self.keepalive else { return };
        if !self.state().is_synchronized() || self.state() == TcpState::TimeWait {
            return;
        }
        let silence = cx.now - self.heard;
        if silence < keepalive.idle() {
            return self.arm_keepalive();
        }
        // Waiting data acts as the probe.
        if self.snd.una == self.snd.nxt {
            let asked = silence.saturating_sub(keepalive.idle()).as_nanos()
                / keepalive.interval().as_nanos();
            if asked >= u128::from(keepalive.count) {
                return self.abort(ConnectionError::TimedOut);
            }
            self.due.add(ConnectionDue::PROBE);
        }
        self.timers.set(TimerKind::Keepalive, cx.now + keepalive.interval());
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
