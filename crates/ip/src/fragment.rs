//! Fragmenting a locally generated packet that is larger than its link's MTU.
//!
//! Called by `stack` for a packet with a complete IP header, at the last moment before its link
//! header: what waits for a neighbour waits whole. Invariants: the payload is shared, never copied;
//! all fragments are made or none; every one but the last carries a multiple of eight bytes; no two
//! overlap. The caller gives the identification, from a secret source for each packet anew (RFC
//! 6864, RFC 7739 section 5.2): a remote peer cannot guess the next one, and there is no state to
//! exhaust. Reading: RFC 791 section 3.2, RFC 8200 section 4.5. Not here: packets with options or
//! extension headers, which we make short only; forwarding.

use floodwall_base::{Address, DropReason, Family};
use floodwall_packet::{PacketBuf, PacketList, Pool};
use floodwall_wire::ipv6_ext::{self, FragmentFields};
use floodwall_wire::{IpProtocol, Ipv4Header, ipv4, ipv6};

/// Fragments carry a multiple of this, the last one apart.
const FRAGMENT_UNIT: usize = 8;

/// Cuts `packet`, which begins with its IP header, into fragments of at most `mtu` bytes. Each is
/// a header of its own before a view of the packet's bytes. IPv4's "don't fragment" is cleared;
/// of `id` IPv4 has room for the lower half. Cost: one small chunk, one reference for each chunk
/// touched.
///
/// # Errors
/// The packet and `NoBuffer` where the pool has not enough for all fragments, `PacketTooBig` where
/// it cannot be cut.
pub fn cut<A: Address>(
    pool: &Pool,
    packet: PacketBuf,
    mtu: usize,
    id: u32,
) -> Result<PacketList, (PacketBuf, DropReason)> {
    let Some(header) = FragmentSource::of::<A>(&packet, id) else {
        return Err((packet, DropReason::PacketTooBig));
    };
    let room = mtu.saturating_sub(header.len()) & !(FRAGMENT_UNIT - 1);
    if room == 0 {
        return Err((packet, DropReason::PacketTooBig));
    }
    let (mut fragments, mut offset) = (PacketList::new(), 0);
    let total = packet.len() - header.repeated();
    while offset < total {
        let len = room.min(total - offset);
        let more = offset + len < total;
        let fragment = packet
            .share(pool, header.repeated() + offset, len)
            .and_then(|slice| slice.push_header(pool, header.len()).ok());
        let Some(mut fragment) = fragment else { return Err((packet, DropReason::NoBuffer)) };
        if let Some(out) = fragment.first_mut() {
            header.emit(out, offset, len, more);
        }
        fragment.set_iface(packet.iface());
        fragments.push_back(fragment);
        offset += len;
    }
    Ok(fragments)
}

/// What all fragments of a packet begin with.
enum FragmentSource {
    V4(floodwall_wire::Ipv4Fields),
    V6([u8; ipv6::HEADER_LEN], FragmentFields),
}

impl FragmentSource {
    /// Of a packet that can be cut.
    fn of<A: Address>(packet: &PacketBuf, id: u32) -> Option<Self> {
        let mut bytes = [0; ipv6::HEADER_LEN];
        let len = packet.copy_out(0, &mut bytes);
        if A::FAMILY == Family::V4 {
            let header = Ipv4Header::parse(bytes.get(..len)?, packet.len()).ok()?;
            let mut fields = header.fields();
            if header.header_len() != ipv4::HEADER_LEN || header.is_fragment() {
                return None;
            }
            (fields.dont_fragment, fields.id) = (false, id as u16);
            return Some(Self::V4(fields));
        }
        let next_header = IpProtocol(bytes[6]);
        if len < bytes.len() || next_header.is_extension() {
            return None;
        }
        bytes[6] = IpProtocol::FRAGMENT.0;
        let fields = FragmentFields { next_header, offset: 0, more: false, id };
        Some(Self::V6(bytes, fields))
    }

    /// Bytes of the original packet that every fragment repeats.
    const fn repeated(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::HEADER_LEN,
            Self::V6(..) => ipv6::HEADER_LEN,
        }
    }

    /// Bytes of the headers of one fragment.
    const fn len(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::HEADER_LEN,
            Self::V6(..) => ipv6::HEADER_LEN + ipv6_ext::HEADER_LEN_MIN,
        }
    }

    /// Writes the headers of the fragment that has the `len` bytes from `offset`.
    fn emit(&self, out: &mut [u8], offset: usize, len: usize, more: bool) {
        match self {
            Self::V4(fields) => {
                let Some(out) = out.first_chunk_mut() else { return };
                let mut fields = *fields;
                fields.total_len = (ipv4::HEADER_LEN + len) as u16;
                (fields.fragment_offset, fields.more_fragments) = (offset as u16, more);
                fields.emit(out);
            }
            Self::V6(header, fields) => {
                let Some((first, rest)) = out.split_first_chunk_mut() else { return };
                *first = *header;
                let payload_len = (ipv6_ext::HEADER_LEN_MIN + len) as u16;
                [first[4], first[5]] = payload_len.to_be_bytes();
                let Some(rest) = rest.first_chunk_mut() else { return };
                FragmentFields { offset: offset as u16, more, ..*fields }.emit(rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use floodwall_packet::PoolConfig;
    use floodwall_wire::Ipv4Fields;

    use super::*;

    fn packet_v4(pool: &Pool, options: &[u8], len: usize) -> PacketBuf {
        let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let total_len = (ipv4::HEADER_LEN + options.len() + len) as u16;
        let fields = Ipv4Fields::new(from, to, IpProtocol::UDP, 64, total_len);
        let mut header = [0; ipv4::HEADER_LEN_MAX];
        let header_len = fields.emit_with_options(options, &mut header).unwrap();
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let parts = [&header[..header_len], &payload[..len / 2], &payload[len / 2..]];
        pool.packet_from_chunks(parts).unwrap()
    }

    #[test]
    fn what_cannot_be_cut_is_given_back() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let free = pool.available();
        for (options, mtu) in [(&[1, 1, 1, 0][..], 576), (&[], 27)] {
            let packet = packet_v4(&pool, options, 1000);
            let len = packet.len();
            let (packet, reason) = cut::<Ipv4Addr>(&pool, packet, mtu, 1).unwrap_err();
            assert_eq!((packet.len(), reason), (len, DropReason::PacketTooBig));
        }
        let mut bytes = [0; ipv6::HEADER_LEN];
        let (from, to) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let hop = IpProtocol::HOP_BY_HOP;
        floodwall_wire::Ipv6Fields::new(from, to, hop, 64, 1400).emit(&mut bytes);
        let packet = pool.packet_from_chunks([&bytes[..], &[0; 1400]]).unwrap();
        let (_, reason) = cut::<Ipv6Addr>(&pool, packet, 1280, 1).unwrap_err();
        assert_eq!(reason, DropReason::PacketTooBig);
        assert_eq!(pool.available(), free);
    }

    #[test]
    fn the_payload_is_shared_and_each_fragment_has_its_header() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let packet = packet_v4(&pool, &[], 1500);
        let frames = pool.available().frames;
        let fragments = cut::<Ipv4Addr>(&pool, packet, 576, 0x1_2345).unwrap();
        assert_eq!(pool.available().frames, frames, "no frame was taken");
        let mut all = Vec::new();
        for fragment in fragments.iter() {
            let bytes: Vec<u8> = fragment.chunks().flatten().copied().collect();
            let header = Ipv4Header::parse(&bytes, bytes.len()).unwrap();
            assert_eq!((header.id(), header.fragment_offset()), (0x2345, all.len()));
            assert!(!header.dont_fragment() && bytes.len() <= 576);
            all.extend_from_slice(&bytes[ipv4::HEADER_LEN..]);
            assert_eq!(header.more_fragments(), all.len() < 1500);
        }
        assert!(all.iter().enumerate().all(|(n, byte)| *byte == n as u8));
        assert_eq!((all.len(), fragments.len()), (1500, 3));
    }
}
