//! The engine against itself, over an in-memory cable with virtual time.

mod cable;

mod at_once;
mod freeing;
mod goodput;
mod peer;
mod rare_timers;
mod rules;
mod shortcuts;
mod sim;
mod slice;
