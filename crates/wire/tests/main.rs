//! Headers read and written: one program, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

mod dhcpv4;
mod group;
mod lies;
mod round_trip;
mod show;
mod steer;
mod validate;
mod walk;
