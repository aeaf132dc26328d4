//! `RxCoalesce`: the current run of coalesced segments, if any.
//!
//! Filled and emptied by `rx_coalesce.rs`, which describes it.

use floodwall_base::{DropReason, FlowKey, Seq};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_wire::tcp::TcpFlags;

use crate::segment::Segment;

/// The current run of coalesced segments, if any.
#[derive(Default)]
pub(crate) struct RxCoalesce {
    /// The header of the first segment, with the total text length; `None` where there is no run.
    pub(super) first: Option<(FlowKey, Segment)>,
    pub(super) texts: PacketList,
    /// The right edge of the window when the run began.
    pub(super) edge: Seq,
}

/// The outcome of the segments of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoalescedEnd {
    /// Number of segments.
    pub count: u32,
    /// Why all of them were dropped; `None` where the connection accepted them.
    pub dropped: Option<DropReason>,
}

impl RxCoalesce {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether segments of this flow wait.
    #[inline]
    pub(crate) fn is_of(&self, flow: &FlowKey) -> bool {
        self.first.as_ref().is_some_and(|(of, _)| of == flow)
    }

    /// Whether a segment has the same header fields as the run and continues at its end.
    #[inline]
    pub(super) fn goes_on_with(&self, flow: &FlowKey, segment: &Segment) -> bool {
        let Some((of, first)) = &self.first else { return false };
        self.goes_on_at(segment.seq, segment.len)
            && is_plain(segment)
            && segment.ack == first.ack
            && segment.window == first.window
            && segment.options.timestamps == first.options.timestamps
            && of == flow
    }

    /// Whether `len` bytes of text at `seq` are next in order, and in the window.
    #[inline]
    pub(super) fn goes_on_at(&self, seq: Seq, len: u32) -> bool {
        let next = self.first.as_ref().map(|(_, first)| first.seq + first.len);
        next == Some(seq) && (seq + len).is_at_most(self.edge)
    }

    #[inline]
    pub(super) fn add(&mut self, text: PacketBuf) {
        if let Some((_, first)) = &mut self.first {
            first.len += text.len() as u32;
        }
        self.texts.push_back(text);
    }
}

/// Whether it is text with an acknowledgment, and no other significant flag.
pub(super) fn is_plain(segment: &Segment) -> bool {
    segment.len > 0
        && segment.flags | TcpFlags::PSH == TcpFlags::ACK | TcpFlags::PSH
        && segment.options.sack[0].is_none()
        && !segment.congestion
}
