//! The receive half: what arrived and was not read, the window that is offered, and when an
//! acknowledgment is owed.
//!
//! Called by the connection's handlers. RCV of RFC 9293 section 3.3.1. Invariants: `nxt` moves
//! forward only; the right edge that was once offered, `edge`, is never taken back (section 3.8.6);
//! the window counts true bytes (decision B8). Not here: what arrived out of order
//! (`reassembly.rs`).
//!
//! # Under flood
//! A peer fills it up to the offered window; what lies in the window and in order is refused only
//! where all connections together are full and this one holds more than its floor (`memory.rs`).
//! Above `limit` true bytes each segment that fills less than half of its memory is copied into
//! full frames, so that three times `limit` is the bound whatever the segments' sizes are. What
//! comes before its turn may hold four times `limit`, and is refused beyond: the peer sends it
//! again. Work: one copy of a short segment.

use floodwall_base::{Instant, Seq};

use crate::memory::{FIRST, FLOOR};
use crate::queue::ByteQueue;
use crate::tuning::Tuning;

/// True bytes of a frame and its descriptor, with room to spare.
const FRAME_HELD: u32 = 4096;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Rcv {
    /// The initial sequence number of the peer.
    pub(crate) irs: Seq,
    /// The next number that is expected.
    pub(crate) nxt: Seq,
    /// The right edge that was offered: the first number that the peer may not send.
    pub(crate) edge: Seq,
    /// How our windows are scaled (RFC 7323 section 2).
    pub(crate) shift: u8,
    /// True bytes that may wait.
    pub(crate) limit: u32,
    /// The size of the peer's segments, as seen.
    pub(crate) mss: u16,
    /// Bytes that arrived since the last acknowledgment left.
    pub(crate) unacked: u32,
    /// The acknowledgment that was sent last.
    pub(crate) acked: Seq,
    /// The peer's FIN was taken.
    pub(crate) fin: bool,
    /// The application reads no more.
    pub(crate) shut: bool,
    /// When a segment outside of the window was answered last (an ACK war ends by it).
    pub(crate) answered: Instant,
    /// True bytes that a program on another thread was handed and has not done with.
    pub(crate) lent: u32,
    /// True bytes that the memory of all connections lets it hold (`memory.rs`).
    pub(crate) allowed: u32,
    pub(crate) queue: ByteQueue,
    /// How `limit` grows.
    pub(crate) tuning: Tuning,
}

impl Rcv {
    /// A half that may hold `most` true bytes in the end, and now too where it is not tuned. Its
    /// windows can name them all: the shift is agreed on once, at the beginning.
    pub(crate) fn new(most: u32, tuned: bool, now: Instant) -> Self {
        let (shift, limit) = (shift_for(most), first_limit(most, tuned));
        Self {
            irs: Seq(0),
            nxt: Seq(0),
            edge: Seq(0),
            shift,
            limit,
            mss: 536,
            unacked: 0,
            acked: Seq(0),
            fin: false,
            shut: false,
            answered: Instant::ORIGIN,
            lent: 0,
            allowed: u32::MAX,
            queue: ByteQueue::new(),
            tuning: Tuning::new(most, now),
        }
    }

    /// What may be held changes while the connection is open. What was agreed on stays.
    pub(crate) fn resize(&mut self, most: u32, tuned: bool) {
        self.limit = if tuned { self.limit.clamp(first_limit(most, true), most) } else { most };
        self.tuning.towards(if tuned { most } else { 0 });
    }

    /// The program took so many bytes, which may ask for more room.
    pub(crate) fn note_read(&mut self, now: Instant) {
        self.limit = self.tuning.judge(self.limit, now);
    }

    /// The peer's SYN arrived.
    pub(crate) fn start(&mut self, irs: Seq) {
        self.irs = irs;
        self.nxt = irs + 1;
        self.edge = self.nxt;
        self.acked = self.nxt;
    }

    /// A peer that takes no larger segments sends none, until it does.
    pub(crate) fn expect_at_most(&mut self, mss: u16) {
        self.mss = self.mss.min(mss);
    }

    /// RCV.WND: how much of what was offered is left.
    pub(crate) fn window(&self) -> u32 {
        if self.nxt.is_before(self.edge) { self.edge.since(self.nxt) } else { 0 }
    }

    /// Whether some of a segment lies in the window (RFC 9293 section 3.10.7.4, table 6; a segment
    /// that begins before the window and ends in it or beyond is accepted for its middle).
    pub(crate) fn accepts(&self, seq: Seq, len: u32) -> bool {
        let window = self.window();
        match (len, window) {
            (0, 0) => seq == self.nxt,
            (0, _) => seq.is_within(self.nxt, window),
            // Nothing fits, but what it acknowledges counts (the RFC's "special allowance").
            (_, 0) => seq == self.nxt,
            _ => seq.is_before(self.edge) && self.nxt.is_before(seq + len),
        }
    }

    /// True bytes that wait to be read, here or with a program.
    pub(crate) const fn held(&self) -> u32 {
        self.queue.held().saturating_add(self.lent)
    }

    /// True bytes that may wait at this moment.
    pub(crate) const fn bound(&self) -> u32 {
        if self.limit < self.allowed { self.limit } else { self.allowed }
    }

    /// Whether a segment is refused although its place was promised: all connections together are
    /// full (`full`), and this one holds more than its floor.
    pub(crate) const fn is_refused(&self, other_held: u32, full: bool) -> bool {
        full && self.held().saturating_add(other_held) > FLOOR
    }

    /// How much may be offered now, in bytes from `nxt` on, counted in true bytes.
    fn space(&self, other_held: u32) -> u32 {
        // No more than the field can name: else each read would be worth telling.
        let nameable = u32::from(u16::MAX) << self.shift;
        self.bound().saturating_sub(self.held().saturating_add(other_held)).min(nameable)
    }

    /// Whether the window would grow by so much that the peer should know, by an acknowledgment
    /// that has nothing else to say: by two segments or half of all where little is left of it (RFC
    /// 9293 section 3.8.6.2.2), else by a quarter. A sender that still has room needs no news.
    pub(crate) fn owes_update(&self, other_held: u32) -> bool {
        let (bound, window) = (self.bound(), self.window());
        let least = 2 * u32::from(self.mss);
        let step = if window <= bound / 8 { least } else { least.max(bound / 4) };
        self.space(other_held) >= window.saturating_add(step.min(bound / 2))
    }

    /// The window field of a segment that leaves now; moves the edge. `scaled` is false on a SYN.
    pub(crate) fn offer(&mut self, scaled: bool, other_held: u32) -> u16 {
        let shift = if scaled { self.shift } else { 0 };
        let (old, space) = (self.window(), self.space(other_held));
        let step = (self.bound() / 2).min(u32::from(self.mss));
        let wanted = if space >= old.saturating_add(step) { space } else { old };
        // Rounded up: what was offered is never taken back.
        let field = u16::try_from(wanted.div_ceil(1 << shift)).unwrap_or(u16::MAX);
        let edge = self.nxt + (u32::from(field) << shift);
        self.edge = self.edge.later(edge);
        field
    }

    /// An acknowledgment of all that arrived leaves.
    pub(crate) fn acknowledged(&mut self) {
        self.unacked = 0;
        self.acked = self.nxt;
    }

    /// Whether true bytes have to be saved: more is held than the window counts with.
    pub(crate) const fn is_crowded(&self, other_held: u32) -> bool {
        self.held().saturating_add(other_held) > self.bound()
    }

    /// True bytes that may wait before their turn: what is promised arrives in segments of which
    /// each fills a quarter of its memory at least, or is put behind the one before.
    pub(crate) const fn room_ahead(&self) -> u32 {
        let room = self.bound().saturating_mul(4).saturating_sub(self.held());
        // One frame at least, however small the window is.
        if room < FRAME_HELD { FRAME_HELD } else { room }
    }
}

/// What may be held at first.
pub(crate) fn first_limit(most: u32, tuned: bool) -> u32 {
    if tuned { most.min(FIRST) } else { most }
}

/// The shift with which windows of `limit` bytes can be named (RFC 7323 section 2.3: 14 at most).
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

    fn rcv(limit: u32) -> Rcv {
        let mut rcv = Rcv::new(limit, false, Instant::ORIGIN);
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
            // All of it is read again: a quarter of the window at least.
            (3_999, 0, false),
            (4_000, 0, true),
            // Little is left: two segments.
            (14_000, 12_001, false),
            (14_000, 12_000, true),
        ] {
            let mut rcv = Rcv { queue: ByteQueue::new(), tuning: rcv.tuning.clone(), ..rcv };
            rcv.nxt += arrived;
            assert_eq!(rcv.owes_update(held), owed, "{arrived} {held}");
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
