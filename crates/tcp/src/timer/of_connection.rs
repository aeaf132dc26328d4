//! The timers of a connection that few connections have, and all of them together.
//!
//! Part of the connection; the set of timers that each has is [`Timers`].

use core::hint::cold_path;

use floodwall_base::Instant;

use super::{RareTimer, RareTimers, Timers};
use crate::connection::Connection;
use crate::connection_flags::ConnectionFlags;
use crate::rare_state::RareState;
use crate::state_slab::StateSlab;

impl Connection {
    /// The earliest timer of the wheel: all but the delayed ACK.
    #[inline(always)]
    pub(crate) fn next_timer(&self, rare: &StateSlab<RareState>) -> Instant {
        if self.flags.has(ConnectionFlags::TIMED) {
            cold_path();
            return self.timers.main.min(self.rare_timers(rare).next());
        }
        self.timers.main
    }

    /// The timers that few connections have.
    fn rare_timers(&self, rare: &StateSlab<RareState>) -> RareTimers {
        match self.known_rare(rare) {
            Some(state) if self.flags.has(ConnectionFlags::TIMED) => state.timers,
            _ => RareTimers::NONE,
        }
    }

    /// Sets one of them; at [`Instant::FAR`] it is cleared.
    pub(crate) fn set_rare_timer(
        &mut self,
        rare: &mut StateSlab<RareState>,
        timer: RareTimer,
        at: Instant,
    ) {
        let mut timers = self.rare_timers(rare);
        if timers.at(timer) == at {
            return;
        }
        timers.set(timer, at);
        if let Some(state) = self.rare(rare) {
            state.timers = timers;
            self.flags.set(ConnectionFlags::TIMED, timers.next() != Instant::FAR);
        }
    }

    /// Sets one of them, unless it is set to an earlier time.
    pub(crate) fn hasten_rare_timer(
        &mut self,
        rare: &mut StateSlab<RareState>,
        timer: RareTimer,
        at: Instant,
    ) {
        let at = at.min(self.rare_timers(rare).at(timer));
        self.set_rare_timer(rare, timer, at);
    }

    /// Clears and returns one of them that is due.
    pub(crate) fn pop_rare_timer(
        &mut self,
        rare: &mut StateSlab<RareState>,
        now: Instant,
    ) -> Option<RareTimer> {
        let timers = self.rare_timers(rare);
        let all = [RareTimer::Keepalive, RareTimer::Retry];
        let due = all.into_iter().find(|timer| timers.at(*timer) <= now)?;
        self.set_rare_timer(rare, due, Instant::FAR);
        Some(due)
    }

    pub(crate) fn clear_timers(&mut self) {
        self.timers = Timers::NONE;
        self.flags.set(ConnectionFlags::TIMED, false);
    }
}
