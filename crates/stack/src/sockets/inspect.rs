//! What sockets there are, for an operator: read in pieces between two bursts.
//!
//! Called at a worker's desk. Nothing here changes anything. Invariant: a call looks at no more
//! places than it is asked for, so that packets wait for that long only.

use core::net::SocketAddr;

use floodwall_base::Instant;
use floodwall_tcp::Info;
use floodwall_udp::RefusedDatagram;

use crate::stack::Stack;

/// One TCP connection.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Bytes sent or to be sent that the peer has not acknowledged.
    pub unacknowledged: usize,
    /// Everything else.
    pub info: Info,
}

/// One UDP socket.
#[derive(Clone, Copy, Debug)]
pub struct UdpSocketReport {
    /// What it is bound to.
    pub local: SocketAddr,
    /// The peer that it is connected to.
    pub remote: Option<SocketAddr>,
    /// Datagrams that it has taken since it was opened.
    pub taken: u64,
    /// Datagrams that wait to be read.
    pub waiting: usize,
    /// Their true bytes, which are charged to the socket.
    pub charged: u64,
    /// True bytes on their way out.
    pub sending: u64,
    /// What it refused since it was opened.
    pub refused: RefusedDatagram,
}

impl Stack {
    /// The connections at `looks` places from `from` on; and where to go on, `None` at the end.
    #[must_use]
    pub fn tcp_connections(
        &self,
        from: usize,
        looks: usize,
        now: Instant,
    ) -> (Vec<ConnectionReport>, Option<usize>) {
        let Some(tcp) = &self.tcp else { return (Vec::new(), None) };
        let (ids, next) = tcp.set.connections_from(from, looks);
        let one = |id| {
            let (local, remote) = tcp.set.ends(id).ok()?;
            let unacknowledged = tcp.set.unacknowledged(id).ok()?;
            let info = tcp.set.info(id, now).ok()?;
            Some(ConnectionReport { local, remote, unacknowledged, info })
        };
        (ids.into_iter().filter_map(one).collect(), next)
    }

    /// TCP connections of this shard, and the most that there may be.
    #[must_use]
    pub fn tcp_use(&self) -> (usize, usize) {
        self.tcp.as_ref().map_or((0, 0), |tcp| (tcp.set.len(), tcp.set.places_max()))
    }

    /// The bound UDP sockets at `looks` places from `from` on; and where to go on.
    #[must_use]
    pub fn udp_sockets(&self, from: usize, looks: usize) -> (Vec<UdpSocketReport>, Option<usize>) {
        let (ids, next) = self.sockets.udp.sockets_from(from, looks);
        let one = |id| {
            let local = self.sockets.udp.local_addr(id).ok()??;
            let (waiting, charged, _) = self.sockets.udp.queue(id).ok()?;
            Some(UdpSocketReport {
                local,
                remote: self.sockets.udp.peer_addr(id).ok().flatten(),
                taken: self.sockets.udp.taken(id).unwrap_or(0),
                waiting,
                charged,
                sending: self.sockets.udp.sending(id).unwrap_or(0),
                refused: self.sockets.udp.refused(id).unwrap_or_default(),
            })
        };
        (ids.into_iter().filter_map(one).collect(), next)
    }
}
