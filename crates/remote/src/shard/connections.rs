//! Connections of programs: what they wrote to the engine, what arrived to them.
//!
//! Called by the stack in rounds and in timed work. Chunks move whole in both directions; nothing
//! here reads them. Invariants: credit is given back for acknowledged data only; data not handed to
//! a program stays in the engine, where it counts against the receive window.

use core::task::Waker;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use floodwall_base::Instant;
use floodwall_packet::PacketList;
use floodwall_sync::Credit;
use floodwall_sync::mailbox::Bits;
use floodwall_tcp::{ConnectionId, ConnectionTable, Keepalive, RecvError, TcpSettings};

use super::RemoteShard;
use crate::errno::Errno;
use crate::tcp::{
    CHUNK_TRUE_BYTES, STREAM_ENDED, STREAM_OPENED, STREAM_STOPPED, StreamOptions, TcpHandle,
    TcpLocal, TcpSlot, TcpSlotFacts,
};

/// Of so many chunks that a program wrote each costs a unit: the other core had them last.
const CHUNKS_PER_UNIT: usize = 16;

/// A connection that its program has released: the handle is dropped.
pub struct DroppedConnection {
    /// Which one.
    pub id: ConnectionId,
    /// It is to be reset: its program has left data unread, or wants it.
    pub resets: bool,
}

impl RemoteShard {
    /// Takes the connection that has waited longest for its turn, by its slot, and whether its
    /// program has rung for it.
    pub fn next_connection(&mut self) -> Option<(u32, bool)> {
        self.tcp.next()
    }

    /// Does what a program has rung for. Returns its connection where it has dropped the handle,
    /// and what this cost beyond one unit: a program may have written its bytes in many small
    /// chunks.
    pub fn serve_connection(
        &mut self,
        mut tcp: Option<&mut ConnectionTable>,
        index: u32,
        now: Instant,
    ) -> (Option<DroppedConnection>, u32) {
        let shared = Arc::clone(&self.shared);
        let Some((slot, local)) = shared.tcp.slot(index).zip(self.tcp.local(index)) else {
            return (None, 0);
        };
        let (mut chunks, bits) = slot.tx.take(Bits::QUEUED);
        let cost = (chunks.len() / CHUNKS_PER_UNIT) as u32;
        let id = local.id;
        if let (Some(id), Some(tcp)) = (id, &mut tcp) {
            let paid: u32 = chunks.iter().map(|chunk| chunk.true_size()).sum();
            if !chunks.is_empty() {
                // If it fails, the program gets the error that the connection ended with.
                let _ = tcp.send_chunks(id, &mut chunks, now);
                local.charged = local.charged.saturating_add(paid);
            }
            apply_options(tcp, id, local, slot, now);
            take_back(tcp, id, slot, now);
            let is_ended = bits.has(Bits::FIN) && !bits.has(Bits::DROPPED);
            if is_ended {
                let _ = tcp.shutdown_write(id, now);
            }
        }
        if bits.has(Bits::DROPPED) {
            let unread = !slot.rx.take(Bits::NONE).0.is_empty();
            let resets = unread || bits.has(Bits::RESET);
            let dropped = self.tcp.free(index, slot).map(|id| DroppedConnection { id, resets });
            return (dropped, cost);
        }
        if let (Some(id), Some(tcp)) = (id, tcp) {
            self.tell_program(tcp, id, index, now);
        }
        (None, cost)
    }

    /// Hands programs what has become possible for their connections: at the end of a round.
    pub fn deliver_events(&mut self, tcp: &mut ConnectionTable, now: Instant) {
        let Some(owner) = self.tcp.owner else { return };
        while let Some((id, _)) = tcp.next_event(owner) {
            if let Some(index) = self.tcp.slot_of(id) {
                self.tell_program(tcp, id, index, now);
            }
        }
    }

    /// Publishes all changes of a connection to its program.
    pub(super) fn tell_program(
        &mut self,
        tcp: &mut ConnectionTable,
        id: ConnectionId,
        index: u32,
        now: Instant,
    ) {
        let shared = Arc::clone(&self.shared);
        let Self { tcp: part, wakes, .. } = self;
        let (Some(slot), Some(local)) = (shared.tcp.slot(index), part.local(index)) else { return };
        let (mut wake_writer, mut ended) = (false, false);
        if !local.opened && tcp.state(id).is_ok_and(|state| state.is_synchronized()) {
            local.opened = true;
            let chunk_len = tcp.chunk_len(id).unwrap_or(1);
            slot.chunk_len.store(chunk_len as u32, Ordering::Relaxed);
            slot.state.fetch_or(STREAM_OPENED, Ordering::AcqRel);
        }
        if local.opened {
            let (freed, wakes_writer) = grant(tcp, id, local, slot);
            wake_writer |= wakes_writer;
            // Chunks were returned to the pool: writers that wait for memory may retry.
            self.gave_back |= freed;
        }
        if let Ok(Some(error)) = tcp.error(id)
            && !slot.has(STREAM_ENDED)
        {
            let errno = Errno::of_ended(error, tcp.has_ended(id).unwrap_or(false));
            slot.error.swap(errno.word(), Ordering::AcqRel);
            slot.state.fetch_or(STREAM_ENDED, Ordering::AcqRel);
            (wake_writer, ended) = (true, true);
        }
        let (mut chunks, mut bits) = (PacketList::new(), Bits::NONE);
        take_back(tcp, id, slot, now);
        if !local.told {
            bits = match tcp.hand_out(id, &mut chunks) {
                Ok(false) => Bits::NONE,
                Ok(true) => Bits::FIN,
                Err(RecvError::WouldBlock) => Bits::NONE,
                Err(_) => Bits::RESET,
            };
            local.told = bits != Bits::NONE;
            slot.read_step.store(tcp.read_step(id).unwrap_or(0), Ordering::Relaxed);
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

    /// Gives a connection that a program opened a slot. `None` where every one is taken.
    pub fn connected(
        &mut self,
        tcp: &ConnectionTable,
        id: ConnectionId,
        settings: &TcpSettings,
    ) -> Option<TcpHandle> {
        let index = self.tie_connection(tcp, id, StreamOptions::of(settings))?;
        Some(TcpHandle::new(Arc::clone(&self.shared), index))
    }

    /// Gives a connection a slot.
    pub(super) fn tie_connection(
        &mut self,
        tcp: &ConnectionTable,
        id: ConnectionId,
        options: StreamOptions,
    ) -> Option<u32> {
        let (local, peer) = tcp.ends(id).ok()?;
        let here = TcpLocal { options, ..TcpLocal::default() };
        let index = self.tcp.take_slot(id, here)?;
        let options = options.word();
        if let Some(slot) = self.shared.tcp.slot(index) {
            slot.options.store(options, Ordering::Relaxed);
        }
        // No other thread has the slot: the lock is not contended.
        let facts = self.shared.tcp.facts.get(index as usize);
        if let Some(mut facts) = facts.and_then(|facts| facts.try_lock().ok()) {
            *facts = TcpSlotFacts { local, peer, options };
        }
        Some(index)
    }

    /// Slots of programs' connections here.
    #[must_use]
    pub fn connection_slots(&self) -> u32 {
        self.tcp.slots().1
    }

    /// The stack ends: the connection in a slot takes what was written and goes on without its
    /// program, which may read what has arrived. Returns the connection, to be closed.
    pub fn part_from(
        &mut self,
        tcp: Option<&mut ConnectionTable>,
        number: u32,
        now: Instant,
    ) -> Option<ConnectionId> {
        let index = self.tcp.slots().0 + number;
        let shared = Arc::clone(&self.shared);
        let (slot, local) = (shared.tcp.slot(index)?, self.tcp.local(index)?);
        let id = local.id?;
        // Before the last look at what was written: a later call fails.
        slot.state.fetch_or(STREAM_ENDED, Ordering::AcqRel);
        let (mut chunks, bits) = slot.tx.take(Bits::NONE);
        if let Some(tcp) = tcp.filter(|_| !chunks.is_empty()) {
            let paid: u32 = chunks.iter().map(|chunk| chunk.true_size()).sum();
            local.charged = local.charged.saturating_add(paid);
            let _ = tcp.send_chunks(id, &mut chunks, now);
        }
        if bits.has(Bits::DROPPED) {
            // Its ring is on its way, and the slot is needed until then.
            return None;
        }
        self.tcp.part_from(index);
        slot.rx.set(STREAM_STOPPED);
        slot.reader.take().into_iter().for_each(Waker::wake);
        slot.writer.take().into_iter().for_each(Waker::wake);
        Some(id)
    }

    /// Whether nothing that programs sent or wrote waits here.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        !self.has_work() && !self.tcp.is_busy()
    }
}

/// What the program has read since is not held any more: the window may open.
fn take_back(tcp: &mut ConnectionTable, id: ConnectionId, slot: &TcpSlot, now: Instant) {
    let consumed = slot.consumed.swap(0, Ordering::AcqRel);
    if consumed > 0 {
        let _ = tcp.consumed(id, consumed, now);
    }
}

/// Gives a writer credit for acknowledged data and for growth of its connection's limit; less,
/// where the limit has shrunk. Returns whether chunks were freed, and whether the writer is to be
/// woken.
fn grant(
    tcp: &ConnectionTable,
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
    (freed > 0, gives(&slot.credit, (more, freed), limit))
}

/// Gives credit, and returns whether the writer is to be woken: also where a smaller limit leaves
/// nothing to give, as what there is may be enough by it.
fn gives(credit: &Credit, (more, freed): (u32, u32), limit: u32) -> bool {
    (more > 0 || freed > 0) && credit.give(more, limit / 3)
}

fn apply_options(
    tcp: &mut ConnectionTable,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_woken_where_a_smaller_limit_makes_what_there_is_enough() {
        // A third of 300,000 bytes was not there.
        let credit = Credit::new(70_000);
        assert!(credit.park(80_000));
        assert!(!gives(&credit, (0, 5000), 300_000));
        assert!(!gives(&credit, (0, 0), 60_000), "nothing has happened");
        assert!(gives(&credit, (0, 5000), 60_000));
        assert_eq!(credit.left(), 70_000);
    }
}
