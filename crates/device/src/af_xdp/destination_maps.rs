//! `DestinationMaps`: the maps of addresses, ports and denied sources, by descriptor.
//!
//! Given by `filter_tables.rs`, read by the code that `filter/destination.rs` emits. Plain data.

/// The maps, by descriptor.
#[derive(Clone, Copy, Debug)]
pub(in crate::af_xdp) struct DestinationMaps {
    pub(in crate::af_xdp) board: i32,
    pub(in crate::af_xdp) ports: i32,
    pub(in crate::af_xdp) addresses: i32,
    pub(in crate::af_xdp) denied: i32,
}
