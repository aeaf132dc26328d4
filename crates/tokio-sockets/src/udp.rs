//! `UdpSocket`: tokio's UDP socket, over a Floodwall host.
//!
//! Same names, same signatures, the same kinds of errors; `tests/parity` runs one body against
//! both. What is not tokio's: a socket is bound on a [`Network`], and there are batches
//! (`udp/batch.rs`). Also here: `udp/poll.rs` (what tries and polls), `udp/options.rs`.
//!
//! Invariants: no future keeps anything across `Pending` except its waker registration, so each is
//! cancel safe at any await; each successful call uses one unit of tokio's cooperative budget, so
//! that a socket that is always ready starves no other task; the runtime's wake group is registered
//! before every wait, because sockets move between runtimes.

mod batch;
mod options;
mod poll;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;

use floodwall_base::{Family, IfIndex};
use floodwall_stack::remote::{UdpHandle, WaitDirection};
use floodwall_udp::{Received, SocketSettings};
use tokio::io::{Interest, Ready};

use crate::addrs::{self, BIND_SETTLES, ToSocketAddrs, is_taken};
use crate::network::Network;
use crate::readiness;

pub use batch::Datagram;

/// A UDP socket, for tasks of tokio.
///
/// All its calls take `&self`: put it into an [`Arc`](std::sync::Arc) to share it between tasks,
/// any number of which may read and write at the same time. It may move between tasks, threads and
/// runtimes, may outlive the runtime that it was bound on, and may be dropped anywhere.
///
/// What differs from tokio's own socket, and why, is in the crate's front page.
///
/// # Example
///
/// Two tasks share one socket, on a host that talks to itself:
///
/// ```
/// use std::sync::Arc;
/// use floodwall_tokio_sockets::{Network, UdpSocket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let (wire, _other_end) = floodwall_device::pair(64);
/// let network = Network::builder().attach(wire).address("192.0.2.1/24").start().await?;
///
/// let socket = Arc::new(UdpSocket::bind(&network, "127.0.0.1:0").await?);
/// let at = socket.local_addr()?;
///
/// let reader = Arc::clone(&socket);
/// let echo = tokio::spawn(async move {
///     let mut room = [0; 1500];
///     let (len, from) = reader.recv_from(&mut room).await?;
///     reader.send_to(&room[..len], from).await
/// });
///
/// let client = UdpSocket::bind(&network, "127.0.0.1:0").await?;
/// client.connect(at).await?;
/// client.send(b"hello").await?;
/// let mut room = [0; 1500];
/// let len = client.recv(&mut room).await?;
/// assert_eq!(&room[..len], b"hello");
/// assert_eq!(echo.await??, 5);
/// # Ok(())
/// # }
/// ```
pub struct UdpSocket {
    /// First: it releases its slot while the network still exists.
    handle: UdpHandle,
    network: Network,
    /// Its family, which never changes.
    v6: bool,
}

impl UdpSocket {
    /// Opens a socket and binds it: to an address of the host or to the unspecified one, to a port
    /// or (port 0) to an ephemeral one. Of several addresses, the first that succeeds. A socket
    /// bound to `[::]` takes IPv4 too. Waits until every worker listens: microseconds, or one round
    /// of a busy worker.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable` (none of the host's), `InvalidInput` (what names no
    /// address), `BrokenPipe` (the network has ended), no more sockets (the system's `ENFILE`).
    pub async fn bind<A: ToSocketAddrs>(network: &Network, addr: A) -> io::Result<Self> {
        Self::bind_with(network, addr, |_| {}).await
    }

    /// As [`UdpSocket::bind`], with other settings than the usual: shared ports, IPv6 only, how
    /// many bytes may wait.
    ///
    /// # Errors
    /// As there.
    pub async fn bind_with<A: ToSocketAddrs>(
        network: &Network,
        addr: A,
        adjust: impl Fn(&mut SocketSettings),
    ) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for addr in addrs::resolve(&addr, network.resolver()).await? {
            let mut settings = SocketSettings::new(match addr {
                SocketAddr::V4(_) => Family::V4,
                SocketAddr::V6(_) => Family::V6,
            });
            settings.receive_bytes = network.receive_bytes();
            adjust(&mut settings);
            match open(network, addr, settings).await {
                Ok(handle) => {
                    let v6 = handle.settings().family == Family::V6;
                    return Ok(Self { handle, network: network.clone(), v6 });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Opens a socket that receives datagrams to every port of every local address that no other
    /// socket receives, both families; groups and broadcasts excepted. [`UdpSocket::receive`]
    /// returns each datagram's destination; [`UdpSocket::reply`] answers from that address,
    /// [`UdpSocket::send_from`] from any given one. The other calls that send fail
    /// (`InvalidInput`), because the socket has no port of its own. Foreign destination addresses
    /// are local where [`any_destination`](crate::NetworkBuilder::any_destination) is set.
    ///
    /// A flood at any port is a flood of this socket: it is bounded as any other's
    /// (`receive_bytes`, fair shares of its senders), and peers that its program has answered have
    /// priority.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub async fn bind_every(network: &Network) -> io::Result<Self> {
        let all = SocketAddr::from(([0_u16; 8], 0));
        Self::bind_with(network, all, |settings| settings.every_port = true).await
    }

    /// The network that it belongs to.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// Our end.
    ///
    /// # Errors
    /// Never: the signature is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.as_written(self.handle.local_addr()))
    }

    /// The peer of a connected socket.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.handle.peer_addr().ok_or(io::ErrorKind::NotConnected)?;
        Ok(self.as_written(peer))
    }

    /// Connects: the socket receives from this peer only, and sends to it by default. May be called
    /// again. Waits as [`UdpSocket::bind`] does. A call that is dropped may still be carried out.
    ///
    /// # Errors
    /// `NetworkUnreachable` where no route or address of ours leads there, `InvalidInput`, an
    /// address of another family, `BrokenPipe` (the network has ended). The unspecified address
    /// means this host, as on Linux.
    pub async fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for addr in addrs::resolve(&addr, self.network.resolver()).await? {
            match self.handle.connect(addrs::towards(addr, self.own_ip())).await {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Waits until the socket is ready for one of the directions in `interest`; returns the
    /// directions. The result is exact, where tokio's is a hint: but another task may be quicker. A
    /// pending error makes it ready for both. `PRIORITY` and `ERROR` alone never come.
    ///
    /// # Errors
    /// Never: errors are returned by the next operation.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let of = |direction| self.handle.ready(direction);
        let name = |direction| self.name_group(direction);
        readiness::ready(interest, of(WaitDirection::Read), of(WaitDirection::Write), name).await
    }

    /// Waits until there is a datagram, or an error, to be read.
    ///
    /// # Errors
    /// As [`UdpSocket::ready`].
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// Waits until a small datagram would be taken: its true size fits what the socket may have on
    /// its way out.
    ///
    /// # Errors
    /// As [`UdpSocket::ready`].
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// Sends one datagram to the connected peer: all of it, or none. Copies it once. Waits while
    /// the socket has too much on its way out, or the network has no memory to send from.
    ///
    /// # Errors
    /// An ICMP error about an earlier datagram, once (this one was not sent then):
    /// `ConnectionRefused`, `HostUnreachable`, `NetworkUnreachable`. Errors of the host's own
    /// routes (`NetworkUnreachable`, `AddrNotAvailable`) come with the next call, too. At once: not
    /// connected (`EDESTADDRREQ`), too large (`EMSGSIZE`), `BrokenPipe` (the network has ended).
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.writing(|handle| handle.try_send(buf)).await
    }

    /// Sends one datagram to an address: of several, to the first. As [`UdpSocket::send`].
    ///
    /// # Errors
    /// As there; `PermissionDenied` (a broadcast address, see [`UdpSocket::set_broadcast`]),
    /// `InvalidInput` (no address), an address of another family (`EAFNOSUPPORT`).
    pub async fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let to = addrs::resolve_first(&addr, self.network.resolver()).await?;
        let to = addrs::towards(to, self.own_ip());
        self.writing(|handle| handle.try_send_to(buf, to)).await
    }

    /// Sends one datagram from an end of the program's choice: an address of the host's (or, with
    /// [`any_destination`](crate::NetworkBuilder::any_destination), any that is routed to it), and
    /// the socket's own port, or any port where it was bound by [`UdpSocket::bind_every`].
    /// Otherwise as [`UdpSocket::send_to`].
    ///
    /// # Errors
    /// As there; `InvalidInput` for another port. For another address the next call fails
    /// (`AddrNotAvailable`).
    pub async fn send_from(
        &self,
        buf: &[u8],
        source: SocketAddr,
        target: SocketAddr,
    ) -> io::Result<usize> {
        self.writing(|handle| handle.try_send_from(buf, source, target)).await
    }

    /// Answers a datagram from the address and port, and by the interface, that it came to: what a
    /// service on an unspecified address should do where the host has several. Otherwise as
    /// [`UdpSocket::send_to`].
    ///
    /// # Errors
    /// As there.
    pub async fn reply(&self, buf: &[u8], received: &Received) -> io::Result<usize> {
        self.writing(|handle| handle.try_reply(buf, received)).await
    }

    /// Receives one datagram; what the buffer has no room for is lost. Copies it once. Waits for
    /// one to come. Cancel safe: a dropped call has taken nothing.
    ///
    /// # Errors
    /// An ICMP error about an earlier datagram of ours, once; `BrokenPipe` (the network has ended).
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf).await.map(|received| received.len)
    }

    /// As [`UdpSocket::recv`], with the sender's address. A link-local one has its interface as
    /// scope.
    ///
    /// # Errors
    /// As there.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.receive(buf).await?;
        Ok((received.len, received.from))
    }

    /// As [`UdpSocket::recv`], with all that is known: sender, our address and port that it was
    /// sent to, the interface, and whether it was cut. The sender is written as
    /// [`UdpSocket::recv_from`] writes it.
    ///
    /// # Errors
    /// As there.
    pub async fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        let received = self.reading(|handle| handle.try_recv_from(buf)).await?;
        Ok(self.with_sender_written(received))
    }

    /// The same, with the sender as this socket writes it.
    fn with_sender_written(&self, received: Received) -> Received {
        Received { from: self.sender(&received), ..received }
    }

    /// Copies the oldest datagram and leaves it where it is.
    ///
    /// # Errors
    /// As [`UdpSocket::recv`]: a pending error is taken.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.reading(|handle| handle.try_peek_from(buf)).await.map(|received| received.len)
    }

    /// As [`UdpSocket::peek`], with the sender's address.
    ///
    /// # Errors
    /// As there.
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.reading(|handle| handle.try_peek_from(buf)).await?;
        Ok((received.len, self.sender(&received)))
    }

    /// The sender of the oldest datagram, which stays in the queue.
    ///
    /// # Errors
    /// As [`UdpSocket::peek`].
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.peek_from(&mut []).await.map(|(_, from)| from)
    }

    /// Runs `what` where the socket is ready, and again when it returns `WouldBlock`.
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

    /// Reads, and waits where nothing is there.
    async fn reading<R>(&self, mut read: impl FnMut(&UdpHandle) -> io::Result<R>) -> io::Result<R> {
        self.until(WaitDirection::Read, &mut read).await
    }

    /// Writes, and waits where that cannot be.
    async fn writing<R>(
        &self,
        mut write: impl FnMut(&UdpHandle) -> io::Result<R>,
    ) -> io::Result<R> {
        self.until(WaitDirection::Write, &mut write).await
    }

    async fn until<R>(
        &self,
        direction: WaitDirection,
        attempt: &mut impl FnMut(&UdpHandle) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let tried = poll_fn(|cx| readiness::attempt(cx, || attempt(&self.handle))).await;
            if let Some(done) = tried {
                return done;
            }
            let mut ready = pin!(self.handle.ready(direction));
            poll_fn(|cx| {
                self.name_group(direction);
                ready.as_mut().poll(cx)
            })
            .await?;
        }
    }

    /// Names the runtime that is about to wait.
    fn name_group(&self, direction: WaitDirection) {
        let group = self.network.group();
        match direction {
            WaitDirection::Read => self.handle.set_read_group(group),
            WaitDirection::Write => self.handle.set_write_group(group),
        }
    }

    /// The address that it is bound to.
    fn own_ip(&self) -> IpAddr {
        self.handle.local_addr().ip()
    }

    fn sender(&self, received: &Received) -> SocketAddr {
        self.as_written(with_scope(received.from, received.iface))
    }

    /// An address as the socket's family writes it: an IPv6 socket calls an IPv4 peer by its mapped
    /// address.
    fn as_written(&self, addr: SocketAddr) -> SocketAddr {
        match addr {
            SocketAddr::V4(v4) if self.v6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            addr => addr,
        }
    }
}

/// Opens a socket. A dropped socket holds its port until its worker has processed the drop, and a
/// program that drops one and binds another at once must not fail by that: where a port is in use,
/// the workers finish their earlier requests, and then the bind is repeated. The same is done while
/// too many requests wait: they are answered in microseconds, and a program that binds many sockets
/// at once must not have to count.
async fn open(
    network: &Network,
    addr: SocketAddr,
    settings: SocketSettings,
) -> io::Result<UdpHandle> {
    let mut settles = 0;
    loop {
        match network.remote().bind_udp(addr, settings.clone()).await {
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

/// A sender, a link-local one with the interface on which it is known.
fn with_scope(from: SocketAddr, iface: IfIndex) -> SocketAddr {
    match from {
        SocketAddr::V6(mut from) if from.ip().is_unicast_link_local() => {
            from.set_scope_id(u32::from(iface.0));
            from.into()
        }
        from => from,
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local", &self.handle.local_addr())
            .finish_non_exhaustive()
    }
}
