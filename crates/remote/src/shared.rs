//! `RemoteShared`: all that programs and workers share.
//!
//! Made once, before the workers: [`Remote::new`](super::Remote::new) gives each worker's stack its
//! [`RemoteShard`](super::RemoteShard). Clones are the same. Invariant: all of this is allocated
//! at the start and lives as long as the last handle.

use core::task::Waker;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use floodwall_packet::{Lane, Pool};
use floodwall_sync::{CachePadded, Call, Doorbell, Ring, WakerCell};
use floodwall_udp::UdpDrops;

use super::errno::Errno;
use super::request::SocketRequest;
use super::slot::{RemoteSlot, SLOT_STOPPED};
use super::tcp::{TcpShared, TcpSlot};
use super::wake::WakeGroups;

/// A worker's doorbell, and how it is woken where it sleeps.
pub(super) struct SharedBell {
    pub(super) bell: Doorbell,
    pub(super) alarm: OnceLock<Waker>,
}

/// What programs and workers share.
pub(super) struct RemoteShared {
    pub(super) slots: Box<[RemoteSlot]>,
    pub(super) bells: Box<[CachePadded<SharedBell>]>,
    pub(super) groups: WakeGroups,
    /// Of each worker, what it refused for each slot.
    pub(super) refused: Box<[CachePadded<UdpDrops>]>,
    /// Slots with writers that wait for memory, in FIFO order.
    pub(super) dry: CachePadded<Doorbell>,
    /// Slots that every shard has released.
    pub(super) freed: CachePadded<Doorbell>,
    pub(super) lanes: Box<[CachePadded<Lane>]>,
    /// True bytes of the lanes' frames, for each worker.
    pub(super) share: u64,
    pub(super) requests: SyncSender<SocketRequest>,
    /// To the control shard: requests wait.
    pub(super) asked: Call,
    /// The connections'.
    pub(super) tcp: TcpShared,
}

impl RemoteShared {
    /// The link of a slot in its worker's doorbell; the place behind the last slot is the
    /// requests', and behind it are TCP's.
    #[inline]
    pub(super) fn link(&self, index: u32) -> Option<&AtomicU32> {
        match self.slots.get(index as usize) {
            Some(slot) => Some(&slot.link),
            None => match (index as usize).checked_sub(self.slots.len())? {
                0 => Some(self.asked.link()),
                number => self.tcp.link(number - 1),
            },
        }
    }

    /// The worker that sends for a slot.
    #[inline]
    pub(super) fn home(&self, index: u32) -> usize {
        index as usize % self.bells.len().max(1)
    }

    /// Rings for a slot (or, behind the last one, for requests) at a worker, and wakes it where it
    /// sleeps.
    #[inline]
    pub(super) fn ring(&self, worker: usize, index: u32) -> Result<(), Errno> {
        let (Some(bell), Some(link)) = (self.bells.get(worker), self.link(index)) else {
            return Err(Errno::STOPPED);
        };
        if bell.bell.ring(index, link).map_err(|_| Errno::STOPPED)? == Ring::Wake {
            self.alarm(worker);
        }
        Ok(())
    }

    /// Wakes a worker that sleeps.
    #[cold]
    pub(super) fn alarm(&self, worker: usize) {
        if let Some(alarm) = self.bells.get(worker).and_then(|bell| bell.alarm.get()) {
            alarm.wake_by_ref();
        }
    }

    /// Whether a worker has stopped: then no handle is served any more.
    #[inline]
    pub(super) fn is_stopped(&self, worker: usize) -> bool {
        self.bells.get(worker).is_none_or(|bell| bell.bell.is_stopped())
    }

    /// Hands a request to the control shard; `false` where too many wait, and then it has answered
    /// so. One that is dropped without being looked at answers that the stack has stopped.
    pub(super) fn request(&self, request: SocketRequest) -> bool {
        if let Err(TrySendError::Full(request)) = self.requests.try_send(request) {
            request.refuse(Errno::AGAIN);
            return false;
        }
        if self.asked.make() {
            // A worker that has stopped drops what waits for it.
            let _ = self.ring(0, self.slots.len() as u32);
        }
        true
    }

    /// Runs `act` on a lane's pool: the caller's lane if it is free, else another.
    pub(super) fn with_lane<R>(&self, mine: usize, act: impl FnOnce(&Pool) -> R) -> Option<R> {
        let count = self.lanes.len().max(1);
        let mut act = act;
        for step in 0..count {
            match self.lanes.get((mine + step) % count)?.try_enter(act) {
                Ok(done) => return Some(done),
                Err(back) => act = back,
            }
        }
        Some(self.lanes.get(mine % count)?.enter(act))
    }

    /// What stands for a slot, by its number in the doorbell, among those that wait for memory.
    fn thirst(&self, index: u32) -> Option<WakeupWant<'_>> {
        if let Some(slot) = self.slots.get(index as usize) {
            let RemoteSlot { dry_link, dry, writer, write_group, .. } = slot;
            return Some(WakeupWant { link: dry_link, dry, writer, group: write_group });
        }
        let TcpSlot { dry_link, dry, writer, write_group, .. } =
            self.tcp.slot(index.checked_sub(self.tcp_bell(0))?)?;
        Some(WakeupWant { link: dry_link, dry, writer, group: write_group })
    }

    /// Puts a slot, by its number in the doorbell, among those that wait for memory.
    pub(super) fn wait_for_memory(&self, index: u32) {
        if let Some(thirst) = self.thirst(index)
            && thirst.dry.swap(1, Ordering::AcqRel) == 0
        {
            // This bell is never stopped: stopping the stack wakes all waiters in any case.
            let _ = self.dry.ring(index, thirst.link);
        }
    }

    /// The slots that wait for memory, which may ring again: the runtime and waker of each.
    pub(super) fn dry_slots(&self) -> impl Iterator<Item = (u8, Option<Waker>)> {
        let rung = self.dry.take(|index| self.thirst(index).map(|thirst| thirst.link));
        rung.filter_map(|index| {
            let thirst = self.thirst(index)?;
            thirst.dry.swap(0, Ordering::AcqRel);
            Some((thirst.group.load(Ordering::Relaxed), thirst.writer.take()))
        })
    }

    /// Every shard has released the slot: it may be used again.
    pub(super) fn free(&self, index: u32) {
        if let Some(slot) = self.slots.get(index as usize) {
            slot.clear();
            let _ = self.freed.ring(index, &slot.link);
        }
    }

    /// Stops all workers' doorbells after one has ended for any reason: later rings fail, and all
    /// waiters are woken.
    pub(super) fn stop(&self) {
        self.bells.iter().for_each(|bell| bell.bell.stop());
        for slot in &self.slots {
            slot.rx.set(SLOT_STOPPED);
            slot.reader.take().into_iter().for_each(Waker::wake);
            slot.writer.take().into_iter().for_each(Waker::wake);
        }
        self.tcp.stop();
    }
}

/// A slot of either kind, of a writer that waits for memory.
struct WakeupWant<'a> {
    link: &'a AtomicU32,
    dry: &'a AtomicU8,
    writer: &'a WakerCell,
    group: &'a AtomicU8,
}
