//! UDP sockets: demultiplexing, intake, output.
//!
//! A [`Udp`] is all sockets of one stack. The stack hands it validated IP payloads
//! ([`Udp::input`]), applications read ([`Udp::recv`]) and send ([`Udp::output`]), and what is sent
//! comes out as a packet with its UDP header, to be routed by the stack. Sockets with news are
//! announced once ([`Udp::next_ready`]).
//!
//! Invariants: routes, neighbours and the network layer are unknown here; what waits is charged
//! in true bytes to its socket, and released exactly; nothing is allocated per datagram; the cost
//! of a datagram does not depend on the number of sockets. Read first: RFC 768, RFC 1122 section
//! 4.1, RFC 8085. Start reading at `input.rs`; the tables are in `demux.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod allowance;
mod challenge;
pub mod challenges;
mod classify;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod demux;
mod drops;
mod ephemeral;
mod fair;
mod gather;
mod group_filter;
mod group_interface;
mod groups;
mod header;
mod icmp_error;
mod id;
mod input;
mod intake;
mod memory;
mod output;
mod ready;
mod receive;
mod settings;
mod shared;
mod sketch;
mod sockets;

#[cfg(test)]
mod tests;

pub use challenge::{CHALLENGE_MAX, Challenge, ChallengeHook, Challenged, UnverifiedSource};
pub use classify::{DatagramKey, LookupSlot, PortProbe};
pub use drops::{RefusedDatagram, UdpDrops};
pub use fair::{FairRequest, FairShare, SenderStanding, ShareDemand};
pub use gather::gather;
pub use group_filter::{GroupError, GroupFilter};
pub use group_interface::GroupInterface;
pub use icmp_error::{IcmpError, IcmpVerdict, QuotedDatagram};
pub use id::{SocketClosed, SocketId};
pub use input::{DatagramInput, DatagramVerdict};
pub use intake::{Intake, IntakeOffer, LocalIntake};
pub use output::{DatagramHeader, PreparedDatagram, SendError};
pub use receive::{ReceiveSlot, Received, ReceivedPacket, RecvError, copy_datagram};
pub use settings::{EPHEMERAL_PORTS, SocketSettings, UdpConfig};
pub use shared::part_of;
pub use sockets::{BindError, ConnectError, OpenError, Udp};
