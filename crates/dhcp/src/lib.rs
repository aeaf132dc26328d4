//! DHCP clients as values, of IPv4 (RFC 2131) and IPv6 (RFC 8415): bytes, time and randomness in,
//! events out.
//!
//! Called by `stack`, once for each interface that uses DHCP. `client.rs` is the state machine,
//! `lease.rs` validates what a server sends, `left_out.rs` says what it leaves out, `names.rs`
//! reads its domains. Invariants: nothing is allocated; what is kept of a server's message has a
//! fixed size; a message that does not answer our own request is recognised by its first bytes. The
//! codec is `floodwall_wire::dhcpv4`. IPv6's client is in `v6.rs`, with the same division.
//!
//! # Under flood
//! Reachable by any station on the link that sees our broadcast requests, which carry the
//! transaction id that an answer must have: DHCP has no secret. Bound: one offer and one lease, of
//! fixed size (`DHCP_ROUTES_MAX` routes, `DHCP_DNS_MAX` servers, `DHCP_NAMES_BYTES` bytes of
//! domains). Worst work per packet: two passes over its options, at most `DHCP_MESSAGE_BYTES_MAX`
//! bytes; sixteen bytes where it answers no request of ours. The first offer that can be used is
//! taken. What honest traffic loses: a rogue server on the link can give a wrong address or take
//! one away (RFC 2131 section 7); it costs us one exchange each time, at growing intervals
//! ([`BACK_OFF_MAX`]), and `FloodwallDhcpRefused` and `stat` report it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod array_vec;
mod client;
mod lease;
mod left_out;
mod names;
mod v6;

pub use array_vec::ArrayVec;
pub use client::{BACK_OFF_MAX, DhcpClient, DhcpEvent, DhcpState, LeaseEnd, Transmission};
pub use lease::{Lease, LeaseRefused, LeaseRoute};
pub use left_out::{LeftOut, LeftOutList, RouteFault};
pub use names::Names;
pub use v6::Duid;
pub use v6::client::{Dhcpv6Client, Dhcpv6Event, Dhcpv6State, Dhcpv6Transmission, Dhcpv6Wanted};
pub use v6::lease::{Dhcpv6Lease, Dhcpv6Refused, Dhcpv6Settings};
