//! `InterfaceSettings`: one interface as an operator wants it.
//!
//! Filled by `file.rs` and `flags.rs`, checked by `validate.rs`, used by `run` and `reload`.

use std::net::IpAddr;

use floodwall_base::{IpCidr, MacAddr};
use floodwall_device::{DeviceKind, DeviceSpec, FirstLineMode, NapiPolicy};
use floodwall_stack::StaticRoute;

use super::given::{GivenSettings, SettingPlace};
use super::parse::{RouteWord, RouterWord};
use super::transit::InterfaceTransit;

/// One interface as wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceSettings {
    pub(crate) device: GivenSettings<DeviceSpec>,
    pub(crate) mac: Option<GivenSettings<MacAddr>>,
    pub(crate) mtu: Option<GivenSettings<u32>>,
    pub(crate) queues: Option<GivenSettings<usize>>,
    pub(crate) offload: GivenSettings<bool>,
    /// Where the kernel's half of the device runs.
    pub(crate) kernel_half: Option<GivenSettings<NapiPolicy>>,
    /// What the program at an XDP interface does.
    pub(crate) first_line: Option<GivenSettings<FirstLineMode>>,
    pub(crate) addresses: Vec<GivenSettings<IpCidr>>,
    pub(crate) gateways: Vec<GivenSettings<IpAddr>>,
    /// Routers that are on the link although no prefix covers them.
    pub(crate) onlink_routers: Vec<IpAddr>,
    /// All routers of the interface are.
    pub(crate) onlink: Option<GivenSettings<bool>>,
    pub(crate) dhcp: Option<GivenSettings<bool>>,
    pub(crate) dhcpv6: Option<GivenSettings<bool>>,
    pub(crate) accept_ra: Option<GivenSettings<bool>>,
    pub(crate) autoconf: Option<GivenSettings<bool>>,
    /// What it does with packets for others.
    pub(crate) transit: InterfaceTransit,
}

impl InterfaceSettings {
    pub(super) fn new(device: GivenSettings<DeviceSpec>) -> Self {
        Self {
            device,
            mac: None,
            mtu: None,
            queues: None,
            offload: GivenSettings { value: true, place: SettingPlace::Nowhere },
            kernel_half: None,
            first_line: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
            onlink_routers: Vec::new(),
            onlink: None,
            dhcp: None,
            dhcpv6: None,
            accept_ra: None,
            autoconf: None,
            transit: InterfaceTransit::default(),
        }
    }

    /// Adds routers, with those among them that are said to be on the link.
    pub(super) fn add_routers(&mut self, routers: Vec<GivenSettings<RouterWord>>) {
        let onlink = routers.iter().filter(|given| given.value.onlink);
        self.onlink_routers.extend(onlink.map(|given| given.value.addr));
        let addr = |given: GivenSettings<RouterWord>| GivenSettings {
            value: given.value.addr,
            place: given.place,
        };
        self.gateways.extend(routers.into_iter().map(addr));
    }

    /// Whether a router is said to be on the link, although no address's prefix covers it.
    pub(crate) fn is_onlink(&self, router: IpAddr) -> bool {
        let of_route = |given: &GivenSettings<RouteWord>| {
            given.value.onlink && given.value.via == Some(router)
        };
        self.onlink.as_ref().is_some_and(|given| given.value)
            || self.onlink_routers.contains(&router)
            || self.transit.routes.iter().any(of_route)
    }

    /// Whether an address's prefix covers a router, or a configured route on the link does.
    pub(crate) fn covers(&self, router: IpAddr) -> bool {
        let on_link = |given: &GivenSettings<RouteWord>| {
            given.value.via.is_none() && given.value.prefix.contains(router)
        };
        self.addresses.iter().any(|given| given.value.contains(router))
            || self.transit.routes.iter().any(on_link)
    }

    /// Whether the link's addresses are configured by DHCP and routers, because none was given.
    pub(super) fn asks_by_default(&self) -> bool {
        self.addresses.is_empty() && self.device.value.kind != DeviceKind::Tun
    }

    /// Whether DHCP servers are queried.
    pub(crate) fn wants_dhcp(&self) -> bool {
        self.dhcp.as_ref().map_or_else(|| self.asks_by_default(), |dhcp| dhcp.value)
    }

    /// Whether router advertisements are accepted.
    pub(crate) fn wants_routers(&self) -> bool {
        let on = |given: &Option<GivenSettings<bool>>| given.as_ref().is_some_and(|g| g.value);
        let default = || self.asks_by_default() || on(&self.autoconf) || on(&self.dhcpv6);
        self.accept_ra.as_ref().map_or_else(default, |accept| accept.value)
    }

    /// Whether addresses are made of the prefixes that routers advertise.
    pub(crate) fn wants_autoconf(&self) -> bool {
        let default = || self.asks_by_default() && self.wants_routers();
        self.autoconf.as_ref().map_or_else(default, |autoconf| autoconf.value)
    }

    /// Whether DHCPv6 servers are queried where a router says that there are any.
    pub(crate) fn wants_dhcpv6(&self) -> bool {
        self.dhcpv6.as_ref().map_or_else(|| self.wants_autoconf(), |dhcpv6| dhcpv6.value)
    }

    /// The static routes of the interface, which is the `iface`th.
    pub(super) fn static_routes(&self, iface: usize) -> Vec<StaticRoute> {
        let configured = self.transit.routes.iter();
        // Routers that are on the link without a prefix get a route of their own there.
        let routers = self.gateways.iter().map(|given| given.value);
        let routers = routers.chain(configured.clone().filter_map(|given| given.value.via));
        let mut seen = Vec::new();
        let near = routers.filter(|via| self.is_onlink(*via) && !self.covers(*via));
        let near = near.filter(|via| {
            !seen.contains(via) && {
                seen.push(*via);
                true
            }
        });
        let near = near.filter(|via| !is_link_local(*via)).filter_map(|via| {
            let prefix = IpCidr::new(via, if via.is_ipv4() { 32 } else { 128 })?;
            Some(StaticRoute { prefix, via: None, iface })
        });
        let of_words = |given: &GivenSettings<RouteWord>| {
            let RouteWord { prefix, via, .. } = given.value;
            StaticRoute { prefix, via, iface }
        };
        near.collect::<Vec<_>>().into_iter().chain(configured.map(of_words)).collect()
    }
}

fn is_link_local(router: IpAddr) -> bool {
    matches!(router, IpAddr::V6(addr) if addr.is_unicast_link_local())
}
