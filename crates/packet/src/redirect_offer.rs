//! `RedirectOffer`: what a device may do with a router's packets between two hosts that talk.
//!
//! Filled by an engine ([`Engine::take_redirects`](crate::Engine::take_redirects)), given to the
//! device that the pair's packets arrive at, where that can pass them on before they cost anything.

use core::net::IpAddr;

use floodwall_base::{IfIndex, Instant};

/// How packets from one address to another pass this router, until further notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedirectOffer {
    /// Where they arrive.
    pub arrives: IfIndex,
    /// Where they leave.
    pub leaves: IfIndex,
    /// From this address.
    pub from: IpAddr,
    /// To this address, of the same family.
    pub to: IpAddr,
    /// The stations of the new link header: destination, then source.
    pub stations: [u8; 12],
    /// Bytes of the longest IP packet that may leave so.
    pub mtu: u32,
    /// From this time on one packet at least must come up again.
    pub until: Instant,
}
