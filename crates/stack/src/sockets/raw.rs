//! Raw sockets as an application on the same core sees them, and the copies of packets they
//! receive.
//!
//! `ip/raw.rs` keeps the sockets; here are their output path and their input path. The embedding
//! program decides whether raw sockets are allowed: `StackConfig` allows none by default. Called by
//! applications through [`Sockets`], and by `deliver.rs`. Reading: RFC 3542.

use core::net::IpAddr;

use floodwall_base::IfIndex;
use floodwall_ip::raw::{RawClosed, RawInput, RawPacketError};
use floodwall_ip::{ArrivedUpper, RawId, RawOpenError, RawReceived, RawRecvError, RawSettings};
use floodwall_packet::PacketBuf;
use thiserror::Error;

use crate::ip::addr_pair::AddrPair;
use crate::ip::ip_family::IpFamily;
use crate::ip::outgoing_packet::{BEST_EFFORT, OutgoingPacket};
use crate::ip::rx_meta::RxMeta;
use crate::round_context::RoundContext;
use crate::sockets::Sockets;
use crate::sockets::ping::GROUP_HOP_LIMIT;
use crate::stack::Stack;

/// Why a packet was not sent.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawSendError {
    /// The socket refused it.
    #[error(transparent)]
    Socket(#[from] RawPacketError),
    /// No route leads there.
    #[error("no route leads to {0}")]
    NoRoute(IpAddr),
    /// No address of ours may be used towards it.
    #[error("no source address for {0}")]
    NoSource(IpAddr),
    /// The address that it is bound to is none of ours.
    #[error("{0} is no address of this host")]
    NotOurs(IpAddr),
}

impl Sockets<'_> {
    /// Opens a raw socket: it receives a copy of every packet of one protocol, beside the regular
    /// receiver, and sends packets of it from our own addresses.
    ///
    /// # Errors
    /// See [`RawOpenError`]: not permitted unless the stack's configuration allows it.
    pub fn raw_open(&mut self, settings: RawSettings) -> Result<RawId, RawOpenError> {
        self.stack.sockets.path_cache.forget();
        self.stack.sockets.raw.open(settings)
    }

    /// Closes a raw socket; queued packets are dropped. Closing it twice does nothing.
    pub fn raw_close(&mut self, id: RawId) {
        self.stack.sockets.raw.close(id);
    }

    /// Sends one packet: `payload` goes behind the IP header, which is ours. A link-local address
    /// or a group needs `zone`, or the first interface is taken.
    ///
    /// # Errors
    /// See [`RawSendError`]; nothing is sent then.
    pub fn raw_send(
        &mut self,
        id: RawId,
        to: IpAddr,
        zone: Option<IfIndex>,
        payload: &[u8],
    ) -> Result<(), RawSendError> {
        match to.to_canonical() {
            IpAddr::V4(to) => self.raw_to(id, to, zone, payload),
            IpAddr::V6(to) => self.raw_to(id, to, zone, payload),
        }
    }

    /// Copies the upper layer of the oldest packet out; of ICMP that is the whole message.
    ///
    /// # Errors
    /// See [`RawRecvError`]: nothing waits, an error about such a packet, or it is closed.
    pub fn raw_recv(&mut self, id: RawId, out: &mut [u8]) -> Result<RawReceived, RawRecvError> {
        self.stack.sockets.raw.recv(id, out)
    }

    fn raw_to<A: IpFamily>(
        &mut self,
        id: RawId,
        dst_addr: A,
        zone: Option<IfIndex>,
        payload: &[u8],
    ) -> Result<(), RawSendError> {
        let (stack, cx) = (&mut *self.stack, &mut self.cx);
        let closed = |error: RawClosed| RawSendError::Socket(error.into());
        let settings = stack.sockets.raw.settings(id).map_err(closed)?;
        let (to, zone) = (dst_addr.to_ip(), zone.or(settings.iface));
        let Ok(path) = stack.path(cx, dst_addr, zone) else {
            stack.stats.counters.count(A::OUT_NO_ROUTES);
            return Err(RawSendError::NoRoute(to));
        };
        let bound = settings.local.and_then(A::from_ip).filter(|addr| !addr.is_group());
        if let Some(addr) = bound.filter(|addr| !stack.has(addr.to_ip())) {
            return Err(RawSendError::NotOurs(addr.to_ip()));
        }
        let src_addr = bound.or_else(|| stack.source_on(cx, path, dst_addr));
        let src_addr = src_addr.ok_or(RawSendError::NoSource(to))?;
        let (ends, access) = ((src_addr.to_ip(), to), &mut stack.stats.access);
        let packet = stack.sockets.raw.packet(cx.pool, id, ends, payload, access)?;
        let many = dst_addr.is_group() || stack.is_broadcast(to);
        let usual = if many { GROUP_HOP_LIMIT } else { stack.hop_limit_on(path) };
        let hop_limit = settings.hop_limit.unwrap_or(usual);
        let ends = AddrPair { src_addr, dst_addr };
        let outgoing = OutgoingPacket {
            packet,
            ends,
            protocol: settings.protocol,
            hop_limit,
            class: BEST_EFFORT,
            zone,
        };
        stack.sockets.raw_sent.note(to, settings.protocol, cx.now);
        stack.output_on(cx, outgoing, path, None);
        Ok(())
    }
}

impl Stack {
    /// Shows a packet to the raw sockets of its protocol; whether there are any. One load where
    /// there are none.
    #[inline]
    pub(crate) fn overhear<A: IpFamily>(
        &mut self,
        cx: &RoundContext<'_>,
        packet: &PacketBuf,
        ascent: &RxMeta<A>,
        upper: ArrivedUpper,
    ) -> bool {
        self.sockets.raw.hears(A::FAMILY, upper.protocol)
            && self.show_raw(cx, packet, ascent, upper)
    }

    #[cold]
    fn show_raw<A: IpFamily>(
        &mut self,
        cx: &RoundContext<'_>,
        packet: &PacketBuf,
        ascent: &RxMeta<A>,
        upper: ArrivedUpper,
    ) -> bool {
        let (l3, l4) = (ascent.l3, ascent.l3 + upper.offset);
        let (src_addr, dst_addr) =
            (ascent.heading.src_addr.to_ip(), ascent.heading.dst_addr.to_ip());
        let (protocol, iface) = (upper.protocol, ascent.iface);
        let input = RawInput { src_addr, dst_addr, iface, protocol, l3, l4 };
        self.sockets.raw.input(&input, packet, cx.pool, &mut self.stats.access)
    }
}
