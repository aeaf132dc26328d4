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

use std::sync::Arc;

use floodwall_sync::lock::PoisonError;

pub use self::event::{HostLease, NetworkEvent};
pub use self::queue::EVENTS_MAX;
use self::queue::EventQueue;
pub(crate) use self::queue::Subscribers;
use self::watcher::{WatchedHost, Watcher};
use crate::error::NetworkError;
use crate::network::{Network, NetworkInner};

mod event;
mod queue;
#[cfg(feature = "tracing")]
mod trace;
mod watcher;

impl NetworkInner {
    fn watched(&self) -> WatchedHost {
        WatchedHost {
            subscribers: Arc::clone(&self.subscribers),
            controls: self.controls.clone(),
            reader: self.reader.clone(),
            stop: self.stop.clone(),
        }
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
    Watcher::new(inner.watched()).traced(log).start()?;
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
            Watcher::new(self.inner.watched()).start()?;
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
