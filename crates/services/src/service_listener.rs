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

use floodwall_base::{Instant, limits};
use floodwall_stack::{Sockets, StartError};
use floodwall_tcp::{ConnectionId, ListenerId, TcpSettings};

/// A listening service's connections: new ones and those with events.
#[derive(Debug, Default)]
pub(crate) struct ServiceListener {
    open: Option<(ListenerId, u32)>,
    /// The last poll returned a connection, so there may be more.
    more: bool,
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
    pub(crate) fn next(&mut self, sockets: &mut Sockets<'_>) -> Option<ConnectionId> {
        let (listener, owner) = self.open?;
        let next = match sockets.tcp_accept(listener) {
            Ok(Some(id)) => Some(id),
            _ => sockets.tcp_event(owner).map(|(id, _)| id),
        };
        self.more = next.is_some();
        next
    }

    /// Immediately, where the last slice used up its budget.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.more.then_some(Instant::ORIGIN)
    }
}
