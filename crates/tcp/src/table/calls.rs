//! Calls of applications: open, listen, accept, read, write, close.
//!
//! Used by `stack` for its applications, with the addresses that its routes selected. Calls never
//! block; an operation that is not possible now returns an error. Reading: RFC 9293 section 3.9.1.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;

use floodwall_base::{Counter, Endpoint, Family, FlowKey, IfIndex, Instant, Seq};
use floodwall_packet::PacketBuf;
use floodwall_syncache::{HalfOpen, ListenSettings};

use crate::connection::{Connection, ConnectionDue, OpenKind};
use crate::connection_flags::ConnectionFlags;
use crate::connection_table::{ConnectionTable, Slot, TcpContext};
use crate::error::{ConnectionError, ListenError, OpenError, RecvError, SendError};
use crate::id::{ConnectionId, ListenerId, StaleHandle};
use crate::isn::IsnSecret;
use crate::mss::{announced_mss, floored_mtu};
use crate::orphan_patience::OrphanPatience;
use crate::path::PathSize;
use crate::port;
use crate::pseudo_header::PROTOCOL;
use crate::receive_state::{first_limit, shift_for};
use crate::settings::TcpSettings;
use crate::state::TcpState;
use crate::time_wait::TimeWait;
use crate::timestamps::TimestampClock;
use crate::transmit::OutgoingSegment;

/// The endpoints and the path of a connection to be opened.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionAddrs {
    /// Our address, and a port or 0 for any.
    pub local: SocketAddr,
    /// The peer's endpoint.
    pub remote: SocketAddr,
    /// The interface of link-local addresses; the default otherwise.
    pub zone: IfIndex,
    /// The path MTU: bytes of the largest packet.
    pub mtu: u32,
}

/// What has become of a write that might leave at once ([`ConnectionTable::write_at_once`]).
#[derive(Debug)]
pub enum WrittenAtOnce {
    /// All of it leaves as this segment.
    Segment(OutgoingSegment),
    /// All of it is taken; there was no memory for its segment.
    Unbuilt,
    /// Nothing is taken yet.
    Pending,
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// Opens a connection: its SYN is ready to be sent. Port 0 selects an ephemeral port for which
    /// RSS delivers the answers to this worker.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn connect(
        &mut self,
        lend: &mut TcpContext<'_>,
        ends: &ConnectionAddrs,
        settings: &TcpSettings,
        owner: u32,
    ) -> Result<ConnectionId, OpenError> {
        let index = self.begin(lend, ends, settings, owner)?;
        self.settle(index, lend.now);
        Ok(self.id(index))
    }

    /// As [`ConnectionTable::connect`], on a path of `mtu` bytes, where that is known. Where
    /// nothing else waits to be sent, the SYN is returned, and no list is touched. Call
    /// [`ConnectionTable::transmit`] for the rest as usual.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn connect_now(
        &mut self,
        lend: &mut TcpContext<'_>,
        ends: &ConnectionAddrs,
        settings: &TcpSettings,
        owner: u32,
        mtu: Option<u32>,
    ) -> Result<(ConnectionId, Option<OutgoingSegment>), OpenError> {
        let others_wait = self.wants_transmit();
        let index = self.begin(lend, ends, settings, owner)?;
        let (id, now) = (self.id(index), lend.now);
        let lent = if others_wait { None } else { self.lent(index, lend) };
        let Some((connection, mut cx)) = lent else {
            self.settle(index, now);
            return Ok((id, None));
        };
        if let Some(mtu) = mtu {
            connection.follow_path(cx.records, mtu, now);
        }
        let packet = connection.first_syn(&mut cx);
        let wants_output = connection.due != ConnectionDue::default();
        let segment = OutgoingSegment::from_connection(packet, connection);
        self.begin_turn(index);
        self.settle_as(index, now, wants_output);
        if segment.is_none() {
            // Its timer tries again.
            self.dirty.remove(index);
        }
        Ok((id, segment))
    }

    /// The ports among which connections that are opened from now on get theirs.
    pub fn set_ephemeral(&mut self, ports: RangeInclusive<u16>) {
        self.config.ephemeral = ports;
    }

    /// Makes a connection that opens actively; the caller settles it.
    fn begin(
        &mut self,
        lend: &mut TcpContext<'_>,
        ends: &ConnectionAddrs,
        settings: &TcpSettings,
        owner: u32,
    ) -> Result<u32, OpenError> {
        let (local, remote) = (ends.local.ip().to_canonical(), ends.remote.ip().to_canonical());
        let impossible = |addr: IpAddr| addr.is_unspecified() || addr.is_multicast();
        let same = local == remote && ends.local.port() == ends.remote.port();
        if local.is_ipv4() != remote.is_ipv4()
            || impossible(local)
            || impossible(remote)
            || ends.remote.port() == 0
            || same
        {
            return Err(OpenError::InvalidAddress);
        }
        self.make_room(lend, None);
        if !self.has_place() {
            return Err(OpenError::TooMany);
        }
        let mut flow = FlowKey {
            local: Endpoint::new(local, ends.local.port()),
            remote: Endpoint::new(remote, ends.remote.port()),
            zone: ends.zone,
            protocol: PROTOCOL,
        };
        let hash;
        let earlier;
        (flow.local.port, hash, earlier) = self.local_port(lend, flow, settings.timestamps)?;
        let (isn, clock) = self.isn.numbers(&flow, lend.now);
        let isn = earlier.map_or(isn, |record| IsnSecret::later(isn, record.snd_nxt));
        let start = Self::start_with(lend, flow, ends.mtu, settings, (isn, clock));
        lend.counters.count(Counter::TcpActiveOpens);
        self.place((&start, hash), owner, Connection::open).ok_or(OpenError::TooMany)
    }

    /// The requested port, if its four-tuple is free, or a free ephemeral port; and the hash of the
    /// flow with it. Where no port is free and the new connection has timestamps, a port in
    /// TIME-WAIT is reused (RFC 6191): its record is removed and returned.
    fn local_port(
        &mut self,
        lend: &mut TcpContext<'_>,
        flow: FlowKey,
        timestamps: bool,
    ) -> Result<(u16, u64, Option<TimeWait>), OpenError> {
        let with = |port| FlowKey { local: Endpoint { port, ..flow.local }, ..flow };
        if flow.local.port != 0 {
            let (port, hash) = (flow.local.port, self.hash(&flow));
            if self.is_free(&flow, hash) {
                return Ok((port, hash, None));
            }
            let is_open = self.find_hashed(&flow, hash).is_some();
            let may = timestamps && !is_open;
            self.mark_works();
            let record = may.then(|| self.time_waits.reuse_requested(&flow)).flatten();
            return record.map(|record| (port, hash, Some(record))).ok_or(OpenError::InUse);
        }
        let comes_home = |port| match &self.steering {
            None => true,
            Some((steering, worker)) => {
                let local = SocketAddr::new(flow.local.ip(), port);
                let remote = SocketAddr::new(flow.remote.ip(), flow.remote.port);
                steering.flow(local, remote, PROTOCOL) == *worker
            }
        };
        let (mut hash, mut waiting) = (0, None);
        let suits = |port| {
            let flow = with(port);
            hash = self.hash(&flow);
            if !comes_home(port)
                || flow.local == flow.remote
                || self.find_hashed(&flow, hash).is_some()
                || self.listeners.holds(flow.local, port)
            {
                return false;
            }
            let waits = self.time_waits.has(&flow, hash as u32);
            if waits && timestamps && waiting.is_none() {
                waiting = self.time_waits.is_reusable(&flow, lend.now).then_some((port, hash));
            }
            !waits
        };
        if let Some(port) = port::pick(&self.config.ephemeral, &mut lend.random.secret, suits) {
            return Ok((port, hash, None));
        }
        let (port, hash) = waiting.ok_or(OpenError::NoPort)?;
        self.mark_works();
        let record = self.time_waits.reuse(&with(port), lend.now);
        record.map(|record| (port, hash, Some(record))).ok_or(OpenError::NoPort)
    }

    /// Whether neither a connection nor a record in TIME-WAIT has this flow, of this hash.
    fn is_free(&self, flow: &FlowKey, hash: u64) -> bool {
        self.find_hashed(flow, hash).is_none() && !self.time_waits.has(flow, hash as u32)
    }

    /// The parameters of a connection with this initial sequence number and timestamp clock.
    pub(crate) fn start_with<'a>(
        lend: &TcpContext<'_>,
        flow: FlowKey,
        mtu: u32,
        settings: &'a TcpSettings,
        (iss, clock): (Seq, TimestampClock),
    ) -> OpenKind<'a> {
        let family = crate::connection::family(&flow);
        let of_link = if mtu == 0 { floored_mtu(family, 1500) } else { floored_mtu(family, mtu) };
        OpenKind {
            flow,
            iss,
            clock,
            our_mss: settings.wanted_mss(announced_mss(family, of_link).0),
            path: PathSize::new(mtu, settings.wanted_mss(u16::MAX)),
            settings,
            now: lend.now,
        }
    }

    /// Listens at an address and port, with the MSS of `mtu` where that of the way back to a SYN's
    /// sender is not known ([`SegmentInput::mtu`](crate::SegmentInput)): the unspecified address of
    /// IPv4 means all its addresses, that of IPv6 both families. At port 0 only with
    /// [`TcpSettings::every_port`]. At most `backlog` connections wait to be accepted.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn listen(
        &mut self,
        local: SocketAddr,
        zone: IfIndex,
        mtu: u32,
        settings: &TcpSettings,
        backlog: usize,
        owner: u32,
    ) -> Result<ListenerId, ListenError> {
        self.listeners.may_open(local, zone, settings)?;
        let backlog = backlog.clamp(1, self.config.backlog_max);
        let mss = [Family::V4, Family::V6];
        let mss = mss.map(|family| settings.wanted_mss(announced_mss(family, mtu).0));
        let first = first_limit(settings.receive_bytes, settings.receive_tuned);
        self.mark_works();
        let half = self.half_open.listen(ListenSettings {
            window: u16::try_from(first).unwrap_or(u16::MAX),
            window_scale: shift_for(settings.receive_bytes),
            scaling: settings.window_scale,
            mss: (mss[0], mss[1]),
            ecn: settings.ecn,
            sack: settings.sack,
            timestamps: settings.timestamps,
            ..ListenSettings::new(backlog)
        });
        let half = half.ok_or(ListenError::TooMany)?;
        let opened = self.listeners.open(local, zone, settings, half, owner);
        if opened.is_err() {
            self.half_open.unlisten(half);
        } else if settings.places_max.or(settings.per_prefix_max).is_some() {
            self.ledgers.limit_listeners(self.config.connections_max, self.config.listeners_max);
        }
        opened
    }

    /// Accepts the connection that has waited longest.
    ///
    /// # Errors
    /// The listener is gone. `Ok(None)` where the accept queue is empty.
    pub fn accept(&mut self, listener: ListenerId) -> Result<Option<ConnectionId>, StaleHandle> {
        let Some(index) = self.listeners.accept(listener)? else { return Ok(None) };
        let slot = self.places.get_mut(index as usize).and_then(Slot::take_queued);
        if let Some(slot) = slot {
            self.half_open.accepted(slot);
        }
        self.settle_accepted(index);
        Ok(Some(self.id(index)))
    }

    /// Closes a listener. Connections in its accept queue are reset.
    ///
    /// # Errors
    /// It is gone already.
    pub fn unlisten(
        &mut self,
        lend: &TcpContext<'_>,
        listener: ListenerId,
    ) -> Result<(), StaleHandle> {
        while let Some(index) = self.listeners.accept(listener)? {
            if let Some(connection) = self.at_mut(index) {
                connection.release(true, Duration::ZERO, lend.now);
            }
            self.settle(index, lend.now);
        }
        let half = self.listeners.close(listener)?;
        self.mark_works();
        self.half_open.unlisten(half);
        Ok(())
    }

    /// Writes as much as fits; returns the number of bytes taken.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &mut self,
        lend: &mut TcpContext<'_>,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Result<usize, SendError> {
        self.write(lend, id, bytes, false)
    }

    /// As [`ConnectionTable::send`], with more data to follow at once: a partial segment waits for
    /// it (`MSG_MORE`).
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_more(
        &mut self,
        lend: &mut TcpContext<'_>,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Result<usize, SendError> {
        self.write(lend, id, bytes, true)
    }

    /// The flow of which a write would leave at once: nothing waits to be sent, here or by others.
    /// The caller looks its path up for [`ConnectionTable::send_now`].
    #[inline]
    pub fn next_to_write(&mut self, id: ConnectionId) -> Option<FlowKey> {
        if self.wants_transmit() {
            return None;
        }
        self.prefetch(id.index);
        let connection = self.named(id).ok()?;
        let waits = connection.snd.unsent() > 0;
        (!waits).then_some(connection.flow)
    }

    /// As [`ConnectionTable::send`] or, with `more`, [`ConnectionTable::send_more`], on a path of
    /// `mtu` bytes, where that is known. Where what it makes pending is at most one segment and
    /// nothing else is pending, that segment is returned, and no list is touched. Call
    /// [`ConnectionTable::transmit`] for the rest as usual.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_now(
        &mut self,
        lend: &mut TcpContext<'_>,
        id: ConnectionId,
        bytes: &[u8],
        (more, mtu): (bool, Option<u32>),
    ) -> (Result<usize, SendError>, Option<OutgoingSegment>) {
        if self.wants_transmit() {
            return (self.write(lend, id, bytes, more), None);
        }
        self.prefetch(id.index);
        if let Err(stale) = self.named(id) {
            return (Err(stale.into()), None);
        }
        let at_once = if more {
            WrittenAtOnce::Pending
        } else {
            self.write_at_once(lend, id.index, bytes, mtu)
        };
        match at_once {
            WrittenAtOnce::Segment(segment) => (Ok(bytes.len()), Some(segment)),
            WrittenAtOnce::Unbuilt => self.write_pending(lend, id.index, bytes, (more, true, mtu)),
            WrittenAtOnce::Pending => self.write_pending(lend, id.index, bytes, (more, false, mtu)),
        }
    }

    /// Writes to the connection at the place of which [`ConnectionTable::next_to_write`] has just
    /// given the flow, where all of it leaves at once as one segment.
    #[inline(always)]
    pub fn write_at_once(
        &mut self,
        lend: &mut TcpContext<'_>,
        index: u32,
        bytes: &[u8],
        mtu: Option<u32>,
    ) -> WrittenAtOnce {
        let now = lend.now;
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            return WrittenAtOnce::Pending;
        };
        if let Some(mtu) = mtu {
            connection.follow_path(cx.records, mtu, now);
        }
        match connection.write_through(&mut cx, bytes) {
            Some(Some(packet)) => {
                // Nothing else was pending, nor is it now.
                let segment = OutgoingSegment::of_packet(packet, connection);
                self.begin_turn(index);
                self.settle_quiet(index, now);
                WrittenAtOnce::Segment(segment)
            }
            Some(None) => WrittenAtOnce::Unbuilt,
            None => WrittenAtOnce::Pending,
        }
    }

    /// The rest of [`ConnectionTable::send_now`], where [`ConnectionTable::write_at_once`] gave no
    /// segment: `is_taken`, where it took the bytes and could not build the segment.
    #[inline(never)]
    pub fn write_pending(
        &mut self,
        lend: &mut TcpContext<'_>,
        index: u32,
        bytes: &[u8],
        (more, is_taken, mtu): (bool, bool, Option<u32>),
    ) -> (Result<usize, SendError>, Option<OutgoingSegment>) {
        let now = lend.now;
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            return (Err(StaleHandle.into()), None);
        };
        if let Some(mtu) = mtu {
            connection.follow_path(cx.records, mtu, now);
        }
        let (sent, packet) = if is_taken {
            (Ok(bytes.len()), None)
        } else {
            let sent = connection.send(&cx, bytes, more);
            let Some(packet) = connection.output_written(&mut cx) else {
                self.settle(index, now);
                return (sent, None);
            };
            (sent, packet)
        };
        let is_quiet = connection.is_quiet(cx.records);
        let wants_output = packet.is_some() && !is_quiet && connection.wants_output(cx.records);
        let transmit = OutgoingSegment::from_connection(packet, connection);
        if transmit.is_some() {
            self.begin_turn(index);
        }
        self.settle_as(index, now, wants_output);
        if transmit.is_none() {
            self.dirty.remove(index);
        }
        (sent, transmit)
    }

    #[inline(never)]
    fn write(
        &mut self,
        lend: &mut TcpContext<'_>,
        id: ConnectionId,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        self.prefetch(id.index);
        self.named(id)?;
        let (connection, cx) = self.lent(id.index, lend).ok_or(StaleHandle)?;
        let sent = connection.send(&cx, bytes, more);
        self.settle(id.index, lend.now);
        sent
    }

    /// Copies received data into `out`; returns the number of bytes, 0 at end of stream.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv(
        &mut self,
        id: ConnectionId,
        out: &mut [u8],
        now: Instant,
    ) -> Result<usize, RecvError> {
        self.prefetch(id.index);
        let read = self.named_mut(id)?.recv(out, now);
        self.settle_read(id.index, now);
        read
    }

    /// Returns the oldest received chunk without a copy; `None` at end of stream.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv_chunk(
        &mut self,
        id: ConnectionId,
        now: Instant,
    ) -> Result<Option<PacketBuf>, RecvError> {
        let connection = self.named_mut(id)?;
        let chunk = match connection.rcv.queue.pop() {
            Some(chunk) => {
                connection.rcv.tuning.took(chunk.len() as u32);
                connection.note_read(now);
                Ok(Some(chunk))
            }
            None => connection.nothing_to_read().map(|_| None),
        };
        self.settle_read(id.index, now);
        chunk
    }

    /// Copies received data from `offset` on without removing it (peek).
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn peek(
        &mut self,
        id: ConnectionId,
        offset: u32,
        out: &mut [u8],
    ) -> Result<usize, RecvError> {
        let connection = self.named_mut(id)?;
        match connection.rcv.queue.peek(offset, out) {
            0 if !out.is_empty() => connection.nothing_to_read(),
            n => Ok(n),
        }
    }

    /// Number of bytes available to read.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn readable(&self, id: ConnectionId) -> Result<usize, StaleHandle> {
        Ok(self.named(id)?.rcv.queue.len() as usize)
    }

    /// Number of bytes written and not acknowledged.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn unacknowledged(&self, id: ConnectionId) -> Result<usize, StaleHandle> {
        let snd = &self.named(id)?.snd;
        Ok((snd.outstanding() + snd.unsent()) as usize)
    }

    /// Closes the send direction: a FIN is sent after the data. Reading remains possible.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn shutdown_write(&mut self, id: ConnectionId, now: Instant) -> Result<(), StaleHandle> {
        self.named_mut(id)?.shutdown_write();
        self.settle(id.index, now);
        Ok(())
    }

    /// Closes a connection: written data is still sent, then FIN; with unread data, a reset
    /// instead. The id is invalid afterwards.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn close(&mut self, lend: &TcpContext<'_>, id: ConnectionId) -> Result<(), StaleHandle> {
        let patience = OrphanPatience::at(self.demux.len(), self.places_max()).fin;
        self.named_mut(id)?.release(false, patience, lend.now);
        self.forget(id, lend.now)
    }

    /// As [`ConnectionTable::close`], of a connection that [`ConnectionTable::next_to_write`] has
    /// given the flow of, on a path of `mtu` bytes, where that is known: a FIN that leaves at once
    /// is returned, and no list is touched. Call [`ConnectionTable::transmit`] for the rest as
    /// usual.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn close_now(
        &mut self,
        lend: &mut TcpContext<'_>,
        id: ConnectionId,
        mtu: Option<u32>,
    ) -> Result<Option<OutgoingSegment>, StaleHandle> {
        let patience = OrphanPatience::at(self.demux.len(), self.places_max()).fin;
        self.named_mut(id)?.release(false, patience, lend.now);
        self.disown(id);
        let (index, now) = (id.index, lend.now);
        let others_wait = self.wants_transmit();
        let (connection, mut cx) = self.lent(index, lend).ok_or(StaleHandle)?;
        if others_wait || !connection.only_finishes(cx.records) {
            self.settle(index, now);
            return Ok(None);
        }
        if let Some(mtu) = mtu {
            connection.follow_path(cx.records, mtu, now);
        }
        let packet = connection.finish_sending(&mut cx);
        let segment = OutgoingSegment::from_connection(packet, connection);
        self.begin_turn(index);
        self.settle_as(index, now, false);
        Ok(segment)
    }

    /// Aborts a connection with a reset (linger time zero).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn abort(&mut self, lend: &TcpContext<'_>, id: ConnectionId) -> Result<(), StaleHandle> {
        self.named_mut(id)?.release(true, Duration::ZERO, lend.now);
        self.forget(id, lend.now)
    }

    /// Invalidates the application's id of a connection.
    fn forget(&mut self, id: ConnectionId, now: Instant) -> Result<(), StaleHandle> {
        self.disown(id);
        self.settle(id.index, now);
        Ok(())
    }

    /// The same without settling.
    fn disown(&mut self, id: ConnectionId) {
        if let Some(place) = self.places.get_mut(id.index()) {
            place.generation = place.generation.wrapping_add(1);
        }
        self.unready(id.index);
        self.ledgers.all.disown(id.index);
    }

    /// The state of a connection.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn state(&self, id: ConnectionId) -> Result<TcpState, StaleHandle> {
        Ok(self.named(id)?.state())
    }

    /// The two endpoints, the local one first.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn ends(&self, id: ConnectionId) -> Result<(SocketAddr, SocketAddr), StaleHandle> {
        let flow = &self.named(id)?.flow;
        let end = |end: Endpoint| SocketAddr::new(end.ip(), end.port);
        Ok((end(flow.local), end(flow.remote)))
    }

    /// Returns and clears the error with which the connection ended, as `SO_ERROR` does.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn take_error(&mut self, id: ConnectionId) -> Result<Option<ConnectionError>, StaleHandle> {
        Ok(self.named_mut(id)?.error.take())
    }

    /// Sets whether small segments are sent at once (Nagle's algorithm off).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_nodelay(
        &mut self,
        id: ConnectionId,
        nodelay: bool,
        now: Instant,
    ) -> Result<(), StaleHandle> {
        self.named_mut(id)?.set_nodelay(nodelay);
        self.settle(id.index, now);
        Ok(())
    }

    /// Sets whether a partial segment waits for more data ([`TcpSettings::cork`]). When the cork is
    /// removed, waiting data is sent as far as Nagle's algorithm permits.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_cork(
        &mut self,
        id: ConnectionId,
        on: bool,
        now: Instant,
    ) -> Result<(), StaleHandle> {
        let connection = self.named_mut(id)?;
        connection.flags.set(ConnectionFlags::CORK, on);
        connection.flags.set(ConnectionFlags::MORE, false);
        self.settle(id.index, now);
        Ok(())
    }

    /// The next sequence numbers, ours and the peer's: for tests and for `show`.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn sequence(&self, id: ConnectionId) -> Result<(Seq, Seq), StaleHandle> {
        let connection = self.named(id)?;
        Ok((connection.snd.nxt, connection.rcv.nxt))
    }
}
