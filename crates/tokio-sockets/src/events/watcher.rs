//! The thread behind [`Network::events`](crate::Network::events): looks at the host, and tells what
//! has changed.
//!
//! Started by `events.rs`. Two requests to the workers, each a copy of a bounded state: the control
//! shard's view four times a second, every worker's counters and devices once a second.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use floodwall_base::{Counter, Counters, DropCounts, IfIndex, Instant, IpCidr};
use floodwall_dispatch::{
    Control, FloodCounts, FloodWatch, PortReport, Shown, Stop, WorkerCounters,
};
use floodwall_stack::Stack;

use super::event::{HostLease, NetworkEvent};
use super::queue::{EventQueue, Subscribers};
#[cfg(feature = "tracing")]
use super::trace::EventLog;
use crate::error::NetworkError;
use crate::host_address::addresses_of;

/// How often the host is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Every how many looks counters are read.
const COUNTERS_EVERY: u32 = 4;
/// How long a worker may take for its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// What of a host is compared between two looks.
#[derive(Clone, Default, PartialEq, Debug)]
struct HostView {
    changes: u64,
    /// Interface, address, whether it was learnt.
    addresses: Vec<(String, IpCidr, bool)>,
    /// Name, whether it is up, MTU.
    links: Vec<(String, bool, u32)>,
    leases: Vec<HostLease>,
}

/// What is looked at, and the subscribers of its events. It does not keep the network alive.
pub(super) struct WatchedHost {
    pub(super) subscribers: Arc<Subscribers>,
    pub(super) controls: Vec<Control<Shown<Stack>>>,
    pub(super) reader: floodwall_dispatch::WorkerGroupReader,
    pub(super) stop: Stop,
}

/// The thread's state.
pub(super) struct Watcher {
    host: WatchedHost,
    seen: Option<HostView>,
    floods: FloodWatch,
    evicted: Option<u64>,
    #[cfg(feature = "tracing")]
    log: Option<EventLog>,
}

impl Watcher {
    pub(super) fn new(host: WatchedHost) -> Self {
        Self {
            host,
            seen: None,
            floods: FloodWatch::default(),
            evicted: None,
            #[cfg(feature = "tracing")]
            log: None,
        }
    }

    /// Writes the events to this log, too, and goes on without a subscriber.
    #[cfg(feature = "tracing")]
    pub(super) fn traced(self, log: EventLog) -> Self {
        Self { log: Some(log), ..self }
    }

    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(self) -> Result<(), NetworkError> {
        let system = |source| NetworkError::System { action: "start a thread", source };
        thread::Builder::new()
            .name("floodwall-events".to_owned())
            .spawn(move || self.run())
            .map_err(system)?;
        Ok(())
    }

    /// Whether it goes on without a subscriber.
    const fn stays(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.log.is_some();
        #[cfg(not(feature = "tracing"))]
        false
    }

    fn tell(&self, event: &NetworkEvent, live: &[Arc<EventQueue>]) {
        #[cfg(feature = "tracing")]
        if let Some(log) = &self.log {
            log.write(event);
        }
        live.iter().for_each(|queue| queue.push(event));
    }

    #[expect(clippy::disallowed_methods, reason = "a thread that has nothing else to do")]
    fn run(mut self) {
        let mut looks = 0;
        loop {
            let stays = self.stays();
            let live = self.host.subscribers.live(stays);
            if live.is_empty() && !stays {
                return;
            }
            if self.host.stop.is_triggered() {
                return live.iter().for_each(|queue| queue.end());
            }
            let mut events = self.look_at_host();
            if looks % COUNTERS_EVERY == 0 {
                events.extend(self.look_at_counters());
            }
            events.iter().for_each(|event| self.tell(event, &live));
            drop(live);
            looks += 1;
            thread::sleep(LOOK_INTERVAL);
        }
    }

    fn look_at_host(&mut self) -> Vec<NetworkEvent> {
        let Some(control) = self.host.controls.first() else { return Vec::new() };
        let view = control.ask(ANSWER_PATIENCE, |desk| {
            let stack = &desk.engine.engine;
            let usable = addresses_of(stack, desk.now).into_iter().filter(|a| a.usable);
            HostView {
                changes: stack.stats().counters.of(Counter::FloodwallChanges),
                addresses: usable.map(|a| (a.interface, a.address, a.learnt)).collect(),
                links: stack.interfaces().iter().map(|i| (i.name.clone(), i.up, i.mtu)).collect(),
                leases: stack
                    .interfaces()
                    .iter()
                    .flat_map(|i| leases_of(stack, i.index, &i.name))
                    .collect(),
            }
        });
        let Ok(view) = view else { return Vec::new() };
        let before = self.seen.replace(view.clone());
        before.map_or_else(Vec::new, |before| differences(&before, &view))
    }

    fn look_at_counters(&mut self) -> Vec<NetworkEvent> {
        let (mut counters, mut drops) = (Counters::default(), DropCounts::default());
        let (mut ports, mut now) = (Vec::new(), Instant::from_nanos(0));
        for control in &self.host.controls {
            let asked = control
                .ask(ANSWER_PATIENCE, |desk| (desk.engine.engine.stats(), desk.ports(), desk.now));
            // What is missing would look like a counter that began anew.
            let Ok((stats, of_worker, at)) = asked else { return Vec::new() };
            counters.merge(&stats.counters);
            drops.merge(&stats.drops_in);
            ports.extend(of_worker);
            now = now.max(at);
        }
        let published = self.host.reader.read();
        let loops = WorkerCounters::of_all(published.iter().map(|one| &one.facts));
        let mut counts = FloodCounts::new(&counters, &drops, &loops);
        // What ends at an interface never reaches a worker's counters.
        counts.add_devices(|name| {
            let named = |port: &PortReport| port.stats.named().into_iter();
            ports.iter().flat_map(named).filter(|(count, _)| *count == name).map(|(_, n)| n).sum()
        });
        let mut events: Vec<_> =
            self.floods.look(now, &counts).into_iter().map(NetworkEvent::Flood).collect();
        let evicted = [
            Counter::FloodwallTcpEvictedUnowned,
            Counter::FloodwallTcpEvictedUnaccepted,
            Counter::FloodwallTcpEvictedIdle,
        ];
        let evicted: u64 = evicted.iter().map(|counter| counters.of(*counter)).sum();
        let before = self.evicted.replace(evicted).unwrap_or(evicted);
        if evicted > before {
            events.push(NetworkEvent::Evicted { connections: evicted - before });
        }
        events
    }
}

/// The leases of an interface, one of each family at most.
fn leases_of(stack: &Stack, iface: IfIndex, name: &str) -> Vec<HostLease> {
    let name = || name.to_owned();
    let v4 = stack.dhcp(iface).and_then(|client| {
        let lease = client.lease()?;
        Some(HostLease {
            interface: name(),
            address: IpCidr::new(lease.addr.into(), lease.prefix_len)?,
            server: lease.server.to_string(),
            left_out: lease.left_out.iter().map(|what| what.to_string()).collect(),
        })
    });
    let v6 = stack.dhcpv6(iface).and_then(|client| {
        let lease = client.lease()?;
        let left_out = match lease.settings.left_out {
            0 => Vec::new(),
            n => vec![format!("{n} options of the server")],
        };
        let address = IpCidr::new(lease.addr.into(), 128)?;
        Some(HostLease { interface: name(), address, server: lease.server.to_string(), left_out })
    });
    v4.into_iter().chain(v6).collect()
}

fn differences(before: &HostView, after: &HostView) -> Vec<NetworkEvent> {
    let mut events = Vec::new();
    for (interface, up, mtu) in &after.links {
        let was = before.links.iter().find(|(name, ..)| name == interface);
        let (was_up, old_mtu) = was.map_or((true, *mtu), |(_, up, mtu)| (*up, *mtu));
        let interface = interface.clone();
        if old_mtu != *mtu {
            events.push(NetworkEvent::Mtu { interface: interface.clone(), mtu: *mtu });
        }
        match (was_up, *up) {
            (true, false) => events.push(NetworkEvent::LinkDown { interface }),
            (false, true) => events.push(NetworkEvent::LinkUp { interface }),
            _ => {}
        }
    }
    for lease in after.leases.iter().filter(|lease| !before.leases.contains(lease)) {
        events.push(NetworkEvent::Leased(lease.clone()));
    }
    let same = |a: &HostLease, b: &HostLease| a.interface == b.interface && a.address == b.address;
    for lost in before.leases.iter().filter(|old| !after.leases.iter().any(|new| same(old, new))) {
        let (interface, address) = (lost.interface.clone(), lost.address);
        events.push(NetworkEvent::LeaseLost { interface, address });
    }
    for (interface, address, _) in before.addresses.iter().filter(|a| !after.addresses.contains(a))
    {
        let (interface, address) = (interface.clone(), *address);
        events.push(NetworkEvent::AddressLost { interface, address });
    }
    for (interface, address, learnt) in
        after.addresses.iter().filter(|a| !before.addresses.contains(a))
    {
        let (interface, address, learnt) = (interface.clone(), *address, *learnt);
        events.push(NetworkEvent::AddressAdded { interface, address, learnt });
    }
    if events.is_empty() && before.changes != after.changes {
        events.push(NetworkEvent::Configuration);
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_leases_are_compared_each_by_its_name() {
        let lease = |left_out: &[&str]| HostLease {
            interface: "eth0".to_owned(),
            address: "192.0.2.9/24".parse().unwrap(),
            server: "192.0.2.1".to_owned(),
            left_out: left_out.iter().map(|what| (*what).to_owned()).collect(),
        };
        let link = |up, mtu| vec![("eth0".to_owned(), up, mtu)];
        let before = HostView { links: link(true, 1500), ..HostView::default() };
        let leased = HostView { leases: vec![lease(&[])], ..before.clone() };
        let other = HostView { leases: vec![lease(&["a router"])], ..before.clone() };
        let down = HostView { links: link(false, 1400), ..before.clone() };
        let interface = || "eth0".to_owned();
        assert_eq!(differences(&before, &before), []);
        assert_eq!(differences(&before, &leased), [NetworkEvent::Leased(lease(&[]))]);
        assert_eq!(differences(&leased, &other), [NetworkEvent::Leased(lease(&["a router"]))]);
        let address = lease(&[]).address;
        let lost = NetworkEvent::LeaseLost { interface: interface(), address };
        assert_eq!(differences(&other, &before), [lost]);
        let mtu = |mtu| NetworkEvent::Mtu { interface: interface(), mtu };
        let (up, gone) = (interface(), interface());
        assert_eq!(
            differences(&before, &down),
            [mtu(1400), NetworkEvent::LinkDown { interface: gone }]
        );
        assert_eq!(
            differences(&down, &before),
            [mtu(1500), NetworkEvent::LinkUp { interface: up }]
        );
    }
}
