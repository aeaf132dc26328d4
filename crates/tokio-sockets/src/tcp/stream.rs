//! `TcpStream`: tokio's TCP stream, over a Floodwall host.
//!
//! Invariants: no future keeps anything across `Pending` except its waker registration, so each is
//! cancel safe at any await; each successful call uses one unit of tokio's cooperative budget; the
//! runtime's wake group is registered before every wait, because streams move between runtimes.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use floodwall_stack::remote::{TcpHandle, WaitDirection};
use floodwall_tcp::TcpSettings;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use super::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf, split, split_owned};
use crate::addrs::{self, ToSocketAddrs};
use crate::network::Network;
use crate::readiness;

/// The hop limit that is returned where none was set.
pub(super) const DEFAULT_TTL: u32 = 64;
/// No linger time was set.
const NO_LINGER: u64 = u64::MAX;

/// A TCP connection, for tasks of tokio.
///
/// As tokio's own: reading and writing through [`AsyncRead`] and [`AsyncWrite`], in halves
/// ([`TcpStream::into_split`]), or by `try_` calls behind [`TcpStream::readable`]. It may move
/// between tasks, threads and runtimes, may outlive the runtime that it was made on, and may be
/// dropped anywhere: what was written still leaves then; where something is unread, the peer is
/// reset.
///
/// # Example
///
/// ```
/// use floodwall_tokio_sockets::{Network, TcpListener, TcpStream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let (wire, _other_end) = floodwall_device::pair(64);
/// let network = Network::builder().attach(wire).address("192.0.2.1/24").start().await?;
///
/// let listener = TcpListener::bind(&network, "127.0.0.1:0").await?;
/// let client = TcpStream::connect(&network, listener.local_addr()?).await?;
/// let (server, peer) = listener.accept().await?;
/// assert_eq!(peer, client.local_addr()?);
///
/// client.writable().await?;
/// assert_eq!(client.try_write(b"hello")?, 5);
/// server.readable().await?;
/// let mut room = [0; 16];
/// assert_eq!(server.try_read(&mut room)?, 5);
/// # Ok(())
/// # }
/// ```
pub struct TcpStream {
    /// First: it releases its slot while the network still exists.
    pub(super) handle: TcpHandle,
    network: Network,
    /// Seconds, or [`NO_LINGER`].
    linger: AtomicU64,
    /// It was accepted by, or bound to, an IPv6 socket of both families.
    mapped: bool,
}

impl TcpStream {
    pub(super) fn new(handle: TcpHandle, network: Network, mapped: bool) -> Self {
        Self { handle, network, linger: AtomicU64::new(NO_LINGER), mapped }
    }

    /// Opens a connection to an address: of several, to the first that answers. Names need the
    /// network's resolver.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable`, `NetworkUnreachable` (no route leads
    /// there), `InvalidInput` (what names no address), `BrokenPipe` (the network has ended), too
    /// many connections (the system's `ENFILE`).
    pub async fn connect<A: ToSocketAddrs>(network: &Network, addr: A) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for addr in addrs::resolve(&addr, network.resolver()).await? {
            match Self::open(network, None, addr, network.tcp_settings()).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(super) async fn open(
        network: &Network,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        settings: TcpSettings,
    ) -> io::Result<Self> {
        let own = local.map_or(Ipv4Addr::UNSPECIFIED.into(), |local| local.ip());
        let peer = addrs::towards(peer, own);
        let handle = loop {
            match network.remote().connect_tcp(local, peer, settings.clone()).await {
                // Many requests at once: a worker takes some each round.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::task::yield_now().await;
                }
                done => break done?,
            }
        };
        // From here on a call that is dropped closes the connection.
        let mapped = matches!(peer, SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some());
        let stream = Self::new(handle, network.clone(), mapped);
        poll_fn(|cx| {
            stream.name_group(WaitDirection::Write);
            stream.handle.poll_opened(cx)
        })
        .await?;
        Ok(stream)
    }

    /// The network that it belongs to.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    fn as_written(&self, addr: SocketAddr) -> SocketAddr {
        match addr {
            SocketAddr::V4(v4) if self.mapped => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            addr => addr,
        }
    }

    /// Our end.
    ///
    /// # Errors
    /// Never: the signature is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.as_written(self.handle.local_addr()))
    }

    /// The peer.
    ///
    /// # Errors
    /// Never: the address is stored in the stream.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.as_written(self.handle.peer_addr()))
    }

    /// The details of the connection: Linux's `TCP_INFO`, in bytes. Waits for a round of the worker
    /// that has it, which visits its connections: for diagnosis, not for every write.
    ///
    /// # Errors
    /// `NotConnected` where the connection is over, `BrokenPipe` where the network has ended.
    pub async fn info(&self) -> io::Result<floodwall_tcp::Info> {
        let (local, peer) = (self.handle.local_addr(), self.handle.peer_addr());
        let info = self.network.connection_info(local, peer).await?;
        info.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Takes the pending error, as `SO_ERROR` does.
    ///
    /// # Errors
    /// Never: the signature is tokio's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.handle.take_error())
    }

    /// Names the runtime that is about to wait.
    fn name_group(&self, direction: WaitDirection) {
        let group = self.network.group();
        match direction {
            WaitDirection::Read => self.handle.set_read_group(group),
            WaitDirection::Write => self.handle.set_write_group(group),
        }
    }

    /// Waits until the stream is ready for one of the directions in `interest`; returns the
    /// directions, with `READ_CLOSED` and `WRITE_CLOSED` as tokio has them. The peer's end (FIN)
    /// and errors make it readable, errors also writable. The result is exact, where tokio's is a
    /// hint: but another task may be quicker.
    ///
    /// # Errors
    /// Never: errors are returned by the next operation.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let of = |direction| self.handle.ready(direction);
        let name = |direction| self.name_group(direction);
        let ready =
            readiness::ready(interest, of(WaitDirection::Read), of(WaitDirection::Write), name);
        Ok(ready.await? | self.closed(interest))
    }

    /// The directions of interest in which nothing more will come or be taken, as epoll reports
    /// them: the peer's end closes reading; writing closes with both ends, or with an error.
    fn closed(&self, interest: Interest) -> Ready {
        let (read, write) = self.handle.closed();
        let mut closed = Ready::EMPTY;
        if interest.is_readable() && read {
            closed |= Ready::READ_CLOSED;
        }
        if interest.is_writable() && write {
            closed |= Ready::WRITE_CLOSED;
        }
        closed
    }

    /// Waits until there is something to be read: bytes, the peer's end, or an error.
    ///
    /// # Errors
    /// As [`TcpStream::ready`].
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// Waits until something would be taken, or there is an error.
    ///
    /// # Errors
    /// As [`TcpStream::ready`].
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// Polls [`TcpStream::readable`].
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, WaitDirection::Read, |handle, cx| handle.poll_ready(cx, WaitDirection::Read))
    }

    /// Polls [`TcpStream::writable`].
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, WaitDirection::Write, |handle, cx| {
            handle.poll_ready(cx, WaitDirection::Write)
        })
    }

    /// Reads what is there; 0 where the peer has no more, or `buf` is empty.
    ///
    /// # Errors
    /// `WouldBlock`; what the connection ended with, once, behind all that was received:
    /// `ConnectionReset`, `TimedOut`, `HostUnreachable`; `BrokenPipe` (the network has ended).
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.try_read(buf)
    }

    /// As [`TcpStream::try_read`], into several buffers in turn.
    ///
    /// # Errors
    /// As there.
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.handle.try_read_vectored(bufs)
    }

    /// Writes what fits.
    ///
    /// # Errors
    /// `WouldBlock`; what the connection ended with, once; `BrokenPipe` where our side is closed,
    /// or the connection or the network is over.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.handle.try_write(&[IoSlice::new(buf)])
    }

    /// As [`TcpStream::try_write`], of several buffers in turn.
    ///
    /// # Errors
    /// As there.
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.handle.try_write(bufs)
    }

    /// Runs `what`. Readiness is not cached here, as tokio does it, so there is no flag to clear
    /// when it returns `WouldBlock`: the next wait checks again.
    ///
    /// # Errors
    /// Those of `what`.
    pub fn try_io<R>(
        &self,
        _interest: Interest,
        what: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        what()
    }

    /// Runs `what` where the stream is ready, and again when it returns `WouldBlock`.
    ///
    /// # Errors
    /// Any other error of `what`.
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut what: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            self.ready(interest).await?;
            match what() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            // Ready, and yet it would block: let others run.
            tokio::task::yield_now().await;
        }
    }

    /// Copies what was received, and leaves it where it is; 0 where the peer has no more.
    ///
    /// # Errors
    /// As [`TcpStream::try_read`], but for `WouldBlock`: an error is taken.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.handle.try_peek(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Polls [`TcpStream::peek`]; appends to what `buf` holds already.
    pub fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = buf.initialize_unfilled();
        let n = ready!(self.poll(cx, WaitDirection::Read, |h, cx| h.poll_peek(cx, room)))?;
        buf.advance(n);
        Poll::Ready(Ok(n))
    }

    /// One poll, paid for where it achieves something.
    fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        direction: WaitDirection,
        poll: impl FnOnce(&TcpHandle, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        readiness::paid(cx, |cx| {
            self.name_group(direction);
            poll(&self.handle, cx)
        })
    }

    pub(super) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.initialize_unfilled();
        let n = ready!(self.poll(cx, WaitDirection::Read, |h, cx| h.poll_read(cx, room)))?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write_shared(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, WaitDirection::Write, |handle, cx| handle.poll_write(cx, bufs))
    }

    /// Closes our side, as [`AsyncWrite::poll_shutdown`] does.
    pub(super) fn shut(&self) {
        self.handle.shutdown_write();
    }

    /// Whether small segments leave at once (Nagle's algorithm off).
    ///
    /// # Errors
    /// Never: the signature is tokio's. The same holds for all calls that only get or set options.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.handle.nodelay())
    }

    /// Sets it, for what is sent from the worker's next round on.
    ///
    /// # Errors
    /// Never.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.handle.set_nodelay(nodelay);
        Ok(())
    }

    /// Whether less than a full segment waits for more to be written (`TCP_CORK`).
    ///
    /// # Errors
    /// Never.
    pub fn cork(&self) -> io::Result<bool> {
        Ok(self.handle.cork())
    }

    /// Sets it (TCP_CORK), from the worker's next round on; data that waited is sent when it is
    /// cleared. It takes precedence over `nodelay`. Where all earlier data is acknowledged, no data
    /// waits for longer than a retransmission timeout: 200 ms on short paths.
    ///
    /// # Errors
    /// Never.
    pub fn set_cork(&self, cork: bool) -> io::Result<()> {
        self.handle.set_cork(cork);
        Ok(())
    }

    /// The time to live (hop limit) of sent packets.
    ///
    /// # Errors
    /// Never.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.handle.hop_limit().map_or(DEFAULT_TTL, u32::from))
    }

    /// Sets it, for what is sent from the worker's next round on.
    ///
    /// # Errors
    /// `InvalidInput` where it is not from 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).ok().filter(|ttl| *ttl > 0);
        let ttl = ttl.ok_or_else(|| io::Error::from_raw_os_error(22))?;
        self.handle.set_hop_limit(Some(ttl));
        Ok(())
    }

    /// The linger time that was set.
    ///
    /// # Errors
    /// Never.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        let seconds = self.linger.load(Ordering::Relaxed);
        Ok((seconds != NO_LINGER).then(|| Duration::from_secs(seconds)))
    }

    /// Sets the behaviour of the drop: with a time of zero it resets the connection; otherwise it
    /// closes it in order, and never blocks, for any time.
    ///
    /// # Errors
    /// Never.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        let seconds = linger.map_or(NO_LINGER, |linger| linger.as_secs());
        self.linger.store(seconds, Ordering::Relaxed);
        self.handle.set_zero_linger(seconds == 0);
        Ok(())
    }

    /// As [`TcpStream::set_linger`] with a time of zero.
    ///
    /// # Errors
    /// Never.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// Whether keepalive probes are sent to a silent peer (socket2's name).
    ///
    /// # Errors
    /// Never: the signature is socket2's.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.handle.keepalive())
    }

    /// Sends keepalive probes to a silent peer, or not: at the times that the connection, or its
    /// listener, was given, else at those of [`Keepalive::default`](floodwall_tcp::Keepalive).
    ///
    /// # Errors
    /// Never: the signature is socket2's.
    pub fn set_keepalive(&self, on: bool) -> io::Result<()> {
        self.handle.set_keepalive(on);
        Ok(())
    }

    /// Two halves that borrow the stream.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        split(self)
    }

    /// Splits into two halves for different tasks. The drop of the writing one closes our side
    /// (FIN).
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split_owned(self)
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_shared(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut();
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("addr", &self.handle.local_addr())
            .field("peer", &self.handle.peer_addr())
            .finish_non_exhaustive()
    }
}
