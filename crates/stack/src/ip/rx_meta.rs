//! `RxMeta`: where a received packet's headers are and what they say, handed from layer to layer.
//!
//! Made by `rx.rs` and `reassemble.rs`, read by every handler behind them. Plain data.

use floodwall_base::IfIndex;
use floodwall_ip::ArrivedHeading;

/// A received packet with what the network layer has parsed. Passed by value, so that fields that
/// few packets need are not written to memory.
#[derive(Clone, Copy)]
pub(crate) struct RxMeta<A> {
    pub(crate) iface: IfIndex,
    /// Where the IP header starts.
    pub(crate) l3: usize,
    pub(crate) heading: ArrivedHeading<A>,
    /// Whether the destination is a group or broadcast address.
    pub(crate) to_group: bool,
}
