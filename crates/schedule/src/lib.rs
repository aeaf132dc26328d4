//! What a worker may do in a round: shares of a core, and whom it serves first, as plain values.
//!
//! Asked by `dispatch` in real time and by `world` in virtual time, so that a simulated share is
//! that of the real loop. [`Balance`] says when the worker leaves the core to others, [`Gate`]
//! whose packets the engine gets. Invariants: nothing here reads a clock, allocates after
//! construction or sleeps; whoever asks does what it is told. Design: `docs/design/balance.md`.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

mod balance;
mod gate;
mod handed;
mod pressure;
mod share;

pub use balance::{Balance, BalanceConfig, BalanceStats, Next};
pub use gate::{Gate, GateConfig, GateStats, Poll};
pub use handed::HandedGate;
pub use share::Share;
