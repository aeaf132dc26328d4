//! Sockets as an application on the same core sees them.
//!
//! Borrowed for one slice: the stack, the clock, the pool. No call blocks; one that cannot complete
//! now returns an error. Reading: RFC 1122 section 4.1.4, RFC 6724 for the source address.

pub(crate) mod error;
pub(crate) mod inspect;
pub(crate) mod ping;
pub(crate) mod raw;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use floodwall_base::{Address, IfIndex, Instant, Randomness};
use floodwall_checksum::InternetSum;
use floodwall_ip::Interface;
use floodwall_packet::{PacketBuf, Round};
use floodwall_udp::{
    ConnectError, OpenError, ReceiveSlot, Received, ReceivedPacket, RecvError, RefusedDatagram,
    SendError as UdpSendError, SocketClosed, SocketId, SocketSettings,
};
use floodwall_wire::{IcmpReport, IpProtocol};

use self::error::{SendError, StartError};
use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{BEST_EFFORT, OutgoingPacket, OutputPath};
use crate::ip::path_cache::{PathQuery, SendingPath};
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// What a datagram carries.
enum Payload<'a> {
    /// To be copied.
    Bytes(&'a [u8]),
    /// In the packet that will leave, with its sum; paid for elsewhere.
    Packet(PacketBuf, InternetSum),
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Packet(packet, _) => packet.len(),
        }
    }
}

/// The stack as one application sees it for the length of one slice.
///
/// What it has TCP send leaves when its slice ends, where it is an [`Application`]'s: what was
/// read, answered and closed in one slice is one segment and not three.
///
/// [`Application`]: crate::Application
pub struct Sockets<'a> {
    pub(crate) stack: &'a mut Stack,
    pub(crate) cx: RoundContext<'a>,
    /// The owner of the slice transmits TCP's segments when it ends.
    pub(crate) in_slice: bool,
}

impl<'a> Sockets<'a> {
    pub(crate) fn new(stack: &'a mut Stack, cx: RoundContext<'a>) -> Self {
        Self { stack, cx, in_slice: false }
    }

    /// For an application's slice, to be ended by [`Sockets::end_slice`].
    pub(crate) fn for_slice(stack: &'a mut Stack, cx: RoundContext<'a>) -> Self {
        Self { stack, cx, in_slice: true }
    }

    /// Lets leave what the application has TCP send.
    pub(crate) fn end_slice(mut self) {
        self.stack.tcp_transmit(&mut self.cx);
    }

    /// The interfaces, the loopback first.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        self.stack.interfaces()
    }

    /// The time of this round.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.cx.now
    }

    /// This worker's randomness.
    pub fn random(&mut self) -> &mut Randomness {
        self.cx.random
    }

    /// Opens a UDP socket and binds it: to one of our addresses or to the unspecified one, to a
    /// port or to an ephemeral one (port 0, RFC 6056).
    ///
    /// # Errors
    /// See [`StartError`]; nothing stays open then.
    pub fn udp_bind(
        &mut self,
        local: SocketAddr,
        settings: SocketSettings,
    ) -> Result<SocketId, StartError> {
        let addr = local.ip().to_canonical();
        if !addr.is_unspecified() && !addr.is_multicast() && !self.stack.has(addr) {
            return Err(StartError::NotOurs(addr));
        }
        let id = self.stack.sockets.udp.open(self.cx.pool, settings)?;
        let zone = scope_of(local);
        match self.stack.sockets.udp.bind(id, local, zone, &mut self.cx.random.secret) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.udp_close(id);
                Err(error.into())
            }
        }
    }

    /// Opens a UDP socket that is not bound yet: connecting it gives it a port.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn udp_open(&mut self, settings: SocketSettings) -> Result<SocketId, OpenError> {
        self.stack.sockets.udp.open(self.cx.pool, settings)
    }

    /// What the socket is bound to.
    #[must_use]
    pub fn udp_local_addr(&self, id: SocketId) -> Option<SocketAddr> {
        self.stack.sockets.udp.local_addr(id).ok().flatten()
    }

    /// Connects a socket: it sends to this peer and receives from no other.
    ///
    /// # Errors
    /// See [`ConnectError`]; `NoSource` where no route or address leads there.
    pub fn udp_connect(&mut self, id: SocketId, remote: SocketAddr) -> Result<(), ConnectError> {
        self.udp_connect_from(id, remote).map(|_| ())
    }

    /// As [`Sockets::udp_connect`]; our address and the interface that were chosen.
    pub(crate) fn udp_connect_from(
        &mut self,
        id: SocketId,
        remote: SocketAddr,
    ) -> Result<(IpAddr, Option<IfIndex>), ConnectError> {
        let zone = scope_of(remote);
        let src_addr = match remote.ip().to_canonical() {
            IpAddr::V4(a) => self.stack.source_for(&self.cx, a, zone).map(IpAddr::V4),
            IpAddr::V6(a) => self.stack.source_for(&self.cx, a, zone).map(IpAddr::V6),
        };
        let src_addr = src_addr.ok_or(ConnectError::Unspecified)?;
        self.stack.sockets.udp.connect(id, remote, src_addr, zone, &mut self.cx.random.secret)?;
        Ok((src_addr, zone))
    }

    /// As [`Sockets::udp_bind`], for a socket that all shards will have.
    pub(crate) fn udp_bind_shared(
        &mut self,
        local: SocketAddr,
        settings: SocketSettings,
    ) -> Result<SocketId, StartError> {
        let addr = local.ip().to_canonical();
        if !addr.is_unspecified() && !addr.is_multicast() && !self.stack.has(addr) {
            return Err(StartError::NotOurs(addr));
        }
        let id = self.stack.sockets.udp.open_shared(self.cx.pool, settings)?;
        match self.stack.sockets.udp.bind(id, local, scope_of(local), &mut self.cx.random.secret) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.udp_close(id);
                Err(error.into())
            }
        }
    }

    /// Opens the socket that another shard calls `id`, and binds it as that one did.
    pub(crate) fn udp_bind_as(
        &mut self,
        id: SocketId,
        local: SocketAddr,
        settings: SocketSettings,
    ) -> Result<(), StartError> {
        self.stack.sockets.udp.open_as(id, self.cx.pool, settings)?;
        match self.stack.sockets.udp.bind_as(id, local, scope_of(local)) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.udp_close(id);
                Err(error.into())
            }
        }
    }

    /// Closes a socket, which leaves its groups. Queued datagrams are dropped.
    pub fn udp_close(&mut self, id: SocketId) {
        self.stack.leave_groups(&mut self.cx, id);
        // Closing twice is no harm.
        let _ = self.stack.sockets.udp.close(id);
    }

    /// Copies the oldest datagram out.
    ///
    /// # Errors
    /// See [`RecvError`]: nothing waits, an ICMP error (once), or the socket is closed.
    #[inline]
    pub fn udp_recv(&mut self, id: SocketId, out: &mut [u8]) -> Result<Received, RecvError> {
        self.stack.sockets.udp.recv(id, out, &mut self.stack.stats.counters)
    }

    /// Copies as many datagrams as there are slots and datagrams; returns how many.
    ///
    /// # Errors
    /// As [`Sockets::udp_recv`]; none where at least one was copied.
    pub fn udp_recv_burst(
        &mut self,
        id: SocketId,
        slots: &mut [ReceiveSlot<'_>],
    ) -> Result<usize, RecvError> {
        self.stack.sockets.udp.recv_burst(id, slots, &mut self.stack.stats.counters)
    }

    /// Sends datagrams in order, each to its own address or to the connected peer; returns how many
    /// were sent.
    ///
    /// # Errors
    /// As [`Sockets::udp_send`], of the first; none where at least one was sent.
    pub fn udp_send_burst(
        &mut self,
        id: SocketId,
        datagrams: &[(&[u8], Option<SocketAddr>)],
    ) -> Result<usize, SendError> {
        for (sent, (payload, to)) in datagrams.iter().enumerate() {
            match self.udp_send(id, *to, payload) {
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
                Ok(()) => {}
            }
        }
        Ok(datagrams.len())
    }

    /// Hands the oldest datagram out without a copy.
    ///
    /// # Errors
    /// As [`Sockets::udp_recv`].
    pub fn udp_recv_packet(&mut self, id: SocketId) -> Result<ReceivedPacket, RecvError> {
        self.stack.sockets.udp.recv_packet(id, &mut self.stack.stats.counters)
    }

    /// Datagrams that wait, true bytes charged for them, and datagrams refused since the socket was
    /// opened.
    ///
    /// # Errors
    /// It is closed.
    pub fn udp_queue(&self, id: SocketId) -> Result<(usize, u64, u64), SocketClosed> {
        self.stack.sockets.udp.queue(id)
    }

    /// What the socket refused, and why.
    ///
    /// # Errors
    /// It is closed.
    pub fn udp_refused(&self, id: SocketId) -> Result<RefusedDatagram, SocketClosed> {
        self.stack.sockets.udp.refused(id)
    }

    /// The socket's settings.
    ///
    /// # Errors
    /// It is closed.
    pub fn udp_settings(&self, id: SocketId) -> Result<&SocketSettings, SocketClosed> {
        self.stack.sockets.udp.settings(id)
    }

    /// Changes the socket's settings, its receive limit included: queued datagrams stay. `family`
    /// never changes, `v6_only` and `reuse_address` do not once it is bound.
    ///
    /// # Errors
    /// It is closed.
    pub fn udp_set_settings(
        &mut self,
        id: SocketId,
        settings: SocketSettings,
    ) -> Result<(), SocketClosed> {
        self.stack.sockets.udp.set_settings(id, settings)?;
        self.stack.sockets.path_cache.forget();
        Ok(())
    }

    /// Copies the oldest datagram out and leaves it where it is.
    ///
    /// # Errors
    /// As [`Sockets::udp_recv`].
    pub fn udp_peek(&mut self, id: SocketId, out: &mut [u8]) -> Result<Received, RecvError> {
        self.stack.sockets.udp.peek(id, out)
    }

    /// The message behind the last ICMP error that the socket received: its type and code, the MTU
    /// or pointer, and its sender. It stays until the next one arrives.
    #[must_use]
    pub fn udp_last_error(&self, id: SocketId) -> Option<IcmpReport> {
        self.stack.sockets.udp.last_report(id)
    }

    /// Sends one datagram, to `to` or to the connected peer.
    ///
    /// # Errors
    /// See [`SendError`]; nothing is sent then.
    #[inline]
    pub fn udp_send(
        &mut self,
        id: SocketId,
        to: Option<SocketAddr>,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let to = match to {
            Some(to) => to,
            None => self.peer(id)?.ok_or(SendError::NotConnected)?,
        };
        let zone = scope_of(to);
        self.send(id, to, None, zone, payload)
    }

    /// Sends one datagram from a source of the caller's choice: an address of ours, or one that is
    /// routed to this host
    /// ([`InterfaceConfig::any_destination`](crate::InterfaceConfig::any_destination)); the port is
    /// the socket's own (also if given as 0), or any where it was bound at every port.
    ///
    /// # Errors
    /// As [`Sockets::udp_send`]; `AddressGone` for another address, `SourcePort` for another port.
    pub fn udp_send_from(
        &mut self,
        id: SocketId,
        from: SocketAddr,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.send(id, to, Some(from), scope_of(to), payload)
    }

    /// Answers a datagram from the address and port that it was sent to.
    ///
    /// # Errors
    /// As [`Sockets::udp_send`].
    #[inline]
    pub fn udp_reply(
        &mut self,
        id: SocketId,
        received: &Received,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let from = Some(received.to).filter(|from| self.stack.may_send_from(from.ip()));
        self.send(id, received.from, from, Some(received.iface), payload)
    }

    fn peer(&self, id: SocketId) -> Result<Option<SocketAddr>, SendError> {
        let closed = |error: SocketClosed| SendError::Socket(error.into());
        self.stack.sockets.udp.peer_addr(id).map_err(closed)
    }

    /// Along the path that the socket used last, if it leads to the same place; else by the tables.
    #[inline]
    fn send(
        &mut self,
        id: SocketId,
        to: SocketAddr,
        from: Option<SocketAddr>,
        zone: Option<IfIndex>,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let Some(path) = stack.sockets.path_cache.find(id, &to, &from, zone, cx.now) else {
            return self.send_by_tables(PathQuery { id, to, from, zone }, Payload::Bytes(payload));
        };
        let total = path.ip_len() + floodwall_wire::udp::HEADER_LEN + payload.len();
        if total > path.mtu as usize {
            return self.send_by_tables(PathQuery { id, to, from, zone }, Payload::Bytes(payload));
        }
        let (counters, flow) = (&mut stack.stats.counters, &path.flow);
        let mut packet =
            stack.sockets.udp.output_prepared(cx.pool, id, flow, path, &[payload], counters)?;
        packet.set_iface(path.iface);
        match path.is_v4() {
            true => stack.originate::<Ipv4Addr>(total),
            false => stack.originate::<Ipv6Addr>(total),
        }
        stack.depart(cx, packet);
        Ok(())
    }

    #[cold]
    fn send_by_tables(&mut self, query: PathQuery, payload: Payload<'_>) -> Result<(), SendError> {
        let bound = self.bound_source(query.id).map_err(|e| SendError::Socket(e.into()))?;
        let from = query.from.map(|from| from.ip().to_canonical()).or(bound);
        if let Some(gone) = from.filter(|from| !self.stack.may_send_from(*from)) {
            return Err(SendError::AddressGone(gone));
        }
        match query.to.ip().to_canonical() {
            IpAddr::V4(to_addr) => {
                self.send_to(query, to_addr, from.and_then(Address::from_ip), payload)
            }
            IpAddr::V6(to_addr) => {
                self.send_to(query, to_addr, from.and_then(Address::from_ip), payload)
            }
        }
    }

    /// Sends a payload that lies in a packet of its own, with its sum: to `to` or to the connected
    /// peer, from a source and by an interface of the caller's choice, where given.
    pub(crate) fn udp_send_packet(
        &mut self,
        id: SocketId,
        (to, from, iface): (Option<SocketAddr>, Option<SocketAddr>, Option<IfIndex>),
        packet: PacketBuf,
        sum: InternetSum,
    ) -> Result<(), SendError> {
        let to = match to {
            Some(to) => to,
            None => self.peer(id)?.ok_or(SendError::NotConnected)?,
        };
        let zone = iface.or_else(|| scope_of(to));
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let path = stack.sockets.path_cache.find(id, &to, &from, zone, cx.now).filter(|path| {
            let total = path.ip_len() + floodwall_wire::udp::HEADER_LEN + packet.len();
            total <= path.mtu as usize
        });
        let Some(path) = path else {
            let query = PathQuery { id, to, from, zone };
            return self.send_by_tables(query, Payload::Packet(packet, sum));
        };
        let total = path.ip_len() + floodwall_wire::udp::HEADER_LEN + packet.len();
        let (counters, flow) = (&mut stack.stats.counters, &path.flow);
        let mut packet =
            stack.sockets.udp.output_in_place(cx.pool, id, flow, path, packet, sum, counters)?;
        packet.set_iface(path.iface);
        match path.is_v4() {
            true => stack.originate::<Ipv4Addr>(total),
            false => stack.originate::<Ipv6Addr>(total),
        }
        stack.depart(cx, packet);
        Ok(())
    }

    /// The address that the socket is bound to, where it is bound to one.
    fn bound_source(&self, id: SocketId) -> Result<Option<IpAddr>, SocketClosed> {
        let local = self.stack.sockets.udp.local_addr(id)?;
        Ok(local.map(|l| l.ip()).filter(|ip| !ip.is_unspecified() && !ip.is_multicast()))
    }

    fn send_to<A: IpFamily>(
        &mut self,
        query: PathQuery,
        dst_addr: A,
        from: Option<A>,
        payload: Payload<'_>,
    ) -> Result<(), SendError> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let PathQuery { id, to, .. } = query;
        let zone = query.zone.or_else(|| stack.group_zone(id, dst_addr));
        let Ok(path) = stack.path(cx, dst_addr, zone) else {
            stack.stats.counters.count(A::OUT_NO_ROUTES);
            return Err(SendError::NoRoute(to.ip()));
        };
        let src_addr = from.or_else(|| stack.source_on(cx, path, dst_addr));
        let src_addr = src_addr.ok_or(SendError::NoSource(to.ip()))?;
        let whole = stack.sockets.udp.settings(id).is_ok_and(|settings| settings.dont_fragment);
        if let OutputPath::Via { mtu, .. } = path
            && whole
        {
            let headers = A::HEADER_LEN + floodwall_wire::udp::HEADER_LEN;
            let max = (mtu as usize).saturating_sub(headers);
            if payload.len() > max {
                return Err(SendError::Socket(UdpSendError::MessageTooLong { max }));
            }
        }
        let port = query.from.map_or(0, |from| from.port());
        let from = SocketAddr::new(src_addr.to_ip(), port);
        let flow = stack.sockets.udp.prepare(id, to, from)?;
        let counters = &mut stack.stats.counters;
        // It may have to wait for a link address: charged until it departs.
        let packet = match payload {
            Payload::Bytes(bytes) => {
                stack.sockets.udp.output(cx.pool, id, to, from, bytes, counters)?
            }
            Payload::Packet(packet, sum) => {
                stack.sockets.udp.output_in_place(cx.pool, id, &flow, &(), packet, sum, counters)?
            }
        };
        let hop_limit = match stack.sockets.udp.settings(id) {
            Ok(settings) if dst_addr.is_group() => settings.group_hop_limit,
            Ok(settings) => settings.hop_limit.unwrap_or_else(|| stack.hop_limit_on(path)),
            Err(_) => stack.hop_limit_on(path),
        };
        let class =
            stack.sockets.udp.settings(id).map_or(BEST_EFFORT, |settings| settings.traffic_class);
        let (ends, protocol) = (AddrPair { src_addr, dst_addr }, IpProtocol::UDP);
        let outgoing = OutgoingPacket { packet, ends, protocol, hop_limit, class, zone };
        match dst_addr.is_group() {
            true => stack.output_to_group(cx, id, outgoing, path),
            false => {
                let from = SocketAddr::new(src_addr.to_ip(), flow.src_port());
                let is_settled = stack.note_answered(id, (&to, from), path, cx.now);
                let learn = SendingPath { query, flow, is_settled };
                stack.output_on(cx, outgoing, path, Some(learn));
            }
        }
        Ok(())
    }
}

impl Stack {
    /// The sockets, for the length of one slice: what an application on this core works with.
    /// What it sends is appended to the round's departing packets.
    pub fn sockets<'a>(&'a mut self, round: &'a mut Round<'_>) -> Sockets<'a> {
        let mut sockets = Sockets::new(self, RoundContext::of(round));
        sockets.stack.catch_up(&mut sockets.cx);
        sockets
    }

    /// Whether `addr` is one of ours, or loopback.
    pub(crate) fn has(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.owns_addr(addr)
    }

    /// Whether a datagram may have the source address `addr`: it is ours, or its traffic is routed
    /// to this host.
    pub(crate) fn may_send_from(&self, addr: IpAddr) -> bool {
        self.has(addr)
            || match addr {
                IpAddr::V4(addr) => self.speaks_as(addr),
                IpAddr::V6(addr) => self.speaks_as(addr),
            }
    }
}

/// The interface that a socket address names: IPv6's scope id.
pub(crate) fn scope_of(addr: SocketAddr) -> Option<IfIndex> {
    match addr {
        SocketAddr::V6(a) if a.scope_id() != 0 => u16::try_from(a.scope_id()).ok().map(IfIndex),
        _ => None,
    }
}
