//! Where a behaviour is tried: the kernel's loopback, or hosts of ours; and the calls of both
//! kinds of sockets that are no traits of tokio's.
//!
//! A listener is *there*, a connecting socket is *here*. At the kernel, and on our own loopback,
//! both are the same host.

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use floodwall_base::MacAddr;
use floodwall_device::{MemoryWire, pair};
use floodwall_dispatch::WorkerConfig;
use floodwall_packet::PoolConfig;
use floodwall_tokio_sockets as ours;
use floodwall_tokio_sockets::Network;
use tokio::io::{AsyncRead, AsyncWrite, Interest, Ready};

use crate::namespace;

/// How long anything may take that must happen, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    type Read: AsyncRead + Unpin + Send + 'static;
    type Write: AsyncWrite + Unpin + Send + 'static;

    fn local_addr(&self) -> SocketAddr;
    fn peer_addr(&self) -> SocketAddr;
    fn into_split(self) -> (Self::Read, Self::Write);
    fn reunite(read: Self::Read, write: Self::Write) -> Option<Self>
    where
        Self: Sized;
    fn split(&mut self) -> (impl AsyncRead + Unpin + Send, impl AsyncWrite + Unpin + Send);
    fn try_read(&self, buf: &mut [u8]) -> io::Result<usize>;
    fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    fn try_write(&self, buf: &[u8]) -> io::Result<usize>;
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize>;
    fn try_io(&self, what: impl FnOnce() -> io::Result<usize>) -> io::Result<usize>;
    fn peek(&self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
    fn ready(&self, interest: Interest) -> impl Future<Output = Ready> + Send;
    fn take_error(&self) -> Option<io::Error>;
    fn nodelay(&self) -> bool;
    fn set_nodelay(&self, on: bool);
    fn ttl(&self) -> u32;
    fn set_ttl(&self, ttl: u32) -> io::Result<()>;
    fn linger(&self) -> Option<Duration>;
    fn set_zero_linger(&self);
}

/// A listener of either kind.
pub(crate) trait Listener: Send + Sync + 'static {
    type Stream: Stream;

    fn local_addr(&self) -> SocketAddr;
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}

/// A socket of either kind that is neither yet.
pub(crate) trait Socket: Send + 'static {
    type Stream: Stream;
    type Listener: Listener<Stream = Self::Stream>;

    fn bind(&self, addr: SocketAddr) -> io::Result<()>;
    fn set_and_check_options(&self);
    fn share_port(&self);
    fn connect(self, addr: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    fn listen(self, backlog: u32) -> impl Future<Output = io::Result<Self::Listener>> + Send;
}

macro_rules! sockets {
    ($module:ident, $reads:ty, $writes:ty, |$socket:ident, $backlog:ident| $listen:expr) => {
        impl Stream for $module::TcpStream {
            type Read = $reads;
            type Write = $writes;

            fn local_addr(&self) -> SocketAddr {
                Self::local_addr(self).unwrap()
            }

            fn peer_addr(&self) -> SocketAddr {
                Self::peer_addr(self).unwrap()
            }

            fn into_split(self) -> (Self::Read, Self::Write) {
                Self::into_split(self)
            }

            fn reunite(read: Self::Read, write: Self::Write) -> Option<Self> {
                read.reunite(write).ok()
            }

            fn split(&mut self) -> (impl AsyncRead + Unpin + Send, impl AsyncWrite + Unpin + Send) {
                Self::split(self)
            }

            fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                Self::try_read(self, buf)
            }

            fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                Self::try_read_vectored(self, bufs)
            }

            fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                Self::try_write(self, buf)
            }

            fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                Self::try_write_vectored(self, bufs)
            }

            fn try_io(&self, what: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
                Self::try_io(self, Interest::READABLE, what)
            }

            async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                Self::peek(self, buf).await
            }

            async fn ready(&self, interest: Interest) -> Ready {
                Self::ready(self, interest).await.unwrap()
            }

            fn take_error(&self) -> Option<io::Error> {
                Self::take_error(self).unwrap()
            }

            fn nodelay(&self) -> bool {
                Self::nodelay(self).unwrap()
            }

            fn set_nodelay(&self, on: bool) {
                Self::set_nodelay(self, on).unwrap();
            }

            fn ttl(&self) -> u32 {
                Self::ttl(self).unwrap()
            }

            fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                Self::set_ttl(self, ttl)
            }

            fn linger(&self) -> Option<Duration> {
                Self::linger(self).unwrap()
            }

            fn set_zero_linger(&self) {
                Self::set_zero_linger(self).unwrap();
            }
        }

        impl Listener for $module::TcpListener {
            type Stream = $module::TcpStream;

            fn local_addr(&self) -> SocketAddr {
                Self::local_addr(self).unwrap()
            }

            async fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)> {
                Self::accept(self).await
            }
        }

        impl Socket for $module::TcpSocket {
            type Stream = $module::TcpStream;
            type Listener = $module::TcpListener;

            fn bind(&self, addr: SocketAddr) -> io::Result<()> {
                Self::bind(self, addr)
            }

            fn set_and_check_options(&self) {
                self.set_reuseaddr(true).unwrap();
                assert!(self.reuseaddr().unwrap());
                self.set_keepalive(true).unwrap();
                assert!(self.keepalive().unwrap());
                self.set_nodelay(true).unwrap();
                assert!(self.nodelay().unwrap());
                self.set_send_buffer_size(100_000).unwrap();
                assert!(self.send_buffer_size().unwrap() >= 100_000);
                self.set_recv_buffer_size(100_000).unwrap();
                assert!(self.recv_buffer_size().unwrap() >= 100_000);
                self.set_tos_v4(0x48).unwrap();
                assert_eq!(self.tos_v4().unwrap(), 0x48);
            }

            fn share_port(&self) {
                assert!(!self.reuseport().unwrap());
                self.set_reuseport(true).unwrap();
                assert!(self.reuseport().unwrap());
            }

            async fn connect(self, addr: SocketAddr) -> io::Result<Self::Stream> {
                Self::connect(self, addr).await
            }

            async fn listen(self, $backlog: u32) -> io::Result<Self::Listener> {
                let $socket = self;
                $listen
            }
        }
    };
}

mod kernel {
    pub(super) use tokio::net::{TcpListener, TcpSocket, TcpStream};
}

sockets!(
    kernel,
    tokio::net::tcp::OwnedReadHalf,
    tokio::net::tcp::OwnedWriteHalf,
    |socket, backlog| socket.listen(backlog)
);
sockets!(ours, ours::OwnedReadHalf, ours::OwnedWriteHalf, |socket, backlog| {
    socket.listen(backlog).await
});

/// The stack under test: the kernel's sockets or ours, with the same operations.
pub(crate) trait Place: Send + Sync + 'static {
    type Stream: Stream;
    type Listener: Listener<Stream = Self::Stream>;
    type Socket: Socket<Stream = Self::Stream, Listener = Self::Listener>;

    fn is_v6(&self) -> bool;
    fn here(&self) -> IpAddr;
    fn there(&self) -> IpAddr;
    fn bind(&self, addr: SocketAddr) -> impl Future<Output = io::Result<Self::Listener>> + Send;
    fn connect(&self, addr: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    /// A socket here, of this family.
    fn socket(&self, v6: bool) -> Self::Socket;

    /// A listener there.
    fn listener(&self) -> impl Future<Output = Self::Listener> + Send {
        async { self.bind((self.there(), 0).into()).await.unwrap() }
    }

    /// A connection from here to there: the end here, and the end there.
    fn connected(&self) -> impl Future<Output = (Self::Stream, Self::Stream)> + Send {
        async {
            let listener = self.listener().await;
            let here = soon(self.connect(listener.local_addr())).await.unwrap();
            let (there, _) = soon(listener.accept()).await.unwrap();
            (here, there)
        }
    }
}

/// The kernel's loopback and tokio's own sockets.
pub(crate) enum Kernel {
    V4,
    V6,
}

impl Kernel {
    /// In a namespace of this thread's own; `None`, with a message, where there can be none, and
    /// where the machine has no IPv6.
    pub(crate) fn enter(self) -> Option<Self> {
        let v6 = matches!(self, Self::V6);
        let bound = || std::net::TcpListener::bind((loopback(v6), 0));
        let bound = namespace::enter().and_then(|()| bound().map_err(|error| error.to_string()));
        match bound {
            Ok(_) => Some(self),
            Err(missing) => {
                eprintln!("SKIPPED: no loopback of the kernel: {missing}");
                None
            }
        }
    }
}

fn loopback(v6: bool) -> IpAddr {
    if v6 { "::1".parse().unwrap() } else { "127.0.0.1".parse().unwrap() }
}

impl Place for Kernel {
    type Stream = tokio::net::TcpStream;
    type Listener = tokio::net::TcpListener;
    type Socket = tokio::net::TcpSocket;

    fn is_v6(&self) -> bool {
        matches!(self, Self::V6)
    }

    fn here(&self) -> IpAddr {
        loopback(self.is_v6())
    }

    fn there(&self) -> IpAddr {
        loopback(self.is_v6())
    }

    async fn bind(&self, addr: SocketAddr) -> io::Result<Self::Listener> {
        tokio::net::TcpListener::bind(addr).await
    }

    async fn connect(&self, addr: SocketAddr) -> io::Result<Self::Stream> {
        tokio::net::TcpStream::connect(addr).await
    }

    fn socket(&self, v6: bool) -> Self::Socket {
        let socket = if v6 { kernel::TcpSocket::new_v6() } else { kernel::TcpSocket::new_v4() };
        socket.unwrap()
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
        .memory(PoolConfig { small: 4096, frames: 4096, references: 8192, ..PoolConfig::default() })
        .send_memory(4096, 4096)
        .sockets_max(16)
        .connections_max(64)
        // A memory wire has no descriptor to wake the worker.
        .worker(WorkerConfig { look_every: Duration::from_micros(200), ..WorkerConfig::default() })
        .stack(|config| config.duplicate_address_detection = false)
        .start()
        .await
        .unwrap()
}

/// Two hosts of ours by a wire in memory, or one by its own loopback.
pub(crate) struct Ours {
    ends: [IpAddr; 2],
    here: Network,
    there: Network,
    /// Kept: dropping the other end cuts the wire and ends the host.
    _other_end: Option<Mutex<MemoryWire>>,
}

impl Ours {
    /// One host.
    pub(crate) fn loopback(v6: bool) -> Self {
        let (here, other_end) = pair(64);
        let here = crate::tcp::current_thread().block_on(host(here, 1, 1));
        let there = here.clone();
        Self { ends: [loopback(v6); 2], here, there, _other_end: Some(Mutex::new(other_end)) }
    }

    /// Two hosts, with so many workers each.
    pub(crate) fn wire(v6: bool, workers: usize) -> Self {
        let (here, there) = pair(1024);
        let (here, there) = crate::tcp::current_thread()
            .block_on(async { (host(here, 1, workers).await, host(there, 2, workers).await) });
        let ends = if v6 { ["2001:2::1", "2001:2::2"] } else { ["198.18.0.1", "198.18.0.2"] };
        Self { ends: ends.map(|end| end.parse().unwrap()), here, there, _other_end: None }
    }
}

impl Place for Ours {
    type Stream = ours::TcpStream;
    type Listener = ours::TcpListener;
    type Socket = ours::TcpSocket;

    fn is_v6(&self) -> bool {
        self.ends[0].is_ipv6()
    }

    fn here(&self) -> IpAddr {
        self.ends[0]
    }

    fn there(&self) -> IpAddr {
        self.ends[1]
    }

    async fn bind(&self, addr: SocketAddr) -> io::Result<Self::Listener> {
        ours::TcpListener::bind(&self.there, addr).await
    }

    async fn connect(&self, addr: SocketAddr) -> io::Result<Self::Stream> {
        ours::TcpStream::connect(&self.here, addr).await
    }

    fn socket(&self, v6: bool) -> Self::Socket {
        let make = if v6 { ours::TcpSocket::new_v6 } else { ours::TcpSocket::new_v4 };
        make(&self.here).unwrap()
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
    let found = tokio::time::timeout(Duration::from_millis(30), what).await;
    assert!(found.is_err(), "it happens although it must not: {found:?}");
}
