//! `KeptDeadline`: when timed work is due, found again only after that may have changed.
//!
//! Used by `connection_table.rs`, which is asked each turn: several parts have a time, and on most
//! turns none of these has changed. Invariant: a change of any part is marked.

use core::cell::Cell;

use floodwall_base::Instant;

/// The earliest of several times, and whether any may have changed since it was found.
#[derive(Debug)]
pub(crate) struct KeptDeadline {
    at: Cell<Instant>,
    has_moved: Cell<bool>,
}

impl KeptDeadline {
    /// Not found yet.
    pub(crate) const fn new() -> Self {
        Self { at: Cell::new(Instant::FAR), has_moved: Cell::new(true) }
    }

    /// One of the times may have changed.
    #[inline]
    pub(crate) fn mark(&self) {
        self.has_moved.set(true);
    }

    /// The earliest time, which `find` gives.
    #[inline(always)]
    pub(crate) fn get(&self, find: impl Fn() -> Instant) -> Instant {
        if self.has_moved.get() {
            self.at.set(find());
            self.has_moved.set(false);
        }
        debug_assert_eq!(self.at.get(), find(), "a change was not marked");
        self.at.get()
    }
}
