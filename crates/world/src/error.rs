//! What a caller can get wrong while building a world.
//!
//! Returned by `World::connect` and its neighbours. Packets are never errors here.

use floodwall_base::IfIndex;
use thiserror::Error;

use crate::node_config::NodeId;

/// Why a part of the world could not be built.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// No node of this world has that number.
    #[error("{0:?} is not a node of this world")]
    NodeUnknown(NodeId),
    /// Interface 0 is the engine's own loopback.
    #[error("interface 0 is the loopback and takes no link: number links from 1")]
    Loopback,
    /// The number is beyond what a stack can have.
    #[error("{0:?} is beyond the {max} interfaces that a node may have",
        max = floodwall_base::limits::INTERFACES_MAX)]
    InterfaceBeyondLimit(IfIndex),
    /// The interface has a link already, or both ends are the same interface.
    #[error("{iface:?} of {node:?} has a link already")]
    InterfaceTaken {
        /// The node of the interface.
        node: NodeId,
        /// Which.
        iface: IfIndex,
    },
    /// A host's domain or steering is for another number of workers.
    #[error("the domain or the steering is for {made} workers, but there are {wanted} engines")]
    Workers {
        /// For how many it was made.
        made: usize,
        /// How many there are.
        wanted: usize,
    },
    /// A probability is not between 0 and 1.
    #[error("`{0}` must be a probability between 0.0 and 1.0")]
    Probability(&'static str),
    /// A rate of zero carries nothing for ever.
    #[error("a rate must be at least one byte a second: use `None` for no limit")]
    RateZero,
}
