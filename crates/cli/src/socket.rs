//! The control socket: where it lies, who serves it, who asks.
//!
//! One line of request, one line of JSON as answer, and the connection ends. A batch of routes
//! follows its line, which says how many bytes that are. The socket is for
//! its owner only (mode 0600).

pub(crate) mod client;
pub(crate) mod path;
pub(crate) mod request;
pub(crate) mod server;

/// Bytes of the longest request, newline included.
pub(crate) const REQUEST_MAX: usize = 128;
/// Bytes of the longest batch of routes: two million lines.
pub(crate) const LONG_MAX: usize = 128 << 20;
