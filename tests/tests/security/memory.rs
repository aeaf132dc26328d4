//! All that remote peers can fill, filled at once: TCP's queues, unread sockets, incomplete
//! datagrams of both families, and packets for neighbours that do not answer. Each is bounded by
//! itself (`tcp_memory.rs`, `udp_memory.rs`, `fragments.rs`, `neighbors.rs`); here they are
//! together, in every order, and all others are served.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, DropReason, Family};
use floodwall_stack::{Sockets, StackConfig};
use floodwall_tcp::TcpSettings;
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, fragment, from_peer, udp, udp_to_port,
};
use floodwall_tests::ethernet_config;
use floodwall_tests::tcp_peer::TcpPeer;
use floodwall_udp::SocketId;

use crate::tcp_memory::{Hog, exchange, hold, open};
use crate::udp_memory::bind_large;

/// Unread sockets.
const UNREAD: u16 = 200;
/// Their first port.
const FIRST: u16 = 10_000;
/// One that is read.
const DNS: u16 = 53;

/// What is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Streams,
    Sockets,
    Fragments,
    Neighbors,
}

/// Every part first, every part last, and each before and after each other.
const ORDERS: [[Part; 4]; 4] = {
    use Part::{Fragments, Neighbors, Sockets, Streams};
    [
        [Streams, Sockets, Fragments, Neighbors],
        [Neighbors, Fragments, Sockets, Streams],
        [Fragments, Streams, Neighbors, Sockets],
        [Sockets, Neighbors, Streams, Fragments],
    ]
};

struct Scene {
    peer: TcpPeer,
    unread: Vec<SocketId>,
    dns: SocketId,
    frames: usize,
    served: u16,
    streams: u16,
}

impl Scene {
    fn new(family: Family) -> Self {
        let config =
            StackConfig { udp_sockets_max: usize::from(UNREAD) + 8, ..ethernet_config(HOST) };
        let (settings, ends) = (TcpSettings::default(), ((HOST, PEER), (80, 40_000)));
        let settings = TcpSettings { nodelay: true, ..settings };
        let mut peer = TcpPeer::on(&config, family, &settings, ends);
        let frames = peer.rig.pool.available().frames;
        let unread = (FIRST..FIRST + UNREAD).map(|port| bind_large(&mut peer, port)).collect();
        let dns = bind_large(&mut peer, DNS);
        Self { peer, unread, dns, frames, served: 0, streams: 0 }
    }

    /// Adds to a part what remote peers can in a few milliseconds.
    fn fill(&mut self, part: Part, step: u16) {
        match part {
            Part::Streams => {
                let id = open(&mut self.peer, 10_000 + self.streams);
                hold(&mut self.peer, id, Hog::ReadsNothing);
                self.streams += 1;
            }
            Part::Sockets => {
                for n in 0..10 {
                    let port = FIRST + (10 * step + n) % UNREAD;
                    for family in FAMILIES {
                        self.peer.rig.frame(&from_peer(&udp_to_port(family, port, &[7; 1000])));
                    }
                }
            }
            Part::Fragments => {
                for family in FAMILIES {
                    let from = SocketAddr::new(far(family, step), 7);
                    let to = SocketAddr::new(addr(family, HOST), DNS);
                    let whole = udp(from, to, &[9; 6000]);
                    for at in [0, 1200, 2400, 3600] {
                        let id = u32::from(step);
                        let piece = fragment(&whole, id, at, at + 1200, true);
                        self.peer.rig.frame(&from_peer(&piece));
                    }
                }
            }
            Part::Neighbors => {
                for family in FAMILIES {
                    let id = self.unread[0];
                    let to = SocketAddr::new(silent(family, step), 7);
                    let send = |s: &mut Sockets<'_>| {
                        (0..4).for_each(|_| _ = s.udp_send(id, Some(to), &[7; 1000]));
                    };
                    self.peer.sockets(send);
                }
            }
        }
    }

    /// A datagram and its answer, a ping of each family, a connection with some bytes, and memory
    /// for as many again.
    fn others_are_served(&mut self, what: &str) {
        for family in FAMILIES {
            let dns = self.dns;
            self.peer.rig.frame(&from_peer(&udp_to_port(family, DNS, b"question")));
            let (got, sent) = self.peer.rig.sockets(|s| {
                let got = s.udp_recv(dns, &mut [0; 100]).expect("it came");
                s.udp_reply(dns, &got, b"answer").expect("it goes");
                got.len
            });
            assert_eq!((got, sent.len()), (8, 1), "UDP, {family:?}, {what}");
            let ping = echo(addr(family, PEER), addr(family, HOST), &[1; 56]);
            assert_eq!(self.peer.rig.frame(&from_peer(&ping)).len(), 1, "ping, {family:?}, {what}");
        }
        self.served += 1;
        exchange(&mut self.peer, 40_000 + self.served);
        let free = self.peer.rig.pool.available().frames;
        assert!(free > self.frames / 10, "{free} of {} frames are free, {what}", self.frames);
    }

    /// Everything ends, and all memory comes back.
    fn end(mut self, what: &str) {
        let stats = self.peer.rig.stats();
        assert!(stats.conservation().holds(), "{what}");
        for reason in [DropReason::UdpMemoryFull, DropReason::FragmentStoreFull] {
            assert!(stats.drops_in.of(reason) > 0, "{reason:?} was never reached, {what}");
        }
        assert!(stats.drops_out.of(DropReason::NeighborPendingFull) > 0, "{what}");
        assert!(stats.counters.of(Counter::TcpExtTCPAbortOnMemory) > 0, "{what}");
        for id in self.unread.drain(..).chain([self.dns]) {
            self.peer.sockets(|s| s.udp_close(id));
        }
        (0..100).for_each(|_| _ = self.peer.wait(Duration::from_secs(20)));
        assert_eq!(self.peer.rig.pool.available().frames, self.frames, "{what}");
        assert_eq!(self.peer.rig.stats().pending, 0, "{what}");
    }
}

/// A far host, another for each `n`.
fn far(family: Family, n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    match family {
        Family::V4 => IpAddr::from([198, 51, high, low]),
        Family::V6 => IpAddr::from([0x2001, 0xdb8, n, 1, 0, 0, 0, 1]),
    }
}

/// A neighbour that does not exist; each another.
fn silent(family: Family, n: u16) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 0, 0, 10 + (n % 240) as u8]),
        Family::V6 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, 10 + n % 240]),
    }
}

#[test]
fn all_parts_filled_at_once_leave_memory_to_others() {
    for (family, order) in FAMILIES.into_iter().flat_map(|f| ORDERS.map(|order| (f, order))) {
        let mut scene = Scene::new(family);
        scene.others_are_served("before");
        for (at, part) in order.into_iter().enumerate() {
            for step in 0..150 {
                // Earlier connections go on.
                let again = order.iter().take(at).filter(|_| step % 3 == 0);
                again.for_each(|part| scene.fill(*part, step));
                scene.fill(part, step);
                scene.peer.wait(Duration::from_millis(3));
                if step % 25 == 24 {
                    scene.others_are_served(&format!("{family:?} {order:?} {part:?} {step}"));
                }
            }
        }
        scene.end(&format!("{family:?} {order:?}"));
    }
}
