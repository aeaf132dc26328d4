//! `ByteQueue`: a FIFO of bytes in chunks; read by copying or, read-only, by reference.
//!
//! Both halves of a connection store their bytes in such queues: the send half unacknowledged data,
//! the receive half unread data. Invariants: `bytes` is the sum of the chunks' lengths, `held` the
//! true bytes of memory that they occupy (decision B8); no chunk is empty. The newest chunk is
//! stored apart from the list, so that short pieces can be appended to its last byte (coalescing).
//! Not here: sequence numbers.
//!
//! # Under flood
//! A peer fills the queue of the receive half, up to its window; short pieces are coalesced into
//! free space of the previous chunk, so that one-byte segments do not occupy one frame each. The
//! bound is set by the owner, which checks [`ByteQueue::held`]. A peer that acknowledges none of
//! many small segments occupies one reference per segment, while more than a quarter of the
//! references are free; after that segments are sent as copies, at the cost of the time to copy.

use floodwall_base::limits::CHUNKS_MAX;
use floodwall_checksum::{InternetSum, copy_sum};
use floodwall_packet::{Class, PacketBuf, PacketQueue, Pool};

use crate::chunk_budget::SMALL_CHUNK_BYTES;

/// Maximum number of chunks that one segment borrows: its headers need one or two chunks more.
pub(crate) const BORROWED_MAX: usize = CHUNKS_MAX - 2;

/// Maximum size of all headers before text: 60 bytes of TCP, 40 of IPv6, Ethernet and a tag.
const HEADERS_MAX: usize = 128;

/// Whether a packet fills at most a quarter of its memory.
pub(crate) fn is_sparse(packet: &PacketBuf) -> bool {
    is_sparse_in(packet.len(), packet.held_size())
}

const fn is_sparse_in(len: usize, held: u32) -> bool {
    len as u32 <= held / 4
}

/// A packet of `len` bytes, limited to one frame, with headroom for the headers.
fn copy_with(len: usize, pool: &Pool, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<PacketBuf> {
    let len = len.min(pool.frame_capacity());
    let mut copy = (len > 0).then(|| pool.alloc_behind(HEADERS_MAX, len)).flatten()?;
    let filled = fill(copy.extend(len)?);
    debug_assert_eq!(filled, len);
    Some(copy)
}

/// A FIFO of bytes in chunks. A queue of `OWN` memory never contains memory owned by another queue:
/// a reference in it stands for a chunk that [`ByteQueue::lend`] has handed out, and is accounted
/// as that chunk, or is the front of a chunk that was cut; the rest of that chunk waits behind it,
/// here or in the queue that it was cut from, and accounts for the memory. So a frame that was cut
/// counts once.
#[derive(Default, Debug)]
pub(crate) struct ByteQueue<const OWN: bool = false> {
    list: PacketQueue,
    newest: Option<PacketBuf>,
    bytes: u32,
    held: u32,
}

impl<const OWN: bool> ByteQueue<OWN> {
    pub(crate) const fn new() -> Self {
        Self { list: PacketQueue::new(), newest: None, bytes: 0, held: 0 }
    }

    /// True bytes of memory that a chunk occupies.
    fn held_by(chunk: &PacketBuf) -> u32 {
        if OWN { chunk.true_size() } else { chunk.held_size() }
    }

    /// Number of bytes in the queue.
    pub(crate) const fn len(&self) -> u32 {
        self.bytes
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// True bytes of memory that the chunks occupy.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Appends a chunk; no effect where it has no bytes.
    pub(crate) fn push(&mut self, chunk: PacketBuf) {
        if !chunk.is_empty() {
            let held = Self::held_by(&chunk);
            self.push_holding(chunk, held);
        }
    }

    /// Appends a chunk that has bytes and occupies so many true bytes.
    fn push_holding(&mut self, chunk: PacketBuf, held: u32) {
        self.bytes += chunk.len() as u32;
        self.held += held;
        if let Some(before) = self.newest.replace(chunk) {
            self.list.push_back(before);
        }
    }

    /// As [`ByteQueue::push`]; a chunk with mostly empty memory is copied behind the last byte of
    /// the newest one where that has room (coalescing). Returns whether it was copied.
    #[inline(always)]
    pub(crate) fn push_compact(&mut self, chunk: PacketBuf) -> bool {
        let (len, held) = (chunk.len(), chunk.held_size());
        if is_sparse_in(len, held)
            && let Some(newest) = &mut self.newest
            && let Some(room) = newest.extend(len)
        {
            chunk.copy_out(0, room);
            self.bytes += len as u32;
            return true;
        }
        if OWN {
            self.push(chunk);
        } else if len > 0 {
            self.push_holding(chunk, held);
        }
        false
    }

    /// As [`ByteQueue::push_compact`], for when memory is short: a chunk that fills less than half
    /// of its memory is copied into frames that are filled completely. If the pool is empty, the
    /// chunk is kept as it is.
    pub(crate) fn push_tight(&mut self, mut chunk: PacketBuf, pool: &Pool) {
        if chunk.held_size() > 2 * chunk.len() as u32 {
            let mut taken = 0;
            for piece in chunk.chunks() {
                let here = self.fill(piece, None, u32::MAX, pool);
                taken += here;
                if here < piece.len() {
                    break;
                }
            }
            chunk.trim_front(taken);
        }
        self.push(chunk);
    }

    /// Copies as much of `bytes` as `room` true bytes and the pool allow; returns the number of
    /// bytes taken. Chunks end at multiples of `chunk_len` bytes, counted from the front, so that a
    /// reader of such pieces finds each in chunks of its own, independent of how the bytes were
    /// written.
    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        chunk_len: usize,
        room: u32,
        pool: &Pool,
    ) -> usize {
        let most = pool.frame_capacity().max(1);
        // Where segments are larger than frames, pieces are placed in GSO frames, if available.
        let most = if chunk_len > most { most.max(pool.super_capacity()) } else { most };
        self.fill(bytes, Some(chunk_len.clamp(1, most)), room, pool)
    }

    /// The same without a piece length: frames are filled completely.
    fn fill(&mut self, bytes: &[u8], chunk_len: Option<usize>, room: u32, pool: &Pool) -> usize {
        // Bytes of the current piece.
        let begun = |queue: &Self| chunk_len.map_or(0, |len| queue.bytes as usize % len);
        let behind = match (chunk_len, begun(self)) {
            (None, _) => usize::MAX,
            (Some(_), 0) => 0,
            (Some(len), begun) => len - begun,
        };
        let mut taken = self.fill_newest(bytes, behind);
        while let Some(left) = bytes.get(taken..).filter(|left| !left.is_empty()) {
            if self.held >= room {
                break;
            }
            let whole = chunk_len.unwrap_or(pool.frame_capacity()) - begun(self);
            let Some((mut chunk, room)) = self.room_for(left.len(), whole, pool) else { break };
            let len = left.len().min(room);
            if !left.get(..len).is_some_and(|piece| chunk.extend_from_slice(piece)) {
                break;
            }
            self.push(chunk);
            taken += len;
        }
        taken
    }

    /// As [`ByteQueue::write`] of `bytes`, which are one chunk, to an empty queue, and
    /// [`ByteQueue::lend`] of them: they are summed as they are copied, where that is `summed`.
    /// `None` where no memory is free.
    #[inline(always)]
    pub(crate) fn write_lent(
        kept: &mut Self,
        bytes: &[u8],
        summed: bool,
        pool: &Pool,
    ) -> Option<(PacketBuf, InternetSum)> {
        if bytes.len() > pool.frame_capacity() || !pool.has_spare(Class::Reference) {
            return None;
        }
        let (mut chunk, sum) = pool.alloc_written(HEADERS_MAX, bytes.len(), |room| {
            if summed {
                return copy_sum(room, bytes);
            }
            room.copy_from_slice(bytes);
            InternetSum::ZERO
        })?;
        let held = Self::held_by(&chunk);
        let own = chunk.share_behind(pool)?;
        kept.push_holding(own, held);
        Some((chunk, sum))
    }

    /// Memory for the next part of `len` bytes, up to the end of a piece that has `whole` bytes
    /// left; and how many of them fit.
    fn room_for(&self, len: usize, whole: usize, pool: &Pool) -> Option<(PacketBuf, usize)> {
        let frame = pool.frame_capacity();
        if whole > frame {
            // A GSO frame for data that fills most of it.
            let chunk = if len >= whole / 2 { pool.alloc(Class::Super) } else { None };
            return match chunk {
                Some(chunk) => Some((chunk, whole)),
                None => Some((pool.alloc_for(frame)?, frame)),
            };
        }
        // A short write to an empty queue takes a small chunk; later ones fill frames.
        let room = if self.is_empty() { len.min(whole) } else { whole };
        Some((pool.alloc_behind(HEADERS_MAX, room)?, room))
    }

    /// Appends up to `most` bytes to the newest chunk, if it has no references.
    fn fill_newest(&mut self, bytes: &[u8], most: usize) -> usize {
        let Some(newest) = &mut self.newest else { return 0 };
        let room = newest.tailroom().min(most);
        let Some(here) = bytes.get(..room.min(bytes.len())).filter(|here| !here.is_empty()) else {
            return 0;
        };
        if !newest.extend_from_slice(here) {
            return 0;
        }
        self.bytes += here.len() as u32;
        here.len()
    }

    /// Copies the oldest bytes into `out` and removes them; returns how many.
    #[inline]
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        // Mostly it is one chunk, and read at once.
        if self.list.is_empty()
            && let Some(only) = &self.newest
            && only.first().len() == only.len()
            && let Some(room) = out.get_mut(..only.len())
        {
            room.copy_from_slice(only.first());
            (self.bytes, self.held, self.newest) = (0, 0, None);
            return room.len();
        }
        self.read_chunks(out)
    }

    /// The same of several chunks, or of a part of one.
    fn read_chunks(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len()
            && let Some(mut chunk) = self.pop()
        {
            let room = out.get_mut(done..).unwrap_or_default();
            let n = chunk.copy_out(0, room);
            done += n;
            if n < chunk.len() {
                chunk.trim_front(n);
                self.push_front(chunk);
                break;
            }
        }
        done
    }

    /// Copies bytes from `off` on without removing them; returns how many.
    pub(crate) fn peek(&self, off: u32, out: &mut [u8]) -> usize {
        let (mut skip, mut done) = (off as usize, 0);
        for chunk in self.list.iter().chain(&self.newest) {
            let len = chunk.len();
            if skip < len && done < out.len() {
                done += chunk.copy_out(skip, out.get_mut(done..).unwrap_or_default());
            }
            skip = skip.saturating_sub(len);
            if done == out.len() {
                break;
            }
        }
        done
    }

    /// Removes and returns the oldest chunk.
    pub(crate) fn pop(&mut self) -> Option<PacketBuf> {
        self.pop_holding().map(|(chunk, _)| chunk)
    }

    /// The same, with the true bytes that it occupies.
    fn pop_holding(&mut self) -> Option<(PacketBuf, u32)> {
        let chunk = self.list.pop_front().or_else(|| self.newest.take())?;
        let held = Self::held_by(&chunk);
        self.bytes -= chunk.len() as u32;
        self.held -= held;
        Some((chunk, held))
    }

    /// Prepends a chunk.
    pub(crate) fn push_front(&mut self, chunk: PacketBuf) {
        self.bytes += chunk.len() as u32;
        self.held += Self::held_by(&chunk);
        if self.list.is_empty() && self.newest.is_none() {
            self.newest = Some(chunk);
        } else {
            self.list.push_front(chunk);
        }
    }

    /// Removes the `n` oldest bytes where these are all, and one chunk; returns whether they are.
    #[inline(always)]
    pub(crate) fn consume_at_once(&mut self, n: u32) -> bool {
        let is_all = n == self.bytes && self.list.is_empty();
        if is_all {
            (self.bytes, self.held, self.newest) = (0, 0, None);
        }
        is_all
    }

    /// Removes the `n` oldest bytes, of at most `most` small chunks ([`SMALL_CHUNK_BYTES`]), which
    /// is what is left of it after.
    pub(crate) fn consume(&mut self, mut n: u32, most: &mut u32) {
        while n > 0
            && *most > 0
            && let Some(mut chunk) = self.pop()
        {
            let len = chunk.len() as u32;
            *most -= u32::from(len < SMALL_CHUNK_BYTES);
            if n < len {
                chunk.trim_front(n as usize);
                self.push_front(chunk);
                return;
            }
            n -= len;
        }
    }

    /// References to `len` bytes from `off` on, as one packet; fewer where the chain would be too
    /// long; a copy where references are scarce, and fewer where a frame does not hold them. `None`
    /// where the queue has none, or no memory is free. Costs a visit to each chunk before.
    pub(crate) fn share(&self, off: u32, len: u32, pool: &Pool) -> Option<PacketBuf> {
        if !pool.has_spare(Class::Reference) {
            return self.copy(off, len, pool);
        }
        let (mut skip, mut left) = (off as usize, len as usize);
        let mut shared: Option<PacketBuf> = None;
        let mut count = 0;
        for chunk in self.list.iter().chain(&self.newest) {
            if left == 0 || count == BORROWED_MAX {
                break;
            }
            let from = skip.min(chunk.len());
            skip -= from;
            let here = left.min(chunk.len() - from);
            if here == 0 {
                continue;
            }
            let piece = chunk.share(pool, from, here)?;
            count += piece.chunk_count();
            left -= here;
            match &mut shared {
                None => shared = Some(piece),
                Some(head) => {
                    if head.append(piece).is_err() {
                        break;
                    }
                }
            }
        }
        shared
    }

    /// A copy of `len` bytes from `off` on, limited to the available bytes and to one frame.
    #[cold]
    fn copy(&self, off: u32, len: u32, pool: &Pool) -> Option<PacketBuf> {
        let len = len.min(self.bytes.saturating_sub(off)) as usize;
        copy_with(len, pool, |room| self.peek(off, room))
    }

    /// Removes the oldest `len` bytes, at most those of one chunk, and appends the same bytes to
    /// `kept`: both share the memory. A whole chunk is handed out itself, with its headroom for
    /// headers; for a part, a reference is; where references are scarce, a copy. `None` where the
    /// queue is empty or no memory is free.
    #[inline]
    pub(crate) fn lend(&mut self, len: u32, kept: &mut Self, pool: &Pool) -> Option<PacketBuf> {
        let (mut chunk, held) = self.pop_holding()?;
        if !pool.has_spare(Class::Reference) {
            return self.lend_copy((chunk, held), len, kept, pool);
        }
        let here = (len as usize).min(chunk.len());
        if here == chunk.len()
            && let Some(own) = chunk.share_behind(pool)
        {
            kept.push_holding(own, held);
            return Some(chunk);
        }
        let lent = chunk.share(pool, 0, here);
        let whole = here == chunk.len();
        match (lent, whole) {
            (Some(lent), true) => {
                kept.push_holding(chunk, held);
                Some(lent)
            }
            (Some(lent), false) => match chunk.share(pool, 0, here) {
                Some(own) => {
                    kept.push(own);
                    chunk.trim_front(here);
                    self.push_front(chunk);
                    Some(lent)
                }
                None => {
                    self.push_front(chunk);
                    None
                }
            },
            (None, _) => {
                self.push_front(chunk);
                None
            }
        }
    }

    /// As [`ByteQueue::lend`] of the oldest chunk, but without a reference: a peer that
    /// acknowledges nothing would occupy one for each byte sent alone, while other code needs some
    /// to cut packets.
    #[cold]
    fn lend_copy(
        &mut self,
        (mut chunk, held): (PacketBuf, u32),
        len: u32,
        kept: &mut Self,
        pool: &Pool,
    ) -> Option<PacketBuf> {
        let copy = |len: usize| copy_with(len, pool, |room| chunk.copy_out(0, room));
        let lent = copy((len as usize).min(chunk.len()));
        let own = match &lent {
            Some(lent) if lent.len() < chunk.len() => copy(lent.len()),
            _ => None,
        };
        match (lent, own) {
            (Some(lent), None) if lent.len() == chunk.len() => {
                kept.push_holding(chunk, held);
                Some(lent)
            }
            (Some(lent), Some(own)) => {
                kept.push(own);
                chunk.trim_front(lent.len());
                self.push_front(chunk);
                Some(lent)
            }
            _ => {
                self.push_front(chunk);
                None
            }
        }
    }

    /// Moves the newest chunk, of `len` bytes, back to the front of `to`.
    pub(crate) fn give_back(&mut self, len: u32, to: &mut Self) {
        debug_assert_eq!(self.newest.as_ref().map(|chunk| chunk.len() as u32), Some(len));
        // The chunk before it is at the end of the list and cannot be reached: the place of the
        // newest stays empty until the next chunk is pushed.
        if let Some(chunk) = self.newest.take() {
            self.bytes -= chunk.len() as u32;
            self.held -= Self::held_by(&chunk);
            to.push_front(chunk);
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Ends with its bytes and those of `other`: both are empty after that, and
    /// [`ByteQueue::take_abandoned`] of this one has the chunks. Nothing is appended before.
    pub(crate) fn abandon(&mut self, other: &mut Self) {
        self.list = self.take_chunks();
        self.list.append(other.take_chunks());
    }

    /// The chunks that were abandoned, if any were.
    #[inline]
    pub(crate) fn take_abandoned(&mut self) -> Option<PacketQueue> {
        (!self.list.is_empty()).then(|| core::mem::take(&mut self.list))
    }

    fn take_chunks(&mut self) -> PacketQueue {
        let Self { mut list, newest, .. } = core::mem::take(self);
        newest.into_iter().for_each(|chunk| list.push_back(chunk));
        list
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::PoolConfig;

    use super::*;

    #[test]
    fn of_small_chunks_a_bounded_number_is_freed_and_of_full_segments_all() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (small, full) = (SMALL_CHUNK_BYTES as usize - 1, SMALL_CHUNK_BYTES as usize);
        for (len, freed) in [(1, 4), (small, 4), (full, 10), (1448, 10)] {
            let mut queue = ByteQueue::<true>::new();
            (0..10).for_each(|_| queue.push(pool.packet_from(&vec![7; len]).unwrap()));
            let all = queue.len();
            let mut most = 4;
            queue.consume(all, &mut most);
            assert_eq!(all - queue.len(), freed * len as u32, "chunks of {len}");
            assert_eq!(most, if freed == 4 { 0 } else { 4 });
        }
    }
}
