//! Copies of packets into the pool, for devices that cannot share their memory.
//!
//! Called by the packet socket, the switch (a flooded frame is one copy per port), the replay and
//! the disturber. Invariant: a copy is in a frame, in a GSO frame, or in a chain of full frames,
//! never in small memory, which belongs to the packets that we make.

use floodwall_packet::{Class, PacketBuf, Pool};

/// A packet with the bytes of `pieces`, `total` together; `None` where the pool lacks memory.
pub(crate) fn assemble<'a>(
    pool: &Pool,
    total: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Option<PacketBuf> {
    let mut whole: Option<PacketBuf> = None;
    let one_frame = total <= pool.frame_capacity();
    let large = if one_frame { None } else { pool.alloc(Class::Super) };
    let mut chunk = match large {
        Some(large) => large,
        None => pool.alloc(Class::Frame)?,
    };
    for mut piece in pieces {
        while !piece.is_empty() {
            if chunk.tailroom() == 0 {
                let full = core::mem::replace(&mut chunk, pool.alloc(Class::Frame)?);
                whole = join(whole, full);
                whole.as_ref()?;
            }
            let (here, rest) = piece.split_at(chunk.tailroom().min(piece.len()));
            if !chunk.extend_from_slice(here) {
                return None;
            }
            piece = rest;
        }
    }
    join(whole, chunk)
}

fn join(whole: Option<PacketBuf>, chunk: PacketBuf) -> Option<PacketBuf> {
    let Some(mut whole) = whole else { return Some(chunk) };
    whole.append(chunk).ok().map(|()| whole)
}

/// A copy of a packet with what is known of it, but for account, hash and layers.
pub(crate) fn copy_packet(pool: &Pool, packet: &PacketBuf) -> Option<PacketBuf> {
    let mut copy = assemble(pool, packet.len(), packet.chunks())?;
    describe_as(&mut copy, packet);
    Some(copy)
}

/// Gives `copy` the checksum state, the virtio header and the interface of `packet`.
pub(crate) fn describe_as(copy: &mut PacketBuf, packet: &PacketBuf) {
    copy.set_checksum_state(packet.checksum_state());
    copy.set_iface(packet.iface());
    if let Some(offload) = packet.offload() {
        copy.set_offload(offload);
    }
}

#[cfg(test)]
mod tests {
    use floodwall_packet::{ChecksumState, Offload, PoolConfig};

    use super::*;

    #[test]
    fn a_copy_has_the_bytes_in_as_few_chunks_as_the_pool_allows() {
        let bytes: Vec<u8> = (0..9000_u32).map(|i| (i % 251) as u8).collect();
        for (supers, len, chunks) in
            [(0, 60, 1), (0, 1792, 1), (0, 1793, 2), (0, 9000, 6), (1, 9000, 1)]
        {
            let pool = Pool::new(&PoolConfig { supers, ..PoolConfig::default() }).unwrap();
            let mut packet = pool.packet_from_chunks(bytes[..len].chunks(300)).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(Offload { flags: 1, ..Offload::default() });
            let copy = copy_packet(&pool, &packet).unwrap();
            assert_eq!(copy.chunk_count(), chunks, "{len}");
            assert_eq!(
                (copy.checksum_state(), copy.offload()),
                (ChecksumState::Partial, packet.offload())
            );
            let mut flat = vec![0; len];
            copy.copy_out(0, &mut flat);
            assert!(flat == bytes[..len]);
        }
    }

    #[test]
    fn an_empty_pool_gives_no_copy_and_keeps_nothing() {
        let pool = Pool::new(&PoolConfig { frames: 2, ..PoolConfig::default() }).unwrap();
        assert!(assemble(&pool, 9000, [&[1; 9000][..]]).is_none());
        assert_eq!(pool.available().frames, 2);
    }
}
