//! `TcpListener`: tokio's TCP listener, over a Floodwall host: one handle, a listener on each
//! worker.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use floodwall_stack::remote::{ListenHandle, TcpHandle};
use floodwall_tcp::TcpSettings;

use super::stream::TcpStream;
use crate::addrs::{self, BIND_SETTLES, ToSocketAddrs, is_taken};
use crate::network::Network;
use crate::readiness;

/// What tokio listens with.
const TOKIO_BACKLOG: usize = 1024;

/// A TCP listener, for tasks of tokio. Every worker listens; any number of tasks may accept.
///
/// A TCP listener. Connections that were not accepted when it is dropped are reset.
pub struct TcpListener {
    /// First: it releases its port while the network still exists, with the last that shares it.
    handle: Arc<ListenHandle>,
    network: Network,
    v6: bool,
}

impl TcpListener {
    /// Listens at an address of the host or at the unspecified one, at a port or (port 0) at an
    /// ephemeral one. Of several addresses, the first that succeeds. A listener at `[::]` takes
    /// IPv4 too. Waits until every worker listens.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable` (none of the host's), `InvalidInput` (what names no
    /// address), `BrokenPipe` (the network has ended); `EPROTONOSUPPORT` where the network was
    /// built without connections.
    pub async fn bind<A: ToSocketAddrs>(network: &Network, addr: A) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for addr in addrs::resolve(&addr, network.resolver()).await? {
            match Self::open(network, addr, network.tcp_settings(), TOKIO_BACKLOG).await {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Listens at every port of every local address that has no other listener, both families.
    /// [`TcpStream::local_addr`] of an accepted stream is the destination that its peer connected
    /// to. Foreign destination addresses are local where
    /// [`any_destination`](crate::NetworkBuilder::any_destination) is set.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub async fn bind_every(network: &Network) -> io::Result<Self> {
        let all = SocketAddr::from(([0_u16; 8], 0));
        let settings = TcpSettings { every_port: true, ..network.tcp_settings() };
        Self::open(network, all, settings, TOKIO_BACKLOG).await
    }

    pub(super) async fn open(
        network: &Network,
        addr: SocketAddr,
        settings: TcpSettings,
        backlog: usize,
    ) -> io::Result<Self> {
        let handle = Arc::new(listen(network, addr, settings, backlog).await?);
        Ok(Self { handle, network: network.clone(), v6: addr.is_ipv6() })
    }

    /// As [`TcpListener::open`], at a port that others may share which are opened so, too: all of
    /// them accept from one queue.
    pub(super) async fn open_shared(
        network: &Network,
        addr: SocketAddr,
        settings: TcpSettings,
        backlog: usize,
    ) -> io::Result<Self> {
        let joined = || {
            let handle = network.shared_listeners().get(&addr).and_then(Weak::upgrade)?;
            Some(Self { handle, network: network.clone(), v6: addr.is_ipv6() })
        };
        if let Some(listener) = joined() {
            return Ok(listener);
        }
        match Self::open(network, addr, settings, backlog).await {
            Ok(listener) => {
                let mut shared = network.shared_listeners();
                shared.retain(|_, handle| handle.strong_count() > 0);
                shared.insert(listener.handle.local_addr(), Arc::downgrade(&listener.handle));
                Ok(listener)
            }
            // Another task has opened it meanwhile.
            Err(error) => joined().ok_or(error),
        }
    }

    /// The network that it belongs to.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Never: the signature is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.handle.local_addr())
    }

    fn accepted(&self, handle: TcpHandle) -> (TcpStream, SocketAddr) {
        let stream = TcpStream::new(handle, self.network.clone(), self.v6);
        let peer = stream.peer_addr().unwrap_or_else(|_| stream.handle.peer_addr());
        (stream, peer)
    }

    /// Waits for a connection. Cancel safe: a dropped call has taken none. If the peer has reset it
    /// meanwhile, its first read returns that error.
    ///
    /// # Errors
    /// `BrokenPipe` (the network has ended).
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let tried = poll_fn(|cx| readiness::attempt(cx, || self.handle.try_accept())).await;
            if let Some(taken) = tried {
                return taken.map(|handle| self.accepted(handle));
            }
            let mut ready = pin!(self.handle.ready());
            poll_fn(|cx| {
                self.handle.set_group(self.network.group());
                ready.as_mut().poll(cx)
            })
            .await?;
        }
    }

    /// Polls [`TcpListener::accept`]. Of several tasks that poll, the last one is woken.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let taken = readiness::paid(cx, |cx| {
            self.handle.set_group(self.network.group());
            self.handle.poll_accept(cx)
        });
        taken.map_ok(|handle| self.accepted(handle))
    }

    /// The time to live (hop limit) of sent packets, unless another one is set.
    ///
    /// # Errors
    /// Never: the signature is tokio's.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(super::stream::DEFAULT_TTL)
    }
}

#[cfg(feature = "axum")]
impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    /// Waits for ever where the network has ended: a server gets that from
    /// [`Network::closed`](crate::Network::closed).
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match Self::accept(self).await {
            Ok(accepted) => accepted,
            Err(_) => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("addr", &self.handle.local_addr())
            .finish_non_exhaustive()
    }
}

/// Asks all workers to listen. A dropped listener holds its port until the workers have processed
/// the drop: as with a UDP socket, they finish their earlier requests then, and it is asked again.
async fn listen(
    network: &Network,
    addr: SocketAddr,
    settings: TcpSettings,
    backlog: usize,
) -> io::Result<ListenHandle> {
    let mut settles = 0;
    loop {
        match network.remote().listen_tcp(addr, settings.clone(), backlog).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::task::yield_now().await;
            }
            Err(error) if settles < BIND_SETTLES && is_taken(&error, addr) => {
                settles += 1;
                network.settle().await?;
            }
            done => return done,
        }
    }
}
