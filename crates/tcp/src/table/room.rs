//! Room for newcomers: where connection places run out, connections of the source prefix that holds
//! most are evicted, before a handshake is refused.
//!
//! Used by `handshake.rs` once a handshake is proven, so that nothing forged evicts anything, and
//! by `calls.rs` for connections that programs open. A sixteenth of the places is kept free
//! (`TCP_PLACES_KEPT_DIVISOR`), because an evicted connection keeps its place until its reset is
//! sent and its program has released it; the last half of that is for prefixes with less than their
//! fair share. Connections that programs opened themselves, and those of listeners that do not
//! permit it, are never evicted.

use core::net::IpAddr;
use core::time::Duration;

use floodwall_base::limits::{
    TCP_EVICTED_MAX, TCP_PLACES_KEPT_DIVISOR, TCP_PLACES_NEWCOMERS_DIVISOR,
};
use floodwall_base::{Counter, Instant};
use floodwall_syncache::{HalfOpen, HandshakeAck};

use crate::connection_table::{ConnectionTable, Slot, TcpContext};
use crate::error::ConnectionError;
use crate::places::{ENTERED_EACH, Newcomer};

/// The only group of the shard's ledger.
const ALL_SHARES: usize = 0;

/// When the peer of the connection at a place was heard last.
fn heard(places: &[Slot], index: u32) -> Option<Instant> {
    Some(places.get(index as usize)?.connection.as_ref()?.heard)
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// Number of connections, without those that are being evicted.
    fn live(&self) -> usize {
        self.demux.len().saturating_sub(self.leaving)
    }

    /// Whether a connection of that listener may take a place now. If not, room is made for its
    /// next attempt where the acknowledgment proves a handshake.
    pub(super) fn admits(
        &mut self,
        lend: &mut TcpContext<'_>,
        listener: u32,
        ack: &HandshakeAck,
    ) -> bool {
        let (peer, max) = (ack.flow.remote.ip(), self.places_max());
        let free = self.free_places();
        let is_scarce = free <= max / TCP_PLACES_NEWCOMERS_DIVISOR;
        if free == 0 || is_scarce && self.ledgers.all.has_its_share(ALL_SHARES, peer, max) {
            if self.half_open.recognizes(ack) {
                self.make_room(lend, Some(peer));
            }
            return false;
        }
        self.ledgers.listeners.is_none() || self.listener_admits(lend, listener, ack)
    }

    /// The same within the limits of the listener.
    fn listener_admits(
        &mut self,
        lend: &mut TcpContext<'_>,
        listener: u32,
        ack: &HandshakeAck,
    ) -> bool {
        let peer = ack.flow.remote.ip();
        let Some((settings, _)) = self.listeners.of_new(listener) else { return true };
        let (places_max, prefix_max) = (settings.places_max, settings.per_prefix_max);
        let (group, Some(ledger)) = (listener as usize, &mut self.ledgers.listeners) else {
            return true;
        };
        let reached = |max: Option<usize>, held| max.is_some_and(|max| held >= max.max(1) as u64);
        let of_prefix = reached(prefix_max, ledger.held_by(group, peer));
        if !of_prefix && !reached(places_max, ledger.count(group)) {
            return true;
        }
        if !self.half_open.recognizes(ack) {
            // It proves nothing: it is refused as such.
            return true;
        }
        let look = |index| heard(&self.places, index);
        let victim = match of_prefix {
            true => ledger.victim_beside(group, peer, lend.now, look),
            false => ledger.victim(group, Some(peer), lend.now, look),
        };
        if let Some(index) = victim {
            self.evict(lend, index);
        }
        victim.is_some()
    }

    /// Where few places are left, evicts for a newcomer.
    pub(super) fn make_room(&mut self, lend: &mut TcpContext<'_>, newcomer: Newcomer) {
        let max = self.places_max();
        let most = max - max / TCP_PLACES_KEPT_DIVISOR;
        if self.live() <= max / 2 {
            return;
        }
        self.ledgers.all.enter_waiting(ENTERED_EACH);
        for _ in 0..TCP_EVICTED_MAX {
            if self.live() < most {
                return;
            }
            let look = |index| heard(&self.places, index);
            let Some(index) = self.ledgers.all.victim(ALL_SHARES, newcomer, lend.now, look) else {
                return;
            };
            self.evict(lend, index);
        }
    }

    /// Resets a connection, and tells its program.
    #[cold]
    fn evict(&mut self, lend: &mut TcpContext<'_>, index: u32) {
        self.ledgers.leave(index);
        let Some(place) = self.places.get_mut(index as usize) else { return };
        let is_queued = place.is_queued();
        let Some(connection) = &mut place.connection else { return };
        let counter = if is_queued {
            // No program knows it: it ends here.
            connection.released = true;
            self.listeners.dequeue(index);
            Counter::FloodwallTcpEvictedUnaccepted
        } else if connection.released {
            Counter::FloodwallTcpEvictedUnowned
        } else {
            Counter::FloodwallTcpEvictedIdle
        };
        connection.abort(ConnectionError::Aborted);
        place.evicted = true;
        self.leaving += 1;
        lend.counters.count(counter);
        self.settle(index, lend.now);
    }

    /// Enters a passive connection where it may be evicted.
    pub(super) fn enter_ledgers(&mut self, index: u32, listener: u32, peer: IpAddr, now: Instant) {
        let Some((settings, _)) = self.listeners.of_new(listener) else { return };
        if let Some(idle_min) = settings.evict_idle_after {
            self.ledgers.all.enter(index, ALL_SHARES, (peer, idle_min), now);
        }
        if settings.places_max.or(settings.per_prefix_max).is_some()
            && let Some(limited) = &mut self.ledgers.listeners
        {
            let idle_min = settings.evict_idle_after.unwrap_or(Duration::MAX);
            limited.enter(index, listener as usize, (peer, idle_min), now);
        }
    }

    /// What the prefix of a peer holds of the places: one for each connection in use,
    /// `TCP_UNOWNED_WEIGHT` for each without an owner. Enters all that wait to be counted.
    #[must_use]
    pub fn places_of(&mut self, peer: IpAddr) -> u64 {
        self.ledgers.all.enter_waiting(usize::MAX);
        self.ledgers.all.held_by(ALL_SHARES, peer)
    }
}
