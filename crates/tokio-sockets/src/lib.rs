//! Sockets for programs on tokio, over a Floodwall host that runs on workers of its own.
//!
//! A [`Network`] is a host: devices, addresses, and worker threads. [`UdpSocket`], [`TcpListener`]
//! and [`TcpStream`] are tokio's, name for name; `tests/parity` and `tests/tcp` run one body
//! against both. With the feature `axum` a listener is served by `axum::serve`; hyper takes a
//! stream in `hyper_util`'s `TokioIo`. Reading: `network.rs`, `udp.rs`, `tcp.rs`, then `driver.rs`
//! for how tasks are woken; `docs/design/ownership.md` for why.
//!
//! Invariants: the workers are never waited for with a lock held, and never wait for a task; every
//! future may be dropped at every await; no socket starves another task of its runtime.
//!
//! # What differs from tokio's own socket
//!
//! | | the kernel's socket | ours | why |
//! |---|---|---|---|
//! | bind | `bind(addr)` | `bind(&network, addr)` | there may be several hosts |
//! | names | resolved by the system | only with a resolver | it has no name service |
//! | no route to the destination | at once | by the next call | routes are the workers' |
//! | readiness | cached, may be wrong | exact | the mailbox itself is checked |
//! | ICMP error, `readable()` | does not wake it | wakes it | waiting tasks get the error |
//! | its runtime ends | the socket fails | it works elsewhere | workers are independent |
//! | setters | a system call | wait for the workers: a round | in force on return |
//! | TCP: setters | at once | from the worker's next round | options are the worker's |
//! | TCP: `TcpSocket::bind` | fails at once | error by `connect` or `listen` | so for the port |
//! | TCP: linger above 0 | the close may block | never blocks | no thread may wait |
//! | TCP: several listeners at one port | `SO_REUSEPORT` | one, with a share on each worker | |
//! | raw descriptors, `from_std`, `recv_buf` | there | not there | no descriptor, no `bytes` |
#![forbid(unsafe_code)]

mod addrs;
mod block;
mod builder;
mod drain;
mod driver;
mod error;
mod events;
mod host;
mod host_address;
mod links;
mod network;
mod readiness;
mod tcp;
mod udp;

pub use addrs::{Addrs, Resolver, Resolving, SystemResolver, ToSocketAddrs};
pub use builder::NetworkBuilder;
pub use error::NetworkError;
pub use events::{EVENTS_MAX, HostLease, NetworkEvent, NetworkEvents};
pub use host::{HostChangeError, NEIGHBORS_MAX, ROUTES_MAX};
pub use host_address::HostAddress;
pub use network::{Network, NetworkStats, WorkerStats};
pub use tcp::{
    OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, TcpListener, TcpSocket, TcpStream,
    WriteHalf,
};
pub use udp::{Datagram, UdpSocket};

/// Floods, as a host's events tell them.
pub use floodwall_dispatch::{FloodBegan, FloodEnded, FloodEvent, FloodKind};
/// How connections ended.
pub use floodwall_stack::Drained;
/// Options of a socket, and metadata of a received datagram.
pub use floodwall_stack::remote::Segments;
/// Routes and neighbours of a host.
pub use floodwall_stack::{HostRouteError, NeighborReport, RouteReport};
/// The details of a connection: Linux's `TCP_INFO`, in bytes.
pub use floodwall_tcp::Info as TcpInfo;
/// Keepalive probes of an idle connection.
pub use floodwall_tcp::Keepalive;
pub use floodwall_udp::{Received, SocketSettings};
