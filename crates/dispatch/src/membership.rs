//! `GroupCommands`: what makes a worker one of a worker group.
//!
//! Made by `worker_group.rs` on the worker's thread, called by the worker's turn. It holds the
//! worker's reader of what the control shard publishes (`qsbr`), the steering that selects its own
//! packets, its ends of the hand-off rings, and the function that makes its engine again.
//!
//! Invariant: a worker looks only within a call of its engine, and is offline while it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use floodwall_base::{Instant, Randomness, Steering, WorkerId};
use floodwall_device::Medium;
use floodwall_packet::{Burst, Peers, Pool};
use floodwall_sync::qsbr::{Domain, Reader};
use floodwall_wire::steer;

use crate::bell::Bell;
use crate::exchange::Exchange;
use crate::shared_pressure::SharedPressure;
use crate::worker_counters::WorkerCounters;

/// What the engine of one worker is made with.
#[derive(Debug)]
pub struct Setting<'a> {
    /// Which worker: [`WorkerId::CONTROL`] is made first.
    pub worker: WorkerId,
    /// How many there are.
    pub workers: u16,
    /// This worker's memory.
    pub pool: &'a Pool,
    /// This worker's randomness.
    pub random: &'a mut Randomness,
    /// The time.
    pub now: Instant,
    /// The mapping of flows to workers.
    pub steering: Steering,
    /// What all workers read together is published under it.
    pub domain: &'a Domain,
    /// How many times it has been made before: 0 at the start.
    pub restarts: u64,
    pub(crate) bells: &'a [Bell],
}

impl Setting<'_> {
    /// How other threads wake this worker, or another one of the worker group; `None` where there
    /// is none of that number.
    #[must_use]
    pub fn waker(&self, worker: WorkerId) -> Option<Waker> {
        self.bells.get(usize::from(worker.0)).map(Bell::waker)
    }
}

/// How an engine is made, at the start and again after a panic.
pub(crate) type Make<E> = dyn Fn(&mut Setting<'_>) -> Result<E, String> + Send + Sync;

/// A worker's membership of a worker group.
pub(crate) struct GroupCommands<E> {
    pub(crate) id: WorkerId,
    pub(crate) workers: u16,
    pub(crate) reader: Reader,
    pub(crate) steering: Steering,
    pub(crate) exchange: Exchange,
    /// The worker that transmits for each interface.
    pub(crate) carriers: Arc<[Option<WorkerId>]>,
    /// Of which interfaces every worker has a queue.
    pub(crate) common: Arc<[bool]>,
    /// Whether any worker's devices drop unverified flows.
    pub(crate) pressure: SharedPressure,
    /// Devices of the whole worker group that are in service.
    pub(crate) live: Arc<AtomicUsize>,
    /// Workers that have had their last turn.
    pub(crate) ended: Arc<AtomicUsize>,
    pub(crate) bells: Arc<[Bell]>,
    pub(crate) domain: Domain,
    pub(crate) make: Arc<Make<E>>,
}

impl<E> GroupCommands<E> {
    /// What the engine needs of the other workers; nothing where there are none.
    #[inline]
    pub(crate) fn peers(&mut self) -> Option<Peers<'_>> {
        let handoff = &mut self.exchange.offered;
        (self.workers > 1).then(|| Peers { view: self.reader.view(), handoff })
    }

    /// Gives what arrived from number `from` on, and belongs to others, to them.
    #[inline]
    pub(crate) fn sort(
        &mut self,
        medium: Medium,
        from: usize,
        burst: &mut Burst,
        facts: &mut WorkerCounters,
    ) {
        if self.workers == 1 {
            return;
        }
        let Self { id, steering, exchange, .. } = self;
        burst.sort_out(from, |packet| {
            let owner = match medium {
                Medium::Ethernet => steer::frame(steering, packet.first()),
                Medium::Ip => steer::packet(steering, packet.first()),
            };
            if owner == *id {
                return Some(packet);
            }
            exchange.frame(owner, packet, facts);
            None
        });
    }

    /// The other worker that transmits for an interface of which this one has no queue.
    pub(crate) fn carrier(&self, iface: usize) -> Option<WorkerId> {
        self.carriers.get(iface).copied().flatten().filter(|carrier| *carrier != self.id)
    }

    /// Whether every worker has a queue of an interface, and so can report flows to its device.
    #[inline]
    pub(crate) fn is_common(&self, iface: usize) -> bool {
        self.workers == 1 || self.common.get(iface).copied().unwrap_or(false)
    }

    /// One device less. Off the packets' path.
    pub(crate) fn lost_device(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether no worker has a device left.
    pub(crate) fn has_no_device(&self) -> bool {
        self.live.load(Ordering::Acquire) == 0
    }

    /// Whether every worker has had its last turn, after this one; `has_told`: it is counted.
    #[cold]
    pub(crate) fn have_all_ended(&self, has_told: &mut bool) -> bool {
        if !std::mem::replace(has_told, true) {
            self.ended.fetch_add(1, Ordering::AcqRel);
        }
        self.ended.load(Ordering::Acquire) >= usize::from(self.workers)
    }

    /// Whether packets wait for room in a ring to another worker.
    pub(crate) fn owes(&self) -> bool {
        self.exchange.owes()
    }

    pub(crate) fn has_mail(&mut self) -> bool {
        self.exchange.has_mail()
    }

    /// Calls `sleep` offline, so that reclamation does not wait for a sleeping worker. `sleep`
    /// returns any result, and the time of its end.
    pub(crate) fn offline<R>(&mut self, sleep: impl FnOnce() -> (R, Instant)) -> (R, Instant) {
        let parked = self.reader.park();
        let (slept, now) = sleep();
        parked.wake(now);
        (slept, now)
    }
}
