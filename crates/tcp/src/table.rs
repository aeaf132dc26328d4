//! The operations of a set of connections: arriving segments, handshakes, and calls of applications
//! on the same core and on others.

mod calls;
mod drain;
mod half_open;
mod handshake;
mod icmp;
mod info;
mod intake;
mod offers;
mod remote_io;
mod room;
pub(crate) mod rx_coalesce;
pub(crate) mod rx_predict;
mod triage;

pub use calls::{ConnectionAddrs, WrittenAtOnce};
pub use icmp::{IcmpHeard, IcmpSays};
pub use info::Info;
pub use intake::{AdmittedHosts, ArrivedSegment, SegmentInput, SegmentVerdict};
pub use rx_coalesce::run::CoalescedEnd;
pub use rx_predict::PredictingConnection;
