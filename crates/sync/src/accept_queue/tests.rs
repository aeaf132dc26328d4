//! The accept queue by itself, and under loom with a worker and a program.

use super::*;

#[cfg(not(loom))]
mod alone {
    use super::*;

    fn links(count: usize) -> Vec<AtomicU32> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }

    #[test]
    fn one_that_finds_no_room_is_called_when_there_is_some() {
        let (queue, links) = (AcceptQueue::new(2), links(3));
        for index in 0..2 {
            assert!(queue.has_room(5));
            assert_eq!(queue.hand_over(index, &links[index as usize]), Ok(Ring::Heard));
        }
        assert!(!queue.has_room(5) && !queue.has_room(70));
        assert_eq!(queue.take(|n| links.get(n as usize)).collect::<Vec<_>>(), [0, 1]);
        assert!(!queue.has_room(5), "taken and not accepted");
        let stalled = queue.accepted();
        assert!(stalled.has(5) && stalled.has(70) && !stalled.has(4) && !stalled.is_empty());
        assert!(queue.has_room(5) && queue.accepted().is_empty(), "called once");
    }

    #[test]
    fn nothing_comes_after_the_end_and_what_came_before_is_found() {
        let (queue, links) = (AcceptQueue::new(8), links(2));
        queue.hand_over(0, &links[0]).unwrap();
        assert!(!queue.is_gone() && !queue.is_stopped());
        queue.close();
        assert_eq!(queue.hand_over(1, &links[1]), Err(DoorbellStopped));
        assert!(queue.is_gone() && queue.is_stopped());
        assert_eq!(queue.take(|n| links.get(n as usize)).collect::<Vec<_>>(), [0]);
    }
}

/// Weakened by hand, each made a model fail: `has_room` without its second look, `accepted` that
/// takes the marks before it makes room, `close` that does not stop the list, `close` that stops it
/// but does not set the closed flag, and a ring without release (a connection is seen in halves).
#[cfg(loom)]
mod model {
    use loom::{sync::Notify, thread};

    use super::*;
    use crate::Call;
    use crate::shim::Arc;
    use crate::shim::atomic::Ordering::Relaxed;

    struct Shared {
        queue: AcceptQueue,
        links: [AtomicU32; 2],
        program: Notify,
        bell: Doorbell,
        call: Call,
        worker: Notify,
    }

    impl Shared {
        fn new(max: u32) -> Arc<Self> {
            Arc::new(Self {
                queue: AcceptQueue::new(max),
                links: [AtomicU32::new(0), AtomicU32::new(0)],
                program: Notify::new(),
                bell: Doorbell::new(),
                call: Call::new(),
                worker: Notify::new(),
            })
        }

        /// Hands one over; whether the worker has it still.
        fn finish(&self, index: u32) -> bool {
            match self.queue.hand_over(index, &self.links[index as usize]) {
                Ok(Ring::Wake) => self.program.notify(),
                Ok(Ring::Heard) => {}
                Err(DoorbellStopped) => return true,
            }
            false
        }

        fn take(&self) -> usize {
            self.queue.take(|index| self.links.get(index as usize)).count()
        }

        fn call_worker(&self) {
            if self.call.make() && self.bell.ring(0, self.call.link()) == Ok(Ring::Wake) {
                self.worker.notify();
            }
        }

        /// The worker sleeps until it is called.
        fn wait_for_a_call(&self) {
            while self.bell.take(|_| Some(self.call.link())).count() == 0 {
                if self.bell.park() {
                    self.worker.wait();
                }
            }
        }
    }

    fn bounded(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.check(model);
    }

    #[test]
    fn a_worker_without_room_is_called_and_both_connections_are_accepted() {
        bounded(|| {
            let ours = Shared::new(1);
            let theirs = Arc::clone(&ours);
            let program = thread::spawn(move || {
                let mut accepted = 0;
                while accepted < 2 {
                    let taken = theirs.take();
                    for _ in 0..taken {
                        if theirs.queue.accepted().has(3) {
                            theirs.call_worker();
                        }
                    }
                    accepted += taken;
                    if accepted < 2 && theirs.queue.park() {
                        theirs.program.wait();
                    }
                }
            });
            for index in 0..2 {
                while !ours.queue.has_room(3) {
                    ours.wait_for_a_call();
                    ours.call.answer(|| {});
                }
                assert!(!ours.finish(index), "not closed yet");
            }
            program.join().unwrap();
        });
    }

    #[test]
    fn what_is_finished_while_the_program_goes_is_one_sides_and_the_worker_hears_of_the_end() {
        bounded(|| {
            let ours = Shared::new(8);
            let theirs = Arc::clone(&ours);
            let program = thread::spawn(move || {
                theirs.queue.close();
                let reset = theirs.take();
                theirs.call_worker();
                reset
            });
            let left = (0..2).filter(|index| ours.finish(*index)).count();
            loop {
                ours.wait_for_a_call();
                if ours.call.answer(|| ours.queue.is_gone()) {
                    break;
                }
            }
            let reset = program.join().unwrap();
            assert_eq!((left + reset, ours.take()), (2, 0), "each is reset by one side");
        });
    }

    /// Row 78 of docs/threats.md (CVE-2026-43198): what the worker wrote of a connection before it
    /// handed it over is what the program finds.
    #[test]
    fn row_78_a_connection_is_whole_when_the_program_sees_it() {
        bounded(|| {
            let ours = Shared::new(8);
            let ends = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let (theirs, seen) = (Arc::clone(&ours), Arc::clone(&ends));
            let program = thread::spawn(move || {
                let mut accepted = 0;
                while accepted < 2 {
                    for index in theirs.queue.take(|index| theirs.links.get(index as usize)) {
                        assert_eq!(seen[index as usize].load(Relaxed), 7 + index, "in halves");
                        let _ = theirs.queue.accepted();
                        accepted += 1;
                    }
                    if accepted < 2 && theirs.queue.park() {
                        theirs.program.wait();
                    }
                }
            });
            for index in 0..2 {
                ends[index as usize].store(7 + index, Relaxed);
                assert!(!ours.finish(index), "not closed yet");
            }
            program.join().unwrap();
        });
    }
}
