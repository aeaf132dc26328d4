//! `WorkSnapshot`: the counters that work is computed from, at one moment.
//!
//! Made and compared by `work_units.rs`; a burst keeps one (`parts.rs`).

/// The counters that effort is computed from, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WorkSnapshot {
    pub(crate) received: u64,
    pub(crate) delivered: u64,
    pub(crate) originated: u64,
    pub(crate) fragments: u64,
    pub(crate) told: u64,
    pub(crate) headers: u64,
    /// Packets of the burst that were read in one go until then.
    pub(crate) in_one_go: u64,
}
