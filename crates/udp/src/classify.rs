//! Whose a datagram is, asked before any work is put into it.
//!
//! Called by the stack's triage for a burst, before the first packet of it is handled: one look-up,
//! nothing is changed or counted. With many sockets this is also what makes them fast: the
//! look-ups of a burst do not wait for each other's cache misses, and `input` then finds the
//! tables warm (packet design note, section 5).

use core::net::SocketAddr;

use floodwall_base::IfIndex;
use floodwall_packet::Triage;

use crate::demux::{Kind, Probe, bits, zone_of};
use crate::intake::Intake;
use crate::sockets::Udp;

impl<I: Intake> Udp<I> {
    /// A friend where a connected socket waits for exactly this peer, a stranger where some socket
    /// would take it, refusable where none would, because nobody listens or the socket is full.
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
        let found = self.demux.lookup(&probe);
        let socket = found.and_then(|index| self.sockets.get(index as usize));
        let body = socket.and_then(|socket| socket.body.as_ref());
        let kind = found.map(|index| self.demux.key(index).kind);
        match kind {
            Some(_) if body.is_none_or(|body| body.intake.is_full()) => Triage::Refusable,
            Some(Kind::Connected) => Triage::Friend,
            Some(_) => Triage::Stranger,
            // A group may have members on another address.
            None if to.ip().is_multicast() => Triage::Stranger,
            None => Triage::Refusable,
        }
    }
}
