//! A segment that belongs to no connection: a handshake's, or nobody's.
//!
//! Called by `intake.rs`. What a listener is not concerned with is owed a reset (RFC 9293 section
//! 3.10.7.1), unless it is one. Invariant: no connection is made but by a proof.

use floodwall_base::{DropReason, FlowKey, IfIndex, Seq};
use floodwall_packet::PacketBuf;
use floodwall_wire::tcp::{TcpFields, TcpFlags};
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use super::Verdict;
use crate::connection::{Handshake, clamp_mss, family};
use crate::mss::default_mss;
use crate::output::assemble;
use crate::rcv::shift_for;
use crate::segment::{Reset, Segment};
use crate::tcp::{Lend, Tcp, Transmit};
use crate::timestamps::TimestampClock;

impl Tcp {
    pub(super) fn unclaimed(
        &mut self,
        lend: &mut Lend<'_>,
        flow: FlowKey,
        iface: IfIndex,
        segment: Segment,
        payload: PacketBuf,
    ) -> Verdict {
        if let Some(listener) = self.listeners.lookup(&flow, iface) {
            if segment.flags.0 & 0x17 == TcpFlags::SYN.0 {
                return self.on_syn(lend, listener, flow, &segment);
            }
            if segment.has(TcpFlags::ACK) && !segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST)
                && self.on_proof(lend, listener, flow, &segment)
            {
                return self.segment(lend, flow, iface, segment, payload);
            }
        }
        refused(flow, &segment)
    }

    fn on_syn(
        &mut self,
        lend: &mut Lend<'_>,
        listener: u32,
        flow: FlowKey,
        segment: &Segment,
    ) -> Verdict {
        let Some((settings, _)) = self.listeners.of_new(listener) else {
            return refused(flow, segment);
        };
        let limit = settings.receive_bytes;
        let options = &segment.options;
        let shake = Handshake {
            iss: self.isn.isn(&flow, lend.now),
            irs: segment.seq,
            mss: options.mss.map_or(default_mss(family(&flow)).0, clamp_mss),
            window_scale: options.window_scale,
            our_window_scale: shift_for(limit),
            our_window: u16::try_from(limit).unwrap_or(u16::MAX),
            sack: options.sack_permitted,
            timestamp: options.timestamps.map(|timestamps| timestamps.value),
        };
        self.half_open.retain(|(other, _)| *other != flow);
        self.half_open.push((flow, shake));
        let clock = TimestampClock::of(&self.clock, &flow).value(lend.now);
        let answer = TcpOptionSet {
            mss: Some(1460),
            window_scale: shake.window_scale.map(|_| shake.our_window_scale),
            sack_permitted: shake.sack,
            timestamps: shake.timestamp.map(|echo| Timestamps { value: clock, echo }),
            ..TcpOptionSet::NONE
        };
        let fields = TcpFields {
            src_port: flow.local.port,
            dst_port: flow.remote.port,
            seq: shake.iss.0,
            ack: (shake.irs + 1).0,
            flags: TcpFlags::SYN | TcpFlags::ACK,
            window: shake.our_window,
            urgent: 0,
        };
        match assemble(lend.pool, &flow, &fields, &answer, None) {
            Some(packet) => Verdict::Answered(Transmit::of(packet, &flow)),
            None => Verdict::Dropped(DropReason::NoBuffer),
        }
    }

    /// Whether the segment proves a handshake, whose connection there is now.
    fn on_proof(
        &mut self,
        lend: &mut Lend<'_>,
        listener: u32,
        flow: FlowKey,
        segment: &Segment,
    ) -> bool {
        let at = self.half_open.iter().position(|(other, _)| *other == flow);
        let Some((at, shake)) = at.and_then(|at| Some((at, self.half_open.get(at)?.1))) else {
            return false;
        };
        if segment.ack != shake.iss + 1 || !self.listeners.has_room(listener) {
            return false;
        }
        let _: Seq = shake.irs;
        self.half_open.swap_remove(at);
        self.establish(lend, listener, flow, 1500, &shake).is_some()
    }
}

fn refused(flow: FlowKey, segment: &Segment) -> Verdict {
    let reason = DropReason::TcpNoConnection;
    match Reset::answer(flow, segment) {
        Some(reset) => Verdict::Refused(reset, reason),
        None => Verdict::Dropped(reason),
    }
}
