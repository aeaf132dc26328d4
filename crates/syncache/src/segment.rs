//! What arrives, as plain values: the SYN, the ACK, and which of them a segment is.
//!
//! Called by `tcp`'s listeners and by guards, which have read the header and its options.
//! Invariant: nothing here has room for data, so that data of a SYN cannot be kept (RFC 9293
//! section 3.10.7.2 lets it be thrown away; the client sends it again).

use floodwall_base::{FlowKey, Seq, limits};

/// What a segment without a connection is to a listener, by its flags alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentKind {
    /// SYN without ACK, RST and FIN: offer it to [`crate::HalfOpen::syn`].
    Syn,
    /// ACK without SYN and RST: offer it to [`crate::HalfOpen::ack`].
    Ack,
    /// RST: offer it to [`crate::HalfOpen::reset`].
    Reset,
    /// SYN and ACK: nobody asked; answered by a reset (RFC 9293 section 3.10.7.2).
    SynAck,
    /// Anything else: nothing, Xmas, SYN with FIN. Dropped in silence.
    Odd,
}

impl SegmentKind {
    /// By the flags byte of the header: CWR, ECE, URG, ACK, PSH, RST, SYN, FIN from the top.
    #[must_use]
    pub const fn of(flags: u8) -> Self {
        let (fin, syn, rst, ack) =
            (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0, flags & 16 != 0);
        match (syn, ack, rst, fin) {
            // A reset that says SYN or FIN as well was made by nobody's stack.
            (false, _, true, false) => Self::Reset,
            (true, false, false, false) => Self::Syn,
            (true, true, false, false) => Self::SynAck,
            (false, true, false, _) => Self::Ack,
            _ => Self::Odd,
        }
    }
}

/// The options of a SYN that a connection is born with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Options {
    /// Largest segment that the client takes; none said it did not (RFC 9293 section 3.7.1).
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
pub struct Syn {
    /// The flow; its local end is the listener's.
    pub flow: FlowKey,
    /// The client's initial sequence number.
    pub seq: Seq,
    /// The client's window, never scaled in a SYN.
    pub window: u16,
    /// Its options.
    pub options: Options,
}

impl Syn {
    /// What the client takes, with the family's default where it says nothing and with the floor
    /// under it.
    #[must_use]
    pub fn mss(&self) -> u16 {
        let unsaid = if self.flow.remote.ipv4_bits().is_some() { 536 } else { 1220 };
        self.options.mss.unwrap_or(unsaid).max(limits::TCP_MSS_FLOOR)
    }

    /// Whether it can be answered at all: both ends have a port, they differ, and the client's
    /// address is one client's. The network layer has refused the rest.
    #[must_use]
    pub fn is_answerable(&self) -> bool {
        let FlowKey { local, remote, .. } = self.flow;
        let addr = remote.addr;
        let group = match addr.to_ipv4_mapped() {
            Some(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified(),
            None => addr.is_multicast() || addr.is_unspecified(),
        };
        !group && remote.port != 0 && local.port != 0 && local != remote
    }
}

/// An ACK that belongs to no connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ack {
    /// The flow; its local end is the listener's.
    pub flow: FlowKey,
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK.
    pub ack: Seq,
    /// TSval and TSecr, where it has them.
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
            // URG, PSH, ECE and CWR change nothing.
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
