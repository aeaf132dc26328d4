//! The send half: written and unacknowledged data, and how much of it the peer's window permits to
//! send.
//!
//! Used by the connection's handlers. SND of RFC 9293 section 3.3.1, and the data: written into
//! reference-counted chunks once, borrowed by segments, dropped when acknowledged (decision B8).
//! Invariants: `una <= nxt`, both moved forward only; `sent` holds exactly the bytes between them,
//! behind what is acknowledged and not freed yet, `unsent` those that follow; a FIN is sent after
//! the last byte and never before. Not here: losses and the congestion window (`recovery.rs`), and
//! when a segment is sent (`output.rs`).
//!
//! # Under flood
//! Only the application fills it, up to its `send_bytes` in true bytes, from the preallocated pool;
//! a peer that never acknowledges keeps it filled until the connection is given up (`timeouts.rs`).
//! An ACK costs a visit to each chunk that it frees: all ACKs of a turn free
//! `TCP_CHUNKS_FREED_MAX`, and timed work frees the rest (`chunk_budget.rs`).

use floodwall_base::Seq;
use floodwall_checksum::InternetSum;
use floodwall_packet::{PacketBuf, PacketList, PacketQueue, Pool};
use floodwall_sync::prefetch;

use crate::memory::Scarcity;
use crate::queue::{BORROWED_MAX, ByteQueue};

/// The send half of a connection: sequence variables, window and send queue.
#[derive(Debug)]
pub(crate) struct SendState {
    /// The initial sequence number: that of the SYN.
    pub(crate) iss: Seq,
    /// SND.UNA: the oldest unacknowledged number.
    pub(crate) una: Seq,
    /// SND.NXT: the next number to be sent.
    pub(crate) nxt: Seq,
    /// The peer's window, from `una` on.
    pub(crate) wnd: u32,
    /// The largest window that the peer has offered.
    pub(crate) wnd_max: u32,
    /// SND.WL1 and SND.WL2: sequence number and acknowledgment of the last window update.
    pub(crate) wl1: Seq,
    pub(crate) wl2: Seq,
    /// Acknowledgments below this are invalid (RFC 5961 section 5.2): as far below `una` as the
    /// peer's largest window, and never below our SYN.
    oldest: Seq,
    /// The end of the last segment that was not full.
    pub(crate) short: Seq,
    /// The peer's window scale (RFC 7323 section 2).
    pub(crate) shift: u8,
    /// The application has closed the send direction.
    pub(crate) fin: bool,
    /// The FIN was sent, and is counted in `nxt`.
    pub(crate) fin_sent: bool,
    /// How much memory there is for it (`memory.rs`).
    pub(crate) scarcity: Scarcity,
    /// Sent and not acknowledged, and what is acknowledged and not freed yet.
    sent: ByteQueue<true>,
    /// Not sent yet.
    unsent: ByteQueue<true>,
}

impl SendState {
    pub(crate) fn new(iss: Seq) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            wnd: 0,
            wnd_max: 0,
            wl1: Seq(0),
            wl2: Seq(0),
            oldest: iss + 1,
            short: iss,
            shift: 0,
            fin: false,
            fin_sent: false,
            scarcity: Scarcity::None,
            sent: ByteQueue::new(),
            unsent: ByteQueue::new(),
        }
    }

    /// Prefetches the lines that a segment and a write will touch (`connection.rs`).
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.wnd);
        prefetch(&self.sent);
        prefetch(&self.unsent);
    }

    /// Our SYN was sent and acknowledged by another part of the system.
    pub(crate) fn start(&mut self) {
        (self.una, self.nxt) = (self.iss + 1, self.iss + 1);
    }

    /// Whether our SYN is unacknowledged. After 4 GiB `una` is at `iss` again, but `oldest` is
    /// behind `una` from its first acknowledgment on.
    fn syn_outstanding(&self) -> bool {
        self.una == self.iss && self.oldest == self.iss + 1
    }

    /// Number of bytes not sent yet.
    pub(crate) const fn unsent(&self) -> u32 {
        self.unsent.len()
    }

    /// Number of data bytes sent and not acknowledged.
    pub(crate) fn outstanding(&self) -> u32 {
        self.sent.len() - self.acknowledged()
    }

    /// Number of data bytes acknowledged and not freed yet.
    fn acknowledged(&self) -> u32 {
        let in_flight = if self.fin_acked() { 0 } else { self.data_end().since(self.una) };
        // A SYN in flight is no byte of it.
        self.sent.len().saturating_sub(in_flight)
    }

    /// Whether the FIN was acknowledged.
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_sent && self.una == self.nxt
    }

    /// True bytes in the send buffer.
    pub(crate) const fn held(&self) -> u32 {
        self.sent.held() + self.unsent.held()
    }

    /// Copies from `bytes` as much as fits into `limit` true bytes; returns how much.
    pub(crate) fn write(&mut self, bytes: &[u8], chunk: usize, limit: u32, pool: &Pool) -> usize {
        let room = limit.saturating_sub(self.sent.held());
        self.unsent.write(bytes, chunk, room, pool)
    }

    /// Takes a chunk that the caller has filled and accounted for: no reference, so that its memory
    /// is counted here.
    pub(crate) fn push(&mut self, chunk: PacketBuf) {
        self.unsent.push(chunk);
    }

    /// How many more bytes the peer's window permits.
    pub(crate) fn usable(&self) -> u32 {
        let edge = self.una + self.wnd;
        if self.nxt.is_before(edge) { edge.since(self.nxt) } else { 0 }
    }

    /// Borrows the next `len` unsent bytes for a segment, or fewer (those of one chunk), and counts
    /// them as sent.
    #[inline(always)]
    pub(crate) fn take(&mut self, len: u32, pool: &Pool) -> Option<PacketBuf> {
        let mut packet = self.unsent.lend(len, &mut self.sent, pool)?;
        if (packet.len() as u32) < len && !self.unsent.is_empty() {
            self.take_more(len, &mut packet, pool);
        }
        self.nxt += packet.len() as u32;
        Some(packet)
    }

    /// As [`SendState::write`] of `bytes`, where nothing is unsent, and [`SendState::take`] of all
    /// of them, with their sum where that is `summed`. `None` where no memory is free.
    #[inline(always)]
    pub(crate) fn write_through(
        &mut self,
        bytes: &[u8],
        summed: bool,
        pool: &Pool,
    ) -> Option<(PacketBuf, InternetSum)> {
        let lent = ByteQueue::write_lent(&mut self.sent, bytes, summed, pool)?;
        self.nxt += bytes.len() as u32;
        Some(lent)
    }

    /// Borrows the missing part of `len` bytes, as far as one packet has places for the chunks;
    /// walks the chunks once.
    #[inline(never)]
    fn take_more(&mut self, len: u32, packet: &mut PacketBuf, pool: &Pool) {
        let (mut taken, mut chunks) = (packet.len() as u32, packet.chunk_count());
        let mut pieces = PacketList::new();
        while taken < len
            && !self.unsent.is_empty()
            && let Some(piece) = self.unsent.lend(len - taken, &mut self.sent, pool)
        {
            let piece_len = piece.len() as u32;
            chunks += piece.chunk_count();
            if chunks > BORROWED_MAX {
                self.sent.give_back(piece_len, &mut self.unsent);
                break;
            }
            taken += piece_len;
            pieces.push_back(piece);
        }
        let fits = packet.append_all(pieces).is_ok();
        debug_assert!(fits, "its chunks were counted");
    }

    /// Borrows bytes sent before, from `seq` on, for a retransmission.
    pub(crate) fn again(&self, seq: Seq, len: u32, pool: &Pool) -> Option<PacketBuf> {
        self.sent.share(self.acknowledged() + seq.since(self.una), len, pool)
    }

    /// Whether a segment that ends at `end` contains the last of the data to send.
    pub(crate) fn is_last(&self, end: Seq) -> bool {
        self.unsent.is_empty() && end == self.data_end()
    }

    /// The sequence number after the last written byte: the FIN's, once the send direction is
    /// closed.
    pub(crate) fn data_end(&self) -> Seq {
        if self.fin_sent { self.nxt - 1 } else { self.nxt }
    }

    /// Advances `una`; returns the number of newly acknowledged data bytes, and whether they are
    /// freed: all are in one chunk. Else [`SendState::free_acknowledged`] frees them.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, ack: Seq) -> (u32, bool) {
        let syn = u32::from(self.syn_outstanding());
        let bytes = ack.since(self.una).saturating_sub(syn).min(self.sent.len());
        let is_freed = self.sent.consume_at_once(bytes);
        self.una = ack;
        // A mark that was passed would mean the opposite half of the circle later.
        self.short = self.short.later(ack);
        self.oldest = self.oldest.later(ack - self.wnd_max.max(1));
        (bytes, is_freed)
    }

    /// Frees what is acknowledged, of at most `most` chunks, which is what is left of it after;
    /// returns whether that was all.
    pub(crate) fn free_acknowledged(&mut self, most: &mut u32) -> bool {
        let acknowledged = self.acknowledged();
        self.sent.consume(acknowledged, most);
        *most > 0 || self.acknowledged() == 0
    }

    /// Whether an acknowledgment number is plausible for this connection.
    pub(crate) fn may_acknowledge(&self, ack: Seq) -> bool {
        self.oldest.is_at_most(ack) && ack.is_at_most(self.nxt)
    }

    /// Whether a segment that was not full is in flight (Minshall's form of Nagle's algorithm).
    pub(crate) fn has_short_outstanding(&self) -> bool {
        self.una.is_before(self.short)
    }

    /// Updates the window from an acceptable segment, if it is not older than the last update (RFC
    /// 9293 section 3.10.7.4); returns whether the window grew. A higher acknowledgment is newer
    /// regardless of the sequence number: it may be in a segment that fills a hole, when segments
    /// beyond the hole have updated the window before.
    #[inline(always)]
    pub(crate) fn update_window(&mut self, seq: Seq, ack: Seq, window: u32) -> bool {
        let newer = self.wl2.is_before(ack)
            || self.wl1.is_before(seq)
            || self.wl1 == seq && self.wl2 == ack;
        if !newer {
            return false;
        }
        let before = self.una + self.wnd;
        (self.wl1, self.wl2) = (self.wl1.later(seq), self.wl2.later(ack));
        self.wnd = window;
        self.wnd_max = self.wnd_max.max(window);
        before.is_before(self.una + window)
    }

    /// Drops all data: nothing is held any more, and nothing will be written.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.held() > 0 {
            self.sent.abandon(&mut self.unsent);
        }
    }

    /// The chunks that were dropped by [`SendState::clear`], which are still to be freed.
    #[inline]
    pub(crate) fn take_dropped(&mut self) -> Option<PacketQueue> {
        (self.held() == 0).then(|| self.sent.take_abandoned())?
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::PoolConfig;

    use super::*;

    impl SendState {
        /// Acknowledges, and frees all of it; returns the number of bytes.
        fn acknowledge_all(&mut self, ack: Seq) -> u32 {
            let (bytes, is_freed) = self.acknowledge(ack);
            let mut most = u32::MAX;
            assert!(is_freed || self.free_acknowledged(&mut most));
            bytes
        }
    }

    fn started(iss: u32) -> SendState {
        let mut snd = SendState::new(Seq(iss));
        snd.start();
        snd
    }

    #[test]
    fn a_stream_is_at_its_first_number_again_after_4_gib_and_no_byte_is_taken_for_the_syn() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for iss in [0, 77, u32::MAX] {
            let mut snd = SendState::new(Seq(iss));
            snd.nxt += 1;
            assert_eq!(snd.acknowledge_all(Seq(iss) + 1), 0, "the SYN is no byte");
            // All that is acknowledged is sent again and again, in steps of 1 GiB, up to `iss`.
            for _ in 0..4 {
                snd.nxt += 1 << 30;
                snd.acknowledge_all(snd.nxt);
            }
            (snd.una, snd.nxt) = (Seq(iss) - 100, Seq(iss) - 100);
            let text: [u8; 200] = core::array::from_fn(|n| n as u8);
            assert_eq!(snd.write(&text, 1448, u32::MAX, &pool), 200);
            while snd.take(1000, &pool).is_some() {}
            assert_eq!(snd.acknowledge_all(Seq(iss)), 100, "{iss}");
            assert_eq!(snd.acknowledge_all(Seq(iss) + 50), 50, "{iss}");
            // What is sent again is what was sent there.
            let again = snd.again(snd.una, 50, &pool).unwrap();
            assert_eq!((again.first()[0], again.len()), (150, 50), "{iss}");
            assert_eq!((snd.acknowledge_all(snd.nxt), snd.outstanding()), (50, 0));
        }
    }

    #[test]
    fn a_window_is_updated_however_much_was_sent_in_one_direction() {
        // SND.WL1 and SND.WL2, past half of the circle and past all of it.
        for (ours, theirs) in [(1_u32 << 29, 0), (0, 1 << 29), (1 << 29, 1 << 29)] {
            for steps in 1..=10 {
                let mut snd = started(0);
                let mut seq = Seq(1);
                (snd.wl1, snd.wl2, snd.wnd) = (seq, snd.una, 1000);
                for _ in 0..steps {
                    snd.nxt += ours;
                    snd.acknowledge_all(snd.nxt);
                    seq += theirs;
                    // It says the same, again and again.
                    snd.update_window(seq, snd.una, 1000);
                }
                assert!(snd.update_window(seq, snd.una, 1001), "{ours} {theirs} {steps}");
                assert_eq!(snd.wnd, 1001);
                // One of before changes nothing.
                assert!(!snd.update_window(seq - 1, snd.una, 1005), "{ours} {theirs} {steps}");
            }
        }
    }

    #[test]
    fn a_short_segment_of_long_ago_holds_nothing_back() {
        // Nagle's mark, past half of the circle and past all of it.
        let mut snd = started(0);
        snd.short = Seq(1);
        for step in 1..=10_u64 {
            let at = Seq((step << 29) as u32);
            (snd.nxt, snd.una) = (at, snd.una.later(at - (1 << 20)));
            snd.acknowledge_all(at);
            assert!(!snd.has_short_outstanding(), "{step}");
        }
        snd.nxt += 10;
        snd.short = snd.nxt;
        assert!(snd.has_short_outstanding());
    }

    #[test]
    fn an_acknowledgment_is_judged_the_same_however_much_was_sent() {
        // RFC 5961 section 5: SND.UNA - MAX.SND.WND, past half of the circle and past all of it.
        let mut snd = started(0);
        snd.wnd_max = 1000;
        for step in 1..=10_u64 {
            let at = Seq((step << 29) as u32);
            (snd.nxt, snd.una) = (at + 10, snd.una.later(at - (1 << 20)));
            snd.acknowledge_all(at);
            for (ack, is_plausible) in [
                (at - 1001, false),
                (at - 1000, true),
                (at, true),
                (at + 10, true),
                (at + 11, false),
            ] {
                assert_eq!(snd.may_acknowledge(ack), is_plausible, "{step} {ack:?}");
            }
        }
    }

    #[test]
    fn a_frame_that_segments_cut_is_counted_once() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut snd = started(0);
        // Writes that do not end at segment boundaries.
        let frames: Vec<_> = [456, 1448, 1448, 1448]
            .map(|len| pool.packet_from(&vec![7; len]).unwrap())
            .into_iter()
            .collect();
        let reference = pool.packet_from(&[0; 1448]).unwrap().share(&pool, 0, 9).unwrap();
        let reference = reference.true_size();
        let all: u32 = frames.iter().map(PacketBuf::true_size).sum();
        frames.into_iter().for_each(|frame| snd.push(frame));
        assert_eq!(snd.held(), all);
        // Each of these splits a frame: its front is one more reference, and no additional frame.
        for cut in 1..=3 {
            let segment = snd.take(1448, &pool).unwrap();
            assert_eq!(segment.len(), 1448);
            assert_eq!(snd.held(), all + cut * reference, "{cut} frames are cut");
        }
        // The first frame and the front of the second are acknowledged; its rest still occupies it.
        snd.acknowledge_all(Seq(1 + 1448));
        let first = pool.packet_from(&[7; 456]).unwrap().true_size();
        assert_eq!(snd.held(), all - first + 2 * reference);
        snd.acknowledge_all(snd.nxt);
        assert_eq!(snd.held(), all - first - 2 * pool.packet_from(&[7; 1448]).unwrap().true_size());
        snd.clear();
        assert_eq!(snd.held(), 0);
    }
}
