//! AF_XDP on one end of a veth pair, the kernel on the other, in namespaces of their own.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;

use floodwall_base::{Instant, MacAddr};
use floodwall_device::{
    AfXdp, AfXdpConfig, Device, DeviceError, DeviceStats, Medium, OpenedXdp, XdpMode,
};
use floodwall_packet::{Burst, ChecksumState, PacketBuf, PacketList, Pool, PoolConfig};

use crate::namespace::{self, flat, inside, ip, send, skip, wait_millis};
use crate::packets;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const KERNELS: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
const MODES: [XdpMode; 2] = [XdpMode::Native, XdpMode::Generic];

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    if v6 { (addr("fd98:2::1"), addr("fd98:2::2")) } else { (addr("10.98.2.1"), addr("10.98.2.2")) }
}

/// A veth pair of so many queues: the kernel knows our station as a neighbour behind it.
fn veth(queues: usize) -> bool {
    let made = ip(&format!(
        "link add ours numrxqueues {queues} numtxqueues {queues} type veth peer name kernels \
         numrxqueues {queues} numtxqueues {queues}"
    )) && ip("link set kernels address 02:00:00:00:00:0b")
        && ip("link set ours up")
        && ip("link set kernels up");
    if !made {
        skip("no veth pair in this kernel");
        return false;
    }
    assert!(ip("addr add 10.98.2.1/24 dev kernels"));
    assert!(ip("addr add fd98:2::1/64 dev kernels nodad"));
    for peer in ["10.98.2.2", "fd98:2::2"] {
        assert!(ip(&format!("neigh add {peer} lladdr 02:00:00:00:00:0a dev kernels")));
    }
    true
}

fn open(config: &AfXdpConfig) -> Option<OpenedXdp> {
    match AfXdp::open("ours", config) {
        Ok(opened) => Some(opened),
        Err(error @ (DeviceError::NoPrivilege { .. } | DeviceError::Unsupported { .. })) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn config(mode: XdpMode) -> AfXdpConfig {
    AfXdpConfig { mode, ring: 256, ..AfXdpConfig::new(MacAddr(OURS)) }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig::default()).unwrap()
}

/// Whether a frame is a datagram for our port 9.
fn is_ours(packet: &PacketBuf) -> bool {
    let bytes = flat(packet);
    let at = match bytes.get(12..14) {
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => return false,
    };
    bytes[..6] == OURS && bytes.get(at + 2..at + 4) == Some(&[0, 9])
}

/// Looks until every queue is had: its last owner, the trial when the device was opened, leaves it
/// a moment later, on a thread of the kernel's that a busy machine keeps waiting.
fn attach(devices: &mut [AfXdp], pool: &Pool) {
    for _ in 0..2000 {
        for device in devices.iter_mut() {
            device.receive(pool, &mut Burst::new()).unwrap();
        }
        if !devices.iter().any(Device::pending) {
            return;
        }
        wait_millis(devices[0].readiness().unwrap(), 5);
    }
    panic!("a queue is never had");
}

/// Datagrams for us, of all queues, until there are so many or nothing comes for a while.
fn collect(devices: &mut [AfXdp], pool: &Pool, count: usize) -> Vec<PacketBuf> {
    collect_until(devices, pool, |_, came| came >= count)
}

/// The same, of so many that were sent: until each has come or is counted as lost, where `before`
/// were lost before.
fn collect_counted(devices: &mut [AfXdp], pool: &Pool, sent: u64, before: u64) -> Vec<PacketBuf> {
    collect_until(devices, pool, |devices, came| {
        came as u64 + total(devices).rx_lost() - before >= sent
    })
}

fn collect_until(
    devices: &mut [AfXdp],
    pool: &Pool,
    has_all: impl Fn(&[AfXdp], usize) -> bool,
) -> Vec<PacketBuf> {
    let mut all = Vec::new();
    for _ in 0..200 {
        for device in devices.iter_mut() {
            let mut burst = Burst::new();
            device.receive(pool, &mut burst).unwrap();
            all.extend(burst.drain().filter(is_ours));
        }
        if has_all(devices, all.len()) {
            break;
        }
        if !devices.iter().any(Device::pending) {
            wait_millis(devices[0].readiness().unwrap(), 20);
        }
    }
    all
}

/// Polls all queues in turn until one has a matching packet, for a while.
fn arrive(
    devices: &mut [AfXdp],
    pool: &Pool,
    wanted: impl Fn(&PacketBuf) -> bool,
) -> Option<PacketBuf> {
    for _ in 0..50 {
        for device in devices.iter_mut() {
            let mut burst = Burst::new();
            device.receive(pool, &mut burst).unwrap();
            if let Some(found) = burst.drain().find(&wanted) {
                return Some(found);
            }
        }
        if !devices.iter().any(Device::pending) {
            wait_millis(devices[0].readiness()?, 20);
        }
    }
    None
}

fn total(devices: &[AfXdp]) -> DeviceStats {
    devices.iter().fold(DeviceStats::default(), |mut all, device| {
        all.merge(&device.stats());
        all
    })
}

#[test]
fn datagrams_cross_in_both_directions_families_and_modes_with_unfinished_checksums() {
    inside(|| {
        for mode in MODES {
            let pool = pool();
            let before = pool.available();
            if !veth(1) {
                return;
            }
            let Some(OpenedXdp { mut queues, notes }) = open(&config(mode)) else { return };
            eprintln!("{mode:?}: {notes:?}");
            let info = queues[0].info().clone();
            assert_eq!((info.medium, info.mtu, info.offload), (Medium::Ethernet, 1500, false));
            attach(&mut queues, &pool);
            for v6 in [false, true] {
                let (kernel, peer) = ends(v6);
                let socket = UdpSocket::bind((kernel, 0)).unwrap();
                let arrived = (0..20).find_map(|_| {
                    socket.send_to(b"out of the kernel", (peer, 9)).ok()?;
                    arrive(&mut queues, &pool, is_ours)
                });
                let packet = arrived.expect("a datagram");
                assert_eq!(packet.checksum_state(), ChecksumState::Partial);
                let network = if v6 { 40 } else { 20 };
                let offload = packet.offload().unwrap();
                assert_eq!((offload.checksum_start, offload.checksum_offset), (14 + network, 6));
                assert!(flat(&packet).ends_with(b"out of the kernel"));
                let to = socket.local_addr().unwrap();
                let (bytes, offload) =
                    packets::partial_datagram(peer, kernel, [9, to.port()], b"in");
                let frame = packets::frame(KERNELS, OURS, &bytes);
                // Once in one chunk, once in pieces.
                for piece in [frame.len(), 31] {
                    let mut packet = pool.packet_from_chunks(frame.chunks(piece)).unwrap();
                    packet.set_checksum_state(ChecksumState::Partial);
                    packet.set_offload(packets::behind_ethernet(offload));
                    send(&mut queues[0], packet);
                    assert!(
                        wait_millis(socket.as_fd(), 1000),
                        "lost, as with a wrong checksum: v6 {v6}"
                    );
                    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 2);
                }
            }
            assert_eq!((total(&queues).tx_lost(), total(&queues).rx_lost()), (0, 0));
            drop(queues);
            assert_eq!(pool.available(), before, "a frame stayed at the kernel");
            assert_eq!(pool.region().refused_returns(), 0);
            assert!(ip("link del ours"));
        }
    });
}

#[test]
fn what_is_not_for_our_station_stays_the_hosts_and_groups_are_for_both() {
    inside(|| {
        let pool = pool();
        if !veth(1) {
            return;
        }
        // The host's own end of this interface has an address too.
        assert!(ip("addr add 10.98.2.3/24 dev ours"));
        let Some(OpenedXdp { mut queues, .. }) = open(&config(XdpMode::Native)) else { return };
        attach(&mut queues, &pool);
        // An address resolution request, as a broadcast, is seen by us; the host answers it.
        let socket = UdpSocket::bind("10.98.2.1:0").unwrap();
        let service = UdpSocket::bind("10.98.2.3:7").unwrap();
        assert!(ip("link set ours arp on"));
        socket.send_to(b"x", "10.98.2.77:9").unwrap();
        let asked = arrive(&mut queues, &pool, |packet| {
            let bytes = flat(packet);
            bytes[..6] == [0xff; 6] && bytes[12..14] == [8, 6] && bytes[38..42] == [10, 98, 2, 77]
        });
        assert!(asked.is_some(), "a broadcast was not copied to us");
        // A frame at the interface's own address is the host's.
        drop(service);
        let (ours, passed) = queues[0].steered().unwrap();
        assert_eq!(ours, 0);
        assert!(passed > 0);
        assert_eq!(total(&queues).rx_lost(), 0);
    });
}

#[test]
fn four_queues_share_the_frames_and_lose_none() {
    inside(|| {
        let pool = pool();
        let before = pool.available();
        if !veth(4) {
            return;
        }
        let Some(OpenedXdp { mut queues, .. }) = open(&config(XdpMode::Native)) else { return };
        assert_eq!(queues.len(), 4);
        attach(&mut queues, &pool);
        for v6 in [false, true] {
            let (kernel, peer) = ends(v6);
            let first = UdpSocket::bind((kernel, 0)).unwrap();
            let ready = (0..50).any(|_| {
                first.send_to(b"first", (peer, 9)).is_ok()
                    && arrive(&mut queues, &pool, is_ours).is_some()
            });
            assert!(ready, "nothing arrives at all: v6 {v6}");
            // Flows enough for every queue to have some.
            let sockets: Vec<_> = (0..32).map(|_| UdpSocket::bind((kernel, 0)).unwrap()).collect();
            for socket in &sockets {
                (0..5).for_each(|_| assert_eq!(socket.send_to(b"x", (peer, 9)).unwrap(), 1));
            }
            assert_eq!(collect(&mut queues, &pool, 160).len(), 160, "v6 {v6}");
        }
        let used = queues.iter().filter(|queue| queue.stats().rx_packets > 40).count();
        assert!(used > 1, "all flows in one queue");
        assert_eq!(total(&queues).rx_lost(), 0);
        drop(queues);
        assert_eq!(pool.available(), before);
    });
}

#[test]
fn a_flood_beyond_the_ring_is_counted_and_the_device_goes_on() {
    inside(|| {
        let pool = pool();
        if !veth(1) {
            return;
        }
        let config = AfXdpConfig { ring: 64, ..config(XdpMode::Generic) };
        let Some(OpenedXdp { mut queues, .. }) = open(&config) else { return };
        attach(&mut queues, &pool);
        let (kernel, peer) = ends(true);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        // The kernel may take a moment to have its address on a link that has just come up.
        let first = (0..50).any(|_| {
            socket.send_to(b"first", (peer, 9)).is_ok()
                && arrive(&mut queues, &pool, is_ours).is_some()
        });
        assert!(first, "nothing arrives at all");
        let (before, _) = queues[0].steered().unwrap();
        let lost_before = total(&queues).rx_lost();
        assert!(!queues[0].has_overflowed(), "there was room");
        (0..500).for_each(|_| assert_eq!(socket.send_to(b"flood", (peer, 9)).unwrap(), 5));
        let came = collect_counted(&mut queues, &pool, 500, lost_before).len() as u64;
        let stats = total(&queues);
        let (ours, _) = queues[0].steered().unwrap();
        assert!((64..500).contains(&came), "{came}");
        assert_eq!(ours - before, 500, "the program has seen all of them");
        assert_eq!(came + stats.rx_lost() - lost_before, 500, "{stats:?}");
        assert!(queues[0].has_overflowed() && !queues[0].has_overflowed(), "it is reported once");
        socket.send_to(b"after", (peer, 9)).unwrap();
        assert_eq!(collect(&mut queues, &pool, 1).len(), 1);
    });
}

#[test]
fn unverified_packets_have_half_of_the_ring_at_most_at_any_credit_and_it_is_set_once() {
    inside(|| {
        let (pool, now) = (pool(), Instant::ORIGIN);
        if !veth(1) {
            return;
        }
        let config = AfXdpConfig { ring: 64, ..config(XdpMode::Generic) };
        let Some(OpenedXdp { mut queues, .. }) = open(&config) else { return };
        let _ = collect(&mut queues, &pool, 0);
        let (kernel, peer) = ends(true);
        let unknown = UdpSocket::bind((kernel, 0)).unwrap();
        let first = (0..50).any(|_| {
            unknown.send_to(b"first", (peer, 9)).is_ok()
                && arrive(&mut queues, &pool, is_ours).is_some()
        });
        assert!(first, "nothing arrives at all");
        let _ = collect(&mut queues, &pool, 0);
        let lost = total(&queues).rx_lost();
        // Two turns in a row that take nothing: the second finds the places taken.
        for _ in 0..2 {
            queues[0].admit(now, Some(1000));
            (0..100).for_each(|_| assert_eq!(unknown.send_to(b"x", (peer, 9)).unwrap(), 1));
        }
        let came = collect_counted(&mut queues, &pool, 200, lost).len();
        assert!((16..=32).contains(&came), "{came}");
        queues[0].admit(now, Some(1000));
        assert!(queues[0].has_overflowed(), "some were dropped for lack of credit");
        queues[0].admit(now, Some(1000));
        assert!(!queues[0].has_overflowed(), "and none since");
    });
}

#[test]
fn under_pressure_established_flows_arrive_and_others_up_to_their_credit() {
    inside(|| {
        for (mode, v6) in [(0, false), (0, true), (1, false), (1, true)] {
            let (pool, now) = (pool(), Instant::ORIGIN);
            if !veth(1) {
                return;
            }
            let Some(OpenedXdp { mut queues, notes }) = open(&config(MODES[mode])) else { return };
            assert!(!notes.iter().any(|note| note.contains("not limited")), "{notes:?}");
            attach(&mut queues, &pool);
            let (kernel, peer) = ends(v6);
            let [established, unknown] = [0, 1].map(|_| UdpSocket::bind((kernel, 0)).unwrap());
            let first = (0..50).find_map(|_| {
                established.send_to(b"first", (peer, 9)).ok()?;
                arrive(&mut queues, &pool, is_ours)
            });
            let first = first.expect("nothing arrives at all");
            attach(&mut queues, &pool);
            let (ours, lost) = (queues[0].steered().unwrap().0, total(&queues).rx_lost());
            queues[0].admit(now, Some(10));
            queues[0].mark_established(now, &first);
            let send = |socket: &UdpSocket, count| {
                (0..count).for_each(|_| assert_eq!(socket.send_to(b"x", (peer, 9)).unwrap(), 1));
            };
            send(&unknown, 60);
            send(&established, 40);
            let port = |packet: &PacketBuf| {
                let at = if v6 { 54 } else { 34 };
                u16::from_be_bytes(*flat(packet)[at..].first_chunk().unwrap())
            };
            let came = collect_counted(&mut queues, &pool, 100, lost);
            let theirs = established.local_addr().unwrap().port();
            assert_eq!(came.iter().filter(|packet| port(packet) == theirs).count(), 40);
            // The last eighth of a service's part of the credit is kept for prefixes that have had
            // nothing: one prefix has 9 of 10.
            assert_eq!(came.len(), 40 + 9, "{mode} {v6}");
            let refused =
                |all: DeviceStats| all.rx_unverified + all.rx_service_full + all.rx_prefix_full;
            assert_eq!(came.len() as u64 + refused(total(&queues)), 100, "{mode} {v6}");
            let so_far = refused(total(&queues));
            let seen = queues[0].steered().unwrap().0 - ours;
            assert_eq!(seen, 100, "the program has seen all of them");
            assert_eq!(came.len() as u64 + total(&queues).rx_lost() - lost, seen);
            // Before a sleep there is credit for half a ring; then no limit.
            queues[0].rest();
            send(&unknown, 60);
            assert_eq!(collect(&mut queues, &pool, 60).len(), 60, "{mode} {v6}");
            queues[0].admit(now, None);
            send(&unknown, 200);
            assert_eq!(collect(&mut queues, &pool, 200).len(), 200, "{mode} {v6}");
            assert_eq!(refused(total(&queues)), so_far);
            drop(queues);
            assert!(ip("link del ours"));
        }
    });
}

#[test]
fn a_user_without_root_needs_three_capabilities_for_all_of_it_and_each_of_them() {
    use rustix::thread::CapabilitySet;
    let all = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
    let with = |kept: CapabilitySet| {
        inside(move || {
            if !veth(1) {
                return;
            }
            let (kernel, peer) = ends(true);
            let socket = UdpSocket::bind((kernel, 0)).unwrap();
            assert!(namespace::become_nothing(kept));
            let opened = AfXdp::open("ours", &config(XdpMode::Auto));
            if kept != all {
                let words = opened.unwrap_err().to_string();
                assert!(words.contains("cap_net_admin,cap_net_raw,cap_bpf"), "{words}");
                return;
            }
            let OpenedXdp { mut queues, notes } = opened.unwrap();
            assert!(!notes.iter().any(|note| note.contains("not limited")), "{notes:?}");
            // Less than a user may lock by default: 8 MiB.
            let small = PoolConfig { small: 64, frames: 1024, supers: 0, ..PoolConfig::default() };
            let pool = Pool::new(&small).unwrap();
            // The limit is per user: other processes may have locked the rest of it.
            if let Err(error) = queues[0].receive(&pool, &mut Burst::new()) {
                assert!(error.to_string().contains("LimitMEMLOCK=infinity"), "{error}");
                return skip(&error.to_string());
            }
            attach(&mut queues, &pool);
            let arrived = (0..50).find_map(|_| {
                socket.send_to(b"to a closed port", (peer, 9)).ok()?;
                arrive(&mut queues, &pool, is_ours)
            });
            assert!(arrived.is_some());
        });
    };
    with(all);
    [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW, CapabilitySet::BPF]
        .into_iter()
        .for_each(|lacks| with(all - lacks));
}

#[test]
fn a_second_program_too_many_queues_and_a_large_mtu_are_refused_in_clear_words() {
    inside(|| {
        if !veth(1) {
            return;
        }
        let words =
            |config: &AfXdpConfig| AfXdp::open("ours", config).map(drop).unwrap_err().to_string();
        let Some(first) = open(&config(XdpMode::Native)) else { return };
        let second = words(&config(XdpMode::Native));
        assert!(second.contains("a second XDP program"), "{second}");
        namespace::close(first);
        let queues = AfXdpConfig { queues: Some(2), ..config(XdpMode::Native) };
        assert!(words(&queues).contains("ethtool -l"), "{}", words(&queues));
        assert!(ip("link set ours mtu 3000"));
        let large = words(&config(XdpMode::Native));
        assert!(large.contains("mtu 1500"), "{large}");
        let missing = AfXdp::open("none", &config(XdpMode::Auto)).unwrap_err();
        assert!(matches!(missing, DeviceError::NotFound { .. }), "{missing}");
        assert!(namespace::drop_capabilities());
        assert!(ip("link show ours"), "reading is allowed to all");
        let denied = words(&AfXdpConfig { frame_bytes: 4096, ..config(XdpMode::Auto) });
        assert!(denied.contains("CAP_BPF"), "{denied}");
    });
}

#[test]
fn link_down_and_up_is_survived_and_a_deleted_interface_is_gone() {
    inside(|| {
        let pool = pool();
        if !veth(1) {
            return;
        }
        let Some(OpenedXdp { mut queues, .. }) = open(&config(XdpMode::Native)) else { return };
        attach(&mut queues, &pool);
        let (kernel, peer) = ends(false);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        for _ in 0..2 {
            assert!(ip("link set ours down"));
            let (bytes, _) = packets::partial_datagram(peer, kernel, [9, 9], b"into nothing");
            let mut list = PacketList::new();
            list.push_back(pool.packet_from(&packets::frame(KERNELS, OURS, &bytes)).unwrap());
            queues[0].transmit(&mut list).unwrap();
            attach(&mut queues, &pool);
            assert!(ip("link set ours up"));
            let again = (0..20).any(|_| {
                let _ = ip("neigh replace 10.98.2.2 lladdr 02:00:00:00:00:0a dev kernels");
                socket.send_to(b"again", (peer, 9)).is_ok()
                    && arrive(&mut queues, &pool, is_ours).is_some()
            });
            assert!(again, "nothing arrives after the link was down");
        }
        assert!(ip("link del ours"));
        let mut burst = Burst::new();
        let gone = (0..100).find_map(|_| {
            wait_millis(queues[0].readiness()?, 10);
            queues[0].receive(&pool, &mut burst).err()
        });
        assert!(matches!(gone, Some(DeviceError::Gone { .. })), "{gone:?}");
    });
}

#[test]
fn many_frames_pass_in_order_without_loss_and_all_memory_comes_home() {
    inside(|| {
        let pool = pool();
        let before = pool.available();
        if !veth(1) {
            return;
        }
        let Some(OpenedXdp { mut queues, .. }) = open(&config(XdpMode::Native)) else { return };
        attach(&mut queues, &pool);
        let (kernel, peer) = ends(false);
        let socket = UdpSocket::bind((kernel, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        // More than all rings together hold, so every frame of them is used again.
        let mut sent = 0_u32;
        let mut got = 0_u32;
        while got < 3000 {
            let mut list = PacketList::new();
            while sent < got + 64 {
                let (bytes, offload) =
                    packets::partial_datagram(peer, kernel, [9, port], &sent.to_be_bytes());
                let frame = packets::frame(KERNELS, OURS, &bytes);
                let mut packet = pool
                    .packet_from_chunks(frame.chunks(if sent.is_multiple_of(3) { 20 } else { 99 }))
                    .unwrap();
                packet.set_checksum_state(ChecksumState::Partial);
                packet.set_offload(packets::behind_ethernet(offload));
                list.push_back(packet);
                sent += 1;
            }
            while !list.is_empty() {
                queues[0].transmit(&mut list).unwrap();
                let _ = arrive_once(&mut queues[0], &pool);
            }
            while got < sent {
                let mut room = [0; 8];
                assert!(wait_millis(socket.as_fd(), 1000), "{got}");
                assert_eq!(socket.recv(&mut room).unwrap(), 4);
                assert_eq!(u32::from_be_bytes(*room.first_chunk().unwrap()), got);
                got += 1;
            }
        }
        for round in 0..30_u32 {
            let numbers = round * 100..round * 100 + 100;
            for number in numbers.clone() {
                socket.send_to(&number.to_be_bytes(), (peer, 9)).unwrap();
            }
            let number =
                |packet: &PacketBuf| u32::from_be_bytes(*flat(packet)[42..].first_chunk().unwrap());
            let came = collect(&mut queues, &pool, 100);
            assert_eq!(came.iter().map(number).collect::<Vec<_>>(), numbers.collect::<Vec<_>>());
        }
        let stats = total(&queues);
        assert_eq!((stats.tx_lost(), stats.rx_lost()), (0, 0));
        assert_eq!(stats.tx_packets, u64::from(sent));
        drop(queues);
        assert_eq!(pool.available(), before);
    });
}

fn arrive_once(device: &mut AfXdp, pool: &Pool) -> usize {
    let mut burst = Burst::new();
    device.receive(pool, &mut burst).unwrap()
}
