//! TCP for programs on other threads: streams, listeners, and the worker's side of both.
//!
//! As for UDP: a slab of slots with two one-word mailboxes each, one doorbell per worker, no lock
//! that a program may hold. A connection belongs to one worker, which owns its slot; so only
//! listeners are repeated on other shards: each shard has one behind the same handle. Invariants:
//! one copy of a byte between a program's memory and the wire in each direction, made by the
//! program's thread (`write.rs`, `stream.rs`; the worker moves chunks); data that was handed to a
//! program and not read closes the receive window towards the peer (backpressure, zero window); a
//! slot is free when its program has dropped it.
//!
//! # Under flood
//! Peers fill accept queues with connections after a complete handshake: bounded by the listener's
//! backlog and by `REMOTE_ACCEPT_MAX` beyond it; each takes one slot of `connections_max`, and
//! where none is free it waits in the engine's queue. Received data is bounded by each connection's
//! receive limit.

mod listener;
mod listening;
mod options;
mod part;
mod request;
mod shared;
mod slot;
mod stream;
mod write;

pub use listener::{AskedListen, ListenHandle};
pub use part::PendingOpen;
pub use request::{Listen, TcpRequest};
pub use stream::TcpHandle;

pub(super) use listening::Listening;
pub(super) use options::StreamOptions;
pub(super) use part::{OpenStreams, TcpLocal, TcpPart};
pub(super) use shared::TcpShared;
pub(super) use slot::{STREAM_ENDED, STREAM_OPENED, STREAM_STOPPED, TcpSlot, TcpSlotFacts};
pub(super) use write::CHUNK_TRUE_BYTES;
