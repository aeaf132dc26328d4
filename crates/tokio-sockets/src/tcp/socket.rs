//! `TcpSocket`: options that are set before a connection is opened or a listener is.
//!
//! No resource of the host is used before [`TcpSocket::connect`] or [`TcpSocket::listen`]: those
//! return errors about the bound address.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use floodwall_tcp::{Keepalive, TcpSettings};

use super::listener::TcpListener;
use super::stream::TcpStream;
use crate::network::Network;

/// A TCP socket that is configured before it connects or listens.
pub struct TcpSocket {
    network: Network,
    v6: bool,
    state: RefCell<SocketState>,
}

struct SocketState {
    local: Option<SocketAddr>,
    settings: TcpSettings,
    linger: Option<Duration>,
    reuse_address: bool,
    reuse_port: bool,
}

impl TcpSocket {
    fn new(network: &Network, v6: bool) -> Self {
        let state = SocketState {
            local: None,
            settings: network.tcp_settings(),
            linger: None,
            reuse_address: false,
            reuse_port: false,
        };
        Self { network: network.clone(), v6, state: RefCell::new(state) }
    }

    /// One for IPv4.
    ///
    /// # Errors
    /// Never: the signature is tokio's. The same holds for all calls that only get or set options.
    pub fn new_v4(network: &Network) -> io::Result<Self> {
        Ok(Self::new(network, false))
    }

    /// One for IPv6.
    ///
    /// # Errors
    /// Never.
    pub fn new_v6(network: &Network) -> io::Result<Self> {
        Ok(Self::new(network, true))
    }

    /// Sets our address: an address of the host or the unspecified one, a port or 0.
    ///
    /// # Errors
    /// Not of the socket's family, or bound already (`InvalidInput`); a foreign address or a port
    /// in use is reported by `connect` or `listen`.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if addr.is_ipv6() != self.v6 || state.local.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        state.local = Some(addr);
        Ok(())
    }

    /// What it is bound to; the unspecified address where it is not.
    ///
    /// # Errors
    /// Never.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let any = if self.v6 { "[::]:0" } else { "0.0.0.0:0" };
        let any = any.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(self.state.borrow().local.unwrap_or(any))
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// As [`TcpStream::connect`]; an address of another family (`EAFNOSUPPORT`), a bound address
    /// that is not the host's or is in use (`AddrNotAvailable`).
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        if addr.is_ipv6() != self.v6 {
            return Err(io::Error::from_raw_os_error(97));
        }
        let SocketState { local, settings, linger, .. } = self.state.into_inner();
        let stream = TcpStream::open(&self.network, local, addr, settings).await?;
        stream.set_linger(linger)?;
        Ok(stream)
    }

    /// Listens: at most `backlog` connections of each worker wait to be accepted. (Not tokio's
    /// signature: it is a request to the workers.)
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub async fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let local = self.local_addr()?;
        let SocketState { settings, reuse_port, .. } = self.state.into_inner();
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        if reuse_port {
            return TcpListener::open_shared(&self.network, local, settings, backlog).await;
        }
        TcpListener::open(&self.network, local, settings, backlog).await
    }

    /// Changes what no other call here names: how long and how often a connection is tried, its
    /// segments' size, how it goes on after a pause, its congestion controller.
    pub fn adjust(&self, change: impl FnOnce(&mut TcpSettings)) {
        change(&mut self.state.borrow_mut().settings);
    }

    fn with<R>(&self, act: impl FnOnce(&mut SocketState) -> R) -> io::Result<R> {
        Ok(act(&mut self.state.borrow_mut()))
    }

    /// Whether an address may be bound to again. A connection that was closed never keeps a
    /// listener from its port here, with or without it.
    ///
    /// # Errors
    /// Never.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.with(|state| state.reuse_address)
    }

    /// Sets it.
    ///
    /// # Errors
    /// Never.
    pub fn set_reuseaddr(&self, reuse: bool) -> io::Result<()> {
        self.with(|state| state.reuse_address = reuse)
    }

    /// Whether several may listen at one port that all set it. They accept from one queue, so that
    /// no connection waits for a listener that is slow; the settings of the first are in force.
    ///
    /// # Errors
    /// Never.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.with(|state| state.reuse_port)
    }

    /// Sets it: counts for [`TcpSocket::listen`].
    ///
    /// # Errors
    /// Never.
    pub fn set_reuseport(&self, reuse: bool) -> io::Result<()> {
        self.with(|state| state.reuse_port = reuse)
    }

    /// Whether keepalive probes are sent to a silent peer.
    ///
    /// # Errors
    /// Never.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.with(|state| state.settings.keepalive.is_some())
    }

    /// Sets it, with the times of [`Keepalive::default`].
    ///
    /// # Errors
    /// Never.
    pub fn set_keepalive(&self, on: bool) -> io::Result<()> {
        self.with(|state| state.settings.keepalive = on.then(Keepalive::default))
    }

    /// Sets the keepalive parameters.
    ///
    /// # Errors
    /// Never.
    pub fn set_keepalive_with(&self, keepalive: Keepalive) -> io::Result<()> {
        self.with(|state| state.settings.keepalive = Some(keepalive))
    }

    /// True bytes that may wait to be acknowledged, at most.
    ///
    /// # Errors
    /// Never.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        self.with(|state| state.settings.send_bytes)
    }

    /// Sets it; the size does not follow the path any more.
    ///
    /// # Errors
    /// Never.
    pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<()> {
        self.with(|state| {
            (state.settings.send_bytes, state.settings.send_tuned) = (bytes, false);
        })
    }

    /// True bytes that may wait to be read, at most.
    ///
    /// # Errors
    /// Never.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        self.with(|state| state.settings.receive_bytes)
    }

    /// Sets it; the window that is announced follows it, and the path no more.
    ///
    /// # Errors
    /// Never.
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<()> {
        self.with(|state| {
            let TcpSettings { receive_bytes, receive_tuned, .. } = &mut state.settings;
            (*receive_bytes, *receive_tuned) = (bytes.max(4096), false);
        })
    }

    /// Whether small segments leave at once.
    ///
    /// # Errors
    /// Never.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.with(|state| state.settings.nodelay)
    }

    /// Sets it.
    ///
    /// # Errors
    /// Never.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.with(|state| state.settings.nodelay = nodelay)
    }

    /// The TOS byte of what connections send.
    ///
    /// # Errors
    /// Never.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.with(|state| u32::from(state.settings.traffic_class))
    }

    /// Sets it, but for its two lowest bits, which are congestion's.
    ///
    /// # Errors
    /// `InvalidInput` where it is no byte.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        let class = u8::try_from(tos).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.with(|state| state.settings.traffic_class = class)
    }

    /// The traffic class of what connections send.
    ///
    /// # Errors
    /// Never.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.tos_v4()
    }

    /// Sets it, but for its two lowest bits, which are congestion's.
    ///
    /// # Errors
    /// `InvalidInput` where it is no byte.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.set_tos_v4(tclass)
    }

    /// The value that [`TcpStream::linger`] will return.
    ///
    /// # Errors
    /// Never.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.with(|state| state.linger)
    }

    /// See [`TcpStream::set_linger`].
    ///
    /// # Errors
    /// Never.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.with(|state| state.linger = linger)
    }

    /// Nothing is pending before a connection is opened.
    ///
    /// # Errors
    /// Never.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSocket")
            .field("local", &self.state.borrow().local)
            .finish_non_exhaustive()
    }
}
