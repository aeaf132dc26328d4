//! `Transmit`: what the network layer below is asked to send, a segment or an answer to one.
//!
//! Filled by a connection or by the half-open table, one at a time; sent by `stack`.

mod from_connection;

use core::net::IpAddr;
use core::num::NonZeroU8;

use floodwall_base::{FlowKey, IfIndex};
use floodwall_packet::PacketBuf;

/// A segment to be sent.
#[derive(Debug)]
pub struct Transmit {
    /// Begins with the TCP header; checksum complete; headroom for the network header.
    pub packet: PacketBuf,
    /// The source address.
    pub src_addr: IpAddr,
    /// The destination address.
    pub dst_addr: IpAddr,
    /// The interface of link-local addresses.
    pub zone: IfIndex,
    /// The hop limit that the connection sets.
    pub hop_limit: Option<u8>,
    /// The traffic class that the connection sets, except for its two lowest bits.
    pub traffic_class: u8,
    /// Routers may mark it: ECT(0) in its IP header (RFC 3168 section 6.1.2).
    pub ecn_capable: bool,
    /// Routers may fragment it: DF is clear in its IP header. The path carries less than IPv4's
    /// smallest path MTU.
    pub fragmentable: bool,
}

/// A segment to be sent between ends that the caller knows: small, and passed in registers.
#[derive(Debug)]
pub struct OutgoingSegment {
    /// As in [`Transmit`].
    pub packet: PacketBuf,
    /// What the connection sets in the IP header.
    pub marks: SegmentMarks,
}

/// What a connection sets in the IP header of a segment. Compared with those of the one before for
/// each segment: as one number.
#[derive(Clone, Copy, Eq, Default, Debug)]
#[repr(C)]
pub struct SegmentMarks {
    /// The hop limit, where it is not the default.
    pub hop_limit: Option<NonZeroU8>,
    /// The traffic class, except for its two lowest bits.
    pub traffic_class: u8,
    /// Routers may mark it: ECT(0) (RFC 3168 section 6.1.2).
    pub ecn_capable: bool,
    /// Routers may fragment it: DF is clear.
    pub fragmentable: bool,
}

impl PartialEq for SegmentMarks {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl SegmentMarks {
    #[inline(always)]
    const fn number(self) -> u32 {
        let Self { hop_limit, traffic_class, ecn_capable, fragmentable } = self;
        let hop_limit = match hop_limit {
            Some(hop_limit) => hop_limit.get(),
            None => 0,
        };
        u32::from_ne_bytes([hop_limit, traffic_class, ecn_capable as u8, fragmentable as u8])
    }
}

impl OutgoingSegment {
    /// With the ends of its flow.
    pub(crate) fn between(self, flow: &FlowKey) -> Transmit {
        let Self { packet, marks } = self;
        Transmit {
            hop_limit: marks.hop_limit.map(NonZeroU8::get),
            traffic_class: marks.traffic_class,
            ecn_capable: marks.ecn_capable,
            fragmentable: marks.fragmentable,
            ..Transmit::of(packet, flow)
        }
    }
}

impl Transmit {
    /// A packet of this flow.
    #[inline]
    pub(crate) fn of(packet: PacketBuf, flow: &FlowKey) -> Self {
        let (src_addr, dst_addr) = (flow.local.ip(), flow.remote.ip());
        Self {
            packet,
            src_addr,
            dst_addr,
            zone: flow.zone,
            hop_limit: None,
            traffic_class: 0,
            ecn_capable: false,
            fragmentable: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_equal_where_each_of_them_is() {
        let marks = |n: u8| SegmentMarks {
            hop_limit: NonZeroU8::new(n & 1),
            traffic_class: n & 4,
            ecn_capable: n & 8 != 0,
            fragmentable: n & 16 != 0,
        };
        for (a, b) in (0..32).flat_map(|a| (0..32).map(move |b| (a, b))) {
            assert_eq!(marks(a) == marks(b), (a ^ b) & !2 == 0, "{a} {b}");
        }
    }
}
