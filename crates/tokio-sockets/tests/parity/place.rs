//! Where a behaviour is tried: the kernel's loopback, or hosts of ours.
//!
//! A place has two ends, *here* and *there*, each with an address of the family that is tried. At
//! the kernel, and on our own loopback, both are the same host.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::datagrams::Datagrams;

/// How long anything may take that must happen, on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Families and their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ip {
    V4,
    V6,
}

/// See the file's head.
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

    /// One socket on each side, strangers to each other.
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
    pub(crate) fn new(ip: Ip) -> Self {
        Self(ip)
    }

    /// Nothing, and said so, where the machine has no IPv6.
    pub(crate) fn with_v6() -> Option<Self> {
        match std::net::UdpSocket::bind("[::1]:0") {
            Ok(_) => Some(Self(Ip::V6)),
            Err(error) => {
                eprintln!("SKIPPED: the kernel here has no IPv6 loopback ({error})");
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
