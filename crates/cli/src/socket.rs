//! The control socket: its path, its server, its client.
//!
//! One line of request, one line of JSON as answer, and the connection ends. A capture is the
//! exception: its connection stays open, and a thread of its own writes the stream. A batch of
//! routes follows its line, which announces their length in bytes. The socket is for its owner only
//! (mode 0600).

pub(crate) mod client;
pub(crate) mod path;
pub(crate) mod request;
pub(crate) mod server;

/// Bytes of the longest request, newline included.
pub(crate) const REQUEST_MAX: usize = 512;
/// Bytes of the longest batch of routes: two million lines.
pub(crate) const LONG_MAX: usize = 128 << 20;
