//! Fair shares by source prefix: which prefix holds most of a bounded resource.
//!
//! Used wherever remote peers can fill something: connection places and connection memory. A full
//! resource makes room at the expense of the prefix that holds most, so that one network cannot
//! shut out the others (max-min fairness). Start reading at [`Shares`]. Invariants: nothing here
//! reads a clock, allocates after construction or depends on the order of a hash table; the owner
//! of the resource carries out the decisions.
//!
//! Two levels: a prefix is an IPv4 /24 or an IPv6 /48, which is what one subscriber or site usually
//! has; within it the single IPv4 address and the IPv6 /64 are told apart as well, so that an
//! honest host beside an attacker's in one prefix keeps its share of what the prefix has.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

mod level;
mod shares;

pub use shares::{ShareId, Shares};
