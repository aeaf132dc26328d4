//! Segments that travel as one: on their way out of a packet socket and in, through a router,
//! where the peer supports none, and while the link's MTU changes. Every byte is compared, and
//! packets are counted where the kernel counts them.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use floodwall_device::DeviceStats;

use crate::bench::Bench;
use crate::command::{ip, run};
use crate::link::{Ends, Kind, NAME, OTHER_END, ends};
use crate::namespace::{is_deep, packets_at, skip};
use crate::site::{ETH, Host};
use crate::tcp::{self, ECHO, over, over_a_link, there_and_back};

/// Bytes of text of a full segment at an MTU of 1,500, at most.
const FULL: u64 = 1460;
const PATIENCE: Duration = Duration::from_secs(30);

fn len() -> usize {
    if is_deep() { 256 << 20 } else { 8 << 20 }
}

fn ethtool(words: &str) -> bool {
    run("ethtool", words, b"").is_some_and(|said| said.status.success())
}

/// So many bytes to us and back; packets that the kernel's end received of that.
fn echoed(ours: IpAddr) -> u64 {
    let before = packets_at(NAME)[0];
    there_and_back(SocketAddr::new(ours, ECHO), len());
    packets_at(NAME)[0] - before
}

/// Stops; what the device carried. Nothing is lost but what it `refused`.
fn carried(bench: Bench, refused: bool) -> DeviceStats {
    let end = bench.running.stop();
    let stats = end.outcome.expect("it was asked to end").ports[0].stats;
    assert_eq!((stats.rx_lost(), stats.tx_lost() > 0), (0, refused), "{stats:?}");
    stats
}

pub(crate) fn both_ways(bench: Bench) {
    let segments = len() as u64 / FULL;
    for Ends { ours, .. } in ends() {
        let received = echoed(ours);
        assert!(received * 4 < segments, "{ours}: {received} packets of {segments} segments");
    }
    let stats = carried(bench, false);
    assert!(stats.rx_packets * 4 < 2 * segments, "{stats:?}");
    // What left is counted as what it was made of.
    assert!(stats.tx_packets >= 2 * segments, "{stats:?}");
}

/// The kernel neither leaves segments together nor joins any.
#[test]
fn over_a_packet_socket_a_peer_without_super_frames_gets_its_bytes_back() {
    over(Kind::Packet, |bench| {
        if !ethtool(&format!("-K {NAME} tso off gso off gro off tx off")) {
            return skip("no `ethtool`, or it may not");
        }
        for Ends { ours, .. } in ends() {
            echoed(ours);
        }
        let stats = carried(bench, false);
        assert!(stats.rx_bytes <= stats.rx_packets * 1514, "{stats:?}");
    });
}

/// Nothing that was joined crosses a packet socket without offload, either way.
#[test]
fn over_a_packet_socket_without_offload_no_frame_is_longer_than_the_links() {
    over_a_link(Kind::Packet, false, None, |bench| {
        for Ends { ours, .. } in ends() {
            let received = echoed(ours);
            assert!(received >= len() as u64 / FULL, "{received}");
        }
        let stats = carried(bench, false);
        assert!(stats.rx_bytes <= stats.rx_packets * 1514, "{stats:?}");
    });
}

/// Our end's interface cannot cut: the kernel does it.
#[test]
fn over_a_packet_socket_on_an_interface_that_cannot_cut_bytes_come_back() {
    over(Kind::Packet, |bench| {
        if !ethtool(&format!("-K {OTHER_END} tso off gso off tx off")) {
            return skip("no `ethtool`, or it may not");
        }
        for Ends { ours, .. } in ends() {
            let received = echoed(ours);
            assert!(received >= len() as u64 / FULL, "{received}");
        }
        carried(bench, false);
    });
}

/// The link narrows and widens under a connection. What is too long for it then is refused by name,
/// and the connection finds by itself what passes.
#[test]
fn over_a_packet_socket_a_connection_outlives_changes_of_the_mtu() {
    over(Kind::Packet, |bench| {
        for Ends { ours, .. } in ends() {
            let mut stream = tcp::connect(SocketAddr::new(ours, ECHO));
            let mut packets = Vec::new();
            for (round, mtu) in [1500, 1300, 1500].into_iter().enumerate() {
                for end in [OTHER_END, NAME] {
                    assert!(ip(&format!("link set {end} mtu {mtu}")));
                }
                let before = packets_at(NAME)[0];
                let sent: Vec<u8> = (0..1 << 20).map(|at| tcp::byte(at + round)).collect();
                let mut found = vec![0; sent.len()];
                thread::scope(|scope| {
                    scope.spawn(|| (&stream).write_all(&sent).unwrap());
                    (&stream).read_exact(&mut found).unwrap();
                });
                assert!(found == sent, "{ours}, MTU {mtu}");
                packets.push(packets_at(NAME)[0] - before);
            }
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            // Together again once it has found what passes.
            assert!(packets[2] * 4 < (1 << 20) / FULL, "{ours}: {packets:?}");
        }
        carried(bench, true);
    });
}

/// A stream of some megabytes from one host to the other through a router: what left it as one
/// arrives as one.
pub(crate) fn through_a_router(from: &Host, to: &Host, addr: &str) {
    let addr: IpAddr = addr.parse().unwrap();
    let listener = to.inside(|| TcpListener::bind((addr, 0)).unwrap());
    let at = listener.local_addr().unwrap();
    // By then the sender has learnt the narrow link's MTU.
    let send = |len: usize| {
        let mut stream = from.inside(|| TcpStream::connect_timeout(&at, PATIENCE).unwrap());
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let bytes: Vec<u8> = (0..len).map(tcp::byte).collect();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    };
    for len in [100_000, len()] {
        let before = to.received();
        thread::scope(|scope| {
            scope.spawn(|| send(len));
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut found = Vec::with_capacity(len);
            stream.read_to_end(&mut found).unwrap();
            assert_eq!(found.len(), len, "{addr}");
            let wrong = (0..len).find(|at| found[*at] != tcp::byte(*at));
            assert_eq!(wrong, None, "{addr}, {ETH}");
        });
        let (received, segments) = (to.received() - before, len as u64 / FULL);
        assert!(len < 1 << 20 || received * 4 < segments, "{addr}: {received} of {segments}");
    }
}
