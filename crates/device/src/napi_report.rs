//! `PlacementReport`: where the kernel's half of a device runs, and what is missing, as text.
//!
//! Made by `napi.rs` when a device is opened; printed by `floodwall run` and shown by `stat`.

use std::fmt;

/// The placement that was achieved, and the reasons why a better one was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementReport {
    /// `busy-poll`, `napi-thread`, `left` (where the system runs it) or `none` (there is no such
    /// half).
    pub place: &'static str,
    /// Where that is, in one sentence without its end.
    pub words: String,
    /// What would be better with more privileges or another system.
    pub lacks: Vec<MissingCapability>,
}

/// Something that the best place would need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCapability {
    /// What is missing.
    pub missing: String,
    /// What that costs.
    pub costs: &'static str,
    /// How to get it.
    pub remedy: String,
}

impl fmt::Display for MissingCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, costs, remedy } = self;
        write!(f, "{missing}: {costs}; {remedy}")
    }
}
