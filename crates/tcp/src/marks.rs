//! Congestion that routers mark instead of dropping: ECN, RFC 3168 section 6.1.
//!
//! Called by the handshake, by input and by output of a connection. Invariants: nothing is marked
//! capable that is sent again, has no data, or probes (sections 6.1.4 to 6.1.6); a mark is echoed
//! on every segment until the peer says that it has slowed down; the window falls once for a window
//! of data, however many echoes come (`recovery.rs`). A peer that lies gains nothing that it would
//! not by answering losses so: the nonce of RFC 3540 is history. Not here: the bits of the IP
//! header, which are `stack`'s.

use floodwall_base::Instant;
use floodwall_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::segment::Segment;
use crate::state::State;

/// What was seen and what is to be said.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Marks {
    /// The peer's segments were marked: told on every segment until it answers.
    echo: bool,
    /// We have slowed down: told with the next new data.
    reduced: bool,
    /// The segment that was made last may be marked by routers.
    capable: bool,
}

impl Connection {
    /// What a SYN of ours says; a repeated one asks no more (section 6.1.1.1).
    pub(crate) fn marks_of_syn(&self, answers: bool) -> TcpFlags {
        match answers {
            true if self.agreed.ecn => TcpFlags::ECE,
            false if self.offers.ecn && self.recovery.rtt().backoff() == 0 => {
                TcpFlags::ECE | TcpFlags::CWR
            }
            _ => TcpFlags::NONE,
        }
    }

    /// What a SYN, or the answer to ours, says.
    pub(crate) fn agree_on_marks(&mut self, segment: &Segment) {
        let (ece, cwr) = (segment.has(TcpFlags::ECE), segment.has(TcpFlags::CWR));
        // An answer with both is one of a peer that reflects what it does not understand.
        let says = if segment.has(TcpFlags::ACK) { ece && !cwr } else { ece && cwr };
        self.agreed.ecn = self.offers.ecn && says;
    }

    /// An acceptable segment: what the network and the peer say of congestion.
    pub(crate) fn note_marks(&mut self, segment: &Segment) {
        if !self.agreed.ecn {
            return;
        }
        if segment.has(TcpFlags::CWR) {
            self.marks.echo = false;
        }
        self.marks.echo |= segment.congestion;
    }

    /// An acceptable acknowledgment may echo a mark. To be asked before what it acknowledges is
    /// taken from what is in flight: that is what was marked (RFC 9438 section 4.6).
    #[inline]
    pub(crate) fn note_echo(&mut self, segment: &Segment, now: Instant) {
        if self.agreed.ecn && segment.has(TcpFlags::ECE) && self.recovery.on_ecn_echo(now) {
            self.note_reduction();
        }
    }

    /// The window was reduced, for whatever reason: the peer is told with the next new data, so
    /// that it ends its echo (section 6.1.2).
    pub(crate) const fn note_reduction(&mut self) {
        self.marks.reduced = self.agreed.ecn;
    }

    /// What goes with every acknowledgment.
    pub(crate) const fn marks_of_ack(&self) -> TcpFlags {
        if self.marks.echo { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// What goes with new data of `len` bytes, which routers may mark.
    pub(crate) fn marks_of_news(&mut self, len: u32) -> TcpFlags {
        if len == 0 || !self.agreed.ecn || self.state() == State::SynReceived {
            return TcpFlags::NONE;
        }
        self.marks.capable = true;
        match core::mem::take(&mut self.marks.reduced) {
            true => TcpFlags::CWR,
            false => TcpFlags::NONE,
        }
    }

    /// Whether the next new segment has something to say that those behind it have not.
    pub(crate) const fn owes_mark(&self) -> bool {
        self.marks.reduced
    }

    /// Whether routers may mark the segment that was made last.
    pub(crate) const fn take_capable(&mut self) -> bool {
        core::mem::replace(&mut self.marks.capable, false)
    }
}
