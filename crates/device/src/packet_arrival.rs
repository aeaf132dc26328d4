//! Frames of the ring as packets: copied into the pool, described, and where a frame is datagrams
//! that their sender left to a card to cut, cut.
//!
//! Called by `af_packet.rs`. TCP segments that were joined go up as one, with the virtio header
//! that tells of it. Datagrams do not: nobody above knows where one ends, and the length in the
//! header of such a frame is that of all together. Invariant: what the kernel says of a frame is
//! checked against the frame before it is believed; whatever stands there, nothing panics and no
//! frame becomes more than [`PIECES_MAX`] packets.
//!
//! # Under flood
//! A sender on the same machine makes up to [`PIECES_MAX`] packets of one frame: a frame stays in
//! the ring until its last one was taken, by as many calls as there is room for them.
//! Reading: OASIS virtio 1.2, 5.1.6; RFC 768; RFC 1624 section 3.

use floodwall_checksum::{Accumulator, sum};
use floodwall_packet::{ChecksumState, Offload, PacketBuf, Pool};

use crate::copy;
use crate::packet_ring::RingFrame;
use crate::vnet;

/// Bytes of both link addresses: a tag stands behind them.
const ADDRESSES: usize = 12;
/// Bytes of the link header, without the tag that the kernel has taken out.
const LINK: usize = 14;
/// Datagrams of one frame: as many as the kernel takes in one call (`UDP_MAX_SEGMENTS`).
pub(crate) const PIECES_MAX: usize = 128;
/// Bytes of the longest headers of a frame that is cut.
const HEADS_MAX: usize = 256;
/// virtio's kinds of what is to be cut.
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const DATAGRAMS: u8 = 5;
/// A mark of TCP's kinds: the first piece alone keeps CWR (RFC 3168).
const ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What became of one frame of the ring, or of one piece of it.
pub(crate) enum Arrival {
    Packet(PacketBuf),
    NoBuffer,
    Truncated,
    Malformed,
}

/// Copies one frame into the pool, its tag put back. Of one that is cut, the piece of this number,
/// which then becomes the next one's, or 0 behind the last.
pub(crate) fn arrive(frame: &RingFrame<'_>, pool: &Pool, piece: &mut usize) -> Arrival {
    let number = core::mem::take(piece);
    if frame.bytes.len() < frame.wire_len {
        return Arrival::Truncated;
    }
    let offload = vnet::decode(frame.vnet);
    match offload.gso_type & !ECN {
        0 if offload.gso_type == 0 => whole(frame, pool, offload),
        TCP_V4 | TCP_V6 if is_tcp(frame.bytes, &offload) => whole(frame, pool, offload),
        DATAGRAMS => match Datagrams::of(frame.bytes, &offload) {
            Some(datagrams) => {
                *piece = if number + 1 < datagrams.count() { number + 1 } else { 0 };
                datagrams.piece(number, frame, pool)
            }
            None => Arrival::Malformed,
        },
        _ => Arrival::Malformed,
    }
}

/// The frame as it is.
fn whole(frame: &RingFrame<'_>, pool: &Pool, offload: Offload) -> Arrival {
    let (tag, tag_len) = tag_of(frame);
    let (addresses, rest) = frame.bytes.split_at(ADDRESSES.min(frame.bytes.len()));
    let pieces = [addresses, tag.get(..tag_len).unwrap_or_default(), rest];
    let Some(mut packet) = copy::assemble(pool, frame.bytes.len() + tag_len, pieces) else {
        return Arrival::NoBuffer;
    };
    if !vnet::describe(&mut packet, moved(offload, tag_len)) {
        return Arrival::Malformed;
    }
    if frame.status & libc::TP_STATUS_CSUM_VALID != 0
        && packet.checksum_state() == ChecksumState::Unverified
    {
        packet.set_checksum_state(ChecksumState::Verified);
    }
    Arrival::Packet(packet)
}

/// The tag that the kernel took out, and its length: 0 where there was none.
fn tag_of(frame: &RingFrame<'_>) -> ([u8; 4], usize) {
    let (protocol, value) = frame.vlan.unwrap_or_default();
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), value.to_be_bytes());
    ([a, b, c, d], if frame.vlan.is_some() { 4 } else { 0 })
}

/// The kernel counts from the frame without the tag.
fn moved(mut offload: Offload, tag_len: usize) -> Offload {
    let tag_len = tag_len as u16;
    if offload.flags & 1 != 0 {
        offload.checksum_start = offload.checksum_start.saturating_add(tag_len);
    }
    if offload.header_len != 0 {
        offload.header_len = offload.header_len.saturating_add(tag_len);
    }
    offload
}

/// Whether the frame is what its description says, TCP of that family: it would also be TCP inside
/// of a tunnel, whose outer headers nobody would cut.
fn is_tcp(bytes: &[u8], offload: &Offload) -> bool {
    let is_v4 = offload.gso_type & !ECN == TCP_V4;
    let partial = offload.flags & 1 != 0;
    let said = partial.then_some(usize::from(offload.checksum_start));
    upper(bytes, TCP).is_some_and(|(l4, v4)| {
        v4 == is_v4
            && said.is_none_or(|said| l4.is_none_or(|l4| l4 == said))
            && (!partial || offload.checksum_offset == 16)
    })
}

/// Where the upper header starts, and whether the frame is IPv4's; `None` for a frame of another
/// protocol. Behind IPv6's extension headers it is where the description says.
fn upper(bytes: &[u8], protocol: u8) -> Option<(Option<usize>, bool)> {
    let (link, ip) = bytes.split_at_checked(LINK)?;
    match (link.get(ADDRESSES..)?, ip) {
        ([0x08, 0x00], [first, _, _, _, _, _, fragment, offset, _, found, ..])
            if first >> 4 == 4 && *found == protocol =>
        {
            let is_whole = fragment & 0x3f == 0 && *offset == 0;
            is_whole.then_some((Some(LINK + usize::from(first & 15) * 4), true))
        }
        ([0x86, 0xdd], [first, _, _, _, _, _, found, ..]) if first >> 4 == 6 => match *found {
            found if found == protocol => Some((Some(LINK + 40), false)),
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => Some((None, false)),
            _ => None,
        },
        _ => None,
    }
}

/// A frame of datagrams of one size, but for the last.
struct Datagrams {
    is_v4: bool,
    /// Where the UDP header starts.
    udp: usize,
    /// Bytes of text of all together.
    text: usize,
    /// Bytes of text of each.
    size: usize,
}

impl Datagrams {
    fn of(bytes: &[u8], offload: &Offload) -> Option<Self> {
        let (l4, is_v4) = upper(bytes, UDP)?;
        let udp = usize::from(offload.checksum_start);
        let ip = bytes.get(LINK..)?;
        let word = |at: usize| {
            let bytes: &[u8; 2] = bytes.get(at..)?.first_chunk()?;
            Some(usize::from(u16::from_be_bytes(*bytes)))
        };
        let (said, least) = if is_v4 { (word(LINK + 2)?, 20) } else { (40 + word(LINK + 4)?, 40) };
        let text = bytes.len().checked_sub(udp + 8)?;
        let found = Self { is_v4, udp, text, size: usize::from(offload.gso_size) };
        let is_so = offload.flags & 1 != 0
            && offload.checksum_offset == 6
            && l4.is_none_or(|l4| l4 == udp)
            && udp >= LINK + least
            && udp + 8 <= HEADS_MAX
            && said == ip.len()
            && word(udp + 4)? == 8 + text
            && text > 0
            && found.size > 0
            && found.count() <= PIECES_MAX;
        is_so.then_some(found)
    }

    const fn count(&self) -> usize {
        self.text.div_ceil(self.size)
    }

    /// The datagram of this number as a packet, its checksum as unfinished as that of all was.
    fn piece(&self, number: usize, frame: &RingFrame<'_>, pool: &Pool) -> Arrival {
        let (heads_len, start) = (self.udp + 8, self.udp + 8 + number * self.size);
        let end = frame.bytes.len().min(start + self.size);
        let mut heads = [0; HEADS_MAX];
        let heads = heads.get_mut(..heads_len).unwrap_or_default();
        let text = frame.bytes.get(start..end).unwrap_or_default();
        heads.copy_from_slice(frame.bytes.get(..heads_len).unwrap_or_default());
        if self.tell(heads, number, text.len()).is_none() {
            return Arrival::Malformed;
        }
        let (tag, tag_len) = tag_of(frame);
        let (addresses, rest) = heads.split_at(ADDRESSES);
        let pieces = [addresses, tag.get(..tag_len).unwrap_or_default(), rest, text];
        let total = heads_len + tag_len + text.len();
        let Some(mut packet) = copy::assemble(pool, total, pieces) else {
            return Arrival::NoBuffer;
        };
        let (checksum_start, checksum_offset) = (self.udp as u16, 6);
        let alone = Offload { flags: 1, checksum_start, checksum_offset, ..Offload::default() };
        match vnet::describe(&mut packet, moved(alone, tag_len)) {
            true => Arrival::Packet(packet),
            false => Arrival::Malformed,
        }
    }

    /// Writes lengths, identification and sums of one datagram into the headers of all.
    fn tell(&self, heads: &mut [u8], number: usize, text: usize) -> Option<()> {
        let len = u16::try_from(8 + text).ok()?.to_be_bytes();
        let udp = heads.get_mut(self.udp..)?;
        let all: [u8; 2] = *udp.get(4..)?.first_chunk()?;
        udp.get_mut(4..6)?.copy_from_slice(&len);
        // The sum of the pseudo header, of which only the length changes.
        let field = udp.get_mut(6..8)?;
        let without = (!u16::from_be_bytes(all)).to_be_bytes();
        let mut with = Accumulator::new();
        with.add(field).add(&without).add(&len);
        field.copy_from_slice(&(!with.finish()).to_be_bytes());
        let behind = self.udp - LINK + 8 + text;
        let ip = heads.get_mut(LINK..self.udp)?;
        if !self.is_v4 {
            let payload = u16::try_from(behind - 40).ok()?;
            ip.get_mut(4..6)?.copy_from_slice(&payload.to_be_bytes());
            return Some(());
        }
        ip.get_mut(2..4)?.copy_from_slice(&u16::try_from(behind).ok()?.to_be_bytes());
        let id = ip.get_mut(4..6)?;
        let first = u16::from_be_bytes(*id.first_chunk()?);
        id.copy_from_slice(&first.wrapping_add(number as u16).to_be_bytes());
        ip.get_mut(10..12)?.fill(0);
        let check = sum(ip).finish();
        ip.get_mut(10..12)?.copy_from_slice(&check.to_be_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests;
