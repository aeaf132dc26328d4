//! The set's three sides: segments that arrive, handshakes, and what applications ask.

mod calls;
mod handshake;
mod intake;

pub use calls::Ends;
pub use intake::{Input, Verdict};
