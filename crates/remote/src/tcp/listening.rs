//! `Listening`: what a listener and the shards that listen for it share.
//!
//! Filled by the workers (`shard/listeners.rs`), emptied by `listener.rs`. Its bound is that of its
//! queue, `REMOTE_ACCEPT_MAX`.

use core::task::Waker;
use std::sync::atomic::{AtomicU8, AtomicU32};

use floodwall_base::limits;
use floodwall_sync::{AcceptQueue, Ring, WakerCell};

/// What a listener's program and all workers share.
pub(crate) struct Listening {
    /// Slots of finished connections, linked by `accept_link`.
    pub(crate) finished: AcceptQueue,
    pub(crate) waker: WakerCell,
    pub(crate) group: AtomicU8,
}

impl Listening {
    pub(crate) fn new() -> Self {
        Self {
            finished: AcceptQueue::new(limits::REMOTE_ACCEPT_MAX),
            waker: WakerCell::new(),
            group: AtomicU8::new(0),
        }
    }

    /// Hands a connection over. Returns the waker of a task that waits to accept; `None` if the
    /// program has stopped accepting.
    pub(crate) fn hand_over(&self, index: u32, link: &AtomicU32) -> Option<Option<Waker>> {
        match self.finished.hand_over(index, link) {
            Ok(Ring::Wake) => Some(self.waker.take()),
            Ok(Ring::Heard) => Some(None),
            Err(_) => None,
        }
    }

    /// Ends the listener: no worker serves it any more.
    pub(crate) fn stop(&self) {
        self.finished.stop();
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}
