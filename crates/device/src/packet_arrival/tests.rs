//! GSO frames of datagrams against the single datagrams of their sender; false descriptions.

use core::net::{Ipv4Addr, Ipv6Addr};

use floodwall_base::Randomness;
use floodwall_checksum::{pseudo_header_v4, pseudo_header_v6, sum};
use floodwall_packet::PoolConfig;

use super::pieces::PIECES_MAX;
use super::*;
use crate::vnet::{VNET_BYTES, encode};

const TEXT: usize = 100;

/// A frame of UDP with `text` bytes, its checksum unfinished, and where UDP begins.
fn frame(v6: bool, extension: bool, id: u16, text: &[u8]) -> (Vec<u8>, usize) {
    let [a, b] = (8 + text.len() as u16).to_be_bytes();
    let heads = [0x1f, 0x90, 0x1f, 0x91, a, b, 0, 0];
    upper_frame(v6, extension, id, UDP, (&heads, 6), text)
}

/// The same of TCP with timestamps.
fn segment(v6: bool, id: u16, seq: u32, flags: u8, text: &[u8]) -> (Vec<u8>, usize) {
    let mut heads = vec![0x1f, 0x90, 0x1f, 0x91];
    heads.extend(seq.to_be_bytes());
    heads.extend([0, 0, 0, 9, 0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
    heads.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
    upper_frame(v6, false, id, TCP, (&heads, 16), text)
}

/// A frame with these upper headers and the checksum at `field`; `extension`: with eight bytes of
/// hop-by-hop options in IPv6.
fn upper_frame(
    v6: bool,
    extension: bool,
    id: u16,
    protocol: u8,
    (heads, field): (&[u8], usize),
    text: &[u8],
) -> (Vec<u8>, usize) {
    let len = heads.len() + text.len();
    let (from, to) = (Ipv6Addr::LOCALHOST, Ipv6Addr::from(7));
    let (from_v4, to_v4) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let pseudo = if v6 {
        let payload = (len + if extension { 8 } else { 0 }) as u16;
        let [a, b] = payload.to_be_bytes();
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, a, b, if extension { 0 } else { protocol }, 64]);
        bytes.extend(from.octets().iter().chain(&to.octets()));
        if extension {
            bytes.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
        }
        pseudo_header_v6(from, to, protocol, len as u32)
    } else {
        let [a, b] = (20 + len as u16).to_be_bytes();
        let [c, d] = id.to_be_bytes();
        bytes.extend([8, 0]);
        let mut ip = vec![0x45, 0, a, b, c, d, 0x40, 0, 64, protocol, 0, 0];
        ip.extend(from_v4.octets().iter().chain(&to_v4.octets()));
        let check = sum(&ip).finish();
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        bytes.extend(ip);
        pseudo_header_v4(from_v4, to_v4, protocol, len as u16)
    };
    let l4 = bytes.len();
    bytes.extend(heads);
    bytes[l4 + field..l4 + field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
    bytes.extend(text);
    (bytes, l4)
}

fn told(udp: usize, size: usize) -> Offload {
    Offload {
        flags: 1,
        gso_type: DATAGRAMS,
        header_len: 1,
        gso_size: size as u16,
        checksum_start: udp as u16,
        checksum_offset: 6,
    }
}

fn ring_frame<'a>(bytes: &'a [u8], offload: &Offload, tagged: bool) -> RingFrame<'a> {
    let vlan = tagged.then_some((0x8100, 77));
    RingFrame { bytes, wire_len: bytes.len(), vnet: encode(offload), status: 0, vlan }
}

fn flat(packet: &PacketBuf) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    packet.copy_out(0, &mut bytes);
    bytes
}

/// All that becomes of a frame: packets, and pieces that were lost.
fn all(frame: &RingFrame<'_>, pool: &Pool) -> (Vec<PacketBuf>, usize) {
    all_of(frame, pool, true)
}

fn all_of(frame: &RingFrame<'_>, pool: &Pool, joined: bool) -> (Vec<PacketBuf>, usize) {
    let (mut packets, mut lost, mut piece) = (Vec::new(), 0, 0);
    loop {
        match arrive(frame, pool, joined, &mut piece) {
            PacketArrival::Packet(packet) => packets.push(packet),
            PacketArrival::NoBuffer | PacketArrival::Truncated | PacketArrival::Malformed => {
                lost += 1
            }
        }
        assert!(packets.len() + lost <= PIECES_MAX);
        if piece == 0 {
            return (packets, lost);
        }
    }
}

#[test]
fn datagrams_that_were_left_to_cut_are_what_their_sender_would_have_sent() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let text: Vec<u8> = (0..1 << 14).map(|at: usize| (at % 251) as u8).collect();
    for (v6, extension) in [(false, false), (true, false), (true, true)] {
        for (len, size) in [(1000, 1000), (1001, 1000), (9999, 500), (16_000, 9000), (128, 1)] {
            let text = &text[..len];
            let (bytes, udp) = frame(v6, extension, 0xfffe, text);
            for tagged in [false, true] {
                let (packets, lost) = all(&ring_frame(&bytes, &told(udp, size), tagged), &pool);
                assert_eq!((packets.len(), lost), (len.div_ceil(size), 0));
                for (n, (packet, text)) in packets.iter().zip(text.chunks(size)).enumerate() {
                    let (own, _) = frame(v6, extension, 0xfffe_u16.wrapping_add(n as u16), text);
                    let mut found = flat(packet);
                    let moved = if tagged { 4 } else { 0 };
                    if tagged {
                        assert_eq!(found.drain(12..16).collect::<Vec<_>>(), [0x81, 0, 0, 77]);
                    }
                    assert!(found == own, "{n} of {len} in {size}, v6 {v6}");
                    assert_eq!(packet.checksum_state(), ChecksumState::Partial);
                    let offload = packet.offload().unwrap();
                    assert_eq!((offload.gso_type, offload.checksum_offset), (0, 6));
                    assert_eq!(usize::from(offload.checksum_start), udp + moved);
                }
            }
        }
    }
}

#[test]
fn segments_are_cut_where_nothing_joined_may_cross() {
    const FIN: u8 = 0x01;
    const ACK: u8 = 0x10;
    const CWR: u8 = 0x80;
    let pool = Pool::new(&PoolConfig { supers: 1, ..PoolConfig::default() }).unwrap();
    let text: Vec<u8> = (0..20_000).map(|at: usize| (at % 251) as u8).collect();
    let first = u32::MAX - 3000;
    for v6 in [false, true] {
        for (len, size) in [(20_000, 1448), (2896, 1448), (5000, 9000), (1399, 1)] {
            let text = &text[..len];
            let (bytes, l4) = segment(v6, 0xfffe, first, ACK | CWR | FIN | 8, text);
            let kind = if v6 { TCP_V6 } else { TCP_V4 } | ECN;
            let told = Offload { gso_type: kind, checksum_offset: 16, ..told(l4, size) };
            let frame = ring_frame(&bytes, &told, false);
            let (packets, lost) = all_of(&frame, &pool, false);
            assert_eq!((packets.len(), lost), (len.div_ceil(size), 0));
            let last = packets.len() - 1;
            for (n, (packet, text)) in packets.iter().zip(text.chunks(size)).enumerate() {
                let flags =
                    ACK | if n == 0 { CWR } else { 0 } | if n == last { FIN | 8 } else { 0 };
                let seq = first.wrapping_add((n * size) as u32);
                let (own, _) = segment(v6, 0xfffe_u16.wrapping_add(n as u16), seq, flags, text);
                assert!(flat(packet) == own, "{n} of {len} in {size}, v6 {v6}");
                let offload = packet.offload().unwrap();
                assert_eq!((offload.gso_type, offload.checksum_offset), (0, 16));
                assert_eq!(usize::from(offload.checksum_start), l4);
            }
            let (whole, lost) = all_of(&frame, &pool, true);
            assert_eq!((whole.len(), lost), (1, 0));
            assert!(flat(&whole[0]) == bytes);
            assert_eq!(usize::from(whole[0].offload().unwrap().header_len), l4 + 32);
        }
        // More pieces than one frame may become; headers that are none.
        let (bytes, l4) = segment(v6, 1, 1, ACK, &text[..PIECES_MAX + 1]);
        let kind = if v6 { TCP_V6 } else { TCP_V4 };
        let mut told = Offload { gso_type: kind, checksum_offset: 16, ..told(l4, 1) };
        assert_eq!(all_of(&ring_frame(&bytes, &told, false), &pool, false).1, 1);
        told.gso_size = 2;
        assert_eq!(all_of(&ring_frame(&bytes, &told, false), &pool, false).1, 0);
        let mut short = bytes;
        short[l4 + 12] = 0x40;
        assert_eq!(all_of(&ring_frame(&short, &told, false), &pool, false).1, 1);
    }
}

#[test]
fn pieces_that_find_no_memory_are_each_lost_and_counted() {
    let pool = Pool::new(&PoolConfig { frames: 3, ..PoolConfig::default() }).unwrap();
    let (bytes, udp) = frame(false, false, 1, &[7; 10 * TEXT]);
    let (packets, lost) = all(&ring_frame(&bytes, &told(udp, TEXT), false), &pool);
    assert_eq!((packets.len(), lost), (3, 7));
}

#[test]
fn a_description_that_does_not_fit_the_frame_loses_the_frame_once() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    for v6 in [false, true] {
        let (bytes, udp) = frame(v6, false, 1, &[7; 10 * TEXT]);
        let good = told(udp, TEXT);
        let lies = [
            Offload { flags: 0, ..good },
            Offload { gso_size: 0, ..good },
            Offload { checksum_start: good.checksum_start - 1, ..good },
            Offload { checksum_start: u16::MAX, ..good },
            Offload { checksum_offset: 16, ..good },
            Offload { gso_type: TCP_V4, ..good },
            Offload { gso_type: TCP_V6, ..good },
            Offload { gso_type: 3, ..good },
            Offload { gso_type: ECN, ..good },
            Offload { gso_type: 0xff, ..good },
        ];
        for lie in lies {
            let (packets, lost) = all(&ring_frame(&bytes, &lie, false), &pool);
            assert_eq!((packets.len(), lost), (0, 1), "{lie:?}, v6 {v6}");
        }
        // Lengths in the headers that are not the frame's, fragments.
        let v4 =
            [LINK_BYTES, LINK_BYTES + 3, LINK_BYTES + 6, LINK_BYTES + 7, LINK_BYTES + 9, udp + 5];
        let others = [LINK_BYTES, LINK_BYTES + 5, LINK_BYTES + 6, udp + 5];
        for at in if v6 { &others[..] } else { &v4[..] } {
            let mut bytes = bytes.clone();
            bytes[*at] ^= 0x21;
            let (packets, lost) = all(&ring_frame(&bytes, &good, false), &pool);
            assert_eq!((packets.len(), lost), (0, 1), "byte {at}, v6 {v6}");
        }
        let mut cut = ring_frame(&bytes, &good, false);
        cut.bytes = &bytes[..bytes.len() - 1];
        assert_eq!(all(&cut, &pool).1, 1);
        assert_eq!(all(&ring_frame(&bytes, &good, false), &pool).0.len(), 10);
    }
}

#[test]
fn what_nothing_ever_wrote_ends_and_gives_all_memory_back() {
    let pool = Pool::new(&PoolConfig { supers: 2, ..PoolConfig::default() }).unwrap();
    let mut random = Randomness::from_number(38);
    let mut next = |below: usize| random.public.next_u64() as usize % below;
    let (full, mut whole, mut cut) = (pool.available(), 0, 0);
    for round in 0..200_000 {
        let (v6, extension) = (next(2) == 1, next(8) == 0);
        let text = vec![round as u8; next(4000)];
        let (mut bytes, udp) = frame(v6, extension, 1, &text);
        let mut vnet = encode(&told(udp, 1 + next(600)));
        if next(2) == 0 {
            vnet[1] = [0, TCP_V4, TCP_V6, 3, TCP_V4 | ECN, 0xff][next(6)];
            bytes[if v6 { LINK_BYTES + 6 } else { LINK_BYTES + 9 }] = TCP;
        }
        for _ in 0..next(3) {
            let at = next(VNET_BYTES);
            vnet[at] = next(256) as u8;
        }
        for _ in 0..next(3) {
            let at = next(80.min(bytes.len()));
            bytes[at] = next(256) as u8;
        }
        bytes.truncate(bytes.len() - if next(4) == 0 { next(bytes.len() + 1) } else { 0 });
        let mut frame = ring_frame(&bytes, &Offload::default(), next(4) == 0);
        frame.vnet = vnet;
        let (packets, _) = all_of(&frame, &pool, next(2) == 0);
        whole += usize::from(packets.len() == 1);
        cut += usize::from(packets.len() > 1);
        for packet in &packets {
            let offload = packet.offload().unwrap_or_default();
            if packet.checksum_state() == ChecksumState::Partial {
                let (start, offset) = (offload.checksum_start, offload.checksum_offset);
                assert!(usize::from(start) + usize::from(offset) + 2 <= packet.len());
                let heads = usize::from(offload.header_len);
                assert!(offload.gso_type == 0 || (heads >= 54 && heads < packet.len()));
            }
        }
    }
    assert!(whole > 10_000 && cut > 10_000, "{whole} {cut}");
    assert_eq!(pool.available(), full);
}
