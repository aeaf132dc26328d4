//! The classic services over TCP, for trying a stack out: echo and discard (RFC 862, 863).
//!
//! An application on the stack's own core. It keeps no bytes of its own: what cannot be sent yet
//! stays unread, so that a peer that does not read is not read either. Connections get turns
//! (`ready_queue.rs`).

use core::mem::take;
use core::time::Duration;

use floodwall_base::{Instant, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_tcp::{ConnectionId, Keepalive, RecvError, SendError, TcpSettings};

use crate::ServiceKind;
use crate::ready_queue::{ServedTurn, copied};
use crate::service_listener::ServiceListener;

/// Bytes that one connection is served at a time.
const PIECE_BYTES: usize = 16_384;

/// A TCP service on one port, both families.
pub struct TcpService {
    kind: ServiceKind,
    port: u16,
    name: String,
    listener: ServiceListener,
    settings: TcpSettings,
    buffer: Box<[u8]>,
}

impl TcpService {
    /// A service that will listen on `port`. Of the kinds, [`ServiceKind::Chargen`] behaves as
    /// echo: an endless stream would flood a client that does not read it.
    #[must_use]
    pub fn new(kind: ServiceKind, port: u16) -> Self {
        let word = if kind == ServiceKind::Discard { "tcp-discard" } else { "tcp-echo" };
        let name = format!("{word}:{port}");
        let listener = ServiceListener::default();
        let settings = TcpSettings { ecn: true, ..TcpSettings::default() };
        Self { kind, port, name, listener, settings, buffer: vec![0; PIECE_BYTES].into() }
    }

    /// The same with connections that are evicted once they have been idle for so long, or never
    /// (see [`TcpSettings::evict_idle_after`]).
    #[must_use]
    pub fn evict_idle_after(mut self, idle: Option<Duration>) -> Self {
        self.settings.evict_idle_after = idle;
        self
    }

    /// The same with connections that are probed once they have been silent for so long, and end
    /// where nothing answers (see [`TcpSettings::keepalive`]).
    #[must_use]
    pub const fn keepalive(mut self, keepalive: Option<Keepalive>) -> Self {
        self.settings.keepalive = keepalive;
        self
    }

    /// Serves a connection within its quantum.
    fn serve(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId, quantum: u32) -> ServedTurn {
        let mut spent = 0;
        while spent < quantum {
            let (units, more) = self.serve_piece(sockets, id);
            spent += units;
            if !more {
                return ServedTurn { spent, more };
            }
        }
        ServedTurn { spent, more: true }
    }

    /// Serves a connection once; the units that it cost, and whether more may follow at once.
    fn serve_piece(&mut self, sockets: &mut Sockets<'_>, id: ConnectionId) -> (u32, bool) {
        let n = match sockets.tcp_peek(id, &mut self.buffer) {
            Ok(n @ 1..) => n,
            // Everything was answered.
            Err(RecvError::WouldBlock) if !sockets.is_draining() => return (1, false),
            _ => {
                let _ = sockets.tcp_close(id);
                return (1, false);
            }
        };
        let units = 1 + copied(n);
        let taken = match self.kind {
            ServiceKind::Discard => n,
            _ => match sockets.tcp_send(id, self.buffer.get(..n).unwrap_or_default()) {
                Ok(taken) => taken,
                Err(SendError::WouldBlock) => return (units, false),
                Err(_) => {
                    let _ = sockets.tcp_abort(id);
                    return (units, false);
                }
            },
        };
        if let Some(out) = self.buffer.get_mut(..taken) {
            let _ = sockets.tcp_recv(id, out);
        }
        (units, true)
    }
}

impl Application for TcpService {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        self.listener.open(sockets, self.port, &self.settings)
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let mut listener = take(&mut self.listener);
        let spent =
            listener.run(sockets, budget, |sockets, id, quantum| self.serve(sockets, id, quantum));
        self.listener = listener;
        spent
    }

    fn deadline(&self) -> Option<Instant> {
        self.listener.deadline()
    }

    fn stop(&mut self, sockets: &mut Sockets<'_>) -> bool {
        self.listener.shut(sockets);
        true
    }
}
