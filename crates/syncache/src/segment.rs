//! Arriving segments as plain values: the SYN, the ACK, and the classification of a segment by
//! flags.
//!
//! Used by `tcp`'s listeners and by guards, which have parsed the header and its options.
//! Invariant: there is no field for data, so that data of a SYN cannot be kept (RFC 9293 section
//! 3.10.7.2 permits dropping it; the client sends it again).

use core::net::Ipv4Addr;

use floodwall_base::{FlowKey, Seq, limits};

/// The kind of a segment without a connection, by its flags alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// SYN without ACK, RST and FIN: pass it to [`crate::HalfOpen::syn`].
    Syn,
    /// ACK without SYN and RST: pass it to [`crate::HalfOpen::ack`].
    Ack,
    /// RST: pass it to [`crate::HalfOpen::reset`].
    Reset,
    /// SYN and ACK: unsolicited; answered by a reset (RFC 9293 section 3.10.7.2).
    SynAck,
    /// Anything else, for example no flags, Xmas, SYN with FIN. Dropped without an answer.
    Odd,
}

impl SegmentKind {
    /// Classifies the flags byte of the header: CWR, ECE, URG, ACK, PSH, RST, SYN, FIN from the
    /// top.
    #[must_use]
    pub const fn of(flags: u8) -> Self {
        let (fin, syn, rst, ack) =
            (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0, flags & 16 != 0);
        match (syn, ack, rst, fin) {
            // No TCP stack sends a reset with SYN or FIN.
            (false, _, true, false) => Self::Reset,
            (true, false, false, false) => Self::Syn,
            (true, true, false, false) => Self::SynAck,
            (false, true, false, _) => Self::Ack,
            _ => Self::Odd,
        }
    }
}

/// The options of a SYN that determine a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SynOptions {
    /// The largest segment that the client accepts; `None` where it sent no MSS option (RFC
    /// 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// Shift of the client's windows (RFC 7323 section 2). Above 14 counts as 14.
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgements are permitted (RFC 2018).
    pub sack: bool,
    /// TSval, where timestamps are offered (RFC 7323 section 3).
    pub timestamp: Option<u32>,
    /// Whether it was an ECN-setup SYN: ECE and CWR both (RFC 3168 section 6.1.1).
    pub ecn: bool,
}

/// A SYN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SynSegment {
    /// The flow; its local end is the listener's.
    pub flow: FlowKey,
    /// The client's initial sequence number.
    pub seq: Seq,
    /// The client's window, never scaled in a SYN.
    pub window: u16,
    /// Its options.
    pub options: SynOptions,
}

impl SynSegment {
    /// The client's MSS: the default of the family if it sent none, and never below the floor.
    #[must_use]
    pub fn mss(&self) -> u16 {
        let unsaid = if self.flow.remote.ipv4_bits().is_some() { 536 } else { 1220 };
        self.options.mss.unwrap_or(unsaid).max(limits::TCP_MSS_FLOOR)
    }

    /// Whether it can be answered: both ends have a port, they differ, and the client's address
    /// is unicast. The network layer has refused all other cases.
    #[must_use]
    pub fn is_answerable(&self) -> bool {
        let FlowKey { local, remote, .. } = self.flow;
        let group = match remote.ipv4_bits().map(Ipv4Addr::from_bits) {
            Some(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified(),
            None => remote.addr.is_multicast() || remote.addr.is_unspecified(),
        };
        !group && remote.port != 0 && local.port != 0 && local != remote
    }
}

/// An ACK that matches no connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HandshakeAck {
    /// The flow; its local end is the listener's.
    pub flow: FlowKey,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// TSval and TSecr, where the segment has them.
    pub timestamp: Option<(u32, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_256_flag_bytes_only_a_plain_syn_is_one() {
        let mut syns = 0;
        for flags in 0..=u8::MAX {
            let kind = SegmentKind::of(flags);
            // URG, PSH, ECE and CWR are ignored.
            assert_eq!(kind, SegmentKind::of(flags & 0b1_0111), "{flags:#010b}");
            match kind {
                SegmentKind::Syn => {
                    syns += 1;
                    assert_eq!(flags & 0b1_0111, 2);
                }
                SegmentKind::Ack => assert_eq!(flags & 0b1_0110, 16),
                SegmentKind::Reset => assert_eq!(flags & 0b0_0111, 4),
                SegmentKind::SynAck => assert_eq!(flags & 0b1_0111, 18),
                SegmentKind::Odd => {}
            }
        }
        assert_eq!(syns, 16);
    }
}
