//! Sockets of programs that run on other threads than the workers, without any runtime.
//!
//! A program has a [`Remote`] and makes [`UdpHandle`]s with it; a worker's stack has the
//! [`RemoteShard`] that belongs to it. They share a slab of slots, allocated at the start: two
//! one-word mailboxes, send credit and two wakers each; a doorbell per worker lists the slots that
//! need service. Binds and other rare commands go to the control shard through a bounded queue. The
//! stack is above this crate: what it decides and sends for programs stands there. The design, its
//! figures and rejected alternatives: `docs/design/ownership.md`.
//!
//! Invariants: a worker takes no lock that a program's thread may hold, and no memory per datagram;
//! credit and receive limits count true bytes; what a program has sent leaves in its order; a slot
//! is reused only after its program has dropped it and every shard has released it.
//!
//! # Under flood
//! Peers fill a socket's receive mailbox: bounded by the socket's receive limit, as its local queue
//! would be (`udp/intake.rs`). Programs fill the rest: `REMOTE_SOCKETS_MAX` slots, their credit,
//! `REMOTE_REQUESTS_MAX` commands. Worst work in a round: `REMOTE_SLOTS_ROUND` slots of
//! `REMOTE_SLOT_BYTES` each; what is left is first in line in the next.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod command;
mod config;
mod entry;
mod envelope;
mod errno;
mod handle;
mod request;
mod segment_history;
mod segments;
mod sender;
mod shard;
mod shared;
mod slot;
mod tcp;
mod waiters;
mod wake;

/// What a worker's stack needs besides [`RemoteShard`]: programs' requests, and what they carry.
pub mod worker {
    pub use super::envelope::Envelope;
    pub use super::errno::Errno;
    pub use super::request::{Reply, RequestAddrs, RequestKind, SocketRequest};
    pub use super::shard::connections::DroppedConnection;
    pub use super::shard::{ShardKeeper, ShardNews};
    pub use super::slot::SlotId;
    pub use super::tcp::{Listen, PendingOpen, TcpRequest};
}

#[cfg(test)]
mod tests;

pub use command::{SocketChange, SocketCommand};
pub use config::RemoteConfig;
pub use entry::Remote;
pub use handle::UdpHandle;
pub use request::PendingRequest;
pub use segments::Segments;
pub use shard::RemoteShard;
pub use tcp::{AskedListen, ListenHandle, TcpHandle};
pub use waiters::{Readiness, WaitDirection};
pub use wake::GroupId;
pub use wake::runtime_group::RuntimeGroup;
