//! `Watched`: a part with a deadline; and `ChangeMark`, whether any of the parts that share one may
//! have changed since they were asked for their deadlines last.
//!
//! Used by `parts.rs`. An exclusive borrow marks the part, so that no change can be missed: the
//! stack asks its parts for their deadlines only after one of them was marked. The mark is read
//! every turn, so that it is one for all parts.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

/// The mark of several parts. Only the stack that has these parts uses it: it is atomic so that a
/// stack may move to another thread.
#[derive(Clone)]
pub(crate) struct ChangeMark(Arc<AtomicBool>);

impl ChangeMark {
    /// Set at first.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Whether any part was borrowed exclusively since the mark was cleared.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// The deadlines of all parts are known.
    pub(crate) fn clear(&self) {
        self.0.store(false, Relaxed);
    }
}

/// A part, marked by each exclusive borrow.
pub(crate) struct Watched<T> {
    part: T,
    mark: ChangeMark,
}

impl<T> Watched<T> {
    /// A part with this mark.
    pub(crate) fn new(part: T, mark: &ChangeMark) -> Self {
        Self { part, mark: mark.clone() }
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
        self.mark.0.store(true, Relaxed);
        &mut self.part
    }
}
