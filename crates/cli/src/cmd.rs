//! One file a command.

pub(crate) mod check;
pub(crate) mod drill;
pub(crate) mod paper;
pub(crate) mod run;
pub(crate) mod stat;
