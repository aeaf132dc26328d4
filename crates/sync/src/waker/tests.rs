//! The waker cell under ordinary threads, and under loom.

use super::*;

#[cfg(not(loom))]
mod threads {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[test]
    fn the_newest_waker_is_taken_once() {
        let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let cell = WakerCell::new();
        assert!(cell.take().is_none());
        cell.register(&Waker::from(Arc::clone(&old)));
        cell.register(&Waker::from(Arc::clone(&new)));
        cell.take().unwrap().wake();
        assert!(cell.take().is_none());
        assert_eq!((old.0.load(Ordering::Acquire), new.0.load(Ordering::Acquire)), (0, 1));
        assert_eq!(Arc::strong_count(&old), 1, "the replaced one was dropped");
    }

    #[test]
    fn the_same_waker_is_not_cloned_again() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cell = WakerCell::new();
        cell.register(&waker);
        cell.register(&waker);
        assert_eq!(Arc::strong_count(&count), 3);
        drop(cell);
        assert_eq!(Arc::strong_count(&count), 2, "dropping the cell drops the waker");
    }

    /// A waiter that registers before each look is woken for every round of the other thread.
    #[test]
    fn no_waker_registered_before_the_news_is_lost() {
        const ROUNDS: u32 = 20_000;
        let (cell, told) = (WakerCell::new(), AtomicU32::new(0));
        let count = Arc::new(Count::default());
        std::thread::scope(|scope| {
            let teller = scope.spawn(|| {
                for round in 1..=ROUNDS {
                    told.swap(round, Ordering::AcqRel);
                    if let Some(waker) = cell.take() {
                        waker.wake();
                    }
                }
            });
            let waker = Waker::from(Arc::clone(&count));
            let mut seen = 0;
            while seen < ROUNDS {
                let before = count.0.load(Ordering::Acquire);
                cell.register(&waker);
                let now = told.load(Ordering::Acquire);
                if now == seen {
                    while count.0.load(Ordering::Acquire) == before {
                        std::thread::yield_now();
                    }
                }
                seen = now;
            }
            // A sanitizer sees a join, and not what the scope does by itself.
            teller.join().unwrap();
        });
    }
}

/// Weakened by hand: `take`'s first change without acquire made both models fail. A registrar that
/// ignores the taker's mark does not: a taker that publishes before it takes, and a registrar that
/// looks after it registered, need no mark. It is for users that do otherwise.
#[cfg(loom)]
mod model {
    use std::sync::Arc;
    use std::task::Wake;

    use loom::{sync::Notify, thread};

    use super::*;
    use crate::shim::atomic::AtomicBool;

    struct Sleeper(Notify);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }

    fn bounded(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(3);
        builder.check(model);
    }

    /// One has news; the other registers, looks, and sleeps where there are none.
    #[test]
    fn one_that_registers_and_then_looks_is_always_told() {
        bounded(|| {
            let shared = loom::sync::Arc::new((WakerCell::new(), AtomicBool::new(false)));
            let theirs = loom::sync::Arc::clone(&shared);
            let thread = thread::spawn(move || {
                theirs.1.swap(true, AcqRel);
                if let Some(waker) = theirs.0.take() {
                    waker.wake();
                }
            });
            let sleeper = Arc::new(Sleeper(Notify::new()));
            let waker = Waker::from(Arc::clone(&sleeper));
            shared.0.register(Waker::noop());
            // A sleeper may wake by itself, and looks again.
            loop {
                shared.0.register(&waker);
                if shared.1.fetch_or(false, AcqRel) {
                    break;
                }
                sleeper.0.wait();
            }
            thread.join().unwrap();
        });
    }

    /// Two takers, one waker: at most one gets it.
    #[test]
    fn a_waker_is_taken_by_one_of_two() {
        bounded(|| {
            let cell = loom::sync::Arc::new(WakerCell::new());
            cell.register(Waker::noop());
            let theirs = loom::sync::Arc::clone(&cell);
            let thread = thread::spawn(move || theirs.take().is_some());
            let ours = cell.take().is_some();
            let other = thread.join().unwrap();
            assert!(ours ^ other, "one waker was taken by neither or by both");
        });
    }
}
