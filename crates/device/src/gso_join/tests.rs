//! Runs of segments against an oracle that cuts as the system does; what must not be joined.

use floodwall_checksum::Accumulator;
use floodwall_packet::{ChecksumState, Pool, PoolConfig};

use super::*;

const LINK: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0];

/// A whole packet with timestamps: `text` bytes from `seq` on.
fn segment(v6: bool, link: bool, seq: u32, flags: u8, text: usize) -> Vec<u8> {
    let mut tcp = vec![0x1f, 0x90, 0xc0, 0x01];
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 9, 0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
    tcp.extend((0..text).map(|at| (seq as usize + at) as u8));
    let len = tcp.len();
    let mut packet = if link { LINK.to_vec() } else { Vec::new() };
    let pseudo = if v6 {
        let (from, to) = (Ipv6Addr::LOCALHOST, Ipv6Addr::from(7));
        packet.extend([0x60, 0, 0, 0, (len >> 8) as u8, len as u8, TCP, 64]);
        packet.extend(from.octets().iter().chain(&to.octets()));
        pseudo_header_v6(from, to, TCP, len as u32)
    } else {
        let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let whole = (20 + len) as u16;
        let mut ip = vec![0x45, 0, (whole >> 8) as u8, whole as u8, 0, 0, 0x40, 0, 64, TCP, 0, 0];
        ip.extend(from.octets().iter().chain(&to.octets()));
        let check = sum(&ip).finish();
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        packet.extend(ip);
        pseudo_header_v4(from, to, TCP, len as u16)
    };
    if link {
        packet[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
    }
    let check = Accumulator::with(pseudo).add(&tcp).finish();
    tcp[16..18].copy_from_slice(&check.to_be_bytes());
    packet.extend(tcp);
    packet
}

fn list(pool: &Pool, packets: &[Vec<u8>]) -> PacketList {
    let mut list = PacketList::new();
    for bytes in packets {
        // Headers in one chunk, payload in two more, as a send buffer shares it.
        let cut = bytes.len() - 7;
        let chunks = [&bytes[..90.min(cut)], &bytes[90.min(cut)..cut], &bytes[cut..]];
        list.push_back(pool.packet_from_chunks(chunks).unwrap());
    }
    list
}

fn medium(link: bool) -> Medium {
    if link { Medium::Ethernet } else { Medium::Ip }
}

/// What the system does with a GSO frame: this is the oracle.
fn cut(whole: &[u8], v6: bool, link: bool) -> Vec<Vec<u8>> {
    let offload = vnet::decode(whole[..VNET_BYTES].try_into().unwrap());
    assert_eq!((offload.flags, offload.gso_type), (1, if v6 { 4 } else { 1 }));
    assert_eq!(
        usize::from(offload.checksum_start),
        if link { 14 } else { 0 } + if v6 { 40 } else { 20 }
    );
    assert_eq!(offload.checksum_offset, 16);
    let frame = &whole[VNET_BYTES..];
    let (heads, text) = frame.split_at(usize::from(offload.header_len));
    let l4 = usize::from(offload.checksum_start);
    let seq = u32::from_be_bytes(heads[l4 + 4..l4 + 8].try_into().unwrap());
    let size = usize::from(offload.gso_size);
    let last = text.len().div_ceil(size) - 1;
    let piece = |(n, text): (usize, &[u8])| {
        let flags = heads[l4 + 13] & !if n < last { PSH | FIN } else { 0 };
        let mut piece = segment(v6, link, seq.wrapping_add((n * size) as u32), flags, 0);
        piece.extend(text);
        // Lengths and checksums as the sender's own.
        let own = segment(v6, link, seq.wrapping_add((n * size) as u32), flags, text.len());
        piece[..l4 + 18].copy_from_slice(&own[..l4 + 18]);
        piece
    };
    text.chunks(size).enumerate().map(piece).collect()
}

fn flat(run: &JoinRun, packets: &PacketList) -> Vec<u8> {
    run.slices(packets).as_slice().iter().flat_map(|slice| slice.iter().copied()).collect()
}

#[test]
fn what_the_system_cuts_apart_is_what_was_joined() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    for (v6, link) in [(false, false), (false, true), (true, false), (true, true)] {
        for (texts, last) in [(vec![1448; 9], ACK), (vec![1000, 1000, 8], ACK | PSH | FIN)] {
            let mut seq = u32::MAX - 2000;
            let mut packets = Vec::new();
            for (n, text) in texts.iter().enumerate() {
                let flags = if n + 1 == texts.len() { last } else { ACK };
                packets.push(segment(v6, link, seq, flags, *text));
                seq = seq.wrapping_add(*text as u32);
            }
            let list = list(&pool, &packets);
            let run = JoinRun::at_front(&list, medium(link), &RunLimits::NONE).unwrap();
            assert_eq!(run.count, texts.len());
            let whole = flat(&run, &list);
            assert!(cut(&whole, v6, link) == packets, "v6 {v6}, link {link}");
            let l3 = VNET_BYTES + if link { 14 } else { 0 };
            let ip = &whole[l3..];
            let said = if v6 {
                40 + 256 * usize::from(ip[4]) + usize::from(ip[5])
            } else {
                256 * usize::from(ip[2]) + usize::from(ip[3])
            };
            assert_eq!(said, ip.len());
            assert!(v6 || sum(&ip[..20]).verifies());
            // The field holds the pseudo-header's sum: with it the rest sums up to what it lacks.
            let l4 = if v6 { 40 } else { 20 };
            let segment_len = ip.len() - l4;
            let pseudo = if v6 {
                pseudo_header_v6(Ipv6Addr::LOCALHOST, Ipv6Addr::from(7), TCP, segment_len as u32)
            } else {
                pseudo_header_v4(
                    [10, 0, 0, 1].into(),
                    [10, 0, 0, 2].into(),
                    TCP,
                    segment_len as u16,
                )
            };
            assert_eq!(ip[l4 + 16..l4 + 18], pseudo.fold().to_be_bytes());
        }
    }
}

#[test]
fn what_differs_in_anything_else_is_not_joined() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    for v6 in [false, true] {
        let (first, second) =
            (segment(v6, true, 100, ACK, 1000), segment(v6, true, 1100, ACK, 1000));
        let joined = |first: &Vec<u8>, second: &Vec<u8>| {
            let list = list(&pool, &[first.clone(), second.clone()]);
            JoinRun::at_front(&list, Medium::Ethernet, &RunLimits::NONE).map_or(1, |run| run.count)
        };
        assert_eq!(joined(&first, &second), 2);
        let (l4, end) = if v6 { (54, 86) } else { (34, 66) };
        let (own_v4, own_v6) = ([16, 17, 18, 19, 24, 25], [18, 19]);
        let own: &[usize] = if v6 { &own_v6 } else { &own_v4 };
        let own = |at: &usize| own.contains(at) || [l4 + 16, l4 + 17].contains(at);
        for at in (0..end).filter(|at| !own(at)) {
            let mut other = second.clone();
            other[at] ^= 0x42;
            assert_eq!(joined(&first, &other), 1, "byte {at}, v6 {v6}");
        }
        // Longer than the first, without text, of a first that ends with PSH.
        assert_eq!(joined(&first, &segment(v6, true, 1100, ACK, 1001)), 1);
        assert_eq!(joined(&first, &segment(v6, true, 1100, ACK, 0)), 1);
        assert_eq!(joined(&segment(v6, true, 100, ACK | PSH, 1000), &second), 1);
        // Padding is no text, and a description of another kind is not ours to change.
        let mut padded = second.clone();
        padded.extend([0; 9]);
        assert_eq!(joined(&first, &padded), 1);
        let mut described = list(&pool, std::slice::from_ref(&first));
        let mut partial = pool.packet_from(&second).unwrap();
        partial.set_checksum_state(ChecksumState::Partial);
        described.push_back(partial);
        assert!(JoinRun::at_front(&described, Medium::Ethernet, &RunLimits::NONE).is_none());
        // A segment with the checksum offsets that the joined one will have.
        for (start, joined) in [(l4, 2), (l4 - 2, 1)] {
            let mut left = list(&pool, std::slice::from_ref(&first));
            let mut partial = pool.packet_from(&second).unwrap();
            partial.set_checksum_state(ChecksumState::Partial);
            partial.set_offload(Offload {
                flags: 1,
                checksum_start: start as u16,
                checksum_offset: 16,
                ..Offload::default()
            });
            left.push_back(partial);
            let run = JoinRun::at_front(&left, Medium::Ethernet, &RunLimits::NONE);
            assert_eq!(run.map_or(1, |run| run.count), joined);
        }
        assert!(
            JoinRun::at_front(&list(&pool, &[first]), Medium::Ethernet, &RunLimits::NONE).is_none()
        );
    }
    assert!(JoinRun::at_front(&PacketList::new(), Medium::Ip, &RunLimits::NONE).is_none());
}

#[test]
fn a_run_ends_with_the_short_one_the_marked_one_and_what_a_packet_holds() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    for v6 in [false, true] {
        let run = |segments: &[(u8, usize)]| {
            let mut seq = 5_u32;
            let mut packets = Vec::new();
            for (flags, text) in segments {
                packets.push(segment(v6, false, seq, *flags, *text));
                seq += *text as u32;
            }
            let mut all = PacketList::new();
            packets.iter().for_each(|bytes| all.push_back(pool.packet_from(bytes).unwrap()));
            let run = JoinRun::at_front(&all, Medium::Ip, &RunLimits::NONE).unwrap();
            assert!(flat(&run, &all).len() <= VNET_BYTES + WHOLE_MAX);
            run.count
        };
        assert_eq!(run(&[(ACK, 500), (ACK, 500), (ACK, 499), (ACK, 499)]), 3);
        assert_eq!(run(&[(ACK, 500), (ACK | PSH, 500), (ACK, 500)]), 2);
        assert_eq!(run(&[(ACK, 1448); 60]), 45);
        assert_eq!(run(&[(ACK, 100); 80]), SLICES_MAX - 2);
    }
}

#[test]
fn a_run_stays_within_what_the_interface_takes() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    for v6 in [false, true] {
        let packets: Vec<_> = (0..30).map(|n| segment(v6, true, n * 1000, ACK, 1000)).collect();
        let all = list(&pool, &packets);
        let heads = if v6 { 86 } else { 66 };
        let count = |limits: RunLimits| {
            let run = JoinRun::at_front(&all, Medium::Ethernet, &limits)?;
            assert_eq!(run.piece, heads - 14 + 1000);
            Some(run.count)
        };
        let bytes = |most: usize| match v6 {
            true => RunLimits { bytes_v6: most, ..RunLimits::NONE },
            false => RunLimits { bytes_v4: most, ..RunLimits::NONE },
        };
        assert_eq!(count(bytes(heads + 7000)), Some(7));
        assert_eq!(count(bytes(heads + 6999)), Some(6));
        assert_eq!((count(bytes(heads + 1999)), count(bytes(0))), (None, None));
        for (segments, joined) in [(0, None), (1, None), (2, Some(2)), (9, Some(9))] {
            assert_eq!(count(RunLimits { segments, ..RunLimits::NONE }), joined);
        }
        let other = match v6 {
            true => RunLimits { bytes_v4: 0, ..RunLimits::NONE },
            false => RunLimits { bytes_v6: 0, ..RunLimits::NONE },
        };
        assert_eq!(count(other), Some((SLICES_MAX - 2) / 3), "each family has its own");
    }
}

#[test]
fn what_leaves_alone_ends_where_a_run_begins() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    for v6 in [false, true] {
        let alone_before = |flags: &[(u32, u8, usize)], most: usize| {
            let mut all = PacketList::new();
            for (seq, flags, text) in flags {
                all.push_back(pool.packet_from(&segment(v6, true, *seq, *flags, *text)).unwrap());
            }
            alone(&all, Medium::Ethernet, most)
        };
        let plain = [(1, ACK, 0), (1, ACK, 0), (9, ACK | PSH, 5)];
        assert_eq!((alone_before(&plain, 16), alone_before(&plain, 2)), (3, 2));
        let behind = [plain[0], plain[1], (100, ACK, 50), (150, ACK, 50), (200, ACK, 50)];
        assert_eq!(alone_before(&behind, 16), 2);
        // A first segment that cannot be joined with its second for lack of room leaves all the
        // same.
        assert_eq!(alone_before(&behind[2..], 16), 1);
        assert_eq!(alone_before(&[], 16), 0);
    }
}
