//! Sockets for programs on tokio, over a Floodwall host that runs on workers of its own.
//!
//! A [`Network`] is a host: devices, addresses, and worker threads. A [`UdpSocket`] is tokio's,
//! name for name; `tests/parity` runs one body against both. Reading: `network.rs`, `udp.rs`, then
//! `driver.rs` for how tasks are woken; `docs/design/ownership.md` for why.
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
//! | no route to the destination | told at once | told by the next call | routes are the workers' |
//! | readiness | remembered, may be wrong | looked at, exact | the mailbox itself is asked |
//! | ICMP error, `readable()` | does not wake it | wakes it | whoever waits shall hear of it |
//! | its runtime ends | the socket is dead | it goes on elsewhere | workers are no part of it |
//! | setters | a system call | wait for the workers: a round | in force on return |
//! | raw descriptors, `from_std`, `recv_buf` | there | not there | no descriptor, no `bytes` |
#![forbid(unsafe_code)]

mod addrs;
mod block;
mod builder;
mod driver;
mod error;
mod network;
mod udp;

pub use addrs::{Addrs, Resolver, Resolving, SystemResolver, ToSocketAddrs};
pub use builder::NetworkBuilder;
pub use error::NetworkError;
pub use network::{Network, NetworkStats, WorkerStats};
pub use udp::{Datagram, UdpSocket};

/// What a socket can be told, and what a received datagram says of itself.
pub use floodwall_udp::{Received, SocketSettings};
