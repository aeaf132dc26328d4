//! Programs' sockets beside those of tokio on the kernel's stack, and a program's host.
//!
//! One program of all of it: each more is linked with the whole stack, and its tests would wait for
//! those of the one before.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

mod namespace;

mod cancelled;
mod drain;
mod host;
mod ours;
mod parity;
mod places;
mod tap_flood;
mod tcp;
mod two_workers;
