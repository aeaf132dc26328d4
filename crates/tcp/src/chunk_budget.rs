//! `ChunkBudget`: how many chunks of acknowledged data are freed at one moment.
//!
//! A program may write its bytes in many small chunks, and each is a line of memory that another
//! core had last. Acknowledgments of one moment (a turn) free [`TCP_CHUNKS_FREED_MAX`] of them, of
//! all connections together; what is left is freed by later ones, and by the connection's timer
//! at the price of timed work (`timeouts.rs`). Until then it is held, and accounted for as such.
//! Larger chunks ([`SMALL_CHUNK_BYTES`]) are freed at once: sending their bytes cost far more.

use floodwall_base::Instant;
use floodwall_base::limits::TCP_CHUNKS_FREED_MAX;

/// Chunks of fewer bytes are counted.
pub(crate) const SMALL_CHUNK_BYTES: u32 = 1024;
/// Chunks that a connection's timer frees when it is due.
const FREED_BY_TIMER: u32 = 128;
/// Of so many chunks each costs a unit of timed work.
pub(crate) const CHUNKS_PER_UNIT: u32 = 16;

/// What acknowledgments may still free at the present moment.
#[derive(Debug)]
pub(crate) struct ChunkBudget {
    at: Instant,
    left: u32,
}

impl ChunkBudget {
    pub(crate) const fn new() -> Self {
        Self { at: Instant::ORIGIN, left: TCP_CHUNKS_FREED_MAX }
    }

    /// What is left at `now`.
    pub(crate) fn left(&mut self, now: Instant) -> &mut u32 {
        if core::mem::replace(&mut self.at, now) != now {
            self.left = TCP_CHUNKS_FREED_MAX;
        }
        &mut self.left
    }

    /// Calls `free` with what a timer may free; returns the units of timed work that it cost.
    pub(crate) fn by_timer(free: impl FnOnce(&mut u32)) -> u32 {
        let mut left = FREED_BY_TIMER;
        free(&mut left);
        (FREED_BY_TIMER - left).div_ceil(CHUNKS_PER_UNIT)
    }
}
