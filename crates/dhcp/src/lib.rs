//! The DHCPv4 client (RFC 2131) as values: bytes, time and randomness in, events out.
//!
//! Called by `stack`, once for each interface that asks. `client.rs` is the state machine,
//! `lease.rs` judges what a server says, `names.rs` reads its domains. Invariants: nothing is
//! allocated; whatever a server says, what is kept of it has a fixed size; what is not an answer to
//! our own question is told by its first bytes. The codec is `floodwall_wire::dhcpv4`.
//!
//! # Under flood
//! Reachable by anyone on the link who sees our broadcast questions, which carry the number that an
//! answer must have: DHCP has no secret. Bound: one offer and one lease, of fixed size
//! (`DHCP_ROUTES_MAX` routes, `DHCP_DNS_MAX` servers, `DHCP_NAMES_BYTES` bytes of domains). Worst
//! work per packet: two passes over its options, at most `DHCP_MESSAGE_BYTES_MAX` bytes; sixteen
//! bytes looked at where it answers no question of ours. The first offer that can be used is taken.
//! What honest traffic loses: a liar on the link can give a wrong address or take one away (RFC
//! 2131 section 7); it costs us one exchange each time, at growing intervals
//! ([`BACK_OFF_MAX`]), and `FloodwallDhcpRefused` and `stat` tell of it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod client;
mod few;
mod lease;
mod names;

pub use client::{BACK_OFF_MAX, DhcpClient, DhcpState, End, Event, Transmission};
pub use few::Few;
pub use lease::{Lease, LeaseRoute, Refused};
pub use names::Names;
