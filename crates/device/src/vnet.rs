//! The virtio network header: how the system describes GSO frames and unfinished checksums.
//!
//! Called by `tun.rs` and `af_packet.rs`, which put it in front of every packet. Invariant: a
//! header's claims about a packet (GSO type, checksum offsets) are checked against the packet's
//! length before use. Reading: OASIS virtio 1.2, 5.1.6. The legacy layout of 10 bytes in the
//! machine's byte order.

use floodwall_checksum::Accumulator;
use floodwall_packet::{ChecksumState, Offload, PacketBuf};

/// Bytes of the header.
pub(crate) const VNET_BYTES: usize = 10;
/// The checksum field holds the pseudo header's sum only.
const NEEDS_CHECKSUM: u8 = 1;
/// The device has verified the checksum.
const DATA_VALID: u8 = 2;
/// Offsets of the header length and of the checksum in a TCP header.
const TCP_LEN: usize = 12;
const TCP_SUM: u16 = 16;

/// Decodes the header's fields.
pub(crate) fn decode(bytes: [u8; VNET_BYTES]) -> Offload {
    let [flags, gso_type, a, b, c, d, e, f, g, h] = bytes;
    Offload {
        flags: flags & (NEEDS_CHECKSUM | DATA_VALID),
        gso_type,
        header_len: u16::from_ne_bytes([a, b]),
        gso_size: u16::from_ne_bytes([c, d]),
        checksum_start: u16::from_ne_bytes([e, f]),
        checksum_offset: u16::from_ne_bytes([g, h]),
    }
}

/// Encodes these fields as a header.
pub(crate) fn encode(o: &Offload) -> [u8; VNET_BYTES] {
    let [a, b] = o.header_len.to_ne_bytes();
    let [c, d] = o.gso_size.to_ne_bytes();
    let [e, f] = o.checksum_start.to_ne_bytes();
    let [g, h] = o.checksum_offset.to_ne_bytes();
    [o.flags, o.gso_type, a, b, c, d, e, f, g, h]
}

/// Stores the header's metadata in `packet`; false where it is inconsistent.
pub(crate) fn describe(packet: &mut PacketBuf, mut offload: Offload) -> bool {
    let partial = offload.flags & NEEDS_CHECKSUM != 0;
    let segments = offload.gso_type != 0;
    if partial && checksum_field(&offload) + 2 > packet.len() {
        return false;
    }
    if segments && offload.gso_size == 0 {
        return false;
    }
    // The system reports the contiguous bytes as `hdr_len`, which may be more than the headers.
    if segments && partial && offload.checksum_offset == TCP_SUM {
        let Some(len) = tcp_heads(packet, usize::from(offload.checksum_start)) else {
            return false;
        };
        offload.header_len = len;
    }
    packet.set_checksum_state(match offload.flags {
        _ if partial => ChecksumState::Partial,
        DATA_VALID => ChecksumState::Verified,
        _ => ChecksumState::Unverified,
    });
    if partial || segments {
        packet.set_offload(offload);
    }
    true
}

/// Bytes of all headers of a segment with payload and its TCP header at `l4`.
fn tcp_heads(packet: &PacketBuf, l4: usize) -> Option<u16> {
    let header = packet.first().get(l4..)?;
    let len = usize::from(header.get(TCP_LEN)? >> 4) * 4;
    let is_so = len >= 20 && l4 + len < packet.len();
    is_so.then(|| u16::try_from(l4 + len).ok()).flatten()
}

/// The header that describes `packet` to the system; `None` where it cannot be described (a partial
/// checksum without checksum offsets).
pub(crate) fn header_of(packet: &PacketBuf) -> Option<[u8; VNET_BYTES]> {
    let partial = packet.checksum_state() == ChecksumState::Partial;
    let Some(mut offload) = packet.offload() else {
        return (!partial).then_some([0; VNET_BYTES]);
    };
    if partial && checksum_field(&offload) + 2 > packet.len() {
        return None;
    }
    offload.flags = if partial { NEEDS_CHECKSUM } else { 0 };
    if !partial {
        (offload.checksum_start, offload.checksum_offset) = (0, 0);
    }
    Some(encode(&offload))
}

/// Two bytes that replace those of the packet on their way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patch {
    /// Where, from the packet's first byte.
    pub(crate) at: usize,
    /// What.
    pub(crate) bytes: [u8; 2],
}

/// What a device without virtio header must do to send a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Completion {
    /// Nothing.
    Whole,
    /// Put the finished checksum into it.
    Patch(Patch),
    /// It cannot: a GSO frame, or a partial checksum without the place to put it.
    Impossible,
}

/// Finishes a partial checksum by reading the packet once; its bytes may be shared, so the sum is
/// handed out instead of written.
pub(crate) fn complete(packet: &PacketBuf) -> Completion {
    let offload = packet.offload();
    if offload.is_some_and(|o| o.gso_type != 0) {
        return Completion::Impossible;
    }
    if packet.checksum_state() != ChecksumState::Partial {
        return Completion::Whole;
    }
    let Some(offload) = offload else { return Completion::Impossible };
    let at = checksum_field(&offload);
    if at + 2 > packet.len() {
        return Completion::Impossible;
    }
    let start = usize::from(offload.checksum_start);
    let mut sum = Accumulator::new();
    for bytes in packet.chunks_in(start, packet.len() - start) {
        sum.add(bytes);
    }
    // UDP sends an all-zero sum as all ones (RFC 768); no other protocol sums up to zero, since
    // its pseudo header never does, and all ones is the same number.
    let finished = match sum.finish() {
        0 => 0xffff,
        finished => finished,
    };
    Completion::Patch(Patch { at, bytes: finished.to_be_bytes() })
}

fn checksum_field(offload: &Offload) -> usize {
    usize::from(offload.checksum_start) + usize::from(offload.checksum_offset)
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Pool, PoolConfig};

    use super::*;

    fn packet(bytes: &[u8]) -> (Pool, PacketBuf) {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let packet = pool.packet_from(bytes).unwrap();
        (pool, packet)
    }

    #[test]
    fn a_header_survives_there_and_back() {
        let offload = Offload {
            flags: NEEDS_CHECKSUM,
            gso_type: 4,
            header_len: 74,
            gso_size: 1440,
            checksum_start: 54,
            checksum_offset: 16,
        };
        assert_eq!(decode(encode(&offload)), offload);
        let mut bytes = [0; 100];
        bytes[54 + TCP_LEN] = 0x50;
        let (_pool, mut packet) = packet(&bytes);
        // The system's `hdr_len` is the number of contiguous bytes.
        for header_len in [0, 54, 74, 99, u16::MAX] {
            assert!(describe(&mut packet, Offload { header_len, ..offload }));
            assert_eq!(packet.checksum_state(), ChecksumState::Partial);
            assert_eq!(header_of(&packet), Some(encode(&offload)));
        }
    }

    #[test]
    fn segments_with_malformed_headers_are_refused() {
        let offload = Offload {
            flags: NEEDS_CHECKSUM,
            gso_type: 1,
            header_len: 54,
            gso_size: 20,
            checksum_start: 34,
            checksum_offset: TCP_SUM,
        };
        for (length, len, is_so) in [
            (0x50, 55, true),
            (0x50, 54, false),
            (0x40, 100, false),
            (0xf0, 94, false),
            (0xf0, 95, true),
        ] {
            let mut bytes = [0; 100];
            bytes[34 + TCP_LEN] = length;
            let (_pool, mut packet) = packet(&bytes[..len]);
            assert_eq!(describe(&mut packet, offload), is_so, "{length:x} {len}");
        }
    }

    #[test]
    fn a_header_that_points_beyond_the_packet_is_not_believed() {
        let (_pool, mut packet) = packet(&[0; 40]);
        let mut offload = Offload { flags: NEEDS_CHECKSUM, ..Offload::default() };
        (offload.checksum_start, offload.checksum_offset) = (30, 9);
        assert!(!describe(&mut packet, offload));
        (offload.checksum_start, offload.checksum_offset) = (u16::MAX, u16::MAX);
        assert!(!describe(&mut packet, offload));
        offload = Offload { gso_type: 1, ..Offload::default() };
        assert!(!describe(&mut packet, offload), "pieces of zero bytes");
    }

    #[test]
    fn a_verified_packet_is_told_as_verified_and_sent_without_a_claim() {
        let (_pool, mut packet) = packet(&[0; 40]);
        assert!(describe(&mut packet, Offload { flags: DATA_VALID, ..Offload::default() }));
        assert_eq!(packet.checksum_state(), ChecksumState::Verified);
        assert_eq!(header_of(&packet), Some([0; VNET_BYTES]));
        packet.set_checksum_state(ChecksumState::Partial);
        assert_eq!(header_of(&packet), None, "partial, but without checksum offsets");
        assert_eq!(complete(&packet), Completion::Impossible);
    }

    #[test]
    fn a_partial_checksum_is_completed_over_chunks_of_any_length() {
        // A field with the pseudo header's sum at 20 + 6, followed by data.
        let mut bytes: Vec<u8> = (0..61).collect();
        bytes[26..28].copy_from_slice(&[0x12, 0x34]);
        let expected = floodwall_checksum::sum(&bytes[20..]).finish().to_be_bytes();
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for piece in [1, 3, 7, 61] {
            let mut packet = pool.packet_from_chunks(bytes.chunks(piece)).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(Offload {
                flags: NEEDS_CHECKSUM,
                checksum_start: 20,
                checksum_offset: 6,
                ..Offload::default()
            });
            assert_eq!(
                complete(&packet),
                Completion::Patch(Patch { at: 26, bytes: expected }),
                "{piece}"
            );
        }
    }
}
