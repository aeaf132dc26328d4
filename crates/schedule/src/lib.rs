//! What a worker may do in a round: shares of a core, and whom it serves first, as plain values.
//!
//! Asked by `dispatch` in real time and by `world` in virtual time, so that a simulated share is
//! that of the real loop. Invariants: nothing here reads a clock, allocates after construction or
//! sleeps; whoever asks does what it is told.
#![forbid(unsafe_code)]
