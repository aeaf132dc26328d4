//! The state of an instance's links: addresses, routers, leases, DNS, groups, fragments.
//!
//! Read at the worker's desk, for `address show`, `link show` and `stat`, and for the thread that
//! reports changes to the operator. Keys and words are those of `ip -j` where it has them; times
//! are remaining seconds, 4294967295 for ever.

use std::net::IpAddr;
use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant, Randomness};
use floodwall_ip::{AddressState, Interface, InterfaceAddress};
use floodwall_stack::dhcp_client::Dhcpv6State;
use floodwall_stack::{AddAddress, AddressError, AddressOrigin, LinkMedium, Stack};
use serde::{Deserialize, Serialize};

use crate::neighbors::{self, interface_named};
use crate::socket::request::ControlRequest;

/// A time without end, as iproute2 writes it.
pub(crate) const FOR_EVER: u32 = u32::MAX;

/// The whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetworkConfig {
    pub(crate) links: Vec<LinkSettings>,
    pub(crate) routers: Vec<RouterConfig>,
    pub(crate) prefixes: Vec<OnLink>,
    pub(crate) leases: Vec<LeaseInfo>,
    pub(crate) dns: DnsInfo,
    pub(crate) groups: Vec<GroupConfig>,
    pub(crate) reassembly: Vec<FragmentSettings>,
}

/// One interface, as `ip -j address` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkSettings {
    pub(crate) ifindex: u16,
    pub(crate) ifname: String,
    pub(crate) flags: Vec<String>,
    pub(crate) mtu: u32,
    pub(crate) operstate: String,
    pub(crate) link_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) addr_info: Vec<AddrInfo>,
}

/// One of our addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddrInfo {
    pub(crate) family: String,
    pub(crate) local: IpAddr,
    pub(crate) prefixlen: u8,
    pub(crate) scope: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dynamic: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) tentative: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) deprecated: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) dadfailed: bool,
    /// Its source: manual, interface, autoconf, dhcp.
    pub(crate) origin: String,
    pub(crate) valid_life_time: u32,
    pub(crate) preferred_life_time: u32,
}

/// A router that advertises itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RouterConfig {
    pub(crate) gateway: IpAddr,
    pub(crate) dev: String,
    pub(crate) pref: String,
    /// As a default router; 0 where it is none.
    pub(crate) life_time: u32,
    pub(crate) reachable: bool,
    /// It says that addresses are to be had by DHCPv6.
    #[serde(default)]
    pub(crate) managed: bool,
}

/// A prefix that routers advertise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OnLink {
    pub(crate) prefix: String,
    pub(crate) dev: String,
    pub(crate) life_time: u32,
}

/// A DHCP client and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseInfo {
    /// Of DHCPv4 `inet`, of DHCPv6 `inet6`.
    #[serde(default = "of_v4")]
    pub(crate) family: String,
    pub(crate) dev: String,
    pub(crate) state: String,
    /// Messages that were not accepted, and why the last was not.
    pub(crate) refused: u64,
    pub(crate) last_refusal: Option<String>,
    pub(crate) lease: Option<LeasedConfig>,
}

/// A lease in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeasedConfig {
    pub(crate) local: IpAddr,
    pub(crate) prefixlen: u8,
    /// Its address; its DUID in hexadecimal where the lease is of DHCPv6.
    pub(crate) server: String,
    /// `PREFIX via GATEWAY`.
    pub(crate) routes: Vec<String>,
    pub(crate) gateways: Vec<IpAddr>,
    pub(crate) dns: Vec<IpAddr>,
    pub(crate) search: Vec<String>,
    pub(crate) mtu: Option<u16>,
    pub(crate) renew_in: u32,
    pub(crate) rebind_in: u32,
    pub(crate) valid_life_time: u32,
    /// Invalid values in the server's messages.
    pub(crate) left_out: u32,
    /// What the first of them were, and why they are left out.
    #[serde(default)]
    pub(crate) left_out_why: Vec<String>,
}

/// Name servers and domains, of all links and families.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DnsInfo {
    /// Link-local ones with their interface behind a percent sign.
    pub(crate) servers: Vec<String>,
    pub(crate) search: Vec<String>,
}

/// A multicast group with a member on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupConfig {
    pub(crate) dev: String,
    pub(crate) address: IpAddr,
}

/// What waits to become whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FragmentSettings {
    pub(crate) family: String,
    pub(crate) datagrams: usize,
    pub(crate) fragments: u64,
    pub(crate) bytes: u64,
}

/// Carries out a request on the stack. The answer is one JSON document, the refusal one sentence
/// with its remedy.
pub(crate) fn carry_out(
    request: ControlRequest,
    stack: &mut Stack,
    now: Instant,
) -> Result<serde_json::Value, String> {
    // For delays that need not be unpredictable; what needs a secret has one already.
    let mut random = Randomness::from_number(now.as_nanos());
    let done = serde_json::json!({ "done": true });
    match request {
        // A reload is not a worker's to carry out.
        ControlRequest::Stat
        | ControlRequest::Reload
        | ControlRequest::Sockets
        | ControlRequest::Network => {
            serde_json::to_value(NetworkConfig::of(stack, now)).map_err(|error| error.to_string())
        }
        ControlRequest::AddAddress { dev, address, valid, preferred } => {
            let iface = interface_named(stack, &dev)?;
            let end = |seconds: Option<u32>| {
                seconds.map(|seconds| now + Duration::from_secs(u64::from(seconds)))
            };
            let new = AddAddress {
                valid_until: end(valid),
                preferred_until: end(preferred),
                ..AddAddress::manual(address)
            };
            let added = stack.add_address(iface, new, now, &mut random);
            added.map(|()| done).map_err(|error| in_words(error, stack, &dev))
        }
        ControlRequest::DelAddress { dev, addr, prefix_len } => {
            let iface = interface_named(stack, &dev)?;
            let found = stack.interfaces().get(usize::from(iface.0)).and_then(|i| i.address(addr));
            if let (Some(found), Some(len)) = (
                found,
                prefix_len.filter(|len| found.is_some_and(|found| found.prefix_len != *len)),
            ) {
                return Err(format!(
                    "{dev} has {addr}/{}, not {addr}/{len}; name it as it is",
                    found.prefix_len
                ));
            }
            let removed = stack.remove_address(iface, addr, now, &mut random);
            removed.map(|()| done).map_err(|error| in_words(error, stack, &dev))
        }
        ControlRequest::Neighbor(words) => neighbors::carry_out(words, stack, now),
        ControlRequest::SetLink { dev, up } => {
            let iface = interface_named(stack, &dev)?;
            stack.set_up(iface, up, now, &mut random);
            Ok(done)
        }
    }
}

fn in_words(error: AddressError, stack: &Stack, dev: &str) -> String {
    let show = "`floodwall address show` names what there is";
    match error {
        AddressError::Exists { addr, iface } => {
            let other = stack.interfaces().get(usize::from(iface.0));
            let other = other.map_or("another interface", |i| i.name.as_str());
            format!("{addr} is on {other} already; delete it there first")
        }
        AddressError::Unknown(addr) => format!("{dev} does not have {addr}; {show}"),
        AddressError::Full => format!("{dev}: {error}; delete one first"),
        error => format!("{dev}: {error}; {show}"),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Seconds that are left.
fn left(until: Option<Instant>, now: Instant) -> u32 {
    match until {
        Some(until) if until != Instant::FAR => {
            u32::try_from((until - now).as_secs()).unwrap_or(FOR_EVER)
        }
        _ => FOR_EVER,
    }
}

impl NetworkConfig {
    /// Looks around. Visits every address, router and group.
    pub(crate) fn of(stack: &Stack, now: Instant) -> Self {
        let name = |iface: IfIndex| {
            let interface = stack.interfaces().get(usize::from(iface.0));
            interface.map_or_else(|| format!("if{}", iface.0), |i| i.name.clone())
        };
        let mut network = Self {
            links: stack.interfaces().iter().map(|i| link(i, now)).collect(),
            ..Self::default()
        };
        for (iface, engine) in stack.routers() {
            network.routers.extend(engine.routers().map(|router| RouterConfig {
                gateway: router.addr.into(),
                dev: name(iface),
                pref: format!("{:?}", router.preference).to_lowercase(),
                life_time: left(Some(router.default_until), now),
                reachable: router.reachable,
                managed: router.managed,
            }));
            network.prefixes.extend(engine.prefixes().map(|prefix| OnLink {
                prefix: prefix.prefix.to_string(),
                dev: name(iface),
                life_time: left(Some(prefix.on_link_until), now),
            }));
        }
        for interface in stack.interfaces() {
            network.leases.extend(lease(stack, interface, now));
            network.leases.extend(lease_v6(stack, interface, now));
            let dev = &interface.name;
            let group = |address| GroupConfig { dev: dev.clone(), address };
            network.groups.extend(interface.groups().map(group));
        }
        network.dns = dns(stack, &network.leases, &name, now);
        let (v4, v6) = (stack.reassembly_v4(), stack.reassembly_v6());
        let fragments = |family: &str, datagrams, fragments, bytes| FragmentSettings {
            family: family.to_owned(),
            datagrams,
            fragments,
            bytes,
        };
        network.reassembly = vec![
            fragments("inet", v4.datagrams(), v4.held(), v4.bytes()),
            fragments("inet6", v6.datagrams(), v6.held(), v6.bytes()),
        ];
        network
    }
}

fn link(interface: &Interface, now: Instant) -> LinkSettings {
    let (link_type, address) = match interface.medium {
        LinkMedium::Ethernet(mac) => ("ether", Some(mac.to_string())),
        LinkMedium::Loopback => ("loopback", None),
        LinkMedium::Ip => ("none", None),
    };
    let flags = [
        ("LOOPBACK", interface.medium == LinkMedium::Loopback),
        ("NO-CARRIER", interface.admin_up && !interface.carrier),
        ("BROADCAST", link_type == "ether"),
        ("MULTICAST", link_type == "ether"),
        ("POINTOPOINT", link_type == "none"),
        ("UP", interface.admin_up),
        ("LOWER_UP", interface.carrier),
    ];
    LinkSettings {
        ifindex: interface.index.0,
        ifname: interface.name.clone(),
        flags: flags.iter().filter(|(_, is)| *is).map(|(name, _)| (*name).to_owned()).collect(),
        mtu: interface.mtu,
        operstate: if interface.up { "UP" } else { "DOWN" }.to_owned(),
        link_type: link_type.to_owned(),
        address,
        addr_info: interface.addresses().map(|a| addr_info(&a, now)).collect(),
    }
}

fn addr_info(address: &InterfaceAddress, now: Instant) -> AddrInfo {
    let scope = match address.addr {
        addr if addr.is_loopback() => "host",
        IpAddr::V6(addr) if addr.is_unicast_link_local() => "link",
        IpAddr::V4(addr) if addr.is_link_local() => "link",
        _ => "global",
    };
    AddrInfo {
        family: family(Family::of(address.addr)).to_owned(),
        local: address.addr,
        prefixlen: address.prefix_len,
        scope: scope.to_owned(),
        dynamic: address.valid_until.is_some() || address.origin.is_of_the_link(),
        tentative: address.state == AddressState::Tentative,
        deprecated: address.state == AddressState::Deprecated,
        dadfailed: address.state == AddressState::Duplicate,
        origin: address.origin.name().to_owned(),
        valid_life_time: left(address.valid_until, now),
        preferred_life_time: left(address.preferred_until, now),
    }
}

const fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "inet",
        Family::V6 => "inet6",
    }
}

fn lease(stack: &Stack, interface: &Interface, now: Instant) -> Option<LeaseInfo> {
    let client = stack.dhcp(interface.index)?;
    let (refused, last) = client.refused();
    let lease = client.lease().map(|lease| LeasedConfig {
        local: lease.addr.into(),
        prefixlen: lease.prefix_len,
        server: lease.server.to_string(),
        routes: lease
            .routes
            .iter()
            .map(|route| match route.gateway {
                Some(gateway) => format!("{} via {gateway}", route.prefix),
                None => route.prefix.to_string(),
            })
            .collect(),
        gateways: lease
            .routes
            .iter()
            .filter(|route| route.prefix.len() == 0)
            .filter_map(|route| route.gateway.map(IpAddr::V4))
            .collect(),
        dns: lease.dns.iter().map(IpAddr::V4).collect(),
        search: lease.search.iter().map(str::to_owned).collect(),
        mtu: lease.mtu,
        renew_in: left(lease.expires.map(|_| lease.renew_at), now),
        rebind_in: left(lease.expires.map(|_| lease.rebind_at), now),
        valid_life_time: left(lease.expires, now),
        left_out: lease.left_out.count(),
        left_out_why: lease.left_out.iter().map(|what| what.to_string()).collect(),
    });
    Some(LeaseInfo {
        family: of_v4(),
        dev: interface.name.clone(),
        state: client.state().name().to_owned(),
        refused,
        last_refusal: last.map(|refused| refused.to_string()),
        lease,
    })
}

fn of_v4() -> String {
    family(Family::V4).to_owned()
}

/// The DHCPv6 client of an interface, where a router has started it.
fn lease_v6(stack: &Stack, interface: &Interface, now: Instant) -> Option<LeaseInfo> {
    let client = stack.dhcpv6(interface.index)?;
    let (_, why) = client.refused();
    if client.state() == Dhcpv6State::Stopped && why.is_none() {
        return None;
    }
    let (refused, last) = client.refused();
    let lease = client.lease().map(|lease| LeasedConfig {
        local: lease.addr.into(),
        prefixlen: 128,
        server: lease.server.to_string(),
        routes: Vec::new(),
        gateways: Vec::new(),
        dns: lease.settings.dns.iter().map(IpAddr::V6).collect(),
        search: lease.settings.search.iter().map(str::to_owned).collect(),
        mtu: None,
        renew_in: left(lease.renew_at, now),
        rebind_in: left(lease.rebind_at, now),
        valid_life_time: left(lease.valid_until, now),
        left_out: lease.settings.left_out,
        left_out_why: Vec::new(),
    });
    Some(LeaseInfo {
        family: family(Family::V6).to_owned(),
        dev: interface.name.clone(),
        state: client.state().name().to_owned(),
        refused,
        last_refusal: last.map(|refused| refused.to_string()),
        lease,
    })
}

/// Name resolution as configured by routers and servers, each entry once, the routers' first.
fn dns(
    stack: &Stack,
    leases: &[LeaseInfo],
    name: &impl Fn(IfIndex) -> String,
    now: Instant,
) -> DnsInfo {
    let (mut all, advertised) = (DnsInfo::default(), stack.dns(now));
    let server = |(addr, iface): &(IpAddr, IfIndex)| match addr {
        IpAddr::V6(a) if a.is_unicast_link_local() => format!("{a}%{}", name(*iface)),
        addr => addr.to_string(),
    };
    let leased = || leases.iter().filter_map(|info| info.lease.as_ref());
    let servers = advertised.servers.iter().map(server);
    for server in servers.chain(leased().flat_map(|l| l.dns.iter().map(IpAddr::to_string))) {
        if !all.servers.contains(&server) {
            all.servers.push(server);
        }
    }
    let search = advertised.search.iter().map(|name| name.as_str().to_owned());
    // Settings may come without a lease.
    let settled = stack.dhcpv6_settings().flat_map(|(_, settings)| settings.search.iter());
    let leased = leased().flat_map(|l| l.search.iter().cloned());
    for domain in search.chain(settled.map(str::to_owned)).chain(leased) {
        if !all.search.contains(&domain) {
            all.search.push(domain);
        }
    }
    all
}

impl DnsInfo {
    /// In resolv.conf's form (resolv.conf(5)).
    pub(crate) fn resolv_conf(&self) -> String {
        let mut text = "# Written by floodwall: learnt from routers and DHCP servers.\n".to_owned();
        for server in &self.servers {
            text.push_str(&format!("nameserver {server}\n"));
        }
        if !self.search.is_empty() {
            text.push_str(&format!("search {}\n", self.search.join(" ")));
        }
        text
    }
}

impl AddrInfo {
    /// Whether it was learnt from the link.
    pub(crate) fn is_given(&self) -> bool {
        [AddressOrigin::Autoconf, AddressOrigin::Dhcp].iter().any(|o| o.name() == self.origin)
    }
}
