//! The path that a socket used last, with the headers that go before its next datagram.
//!
//! A resolved route (decision D14): an index and a generation instead of a reference. It serves
//! while nothing has changed that could change the answer, and for [`LIFETIME`] at most, so that
//! neighbour unreachability detection sees the traffic (RFC 4861 section 7.3.3). What is cached is
//! the whole link and IP header; length and header checksum are patched.
//!
//! # Under flood
//! One entry a socket, allocated at the start: nothing a stranger sends adds one. A socket that
//! answers many peers uses its entry up at each answer and pays for the look-ups again.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use floodwall_base::{IfIndex, Instant};
use floodwall_packet::PacketBuf;
use floodwall_udp::{Prepared, SocketId};

/// Bytes of an Ethernet and an IPv6 header.
const TEMPLATE_MAX: usize = 54;
/// How long an entry serves.
const LIFETIME: Duration = Duration::from_millis(100);

/// What is asked for: it must be the same to the bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Query {
    pub(crate) id: SocketId,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
    pub(crate) zone: Option<IfIndex>,
}

/// The answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedPath {
    query: Query,
    generation: u32,
    until: Instant,
    pub(crate) src_addr: IpAddr,
    pub(crate) flow: Prepared,
    pub(crate) iface: IfIndex,
    /// The largest IP packet in bytes.
    pub(crate) mtu: u32,
    template: [u8; TEMPLATE_MAX],
    /// Bytes of the template, and of its link header.
    len: u8,
    link_len: u8,
}

/// What a sender has found out about its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt {
    pub(crate) src_addr: IpAddr,
    pub(crate) flow: Prepared,
    pub(crate) iface: IfIndex,
    pub(crate) mtu: u32,
}

/// One entry a socket.
#[derive(Debug)]
pub(crate) struct Paths {
    entries: Box<[Option<CachedPath>]>,
    generation: u32,
}

impl Paths {
    pub(crate) fn new(sockets_max: usize) -> Self {
        Self { entries: vec![None; sockets_max].into(), generation: 0 }
    }

    /// Something changed that may change an answer: a route, an address, a neighbour, a setting.
    pub(crate) fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// The path, if nothing has changed. Compared where the query lies: a copy of it made just
    /// before would stall on its own stores.
    #[inline]
    pub(crate) fn find(
        &self,
        id: SocketId,
        to: &SocketAddr,
        from: &Option<IpAddr>,
        zone: Option<IfIndex>,
        now: Instant,
    ) -> Option<&CachedPath> {
        let entry = self.entries.get(id.index())?.as_ref()?;
        let query = &entry.query;
        let good = entry.generation == self.generation && now < entry.until;
        let same = query.id == id && query.zone == zone && same_end(&query.to, to);
        (good && same && query.from == *from).then_some(entry)
    }

    /// Remembers the headers of a frame that has just been made for `query`.
    pub(crate) fn learn(
        &mut self,
        query: Query,
        now: Instant,
        path: Learnt,
        frame: &[u8],
        link_len: usize,
    ) {
        let Learnt { src_addr, flow, iface, mtu } = path;
        let ip_len = if src_addr.is_ipv4() { 20 } else { 40 };
        let len = link_len + ip_len;
        let mut template = [0; TEMPLATE_MAX];
        let (Some(from), Some(to)) = (frame.get(..len), template.get_mut(..len)) else { return };
        to.copy_from_slice(from);
        let generation = self.generation;
        if let Some(entry) = self.entries.get_mut(query.id.index()) {
            let (len, link_len, until) = (len as u8, link_len as u8, now + LIFETIME);
            *entry = Some(CachedPath {
                query,
                generation,
                until,
                src_addr,
                flow,
                iface,
                mtu,
                template,
                len,
                link_len,
            });
        }
    }
}

/// Whether two ends are one, scope included.
#[inline]
fn same_end(a: &SocketAddr, b: &SocketAddr) -> bool {
    match (a, b) {
        (SocketAddr::V4(a), SocketAddr::V4(b)) => {
            a.ip().to_bits() == b.ip().to_bits() && a.port() == b.port()
        }
        (SocketAddr::V6(a), SocketAddr::V6(b)) => {
            a.ip().to_bits() == b.ip().to_bits()
                && a.port() == b.port()
                && a.scope_id() == b.scope_id()
        }
        _ => false,
    }
}

impl CachedPath {
    /// Bytes of an IP packet that carries `len` bytes.
    #[inline]
    pub(crate) fn packet_len(&self, len: usize) -> usize {
        len + usize::from(self.len - self.link_len)
    }

    /// Puts the headers before a datagram. False where the headroom is too small; the packet is
    /// unchanged then.
    #[inline]
    pub(crate) fn prepend(&self, packet: &mut PacketBuf) -> bool {
        let payload_len = packet.len();
        let total_len = self.packet_len(payload_len);
        let (len, link_len) = (usize::from(self.len), usize::from(self.link_len));
        let Some(template) = self.template.get(..len) else { return false };
        let Some(out) = packet.prepend(len) else { return false };
        out.copy_from_slice(template);
        let Some(header) = out.get_mut(link_len..) else { return true };
        if self.src_addr.is_ipv4() {
            if let Some(header) = header.first_chunk_mut::<20>() {
                let old = u16::from_be_bytes([header[2], header[3]]);
                let check = u16::from_be_bytes([header[10], header[11]]);
                let check = floodwall_checksum::update16(check, old, total_len as u16);
                [header[2], header[3]] = (total_len as u16).to_be_bytes();
                [header[10], header[11]] = check.to_be_bytes();
            }
        } else if let Some(header) = header.first_chunk_mut::<40>() {
            [header[4], header[5]] = (payload_len as u16).to_be_bytes();
        }
        true
    }
}
