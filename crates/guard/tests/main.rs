//! The guard in network namespaces of its tests' own.
//!
//! One program of all of it, so that tests which wait do so side by side.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a failing test may panic")]

mod rig;

mod connections;
mod cost;
mod datagrams;
mod floods;
mod options;
mod pinned;
mod rates;
mod servers;
mod traps;
