//! `Watched`: a part with a deadline, and whether it may have changed since that was asked last.
//!
//! Used by `parts.rs`. An exclusive borrow marks the part, so that no change can be missed: the
//! stack asks its parts for their deadlines only after one of them was marked.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

/// A part, marked by each exclusive borrow.
pub(crate) struct Watched<T> {
    part: T,
    is_marked: Cell<bool>,
}

impl<T> Watched<T> {
    /// Marked at first.
    pub(crate) const fn new(part: T) -> Self {
        Self { part, is_marked: Cell::new(true) }
    }

    /// Whether it was borrowed exclusively since its mark was cleared.
    #[inline]
    pub(crate) const fn is_marked(&self) -> bool {
        self.is_marked.get()
    }

    /// Its deadline is known.
    pub(crate) fn clear_mark(&self) {
        self.is_marked.set(false);
    }

    /// For a change that leaves its deadline as it is.
    #[inline]
    pub(crate) const fn unmarked(&mut self) -> &mut T {
        &mut self.part
    }
}

impl<T> Deref for Watched<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T> DerefMut for Watched<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.is_marked.set(true);
        &mut self.part
    }
}
