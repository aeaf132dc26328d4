//! The alarm alone, and under loom beside the ring that it announces.

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
    fn one_that_was_rung_does_not_fall_asleep() {
        let alarm = Alarm::new();
        assert!(!alarm.ring() && !alarm.doze());
        assert!(!alarm.ring(), "it is awake still");
        assert!(alarm.heard() && alarm.doze());
    }
}

/// The hand-off of two and three workers: rings' items, announced by nudges; the sleeper's rule
/// kept. Sleeping is modelled by a counter of wake-ups (the descriptor): a sleeper has seen none,
/// and a ringer that has to wake adds one. Each ordering, and the look after `doze`, is left out by
/// a test, and a model must notice.
#[cfg(loom)]
mod model {
    use loom::thread;

    use super::*;
    use crate::shim::{
        Arc, UnsafeCell,
        atomic::{AtomicBool, Ordering::SeqCst},
    };
    use crate::spsc::{self, Consumer, Producer};
    use crate::weaken::is_noticed;

    /// What the system records of the sleeper: how often its descriptor was written.
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

    /// An alarm and the descriptor that ends its owner's sleep.
    #[derive(Default)]
    struct Bell {
        alarm: Alarm,
        descriptor: Descriptor,
    }

    impl Bell {
        fn nudge(&self) {
            if self.alarm.nudge() {
                self.descriptor.write();
            }
        }

        /// Whether the owner sleeps for ever; checked when all others are done.
        fn is_lost(&self, sleeps: bool) -> bool {
            sleeps && !self.descriptor.is_readable()
        }
    }

    /// So many preemptions in one execution at most, or the number in `LOOM_MAX_PREEMPTIONS`.
    fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(preemptions);
        builder.check(model);
    }

    fn hand_over<T>(to: &mut Producer<T>, item: T, bell: &Bell) {
        assert_eq!(to.push_batch([item]), 1);
        bell.nudge();
    }

    /// A turn's end: whether the owner sleeps.
    fn falls_asleep<T>(bell: &Bell, from: &mut [&mut Consumer<T>], looks: bool) -> bool {
        bell.alarm.doze() && !(looks && from.iter_mut().any(|ring| ring.ready() > 0))
    }

    /// One hands over, one falls asleep, with the look after `doze` or without it.
    fn one_neighbour(looks: bool) {
        let (mut producer, mut consumer) = spsc::ring(2);
        let ours = Arc::new(Bell::default());
        let theirs = Arc::clone(&ours);
        let neighbour = thread::spawn(move || hand_over(&mut producer, Box::new(1), &theirs));
        let found = consumer.pop().is_some();
        let sleeps = !found && falls_asleep(&ours, &mut [&mut consumer], looks);
        neighbour.join().expect("neighbour");
        assert!(!ours.is_lost(sleeps), "a lost wake-up");
        ours.alarm.rise();
        assert!(found || consumer.pop().is_some());
    }

    /// Two workers hand over to each other, and fall asleep, both at once.
    fn both_ways() {
        let bells = Arc::new([Bell::default(), Bell::default()]);
        let (mut to_one, mut at_one) = spsc::ring(1);
        let (mut to_other, mut at_other) = spsc::ring(1);
        let theirs = Arc::clone(&bells);
        let other = thread::spawn(move || {
            hand_over(&mut to_one, 1, &theirs[0]);
            let sleeps = falls_asleep(&theirs[1], &mut [&mut at_other], true);
            (sleeps, at_other)
        });
        hand_over(&mut to_other, 2, &bells[1]);
        let sleeps = falls_asleep(&bells[0], &mut [&mut at_one], true);
        let (other_sleeps, mut at_other) = other.join().expect("other");
        let lost = [bells[0].is_lost(sleeps), bells[1].is_lost(other_sleeps)];
        assert_eq!(lost, [false; 2], "lost wake-ups");
        assert_eq!((at_one.pop(), at_other.pop()), (Some(1), Some(2)));
    }

    /// Two hand over to a third, each by a ring of its own; two items, one sleep.
    fn two_neighbours() {
        let (producers, mut consumers): (Vec<_>, Vec<_>) = (0..2).map(|_| spsc::ring(1)).unzip();
        let ours = Arc::new(Bell::default());
        let neighbours: Vec<_> = producers
            .into_iter()
            .map(|mut producer| {
                let theirs = Arc::clone(&ours);
                thread::spawn(move || hand_over(&mut producer, 7, &theirs))
            })
            .collect();
        let mut rings: Vec<_> = consumers.iter_mut().collect();
        let sleeps = falls_asleep(&ours, &mut rings, true);
        neighbours.into_iter().for_each(|neighbour| neighbour.join().expect("neighbour"));
        assert!(!ours.is_lost(sleeps), "a lost wake-up");
        assert!(ours.descriptor.0.load(SeqCst) <= 1, "two system calls for one sleep");
        assert!(consumers.iter_mut().all(|ring| ring.pop() == Some(7)));
    }

    /// The owner sees what the ringer did before, with nothing else between the two.
    fn hearing() {
        struct Asked(UnsafeCell<u32>, AtomicBool);
        // SAFETY: written before the ring, read after `heard` returned true: what the model checks.
        unsafe impl Sync for Asked {}
        // SAFETY: as above.
        unsafe impl Send for Asked {}
        let shared = Arc::new((Alarm::new(), Asked(UnsafeCell::new(0), AtomicBool::new(false))));
        let theirs = Arc::clone(&shared);
        let asker = thread::spawn(move || {
            // SAFETY: the ring has not been seen yet.
            theirs.1.0.with_mut(|asked| unsafe { *asked = 1 });
            theirs.1.1.store(true, Relaxed);
            let _ = theirs.0.ring();
        });
        let (alarm, asked) = &*shared;
        // A sleep that ends by itself comes between the ring and the owner's look, or does not.
        if alarm.doze() {
            alarm.rise();
        }
        if alarm.heard() {
            // SAFETY: `heard` returned true.
            assert_eq!(asked.0.with(|asked| unsafe { *asked }), 1);
            assert!(asked.1.load(Relaxed));
        }
        asker.join().expect("asker");
    }

    #[test]
    fn what_was_handed_over_is_found_before_the_sleep_or_ends_it() {
        bounded(4, || one_neighbour(true));
    }

    #[test]
    #[should_panic(expected = "a lost wake-up")]
    fn one_that_does_not_look_after_it_said_that_it_sleeps_is_never_woken() {
        bounded(4, || one_neighbour(false));
    }

    #[test]
    fn of_two_that_hand_over_to_each_other_none_sleeps_over_its_mail() {
        bounded(3, both_ways);
    }

    #[test]
    fn of_two_neighbours_at_once_one_wakes_the_sleeper() {
        bounded(2, two_neighbours);
    }

    #[test]
    fn one_that_hears_a_ring_sees_what_was_done_before_it() {
        bounded(4, hearing);
    }

    #[test]
    fn every_weakened_ordering_is_noticed_by_each_of_its_models() {
        let one: fn() = || one_neighbour(true);
        let mutants: [(WeakenPoint, fn()); 6] = [
            (WeakenPoint::NudgeFence, one),
            (WeakenPoint::NudgeFence, both_ways),
            (WeakenPoint::DozeFence, one),
            (WeakenPoint::DozeFence, both_ways),
            (WeakenPoint::RingRelease, hearing),
            (WeakenPoint::HeardAcquire, hearing),
        ];
        let missed = mutants.into_iter().enumerate();
        let missed =
            missed.filter(|(_, (point, model))| !is_noticed(*point, || bounded(3, *model)));
        let missed: Vec<_> = missed.map(|(at, (point, _))| (at, point)).collect();
        assert!(missed.is_empty(), "models that cannot fail: {missed:?}");
    }

    #[test]
    fn of_a_ring_and_a_nudge_at_once_exactly_one_wakes_a_sleeper() {
        bounded(4, || {
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
    fn one_that_sleeps_twice_is_woken_twice() {
        bounded(4, || {
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
