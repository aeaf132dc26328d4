//! What is restored after a call has changed a connection: lists, timers, memory, its place.
//!
//! Part of [`ConnectionTable`]; its invariants stand there.

use floodwall_base::{IndexLists, Instant};
use floodwall_syncache::HalfOpen;

use super::{ConnectionTable, Slot};
use crate::connection::ConnectionDue;
use crate::delayed_ack::{AT_ONCE, DelayedAcks};
use crate::kept_deadline::KeptDeadline;
use crate::place_timers::PlaceTimers;
use crate::rare_state::RareState;
use crate::senders::Senders;
use crate::state::TcpState;
use crate::state_slab::StateSlab;
use crate::timer::{AckDelay, TimerKind};

/// The lists and timers in which a place may be.
struct PlaceLists<'a> {
    dirty: &'a mut Senders,
    delayed: &'a mut DelayedAcks,
    timers: &'a mut PlaceTimers,
    works: &'a KeptDeadline,
    ready: &'a mut IndexLists,
    rare: &'a StateSlab<RareState>,
}

impl Slot {
    /// Settles a connection that stays, at `index`: the list of senders, timers and events.
    #[inline(always)]
    fn settle(&mut self, lists: PlaceLists<'_>, index: u32, now: Instant, wants_output: bool) {
        let Some(connection) = &mut self.connection else { return };
        if wants_output {
            lists.dirty.add(index);
        } else {
            lists.dirty.remove(index);
        }
        if !wants_output {
            connection.mind_the_window(lists.rare, now);
        }
        self.settle_timers(lists, index, now);
    }

    /// The same without the list of senders: timers and events.
    #[inline(always)]
    fn settle_timers(&mut self, lists: PlaceLists<'_>, index: u32, now: Instant) {
        let is_queued = self.is_queued();
        let Some(connection) = &mut self.connection else { return };
        connection.arm_retransmit(lists.rare, self.armed);
        lists.delayed.follow(index, &mut connection.timers.ack, now);
        let next = connection.next_timer(lists.rare);
        if next < self.armed {
            self.armed = next;
            lists.timers.set(index, next);
            lists.works.mark();
        }
        if connection.has_news_for_program() && !is_queued && !lists.ready.is_linked(index) {
            lists.ready.push_back(self.owner.into(), index);
        }
    }

    /// Puts a connection with events on the list of its owner, once that has accepted it.
    #[inline(always)]
    fn announce(&self, ready: &mut IndexLists, index: u32) {
        let Some(connection) = &self.connection else { return };
        if connection.has_news_for_program() && !self.is_queued() && !ready.is_linked(index) {
            ready.push_back(self.owner.into(), index);
        }
    }
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// Restores the invariants of one place after a change of its connection. A connection with
    /// pending output sends before time advances; its remaining invariants are restored then.
    pub(crate) fn settle(&mut self, index: u32, now: Instant) {
        let Some(connection) = self.at(index) else { return };
        if !connection.wants_output(&self.records) {
            self.settle_as(index, now, false);
        } else {
            self.dirty.add(index);
        }
    }

    /// The same after an acknowledgment, of a connection that only acknowledges, was built or could
    /// not be.
    #[inline]
    pub(crate) fn settle_replied(&mut self, index: u32, now: Instant, was_built: bool) {
        self.settle_as(index, now, !was_built);
        if !was_built {
            // Its timer tries again.
            self.dirty.remove(index);
        }
    }

    /// The same after the program has accepted the connection, which was settled before: that
    /// changes nothing but its events and what its acknowledgment waits for.
    pub(crate) fn settle_accepted(&mut self, index: u32) {
        let Some(place) = self.places.get_mut(index as usize) else { return };
        let Some(connection) = &mut place.connection else { return };
        connection.accept();
        if connection.timers.ack == AckDelay::Quick {
            self.delayed.set(index, AT_ONCE);
        }
        place.announce(&mut self.ready, index);
    }

    /// The same after the program has read, which usually changes only the memory held.
    pub(crate) fn settle_read(&mut self, index: u32, now: Instant) {
        match self.at(index) {
            Some(connection)
                if connection.due == ConnectionDue::default()
                    && connection.state().is_synchronized()
                    && connection.state() != TcpState::TimeWait =>
            {
                let held = connection.held();
                self.grew |= self.memory.note(index, held, now) && self.memory.is_crowded();
            }
            _ => self.settle(index, now),
        }
    }

    /// As [`ConnectionTable::settle`], where it is known whether the connection has pending output.
    #[inline(never)]
    pub(crate) fn settle_as(&mut self, index: u32, now: Instant, wants_output: bool) {
        if let Some((place, lists)) = self.settle_memory(index, now, wants_output) {
            place.settle(lists, index, now, wants_output);
        }
    }

    /// Notes the memory of a connection; its place and lists are returned, unless it has ended:
    /// then it is settled.
    #[inline(always)]
    fn settle_memory(
        &mut self,
        index: u32,
        now: Instant,
        wants_output: bool,
    ) -> Option<(&mut Slot, PlaceLists<'_>)> {
        if matches!(self.at(index)?.state(), TcpState::Closed | TcpState::TimeWait) {
            self.settle_ended(index, now, wants_output);
            return None;
        }
        let place = self.places.get_mut(index as usize)?;
        let connection = place.connection.as_ref()?;
        let grew = self.memory.note(index, connection.held(), now);
        self.grew |= grew && self.memory.is_crowded();
        let Self { dirty, delayed, timers, works, ready, records, .. } = self;
        let rare = &records.rare;
        Some((place, PlaceLists { dirty, delayed, timers, works, ready, rare }))
    }

    /// The same of a connection that has been and is quiet ([`Connection::is_quiet`]) and is not
    /// on the list of senders: nothing waits that its window could hold up.
    #[inline(always)]
    pub(crate) fn settle_quiet(&mut self, index: u32, now: Instant) {
        debug_assert!(!self.dirty.has(index), "it has nothing to send");
        debug_assert!(self.is_quiet_without_persist(index), "nothing waits");
        if let Some((place, lists)) = self.settle_memory(index, now, false) {
            place.settle_timers(lists, index, now);
        }
    }

    /// Whether nothing of a connection that goes on waits for its peer's window, now or before.
    fn is_quiet_without_persist(&self, index: u32) -> bool {
        let connection = self.at(index);
        connection.is_none_or(|it| {
            matches!(it.state(), TcpState::Closed | TcpState::TimeWait)
                || it.is_quiet(&self.records) && !it.timers.is_set(TimerKind::Persist)
        })
    }

    /// The same of a connection that has ended, or is in TIME-WAIT.
    #[inline(never)]
    fn settle_ended(&mut self, index: u32, now: Instant, wants_output: bool) {
        self.works.mark();
        let Some(place) = self.places.get_mut(index as usize) else { return };
        let Some(connection) = &mut place.connection else { return };
        if let Some(dropped) = connection.snd.take_dropped() {
            self.deferred.add(dropped, self.records.freeing.left(now));
        }
        if connection.is_over() {
            return self.vacate(index);
        }
        let is_time_wait = connection.state() == TcpState::TimeWait;
        if is_time_wait && connection.released && !wants_output {
            return self.shrink(index, now);
        }
        // Of an ended connection only the program's part is left, which the program frees.
        let held = if connection.state() == TcpState::Closed { 0 } else { connection.held() };
        self.grew |= self.memory.note(index, held, now) && self.memory.is_crowded();
        if connection.state() == TcpState::Closed {
            connection.out_of_order.clear(&mut self.runs);
            connection.recovery.clear(&mut self.records);
            if self.demux.leave(index) {
                self.ports.leave(connection.flow.local.port);
                self.leaving -= usize::from(core::mem::take(&mut place.evicted));
                self.broken.count(connection.broke);
                self.ledgers.leave(index);
            }
        }
        let lists = PlaceLists {
            dirty: &mut self.dirty,
            delayed: &mut self.delayed,
            timers: &mut self.timers,
            works: &self.works,
            ready: &mut self.ready,
            rare: &self.records.rare,
        };
        place.settle(lists, index, now, wants_output);
    }

    /// Replaces a connection in TIME-WAIT by a record, which needs no place.
    fn shrink(&mut self, index: u32, now: Instant) {
        if let Some(connection) = self.at(index) {
            let (flow, record) = (connection.flow, connection.time_wait(&self.records.rare));
            let hash = self.demux.hash_of(index);
            self.time_waits.insert_hashed((&flow, hash), record, now);
        }
        self.vacate(index);
    }

    /// Frees a place.
    fn vacate(&mut self, index: u32) {
        let was_found = self.demux.leave(index);
        self.ledgers.leave(index);
        self.timers.clear(index);
        self.delayed.set(index, Instant::FAR);
        self.dirty.remove(index);
        self.ready.unlink(index);
        self.memory.quit(index);
        if let Some(place) = self.places.get_mut(index as usize) {
            // It is large: it ends where it is.
            if let Some(connection) = &mut place.connection {
                if was_found {
                    self.ports.leave(connection.flow.local.port);
                    self.broken.count(connection.broke);
                }
                connection.out_of_order.clear(&mut self.runs);
                connection.recovery.clear(&mut self.records);
                connection.clear_rare(&mut self.records.rare);
                place.connection = None;
            }
            if let Some(slot) = place.take_queued() {
                self.half_open.accepted(slot);
            }
            self.leaving -= usize::from(core::mem::take(&mut place.evicted));
            place.armed = Instant::FAR;
            place.generation = place.generation.wrapping_add(1);
            self.free.push(index);
        }
    }
}
