//! The classic services over TCP, for trying a stack out: echo and discard (RFC 862, 863).
//!
//! An application on the stack's own core. It keeps no bytes of its own: what cannot be sent yet
//! stays unread, so that a peer that does not read is not read either.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::{Instant, Units, limits};
use floodwall_tcp::{ConnectionId, ListenerId, RecvError, SendError, Settings};

use crate::host::Application;
use crate::services::ServiceKind;
use crate::sockets::{Sockets, StartError};

/// Bytes that one connection is served at a time.
const PIECE: usize = 16_384;

/// A TCP service on one port, both families.
pub struct TcpService {
    kind: ServiceKind,
    port: u16,
    name: String,
    open: Option<(ListenerId, u32)>,
    buffer: Box<[u8]>,
    more: bool,
}

impl TcpService {
    /// A service that will listen on `port`. Of the kinds, [`ServiceKind::Chargen`] behaves as
    /// echo: a stream without end would be for whoever reads it not.
    #[must_use]
    pub fn new(kind: ServiceKind, port: u16) -> Self {
        let word = if kind == ServiceKind::Discard { "tcp-discard" } else { "tcp-echo" };
        let name = format!("{word}:{port}");
        Self { kind, port, name, open: None, buffer: vec![0; PIECE].into(), more: false }
    }

    /// Serves a connection as far as it goes now.
    fn serve(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId) {
        loop {
            match sockets.tcp_peek(id, &mut self.buffer) {
                Ok(0) => {
                    let _ = sockets.tcp_close(id);
                    return;
                }
                Ok(n) => {
                    let taken = match self.kind {
                        ServiceKind::Discard => n,
                        _ => {
                            let Some(bytes) = self.buffer.get(..n) else { return };
                            match sockets.tcp_send(id, bytes) {
                                Ok(taken) => taken,
                                Err(SendError::WouldBlock) => return,
                                Err(_) => {
                                    let _ = sockets.tcp_abort(id);
                                    return;
                                }
                            }
                        }
                    };
                    let Some(out) = self.buffer.get_mut(..taken) else { return };
                    let _ = sockets.tcp_recv(id, out);
                }
                Err(RecvError::WouldBlock) => return,
                Err(_) => {
                    let _ = sockets.tcp_close(id);
                    return;
                }
            }
        }
    }
}

impl Application for TcpService {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.port);
        let owner = sockets.tcp_owner()?;
        let settings = Settings::default();
        let listener = sockets.tcp_listen(any, &settings, limits::TCP_BACKLOG_MAX, owner)?;
        self.open = Some((listener, owner));
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let Some((listener, owner)) = self.open else { return Units(0) };
        let mut spent = 0;
        self.more = true;
        while spent < budget.0 {
            let next = match sockets.tcp_accept(listener) {
                Ok(Some(id)) => Some(id),
                _ => sockets.tcp_event(owner).map(|(id, _)| id),
            };
            let Some(id) = next else {
                self.more = false;
                break;
            };
            self.serve(sockets, id);
            spent += 1;
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        self.more.then_some(Instant::ORIGIN)
    }
}
