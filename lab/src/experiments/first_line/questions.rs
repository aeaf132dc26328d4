//! Questions in datagrams: which part of them is answered in time.
//!
//! Asked by `trials.rs` of a flooded host, and by `router.rs` through a router, on the core of the
//! clients; answered there by the victim, or by [`answer`] on a socket of the kernel's.

#![expect(clippy::disallowed_methods, reason = "this part measures real time in real threads")]

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::net::UdpSocket;
use std::thread;

use floodwall_base::Instant;
use floodwall_dispatch::Clock;

use super::clients::Called;
use super::trials::wrong;
use crate::error::LabError;

/// Sockets of the clients; each asks at each port in turn.
const SOCKETS: usize = 50;
/// Questions a second.
const ASKED_RATE: u64 = 1000;
/// How long nothing is asked or read.
const PAUSE: Duration = Duration::from_micros(500);
/// Datagrams that a server answers before it looks after something else.
const ANSWERED_MAX: usize = 256;

/// When a question was asked, and after which time it was answered.
type Asked = (Instant, Option<Duration>);

/// Sockets of the clients, and the host that they ask.
pub(super) struct Questions {
    sockets: Vec<UdpSocket>,
    host: IpAddr,
    ports: Vec<u16>,
}

impl Questions {
    /// Clients at the address `own`, which ask `host` at each of these ports.
    pub(super) fn new(own: IpAddr, host: IpAddr, ports: Vec<u16>) -> Result<Self, LabError> {
        let sockets = (0..SOCKETS).map(|_| bind(SocketAddr::new(own, 0)));
        Ok(Self { sockets: sockets.collect::<Result<_, _>>()?, host, ports })
    }

    /// Asks for so long; which questions were answered in time.
    pub(super) fn ask(&self, length: Duration, patience: Duration) -> Called {
        let count = length.as_millis() as u64 * ASKED_RATE / 1000;
        let clock = Clock::new();
        let (begun, mut asked) = (clock.now(), Vec::with_capacity(count as usize));
        while clock.now() < begun + length + patience {
            let passed = (clock.now() - begun).as_nanos() as u64;
            let due = (passed * ASKED_RATE / 1_000_000_000 + 1).min(count);
            while (asked.len() as u64) < due {
                let number = asked.len();
                asked.push((clock.now(), None));
                self.send(number);
            }
            self.read(&mut asked, patience, &clock);
            thread::sleep(PAUSE);
        }
        Called(asked)
    }

    fn send(&self, number: usize) {
        let socket = self.sockets.get(number % SOCKETS);
        let port = self.ports.get(number / SOCKETS % self.ports.len().max(1));
        if let Some((socket, port)) = socket.zip(port) {
            // What does not leave is not answered.
            let _ = socket.send_to(&(number as u64).to_be_bytes(), (self.host, *port));
        }
    }

    fn read(&self, asked: &mut [Asked], patience: Duration, clock: &Clock) {
        for socket in &self.sockets {
            let mut room = [0; 8];
            while socket.recv(&mut room).is_ok_and(|len| len == room.len()) {
                let number = u64::from_be_bytes(room) as usize;
                if let Some((at, answered)) = asked.get_mut(number) {
                    let time = clock.now() - *at;
                    *answered = answered.or((time < patience).then_some(time));
                }
            }
        }
    }
}

/// A socket of the kernel's at this address, which does not wait.
pub(super) fn bind(at: SocketAddr) -> Result<UdpSocket, LabError> {
    let socket = UdpSocket::bind(at).map_err(wrong)?;
    socket.set_nonblocking(true).map_err(wrong)?;
    Ok(socket)
}

/// Sends back what has come to a server's socket.
pub(super) fn answer(socket: &UdpSocket) {
    let mut room = [0; 64];
    for _ in 0..ANSWERED_MAX {
        let Ok((len, from)) = socket.recv_from(&mut room) else { return };
        let _ = socket.send_to(room.get(..len).unwrap_or_default(), from);
    }
}
