//! Sends of unconnected sockets are recorded: by them a peer becomes established.
//!
//! Called where such a socket sends along a path that it looked up (`sockets.rs`); the table is
//! `recent_peers.rs`.

use core::net::SocketAddr;

use floodwall_base::Instant;
use floodwall_udp::{DatagramKey, SocketId};
use floodwall_wire::IpProtocol;

use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::OutputPath;
use crate::stack::Stack;
use crate::triage::recent_peers::peer_of;

impl Stack {
    /// Records that a socket sends to `to` from a local address along a path that was just looked
    /// up. Peers of connected sockets are established without this. Returns whether the next sends
    /// to this peer need not be recorded for a while.
    pub(crate) fn note_answered<A: IpFamily>(
        &mut self,
        id: SocketId,
        (to, from): (&SocketAddr, SocketAddr),
        path: OutputPath<A>,
        now: Instant,
    ) -> bool {
        let OutputPath::Via { iface, .. } = path else { return true };
        if !matches!(self.sockets.udp.peer_addr(id), Ok(None)) {
            return true;
        }
        // Keyed as the peer's next datagram will be.
        let datagram_key = DatagramKey::new((to.ip(), to.port()), (from.ip(), from.port()), iface);
        let peer = peer_of(&datagram_key, iface);
        let noted = self.sockets.recent_peers.note(&peer, now);
        if noted.is_untold && self.shard.steering.workers() > 1 {
            let owner = self.shard.steering.flow(from, *to, IpProtocol::UDP.0);
            if owner != self.shard.worker {
                self.tell_established_flow(owner, &peer, now);
            }
        }
        noted.is_established
    }
}
