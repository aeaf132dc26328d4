//! Expected segments: one that its connection predicts is taken without the general path.
//!
//! Called by `stack`, which reads the headers of a plain segment in one go. What is predicted: a
//! connection that the network layer has admitted packets of before, and since then nothing has
//! changed there; the next sequence number, an acknowledgment of data in flight, timestamps as
//! agreed on and not old, text and FIN within the window while nothing waits out of order, no flag
//! but ACK, PSH and FIN.
//! Invariant: every other segment takes the general path (`intake.rs`), which stays the only place
//! where rules are; what is taken here passes the same handlers as there, in the same order.

use floodwall_base::{DropReason, FlowKey};
use floodwall_checksum::InternetSum;
use floodwall_packet::PacketBuf;
use floodwall_syncache::HalfOpen;
use floodwall_wire::tcp::TcpFlags;

use crate::connection::{Connection, ConnectionContext};
use crate::connection_table::{ConnectionTable, TcpContext};
use crate::flow_admission::FlowAdmission;
use crate::input::InputOutcome;
use crate::segment::Segment;
use crate::transmit::OutgoingSegment;

/// The connection that predicts a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PredictingConnection {
    /// Its place.
    pub index: u32,
    /// The sum of its addresses, protocol and ports, in either direction.
    pub ends: InternetSum,
}

impl Connection {
    /// Whether the segment is the expected next one, with text or without.
    #[inline]
    fn predicts(&self, segment: &Segment, full_too: bool) -> bool {
        let timestamps = segment.options.timestamps;
        segment.seq == self.rcv.nxt
            && self.snd.una.is_at_most(segment.ack)
            && segment.ack.is_at_most(self.snd.nxt)
            && timestamps.is_some() == self.agreed.timestamps
            && !self.probe
            && match (segment.len, segment.has(TcpFlags::FIN)) {
                (0, false) => self.hears_acknowledgments(),
                (0, true) => self.hears_in_order() && self.fits_window(1),
                (len, fin) => {
                    self.hears_only_text()
                        && self.fits_window(len + u32::from(fin))
                        // A full one is coalesced with those behind it.
                        && (full_too || len < u32::from(self.rcv.mss))
                }
            }
    }

    /// Whether the next `len` sequence numbers are in the window.
    #[inline]
    fn fits_window(&self, len: u32) -> bool {
        (self.rcv.nxt + len).is_at_most(self.rcv.edge)
    }

    /// Processes a predicted segment: the steps of the general path that are left.
    #[inline(always)]
    fn input_predicted(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        segment: &Segment,
        text: PacketBuf,
    ) -> InputOutcome {
        if let Some(outcome) = self.refuse_by_timestamp(cx, segment) {
            return outcome;
        }
        // The number acknowledged lies between what is unacknowledged and what was sent.
        if let Some(outcome) = self.take_ack(cx, segment, &[]) {
            return outcome;
        }
        self.note_timestamp(segment, cx.now);
        self.heard = cx.now;
        self.arm_keepalive(&mut cx.records.rare);
        if segment.sequence_len() == 0 {
            return InputOutcome::Taken;
        }
        self.on_next_text(cx, segment, text)
    }
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// Notes that the network layer has admitted a packet of the connection that got the last
    /// segment, if that is one of this flow and it was not noted before, and `may` agrees.
    #[inline]
    pub fn admit(&mut self, flow: &FlowKey, admission: FlowAdmission, may: impl FnOnce() -> bool) {
        let latest = self.latest();
        if let Some(connection) = self.at_mut(latest)
            && connection.path.admission() != admission
            && connection.flow == *flow
            && may()
        {
            connection.path.admit(admission);
        }
    }

    /// The connection that predicts a segment of `flow` with ACK, no flags but PSH and FIN besides,
    /// and no options but timestamps. In a burst `full_too` is false: full segments are coalesced.
    #[inline(always)]
    pub fn predicts(
        &mut self,
        flow: &FlowKey,
        admission: FlowAdmission,
        segment: &Segment,
        full_too: bool,
    ) -> Option<PredictingConnection> {
        let others = TcpFlags::PSH | TcpFlags::FIN;
        debug_assert!(segment.flags | others == TcpFlags::ACK | others);
        // What waits comes first.
        if self.rx_coalesce.is_of(flow) {
            return None;
        }
        let connection = match self.latest_of(flow) {
            Some(connection) => connection,
            None => {
                let FlowKey { local, remote, zone, .. } = *flow;
                let addrs = [local.addr, remote.addr].map(u128::from);
                let is_found = self.find_ends(addrs, [local.port, remote.port], zone);
                is_found.then(|| self.at(self.latest())).flatten()?
            }
        };
        let predicts =
            connection.path.admission() == admission && connection.predicts(segment, full_too);
        let ends = InternetSum::of_u16(connection.rcv.ends_sum);
        predicts.then_some(PredictingConnection { index: self.latest(), ends })
    }

    /// Processes a segment that the connection at `index` predicts; its checksum is valid. Returns
    /// the reason where it was dropped. An acknowledgment that is due at once, where nothing else
    /// is, is returned in `reply`, with its flow: the place may be another's by then.
    #[inline(always)]
    pub fn input_predicted(
        &mut self,
        lend: &mut TcpContext<'_>,
        index: u32,
        segment: &Segment,
        text: PacketBuf,
        reply: &mut Option<(FlowKey, OutgoingSegment)>,
    ) -> Option<DropReason> {
        let others_wait = self.wants_transmit();
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            return Some(DropReason::TcpNoConnection);
        };
        let outcome = connection.input_predicted(&mut cx, segment, text);
        if connection.is_quiet(cx.records) {
            if others_wait {
                self.settle_as(index, lend.now, false);
            } else {
                self.settle_quiet(index, lend.now);
            }
        } else if !others_wait && connection.only_acknowledges(cx.records) {
            let packet = connection.acknowledgment(&mut cx);
            let (flow, segment) =
                (connection.flow, OutgoingSegment::from_connection(packet, connection));
            *reply = segment.map(|segment| (flow, segment));
            self.settle_replied(index, lend.now, reply.is_some());
        } else {
            self.settle(index, lend.now);
        }
        match outcome {
            InputOutcome::Taken => None,
            InputOutcome::Dropped(reason) | InputOutcome::Reset(_, reason) => Some(reason),
        }
    }
}
