//! A place for one waker, filled by the waiting task and emptied by the notifier: the atomic waker.
//!
//! # What it is
//!
//! A cell and a word with its state: idle, registering, taking, or both. Neither waits for the
//! other. A taker that comes during a registration leaves its mark and goes; the registrar finds
//! the mark and wakes itself. The algorithm is the literature's (`AtomicWaker`: A. Crichton and C.
//! Lerche, in *futures-rs* and *tokio*, 2018).
//!
//! # Callers
//!
//! Two in each connection's or socket's slot: the reader's and the writer's. Its owner registers
//! before it sets `WAIT` in the word that it found empty; a thread that then finds `WAIT` takes.
//!
//! # Invariant
//!
//! One registrar at a time: the handle's own lock sees to that, which no worker takes. One that
//! breaks the rule loses its registration and is woken at once, nothing worse.
//!
//! # Orderings, and why
//!
//! Every change of the word is an **acquire-release** read-modify-write, and the cell is touched
//! only by the thread that changed the word from `IDLE` to a mark of its own. So a taker sees the
//! waker that was registered last, and a registrar sees that the cell was left.

use core::fmt;
use core::task::Waker;

use crate::shim::UnsafeCell;
use crate::shim::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

/// The cell is not in use.
const IDLE: u32 = 0;
/// A waker is being written into it.
const REGISTERING: u32 = 1;
/// The waker is being taken out.
const TAKING: u32 = 2;

/// A cell for one waker of a reader or a writer. 24 bytes.
pub struct WakerCell {
    state: AtomicU32,
    waker: UnsafeCell<Option<Waker>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<WakerCell>() == 24);

// SAFETY: the cell is reached by one thread at a time, ordered by `state`; wakers change threads.
unsafe impl Send for WakerCell {}
// SAFETY: as above.
unsafe impl Sync for WakerCell {}

impl WakerCell {
    /// An empty cell.
    #[must_use]
    pub fn new() -> Self {
        Self { state: AtomicU32::new(IDLE), waker: UnsafeCell::new(None) }
    }

    /// Stores a waker for the next taker. Where a taker was at the cell, `waker` is woken instead.
    pub fn register(&self, waker: &Waker) {
        match self.state.compare_exchange(IDLE, REGISTERING, AcqRel, Acquire) {
            Ok(_) => {}
            // A taker is there: the thread that wakes its waker has news for us, too.
            Err(_) => return waker.wake_by_ref(),
        }
        let replaced = self.waker.with_mut(|slot| {
            // SAFETY: the exchange above made us the only one at the cell.
            let slot = unsafe { &mut *slot };
            match slot {
                Some(old) if old.will_wake(waker) => None,
                slot => slot.replace(waker.clone()),
            }
        });
        if self.state.compare_exchange(REGISTERING, IDLE, AcqRel, Acquire).is_err() {
            // A taker came meanwhile and left the rest to us.
            // SAFETY: only the registrar touches the cell in this state.
            let ours = self.waker.with_mut(|slot| unsafe { (*slot).take() });
            self.state.swap(IDLE, AcqRel);
            if let Some(ours) = ours {
                ours.wake();
            }
        }
        drop(replaced);
    }

    /// Takes the waker out: the caller wakes it. `None` where there is none, or during a
    /// registration: the registrar then wakes itself.
    #[must_use]
    #[inline]
    pub fn take(&self) -> Option<Waker> {
        if self.state.fetch_or(TAKING, AcqRel) != IDLE {
            return None;
        }
        // SAFETY: the word was idle and is marked as ours.
        let waker = self.waker.with_mut(|slot| unsafe { (*slot).take() });
        self.state.fetch_and(!TAKING, Release);
        waker
    }
}

impl Default for WakerCell {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WakerCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakerCell")
    }
}

#[cfg(test)]
mod tests;
