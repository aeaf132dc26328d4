//! Whose a datagram is, asked before any work is put into it.
//!
//! Called by the stack's triage for a burst: one table probe, nothing is changed or counted.

use core::net::SocketAddr;

use floodwall_base::IfIndex;
use floodwall_packet::Triage;

use crate::demux::{Kind, Probe, bits, zone_of};
use crate::intake::Intake;
use crate::sockets::Udp;

impl<I: Intake> Udp<I> {
    /// A friend where a connected socket waits for exactly this peer, a stranger where some socket
    /// would take it, refusable where none would.
    #[must_use]
    #[inline]
    pub fn classify(&self, from: SocketAddr, to: SocketAddr, iface: IfIndex) -> Triage {
        let probe = Probe {
            local: bits(to.ip()),
            remote: bits(from.ip()),
            iface: zone_of(iface),
            local_port: to.port(),
            remote_port: from.port(),
        };
        match self.demux.lookup(&probe).map(|index| self.demux.key(index).kind) {
            Some(Kind::Connected) => Triage::Friend,
            Some(_) => Triage::Stranger,
            // A group may have members on another address.
            None if to.ip().is_multicast() => Triage::Stranger,
            None => Triage::Refusable,
        }
    }
}
