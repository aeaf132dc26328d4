//! A validated IP payload becomes a queued datagram, or is dropped here.
//!
//! Called by `stack` once the network layer has checked its header. The order makes refusal
//! cheap: lengths, then the port, then its source's share of the socket (`fair.rs`) and room in
//! the socket, and only then the checksum, which is the first to touch the payload (decision E24).
//! An unverified source is challenged, where the socket does that, after the checksum and before
//! its share is spent (`challenge.rs`). Read first: RFC 768, RFC 1122 section 4.1.3, RFC 8200
//! section 8.1, RFC 6935, RFC 9868 (bytes behind the UDP length are no error).
//!
//! # Under flood
//! Reachable by any sender. Nothing grows but the socket's queue (`intake.rs`). Worst work per
//! datagram: two table probes and one pass over its bytes; for a group, a copy for each of at most
//! `UDP_GROUP_SOCKETS_MAX` sockets. A datagram that a socket refuses costs no pass.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Counter, Counters, DropReason, IfIndex};
use floodwall_checksum::{Accumulator, InternetSum, pseudo_header_v4, pseudo_header_v6};
use floodwall_packet::{AccessCounters, ChecksumState, PacketBuf, Pool};
use floodwall_wire::UdpHeader;

use crate::challenge::{self, ChallengeOutcome};
use crate::classify::DatagramKey;
use crate::demux::{DemuxProbe, KeyKind, bits, zone_of};
use crate::drops::DropCause;
use crate::fair::{FairRequest, SenderStanding};
use crate::header::{HEADER_LEN, PROTOCOL};
use crate::id::SocketId;
use crate::intake::{Intake, IntakeOffer};
use crate::sockets::Udp;
use floodwall_base::limits::UDP_GROUP_SOCKETS_MAX;

/// The network layer's description of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramInput {
    /// The sender.
    pub src_addr: IpAddr,
    /// The final destination, of the same family: an address of ours, a group or broadcast.
    pub dst_addr: IpAddr,
    /// Where it arrived.
    pub iface: IfIndex,
    /// Where the network header starts, from the packet's first byte now.
    pub l3: usize,
    /// Where the UDP header starts, from the packet's first byte now.
    pub l4: usize,
    /// Bytes that the IP packet carries from there on.
    pub len: usize,
    /// The destination is a group or a broadcast address.
    pub group: bool,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum DatagramVerdict {
    /// It waits in a socket.
    Delivered {
        /// Which.
        socket: SocketId,
        /// Nothing waited before.
        was_empty: bool,
    },
    /// It waits in so many sockets, at least one.
    DeliveredToGroup {
        /// How many.
        sockets: u32,
    },
    /// Its sender is to prove its address first: the caller sends the answer, which begins with its
    /// UDP header, and counts `UdpChallenged`.
    Challenged {
        /// The challenged datagram.
        packet: PacketBuf,
        /// The answer: none where the pool is empty, or the hook wrote none.
        answer: Option<PacketBuf>,
    },
    /// No socket has the port: the caller may answer with an ICMP error, and counts `UdpNoPort`.
    PortUnreachable(PacketBuf),
    /// It is to be dropped, for a reason that the caller counts.
    Dropped(PacketBuf, DropReason),
}

/// The fields of a checked header.
#[derive(Clone, Copy)]
struct ArrivedHeader {
    src_port: u16,
    dst_port: u16,
    len: usize,
    has_checksum: bool,
}

impl ArrivedHeader {
    /// The header, if its lengths are possible.
    #[inline(always)]
    fn read(fixed: &[u8; HEADER_LEN], available: usize) -> Option<Self> {
        let header = UdpHeader::parse(fixed, available).ok()?;
        Some(Self {
            src_port: header.src_port(),
            dst_port: header.dst_port(),
            len: header.len(),
            has_checksum: header.checksum().is_some(),
        })
    }

    fn ends(self, input: &DatagramInput) -> (SocketAddr, SocketAddr) {
        let from = SocketAddr::new(input.src_addr, self.src_port);
        (from, SocketAddr::new(input.dst_addr, self.dst_port))
    }
}

/// What [`Udp::weigh`] needs from its caller.
#[derive(Clone, Copy)]
struct KnownSender<'a> {
    is_answered: &'a dyn Fn(&DatagramKey) -> bool,
    pool: &'a Pool,
}

/// What it found.
enum InputShare {
    Granted,
    Over,
    Broken,
    Challenged(Option<PacketBuf>),
}

impl<I: Intake> Udp<I> {
    /// Takes one datagram. `pool` provides the copies where several sockets are in a group. Sets
    /// the packet's interface and stores its layers.
    ///
    /// Counts per family: `InErrors` (everything but a missing socket), `InCsumErrors`,
    /// `RcvbufErrors`, `NoPorts`.
    #[inline(always)]
    pub fn input(
        &mut self,
        input: &DatagramInput,
        packet: PacketBuf,
        pool: &Pool,
        counters: &mut Counters,
        access: &mut AccessCounters,
    ) -> DatagramVerdict {
        self.input_from(input, packet, pool, counters, access, |_| false)
    }

    /// As [`Udp::input`]; `is_answered` reports whether a local program lately answered a sender.
    /// Called only where its socket fills up.
    #[inline(always)]
    pub fn input_from(
        &mut self,
        input: &DatagramInput,
        mut packet: PacketBuf,
        pool: &Pool,
        counters: &mut Counters,
        access: &mut AccessCounters,
        is_answered: impl Fn(&DatagramKey) -> bool,
    ) -> DatagramVerdict {
        let mut tally = InputTally { counters, v4: input.dst_addr.is_ipv4() };
        let Some(header) = parse(input, &packet, access) else {
            return tally.drop(packet, DropReason::UdpMalformed);
        };
        packet.set_iface(input.iface);
        packet.set_layers(input.l3, input.l4, input.l4 + HEADER_LEN);
        if input.group {
            return self.input_group(*input, header, packet, pool, tally, &is_answered);
        }
        let Some(index) = self.demux.lookup(&probe(input, header)) else {
            return no_port(*input, header, packet, tally);
        };
        self.deliver(index, (input, header), packet, pool, tally, &is_answered)
    }

    /// A number that changes whenever a datagram's ends may lead to another socket than before.
    #[inline]
    #[must_use]
    pub const fn demux_changes(&self) -> u32 {
        self.demux.changes()
    }

    /// Takes a datagram in one chunk, of ends that lead to the socket at `index`
    /// ([`Udp::demux_changes`]), where nothing of it needs a closer look: its socket has room, its
    /// sender needs no share, and its checksum is right. Counts nothing.
    ///
    /// # Errors
    /// Any other packet, for [`Udp::input_from`].
    #[inline(always)]
    pub fn input_expected(
        &mut self,
        index: u32,
        input: &DatagramInput,
        mut packet: PacketBuf,
    ) -> Result<(), PacketBuf> {
        let fixed = packet.first_array::<HEADER_LEN>(input.l4);
        let header = fixed.and_then(|fixed| ArrivedHeader::read(fixed, input.len));
        let Some(header) = header.filter(|header| header.has_checksum) else { return Err(packet) };
        let body = self.sockets.get_mut(index as usize).and_then(|socket| socket.body.as_mut());
        let Some(body) = body.filter(|_| !self.tells && !self.memory.is_cut(index)) else {
            return Err(packet);
        };
        let (used, size) = (body.intake.charged(), u64::from(packet.true_size()));
        let allowed = self.memory.allowed(index, used);
        let limit = body.intake.limit().min(allowed);
        if used + size > allowed || self.fair.is_pressed(used, limit) {
            return Err(packet);
        }
        packet.set_iface(input.iface);
        packet.set_layers(input.l3, input.l4, input.l4 + HEADER_LEN);
        let offer = IntakeOffer { source: input.src_addr, now: self.now };
        // The charge is atomic and waits for all loads before it: the payload is read behind it.
        if !body.intake.reserve(&mut packet, &offer) {
            return Err(packet);
        }
        if !verifies(input, header, &packet, false) {
            packet.uncharge();
            return Err(packet);
        }
        body.intake.push(packet);
        self.memory.note(index, used + size);
        self.ready.mark(index);
        Ok(())
    }

    /// Takes a burst, passing each result to `each` in order.
    pub fn input_burst(
        &mut self,
        burst: impl IntoIterator<Item = (DatagramInput, PacketBuf)>,
        pool: &Pool,
        counters: &mut Counters,
        access: &mut AccessCounters,
        mut each: impl FnMut(DatagramVerdict),
    ) {
        for (input, packet) in burst {
            each(self.input(&input, packet, pool, counters, access));
        }
    }

    /// Into the one socket that was found.
    #[inline(always)]
    fn deliver(
        &mut self,
        index: u32,
        (input, header): (&DatagramInput, ArrivedHeader),
        mut packet: PacketBuf,
        pool: &Pool,
        mut tally: InputTally<'_>,
        is_answered: &dyn Fn(&DatagramKey) -> bool,
    ) -> DatagramVerdict {
        let Some(socket) = self.sockets.get_mut(index as usize) else {
            return tally.drop(packet, DropReason::UdpNoPort);
        };
        let generation = socket.generation;
        let Some(body) = &mut socket.body else {
            return tally.drop(packet, DropReason::UdpNoPort);
        };
        let used = body.intake.charged();
        let allowed = self.memory.allowed(index, used);
        let (size, limit) = (u64::from(packet.true_size()), body.intake.limit().min(allowed));
        if used + size > allowed && (used > 0 || allowed == 0) {
            self.refuse_memory(index, allowed);
            return tally.drop(packet, DropReason::UdpMemoryFull);
        }
        if self.fair.is_pressed(used, limit) {
            let known = KnownSender { is_answered, pool };
            match self.weigh(index, limit, (input, header), &packet, known) {
                InputShare::Granted => {}
                InputShare::Over => return tally.drop(packet, DropReason::UdpOverShare),
                InputShare::Broken => return tally.drop(packet, DropReason::UdpChecksum),
                InputShare::Challenged(answer) => {
                    tally.drop_count();
                    return DatagramVerdict::Challenged { packet, answer };
                }
            }
        }
        let Some(body) = self.sockets.get_mut(index as usize).and_then(|s| s.body.as_mut()) else {
            return tally.drop(packet, DropReason::UdpNoPort);
        };
        if self.memory.lift(index) {
            body.intake.hold_to(u64::MAX);
        }
        let offer = IntakeOffer { source: input.src_addr, now: self.now };
        if !body.intake.reserve(&mut packet, &offer) {
            self.refuse(index, DropCause::Full);
            return tally.drop(packet, DropReason::UdpSocketFull);
        }
        // The settings are in another cache line, which few datagrams need.
        let zero_allowed = !header.has_checksum && body.settings.zero_checksum_rx;
        if !verifies(input, header, &packet, zero_allowed) {
            packet.uncharge();
            return tally.drop(packet, DropReason::UdpChecksum);
        }
        if self.tells && body.settings.timestamps && packet.timestamp().is_none() {
            packet.set_timestamp(self.now);
        }
        let was_empty = body.intake.push(packet);
        self.memory.note(index, used + size);
        self.ready.mark(index);
        DatagramVerdict::Delivered { socket: SocketId { index, generation }, was_empty }
    }

    /// All sockets hold too much for this one to take more. Its own limit falls to what it may
    /// hold, so that triage refuses the next one.
    #[cold]
    fn refuse_memory(&mut self, index: u32, allowed: u64) {
        self.refuse(index, DropCause::Memory);
        self.memory.refused(index);
        let body = self.sockets.get_mut(index as usize).and_then(|socket| socket.body.as_mut());
        if let Some(body) = body.filter(|_| !self.memory.is_cut(index)) {
            body.intake.hold_to(allowed);
            self.memory.set_cut(index, true);
        }
    }

    /// Whether the datagram has a share in a socket that fills up, and whether its sender is to
    /// prove itself first.
    #[inline(never)]
    fn weigh(
        &mut self,
        index: u32,
        limit: u64,
        (input, header): (&DatagramInput, ArrivedHeader),
        packet: &PacketBuf,
        known: KnownSender<'_>,
    ) -> InputShare {
        let (fair, demux) = (&mut self.fair, &self.demux);
        let body = self.sockets.get_mut(index as usize).and_then(|socket| socket.body.as_mut());
        let Some(body) = body else { return InputShare::Granted };
        let standing = || {
            if demux.kind(index) == KeyKind::Connected {
                return SenderStanding::Connected;
            }
            match (known.is_answered)(&DatagramKey::of(probe(input, header))) {
                true => SenderStanding::Answered,
                false => SenderStanding::Unknown,
            }
        };
        let ask = FairRequest {
            source: input.src_addr,
            socket: index,
            true_size: packet.true_size(),
            used: body.intake.charged(),
            limit,
        };
        let mut proven = None;
        if let Some(hook) = &body.settings.challenge
            && ask.used > ask.limit / 2
            && !input.group
            && standing() == SenderStanding::Unknown
        {
            if !verifies(input, header, packet, body.settings.zero_checksum_rx) {
                return InputShare::Broken;
            }
            let start = input.l4 + HEADER_LEN;
            let (from, to) = header.ends(input);
            let payload = start..input.l4 + header.len;
            match challenge::judge(hook, (from, to, self.now), packet, payload, known.pool) {
                ChallengeOutcome::Pass => {}
                ChallengeOutcome::Proven => proven = Some(SenderStanding::Answered),
                ChallengeOutcome::Refused(answer) => {
                    self.refuse(index, DropCause::Challenged);
                    return InputShare::Challenged(answer);
                }
            }
        }
        let standing = || proven.unwrap_or_else(standing);
        if !body.settings.fair_drop || fair.grants(&ask, &mut body.demand, standing) {
            return InputShare::Granted;
        }
        if !body.intake.admits(ask.true_size) {
            // The cap decides regardless of the source, and is checked next.
            return InputShare::Granted;
        }
        self.refuse(index, DropCause::OverShare);
        InputShare::Over
    }

    /// Into every socket that listens to a group or to broadcasts: copies to all but the last.
    /// Copies, not references: what a socket keeps is charged to it in full.
    #[cold]
    fn input_group(
        &mut self,
        input: DatagramInput,
        header: ArrivedHeader,
        packet: PacketBuf,
        pool: &Pool,
        mut tally: InputTally<'_>,
        is_answered: &dyn Fn(&DatagramKey) -> bool,
    ) -> DatagramVerdict {
        let mut found = [0; UDP_GROUP_SOCKETS_MAX];
        let probe = probe(&input, header);
        let count = self.demux.lookup_group(&probe, &mut found);
        let (mut wanted, mut wanting) = ([0; UDP_GROUP_SOCKETS_MAX], 0);
        let mut refused_zero = false;
        for index in found.into_iter().take(count) {
            let body = self.sockets.get(index as usize).and_then(|s| s.body.as_ref());
            let Some(body) =
                body.filter(|b| b.wants_group(probe.local, probe.iface, input.src_addr))
            else {
                continue;
            };
            if !header.has_checksum && !tally.v4 && !body.settings.zero_checksum_rx {
                refused_zero = true;
            } else if let Some(slot) = wanted.get_mut(wanting) {
                *slot = index;
                wanting += 1;
            }
        }
        if wanting == 0 && !refused_zero {
            return DatagramVerdict::Dropped(packet, DropReason::UdpNoPort);
        }
        if wanting == 0 || !verifies(&input, header, &packet, true) {
            return tally.drop(packet, DropReason::UdpChecksum);
        }
        let wanted = wanted.into_iter().take(wanting);
        self.deliver_copies((&input, header), wanted, packet, pool, tally, is_answered)
    }

    fn deliver_copies(
        &mut self,
        (input, header): (&DatagramInput, ArrivedHeader),
        wanted: impl ExactSizeIterator<Item = u32>,
        packet: PacketBuf,
        pool: &Pool,
        mut tally: InputTally<'_>,
        is_answered: &dyn Fn(&DatagramKey) -> bool,
    ) -> DatagramVerdict {
        let (last, mut sockets) = (wanted.len() - 1, 0);
        let mut refused = DropReason::UdpSocketFull;
        let mut packet = Some(packet);
        for (n, index) in wanted.enumerate() {
            let next = match &packet {
                Some(original) if n < last => copy(input, original, pool),
                _ => packet.take(),
            };
            let body = self.sockets.get(index as usize).and_then(|s| s.body.as_ref());
            let (Some(next), true) = (next, body.is_some()) else {
                tally.full();
                continue;
            };
            let known = KnownSender { is_answered, pool };
            match self.take_copy(index, (input, header), next, known) {
                Ok(()) => sockets += 1,
                Err((next, reason)) => {
                    tally.refused(reason);
                    refused = reason;
                    packet = packet.or(Some(next));
                }
            }
        }
        match packet {
            Some(packet) if sockets == 0 => DatagramVerdict::Dropped(packet, refused),
            _ => DatagramVerdict::DeliveredToGroup { sockets },
        }
    }

    /// Into one socket of many.
    fn take_copy(
        &mut self,
        index: u32,
        (input, header): (&DatagramInput, ArrivedHeader),
        mut packet: PacketBuf,
        known: KnownSender<'_>,
    ) -> Result<(), (PacketBuf, DropReason)> {
        let body = self.sockets.get(index as usize).and_then(|s| s.body.as_ref());
        let Some(body) = body else { return Err((packet, DropReason::UdpSocketFull)) };
        let used = body.intake.charged();
        let allowed = self.memory.allowed(index, used);
        let (size, limit) = (u64::from(packet.true_size()), body.intake.limit().min(allowed));
        if used + size > allowed && (used > 0 || allowed == 0) {
            self.refuse_memory(index, allowed);
            return Err((packet, DropReason::UdpMemoryFull));
        }
        let granted = !self.fair.is_pressed(used, limit)
            || matches!(
                self.weigh(index, limit, (input, header), &packet, known),
                InputShare::Granted
            );
        if !granted {
            return Err((packet, DropReason::UdpOverShare));
        }
        let body = self.sockets.get_mut(index as usize).and_then(|s| s.body.as_mut());
        let Some(body) = body else { return Err((packet, DropReason::UdpSocketFull)) };
        if self.memory.lift(index) {
            body.intake.hold_to(u64::MAX);
        }
        let offer = IntakeOffer { source: input.src_addr, now: self.now };
        if !body.intake.reserve(&mut packet, &offer) {
            self.refuse(index, DropCause::Full);
            return Err((packet, DropReason::UdpSocketFull));
        }
        body.intake.push(packet);
        self.memory.note(index, used + size);
        self.ready.mark(index);
        Ok(())
    }
}

/// The counters of one datagram.
struct InputTally<'a> {
    counters: &'a mut Counters,
    v4: bool,
}

impl InputTally<'_> {
    fn count(&mut self, v4: Counter, v6: Counter) {
        self.counters.count(if self.v4 { v4 } else { v6 });
    }

    /// One socket was full.
    fn full(&mut self) {
        self.count(Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors);
        self.count(Counter::UdpInErrors, Counter::Udp6InErrors);
    }

    /// One socket refused it, for this reason.
    fn refused(&mut self, reason: DropReason) {
        if reason != DropReason::UdpMemoryFull {
            return self.full();
        }
        self.count(Counter::UdpMemErrors, Counter::Udp6MemErrors);
        self.count(Counter::UdpInErrors, Counter::Udp6InErrors);
    }

    /// One was answered instead of taken.
    fn drop_count(&mut self) {
        self.count(Counter::UdpInErrors, Counter::Udp6InErrors);
    }

    #[cold]
    fn drop(&mut self, packet: PacketBuf, reason: DropReason) -> DatagramVerdict {
        match reason {
            DropReason::UdpSocketFull | DropReason::UdpOverShare | DropReason::UdpMemoryFull => {
                self.refused(reason);
            }
            DropReason::UdpNoPort => self.count(Counter::UdpNoPorts, Counter::Udp6NoPorts),
            reason => {
                if reason == DropReason::UdpChecksum {
                    self.count(Counter::UdpInCsumErrors, Counter::Udp6InCsumErrors);
                }
                self.count(Counter::UdpInErrors, Counter::Udp6InErrors);
            }
        }
        DatagramVerdict::Dropped(packet, reason)
    }
}

/// The look-up key of a datagram.
#[inline(always)]
fn probe(input: &DatagramInput, header: ArrivedHeader) -> DemuxProbe {
    DemuxProbe {
        local: bits(input.dst_addr),
        remote: bits(input.src_addr),
        iface: zone_of(input.iface),
        local_port: header.dst_port,
        remote_port: header.src_port,
    }
}

/// The header, if its lengths are possible.
#[inline(always)]
fn parse(
    input: &DatagramInput,
    packet: &PacketBuf,
    access: &mut AccessCounters,
) -> Option<ArrivedHeader> {
    let available = input.len.min(packet.len().saturating_sub(input.l4));
    let scratch;
    let fixed: &[u8; HEADER_LEN] = match packet.first_array(input.l4) {
        Some(fixed) => {
            access.borrow();
            fixed
        }
        None => {
            scratch = packet.array_in_pieces(input.l4, access)?;
            &scratch
        }
    };
    ArrivedHeader::read(fixed, available)
}

/// No socket has the port. A datagram that is not even intact gets no answer (RFC 1122 section
/// 4.1.3.4).
#[cold]
fn no_port(
    input: DatagramInput,
    header: ArrivedHeader,
    packet: PacketBuf,
    mut tally: InputTally<'_>,
) -> DatagramVerdict {
    if !verifies(&input, header, &packet, false) {
        return tally.drop(packet, DropReason::UdpChecksum);
    }
    tally.count(Counter::UdpNoPorts, Counter::Udp6NoPorts);
    DatagramVerdict::PortUnreachable(packet)
}

/// Whether the checksum is right, or there is none and none is needed.
#[inline(always)]
fn verifies(
    input: &DatagramInput,
    header: ArrivedHeader,
    packet: &PacketBuf,
    zero_allowed: bool,
) -> bool {
    if !header.has_checksum && packet.checksum_state() != ChecksumState::Partial {
        return zero_allowed || input.dst_addr.is_ipv4();
    }
    if packet.checksum_state() != ChecksumState::Unverified {
        return true;
    }
    let pseudo = match (input.src_addr, input.dst_addr) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            pseudo_header_v4(src_addr, dst_addr, PROTOCOL, header.len as u16)
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            pseudo_header_v6(src_addr, dst_addr, PROTOCOL, header.len as u32)
        }
        _ => return false,
    };
    match packet.first().get(input.l4..input.l4 + header.len) {
        Some(bytes) => pseudo.add(floodwall_checksum::sum(bytes)).verifies(),
        None => chain_verifies(pseudo, packet, input.l4, header.len),
    }
}

#[cold]
fn chain_verifies(pseudo: InternetSum, packet: &PacketBuf, off: usize, len: usize) -> bool {
    let mut sum = Accumulator::with(pseudo);
    for bytes in packet.chunks_in(off, len) {
        sum.add(bytes);
    }
    sum.verifies()
}

/// A copy in memory of its own, cut to the datagram, for one more socket.
fn copy(input: &DatagramInput, packet: &PacketBuf, pool: &Pool) -> Option<PacketBuf> {
    let mut copy = match pool.alloc_for(packet.len()) {
        Some(mut copy) => {
            packet.copy_out(0, copy.extend(packet.len())?);
            copy
        }
        None => pool.packet_from_chunks(packet.chunks())?,
    };
    copy.set_iface(input.iface);
    copy.set_layers(input.l3, input.l4, input.l4 + HEADER_LEN);
    copy.set_checksum_state(packet.checksum_state());
    copy.set_link_group(packet.is_link_group());
    Some(copy)
}
