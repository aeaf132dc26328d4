//! The doorbell under ordinary threads, and under loom.

use super::*;

#[cfg(not(loom))]
mod threads {
    use super::*;

    fn links(count: usize) -> Vec<AtomicU32> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }

    fn taken(bell: &Doorbell, links: &[AtomicU32]) -> Vec<u32> {
        bell.take(|index| links.get(index as usize)).collect()
    }

    #[test]
    fn the_first_ringer_is_served_first() {
        let (bell, links) = (Doorbell::new(), links(4));
        for index in [2, 0, 3] {
            assert_eq!(bell.ring(index, &links[index as usize]), Ok(Ring::Heard));
        }
        assert!(bell.has_rung());
        assert_eq!(taken(&bell, &links), [2, 0, 3]);
        assert!(!bell.has_rung());
        assert!(taken(&bell, &links).is_empty());
    }

    #[test]
    fn one_that_rings_at_a_sleeper_is_told_to_wake_it_once() {
        let (bell, links) = (Doorbell::new(), links(2));
        assert!(bell.park());
        assert_eq!(bell.ring(0, &links[0]), Ok(Ring::Wake));
        assert_eq!(bell.ring(1, &links[1]), Ok(Ring::Heard));
        assert!(!bell.park(), "it was rung: look first");
        assert_eq!(taken(&bell, &links), [0, 1]);
        assert!(bell.park());
        assert!(taken(&bell, &links).is_empty(), "woken by something else");
        assert_eq!(bell.ring(0, &links[0]), Ok(Ring::Heard), "and so awake");
    }

    #[test]
    fn nothing_rings_at_a_worker_that_has_stopped_and_earlier_ringers_are_found() {
        let (bell, links) = (Doorbell::new(), links(2));
        bell.ring(1, &links[1]).unwrap();
        bell.stop();
        assert_eq!(bell.ring(0, &links[0]), Err(DoorbellStopped));
        assert_eq!(taken(&bell, &links), [1]);
        assert_eq!(bell.ring(1, &links[1]), Err(DoorbellStopped), "taking does not start it again");
        assert!(bell.is_stopped());
    }

    /// A slot may ring again as soon as it has been yielded: its link is not read after that.
    #[test]
    fn a_slot_may_ring_again_while_the_rest_is_served() {
        let (bell, links) = (Doorbell::new(), links(3));
        (0..3).for_each(|index| assert!(bell.ring(index, &links[index as usize]).is_ok()));
        let mut rung = bell.take(|index| links.get(index as usize));
        assert_eq!(rung.next(), Some(0));
        bell.ring(0, &links[0]).unwrap();
        assert_eq!(rung.collect::<Vec<_>>(), [1, 2]);
        assert_eq!(taken(&bell, &links), [0]);
    }

    #[test]
    fn an_index_beyond_the_slots_ends_the_list_and_harms_nothing() {
        let (bell, links) = (Doorbell::new(), links(1));
        bell.ring(7, &AtomicU32::new(0)).unwrap();
        assert!(taken(&bell, &links).is_empty());
    }

    /// Four threads ring for slots of their own, each again only when it was served.
    #[test]
    fn no_ring_is_lost_between_threads() {
        use std::sync::atomic::AtomicBool;
        const RINGS: u32 = 2_000;
        let (bell, links) = (Doorbell::new(), links(4));
        let queued: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for index in 0..4_u32 {
                let (bell, links, queued) = (&bell, &links, &queued);
                scope.spawn(move || {
                    let at = index as usize;
                    for _ in 0..RINGS {
                        while queued[at].swap(true, AcqRel) {
                            std::thread::yield_now();
                        }
                        bell.ring(index, &links[at]).unwrap();
                    }
                });
            }
            let mut served = 0;
            while served < 4 * RINGS {
                for index in bell.take(|index| links.get(index as usize)) {
                    assert!(queued[index as usize].swap(false, AcqRel), "in the list twice");
                    served += 1;
                }
                std::thread::yield_now();
            }
        });
    }
}

/// Weakened by hand, each made a model fail: `take`'s exchange without acquire (a payload or a link
/// is read too early), `park` that sleeps although it was rung, and `ring` that overlooks
/// `STOPPED`.
#[cfg(loom)]
mod model {
    use loom::{sync::Notify, thread};

    use super::*;
    use crate::shim::{Arc, UnsafeCell, atomic::AtomicBool};

    /// A slot as a socket has it: a flag that it is queued, and a payload.
    struct Slot {
        link: AtomicU32,
        queued: AtomicBool,
        said: UnsafeCell<u32>,
    }

    struct Shared {
        bell: Doorbell,
        slots: [Slot; 2],
        worker: Notify,
    }

    // SAFETY: `said` is written by the ringer before it rings and read by the worker after it was
    // taken; loom checks that this is so.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}

    fn shared() -> Arc<Shared> {
        let slot = || Slot {
            link: AtomicU32::new(0),
            queued: AtomicBool::new(false),
            said: UnsafeCell::new(0),
        };
        Arc::new(Shared { bell: Doorbell::new(), slots: [slot(), slot()], worker: Notify::new() })
    }

    impl Shared {
        fn ring(&self, index: u32) -> Result<(), DoorbellStopped> {
            let slot = &self.slots[index as usize];
            assert!(!slot.queued.swap(true, AcqRel));
            // SAFETY: not queued until now, so the worker does not look.
            slot.said.with_mut(|said| unsafe { *said += 1 });
            match self.bell.ring(index, &slot.link)? {
                Ring::Wake => self.worker.notify(),
                Ring::Heard => {}
            }
            Ok(())
        }

        fn serve(&self) -> u32 {
            let mut heard = 0;
            for index in self.bell.take(|index| self.slots.get(index as usize).map(|s| &s.link)) {
                let slot = &self.slots[index as usize];
                // SAFETY: it is queued: its ringer does not touch it.
                heard += slot.said.with_mut(|said| unsafe { core::mem::take(&mut *said) });
                assert!(slot.queued.swap(false, AcqRel));
            }
            heard
        }
    }

    fn bounded(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.check(model);
    }

    #[test]
    fn a_sleeping_worker_hears_two_ringers() {
        bounded(|| {
            let ours = shared();
            let threads = [0, 1].map(|index| {
                let theirs = Arc::clone(&ours);
                thread::spawn(move || theirs.ring(index).unwrap())
            });
            let mut heard = 0;
            while heard < 2 {
                heard += ours.serve();
                if heard < 2 && ours.bell.park() {
                    ours.worker.wait();
                }
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    /// The worker stops during a ring: the ringer gets an error, or its slot is found in the list.
    #[test]
    fn a_ring_at_a_worker_that_stops_is_refused_or_found() {
        bounded(|| {
            let ours = shared();
            let theirs = Arc::clone(&ours);
            let thread = thread::spawn(move || theirs.ring(0).is_err());
            ours.bell.stop();
            let found = ours.serve();
            let refused = thread.join().unwrap();
            assert_eq!(found, u32::from(!refused), "neither refused nor found");
            assert!(ours.bell.is_stopped());
        });
    }

    /// Why the flag is in the word: a worker that looks, and then announces its sleep, is never
    /// woken.
    #[test]
    #[should_panic(expected = "asleep for ever")]
    fn a_worker_that_says_too_late_that_it_sleeps_is_never_woken() {
        bounded(|| {
            let ours = shared();
            let sleeps = Arc::new(AtomicBool::new(false));
            let (theirs, flag) = (Arc::clone(&ours), Arc::clone(&sleeps));
            let thread = thread::spawn(move || {
                theirs.ring(0).unwrap();
                flag.swap(false, AcqRel)
            });
            let slept = !ours.bell.has_rung();
            if slept {
                sleeps.swap(true, AcqRel);
            }
            let told = thread.join().unwrap();
            assert!(!slept || told, "asleep for ever");
        });
    }
}
