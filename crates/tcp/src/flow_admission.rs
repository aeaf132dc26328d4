//! `FlowAdmission`: where and under which state the network layer last admitted a flow's packet.
//!
//! Kept by each connection (`path.rs`), compared by `table/rx_predict.rs`. Plain data.

use floodwall_base::IfIndex;

/// Where the network layer has admitted packets of a flow, and under which generation of its
/// addresses and rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowAdmission {
    /// The interface on which the packet arrived.
    pub iface: IfIndex,
    /// Changes with everything that may change the network layer's decision.
    pub generation: u32,
}

impl FlowAdmission {
    /// That of a flow of which no packet was admitted yet.
    pub(crate) const NONE: Self = Self { iface: IfIndex(u16::MAX), generation: 0 };
}
