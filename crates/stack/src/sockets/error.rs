//! Why a socket was not opened (`StartError`), and why a datagram was not sent (`SendError`).
//!
//! Returned by the calls of `sockets.rs`; `remote/errors.rs` gives them the kernel's numbers.

use core::net::IpAddr;

use floodwall_ip::{PingOpenError, RawOpenError};
use floodwall_udp::{BindError, GroupError, OpenError, SendError as UdpSendError};
use thiserror::Error;

/// Why an application's socket was not made.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum StartError {
    /// Not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Not bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The address is none of ours.
    #[error("{0} is no address of this host")]
    NotOurs(IpAddr),
    /// No ping socket.
    #[error(transparent)]
    Ping(#[from] PingOpenError),
    /// No raw socket.
    #[error(transparent)]
    Raw(#[from] RawOpenError),
    /// TCP does not listen.
    #[error(transparent)]
    Tcp(#[from] crate::tcp::error::TcpError),
    /// A group was not joined.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// Why a datagram was not sent.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The socket refused it.
    #[error(transparent)]
    Socket(#[from] UdpSendError),
    /// No route leads there.
    #[error("no route leads to {0}")]
    NoRoute(IpAddr),
    /// No address of ours may be used towards it.
    #[error("no source address for {0}")]
    NoSource(IpAddr),
    /// The socket is bound to an address that was taken away, or is not ours at present.
    #[error("{0}, to which the socket is bound, is no address of this host now")]
    AddressGone(IpAddr),
    /// The socket is not connected, and no destination was given.
    #[error("the socket is not connected and no destination was given")]
    NotConnected,
}
