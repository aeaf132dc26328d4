//! TCP in the stack: segments to their set, what it sends to the network, sockets to applications.
//!
//! Called by `deliver.rs` with what arrived, by `neighbors.rs` for timed work, by applications on
//! the same core through [`Sockets`]. A stack configured without TCP connections does not implement
//! the protocol at all. Invariants: after every call that may change a connection all its pending
//! segments have left for the network layer; resets that belong to no connection are rate-limited
//! as ICMP errors are, with a token bucket of their own.
//!
//! # Under flood
//! Anyone makes us look up a flow and sum a segment; resets leave within the limits of
//! `ICMP_ERROR_RATE` and `ICMP_PEER_RATE`; handshakes are the SYN cache's matter.

pub(crate) mod drain;
pub(crate) mod error;
pub(crate) mod shard;
pub(crate) mod syn;
pub(crate) mod syn_offers;
pub(crate) mod wall_clock;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::num::NonZeroU8;

use floodwall_base::{Endpoint, FlowKey, IfIndex, Instant, Seq, Units};
use floodwall_packet::{PacketBuf, PacketList};
use floodwall_tcp::{
    ConnectionAddrs as TcpEnds, ConnectionEvents, ConnectionId, ConnectionTable, CookieMoment,
    IcmpHeard, IcmpSays, ListenerId, OpenError, OutgoingSegment, RecvError, SegmentMarks,
    SendError, StaleHandle, SynAck, TcpSettings, TcpState, Transmit, WrittenAtOnce,
};
use floodwall_wire::{Dscp, Ecn, IpProtocol};

use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::OutgoingPacket;
use crate::parts::BurstState;
use crate::round_context::RoundContext;
use crate::sockets::{Sockets, scope_of};
use crate::stack::Stack;
use crate::tcp::error::TcpError;

/// The ends of a flow as its family has them.
enum FlowEnds {
    V4(AddrPair<Ipv4Addr>),
    V6(AddrPair<Ipv6Addr>),
}

/// The ends of a flow, ours as the source.
#[inline]
fn ends_of(flow: &FlowKey) -> FlowEnds {
    let (src_addr, dst_addr) = (flow.local.addr, flow.remote.addr);
    match flow.local.ipv4_bits() {
        Some(ours) => {
            // Both are of one family: the other address is mapped as well.
            let theirs = Ipv4Addr::from_bits(dst_addr.to_bits() as u32);
            debug_assert_eq!(flow.remote.ipv4_bits(), Some(theirs.to_bits()));
            FlowEnds::V4(AddrPair { src_addr: Ipv4Addr::from_bits(ours), dst_addr: theirs })
        }
        None => FlowEnds::V6(AddrPair { src_addr, dst_addr }),
    }
}

/// What one call borrows for the connection set: disjoint parts of the stack.
macro_rules! lend {
    ($stack:expr, $cx:expr) => {
        floodwall_tcp::TcpContext {
            now: $cx.now,
            epoch: $stack.shard.wall.epoch_of_round(),
            pool: $cx.pool,
            random: &mut *$cx.random,
            counters: &mut $stack.stats.counters,
        }
    };
}

impl Stack {
    /// Lets an acknowledgment leave that is due after a segment.
    fn tcp_reply<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        (ends, zone): (AddrPair<A>, Option<IfIndex>),
        segment: OutgoingSegment,
    ) {
        let way = self.tcp_way(cx, ends.dst_addr, zone);
        self.tcp_output_one(cx, (ends, zone), way, segment);
    }

    /// The same of a flow of either family.
    #[inline(never)]
    fn tcp_reply_on(
        &mut self,
        cx: &mut RoundContext<'_>,
        flow: &FlowKey,
        segment: OutgoingSegment,
    ) {
        let zone = Some(flow.zone).filter(|zone| *zone != IfIndex::default());
        match ends_of(flow) {
            FlowEnds::V4(ends) => self.tcp_reply(cx, (ends, zone), segment),
            FlowEnds::V6(ends) => self.tcp_reply(cx, (ends, zone), segment),
        }
    }

    /// The burst has ended: what waits in a run is taken, and answered.
    #[inline(always)]
    pub(crate) fn tcp_end_burst(&mut self, cx: &mut RoundContext<'_>) {
        self.burst.predicted = BurstState::NO_CONNECTION;
        if self.tcp.as_ref().is_some_and(|tcp| tcp.set.has_train()) {
            self.tcp_end_train(cx);
        }
    }

    #[inline(never)]
    fn tcp_end_train(&mut self, cx: &mut RoundContext<'_>) {
        let Some(tcp) = &mut self.tcp else { return };
        self.burst.follow.stop();
        if let Some(ended) = tcp.set.end_train(&mut lend!(self, cx)) {
            self.stats.note_coalesced(ended);
        }
        self.tcp_transmit(cx);
    }

    /// Lets everything leave that connections want to send, and that there is room for.
    #[inline(always)]
    pub(crate) fn tcp_transmit(&mut self, cx: &mut RoundContext<'_>) {
        if self.tcp.as_ref().is_some_and(|tcp| tcp.set.wants_transmit()) {
            self.tcp_transmit_all(cx);
        }
    }

    #[inline(never)]
    fn tcp_transmit_all(&mut self, cx: &mut RoundContext<'_>) {
        let mut rest = PacketList::new();
        self.burst.owes_segments = false;
        while let Some(tcp) = self.tcp.as_mut().filter(|tcp| tcp.set.wants_transmit()) {
            let Some(flow) = tcp.set.next_to_send(&mut lend!(self, cx)) else { return };
            let room = self.burst.tx_room.saturating_sub(cx.departing.len());
            // They wait in turn: the one that has waited longest is next.
            self.burst.owes_segments = room == 0;
            let most = u32::try_from(room).unwrap_or(u32::MAX);
            match ends_of(&flow) {
                _ if room == 0 => return,
                FlowEnds::V4(ends) => self.tcp_transmit_to(cx, (ends, flow.zone), most, &mut rest),
                FlowEnds::V6(ends) => self.tcp_transmit_to(cx, (ends, flow.zone), most, &mut rest),
            }
        }
    }

    /// Whether connections have kept segments for which there is room now.
    pub(crate) fn may_transmit_more(&self) -> bool {
        let wants = || self.tcp.as_ref().is_some_and(|tcp| tcp.set.wants_transmit());
        self.burst.owes_segments && self.burst.tx_room > 0 && wants()
    }

    /// Lets leave what the connection in turn sends, `most` segments of its path at most.
    fn tcp_transmit_to<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        (ends, zone): (AddrPair<A>, IfIndex),
        most: u32,
        rest: &mut PacketList,
    ) {
        let zone = Some(zone).filter(|zone| *zone != IfIndex::default());
        let way = self.tcp_way(cx, ends.dst_addr, zone);
        let Some(tcp) = &mut self.tcp else { return };
        if let Some(segment) = tcp.set.transmit_on(&mut lend!(self, cx), way.mtu, most, rest) {
            self.tcp_output_on(cx, (ends, zone), way, segment, rest);
        }
    }

    /// Writes to a connection of `peer`: what is one segment then leaves at once.
    fn tcp_send_now<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        id: ConnectionId,
        (ends, zone): (AddrPair<A>, IfIndex),
        bytes: &[u8],
    ) -> Result<usize, SendError> {
        let zone = (zone != IfIndex::default()).then_some(zone);
        let way = self.tcp_way(cx, ends.dst_addr, zone);
        let tcp = self.tcp.as_mut().ok_or(StaleHandle)?;
        let index = id.index() as u32;
        let is_taken = match tcp.set.write_at_once(&mut lend!(self, cx), index, bytes, way.mtu) {
            WrittenAtOnce::Segment(segment) => {
                self.tcp_output_alone(cx, (ends, zone), way, segment);
                return Ok(bytes.len());
            }
            other => matches!(other, WrittenAtOnce::Unbuilt),
        };
        let write = (false, is_taken, way.mtu);
        let (sent, segment) = tcp.set.write_pending(&mut lend!(self, cx), index, bytes, write);
        if let Some(segment) = segment {
            self.tcp_output_one(cx, (ends, zone), way, segment);
        }
        sent
    }

    /// Opens a connection to `dst_addr`: its SYN leaves at once, where nothing else waits.
    fn tcp_open_now<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        dst_addr: A,
        to: &TcpEnds,
        settings: &TcpSettings,
        owner: u32,
    ) -> Result<ConnectionId, TcpError> {
        let zone = (to.zone != IfIndex::default()).then_some(to.zone);
        let way = self.tcp_way(cx, dst_addr, zone);
        let tcp = self.tcp.as_mut().ok_or(TcpError::Off)?;
        let (id, syn) = tcp.set.connect_now(&mut lend!(self, cx), to, settings, owner, way.mtu)?;
        if let Some(syn) = syn
            && let Some(src_addr) = A::from_ip(to.local.ip().to_canonical())
        {
            let ends = (AddrPair { src_addr, dst_addr }, zone);
            self.tcp_output_one(cx, ends, way, syn);
        }
        Ok(id)
    }

    /// Closes a connection of `peer`: its FIN leaves at once, where that is all.
    fn tcp_close_now<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        id: ConnectionId,
        (ends, zone): (AddrPair<A>, IfIndex),
    ) -> Result<(), StaleHandle> {
        let zone = (zone != IfIndex::default()).then_some(zone);
        let way = self.tcp_way(cx, ends.dst_addr, zone);
        let tcp = self.tcp.as_mut().ok_or(StaleHandle)?;
        if let Some(segment) = tcp.set.close_now(&mut lend!(self, cx), id, way.mtu)? {
            self.tcp_output_one(cx, (ends, zone), way, segment);
        }
        Ok(())
    }

    fn tcp_send(&mut self, cx: &mut RoundContext<'_>, transmit: Transmit) {
        self.tcp_send_run(cx, transmit, &mut PacketList::new());
    }

    fn tcp_send_run(
        &mut self,
        cx: &mut RoundContext<'_>,
        transmit: Transmit,
        rest: &mut PacketList,
    ) {
        match (transmit.src_addr, transmit.dst_addr) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                self.tcp_output::<Ipv4Addr>(cx, from, to, transmit, rest)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                self.tcp_output::<Ipv6Addr>(cx, from, to, transmit, rest)
            }
            _ => debug_assert!(false, "a flow has one family"),
        }
    }

    fn tcp_output<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        src_addr: A,
        dst_addr: A,
        transmit: Transmit,
        rest: &mut PacketList,
    ) {
        let zone = Some(transmit.zone).filter(|zone| *zone != IfIndex::default());
        let way = self.tcp_way(cx, dst_addr, zone);
        let Transmit { packet, hop_limit, traffic_class, ecn_capable, fragmentable, .. } = transmit;
        let hop_limit = hop_limit.and_then(NonZeroU8::new);
        let marks = SegmentMarks { hop_limit, traffic_class, ecn_capable, fragmentable };
        let segment = OutgoingSegment { packet, marks };
        let ends = AddrPair { src_addr, dst_addr };
        self.tcp_output_on(cx, (ends, zone), way, segment, rest);
    }

    /// Sends one segment: one body for all but what a write sends at once.
    #[inline(never)]
    fn tcp_output_one<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        ends: (AddrPair<A>, Option<IfIndex>),
        way: SegmentWay,
        segment: OutgoingSegment,
    ) {
        self.tcp_output_alone(cx, ends, way, segment);
    }

    /// Sends one segment on the path of its destination, with the headers of the one before where
    /// that went the same way.
    #[inline(always)]
    fn tcp_output_alone<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        (ends, zone): (AddrPair<A>, Option<IfIndex>),
        way: SegmentWay,
        segment: OutgoingSegment,
    ) {
        let OutgoingSegment { packet, marks } = segment;
        if let Err(packet) = self.tcp_depart_as_before(cx, (&ends, zone), way, packet, &marks) {
            let segment = OutgoingSegment { packet, marks };
            self.tcp_output_anew(cx, (ends, zone), segment, &mut PacketList::new());
        }
    }

    /// Sends segments on the path of their destination.
    #[inline(always)]
    fn tcp_output_on<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        (ends, zone): (AddrPair<A>, Option<IfIndex>),
        way: SegmentWay,
        segment: OutgoingSegment,
        rest: &mut PacketList,
    ) {
        match rest.is_empty() {
            true => self.tcp_output_one(cx, (ends, zone), way, segment),
            false => self.tcp_output_anew(cx, (ends, zone), segment, rest),
        }
    }

    /// The same with headers that are made for them, on the path that is looked up for that.
    #[inline(never)]
    fn tcp_output_anew<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        (ends, zone): (AddrPair<A>, Option<IfIndex>),
        segment: OutgoingSegment,
        rest: &mut PacketList,
    ) {
        let OutgoingSegment { packet, marks } = segment;
        let path = match self.tcp_path(cx, ends.dst_addr, zone) {
            Ok(path) => path,
            Err(reason) => {
                self.originate::<A>(packet.len() + A::HEADER_LEN);
                let packet = self.tcp_unsent(cx.now, ends, zone, packet);
                self.drop_output::<A>(packet, reason);
                while let Some(packet) = rest.pop_front() {
                    self.originate::<A>(packet.len() + A::HEADER_LEN);
                    self.drop_output::<A>(packet, reason);
                }
                return;
            }
        };
        let SegmentMarks { hop_limit, traffic_class, ecn_capable, fragmentable } = marks;
        let hop_limit = hop_limit.map_or_else(|| self.hop_limit_on(path), NonZeroU8::get);
        // RFC 3168 section 5: ECT(0) or nothing in the two lowest bits.
        let ecn = if ecn_capable { Ecn::Capable0 } else { Ecn::NotCapable };
        let class = Dscp::of_traffic_class(traffic_class).with_ecn(ecn);
        let protocol = IpProtocol::TCP;
        let (len, departed) = (packet.len(), cx.departing.len());
        let outgoing = OutgoingPacket { packet, ends, protocol, hop_limit, class, zone };
        if fragmentable {
            self.output_fragmentable(cx, outgoing, path);
            while let Some(packet) = rest.pop_front() {
                let outgoing = OutgoingPacket { packet, ends, protocol, hop_limit, class, zone };
                self.output_fragmentable(cx, outgoing, path);
            }
            return;
        }
        self.output_on(cx, outgoing, path, None);
        let first = cx.departing.last().filter(|_| cx.departing.len() == departed + 1);
        if rest.is_empty() {
            if let Some(first) = first {
                self.sockets.path_cache.note_heads((&ends, zone), marks, first, len);
            }
            return;
        }
        if let Some(heads) = first.and_then(|first| BurstHeads::of::<A>(first, len)) {
            self.depart_alike::<A>(cx, &heads, len, rest);
        }
        while let Some(packet) = rest.pop_front() {
            let outgoing = OutgoingPacket { packet, ends, protocol, hop_limit, class, zone };
            self.output_on(cx, outgoing, path, None);
        }
    }

    /// Lets a segment leave with the headers of the one before, if that went the same way with the
    /// same marks; gives back any other.
    #[inline(always)]
    fn tcp_depart_as_before<A: IpFamily>(
        &mut self,
        cx: &mut RoundContext<'_>,
        (ends, zone): (&AddrPair<A>, Option<IfIndex>),
        way: SegmentWay,
        packet: PacketBuf,
        marks: &SegmentMarks,
    ) -> Result<(), PacketBuf> {
        let (len, total) = (packet.len(), packet.len() + A::HEADER_LEN);
        if total > way.largest as usize {
            return Err(packet);
        }
        let heads = self.sockets.path_cache.heads(ends, zone, marks);
        let Some(heads) = heads else { return Err(packet) };
        let (heads_len, mut packet) = (heads.headers.len(), packet);
        if let Some(front) = packet.prepend(heads_len) {
            heads.headers.write(front, len);
        } else {
            packet = packet.push_header(cx.pool, heads_len)?;
            if let Some(front) = packet.front_mut(heads_len) {
                heads.headers.write(front, len);
            }
        }
        packet.set_iface(heads.iface);
        self.originate::<A>(total);
        self.depart(cx, packet);
        Ok(())
    }

    /// There is no way for that packet: a SYN-ACK among them is not sent again.
    fn tcp_unsent<A: IpFamily>(
        &mut self,
        now: Instant,
        ends: AddrPair<A>,
        zone: Option<IfIndex>,
        packet: PacketBuf,
    ) -> PacketBuf {
        let (src_addr, dst_addr) = (ends.src_addr.to_ip(), ends.dst_addr.to_ip());
        let zone = zone.unwrap_or_default();
        let transmit = Transmit {
            packet,
            src_addr,
            dst_addr,
            zone,
            hop_limit: None,
            traffic_class: 0,
            ecn_capable: false,
            fragmentable: false,
        };
        if let Some(tcp) = &mut self.tcp {
            tcp.set.unsent(&transmit, CookieMoment::new(now, self.shard.wall.epoch(now)));
        }
        transmit.packet
    }

    /// Timers of connections, and answers to SYNs that are due again.
    pub(crate) fn tcp_timers(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let Some(tcp) = &mut self.tcp else { return Units(0) };
        if tcp.set.has_to_resend(cx.now) {
            return self.tcp_resend(cx, budget);
        }
        let spent = tcp.set.work(&mut lend!(self, cx), budget, &mut |_| {});
        self.tcp_transmit(cx);
        spent
    }

    /// The same where answers to SYNs are due.
    fn tcp_resend(&mut self, cx: &mut RoundContext<'_>, budget: Units) -> Units {
        let Some(mut tcp) = self.tcp.take() else { return Units(0) };
        // Few leave in one turn: what is beyond comes in the next.
        let mut again: [Option<SynAck>; 16] = [None; 16];
        let mut free = again.iter_mut();
        let budget = Units(budget.0.min(16));
        let spent = tcp.set.work(&mut lend!(self, cx), budget, &mut |answer| {
            if let Some(slot) = free.next() {
                *slot = Some(*answer);
            }
        });
        self.tcp = Some(tcp);
        for answer in again.into_iter().flatten() {
            let mtu = self.link_mtu_to(cx, answer.flow.remote.ip(), answer.flow.zone);
            let Some(tcp) = &mut self.tcp else { break };
            if let Some(transmit) = tcp.set.syn_ack(&mut lend!(self, cx), &answer, mtu) {
                self.tcp_send(cx, transmit);
            }
        }
        self.tcp_transmit(cx);
        spent
    }

    /// When connections have timed work; [`Instant::FAR`] where there is none.
    #[inline(always)]
    pub(crate) fn tcp_deadline(&self) -> Instant {
        self.tcp.as_ref().map_or(Instant::FAR, |tcp| tcp.set.works_at())
    }

    /// Delivers an ICMP error that quotes a segment of ours; returns what became of it.
    pub(crate) fn tcp_told(
        &mut self,
        now: Instant,
        local: (IpAddr, u16),
        remote: (IpAddr, u16),
        iface: IfIndex,
        seq: u32,
        says: IcmpSays,
    ) -> IcmpHeard {
        let Some(tcp) = &mut self.tcp else { return IcmpHeard::Unknown };
        let flow = FlowKey {
            local: Endpoint::new(local.0, local.1),
            remote: Endpoint::new(remote.0, remote.1),
            zone: iface,
            protocol: IpProtocol::TCP.0,
        };
        tcp.set.icmp_error(&flow, Seq(seq), says, now)
    }
}

pub(crate) use lend;

use self::burst_heads::BurstHeads;
use self::path_mtu::SegmentWay;

/// TCP, for applications on the same core.
impl Sockets<'_> {
    /// A number under which an application's events are kept apart from the others'.
    ///
    /// # Errors
    /// TCP is disabled on this stack.
    pub fn tcp_owner(&mut self) -> Result<u32, TcpError> {
        Ok(self.stack.tcp.as_mut().ok_or(TcpError::Off)?.next_owner())
    }

    /// Listens: at one of our addresses, or at the unspecified one of a family (of IPv6: of both).
    ///
    /// # Errors
    /// See [`TcpError`].
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        settings: &TcpSettings,
        backlog: usize,
        owner: u32,
    ) -> Result<ListenerId, TcpError> {
        let addr = local.ip().to_canonical();
        if !addr.is_unspecified() && !self.stack.has(addr) {
            return Err(TcpError::NotOurs(addr));
        }
        let mtu = self.stack.interfaces.iter().skip(1).map(|i| i.mtu).max().unwrap_or(1500);
        let zone = scope_of(local).unwrap_or_default();
        let tcp = self.stack.tcp.as_mut().ok_or(TcpError::Off)?;
        Ok(tcp.set.listen(local, zone, mtu, settings, backlog, owner)?)
    }

    /// Opens a connection from the address that the routes choose.
    ///
    /// # Errors
    /// See [`TcpError`].
    pub fn tcp_connect(
        &mut self,
        remote: SocketAddr,
        settings: &TcpSettings,
        owner: u32,
    ) -> Result<ConnectionId, TcpError> {
        let ends = self.tcp_ends_towards(None, remote)?;
        self.tcp_open(&ends, settings, owner)
    }

    /// Opens a connection from this address and port; an unspecified address and port 0 are left to
    /// the stack.
    ///
    /// # Errors
    /// See [`TcpError`].
    pub fn tcp_connect_from(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        settings: &TcpSettings,
        owner: u32,
    ) -> Result<ConnectionId, TcpError> {
        let ends = self.tcp_ends_towards(Some(local), remote)?;
        self.tcp_open(&ends, settings, owner)
    }

    /// The addresses and ports of a connection to `remote`: the source address that the routes
    /// select, unless `from` gives address or port of its own end.
    pub(crate) fn tcp_ends_towards(
        &mut self,
        from: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<TcpEnds, TcpError> {
        let zone = scope_of(remote);
        let ip = remote.ip().to_canonical();
        let found = match ip {
            IpAddr::V4(a) => self.way_to(a, zone),
            IpAddr::V6(a) => self.way_to(a, zone),
        };
        let (src_addr, mtu) = found.ok_or(TcpError::NoRoute(remote.ip()))?;
        let wanted = from.map(|from| from.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        if let Some(wanted) = wanted.filter(|wanted| !self.stack.has(*wanted)) {
            return Err(TcpError::NotOurs(wanted));
        }
        let port = from.map_or(0, |from| from.port());
        let local = SocketAddr::new(wanted.unwrap_or(src_addr), port);
        Ok(TcpEnds { local, remote, zone: zone.unwrap_or_default(), mtu })
    }

    /// The same address with an ephemeral port if it has none: one without a listener.
    pub(crate) fn tcp_port(&mut self, local: SocketAddr) -> Result<SocketAddr, TcpError> {
        if local.port() != 0 {
            return Ok(local);
        }
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_ref().ok_or(TcpError::Off)?;
        let port = tcp.set.free_port(local.ip(), &mut cx.random.secret);
        let mut with_port = local;
        with_port.set_port(port.ok_or(TcpError::Open(OpenError::NoPort))?);
        Ok(with_port)
    }

    /// Opens a connection between these ends.
    pub(crate) fn tcp_open(
        &mut self,
        ends: &TcpEnds,
        settings: &TcpSettings,
        owner: u32,
    ) -> Result<ConnectionId, TcpError> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        if self.in_slice {
            let tcp = stack.tcp.as_mut().ok_or(TcpError::Off)?;
            return Ok(tcp.set.connect(&mut lend!(stack, cx), ends, settings, owner)?);
        }
        let id = match ends.remote.ip().to_canonical() {
            IpAddr::V4(peer) => stack.tcp_open_now(cx, peer, ends, settings, owner)?,
            IpAddr::V6(peer) => stack.tcp_open_now(cx, peer, ends, settings, owner)?,
        };
        self.tcp_leave();
        Ok(id)
    }

    /// Whether an address is a broadcast address of any of our links.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip else { return false };
        self.stack.interfaces.iter().any(|interface| interface.is_broadcast_v4(ip))
    }

    /// Our address towards a destination, and the MTU of the link to it: the one that our SYN
    /// announces. What the path carries is followed with each transmission.
    fn way_to<A: IpFamily>(&mut self, dst_addr: A, zone: Option<IfIndex>) -> Option<(IpAddr, u32)> {
        let known = self.stack.sockets.path_cache.last_ends(dst_addr, zone, self.cx.now);
        if let Some((src_addr, iface)) = known {
            return Some((src_addr.to_ip(), self.stack.link_mtu_at::<A>(iface)));
        }
        self.find_way_to(dst_addr, zone)
    }

    /// The same of a path that is not the last one, or of which the source was not asked for.
    #[inline(never)]
    fn find_way_to<A: IpFamily>(
        &mut self,
        dst_addr: A,
        zone: Option<IfIndex>,
    ) -> Option<(IpAddr, u32)> {
        let path = self.stack.tcp_path(&self.cx, dst_addr, zone).ok()?;
        let last = self.stack.sockets.path_cache.last_source(dst_addr, zone);
        let src_addr = match last {
            Some(src_addr) => src_addr,
            None => {
                // RFC 1122 section 4.2.3.10: no connection leads to more than one host.
                let ip = dst_addr.to_ip();
                if ip.is_multicast() || self.is_broadcast(ip) {
                    return None;
                }
                let src_addr = self.stack.source_on(&self.cx, path, dst_addr)?;
                self.stack.sockets.path_cache.note_source((dst_addr, zone), src_addr);
                src_addr
            }
        };
        Some((src_addr.to_ip(), self.stack.link_mtu_on(path)))
    }

    pub(crate) fn tcp(&mut self) -> Result<&mut ConnectionTable, StaleHandle> {
        self.stack.tcp.as_mut().map(|tcp| &mut tcp.set).ok_or(StaleHandle)
    }

    /// The connection that waits longest to be accepted.
    ///
    /// # Errors
    /// The listener is gone.
    pub fn tcp_accept(
        &mut self,
        listener: ListenerId,
    ) -> Result<Option<ConnectionId>, StaleHandle> {
        self.tcp()?.accept(listener)
    }

    /// A connection of this owner for which something has become possible.
    pub fn tcp_event(&mut self, owner: u32) -> Option<(ConnectionId, ConnectionEvents)> {
        self.tcp().ok()?.next_event(owner)
    }

    /// Lets leave what connections want to send: at the end of the slice, where there is one.
    pub(crate) fn tcp_leave(&mut self) {
        if !self.in_slice {
            self.stack.tcp_transmit(&mut self.cx);
        }
    }

    /// Writes what fits; how many bytes were taken.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn tcp_send(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<usize, SendError> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(StaleHandle)?;
        if self.in_slice {
            return tcp.set.send(&mut lend!(stack, cx), id, bytes);
        }
        let flow = tcp.set.next_to_write(id);
        let sent = match flow.as_ref().map(|flow| (ends_of(flow), flow.zone)) {
            Some((FlowEnds::V4(ends), zone)) => stack.tcp_send_now(cx, id, (ends, zone), bytes),
            Some((FlowEnds::V6(ends), zone)) => stack.tcp_send_now(cx, id, (ends, zone), bytes),
            None => tcp.set.send(&mut lend!(stack, cx), id, bytes),
        };
        stack.tcp_transmit(cx);
        sent
    }

    /// As [`Sockets::tcp_send`], and more comes at once: what fills no segment waits for it
    /// (`MSG_MORE`).
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn tcp_send_more(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<usize, SendError> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(StaleHandle)?;
        let sent = tcp.set.send_more(&mut lend!(stack, cx), id, bytes);
        self.tcp_leave();
        sent
    }

    /// Copies what was received into `out`; 0 where the peer has no more.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn tcp_recv(&mut self, id: ConnectionId, out: &mut [u8]) -> Result<usize, RecvError> {
        let now = self.cx.now;
        let read = self.tcp()?.recv(id, out, now);
        self.tcp_leave();
        read
    }

    /// As [`Sockets::tcp_recv`], and leaves it where it is.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn tcp_peek(&mut self, id: ConnectionId, out: &mut [u8]) -> Result<usize, RecvError> {
        self.tcp()?.peek(id, 0, out)
    }

    /// There is no more to send.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tcp_shutdown(&mut self, id: ConnectionId) -> Result<(), StaleHandle> {
        let now = self.cx.now;
        self.tcp()?.shutdown_write(id, now)?;
        self.tcp_leave();
        Ok(())
    }

    /// Lets go of a connection; what was written still leaves.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tcp_close(&mut self, id: ConnectionId) -> Result<(), StaleHandle> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(StaleHandle)?;
        let flow = if self.in_slice { None } else { tcp.set.next_to_write(id) };
        match flow.as_ref().map(|flow| (ends_of(flow), flow.zone)) {
            Some((FlowEnds::V4(ends), zone)) => stack.tcp_close_now(cx, id, (ends, zone))?,
            Some((FlowEnds::V6(ends), zone)) => stack.tcp_close_now(cx, id, (ends, zone))?,
            None => tcp.set.close(&lend!(stack, cx), id)?,
        }
        self.tcp_leave();
        Ok(())
    }

    /// Lets go of a connection by a reset.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tcp_abort(&mut self, id: ConnectionId) -> Result<(), StaleHandle> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let tcp = stack.tcp.as_mut().ok_or(StaleHandle)?;
        tcp.set.abort(&lend!(stack, cx), id)?;
        self.tcp_leave();
        Ok(())
    }

    /// Maximum number of connections: every [`ConnectionId::index`] is below.
    #[must_use]
    pub fn tcp_places_max(&self) -> usize {
        self.stack.tcp.as_ref().map_or(0, |tcp| tcp.set.places_max())
    }

    /// The state of a connection.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tcp_state(&mut self, id: ConnectionId) -> Result<TcpState, StaleHandle> {
        self.tcp()?.state(id)
    }

    /// Both ends of a connection, ours first.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn tcp_ends(&mut self, id: ConnectionId) -> Result<(SocketAddr, SocketAddr), StaleHandle> {
        self.tcp()?.ends(id)
    }
}

mod admit;
mod admitted_ends;
mod arrival;
mod burst_heads;
mod direct;
pub(crate) mod gro;
mod path_mtu;
pub(crate) mod predict;
mod refusal;
