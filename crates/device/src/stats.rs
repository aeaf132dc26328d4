//! What a device carried, and what it lost, each loss under its name.
//!
//! Read by `dispatch` for its snapshots and by the programs for their output.

/// Counts of one device since it was opened.
///
/// `rx_packets` are those handed to the caller; everything else that arrived is in exactly one of
/// the rx losses, in `rx_syns_answered` or in `rx_redirected`. `tx_packets` are those that the
/// other side or the system took; everything else that left the caller's list is in exactly one of
/// the tx losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Packets handed to the caller.
    pub rx_packets: u64,
    /// Their bytes, link headers included.
    pub rx_bytes: u64,
    /// Packets that left.
    pub tx_packets: u64,
    /// Their bytes, link headers included.
    pub tx_bytes: u64,
    /// Dropped by the system before we saw them: its ring was full.
    pub rx_ring_full: u64,
    /// Dropped because the packet pool was empty.
    pub rx_no_buffer: u64,
    /// Dropped because they were longer than what the device was ready to take.
    pub rx_truncated: u64,
    /// Dropped because the system's description of them made no sense.
    pub rx_malformed: u64,
    /// Lost on arrival on purpose, by a wrapper that disturbs.
    pub rx_injected: u64,
    /// Refused at the interface under pressure, as triage would have: a group as link source.
    pub rx_source_group: u64,
    /// The same: of a VLAN that is not ours.
    pub rx_vlan_foreign: u64,
    /// The same: neither IP nor ARP.
    pub rx_kind_unknown: u64,
    /// The same: an IP header of another version, or one that claims more than arrived.
    pub rx_header_malformed: u64,
    /// Dropped at the interface, under pressure: the destination is not an address of this host.
    pub rx_address_foreign: u64,
    /// Dropped at the interface, under pressure: the destination port has no socket.
    pub rx_port_closed: u64,
    /// Lost at the interface, under pressure or not: from where the access list lets nothing in.
    pub rx_denied: u64,
    /// Packets of unverified flows dropped at the interface, beyond the worker's credit.
    pub rx_unverified: u64,
    /// Segments of no known connection and without a cookie of ours dropped at the interface
    /// under pressure: the worker granted no more.
    pub rx_segments: u64,
    /// Dropped by an XDP interface's program: of an unverified flow, beyond what its service
    /// (protocol and port) has of the credit.
    pub rx_service_full: u64,
    /// Dropped by an XDP interface's program: of an unverified flow, beyond what its source's
    /// prefix (/24, /64) has of its service's part.
    pub rx_prefix_full: u64,
    /// Dropped by an XDP interface's program under pressure: of an established flow, beyond what
    /// its progress (new data, new acknowledgments, datagrams taken) allows.
    pub rx_flow_full: u64,
    /// Dropped by an XDP interface's program under pressure: of an established flow, beyond what
    /// its source's prefix (/24, /64) has of the room for established flows.
    pub rx_flow_prefix_full: u64,
    /// Dropped by an XDP interface's program, under pressure or not: for a group or a broadcast,
    /// beyond what passes to the host and to us in a second.
    pub rx_group_full: u64,
    /// SYNs that the program at the interface answered by itself; no loss.
    pub rx_syns_answered: u64,
    /// Packets of a router that the program at the interface passed on to another one of ours, for
    /// hosts that talk; no loss. They are among no interface's `rx_packets` and `tx_packets`.
    pub rx_redirected: u64,
    /// Their bytes, link headers included.
    pub rx_redirected_bytes: u64,
    /// ACKs that the program at the interface found to carry a cookie of ours; they are among
    /// `rx_packets`.
    pub rx_cookies_proven: u64,
    /// ACKs without a valid cookie; what became of them is counted elsewhere.
    pub rx_cookies_forged: u64,
    /// Looks, one a second, that found our program gone from its interface: another program of the
    /// system took it off. It is attached again as soon as its place is free.
    pub rx_program_lost: u64,
    /// Times that the program of a `packet:` interface was attached because of a flood.
    pub rx_program_attached: u64,
    /// Refused by the device for good: too long, malformed, or a kind it cannot carry.
    pub tx_refused: u64,
    /// Dropped because the interface was down.
    pub tx_down: u64,
    /// Lost on departure on purpose, by a wrapper that disturbs.
    pub tx_injected: u64,
}

impl DeviceStats {
    /// Every count with its name, in the order of the fields.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 33] {
        [
            ("rx_packets", self.rx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_packets", self.tx_packets),
            ("tx_bytes", self.tx_bytes),
            ("rx_ring_full", self.rx_ring_full),
            ("rx_no_buffer", self.rx_no_buffer),
            ("rx_truncated", self.rx_truncated),
            ("rx_malformed", self.rx_malformed),
            ("rx_injected", self.rx_injected),
            ("rx_source_group", self.rx_source_group),
            ("rx_vlan_foreign", self.rx_vlan_foreign),
            ("rx_kind_unknown", self.rx_kind_unknown),
            ("rx_header_malformed", self.rx_header_malformed),
            ("rx_address_foreign", self.rx_address_foreign),
            ("rx_port_closed", self.rx_port_closed),
            ("rx_denied", self.rx_denied),
            ("rx_unverified", self.rx_unverified),
            ("rx_segments", self.rx_segments),
            ("rx_service_full", self.rx_service_full),
            ("rx_prefix_full", self.rx_prefix_full),
            ("rx_flow_full", self.rx_flow_full),
            ("rx_flow_prefix_full", self.rx_flow_prefix_full),
            ("rx_group_full", self.rx_group_full),
            ("rx_syns_answered", self.rx_syns_answered),
            ("rx_redirected", self.rx_redirected),
            ("rx_redirected_bytes", self.rx_redirected_bytes),
            ("rx_cookies_proven", self.rx_cookies_proven),
            ("rx_cookies_forged", self.rx_cookies_forged),
            ("rx_program_lost", self.rx_program_lost),
            ("rx_program_attached", self.rx_program_attached),
            ("tx_refused", self.tx_refused),
            ("tx_down", self.tx_down),
            ("tx_injected", self.tx_injected),
        ]
    }

    /// All losses on arrival.
    #[must_use]
    pub const fn rx_lost(&self) -> u64 {
        self.rx_ring_full
            + self.rx_no_buffer
            + self.rx_truncated
            + self.rx_malformed
            + self.rx_injected
            + self.rx_refused()
            + self.rx_denied
            + self.rx_unverified
            + self.rx_segments
            + self.rx_service_full
            + self.rx_prefix_full
            + self.rx_flow_full
            + self.rx_flow_prefix_full
            + self.rx_group_full
    }

    /// Of these, what was refused at the interface because triage would have dropped it.
    #[must_use]
    pub const fn rx_refused(&self) -> u64 {
        self.rx_source_group
            + self.rx_vlan_foreign
            + self.rx_kind_unknown
            + self.rx_header_malformed
            + self.rx_address_foreign
            + self.rx_port_closed
    }

    /// All losses on departure.
    #[must_use]
    pub const fn tx_lost(&self) -> u64 {
        self.tx_refused + self.tx_down + self.tx_injected
    }

    /// Adds another device's counts: for the queues of one interface.
    pub const fn merge(&mut self, other: &Self) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.rx_ring_full += other.rx_ring_full;
        self.rx_no_buffer += other.rx_no_buffer;
        self.rx_truncated += other.rx_truncated;
        self.rx_malformed += other.rx_malformed;
        self.rx_injected += other.rx_injected;
        self.rx_source_group += other.rx_source_group;
        self.rx_vlan_foreign += other.rx_vlan_foreign;
        self.rx_kind_unknown += other.rx_kind_unknown;
        self.rx_header_malformed += other.rx_header_malformed;
        self.rx_address_foreign += other.rx_address_foreign;
        self.rx_port_closed += other.rx_port_closed;
        self.rx_denied += other.rx_denied;
        self.rx_unverified += other.rx_unverified;
        self.rx_segments += other.rx_segments;
        self.rx_service_full += other.rx_service_full;
        self.rx_prefix_full += other.rx_prefix_full;
        self.rx_flow_full += other.rx_flow_full;
        self.rx_flow_prefix_full += other.rx_flow_prefix_full;
        self.rx_group_full += other.rx_group_full;
        self.rx_syns_answered += other.rx_syns_answered;
        self.rx_redirected += other.rx_redirected;
        self.rx_redirected_bytes += other.rx_redirected_bytes;
        self.rx_cookies_proven += other.rx_cookies_proven;
        self.rx_cookies_forged += other.rx_cookies_forged;
        self.rx_program_lost += other.rx_program_lost;
        self.rx_program_attached += other.rx_program_attached;
        self.tx_refused += other.tx_refused;
        self.tx_down += other.tx_down;
        self.tx_injected += other.tx_injected;
    }

    /// Counts one packet handed to the caller.
    #[inline]
    pub(crate) const fn count_rx(&mut self, bytes: usize) {
        self.rx_packets += 1;
        self.rx_bytes += bytes as u64;
    }

    /// Counts one packet that left.
    #[inline]
    pub(crate) const fn count_tx(&mut self, bytes: usize) {
        self.tx_packets += 1;
        self.tx_bytes += bytes as u64;
    }
}
