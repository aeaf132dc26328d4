//! `ServiceListener`: a listener and the service order of its connections, for services on the
//! stack's own core: the web server and the classic services over TCP.
//!
//! Invariant: new connections are served before those that have further events.
//!
//! # Under flood
//! A peer may connect and send nothing, or hardly anything, without end. Where no more than an
//! eighth of the places for connections is left, each newcomer resets the one of [`LOOKS`]
//! connections of this service that was idle for longest. Worst work for a newcomer: a look at each
//! of these. Honest traffic loses idle connections meanwhile. Counter: `TcpEstabResets`.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::{Instant, limits};
use floodwall_tcp::{ConnectionId, ListenerId, TcpSettings};

use crate::sockets::{Sockets, StartError};

/// A listening service's connections: new ones and those with events.
#[derive(Debug, Default)]
pub(crate) struct ServiceListener {
    open: Option<(ListenerId, u32)>,
    /// The last poll returned a connection, so there may be more.
    more: bool,
    /// Position at which the next search for an idle connection begins.
    hand: u32,
}

/// Connections examined to find an idle one.
const LOOKS: usize = 32;

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
        let owner = sockets.tcp_owner()?;
        let listener = sockets.tcp_listen(any, settings, limits::TCP_BACKLOG_MAX, owner)?;
        self.open = Some((listener, owner));
        Ok(())
    }

    /// The next connection that can be served; `None` where there is none.
    pub(crate) fn next(&mut self, sockets: &mut Sockets<'_>) -> Option<ConnectionId> {
        let (listener, owner) = self.open?;
        let next = match sockets.tcp_accept(listener) {
            Ok(Some(id)) => {
                self.make_room(sockets, owner);
                Some(id)
            }
            _ => sockets.tcp_event(owner).map(|(id, _)| id),
        };
        self.more = next.is_some();
        next
    }

    /// Resets an idle connection where few places are left.
    #[inline]
    fn make_room(&mut self, sockets: &mut Sockets<'_>, owner: u32) {
        if let Some(silent) = sockets.tcp_dispensable(owner, self.hand, LOOKS) {
            self.hand = self.hand.wrapping_add(LOOKS as u32);
            let _ = sockets.tcp_abort(silent);
        }
    }

    /// Immediately, where the last slice used up its budget.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.more.then_some(Instant::ORIGIN)
    }
}
