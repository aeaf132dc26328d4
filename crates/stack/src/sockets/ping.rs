//! Ping sockets as an application on the same core sees them, and the replies that reach them.
//!
//! `ip/ping.rs` keeps the sockets; here requests find their way out and replies their way in.
//! Called by applications through [`Sockets`], and by `deliver.rs`. Reading: RFC 4443 section 4.

use core::net::IpAddr;

use floodwall_base::{DropReason, IfIndex};
use floodwall_ip::ping::{PingClosed, PingRequestError};
use floodwall_ip::{PingId, PingOpenError, PingRecvError, PingReply, PingSettings};
use floodwall_packet::PacketBuf;
use thiserror::Error;

use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{BEST_EFFORT, OutgoingPacket};
use crate::ip::rx_meta::RxMeta;
use crate::sockets::Sockets;
use crate::stack::Stack;

/// Hop limit of datagrams to a group, unless a socket sets another (RFC 1112 section 6.1).
pub(crate) const GROUP_HOP_LIMIT: u8 = 1;

/// Why an echo request was not sent.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PingSendError {
    /// The socket refused it.
    #[error(transparent)]
    Socket(#[from] PingRequestError),
    /// No route leads there.
    #[error("no route leads to {0}")]
    NoRoute(IpAddr),
    /// No address of ours may be used towards it.
    #[error("no source address for {0}")]
    NoSource(IpAddr),
}

impl Sockets<'_> {
    /// Opens a ping socket: it sends echo requests of one family and receives the replies to them.
    /// Needs no privilege: it can neither forge packets nor receive those of other sockets.
    ///
    /// # Errors
    /// See [`PingOpenError`].
    pub fn ping_open(&mut self, settings: PingSettings) -> Result<PingId, PingOpenError> {
        self.stack.sockets.ping.open(settings, &mut self.cx.random.secret)
    }

    /// Closes a ping socket; queued packets are dropped. Closing it twice does nothing.
    pub fn ping_close(&mut self, id: PingId) {
        self.stack.sockets.ping.close(id);
    }

    /// The identifier in the socket's messages.
    ///
    /// # Errors
    /// It is closed.
    pub fn ping_identifier(&self, id: PingId) -> Result<u16, PingClosed> {
        self.stack.sockets.ping.identifier(id)
    }

    /// Sends one echo request. A link-local address or a group needs `zone`, or the first interface
    /// is taken.
    ///
    /// # Errors
    /// See [`PingSendError`]; nothing is sent then.
    pub fn ping_send(
        &mut self,
        id: PingId,
        to: IpAddr,
        zone: Option<IfIndex>,
        sequence: u16,
        payload: &[u8],
    ) -> Result<(), PingSendError> {
        match to.to_canonical() {
            IpAddr::V4(to) => self.ping_to(id, to, zone, sequence, payload),
            IpAddr::V6(to) => self.ping_to(id, to, zone, sequence, payload),
        }
    }

    /// Copies the oldest reply's payload out.
    ///
    /// # Errors
    /// See [`PingRecvError`]: nothing waits, an error about a request of ours, or it is closed.
    pub fn ping_recv(&mut self, id: PingId, out: &mut [u8]) -> Result<PingReply, PingRecvError> {
        self.stack.sockets.ping.recv(id, out)
    }

    fn ping_to<A: IpFamily>(
        &mut self,
        id: PingId,
        dst_addr: A,
        zone: Option<IfIndex>,
        sequence: u16,
        payload: &[u8],
    ) -> Result<(), PingSendError> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let closed = |error: PingClosed| PingSendError::Socket(error.into());
        let settings = stack.sockets.ping.settings(id).map_err(closed)?;
        let to = dst_addr.to_ip();
        let Ok(path) = stack.path(cx, dst_addr, zone) else {
            stack.stats.counters.count(A::OUT_NO_ROUTES);
            return Err(PingSendError::NoRoute(to));
        };
        let src_addr = stack.source_on(cx, path, dst_addr).ok_or(PingSendError::NoSource(to))?;
        let ends = (src_addr.to_ip(), to);
        let packet = stack.sockets.ping.request(cx.pool, id, ends, sequence, payload)?;
        let many = dst_addr.is_group() || stack.is_broadcast(to);
        if many {
            stack.sockets.ping.expect_any(id);
        }
        stack.stats.counters.count(A::OUT_ICMP);
        stack.stats.counters.count(A::OUT_ECHOS);
        let usual = if many { GROUP_HOP_LIMIT } else { stack.hop_limit_on(path) };
        let hop_limit = settings.hop_limit.unwrap_or(usual);
        let ends = AddrPair { src_addr, dst_addr };
        let outgoing =
            OutgoingPacket { packet, ends, protocol: A::ICMP, hop_limit, class: BEST_EFFORT, zone };
        stack.output_on(cx, outgoing, path, None);
        Ok(())
    }
}

impl Stack {
    /// An echo reply: delivered to the socket that sent the request.
    pub(crate) fn echo_replied<A: IpFamily>(
        &mut self,
        mut packet: PacketBuf,
        ascent: RxMeta<A>,
        l4: usize,
        identifier: u16,
    ) {
        if ascent.to_group || packet.is_link_group() {
            return self.drop_packet(packet, DropReason::IcmpNoFlow);
        }
        packet.set_layers(ascent.l3, l4, l4);
        match self.sockets.ping.reply(ascent.heading.src_addr.to_ip(), identifier, packet) {
            Ok(()) => self.stats.outcomes.delivered += 1,
            Err((packet, reason)) => self.drop_packet(packet, reason),
        }
    }

    /// Whether an address means everybody on one of our links.
    pub(crate) fn is_broadcast(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.interfaces.iter().any(|i| i.is_broadcast_v4(addr)),
            IpAddr::V6(_) => false,
        }
    }
}
