//! A plain segment that its connection expects: its headers are read in one go.
//!
//! Called by `rx.rs` for every packet that no run waits for, before any layer parses it. Taken
//! are whole packets of TCP over Ethernet without tag or over bare IP, without IP options,
//! extension headers, fragments or congestion marks, with ACK, PSH and FIN alone and with no TCP
//! options but timestamps in their usual place, with right lengths and checksums, of a flow that
//! the network layer has admitted on that interface before. What is plain but not expected
//! may skip the network layer (`admit.rs`). Invariant: a packet that is not taken goes the general
//! way, unchanged; that is the only place where packets are refused. Guarded by
//! [`PathCache::generation`](crate::ip::path_cache::PathCache::generation), which changes with
//! addresses, interfaces, access lists and raw sockets.

use core::net::Ipv6Addr;

use floodwall_base::{Counter, Endpoint, FlowKey, IfIndex, MacAddr, Seq};
use floodwall_checksum::{InternetSum, header20, sum};
use floodwall_packet::{ChecksumState, PacketBuf};
use floodwall_tcp::{FlowAdmission, PredictingConnection, Segment};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::Timestamps;
use floodwall_wire::{IpProtocol, ethernet, ipv4, ipv6};

use super::gro::{COUNTERS_V4, COUNTERS_V6};
use crate::round_context::RoundContext;
use crate::stack::Stack;

/// Bytes of a TCP header without options, and of one with timestamps after two bytes of padding
/// (RFC 7323 appendix A).
const BARE_HEADER: usize = 20;
const STAMPED_HEADER: usize = 32;
/// The flags that a plain segment may have besides ACK.
const WITH_ACK: TcpFlags = TcpFlags(TcpFlags::PSH.0 | TcpFlags::FIN.0);
/// What such options begin with: no operation twice, kind 8, 10 bytes.
const STAMP_OPTION_START: [u8; 4] = [1, 1, 8, 10];

/// The headers of a plain segment.
struct PlainSegment {
    flow: FlowKey,
    segment: Segment,
    places: SegmentPlaces,
}

/// Where in a packet the parts of a segment are.
struct SegmentPlaces {
    is_v4: bool,
    /// Where the IP header begins, the TCP header, its text, and the end.
    l3: usize,
    l4: usize,
    text: usize,
    end: usize,
}

/// What the plain IP header of a packet says.
pub(crate) struct PlainIp {
    pub(crate) is_v4: bool,
    /// The addresses; of IPv4 mapped, as those of an [`Endpoint`].
    pub(crate) src_addr: Ipv6Addr,
    pub(crate) dst_addr: Ipv6Addr,
    /// The length of the header, and that of the packet.
    pub(crate) header_len: usize,
    pub(crate) total_len: usize,
}

#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

/// The mapped address of an IPv4 address as a header has it. As whole words: no byte is moved.
#[inline(always)]
fn mapped(addr: [u8; 4]) -> Ipv6Addr {
    let bytes = u128::from(u32::from_le_bytes(addr)) << 96 | 0xffff << 80;
    Ipv6Addr::from(bytes.to_le_bytes())
}

/// The IP header at the front of a packet of this protocol that is plain in every respect. The
/// IPv4 header's checksum is right.
#[inline(always)]
pub(crate) fn plain_ip(ip: &[u8], protocol: IpProtocol) -> Option<PlainIp> {
    let (&first, protocol) = (ip.first()?, protocol.0);
    if first == 0x45 {
        let h: &[u8; ipv4::HEADER_LEN] = ip.first_chunk()?;
        let is_plain = h[1] & 3 != 3 && h[6] & 0xbf == 0 && h[7] == 0 && h[9] == protocol;
        if !is_plain || !header20(h).verifies() {
            return None;
        }
        return Some(PlainIp {
            is_v4: true,
            src_addr: mapped([h[12], h[13], h[14], h[15]]),
            dst_addr: mapped([h[16], h[17], h[18], h[19]]),
            header_len: ipv4::HEADER_LEN,
            total_len: usize::from(u16::from_be_bytes([h[2], h[3]])),
        });
    }
    if first >> 4 != 6 {
        return None;
    }
    let h: &[u8; ipv6::HEADER_LEN] = ip.first_chunk()?;
    // The two lowest bits of the traffic class are in the second byte. A source below ::/64 is no
    // host's, or an IPv4-mapped one, which would be that of an IPv4 flow.
    if h[1] >> 4 & 3 == 3 || h[6] != protocol || h[8..16] == [0; 8] {
        return None;
    }
    let src_addr: &[u8; 16] = h[8..].first_chunk()?;
    let dst_addr: &[u8; 16] = h[24..].first_chunk()?;
    Some(PlainIp {
        is_v4: false,
        src_addr: Ipv6Addr::from(*src_addr),
        dst_addr: Ipv6Addr::from(*dst_addr),
        header_len: ipv6::HEADER_LEN,
        total_len: ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([h[4], h[5]])),
    })
}

/// Whether it is IPv4, and the addresses, IPv4's mapped, of a packet with an IP header for which
/// [`plain_ip`] gave something.
#[inline(always)]
pub(super) fn addrs_of_plain_ip(ip: &[u8]) -> Option<(bool, Ipv6Addr, Ipv6Addr)> {
    if ip.first() == Some(&0x45) {
        let h: &[u8; ipv4::HEADER_LEN] = ip.first_chunk()?;
        let [src_addr, dst_addr] =
            [[h[12], h[13], h[14], h[15]], [h[16], h[17], h[18], h[19]]].map(mapped);
        return Some((true, src_addr, dst_addr));
    }
    let h: &[u8; ipv6::HEADER_LEN] = ip.first_chunk()?;
    let src_addr: &[u8; 16] = h[8..].first_chunk()?;
    let dst_addr: &[u8; 16] = h[24..].first_chunk()?;
    Some((false, Ipv6Addr::from(*src_addr), Ipv6Addr::from(*dst_addr)))
}

/// Reads the headers of a packet with its IP header at `l3`, if it is plain. Where its IP header is
/// plain, `place` is where that begins and the packet ends.
#[inline(always)]
fn read(bytes: &[u8], l3: usize, place: &mut (usize, usize)) -> Option<PlainSegment> {
    let ip = bytes.get(l3..)?;
    let PlainIp { is_v4, src_addr, dst_addr, header_len, total_len } =
        plain_ip(ip, IpProtocol::TCP)?;
    let (l4, end) = (l3 + header_len, l3 + total_len);
    *place = (l3, end);
    let tcp = bytes.get(l4..end)?;
    let fixed: &[u8; BARE_HEADER] = tcp.first_chunk()?;
    let (offset, flags) = (fixed[12], TcpFlags(fixed[13]));
    if flags | WITH_ACK != TcpFlags::ACK | WITH_ACK {
        return None;
    }
    let mut segment = Segment::NONE;
    let header_len = match offset {
        0x50 => BARE_HEADER,
        0x80 => {
            let options: &[u8; STAMPED_HEADER - BARE_HEADER] =
                tcp.get(BARE_HEADER..)?.first_chunk()?;
            if options.first_chunk() != Some(&STAMP_OPTION_START) {
                return None;
            }
            let (value, echo) = (be32(options, 4), be32(options, 8));
            segment.options.timestamps = Some(Timestamps { value, echo });
            STAMPED_HEADER
        }
        _ => return None,
    };
    segment.seq = Seq(be32(fixed, 4));
    segment.ack = Seq(be32(fixed, 8));
    segment.flags = flags;
    segment.window = be16(fixed, 14);
    segment.len = (tcp.len() - header_len) as u32;
    let flow = FlowKey {
        local: Endpoint { addr: dst_addr, port: be16(fixed, 2) },
        remote: Endpoint { addr: src_addr, port: be16(fixed, 0) },
        // Of link-local addresses it is another: they take the general path.
        zone: IfIndex::default(),
        protocol: IpProtocol::TCP.0,
    };
    let text = l4 + header_len;
    Some(PlainSegment { flow, segment, places: SegmentPlaces { is_v4, l3, l4, text, end } })
}

impl SegmentPlaces {
    /// Whether the checksum is right; `ends` is the sum of the flow's addresses, protocol and
    /// ports.
    #[inline(always)]
    fn verifies(&self, packet: &PacketBuf, ends: InternetSum) -> bool {
        if packet.checksum_state() != ChecksumState::Unverified {
            return true;
        }
        let Some(tcp) = packet.first().get(self.l4..self.end) else { return false };
        let Some(ports) = tcp.first_chunk() else { return false };
        // The ports are in both sums: their complement takes them out of one. A sum of whole words
        // is cheaper than one from the fifth byte on.
        let beside = InternetSum::of_u32(!u32::from_be_bytes(*ports));
        let len = InternetSum::of_u32(tcp.len() as u32);
        ends.add(len).add(beside).add(sum(tcp)).verifies()
    }
}

/// Where the IP header of a frame for this station begins.
#[inline]
pub(crate) fn ip_of_frame(bytes: &[u8], mac: MacAddr) -> Option<usize> {
    let header: &[u8; ethernet::HEADER_LEN + 1] = bytes.first_chunk()?;
    let is_ours = header.first_chunk() == Some(&mac.0) && header[6] & 1 == 0;
    let is_ip = matches!(
        ([header[12], header[13]], header[14] >> 4),
        ([0x08, 0x00], 4) | ([0x86, 0xdd], 6)
    );
    (is_ours && is_ip).then_some(ethernet::HEADER_LEN)
}

impl Stack {
    /// Takes a packet with a segment that its connection expects, or between ends that were
    /// admitted before; gives back any other. `mac` is the station's address on Ethernet.
    #[inline]
    pub(crate) fn tcp_predicted(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        mac: Option<MacAddr>,
    ) -> Result<(), PacketBuf> {
        let mut place = (0, 0);
        match self.tcp_expected(cx, packet, mac, &mut place) {
            Ok(()) => Ok(()),
            Err(packet) if place.1 == 0 => Err(packet),
            Err(packet) => self.tcp_from_admitted(cx, packet, place),
        }
    }

    /// Takes a packet with a segment that its connection expects; gives back any other. Where its
    /// IP header is plain, `place` is where that begins and the packet ends then.
    #[inline(always)]
    fn tcp_expected(
        &mut self,
        cx: &mut RoundContext<'_>,
        packet: PacketBuf,
        mac: Option<MacAddr>,
        place: &mut (usize, usize),
    ) -> Result<(), PacketBuf> {
        let Some(tcp) = &mut self.tcp else { return Err(packet) };
        let bytes = packet.first();
        let Some(l3) = mac.map_or(Some(0), |mac| ip_of_frame(bytes, mac)) else {
            return Err(packet);
        };
        let Some(plain) = read(bytes, l3, place) else { return Err(packet) };
        let PlainSegment { flow, segment, places } = plain;
        let of_burst = self.burst.more_arrives || tcp.set.has_train();
        let admission = FlowAdmission {
            iface: packet.iface(),
            generation: self.sockets.path_cache.generation(),
        };
        let found = tcp.set.predicts(&flow, admission, &segment, !of_burst);
        let Some(PredictingConnection { index, ends }) = found else { return Err(packet) };
        // What follows in the same burst is coalesced.
        let again = core::mem::replace(&mut self.burst.predicted, index) == index;
        if of_burst && again && segment.len > 0
            || packet.is_link_group()
            || !places.verifies(&packet, ends)
        {
            return Err(packet);
        }
        let counters = &mut self.stats.counters;
        let [receives, in_octets, delivers] = if places.is_v4 { COUNTERS_V4 } else { COUNTERS_V6 };
        counters.count(receives);
        counters.add(in_octets, (packet.len() - places.l3) as u64);
        counters.count(delivers);
        counters.count(Counter::TcpInSegs);
        self.stats.access.borrow();
        self.burst.in_one_go += 1;
        let packet = packet.middle(places.text, places.end - places.text);
        let (mut reply, mut lend) = (None, lend!(self, cx));
        match tcp.set.input_predicted(&mut lend, index, &segment, packet, &mut reply) {
            None => self.stats.outcomes.delivered += 1,
            Some(reason) => self.stats.drops_in.count(reason),
        }
        if let Some((flow, segment)) = reply {
            self.tcp_reply_on(cx, &flow, segment);
        }
        self.tcp_transmit(cx);
        Ok(())
    }
}
