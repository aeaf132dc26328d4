//! GSO frames through AF_PACKET on real veth pairs: joined on departure, unsplit on arrival,
//! segmented without offload; both families, each segment counted.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;

use floodwall_checksum::sum;
use floodwall_device::{AfPacket, AfPacketConfig, Device, DeviceSpec, OpenConfig};
use floodwall_packet::{Burst, ChecksumState, PacketBuf, PacketList, Pool, PoolConfig};

use crate::namespace::{available, flat, inside, ip, receive_where, send, skip, wait_millis};
use crate::packets;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const PEERS: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
const ACK: u8 = 0x10;
/// Bytes of text of a full segment.
const FULL: usize = 1400;

fn pool() -> Pool {
    Pool::new(&PoolConfig { supers: 8, ..PoolConfig::default() }).unwrap()
}

/// The peer's address and ours.
fn ends(v6: bool) -> (IpAddr, IpAddr) {
    let [peer, ours] = if v6 { ["fd98:1::1", "fd98:1::2"] } else { ["10.98.1.1", "10.98.1.2"] };
    (peer.parse().unwrap(), ours.parse().unwrap())
}

/// A veth pair of which the kernel has the end `peer` with an address of each family.
fn veth() -> bool {
    let made = ip("link add ours type veth peer name peer")
        && ip("link set peer address 02:00:00:00:00:0b")
        && ip("link set ours up")
        && ip("link set peer up");
    if !made {
        skip("no veth pair in this kernel");
        return false;
    }
    assert!(ip("addr add 10.98.1.1/24 dev peer") && ip("addr add fd98:1::1/64 dev peer nodad"));
    for ours in ["10.98.1.2", "fd98:1::2"] {
        assert!(ip(&format!("neigh add {ours} lladdr 02:00:00:00:00:0a dev peer")));
    }
    true
}

/// Runs `test` in a namespace of its own with a veth pair, where there can be one.
fn on_a_cable(test: impl FnOnce(&Pool) + Send + 'static) {
    inside(|| {
        if veth() {
            test(&pool());
        }
    });
}

/// The same, with both ends open, to carry GSO frames.
fn on_both_ends(test: impl FnOnce(&Pool, AfPacket, AfPacket) + Send + 'static) {
    on_a_cable(|pool| {
        if let (Some(ours), Some(peer)) = (open("ours", true), open("peer", true)) {
            test(pool, ours, peer);
        }
    });
}

fn open(name: &str, offload: bool) -> Option<AfPacket> {
    available(AfPacket::open(name, &AfPacketConfig { offload, ..AfPacketConfig::default() }))
}

fn is_tcp(packet: &PacketBuf) -> bool {
    let bytes = packet.first();
    match bytes.get(12..14) {
        Some([8, 0]) => bytes.get(23) == Some(&packets::TCP),
        Some([0x86, 0xdd]) => bytes.get(20) == Some(&packets::TCP),
        _ => false,
    }
}

/// Sends full segments followed by a short one, in pieces as a send buffer shares them.
fn send_segments(device: &mut AfPacket, pool: &Pool, v6: bool, count: usize, full: usize) {
    let (peer, ours) = ends(v6);
    let mut list = PacketList::new();
    for n in 0..=count {
        let (flags, len) = if n < count { (ACK, full) } else { (ACK | 8, 77) };
        let bytes = packets::segment(ours, peer, (n * full) as u32, flags, len);
        let frame = packets::frame(PEERS, OURS, &bytes);
        list.push_back(pool.packet_from_chunks(frame.chunks(900)).unwrap());
    }
    assert_eq!(device.transmit(&mut list).unwrap(), count + 1);
}

fn headers(v6: bool) -> usize {
    14 + if v6 { 60 } else { 40 }
}

/// Receives frames with segments until `text` bytes of them are there, in order and each right; how
/// long each frame was.
fn receive_text(device: &mut AfPacket, pool: &Pool, v6: bool, text: usize) -> Vec<usize> {
    let (mut lens, mut at) = (Vec::new(), 0);
    for packet in receive_until(device, pool, |found| text_of(found, v6) >= text) {
        let bytes = flat(&packet);
        let l4 = headers(v6) - 20;
        let seq = u32::from_be_bytes(bytes[l4 + 4..l4 + 8].try_into().unwrap()) as usize;
        assert_eq!(seq, at, "in order");
        let found = &bytes[headers(v6)..];
        assert!(found.iter().zip(at..).all(|(byte, at)| usize::from(*byte) == at % 251));
        if packet.checksum_state() != ChecksumState::Partial {
            assert!(packets::verifies(&bytes[14..]), "behind {at}");
        }
        at += found.len();
        lens.push(bytes.len());
    }
    assert_eq!(at, text);
    lens
}

fn text_of(found: &[PacketBuf], v6: bool) -> usize {
    found.iter().map(|packet| packet.len() - headers(v6)).sum()
}

/// All segments that come until there are enough, or no more.
fn receive_until(
    device: &mut dyn Device,
    pool: &Pool,
    enough: impl Fn(&[PacketBuf]) -> bool,
) -> Vec<PacketBuf> {
    let mut found = Vec::new();
    while !enough(&found) {
        let mut burst = Burst::new();
        device.receive(pool, &mut burst).unwrap();
        found.extend(burst.drain().filter(is_tcp));
        if !enough(&found) && !device.pending() && !wait_millis(device.readiness().unwrap(), 1000) {
            break;
        }
    }
    found
}

fn ethtool(words: &str) -> bool {
    let done = Command::new("ethtool").args(words.split_whitespace()).output();
    done.is_ok_and(|done| done.status.success())
}

#[test]
fn segments_in_a_row_leave_as_one_and_arrive_as_one() {
    on_both_ends(|pool, mut ours, mut peer| {
        for v6 in [false, true] {
            send_segments(&mut ours, pool, v6, 20, FULL);
            let lens = receive_text(&mut peer, pool, v6, 20 * FULL + 77);
            assert_eq!(lens, [headers(v6) + 20 * FULL + 77], "v6 {v6}");
            // One alone stays what it is, and what is between two runs is not held up.
            send_segments(&mut ours, pool, v6, 0, FULL);
            assert_eq!(receive_text(&mut peer, pool, v6, 77), [headers(v6) + 77]);
        }
        let (sent, found) = (ours.stats(), peer.stats());
        assert_eq!((sent.tx_packets, sent.tx_lost(), found.rx_lost()), (44, 0, 0));
        // Without offload each leaves by itself.
        let Some(mut plain) = open("ours", false) else { return };
        for v6 in [false, true] {
            send_segments(&mut plain, pool, v6, 20, FULL);
            assert_eq!(receive_text(&mut peer, pool, v6, 20 * FULL + 77).len(), 21);
        }
        // What was joined elsewhere is cut where it arrives, and refused where it shall leave.
        drop(peer);
        let Some(mut peer) = open("peer", false) else { return };
        for v6 in [false, true] {
            send_segments(&mut ours, pool, v6, 200, 300);
            let lens = receive_text(&mut peer, pool, v6, 200 * 300 + 77);
            assert!(lens.len() == 201 && lens.iter().all(|len| *len <= headers(v6) + 300));
        }
        assert_eq!(peer.stats().rx_lost(), 0);
    });
}

#[test]
fn runs_of_several_flows_and_what_is_between_them_all_leave_in_order() {
    on_both_ends(|pool, mut ours, mut peer| {
        let mut list = PacketList::new();
        let mut add = |v6: bool, seq: u32, len: usize| {
            let (peer, ours) = ends(v6);
            let bytes = packets::segment(ours, peer, seq, ACK, len);
            list.push_back(pool.packet_from(&packets::frame(PEERS, OURS, &bytes)).unwrap());
        };
        // Alone, a run of 3, alone, alone, a run of 2, and one with a gap before its payload.
        let all = [
            (false, 7, 0),
            (true, 0, FULL),
            (true, FULL as u32, FULL),
            (true, 2 * FULL as u32, 9),
            (false, 8, 0),
            (true, 9, 0),
            (false, 100, FULL),
            (false, 100 + FULL as u32, FULL),
            (false, 9000, FULL),
        ];
        all.iter().for_each(|(v6, seq, len)| add(*v6, *seq, *len));
        assert_eq!(ours.transmit(&mut list).unwrap(), all.len());
        let found = receive_until(&mut peer, pool, |found| found.len() >= 6);
        let lens: Vec<_> = found.iter().map(PacketBuf::len).collect();
        let (v4, v6) = (headers(false), headers(true));
        assert_eq!(lens, [v4, v6 + 2 * FULL + 9, v4, v6, v4 + 2 * FULL, v4 + FULL]);
        assert_eq!((ours.stats().tx_packets, ours.stats().tx_lost()), (9, 0));
    });
}

#[test]
fn the_interfaces_own_limits_bound_what_leaves_as_one() {
    on_a_cable(|pool| {
        // Bytes below which a frame stays; segments.
        for (name, words, most, segments) in [
            ("bytes", "gso_max_size 20000", [19_999; 2], 99),
            ("bytes of IPv4", "gso_ipv4_max_size 15000", [14_999, 19_999], 99),
            ("segments", "gso_max_size 65536 gso_max_segs 5", [65_535; 2], 5),
            ("none", "gso_max_segs 1", [65_535; 2], 1),
        ] {
            if !ip(&format!("link set ours {words}")) {
                skip(&format!("this `ip` or kernel sets no {name}"));
                continue;
            }
            let (Some(mut ours), Some(mut peer)) = (open("ours", true), open("peer", true)) else {
                return;
            };
            for (v6, most) in [false, true].into_iter().zip(most) {
                send_segments(&mut ours, pool, v6, 30, FULL);
                let lens = receive_text(&mut peer, pool, v6, 30 * FULL + 77);
                let expected = segments.min((most - headers(v6)) / FULL);
                assert_eq!(lens[0], headers(v6) + expected * FULL, "{name}, v6 {v6}");
                assert!(lens.iter().all(|len| *len <= lens[0]), "{name}, v6 {v6}: {lens:?}");
            }
        }
    });
}

#[test]
fn an_interface_that_cannot_cut_sends_each_segment_with_its_checksum() {
    on_a_cable(|pool| {
        if !ethtool("-K ours tso off gso off tx off") {
            skip("no `ethtool`, or it may not");
            return;
        }
        let (Some(mut ours), Some(mut peer)) = (open("ours", true), open("peer", true)) else {
            return;
        };
        for v6 in [false, true] {
            send_segments(&mut ours, pool, v6, 30, FULL);
            let lens = receive_text(&mut peer, pool, v6, 30 * FULL + 77);
            assert_eq!(lens.len(), 31, "v6 {v6}");
        }
        assert_eq!((ours.stats().tx_packets, ours.stats().tx_lost()), (62, 0));
    });
}

#[test]
fn an_mtu_that_shrinks_while_running_is_kept_and_what_it_refuses_is_counted() {
    on_both_ends(|pool, mut ours, mut peer| {
        let count = |v6: bool, ours: &mut AfPacket, peer: &mut AfPacket, full: usize| {
            send_segments(ours, pool, v6, 10, full);
            receive_text(peer, pool, v6, 10 * full + 77).len()
        };
        for v6 in [false, true] {
            assert_eq!(count(v6, &mut ours, &mut peer, FULL), 1);
            assert!(ip("link set ours mtu 1300"));
            let before = ours.stats();
            send_segments(&mut ours, pool, v6, 10, FULL);
            // A GSO frame of such pieces that another sender joined.
            let (to, from) = ends(v6);
            let (bytes, offload) = packets::super_segment(from, to, 20_000);
            let mut packet = pool.packet_from(&packets::frame(PEERS, OURS, &bytes)).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(packets::behind_ethernet(offload));
            send(&mut ours, packet);
            let after = ours.stats();
            assert_eq!(after.tx_refused - before.tx_refused, 11, "v6 {v6}");
            assert_eq!(after.tx_packets - before.tx_packets, 1, "the short one");
            assert!(receive_where(&mut peer, pool, is_tcp).is_some_and(|p| p.len() < 200));
            // What fits goes on as one, and all does when the link is as it was.
            assert_eq!(count(v6, &mut ours, &mut peer, 1200), 1);
            assert!(ip("link set ours mtu 1500"));
            assert_eq!(count(v6, &mut ours, &mut peer, FULL), 1);
        }
        assert_eq!(peer.stats().rx_lost(), 0);
    });
}

#[test]
fn the_longest_frame_arrives_whole_or_is_counted() {
    on_both_ends(|pool, mut ours, mut peer| {
        let Some(mut small) = open("ours", false) else { return };
        for (v6, lost) in [(false, 1), (true, 2)] {
            let (from, to) = ends(v6);
            // What is longer the kernel cuts before it leaves.
            let (bytes, offload) = packets::super_segment(from, to, 65_535 - headers(v6));
            let frame = packets::frame(OURS, PEERS, &bytes);
            let mut packet = pool.packet_from_chunks(frame.chunks(1500)).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(packets::behind_ethernet(offload));
            send(&mut peer, packet);
            let packet = receive_where(&mut ours, pool, is_tcp).expect("whole");
            let expected = Some(packets::behind_ethernet(offload));
            assert_eq!((packet.len(), packet.offload()), (frame.len(), expected), "v6 {v6}");
            assert!(flat(&packet) == frame, "v6 {v6}");
            assert!(receive_where(&mut small, pool, is_tcp).is_none());
            assert_eq!(small.stats().rx_truncated, lost, "its blocks are too small");
        }
        assert_eq!(ours.stats().rx_lost(), 0);
    });
}

/// A card, here a veth with GRO enabled, joins whole segments as they arrive. More than the headers
/// of such a frame is contiguous.
#[test]
fn what_was_joined_on_arrival_comes_as_one_with_its_headers_told() {
    on_a_cable(|pool| {
        // A veth joins nothing that comes from where it would have been left together.
        if !ethtool("-K peer tso off") {
            return skip("no `ethtool`, or it may not");
        }
        let word: DeviceSpec = "packet:ours".parse().unwrap();
        let config = OpenConfig { offload: true, ..OpenConfig::default() };
        let (Some(opened), Some(mut peer)) = (available(word.open(&config)), open("peer", false))
        else {
            return;
        };
        let mut device = opened.queues.into_iter().next().unwrap();
        for v6 in [false, true] {
            let (from, to) = ends(v6);
            let mut list = PacketList::new();
            for n in 0..20 {
                let bytes = packets::segment(from, to, n * FULL as u32, ACK, FULL);
                list.push_back(pool.packet_from(&packets::frame(OURS, PEERS, &bytes)).unwrap());
            }
            assert_eq!(peer.transmit(&mut list).unwrap(), 20);
            let enough = |found: &[PacketBuf]| text_of(found, v6) >= 20 * FULL;
            let found = receive_until(&mut *device, pool, enough);
            let supers: Vec<_> = found.iter().filter(|packet| packet.len() > 1514).collect();
            if supers.is_empty() {
                skip(&format!("nothing was joined: {}", opened.placement.words));
                return;
            }
            let mut at = 0;
            for packet in &found {
                let bytes = flat(packet);
                let text = &bytes[headers(v6)..];
                assert!(text.iter().zip(at..).all(|(byte, at)| usize::from(*byte) == at % 251));
                at += text.len();
                let told = packet.offload().unwrap_or_default();
                let single = packet.len() == headers(v6) + FULL;
                let expected = if single { (0, 0) } else { (FULL, headers(v6)) };
                let told = (usize::from(told.gso_size), usize::from(told.header_len));
                assert_eq!(told, expected, "v6 {v6}");
            }
            assert_eq!(at, 20 * FULL);
        }
    });
}

/// Has the kernel send what is written as datagrams of so many bytes, as late as it can cut them.
fn cut_late(socket: &UdpSocket, size: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    let at = (&raw const size).cast();
    // SAFETY: the system reads `len` bytes of a number that outlives the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn datagrams_that_the_kernel_left_uncut_arrive_one_by_one() {
    const SIZE: usize = 500;
    on_a_cable(|pool| {
        let Some(mut device) = open("ours", true) else { return };
        for v6 in [false, true] {
            let (peer, ours) = ends(v6);
            let socket = UdpSocket::bind((peer, 0)).unwrap();
            if let Err(error) = cut_late(&socket, SIZE as libc::c_int) {
                skip(&format!("this kernel has no UDP_SEGMENT: {error}"));
                return;
            }
            // More than a burst of ours, and a last one that is shorter.
            let text: Vec<u8> = (0..90 * SIZE + 77).map(|at| (at % 251) as u8).collect();
            let port_at = headers(v6) - 20 + 2;
            let sent = (0..50).any(|_| socket.send_to(&text, (ours, 9)).is_ok());
            assert!(sent, "the kernel takes it");
            let (mut at, mut ids) = (0, BTreeSet::new());
            while at < text.len() {
                let mut burst = Burst::new();
                device.receive(pool, &mut burst).unwrap();
                for packet in burst.drain() {
                    let mut bytes = flat(&packet);
                    if bytes.get(port_at..port_at + 2) != Some(&[0, 9]) {
                        continue;
                    }
                    let offload = packet.offload().expect("unfinished");
                    assert_eq!((offload.gso_type, offload.checksum_offset), (0, 6));
                    let start = usize::from(offload.checksum_start);
                    let check = sum(&bytes[start..]).finish().to_be_bytes();
                    bytes[start + 6..start + 8].copy_from_slice(&check);
                    assert!(packets::verifies(&bytes[14..]), "behind {at}");
                    let expected = &text[at..text.len().min(at + SIZE)];
                    assert!(bytes[start + 8..] == *expected, "behind {at}");
                    ids.insert([bytes[18], bytes[19]]);
                    at += expected.len();
                }
                let ready = device.pending() || wait_millis(device.readiness().unwrap(), 1000);
                assert!(at == text.len() || ready, "{at}");
            }
            assert!(v6 || ids.len() == 91, "each has an identification of its own");
        }
        assert_eq!(device.stats().rx_lost(), 0);
    });
}
