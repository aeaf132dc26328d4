//! Where a behaviour is tried: the kernel's loopback, or hosts of ours.
//!
//! A place has two ends, *here* and *there*, each with an address of the family that is tried. At
//! the kernel, and on our own loopback, both are the same host.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use floodwall_base::MacAddr;
use floodwall_device::{MemoryWire, pair};
use floodwall_dispatch::WorkerConfig;
use floodwall_packet::PoolConfig;
use floodwall_tokio_sockets::{Network, UdpSocket};

use crate::namespace;
use crate::parity::datagrams::Datagrams;

/// How long anything may take that must happen, on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Families and their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ip {
    V4,
    V6,
}

/// The stack under test: the kernel's sockets or ours, with the same operations.
pub(crate) trait Place: Send + Sync + 'static {
    type Socket: Datagrams;

    /// Which family is tried.
    fn ip(&self) -> Ip;

    /// Our address.
    fn here(&self) -> IpAddr;

    /// The peer's address.
    fn there(&self) -> IpAddr;

    /// Binds a socket of the host that is here.
    fn bind(&self, addr: SocketAddr) -> impl Future<Output = io::Result<Self::Socket>> + Send;

    /// Binds a socket of the host that is there.
    fn bind_there(&self, addr: SocketAddr)
    -> impl Future<Output = io::Result<Self::Socket>> + Send;

    /// Lets what was dropped be gone: the kernel needs nothing for that.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Any address, port 0.
    fn any(&self) -> SocketAddr {
        match self.ip() {
            Ip::V4 => "0.0.0.0:0".parse().unwrap(),
            Ip::V6 => "[::]:0".parse().unwrap(),
        }
    }

    /// One socket here.
    fn one(&self) -> impl Future<Output = Self::Socket> + Send {
        async { self.bind((self.here(), 0).into()).await.unwrap() }
    }

    /// One socket there.
    fn one_there(&self) -> impl Future<Output = Self::Socket> + Send {
        async { self.bind_there((self.there(), 0).into()).await.unwrap() }
    }

    /// One socket on each side, not connected to each other.
    fn two(&self) -> impl Future<Output = (Self::Socket, Self::Socket)> + Send {
        async { (self.one().await, self.one_there().await) }
    }

    /// One socket on each side, connected to each other.
    fn connected(&self) -> impl Future<Output = (Self::Socket, Self::Socket)> + Send {
        async {
            let (a, b) = self.two().await;
            a.connect(b.local_addr().unwrap()).await.unwrap();
            b.connect(a.local_addr().unwrap()).await.unwrap();
            (a, b)
        }
    }
}

/// The kernel's loopback and tokio's own socket.
pub(crate) struct Kernel(Ip);

impl Kernel {
    /// In a namespace of this thread's own; `None`, with a message, where there can be none, and
    /// where the machine has no IPv6.
    pub(crate) fn enter(ip: Ip) -> Option<Self> {
        let bound = || std::net::UdpSocket::bind((Self(ip).here(), 0));
        let bound = namespace::enter().and_then(|()| bound().map_err(|error| error.to_string()));
        // A way to every address: a broadcast is refused for what it is.
        let routed = || namespace::ip("route add default dev lo");
        match bound {
            Ok(_) if !routed() => {
                eprintln!("SKIPPED: no default route by `ip`");
                None
            }
            Ok(_) => Some(Self(ip)),
            Err(missing) => {
                eprintln!("SKIPPED: no loopback of the kernel: {missing}");
                None
            }
        }
    }
}

impl Place for Kernel {
    type Socket = tokio::net::UdpSocket;

    fn ip(&self) -> Ip {
        self.0
    }

    fn here(&self) -> IpAddr {
        match self.0 {
            Ip::V4 => "127.0.0.1".parse().unwrap(),
            Ip::V6 => "::1".parse().unwrap(),
        }
    }

    fn there(&self) -> IpAddr {
        self.here()
    }

    async fn bind(&self, addr: SocketAddr) -> io::Result<Self::Socket> {
        tokio::net::UdpSocket::bind(addr).await
    }

    async fn bind_there(&self, addr: SocketAddr) -> io::Result<Self::Socket> {
        self.bind(addr).await
    }
}

/// A host of ours on one end of a wire in memory.
async fn host(wire: MemoryWire, number: u8, workers: usize) -> Network {
    Network::builder()
        .attach(wire)
        .address(&format!("198.18.0.{number}/24"))
        .address(&format!("2001:2::{number}/64"))
        .mac(MacAddr([2, 0, 0, 0, 0, number]))
        .workers(workers)
        .memory(PoolConfig { small: 2048, frames: 2048, references: 512, ..PoolConfig::default() })
        .send_memory(2048, 1024)
        .sockets_max(64)
        .worker(WorkerConfig { look_every: Duration::from_micros(200), ..WorkerConfig::default() })
        .stack(|config| config.duplicate_address_detection = false)
        .start()
        .await
        .unwrap()
}

/// Two hosts of ours by a wire in memory, or one by its own loopback.
pub(crate) struct Ours {
    ip: Ip,
    ends: [IpAddr; 2],
    here: Network,
    there: Network,
    /// Kept: dropping the other end cuts the wire and ends the host.
    _other_end: Option<Mutex<MemoryWire>>,
}

impl Ours {
    /// One host.
    pub(crate) fn loopback(ip: Ip) -> Self {
        let (here, other_end) = pair(64);
        let here = crate::parity::current_thread().block_on(host(here, 1, 1));
        let ends = [Kernel(ip).here(); 2];
        let there = here.clone();
        Self { ip, ends, here, there, _other_end: Some(Mutex::new(other_end)) }
    }

    /// Two hosts, with so many workers here; one there.
    pub(crate) fn wire(ip: Ip, workers: usize) -> Self {
        let (here, there) = pair(1024);
        let (here, there) = crate::parity::current_thread()
            .block_on(async { (host(here, 1, workers).await, host(there, 2, 1).await) });
        let ends = match ip {
            Ip::V4 => ["198.18.0.1", "198.18.0.2"],
            Ip::V6 => ["2001:2::1", "2001:2::2"],
        };
        let ends = ends.map(|end| end.parse().unwrap());
        let wire = Self { ip, ends, here, there, _other_end: None };
        crate::parity::current_thread().block_on(wire.meet());
        wire
    }

    /// Each learns where the other is: of the first datagrams to a neighbour only three wait.
    async fn meet(&self) {
        let (a, b) = self.connected().await;
        a.send(b"here I am").await.unwrap();
        soon(b.recv(&mut [0; 10])).await.unwrap();
        b.send(b"so am I").await.unwrap();
        soon(a.recv(&mut [0; 10])).await.unwrap();
    }
}

impl Place for Ours {
    type Socket = UdpSocket;

    fn ip(&self) -> Ip {
        self.ip
    }

    fn here(&self) -> IpAddr {
        self.ends[0]
    }

    fn there(&self) -> IpAddr {
        self.ends[1]
    }

    async fn bind(&self, addr: SocketAddr) -> io::Result<UdpSocket> {
        UdpSocket::bind(&self.here, addr).await
    }

    async fn bind_there(&self, addr: SocketAddr) -> io::Result<UdpSocket> {
        UdpSocket::bind(&self.there, addr).await
    }

    async fn settle(&self) {
        // The worker receives the drop and sends a request to the control shard, which notifies all
        // the others: each step takes a turn or two of the worker's, and each request takes one at
        // least.
        for _ in 0..32 {
            self.there.stats().await.unwrap();
        }
    }
}

/// Waits for what must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}

/// Gives what must not happen some time to happen.
pub(crate) async fn never<F: Future>(what: F)
where
    F::Output: std::fmt::Debug,
{
    let found = tokio::time::timeout(Duration::from_millis(50), what).await;
    assert!(found.is_err(), "it happens although it must not: {found:?}");
}
