//! Sockets of programs on other threads: what a stack decides and sends for them.
//!
//! The sockets themselves, and all that a worker does without its stack, are the crate `remote`.
//! Its types for programs are exported here.

mod connections;
mod control;
mod errors;

pub use floodwall_remote::{
    AskedListen, GroupId, ListenHandle, PendingRequest, Readiness, Remote, RemoteConfig,
    RemoteShard, RuntimeGroup, Segments, SocketChange, SocketCommand, TcpHandle, UdpHandle,
    WaitDirection,
};
