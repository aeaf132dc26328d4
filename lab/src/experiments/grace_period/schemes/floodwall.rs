//! `floodwall_sync::qsbr`, with its own policy or a historic one. See `schemes.rs`.

use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps, Moment, Paced, Policy, Reader};

use super::{Halves, ObjectPool, ReadSide, Ticket, WriteSide};

struct Reads<P: Policy> {
    objects: Arc<ObjectPool>,
    reader: Reader<P>,
}

struct Writes<P: Policy> {
    objects: Arc<ObjectPool>,
    domain: Domain<P>,
    limbo: Limbo<Ticket, P>,
    object_bytes: usize,
}

pub(super) fn halves<P: Policy>(objects: &Arc<ObjectPool>, policy: P, caps: LimboCaps) -> Halves {
    let domain = Domain::with_policy(1, policy);
    let limbo = domain.limbo(caps);
    let Ok(reader) = domain.reader_at(objects.now()) else {
        unreachable!("a domain of one has one reader")
    };
    let object_bytes = caps.bytes / caps.items.max(1);
    let reads = Reads { objects: Arc::clone(objects), reader };
    (
        Box::new(reads),
        Box::new(Writes { objects: Arc::clone(objects), domain, limbo, object_bytes }),
    )
}

impl<P: Policy> ReadSide for Reads<P> {
    fn round(&mut self, work: &mut dyn FnMut(&dyn Fn() -> usize)) {
        let view = self.reader.view();
        work(&|| {
            // What a table does with a view: it may look as long as it has one.
            let _ = &view;
            self.objects.shown.load(Acquire)
        });
        self.reader.pass(Moment::RoundEnd, self.objects.now());
    }

    fn idle(&mut self, sleep: &mut dyn FnMut()) {
        self.reader.pass(Moment::Idle, self.objects.now());
        let parked = self.reader.park();
        sleep();
        parked.wake(self.objects.now());
    }
}

impl<P: Policy> WriteSide for Writes<P> {
    fn turn(&mut self, slots: Range<usize>) -> u64 {
        let mut refused = 0;
        for slot in slots {
            // A writer that makes many changes at once frees in between, as much as it unlinks.
            if slot % Paced::BATCH == 0 {
                self.limbo.reclaim(|| self.objects.now(), drop);
            }
            let Ok(room) = self.limbo.reserve(self.object_bytes) else {
                refused += 1;
                continue;
            };
            let old = self.objects.shown.swap(slot, AcqRel);
            room.retire(self.objects.ticket(old), self.objects.now());
        }
        self.limbo.reclaim(|| self.objects.now(), drop);
        refused
    }

    fn finish(&mut self) {
        self.limbo.drain(self.objects.now(), drop);
    }

    fn high_water(&self) -> Option<(u64, u64)> {
        let stats = self.limbo.stats();
        Some((stats.items_max as u64, stats.bytes_max as u64))
    }

    fn stuck(&self) -> Option<(usize, Duration)> {
        let mut stalled = self.domain.stalled(self.objects.now(), Paced::STALL_AFTER);
        stalled.next().map(|stall| (stall.worker, stall.age))
    }
}
