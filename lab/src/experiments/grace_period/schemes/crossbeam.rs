//! `crossbeam-epoch`: a reader is pinned for a round, a writer for a turn. See `schemes.rs`.
//!
//! It keeps what was unlinked in bags of 64 and collects now and then while pinning; flushed, its
//! writer hands over its bag and collects after every turn that unlinked something.

use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crossbeam_epoch::{Collector, LocalHandle};

use super::{Halves, ObjectPool, ReadSide, WriteSide};

/// A handle belongs to the thread that made it, so the reader makes its own.
struct Reads {
    objects: Arc<ObjectPool>,
    collector: Collector,
}

std::thread_local! {
    /// The handle of the thread's reader; a run's reader thread has one run.
    static HANDLE: core::cell::RefCell<Option<LocalHandle>> = const {
        core::cell::RefCell::new(None)
    };
}

struct Writes {
    objects: Arc<ObjectPool>,
    collector: Collector,
    handle: Option<LocalHandle>,
    flushes: bool,
}

pub(super) fn halves(objects: &Arc<ObjectPool>, flushes: bool) -> Halves {
    let collector = Collector::new();
    let handle = Some(collector.register());
    let reads = Reads { objects: Arc::clone(objects), collector: collector.clone() };
    let writes = Writes { objects: Arc::clone(objects), collector, handle, flushes };
    (Box::new(reads), Box::new(writes))
}

impl ReadSide for Reads {
    fn round(&mut self, work: &mut dyn FnMut(&dyn Fn() -> usize)) {
        HANDLE.with_borrow_mut(|handle| {
            let handle = handle.get_or_insert_with(|| self.collector.register());
            let guard = handle.pin();
            work(&|| {
                let _ = &guard;
                self.objects.shown.load(Acquire)
            });
        });
    }

    fn idle(&mut self, sleep: &mut dyn FnMut()) {
        sleep();
    }
}

impl WriteSide for Writes {
    fn turn(&mut self, slots: Range<usize>) -> u64 {
        let Some(handle) = &self.handle else { return 0 };
        let guard = handle.pin();
        let any = !slots.is_empty();
        for slot in slots {
            let ticket = self.objects.ticket(self.objects.shown.swap(slot, AcqRel));
            guard.defer(move || drop(ticket));
        }
        if self.flushes && any {
            guard.flush();
        }
        0
    }

    fn finish(&mut self) {
        // Two advances make everything old enough; a collection frees eight bags at most.
        self.handle = None;
        let handle = self.collector.register();
        for _ in 0..100_000 {
            if self.objects.waiting() == 0 {
                break;
            }
            handle.pin().flush();
        }
    }
}
