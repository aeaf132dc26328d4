//! `DeferredChunks`: chunks of connections that have ended, which timed work frees.
//!
//! Used by `connection_table.rs`. What a connection held when it ended is taken in at once, however
//! many chunks they are; as many are freed as the ACKs of the moment may free (`chunk_budget.rs`),
//! and the rest at a unit of timed work for each [`CHUNKS_PER_UNIT`]. They do not count against
//! the memory of connections any more.
//!
//! # Under flood
//! Reachable by a peer that resets connections which have sent much. Bound: what these connections
//! might hold. Work: half of each call of timed work, until all is freed.

use floodwall_base::{Instant, Units};
use floodwall_packet::PacketQueue;

use crate::chunk_budget::CHUNKS_PER_UNIT;

/// Chunks that are to be freed, oldest first.
#[derive(Default, Debug)]
pub(crate) struct DeferredChunks {
    list: PacketQueue,
}

impl DeferredChunks {
    /// Takes these in, and frees up to `most`, which is what is left of it after.
    pub(crate) fn add(&mut self, chunks: PacketQueue, most: &mut u32) {
        self.list.append(chunks);
        self.free(most);
    }

    fn free(&mut self, most: &mut u32) {
        while *most > 0 && self.list.pop_front().is_some() {
            *most -= 1;
        }
    }

    /// Frees as many as half of these units allow; returns the units spent.
    pub(crate) fn work(&mut self, units: Units) -> Units {
        if self.list.is_empty() {
            return Units(0);
        }
        let granted = units.0.div_ceil(2) * CHUNKS_PER_UNIT;
        let mut left = granted;
        self.free(&mut left);
        Units((granted - left).div_ceil(CHUNKS_PER_UNIT))
    }

    /// When there is work: at once, or never.
    #[inline]
    pub(crate) const fn due(&self) -> Instant {
        if self.list.is_empty() { Instant::FAR } else { Instant::ORIGIN }
    }
}
