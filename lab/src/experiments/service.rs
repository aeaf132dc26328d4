//! The programs that live behind the stack's sockets in experiments.
//!
//! Made by `starvation` and `xdp_flood`. [`Answers`] answers its friends, each on a socket that
//! is connected to it: known flows, which triage tells from strangers. [`Toil`] takes whatever
//! anybody sends and works on each datagram: what strangers cost, beyond the stack's own part.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodwall_base::{Family, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_udp::{SocketId, SocketSettings};

/// The longest datagram that is looked at.
const DATAGRAM_MAX: usize = 1500;

/// See the file's head.
pub(crate) struct Answers {
    /// Where each friend asks, and from where.
    flows: Vec<(SocketAddr, SocketAddr)>,
    sockets: Vec<SocketId>,
    buffer: Box<[u8]>,
}

impl Answers {
    /// One that answers what is sent along these flows: our end, the friend's end.
    pub(crate) fn new(flows: Vec<(SocketAddr, SocketAddr)>) -> Self {
        Self { flows, sockets: Vec::new(), buffer: vec![0; DATAGRAM_MAX].into() }
    }
}

impl Application for Answers {
    fn name(&self) -> &str {
        "answers"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        for (local, friend) in &self.flows {
            let family = if local.is_ipv4() { Family::V4 } else { Family::V6 };
            let id = sockets.udp_bind(*local, SocketSettings::new(family))?;
            sockets.udp_connect(id, *friend).map_err(|_| StartError::NotOurs(local.ip()))?;
            self.sockets.push(id);
        }
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let mut spent = 0;
        for id in &self.sockets {
            while spent < budget.0 {
                let Ok(question) = sockets.udp_recv(*id, &mut self.buffer) else { break };
                spent += 1;
                let answer = self.buffer.get(..question.len).unwrap_or_default();
                // What cannot leave dies under its name in the stack's ledger.
                let _ = sockets.udp_send(*id, None, answer);
            }
        }
        Units(spent)
    }
}

/// See the file's head.
pub(crate) struct Toil {
    port: u16,
    /// Units of work for each datagram.
    units: u32,
    socket: Option<SocketId>,
    buffer: Box<[u8]>,
    more: bool,
    served: Arc<AtomicU64>,
}

impl Toil {
    /// A program at `port` that spends `units` of work on each datagram, and counts them.
    pub(crate) fn new(port: u16, units: u32, served: Arc<AtomicU64>) -> Self {
        let buffer = vec![0; DATAGRAM_MAX].into();
        Self { port, units, socket: None, buffer, more: false, served }
    }
}

impl Application for Toil {
    fn name(&self) -> &str {
        "toil"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        let any = SocketAddr::new(core::net::Ipv6Addr::UNSPECIFIED.into(), self.port);
        self.socket = Some(sockets.udp_bind(any, SocketSettings::new(Family::V6))?);
        Ok(())
    }

    fn run(&mut self, sockets: &mut Sockets<'_>, budget: Units) -> Units {
        let Some(id) = self.socket else { return Units(0) };
        let mut spent = 0;
        self.more = true;
        while spent < budget.0 {
            if sockets.udp_recv(id, &mut self.buffer).is_err() {
                self.more = false;
                break;
            }
            spent += 1 + self.units;
            self.served.fetch_add(1, Ordering::Relaxed);
        }
        Units(spent)
    }

    fn deadline(&self) -> Option<floodwall_base::Instant> {
        self.more.then_some(floodwall_base::Instant::ORIGIN)
    }
}
