//! `Tcp`: all connections and listeners of one shard.
//!
//! Called by `stack`: segments come in by [`Tcp::input`] (`set/intake.rs`), leave by
//! [`Tcp::transmit`], timers ring in [`Tcp::work`]; applications use `set/calls.rs`. Invariants: a
//! place is in the demultiplexer exactly as long as it has a connection that is not CLOSED: what a
//! program still holds of a dead one stands in nobody's way (RFC 9293 section 3.10.7.1); after
//! every call each connection that wants to send is on the list of those; of each other, and of
//! those once they have sent, news are on the owner's list, the wheel knows a moment not later than
//! the deadline, and what is held is counted. Nothing is allocated after construction but within
//! the capacities that were reserved then.
//!
//! # Under flood
//! Strangers reach [`Tcp::input`]: one hash, one chain, one pass over the bytes of a segment that
//! belongs to somebody. Places are taken by proven handshakes (bounded by the accept queues) and by
//! our own applications, up to `TCP_CONNECTIONS_MAX`; a full table refuses the newcomer.

use core::net::IpAddr;
use core::num::NonZeroU8;

use floodwall_base::limits::{TCP_MEMORY_ENDED_MAX, TCP_RECORDS, TCP_RUNS, WORK_UNITS};
use floodwall_base::{
    Counter, Counters, FlowKey, HashKey, IfIndex, IndexLists, Instant, PortSet, Randomness,
    Steering, TimerWheel, Units, WorkerId,
};
use floodwall_packet::{PacketBuf, PacketList, Pool};
use floodwall_syncache::{AcceptSlot, CacheSettings, Epoch, HalfOpen, Moment, Secret, SynCache};

use crate::connection::{Broke, Connection, Cx, Due};
use crate::delayed::DelayedAcks;
use crate::demux::Demux;
use crate::error::ConnectionError;
use crate::events::Events;
use crate::id::{ConnectionId, Gone};
use crate::isn::IsnSecret;
use crate::listener::Listeners;
use crate::memory::Memory;
use crate::port_counts::PortCounts;
use crate::reassembly::Runs;
use crate::records::Records;
use crate::set::train::Train;
use crate::settings::TcpConfig;
use crate::state::State;
use crate::time_wait::TimeWaits;
use crate::timer::Timer;

/// Owners of connections that can be told apart: applications of one shard.
pub const OWNERS_MAX: usize = 64;

/// What one call lends.
pub struct Lend<'a> {
    /// The round's time.
    pub now: Instant,
    /// The wall clock's period, for cookies.
    pub epoch: Epoch,
    /// Where packets come from.
    pub pool: &'a Pool,
    /// The shard's randomness.
    pub random: &'a mut Randomness,
    /// The shard's counters.
    pub counters: &'a mut Counters,
}

impl Lend<'_> {
    pub(crate) const fn moment(&self) -> Moment {
        Moment::new(self.now, self.epoch)
    }

    pub(crate) fn cx<'b>(
        &'b mut self,
        runs: &'b mut Runs,
        records: &'b mut Records,
        (full, partial): (bool, bool),
    ) -> Cx<'b> {
        let Self { now, pool, random, counters, .. } = self;
        Cx { now: *now, pool, random, counters, runs, records, full, partial }
    }
}

/// A segment that is to leave.
#[derive(Debug)]
pub struct Transmit {
    /// Begins with the TCP header; checksum complete; layers not yet set for a network header.
    pub packet: PacketBuf,
    /// The address that it leaves from.
    pub src_addr: IpAddr,
    /// Where to.
    pub dst_addr: IpAddr,
    /// The link of link-local ends.
    pub zone: IfIndex,
    /// The hop limit that the connection asks for.
    pub hop_limit: Option<u8>,
    /// The traffic class that the connection asks for, but for its two lowest bits.
    pub traffic_class: u8,
    /// Routers may mark it: ECT(0) in its IP header (RFC 3168 section 6.1.2).
    pub ecn_capable: bool,
}

impl Transmit {
    /// A packet of this flow.
    #[inline]
    pub(crate) fn of(packet: PacketBuf, flow: &FlowKey) -> Self {
        let (src_addr, dst_addr) = (flow.local.ip(), flow.remote.ip());
        let (zone, hop_limit, traffic_class, ecn_capable) = (flow.zone, None, 0, false);
        Self { packet, src_addr, dst_addr, zone, hop_limit, traffic_class, ecn_capable }
    }
}

/// How many connections did not end in order so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Broken {
    /// Before they were open; half-open ones of listeners apart.
    pub attempts: u64,
    /// Open ones: by a reset of either side, or given up.
    pub open: u64,
}

/// A place for one connection.
#[repr(C)]
pub(crate) struct Place {
    pub(crate) generation: u32,
    /// Who is told of events.
    pub(crate) owner: u32,
    /// What the wheel knows.
    armed: Instant,
    /// Which listener it came from, while nobody has accepted it.
    pub(crate) slot: Option<(u32, AcceptSlot)>,
    pub(crate) connection: Option<Connection>,
    /// What its client's SYN said, if it had one.
    pub(crate) said: Option<crate::set::SynSaid>,
}

/// See the file's head.
pub struct Tcp<H = SynCache> {
    pub(crate) config: TcpConfig,
    pub(crate) places: Vec<Place>,
    free: Vec<u32>,
    pub(crate) demux: Demux,
    /// At which ports of ours there are connections.
    ports: PortCounts,
    /// Under which flows are hashed: the half-open connections' own.
    flow_key: HashKey,
    /// Whose segment arrived last.
    latest: u32,
    wheel: TimerWheel,
    delayed: DelayedAcks,
    /// Those that want to send: list 0.
    dirty: IndexLists,
    /// Whose turn it is, and how many more segments it has.
    turn: (u32, u32),
    /// Those with events, by owner.
    ready: IndexLists,
    pub(crate) listeners: Listeners,
    pub(crate) half_open: H,
    pub(crate) time_waits: TimeWaits,
    pub(crate) isn: IsnSecret,
    runs: Runs,
    records: Records,
    memory: Memory,
    /// Some connection holds more than when that was looked at last.
    grew: bool,
    /// Connections that did not end in order.
    broken: Broken,
    /// Devices finish checksums.
    partial: bool,
    /// Segments of this burst that wait for those behind them.
    pub(crate) train: Train,
    pub(crate) clock: HashKey,
    pub(crate) steering: Option<(Steering, WorkerId)>,
}

/// The only list of `dirty`.
const DIRTY: u32 = 0;
/// Segments that a connection sends before it is another's turn: as many of 1,460 bytes as one
/// super-frame holds, which devices make of those that leave in a row.
const TURN: u32 = 44;

impl Tcp {
    /// An empty set with a SYN cache of its own, whose cookies nobody else's instance shares.
    #[must_use]
    pub fn new(config: TcpConfig, at: Moment, random: &mut Randomness) -> Self {
        let secret = Secret::random(&mut random.secret);
        let cache = SynCache::new(CacheSettings::default(), secret, &mut random.secret, at);
        Self::with(config, cache.with_new_secret(), at.now, random)
    }
}

impl<H: HalfOpen> Tcp<H> {
    /// An empty set. Takes the tables' memory now; the places' as they are used, within what is
    /// reserved.
    #[must_use]
    pub fn with(config: TcpConfig, half_open: H, now: Instant, random: &mut Randomness) -> Self {
        let max = config.connections_max;
        Self {
            places: Vec::with_capacity(max),
            free: Vec::with_capacity(max),
            demux: Demux::new(max),
            ports: PortCounts::default(),
            flow_key: half_open.flow_key(),
            latest: 0,
            wheel: TimerWheel::new(max, now),
            delayed: DelayedAcks::new(max),
            dirty: IndexLists::new(max, 1),
            turn: (0, 0),
            ready: IndexLists::new(max, OWNERS_MAX),
            listeners: Listeners::new(config.listeners_max, max, random.secret.hash_key()),
            half_open,
            time_waits: TimeWaits::new(
                config.time_waits_max,
                config.time_wait,
                random.secret.hash_key(),
            ),
            isn: IsnSecret::new(random.secret.hash_key()),
            runs: Runs::new(TCP_RUNS),
            records: Records::new(TCP_RECORDS),
            memory: Memory::new(config.memory_bytes, max),
            grew: false,
            broken: Broken::default(),
            partial: false,
            train: Train::default(),
            clock: random.secret.hash_key(),
            steering: None,
            config,
        }
    }

    /// Names the shard: active opens choose ports whose answers come home to it.
    pub fn steer(&mut self, steering: Steering, worker: WorkerId) {
        self.steering = Some((steering, worker));
    }

    /// Leaves the checksums of connections' segments to their devices: a packet's state is
    /// [`ChecksumState::Partial`](floodwall_packet::ChecksumState) then.
    pub const fn leave_checksums(&mut self) {
        self.partial = true;
    }

    /// How many connections there are, TIME-WAIT included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.demux.len() + self.time_waits.len()
    }

    /// Puts the ports of ours at which segments are waited for into `ports`; whether they are at
    /// every port.
    pub fn ports(&self, ports: &mut PortSet) -> bool {
        let sets = [self.ports.set(), self.time_waits.ports(), self.listeners.heard()];
        sets.into_iter().for_each(|set| ports.add(set));
        self.listeners.hears_every_port()
    }

    /// Another number whenever [`Tcp::ports`] has something else to say.
    #[must_use]
    pub fn ports_changed(&self) -> u64 {
        let sets = [self.ports.set(), self.time_waits.ports(), self.listeners.heard()];
        sets.into_iter().map(PortSet::changes).sum()
    }

    /// How many connections did not end in order so far.
    #[must_use]
    pub const fn broken(&self) -> Broken {
        self.broken
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Connections at a time: every [`ConnectionId::index`] is below.
    #[must_use]
    pub const fn places_max(&self) -> usize {
        self.config.connections_max
    }

    /// Bytes of one connection's state, idle, buffers apart.
    #[must_use]
    pub const fn connection_bytes() -> usize {
        size_of::<Place>()
    }

    /// The hash by which connections and half-open ones know a flow.
    #[inline]
    pub(crate) fn hash(&self, flow: &FlowKey) -> u64 {
        self.flow_key.flow(flow)
    }

    /// Whose a segment is that arrives: mostly the connection's of the segment before. Else the
    /// flow's hash, by which its half-open connection is asked for next.
    #[inline]
    pub(crate) fn find_again(&mut self, flow: &FlowKey) -> Result<u32, u64> {
        let is_it = |c: &Connection| c.flow == *flow && c.state() != State::Closed;
        if self.at(self.latest).is_some_and(is_it) {
            return Ok(self.latest);
        }
        let hash = self.hash(flow);
        self.half_open.expect(hash);
        let found = self.find_hashed(flow, hash).ok_or(hash)?;
        self.expect(found);
        Ok(found)
    }

    /// This connection will be worked with: what that touches is asked for, all at once.
    #[inline]
    pub(crate) fn expect(&mut self, index: u32) {
        if index == self.latest {
            return;
        }
        self.latest = index;
        if let Some(connection) = self.at(index) {
            connection.expect();
        }
        self.memory.expect(index);
    }

    pub(crate) fn find(&self, flow: &FlowKey) -> Option<u32> {
        self.find_hashed(flow, self.hash(flow))
    }

    #[inline]
    pub(crate) fn find_hashed(&self, flow: &FlowKey, hash: u64) -> Option<u32> {
        self.demux
            .find(hash, |place| self.at(place).is_some_and(|connection| connection.flow == *flow))
    }

    pub(crate) fn at(&self, index: u32) -> Option<&Connection> {
        self.places.get(index as usize)?.connection.as_ref()
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.places.get_mut(index as usize)?.connection.as_mut()
    }

    pub(crate) fn named(&self, id: ConnectionId) -> Result<&Connection, Gone> {
        let place = self.places.get(id.index()).filter(|p| p.generation == id.generation);
        place.and_then(|place| place.connection.as_ref()).ok_or(Gone)
    }

    pub(crate) fn named_mut(&mut self, id: ConnectionId) -> Result<&mut Connection, Gone> {
        let place = self.places.get_mut(id.index()).filter(|p| p.generation == id.generation);
        place.and_then(|place| place.connection.as_mut()).ok_or(Gone)
    }

    /// A connection and what it is lent.
    pub(crate) fn lent<'b>(
        &'b mut self,
        index: u32,
        lend: &'b mut Lend<'_>,
    ) -> Option<(&'b mut Connection, Cx<'b>)> {
        let connection = self.places.get_mut(index as usize)?.connection.as_mut()?;
        self.memory.fit(lend.pool);
        connection.rcv.allowed = self.memory.allowance();
        let full = self.memory.is_full();
        Some((connection, lend.cx(&mut self.runs, &mut self.records, (full, self.partial))))
    }

    /// A connection and the records of what it sent.
    pub(crate) fn with_records(&mut self, index: u32) -> Option<(&mut Connection, &mut Records)> {
        let connection = self.places.get_mut(index as usize)?.connection.as_mut()?;
        Some((connection, &mut self.records))
    }

    pub(crate) fn id(&self, index: u32) -> ConnectionId {
        let generation = self.places.get(index as usize).map_or(0, |place| place.generation);
        ConnectionId { index, generation }
    }

    /// Whether one more connection has a place.
    pub(crate) fn has_place(&self) -> bool {
        !self.free.is_empty() || self.places.len() < self.config.connections_max
    }

    /// Puts a connection into a place; gives it back where there is none.
    pub(crate) fn place(
        &mut self,
        connection: Connection,
        owner: u32,
        slot: Option<(u32, AcceptSlot)>,
        now: Instant,
    ) -> Result<u32, Box<Connection>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < self.config.connections_max => {
                self.places.push(Place {
                    generation: 0,
                    owner: 0,
                    slot: None,
                    said: None,
                    armed: Instant::FAR,
                    connection: None,
                });
                self.places.len() as u32 - 1
            }
            None => return Err(Box::new(connection)),
        };
        self.demux.enter(self.flow_key.flow(&connection.flow), index);
        self.ports.enter(connection.flow.local.port);
        if let Some(place) = self.places.get_mut(index as usize) {
            place.owner = owner.min(OWNERS_MAX as u32 - 1);
            place.slot = slot;
            place.said = None;
            place.connection = Some(connection);
        }
        self.settle(index, now);
        Ok(index)
    }

    /// Restores the invariants of one place after something happened to its connection. Who wants
    /// to send is asked for it before time passes, and all else is seen to then.
    pub(crate) fn settle(&mut self, index: u32, now: Instant) {
        let Some(connection) = self.at(index) else { return };
        if !connection.wants_output(&self.records) {
            self.settle_as(index, now, false);
        } else if !self.dirty.is_linked(index) {
            self.dirty.push_back(DIRTY, index);
        }
    }

    /// The same after the program has read, which changes no more as a rule than what is held.
    pub(crate) fn settle_read(&mut self, index: u32, now: Instant) {
        match self.at(index) {
            Some(connection)
                if connection.due == Due::default()
                    && connection.state().is_synchronized()
                    && connection.state() != State::TimeWait =>
            {
                let held = connection.held();
                self.grew |= self.memory.note(index, held, now) && self.memory.is_short();
            }
            _ => self.settle(index, now),
        }
    }

    /// As [`Tcp::settle`], where it is known whether it wants to send, of whoever was asked for it.
    fn settle_as(&mut self, index: u32, now: Instant, wants_output: bool) {
        let Some(place) = self.places.get_mut(index as usize) else { return };
        let Some(connection) = &mut place.connection else { return };
        // Of what has ended only a program's part is left, which lets go of it.
        let held = if connection.state() == State::Closed { 0 } else { connection.held() };
        self.grew |= self.memory.note(index, held, now) && self.memory.is_short();
        if connection.state() == State::Closed {
            connection.ahead.clear(&mut self.runs);
            connection.recovery.clear(&mut self.records);
            if self.demux.leave(index) {
                self.ports.leave(connection.flow.local.port);
                match connection.broke {
                    Some(Broke::Attempt) => self.broken.attempts += 1,
                    Some(Broke::Open) => self.broken.open += 1,
                    None => {}
                }
            }
        }
        if connection.is_over() {
            return self.vacate(index);
        }
        if connection.state() == State::TimeWait && connection.released && !wants_output {
            return self.shrink(index, now);
        }
        if wants_output {
            if !self.dirty.is_linked(index) {
                self.dirty.push_back(DIRTY, index);
            }
        } else if self.dirty.is_linked(index) {
            self.dirty.unlink(index);
        }
        connection.arm_retransmit();
        if !wants_output {
            connection.mind_the_window(now);
        }
        self.delayed.set(index, connection.timers.at(Timer::DelayedAck));
        let next = connection.timers.next();
        if next < place.armed {
            place.armed = next;
            self.wheel.insert(index, next);
        }
        if !connection.events.is_empty() && place.slot.is_none() && !connection.released {
            let owner = place.owner;
            if !self.ready.is_linked(index) {
                self.ready.push_back(owner, index);
            }
        }
    }

    /// TIME-WAIT needs no place: a record stays behind.
    fn shrink(&mut self, index: u32, now: Instant) {
        if let Some(connection) = self.at_mut(index) {
            let (flow, record) = (connection.flow, connection.time_wait());
            self.time_waits.insert(&flow, record, now);
        }
        self.vacate(index);
    }

    /// Frees a place.
    fn vacate(&mut self, index: u32) {
        let was_found = self.demux.leave(index);
        self.wheel.cancel(index);
        self.delayed.set(index, Instant::FAR);
        self.dirty.unlink(index);
        self.ready.unlink(index);
        // No time is asked where nothing is held any more.
        self.memory.note(index, 0, Instant::ORIGIN);
        if let Some(place) = self.places.get_mut(index as usize) {
            if let Some(mut connection) = place.connection.take() {
                if was_found {
                    self.ports.leave(connection.flow.local.port);
                }
                connection.ahead.clear(&mut self.runs);
                connection.recovery.clear(&mut self.records);
            }
            if let Some((_, slot)) = place.slot.take() {
                self.half_open.accepted(slot);
            }
            place.armed = Instant::FAR;
            place.generation = place.generation.wrapping_add(1);
            self.free.push(index);
        }
    }

    /// The next segment that is to leave, some of each connection in its turn; `None` where there
    /// is none. To be asked until then after every call that may change a connection.
    pub fn transmit(&mut self, lend: &mut Lend<'_>) -> Option<Transmit> {
        self.transmit_some(lend, 1, &mut PacketList::new())
    }

    /// As [`Tcp::transmit`]; segments that leave with it, to the same peer and by the same IP
    /// header but for their lengths, are put behind `rest`.
    pub fn transmit_run(&mut self, lend: &mut Lend<'_>, rest: &mut PacketList) -> Option<Transmit> {
        self.transmit_some(lend, TURN, rest)
    }

    fn transmit_some(
        &mut self,
        lend: &mut Lend<'_>,
        most: u32,
        rest: &mut PacketList,
    ) -> Option<Transmit> {
        self.relieve(lend);
        while let Some(index) = self.next_in_turn() {
            let left = self.turn.1;
            let Some((connection, mut cx)) = self.lent(index, lend) else {
                self.dirty.unlink(index);
                continue;
            };
            let packet = connection.output(&mut cx, most.min(left + 1), rest);
            let left = left.saturating_sub(rest.len() as u32);
            let has_turn = left > 0;
            let has_news = connection.has_news(cx.records);
            let wants_output = has_news || connection.due != Due::default();
            let goes_on = has_turn && packet.is_some() && has_news;
            let ecn_capable = connection.take_capable();
            let transmit = packet.map(|packet| Transmit {
                hop_limit: connection.hop_limit.map(NonZeroU8::get),
                traffic_class: connection.traffic_class,
                ecn_capable,
                ..Transmit::of(packet, &connection.flow)
            });
            self.turn.1 = left;
            if goes_on {
                // It is asked again at once, and its last segment sees to timers and events.
                return transmit;
            }
            self.dirty.unlink(index);
            self.settle_as(index, lend.now, wants_output);
            if transmit.is_some() {
                return transmit;
            }
            self.dirty.unlink(index);
        }
        None
    }

    /// Who is to send now.
    fn next_in_turn(&mut self) -> Option<u32> {
        let (whose, left) = self.turn;
        let stays = left > 0 && self.dirty.is_linked(whose);
        let (next, most) = if stays { (whose, left) } else { (self.dirty.first(DIRTY)?, TURN) };
        self.turn = (next, most - 1);
        Some(next)
    }

    /// Where some connection holds more than before and memory is short, one that stands still
    /// ends; where more is held than may be, as many as it takes.
    fn relieve(&mut self, lend: &mut Lend<'_>) {
        if !core::mem::take(&mut self.grew) {
            return;
        }
        for _ in 0..TCP_MEMORY_ENDED_MAX {
            let Some(index) = self.memory.victim(lend.now) else { return };
            if let Some(connection) = self.at_mut(index) {
                connection.abort(ConnectionError::Aborted);
                lend.counters.count(Counter::TcpExtTCPAbortOnMemory);
            }
            self.settle(index, lend.now);
            if !self.memory.is_exceeded() {
                return;
            }
        }
    }

    /// Others hold so many true bytes of the frames in which connections keep what they send and
    /// receive. To be told before connections are lent the pool, whenever that has changed. Whether
    /// connections may hold less than if others held nothing.
    pub fn share_memory(&mut self, pool: &Pool, others: u64) -> bool {
        self.memory.fit(pool);
        self.memory.beside(others);
        self.grew |= self.memory.is_exceeded();
        self.memory.is_lowered()
    }

    /// Lets all connections hold no more than so many true bytes together.
    pub fn limit_memory(&mut self, bytes: u64) {
        self.memory.limit(bytes);
    }

    /// True bytes that all connections hold.
    #[must_use]
    pub const fn memory_held(&self) -> u64 {
        self.memory.held()
    }

    /// Its owner is not told of it any more.
    pub(crate) fn unready(&mut self, index: u32) {
        self.ready.unlink(index);
    }

    /// Whether [`Tcp::transmit`] has something.
    #[inline]
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.grew || !self.dirty.is_empty(DIRTY)
    }

    /// Lets timers ring, with at most `units` of work; what was spent. Answers to SYNs that nobody
    /// acknowledged leave by `send`; what connections send is asked for as always.
    pub fn work(
        &mut self,
        lend: &mut Lend<'_>,
        units: Units,
        send: &mut impl FnMut(Transmit),
    ) -> Units {
        let mut left = Units(units.0.min(WORK_UNITS));
        let granted = left;
        while !left.is_zero()
            && let Some(index) = self.delayed.pop_due(lend.now)
        {
            left = left.minus(Units(1));
            self.ring(index, lend);
        }
        while let Some(index) = self.wheel.pop_due(lend.now, &mut left) {
            if let Some(place) = self.places.get_mut(index as usize) {
                place.armed = Instant::FAR;
            }
            self.ring(index, lend);
        }
        left = left.minus(Units(self.time_waits.expire(lend.now, left.0)));
        if self.has_to_resend(lend.now) {
            left = left.minus(self.resend(lend, left, send));
        }
        granted.minus(left)
    }

    /// Lets the timers of a connection ring that are due.
    fn ring(&mut self, index: u32, lend: &mut Lend<'_>) {
        if let Some((connection, mut cx)) = self.lent(index, lend) {
            connection.ring(&mut cx);
        }
        self.settle(index, lend.now);
    }

    /// Whether SYN-ACKs are due again, which [`Tcp::work`] sends.
    #[must_use]
    pub fn has_to_resend(&self, now: Instant) -> bool {
        self.half_open.deadline() <= now
    }

    /// When [`Tcp::work`] has something at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let or_far = |at: Option<Instant>| at.unwrap_or(Instant::FAR);
        let first = or_far(self.wheel.deadline())
            .min(or_far(self.time_waits.deadline()))
            .min(self.half_open.deadline())
            .min(self.delayed.first_at());
        (first != Instant::FAR).then_some(first)
    }

    /// A connection of this owner for which something has become possible.
    pub fn next_event(&mut self, owner: u32) -> Option<(ConnectionId, Events)> {
        while let Some(index) = self.ready.pop_front(owner.min(OWNERS_MAX as u32 - 1)) {
            let id = self.id(index);
            if let Some(connection) = self.at_mut(index) {
                let events = connection.events.take();
                if !events.is_empty() {
                    return Some((id, events));
                }
            }
        }
        None
    }
}
