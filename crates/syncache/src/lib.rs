//! Half-open TCP connections without connections: a bounded cache of what SYNs said, and cookies
//! for when it overflows (mechanism S3: Lemon, BSDCon 2002; RFC 4987).
//!
//! Called by `tcp`'s listeners and by guards; takes and returns plain values (decision E22).
//! Invariant: no connection memory is spent for a client before it has proved its address. Not
//! here: packets, headers, sockets, timers of connections.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
