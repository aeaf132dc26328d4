//! Segments of one TCP flow that leave in a row become one GSO frame, where the system cuts them
//! apart again or never has to: one call for up to 64 KiB.
//!
//! Called by `tun.rs` and `af_packet.rs` with the packets at the front of their lists, on devices
//! with the virtio header. It does on departure what Linux's GRO does on arrival (coalescing), to
//! get the benefit of GSO/TSO without changes in the layers above: each segment was made, counted
//! and is kept for retransmission as it would be on the wire. Invariants: the segments that the
//! system cuts equal those that were joined, except for checksums and for IPv4 identifications,
//! which are not used in packets with DF set (RFC 6864). Segments that differ in any other field
//! are not joined; the last one may be shorter, or carry PSH or FIN. Only one set of headers is
//! copied. Reading: OASIS virtio 1.2, 5.1.6.2; RFC 9293 section 3.1.

use core::iter;
use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_checksum::{pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_packet::{ChecksumState, Offload, PacketBuf, PacketList};

use crate::device::Medium;
use crate::gather::{SLICES_MAX, Slices};
use crate::vnet::{self, VNET_BYTES};

/// TCP's protocol number, and its flags.
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// Bytes of Ethernet's header.
const LINK_BYTES: usize = 14;
/// Longest packet of either family.
const WHOLE_MAX: usize = 65_535;
/// Link header, IPv6's, and TCP's with all options.
const HEADS_MAX: usize = LINK_BYTES + 40 + 60;
/// The bits of a frame's headers that all segments of a run share, of IPv4: but for length,
/// identification and checksum.
const COMMON_V4: [u8; HEADS_MAX] = common(&[2, 3, 4, 5, 10, 11], 20);
/// The same of IPv6: but for the length.
const COMMON_V6: [u8; HEADS_MAX] = common(&[4, 5], 40);
/// What each has of its own in TCP's header: sequence number, flags, checksum.
const OWN_BYTES: [usize; 7] = [4, 5, 6, 7, 13, 16, 17];

/// A mask of all bits except those of these bytes of an IP header and of the TCP header after it.
const fn common(own: &[usize], ip_len: usize) -> [u8; HEADS_MAX] {
    let mut bits = [0xff; HEADS_MAX];
    let mut n = 0;
    while n < own.len() {
        bits[LINK_BYTES + own[n]] = 0;
        n += 1;
    }
    n = 0;
    while n < OWN_BYTES.len() {
        bits[LINK_BYTES + ip_len + OWN_BYTES[n]] = 0;
        n += 1;
    }
    bits
}

/// What an interface takes as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunLimits {
    /// Bytes of the longest IPv4 frame, link header included.
    pub(crate) bytes_v4: usize,
    /// The same of IPv6.
    pub(crate) bytes_v6: usize,
    /// Segments.
    pub(crate) segments: usize,
}

impl RunLimits {
    /// What the protocols allow.
    pub(crate) const NONE: Self =
        Self { bytes_v4: usize::MAX, bytes_v6: usize::MAX, segments: usize::MAX };
}

/// The headers of a segment that may be one of a run, and what is behind them.
#[derive(Clone, Copy)]
struct JoinedHeaders<'a> {
    bytes: &'a [u8],
    l3: usize,
    l4: usize,
    /// Bytes behind the headers.
    text: usize,
}

impl<'a> JoinedHeaders<'a> {
    /// Of a whole TCP segment with payload and contiguous headers. An IPv4 one must not be
    /// fragmented and has no options; an IPv6 one has no extension header.
    fn of(packet: &'a PacketBuf, medium: Medium) -> Option<Self> {
        let bytes = packet.first();
        let l3 = match medium {
            Medium::Ip => 0,
            Medium::Ethernet => LINK_BYTES,
        };
        let (link, ip) = bytes.split_at_checked(l3)?;
        let len = packet.len() - l3;
        let (l4, said, ether_type) = match ip {
            [0x45, _, a, b, _, _, 0x40, 0, _, TCP, ..] => {
                (l3 + 20, usize::from(u16::from_be_bytes([*a, *b])), [0x08, 0x00])
            }
            [version, _, _, _, a, b, TCP, ..] if version >> 4 == 6 => {
                (l3 + 40, 40 + usize::from(u16::from_be_bytes([*a, *b])), [0x86, 0xdd])
            }
            _ => return None,
        };
        if !link.is_empty() && !link.ends_with(&ether_type) {
            return None;
        }
        // The system finishes the checksum of a run, whether its segments have theirs or leave it.
        let whole = match (packet.checksum_state(), packet.offload()) {
            (ChecksumState::Partial, Some(o)) => {
                o.gso_type == 0 && usize::from(o.checksum_start) == l4 && o.checksum_offset == 16
            }
            (ChecksumState::Partial, None) | (_, Some(_)) => false,
            (_, None) => true,
        };
        // A frame may end in padding.
        if said != len || !whole {
            return None;
        }
        let end = l4 + usize::from(*bytes.get(l4 + 12)? >> 4) * 4;
        let text = packet.len().checked_sub(end)?;
        let bytes = bytes.get(..end).filter(|_| end >= l4 + 20 && text > 0)?;
        Some(Self { bytes, l3, l4, text })
    }

    const fn is_v4(&self) -> bool {
        self.l4 - self.l3 == 20
    }

    /// Whether `next` goes on behind `text` bytes of the run that begins with this one.
    fn goes_on(&self, text: usize, next: &Self) -> bool {
        next.seq() == self.seq().wrapping_add(text as u32)
            && next.text <= self.text
            && next.flags() & !(PSH | FIN) == ACK
            && next.shares(self)
    }

    /// Slices of the payload of `packet`, to which these headers belong.
    fn slices(&self, packet: &PacketBuf) -> usize {
        packet.chunk_count() - usize::from(packet.first().len() == self.bytes.len())
    }

    fn flags(&self) -> u8 {
        self.bytes.get(self.l4 + 13).copied().unwrap_or_default()
    }

    fn seq(&self) -> u32 {
        let seq = self.bytes.get(self.l4 + 4..).and_then(|bytes| bytes.first_chunk());
        seq.map_or(0, |seq| u32::from_be_bytes(*seq))
    }

    /// Whether all is the same that the segments of a run have in common.
    fn shares(&self, other: &Self) -> bool {
        if self.bytes.len() != other.bytes.len() || self.l4 != other.l4 {
            return false;
        }
        let common = if self.is_v4() { &COMMON_V4 } else { &COMMON_V6 };
        let common = common.get(LINK_BYTES - self.l3..).unwrap_or_default();
        let (common, common_end) = common.get(..self.bytes.len()).unwrap_or_default().as_chunks();
        let (words, end) = self.bytes.as_chunks();
        let (others, other_end) = other.bytes.as_chunks();
        let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        let pairs = words.iter().zip(others).zip(common);
        let differ = pairs.fold(0, |all, ((a, b), bits)| all | (word(a) ^ word(b)) & word(bits));
        let ends = end.iter().zip(other_end).zip(common_end);
        ends.fold(differ, |all, ((a, b), bits)| all | u64::from((a ^ b) & bits)) == 0
    }
}

/// A run at the front of a list.
pub(crate) struct JoinRun {
    /// How many packets it is.
    pub(crate) count: usize,
    /// Bytes of the IP packet that each but the last of them is.
    pub(crate) piece: usize,
    /// The virtio header for the system.
    told: [u8; VNET_BYTES],
    heads: [u8; HEADS_MAX],
    heads_len: usize,
}

impl JoinRun {
    /// Of two or more packets; `None` where the second does not go on where the first ends.
    pub(crate) fn at_front(
        packets: &PacketList,
        medium: Medium,
        limits: &RunLimits,
    ) -> Option<Self> {
        let mut all = packets.iter();
        let packet = all.next()?;
        let first = JoinedHeaders::of(packet, medium).filter(|head| head.flags() == ACK)?;
        let bytes_max = if first.is_v4() { limits.bytes_v4 } else { limits.bytes_v6 };
        let bytes_max = bytes_max.min(first.l3 + WHOLE_MAX);
        // One slice for the virtio header, one for the headers.
        let (mut text, mut count, mut slices) = (first.text, 1, 2 + first.slices(packet));
        let mut flags = ACK;
        for packet in all.take(limits.segments.saturating_sub(1)) {
            let Some(next) = JoinedHeaders::of(packet, medium) else { break };
            slices += next.slices(packet);
            let len = first.bytes.len() + text + next.text;
            if !first.goes_on(text, &next) || slices > SLICES_MAX || len > bytes_max {
                break;
            }
            flags = next.flags();
            text += next.text;
            count += 1;
            if flags != ACK || next.text < first.text {
                break;
            }
        }
        if count == 1 {
            return None;
        }
        Self::of(&first, flags, text, count)
    }

    /// The headers of the joined segment: the first's, with the total length and the last one's
    /// flags.
    fn of(first: &JoinedHeaders<'_>, flags: u8, text: usize, count: usize) -> Option<Self> {
        let JoinedHeaders { bytes, l3, l4, .. } = *first;
        let mut heads = [0; HEADS_MAX];
        let out = heads.get_mut(..bytes.len())?;
        out.copy_from_slice(bytes);
        let segment = bytes.len() - l4 + text;
        let is_v4 = first.is_v4();
        let pseudo = if is_v4 { told_v4(out, l3, segment)? } else { told_v6(out, l3, segment)? };
        *out.get_mut(l4 + 13)? = flags;
        out.get_mut(l4 + 16..l4 + 18)?.copy_from_slice(&pseudo.to_be_bytes());
        let offload = Offload {
            flags: 1,
            gso_type: if is_v4 { 1 } else { 4 },
            header_len: bytes.len() as u16,
            gso_size: u16::try_from(first.text).ok()?,
            checksum_start: l4 as u16,
            checksum_offset: 16,
        };
        let (told, heads_len) = (vnet::encode(&offload), bytes.len());
        Some(Self { count, piece: heads_len - l3 + first.text, told, heads, heads_len })
    }

    /// The run as the system takes it; `packets` are those that it was made of.
    pub(crate) fn slices<'a>(&'a self, packets: &'a PacketList) -> Slices<'a> {
        let heads = self.heads.get(..self.heads_len).unwrap_or_default();
        let texts = packets
            .iter()
            .take(self.count)
            .flat_map(|packet| packet.chunks_in(self.heads_len, packet.len() - self.heads_len));
        Slices::from_parts(iter::once(&self.told[..]).chain([heads]).chain(texts))
    }
}

/// The number of packets at the front before one that starts another run: `most` at most, and at
/// least one where the list is not empty.
pub(crate) fn alone(packets: &PacketList, medium: Medium, most: usize) -> usize {
    let mut before: Option<JoinedHeaders<'_>> = None;
    let mut count = 0;
    for packet in packets.iter().take(most) {
        let head = JoinedHeaders::of(packet, medium);
        if let (Some(first), Some(next)) = (&before, &head)
            && first.flags() == ACK
            && first.goes_on(first.text, next)
            && count > 1
        {
            return count - 1;
        }
        before = head;
        count += 1;
    }
    count
}

/// Writes IPv4's length and checksum for a segment of so many bytes; the sum that TCP's checksum
/// begins with.
fn told_v4(out: &mut [u8], l3: usize, segment: usize) -> Option<u16> {
    let header = out.get_mut(l3..l3 + 20)?;
    header.get_mut(2..4)?.copy_from_slice(&u16::try_from(20 + segment).ok()?.to_be_bytes());
    header.get_mut(10..12)?.fill(0);
    let check = sum(header).finish();
    header.get_mut(10..12)?.copy_from_slice(&check.to_be_bytes());
    let from: [u8; 4] = *header.get(12..)?.first_chunk()?;
    let to: [u8; 4] = *header.get(16..)?.first_chunk()?;
    let (from, to) = (Ipv4Addr::from(from), Ipv4Addr::from(to));
    Some(pseudo_header_v4(from, to, TCP, u16::try_from(segment).ok()?).fold())
}

/// The same of IPv6, which has no checksum of its own.
fn told_v6(out: &mut [u8], l3: usize, segment: usize) -> Option<u16> {
    let header = out.get_mut(l3..l3 + 40)?;
    header.get_mut(4..6)?.copy_from_slice(&u16::try_from(segment).ok()?.to_be_bytes());
    let from: [u8; 16] = *header.get(8..)?.first_chunk()?;
    let to: [u8; 16] = *header.get(24..)?.first_chunk()?;
    let (from, to) = (Ipv6Addr::from(from), Ipv6Addr::from(to));
    Some(pseudo_header_v6(from, to, TCP, u32::try_from(segment).ok()?).fold())
}

#[cfg(test)]
mod tests;
