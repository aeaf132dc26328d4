//! `RxFilter`: what an engine wants of what arrives at one interface, apart from link headers.
//!
//! Filled by an engine ([`Engine::rx_filter`](crate::Engine::rx_filter)), passed to devices that
//! can refuse a packet before it costs anything, or leave it to other programs. Invariant: what is
//! not wanted by this the engine would drop on any path; of what is wanted it may drop most.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::limits::{ACCESS_RULES_MAX, ADDRESSES_MAX};
use floodwall_base::{IpCidr, PortSet};

/// Addresses of one family: each of the interface's, and as many again for prefixes that stand for
/// all hosts behind it.
const EACH_MAX: usize = 2 * ADDRESSES_MAX;

/// The addresses, ports and protocols that an engine wants from one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RxFilter {
    /// Whether IPv4 packets to any address are wanted: of a router, for one.
    pub any_v4: bool,
    /// The same of IPv6.
    pub any_v6: bool,
    /// A query for an IPv4 address is pending: the answer may be for one that is not here yet.
    pub asks_v4: bool,
    /// Whether datagrams to one host are wanted at every port.
    pub any_udp: bool,
    /// The same of TCP's segments.
    pub any_tcp: bool,
    /// Ports at which datagrams are wanted.
    pub udp: PortSet,
    /// Ports at which segments are wanted.
    pub tcp: PortSet,
    /// Addresses that are wanted, and whether the ports restrict what is wanted at them.
    v4: Vec<(Ipv4Addr, bool)>,
    v6: Vec<(Ipv6Addr, bool)>,
    /// Prefixes from which nothing is wanted.
    denied: Vec<IpCidr>,
}

impl Default for RxFilter {
    /// Everything.
    fn default() -> Self {
        Self {
            any_v4: true,
            any_v6: true,
            asks_v4: true,
            any_udp: true,
            any_tcp: true,
            udp: PortSet::default(),
            tcp: PortSet::default(),
            v4: Vec::with_capacity(EACH_MAX),
            v6: Vec::with_capacity(EACH_MAX),
            denied: Vec::with_capacity(ACCESS_RULES_MAX),
        }
    }
}

impl RxFilter {
    /// Everything is wanted.
    pub fn everything(&mut self) {
        self.nothing();
        (self.any_v4, self.any_v6, self.asks_v4) = (true, true, true);
        (self.any_udp, self.any_tcp) = (true, true);
    }

    /// Nothing is wanted: where to begin.
    pub fn nothing(&mut self) {
        (self.any_v4, self.any_v6, self.asks_v4) = (false, false, false);
        (self.any_udp, self.any_tcp) = (false, false);
        self.udp.clear();
        self.tcp.clear();
        self.v4.clear();
        self.v6.clear();
        self.denied.clear();
    }

    /// Packets to this IPv4 address are wanted: only to the added ports if it `has_ports`, else all
    /// of them. Where there is no room, every address is wanted.
    pub fn add_v4(&mut self, addr: Ipv4Addr, has_ports: bool) {
        if self.v4.len() < EACH_MAX {
            self.v4.push((addr, has_ports));
        } else {
            self.any_v4 = true;
        }
    }

    /// The same of an IPv6 address.
    pub fn add_v6(&mut self, addr: Ipv6Addr, has_ports: bool) {
        if self.v6.len() < EACH_MAX {
            self.v6.push((addr, has_ports));
        } else {
            self.any_v6 = true;
        }
    }

    /// No packet from there is wanted, to any destination, as long as nothing stands between the
    /// link header and its own. Where there is no room, the entry is left out.
    pub fn deny(&mut self, from: IpCidr) {
        if self.denied.len() < ACCESS_RULES_MAX {
            self.denied.push(from);
        }
    }

    /// Prefixes from which nothing is wanted.
    #[must_use]
    pub fn denied(&self) -> &[IpCidr] {
        &self.denied
    }

    /// The addresses, IPv4 ones as IPv6 has them (RFC 4291 section 2.5.5.2), and whether the ports
    /// restrict what is wanted there.
    pub fn addresses(&self) -> impl Iterator<Item = (Ipv6Addr, bool)> + '_ {
        let v4 = self.v4.iter().map(|(addr, has_ports)| (addr.to_ipv6_mapped(), *has_ports));
        v4.chain(self.v6.iter().copied())
    }
}
