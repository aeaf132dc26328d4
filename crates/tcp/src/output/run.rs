//! A run: full segments of new data that are sent at one moment, after one check of what may be
//! sent: segmentation offload (GSO) in software.
//!
//! Called by `output.rs` where more than one full segment may be sent. The work of large-send
//! offload in network cards (TSO) is done here, so that every device profits: the header is written
//! once and patched for each segment, and the run is recorded once. Invariants: each segment equals
//! the one that would be sent alone, checksum and PSH included; a FIN, a mark and anything shorter
//! than a full segment are sent the ordinary way.

use floodwall_base::{Counter, FlowKey, Seq};
use floodwall_checksum::{InternetSum, sum};
use floodwall_packet::{PacketBuf, PacketList, Pool};
use floodwall_wire::tcp::{HEADER_LEN, HEADER_LEN_MAX, TcpFields, TcpFlags};
use floodwall_wire::tcp_options::TcpOptionSet;

use super::{CHECKSUM_AT, NoBuffer, leave_partial, pseudo_header, with_front};
use crate::connection::{Connection, ConnectionContext};
use crate::connection_flags::ConnectionFlags;
use crate::sent_segments::SentSegments;

/// Offsets of sequence number and flags in a header (RFC 9293 section 3.1).
const SEQ_AT: core::ops::Range<usize> = 4..8;
const FLAGS_AT: usize = 13;

/// The header that the segments of a run have in common.
struct SegmentHeading {
    bytes: [u8; HEADER_LEN_MAX],
    len: usize,
    /// The sum of the pseudo-header, without the payload.
    pseudo: InternetSum,
    /// The sum of these header bytes, without the sequence number.
    sum: InternetSum,
    /// The device completes the checksum.
    partial: bool,
}

impl SegmentHeading {
    /// Builds the template; `fields` have no sequence number.
    fn new(
        flow: &FlowKey,
        fields: &TcpFields,
        options: &TcpOptionSet,
        partial: bool,
    ) -> Option<Self> {
        let mut bytes = [0; HEADER_LEN_MAX];
        let options_len = options.emitted_len();
        let len = HEADER_LEN + options_len;
        let (fixed, rest) = bytes.split_first_chunk_mut::<HEADER_LEN>()?;
        fields.emit_fixed((len / 4) as u8, fixed);
        options.emit_into(rest.get_mut(..options_len)?).ok()?;
        let pseudo = pseudo_header(flow, len as u32)?;
        let sum = pseudo.add(sum(bytes.get(..len)?));
        Some(Self { bytes, len, pseudo, sum, partial })
    }

    /// The segment of a borrowed `payload` that starts at `seq`.
    #[inline]
    fn segment(&self, pool: &Pool, seq: Seq, push: bool, payload: PacketBuf) -> Option<PacketBuf> {
        let payload_len = payload.len();
        let sum = if self.partial { InternetSum::ZERO } else { payload.sum(0, payload_len) };
        let mut packet = with_front(pool, Some(payload), self.len)?;
        let out = packet.front_mut(self.len)?;
        out.copy_from_slice(self.bytes.get(..self.len)?);
        out.get_mut(SEQ_AT)?.copy_from_slice(&seq.0.to_be_bytes());
        if push {
            *out.get_mut(FLAGS_AT)? |= TcpFlags::PSH.0;
        }
        let len = InternetSum::of_u32(payload_len as u32);
        if self.partial {
            leave_partial(&mut packet, self.pseudo.add(len))?;
        } else {
            let pushed = if push {
                InternetSum::of_u16(u16::from(TcpFlags::PSH.0))
            } else {
                InternetSum::ZERO
            };
            let heads = self.sum.add(InternetSum::of_u32(seq.0)).add(len).add(pushed);
            let check = heads.add(sum).finish();
            out.get_mut(CHECKSUM_AT)?.copy_from_slice(&check.to_be_bytes());
        }
        packet.set_layers(0, 0, self.len);
        Some(packet)
    }
}

impl Connection {
    /// How many full segments of new data may be sent at once, up to `most`; fewer than two are no
    /// run.
    pub(super) fn run_length(&self, records: &SentSegments, most: u32) -> u32 {
        let (waits, mss) = (self.snd.unsent(), self.segment_room());
        let fits = waits.min(self.snd.usable()).min(self.recovery.allowance(records));
        // A mark and a reported duplicate are in one segment only.
        if most < 2
            || fits < 2 * mss
            || self.owes_mark()
            || self.flags.has(ConnectionFlags::DUPLICATE)
        {
            return 0;
        }
        // The last segment may carry the FIN.
        let whole = if self.snd.fin { fits.min(waits - 1) } else { fits };
        (whole / mss).min(most)
    }

    /// Sends `count` full segments: the first is returned, the others are appended to `rest`.
    pub(super) fn run(
        &mut self,
        cx: &mut ConnectionContext<'_>,
        count: u32,
        rest: &mut PacketList,
    ) -> Result<Option<PacketBuf>, NoBuffer> {
        let mss = self.segment_room();
        if self.snd.una == self.snd.nxt {
            self.stalled = cx.now;
        }
        let marks = self.marks_of_news(mss);
        let heading = self.heading(cx, marks).ok_or(NoBuffer)?;
        let (mut first, mut bytes, mut segments) = (None, 0, 0);
        for _ in 0..count {
            let Some(payload) = self.snd.take(mss, cx.pool) else { break };
            let len = payload.len() as u32;
            bytes += len;
            let (seq, push) = (self.snd.nxt - len, self.snd.is_last(self.snd.nxt));
            // It counts as sent, whether or not a header could be allocated: the timer retransmits
            // it.
            if let Some(packet) = heading.segment(cx.pool, seq, push, payload) {
                segments += 1;
                match first {
                    None => first = Some(packet),
                    Some(_) => rest.push_back(packet),
                }
            }
            if len < mss {
                break;
            }
        }
        if bytes > 0 {
            let agreement = self.agreement();
            let sent = self.recovery.on_sent(cx.records, (bytes, mss), &agreement, cx.now);
            debug_assert!(sent, "there was room for a record");
        }
        if first.is_none() {
            return Err(NoBuffer);
        }
        cx.counters.add(Counter::TcpOutSegs, segments);
        self.note_sent(&cx.records.rare);
        self.acknowledged();
        Ok(first)
    }

    fn heading(&mut self, cx: &ConnectionContext<'_>, marks: TcpFlags) -> Option<SegmentHeading> {
        let options = self.options(cx);
        let fields = TcpFields {
            src_port: self.flow.local.port,
            dst_port: self.flow.remote.port,
            seq: 0,
            ack: self.rcv.nxt.0,
            flags: TcpFlags::ACK | self.marks_of_ack() | marks,
            window: self.rcv.offer(self.agreed.scaled, self.out_of_order.held()),
            urgent: 0,
        };
        SegmentHeading::new(&self.flow, &fields, &options, cx.partial)
    }
}
