//! The set's three sides: segments that arrive, handshakes, and what applications ask.

mod calls;
mod handshake;
mod icmp;
mod intake;

pub use calls::Ends;
pub use icmp::IcmpSays;
pub use intake::{Input, Verdict};
