//! `RxCoalesce`: consecutive segments of one connection, coalesced and processed as one (generic
//! receive offload, GRO).
//!
//! Used by the stack for all segments of a burst; the run is ended after the last one
//! ([`ConnectionTable::end_train`]). Each segment is validated as usual, checksum included; the
//! common work is done once: the acknowledgment, the window, the timestamps, timers and events. One
//! acknowledgment answers all of them. Unlike GRO in Linux, no packet longer than the link's MTU is
//! built. Invariants: a run is the data that the connection expects next, in order and in its
//! window, with nothing but text; a segment is never processed before an earlier one; no run
//! outlives its burst. Not here: out-of-order arrivals, which are acknowledged one by one (RFC 5681
//! section 4.2).
//!
//! # Under flood
//! An attacker that cannot guess the next sequence number begins no run. Bound: the packets of
//! one burst. Work per segment: a comparison of ten words.

pub(crate) mod run;

use floodwall_base::{DropReason, FlowKey, Seq};
use floodwall_packet::PacketBuf;
use floodwall_syncache::HalfOpen;

use self::run::{CoalescedEnd, is_plain};
use crate::connection::Connection;
use crate::connection_table::{ConnectionTable, TcpContext};
use crate::input::InputOutcome;
use crate::segment::Segment;

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
    /// Appends a segment, with text from the given byte of the packet, to the run, or begins one;
    /// returns the packet where neither is possible.
    #[inline]
    pub(super) fn join(
        &mut self,
        flow: &FlowKey,
        segment: &Segment,
        (packet, text): (PacketBuf, usize),
    ) -> Result<(), PacketBuf> {
        let begins = self.rx_coalesce.is_empty();
        if begins {
            let at = self.find_again(flow).ok().and_then(|index| self.at(index));
            match at.filter(|connection| connection.expects(segment)) {
                Some(connection) => self.rx_coalesce.edge = connection.rcv.edge,
                None => return Err(packet),
            }
        } else if !self.rx_coalesce.goes_on_with(flow, segment) {
            return Err(packet);
        }
        let packet = packet.middle(text, segment.len as usize);
        if begins {
            self.rx_coalesce.first = Some((*flow, Segment { len: 0, ..*segment }));
        }
        self.rx_coalesce.add(packet);
        Ok(())
    }

    /// Whether a run is pending.
    #[inline]
    #[must_use]
    pub fn has_train(&self) -> bool {
        !self.rx_coalesce.is_empty()
    }

    /// Whether a segment of `len` bytes at `seq` continues the run. The caller has compared its
    /// headers with those of the previous segment.
    #[inline]
    #[must_use]
    pub fn follows(&self, seq: Seq, len: u32) -> bool {
        self.rx_coalesce.goes_on_at(seq, len)
    }

    /// Appends the text of a segment that [`ConnectionTable::follows`] to the run.
    #[inline]
    pub fn follow(&mut self, text: PacketBuf) {
        self.rx_coalesce.add(text);
    }

    /// Ends the run: its connection processes it. `None` where there is none.
    pub fn end_train(&mut self, lend: &mut TcpContext<'_>) -> Option<CoalescedEnd> {
        let (flow, segment) = self.rx_coalesce.first.take()?;
        let texts = self.rx_coalesce.texts.take();
        let count = texts.len() as u32;
        let Ok(index) = self.find_again(&flow) else {
            // The connection has ended meanwhile, for a reason other than a segment.
            return Some(CoalescedEnd { count, dropped: Some(DropReason::TcpNoConnection) });
        };
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            return Some(CoalescedEnd { count, dropped: Some(DropReason::TcpNoConnection) });
        };
        let outcome = connection.input_train(&mut cx, &segment, texts);
        self.settle(index, lend.now);
        let dropped = match outcome {
            InputOutcome::Taken => None,
            InputOutcome::Dropped(reason) | InputOutcome::Reset(_, reason) => Some(reason),
        };
        Some(CoalescedEnd { count, dropped })
    }
}
