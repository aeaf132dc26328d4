//! `FrameClaim`: the owner of a home: a thread, a lane that no thread uses just now, or none.
//!
//! Called by `home.rs`, which touches its stacks only while the calling thread holds the claim.
//! Programs' threads hand a lane's home on to each other by it, many times a second.
//!
//! # Orderings, and why
//!
//! * Claiming **acquires** and giving up **releases**: the next holder sees the stacks as the last
//!   one left them. Claiming needs no release: it hands nothing over.
//! * [`FrameClaim::is`] is **relaxed**: a thread that holds the claim wrote its number itself, and
//!   one that gave it up wrote what replaced it, so neither can see an older value of the word.
//!   What other threads see is some other number than theirs, whichever it is.

use floodwall_sync::shim::atomic::{
    AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release},
};

/// No thread is attached.
pub(crate) const UNCLAIMED: u64 = 0;
/// Kept for a [`Lane`](crate::Lane) that no thread uses just now. Never a thread's number.
pub(crate) const LANE: u64 = u64::MAX;

/// The owner's number in one word, passed on by compare-and-exchange.
pub(crate) struct FrameClaim(AtomicU64);

impl FrameClaim {
    /// A claim without an owner.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(UNCLAIMED))
    }

    /// Passes the claim from one holder to another; false where it has a different holder.
    pub(crate) fn pass(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, edge(Acquire), Relaxed).is_ok()
    }

    /// Leaves it to `to`. Called by its holder.
    pub(crate) fn leave_to(&self, to: u64) {
        self.0.store(to, edge(Release));
    }

    /// Whether it belongs to the calling thread, with the number `me`.
    #[inline]
    pub(crate) fn is(&self, me: u64) -> bool {
        me != UNCLAIMED && self.0.load(Relaxed) == me
    }
}

/// The ordering of one end of the edge from holder to holder.
#[cfg(not(all(test, loom)))]
#[inline(always)]
const fn edge(ordering: Ordering) -> Ordering {
    ordering
}

/// The same, unless the model runs without that end.
#[cfg(all(test, loom))]
fn edge(ordering: Ordering) -> Ordering {
    let is_weak = model::WEAKENED.with(|weakened| weakened.get() == Some(ordering));
    if is_weak { Relaxed } else { ordering }
}

#[cfg(all(test, loom))]
mod model {
    use core::cell::Cell;

    use floodwall_sync::shim::{
        Arc, UnsafeCell,
        atomic::{AtomicU32, Ordering::AcqRel},
    };
    use loom::thread;

    use super::*;

    std::thread_local! {
        /// The ordering that the model does without: of `pass` or of `leave_to`. Loom runs all
        /// threads of a model on the thread of its test.
        pub(super) static WEAKENED: Cell<Option<Ordering>> = const { Cell::new(None) };
    }

    /// A home: its claim, its stack (how many descriptors it holds), and what was dropped
    /// elsewhere.
    struct ClaimHome {
        claim: FrameClaim,
        stack: UnsafeCell<u32>,
        returned: AtomicU32,
    }

    // SAFETY: the stack is the claim's holder's alone, which is what the model checks.
    unsafe impl Sync for ClaimHome {}
    // SAFETY: as above.
    unsafe impl Send for ClaimHome {}

    impl ClaimHome {
        /// Gives back one descriptor, wherever the thread is.
        fn give(&self, me: u64) {
            if self.claim.is(me) {
                // SAFETY: the claim is ours.
                self.stack.with_mut(|stack| unsafe { *stack += 1 });
            } else {
                self.returned.fetch_add(1, AcqRel);
            }
        }

        /// Enters the lane if it is free, takes a descriptor, gives it back inside or outside.
        fn visit(&self, me: u64, inside: bool) {
            if !self.claim.pass(LANE, me) {
                return;
            }
            // SAFETY: the claim is ours.
            self.stack.with_mut(|stack| unsafe { *stack -= 1 });
            if inside {
                self.give(me);
            }
            self.claim.leave_to(LANE);
            if !inside {
                self.give(me);
            }
        }
    }

    fn handing_on() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let (stack, returned) = (UnsafeCell::new(4), AtomicU32::new(0));
            let home = Arc::new(ClaimHome { claim: FrameClaim::new(), stack, returned });
            assert!(home.claim.pass(UNCLAIMED, LANE));
            let other = Arc::clone(&home);
            let thread = thread::spawn(move || {
                other.visit(1, true);
                other.visit(1, false);
            });
            home.visit(2, false);
            home.visit(2, true);
            thread.join().unwrap();
            // SAFETY: alone.
            let left = home.stack.with(|stack| unsafe { *stack });
            assert_eq!(left + home.returned.load(Relaxed), 4, "each came home once");
        });
    }

    #[test]
    fn a_lane_is_handed_on_whole() {
        handing_on();
    }

    /// A model that cannot fail proves nothing.
    #[test]
    fn without_either_end_of_the_edge_the_model_fails() {
        for end in [Acquire, Release] {
            WEAKENED.with(|weakened| weakened.set(Some(end)));
            let run = std::panic::catch_unwind(handing_on);
            WEAKENED.with(|weakened| weakened.set(None));
            assert!(run.is_err(), "nothing noticed that {end:?} was missing");
        }
    }
}
