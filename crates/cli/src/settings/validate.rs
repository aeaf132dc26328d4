//! Whether the settings are consistent with each other: what no single value can show.
//!
//! Called last by `settings::load`. The stack judges its configuration once more when it is made;
//! here the problems have places.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;

use floodwall_base::limits::{ADDRESSES_MAX, INTERFACES_MAX};
use floodwall_base::{Family, IpCidr, ipv4_is_configurable, ipv6_source_is_plausible};

use super::{
    DeviceKind, GivenSettings, InterfaceSettings, NapiPolicy, RunSettings, SettingPlace,
    SettingProblem,
};

/// Largest packet behind an Ethernet header of 14 bytes that a TAP takes.
const MTU_ETHERNET_MAX: u32 = 65_521;
/// The MTU that IPv6 requires of every link (RFC 8200 section 5).
const MTU_IPV6_MIN: u32 = 1280;

/// All problems at once.
pub(super) fn validate(settings: &RunSettings) -> Result<(), Vec<SettingProblem>> {
    let mut problems = SettingProblems(Vec::new());
    problems.interfaces(settings);
    problems.addresses_are_unique(settings);
    problems.services(settings);
    problems.workers(settings);
    if problems.0.is_empty() { Ok(()) } else { Err(problems.0) }
}

struct SettingProblems(Vec<SettingProblem>);

impl SettingProblems {
    fn add(&mut self, place: &SettingPlace, key: &str, what: impl Display, remedy: impl Display) {
        let (what, remedy) = (what.to_string(), remedy.to_string());
        self.0.push(SettingProblem { place: place.clone(), key: key.to_owned(), what, remedy });
    }

    fn interfaces(&mut self, settings: &RunSettings) {
        let interfaces = &settings.interfaces;
        if interfaces.is_empty() {
            let remedy = "name one with --device, as in --device tap:fw0, or in an [[interface]] \
                          of the file";
            self.add(&SettingPlace::Nowhere, "", "there is no device", remedy);
        }
        // One is the loopback.
        if let Some(first_too_many) = interfaces.get(INTERFACES_MAX - 1) {
            let what = format!("{} interfaces are too many", interfaces.len());
            let remedy = format!("{} can be had", INTERFACES_MAX - 1);
            self.add(&first_too_many.device.place, "interface", what, remedy);
        }
        let mut names = HashMap::new();
        for interface in interfaces {
            let device = &interface.device;
            if let Some(before) = names.insert(device.value.name.clone(), &device.value) {
                let what = match before == &device.value {
                    true => format!("{before} is named twice"),
                    false => format!("{} has the name of {before}", device.value),
                };
                let remedy = "keep one, or give it another name";
                self.add(&device.place, "interface.device", what, remedy);
            }
            self.interface(interface);
        }
    }

    fn interface(&mut self, interface: &InterfaceSettings) {
        let is_ethernet = interface.device.value.kind != DeviceKind::Tun;
        if let (false, Some(mac)) = (is_ethernet, &interface.mac) {
            let what = "a TUN carries no link addresses";
            self.add(&mac.place, "interface.mac", what, "leave it out, or use a TAP");
        }
        self.asking(interface, is_ethernet);
        if let (DeviceKind::Packet, Some(queues)) = (interface.device.value.kind, &interface.queues)
        {
            let what = "a packet socket has no queues to choose";
            self.add(&queues.place, "interface.queues", what, "leave it out");
        }
        if let (Some(_), Some(queues)) = (interface.device.value.queues, &interface.queues) {
            let what = "the device gives the number of queues, too";
            self.add(&queues.place, "interface.queues", what, "keep one of them");
        }
        if let (DeviceKind::Tun | DeviceKind::Tap, Some(half)) =
            (interface.device.value.kind, &interface.kernel_half)
            && matches!(half.value, NapiPolicy::BusyPoll | NapiPolicy::NapiThread)
        {
            let what = format!("a TUN or TAP has no kernel's half that {} could be", half.value);
            let remedy = "leave it out; only a packet:INTERFACE or xdp:INTERFACE has one";
            self.add(&half.place, "interface.kernel_half", what, remedy);
        }
        self.mtu(interface, is_ethernet);
        for family in [Family::V4, Family::V6] {
            let of_family = |a: &&GivenSettings<IpCidr>| Family::of(a.value.addr()) == family;
            if let Some(extra) = interface.addresses.iter().filter(of_family).nth(ADDRESSES_MAX) {
                let what = format!("more than {ADDRESSES_MAX} addresses of one family");
                let remedy = format!("keep {ADDRESSES_MAX}");
                self.add(&extra.place, "interface.address", what, remedy);
            }
        }
        for address in &interface.addresses {
            self.address(address);
        }
        for gateway in &interface.gateways {
            self.gateway(gateway, "interface.gateway", interface);
        }
        for route in &interface.transit.routes {
            if let Some(via) = route.value.via {
                let via = GivenSettings { value: via, place: route.place.clone() };
                self.gateway(&via, "interface.route", interface);
            }
        }
    }

    /// Whether DHCP and routers can be queried for addresses.
    fn asking(&mut self, interface: &InterfaceSettings, is_ethernet: bool) {
        let asked = [
            ("interface.dhcp", &interface.dhcp),
            ("interface.dhcpv6", &interface.dhcpv6),
            ("interface.accept_ra", &interface.accept_ra),
            ("interface.autoconf", &interface.autoconf),
        ];
        for (key, given) in asked {
            if let (false, Some(GivenSettings { value: true, place })) = (is_ethernet, given) {
                let what = "a TUN has no stations that could be asked";
                self.add(place, key, what, "leave it out and give addresses, or use a TAP");
            }
        }
        if let (Some(GivenSettings { value: true, place }), false) =
            (&interface.autoconf, interface.wants_routers())
        {
            let what = "routers that are not accepted advertise no prefixes";
            self.add(place, "interface.autoconf", what, "set accept_ra = true, too");
        }
        if let (Some(GivenSettings { value: true, place }), false) =
            (&interface.dhcpv6, interface.wants_routers())
        {
            let what = "routers that are not accepted cannot say that there is a DHCPv6 server";
            self.add(place, "interface.dhcpv6", what, "set accept_ra = true, too");
        }
    }

    fn mtu(&mut self, interface: &InterfaceSettings, is_ethernet: bool) {
        let Some(mtu) = &interface.mtu else { return };
        let ipv6 = interface.addresses.iter().find(|a| a.value.addr().is_ipv6());
        if let (Some(address), true) = (ipv6, mtu.value < MTU_IPV6_MIN) {
            let what = format!(
                "{} is too small for IPv6, which {} needs on this interface",
                mtu.value, address.value
            );
            let remedy = "use at least 1280 (RFC 8200 section 5), or drop the IPv6 addresses";
            self.add(&mtu.place, "interface.mtu", what, remedy);
        }
        if is_ethernet && mtu.value > MTU_ETHERNET_MAX {
            let what = format!("{} does not fit an Ethernet frame", mtu.value);
            let remedy = format!("use at most {MTU_ETHERNET_MAX}");
            self.add(&mtu.place, "interface.mtu", what, remedy);
        }
    }

    fn address(&mut self, address: &GivenSettings<IpCidr>) {
        let (addr, length) = (address.value.addr(), address.value.prefix_len());
        let what = match addr {
            IpAddr::V4(a) if !ipv4_is_configurable(a) => {
                format!("{a} cannot be a host's address")
            }
            IpAddr::V6(a) if !ipv6_source_is_plausible(a) => {
                format!("{a} cannot be a host's address")
            }
            IpAddr::V4(a) if length < 31 => {
                let hosts = u32::MAX >> length;
                match a.to_bits() & hosts {
                    0 => format!("{a} is the name of the network, not a host's address"),
                    bits if bits == hosts => format!("{a} is the network's broadcast address"),
                    _ => return,
                }
            }
            _ => return,
        };
        let remedy = "use one host's own address, as in 10.0.0.2/24 or fd00::2/64";
        self.add(&address.place, "interface.address", what, remedy);
    }

    fn gateway(
        &mut self,
        gateway: &GivenSettings<IpAddr>,
        key: &str,
        interface: &InterfaceSettings,
    ) {
        let addr = gateway.value;
        if interface.addresses.iter().any(|a| a.value.addr() == addr) {
            let remedy = "name the router's address";
            self.add(&gateway.place, key, format!("{addr} is our own address"), remedy);
            return;
        }
        let is_plausible = match addr {
            IpAddr::V4(a) => ipv4_is_configurable(a),
            IpAddr::V6(a) => ipv6_source_is_plausible(a),
        };
        if !is_plausible {
            let what = format!("{addr} cannot be a router's address");
            self.add(&gateway.place, key, what, "name the router's unicast address");
            return;
        }
        let mut of_family =
            interface.addresses.iter().filter(|a| a.value.addr().is_ipv4() == addr.is_ipv4());
        let link_local = matches!(addr, IpAddr::V6(a) if a.is_unicast_link_local());
        if link_local || interface.covers(addr) || interface.is_onlink(addr) {
            return;
        }
        let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
        let remedy = match of_family.next() {
            Some(address) => format!(
                "use a router inside {}, or add an address with a prefix that covers it; if it is \
                 on this link all the same, write `onlink` behind it, or onlink = true in the file",
                prefix_of(address.value)
            ),
            None => format!("add an {family} address with a prefix that covers it"),
        };
        let what = format!("{addr} is on no prefix of {}", interface.device.value);
        self.add(&gateway.place, key, what, remedy);
    }

    fn addresses_are_unique(&mut self, settings: &RunSettings) {
        let mut seen = HashMap::new();
        for interface in &settings.interfaces {
            for address in &interface.addresses {
                let device = &interface.device.value;
                if let Some(before) = seen.insert(address.value.addr(), device) {
                    let what = format!("{} stands on {before} already", address.value.addr());
                    let remedy = "keep one of the two";
                    self.add(&address.place, "interface.address", what, remedy);
                }
            }
        }
    }

    fn services(&mut self, settings: &RunSettings) {
        let mut seen = HashMap::new();
        for service in &settings.services {
            if let Some(before) = seen.insert(service.value.port, &service.value) {
                let what = format!("port {} is taken by {before}", service.value.port);
                self.add(&service.place, "service.port", what, "give it a port of its own");
            }
        }
    }
}

/// The checks of the number of workers.
impl SettingProblems {
    fn workers(&mut self, settings: &RunSettings) {
        let count = settings.worker_count();
        if let (Some(cores), Some(workers)) = (&settings.cores, &settings.workers)
            && cores.value.len() != workers.value
        {
            let what = format!("{} cores for {} workers", cores.value.len(), workers.value);
            self.add(&cores.place, "cores", what, "name one core for each, or leave workers out");
        }
        if let Some(cpu) = &settings.cpu
            && (settings.cores.is_some() || count > 1)
        {
            let what = "this is the core of an only worker";
            self.add(&cpu.place, "cpu", what, "leave it out, or name all cores with cores");
        }
    }
}

/// An address's prefix in words, host bits cleared.
fn prefix_of(address: IpCidr) -> String {
    use floodwall_base::Prefix;
    let length = address.prefix_len();
    match address.addr() {
        IpAddr::V4(a) => Prefix::new(a, length).map(|p| p.to_string()),
        IpAddr::V6(a) => Prefix::new(a, length).map(|p| p.to_string()),
    }
    .unwrap_or_else(|| address.to_string())
}
