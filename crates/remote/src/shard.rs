//! `RemoteShard`: the worker's side, run by its stack between packets.
//!
//! Called by the stack that it serves: in timed work it takes the doorbell's list and sends what
//! programs queued; at the end of each round it hands each socket's datagrams over as one batch;
//! after the packets have left it gives credit back and hands the round's wakers over, once. The
//! control shard also carries out programs' requests.
//!
//! Invariants: the doorbell's list is moved whole into a queue of the worker's own, of which a
//! round serves a bounded number of slots and bytes, and a slot with work left goes to the tail;
//! nothing here waits or allocates per datagram; when the shard is dropped, a worker's panic
//! included, later rings fail and all waiters are woken; except that a follower's shard is kept in
//! its place, with its sockets, as long as another stack may take that place.

pub(super) mod connections;
mod listeners;
mod sockets;

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use floodwall_base::{Counters, Instant, NumaNode};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_sync::mailbox::Bits;
use floodwall_udp::SocketId;

use super::command::SocketCommand;
use super::envelope::{self, Envelope};
use super::errno::Errno;
use super::request::SocketRequest;
use super::segment_history::SegmentHistory;
use super::shared::RemoteShared;
use super::slot::{NO_SLOT, SLOT_ERROR, SlotId};
use super::tcp::{TcpPart, TcpRequest};
use super::wake::Wakes;

/// Where a follower's shard waits for the next stack, when the one that it served is dropped.
pub trait ShardKeeper: Send + Sync {
    /// Keeps what programs have with this shard for its next stack.
    fn keep(&self, remote: Box<RemoteShard>);
}

/// How long writers wait for memory that may have been released without a signal.
const DRY_RETRY: Duration = Duration::from_millis(1);

/// State of a slot that is private to the worker.
#[derive(Default)]
pub(super) struct LocalRemote {
    /// Its socket on this shard.
    pub(super) socket: Option<SocketId>,
    /// What its program sent and has not left.
    pub(super) pending: PacketList,
    /// The next one in the worker's queue.
    next: Option<u32>,
    queued: bool,
    /// It stood in the doorbell since its mailbox was taken last.
    rung: bool,
    /// Credit to give back when the packets have left.
    owed: u32,
    /// All the credit that it may have, a part of which wakes its writer.
    limit: u32,
    /// Credit beyond a lowered limit, which was in use then: kept when it comes back.
    debt: u32,
    /// Its program has dropped it.
    pub(super) dropped: bool,
    /// The control shard has a request to close it.
    pub(super) closing: bool,
    /// A follower's: how its socket came to be what it is.
    pub(super) history: SegmentHistory,
}

/// One worker's side of programs' sockets: serves their slots and hands received datagrams over.
pub struct RemoteShard {
    pub(super) shared: Arc<RemoteShared>,
    pub(super) worker: usize,
    /// The NUMA node of the worker, which selects the queues to push to.
    node: NumaNode,
    /// The control shard's.
    pub(super) requests: Option<Receiver<SocketRequest>>,
    pub(super) locals: Box<[LocalRemote]>,
    /// The slot of each socket; [`NO_SLOT`] for the stack's own.
    slot_of: Vec<u32>,
    first: Option<u32>,
    last: Option<u32>,
    /// Slots with credit to be returned.
    owed: Vec<u32>,
    pub(super) wakes: Wakes,
    /// Programs' connections.
    pub(super) tcp: TcpPart,
    /// Memory of programs was freed since its waiters were last woken.
    pub(super) gave_back: bool,
    /// Requests wait.
    pub(super) asked: bool,
    /// Requests that wait for a port, and until when.
    put_off: Vec<(SocketRequest, Instant)>,
    /// When waiters for memory retry.
    dry_at: Option<Instant>,
    dry_due: bool,
    /// What was decided, for the other shards to carry out in this order.
    pub decided: Vec<SocketCommand>,
    /// Slots never used, and slots free again.
    fresh: u32,
    free: Vec<u32>,
    /// Where it waits for the next stack, if the one that it serves is dropped.
    home: Option<Arc<dyn ShardKeeper>>,
    /// Sockets that were opened here so far.
    pub(super) opened: u64,
    /// The stack is a new one: it has none of the sockets yet.
    begins_again: bool,
}

impl RemoteShard {
    pub(super) fn new(
        shared: Arc<RemoteShared>,
        (worker, node): (usize, NumaNode),
        requests: Option<Receiver<SocketRequest>>,
        desk: Receiver<TcpRequest>,
    ) -> Self {
        let slots = shared.slots.len();
        let connections = shared.tcp.each;
        let free = if requests.is_some() { slots } else { 0 };
        Self {
            worker,
            node,
            requests,
            locals: (0..slots).map(|_| LocalRemote::default()).collect(),
            slot_of: Vec::new(),
            first: None,
            last: None,
            owed: Vec::with_capacity(slots),
            wakes: Wakes::new(worker, slots + connections),
            tcp: TcpPart::new(worker, connections, desk),
            gave_back: false,
            asked: false,
            put_off: Vec::new(),
            dry_at: None,
            dry_due: false,
            decided: Vec::new(),
            fresh: 0,
            free: Vec::with_capacity(free),
            home: None,
            opened: 0,
            begins_again: false,
            shared,
        }
    }

    /// Makes room for the sockets and connections of a stack, of which programs are the TCP
    /// application with the number `owner`.
    pub fn prepare(&mut self, sockets_max: usize, connections_max: usize, owner: Option<u32>) {
        self.slot_of.resize(sockets_max, NO_SLOT);
        self.tcp.prepare(connections_max, owner);
    }

    /// Another stack may take the place of this one: there the shard waits for it.
    pub fn set_keeper(&mut self, keeper: Option<Arc<dyn ShardKeeper>>) {
        self.home = keeper;
    }

    /// Whether the stack is a new one, which has none of the sockets yet.
    #[must_use]
    pub const fn begins_again(&self) -> bool {
        self.begins_again
    }

    /// True bytes that this worker's programs send from.
    #[must_use]
    pub fn send_share(&self) -> u64 {
        self.shared.share
    }

    /// Wakes another worker that has work queued.
    pub fn call(&self, worker: usize) {
        self.shared.alarm(worker);
    }

    /// The stack that it served is gone, and the next one opens the sockets again. Returns how many
    /// datagrams of programs were dropped with it. Visits all slots.
    pub fn begin_again(&mut self) -> u64 {
        self.begins_again = true;
        let shared = Arc::clone(&self.shared);
        self.tcp.forget_connections(&shared, &mut self.wakes);
        self.slot_of.clear();
        let mut unsent = 0;
        for index in 0..self.locals.len() as u32 {
            let Some(local) = self.locals.get_mut(index as usize) else { break };
            (local.socket, local.closing) = (None, false);
            let dropped = local.dropped;
            let mut pending = local.pending.take();
            while let Some(packet) = pending.pop_front() {
                unsent += 1;
                self.owe(index, envelope_of(&packet).map_or(0, |envelope| envelope.paid));
            }
            if dropped {
                self.queue(index);
            }
        }
        unsent
    }

    /// All of it, whole, where a panic has taken its stack: each step of it leaves it so.
    fn salvage(&mut self) -> Self {
        use core::mem::take;
        Self {
            shared: Arc::clone(&self.shared),
            worker: self.worker,
            node: self.node,
            requests: self.requests.take(),
            locals: take(&mut self.locals),
            slot_of: take(&mut self.slot_of),
            first: self.first.take(),
            last: self.last.take(),
            owed: take(&mut self.owed),
            wakes: core::mem::replace(&mut self.wakes, Wakes::new(self.worker, 0)),
            tcp: core::mem::replace(&mut self.tcp, TcpPart::ended()),
            gave_back: self.gave_back,
            asked: self.asked,
            put_off: take(&mut self.put_off),
            dry_at: self.dry_at,
            dry_due: self.dry_due,
            decided: take(&mut self.decided),
            fresh: self.fresh,
            free: take(&mut self.free),
            home: None,
            opened: self.opened,
            begins_again: self.begins_again,
        }
    }

    /// Moves the doorbell's list into the worker's own queue.
    pub fn hear(&mut self) {
        let shared = Arc::clone(&self.shared);
        let Some(bell) = shared.bells.get(self.worker) else { return };
        for index in bell.bell.take(|index| shared.link(index)) {
            let behind = (index as usize).checked_sub(shared.slots.len());
            if let Some(number) = behind.and_then(|number| number.checked_sub(1)) {
                self.tcp.hear(number, shared.tcp.desks.len());
            } else if behind.is_some() {
                self.asked = true;
            } else {
                self.queue(index);
                if let Some(local) = self.locals.get_mut(index as usize) {
                    local.rung = true;
                }
            }
        }
    }

    /// Puts a slot last, unless it is in the queue.
    fn queue(&mut self, index: u32) {
        let last = self.last;
        match self.locals.get_mut(index as usize) {
            Some(local) if !local.queued => (local.queued, local.next) = (true, None),
            _ => return,
        }
        match last.and_then(|last| self.locals.get_mut(last as usize)) {
            Some(last) => last.next = Some(index),
            None => self.first = Some(index),
        }
        self.last = Some(index);
    }

    /// Takes the slot that has waited longest, with what its program has sent since it rang.
    ///
    /// The mailbox of a slot that is in the queue for other reasons is left alone: the program that
    /// set `QUEUED` in it has not rung yet, and would ring for a slot that is in the list already,
    /// or that was closed meanwhile and has another user.
    pub fn next_slot(&mut self) -> Option<u32> {
        let index = self.first?;
        let local = self.locals.get_mut(index as usize)?;
        local.queued = false;
        self.first = local.next.take();
        if self.first.is_none() {
            self.last = None;
        }
        if core::mem::take(&mut local.rung) {
            let slot = self.shared.slots.get(index as usize)?;
            let (mut sent, bits) = slot.tx.take(Bits::QUEUED);
            local.pending.append(&mut sent);
            local.dropped |= bits.has(Bits::DROPPED);
        }
        Some(index)
    }

    /// The socket of a slot that has its turn.
    #[must_use]
    pub fn socket_at(&self, index: u32) -> Option<SocketId> {
        self.locals.get(index as usize)?.socket
    }

    /// The next datagram that a program has sent.
    pub fn next_datagram(&mut self, index: u32) -> Option<(Envelope, PacketBuf)> {
        let local = self.locals.get_mut(index as usize)?;
        loop {
            let mut packet = local.pending.pop_front()?;
            if let Some(envelope) = envelope_of(&packet) {
                packet.trim_front(envelope::ENVELOPE_LEN);
                return Some((envelope, packet));
            }
        }
    }

    /// A slot had its turn: back into the queue, or at rest. Returned where its program has dropped
    /// it and this is the control shard: it is to be closed.
    pub fn after_slot(&mut self, index: u32) -> Option<SlotId> {
        let local = self.locals.get_mut(index as usize)?;
        if !local.pending.is_empty() {
            self.queue(index);
            return None;
        }
        if !local.dropped || local.closing {
            return None;
        }
        local.closing = true;
        let slot = self.slot_id(index);
        if self.controls() {
            return Some(slot);
        }
        if !self.shared.request(SocketRequest::Close { slot })
            && let Some(local) = self.locals.get_mut(index as usize)
        {
            // The control shard has much to do: again in the next round.
            local.closing = false;
            self.queue(index);
        }
        None
    }

    /// A datagram was sent, or failed: its credit is given back when the packets have left.
    pub fn owe(&mut self, index: u32, paid: u32) {
        let Some(local) = self.locals.get_mut(index as usize) else { return };
        if local.owed == 0 {
            self.owed.push(index);
        }
        // At least 1, so that a slot is in the list once.
        local.owed = local.owed.saturating_add(paid).max(1);
    }

    /// Gives a socket's datagrams to its program, as one batch, and counts them as received.
    pub fn deliver(&mut self, socket: SocketId, news: ShardNews, counters: &mut Counters) -> bool {
        let index = self.slot_of.get(socket.index()).copied().unwrap_or(NO_SLOT);
        let Some(slot) = self.shared.slots.get(index as usize) else { return false };
        let mut bits = Bits::NONE;
        if let Some(errno) = news.error {
            slot.error.swap(errno.word(), Ordering::AcqRel);
            bits = SLOT_ERROR;
            self.wakes.gather(slot.write_group.load(Ordering::Relaxed), slot.writer.take());
        }
        counters.add(floodwall_base::Counter::UdpInDatagrams, news.v4);
        counters.add(floodwall_base::Counter::Udp6InDatagrams, news.packets.len() as u64 - news.v4);
        if slot.rx.push(self.node, news.packets, bits).has(Bits::WAIT) {
            self.wakes.gather(slot.read_group.load(Ordering::Relaxed), slot.reader.take());
        }
        true
    }

    /// Whether a socket is a program's on another thread.
    #[must_use]
    pub fn serves(&self, socket: SocketId) -> bool {
        self.slot_of.get(socket.index()).is_some_and(|slot| *slot != NO_SLOT)
    }

    /// The worker that sends for a program's socket.
    #[must_use]
    pub fn home_of(&self, socket: SocketId) -> Option<usize> {
        let slot = self.slot_of.get(socket.index()).filter(|slot| **slot != NO_SLOT)?;
        Some(self.shared.home(*slot))
    }

    /// The packets of the last calls have left: gives credit back, and wakes.
    pub fn departed(&mut self) {
        let sent = !self.owed.is_empty() | core::mem::take(&mut self.gave_back);
        while let Some(index) = self.owed.pop() {
            let Some(local) = self.locals.get_mut(index as usize) else { continue };
            let owed = core::mem::take(&mut local.owed);
            // Forgotten meanwhile: its next user begins with credit of its own.
            let Some(slot) = self.shared.slots.get(index as usize).filter(|_| owed > 0) else {
                continue;
            };
            let kept = owed.min(local.debt);
            local.debt -= kept;
            if slot.credit.give(owed - kept, local.limit / 3) {
                self.wakes.gather(slot.write_group.load(Ordering::Relaxed), slot.writer.take());
            }
        }
        if self.shared.dry.has_rung() && (sent || core::mem::take(&mut self.dry_due)) {
            self.dry_at = None;
            for (group, writer) in self.shared.dry_slots() {
                self.wakes.gather(group, writer);
            }
        }
        if !self.wakes.is_empty() {
            self.wakes.hand_over(&self.shared.groups);
        }
    }

    /// Schedules the retry of slots that wait for memory.
    pub fn look_at_dry(&mut self, now: Instant) {
        if self.shared.dry.has_rung() {
            let at = *self.dry_at.get_or_insert(now + DRY_RETRY);
            self.dry_due |= at <= now;
        }
    }

    /// Whether programs have rung, or a slot or a request waits; connections apart.
    pub(super) fn has_work(&self) -> bool {
        let rung = self.shared.bells.get(self.worker).is_some_and(|bell| bell.bell.has_rung());
        rung || self.asked || self.first.is_some()
    }

    /// When the worker must come by.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.has_work() || self.tcp.is_busy() {
            return Some(Instant::ORIGIN);
        }
        let dry = self.shared.dry.has_rung() && self.controls();
        let dry = dry.then(|| self.dry_at.unwrap_or(Instant::ORIGIN));
        dry.into_iter().chain(self.put_off.iter().map(|(_, until)| *until)).min()
    }

    /// Whether the worker may sleep: no doorbell has rung. A ring from now on wakes it.
    #[must_use]
    pub fn rests(&self) -> bool {
        let bell = self.shared.bells.get(self.worker);
        let idle = self.first.is_none() && !self.asked && !self.tcp.is_busy();
        idle && bell.is_none_or(|bell| bell.bell.park())
    }
}

/// What a socket has for its program.
#[derive(Default)]
pub struct ShardNews {
    /// Datagrams that arrived.
    pub packets: PacketList,
    /// How many of them are IPv4's.
    pub v4: u64,
    /// An error, ICMP's or of a datagram that was not sent.
    pub error: Option<Errno>,
}

/// The envelope's bytes of a packet that a program sent.
fn envelope_of(packet: &PacketBuf) -> Option<Envelope> {
    packet.first().first_chunk().map(Envelope::read)
}

impl Drop for RemoteShard {
    fn drop(&mut self) {
        match self.home.take() {
            Some(home) => home.keep(Box::new(self.salvage())),
            None => self.shared.stop(),
        }
    }
}

impl core::fmt::Debug for RemoteShard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RemoteShard").field("worker", &self.worker).finish_non_exhaustive()
    }
}
