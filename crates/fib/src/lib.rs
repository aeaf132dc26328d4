//! Longest-prefix match.
//!
//! A small ordered table behind the interface that the full-table trie takes over: a burst of
//! destinations in, a burst of routes out, scalar is a burst of one. Called by `stack`. Invariant:
//! what a lookup returns is the longest prefix, of these the lowest metric, of these the oldest;
//! an expired route is absent by the reader's own clock check (decision E21).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod lpm;
mod route;
mod table;

pub use route::{Route, RouteKind, RouteProtocol};
pub use table::{AddRouteError, Fib};
