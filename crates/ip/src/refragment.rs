//! Fragmenting a forwarded IPv4 packet for the next link, as routers do.
//!
//! Called by `stack/forward.rs` for a packet that may be fragmented, after its TTL was decremented.
//! Unlike locally generated packets (`fragment.rs`) it keeps its identification, may be a fragment
//! already, and may have options: all of them stay in the first piece, those marked "copied" in the
//! others. Invariants: the payload is shared, never copied; all pieces are made or none; no piece
//! is larger than the link, nor ends beyond what the packet did. Reading: RFC 791 section 3.2 ("An
//! Example Fragmentation Procedure") and page 15 (copied options), RFC 6864 section 4.3.

use floodwall_base::DropReason;
use floodwall_checksum::sum;
use floodwall_packet::{PacketBuf, PacketList, Pool};
use floodwall_wire::{Ipv4Header, ipv4};

/// Pieces carry a multiple of this, the last one apart.
const FRAGMENT_UNIT: usize = 8;
/// The flag "more fragments" among the upper bits of the offset.
const MORE_FRAGMENTS: u16 = 0x2000;

/// One piece's header, options included.
struct RefragmentSource {
    bytes: [u8; ipv4::HEADER_LEN_MAX],
    len: usize,
}

/// Cuts `packet`, which begins with its IPv4 header, into pieces of at most `mtu` bytes. Cost: one
/// small chunk for each piece, one reference for each chunk touched.
///
/// # Errors
/// The packet and `NoBuffer` where the pool has not enough for all, `PacketTooBig` where not even
/// eight bytes fit behind the header.
pub fn recut(
    pool: &Pool,
    packet: PacketBuf,
    mtu: usize,
) -> Result<PacketList, (PacketBuf, DropReason)> {
    let Some((first, offset, more)) = header_of(&packet) else {
        return Err((packet, DropReason::PacketTooBig));
    };
    let later = first.for_later();
    let (mut pieces, mut done) = (PacketList::new(), 0);
    let total = packet.len() - first.len;
    while done < total {
        let header = if done == 0 { &first } else { &later };
        let room = mtu.saturating_sub(header.len);
        let left = total - done;
        let len = if left <= room { left } else { room & !(FRAGMENT_UNIT - 1) };
        if len == 0 {
            return Err((packet, DropReason::PacketTooBig));
        }
        let place = (offset + done, more || done + len < total);
        let Some(mut piece) = piece(pool, &packet, header, (first.len + done, len), place) else {
            return Err((packet, DropReason::NoBuffer));
        };
        piece.set_iface(packet.iface());
        pieces.push_back(piece);
        done += len;
    }
    Ok(pieces)
}

/// The packet's header, where its payload belongs in bytes, and whether more follows it.
fn header_of(packet: &PacketBuf) -> Option<(RefragmentSource, usize, bool)> {
    let mut bytes = [0; ipv4::HEADER_LEN_MAX];
    let copied = packet.copy_out(0, &mut bytes);
    let header = Ipv4Header::parse(bytes.get(..copied)?, packet.len()).ok()?;
    let (len, offset, more) =
        (header.header_len(), header.fragment_offset(), header.more_fragments());
    Some((RefragmentSource { bytes, len }, offset, more))
}

fn piece(
    pool: &Pool,
    packet: &PacketBuf,
    header: &RefragmentSource,
    (from, len): (usize, usize),
    (offset, more): (usize, bool),
) -> Option<PacketBuf> {
    let slice = packet.share(pool, from, len)?;
    let mut piece = slice.push_header(pool, header.len).ok()?;
    let out = piece.first_mut()?.get_mut(..header.len)?;
    out.copy_from_slice(header.bytes.get(..header.len)?);
    let fixed = out.first_chunk_mut::<{ ipv4::HEADER_LEN }>()?;
    let total_len = u16::try_from(header.len + len).ok()?;
    let place = u16::try_from(offset / FRAGMENT_UNIT).ok()? | if more { MORE_FRAGMENTS } else { 0 };
    [fixed[2], fixed[3]] = total_len.to_be_bytes();
    [fixed[6], fixed[7]] = place.to_be_bytes();
    [fixed[10], fixed[11]] = [0, 0];
    let check = sum(out).finish();
    let fixed = out.first_chunk_mut::<{ ipv4::HEADER_LEN }>()?;
    [fixed[10], fixed[11]] = check.to_be_bytes();
    Some(piece)
}

impl RefragmentSource {
    /// The same with the copied options only.
    fn for_later(&self) -> Self {
        let mut later = Self { bytes: [0; ipv4::HEADER_LEN_MAX], len: ipv4::HEADER_LEN };
        if let (Some(out), Some(fixed)) = (
            later.bytes.first_chunk_mut::<{ ipv4::HEADER_LEN }>(),
            self.bytes.first_chunk::<{ ipv4::HEADER_LEN }>(),
        ) {
            *out = *fixed;
        }
        let mut rest = self.bytes.get(ipv4::HEADER_LEN..self.len).unwrap_or_default();
        while let Some((kind, after)) = rest.split_first() {
            let len = match (*kind, after.first()) {
                (0, _) => break,
                (1, _) => 1,
                (_, Some(len)) => usize::from(*len).max(2),
                (_, None) => break,
            };
            let Some((option, behind)) = rest.split_at_checked(len) else { break };
            // Padding between options belongs to no option.
            if *kind & 0x80 != 0
                && let Some(out) = later.bytes.get_mut(later.len..later.len + len)
            {
                out.copy_from_slice(option);
                later.len += len;
            }
            rest = behind;
        }
        later.len = later.len.next_multiple_of(4);
        later.bytes[0] = 0x40 | (later.len / 4) as u8;
        later
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use floodwall_packet::PoolConfig;
    use floodwall_wire::{IpProtocol, Ipv4Fields};

    use super::*;

    /// A packet with these options, so much payload, and this place in its datagram.
    fn packet(pool: &Pool, options: &[u8], len: usize, place: (u16, bool)) -> PacketBuf {
        let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
        let total_len = (ipv4::HEADER_LEN + options.len() + len) as u16;
        let mut fields = Ipv4Fields::new(from, to, IpProtocol::UDP, 64, total_len);
        (fields.id, fields.fragment_offset, fields.more_fragments) = (0xbeef, place.0, place.1);
        let mut header = [0; ipv4::HEADER_LEN_MAX];
        let header_len = fields.emit_with_options(options, &mut header).unwrap();
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let parts = [&header[..header_len], &payload[..len / 3], &payload[len / 3..]];
        pool.packet_from_chunks(parts).unwrap()
    }

    fn bytes_of(packet: &PacketBuf) -> Vec<u8> {
        packet.chunks().flatten().copied().collect()
    }

    #[test]
    fn pieces_fit_keep_their_name_and_make_the_whole_again() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let free = pool.available();
        for (len, mtu, place) in
            [(1480, 576, (0, false)), (1480, 1000, (1480, true)), (999, 68, (2960, false))]
        {
            let pieces = recut(&pool, packet(&pool, &[], len, place), mtu).unwrap();
            let (mut next, mut payload) = (usize::from(place.0), Vec::new());
            let count = pieces.len();
            for (n, piece) in pieces.iter().enumerate() {
                let bytes = bytes_of(piece);
                // Parsing verifies the sum.
                let header = Ipv4Header::parse(&bytes, bytes.len()).unwrap();
                assert!(bytes.len() <= mtu && header.total_len() == bytes.len());
                assert_eq!((header.id(), header.fragment_offset()), (0xbeef, next));
                assert_eq!(header.more_fragments(), place.1 || n + 1 < count);
                next += bytes.len() - ipv4::HEADER_LEN;
                payload.extend_from_slice(&bytes[ipv4::HEADER_LEN..]);
            }
            assert!(count > 1 && payload.len() == len);
            assert!(payload.iter().enumerate().all(|(n, byte)| *byte == n as u8));
        }
        assert_eq!(pool.available(), free);
    }

    #[test]
    fn options_that_are_not_to_be_copied_stay_in_the_first_piece() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        // A timestamp (not copied), padding, a router alert (copied).
        let options = [0x44, 8, 5, 0, 0, 0, 0, 0, 1, 0x94, 4, 0, 0, 1, 1, 0];
        let pieces = recut(&pool, packet(&pool, &options, 1000, (0, false)), 576).unwrap();
        let all: Vec<_> = pieces.iter().map(bytes_of).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0][20..36], options);
        let later = Ipv4Header::parse(&all[1], all[1].len()).unwrap();
        assert_eq!((later.header_len(), later.options_bytes()), (24, &[0x94, 4, 0, 0][..]));
        let sent: usize = all.iter().map(|b| b.len()).sum();
        assert_eq!(sent, 36 + 24 + 1000);
    }

    #[test]
    fn what_no_piece_has_room_for_is_given_back() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let free = pool.available();
        let (back, reason) = recut(&pool, packet(&pool, &[], 100, (0, false)), 27).unwrap_err();
        assert_eq!((back.len(), reason), (120, DropReason::PacketTooBig));
        drop(back);
        assert_eq!(pool.available(), free);
    }
}
