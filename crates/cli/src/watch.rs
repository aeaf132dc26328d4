//! Background tasks of `run` beside the packets: watches the state of links, and reports what was
//! learnt from the network.
//!
//! A thread of its own that wakes [`LOOK_INTERVAL`] so often. It disturbs the worker only where
//! something is another: a link's state, or the counter of changes in the published snapshot.
//!
//! # Under flood
//! A router or server that changes its values all the time makes this thread look four times a
//! second, and write what is there then: bounded lists, one line for each thing that came or went.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodwall_base::{Counter, IfIndex, MacAddr, Randomness};
use floodwall_device::LinkState;
use floodwall_dispatch::{
    Clock, Control, ControlQueue, Shown, Stop, WorkerCommand, WorkerGroupReader,
};
use floodwall_stack::Host;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use crate::cookie_keys::KeyWatch;
use crate::floods::FloodLog;
use crate::hosted;
use crate::network::{DnsInfo, FOR_EVER, NetworkConfig, RouterConfig};

/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How often floods are looked for.
const FLOODS_EVERY: Duration = Duration::from_secs(1);
/// How long the worker may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// How long leases may take to be given back.
const RELEASE_PATIENCE: Duration = Duration::from_millis(10);

/// The message for a link without carrier.
const LINK_DOWN: &str = "the link is down";

/// A link that is looked at.
pub(crate) struct WatchedCounters {
    iface: IfIndex,
    state: LinkState,
    carries: bool,
    /// The MTU that the stack knows, and the most that is configured.
    mtu: (u32, u32),
    /// Its name and link address, as an administrator may have changed them.
    name: String,
    mac: Option<MacAddr>,
}

/// The state of the watch thread: links, DNS file, cookie keys, control handles.
pub(crate) struct StatWatch {
    pub(crate) control: Control<Shown<Host>>,
    pub(crate) reader: WorkerGroupReader,
    pub(crate) links: Vec<WatchedCounters>,
    pub(crate) dns_file: Option<PathBuf>,
    pub(crate) keys: KeyWatch,
    pub(crate) floods: FloodLog,
}

/// A device to be watched.
pub(crate) struct WatchedLink {
    pub(crate) iface: IfIndex,
    pub(crate) name: String,
    /// The MTU with which the stack began.
    pub(crate) mtu: u32,
    /// The configured MTU: the interface's own may be lower, and is not followed beyond.
    pub(crate) mtu_max: Option<u32>,
}

/// The links of these devices, as far as the system reports their state.
pub(crate) fn links(links: Vec<WatchedLink>) -> Vec<WatchedCounters> {
    let watched = |WatchedLink { iface, name, mtu, mtu_max }: WatchedLink| {
        let (mtu, state) = ((mtu, mtu_max.unwrap_or(u32::MAX)), LinkState::new(&name).ok()?);
        let mac = state.mac();
        Some(WatchedCounters { iface, state, carries: true, mtu, name, mac })
    };
    links.into_iter().filter_map(watched).collect()
}

impl WatchedCounters {
    /// Says where its name or link address is another. Both are followed by nothing but this line:
    /// devices hold an interface by its number, and our station has a link address of its own, or
    /// keeps the one that it began with.
    fn tell_changes(&mut self) {
        // One that is gone is its device's to tell.
        let Some(name) = self.state.name() else { return };
        if name != self.name {
            let before = std::mem::replace(&mut self.name, name);
            info!(event = "renamed", "{before} is called {} now, and used as before", self.name);
        }
        let mac = self.state.mac();
        if let (Some(now), true) = (mac, mac != self.mac) {
            self.mac = mac;
            info!(
                event = "link_address",
                "{} has the link address {now} now; our station keeps its own", self.name
            );
        }
    }
}

impl StatWatch {
    /// Looks until `stop` is triggered.
    pub(crate) fn run(mut self, stop: &Stop) {
        let (mut seen, mut known, mut dns) = (None, Vec::new(), None);
        let clock = Clock::new();
        let mut next = clock.now();
        while !stop.is_triggered() {
            self.look_at_links();
            self.keys.look();
            let published = self.reader.read();
            if clock.now() >= next {
                next = clock.now() + FLOODS_EVERY;
                self.floods.look(clock.now(), &published);
            }
            let changes = hosted::read(&hosted::sum(&published));
            let changes = changes.counters.of(Counter::FloodwallChanges);
            if seen != Some(changes)
                && let Ok(network) = self.control.ask(ANSWER_PATIENCE, |desk| {
                    NetworkConfig::of(desk.engine.engine.stack(), desk.now)
                })
            {
                seen = Some(changes);
                known = tell(known, &network);
                self.write_dns(&mut dns, network.dns);
            }
            wait(stop);
        }
        if let (Some(file), Some(_)) = (&self.dns_file, dns) {
            // An error means that it has been removed already.
            let _ = fs::remove_file(file);
        }
    }

    fn look_at_links(&mut self) {
        for link in &mut self.links {
            link.tell_changes();
            let (iface, carries) = (link.iface, link.state.carries());
            // An interface that is gone keeps its last MTU.
            let mtu = link.state.mtu().map_or(link.mtu.0, |mtu| mtu.min(link.mtu.1));
            if mtu != link.mtu.0
                && self
                    .control
                    .post(WorkerCommand::new(move |desk: &mut ControlQueue<'_, Shown<Host>>| {
                        desk.engine.engine.stack_mut().set_link_mtu(iface, mtu);
                    }))
                    .is_ok()
            {
                info!(event = "mtu", "{}: packets of up to {mtu} bytes from now on", link.name);
                link.mtu.0 = mtu;
            }
            if carries == link.carries {
                continue;
            }
            let told = self.control.post(WorkerCommand::new(
                move |desk: &mut ControlQueue<'_, Shown<Host>>| {
                    let mut random = Randomness::from_number(desk.now.as_nanos());
                    desk.engine.engine.stack_mut().set_carrier(
                        iface,
                        carries,
                        desk.now,
                        &mut random,
                    );
                },
            ));
            // Else the next look tries again.
            if told.is_ok() {
                link.carries = carries;
            }
        }
    }

    fn write_dns(&self, before: &mut Option<DnsInfo>, now: DnsInfo) {
        let Some(file) = &self.dns_file else { return };
        if before.as_ref() == Some(&now) {
            return;
        }
        if let Err(error) = replace(file, &now.resolv_conf()) {
            warn!("cannot write {}: {error}", file.display());
        }
        *before = Some(now);
    }
}

/// Replaces a file atomically, so that a reader sees the old content or the new one.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    fs::write(&new, text)?;
    fs::rename(new, file)
}

fn wait(stop: &Stop) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_INTERVAL.subsec_nanos()) };
    let mut waited = [PollFd::new(stop, PollFlags::IN)];
    // Woken early is as good.
    let _ = poll(&mut waited, Some(&timeout));
}

/// Reports what came and went since `known`; returns what is known now.
fn tell(known: Vec<String>, network: &NetworkConfig) -> Vec<String> {
    let now = facts(network);
    for came in now.iter().filter(|fact| !known.contains(fact)) {
        match came.ends_with(LINK_DOWN) {
            true => warn!(event = "link_down", "{came}"),
            false => info!(event = "learnt", "{came}"),
        }
    }
    for went in known.iter().filter(|fact| !now.contains(fact)) {
        match went.strip_suffix(LINK_DOWN) {
            Some(link) => info!(event = "link_up", "{link}the link is up again"),
            None => info!(event = "lost", "no more: {went}"),
        }
    }
    now
}

/// The facts that are reported to an operator, one sentence each, without running times.
fn facts(network: &NetworkConfig) -> Vec<String> {
    let mut facts = Vec::new();
    for link in &network.links {
        let name = &link.ifname;
        if link.operstate == "DOWN" {
            facts.push(format!("{name}: {LINK_DOWN}"));
        }
        for addr in &link.addr_info {
            let (local, len) = (addr.local, addr.prefixlen);
            if addr.dadfailed {
                facts.push(format!("{name}: another station has {local}, it is not used"));
            } else if addr.is_given() && !addr.tentative {
                let life = if addr.valid_life_time == FOR_EVER { ", for ever" } else { "" };
                facts.push(format!("{name}: address {local}/{len} by {}{life}", addr.origin));
            }
        }
    }
    for info in &network.leases {
        let Some(lease) = &info.lease else { continue };
        let (name, server) = (&info.dev, &lease.server);
        facts.push(format!("{name}: lease of {} from {server}", lease.local));
        let left_out = lease.left_out_why.iter();
        facts.extend(left_out.map(|what| format!("{name}: left out of the lease: {what}")));
        let gateways = lease.gateways.iter();
        facts.extend(gateways.map(|g| format!("{name}: gateway {g} from DHCP server {server}")));
    }
    for router in network.routers.iter().filter(|router| router.life_time > 0) {
        facts.push(format!("{}: gateway {} advertises itself", router.dev, router.gateway));
    }
    facts.extend(network.routers.iter().filter_map(|router| needs_dhcpv6(network, router)));
    facts.extend(network.dns.servers.iter().map(|server| format!("DNS server {server}")));
    facts.extend(network.dns.search.iter().map(|domain| format!("search domain {domain}")));
    facts
}

/// What lacks where a router says that addresses are to be had by DHCPv6 alone (the M flag, and no
/// prefix to make an address of), and the client for it is off.
fn needs_dhcpv6(network: &NetworkConfig, router: &RouterConfig) -> Option<String> {
    let dev = &router.dev;
    let link = network.links.iter().find(|link| link.ifname == *dev)?;
    let is_global = |local: IpAddr| match local {
        IpAddr::V6(addr) => !addr.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let has_address = link.addr_info.iter().any(|addr| is_global(addr.local));
    let asks = network.leases.iter().any(|info| info.dev == *dev && info.family == "inet6");
    (router.managed && router.life_time > 0 && !has_address && !asks).then(|| {
        format!(
            "{dev}: the router {} gives addresses by DHCPv6 only (M flag, no usable prefix), which \
             is off; turn it on (--dhcpv6), or give the address yourself: --address ADDRESS/128",
            router.gateway
        )
    })
}

/// Gives leases back before the end, and waits a moment for that to leave.
#[expect(clippy::disallowed_methods, reason = "a program that ends has nothing else to do")]
pub(crate) fn say_farewell(control: &Control<Shown<Host>>) {
    let has_lease = control.ask(ANSWER_PATIENCE, |desk| {
        let (now, stack) = (desk.now, desk.engine.engine.stack_mut());
        let bound = stack.interfaces().iter().any(|i| {
            stack.dhcp(i.index).is_some_and(|client| client.lease().is_some())
                || stack.dhcpv6(i.index).is_some_and(|client| client.lease().is_some())
        });
        stack.release_leases(now);
        stack.cease_advertising(now);
        bound
    });
    if !has_lease.unwrap_or(false) {
        return;
    }
    // The server may have to be found first.
    for _ in 0..20 {
        std::thread::sleep(RELEASE_PATIENCE);
        let left = control.ask(ANSWER_PATIENCE, |desk| desk.engine.engine.stack().stats().pending);
        if left.unwrap_or(0) == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network(managed: bool, local: &str) -> NetworkConfig {
        let addr = json!({"family": "inet6", "local": local, "prefixlen": 64, "scope": "global",
            "origin": "autoconf", "valid_life_time": 60, "preferred_life_time": 60});
        let lease = json!({"local": "10.0.0.9", "prefixlen": 24, "server": "10.0.0.1",
            "routes": [], "gateways": [], "dns": [], "search": [], "mtu": null, "renew_in": 1,
            "rebind_in": 1, "valid_life_time": 1, "left_out": 1,
            "left_out_why": ["the router 10.9.9.9: it is on no prefix of the lease"]});
        let text = json!({
            "links": [{"ifindex": 1, "ifname": "eth0", "flags": [], "mtu": 1500,
                "operstate": "UP", "link_type": "ether", "addr_info": [addr]}],
            "routers": [{"gateway": "fe80::1", "dev": "eth0", "pref": "medium",
                "life_time": 1800, "reachable": true, "managed": managed}],
            "prefixes": [],
            "leases": [{"dev": "eth0", "state": "BOUND", "refused": 0, "last_refusal": null,
                "lease": lease}],
            "dns": {"servers": [], "search": []}, "groups": [], "reassembly": [],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_router_that_gives_addresses_by_dhcpv6_only_is_told_with_the_remedy() {
        let tells = |managed, local| {
            facts(&network(managed, local)).iter().any(|fact| fact.contains("DHCPv6 only"))
        };
        assert!(tells(true, "fe80::9"));
        assert!(!tells(true, "2001:db8::9") && !tells(false, "fe80::9"));
        let all = facts(&network(true, "fe80::9")).join("\n");
        assert!(all.contains("--address ADDRESS/128"), "{all}");
    }

    #[test]
    fn what_is_left_out_of_a_lease_is_told_with_the_reason() {
        let all = facts(&network(false, "fe80::9"));
        let said =
            "eth0: left out of the lease: the router 10.9.9.9: it is on no prefix of the lease";
        assert!(all.iter().any(|fact| fact == said), "{all:?}");
    }
}
