//! Scheduling of a worker: shares of a core and priority between packets, as plain values.
//!
//! Used by `dispatch` in real time and by `world` in virtual time, so that a simulated share is
//! that of the real loop. [`Balance`] decides when the worker leaves the core to others, [`Gate`]
//! which packets the engine gets. Invariants: nothing here reads a clock, allocates after
//! construction or sleeps; the caller carries out the decisions. Design: `docs/design/balance.md`.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

mod balance;
mod gate;
mod handed;
mod known_prefixes;
mod pressure;
mod share;
mod waiting_line;

pub use balance::{Balance, BalanceConfig, BalanceStats, NextTurn};
pub use gate::{Gate, GateConfig, GateStats, Poll};
pub use handed::HandedGate;
pub use share::Share;
