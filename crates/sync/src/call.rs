//! A place in a doorbell's list that any number of threads ring for, and that stands there once.
//!
//! # What it is
//!
//! A flag beside the link of a slot ([`Doorbell`](crate::Doorbell)). A caller that changes it from
//! clear to set rings; a caller that finds it set goes on: it was rung, and the worker has not
//! answered yet. So any number of callers cost one ring. FreeBSD's task queues count the same way
//! (`ta_pending`), Linux's interrupt mitigation has a bit for it (`NAPI_STATE_SCHED`).
//!
//! # Callers
//!
//! Programs that have something for a worker which is no slot's mailbox: a request in its queue, a
//! listener that has gone, room in an accept queue.
//!
//! # Invariant
//!
//! What a caller did before its call is seen by a look that begins after it, or after a ring that
//! follows it. The worker clears the flag *before* it looks, and [`Call::answer`] keeps the order:
//! a worker that looks first and clears then misses a call in between, and there is no further ring
//! (the model `a_worker_that_looks_before_it_answers_misses_a_caller`).
//!
//! # Orderings, and why
//!
//! Both sides change the flag by an **acquire-release** exchange. A caller that found it set has
//! written it all the same, so the worker's exchange, which comes later in the order of the flag's
//! changes, acquires what that caller did too.

use core::fmt;

use crate::shim::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{AcqRel, Relaxed},
};

/// A request to a worker, coalesced: any number of calls before the answer cost one ring.
pub struct Call {
    called: AtomicBool,
    link: AtomicU32,
}

impl Call {
    /// A call that has not been made.
    #[must_use]
    pub fn new() -> Self {
        Self { called: AtomicBool::new(false), link: AtomicU32::new(0) }
    }

    /// Calls; returns whether the caller has to ring, true once per answer of the worker. One
    /// exchange.
    #[must_use]
    #[inline]
    pub fn make(&self) -> bool {
        !self.called.swap(true, AcqRel)
    }

    /// The worker has taken the call out of the doorbell's list, and looks at what there is for it.
    /// A caller rings again from here on. One exchange.
    #[inline]
    pub fn answer<R>(&self, look: impl FnOnce() -> R) -> R {
        self.called.swap(false, AcqRel);
        look()
    }

    /// The link in the doorbell's list: for the caller that has to ring.
    #[must_use]
    #[inline]
    pub fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl Default for Call {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("called", &self.called.load(Relaxed)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_caller_rings_and_the_first_after_the_answer_again() {
        let call = Call::new();
        assert!(call.make() && !call.make() && !call.make());
        assert_eq!(call.answer(|| 5), 5);
        assert!(call.make() && !call.make());
        call.answer(|| assert!(call.make(), "a call while the worker looks"));
    }
}

/// Weakened by hand, each made a model fail: an answer that looks first, and an answer with an
/// exchange that does not acquire.
#[cfg(all(test, loom))]
mod model {
    use loom::{sync::Notify, thread};

    use super::*;
    use crate::shim::Arc;
    use crate::{Doorbell, Ring};

    /// A worker's bell, one call, and what two callers have for it.
    struct CallShared {
        bell: Doorbell,
        call: Call,
        worker: Notify,
        news: [AtomicBool; 2],
    }

    impl CallShared {
        fn new() -> Arc<Self> {
            let news = [AtomicBool::new(false), AtomicBool::new(false)];
            let (bell, call, worker) = (Doorbell::new(), Call::new(), Notify::new());
            Arc::new(Self { bell, call, worker, news })
        }

        fn call(&self, n: usize) {
            // What orders it is the call alone.
            self.news[n].store(true, Relaxed);
            if self.call.make() && self.bell.ring(0, self.call.link()) == Ok(Ring::Wake) {
                self.worker.notify();
            }
        }

        fn look(&self) -> usize {
            self.news.iter().filter(|news| news.load(Relaxed)).count()
        }

        fn is_called(&self) -> bool {
            self.bell.take(|_| Some(self.call.link())).count() > 0
        }

        fn sleep(&self) {
            if self.bell.park() {
                self.worker.wait();
            }
        }
    }

    fn bounded(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.check(model);
    }

    #[test]
    fn a_worker_that_sleeps_hears_every_caller() {
        bounded(|| {
            let ours = CallShared::new();
            let threads = [0, 1].map(|n| {
                let theirs = Arc::clone(&ours);
                thread::spawn(move || theirs.call(n))
            });
            let mut seen = 0;
            while seen < 2 {
                if ours.is_called() {
                    seen = ours.call.answer(|| ours.look());
                } else {
                    ours.sleep();
                }
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// One calls while the worker serves another; then there are no more calls.
    fn served_by(serve: fn(&CallShared) -> usize) {
        bounded(move || {
            let ours = CallShared::new();
            ours.call(0);
            let theirs = Arc::clone(&ours);
            let thread = thread::spawn(move || theirs.call(1));
            assert!(ours.is_called());
            let mut seen = serve(&ours);
            thread.join().unwrap();
            if ours.is_called() {
                seen = serve(&ours);
            }
            assert_eq!(seen, 2, "a caller is missed for ever");
        });
    }

    #[test]
    fn one_that_calls_while_another_is_served_is_seen_now_or_rings() {
        served_by(|ours| ours.call.answer(|| ours.look()));
    }

    /// Why the flag is cleared first: there is no ring for a call between look and answer.
    #[test]
    #[should_panic(expected = "a caller is missed for ever")]
    fn a_worker_that_looks_before_it_answers_misses_a_caller() {
        served_by(|ours| {
            let seen = ours.look();
            ours.call.answer(|| seen)
        });
    }
}
