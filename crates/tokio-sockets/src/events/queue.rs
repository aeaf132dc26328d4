//! What waits for the subscribers of a network's events.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use floodwall_sync::lock::{Mutex, PoisonError};
use tokio::sync::Notify;

use super::event::NetworkEvent;

/// Events that may wait for one subscriber.
pub const EVENTS_MAX: usize = 256;

/// The events that wait for one subscriber.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    pub(super) waiting: Mutex<(VecDeque<NetworkEvent>, u64, bool)>,
    pub(super) bell: Notify,
}

impl EventQueue {
    pub(super) fn push(&self, event: &NetworkEvent) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.0.len() < EVENTS_MAX {
            true => waiting.0.push_back(event.clone()),
            false => waiting.1 += 1,
        }
        drop(waiting);
        self.bell.notify_one();
    }

    pub(super) fn end(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).2 = true;
        self.bell.notify_one();
    }
}

/// The subscribers of a network, and whether its thread runs.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    pub(super) all: Mutex<(Vec<Weak<EventQueue>>, bool)>,
}

impl Subscribers {
    /// Those that are left; the thread ends where there is none, unless it `stays`.
    pub(super) fn live(&self, stays: bool) -> Vec<Arc<EventQueue>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.0.retain(|queue| queue.strong_count() > 0);
        let live: Vec<_> = all.0.iter().filter_map(Weak::upgrade).collect();
        all.1 = stays || !live.is_empty();
        live
    }
}
