//! What programs and workers share of TCP: the slots of every worker, and its queue of requests.

use core::task::Waker;
use std::sync::Weak;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use floodwall_base::limits;
use floodwall_sync::lock::{Mutex, PoisonError};
use floodwall_sync::{CachePadded, Call};

use super::listening::Listening;
use super::request::TcpRequest;
use super::slot::{FactsCell, STREAM_STOPPED, TcpSlot};
use crate::errno::Errno;
use crate::shared::RemoteShared;

/// Where requests of one worker wait.
pub(crate) struct TcpRequestQueue {
    requests: SyncSender<TcpRequest>,
    /// To the worker: something waits here, or a listener has gone, or has room again.
    pub(crate) call: Call,
}

/// What programs and all workers share for TCP: slots, request queues and listeners.
pub(crate) struct TcpShared {
    /// Each worker's slots behind those of the one before.
    pub(crate) slots: Box<[TcpSlot]>,
    pub(crate) facts: Box<[FactsCell]>,
    /// Slots of one worker.
    pub(crate) each: usize,
    pub(crate) desks: Box<[CachePadded<TcpRequestQueue>]>,
    /// The listeners to wake at the end.
    listeners: Mutex<Vec<Weak<Listening>>>,
    /// The worker that gets the next connection request (round robin).
    turn: AtomicUsize,
}

impl TcpShared {
    pub(crate) fn new(workers: usize, each: usize) -> (Self, Vec<Receiver<TcpRequest>>) {
        let mut receivers = Vec::new();
        let desk = |receivers: &mut Vec<_>| {
            let (requests, receiver) = sync_channel(limits::REMOTE_CONNECTS_MAX);
            receivers.push(receiver);
            CachePadded::new(TcpRequestQueue { requests, call: Call::new() })
        };
        let all = workers * each;
        let shared = Self {
            slots: (0..all).map(|_| TcpSlot::new()).collect(),
            facts: (0..all).map(|_| FactsCell::default()).collect(),
            each,
            desks: (0..workers).map(|_| desk(&mut receivers)).collect(),
            listeners: Mutex::new(Vec::new()),
            turn: AtomicUsize::new(0),
        };
        (shared, receivers)
    }

    /// The worker that has a slot.
    pub(crate) fn home(&self, index: u32) -> usize {
        index as usize / self.each.max(1)
    }

    pub(crate) fn slot(&self, index: u32) -> Option<&TcpSlot> {
        self.slots.get(index as usize)
    }

    /// The link in a doorbell of what has this number among TCP's: the desks, then the slots.
    pub(crate) fn link(&self, number: usize) -> Option<&AtomicU32> {
        match self.desks.get(number) {
            Some(desk) => Some(desk.call.link()),
            None => self.slots.get(number - self.desks.len()).map(|slot| &slot.link),
        }
    }

    /// Stores a listener, so that it is woken at the end.
    pub(crate) fn note(&self, listening: Weak<Listening>) {
        let mut all = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|listening| listening.strong_count() > 0);
        all.push(listening);
    }

    /// A worker in its turn.
    pub(crate) fn next_worker(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.desks.len().max(1)
    }

    /// Ends all connections and listeners, and wakes their waiters.
    pub(crate) fn stop(&self) {
        for slot in &self.slots {
            slot.rx.set(STREAM_STOPPED);
            slot.reader.take().into_iter().for_each(Waker::wake);
            slot.writer.take().into_iter().for_each(Waker::wake);
        }
        let all = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).for_each(|listening| listening.stop());
    }
}

impl RemoteShared {
    /// The number of a worker's desk in its doorbell.
    pub(crate) fn desk_bell(&self, worker: usize) -> u32 {
        (self.slots.len() + 1 + worker) as u32
    }

    /// The number of a connection's slot in its worker's doorbell.
    pub(crate) fn tcp_bell(&self, index: u32) -> u32 {
        self.desk_bell(self.tcp.desks.len()) + index
    }

    /// Rings for a connection.
    pub(crate) fn ring_tcp(&self, index: u32) -> Result<(), Errno> {
        self.ring(self.tcp.home(index), self.tcp_bell(index))
    }

    /// Notifies a worker that its request queue is not empty.
    pub(crate) fn call_desk(&self, worker: usize) {
        let Some(desk) = self.tcp.desks.get(worker) else { return };
        if desk.call.make() {
            // A worker that has stopped drops what waits for it.
            let _ = self.ring(worker, self.desk_bell(worker));
        }
    }

    /// Hands a request to a worker.
    ///
    /// # Errors
    /// The request, where too many wait.
    pub(crate) fn ask_worker(&self, worker: usize, request: TcpRequest) -> Result<(), TcpRequest> {
        let Some(desk) = self.tcp.desks.get(worker) else { return Ok(()) };
        // One that is dropped without being looked at answers that the stack has stopped.
        if let Err(TrySendError::Full(request)) = desk.requests.try_send(request) {
            return Err(request);
        }
        self.call_desk(worker);
        Ok(())
    }
}
