//! A listener and the order in which its connections are served, for services on the stack's own
//! core: the web server and the classic services over TCP.
//!
//! Invariant: what is new goes before what has something again.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::{Instant, limits};
use floodwall_tcp::{ConnectionId, ListenerId, Settings};

use crate::sockets::{Sockets, StartError};

/// A listening service's connections, new ones and those with events.
#[derive(Debug, Default)]
pub(crate) struct Door {
    open: Option<(ListenerId, u32)>,
    /// The last one asked for was there, and so may be more.
    more: bool,
}

impl Door {
    /// Listens on a port, both families.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn open(
        &mut self,
        sockets: &mut Sockets<'_>,
        port: u16,
        settings: &Settings,
    ) -> Result<(), StartError> {
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let owner = sockets.tcp_owner()?;
        let listener = sockets.tcp_listen(any, settings, limits::TCP_BACKLOG_MAX, owner)?;
        self.open = Some((listener, owner));
        Ok(())
    }

    /// The next connection that can be served, `None` where there is none.
    pub(crate) fn next(&mut self, sockets: &mut Sockets<'_>) -> Option<ConnectionId> {
        let (listener, owner) = self.open?;
        let next = match sockets.tcp_accept(listener) {
            Ok(Some(id)) => Some(id),
            _ => sockets.tcp_event(owner).map(|(id, _)| id),
        };
        self.more = next.is_some();
        next
    }

    /// At once, where a slice ended with its budget.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.more.then_some(Instant::ORIGIN)
    }
}
