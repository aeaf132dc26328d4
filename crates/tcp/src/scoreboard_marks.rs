//! `ScoreboardMarks`: what a scoreboard knows of data that is SACKed, lost or presumed delivered.
//!
//! Used by [`crate::scoreboard`] alone. A scoreboard has them from when the peer reports a block,
//! or data is considered lost, until nothing is outstanding. Invariant: one without them has no
//! such data.
//!
//! # Under flood
//! Reachable by a peer that sends SACK blocks or duplicate ACKs, or acknowledges nothing. Bound:
//! one for each place ([`StateSlab`](crate::state_slab::StateSlab)), so that no connection waits
//! for those of another. Work: one visit to a list of free ones. Without one, which the bound
//! excludes, blocks are ignored, and data is not considered lost.

use crate::segment_range::{NONE, SegmentRange};

/// What is not in flight of the data outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreboardMarks {
    /// The lost records.
    pub(crate) list: SegmentRange,
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    pub(crate) sacked_segments: u32,
    /// Bytes presumed delivered because of duplicate ACKs without SACK (RFC 6582).
    pub(crate) presumed: u32,
    /// The record at which the last blocks were found.
    pub(crate) cursor: u32,
}

impl ScoreboardMarks {
    pub(crate) const NONE: Self = Self {
        list: SegmentRange::EMPTY,
        sacked: 0,
        lost: 0,
        sacked_segments: 0,
        presumed: 0,
        cursor: NONE,
    };
}

const _: () = assert!(size_of::<ScoreboardMarks>() <= 28, "beside a connection with losses");
