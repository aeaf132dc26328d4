//! The send half: what the application wrote and the peer has not acknowledged, and how much of it
//! the peer's window lets go.
//!
//! Called by the connection's handlers. SND of RFC 9293 section 3.3.1, and the bytes: written into
//! reference-counted chunks once, borrowed by segments, dropped when acknowledged (decision B8).
//! Invariants: `una <= nxt`, both moved forward only; `sent` holds exactly the bytes between them,
//! `unsent` those behind; a FIN is sent behind the last byte and never before. Not here: what was
//! lost and the congestion window (`flight.rs`), and when a segment leaves (`output.rs`).
//!
//! # Under flood
//! Only the application fills it, up to its `send_bytes` in true bytes, out of the preallocated
//! pool; a peer that never acknowledges keeps it filled until the connection is given up
//! (`timer.rs`). An ACK costs a look at each chunk that it frees.

use floodwall_base::Seq;
use floodwall_packet::{PacketBuf, PacketList, Pool};
use floodwall_sync::prefetch;

use crate::queue::{BORROWED_MAX, ByteQueue};

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Snd {
    /// The initial sequence number: that of the SYN.
    pub(crate) iss: Seq,
    /// The oldest number that is not acknowledged.
    pub(crate) una: Seq,
    /// The next number to be sent.
    pub(crate) nxt: Seq,
    /// The peer's window, from `una` on.
    pub(crate) wnd: u32,
    /// The largest window that the peer ever offered.
    pub(crate) wnd_max: u32,
    /// The segment that the window was taken from: its sequence number and acknowledgment.
    pub(crate) wl1: Seq,
    pub(crate) wl2: Seq,
    /// Below this no acknowledgment is believed (RFC 5961 section 5.2): as far behind `una` as the
    /// peer's window ever reached, and never what came before our SYN.
    oldest: Seq,
    /// Where the last segment ended that was not full.
    pub(crate) short: Seq,
    /// How the peer scales its windows (RFC 7323 section 2).
    pub(crate) shift: u8,
    /// The application has no more to send.
    pub(crate) fin: bool,
    /// The FIN was sent, and is counted in `nxt`.
    pub(crate) fin_sent: bool,
    /// Sent and not acknowledged.
    sent: ByteQueue<true>,
    /// Not sent yet.
    unsent: ByteQueue<true>,
}

impl Snd {
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
            sent: ByteQueue::new(),
            unsent: ByteQueue::new(),
        }
    }

    /// Asks for what a segment and a write will read and write (`connection.rs`).
    #[inline]
    pub(crate) fn expect(&self) {
        prefetch(&self.wnd);
        prefetch(&self.sent);
        prefetch(&self.unsent);
    }

    /// Whether our SYN is still unacknowledged.
    pub(crate) fn syn_outstanding(&self) -> bool {
        self.una == self.iss && self.nxt != self.iss
    }

    /// Bytes that were not sent yet.
    pub(crate) const fn unsent(&self) -> u32 {
        self.unsent.len()
    }

    /// Bytes of data that are sent and not acknowledged.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.sent.len()
    }

    /// Whether the FIN was acknowledged.
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_sent && self.una == self.nxt
    }

    /// True bytes that wait here.
    pub(crate) const fn held(&self) -> u32 {
        self.sent.held() + self.unsent.held()
    }

    /// Takes from `bytes` what fits into `limit` true bytes; what was taken.
    pub(crate) fn write(&mut self, bytes: &[u8], chunk: usize, limit: u32, pool: &Pool) -> usize {
        let room = limit.saturating_sub(self.sent.held());
        self.unsent.write(bytes, chunk, room, pool)
    }

    /// Takes a chunk that somebody else has filled and paid for: no reference, so that its memory
    /// is counted here.
    pub(crate) fn push(&mut self, chunk: PacketBuf) {
        self.unsent.push(chunk);
    }

    /// How many more bytes the peer's window takes.
    pub(crate) fn usable(&self) -> u32 {
        let edge = self.una + self.wnd;
        if self.nxt.is_before(edge) { edge.since(self.nxt) } else { 0 }
    }

    /// Borrows the next `len` unsent bytes for a segment, or fewer (those of one chunk), and counts
    /// them as sent.
    pub(crate) fn take(&mut self, len: u32, pool: &Pool) -> Option<PacketBuf> {
        let mut packet = self.unsent.lend(len, &mut self.sent, pool)?;
        if (packet.len() as u32) < len && !self.unsent.is_empty() {
            self.take_more(len, &mut packet, pool);
        }
        self.nxt += packet.len() as u32;
        Some(packet)
    }

    /// Borrows what is missing for `len` bytes, as far as one packet has places for its chunks,
    /// which are walked along once.
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

    /// Borrows bytes that were sent before, from `seq` on.
    pub(crate) fn again(&self, seq: Seq, len: u32, pool: &Pool) -> Option<PacketBuf> {
        self.sent.share(seq.since(self.una), len, pool)
    }

    /// Whether a segment that ends at `end` empties what there is to send.
    pub(crate) fn is_last(&self, end: Seq) -> bool {
        self.unsent.is_empty() && end == self.data_end()
    }

    /// The sequence number behind the last byte that was sent: the FIN's, once there is no more.
    pub(crate) fn data_end(&self) -> Seq {
        if self.fin_sent { self.nxt - 1 } else { self.nxt }
    }

    /// Moves `una` on; the number of bytes of data that were newly acknowledged.
    pub(crate) fn acknowledge(&mut self, ack: Seq) -> u32 {
        let syn = u32::from(self.syn_outstanding());
        let bytes = ack.since(self.una).saturating_sub(syn).min(self.sent.len());
        self.sent.consume(bytes);
        self.una = ack;
        self.oldest = self.oldest.later(ack - self.wnd_max.max(1));
        bytes
    }

    /// Whether an acknowledgment may be one of this connection's.
    pub(crate) fn may_acknowledge(&self, ack: Seq) -> bool {
        self.oldest.is_at_most(ack) && ack.is_at_most(self.nxt)
    }

    /// Whether a segment is in flight that was not full (Minshall's form of Nagle's algorithm).
    pub(crate) fn has_short_outstanding(&self) -> bool {
        self.una.is_before(self.short)
    }

    /// Takes the window of an acceptable segment, if it is not older than the last that was taken
    /// (RFC 9293 section 3.10.7.4); whether it grew. What acknowledges more is newer wherever it
    /// begins: as the filler of a hole, behind which others have told of their windows before.
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

    /// Forgets all bytes.
    pub(crate) fn clear(&mut self) {
        self.sent.clear();
        self.unsent.clear();
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::PoolConfig;

    use super::*;

    #[test]
    fn a_frame_that_segments_cut_is_counted_once() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut snd = Snd::new(Seq(0));
        (snd.una, snd.nxt) = (Seq(1), Seq(1));
        // A program's writes that end where no segment does.
        let frames: Vec<_> = [456, 1448, 1448, 1448]
            .map(|len| pool.packet_from(&vec![7; len]).unwrap())
            .into_iter()
            .collect();
        let reference = pool.packet_from(&[0; 1448]).unwrap().share(&pool, 0, 9).unwrap();
        let reference = reference.true_size();
        let all: u32 = frames.iter().map(PacketBuf::true_size).sum();
        frames.into_iter().for_each(|frame| snd.push(frame));
        assert_eq!(snd.held(), all);
        // Each of these cuts a frame: its front is a reference more, and no frame more.
        for cut in 1..=3 {
            let segment = snd.take(1448, &pool).unwrap();
            assert_eq!(segment.len(), 1448);
            assert_eq!(snd.held(), all + cut * reference, "{cut} frames are cut");
        }
        // The first frame and the front of the second are acknowledged; its rest holds it still.
        snd.acknowledge(Seq(1 + 1448));
        let first = pool.packet_from(&[7; 456]).unwrap().true_size();
        assert_eq!(snd.held(), all - first + 2 * reference);
        snd.acknowledge(snd.nxt);
        assert_eq!(snd.held(), all - first - 2 * pool.packet_from(&[7; 1448]).unwrap().true_size());
        snd.clear();
        assert_eq!(snd.held(), 0);
    }
}
