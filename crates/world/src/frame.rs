//! From packet to bytes and back: what a network card does on either side of the wire.
//!
//! Called by `world.rs` and `node.rs`. Out: the packet's chunks are copied together and a partial
//! checksum is completed, as hardware would (checksum offload). In: the bytes are copied into fresh
//! frames of the receiver's pool. So memory stays attributable: a packet on the way is in no pool,
//! a packet in a ring in the receiver's. Here too: the look at a frame that every world takes.

use floodwall_packet::{ChecksumState, Class, PacketBuf, Pool};

/// Copies the packet's bytes to `frame`, its checksum finished. False where this wire cannot
/// finish it: a GSO frame, or a partial checksum without its place.
pub(crate) fn copy_out(packet: &PacketBuf, frame: &mut Vec<u8>) -> bool {
    for chunk in packet.chunks() {
        frame.extend_from_slice(chunk);
    }
    let offload = packet.offload();
    if offload.is_some_and(|o| o.gso_type != 0) {
        return false;
    }
    if packet.checksum_state() != ChecksumState::Partial {
        return true;
    }
    let Some(offload) = offload else { return false };
    let start = usize::from(offload.checksum_start);
    let place = start + usize::from(offload.checksum_offset);
    let check = packet.sum(start, packet.len().saturating_sub(start)).finish();
    // All ones and zero are the same number; UDP reads zero as "none" (RFC 768).
    let check = if check == 0 { 0xffff } else { check };
    match frame.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        Some(field) => {
            *field = check.to_be_bytes();
            true
        }
        None => false,
    }
}

/// Whether this Ethernet frame is an IP fragment of a TCP segment, of either family.
///
/// No host makes one: a segment's size follows the path's (RFC 9293 section 3.7). Only the first
/// extension header of IPv6 is looked at, which is where a fragmenting host puts its own.
#[must_use]
pub fn is_tcp_fragment(frame: &[u8]) -> bool {
    const TCP: u8 = 6;
    const FRAGMENT: u8 = 44;
    match frame.get(12..14) {
        Some([8, 0]) => {
            let offset = frame.get(20..).and_then(|rest| rest.first_chunk::<2>());
            let part = offset.is_some_and(|offset| u16::from_be_bytes(*offset) & 0x3fff != 0);
            part && frame.get(23) == Some(&TCP)
        }
        Some([0x86, 0xdd]) => frame.get(20) == Some(&FRAGMENT) && frame.get(54) == Some(&TCP),
        _ => false,
    }
}

/// A packet with a copy of `frame`: one frame of the pool, or a chain where it is longer. `None`
/// where the pool is empty.
pub(crate) fn copy_in(pool: &Pool, frame: &[u8]) -> Option<PacketBuf> {
    let mut packet = pool.alloc(Class::Frame)?;
    let (first, rest) = frame.split_at(frame.len().min(pool.frame_capacity()));
    if !packet.extend_from_slice(first) {
        return None;
    }
    for bytes in rest.chunks(pool.frame_capacity()) {
        let mut chunk = pool.alloc(Class::Frame)?;
        if !chunk.extend_from_slice(bytes) {
            return None;
        }
        packet.append(chunk).ok()?;
    }
    Some(packet)
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{Offload, PoolConfig};

    use super::*;

    #[test]
    fn a_partial_checksum_is_finished_on_the_wire() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let mut packet = pool.packet_from_chunks([&[9; 14][..], &[1, 2, 0, 5, 7]]).unwrap();
        packet.set_checksum_state(ChecksumState::Partial);
        let mut frame = Vec::new();
        assert!(!copy_out(&packet, &mut frame), "the checksum offset is unknown");
        let (checksum_start, checksum_offset) = (14, 2);
        packet.set_offload(Offload {
            flags: 1,
            checksum_start,
            checksum_offset,
            ..Offload::default()
        });
        frame.clear();
        assert!(copy_out(&packet, &mut frame));
        assert_eq!(frame[..16], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 2]);
        // The field held 5, as a pseudo header's sum: ~(0x0102 + 0x0005 + 0x0700).
        assert_eq!(frame[16..], [0xf7, 0xf8, 7]);
        packet.set_offload(Offload { gso_type: 1, ..Offload::default() });
        assert!(!copy_out(&packet, &mut Vec::new()), "a wire cuts nothing");
    }

    #[test]
    fn a_long_frame_becomes_a_chain_of_the_receivers_frames() {
        let pool = Pool::new(&PoolConfig { small: 0, frames: 3, ..PoolConfig::default() }).unwrap();
        let bytes: Vec<u8> = (0..4000).map(|n| n as u8).collect();
        let packet = copy_in(&pool, &bytes).unwrap();
        let mut out = Vec::new();
        assert!(copy_out(&packet, &mut out));
        assert_eq!((out == bytes, pool.available().frames), (true, 0));
        assert!(copy_in(&pool, &bytes).is_none());
    }

    #[test]
    fn fragments_of_tcp_are_told_from_other_packets_in_both_families() {
        let frame = |kind: [u8; 2], at: &[(usize, u8)]| {
            let mut bytes = vec![0; 80];
            bytes[12..14].copy_from_slice(&kind);
            at.iter().for_each(|&(place, byte)| bytes[place] = byte);
            is_tcp_fragment(&bytes)
        };
        const V4: [u8; 2] = [8, 0];
        const V6: [u8; 2] = [0x86, 0xdd];
        assert!(frame(V4, &[(23, 6), (20, 0x20)]), "the first of an IPv4 packet");
        assert!(frame(V4, &[(23, 6), (21, 1)]), "a later one");
        assert!(!frame(V4, &[(23, 6), (20, 0x40)]), "don't fragment alone");
        assert!(!frame(V4, &[(23, 17), (20, 0x20)]), "UDP");
        assert!(frame(V6, &[(20, 44), (54, 6)]), "one of IPv6");
        assert!(!frame(V6, &[(20, 44), (54, 17)]), "UDP");
        assert!(!frame(V6, &[(20, 6)]), "a whole segment");
        assert!(!is_tcp_fragment(&[8; 13]), "a short frame");
    }
}
