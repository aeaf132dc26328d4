//! A payload that programs hold in pieces becomes one packet, and is summed while it is copied.
//!
//! Called by `output.rs` and for the answers of challenges. Nothing but the pool is touched.

use floodwall_checksum::{Accumulator, InternetSum, copy_sum};
use floodwall_packet::{Class, PacketBuf, Pool};

/// A packet with a copy of `payload` behind `front` bytes to be written, and the payload's sum:
/// for [`Udp::output_in_place`](crate::Udp::output_in_place). `None` where the pool has no room, or
/// `front` is more than
/// [`HEADROOM_SMALL`](floodwall_packet::HEADROOM_SMALL).
#[must_use]
pub fn gather(pool: &Pool, front: usize, payload: &[&[u8]]) -> Option<(PacketBuf, InternetSum)> {
    fill(pool, front, payload, payload.iter().map(|piece| piece.len()).sum())
}

/// A packet with `headers` bytes to be written and the payload behind, in the smallest class that
/// holds it, and the payload's sum.
#[inline]
pub(crate) fn fill(
    pool: &Pool,
    headers: usize,
    payload: &[&[u8]],
    len: usize,
) -> Option<(PacketBuf, InternetSum)> {
    let Some(mut packet) = pool.alloc_laid_out(headers, len) else {
        return fill_chain(pool, headers, payload);
    };
    let mut room = packet.first_mut()?.get_mut(headers..)?;
    if let [whole] = payload {
        let sum = copy_sum(room, whole);
        return Some((packet, sum));
    }
    let mut sum = Accumulator::new();
    for piece in payload {
        let (here, rest) = room.split_at_mut_checked(piece.len())?;
        sum.append(copy_sum(here, piece), piece.len());
        room = rest;
    }
    Some((packet, sum.sum()))
}

/// The same in a chain of frames.
#[cold]
fn fill_chain(pool: &Pool, headers: usize, payload: &[&[u8]]) -> Option<(PacketBuf, InternetSum)> {
    let mut packet = pool.alloc(Class::Frame)?;
    packet.prepend(headers)?;
    let mut sum = Accumulator::new();
    let mut last: Option<PacketBuf> = None;
    for piece in payload {
        let mut piece = *piece;
        while !piece.is_empty() {
            let chunk = match &mut last {
                Some(chunk) if chunk.tailroom() > 0 => chunk,
                full => {
                    if let Some(full) = full.take() {
                        packet.append(full).ok()?;
                    }
                    full.insert(pool.alloc(Class::Frame)?)
                }
            };
            let here = chunk.tailroom().min(piece.len());
            let (now, later) = piece.split_at_checked(here)?;
            sum.append(copy_sum(chunk.extend(here)?, now), here);
            piece = later;
        }
    }
    if let Some(last) = last {
        packet.append(last).ok()?;
    }
    Some((packet, sum.sum()))
}
