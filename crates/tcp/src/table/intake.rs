//! Intake of segments: a validated IP payload is passed to a connection or a handshake, or is
//! dropped.
//!
//! Called by `stack` once the network layer has checked its header. The order makes refusal cheap:
//! lengths, then the connection table, then the checksum, which reads the payload, then the
//! options.

use core::net::{IpAddr, Ipv6Addr};

use floodwall_base::{Counter, DropReason, Endpoint, FlowKey, IfIndex};
use floodwall_checksum::{pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_packet::{AccessCounters, ChecksumState, PacketBuf};
use floodwall_syncache::HalfOpen;
use floodwall_wire::tcp::{HEADER_LEN, HEADER_LEN_MAX, TcpFlags, TcpHeader, header_len};

use crate::connection_table::{ConnectionTable, TcpContext};
use crate::input::InputOutcome;
use crate::output::reset_packet;
use crate::pseudo_header::PROTOCOL;
use crate::segment::{ResetSegment, Segment};
use crate::table::rx_coalesce::run::CoalescedEnd;
use crate::transmit::{OutgoingSegment, Transmit};

/// The network layer's information about an arrived segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInput {
    /// The source address.
    pub src_addr: IpAddr,
    /// The final destination, of the same family: an address of ours, or a group.
    pub dst_addr: IpAddr,
    /// The interface on which it arrived.
    pub iface: IfIndex,
    /// Offset of the TCP header in the packet.
    pub l4: usize,
    /// Bytes of the IP payload from there on.
    pub len: usize,
    /// The MTU of the link on the way back to the source: what a SYN-ACK announces. 0 where it was
    /// not looked up; needed of a SYN only.
    pub mtu: u32,
    /// The destination is a multicast or broadcast address, of IP or of the link layer.
    pub group: bool,
    /// The IP header is marked congestion experienced (RFC 3168).
    pub congestion: bool,
}

/// The outcome of a segment.
#[derive(Debug)]
pub enum SegmentVerdict {
    /// A connection accepted it.
    Taken,
    /// This answer is to be sent.
    Answered(Transmit),
    /// No connection accepted it; the answer is in the `reply` of
    /// [`ConnectionTable::input_replying`].
    Replied,
    /// It was dropped, for a reason that the caller counts.
    Dropped(DropReason),
    /// It matches nothing: the caller counts the reason, and may answer with the reset, within its
    /// rate limit ([`ConnectionTable::reset`]).
    Refused(ResetSegment, DropReason),
}

impl<H: HalfOpen> ConnectionTable<H> {
    /// Processes one segment.
    pub fn input(
        &mut self,
        lend: &mut TcpContext<'_>,
        input: &SegmentInput,
        packet: PacketBuf,
        access: &mut AccessCounters,
    ) -> SegmentVerdict {
        let mut arrived = ArrivedSegment::NONE;
        match arrived.read(lend, input, &packet, access) {
            Ok(()) => {
                let ArrivedSegment { flow, segment, text } = &arrived;
                self.segment(lend, flow, (input.iface, input.mtu), segment, (packet, *text))
            }
            Err(reason) => SegmentVerdict::Dropped(reason),
        }
    }

    /// Processes a segment that was read, as [`ConnectionTable::input`] does; `link` is where it
    /// arrived and the MTU on the way back. An acknowledgment that is due at once, where nothing
    /// else is, is returned in `reply`, and no list is touched; so is the answer to a SYN.
    #[inline]
    pub fn input_replying(
        &mut self,
        lend: &mut TcpContext<'_>,
        arrived: &ArrivedSegment,
        link: (IfIndex, u32),
        packet: PacketBuf,
        reply: &mut Option<OutgoingSegment>,
    ) -> SegmentVerdict {
        let ArrivedSegment { flow, segment, text } = arrived;
        self.segment_replying(lend, flow, link, segment, (packet, *text), Some(reply))
    }

    /// Processes one segment of a burst with more to follow: expected segments of a connection are
    /// coalesced into a run (as in GRO) and processed once, at its end. `None` where it waits for
    /// later ones: [`ConnectionTable::end_train`] gives its outcome. `ended` is the outcome of the
    /// previous run, if it ends here.
    pub fn input_of_burst(
        &mut self,
        lend: &mut TcpContext<'_>,
        arrived: &ArrivedSegment,
        link: (IfIndex, u32),
        packet: PacketBuf,
        ended: &mut Option<CoalescedEnd>,
    ) -> Option<SegmentVerdict> {
        let ArrivedSegment { flow, segment, text } = arrived;
        let mut packet = packet;
        if segment.len == 0 && !self.has_train() {
            return Some(self.segment(lend, flow, link, segment, (packet, *text)));
        }
        // If it does not belong to the current run, it may begin one.
        for _ in 0..2 {
            packet = match self.join(flow, segment, (packet, *text)) {
                Ok(()) => return None,
                Err(packet) => packet,
            };
            if !self.has_train() {
                break;
            }
            *ended = self.end_train(lend);
        }
        Some(self.segment(lend, flow, link, segment, (packet, *text)))
    }

    /// Dispatches a segment to its connection. Its text begins at the given byte of the packet.
    pub(super) fn segment(
        &mut self,
        lend: &mut TcpContext<'_>,
        flow: &FlowKey,
        link: (IfIndex, u32),
        segment: &Segment,
        packet: (PacketBuf, usize),
    ) -> SegmentVerdict {
        self.segment_replying(lend, flow, link, segment, packet, None)
    }

    fn segment_replying(
        &mut self,
        lend: &mut TcpContext<'_>,
        flow: &FlowKey,
        link: (IfIndex, u32),
        segment: &Segment,
        (packet, text): (PacketBuf, usize),
        reply: Option<&mut Option<OutgoingSegment>>,
    ) -> SegmentVerdict {
        let index = match self.find_again(flow) {
            Ok(index) => index,
            Err(hash) => {
                return self.unclaimed(lend, (flow, hash), link, segment, (packet, text), reply);
            }
        };
        let is_listened = segment.has(TcpFlags::SYN)
            && self
                .at(index)
                .is_some_and(|connection| connection.opens_anew(&self.records.rare, segment))
            && self.listeners.lookup(flow, link.0).is_some();
        if is_listened {
            if let Some(connection) = self.at_mut(index) {
                connection.be_quiet();
            }
            self.settle(index, lend.now);
            let hash = self.hash(flow);
            return self.unclaimed(lend, (flow, hash), link, segment, (packet, text), reply);
        }
        self.segment_at(lend, index, segment, (packet, text), reply)
    }

    /// Processes a segment of the connection at `index`.
    #[inline]
    pub(super) fn segment_at(
        &mut self,
        lend: &mut TcpContext<'_>,
        index: u32,
        segment: &Segment,
        (packet, text): (PacketBuf, usize),
        reply: Option<&mut Option<OutgoingSegment>>,
    ) -> SegmentVerdict {
        let reply = reply.filter(|_| !self.wants_transmit());
        let Some((connection, mut cx)) = self.lent(index, lend) else {
            return SegmentVerdict::Dropped(DropReason::TcpNoConnection);
        };
        let packet = packet.middle(text, segment.len as usize);
        let outcome = connection.input(&mut cx, *segment, packet);
        match reply {
            Some(reply) if connection.only_acknowledges(cx.records) => {
                let packet = connection.acknowledgment(&mut cx);
                *reply = OutgoingSegment::from_connection(packet, connection);
                self.settle_replied(index, lend.now, reply.is_some());
            }
            _ => self.settle(index, lend.now),
        }
        match outcome {
            InputOutcome::Taken => SegmentVerdict::Taken,
            InputOutcome::Dropped(reason) | InputOutcome::Reset(None, reason) => {
                SegmentVerdict::Dropped(reason)
            }
            InputOutcome::Reset(Some(reset), reason) => SegmentVerdict::Refused(reset, reason),
        }
    }

    /// The packet of a reset that [`SegmentVerdict::Refused`] requires. `None` where the pool is
    /// empty.
    #[must_use]
    pub fn reset(&self, lend: &mut TcpContext<'_>, reset: &ResetSegment) -> Option<PacketBuf> {
        let packet = reset_packet(lend.pool, reset)?;
        lend.counters.count(Counter::TcpOutSegs);
        lend.counters.count(Counter::TcpOutRsts);
        Some(packet)
    }
}

/// A segment that was read: validated and parsed.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedSegment {
    /// Its flow, from our point of view.
    pub flow: FlowKey,
    /// Its header.
    pub segment: Segment,
    /// Where in its packet its text begins.
    pub text: usize,
}

/// The hosts of a segment between which an earlier one was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmittedHosts {
    /// The sender; an IPv4 address mapped, as in an [`Endpoint`].
    pub src_addr: Ipv6Addr,
    /// Ours.
    pub dst_addr: Ipv6Addr,
    /// The interface of link-local addresses; the default otherwise.
    pub zone: IfIndex,
}

impl AdmittedHosts {
    /// Those of a flow.
    #[must_use]
    pub const fn of(flow: &FlowKey) -> Self {
        Self { src_addr: flow.remote.addr, dst_addr: flow.local.addr, zone: flow.zone }
    }
}

impl ArrivedSegment {
    /// None yet: a segment is read into it in place.
    pub const NONE: Self = Self {
        flow: FlowKey {
            local: Endpoint { addr: Ipv6Addr::UNSPECIFIED, port: 0 },
            remote: Endpoint { addr: Ipv6Addr::UNSPECIFIED, port: 0 },
            zone: IfIndex(0),
            protocol: PROTOCOL,
        },
        segment: Segment::NONE,
        text: 0,
    };

    /// Validates and parses the segment of a packet.
    ///
    /// # Errors
    /// The reason why it is dropped; error counters have been updated.
    pub fn read(
        &mut self,
        lend: &mut TcpContext<'_>,
        input: &SegmentInput,
        packet: &PacketBuf,
        access: &mut AccessCounters,
    ) -> Result<(), DropReason> {
        lend.counters.count(Counter::TcpInSegs);
        let mut scratch = [0; HEADER_LEN_MAX];
        let Ok(header) = read_header(input, packet, &mut scratch, access) else {
            return Err(broken(lend, DropReason::TcpMalformed));
        };
        // Sent to a multicast group, or from an address that cannot be answered (row 7 of the bar).
        let no_host = input.src_addr.is_unspecified() || input.src_addr.is_multicast();
        if input.group || no_host || header.src_port() == 0 || header.dst_port() == 0 {
            return Err(DropReason::TcpMalformed);
        }
        self.flow = flow_of(input, header.src_port(), header.dst_port());
        if self.flow.local == self.flow.remote {
            return Err(DropReason::TcpMalformed);
        }
        if !verifies(input, packet) {
            lend.counters.count(Counter::TcpInCsumErrors);
            return Err(broken(lend, DropReason::TcpChecksum));
        }
        self.take(&header, (input.l4, input.len));
        self.segment.congestion = input.congestion;
        Ok(())
    }

    /// The same of a packet with a plain IP header, without a mark, between hosts between which an
    /// earlier segment was read and taken: `bytes` is the segment, in one piece, at `l4`.
    ///
    /// # Errors
    /// As [`ArrivedSegment::read`].
    #[inline]
    pub fn read_admitted(
        &mut self,
        lend: &mut TcpContext<'_>,
        hosts: &AdmittedHosts,
        (packet, bytes, l4): (&PacketBuf, &[u8], usize),
        access: &mut AccessCounters,
    ) -> Result<(), DropReason> {
        lend.counters.count(Counter::TcpInSegs);
        access.borrow();
        let Ok(header) = TcpHeader::parse(bytes, bytes.len()) else {
            return Err(broken(lend, DropReason::TcpMalformed));
        };
        let AdmittedHosts { src_addr, dst_addr, zone } = *hosts;
        let (src_port, dst_port) = (header.src_port(), header.dst_port());
        if src_port == 0 || dst_port == 0 || src_port == dst_port && src_addr == dst_addr {
            return Err(DropReason::TcpMalformed);
        }
        self.flow = FlowKey {
            local: Endpoint { addr: dst_addr, port: dst_port },
            remote: Endpoint { addr: src_addr, port: src_port },
            zone,
            protocol: PROTOCOL,
        };
        if packet.checksum_state() == ChecksumState::Unverified {
            // What an IPv4 address is mapped by adds nothing to a sum.
            let pseudo = pseudo_header_v6(src_addr, dst_addr, PROTOCOL, bytes.len() as u32);
            if !pseudo.add(sum(bytes)).verifies() {
                lend.counters.count(Counter::TcpInCsumErrors);
                return Err(broken(lend, DropReason::TcpChecksum));
            }
        }
        self.take(&header, (l4, bytes.len()));
        Ok(())
    }

    /// The fields of a valid header at `l4`, of a segment of `len` bytes.
    #[inline(always)]
    fn take(&mut self, header: &TcpHeader<'_>, (l4, len): (usize, usize)) {
        self.text = l4 + header.header_len();
        self.segment.take_fields(header, (len - header.header_len()) as u32);
        self.segment.options.add_readable(header.options());
    }
}

/// A malformed segment.
#[cold]
fn broken(lend: &mut TcpContext<'_>, reason: DropReason) -> DropReason {
    lend.counters.count(Counter::TcpInErrs);
    reason
}

/// The header, if its lengths are valid.
fn read_header<'a>(
    input: &SegmentInput,
    packet: &'a PacketBuf,
    scratch: &'a mut [u8; HEADER_LEN_MAX],
    access: &mut AccessCounters,
) -> Result<TcpHeader<'a>, DropReason> {
    // Nearly always the headers are contiguous in the first chunk.
    let whole = packet.first().get(input.l4..input.l4.saturating_add(input.len));
    if let Some(bytes) = whole {
        access.borrow();
        return TcpHeader::parse(bytes, input.len).map_err(|_| DropReason::TcpMalformed);
    }
    let available = input.len.min(packet.len().saturating_sub(input.l4));
    if available < input.len {
        return Err(DropReason::TcpMalformed);
    }
    let mut first = [0; HEADER_LEN];
    let fixed =
        packet.header_array(input.l4, &mut first, access).ok_or(DropReason::TcpMalformed)?;
    let len = header_len(fixed).filter(|len| *len <= available).ok_or(DropReason::TcpMalformed)?;
    let bytes = packet.header(input.l4, len, scratch, access).ok_or(DropReason::TcpMalformed)?;
    TcpHeader::parse(bytes, available).map_err(|_| DropReason::TcpMalformed)
}

/// The flow from our point of view. The interface is part of it for link-local endpoints only.
#[inline]
pub(crate) fn flow_of(input: &SegmentInput, src_port: u16, dst_port: u16) -> FlowKey {
    let zone = zone_of((input.src_addr, input.dst_addr), input.iface);
    FlowKey { zone, ..flow_between((input.src_addr, src_port), (input.dst_addr, dst_port)) }
}

/// The flow from a sender to us, without its interface.
#[inline]
pub(super) fn flow_between(from: (IpAddr, u16), to: (IpAddr, u16)) -> FlowKey {
    FlowKey {
        local: Endpoint::new(to.0, to.1),
        remote: Endpoint::new(from.0, from.1),
        zone: IfIndex::default(),
        protocol: PROTOCOL,
    }
}

/// The interface of a flow between such addresses, where it is significant.
#[inline]
pub(super) fn zone_of(ends: (IpAddr, IpAddr), iface: IfIndex) -> IfIndex {
    let link_local = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    };
    if link_local(ends.0) || link_local(ends.1) { iface } else { IfIndex::default() }
}

/// Whether the checksum is valid; computed only if it was not verified before.
fn verifies(input: &SegmentInput, packet: &PacketBuf) -> bool {
    if packet.checksum_state() != ChecksumState::Unverified {
        return true;
    }
    let pseudo = match (input.src_addr, input.dst_addr) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let Ok(len) = u16::try_from(input.len) else { return false };
            pseudo_header_v4(from, to, PROTOCOL, len)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            pseudo_header_v6(from, to, PROTOCOL, input.len as u32)
        }
        _ => return false,
    };
    pseudo.add(packet.sum(input.l4, input.len)).verifies()
}
