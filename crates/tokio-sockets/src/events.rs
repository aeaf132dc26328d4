//! `NetworkEvents`: what happens to a host, as values: floods, addresses, leases, links, evictions.
//!
//! A thread that looks at the host four times a second (`watcher.rs`) is started by the first
//! [`Network::events`] and ends with the network, or with the last subscriber. It asks the workers
//! for their counters once a second; nothing of it is on the packet path. With feature `tracing`
//! the same events go to the subscriber that is in force where the network is started (`trace.rs`);
//! then the thread runs as long as the network.
//!
//! # Under flood
//! Reachable by all that makes events. Bound: [`EVENTS_MAX`] wait for each subscriber. When full
//! the newest are lost, and counted: [`NetworkEvents::lost`].

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use floodwall_base::IpCidr;
use floodwall_dispatch::FloodEvent;
use floodwall_sync::lock::{Mutex, PoisonError};
use tokio::sync::Notify;

use self::watcher::Watcher;
use crate::error::NetworkError;
use crate::network::{Network, NetworkInner};

#[cfg(feature = "tracing")]
mod trace;
mod watcher;

/// Events that may wait for one subscriber.
pub const EVENTS_MAX: usize = 256;

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
    /// Packets of up to another size pass an interface's link from now on.
    Mtu {
        /// The interface's name.
        interface: String,
        /// Bytes of the largest IP packet.
        mtu: u32,
    },
    /// A DHCP server has granted a lease, or another one than before.
    Leased(HostLease),
    /// A lease has ended, or was given back.
    LeaseLost {
        /// The interface's name.
        interface: String,
        /// The address that was leased.
        address: IpCidr,
    },
    /// Routers, routes or name servers have changed: read again what you need.
    Configuration,
    /// Connections were reset to make room for others.
    Evicted {
        /// How many, since the last such event.
        connections: u64,
    },
}

/// A lease of a DHCP server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostLease {
    /// The interface's name.
    pub interface: String,
    /// The leased address.
    pub address: IpCidr,
    /// The server: its address, of DHCPv6 its identifier.
    pub server: String,
    /// What of the server's offer was left out, and why; a sentence each.
    pub left_out: Vec<String>,
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
    /// Those that are left; the thread ends where there is none, unless it `stays`.
    fn live(&self, stays: bool) -> Vec<Arc<EventQueue>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.retain(|queue| queue.strong_count() > 0);
        let live: Vec<_> = all.0.iter().filter_map(Weak::upgrade).collect();
        all.1 = stays || !live.is_empty();
        live
    }
}

/// Starts the thread where a subscriber of `tracing` wants the events.
///
/// # Errors
/// The thread cannot be started.
#[cfg(feature = "tracing")]
pub(crate) fn trace(inner: &NetworkInner) -> Result<(), NetworkError> {
    let Some(log) = trace::EventLog::of_caller() else { return Ok(()) };
    let mut all = inner.subscribers.all.lock().unwrap_or_else(PoisonError::into_inner);
    Watcher::new(inner).traced(log).start()?;
    all.1 = true;
    Ok(())
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
            Watcher::new(&self.inner).start()?;
            all.1 = true;
        }
        drop(all);
        Ok(NetworkEvents { queue })
    }
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
