//! `ForwardPath`: how packets leave to one next hop, resolved once for all packets of a burst;
//! `ForwardPaths`, a burst's cache of them.
//!
//! Called by `forward.rs`. Invariant: a path is discarded at the end of its burst, so it is never
//! stale. Not here: fragmentation, and errors to senders.

use floodwall_base::{Address, IfIndex, MacAddr};
use floodwall_packet::{PacketBuf, Pool};
use floodwall_wire::{EthernetFields, ethernet};

use crate::ip::ip_family::IpFamily;

/// Bytes of both station addresses in a frame's header.
pub(super) const STATION_BYTES: usize = 12;

/// The station addresses of the outgoing link header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkPeers {
    /// The neighbour's, then ours.
    Known([u8; STATION_BYTES]),
    /// The link has no station addresses.
    Bare,
    /// The neighbour is not resolved here.
    Unknown,
    /// The link is down.
    Down,
    /// The interface does not forward.
    Closed,
}

/// How packets leave to one next hop: interface, MTU, and link header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ForwardPath<A> {
    pub(super) iface: IfIndex,
    pub(super) next_hop: Option<A>,
    pub(super) mtu: u32,
    pub(super) stations: LinkPeers,
}

impl<A: Copy + PartialEq> ForwardPath<A> {
    /// No next hop.
    pub(super) const NONE: Self =
        Self { iface: IfIndex::LOOPBACK, next_hop: None, mtu: u32::MAX, stations: LinkPeers::Down };

    /// Whether this is the way to `next_hop` on `iface`, and in use.
    #[inline]
    fn is_to(&self, iface: IfIndex, next_hop: A) -> bool {
        self.iface == iface
            && self.next_hop == Some(next_hop)
            && self.stations != LinkPeers::Unknown
    }

    pub(super) const fn next_hop(&self) -> Option<A> {
        self.next_hop
    }
}

/// Direct-mapped cache of the ways of a burst: each next hop has one place, by its lowest bits, and
/// evicts another that maps to the same.
pub(super) struct ForwardPaths<A> {
    ways: [ForwardPath<A>; CACHE_WAYS],
    /// Fallback for an index beyond the places: never used.
    beyond: ForwardPath<A>,
}

/// Places of the cache: next hops kept at a time.
const CACHE_WAYS: usize = 16;

impl<A: Address> ForwardPaths<A> {
    /// An empty cache.
    pub(super) const fn new() -> Self {
        Self { ways: [ForwardPath::NONE; CACHE_WAYS], beyond: ForwardPath::NONE }
    }

    /// The place for the way to `next_hop`, and whether it is there.
    #[inline]
    pub(super) fn place(&mut self, iface: IfIndex, next_hop: A) -> (&mut ForwardPath<A>, bool) {
        let lowest = (next_hop.to_bits_aligned() >> (128 - u32::from(A::BITS))) as usize;
        let way = self.ways.get_mut(lowest & (CACHE_WAYS - 1)).unwrap_or(&mut self.beyond);
        let known = way.is_to(iface, next_hop);
        (way, known)
    }
}

/// Length of the largest IP packet that leaves for this one: the packet itself, or of a GSO frame
/// (GSO) its segments.
pub(super) fn largest_piece(packet: &PacketBuf, l3: usize) -> usize {
    let len = packet.len() - l3;
    match packet.offload().filter(|offload| offload.gso_type != 0) {
        Some(offload) => {
            let headers = usize::from(offload.header_len).saturating_sub(l3);
            len.min(headers + usize::from(offload.gso_size))
        }
        None => len,
    }
}

/// Whether the device segments the packet (GSO).
pub(super) fn is_super_frame(packet: &PacketBuf) -> bool {
    packet.offload().is_some_and(|offload| offload.gso_type != 0)
}

/// Replaces the link header; the offload offsets into the frame are adjusted.
#[cold]
pub(super) fn change_link_header(packet: &mut PacketBuf, l3: usize, stations: LinkPeers) {
    packet.trim_front(l3);
    let after = if matches!(stations, LinkPeers::Known(_)) { ethernet::HEADER_LEN } else { 0 };
    if let Some(mut offload) = packet.offload().filter(|_| l3 != after) {
        let moved = |at: u16| {
            let at = (usize::from(at) + after).saturating_sub(l3);
            u16::try_from(at).unwrap_or(u16::MAX)
        };
        offload.checksum_start = moved(offload.checksum_start);
        offload.header_len = moved(offload.header_len);
        packet.set_offload(offload);
    }
}

/// Builds the frame around an IP packet.
pub(super) fn frame<A: IpFamily>(
    pool: &Pool,
    packet: PacketBuf,
    stations: [u8; STATION_BYTES],
) -> Result<PacketBuf, PacketBuf> {
    let mut packet = packet.push_header(pool, ethernet::HEADER_LEN)?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = stations;
    let header = EthernetFields {
        dst_addr: MacAddr([d0, d1, d2, d3, d4, d5]),
        src_addr: MacAddr([s0, s1, s2, s3, s4, s5]),
        ether_type: A::ETHER_TYPE,
    };
    if let Some(out) = packet.first_mut().and_then(|bytes| bytes.first_chunk_mut()) {
        header.emit(out);
    }
    Ok(packet)
}
