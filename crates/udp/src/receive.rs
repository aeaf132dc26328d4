//! What applications read: copied out, handed out whole, or looked at.
//!
//! Called by `stack` for its applications. Nothing is stored besides the queued packet: sender,
//! destination and length are read from its own headers. Invariants: an error is reported once and
//! before any datagram; a datagram counts as received when it is read, as in Linux; its charge is
//! released with its memory.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;

use floodwall_base::{Counter, Counters, IfIndex, Instant};
use floodwall_packet::{PacketBuf, PacketList};
use thiserror::Error;

use crate::header::HEADER_LEN;
use crate::icmp_error::IcmpError;
use crate::id::{SocketClosed, SocketId};
use crate::intake::Intake;
use crate::sockets::{SocketBody, Udp};

/// Bytes of the longer fixed network header, IPv6's.
const FRONT_LEN: usize = 40;

/// Why there is nothing to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecvError {
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] SocketClosed),
    /// An error about an earlier datagram of ours. Reported once.
    #[error(transparent)]
    Icmp(#[from] IcmpError),
    /// Nothing waits.
    #[error("no datagram waits")]
    WouldBlock,
}

/// One datagram that was copied out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes copied.
    pub len: usize,
    /// The sender. A link-local one is to be understood on `iface`.
    pub from: SocketAddr,
    /// The address and port that it was sent to.
    pub to: SocketAddr,
    /// Where it arrived.
    pub iface: IfIndex,
    /// The datagram had more bytes than the buffer; they are lost.
    pub truncated: bool,
    /// When it arrived: where its device provided it, or the socket requested it (`timestamps`).
    pub timestamp: Option<Instant>,
    /// What the socket has refused until now, where it requested that (`drop_count`):
    /// `SO_RXQ_OVFL`. Wraps.
    pub dropped: u32,
}

/// One datagram, handed out without a copy. It stays charged to the socket until dropped.
#[derive(Debug)]
pub struct ReceivedPacket {
    /// The whole packet, headers included.
    pub packet: PacketBuf,
    /// The offset of the payload in it.
    pub payload: Range<usize>,
    /// The sender.
    pub from: SocketAddr,
    /// The address and port that it was sent to.
    pub to: SocketAddr,
    /// Where it arrived.
    pub iface: IfIndex,
}

/// One place of [`Udp::recv_burst`].
#[derive(Debug)]
pub struct ReceiveSlot<'a> {
    /// Where the payload goes.
    pub buffer: &'a mut [u8],
    /// What was put there.
    pub received: Option<Received>,
}

/// The header fields of a queued packet.
struct QueuedDatagram {
    from: SocketAddr,
    to: SocketAddr,
    payload: Range<usize>,
}

impl<I: Intake> Udp<I> {
    /// Copies the oldest datagram into `out`. Bytes beyond are lost, and this is reported. A
    /// datagram without payload is one of length 0.
    ///
    /// # Errors
    /// A pending ICMP error comes first, once; else nothing waits, or the socket is closed.
    #[inline]
    pub fn recv(
        &mut self,
        id: SocketId,
        out: &mut [u8],
        counters: &mut Counters,
    ) -> Result<Received, RecvError> {
        let body = self.readable(id)?;
        let mut received = next(body, out, counters).ok_or(RecvError::WouldBlock)?;
        if self.tells {
            received.dropped = self.told_drops(id);
        }
        Ok(received)
    }

    /// The drop counts that a socket's datagrams report.
    #[cold]
    fn told_drops(&self, id: SocketId) -> u32 {
        match self.body(id) {
            Ok(body) if body.settings.drop_count => self.drops.of(id.index()).total() as u32,
            _ => 0,
        }
    }

    /// Copies as many datagrams as there are slots and datagrams; returns how many.
    ///
    /// # Errors
    /// As [`Udp::recv`]; none of it where at least one datagram was copied.
    pub fn recv_burst(
        &mut self,
        id: SocketId,
        slots: &mut [ReceiveSlot<'_>],
        counters: &mut Counters,
    ) -> Result<usize, RecvError> {
        let dropped = if self.tells { self.told_drops(id) } else { 0 };
        let body = self.readable(id)?;
        let mut count = 0;
        for slot in slots.iter_mut() {
            slot.received = next(body, slot.buffer, counters);
            let Some(received) = &mut slot.received else { break };
            received.dropped = dropped;
            count += 1;
        }
        if count == 0 && !slots.is_empty() { Err(RecvError::WouldBlock) } else { Ok(count) }
    }

    /// Hands out the oldest datagram's packet. No byte is copied.
    ///
    /// # Errors
    /// As [`Udp::recv`].
    pub fn recv_packet(
        &mut self,
        id: SocketId,
        counters: &mut Counters,
    ) -> Result<ReceivedPacket, RecvError> {
        let body = self.readable(id)?;
        let (packet, datagram) = take(body).ok_or(RecvError::WouldBlock)?;
        count(&datagram, counters);
        Ok(ReceivedPacket::new(packet, datagram))
    }

    /// Takes all that waits, in order, to be read elsewhere ([`ReceivedPacket::of`],
    /// [`copy_datagram`]); and how many of them came by IPv4. Nothing is counted as received, and
    /// every packet stays charged until it is dropped, by any thread.
    #[must_use]
    pub fn take_waiting(&mut self, id: SocketId) -> (PacketList, u64) {
        let (mut all, mut v4) = (PacketList::new(), 0);
        let Ok(body) = self.body_mut(id) else { return (all, v4) };
        while let Some(packet) = body.intake.take() {
            let version = packet.first().get(packet.l3());
            v4 += u64::from(version.is_some_and(|byte| byte >> 4 == 4));
            all.push_back(packet);
        }
        (all, v4)
    }

    /// Copies the oldest datagram into `out` and leaves it where it is.
    ///
    /// # Errors
    /// As [`Udp::recv`]: a pending error is taken.
    pub fn peek(&mut self, id: SocketId, out: &mut [u8]) -> Result<Received, RecvError> {
        let body = self.readable(id)?;
        let packet = body.intake.first().ok_or(RecvError::WouldBlock)?;
        let datagram = QueuedDatagram::of(packet).ok_or(RecvError::WouldBlock)?;
        Ok(datagram.copy_out(packet, out))
    }

    /// Takes the pending ICMP error, as `SO_ERROR` does.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn take_error(&mut self, id: SocketId) -> Result<Option<IcmpError>, SocketClosed> {
        Ok(self.body_mut(id)?.error.take())
    }

    #[inline(always)]
    fn readable(&mut self, id: SocketId) -> Result<&mut SocketBody<I>, RecvError> {
        let body = self.body_mut(id)?;
        match body.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(body),
        }
    }
}

/// Copies a datagram out of its packet, which a socket has delivered: bytes beyond `out` are cut,
/// and this is reported. `None` where it is no such packet.
#[must_use]
#[inline]
pub fn copy_datagram(packet: &PacketBuf, out: &mut [u8]) -> Option<Received> {
    Some(QueuedDatagram::of(packet)?.copy_out(packet, out))
}

impl ReceivedPacket {
    /// The metadata of a delivered packet. `None`, and the packet is dropped, where it is no such
    /// packet.
    #[must_use]
    pub fn of(packet: PacketBuf) -> Option<Self> {
        let datagram = QueuedDatagram::of(&packet)?;
        Some(Self::new(packet, datagram))
    }

    fn new(packet: PacketBuf, QueuedDatagram { from, to, payload }: QueuedDatagram) -> Self {
        Self { iface: packet.iface(), packet, payload, from, to }
    }
}

/// The oldest packet and its metadata. `input` has checked all this; a packet without valid
/// metadata is dropped.
#[inline(always)]
fn take<I: Intake>(body: &mut SocketBody<I>) -> Option<(PacketBuf, QueuedDatagram)> {
    loop {
        let packet = body.intake.take()?;
        if let Some(datagram) = QueuedDatagram::of(&packet) {
            return Some((packet, datagram));
        }
        debug_assert!(false, "a queued datagram has no headers");
    }
}

#[inline(always)]
fn next<I: Intake>(
    body: &mut SocketBody<I>,
    out: &mut [u8],
    counters: &mut Counters,
) -> Option<Received> {
    let (packet, datagram) = take(body)?;
    count(&datagram, counters);
    Some(datagram.copy_out(&packet, out))
}

#[inline(always)]
fn count(datagram: &QueuedDatagram, counters: &mut Counters) {
    counters.count(match datagram.to.ip() {
        IpAddr::V4(_) => Counter::UdpInDatagrams,
        IpAddr::V6(_) => Counter::Udp6InDatagrams,
    });
}

impl QueuedDatagram {
    #[inline(always)]
    fn of(packet: &PacketBuf) -> Option<Self> {
        let (l3, l4) = (packet.l3(), packet.l4());
        match packet.first().get(l3..l4 + HEADER_LEN) {
            Some(headers) => Self::parse(headers, l4, packet.len()),
            None => Self::of_chain(packet, l3, l4),
        }
    }

    /// The same where the headers straddle chunks. Of the network header the front is enough.
    #[cold]
    fn of_chain(packet: &PacketBuf, l3: usize, l4: usize) -> Option<Self> {
        let mut scratch = [0; FRONT_LEN + HEADER_LEN];
        let front = FRONT_LEN.min(l4.checked_sub(l3)?);
        let (ip, rest) = scratch.split_at_mut_checked(front)?;
        let udp = rest.get_mut(..HEADER_LEN)?;
        let copied = packet.copy_out(l3, ip) + packet.copy_out(l4, udp);
        let headers = scratch.get(..front + HEADER_LEN).filter(|all| all.len() == copied)?;
        Self::parse(headers, l4, packet.len())
    }

    /// Reads a network header's front and, behind all of it, the UDP header.
    #[inline(always)]
    fn parse(headers: &[u8], l4: usize, packet_len: usize) -> Option<Self> {
        let (ip, [p0, p1, q0, q1, n0, n1, ..]) = headers.split_last_chunk::<HEADER_LEN>()?;
        let front = ip.first_chunk::<20>()?;
        let [version, .., a, b, c, d, e, f, g, h] = *front;
        let (src_addr, dst_addr) = if version >> 4 == 4 {
            (IpAddr::V4(Ipv4Addr::new(a, b, c, d)), IpAddr::V4(Ipv4Addr::new(e, f, g, h)))
        } else {
            let (_, addrs) = ip.first_chunk::<FRONT_LEN>()?.split_last_chunk::<32>()?;
            let (from, to) = (addrs.first_chunk::<16>()?, addrs.last_chunk::<16>()?);
            (IpAddr::V6(Ipv6Addr::from_octets(*from)), IpAddr::V6(Ipv6Addr::from_octets(*to)))
        };
        let from = SocketAddr::new(src_addr, u16::from_be_bytes([*p0, *p1]));
        let to = SocketAddr::new(dst_addr, u16::from_be_bytes([*q0, *q1]));
        let end = l4 + usize::from(u16::from_be_bytes([*n0, *n1]));
        let start = l4 + HEADER_LEN;
        (start <= end && end <= packet_len).then_some(Self { from, to, payload: start..end })
    }

    #[inline(always)]
    fn copy_out(&self, packet: &PacketBuf, out: &mut [u8]) -> Received {
        let len = self.payload.len().min(out.len());
        let start = self.payload.start;
        let room = out.get_mut(..len).unwrap_or_default();
        match packet.first().get(start..start + len) {
            Some(bytes) => room.copy_from_slice(bytes),
            None => {
                packet.copy_out(start, room);
            }
        }
        let truncated = len < self.payload.len();
        Received {
            len,
            from: self.from,
            to: self.to,
            iface: packet.iface(),
            truncated,
            timestamp: packet.timestamp(),
            dropped: 0,
        }
    }
}
