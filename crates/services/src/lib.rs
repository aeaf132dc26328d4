//! Services that run on a stack's own core, for trying a host out and for measuring it.
//!
//! Echo, discard and chargen (RFC 862, 863, 864) over UDP and TCP, and HTTP. Each is an
//! [`Application`](floodwall_stack::Application): a `Host` serves it in turns beside its packets.
//! None answers a well-known port by itself, none sends over UDP more than it received. Start
//! reading at `tcp_service.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod http_request;
mod http_service;
mod ready_queue;
mod service_listener;
mod tcp_service;
mod udp_service;

pub use http_service::{StreamKind, StreamService};
pub use tcp_service::TcpService;
pub use udp_service::UdpService;

/// What a service does with a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// Sends it back (RFC 862).
    Echo,
    /// Forgets it (RFC 863).
    Discard,
    /// Sends back as many printable characters (RFC 864, but never more than it received).
    Chargen,
}
