//! `NetworkEvent`: something that happened to a host, as a value.

use floodwall_base::IpCidr;
use floodwall_dispatch::FloodEvent;

/// Something that happened to a host.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum NetworkEvent {
    /// A flood began, or has ended.
    Flood(FloodEvent),
    /// The host has a new address that may be used.
    AddressAdded {
        /// The interface's name.
        interface: String,
        /// The address.
        address: IpCidr,
        /// Whether it was learnt from the link.
        learnt: bool,
    },
    /// An address is gone, or may not be used any more.
    AddressLost {
        /// The interface's name.
        interface: String,
        /// The address.
        address: IpCidr,
    },
    /// An interface is up.
    LinkUp {
        /// Its name.
        interface: String,
    },
    /// An interface is down.
    LinkDown {
        /// Its name.
        interface: String,
    },
    /// Packets of up to another size pass an interface's link from now on.
    Mtu {
        /// The interface's name.
        interface: String,
        /// Bytes of the largest IP packet.
        mtu: u32,
    },
    /// A DHCP server has granted a lease, or another one than before.
    Leased(HostLease),
    /// A lease has ended, or was given back.
    LeaseLost {
        /// The interface's name.
        interface: String,
        /// The address that was leased.
        address: IpCidr,
    },
    /// Routers, routes or name servers have changed: read again what you need.
    Configuration,
    /// Connections were reset to make room for others.
    Evicted {
        /// How many, since the last such event.
        connections: u64,
    },
}

/// A lease of a DHCP server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostLease {
    /// The interface's name.
    pub interface: String,
    /// The leased address.
    pub address: IpCidr,
    /// The server: its address, of DHCPv6 its identifier.
    pub server: String,
    /// What of the server's offer was left out, and why; a sentence each.
    pub left_out: Vec<String>,
}
