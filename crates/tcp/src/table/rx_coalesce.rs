//! `RxCoalesce`: consecutive segments of one connection, coalesced and processed as one (generic
//! receive offload, GRO).
//!
//! Used by the stack for all segments of a burst; the train is ended after the last one
//! ([`ConnectionTable::end_train`]). Each segment is validated as usual, checksum included; the
//! common work is done once: the acknowledgment, the window, the timestamps, timers and events. One
//! acknowledgment answers all of them. Unlike GRO in Linux, no packet longer than the link's MTU is
//! built. Invariants: a train is the data that the connection expects next, in order and in its
//! window, with nothing but text; a segment is never processed before an earlier one; no train
//! outlives its burst. Not here: out-of-order arrivals, which are acknowledged one by one (RFC 5681
//! section 4.2).
//!
//! # Under flood
//! An attacker that cannot guess the next sequence number begins no train. Bound: the packets of
//! one burst. Work per segment: a comparison of ten words.

use floodwall_base::{DropReason, FlowKey, Seq};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_syncache::HalfOpen;
use floodwall_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::connection_table::{ConnectionTable, TcpContext};
use crate::input::InputOutcome;
use crate::segment::Segment;

/// The current train of coalesced segments, if any.
#[derive(Default)]
pub(crate) struct RxCoalesce {
    /// The header of the first segment, with the total text length; `None` where there is no train.
    first: Option<(FlowKey, Segment)>,
    texts: PacketList,
    /// The right edge of the window when the train began.
    edge: Seq,
}

/// The outcome of the segments of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrainEnd {
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

    /// Whether a segment has the same header fields as the train and continues at its end.
    #[inline]
    fn goes_on_with(&self, flow: &FlowKey, segment: &Segment) -> bool {
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
    fn goes_on_at(&self, seq: Seq, len: u32) -> bool {
        let next = self.first.as_ref().map(|(_, first)| first.seq + first.len);
        next == Some(seq) && (seq + len).is_at_most(self.edge)
    }

    #[inline]
    fn add(&mut self, text: PacketBuf) {
        if let Some((_, first)) = &mut self.first {
            first.len += text.len() as u32;
        }
        self.texts.push_back(text);
    }
}

/// Whether it is text with an acknowledgment, and no other significant flag.
fn is_plain(segment: &Segment) -> bool {
    segment.len > 0
        && segment.flags | TcpFlags::PSH == TcpFlags::ACK | TcpFlags::PSH
        && segment.options.sack[0].is_none()
        && !segment.congestion
}

impl Connection {
    /// Whether a segment is the expected next one, so that later ones may be coalesced with it.
    #[inline]
    pub(crate) fn expects(&self, segment: &Segment) -> bool {
        segment.seq == self.rcv.nxt
            && is_plain(segment)
            && self.hears_only_text()
            && (segment.seq + segment.len).is_at_most(self.rcv.edge)
    }
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// Appends a segment, with text from the given byte of the packet, to the train, or begins one;
    /// returns the packet where neither is possible.
    #[inline]
    pub(super) fn join(
        &mut self,
        flow: &FlowKey,
        segment: &Segment,
        (packet, text): (PacketBuf, usize),
    ) -> Result<(), PacketBuf> {
        let begins = self.train.is_empty();
        if begins {
            let at = self.find_again(flow).ok().and_then(|index| self.at(index));
            match at.filter(|connection| connection.expects(segment)) {
                Some(connection) => self.train.edge = connection.rcv.edge,
                None => return Err(packet),
            }
        } else if !self.train.goes_on_with(flow, segment) {
            return Err(packet);
        }
        let mut packet = packet.without_front(text);
        packet.truncate(segment.len as usize);
        if begins {
            self.train.first = Some((*flow, Segment { len: 0, ..*segment }));
        }
        self.train.add(packet);
        Ok(())
    }

    /// Whether a train is pending.
    #[inline]
    #[must_use]
    pub fn has_train(&self) -> bool {
        !self.train.is_empty()
    }

    /// Whether a segment of `len` bytes at `seq` continues the train. The caller has compared its
    /// headers with those of the previous segment.
    #[inline]
    #[must_use]
    pub fn follows(&self, seq: Seq, len: u32) -> bool {
        self.train.goes_on_at(seq, len)
    }

    /// Appends the text of a segment that [`ConnectionTable::follows`] to the train.
    #[inline]
    pub fn follow(&mut self, text: PacketBuf) {
        self.train.add(text);
    }

    /// Ends the train: its connection processes it. `None` where there is none.
    pub fn end_train(&mut self, lend: &mut TcpContext<'_>) -> Option<TrainEnd> {
        let (flow, segment) = self.train.first.take()?;
        let texts = self.train.texts.take();
        let count = texts.len() as u32;
        let Ok(index) = self.find_again(&flow) else {
            // The connection has ended meanwhile, for a reason other than a segment.
            return Some(TrainEnd { count, dropped: Some(DropReason::TcpNoConnection) });
        };
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            return Some(TrainEnd { count, dropped: Some(DropReason::TcpNoConnection) });
        };
        let outcome = connection.input_train(&mut cx, &segment, texts);
        self.settle(index, lend.now);
        let dropped = match outcome {
            InputOutcome::Taken => None,
            InputOutcome::Dropped(reason) | InputOutcome::Reset(_, reason) => Some(reason),
        };
        Some(TrainEnd { count, dropped })
    }
}
