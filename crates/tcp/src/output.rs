//! Output: what may be sent now, one segment at a time.
//!
//! Called by `connection_table.rs` while a connection has output; each call returns one segment or
//! none. The order: a reset, a SYN, retransmissions, new data, the FIN, a probe, an acknowledgment.
//! Invariants: every segment but the first SYN acknowledges all received data; payload is borrowed
//! from the send half, never copied; the checksum is complete. Reading: RFC 9293 sections 3.7
//! (segmentation) and 3.8.6.2.1 (when to send), RFC 5681.

mod run;

use core::hint::cold_path;
use core::time::Duration;

use floodwall_base::{Counter, FlowKey, Instant, Seq};
use floodwall_checksum::InternetSum;
use floodwall_packet::{ChecksumState, PacketBuf, PacketList, Pool};
use floodwall_wire::tcp::{HEADER_LEN, STAMPED_LEN, SYN_LEN, TcpFields, TcpFlags};
use floodwall_wire::tcp_options::{SynNumbers, TcpOptionSet, Timestamps};

use crate::connection::{Connection, ConnectionContext, ConnectionDue};
use crate::connection_flags::ConnectionFlags;
use crate::delayed_ack::DELAYED_ACK_TIME;
use crate::memory::Scarcity;
use crate::pseudo_header::{pseudo_header, pseudo_header_of_any};
use crate::rare_state::RareState;
use crate::segment::ResetSegment;
use crate::sent_segments::SentSegments;
use crate::state::{StateStep, TcpState};
use crate::state_slab::StateSlab;
use crate::timer::{AckDelay, RareTimer, TimerKind};

/// Offset of the checksum in a header (RFC 9293 section 3.1).
const CHECKSUM_AT: core::ops::Range<usize> = 16..18;
/// Maximum size of the lower headers: IPv6, and Ethernet with a tag.
const LOWER_HEADERS: usize = 40 + 18;
/// How long to wait where the pool has no memory for a header.
const MEMORY_RETRY: Duration = Duration::from_millis(10);

/// Output that failed for lack of memory is retried later.
struct NoBuffer;

impl Connection {
    /// The next segment to send: a packet that begins with its TCP header. Where more segments of
    /// the same run may be sent at once, they are appended to `rest`, at most `most` including the
    /// first.
    pub(crate) fn output(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        most: u32,
        rest: &mut PacketList,
    ) -> Option<PacketBuf> {
        if self.only_acknowledges(cx.records) {
            return self.acknowledgment(cx);
        }
        match self.next_segment(cx, most, rest) {
            Ok(packet) => packet,
            Err(NoBuffer) => self.output_later(cx),
        }
    }

    /// [`Connection::output`] of a connection that only acknowledges.
    #[inline]
    pub(crate) fn acknowledgment(&mut self, cx: &mut ConnectionContext<'_>) -> Option<PacketBuf> {
        match self.plain(cx, self.snd.nxt) {
            Ok(packet) => Some(packet),
            Err(NoBuffer) => self.output_later(cx),
        }
    }

    /// Nothing is lost: the timer retries.
    #[cold]
    #[inline(never)]
    fn output_later(&mut self, cx: &mut ConnectionContext<'_>) -> Option<PacketBuf> {
        self.set_rare_timer(&mut cx.records.rare, RareTimer::Retry, cx.now + MEMORY_RETRY);
        None
    }

    fn next_segment(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        most: u32,
        rest: &mut PacketList,
    ) -> Result<Option<PacketBuf>, NoBuffer> {
        if self.due.has(ConnectionDue::RST) {
            let reset = self.reset(cx)?;
            self.due = ConnectionDue::default();
            return Ok(Some(reset));
        }
        match self.state() {
            TcpState::Closed | TcpState::Listen => {
                self.due = ConnectionDue::default();
                return Ok(None);
            }
            TcpState::SynSent | TcpState::SynReceived => return self.syn(cx),
            _ => {}
        }
        if let Some(packet) = self.lost(cx)? {
            return Ok(Some(packet));
        }
        if let Some(packet) = self.news(cx, most, rest)? {
            return Ok(Some(packet));
        }
        if self.due.has(ConnectionDue::PROBE) {
            let packet = self.plain(cx, self.snd.una - 1)?;
            self.due.remove(ConnectionDue::PROBE);
            return Ok(Some(packet));
        }
        if self.due.has(ConnectionDue::ACK) {
            return self.plain(cx, self.snd.nxt).map(Some);
        }
        Ok(None)
    }

    /// [`Connection::output`] of a connection that has just been opened: its SYN.
    pub(crate) fn first_syn(&mut self, cx: &mut ConnectionContext<'_>) -> Option<PacketBuf> {
        match self.syn(cx) {
            Ok(packet) => packet,
            Err(NoBuffer) => self.output_later(cx),
        }
    }

    /// A SYN or, in SYN-RECEIVED, the SYN-ACK; with all options that we support.
    fn syn(&mut self, cx: &mut ConnectionContext<'_>) -> Result<Option<PacketBuf>, NoBuffer> {
        let answers = self.state() == TcpState::SynReceived;
        if !self.due.has(ConnectionDue::SYN) {
            if answers && self.due.has(ConnectionDue::ACK) {
                return self.plain(cx, self.snd.nxt).map(Some);
            }
            self.due = ConnectionDue::default();
            return Ok(None);
        }
        let flags = if answers { TcpFlags::SYN | TcpFlags::ACK } else { TcpFlags::SYN };
        // In the SYN-ACK, only options that the peer offered too.
        let offered = |ours: bool, both: bool| if answers { both } else { ours };
        let options = TcpOptionSet {
            mss: Some(self.our_mss),
            window_scale: offered(self.offers.scale(), self.agreed.scaled)
                .then_some(self.rcv.shift),
            sack_permitted: offered(self.offers.sack(), self.agreed.sack),
            timestamps: offered(self.offers.timestamps(), self.agreed.timestamps)
                .then(|| self.timestamps(cx)),
            ..TcpOptionSet::NONE
        };
        let flags = flags | self.marks_of_syn(answers);
        let window = self.syn_window() as u16;
        let packet = self.build(cx, self.snd.iss, flags, window, &options, None)?;
        if answers {
            self.rcv.edge = self.rcv.edge.later(self.rcv.nxt + u32::from(window));
        }
        self.due.remove(ConnectionDue::SYN);
        self.due.remove(ConnectionDue::ACK);
        if self.snd.nxt == self.snd.iss {
            self.snd.nxt = self.snd.iss + 1;
            self.heard = cx.now;
        }
        self.timers.set(TimerKind::Retransmit, self.open_until(&cx.records.rare, cx.now));
        Ok(Some(packet))
    }

    /// The window field of a SYN, which is never scaled (RFC 7323 section 2.2).
    pub(crate) fn syn_window(&self) -> u32 {
        self.rcv.limit.min(u32::from(u16::MAX))
    }

    fn timestamps(&self, cx: &ConnectionContext<'_>) -> Timestamps {
        Timestamps { value: self.clock.value(cx.now), echo: self.recent.echo() }
    }

    /// The options of a segment after the handshake.
    fn options(&mut self, cx: &ConnectionContext<'_>) -> TcpOptionSet {
        let timestamps = self.agreed.timestamps.then(|| self.timestamps(cx));
        let mut options = TcpOptionSet { timestamps, ..TcpOptionSet::NONE };
        if self.agreed.sack {
            let (duplicate, most) = (self.take_duplicate(&cx.records.rare), self.sack_blocks_max());
            options.sack = self.out_of_order.sack_blocks(cx.runs, duplicate, most);
        }
        options
    }

    /// A retransmission, as far as congestion control permits.
    fn lost(&mut self, cx: &mut ConnectionContext<'_>) -> Result<Option<PacketBuf>, NoBuffer> {
        if self.probe {
            return self.tail_probe(cx);
        }
        if self.recovery.allowance(cx.records) == 0 {
            return Ok(None);
        }
        let Some((from, len)) = self.recovery.next_lost(cx.records) else { return Ok(None) };
        self.again(cx, from, len).map(Some)
    }

    /// A tail loss probe: new data, or the last segment again (RFC 8985 section 7.3).
    fn tail_probe(
        &mut self,
        cx: &mut ConnectionContext<'_>,
    ) -> Result<Option<PacketBuf>, NoBuffer> {
        let fits = self.snd.unsent().min(self.snd.usable()).min(self.segment_room());
        let is_new = fits > 0 && self.recovery.board().can_record(cx.records);
        let packet = match is_new {
            true => self.fresh(cx, fits)?,
            false => match self.recovery.tail(cx.records) {
                Some((start, len)) => Some(self.again(cx, start, len)?),
                None => {
                    // It has arrived meanwhile.
                    self.probe = false;
                    return Ok(None);
                }
            },
        };
        self.recovery.on_probe_sent(cx.records, !is_new, cx.now);
        self.probe = false;
        Ok(packet)
    }

    /// Retransmits one segment.
    fn again(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        from: Seq,
        len: u32,
    ) -> Result<PacketBuf, NoBuffer> {
        let data_end = self.snd.data_end();
        let data = if from.is_before(data_end) { data_end.since(from) } else { 0 };
        let data = data.min(len).min(self.segment_room());
        let payload = match data {
            0 => None,
            data => Some(self.snd.again(from, data, cx.pool).ok_or(NoBuffer)?),
        };
        let data = payload.as_ref().map_or(0, |payload| payload.len() as u32);
        // The FIN is retransmitted as it was sent: alone if it was sent alone.
        let fin = self.snd.fin_sent && from + data == data_end && data < len;
        let packet = self.text(cx, from, (payload, None), fin, TcpFlags::NONE)?;
        self.recovery.on_retransmitted(cx.records, from, data + u32::from(fin), cx.now);
        cx.counters.count(Counter::TcpRetransSegs);
        Ok(packet)
    }

    /// Whether anything other than an acknowledgment may be sent.
    pub(crate) fn has_news(&self, records: &SentSegments) -> bool {
        let again =
            || self.recovery.next_lost(records).is_some() && self.recovery.allowance(records) > 0;
        self.state().is_synchronized()
            && self.state() != TcpState::TimeWait
            && (self.probe || again() || self.may_send(records) > 0 || self.may_finish(records))
    }

    /// Writes `bytes` that leave at once as one segment, past the queue of unsent data, and returns
    /// its packet: as [`Connection::send`] and [`Connection::output_written`]. `None`, without an
    /// effect, where they do not, or where anything else is pending. One body for both families, in
    /// which the connection is in a register.
    #[inline(never)]
    pub(crate) fn write_through(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        bytes: &[u8],
    ) -> Option<Option<PacketBuf>> {
        let len = bytes.len() as u32;
        let (room, limit) = (self.segment_room(), self.send_limit());
        let leaves = self.state() == TcpState::Established
            && (self.due == ConnectionDue::default() || self.due == ConnectionDue::ACK)
            && len > 0
            && self.snd.unsent() == 0
            && !self.snd.fin
            && !self.probe
            && self.error.is_none()
            && !self.flags.has(ConnectionFlags::CORK.and(ConnectionFlags::LIMITS_UNSENT))
            && self.snd.scarcity != Scarcity::NoFrame
            && (self.has_nodelay() || !self.snd.has_short_outstanding())
            && len <= room
            && len <= self.snd.usable()
            && len <= self.recovery.allowance(cx.records)
            && self.snd.held() < limit
            && self.recovery.next_lost(cx.records).is_none()
            && self.recovery.board().can_record(cx.records);
        if !leaves {
            return None;
        }
        if self.flags.has(ConnectionFlags::RESTARTS_SLOWLY) {
            let agreement = self.agreement();
            if self.recovery.before_sending(cx.records, &agreement, cx.now)
                && self.recovery.allowance(cx.records) < len
            {
                return None;
            }
        }
        let (packet, sum) = self.snd.write_through(bytes, !cx.partial, cx.pool)?;
        if self.snd.una + len == self.snd.nxt {
            self.stalled = cx.now;
        }
        if self.flags.has(ConnectionFlags::MORE) {
            self.flags.set(ConnectionFlags::MORE, false);
        }
        self.crowded |= self.fills(limit);
        // What could not be built counts as sent: the timer retransmits it.
        match self.departs(cx, Some(packet), Some(sum), room) {
            Ok(packet) => Some(packet),
            Err(NoBuffer) => Some(self.output_later(cx)),
        }
    }

    /// The segment of what was just written, where that is one at most and nothing else is pending:
    /// [`Connection::output`] with what may be sent asked once. `None` where more is pending.
    pub(crate) fn output_written(
        &mut self,
        cx: &mut ConnectionContext<'_>,
    ) -> Option<Option<PacketBuf>> {
        let owes_ack = self.due == ConnectionDue::ACK;
        let is_one = self.state() == TcpState::Established
            && (owes_ack || self.due == ConnectionDue::default())
            && !self.snd.fin
            && self.snd.unsent() <= self.mss()
            && !self.probe
            && self.recovery.next_lost(cx.records).is_none();
        let len = if is_one { self.may_send(cx.records) } else { 0 };
        if len == 0 {
            return (is_one && !owes_ack).then_some(None);
        }
        if self.flags.has(ConnectionFlags::RESTARTS_SLOWLY) {
            let agreement = self.agreement();
            if self.recovery.before_sending(cx.records, &agreement, cx.now)
                && self.recovery.allowance(cx.records) < len
            {
                return None;
            }
        }
        match self.fresh(cx, len) {
            Ok(packet) => Some(packet),
            Err(NoBuffer) => Some(self.output_later(cx)),
        }
    }

    /// Whether our FIN may be sent and nothing else is pending but an acknowledgment, which it
    /// carries.
    pub(crate) fn only_finishes(&self, records: &SentSegments) -> bool {
        (self.due == ConnectionDue::ACK || self.due == ConnectionDue::default())
            && !self.probe
            && self.may_finish(records)
            && self.recovery.next_lost(records).is_none()
    }

    /// [`Connection::output`] of a connection that only finishes.
    pub(crate) fn finish_sending(&mut self, cx: &mut ConnectionContext<'_>) -> Option<PacketBuf> {
        if self.snd.una == self.snd.nxt {
            self.stalled = cx.now;
        }
        let room = self.segment_room();
        match self.departs(cx, None, None, room) {
            Ok(packet) => packet,
            Err(NoBuffer) => self.output_later(cx),
        }
    }

    /// Whether an acknowledgment is pending and nothing else is, nor may become so by sending it.
    #[inline]
    pub(crate) fn only_acknowledges(&self, records: &SentSegments) -> bool {
        self.due == ConnectionDue::ACK
            && self.state().is_synchronized()
            && self.snd.unsent() == 0
            && (!self.snd.fin || self.snd.fin_sent)
            && !self.probe
            && self.recovery.next_lost(records).is_none()
    }

    /// Whether nothing is pending, and nothing waits that could be sent.
    #[inline(always)]
    pub(crate) fn is_quiet(&self, records: &SentSegments) -> bool {
        self.due == ConnectionDue::default()
            && self.snd.unsent() == 0
            && !self.snd.fin
            && !self.probe
            && self.recovery.next_lost(records).is_none()
    }

    /// How many new bytes may be sent now (RFC 9293 section 3.8.6.2.1; Nagle's algorithm in
    /// Minshall's form, as in Linux and BSD: one segment that is not full at a time, so that the
    /// tail of a write need not wait for its beginning).
    fn may_send(&self, records: &SentSegments) -> u32 {
        let waits = self.snd.unsent();
        if waits == 0
            || !matches!(self.state(), TcpState::Established | TcpState::CloseWait)
            || !self.recovery.board().can_record(records)
        {
            return 0;
        }
        let usable = self.snd.usable();
        let fits = waits.min(usable).min(self.recovery.allowance(records));
        let mss = self.segment_room();
        let quiet = self.snd.una == self.snd.nxt || !self.snd.has_short_outstanding();
        let worth = fits >= mss
            || fits == waits
                && (self.snd.fin || (self.has_nodelay() || quiet) && !self.holds_back())
            || fits == usable && fits > 0 && fits >= self.snd.wnd_max / 2
            || self.due.has(ConnectionDue::FORCE);
        if worth { fits.min(mss) } else { 0 }
    }

    /// Whether a partial segment is held back, as long as possible: once nothing is in flight,
    /// until the persist timer expires.
    const fn holds_back(&self) -> bool {
        self.flags.has(ConnectionFlags::CORK.and(ConnectionFlags::MORE))
    }

    const fn has_nodelay(&self) -> bool {
        self.flags.has(ConnectionFlags::NODELAY)
    }

    /// Whether the FIN may be sent: after the last byte (RFC 9293 section 3.10.4), and in the
    /// window, of which it takes one number (section 3.4).
    fn may_finish(&self, records: &SentSegments) -> bool {
        self.snd.fin
            && !self.snd.fin_sent
            && self.snd.unsent() == 0
            && self.snd.usable() > 0
            && matches!(self.state(), TcpState::Established | TcpState::CloseWait)
            && self.recovery.board().can_record(records)
    }

    fn news(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        most: u32,
        rest: &mut PacketList,
    ) -> Result<Option<PacketBuf>, NoBuffer> {
        let agreement = self.agreement();
        if self.snd.unsent() > 0 && self.flags.has(ConnectionFlags::RESTARTS_SLOWLY) {
            self.recovery.before_sending(cx.records, &agreement, cx.now);
        }
        let len = self.may_send(cx.records);
        if len == 0 && !self.may_finish(cx.records) {
            self.due.remove(ConnectionDue::FORCE);
            return Ok(None);
        }
        if let Some(larger) = self.size_probe(cx.records, cx.now) {
            let seq = self.snd.nxt;
            let packet = self.fresh(cx, larger);
            self.size_probe_sent(cx.records, seq, (self.snd.nxt.since(seq), larger));
            return packet;
        }
        match self.run_length(cx.records, most) {
            0 => self.fresh(cx, len),
            count => self.run(cx, count, rest),
        }
    }

    /// Sends `len` new bytes, or fewer, and the FIN if it is next.
    #[inline(never)]
    fn fresh(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        len: u32,
    ) -> Result<Option<PacketBuf>, NoBuffer> {
        if self.snd.una == self.snd.nxt {
            self.stalled = cx.now;
        }
        let payload = match len {
            0 => None,
            len => Some(self.snd.take(len, cx.pool).ok_or(NoBuffer)?),
        };
        let room = self.segment_room();
        self.departs(cx, payload, None, room)
    }

    /// Bookkeeping and the segment of what was taken to be sent, with its sum where that is known,
    /// and of the FIN if it is next; `room` is that of a full segment.
    #[inline(always)]
    fn departs(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        payload: Option<PacketBuf>,
        sum: Option<InternetSum>,
        room: u32,
    ) -> Result<Option<PacketBuf>, NoBuffer> {
        self.due.remove(ConnectionDue::FORCE);
        self.note_sent(&cx.records.rare);
        let len = payload.as_ref().map_or(0, |payload| payload.len() as u32);
        // Larger only where that is a probe.
        let unit = room.max(len);
        if len < unit {
            self.snd.short = self.snd.nxt;
        }
        if len > 0 && cx.now.saturating_since(self.heard) < DELAYED_ACK_TIME {
            // The program answers what was received: acknowledgments ride on its data.
            self.rcv.quick = 0;
        }
        let seq = self.snd.nxt - len;
        // Nothing else is sent without text.
        let fin = self.snd.fin && (len == 0 || self.may_finish(cx.records));
        debug_assert!(!fin || self.may_finish(cx.records));
        if fin {
            self.snd.fin_sent = true;
            self.snd.nxt += 1;
            self.step(StateStep::Close);
        }
        // It counts as sent, whether or not a header could be allocated: the timer retransmits it.
        let agreement = self.agreement();
        let sent = (len + u32::from(fin), unit);
        let sent = self.recovery.on_sent(cx.records, sent, &agreement, cx.now);
        debug_assert!(sent, "there was room for a record");
        let marks = self.marks_of_news(len);
        self.text(cx, seq, (payload, sum), fin, marks).map(Some)
    }

    /// Data waits, nothing is in flight, and the peer's window is zero or too small (or its window
    /// update was lost): starts the persist timer.
    #[inline(always)]
    pub(crate) fn mind_the_window(&mut self, rare: &StateSlab<RareState>, now: Instant) {
        let waits = self.snd.unsent() > 0 || self.snd.fin && !self.snd.fin_sent;
        let stuck = waits
            && self.snd.una == self.snd.nxt
            && matches!(self.state(), TcpState::Established | TcpState::CloseWait);
        if !stuck {
            self.timers.clear(TimerKind::Persist);
        } else if !self.timers.is_set(TimerKind::Persist) {
            if self.probes == 0 {
                // From now on, regardless of how long the connection was idle.
                self.stalled = self.stalled.max(now);
            }
            self.timers.set(TimerKind::Persist, self.persist_at(rare, now));
        }
    }

    /// A segment with text or a FIN.
    #[inline(always)]
    fn text(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        seq: Seq,
        (payload, sum): (Option<PacketBuf>, Option<InternetSum>),
        fin: bool,
        marks: TcpFlags,
    ) -> Result<PacketBuf, NoBuffer> {
        let mut flags = TcpFlags::ACK | self.marks_of_ack() | marks;
        let len = payload.as_ref().map_or(0, |payload| payload.len() as u32);
        if fin {
            flags = flags | TcpFlags::FIN;
        }
        if len > 0 && self.snd.is_last(seq + len) {
            flags = flags | TcpFlags::PSH;
        }
        self.acknowledging(cx, seq, flags, (payload, sum))
    }

    /// A segment without text.
    #[inline(never)]
    fn plain(&mut self, cx: &mut ConnectionContext<'_>, seq: Seq) -> Result<PacketBuf, NoBuffer> {
        let flags = TcpFlags::ACK | self.marks_of_ack();
        self.acknowledging(cx, seq, flags, (None, None))
    }

    /// A segment that acknowledges all received data.
    #[inline(always)]
    fn acknowledging(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        seq: Seq,
        flags: TcpFlags,
        (payload, sum): (Option<PacketBuf>, Option<InternetSum>),
    ) -> Result<PacketBuf, NoBuffer> {
        let is_usual = !cx.partial && (!self.agreed.sack || self.block_count() == 0);
        let packet = if is_usual {
            let window = self.rcv.offer(self.agreed.scaled, self.out_of_order.held());
            self.build_usual(cx, seq, (flags, window), (payload, sum))?
        } else {
            cold_path();
            let options = self.options(cx);
            let window = self.rcv.offer(self.agreed.scaled, self.out_of_order.held());
            self.build(cx, seq, flags, window, &options, payload)?
        };
        self.acknowledged();
        Ok(packet)
    }

    /// Bookkeeping after an acknowledgment of all received data was sent.
    fn acknowledged(&mut self) {
        self.due.remove(ConnectionDue::ACK);
        self.timers.ack = AckDelay::Absent;
        self.rcv.acknowledged();
    }

    fn reset(&mut self, cx: &mut ConnectionContext<'_>) -> Result<PacketBuf, NoBuffer> {
        let flags = TcpFlags::RST | TcpFlags::ACK;
        let options = self.options(cx);
        cx.counters.count(Counter::TcpOutRsts);
        self.build(cx, self.snd.nxt, flags, 0, &options, None)
    }

    const fn fields(&self, seq: Seq, flags: TcpFlags, window: u16) -> TcpFields {
        TcpFields {
            src_port: self.flow.local.port,
            dst_port: self.flow.remote.port,
            seq: seq.0,
            ack: if flags.contains(TcpFlags::ACK) { self.rcv.nxt.0 } else { 0 },
            flags,
            window,
            urgent: 0,
        }
    }

    /// As [`Connection::build`] without SACK blocks, with its checksum complete: the header is made
    /// from numbers, in one go.
    #[inline(always)]
    fn build_usual(
        &self,
        cx: &mut ConnectionContext<'_>,
        seq: Seq,
        (flags, window): (TcpFlags, u16),
        (payload, sum): (Option<PacketBuf>, Option<InternetSum>),
    ) -> Result<PacketBuf, NoBuffer> {
        let header_len = if self.agreed.timestamps { STAMPED_LEN } else { HEADER_LEN };
        let (payload_len, sum) = match (&payload, sum) {
            (Some(payload), Some(sum)) => (payload.len(), sum),
            (Some(payload), None) => (payload.len(), payload.sum(0, payload.len())),
            (None, _) => (0, InternetSum::ZERO),
        };
        let len = InternetSum::of_u32((header_len + payload_len) as u32);
        let others = InternetSum::of_u16(self.rcv.ends_sum).add(len).add(sum);
        let mut packet = with_front(cx.pool, payload, header_len).ok_or(NoBuffer)?;
        let fields = self.fields(seq, flags, window);
        let out = packet.front_mut(header_len).ok_or(NoBuffer)?;
        if let Some(out) = out.first_chunk_mut() {
            fields.emit_stamped(self.timestamps(cx), others, out);
        } else if let Some(out) = out.first_chunk_mut() {
            fields.emit_bare(others, out);
        }
        packet.set_layers(0, 0, header_len);
        cx.counters.count(Counter::TcpOutSegs);
        Ok(packet)
    }

    #[inline(never)]
    fn build(
        &self,
        cx: &mut ConnectionContext<'_>,
        seq: Seq,
        flags: TcpFlags,
        window: u16,
        options: &TcpOptionSet,
        payload: Option<PacketBuf>,
    ) -> Result<PacketBuf, NoBuffer> {
        let fields = self.fields(seq, flags, window);
        let made = assemble(cx.pool, &self.flow, &fields, options, payload, cx.partial);
        let packet = made.ok_or(NoBuffer)?;
        cx.counters.count(Counter::TcpOutSegs);
        Ok(packet)
    }
}

/// A packet of this header and a borrowed payload. Where the device completes the checksum
/// (`partial`), the field holds the pseudo-header's sum.
pub(crate) fn assemble(
    pool: &Pool,
    flow: &FlowKey,
    fields: &TcpFields,
    options: &TcpOptionSet,
    payload: Option<PacketBuf>,
    partial: bool,
) -> Option<PacketBuf> {
    if payload.is_none()
        && !partial
        && let Some(numbers) = options.of_usual_syn()
    {
        return assemble_syn(pool, flow, fields, &numbers);
    }
    let header_len = HEADER_LEN + options.emitted_len();
    let (payload_len, sum) = match &payload {
        Some(payload) if partial => (payload.len(), InternetSum::ZERO),
        Some(payload) => (payload.len(), payload.sum(0, payload.len())),
        None => (0, InternetSum::ZERO),
    };
    let pseudo = pseudo_header(flow, (header_len + payload_len) as u32)?;
    let mut packet = with_front(pool, payload, header_len)?;
    fields.emit(options, pseudo, sum, packet.front_mut(header_len)?).ok()?;
    if partial {
        leave_partial(&mut packet, pseudo)?;
    }
    packet.set_layers(0, 0, header_len);
    Some(packet)
}

/// The same of a SYN with its usual options: the header is made from numbers, in one go.
#[inline(always)]
fn assemble_syn(
    pool: &Pool,
    flow: &FlowKey,
    fields: &TcpFields,
    options: &SynNumbers,
) -> Option<PacketBuf> {
    debug_assert_eq!(fields.urgent, 0);
    let mut packet = pool.alloc_laid_out(0, SYN_LEN)?;
    let pseudo = pseudo_header_of_any(flow, SYN_LEN as u16);
    fields.emit_syn(options, pseudo, packet.front_mut(SYN_LEN)?.first_chunk_mut()?);
    packet.set_layers(0, 0, SYN_LEN);
    Some(packet)
}

/// A packet with `len` bytes of header to be written, followed by its payload: in the payload's
/// headroom where it is large enough for all headers to come, else in a chunk of its own.
#[inline(always)]
fn with_front(pool: &Pool, payload: Option<PacketBuf>, len: usize) -> Option<PacketBuf> {
    let Some(mut payload) = payload else { return pool.alloc_laid_out(0, len) };
    if payload.headroom() >= len + LOWER_HEADERS && payload.prepend(len).is_some() {
        return Some(payload);
    }
    let mut head = pool.alloc_laid_out(0, len)?;
    head.append(payload).ok()?;
    Some(head)
}

/// Leaves the checksum of a segment to the device (checksum offload).
#[inline]
fn leave_partial(packet: &mut PacketBuf, pseudo: InternetSum) -> Option<()> {
    let field = packet.front_mut(CHECKSUM_AT.end)?.get_mut(CHECKSUM_AT)?;
    field.copy_from_slice(&pseudo.fold().to_be_bytes());
    packet.set_checksum_state(ChecksumState::Partial);
    Some(())
}

/// The packet of a reset without a connection (RFC 9293 section 3.10.7.1). `None` where the pool is
/// empty.
pub(crate) fn reset_packet(pool: &Pool, reset: &ResetSegment) -> Option<PacketBuf> {
    let flags = match reset.ack {
        Some(_) => TcpFlags::RST | TcpFlags::ACK,
        None => TcpFlags::RST,
    };
    let fields = TcpFields {
        src_port: reset.flow.local.port,
        dst_port: reset.flow.remote.port,
        seq: reset.seq.0,
        ack: reset.ack.map_or(0, |ack| ack.0),
        flags,
        window: 0,
        urgent: 0,
    };
    assemble(pool, &reset.flow, &fields, &TcpOptionSet::NONE, None, false)
}
