//! Reclamation under ordinary threads, and under loom.

use super::*;
use crate::shim::UnsafeCell;
use crate::{RcuCell, Retired};

const CAPS: LimboCaps = LimboCaps { items: 64, bytes: 64 };

/// A value that loom watches: freeing writes to it, so a reader that still looks fails the model.
struct Watched {
    number: u32,
    life: UnsafeCell<u32>,
}

// SAFETY: the cell is read by many or written by the one that frees; that the two never overlap is
// what the models check.
unsafe impl Sync for Watched {}

impl Watched {
    fn boxed(number: u32) -> Box<Self> {
        Box::new(Self { number, life: UnsafeCell::new(number) })
    }

    fn read(&self) -> u32 {
        // SAFETY: there is no writer while a view exists: that is the claim.
        let life = self.life.with(|life| unsafe { *life });
        assert_eq!(life, self.number, "read after it was freed");
        life
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A model that has failed is being unwound: what it left half done is no second failure.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: the thread that drops it has exclusive access.
        self.life.with_mut(|life| unsafe { *life = u32::MAX });
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[cfg(not(loom))]
mod adversary;
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod threads;
