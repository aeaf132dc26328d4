//! AF_XDP at the link address of the interface itself, which the host keeps and uses.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;

use floodwall_base::MacAddr;
use floodwall_device::{
    Accept, AfPacket, AfPacketConfig, AfXdp, AfXdpConfig, Device, DeviceError, OpenedXdp, XdpMode,
};
use floodwall_packet::{Burst, Pool, PoolConfig, RxFilter};

use crate::namespace::{available, flat, inside, ip, receive_where, send, skip, wait_millis};
use crate::packets;

/// The interface's, the host's and ours.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const PEERS: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Addresses of ours, of the host, and of another station on the link.
fn addresses(v6: bool) -> [IpAddr; 3] {
    let texts = if v6 {
        ["fd98:2::2", "fd98:2::3", "fd98:2::77"]
    } else {
        ["10.98.2.2", "10.98.2.3", "10.98.2.77"]
    };
    texts.map(addr)
}

/// A veth pair of which the host uses one end, `ours`; the other has no addresses.
fn veth(makes_link_local: bool) -> bool {
    let mode = if makes_link_local { "eui64" } else { "none" };
    let made = ip("link add ours type veth peer name peers")
        && ip("link set ours address 02:00:00:00:00:0a")
        && ip("link set peers address 02:00:00:00:00:0b")
        && ip(&format!("link set ours addrgenmode {mode}"))
        && ip("link set peers addrgenmode none")
        && ip("link set ours up")
        && ip("link set peers up");
    if !made {
        skip("no veth pair in this kernel");
        return false;
    }
    assert!(ip("addr add 10.98.2.3/24 dev ours"));
    assert!(ip("addr add fd98:2::3/64 dev ours nodad"));
    for peer in ["10.98.2.77", "fd98:2::77"] {
        assert!(ip(&format!("neigh add {peer} lladdr 02:00:00:00:00:0b dev ours")));
    }
    true
}

fn open(mode: XdpMode) -> Option<OpenedXdp> {
    let config = AfXdpConfig { mode, ring: 256, ..AfXdpConfig::new(MacAddr(MAC)) };
    match AfXdp::open("ours", &config) {
        Ok(opened) => Some(opened),
        Err(error @ DeviceError::NoPrivilege { .. }) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A whole datagram to `to` from another station.
fn frame(v6: bool, to: IpAddr, port: u16, station: [u8; 6]) -> Vec<u8> {
    let [.., from] = addresses(v6);
    let (mut bytes, offload) = packets::partial_datagram(from, to, [9, port], b"hello");
    let start = usize::from(offload.checksum_start);
    let at = start + usize::from(offload.checksum_offset);
    let sum = floodwall_checksum::sum(&bytes[start..]).finish();
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    packets::frame(station, PEERS, &bytes)
}

/// The frames from the device that satisfy `is_it`: it waits seconds for the expected number, on a
/// busy machine, and a while for more.
fn brought(
    device: &mut AfXdp,
    pool: &Pool,
    expected: usize,
    is_it: impl Fn(&[u8]) -> bool,
) -> usize {
    let mut count = 0;
    for _ in 0..10 {
        let mut burst = Burst::new();
        device.receive(pool, &mut burst).unwrap();
        count += burst.drain().filter(|packet| is_it(&flat(packet))).count();
        let patience = if count < expected { 2000 } else { 20 };
        if !device.pending() && !wait_millis(device.readiness().unwrap(), patience) {
            break;
        }
    }
    count
}

fn ours() -> RxFilter {
    let mut wanted = RxFilter::default();
    wanted.nothing();
    wanted.add_v4("10.98.2.2".parse().unwrap(), true);
    wanted.add_v6("fd98:2::2".parse().unwrap(), true);
    wanted.udp.set(9, true);
    wanted
}

/// The frames that the other end sends, and how many of each the device must deliver.
fn cases() -> Vec<(Vec<u8>, usize)> {
    let mut cases = Vec::new();
    for v6 in [false, true] {
        let [ours, hosts, others] = addresses(v6);
        let group = if v6 { addr("ff02::1") } else { addr("224.0.0.1") };
        cases.push((frame(v6, ours, 9, MAC), 1));
        cases.push((frame(v6, hosts, 9000, MAC), 0));
        cases.push((frame(v6, others, 9, MAC), 0));
        // For a group, though sent to one station; and really for one.
        cases.push((frame(v6, group, 9, MAC), 1));
        let station = if v6 { [0x33, 0x33, 0, 0, 0, 1] } else { [1, 0, 0x5e, 0, 0, 1] };
        cases.push((frame(v6, group, 9, station), 1));
    }
    // A reply to a DHCP client without an address yet, and a frame that only looks like one.
    cases.push((frame(false, addr("10.98.2.50"), 68, MAC), 1));
    cases.push((frame(true, addr("fd98:2::50"), 68, MAC), 0));
    let mut piece = frame(false, addr("10.98.2.50"), 68, MAC);
    piece[21] = 9;
    cases.push((piece, 0));
    // Address resolution, for one station.
    let mut arp = [MAC.as_slice(), &PEERS, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
    arp.extend(PEERS.iter().chain(&[10, 98, 2, 77]).chain(&MAC).chain(&[10, 98, 2, 2]));
    cases.push((arp, 1));
    cases
}

#[test]
fn what_is_for_our_addresses_is_ours_and_the_host_keeps_the_rest() {
    inside(|| {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            let pool = Pool::new(&PoolConfig::default()).unwrap();
            if !veth(false) {
                return;
            }
            let Some(OpenedXdp { mut queues, notes }) = open(mode) else { return };
            assert!(notes.iter().any(|note| note.contains("same link address")), "{notes:?}");
            let device = &mut queues[0];
            let all = AfPacketConfig { accept: Accept::All, ..AfPacketConfig::default() };
            let Some(mut peer) = available(AfPacket::open("peers", &all)) else { return };
            let packet = |bytes: &[u8]| pool.packet_from(bytes).unwrap();
            // Until the first report of accepted destinations, everything goes to the host.
            let _ = brought(device, &pool, 0, |_| true);
            send(&mut peer, packet(&frame(false, addresses(false)[0], 9, MAC)));
            assert_eq!(brought(device, &pool, 0, |bytes| bytes[..6] == MAC), 0, "{mode:?}");
            device.want(&ours());
            for (bytes, expected) in cases() {
                send(&mut peer, packet(&bytes));
                let same = |seen: &[u8]| seen.starts_with(&bytes);
                assert_eq!(brought(device, &pool, expected, same), expected, "{mode:?} {bytes:x?}");
            }
            for v6 in [false, true] {
                let [_, hosts, others] = addresses(v6);
                let service = UdpSocket::bind((hosts, 9000)).unwrap();
                send(&mut peer, packet(&frame(v6, hosts, 9000, MAC)));
                assert!(wait_millis(service.as_fd(), 1000), "the host's service is deaf: {v6}");
                let (_, from) = service.recv_from(&mut [0; 16]).unwrap();
                assert_eq!(from.ip(), others);
                service.send_to(b"answer", from).unwrap();
                let answered = |bytes: &[u8]| bytes[..6] == PEERS && bytes.ends_with(b"answer");
                let seen = receive_where(&mut peer, &pool, |packet| answered(&flat(packet)));
                assert!(seen.is_some(), "the host's answer is lost: {v6}");
            }
            // An address that goes is the host's at once.
            let mut wanted = RxFilter::default();
            wanted.nothing();
            device.want(&wanted);
            for v6 in [false, true] {
                let mine = frame(v6, addresses(v6)[0], 9, MAC);
                send(&mut peer, packet(&mine));
                assert_eq!(brought(device, &pool, 0, |seen| seen.starts_with(&mine)), 0);
            }
            drop(queues);
            assert!(ip("link del ours"));
        }
    });
}

#[test]
fn a_link_local_address_that_both_would_have_is_refused_with_a_way_out() {
    inside(|| {
        if !veth(true) {
            return;
        }
        let config = AfXdpConfig::new(MacAddr(MAC));
        let refused = AfXdp::open("ours", &config).map(drop).unwrap_err().to_string();
        if refused.contains("CAP_BPF") {
            return skip(&refused);
        }
        assert!(refused.contains("addrgenmode random") && refused.contains("--mac"), "{refused}");
        let another = AfXdpConfig::new(MacAddr([2, 0, 0, 0, 0, 0x0c]));
        assert!(AfXdp::open("ours", &another).is_ok());
    });
}
