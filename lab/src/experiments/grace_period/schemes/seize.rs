//! `seize`: a reader has a guard for a round, a writer for a turn. See `schemes.rs`.
//!
//! It hands over what was unlinked in batches (32 or more), and the last thread to leave frees;
//! flushed, its writer hands its batch over after every turn that unlinked something. Its interface
//! is raw pointers, which is why this one file of the lab holds `unsafe`.
#![expect(unsafe_code, reason = "seize has no safe interface")]

use core::ops::Range;
use core::ptr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use seize::{Collector, Guard as _};

use super::{Halves, ObjectPool, ReadSide, Ticket, WriteSide};

/// What both halves share: the object that is shown, which this owns.
struct Shared {
    shown: AtomicPtr<Ticket>,
    collector: Collector,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: no other thread is left, and what is shown came from a box that was never
        // unlinked.
        drop(unsafe { Box::from_raw(self.shown.load(Relaxed)) });
    }
}

struct Reads(Arc<Shared>);

struct Writes {
    objects: Arc<ObjectPool>,
    shared: Arc<Shared>,
    flushes: bool,
}

pub(super) fn halves(objects: &Arc<ObjectPool>, flushes: bool) -> Halves {
    let shown = AtomicPtr::new(Box::into_raw(Box::new(objects.held(0))));
    let shared = Arc::new(Shared { shown, collector: Collector::new() });
    let writes = Writes { objects: Arc::clone(objects), shared: Arc::clone(&shared), flushes };
    (Box::new(Reads(shared)), Box::new(writes))
}

impl ReadSide for Reads {
    fn round(&mut self, work: &mut dyn FnMut(&dyn Fn() -> usize)) {
        let guard = self.0.collector.enter();
        work(&|| {
            let shown = guard.protect(&self.0.shown, Acquire);
            // SAFETY: it came from a box, and the guard keeps what it shows from being freed.
            unsafe { (*shown).slot }
        });
    }

    fn idle(&mut self, sleep: &mut dyn FnMut()) {
        sleep();
    }
}

impl WriteSide for Writes {
    fn turn(&mut self, slots: Range<usize>) -> u64 {
        let guard = self.shared.collector.enter();
        let any = !slots.is_empty();
        for slot in slots {
            let new = Box::into_raw(Box::new(self.objects.held(slot)));
            let old = guard.swap(&self.shared.shown, new, AcqRel);
            // SAFETY: it came from a box, and only this writer, which has just unlinked it, frees.
            self.objects.unlinked(unsafe { (*old).slot });
            // SAFETY: it was unlinked above and is retired once; `free` is for boxes.
            unsafe { guard.defer_retire(old, free) };
        }
        if self.flushes && any {
            guard.flush();
        }
        0
    }

    fn finish(&mut self) {
        // SAFETY: the reader is gone and has left its last guard; the writer is here.
        unsafe { self.shared.collector.reclaim_all() };
    }
}

/// Frees an object.
///
/// # Safety
/// It came from a box, and no reader looks at it any more.
unsafe fn free(object: *mut Ticket, _: &Collector) {
    // SAFETY: as guaranteed.
    drop(unsafe { Box::from_raw(ptr::from_mut(&mut *object)) });
}
