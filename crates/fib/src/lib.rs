//! Routes: longest-prefix match, next hops, rules, lifetimes.
//!
//! [`Fib`] has the tables of one family, and one writer: the control shard of `stack`.
//! [`FibReader`] is what every worker looks routes up with, without a lock, under a view of the
//! host's reclamation domain. A burst of destinations in, a burst of ways out; scalar is a burst of
//! one. Invariant: what a look-up returns is the longest prefix, of these the lowest metric, of
//! these the most preferred and then the oldest; an expired route is absent by the reader's own
//! clock check, and uncovers what is behind it at once (decision E21). [`lpm`] is the trie that a
//! large table is made of. Not here: redirects and what is known of a path's MTU (`ip`),
//! neighbours.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod burst;
mod change;
mod collect;
mod config;
mod dump;
mod error;
pub mod exceptions;
pub mod expiry;
mod fib;
mod heads;
mod hop_writer;
mod hops;
mod index;
mod keyed;
mod leave;
mod lifetimes;
mod load;
pub mod lpm;
mod marks;
mod next_hop;
mod objects;
mod query;
mod reader;
mod records;
mod route;
mod rule;
mod table;
#[cfg(test)]
mod tests;

pub use change::{Put, Selector};
pub use config::FibConfig;
pub use dump::Dump;
pub use error::{Named, RouteError};
pub use fib::Fib;
pub use load::LoadError;
pub use next_hop::{Found, Leg, Member, NextHop, NextHopId};
pub use objects::ShownHop;
pub use query::Query;
pub use reader::{BoundFib, FibReader};
pub use route::{Route, RouteKind, RoutePreference, RouteProtocol, TableId};
pub use rule::{Rule, RuleAction, RuleError};
