//! `LinkStation`: a program steers the frames for this link address to our sockets.
//!
//! Part of the plan by which `steering.rs` assembles. Plain data.

use floodwall_base::MacAddr;

/// The link address that the program steers to our sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkStation {
    pub(crate) mac: MacAddr,
    /// Whether the host uses the same link address. IP addresses then decide between the two.
    pub(crate) is_shared: bool,
}
