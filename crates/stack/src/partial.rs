//! Checksums that TCP leaves to the device: told to it, or finished here after all.
//!
//! Called at departure (`tx.rs`) and where a packet is cut into fragments (`cut.rs`), of which none
//! has all bytes. Such a packet is one of our own, whose TCP header lies at [`PacketBuf::l4`], with
//! the pseudo-header's sum in its checksum field; one that arrived so and is passed on has its
//! virtio header already. Reading: OASIS virtio 1.2, 5.1.6.2.

use floodwall_packet::{ChecksumState, Offload, PacketBuf};

/// Where in a TCP header the checksum lies.
const OFFSET: u16 = 16;

/// Says where the sum begins and where it belongs.
pub(crate) fn describe(packet: &mut PacketBuf) {
    if packet.offload().is_some() {
        return;
    }
    let checksum_start = packet.l4() as u16;
    packet.set_offload(Offload {
        flags: 1,
        checksum_start,
        checksum_offset: OFFSET,
        ..Offload::default()
    });
}

/// Sums what a packet of ours carries.
#[cold]
pub(crate) fn finish(packet: &mut PacketBuf) {
    let start = packet.l4();
    let Some(len) = packet.len().checked_sub(start).filter(|_| packet.offload().is_none()) else {
        return;
    };
    let check = packet.sum(start, len).finish();
    let at = start + usize::from(OFFSET);
    if let Some(field) = packet.front_mut(at + 2).and_then(|bytes| bytes.get_mut(at..)) {
        field.copy_from_slice(&check.to_be_bytes());
        packet.set_checksum_state(ChecksumState::Unverified);
    }
}
