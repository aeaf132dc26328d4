//! Raw sockets: every packet of one upper protocol, and packets of any.
//!
//! Called by `stack` with each packet that has reached its upper layer, and for applications. What
//! a raw socket receives is a view of the packet's own memory, no copy; the protocol's own handling
//! continues as usual. Whether a program may have one is the embedding program's decision: a table
//! for no sockets refuses all. Both families receive the upper layer's bytes, and of the IP header
//! its source, destination and hop limit. Invariants: a socket that does not read costs no more
//! than its own limit; a protocol without a socket costs one load. Reading: RFC 3542 sections 3.1
//! and 3.2 (checksums, the filter). Not here: sending with a header of one's own, which could forge
//! sources.
//!
//! # Under flood
//! Reachable by any sender, once a program has opened a socket. Bound: [`RAW_SOCKETS_MAX`] sockets,
//! and for each the bounds of `inbox.rs`. Worst work per packet: a look at each raw socket, a view
//! for each that accepts it. A full socket refuses the new packet before the view is made, and
//! counts; other sockets and protocols lose nothing.

use core::net::IpAddr;

use floodwall_base::limits::{ICMP_SOCKETS_DIVISOR, RAW_RECEIVE_BYTES, RAW_SOCKETS_MAX};
use floodwall_base::{Family, IfIndex};
use floodwall_checksum::{InternetSum, pseudo_header_v6};
use floodwall_packet::{AccessCounters, Class, PacketBuf, Pool};
use floodwall_wire::IpProtocol;
use floodwall_wire::icmp_report::IcmpReport;
use thiserror::Error;

use crate::inbox::ReceiveQueue;
use crate::ping::PingHeader;

/// One raw socket: a place and which of its owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawId {
    index: u32,
    generation: u32,
}

/// Which ICMPv6 types a raw socket accepts: RFC 3542 section 3.2. One bit a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icmpv6Filter([u64; 4]);

impl Icmpv6Filter {
    /// Accepts every type.
    pub const PASS_ALL: Self = Self([u64::MAX; 4]);
    /// Accepts none.
    pub const BLOCK_ALL: Self = Self([0; 4]);

    /// The same, but also accepts `kind`.
    #[must_use]
    pub const fn passing(self, kind: u8) -> Self {
        let [mut a, mut b, mut c, mut d] = self.0;
        let bit = 1 << (kind % 64);
        match kind / 64 {
            0 => a |= bit,
            1 => b |= bit,
            2 => c |= bit,
            _ => d |= bit,
        }
        Self([a, b, c, d])
    }

    /// Whether it accepts `kind`.
    #[must_use]
    pub fn passes(&self, kind: u8) -> bool {
        let word = self.0.get(usize::from(kind / 64)).copied().unwrap_or(0);
        word >> (kind % 64) & 1 != 0
    }
}

/// What a raw socket is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawSettings {
    /// Its family.
    pub family: Family,
    /// The protocol that it receives and sends.
    pub protocol: IpProtocol,
    /// Receives only packets to this address.
    pub local: Option<IpAddr>,
    /// Receives only packets from this address.
    pub peer: Option<IpAddr>,
    /// Receives only packets of this interface.
    pub iface: Option<IfIndex>,
    /// Where in what it sends over IPv6 a checksum with pseudo header is put (`IPV6_CHECKSUM`);
    /// even. ICMPv6 always has one, at 2.
    pub checksum_offset: Option<u16>,
    /// Which ICMPv6 types it accepts, where that is its protocol.
    pub filter: Icmpv6Filter,
    /// The hop limit of what it sends; `None` for the host's own, and 1 to groups.
    pub hop_limit: Option<u8>,
    /// True bytes that may wait in it.
    pub receive_bytes: u64,
}

impl RawSettings {
    /// Everything of one protocol.
    #[must_use]
    pub const fn new(family: Family, protocol: IpProtocol) -> Self {
        Self {
            family,
            protocol,
            local: None,
            peer: None,
            iface: None,
            checksum_offset: None,
            filter: Icmpv6Filter::PASS_ALL,
            hop_limit: None,
            receive_bytes: RAW_RECEIVE_BYTES as u64,
        }
    }
}

/// Why a raw socket was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RawOpenError {
    /// The embedding program allows none.
    #[error("raw sockets are not allowed here: set raw_sockets_max to allow some")]
    NotAllowed,
    /// As many are open as are allowed.
    #[error("all {0} raw sockets are open: raise raw_sockets_max")]
    TooMany(usize),
}

/// The id names no open socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the raw socket is closed")]
pub struct RawClosed;

/// Why a packet was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RawPacketError {
    /// The destination is of the other family.
    #[error("the address is not of the socket's family")]
    AddressFamily,
    /// There is no place for a checksum there.
    #[error("the packet ends before its checksum, or that stands at an odd place")]
    ChecksumOffset,
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] RawClosed),
    /// More bytes than a packet can have.
    #[error("a packet has at most {max} bytes behind its header")]
    MessageTooLong {
        /// The maximum of this family.
        max: usize,
    },
    /// The packet pool is empty.
    #[error("the packet pool is empty")]
    NoBuffer,
}

/// Why there is nothing to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RawRecvError {
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] RawClosed),
    /// An error about a packet of this protocol. Each such message is reported once.
    #[error("{} answered with ICMP type {}, code {}", .0.offender, .0.kind, .0.code)]
    Icmp(IcmpReport),
    /// Nothing waits.
    #[error("no packet waits")]
    WouldBlock,
}

/// One packet that was copied out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawReceived {
    /// Bytes copied of the upper layer.
    pub len: usize,
    /// The sender. A link-local one is to be understood on `iface`.
    pub from: IpAddr,
    /// The address that it was sent to.
    pub to: IpAddr,
    /// Where it arrived.
    pub iface: IfIndex,
    /// What is left of its hop limit.
    pub hop_limit: u8,
    /// It had more bytes than the buffer; they are lost.
    pub truncated: bool,
}

/// A packet that reached its upper layer.
#[derive(Clone, Copy, Debug)]
pub struct RawInput {
    /// The source address.
    pub src_addr: IpAddr,
    /// The destination address.
    pub dst_addr: IpAddr,
    /// Where it arrived.
    pub iface: IfIndex,
    /// Its upper protocol.
    pub protocol: IpProtocol,
    /// Where its IP header starts.
    pub l3: usize,
    /// Where the upper layer starts.
    pub l4: usize,
}

/// An open socket.
#[derive(Debug)]
struct RawSocket {
    settings: RawSettings,
    inbox: ReceiveQueue,
}

impl RawSocket {
    fn hears(&self, input: &RawInput, kind: u8) -> bool {
        let s = &self.settings;
        s.protocol == input.protocol
            && s.family == Family::of(input.dst_addr)
            && s.local.is_none_or(|addr| addr == input.dst_addr)
            && s.peer.is_none_or(|addr| addr == input.src_addr)
            && s.iface.is_none_or(|iface| iface == input.iface)
            && (s.protocol != IpProtocol::ICMPV6 || s.filter.passes(kind))
    }
}

/// All raw sockets of one stack.
#[derive(Debug)]
pub struct RawSockets {
    places: Vec<(u32, Option<RawSocket>)>,
    /// Of IPv4 and of IPv6: a bit for each protocol that has a socket.
    heard: [[u64; 4]; 2],
    sockets_max: usize,
    /// True bytes that all may hold together.
    bytes_max: u64,
}

impl RawSockets {
    /// No sockets yet, and memory for all that are allowed, [`RAW_SOCKETS_MAX`] at most.
    #[must_use]
    pub fn new(sockets_max: usize) -> Self {
        let sockets_max = sockets_max.min(RAW_SOCKETS_MAX);
        let places = (0..sockets_max).map(|_| (0, None)).collect();
        Self { places, heard: [[0; 4]; 2], sockets_max, bytes_max: u64::MAX }
    }

    /// Lets all sockets together hold no more than their part of the frames of `pool`.
    pub fn fit(&mut self, pool: &Pool) {
        self.bytes_max = pool.frames_true_bytes() / ICMP_SOCKETS_DIVISOR;
    }

    /// What all sockets leave of that.
    fn left(&self) -> u64 {
        let sockets = self.places.iter().filter_map(|(_, socket)| socket.as_ref());
        self.bytes_max.saturating_sub(sockets.map(|socket| socket.inbox.held()).sum())
    }

    /// Whether a socket listens to a protocol: one load and a shift, for every packet.
    #[inline]
    #[must_use]
    pub fn hears(&self, family: Family, protocol: IpProtocol) -> bool {
        let [v4, v6] = &self.heard;
        let words = if family as u8 == Family::V4 as u8 { v4 } else { v6 };
        let word = words.get(usize::from(protocol.0 >> 6)).copied().unwrap_or(0);
        word >> (protocol.0 & 63) & 1 != 0
    }

    /// Opens a socket.
    ///
    /// # Errors
    /// See [`RawOpenError`].
    pub fn open(&mut self, settings: RawSettings) -> Result<RawId, RawOpenError> {
        if self.sockets_max == 0 {
            return Err(RawOpenError::NotAllowed);
        }
        let full = RawOpenError::TooMany(self.sockets_max);
        let index = self.places.iter().position(|(_, s)| s.is_none()).ok_or(full)?;
        let (generation, place) = self.places.get_mut(index).ok_or(full)?;
        *place = Some(RawSocket { settings, inbox: ReceiveQueue::new(settings.receive_bytes) });
        let id = RawId { index: index as u32, generation: *generation };
        self.note_heard();
        Ok(id)
    }

    /// Closes a socket; what waits in it is dropped. Nothing happens where it is closed already.
    pub fn close(&mut self, id: RawId) {
        if let Some((generation, socket)) = self.places.get_mut(id.index as usize)
            && *generation == id.generation
            && socket.is_some()
        {
            *socket = None;
            *generation = generation.wrapping_add(1);
        }
        self.note_heard();
    }

    /// As it was opened.
    ///
    /// # Errors
    /// It is closed.
    pub fn settings(&mut self, id: RawId) -> Result<RawSettings, RawClosed> {
        Ok(self.socket_mut(id)?.settings)
    }

    /// Packets refused for want of room.
    ///
    /// # Errors
    /// It is closed.
    pub fn drops(&mut self, id: RawId) -> Result<u64, RawClosed> {
        Ok(self.socket_mut(id)?.inbox.drops)
    }

    /// Offers a packet to every socket that accepts its protocol; each keeps a view of it. Returns
    /// whether any socket listens to it, if only to refuse it for lack of room.
    pub fn input(
        &mut self,
        input: &RawInput,
        packet: &PacketBuf,
        pool: &Pool,
        access: &mut AccessCounters,
    ) -> bool {
        let mut scratch = [0; 1];
        let first: Option<&[u8; 1]> = packet.header_array(input.l4, &mut scratch, access);
        let kind = first.map_or(0, |bytes| bytes[0]);
        let (mut any, mut left) = (false, self.left());
        for (_, socket) in &mut self.places {
            let Some(socket) = socket.as_mut().filter(|s| s.hears(input, kind)) else { continue };
            any = true;
            if socket.inbox.refuses() {
                continue;
            }
            let len = packet.len().saturating_sub(input.l3);
            let spare = pool.has_spare(Class::Reference);
            let view = if spare { packet.share(pool, input.l3, len) } else { None };
            let Some(mut view) = view else {
                socket.inbox.drops += 1;
                continue;
            };
            let l4 = input.l4 - input.l3;
            view.set_layers(0, l4, l4);
            view.set_iface(input.iface);
            let before = socket.inbox.held();
            // Counted there.
            let _ = socket.inbox.push(view, left);
            left = left.saturating_sub(socket.inbox.held() - before);
        }
        any
    }

    /// Takes an error about a packet of `protocol` to `report.dst_addr`; false where no socket can
    /// have sent it. Sockets without peer may have.
    pub fn error(&mut self, protocol: IpProtocol, report: IcmpReport) -> bool {
        let mut any = false;
        for (_, socket) in &mut self.places {
            let Some(socket) = socket else { continue };
            let s = &socket.settings;
            if s.protocol == protocol
                && s.family == Family::of(report.dst_addr)
                && s.peer.is_none_or(|peer| peer == report.dst_addr)
            {
                socket.inbox.report(report);
                any = true;
            }
        }
        any
    }

    /// Copies the oldest packet's upper layer into `out`.
    ///
    /// # Errors
    /// See [`RawRecvError`]: errors come first, each once.
    pub fn recv(&mut self, id: RawId, out: &mut [u8]) -> Result<RawReceived, RawRecvError> {
        let inbox = &mut self.socket_mut(id)?.inbox;
        if let Some(report) = inbox.take_report() {
            return Err(RawRecvError::Icmp(report));
        }
        let packet = inbox.take().ok_or(RawRecvError::WouldBlock)?;
        let PingHeader { from, to, hop_limit } =
            PingHeader::of(&packet).ok_or(RawRecvError::WouldBlock)?;
        let len = packet.copy_out(packet.l4(), out);
        let truncated = packet.len().saturating_sub(packet.l4()) > len;
        Ok(RawReceived { len, from, to, iface: packet.iface(), hop_limit, truncated })
    }

    /// Makes a packet of `payload`, without IP header: over IPv6 with the checksum that the
    /// protocol or the settings require.
    ///
    /// # Errors
    /// See [`RawPacketError`].
    pub fn packet(
        &mut self,
        pool: &Pool,
        id: RawId,
        ends: (IpAddr, IpAddr),
        payload: &[u8],
        access: &mut AccessCounters,
    ) -> Result<PacketBuf, RawPacketError> {
        let RawSettings { family, protocol, checksum_offset, .. } = self.socket_mut(id)?.settings;
        let max = if family == Family::V4 { 65_535 - 20 } else { 65_535 };
        if payload.len() > max {
            return Err(RawPacketError::MessageTooLong { max });
        }
        let mut packet = pool.packet_from(payload).ok_or(RawPacketError::NoBuffer)?;
        let (src_addr, dst_addr) = match ends {
            (IpAddr::V4(_), IpAddr::V4(_)) if family == Family::V4 => return Ok(packet),
            (IpAddr::V6(from), IpAddr::V6(to)) if family == Family::V6 => (from, to),
            _ => return Err(RawPacketError::AddressFamily),
        };
        let icmp = (protocol == IpProtocol::ICMPV6).then_some(2);
        let Some(at) = icmp.or(checksum_offset).map(usize::from) else { return Ok(packet) };
        if !at.is_multiple_of(2) || at + 2 > payload.len() {
            return Err(RawPacketError::ChecksumOffset);
        }
        let field = packet.pulldown(pool, at, 2, access).map_err(|_| RawPacketError::NoBuffer)?;
        field.fill(0);
        let len = payload.len() as u32;
        let pseudo: InternetSum = pseudo_header_v6(src_addr, dst_addr, protocol.0, len);
        let check = pseudo.add(packet.sum(0, payload.len())).finish();
        let check = if check == 0 && protocol == IpProtocol::UDP { 0xffff } else { check };
        let field = packet.pulldown(pool, at, 2, access).map_err(|_| RawPacketError::NoBuffer)?;
        field.copy_from_slice(&check.to_be_bytes());
        Ok(packet)
    }

    fn note_heard(&mut self) {
        self.heard = [[0; 4]; 2];
        for (_, socket) in &self.places {
            let Some(RawSocket { settings, .. }) = socket else { continue };
            let [v4, v6] = &mut self.heard;
            let words = if settings.family == Family::V4 { v4 } else { v6 };
            if let Some(word) = words.get_mut(usize::from(settings.protocol.0 >> 6)) {
                *word |= 1 << (settings.protocol.0 & 63);
            }
        }
    }

    fn socket_mut(&mut self, id: RawId) -> Result<&mut RawSocket, RawClosed> {
        match self.places.get_mut(id.index as usize) {
            Some((generation, Some(socket))) if *generation == id.generation => Ok(socket),
            _ => Err(RawClosed),
        }
    }
}

#[cfg(test)]
#[path = "raw/tests.rs"]
mod tests;
