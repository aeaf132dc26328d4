//! What names a flow, whichever its family.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::IfIndex;

/// One end: address and port. IPv4 stands as an IPv4-mapped address (RFC 4291 section 2.5.5.2),
/// so that connection state knows no family (decision E20).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// The address, IPv4 mapped.
    pub addr: Ipv6Addr,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// The end at `addr` and `port`; IPv4 is mapped.
    #[inline]
    #[must_use]
    pub const fn new(addr: IpAddr, port: u16) -> Self {
        let addr = match addr {
            // As whole words, which is how it is read soon afterwards.
            IpAddr::V4(a) => Ipv6Addr::from_bits(0xffff << 32 | a.to_bits() as u128),
            IpAddr::V6(a) => a,
        };
        Self { addr, port }
    }

    /// The bits of the address where it is of IPv4. One comparison of a whole word, where
    /// [`Ipv6Addr::to_ipv4_mapped`] takes the address apart.
    #[inline]
    #[must_use]
    pub const fn ipv4_bits(&self) -> Option<u32> {
        let bits = self.addr.to_bits();
        if bits >> 32 == 0xffff { Some(bits as u32) } else { None }
    }

    /// The address in its own family.
    #[inline]
    #[must_use]
    pub const fn ip(self) -> IpAddr {
        match self.ipv4_bits() {
            Some(bits) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            None => IpAddr::V6(self.addr),
        }
    }
}

/// A flow as its shard sees it. The interface counts for link-local addresses only; it is the
/// default everywhere else, so that a route change does not end a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// Our end.
    pub local: Endpoint,
    /// The peer's end.
    pub remote: Endpoint,
    /// The link that a link-local address belongs to.
    pub zone: IfIndex,
    /// The upper protocol.
    pub protocol: u8,
}

/// A looked-up path that a flow remembers, with the generation by which it notices change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedRoute {
    /// The interface that leads there.
    pub iface: IfIndex,
    /// The neighbour to hand the packet to: a router, or the destination itself.
    pub next_hop: IpAddr,
    /// Our address towards it.
    pub src_addr: IpAddr,
    /// Largest packet in bytes that the path is known to carry.
    pub mtu: u32,
    /// The routing generation under which all this was true.
    pub generation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_keep_their_family_through_the_mapping() {
        for text in ["0.0.0.0", "10.0.0.1", "255.255.255.255", "fd00::1", "::1", "::fffe:a00:1"] {
            let addr: IpAddr = text.parse().unwrap();
            let end = Endpoint::new(addr, 7);
            assert_eq!(end.ip(), addr);
            let bits = match addr {
                IpAddr::V4(addr) => Some(addr.to_bits()),
                IpAddr::V6(_) => None,
            };
            assert_eq!(end.ipv4_bits(), bits);
        }
    }
}
