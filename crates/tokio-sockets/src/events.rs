//! `NetworkEvents`: what happens to a host, as values: floods, addresses, links, evictions.
//!
//! A thread that looks at the host four times a second is started by the first
//! [`Network::events`] and ends with the network, or with the last subscriber. It asks the workers
//! for their counters once a second; nothing of it is on the packet path.
//!
//! # Under flood
//! Reachable by all that makes events. Bound: [`EVENTS_MAX`] wait for each subscriber. When full
//! the newest are lost, and counted: [`NetworkEvents::lost`].

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use floodwall_base::{Counter, Counters, DropCounts, Instant, IpCidr};
use floodwall_dispatch::{
    Control, FloodCounts, FloodEvent, FloodWatch, Shown, Stop, WorkerCounters,
};
use floodwall_stack::Stack;
use floodwall_sync::lock::{Mutex, PoisonError};
use tokio::sync::Notify;

use crate::error::NetworkError;
use crate::host::addresses_of;
use crate::network::{Network, NetworkInner};

/// Events that may wait for one subscriber.
pub const EVENTS_MAX: usize = 256;
/// How often the host is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Every how many looks counters are read.
const COUNTERS_EVERY: u32 = 4;
/// How long a worker may take for its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// Something that happened to a host.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum NetworkEvent {
    /// A flood began, or has ended.
    Flood(FloodEvent),
    /// The host has a new address that may be used.
    AddressAdded {
        /// The interface's name.
        interface: String,
        /// The address.
        address: IpCidr,
        /// Whether it was learnt from the link.
        learnt: bool,
    },
    /// An address is gone, or may not be used any more.
    AddressLost {
        /// The interface's name.
        interface: String,
        /// The address.
        address: IpCidr,
    },
    /// An interface is up.
    LinkUp {
        /// Its name.
        interface: String,
    },
    /// An interface is down.
    LinkDown {
        /// Its name.
        interface: String,
    },
    /// Routers, leases, routes or name servers have changed: read again what you need.
    Configuration,
    /// Connections were reset to make room for others.
    Evicted {
        /// How many, since the last such event.
        connections: u64,
    },
}

/// The events that wait for one subscriber.
#[derive(Debug, Default)]
struct EventQueue {
    waiting: Mutex<(VecDeque<NetworkEvent>, u64, bool)>,
    bell: Notify,
}

impl EventQueue {
    fn push(&self, event: &NetworkEvent) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.0.len() < EVENTS_MAX {
            true => waiting.0.push_back(event.clone()),
            false => waiting.1 += 1,
        }
        drop(waiting);
        self.bell.notify_one();
    }

    fn end(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).2 = true;
        self.bell.notify_one();
    }
}

/// The subscribers of a network, and whether its thread runs.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    all: Mutex<(Vec<Weak<EventQueue>>, bool)>,
}

impl Subscribers {
    /// Those that are left; the thread ends where there is none.
    fn live(&self) -> Vec<Arc<EventQueue>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.retain(|queue| queue.strong_count() > 0);
        let live: Vec<_> = all.0.iter().filter_map(Weak::upgrade).collect();
        all.1 = !live.is_empty();
        live
    }
}

/// A subscription to a host's events, from [`Network::events`].
#[derive(Debug)]
pub struct NetworkEvents {
    queue: Arc<EventQueue>,
}

impl NetworkEvents {
    /// The next event; `None` once the network has ended and all were taken. Cancel safe.
    pub async fn next(&mut self) -> Option<NetworkEvent> {
        loop {
            {
                let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(event) = waiting.0.pop_front() {
                    return Some(event);
                }
                if waiting.2 {
                    return None;
                }
            }
            self.queue.bell.notified().await;
        }
    }

    /// How many events were lost since the last call, because too many waited.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut waiting.1)
    }
}

impl Network {
    /// Subscribes to what happens to the host from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn events(&self) -> Result<NetworkEvents, NetworkError> {
        let queue = Arc::new(EventQueue::default());
        let subscribers = &self.inner.subscribers;
        let mut all = subscribers.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.push(Arc::downgrade(&queue));
        if !all.1 {
            let watcher = Watcher::new(&self.inner);
            let system = |source| NetworkError::System { action: "start a thread", source };
            thread::Builder::new()
                .name("floodwall-events".to_owned())
                .spawn(move || watcher.run())
                .map_err(system)?;
            all.1 = true;
        }
        drop(all);
        Ok(NetworkEvents { queue })
    }
}

/// What of a host is compared between two looks.
#[derive(Clone, Default, PartialEq)]
struct HostView {
    changes: u64,
    /// Interface, address, whether it was learnt.
    addresses: Vec<(String, IpCidr, bool)>,
    up: Vec<(String, bool)>,
}

/// The thread's state. It does not keep the network alive.
struct Watcher {
    subscribers: Arc<Subscribers>,
    controls: Vec<Control<Shown<Stack>>>,
    reader: floodwall_dispatch::CrewReader,
    stop: Stop,
    seen: Option<HostView>,
    floods: FloodWatch,
    evicted: Option<u64>,
}

impl Watcher {
    fn new(inner: &NetworkInner) -> Self {
        Self {
            subscribers: Arc::clone(&inner.subscribers),
            controls: inner.controls.clone(),
            reader: inner.reader.clone(),
            stop: inner.stop.clone(),
            seen: None,
            floods: FloodWatch::default(),
            evicted: None,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a thread that has nothing else to do")]
    fn run(mut self) {
        let mut looks = 0;
        loop {
            let live = self.subscribers.live();
            if live.is_empty() {
                return;
            }
            if self.stop.is_triggered() {
                return live.iter().for_each(|queue| queue.end());
            }
            let mut events = self.look_at_host();
            if looks % COUNTERS_EVERY == 0 {
                events.extend(self.look_at_counters());
            }
            for event in &events {
                live.iter().for_each(|queue| queue.push(event));
            }
            drop(live);
            looks += 1;
            thread::sleep(LOOK_INTERVAL);
        }
    }

    fn look_at_host(&mut self) -> Vec<NetworkEvent> {
        let Some(control) = self.controls.first() else { return Vec::new() };
        let view = control.ask(ANSWER_PATIENCE, |desk| {
            let stack = &desk.engine.engine;
            let usable = addresses_of(stack, desk.now).into_iter().filter(|a| a.usable);
            HostView {
                changes: stack.stats().counters.of(Counter::FloodwallChanges),
                addresses: usable.map(|a| (a.interface, a.address, a.learnt)).collect(),
                up: stack.interfaces().iter().map(|i| (i.name.clone(), i.up)).collect(),
            }
        });
        let Ok(view) = view else { return Vec::new() };
        let before = self.seen.replace(view.clone());
        before.map_or_else(Vec::new, |before| differences(&before, &view))
    }

    fn look_at_counters(&mut self) -> Vec<NetworkEvent> {
        let (mut counters, mut drops) = (Counters::default(), DropCounts::default());
        let mut now = Instant::from_nanos(0);
        for control in &self.controls {
            let asked = control.ask(ANSWER_PATIENCE, |desk| (desk.engine.engine.stats(), desk.now));
            // What is missing would look like a counter that began anew.
            let Ok((stats, at)) = asked else { return Vec::new() };
            counters.merge(&stats.counters);
            drops.merge(&stats.drops_in);
            now = now.max(at);
        }
        let published = self.reader.read();
        let loops = WorkerCounters::of_all(published.iter().map(|one| &one.facts));
        let counts = FloodCounts::new(&counters, &drops, &loops);
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

fn differences(before: &HostView, after: &HostView) -> Vec<NetworkEvent> {
    let mut events = Vec::new();
    for (interface, up) in &after.up {
        let was = before.up.iter().find(|(name, _)| name == interface).is_none_or(|(_, up)| *up);
        let interface = interface.clone();
        match (was, *up) {
            (true, false) => events.push(NetworkEvent::LinkDown { interface }),
            (false, true) => events.push(NetworkEvent::LinkUp { interface }),
            _ => {}
        }
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
    fn a_subscriber_that_does_not_read_loses_the_newest_and_is_told_how_many() {
        let queue = EventQueue::default();
        for n in 0..EVENTS_MAX as u64 + 7 {
            queue.push(&NetworkEvent::Evicted { connections: n });
        }
        let events = NetworkEvents { queue: Arc::new(queue) };
        assert_eq!((events.lost(), events.lost()), (7, 0));
        let waiting = events.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(waiting.0.front(), Some(&NetworkEvent::Evicted { connections: 0 }));
        assert_eq!(waiting.0.len(), EVENTS_MAX);
    }
}
