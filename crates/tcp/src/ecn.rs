//! Explicit congestion notification: ECN, RFC 3168 section 6.1.
//!
//! Used by the handshake, by input and by output of a connection. Invariants: retransmissions, pure
//! ACKs and probes are never marked ECN-capable (sections 6.1.4 to 6.1.6); a mark is echoed on
//! every segment until the peer signals CWR; the window is reduced once per window of data, however
//! many echoes arrive (`recovery.rs`). A peer that falsifies marks gains nothing that it would not
//! gain by falsifying losses: the nonce of RFC 3540 is historic. Not here: the bits of the IP
//! header, which are `stack`'s.

use core::hint::cold_path;

use floodwall_base::Instant;
use floodwall_wire::tcp::TcpFlags;

use crate::connection::{Connection, ConnectionDue};
use crate::connection_flags::ConnectionFlags;
use crate::segment::Segment;
use crate::sent_segments::SentSegments;
use crate::state::TcpState;

impl Connection {
    /// The ECN flags of our SYN; a retransmitted one does not request ECN (section 6.1.1.1).
    pub(crate) fn marks_of_syn(&self, answers: bool) -> TcpFlags {
        match answers {
            true if self.agreed.ecn => TcpFlags::ECE,
            false if self.offers.ecn() && self.recovery.rtt().backoff() == 0 => {
                TcpFlags::ECE | TcpFlags::CWR
            }
            _ => TcpFlags::NONE,
        }
    }

    /// Processes the ECN flags of the peer's SYN or SYN-ACK.
    pub(crate) fn agree_on_marks(&mut self, segment: &Segment) {
        let (ece, cwr) = (segment.has(TcpFlags::ECE), segment.has(TcpFlags::CWR));
        // A SYN-ACK with both flags comes from a peer that reflects reserved bits.
        let says = if segment.has(TcpFlags::ACK) { ece && !cwr } else { ece && cwr };
        self.agreed.ecn = self.offers.ecn() && says;
    }

    /// An acceptable segment: processes its CE codepoint and its CWR flag.
    pub(crate) fn note_marks(&mut self, segment: &Segment) {
        if !self.agreed.ecn {
            return;
        }
        if segment.has(TcpFlags::CWR) {
            self.flags.set(ConnectionFlags::ECHO, false);
            // The peer's window may be down to one segment: it waits for this acknowledgment.
            if segment.len > 0 {
                self.due.add(ConnectionDue::ACK);
            }
        }
        if segment.congestion {
            self.flags.set(ConnectionFlags::ECHO, true);
        }
    }

    /// Whether an acceptable acknowledgment echoes a mark. Call before the acknowledged data is
    /// removed from the flight: that is the data that was marked (RFC 9438 section 4.6).
    #[inline(always)]
    pub(crate) fn note_echo(
        &mut self,
        records: &mut SentSegments,
        segment: &Segment,
        now: Instant,
    ) {
        if self.agreed.ecn && segment.has(TcpFlags::ECE) {
            cold_path();
            if self.recovery.on_ecn_echo(records, now) {
                self.note_reduction();
            }
        }
    }

    /// The window was reduced, for any reason: CWR is set on the next new data, so that the peer
    /// ends its echo (section 6.1.2).
    pub(crate) const fn note_reduction(&mut self) {
        self.flags.set(ConnectionFlags::REDUCED, self.agreed.ecn);
    }

    /// The ECN flags of every acknowledgment.
    pub(crate) const fn marks_of_ack(&self) -> TcpFlags {
        if self.flags.has(ConnectionFlags::ECHO) { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// The ECN flags of `len` bytes of new data, which routers may mark.
    pub(crate) fn marks_of_news(&mut self, len: u32) -> TcpFlags {
        if len == 0 || !self.agreed.ecn || self.state() == TcpState::SynReceived {
            return TcpFlags::NONE;
        }
        self.flags.set(ConnectionFlags::CAPABLE, true);
        match self.flags.take(ConnectionFlags::REDUCED) {
            true => TcpFlags::CWR,
            false => TcpFlags::NONE,
        }
    }

    /// Whether the next new segment carries a flag that later ones do not.
    pub(crate) const fn owes_mark(&self) -> bool {
        self.flags.has(ConnectionFlags::REDUCED)
    }

    /// Whether the segment built last is ECN-capable.
    pub(crate) const fn take_capable(&mut self) -> bool {
        self.flags.take(ConnectionFlags::CAPABLE)
    }
}
