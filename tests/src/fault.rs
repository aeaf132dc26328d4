//! `Fault`: a program that panics on request, by a datagram from the link.
//!
//! Used by the tests of what a worker's panic costs the others. It runs before a shard's other
//! programs, so that their sockets then hold what was not yet read.

use std::net::SocketAddr;

use floodwall_base::{Family, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_udp::{SocketId, SocketSettings};

/// A program that panics when a datagram arrives.
pub struct Fault {
    port: u16,
    socket: Option<SocketId>,
}

impl Fault {
    /// One that listens on `port`, both families.
    #[must_use]
    pub const fn new(port: u16) -> Self {
        Self { port, socket: None }
    }
}

impl Application for Fault {
    fn name(&self) -> &str {
        "fault"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any = SocketAddr::from(([0_u16; 8], self.port));
        self.socket = Some(sockets.udp_bind(any, SocketSettings::new(Family::V6))?);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, _: Units) -> Units {
        let told = self.socket.is_some_and(|socket| sockets.udp_recv(socket, &mut [0; 64]).is_ok());
        assert!(!told, "a datagram that panics the worker");
        Units(0)
    }
}
