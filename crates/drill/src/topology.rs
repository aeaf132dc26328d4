//! The layout: the addresses of the drill's host, its honest clients and its attackers.
//!
//! Read by everything here. All of them belong to the ranges for benchmarks and for documentation
//! (RFC 2544, RFC 5180, RFC 3849), so that nothing of the drill could ever mean a machine outside.
//! Answers to a spoofed source go to the link's router, which is honest.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Family, IpCidr, MacAddr};

/// The host under test.
pub(crate) const SERVER_MAC: MacAddr = MacAddr([2, 0xf1, 0, 0, 0, 1]);
/// Its IPv4 address, on a /16.
pub(crate) const SERVER_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Its IPv6 address, on a /64.
pub(crate) const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0x12, 0, 0, 0, 1);
/// Another of its addresses, on the /64 of the attackers that open connections: the range for
/// benchmarks is one /48, within which nets are no prefixes of their own.
pub(crate) const SERVER_BESIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0x12, 0, 0, 0, 1);
/// Where its echo service listens.
pub(crate) const SERVICE_PORT: u16 = 7001;
/// Where a service listens that accepts slowly.
pub(crate) const SLOW_PORT: u16 = 7002;
/// Where its web server listens.
pub(crate) const WEB_PORT: u16 = 80;
/// The TCP clients: the honest ones, and the attackers.
pub(crate) const CALLER_MACS: [MacAddr; 2] =
    [MacAddr([2, 0xf1, 0, 0, 0, 0xc4]), MacAddr([2, 0xf1, 0, 0, 0, 0xc5])];
/// A port without a listener, and those behind it.
pub(crate) const CLOSED_PORTS: (u16, u16) = (20_000, 29_999);
/// The attackers.
pub(crate) const FLOOD_MAC: MacAddr = MacAddr([2, 0xf1, 0, 0, 0, 0xff]);
/// The router, and all hosts behind it.
pub(crate) const ROUTER_MAC: MacAddr = MacAddr([2, 0xf1, 0, 0, 0, 0xfe]);
/// The router's IPv4 address, which the host is configured with.
pub(crate) const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);
/// The router's IPv6 address, which it advertises.
pub(crate) const ROUTER_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xffff);
/// Sources behind the router, without an honest client among them.
pub(crate) const UNKNOWN_HOSTS: [&str; 2] = ["198.19.0.0/17", "2001:2:0:13::/64"];
/// Sources that claim to be on the link.
pub(crate) const NEIGHBORS: [&str; 2] = ["198.18.0.0/16", "2001:2:0:12::/64"];
/// Sources that claim to be on the link, without an honest client among them.
pub(crate) const CLAIMANTS: [&str; 2] = ["198.18.64.0/18", "2001:2:0:12:8000::/65"];
/// Sources that claim to be routers, without an honest one among them.
pub(crate) const FALSE_ROUTERS: [&str; 2] = ["198.18.64.0/18", "fe80::8000:0:0:0/65"];
/// How many addresses each honest client has.
const CLIENT_ADDRS: u16 = 4;

/// Both families, in the order of every table here.
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A family's name.
pub(crate) const fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// The honest parties, by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TopologyHost {
    /// On the link.
    Near,
    /// On the link, with datagrams so large that they come, and are answered, in fragments.
    Large,
    /// Behind the router.
    Far,
}

impl TopologyHost {
    /// All, in the order of every table here.
    pub(crate) const ALL: [Self; 3] = [Self::Near, Self::Large, Self::Far];
}

/// The link address of the honest client of a family.
pub(crate) const fn client_mac(party: TopologyHost, family: Family) -> MacAddr {
    let last = match party {
        TopologyHost::Near => 0xa4,
        TopologyHost::Large => 0xb4,
        TopologyHost::Far => return ROUTER_MAC,
    };
    MacAddr([2, 0xf1, 0, 0, 0, if matches!(family, Family::V4) { last } else { last + 2 }])
}

/// The server's address of a family.
pub(crate) const fn server_addr(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(SERVER_V4),
        Family::V6 => IpAddr::V6(SERVER_V6),
    }
}

/// The service that honest clients use.
pub(crate) const fn service(family: Family) -> SocketAddr {
    SocketAddr::new(server_addr(family), SERVICE_PORT)
}

/// What the addresses of a party's client of each family begin with: all but the last part.
const fn client_prefix(party: TopologyHost) -> ([u8; 3], [u16; 7]) {
    match party {
        TopologyHost::Near => ([198, 18, 1], [0x2001, 2, 0, 0x12, 0, 0, 1]),
        TopologyHost::Large => ([198, 18, 2], [0x2001, 2, 0, 0x12, 0, 0, 2]),
        TopologyHost::Far => ([198, 19, 200], [0x2001, 2, 0, 0x14, 0, 0, 1]),
    }
}

/// The addresses of the honest client of a party and family.
pub(crate) fn client_addrs(party: TopologyHost, family: Family) -> Vec<IpCidr> {
    let ([a, b, c], [s0, s1, s2, s3, s4, s5, s6]) = client_prefix(party);
    let nth = |n: u16| match family {
        Family::V4 => IpAddr::from([a, b, c, n as u8]),
        Family::V6 => IpAddr::from([s0, s1, s2, s3, s4, s5, s6, n]),
    };
    let len = if family == Family::V4 { 32 } else { 128 };
    (1..=CLIENT_ADDRS).filter_map(|n| IpCidr::new(nth(n), len)).collect()
}

/// The addresses of the callers of a number: one of each family, on the link. The attackers' are of
/// source prefixes of their own: an IPv4 /24 and an IPv6 /48.
pub(crate) fn caller_addrs(number: usize) -> Vec<IpCidr> {
    let (v4, v6) = match number {
        0 => ([198, 18, 3, 1], Ipv6Addr::new(0x2001, 2, 0, 0x12, 0, 0, 3, 1)),
        _ => ([198, 18, 4, 1], Ipv6Addr::new(0x2001, 0xdb8, 0, 0x12, 0, 0, 3, 2)),
    };
    let all = [(IpAddr::from(v4), 16), (IpAddr::V6(v6), 64)];
    all.into_iter().filter_map(|(addr, len)| IpCidr::new(addr, len)).collect()
}

/// The server's address of a family for the attackers among the callers.
pub(crate) const fn attacked_addr(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(SERVER_V4),
        Family::V6 => IpAddr::V6(SERVER_BESIDE_V6),
    }
}

/// Whether an address is one of a party's clients'.
pub(crate) fn is_client(party: TopologyHost, addr: IpAddr) -> bool {
    let (v4, v6) = client_prefix(party);
    match addr {
        IpAddr::V4(addr) => addr.octets().starts_with(&v4),
        IpAddr::V6(addr) => addr.segments().starts_with(&v6),
    }
}
