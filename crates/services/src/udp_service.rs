//! `UdpService`: echo, discard and chargen over UDP (RFC 862, 863, 864).
//!
//! None answers a well-known port, so that two of them never talk to each other for ever
//! (CVE-1999-0103, CVE-2024-2169), and none sends more than it received, so that none amplifies.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use floodwall_base::{Family, IfIndex, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_udp::{RecvError, SocketId, SocketSettings};

use crate::ServiceKind;

/// Ports below this are services', never clients'.
const CLIENT_PORT_MIN: u16 = 1024;
/// The largest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// A UDP service on one port, both families.
pub struct UdpService {
    kind: ServiceKind,
    port: u16,
    name: String,
    groups: Vec<IpAddr>,
    socket: Option<SocketId>,
    buffer: Box<[u8]>,
    more: bool,
    /// Datagrams served.
    served: u64,
}

impl UdpService {
    /// A service that will listen on `port`.
    #[must_use]
    pub fn new(kind: ServiceKind, port: u16) -> Self {
        let word = match kind {
            ServiceKind::Echo => "udp-echo",
            ServiceKind::Discard => "udp-discard",
            ServiceKind::Chargen => "udp-chargen",
        };
        Self {
            kind,
            port,
            name: format!("{word}:{port}"),
            groups: Vec::new(),
            socket: None,
            buffer: vec![0; DATAGRAM_MAX].into(),
            more: false,
            served: 0,
        }
    }

    /// The same, also for what is sent to these groups, on every interface but the loopback.
    #[must_use]
    pub fn in_groups(mut self, groups: &[IpAddr]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    fn join(&self, sockets: &mut Sockets<'_>, socket: SocketId) -> Result<(), StartError> {
        for group in &self.groups {
            for iface in (1..sockets.interfaces().len() as u16).map(IfIndex) {
                sockets.udp_join(socket, *group, iface)?;
            }
        }
        Ok(())
    }

    /// Datagrams served so far.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Serves one datagram; false where none waits.
    fn serve(&mut self, sockets: &mut Sockets<'_>, socket: SocketId) -> bool {
        let received = match sockets.udp_recv(socket, &mut self.buffer) {
            Ok(received) => received,
            Err(RecvError::WouldBlock) => return false,
            // An ICMP error about an answer: the asker has gone.
            Err(_) => return true,
        };
        self.served += 1;
        if self.kind == ServiceKind::Discard || received.from.port() < CLIENT_PORT_MIN {
            return true;
        }
        let Some(answer) = self.buffer.get_mut(..received.len) else { return true };
        if self.kind == ServiceKind::Chargen {
            for (i, byte) in answer.iter_mut().enumerate() {
                *byte = b' ' + (i % 95) as u8;
            }
        }
        // Either it is dropped with a reason in the stack's accounting, or the send buffer is full:
        // in both cases the peer retries.
        let _ = sockets.udp_reply(socket, &received, answer);
        true
    }
}

impl Application for UdpService {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.port);
        let socket = sockets.udp_bind(any, SocketSettings::new(Family::V6))?;
        self.socket = Some(socket);
        self.join(sockets, socket)
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let Some(socket) = self.socket else { return Units(0) };
        let mut spent = 0;
        self.more = true;
        while spent < budget.0 {
            if !self.serve(sockets, socket) {
                self.more = false;
                break;
            }
            spent += 1;
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<floodwall_base::Instant> {
        self.more.then_some(floodwall_base::Instant::ORIGIN)
    }

    fn stop(&mut self, sockets: &mut Sockets<'_>) -> bool {
        if let Some(socket) = self.socket.take() {
            sockets.udp_close(socket);
        }
        self.more = false;
        false
    }
}
