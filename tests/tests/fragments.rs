//! Datagrams larger than their link: put together when they arrive, cut when they leave.
//!
//! Reading: RFC 791, RFC 8200 section 4.5, RFC 6864, RFC 7739, RFC 3168 section 5.3. How fragments
//! are dropped is in `drops_fragments.rs`, what attackers do with them in `security/fragments.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::net::SocketAddr;

use floodwall_base::{Counter, Family};
use floodwall_packet::{PacketBuf, PoolConfig};
use floodwall_stack::{SendError, StackConfig};
use floodwall_testkit::Seeded;
use floodwall_tests::craft::{
    self, FAMILIES, HOST, PEER, addr, echo, fragment, fragments, from_peer, udp_to_port,
};
use floodwall_tests::{Rig, Sent, bytes_of, drops_between, ethernet_config};
use floodwall_udp::{SendError as UdpSendError, SocketId, SocketSettings};
use floodwall_wire::{IpProtocol, Ipv4Header};

fn config(mtu: u32) -> StackConfig {
    let mut config = ethernet_config(HOST);
    config.interfaces[0].mtu = mtu;
    config
}

fn rig_of(mtu: u32) -> Rig {
    let mut rig = Rig::with_pool(&config(mtu), &PoolConfig::default());
    for family in FAMILIES {
        let to = addr(family, PEER);
        rig.stack.add_neighbor(floodwall_base::IfIndex(1), to, craft::mac(PEER), rig.now).unwrap();
    }
    rig
}

fn open(rig: &mut Rig, settings: SocketSettings) -> SocketId {
    let any: SocketAddr = "[::]:9".parse().unwrap();
    rig.sockets(|s| s.udp_bind(any, settings)).0.expect("a socket")
}

fn roomy() -> SocketSettings {
    SocketSettings { receive_bytes: 1 << 20, ..SocketSettings::new(Family::V6) }
}

/// One fragment that left: its identification, offset, whether more follow, and its bytes.
struct Part {
    id: u32,
    offset: usize,
    more: bool,
    bytes: Vec<u8>,
}

fn part(packet: &PacketBuf) -> Part {
    let sent = Sent::of(packet);
    if sent.from.is_ipv4() {
        let bytes = bytes_of(packet)[14..].to_vec();
        let header = Ipv4Header::parse(&bytes, bytes.len()).unwrap();
        assert!(!header.dont_fragment(), "a fragment may be cut again");
        return Part {
            id: u32::from(header.id()),
            offset: header.fragment_offset(),
            more: header.more_fragments(),
            bytes: sent.payload,
        };
    }
    assert_eq!(sent.protocol, IpProtocol::FRAGMENT);
    let word = |at: usize| u32::from_be_bytes(sent.payload[at..at + 4].try_into().unwrap());
    let place = word(0) & 0xffff;
    Part {
        id: word(4),
        offset: (place & 0xfff8) as usize,
        more: place & 1 != 0,
        bytes: sent.payload[8..].to_vec(),
    }
}

/// What fragments are together, which came in order, adjoin, and are of one packet.
fn together(packets: &[PacketBuf]) -> (u32, Vec<u8>) {
    let parts: Vec<_> = packets.iter().map(part).collect();
    let mut all = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        assert_eq!((part.offset, part.id), (all.len(), parts[0].id));
        assert_eq!(part.more, n + 1 < parts.len());
        assert!(!part.more || part.bytes.len() % 8 == 0);
        all.extend_from_slice(&part.bytes);
    }
    (parts[0].id, all)
}

#[test]
fn pings_of_every_size_are_answered_at_every_mtu() {
    let mut seeded = Seeded::new(1);
    for mtu in [576, 900, 1000, 1280, 1500, 9000] {
        let mut rig = rig_of(mtu.max(1280));
        let free = rig.pool.available();
        for family in FAMILIES {
            let repeated = if family == Family::V4 { 20 } else { 48 };
            let step = (mtu as usize - repeated) & !7;
            for size in [step, step + 1, 2 * step, 30_000, 65_000, 65_507] {
                let body: Vec<u8> = (0..size).map(|_| seeded.next() as u8).collect();
                let ask = echo(addr(family, PEER), addr(family, HOST), &body);
                let mut frames: Vec<_> =
                    fragments(&ask, 7, step).iter().map(|p| from_peer(p)).collect();
                for shuffled in [false, true] {
                    if shuffled {
                        seeded.shuffle(&mut frames);
                    }
                    let before = rig.stats();
                    let packets =
                        frames.iter().map(|f| rig.pool.packet_from(f).expect("room")).collect();
                    let answers = rig.arrive(packets);
                    let what = format!("{family:?} {mtu} {size} {shuffled}");
                    assert_eq!(drops_between(&before, &rig.stats()), (vec![], vec![]), "{what}");
                    let (_, reply) = match answers.len() {
                        1 => (0, Sent::of(&answers[0]).payload),
                        _ => together(&answers),
                    };
                    assert_eq!(reply[0], if family == Family::V4 { 0 } else { 129 }, "{what}");
                    assert!(reply[8..] == body, "{what}: other bytes");
                    drop(answers);
                    assert!(rig.conservation().holds(), "{what}: {:?}", rig.conservation());
                    assert_eq!(rig.pool.available(), free, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_datagram_of_any_size_leaves_in_fragments_that_make_it_again() {
    for (family, max) in [(Family::V4, 65_507), (Family::V6, 65_527)] {
        let mut rig = rig_of(1500);
        let id = open(&mut rig, roomy());
        let to = SocketAddr::new(addr(family, PEER), 4000);
        let free = rig.pool.available();
        let (mut ids, headers) = (Vec::new(), if family == Family::V4 { 28 } else { 48 });
        for size in [1500 - headers + 1, 2000, 8192, 60_000, max - 1, max] {
            let payload: Vec<u8> = (0..size).map(|n| (n * 7) as u8).collect();
            let before = rig.stats();
            let (sent, departed) = rig.sockets(|s| s.udp_send(id, Some(to), &payload));
            sent.expect("it may be sent");
            let (name, datagram) = together(&departed);
            ids.push(name);
            assert!(departed.iter().all(|p| p.len() <= 1514));
            assert!(datagram[8..] == payload, "{family:?} {size}");
            // As a peer would read it: checksum and all.
            let from = SocketAddr::new(addr(family, HOST), 9);
            assert_eq!(craft::udp_datagram(from, to, &payload), datagram);
            let made = departed.len() as u64;
            drop(departed);
            let (after, counter) = (rig.stats(), |n: &floodwall_stack::Stats, c| n.counters.of(c));
            let (oks, creates) = match family {
                Family::V4 => (Counter::IpFragOKs, Counter::IpFragCreates),
                Family::V6 => (Counter::Ip6FragOKs, Counter::Ip6FragCreates),
            };
            assert_eq!(counter(&after, oks) - counter(&before, oks), 1);
            assert_eq!(counter(&after, creates) - counter(&before, creates), made);
            assert!(rig.conservation().holds());
            assert_eq!(rig.pool.available(), free);
        }
        // CVE-2011-2699: a counter would give 1 in each place.
        let steps: Vec<_> = ids.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
        assert!(steps.windows(2).all(|w| w[0] != w[1]), "{ids:?}");
        let (sent, _) = rig.sockets(|s| s.udp_send(id, Some(to), &vec![0; max + 1]));
        assert_eq!(sent, Err(SendError::Socket(UdpSendError::MessageTooLong { max })));
        // What fits leaves whole, by the path that was learnt before or after.
        for size in [10, 60_000, 10, 1500 - headers] {
            let (_, departed) = rig.sockets(|s| s.udp_send(id, Some(to), &vec![3; size]));
            assert_eq!(departed.len() == 1, size < 1500, "{size}");
            let bytes = bytes_of(&departed[0]);
            if size < 1500 {
                assert_eq!(Sent::of(&departed[0]).protocol, IpProtocol::UDP);
                assert!(family == Family::V6 || bytes[14 + 6] == 0x40, "don't fragment");
            }
        }
    }
}

#[test]
fn a_socket_that_forbids_fragments_is_told_the_limit() {
    let mut rig = rig_of(1500);
    let settings = SocketSettings { dont_fragment: true, ..roomy() };
    let id = open(&mut rig, settings);
    for (family, max) in [(Family::V4, 1472), (Family::V6, 1452)] {
        let to = SocketAddr::new(addr(family, PEER), 4000);
        let before = rig.stats().outcomes;
        let (sent, departed) = rig.sockets(|s| s.udp_send(id, Some(to), &vec![0; max + 1]));
        assert_eq!(sent, Err(SendError::Socket(UdpSendError::MessageTooLong { max })));
        assert!(departed.is_empty() && rig.stats().outcomes == before);
        let (sent, departed) = rig.sockets(|s| s.udp_send(id, Some(to), &vec![0; max]));
        assert_eq!((sent, departed.len(), departed[0].len()), (Ok(()), 1, 1514));
    }
}

#[test]
fn a_datagram_that_waits_for_a_neighbour_waits_whole() {
    for family in FAMILIES {
        let mut rig = Rig::with_pool(&config(1500), &PoolConfig::default());
        let id = open(&mut rig, roomy());
        let to = SocketAddr::new(addr(family, PEER), 4000);
        let (sent, asked) = rig.sockets(|s| s.udp_send(id, Some(to), &[5; 60_000]));
        sent.unwrap();
        assert_eq!((asked.len(), rig.stats().pending), (1, 1), "a question alone leaves");
        drop(asked);
        let parts = rig.frame(&craft::neighbor_answer(family, PEER));
        let (_, datagram) = together(&parts);
        assert_eq!((datagram.len(), rig.stats().pending), (60_008, 0));
        assert!(rig.conservation().holds());
    }
}

#[test]
fn memory_that_is_short_sends_all_fragments_or_none() {
    for family in FAMILIES {
        for references in [0, 1, 10, 43, 60, 80, 100] {
            let pool = PoolConfig { small: 64, frames: 64, references, ..PoolConfig::default() };
            let mut rig = Rig::with_pool(&config(1500), &pool);
            let to = addr(family, PEER);
            let index = floodwall_base::IfIndex(1);
            rig.stack.add_neighbor(index, to, craft::mac(PEER), rig.now).unwrap();
            let id = open(&mut rig, roomy());
            let free = rig.pool.available();
            let to = SocketAddr::new(to, 4000);
            let (sent, departed) = rig.sockets(|s| s.udp_send(id, Some(to), &[5; 60_000]));
            sent.unwrap();
            let failed = rig.stats().drops_out.of(floodwall_base::DropReason::NoBuffer);
            match departed.len() {
                0 => assert_eq!(failed, 1),
                _ => assert_eq!((together(&departed).1.len(), failed), (60_008, 0)),
            }
            assert_eq!(departed.is_empty(), references < 80, "{references}");
            drop(departed);
            assert!(rig.conservation().holds());
            assert_eq!(rig.pool.available(), free);
        }
    }
}

#[test]
fn a_datagram_in_fragments_reaches_its_socket() {
    for family in FAMILIES {
        let mut rig = rig_of(1500);
        let id = open(&mut rig, roomy());
        let payload: Vec<u8> = (0..20_000).map(|n| (n * 11) as u8).collect();
        let whole = udp_to_port(family, 9, &payload);
        for part in fragments(&whole, 3, 1000) {
            assert!(rig.lives("a part", &from_peer(&part)).is_empty());
        }
        let mut out = vec![0; 65_536];
        let (received, _) = rig.sockets(|s| s.udp_recv(id, &mut out));
        let received = received.expect("a datagram");
        assert_eq!(received.len, payload.len());
        assert!(out[..received.len] == payload);
        let stats = rig.stats();
        let outcomes = (stats.outcomes.delivered, stats.outcomes.merged, stats.held);
        assert_eq!(outcomes, (1, 20, 0), "21 fragments");
    }
}

#[test]
fn a_checksum_that_the_device_vouched_for_in_parts_is_checked_for_the_whole() {
    for family in FAMILIES {
        let mut rig = rig_of(1500);
        let _id = open(&mut rig, roomy());
        let mut whole = udp_to_port(family, 9, &[1; 2000]);
        *whole.last_mut().unwrap() ^= 0xff;
        let mut packets: Vec<_> = fragments(&whole, 3, 1000)
            .iter()
            .map(|p| rig.pool.packet_from(&from_peer(p)).unwrap())
            .collect();
        for packet in &mut packets {
            packet.set_checksum_state(floodwall_packet::ChecksumState::Verified);
        }
        rig.arrive(packets);
        assert_eq!(rig.stats().drops_in.of(floodwall_base::DropReason::UdpChecksum), 1);
        assert!(rig.conservation().holds());
    }
}

/// RFC 3168 section 5.3.
#[test]
fn congestion_in_one_fragment_is_congestion_in_the_whole() {
    let mark = |mut packet: Vec<u8>, family, ecn: u8| {
        if family == Family::V4 {
            packet[1] = packet[1] & !3 | ecn;
            packet[10..12].fill(0);
            let check = floodwall_checksum::sum(&packet[..20]).finish();
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        } else {
            packet[1] = packet[1] & !0x30 | ecn << 4;
        }
        from_peer(&packet)
    };
    for family in FAMILIES {
        for (marks, lives) in
            [([0, 0], true), ([2, 3], true), ([3, 1], true), ([0, 3], false), ([3, 0], false)]
        {
            let mut rig = rig_of(1500);
            let ask = echo(addr(family, PEER), addr(family, HOST), &[0; 64]);
            let first = mark(fragment(&ask, 1, 0, 32, true), family, marks[0]);
            let last = mark(fragment(&ask, 1, 32, 72, false), family, marks[1]);
            rig.frame(&first);
            let answers = rig.frame(&last);
            assert_eq!(answers.len() == 1, lives, "{family:?} {marks:?}");
            let lost = rig.stats().drops_in.of(floodwall_base::DropReason::FragmentMalformed);
            assert_eq!(lost, if lives { 0 } else { 2 });
            assert!(rig.conservation().holds());
        }
    }
}
