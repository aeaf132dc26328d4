//! Copy to scratch: a header in place, or a private copy of it where it straddles.
//!
//! Models: no history but the product's own way, `PacketBuf::header` (Floodwall, `access.rs` of
//! crate `packet`), on packets cut as the others are; Linux has the same idea since 2.6
//! (`skb_header_pointer`, `include/linux/skbuff.h`).
//! Simplified: nothing; the product's code runs.
//! Serves: "scratch access never fails where the flat packet parses".

use floodwall_packet::{AccessCounters, PacketBuf, Pool};

use super::chain::Cut;

/// A packet in the product's memory, cut at the places in `cut`.
#[must_use]
pub fn packet(pool: &Pool, flat: &[u8], cut: &Cut) -> Option<PacketBuf> {
    let mut rest = flat;
    let chunks = cut.iter().map(move |&(_, len)| {
        let (chunk, behind) = rest.split_at(len.min(rest.len()));
        rest = behind;
        chunk
    });
    pool.packet_from_chunks(chunks)
}

/// The `len` bytes from `off`, in place or in `scratch`. The packet is never changed.
pub fn header<'a>(
    packet: &'a PacketBuf,
    off: usize,
    len: usize,
    scratch: &'a mut [u8],
    access: &mut AccessCounters,
) -> Option<&'a [u8]> {
    packet.header(off, len, scratch, access)
}
