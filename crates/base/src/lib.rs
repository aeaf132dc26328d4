//! The vocabulary of the Floodwall stack: types that every crate uses, without behaviour.
//!
//! Addresses and prefixes, time, randomness, the keyed hash, drop reasons, counters, limits. Every
//! crate may import this one; it imports none of them. Start reading at [`DropReason`] and
//! [`limits`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod addr;
mod bucket;
mod counter;
mod drop_reason;
mod flow;
mod flow_words;
mod hash;
mod ids;
mod index_lists;
pub mod limits;
mod mac;
mod place_id;
mod port_set;
mod rand;
mod seq;
mod steering;
mod time;
mod wheel;

pub use addr::{
    Address, Family, IpCidr, ParsePrefixError, Prefix, ipv4_is_configurable, ipv4_is_reserved,
    ipv4_source_is_plausible, ipv6_source_is_plausible, solicited_node,
};
pub use bucket::{Price, TokenBucket};
pub use counter::{Counter, Counters};
pub use drop_reason::{DropCounts, DropReason};
pub use flow::{Endpoint, FlowKey, ResolvedRoute};
pub use flow_words::FlowWords;
pub use hash::HashKey;
pub use ids::{CoreId, IfIndex, Mss, NumaNode, Units, WorkerId};
pub use index_lists::IndexLists;
pub use mac::{MacAddr, ParseMacError};
pub use port_set::PortSet;
pub use rand::{PublicRandom, Randomness, SecretRandom};
pub use seq::Seq;
pub use steering::Steering;
pub use time::Instant;
pub use wheel::TimerWheel;
