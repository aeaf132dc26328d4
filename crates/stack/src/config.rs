//! What a stack is made of: interfaces, addresses, routes, bounds.

use core::net::IpAddr;

use floodwall_base::{IpCidr, MacAddr, limits};
use floodwall_ip::access_list::AccessRule;
use floodwall_ip::advertiser::{AdvertiserConfig, AdvertiserError};
use floodwall_ip::forward::{Martians, ReversePath};
use floodwall_ip::{LinkMedium, ReassemblyConfig};
use floodwall_wire::ExtensionLimits;
use thiserror::Error;

/// One interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceConfig {
    /// Its name, for humans.
    pub name: String,
    /// What its packets look like.
    pub medium: LinkMedium,
    /// The largest IP packet in bytes.
    pub mtu: u32,
    /// Our addresses there.
    pub addresses: Vec<IpCidr>,
    /// Routers there: one default route each.
    pub gateways: Vec<IpAddr>,
    /// Whether IPv6 routers there are asked for and believed: routes, hop limit, MTU, DNS (RFC 4861
    /// section 6.3). Ethernet only.
    pub accept_ra: bool,
    /// Whether we make ourselves addresses out of the prefixes that routers advertise (RFC 4862),
    /// with identifiers that say nothing of the station (RFC 7217). Needs `accept_ra`.
    pub autoconf: bool,
    /// Whether DHCP servers there are asked for an address, routes and DNS (RFC 2131). Ethernet
    /// only.
    pub dhcp: bool,
    /// Whether what arrives there for one host is for us, whatever its destination: addresses that
    /// are routed here need not be ours (VPNs, sandboxes). Who connects to such an address is
    /// answered from it. Nothing that arrives there is passed on then.
    pub any_destination: bool,
    /// Whether its device finishes checksums of what leaves (virtio's header; cards). Where all
    /// interfaces' devices do, TCP leaves them the sum of each segment.
    pub checksum_offload: bool,
    /// Whether packets for others that arrive there are passed on, and others' packets leave
    /// there, where the host does that (RFC 1812 section 5.3.11).
    pub forwarding: bool,
    /// Whether the way back to the source of what is passed on is looked at (RFC 3704).
    pub reverse_path: ReversePath,
    /// Whether hosts there are told of a better first hop.
    pub send_redirects: bool,
    /// What we tell hosts there as a router, where IPv6 is forwarded from there. Ethernet only.
    pub advertise: Option<AdvertiserConfig>,
    /// What may come in there, in order: the first rule that matches decides, what none matches
    /// passes. It counts for all packets, ours and others'.
    pub access: Vec<AccessRule>,
}

impl Default for InterfaceConfig {
    /// Bare IP packets, an MTU of 1500, no addresses, and nobody is believed.
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

/// One route beside those that addresses and gateways make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// What it is for.
    pub prefix: IpCidr,
    /// The router; `None` where the prefix is on the link.
    pub via: Option<IpAddr>,
    /// Which interface, counted from 0 in order of configuration.
    pub iface: usize,
}

/// A whole stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackConfig {
    /// The interfaces; the first becomes `IfIndex(1)`. The loopback is there by itself.
    pub interfaces: Vec<InterfaceConfig>,
    /// Further routes.
    pub routes: Vec<StaticRoute>,
    /// Routes of each family that there may be, those that routers advertise not counted. Memory
    /// for many is taken when they come.
    pub routes_max: usize,
    /// How many UDP sockets may be open.
    pub udp_sockets_max: usize,
    /// How many UDP sockets beside these all shards of the host may share: those of programs on
    /// other threads.
    pub udp_shared_sockets_max: usize,
    /// True bytes that wait in one UDP socket.
    pub udp_receive_bytes: usize,
    /// True bytes that the UDP sockets of a shard may hold together before each is held to less
    /// than its own limit; a sixth of the shard's frames at most.
    pub udp_memory_bytes: usize,
    /// Whether a UDP socket that fills up prefers light senders to heavy ones, unless its own
    /// settings say otherwise.
    pub udp_fair_drop: bool,
    /// How many TCP connections each shard may have. With 0 this stack does not speak TCP.
    pub tcp_connections_max: usize,
    /// How many ping sockets may be open.
    pub ping_sockets_max: usize,
    /// How many raw sockets may be open, [`limits::RAW_SOCKETS_MAX`] at most. With 0, no program of
    /// this stack may have one: they overhear what is for others, and send any protocol.
    pub raw_sockets_max: usize,
    /// How far the walk over extension headers goes.
    pub extension_limits: ExtensionLimits,
    /// What incomplete datagrams of each family may hold.
    pub reassembly: ReassemblyConfig,
    /// Neighbours of each family.
    pub neighbors_max: usize,
    /// Whether new addresses are probed before their use (RFC 4862 section 5.4, RFC 5227).
    pub duplicate_address_detection: bool,
    /// Echo replies a second that one peer may cause; 0 for no bound.
    pub echo_rate: u32,
    /// The least hop limit that a router may make us use (CVE-2015-2922: a hop limit of 1 cuts
    /// every host of a link off).
    pub hop_limit_floor: u8,
    /// Whether redirects are followed, of both families alike. Off by default: what they gain is
    /// one hop, and an IPv4 redirect can be forged from anywhere.
    pub accept_redirects: bool,
    /// The secret of RFC 7217: with the same one, a host has the same addresses after a restart.
    /// `None`: others at each start.
    pub stable_secret: Option<[u8; 16]>,
    /// Whether echo requests to broadcast addresses and IPv4 groups are left without answer
    /// (RFC 1122 section 3.2.2.6 allows both).
    pub icmp_echo_ignore_broadcasts: bool,
    /// Whether echo requests to IPv6 groups are left without answer (RFC 4443 section 4.2 wants
    /// one).
    pub icmpv6_echo_ignore_multicast: bool,
    /// Whether IPv4 packets for others are passed on (RFC 1812): `net.ipv4.ip_forward`.
    pub ipv4_forwarding: bool,
    /// The same for IPv6: `net.ipv6.conf.all.forwarding`.
    pub ipv6_forwarding: bool,
    /// Which addresses are never passed on.
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
            ping_sockets_max: limits::PING_SOCKETS_MAX,
            raw_sockets_max: 0,
            extension_limits: ExtensionLimits::default(),
            reassembly: ReassemblyConfig::default(),
            neighbors_max: limits::NEIGHBORS_MAX,
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

/// Why a configuration makes no stack.
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
    /// An address that no host can have.
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
    /// Too many rules.
    #[error("{name}: {count} rules, but an access list has at most {max}",
        max = limits::ACCESS_RULES_MAX)]
    AccessRules {
        /// The interface.
        name: String,
        /// How many.
        count: usize,
    },
    /// No router may advertise that.
    #[error("{name}: {error}")]
    Advertise {
        /// The interface.
        name: String,
        /// Why.
        error: AdvertiserError,
    },
    /// A router that no prefix of the interface covers.
    #[error(
        "{name}: the gateway {gateway} is on no prefix of this interface: \
        add an address whose prefix covers it"
    )]
    Gateway {
        /// The interface.
        name: String,
        /// The router.
        gateway: IpAddr,
    },
    /// The station address is a group's or zero.
    #[error("{name}: {mac} cannot be a station's address: clear the lowest bit of its first byte")]
    Mac {
        /// The interface.
        name: String,
        /// The address.
        mac: MacAddr,
    },
    /// The MTU is below what the family needs.
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
    /// More bytes of extension headers than are ever looked at.
    #[error("{bytes} bytes of extension headers, but at most {max} are looked at",
        max = limits::EXTENSION_BYTES_MAX)]
    ExtensionBytes {
        /// As configured.
        bytes: usize,
    },
    /// A route names an interface that is not there.
    #[error("the route to {prefix} names interface {iface}, but there are {count}")]
    RouteInterface {
        /// The route.
        prefix: IpCidr,
        /// As configured.
        iface: usize,
        /// How many there are.
        count: usize,
    },
    /// A route mixes families.
    #[error("the route to {prefix} goes via {via}, which is of the other family")]
    RouteFamily {
        /// The route.
        prefix: IpCidr,
        /// Its router.
        via: IpAddr,
    },
    /// The table of routes refused one.
    #[error("the route to {prefix}: {error}")]
    Route {
        /// The route.
        prefix: IpCidr,
        /// Why.
        error: floodwall_fib::RouteError,
    },
    /// Socket accounts do not fit the pool.
    #[error("the packet pool has no room for {0} sockets: raise its accounts")]
    Accounts(usize),
}
