//! The set's sides: segments that arrive, handshakes, what applications ask on the same core and
//! on others.

mod calls;
mod half_open;
mod handshake;
mod icmp;
mod info;
mod intake;
mod offers;
mod programs;
mod silent;
pub(crate) mod train;
mod triage;

pub use calls::Ends;
pub use half_open::SynSaid;
pub use icmp::IcmpSays;
pub use info::Info;
pub use intake::{Input, Verdict};
pub use train::TrainEnd;
