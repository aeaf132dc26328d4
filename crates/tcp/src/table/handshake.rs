//! Segments without a connection: for TIME-WAIT, for a handshake, or unmatched.
//!
//! Used by `intake.rs`. A reset is due for a segment that matches no listener (RFC 9293 section
//! 3.10.7.1), unless it is one. Invariant: a passive connection is made only from a [`Proven`] of
//! `syncache` (decision E22).

use core::num::NonZeroU8;

use floodwall_base::{Counter, DropReason, FlowKey, IfIndex, Seq};
use floodwall_packet::PacketBuf;
use floodwall_syncache::{
    AckOutcome, HalfOpen, HandshakeAck, Proven, SegmentKind, SynAck, SynOptions, SynRefusal,
    SynSegment,
};
use floodwall_wire::tcp::{TcpFields, TcpFlags};
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use super::SegmentVerdict;
use crate::connection::{Connection, Handshake, OpenKind, family, rto_config};
use crate::connection_table::{ConnectionTable, TcpContext};
use crate::mss::announced_mss;
use crate::output::assemble;
use crate::rare_state::RareState;
use crate::segment::{ResetSegment, Segment};
use crate::state_slab::StateSlab;
use crate::syn_said::SynKept;
use crate::time_wait::{TimeWait, TimeWaitArrival, TimeWaitVerdict as Waited};
use crate::timestamps::TimestampClock;
use crate::transmit::{OutgoingSegment, SegmentMarks, Transmit};

/// The answer to an ACK that proves no handshake, as one value, so that the verdict is built in one
/// place.
enum Unproven {
    Reset,
    Silence,
}

impl<H: HalfOpen> ConnectionTable<H> {
    pub(super) fn unclaimed(
        &mut self,
        lend: &mut TcpContext<'_>,
        (flow, hash): (&FlowKey, u64),
        (iface, mtu): (IfIndex, u32),
        segment: &Segment,
        packet: (PacketBuf, usize),
        reply: Option<&mut Option<OutgoingSegment>>,
    ) -> SegmentVerdict {
        self.mark_works();
        if !self.time_waits.is_empty()
            && let Some(verdict) = self.in_time_wait(lend, (flow, hash), iface, segment)
        {
            return verdict;
        }
        let Some(listener) = self.listeners.lookup(flow, iface) else {
            return refused(flow, segment);
        };
        match SegmentKind::of(segment.flags.0) {
            SegmentKind::Syn => self.on_syn(lend, listener, (flow, hash), mtu, segment, reply),
            SegmentKind::Ack => match self.on_proof(lend, listener, (flow, hash), mtu, segment) {
                Ok(index) if self.takes_bare_proof(lend, index, segment) => SegmentVerdict::Taken,
                Ok(index) => self.segment_at(lend, index, segment, packet, None),
                Err(Unproven::Reset) => refused(flow, segment),
                Err(Unproven::Silence) => SegmentVerdict::Dropped(DropReason::TcpHandshakeRefused),
            },
            SegmentKind::Reset => {
                // A challenge ACK would need a rate limit shared by all unverified peers, which is
                // a side channel (CVE-2016-5696); an inexact reset is ignored instead.
                let _ = self.half_open.reset(flow, segment.seq, lend.moment());
                SegmentVerdict::Dropped(DropReason::TcpNoConnection)
            }
            SegmentKind::SynAck => refused(flow, segment),
            SegmentKind::Odd => SegmentVerdict::Dropped(DropReason::TcpNoConnection),
        }
    }

    fn on_syn(
        &mut self,
        lend: &mut TcpContext<'_>,
        listener: u32,
        (flow, hash): (&FlowKey, u64),
        mtu: u32,
        segment: &Segment,
        reply: Option<&mut Option<OutgoingSegment>>,
    ) -> SegmentVerdict {
        let Some(half) = self.listeners.half(listener) else { return refused(flow, segment) };
        let options = &segment.options;
        let syn = SynSegment {
            flow: *flow,
            seq: segment.seq,
            window: segment.window,
            options: SynOptions {
                mss: options.mss,
                window_scale: options.window_scale,
                sack: options.sack_permitted,
                timestamp: options.timestamps.map(|timestamps| timestamps.value),
                ecn: segment.has(TcpFlags::ECE | TcpFlags::CWR),
            },
        };
        let answered = self.half_open.syn_hashed(half, &syn, hash, lend.moment());
        match (answered.syn_ack(), answered) {
            (Some(answer), _) => {
                match (self.syn_ack_of(lend, Some(listener), answer, mtu), reply) {
                    (Some(segment), Some(reply)) => {
                        *reply = Some(segment);
                        SegmentVerdict::Replied
                    }
                    (Some(segment), None) => SegmentVerdict::Answered(segment.between(flow)),
                    (None, _) => SegmentVerdict::Dropped(DropReason::NoBuffer),
                }
            }
            (None, floodwall_syncache::SynAnswer::Refused(SynRefusal::NoListener)) => {
                refused(flow, segment)
            }
            _ => SegmentVerdict::Dropped(DropReason::TcpHandshakeRefused),
        }
    }

    /// The packet of a SYN-ACK that [`ConnectionTable::work`] has asked for. Its MSS is that of
    /// `mtu`, the MTU of the link by which it leaves; 0 where that is not known. `None` where the
    /// pool is empty.
    #[must_use]
    pub fn syn_ack(
        &mut self,
        lend: &mut TcpContext<'_>,
        answer: &SynAck,
        mtu: u32,
    ) -> Option<Transmit> {
        let listener = self.listeners.lookup(&answer.flow, answer.flow.zone);
        let segment = self.syn_ack_of(lend, listener, answer, mtu)?;
        Some(segment.between(&answer.flow))
    }

    /// The packet of a SYN-ACK, with its listener's IP header fields.
    fn syn_ack_of(
        &self,
        lend: &mut TcpContext<'_>,
        listener: Option<u32>,
        answer: &SynAck,
        mtu: u32,
    ) -> Option<OutgoingSegment> {
        let settings = listener.and_then(|listener| self.listeners.of_new(listener));
        let settings = settings.map(|(settings, _)| settings);
        let of_path = |_| {
            let mss = announced_mss(family(&answer.flow), mtu).0;
            settings.map_or(mss, |settings| settings.wanted_mss(mss))
        };
        let mss = if mtu == 0 { answer.mss } else { answer.mss.map(of_path) };
        let packet = syn_ack_packet(lend, answer, mss)?;
        let marks = settings.map_or_else(SegmentMarks::default, |settings| SegmentMarks {
            hop_limit: settings.hop_limit.and_then(NonZeroU8::new),
            traffic_class: settings.traffic_class,
            ..SegmentMarks::default()
        });
        Some(OutgoingSegment { packet, marks })
    }

    /// Processes a segment that may prove a handshake; if it does, its connection is created, to
    /// which the segment goes next.
    fn on_proof(
        &mut self,
        lend: &mut TcpContext<'_>,
        listener: u32,
        (flow, hash): (&FlowKey, u64),
        mtu: u32,
        segment: &Segment,
    ) -> Result<u32, Unproven> {
        let half = self.listeners.half(listener).ok_or(Unproven::Reset)?;
        let ack = HandshakeAck {
            flow: *flow,
            seq: segment.seq,
            ack: segment.ack,
            timestamp: segment.options.timestamps.map(|t| (t.value, t.echo)),
        };
        if !self.admits(lend, listener, &ack) {
            return Err(Unproven::Silence);
        }
        match self.half_open.ack_hashed(half, &ack, hash, lend.moment()) {
            AckOutcome::Proven(proven) => {
                self.make_room(lend, Some(flow.remote.ip()));
                self.establish(lend, listener, mtu, (&proven, hash)).ok_or(Unproven::Reset)
            }
            // A cookie is proved by the first byte of the stream alone. Where that was lost, and
            // what comes first is a later segment of the first flight, a reset would end an honest
            // client's connection, while its timeout sends what proves it.
            AckOutcome::Refused(refusal)
                if refusal.wants_reset()
                    && (segment.len > 0 || segment.has(TcpFlags::FIN))
                    && self.half_open.awaits_cookies(half, lend.now) =>
            {
                Err(Unproven::Silence)
            }
            AckOutcome::Refused(refusal) if refusal.wants_reset() => Err(Unproven::Reset),
            AckOutcome::Refused(_) => Err(Unproven::Silence),
        }
    }

    /// Processes the segment that has just proved the connection at `index` where it is a bare
    /// acknowledgment, as nearly all are, without the general path. False of any other, which has
    /// no effect then.
    #[inline]
    fn takes_bare_proof(
        &mut self,
        lend: &mut TcpContext<'_>,
        index: u32,
        segment: &Segment,
    ) -> bool {
        let Some((connection, _)) = self.lent(index, lend) else { return false };
        if !connection.is_bare_proof(segment) {
            return false;
        }
        connection.input_bare_proof(segment);
        self.settle_as(index, lend.now, false);
        true
    }

    /// Creates a connection from a proven handshake and queues it for accept; `None` where no place
    /// is left.
    fn establish(
        &mut self,
        lend: &mut TcpContext<'_>,
        listener: u32,
        mtu: u32,
        (proven, hash): (&Proven, u64),
    ) -> Option<u32> {
        let flow = *proven.flow();
        let taken = match self.listeners.of_new(listener) {
            Some(_) => self.take_place((&flow, hash)),
            None => None,
        };
        let Self { listeners, places, records, .. } = self;
        let found = listeners.of_new(listener).zip(taken);
        let Some(((settings, owner), index)) = found else {
            self.half_open.accepted(proven.slot());
            return None;
        };
        // Without timestamps its clock is shown to nothing.
        let clock = proven.timestamps().map_or_else(TimestampClock::default, |shown| {
            TimestampClock::that_showed(shown.last_sent, lend.now)
        });
        let start = Self::start_with(lend, flow, mtu, settings, (proven.iss(), clock));
        if let Some(place) = places.get_mut(index as usize) {
            let connection = place.fill(&mut records.rare, &start, owner, Some(proven.slot()));
            begin_proven(connection, &mut records.rare, &start, proven);
            place.said = SynKept::of(proven);
        }
        // The segment that proved it is processed next, which settles it.
        self.enter_ledgers(index, listener, flow.remote.ip(), lend.now);
        self.listeners.enqueue(listener, index);
        lend.counters.count(Counter::TcpPassiveOpens);
        self.prefetch(index);
        Some(index)
    }

    /// Processes a segment of a flow in TIME-WAIT.
    fn in_time_wait(
        &mut self,
        lend: &mut TcpContext<'_>,
        (flow, hash): (&FlowKey, u64),
        iface: IfIndex,
        segment: &Segment,
    ) -> Option<SegmentVerdict> {
        let mut arrived = TimeWaitArrival::of(segment);
        if arrived.syn
            && let Some(listener) = self.listeners.lookup(flow, iface)
        {
            let settings = self.listeners.of_new(listener);
            arrived = arrived.of_listener(settings.is_some_and(|(it, _)| it.timestamps));
        }
        match self.time_waits.input_hashed((flow, hash as u32), &arrived, lend.now) {
            Waited::Absent | Waited::Reopen(_) => None,
            Waited::Ignore => Some(SegmentVerdict::Dropped(DropReason::TcpOutOfWindow)),
            Waited::Ack(mut record) => {
                let may = record.challenges.allow(lend.now, &mut lend.random.secret);
                record.syn_answered |= may && arrived.syn;
                self.time_waits.update(flow, record);
                let answer = may.then(|| time_wait_ack(lend, flow, &record)).flatten();
                Some(match answer {
                    Some(transmit) => SegmentVerdict::Answered(transmit),
                    None => SegmentVerdict::Dropped(DropReason::TcpOutOfWindow),
                })
            }
        }
    }

    /// Passes the SYN-ACKs that are due for retransmission to `send`.
    pub(crate) fn resend(
        &mut self,
        lend: &TcpContext<'_>,
        units: floodwall_base::Units,
        send: &mut impl FnMut(&SynAck),
    ) -> floodwall_base::Units {
        self.half_open.work(lend.moment(), units, send)
    }
}

/// Begins the connection of a proven handshake, with what the handshake has measured.
fn begin_proven(
    connection: &mut Connection,
    rare: &mut StateSlab<RareState>,
    start: &OpenKind<'_>,
    proven: &Proven,
) {
    connection.prove(rare, start, &Handshake::of(proven));
    connection.rcv.wait_for_program();
    if proven.retransmitted() > 0 {
        connection.recovery.rtt_mut().syn_was_retransmitted();
        if proven.retransmitted() > 1 {
            connection.recovery.begin_slowly();
        }
    } else if let Some(time) = proven.round_trip() {
        connection.recovery.rtt_mut().sample(time, 1, start.now);
    }
    debug_assert!(connection.rto() <= rto_config().max);
}

fn refused(flow: &FlowKey, segment: &Segment) -> SegmentVerdict {
    let reason = DropReason::TcpNoConnection;
    match ResetSegment::answer(*flow, segment) {
        Some(reset) => SegmentVerdict::Refused(reset, reason),
        None => SegmentVerdict::Dropped(reason),
    }
}

/// The packet of a SYN-ACK with this MSS.
fn syn_ack_packet(
    lend: &mut TcpContext<'_>,
    answer: &SynAck,
    mss: Option<u16>,
) -> Option<PacketBuf> {
    let options = TcpOptionSet {
        mss,
        window_scale: answer.window_scale,
        sack_permitted: answer.sack,
        timestamps: answer.timestamp.map(|(value, echo)| Timestamps { value, echo }),
        ..TcpOptionSet::NONE
    };
    let ecn = if answer.ecn { TcpFlags::ECE } else { TcpFlags::NONE };
    let flags = TcpFlags::SYN | TcpFlags::ACK | ecn;
    let flow = &answer.flow;
    plain(lend, flow, (answer.seq, answer.ack), flags, answer.window, &options)
}

fn time_wait_ack(lend: &mut TcpContext<'_>, flow: &FlowKey, record: &TimeWait) -> Option<Transmit> {
    let timestamps = record
        .timestamps
        .map(|(clock, recent)| Timestamps { value: clock.value(lend.now), echo: recent.echo() });
    let options = TcpOptionSet { timestamps, ..TcpOptionSet::NONE };
    let seqs = (record.snd_nxt, record.rcv_nxt);
    let packet = plain(lend, flow, seqs, TcpFlags::ACK, record.window, &options)?;
    Some(Transmit::of(packet, flow))
}

/// A segment without text that belongs to no connection.
fn plain(
    lend: &mut TcpContext<'_>,
    flow: &FlowKey,
    (seq, ack): (Seq, Seq),
    flags: TcpFlags,
    window: u16,
    options: &TcpOptionSet,
) -> Option<PacketBuf> {
    let fields = TcpFields {
        src_port: flow.local.port,
        dst_port: flow.remote.port,
        seq: seq.0,
        ack: ack.0,
        flags,
        window,
        urgent: 0,
    };
    let packet = assemble(lend.pool, flow, &fields, options, None, false)?;
    lend.counters.count(Counter::TcpOutSegs);
    Some(packet)
}
