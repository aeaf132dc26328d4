//! The difference between what runs and what a file asks for, as steps.
//!
//! Called by `reload.rs`. Pure: nothing is looked at but the two settings. Invariant: carrying out
//! the steps on what runs makes it `running`, which differs from the file in exactly the keys of
//! `needs_restart`.

use std::fmt;
use std::net::IpAddr;

use floodwall_base::IpCidr;
use floodwall_stack::AccessRule;

use crate::settings::{GivenSettings, InterfaceSettings, RunSettings, ServiceWord};

/// One change, all of it or nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReloadStep {
    /// To the interface of this name.
    AddAddress(String, IpCidr),
    RemoveAddress(String, IpCidr),
    /// In the words of `route`.
    AddRoute(String),
    RemoveRoute(String),
    Dhcp(String, bool),
    Access {
        dev: String,
        new: Vec<AccessRule>,
        old: Vec<AccessRule>,
    },
    Services {
        stop: Vec<ServiceWord>,
        start: Vec<ServiceWord>,
    },
}

impl ReloadStep {
    /// What takes it back.
    pub(super) fn inverse(&self) -> Self {
        match self.clone() {
            Self::AddAddress(dev, address) => Self::RemoveAddress(dev, address),
            Self::RemoveAddress(dev, address) => Self::AddAddress(dev, address),
            Self::AddRoute(words) => Self::RemoveRoute(words),
            Self::RemoveRoute(words) => Self::AddRoute(words),
            Self::Dhcp(dev, on) => Self::Dhcp(dev, !on),
            Self::Access { dev, new, old } => Self::Access { dev, new: old, old: new },
            Self::Services { stop, start } => Self::Services { stop: start, start: stop },
        }
    }
}

impl fmt::Display for ReloadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |services: &[ServiceWord]| {
            services.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::AddAddress(dev, address) => write!(f, "{dev}: address {address} added"),
            Self::RemoveAddress(dev, address) => write!(f, "{dev}: address {address} removed"),
            Self::AddRoute(words) => write!(f, "route added: {words}"),
            Self::RemoveRoute(words) => write!(f, "route removed: {words}"),
            Self::Dhcp(dev, true) => write!(f, "{dev}: DHCP on"),
            Self::Dhcp(dev, false) => write!(f, "{dev}: DHCP off"),
            Self::Access { dev, new, .. } => {
                write!(f, "{dev}: access list of {} rules", new.len())
            }
            Self::Services { stop, start } if stop.is_empty() => {
                write!(f, "services opened: {}", all(start))
            }
            Self::Services { stop, start } if start.is_empty() => {
                write!(f, "services closed: {}", all(stop))
            }
            Self::Services { stop, start } => {
                write!(f, "services closed: {}; opened: {}", all(stop), all(start))
            }
        }
    }
}

/// What a reload does.
pub(super) struct ReloadPlan {
    pub(super) steps: Vec<ReloadStep>,
    /// Keys of the file that only a restart changes.
    pub(super) needs_restart: Vec<String>,
    /// What runs when all is done.
    pub(super) running: RunSettings,
}

/// What of `these` is not in `those`.
fn without<T: PartialEq + Clone>(these: &[T], those: &[T]) -> Vec<T> {
    these.iter().filter(|one| !those.contains(one)).cloned().collect()
}

fn values<T: Clone>(given: &[GivenSettings<T>]) -> Vec<T> {
    given.iter().map(|given| given.value.clone()).collect()
}

fn value<T: Clone>(given: &Option<GivenSettings<T>>) -> Option<T> {
    given.as_ref().map(|given| given.value.clone())
}

impl ReloadPlan {
    /// The way from what runs to what is wanted. New addresses and routes come first, old ones go
    /// last, so that no destination is without a route in between.
    pub(super) fn between(old: &RunSettings, new: &RunSettings) -> Self {
        let mut plan = Self { steps: Vec::new(), needs_restart: Vec::new(), running: old.clone() };
        plan.whole_host(old, new);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (at, was) in old.interfaces.iter().enumerate() {
            let name = &was.device.value.name;
            match new.interfaces.iter().find(|is| is.device.value == was.device.value) {
                Some(is) => {
                    plan.interface(at, was, is, (&mut first, &mut last));
                }
                None => plan.needs_restart.push(format!("interface {name} removed or changed")),
            }
        }
        for is in &new.interfaces {
            if !old.interfaces.iter().any(|was| was.device.value == is.device.value) {
                let added = format!("interface {} added or changed", is.device.value.name);
                plan.needs_restart.push(added);
            }
        }
        plan.steps.extend(first);
        plan.services(old, new);
        plan.steps.extend(last);
        plan
    }

    fn whole_host(&mut self, old: &RunSettings, new: &RunSettings) {
        let (was, is) = (&old.transit, &new.transit);
        let keys = [
            ("cpu", value(&old.cpu) != value(&new.cpu)),
            ("workers", value(&old.workers) != value(&new.workers)),
            ("cores", value(&old.cores) != value(&new.cores)),
            ("routes", value(&old.routes) != value(&new.routes)),
            ("panic", value(&old.on_panic) != value(&new.on_panic)),
            ("record", value(&old.record) != value(&new.record)),
            ("socket", value(&old.socket) != value(&new.socket)),
            ("dns_file", value(&old.dns_file) != value(&new.dns_file)),
            ("udp_fair_drop", value(&old.udp_fair_drop) != value(&new.udp_fair_drop)),
            ("cookie_secret", value(&old.cookie_secret) != value(&new.cookie_secret)),
            ("log_format", value(&old.log_format) != value(&new.log_format)),
            ("log_level", value(&old.log_level) != value(&new.log_level)),
            ("metrics", value(&old.metrics) != value(&new.metrics)),
            ("forwarding", value(&was.forwarding) != value(&is.forwarding)),
            ("martians", value(&was.martians) != value(&is.martians)),
        ];
        let changed = keys.iter().filter(|(_, changed)| *changed);
        self.needs_restart.extend(changed.map(|(key, _)| (*key).to_owned()));
    }

    fn interface(
        &mut self,
        at: usize,
        was: &InterfaceSettings,
        is: &InterfaceSettings,
        (first, last): (&mut Vec<ReloadStep>, &mut Vec<ReloadStep>),
    ) {
        let dev = is.device.value.name.clone();
        let (t, u) = (&was.transit, &is.transit);
        let keys = [
            ("mac", value(&was.mac) != value(&is.mac)),
            ("mtu", value(&was.mtu) != value(&is.mtu)),
            ("queues", value(&was.queues) != value(&is.queues)),
            ("offload", was.offload.value != is.offload.value),
            ("kernel_half", value(&was.kernel_half) != value(&is.kernel_half)),
            ("accept_ra", was.wants_routers() != is.wants_routers()),
            ("autoconf", was.wants_autoconf() != is.wants_autoconf()),
            ("dhcpv6", was.wants_dhcpv6() != is.wants_dhcpv6()),
            ("forwarding", value(&t.forwarding) != value(&u.forwarding)),
            ("rp_filter", value(&t.rp_filter) != value(&u.rp_filter)),
            ("send_redirects", value(&t.send_redirects) != value(&u.send_redirects)),
            ("advertise", value(&t.advertise) != value(&u.advertise)),
        ];
        let changed = keys.iter().filter(|(_, changed)| *changed);
        self.needs_restart.extend(changed.map(|(key, _)| format!("interface {dev}: {key}")));

        let (old, new) = (values(&was.addresses), values(&is.addresses));
        let gone = without(&old, &new);
        // An address with another prefix length goes before it comes.
        let clashes = |gone: &IpCidr| new.iter().any(|new| new.addr() == gone.addr());
        let remove = |address: &IpCidr| ReloadStep::RemoveAddress(dev.clone(), *address);
        first.extend(gone.iter().filter(|gone| clashes(gone)).map(remove));
        let come = without(&new, &old);
        first.extend(come.into_iter().map(|a| ReloadStep::AddAddress(dev.clone(), a)));
        if was.wants_dhcp() != is.wants_dhcp() {
            first.push(ReloadStep::Dhcp(dev.clone(), is.wants_dhcp()));
        }
        let (old, new) = (routes(was), routes(is));
        first.extend(without(&new, &old).into_iter().map(ReloadStep::AddRoute));
        last.extend(without(&old, &new).into_iter().map(ReloadStep::RemoveRoute));
        last.extend(gone.iter().filter(|gone| !clashes(gone)).map(remove));
        let (old, new) = (values(&t.access), values(&u.access));
        if old != new {
            first.push(ReloadStep::Access { dev, new, old });
        }
        if let Some(running) = self.running.interfaces.get_mut(at) {
            running.addresses.clone_from(&is.addresses);
            running.gateways.clone_from(&is.gateways);
            running.transit.routes.clone_from(&u.routes);
            running.transit.access.clone_from(&u.access);
            running.dhcp.clone_from(&is.dhcp);
            // The defaults of these follow from the addresses; what runs is what ran.
            let kept = |value| {
                let place = crate::settings::SettingPlace::Nowhere;
                Some(GivenSettings { value, place })
            };
            (running.accept_ra, running.autoconf) =
                (kept(was.wants_routers()), kept(was.wants_autoconf()));
            running.dhcpv6 = kept(was.wants_dhcpv6());
        }
    }

    fn services(&mut self, old: &RunSettings, new: &RunSettings) {
        let (was, is) = (values(&old.services), values(&new.services));
        let has_tcp = was.iter().any(|service| service.kind.is_tcp());
        let (mut start, stop) = (without(&is, &was), without(&was, &is));
        // Without a TCP service at the start there is no memory for connections.
        start.retain(|service| {
            let can = has_tcp || !service.kind.is_tcp();
            if !can {
                self.needs_restart.push(format!("service {service}: the first over TCP"));
            }
            can
        });
        let runs = |given: &&GivenSettings<ServiceWord>| {
            was.contains(&given.value) || start.contains(&given.value)
        };
        self.running.services = new.services.iter().filter(runs).cloned().collect();
        if !(stop.is_empty() && start.is_empty()) {
            self.steps.push(ReloadStep::Services { stop, start });
        }
    }
}

/// The static routes of an interface, in the words of `route append`.
fn routes(of: &InterfaceSettings) -> Vec<String> {
    let dev = &of.device.value.name;
    let default = |gateway: &GivenSettings<IpAddr>| {
        let via = gateway.value;
        let prefix = if via.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        format!("{prefix} via {via} dev {dev} proto static metric 0")
    };
    let plain = of.transit.routes.iter().map(|route| {
        let via = route.value.via.map(|via| format!(" via {via}")).unwrap_or_default();
        format!("{}{via} dev {dev} proto static metric 0", route.value.prefix)
    });
    of.gateways.iter().map(default).chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::RunArgs;

    fn settings(text: &str) -> RunSettings {
        let name =
            format!("floodwall-plan-{}-{:?}.toml", std::process::id(), std::thread::current().id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text).unwrap();
        let read = crate::settings::load(Some(&file), &RunArgs::default());
        std::fs::remove_file(&file).unwrap();
        read.unwrap()
    }

    const BASE: &str = "\
[[interface]]
device = \"tap:fw0\"
address = [\"10.0.0.2/24\", \"fd00::2/64\"]
gateway = [\"10.0.0.1\", \"fd00::1\"]
[[service]]
kind = \"udp-echo\"
port = 7001
[[service]]
kind = \"http\"
port = 80
";

    fn said(old: &str, new: &str) -> (Vec<String>, Vec<String>) {
        let plan = ReloadPlan::between(&settings(old), &settings(new));
        let again = ReloadPlan::between(&plan.running, &settings(new));
        assert!(again.steps.is_empty(), "done is done: {:?}", again.steps);
        assert_eq!(again.needs_restart, plan.needs_restart, "what waits is named again");
        for step in &plan.steps {
            assert_eq!(step.inverse().inverse(), *step);
        }
        (plan.steps.iter().map(ToString::to_string).collect(), plan.needs_restart)
    }

    #[test]
    fn the_same_file_changes_nothing() {
        assert_eq!(said(BASE, BASE), (vec![], vec![]));
    }

    #[test]
    fn addresses_and_routes_of_both_families_come_before_others_go() {
        let new =
            BASE.replace("10.0.0.2/24", "10.0.0.9/24").replace("fd00::2/64", "fd00::9/64").replace(
                "gateway = [\"10.0.0.1\", \"fd00::1\"]",
                "gateway = [\"10.0.0.3\"]\nroute = [\"fd16::/16 via fd00::7\"]",
            );
        let (steps, restart) = said(BASE, &new);
        let expected = [
            "fw0: address 10.0.0.9/24 added",
            "fw0: address fd00::9/64 added",
            "route added: 0.0.0.0/0 via 10.0.0.3 dev fw0 proto static metric 0",
            "route added: fd16::/16 via fd00::7 dev fw0 proto static metric 0",
            "route removed: 0.0.0.0/0 via 10.0.0.1 dev fw0 proto static metric 0",
            "route removed: ::/0 via fd00::1 dev fw0 proto static metric 0",
            "fw0: address 10.0.0.2/24 removed",
            "fw0: address fd00::2/64 removed",
        ];
        assert_eq!(steps, expected);
        assert!(restart.is_empty(), "{restart:?}");
    }

    #[test]
    fn an_address_with_another_prefix_length_goes_before_it_comes() {
        let (steps, _) = said(BASE, &BASE.replace("10.0.0.2/24", "10.0.0.2/16"));
        let expected = ["fw0: address 10.0.0.2/24 removed", "fw0: address 10.0.0.2/16 added"];
        assert_eq!(steps, expected);
    }

    #[test]
    fn services_and_access_lists_change_and_the_rest_is_named() {
        let new = BASE.replace("7001", "7002").replace(
            "[[interface]]",
            "udp_fair_drop = false\n[[interface]]\naccess = [\"deny udp dport 9\"]\nmtu = 1400",
        );
        let (steps, restart) = said(BASE, &new);
        let expected = [
            "fw0: access list of 1 rules",
            "services closed: udp-echo:7001; opened: udp-echo:7002",
        ];
        assert_eq!(steps, expected);
        assert_eq!(restart, ["udp_fair_drop", "interface fw0: mtu"]);
    }

    #[test]
    fn the_first_service_over_tcp_needs_a_restart() {
        let udp = BASE.split("[[service]]\nkind = \"http\"").next().unwrap();
        let (steps, restart) = said(udp, BASE);
        assert!(steps.is_empty(), "{steps:?}");
        assert_eq!(restart, ["service http:80: the first over TCP"]);
    }

    #[test]
    fn an_interface_more_or_less_needs_a_restart() {
        let (steps, restart) = said(BASE, &BASE.replace("tap:fw0", "tap:fw1"));
        assert!(steps.is_empty(), "{steps:?}");
        assert_eq!(restart, ["interface fw0 removed or changed", "interface fw1 added or changed"]);
    }
}
