//! The classic services over TCP, for trying a stack out: echo and discard (RFC 862, 863).
//!
//! An application on the stack's own core. It keeps no bytes of its own: what cannot be sent yet
//! stays unread, so that a peer that does not read is not read either.

use floodwall_base::{Instant, Units};
use floodwall_tcp::{ConnectionId, RecvError, SendError, TcpSettings};

use crate::host::Application;
use crate::service_listener::ServiceListener;
use crate::services::ServiceKind;
use crate::sockets::{Sockets, StartError};

/// Bytes that one connection is served at a time.
const PIECE: usize = 16_384;

/// A TCP service on one port, both families.
pub struct TcpService {
    kind: ServiceKind,
    port: u16,
    name: String,
    door: ServiceListener,
    buffer: Box<[u8]>,
}

impl TcpService {
    /// A service that will listen on `port`. Of the kinds, [`ServiceKind::Chargen`] behaves as
    /// echo: an endless stream would flood a client that does not read it.
    #[must_use]
    pub fn new(kind: ServiceKind, port: u16) -> Self {
        let word = if kind == ServiceKind::Discard { "tcp-discard" } else { "tcp-echo" };
        let name = format!("{word}:{port}");
        Self { kind, port, name, door: ServiceListener::default(), buffer: vec![0; PIECE].into() }
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
        let settings = TcpSettings { ecn: true, ..TcpSettings::default() };
        self.door.open(sockets, self.port, &settings)
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let mut spent = 0;
        while spent < budget.0
            && let Some(id) = self.door.next(sockets)
        {
            self.serve(sockets, id);
            spent += 1;
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<Instant> {
        self.door.deadline()
    }

    fn stop(&mut self, sockets: &mut Sockets<'_>) -> bool {
        self.door.shut(sockets);
        true
    }
}
