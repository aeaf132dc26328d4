//! `TcpError`: why a connection was not opened, or a port not listened on.
//!
//! Returned by the sockets' calls of TCP (`tcp.rs`, `syn.rs`). Plain data.

use core::net::IpAddr;

use floodwall_tcp::{ListenError, OpenError};
use thiserror::Error;

/// Why a connection was not opened, or a port not listened on.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpError {
    /// This stack has no TCP connections.
    #[error("TCP is disabled on this stack: raise tcp_connections_max")]
    Off,
    /// The address is none of ours.
    #[error("{0} is no address of this host")]
    NotOurs(IpAddr),
    /// No route or no source address leads there.
    #[error("no route leads to {0}")]
    NoRoute(IpAddr),
    /// The connection was not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The listener was not opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
}
