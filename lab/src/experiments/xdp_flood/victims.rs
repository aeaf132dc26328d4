//! The victims of the flood: our worker on a device, the bare loop, a program at the kernel's
//! socket.
//!
//! Run by `trials.rs`, each in a thread of its own on the flooded core. All serve the same port of
//! both families, by answering or by forgetting, and count what reached the program.

#![expect(clippy::disallowed_methods, reason = "this part waits in real time")]

use core::net::SocketAddr;
use core::time::Duration;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use floodwall_base::{IfIndex, Randomness};
use floodwall_device::{Device, DeviceError, DeviceSpec, NapiPolicy, NapiPriority, OpenConfig};
use floodwall_dispatch::{
    Clock, Port, Shown, Stop, Worker, WorkerConfig, WorkerCounter, pin_to_core,
};
use floodwall_packet::{Pool, PoolConfig};
use floodwall_schedule::BalanceConfig;
use floodwall_services::{ServiceKind, UdpService};
use floodwall_stack::{Application, Host, accounts_needed};
use serde::Deserialize;

use super::topology::{self, OURS, PORT};
use crate::baselines::xdp_loop::{self, Does};
use crate::error::LabError;
use crate::experiments::namespace::VETH_FAR;
use crate::experiments::service::Toil;

/// How often a queue is tried that its last owner has just left, and how long after.
const TRIES_MAX: u32 = 200;
const BETWEEN: Duration = Duration::from_millis(5);

/// The victim of a flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Victim {
    /// Our worker on `xdp:`, the kernel's half where it is put by itself: in a thread before the
    /// worker, which sees all that comes and chooses.
    Xdp,
    /// The same, that thread behind the worker: what this has no time for is lost unseen.
    XdpBehind,
    /// The same, the kernel's half run by the worker's own calls.
    XdpBusyPoll,
    /// Our worker on `packet:`.
    Packet,
    /// The bare loop on the device of [`Victim::XdpBehind`], where it does best.
    BareLoop,
    /// A program at a socket of the kernel.
    Kernel,
}

impl Victim {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::XdpBusyPoll => "xdp-busy-poll",
            Self::XdpBehind => "xdp-behind",
            Self::Packet => "packet",
            Self::BareLoop => "bare-loop",
            Self::Kernel => "kernel",
        }
    }

    const fn half(self) -> NapiPolicy {
        match self {
            Self::XdpBusyPoll => NapiPolicy::BusyPoll,
            _ => NapiPolicy::Auto,
        }
    }

    const fn rank(self) -> Option<NapiPriority> {
        match self {
            Self::XdpBehind | Self::BareLoop => Some(NapiPriority::Behind),
            _ => None,
        }
    }
}

/// State shared by its threads and the outside.
pub(super) struct Shared {
    pub(super) stop: Stop,
    /// The victim's thread; 0 before it is ready.
    pub(super) ready: AtomicI32,
    /// Datagrams that reached the program; only where it forgets them, for our worker.
    pub(super) served: Arc<AtomicU64>,
}

/// How a victim is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) victim: Victim,
    pub(super) does: Does,
    /// Whether a program shares its core: then the worker shares it by its balance.
    pub(super) shares: bool,
    pub(super) core: usize,
    pub(super) seed: u64,
}

/// How it ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ended {
    /// Where the kernel's half was, in words.
    pub(super) place: &'static str,
    /// Unverified packets refused by the interface's program, and packets lost in rings.
    pub(super) unknown: u64,
    pub(super) ring_full: u64,
    /// Packets dropped at the gate.
    pub(super) gate: u64,
}

fn wrong(error: impl core::fmt::Display) -> LabError {
    LabError::Scene(error.to_string())
}

impl Run {
    /// Until the stop.
    pub(super) fn until_stopped(self, shared: &Shared) -> Result<Ended, LabError> {
        pin_to_core(self.core).map_err(wrong)?;
        match self.victim {
            Victim::Kernel => self.kernels(shared),
            Victim::BareLoop => self.bare(shared),
            _ => self.ours(shared),
        }
    }

    fn is_ready(shared: &Shared) {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        shared.ready.store(own, Ordering::Release);
    }

    fn kernels(self, shared: &Shared) -> Result<Ended, LabError> {
        let any: SocketAddr = (core::net::Ipv6Addr::UNSPECIFIED, PORT).into();
        let socket = UdpSocket::bind(any).map_err(wrong)?;
        socket.set_read_timeout(Some(Duration::from_millis(20))).map_err(wrong)?;
        let mut buffer = [0; 2048];
        Self::is_ready(shared);
        while !shared.stop.is_triggered() {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            shared.served.fetch_add(1, Ordering::Relaxed);
            if self.does == Does::Answers {
                let _ = socket.send_to(buffer.get(..len).unwrap_or_default(), from);
            }
        }
        Ok(Ended { place: "softirq", ..Ended::default() })
    }

    /// The device, and where the kernel's half is.
    fn open(self) -> Result<(Box<dyn Device>, &'static str), LabError> {
        let word = if self.victim == Victim::Packet { "packet" } else { "xdp" };
        let word: DeviceSpec = format!("{word}:{VETH_FAR}").parse().map_err(wrong)?;
        let config = OpenConfig {
            station: Some(OURS),
            kernel_half: self.victim.half(),
            cores: vec![self.core],
            rank: self.victim.rank(),
            ..OpenConfig::default()
        };
        // The system lets go of the last victim's queue a moment after that has ended.
        let mut tries = 0;
        let mut opened = loop {
            match word.open(&config) {
                Err(DeviceError::Busy { .. }) if tries < TRIES_MAX => {
                    tries += 1;
                    std::thread::sleep(BETWEEN);
                }
                opened => break opened.map_err(wrong)?,
            }
        };
        let device = opened.queues.pop().ok_or_else(|| wrong("a device without queues"))?;
        Ok((device, opened.placement.place))
    }

    fn bare(self, shared: &Shared) -> Result<Ended, LabError> {
        let (mut device, place) = self.open()?;
        let pool = Pool::new(&PoolConfig::default())?;
        Self::is_ready(shared);
        let served = |count| {
            shared.served.fetch_add(count, Ordering::Relaxed);
        };
        let ended = || shared.stop.is_triggered();
        xdp_loop::serve(&mut *device, &pool, (PORT, self.does), ended, served).map_err(wrong)?;
        let stats = device.stats();
        let ring_full = stats.rx_ring_full + stats.rx_no_buffer;
        Ok(Ended { place, ring_full, ..Ended::default() })
    }

    fn ours(self, shared: &Shared) -> Result<Ended, LabError> {
        let (device, place) = self.open()?;
        let clock = Clock::new();
        let config = topology::stack();
        let sizes = PoolConfig { accounts: accounts_needed(&config), ..PoolConfig::default() };
        let pool = Pool::new(&sizes)?;
        let mut random = Randomness::from_number(self.seed);
        let service: Box<dyn Application> = match self.does {
            Does::Answers => Box::new(UdpService::new(ServiceKind::Echo, PORT)),
            Does::Drops => Box::new(Toil::new(PORT, 0, Arc::clone(&shared.served))),
        };
        let now = clock.now();
        let mut host = Host::new(&config, vec![service], &pool, &mut random, now).map_err(wrong)?;
        for (addr, mac) in topology::neighbours() {
            host.stack_mut().add_neighbor(IfIndex(1), addr, mac, now).map_err(wrong)?;
        }
        let balance = self.shares.then(BalanceConfig::default);
        let config = WorkerConfig { balance, ..WorkerConfig::default() };
        let ports = vec![Port::new(IfIndex(1), device)];
        let mut worker =
            Worker::new(Shown::silent(host), pool, random, ports, config).map_err(wrong)?;
        Self::is_ready(shared);
        let ended = worker.run(&shared.stop).map_err(wrong)?;
        let facts = &ended.facts;
        let gate = facts.of(WorkerCounter::DropsTriageUnknown)
            + facts.of(WorkerCounter::DropsTriageRejectable);
        let stats = ended.ports.first().map(|port| port.stats).unwrap_or_default();
        let ring_full = stats.rx_ring_full + stats.rx_no_buffer;
        Ok(Ended { place, unknown: stats.rx_unverified, ring_full, gate })
    }
}
