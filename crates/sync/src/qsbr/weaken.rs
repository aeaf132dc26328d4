//! The orderings that reclamation rests on, each by its name, so that a model can weaken one.
//!
//! Called by `qsbr.rs` and `rcu_cell.rs` wherever a fence or an ordering carries the argument.
//! Without `cfg(loom)` every function here is its argument or a fence, and is gone after inlining.
//! Under loom the tests weaken one [`Point`] at a time and demand that a model fails: a model that
//! cannot fail proves nothing. Invariant: nothing but a test under loom ever weakens anything.

#[cfg(loom)]
use core::cell::Cell;

use crate::shim::atomic::{
    Ordering::{self, SeqCst},
    fence,
};

/// What can be weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// The fence between unlinking and reading the epoch.
    RetireFence,
    /// The fence between going online and the first look.
    OnlineFence,
    /// The fence between a quiescent state and the next look.
    QuiescentFence,
    /// The release with which a quiescent state lets go of what was read before.
    QuiescentRelease,
    /// The release with which a worker that goes offline does.
    OfflineRelease,
    /// The acquire with which the one who frees sees those.
    HorizonAcquire,
    /// The release that shows a new value with what it points to.
    SwapRelease,
    /// `<` between an object's epoch and the horizon: weakened, it is `<=`.
    Strictly,
}

#[cfg(loom)]
std::thread_local! {
    /// Loom runs all threads of a model on the thread of its test.
    static WEAKENED: Cell<Option<Point>> = const { Cell::new(None) };
}

/// Whether a model runs without it.
#[cfg(loom)]
pub(crate) fn is_weak(point: Point) -> bool {
    WEAKENED.with(|weakened| weakened.get() == Some(point))
}

/// Nothing is.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn is_weak(_: Point) -> bool {
    false
}

/// A full fence.
#[inline(always)]
pub(crate) fn fence_at(point: Point) {
    if !is_weak(point) {
        fence(SeqCst);
    }
}

/// The ordering of an access.
#[inline(always)]
pub(crate) fn order(point: Point, ordering: Ordering) -> Ordering {
    if is_weak(point) { Ordering::Relaxed } else { ordering }
}

/// Runs `model` with one point weakened.
#[cfg(all(loom, test))]
pub(crate) fn without(point: Point, model: impl FnOnce()) {
    /// Back to strength, also where the model fails.
    struct Whole;
    impl Drop for Whole {
        fn drop(&mut self) {
            WEAKENED.with(|weakened| weakened.set(None));
        }
    }
    let _whole = Whole;
    WEAKENED.with(|weakened| weakened.set(Some(point)));
    model();
}
