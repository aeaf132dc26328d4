//! Half-open connections of a set: settings and queries for its owner.
//!
//! Used by `stack`. The set maps listeners to their half-open connections; all else is stored in
//! `syncache`, except for the SYN options of each accepted connection.

use core::net::SocketAddr;

use floodwall_base::FlowKey;
use floodwall_syncache::{
    CookieMoment, CookiePolicy, HalfOpen, ListenerStats, Secret, Stats, SynCache,
};
use floodwall_wire::tcp::{TcpFlags, TcpHeader};

use crate::connection_table::ConnectionTable;
use crate::id::{ConnectionId, ListenerId, StaleHandle};
use crate::syn_said::SynSaid;
use crate::table::intake::flow_between;
use crate::transmit::Transmit;

impl ConnectionTable<SynCache> {
    /// Sets the cookie secret, which other instances share. Returns whether it differs from the
    /// previous one.
    pub fn share_cookies(&mut self, secret: Secret, at: CookieMoment) -> bool {
        self.half_open.set_shared(true);
        self.half_open.reload(secret, at)
    }

    /// Sets the cookie secret that the other shards of this host have, and no other instance.
    /// Returns whether it differs from the previous one.
    pub fn agree_on_cookies(&mut self, secret: Secret, at: CookieMoment) -> bool {
        self.half_open.reload(secret, at)
    }
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// The counters of half-open connections.
    #[must_use]
    pub fn half_open_stats(&self) -> Stats {
        self.half_open.stats()
    }

    /// Every listener: its address, its backlog, and its counters.
    pub fn listener_counts(&self) -> impl Iterator<Item = (SocketAddr, usize, ListenerStats)> {
        self.listeners.all().filter_map(|(local, half)| {
            let counts = self.half_open.listener_stats(half)?;
            Some((local, self.half_open.backlog(half)?, counts))
        })
    }

    /// Sets when SYNs of a listener are answered by cookies only.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn set_cookies(
        &mut self,
        listener: ListenerId,
        policy: CookiePolicy,
    ) -> Result<(), StaleHandle> {
        let half = self.listeners.half_of(listener)?;
        self.half_open.set_cookies(half, policy);
        Ok(())
    }

    /// The SYN options of a connection; `None` for an active open.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn syn_said(&self, id: ConnectionId) -> Result<Option<SynSaid>, StaleHandle> {
        let connection = self.named(id)?;
        Ok(self.places.get(id.index()).and_then(|place| place.said.of_connection(connection)))
    }

    /// A packet of ours could not be sent and never will be: there is no route. If it is a SYN-ACK,
    /// it is not retransmitted; its sequence number stays a valid cookie.
    pub fn unsent(&mut self, transmit: &Transmit, at: CookieMoment) {
        let bytes = transmit.packet.first();
        let Ok(header) = TcpHeader::parse(bytes, transmit.packet.len()) else { return };
        if !header.flags().contains(TcpFlags::SYN | TcpFlags::ACK) {
            return;
        }
        let zone = transmit.zone;
        let flow = flow_between(
            (transmit.dst_addr, header.dst_port()),
            (transmit.src_addr, header.src_port()),
        );
        self.mark_works();
        self.half_open.unsent(&FlowKey { zone, ..flow }, at);
    }
}
