//! `SlowAcceptor`: a service on the host that accepts connections more slowly than they come.
//!
//! Run by `server.rs` beside the echo service. A client that fills its queue shows the effect of a
//! full one: further handshakes wait as records of the SYN cache, and no other connection is
//! affected.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use floodwall_base::{Instant, Units};
use floodwall_stack::tcp_set::{ListenerId, TcpSettings};
use floodwall_stack::{Application, Sockets, StartError};

use crate::topology;

/// Connections that may wait for it.
const ACCEPTOR_BACKLOG: usize = 16;
/// How long it takes for each.
const TIME_PER_ACCEPT: Duration = Duration::from_millis(20);

/// A service with a slow accept loop.
#[derive(Default)]
pub(crate) struct SlowAcceptor {
    listener: Option<ListenerId>,
    next: Instant,
}

impl Application for SlowAcceptor {
    fn name(&self) -> &str {
        "tcp-sluggard"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), topology::SLOW_PORT);
        let owner = sockets.tcp_owner()?;
        self.listener =
            Some(sockets.tcp_listen(any, &TcpSettings::default(), ACCEPTOR_BACKLOG, owner)?);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let (Some(listener), now) = (self.listener, sockets.now()) else { return Units(0) };
        if now < self.next {
            return Units(0);
        }
        self.next = now + TIME_PER_ACCEPT;
        if let Ok(Some(id)) = sockets.tcp_accept(listener) {
            let _ = sockets.tcp_abort(id);
        }
        Units(1)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.next)
    }
}
