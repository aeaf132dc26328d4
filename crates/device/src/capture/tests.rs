//! Captures are read as other tools read them, and survive being broken.

use std::path::PathBuf;

use floodwall_packet::{Burst, PacketList, Pool, PoolConfig};

use super::*;
use crate::device::{Device, Medium};
use crate::memory_wire::{WireConfig, pair, pair_of};

fn data(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data/pcaps").join(file)
}

/// A pcap file of one packet, in either byte order and precision.
fn pcap(magic: u32, link: u32, bytes: &[u8], big_endian: bool) -> Vec<u8> {
    let word = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    let half = |n: u16| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
    let len = bytes.len() as u32;
    let mut file = word(magic).to_vec();
    file.extend(half(2));
    file.extend(half(4));
    for n in [0, 0, 65_535, link, 1_700_000_000, 123_456, len, len] {
        file.extend(word(n));
    }
    file.extend(bytes);
    file
}

const IPV4: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

fn ipv6() -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[6] = 59;
    packet
}

#[test]
fn both_byte_orders_and_both_precisions_give_the_same_packet() {
    for (magic, nanos) in [(0xa1b2_c3d4, 123_456_000), (0xa1b2_3c4d, 123_456)] {
        for big_endian in [false, true] {
            let capture = parse_capture(&pcap(magic, 101, &IPV4, big_endian)).unwrap();
            assert_eq!(capture.truncated_at, None);
            let [packet] = &capture.packets[..] else { panic!() };
            assert_eq!(packet.time, Duration::new(1_700_000_000, nanos));
            assert_eq!((packet.ip(), packet.wire_len), (Some(&IPV4[..]), 20));
        }
    }
}

#[test]
fn the_ip_packet_is_found_behind_every_known_link_header() {
    let mut cooked = vec![0; 14];
    let mut cooked2 = vec![0x08, 0x00];
    cooked2.extend([0; 18]);
    cooked.extend([0x08, 0x00]);
    let mut ethernet = vec![2; 12];
    ethernet.extend([0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x08, 0x00]);
    let headers: [(u32, Vec<u8>); 10] = [
        (0, vec![2, 0, 0, 0]),
        (0, vec![0, 0, 0, 2]),
        (108, vec![0, 0, 0, 2]),
        (1, ethernet),
        (12, vec![]),
        (14, vec![]),
        (101, vec![]),
        (228, vec![]),
        (113, cooked),
        (276, cooked2),
    ];
    for (link, header) in headers {
        let bytes = [&header[..], &IPV4].concat();
        let capture = parse_capture(&pcap(0xa1b2_c3d4, link, &bytes, false)).unwrap();
        assert_eq!(capture.packets[0].ip(), Some(&IPV4[..]), "link type {link}");
        // Cut anywhere, it is a shorter packet or none, and never a panic.
        for len in 0..bytes.len() {
            let packet =
                CapturedPacket { bytes: bytes[..len].to_vec(), ..capture.packets[0].clone() };
            assert!(packet.ip().is_none_or(|ip| ip.len() < 20));
        }
    }
    for family in [10, 24, 28, 30] {
        let bytes = [&[family, 0, 0, 0], &ipv6()[..]].concat();
        let capture = parse_capture(&pcap(0xa1b2_c3d4, 0, &bytes, false)).unwrap();
        assert_eq!(capture.packets[0].ip(), Some(&ipv6()[..]), "family {family}");
    }
    let other = parse_capture(&pcap(0xa1b2_c3d4, 147, &IPV4, false)).unwrap();
    assert_eq!((other.packets[0].link, other.packets[0].ip()), (LinkType::Other(147), None));
}

#[test]
fn a_file_that_ends_within_a_record_gives_what_came_before_and_a_note() {
    let mut file = pcap(0xa1b2_c3d4, 101, &IPV4, false);
    let record = file[24..].to_vec();
    file.extend(&record[..20]);
    let capture = parse_capture(&file).unwrap();
    assert_eq!(capture.packets.len(), 1);
    let note = capture.truncated_at.unwrap();
    assert_eq!((note.offset, note.reason), (60, "the file ends in the middle of this record"));
    file.truncate(60);
    file.extend(&record);
    file[60 + 8..60 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let note = parse_capture(&file).unwrap().truncated_at.unwrap();
    assert_eq!(note.reason, "this record claims more bytes than any packet has");
}

#[test]
fn what_is_no_capture_is_told_with_its_file_and_offset() {
    let this = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let text = read_capture(this).unwrap_err().to_string();
    assert!(
        text.ends_with("Cargo.toml: at byte 0: this is neither a pcap nor a pcapng file"),
        "{text}"
    );
    let error = read_capture("/no/such/file.pcap").unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file.pcap: cannot read the capture"), "{error}");
    assert_eq!(parse_capture(&[]).unwrap_err().offset, 0);
    assert!(parse_capture(&[0x0a, 0x0d, 0x0d, 0x0a, 9, 9]).is_err());
}

/// The vendored captures, counted against the manifest: what tshark counted in each.
#[test]
fn every_vendored_capture_gives_as_many_packets_as_tshark_counts() {
    let Ok(manifest) = std::fs::read_to_string(data("MANIFEST.tsv")) else {
        eprintln!("SKIPPED: data/pcaps is not here");
        return;
    };
    let (mut files, mut packets, mut with_ip, mut different) = (0, 0, 0, Vec::new());
    for row in manifest.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        let (file, expected) = (columns[0], columns[6].parse::<usize>().unwrap());
        let capture = read_capture(data(file)).unwrap_or_else(|e| panic!("{e}"));
        files += 1;
        packets += capture.packets.len();
        with_ip += capture.packets.iter().filter(|p| p.ip().is_some()).count();
        if capture.packets.len() != expected {
            different.push((
                file.to_owned(),
                expected,
                capture.packets.len(),
                capture.truncated_at,
            ));
        }
    }
    assert!(files >= 500 && packets > 16_000 && with_ip > 14_000, "{files} {packets} {with_ip}");
    assert!(different.is_empty(), "{different:?}");
}

#[test]
fn a_recording_reads_back_as_what_passed_in_both_directions_with_nanoseconds() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    for medium in [Medium::Ethernet, Medium::Ip] {
        let (a, mut b) = pair_of(WireConfig { medium, ..WireConfig::default() });
        let mut ticks = 0;
        let clock = move || {
            ticks += 1;
            Duration::new(1_700_000_000, 123_456_788 + ticks)
        };
        let mut a = Recorder::new(a, Vec::new(), RecorderConfig::default(), clock).unwrap();
        let mut list = PacketList::new();
        list.push_back(pool.packet_from_chunks(IPV4.chunks(7)).unwrap());
        a.transmit(&mut list).unwrap();
        list.push_back(pool.packet_from(&ipv6()).unwrap());
        b.transmit(&mut list).unwrap();
        a.receive(&pool, &mut Burst::new()).unwrap();
        assert_eq!(a.flush().unwrap(), 2);
        let (_, file) = a.finish().unwrap();
        let capture = parse_capture(&file).unwrap();
        assert_eq!(capture.truncated_at, None);
        let times: Vec<u32> = capture.packets.iter().map(|p| p.time.subsec_nanos()).collect();
        assert_eq!(times, [123_456_789, 123_456_790]);
        assert_eq!(capture.packets[0].bytes, IPV4);
        assert_eq!(capture.packets[1].bytes, ipv6());
        let link = if medium == Medium::Ip { LinkType::RawIp } else { LinkType::Ethernet };
        assert!(capture.packets.iter().all(|p| p.link == link));
    }
}

#[test]
fn a_full_recording_misses_packets_and_says_so_and_what_was_not_sent_is_not_in_it() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (a, mut b) = pair(4);
    let config = RecorderConfig { buffer_bytes: 3 * (25 + 16), snap_len: 16 };
    let mut a = Recorder::new(a, Vec::new(), config, || Duration::ZERO).unwrap();
    let mut list = PacketList::new();
    for n in 0..6 {
        list.push_back(pool.packet_from(&[n; 60]).unwrap());
    }
    assert_eq!(a.transmit(&mut list).unwrap(), 4);
    assert_eq!((list.len(), a.missed()), (2, 1), "four left, three fitted");
    assert_eq!(a.flush().unwrap(), 3);
    b.receive(&pool, &mut Burst::new()).unwrap();
    assert_eq!(a.transmit(&mut list).unwrap(), 2);
    let (_, file) = a.finish().unwrap();
    let packets = parse_capture(&file).unwrap().packets;
    let firsts: Vec<u8> = packets.iter().map(|p| p.bytes[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 4, 5]);
    assert!(packets.iter().all(|p| p.bytes.len() == 16 && p.wire_len == 60));
}

#[test]
fn a_replay_gives_each_packet_once_as_the_medium_wants_it() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let ethernet = [&[2; 12][..], &[0x08, 0x00], &IPV4].concat();
    let arp = [&[2; 12][..], &[0x08, 0x06], &[0; 28]].concat();
    let packet = |link, bytes: &[u8]| CapturedPacket {
        time: Duration::from_secs(5),
        link,
        bytes: bytes.to_vec(),
        wire_len: bytes.len() as u32,
    };
    let capture = Capture {
        packets: vec![
            packet(LinkType::Ethernet, &ethernet),
            packet(LinkType::Ethernet, &arp),
            packet(LinkType::RawIp, &ipv6()),
            packet(LinkType::Other(147), &[0; 60]),
        ],
        truncated_at: None,
    };
    for (medium, lengths, skipped) in
        [(Medium::Ip, vec![20, 40], 2), (Medium::Ethernet, vec![34, 42, 54], 1)]
    {
        let mut replay = Replay::new("replay", capture.clone(), medium);
        assert_eq!((replay.remaining(), replay.next_time()), (4, Some(Duration::from_secs(5))));
        let mut burst = Burst::new();
        assert!(replay.pending());
        assert_eq!(replay.receive(&pool, &mut burst).unwrap(), lengths.len());
        assert!(burst.iter().map(|p| p.len()).eq(lengths.clone()));
        assert_eq!((replay.skipped(), replay.pending()), (skipped, false));
        let mut list = PacketList::new();
        burst.drain().for_each(|p| list.push_back(p));
        assert_eq!(replay.transmit(&mut list).unwrap(), lengths.len());
        assert_eq!(replay.stats().tx_packets, lengths.len() as u64);
    }
}

#[test]
fn damaged_files_never_panic() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let mut recorder =
        Recorder::new(pair(4).0, Vec::new(), RecorderConfig::default(), || Duration::ZERO).unwrap();
    let packet = pool.packet_from(&IPV4).unwrap();
    let mut list = PacketList::new();
    list.push_back(packet);
    let _ = recorder.transmit(&mut list);
    let (_, pcapng) = recorder.finish().unwrap();
    let mut random = floodwall_base::PublicRandom::new(11);
    for original in [pcapng, pcap(0xa1b2_c3d4, 1, &IPV4, true), pcap(0xa1b2_3c4d, 0, &IPV4, false)]
    {
        for _ in 0..20_000 {
            let mut file = original.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(file.len() as u64) as usize;
                file[at] = random.next_u64() as u8;
            }
            file.truncate(random.below(file.len() as u64 + 1) as usize);
            if let Ok(capture) = parse_capture(&file) {
                assert!(
                    capture.packets.iter().filter_map(CapturedPacket::ip).all(|ip| !ip.is_empty())
                );
            }
        }
    }
}
