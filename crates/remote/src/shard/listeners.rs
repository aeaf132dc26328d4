//! Listeners of programs, and their requests for connections, as one worker has them.
//!
//! Called by the stack, which opens the listeners and accepts. Invariant: the control shard decides
//! about a listener first, and the others open the same one.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use floodwall_base::Instant;
use floodwall_tcp::{ConnectionId, ConnectionTable, ListenerId};

use super::RemoteShard;
use crate::errno::Errno;
use crate::tcp::{Listen, OpenStreams, PendingOpen, StreamOptions, TcpRequest};

impl RemoteShard {
    /// The number of these programs as an application of TCP; none where the stack has no TCP.
    #[must_use]
    pub const fn owner(&self) -> Option<u32> {
        self.tcp.owner
    }

    /// The worker that this shard belongs to.
    #[must_use]
    pub const fn worker(&self) -> usize {
        self.worker
    }

    /// Whether a further connection of a program has a slot here.
    #[must_use]
    pub fn has_connection_slot(&self) -> bool {
        self.tcp.has_slot()
    }

    /// Requests of programs for listeners and connections, and the listeners that are gone.
    pub fn take_opening(&mut self) -> Option<PendingOpen> {
        let shared = Arc::clone(&self.shared);
        self.tcp.take_asked(&shared)
    }

    /// Gives a request to another worker.
    pub fn pass_on(&self, worker: usize, request: TcpRequest) {
        if let Err(request) = self.shared.ask_worker(worker, request) {
            request.refuse(Errno::AGAIN);
        }
    }

    /// A listener was opened here; the control shard also forwards the request to the others.
    pub fn listens(&mut self, mut listen: Listen, local: SocketAddr, id: ListenerId) {
        listen.local = local;
        let reply = listen.reply.take();
        if self.controls() {
            if let Some(reply) = &reply {
                reply.set(Ok(local));
            }
            let others = 1..self.shared.tcp.desks.len();
            let clone = |worker| (worker, Listen { reply: reply.clone(), ..listen.clone() });
            self.tcp.deferred.extend(others.map(clone));
        }
        self.tcp.listeners.push(OpenStreams { id, listen });
    }

    /// A listener was not opened here. Where a follower cannot, the others listen all the same.
    pub fn cannot_listen(&self, listen: Listen, error: Errno) {
        if self.controls() {
            TcpRequest::Listen(listen).refuse(error);
        }
    }

    /// Forwards listeners to the other shards, as far as these have room for requests.
    pub fn forward_listeners(&mut self) {
        while let Some((worker, listen)) = self.tcp.deferred.pop_front() {
            if let Err(TcpRequest::Listen(listen)) =
                self.shared.ask_worker(worker, TcpRequest::Listen(listen))
            {
                self.tcp.deferred.push_front((worker, listen));
                break;
            }
        }
    }

    /// After a panic: the listeners to be opened again as they were.
    pub fn take_listeners(&mut self) -> Vec<Listen> {
        self.tcp.take_listeners()
    }

    /// Whether connections may have been finished since the last call, of which `opens` were
    /// counted.
    pub fn may_accept(&mut self, opens: u64) -> bool {
        let may = self.tcp.owner.is_some() && !self.tcp.listeners.is_empty();
        may && core::mem::replace(&mut self.tcp.seen, opens) != opens
    }

    /// Listeners here.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.tcp.listeners.len()
    }

    /// A listener, if there is room for another of its connections.
    #[must_use]
    pub fn listener_with_room(&self, number: usize) -> Option<ListenerId> {
        let open = self.tcp.listeners.get(number)?;
        let has_room = self.tcp.has_slot() && open.listen.listening.finished.has_room(self.worker);
        has_room.then_some(open.id)
    }

    /// Hands a finished connection to the program that listens.
    ///
    /// # Errors
    /// The connection, to be reset: the program has stopped accepting.
    pub fn accepted(
        &mut self,
        tcp: &mut ConnectionTable,
        number: usize,
        id: ConnectionId,
        now: Instant,
    ) -> Result<(), ConnectionId> {
        let Listen { listening, settings, .. } = &self.tcp.listeners.get(number).ok_or(id)?.listen;
        let (listening, options) = (Arc::clone(listening), StreamOptions::of(settings));
        let index = self.tie_connection(tcp, id, options).ok_or(id)?;
        self.tell_program(tcp, id, index, now);
        let shared = Arc::clone(&self.shared);
        let slot = shared.tcp.slot(index).ok_or(id)?;
        let group = listening.group.load(Ordering::Relaxed);
        match listening.hand_over(index, &slot.accept_link) {
            Some(waker) => self.wakes.gather(group, waker),
            None => return self.tcp.free(index, slot).map_or(Ok(()), Err),
        }
        Ok(())
    }

    /// Programs that accept get `BrokenPipe` from now on. What was finished before may be accepted.
    pub fn stop_listening(&mut self) {
        for open in self.tcp.listeners.drain(..) {
            open.listen.listening.stop();
        }
    }
}
