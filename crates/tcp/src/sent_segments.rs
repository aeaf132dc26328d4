//! Records of sent and not yet acknowledged data, in a slab of the shard.
//!
//! Used by [`crate::scoreboard`] alone; beside them is what senders that look for losses need, and
//! what few connections need. A record is a range of the stream that was sent at one moment and has
//! one delivery status. It is in two lists: by sequence, and by time sent (while in flight) or by
//! order of retransmission (while lost). Invariant: an allocated index is in use until it is freed;
//! the lists' links are updated only by the operations here.

use floodwall_base::limits::TCP_RECORDS_RESERVE_DIVISOR;
use floodwall_base::{Instant, Seq};

use crate::chunk_budget::ChunkBudget;
use crate::loss_state::LossState;
use crate::rare_state::RareState;
use crate::scoreboard_marks::ScoreboardMarks;
use crate::state_slab::StateSlab;

pub(crate) use crate::segment_range::{NONE, SegmentRange};

/// The delivery status of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentOutcome {
    /// Unknown: it counts as in flight.
    InFlight,
    /// It is considered lost, and was not retransmitted since.
    Lost,
    /// The peer has reported it by SACK (RFC 2018), which it may still revoke (reneging).
    Sacked,
}

/// A range of the stream: 48 bytes.
#[derive(Clone, Debug)]
pub(crate) struct SentSegment {
    pub(crate) start: Seq,
    pub(crate) len: u32,
    /// When it was last sent.
    pub(crate) sent_at: Instant,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) older: u32,
    pub(crate) newer: u32,
    /// The segment size with which it was sent: it may be split only at multiples of it, counted
    /// from the end of its first segment.
    pub(crate) unit: u16,
    /// Bytes of its first segment.
    pub(crate) head: u16,
    /// For a SACKed range: the number of segments that it was made of.
    pub(crate) segments: u16,
    pub(crate) retransmits: u8,
    pub(crate) outcome: SegmentOutcome,
}

impl SentSegment {
    pub(crate) fn end(&self) -> Seq {
        self.start + self.len
    }

    /// Number of segments in it.
    pub(crate) fn segment_count(&self) -> u32 {
        1 + self.len.saturating_sub(u32::from(self.head)).div_ceil(u32::from(self.unit.max(1)))
    }

    /// The last segment boundary at or before `at`, which lies within.
    pub(crate) fn cut_before(&self, at: Seq) -> Seq {
        let (off, head) = (at.since(self.start), u32::from(self.head));
        if off >= self.len {
            return self.end();
        }
        if off < head {
            return self.start;
        }
        self.start
            + (head + (off - head) / u32::from(self.unit.max(1)) * u32::from(self.unit.max(1)))
    }

    /// The first segment boundary at or after `at`, which lies within.
    pub(crate) fn cut_behind(&self, at: Seq) -> Seq {
        let before = self.cut_before(at);
        if before == at {
            return at;
        }
        let step = if before == self.start { self.head } else { self.unit };
        (before + u32::from(step)).earlier(self.end())
    }

    /// Trims the first `n` bytes.
    pub(crate) fn trim_front(&mut self, n: u32) {
        let (head, unit) = (u32::from(self.head), u32::from(self.unit.max(1)));
        self.head = if n < head { head - n } else { unit - (n - head) % unit } as u16;
        self.start += n;
        self.len -= n;
        self.head = self.head.min(u16::try_from(self.len).unwrap_or(u16::MAX));
    }
}

/// The slab of records of a shard's connections. All memory is allocated at construction.
///
/// # Under flood
/// Reachable by a peer that acknowledges nothing, or in pieces. Bound: the capacity
/// (`TCP_RECORDS`), `TCP_RECORDS_FLOW` for one connection. A part of it is reserved for splits and
/// for connections that have no record, so that a full slab delays only new data of connections
/// that have some.
#[derive(Debug)]
pub struct SentSegments {
    slab: Box<[SentSegment]>,
    free: u32,
    available: usize,
    reserve: usize,
    /// What senders know while they look for losses (`loss_state.rs`).
    pub(crate) losses: StateSlab<LossState>,
    /// What scoreboards know of data that is not in flight.
    pub(crate) marks: StateSlab<ScoreboardMarks>,
    /// What few connections need (`rare_state.rs`).
    pub(crate) rare: StateSlab<RareState>,
    /// How much of what is acknowledged may be freed at once (`chunk_budget.rs`).
    pub(crate) freeing: ChunkBudget,
}

impl SentSegments {
    /// A slab of `capacity` records, for the connections of so many places.
    #[must_use]
    pub fn new(capacity: usize, places: usize) -> Self {
        let capacity = capacity.min(NONE as usize);
        let empty = |index| SentSegment {
            start: Seq(0),
            len: 0,
            sent_at: Instant::ORIGIN,
            prev: NONE,
            next: if index + 1 < capacity { index as u32 + 1 } else { NONE },
            older: NONE,
            newer: NONE,
            unit: 1,
            head: 1,
            segments: 0,
            retransmits: 0,
            outcome: SegmentOutcome::InFlight,
        };
        let free = if capacity == 0 { NONE } else { 0 };
        let slab = (0..capacity).map(empty).collect();
        let reserve = capacity / TCP_RECORDS_RESERVE_DIVISOR;
        let (losses, marks) = (StateSlab::new(places), StateSlab::new(places));
        let (rare, freeing) = (StateSlab::new(places), ChunkBudget::new());
        Self { slab, free, available: capacity, reserve, losses, marks, rare, freeing }
    }

    /// Number of free records.
    #[must_use]
    pub const fn available(&self) -> usize {
        self.available
    }

    /// Whether more than the reserve is free.
    #[must_use]
    pub(crate) const fn has_spare(&self) -> bool {
        self.available > self.reserve
    }

    pub(crate) fn at(&self, index: u32) -> Option<&SentSegment> {
        self.slab.get(index as usize)
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut SentSegment> {
        self.slab.get_mut(index as usize)
    }

    pub(crate) fn take(&mut self, record: SentSegment) -> Option<u32> {
        let index = self.free;
        let place = self.slab.get_mut(index as usize)?;
        self.free = place.next;
        *place = record;
        self.available -= 1;
        Some(index)
    }

    pub(crate) fn give_back(&mut self, index: u32) {
        if let Some(record) = self.slab.get_mut(index as usize) {
            record.next = self.free;
            self.free = index;
            self.available += 1;
        }
    }

    /// Inserts `index` after `behind` (first where that is [`NONE`]) in the list by sequence.
    pub(crate) fn link_by_seq(&mut self, ends: &mut SegmentRange, behind: u32, index: u32) {
        let next = match self.at(behind) {
            Some(record) => record.next,
            None => ends.first,
        };
        if let Some(record) = self.at_mut(index) {
            (record.prev, record.next) = (behind, next);
        }
        match self.at_mut(behind) {
            Some(record) => record.next = index,
            None => ends.first = index,
        }
        match self.at_mut(next) {
            Some(record) => record.prev = index,
            None => ends.last = index,
        }
    }

    pub(crate) fn unlink_by_seq(&mut self, ends: &mut SegmentRange, index: u32) {
        let Some(&SentSegment { prev, next, .. }) = self.at(index) else {
            return;
        };
        match self.at_mut(prev) {
            Some(record) => record.next = next,
            None => ends.first = next,
        }
        match self.at_mut(next) {
            Some(record) => record.prev = prev,
            None => ends.last = prev,
        }
    }

    /// Inserts `index` after `behind` (first where that is [`NONE`]) in a list by time.
    pub(crate) fn link_by_time(&mut self, ends: &mut SegmentRange, behind: u32, index: u32) {
        let newer = match self.at(behind) {
            Some(record) => record.newer,
            None => ends.first,
        };
        if let Some(record) = self.at_mut(index) {
            (record.older, record.newer) = (behind, newer);
        }
        match self.at_mut(behind) {
            Some(record) => record.newer = index,
            None => ends.first = index,
        }
        match self.at_mut(newer) {
            Some(record) => record.older = index,
            None => ends.last = index,
        }
    }

    /// Appends `index` to a list by time.
    pub(crate) fn append_by_time(&mut self, ends: &mut SegmentRange, index: u32) {
        let last = ends.last;
        self.link_by_time(ends, last, index);
    }

    pub(crate) fn unlink_by_time(&mut self, ends: &mut SegmentRange, index: u32) {
        let Some(&SentSegment { older, newer, .. }) = self.at(index) else {
            return;
        };
        match self.at_mut(older) {
            Some(record) => record.newer = newer,
            None => ends.first = newer,
        }
        match self.at_mut(newer) {
            Some(record) => record.older = older,
            None => ends.last = older,
        }
    }
}
