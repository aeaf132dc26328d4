//! Frames of the ring as packets: copied into the pool, described, and segmented (`pieces.rs`)
//! where a frame is a GSO frame and the layers above have no offload.
//!
//! Called by `af_packet.rs`. Joined TCP segments (GRO) go up as one where the device has offload,
//! with their virtio header. UDP GSO frames are always split: datagram boundaries are not visible
//! above, and the length field of such a frame covers all of them. Invariant: the kernel's
//! description of a frame is checked against the frame before use; no content causes a panic, and
//! no frame becomes more than `PIECES_MAX` packets.
//!
//! # Under flood
//! A sender on the same machine makes up to `PIECES_MAX` packets of one frame: a frame stays in the
//! ring until its last one was taken, by as many calls as there is room for them.
//!
//! Reading: OASIS virtio 1.2, 5.1.6.

use floodwall_packet::{ChecksumState, Offload, PacketBuf, Pool};

use pieces::{ArrivalPieces, TCP, UDP, upper};

use crate::copy;
use crate::packet_ring::RingFrame;
use crate::vnet;

/// Bytes of both link addresses; a tag follows them.
const LINK_ADDRESS_BYTES: usize = 12;
/// Bytes of the link header, without the tag that the kernel has taken out.
const LINK_BYTES: usize = 14;
/// virtio's kinds of what is to be cut.
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const DATAGRAMS: u8 = 5;
/// A mark of TCP's kinds: the first piece alone keeps CWR (RFC 3168).
const ECN: u8 = 0x80;

/// What became of one frame of the ring, or of one piece of it.
pub(crate) enum PacketArrival {
    Packet(PacketBuf),
    NoBuffer,
    Truncated,
    Malformed,
}

/// Copies one frame into the pool, its tag put back. Of one that is segmented, copies the piece of
/// this number, which then becomes the next one's, or 0 after the last. `joined`: segments may go
/// up as one.
pub(crate) fn arrive(
    frame: &RingFrame<'_>,
    pool: &Pool,
    joined: bool,
    piece: &mut usize,
) -> PacketArrival {
    let number = core::mem::take(piece);
    if frame.bytes.len() < frame.wire_len {
        return PacketArrival::Truncated;
    }
    let offload = vnet::decode(frame.vnet);
    let protocol = match offload.gso_type & !ECN {
        0 if offload.gso_type == 0 => return whole(frame, pool, offload),
        TCP_V4 | TCP_V6 if is_tcp(frame.bytes, &offload) => TCP,
        DATAGRAMS => UDP,
        _ => return PacketArrival::Malformed,
    };
    // A frame from a wire is not segmented: its checksum does not cover single pieces.
    let is_finished = offload.flags & 1 == 0;
    if protocol == TCP && (joined || is_finished) {
        return whole(frame, pool, offload);
    }
    let Some(pieces) = ArrivalPieces::of(frame.bytes, &offload, protocol) else {
        return PacketArrival::Malformed;
    };
    *piece = if number + 1 < pieces.count() { number + 1 } else { 0 };
    pieces.piece(number, frame, pool)
}

/// The frame as it is.
fn whole(frame: &RingFrame<'_>, pool: &Pool, offload: Offload) -> PacketArrival {
    let (tag, tag_len) = tag_of(frame);
    let (addresses, rest) = frame.bytes.split_at(LINK_ADDRESS_BYTES.min(frame.bytes.len()));
    let pieces = [addresses, tag.get(..tag_len).unwrap_or_default(), rest];
    let Some(mut packet) = copy::assemble(pool, frame.bytes.len() + tag_len, pieces) else {
        return PacketArrival::NoBuffer;
    };
    if !vnet::describe(&mut packet, moved(offload, tag_len)) {
        return PacketArrival::Malformed;
    }
    if frame.status & libc::TP_STATUS_CSUM_VALID != 0
        && packet.checksum_state() == ChecksumState::Unverified
    {
        packet.set_checksum_state(ChecksumState::Verified);
    }
    PacketArrival::Packet(packet)
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

/// Whether the frame matches its description, TCP of that family. TCP inside a tunnel does not
/// match: its outer headers would not be segmented.
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

mod pieces;
#[cfg(test)]
mod tests;
