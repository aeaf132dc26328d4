//! `ConnectionTable`: all connections and listeners of one shard.
//!
//! Used by `stack`: segments are received by [`ConnectionTable::input`] (`set/intake.rs`) and sent
//! by [`ConnectionTable::transmit`], timers expire in [`ConnectionTable::work`]; applications use
//! `set/calls.rs`. Invariants: a place is in the demultiplexer exactly as long as it has a
//! connection that is not CLOSED: what a program still holds of a closed one blocks no new
//! connection (RFC 9293 section 3.10.7.1); after every call each connection with pending output is
//! on the list of senders; for every other connection, and for senders once they have sent, events
//! are on the owner's list, the wheel has a time not later than the deadline, and its memory is
//! accounted for. Nothing is allocated after construction except within the capacities that were
//! reserved then.
//!
//! # Under flood
//! Unverified sources reach [`ConnectionTable::input`]: one hash, one chain, one pass over the
//! bytes of a segment that matches a connection. Places are taken by proven handshakes (bounded by
//! the accept queues) and by our own applications, up to `TCP_CONNECTIONS_MAX`. Where places run
//! out, newcomers evict connections of the source prefix that holds most (`table/room.rs`,
//! `places.rs`).

mod settle;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::limits::{TCP_MEMORY_ENDED_MAX, TCP_RECORDS, TCP_RUNS, WORK_UNITS};
use floodwall_base::{
    Counter, Counters, Endpoint, FlowKey, HashKey, IfIndex, IndexLists, Instant, PortSet,
    Randomness, Steering, Units, WorkerId,
};
use floodwall_packet::{PacketList, Pool};
use floodwall_sync::HugeArray;
use floodwall_syncache::{
    AcceptSlot, CacheSettings, CookieEpoch, CookieMoment, HalfOpen, Secret, SynAck, SynCache,
};

use crate::connection::{AbortReason, Connection, ConnectionContext, ConnectionDue, OpenKind};
use crate::deferred_chunks::DeferredChunks;
use crate::delayed_ack::DelayedAcks;
use crate::demux::{ConnectionTableIndex, RecentFlows};
use crate::error::ConnectionError;
use crate::events::ConnectionEvents;
use crate::flow_credit::FlowCredits;
use crate::id::{ConnectionId, StaleHandle};
use crate::isn::IsnSecret;
use crate::kept_deadline::KeptDeadline;
use crate::listener::ListenerTable;
use crate::memory::ConnectionMemory;
use crate::orphan_patience::PlacesUsed;
use crate::out_of_order::OooRanges;
use crate::place_timers::PlaceTimers;
use crate::places::PlaceLedgers;
use crate::port_counts::PortCounts;
use crate::pseudo_header::PROTOCOL;
use crate::rare_state::RareState;
use crate::senders::Senders;
use crate::sent_segments::SentSegments;
use crate::settings::TcpConfig;
use crate::state::TcpState;
use crate::state_slab::StateSlab;
use crate::syn_said::SynKept;
use crate::table::rx_coalesce::run::RxCoalesce;
use crate::time_wait::TimeWaits;
use crate::transmit::{OutgoingSegment, Transmit};

/// Maximum number of distinct owners of connections: applications of one shard.
pub const OWNERS_MAX: usize = 64;

/// The environment that a call borrows.
pub struct TcpContext<'a> {
    /// The round's time.
    pub now: Instant,
    /// The wall clock's period, for cookies.
    pub epoch: CookieEpoch,
    /// The pool for packets.
    pub pool: &'a Pool,
    /// The shard's randomness.
    pub random: &'a mut Randomness,
    /// The shard's counters.
    pub counters: &'a mut Counters,
}

impl TcpContext<'_> {
    pub(crate) const fn moment(&self) -> CookieMoment {
        CookieMoment::new(self.now, self.epoch)
    }

    #[inline(always)]
    pub(crate) fn cx<'b>(
        &'b mut self,
        runs: &'b mut OooRanges,
        records: &'b mut SentSegments,
        (full, partial): (bool, bool),
        places: PlacesUsed,
    ) -> ConnectionContext<'b> {
        let Self { now, pool, random, counters, .. } = self;
        ConnectionContext {
            now: *now,
            pool,
            random,
            counters,
            runs,
            records,
            full,
            partial,
            places,
        }
    }
}

/// The number of connections that ended abnormally.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AbortCounts {
    /// Before they were established; half-open ones of listeners are not included.
    pub attempts: u64,
    /// Established ones: by a reset of either side, or given up.
    pub open: u64,
    /// After our FIN, in the same ways.
    pub closing: u64,
}

impl AbortCounts {
    /// Counts one that has ended, if that was abnormal.
    pub(crate) const fn count(&mut self, broke: Option<AbortReason>) {
        match broke {
            Some(AbortReason::Attempt) => self.attempts += 1,
            Some(AbortReason::Open) => self.open += 1,
            Some(AbortReason::Closing) => self.closing += 1,
            None => {}
        }
    }
}

/// A place for one connection. It begins with a cache line, so that its fields share lines as they
/// are ordered.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    /// The owner that receives its events.
    pub(crate) owner: u8,
    /// It is being evicted: it ends as soon as its reset is sent, and is not counted any more.
    pub(crate) evicted: bool,
    /// The options of its client's SYN, for a passive open.
    pub(crate) said: SynKept,
    /// Its place in the accept queue of a listener, while it waits there.
    queued: AcceptSlot,
    /// The time that the wheel has for it.
    armed: Instant,
    pub(crate) connection: Option<Connection>,
}

impl Slot {
    /// Whether it waits in the accept queue of a listener.
    #[inline(always)]
    pub(crate) const fn is_queued(&self) -> bool {
        self.said.waits()
    }

    /// Takes its place in an accept queue, where it has one.
    pub(crate) const fn take_queued(&mut self) -> Option<AcceptSlot> {
        if self.said.end_wait() { Some(self.queued) } else { None }
    }

    /// Has a connection made in a place that was taken for it. One body for both kinds of opens.
    #[inline(never)]
    pub(crate) fn fill(
        &mut self,
        rare: &mut StateSlab<RareState>,
        start: &OpenKind<'_>,
        owner: u32,
        slot: Option<AcceptSlot>,
    ) -> &mut Connection {
        self.owner = owner.min(OWNERS_MAX as u32 - 1) as u8;
        self.evicted = false;
        self.said = SynKept::waiting(slot.is_some());
        self.queued = slot.unwrap_or_default();
        debug_assert!(self.connection.is_none(), "what was there has been dropped");
        let connection = self.connection.insert(Connection::new(start));
        connection.take_settings(rare, start);
        connection
    }
}

/// All connections and listeners of one shard.
pub struct ConnectionTable<H = SynCache> {
    pub(crate) config: TcpConfig,
    pub(crate) places: HugeArray<Slot>,
    free: Vec<u32>,
    pub(crate) demux: ConnectionTableIndex,
    /// The flows that were found last.
    recent: Box<RecentFlows>,
    /// The local ports with connections.
    ports: PortCounts,
    /// The key of flow hashes, shared with the half-open connections.
    flow_key: HashKey,
    /// The connection of the segment that arrived last.
    latest: u32,
    /// The flow that was hashed last for an arriving segment, with its hash: a handshake's segments
    /// are looked up several times in a row.
    hashed: (FlowKey, u64),
    /// It was looked up in vain since.
    is_unknown: bool,
    timers: PlaceTimers,
    delayed: DelayedAcks,
    /// Connections with pending output.
    pub(crate) dirty: Senders,
    /// The connection that currently sends, and how many more segments it may send in its turn.
    turn: (u32, u32),
    /// Connections with events, by owner.
    ready: IndexLists,
    pub(crate) listeners: ListenerTable,
    pub(crate) half_open: H,
    pub(crate) time_waits: TimeWaits,
    pub(crate) isn: IsnSecret,
    runs: OooRanges,
    pub(crate) records: SentSegments,
    memory: ConnectionMemory,
    /// What connections that have ended held.
    deferred: DeferredChunks,
    /// When timed work is due beside acknowledgments.
    works: KeptDeadline,
    /// The connections that may be evicted, by source prefix.
    pub(crate) ledgers: PlaceLedgers,
    /// Connections that are being evicted.
    pub(crate) leaving: usize,
    /// What connections may cost under pressure.
    pub(crate) credits: FlowCredits,
    /// The memory of some connection has grown since the last check.
    grew: bool,
    /// Connections that ended abnormally.
    broken: AbortCounts,
    /// Devices complete checksums (checksum offload).
    partial: bool,
    /// The run of the current burst: segments that wait for later ones (GRO).
    pub(crate) rx_coalesce: RxCoalesce,
    pub(crate) steering: Option<(Steering, WorkerId)>,
}

/// A flow of no connection.
const NO_FLOW: FlowKey = FlowKey {
    local: Endpoint::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    remote: Endpoint::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    zone: IfIndex(0),
    protocol: PROTOCOL,
};
/// Segments that a connection sends before the next one's turn: as many of 1,460 bytes as one
/// GSO frame holds, into which devices combine consecutive ones (GSO).
const SEGMENTS_PER_TURN: u32 = 44;

impl ConnectionTable {
    /// An empty set with a SYN cache of its own, with a cookie secret that no other instance
    /// shares.
    #[must_use]
    pub fn new(config: TcpConfig, at: CookieMoment, random: &mut Randomness) -> Self {
        let secret = Secret::random(&mut random.secret);
        let cache = SynCache::new(CacheSettings::default(), secret, &mut random.secret, at);
        Self::with(config, cache.with_new_secret(), at.now, random)
    }
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// An empty set. Allocates the tables now; places are allocated as they are used, within the
    /// reserved capacity.
    #[must_use]
    pub fn with(config: TcpConfig, half_open: H, now: Instant, random: &mut Randomness) -> Self {
        let max = config.connections_max;
        Self {
            places: HugeArray::with_capacity(max),
            free: Vec::with_capacity(max),
            demux: ConnectionTableIndex::new(max),
            recent: RecentFlows::new(),
            ports: PortCounts::default(),
            flow_key: half_open.flow_key(),
            credits: FlowCredits::new(
                if config.flow_credit { max } else { 0 },
                half_open.flow_key(),
            ),
            latest: 0,
            hashed: (NO_FLOW, half_open.flow_key().flow(&NO_FLOW)),
            is_unknown: false,
            timers: PlaceTimers::new(max, now),
            delayed: DelayedAcks::new(max),
            dirty: Senders::new(max),
            turn: (0, 0),
            ready: IndexLists::new(max, OWNERS_MAX),
            listeners: ListenerTable::new(config.listeners_max, max, random.secret.hash_key()),
            // By the same hash as connections: a segment's flow is hashed once.
            time_waits: TimeWaits::new(
                config.time_waits_max,
                config.time_wait,
                half_open.flow_key(),
            ),
            half_open,
            isn: IsnSecret::new(random.secret.hash_key()),
            runs: OooRanges::new(TCP_RUNS),
            records: SentSegments::new(TCP_RECORDS, max),
            memory: ConnectionMemory::new(config.memory_bytes, max, random.secret.hash_key())
                .sharing(config.fair_memory),
            deferred: DeferredChunks::default(),
            works: KeptDeadline::new(),
            ledgers: PlaceLedgers::new(max, random.secret.hash_key()),
            leaving: 0,
            grew: false,
            broken: AbortCounts::default(),
            partial: false,
            rx_coalesce: RxCoalesce::default(),
            steering: None,
            config,
        }
    }

    /// Touches the memory of all places; returns how many bytes that were.
    pub fn touch_memory(&mut self) -> usize {
        self.places.touch()
    }

    /// Sets the shard: active opens select ports for which RSS delivers the answers to it.
    pub fn steer(&mut self, steering: Steering, worker: WorkerId) {
        self.steering = Some((steering, worker));
    }

    /// Leaves the checksums of connections' segments to their devices: a packet's state is
    /// [`ChecksumState::Partial`](floodwall_packet::ChecksumState) then.
    pub const fn leave_checksums(&mut self) {
        self.partial = true;
    }

    /// Number of connections, TIME-WAIT included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.demux.len() + self.time_waits.len()
    }

    /// Adds the local ports at which segments are expected to `ports`; returns whether all ports
    /// are expected.
    pub fn ports(&self, ports: &mut PortSet) -> bool {
        let sets = [self.ports.set(), self.time_waits.ports(), self.listeners.heard()];
        sets.into_iter().for_each(|set| ports.add(set));
        self.listeners.hears_every_port()
    }

    /// A number that changes whenever the result of [`ConnectionTable::ports`] changes.
    #[must_use]
    pub fn ports_changed(&self) -> u64 {
        let sets = [self.ports.set(), self.time_waits.ports(), self.listeners.heard()];
        sets.into_iter().map(PortSet::changes).sum()
    }

    /// The number of connections that ended abnormally.
    #[must_use]
    pub const fn broken(&self) -> AbortCounts {
        self.broken
    }

    /// Whether there is no connection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Maximum number of connections: every [`ConnectionId::index`] is below.
    #[must_use]
    pub const fn places_max(&self) -> usize {
        self.config.connections_max
    }

    /// Size in bytes of one connection's state, idle, without buffers.
    #[must_use]
    pub const fn connection_bytes() -> usize {
        size_of::<Slot>()
    }

    /// The flow hash used by connections and half-open connections.
    #[inline]
    pub(crate) fn hash(&self, flow: &FlowKey) -> u64 {
        self.flow_key.flow(flow)
    }

    /// The connection of an arriving segment: mostly that of the previous segment. Else the flow's
    /// hash, with which its half-open connection is looked up next.
    #[inline(always)]
    pub(crate) fn find_again(&mut self, flow: &FlowKey) -> Result<u32, u64> {
        if self.latest_of(flow).is_some() {
            return Ok(self.latest);
        }
        self.find_other(*flow)
    }

    /// The connection of the previous segment, if it is that of this flow.
    #[inline(always)]
    pub(crate) fn latest_of(&self, flow: &FlowKey) -> Option<&Connection> {
        let connection = self.at(self.latest)?;
        (connection.flow == *flow && connection.state() != TcpState::Closed).then_some(connection)
    }

    /// Finds the connection of a flow that is not that of the previous segment, and makes it that.
    /// The ends are numbers, so that the flow need not be in memory where this is not called.
    #[inline(never)]
    pub(crate) fn find_ends(&mut self, addrs: [u128; 2], ports: [u16; 2], zone: IfIndex) -> bool {
        let [local, remote] = [0, 1].map(|at: usize| Endpoint {
            addr: Ipv6Addr::from_bits(addrs.get(at).copied().unwrap_or(0)),
            port: ports.get(at).copied().unwrap_or(0),
        });
        self.find_other(FlowKey { local, remote, zone, protocol: PROTOCOL }).is_ok()
    }

    /// The same where it is not that of the previous segment.
    #[inline(never)]
    fn find_other(&mut self, flow: FlowKey) -> Result<u32, u64> {
        if let Some(place) = self.recent.propose(&flow)
            && self.at(place).is_some_and(|it| it.flow == flow && it.state() != TcpState::Closed)
        {
            self.prefetch(place);
            return Ok(place);
        }
        self.find_by_hash(&flow)
    }

    /// The same of a flow that was not among those found last.
    #[inline(never)]
    pub(crate) fn find_by_hash(&mut self, flow: &FlowKey) -> Result<u32, u64> {
        if self.hashed.0 != *flow {
            self.hashed = (*flow, self.hash(flow));
        } else if self.is_unknown {
            return Err(self.hashed.1);
        }
        let hash = self.hashed.1;
        self.half_open.prefetch(hash);
        let found = self.find_hashed(flow, hash);
        self.is_unknown = found.is_none();
        let found = found.ok_or(hash)?;
        self.recent.note(flow, found);
        self.prefetch(found);
        Ok(found)
    }

    /// The connection of the segment that arrived, or of the write that was made, last.
    #[inline]
    pub(crate) const fn latest(&self) -> u32 {
        self.latest
    }

    /// Prefetches all memory of a connection that will be used next.
    #[inline]
    pub(crate) fn prefetch(&mut self, index: u32) {
        if index == self.latest {
            return;
        }
        self.latest = index;
        if let Some(connection) = self.at(index) {
            connection.prefetch();
        }
        self.memory.prefetch(index);
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

    pub(crate) fn named(&self, id: ConnectionId) -> Result<&Connection, StaleHandle> {
        let place = self.places.get(id.index()).filter(|p| p.generation == id.generation);
        place.and_then(|place| place.connection.as_ref()).ok_or(StaleHandle)
    }

    /// The same with what few connections need.
    pub(crate) fn named_rare(
        &mut self,
        id: ConnectionId,
    ) -> Result<(&mut Connection, &mut StateSlab<RareState>), StaleHandle> {
        let place = self.places.get_mut(id.index()).filter(|p| p.generation == id.generation);
        let connection = place.and_then(|place| place.connection.as_mut()).ok_or(StaleHandle)?;
        Ok((connection, &mut self.records.rare))
    }

    pub(crate) fn named_mut(&mut self, id: ConnectionId) -> Result<&mut Connection, StaleHandle> {
        let place = self.places.get_mut(id.index()).filter(|p| p.generation == id.generation);
        place.and_then(|place| place.connection.as_mut()).ok_or(StaleHandle)
    }

    /// A connection and the environment that it borrows.
    #[inline(always)]
    pub(crate) fn lent<'b>(
        &'b mut self,
        index: u32,
        lend: &'b mut TcpContext<'_>,
    ) -> Option<(&'b mut Connection, ConnectionContext<'b>)> {
        let connection = self.places.get_mut(index as usize)?.connection.as_mut()?;
        self.memory.fit(lend.pool);
        let allowance = self.memory.allowance(index);
        (connection.rcv.allowed, connection.rcv.send_allowed) = (allowance.receive, allowance.send);
        connection.snd.scarcity = allowance.scarcity;
        let full = self.memory.is_full(index);
        let places = PlacesUsed { used: self.demux.len(), places: self.config.connections_max };
        let flags = (full, self.partial);
        Some((connection, lend.cx(&mut self.runs, &mut self.records, flags, places)))
    }

    /// A connection and its records of sent data.
    pub(crate) fn with_records(
        &mut self,
        index: u32,
    ) -> Option<(&mut Connection, &mut SentSegments)> {
        let connection = self.places.get_mut(index as usize)?.connection.as_mut()?;
        Some((connection, &mut self.records))
    }

    pub(crate) fn id(&self, index: u32) -> ConnectionId {
        let generation = self.places.get(index as usize).map_or(0, |place| place.generation);
        ConnectionId { index, generation }
    }

    /// Number of places that are free.
    pub(crate) fn free_places(&self) -> usize {
        self.free.len() + self.config.connections_max.saturating_sub(self.places.len())
    }

    /// Whether a place is free for one more connection.
    pub(crate) fn has_place(&self) -> bool {
        self.free_places() > 0
    }

    /// Has a connection of this flow, which has this hash, made in a place, and changed there as
    /// `begin` does; `None` where none is free. The caller settles it.
    #[inline]
    pub(crate) fn place(
        &mut self,
        (start, hash): (&OpenKind<'_>, u64),
        owner: u32,
        begin: impl FnOnce(&mut Connection),
    ) -> Option<u32> {
        let index = self.take_place((&start.flow, hash))?;
        if let Some(place) = self.places.get_mut(index as usize) {
            begin(place.fill(&mut self.records.rare, start, owner, None));
        }
        Some(index)
    }

    /// Takes a free place for a connection of this flow, to be filled by [`Slot::fill`].
    pub(crate) fn take_place(&mut self, (flow, hash): (&FlowKey, u64)) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < self.config.connections_max => {
                self.places.push(Slot {
                    generation: 0,
                    owner: 0,
                    queued: AcceptSlot::default(),
                    said: SynKept::NONE,
                    evicted: false,
                    armed: Instant::FAR,
                    connection: None,
                });
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        debug_assert_eq!(hash, self.hash(flow));
        // Its next segment is looked up by it.
        (self.hashed, self.is_unknown) = ((*flow, hash), false);
        self.demux.enter(hash, index);
        self.recent.note(flow, index);
        self.ports.enter(flow.local.port);
        self.memory.join(index, flow.remote.ip());
        Some(index)
    }

    /// The next segment to be sent, a few of each connection in turn (round-robin); `None` where
    /// there is none. Call it until `None` after every call that may change a connection.
    pub fn transmit(&mut self, lend: &mut TcpContext<'_>) -> Option<Transmit> {
        self.transmit_some(lend, 1, &mut PacketList::new())
    }

    /// As [`ConnectionTable::transmit`]; segments of the same run, with the same peer and IP header
    /// except for lengths, are appended to `rest`.
    pub fn transmit_run(
        &mut self,
        lend: &mut TcpContext<'_>,
        rest: &mut PacketList,
    ) -> Option<Transmit> {
        self.transmit_some(lend, SEGMENTS_PER_TURN, rest)
    }

    fn transmit_some(
        &mut self,
        lend: &mut TcpContext<'_>,
        most: u32,
        rest: &mut PacketList,
    ) -> Option<Transmit> {
        while let Some(flow) = self.next_to_send(lend) {
            if let Some(segment) = self.transmit_in_turn(lend, None, most, rest) {
                return Some(segment.between(&flow));
            }
        }
        None
    }

    /// The flow of which the next segments are: the caller looks its path up, and calls
    /// [`ConnectionTable::transmit_on`]. `None` where nothing is to be sent.
    #[inline]
    pub fn next_to_send(&mut self, lend: &mut TcpContext<'_>) -> Option<FlowKey> {
        self.relieve(lend);
        loop {
            let index = self.next_in_turn()?;
            if let Some(connection) = self.at(index) {
                return Some(connection.flow);
            }
            self.dirty.remove(index);
        }
    }

    /// As [`ConnectionTable::transmit_run`], for the connection of
    /// [`ConnectionTable::next_to_send`] alone: so many of its segments at most, which are those of
    /// a path of `mtu` bytes, where that is known. `None` where it has nothing to send.
    pub fn transmit_on(
        &mut self,
        lend: &mut TcpContext<'_>,
        mtu: Option<u32>,
        most: u32,
        rest: &mut PacketList,
    ) -> Option<OutgoingSegment> {
        self.transmit_in_turn(lend, mtu, most, rest)
    }

    fn transmit_in_turn(
        &mut self,
        lend: &mut TcpContext<'_>,
        mtu: Option<u32>,
        most: u32,
        rest: &mut PacketList,
    ) -> Option<OutgoingSegment> {
        let index = self.next_in_turn()?;
        let left = self.turn.1 - 1;
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            self.dirty.remove(index);
            return None;
        };
        if let Some(mtu) = mtu {
            connection.follow_path(cx.records, mtu, cx.now);
        }
        let only_acknowledges = connection.only_acknowledges(cx.records);
        let packet = connection.output(&mut cx, most.min(left + 1), rest);
        let left = left.saturating_sub(rest.len() as u32);
        let has_turn = left > 0;
        let has_news = !only_acknowledges && connection.has_news(cx.records);
        let wants_output = has_news || connection.due != ConnectionDue::default();
        let goes_on = has_turn && packet.is_some() && has_news;
        let transmit = OutgoingSegment::from_connection(packet, connection);
        self.turn.1 = left;
        if goes_on {
            // It is called again at once, and after its last segment timers and events are
            // updated.
            return transmit;
        }
        self.dirty.remove(index);
        self.settle_as(index, lend.now, wants_output);
        if transmit.is_none() {
            self.dirty.remove(index);
        }
        transmit
    }

    /// The connection that sends now.
    fn next_in_turn(&mut self) -> Option<u32> {
        let (current, left) = self.turn;
        if left > 0 && self.dirty.has(current) {
            return Some(current);
        }
        let next = self.dirty.first()?;
        self.turn = (next, SEGMENTS_PER_TURN);
        Some(next)
    }

    /// A segment of this connection is sent next: in its turn, or in a new one.
    #[inline]
    pub(crate) const fn begin_turn(&mut self, index: u32) {
        let (current, left) = self.turn;
        let left = if current == index && left > 0 { left } else { SEGMENTS_PER_TURN };
        self.turn = (index, left - 1);
    }

    /// Where memory is crowded and some connection has grown, ends one that must give way, if any;
    /// where more is held than allowed, ends as many as necessary.
    #[inline(always)]
    fn relieve(&mut self, lend: &mut TcpContext<'_>) {
        if core::mem::take(&mut self.grew) {
            self.relieve_now(lend);
        }
    }

    fn relieve_now(&mut self, lend: &mut TcpContext<'_>) {
        for _ in 0..TCP_MEMORY_ENDED_MAX {
            let Some(index) = self.memory.next_victim(lend.now) else { break };
            if let Some(connection) = self.at_mut(index) {
                connection.abort(ConnectionError::Aborted);
                lend.counters.count(Counter::TcpExtTCPAbortOnMemory);
            }
            // Its memory is free already, whenever its reset is sent: it is not found again.
            self.memory.note(index, 0, lend.now);
            self.settle(index, lend.now);
            if !self.memory.is_exceeded() {
                break;
            }
        }
        self.memory.relieved();
    }

    /// Accounts for true bytes that other users hold of the frames in which connections keep their
    /// data. Call it whenever that has changed, before connections use the pool. Returns whether
    /// the limit of connections is lowered by it.
    pub fn share_memory(&mut self, pool: &Pool, others: u64) -> bool {
        self.memory.fit(pool);
        self.memory.beside(others);
        self.grew |= self.memory.is_exceeded();
        self.memory.is_lowered()
    }

    /// Limits the total of true bytes that all connections hold.
    pub fn limit_memory(&mut self, bytes: u64) {
        self.memory.limit(bytes);
    }

    /// True bytes that all connections hold.
    #[must_use]
    pub const fn memory_held(&self) -> u64 {
        self.memory.held()
    }

    /// Removes a connection from its owner's event list.
    pub(crate) fn unready(&mut self, index: u32) {
        self.ready.unlink(index);
    }

    /// Whether [`ConnectionTable::transmit`] has a segment.
    #[inline]
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.grew | !self.dirty.is_empty()
    }

    /// Handles expired timers, with at most `units` of work; returns the units spent. SYN-ACKs to
    /// be sent again are passed to `send` ([`ConnectionTable::syn_ack`] makes their packets);
    /// segments of connections are returned by [`ConnectionTable::transmit`] as usual.
    pub fn work(
        &mut self,
        lend: &mut TcpContext<'_>,
        units: Units,
        send: &mut impl FnMut(&SynAck),
    ) -> Units {
        let mut left = Units(units.0.min(WORK_UNITS));
        let granted = left;
        self.works.mark();
        left = left.minus(self.deferred.work(left));
        while !left.is_zero()
            && let Some(index) = self.delayed.pop_due(lend.now)
        {
            left = left.minus(Units(1));
            left = left.minus(self.ring(index, lend, true));
        }
        while let Some(index) = self.timers.pop_due(lend.now, &mut left) {
            if let Some(place) = self.places.get_mut(index as usize) {
                place.armed = Instant::FAR;
            }
            left = left.minus(self.ring(index, lend, false));
        }
        left = left.minus(Units(self.time_waits.expire(lend.now, left.0)));
        if self.has_to_resend(lend.now) {
            left = left.minus(self.resend(lend, left, send));
        }
        granted.minus(left)
    }

    /// Handles the expired timers of a connection; returns what it cost beyond a unit.
    fn ring(&mut self, index: u32, lend: &mut TcpContext<'_>, is_ack_due: bool) -> Units {
        let mut cost = 0;
        if let Some((connection, mut cx)) = self.lent(index, lend) {
            cost = connection.ring(&mut cx, is_ack_due);
        }
        self.settle(index, lend.now);
        Units(cost)
    }

    /// Whether SYN-ACK retransmissions are due, which [`ConnectionTable::work`] sends.
    #[must_use]
    pub fn has_to_resend(&self, now: Instant) -> bool {
        self.half_open.deadline() <= now
    }

    /// The latest time at which [`ConnectionTable::work`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.works_at()).filter(|first| *first != Instant::FAR)
    }

    /// The same as a time; [`Instant::FAR`] where there is none.
    #[must_use]
    #[inline]
    pub fn works_at(&self) -> Instant {
        self.works.get(|| self.find_works_at()).min(self.delayed.first_at())
    }

    /// The same beside acknowledgments, of which the times change most.
    #[inline(never)]
    fn find_works_at(&self) -> Instant {
        (self.timers.deadline())
            .min(self.time_waits.due())
            .min(self.half_open.deadline())
            .min(self.deferred.due())
    }

    /// What [`ConnectionTable::find_works_at`] asks may change.
    #[inline]
    pub(crate) fn mark_works(&self) {
        self.works.mark();
    }

    /// The next connection of this owner with an event.
    pub fn next_event(&mut self, owner: u32) -> Option<(ConnectionId, ConnectionEvents)> {
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
