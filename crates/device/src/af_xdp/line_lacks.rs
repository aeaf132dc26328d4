//! `LineLacks`: why parts of the first line are not in force, as far as that is known once a
//! program is loaded.
//!
//! Kept by `steering.rs`, read by `line_report.rs`.

/// The reasons.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineLacks {
    /// Nothing is dropped.
    pub(crate) filter: Option<String>,
    /// SYNs are not answered.
    pub(crate) cookies: Option<String>,
}
