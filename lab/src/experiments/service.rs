//! The programs behind the stack's sockets in experiments.
//!
//! Made by `starvation` and `xdp_flood`. [`Answers`] answers its established peers, each on a
//! connected socket: known flows, which triage separates from unverified packets. [`Toil`] takes
//! datagrams from any sender and works on each: what unverified packets cost beyond the stack's own
//! part.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodwall_base::{Family, Units};
use floodwall_stack::{Application, Sockets, StartError};
use floodwall_udp::{SocketId, SocketSettings};

/// The longest datagram that is looked at.
const DATAGRAM_MAX: usize = 1500;

/// Answers established peers on connected sockets.
pub(crate) struct Answers {
    /// Our address and the peer's address of each flow.
    flows: Vec<(SocketAddr, SocketAddr)>,
    sockets: Vec<SocketId>,
    buffer: Box<[u8]>,
}

impl Answers {
    /// One that answers what is sent along these flows: our end, the peer's end.
    pub(crate) fn new(flows: Vec<(SocketAddr, SocketAddr)>) -> Self {
        Self { flows, sockets: Vec::new(), buffer: vec![0; DATAGRAM_MAX].into() }
    }
}

impl Application for Answers {
    fn name(&self) -> &str {
        "answers"
    }

    fn start(&mut self, sockets: &mut Sockets<'_>) -> Result<(), StartError> {
        for (local, established) in &self.flows {
            let family = if local.is_ipv4() { Family::V4 } else { Family::V6 };
            let id = sockets.udp_bind(*local, SocketSettings::new(family))?;
            sockets.udp_connect(id, *established).map_err(|_| StartError::NotOurs(local.ip()))?;
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
                // What cannot leave is dropped with its reason in the stack's accounting.
                let _ = sockets.udp_send(*id, None, answer);
            }
        }
        Units(spent)
    }
}

/// Works for a configured time on each datagram of any sender.
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
