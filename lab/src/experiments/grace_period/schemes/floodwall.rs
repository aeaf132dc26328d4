//! `floodwall_sync::qsbr`, with its own policy or a historic one. See `schemes.rs`.

use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use floodwall_sync::qsbr::{Domain, Limbo, LimboCaps, Moment, Paced, Policy, Reader};

use super::{Halves, ReadSide, Ticket, WriteSide, Yard};

struct Reads<P: Policy> {
    yard: Arc<Yard>,
    reader: Reader<P>,
}

struct Writes<P: Policy> {
    yard: Arc<Yard>,
    domain: Domain<P>,
    limbo: Limbo<Ticket, P>,
    object_bytes: usize,
}

pub(super) fn halves<P: Policy>(yard: &Arc<Yard>, policy: P, caps: LimboCaps) -> Halves {
    let domain = Domain::with_policy(1, policy);
    let limbo = domain.limbo(caps);
    let Ok(reader) = domain.reader_at(yard.now()) else {
        unreachable!("a domain of one has one reader")
    };
    let object_bytes = caps.bytes / caps.items.max(1);
    let reads = Reads { yard: Arc::clone(yard), reader };
    (Box::new(reads), Box::new(Writes { yard: Arc::clone(yard), domain, limbo, object_bytes }))
}

impl<P: Policy> ReadSide for Reads<P> {
    fn round(&mut self, work: &mut dyn FnMut(&dyn Fn() -> usize)) {
        let view = self.reader.view();
        work(&|| {
            // What a table does with a view: it may look as long as it has one.
            let _ = &view;
            self.yard.shown.load(Acquire)
        });
        self.reader.pass(Moment::RoundEnd, self.yard.now());
    }

    fn idle(&mut self, sleep: &mut dyn FnMut()) {
        self.reader.pass(Moment::Idle, self.yard.now());
        let parked = self.reader.park();
        sleep();
        parked.wake(self.yard.now());
    }
}

impl<P: Policy> WriteSide for Writes<P> {
    fn turn(&mut self, slots: Range<usize>) -> u64 {
        let mut refused = 0;
        for slot in slots {
            // A writer that makes many changes at once frees in between, as much as it unlinks.
            if slot % Paced::BATCH == 0 {
                self.limbo.reclaim(|| self.yard.now(), drop);
            }
            let Ok(room) = self.limbo.reserve(self.object_bytes) else {
                refused += 1;
                continue;
            };
            let old = self.yard.shown.swap(slot, AcqRel);
            room.retire(self.yard.ticket(old), self.yard.now());
        }
        self.limbo.reclaim(|| self.yard.now(), drop);
        refused
    }

    fn finish(&mut self) {
        self.limbo.drain(self.yard.now(), drop);
    }

    fn high_water(&self) -> Option<(u64, u64)> {
        let stats = self.limbo.stats();
        Some((stats.items_max as u64, stats.bytes_max as u64))
    }

    fn stuck(&self) -> Option<(usize, Duration)> {
        let mut stalled = self.domain.stalled(self.yard.now(), Paced::STALL_AFTER);
        stalled.next().map(|stall| (stall.worker, stall.age))
    }
}
