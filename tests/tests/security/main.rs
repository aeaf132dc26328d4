//! What attackers have done to other stacks, done to this one: each test is one mistake that the
//! industry made, with its CVE or RFC.
//!
//! Floods are counted, not timed: `drill` measures them. That each drop has its reason and its
//! answer is in the `drops_*` tests; here is what only many packets, or all of a kind, show. A
//! "row" in their words is the number of the mistake in the project's list of seventy; row 58,
//! packets in pieces, is also `captures.rs`.

mod any_destination;
mod chains;
mod fragments;
mod games;
mod groups;
mod headers;
mod icmp;
mod memory;
mod neighbors;
mod path_mtu;
mod paths_of_shards;
mod places;
mod ports;
mod recent;
mod redirects;
mod routers;
mod silent_peers;
mod slow_readers;
mod tcp;
mod tcp_memory;
mod transit;
mod turns;
mod udp;
mod udp_memory;

use floodwall_tests::craft::{HOST, PEER};
use floodwall_tests::{Rig, ethernet_config};

/// A host with its peer in the neighbour cache.
fn rig() -> Rig {
    Rig::with_neighbor(&ethernet_config(HOST), PEER)
}
