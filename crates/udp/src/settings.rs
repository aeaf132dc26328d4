//! The settings of a table of sockets and of one socket.
//!
//! Used by `stack`, which maps its configuration and its applications' options here. Defaults are
//! those of `limits.rs` and of Linux.

use core::ops::RangeInclusive;

use floodwall_base::{Family, IfIndex, limits};

use crate::challenge::ChallengeHook;

/// The ephemeral port range (Linux's `ip_local_port_range`).
pub const EPHEMERAL_PORTS: RangeInclusive<u16> = 32_768..=60_999;

/// Of all sockets of one [`crate::Udp`].
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Sockets at most; their tables are allocated at the start.
    pub sockets_max: usize,
    /// Sockets besides these that all shards of a host have under one id ([`crate::Udp::open_as`]).
    pub shared_max: usize,
    /// True bytes that all of them may hold before they are held to less than their own limits; a
    /// sixth of the pool's frames at most (`memory.rs`).
    pub memory_bytes: u64,
    /// Whether sockets with fair drop enabled use it.
    pub fair_drop: bool,
    /// Ports for unnamed sockets.
    pub ephemeral_ports: RangeInclusive<u16>,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            sockets_max: limits::UDP_SOCKETS_MAX,
            shared_max: 0,
            memory_bytes: limits::UDP_MEMORY as u64,
            fair_drop: true,
            ephemeral_ports: EPHEMERAL_PORTS,
        }
    }
}

/// Of one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// An IPv6 socket takes IPv4 too, unless `v6_only`. Fixed when opened.
    pub family: Family,
    /// True bytes that may wait to be read. An empty socket takes one datagram of any size. Never
    /// more than what all sockets leave of [`UdpConfig::memory_bytes`]. While a program on another
    /// thread reads, up to an eighth may still be counted for what it has read.
    pub receive_bytes: u64,
    /// True bytes that may be on their way out.
    pub send_bytes: u64,
    /// No IPv4 on an IPv6 socket. Fixed when bound.
    pub v6_only: bool,
    /// Shares address and port with sockets that also set this. Fixed when bound.
    pub reuse_address: bool,
    /// Shares address and port as `reuse_address` does, and the flows that come there too: each is
    /// one socket's, by a keyed hash (Linux's `SO_REUSEPORT`). Fixed when bound.
    pub spread_flows: bool,
    /// Bound to port 0 it takes every port of its addresses that no other socket takes, and the
    /// application states the source port of each datagram ([`crate::Udp::prepare`]). It receives
    /// no groups and broadcasts. Fixed when bound.
    pub every_port: bool,
    /// May send to a broadcast address.
    pub broadcast: bool,
    /// TTL or hop limit of what is sent to one host; `None` is the stack's default.
    pub hop_limit: Option<u8>,
    /// TTL or hop limit of what is sent to a group.
    pub group_hop_limit: u8,
    /// TOS or traffic class of what is sent.
    pub traffic_class: u8,
    /// Sends no datagram that its link cannot carry whole: it is refused with its limit (Linux's
    /// `IP_PMTUDISC_DO`). Without, a larger one leaves in fragments.
    pub dont_fragment: bool,
    /// Sends without a checksum: IPv4, or IPv6 where the peer opted in too (RFC 6935).
    pub zero_checksum_tx: bool,
    /// Takes IPv6 datagrams without a checksum (RFC 6935, 6936). IPv4 ones are always taken.
    pub zero_checksum_rx: bool,
    /// Receives ICMP errors even where unconnected, and soft ones too (Linux's `IP_RECVERR`).
    pub recv_errors: bool,
    /// Takes datagrams to groups that it has not joined itself (Linux's `IP_MULTICAST_ALL`).
    pub all_groups: bool,
    /// What it sends to a group is received by this host's own members (`IP_MULTICAST_LOOP`).
    pub group_loop: bool,
    /// While it fills up, light senders come before heavy ones (`fair.rs`). Off, it takes what
    /// comes first.
    pub fair_drop: bool,
    /// Notes when each datagram arrived (`SO_TIMESTAMP`), where its device does not.
    pub timestamps: bool,
    /// Reports with each datagram how many were refused until now (`SO_RXQ_OVFL`).
    pub drop_count: bool,
    /// How unverified sources prove their address while it fills up.
    pub challenge: Option<ChallengeHook>,
    /// The interface of what it sends to a group, unless the destination has one
    /// (`IP_MULTICAST_IF`).
    pub group_iface: Option<IfIndex>,
}

impl SocketSettings {
    /// The defaults for one family.
    #[must_use]
    pub const fn new(family: Family) -> Self {
        Self {
            family,
            receive_bytes: limits::UDP_RECEIVE_BYTES as u64,
            send_bytes: limits::UDP_SEND_BYTES as u64,
            v6_only: false,
            reuse_address: false,
            spread_flows: false,
            every_port: false,
            broadcast: false,
            hop_limit: None,
            group_hop_limit: 1,
            traffic_class: 0,
            dont_fragment: false,
            zero_checksum_tx: false,
            zero_checksum_rx: false,
            recv_errors: false,
            all_groups: true,
            group_loop: true,
            fair_drop: true,
            timestamps: false,
            drop_count: false,
            challenge: None,
            group_iface: None,
        }
    }
}
