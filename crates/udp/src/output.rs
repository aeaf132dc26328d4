//! A payload becomes a packet with its UDP header, ready for the network layer.
//!
//! Called by `stack` for its applications, with the source address that its routes chose.
//! Invariants: the checksum is made while the bytes are copied, and a result of zero is sent as
//! all ones; the packet is charged to the socket until it has left; headroom for IP and link
//! remains. Read first: RFC 768, RFC 8085 section 3, RFC 6935.

use core::net::{IpAddr, SocketAddr};

use floodwall_base::{Counter, Counters};
use floodwall_checksum::{InternetSum, pseudo_header_v4, pseudo_header_v6};
use floodwall_packet::{PacketBuf, PacketList, Pool};
use floodwall_wire::UdpFields;
use thiserror::Error;

use crate::demux::{KeyKind, V4, V6, canonical};
use crate::gather::fill;
use crate::header::{HEADER_LEN, PROTOCOL};
use crate::icmp_error::IcmpError;
use crate::id::{SocketClosed, SocketId};
use crate::intake::Intake;
use crate::sockets::Udp;

/// Bytes of payload that one IPv4 packet carries.
const PAYLOAD_MAX_V4: usize = 65_535 - 20 - HEADER_LEN;
/// The same for IPv6, which does not count its header.
const PAYLOAD_MAX_V6: usize = 65_535 - HEADER_LEN;

/// Why a datagram was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The destination is of a family that the socket cannot send to from its bound address, or the
    /// source is of another family.
    #[error("the address is not of the socket's family")]
    AddressFamily,
    /// The destination is a broadcast address, and the socket did not enable broadcast.
    #[error("sending to a broadcast address needs the socket's broadcast setting")]
    BroadcastRefused,
    /// The socket is closed.
    #[error(transparent)]
    Closed(#[from] SocketClosed),
    /// An earlier datagram came to nothing. Given once; this one was not sent.
    #[error(transparent)]
    Icmp(#[from] IcmpError),
    /// Destination or its port is zero.
    #[error("neither address nor port of the destination may be zero")]
    InvalidDestination,
    /// More bytes than a datagram can have.
    #[error("a datagram has at most {max} bytes of payload here")]
    MessageTooLong {
        /// The maximum of this family.
        max: usize,
    },
    /// The packet pool is empty.
    #[error("the packet pool is empty")]
    NoBuffer,
    /// A socket at every port needs a source port for each datagram; any other sends from its own.
    #[error("the source port is not the socket's, or a socket at every port was given none")]
    SourcePort,
    /// The socket has no port: bind it first.
    #[error("the socket has no port yet")]
    NotBound,
    /// As many bytes as allowed are on their way out.
    #[error("the socket's send limit is reached")]
    WouldBlock,
}

/// What does not change between the datagrams of one flow: see [`Udp::prepare`].
#[derive(Clone, Copy, Debug)]
pub struct PreparedDatagram {
    v4: bool,
    src_port: u16,
    dst_port: u16,
    /// The pseudo-header's sum without the length.
    pseudo: InternetSum,
}

impl PreparedDatagram {
    /// The port that the datagrams leave from.
    #[must_use]
    pub const fn src_port(&self) -> u16 {
        self.src_port
    }

    /// Whether one datagram carries so many bytes.
    #[inline]
    const fn check(&self, len: usize) -> Result<(), SendError> {
        let max = if self.v4 { PAYLOAD_MAX_V4 } else { PAYLOAD_MAX_V6 };
        if len > max { Err(SendError::MessageTooLong { max }) } else { Ok(()) }
    }
}

/// The network and link headers of a datagram that is made along a prepared flow.
pub trait DatagramHeader {
    /// Bytes of all of them, `HEADROOM_SMALL` less a UDP header at most.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes them all to `out`, which is so long, for a datagram of `len` bytes, its own header
    /// included.
    fn write(&self, out: &mut [u8], len: usize);
}

/// No headers: the packet begins with its UDP header.
impl DatagramHeader for () {
    #[inline]
    fn len(&self) -> usize {
        0
    }

    #[inline]
    fn write(&self, _: &mut [u8], _: usize) {}
}

impl<I: Intake> Udp<I> {
    /// Makes one datagram: the packet begins with its UDP header. `from` is the address that it
    /// will leave from, and the port, as for [`Udp::prepare`]. Routing, hop limit and the like are
    /// the caller's, by [`Udp::settings`]; whether `to` is a subnet's broadcast address too.
    ///
    /// # Errors
    /// See [`SendError`]; nothing is sent then.
    #[inline]
    pub fn output(
        &mut self,
        pool: &Pool,
        id: SocketId,
        to: SocketAddr,
        from: SocketAddr,
        payload: &[u8],
        counters: &mut Counters,
    ) -> Result<PacketBuf, SendError> {
        self.output_gather(pool, id, to, from, &[payload], counters)
    }

    /// As [`Udp::output`] for a payload in several pieces.
    ///
    /// # Errors
    /// As [`Udp::output`].
    #[inline]
    pub fn output_gather(
        &mut self,
        pool: &Pool,
        id: SocketId,
        to: SocketAddr,
        from: SocketAddr,
        payload: &[&[u8]],
        counters: &mut Counters,
    ) -> Result<PacketBuf, SendError> {
        let prepared = self.prepare(id, to, from)?;
        // One byte more must fit, or nothing was charged: a cheap refusal before any copy.
        if !self.body(id)?.send.admits(1) {
            return Err(SendError::WouldBlock);
        }
        let mut packet = self.output_prepared(pool, id, &prepared, &(), payload, counters)?;
        match self.body(id)?.send.charge(&mut packet) {
            true => Ok(packet),
            false => Err(SendError::WouldBlock),
        }
    }

    /// Checks what does not change between the datagrams of one flow. They leave from the socket's
    /// own port, which `from` gives as 0 or by its number; a socket at every port needs the number.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn prepare(
        &self,
        id: SocketId,
        to: SocketAddr,
        from: SocketAddr,
    ) -> Result<PreparedDatagram, SendError> {
        let (to, from) = (canonical(to), canonical(from));
        let src_port = self.may_send(id, to, from)?;
        let pseudo = pseudo_header(from.ip(), to.ip(), 0)?;
        Ok(PreparedDatagram { v4: to.is_ipv4(), src_port, dst_port: to.port(), pseudo })
    }

    /// As [`Udp::output_gather`] along a flow that was prepared and behind headers that are known,
    /// for a packet that departs at once: nothing is charged. The socket must still be bound as it
    /// was then.
    ///
    /// # Errors
    /// As [`Udp::output`].
    #[inline]
    pub fn output_prepared(
        &mut self,
        pool: &Pool,
        id: SocketId,
        flow: &PreparedDatagram,
        front: &impl DatagramHeader,
        payload: &[&[u8]],
        counters: &mut Counters,
    ) -> Result<PacketBuf, SendError> {
        let body = self.body_mut(id)?;
        if let Some(error) = body.error.take() {
            return Err(error.into());
        }
        let len: usize = payload.iter().map(|piece| piece.len()).sum();
        flow.check(len)?;
        let headers = front.len() + HEADER_LEN;
        let (packet, sum) = fill(pool, headers, payload, len).ok_or(SendError::NoBuffer)?;
        self.head(id, flow, front, packet, sum, counters)
    }

    /// As [`Udp::output_prepared`] for a payload that is in the packet already, with the sum `sum`:
    /// see [`gather`](crate::gather()). The headers go before it.
    ///
    /// # Errors
    /// As [`Udp::output`]; the packet is dropped then.
    #[expect(clippy::too_many_arguments, reason = "a flow, a packet, and their offsets")]
    pub fn output_in_place(
        &mut self,
        pool: &Pool,
        id: SocketId,
        flow: &PreparedDatagram,
        front: &impl DatagramHeader,
        packet: PacketBuf,
        sum: InternetSum,
        counters: &mut Counters,
    ) -> Result<PacketBuf, SendError> {
        let body = self.body_mut(id)?;
        if let Some(error) = body.error.take() {
            return Err(error.into());
        }
        flow.check(packet.len())?;
        let headers = front.len() + HEADER_LEN;
        let packet = packet.push_header(pool, headers).map_err(|_| SendError::NoBuffer)?;
        self.head(id, flow, front, packet, sum, counters)
    }

    /// Writes the headers into the room before a payload.
    #[inline]
    fn head(
        &mut self,
        id: SocketId,
        flow: &PreparedDatagram,
        front: &impl DatagramHeader,
        mut packet: PacketBuf,
        sum: InternetSum,
        counters: &mut Counters,
    ) -> Result<PacketBuf, SendError> {
        let body = self.body(id)?;
        let headers = front.len() + HEADER_LEN;
        let len = packet.len() - headers;
        let out = packet.first_mut().and_then(|bytes| bytes.get_mut(..headers));
        let (out, header) = out
            .and_then(|out| out.split_last_chunk_mut::<HEADER_LEN>())
            .ok_or(SendError::NoBuffer)?;
        front.write(out, len + HEADER_LEN);
        let len = (len + HEADER_LEN) as u16;
        let fields = UdpFields { src_port: flow.src_port, dst_port: flow.dst_port, len };
        if body.settings.zero_checksum_tx {
            fields.emit_without_checksum(header);
        } else {
            fields.emit(flow.pseudo.add(InternetSum::of_u16(len)), sum, header);
        }
        packet.set_layers(0, front.len(), headers);
        counters.count(match flow.v4 {
            true => Counter::UdpOutDatagrams,
            false => Counter::Udp6OutDatagrams,
        });
        Ok(packet)
    }

    /// Makes many datagrams, appending them to `out`, until one fails; returns how many were
    /// made, and why the next one was not.
    pub fn output_burst<'a>(
        &mut self,
        pool: &Pool,
        id: SocketId,
        datagrams: impl IntoIterator<Item = (SocketAddr, SocketAddr, &'a [u8])>,
        out: &mut PacketList,
        counters: &mut Counters,
    ) -> (usize, Option<SendError>) {
        let mut count = 0;
        for (to, from, payload) in datagrams {
            match self.output(pool, id, to, from, payload, counters) {
                Ok(packet) => out.push_back(packet),
                Err(error) => return (count, Some(error)),
            }
            count += 1;
        }
        (count, None)
    }

    /// The port to send from, if the socket may send from and to these ends.
    #[inline]
    fn may_send(&self, id: SocketId, to: SocketAddr, from: SocketAddr) -> Result<u16, SendError> {
        let settings = &self.body(id)?.settings;
        let key = self.demux.key(id.index);
        if key.kind == KeyKind::Unbound {
            return Err(SendError::NotBound);
        }
        if to.port() == 0 || to.ip().is_unspecified() {
            return Err(SendError::InvalidDestination);
        }
        let family = if to.is_ipv4() { V4 } else { V6 };
        if key.families & family == 0 || from.is_ipv4() != to.is_ipv4() {
            return Err(SendError::AddressFamily);
        }
        let is_broadcast = matches!(to.ip(), IpAddr::V4(addr) if addr.is_broadcast());
        if is_broadcast && !settings.broadcast {
            return Err(SendError::BroadcastRefused);
        }
        match (key.local_port, from.port()) {
            (0, 0) => Err(SendError::SourcePort),
            (0, port) => Ok(port),
            (own, port) if port == 0 || port == own => Ok(own),
            _ => Err(SendError::SourcePort),
        }
    }
}

/// The sum of the pseudo-header.
#[inline]
fn pseudo_header(src_addr: IpAddr, dst_addr: IpAddr, len: u16) -> Result<InternetSum, SendError> {
    match (src_addr, dst_addr) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            Ok(pseudo_header_v4(src_addr, dst_addr, PROTOCOL, len))
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            Ok(pseudo_header_v6(src_addr, dst_addr, PROTOCOL, u32::from(len)))
        }
        _ => Err(SendError::AddressFamily),
    }
}
