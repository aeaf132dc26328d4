//! What the owner of a set tells its half-open connections, and asks of them.
//!
//! Called by `stack`. The set knows which listener has which half-open connections; nothing of them
//! is kept here but what each accepted connection's SYN said.

use core::net::SocketAddr;

use floodwall_base::FlowKey;
use floodwall_syncache::{
    By, CookiePolicy, HalfOpen, ListenerStats, Moment, Proven, Secret, Stats, SynCache,
};
use floodwall_wire::tcp::{TcpFlags, TcpHeader};

use crate::id::{ConnectionId, Gone, ListenerId};
use crate::set::intake::flow_between;
use crate::tcp::{Tcp, Transmit};

/// What a client's SYN said, as far as its handshake kept it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynSaid {
    /// Whether an entry of the cache kept it, or a cookie, which rounds the segment size down.
    pub by: By,
    /// The largest segment that the client takes, at least the floor.
    pub mss: u16,
    /// The window of the SYN; a cookie does not know it.
    pub window: Option<u16>,
    /// The client's window scale.
    pub window_scale: Option<u8>,
    /// Selective acknowledgments are permitted.
    pub sack: bool,
    /// Timestamps were offered.
    pub timestamps: bool,
    /// ECN was agreed on.
    pub ecn: bool,
    /// How often our SYN-ACK was sent again before the client came back.
    pub retransmitted: u8,
}

impl SynSaid {
    pub(crate) fn of(proven: &Proven) -> Self {
        Self {
            by: proven.by(),
            mss: proven.mss().0,
            window: proven.peer_window(),
            window_scale: proven.window_scale().map(|(theirs, _)| theirs),
            sack: proven.sack(),
            timestamps: proven.timestamps().is_some(),
            ecn: proven.ecn(),
            retransmitted: proven.retransmitted(),
        }
    }
}

impl Tcp<SynCache> {
    /// Takes a secret that other instances have as well. Whether it is another one than before.
    pub fn share_cookies(&mut self, secret: Secret, at: Moment) -> bool {
        self.half_open.set_shared(true);
        self.half_open.reload(secret, at)
    }
}

impl<H: HalfOpen> Tcp<H> {
    /// What was counted of half-open connections.
    #[must_use]
    pub fn half_open_stats(&self) -> Stats {
        self.half_open.stats()
    }

    /// Every listener: where, how many may wait, and what was counted of it.
    pub fn listener_counts(&self) -> impl Iterator<Item = (SocketAddr, usize, ListenerStats)> {
        self.listeners.all().filter_map(|(local, half)| {
            let counts = self.half_open.listener_stats(half)?;
            Some((local, self.half_open.backlog(half)?, counts))
        })
    }

    /// When SYNs of a listener are answered by cookies alone.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn set_cookies(&mut self, listener: ListenerId, policy: CookiePolicy) -> Result<(), Gone> {
        let half = self.listeners.half_of(listener)?;
        self.half_open.set_cookies(half, policy);
        Ok(())
    }

    /// What the SYN of a connection said; `None` of one that we opened.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn syn_said(&self, id: ConnectionId) -> Result<Option<SynSaid>, Gone> {
        self.named(id)?;
        Ok(self.places.get(id.index()).and_then(|place| place.said))
    }

    /// A packet of ours could not be sent and never will be: there is no way. If it is a SYN-ACK,
    /// it is not sent again; its number stays a cookie.
    pub fn unsent(&mut self, transmit: &Transmit, at: Moment) {
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
        self.half_open.unsent(&FlowKey { zone, ..flow }, at);
    }
}
