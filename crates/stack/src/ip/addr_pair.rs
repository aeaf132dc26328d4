//! `AddrPair`: the source and the destination of a packet to be sent.
//!
//! Filled in where a packet is made (`echo.rs`, `errors.rs`, sockets, `tcp.rs`); read by `tx.rs`
//! and `path_cache.rs`. Plain data.

/// Source and destination.
#[derive(Clone, Copy)]
pub(crate) struct AddrPair<A> {
    pub(crate) src_addr: A,
    pub(crate) dst_addr: A,
}
