//! What every [`Intake`] must do, whoever wrote it.
//!
//! Run by this crate's tests for [`crate::LocalIntake`], and by tests of other intakes under the
//! feature `testing`. Each check panics with what was broken.
