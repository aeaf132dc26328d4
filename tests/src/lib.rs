//! Scenarios across crates: the tests are in the folder `tests` beside this one; here is the bench
//! that drives a stack, and the means to make packets.
#![forbid(unsafe_code)]

mod answer;
pub mod craft;
mod fault;
pub mod internet;
mod replay;
mod rig;
pub mod router;
mod shards;
pub mod tcp;
pub mod tcp_peer;
pub mod transit;
mod wants;
pub mod worst;

pub use answer::{Icmp, Owed, Sent, bytes_of};
pub use fault::Fault;
pub use replay::{Aim, Arrival, Replay, Verdict, arrivals};
pub use rig::{Drops, Rig, drops_between, ethernet_config};
pub use shards::{Shards, Worker};
