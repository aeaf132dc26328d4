//! Configuration of a stack: interfaces, addresses, routes, bounds.

use core::net::IpAddr;

use floodwall_base::{IpCidr, MacAddr, limits};
use floodwall_ip::access_list::AccessRule;
use floodwall_ip::advertiser::{AdvertiserConfig, AdvertiserError};
use floodwall_ip::forward::{Martians, ReversePath};
use floodwall_ip::{LinkMedium, ReassemblyConfig};
use floodwall_wire::ExtensionLimits;
use thiserror::Error;

/// Configuration of one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceConfig {
    /// Its name, for display.
    pub name: String,
    /// The link type: bare IP packets or Ethernet frames.
    pub medium: LinkMedium,
    /// MTU: the largest IP packet in bytes.
    pub mtu: u32,
    /// Our addresses, with their prefix lengths.
    pub addresses: Vec<IpCidr>,
    /// Routers on the link: one default route each.
    pub gateways: Vec<IpAddr>,
    /// Whether router advertisements are solicited and accepted: routes, hop limit, MTU, DNS (RFC
    /// 4861 section 6.3). Ethernet only.
    pub accept_ra: bool,
    /// Whether addresses are generated from advertised prefixes (SLAAC, RFC 4862), with stable
    /// identifiers that do not reveal the station address (RFC 7217). Needs `accept_ra`.
    pub autoconf: bool,
    /// Whether the DHCPv4 client runs: address, routes and DNS (RFC 2131). Ethernet only.
    pub dhcp: bool,
    /// Whether the DHCPv6 client asks for an address and DNS where a router says that they are to
    /// be had (RFC 8415). Needs `accept_ra`. Ethernet only.
    pub dhcpv6: bool,
    /// Whether every unicast packet that arrives here is delivered locally, for any destination
    /// (AnyIP): addresses that are routed here need not be ours (VPNs, sandboxes). A connection to
    /// such an address is answered from it. Nothing that arrives on the interface is forwarded
    /// then.
    pub any_destination: bool,
    /// Whether the device completes checksums of outgoing packets (checksum offload: virtio's
    /// header; NICs). Where all interfaces' devices do, TCP leaves the checksum of each segment to
    /// them.
    pub checksum_offload: bool,
    /// Whether packets to other hosts that arrive here are forwarded, and forwarded packets leave
    /// here, where the host forwards (RFC 1812 section 5.3.11).
    pub forwarding: bool,
    /// Reverse path filtering of forwarded packets (RFC 3704).
    pub reverse_path: ReversePath,
    /// Whether ICMP redirects are sent to hosts on the link.
    pub send_redirects: bool,
    /// The router advertisements sent on the link, where IPv6 is forwarded from it. Ethernet only.
    pub advertise: Option<AdvertiserConfig>,
    /// Access list of the interface, in order: the first rule that matches decides, a packet that
    /// matches none passes. It applies to all packets, local and forwarded.
    pub access: Vec<AccessRule>,
}

impl Default for InterfaceConfig {
    /// Bare IP packets, an MTU of 1500, no addresses; routers and servers are not listened to.
    fn default() -> Self {
        Self {
            name: String::new(),
            medium: LinkMedium::Ip,
            mtu: 1500,
            addresses: Vec::new(),
            gateways: Vec::new(),
            accept_ra: false,
            autoconf: false,
            dhcp: false,
            dhcpv6: false,
            any_destination: false,
            checksum_offload: false,
            forwarding: true,
            reverse_path: ReversePath::Off,
            send_redirects: true,
            advertise: None,
            access: Vec::new(),
        }
    }
}

/// A static route beside those implied by addresses and gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// The destination prefix.
    pub prefix: IpCidr,
    /// The next hop; `None` where the prefix is on-link.
    pub via: Option<IpAddr>,
    /// The outgoing interface, counted from 0 in order of configuration.
    pub iface: usize,
}

/// Configuration of a whole stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackConfig {
    /// The interfaces; the first becomes `IfIndex(1)`. The loopback is implicit.
    pub interfaces: Vec<InterfaceConfig>,
    /// Static routes.
    pub routes: Vec<StaticRoute>,
    /// Maximum number of routes of each family, those from router advertisements not counted.
    /// Memory for many is allocated when they are added.
    pub routes_max: usize,
    /// Maximum number of UDP sockets.
    pub udp_sockets_max: usize,
    /// Maximum number of further UDP sockets that all shards of the host share: those of programs
    /// on other threads.
    pub udp_shared_sockets_max: usize,
    /// Receive buffer of one UDP socket, in true bytes (packet memory held).
    pub udp_receive_bytes: usize,
    /// True bytes that the UDP sockets of a shard may hold together before each is limited below
    /// its own receive buffer (memory pressure); a sixth of the shard's frames at most.
    pub udp_memory_bytes: usize,
    /// Whether a UDP socket that fills up prefers light senders to heavy ones (fair drop), unless
    /// its own settings differ.
    pub udp_fair_drop: bool,
    /// Maximum number of TCP connections of each shard. 0 disables TCP.
    pub tcp_connections_max: usize,
    /// Whether TCP's packet memory is shared fairly between source prefixes; where false, whichever
    /// connection takes memory first keeps it.
    pub tcp_fair_memory: bool,
    /// Whether expected TCP segments without progress cost tokens of their flow and prefix under
    /// pressure; where false, replays of real connections go before newcomers.
    pub tcp_flow_credit: bool,
    /// Whether timers have a quarter of each call's units at least; where false, they have what
    /// programs on other threads leave, and wait for as long as those send.
    pub timers_have_part: bool,
    /// Maximum number of ping sockets.
    pub ping_sockets_max: usize,
    /// Maximum number of raw sockets, [`limits::RAW_SOCKETS_MAX`] at most. 0 disables them: a raw
    /// socket receives copies of other sockets' packets, and sends any protocol.
    pub raw_sockets_max: usize,
    /// Limits of the IPv6 extension header walk.
    pub extension_limits: ExtensionLimits,
    /// Memory limits of the reassembly of fragments, for each family.
    pub reassembly: ReassemblyConfig,
    /// Maximum number of neighbour cache entries of each family.
    pub neighbors_max: usize,
    /// Whether the gateways of routes are resolved before there are packets for them, and kept
    /// fresh: a flood that begins later then finds their link addresses known.
    pub keep_gateways: bool,
    /// Whether new addresses are probed before use (RFC 4862 section 5.4, RFC 5227).
    pub duplicate_address_detection: bool,
    /// Maximum echo replies a second to one peer; 0 for no limit.
    pub echo_rate: u32,
    /// The lowest hop limit accepted from a router advertisement (CVE-2015-2922: a hop limit of 1
    /// cuts off every host of a link).
    pub hop_limit_floor: u8,
    /// Whether redirects are accepted, of both families alike. Off by default: the gain is one hop,
    /// and an IPv4 redirect can be forged from anywhere.
    pub accept_redirects: bool,
    /// The secret key of RFC 7217: with the same one, a host has the same addresses after a
    /// restart. `None`: new addresses at each start.
    pub stable_secret: Option<[u8; 16]>,
    /// Whether echo requests to broadcast addresses and IPv4 groups are ignored (RFC 1122 section
    /// 3.2.2.6 allows both).
    pub icmp_echo_ignore_broadcasts: bool,
    /// Whether echo requests to IPv6 groups are ignored (RFC 4443 section 4.2 requires a reply).
    pub icmpv6_echo_ignore_multicast: bool,
    /// Whether IPv4 packets to other hosts are forwarded (RFC 1812): `net.ipv4.ip_forward`.
    pub ipv4_forwarding: bool,
    /// The same for IPv6: `net.ipv6.conf.all.forwarding`.
    pub ipv6_forwarding: bool,
    /// Addresses that are never forwarded (martians).
    pub martians: Martians,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            routes: Vec::new(),
            routes_max: limits::ROUTES_MAX,
            udp_sockets_max: 1024,
            udp_shared_sockets_max: 0,
            udp_receive_bytes: limits::UDP_RECEIVE_BYTES,
            udp_memory_bytes: limits::UDP_MEMORY,
            udp_fair_drop: true,
            tcp_connections_max: 0,
            tcp_fair_memory: true,
            tcp_flow_credit: true,
            timers_have_part: true,
            ping_sockets_max: limits::PING_SOCKETS_MAX,
            raw_sockets_max: 0,
            extension_limits: ExtensionLimits::default(),
            reassembly: ReassemblyConfig::default(),
            neighbors_max: limits::NEIGHBORS_MAX,
            keep_gateways: false,
            duplicate_address_detection: true,
            echo_rate: 10_000,
            hop_limit_floor: floodwall_ip::iface::HOP_LIMIT,
            accept_redirects: false,
            stable_secret: None,
            icmp_echo_ignore_broadcasts: true,
            icmpv6_echo_ignore_multicast: false,
            ipv4_forwarding: false,
            ipv6_forwarding: false,
            martians: Martians::Impossible,
        }
    }
}

/// Why a configuration was rejected.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// Too many interfaces.
    #[error("{0} interfaces, but a stack has at most {max}", max = limits::INTERFACES_MAX)]
    TooManyInterfaces(usize),
    /// Too many addresses on one interface.
    #[error("{name}: {count} addresses, but an interface has at most {max} of each family",
        max = limits::ADDRESSES_MAX)]
    TooManyAddresses {
        /// The interface.
        name: String,
        /// How many.
        count: usize,
    },
    /// Not a unicast host address.
    #[error("{name}: {address} cannot be an interface's address: use a unicast address")]
    Address {
        /// The interface.
        name: String,
        /// The address.
        address: IpCidr,
    },
    /// The same address twice.
    #[error("{address} is given twice (on {name} and before): keep one")]
    DuplicateAddress {
        /// The interface that has it again.
        name: String,
        /// The address.
        address: IpAddr,
    },
    /// Too many access rules.
    #[error("{name}: {count} rules, but an access list has at most {max}",
        max = limits::ACCESS_RULES_MAX)]
    AccessRules {
        /// The interface.
        name: String,
        /// How many.
        count: usize,
    },
    /// The router advertisement configuration is invalid.
    #[error("{name}: {error}")]
    Advertise {
        /// The interface.
        name: String,
        /// Why.
        error: AdvertiserError,
    },
    /// A gateway that no prefix of the interface covers.
    #[error(
        "{name}: the gateway {gateway} is on no prefix of this interface: \
        add an address with a prefix that covers it, or a route to it on the link"
    )]
    Gateway {
        /// The interface.
        name: String,
        /// The router.
        gateway: IpAddr,
    },
    /// The station address is a group address or zero.
    #[error("{name}: {mac} cannot be a station's address: clear the lowest bit of its first byte")]
    Mac {
        /// The interface.
        name: String,
        /// The address.
        mac: MacAddr,
    },
    /// The MTU is below the family's minimum.
    #[error("{name}: an MTU of {mtu} is below {least} bytes, which {family} needs")]
    Mtu {
        /// The interface.
        name: String,
        /// As configured.
        mtu: u32,
        /// The least.
        least: u32,
        /// Which family needs it.
        family: &'static str,
    },
    /// The limit of extension header bytes exceeds the fixed maximum.
    #[error("{bytes} bytes of extension headers, but at most {max} are processed",
        max = limits::EXTENSION_BYTES_MAX)]
    ExtensionBytes {
        /// As configured.
        bytes: usize,
    },
    /// A route refers to an interface that does not exist.
    #[error("the route to {prefix} names interface {iface}, but there are {count}")]
    RouteInterface {
        /// The route.
        prefix: IpCidr,
        /// As configured.
        iface: usize,
        /// How many there are.
        count: usize,
    },
    /// The route's prefix and gateway are of different families.
    #[error("the route to {prefix} goes via {via}, which is of the other family")]
    RouteFamily {
        /// The route.
        prefix: IpCidr,
        /// Its router.
        via: IpAddr,
    },
    /// The routing table rejected the route.
    #[error("the route to {prefix}: {error}")]
    Route {
        /// The route.
        prefix: IpCidr,
        /// Why.
        error: floodwall_fib::RouteError,
    },
    /// The packet pool has too few accounts for the sockets.
    #[error("the packet pool has no room for {0} sockets: raise its accounts")]
    Accounts(usize),
}
