//! The end of all connections, for a host that is about to stop: its listeners are closed, its
//! applications are told, and what is left in the end is reset.
//!
//! Called by the stack (`drain.rs` there), which spreads the visits of all places over its turns.
//! Invariant: a connection that is reset here has sent its reset, or will with the next transmit,
//! and its application gets `Aborted`.

use floodwall_syncache::HalfOpen;

use crate::connection_table::{ConnectionTable, TcpContext};
use crate::error::ConnectionError;
use crate::events::ConnectionEvents;
use crate::state::TcpState;

impl<H: HalfOpen> ConnectionTable<H> {
    /// Connections that have not ended. TIME-WAIT is an end, unless an application still has the
    /// connection.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.demux.len()
    }

    /// Closes one listener, with the connections in its accept queue reset. False where there is
    /// none.
    pub fn unlisten_next(&mut self, lend: &TcpContext<'_>) -> bool {
        let Some(id) = self.listeners.first() else { return false };
        // It was found a moment ago.
        self.unlisten(lend, id).is_ok()
    }

    /// Gives an event to the application of each connection among `looks` places from `from` on, so
    /// that it looks at all of its connections. Returns the next place to visit; `None` at the end.
    pub fn notify_from(&mut self, lend: &TcpContext<'_>, from: u32, looks: u32) -> Option<u32> {
        self.visit(from, looks, |set, index| {
            let Some(connection) = set.at_mut(index) else { return };
            if !connection.released {
                connection.events.add(ConnectionEvents::READABLE);
                set.settle(index, lend.now);
            }
        })
    }

    /// Resets each connection among `looks` places from `from` on. Returns the next place to visit;
    /// `None` at the end.
    pub fn reset_from(&mut self, lend: &TcpContext<'_>, from: u32, looks: u32) -> Option<u32> {
        self.visit(from, looks, |set, index| {
            let Some(connection) = set.at_mut(index) else { return };
            if !matches!(connection.state(), TcpState::Closed | TcpState::TimeWait) {
                connection.abort(ConnectionError::Aborted);
                set.settle(index, lend.now);
            }
        })
    }

    fn visit(
        &mut self,
        from: u32,
        looks: u32,
        mut visit: impl FnMut(&mut Self, u32),
    ) -> Option<u32> {
        let places = self.places.len() as u32;
        let end = from.saturating_add(looks).min(places);
        (from..end).for_each(|index| visit(self, index));
        (end < places).then_some(end)
    }
}
