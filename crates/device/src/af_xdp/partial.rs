//! Partial checksums (checksum offload) on frames that arrive without offload metadata.
//!
//! Called by `af_xdp.rs` on interfaces with this machine's own kernel as peer (a veth). That
//! kernel leaves the checksum to the card, and there is no card. Other devices report this in a
//! virtio header; an XDP program gets no such report. The checksum field then holds the pseudo
//! header's sum, folded and not inverted. A packet with exactly that value is marked as having a
//! partial checksum, as the header would have done. Invariant: on every other interface a packet
//! needs a valid checksum. A packet that was damaged into this state is not detected, once in
//! 65,536; between two ends of one machine's memory nothing is damaged.
//!
//! Not here: fragments and packets with extension headers, which the kernel sends with complete
//! checksums; VLAN tags.

use floodwall_checksum::Accumulator;
use floodwall_packet::{ChecksumState, Offload, PacketBuf};

const LINK_BYTES: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where the upper header starts, its protocol, its bytes, and the pseudo header's sum.
struct PartialUpper {
    start: usize,
    protocol: u8,
    sum: Accumulator,
}

/// Describes `packet` as unfinished where it is so.
pub(crate) fn describe(packet: &mut PacketBuf) {
    let Some(offload) = unfinished(packet.first()) else { return };
    packet.set_checksum_state(ChecksumState::Partial);
    packet.set_offload(offload);
}

fn unfinished(frame: &[u8]) -> Option<Offload> {
    let upper = match frame.get(12..LINK_BYTES)? {
        [0x08, 0x00] => over_v4(frame)?,
        [0x86, 0xdd] => over_v6(frame)?,
        _ => return None,
    };
    let field = match upper.protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let stands: [u8; 2] = *frame.get(upper.start + field..)?.first_chunk()?;
    // `finish` inverts; the field holds what comes before that.
    (u16::from_be_bytes(stands) == !upper.sum.finish()).then_some(Offload {
        flags: 1,
        checksum_start: upper.start as u16,
        checksum_offset: field as u16,
        ..Offload::default()
    })
}

fn over_v4(frame: &[u8]) -> Option<PartialUpper> {
    let header: &[u8; 20] = frame.get(LINK_BYTES..)?.first_chunk()?;
    let len = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[0] >> 4 != 4 || len < 20 || is_fragment || total < len {
        return None;
    }
    let protocol = header[9];
    Some(PartialUpper {
        start: LINK_BYTES + len,
        protocol,
        sum: pseudo(&header[12..20], protocol, total - len),
    })
}

fn over_v6(frame: &[u8]) -> Option<PartialUpper> {
    let header: &[u8; 40] = frame.get(LINK_BYTES..)?.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (protocol, len) = (header[6], usize::from(u16::from_be_bytes([header[4], header[5]])));
    Some(PartialUpper {
        start: LINK_BYTES + 40,
        protocol,
        sum: pseudo(&header[8..40], protocol, len),
    })
}

fn pseudo(addresses: &[u8], protocol: u8, len: usize) -> Accumulator {
    let mut sum = Accumulator::new();
    sum.add(addresses);
    sum.add(&[0, protocol]);
    sum.add(&(len as u32).to_be_bytes());
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        if v6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((payload.len() as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend((0..32).map(|n| n * 7));
        } else {
            bytes.extend([0x08, 0x00, 0x45, 0]);
            bytes.extend((20 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 1, 2, 3, 10, 1, 2, 4]);
        }
        bytes.extend(payload);
        bytes
    }

    /// The sum of what begins at `start`, addresses and protocol included, folded.
    fn sum_of(v6: bool, bytes: &[u8], with_payload: bool) -> u16 {
        let start = if v6 { 54 } else { 34 };
        let addresses = if v6 { &bytes[22..54] } else { &bytes[26..34] };
        let protocol = if v6 { bytes[20] } else { bytes[23] };
        let mut sum = pseudo(addresses, protocol, bytes.len() - start);
        if with_payload {
            sum.add(&bytes[start..]);
        }
        !sum.finish()
    }

    #[test]
    fn what_holds_the_pseudo_headers_sum_only_is_unfinished_and_nothing_else_is() {
        for (v6, protocol, field) in
            [(false, UDP, 6), (true, UDP, 6), (false, TCP, 16), (true, TCP, 16)]
        {
            let mut bytes = frame(v6, protocol, &[9; 40]);
            let start = if v6 { 54 } else { 34 };
            bytes[start + field..start + field + 2].fill(0);
            let seed = sum_of(v6, &bytes, false);
            bytes[start + field..start + field + 2].copy_from_slice(&seed.to_be_bytes());
            let found = unfinished(&bytes).unwrap();
            assert_eq!(
                (found.flags, found.checksum_start, found.checksum_offset),
                (1, start as u16, field as u16)
            );
            // The finished sum, and any other, is not.
            bytes[start + field..start + field + 2].fill(0);
            let whole = !sum_of(v6, &bytes, true);
            for other in [whole, seed ^ 1, 0] {
                bytes[start + field..start + field + 2].copy_from_slice(&other.to_be_bytes());
                assert_eq!(unfinished(&bytes), None, "v6 {v6} {protocol} {other:#x}");
            }
        }
    }

    #[test]
    fn fragments_other_protocols_and_cut_frames_are_left_alone() {
        let mut bytes = frame(false, UDP, &[9; 40]);
        bytes[40..42].fill(0);
        let seed = sum_of(false, &bytes, false);
        bytes[40..42].copy_from_slice(&seed.to_be_bytes());
        assert!(unfinished(&bytes).is_some());
        for cut in 0..42 {
            assert_eq!(unfinished(&bytes[..cut]), None, "{cut}");
        }
        let mut fragment = bytes.clone();
        fragment[20] = 0x20;
        assert_eq!(unfinished(&fragment), None);
        let mut other = bytes.clone();
        other[23] = 1;
        assert_eq!(unfinished(&other), None);
        let mut version = bytes;
        version[14] = 0x55;
        assert_eq!(unfinished(&version), None);
    }
}
