//! The stack's part: what programs wrote to their connections, what arrived to programs, accepting,
//! listening and connecting for them.
//!
//! Called in rounds and in timed work by `remote/control.rs`. Chunks move whole in both directions;
//! nothing here reads them. Invariants: a round serves a bounded number of slots and requests;
//! credit is given back for acknowledged data only; data not handed to a program stays in the
//! engine, where it counts against the receive window.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use floodwall_base::{Counter, Instant, limits};
use floodwall_packet::PacketList;
use floodwall_sync::mailbox::Bits;
use floodwall_tcp::{ConnectionId, Keepalive, RecvError, TcpSettings};
use floodwall_wire::IpProtocol;

use super::options::StreamOptions;
use super::part::{OpenStreams, PendingOpen, TcpLocal};
use super::request::{Listen, TcpRequest};
use super::slot::{ENDED, OPENED, TcpSlot, TcpSlotFacts};
use super::stream::TcpHandle;
use super::write::CHUNK_TRUE_BYTES;
use crate::remote::errno::Errno;
use crate::remote::request::Reply;
use crate::remote::shard::RemoteShard;
use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::stack::Stack;

impl Stack {
    /// Takes what programs wrote to connections, and their requests; bounded. Part of timed work.
    pub(in crate::remote) fn serve_connections(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
    ) -> u32 {
        let mut spent = 0;
        for _ in 0..limits::REMOTE_SLOTS_ROUND {
            let Some((index, rung)) = remote.tcp.next() else { break };
            spent += 1;
            if rung {
                self.serve_connection(cx, remote, index);
            }
        }
        let shared = Arc::clone(&remote.shared);
        if let Some(PendingOpen { requests, gone }) = remote.tcp.take_asked(&shared) {
            for id in gone {
                let _ = Sockets::new(self, cx.again()).tcp_unlisten(id);
            }
            for request in requests {
                spent += 1;
                self.decide_tcp(cx, remote, request);
            }
        }
        while let Some((worker, listen)) = remote.tcp.deferred.pop_front() {
            if let Err(TcpRequest::Listen(listen)) =
                shared.ask_worker(worker, TcpRequest::Listen(listen))
            {
                remote.tcp.deferred.push_front((worker, listen));
                break;
            }
        }
        if spent > 0 {
            self.tcp_transmit(cx);
        }
        spent
    }

    /// What one program has for its connection.
    fn serve_connection(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        index: u32,
    ) {
        let shared = Arc::clone(&remote.shared);
        let (Some(slot), Some(local)) = (shared.tcp.slot(index), remote.tcp.local(index)) else {
            return;
        };
        let (mut chunks, bits) = slot.tx.take(Bits::QUEUED);
        let id = local.id;
        if let (Some(id), Some(tcp)) = (id, &mut self.tcp) {
            let paid: u32 = chunks.iter().map(|chunk| chunk.true_size()).sum();
            if !chunks.is_empty() {
                // If it fails, the program gets the error that the connection ended with.
                let _ = tcp.set.send_chunks(id, &mut chunks, cx.now);
                local.charged = local.charged.saturating_add(paid);
            }
            apply_options(&mut tcp.set, id, local, slot, cx.now);
            take_back(&mut tcp.set, id, slot, cx.now);
            let is_ended = bits.has(Bits::FIN) && !bits.has(Bits::DROPPED);
            if is_ended {
                let _ = tcp.set.shutdown_write(id, cx.now);
            }
        }
        if bits.has(Bits::DROPPED) {
            return self.let_go(cx, remote, index, slot, bits);
        }
        if let Some(id) = id {
            self.tell_program(remote, id, index, cx.now);
        }
    }

    /// A program has dropped its handle.
    fn let_go(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        index: u32,
        slot: &TcpSlot,
        bits: Bits,
    ) {
        let unread = !slot.rx.take(Bits::NONE).0.is_empty();
        let Some(id) = remote.tcp.free(index, slot) else { return };
        let mut sockets = Sockets::new(self, cx.again());
        let _ = match unread || bits.has(Bits::RESET) {
            true => sockets.tcp_abort(id),
            false => sockets.tcp_close(id),
        };
    }

    /// Hands programs what has become possible for their connections: at the end of a round.
    pub(in crate::remote) fn deliver_connections(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
    ) {
        let Some(owner) = remote.tcp.owner else { return };
        self.accept_for(cx, remote);
        while let Some((id, _)) = self.tcp.as_mut().and_then(|tcp| tcp.set.next_event(owner)) {
            if let Some(index) = remote.tcp.slot_of(id) {
                self.tell_program(remote, id, index, cx.now);
            }
        }
    }

    /// Publishes all changes of a connection to its program.
    fn tell_program(
        &mut self,
        remote: &mut RemoteShard,
        id: ConnectionId,
        index: u32,
        now: Instant,
    ) {
        let shared = Arc::clone(&remote.shared);
        let RemoteShard { tcp: part, wakes, .. } = remote;
        let (Some(slot), Some(local)) = (shared.tcp.slot(index), part.local(index)) else { return };
        let Some(tcp) = &mut self.tcp else { return };
        let (mut wake_writer, mut ended) = (false, false);
        if !local.opened && tcp.set.state(id).is_ok_and(|state| state.is_synchronized()) {
            local.opened = true;
            let chunk_len = tcp.set.chunk_len(id).unwrap_or(1);
            slot.chunk_len.store(chunk_len as u32, Ordering::Relaxed);
            slot.state.fetch_or(OPENED, Ordering::AcqRel);
        }
        if local.opened {
            let (freed, wakes_writer) = grant(&tcp.set, id, local, slot);
            wake_writer |= wakes_writer;
            // Chunks were returned to the pool: writers that wait for memory may retry.
            remote.gave_back |= freed;
        }
        if let Ok(Some(error)) = tcp.set.error(id)
            && !slot.has(ENDED)
        {
            let errno = Errno::of_ended(error, tcp.set.has_ended(id).unwrap_or(false));
            slot.error.swap(errno.word(), Ordering::AcqRel);
            slot.state.fetch_or(ENDED, Ordering::AcqRel);
            (wake_writer, ended) = (true, true);
        }
        let (mut chunks, mut bits) = (PacketList::new(), Bits::NONE);
        take_back(&mut tcp.set, id, slot, now);
        if !local.told {
            bits = match tcp.set.hand_out(id, &mut chunks) {
                Ok(false) => Bits::NONE,
                Ok(true) => Bits::FIN,
                Err(RecvError::WouldBlock) => Bits::NONE,
                Err(_) => Bits::RESET,
            };
            local.told = bits != Bits::NONE;
            slot.read_step.store(tcp.set.read_step(id).unwrap_or(0), Ordering::Relaxed);
        }
        if (!chunks.is_empty() || bits != Bits::NONE) && slot.rx.push(chunks, bits).has(Bits::WAIT)
            || ended
        {
            wakes.gather(slot.read_group.load(Ordering::Relaxed), slot.reader.take());
        }
        if wake_writer {
            wakes.gather(slot.write_group.load(Ordering::Relaxed), slot.writer.take());
        }
    }

    /// Hands finished connections to the programs that listen.
    fn accept_for(&mut self, cx: &mut RoundContext<'_>, remote: &mut RemoteShard) {
        let opens = self.stats.counters.of(Counter::TcpPassiveOpens);
        if remote.tcp.listeners.is_empty() || remote.tcp.seen == opens {
            return;
        }
        remote.tcp.seen = opens;
        for number in 0..remote.tcp.listeners.len() {
            while let Some(open) = remote.tcp.listeners.get(number)
                && remote.tcp.has_slot()
                && open.listen.listening.finished.has_room(remote.worker)
            {
                let Listen { listening, settings, .. } = open.listen.clone();
                let Ok(Some(id)) = Sockets::new(self, cx.again()).tcp_accept(open.id) else {
                    break;
                };
                let Some(index) = self.tie(remote, id, &settings) else { break };
                self.tell_program(remote, id, index, cx.now);
                let slot = remote.shared.tcp.slot(index);
                let link = slot.map(|slot| &slot.accept_link);
                let group = listening.group.load(Ordering::Relaxed);
                match link.and_then(|link| listening.hand_over(index, link)) {
                    Some(waker) => remote.wakes.gather(group, waker),
                    _ => self.leave_unaccepted(cx, remote, index),
                }
            }
        }
    }

    /// Resets a connection that will not be accepted.
    fn leave_unaccepted(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        index: u32,
    ) {
        let shared = Arc::clone(&remote.shared);
        let Some(slot) = shared.tcp.slot(index) else { return };
        if let Some(id) = remote.tcp.free(index, slot) {
            let _ = Sockets::new(self, cx.again()).tcp_abort(id);
        }
    }

    /// Gives a connection a slot.
    fn tie(
        &mut self,
        remote: &mut RemoteShard,
        id: ConnectionId,
        settings: &TcpSettings,
    ) -> Option<u32> {
        let tcp = self.tcp.as_ref()?;
        let (local, peer) = tcp.set.ends(id).ok()?;
        let options = StreamOptions::of(settings);
        let here = TcpLocal { options, ..TcpLocal::default() };
        let index = remote.tcp.take_slot(id, here)?;
        let options = options.word();
        if let Some(slot) = remote.shared.tcp.slot(index) {
            slot.options.store(options, Ordering::Relaxed);
        }
        // No other thread has the slot: the lock is not contended.
        let facts = remote.shared.tcp.facts.get(index as usize);
        if let Some(mut facts) = facts.and_then(|facts| facts.try_lock().ok()) {
            *facts = TcpSlotFacts { local, peer, options };
        }
        Some(index)
    }

    fn decide_tcp(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        request: TcpRequest,
    ) {
        if remote.tcp.owner.is_none() {
            return request.refuse(Errno::NO_PROTOCOL);
        }
        if self.is_draining() {
            return request.refuse(Errno::STOPPED);
        }
        match request {
            TcpRequest::Listen(listen) => self.listen_for(cx, remote, listen),
            TcpRequest::Connect { local, peer, settings, reply } => {
                self.connect_for(cx, remote, (local, peer), settings, reply);
            }
        }
    }

    /// Opens a listener; the control shard also forwards the request to the others.
    pub(in crate::remote) fn listen_for(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        mut listen: Listen,
    ) {
        let owner = remote.tcp.owner.unwrap_or(0);
        let mut sockets = Sockets::new(self, cx.again());
        let local = match listen.settings.every_port {
            true => Ok(listen.local),
            false => sockets.tcp_port(listen.local),
        };
        let found = local.and_then(|local| {
            let Listen { settings, backlog, .. } = &listen;
            let id = sockets.tcp_listen(local, settings, *backlog, owner)?;
            Ok((local, id))
        });
        let decides = remote.controls();
        match found {
            Ok((local, id)) => {
                listen.local = local;
                let reply = listen.reply.take();
                if let Some(reply) = reply.as_ref().filter(|_| decides) {
                    reply.set(Ok(local));
                }
                if decides {
                    let others = 1..remote.shared.tcp.desks.len();
                    let clone =
                        |worker| (worker, Listen { reply: reply.clone(), ..listen.clone() });
                    remote.tcp.deferred.extend(others.map(clone));
                }
                remote.tcp.listeners.push(OpenStreams { id, listen });
            }
            Err(error) => {
                // Where a follower cannot, the others listen all the same.
                if let Some(reply) = listen.reply.filter(|_| decides) {
                    reply.set(Err(error.into()));
                }
            }
        }
    }

    fn connect_for(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
        (local, peer): (Option<SocketAddr>, SocketAddr),
        settings: Box<TcpSettings>,
        reply: Box<Reply<TcpHandle>>,
    ) {
        let owner = remote.tcp.owner.unwrap_or(0);
        if !remote.tcp.has_slot() {
            return reply.set(Err(Errno::TOO_MANY));
        }
        let mut sockets = Sockets::new(self, cx.again());
        let ends = match sockets.tcp_ends_towards(local, peer) {
            Ok(ends) => ends,
            Err(error) => return reply.set(Err(error.into())),
        };
        if ends.local.port() != 0 {
            // The port determines the worker that receives the replies (RSS).
            let home = self.steering().flow(ends.local, ends.remote, IpProtocol::TCP.0);
            let home = usize::from(home.0);
            if home != remote.worker {
                let local = Some(ends.local);
                let request = TcpRequest::Connect { local, peer, settings, reply };
                if let Err(request) = remote.shared.ask_worker(home, request) {
                    request.refuse(Errno::AGAIN);
                }
                return;
            }
        }
        let opened = Sockets::new(self, cx.again()).tcp_open(&ends, &settings, owner);
        match opened {
            Ok(id) => match self.tie(remote, id, &settings) {
                Some(index) => {
                    reply.set(Ok(TcpHandle::new(Arc::clone(&remote.shared), index)));
                }
                None => reply.set(Err(Errno::TOO_MANY)),
            },
            Err(error) => reply.set(Err(error.into())),
        }
    }

    /// After a panic: listeners are opened again as they were.
    #[cold]
    pub(in crate::remote) fn listen_again(
        &mut self,
        cx: &mut RoundContext<'_>,
        remote: &mut RemoteShard,
    ) {
        for listen in remote.tcp.take_listeners() {
            self.listen_for(cx, remote, listen);
        }
    }
}

/// What the program has read since is not held any more: the window may open.
fn take_back(
    tcp: &mut floodwall_tcp::ConnectionTable,
    id: ConnectionId,
    slot: &TcpSlot,
    now: Instant,
) {
    let consumed = slot.consumed.swap(0, Ordering::AcqRel);
    if consumed > 0 {
        let _ = tcp.consumed(id, consumed, now);
    }
}

/// Gives a writer credit for acknowledged data and for growth of its connection's limit; less,
/// where the limit has shrunk. Returns whether chunks were freed, and whether the writer is to be
/// woken.
fn grant(
    tcp: &floodwall_tcp::ConnectionTable,
    id: ConnectionId,
    local: &mut TcpLocal,
    slot: &TcpSlot,
) -> (bool, bool) {
    let held = tcp.held(id).unwrap_or(0).min(local.charged);
    let freed = core::mem::replace(&mut local.charged, held) - held;
    local.granted = local.granted.saturating_sub(freed);
    let limit = tcp.send_limit(id).unwrap_or(0).max(2 * CHUNK_TRUE_BYTES);
    let more = limit.saturating_sub(local.granted);
    local.granted += more;
    // Also where a smaller limit leaves nothing to give: what there is may be enough by it.
    let wakes = (more > 0 || freed > 0) && slot.credit.give(more, limit / 3);
    (freed > 0, wakes)
}

fn apply_options(
    tcp: &mut floodwall_tcp::ConnectionTable,
    id: ConnectionId,
    local: &mut TcpLocal,
    slot: &TcpSlot,
    now: Instant,
) {
    let wanted = StreamOptions::from_word(slot.options.load(Ordering::Acquire));
    let before = core::mem::replace(&mut local.options, wanted);
    if wanted == before {
        return;
    }
    // It is there: its program has not let go.
    // Asked again, it would send what is held back.
    if wanted.nodelay != before.nodelay {
        let _ = tcp.set_nodelay(id, wanted.nodelay, now);
    }
    let _ = tcp.set_hop_limit(id, wanted.hop_limit);
    let _ = tcp.set_traffic_class(id, wanted.traffic_class);
    if wanted.cork != before.cork {
        let _ = tcp.set_cork(id, wanted.cork, now);
    }
    if wanted.keepalive != before.keepalive {
        let _ = tcp.set_keepalive(id, wanted.keepalive.then(Keepalive::default), now);
    }
}
