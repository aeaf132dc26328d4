//! The set's sides: segments that arrive, handshakes, what applications ask on the same core and
//! on others.

mod calls;
mod handshake;
mod icmp;
mod intake;
mod programs;

pub use calls::Ends;
pub use icmp::IcmpSays;
pub use intake::{Input, Verdict};
