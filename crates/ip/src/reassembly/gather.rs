//! Fragments become one packet: chunks are chained, the header is made the whole datagram's.
//!
//! Called by `reassembly.rs`. Invariants: payload is copied only where a fragment wastes memory
//! (more chunks or a larger frame than its bytes need) or where the whole would have more chunks
//! than a packet may; then once, into frames. The devices' checksum results for the fragments are
//! discarded. Reading: RFC 791 section 3.2, RFC 8200 section 4.5, RFC 3168 section 5.3.

use floodwall_base::{Address, DropReason, Family, limits};
use floodwall_packet::{AccessCounters, Class, HEADROOM, PacketBuf, PacketList, Pool};
use floodwall_wire::{IpProtocol, ipv4, ipv6, ipv6_ext};

use super::piece::{FragmentPiece, LENGTH_MAX};
use crate::input::ArrivedHeading;

/// Spare chunks for the code that answers the datagram.
const CHUNKS_SPARE: usize = 4;
/// Bytes of a descriptor in addition to its frame.
const DESCRIPTOR_BYTES: usize = 128;

/// One value of the congestion field as a bit.
pub(super) const fn ecn_bit(ecn: u8) -> u8 {
    1 << (ecn & 3)
}
/// Not capable; congestion experienced.
const NOT_CAPABLE: u8 = ecn_bit(0);
const CONGESTION: u8 = ecn_bit(3);

/// True bytes of a frame of the pool.
fn frame_size(pool: &Pool) -> usize {
    pool.frame_capacity() + HEADROOM + DESCRIPTOR_BYTES
}

/// Whether the packet is one chunk in no more than a frame, as nearly all are.
#[inline]
pub(super) fn is_one_frame(pool: &Pool, packet: &PacketBuf) -> bool {
    packet.is_contiguous() && packet.true_size() as usize <= frame_size(pool)
}

/// The packet in as few frames as hold it, if it takes more memory than that.
///
/// # Errors
/// Gives the packet back where no frame is free.
pub(super) fn compact(pool: &Pool, packet: PacketBuf) -> Result<PacketBuf, PacketBuf> {
    if is_one_frame(pool, &packet) {
        return Ok(packet);
    }
    let (frame_bytes, true_size) = (frame_size(pool), packet.true_size() as usize);
    let frames = packet.len() / pool.frame_capacity() + 2;
    let wasteful = packet.chunk_count() > frames || true_size > frames * frame_bytes;
    if !wasteful {
        return Ok(packet);
    }
    match copy_of(pool, packet.chunks()) {
        Some(mut copy) => {
            copy.set_iface(packet.iface());
            copy.set_link_group(packet.is_link_group());
            Ok(copy)
        }
        None => Err(packet),
    }
}

/// The bytes in frames of their own. `None` where the pool is empty.
pub(super) fn copy_of<'a>(
    pool: &Pool,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> Option<PacketBuf> {
    let mut done = PacketList::new();
    let mut last = pool.alloc(Class::Frame)?;
    for mut bytes in chunks {
        while !bytes.is_empty() {
            if last.tailroom() == 0 {
                done.push_back(core::mem::replace(&mut last, pool.alloc(Class::Frame)?));
            }
            let (now, later) = bytes.split_at_checked(last.tailroom()).unwrap_or((bytes, &[]));
            if !last.extend_from_slice(now) {
                return None;
            }
            bytes = later;
        }
    }
    done.push_back(last);
    let mut first = done.pop_front()?;
    first.append_all(done).ok()?;
    Some(first)
}

/// One packet of all that a datagram's packets hold.
///
/// # Errors
/// `NoBuffer` where they must be copied and the pool is empty.
pub(super) fn chain(pool: &Pool, mut packets: PacketList) -> Result<PacketBuf, DropReason> {
    let mut first = packets.pop_front().ok_or(DropReason::NoBuffer)?;
    let left = match first.append_all(packets) {
        Ok(()) if first.chunk_count() + CHUNKS_SPARE <= limits::CHUNKS_MAX => return Ok(first),
        Ok(()) => PacketList::new(),
        Err(left) => left,
    };
    let chunks = first.chunks().chain(left.iter().flat_map(PacketBuf::chunks));
    let mut whole = copy_of(pool, chunks).ok_or(DropReason::NoBuffer)?;
    whole.set_iface(first.iface());
    whole.set_link_group(first.is_link_group());
    Ok(whole)
}

/// The congestion field of the whole, of the values that its fragments had: congestion anywhere is
/// congestion, and congestion marks together with not-ECT fragments are invalid.
pub(super) fn ecn_of(seen: u8, first: u8) -> Result<u8, DropReason> {
    match (seen & CONGESTION != 0, seen & NOT_CAPABLE != 0) {
        (true, true) => Err(DropReason::FragmentMalformed),
        (true, false) => Ok(3),
        (false, _) => Ok(first),
    }
}

/// Gives `packet`, which begins with the first fragment's headers, the header of a datagram of
/// `total` bytes, and returns that header's values.
///
/// # Errors
/// `FragmentMalformed` where the datagram is longer than the length field allows, `NoBuffer`.
pub(super) fn head<A: Address>(
    pool: &Pool,
    packet: &mut PacketBuf,
    first: &FragmentPiece<A>,
    total: usize,
    ecn: u8,
    access: &mut AccessCounters,
) -> Result<ArrivedHeading<A>, DropReason> {
    let total_len = first.repeated + total;
    let mut heading = ArrivedHeading { total_len, is_fragment: false, ..first.heading };
    if A::FAMILY == Family::V4 {
        let bytes = packet
            .pulldown(pool, first.l3, first.repeated, access)
            .map_err(|_| DropReason::NoBuffer)?;
        head_v4(bytes, total_len, ecn)?;
        return Ok(heading);
    }
    let len = first.payload();
    let bytes = packet.pulldown(pool, 0, len, access).map_err(|_| DropReason::NoBuffer)?;
    let at = first.l3 + first.announced_at;
    *bytes.get_mut(at).ok_or(DropReason::FragmentMalformed)? = first.protocol.0;
    // The fragment header is removed: what is before it moves up.
    let kept = first.l3 + first.repeated;
    bytes.copy_within(..kept, ipv6_ext::HEADER_LEN_MIN);
    let header = bytes
        .get_mut(ipv6_ext::HEADER_LEN_MIN + first.l3..)
        .and_then(|bytes| bytes.first_chunk_mut::<{ ipv6::HEADER_LEN }>())
        .ok_or(DropReason::FragmentMalformed)?;
    let payload_len =
        total_len.checked_sub(ipv6::HEADER_LEN).and_then(|len| u16::try_from(len).ok());
    [header[4], header[5]] = payload_len.ok_or(DropReason::FragmentMalformed)?.to_be_bytes();
    header[1] = header[1] & !0x30 | ecn << 4;
    heading.protocol = IpProtocol(header[6]);
    packet.trim_front(ipv6_ext::HEADER_LEN_MIN);
    Ok(heading)
}

fn head_v4(bytes: &mut [u8], total_len: usize, ecn: u8) -> Result<(), DropReason> {
    if total_len > LENGTH_MAX {
        return Err(DropReason::FragmentMalformed);
    }
    let header =
        bytes.first_chunk_mut::<{ ipv4::HEADER_LEN }>().ok_or(DropReason::FragmentMalformed)?;
    header[1] = header[1] & !3 | ecn;
    [header[2], header[3]] = (total_len as u16).to_be_bytes();
    [header[6], header[7]] = [0, 0];
    [header[10], header[11]] = [0, 0];
    let check = floodwall_checksum::sum(bytes).finish();
    if let Some(field) = bytes.get_mut(10..12) {
        field.copy_from_slice(&check.to_be_bytes());
    }
    Ok(())
}
