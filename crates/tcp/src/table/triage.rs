//! Triage: classifies a segment before any work is spent on it: of an established peer, of an
//! unverified source, or unmatched.
//!
//! Called by the stack's triage under pressure; counts nothing, verifies no checksum. A segment is
//! classified as established if it is what a connection of ours waits for, sequence and
//! acknowledgment numbers included, or if it acknowledges a SYN-ACK or a cookie: both require
//! packets received from us, so that a flood cannot forge it. Of a connection, what makes no
//! progress is established as long as there are tokens for it (`flow_credit.rs`); they are all that
//! is written here. SYNs are always unverified.
//! Invariant: a segment that is unmatched here is refused by `intake.rs` and `handshake.rs`. RFC
//! 9293 sections 3.10.7.1 to 3.10.7.4; the tolerance for old segments is that of RFC 5961.

use core::net::IpAddr;

use floodwall_base::{FlowKey, IfIndex, Instant, Seq};
use floodwall_packet::Triage;
use floodwall_syncache::{HalfOpen, HandshakeAck, SegmentKind};
use floodwall_wire::tcp::{HEADER_LEN, TcpFlags, TcpHeader, header_len};

use crate::connection::Connection;
use crate::connection_table::ConnectionTable;
use crate::flow_credit::{FlowPosition, FlowReach};
use crate::segment::Segment;
use crate::state::TcpState;
use crate::table::intake::{flow_between, zone_of};

/// How far below the expected sequence number a retransmitted segment may lie: a generous estimate
/// of a large window.
const OLD_DISTANCE: u32 = 1 << 20;

impl<H: HalfOpen> ConnectionTable<H> {
    /// Classifies a segment of `len` bytes that begins with `bytes`, the contiguous part of it, at
    /// `now`.
    /// `None` where they are too few or malformed.
    #[must_use]
    pub fn triage(
        &self,
        (src_addr, dst_addr): (IpAddr, IpAddr),
        iface: IfIndex,
        (bytes, len): (&[u8], usize),
        now: Instant,
    ) -> Option<Triage> {
        let fixed: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let whole = header_len(fixed).filter(|header| *header <= len)?;
        let header = TcpHeader::parse(bytes.get(..whole)?, len).ok()?;
        if header.src_port() == 0 || header.dst_port() == 0 {
            return None;
        }
        let flow = FlowKey {
            zone: zone_of((src_addr, dst_addr), iface),
            ..flow_between((src_addr, header.src_port()), (dst_addr, header.dst_port()))
        };
        let text = (len - whole) as u32;
        if let Some(index) = self.find(&flow) {
            let expected = self.is_expected_of(index, &header, text, now);
            return Some(if expected { Triage::Established } else { Triage::Unknown });
        }
        Some(self.unclaimed_triage(&flow, iface, &header))
    }

    /// Whether the connection at `index` expects such a segment, and has a token for it.
    fn is_expected_of(&self, index: u32, header: &TcpHeader<'_>, text: u32, now: Instant) -> bool {
        let Some(place) = self.places.get(index as usize) else { return false };
        let Some(connection) = &place.connection else { return false };
        if !is_expected(connection, header, text) {
            return false;
        }
        let peer = connection.flow.remote.ip();
        let progress = progress(connection, header, text);
        self.credits.grants((index, place.generation), peer, progress, now)
    }

    fn unclaimed_triage(&self, flow: &FlowKey, iface: IfIndex, header: &TcpHeader<'_>) -> Triage {
        if !self.time_waits.is_empty() && self.time_waits.lookup(flow).is_some() {
            return Triage::Unknown;
        }
        if self.listeners.lookup(flow, iface).is_none() {
            return Triage::Rejectable;
        }
        match SegmentKind::of(header.flags().0) {
            SegmentKind::Syn | SegmentKind::Reset => Triage::Unknown,
            SegmentKind::Ack => {
                let segment = Segment::of(header, 0);
                let timestamp = segment.options.timestamps.map(|t| (t.value, t.echo));
                let ack =
                    HandshakeAck { flow: *flow, seq: segment.seq, ack: segment.ack, timestamp };
                let comes_back = self.half_open.recognizes(&ack);
                if comes_back { Triage::Established } else { Triage::Unknown }
            }
            SegmentKind::SynAck | SegmentKind::Odd => Triage::Rejectable,
        }
    }
}

/// How far a connection has come, and how far such a segment takes it, which it expects.
fn progress(
    connection: &Connection,
    header: &TcpHeader<'_>,
    text: u32,
) -> (FlowPosition, FlowReach) {
    let (snd, rcv) = (&connection.snd, &connection.rcv);
    let flags = header.flags();
    let ends = flags.contains(TcpFlags::FIN) || flags.contains(TcpFlags::RST);
    let at = FlowReach { end: rcv.nxt, ack: snd.una };
    // With the FIN behind the window.
    let ahead = (rcv.window().saturating_add(u32::from(ends)), snd.nxt.since(snd.una));
    let to = FlowReach { end: Seq(header.seq()) + text + u32::from(ends), ack: Seq(header.ack()) };
    (FlowPosition { at, ahead }, to)
}

/// Whether a connection expects such a segment: text or a flag at the window's left edge, within
/// the window or a little below, that acknowledges current or recent data.
fn is_expected(connection: &Connection, header: &TcpHeader<'_>, text: u32) -> bool {
    let (snd, rcv) = (&connection.snd, &connection.rcv);
    let (seq, ack, flags) = (Seq(header.seq()), Seq(header.ack()), header.flags());
    if connection.state() == TcpState::SynSent {
        return flags.contains(TcpFlags::ACK) && ack == snd.nxt;
    }
    let under_way = snd.nxt.since(snd.una);
    let acknowledges = flags.contains(TcpFlags::ACK)
        && ack.is_within(snd.una - OLD_DISTANCE, OLD_DISTANCE + under_way + 1);
    let ahead = rcv.window().saturating_add(1);
    let fits = seq.is_within(rcv.nxt - OLD_DISTANCE - text, OLD_DISTANCE + text + ahead);
    let exact_reset = flags.contains(TcpFlags::RST) && seq == rcv.nxt;
    fits && acknowledges || exact_reset
}
