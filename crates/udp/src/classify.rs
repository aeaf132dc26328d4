//! Whose a datagram is, asked before any work is put into it.
//!
//! Called by the stack's triage for a burst, before the first packet of it is handled: one look-up
//! each, side by side (`demux/burst.rs`), and nothing is changed or counted. With many sockets this
//! is also what makes them fast: `input` then finds the tables warm (packet design note, section
//! 5).

use core::net::{IpAddr, SocketAddr};

use floodwall_base::IfIndex;
use floodwall_base::limits::BURST_MAX;
use floodwall_packet::Triage;

use crate::demux::{Kind, NONE, Probe, V4, bits, is_group, is_link_scope, zone_of};
use crate::intake::Intake;
use crate::sockets::Udp;

/// What is asked about one datagram: where it is from, where it is to, and where it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Whose(Probe);

impl Whose {
    /// A datagram that asks for nothing: for arrays.
    pub const NOBODYS: Self =
        Self(Probe { local: 0, remote: 0, iface: 0, local_port: 0, remote_port: 0 });

    /// Of the addresses and ports in a datagram's headers.
    #[must_use]
    #[inline(always)]
    pub fn new(from: (IpAddr, u16), to: (IpAddr, u16), iface: IfIndex) -> Self {
        Self(Probe {
            local: bits(to.0),
            remote: bits(from.0),
            iface: zone_of(iface),
            local_port: to.1,
            remote_port: from.1,
        })
    }

    /// The sender's address, IPv4 mapped (RFC 4291 section 2.5.5.2), and port.
    #[must_use]
    #[inline]
    pub const fn remote(&self) -> (u128, u16) {
        (self.0.remote, self.0.remote_port)
    }

    /// Whether it is of IPv4.
    #[must_use]
    #[inline]
    pub const fn is_v4(&self) -> bool {
        self.0.families() == V4
    }

    /// Whether the sender's address is valid on its link only.
    #[must_use]
    #[inline]
    pub const fn is_link_scope(&self) -> bool {
        is_link_scope(self.0.remote)
    }

    /// Our port.
    #[must_use]
    #[inline]
    pub const fn local_port(&self) -> u16 {
        self.0.local_port
    }
}

impl<I: Intake> Udp<I> {
    /// As [`Udp::classify_burst`] for one datagram.
    #[must_use]
    pub fn classify(&self, from: SocketAddr, to: SocketAddr, iface: IfIndex) -> Triage {
        let mut class = [Triage::Refusable];
        let one = Whose::new((from.ip(), from.port()), (to.ip(), to.port()), iface);
        self.classify_burst(&[one], &mut class);
        class[0]
    }

    /// For each of up to [`BURST_MAX`] datagrams: a friend where a connected socket waits for
    /// exactly this peer, a stranger where some socket would take it, refusable where none would,
    /// because nobody listens or the socket is full. About 10 ns each while the tables fit the
    /// caches.
    #[inline]
    pub fn classify_burst(&self, asked: &[Whose], classes: &mut [Triage]) {
        let mut found = [NONE; BURST_MAX];
        self.demux.lookup_burst(asked.iter().map(|Whose(probe)| probe), &mut found);
        for ((whose, class), index) in asked.iter().zip(classes).zip(found) {
            *class = self.class_of(whose, index);
        }
    }

    #[inline(always)]
    fn class_of(&self, Whose(probe): &Whose, index: u32) -> Triage {
        if index == NONE {
            // A group may have members on another address.
            let group = is_group(probe.local);
            return if group { Triage::Stranger } else { Triage::Refusable };
        }
        let socket = self.sockets.get(index as usize);
        let body = socket.and_then(|socket| socket.body.as_ref());
        if body.is_none_or(|body| body.intake.is_full()) {
            return Triage::Refusable;
        }
        match self.demux.key(index).kind {
            Kind::Connected => Triage::Friend,
            _ => Triage::Stranger,
        }
    }

    /// Whether some socket is connected: then some peers are friends by a program's own word.
    #[must_use]
    #[inline]
    pub const fn has_connected(&self) -> bool {
        self.demux.connected() > 0
    }
}
