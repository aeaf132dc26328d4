//! AF_PACKET on one end of a veth pair, the kernel on the other, in namespaces of their own.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;

use floodwall_device::{AfPacket, AfPacketConfig, Device, DeviceError, Medium, Tun, TunConfig};
use floodwall_packet::{Burst, ChecksumState, PacketBuf, PacketList, Pool, PoolConfig};

use crate::namespace::{
    self, available, flat, forward, inside, ip, receive_where, send, skip, wait_millis,
};
use crate::packets;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const KERNELS: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];

fn pool() -> Pool {
    Pool::new(&PoolConfig { supers: 4, ..PoolConfig::default() }).unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A veth pair: `ours` without addresses, `kernels` with one of each family, and the peer known.
fn veth() -> bool {
    let made = ip("link add ours type veth peer name kernels")
        && ip("link set kernels address 02:00:00:00:00:0b")
        && ip("link set ours up")
        && ip("link set kernels up");
    if !made {
        skip("no veth pair in this kernel");
        return false;
    }
    assert!(ip("addr add 10.98.1.1/24 dev kernels"));
    assert!(ip("addr add fd98:1::1/64 dev kernels nodad"));
    for peer in ["10.98.1.2", "fd98:1::2"] {
        assert!(ip(&format!("neigh add {peer} lladdr 02:00:00:00:00:0a dev kernels")));
    }
    true
}

fn open(config: &AfPacketConfig) -> Option<AfPacket> {
    available(AfPacket::open("ours", config))
}

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    if v6 { (addr("fd98:1::1"), addr("fd98:1::2")) } else { (addr("10.98.1.1"), addr("10.98.1.2")) }
}

/// Whether a frame is a datagram for port 9.
fn is_ours(packet: &PacketBuf) -> bool {
    let bytes = flat(packet);
    let at = match bytes.get(12..14) {
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        Some([0x81, 0x00]) => 38,
        _ => return false,
    };
    bytes[..6] == OURS && bytes.get(at + 2..at + 4) == Some(&[0, 9])
}

#[test]
fn datagrams_cross_in_both_directions_and_families_with_partial_checksums() {
    inside(|| {
        let pool = pool();
        if !veth() {
            return;
        }
        let Some(mut device) = open(&AfPacketConfig::default()) else { return };
        let info = device.info();
        assert_eq!((info.medium, info.mtu, info.offload), (Medium::Ethernet, 1500, false));
        for v6 in [false, true] {
            let (kernel, peer) = ends(v6);
            let socket = UdpSocket::bind((kernel, 0)).unwrap();
            // The kernel may need a moment to activate its new address: then again.
            let arrived = (0..50).find_map(|_| {
                socket.send_to(b"out of the kernel", (peer, 9)).ok()?;
                wait_millis(device.readiness()?, 50);
                let mut burst = Burst::new();
                device.receive(&pool, &mut burst).unwrap();
                burst.drain().find(is_ours)
            });
            let packet = arrived.expect("a datagram");
            assert_eq!(packet.checksum_state(), ChecksumState::Partial);
            let network = if v6 { 40 } else { 20 };
            let offload = packet.offload().unwrap();
            assert_eq!((offload.checksum_start, offload.checksum_offset), (14 + network, 6));
            let to = socket.local_addr().unwrap();
            let (bytes, offload) = packets::partial_datagram(peer, kernel, [9, to.port()], b"in");
            let frame = packets::frame(KERNELS, OURS, &bytes);
            let came = (0..50).any(|_| {
                let mut packet = pool.packet_from_chunks(frame.chunks(31)).unwrap();
                packet.set_checksum_state(ChecksumState::Partial);
                packet.set_offload(packets::behind_ethernet(offload));
                send(&mut device, packet);
                wait_millis(socket.as_fd(), 50)
            });
            assert!(came, "lost, as with a wrong checksum: v6 {v6}");
            assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 2);
        }
        // What we sent has not come back.
        while let Some(packet) = receive_where(&mut device, &pool, |_| true) {
            assert_ne!(packet.first()[6..12], OURS, "our own frame came back");
        }
        assert_eq!((device.stats().tx_lost(), device.stats().rx_lost()), (0, 0));
    });
}

#[test]
fn many_frames_leave_in_order_and_arrive_all() {
    inside(|| {
        let pool = pool();
        if !veth() {
            return;
        }
        let Some(mut device) = open(&AfPacketConfig::default()) else { return };
        let (kernel, peer) = ends(false);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut list = PacketList::new();
        for number in 0..100_u8 {
            let (bytes, offload) =
                packets::partial_datagram(peer, kernel, [9, port], &[number; 40]);
            let mut packet = pool.packet_from(&packets::frame(KERNELS, OURS, &bytes)).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(packets::behind_ethernet(offload));
            list.push_back(packet);
        }
        assert_eq!(device.transmit(&mut list).unwrap(), 100);
        for number in 0..100 {
            let mut room = [0; 64];
            assert!(wait_millis(socket.as_fd(), 1000), "{number}");
            assert_eq!(socket.recv(&mut room).unwrap(), 40);
            assert_eq!(room[0], number);
        }
        // And the other way: more than a burst, through several blocks.
        for number in 0..200_u8 {
            socket.send_to(&[number; 900], (peer, 9)).unwrap();
        }
        let mut expected = 0;
        while expected < 200 {
            let mut burst = Burst::new();
            if device.receive(&pool, &mut burst).unwrap() == 0 {
                assert!(device.pending() || wait_millis(device.readiness().unwrap(), 1000));
            }
            for packet in burst.drain().filter(is_ours) {
                assert_eq!(packet.first()[42], expected);
                expected += 1;
            }
        }
        assert_eq!((device.stats().tx_lost(), device.stats().rx_lost()), (0, 0));
    });
}

#[test]
fn super_frames_cross_whole_where_offload_is_on_and_are_refused_where_not() {
    inside(|| {
        let pool = pool();
        if !veth() {
            return;
        }
        let Some(mut queues) = available(Tun::open(
            "fwsup",
            &TunConfig { up: true, mtu: Some(1500), ..TunConfig::default() },
        )) else {
            return;
        };
        assert!(
            ip("addr add 10.98.2.1/24 dev fwsup") && ip("addr add fd98:2::1/64 dev fwsup nodad")
        );
        let mut tun = queues.remove(0);
        forward();
        let config = AfPacketConfig { offload: true, ..AfPacketConfig::default() };
        let Some(mut device) = open(&config) else { return };
        let is_super = |p: &PacketBuf| p.len() > 60_000;
        for (from, to) in [("10.98.1.2", "10.98.2.2"), ("fd98:1::2", "fd98:2::2")] {
            let (bytes, offload) = packets::super_segment(addr(from), addr(to), 65_000);
            let mut packet = pool.packet_from(&packets::frame(KERNELS, OURS, &bytes)).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(packets::behind_ethernet(offload));
            send(&mut device, packet);
            let packet = receive_where(&mut tun, &pool, is_super).expect("whole at the TUN");
            assert_eq!((packet.len(), packet.offload().unwrap().gso_size), (bytes.len(), 1400));
            // And back: from the TUN through the kernel to the veth.
            let (bytes, offload) = packets::super_segment(addr(to), addr(from), 65_000);
            let mut packet = pool.packet_from(&bytes).unwrap();
            packet.set_checksum_state(ChecksumState::Partial);
            packet.set_offload(offload);
            send(&mut tun, packet);
            let packet = receive_where(&mut device, &pool, is_super).expect("whole at the veth");
            let arrived = packet.offload().unwrap();
            assert_eq!((packet.len(), arrived.gso_size), (14 + bytes.len(), 1400));
            assert_eq!(arrived.checksum_start, offload.checksum_start + 14);
        }
        assert_eq!((device.stats().tx_lost(), device.stats().rx_truncated), (0, 0));
        let Some(mut plain) = open(&AfPacketConfig::default()) else { return };
        let (bytes, offload) = packets::super_segment(addr("10.98.1.2"), addr("10.98.2.2"), 65_000);
        let mut packet = pool.packet_from(&packets::frame(KERNELS, OURS, &bytes)).unwrap();
        packet.set_checksum_state(ChecksumState::Partial);
        packet.set_offload(packets::behind_ethernet(offload));
        send(&mut plain, packet);
        send(&mut plain, pool.packet_from(&packets::frame(KERNELS, OURS, &[0x45; 1600])).unwrap());
        assert_eq!(plain.stats().tx_refused, 2, "a GSO frame, and one beyond the MTU");
    });
}

#[test]
fn a_tag_that_the_kernel_took_out_is_put_back() {
    inside(|| {
        let pool = pool();
        if !veth() {
            return;
        }
        let Some(mut device) = open(&AfPacketConfig::default()) else { return };
        let Some(mut other) = available(AfPacket::open("kernels", &AfPacketConfig::default()))
        else {
            return;
        };
        let (kernel, peer) = ends(false);
        let (bytes, offload) = packets::partial_datagram(kernel, peer, [9, 9], b"tagged");
        let frame = packets::frame(OURS, KERNELS, &bytes);
        let (addresses, rest) = frame.split_at(12);
        let tagged = [addresses, &[0x81, 0, 0, 77], rest].concat();
        let mut packet = pool.packet_from(&tagged).unwrap();
        packet.set_checksum_state(ChecksumState::Partial);
        let mut offload = packets::behind_ethernet(offload);
        offload.checksum_start += 4;
        packet.set_offload(offload);
        send(&mut other, packet);
        let packet = receive_where(&mut device, &pool, is_ours).expect("a tagged datagram");
        assert_eq!(packet.first()[12..18], [0x81, 0, 0, 77, 8, 0]);
        assert_eq!(packet.len(), 14 + 4 + 20 + 8 + 6);
        if packet.checksum_state() == ChecksumState::Partial {
            assert_eq!(packet.offload().unwrap().checksum_start, 38);
        }
    });
}

#[test]
fn what_the_ring_or_the_pool_has_no_room_for_is_counted() {
    inside(|| {
        if !veth() {
            return;
        }
        let config = AfPacketConfig { block_bytes: 4096, blocks: 2, ..AfPacketConfig::default() };
        let Some(mut device) = open(&config) else { return };
        let pool = Pool::new(&PoolConfig { frames: 2, ..PoolConfig::default() }).unwrap();
        let (kernel, peer) = ends(false);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        const SENT: u64 = 50;
        for _ in 0..SENT {
            socket.send_to(&[1; 900], (peer, 9)).unwrap();
        }
        let (mut ours, mut others, mut kept) = (0, 0, Vec::new());
        // What comes after the first frames is lost in the ring: no event tells of it.
        for _ in 0..500 {
            let mut burst = Burst::new();
            device.receive(&pool, &mut burst).unwrap();
            for packet in burst.drain() {
                if is_ours(&packet) {
                    ours += 1
                } else {
                    others += 1
                }
                kept.push(packet);
            }
            let stats = device.stats();
            if !device.pending() && stats.rx_packets + stats.rx_lost() >= SENT {
                break;
            }
            wait_millis(device.readiness().unwrap(), 20);
        }
        let stats = device.stats();
        assert_eq!(stats.rx_packets, ours + others);
        assert!(stats.rx_packets <= 2 && stats.rx_ring_full > 0 && stats.rx_no_buffer > 0);
        assert!(stats.rx_packets + stats.rx_lost() >= SENT, "{stats:?}");
        assert_eq!(stats.rx_lost(), stats.rx_ring_full + stats.rx_no_buffer);
        // The counts do not fall when they are read again, and the device goes on.
        assert!(device.stats().rx_ring_full >= stats.rx_ring_full);
        kept.clear();
        socket.send_to(b"after", (peer, 9)).unwrap();
        assert!(receive_where(&mut device, &pool, is_ours).is_some());
    });
}

#[test]
fn a_downed_interface_drops_and_a_deleted_one_is_gone() {
    inside(|| {
        let pool = pool();
        if !veth() {
            return;
        }
        let Some(mut device) = open(&AfPacketConfig::default()) else { return };
        let frame = packets::frame(KERNELS, OURS, &[0x45; 60]);
        assert!(ip("link set ours down"));
        assert!(receive_where(&mut device, &pool, is_ours).is_none(), "down is not gone");
        send(&mut device, pool.packet_from(&frame).unwrap());
        assert_eq!(device.stats().tx_down, 1);
        assert!(ip("link set ours up"));
        send(&mut device, pool.packet_from(&frame).unwrap());
        assert_eq!(device.stats().tx_packets, 1);
        assert!(ip("link del ours"));
        let error = (0..10).find_map(|_| device.receive(&pool, &mut Burst::new()).err()).unwrap();
        assert!(matches!(error, DeviceError::Gone { .. }), "{error}");
        let mut list = PacketList::new();
        list.push_back(pool.packet_from(&frame).unwrap());
        let error = device.transmit(&mut list).unwrap_err();
        assert!(error.to_string().starts_with("ours: gone"), "{error}");
        assert_eq!(list.len(), 1);
    });
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    inside(|| {
        let Some(error) = AfPacket::open("nowhere", &AfPacketConfig::default()).err() else {
            panic!("opened an interface that does not exist")
        };
        let text = error.to_string();
        if matches!(error, DeviceError::NoPrivilege { .. }) {
            skip(&text);
            return;
        }
        assert!(text.starts_with("nowhere: not found"), "{text}");
        let Some(tun) = available(Tun::open("fwraw", &TunConfig::default())) else { return };
        let error = AfPacket::open("fwraw", &AfPacketConfig::default()).unwrap_err();
        assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
        drop(tun);
    });
}

#[test]
fn without_the_capability_the_message_names_it_and_the_remedy() {
    inside(|| {
        if !namespace::drop_capabilities() {
            skip("capabilities cannot be dropped");
            return;
        }
        let error = AfPacket::open("lo", &AfPacketConfig::default()).unwrap_err();
        assert!(matches!(error, DeviceError::NoPrivilege { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("lo: may not open a packet socket: CAP_NET_RAW is missing"));
        assert!(text.contains("sudo setcap cap_net_admin,cap_net_raw+ep"), "{text}");
    });
}
