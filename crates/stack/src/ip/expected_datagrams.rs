//! `ExpectedDatagrams`: where datagrams led that sockets have taken lately.
//!
//! Filled in and read by `udp_predict.rs`, where its bound is described ("Under flood"). Plain
//! data: one entry for each number of a flow, overwritten by what comes second from other ends.

use core::net::IpAddr;

use floodwall_base::{Endpoint, IfIndex};

/// Flows that are remembered.
pub(super) const FLOWS_EXPECTED: usize = 16;

/// Where datagrams of these ends led.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedDatagram {
    pub(super) local: Endpoint,
    pub(super) remote: Endpoint,
    pub(super) iface: IfIndex,
    /// Under which state of addresses and rules, and of the sockets.
    pub(super) generation: u32,
    pub(super) demux_changes: u32,
    /// The socket.
    pub(super) index: u32,
    /// Ends that came once.
    pub(super) tag: u32,
}

impl ExpectedDatagram {
    pub(super) const NONE: Self = Self {
        local: Endpoint::new(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0),
        remote: Endpoint::new(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0),
        iface: IfIndex(u16::MAX),
        generation: 0,
        demux_changes: 0,
        index: u32::MAX,
        tag: 0,
    };
}

/// Where datagrams led that sockets have taken lately.
#[derive(Debug)]
pub(crate) struct ExpectedDatagrams {
    pub(super) flows: [ExpectedDatagram; FLOWS_EXPECTED],
    pub(super) misses: u8,
}

impl ExpectedDatagrams {
    pub(crate) const NONE: Self =
        Self { flows: [ExpectedDatagram::NONE; FLOWS_EXPECTED], misses: 0 };
}

/// A number that two flows rarely share.
#[inline]
pub(super) fn tag_of(local: &Endpoint, remote: &Endpoint) -> u32 {
    let (ours, theirs) = (local.addr.to_bits(), remote.addr.to_bits());
    let ports = u32::from(remote.port) << 16 | u32::from(local.port);
    let addrs = (theirs as u64 ^ (theirs >> 64) as u64).rotate_left(7) ^ ours as u64;
    (addrs as u32 ^ (addrs >> 32) as u32 ^ ports).wrapping_mul(0x9e37_79b1) | 1
}

#[inline]
pub(super) const fn place_of(tag: u32) -> usize {
    (tag >> 28) as usize % FLOWS_EXPECTED
}
