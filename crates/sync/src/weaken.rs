//! The orderings that reclamation and the alarm rest on, each by its name, so that a model can
//! weaken one.
//!
//! Called by `qsbr.rs`, `rcu_cell.rs` and `alarm.rs` wherever a fence or an ordering carries the
//! argument.
//! Without `cfg(loom)` every function here is its argument or a fence, and is gone after inlining.
//! Under loom the tests weaken one [`WeakenPoint`] at a time and demand that a model fails: a model
//! that cannot fail proves nothing. Invariant: nothing but a test under loom ever weakens anything.

#[cfg(loom)]
use core::cell::Cell;

use crate::shim::atomic::{
    Ordering::{self, SeqCst},
    fence,
};

/// What can be weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeakenPoint {
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
    /// The acquire with which the freeing thread sees those.
    HorizonAcquire,
    /// The release that shows a new value with what it points to.
    SwapRelease,
    /// `<` between an object's epoch and the horizon: weakened, it is `<=`.
    Strictly,
    /// The alarm: the fence between news and the look whether their reader sleeps.
    NudgeFence,
    /// The alarm: the fence between falling asleep and the last look for news.
    DozeFence,
    /// The alarm: the release with which a ringer publishes what it did before.
    RingRelease,
    /// The alarm: the acquire with which the owner sees that.
    HeardAcquire,
}

#[cfg(loom)]
std::thread_local! {
    /// Loom runs all threads of a model on the thread of its test.
    static WEAKENED: Cell<Option<WeakenPoint>> = const { Cell::new(None) };
}

/// Whether a model runs without it.
#[cfg(loom)]
pub(crate) fn is_weak(point: WeakenPoint) -> bool {
    WEAKENED.with(|weakened| weakened.get() == Some(point))
}

/// Nothing is.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn is_weak(_: WeakenPoint) -> bool {
    false
}

/// A full fence.
#[inline(always)]
pub(crate) fn fence_at(point: WeakenPoint) {
    if !is_weak(point) {
        fence(SeqCst);
    }
}

/// The ordering of an access.
#[inline(always)]
pub(crate) fn order(point: WeakenPoint, ordering: Ordering) -> Ordering {
    if is_weak(point) { Ordering::Relaxed } else { ordering }
}

/// Whether `model` fails with one point weakened.
#[cfg(all(loom, test))]
pub(crate) fn is_noticed(point: WeakenPoint, model: impl FnOnce()) -> bool {
    WEAKENED.with(|weakened| weakened.set(Some(point)));
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(model));
    WEAKENED.with(|weakened| weakened.set(None));
    run.is_err()
}
