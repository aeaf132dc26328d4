//! `Train`: segments of one connection that arrive in a row, and are taken as one.
//!
//! Called by the stack for all segments of a burst, which ends the train behind the last one
//! ([`Tcp::end_train`]). Each segment has been checked as ever, its checksum included; what they
//! have in common is looked at once: the acknowledgment, the window, the timestamps, timers and
//! events. One acknowledgment answers them all. What generic receive offload does in Linux, without
//! a packet that is longer than its link carries. Invariants: a train is what the connection
//! expects next, in order and in its window, with nothing but text; nothing that arrives behind a
//! segment overtakes it; no train outlives its burst. Not here: what arrives out of order, which is
//! told to the peer segment by segment (RFC 5681 section 4.2).
//!
//! # Under flood
//! A stranger who cannot guess the next sequence number begins no train. Bound: the packets of one
//! burst. Work per segment: a comparison of ten words.

use floodwall_base::{DropReason, FlowKey, Seq};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_syncache::HalfOpen;
use floodwall_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::input::Outcome;
use crate::segment::Segment;
use crate::tcp::{Lend, Tcp};

/// See the file's head.
#[derive(Default)]
pub(crate) struct Train {
    /// What the first segment said, with the text of all; nothing where there is none.
    first: Option<(FlowKey, Segment)>,
    texts: PacketList,
    /// Where the window ended as the train began.
    edge: Seq,
}

/// What became of the segments of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrainEnd {
    /// How many there were.
    pub count: u32,
    /// Why they died, all of them; nothing where the connection took them.
    pub dropped: Option<DropReason>,
}

impl Train {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether a segment says what the ones before it said, and goes on where they end.
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

    /// Whether `len` bytes of text at `seq` are the next, and in the window.
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

/// Text and an acknowledgment, and nothing else that counts.
fn is_plain(segment: &Segment) -> bool {
    segment.len > 0
        && segment.flags | TcpFlags::PSH == TcpFlags::ACK | TcpFlags::PSH
        && segment.options.sack[0].is_none()
        && !segment.congestion
}

impl Connection {
    /// Whether a segment is what is expected next, so that others may be taken with it.
    #[inline]
    pub(crate) fn expects(&self, segment: &Segment) -> bool {
        segment.seq == self.rcv.nxt
            && is_plain(segment)
            && self.hears_only_text()
            && (segment.seq + segment.len).is_at_most(self.rcv.edge)
    }
}

impl<H: HalfOpen> Tcp<H> {
    /// Puts a segment, whose text begins at a byte of the packet, behind those of the train, or
    /// begins one; gives the packet back where it is neither.
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

    /// Whether segments wait for those behind them.
    #[inline]
    #[must_use]
    pub fn has_train(&self) -> bool {
        !self.train.is_empty()
    }

    /// Whether a segment of `len` bytes at `seq` goes on where the train ends. The caller knows
    /// that its headers say what those of the segment before said.
    #[inline]
    #[must_use]
    pub fn follows(&self, seq: Seq, len: u32) -> bool {
        self.train.goes_on_at(seq, len)
    }

    /// Puts the text of a segment that [`Tcp::follows`] behind the train.
    #[inline]
    pub fn follow(&mut self, text: PacketBuf) {
        self.train.add(text);
    }

    /// Nothing more belongs to the train: its connection takes it. `None` where there is none.
    pub fn end_train(&mut self, lend: &mut Lend<'_>) -> Option<TrainEnd> {
        let (flow, segment) = self.train.first.take()?;
        let texts = self.train.texts.take();
        let count = texts.len() as u32;
        let Ok(index) = self.find_again(&flow) else {
            // It has ended meanwhile, by something else than a segment.
            return Some(TrainEnd { count, dropped: Some(DropReason::TcpNoConnection) });
        };
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            return Some(TrainEnd { count, dropped: Some(DropReason::TcpNoConnection) });
        };
        let outcome = connection.input_train(&mut cx, &segment, texts);
        self.settle(index, lend.now);
        let dropped = match outcome {
            Outcome::Taken => None,
            Outcome::Dropped(reason) | Outcome::Reset(_, reason) => Some(reason),
        };
        Some(TrainEnd { count, dropped })
    }
}
