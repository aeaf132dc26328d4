//! `Watched`: a part with a deadline; and `ChangeMark`, whether any of the parts that share one may
//! have changed since they were asked for their deadlines last.
//!
//! Used by `parts.rs`. An exclusive borrow marks the part, so that no change can be missed: the
//! stack asks its parts for their deadlines only after one of them was marked. The mark is read
//! every turn, so that it is one for all parts.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::Arc;

/// A part may have changed.
const CHANGED: u8 = 1;
/// Others than the parts have deadlines, too.
const OTHERS: u8 = 2;

/// The mark of several parts. Only the stack that has these parts uses it: it is atomic so that a
/// stack may move to another thread.
#[derive(Clone)]
pub(crate) struct ChangeMark(Arc<AtomicU8>);

impl ChangeMark {
    /// Set at first.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(CHANGED)))
    }

    /// Whether no part was borrowed exclusively since all deadlines were known, and nothing else
    /// has one.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Whether any part was borrowed exclusively since all deadlines were known.
    pub(crate) fn has_changed(&self) -> bool {
        self.0.load(Relaxed) & CHANGED != 0
    }

    /// What has a deadline may have changed: the deadlines, or what that is.
    #[inline]
    pub(crate) fn set(&self) {
        self.0.store(self.0.load(Relaxed) | CHANGED, Relaxed);
    }

    /// The deadlines of all parts are known; whether others have deadlines.
    pub(crate) fn clear(&self, others: bool) {
        self.0.store(if others { OTHERS } else { 0 }, Relaxed);
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
        self.mark.set();
        &mut self.part
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use floodwall_base::{Instant, Randomness};
    use floodwall_remote::{Remote, RemoteConfig};

    use crate::{HeldConnections, Stack, StackConfig};

    /// A stack of which all deadlines are known.
    fn known() -> Stack {
        let mut random = Randomness::from_number(1);
        let stack = Stack::new(&StackConfig::default(), &mut random, Instant::ORIGIN).unwrap();
        stack.deadline_beside_tcp();
        assert!(stack.parts_mark.is_clear());
        stack
    }

    #[test]
    fn a_drain_and_programs_are_asked_for_deadlines_as_soon_as_they_are_there() {
        let mut stack = known();
        stack.drain(Instant::ORIGIN, Duration::from_secs(1), HeldConnections::Close, |_| {});
        assert_eq!(stack.deadline_beside_tcp(), Instant::ORIGIN, "its first step is due");
        assert!(!stack.parts_mark.is_clear(), "it is asked each turn");
        let mut stack = known();
        let (_remote, mut shards) = Remote::new(&RemoteConfig::default()).unwrap();
        stack.serve(shards.remove(0));
        assert!(!stack.parts_mark.is_clear());
        stack.deadline_beside_tcp();
        assert!(!stack.parts_mark.is_clear(), "they are asked each turn");
    }
}
