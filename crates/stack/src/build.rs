//! Builds a stack from its configuration: everything is validated first, then allocated.

use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{
    Address, IfIndex, Instant, IpCidr, Prefix, PublicRandom, Randomness, Steering, WorkerId, limits,
};
use floodwall_fib::exceptions::{Exceptions, PathUpdateFilter};
use floodwall_fib::lpm::LpmFamily as Routed;
use floodwall_fib::{Fib, Route, RouteError, RouteProtocol};
use floodwall_ip::access_list::AccessList;
use floodwall_ip::advertiser::AdvertiserConfig;
use floodwall_ip::{
    AddressState, Dad, Detection, FragmentStore, IcmpLimit, IcmpLimitConfig, IcmpRate, Interface,
    InterfaceError, LinkMedium, NeighborCache, NeighborConfig, PingSockets, RawSockets,
    ReassemblyConfig,
};
use floodwall_tcp::{ConnectionTable, CookieMoment, TcpConfig};
use floodwall_udp::{Udp, UdpConfig};

use crate::config::{ConfigError, InterfaceConfig, StackConfig, StaticRoute};
use crate::control::advertise::state::Advertisers;
use crate::control::dhcp::state::Dhcp;
use crate::control::dhcpv6::state::Dhcpv6;
use crate::control::group_gateways::state::GroupGateways;
use crate::control::multicast::state::MulticastGroups;
use crate::control::router::state::InterfaceRouters;
use crate::ip::echo::refusals::EchoRefusals;
use crate::ip::exceptions::{EchoPaths, RawSent};
use crate::ip::expected_datagrams::ExpectedDatagrams;
use crate::ip::fib_pair::FibPair;
use crate::ip::forward::forwarding::Forwarding;
use crate::ip::path_cache::PathCache;
use crate::parts::{
    BurstState, ControlState, FamilyState, IcmpState, MemoryShare, PacketPolicy, ShardContext,
    SocketTables,
};
use crate::shards::{Role, Seat};
use crate::stack::Stack;
use crate::tcp::shard::TcpShard;
use crate::triage::recent_peers::RecentPeers;
use crate::watched::{ChangeMark, Watched};

/// Maximum delay of the first probe of an address (RFC 4862 section 5.4.2 allows less where the
/// interface was not just brought up by many hosts at once).
const DAD_DELAY_MAX: Duration = Duration::from_millis(100);
/// The least MTU that IPv6 may have (RFC 8200 section 5).
pub(crate) const MTU_MIN_V6: u32 = 1280;
/// The least MTU that IPv4 may have (RFC 791).
const MTU_MIN_V4: u32 = 68;
/// The all-routers groups of the link and of the site (RFC 4291 section 2.7.1).
const ALL_ROUTERS: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2), Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 2)];
/// MTU of the loopback: the largest IP packet.
const MTU_LOOPBACK: u32 = 65_535;

/// Validates a configuration without building the stack.
///
/// # Errors
/// The first error found, with its place and remedy.
pub fn check(config: &StackConfig) -> Result<(), ConfigError> {
    let count = config.interfaces.len();
    if count >= limits::INTERFACES_MAX {
        return Err(ConfigError::TooManyInterfaces(count));
    }
    let bytes = config.extension_limits.chain_bytes_max;
    if bytes > limits::EXTENSION_BYTES_MAX {
        return Err(ConfigError::ExtensionBytes { bytes });
    }
    let mut seen: Vec<IpAddr> = Vec::new();
    for (index, interface) in config.interfaces.iter().enumerate() {
        check_interface(interface, &mut seen)?;
        check_gateways(config, index, interface)?;
    }
    for route in &config.routes {
        let prefix = route.prefix;
        if route.iface >= count {
            return Err(ConfigError::RouteInterface { prefix, iface: route.iface, count });
        }
        if let Some(via) = route.via.filter(|via| via.is_ipv4() != prefix.addr().is_ipv4()) {
            return Err(ConfigError::RouteFamily { prefix, via });
        }
    }
    Ok(())
}

fn check_interface(config: &InterfaceConfig, seen: &mut Vec<IpAddr>) -> Result<(), ConfigError> {
    let name = || config.name.clone();
    if config.access.len() > limits::ACCESS_RULES_MAX {
        return Err(ConfigError::AccessRules { name: name(), count: config.access.len() });
    }
    if let Some(Err(error)) = config.advertise.as_ref().map(AdvertiserConfig::check) {
        return Err(ConfigError::Advertise { name: name(), error });
    }
    if let LinkMedium::Ethernet(mac) = config.medium
        && !mac.is_unicast()
    {
        return Err(ConfigError::Mac { name: name(), mac });
    }
    let v6 = config.addresses.iter().any(|a| a.addr().is_ipv6());
    let (least, family) = if v6 { (MTU_MIN_V6, "IPv6") } else { (MTU_MIN_V4, "IPv4") };
    if config.mtu < least {
        return Err(ConfigError::Mtu { name: name(), mtu: config.mtu, least, family });
    }
    // One IPv6 address is reserved for the link-local one.
    if config.addresses.len() >= limits::ADDRESSES_MAX {
        return Err(ConfigError::TooManyAddresses { name: name(), count: config.addresses.len() });
    }
    for &address in &config.addresses {
        if !is_host(address) {
            return Err(ConfigError::Address { name: name(), address });
        }
        if seen.contains(&address.addr()) {
            return Err(ConfigError::DuplicateAddress { name: name(), address: address.addr() });
        }
        seen.push(address.addr());
    }
    Ok(())
}

/// A gateway is on a prefix of its interface's addresses, or on a static route of it that leads to
/// the link.
fn check_gateways(
    config: &StackConfig,
    index: usize,
    interface: &InterfaceConfig,
) -> Result<(), ConfigError> {
    for &gateway in &interface.gateways {
        let link_local = matches!(gateway, IpAddr::V6(a) if a.is_unicast_link_local());
        let covered = interface.addresses.iter().any(|a| a.contains(gateway));
        let on_link = |route: &StaticRoute| {
            route.via.is_none() && route.iface == index && route.prefix.contains(gateway)
        };
        if !covered && !link_local && !config.routes.iter().any(on_link) {
            return Err(ConfigError::Gateway { name: interface.name.clone(), gateway });
        }
    }
    Ok(())
}

/// Whether a host may have the address: not a group, not unspecified, not loopback, and not the
/// network's or the broadcast address of its prefix (RFC 1122 section 3.2.1.3, RFC 3021).
pub(crate) fn is_host(address: IpCidr) -> bool {
    match address.addr() {
        IpAddr::V4(a) => {
            let host = u32::MAX.checked_shr(u32::from(address.prefix_len())).unwrap_or(0);
            let edge = host > 1 && (a.to_bits() & host == 0 || a.to_bits() & host == host);
            floodwall_base::ipv4_is_configurable(a) && !edge
        }
        IpAddr::V6(a) => floodwall_base::ipv6_source_is_plausible(a),
    }
}

fn udp(config: &StackConfig) -> UdpConfig {
    UdpConfig {
        sockets_max: config.udp_sockets_max,
        shared_max: config.udp_shared_sockets_max,
        memory_bytes: config.udp_memory_bytes as u64,
        fair_drop: config.udp_fair_drop,
        ..UdpConfig::default()
    }
}

const fn echo_refusals(config: &StackConfig) -> EchoRefusals {
    EchoRefusals {
        broadcasts: config.icmp_echo_ignore_broadcasts,
        multicast_v6: config.icmpv6_echo_ignore_multicast,
    }
}

/// Builds the stack.
pub(crate) fn stack(
    config: &StackConfig,
    seat: Seat,
    random: &mut Randomness,
    now: Instant,
) -> Result<Stack, ConfigError> {
    check(config)?;
    let Seat { worker, steering, role, inherited, remote, place, fibs } = seat;
    let (follows, workers) = (matches!(role, Role::Follower(_)), steering.workers());
    let alone = || FibPair::of(follows, config, &mut random.secret);
    let fibs = fibs.map_or_else(alone, |fibs| *fibs);
    let neighbors_v4 = neighbors::<Ipv4Addr>(config, follows, random, now);
    let neighbors_v6 = neighbors::<Ipv6Addr>(config, follows, random, now);
    let dad = Dad::new(watched(config), DAD_DELAY_MAX, random.secret.hash_key(), now);
    let reassembly = reassembly_part(config.reassembly, workers);
    let reassembly_v4 = FragmentStore::new(reassembly, random.secret.hash_key(), now);
    let reassembly_v6 = FragmentStore::new(reassembly, random.secret.hash_key(), now);
    let limit = IcmpLimit::new(&icmp_limits(config, workers), random.secret.hash_key());
    let udp = Udp::new(&udp(config), &mut random.secret);
    let tcp = tcp(config, steering, worker, random, now);
    let exceptions_v4 = Exceptions::new(random.secret.hash_key());
    let exceptions_v6 = Exceptions::new(random.secret.hash_key());
    let icmp = IcmpState {
        limit,
        echo_refusals: echo_refusals(config),
        echo_paths: EchoPaths::new(random.secret.hash_key()),
        path_updates: PathUpdateFilter::new(workers),
    };
    let policy = PacketPolicy {
        access_lists: access_lists(config),
        access_changes: 0,
        forwarding: Forwarding::new(config, &mut random.secret),
        extension_limits: config.extension_limits,
    };
    let mark = ChangeMark::new();
    let mut stack = Stack {
        interfaces: interfaces(config)?,
        v4: FamilyState {
            routes: Watched::new(fibs.v4, &mark),
            neighbors: Watched::new(neighbors_v4, &mark),
            exceptions: exceptions_v4,
            reassembly: Watched::new(reassembly_v4, &mark),
        },
        v6: FamilyState {
            routes: Watched::new(fibs.v6, &mark),
            neighbors: Watched::new(neighbors_v6, &mark),
            exceptions: exceptions_v6,
            reassembly: Watched::new(reassembly_v6, &mark),
        },
        control: Watched::new(control(config, follows, dad, random, now), &mark),
        icmp,
        policy,
        sockets: sockets(config, udp, random),
        tcp,
        shard: ShardContext::new((role, config.timers_have_part), worker, steering),
        burst: BurstState::default(),
        memory: MemoryShare::default(),
        stats: inherited,
        parts_deadline: Cell::new(Instant::FAR),
        parts_mark: mark,
        tap: None,
    };
    if !follows {
        routes(&mut stack, config, now)?;
    }
    stack.shard.place = place;
    if let Some(remote) = remote {
        stack.serve(*remote);
    }
    if workers > 1 {
        stack.sockets.udp.set_home(steering, worker);
    }
    // Learning from the link, and transmitting control messages to it, is the control shard's part.
    if !follows {
        lead(&mut stack, config, random, now);
    }
    Ok(stack)
}

/// What configures the host while it runs.
fn control(
    config: &StackConfig,
    follows: bool,
    dad: Dad,
    random: &mut Randomness,
    now: Instant,
) -> ControlState {
    ControlState {
        dad,
        detects: config.duplicate_address_detection,
        address_deadline: None,
        routers: InterfaceRouters::new(config, random, now),
        advertisers: advertisers(follows, config, random, now),
        dhcp: Dhcp::new(config.interfaces.len() + 1),
        dhcpv6: Dhcpv6::new(config),
        group_gateways: GroupGateways::new(config.keep_gateways && !follows),
        groups: MulticastGroups::new(config.interfaces.len() + 1),
        follows_redirects: config.accept_redirects,
    }
}

/// The datagram sockets: none is open.
fn sockets(config: &StackConfig, udp: Udp, random: &mut Randomness) -> SocketTables {
    let udp_max = config.udp_sockets_max + config.udp_shared_sockets_max;
    SocketTables {
        udp,
        ping: PingSockets::new(config.ping_sockets_max),
        raw: RawSockets::new(config.raw_sockets_max),
        raw_sent: RawSent::new(config.raw_sockets_max),
        recent_peers: RecentPeers::new(&mut random.secret),
        path_cache: PathCache::new(udp_max),
        expected: ExpectedDatagrams::NONE,
    }
}

/// Initial state of the control shard.
fn lead(stack: &mut Stack, config: &StackConfig, random: &mut Randomness, now: Instant) {
    stack.lead();
    detect(stack, config, random, now);
    for (i, interface) in config.interfaces.iter().enumerate() {
        let iface = IfIndex(i as u16 + 1);
        if interface.dhcp {
            stack.set_dhcp(iface, true, now, random);
        }
        if interface.dhcpv6 {
            stack.set_dhcpv6(iface, true, now);
        }
    }
    stack.all_groups_changed(now, random);
}

/// Advertisers of the interfaces that act as routers: on the control shard alone.
fn advertisers(
    follows: bool,
    config: &StackConfig,
    random: &mut Randomness,
    now: Instant,
) -> Advertisers {
    match follows {
        true => Advertisers::none(),
        false => Advertisers::new(config, &mut random.public, now),
    }
}

/// Access lists by interface index; the first is the loopback's, which has none.
fn access_lists(config: &StackConfig) -> Box<[Option<AccessList>]> {
    if config.interfaces.iter().all(|interface| interface.access.is_empty()) {
        return Box::default();
    }
    let list = |interface: &InterfaceConfig| {
        (!interface.access.is_empty()).then(|| AccessList::new(&interface.access))
    };
    core::iter::once(None).chain(config.interfaces.iter().map(list)).collect()
}

fn neighbors<A: Address>(
    config: &StackConfig,
    follows: bool,
    random: &mut Randomness,
    now: Instant,
) -> NeighborCache<A> {
    // A follower reads what the control shard publishes.
    let interfaces = if follows { 0 } else { config.interfaces.len() + 1 };
    let sizes = NeighborConfig {
        entries: config.neighbors_max,
        ..NeighborConfig::for_interfaces(interfaces)
    };
    let spread = PublicRandom::new(random.public.next_u64());
    NeighborCache::new(sizes, random.secret.hash_key(), spread, now)
}

/// The TCP part of a shard, where the configuration allows connections.
fn tcp(
    config: &StackConfig,
    steering: Steering,
    worker: WorkerId,
    random: &mut Randomness,
    now: Instant,
) -> Option<Box<TcpShard>> {
    if config.tcp_connections_max == 0 {
        return None;
    }
    let connections_max = config.tcp_connections_max;
    let settings = TcpConfig {
        connections_max,
        fair_memory: config.tcp_fair_memory,
        flow_credit: config.tcp_flow_credit,
        ..TcpConfig::default()
    };
    let mut set = ConnectionTable::new(settings, CookieMoment::simulated(now), random);
    set.steer(steering, worker);
    if !config.interfaces.is_empty() && config.interfaces.iter().all(|i| i.checksum_offload) {
        set.leave_checksums();
    }
    let limits = icmp_limits(config, steering.workers());
    let resets = IcmpLimit::new(&limits, random.secret.hash_key());
    Some(Box::new(TcpShard::new(set, resets)))
}

/// The limits of ICMP answers, with the configured rate of echo replies (0 for no limit). Each
/// worker has its share of each rate, so that together they keep to it without coordination: a peer
/// that is steered to one worker gets one share. At least one a second, so that no worker never
/// answers.
fn icmp_limits(config: &StackConfig, workers: u16) -> IcmpLimitConfig {
    let defaults = IcmpLimitConfig::default();
    let workers = u32::from(workers.max(1));
    let part = |rate: IcmpRate| match rate.per_second {
        u32::MAX => rate,
        _ => IcmpRate {
            per_second: (rate.per_second / workers).max(1),
            burst: (rate.burst / workers).max(1),
        },
    };
    let per_second = if config.echo_rate == 0 { u32::MAX } else { config.echo_rate };
    let burst = defaults.echo_peer.burst.max(per_second / 10);
    IcmpLimitConfig {
        error_peer: part(defaults.error_peer),
        error_all: part(defaults.error_all),
        echo_peer: part(IcmpRate { per_second, burst }),
        ..defaults
    }
}

/// A worker's part of the memory for incomplete datagrams (reassembly): at least one source's
/// guaranteed share.
fn reassembly_part(all: ReassemblyConfig, workers: u16) -> ReassemblyConfig {
    let workers = workers.max(1);
    if workers == 1 {
        return all;
    }
    ReassemblyConfig {
        bytes: (all.bytes / u64::from(workers)).max(limits::REASSEMBLY_SOURCE_BYTES as u64),
        datagrams: (all.datagrams / usize::from(workers)).max(limits::REASSEMBLY_SOURCE_DATAGRAMS),
    }
}

fn interfaces(config: &StackConfig) -> Result<Vec<Interface>, ConfigError> {
    let loopback =
        Interface::new(IfIndex::LOOPBACK, "lo", LinkMedium::Loopback, MTU_LOOPBACK, true);
    let mut all = vec![loopback];
    for (i, c) in config.interfaces.iter().enumerate() {
        let index = IfIndex(i as u16 + 1);
        let ipv6 = c.mtu >= MTU_MIN_V6;
        let mut interface = Interface::new(index, &c.name, c.medium, c.mtu, ipv6);
        interface.any_destination = c.any_destination;
        for &address in &c.addresses {
            let state = match c.medium {
                LinkMedium::Ethernet(_) => AddressState::Tentative,
                _ => AddressState::Preferred,
            };
            let name = c.name.clone();
            match interface.add_address(address, state) {
                // Its link-local address is added implicitly.
                Ok(()) | Err(InterfaceError::AddressExists(_)) => {}
                Err(_) => return Err(ConfigError::Address { name, address }),
            }
        }
        if config.ipv6_forwarding && c.forwarding && ipv6 {
            interface.is_router = true;
            // There is room: no group has been joined yet (RFC 4291 section 2.8).
            ALL_ROUTERS.into_iter().for_each(|group| {
                let _ = interface.join(group.into());
            });
        }
        all.push(interface);
    }
    Ok(all)
}

/// Adds connected routes for the prefixes of our addresses, default routes for the gateways, then
/// the configured static routes.
fn routes(stack: &mut Stack, config: &StackConfig, now: Instant) -> Result<(), ConfigError> {
    for (i, c) in config.interfaces.iter().enumerate() {
        let iface = IfIndex(i as u16 + 1);
        for &address in &c.addresses {
            // Two addresses of one prefix share one route.
            let _ = add_route(stack, address, (None, iface, RouteProtocol::Kernel), now);
        }
        for &gateway in &c.gateways {
            let len = 0;
            let any = IpCidr::new(gateway, len);
            if let Some(any) = any {
                add_route(stack, any, (Some(gateway), iface, RouteProtocol::Static), now)?;
            }
        }
    }
    for route in &config.routes {
        let iface = IfIndex(route.iface as u16 + 1);
        match add_route(stack, route.prefix, (route.via, iface, RouteProtocol::Static), now) {
            // The prefix of an address leads there already.
            Err(ConfigError::Route { error: RouteError::Exists { .. }, .. })
                if route.via.is_none() => {}
            added => added?,
        }
    }
    Ok(())
}

/// Gateway, interface, and the route's protocol (its origin).
type StaticRouteKey = (Option<IpAddr>, IfIndex, RouteProtocol);

fn add_route(
    stack: &mut Stack,
    prefix: IpCidr,
    way: StaticRouteKey,
    now: Instant,
) -> Result<(), ConfigError> {
    let inserted = match prefix.addr() {
        IpAddr::V4(addr) => insert(&mut stack.v4.routes, addr, prefix, way, now),
        IpAddr::V6(addr) => insert(&mut stack.v6.routes, addr, prefix, way, now),
    };
    inserted.map_err(|error| ConfigError::Route { prefix, error })
}

pub(crate) fn insert<A: Routed>(
    fib: &mut Fib<A>,
    addr: A,
    prefix: IpCidr,
    way: StaticRouteKey,
    now: Instant,
) -> Result<(), floodwall_fib::RouteError> {
    let Some(prefix) = Prefix::new(addr, prefix.prefix_len()) else { return Ok(()) };
    let (via, iface, protocol) = way;
    let gateway = via.and_then(A::from_ip);
    fib.append(Route { gateway, protocol, ..Route::on_link(prefix, iface) }, now)
}

/// Capacity of duplicate address detection: all addresses that interfaces may ever have.
fn watched(config: &StackConfig) -> usize {
    config.interfaces.len() * 2 * limits::ADDRESSES_MAX
}

/// Starts duplicate address detection: addresses configured without probing are used and announced
/// immediately. IPv4 addresses always are (see `floodwall_ip::dad`).
fn detect(stack: &mut Stack, config: &StackConfig, random: &mut Randomness, now: Instant) {
    let all: Vec<_> = stack
        .interfaces
        .iter()
        .filter(|i| matches!(i.medium, LinkMedium::Ethernet(_)))
        .flat_map(|i| i.addresses().map(|a| (i.index, a.addr)))
        .collect();
    for (iface, addr) in all {
        let probed = config.duplicate_address_detection && addr.is_ipv6();
        let detection = if probed { Detection::Probe } else { Detection::Announce };
        if !probed && let Some(i) = stack.interfaces.get_mut(usize::from(iface.0)) {
            // The interface was just queried for its addresses.
            let _ = i.set_address_state(addr, AddressState::Preferred);
        }
        // The table has room for every address that an interface may have.
        let _ = stack.control.dad.start(iface, addr, detection, now, random);
    }
}
