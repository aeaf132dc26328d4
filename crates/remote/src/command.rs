//! What the control shard has decided about a socket, for every shard to carry out.
//!
//! Made by the control shard out of a program's request, after it has carried it out itself:
//! `Stack::take_commands`. The code that connects the shards gives
//! each of the others a clone, in order, and each carries it out by
//! `Stack::carry_out`. So binds are decided once and in one order
//! (decision D17), ephemeral ports included, and a socket has the same [`SocketId`] everywhere.
//!
//! The reply is sent when the last clone has been dropped.

use core::any::Any;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use floodwall_base::IfIndex;
use floodwall_udp::{GroupFilter, SocketId, SocketSettings};

use super::slot::SlotId;

/// One change of one socket.
#[derive(Clone)]
pub struct SocketCommand {
    /// Which socket, the same on every shard.
    pub socket: SocketId,
    /// What changes.
    pub change: SocketChange,
    /// Its slot, the same on every shard.
    pub slot: SlotId,
    /// Dropped with the last clone: that is the answer.
    pub(super) done: Option<Arc<dyn Any + Send + Sync>>,
}

impl SocketCommand {
    /// A change of a socket that is to be repeated, with nothing to answer.
    #[must_use]
    pub const fn new(socket: SocketId, slot: SlotId, change: SocketChange) -> Self {
        Self { socket, change, slot, done: None }
    }
}

/// What changes. A shard that did not carry every one of them out would differ from the others.
#[derive(Clone, Debug)]
pub enum SocketChange {
    /// It is opened and bound, as decided: the port is 0 only of a socket at every port.
    Open {
        /// Its settings. Where there are more shards, each allows its part of `receive_bytes`.
        settings: Box<SocketSettings>,
        /// What it is bound to.
        local: SocketAddr,
    },
    /// It receives from one peer only.
    Connect {
        /// The peer.
        remote: SocketAddr,
        /// Our address towards it.
        src_addr: IpAddr,
        /// The interface of a link-local address.
        zone: Option<IfIndex>,
    },
    /// It receives from any peer again.
    Disconnect,
    /// It has other settings.
    Configure {
        /// These.
        settings: Box<SocketSettings>,
    },
    /// It has joined a group, for which the control shard has sent a membership report.
    Join {
        /// The group.
        group: IpAddr,
        /// Where.
        iface: IfIndex,
        /// The sources that it receives from in that group.
        filter: Box<GroupFilter>,
    },
    /// It has left a group.
    Leave {
        /// The group.
        group: IpAddr,
        /// Where.
        iface: IfIndex,
    },
    /// It is closed.
    Close,
}

impl core::fmt::Debug for SocketCommand {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Command")
            .field("socket", &self.socket)
            .field("change", &self.change)
            .finish_non_exhaustive()
    }
}
