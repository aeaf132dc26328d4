//! The wake group under ordinary threads, and under loom.

use super::*;

#[cfg(not(loom))]
mod threads {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Count {
        fn of(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }
    }

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn wakers(count: &Arc<Count>, many: usize) -> impl Iterator<Item = Waker> {
        std::iter::repeat_n(Waker::from(Arc::clone(count)), many)
    }

    /// A driver that sleeps.
    fn asleep(group: &WakeGroup, driver: &Arc<Count>) {
        let waker = Waker::from(Arc::clone(driver));
        assert!(group.drive(&mut Context::from_waker(&waker), 100).is_pending());
    }

    #[test]
    fn a_round_costs_one_foreign_wake_and_the_driver_wakes_the_rest() {
        let (tasks, driver) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let group = WakeGroup::new(1000);
        asleep(&group, &driver);
        assert_eq!(group.hand_over(wakers(&tasks, 250)), 1);
        assert_eq!((tasks.of(), driver.of()), (0, 1));
        assert_eq!(group.hand_over(wakers(&tasks, 1)), 0, "it is awake");
        let waker = Waker::from(Arc::clone(&driver));
        let mut cx = Context::from_waker(&waker);
        assert!(group.drive(&mut cx, 100).is_ready(), "100 at most, then others have their turn");
        assert_eq!(tasks.of(), 100);
        assert!(group.drive(&mut cx, 100).is_ready());
        assert!(group.drive(&mut cx, 100).is_pending());
        assert_eq!(tasks.of(), 251);
    }

    #[test]
    fn what_finds_no_room_is_woken_directly() {
        let tasks = Arc::new(Count::default());
        let group = WakeGroup::new(2);
        assert_eq!(group.hand_over(wakers(&tasks, 5)), 3);
        assert_eq!(tasks.of(), 3);
    }

    #[test]
    fn a_dead_group_wakes_all_it_has_and_then_directly() {
        let tasks = Arc::new(Count::default());
        let group = WakeGroup::new(10);
        group.hand_over(wakers(&tasks, 3));
        assert_eq!(tasks.of(), 0);
        group.close();
        assert_eq!(tasks.of(), 3);
        assert_eq!(group.hand_over(wakers(&tasks, 2)), 2);
        assert_eq!(tasks.of(), 5);
    }

    #[test]
    fn a_worker_never_waits_for_the_list() {
        let tasks = Arc::new(Count::default());
        let group = WakeGroup::new(10);
        let held = group.list.lock().unwrap();
        assert_eq!(group.hand_over(wakers(&tasks, 2)), 2);
        drop(held);
        assert_eq!(tasks.of(), 2);
    }
}

/// Weakened by hand: `close` that does not set the closed mark made a model fail. `WAIT` set after
/// the last look at the list fails as the last model shows (and is right while the lock is held).
#[cfg(loom)]
mod model {
    use std::sync::Arc;
    use std::task::Wake;

    use loom::{sync::Notify, thread};

    use super::*;

    struct Sleeper(Notify);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }

    fn sleeper() -> (Arc<Sleeper>, Waker) {
        let sleeper = Arc::new(Sleeper(Notify::new()));
        (Arc::clone(&sleeper), Waker::from(sleeper))
    }

    /// Counts wake-ups, and wakes nothing.
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, AcqRel);
        }
    }

    fn bounded(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.check(model);
    }

    /// Two rounds of a worker, and a driver that sleeps in between.
    #[test]
    fn a_sleeping_driver_wakes_every_task() {
        bounded(|| {
            let group = loom::sync::Arc::new(WakeGroup::new(4));
            let task = Arc::new(Task(AtomicU32::new(0)));
            let (theirs, tasks) = (loom::sync::Arc::clone(&group), Arc::clone(&task));
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    theirs.hand_over([Waker::from(Arc::clone(&tasks))]);
                }
            });
            let (driver, waker) = sleeper();
            let mut cx = Context::from_waker(&waker);
            // Woken directly where the list was locked just then: that counts, too, and the worker
            // joins below.
            let mut joined = Some(thread);
            while task.0.fetch_or(0, AcqRel) < 2 {
                if group.drive(&mut cx, 1).is_pending() && task.0.fetch_or(0, AcqRel) < 2 {
                    match joined.take() {
                        // All was handed over: no waker may be left in the list of a sleeper that
                        // is not notified.
                        Some(thread) => {
                            thread.join().unwrap();
                            if task.0.fetch_or(0, AcqRel) < 2 {
                                driver.0.wait();
                            }
                        }
                        None => driver.0.wait(),
                    }
                }
            }
            if let Some(thread) = joined {
                thread.join().unwrap();
            }
        });
    }

    /// The runtime ends while a worker hands over: the task is woken, by one of the two.
    #[test]
    fn a_task_handed_to_a_dying_group_is_woken_once() {
        bounded(|| {
            let group = loom::sync::Arc::new(WakeGroup::new(4));
            let task = Arc::new(Task(AtomicU32::new(0)));
            let (theirs, tasks) = (loom::sync::Arc::clone(&group), Arc::clone(&task));
            let thread = thread::spawn(move || {
                theirs.hand_over([Waker::from(tasks)]);
            });
            group.close();
            thread.join().unwrap();
            assert_eq!(task.0.fetch_or(0, AcqRel), 1);
        });
    }

    /// Why the mark comes before the last look.
    #[test]
    #[should_panic(expected = "asleep for ever")]
    fn a_driver_that_looks_and_then_says_that_it_sleeps_is_never_woken() {
        bounded(|| {
            let group = loom::sync::Arc::new(WakeGroup::new(4));
            let task = Arc::new(Task(AtomicU32::new(0)));
            let driver = Arc::new(Task(AtomicU32::new(0)));
            let (theirs, tasks) = (loom::sync::Arc::clone(&group), Arc::clone(&task));
            let thread = thread::spawn(move || {
                theirs.hand_over([Waker::from(tasks)]);
            });
            group.driver.register(&Waker::from(Arc::clone(&driver)));
            let slept = lock(&group.list).wakers.is_empty();
            if slept {
                group.word.swap(WAIT, AcqRel);
            }
            thread.join().unwrap();
            let told = driver.0.fetch_or(0, AcqRel) + task.0.fetch_or(0, AcqRel) > 0;
            assert!(!slept || told, "asleep for ever");
        });
    }
}
