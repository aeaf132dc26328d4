//! The path that a socket used last, with the headers that go before its next datagram.
//!
//! A resolved route (decision D14): an index and a generation instead of a reference. It is valid
//! while no change could change the result, and for [`PATH_LIFETIME`] at most, so that neighbour
//! unreachability detection sees the traffic (RFC 4861 section 7.3.3); for a peer that is not yet
//! established for less, so that `recent_peers.rs` sees it return. The whole link and IP header is
//! cached; length and header checksum are patched.
//!
//! # Under flood
//! One entry per socket and one per family, allocated at the start: no packet of a peer adds one. A
//! socket that answers many peers evicts its entry with each answer and pays for the look-ups
//! again; so does TCP that answers many destinations in turn.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use floodwall_base::{Address, Family, IfIndex, Instant};
use floodwall_checksum::InternetSum;
use floodwall_packet::PacketBuf;
use floodwall_tcp::SegmentMarks;
use floodwall_udp::{DatagramHeader, PreparedDatagram, SocketId};
use floodwall_wire::{IpProtocol, ethernet, ipv4, ipv6};

use crate::ip::addr_pair::AddrPair;
use crate::ip::outgoing_packet::OutputPath;
use crate::triage::recent_peers::SENT_AGAIN_AFTER;

/// How long an entry serves.
const PATH_LIFETIME: Duration = Duration::from_millis(100);
/// How long one does that leads to no neighbour: of a link without addresses.
const LINK_PATH_LIFETIME: Duration = Duration::from_secs(1);

/// The key of a cached path: two queries match only if they are equal bit by bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathQuery {
    pub(crate) id: SocketId,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) zone: Option<IfIndex>,
}

/// What a socket sends, as far as the headers of its path are cached for the next datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendingPath {
    pub(crate) query: PathQuery,
    pub(crate) flow: PreparedDatagram,
    /// No part of the stack needs to see the next datagram to this peer for a while.
    pub(crate) is_settled: bool,
}

/// The answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedPath {
    query: PathQuery,
    generation: u32,
    until: Instant,
    pub(crate) flow: PreparedDatagram,
    pub(crate) iface: IfIndex,
    /// The largest IP packet in bytes.
    pub(crate) mtu: u32,
    headers: HeaderTemplate,
}

/// What goes before a datagram; the lengths and what depends on them are not yet right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderTemplate {
    /// Bytes of both headers.
    len: u8,
    /// Of Ethernet, where there is one.
    link: Option<[u8; ethernet::HEADER_LEN]>,
    ip: IpHeader,
}

#[derive(Clone, Copy, Debug)]
enum IpHeader {
    /// And its sum without length and checksum.
    V4([u8; ipv4::HEADER_LEN], InternetSum),
    V6([u8; ipv6::HEADER_LEN]),
}

impl HeaderTemplate {
    /// Of a frame that has just been made.
    fn of(frame: &[u8], link_len: usize, v4: bool) -> Option<Self> {
        let (link, ip) = frame.split_at_checked(link_len)?;
        let ip = if v4 {
            let mut header = *ip.first_chunk()?;
            [header[2], header[3], header[10], header[11]] = [0; 4];
            IpHeader::V4(header, floodwall_checksum::header20(&header))
        } else {
            IpHeader::V6(*ip.first_chunk()?)
        };
        let len = (link_len + if v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }) as u8;
        Some(Self { len, link: link.first_chunk().copied(), ip })
    }

    /// Bytes of the IP header.
    #[inline]
    const fn ip_len(&self) -> usize {
        match self.ip {
            IpHeader::V4(..) => ipv4::HEADER_LEN,
            IpHeader::V6(_) => ipv6::HEADER_LEN,
        }
    }

    /// Bytes of both headers.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Writes them before `len` bytes of IP payload.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8], len: usize) {
        let out = match &self.link {
            None => out,
            Some(link) => {
                let Some((front, rest)) = out.split_first_chunk_mut() else { return };
                *front = *link;
                rest
            }
        };
        match &self.ip {
            IpHeader::V4(header, sum) => {
                let Some(out) = out.first_chunk_mut() else { return };
                *out = *header;
                let total_len = (ipv4::HEADER_LEN + len) as u16;
                [out[2], out[3]] = total_len.to_be_bytes();
                [out[10], out[11]] = sum.add(InternetSum::of_u16(total_len)).finish().to_be_bytes();
            }
            IpHeader::V6(header) => {
                let Some(out) = out.first_chunk_mut() else { return };
                *out = *header;
                [out[4], out[5]] = (len as u16).to_be_bytes();
            }
        }
    }
}

impl DatagramHeader for CachedPath {
    #[inline]
    fn len(&self) -> usize {
        self.headers.len()
    }

    #[inline]
    fn write(&self, out: &mut [u8], len: usize) {
        self.headers.write(out, len);
    }
}

/// What a sender has found out about its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearnedPath {
    pub(crate) v4: bool,
    pub(crate) flow: PreparedDatagram,
    pub(crate) iface: IfIndex,
    pub(crate) mtu: u32,
    /// As of [`SendingPath`].
    pub(crate) is_settled: bool,
}

/// Result of the last look-up of a destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedPath<A> {
    dst_addr: A,
    zone: Option<IfIndex>,
    generation: u32,
    until: Instant,
    path: OutputPath<A>,
    /// The largest packet that leaves that way by an interface; 0 where it leads to this host.
    largest: u32,
    /// The address from which a new connection would be opened, once asked for.
    src_addr: Option<A>,
    heads: Option<SegmentHeads<A>>,
}

/// The headers of the last segment of TCP that left that way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentHeads<A> {
    src_addr: A,
    marks: SegmentMarks,
    pub(crate) iface: IfIndex,
    pub(crate) headers: HeaderTemplate,
}

/// What the cache needs of an address family.
pub(crate) trait LastPath: Address {
    /// Bytes of an IP header without options.
    const HEADER_LEN: usize;

    fn last_way(paths: &PathCache) -> &Option<ResolvedPath<Self>>;
    fn last_way_mut(paths: &mut PathCache) -> &mut Option<ResolvedPath<Self>>;
}

impl LastPath for Ipv4Addr {
    const HEADER_LEN: usize = ipv4::HEADER_LEN;

    fn last_way(paths: &PathCache) -> &Option<ResolvedPath<Self>> {
        &paths.last_v4
    }
    fn last_way_mut(paths: &mut PathCache) -> &mut Option<ResolvedPath<Self>> {
        &mut paths.last_v4
    }
}

impl LastPath for Ipv6Addr {
    const HEADER_LEN: usize = ipv6::HEADER_LEN;

    fn last_way(paths: &PathCache) -> &Option<ResolvedPath<Self>> {
        &paths.last_v6
    }
    fn last_way_mut(paths: &mut PathCache) -> &mut Option<ResolvedPath<Self>> {
        &mut paths.last_v6
    }
}

/// One entry a socket, and the ways of the last segments of TCP, of each family.
#[derive(Debug)]
pub(crate) struct PathCache {
    entries: Box<[Option<CachedPath>]>,
    generation: u32,
    pub(crate) last_v4: Option<ResolvedPath<Ipv4Addr>>,
    pub(crate) last_v6: Option<ResolvedPath<Ipv6Addr>>,
}

impl PathCache {
    pub(crate) fn new(sockets_max: usize) -> Self {
        let entries = vec![None; sockets_max].into();
        Self { entries, generation: 0, last_v4: None, last_v6: None }
    }

    /// How many sockets it is for.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Changes with every [`PathCache::forget`] (invalidation).
    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Something changed that may change an answer: a route, an address, a neighbour, a setting, or
    /// what is let in (`tcp/predict.rs`).
    pub(crate) fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// The path, if nothing has changed. The query is compared in place: a copy of it made just
    /// before would stall on store forwarding.
    #[inline]
    pub(crate) fn find(
        &self,
        id: SocketId,
        to: &SocketAddr,
        from: &Option<SocketAddr>,
        zone: Option<IfIndex>,
        now: Instant,
    ) -> Option<&CachedPath> {
        let entry = self.entries.get(id.index())?.as_ref()?;
        let query = &entry.query;
        let good = entry.generation == self.generation && now < entry.until;
        let same = query.id == id && query.zone == zone && same_end(&query.to, to);
        (good && same && query.from == *from).then_some(entry)
    }

    /// Where a destination led the last time, if that was the one and nothing has changed.
    #[inline]
    pub(crate) fn last<A: LastPath>(
        &self,
        dst_addr: A,
        zone: Option<IfIndex>,
        now: Instant,
    ) -> Option<OutputPath<A>> {
        self.last_resolved(dst_addr, zone, now).map(|way| way.path)
    }

    /// The MTU of the path of [`PathCache::last`], where that leads out of an interface.
    #[inline(always)]
    pub(crate) fn last_mtu<A: LastPath>(
        &self,
        dst_addr: A,
        zone: Option<IfIndex>,
        now: Instant,
    ) -> Option<u32> {
        let largest = self.last_resolved(dst_addr, zone, now)?.largest;
        (largest != 0).then_some(largest)
    }

    #[inline(always)]
    fn last_resolved<A: LastPath>(
        &self,
        dst_addr: A,
        zone: Option<IfIndex>,
        now: Instant,
    ) -> Option<&ResolvedPath<A>> {
        let way = A::last_way(self).as_ref()?;
        let good = way.generation == self.generation && now < way.until;
        (good && way.dst_addr == dst_addr && way.zone == zone).then_some(way)
    }

    /// Remembers where a destination leads: to a neighbour, unless the link has none.
    pub(crate) fn note_last<A: LastPath>(
        &mut self,
        (dst_addr, zone): (A, Option<IfIndex>),
        path: OutputPath<A>,
        to_neighbor: bool,
        now: Instant,
    ) {
        let lifetime = if to_neighbor { PATH_LIFETIME } else { LINK_PATH_LIFETIME };
        let (generation, until) = (self.generation, now + lifetime);
        let largest = if let OutputPath::Via { mtu, .. } = path { mtu } else { 0 };
        *A::last_way_mut(self) = Some(ResolvedPath {
            dst_addr,
            zone,
            generation,
            until,
            path,
            largest,
            src_addr: None,
            heads: None,
        });
    }

    /// The source address towards the destination of which [`PathCache::last`] has just given the
    /// path, if it was asked for since that was looked up.
    #[inline]
    pub(crate) fn last_source<A: LastPath>(&self, dst_addr: A, zone: Option<IfIndex>) -> Option<A> {
        let way = A::last_way(self).as_ref()?;
        let is_way = way.generation == self.generation && way.dst_addr == dst_addr;
        (is_way && way.zone == zone).then_some(way.src_addr).flatten()
    }

    /// The source address towards a destination, and the interface by which that is left, where
    /// [`PathCache::last`] and [`PathCache::last_source`] give both.
    #[inline]
    pub(crate) fn last_ends<A: LastPath>(
        &self,
        dst_addr: A,
        zone: Option<IfIndex>,
        now: Instant,
    ) -> Option<(A, IfIndex)> {
        let way = self.last_resolved(dst_addr, zone, now)?;
        match way.path {
            OutputPath::Via { iface, .. } => Some((way.src_addr?, iface)),
            OutputPath::Local => None,
        }
    }

    /// Remembers the source address towards that destination.
    pub(crate) fn note_source<A: LastPath>(
        &mut self,
        (dst_addr, zone): (A, Option<IfIndex>),
        src_addr: A,
    ) {
        if let Some(way) = A::last_way_mut(self)
            && (way.dst_addr, way.zone) == (dst_addr, zone)
        {
            way.src_addr = Some(src_addr);
        }
    }

    /// The headers of a segment between these ends, if the last one that left had the same. Call
    /// it where [`PathCache::last`] has just given the path to the destination, or
    /// [`PathCache::note_last`] has noted it: that is not asked again.
    #[inline]
    pub(crate) fn heads<A: LastPath>(
        &self,
        ends: &AddrPair<A>,
        zone: Option<IfIndex>,
        marks: &SegmentMarks,
    ) -> Option<&SegmentHeads<A>> {
        let way = A::last_way(self).as_ref()?;
        debug_assert!(way.generation == self.generation, "the path is that of the last look-up");
        debug_assert!(way.dst_addr == ends.dst_addr && way.zone == zone, "it leads there");
        let heads = way.heads.as_ref()?;
        (heads.src_addr == ends.src_addr && heads.marks == *marks).then_some(heads)
    }

    /// Remembers the headers of a segment of `len` bytes, if that is what has departed last.
    pub(crate) fn note_heads<A: LastPath>(
        &mut self,
        (ends, zone): (&AddrPair<A>, Option<IfIndex>),
        marks: SegmentMarks,
        departed: &PacketBuf,
        len: usize,
    ) {
        let Some(way) = A::last_way_mut(self) else { return };
        let link_len = departed.len().wrapping_sub(len + A::HEADER_LEN);
        let is_v4 = A::FAMILY == Family::V4;
        let protocol_at = link_len.wrapping_add(if is_v4 { 9 } else { 6 });
        let is_segment = departed.first().get(protocol_at) == Some(&IpProtocol::TCP.0);
        let is_known = link_len == 0 || link_len == ethernet::HEADER_LEN;
        let is_way = way.dst_addr == ends.dst_addr && way.zone == zone;
        if is_known && is_segment && is_way {
            let headers = HeaderTemplate::of(departed.first(), link_len, is_v4);
            let (src_addr, iface) = (ends.src_addr, departed.iface());
            way.heads = headers.map(|headers| SegmentHeads { src_addr, marks, iface, headers });
        }
    }

    /// Remembers the headers of a frame that has just been made for `query`.
    pub(crate) fn learn(
        &mut self,
        query: PathQuery,
        now: Instant,
        path: LearnedPath,
        frame: &[u8],
        link_len: usize,
    ) {
        let LearnedPath { v4, flow, iface, mtu, is_settled } = path;
        let Some(headers) = HeaderTemplate::of(frame, link_len, v4) else { return };
        let until = now + if is_settled { PATH_LIFETIME } else { SENT_AGAIN_AFTER };
        let generation = self.generation;
        if let Some(entry) = self.entries.get_mut(query.id.index()) {
            *entry = Some(CachedPath { query, generation, until, flow, iface, mtu, headers });
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
    /// Whether it is one of IPv4.
    #[inline]
    pub(crate) const fn is_v4(&self) -> bool {
        matches!(self.headers.ip, IpHeader::V4(..))
    }

    /// Bytes of the IP header.
    #[inline]
    pub(crate) const fn ip_len(&self) -> usize {
        self.headers.ip_len()
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;
    use crate::ip::ip_family::IpFamily;

    fn way_is_remembered_until_something_changes<A: LastPath>(to: A, other: A) {
        let mut paths = PathCache::new(0);
        let (zone, now) = (Some(IfIndex(1)), Instant::from_nanos(1_000));
        let path = OutputPath::Via { iface: IfIndex(1), next_hop: other, mtu: 1500 };
        assert_eq!((paths.last(to, zone, now), paths.last_mtu(to, zone, now)), (None, None));
        paths.note_last((to, zone), OutputPath::Local, true, now);
        assert_eq!(paths.last_mtu(to, zone, now), None, "nothing leaves to this host itself");
        paths.note_last((to, zone), path, true, now);
        assert_eq!(paths.last(to, zone, now), Some(path));
        assert_eq!(paths.last_mtu(to, zone, now), Some(1500));
        assert_eq!(paths.last_source(to, zone), None);
        paths.note_source((other, zone), other);
        assert_eq!(paths.last_source(to, zone), None, "of another destination");
        paths.note_source((to, zone), other);
        assert_eq!(paths.last_source(to, zone), Some(other));
        assert_eq!(paths.last_ends(to, zone, now), Some((other, IfIndex(1))));
        assert_eq!([paths.last_ends(other, zone, now), paths.last_ends(to, None, now)], [None; 2]);
        assert_eq!(paths.last_source(other, zone), None);
        assert_eq!(paths.last_source(to, None), None);
        assert_eq!(paths.last(other, zone, now), None);
        assert_eq!(paths.last(to, None, now), None);
        assert_eq!(paths.last(to, zone, now + PATH_LIFETIME), None);
        // Of a link without neighbours longer.
        paths.note_last((to, zone), path, false, now);
        assert_eq!(paths.last(to, zone, now + PATH_LIFETIME), Some(path));
        assert_eq!(paths.last(to, zone, now + LINK_PATH_LIFETIME), None);
        paths.forget();
        assert_eq!((paths.last(to, zone, now), paths.last_mtu(to, zone, now)), (None, None));
        assert_eq!(paths.last_source(to, zone), None, "something has changed");
        assert_eq!(paths.last_ends(to, zone, now), None);
        paths.note_last((to, zone), path, true, now);
        assert_eq!(paths.last_source(to, zone), None, "of a path that was looked up again");
    }

    #[test]
    fn the_way_of_the_last_segment_serves_until_something_changes() {
        let v4 = [1, 2].map(|n| Ipv4Addr::new(192, 0, 2, n));
        way_is_remembered_until_something_changes(v4[0], v4[1]);
        let v6 = [1, 2].map(|n| Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        way_is_remembered_until_something_changes(v6[0], v6[1]);
    }

    fn heads_serve_the_next_segment_like_it<A: IpFamily>(ends: AddrPair<A>) {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (mut paths, now) = (PathCache::new(0), Instant::from_nanos(1_000));
        let marks = SegmentMarks::default();
        let path = OutputPath::Via { iface: IfIndex(1), next_hop: ends.dst_addr, mtu: 1500 };
        for link_len in [0, ethernet::HEADER_LEN] {
            let departed = |len: usize, protocol: IpProtocol| {
                let segment = pool.packet_from(&vec![7; len]).unwrap();
                let packet = A::header(&pool, segment, ends, protocol, 64, 0).unwrap();
                let mut packet = packet.push_header(&pool, link_len).unwrap();
                packet.front_mut(link_len).unwrap().fill(9);
                packet.set_iface(IfIndex(1));
                packet
            };
            paths.note_last((ends.dst_addr, None), path, true, now);
            // What a neighbour protocol sends in its place, and another length.
            paths.note_heads((&ends, None), marks, &departed(32, IpProtocol::ICMPV6), 32);
            paths.note_heads((&ends, None), marks, &departed(32, IpProtocol::TCP), 31);
            assert!(paths.heads(&ends, None, &marks).is_none());
            paths.note_heads((&ends, None), marks, &departed(32, IpProtocol::TCP), 32);
            let heads = paths.heads(&ends, None, &marks).unwrap();
            let wanted = departed(700, IpProtocol::TCP);
            let mut made = vec![0; heads.headers.len()];
            heads.headers.write(&mut made, 700);
            assert_eq!((&made[..], heads.iface), (&wanted.first()[..made.len()], IfIndex(1)));
            let other = SegmentMarks { ecn_capable: true, ..marks };
            let back = AddrPair { src_addr: ends.dst_addr, dst_addr: ends.src_addr };
            let same_peer = AddrPair { src_addr: ends.dst_addr, ..ends };
            assert!(paths.heads(&ends, None, &other).is_none());
            assert!(paths.heads(&same_peer, None, &marks).is_none());
            // Of another way, or after a change, the path is looked up again.
            assert_eq!(paths.last(back.dst_addr, None, now), None);
            assert_eq!(paths.last(ends.dst_addr, Some(IfIndex(1)), now), None);
            assert_eq!(paths.last(ends.dst_addr, None, now + PATH_LIFETIME), None);
            paths.forget();
            assert_eq!(paths.last(ends.dst_addr, None, now), None);
            paths.note_last((ends.dst_addr, None), path, true, now);
            assert!(paths.heads(&ends, None, &marks).is_none(), "it may have others now");
        }
    }

    #[test]
    fn the_headers_of_the_last_segment_serve_one_like_it_until_something_changes() {
        let [src_addr, dst_addr] = [1, 2].map(|n| Ipv4Addr::new(192, 0, 2, n));
        heads_serve_the_next_segment_like_it(AddrPair { src_addr, dst_addr });
        let [src_addr, dst_addr] = [1, 2].map(|n| Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        heads_serve_the_next_segment_like_it(AddrPair { src_addr, dst_addr });
    }
}
