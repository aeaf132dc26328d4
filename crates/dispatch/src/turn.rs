//! One turn of a worker: what others handed over, a burst, transmitting, a slice of timed work.
//!
//! Called by [`Worker::run`], which has the clock read between the parts of a turn and within them:
//! packets are read from devices for half of [`TURN_MAX`], and sent until all of it is over; timed
//! work ends after half of it, looked at after each [`WORK_PIECE`] units. Where packets took more
//! than half, the slice of timed work is left to the next turn, which begins with it. A part that
//! took too long takes on less the next time (`turn_limit.rs`). Programs that run a worker inside
//! another loop have no such clock. A turn takes at most one burst from devices (round robin) after
//! at most one burst from its neighbours, which is first because work has been spent on it already.
//!
//! Invariants: work in a turn is bounded (two bursts, [`WORK_UNITS`] of timed work, a few
//! requests). Timed work gets its slice in every turn that does more than look ahead for
//! established flows (a quarter of the time at least), so a flood slows it but never stops it. The
//! engine is called by [`Worker::call`] only, which ends each call with a quiescent state, so that
//! no loop can hold up the others' reclamation.

use std::time::Duration;

use floodwall_base::limits::{BURST_MAX, WORK_UNITS};
use floodwall_base::{Instant, Units};
use floodwall_packet::{Engine, HandoffList, PacketBuf, Round};
use floodwall_sync::qsbr::Moment;

use crate::control::{COMMANDS_MAX, ControlQueue};
use crate::membership::GroupCommands;
use crate::port::Port;
use crate::publish::Publish;
use crate::turn_limit::TURN_MAX;
use crate::worker::Worker;
use crate::worker_counters::WorkerCounter;

/// Units of timed work after which the clock is read.
const WORK_PIECE: u32 = 16;
/// Units that an engine is granted for one burst of its own, and for one of its neighbours'.
const ROUND_UNITS: Units = Units(8 * BURST_MAX as u32);

impl<E: Engine + Publish + 'static> Worker<E> {
    /// One turn of the loop at `now`; returns how many packets were found. For programs that run
    /// a worker inside another loop; [`Worker::run`] is made of it.
    pub fn turn(&mut self, now: Instant) -> usize {
        self.facts.add(WorkerCounter::Rounds, 1);
        self.began = Some(now);
        if self.bell.heard() {
            self.carry_out_commands(now);
        }
        self.tell_answered(now);
        let mut from = now;
        // The turn before had no time left for it.
        if self.owes_slice && !self.is_clogged() {
            self.owes_slice = false;
            self.ports.iter_mut().for_each(Port::begin_turn);
            from = self.work_slice(now, now);
            if from - now > TURN_MAX {
                // Packets have the next turn.
                self.end_turn(now);
                return 0;
            }
        }
        let adopted = self.adopt(now);
        let found = self.receive(now, from);
        if !self.burst.is_empty() {
            let units = self.packet_limit.units(ROUND_UNITS, WORK_UNITS);
            self.call(now, units, Moment::RoundEnd, E::round);
        }
        if found + adopted > 0 {
            self.facts.add(WorkerCounter::BusyRounds, 1);
        }
        self.tell_offers(now);
        self.tell_redirects(now);
        let sends_from = self.transmit();
        let mut at = from;
        if found + adopted > 0 {
            at = self.time(now);
            self.note_sending(sends_from, at);
            self.packet_limit.note(at - from);
        }
        let due = self.deadline().is_some_and(|deadline| deadline <= now);
        if due && !self.gate.looks_ahead() {
            match at - now > TURN_MAX / 2 || self.is_clogged() {
                true => self.owes_slice = true,
                false => _ = self.work_slice(now, at),
            }
        }
        self.end_turn(now);
        found + adopted
    }

    /// What follows a turn's work.
    #[inline]
    fn end_turn(&mut self, now: Instant) {
        self.give_out(now);
        if let Some(engine) = &mut self.engine {
            engine.departed();
        }
        if let Some(group) = &mut self.group {
            group.reader.pass(Moment::RoundEnd, now);
        }
    }

    /// Whether a backlog that there is no time to send leaves no room for what timed work sends. It
    /// falls with every turn.
    fn is_clogged(&self) -> bool {
        self.ports.iter().any(Port::is_clogged)
    }

    /// A slice of timed work, that begins `at` in the turn of `now`: in pieces, until the
    /// time is over, so that expensive units do not prolong it. Returns when it ends.
    fn work_slice(&mut self, now: Instant, at: Instant) -> Instant {
        self.facts.add(WorkerCounter::WorkSlices, 1);
        let mut left = self.work_limit.part_of(WORK_UNITS);
        let piece = self.clock.map_or(left, |_| self.work_limit.part_of(WORK_PIECE));
        loop {
            let before = self.facts.of(WorkerCounter::Units);
            self.call(now, Units(piece.min(left)), Moment::SliceEnd, E::work);
            let spent = self.facts.of(WorkerCounter::Units) - before;
            self.facts.add(WorkerCounter::SliceUnits, spent);
            // One connection of a program may hold more than was granted.
            left = left.saturating_sub(piece.max(spent as u32));
            let is_done = left == 0 || spent < u64::from(piece);
            if is_done || self.time(at) - at > TURN_MAX / 2 {
                break;
            }
        }
        self.tell_redirects(now);
        let sends_from = self.transmit();
        let end = self.time(at);
        self.note_sending(sends_from, end);
        self.work_limit.note(end - at);
        self.facts.add(WorkerCounter::SliceNanos, (end - at).as_nanos() as u64);
        end
    }

    /// Devices were given packets for so long.
    #[inline]
    fn note_sending(&mut self, from: Option<Instant>, to: Instant) {
        let took = from.map_or(Duration::ZERO, |from| to - from);
        self.facts.add(WorkerCounter::TransmitNanos, took.as_nanos() as u64);
    }

    /// The time, where the worker runs by a clock; else what was given.
    #[inline]
    fn time(&self, otherwise: Instant) -> Instant {
        self.clock.map_or(otherwise, |clock| clock.now())
    }

    /// The one way to the engine: every call has its round, may look at what is shared for as long
    /// as it lasts, and ends with a quiescent state.
    #[inline]
    pub(crate) fn call(
        &mut self,
        now: Instant,
        budget: Units,
        moment: Moment,
        call: impl FnOnce(&mut E, &mut Round<'_>) -> Units,
    ) {
        let Some(engine) = &mut self.engine else { return self.drop_burst() };
        self.sent_before = self.departing.len();
        let mut round = Round {
            now,
            pool: &self.pool,
            random: &mut self.random,
            arrived: &mut self.burst,
            departing: &mut self.departing,
            budget,
            peers: self.group.as_mut().and_then(GroupCommands::peers),
        };
        let spent = call(engine, &mut round);
        self.facts.add(WorkerCounter::Units, u64::from(spent.0));
        let sent = self.departing.len().saturating_sub(self.sent_before);
        self.sent_before = self.departing.len();
        self.facts.add(WorkerCounter::SentPackets, sent as u64);
        if let Some(group) = &mut self.group {
            group.exchange.take_offered(&mut self.facts);
            group.reader.pass(moment, now);
        }
    }

    /// Drops the packets for an engine that is down, counted with that reason.
    #[cold]
    fn drop_burst(&mut self) {
        let dead = self.burst.drain().count();
        self.facts.add(WorkerCounter::DropsShardDown, dead as u64);
    }

    /// What neighbours handed over: the engine's to the engine, departures to the devices.
    pub(crate) fn adopt(&mut self, now: Instant) -> usize {
        let capacity = self.rx_capacity(now).min(self.handoff_capacity());
        let asked = self.gate.ask_handed(capacity);
        let Some(group) = &mut self.group else { return 0 };
        let taken = group.exchange.collect(asked, &mut self.departing, &mut self.facts);
        self.sent_before = self.departing.len();
        if group.pressure.is_elsewhere() {
            self.gate.others_choose(now);
        }
        self.gate.admit_handed(now, self.engine.as_ref(), &mut group.exchange.handed, taken);
        if group.exchange.handed.is_empty() {
            return taken;
        }
        // Taken out for the call, which has the exchange's other list.
        let mut handed = std::mem::replace(&mut group.exchange.handed, HandoffList::new(0));
        for established in self.gate.handed_established_flows(&handed) {
            mark_established(&mut self.ports, &self.port_of, now, established);
        }
        // What an engine left in the last call is no burden of this one.
        self.burst.drain().for_each(drop);
        self.call(now, ROUND_UNITS, Moment::RoundEnd, |engine, round| {
            engine.adopt(round, &mut handed)
        });
        let left = handed.drain().count();
        if self.engine.is_none() {
            self.facts.add(WorkerCounter::DropsShardDown, left as u64);
        }
        if let Some(group) = &mut self.group {
            group.exchange.handed = handed;
        }
        taken
    }

    /// One burst from all devices together, beginning with another one each turn, and without a
    /// gate no more than the engine is willing to take; what belongs to other workers goes to them,
    /// and under pressure the rest passes the gate. It ends with the first half of the turn: what
    /// is left waits in its device, as behind a full poll. Returns how many came for this worker.
    fn receive(&mut self, now: Instant, from: Instant) -> usize {
        // What an engine left is not its neighbours' burden.
        self.burst.drain().for_each(drop);
        let capacity = self.rx_capacity(now).min(self.handoff_capacity());
        self.gate.share_memory(&self.pool);
        let asked = self.gate.ask(capacity);
        let until = self.clock.map(|clock| (clock, now + TURN_MAX / 2));
        let (mut room, mut is_late) = (asked, false);
        let credit = self.credit();
        let count = self.ports.len();
        for step in 0..count {
            let index = (self.first + step) % count;
            let before = self.burst.len();
            self.burst.set_limit(before + if is_late { 0 } else { room });
            let port = &mut self.ports[index];
            port.begin_turn();
            let iface = usize::from(port.iface().0);
            let is_known = self.group.as_ref().is_none_or(|group| group.is_common(iface));
            port.admit(now, if is_known { credit } else { credit.map(|_| usize::MAX) });
            let vanished = port.receive(&self.pool, &mut self.burst, &mut self.facts, until);
            is_late |= port.has_left_some();
            if port.has_overflowed() {
                self.gate.overflowed(now);
            }
            let taken = self.burst.len() - before;
            self.facts.add(WorkerCounter::RxPackets, taken as u64);
            room -= taken.min(room);
            if let Some(group) = &mut self.group {
                group.sort(port.medium(), before, &mut self.burst, &mut self.facts);
            }
            if vanished {
                self.lost_device(index);
            }
        }
        self.first = (self.first + 1) % count.max(1);
        let found = self.burst.len();
        if is_late {
            self.facts.add(WorkerCounter::ReceiveCuts, 1);
            self.gate.cut(asked - room);
        }
        if found >= self.receive_noted {
            let took = self.time(from) - from;
            self.facts.add(WorkerCounter::ReceiveNanos, took.as_nanos() as u64);
        }
        self.gate.admit(now, self.engine.as_ref(), &mut self.burst, asked - room);
        self.mark_established(now);
        found
    }

    /// The devices' credit for unverified flows. Where workers pass packets on to each other, the
    /// worker that receives a flow need not be the one that can classify it. So while one worker's
    /// devices drop unverified flows, the others classify the packets that they are handed. On an
    /// interface without a queue of every worker, devices drop only packets that any worker would
    /// refuse.
    fn credit(&mut self) -> Option<usize> {
        let own = self.gate.credit();
        let Some(group) = self.group.as_mut().filter(|group| group.workers > 1) else { return own };
        let credit = if self.gate.chooses() { group.exchange.credit(own) } else { own };
        let is_cut = credit.is_some_and(|credit| credit < usize::MAX);
        let knows =
            |p: &Port| p.knows_established_flows() && group.is_common(usize::from(p.iface().0));
        let is_cut = is_cut && self.ports.iter().any(knows);
        group.pressure.tell(is_cut);
        credit
    }

    /// Reports the flows that triage has just verified to their devices.
    fn mark_established(&mut self, now: Instant) {
        for established in self.burst.iter().take(self.gate.established()) {
            mark_established(&mut self.ports, &self.port_of, now, established);
        }
    }

    /// Reports to devices what the engine accepts, where that has changed: before a packet is sent
    /// that could be answered.
    #[inline]
    fn tell_wants(&mut self) {
        let engine = self.engine.as_ref().filter(|_| self.tells_wants);
        let Some(changed) = engine.map(E::wants_changed) else { return };
        if self.wants_told != Some((self.restarts.count, changed)) {
            self.wants_told = Some((self.restarts.count, changed));
            self.tell_wants_anew();
        }
    }

    /// An interface without a queue of every worker cannot know what all workers accept.
    #[cold]
    fn tell_wants_anew(&mut self) {
        for port in self.ports.iter_mut().filter(|port| port.knows_established_flows()) {
            let iface = port.iface();
            let is_common =
                self.group.as_ref().is_none_or(|group| group.is_common(usize::from(iface.0)));
            match &self.engine {
                Some(engine) if is_common => engine.rx_filter(iface, &mut self.wanted),
                _ => self.wanted.everything(),
            }
            port.want(&self.wanted);
        }
    }

    /// Shares what is to leave out to the ports, in order, and lets them transmit.
    ///
    /// They have until the turn's end, and a quarter of a turn at least; what is left then waits
    /// for the next turn. Returns when this began, where the worker runs by a clock.
    pub(crate) fn transmit(&mut self) -> Option<Instant> {
        self.tell_wants();
        let clocks = self.clock.zip(self.began);
        let now = clocks.map(|(clock, _)| clock.now());
        let until = clocks
            .zip(now)
            .map(|((clock, began), now)| (clock, (began + TURN_MAX).max(now + TURN_MAX / 4)));
        while let Some(packet) = self.departing.pop_front() {
            let iface = usize::from(packet.iface().0);
            if let Some(index) = self.port_of.get(iface).copied().flatten() {
                if self.ports[index].send(packet, &mut self.facts, until) {
                    self.lost_device(index);
                }
                continue;
            }
            let carrier = self.group.as_ref().and_then(|group| group.carrier(iface));
            match (&mut self.group, carrier) {
                (Some(group), Some(to)) => {
                    group.exchange.departure(to, packet, &mut self.facts);
                }
                _ => self.facts.add(WorkerCounter::DropsInterfaceUnknown, 1),
            }
        }
        let mut backlog = 0;
        for index in 0..self.ports.len() {
            if self.ports[index].flush(&mut self.facts, until) {
                self.lost_device(index);
            }
            backlog += self.ports[index].backlog();
        }
        self.facts.set(WorkerCounter::Backlog, backlog as u64);
        // Connections keep what there is no time to send.
        let room = self.ports.iter().map(Port::tx_room).min();
        if let Some((engine, room)) = self.engine.as_mut().zip(room) {
            engine.set_tx_room(room);
        }
        now
    }

    /// Tells devices what they may pass on by themselves, and when no longer.
    #[inline]
    fn tell_redirects(&mut self, now: Instant) {
        if self.tells_wants {
            let engine = (self.engine.as_mut(), self.restarts.count);
            self.redirects.tell(now, engine, (&mut self.ports, &self.port_of));
        }
    }

    /// What neighbours shall have leaves for their rings.
    pub(crate) fn give_out(&mut self, now: Instant) {
        if let Some(group) = &mut self.group {
            group.exchange.give_out(now, &mut self.facts);
        }
    }

    /// What the rings to neighbours leave room for.
    fn handoff_capacity(&self) -> usize {
        self.group.as_ref().map_or(usize::MAX, |group| group.exchange.capacity())
    }

    /// Carries out a few of the waiting requests; the bell is rung again where more may wait.
    /// Requests to an engine that is down are dropped, and the requester gets an error.
    #[cold]
    fn carry_out_commands(&mut self, now: Instant) {
        for _ in 0..COMMANDS_MAX {
            let Ok(command) = self.mailbox.try_recv() else { return };
            self.facts.add(WorkerCounter::Commands, 1);
            if let Some(engine) = &mut self.engine {
                command.carry_out(&mut ControlQueue { now, engine, ports: &self.ports });
            }
        }
        self.bell.ring();
    }
}

/// Reports a packet of an established flow to its interface's device, on any of its queues.
fn mark_established(
    ports: &mut [Port],
    port_of: &[Option<usize>],
    now: Instant,
    established: &PacketBuf,
) {
    let port = port_of.get(usize::from(established.iface().0)).copied().flatten();
    if let Some(port) = port.and_then(|port| ports.get_mut(port)) {
        port.mark_established(now, established);
    }
}
