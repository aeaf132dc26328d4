//! `Segment`: the content of an arrived segment, as plain values; and `ResetSegment`, the answer to
//! a segment without a connection.
//!
//! Made by `input.rs` from validated bytes, read by the states' handlers. Invariant: sequence space
//! counts SYN and FIN as one each (RFC 9293 section 3.4). Not here: its payload's bytes.

use floodwall_base::{FlowKey, Seq};
use floodwall_packet::PacketBuf;
use floodwall_wire::tcp::{TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::TcpOptionSet;

use crate::transmit::Transmit;

/// One segment without its payload.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK; valid only with the ACK flag.
    pub ack: Seq,
    /// The control bits.
    pub flags: TcpFlags,
    /// SEG.WND as received, not scaled.
    pub window: u16,
    /// Bytes of payload.
    pub len: u32,
    /// The options.
    pub options: TcpOptionSet,
    /// The network has marked congestion experienced (RFC 3168 section 5: CE).
    pub congestion: bool,
}

impl Segment {
    /// An empty segment: a header is parsed into it in place; moving it would cost half of a
    /// look-up.
    pub const NONE: Self = Self {
        seq: Seq(0),
        ack: Seq(0),
        flags: TcpFlags::NONE,
        window: 0,
        len: 0,
        options: TcpOptionSet::NONE,
        congestion: false,
    };

    /// Parses a validated header, before `len` bytes of payload. Malformed options are left out.
    #[inline]
    #[must_use]
    pub fn of(header: &TcpHeader<'_>, len: u32) -> Self {
        let mut segment = Self::NONE;
        segment.take_fields(header, len);
        segment.options.add_readable(header.options());
        segment
    }

    /// The same without its options, which are added later.
    #[inline]
    pub fn take_fields(&mut self, header: &TcpHeader<'_>, len: u32) {
        self.seq = Seq(header.seq());
        self.ack = Seq(header.ack());
        self.flags = header.flags();
        self.window = header.window();
        self.len = len;
    }

    /// Whether all of these bits are set.
    #[inline]
    #[must_use]
    pub const fn has(&self, flags: TcpFlags) -> bool {
        self.flags.contains(flags)
    }

    /// SEG.LEN: payload, SYN and FIN.
    #[inline]
    #[must_use]
    pub const fn sequence_len(&self) -> u32 {
        self.len + self.has(TcpFlags::SYN) as u32 + self.has(TcpFlags::FIN) as u32
    }

    /// The sequence number after its last.
    #[inline]
    #[must_use]
    pub fn end(&self) -> Seq {
        self.seq + self.sequence_len()
    }
}

/// The reset due for a segment that no connection accepts (RFC 9293 section 3.10.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResetSegment {
    /// The flow of the reset, from us to the sender.
    pub flow: FlowKey,
    /// Its sequence number.
    pub seq: Seq,
    /// Its acknowledgment, where the segment had no ACK.
    pub ack: Option<Seq>,
}

impl ResetSegment {
    /// The fields of a reset, and its destination.
    #[must_use]
    pub fn transmit(&self, packet: PacketBuf) -> Transmit {
        Transmit::of(packet, &self.flow)
    }

    /// The reset due for a segment of `flow`; `None` where it is a reset itself.
    #[must_use]
    pub fn answer(flow: FlowKey, segment: &Segment) -> Option<Self> {
        if segment.has(TcpFlags::RST) {
            return None;
        }
        Some(match segment.has(TcpFlags::ACK) {
            true => Self { flow, seq: segment.ack, ack: None },
            false => Self { flow, seq: Seq(0), ack: Some(segment.end()) },
        })
    }
}
