//! A segment on its way to its connection: read, handed over alone or with others of its burst, and
//! what becomes of it.
//!
//! Called by `deliver.rs` with what the network layer has admitted, and by `admit.rs` with what it
//! need not be asked about. Invariants: of a segment alone the answer leaves without a list; what
//! no connection takes is counted once, where its verdict is known.

use floodwall_base::{DropReason, FlowKey, IfIndex};
use floodwall_ip::{ArrivedHeading, ArrivedUpper};
use floodwall_packet::PacketBuf;
use floodwall_tcp::{ArrivedSegment, SegmentInput, SegmentVerdict};

use super::{FlowEnds, direct, ends_of};
use crate::ip::ip_family::IpFamily;
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Where a segment came from: the places of its IP and TCP headers, its interface with the MTU on
/// the way back, and whether an earlier one between these addresses was admitted.
pub(super) struct SegmentOrigin {
    pub(super) places: [usize; 2],
    pub(super) link: (IfIndex, u32),
    pub(super) is_admitted: bool,
}

impl Stack {
    /// A segment for one of our addresses.
    pub(crate) fn tcp_input<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        ascent: RxMeta<A>,
        upper: ArrivedUpper,
    ) {
        if self.tcp.is_none() {
            return self.drop_packet(packet, DropReason::TcpNoConnection);
        }
        let RxMeta { l3, iface, to_group, .. } = ascent;
        let ArrivedHeading { src_addr, dst_addr, .. } = ascent.heading;
        let l4 = l3 + upper.offset;
        let group = to_group || packet.is_link_group();
        let congestion = direct::is_marked::<A>(&packet, l3, &mut self.stats.access);
        let input = SegmentInput {
            src_addr: src_addr.to_ip(),
            dst_addr: dst_addr.to_ip(),
            iface,
            l4,
            len: packet.len().saturating_sub(l4),
            mtu: 0,
            group,
            congestion,
        };
        let (mut arrived, mut lend) = (ArrivedSegment::NONE, lend!(self, cx));
        let read = arrived.read(&mut lend, &input, &packet, &mut self.stats.access);
        let mtu = if read.is_ok() { self.mtu_back(cx, &arrived, iface) } else { 0 };
        let origin = SegmentOrigin { places: [l3, l4], link: (iface, mtu), is_admitted: false };
        self.tcp_segment(cx, packet, read.map(|()| &arrived), &origin);
    }

    /// A segment that was read, of a packet that the network layer has admitted.
    pub(super) fn tcp_segment(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        read: Result<&ArrivedSegment, DropReason>,
        origin: &SegmentOrigin,
    ) {
        let arrived = match read {
            Ok(arrived) => arrived,
            Err(reason) => return self.tcp_unread(cx, packet, reason),
        };
        let Some(tcp) = &mut self.tcp else {
            return self.drop_packet(packet, DropReason::TcpNoConnection);
        };
        // Only text is coalesced.
        if tcp.set.has_train() || self.burst.more_arrives && arrived.segment.len > 0 {
            return self.tcp_segment_of_burst(cx, packet, arrived, origin);
        }
        if let Some(tap) = &mut self.tap {
            tap.hold(&packet);
        }
        let (mut reply, mut lend) = (None, lend!(self, cx));
        let verdict = tcp.set.input_replying(&mut lend, arrived, origin.link, packet, &mut reply);
        self.burst.follow.stop();
        match verdict {
            SegmentVerdict::Taken => self.tcp_taken(&arrived.flow, origin),
            SegmentVerdict::Replied => self.stats.outcomes.delivered += 1,
            other => self.tcp_answer(cx, other),
        }
        if let Some(segment) = reply {
            self.tcp_reply_on(cx, &arrived.flow, segment);
        }
        self.tcp_transmit(cx);
    }

    /// The same of a segment that may join others of its burst.
    #[inline(never)]
    fn tcp_segment_of_burst(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        arrived: &ArrivedSegment,
        origin: &SegmentOrigin,
    ) {
        if arrived.segment.len > 0 {
            match ends_of(&arrived.flow) {
                FlowEnds::V4(ends) => self.tcp_follow(&packet, ends, origin.places),
                FlowEnds::V6(ends) => self.tcp_follow(&packet, ends, origin.places),
            }
        }
        if let Some(tap) = &mut self.tap {
            tap.hold(&packet);
        }
        let Some(tcp) = &mut self.tcp else { return };
        let (mut ended, mut lend) = (None, lend!(self, cx));
        let verdict = tcp.set.input_of_burst(&mut lend, arrived, origin.link, packet, &mut ended);
        if verdict.is_some() {
            self.burst.follow.stop();
        }
        match verdict {
            None => {
                self.tcp_admitted(&arrived.flow, origin);
                if ended.is_none() {
                    return;
                }
            }
            Some(SegmentVerdict::Taken) => self.tcp_taken(&arrived.flow, origin),
            Some(other) => self.tcp_answer(cx, other),
        }
        if let Some(ended) = ended {
            self.stats.note_coalesced(ended);
        }
        self.tcp_transmit(cx);
    }

    /// A segment that could not be read.
    #[cold]
    fn tcp_unread(&mut self, cx: &mut RoundContext<'_>, packet: PacketBuf, reason: DropReason) {
        if let Some(tap) = &mut self.tap {
            tap.hold(&packet);
        }
        self.burst.follow.stop();
        self.stats.drops_in.count(reason);
        self.tap_dropped_held(reason);
        self.tcp_transmit(cx);
    }

    /// A connection has taken a segment.
    #[inline(always)]
    fn tcp_taken(&mut self, flow: &FlowKey, origin: &SegmentOrigin) {
        self.tcp_admitted(flow, origin);
        self.stats.outcomes.delivered += 1;
    }

    /// What becomes of a segment that no connection took: it is counted, and answered.
    #[cold]
    fn tcp_answer(&mut self, cx: &mut RoundContext<'_>, verdict: SegmentVerdict) {
        let (answer, dropped) = match verdict {
            SegmentVerdict::Taken | SegmentVerdict::Replied => (None, None),
            SegmentVerdict::Answered(transmit) => (Some(transmit), None),
            SegmentVerdict::Dropped(reason) => (None, Some(reason)),
            SegmentVerdict::Refused(reset, reason) => (self.tcp_refuse(cx, &reset), Some(reason)),
        };
        match dropped {
            None => self.stats.outcomes.delivered += 1,
            Some(reason) => {
                self.stats.drops_in.count(reason);
                self.tap_dropped_held(reason);
            }
        }
        if let Some(transmit) = answer {
            self.tcp_send(cx, transmit);
        }
    }
}
