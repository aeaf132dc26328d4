//! The receive half: unread data, the offered window, and when an acknowledgment is due.
//!
//! Used by the connection's handlers. RCV of RFC 9293 section 3.3.1. Invariants: `nxt` moves
//! forward only; the right edge that was once offered, `edge`, never moves back (section 3.8.6);
//! the window counts true bytes (decision B8). Not here: out-of-order data (`out_of_order.rs`).
//!
//! # Under flood
//! A peer fills it up to the offered window; in-order data in the window is refused only where the
//! memory limit of all connections is reached and this one holds more than its floor (`memory.rs`).
//! Above `limit` true bytes each segment that fills less than half of its memory is copied into
//! full frames (coalescing), so that three times `limit` is the bound for any segment size.
//! Out-of-order data may hold four times `limit`, and is refused beyond: the peer retransmits it.
//! Work: one copy of a short segment.

use floodwall_base::{Instant, Seq};

use crate::memory::{HALF_FLOOR, HALF_LIMIT_FIRST};
use crate::queue::ByteQueue;
use crate::tuning::Tuning;

/// Full segments that are acknowledged one by one at the beginning of a connection, and after a
/// delay that gained nothing: Linux's `TCP_MAX_QUICKACKS`. By then a sender in slow start has more
/// than one segment in flight.
pub(crate) const QUICK_ACKS: u8 = 16;
/// True bytes of a frame and its descriptor, with room to spare.
const FRAME_HELD: u32 = 4096;

/// The receive half of a connection: sequence variables, receive queue and window.
#[derive(Debug)]
pub(crate) struct ReceiveState {
    /// The initial sequence number of the peer.
    pub(crate) irs: Seq,
    /// RCV.NXT: the next expected sequence number.
    pub(crate) nxt: Seq,
    /// The right edge that was offered: the first sequence number that the peer may not send.
    pub(crate) edge: Seq,
    /// The scale of our windows (RFC 7323 section 2).
    pub(crate) shift: u8,
    /// The folded sum of addresses, ports and protocol number: part of each checksum that we make.
    /// It belongs to no half; here are two bytes of room.
    pub(crate) ends_sum: u16,
    /// Limit of true bytes in the receive buffer.
    pub(crate) limit: u32,
    /// The estimated size of the peer's segments.
    pub(crate) mss: u16,
    /// Bytes received since the last acknowledgment was sent.
    pub(crate) unacked: u32,
    /// How many full segments are still acknowledged at once (`input/text.rs`).
    pub(crate) quick: u8,
    /// The last acknowledgment that was sent.
    pub(crate) acked: Seq,
    /// The peer's FIN was processed.
    pub(crate) fin: bool,
    /// The application has closed the receive direction.
    pub(crate) shut: bool,
    /// True bytes handed out to a program on another thread and not yet released.
    pub(crate) lent: u32,
    /// True bytes that the memory limit of all connections lets it hold (`memory.rs`).
    pub(crate) allowed: u32,
    /// The same of the send half. Here are four bytes of room.
    pub(crate) send_allowed: u32,
    pub(crate) queue: ByteQueue,
    /// Auto-tuning of `limit`.
    pub(crate) tuning: Tuning,
}

impl ReceiveState {
    /// A receive half that takes nothing yet ([`ReceiveState::take_most`]).
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            irs: Seq(0),
            nxt: Seq(0),
            edge: Seq(0),
            shift: 0,
            ends_sum: 0,
            limit: 0,
            mss: 536,
            unacked: 0,
            quick: QUICK_ACKS,
            acked: Seq(0),
            fin: false,
            shut: false,
            lent: 0,
            allowed: u32::MAX,
            send_allowed: u32::MAX,
            queue: ByteQueue::new(),
            tuning: Tuning::new(0, now),
        }
    }

    /// It may grow to `most` true bytes, and starts there if it is not tuned. The window scale
    /// covers them all: it is agreed on once, in the handshake.
    pub(crate) fn take_most(&mut self, most: u32, tuned: bool) {
        (self.shift, self.limit) = (shift_for(most), first_limit(most, tuned));
        self.tuning.towards(most);
    }

    /// Changes the limit of an open connection. The window scale stays.
    pub(crate) fn resize(&mut self, most: u32, tuned: bool) {
        self.limit = if tuned { self.limit.clamp(first_limit(most, true), most) } else { most };
        self.tuning.towards(if tuned { most } else { 0 });
    }

    /// No program can answer yet, as none has accepted the connection: acknowledgments are not
    /// quick before.
    pub(crate) const fn wait_for_program(&mut self) {
        self.quick = 0;
    }

    /// The program has accepted the connection, and may answer.
    pub(crate) const fn accept(&mut self) {
        self.quick = QUICK_ACKS;
    }

    /// The program has read so many bytes, which may raise the limit.
    pub(crate) fn note_read(&mut self, now: Instant) {
        self.limit = self.tuning.judge(self.limit, now);
    }

    /// Processes the sequence number of the peer's SYN.
    pub(crate) fn start(&mut self, irs: Seq) {
        self.irs = irs;
        self.nxt = irs + 1;
        self.edge = self.nxt;
        self.acked = self.nxt;
    }

    /// A peer that accepts no larger segments is assumed to send none, until it does.
    pub(crate) fn expect_at_most(&mut self, mss: u16) {
        self.mss = self.mss.min(mss);
    }

    /// RCV.WND: the unused part of the offered window.
    pub(crate) fn window(&self) -> u32 {
        if self.nxt.is_before(self.edge) { self.edge.since(self.nxt) } else { 0 }
    }

    /// Whether some of a segment lies in the window (RFC 9293 section 3.10.7.4, table 6; a segment
    /// that begins before the window and ends in it or beyond is accepted for the part in the
    /// window).
    pub(crate) fn accepts(&self, seq: Seq, len: u32) -> bool {
        let window = self.window();
        match (len, window) {
            (0, 0) => seq == self.nxt,
            (0, _) => seq.is_within(self.nxt, window),
            // Zero window: no data fits, but the acknowledgment counts (the RFC's "special
            // allowance").
            (_, 0) => seq == self.nxt,
            _ => seq.is_before(self.edge) && self.nxt.is_before(seq + len),
        }
    }

    /// True bytes of unread data, here or with a program.
    pub(crate) const fn held(&self) -> u32 {
        self.queue.held().saturating_add(self.lent)
    }

    /// Current limit of true bytes.
    pub(crate) const fn bound(&self) -> u32 {
        if self.limit < self.allowed { self.limit } else { self.allowed }
    }

    /// Whether a segment is refused although it fits the advertised window: the memory limit of all
    /// connections is reached (`full`), and this one holds more than its floor.
    pub(crate) const fn is_refused(&self, other_held: u32, full: bool) -> bool {
        full && self.held().saturating_add(other_held) > HALF_FLOOR
    }

    /// The window that may be offered now, in bytes from `nxt` on, accounted in true bytes.
    fn space(&self, other_held: u32) -> u32 {
        // No more than the window field can encode: else each read would cause a window update.
        let nameable = u32::from(u16::MAX) << self.shift;
        self.bound().saturating_sub(self.held().saturating_add(other_held)).min(nameable)
    }

    /// Whether a window update is due, as an acknowledgment of its own: the window would grow by
    /// two segments or half of the maximum where little of it is left (RFC 9293 section 3.8.6.2.2),
    /// else by a quarter. A sender with enough window left needs no update.
    pub(crate) fn owes_update(&self, other_held: u32) -> bool {
        let (bound, window) = (self.bound(), self.window());
        // Mostly there is no room for so much more.
        if window > bound - bound / 4 {
            return false;
        }
        let least = 2 * u32::from(self.mss);
        let step = if window <= bound / 8 { least } else { least.max(bound / 4) };
        self.space(other_held) >= window.saturating_add(step.min(bound / 2))
    }

    /// The window field of a segment that is sent now; moves the edge. `scaled` is false on a SYN.
    #[inline(always)]
    pub(crate) fn offer(&mut self, scaled: bool, other_held: u32) -> u16 {
        let shift = if scaled { self.shift } else { 0 };
        let (old, space) = (self.window(), self.space(other_held));
        let step = (self.bound() / 2).min(u32::from(self.mss));
        let wanted = if space >= old.saturating_add(step) { space } else { old };
        // Rounded up: the offered window never shrinks.
        let field = u16::try_from(wanted.div_ceil(1 << shift)).unwrap_or(u16::MAX);
        let edge = self.nxt + (u32::from(field) << shift);
        self.edge = self.edge.later(edge);
        field
    }

    /// Bookkeeping after an acknowledgment of all received data was sent.
    pub(crate) fn acknowledged(&mut self) {
        self.unacked = 0;
        self.acked = self.nxt;
    }

    /// Whether chunks must be coalesced: more memory is held than the window accounts for.
    pub(crate) const fn is_crowded(&self, other_held: u32) -> bool {
        self.held().saturating_add(other_held) > self.bound()
    }

    /// Limit of true bytes of out-of-order data: segments in the advertised window fill at least a
    /// quarter of their memory each, or are coalesced with the previous one.
    pub(crate) const fn room_ahead(&self) -> u32 {
        let room = self.bound().saturating_mul(4).saturating_sub(self.held());
        // At least one frame, however small the window is.
        if room < FRAME_HELD { FRAME_HELD } else { room }
    }
}

/// The initial limit.
pub(crate) fn first_limit(most: u32, tuned: bool) -> u32 {
    if tuned { most.min(HALF_LIMIT_FIRST) } else { most }
}

/// The window scale for windows of `limit` bytes (RFC 7323 section 2.3: at most 14).
pub(crate) const fn shift_for(limit: u32) -> u8 {
    let mut shift = 0;
    while shift < 14 && (limit >> shift) > u16::MAX as u32 {
        shift += 1;
    }
    shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rcv(limit: u32) -> ReceiveState {
        let mut rcv = ReceiveState::new(Instant::ORIGIN);
        rcv.take_most(limit, false);
        rcv.start(Seq(u32::MAX - 2));
        rcv
    }

    #[test]
    fn windows_are_named_with_the_smallest_shift_that_can() {
        for (limit, shift) in [(0, 0), (65_535, 0), (65_536, 1), (1 << 20, 5), (u32::MAX, 14)] {
            assert_eq!(shift_for(limit), shift, "{limit}");
        }
    }

    #[test]
    fn an_offered_edge_is_never_taken_back() {
        let mut rcv = rcv(1 << 20);
        rcv.offer(true, 0);
        let edge = rcv.edge;
        for step in [1_u32, 7, 1000, 100_000] {
            rcv.nxt += step;
            rcv.offer(true, 900_000);
            assert_eq!(rcv.edge.later(edge), rcv.edge, "after {step}");
            assert!(rcv.edge.since(edge) < 1 << rcv.shift);
        }
    }

    #[test]
    fn news_of_the_window_waits_until_it_matters() {
        let mut rcv = rcv(16_000);
        rcv.mss = 1000;
        rcv.offer(true, 0);
        for (arrived, held, owed) in [
            // All of it was read: growth by at least a quarter of the window.
            (3_999, 0, false),
            (4_000, 0, true),
            // Little of the window is left: two segments.
            (14_000, 12_001, false),
            (14_000, 12_000, true),
        ] {
            let mut rcv =
                ReceiveState { queue: ByteQueue::new(), tuning: rcv.tuning.clone(), ..rcv };
            rcv.nxt += arrived;
            assert_eq!(rcv.owes_update(held), owed, "{arrived} {held}");
        }
    }

    #[test]
    fn a_window_that_is_nearly_whole_is_no_exception() {
        // The rule without its short cut.
        let rule = |rcv: &ReceiveState, held: u32| {
            let (bound, window) = (rcv.bound(), rcv.window());
            let least = 2 * u32::from(rcv.mss);
            let step = if window <= bound / 8 { least } else { least.max(bound / 4) };
            rcv.space(held) >= window + step.min(bound / 2)
        };
        for (limit, mss) in [(16_000, 1000), (16_003, 100), (700, 536), (1, 536), (0, 536)] {
            let mut rcv = rcv(limit);
            rcv.mss = mss;
            rcv.offer(true, 0);
            for held in [0, limit / 4, limit / 2, limit] {
                for _ in 0..limit.min(100) {
                    assert_eq!(rcv.owes_update(held), rule(&rcv, held), "{limit} {held} {rcv:?}");
                    rcv.nxt += limit.div_ceil(100);
                }
                rcv.nxt = rcv.edge - limit;
            }
        }
    }

    #[test]
    fn the_table_of_acceptable_segments_is_the_rfcs() {
        let mut rcv = rcv(1000);
        let nxt = rcv.nxt;
        assert!(rcv.accepts(nxt, 0) && rcv.accepts(nxt, 1) && !rcv.accepts(nxt + 1, 0));
        rcv.offer(true, 0);
        assert_eq!(rcv.window(), 1000);
        assert!(rcv.accepts(nxt + 999, 0) && !rcv.accepts(nxt + 1000, 0));
        assert!(!rcv.accepts(nxt - 1, 0) && !rcv.accepts(nxt - 1, 1));
        assert!(rcv.accepts(nxt - 1, 2) && rcv.accepts(nxt + 999, 50));
        assert!(rcv.accepts(nxt - 5, 5000) && !rcv.accepts(nxt + 1000, 1));
    }
}
