//! `ServiceListener`: a listener and the service order of its connections, for services on the
//! stack's own core: the web server and the classic services over TCP.
//!
//! Invariant: new connections are served before those that have further events.
//!
//! # Under flood
//! A peer may connect and send nothing, or hardly anything, without end. Where places for
//! connections run out, those of the source prefix that holds most are reset
//! (`tcp/src/table/room.rs`); a service releases them as it does all that have ended.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::{Instant, Units, limits};
use floodwall_stack::{Sockets, StartError};
use floodwall_tcp::{ConnectionId, ListenerId, TcpSettings};

use crate::ready_queue::{QUANTUM_UNITS, ReadyQueue, ServedTurn};

/// Units for taking an event, with a look at its connection.
const EVENT_UNITS: u32 = 1;

/// A listening service's connections: new ones and those with events.
#[derive(Debug, Default)]
pub(crate) struct ServiceListener {
    open: Option<(ListenerId, u32)>,
    /// The last poll returned a connection, so there may be more.
    more: bool,
    ready: ReadyQueue,
}

impl ServiceListener {
    /// Listens on a port, both families.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn open(
        &mut self,
        sockets: &mut Sockets<'_>,
        port: u16,
        settings: &TcpSettings,
    ) -> Result<(), StartError> {
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        // One that was shut is opened again with the number of its connections.
        let owner = match self.open {
            Some((_, owner)) => owner,
            None => sockets.tcp_owner()?,
        };
        let listener = sockets.tcp_listen(any, settings, limits::TCP_BACKLOG_MAX, owner)?;
        self.open = Some((listener, owner));
        self.ready.prepare(sockets.tcp_places_max());
        Ok(())
    }

    /// Listens no more; connections that were accepted go on.
    pub(crate) fn shut(&mut self, sockets: &mut Sockets<'_>) {
        if let Some((listener, _)) = self.open {
            // An error means that it was shut before.
            let _ = sockets.tcp_unlisten(listener);
        }
    }

    /// The next connection that can be served; `None` where there is none.
    fn next(&mut self, sockets: &mut Sockets<'_>) -> Option<ConnectionId> {
        let (listener, owner) = self.open?;
        let next = match sockets.tcp_accept(listener) {
            Ok(Some(id)) => Some(id),
            _ => sockets.tcp_event(owner).map(|(id, _)| id),
        };
        self.more = next.is_some();
        next
    }

    /// Serves ready connections in their order until `budget` is spent or none is left. `serve` may
    /// spend the quantum that it is given, and not much more. Returns the units spent.
    pub(crate) fn run(
        &mut self,
        sockets: &mut Sockets<'_>,
        budget: Units,
        mut serve: impl FnMut(&mut Sockets<'_>, ConnectionId, u32) -> ServedTurn,
    ) -> Units {
        let mut spent = 0;
        while spent < budget.0 {
            // One that has become ready waits behind those that were ready before.
            if let Some(id) = self.next(sockets) {
                spent += EVENT_UNITS;
                self.ready.push(id);
            }
            let Some(id) = self.ready.pop() else { break };
            let turn = serve(sockets, id, QUANTUM_UNITS);
            spent += turn.spent;
            if turn.more {
                self.ready.push(id);
            }
        }
        Units(spent)
    }

    /// Immediately, where the last slice used up its budget or a connection is ready.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (self.more || !self.ready.is_empty()).then_some(Instant::ORIGIN)
    }
}
