//! Ping sockets: echo requests sent, replies and errors delivered to the socket that sent them.
//!
//! Called by `stack` for its applications, and with each echo reply and each error that quotes an
//! echo request. A socket is one family and one identifier, as Linux's datagram sockets of
//! `IPPROTO_ICMP` are: it needs no privilege, since it can neither forge packets nor receive those
//! of others. Invariants: an identifier belongs to one socket of a family; a reply is accepted only
//! from an address that a request was sent to, of which the last [`PING_PEERS_MAX`] are remembered.
//! Reading: RFC 792, RFC 4443 section 4. Not here: routes and IP headers (`stack`), raw sockets
//! (`raw.rs`).
//!
//! # Under flood
//! Reachable by any sender of echo replies. Bound: `sockets_max` sockets, which only applications
//! take, and what each may hold (`inbox.rs`). Worst work per packet: a binary search among the
//! identifiers in use, and a walk over eight addresses. A forger must guess the identifier, which
//! is random where the program did not choose it. When full the new packet is dropped:
//! `IcmpSocketFull`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use floodwall_base::limits::{ICMP_SOCKETS_DIVISOR, PING_PEERS_MAX, PING_RECEIVE_BYTES};
use floodwall_base::{DropReason, Family, IfIndex, SecretRandom};
use floodwall_checksum::{pseudo_header_v6, sum};
use floodwall_packet::{PacketBuf, Pool};
use floodwall_wire::icmp_report::IcmpReport;
use floodwall_wire::{Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4};
use thiserror::Error;

use crate::inbox::ReceiveQueue;

/// Bytes of an echo header.
const HEADER_LEN: usize = icmpv4::HEADER_LEN;
/// Maximum bytes after it: an IPv4 packet of 65,535.
const PAYLOAD_MAX: usize = 65_535 - 20 - HEADER_LEN;

/// One ping socket: a place and which of its owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PingId {
    index: u32,
    generation: u32,
}

/// What a ping socket is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PingSettings {
    /// Its family.
    pub family: Family,
    /// The identifier in its messages; `None` for a random one that is unused.
    pub identifier: Option<u16>,
    /// The hop limit of its requests; `None` for the host's own, and 1 to groups.
    pub hop_limit: Option<u8>,
    /// True bytes that may wait in it.
    pub receive_bytes: u64,
}

impl PingSettings {
    /// A random identifier and the default limits.
    #[must_use]
    pub const fn new(family: Family) -> Self {
        let receive_bytes = PING_RECEIVE_BYTES as u64;
        Self { family, identifier: None, hop_limit: None, receive_bytes }
    }
}

/// Why a ping socket was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PingOpenError {
    /// Another socket has the identifier.
    #[error("the identifier {0} is in use")]
    IdentifierInUse(u16),
    /// `sockets_max` are open.
    #[error("all {0} ping sockets are open: raise ping_sockets_max")]
    TooMany(usize),
}

/// The id names no open socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the ping socket is closed")]
pub struct PingClosed;

/// Why an echo request was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PingRequestError {
    /// The destination is of the other family.
    #[error("the address is not of the socket's family")]
    AddressFamily,
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] PingClosed),
    /// More bytes than a packet can have.
    #[error("an echo request has at most {PAYLOAD_MAX} bytes of payload")]
    MessageTooLong,
    /// The packet pool is empty.
    #[error("the packet pool is empty")]
    NoBuffer,
}

/// Why there is nothing to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PingRecvError {
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] PingClosed),
    /// An error about a request of ours. Each such message is reported once, before any reply.
    #[error("{} answered with ICMP type {}, code {}", .0.offender, .0.kind, .0.code)]
    Icmp(IcmpReport),
    /// Nothing waits.
    #[error("no reply waits")]
    WouldBlock,
}

/// One echo reply that was copied out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PingReply {
    /// Bytes copied of what was echoed.
    pub len: usize,
    /// The source of the reply. A link-local one is to be understood on `iface`.
    pub from: IpAddr,
    /// Which of our addresses was answered to.
    pub to: IpAddr,
    /// Where it arrived.
    pub iface: IfIndex,
    /// To which request.
    pub sequence: u16,
    /// What is left of its hop limit.
    pub hop_limit: u8,
    /// More bytes were echoed than the buffer has; they are lost.
    pub truncated: bool,
}

/// An echo request of ours that an error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PingQuote {
    /// The family that it was sent over.
    pub family: Family,
    /// Its identifier.
    pub identifier: u16,
}

/// An open socket.
#[derive(Debug)]
struct PingSocket {
    settings: PingSettings,
    identifier: u16,
    inbox: ReceiveQueue,
    asked: PingRequest,
}

/// The recent destinations of a socket.
#[derive(Debug, Default)]
struct PingRequest {
    peers: [Option<IpAddr>; PING_PEERS_MAX],
    /// A request was sent to a group or a broadcast address, or to more peers than are remembered:
    /// any source may answer.
    any: bool,
}

impl PingRequest {
    fn note(&mut self, peer: IpAddr) {
        if self.any || self.knows(peer) {
            return;
        }
        match self.peers.iter_mut().find(|p| p.is_none()) {
            Some(place) => *place = Some(peer),
            None => self.any = true,
        }
    }

    fn knows(&self, peer: IpAddr) -> bool {
        self.any || self.peers.contains(&Some(peer))
    }
}

/// All ping sockets of one stack, found by family and identifier.
#[derive(Debug)]
pub struct PingSockets {
    places: Vec<(u32, Option<PingSocket>)>,
    /// Family and identifier of each open socket with its place, in order.
    by_identifier: Vec<(u32, u32)>,
    sockets_max: usize,
    /// True bytes that all may hold together.
    bytes_max: u64,
}

const fn key(family: Family, identifier: u16) -> u32 {
    let family = match family {
        Family::V4 => 0,
        Family::V6 => 1 << 16,
    };
    family | identifier as u32
}

impl PingSockets {
    /// No sockets yet, and memory for all that are allowed.
    #[must_use]
    pub fn new(sockets_max: usize) -> Self {
        let sockets_max = sockets_max.min(usize::from(u16::MAX));
        Self {
            places: (0..sockets_max).map(|_| (0, None)).collect(),
            by_identifier: Vec::with_capacity(sockets_max),
            sockets_max,
            bytes_max: u64::MAX,
        }
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

    /// Opens a socket.
    ///
    /// # Errors
    /// See [`PingOpenError`].
    pub fn open(
        &mut self,
        settings: PingSettings,
        random: &mut SecretRandom,
    ) -> Result<PingId, PingOpenError> {
        let full = PingOpenError::TooMany(self.sockets_max);
        let index = self.places.iter().position(|(_, s)| s.is_none()).ok_or(full)?;
        let identifier = match settings.identifier {
            Some(wanted) if self.find(settings.family, wanted).is_some() => {
                return Err(PingOpenError::IdentifierInUse(wanted));
            }
            Some(wanted) => wanted,
            // Fewer sockets than identifiers: the next one that is free is at most so many away.
            None => {
                let first = random.next_u16();
                (0..=u16::MAX)
                    .map(|n| first.wrapping_add(n))
                    .find(|id| self.find(settings.family, *id).is_none())
                    .ok_or(full)?
            }
        };
        let entry = (key(settings.family, identifier), index as u32);
        let at = self.by_identifier.partition_point(|other| *other < entry);
        self.by_identifier.insert(at, entry);
        let (inbox, asked) = (ReceiveQueue::new(settings.receive_bytes), PingRequest::default());
        let place = self.places.get_mut(index).ok_or(full)?;
        place.1 = Some(PingSocket { settings, identifier, inbox, asked });
        Ok(PingId { index: index as u32, generation: place.0 })
    }

    /// Closes a socket; what waits in it is dropped. Nothing happens where it is closed already.
    pub fn close(&mut self, id: PingId) {
        if self.socket(id).is_ok()
            && let Some((generation, socket)) = self.places.get_mut(id.index as usize)
        {
            *socket = None;
            *generation = generation.wrapping_add(1);
            self.by_identifier.retain(|(_, index)| *index != id.index);
        }
    }

    /// The identifier of a socket's messages.
    ///
    /// # Errors
    /// It is closed.
    pub fn identifier(&self, id: PingId) -> Result<u16, PingClosed> {
        Ok(self.socket(id)?.identifier)
    }

    /// As it was opened.
    ///
    /// # Errors
    /// It is closed.
    pub fn settings(&self, id: PingId) -> Result<PingSettings, PingClosed> {
        Ok(self.socket(id)?.settings)
    }

    /// Replies and no reply's worth of room: how many were refused.
    ///
    /// # Errors
    /// It is closed.
    pub fn drops(&self, id: PingId) -> Result<u64, PingClosed> {
        Ok(self.socket(id)?.inbox.drops)
    }

    /// How many sockets are open.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.by_identifier.len()
    }

    /// Makes an echo request: the packet begins with its ICMP header. `src_addr` is the address
    /// that it will leave from.
    ///
    /// # Errors
    /// See [`PingRequestError`].
    pub fn request(
        &mut self,
        pool: &Pool,
        id: PingId,
        ends: (IpAddr, IpAddr),
        seq: u16,
        payload: &[u8],
    ) -> Result<PacketBuf, PingRequestError> {
        let socket = self.socket_mut(id)?;
        let (src_addr, dst_addr) = ends;
        if Family::of(dst_addr) != socket.settings.family {
            return Err(PingRequestError::AddressFamily);
        }
        if payload.len() > PAYLOAD_MAX {
            return Err(PingRequestError::MessageTooLong);
        }
        let body = sum(payload);
        let len = (HEADER_LEN + payload.len()) as u32;
        let packet = pool.packet_from(payload).ok_or(PingRequestError::NoBuffer)?;
        let mut packet =
            packet.push_header(pool, HEADER_LEN).map_err(|_| PingRequestError::NoBuffer)?;
        let header = packet.first_mut().and_then(|bytes| bytes.first_chunk_mut());
        let out = header.ok_or(PingRequestError::NoBuffer)?;
        let id = socket.identifier;
        match (src_addr, dst_addr) {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                Icmpv4Message::EchoRequest { id, seq }.emit(body, out)
            }
            (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
                let pseudo = pseudo_header_v6(src_addr, dst_addr, IpProtocol::ICMPV6.0, len);
                Icmpv6Message::EchoRequest { id, seq }.emit(pseudo, body, out);
            }
            _ => return Err(PingRequestError::AddressFamily),
        }
        socket.asked.note(dst_addr);
        if dst_addr.is_multicast() {
            socket.asked.any = true;
        }
        Ok(packet)
    }

    /// Any source may answer from now on: a request was sent to a broadcast address, which only the
    /// owner of the interfaces can recognise.
    pub fn expect_any(&mut self, id: PingId) {
        if let Ok(socket) = self.socket_mut(id) {
            socket.asked.any = true;
        }
    }

    /// Takes an echo reply from `from`, after its checksum was verified: its layers are set.
    ///
    /// # Errors
    /// Gives the packet back where no socket sent the request, or where the socket is full.
    pub fn reply(
        &mut self,
        from: IpAddr,
        identifier: u16,
        packet: PacketBuf,
    ) -> Result<(), (PacketBuf, DropReason)> {
        let left = self.left();
        match self.by_key(Family::of(from), identifier) {
            Some(socket) if socket.asked.knows(from) => {
                let taken = socket.inbox.push(packet, left);
                taken.map_err(|packet| (packet, DropReason::IcmpSocketFull))
            }
            _ => Err((packet, DropReason::IcmpNoFlow)),
        }
    }

    /// Takes an error that quotes an echo request of ours; false where no socket sent it.
    pub fn error(&mut self, quote: &PingQuote, report: IcmpReport) -> bool {
        match self.by_key(quote.family, quote.identifier) {
            Some(socket) if socket.asked.knows(report.dst_addr) => {
                socket.inbox.report(report);
                true
            }
            _ => false,
        }
    }

    /// Whether a socket uses this identifier and remembers a request to `peer`. A socket that sent
    /// to more peers than it remembers does not.
    #[must_use]
    pub fn has_asked(&self, quote: &PingQuote, peer: IpAddr) -> bool {
        let place = self.find(quote.family, quote.identifier).and_then(|at| self.places.get(at));
        let socket = place.and_then(|(_, socket)| socket.as_ref());
        socket.is_some_and(|socket| socket.asked.peers.contains(&Some(peer)))
    }

    /// Copies the oldest reply into `out`.
    ///
    /// # Errors
    /// See [`PingRecvError`]: errors come first, each once.
    pub fn recv(&mut self, id: PingId, out: &mut [u8]) -> Result<PingReply, PingRecvError> {
        let inbox = &mut self.socket_mut(id)?.inbox;
        if let Some(report) = inbox.take_report() {
            return Err(PingRecvError::Icmp(report));
        }
        let packet = inbox.take().ok_or(PingRecvError::WouldBlock)?;
        let front = PingHeader::of(&packet).ok_or(PingRecvError::WouldBlock)?;
        let at = packet.l4() + HEADER_LEN;
        let mut word = [0; 2];
        packet.copy_out(packet.l4() + 6, &mut word);
        let len = packet.copy_out(at, out);
        let truncated = packet.len().saturating_sub(at) > len;
        let PingHeader { from, to, hop_limit } = front;
        let (iface, sequence) = (packet.iface(), u16::from_be_bytes(word));
        Ok(PingReply { len, from, to, iface, sequence, hop_limit, truncated })
    }

    fn find(&self, family: Family, identifier: u16) -> Option<usize> {
        let wanted = key(family, identifier);
        let at = self.by_identifier.binary_search_by_key(&wanted, |(key, _)| *key).ok()?;
        self.by_identifier.get(at).map(|(_, index)| *index as usize)
    }

    fn by_key(&mut self, family: Family, identifier: u16) -> Option<&mut PingSocket> {
        let index = self.find(family, identifier)?;
        self.places.get_mut(index)?.1.as_mut()
    }

    fn socket(&self, id: PingId) -> Result<&PingSocket, PingClosed> {
        match self.places.get(id.index as usize) {
            Some((generation, Some(socket))) if *generation == id.generation => Ok(socket),
            _ => Err(PingClosed),
        }
    }

    fn socket_mut(&mut self, id: PingId) -> Result<&mut PingSocket, PingClosed> {
        match self.places.get_mut(id.index as usize) {
            Some((generation, Some(socket))) if *generation == id.generation => Ok(socket),
            _ => Err(PingClosed),
        }
    }
}

/// The IP header fields of a queued packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PingHeader {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) hop_limit: u8,
}

impl PingHeader {
    /// Of the header at the packet's network layer. `None` where there is none.
    pub(crate) fn of(packet: &PacketBuf) -> Option<Self> {
        let mut bytes = [0; 40];
        let len = packet.copy_out(packet.l3(), &mut bytes);
        match (bytes[0] >> 4, len) {
            (4, 20..) => {
                let addr = |at: usize| -> Option<IpAddr> {
                    Some(Ipv4Addr::from_octets(*bytes.get(at..)?.first_chunk()?).into())
                };
                Some(Self { from: addr(12)?, to: addr(16)?, hop_limit: bytes[8] })
            }
            (6, 40..) => {
                let addr = |at: usize| -> Option<IpAddr> {
                    Some(Ipv6Addr::from_octets(*bytes.get(at..)?.first_chunk()?).into())
                };
                Some(Self { from: addr(8)?, to: addr(24)?, hop_limit: bytes[7] })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "ping/tests.rs"]
mod tests;
