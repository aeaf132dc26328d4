//! TUN and TAP against the kernel, in namespaces of their own.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;

use floodwall_device::{Device, DeviceError, Medium, Tun, TunConfig, TunKind};
use floodwall_packet::{Burst, ChecksumState, PacketBuf, PacketList, Pool, PoolConfig};

use crate::namespace::{
    self, available, flat, forward, inside, ip, receive_where, send, shown, wait, wait_millis,
};
use crate::packets;

fn pool() -> Pool {
    Pool::new(&PoolConfig { supers: 4, ..PoolConfig::default() }).unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn open(name: &str, config: &TunConfig) -> Option<Tun> {
    Some(available(Tun::open(name, config))?.remove(0))
}

fn up(vnet_header: bool) -> TunConfig {
    TunConfig { vnet_header, up: true, mtu: Some(1500), ..TunConfig::default() }
}

/// A TUN with an address of each family at the kernel's side, and a peer behind it.
fn addressed(name: &str, net: u8, vnet_header: bool) -> Option<Tun> {
    let tun = open(name, &up(vnet_header))?;
    assert!(ip(&format!("addr add 10.99.{net}.1/24 dev {name}")));
    assert!(ip(&format!("addr add fd99:{net}::1/64 dev {name} nodad")));
    Some(tun)
}

/// Address of the kernel and of the peer behind it.
fn ends(net: u8, v6: bool) -> (IpAddr, IpAddr) {
    if v6 {
        (addr(&format!("fd99:{net}::1")), addr(&format!("fd99:{net}::2")))
    } else {
        (addr(&format!("10.99.{net}.1")), addr(&format!("10.99.{net}.2")))
    }
}

fn protocol(packet: &PacketBuf) -> u8 {
    let bytes = packet.first();
    if bytes[0] >> 4 == 4 { bytes[9] } else { bytes[6] }
}

#[test]
fn datagrams_cross_in_both_directions_and_families_with_partial_checksums() {
    inside(|| {
        let pool = pool();
        for vnet_header in [true, false] {
            // Two names: a child process of another test may hold a closed queue for a moment.
            let name = if vnet_header { "fwvnet" } else { "fwplain" };
            let Some(mut tun) = addressed(name, 1, vnet_header) else { return };
            assert_eq!(
                (tun.info().medium, tun.info().mtu, tun.info().offload, tun.info().mac),
                (Medium::Ip, 1500, vnet_header, None)
            );
            let mut sent = 0;
            for v6 in [false, true] {
                let (kernel, peer) = ends(1, v6);
                let socket = UdpSocket::bind((kernel, 0)).unwrap();
                socket.send_to(b"out of the kernel", (peer, 9)).unwrap();
                let packet = receive_where(&mut tun, &pool, |p| protocol(p) == packets::UDP)
                    .expect("a datagram");
                if vnet_header {
                    assert_eq!(packet.checksum_state(), ChecksumState::Partial);
                    let offload = packet.offload().unwrap();
                    let header = if v6 { 40 } else { 20 };
                    assert_eq!((offload.checksum_start, offload.checksum_offset), (header, 6));
                } else {
                    assert_eq!(packet.checksum_state(), ChecksumState::Unverified);
                    assert!(packets::verifies(packet.first()));
                }
                let port = socket.local_addr().unwrap().port();
                let (bytes, offload) =
                    packets::partial_datagram(peer, kernel, [9, port], b"into the kernel");
                // In odd pieces, so that the sum and the patch cross them. The kernel may need a
                // moment to activate its new address: then again.
                let came = (0..50).any(|_| {
                    let mut packet = pool.packet_from_chunks(bytes.chunks(27)).unwrap();
                    packet.set_checksum_state(ChecksumState::Partial);
                    packet.set_offload(offload);
                    send(&mut tun, packet);
                    sent += 1;
                    wait_millis(socket.as_fd(), 50)
                });
                assert!(came, "lost, as with a wrong checksum: header {vnet_header}, v6 {v6}");
                let mut room = [0; 64];
                let (len, from) = socket.recv_from(&mut room).unwrap();
                assert_eq!((&room[..len], from.ip()), (&b"into the kernel"[..], peer));
            }
            assert_eq!((tun.stats().tx_packets, tun.stats().rx_lost()), (sent, 0));
        }
    });
}

#[test]
fn packets_that_there_is_no_time_to_read_stay_in_the_system() {
    inside(|| {
        let pool = pool();
        let Some(mut tun) = addressed("fwtime", 7, false) else { return };
        let (kernel, peer) = ends(7, false);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        for _ in 0..20 {
            socket.send_to(b"one of twenty", (peer, 9)).unwrap();
        }
        // The kernel sends packets of its own beside them.
        let is_ours = |packet: &PacketBuf| packet.first().ends_with(b"one of twenty");
        let (mut ours, mut calls) = (0, 0);
        while ours < 20 && calls < 100 {
            let (mut burst, mut asked) = (Burst::new(), 0);
            let mut goes_on = || {
                asked += 1;
                false
            };
            let taken = tun.receive_while(&pool, &mut burst, &mut goes_on).unwrap();
            assert!(taken <= 1 && asked == taken, "{taken} read, {asked} asked");
            ours += burst.iter().filter(|packet| is_ours(packet)).count();
            calls += 1;
        }
        assert_eq!(ours, 20);
        assert!(calls >= 20, "{calls}");
        // With time for all of them they come at once.
        for _ in 0..20 {
            socket.send_to(b"one of twenty", (peer, 9)).unwrap();
        }
        let mut burst = Burst::new();
        assert!(tun.receive(&pool, &mut burst).unwrap() >= 20);
    });
}

/// Decision B6's second spike: 64 KiB with their virtio header, read into the pool from one TUN
/// and written back whole, so that the kernel routes them to the other.
#[test]
fn a_super_frame_is_read_into_the_pool_and_written_back_whole() {
    inside(|| {
        let sender = Pool::new(&PoolConfig { supers: 4, ..PoolConfig::default() }).unwrap();
        let with_supers = pool();
        let frames_only = Pool::new(&PoolConfig::default()).unwrap();
        for (memory, chunks, n) in [(&with_supers, 2, 1), (&frames_only, 37, 3)] {
            let Some(mut a) = addressed(&format!("fw{n}"), n, true) else { return };
            let Some(mut b) = addressed(&format!("fw{}", n + 1), n + 1, true) else { return };
            forward();
            for v6 in [false, true] {
                let (from, to) = (ends(n, v6).1, ends(n + 1, v6).1);
                let (bytes, offload) = packets::super_segment(from, to, packets::PAYLOAD_MAX);
                let mut packet = sender.packet_from(&bytes).unwrap();
                packet.set_checksum_state(ChecksumState::Partial);
                packet.set_offload(offload);
                send(&mut a, packet);
                let is_super = |p: &PacketBuf| p.len() > 60_000;
                let mut packet = receive_where(&mut b, memory, is_super).expect("whole at b");
                assert_eq!((packet.len(), packet.chunk_count()), (bytes.len(), chunks));
                assert_eq!(packet.checksum_state(), ChecksumState::Partial);
                let arrived = packet.offload().unwrap();
                assert_eq!((arrived.gso_type, arrived.gso_size), (offload.gso_type, 1400));
                swap_addresses(&mut packet);
                let sent = flat(&packet);
                send(&mut b, packet);
                let packet = receive_where(&mut a, memory, is_super).expect("whole back at a");
                let network = if v6 { 40 } else { 20 };
                assert!(flat(&packet)[network..] == sent[network..]);
                assert_eq!(packet.offload().unwrap().gso_size, 1400);
            }
            assert_eq!((a.stats().tx_lost(), a.stats().rx_lost(), b.stats().rx_lost()), (0, 0, 0));
            drop((a, b));
            assert_eq!(memory.available().frames, 8192, "everything came home");
        }
    });
}

/// Segments of one flow, as a stack sends them in a row, reach the kernel by one call, which routes
/// them on as one.
#[test]
fn segments_in_a_row_cross_as_one_super_frame() {
    inside(|| {
        let pool = pool();
        let Some(mut a) = addressed("fw7", 7, true) else { return };
        let Some(mut b) = addressed("fw8", 8, true) else { return };
        forward();
        for v6 in [false, true] {
            let (from, to) = (ends(7, v6).1, ends(8, v6).1);
            let headers = if v6 { 60 } else { 40 };
            let mut list = PacketList::new();
            let mut add = |seq: u32, flags: u8, len: usize| {
                let bytes = packets::segment(from, to, seq, flags, len);
                list.push_back(pool.packet_from_chunks(bytes.chunks(700)).unwrap());
            };
            (0..20).for_each(|n| add(n * 1400, 0x10, 1400));
            add(20 * 1400, 0x18, 77);
            assert_eq!(a.transmit(&mut list).unwrap(), 21);
            let whole = receive_where(&mut b, &pool, |p| protocol(p) == packets::TCP).unwrap();
            assert_eq!(whole.len(), headers + 20 * 1400 + 77, "v6 {v6}");
            assert_eq!(whole.offload().unwrap().gso_size, 1400);
            let expected: Vec<u8> = (0..20 * 1400 + 77).map(|i: usize| (i % 251) as u8).collect();
            assert!(flat(&whole)[headers..] == expected);
            // One alone stays what it is.
            let alone = packets::segment(from, to, 90_000, 0x10, 1400);
            send(&mut a, pool.packet_from(&alone).unwrap());
            let alone = receive_where(&mut b, &pool, |p| protocol(p) == packets::TCP).unwrap();
            assert_eq!((alone.len(), alone.offload().is_none()), (headers + 1400, true));
            assert!(packets::verifies(&flat(&alone)));
        }
        assert_eq!((a.stats().tx_packets, a.stats().tx_lost()), (44, 0));
    });
}

fn swap_addresses(packet: &mut PacketBuf) {
    let bytes = packet.first_mut().unwrap();
    let (at, len) = if bytes[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
    let (from, to) = bytes[at..at + 2 * len].split_at_mut(len);
    from.swap_with_slice(to);
}

#[test]
fn every_queue_of_a_tap_carries_frames() {
    inside(|| {
        let pool = pool();
        let config = TunConfig { kind: TunKind::Tap, queues: 2, up: true, ..TunConfig::default() };
        let Some(mut queues) = available(Tun::open("fwtap%d", &config)) else { return };
        assert_eq!(queues.len(), 2);
        let info = queues[0].info().clone();
        assert_eq!((info.name.as_str(), info.medium), ("fwtap0", Medium::Ethernet));
        let mac = info.mac.expect("a TAP has a link address").0;
        assert!(ip("addr add 10.99.3.1/24 dev fwtap0"));
        let socket = UdpSocket::bind("10.99.3.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        for queue in &mut queues {
            let (bytes, offload) =
                packets::partial_datagram(addr("10.99.3.2"), to.ip(), [9, to.port()], b"frame");
            let frame = packets::frame(mac, [2, 0, 0, 0, 0, 9], &bytes);
            let mut packet = pool.packet_from(&frame).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(packets::behind_ethernet(offload));
            send(queue, packet);
            assert!(wait(socket.as_fd()));
            assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 5);
        }
        // The kernel resolves the peer by ARP on one of the queues.
        socket.send_to(b"a datagram", "10.99.3.2:9").unwrap();
        let is_arp = |p: &PacketBuf| p.first()[12..14] == [8, 6];
        let [mut one, mut two]: [Tun; 2] = queues.try_into().unwrap();
        let found = receive_where(&mut one, &pool, is_arp)
            .or_else(|| receive_where(&mut two, &pool, is_arp));
        assert!(found.is_some());
    });
}

#[test]
fn a_second_open_of_a_single_queue_finds_it_busy_and_another_kind_is_told() {
    inside(|| {
        let config = TunConfig { kind: TunKind::Tap, ..TunConfig::default() };
        let Some(_held) = open("fwone", &config) else { return };
        let error = Tun::open("fwone", &config).unwrap_err();
        assert!(matches!(error, DeviceError::Busy { .. }), "{error}");
        assert!(error.to_string().starts_with("fwone: busy: another process"), "{error}");
        let other = Tun::open("fwone", &TunConfig::default()).unwrap_err();
        assert!(matches!(other, DeviceError::Unsupported { .. }), "{other}");
        for name in ["", "much-too-long-a-name", "a/b"] {
            let error = Tun::open(name, &config).unwrap_err();
            assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
        }
    });
}

#[test]
fn the_systems_own_queue_length_is_raised_and_a_chosen_one_is_left() {
    inside(|| {
        let queue_of = |name: &str, kind| {
            let opened = open(name, &TunConfig { kind, ..up(true) })?;
            let shown = shown(&format!("link show {name}"));
            drop(opened);
            shown.split(" qlen ").nth(1)?.split_whitespace().next()?.parse::<u32>().ok()
        };
        let Some(tun) = queue_of("fwtun", TunKind::Tun) else { return };
        assert_eq!((tun, queue_of("fwtap", TunKind::Tap)), (4096, Some(4096)));
        assert!(ip("tuntap add fwchosen mode tap") && ip("link set fwchosen txqueuelen 300"));
        assert_eq!(queue_of("fwchosen", TunKind::Tap), Some(300));
    });
}

#[test]
fn a_deleted_interface_is_gone_and_what_was_not_sent_stays() {
    inside(|| {
        let pool = pool();
        let Some(mut tun) = addressed("fwgone", 4, true) else { return };
        assert!(ip("link del fwgone"));
        let error = tun.receive(&pool, &mut Burst::new()).unwrap_err();
        assert!(matches!(error, DeviceError::Gone { .. }), "{error}");
        let (kernel, peer) = ends(4, false);
        let (bytes, _) = packets::partial_datagram(peer, kernel, [1, 2], b"late");
        let mut list = PacketList::new();
        list.push_back(pool.packet_from(&bytes).unwrap());
        let error = tun.transmit(&mut list).unwrap_err();
        assert!(error.to_string().starts_with("fwgone: gone"), "{error}");
        assert_eq!((list.len(), tun.stats().tx_lost()), (1, 0));
    });
}

#[test]
fn what_cannot_be_carried_is_dropped_under_a_name() {
    inside(|| {
        let pool = pool();
        let config = TunConfig { vnet_header: false, up: false, ..TunConfig::default() };
        let Some(mut tun) = open("fwdown", &config) else { return };
        let (kernel, peer) = ends(5, false);
        let (bytes, _) = packets::partial_datagram(peer, kernel, [1, 2], b"x");
        send(&mut tun, pool.packet_from(&bytes).unwrap());
        assert_eq!(tun.stats().tx_down, 1, "the interface is down");
        assert!(ip("link set fwdown up"));
        let (bytes, offload) = packets::super_segment(peer, kernel, 9000);
        let mut packet = pool.packet_from(&bytes).unwrap();
        packet.set_offload(offload);
        send(&mut tun, packet);
        assert_eq!(tun.stats().tx_refused, 1, "no virtio header, no GSO frames");
        let mut packet = pool.packet_from(&[0x45; 40]).unwrap();
        packet.set_checksum_state(ChecksumState::Partial);
        send(&mut tun, packet);
        send(&mut tun, pool.packet_from(&[0xf5; 40]).unwrap());
        let stats = tun.stats();
        assert_eq!((stats.tx_refused, stats.tx_packets, stats.tx_lost()), (3, 0, 4));
    });
}

#[test]
fn packets_that_find_the_pool_empty_are_counted_and_the_device_goes_on() {
    inside(|| {
        let pool = Pool::new(&PoolConfig { frames: 3, ..PoolConfig::default() }).unwrap();
        let Some(mut tun) = addressed("fwdry", 6, false) else { return };
        // Drain what the kernel sends by itself when the interface comes up.
        while receive_where(&mut tun, &pool, |_| false).is_some() {}
        let (kernel, peer) = ends(6, false);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        for _ in 0..10 {
            socket.send_to(b"flood", (peer, 9)).unwrap();
        }
        let before = tun.stats();
        let mut burst = Burst::new();
        assert_eq!(tun.receive(&pool, &mut burst).unwrap(), 2);
        let lost = tun.stats().rx_no_buffer - before.rx_no_buffer;
        assert!(lost >= 8, "{lost}");
        drop(burst);
        socket.send_to(b"after", (peer, 9)).unwrap();
        assert!(receive_where(&mut tun, &pool, |p| p.len() == 33).is_some());
    });
}

#[test]
fn a_packet_beyond_the_announced_mtu_is_counted_and_the_next_one_fits() {
    inside(|| {
        let pool = pool();
        let Some(mut tun) = addressed("fwmtu", 7, false) else { return };
        assert!(ip("link set fwmtu mtu 9000"));
        let (kernel, peer) = ends(7, true);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        for _ in 0..2 {
            socket.send_to(&[5; 8000], (peer, 9)).unwrap();
        }
        let found = receive_where(&mut tun, &pool, |p| p.len() == 8048).expect("the second");
        assert!(packets::verifies(&flat(&found)));
        assert_eq!((tun.stats().rx_truncated, tun.info().mtu), (1, 9000));
    });
}

#[test]
fn without_the_capability_the_message_names_it_and_the_remedy() {
    inside(|| {
        // Dropping the capability from this thread's effective set leaves the process alone.
        if !namespace::drop_capabilities() {
            namespace::skip("capabilities cannot be dropped");
            return;
        }
        let Err(error) = Tun::open("fwpriv", &TunConfig::default()) else {
            panic!("opened without a privilege")
        };
        let text = error.to_string();
        match error {
            DeviceError::NoPrivilege { .. } => {
                assert!(text.contains("sudo setcap cap_net_admin,cap_net_raw+ep"), "{text}");
                assert!(text.starts_with("fwpriv: may not "), "{text}");
            }
            DeviceError::NotFound { .. } => namespace::skip(&text),
            other => panic!("{other}"),
        }
    });
}
