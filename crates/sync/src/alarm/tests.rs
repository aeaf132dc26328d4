//! The alarm alone, and under loom beside the ring whose news it tells.

use super::*;

#[cfg(not(loom))]
mod threads {
    use super::*;

    #[test]
    fn only_the_first_ring_of_a_sleep_wakes() {
        let alarm = Alarm::new();
        assert!(!alarm.ring(), "awake: it will look");
        assert!(alarm.heard() && !alarm.heard());
        assert!(alarm.doze());
        assert!(alarm.ring() && !alarm.ring() && !alarm.nudge());
        alarm.rise();
        assert!(alarm.heard());
        assert!(!alarm.nudge() && !alarm.heard(), "a nudge leaves an owner awake in peace");
        assert!(alarm.doze() && alarm.nudge());
    }

    #[test]
    fn who_was_rung_does_not_fall_asleep() {
        let alarm = Alarm::new();
        assert!(!alarm.ring() && !alarm.doze());
        assert!(!alarm.ring(), "it is awake still");
        assert!(alarm.heard() && alarm.doze());
    }
}

/// The hand-off of two workers: a ring's item, announced by a nudge; the sleeper's rule kept.
/// Owed: to weaken by hand, one at a time, the fence of `nudge`, the fence of `doze` and the second
/// look after `doze`, and to see a model fail for each. Sleeping is modelled by a counter of
/// wake-ups (the descriptor): who may sleep has seen none, and whoever has to wake adds one.
#[cfg(loom)]
mod model {
    use loom::{model, thread};

    use super::*;
    use crate::shim::{Arc, atomic::Ordering::SeqCst};
    use crate::spsc;

    /// What the system knows of the sleeper: how often its descriptor was written.
    #[derive(Default)]
    struct Descriptor(AtomicU32);

    impl Descriptor {
        fn write(&self) {
            self.0.fetch_add(1, SeqCst);
        }

        fn is_readable(&self) -> bool {
            self.0.load(SeqCst) > 0
        }
    }

    #[test]
    fn what_was_handed_over_is_found_before_the_sleep_or_ends_it() {
        model(|| {
            let (mut producer, mut consumer) = spsc::ring(2);
            let shared = Arc::new((Alarm::new(), Descriptor::default()));
            let other = Arc::clone(&shared);
            let neighbour = thread::spawn(move || {
                producer.push_batch([Box::new(1)]);
                if other.0.nudge() {
                    other.1.write();
                }
            });
            let (alarm, descriptor) = &*shared;
            let found = consumer.pop().is_some();
            let sleeps = !found && alarm.doze() && consumer.ready() == 0;
            neighbour.join().expect("neighbour");
            // It sleeps for ever if nothing was found and nobody wrote.
            assert!(!sleeps || descriptor.is_readable(), "a lost wake-up");
            alarm.rise();
            assert!(found || consumer.pop().is_some());
        });
    }

    #[test]
    fn of_a_ring_and_a_nudge_at_once_exactly_one_wakes_a_sleeper() {
        model(|| {
            let (mut producer, mut consumer) = spsc::ring(1);
            let shared = Arc::new((Alarm::new(), Descriptor::default(), AtomicU32::new(0)));
            let asker = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    shared.2.store(1, Relaxed);
                    if shared.0.ring() {
                        shared.1.write();
                    }
                }
            });
            let neighbour = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    assert_eq!(producer.push_batch([7]), 1);
                    if shared.0.nudge() {
                        shared.1.write();
                    }
                }
            });
            let (alarm, descriptor, request) = &*shared;
            let sleeps = alarm.doze() && consumer.ready() == 0;
            asker.join().expect("asker");
            neighbour.join().expect("neighbour");
            assert!(!sleeps || descriptor.is_readable(), "a lost wake-up");
            assert!(descriptor.0.load(SeqCst) <= 1, "two system calls for one sleep");
            alarm.rise();
            assert!(alarm.heard() && request.load(Relaxed) == 1 && consumer.pop() == Some(7));
        });
    }

    #[test]
    fn who_sleeps_twice_is_woken_twice() {
        model(|| {
            let (mut producer, mut consumer) = spsc::ring(2);
            let shared = Arc::new((Alarm::new(), Descriptor::default()));
            let other = Arc::clone(&shared);
            let neighbour = thread::spawn(move || {
                for item in 0..2 {
                    assert_eq!(producer.push_batch([item]), 1);
                    if other.0.nudge() {
                        other.1.write();
                    }
                }
            });
            let (alarm, descriptor) = &*shared;
            let mut taken = 0;
            let mut seen = 0;
            for _ in 0..2 {
                taken += consumer.pop_batch(2).count();
                if alarm.doze() && consumer.ready() == 0 {
                    // Asleep: only a write that came since ends it.
                    if descriptor.0.load(SeqCst) == seen {
                        break;
                    }
                    seen = descriptor.0.load(SeqCst);
                }
                alarm.rise();
                alarm.heard();
            }
            neighbour.join().expect("neighbour");
            let asleep = taken < 2 && consumer.ready() > 0 && descriptor.0.load(SeqCst) == seen;
            let awake = shared.0.word.load(Relaxed) & ASLEEP == 0;
            assert!(!asleep || awake, "a lost wake-up: {taken} taken, {seen} wakes seen");
        });
    }
}
