//! `TcpPart`: a worker's private state of its programs' connections and listeners.
//!
//! Owned by the worker's [`RemoteShard`](crate::RemoteShard); `shard/connections.rs` and
//! `shard/listeners.rs` operate on it. Invariant: a slot is free, or belongs to a connection, or to
//! a program that still holds the handle of a closed one; it is in the queue at most once.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use floodwall_base::limits;
use floodwall_sync::mailbox::Bits;
use floodwall_tcp::{ConnectionId, ListenerId};

use super::options::StreamOptions;
use super::request::{Listen, TcpRequest};
use super::slot::{STREAM_ENDED, TcpSlot};
use crate::errno::Errno;
use crate::shared::RemoteShared;
use crate::slot::NO_SLOT;
use crate::wake::Wakes;

/// State of a slot that is private to the worker.
#[derive(Clone, Default)]
pub(crate) struct TcpLocal {
    /// Its connection; none where that is over.
    pub(crate) id: Option<ConnectionId>,
    /// True bytes that it wrote and that were not acknowledged when that was looked at last.
    pub(crate) charged: u32,
    /// Those, what it may still write, and what is on its way from it.
    pub(crate) granted: u32,
    pub(crate) options: StreamOptions,
    pub(crate) opened: bool,
    /// Its program was notified of the peer's end of data, or of an error.
    pub(crate) told: bool,
    pub(crate) queued: bool,
    /// It stood in the doorbell since its mailbox was taken last.
    pub(crate) rung: bool,
}

/// A listener of this shard.
pub(crate) struct OpenStreams {
    pub(crate) id: ListenerId,
    pub(crate) listen: Listen,
}

/// What programs have for a worker.
pub struct PendingOpen {
    /// To listen and to connect.
    pub requests: Vec<TcpRequest>,
    /// Listeners that their programs dropped before they made any of these requests.
    pub gone: Vec<ListenerId>,
}

/// A worker's private state of its programs' connections and listeners.
pub(crate) struct TcpPart {
    worker: usize,
    requests: Receiver<TcpRequest>,
    /// Of this worker's slots.
    pub(crate) locals: Box<[TcpLocal]>,
    /// The slot of each connection, by its place; [`NO_SLOT`] for the stack's own.
    slot_of: Vec<u32>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    /// The number of these programs as an application of the engine.
    pub(crate) owner: Option<u32>,
    pub(crate) listeners: Vec<OpenStreams>,
    /// Requests wait, or a listener has gone, or has room again.
    pub(crate) asked: bool,
    /// Listeners of this shard that are not yet forwarded to all other shards.
    pub(crate) deferred: VecDeque<(usize, Listen)>,
    /// The passive opens that were looked at.
    pub(crate) seen: u64,
}

impl TcpPart {
    pub(crate) fn new(worker: usize, each: usize, requests: Receiver<TcpRequest>) -> Self {
        let first = (worker * each) as u32;
        Self {
            worker,
            requests,
            locals: vec![TcpLocal::default(); each].into(),
            slot_of: Vec::new(),
            free: (first..first + each as u32).rev().collect(),
            queue: VecDeque::with_capacity(each),
            owner: None,
            listeners: Vec::new(),
            asked: false,
            deferred: VecDeque::new(),
            seen: u64::MAX,
        }
    }

    /// An empty part, without worker.
    pub(crate) fn ended() -> Self {
        Self::new(0, 0, std::sync::mpsc::sync_channel(0).1)
    }

    /// Makes room for the connections of a stack, as the application with this number.
    pub(crate) fn prepare(&mut self, connections_max: usize, owner: Option<u32>) {
        self.slot_of.clear();
        self.slot_of.resize(connections_max, NO_SLOT);
        self.owner = owner;
        self.seen = u64::MAX;
    }

    pub(crate) fn local(&mut self, index: u32) -> Option<&mut TcpLocal> {
        let first = self.worker * self.locals.len();
        self.locals.get_mut((index as usize).checked_sub(first)?)
    }

    /// Something was rung for: a desk, or a slot by its number.
    pub(crate) fn hear(&mut self, number: usize, workers: usize) {
        if number < workers {
            self.asked = true;
            return;
        }
        let index = (number - workers) as u32;
        if let Some(local) = self.local(index) {
            local.rung = true;
        }
        self.queue(index);
    }

    /// Puts a slot last, unless it is in the queue.
    pub(crate) fn queue(&mut self, index: u32) {
        if let Some(local) = self.local(index)
            && !core::mem::replace(&mut local.queued, true)
        {
            self.queue.push_back(index);
        }
    }

    /// Takes the slot that has waited longest, and whether it was rung for.
    pub(crate) fn next(&mut self) -> Option<(u32, bool)> {
        let index = self.queue.pop_front()?;
        let local = self.local(index)?;
        local.queued = false;
        Some((index, core::mem::take(&mut local.rung)))
    }

    /// Whether something is to be done.
    pub(crate) fn is_busy(&self) -> bool {
        self.asked || !self.queue.is_empty() || !self.deferred.is_empty()
    }

    /// The slot of a connection.
    pub(crate) fn slot_of(&self, id: ConnectionId) -> Option<u32> {
        self.slot_of.get(id.index()).copied().filter(|slot| *slot != NO_SLOT)
    }

    /// Takes a slot for a connection. The caller has looked whether there is one.
    pub(crate) fn take_slot(&mut self, id: ConnectionId, local: TcpLocal) -> Option<u32> {
        let index = self.free.pop()?;
        if let Some(place) = self.slot_of.get_mut(id.index()) {
            *place = index;
        }
        if let Some(here) = self.local(index) {
            *here = TcpLocal { id: Some(id), ..local };
        }
        Some(index)
    }

    /// The first slot of this worker, and how many it has.
    pub(crate) fn slots(&self) -> (u32, u32) {
        ((self.worker * self.locals.len()) as u32, self.locals.len() as u32)
    }

    /// The connection of a slot goes on without its program, which still has the handle.
    pub(crate) fn part_from(&mut self, index: u32) {
        let id = self.local(index).and_then(|local| local.id.take());
        if let Some(place) = id.and_then(|id| self.slot_of.get_mut(id.index())) {
            *place = NO_SLOT;
        }
    }

    pub(crate) fn has_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// The program has dropped the slot: it may be used again. Returns the connection that it had.
    pub(crate) fn free(&mut self, index: u32, slot: &TcpSlot) -> Option<ConnectionId> {
        let id = self.local(index).and_then(|local| core::mem::take(local).id);
        if let Some(place) = id.and_then(|id| self.slot_of.get_mut(id.index())) {
            *place = NO_SLOT;
        }
        slot.clear();
        if self.free.is_empty() {
            // Finished connections may have waited for a slot.
            self.seen = u64::MAX;
        }
        self.free.push(index);
        id
    }

    /// Requests of programs for this worker, if notified: a few a round, and then the listeners
    /// that are gone, so that a program that drops a port and requests it again gets it.
    pub(crate) fn take_asked(&mut self, shared: &RemoteShared) -> Option<PendingOpen> {
        let call = &shared.tcp.desks.get(self.worker).filter(|_| self.asked)?.call;
        Some(call.answer(|| {
            let most = limits::REMOTE_CONNECTS_ROUND;
            let requests: Vec<_> = self.requests.try_iter().take(most).collect();
            self.asked = requests.len() == most;
            self.seen = u64::MAX;
            PendingOpen { requests, gone: self.gone() }
        }))
    }

    /// The stack that had the connections is gone: their programs see a reset.
    pub(crate) fn forget_connections(&mut self, shared: &RemoteShared, wakes: &mut Wakes) {
        let first = self.worker * self.locals.len();
        for (number, local) in self.locals.iter_mut().enumerate() {
            let Some(slot) = shared.tcp.slots.get(first + number) else { continue };
            if local.id.take().is_none() {
                continue;
            }
            slot.error.swap(Errno::RESET.word(), Ordering::AcqRel);
            slot.state.fetch_or(STREAM_ENDED, Ordering::AcqRel);
            slot.rx.set(Bits::RESET);
            wakes.gather(slot.read_group.load(Ordering::Relaxed), slot.reader.take());
            wakes.gather(slot.write_group.load(Ordering::Relaxed), slot.writer.take());
        }
    }

    /// Listeners that their programs have dropped.
    fn gone(&mut self) -> Vec<ListenerId> {
        let is_gone = |open: &mut OpenStreams| open.listen.listening.finished.is_gone();
        self.listeners.extract_if(.., is_gone).map(|open| open.id).collect()
    }

    /// What the next stack opens again.
    pub(crate) fn take_listeners(&mut self) -> Vec<Listen> {
        self.listeners.drain(..).map(|open| Listen { reply: None, ..open.listen }).collect()
    }
}
