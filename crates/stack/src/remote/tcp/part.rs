//! `TcpPart`: a worker's private state of its programs' connections and listeners.
//!
//! Owned by the worker's [`RemoteShard`](crate::remote::RemoteShard); `shard/connections.rs` and `listeners.rs` operate on it.
//! Invariant: a slot is free, or belongs to a connection, or to a program that still holds the
//! handle of a closed one; it is in the queue at most once.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use floodwall_base::limits;
use floodwall_sync::mailbox::Bits;
use floodwall_tcp::{ConnectionId, ListenerId};

use super::options::StreamOptions;
use super::request::{Listen, TcpRequest};
use super::slot::{ENDED, TcpSlot};
use crate::remote::errno::Errno;
use crate::remote::shared::RemoteShared;
use crate::remote::slot::NO_SLOT;
use crate::remote::wake::Wakes;

/// State of a slot that is private to the worker.
#[derive(Clone, Default)]
pub(in crate::remote) struct TcpLocal {
    /// Its connection; none where that is over.
    pub(in crate::remote) id: Option<ConnectionId>,
    /// True bytes that it wrote and that were not acknowledged when that was looked at last.
    pub(in crate::remote) charged: u32,
    /// Those, what it may still write, and what is on its way from it.
    pub(in crate::remote) granted: u32,
    pub(in crate::remote) options: StreamOptions,
    pub(in crate::remote) opened: bool,
    /// Its program was notified of the peer's end of data, or of an error.
    pub(in crate::remote) told: bool,
    pub(in crate::remote) queued: bool,
    /// It stood in the doorbell since its mailbox was taken last.
    pub(in crate::remote) rung: bool,
}

/// A listener of this shard.
pub(in crate::remote) struct OpenStreams {
    pub(in crate::remote) id: ListenerId,
    pub(in crate::remote) listen: Listen,
}

/// What programs have for a worker.
pub struct PendingOpen {
    /// To listen and to connect.
    pub requests: Vec<TcpRequest>,
    /// Listeners that their programs dropped before they made any of these requests.
    pub gone: Vec<ListenerId>,
}

/// A worker's private state of its programs' connections and listeners.
pub(in crate::remote) struct TcpPart {
    worker: usize,
    requests: Receiver<TcpRequest>,
    /// Of this worker's slots.
    pub(in crate::remote) locals: Box<[TcpLocal]>,
    /// The slot of each connection, by its place; [`NO_SLOT`] for the stack's own.
    slot_of: Vec<u32>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    /// The number of these programs as an application of the engine.
    pub(in crate::remote) owner: Option<u32>,
    pub(in crate::remote) listeners: Vec<OpenStreams>,
    /// Requests wait, or a listener has gone, or has room again.
    pub(in crate::remote) asked: bool,
    /// Listeners of this shard that are not yet forwarded to all other shards.
    pub(in crate::remote) deferred: VecDeque<(usize, Listen)>,
    /// The passive opens that were looked at.
    pub(in crate::remote) seen: u64,
}

impl TcpPart {
    pub(in crate::remote) fn new(
        worker: usize,
        each: usize,
        requests: Receiver<TcpRequest>,
    ) -> Self {
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
    pub(in crate::remote) fn ended() -> Self {
        Self::new(0, 0, std::sync::mpsc::sync_channel(0).1)
    }

    /// Makes room for the connections of a stack, as the application with this number.
    pub(in crate::remote) fn prepare(&mut self, connections_max: usize, owner: Option<u32>) {
        self.slot_of.clear();
        self.slot_of.resize(connections_max, NO_SLOT);
        self.owner = owner;
        self.seen = u64::MAX;
    }

    pub(in crate::remote) fn local(&mut self, index: u32) -> Option<&mut TcpLocal> {
        let first = self.worker * self.locals.len();
        self.locals.get_mut((index as usize).checked_sub(first)?)
    }

    /// Something was rung for: a desk, or a slot by its number.
    pub(in crate::remote) fn hear(&mut self, number: usize, workers: usize) {
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
    pub(in crate::remote) fn queue(&mut self, index: u32) {
        if let Some(local) = self.local(index)
            && !core::mem::replace(&mut local.queued, true)
        {
            self.queue.push_back(index);
        }
    }

    /// Takes the slot that has waited longest, and whether it was rung for.
    pub(in crate::remote) fn next(&mut self) -> Option<(u32, bool)> {
        let index = self.queue.pop_front()?;
        let local = self.local(index)?;
        local.queued = false;
        Some((index, core::mem::take(&mut local.rung)))
    }

    /// Whether something is to be done.
    pub(in crate::remote) fn is_busy(&self) -> bool {
        self.asked || !self.queue.is_empty() || !self.deferred.is_empty()
    }

    /// The slot of a connection.
    pub(in crate::remote) fn slot_of(&self, id: ConnectionId) -> Option<u32> {
        self.slot_of.get(id.index()).copied().filter(|slot| *slot != NO_SLOT)
    }

    /// Takes a slot for a connection. The caller has looked whether there is one.
    pub(in crate::remote) fn take_slot(
        &mut self,
        id: ConnectionId,
        local: TcpLocal,
    ) -> Option<u32> {
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
    pub(in crate::remote) fn slots(&self) -> (u32, u32) {
        ((self.worker * self.locals.len()) as u32, self.locals.len() as u32)
    }

    /// The connection of a slot goes on without its program, which still has the handle.
    pub(in crate::remote) fn part_from(&mut self, index: u32) {
        let id = self.local(index).and_then(|local| local.id.take());
        if let Some(place) = id.and_then(|id| self.slot_of.get_mut(id.index())) {
            *place = NO_SLOT;
        }
    }

    pub(in crate::remote) fn has_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// The program has dropped the slot: it may be used again. Returns the connection that it had.
    pub(in crate::remote) fn free(&mut self, index: u32, slot: &TcpSlot) -> Option<ConnectionId> {
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
    pub(in crate::remote) fn take_asked(&mut self, shared: &RemoteShared) -> Option<PendingOpen> {
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
    pub(in crate::remote) fn forget_connections(
        &mut self,
        shared: &RemoteShared,
        wakes: &mut Wakes,
    ) {
        let first = self.worker * self.locals.len();
        for (number, local) in self.locals.iter_mut().enumerate() {
            let Some(slot) = shared.tcp.slots.get(first + number) else { continue };
            if local.id.take().is_none() {
                continue;
            }
            slot.error.swap(Errno::RESET.word(), Ordering::AcqRel);
            slot.state.fetch_or(ENDED, Ordering::AcqRel);
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
    pub(in crate::remote) fn take_listeners(&mut self) -> Vec<Listen> {
        self.listeners.drain(..).map(|open| Listen { reply: None, ..open.listen }).collect()
    }
}
