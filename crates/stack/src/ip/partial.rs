//! Checksums that TCP leaves to the device: described for offload, or completed in software.
//!
//! Called at departure (`tx.rs`) and where a packet is cut into fragments (`cut.rs`), none of which
//! has all bytes. Such a packet was made by this stack: its TCP header is at [`PacketBuf::l4`],
//! with the pseudo-header's sum in its checksum field. One that arrived with a partial checksum and
//! is forwarded has its virtio header already. Reading: OASIS virtio 1.2, 5.1.6.2.

use floodwall_packet::{ChecksumState, Offload, PacketBuf};

/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM_AT: u16 = 16;

/// Describes the checksum offload: where the sum starts and where it is stored.
pub(crate) fn describe(packet: &mut PacketBuf) {
    if packet.offload().is_some() {
        return;
    }
    let checksum_start = packet.l4() as u16;
    packet.set_offload(Offload {
        flags: 1,
        checksum_start,
        checksum_offset: TCP_CHECKSUM_AT,
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
    let at = start + usize::from(TCP_CHECKSUM_AT);
    if let Some(field) = packet.front_mut(at + 2).and_then(|bytes| bytes.get_mut(at..)) {
        field.copy_from_slice(&check.to_be_bytes());
        packet.set_checksum_state(ChecksumState::Unverified);
    }
}
