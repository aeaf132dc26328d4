//! `Segment`: what an arrived segment says, as plain values; and `Reset`, the answer to one that
//! belongs to nothing.
//!
//! Made by `input.rs` out of checked bytes, read by the states' handlers. Invariant: sequence space
//! counts SYN and FIN as one each (RFC 9293 section 3.4). Not here: its payload's bytes.

use floodwall_base::{FlowKey, Seq};
use floodwall_packet::PacketBuf;
use floodwall_wire::tcp::{TcpFlags, TcpHeader};
use floodwall_wire::tcp_options::{TcpOptionError, TcpOptionSet};

use crate::tcp::Transmit;

/// One segment, its payload apart.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK; counts only with ACK.
    pub ack: Seq,
    /// The control bits.
    pub flags: TcpFlags,
    /// SEG.WND as written, not scaled.
    pub window: u16,
    /// Bytes of payload.
    pub len: u32,
    /// The options.
    pub options: TcpOptionSet,
    /// The network said that it met congestion (RFC 3168 section 5: CE).
    pub congestion: bool,
}

impl Segment {
    /// Nothing yet: what a header says is read into it where it lies; not to move it is what half a
    /// look-up costs.
    pub const NONE: Self = Self {
        seq: Seq(0),
        ack: Seq(0),
        flags: TcpFlags::NONE,
        window: 0,
        len: 0,
        options: TcpOptionSet::NONE,
        congestion: false,
    };

    /// What a checked header says, before `len` bytes of payload.
    ///
    /// # Errors
    /// An option's length is a lie.
    #[inline]
    pub fn of(header: &TcpHeader<'_>, len: u32) -> Result<Self, TcpOptionError> {
        let mut segment = Self::NONE;
        segment.take_fields(header, len);
        segment.options.add(header.options())?;
        Ok(segment)
    }

    /// The same without its options, which are then added.
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

    /// The sequence number behind its last.
    #[inline]
    #[must_use]
    pub fn end(&self) -> Seq {
        self.seq + self.sequence_len()
    }
}

/// The reset that a segment is owed which no connection accepts (RFC 9293 section 3.10.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reset {
    /// From us to whom.
    pub flow: FlowKey,
    /// Its sequence number.
    pub seq: Seq,
    /// Its acknowledgment, where the segment had none.
    pub ack: Option<Seq>,
}

impl Reset {
    /// Its packet, and where it goes.
    #[must_use]
    pub fn transmit(&self, packet: PacketBuf) -> Transmit {
        Transmit::of(packet, &self.flow)
    }

    /// What a segment of `flow` is owed; nothing where it is a reset itself.
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
