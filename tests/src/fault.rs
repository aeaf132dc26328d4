//! `Fault`: a program that panics when it is told to, by a datagram from the link.
//!
//! Used by the tests of what a worker's panic costs the others. It runs before a shard's other
//! programs, whose sockets then hold what they had not been asked for yet.

use std::net::SocketAddr;

use floodwall_base::{Family, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_udp::{SocketId, SocketSettings};

/// See the file's head.
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
        assert!(!told, "a datagram that nobody foresaw");
        Units(0)
    }
}
