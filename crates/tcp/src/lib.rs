//! TCP (RFC 9293): a connection is a value that takes segments, time and what its user wants, and
//! returns what is to be done.
//!
//! Called by `stack`. Invariant: nothing here sends, reads a clock, draws randomness or allocates
//! for a packet; memory comes from pools that were taken at the start (decision B9). Not here:
//! half-open connections of listeners (`syncache`), addresses and routes (`ip`), who waits for a
//! connection (`stack`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod challenge;
pub mod congestion;
pub mod isn;
pub mod mss;
pub mod prr;
pub mod rack;
pub mod reassembly;
pub mod records;
pub mod recovery;
pub mod rtt;
pub mod scoreboard;
pub mod time_wait;
pub mod timestamps;
