//! An interface that the kernel and we share by AF_XDP, at one end of a virtual cable; at the other
//! end a host in a namespace of its own.
//!
//! The kernel keeps its own station on the interface, with addresses and a service of its own, as
//! an operator's ssh would be; ours is another one. No card's settings are changed: the host's
//! checksums are as unfinished as the kernel leaves them. Invariant: every frame for our station
//! that the program at the interface saw is at the worker or counted as lost ([`Counted`]).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodwall_base::Instant;
use floodwall_device::{
    AfXdp, AfXdpConfig, Device, DeviceError, DeviceInfo, DeviceStats, OpenedXdp, XdpMode,
};
use floodwall_packet::{Burst, PacketBuf, PacketList, Pool};
use floodwall_stack::{Application, StackConfig};
use std::os::fd::BorrowedFd;

use crate::command::ip;
use crate::link::{self, Kind, MAC, MTU, OTHER_END};
use crate::namespace::{available, set};
use crate::running::Running;
use crate::site::{ETH, Host};

/// The kernel's own addresses on the interface.
pub(crate) const KEPT: [&str; 2] = ["10.77.0.3", "fd77::3"];

/// Frames for us that arrived at an interface, by kind.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// For our station alone, seen by the program on all queues.
    pub(crate) steered: AtomicU64,
    /// For groups and everybody, taken out of their ring.
    pub(crate) groups: AtomicU64,
}

/// A queue of the interface; its frames are counted beside its own counts.
#[derive(Debug)]
struct Counted {
    queue: AfXdp,
    tally: Arc<Tally>,
}

impl Device for Counted {
    fn info(&self) -> &DeviceInfo {
        self.queue.info()
    }

    fn receive(&mut self, pool: &Pool, burst: &mut Burst) -> Result<usize, DeviceError> {
        let before = burst.len();
        let result = self.queue.receive(pool, burst);
        let is_group = |packet: &&PacketBuf| packet.first().first().is_some_and(|b| b & 1 == 1);
        let groups = burst.iter().skip(before).filter(is_group).count();
        self.tally.groups.fetch_add(groups as u64, Ordering::Relaxed);
        result
    }

    fn transmit(&mut self, packets: &mut PacketList) -> Result<usize, DeviceError> {
        self.queue.transmit(packets)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.queue.readiness()
    }

    fn pending(&self) -> bool {
        self.queue.pending()
    }

    fn rest(&mut self) {
        self.queue.rest();
    }

    fn admit(&mut self, now: Instant, credit: Option<usize>) {
        self.queue.admit(now, credit);
    }

    fn has_overflowed(&mut self) -> bool {
        self.queue.has_overflowed()
    }

    fn mark_established(&mut self, now: Instant, established: &PacketBuf) {
        self.queue.mark_established(now, established);
    }

    fn ring(&self) -> usize {
        self.queue.ring()
    }

    fn stats(&self) -> DeviceStats {
        // The program's count is of all queues.
        if let Ok((ours, _)) = self.queue.steered() {
            self.tally.steered.store(ours, Ordering::Relaxed);
        }
        self.queue.stats()
    }
}

/// An interface shared with the kernel by AF_XDP, and the host at the other end of its veth pair.
pub(crate) struct SharedInterface {
    pub(crate) host: Host,
    pub(crate) running: Running,
    /// What was said when it was opened.
    pub(crate) notes: Vec<String>,
    tally: Arc<Tally>,
}

impl SharedInterface {
    /// Lays the cable in the calling thread's namespace, and starts us on it with so many queues;
    /// `None`, and said so, where this machine cannot.
    pub(crate) fn set_up(
        mode: XdpMode,
        queues: usize,
        applications: Vec<Box<dyn Application>>,
    ) -> Option<Self> {
        let host = lay(queues);
        let config = AfXdpConfig { mode, ..AfXdpConfig::new(MAC) };
        let OpenedXdp { queues, notes } = available(AfXdp::open(OTHER_END, &config))?;
        let tally = Arc::new(Tally::default());
        let counted =
            |queue| Box::new(Counted { queue, tally: Arc::clone(&tally) }) as Box<dyn Device>;
        let config = StackConfig {
            interfaces: vec![link::interface(Kind::Xdp, MTU)],
            udp_sockets_max: 64,
            tcp_connections_max: 4096,
            ..StackConfig::default()
        };
        let queues = queues.into_iter().map(counted).collect();
        let running = Running::start_on(config, queues, applications);
        running.wait_for_addresses();
        Some(Self { host, running, notes, tally })
    }

    /// What each queue has carried and lost, and whether that is all that came for our station.
    /// Only while nothing is on its way.
    pub(crate) fn settle(&self) -> (Vec<DeviceStats>, Settled) {
        let stats = |ports: &[floodwall_dispatch::PortReport]| {
            ports.iter().map(|port| port.stats).collect::<Vec<_>>()
        };
        let queues = self.running.ask(move |desk| stats(&desk.ports()));
        let groups = self.tally.groups.load(Ordering::Relaxed);
        let taken = queues.iter().map(|queue| queue.rx_packets).sum::<u64>();
        let settled = Settled {
            seen: self.tally.steered.load(Ordering::Relaxed),
            taken: taken - groups,
            lost: queues.iter().map(DeviceStats::rx_lost).sum(),
        };
        (queues, settled)
    }
}

/// Frames for our station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settled {
    /// Seen by the program at the interface.
    pub(crate) seen: u64,
    /// That the worker has got.
    pub(crate) taken: u64,
    /// That the device counts as lost.
    pub(crate) lost: u64,
}

impl Settled {
    pub(crate) fn is_exact(self) -> bool {
        self.seen == self.taken + self.lost
    }
}

/// The cable with so many queues at each end, and the host behind it.
fn lay(queues: usize) -> Host {
    let host = Host::alone();
    let each = format!("mtu {MTU} numrxqueues {queues} numtxqueues {queues}");
    assert!(ip(&format!("link add {OTHER_END} {each} type veth peer name far {each}")));
    host.take("far", MTU);
    // What goes down shall keep its addresses.
    set(&format!("net/ipv6/conf/{OTHER_END}/keep_addr_on_down"), "1");
    assert!(ip(&format!("link set {OTHER_END} up")));
    for addr in KEPT {
        give(addr, OTHER_END);
    }
    host.inside(|| {
        set(&format!("net/ipv6/conf/{ETH}/keep_addr_on_down"), "1");
        link::ends().iter().for_each(|ends| give(&ends.kernel.to_string(), ETH));
    });
    host
}

fn give(addr: &str, name: &str) {
    match addr.parse() {
        Ok(IpAddr::V4(_)) => assert!(ip(&format!("addr add {addr}/24 dev {name}"))),
        _ => assert!(link::give_v6(&format!("{addr}/64"), name)),
    }
}
