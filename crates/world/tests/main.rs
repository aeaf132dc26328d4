//! Worlds in virtual time: one program, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

mod blast;
mod handed;
mod honest;
mod share;
mod world;
