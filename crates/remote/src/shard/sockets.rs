//! The slots of UDP sockets: taken, tied to a socket, limited, released; and the decisions about
//! them, which go to the other shards.
//!
//! Called by the stack when it carries out a program's request, or repeats what the control shard
//! has decided. Invariant: a slot is free again when every shard has released it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use floodwall_base::{Instant, limits};
use floodwall_udp::{RefusedDatagram, SocketId, SocketSettings};

use super::{LocalRemote, RemoteShard};
use crate::command::{SocketChange, SocketCommand};
use crate::handle::UdpHandle;
use crate::request::{RequestAddrs, SocketRequest};
use crate::shared::RemoteShared;
use crate::slot::{NO_SLOT, SlotId};

/// Frees a slot when the last shard has released it.
struct FreedSockets {
    shared: Arc<RemoteShared>,
    index: u32,
}

impl Drop for FreedSockets {
    fn drop(&mut self) {
        self.shared.free(self.index);
    }
}

/// True bytes that a program may have on their way out.
fn send_limit(settings: &SocketSettings) -> u32 {
    u32::try_from(settings.send_bytes).unwrap_or(u32::MAX)
}

impl RemoteShard {
    /// Whether this is the one that decides.
    pub(super) fn controls(&self) -> bool {
        self.requests.is_some()
    }

    /// Whether there are followers, to which decisions are forwarded.
    fn has_followers(&self) -> bool {
        self.shared.bells.len() > 1
    }

    /// An unused slot.
    pub fn take_slot(&mut self) -> Option<SlotId> {
        if self.free.is_empty() {
            let slots = &self.shared.slots;
            let freed = &self.shared.freed;
            self.free.extend(freed.take(|index| slots.get(index as usize).map(|s| &s.link)));
        }
        let fresh = ((self.fresh as usize) < self.locals.len()).then_some(self.fresh);
        let index = match self.free.pop() {
            Some(index) => index,
            None => fresh.inspect(|_| self.fresh += 1)?,
        };
        Some(self.slot_id(index))
    }

    /// Gives back a slot that was taken and not used.
    pub fn return_slot(&mut self, id: SlotId) {
        self.free.push(id.index);
    }

    pub(super) fn slot_id(&self, index: u32) -> SlotId {
        let slot = self.shared.slots.get(index as usize);
        let generation = slot.map_or(0, |slot| slot.generation.load(Ordering::Acquire));
        SlotId { index, generation }
    }

    /// The socket of a slot, if it is still the same use of it.
    #[must_use]
    pub fn socket_of(&self, slot: SlotId) -> Option<SocketId> {
        let local = self.locals.get(slot.index as usize)?;
        (self.slot_id(slot.index) == slot).then_some(local.socket)?
    }

    /// The control shard has opened a socket: its slot gets all the credit of its limit. Returns
    /// what its program has of it.
    pub fn open(
        &mut self,
        slot: SlotId,
        socket: SocketId,
        ends: RequestAddrs,
        settings: &SocketSettings,
    ) -> UdpHandle {
        self.tie(slot, socket, settings);
        if let Some(slot) = self.shared.slots.get(slot.index as usize) {
            let limit = send_limit(settings);
            // No writer waits there yet.
            slot.send_bytes.store(limit, Ordering::Release);
            let _ = slot.credit.give(limit, 0);
        }
        UdpHandle::new(Arc::clone(&self.shared), slot, ends, settings.clone())
    }

    /// Notes which socket serves a slot, or none any more.
    pub fn tie(&mut self, slot: SlotId, socket: SocketId, settings: &SocketSettings) {
        if let Some(local) = self.locals.get_mut(slot.index as usize) {
            (local.socket, local.limit) = (Some(socket), send_limit(settings));
        }
        self.tell_refused(slot.index, RefusedDatagram::default());
        if let Some(place) = self.slot_of.get_mut(socket.index()) {
            *place = slot.index;
        }
    }

    /// Sets how many true bytes a program may have on their way out. The worker that sends for it
    /// changes limit and credit together, and wakes a writer that waits for what the former limit
    /// left; nothing depends on whether the program still waits for the change.
    pub fn limit(&mut self, slot: SlotId, settings: &SocketSettings) {
        let (index, limit) = (slot.index, send_limit(settings));
        let Some(local) = self.locals.get_mut(index as usize) else { return };
        local.limit = limit;
        let is_home = self.shared.home(index) == self.worker;
        let Some(slot) = self.shared.slots.get(index as usize).filter(|_| is_home) else { return };
        let before = slot.send_bytes.swap(limit, Ordering::AcqRel);
        // What is in use cannot be taken back now.
        let less = before.saturating_sub(limit);
        local.debt = local.debt.saturating_add(less - slot.credit.take(less));
        let more = limit.saturating_sub(before);
        let kept = more.min(local.debt);
        local.debt -= kept;
        // A writer that needs more than there is looks, and sleeps again.
        if slot.credit.give(more - kept, 0) {
            self.wakes.gather(slot.write_group.load(Ordering::Relaxed), slot.writer.take());
        }
    }

    /// Shows programs what this worker has refused for a slot.
    fn tell_refused(&self, index: u32, refused: RefusedDatagram) {
        if let Some(drops) = self.shared.refused.get(self.worker) {
            drops.set(index, refused);
        }
    }

    /// The same, of a socket; nothing where it is the stack's own.
    pub fn refused(&self, socket: SocketId, refused: RefusedDatagram) {
        if let Some(index) = self.slot_of.get(socket.index()).filter(|index| **index != NO_SLOT) {
            self.tell_refused(*index, refused);
        }
    }

    /// Disconnects a slot from its socket; datagrams queued there are dropped.
    pub fn untie(&mut self, slot: SlotId, socket: SocketId) {
        if let Some(place) = self.slot_of.get_mut(socket.index()) {
            *place = NO_SLOT;
        }
        if let Some(local) = self.locals.get_mut(slot.index as usize) {
            let LocalRemote { next, queued, .. } = *local;
            *local = LocalRemote { next, queued, ..LocalRemote::default() };
        }
    }

    /// The control shard has closed a socket: its slot is free when every shard has released it.
    pub fn close(&mut self, slot: SlotId, socket: SocketId) {
        self.untie(slot, socket);
        let freed = FreedSockets { shared: Arc::clone(&self.shared), index: slot.index };
        self.announce(SocketCommand::new(socket, slot, SocketChange::Close), freed);
    }

    /// Keeps a command for the other shards; where there are none, it is done. `done` is dropped
    /// when the last shard has carried it out.
    pub fn announce(&mut self, mut command: SocketCommand, done: impl Any + Send + Sync) {
        if self.has_followers() {
            command.done = Some(Arc::new(done));
            self.decided.push(command);
        }
    }

    /// What the next stack repeats, in the order in which the sockets were opened. Once.
    pub fn take_histories(&mut self) -> Vec<SocketCommand> {
        self.begins_again = false;
        let mut slots: Vec<u32> = (0..self.locals.len() as u32).collect();
        slots.sort_by_key(|index| self.locals.get(*index as usize).map(|l| l.history.opened));
        let mut all = Vec::new();
        for index in slots {
            let slot = self.slot_id(index);
            let history = self.locals.get_mut(index as usize).and_then(|l| l.history.take());
            let Some((socket, changes)) = history else { continue };
            let command = |change| SocketCommand::new(socket, slot, change);
            all.extend(changes.into_iter().map(command));
        }
        all
    }

    /// Notes a command that is carried out here, for a stack that begins again.
    pub fn note(&mut self, command: &SocketCommand) {
        let opens = matches!(command.change, SocketChange::Open { .. });
        self.opened += u64::from(opens);
        let opened = self.opened;
        if let Some(local) = self.locals.get_mut(command.slot.index as usize) {
            local.history.note(command, opened);
        }
    }

    /// Requests that wait, a few a round: those that were put off, and until when, first. None
    /// while the followers have no room for what was decided.
    pub fn take_requests(&mut self) -> Vec<(SocketRequest, Option<Instant>)> {
        let held_up = self.decided.len() >= limits::REMOTE_REQUESTS_MAX;
        let Some(requests) = self.requests.as_ref().filter(|_| !held_up) else { return Vec::new() };
        let mut some: Vec<_> =
            self.put_off.drain(..).map(|(request, until)| (request, Some(until))).collect();
        if core::mem::take(&mut self.asked) {
            let most = limits::REMOTE_REQUESTS_ROUND;
            let before = some.len();
            let new = requests.try_iter().take(most).map(|request| (request, None));
            self.shared.asked.answer(|| some.extend(new));
            self.asked = some.len() - before == most;
        }
        some
    }

    /// Whether a socket's program may have dropped it, and the socket still be open: its ring came
    /// before the program's next request.
    #[must_use]
    pub fn may_be_let_go(&self) -> bool {
        let rung = self.shared.bells.get(self.worker).is_some_and(|bell| bell.bell.has_rung());
        let bounded = self.put_off.len() < limits::REMOTE_REQUESTS_MAX;
        bounded && (rung || self.first.is_some() || self.has_followers())
    }

    /// Keeps a request for the next rounds.
    pub fn put_off(&mut self, request: SocketRequest, until: Instant) {
        self.put_off.push((request, until));
    }
}
