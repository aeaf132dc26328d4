//! `SegmentRange`: the ends of a list of records of sent data.
//!
//! Used by the scoreboard; the links are in the records (`sent_segments.rs`).

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// First and last of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentRange {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl SegmentRange {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };
}
