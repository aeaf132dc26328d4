//! The reassembly queue: received out-of-order segments, sorted by sequence number, until the hole
//! before them is filled (RFC 9293 section 3.10.7.4, RFC 2018, RFC 2883).
//!
//! Used by a connection's input. Segments are in *runs*, each without a hole; the runs of a
//! connection are a list in stream order, in a slab of its shard. Invariants: runs neither touch
//! nor overlap; of bytes received twice the first copy is kept; a packet in the queue holds stream
//! bytes only, and all of them are new; the connection is charged with the true size of its packets
//! ([`PacketBuf::held_size`]). Not here: the window test, FIN, in-order delivery where the queue is
//! empty.
//!
//! # Under flood
//! Reachable by a proven peer, or by an attacker that guesses sequence numbers in its window.
//! Bound: `TCP_RUNS_FLOW` runs per connection, of `TCP_RUNS` per shard, some of which are reserved
//! for connections with a hole or two (`TCP_RUNS_RESERVE_DIVISOR`); the limit in true bytes that
//! the caller grants. Work per segment: a walk over the runs, `TCP_RUNS_FLOW` steps; one-byte
//! segments with one-byte gaps (CVE-2018-5390) fill that many runs, and further ones are dropped.
//! When full, the new segment is dropped, unless it is the earliest, in which case the latest run
//! is dropped: the segment that fills the first hole is never refused because of data behind it.
//! Honest traffic loses retransmissions of data beyond that many holes.

use crate::queue::is_sparse;
use floodwall_base::Seq;
use floodwall_base::limits::{TCP_RUNS_FLOW, TCP_RUNS_RESERVE_DIVISOR};
use floodwall_packet::{Class, PacketBuf, PacketList, Pool};
use floodwall_wire::tcp_options::{SACK_BLOCKS_MAX, SackBlock};

/// No run.
const NONE: u32 = u32::MAX;
/// Runs that a connection may have when the shard has hardly any left.
const RUNS_WHEN_SHORT: u32 = 2;

/// A contiguous range of received stream bytes.
#[derive(Debug)]
struct OooRange {
    start: Seq,
    end: Seq,
    /// True bytes of its packets.
    held: u32,
    /// When it last grew: a larger number is more recent.
    touched: u32,
    next: u32,
    packets: PacketList,
}

/// The slab of runs of a shard's connections. All memory is allocated at construction: 48 bytes
/// each.
#[derive(Debug)]
pub struct OooRanges {
    slab: Box<[OooRange]>,
    free: u32,
    available: usize,
    /// Counts growth of runs, for recency.
    touches: u32,
}

impl OooRanges {
    /// A slab of `capacity` runs.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(NONE as usize);
        let empty = |index| OooRange {
            start: Seq(0),
            end: Seq(0),
            held: 0,
            touched: 0,
            next: if index + 1 < capacity { index as u32 + 1 } else { NONE },
            packets: PacketList::new(),
        };
        let free = if capacity == 0 { NONE } else { 0 };
        Self { slab: (0..capacity).map(empty).collect(), free, available: capacity, touches: 0 }
    }

    /// Number of free runs.
    #[must_use]
    pub const fn available(&self) -> usize {
        self.available
    }

    /// The maximum of runs for a connection that currently has so many.
    const fn allowed(&self, count: u32) -> u32 {
        let spare = self.available > self.slab.len() / TCP_RUNS_RESERVE_DIVISOR;
        match (self.available, spare) {
            (0, _) => count,
            (_, true) => TCP_RUNS_FLOW as u32,
            (_, false) => RUNS_WHEN_SHORT,
        }
    }

    fn run(&self, index: u32) -> Option<&OooRange> {
        self.slab.get(index as usize)
    }

    fn run_mut(&mut self, index: u32) -> Option<&mut OooRange> {
        self.slab.get_mut(index as usize)
    }

    fn next(&self, index: u32) -> u32 {
        self.run(index).map_or(NONE, |run| run.next)
    }

    fn take(&mut self) -> Option<u32> {
        let index = self.free;
        self.free = self.run(index)?.next;
        self.available -= 1;
        Some(index)
    }

    /// Frees a run; returns its packets and the true bytes that they held.
    fn give_back(&mut self, index: u32) -> (PacketList, u32) {
        let free = self.free;
        let Some(run) = self.run_mut(index) else {
            return (PacketList::new(), 0);
        };
        run.next = free;
        let given = (run.packets.take(), core::mem::take(&mut run.held));
        self.free = index;
        self.available += 1;
        given
    }
}

/// The outcome of inserting a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Insertion {
    /// It has new bytes, which were stored.
    Kept,
    /// It has no new bytes.
    Duplicate,
    /// Its true size exceeds the limit.
    NoRoom,
    /// The connection has the maximum of holes, or the shard has no free run.
    TooManyRuns,
}

/// The reassembly queue of one connection: 12 bytes. It owns runs of its shard's [`OooRanges`]:
/// call [`OutOfOrder::clear`] before dropping it.
#[derive(Debug)]
pub struct OutOfOrder {
    first: u32,
    count: u16,
    held: u32,
}

const _: () = assert!(size_of::<OutOfOrder>() <= 12, "part of each connection");

impl Default for OutOfOrder {
    fn default() -> Self {
        Self::new()
    }
}

impl OutOfOrder {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: NONE, count: 0, held: 0 }
    }

    /// Whether the queue is empty: then in-order data bypasses it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of holes, which is the number of runs.
    #[must_use]
    pub const fn runs(&self) -> u32 {
        self.count as u32
    }

    /// True bytes in the queue.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// The first byte in the queue: in-order data ends there.
    #[must_use]
    pub fn first(&self, runs: &OooRanges) -> Option<Seq> {
        runs.run(self.first).map(|run| run.start)
    }

    /// The byte after the last in the queue.
    #[must_use]
    pub fn end(&self, runs: &OooRanges) -> Option<Seq> {
        let mut at = self.first;
        let mut end = None;
        while let Some(run) = runs.run(at) {
            (end, at) = (Some(run.end), run.next);
        }
        end
    }

    /// Stores the new bytes of a segment: `packet` holds exactly the stream's bytes from `seq` on,
    /// and begins at `next` (the next byte in order) or later. `room` is the limit of true bytes;
    /// `pool` provides references where the segment has new bytes on both sides of stored ones.
    /// Beside the outcome it returns the first duplicate bytes, to be reported.
    pub fn insert(
        &mut self,
        runs: &mut OooRanges,
        pool: &Pool,
        seq: Seq,
        packet: PacketBuf,
        room: u32,
    ) -> (Insertion, Option<SackBlock>) {
        let mut duplicate = None;
        let outcome = self.insert_noting(runs, pool, (seq, packet), room, &mut duplicate);
        (outcome, duplicate)
    }

    fn insert_noting(
        &mut self,
        runs: &mut OooRanges,
        pool: &Pool,
        (seq, mut packet): (Seq, PacketBuf),
        room: u32,
        duplicate: &mut Option<SackBlock>,
    ) -> Insertion {
        let end = seq + packet.len() as u32;
        let (mut before, mut at) = self.around(runs, seq);
        let mut start = seq;
        let mut kept = false;
        // The packet's bytes are those from `start` to `end`. Each iteration passes one hole.
        loop {
            if let Some(run) = runs.run(before).filter(|run| start.is_before(run.end)) {
                let covered = run.end.earlier(end);
                duplicate.get_or_insert(SackBlock { left: start.0, right: covered.0 });
                packet.trim_front(covered.since(start) as usize);
                start = covered;
            }
            if end.is_at_most(start) {
                Self::touch(runs, before);
                return if kept { Insertion::Kept } else { Insertion::Duplicate };
            }
            if !self.has_room(runs, seq, packet.held_size(), room) {
                return if kept { Insertion::Kept } else { Insertion::NoRoom };
            }
            // Dropping the only run may have made room.
            at = if self.count == 0 { NONE } else { at };
            let gap_end = runs.run(at).map_or(end, |run| run.start.earlier(end));
            let len = gap_end.since(start) as usize;
            let has_more = gap_end != end && pool.has_spare(Class::Reference);
            let front = if has_more { packet.share(pool, 0, len) } else { None };
            let Some(front) = front else {
                // The last piece, or references are scarce: then the rest is retransmitted by the
                // peer.
                packet.truncate(len);
                let holder = self.fill(runs, (before, at), (start, gap_end), packet);
                Self::touch(runs, holder.unwrap_or(before));
                let kept = kept || holder.is_some();
                return if kept { Insertion::Kept } else { Insertion::TooManyRuns };
            };
            let Some(holder) = self.fill(runs, (before, at), (start, gap_end), front) else {
                return if kept { Insertion::Kept } else { Insertion::TooManyRuns };
            };
            kept = true;
            packet.trim_front(len);
            (start, before, at) = (gap_end, holder, runs.next(holder));
        }
    }

    /// Removes the data that is in order once the stream has reached `next`: the packets of the run
    /// that begins there or before, trimmed of bytes before `next`; returns them and the new end of
    /// in-order data.
    pub fn take_ready(&mut self, runs: &mut OooRanges, mut next: Seq) -> (PacketList, Seq) {
        let mut ready = PacketList::new();
        while let Some(run) = runs.run(self.first).filter(|run| run.start.is_at_most(next)) {
            let (start, end, index, after) = (run.start, run.end, self.first, run.next);
            let (mut packets, held) = runs.give_back(index);
            (self.first, self.count, self.held) = (after, self.count - 1, self.held - held);
            trim_list(&mut packets, next.since(start));
            next = next.later(end);
            ready.append(&mut packets);
        }
        (ready, next)
    }

    /// The SACK blocks of an ACK: a duplicate first (RFC 2883), then the run that grew last, and
    /// others by recency (RFC 2018 section 4); at most `most` blocks. Work: the runs.
    #[must_use]
    pub fn sack_blocks(
        &self,
        runs: &OooRanges,
        duplicate: Option<SackBlock>,
        most: usize,
    ) -> [Option<SackBlock>; SACK_BLOCKS_MAX] {
        if self.first == NONE && duplicate.is_none() {
            return [None; SACK_BLOCKS_MAX];
        }
        let mut latest: [Option<(u32, SackBlock)>; SACK_BLOCKS_MAX] = [None; SACK_BLOCKS_MAX];
        let mut at = self.first;
        while let Some(run) = runs.run(at) {
            let age = runs.touches.wrapping_sub(run.touched);
            let mut entry = Some((age, SackBlock { left: run.start.0, right: run.end.0 }));
            for place in &mut latest {
                let is_later = match (&entry, &place) {
                    (Some((age, _)), Some((other, _))) => age < other,
                    (Some(_), None) => true,
                    (None, _) => false,
                };
                if is_later {
                    core::mem::swap(place, &mut entry);
                }
            }
            at = run.next;
        }
        let mut blocks = [None; SACK_BLOCKS_MAX];
        let runs_of = latest.into_iter().flatten().map(|(_, block)| block);
        let all = duplicate.into_iter().chain(runs_of);
        blocks.iter_mut().zip(all).take(most).for_each(|(to, block)| *to = Some(block));
        blocks
    }

    /// Drops all stored data: before the connection is freed, or when memory is short (RFC 2018
    /// section 8 permits it).
    #[inline]
    pub fn clear(&mut self, runs: &mut OooRanges) {
        if self.first != NONE {
            self.clear_runs(runs);
        }
    }

    #[inline(never)]
    fn clear_runs(&mut self, runs: &mut OooRanges) {
        while self.first != NONE {
            let index = self.first;
            self.first = runs.next(index);
            drop(runs.give_back(index));
        }
        (self.count, self.held) = (0, 0);
    }

    /// The last run that begins at `seq` or before, and the run after it.
    fn around(&self, runs: &OooRanges, seq: Seq) -> (u32, u32) {
        let (mut before, mut at) = (NONE, self.first);
        while let Some(run) = runs.run(at).filter(|run| run.start.is_at_most(seq)) {
            (before, at) = (at, run.next);
        }
        (before, at)
    }

    /// Inserts a packet into the hole between two runs: it extends the runs that it touches, joins
    /// them, or becomes a run of its own. Returns the run that contains it; the packet is dropped
    /// where none is free.
    fn fill(
        &mut self,
        runs: &mut OooRanges,
        (before, at): (u32, u32),
        (start, end): (Seq, Seq),
        packet: PacketBuf,
    ) -> Option<u32> {
        let held = packet.held_size();
        let joins_after = runs.run(at).is_some_and(|run| run.start == end);
        if runs.run(before).is_some_and(|run| run.end == start) {
            let (mut behind, more, end) = match runs.run(at).filter(|_| joins_after) {
                Some(run) => {
                    let end = run.end;
                    let (packets, held) = self.unlink_after(runs, before, at);
                    (packets, held, end)
                }
                None => (PacketList::new(), 0, end),
            };
            let run = runs.run_mut(before)?;
            let held = match is_sparse(&packet).then(|| run.packets.extend_last(packet.len())) {
                Some(Some(room)) => {
                    packet.copy_out(0, room);
                    0
                }
                _ => {
                    run.packets.push_back(packet);
                    held
                }
            };
            run.packets.append(&mut behind);
            run.held += held + more;
            run.end = end;
            self.held += held + more;
            return Some(before);
        }
        let index = if joins_after { at } else { self.new_run(runs, (before, at), (start, end))? };
        let run = runs.run_mut(index)?;
        run.start = start;
        run.packets.push_front(packet);
        run.held += held;
        self.held += held;
        Some(index)
    }

    /// Removes the run after `before`; the caller accounts for its bytes.
    fn unlink_after(&mut self, runs: &mut OooRanges, before: u32, at: u32) -> (PacketList, u32) {
        let after = runs.next(at);
        match runs.run_mut(before) {
            Some(run) => run.next = after,
            None => self.first = after,
        }
        let (packets, held) = runs.give_back(at);
        (self.count, self.held) = (self.count - 1, self.held - held);
        (packets, held)
    }

    fn new_run(
        &mut self,
        runs: &mut OooRanges,
        (before, at): (u32, u32),
        (start, end): (Seq, Seq),
    ) -> Option<u32> {
        let mut at = at;
        if u32::from(self.count) >= runs.allowed(self.count.into()) {
            // Only for the earliest segment, and never the only run.
            if before != NONE || at == NONE {
                return None;
            }
            let dropped = self.drop_latest(runs)?;
            at = if dropped == at { NONE } else { at };
        }
        let index = runs.take()?;
        let run = runs.run_mut(index)?;
        (run.start, run.end, run.next) = (start, end, at);
        match runs.run_mut(before) {
            Some(run) => run.next = index,
            None => self.first = index,
        }
        self.count += 1;
        Some(index)
    }

    /// Drops the last run of the list.
    fn drop_latest(&mut self, runs: &mut OooRanges) -> Option<u32> {
        let (mut before, mut at) = (NONE, self.first);
        while runs.run(at)?.next != NONE {
            (before, at) = (at, runs.next(at));
        }
        drop(self.unlink_after(runs, before, at));
        Some(at)
    }

    /// Whether `size` more true bytes fit. If not, the latest run is dropped in favour of a segment
    /// before all others.
    fn has_room(&mut self, runs: &mut OooRanges, seq: Seq, size: u32, room: u32) -> bool {
        if self.held.saturating_add(size) <= room {
            return true;
        }
        let is_earliest = self.first(runs).is_some_and(|first| seq.is_before(first));
        is_earliest && size <= room && {
            self.drop_latest(runs);
            self.held.saturating_add(size) <= room
        }
    }

    fn touch(runs: &mut OooRanges, index: u32) {
        runs.touches = runs.touches.wrapping_add(1);
        let touched = runs.touches;
        if let Some(run) = runs.run_mut(index) {
            run.touched = touched;
        }
    }
}

/// Trims `n` bytes off the front of a list of packets.
fn trim_list(packets: &mut PacketList, n: u32) {
    let mut left = n as usize;
    while left > 0
        && let Some(mut packet) = packets.pop_front()
    {
        let here = left.min(packet.len());
        left -= here;
        packet.trim_front(here);
        if !packet.is_empty() {
            packets.push_front(packet);
        }
    }
}

#[cfg(test)]
mod tests;
